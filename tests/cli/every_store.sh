# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# every_store.sh - the promises to callers that hold on every store: each test
# runs in a folder, over Redis and over etcd, all at once.

# shellcheck source=/dev/null
. "$0/etcd.sh"

# on_each FUNCTION: run a function on every store there is, each time with a
# folder of its own. $KIND is folder, redis or etcd.
on_each() {
    kinds='folder redis'
    ! member || kinds="$kinds etcd"
    started=''
    for kind in $kinds; do
        (on_one "$kind" "$1") &
        started="$started $kind:$!"
    done
    for kind in $started; do
        wait "${kind#*:}" || fail "$1 fails: ${kind%:*}"
    done
}

on_one() {
    KIND=$1 T=$T/$1 VOW_TEST_ID=$VOW_TEST_ID$1.
    export T VOW_TEST_ID
    mkdir -p "$T/work" "$T/tmp"
    cd "$T/work" || return
    # shellcheck source=/dev/null
    . "$0/lib.sh"
    # shellcheck source=/dev/null
    . "$0/redis.sh"
    case $KIND in
    folder) export VOW_STORE="file:$T/store" ;;
    redis) server || return 0 ;;
    etcd) export VOW_STORE="$STORE&prefix=$PREFIX$KIND/" ;;
    esac
    "$2" >"$T/said" 2>&1 & # or set -e would not count in it
    wait $! || {
        sed "s/^/$KIND: /" "$T/said"
        exit 1
    }
}

# wipe: the store loses all records, as by FLUSHALL.
wipe() {
    case $KIND in
    folder)
        mv "$T/store" "$T/wiped"
        rm -rf "$T/wiped"
        ;;
    redis) redis FLUSHALL >"$T/wiped" ;;
    etcd)
        range=$(perl -MMIME::Base64 -e '
            my ($from) = @ARGV;
            my $to = $from;
            substr($to, -1) = chr(1 + ord substr $to, -1);
            printf "{\"key\":\"%s\",\"range_end\":\"%s\"}",
                encode_base64($from, ""), encode_base64($to, "")' \
            "$PREFIX$KIND/")
        ask "$PORT1" kv/deleterange "$range" >"$T/wiped"
        expect grep -q header "$T/wiped"
        ;;
    esac
}

# pulsed FENCE: a run with this fence is known. Made again by its pulse, the
# record has no label.
pulsed() {
    "$VOW" status --json | grep -q "\"running\",.*\"fence\":$1,"
}

# restart: the server, with all that it has written to its disk.
restart() {
    [ "$KIND" = redis ] || return 0
    redis SAVE >"$T/saved"
    down
    up --dbfilename dump.rdb
}

# stop_waiter CALLER: not while it writes to a folder.
stop_waiter() {
    if [ "$KIND" = folder ]; then
        stop_calmly "$1"
    else
        send STOP "$1"
    fi
}

# ---- results for waiters -----------------------------------------------------

# Longer than what comes with a wake-up.
LONG='echo "$CALLER" >>runs
until [ -e go ]; do sleep 0.02; done
head -c 20000 /dev/zero | tr "\0" "$CALLER"'

waiters_from_before_a_takeover() {
    call a share --lease 2s x -- sh -c "$LONG"
    wait_for has_lines 1 runs
    for who in b c d; do
        call "$who" share --lease 60s x -- sh -c "$LONG"
    done
    wait_for told_is x waiters 3
    send KILL a
    wait_for has_lines 2 runs
    touch go
    settle b c d
    expect_lines 2 runs
    head -c 20000 /dev/zero | tr '\0' "$(sed -n 2p runs)" >all
    for who in b c d; do
        of "$who"
        note "$who"
        expect_code 0
        expect cmp all "$OUT"
        expect_err
    done
    of later
    vow share x -- echo later
    expect_out later
}

test_waiters_from_before_a_takeover_get_the_accepted_result() {
    on_each waiters_from_before_a_takeover
}

# Meanwhile the name is run once more, by a caller that did not wait.
waiter_that_was_stopped() {
    call a share --lease 60s x -- sh -c "$LONG"
    wait_for has_lines 1 runs
    call b share --lease 60s x -- sh -c "$LONG"
    wait_for told_is x waiters 1
    stop_waiter b
    touch go
    settle a
    for i in 1 2; do
        vow share x -- echo "later $i"
        expect_code 0
        expect_out "later $i"
    done
    send CONT b
    settle b
    of b
    expect_code 0
    expect cmp "$T/a.out" "$OUT"
    expect_err
    expect_lines 1 runs
}

test_a_waiter_that_was_stopped_gets_the_result_it_waited_for() {
    on_each waiter_that_was_stopped
}

# ---- takeovers ---------------------------------------------------------------

force_takes_a_lost_name() {
    for name in x y; do
        call "$name" share --takeovers 0 --lease 2s "$name" -- \
            sh -c 'echo >>runs; exec sleep 60'
    done
    wait_for has_lines 2 runs
    send KILL x
    send KILL y
    # The loss of x is told as its failure, the loss of y is not.
    vow share --takeovers 0 x -- touch ran
    expect_code 125
    expect_sentence
    expect_not test -e ran
    wait_for sh -c '! "$VOW" status y | grep -q running'
    for name in x y; do
        vow share --takeovers 0 --force "$name" -- echo "forced $name"
        expect_code 0
        expect_out "forced $name"
        expect_err
    done
}

