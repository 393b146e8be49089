# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# shared_findings.sh - faults that were found once in the verbs that meet
# others: each test is the shortest way to one of them.

# shellcheck source=/dev/null
. "$0/store.sh"

config() {
    mkdir -p "$XDG_CONFIG_HOME/vow"
    printf '%s\n' "$@" >"$XDG_CONFIG_HOME/vow/config"
}

# a name of 43 letters, as a printed one has
WORD=abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQ

LONG='head -c 130000 /dev/zero | tr "\0" a'

# A name that would turn a terminal red, and how it is shown.
NASTY=$(printf 'a\n\033[31mb')
SHOWN='a\n\x1b[31mb'

# ---- once -------------------------------------------------------------------

# begin_once: a runs x, b waits for it.
begin_once() {
    for who in a b; do
        call "$who" share --once x -- sh -c "$JOB"
        wait_for told_is x state running
    done
    wait_for told_is x waiters 1
}

# expect_doubt: a has begun it, nobody else does, until somebody has found out.
expect_doubt() {
    settle b
    of b
    expect_code 125
    expect_sentence
    expect_err_has 'in doubt'
    expect_err_has 'vow resolve --retry x'
    expect told_is x state doubt
    vow share --once x -- touch ran
    expect_code 125
    expect_not test -e ran
    expect runs_are 1
    vow forget x
    vow share --once x -- touch ran
    expect_code 0
    expect test -e ran
}

test_what_runs_once_is_in_doubt_when_its_runner_is_told_to_end() {
    begin_once
    send TERM a
    settle a
    of a
    expect_signal TERM
    expect_doubt
}

test_what_runs_once_is_in_doubt_when_it_is_canceled() {
    begin_once
    "$VOW" cancel x
    settle a
    of a
    expect_code 125
    expect_sentence
    expect_err_has 'in doubt'
    expect_doubt
}

test_what_runs_once_and_never_began_is_in_no_doubt() {
    vow share --once x -- no-such-command
    expect_code 127
    vow share --once x -- echo hello
    expect_code 0
    expect_out hello
}

test_what_runs_once_and_writes_too_much_is_in_no_doubt() {
    vow share --once --max-output 1K x -- yes
    expect_code 125
    vow share --once x -- echo hello
    expect_out hello
}

test_once_is_stronger_than_fenced() {
    for options in '--once --fenced' '--fenced --once'; do
        # shellcheck disable=SC2086 # a list of words
        vow share --ttl 1h --force $options x -- true
        expect_code 0
        expect told_is x mode once
    done
}

# ---- canceled ---------------------------------------------------------------

# It ends when the file go is there.
SLOW_END='trap "touch ending; until [ -e go ]; do sleep 0.02; done
echo end >>log; exit" TERM
echo begin >>log; touch ready; sleep 300 & wait'
GRACE='--kill-seq TERM,100s,KILL'

test_what_is_canceled_has_ended_before_the_next_begins() {
    # shellcheck disable=SC2086 # an option with its value
    call a share $GRACE x -- sh -c "$SLOW_END"
    wait_for test -e ready
    "$VOW" cancel x
    wait_for test -e ending
    call b share x -- sh -c 'echo next >>log'
    wait_for told_is x waiters 1
    touch go
    settle a b
    expect_file log begin end
    vow share x -- sh -c 'echo next >>log'
    expect_code 0
    expect_file log begin end next
}

test_a_step_that_is_canceled_has_ended_before_the_next_begins() {
    # shellcheck disable=SC2086 # an option with its value
    call a pipe $GRACE -s one="$SLOW_END"
    wait_for test -e ready
    "$VOW" cancel one
    wait_for test -e ending
    expect told_is one state running
    touch go
    settle a
    of a
    expect_err "vow pipe: step 'one' was canceled"
    expect_file log begin end
}

# ---- names as status shows them ---------------------------------------------

test_a_command_line_is_a_name_for_all() {
    vow share --argv --ttl 1h -- echo a b
    vow result 'echo a b'
    expect_code 0
    expect_out 'a b'
    vow forget 'echo a b'
    vow result 'echo a b'
    expect_code 66
}

test_a_step_is_a_name_for_all() {
    vow pipe --ttl 1h -s one='echo 1' -s two=cat
    vow result two
    expect_code 0
    expect_out 1
    call a pipe -s slow='touch ready; sleep 300'
    wait_for test -e ready
    vow cancel slow
    expect_code 0
    settle a
}

