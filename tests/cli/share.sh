# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# share.sh - one runs, and all who ask get its result.

# shellcheck source=/dev/null
. "$0/store.sh"

# Notes each run and prints its number.
NEXT='echo run >>runs; echo "$(($(wc -l <runs)))"'

# ---- one run ----------------------------------------------------------------

test_one_runs_and_all_get_its_result() {
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    for who in b c d e f g h i j; do
        call "$who" share x -- sh -c "$JOB"
    done
    wait_for told_is x waiters 9
    touch go
    all_got 'by a' a b c d e f g h i j
    expect_file runs a
}

test_a_hundred_callers_are_one_run() {
    for i in $(seq 100); do
        call "c$i" share x -- sh -c "$JOB"
    done
    wait_for told_is x waiters 99
    touch go
    for i in $(seq 100); do
        all_got "by $(cat runs)" "c$i"
    done
    expect runs_are 1
}

test_who_comes_later_runs_it_again() {
    for i in 1 2 3; do
        vow share x -- sh -c "$NEXT"
        expect_code 0
        expect_out "$i"
    done
}

test_the_name_decides_not_the_command() {
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share x -- echo mine
    wait_for told_is x waiters 1
    touch go
    all_got 'by a' a b
}

test_other_names_are_other_work() {
    long=$(head -c 300 /dev/zero | tr '\0' n)
    # The last one is not text in any encoding.
    set -- a A ' a' 'a ' 'a b' 'a/b' '../a' "it's" '"q"' '$(touch hacked)' é \
        '*' 'a%' "$long" "${long}x" "$(printf 'a\nb')" "$(printf 'a\377')"
    for name; do
        vow share --ttl 1h "$name" -- printf %s "$name"
        expect_code 0
    done
    for name; do
        note "$name"
        vow share --ttl 1h "$name" -- touch ran
        expect_code 0
        printf %s "$name" >"$T/name"
        expect cmp "$T/name" "$OUT"
    done
    expect_not test -e ran
    expect_not test -e hacked
}

test_a_command_may_share_other_work() {
    vow share x -- "$VOW" share y -- "$VOW" share z -- echo hello
    expect_code 0
    expect_out hello
    expect_err
}

test_options_may_stand_behind_the_name() {
    vow share x --ttl 1h -- sh -c "$NEXT"
    vow share x --ttl 1h -- sh -c "$NEXT"
    expect_out 1
}

test_the_command_is_run_word_by_word() {
    vow share x -- printf '<%s>' 'a b' '' '$HOME' '{}' '*'
    expect_bytes '<a b><><$HOME><{}><*>'
}

# ---- to the byte ------------------------------------------------------------

# replayed COMMAND...: it runs once, and what it writes and how it ends is the
# same for who runs it, for who asks later, and for `vow result`.
replayed() {
    vow share --ttl 1h --fail-ttl 1h x -- "$@"
    cp "$STATUS" "$T/first.status"
    for again in 'share --peek x' 'share x -- touch ran' 'result x'; do
        note "$again"
        # shellcheck disable=SC2086 # a list of words
        OUT=$T/again ERR=$T/again.err vow $again
        expect cmp "$OUT" "$T/again"
        expect cmp "$ERR" "$T/again.err"
        expect cmp "$T/first.status" "$STATUS"
    done
    expect_not test -e ran
}

test_all_bytes_are_replayed() {
    perl -e 'print pack("C*", 0..255) x 100' >all
    replayed sh -c 'cat all; tac all >&2'
    expect cmp all "$OUT"
    tac all >backwards
    expect cmp backwards "$ERR"
}

test_nothing_is_replayed_as_nothing() {
    replayed true
    expect_code 0
    expect_out
    expect_err
}

test_a_missing_newline_stays_missing() {
    replayed sh -c 'printf a; printf b >&2'
    expect_bytes a
    expect test "$(wc -c <"$ERR")" -eq 1
}

test_errors_alone_are_replayed() {
    replayed sh -c 'echo oops >&2; exit 9'
    expect_code 9
    expect_out
    expect_err oops
}

test_64_megabytes_are_replayed() {
    replayed sh -c 'seq 9000000 2>/dev/null | head -c 67108864; exit 7'
    expect_code 7
    expect test "$(wc -c <"$OUT")" -eq 67108864
    seq 9000000 2>/dev/null | head -c 67108864 | cmp - "$OUT" ||
        fail 'it is not the same'
}

