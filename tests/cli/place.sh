# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# place.sh - where the store is if nobody says where. These tests have a passwd
# file, a home and a /var/tmp of their own, in a namespace of mounts.

# shellcheck source=/dev/null
. "$0/store.sh"

PLACE=$T/home/.local/state/vow

# at_home: our home is $T/home, and /var/tmp is $T/var. What an older vow has
# left on this machine is out of sight.
at_home() {
    mkdir -m 755 "$T/home"
    mkdir -m 1777 "$T/var"
    chmod 1777 "$T/var"
    echo "me:x:$(id -u):$(id -g)::$T/home:/bin/sh" >"$T/passwd"
    printf 'passwd: files\ngroup: files\n' >"$T/nsswitch"
    mount --bind "$T/passwd" /etc/passwd
    mount --bind "$T/nsswitch" /etc/nsswitch.conf
    mount --bind "$T/var" /var/tmp
    mkdir "$T/empty"
    for old in "/tmp/vow-$(id -u)" "/run/user/$(id -u)/vow"; do
        [ ! -d "$old" ] || mount --bind "$T/empty" "$old"
    done
    unset VOW_STORE XDG_RUNTIME_DIR HOME
}

# expect_place FOLDER: that is where the store is.
expect_place() {
    vow share x -- true
    expect_code 0
    expect_err
    expect test -e "$1/vow.db"
    expect test "$(mode "$1")" = 700
    vow doctor
    expect_out_has "file:$1"
}

expect_empty() {
    expect test -z "$(find "$@" -mindepth 1)"
}

# ---- one place --------------------------------------------------------------

test_the_place_is_in_the_home_of_the_passwd_entry() {
    apart place home_place
}
home_place() {
    at_home
    expect_place "$PLACE"
    expect test "$(mode "$T/home/.local")" = 700
    expect_empty "$T/var" "$TMPDIR"
}

# As by hand, from cron, and from a service.
test_no_variable_changes_the_place() {
    apart place same_place
}
same_place() {
    at_home
    mkdir -m 700 "$T/runtime" "$T/other"
    export XDG_RUNTIME_DIR="$T/runtime" HOME="$T/other" XDG_STATE_HOME="$T/other"
    call a lock b -- sh -c "$JOB"
    wait_for runs_are 1
    env -i PATH="$PATH" "$VOW" lock b -n -- touch both && code=0 || code=$?
    expect test "$code" = 75
    expect_not test -e both
    touch go
    settle a
    expect test -e "$PLACE/vow.db"
    expect_empty "$T/runtime" "$T/other" "$T/var" "$TMPDIR"
}

test_an_empty_variable_is_as_good_as_none() {
    apart place empty_variable
}
empty_variable() {
    at_home
    export VOW_STORE=
    expect_place "$PLACE"
}

# ---- no home ----------------------------------------------------------------

test_without_a_home_the_place_is_in_var_tmp() {
    apart place var_tmp
}
var_tmp() {
    at_home
    for home in "$T/nowhere" / relative ''; do
        [ "$home" != / ] || [ "$(id -u)" -ne 0 ] || continue
        echo "me:x:$(id -u):$(id -g)::$home:/bin/sh" >"$T/passwd"
        expect_place "/var/tmp/vow-$(id -u)"
    done
    : >"$T/passwd" # no entry at all
    expect_place "/var/tmp/vow-$(id -u)"
    expect test "$(ls "$T/var")" = "vow-$(id -u)"
}

test_a_home_of_somebody_else_is_not_used() {
    [ "$(id -u)" -eq 0 ] || return 0
    apart place foreign_home
}
foreign_home() {
    at_home
    chown 12345 "$T/home"
    expect_place "/var/tmp/vow-0"
    expect_empty "$T/home"
}

