# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# nested.sh - a command that would wait for the vow that has started it is
# refused; any other waits.

# shellcheck source=/dev/null
. "$0/redis.sh"
export VOW_STORE="file:$T/store"

# refused_inside: vow said why, and nothing hangs.
refused_inside() {
    expect_code 125
    expect_err_has 'has started this command and waits for it'
    expect_not test -e ran
    expect_none_left
}

# ---- names ------------------------------------------------------------------

test_share_inside_itself_is_refused() {
    vow share s -- "$VOW" share s -- touch ran
    refused_inside
    expect_err_has 'vow share: s is run by process'
}

test_share_inside_itself_is_refused_however_deep() {
    vow share s -- sh -c '"$VOW" share t -- sh -c "\"\$VOW\" run -- \
        \"\$VOW\" share s -- touch ran"; exit $?'
    refused_inside
}

test_share_by_the_command_line_is_refused_too() {
    printf '%s\n' '"$VOW" share --argv -- sh self' >self
    vow share --argv -- sh self
    refused_inside
}

test_share_inside_itself_need_not_wait() {
    vow share s -- "$VOW" share -n s -- touch ran
    expect_code 75
    vow share s -- "$VOW" share -w 10ms s -- touch ran
    expect_code 75
    vow share s -- "$VOW" share --peek s
    expect_code 66
    expect_err
}

test_share_of_another_store_is_other_work() {
    vow share s -- "$VOW" share --store "file:$T/other" s -- echo hello
    expect_code 0
    expect_out hello
    expect_err
}

test_a_folder_has_many_paths() {
    ln -s "$T" link
    vow share s -- "$VOW" share --store "file:$PWD/link/store" s -- touch ran
    refused_inside
}

test_a_pipe_inside_its_own_step_is_refused() {
    export SELF='"$VOW" pipe -s a="$SELF" -s b=cat'
    vow pipe -s a="$SELF" -s b=cat
    refused_inside
}

# The runner has ended when it asks: it is no ancestor.
test_a_process_left_behind_may_wait() {
    vow share s -- sh -c 'setsid sh -c "
        until [ -e begin ]; do sleep 0.02; done
        \"\$VOW\" share s -- touch ran; touch end" >left 2>&1 &'
    expect_code 0
    call a share s -- sh -c "$JOB"
    wait_for runs_are 1
    touch begin
    wait_for running_with 1
    touch go
    all_got 'by a' a
    wait_for test -e end
    expect_file left 'by a'
    expect_not test -e ran
}

running_with() {
    told_is s waiters "$1"
}

# The runner has lost its lease: who is waited for is another.
test_the_command_of_a_lost_runner_may_wait() {
    call a share --on-lost keep --lease "$LEASE" --pulse "$PULSE" s -- sh -c '
        echo "$CALLER" >>runs; until [ -e go.a ]; do sleep 0.02; done
        "$VOW" share s -- touch ran'
    wait_for runs_are 1
    call b share --lease 60s s -- sh -c '
        echo "$CALLER" >>runs; until [ -e go.b ]; do sleep 0.02; done; echo b'
    wait_for running_with 1
    stop_calmly a
    wait_for runs_are 2
    send CONT a
    wait_for running_with 1
    touch go.a
    wait_for running_with 2
    touch go.b
    all_got b a b
    expect_not test -e ran
}

# ---- locks ------------------------------------------------------------------

test_lock_inside_itself_is_refused() {
    vow lock a -- "$VOW" lock a -- touch ran
    refused_inside
    expect_err_has "'a'"
    vow lock a -- sh -c '"$VOW" lock b -- sh -c "\"\$VOW\" lock a -- touch ran"'
    refused_inside
}

test_lock_inside_itself_need_not_wait() {
    vow lock a -- "$VOW" lock -n a -- touch ran
    expect_code 75
    vow lock a -- "$VOW" lock -w 10ms -E 9 a -- touch ran
    expect_code 9
    expect_not test -e ran
    expect_err
}

test_shared_locks_may_be_nested() {
    vow lock -s a -- "$VOW" lock -s a -- "$VOW" lock -s a -- echo hello
    expect_code 0
    expect_out hello
    expect_err
}

test_shared_and_exclusive_exclude_each_other_inside_too() {
    vow lock -s a -- "$VOW" lock a -- touch ran
    refused_inside
    vow lock a -- "$VOW" lock -s a -- touch ran
    refused_inside
}

test_slots_are_counted() {
    vow lock --slots 2 a -- "$VOW" lock --slots 2 a -- echo hello
    expect_code 0
    expect_out hello
    vow lock --slots 2 a -- "$VOW" lock --slots 2 a -- \
        "$VOW" lock --slots 2 a -- touch ran
    refused_inside
}

