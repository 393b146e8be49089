# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# etcd_secure.sh - users of etcd, passwords that nobody sees, rights and TLS,
# and what a doctor says of it all.
# shellcheck disable=SC2153 # ports have numbers

# shellcheck source=/dev/null
. "$0/redis_secure.sh"
# shellcheck source=/dev/null
. "$0/etcd.sh"

MANUAL=$0/../../docs/man

# ---- users ------------------------------------------------------------------

etcdctl_at() {
    ETCDCTL_API=3 etcdctl --endpoints "127.0.0.1:$PORT1" "$@" >>"$T/etcdctl" \
        2>&1
}

# locked [ARGUMENT...]: members that want to know who we are. The user vow with
# the password sesame has the rights of the manual. False: there are none.
locked() {
    command -v etcdctl >"$T/found" || return 1
    cluster 1 "$@" || return 1
    sed -n '/^etcdctl role add/,/^```/s/^etcdctl/etcdctl_at/p' \
        "$MANUAL/vow-store.7.scd" | sed 's/PASSWORD/sesame/' >"$T/rights"
    expect test "$(wc -l <"$T/rights")" -eq 4
    # shellcheck source=/dev/null
    . "$T/rights"
    etcdctl_at user add root:root
    etcdctl_at user grant-role root root
    etcdctl_at auth enable
    (umask 077 && echo sesame >"$T/password")
    QUERY="timeout=$((10000 * VOW_TEST_SLOW))"
    export VOW_STORE="etcd://vow@127.0.0.1:$PORT1?$QUERY"
}

test_a_password_may_be_in_a_file_or_the_environment() {
    locked || return 0
    told_by_all password "etcd://127.0.0.1:$PORT1?$QUERY"
    of later
    at="etcd://vow@127.0.0.1:$PORT1?$QUERY"
    vow share --store "$at&password-file=$T/password" x -- echo 1
    expect_out 1
    expect_err
    export VOW_STORE="etcd://vow@127.0.0.1:$PORT1?$QUERY"
    export VOW_STORE_PASSWORD=sesame
    vow share x -- echo 2
    expect_out 2
    expect_err
    # What it runs needs it too.
    vow lock x -- "$VOW" share --once y -- echo 3
    expect_out 3
    expect_err
}

test_a_wrong_password_or_user_is_told_and_not_shown() {
    locked || return 0
    export VOW_STORE_PASSWORD=sesames
    for store in "etcd://vow@127.0.0.1:$PORT1?$QUERY" \
        "etcd://nobody@127.0.0.1:$PORT1?$QUERY"; do
        told_by_all 'the user or the password is wrong' "$store"
        hidden
        refused share --once x -- touch ran
        hidden
        refused doctor
        expect_err_has 'the user or the password is wrong'
        hidden
    done
}

