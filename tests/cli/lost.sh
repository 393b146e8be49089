# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# lost.sh - locks and places that are lost while a command runs, because the
# store went away; and what is told of pools that are used in a wrong way.

# shellcheck source=/dev/null
. "$0/store.sh"

BRIEF="--lease $LEASE --pulse $PULSE"
# A sixth of it is what a busy machine may be late by; when all of it stood
# still is not counted.
LONG=$((30000 + 6000 * VOW_TEST_SLOW))ms

# ran_for MS: how long the command wrote beats after that time, without those
# pauses.
ran_for() {
    perl -e 'my ($from, $last) = ($ARGV[0], $ARGV[0]);
        open my $beats, "<", "beat";
        while (<$beats>) {
            my $now = int($_ / 1e6);
            next if $now < $from;
            $from += $now - $last - 100 if $now - $last > 100;
            $last = $now;
        }
        print $last - $from, "\n"' "$1"
}

# gone: from now on, nobody can use the store. Somebody may be about to make it
# anew.
gone() {
    mv "$T/store" "$T/away"
    until (: >"$T/store") 2>/dev/null; do
        wait_for rm -rf "$T/store" # others write files in it
    done
}

# lost VERB...: vow with the command that follows, until it has begun.
lost() {
    # shellcheck disable=SC2086 # a list of words
    start "$@"
    wait_for test -e ready
    gone
    finish
}

# ---- locks ------------------------------------------------------------------

test_a_lost_lock_ends_the_command() {
    lost lock x --lease "$LONG" --pulse "$PULSE" -- sh -c '
        trap "echo told; exit 0" TERM
        touch ready; while :; do sleep 0.02; done'
    expect_code 121
    expect_out told
    expect_err_has "'x' is lost"
    expect_none_left
}

test_a_lost_lock_kills_before_the_lease_ends() {
    start lock x --lease "$LONG" --pulse "$PULSE" -- sh -c 'trap "" TERM
        touch ready; while :; do date +%s%N >>beat; sleep 0.05; done'
    wait_for test -e ready
    before=$(now_ms)
    gone
    finish
    expect_code 121
    expect_none_left
    last=$(ran_for "$before")
    note "it ran for $last ms without the store"
    expect test "$last" -lt "${LONG%ms}"
}

test_a_long_kill_sequence_is_cut_short() {
    start lock x --lease "$LONG" --pulse "$PULSE" \
        --kill-seq INT,100s,TERM,100s -- sh -c '
        trap "echo INT >>got" INT; trap "echo TERM >>got" TERM
        touch ready; while :; do date +%s%N >>beat; sleep 0.05; done'
    wait_for test -e ready
    before=$(now_ms)
    gone
    finish
    expect_code 121
    expect_file got INT TERM
    expect test "$(ran_for "$before")" -lt "${LONG%ms}"
}

test_a_lost_lock_may_be_told_to_keep_the_command() {
    # shellcheck disable=SC2086 # a list of words
    start lock x $BRIEF --on-lost keep -- sh -c '
        touch ready; until [ -e go ]; do sleep 0.02; done; echo done; exit 3'
    wait_for test -e ready
    gone
    wait_for test -s "$ERR"
    touch go
    finish
    expect_code 3
    expect_out 'done'
    expect_lines 1 "$ERR"
    expect_err_has lost
}

test_a_lock_is_not_lost_by_a_short_silence() {
    start lock x --lease 60s --pulse 50ms -- sh -c '
        touch ready; until [ -e go ]; do sleep 0.02; done; echo done'
    wait_for test -e ready
    kill -STOP "$PID"
    sleep 0.5
    kill -CONT "$PID"
    sleep 0.2
    expect told_is x running 1
    touch go
    finish
    expect_code 0
    expect_out 'done'
    expect_err
}

test_who_waits_hears_that_the_store_is_gone() {
    # shellcheck disable=SC2086 # a list of words
    call a lock x $BRIEF -- sh -c 'touch ready; sleep 300'
    wait_for test -e ready
    # shellcheck disable=SC2086 # a list of words
    call b lock x $BRIEF -- touch ran
    wait_for told_is x queue 1
    gone
    settle a b
    of b
    expect_code 125
    expect_sentence
    expect_not test -e ran
}

