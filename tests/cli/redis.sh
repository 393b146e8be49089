# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# redis.sh - all that meets in a folder, over a server of Redis.
#
# Every test has a server of its own, in its folder, on a socket there. What
# the command does with any store is tested by the others; here is what a server
# adds. redis_down.sh has servers that are away, redis_secure.sh passwords and
# TLS: both read this file before they begin.

# shellcheck source=/dev/null
. "$0/store.sh"
# shellcheck source=/dev/null
. "$0/limits.sh"

SOCKET_OF=$T/redis
unset VOW_STORE VOW_STORE_PASSWORD

# ---- servers ----------------------------------------------------------------

# with_us COMMAND...: in the place of a shell in the background. A server
# overwrites the mark that what tests leave is found by: so it ends with them.
with_us() {
    exec setpriv --pdeathsig KILL "$@"
}

# up ARGUMENT...: a server, on $T/redis if nothing else is said.
up() {
    with_us redis-server --port 0 --unixsocket "$SOCKET_OF" --dir "$T" \
        --save '' --appendonly no --daemonize no --loglevel warning "$@" \
        >>"$T/log" 2>&1 </dev/null &
    SERVER=$!
    wait_for answers
}

answers() {
    redis-cli -s "$SOCKET_OF" PING 2>&1 | grep -qE 'PONG|NOAUTH'
}

# down: the server is gone, with all it knew.
down() {
    kill -KILL "$SERVER"
    wait "$SERVER" 2>/dev/null || true
    rm -f "$SOCKET_OF"
}

# server ARGUMENT...: the same as a store. False: there is none, or vow was
# built without.
server() {
    command -v redis-server >"$T/found" || return 1
    export VOW_STORE="unix:$SOCKET_OF?$PATIENT"
    "$VOW" status --store "unix:$SOCKET_OF?timeout=1" >"$T/found" 2>&1 || true
    ! grep -q 'no store on Redis' "$T/found" || return 1
    up "$@"
}

redis() {
    redis-cli -s "$SOCKET_OF" "$@"
}

free_port() {
    perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(
        Listen => 1, LocalAddr => "127.0.0.1")->sockport, "\n"'
}

# one_warning: of the store, and nothing else.
one_warning() {
    expect_lines 1 "$ERR"
    expect grep -q '^vow: the store' "$ERR"
}

# told_by_all WORD STORE: nobody works with it, and a sentence tells why.
told_by_all() {
    export VOW_STORE="$2"
    refused lock x -- touch ran
    expect_err_has "$1"
    refused run --pool x -j1 -- touch ran
    expect_err_has "$1"
    refused status
    expect_err_has "$1"
    vow share x -- echo hello
    expect_code 0
    expect_out hello
    one_warning
    expect_err_has "$1"
}

# ---- sharing ----------------------------------------------------------------

test_one_runs_for_many() {
    server || return 0
    for who in a b c d e f; do
        call "$who" share x -- sh -c "$JOB"
    done
    wait_for told_is x waiters 5
    wait_for runs_are 1
    touch go
    all_got "by $(cat runs)" a b c d e f
    expect runs_are 1
}

test_what_was_written_is_replayed_to_the_byte() {
    server || return 0
    for _ in 1 2; do
        vow share --fail-ttl 1h x -- sh -c 'echo >>runs
            printf "a\\0b\\r\\n\\377"; printf "bad\\0" >&2; exit 7'
        expect_code 7
        expect_bytes 'a\0000b\r\n\0377'
        printf 'bad\0' | cmp - "$ERR" || fail 'stderr is another'
    done
    expect runs_are 1
}

# Above the size that comes with the wake-up, and far above it.
test_big_results_reach_all() {
    server || return 0
    for size in 15000 17000 300000 5000000; do
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
    server || return 0
    lines='echo >>runs; for i in 1 2 3; do echo "$i"
        until [ -e "go$i" ]; do sleep 0.02; done; done'
    call a share --follow x -- sh -c "$lines"
    wait_for runs_are 1
    call b share --follow x -- sh -c "$lines"
    wait_for has_line "$T/b.out" 1
    touch go1
    wait_for has_line "$T/b.out" 2
    touch go2 go3
    settle a b
    expect_file "$T/b.out" 1 2 3
    expect runs_are 1
}

