# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# redis_down.sh - a server of Redis that is away, goes, or is no such server.

# shellcheck source=/dev/null
. "$0/redis.sh"

# ---- a server that is away --------------------------------------------------

# away [MS]: there is a store, and no server. It is waited for so long.
away() {
    server || return 1
    down
    export VOW_STORE="unix:$SOCKET_OF?timeout=${1-200}"
}

test_share_runs_without_a_server_and_warns_once() {
    away || return 0
    vow share --ttl 1h x -- sh -c 'echo hello; exit 3'
    expect_code 3
    expect_out hello
    one_warning
    expect_err_has "$SOCKET_OF"
    vow pipe -s a='echo hello' -s b='tr a-z A-Z'
    expect_code 0
    expect_out HELLO
    one_warning
}

test_share_may_fail_without_a_server() {
    away || return 0
    refused share --if-store-down fail x -- touch ran
    expect_err_has "$SOCKET_OF"
}

test_share_may_wait_for_a_server() {
    away 2000 || return 0
    call a share --if-store-down wait --ttl 1h x -- sh -c "$JOB"
    wait_for test -s "$T/a.err"
    expect runs_are 0
    export VOW_STORE="unix:$SOCKET_OF?$PATIENT"
    up
    wait_for runs_are 1
    call b share x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    touch go
    settle a b
    of a
    expect_code 0
    expect_out 'by a'
    one_warning
    all_got 'by a' b
    expect runs_are 1
    down
    export VOW_STORE="unix:$SOCKET_OF?timeout=200"
    vow share --if-store-down wait -w 300ms x -- touch ran
    expect_code 75
    vow share --if-store-down wait -n x -- touch ran
    expect_code 75
    one_warning
    expect_not test -e ran
}

# closing: a server that ends all connections, and writes down each.
closing() {
    rm -f "$T/tries"
    perl -MIO::Socket::UNIX -e '
        my $s = IO::Socket::UNIX->new(Listen => 9, Local => $ARGV[0]);
        while (my $c = $s->accept) {
            close $c;
            open my $f, ">>", "$ENV{T}/tries";
            print $f "one\n";
        }' -- "$SOCKET_OF" </dev/null &
    SERVER=$!
    wait_for test -S "$SOCKET_OF"
}

# A server that is away when the command begins, and comes back in time.
test_a_server_that_comes_back_in_time_was_never_away() {
    away 600000 || return 0
    touch go
    for words in 'share x -- ' 'lock y -- ' 'run --pool p -j1 -- '; do
        note "$words"
        closing
        # shellcheck disable=SC2086 # a list of words
        call a $words sh -c "$JOB"
        wait_for has_lines 1 "$T/tries"
        down
        up
        all_got 'by a' a
        down
    done
}

# cutting HOW: between vow and the server, on $T/cut. Every other connection,
# the first of each process, is ended: at once, in its greeting, or when the
# first step was sent.
cutting() {
    rm -f "$T/cut"
    perl -MIO::Socket::UNIX -MIO::Select -e '
        my ($how, $server) = @ARGV;
        my $s = IO::Socket::UNIX->new(Listen => 9, Local => "$ENV{T}/cut");
        $SIG{CHLD} = "IGNORE";
        for (my $n = 1; my $c = $s->accept; $n++) {
            if ($n % 2 && $how eq "open" or fork) { close $c; next }
            my $d = IO::Socket::UNIX->new(Peer => $server) or exit;
            for (my $asked = 0;;) {
                for my $from (IO::Select->new($c, $d)->can_read) {
                    sysread $from, my $bytes, 65536 or exit;
                    $asked++ if $from == $c;
                    syswrite $from == $c ? $d : $c, $bytes;
                    exit if $n % 2 && $asked == ($how eq "greeting" ? 1 : 2);
                }
            }
        }' -- "$1" "$SOCKET_OF" </dev/null &
    CUTTER=$!
    wait_for test -S "$T/cut"
}