test_a_lock_that_may_be_held_once_is_refused_too() {
    vow lock --once a -- "$VOW" lock --once a -- touch ran
    refused_inside
    vow lock --once a -- "$VOW" lock --once -n a -- touch ran
    expect_code 75
}

test_other_locks_may_be_nested() {
    vow lock a -- "$VOW" lock b -- "$VOW" share a -- \
        "$VOW" lock --slots 1 a -- echo hello
    expect_code 0
    expect_out hello
    expect_err
}

# A lock that others hold is waited for, whatever is held above.
test_a_lock_of_others_is_waited_for() {
    call a lock x -- sh -c "$JOB"
    wait_for runs_are 1
    call b lock y -- "$VOW" lock x -- echo hello
    wait_for told_is x queue 1
    touch go
    settle a b
    of b
    expect_code 0
    expect_out hello
}

# Words of holders that are gone, and of a process that is none of ours.
test_a_stale_variable_counts_for_nothing() {
    vow lock a -- sh -c 'echo "$VOW_HELD" >held'
    expect test -s held
    VOW_HELD=$(cat held)
    export VOW_HELD
    call a lock a -- sh -c "$JOB"
    wait_for runs_are 1
    call b lock a -- echo hello
    wait_for told_is a queue 1
    touch go
    settle b
    of b
    expect_code 0
    expect_out hello
    VOW_HELD='nonsense 1 2:3 :::' vow lock a -- echo hello
    expect_code 0
}

# ---- pools ------------------------------------------------------------------

test_a_pool_inside_itself_is_refused() {
    vow run --pool p -j1 -- "$VOW" run --pool p -j1 -- touch ran
    expect_code 125
    expect_err_has "vow run: pool 'p' allows 1 at a time"
    vow map --pool p -j1 '"$VOW" map --pool p -j1 touch ::: ran {}' ::: a
    expect_failure
    expect_err_has "vow map: pool 'p' allows 1 at a time"
    vow run --pool p -j1 -- "$VOW" map --pool p touch ::: ran
    expect_code 125
    expect_not test -e ran
    expect_none_left
}

test_a_pool_with_room_may_be_nested() {
    vow run --pool p -j2 -- "$VOW" run --pool p -j2 -- echo hello
    expect_code 0
    expect_out hello
    expect_err
    vow run --pool p -j2 -- "$VOW" run --pool p -- \
        "$VOW" run --pool p -- touch ran
    expect_code 125
    expect_err_has "pool 'p' allows 2 at a time, and 2 of these"
}

test_a_weight_above_what_is_left_is_refused() {
    echo '"$VOW" map --pool p --weight {1} echo ::: "$@"' >weights
    vow map --pool p -j4 --weight 2 'sh weights 1 2; : {}' ::: x
    expect_code 0
    expect_out 1 2
    vow map --pool p -j4 --weight 2 'sh weights 1 3; : {}' ::: x
    expect_out 1
    expect_err_has "job 2: pool 'p' allows 4 at a time, and 2 of these"
    expect_none_left
}

# A job leaves a process behind, which the run adopts: the place of that job was
# given back, and that of the next job will be.
test_an_adopted_process_may_wait() {
    cat >job <<'END'
case $1 in
1) setsid sh -c 'until [ -e begin ]; do sleep 0.02; done
    "$VOW" run --pool p -- touch had' >left 2>&1 & ;;
2) touch begin
    until "$VOW" status --json | grep -q '"queue":1'; do sleep 0.02; done ;;
esac
END
    vow map --pool p -j1 sh job ::: 1 2
    expect_code 0
    expect_err
    wait_for test -e had
    expect_file left
}

test_other_keys_are_other_places() {
    vow run --pool h:one -j1 -- "$VOW" run --pool h:two -j1 -- echo hello
    expect_code 0
    expect_out hello
    vow map --pool 'h:{}' -j1 '"$VOW" map --pool "h:{{}}" -j1 echo ::: b {}' \
        ::: a
    expect_failure
    expect_out b
    expect_err_has "pool 'h:a' allows 1 at a time"
}

test_a_deadline_is_an_end_of_waiting() {
    vow run --pool p -j1 -- "$VOW" run --pool p --deadline 100ms -- touch ran
    expect_code 124
    expect_not test -e ran
}

test_a_rate_alone_may_be_nested() {
    vow run --pool p --rate 100/s -- "$VOW" run --pool p -- echo hello
    expect_code 0
    expect_out hello
}

# ---- a server ---------------------------------------------------------------

test_over_redis_too() {
    server || return 0
    vow share s -- "$VOW" share s -- touch ran
    refused_inside
    vow lock a -- "$VOW" lock a -- touch ran
    refused_inside
    vow lock -s a -- "$VOW" lock -s a -- echo hello
    expect_out hello
    vow run --pool p -j1 -- "$VOW" run --pool p -j1 -- touch ran
    expect_code 125
}
