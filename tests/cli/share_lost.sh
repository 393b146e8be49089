# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# share_lost.sh - a caller of share whose lease was lost ends as the others do,
# and what it writes is never two things at once.

# shellcheck source=/dev/null
. "$0/redis.sh"
export VOW_STORE="file:$T/store"

# Writes to both, notes in which process and who runs it; then it waits for a
# file of its own.
WORK='echo "begun by $CALLER"; echo "told by $CALLER" >&2
echo $$ >"pid.$CALLER"; echo "$CALLER" >>runs
until [ -e "go.$CALLER" ]; do sleep 0.02; done
echo "by $CALLER"; exit 3'

# begin OPTION...: a runs it with these options, and b waits.
begin() {
    call a share --lease "$LEASE" --pulse "$PULSE" "$@" x -- sh -c "$WORK"
    wait_for runs_are 1
    call b share --lease 60s x -- sh -c "$WORK"
    wait_for told_is x waiters 1
}

# lose OPTION...: then a is stopped for longer than its lease, and b runs it.
lose() {
    begin "$@"
    stop_calmly a
    wait_for runs_are 2
}

# got_that_of RUNNER CALLER...: both streams and the exit code.
got_that_of() {
    runner=$1
    shift
    for who; do
        settle "$who"
        of "$who"
        note "$who"
        expect_code 3
        expect_out "begun by $runner" "by $runner"
        expect_err "told by $runner"
    done
}

# ---- another has a result ---------------------------------------------------

# It is kept for those who wait, and a did not.
test_a_result_made_meanwhile_is_its_own_too() {
    lose
    touch go.b
    got_that_of b b
    send CONT a
    got_that_of b a
    wait_for ended "$(cat pid.a)"
    expect runs_are 2
    expect_none_left
}

# The lease of the successor is short, and over when the lost runner goes on.
test_a_runner_that_was_stopped_for_long_has_the_result_too() {
    call a share --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$WORK"
    wait_for runs_are 1
    call b share --lease 500ms x -- sh -c "$WORK"
    wait_for told_is x waiters 1
    stop_calmly a
    wait_for runs_are 2
    touch go.b
    got_that_of b b
    sleep 2
    send CONT a
    got_that_of b a
    expect runs_are 2
}

test_it_waits_for_who_has_taken_over() {
    lose
    send CONT a
    wait_for ended "$(cat pid.a)"
    wait_for told_is x waiters 1
    expect_not test -e "$T/a.status"
    touch go.b
    got_that_of b a b
    expect runs_are 2
}

test_it_is_never_started_again() {
    lose
    send CONT a
    wait_for told_is x waiters 1
    # b is lost too: who is left does not begin again.
    send KILL b
    settle a
    of a
    expect_code 121
    expect_out 'begun by a'
    expect_err_has 'told by a'
    expect_err_has lost
    expect runs_are 2
    expect_none_left
}

test_others_take_over_from_its_successor() {
    lose
    send CONT a
    wait_for told_is x waiters 1
    call c share --lease 60s x -- sh -c "$WORK"
    wait_for told_is x waiters 2
    send KILL b
    wait_for runs_are 3
    touch go.c
    got_that_of c a c
    expect_file runs a b c
}

test_its_role_is_joined() {
    call_role a --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$WORK"
    wait_for runs_are 1
    call b share --lease 60s x -- sh -c "$WORK"
    wait_for told_is x waiters 1
    stop_calmly a
    wait_for runs_are 2
    send CONT a
    wait_for told_is x waiters 1
    touch go.b
    got_that_of b a b
    expect grep -q "\"joined\".*:$(cat "$T/b.pid")\"" "$T/a.role"
}

test_a_command_that_ended_too_late_is_not_its_result() {
    lose
    touch go.a
    wait_for ended "$(cat pid.a)"
    send CONT a
    wait_for told_is x waiters 1
    touch go.b
    got_that_of b a b
}

test_a_failure_of_all_is_its_failure() {
    call a share --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$WORK"
    wait_for runs_are 1
    call b share --takeovers 1 --lease 60s x -- sh -c "$WORK"
    wait_for told_is x waiters 1
    stop_calmly a
    wait_for runs_are 2
    send CONT a
    wait_for told_is x waiters 1
    vow cancel x
    settle a b
    for who in a b; do
        of "$who"
        expect_code 125
        expect_err_has canceled
        expect_out "begun by $who"
    done
}

# ---- the command goes on ----------------------------------------------------

