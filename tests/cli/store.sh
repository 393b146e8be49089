# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# store.sh - where the store is, what it refuses, and what happens without it.
#
# The first part is what all tests with a store are written with: share.sh and
# its kin read this file before they begin.

# ---- for all of them --------------------------------------------------------

export VOW_STORE="file:$T/store"

# A busy machine may stand still for three seconds: then nobody loses a lease.
# $LONGER is a time to sleep.
# shellcheck disable=SC2034 # for the others
LEASE=$((5 + VOW_TEST_SLOW))s PULSE=$((100 * VOW_TEST_SLOW))ms
# shellcheck disable=SC2034 # for the others
LONGER=$((6 + VOW_TEST_SLOW))
# What happens at once, and not after the lease of a minute, takes less than
# this. So does what happens after the short lease.
# shellcheck disable=SC2034 # for the others
AT_ONCE_MS=30000 TAKEN_OVER_MS=$((30000 + 1000 * VOW_TEST_SLOW))
# shellcheck disable=SC2034 # for the others
PATIENT=timeout=$((10000 * VOW_TEST_SLOW)) # of an address: a busy server answers

# What many commands are here: note who runs it, wait for the file go, print.
JOB='echo "$CALLER" >>runs
until [ -e go ]; do sleep 0.02; done
echo "by $CALLER"'

# call CALLER ARGUMENT...: run vow in the background. It has its name in CALLER,
# and $T/CALLER.out, .err, .status and .pid are its files.
call() {
    who=$1
    shift
    rm -f "$T/$who.status" "$T/$who.pid"
    CALLER=$who perl -e "$PARENT" "$T/$who.status" "$T/$who.pid" \
        "$VOW" "$@" >"$T/$who.out" 2>"$T/$who.err" &
}

# call_role CALLER ARGUMENT...: the same with vow share, its role in .role. The
# parent in between closes descriptors, so a shell behind it opens this one.
call_role() {
    who=$1
    shift
    rm -f "$T/$who.status" "$T/$who.pid"
    CALLER=$who perl -e "$PARENT" "$T/$who.status" "$T/$who.pid" sh -c '
        exec "$VOW" share --role-fd 3 "$@" 3>"$T/$CALLER.role"' - "$@" \
        >"$T/$who.out" 2>"$T/$who.err" &
}

# apart FILE FUNCTION: run a function of a file of tests where what it mounts is
# seen by nobody else.
apart() {
    how=-m
    [ "$(id -u)" -eq 0 ] || how=-rm
    unshare "$how" sh -eu -c '
        . "$0/lib.sh"
        . "$0/$1.sh"
        cd "$T/work"
        "$2"' "$0" "$1" "$2" || exit 1
}

# of CALLER: what is expected from here on is expected of this one.
of() {
    OUT=$T/$1.out ERR=$T/$1.err STATUS=$T/$1.status
}

# send SIGNAL CALLER
send() {
    wait_for test -s "$T/$2.pid"
    kill "-$1" "$(cat "$T/$2.pid")"
}

# stop_calmly CALLER: stop the caller's vow between two writes to the store. A vow
# stopped during a write keeps the folder's lock; the other callers then give up
# and run without the store.
stop_calmly() {
    wait_for stops_outside_the_store "$1"
}

stops_outside_the_store() {
    send STOP "$1"
    wait_for stands_still "$(cat "$T/$1.pid")"
    if "$VOW" lock --lease 60s probe -- true; then
        return
    fi
    send CONT "$1"
    return 1
}

# stands_still PID: all threads of it are stopped. Until then, one of them may be
# in a call that takes the lock.
stands_still() {
    ! sed 's/.*) //' "/proc/$1"/task/*/stat | grep -qv '^[Tt]'
}

# settle CALLER...: wait until they have ended.
settle() {
    for who; do
        wait_for test -e "$T/$who.status"
    done
}

# all_got LINE CALLER...: they end well, printed just that and got no errors.
all_got() {
    line=$1
    shift
    for who; do
        settle "$who"
        of "$who"
        note "$who"
        expect_code 0
        expect_out "$line"
        expect_err
    done
}

# inside SCRIPT [ARGUMENT...]: a shell in the place of vow, where signals are as
# they are for people.
inside() {
    script=$1
    shift
    rm -f "$STATUS"
    perl -e "$PARENT" "$STATUS" "$T/pid" sh -eu -c "$script" inside "$@" \
        >"$OUT" 2>"$ERR" || true
}

# told NAME KEY: what `vow status` tells of it.
told() {
    "$VOW" status --json </dev/null | sed -n "/\"name\": *\"$1\"/s/.*\"$2\": *\
\"\{0,1\}\([^\",}]*\).*/\1/p"
}