test_one_of_several_names_must_be_told() {
    for value in 1 2; do
        A=$value vow share --env A --ttl 1h x -- echo "$value"
    done
    for verb in result forget cancel; do
        vow "$verb" x
        expect_code 65
        expect_err "vow $verb: 2 names are shown as 'x': say the id \
(vow status --json x)"
    done
    id=$("$VOW" status --json x | sed -n '1s/.*"id":"\([^"]*\)".*/\1/p')
    vow forget -- "$id"
    expect_code 0
    vow result x
    expect_code 0
    # The word itself comes first.
    A=3 vow share --env A --ttl 1h x -- echo 3
    vow share --ttl 1h x -- echo 4
    vow result x
    expect_out 4
}

test_a_word_that_looks_like_a_printed_name_is_a_word() {
    vow share --ttl 1h "$WORD" -- echo word
    vow result "$WORD"
    expect_code 0
    expect_out word
    vow forget "$WORD"
    vow result "$WORD"
    expect_code 66
}

# ---- how it is said ---------------------------------------------------------

test_memory_is_no_store_for_commands() {
    for words in 'share x --' 'lock x' 'run --pool p -j1'; do
        # shellcheck disable=SC2086 # a list of words
        refused ${words%% *} --store memory: ${words#* } touch ran
        expect_err_has 'use file:DIR'
    done
    refused map --store memory: --pool p -j1 touch ::: ran
    VOW_STORE=memory: refused status
    VOW_STORE=memory: refused share --if-store-down run x -- touch ran
}

test_a_command_behind_argv_may_have_dashes() {
    vow share --argv --ttl 1h -- printf -- '%s\n' -v
    expect_code 0
    expect_out -v
    refused share --argv x -- touch ran
    refused share x --argv -- touch ran
}

test_a_name_may_begin_with_a_dash() {
    vow share --ttl 1h -- -x -- echo hello
    expect_code 0
    expect_out hello
    vow share --ttl 1h -- -x -- echo not run
    expect_out hello
    vow result -- -x
    expect_out hello
}

test_a_long_name_is_cut_for_the_command() {
    for verb in share lock; do
        vow "$verb" "$(sh -c "$LONG")" -- sh -c 'echo "${#VOW_NAME}"'
        expect_code 0
        expect_out 255
    done
}

test_what_needs_the_store_does_not_run_without_it() {
    for mode in fenced once; do
        refused share --$mode --if-store-down run x -- touch ran
        expect_err_has --if-store-down
    done
    refused pipe --fenced --if-store-down run -s one='touch ran'
}

test_option_n_does_not_wait_for_the_store() {
    export VOW_STORE="file:$T/plain/store"
    touch "$T/plain"
    vow share -n --if-store-down wait x -- touch ran
    expect_code 75
    expect_sentence
    vow share -n -E 9 --if-store-down wait x -- touch ran
    expect_code 9
    expect_not test -e ran
}

test_pools_are_not_named_like_locks() {
    for name in lock slots lock:x slots:x; do
        refused run --pool "$name" -j1 -- touch ran
        expect_err_has "${name%%:*}"
    done
    refused limit lock -j 3
    refused limit slots -j 3
}

test_slots_that_are_others_than_said_are_told() {
    vow lock x --slots 2 -- "$VOW" lock x --slots 3 -- echo in
    expect_code 0
    expect_out in
    expect_err "vow: slots 'x' have -j 2; vow limit slots:x changes it"
    vow lock x --slots 2 -- "$VOW" lock x --slots 2 -- echo in
    expect_err
}

test_no_message_shows_what_a_terminal_would_obey() {
    vow share -v "$NASTY" -- true
    expect_lines 1 "$ERR"
    expect_err_has "vow: $SHOWN: ran"
    vow share --once "$NASTY" -- sh -c 'kill -KILL $PPID; sleep 300'
    vow share --once "$NASTY" -- touch ran
    expect_code 125
    expect_sentence
    expect_err_has "$SHOWN is in doubt"
    # What to do can be copied.
    word=$(sed 's/.*--retry \(-- \)*\(.*\) (or .*/\2/' "$ERR")
    "$VOW" resolve --retry -- "$word"
    vow share --once "$NASTY" -- true
    expect_code 0
    refused limit "$NASTY:key" -j 3
    vow pipe -v -s "$NASTY=true"
    expect_lines 1 "$ERR"
    vow forget "$NASTY" "$NASTY"
    expect_code 125
    expect_sentence
}

test_a_command_is_shown_so_that_it_can_be_copied() {
    item=$(printf 'a\nb')
    vow map -v --exec true ::: "$item"
    expect_lines 3 "$ERR"
    expect_err_has "vow: true 'a"
}

test_what_was_given_up_is_told_with_what_to_do() {
    for _ in 1 2; do
        vow share --takeovers 0 x -- sh -c 'kill -KILL $PPID; sleep 300'
    done
    expect_code 125
    expect_sentence
    expect_err_has 'vow forget x, or --force'
    vow share --takeovers 0 --force x -- echo hello
    expect_code 0
    expect_out hello
}

# ---- pipe -------------------------------------------------------------------

test_a_step_that_never_ran_has_no_role() {
    inside 'exec "$VOW" pipe -v --role-fd 3 "$@" 3>role' \
        -s one='exit 4' -s two='touch ran'
    expect_code 4
    expect_not test -e ran
    expect_json role
    expect grep -q '"role":"ran","step":"one"' role
    expect has_line role '{"role":"none","step":"two","fence":0,"runner":""}'
    expect_err_has 'two: not run'
}

test_errors_of_a_pipeline_name_the_step() {
    for options in --ttl=1h --stream; do
        vow pipe "$options" --max-output 1K -s one='echo x' -s much='exec yes' \
            -s three=cat
        expect_code 125
        expect_err_has "step 'much'"
        # With --stream, `three` may have had and shown some lines before.
        [ "$options" != --stream ] || sed -i '/^y$/d' "$OUT"
        expect_sentence
    done
    for _ in 1 2; do
        vow pipe --takeovers 0 -s one='echo x' \
            -s two='kill -KILL $PPID; sleep 300'
    done
    expect_code 125
    expect_err_has "step 'two'"
    expect_err_has --force
}

# ---- the file with options --------------------------------------------------

test_all_verbs_take_from_the_file_what_they_know() {
    config 'timeout 200ms' 'kill-seq KILL'
    for verb in 'share x --' 'lock x --' 'run --'; do
        # shellcheck disable=SC2086 # a list of words
        vow $verb sleep 300
        expect_code 124
    done
    vow pipe -s one='sleep 300'
    expect_code 124
    vow map sleep ::: 300
    expect_code 1
    expect_err_has 'timed out'
    config wait=100ms
    vow lock x -- "$VOW" lock x -- touch ran
    expect_code 75
    # What is said is stronger.
    config 'timeout 200ms'
    vow run --timeout 1h -- sleep 0.5
    expect_code 0
}

test_what_is_of_a_pool_in_the_file_is_not_for_those_without() {
    config "store file:$T/other" 'lease 5s' 'jobs 3'
    vow run -- echo a
    expect_code 0
    expect_out a
    expect_err
    vow map -k echo ::: a b
    expect_code 0
    expect_err
    expect_not test -e "$T/other"
    expect_not test -e "$T/store"
}

test_the_number_of_jobs_may_stand_in_the_file() {
    config 'jobs 1'
    vow map 'echo +1 >>log; sleep 0.1; echo -1 >>log; : {}' ::: a b c
    expect test "$(peak log)" -eq 1
}

test_an_option_that_is_none_is_told_by_all() {
    config '' 'nonsense 5'
    for words in 'share x --' 'lock x --' 'run --'; do
        # shellcheck disable=SC2086 # a list of words
        refused $words touch ran
        expect_err_has "config:2"
    done
    refused pipe -s one='touch ran'
    vow map touch ::: ran
    expect_code 2
    expect_sentence
    expect_err_has "config:2"
}

# As root, who may enter all, we are nobody for this.
test_a_file_that_is_out_of_reach_is_not_there() {
    mkdir -p "$T/closed/vow"
    echo nonsense >"$T/closed/vow/config"
    chmod 0 "$T/closed"
    as='env XDG_CONFIG_HOME='$T/closed
    [ "$(id -u)" != 0 ] ||
        as="setpriv --reuid 65534 --regid 65534 --clear-groups $as"
    # shellcheck disable=SC2086 # a list of words
    if $as test -x "$VOW"; then
        for words in 'run' 'share x'; do
            inside "cd /; exec $as \"\$VOW\" $words -- echo hello"
            expect_code 0
            expect_out hello
            expect_not grep config "$ERR"
        done
    fi
    chmod 700 "$T/closed"
}