test_a_command_that_is_kept_goes_on_and_is_waited_for() {
    lose --on-lost keep
    touch go.b
    got_that_of b b
    send CONT a
    # It has the result, and its command has not ended.
    sleep 0.5
    expect_not ended "$(cat pid.a)"
    expect_not test -e "$T/a.status"
    touch go.a
    got_that_of b a
}

test_a_command_that_is_kept_may_end_first() {
    lose --on-lost keep
    send CONT a
    wait_for told_is x waiters 1
    expect_not ended "$(cat pid.a)"
    touch go.a
    wait_for ended "$(cat pid.a)"
    expect_not test -e "$T/a.status"
    touch go.b
    got_that_of b a b
}

test_a_command_that_is_kept_is_all_there_is_without_another() {
    call a share --on-lost keep --lease "$LEASE" --pulse "$PULSE" x -- \
        sh -c "$WORK"
    wait_for runs_are 1
    send STOP a
    sleep "$LONGER"
    send CONT a
    touch go.a
    settle a
    of a
    expect_code 3
    expect_out 'begun by a' 'by a'
    expect_err_has 'told by a'
    expect_err_has 'not published'
}

# ---- there is no other ------------------------------------------------------

test_without_another_it_is_121_with_what_was_written() {
    call a share --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$WORK"
    wait_for runs_are 1
    send STOP a
    sleep "$LONGER"
    send CONT a
    settle a
    of a
    expect_code 121
    expect_out 'begun by a'
    expect_lines 2 "$ERR"
    expect has_line "$ERR" 'told by a'
    expect_err_has lost
    expect runs_are 1
    expect_none_left
}

test_who_does_not_wait_does_not_wait_now() {
    lose -n
    send CONT a
    settle a
    of a
    expect_code 121
    expect_out 'begun by a'
    touch go.b
    got_that_of b b
}

test_who_waits_for_some_time_waits_so_long_now() {
    lose -w 100ms
    send CONT a
    settle a
    of a
    expect_code 121
    expect_out 'begun by a'
    touch go.b
    got_that_of b b
}

test_what_may_run_once_is_in_doubt() {
    call a share --once --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$WORK"
    wait_for runs_are 1
    send STOP a
    sleep "$LONGER"
    send CONT a
    settle a
    of a
    expect_code 125
    expect_out 'begun by a'
    expect_err_has 'told by a'
    expect_err_has 'in doubt'
    expect_err_has 'vow resolve --retry x'
    wait_for ended "$(cat pid.a)"
    vow share --once x -- touch ran
    expect_code 125
    expect_not test -e ran
}

test_what_may_run_once_is_in_doubt_also_if_it_is_kept() {
    call a share --once --on-lost keep --lease "$LEASE" --pulse "$PULSE" x -- \
        sh -c "$WORK"
    wait_for runs_are 1
    send STOP a
    sleep "$LONGER"
    send CONT a
    sleep 0.5
    expect_not ended "$(cat pid.a)"
    touch go.a
    settle a
    of a
    expect_code 125
    expect_out 'begun by a' 'by a'
    expect_err_has 'in doubt'
}

# ---- what is seen, and when -------------------------------------------------

test_output_is_written_when_it_is_accepted() {
    call a share x -- sh -c "$WORK"
    wait_for runs_are 1
    sleep 0.3
    expect_file "$T/a.out"
    expect_file "$T/a.err"
    touch go.a
    got_that_of a a
}

test_on_a_terminal_it_is_seen_as_it_comes() {
    export CALLER=a
    printf '%s\n' "$WORK" >job
    terminal 80 24 sh '"$VOW" share x -- sh job; echo "it was $?"'
    wait_for grep -q 'begun by a' "$T/raw"
    wait_for grep -q 'told by a' "$T/raw"
    touch go.a
    wait_for terminal_over
    screen | sort >seen
    expect_file seen 'begun by a' 'by a' 'it was 3' 'told by a'
}

# Only the stream that is one.
test_a_terminal_beside_a_file_is_seen_as_it_comes() {
    export CALLER=a
    printf '%s\n' "$WORK" >job
    terminal 80 24 sh '"$VOW" share x -- sh job >file; echo "it was $?"'
    wait_for grep -q 'told by a' "$T/raw"
    expect_file file
    touch go.a
    wait_for terminal_over
    expect_file file 'begun by a' 'by a'
}

SAME='echo "$CALLER" >>runs; echo one
until [ -e "go.$CALLER" ]; do sleep 0.02; done; echo "by $CALLER"'

