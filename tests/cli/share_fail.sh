# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# share_fail.sh - when who runs it is killed, stopped or cut off, another takes
# over, and what comes late counts for nothing.

# shellcheck source=/dev/null
. "$0/store.sh"

# Notes when it runs, with which fence, in which process, and last of all who.
NOTED='date +%s%N >>starts; echo "$VOW_FENCE" >>fences; echo $$ >"pid.$CALLER"
echo "$CALLER" >>runs'
JOB="$NOTED"'
echo "begun by $CALLER"
until [ -e go ]; do sleep 0.02; done
echo "by $CALLER"'

# got RUNNER CALLER...: each has all of what that one wrote, and nothing else.
got() {
    runner=$1
    shift
    for who; do
        settle "$who"
        of "$who"
        note "$who"
        expect_code 0
        expect_out "begun by $runner" "by $runner"
        expect_err
    done
}

# run_and_wait RUNNER CALLER...: the first runs it, the others wait.
OPTIONS='--ttl 1h --lease 60s'
run_and_wait() {
    call_one "$1"
    wait_for runs_are 1
    shift
    for who; do
        call_one "$who"
    done
    wait_for told_is x waiters $#
}

# shellcheck disable=SC2086 # a list of words
call_one() {
    call "$1" share $OPTIONS x -- sh -c "$JOB"
}

# ---- killed -----------------------------------------------------------------

test_a_killed_runner_is_replaced_at_once() {
    run_and_wait a b c
    killed=$(now_ms)
    send KILL a
    wait_for runs_are 2
    # Not after the lease, which is a minute.
    took=$(($(sed -n 2p starts) / 1000000 - killed))
    note "after $took ms"
    expect test "$took" -le "$AT_ONCE_MS"
    touch go
    got "$(sed -n 2p runs)" b c
    expect runs_are 2
    settle a
    of a
    expect_signal KILL
    expect sort -nuc fences
}

test_the_command_of_a_killed_runner_ends() {
    call a share --lease 60s x -- sh -c 'echo $$ >"pid.1"
        sh -c '\''echo $$ >pid.2; sleep 300; :'\'' & touch ready; wait'
    wait_for test -e ready
    wait_for test -s pid.2
    send KILL a
    wait_for ended "$(cat pid.1)"
    wait_for ended "$(cat pid.2)"
    settle a
    expect_none_left
}

test_a_killed_runner_without_waiters_makes_nobody_wait() {
    call_one a
    wait_for runs_are 1
    send KILL a
    settle a
    vow share -n --lease 60s x -- echo mine
    expect_code 0
    expect_out mine
}

test_role_tells_of_a_takeover() {
    call_one a
    wait_for runs_are 1
    call_role b --lease 60s x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    call_role c --lease 60s x -- sh -c "$JOB"
    wait_for told_is x waiters 2
    send KILL a
    wait_for runs_are 2
    touch go
    runner=$(sed -n 2p runs)
    settle b c
    note "$(cat "$T/b.role" "$T/c.role")"
    expect grep -q '"role": *"takeover"' "$T/$runner.role"
    for who in b c; do
        expect grep -q "\"fence\": *$(sed -n 2p fences)[,}]" "$T/$who.role"
        expect grep -q ":$(cat "$T/$runner.pid")\"" "$T/$who.role"
    done
    expect test "$(grep -l '"role": *"joined"' "$T/b.role" "$T/c.role" |
        wc -l)" -eq 1
}

test_ten_callers_survive_three_kills() {
    run_and_wait c0 c1 c2 c3 c4 c5 c6 c7 c8 c9
    for n in 1 2 3; do
        send KILL "$(sed -n "${n}p" runs)"
        wait_for runs_are $((n + 1))
    done
    touch go
    sed 3q runs >dead
    for who in c0 c1 c2 c3 c4 c5 c6 c7 c8 c9; do
        grep -qx "$who" dead || got "$(sed -n 4p runs)" "$who"
    done
    expect runs_are 4
    expect sort -nuc fences
}

# Whose turn it is kills its vow: one after the other, until nobody may follow.
test_there_is_an_end_of_takeovers() {
    fatal='echo "$CALLER" >>runs; kill -KILL $PPID; sleep 300'
    for who in a b c d; do
        call "$who" share --takeovers 1 --lease 60s x -- sh -c "$fatal"
    done
    settle a b c d
    expect runs_are 2
    for who in a b c d; do
        of "$who"
        note "$who"
        if grep -qx "$who" runs; then
            expect_signal KILL
        else
            expect_code 125
            expect_sentence
        fi
    done
}