test_results_and_failures_are_kept_as_told() {
    server || return 0
    vow share --ttl 1h x -- echo 1
    vow share --ttl 1h x -- echo 2
    expect_out 1
    vow share --ttl 1s z -- echo 1
    wait_for sh -c '"$VOW" share --ttl 1h z -- echo 2 | grep -qx 2'
    vow share y -- sh -c 'echo 1; exit 4'
    vow share --fail-ttl 1h y -- sh -c 'echo 2; exit 5'
    expect_out 2
    vow share y -- echo 3
    expect_code 5
    expect_out 2
}

test_an_old_result_is_made_anew_by_one() {
    server || return 0
    anew='echo >>runs; wc -l <runs; until [ -e go ]; do sleep 0.02; done'
    touch go
    vow share --ttl 1h --stale 200ms x -- sh -c "$anew"
    rm go
    sleep 0.3
    for who in a b c; do
        call "$who" share --ttl 1h --stale 200ms x -- sh -c "$anew"
    done
    all_got 1 a b c
    wait_for runs_are 2
    touch go
    wait_for sh -c '"$VOW" result x | grep -qx 2'
    expect runs_are 2
}

test_a_run_whose_record_was_lost_keeps_its_fence() {
    server || return 0
    call_role a --ttl 1h --pulse "$PULSE" x -- sh -c 'echo "$VOW_FENCE"
        until [ -e go ]; do sleep 0.02; done'
    wait_for told_is x state running
    fence=$(told x fence)
    redis FLUSHALL >"$T/said"
    wait_for sh -c '"$VOW" status --json | grep -q fence' # without its label
    "$VOW" status --json >status
    expect grep -q "\"fence\": *$fence[,}]" status
    touch go
    all_got "$fence" a
    expect grep -q "\"fence\":$fence," "$T/a.role"
}

test_a_refresh_and_a_run_do_not_begin_beside_each_other() {
    server || return 0
    call a share --ttl 1h x -- sh -c "$JOB"
    call b share --refresh --ttl 1h y -- sh -c "$JOB"
    wait_for runs_are 2
    vow share --refresh --ttl 1h x -- touch beside
    expect_code 0
    vow share -n --ttl 1h y -- touch beside
    expect_code 75
    expect_not test -e beside
    touch go
    all_got 'by a' a
    vow share --ttl 1h y -- touch beside
    expect_out 'by b'
    expect_not test -e beside
}

test_pipelines_with_a_common_beginning_run_it_once() {
    server || return 0
    for last in 'tr a-z A-Z' 'wc -c'; do
        vow pipe --ttl 1h -s first='echo hello; echo >>runs' -s "last=$last"
        expect_code 0
        expect_err
    done
    expect_out 6
    expect runs_are 1
}

# ---- looking and managing ---------------------------------------------------

