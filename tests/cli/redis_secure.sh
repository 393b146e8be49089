# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# redis_secure.sh - passwords that nobody sees, rights, and TLS.

# shellcheck source=/dev/null
. "$0/redis.sh"

PAGE=$0/../../docs/man/vow-doctor.1.scd

# ---- passwords --------------------------------------------------------------

# hidden: nothing that was written has it.
hidden() {
    expect_not grep -q sesame "$ERR" "$OUT"
}

test_a_password_may_be_in_a_file_or_the_environment() {
    server --requirepass sesame || return 0
    told_by_all password "unix:$SOCKET_OF?$PATIENT"
    (umask 077 && echo sesame >"$T/password")
    vow share --store "unix:$SOCKET_OF?$PATIENT&password-file=$T/password" \
        x -- echo 1
    expect_out 1
    expect_err
    export VOW_STORE_PASSWORD=sesame
    vow share x -- echo 2
    expect_out 2
    expect_err
    # What it runs needs it too.
    vow lock x -- "$VOW" share y -- echo 3
    expect_out 3
    expect_err
}

test_a_wrong_password_is_told_and_not_shown() {
    server --requirepass right || return 0
    export VOW_STORE_PASSWORD=sesame
    told_by_all 'password' "unix:$SOCKET_OF?$PATIENT"
    hidden
    refused lock x -- touch ran
    hidden
}