test_a_password_in_an_argument_is_refused() {
    built || return 0
    for store in 'etcd://me:sesame@127.0.0.1' 'etcds://me:sesame@a,b:1' \
        'etcd://:sesame@h?prefix=x/'; do
        for words in 'share x -- touch ran' doctor 'resolve x --retry'; do
            verb=${words%% *}
            # shellcheck disable=SC2046,SC2086 # a list of words
            refused "$verb" --store "$store" \
                $([ "$verb" = "$words" ] || echo ${words#* })
            hidden
            expect_err_has '?password-file='
            expect_err_has VOW_STORE_PASSWORD
        done
    done
    for place in 'redis://me:sesame@h' 'redis://:sesame@h/1'; do
        refused share --store etcd://127.0.0.1 --results "$place" x -- touch ran
        hidden
        refused share --store "etcd://127.0.0.1?results=$place" x -- touch ran
        hidden
    done
    for place in 'redis://me:sesame%40h' 'redis:%2F%2F:sesame%40h' \
        'rediss:%2f%2fme:sesame%40h%3Ftimeout=9' 'redis:%2Fme:sesame%40h' \
        'redis://h%3Fpassword=sesame'; do
        for query in "results=$place" "prefix=x/&results=$place&timeout=9"; do
            note "$query"
            refused share --store "etcd://127.0.0.1?$query" x -- touch ran
            hidden
            expect_err_has '?password-file='
        done
    done
}

# The password of etcd is not meant for the server that keeps long results.
test_a_password_of_the_environment_goes_to_etcd_alone() {
    locked || return 0
    perl -MIO::Socket::UNIX -e '
        my $s = IO::Socket::UNIX->new(Listen => 5, Local => "$ENV{T}/place");
        open my $f, ">", "$ENV{T}/heard";
        $f->autoflush;
        while (my $c = $s->accept) {
            sysread $c, my $in, 65536;
            print $f $in;
            syswrite $c, "-ERR unknown command\r\n";
        }' </dev/null &
    wait_for test -S "$T/place"
    export VOW_STORE_PASSWORD=sesame
    vow share --results "unix:$T/place?user=me" --lease "$LEASE" x -- \
        head -c 70000 /dev/zero
    expect test "$(wc -c <"$OUT")" -eq 70000
    expect grep -aq HELLO "$T/heard"
    expect_not grep -aq sesame "$T/heard"
}

test_a_password_in_the_variable_or_a_file_is_taken_and_never_shown() {
    locked || return 0
    export VOW_STORE="etcd://vow:sesame@127.0.0.1:$PORT1?$QUERY"
    call a share --fenced x -- sh -c "$JOB"
    wait_for runs_are 1
    # Nobody who lists processes sees it.
    for file in $(left); do
        expect_not grep -aq sesame "${file%environ}cmdline"
    done
    touch go
    all_got 'by a' a
    of later
    mkdir -p "$XDG_CONFIG_HOME/vow"
    echo "--store=$VOW_STORE" >"$XDG_CONFIG_HOME/vow/config"
    unset VOW_STORE
    vow share --verbose --ttl 1h x -- echo 1
    expect_code 0
    expect_out 1
    hidden
    for words in status 'status --json' doctor 'doctor --json'; do
        # shellcheck disable=SC2086 # a list of words
        vow $words
        expect_code 0
        expect_err
        hidden
    done
    end_member 1
    vow share x -- echo 2
    one_warning
    hidden
    for address in 'etcd://:ses/ame@127.0.0.1' 'etcd://a:sesame@:x' \
        'etcd://h?password=sesame' 'etcd://a:sesame@h?nonsense=1' \
        'etcd://h?results=redis://:sesame@h:x' \
        'etcd://h?results=nosuch://:sesame@h' \
        'etcd://h?results=redis:/a:sesame%40h' \
        'etcd://h?results=nosuch:%2F%2F:sesame%40h'; do
        export VOW_STORE="$address"
        refused lock x -- touch ran
        hidden
        expect_not grep -q ses "$ERR"
    done
}

# The password of the place for long results is nobody's business either.
test_the_place_for_long_results_is_told_without_its_password() {
    member || return 0
    port=$(free_port)
    place="redis:%2F%2Fme:sesame%40127.0.0.1:$port"
    export VOW_STORE="$VOW_STORE&results=$place"
    vow share --lease "$LEASE" x -- head -c 70000 /dev/zero
    expect_code 0
    expect_lines 1 "$ERR"
    expect_err_has "127.0.0.1:$port"
    expect test "$(wc -c <"$OUT")" -eq 70000
    hidden
    # One that is mistyped.
    export VOW_STORE="${VOW_STORE%&results=*}&results=redis:%2F%2Fme:sesame"
    vow share --lease "$LEASE" x -- head -c 70000 /dev/zero
    expect_lines 1 "$ERR"
    expect_err_has redis://...
    hidden
}

test_the_rights_of_the_manual_are_enough_for_all() {
    locked || return 0
    export VOW_STORE_PASSWORD=sesame
    call a share --follow x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share --follow x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    touch go
    all_got 'by a' a b
    of later
    vow share --once --ttl 1h long -- head -c 60000 /dev/zero
    expect_err
    vow result long
    expect test "$(wc -c <"$OUT")" -eq 60000
    vow pipe --ttl 1h -s a='echo a' -s b=cat
    expect_err
    for words in 'cancel long' 'forget long' 'lock x -- true' \
        'lock --once x -- true' 'lock -s x -- true' \
        'map --pool p -j2 --rate 9/s true ::: 1 2' 'limit p -j 3' status; do
        note "$words"
        # shellcheck disable=SC2086 # a list of words
        vow $words
        expect_code 0 66
        expect_err
    done
    call c share --once --lease "$LEASE" pay -- sh -c 'echo >begun; exec sleep 60'
    wait_for test -e begun
    send KILL c
    wait_for told_is pay state doubt
    vow resolve pay --failed
    expect_code 0
    vow doctor
    expect_code 0
    expect_err
    expect_mark ok rights 'below vow/'
    expect_mark ok password 'user vow'
    expect_not grep -q sesame "$OUT"
    expect test "$(grep -c '^note' "$OUT")" -le "$(grep -c '^    ' "$OUT")"
}

test_a_right_that_is_missing_is_told_with_what_to_do() {
    locked || return 0
    export VOW_STORE_PASSWORD=sesame
    told_by_all 'readwrite' "etcd://vow@127.0.0.1:$PORT1?$QUERY&prefix=other/"
    expect_err_has other/
    expect_err_has vow
    refused share --once x -- touch ran
    expect_err_has 'permission denied'
    vow doctor
    expect_code 1
    expect_err
    expect_mark BAD rights 'below other/'
    expect grep -q 'grant-permission' "$OUT"
    # To read is not enough.
    ETCDCTL_API=3 etcdctl --endpoints "127.0.0.1:$PORT1" --user root:root \
        role grant-permission vow --prefix=true read other/ >"$T/found"
    vow doctor
    expect_code 1
    expect_mark BAD rights 'below other/'
}

# Tokens are forgotten when a member begins again.
test_who_waits_outlives_a_restart_of_the_member() {
    locked || return 0
    export VOW_STORE_PASSWORD=sesame
    call a share --if-store-down wait --lease 60s --ttl 1h x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share --if-store-down wait --lease 60s x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    end_member 1
    begin_members 1
    touch go
    settle a b
    for who in a b; do
        of "$who"
        expect_code 0
        expect_out 'by a'
        hidden
    done
    expect runs_are 1
}

# A token is good for five minutes, or less.
test_a_token_that_has_expired_is_renewed() {
    locked --auth-token-ttl 1 || return 0
    export VOW_STORE_PASSWORD=sesame
    call a share --once --lease 60s --pulse 6s --ttl 1h x -- sh -c "$JOB"
    wait_for runs_are 1
    sleep 3
    touch go
    all_got 'by a' a
}

test_a_password_that_nobody_asks_for_is_told_by_the_doctor() {
    member || return 0
    export VOW_STORE="etcd://vow@127.0.0.1:$PORT1?timeout=10000"
    export VOW_STORE_PASSWORD=sesame
    vow lock x -- echo had
    expect_out had
    vow doctor
    expect_code 0
    expect_mark note password 'authentication is not enabled'
    hidden
}

test_the_manual_tells_the_same_rights_twice() {
    for page in vow-doctor.1 vow-store.7; do
        sed -n '/^etcdctl role add/,/^```/p' "$MANUAL/$page.scd" >"$T/$page"
        expect_lines 5 "$T/$page"
    done
    expect cmp "$T/vow-doctor.1" "$T/vow-store.7"
}

# ---- TLS --------------------------------------------------------------------

# over_tls [ARGUMENT...]: a member that also speaks TLS, on $TLS_PORT, as
# localhost.
over_tls() {
    built || return 1
    certificates
    TLS_PORT=$(free_port)
    cluster 1 --cert-file "$T/server.crt" --key-file "$T/server.key" "$@" ||
        return 1
}

test_tls_is_spoken_with_whom_the_authority_signed() {
    over_tls || return 0
    export VOW_STORE="etcds://localhost:$TLS_PORT?ca-file=$T/ca.crt"
    VOW_STORE="$VOW_STORE&timeout=10000"
    vow share --once --ttl 1h x -- head -c 60000 /dev/urandom
    expect_code 0
    expect_err
    expect test "$(wc -c <"$OUT")" -eq 60000
    mv "$OUT" "$T/kept"
    vow result x
    expect cmp "$T/kept" "$OUT"
    call a lock x -- sh -c "$JOB"
    wait_for runs_are 1
    call b lock x -- sh -c "$JOB"
    wait_for told_is x queue 1
    touch go
    all_got 'by a' a
    all_got 'by b' b
    of later
    vow doctor
    expect_code 0
    expect_mark ok encryption TLS
}

test_tls_with_a_stranger_is_refused() {
    over_tls || return 0
    tls="localhost:$TLS_PORT?$PATIENT"
    told_by_all certificate "etcds://$tls&ca-file=$T/other.crt"
    told_by_all certificate "etcds://$tls"
    told_by_all 127.0.0.1 "etcds://127.0.0.1:$TLS_PORT?$PATIENT&ca-file=$T/ca.crt"
    refused doctor --store "etcds://$tls&ca-file=$T/other.crt"
    expect_err_has certificate
    refused share --once x -- touch ran
}

# trusting CERTIFICATE ARGUMENT...: vow where that is what the system trusts; in
# a mount namespace of its own.
trusting() {
    mkdir -p "$T/trusted"
    cp "$1" "$T/trusted/$(openssl x509 -hash -noout -in "$1").0"
    cp "$1" "$T/trusted/ca-certificates.crt"
    shift
    inside 'exec unshare -rm sh -eu -c "
        mount --bind \"\$T/trusted\" /etc/ssl/certs
        exec \"\$VOW\" \"\$@\"" - "$@"' "$@"
}

# With ca-file the authorities of the system count for nothing.
test_a_ca_file_alone_is_trusted() {
    unshare -rm true 2>"$T/found" && [ -d /etc/ssl/certs ] || return 0
    over_tls || return 0
    tls="localhost:$TLS_PORT?timeout=10000"
    trusting "$T/ca.crt" status --store "etcds://$tls"
    expect_code 0
    expect_err
    trusting "$T/ca.crt" status --store "etcds://$tls&ca-file=$T/other.crt"
    expect_code 125
    expect_err_has certificate
}

# Also where the system would speak an older one.
test_tls_is_no_older_than_1_2() {
    built || return 0
    certificates
    TLS_PORT=$(free_port)
    printf '%s\n' 'openssl_conf = all' '[all]' 'ssl_conf = ssl' '[ssl]' \
        'system_default = old' '[old]' 'MinProtocol = TLSv1' \
        'CipherString = DEFAULT:@SECLEVEL=0' >"$T/openssl.cnf"
    mkfifo "$T/in"
    exec 9<>"$T/in" # a server ends its connection when it has no more to say
    for version in tls1_1 tls1_2; do
        OPENSSL_CONF=$T/openssl.cnf openssl s_server -accept "$TLS_PORT" \
            -cert "$T/server.crt" -key "$T/server.key" "-$version" \
            -cipher 'DEFAULT:@SECLEVEL=0' -quiet \
            >"$T/heard" 2>"$T/log" <&9 &
        SPEAKER=$!
        wait_for openssl s_client -connect "localhost:$TLS_PORT" \
            "-$version" -cipher 'DEFAULT:@SECLEVEL=0' </dev/null >"$T/found"
        OPENSSL_CONF=$T/openssl.cnf vow lock x \
            --store "etcds://localhost:$TLS_PORT?ca-file=$T/ca.crt&timeout=3000" \
            -- true
        expect_code 125
        kill "$SPEAKER"
        wait "$SPEAKER" 2>/dev/null || true
        case $version in
        tls1_1) expect_not grep -aq POST "$T/heard" ;;
        *) expect grep -aq POST "$T/heard" ;;
        esac
    done
}