# What was seen already is not seen twice.
test_on_a_terminal_the_rest_of_another_is_seen() {
    printf '%s\n' "$SAME" >job
    export LEASE PULSE
    terminal 80 24 sh 'CALLER=a "$VOW" share --lease "$LEASE" \
        --pulse "$PULSE" x -- sh job & echo $! >"$T/a.pid"
        wait $!; echo "it was $?"'
    wait_for grep -q one "$T/raw"
    call b share --lease 60s x -- sh -c "$SAME"
    wait_for told_is x waiters 1
    stop_calmly a
    wait_for runs_are 2
    send CONT a
    wait_for told_is x waiters 1
    touch go.b
    wait_for terminal_over
    screen >seen
    expect_file seen one 'by b' 'it was 0'
}

test_who_follows_sees_the_rest_of_another() {
    call a share --follow --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$SAME"
    wait_for has_line "$T/a.out" one
    call b share --follow --lease 60s x -- sh -c "$SAME"
    wait_for has_line "$T/b.out" one
    stop_calmly a
    wait_for runs_are 2
    send CONT a
    touch go.b
    settle a b
    for who in a b; do
        of "$who"
        expect_code 0
        expect_out one 'by b'
        expect_err
    done
}

test_who_follows_is_told_if_another_writes_something_else() {
    lose --follow
    of a
    expect_out 'begun by a'
    send CONT a
    touch go.b
    settle a
    expect_code 3
    expect_out 'begun by a' 'b' 'by b'
    expect_err_has 'the output of the next runner differs'
}

test_without_a_store_it_is_seen_as_it_comes() {
    : >"$T/plain"
    VOW_STORE=file:$T/plain/store call a share x -- sh -c "$WORK"
    wait_for has_line "$T/a.out" 'begun by a'
    wait_for has_line "$T/a.err" 'told by a'
    touch go.a
    settle a
    of a
    expect_code 3
    expect_out 'begun by a' 'by a'
}

# ---- the end ----------------------------------------------------------------

test_a_signal_writes_what_was_kept_back() {
    for signal in TERM INT HUP; do
        note "$signal"
        rm -f runs
        call a share x -- sh -c "$WORK"
        wait_for runs_are 1
        send "$signal" a
        settle a
        of a
        expect_signal "$signal"
        expect_out 'begun by a'
        expect_err 'told by a'
    done
}

test_a_signal_ends_who_waits_for_another() {
    lose
    send CONT a
    wait_for told_is x waiters 1
    send TERM a
    settle a
    of a
    expect_signal TERM
    expect_out 'begun by a'
    touch go.b
    got_that_of b b
}

test_a_signal_writes_megabytes() {
    call a share x -- sh -c 'seq 3000000; touch ready; exec sleep 300'
    wait_for test -e ready
    send TERM a
    settle a
    of a
    expect_signal TERM
    seq 3000000 | cmp - "$OUT" || fail 'something is missing'
}

# Nobody reads: what was kept back is given up.
test_a_signal_ends_it_though_nobody_reads() {
    mkfifo pipe
    exec 8<>pipe
    perl -e "$PARENT" "$T/a.status" "$T/a.pid" "$VOW" share x -- \
        sh -c 'seq 100000; touch ready; exec sleep 300' >pipe 2>"$T/a.err" &
    wait_for test -e ready
    send TERM a
    settle a
    of a
    expect_signal TERM
    expect_none_left
}

test_too_much_output_is_written_up_to_the_limit() {
    seq 100000 >much # one piece of it is more than the limit
    vow share --max-output 10K x -- cat much
    expect_code 125
    head -c 10240 much | cmp - "$OUT" || fail 'it was not written'
    expect_err_has max-output
}

# ---- a server ---------------------------------------------------------------

test_redis_has_the_result_made_meanwhile() {
    server || return 0
    lose
    touch go.b
    got_that_of b b
    send CONT a
    got_that_of b a
    expect runs_are 2
}

test_redis_may_lose_all_it_knew() {
    server || return 0
    call a share --lease 60s --pulse "$PULSE" x -- sh -c "$WORK"
    wait_for runs_are 1
    send STOP a
    redis FLUSHALL >/dev/null
    call b share --lease 60s x -- sh -c "$WORK"
    wait_for runs_are 2
    send CONT a
    wait_for told_is x waiters 1
    touch go.b
    got_that_of b a b
    expect runs_are 2
}

test_redis_that_is_gone_is_121_with_what_was_written() {
    server || return 0
    call a share --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$WORK"
    wait_for runs_are 1
    down
    settle a
    of a
    expect_code 121
    expect_out 'begun by a'
    expect_err_has 'told by a'
    expect_err_has lost
}
