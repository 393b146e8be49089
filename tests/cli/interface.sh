# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# interface.sh - what scripts depend on: verbs, option names, exit codes, JSON
# keys, log fields and variables, byte for byte as in interface.txt. That file
# was written by the version before the messages were reworded; a line changes
# only with the changelog.

# shellcheck source=/dev/null
. "$0/store.sh"

# held_to PART: the standard input is that part of interface.txt.
held_to() {
    sed "s/^/$1: /" >"$T/found"
    grep "^$1: " "$0/interface.txt" >"$T/expected" || true
    diff "$T/expected" "$T/found" || fail "the interface has changed: $1"
}

# keys FILE: the keys of each line of JSON, in their order, each set once.
keys() {
    python3 -c '
import json, sys

def keys(value):
    if isinstance(value, dict):
        return "{" + " ".join(k + keys(v) for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + " ".join(sorted({keys(v) for v in value})) + "]"
    return ""

for row in sorted({keys(json.loads(line)) for line in open(sys.argv[1])}):
    print(row)' "$1"
}

test_verbs_and_options_have_their_names() {
    for verb in map run share lock pipe status limit result forget cancel \
        resolve doctor help completion; do
        "$VOW" "$verb" --help |
            sed -nE 's/^ +(-., )?(--[a-z-]+).*/'"$verb"' \1\2/p; s/^ +(-[a-zA-Z0-9])( .*)?$/'"$verb"' \1/p'
    done | held_to option
}

# code NUMBER WORDS...: the exit code of a call.
code() {
    label=$1
    shift
    status=0
    "$VOW" "$@" >"$T/code.out" 2>&1 </dev/null || status=$?
    echo "$label $status"
}

test_exit_codes_are_the_same() {
    {
        code done run -- true
        code run-fails run -- sh -c 'exit 7'
        code map-fails map sh -c 'exit 7' ::: a
        code map-stops map -e sh -c 'exit 7' ::: a b
        code usage map --no-such-option
        code no-verb no-such-verb
        code run-timeout run --timeout 10ms -- sleep 60
        code run-killed run -- sh -c 'kill -KILL $$'
        code run-not-found run -- /no/such/program
        code run-no-program run -- /dev/null
        code share-fails share x -- sh -c 'exit 7'
        code share-timeout share --timeout 10ms x -- sleep 60
        code share-killed share x -- sh -c 'kill -KILL $$'
        code share-not-found share x -- /no/such/program
        code share-no-store share --store=no-such-store:x x -- true
        code lock-fails lock x -- sh -c 'exit 7'
        code lock-busy lock x -- "$VOW" lock -n x -- true
        code lock-conflict lock x -- "$VOW" lock -n -E 9 x -- true
        code lock-waits lock x -- "$VOW" lock -w 10ms x -- true
        code no-result result x
        code forget-nothing forget x
        code cancel-nothing cancel x
        code status status
        code doctor doctor
    } | held_to exit
}

test_json_and_logs_have_their_fields() {
    call runs share --ttl 1h --lease 60s long -- sh -c '
        touch ready; until [ -e go ]; do sleep 0.02; done'
    wait_for test -e ready
    call waits share long -- true
    wait_for told_is long waiters 1
    "$VOW" share --ttl 1h kept -- echo kept
    "$VOW" share --fail-ttl 1h failed -- false || true
    call holds lock --lease 60s held -- sh -c '
        touch held; until [ -e go ]; do sleep 0.02; done'
    wait_for test -e held
    call works run --pool p -j1 --rate 9/s -- sh -c '
        touch works; until [ -e go ]; do sleep 0.02; done'
    wait_for test -e works
    "$VOW" status --json >status.json
    "$VOW" limit p --json >limit.json
    touch go
    settle runs waits holds works
    "$VOW" doctor --json >doctor.json
    "$VOW" map --json --log log.json --joblog log.tsv -k --retries 1 \
        'echo {}; test {} != b; test {} != c || kill -KILL $$' ::: a b c \
        >map.json 2>err || true
    {
        for file in status limit doctor map log; do
            keys "$file.json" | sed "s/^/$file /"
        done
        head -n 1 log.tsv | tr '\t' ' ' | sed 's/^/joblog /'
    } | held_to field
}

test_commands_have_their_variables() {
    {
        "$VOW" run -- env
        "$VOW" map sh -c env ::: a
        "$VOW" share x -- env
        "$VOW" lock x -- env
        "$VOW" run --pool p -j1 -- env
    } | sed -n 's/^\(VOW_[A-Z_]*\)=.*/\1/p' | grep -v '^VOW_TEST_\|^VOW_STORE$' |
        LC_ALL=C sort -u | held_to variable
}
