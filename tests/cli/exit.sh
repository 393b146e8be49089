# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# exit.sh - what the exit code of vow tells.

deadly='1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 24 25 26 27 29 30 31'
deadly="$deadly $(seq -s ' ' 34 64)"

# expect_status N WHAT COMMAND...: for loops, where a parent costs too much.
expect_status() {
    wanted=$1 what=$2
    shift 2
    code=0
    "$@" >/dev/null 2>"$ERR" || code=$?
    [ "$code" -eq "$wanted" ] || fail "$what: expected $wanted, got $code"
}

# ---- run --------------------------------------------------------------------

test_run_gives_every_exit_code_of_its_command() {
    for n in $(seq 0 255); do
        expect_status "$n" "exit $n" "$VOW" run -- sh -c "exit $n"
        [ ! -s "$ERR" ] || fail "exit $n: something was said"
    done
}

test_run_gives_128_and_the_signal_for_every_deadly_signal() {
    for n in $deadly; do
        expect_status $((128 + n)) "signal $n" \
            "$VOW" run -- sh -c "kill -$n \$\$"
    done
}

test_run_says_125_for_bad_usage() {
    vow run --nosuch -- true
    expect_code 125
    vow run
    expect_code 125
    vow run --timeout soon -- true
    expect_code 125
}

test_run_says_124_when_the_time_is_up() {
    vow run --timeout 200ms -- sleep 60
    expect_code 124
}

test_run_says_126_for_what_it_cannot_run() {
    echo text >plain
    chmod 644 plain
    vow run -- ./plain
    expect_code 126
    expect_err_has plain
    vow run -- /
    expect_code 126
}

test_run_says_127_for_what_is_not_there() {
    vow run -- no-such-command-at-all
    expect_code 127
    expect_err_has no-such-command-at-all
    vow run -- ./nothing-here
    expect_code 127
}

# ---- map --------------------------------------------------------------------

test_map_says_0_when_all_jobs_did_well() {
    vow map true ::: a b c
    expect_code 0
    expect_out
    expect_err
}

test_map_says_1_when_a_job_failed_and_runs_the_others() {
    vow map -k -j1 'echo {}; exit {}' ::: 0 7 0 200 0
    expect_code 1
    expect_out 0 7 0 200 0
}

test_map_says_1_when_a_job_was_killed() {
    vow map 'kill -9 $$; : {}' ::: a
    expect_code 1
}

test_map_lists_its_failures_last() {
    vow map -j1 'echo noise >&2; exit {}' ::: 0 7 0
    expect_code 1
    expect test "$(grep -c '^noise$' "$ERR")" -eq 3
    tail -n 1 "$ERR" >last
    expect_not grep -qx noise last
    expect grep -q 7 "$ERR"
}

test_map_gives_every_exit_code_with_e() {
    for n in $(seq 0 255); do
        expect_status "$n" "exit $n" "$VOW" map -e 'exit {}' ::: "$n"
    done
}

test_map_gives_128_and_the_signal_with_e() {
    for n in $deadly; do
        expect_status $((128 + n)) "signal $n" \
            "$VOW" map -e 'kill -{} $$' ::: "$n"
    done
}

test_map_says_2_for_bad_usage() {
    vow map --nosuch true ::: a
    expect_code 2
    vow map
    expect_code 2
    vow map -j some true ::: a
    expect_code 2
}

test_map_says_3_when_part_of_the_input_was_not_run() {
    yes | vow map -j1 --stop-after 400ms 'sleep 0.02; : {}'
    expect_code 3
}

test_map_says_127_before_the_first_job() {
    vow map no-such-command-at-all ::: a b c
    expect_code 127
    expect_out
    expect_err_has no-such-command-at-all
    expect_lines 1 "$ERR"
    vow map ./nothing-here ::: a
    expect_code 127
}

test_map_says_127_before_the_first_job_with_e() {
    vow map -e no-such-command-at-all ::: a b c
    expect_code 127
}

test_map_does_not_wait_for_input_to_say_127() {
    mkfifo pipe
    # The test holds the pipe open: the input never ends.
    exec 8<>pipe
    start map -a pipe no-such-command-at-all
    finish
    expect_code 127
}

test_map_says_126_before_the_first_job() {
    echo text >plain
    chmod 644 plain
    vow map ./plain ::: a b c
    expect_code 126
    expect_err_has plain
    expect_lines 1 "$ERR"
    vow map / ::: a
    expect_code 126
}

test_map_fails_a_job_whose_own_command_is_not_found() {
    vow map -k -j1 'no-such-command-at-all; code=$?; echo {}; exit $code' \
        ::: a b
    expect_code 1
    expect_out a b
}

# ---- the peers' numbers -----------------------------------------------------

test_exit_count_counts_the_failed_jobs() {
    vow map --exit count 'exit {}' ::: 0 3 0 4 5
    expect_code 3
    vow map --exit count 'exit {}' ::: 0 0
    expect_code 0
}

test_exit_count_ends_at_101() {
    seq 120 | vow map --exit count false
    expect_code 101
}

test_exit_xargs_says_123_for_failed_jobs() {
    vow map --exit xargs 'exit {}' ::: 0 3 125
    expect_code 123
    vow map --exit xargs 'exit {}' ::: 0 0
    expect_code 0
}

test_exit_xargs_says_124_for_a_job_that_ended_with_255() {
    vow map -j1 --exit xargs 'echo {}; exit {}' ::: 255 0
    expect_code 124
}

test_exit_xargs_says_125_for_a_killed_job() {
    vow map -j1 --exit xargs 'kill -9 $$; : {}' ::: a
    expect_code 125
}

test_exit_xargs_says_126_and_127() {
    echo text >plain
    vow map --exit xargs ./plain ::: a
    expect_code 126
    vow map --exit xargs no-such-command-at-all ::: a
    expect_code 127
}

# ---- how many ---------------------------------------------------------------

test_jobs_that_were_not_run_are_counted() {
    vow map -j2 --stop-after 300ms sleep ::: 300 301 302 303
    expect_code 3
    expect_err_has 'vow: 2 of 4 jobs failed, 2 were not run:'
    vow map -j1 -e 'exit {}' ::: 0 7 0
    expect_code 7
    expect_err_has 'vow: 1 of 3 jobs failed, 1 was not run:'
    yes 7 | vow map -j1 -e 'exit {}'
    expect_code 7
    expect_err_has 'vow: 1 of 1 jobs failed, the rest of the input was not run:'
}