test_one_lost_connection_is_not_a_store_that_is_down() {
    server || return 0
    for how in open greeting step; do
        note "$how"
        cutting "$how"
        export VOW_STORE="unix:$T/cut?timeout=600000"
        vow share --ttl 1h "$how" -- echo shared
        expect_out shared
        expect_err
        vow share "$how" -- echo alone
        expect_out shared
        expect_err
        vow lock x -- echo locked
        expect_out locked
        expect_err
        vow map --pool p -j1 echo ::: mapped
        expect_out mapped
        expect_err
        vow share --peek "$how" -- true
        expect_out shared
        expect_err
        vow status
        expect_code 0
        expect_err
        kill "$CUTTER"
    done
}

test_all_else_fails_without_a_server() {
    away || return 0
    for words in 'lock x -- touch ran' 'run --pool p -j1 -- touch ran' \
        'map --pool p -j1 touch ::: ran' status 'result x' 'forget x' \
        'cancel x' 'limit p' 'limit p -j 3' 'share --peek x'; do
        # shellcheck disable=SC2086 # a list of words
        refused $words
        expect_err_has "$SOCKET_OF"
    done
}

test_who_waits_for_the_store_is_told_that_a_result_was_not_published() {
    server || return 0
    call a share --if-store-down wait --lease 60s x -- sh -c "$JOB"
    wait_for runs_are 1
    down
    touch go
    settle a
    of a
    expect_code 0
    expect_out 'by a'
    expect_err_has 'the result of x was not published'
}

