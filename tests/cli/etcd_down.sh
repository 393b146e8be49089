# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# etcd_down.sh - members of etcd that are away, stand still, go, or are none.
# shellcheck disable=SC2153 # ports have numbers

# shellcheck source=/dev/null
. "$0/etcd.sh"

# ask for no longer than people do: two seconds.
as_told() {
    export VOW_STORE="etcd://$MEMBERS"
}

# patiently: as long as a busy machine needs.
patiently() {
    export VOW_STORE="etcd://$MEMBERS?$PATIENT"
}

# soon VERB ARGUMENT...: refused, after those two seconds and what a busy machine
# takes; who has no limit of time waits for ever.
soon() {
    before=$(now_ms)
    refused "$@"
    took=$(($(now_ms) - before))
    note "refused after $took ms"
    expect test "$took" -le "$AT_ONCE_MS"
}

# all_soon WORDS...: the same for many, all at once.
all_soon() {
    before=$(now_ms) n=0
    for words; do
        n=$((n + 1))
        # shellcheck disable=SC2086 # a list of words
        call "soon$n" $words
    done
    for i in $(seq "$n"); do
        settle "soon$i"
    done
    took=$(($(now_ms) - before))
    for i in $(seq "$n"); do
        note "soon$i of: $*"
        (
            of "soon$i"
            expect_code 125
            expect_sentence
        )
    done
    note "refused after $took ms"
    expect test "$took" -le "$AT_ONCE_MS"
    expect_not test -e ran
}

# nothing_is_begun [WORDS...]: what needs the store, by all who could ask.
nothing_is_begun() {
    all_soon 'share --fenced x -- touch ran' 'share --once x -- touch ran' \
        'lock x -- touch ran' 'lock --once x -- touch ran' \
        'run --pool p -j1 -- touch ran' "$@"
}

# alone_is_told: share does it all the same.
alone_is_told() {
    before=$(now_ms)
    vow share --ttl 1h x -- sh -c 'echo hello; exit 3'
    expect_code 3
    expect_out hello
    one_warning
    expect_err_has 127.0.0.1
    expect test $(($(now_ms) - before)) -le "$AT_ONCE_MS"
}

# ---- nobody is there --------------------------------------------------------

# away: there is a store, and no member.
away() {
    cluster 1 || return 1
    end_member 1
}

test_without_a_member_nothing_is_begun_and_share_runs_alone() {
    away || return 0
    nothing_is_begun
    alone_is_told
    vow pipe -s a='echo hello' -s b='tr a-z A-Z'
    expect_code 0
    expect_out HELLO
    one_warning
    soon share --if-store-down fail x -- touch ran
}

test_all_else_fails_without_a_member() {
    away || return 0
    all_soon status 'result x' 'forget x' 'cancel x' 'limit p' \
        'limit p -j 3' 'share --peek x' 'resolve x --retry' doctor \
        'map --pool p -j1 touch ::: ran'
    for i in $(seq 10); do
        expect grep -q "127.0.0.1:$PORT1" "$T/soon$i.err"
    done
}

test_run_is_no_way_for_what_may_happen_once() {
    away || return 0
    for mode in --once --fenced; do
        refused share $mode --if-store-down run x -- touch ran
    done
}

test_share_may_wait_for_a_member() {
    away || return 0
    call a share --if-store-down wait --ttl 1h x -- sh -c "$JOB"
    call c share --once --if-store-down wait --ttl 1h y -- echo once
    wait_for test -s "$T/a.err"
    wait_for test -s "$T/c.err"
    expect runs_are 0
    begin_members 1
    wait_for runs_are 1
    call b share x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    touch go
    settle a b c
    for who in a c; do
        of "$who"
        expect_code 0
        one_warning
    done
    expect_out once
    expect_file "$T/a.out" 'by a'
    all_got 'by a' b
    expect runs_are 1
    end_member 1
    of later
    vow share --if-store-down wait -w 300ms x -- touch ran
    expect_code 75
    vow share --if-store-down wait -n x -- touch ran
    expect_code 75
    one_warning
    expect_not test -e ran
}