test_a_name_may_begin_with_a_dash() {
    vow lock -- -x -- sh -c 'echo "$VOW_NAME"'
    expect_code 0
    expect_out -x
}

# ---- pools ------------------------------------------------------------------

test_a_lost_place_ends_the_command() {
    lost run --pool p -j1 --lease "$LONG" --pulse "$PULSE" -- sh -c '
        trap "echo told; exit 0" TERM
        touch ready; while :; do sleep 0.02; done'
    expect_code 121
    expect_out told
    expect_err_has lost
    expect_none_left
}

test_a_lost_place_ends_a_job_and_then_the_run() {
    # shellcheck disable=SC2086 # a list of words
    lost map --pool p -j1 $BRIEF --log log.jsonl \
        'touch ready; sleep 300; touch ran.{}' ::: a b c
    expect_code 125
    expect_err_has 'lost its pool permit'
    expect_json log.jsonl
    expect_lines 1 log.jsonl
    expect grep -q '"exit":121' log.jsonl
    expect_not test -e ran.b
    expect_none_left
}

test_a_place_that_was_lost_does_not_end_the_others() {
    # shellcheck disable=SC2086 # a list of words
    start map -k --pool p -j1 $BRIEF 'touch ready
        [ {} != a ] || sleep 300; echo {}' ::: a b c
    wait_for test -e ready
    mv "$T/store" "$T/away" # to delete it file by file would take time
    finish
    expect_code 1
    expect_out b c
    expect_err_has 'lost its pool permit'
}

test_other_limits_than_those_of_the_pool_are_told_once() {
    vow limit p -j 2 --rate 500/s
    vow map -k --pool p -j5 echo ::: a b c
    expect_code 0
    expect_out a b c
    expect_err "vow: pool 'p' has -j 2 and 500/1s; vow limit p changes it"
    vow run --pool p --rate 7/m -- true
    expect_err "vow: pool 'p' has -j 2 and 500/1s; vow limit p changes it"
    vow run --pool p -j2 --rate 500/1s -- true
    expect_err
    vow run --pool p -- true
    expect_err
}

test_a_pool_needs_a_limit() {
    refused run --pool p -- touch ran
    expect_err_has -j
    vow map --pool p touch ::: ran
    expect_code 2
    expect_sentence
    expect_not test -e ran
    vow limit p
    expect_code 66
}

test_an_even_rate_spreads_the_starts_of_many() {
    before=$(now_ms)
    for who in a b; do
        call "$who" map --pool p -j20 --rate 10/1s --even \
            'date +%s%N >>starts; : {}' ::: 1 2 3
    done
    settle a b
    expect_lines 6 starts
    sort -n starts | while read -r at; do
        after=$((at / 1000000 - before))
        note "after $after ms"
        expect test "$after" -ge $((${index:=0} * 100 - 2))
        index=$((index + 1))
    done
    vow limit p
    expect_out_has 'per 100ms'
}

test_limits_are_taken_away() {
    vow limit p -j 2 --rate 5/s
    vow limit p -j none
    vow limit p
    expect_out 'p  running 0  rate 0/5 per 1s  queue 0'
    vow limit p -j 3 --rate none --json
    expect_json "$OUT"
    expect_out_has '"limit":3'
    vow limit p
    expect_out 'p  running 0/3  queue 0'
}

test_a_key_has_no_limits_of_its_own() {
    refused limit h:one -j 3
    expect_err_has "'h'"
    vow map --pool 'h:{}' -j3 true ::: one two
    vow limit h
    expect_out 'h  running 0/3  queue 0'
}

test_a_lock_keeps_its_limit() {
    refused limit lock:x -j 3
    expect_err_has lock
}

test_a_store_is_for_a_pool() {
    refused run --store "$VOW_STORE" -- touch ran
    expect_err_has --pool
    refused run --lease 5s -- touch ran
    expect_err_has --pool
    refused run --pool p -j1 --even -- touch ran
    expect_err_has --rate
    vow map --pool p --rate 5/s --even --weight 2 touch ::: ran
    expect_code 2
    expect_err_has --weight
}
