# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# reboot.sh - a folder after a reboot: another boot id, and a clock that began
# anew. What must not happen twice is still known; results may be gone.

# shellcheck source=/dev/null
. "$0/store.sh"

# rebooted SECONDS FUNCTION: run a function of this file as after a reboot, with a
# clock that is off by so much. Only in apart().
rebooted() {
    cat /proc/sys/kernel/random/uuid >"$T/boot"
    mount --bind "$T/boot" /proc/sys/kernel/random/boot_id
    unshare -T --boottime "$1" -f sh -eu -c '
        . "$0/lib.sh"
        . "$0/reboot.sh"
        cd "$T/work"
        "$1"' "$0" "$2" || exit 1
}

# clocks_may_differ: there are namespaces of time.
clocks_may_differ() {
    unshare -T --boottime 1 -f true 2>"$T/found"
}

before() {
    vow share --once --ttl 30d paid -- echo receipt
    expect_out receipt
    vow share --once --ttl 30d long -- sh -c 'seq 30000'
    expect_code 0
    vow share --once --fail-ttl 30d refused -- sh -c 'echo no; exit 3'
    expect_code 3
    for what in share lock; do
        call "$what" "$what" --once pay -- sh -c 'echo >>begun; exec sleep 60'
    done
    wait_for has_lines 2 begun
    send KILL share
    send KILL lock
    settle share lock
    vow limit p -j 7 --rate 3/m
    vow run --pool p -- true
    expect_code 0
    fence=$(told pay fence)
    echo "$fence" >fences
}

after() {
    vow share --once --ttl 30d paid -- touch ran
    expect_code 0
    expect_out receipt
    vow share --once --ttl 30d long -- touch ran
    expect_code 0
    seq 30000 >all
    expect cmp all "$OUT"
    vow share --once --fail-ttl 30d refused -- touch ran
    expect_code 3
    expect_out no
    for what in share lock; do
        vow "$what" --once pay -- touch ran
        expect_code 125
        expect_err_has 'in doubt'
    done
    expect_not test -e ran
    vow limit p
    expect_out_has 'p  running 0/7  rate 1/3 per 1m  queue 0'
    vow share x -- sh -c 'echo "$VOW_FENCE" >>fences'
    expect_lines 2 fences
    expect sort -nuc fences
    expect_not test -e "$T/store/lost"
    # What is told of a doubt holds from then on, too.
    vow resolve pay --retry
    expect_code 0
    vow share --once pay -- echo again
    expect_out again
}

test_after_a_reboot_nothing_is_done_twice() {
    clocks_may_differ || return 0
    apart reboot with_a_later_clock
}
with_a_later_clock() {
    before
    rebooted 100000 after
}

# The clock counts from the boot: it is the folder that comes from a later time.
test_a_reboot_sets_the_clock_back() {
    clocks_may_differ || return 0
    apart reboot with_an_earlier_clock
}
with_an_earlier_clock() {
    unshare -T --boottime 1000000 -f sh -eu -c '
        . "$0/lib.sh"
        . "$0/reboot.sh"
        cd "$T/work"
        before' "$0" || exit 1
    rebooted 0 after
}