# ---- a member that stands still ---------------------------------------------

test_a_stopped_member_is_told_in_time() {
    cluster 1 || return 0
    as_told
    signal_member STOP 1
    nothing_is_begun status doctor
    alone_is_told
    expect_err_has '2000 ms'
    # It goes on by itself, and knows of nobody who was told that it failed.
    signal_member CONT 1
    patiently
    as_before
}

# as_before: all is well, and has been.
as_before() {
    wait_for "$VOW" status
    for words in 'share --fenced' 'share --once' 'lock' 'lock --once' \
        'run --pool p -j1'; do
        note "$words"
        for _ in $(seq $((40 * VOW_TEST_SLOW))); do
            # shellcheck disable=SC2046,SC2086 # a list of words
            vow $words $([ "$words" = 'run --pool p -j1' ] || echo x) -- \
                echo "$words"
            [ "$(cat "$STATUS")" != 'exit 0' ] || break
            sleep 0.1
        done
        expect_code 0
        expect_out "$words"
        expect_err
    done
}

# Whatever a request did that had no answer, it is not in doubt for good.
test_who_holds_a_lock_outlives_a_short_stop() {
    cluster 1 || return 0
    call a lock --lease 60s x -- sh -c "$JOB"
    call b share --once --lease 60s --ttl 1h y -- sh -c "$JOB"
    wait_for runs_are 2
    call c lock --lease 60s x -- sh -c 'echo after'
    wait_for told_is x queue 1
    signal_member STOP 1
    sleep 1
    signal_member CONT 1
    touch go
    settle a b c
    for who in a b; do
        of "$who"
        expect_code 0
        expect_out "by $who"
    done
    of c
    expect_code 0
    expect_out after
    of later
    vow result y
    expect_out 'by b'
}

test_a_lock_is_lost_with_its_member() {
    cluster 1 || return 0
    call a lock --lease "$LEASE" x -- sh -c "$JOB"
    wait_for runs_are 1
    call b lock --lease "$LEASE" x -- sh -c "$JOB"
    wait_for told_is x queue 1
    end_member 1
    settle a b
    of a
    expect_code 121
    expect_lines 1 "$ERR"
    of b
    expect_code 125
    expect_sentence
    expect runs_are 1
}

test_what_is_fenced_ends_with_its_member() {
    cluster 1 || return 0
    call a share --fenced --lease "$LEASE" x -- sh -c "$JOB"
    call b share --once --lease "$LEASE" y -- sh -c "$JOB"
    wait_for runs_are 2
    call c share --fenced --lease "$LEASE" x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    end_member 1
    settle a b c
    for who in a b; do
        of "$who"
        note "$who"
        expect_code 121 125
        expect_out
    done
    of c
    expect_code 125
    expect_sentence
    expect runs_are 2
}

test_who_waits_runs_it_when_the_member_dies() {
    cluster 1 || return 0
    call a share --lease 60s x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share --lease 60s x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    call c share --lease 60s --if-store-down fail x -- sh -c "$JOB"
    wait_for told_is x waiters 2
    end_member 1
    settle c
    of c
    expect_code 125
    expect_sentence
    wait_for runs_are 2
    touch go
    settle a b
    for who in a b; do
        of "$who"
        expect_code 0
        expect_out "by $who"
        one_warning
    done
}

# ---- three members ----------------------------------------------------------

# others: the two that do not lead, in $OTHERS, and the one that does in $HEAD.
others() {
    HEAD=$(leader)
    OTHERS="$((HEAD % 3 + 1)) $(((HEAD + 1) % 3 + 1))"
}

