# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# share_many.sh - two hundred who ask for one name at once.

# shellcheck source=/dev/null
. "$0/store.sh"

MANY=200

# Bytes that no two runs have in common, on both streams, and a code. Notes who
# runs it, and waits for the file go in between.
ONE_OF_A_KIND='echo $PPID >>runs
head -c 30000 /dev/urandom >"mine.$$"
ln -sf "mine.$$" last
head -c 10000 "mine.$$"
until [ -e go ]; do sleep 0.02; done
tail -c 10000 "mine.$$" >&2
tail -c 20000 "mine.$$"
exit 7'

# ask_all OPTION...: all at once, each with its own files.
ask_all() {
    for i in $(seq $MANY); do
        (
            code=0
            "$VOW" share "$@" x -- sh -c "$ONE_OF_A_KIND" \
                >"out.$i" 2>"err.$i" || code=$?
            echo "$code" >"code.$i"
        ) &
    done
}

# expect_same N: so many have the bytes of the last run, and its code; the others
# were killed.
expect_same() {
    { head -c 10000 last && tail -c 20000 last; } >"$T/out.ran"
    tail -c 10000 last >"$T/err.ran"
    for i in $(seq $MANY); do
        [ "$(cat "code.$i")" != 137 ] || continue
        echo "$i" >>same
        note "$i: exit $(cat "code.$i")"
        expect test "$(cat "code.$i")" = 7
        expect cmp "out.$i" "$T/out.ran"
        expect cmp "err.$i" "$T/err.ran"
    done
    expect_lines "$1" same
}

test_two_hundred_at_once_are_one_run() {
    ask_all --lease 60s
    wait_for told_is x waiters $((MANY - 1))
    touch go
    wait
    expect runs_are 1
    expect_same $MANY
}

test_two_hundred_at_once_survive_the_runner() {
    ask_all --lease 60s
    wait_for told_is x waiters $((MANY - 1))
    kill -KILL "$(cat runs)"
    wait_for runs_are 2
    touch go
    wait
    expect runs_are 2
    expect_same $((MANY - 1))
}

# Who comes while the result is there does not run it.
test_two_hundred_find_what_is_there() {
    touch go
    vow share --fail-ttl 1h x -- sh -c "$ONE_OF_A_KIND"
    expect_code 7
    ask_all --fail-ttl 1h
    wait
    expect runs_are 1
    expect_same $MANY
}

# Many of them find, when it is their turn, that the result is there already.
test_callers_that_end_in_order_leave_nothing_in_the_folder() {
    for i in $(seq 20); do
        for caller in a b c d e f; do
            call "$caller" share --ttl 1h "name $i" -- true
        done
        settle a b c d e f
    done
    for folder in live sock val; do
        expect test -z "$(ls "$T/store/$folder")"
    done
}