test_who_waits_runs_it_when_the_server_dies() {
    server || return 0
    call a share --lease 60s x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share --lease 60s x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    down
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

test_who_waits_may_fail_when_the_server_dies() {
    server || return 0
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share --if-store-down fail x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    down
    settle b
    of b
    expect_code 125
    expect_sentence
    touch go
    settle a
    expect runs_are 1
}

# running_with N: it runs, and so many wait for it.
running_with() {
    "$VOW" status --json </dev/null | grep -q "running.*\"waiters\":$1"
}

# The one who works tells the new server, which knows nothing, that it does.
test_a_new_server_is_told_what_runs() {
    server || return 0
    call a share --if-store-down wait --lease 60s --pulse "$PULSE" x -- \
        sh -c "$JOB"
    wait_for runs_are 1
    call b share --if-store-down wait --lease 60s x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    # Who asks before it is told runs it as well: so b does not.
    send STOP b
    down
    sleep 0.2
    up
    # It is known by its hash now.
    wait_for running_with 0
    send CONT b
    wait_for running_with 1
    touch go
    settle a b
    for who in a b; do
        of "$who"
        expect_code 0
        expect_out 'by a'
        expect_not test "$(wc -l <"$ERR")" -gt 1
    done
    expect runs_are 1
}

test_a_lock_is_lost_with_its_server() {
    server || return 0
    call a lock --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$JOB"
    wait_for runs_are 1
    call b lock --lease "$LEASE" --pulse "$PULSE" x -- sh -c "$JOB"
    wait_for told_is x queue 1
    down
    settle a b
    of a
    expect_code 121
    expect_lines 1 "$ERR"
    of b
    expect_code 125
    expect_sentence
    expect runs_are 1
}

test_who_waits_for_a_pool_fails_with_its_server() {
    server || return 0
    call a run --pool p -j1 --lease "$LEASE" --pulse "$PULSE" -- sleep 300
    wait_for told_is p running 1
    call b run --pool p -j1 --lease "$LEASE" --pulse "$PULSE" -- touch ran
    wait_for told_is p queue 1
    down
    settle b
    of b
    expect_code 125
    expect_sentence
    expect_not test -e ran
    settle a
    of a
    expect_failure
}

# ---- what a server may be instead -------------------------------------------

# says TEXT: a server that answers that to all, on $T/fake.
says() {
    perl -MIO::Socket::UNIX -e '
        my $s = IO::Socket::UNIX->new(Listen => 5, Local => "$ENV{T}/fake");
        while (my $c = $s->accept) {
            next if fork;
            while (sysread $c, my $in, 65536) {
                syswrite $c, "$ARGV[0]\r\n" if $ARGV[0];
            }
            exit;
        }' -- "$1" </dev/null &
    wait_for test -S "$T/fake"
}

test_an_old_server_is_told() {
    server || return 0
    says "-ERR unknown command 'HELLO'"
    told_by_all 'version 6.0 or newer' "unix:$T/fake?$PATIENT"
}

test_what_is_no_server_is_told() {
    server || return 0
    says 'HTTP/1.0 400 Bad Request'
    told_by_all "$T/fake" "unix:$T/fake?$PATIENT"
}

test_a_server_that_does_not_answer_is_told() {
    server || return 0
    says ''
    told_by_all "$T/fake did not answer for 200 ms" "unix:$T/fake?timeout=200"
}

# babbling WHEN: a server that sends messages for ever: at once, or when it has
# greeted us. With "long", it begins an answer of 500 MB instead.
babbling() {
    rm -f "$T/fake"
    perl -MIO::Socket::UNIX -e '
        my $s = IO::Socket::UNIX->new(Listen => 5, Local => "$ENV{T}/fake");
        my $greets = join "\r\n", "%4", "+server", "+redis", "+version",
            "+7.0.15", "+proto", ":3", "+mode", "+standalone",
            "*3", "+master", ":0", "*0", ":1", ">3", "+subscribe", "+x", ":1", "";
        my $push = ">2\r\n+message\r\n+" . "x" x 60000 . "\r\n";
        $SIG{PIPE} = $SIG{CHLD} = "IGNORE";
        while (my $c = $s->accept) {
            if (fork) { close $c; next }
            sysread $c, my $greeting, 65536 if $ARGV[0] ne "now";
            syswrite $c, $greets if $ARGV[0] ne "now";
            if ($ARGV[0] eq "long") {
                sysread $c, my $step, 65536;
                syswrite $c, "\$500000000\r\n";
                $push = "x" x 65536;
            }
            1 while defined syswrite $c, $push;
            exit;
        }' -- "$1" </dev/null &
    BABBLER=$!
    wait_for test -S "$T/fake"
}

test_a_server_that_babbles_is_down_after_the_timeout() {
    server || return 0
    for when in now then long; do
        note "$when"
        babbling "$when"
        export VOW_STORE="unix:$T/fake?timeout=300"
        for words in 'lock --lease 1s x -- touch ran' \
            'map --pool p -j1 touch ::: ran' \
            'limit p' 'share --if-store-down fail x -- touch ran'; do
            # shellcheck disable=SC2086 # a list of words
            start $words
            watch_memory
            expect_code 125
            expect_sentence
            case $when$words in
            long*share*) ;; # a result may have as much
            *) expect test "$MEMORY" -lt 65536 ;;
            esac
        done
        kill "$BABBLER"
    done
}

test_a_port_where_nobody_is_is_told() {
    server || return 0
    port=$(free_port)
    told_by_all "127.0.0.1:$port refused" "redis://127.0.0.1:$port"
}

test_a_replica_is_told() {
    server || return 0
    redis REPLICAOF 127.0.0.1 1 >"$T/found"
    told_by_all 'replica' "unix:$SOCKET_OF?timeout=1000"
}

test_once_and_fenced_are_refused() {
    server || return 0
    for option in --once --fenced; do
        refused share "$option" x -- touch ran
        expect_err_has "$option"
        expect_err_has file:
        expect_err_has etcd:
    done
}

# Names are looked up by threads, which must not take the command's signals.
test_a_host_may_have_a_name() {
    PORT=$(free_port)
    server --port "$PORT" || return 0
    export VOW_STORE="redis://localhost:$PORT?$PATIENT"
    for i in 1 2 3 4 5 6 7 8; do
        vow share x -- echo "$i"
        expect_code 0
        expect_out "$i"
        expect_err
    done
    down
    export VOW_STORE="redis://localhost:$PORT"
    vow share x -- echo hello
    expect_code 0
    expect_out hello
    one_warning
}
