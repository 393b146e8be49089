# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# lock.sh - one at a time, first come first served, with a fence.

# shellcheck source=/dev/null
. "$0/store.sh"

# hold CALLER [OPTION...]: has the lock x until the file go.CALLER is there.
HELD='echo "$VOW_FENCE" >>fences; echo $$ >"pid.$CALLER"; echo "$CALLER" >>order
until [ -e "go.$CALLER" ]; do sleep 0.02; done'
hold() {
    holder=$1
    shift
    call "$holder" lock "$@" x -- sh -c "$HELD"
}

# has CALLER...: these have had it, in this order.
has() {
    printf '%s\n' "$@" | cmp -s - order
}

# queued N: so many wait for it.
queued() {
    told_is x queue "$1"
}

# ---- one at a time ----------------------------------------------------------

test_one_at_a_time() {
    echo 0 >counter
    # Without a lock, most of these would be lost.
    for i in $(seq 12); do
        call "c$i" lock x -- sh -c 'echo +1 >>log; n=$(cat counter); sleep 0.03
            echo $((n + 1)) >counter; echo -1 >>log'
    done
    for i in $(seq 12); do
        settle "c$i"
        of "c$i"
        expect_code 0
        expect_out
        expect_err
    done
    expect_file counter 12
    expect test "$(peak log)" -eq 1
}

test_other_locks_are_not_waited_for() {
    long=$(head -c 300 /dev/zero | tr '\0' n)
    call a lock "${long}a" -- sh -c "$HELD"
    wait_for has a
    vow lock -n "${long}b" -- echo other
    expect_code 0
    expect_out other
    vow lock -n "${long}a" -- echo same
    expect_code 75
    touch go.a
    settle a
}

test_a_lock_is_no_shared_work_and_no_pool() {
    vow lock x -- "$VOW" share x -- "$VOW" run --pool x -j1 -- echo hello
    expect_code 0
    expect_out hello
    expect_err
}

test_who_comes_first_is_served_first() {
    hold a
    wait_for has a
    hold b
    wait_for queued 1
    hold c
    wait_for queued 2
    hold d
    wait_for queued 3
    touch go.b go.c go.d go.a
    settle a b c d
    expect_file order a b c d
    expect sort -nuc fences
}

test_a_lock_is_free_after_a_failure() {
    vow lock x -- sh -c 'exit 3'
    expect_code 3
    vow lock x -- sh -c 'kill -KILL $$'
    expect_code 137
    vow lock -n x -- echo free
    expect_out free
}

# ---- the command ------------------------------------------------------------

test_the_command_has_the_streams_of_its_caller() {
    printf 'a\nb\n' | vow lock x -- sh -c 'read -r l; echo "$l"; echo bad >&2'
    expect_code 0
    expect_out a
    expect_err bad
    inside 'printf "1\n2\n" | { "$VOW" lock x -- sh -c "read -r l"; cat; }'
    expect_out 2
}

test_every_exit_code_is_passed_on() {
    inside 'for code in $(seq 0 255); do
        got=0
        "$VOW" lock x -- sh -c "exit $code" || got=$?
        [ "$code" -eq "$got" ] || echo "$code became $got"
    done
    for signal in 1 2 3 6 9 11 13 15 34 64; do
        got=0
        "$VOW" lock x -- sh -c "kill -$signal \$\$; sleep 9" || got=$?
        [ "$((128 + signal))" -eq "$got" ] || echo "signal $signal: $got"
    done'
    expect_code 0
    expect_out
    expect_err
}

test_a_command_knows_its_lock_and_its_fence() {
    vow lock 'my lock' -- sh -c 'echo "$VOW_NAME"; echo "$VOW_FENCE" >fence'
    expect_out 'my lock'
    expect grep -qxE '[1-9][0-9]{0,15}' fence
}

test_fences_only_grow() {
    for _ in 1 2 3 4 5; do
        vow lock x -- sh -c 'echo "$VOW_FENCE" >>fences'
    done
    vow lock x -- sh -c 'echo "$VOW_FENCE" >>fences; kill -KILL $PPID'
    vow lock x -- sh -c 'echo "$VOW_FENCE" >>fences'
    expect_lines 7 fences
    expect sort -nuc fences
}

