# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# time.sh - limits of time. Every sleep of minutes is one that must not be
# slept: the test would run into its own limit. A job that has to do something
# before its time is up has some seconds for it: a busy machine may stand still
# for three of them.

test_timeout_ends_a_job() {
    vow map --timeout 300ms 'sleep 300; : {}' ::: a
    expect_code 1
    expect_none_left
}

test_timeout_lets_quick_jobs_pass() {
    vow map -k --timeout 20s echo ::: a b
    expect_code 0
    expect_out a b
    expect_err
}

test_timeout_ends_only_the_job_that_is_late() {
    vow map -k -j1 --timeout 10s 'echo {}; [ {} != b ] || sleep 300' ::: a b c
    expect_code 1
    expect_out a b c
}

test_timeout_ends_grandchildren() {
    vow map --timeout 300ms 'sleep 300 & sleep 300 & wait; : {}' ::: a
    expect_code 1
    expect_none_left
}

test_timeout_does_not_count_the_wait_for_a_slot() {
    # The last one waits for longer than it may run.
    vow map -j1 --timeout 9s 'sleep 1; : {}' ::: 1 2 3 4 5 6 7 8 9 10
    expect_code 0
}

test_timeout_counts_anew_for_each_try() {
    vow map --retries 1 --timeout 5s 'echo {} >>tries; sleep 300' ::: a
    expect_code 1
    expect_file tries a a
    expect_none_left
}

test_timeout_sends_term_first() {
    vow map --timeout 5s \
        'trap "echo asked >got; exit 0" TERM; sleep 300 & wait; : {}' ::: a
    expect_file got asked
    expect_none_left
}

test_timeout_ends_a_job_that_ignores_term() {
    vow map --timeout 5s --kill-seq TERM,300ms,KILL \
        'trap "" TERM; echo {}; while :; do sleep 300; done' ::: a
    expect_code 1
    expect_out a
    expect_none_left
}

test_timeout_ends_a_stopped_job() {
    vow map --timeout 300ms --kill-seq TERM,300ms,KILL 'kill -STOP $$; : {}' \
        ::: a
    expect_code 1
    expect_none_left
}

test_timeout_shows_what_the_job_had_written() {
    vow map --timeout 5s 'echo {} >&2; echo {}; sleep 300' ::: a
    expect_out a
    expect has_line "$ERR" a
}

test_kill_seq_names_the_first_signal() {
    vow map --timeout 5s --kill-seq INT,60s,KILL 'trap "echo int >>got" INT
        trap "echo term >>got" TERM; sleep 300; : {}' ::: a
    expect_file got int
    expect_none_left
}

test_kill_seq_may_have_several_steps() {
    vow map --timeout 5s --kill-seq USR1,5s,TERM,5s,KILL '
        trap "echo usr1 >>got" USR1; trap "echo term >>got" TERM
        while :; do sleep 300 & wait; done; : {}' ::: a
    expect_code 1
    expect_file got usr1 term
    expect_none_left
}

test_kill_seq_goes_no_further_than_needed() {
    before=$(now_ms)
    vow map --timeout 300ms --kill-seq TERM,100s,KILL 'sleep 300; : {}' ::: a
    expect_code 1
    expect test $(($(now_ms) - before)) -lt 60000
}

test_deadline_ends_a_job() {
    vow map --deadline 300ms 'sleep 300; : {}' ::: a
    expect_code 1
    expect_none_left
}

test_deadline_counts_all_tries_and_waits() {
    : >tries
    vow map --deadline 800ms --retries 100000 --backoff 50ms..50ms \
        'echo {} >>tries; exit 1' ::: a
    expect_code 1
    lines=$(wc -l <tries)
    expect test "$lines" -lt 10000
}

test_deadline_does_not_wait_for_a_try_that_comes_too_late() {
    before=$(now_ms)
    vow map --deadline 100s --retries 3 'echo {} >>tries
        echo 300 >&$VOW_RETRY_AFTER_FD; exit 75' ::: a
    expect_code 1
    expect_file tries a
    expect test $(($(now_ms) - before)) -lt 60000
}

test_deadline_lets_quick_jobs_pass() {
    vow map -k --deadline 20s echo ::: a b
    expect_code 0
    expect_out a b
}

test_stop_after_ends_the_run() {
    vow map -j1 --stop-after 400ms 'echo {}; sleep 300' ::: a b
    expect_code 1 3
    expect_not has_line "$OUT" b
    expect_none_left
}

test_stop_after_stops_endless_input() {
    yes | vow map -j2 --stop-after 400ms 'sleep 0.02; : {}'
    expect_code 3
    expect_none_left
}

test_stop_after_stops_waiting_for_input() {
    mkfifo pipe
    exec 8<>pipe
    echo a >&8
    start map --stop-after 5s -a pipe echo
    finish
    expect_code 0 3
    expect_out a
}

test_stop_after_that_is_not_reached_changes_nothing() {
    vow map -k --stop-after 20s echo ::: a b
    expect_code 0
    expect_out a b
    expect_err
}

test_run_ends_a_late_command_with_its_children() {
    vow run --timeout 300ms -- sh -c 'sleep 300 & sleep 300 & wait'
    expect_code 124
    expect_none_left
}

test_run_ends_a_late_command_that_ignores_term() {
    vow run --timeout 300ms --kill-seq TERM,300ms,KILL -- \
        sh -c 'trap "" TERM; while :; do sleep 300; done'
    expect_code 124
    expect_none_left
}

test_run_with_time_left_gives_the_code_of_the_command() {
    vow run --timeout 20s -- sh -c 'exit 42'
    expect_code 42
}

test_run_says_124_also_for_a_command_that_ends_well_when_asked_to() {
    vow run --timeout 300ms -- sh -c 'trap "exit 0" TERM; sleep 300 & wait'
    expect_code 124
}

test_durations_have_units() {
    for time in 60000ms 60s 5m 1h 1d; do
        note "$time"
        vow map --timeout "$time" true ::: a
        expect_code 0
    done
}
