# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# tty.sh - commands that want to use the terminal.

# on_terminal SCRIPT: run the script in a terminal until its end. A command that
# the terminal has stopped would keep it from ending. The shell controls jobs, as
# that of a user does: what it starts does not ignore TTIN and TTOU.
on_terminal() {
    terminal 200 24 sh "set -m; $1"
    wait_for terminal_over
    screen >"$T/screen"
}

expect_screen_has() {
    grep -qF -e "$1" "$T/screen" || {
        show_screen
        fail "expected on the screen: $1"
    }
}

# ---- without it -------------------------------------------------------------

test_a_job_that_reads_the_terminal_is_named_and_fails() {
    on_terminal '"$VOW" map -j1 "[ {} = b ] || read x </dev/tty; echo {}" \
        ::: a b; echo "code $?"'
    expect_screen_has 'vow: job 1 wants to use the terminal, which jobs do not'
    expect_screen_has 'vow: 1 of 2 jobs failed:'
    expect_screen_has 'vow:   wanted the terminal: [ a = b ] || read x'
    expect_screen_has 'code 1'
    expect grep -qx b "$T/screen"
}

test_a_job_that_changes_the_terminal_is_named_and_fails() {
    on_terminal '"$VOW" map "stty -echo </dev/tty; echo {}" ::: a
        echo "code $?"'
    expect_screen_has 'vow: job 1 wants to use the terminal'
    expect_screen_has 'code 1'
}

# As ssh in a script asks for a password.
test_a_grandchild_that_reads_the_terminal_fails_its_job() {
    on_terminal '"$VOW" map "sh -c \"read x </dev/tty; :\"; : {}" ::: a
        echo "code $?"'
    expect_screen_has 'vow: job 1 wants to use the terminal'
    expect_screen_has 'code 1'
}

test_a_job_that_ends_well_without_the_terminal_fails_too() {
    on_terminal '"$VOW" map "trap \"exit 0\" TERM
        stty -echo </dev/tty; : {}" ::: a; echo "code $?"'
    expect_screen_has 'wanted the terminal:'
    expect_screen_has 'code 1'
}

test_what_wants_the_terminal_is_not_tried_again() {
    on_terminal '"$VOW" map --retries 9 --backoff 1ms \
        "echo >>tries; read x </dev/tty; : {}" ::: a; echo "code $?"'
    expect_screen_has 'code 1'
    expect_lines 1 tries
}

test_a_command_of_run_in_the_background_is_told_of() {
    on_terminal '"$VOW" run -- sh -c "read x </dev/tty; :" &
        wait $!; echo "code $?"'
    expect_screen_has 'vow run: the command wants to use the terminal, but runs'
    expect_screen_has 'code 143'
}

test_a_shared_command_is_told_of() {
    on_terminal '"$VOW" share name -- sh -c "read x </dev/tty; :"
        echo "code $?"'
    expect_screen_has 'vow: the command wants to use the terminal and cannot'
    expect_screen_has 'code 143'
}

# ---- with it ----------------------------------------------------------------

test_a_job_may_have_the_terminal() {
    terminal 80 24 sh '"$VOW" map --tty "touch asks.{}; read x; read y </dev/tty
        echo {} \$x \$y >>got" ::: a b; echo "code $?"'
    wait_for test -e asks.a
    keys one Enter two Enter
    wait_for test -e asks.b
    keys three Enter four Enter
    wait_for terminal_over
    screen >"$T/screen"
    expect_screen_has 'code 0'
    expect_file got 'a one two' 'b three four'
}

test_the_terminal_may_be_asked_for_as_with_xargs() {
    on_terminal 'echo a | "$VOW" map -o "test -t 0 && echo yes {}"'
    expect_screen_has 'yes a'
}

test_ctrl_c_ends_the_run_of_jobs_that_have_the_terminal() {
    terminal 80 24 sh '"$VOW" map --tty "touch asks.{}; read x; :" ::: a b
        echo >>next'
    wait_for test -e asks.a
    keys C-c
    wait_for terminal_over
    expect_not test -e asks.b
    expect_not test -e next
    expect_none_left
}

test_the_terminal_is_asked_for_where_there_is_one() {
    vow map --tty echo ::: a
    expect_code 2
    expect_err 'vow map: --tty needs a terminal, and vow must run in its foreground'
    on_terminal '"$VOW" map --tty echo ::: a & wait $!; echo "code $?"'
    expect_screen_has 'code 2'
}

test_the_terminal_is_for_one_job_at_a_time() {
    for options in -j2 '--pool p -j1' '--output group' --bar -k --tag --json; do
        note "$options"
        # shellcheck disable=SC2086 # words
        vow map --tty $options echo ::: a
        expect_code 2
        expect test -s "$ERR"
    done
}
