# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # steps have variables of their own
# pipe_stream.sh - steps that read while the one before them still writes.

# shellcheck source=/dev/null
. "$0/store.sh"

GATE='until [ -e go ]; do sleep 0.02; done'

test_a_step_reads_while_the_one_before_it_runs() {
    call a pipe --stream -s one="echo first; $GATE; echo last" \
        -s two='sed -u s/^/2/' -s three='sed -u s/^/3/'
    wait_for has_line "$T/a.out" 32first
    touch go
    settle a
    of a
    expect_code 0
    expect_out 32first 32last
    expect_err
}

test_megabytes_go_through() {
    vow pipe --stream -s make='seq 2000000' -s same=cat -s again=cat
    expect_code 0
    seq 2000000 >all
    expect cmp all "$OUT"
}

test_a_step_that_fails_ends_those_behind_it() {
    vow pipe --stream -s one='echo text; echo sorry >&2; exit 5' \
        -s two='cat >/dev/null; sleep 300' -s three='cat; sleep 300'
    expect_code 5
    expect_out
    expect_err sorry
    expect_none_left
}

test_what_it_wrote_before_counts_for_nothing() {
    vow pipe --stream --ttl 1h -s one='seq 5; exit 3' -s two='wc -l'
    expect_code 3
    expect_out
    vow pipe --stream --ttl 1h -s one='seq 5; exit 3' -s two='wc -l'
    expect_code 3
    expect_out
}

test_a_step_behind_it_may_fail_first() {
    vow pipe --stream -s one='seq 5; sleep 0.3' -s two='exit 4' -s three='wc -l'
    expect_code 4
    expect_out
}

test_a_step_need_not_read_all() {
    vow pipe --stream -s much='seq 200000' -s few='head -n 1'
    expect_code 0
    expect_out 1
}

test_it_counts_only_if_all_before_it_end_well() {
    vow pipe --stream -s one="echo x; until [ -e seen ]; do sleep 0.02; done
        exit 6" -s two='cat >/dev/null & touch seen; echo early'
    expect_code 6
}

test_results_are_the_same_as_without() {
    vow pipe --stream --ttl 1h -s a='echo ran >>runs; seq 3' -s b='sort -r'
    expect_out 3 2 1
    vow pipe --ttl 1h -s a='echo ran >>runs; seq 3' -s c='head -n 1'
    expect_out 1
    vow pipe --stream --ttl 1h -s a='echo ran >>runs; seq 3' -s d='tail -n 1'
    expect_out 3
    expect_file runs ran
}

test_who_comes_later_reads_from_the_first_byte_on() {
    one="echo first; echo run >>runs; $GATE; echo last"
    call a pipe --stream -s one="$one" -s two='sed -u s/^/a/'
    wait_for has_line "$T/a.out" afirst
    call b pipe --stream -s one="$one" -s two='sed -u s/^/b/'
    wait_for has_line "$T/b.out" bfirst
    touch go
    settle a b
    of a
    expect_code 0
    expect_out afirst alast
    of b
    expect_code 0
    expect_out bfirst blast
    expect runs_are 1
}

test_nothing_is_seen_twice_when_the_runner_is_killed() {
    one='echo "$CALLER" >>runs; seq 3; '"$GATE; echo last"
    for who in a b; do
        call "$who" pipe --stream --lease 60s -s one="$one" -s two='cat' \
            -s three="sed -u s/^/$who/"
    done
    wait_for has_line "$T/a.out" a3
    wait_for has_line "$T/b.out" b3
    expect runs_are 1
    killed=$(cat runs)
    send KILL "$killed"
    wait_for runs_are 2
    touch go
    left=$(sed -n 2p runs)
    settle "$left"
    of "$left"
    expect_code 0
    expect_out "${left}1" "${left}2" "${left}3" "${left}last"
}
