# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# once.sh - what must not be begun again by itself: share --once, lock --once,
# and resolve.

# shellcheck source=/dev/null
. "$0/store.sh"

# doubt WORD...: `vow WORD... -- sleep` was killed in the middle.
doubt() {
    call a "$@" --lease "$LEASE" -- sh -c 'touch begun; exec sleep 60'
    wait_for test -e begun
    send KILL a 2>/dev/null || true # if it stood still, it has ended
    wait_for in_doubt
}

in_doubt() {
    "$VOW" status </dev/null | grep -q ' doubt '
}

test_a_killed_runner_of_share_once_leaves_it_in_doubt() {
    doubt share --once pay
    vow share --once pay -- touch ran
    expect_code 125
    expect_err_has 'vow resolve --retry pay (or --done FILE, or --failed)'
    expect test ! -e ran
}

test_share_once_is_not_made_anew() {
    vow share --once --ttl 1h --stale 1ms pay -- touch ran
    expect_code 125
    expect_err_has '--once cannot be combined with --stale'
    expect_not test -e ran
}

test_resolve_done_gives_all_what_was_in_the_file() {
    doubt share --once pay
    printf 'line 1\nline 2' >file
    vow resolve pay --done file
    expect_code 0
    vow share --once pay -- touch ran
    expect_code 0
    printf 'line 1\nline 2' >wanted
    expect cmp -s "$OUT" wanted
    expect test ! -e ran
}

test_resolve_done_reads_stdin() {
    doubt share --once pay
    echo hello >file
    vow resolve --done - pay <file
    expect_code 0
    vow result pay
    expect_out hello
}

test_resolve_failed_gives_all_a_failure() {
    doubt share --once pay
    vow resolve pay --failed
    expect_code 0
    vow share --once pay -- touch ran
    expect_code 1
    expect test ! -e ran
}

test_resolve_retry_lets_the_next_do_it() {
    doubt share --once pay
    first=$(told pay fence)
    vow resolve pay --retry
    expect_code 0
    vow share --once pay -- sh -c 'echo $VOW_FENCE'
    expect_code 0
    expect test "$(cat "$OUT")" -gt "$first"
}

test_resolve_is_for_one_fence() {
    doubt share --once pay
    vow resolve pay --retry --fence 1
    expect_code 66
    expect_err_has "'pay' is in doubt with fence"
    vow resolve pay --retry --fence "$(told pay fence)"
    expect_code 0
}

test_resolve_of_what_is_not_in_doubt_says_what_it_is() {
    vow resolve pay --retry
    expect_code 66
    expect_err_has "'pay' is not in doubt: the store has no such name"
    vow share --ttl 1h pay -- true
    vow resolve pay --failed
    expect_code 66
    expect_err_has "'pay' is not in doubt: it has a result"
    call a share --once slow -- sh -c 'touch begun; exec sleep 60'
    wait_for test -e begun
    vow resolve slow --retry
    expect_code 66
    expect_err_has "'slow' is not in doubt: it is running"
    send KILL a
}

test_resolve_wants_one_answer() {
    vow resolve pay
    expect_code 125
    expect_err_has '--done FILE, --failed or --retry'
    vow resolve pay --failed --retry
    expect_code 125
    vow resolve --retry
    expect_code 125
    vow resolve pay --retry --ttl 1h
    expect_code 125
    doubt share --once pay
    vow resolve pay --done /nowhere/at/all
    expect_code 125
    expect_err_has '/nowhere/at/all'
    vow share --once pay -- true
    expect_code 125
}

test_lock_once_is_a_lock() {
    vow lock pay --once -- sh -c 'echo $VOW_FENCE'
    expect_code 0
    first=$(cat "$OUT")
    vow lock pay --once -- sh -c 'echo $VOW_FENCE; exit 7'
    expect_code 7
    expect test "$(cat "$OUT")" -gt "$first"
    call a lock pay --once -- sh -c 'touch begun
        until [ -e go ]; do sleep 0.02; done; echo a >>order'
    wait_for test -e begun
    vow lock -n pay --once -- true
    expect_code 75
    vow lock -w 100ms pay --once -- true
    expect_code 75
    call b lock pay --once -- sh -c 'echo b >>order'
    touch go
    settle a
    settle b
    expect test "$(tr '\n' ' ' <order)" = 'a b '
}

