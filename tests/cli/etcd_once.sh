# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# etcd_once.sh - what may happen only once, over members of etcd: never begun a
# second time by itself, and settled by one.

# shellcheck source=/dev/null
. "$0/etcd.sh"

test_once_is_as_in_a_folder() {
    member || return 0
    alike once.a_killed_runner_of_share_once_leaves_it_in_doubt \
        once.resolve_retry_lets_the_next_do_it once.resolve_is_for_one_fence \
        once.resolve_of_what_is_not_in_doubt_says_what_it_is \
        once.lock_once_is_a_lock \
        once.lock_once_is_given_back_when_its_command_ends_by_a_signal \
        once.cancel_ends_the_holder_of_lock_once_and_all_who_wait
}

test_doubt_is_as_in_a_folder() {
    member || return 0
    of_it=shared_findings.what_runs_once
    alike "${of_it}_is_in_doubt_when_its_runner_is_told_to_end" \
        "${of_it}_is_in_doubt_when_it_is_canceled" \
        "${of_it}_and_never_began_is_in_no_doubt" \
        "${of_it}_and_writes_too_much_is_in_no_doubt"
}

test_who_waits_for_what_runs_once_is_told_of_the_doubt_and_runs_nothing() {
    cluster 1 || return 0
    call a share --once --lease "$LEASE" pay -- sh -c "$JOB"
    wait_for runs_are 1
    for who in b c d; do
        call "$who" share --once --lease "$LEASE" pay -- sh -c "$JOB"
    done
    wait_for told_is pay waiters 3
    send KILL a
    settle b c d
    for who in b c d; do
        of "$who"
        expect_code 125
        expect_sentence
        expect_err_has 'in doubt'
        expect_err_has 'vow resolve'
    done
    of later
    expect told_is pay state doubt
    expect told_is pay mode once
    vow status
    expect_out_has doubt
    # Over a restart of the member too.
    end_member 1
    begin_members 1
    for words in '--once' '--fenced' ''; do
        # shellcheck disable=SC2086 # an option, or none
        vow share $words pay -- sh -c "$JOB"
        expect_code 125
        expect_sentence
    done
    expect runs_are 1
}

# Whoever is killed and when: all others get the same, be it the doubt.
test_a_kill_at_any_moment_begins_nothing_twice() {
    member || return 0
    short='echo "$CALLER" >>"ran.$ROUND"; sleep 0.2; echo "by $CALLER"'
    for round in 1 2 3 4; do
        export ROUND="$round"
        for who in a b c; do
            call "$who$round" share --once --lease "$LEASE" --ttl 1h "x$round" \
                -- sh -c "$short"
        done
        [ "$round" -eq 1 ] || wait_for test -s "ran.$round"
        sleep "0.$((round / 3))$round"
        victim=$(head -n 1 "ran.$round" 2>/dev/null) || true
        send KILL "${victim:-a$round}" 2>/dev/null || true
    done
    for round in 1 2 3 4; do
        settle "a$round" "b$round" "c$round"
        : >>"ran.$round"
        note "round $round: $(tr '\n' ' ' <"ran.$round")"
        expect test "$(wc -l <"ran.$round")" -le 1
        for who in a b c; do
            of "$who$round"
            [ "$(cat "$STATUS")" != 'signal KILL' ] || continue
            expect_code 0 125
            cat "$STATUS" "$OUT" >"got.$who"
            [ -e "got.$round" ] || cp "got.$who" "got.$round"
            expect cmp "got.$who" "got.$round"
            [ "$(cat "$STATUS")" = 'exit 0' ] || expect_err_has 'in doubt'
        done
    done
}

test_a_lock_in_doubt_lets_nobody_in() {
    member || return 0
    call a lock --once --lease "$LEASE" pay -- sh -c "$JOB"
    wait_for runs_are 1
    call b lock --once --lease "$LEASE" pay -- sh -c "$JOB"
    wait_for told_is lock:pay waiters 1
    first=$(told lock:pay fence)
    send KILL a
    settle b
    of b
    expect_code 125
    expect_sentence
    expect_err_has 'vow resolve lock:pay --retry'
    of later
    vow lock --once -n pay -- touch ran
    expect_code 125
    expect_not test -e ran
    # One without --once is another.
    vow lock -n pay -- echo other
    expect_out other
    vow resolve lock:pay --retry
    expect_code 0
    vow lock --once -n pay -- sh -c 'echo "$VOW_FENCE"'
    expect_code 0
    expect test "$(cat "$OUT")" -gt "$first"
    expect runs_are 1
}

test_a_lock_that_was_given_back_is_in_no_doubt() {
    member || return 0
    for end in 0 3; do
        vow lock --once "x$end" -- sh -c "exit $end"
        expect_code "$end"
        vow lock --once -n "x$end" -- echo free
        expect_code 0
        expect_out free
    done
    vow status
    expect_code 0
    expect_out
}

# settled_by WHO...: one of them was heard, the others came too late.
settled_by() {
    WINNER=''
    for who; do
        of "$who"
        note "$who"
        expect_code 0 66
        if [ "$(cat "$STATUS")" = 'exit 0' ]; then
            expect test -z "$WINNER"
            WINNER=$who
            expect_err
        else
            expect_sentence
            expect_err_has "'pay' is not in doubt"
        fi
    done
    of later
    expect test -n "$WINNER"
}

test_of_those_who_resolve_at_once_one_is_heard() {
    member || return 0
    doubt share --once pay
    for who in r1 r2 r3 r4 r5 r6; do
        echo "receipt of $who" >"$who"
        call "$who" resolve pay --done "$who" --fence "$(cat begun)"
    done
    settle r1 r2 r3 r4 r5 r6
    settled_by r1 r2 r3 r4 r5 r6
    vow share --once pay -- touch ran
    expect_code 0
    expect_out "receipt of $WINNER"
    expect_not test -e ran
}

test_of_those_who_say_different_things_one_is_heard() {
    member || return 0
    doubt share --once pay
    echo receipt >file
    call 'done' resolve pay --done file
    call failed resolve pay --failed
    call retry resolve pay --retry
    settle 'done' failed retry
    settled_by 'done' failed retry
    vow share --once pay -- echo again
    case $WINNER in
    done) expect_out receipt ;;
    failed) expect_code 1 ;;
    retry) expect_out again ;;
    esac
}

test_the_answer_for_what_is_in_doubt_lasts_as_told() {
    member || return 0
    doubt share --once pay
    vow resolve pay --failed --ttl 20s
    expect_code 0
    vow share --once pay -- touch ran
    expect_code 1
    expect_not test -e ran
    wait_for sh -c '! "$VOW" status pay'
    vow share --once pay -- echo again
    expect_out again
}
