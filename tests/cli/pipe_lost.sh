# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# pipe_lost.sh - a caller of pipe who has lost the lease of a step ends as the
# others do, and what it writes is never two things at once.

# shellcheck source=/dev/null
. "$0/store.sh"

# Passes on what it reads, notes who runs it, and waits for a file of its own.
TWO='cat; echo "begun by $CALLER"; echo $$ >"pid.$CALLER"; echo "$CALLER" >>runs
until [ -e "go.$CALLER" ]; do sleep 0.02; done; echo "by $CALLER"'

# begin OPTION...: a runs the last step with these options, and b waits.
begin() {
    call a pipe --lease "$LEASE" --pulse "$PULSE" "$@" -s one='echo x' \
        -s two="$TWO"
    wait_for runs_are 1
    call b pipe --lease 60s -s one='echo x' -s two="$TWO"
    wait_for told_is two waiters 1
}

lose() {
    begin "$@"
    stop_calmly a
    wait_for runs_are 2
}

# got_that_of RUNNER CALLER...
got_that_of() {
    runner=$1
    shift
    for who; do
        settle "$who"
        of "$who"
        note "$who"
        expect_code 0
        expect_out x "begun by $runner" "by $runner"
        expect_err
    done
}

test_a_result_made_meanwhile_is_its_own_too() {
    lose
    touch go.b
    got_that_of b b
    send CONT a
    got_that_of b a
    wait_for ended "$(cat pid.a)"
    expect runs_are 2
    expect_none_left
}

test_it_waits_for_who_has_taken_over() {
    lose
    send CONT a
    wait_for ended "$(cat pid.a)"
    wait_for told_is two waiters 1
    expect_not test -e "$T/a.status"
    touch go.b
    got_that_of b a b
    expect runs_are 2
}

test_steps_behind_a_lost_one_go_on() {
    call a pipe --lease "$LEASE" --pulse "$PULSE" -s one='echo x' \
        -s two="$TWO" -s three='sed s/^/3:/'
    wait_for runs_are 1
    call b pipe --lease 60s -s one='echo x' -s two="$TWO"
    wait_for told_is two waiters 1
    stop_calmly a
    wait_for runs_are 2
    send CONT a
    wait_for told_is two waiters 1
    touch go.b
    got_that_of b b
    settle a
    of a
    expect_code 0
    expect_out 3:x '3:begun by b' '3:by b'
    expect_err
}

test_a_command_that_is_kept_is_waited_for() {
    lose --on-lost keep
    touch go.b
    got_that_of b b
    send CONT a
    sleep 0.5
    expect_not ended "$(cat pid.a)"
    expect_not test -e "$T/a.status"
    touch go.a
    got_that_of b a
}

test_without_another_it_is_121_with_what_was_written() {
    call a pipe --lease "$LEASE" --pulse "$PULSE" -s one='echo x' -s two="$TWO"
    wait_for runs_are 1
    send STOP a
    sleep "$LONGER"
    send CONT a
    settle a
    of a
    expect_code 121
    expect_out x 'begun by a'
    expect_lines 1 "$ERR"
    expect_err_has 'two was lost'
    expect runs_are 1
    expect_none_left
}

test_without_its_store_it_is_121_with_what_was_written() {
    call a pipe --lease "$LEASE" --pulse "$PULSE" -s one='echo x' -s two="$TWO"
    wait_for runs_are 1
    mv "$T/store" "$T/away"
    until (: >"$T/store") 2>/dev/null; do
        rm -rf "$T/store"
    done
    settle a
    of a
    expect_code 121
    expect_out x 'begun by a'
    expect_err_has 'two was lost'
}

test_output_is_written_when_it_is_accepted() {
    call a pipe -s one='echo x' -s two="$TWO"
    wait_for runs_are 1
    sleep 0.3
    expect_file "$T/a.out"
    touch go.a
    got_that_of a a
}

test_a_signal_writes_what_was_kept_back() {
    call a pipe -s one='echo x' -s two="$TWO"
    wait_for runs_are 1
    send TERM a
    settle a
    of a
    expect_signal TERM
    expect_out x 'begun by a'
}

# What was seen already is not seen twice.
test_a_stream_goes_on_with_that_of_another() {
    SAME='echo "$CALLER" >>runs; cat
        until [ -e "go.$CALLER" ]; do sleep 0.02; done; echo "by $CALLER"'
    call a pipe --stream --lease "$LEASE" --pulse "$PULSE" -s one='echo x' \
        -s two="$SAME"
    wait_for has_line "$T/a.out" x
    call b pipe --stream --lease 60s -s one='echo x' -s two="$SAME"
    wait_for told_is two waiters 1
    stop_calmly a
    wait_for runs_are 2
    send CONT a
    touch go.b
    settle a b
    for who in a b; do
        of "$who"
        expect_code 0
        expect_out x 'by b'
        expect_err
    done
}