test_a_killed_holder_of_lock_once_lets_nobody_in() {
    doubt lock pay --once
    vow lock pay --once -- touch ran
    expect_code 125
    expect_err_has 'vow resolve lock:pay --retry'
    expect test ! -e ran
    vow resolve lock:pay --done /dev/null
    expect_code 125
    expect_err_has 'is a lock and has no result'
    vow resolve lock:pay --retry
    expect_code 0
    vow lock pay --once -- touch ran
    expect_code 0
    expect test -e ran
}

test_lock_once_is_given_back_when_its_command_ends_by_a_signal() {
    call a lock pay --once -- sh -c 'touch begun; exec sleep 60'
    wait_for test -e begun
    send TERM a
    settle a
    vow lock pay --once -n -- true
    expect_code 0
}

test_cancel_ends_the_holder_of_lock_once_and_all_who_wait() {
    call a lock pay --once -- sh -c 'trap "echo bye; exit 3" TERM; touch begun
        while :; do sleep 0.02; done'
    wait_for test -e begun
    call b lock pay --once -- touch ran
    wait_for told_is lock:pay waiters 1
    vow cancel lock:pay
    expect_code 0
    settle a b
    of a
    expect_code 3
    expect_out bye
    expect_err_has "vow lock: the lock 'pay' was canceled"
    of b
    expect_code 125
    expect_sentence
    expect_not test -e ran
    of later
    vow lock pay --once -n -- echo free
    expect_out free
}

test_lock_once_is_for_one_holder() {
    vow lock pay --once -s -- true
    expect_code 125
    vow lock pay --once --slots 2 -- true
    expect_code 125
}

# As the kernel does when memory runs out: nobody knows how far it came.
test_a_command_that_is_killed_by_somebody_else_is_in_doubt() {
    for words in 'share pay' 'lock pay'; do
        # shellcheck disable=SC2086 # a list of words
        vow $words --once -- sh -c 'kill -KILL $$'
        expect_code 125
        expect_err_has 'killed by KILL'
        expect_err_has 'vow resolve'
        # shellcheck disable=SC2086 # a list of words
        vow $words --once -- touch ran
        expect_code 125
        expect_err_has doubt
        expect_not test -e ran
    done
    vow resolve --retry pay
    vow resolve --retry lock:pay
    expect_code 0
    vow share pay -- sh -c 'kill -KILL $$'
    expect_code 137
}

test_an_end_by_a_time_limit_leaves_no_doubt() {
    for words in 'share pay' 'lock pay'; do
        # shellcheck disable=SC2086 # a list of words
        vow $words --once --timeout 10ms -- sleep 60
        expect_code 124
        # shellcheck disable=SC2086 # a list of words
        vow $words --once -- echo again
        expect_code 0
        expect_out again
    done
}

# ---- records that were lost -------------------------------------------------

# expect_lost WORD: share and lock begin nothing with --once, whoever asks; all
# else goes on. When somebody has removed `lost`, they do.
expect_lost() {
    for words in 'share --once pay' 'share --once pay' 'lock --once pay'; do
        # shellcheck disable=SC2086 # a list of words
        vow $words -- touch ran
        expect_code 125
        expect_err_has "$1"
        expect_err_has "remove $T/store/lost"
        expect_lines 1 "$ERR"
    done
    expect_not test -e ran
    vow share other -- echo shared
    expect_out shared
    vow doctor
    expect_code 0
    expect_out_has "$1"
    rm "$T/store/lost"
    vow share --once pay -- echo again
    expect_code 0
    expect_out again
}

test_a_damaged_file_stops_what_must_not_be_begun_twice() {
    vow share --once --ttl 1h pay -- true
    perl -e 'print "garbage " x 4096' >"$T/store/vow.db"
    rm -f "$T"/store/vow.db-*
    vow share other -- true
    expect_code 0
    expect_lost 'was damaged'
}

test_a_removed_file_stops_what_must_not_be_begun_twice() {
    vow share --once --ttl 1h pay -- true
    rm "$T"/store/vow.db*
    expect_lost 'was removed'
}
