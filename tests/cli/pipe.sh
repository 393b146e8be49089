# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # steps have variables of their own
# pipe.sh - steps one after the other; beginnings that are the same run once.

# shellcheck source=/dev/null
. "$0/store.sh"

# step NAME COMMAND: the same command, which also notes that it was run.
step() {
    printf '%s' "echo $1 >>runs; $2"
}

GATE='until [ -e go ]; do sleep 0.02; done'

# ---- steps ------------------------------------------------------------------

test_a_step_reads_what_the_one_before_wrote() {
    vow pipe -s make='printf "b\nc\na\n"' -s sort=sort -s number='cat -n'
    expect_code 0
    expect_out "     1${TAB}a" "     2${TAB}b" "     3${TAB}c"
    expect_err
}

test_one_step_is_a_pipeline() {
    vow pipe -s only='echo hello'
    expect_code 0
    expect_out hello
}

test_a_step_is_a_line_of_shell() {
    export WHO='a  b'
    vow pipe -s hello='echo "$WHO" | tr a-z A-Z; x=1; echo "x=$x"' -s same=cat
    expect_code 0
    expect_out 'A  B' x=1
}

test_all_bytes_go_through() {
    perl -e 'print pack("C*", 0..255) x 20000' >all
    for _ in 1 2; do
        vow pipe --ttl 1h -s read='cat all' -s same=cat -s again=cat
        expect_code 0
        expect cmp all "$OUT"
    done
}

test_nothing_goes_through() {
    vow pipe -s nothing=true -s count='wc -c'
    expect_code 0
    expect_out 0
}

# A result must not depend on who runs it.
test_the_first_step_reads_nothing() {
    echo mine | vow pipe -s read=cat
    expect_code 0
    expect_out
}

test_a_step_need_not_read() {
    vow pipe -s much='seq 200000' -s few='head -n 1' -s none='echo hello'
    expect_code 0
    expect_out hello
}

test_errors_of_steps_are_seen() {
    vow pipe -s a='echo one >&2; echo x' -s b='echo two >&2; cat'
    expect_code 0
    expect_out x
    expect_err one two
}

test_a_step_has_no_descriptors_of_vow() {
    vow pipe -s a='n=3; while [ $n -lt 100 ]; do
        [ ! -e /proc/self/fd/$n ] || echo $n; n=$((n + 1)); done' -s b=cat
    expect_code 0
    expect_out
}

test_a_step_knows_its_name_and_its_fence() {
    vow pipe -s a='echo "$VOW_NAME $VOW_FENCE" >a' \
        -s b='echo "$VOW_NAME $VOW_FENCE" >b'
    expect_code 0
    expect grep -qxE 'a [1-9][0-9]*' a
    expect grep -qxE 'b [1-9][0-9]*' b
}

# ---- failures ---------------------------------------------------------------

test_a_step_that_fails_is_the_end() {
    for _ in 1 2; do
        vow pipe --ttl 1h -s a="$(step a 'echo x')" \
            -s b="$(step b 'echo partial; echo oops >&2; exit 3')" \
            -s c="$(step c cat)"
        expect_code 3
        expect_out
        expect_err oops
    done
    # What went well is kept, and the failure is not.
    expect_file runs a b b
}

test_the_last_step_may_fail() {
    vow pipe -s a='echo x' -s b='cat; exit 9'
    expect_code 9
    expect_out x
}

test_a_step_may_die_by_a_signal() {
    vow pipe -s a='kill -KILL $$' -s b='touch ran'
    expect_code 137
    expect_not test -e ran
}

test_a_command_that_is_not_there_is_the_shells_affair() {
    vow pipe -s a=no-such-command -s b='touch ran'
    expect_code 127
    expect_err_has no-such-command
    expect_not test -e ran
}

test_a_failure_is_kept_if_told() {
    for _ in 1 2; do
        vow pipe --fail-ttl 1h -s a="$(step a 'exit 3')" -s b="$(step b cat)"
        expect_code 3
    done
    expect_file runs a
}

test_waiters_get_the_failure() {
    for who in a b c; do
        call "$who" pipe -s a="$(step a "$GATE; exit 4")" -s b="$(step b cat)"
    done
    wait_for runs_are 1
    wait_for told_is a waiters 2
    touch go
    settle a b c
    for who in a b c; do
        of "$who"
        expect_code 4
    done
    expect_file runs a
}

test_a_time_limit_is_the_end() {
    vow pipe --timeout 300ms -s a='echo x' -s b='sleep 300 & wait' \
        -s c='touch ran'
    expect_code 124
    expect_not test -e ran
    expect_none_left
}

# ---- the same beginning -----------------------------------------------------