test_what_is_there_is_told_and_managed() {
    server || return 0
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

# ---- locks and pools --------------------------------------------------------

test_a_lock_is_had_by_one_at_a_time_with_a_fence_that_grows() {
    server || return 0
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
    expect sort -nuc fences
    vow lock -n x -- echo free
    expect_out free
}

test_a_lock_is_free_when_its_command_has_ended() {
    server || return 0
    for i in 1 2 3 4 5; do
        vow lock -n x -- echo "$i"
        expect_code 0
        expect_out "$i"
    done
}

test_a_limit_is_shared_and_changed() {
    server || return 0
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
    server || return 0
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

# slow_way MS: between vow and the server, on $T/slow: each answer comes up to so
# much later.
slow_way() {
    perl -MIO::Socket::UNIX -e '
        my ($ms, $server) = @ARGV;
        my $s = IO::Socket::UNIX->new(Listen => 9, Local => "$ENV{T}/slow");
        $SIG{CHLD} = "IGNORE";
        while (my $c = $s->accept) {
            fork and next;
            my $d = IO::Socket::UNIX->new(Peer => $server) or exit;
            my $answers = fork;
            my ($from, $to) = $answers ? ($d, $c) : ($c, $d);
            while (sysread $from, my $bytes, 65536) {
                select undef, undef, undef, rand($ms) / 1000 if $answers;
                syswrite $to, $bytes;
            }
            shutdown $to, 1;
            exit;
        }' -- "$1" "$SOCKET_OF" </dev/null &
    wait_for test -S "$T/slow"
}

# Fields of the kernel say when a job was started, in 10 ms: what the job itself
# does first takes its time on a busy machine.
BORN='cut -d" " -f22 /proc/$$/stat >>born; : {}'

# expect_windows N MS: no window of so many ms has more than N starts.
expect_windows() {
    sort -n born >"$T/sorted"
    expect test "$(getconf CLK_TCK)" -eq 100
    awk -v n="$1" -v span="$(($2 / 10))" '
        { at[NR] = $1 }
        NR > n && at[NR] - at[NR - n] < span - 1 {
            print "starts " NR - n " and " NR ": " at[NR] - at[NR - n] "0 ms"
            bad = 1
        }
        END { exit bad }' "$T/sorted" || fail "more than $1 starts in $2 ms"
}

# A grant reaches its process up to 300 ms later, and its job starts then.
test_a_rate_is_exact_in_starts_however_late_grants_arrive() {
    server || return 0
    slow_way 300
    export VOW_STORE="unix:$T/slow?$PATIENT"
    for who in a b c; do
        call "$who" map --pool p -j20 --rate 4/400ms "$BORN" ::: 1 2 3 4 5 6
    done
    settle a b c
    for who in a b c; do
        of "$who"
        expect_code 0
        expect_err
    done
    expect_lines 18 born
    expect_windows 4 400
}

# ---- who dies ---------------------------------------------------------------

test_a_killed_runner_is_replaced_within_its_lease() {
    server || return 0
    call a share --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    before=$(now_ms)
    send KILL a
    wait_for runs_are 2
    took=$(($(now_ms) - before))
    note "taken over after $took ms"
    expect test "$took" -le "$TAKEN_OVER_MS"
    touch go
    all_got 'by b' b
    expect_file runs a b
}

test_a_killed_holder_of_a_lock_is_replaced_within_its_lease() {
    server || return 0
    call a lock --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$JOB"
    wait_for runs_are 1
    call b lock --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$JOB"
    wait_for told_is x queue 1
    send KILL a
    wait_for runs_are 2
    touch go
    all_got 'by b' b
}

# ---- others -----------------------------------------------------------------

test_a_master_is_found_by_sentinels() {
    PORT=$(free_port)
    server --port "$PORT" || return 0
    port=$(free_port)
    printf '%s\n' "port $port" "dir $T" \
        "sentinel monitor main 127.0.0.1 $PORT 1" >"$T/sentinel.conf"
    with_us redis-sentinel "$T/sentinel.conf" >>"$T/log" 2>&1 </dev/null &
    wait_for sh -c "redis-cli -p $port PING | grep -q PONG"
    export VOW_STORE="redis-sentinel://127.0.0.1:$port/main?$PATIENT"
    vow share --ttl 1h x -- echo found
    expect_code 0
    expect_out found
    expect_err
    export VOW_STORE="redis://127.0.0.1:$PORT?$PATIENT"
    vow result x
    expect_out found
    told_by_all nobody "redis-sentinel://127.0.0.1:$port/nobody?$PATIENT"
}

test_sealed_results_are_not_for_others() {
    server || return 0
    for who in one two; do
        (umask 077 && head -c 32 /dev/urandom >"$T/$who")
    done
    sealed="unix:$SOCKET_OF?$PATIENT&seal-file=$T"
    vow share --store "$sealed/one" --ttl 1h x -- echo openly
    vow result --store "$sealed/one" x
    expect_out openly
    redis --scan >"$T/keys"
    while read -r key; do
        redis HGETALL "$key" >>"$T/values" 2>&1
    done <"$T/keys"
    expect_not grep -q openly "$T/values"
    vow result --store "$sealed/two" x
    expect_code 125
    expect_sentence
}

# result_keys: of all names that have a result.
result_keys() {
    redis --scan | while read -r key; do
        [ "$(redis HEXISTS "$key" v 2>&1)" != 1 ] || echo "$key"
    done
}

# keep_for_ever KEY: as a server does that does not care for the time to live.
keep_for_ever() {
    redis PERSIST "$1" >"$T/found"
    redis HSET "$1" d 9007199254740992 >"$T/found"
}

# says_now TEXT NEW: that is what vow share x says; NEW is what it would make.
says_now() {
    [ "$("$VOW" share --ttl 1h x -- echo "$2" 2>"$T/said")" = "$1" ] &&
        ! [ -s "$T/said" ]
}

# Whatever the server says.
test_a_sealed_result_ends_with_its_time_and_stays_where_it_belongs() {
    server || return 0
    (umask 077 && head -c 32 /dev/urandom >"$T/one")
    sealed="unix:$SOCKET_OF?$PATIENT&seal-file=$T/one"
    export VOW_STORE="$sealed"
    vow share --ttl 3s x -- echo one
    expect_out one
    key=$(result_keys)
    # To another prefix.
    redis COPY "$key" "b:${key#vow:}" >"$T/found"
    vow result --store "$sealed&prefix=b:" x
    expect_code 125
    expect_sentence
    expect_err_has 'cannot be opened'
    redis DEL "b:${key#vow:}" >"$T/found"
    # Beyond its end.
    keep_for_ever "$key"
    redis COPY "$key" old >"$T/found"
    wait_for says_now two two
    # In place of a newer one.
    redis COPY old "$key" REPLACE >"$T/found"
    vow result x
    expect_code 66
    redis COPY old "$key" REPLACE >"$T/found"
    expect says_now three three
    expect says_now three four
}

# Those who wait have it too.
test_a_sealed_result_reaches_who_waits() {
    server || return 0
    (umask 077 && head -c 32 /dev/urandom >"$T/one")
    export VOW_STORE="unix:$SOCKET_OF?$PATIENT&seal-file=$T/one"
    for who in a b c; do
        call "$who" share x -- sh -c "$JOB"
    done
    wait_for told_is x waiters 2
    touch go
    all_got "by $(cat runs)" a b c
    expect runs_are 1
}

test_prefixes_and_databases_are_apart() {
    server || return 0
    vow share --ttl 1h x -- echo 1
    for option in prefix=b: db=1; do
        vow share --store "$VOW_STORE&$option" --ttl 1h x -- echo 2
        expect_out 2
        vow forget --store "$VOW_STORE&$option" x
    done
    vow result x
    expect_out 1
}

test_all_that_is_kept_has_an_end() {
    server || return 0
    vow share --ttl 1h x -- echo 1
    vow lock x -- true
    vow map --pool p -j2 --rate 9/s true ::: 1 2
    redis --scan >"$T/keys"
    expect test -s "$T/keys"
    while read -r key; do
        note "$key"
        expect test "$(redis PTTL "$key")" -gt 0
    done <"$T/keys"
}

# ---- over hosts -------------------------------------------------------------

# hosts: three hosts and a server, each in a network namespace of its own, which
# ends with a process; $HOST1 to $HOST3 are these. Where no namespaces can be
# made they are all here.
hosts() {
    # shellcheck disable=SC2034 # by their number
    HOST1='' HOST2='' HOST3=''
    PORT=$(free_port)
    if unshare -n true 2>/dev/null; then
        unshare -n sleep 300 &
        HUB=$!
        wait_for apart "$HUB"
        in_host "$HUB" ip link set lo up
        in_host "$HUB" ip link add br0 type bridge
        in_host "$HUB" ip address add 10.77.0.1/24 dev br0
        in_host "$HUB" ip link set br0 up
        for i in 1 2 3; do
            host "$i"
        done
        WHERE=10.77.0.1
    else
        echo 'no network namespaces: three processes of one host'
        HUB='' WHERE=127.0.0.1
    fi
    export VOW_STORE="redis://$WHERE:$PORT?$PATIENT"
    in_host "$HUB" setpriv --pdeathsig KILL redis-server --port "$PORT" \
        --bind "$WHERE" --unixsocket "$SOCKET_OF" --protected-mode no \
        --dir "$T" --save '' --appendonly no --daemonize no >>"$T/log" 2>&1 \
        </dev/null &
    wait_for answers
}

host() {
    unshare -n sleep 300 &
    eval "HOST$1=$!"
    wait_for apart "$!"
    ip link add "e$1" netns "$HUB" type veth peer name e0 netns "$!"
    in_host "$HUB" ip link set "e$1" master br0 up
    in_host "$!" ip address add "10.77.0.1$1/24" dev e0
    in_host "$!" ip link set e0 up
}

apart() {
    [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]
}

# in_host PROCESS COMMAND...
in_host() {
    process=$1
    shift
    if [ -n "$process" ]; then
        nsenter -t "$process" -n "$@"
    else
        "$@"
    fi
}

# call_in PROCESS CALLER ARGUMENT...: as call(), on that host.
call_in() {
    at=$1
    who=$2
    shift 2
    rm -f "$T/$who.status" "$T/$who.pid"
    export CALLER="$who"
    in_host "$at" perl -e "$PARENT" "$T/$who.status" "$T/$who.pid" \
        "$VOW" "$@" >"$T/$who.out" 2>"$T/$who.err" &
}

# granted N: there are so many grants. Their times are those of the server, which
# says them to who listens, and are in $T/grants, sorted.
granted() {
    sed -n 's/.*\[0 lua\] "ZADD" "[^"]*:g" "\([0-9]*\)".*/\1/p' "$T/monitor" |
        sort -n >"$T/grants"
    has_lines "$1" "$T/grants"
}

test_a_rate_is_kept_over_hosts() {
    server || return 0
    down
    hosts
    redis-cli -s "$SOCKET_OF" MONITOR >"$T/monitor" &
    wait_for test -s "$T/monitor"
    seq 50 >items
    before=$(now_ms)
    for i in 1 2 3; do
        eval "at=\$HOST$i"
        call_in "$at" "h$i" map -a items --pool api --rate 50/s -j20 \
            'date +%s%N >>starts; : {}'
    done
    settle h1 h2 h3
    for i in 1 2 3; do
        of "h$i"
        expect_code 0
        expect_err
    done
    expect_lines 150 starts
    never_early starts "$before" 50 1000
    wait_for granted 150
    expect_lines 150 "$T/grants"
    perl -e 'my @t = <>; for (50 .. $#t) {
        my $us = $t[$_] - $t[$_ - 50];
        if ($us <= 1000000) { print "51 in $us us\n"; exit 1 } }' \
        "$T/grants" || fail 'more than 50 in a second'
}

test_places_of_a_killed_host_return_within_the_lease() {
    server || return 0
    down
    hosts
    call_in "$HOST1" a map --pool api -j4 --lease "$LEASE" --pulse "$PULSE" \
        'echo a >>order; sleep 300; : {}' ::: 1 2 3 4
    wait_for has_lines 4 order
    call_in "$HOST2" b map --pool api -j4 --lease "$LEASE" --pulse "$PULSE" \
        'echo b >>order; : {}' ::: 1 2 3 4
    wait_for sh -c '"$VOW" status --json --store "unix:$T/redis" |
        grep -qE "\"queue\":[1-4]"'
    expect_lines 4 order
    before=$(now_ms)
    send KILL a
    settle b
    note "free after $(($(now_ms) - before)) ms"
    expect test $(($(now_ms) - before)) -le "$TAKEN_OVER_MS"
    of b
    expect_code 0
    expect_err
    expect_file order a a a a b b b b
}