test_there_may_be_no_takeovers() {
    OPTIONS='--takeovers 0 --lease 60s'
    run_and_wait a b
    send KILL a
    settle a b
    of b
    expect_code 125
    expect_sentence
    expect runs_are 1
}

test_a_killed_waiter_does_no_harm() {
    run_and_wait a b c
    send KILL b
    settle b
    touch go
    got a a c
    expect runs_are 1
}

test_who_follows_sees_nothing_twice_when_the_runner_is_killed() {
    same='echo run >>runs; echo one
        until [ -e go ]; do sleep 0.02; done; echo two'
    call a share --follow --lease 60s x -- sh -c "$same"
    wait_for has_line "$T/a.out" one
    call b share --follow --lease 60s x -- sh -c "$same"
    wait_for has_line "$T/b.out" one
    call c share --follow --lease 60s x -- sh -c "$same"
    wait_for has_line "$T/c.out" one
    send KILL a
    wait_for runs_are 2
    touch go
    settle b c
    for who in b c; do
        of "$who"
        expect_code 0
        expect_out one two
    done
}

# Where the kill finds them is left to chance: before, while and after one of
# them runs it.
test_a_kill_at_any_moment_leaves_one_result() {
    short='echo "$CALLER" >>"ran.$ROUND"; sleep 0.05; echo "by $CALLER"'
    for round in 1 2 3 4 5 6 7 8; do
        export ROUND="$round"
        for who in a b c d e; do
            call "$who" share --ttl 1h --lease 60s "x$round" -- sh -c "$short"
        done
        for who in a b c d e; do
            wait_for test -s "$T/$who.pid"
        done
        sleep "0.0$round"
        victim=$(head -n 1 "ran.$round" 2>/dev/null) || true
        send KILL "${victim:-a}" 2>/dev/null || true
        settle a b c d e
        note "round $round: $(tr '\n' ' ' <"ran.$round")"
        for who in a b c d e; do
            [ "$who" != "${victim:-a}" ] || continue
            of "$who"
            expect_code 0
            expect_err
            cat "$OUT" >>"got.$round"
        done
        expect_lines 4 "got.$round"
        sort -u "got.$round" >results
        expect_lines 1 results
        expect test "$(wc -l <"ran.$round")" -le 2
        OUT=$T/out STATUS=$T/status ERR=$T/err vow result "x$round"
        expect cmp "$T/out" results
    done
}

# ---- told to end ------------------------------------------------------------

test_a_runner_that_is_told_to_end_is_replaced() {
    for signal in TERM INT HUP; do
        note "$signal"
        rm -f runs go "$T"/[abc].*
        run_and_wait a b c
        send "$signal" a
        settle a
        of a
        expect_signal "$signal"
        wait_for ended "$(cat pid.a)"
        wait_for runs_are 2
        touch go
        got "$(sed -n 2p runs)" b c
        expect runs_are 2
        vow forget x
    done
}

test_a_runner_that_is_told_to_end_leaves_nothing() {
    call a share x -- sh -c 'sleep 300 & touch ready; wait'
    wait_for test -e ready
    send TERM a
    settle a
    of a
    expect_signal TERM
    expect_none_left
    vow share --peek x
    expect_code 66
}

# ---- stopped ----------------------------------------------------------------

OPTIONS_OF_STOPPED="--ttl 1h --lease $LEASE --pulse $PULSE"

# stop_and_replace: a is stopped, and b has taken over.
stop_and_replace() {
    OPTIONS="$OPTIONS_OF_STOPPED${1+ $1}"
    run_and_wait a b
    stopped=$(now_ms)
    stop_calmly a
    wait_for runs_are 2
}


test_a_stopped_runner_is_replaced_after_its_lease() {
    stop_and_replace
    # Its last pulse was a moment before, and may have been a late one.
    took=$(($(sed -n 2p starts) / 1000000 - stopped))
    note "after $took ms"
    expect test "$took" -ge $((300 * VOW_TEST_SLOW))
    expect test "$took" -le "$TAKEN_OVER_MS"
    touch go
    got b b
    send CONT a
    got b a
    vow result x
    expect_out 'begun by b' 'by b'
}

test_a_stopped_runner_that_goes_on_kills_its_command() {
    stop_and_replace
    send CONT a
    wait_for ended "$(cat pid.a)"
    # And the other has not been disturbed.
    touch go
    got b a b
    expect runs_are 2
    expect sort -nuc fences
    expect_none_left
}