# told_is NAME KEY VALUE: etcd does not know the waiters, so that their processes
# are counted there.
told_is() {
    case $2:$VOW_STORE in
    waiters:etcd*) [ "$(count_waiting "$1")" -eq "$3" ] ;;
    *) [ "$(told "$1" "$2")" = "$3" ] ;;
    esac
}

# count_waiting NAME: processes of this test that have joined the run of NAME:
# vow blocks signals then, and the runner is another process.
count_waiting() {
    n=0 runner=$(told "$1" runner)
    for pid in $(pgrep -x vow); do
        mask=$(sed -n 's/^SigBlk:[[:space:]]*//p' "/proc/$pid/status" 2>"$T/gone")
        [ $(((0x${mask:-0} >> 14) & 1)) -eq 1 ] || continue # TERM
        [ "$pid" != "${runner##*:}" ] || continue
        grep -qz "^VOW_TEST_RUN=$VOW_TEST_ID" "/proc/$pid/environ" \
            2>"$T/gone" || continue
        grep -qzx "${1#lock:}" "/proc/$pid/cmdline" 2>"$T/gone" || continue
        n=$((n + 1))
    done
    echo "$n"
}

# runs_are N: so many runs were noted, and not more.
runs_are() {
    [ -e "$T/work/runs" ] || : >"$T/work/runs"
    [ "$(wc -l <"$T/work/runs")" -eq "$1" ]
}

# ended PID: it does not run any more; a zombie does not either.
ended() {
    case $(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$1/status") in
    '' | Z | X) ;;
    *) false ;;
    esac
}

# expect_sentence: one, and nothing else.
expect_sentence() {
    expect_lines 1 "$ERR"
    expect grep -q '^vow' "$ERR"
    expect_out
}

# refused VERB ARGUMENT...: bad usage, told in a sentence, and `touch ran`, if
# that is the command, is not run.
refused() {
    note "$*"
    vow "$@"
    expect_code 125
    expect_sentence
    expect_not test -e ran
}

mode() {
    stat -c %a "$1"
}

# ---- where ------------------------------------------------------------------

test_the_folder_is_its_owners_alone() {
    umask 000
    vow share x -- true
    expect_code 0
    expect_err
    expect test "$(mode "$T/store")" = 700
}

test_what_is_in_the_folder_is_its_owners_alone() {
    umask 000
    vow share --ttl 1h x -- echo secret
    expect_code 0
    expect test -z "$(find "$T/store" -type f -perm /077)"
}

test_option_store_is_stronger_than_the_variable() {
    vow share --store "file:$T/other" x -- true
    expect_code 0
    expect test -d "$T/other"
    expect_not test -e "$T/store"
}

test_all_verbs_have_option_store() {
    other=file:$T/other
    vow share --store "$other" --ttl 1h x -- echo hello
    vow result --store "$other" x
    expect_out hello
    vow status --store "$other" x
    expect_out_has x
    vow forget --store "$other" x
    expect_code 0
    vow lock --store "$other" x -- echo locked
    expect_out locked
    vow pipe --store "$other" -s a='echo piped'
    expect_out piped
    vow run --store "$other" --pool p -j1 -- echo run
    expect_out run
    vow map --store "$other" --pool p -j1 echo ::: mapped
    expect_out mapped
    vow limit --store "$other" p
    expect_out_has p
    vow cancel --store "$other" x
    expect_code 66
    expect_not test -e "$T/store"
}

test_two_stores_know_nothing_of_each_other() {
    vow share --ttl 1h x -- sh -c 'echo 1'
    vow share --store "file:$T/other" --ttl 1h x -- sh -c 'echo 2'
    expect_out 2
    vow share --ttl 1h x -- sh -c 'echo 3'
    expect_out 1
}

test_what_needs_no_store_makes_none() {
    vow map -k echo ::: a
    vow run -- true
    vow share --help
    expect_not test -e "$T/store"
}

test_many_may_make_the_store_at_once() {
    for i in $(seq 20); do
        call "c$i" share "name $i" -- echo "$i"
    done
    for i in $(seq 20); do
        all_got "$i" "c$i"
    done
}

test_a_deleted_folder_is_made_again() {
    vow share --ttl 1h x -- echo 1
    rm -rf "$T/store"
    vow share --ttl 1h x -- echo 2
    expect_code 0
    expect_out 2
    expect_err
    expect test "$(mode "$T/store")" = 700
}

# ---- what is refused --------------------------------------------------------

