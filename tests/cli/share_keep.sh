# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# share_keep.sh - how long a result is kept, for whom, and under which name; and
# how vow share is told what to do.

# shellcheck source=/dev/null
. "$0/store.sh"

# Notes each run and prints its number.
NEXT='echo run >>runs; echo "$(($(wc -l <runs)))"'

# ---- how long it is kept ----------------------------------------------------

test_a_result_is_kept_as_long_as_told() {
    for _ in 1 2 3; do
        vow share --ttl 1h x -- sh -c "$NEXT"
        expect_code 0
        expect_out 1
        expect_err
    done
    expect runs_are 1
}

next_is() {
    want=$1
    shift
    vow share "$@"
    [ "$(cat "$OUT")" = "$want" ]
}

test_a_result_is_not_kept_longer() {
    vow share --ttl 300ms x -- sh -c "$NEXT"
    expect_out 1
    wait_for next_is 2 --ttl 1h x -- sh -c "$NEXT"
    expect runs_are 2
}

test_a_failure_is_not_kept() {
    vow share --ttl 1h x -- sh -c "$NEXT; exit 4"
    expect_code 4
    vow share --ttl 1h x -- sh -c "$NEXT"
    expect_code 0
    expect_out 2
}

test_a_failure_is_kept_if_told() {
    for _ in 1 2; do
        vow share --fail-ttl 1h x -- sh -c "$NEXT; exit 4"
        expect_code 4
        expect_out 1
    done
}

test_a_failure_is_not_kept_longer() {
    vow share --fail-ttl 300ms x -- sh -c "$NEXT; exit 4"
    expect_out 1
    wait_for next_is 2 --fail-ttl 1h x -- sh -c "$NEXT; exit 4"
    expect_code 4
}

test_a_time_for_failures_keeps_no_results() {
    vow share --fail-ttl 1h x -- sh -c "$NEXT"
    vow share --fail-ttl 1h x -- sh -c "$NEXT"
    expect_out 2
}

# ---- old results ------------------------------------------------------------

# Every run but the first waits for the file go.
AGAIN='echo run >>runs; n=$(wc -l <runs)
[ $n = 1 ] || until [ -e go ]; do sleep 0.02; done; echo $((n))'

# An old result of 1, and a second run that somebody has begun.
get_stale() {
    vow share "$@" x -- sh -c "$AGAIN"
    expect_out 1
    wait_for refresh_began "$@"
}

refresh_began() {
    vow share "$@" x -- sh -c "$AGAIN"
    expect_code 0
    expect_out 1
    expect_err
    ! runs_are 1
}

test_an_old_result_is_answered_and_made_anew_once() {
    get_stale --ttl 1h --stale 100ms
    for i in $(seq 20); do
        call "c$i" share --ttl 1h --stale 100ms x -- sh -c "$AGAIN"
    done
    for i in $(seq 20); do
        all_got 1 "c$i"
    done
    expect runs_are 2
    touch go
    wait_for next_is 2 --ttl 1h --stale 1h x -- sh -c "$AGAIN"
    expect_err
}

test_a_result_that_is_not_old_is_not_made_anew() {
    for _ in 1 2 3; do
        vow share --ttl 1h --stale 1h x -- sh -c "$NEXT"
        expect_out 1
    done
    sleep 0.2
    expect runs_are 1
}

test_making_it_anew_holds_nothing_of_the_caller() {
    vow share --ttl 1h --stale 1ms x -- sh -c "$AGAIN"
    expect_out 1
    # This ends when nobody has the pipe, nor is waited for.
    inside 'got=$("$VOW" share --ttl 1h --stale 1ms x -- sh -c "$1" 2>&1)
        echo "got $got"' "$AGAIN"
    expect_out 'got 1'
    wait_for runs_are 2
    touch go
    wait_for next_is 2 --ttl 1h --stale 1h x -- true
}

test_making_it_anew_does_not_end_with_the_callers_group() {
    vow share --ttl 1h --stale 1ms x -- sh -c "$AGAIN"
    inside 'exec setsid -w sh -c "$2" - "$1"' "$AGAIN" '
        "$VOW" share --ttl 1h --stale 1ms x -- sh -c "$1"
        kill -TERM -$$'
    expect_out 1
    wait_for runs_are 2
    touch go
    wait_for next_is 2 --ttl 1h --stale 1h x -- true
}

test_an_old_result_stays_when_making_it_anew_fails() {
    vow share --ttl 1h --stale 1ms x -- echo 1
    vow share --ttl 1h --stale 1ms x -- \
        sh -c 'echo bad; echo bad >&2; touch tried; exit 5'
    expect_code 0
    expect_out 1
    expect_err
    wait_for test -e tried
    for _ in 1 2 3; do
        vow share --ttl 1h --stale 1h x -- touch ran
        expect_code 0
        expect_out 1
    done
}