test_a_stopped_runner_publishes_nothing() {
    JOB="$NOTED"'
    echo "begun by $CALLER"; until [ -e "go.$CALLER" ]; do sleep 0.02; done
    echo "by $CALLER"'
    stop_and_replace
    # Its command comes to its end; the result is there when it wakes up.
    touch go.a
    wait_for ended "$(cat pid.a)"
    send CONT a
    wait_for told_is x waiters 1
    vow share --peek x
    expect_code 66
    touch go.b
    got b a b
    vow result x
    expect_out 'begun by b' 'by b'
}

test_a_stopped_runner_kills_all_of_its_command() {
    JOB="$NOTED"'
    [ "$CALLER" = b ] || {
        trap "" TERM
        sh -c "trap \"\" TERM; touch ready; while :; do sleep 1; done" &
    }
    echo "begun by $CALLER"; until [ -e go ]; do sleep 0.02; done
    echo "by $CALLER"'
    OPTIONS=$OPTIONS_OF_STOPPED
    run_and_wait a b
    wait_for test -e ready
    stop_calmly a
    wait_for runs_are 2
    send CONT a
    wait_for ended "$(cat pid.a)"
    touch go
    got b a b
    expect_none_left
}

test_a_lost_command_may_be_kept() {
    JOB="$NOTED"'
    echo "begun by $CALLER"; until [ -e "go.$CALLER" ]; do sleep 0.02; done
    echo "by $CALLER"'
    stop_and_replace '--on-lost keep'
    touch go.b
    got b b
    send CONT a
    sleep 0.3
    expect_not ended "$(cat pid.a)"
    touch go.a
    got b a
    vow result x
    expect_out 'begun by b' 'by b'
}

test_a_stopped_waiter_holds_up_nobody() {
    OPTIONS='--lease 60s' # it is kept for those who wait
    run_and_wait a b c
    send STOP b
    touch go
    got a a c
    send CONT b
    got a b
    expect runs_are 1
}

# ---- alive ------------------------------------------------------------------

test_a_run_longer_than_its_lease_is_not_disturbed() {
    long="echo run >>runs; sleep $LONGER; echo long"
    call a share --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$long"
    wait_for runs_are 1
    call b share --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$long"
    wait_for told_is x waiters 1
    all_got long a b
    expect runs_are 1
}

test_a_stopped_command_is_not_a_stopped_runner() {
    OPTIONS=$OPTIONS_OF_STOPPED
    run_and_wait a b
    kill -STOP "$(cat pid.a)"
    sleep "$LONGER"
    kill -CONT "$(cat pid.a)"
    touch go
    got a a b
    expect runs_are 1
}

# ---- cut off ----------------------------------------------------------------

# The folder of the store is replaced by something that cannot be one, however
# often somebody makes it again meanwhile.
cut_off() {
    until [ -f "$T/store" ]; do
        rm -rf "$T/store" 2>/dev/null || true
        (: >"$T/store") 2>/dev/null || true
    done
}

test_a_runner_that_lost_its_store_kills_its_command() {
    # A quarter of the lease is for the trap.
    call a share --lease 24s --pulse "$PULSE" x -- sh -c '
        trap "touch asked" TERM; echo $$ >pid; touch ready
        while :; do sleep 0.02; done'
    wait_for test -e ready
    cut_off
    settle a
    of a
    expect_code 121
    # First it was asked to end, then it had to.
    expect test -e asked
    wait_for ended "$(cat pid)"
    expect_none_left
    expect_out
    expect grep -q '^vow' "$ERR"
}

test_who_waits_for_a_lost_store_does_not_wait_for_ever() {
    OPTIONS=$OPTIONS_OF_STOPPED
    run_and_wait a b c
    cut_off
    settle a
    of a
    expect_code 121
    touch go
    settle b c
    for who in b c; do
        of "$who"
        note "$who"
        expect_code 0 121 125
        expect test -s "$ERR"
    done
}

test_a_result_that_cannot_be_kept_is_still_the_callers() {
    call a share --ttl 1h --lease 60s --pulse 20s x -- sh -c '
        touch ready; until [ -e go ]; do sleep 0.02; done; echo hello'
    wait_for test -e ready
    cut_off
    touch go
    settle a
    of a
    expect_code 0
    expect_out hello
    expect_lines 1 "$ERR"
    expect_err_has store
}