test_a_member_may_want_our_certificate() {
    over_tls --client-cert-auth --trusted-ca-file "$T/ca.crt" || return 0
    good="etcds://localhost:$TLS_PORT?ca-file=$T/ca.crt"
    told_by_all "localhost:$TLS_PORT" "$good"
    of later
    export VOW_STORE="$good&cert-file=$T/client.crt&key-file=$T/client.key"
    VOW_STORE="$VOW_STORE&timeout=10000"
    vow share --fenced --ttl 1h x -- echo shared
    expect_code 0
    expect_out shared
    expect_err
    vow lock x -- echo locked
    expect_out locked
    vow doctor
    expect_code 0
    expect_mark ok password certificate
    # One that nobody has signed.
    told_by_all "localhost:$TLS_PORT" \
        "$good&cert-file=$T/other.crt&key-file=$T/other.key"
}

test_a_file_that_is_missing_is_told() {
    built || return 0
    for option in 'localhost?ca-file' 'localhost?cert-file' \
        'me@localhost?password-file'; do
        refused share --store "etcds://$option=$T/none" x -- touch ran
        expect_err_has "$T/none"
    done
}

test_tls_where_none_is_spoken_is_told() {
    over_tls || return 0
    told_by_all "127.0.0.1:$PORT1" "etcds://127.0.0.1:$PORT1"
    # And the other way round.
    told_by_all "127.0.0.1:$TLS_PORT" "etcd://127.0.0.1:$TLS_PORT"
}

