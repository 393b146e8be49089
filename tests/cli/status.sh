# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # commands have variables of their own
# status.sh - to look at what runs and what is there, and to change it: status,
# result, forget, cancel and limit.

# shellcheck source=/dev/null
. "$0/store.sh"

# line NAME: its line of the table.
line() {
    grep -E "^$1( |\$)" "$OUT" || fail "there is no line for $1"
}

# expect_line NAME WORD...: its line has these words.
expect_line() {
    line "$1" >"$T/line"
    shift
    for word; do
        grep -qwF -e "$word" "$T/line" || fail "expected $word in its line"
    done
}

# expect_told NAME KEY VALUE: in the lines of JSON.
expect_told() {
    expect_json "$OUT"
    value=$(told "$1" "$2")
    [ "$value" = "$3" ] || fail "$2 of $1 is $value, expected $3"
}

# ---- status -----------------------------------------------------------------

test_nothing_is_told_of_nothing() {
    vow status
    expect_code 0
    expect_err
    expect test "$(wc -l <"$OUT")" -le 1
    vow status --json
    expect_code 0
    expect_out
    expect_err
}

test_what_runs_is_told() {
    call a share --lease 50s x -- sh -c "echo \$VOW_FENCE >fence; $JOB"
    wait_for runs_are 1
    call b share x -- true
    call c share x -- true
    wait_for told_is x waiters 2
    vow status
    expect_code 0
    expect_err
    for word in NAME STATE RUNNER AGE PULSE WAITERS LEFT FENCE; do
        head -n 1 "$OUT" | grep -qw "$word" || fail "no column $word"
    done
    expect_lines 2 "$OUT"
    runner=$(uname -n):$(cat "$T/a.pid")
    expect_line x running "$runner" 2 "$(cat fence)"
    vow status --json
    expect_lines 1 "$OUT"
    expect_told x kind name
    expect_told x state running
    expect_told x runner "$runner"
    expect_told x waiters 2
    expect_told x fence "$(cat fence)"
    for key in age_ms pulse_ms left_ms; do
        expect test "$(told x "$key")" -ge 0
        expect test "$(told x "$key")" -le 50000
    done
    touch go
    all_got 'by a' a b c
}

test_what_is_there_is_told() {
    vow share --ttl 1h good -- true
    vow share --fail-ttl 1h bad -- sh -c 'exit 3'
    vow status
    expect_line good 'done'
    expect_line bad failed
    vow status --json
    expect_lines 2 "$OUT"
    expect_told good state 'done'
    expect_told good waiters 0
    expect test "$(told good left_ms)" -gt 3000000
    expect test "$(told good left_ms)" -le 3600000
    expect_told bad state failed
}

test_the_age_of_what_runs_grows() {
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    before=$(told x age_ms)
    sleep 0.2
    expect test "$(told x age_ms)" -ge $((before + 200))
    touch go
    settle a
}

test_what_has_ended_and_is_not_kept_is_not_told() {
    vow share x -- true
    vow lock y -- true
    vow status --json
    expect_out
}

test_what_expired_is_not_told() {
    vow share --ttl 200ms x -- true
    wait_for told_is x state ''
}

test_what_lost_its_runner_is_not_told_to_run() {
    call a share --lease 60s x -- sh -c "$JOB"
    wait_for runs_are 1
    send KILL a
    settle a
    vow status --json
    expect_not grep -q '"running"' "$OUT"
}

test_one_name_is_told() {
    vow share --ttl 1h x -- true
    vow share --ttl 1h xy -- true
    vow status x
    expect_code 0
    expect_lines 2 "$OUT"
    expect_line x 'done'
    vow status --json xy
    expect_lines 1 "$OUT"
    expect_told xy state 'done'
    vow status z
    expect_code 66
    expect_err
}