test_a_command_has_no_descriptors_of_vow() {
    vow lock x -- sh -c 'n=3; while [ $n -lt 100 ]; do
        [ ! -e /proc/self/fd/$n ] || echo $n; n=$((n + 1)); done'
    expect_code 0
    expect_out
}

test_a_process_in_the_background_does_not_hold_the_lock() {
    vow lock x -- sh -c 'sleep 300 & echo $! >pid'
    expect_code 0
    expect kill -0 "$(cat pid)"
    vow lock -n x -- echo free
    expect_code 0
    expect_out free
}

test_a_command_that_is_not_there_is_told() {
    vow lock x -- no-such-command
    expect_code 127
    expect_err_has no-such-command
    expect_sentence
    echo text >plain
    vow lock x -- ./plain
    expect_code 126
    expect_err_has ./plain
    expect_sentence
    vow lock -n x -- true
    expect_code 0
}

# ---- not to wait ------------------------------------------------------------

test_option_n_does_not_wait() {
    hold a
    wait_for has a
    vow lock -n x -- touch ran
    expect_code 75
    expect_out
    expect_err
    expect_not test -e ran
    touch go.a
    settle a
    vow lock -n x -- touch ran
    expect_code 0
    expect test -e ran
}

test_option_w_waits_so_long() {
    hold a
    wait_for has a
    before=$(now_ms)
    vow lock x -w 300ms -- touch ran
    expect test $(($(now_ms) - before)) -ge 300
    expect_code 75
    expect_out
    expect_err
    expect_not test -e ran
    # It has left the queue.
    wait_for queued 0
    call b lock -w 100 x -- echo mine
    wait_for queued 1
    touch go.a
    all_got mine b
}

test_option_w_is_no_limit_for_the_command() {
    vow lock -w "$LEASE" x -- sh -c "sleep $LONGER; echo hello"
    expect_code 0
    expect_out hello
}

test_option_capital_e_is_the_code_for_busy() {
    hold a
    wait_for has a
    vow lock -n -E 0 x -- touch ran
    expect_code 0
    vow lock -w 50ms -E 200 x -- touch ran
    expect_code 200
    expect_not test -e ran
    touch go.a
    settle a
}

test_a_time_limit_frees_the_lock() {
    vow lock x -n --timeout 300ms -- sh -c 'sleep 300 & wait'
    expect_code 124
    expect_none_left
    vow lock -n x -- echo free
    expect_out free
}

test_the_wait_is_not_part_of_the_time_limit() {
    hold a
    wait_for has a
    call b lock --timeout "$LEASE" x -- echo mine
    wait_for queued 1
    sleep "$LONGER"
    touch go.a
    all_got mine b
}

# ---- shared, and more than one ----------------------------------------------

TOGETHER='echo "$CALLER" >>here
until [ "$(wc -l <here)" -ge "$COUNT" ]; do sleep 0.02; done; echo met'

test_many_may_share_a_lock() {
    export COUNT=4
    for who in a b c d; do
        call "$who" lock -s x -- sh -c "$TOGETHER"
    done
    all_got met a b c d
}

test_a_shared_lock_keeps_others_out() {
    hold a -s
    wait_for has a
    vow lock -n x -- touch ran
    expect_code 75
    vow lock -n -s x -- echo shared
    expect_code 0
    expect_out shared
    touch go.a
    settle a
    hold b
    wait_for has a b
    vow lock -n -s x -- touch ran
    expect_code 75
    expect_not test -e ran
    touch go.b
    settle b
}

test_who_wants_it_alone_is_not_passed_by() {
    hold a -s
    wait_for has a
    hold b
    wait_for queued 1
    hold c -s
    wait_for queued 2
    sleep 0.2
    expect_file order a
    touch go.a
    wait_for has a b
    sleep 0.2
    expect_file order a b
    touch go.b go.c
    settle a b c
    expect_file order a b c
}

test_a_lock_may_have_slots() {
    export COUNT=3
    for who in a b c; do
        call "$who" lock --slots 3 x -- sh -c "$TOGETHER"
    done
    all_got met a b c
    for i in $(seq 8); do
        call "c$i" lock --slots 3 x -- \
            sh -c 'echo +1 >>log; sleep 0.1; echo -1 >>log'
    done
    for i in $(seq 8); do
        settle "c$i"
    done
    expect_lines 16 log
    expect test "$(peak log)" -le 3
}

