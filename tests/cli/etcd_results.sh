# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# etcd_results.sh - results that are too long for etcd, and are kept elsewhere.

# shellcheck source=/dev/null
. "$0/etcd.sh"

test_a_long_result_is_told_with_what_to_do() {
    member || return 0
    call a share --ttl 1h x -- sh -c "$JOB; head -c 70000 /dev/zero"
    wait_for runs_are 1
    call b share --ttl 1h x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    touch go
    settle a b
    # Who ran it has it all the same.
    of a
    expect_code 0
    expect test "$(wc -c <"$OUT")" -eq 70005
    expect_lines 1 "$ERR"
    expect_err_has --results
    of b
    expect_code 125
    expect_sentence
    expect_err_has --results
    of later
    vow result x
    expect_code 66
    expect runs_are 1
}

# long_results ADDRESS: they reach all who name it.
long_results() {
    for size in 70000 3000000; do
        note "$size bytes in $1"
        rm -f go runs
        call a share --results "$1" --ttl 1h "x$size" -- sh -c "echo >>runs
            until [ -e go ]; do sleep 0.02; done
            head -c $size /dev/urandom"
        wait_for runs_are 1
        call b share --results "$1" "x$size" -- sh -c "echo >>runs"
        wait_for told_is "x$size" waiters 1
        touch go
        settle a b
        vow result --results "$1" "x$size"
        expect_code 0
        expect_err
        for who in a b; do
            expect cmp "$T/$who.out" "$OUT"
            expect_file "$T/$who.err"
        done
        expect test "$(wc -c <"$OUT")" -eq "$size"
        vow share --results "$1" "x$size" -- sh -c 'echo >>runs'
        expect cmp "$T/a.out" "$OUT"
        expect runs_are 1
    done
}

test_long_results_may_be_in_a_folder() {
    member || return 0
    long_results "$T/long"
    expect test -d "$T/long"
    vow forget x3000000
    vow result --results "$T/long" x3000000
    expect_code 66
    # The address may say it too.
    export VOW_STORE="$VOW_STORE&results=$T/long"
    vow result x70000
    expect_code 0
    expect test "$(wc -c <"$OUT")" -eq 70000
}

test_long_results_may_be_in_redis() {
    member || return 0
    command -v redis-server >"$T/found" || return 0
    up
    long_results "unix:$SOCKET_OF"
}

test_long_results_of_steps_and_of_resolve_go_there_too() {
    member || return 0
    for _ in 1 2; do
        vow pipe --results "$T/long" --ttl 1h -s \
            first='echo >>runs; head -c 100000 /dev/zero' -s last='wc -c'
        expect_code 0
        expect_out 100000
        expect_err
    done
    expect runs_are 1
    doubt share --once pay
    head -c 100000 /dev/urandom >receipt
    vow resolve pay --done receipt
    expect_code 125
    expect_err_has --results
    vow resolve --results "$T/long" pay --done receipt
    expect_code 0
    vow share --results "$T/long" --once pay -- touch ran
    expect cmp receipt "$OUT"
    expect_not test -e ran
}

test_a_long_result_is_there_as_long_as_its_name() {
    member || return 0
    touch runs
    until has_lines 3 runs; do
        vow share --results "$T/long" --ttl 1s x -- sh -c 'echo >>runs
            head -c 70000 /dev/zero'
        expect_code 0
        expect_err
        expect test "$(wc -c <"$OUT")" -eq 70000
        sleep 0.3
    done
}

test_who_looks_for_a_long_result_elsewhere_is_told() {
    member || return 0
    vow share --results "$T/long" --ttl 1h x -- head -c 70000 /dev/zero
    expect_err
    for words in 'result x' 'share --peek x' 'share --once x -- touch ran' \
        'share --fenced x -- touch ran' 'share x -- touch ran'; do
        # shellcheck disable=SC2086 # a list of words
        refused $words
        expect_err_has --results
    done
    for words in '' --once --fenced; do
        # shellcheck disable=SC2086 # a list of words
        refused share --results "$T/other" $words x -- touch ran
        expect_err_has "$T/other"
    done
    for words in result 'share --peek'; do
        # shellcheck disable=SC2086 # a list of words
        refused $words --results "$T/other" x
        expect_err_has "$T/other"
    done
    vow result --results "$T/long" x
    expect_code 0
}

test_a_place_for_long_results_that_is_none_is_refused() {
    member || return 0
    for place in nosuch: nosuch://h memory: 'etcd://127.0.0.1' \
        'redis://me:sesame@127.0.0.1'; do
        refused share --results "$place" x -- touch ran
        expect_err_has results
        expect_not grep -q sesame "$ERR"
    done
    refused share --store "file:$T/f" --results "$T/long" x -- touch ran
    expect_err_has --results
}