test_any_name_can_be_told() {
    newline=$(printf 'two\nlines')
    escape=$(printf 'red \033[31m')
    bytes=$(printf 'bytes \377\376')
    for name in 'a "b" \c' "$newline" "$escape" "$bytes" 'é ∀'; do
        vow share --ttl 1h "$name" -- true
    done
    vow status --json
    expect_lines 5 "$OUT"
    expect_json "$OUT"
    expect grep -qF '"a \"b\" \\c"' "$OUT"
    expect grep -qF 'two\nlines' "$OUT"
    expect grep -q 'é ∀' "$OUT"
    vow status
    expect_lines 6 "$OUT"
    expect_not grep -q "$(printf '\033')" "$OUT"
    expect iconv -f UTF-8 -t UTF-8 "$OUT"
}

test_pools_are_told() {
    call a run --pool api -j3 --rate 7/1h -- sh -c "$JOB"
    call b run --pool api -j3 --rate 7/1h -- sh -c "$JOB"
    wait_for runs_are 2
    vow status
    expect_code 0
    expect_line api running 2/3 rate 2/7 queue 0
    vow status --json
    expect_lines 1 "$OUT"
    expect_told api kind pool
    expect_told api running 2
    expect_told api limit 3
    expect_told api rate_used 2
    expect_told api rate 7
    expect_told api window_ms 3600000
    expect_told api queue 0
    touch go
    all_got "by a" a
    all_got "by b" b
}

test_locks_are_told() {
    call a lock x -- sh -c "$JOB"
    wait_for runs_are 1
    call b lock x -- true
    wait_for told_is x queue 1
    vow status
    expect_line x
    vow status --json
    expect_told x kind lock
    expect_told x running 1
    expect_told x limit 1
    touch go
    settle a b
}

test_looking_disturbs_nobody() {
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    for _ in 1 2 3 4 5; do
        vow status
        expect_line x running
    done
    expect told_is x waiters 0
    touch go
    all_got 'by a' a
}

# ---- result -----------------------------------------------------------------

test_a_result_is_shown() {
    vow share --fail-ttl 1h x -- sh -c 'printf out; printf err >&2; exit 42'
    vow result x
    expect_code 42
    expect_bytes out
    expect test "$(cat "$ERR")" = err
}

test_no_result_is_told() {
    vow result x
    expect_code 66
    expect_out
    expect_err
    call a share --ttl 1h x -- sh -c "$JOB"
    wait_for runs_are 1
    vow result x
    expect_code 66
    touch go
    settle a
    vow result x
    expect_code 0
    expect_out 'by a'
}

test_a_result_that_is_made_anew_is_shown_meanwhile() {
    vow share --ttl 1h x -- echo old
    call a share --ttl 1h --force x -- sh -c "$JOB"
    wait_for runs_are 1
    vow result x
    expect_code 0 66
    [ "$(cat "$STATUS")" = 'exit 66' ] || expect_out old
    touch go
    all_got 'by a' a
    vow result x
    expect_out 'by a'
}

# ---- forget -----------------------------------------------------------------

test_a_result_is_forgotten() {
    vow share --ttl 1h x -- echo 1
    vow share --ttl 1h y -- echo 1
    vow forget x
    expect_code 0
    expect_out
    expect_err
    vow result x
    expect_code 66
    vow result y
    expect_code 0
    vow share --ttl 1h x -- echo 2
    expect_out 2
}

test_a_failure_is_forgotten() {
    vow share --fail-ttl 1h x -- false
    vow forget x
    expect_code 0
    vow share --fail-ttl 1h x -- true
    expect_code 0
}

test_to_forget_nothing_is_no_error() {
    vow forget x
    expect_code 0
    expect_out
    expect_err
}

test_what_runs_is_not_forgotten() {
    call a share --ttl 1h x -- sh -c "$JOB"
    wait_for runs_are 1
    call b share x -- true
    wait_for told_is x waiters 1
    vow forget x
    expect_code 75
    touch go
    all_got 'by a' a b
    vow result x
    expect_out 'by a'
}

# ---- cancel -----------------------------------------------------------------