test_a_plain_way_to_another_machine_is_noted() {
    cluster 1 || return 0
    here=$(hostname -I 2>/dev/null | cut -d ' ' -f 1)
    [ -n "$here" ] || return 0
    end_member 1
    rm -rf "$T/etcd.1"
    begin_members 1 -- --listen-client-urls \
        "http://127.0.0.1:$PORT1,http://$here:$PORT1"
    vow doctor --store "etcd://$here:$PORT1?timeout=10000"
    expect_code 1
    expect_mark note encryption 'another machine'
    expect_mark BAD password
}

# ---- the doctor -------------------------------------------------------------

test_a_member_is_looked_at() {
    cluster 1 || return 0
    keys '' >"$T/keys.before"
    vow doctor
    expect_code 0
    expect_err
    expect_mark ok store "etcd://127.0.0.1:$PORT1"
    expect_mark ok member "127.0.0.1:$PORT1: etcd 3\\.[0-9.]*, the leader"
    expect_mark note cluster '1 member'
    expect_mark ok space 'MB on disk'
    expect_mark ok rights 'below vow/'
    expect_mark ok 'round trip' ms
    expect_mark ok leases '1 s at least'
    expect_mark ok encryption 'this machine'
    expect_mark note password none
    expect test "$(wc -L <"$OUT")" -le 80
    # Every note tells what to do, and nothing is left behind.
    expect test "$(grep -c '^note' "$OUT")" -le "$(grep -c '^    ' "$OUT")"
    keys '' >"$T/keys.after"
    expect cmp "$T/keys.before" "$T/keys.after"
    vow doctor --json
    expect_json "$OUT"
    expect grep -q '"level":"warn","what":"cluster"' "$OUT"
}