test_a_home_that_cannot_be_written_to_is_not_used() {
    apart place fixed_home
}
fixed_home() {
    at_home
    mount --bind "$T/home" "$T/home"
    mount -o remount,bind,ro "$T/home"
    expect_place "/var/tmp/vow-$(id -u)"
}

test_a_linked_folder_at_home_is_not_used() {
    apart place linked_home
}
linked_home() {
    at_home
    mkdir -p "$T/home/.local/state" "$T/elsewhere"
    ln -s "$T/elsewhere" "$PLACE"
    expect_place "/var/tmp/vow-$(id -u)"
    expect_empty "$T/elsewhere"
}

# Anybody can make a folder in /var/tmp, and remove it again.
test_folders_of_others_in_var_tmp_are_passed_over() {
    [ "$(id -u)" -eq 0 ] || return 0
    apart place foreign_folders
}
foreign_folders() {
    at_home
    : >"$T/passwd"
    mkdir "$T/var/vow-0" "$T/elsewhere"
    chown 12345 "$T/var/vow-0"
    ln -s "$T/elsewhere" "$T/var/vow-0-1"
    chown -h 12345 "$T/var/vow-0-1"
    expect_place /var/tmp/vow-0-2
    rmdir "$T/var/vow-0"
    rm "$T/var/vow-0-1"
    expect_place /var/tmp/vow-0-2
    expect test "$(ls "$T/var")" = vow-0-2
    rm -r "$T/var/vow-0-2"
    for i in '' -1 -2 -3 -4 -5 -6 -7 -8 -9; do
        mkdir "$T/var/vow-0$i"
        chown 12345 "$T/var/vow-0$i"
    done
    refused share x -- touch ran
    expect_err_has /var/tmp
    expect_err_has --store
}

# ---- leftovers --------------------------------------------------------------

# The places of older versions, where their processes may still hold a lock.
test_a_store_in_an_old_place_is_told_of() {
    apart place old_places
}
old_places() {
    at_home
    mkdir -m 700 "$T/runtime"
    export XDG_RUNTIME_DIR="$T/runtime"
    for old in "$T/runtime/vow" "$TMPDIR/vow-$(id -u)"; do
        rm -f go runs
        call a lock --store "file:$old" b -- sh -c "$JOB"
        wait_for runs_are 1
        vow lock c -- echo locked
        expect_code 0
        expect_out locked
        expect_lines 1 "$ERR"
        expect_err_has "uses the store in $old"
        expect_err_has "$(cat "$T/a.pid")"
        vow doctor
        expect_code 1
        expect grep -q "^BAD  *leftover .*$old, used by process" "$OUT"
        touch go
        settle a
        vow lock c -- true
        expect_err
        vow doctor
        expect_code 0
        expect grep -q "^note  *leftover .*$old, not in use" "$OUT"
        rm -r "$old"
        vow doctor
        expect_not grep -q leftover "$OUT"
    done
}

# ---- a reboot ---------------------------------------------------------------

# sql STATEMENT: on the file of the store, past vow.
sql() {
    python3 -c 'import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute(sys.argv[2])
db.commit()' "$PLACE/vow.db" "$1"
}

# The folder is still there, and all processes are gone.
test_after_a_reboot_nothing_blocks_and_once_is_in_doubt() {
    apart place reboot
}
reboot() {
    at_home
    call a lock --lease 1h b -- sh -c 'touch l; exec sleep 60'
    call c share --lease 1h x -- sh -c 'touch s; exec sleep 60'
    call d share --once --lease 1h pay -- sh -c 'touch o; exec sleep 60'
    wait_for test -e l -a -e s -a -e o
    for caller in a c d; do
        send KILL "$caller"
    done
    settle a c d
    sql "UPDATE meta SET boot='another'"
    vow lock -n b -- echo locked
    expect_out locked
    vow share -n x -- echo shared
    expect_out shared
    vow share --once pay -- touch ran
    expect_code 125
    expect_err_has doubt
    expect_not test -e ran
}
