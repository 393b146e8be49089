# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# halt.sh - when a run ends before its input.

test_option_e_stops_at_the_first_failure_with_its_code() {
    vow map -j1 -e 'echo {}; exit {}' ::: 0 7 0 9
    expect_code 7
    expect_out 0 7
}

test_option_e_starts_nothing_after_a_failure() {
    seq 200 | vow map -j2 -e 'echo {} >>ran; exit 5'
    expect_code 5
    lines=$(wc -l <ran)
    expect test "$lines" -le 2
}

test_option_e_ends_the_jobs_that_run() {
    vow map -j2 -e 'if [ {} = bad ]; then
            until [ -e ready ]; do sleep 0.02; done; exit 5
        else touch ready; sleep 300; fi' ::: long bad
    expect_code 5
    expect_none_left
}

test_option_e_ends_grandchildren_too() {
    vow map -j2 -e 'if [ {} = bad ]; then
            until [ -e ready ]; do sleep 0.02; done; exit 5
        else sleep 300 & touch ready; wait; fi' ::: long bad
    expect_code 5
    expect_none_left
}

test_option_e_says_the_first_failure_not_that_of_a_job_it_ended() {
    vow map -j2 -e 'if [ {} = bad ]; then
            until [ -e ready ]; do sleep 0.02; done; exit 5
        else trap "exit 99" TERM; touch ready; sleep 300 & wait; fi' \
        ::: long bad
    expect_code 5
}

test_option_e_reads_endless_input_no_further() {
    yes | vow map -j1 -e false
    expect_code 1
}

test_option_e_without_failure_changes_nothing() {
    vow map -k -e echo ::: a b c
    expect_code 0
    expect_out a b c
    expect_err
}

test_halt_now_fail_1_is_option_e() {
    vow map -j1 --halt now,fail=1 'echo {}; exit {}' ::: 0 7 0
    expect_code 7
    expect_out 0 7
}

test_halt_now_fail_2_bears_one_failure() {
    vow map -j1 --halt now,fail=2 'echo {}; exit {}' ::: 4 0 5 0
    expect_failure
    expect_out 4 0 5
}

test_halt_soon_lets_running_jobs_finish() {
    vow map -j2 --halt soon,fail=1 'if [ {} = bad ]; then
            until [ -e ready ]; do sleep 0.02; done; exit 5
        else touch ready; sleep 0.5; echo {} finished; fi' ::: long bad more
    expect_failure
    expect_out 'long finished'
    expect_none_left
}

test_halt_now_success_1_stops_at_the_first_success() {
    vow map -j1 --halt now,success=1 'echo {}; exit {}' ::: 1 0 2 0
    expect_out 1 0
}

test_halt_now_success_1_ends_the_others() {
    vow map -j2 --halt now,success=1 'if [ {} = good ]; then
            until [ -e ready ]; do sleep 0.02; done
        else touch ready; sleep 300; fi' ::: long good
    expect_code 0 3
    expect test -e ready
    expect_none_left
}

test_halt_soon_success_2() {
    vow map -j1 --halt soon,success=2 'echo {}; exit {}' ::: 0 1 0 2 0
    expect_out 0 1 0
}

test_halt_done_counts_failures_and_successes() {
    vow map -j1 --halt now,done=3 'echo {}; exit {}' ::: 0 1 0 2 0
    expect_out 0 1 0
}

test_halt_soon_done_stops_endless_input() {
    yes | vow map -j1 --halt soon,done=4 echo
    expect_code 0 3
    expect_out y y y y
}

test_halt_fail_percent_stops_when_most_fail() {
    seq 100 | vow map -j1 --halt soon,fail=50% 'echo {} >>ran; exit 1'
    expect_failure
    lines=$(wc -l <ran)
    expect test "$lines" -lt 100
}

test_halt_fail_percent_bears_a_few_failures() {
    seq 40 | vow map -j1 --halt now,fail=50% 'echo {} >>ran
        [ {} -lt 20 ] || [ {} -gt 22 ]'
    expect_code 1
    expect_lines 40 ran
}

test_halt_success_percent_stops_when_most_do_well() {
    seq 100 | vow map -j1 --halt soon,success=50% 'echo {} >>ran'
    lines=$(wc -l <ran)
    expect test "$lines" -lt 100
}

test_halt_that_is_not_reached_changes_nothing() {
    vow map -k -j1 --halt now,fail=3 'echo {}; exit {}' ::: 1 0 2
    expect_code 1
    expect_out 1 0 2
}