test_three_members_are_looked_at() {
    cluster 3 || return 0
    vow doctor
    expect_code 0
    expect_err
    expect test "$(grep -c '^ok *member ' "$OUT")" -eq 3
    expect test "$(grep -c 'the leader$' "$OUT")" -eq 1
    expect_mark ok cluster '3 members, which survive the loss of 1'
    # One of them is named only.
    vow doctor --store "etcd://127.0.0.1:$PORT1?timeout=10000"
    expect_code 0
    expect_mark note cluster '3 members, .*; the address names 1'
    gone=$(($(leader) % 3 + 1))
    end_member "$gone"
    eval "port=\$PORT$gone"
    vow doctor
    expect_code 0
    expect_mark note member "127.0.0.1:$port.*refused"
    expect test "$(grep -c '^ok *member ' "$OUT")" -eq 2
}

test_a_full_member_is_bad() {
    cluster 1 --quota-backend-bytes 100000 || return 0
    fill=$(head -c 60000 /dev/zero | base64 -w0)
    for _ in 1 2 3 4 5 6 7 8; do
        ask "$PORT1" kv/put "{\"key\":\"eA==\",\"value\":\"$fill\"}" >"$T/found"
    done
    expect grep -q 'space exceeded' "$T/found"
    vow doctor
    expect_code 1
    expect_mark BAD space NOSPACE
    expect grep -q 'alarm disarm' "$OUT"
    expect_err
    refused lock x -- touch ran
    expect_err_has 'space exceeded'
}