now_busy() {
    vow share -n --ttl "$1" --stale 100ms x -- sh -c "$AGAIN"
    [ "$(cat "$STATUS")" = 'exit 75' ]
}

test_an_old_result_is_over_in_the_end_whoever_makes_it_anew() {
    ttl=$((10 + 5 * VOW_TEST_SLOW))s
    get_stale --ttl "$ttl" --stale 100ms
    wait_for now_busy "$ttl"
    expect_out
    # Who comes now waits for that one, and does not begin a run beside it.
    call a share --ttl 1h x -- sh -c "$AGAIN"
    wait_for test -s "$T/a.pid"
    sleep 1
    expect_not test -e "$T/a.status"
    expect runs_are 2
    touch go
    all_got 2 a
    expect runs_are 2
}

test_a_refresh_does_not_begin_beside_a_run() {
    call a share --ttl 1h x -- sh -c "$JOB"
    wait_for runs_are 1
    vow share --refresh --ttl 1h x -- touch beside
    expect_code 0
    expect_not test -e beside
    touch go
    all_got 'by a' a
}

test_a_run_does_not_begin_beside_a_refresh_of_an_expired_result() {
    call a share --refresh --ttl 1h x -- sh -c "$JOB"
    wait_for runs_are 1
    vow share -n --ttl 1h x -- touch beside
    expect_code 75
    expect_not test -e beside
    call b share --ttl 1h x -- touch beside
    touch go
    all_got 'by a' b
    expect_not test -e beside
}

# ---- not to wait, and not to run --------------------------------------------

test_peek_runs_nothing() {
    vow share --peek x -- touch ran
    expect_code 66
    expect_out
    expect_err
    vow share --peek x
    expect_code 66
    expect_not test -e ran
}

test_peek_does_not_wait() {
    call a share --ttl 1h x -- sh -c "$JOB"
    wait_for runs_are 1
    vow share --peek x
    expect_code 66
    touch go
    settle a
    vow share --peek x
    expect_code 0
    expect_out 'by a'
}

test_option_n_does_not_wait() {
    call a share --ttl 1h x -- sh -c "$JOB"
    wait_for runs_are 1
    vow share -n x -- touch ran
    expect_code 75
    expect_out
    expect_err
    touch go
    settle a
    vow share -n x -- touch ran
    expect_code 0
    expect_out 'by a'
    expect_not test -e ran
}

test_option_n_runs_what_nobody_does() {
    vow share -n x -- echo mine
    expect_code 0
    expect_out mine
}

test_option_w_waits_so_long() {
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    before=$(now_ms)
    vow share -w 300ms x -- touch ran
    expect test $(($(now_ms) - before)) -ge 300
    expect_code 75
    expect_out
    expect_err
    expect_not test -e ran
    # The others are not disturbed.
    call b share -w 100 x -- touch ran
    wait_for told_is x waiters 1
    touch go
    all_got 'by a' a b
}

test_option_w_is_no_limit_for_who_runs_it() {
    vow share -w "$LEASE" x -- sh -c "sleep $LONGER; echo hello"
    expect_code 0
    expect_out hello
}

test_option_capital_e_is_the_code_for_busy() {
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    vow share -n -E 11 x -- true
    expect_code 11
    vow share -w 50ms -E 0 x -- true
    expect_code 0
    touch go
    all_got 'by a' a
}

# ---- to run anyway ----------------------------------------------------------

test_force_replaces_the_result() {
    vow share --ttl 1h x -- sh -c "$NEXT"
    vow share --ttl 1h --force x -- sh -c "$NEXT"
    expect_code 0
    expect_out 2
    vow share --ttl 1h x -- sh -c "$NEXT"
    expect_out 2
    expect runs_are 2
}

test_force_never_makes_two_run_at_once() {
    counted='echo +1 >>log; sleep 0.1; echo -1 >>log; echo done'
    for i in 1 2 3 4 5; do
        call "c$i" share --force --ttl 1h x -- sh -c "$counted"
    done
    all_got 'done' c1 c2 c3 c4 c5
    expect test "$(peak log)" -eq 1
}

# ---- names from what is run -------------------------------------------------

ARGS='echo run >>runs; echo "$*"'

# shared N ARGUMENT...: with this call there are N runs.
shared() {
    count=$1
    shift
    note "$*"
    vow share --ttl 1h "$@"
    expect_code 0
    expect runs_are "$count"
}

test_the_command_may_be_the_name() {
    shared 1 --argv -- sh -c "$ARGS" - a b
    shared 1 --argv -- sh -c "$ARGS" - a b
    expect_out 'a b'
    shared 2 --argv -- sh -c "$ARGS" - 'a b'
    shared 3 --argv -- sh -c "$ARGS" - a b ''
    shared 4 --argv -- sh -c "$ARGS" - ab
    shared 5 --argv -- sh -c "$ARGS" - b a
    shared 5 --argv -- sh -c "$ARGS" - a b
    expect_out 'a b'
}