# refused_by_all WORD: no verb works with this store, and it is told why.
refused_by_all() {
    refused share x -- touch ran
    expect_err_has "$1"
    refused lock x -- touch ran
    expect_err_has "$1"
    refused run --pool x -j1 -- touch ran
    refused map --pool x -j1 touch ::: ran
    refused pipe -s a='touch ran'
    refused status
    refused result x
    refused forget x
    refused cancel x
    refused limit x -j 2
    expect_err_has "$1"
}

test_a_symbolic_link_is_refused() {
    mkdir -m 700 "$T/real"
    ln -s "$T/real" "$T/store"
    refused_by_all link
    expect test -z "$(ls -A "$T/real")"
}

test_a_symbolic_link_to_nothing_is_refused() {
    ln -s "$T/real" "$T/store"
    refused share x -- touch ran
    expect_err_has link
    expect_not test -e "$T/real"
}

test_a_folder_that_others_may_write_to_is_refused() {
    mkdir "$T/store"
    for rights in 777 1777; do
        chmod "$rights" "$T/store"
        refused share x -- touch ran
        expect_err_has "$T/store"
        refused lock x -- touch ran
        expect test -z "$(ls -A "$T/store")"
    done
}

test_a_folder_of_another_user_is_refused() {
    if [ "$(id -u)" -eq 0 ]; then
        mkdir -m 700 "$T/store"
        chown 12345 "$T/store"
    else
        VOW_STORE=file:/usr
    fi
    refused share x -- touch ran
    refused lock x -- touch ran
}

test_an_address_that_is_none_is_told() {
    for address in nonsense nosuch:/x file: ''; do
        refused share --store "$address" x -- touch ran
        refused lock --store "$address" x -- touch ran
    done
    export VOW_STORE=nonsense
    refused share x -- touch ran
    expect_err_has nonsense
}

test_no_line_of_the_config_file_shows_a_password() {
    mkdir -p "$XDG_CONFIG_HOME/vow"
    for line in 'stor redis://u:SECRET@h' 'redis://u:SECRET@h' \
        'lease redis://u:SECRET@h' 'wait=redis://:SECRET@h'; do
        note "$line"
        echo "$line" >"$XDG_CONFIG_HOME/vow/config"
        vow lock a -- true
        expect_failure
        expect_lines 1 "$ERR"
        expect_not grep -q SECRET "$ERR"
    done
}

test_no_error_shows_a_password() {
    refused lock --store nosuch://me:sesame@host/0 x -- touch ran
    expect_not grep -q sesame "$ERR"
}

# ---- a store that is down ---------------------------------------------------

# A file is where the folder of the store should be in.
store_down() {
    : >"$T/plain"
    export VOW_STORE="file:$T/plain/store"
}

test_share_runs_without_a_store_and_warns_once() {
    store_down
    vow share --ttl 1h x -- sh -c 'echo hello; exit 3'
    expect_code 3
    expect_out hello
    expect_lines 1 "$ERR"
    expect grep -q '^vow' "$ERR"
    expect_err_has store
}

test_pipe_runs_without_a_store_and_warns_once() {
    store_down
    vow pipe -s a='echo hello' -s b='tr a-z A-Z'
    expect_code 0
    expect_out HELLO
    expect_lines 1 "$ERR"
}

test_share_may_be_told_to_run_without_a_store() {
    store_down
    vow share --if-store-down run x -- echo hello
    expect_code 0
    expect_out hello
    expect_lines 1 "$ERR"
}

test_share_may_be_told_to_fail_without_a_store() {
    store_down
    refused share --if-store-down fail x -- touch ran
    expect_err_has store
}

test_share_may_be_told_to_wait_for_the_store() {
    store_down
    call a share --if-store-down wait --ttl 1h x -- sh -c "$JOB"
    sleep 0.3
    expect runs_are 0
    rm "$T/plain"
    mkdir "$T/plain"
    wait_for runs_are 1
    # And then it is not alone.
    call b share x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    touch go
    settle a b
    of a
    expect_code 0
    expect_out 'by a'
    of b
    expect_out 'by a'
    expect runs_are 1
}

test_a_wait_for_the_store_has_an_end_with_option_w() {
    store_down
    vow share --if-store-down wait -w 200ms x -- touch ran
    expect_code 75
    expect_not test -e ran
}

test_lock_fails_without_a_store() {
    store_down
    refused lock x -- touch ran
    expect_err_has store
}

test_pools_fail_without_a_store() {
    store_down
    refused run --pool p -j1 -- touch ran
    expect_err_has store
    refused map --pool p -j1 touch ::: ran
    expect_err_has store
}

test_looking_fails_without_a_store() {
    store_down
    for words in status 'result x' 'forget x' 'cancel x' 'limit p' \
        'limit p -j 3'; do
        # shellcheck disable=SC2086 # a list of words
        refused $words
    done
}