test_without_a_majority_nothing_is_begun() {
    cluster 3 || return 0
    others
    vow share --ttl 1h kept -- echo kept
    as_told
    # shellcheck disable=SC2086 # numbers
    signal_member STOP $OTHERS
    nothing_is_begun 'result kept' 'resolve x --retry'
    # That is not what etcd says when it gives up itself, after seven seconds.
    expect_not grep -q 'request timed out' "$T"/soon*.err
    alone_is_told
    vow doctor
    expect_code 1
    expect_mark BAD writes
    expect test "$(grep -c '^BAD *member' "$OUT")" -ge 2
    call a share --once --if-store-down wait --ttl 1h y -- sh -c "$JOB"
    sleep 1
    expect runs_are 0
    # shellcheck disable=SC2086 # numbers
    signal_member CONT $OTHERS
    touch go
    settle a
    of a
    expect_code 0
    expect_out 'by a'
    of later
    patiently
    as_before
    vow result kept
    expect_out kept
}

test_one_that_is_away_is_passed_over_at_once() {
    cluster 3 || return 0
    others
    port=$(free_port)
    first="127.0.0.1:$port"
    for store in "etcd://$first,$MEMBERS" "etcd://$first,127.0.0.1:$PORT2"; do
        # A part of this time would be too much already.
        export VOW_STORE="$store?timeout=150000"
        before=$(now_ms)
        vow lock x -- echo had
        expect_code 0
        expect_out had
        expect_err
        vow share --once --ttl 1h x -- echo kept
        expect_code 0
        expect_err
        took=$(($(now_ms) - before))
        note "it took $took ms"
        expect test "$took" -le "$AT_ONCE_MS"
    done
    # And one that is killed, be it the leader.
    patiently
    end_member "$HEAD"
    wait_for "$VOW" share --fenced y -- true
    vow share --once --ttl 1h z -- echo once
    expect_code 0
    expect_err
    vow result x
    expect_out kept
}

