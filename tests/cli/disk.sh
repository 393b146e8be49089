# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# disk.sh - folders on disks that are full, or cannot be written to. These tests
# mount file systems, in a namespace of their own.

# shellcheck source=/dev/null
. "$0/store.sh"

# small_disk SIZE: the store is on a disk of this size.
small_disk() {
    mkdir "$T/disk"
    mount -t tmpfs -o "size=$1,mode=700" none "$T/disk"
    export VOW_STORE="file:$T/disk/store"
}

# ---- no room ----------------------------------------------------------------

# long_result WORD...: share a command that writes more than the disk holds.
long_result() {
    vow share --ttl 1h "$@" -- sh -c 'head -c 3000000 /dev/zero; echo >>ran'
    expect test "$(wc -c <"$OUT")" -eq 3000000
    expect_lines 1 "$ERR"
    expect_err_has 'no space left'
}

test_a_result_without_room_is_told_and_nobody_waits() {
    apart disk no_room
}
no_room() {
    small_disk 2m
    vow share --ttl 1h first -- true
    began=$(now_ms)
    for policy in run fail; do
        long_result --if-store-down "$policy" x
        expect_code 0
    done
    # Neither our own caller nor the next one waits for a lease of a minute.
    long_result --lease 1m x
    long_result --lease 1m x
    expect_lines 4 ran
    expect test "$(now_ms)" -lt "$((began + 50000))"
    vow share --peek x
    expect_code 66
    vow status
    expect_not grep -q '^x ' "$OUT"
}

test_what_must_not_run_twice_says_that_the_disk_is_full() {
    apart disk no_room_once
}
no_room_once() {
    small_disk 2m
    vow share --ttl 1h first -- true
    long_result --once x
    expect_code 125
    expect_err_has 'was not published'
    vow share --once x -- touch again
    expect_code 125
    expect_err_has doubt
    expect_not test -e again
}

# ---- to be read only --------------------------------------------------------

test_a_store_that_cannot_be_written_to_can_be_read() {
    apart disk read_only
}
make_read_only() {
    mount -o remount,ro "$T/disk" 2>/dev/null
}
read_only() {
    small_disk 20m
    vow share --ttl 1h x -- echo result
    vow share --ttl 1h long -- sh -c 'head -c 100000 /dev/zero'
    vow limit pool -j 3
    call a lock b -- sh -c 'echo >begun; exec sleep 60'
    call c share --once pay -- sh -c 'echo >begun2; exec sleep 60'
    wait_for test -e begun -a -e begun2
    send KILL a
    send KILL c
    settle a c
    wait_for make_read_only # the guardians of both may still have files open
    vow share --peek x
    expect_code 0
    expect_out result
    expect_err
    vow result x
    expect_out result
    vow result long
    expect test "$(wc -c <"$OUT")" -eq 100000
    vow share --peek nothing
    expect_code 66
    vow status
    expect_code 0
    expect_err
    expect_out_has done
    expect_out_has doubt
    expect_out_has pool
    vow status x
    expect_code 0
    vow share x -- echo not run
    expect_out result
    vow lock y -- touch ran
    expect_code 125
    expect_lines 1 "$ERR"
    expect_not test -e ran
    mount -o remount,rw "$T/disk"
    vow share --ttl 1h x -- echo not run
    expect_out result
    vow lock b -- echo locked
    expect_out locked
}
