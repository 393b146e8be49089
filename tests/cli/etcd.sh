# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# etcd.sh - all that meets in a folder, over members of etcd.
#
# Most tests share one member, each with a prefix of its own; those who break
# some have others, on free ports. What the command does with any store is
# tested by the others, and some of those run here once more, some at once.
# etcd_once.sh has what may happen only once, etcd_results.sh long results,
# etcd_down.sh members that are away, etcd_secure.sh users and TLS: all of them
# read this file before they begin.

# shellcheck source=/dev/null
. "$0/redis.sh"

# ---- members ----------------------------------------------------------------

TLS_PORT=''

# free_ports N: so many, in one line.
free_ports() {
    perl -MIO::Socket::INET -e 'print join(" ", map { $_->sockport } map {
        IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1")
        } 1 .. $ARGV[0]), "\n"' "$1"
}

# built: vow was built with this store, and there are members to be had.
built() {
    command -v etcd >"$T/found" || return 1
    "$VOW" status --store 'etcd://127.0.0.1:1' >"$T/found" 2>&1 || true
    ! grep -q 'no store on etcd' "$T/found"
}

# member: one for all tests, as a store, with the prefix $PREFIX. The first who
# wants it has it started. False: there is none.
member() {
    built || return 1
    all=${T%/*}/etcd
    if mkdir "$all" 2>/dev/null; then
        T=$all VOW_TEST_ID=${VOW_TEST_ID%%.*}.etcd. setsid sh -eu -c '
            . "$0/lib.sh"; . "$0/etcd.sh"; keep_member' "$0" >"$all/said" 2>&1 &
    fi
    wait_for test -s "$all/port"
    PORT1=$(cat "$all/port") PREFIX=$VOW_TEST_ID/
    STORE="etcd://127.0.0.1:$PORT1?timeout=$((10000 * VOW_TEST_SLOW))"
    export VOW_STORE="$STORE&prefix=$PREFIX"
}

# As long as the tests run, whose process is in the mark.
keep_member() {
    cluster 1
    echo "$PORT1" >"$T/port.new"
    mv "$T/port.new" "$T/port"
    while kill -0 "${VOW_TEST_ID%%-*}" 2>/dev/null; do
        sleep 0.5
    done
}

# cluster N [ARGUMENT...]: so many members, as a store. False: there are none.
cluster() {
    built || return 1
    SIZE=$1
    shift
    for _ in 1 2 3; do # a port may be another's by now
        choose_ports
        # shellcheck disable=SC2046 # numbers
        ! begin_members $(seq "$SIZE") -- "$@" || return 0
        for i in $(seq "$SIZE"); do
            end_member "$i"
        done
        rm -rf "$T"/etcd.[0-9]
    done
    fail "etcd does not start: $(tail -n 3 "$T/etcd.log")"
}

# $PORT1 and so on are for clients, $CLUSTER is who belongs to it.
choose_ports() {
    CLUSTER='' MEMBERS=''
    # shellcheck disable=SC2046 # numbers
    set -- $(free_ports $((2 * SIZE)))
    for i in $(seq "$SIZE"); do
        eval "PORT$i=$1 PEER$i=$2"
        CLUSTER="$CLUSTER${CLUSTER:+,}m$i=http://127.0.0.1:$2"
        MEMBERS="$MEMBERS${MEMBERS:+,}127.0.0.1:$1"
        shift 2
    done
    # A machine that is busy is no reason to give up.
    export VOW_STORE="etcd://$MEMBERS?timeout=$((10000 * VOW_TEST_SLOW))"
}

# begin_members I... [-- ARGUMENT...]: all answer then. False: one has ended.
begin_members() {
    which=''
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        which="$which $1"
        shift
    done
    [ $# -eq 0 ] || shift
    for i in $which; do
        begin_member "$i" "$@"
    done
    for i in $which; do
        port='' member=''
        eval "port=\$PORT$i member=\$MEMBER$i"
        wait_for answers_or_ended "$port" "$member"
        ! ended "$member" 2>/dev/null || return 1
    done
}

# The process of each is in $MEMBER1 and so on. Leases of one last for a second
# at least. Three elect another leader only after a second, so that a busy machine
# keeps them from it less often. With $TLS_PORT they speak TLS there.
begin_member() {
    n=$1
    shift
    port='' peer=''
    eval "port=\$PORT$n peer=http://127.0.0.1:\$PEER$n"
    urls="http://127.0.0.1:$port${TLS_PORT:+,https://127.0.0.1:$TLS_PORT}"
    beat=$([ "$SIZE" -eq 1 ] && echo 20 || echo 100)
    with_us etcd --name "m$n" --data-dir "$T/etcd.$n" \
        --listen-client-urls "$urls" --advertise-client-urls "$urls" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
        --initial-cluster "$CLUSTER" --heartbeat-interval "$beat" \
        --election-timeout $((10 * beat)) --unsafe-no-fsync --bcrypt-cost 4 \
        "$@" >>"$T/etcd.log" 2>&1 </dev/null &
    eval "MEMBER$n=$!"
}

answers_or_ended() {
    ask "$1" kv/deleterange '{"key":"AA=="}' | grep -qE 'header|user name' ||
        ended "$2"
}

# signal_member SIGNAL I...
signal_member() {
    signal=$1
    shift
    for i; do
        eval "kill -$signal \$MEMBER$i"
    done
}

end_member() {
    signal_member KILL "$1" 2>/dev/null || true
    eval "wait \$MEMBER$1" 2>/dev/null || true
}

# ask PORT PATH BODY: a plain request, and its answer.
ask() {
    perl -MIO::Socket::INET -e '
        my ($port, $path, $body) = @ARGV;
        alarm 30;
        my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port") or exit 1;
        printf $s "POST /v3/%s HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s", $path,
            length $body, $body;
        print while <$s>' "$@" 2>/dev/null
}

# The number of the leader, once all agree.
leader() {
    for _ in $(seq $((1200 * VOW_TEST_SLOW))); do
        for i in $(seq "$SIZE"); do
            eval "port=\$PORT$i"
            said=$(ask "$port" maintenance/status '{}') || continue
            id=$(echo "$said" | sed -n 's/.*"member_id":"\([0-9]*\)".*/\1/p')
            if echo "$said" | grep -q "\"leader\":\"$id\""; then
                echo "$i"
                return
            fi
        done
        sleep 0.05
    done
    fail 'there is no leader'
}

# alike FILE.TEST...: these of other files, with our member, all at once, each
# with a folder and a prefix of its own.
alike() {
    of_them=''
    for test; do
        (alike_one "${test%.*}" "test_${test#*.}") &
        of_them="$of_them $test:$!"
    done
    for test in $of_them; do
        wait "${test#*:}" || fail "${test%:*} is not as elsewhere"
    done
}

alike_one() {
    T=$T/$2 VOW_TEST_ID=$VOW_TEST_ID$2.
    export T VOW_TEST_ID
    mkdir -p "$T/work" "$T/tmp"
    cd "$T/work" || return
    # shellcheck source=/dev/null
    . "$0/lib.sh"
    # shellcheck source=/dev/null
    . "$0/$1.sh"
    export VOW_STORE="$STORE&prefix=$PREFIX$2/"
    "$2" >"$T/said" 2>&1 & # or set -e would not count in it
    wait $! || {
        sed "s/^/$2: /" "$T/said"
        exit 1
    }
}

# doubt WORD...: `vow WORD... -- sleep` was killed in the middle.
doubt() {
    call a "$@" --lease "$LEASE" -- sh -c 'echo "$VOW_FENCE" >begun; exec sleep 60'
    wait_for test -s begun
    send KILL a 2>/dev/null || true # if it stood still, it has ended
    wait_for sh -c '"$VOW" status | grep -q " doubt "'
}

# expect_mark MARK WHAT [TEXT]: its line has this mark, and this text.
expect_mark() {
    grep -qE "^$1 +$2 .*${3-}" "$OUT" || fail "expected $1 for $2: ${3-}"
}

# ---- sharing ----------------------------------------------------------------

test_one_of_many_runs_it_for_all() {
    member || return 0
    for who in a b c d e f; do
        call "$who" share x -- sh -c "$JOB"
    done
    wait_for told_is x waiters 5
    wait_for runs_are 1
    touch go
    all_got "by $(cat runs)" a b c d e f
    expect runs_are 1
}

test_bytes_codes_and_signals_are_replayed() {
    member || return 0
    for _ in 1 2; do
        vow share --fail-ttl 1h x -- sh -c 'echo >>runs
            printf "a\\0b\\r\\n\\377"; printf "bad\\0" >&2; exit 7'
        expect_code 7
        expect_bytes 'a\0000b\r\n\0377'
        printf 'bad\0' | cmp - "$ERR" || fail 'stderr is another'
    done
    expect runs_are 1
    for end in 'exit 0:0' 'exit 255:255' 'kill -TERM $$:143' \
        'kill -KILL $$:137'; do
        rm -f runs
        for _ in 1 2; do
            vow share --ttl 1h --fail-ttl 1h "${end%:*}" -- \
                sh -c "echo >>runs; ${end%:*}"
            note "$end"
            expect_code "${end#*:}"
            expect_out
            expect_err
        done
        expect runs_are 1
    done
}

# None, above the size that comes with the wake-up, and all that etcd takes.
test_results_up_to_64_KiB_reach_all() {
    member || return 0
    for size in 0 17000 65000; do
        rm -f go runs
        call a share --ttl 1h "x$size" -- sh -c "echo >>runs
            until [ -e go ]; do sleep 0.02; done
            head -c $size /dev/urandom"
        wait_for runs_are 1
        call b share "x$size" -- sh -c "echo >>runs"
        wait_for told_is "x$size" waiters 1
        touch go
        settle a b
        vow share --ttl 1h "x$size" -- sh -c 'echo >>runs'
        expect runs_are 1
        for who in a b; do
            expect cmp "$T/$who.out" "$OUT"
            expect_file "$T/$who.err"
        done
        expect test "$(wc -c <"$OUT")" -eq "$size"
    done
}

test_who_follows_sees_it_as_it_comes() {
    member || return 0
    alike share.waiters_may_see_the_output_as_it_comes \
        share.who_follows_one_that_is_not_followed_gets_it_all_the_same \
        share.who_follows_gets_the_exit_code
}

test_results_and_failures_are_kept_as_told() {
    member || return 0
    vow share --ttl 1h x -- echo 1
    vow share --ttl 1h x -- echo 2
    expect_out 1
    # A failure is not kept unless that was told.
    vow share --ttl 1h y -- sh -c 'echo 1; exit 4'
    vow share --fail-ttl 1h y -- sh -c 'echo 2; exit 5'
    expect_out 2
    vow share y -- echo 3
    expect_code 5
    expect_out 2
    vow share --ttl 1s z -- echo 1
    wait_for sh -c '"$VOW" share --ttl 1h z -- echo 2 | grep -qx 2'
    vow share z -- echo 3
    expect_out 2
}

test_a_result_is_gone_after_its_time() {
    member || return 0
    vow share --ttl 1s x -- echo 1
    wait_for result_is_gone
    vow share x -- echo 2
    expect_out 2
}

result_is_gone() {
    vow result x
    [ "$(cat "$STATUS")" = 'exit 66' ]
}

# Every run but the first waits for the file go.
AGAIN='echo >>runs; n=$(wc -l <runs)
[ $n = 1 ] || until [ -e go ]; do sleep 0.02; done; echo $((n))'

test_an_old_result_is_refreshed_once() {
    member || return 0
    vow share --ttl 1h --stale 200ms x -- sh -c "$AGAIN"
    expect_out 1
    wait_for refresh_began
    for who in a b c; do
        call "$who" share --ttl 1h --stale 200ms x -- sh -c "$AGAIN"
    done
    all_got 1 a b c
    expect runs_are 2
    touch go
    wait_for result_is_new
    expect runs_are 2
}

refresh_began() {
    vow share --ttl 1h --stale 200ms x -- sh -c "$AGAIN"
    expect_out 1
    ! runs_are 1
}

result_is_new() {
    vow share --ttl 1h --stale 1h x -- sh -c "$AGAIN"
    [ "$(cat "$OUT")" = 2 ]
}

test_pipelines_with_a_common_beginning_run_it_once() {
    member || return 0
    for last in 'tr a-z A-Z' 'wc -c'; do
        vow pipe --ttl 1h -s first='echo hello; echo >>runs' -s "last=$last"
        expect_code 0
        expect_err
    done
    expect_out 6
    expect runs_are 1
}

test_what_is_shared_is_as_in_a_folder() {
    member || return 0
    alike share.a_command_has_no_descriptors_of_vow \
        share.role_tells_who_ran_and_who_joined share.waiters_get_the_signal \
        share_keep.option_w_waits_so_long share_keep.force_replaces_the_result \
        share_keep.force_never_makes_two_run_at_once \
        share_keep.a_refresh_does_not_begin_beside_a_run \
        share_keep.a_run_does_not_begin_beside_a_refresh_of_an_expired_result
}

test_what_is_there_is_told_and_managed() {
    member || return 0
    call a share --ttl 1h x -- sh -c "$JOB"
    wait_for told_is x state running
    expect told_is x mode shared
    vow status
    expect_out_has 'x '
    vow status --json
    expect_json "$OUT"
    vow forget x
    expect_code 75
    vow cancel x
    expect_code 0
    settle a
    of a
    expect_failure
    of other
    vow share --ttl 1h x -- echo kept
    vow result x
    expect_code 0
    expect_out kept
    expect_err
    vow forget x
    expect_code 0
    vow result x
    expect_code 66
    vow status x
    expect_code 66
    expect_err
}

# A new leader lets the lease of a result begin once more. Here it hangs on none.
test_a_result_is_no_older_than_its_ttl_whatever_its_lease() {
    command -v etcdctl >"$T/found" || return 0
    member || return 0
    vow share --ttl 3s x -- echo one
    expect_out one
    record=$(etcdctl_of get --prefix --keys-only "${PREFIX}n/" | grep '/r$')
    etcdctl_of get --print-value-only "$record" >"$T/record"
    expect grep -q '^ttl 3000' "$T/record"
    etcdctl_of put "$record" <"$T/record" >"$T/found"
    wait_for gone x
    vow status --json
    expect_code 0
    expect_not grep -q '"x"' "$OUT"
    vow share --ttl 1h x -- echo two
    expect_out two
    vow share --ttl 1h x -- echo three
    expect_out two
    expect_err
}

etcdctl_of() {
    ETCDCTL_API=3 etcdctl --endpoints "127.0.0.1:$PORT1" "$@"
}

gone() {
    code=0
    "$VOW" result "$1" >"$T/found" 2>&1 || code=$?
    [ "$code" -eq 66 ]
}

# A lease that nothing hangs on ends with its process, not an hour or a day
# later; those of results and rates stay.
test_a_call_leaves_no_lease_that_nothing_hangs_on() {
    command -v etcdctl >"$T/found" || return 0
    cluster 1 || return 0
    for words in 'share --ttl 1h x -- true' 'share --ttl 1h x -- true' \
        'share y -- true' 'share --once z -- true' 'lock x -- true' \
        'run --pool p -j1 -- true' 'run --pool r --rate 5/m -- true'; do
        note "$words"
        # shellcheck disable=SC2086 # a list of words
        vow ${words%% *} --lease 1h ${words#* }
        expect_code 0
        expect_err
        etcdctl_of lease list | grep '^[0-9a-f]*$' >"$T/leases" || true
        while read -r lease; do
            etcdctl_of lease timetolive "$lease" --keys >"$T/lease"
            expect_not grep -qF 'keys([])' "$T/lease"
        done <"$T/leases"
    done
}

# ---- locks and pools --------------------------------------------------------

test_a_lock_is_had_by_one_at_a_time() {
    member || return 0
    for who in a b c d; do
        call "$who" lock x -- sh -c 'echo "$VOW_FENCE" >>fences
            echo +1 >>log; sleep 0.1; echo -1 >>log'
    done
    settle a b c d
    for who in a b c d; do
        of "$who"
        expect_code 0
        expect_err
    done
    expect test "$(peak log)" -eq 1
    expect_lines 4 fences
    expect sort -nuc fences
    for i in 1 2 3 4 5; do
        vow lock -n x -- echo "$i"
        expect_code 0
        expect_out "$i"
    done
}

test_locks_are_shared_and_have_slots_as_in_a_folder() {
    member || return 0
    alike lock.many_may_share_a_lock lock.a_shared_lock_keeps_others_out \
        lock.who_wants_it_alone_is_not_passed_by lock.a_lock_may_have_slots \
        lock.who_comes_first_is_served_first lock.option_w_waits_so_long \
        lock.a_holder_that_is_told_to_end_frees_the_lock
}

test_pools_are_as_in_a_folder() {
    member || return 0
    alike pool.a_pool_bounds_the_jobs_of_many pool.map_and_run_share_a_pool \
        pool.the_limit_that_is_there_holds pool.weights_count_in_the_pool \
        pool.each_key_has_its_own_places pool.who_comes_first_is_served_first \
        pool.a_signal_ends_the_wait_for_a_place
}

test_a_limit_is_shared_and_changed() {
    member || return 0
    call a run --pool p -j1 -- sh -c "$JOB"
    wait_for runs_are 1
    call b run --pool p -j1 -- sh -c "$JOB"
    wait_for told_is p queue 1
    vow limit p
    expect_out 'p  running 1/1  queue 1'
    vow limit p -j 2
    expect_code 0
    wait_for runs_are 2
    touch go
    settle a b
    vow limit p --rate 5/s --json
    expect_json "$OUT"
    expect told_is p rate 5
}

test_jobs_of_many_keep_one_limit_and_one_rate() {
    member || return 0
    before=$(now_ms)
    for who in a b c; do
        call "$who" map --pool p -j3 --rate 6/400ms 'date +%s%N >>starts
            echo +1 >>log; sleep 0.05; echo -1 >>log; : {}' ::: 1 2 3 4 5 6
    done
    settle a b c
    for who in a b c; do
        of "$who"
        expect_code 0
        expect_err
    done
    expect_lines 18 starts
    expect test "$(peak log)" -le 3
    never_early starts "$before" 6 400
}

# ---- who dies ---------------------------------------------------------------

test_a_killed_runner_is_replaced_within_its_lease() {
    member || return 0
    call_role a --fenced --lease "$LEASE" x -- sh -c "$JOB"
    wait_for runs_are 1
    call_role b --fenced --lease "$LEASE" x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    first=$(told x fence)
    before=$(now_ms)
    send KILL a
    wait_for runs_are 2
    took=$(($(now_ms) - before))
    note "taken over after $took ms"
    expect test "$took" -le "$TAKEN_OVER_MS"
    touch go
    all_got 'by b' b
    expect_file runs a b
    expect grep -q '"role":"takeover"' "$T/b.role"
    second=$(sed 's/.*"fence":\([0-9]*\).*/\1/' "$T/b.role")
    note "fences $first and $second"
    expect test "$second" -gt "$first"
}

test_a_killed_holder_of_a_lock_is_replaced_within_its_lease() {
    member || return 0
    call a lock --lease "$LEASE" x -- sh -c "$JOB"
    wait_for runs_are 1
    call b lock --lease "$LEASE" x -- sh -c "$JOB"
    wait_for told_is x queue 1
    before=$(now_ms)
    send KILL a
    wait_for runs_are 2
    expect test $(($(now_ms) - before)) -le "$TAKEN_OVER_MS"
    touch go
    all_got 'by b' b
}

test_kills_are_as_in_a_folder() {
    member || return 0
    alike share_fail.a_killed_waiter_does_no_harm \
        share_fail.a_stopped_runner_publishes_nothing \
        share_fail.a_runner_that_is_told_to_end_is_replaced \
        lock.a_stopped_holder_loses_the_lock \
        pool.a_stopped_holder_loses_its_place
}

# Each holder is killed, and the member is, and begins again.
test_fences_of_a_lock_grow_over_kills_and_restarts() {
    cluster 1 || return 0
    for round in 1 2; do
        note "round $round"
        vow lock x -- sh -c 'echo "$VOW_FENCE" >>fences'
        expect_code 0
        call a lock --lease "$LEASE" x -- sh -c 'echo "$VOW_FENCE" >>fences
            exec sleep 60'
        wait_for has_lines $((2 * round)) fences
        send KILL a
        settle a
        end_member 1
        begin_members 1
    done
    vow lock x -- sh -c 'echo "$VOW_FENCE" >>fences'
    expect_lines 5 fences
    expect sort -nuc fences
    vow lock y --once -- sh -c 'echo "$VOW_FENCE" >>fences'
    vow share z -- sh -c 'echo "$VOW_FENCE" >>fences'
    expect_lines 7 fences
    expect sort -nuc fences
}

# ---- what is left -----------------------------------------------------------

# keys PREFIX: what is there behind it, one in a line, with "kept" behind those
# that have no lease.
keys() {
    ask "$PORT1" kv/range '{"key":"AA==","range_end":"AA=="}' |
        perl -MMIME::Base64 -sne 'for (split /\{(?="key")/) {
            next unless /^"key":"([^"]*)"/;
            my $key = decode_base64($1);
            next unless $key =~ s/^\Q$prefix\E//;
            print $key, /"lease":/ ? "\n" : " kept\n" }' -- "-prefix=$1"
}

test_all_that_is_kept_has_an_end() {
    member || return 0
    vow share --ttl 1h x -- echo 1
    vow share --fail-ttl 1h y -- false
    vow share --once --ttl 1h z -- echo 1
    vow share gone -- echo 1
    vow lock x -- true
    vow lock --once x -- true
    vow map --pool p -j2 --rate 9/s true ::: 1 2
    vow pipe --ttl 1h -s a='echo a' -s b=cat
    keys "$PREFIX" >"$T/keys"
    expect grep -q '^n/.*/r$' "$T/keys"
    # Limits stay, and nothing else.
    sed -n 's/ kept$//p' "$T/keys" | grep -vE '^(e|s/[^/]*/l)$' \
        >"$T/kept" || true
    expect_file "$T/kept"
}

test_prefixes_are_apart() {
    cluster 1 || return 0
    vow share --ttl 1h x -- echo 1
    vow share --store "$VOW_STORE&prefix=b/" --ttl 1h x -- echo 2
    expect_out 2
    vow forget --store "$VOW_STORE&prefix=b/" x
    vow result x
    expect_out 1
    keys '' >"$T/keys"
    expect_not grep -qv -e '^vow/' -e '^b/' "$T/keys"
}
