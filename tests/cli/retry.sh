# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# retry.sh - jobs that are tried again.

fast='--backoff 1ms..5ms'

test_a_failed_job_is_not_tried_again_unless_asked() {
    vow map 'echo {} >>tries; exit 1' ::: a
    expect_code 1
    expect_file tries a
}

test_retries_are_extra_tries() {
    # shellcheck disable=SC2086 # an option with its value
    vow map --retries 2 $fast 'echo {} >>tries; exit 1' ::: a
    expect_code 1
    expect_file tries a a a
}

test_a_job_that_succeeds_at_last_did_well() {
    # shellcheck disable=SC2086
    vow map --retries 5 $fast 'echo {} >>tries; [ "$VOW_TRY" -ge 3 ]' ::: a
    expect_code 0
    expect_file tries a a a
    expect_err
}

test_a_job_that_did_well_is_not_tried_again() {
    vow map --retries 5 'echo {} >>tries' ::: a
    expect_code 0
    expect_file tries a
}

test_a_job_knows_which_try_it_is() {
    # shellcheck disable=SC2086
    vow map --retries 2 $fast 'echo {} $VOW_TRY >>tries; exit 1' ::: a
    expect_file tries 'a 1' 'a 2' 'a 3'
}

test_every_job_has_its_own_tries() {
    # shellcheck disable=SC2086
    vow map -j2 --retries 1 $fast 'echo {} $VOW_TRY >>tries; exit 1' ::: a b
    sort tries >sorted
    expect_file sorted 'a 1' 'a 2' 'b 1' 'b 2'
}

test_retries_need_no_backoff() {
    vow map --retries 1 'echo {} >>tries; exit 1' ::: a
    expect_file tries a a
}

test_the_output_of_the_last_try_is_shown() {
    # shellcheck disable=SC2086
    vow map --retries 1 $fast 'echo try $VOW_TRY {}; [ $VOW_TRY = 2 ]' ::: a
    expect_code 0
    expect has_line "$OUT" 'try 2 a'
}

test_a_failure_counts_once_whatever_the_tries() {
    # shellcheck disable=SC2086
    vow map --exit count --retries 3 $fast 'exit {}' ::: 0 1 2
    expect_code 2
}

test_option_e_waits_for_the_last_try() {
    # shellcheck disable=SC2086
    vow map -j1 -e --retries 2 $fast 'echo {} >>tries; exit {}' ::: 0 7
    expect_code 7
    expect_file tries 0 7 7 7
}

test_option_e_bears_a_try_that_failed() {
    # shellcheck disable=SC2086
    vow map -j1 -e --retries 2 $fast \
        'echo {} >>tries; [ $VOW_TRY = 2 ] || [ {} != b ]' ::: a b c
    expect_code 0
    expect_lines 4 tries
}

# ---- which failures ---------------------------------------------------------

# tries_of LINE OPTION...: how often such a job is tried, with 2 retries. The log
# tells it, also of a try that had no time to write anything.
tries_of() {
    line=$1
    shift
    rm -f log
    # shellcheck disable=SC2086
    vow map --retries 2 $fast --log log "$@" "$line; : {}" ::: a
    sed -n 's/.*"tries":\([0-9]*\).*/\1/p' log
}

test_retry_on_codes_is_for_these_only() {
    expect test "$(tries_of 'exit 3' --retry-on 3,4)" -eq 3
    expect test "$(tries_of 'exit 4' --retry-on 3,4)" -eq 3
    expect test "$(tries_of 'exit 5' --retry-on 3,4)" -eq 1
    expect test "$(tries_of 'kill -9 $$' --retry-on 3,4)" -eq 1
}

test_retry_on_signal_is_for_killed_jobs_only() {
    expect test "$(tries_of 'kill -9 $$' --retry-on signal)" -eq 3
    expect test "$(tries_of 'exit 3' --retry-on signal)" -eq 1
}

test_retry_on_timeout_is_for_late_jobs_only() {
    expect test "$(tries_of 'exit 3' --retry-on timeout --timeout 20s)" -eq 1
    expect test \
        "$(tries_of 'sleep 60' --retry-on timeout --timeout 300ms)" -eq 3
}

test_retry_on_any_is_for_all() {
    expect test "$(tries_of 'exit 3' --retry-on any)" -eq 3
    expect test "$(tries_of 'kill -9 $$' --retry-on any)" -eq 3
    expect test "$(tries_of 'sleep 60' --retry-on any --timeout 300ms)" -eq 3
}