test_a_password_in_an_argument_is_refused() {
    server || return 0
    port=$(free_port)
    for store in "redis://me:sesame@127.0.0.1:$port" \
        "redis://:sesame@127.0.0.1:$port/1" \
        "rediss://me:sesame@127.0.0.1" 'redis-sentinel://a:sesame@h/m' \
        'redis:/me:sesame@h' 'redis:me:sesame@h' 'redis//me:sesame@h' \
        "unix:$SOCKET_OF?password=sesame"; do
        for words in 'share x -- touch ran' 'lock x -- touch ran' \
            'run --pool p -j1 -- touch ran' 'pipe -s a=touch' status \
            'result x' 'limit p'; do
            verb=${words%% *}
            # shellcheck disable=SC2046,SC2086 # a list of words
            refused "$verb" --store "$store" \
                $([ "$verb" = "$words" ] || echo ${words#* })
            hidden
            expect_err_has '?password-file='
            expect_err_has VOW_STORE_PASSWORD
        done
    done
}

test_a_password_in_the_variable_or_a_file_is_taken_and_never_shown() {
    PORT=$(free_port)
    server --port "$PORT" --requirepass sesame || return 0
    export VOW_STORE="redis://:sesame@127.0.0.1:$PORT?$PATIENT"
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    # Nobody who lists processes sees it.
    for file in $(left); do
        expect_not grep -aq sesame "${file%environ}cmdline"
    done
    touch go
    all_got 'by a' a
    mkdir -p "$XDG_CONFIG_HOME/vow"
    echo "--store=$VOW_STORE" >"$XDG_CONFIG_HOME/vow/config"
    unset VOW_STORE
    vow share --verbose --ttl 1h x -- echo 1
    expect_code 0
    expect_out 1
    hidden
    vow status
    expect_code 0
    expect_err
    hidden
    down
    export VOW_STORE="redis://:sesame@127.0.0.1:$PORT"
    vow share x -- echo 2
    one_warning
    hidden
    for address in 'redis://:ses/ame@127.0.0.1' 'redis://a:sesame@:x' \
        'redis://h?password=sesame' 'redis://a:sesame@h?nonsense=1' \
        'nosuch://a:sesame@h' 'redis:/a:sesame@h' 'redis:a:sesame@h' \
        'redis//a:sesame@h' 'a:sesame@h' ':sesame@h' 'redis://a:sesame' \
        'redis://a:sesame%40h' 'redis://a:sesame/h' 'rediss;//a:sesame@h' \
        'unix://a:sesame@h'; do
        note "$address"
        export VOW_STORE="$address"
        refused lock x -- touch ran
        hidden
        expect_not grep -q ses "$ERR"
    done
}

test_the_manual_tells_the_same_rights_twice() {
    for page in vow-doctor.1 vow-store.7; do
        sed -n '/^redis-cli ACL/,/[^\\]$/p' "${PAGE%/*}/$page.scd" >"$T/$page"
    done
    expect cmp "$T/vow-doctor.1" "$T/vow-store.7"
}

test_the_rights_of_the_manual_are_enough_for_all() {
    server || return 0
    sed -n '/^redis-cli ACL/,/[^\\]$/p' "$PAGE" |
        sed -e 's/\\\\$/\\/' -e 's/PASSWORD/sesame/' \
            -e "s|^redis-cli|redis-cli -s $SOCKET_OF|" >"$T/rights"
    expect test "$(wc -l <"$T/rights")" -gt 3
    sh -eu "$T/rights" >"$T/found"
    redis CONFIG SET requirepass other >"$T/found"
    export VOW_STORE="unix:$SOCKET_OF?$PATIENT&user=vow" VOW_STORE_PASSWORD=sesame
    call a share --follow x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share --follow x -- sh -c "$JOB"
    wait_for told_is x waiters 1
    touch go
    all_got 'by a' a b
    vow share --ttl 1h big -- head -c 100000 /dev/zero
    expect_err
    vow result big
    expect test "$(wc -c <"$OUT")" -eq 100000
    vow pipe --ttl 1h -s a='echo a' -s b=cat
    expect_err
    for words in 'cancel big' 'forget big' 'lock x -- true' \
        'map --pool p -j2 --rate 9/s true ::: 1 2' 'limit p -j 3' status; do
        note "$words"
        # shellcheck disable=SC2086 # a list of words
        vow $words
        expect_code 0 66
        expect_err
    done
}

# ---- TLS --------------------------------------------------------------------

# certificates: $T/ca.crt has signed $T/server.crt, of localhost, and
# $T/client.crt; $T/other.crt is somebody else.
certificates() {
    for who in ca other; do
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 \
            -nodes -days 2 -subj "/CN=$who" \
            -keyout "$T/$who.key" -out "$T/$who.crt" 2>/dev/null
    done
    echo 'subjectAltName=DNS:localhost' >"$T/names"
    for who in server client; do
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 \
            -nodes -subj "/CN=$who" \
            -keyout "$T/$who.key" -out "$T/$who.csr" 2>/dev/null
        openssl x509 -req -in "$T/$who.csr" -CA "$T/ca.crt" \
            -CAkey "$T/ca.key" -CAcreateserial -days 2 \
            -extfile "$T/names" -out "$T/$who.crt" 2>/dev/null
    done
}

# secure ARGUMENT...: the server also speaks TLS, on $PORT.
secure() {
    certificates
    PORT=$(free_port)
    server --tls-port "$PORT" --tls-cert-file "$T/server.crt" \
        --tls-key-file "$T/server.key" --tls-ca-cert-file "$T/ca.crt" "$@"
}

test_tls_is_spoken_with_whom_the_authority_signed() {
    secure || return 0
    good="rediss://localhost:$PORT?$PATIENT&ca-file=$T/ca.crt"
    mine="&cert-file=$T/client.crt&key-file=$T/client.key"
    # It wants to know us too.
    told_by_all "localhost:$PORT" "$good"
    also="rediss://127.0.0.1:$PORT?$PATIENT&ca-file=$T/ca.crt"
    also="$also&server-name=localhost"
    for store in "$good$mine" "$also$mine"; do
        export VOW_STORE="$store"
        vow share --ttl 1h x -- echo shared
        expect_code 0
        expect_out shared
        expect_err
        vow lock x -- echo locked
        expect_out locked
        expect_err
        vow forget x
    done
    vow share --ttl 1h x -- head -c 3000000 /dev/zero
    expect_err
    vow result x
    expect test "$(wc -c <"$OUT")" -eq 3000000
}

test_tls_with_a_stranger_is_refused() {
    secure --tls-auth-clients no || return 0
    tls="localhost:$PORT?$PATIENT"
    told_by_all certificate "rediss://$tls&ca-file=$T/other.crt"
    told_by_all certificate "rediss://$tls"
    told_by_all 127.0.0.1 "rediss://127.0.0.1:$PORT?$PATIENT&ca-file=$T/ca.crt"
}

test_a_file_that_is_missing_is_told() {
    server || return 0
    for option in ca-file cert-file password-file seal-file; do
        refused share --store "rediss://localhost?$option=$T/none" x -- \
            touch ran
        expect_err_has "$T/none"
    done
}

test_tls_where_none_is_spoken_is_told() {
    PORT=$(free_port)
    server --port "$PORT" || return 0
    told_by_all "127.0.0.1:$PORT" "rediss://127.0.0.1:$PORT"
}