test_a_command_as_name_is_no_name_that_is_given() {
    shared 1 --argv -- sh -c "$ARGS"
    shared 2 "sh -c $ARGS" -- sh -c "$ARGS"
}

test_the_folder_counts_if_told() {
    here="cd '$PWD'; $ARGS"
    mkdir one two
    (cd one && shared 1 --argv -- sh -c "$here")
    (cd two && shared 1 --argv -- sh -c "$here")
    (cd one && shared 2 --argv --cwd -- sh -c "$here")
    (cd two && shared 3 --argv --cwd -- sh -c "$here")
    (cd one && shared 3 --argv --cwd -- sh -c "$here")
    (cd one && shared 4 --cwd x -- sh -c "$here")
    (cd two && shared 5 --cwd x -- sh -c "$here")
}

test_variables_count_if_told() {
    unset A B
    shared 1 --env A x -- sh -c "$ARGS"
    A='' shared 2 --env A x -- sh -c "$ARGS"
    A=1 shared 3 --env A x -- sh -c "$ARGS"
    A=2 shared 4 --env A x -- sh -c "$ARGS"
    A=1 shared 4 --env A x -- sh -c "$ARGS"
    A=1 B=1 shared 4 --env A x -- sh -c "$ARGS"
    A=1 B=1 shared 5 --env A --env B x -- sh -c "$ARGS"
    A=1 shared 6 --env B x -- sh -c "$ARGS"
    A=1 shared 7 x -- sh -c "$ARGS"
    A=2 shared 7 x -- sh -c "$ARGS"
    A=1 shared 8 --argv --env A -- sh -c "$ARGS"
    A=2 shared 9 --argv --env A -- sh -c "$ARGS"
}

test_files_count_by_their_content_if_told() {
    echo 1 >file
    : >empty
    shared 1 --file file x -- sh -c "$ARGS"
    touch -d '2001-01-01' file
    shared 1 --file file x -- sh -c "$ARGS"
    echo 2 >file
    shared 2 --file file x -- sh -c "$ARGS"
    shared 3 --file file --file empty x -- sh -c "$ARGS"
    echo 1 >file
    shared 3 --file file x -- sh -c "$ARGS"
    shared 4 --argv --file file -- sh -c "$ARGS"
}

test_a_file_that_is_not_there_is_told() {
    refused share --file nothing-here x -- touch ran
    expect_err_has nothing-here
}

# ---- bad usage --------------------------------------------------------------

test_help_tells_the_options() {
    vow share --help
    expect_code 0
    for option in ttl stale fail-ttl argv cwd env file pulse lease takeovers \
        follow peek force max-output role-fd on-lost store if-store-down; do
        expect_out_has "--$option"
    done
    cp "$OUT" "$T/help"
    vow help share
    expect cmp "$OUT" "$T/help"
}

test_a_missing_name_is_told() {
    refused share -- touch ran
    refused share --ttl 1h
    refused share '' -- touch ran
}

test_a_missing_command_is_told() {
    refused share x
    refused share x --
    refused share --argv
    refused share --argv --
}

test_a_name_beside_argv_is_told() {
    refused share --argv x -- touch ran
    expect_err_has --argv
}

test_an_unknown_option_is_told_with_the_nearest_one() {
    refused share --tll 1h x -- touch ran
    expect_err_has --ttl
    refused share x --folow -- touch ran
    expect_err_has --follow
}

test_bad_times_are_told() {
    for option in --ttl --stale --fail-ttl --pulse --lease -w --timeout; do
        for value in x -1s '' 5parsecs 99999999999999999999s; do
            refused share "$option" "$value" x -- touch ran
            expect_err_has "$value"
        done
    done
}

test_a_lease_of_no_time_is_told() {
    refused share --lease 0 x -- touch ran
    expect_err_has --lease
}

test_a_pulse_that_is_not_shorter_than_the_lease_is_told() {
    refused share --pulse 5s --lease 1s x -- touch ran
    expect_err_has --pulse
    refused share --pulse 1s --lease 1s x -- touch ran
    # The usual pulse is one that fits.
    vow share --lease 1s x -- echo hello
    expect_code 0
    expect_out hello
}

test_bad_numbers_are_told() {
    for option in --takeovers --role-fd -E; do
        for value in x -1 '' 99999999999; do
            refused share "$option" "$value" x -- touch ran
            expect_err_has "$value"
        done
    done
    refused share -E 256 x -- touch ran
    refused share --max-output lots x -- touch ran
    expect_err_has lots
    refused share --on-lost cry x -- touch ran
    expect_err_has cry
}

test_a_variable_that_cannot_be_one_is_told() {
    refused share --env A=1 x -- touch ran
    refused share --env '' x -- touch ran
}