test_a_bad_way_to_go_on_without_a_store_is_told() {
    refused share --if-store-down sometimes x -- touch ran
    expect_err_has sometimes
}

# Every file that is a database becomes something else.
damage() {
    found=0
    for file in "$T"/store/*; do
        [ "$(head -c 13 "$file" | tr -d '\0')" = 'SQLite format' ] || continue
        perl -e 'print "garbage " x 4096' >"$file"
        found=1
    done
    rm -f "$T"/store/*-wal "$T"/store/*-shm
    expect test "$found" = 1
}

test_a_damaged_store_is_set_aside_and_told() {
    vow share --ttl 1h x -- echo 1
    damage
    vow share --ttl 1h x -- echo 2
    expect_code 0
    expect_out 2
    expect_lines 1 "$ERR"
    expect grep -q '^vow' "$ERR"
    # It is still there, for whoever wants to look.
    expect test -n "$(grep -rla 'garbage garbage' "$T/store")"
    vow share --ttl 1h x -- echo 3
    expect_code 0
    expect_out 2
    expect_err
}

test_a_damaged_store_does_not_stop_a_lock() {
    vow share --ttl 1h x -- echo 1
    damage
    vow lock x -- echo 2
    expect_code 0
    expect_out 2
}

# ---- files with options -----------------------------------------------------

config() {
    mkdir -p "$XDG_CONFIG_HOME/vow"
    printf '%s\n' "$@" >"$XDG_CONFIG_HOME/vow/config"
}

test_options_may_stand_in_a_file() {
    unset VOW_STORE
    config '# where we meet' '' "--store=file:$T/other"
    vow share --ttl 1h x -- true
    expect_code 0
    expect_err
    expect test -d "$T/other"
}

test_a_value_in_the_file_may_stand_behind_a_blank() {
    unset VOW_STORE
    config "--store file:$T/an other"
    vow share --ttl 1h x -- true
    expect_code 0
    expect test -d "$T/an other"
}

test_the_variable_is_stronger_than_the_file() {
    config "--store=file:$T/other"
    vow share x -- true
    expect_code 0
    expect test -d "$T/store"
    expect_not test -e "$T/other"
}

test_an_option_is_stronger_than_the_file() {
    config --ttl=1h
    vow share --ttl 0 x -- echo 1
    vow share --ttl 0 x -- echo 2
    expect_out 2
}

test_a_verb_takes_from_the_file_what_it_knows() {
    config --ttl=1h
    vow share x -- echo 1
    vow share x -- echo 2
    expect_out 1
    vow lock x -- echo 3
    expect_code 0
    expect_out 3
    expect_err
}

test_the_file_is_looked_for_at_home() {
    unset VOW_STORE XDG_CONFIG_HOME
    export HOME="$T/home"
    mkdir -p "$HOME/.config/vow"
    echo "--store=file:$T/other" >"$HOME/.config/vow/config"
    vow share x -- true
    expect_code 0
    expect test -d "$T/other"
}

test_no_file_of_the_current_folder_is_read() {
    mkdir -p vow .config/vow etc
    for file in vow/config .config/vow/config config vow.conf .vow .vowrc \
        .vow.conf etc/vow.conf; do
        [ -d "$file" ] || echo --nonsense >"$file"
    done
    vow share x -- echo hello
    expect_code 0
    expect_out hello
    expect_err
    unset XDG_CONFIG_HOME HOME
    vow share x -- echo hello
    expect_code 0
    expect_err
}

test_an_option_that_is_none_is_told_with_its_place() {
    config '# one' --ttl=1h --nonsense=5
    refused share x -- touch ran
    expect_err_has --nonsense
    expect_err_has vow/config
    expect_err_has 3
}

test_a_bad_value_is_told_with_its_place() {
    config --ttl=soon
    refused share x -- touch ran
    expect_err_has soon
    expect_err_has vow/config
}

# Who can write the file decides what runs: --shell, --store.
test_a_file_of_another_user_is_refused() {
    config --shell=/bin/sh
    chmod 666 "$XDG_CONFIG_HOME/vow/config"
    refused share x -- touch ran
    expect_err_has 'written to by everybody'
    chmod 644 "$XDG_CONFIG_HOME/vow/config"
    vow share x -- true
    expect_code 0
    [ "$(id -u)" -eq 0 ] || return 0
    chown 12345 "$XDG_CONFIG_HOME/vow/config"
    for words in 'share x --' 'lock x --' 'map' 'run --'; do
        # shellcheck disable=SC2086 # a list of words
        vow $words touch ran </dev/null
        expect_failure
        expect_err_has 'belongs to user 12345'
        expect_lines 1 "$ERR"
    done
    expect_not test -e ran
}