test_any_failure_is_tried_again_when_nothing_else_is_said() {
    expect test "$(tries_of 'exit 3')" -eq 3
    expect test "$(tries_of 'kill -9 $$')" -eq 3
}

test_exit_75_always_means_try_again() {
    expect test "$(tries_of 'exit 75' --retry-on 9)" -eq 3
    expect test "$(tries_of 'exit 75' --retry-on signal)" -eq 3
    expect test "$(tries_of 'exit 75')" -eq 3
}

# ---- when -------------------------------------------------------------------

test_a_job_says_when_to_try_it_again() {
    vow map --retries 1 --backoff 1ms..5ms 'date +%s%N >>starts
        echo 1 >&$VOW_RETRY_AFTER_FD; : {}; exit 75' ::: a
    expect_code 1
    expect_lines 2 starts
    span=$((($(tail -n 1 starts) - $(head -n 1 starts)) / 1000000))
    note "$span ms between the tries"
    expect test "$span" -ge 1000
}

test_the_wish_of_a_job_needs_no_backoff_and_no_75() {
    vow map --retries 1 'date +%s%N >>starts
        echo 1 >&$VOW_RETRY_AFTER_FD; : {}; exit 3' ::: a
    expect_lines 2 starts
    span=$((($(tail -n 1 starts) - $(head -n 1 starts)) / 1000000))
    note "$span ms between the tries"
    expect test "$span" -ge 1000
}

test_nonsense_instead_of_seconds_does_no_harm() {
    # shellcheck disable=SC2086
    vow map --retries 1 $fast 'echo {} >>tries
        echo soon >&$VOW_RETRY_AFTER_FD; exit 75' ::: a
    expect_code 1
    expect_file tries a a
}

test_a_job_that_did_well_may_have_asked_for_another_try() {
    vow map --retries 1 'echo {} >>tries
        echo 60 >&$VOW_RETRY_AFTER_FD; exit 0' ::: a
    expect_code 0
    expect_file tries a
}

test_a_job_that_waits_for_its_next_try_leaves_its_slot_to_others() {
    start map -j1 --retries 1 'echo {} $VOW_TRY >>tries
        [ {} = b ] || { echo 300 >&$VOW_RETRY_AFTER_FD; exit 75; }' ::: a b
    wait_for has_lines 2 tries
    expect_file tries 'a 1' 'b 1'
    kill -TERM "$PID"
    finish
    expect_signal TERM
}

test_the_wait_is_not_longer_than_the_backoff_allows() {
    # 40 waits of at most 20 ms; by default they would take minutes.
    before=$(now_ms)
    vow map --retries 40 --backoff 10ms..20ms 'exit 1; : {}' ::: a
    expect_code 1
    expect test $(($(now_ms) - before)) -lt 60000
}

# ---- run --------------------------------------------------------------------

test_run_tries_again_and_gives_the_last_code() {
    # shellcheck disable=SC2086
    vow run --retries 2 $fast -- sh -c 'echo x >>tries; exit 9'
    expect_code 9
    expect_file tries x x x
}

test_run_gives_0_when_a_try_did_well() {
    # shellcheck disable=SC2086
    vow run --retries 5 $fast -- sh -c 'echo $VOW_TRY >>tries; [ $VOW_TRY = 3 ]'
    expect_code 0
    expect_file tries 1 2 3
}

test_run_takes_the_codes_to_retry_on() {
    # shellcheck disable=SC2086
    vow run --retries 2 $fast --retry-on 4 -- sh -c 'echo x >>tries; exit 9'
    expect_code 9
    expect_file tries x
}

test_retries_may_be_asked_for_as_with_curl() {
    vow map --retry 1 --backoff 1ms 'echo $VOW_TRY >>tries; exit 1; : {}' ::: a
    expect_code 1
    expect_lines 2 tries
}

test_what_to_try_again_needs_retries() {
    vow map --retry-on 3 false ::: a
    expect_code 2
    expect_err_has 'requires --retries N'
    vow run --retry-on 3 -- false
    expect_code 125
    echo 'retry-on 3' >"$XDG_CONFIG_HOME/vow.new"
    mkdir -p "$XDG_CONFIG_HOME/vow"
    mv "$XDG_CONFIG_HOME/vow.new" "$XDG_CONFIG_HOME/vow/config"
    vow map true ::: a
    expect_code 0
}