test_waiters_get_megabytes_too() {
    big="$JOB; seq 1000000"
    call a share x -- sh -c "$big"
    wait_for runs_are 1
    call b share x -- sh -c "$big"
    call c share --follow x -- sh -c "$big"
    wait_for told_is x waiters 2
    touch go
    settle a b c
    {
        echo 'by a'
        seq 1000000
    } >all
    for who in a b c; do
        of "$who"
        expect_code 0
        expect cmp all "$OUT"
    done
}

# Each piece is written when the one before has come out at the other end.
test_the_order_of_both_streams_is_replayed() {
    export SEEN="$OUT"
    script='"$VOW" share --follow --ttl 1h x -- sh -c "
        seen() { until grep -qs \$1 \"$SEEN\"; do sleep 0.02; done; }
        echo o1; seen o1; echo e1 >&2; seen e1; echo o2; seen o2
        echo e2 >&2; seen e2; echo e3 >&2; seen e3; echo o3" 2>&1'
    inside "$script"
    expect_code 0
    expect_out o1 e1 o2 e2 e3 o3
    inside '"$VOW" share --peek x 2>&1'
    expect_code 0
    expect_out o1 e1 o2 e2 e3 o3
    inside '"$VOW" result x 2>&1'
    expect_out o1 e1 o2 e2 e3 o3
}

test_who_runs_it_may_see_the_output_as_it_comes() {
    call a share --follow x -- sh -c "echo first; $JOB"
    wait_for has_line "$T/a.out" first
    touch go
    settle a
    of a
    expect_code 0
    expect_out first 'by a'
}

# ---- how it ends ------------------------------------------------------------

test_every_exit_code_is_replayed() {
    inside 'for code in $(seq 0 255); do
        ran=0 again=0
        "$VOW" share --ttl 1h --fail-ttl 1h "$code" -- sh -c "exit $code" ||
            ran=$?
        "$VOW" share --peek "$code" || again=$?
        echo "$code $ran $again"
    done'
    expect_code 0
    expect_err
    for code in $(seq 0 255); do
        echo "$code $code $code"
    done >wanted
    expect cmp wanted "$OUT"
}

test_every_signal_is_replayed() {
    # All that end a process: not those that stop it or do nothing.
    signals="$(seq 1 16) $(seq 24 27) $(seq 29 31) $(seq 34 64)"
    # shellcheck disable=SC2086 # a list of numbers
    inside 'for signal; do
        ran=0 again=0
        "$VOW" share --fail-ttl 1h "$signal" -- \
            sh -c "kill -$signal \$\$; sleep 9" || ran=$?
        "$VOW" share --peek "$signal" || again=$?
        echo "$signal $ran $again"
    done' $signals
    expect_code 0
    expect_err
    for signal in $signals; do
        echo "$signal $((128 + signal)) $((128 + signal))"
    done >wanted
    expect cmp wanted "$OUT"
}

test_waiters_get_the_failure() {
    fails="$JOB; echo oops >&2; exit 3"
    call a share x -- sh -c "$fails"
    wait_for runs_are 1
    call b share x -- sh -c "$fails"
    call c share --ttl 1h x -- sh -c "$fails"
    wait_for told_is x waiters 2
    touch go
    settle a b c
    for who in a b c; do
        of "$who"
        expect_code 3
        expect_out 'by a'
        expect_err oops
    done
    expect_file runs a
}

test_waiters_get_the_signal() {
    call a share x -- sh -c "$JOB; kill -KILL \$\$"
    wait_for runs_are 1
    call b share x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    touch go
    settle a b
    of a
    expect_code 137
    of b
    expect_code 137
    expect_out 'by a'
}

test_a_time_limit_is_the_end_for_all() {
    call a share --timeout "$LEASE" x -- sh -c "$JOB"
    wait_for runs_are 1
    # It does not look at its time before the other waits.
    send STOP a
    call b share x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    send CONT a
    settle a b
    of a
    expect_code 124
    of b
    expect_code 124
    expect runs_are 1
    expect_none_left
}

test_a_name_that_was_forgotten_is_told() {
    vow share no-such-program build .
    expect_code 127
    expect_err_has "'no-such-program' was taken as the name"
    expect_err_has 'use vow share NAME -- COMMAND'
    expect_sentence
}

test_a_command_that_is_not_there_is_told() {
    vow share --fail-ttl 1h x -- no-such-command
    expect_code 127
    expect_err_has no-such-command
    expect_sentence
    vow share --peek x
    expect_code 66
}

test_a_command_that_cannot_be_run_is_told() {
    echo text >plain
    vow share --fail-ttl 1h x -- ./plain
    expect_code 126
    expect_err_has ./plain
    expect_sentence
    vow share --peek x
    expect_code 66
}

# ---- what a command has -----------------------------------------------------

# Whoever runs it: a result must not depend on who that is.
test_standard_input_is_empty() {
    echo mine | vow share x -- cat
    expect_code 0
    expect_out
}

test_a_caller_that_does_not_run_leaves_its_input_alone() {
    vow share --ttl 1h x -- true
    inside 'printf "1\n2\n" | { "$VOW" share --ttl 1h x -- true; cat; }'
    expect_out 1 2
}

test_a_command_knows_its_name_and_its_fence() {
    vow share 'my name' -- sh -c 'echo "$VOW_NAME"; echo "$VOW_FENCE" >fence'
    expect_out 'my name'
    expect grep -qxE '[1-9][0-9]{0,15}' fence
}

test_fences_only_grow() {
    fence='echo "$VOW_FENCE" >>fences'
    vow share x -- sh -c "$fence"
    vow share x -- sh -c "$fence; exit 1"
    vow share --ttl 1h x -- sh -c "$fence"
    vow share --ttl 1h --force x -- sh -c "$fence"
    vow forget x
    vow share x -- sh -c "$fence"
    expect_lines 5 fences
    expect sort -nuc fences
}

test_a_command_has_no_descriptors_of_vow() {
    call_role a --follow x -- sh -c 'n=3; while [ $n -lt 100 ]; do
        [ ! -e /proc/self/fd/$n ] || echo $n; n=$((n + 1)); done; echo done'
    all_got 'done' a
}

# ---- who is left behind -----------------------------------------------------

test_a_process_in_the_background_does_not_hold_up_the_result() {
    vow share --ttl 1h x -- sh -c 'sleep 300 & echo hello'
    expect_code 0
    expect_out hello
    vow share --peek x
    expect_out hello
}

test_what_was_written_before_the_end_is_whole() {
    # The pipe has a writer to the end of the test.
    vow share --ttl 1h x -- sh -c 'sleep 300 & seq 300000'
    expect_code 0
    seq 300000 >all
    expect cmp all "$OUT"
    vow share --peek x
    expect cmp all "$OUT"
}

test_a_waiter_may_leave() {
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share x -- sh -c "$JOB"
    call c share x -- sh -c "$JOB"
    wait_for told_is x waiters 2
    send TERM b
    settle b
    of b
    expect_signal TERM
    wait_for told_is x waiters 1
    touch go
    all_got 'by a' a c
    expect runs_are 1
}

test_a_reader_that_does_not_read_holds_up_nobody() {
    mkfifo pipe
    exec 8<>pipe
    CALLER=a perl -e "$PARENT" "$T/a.status" "$T/a.pid" "$VOW" share \
        --lease "$LEASE" --pulse "$PULSE" x -- \
        sh -c "seq 100000; $JOB" >pipe 2>"$T/a.err" &
    # The command got rid of more than a pipe can hold.
    wait_for runs_are 1
    call b share x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    touch go
    settle b
    {
        seq 100000
        echo 'by a'
    } >all
    of b
    expect_code 0
    expect cmp all "$OUT"
}

test_a_reader_that_has_gone_takes_nothing_from_the_others() {
    perl -e "$PARENT" "$T/a.status" "$T/a.pid" "$VOW" share x -- \
        sh -c "$JOB; seq 100000" 2>/dev/null | true &
    wait_for runs_are 1
    call b share x -- sh -c "$JOB; seq 100000"
    wait_for told_is x waiters 1
    touch go
    settle b
    of b
    expect_code 0
    seq 100000 >all
    tail -n +2 "$OUT" >rest
    expect cmp all rest
}

# ---- to follow --------------------------------------------------------------

test_waiters_may_see_the_output_as_it_comes() {
    parts="echo one; echo bad >&2; $JOB"
    call a share --follow x -- sh -c "$parts"
    wait_for runs_are 1
    call b share --follow x -- sh -c "$parts"
    wait_for has_line "$T/b.out" one
    wait_for has_line "$T/b.err" bad
    touch go
    settle a b
    for who in a b; do
        of "$who"
        expect_code 0
        expect_out one 'by a'
        expect_err bad
    done
}

test_without_that_they_see_it_in_the_end() {
    parts="echo one; $JOB"
    call a share --follow x -- sh -c "$parts"
    wait_for has_line "$T/a.out" one
    call b share x -- sh -c "$parts"
    wait_for told_is x waiters 1
    of b
    expect_out
    touch go
    settle b
    expect_code 0
    expect_out one 'by a'
}

test_who_follows_one_that_is_not_followed_gets_it_all_the_same() {
    parts="echo one; $JOB"
    call a share x -- sh -c "$parts"
    wait_for runs_are 1
    call b share --follow x -- sh -c "$parts"
    wait_for told_is x waiters 1
    touch go
    settle a b
    of b
    expect_code 0
    expect_out one 'by a'
}

test_who_follows_gets_the_exit_code() {
    call a share --follow x -- sh -c "$JOB; exit 6"
    wait_for runs_are 1
    call b share --follow x -- true
    wait_for told_is x waiters 1
    touch go
    settle b
    of b
    expect_code 6
    expect_out 'by a'
}

# ---- which case it was ------------------------------------------------------

# role CALLER KEY: from its line.
role() {
    sed -n "s/.*\"$2\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$T/$1.role"
}

# expect_role CALLER ROLE RUNNER: and the fence is in the file fence.
expect_role() {
    settle "$1"
    note "$1: $(cat "$T/$1.role")"
    expect_json "$T/$1.role"
    expect_lines 1 "$T/$1.role"
    expect test "$(role "$1" role)" = "$2"
    expect test "$(role "$1" runner)" = "$(uname -n):$(cat "$T/$3.pid")"
    expect test "$(role "$1" fence)" = "$(cat fence)"
}

test_role_tells_who_ran_and_who_joined() {
    fenced="$JOB; echo \$VOW_FENCE >fence"
    call_role a x -- sh -c "$fenced"
    wait_for runs_are 1
    call_role b x -- sh -c "$fenced"
    wait_for told_is x waiters 1
    touch go
    all_got 'by a' a b
    expect_role a ran a
    expect_role b joined a
}

test_role_tells_of_results_that_were_there() {
    call_role a --ttl 1h x -- sh -c 'echo $VOW_FENCE >fence; echo 1'
    all_got 1 a
    expect_role a ran a
    call_role b --ttl 1h x -- echo 2
    all_got 1 b
    expect_role b cached a
    call_role c --ttl 1h --stale 1ms x -- echo 2
    all_got 1 c
    expect_role c stale a
}

test_option_v_tells_it_to_people() {
    vow share -v --ttl 1h x -- echo 1
    expect_out 1
    expect_err_has ran
    vow share -v --ttl 1h x -- echo 2
    expect_out 1
    expect_err_has cached
}

test_a_descriptor_that_is_not_open_is_told() {
    refused share --role-fd 99 x -- touch ran
    expect_err_has 99
}

# ---- too much output --------------------------------------------------------

test_output_up_to_the_limit_is_kept() {
    vow share --ttl 1h --max-output 1000 x -- \
        sh -c 'head -c 600 /dev/zero; head -c 400 /dev/zero >&2'
    expect_code 0
    vow share --peek x
    expect_code 0
    expect test "$(wc -c <"$OUT")" -eq 600
    expect test "$(wc -c <"$ERR")" -eq 400
}

test_output_beyond_the_limit_is_a_failure() {
    vow share --ttl 1h --max-output 1000 x -- \
        sh -c 'head -c 600 /dev/zero; head -c 401 /dev/zero >&2'
    expect_code 125
    expect_err_has max-output
    vow share --peek x
    expect_code 66
}

test_endless_output_has_an_end() {
    call a share --max-output 1M x -- sh -c "$JOB; exec yes"
    wait_for runs_are 1
    call b share x -- true
    wait_for told_is x waiters 1
    touch go
    settle a b
    of a
    expect_code 125
    expect_err_has max-output
    of b
    expect_code 125
    expect_sentence
    expect runs_are 1
    expect_none_left
}
