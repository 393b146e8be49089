# SPDX-License-Identifier: MIT
# shellcheck shell=dash
# doctor.sh - looking at the store: folders, and servers of Redis.

# shellcheck source=/dev/null
. "$0/store.sh"

PAGE=$0/../../docs/man/vow-doctor.1.scd

# expect_mark MARK WHAT [TEXT]: its line has this mark, and this text.
expect_mark() {
    grep -qE "^$1 +$2 .*${3-}" "$OUT" || fail "expected $1 for $2: ${3-}"
}

# ---- folders ----------------------------------------------------------------

test_a_folder_is_looked_at() {
    vow doctor
    expect_code 0
    expect_err
    expect_mark ok store "file:$T/store"
    expect_mark ok folder "$T/store, of user $(id -u), mode 0700"
    expect_mark ok 'file system' 'MB free'
    expect_mark ok sqlite '[0-9]\.'
    expect_mark ok log 'MB'
    expect_mark ok damage none
    expect_mark ok processes '0 take part'
}

test_processes_that_take_part_are_counted() {
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    vow doctor
    expect_mark ok processes '1 take part'
    touch go
    settle a
}

test_a_folder_that_others_may_enter_is_refused() {
    vow share x -- true
    chmod 755 "$T/store"
    vow doctor
    expect_code 125
    expect_sentence
    expect_err_has 'chmod 700'
}

test_findings_for_programs_are_json() {
    vow doctor --json
    expect_code 0
    expect_lines 7 "$OUT"
    expect_json "$OUT"
    expect test "$(grep -c '"level":"good"' "$OUT")" -ge 6
    expect grep -q "\"what\":\"store\",\"says\":\"file:$T/store\"" "$OUT"
}

test_what_is_no_store_is_told() {
    for address in memory: nonsense "file:$T/none/none"; do
        refused doctor --store "$address"
    done
    refused doctor word
    refused doctor --nonsense
}

# ---- Redis ------------------------------------------------------------------

# server ARGUMENT...: one that listens on $T/redis. False if there is none, or
# vow was built without.
server() {
    command -v redis-server >"$T/found" || return 1
    # It overwrites the mark that tests are found by: so it ends with the shell.
    setpriv --pdeathsig KILL redis-server --port 0 --unixsocket "$T/redis" \
        --dir "$T" --save '' --appendonly no --daemonize no "$@" \
        >"$T/log" 2>&1 &
    wait_for redis PING
    export VOW_STORE="unix:$T/redis?$PATIENT"
    vow doctor
    ! grep -q 'no store on Redis' "$ERR"
}

redis() {
    redis-cli -s "$T/redis" "$@" >>"$T/log" 2>&1
}

test_a_server_is_looked_at() {
    server || return 0
    expect_code 0
    expect_err
    expect_mark ok store "unix:$T/redis"
    expect_mark ok server 'standalone, master'
    expect_mark ok eviction noeviction
    expect_mark note disk 'nothing is kept'
    expect_mark ok rights all
    expect_mark ok password socket
    # What to do is told, in lines that fit.
    expect grep -q '^  *.*appendonly yes' "$OUT"
    expect test "$(wc -L <"$OUT")" -le 80
    vow doctor --json
    expect_json "$OUT"
    expect grep -q '"level":"warn","what":"disk"' "$OUT"
}

test_a_server_that_throws_keys_away_is_bad() {
    server --maxmemory 50mb --maxmemory-policy allkeys-lru || return 0
    expect_code 1
    expect_err
    expect_mark BAD eviction allkeys-lru
    expect grep -q '^  *.*noeviction' "$OUT"
    redis CONFIG SET maxmemory-policy noeviction
    vow doctor
    expect_code 0
}

test_a_server_that_is_full_is_bad() {
    server || return 0
    redis CONFIG SET maxmemory 1
    vow doctor
    expect_code 1
    expect_mark BAD memory
    expect_mark BAD writes OOM
}

test_a_server_that_is_down_is_told_in_a_sentence() {
    server || return 0
    vow doctor --store "unix:$T/nothing"
    expect_code 125
    expect_sentence
    expect_err_has "$T/nothing"
}

# The line of the manual, with this socket and password.
give_rights() {
    sed -n '/^redis-cli ACL/,/[^\\]$/p' "$PAGE" |
        sed -e 's/\\\\$/\\/' -e 's/PASSWORD/sesame/' \
            -e "s|^redis-cli|redis-cli -s $T/redis|" >"$T/rights"
    expect test "$(wc -l <"$T/rights")" -gt 3
    sh -eu "$T/rights" >>"$T/log"
    (umask 077 && echo sesame >"$T/password")
    export VOW_STORE="unix:$T/redis?$PATIENT&user=vow"
    VOW_STORE="$VOW_STORE&password-file=$T/password"
}

test_the_rights_of_the_manual_are_enough() {
    server || return 0
    give_rights
    redis ACL SETUSER default off || true
    vow doctor
    expect_code 0
    expect_err
    expect_mark ok rights all
    expect_mark ok password vow
    expect_mark note eviction 'not allowed to see'
    expect_not grep -q sesame "$OUT"
    vow share --ttl 1h x -- echo shared
    expect_out shared
    expect_err
    vow share --ttl 1h x -- echo again
    expect_out shared
    vow lock x -- echo locked
    expect_out locked
    vow map --pool api --rate 100/s -j 2 echo ::: a b c
    expect_sorted a b c
    expect_err
    vow status
    expect_code 0
    expect_out_has api
    vow forget x
    expect_code 0
    expect_err
}

# Each of those that the manual lists.
test_a_right_that_is_missing_is_named() {
    server || return 0
    give_rights
    rights=$(grep -o '+[a-z]*' "$T/rights" | tr -d +)
    expect test "$(echo "$rights" | wc -l)" -gt 30
    for right in $rights; do
        note "$right"
        redis ACL SETUSER vow "-$right"
        vow doctor
        case $right in
        role | eval | subscribe) # of the greeting
            expect_code 125
            expect_err_has "$right"
            ;;
        scan)
            expect_code 0
            expect_mark note rights SCAN
            ;;
        *)
            expect_code 1
            expect_mark BAD rights "$(echo "$right" | tr a-z A-Z)"
            expect_err
            ;;
        esac
        redis ACL SETUSER vow "+$right"
    done
}