test_a_whole_pipeline_is_kept() {
    for _ in 1 2 3; do
        vow pipe --ttl 1h -s a="$(step a 'echo x')" -s b="$(step b cat)"
        expect_code 0
        expect_out x
    done
    expect_file runs a b
}

test_without_a_ttl_it_runs_again() {
    for _ in 1 2; do
        vow pipe -s a="$(step a 'echo x')" -s b="$(step b cat)"
        expect_out x
    done
    expect_file runs a b a b
}

test_a_beginning_that_was_done_is_not_done_again() {
    first=$(step a 'printf "2\n1\n"')
    second=$(step b sort)
    vow pipe --ttl 1h -s a="$first" -s b="$second" -s c="$(step c 'head -n 1')"
    expect_out 1
    vow pipe --ttl 1h -s a="$first" -s b="$second" -s d="$(step d 'tail -n 1')"
    expect_out 2
    vow pipe --ttl 1h -s a="$first" -s b="$second"
    expect_out 1 2
    vow pipe --ttl 1h -s a="$first" -s e="$(step e 'wc -l')"
    expect_out 2
    expect_file runs a b c d e
}

test_a_middle_that_is_the_same_is_not_the_same() {
    same=$(step same 'tr a-z A-Z')
    vow pipe --ttl 1h -s a='echo one' -s same="$same"
    expect_out ONE
    vow pipe --ttl 1h -s a='echo two' -s same="$same"
    expect_out TWO
    expect_file runs same same
}

test_the_order_of_steps_counts() {
    vow pipe --ttl 1h -s a='echo x' -s b='sed s/x/xy/' -s c='sed s/y/x/'
    expect_out xx
    vow pipe --ttl 1h -s a='echo x' -s c='sed s/y/x/' -s b='sed s/x/xy/'
    expect_out xy
}

test_the_names_of_steps_are_for_people() {
    vow pipe --ttl 1h -s one="$(step x 'echo x')" -s two="$(step y cat)"
    vow pipe --ttl 1h -s eins="$(step x 'echo x')" -s zwei="$(step y cat)"
    expect_out x
    expect_file runs x y
}

test_where_a_step_ends_counts() {
    vow pipe --ttl 1h -s a='echo a' -s b='cat; echo b'
    expect_out a b
    vow pipe --ttl 1h -s a='echo a -s b=cat; echo b'
    expect_out 'a -s b=cat' b
}

test_variables_count_if_told() {
    export URL=1
    vow pipe --ttl 1h --env URL -s a="$(step a 'echo "$URL"')" -s b=cat
    expect_out 1
    export URL=2
    vow pipe --ttl 1h --env URL -s a="$(step a 'echo "$URL"')" -s b=cat
    expect_out 2
    vow pipe --ttl 1h -s a="$(step a 'echo "$URL"')" -s b=cat
    expect_out 2
    export URL=3
    vow pipe --ttl 1h -s a="$(step a 'echo "$URL"')" -s b=cat
    expect_out 2
    expect_file runs a a a
}

test_a_result_may_be_made_anew() {
    vow pipe --ttl 1h -s a="$(step a 'wc -l <runs')" -s b=cat
    expect_out 1
    vow pipe --ttl 1h --force -s a="$(step a 'wc -l <runs')" -s b=cat
    expect_out 2
    vow pipe --ttl 1h -s a="$(step a 'wc -l <runs')" -s b=cat
    expect_out 2
}

# ---- at the same time -------------------------------------------------------

test_a_beginning_of_many_is_run_once() {
    first="echo first >>runs; $GATE; seq 3"
    for n in 1 2 3 4 5 6; do
        call "c$n" pipe -s first="$first" -s last="sed -n 's/^/$n: /p;q'"
    done
    wait_for runs_are 1
    wait_for told_is first waiters 5
    touch go
    for n in 1 2 3 4 5 6; do
        all_got "$n: 1" "c$n"
    done
    expect_file runs first
}

test_the_same_pipeline_of_many_is_run_once() {
    for n in 1 2 3 4 5; do
        call "c$n" pipe --ttl 1h -s a="$(step a "$GATE; echo x")" \
            -s b="$(step b 'sleep 0.1; cat')" -s c="$(step c cat)"
    done
    wait_for told_is a waiters 4
    touch go
    all_got x c1 c2 c3 c4 c5
    expect_file runs a b c
}

test_a_short_one_hooks_on_to_a_long_one() {
    call long pipe -s a="$(step a "$GATE; echo x")" \
        -s b="$(step b 'sed s/x/y/')"
    wait_for runs_are 1
    call short pipe -s a="$(step a "$GATE; echo x")"
    wait_for told_is a waiters 1
    touch go
    all_got x short
    all_got y long
    expect_file runs a b
}

