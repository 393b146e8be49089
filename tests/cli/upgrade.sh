# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# upgrade.sh - a server that an earlier vow has used, or a later one. How a folder
# is upgraded, is tested by sqlite_upgrade_test.c.

# shellcheck source=/dev/null
. "$0/redis.sh"

# Names of keys: that of the pool p, of the work x, and the highest fence.
POOL_P='vow:s:{PbFSnDtibwEPFWZYNU5PT8leuIj0MbGirgi-BTQD_4I}'
NAME_X='xF_AUFU4hU_dJ8gK65fNLZvnpiCdkomSUyfcLEYKnQ4'
WORK_X="vow:p:{$NAME_X}"
HIGHEST='vow:p:{-------------------------------------------}:e'

# now_us [SECONDS]: the clock of the server, and so much later.
now_us() {
    redis TIME | perl -e 'my ($s, $us) = <STDIN>;
        printf "%d\n", ($s + $ARGV[0]) * 1000000 + $us' "${1-0}"
}

# old_run_x: an earlier version runs x.
old_run_x() {
    redis HSET "$WORK_X" s R m 0 e "$(now_us)" a 0 t "$(now_us)" u "$(now_us)" \
        d "$(now_us 3600)" c 0 l x r host:1 o 0123456789abcdef L 3600000 \
        i vow:i:0123456789abcdef0123456789abcdef >"$T/said"
    redis SET "$HIGHEST" "$(now_us)" PX 86400000 >"$T/said"
}

# old_result_x: the record of x as an earlier version writes a result.
old_result_x() {
    redis HDEL "$WORK_X" f >"$T/said"
    redis HSET "$WORK_X" u "$(now_us)" "$@" >"$T/said"
}

# old_pool_p: limits that `vow limit p -j 7 --rate 3/m` has set.
old_pool_p() {
    redis HSET "$POOL_P" c 7 r 3 w 60000000 x 1 h 0 l p n 0 e 0 f 0 \
        t "$(now_us)" y 0 o 0 k "$(now_us 86460)" >"$T/said"
}

test_limits_of_an_earlier_version_stay() {
    server || return 0
    old_pool_p
    for _ in 1 2; do
        vow limit p
        expect_code 0
        expect_out 'p  running 0/7  rate 0/3 per 1m  queue 0'
        vow run --pool p -- true
        expect_code 0
        redis DEL "$POOL_P:g" >"$T/said"
    done
    vow limit p -j 5
    vow limit p
    expect_out_has 'running 0/5'
}

test_fences_go_on_above_those_of_an_earlier_version() {
    server || return 0
    redis SET "$HIGHEST" "$(now_us 3600)" PX 86400000 >"$T/said"
    highest=$(redis GET "$HIGHEST")
    vow share x -- sh -c 'echo "$VOW_FENCE"'
    expect_code 0
    expect test "$(cat "$OUT")" -gt "$highest"
}

test_a_server_that_a_later_version_has_changed_is_refused() {
    server || return 0
    redis SET vow:version 2 >"$T/said"
    vow share --if-store-down fail -n x -- touch ran
    expect_code 125
    expect_not test -e ran
    expect_err_has 'a later version of vow has changed the keys'
    expect_err_has 'update vow, or use another prefix'
    redis SET vow:version 1 >"$T/said"
    vow share --if-store-down fail -n x -- touch ran
    expect_code 0
    expect test -e ran
}

# Together, or not at all: never a second run beside that of an earlier version.
test_work_that_an_earlier_version_runs_is_not_begun_beside_it() {
    server || return 0
    old_run_x
    vow share --if-store-down fail -n x -- touch ran
    expect_code 75 125
    expect_not test -e ran
    [ "$(cat "$STATUS")" = 'exit 75' ] || expect_sentence
}

test_a_kept_result_of_an_earlier_version_is_found() {
    server || return 0
    vow share --ttl 1h x -- echo kept
    old_result_x
    vow share --ttl 1h x -- touch ran
    expect_code 0
    expect_out 'kept'
    expect_not test -e ran
    vow status x
    expect_out_has 'done'
}

# The earlier version kept the value of a result without a TTL in the record.
test_a_result_without_a_ttl_of_an_earlier_version_leaves_the_name_free() {
    server || return 0
    vow share --ttl 1h x -- echo spent
    old_result_x h 2
    redis HSET "$WORK_X:w" vow:i:0123456789abcdef0123456789abcdef x \
        >"$T/said"
    epoch=$(redis HGET "$WORK_X" e)
    vow status x
    expect_code 66
    vow share x -- sh -c 'echo "$VOW_FENCE"'
    expect_code 0
    expect test "$(cat "$OUT")" -gt "$epoch"
}

test_a_waiter_gets_the_result_of_a_run_of_an_earlier_version() {
    server || return 0
    vow share --ttl 1h other -- echo made
    other=$(redis --scan --pattern 'vow:p:*' | grep -v ':e$')
    old_run_x
    start share --if-store-down fail x -- touch ran
    wait_for waits_for_x
    redis EVAL "
        redis.call('HSET', KEYS[1], 's', 'D', 'v',
            redis.call('HGET', KEYS[2], 'v'))
        for _, channel in ipairs(redis.call('HKEYS', KEYS[3])) do
            redis.call('PUBLISH', channel, 'A' .. ARGV[1])
        end
        redis.call('DEL', KEYS[3])
        " 3 "$WORK_X" "$other" "$WORK_X:w" "$NAME_X" >"$T/said"
    finish
    expect_code 0
    expect_out 'made'
    expect_not test -e ran
}

waits_for_x() {
    [ "$(redis HLEN "$WORK_X:w")" -eq 1 ]
}

# A later version may begin while this one is connected.
test_a_later_version_is_noticed_with_the_next_connection() {
    server || return 0
    start lock --lease 3s x -- sh -c 'touch began; exec sleep 60'
    wait_for test -e began
    redis SET vow:version 2 >"$T/said"
    redis CLIENT KILL TYPE pubsub >"$T/said"
    finish
    expect_code 121
    expect_err_has 'is lost'
    vow lock -n x -- touch ran
    expect_code 125
    expect_err_has 'a later version of vow has changed the keys'
    expect_not test -e ran
}