# Connections are taken, and nothing is said: each step asks another one when a
# part of its time is over.
test_one_that_stands_still_costs_a_part_of_the_time_and_no_more() {
    cluster 3 || return 0
    others
    still=${OTHERS% *}
    port='' also='' lead=''
    eval "port=\$PORT$still also=\$PORT${OTHERS#* } lead=\$PORT$HEAD"
    export VOW_STORE="etcd://127.0.0.1:$port,127.0.0.1:$also,127.0.0.1:$lead"
    VOW_STORE="$VOW_STORE?timeout=30000"
    signal_member STOP "$still"
    before=$(now_ms)
    for words in 'share --once --ttl 1h x' 'share --fenced --ttl 1h y' \
        'share --ttl 1h z' 'lock x' 'run --pool p -j1'; do
        # shellcheck disable=SC2086 # a list of words
        call "${words%% *}${words##* }" ${words%% *} --lease 60s ${words#* } -- \
            sh -c 'echo >>runs; echo had'
    done
    all_got had sharex sharey sharez lockx run-j1
    took=$(($(now_ms) - before))
    note "it took $took ms"
    expect test "$took" -le 30000
    expect runs_are 5
}

# With this timeout a dead member costs a commit ten seconds, and the result is
# published all the same.
test_who_waits_gets_the_result_when_the_leader_dies() {
    cluster 3 || return 0
    others
    export VOW_STORE="etcd://$MEMBERS?timeout=30000"
    n=0
    for mode in --ttl=1h --fenced --once; do
        n=$((n + 1))
        call "a$n" share "$mode" --lease 60s "x$mode" -- sh -c "$JOB"
        wait_for runs_are "$n"
        for who in b c; do
            call "$who$n" share "$mode" --lease 60s "x$mode" -- sh -c "$JOB"
        done
    done
    for mode in --ttl=1h --fenced --once; do
        wait_for told_is "x$mode" waiters 2
    done
    end_member "$HEAD"
    touch go
    for n in 1 2 3; do
        settle "a$n" "b$n" "c$n"
        for who in a b c; do
            note "$who$n"
            of "$who$n"
            expect_code 0
            expect_out "by a$n"
            # It may be told meanwhile that the store is away.
            expect test "$(wc -l <"$ERR")" -le 1
        done
    done
    expect runs_are 3
}

# The next leader restarts the lease of the result. The result is over when its
# age is that of its --ttl, which the lease, still there, shows.
test_a_new_leader_does_not_let_a_result_last_longer() {
    command -v etcdctl >"$T/found" || return 0
    cluster 3 || return 0
    others
    vow share --ttl 8s x -- echo one
    expect_out one
    lease_of_result >"$T/lease"
    expect test -s "$T/lease"
    wait_for older_than 5000
    end_member "$HEAD"
    wait_for gone x
    etcdctl_any lease timetolive "$(cat "$T/lease")" >"$T/left"
    note "$(cat "$T/left")"
    expect grep -q 'remaining' "$T/left"
    vow share --ttl 1h x -- echo two
    expect_out two
}

etcdctl_any() {
    ETCDCTL_API=3 etcdctl --endpoints "$MEMBERS" "$@"
}

lease_of_result() {
    etcdctl_any get --prefix vow/n/ -w fields |
        perl -ne '/"Lease" : (\d+)/ && $1 && printf "%x\n", $1' | head -n 1
}

older_than() {
    [ "$(told x age_ms)" -ge "$1" ]
}

test_a_lock_outlives_the_leader() {
    cluster 3 || return 0
    others
    for who in a b c d; do
        call "$who" lock --lease 60s x -- sh -c 'echo "$VOW_FENCE" >>fences
            echo +1 >>log; until [ -e go ]; do sleep 0.02; done; sleep 0.2
            echo -1 >>log'
    done
    wait_for told_is x queue 3
    end_member "$HEAD"
    touch go
    settle a b c d
    for who in a b c d; do
        of "$who"
        note "$who"
        expect_code 0
    done
    expect test "$(peak log)" -eq 1
    expect_lines 4 fences
    expect sort -nuc fences
}

# ---- what a member may be instead -------------------------------------------

# says KIND: a server on $PORT that is none. It says "html", "{}", "empty",
# "endless" bytes, or "drip": one after another, without an end.
says() {
    PORT=$(free_port)
    perl -MIO::Socket::INET -e '
        my ($port, $kind) = @ARGV;
        my $s = IO::Socket::INET->new(Listen => 20, ReuseAddr => 1,
            LocalAddr => "127.0.0.1:$port") or die;
        $SIG{CHLD} = "IGNORE";
        my $html = "<html><body>It works!</body></html>";
        my %whole = ("{}" => "{}", html => $html, empty => "");
        while (1) {
            my $c = $s->accept or next;
            next if fork;
            while (sysread $c, my $in, 65536) {
                if (exists $whole{$kind}) {
                    my $body = $whole{$kind};
                    syswrite $c, sprintf "HTTP/1.1 200 OK\r\n" .
                        "Content-Length: %d\r\n\r\n%s", length $body, $body;
                    next;
                }
                syswrite $c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
                my $some = $kind eq "drip" ? " " : "x" x 65536;
                1 while select(undef, undef, undef, $kind eq "drip") >= 0 &&
                    syswrite $c, $some;
            }
            exit;
        }' "$PORT" "$1" </dev/null >"$T/says.log" 2>&1 &
    wait_for sh -c "perl -MIO::Socket::INET -e 'exit !IO::Socket::INET->new(
        PeerAddr => \"127.0.0.1:$PORT\")'"
}

# Never taken for one that has answered.
test_what_is_no_etcd_is_told() {
    built || return 0
    for kind in html '{}' empty; do
        note "$kind"
        says "$kind"
        where="127.0.0.1:$PORT"
        [ "$kind" != '{}' ] || where='' # any sentence will do
        told_by_all "$where" "etcd://127.0.0.1:$PORT"
        nothing_is_begun doctor
        expect grep -q "127.0.0.1:$PORT" "$T/soon6.err"
    done
}

test_what_never_comes_to_an_end_is_told() {
    built || return 0
    says drip
    export VOW_STORE="etcd://127.0.0.1:$PORT"
    nothing_is_begun status doctor
    alone_is_told
}

test_an_endless_answer_takes_little_memory() {
    built || return 0
    says endless
    start lock --store "etcd://127.0.0.1:$PORT?timeout=10000" x -- touch ran
    watch_memory
    expect_code 125
    note "$MEMORY KiB"
    expect test "$MEMORY" -lt "${VOW_TEST_MEMORY:-150000}"
    expect_not test -e ran
}

test_an_old_or_another_server_is_told() {
    built || return 0
    command -v redis-server >"$T/found" || return 0
    PORT=$(free_port)
    up --port "$PORT"
    told_by_all "127.0.0.1:$PORT" "etcd://127.0.0.1:$PORT"
}

# Names are looked up by threads, which must not take the command's signals.
test_a_host_may_have_a_name() {
    cluster 1 || return 0
    export VOW_STORE="etcd://localhost:$PORT1?timeout=10000"
    for i in 1 2; do
        vow share x -- echo "$i"
        expect_code 0
        expect_out "$i"
        expect_err
    done
    end_member 1
    vow share x -- echo hello
    expect_code 0
    expect_out hello
    one_warning
    refused lock --store 'etcd://no-such-host.invalid' x -- touch ran
    expect_err_has no-such-host.invalid
}

test_an_address_that_is_none_is_told() {
    built || return 0
    for store in etcd:// 'etcd://h:99999' 'etcd://h/db' 'etcd://h?nonsense=1' \
        'etcd://h?timeout=soon' 'etcd:h' 'etcds://h?ca-file=/nowhere/ca'; do
        refused lock --store "$store" x -- touch ran
        refused doctor --store "$store"
    done
}

# ---- a vow that was stopped -------------------------------------------------

# stopping WORD: between vow and the member, on $STOPPER. When a request with
# this word comes the first time, or a connection for "accept", the caller a is
# stopped, for longer than its timeout, while it is answered.
stopping() {
    STOPPER=$(free_port)
    rm -f "$T/listens"
    perl -MIO::Socket::INET -MIO::Select -e '
        my ($word, $listen, $server) = @ARGV;
        my $s = IO::Socket::INET->new(Listen => 9, ReuseAddr => 1,
            LocalAddr => "127.0.0.1:$listen") or die;
        my $all = IO::Select->new($s);
        my (%to, $stopped, $pid);
        sub stop {
            select undef, undef, undef, 0.02 until -s "$ENV{T}/a.pid";
            open my $f, "<", "$ENV{T}/a.pid";
            chomp($pid = <$f>);
            kill STOP => $pid;
            $stopped = 1;
        }
        open my $ready, ">", "$ENV{T}/listens";
        while (my @ready = $all->can_read) {
            for my $from (@ready) {
                if ($from == $s) {
                    my $c = $s->accept or next;
                    stop() if !$pid && $word eq "accept";
                    my $d = IO::Socket::INET->new(PeerAddr => $server) or die;
                    @to{$c, $d} = ($d, $c);
                    $all->add($c, $d);
                    next;
                }
                my $to = $to{$from};
                my $n = sysread $from, my $bytes, 65536;
                if (!$n) {
                    $all->remove($from, $to);
                    close $_ for $from, $to;
                    next;
                }
                stop() if !$pid && $bytes =~ /$word/;
                syswrite $to, $bytes;
            }
        } continue {
            if ($stopped && !$all->can_read(3)) {
                kill CONT => $pid;
                $stopped = 0;
            }
        }' -- "$1" "$STOPPER" "127.0.0.1:$PORT1" </dev/null 2>"$T/stopper" &
    wait_for test -e "$T/listens"
}

test_who_was_stopped_does_not_blame_the_store() {
    member || return 0
    touch go
    for words in 'accept share x --' 'lease/grant share x --' \
        'kv/txn share --once x --' 'kv/txn lock x --'; do
        note "$words"
        stopping "${words%% *}"
        export VOW_STORE="etcd://127.0.0.1:$STOPPER?prefix=$PREFIX"
        # shellcheck disable=SC2086 # a list of words
        call a ${words#* } sh -c "$JOB"
        all_got 'by a' a
    done
}