test_a_long_one_hooks_on_to_a_short_one() {
    call short pipe -s a="$(step a "$GATE; echo x")"
    wait_for runs_are 1
    call long pipe -s a="$(step a "$GATE; echo x")" \
        -s b="$(step b 'sed s/x/y/')"
    wait_for told_is a waiters 1
    touch go
    all_got x short
    all_got y long
    expect_file runs a b
}

# Whoever comes first: each beginning runs once, and nobody waits in a ring.
test_many_pipelines_get_on_with_each_other() {
    a=$(step a 'sleep 0.05; seq 9') b=$(step b 'sleep 0.05; sort -r')
    c=$(step c 'head -n 2') d=$(step d 'tail -n 1')
    for n in 1 2 3 4; do
        call "abc$n" pipe --ttl 1h -s a="$a" -s b="$b" -s c="$c"
        call "abd$n" pipe --ttl 1h -s a="$a" -s b="$b" -s d="$d"
        call "ad$n" pipe --ttl 1h -s a="$a" -s d="$d"
        call "ab$n" pipe --ttl 1h -s a="$a" -s b="$b"
        call "a$n" pipe --ttl 1h -s a="$a"
    done
    for n in 1 2 3 4; do
        all_got 1 "abd$n"
        all_got 9 "ad$n"
        for name in abc ab a; do
            settle "$name$n"
            of "$name$n"
            expect_code 0
        done
        of "abc$n"
        expect_out 9 8
        of "ab$n"
        expect_lines 9 "$OUT"
    done
    sort runs >sorted
    expect_file sorted a b c d d
}

# ---- told -------------------------------------------------------------------

# role_of STEP KEY: from its line in the file role.
role_of() {
    sed -n "/\"step\":\"$1\"/s/.*\"$2\":\"\{0,1\}\([^\",}]*\).*/\1/p" role
}

test_roles_tell_who_ran_each_step() {
    roles='exec "$VOW" pipe --role-fd 3 --ttl 1h "$@" 3>role'
    inside "$roles" -s a='echo x' -s b=cat
    expect_json role
    runner=$(uname -n):$(cat "$T/pid")
    for step in a b; do
        expect test "$(role_of "$step" role)" = ran
        expect test "$(role_of "$step" runner)" = "$runner"
    done
    inside "$roles" -s a='echo x' -s b=cat -s c=cat
    expect_json role
    expect_lines 3 role
    expect test "$(role_of a role)" = none
    expect test "$(role_of b role)" = cached
    expect test "$(role_of b runner)" = "$runner"
    expect test "$(role_of c role)" = ran
    expect test "$(role_of c runner)" = "$(uname -n):$(cat "$T/pid")"
}

test_a_step_that_is_canceled_ends_the_pipeline() {
    call a pipe --ttl 1h -s one="$(step one 'echo x')" \
        -s two="$(step two "$GATE; cat")"
    wait_for has_lines 2 runs
    "$VOW" cancel "$(told two id)"
    settle a
    of a
    expect_code 125
    expect_sentence
    expect_err_has cancel
    expect_none_left
}

test_a_step_may_write_too_much() {
    vow pipe --ttl 1h --max-output 1M -s one='echo x' -s much='exec yes' \
        -s three='touch ran; cat'
    expect_code 125
    expect_sentence
    expect_err_has max-output
    expect_not test -e ran
    expect_none_left
    vow status --json
    expect_lines 1 "$OUT"
    expect_out_has '"one"'
}

# ---- killed -----------------------------------------------------------------

test_a_killed_runner_is_replaced_where_it_was() {
    for who in a b; do
        call "$who" pipe --ttl 1h --lease 60s -s one="$(step one 'echo x')" \
            -s two="echo \"\$CALLER\" >>two; $GATE; cat" \
            -s three="$(step three cat)"
    done
    wait_for has_lines 1 two
    wait_for told_is two waiters 1
    send KILL "$(cat two)"
    wait_for has_lines 2 two
    touch go
    all_got x "$(sed -n 2p two)"
    # The step that was done is not done again.
    expect_file runs one three
}

test_a_signal_leaves_nothing() {
    call a pipe -s one='echo x' -s two='sleep 300 & touch ready; wait'
    wait_for test -e ready
    send TERM a
    settle a
    of a
    expect_signal TERM
    expect_none_left
}

# ---- bad usage --------------------------------------------------------------

test_bad_usage_is_told() {
    refused pipe
    refused pipe -s
    refused pipe -s 'touch ran'
    refused pipe -s '=touch ran'
    refused pipe -s a=
    refused pipe -s a='touch ran' -- touch ran
    refused pipe -s a='touch ran' more
    refused pipe --ttl soon -s a='touch ran'
    expect_err_has soon
    refused pipe --tll 1h -s a='touch ran'
    expect_err_has --ttl
}

test_help_tells_the_options() {
    vow pipe --help
    expect_code 0
    for option in ttl env store; do
        expect_out_has "--$option"
    done
}