test_what_runs_is_canceled_for_all() {
    call a share --ttl 1h --fail-ttl 1h x -- sh -c "sleep 300 & $JOB"
    wait_for runs_are 1
    call b share x -- sh -c "$JOB"
    call c share --follow x -- sh -c "$JOB"
    wait_for told_is x waiters 2
    vow cancel x
    expect_code 0
    expect_out
    expect_err
    settle a b c
    for who in a b c; do
        of "$who"
        note "$who"
        expect_code 125
        expect_sentence
        expect_err_has cancel
    done
    # Nobody does it again, and nothing is kept.
    expect runs_are 1
    expect_none_left
    vow result x
    expect_code 66
    vow share --peek x
    expect_code 66
}

test_what_is_canceled_may_clean_up() {
    call a share x -- sh -c 'trap "touch clean; exit 0" TERM; touch ready
        while :; do sleep 0.02; done'
    wait_for test -e ready
    vow cancel x
    expect_code 0
    settle a
    of a
    expect_code 125
    expect test -e clean
}

test_what_was_canceled_may_run_again() {
    call a share x -- sh -c "$JOB"
    wait_for runs_are 1
    vow cancel x
    settle a
    of a
    vow share x -- echo again
    expect_code 0
    expect_out again
}

test_to_cancel_nothing_is_told() {
    vow cancel x
    expect_code 66
    vow share --ttl 1h x -- echo 1
    vow cancel x
    expect_code 66
    vow result x
    expect_code 0
    expect_out 1
}

# ---- limit ------------------------------------------------------------------

test_a_limit_is_set_and_shown() {
    vow limit api -j 20 --rate 50/s
    expect_code 0
    expect_out
    expect_err
    vow limit api
    expect_code 0
    expect_out 'api  running 0/20  rate 0/50 per 1s  queue 0'
    vow limit api -j 3
    vow limit api
    expect_out 'api  running 0/3  rate 0/50 per 1s  queue 0'
    vow limit api --rate 10/500ms
    vow limit api
    expect_out 'api  running 0/3  rate 0/10 per 500ms  queue 0'
}

test_one_limit_may_be_alone() {
    vow limit a -j 2
    vow limit a
    expect_out 'a  running 0/2  queue 0'
    vow limit b --rate 5/m
    vow limit b
    expect_out 'b  running 0  rate 0/5 per 1m  queue 0'
}

test_a_limit_is_shown_with_its_use() {
    call a run --pool api -j1 --rate 5/1h -- sh -c "$JOB"
    wait_for runs_are 1
    call b run --pool api -j1 --rate 5/1h -- sh -c "$JOB"
    wait_for told_is api queue 1
    vow limit api
    expect_out 'api  running 1/1  rate 1/5 per 1h  queue 1'
    touch go
    settle a b
    vow limit api
    expect_out 'api  running 0/1  rate 2/5 per 1h  queue 0'
}

test_a_pool_that_is_not_there_is_told() {
    vow limit nobody
    expect_code 66
    expect_out
    expect_err
}

# ---- bad usage --------------------------------------------------------------

test_bad_usage_is_told() {
    for verb in result forget cancel limit; do
        refused "$verb"
        refused "$verb" ''
        refused "$verb" a b
        refused "$verb" --nonsense a
        expect_err_has --nonsense
    done
    refused status a b
    refused status --jsn
    expect_err_has --json
    for value in x -1 0 '' 99999999999999999999; do
        refused limit p -j "$value"
    done
    for value in 5 x/s 0/s 5/0s 5/; do
        refused limit p --rate "$value"
        expect_err_has "$value"
    done
    vow limit p
    expect_code 66
}

test_help_tells_of_each() {
    for verb in status result forget cancel limit; do
        vow "$verb" --help
        expect_code 0
        expect_out_has "vow $verb"
        expect_err
        vow help "$verb"
        expect_code 0
        expect_out_has "vow $verb"
    done
    vow help
    for verb in share lock pipe status result forget cancel limit; do
        expect grep -qw "$verb" "$OUT"
    done
}