test_force_takes_a_lost_name_whatever_the_count_of_takeovers() {
    on_each force_takes_a_lost_name
}

# ---- a store that loses its records -------------------------------------------

# one_waits: on etcd, the processes are counted, with the runner: the record has
# no label by which the runner is found.
one_waits() {
    if [ "$KIND" = etcd ]; then
        [ "$(count_waiting x)" -eq 2 ]
    else
        "$VOW" status --json | grep -q '"waiters":1,'
    fi
}

shared_work_goes_on() {
    call_role a --lease 60s --pulse "$PULSE" x -- sh -c 'echo "$VOW_FENCE" | tee fence
        until [ -e go ]; do sleep 0.02; done'
    wait_for test -s fence
    fence=$(cat fence)
    wait_for pulsed "$fence"
    wipe
    wait_for pulsed "$fence"
    call b share x -- touch beside
    wait_for one_waits
    touch go
    all_got "$fence" a b
    expect_not test -e beside
    expect grep -q "\"fence\":$fence," "$T/a.role"
}

test_shared_work_goes_on_with_its_fence_when_its_record_was_lost() {
    on_each shared_work_goes_on
}

# The store may have forgotten a newer owner: nothing is published.
fenced_work_is_lost() {
    [ "$KIND" != redis ] || return 0
    for mode in fenced once; do
        call "$mode" share "--$mode" --ttl 1h --lease 60s --pulse "$PULSE" \
            "$mode" -- sh -c "$JOB"
        wait_for told_is "$mode" state running
    done
    wipe
    settle fenced once
    of fenced
    expect_code 121
    expect_err_has lost
    of once
    expect_code 125
    expect_err_has 'in doubt'
    of later
    for mode in fenced once; do
        vow share --peek "$mode"
        expect_code 66
    done
}

test_fenced_work_is_lost_with_its_record() {
    on_each fenced_work_is_lost
}

fences_grow() {
    fence='echo "$VOW_FENCE" >>fences'
    for how in wipe restart true; do
        note "$how"
        vow share x -- sh -c "$fence"
        vow lock x -- sh -c "$fence"
        "$how"
    done
    call a share --lease 2s x -- sh -c "$fence; exec sleep 60"
    wait_for has_lines 7 fences
    send KILL a
    vow share x -- sh -c "$fence"
    expect_lines 8 fences
    expect sort -nuc fences
}

test_fences_grow_over_loss_restart_and_takeover() {
    on_each fences_grow
}

# The follower stands still until the run is known again, or it would run the
# command as well.
follow() {
    lines='echo "$VOW_FENCE" >fence; for i in 1 2 3; do
        echo "line $i"; until [ -e "go$i" ]; do sleep 0.02; done; done'
    for who in a b; do
        call "$who" share --follow --lease 60s --pulse "$PULSE" x -- \
            sh -c "$lines"
        wait_for has_line "$T/$who.out" 'line 1'
    done
    stop_waiter b
    wipe
    [ "$1" = pulse ] || touch go1
    wait_for pulsed "$(cat fence)"
    send CONT b
    touch go1 go2 go3
    for who in a b; do
        settle "$who"
        of "$who"
        note "$who"
        expect_code 0
        expect_out 'line 1' 'line 2' 'line 3'
        expect_err
    done
}

follow_pulse() {
    follow pulse
}

test_followers_get_all_output_when_chunks_were_lost() {
    on_each follow_pulse
}

# The run writes before its next pulse.
follow_output() {
    follow output
}

test_output_behind_a_loss_does_not_end_a_followed_run() {
    on_each follow_output
}

# ---- pools -------------------------------------------------------------------

HELD='echo "$CALLER" >>order
until [ -e "go.$CALLER" ]; do sleep 0.02; done'

raised_limit() {
    call a run --pool p:k -j1 -- sh -c "$HELD"
    wait_for has_line order a
    call b run --lease 3s --pool p:k -j1 -- sh -c "$HELD"
    wait_for told_is p:k queue 1
    vow limit p -j 2
    expect_code 0
    wait_for has_line order b
    touch go.a go.b
    settle a b
    for who in a b; do
        of "$who"
        expect_code 0
        expect_err
    done
}

test_a_raised_limit_reaches_a_key_that_waits() {
    on_each raised_limit
}

# The waiter has more weight than any permit can have now: it is told, and the
# waiter behind goes on. The holder keeps what it has.
lowered_limit() {
    call a map --pool p -j3 --weight 3 "$HELD; : {}" ::: 1
    wait_for has_line order a
    call b map --pool p -j3 --weight 3 "$HELD; : {}" ::: 1
    wait_for told_is p queue 1
    call c map --pool p -j3 "$HELD; : {}" ::: 1
    wait_for told_is p queue 2
    vow limit p -j 2
    expect_code 0
    settle b
    of b
    expect_code 1
    expect_err_has "pool 'p' never allows a weight of 3"
    of later
    expect told_is p running 3
    touch go.a go.c
    settle a c
    for who in a c; do
        of "$who"
        note "$who"
        expect_code 0
    done
    expect_file order a c
}

test_a_limit_below_the_weight_of_a_waiter_ends_its_wait_only() {
    on_each lowered_limit
}