test_slots_are_not_there_for_good() {
    vow lock --slots 5 x -- true
    hold a
    wait_for has a
    vow lock -n x -- touch ran
    expect_code 75
    touch go.a
    settle a
}

# ---- the end of a holder ----------------------------------------------------

test_a_killed_holder_is_followed_at_once() {
    hold a --lease 60s
    wait_for has a
    hold b --lease 60s
    wait_for queued 1
    killed=$(now_ms)
    send KILL a
    wait_for has a b
    took=$(($(now_ms) - killed))
    note "after $took ms"
    expect test "$took" -le "$AT_ONCE_MS"
    wait_for ended "$(cat pid.a)"
    touch go.b
    settle a b
    of a
    expect_signal KILL
    of b
    expect_code 0
    expect sort -nuc fences
}

test_a_killed_holder_leaves_a_free_lock() {
    hold a --lease 60s
    wait_for has a
    send KILL a
    settle a
    vow lock -n x -- echo free
    expect_code 0
    expect_out free
}

test_a_holder_that_is_told_to_end_frees_the_lock() {
    call a lock x -- sh -c 'trap "echo bye; exit 0" TERM; touch ready
        while :; do sleep 0.02; done'
    wait_for test -e ready
    send TERM a
    settle a
    of a
    expect_signal TERM
    expect_out bye
    expect_none_left
    vow lock -n x -- true
    expect_code 0
}

test_a_stopped_holder_loses_the_lock() {
    hold a --lease "$LEASE" --pulse "$PULSE"
    wait_for has a
    hold b --lease "$LEASE" --pulse "$PULSE"
    wait_for queued 1
    stop_calmly a
    wait_for has a b
    send CONT a
    settle a
    of a
    expect_code 121
    expect test -s "$ERR"
    wait_for ended "$(cat pid.a)"
    # The other still has it.
    vow lock -n x -- true
    expect_code 75
    touch go.b
    settle b
    of b
    expect_code 0
    expect sort -nuc fences
}

test_a_lock_held_longer_than_its_lease_is_not_lost() {
    hold a --lease "$LEASE" --pulse "$PULSE"
    wait_for has a
    hold b --lease "$LEASE" --pulse "$PULSE"
    wait_for queued 1
    sleep "$LONGER"
    expect has a
    touch go.a go.b
    settle a b
    of a
    expect_code 0
    of b
    expect_code 0
}

# ---- the end of a waiter ----------------------------------------------------

test_a_waiter_that_is_killed_or_told_to_end_is_passed_by() {
    for signal in KILL TERM; do
        note "$signal"
        rm -f order go.* "$T"/[abc].*
        hold a --lease 60s
        wait_for has a
        hold b --lease 60s
        wait_for queued 1
        hold c --lease 60s
        wait_for queued 2
        send "$signal" b
        settle b
        of b
        expect_signal "$signal"
        touch go.a go.c
        settle a c
        of c
        expect_code 0
        expect_file order a c
    done
}

test_a_dead_holder_and_a_dead_waiter_are_passed_by() {
    hold a --lease 60s
    wait_for has a
    hold b --lease 60s
    wait_for queued 1
    hold c --lease 60s
    wait_for queued 2
    kill -KILL "$(cat "$T/b.pid")" "$(cat "$T/a.pid")"
    wait_for has a c
    touch go.c
    settle c
    of c
    expect_code 0
}

# ---- bad usage --------------------------------------------------------------

test_bad_usage_is_told() {
    refused lock
    refused lock x
    refused lock x --
    refused lock -- touch ran
    refused lock '' -- touch ran
    refused lock --slots 0 x -- touch ran
    refused lock --slots many x -- touch ran
    expect_err_has many
    refused lock -w soon x -- touch ran
    expect_err_has soon
    refused lock --slot 3 x -- touch ran
    expect_err_has --slots
    refused lock --pulse 5s --lease 1s x -- touch ran
    refused lock -s --slots 3 x -- touch ran
    expect_err_has --slots
}

test_help_tells_the_options() {
    vow lock --help
    expect_code 0
    for option in slots lease pulse on-lost timeout store; do
        expect_out_has "--$option"
    done
}
