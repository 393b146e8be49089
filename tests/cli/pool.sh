# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# pool.sh - limits that several processes share: map and run with --pool.
#
# As in limits.sh, from where never_early() is, no start may come too early;
# nothing is said of how late it may come.

# shellcheck source=/dev/null
. "$0/store.sh"
# shellcheck source=/dev/null
. "$0/limits.sh"

# hold CALLER [OPTION...]: has a place of p until the file go.CALLER is there.
HELD='echo $$ >"pid.$CALLER"; echo "$CALLER" >>order
until [ -e "go.$CALLER" ]; do sleep 0.02; done'
hold() {
    holder=$1
    shift
    call "$holder" run --pool p "$@" -- sh -c "$HELD"
}

# has CALLER...: these have had one, in this order.
has() {
    printf '%s\n' "$@" | cmp -s - order
}

# queued N: so many wait for one.
queued() {
    told_is p queue "$1"
}

# well CALLER...: they end with 0.
well() {
    for who; do
        settle "$who"
        of "$who"
        note "$who"
        expect_code 0
        expect_err
    done
}

# told_of POOL LIMITS CALLER: it ends with 0, and was told that other limits hold
# than it asked for.
told_of() {
    settle "$3"
    of "$3"
    expect_code 0
    expect_err "vow: pool '$1' has $2; vow limit $1 changes it"
}

COUNTED='echo +1 >>log; sleep 0.1; echo -1 >>log; : {}'
STAMPED='date +%s%N >>starts; : {}'
GATED='touch ran.{}; until [ -e go.{} ]; do sleep 0.02; done'
MEET='echo "$CALLER" >>here
until [ "$(wc -l <here)" -ge "$COUNT" ]; do sleep 0.02; done; : {}'

# ---- at once ----------------------------------------------------------------

test_a_pool_bounds_the_runs_of_many() {
    for i in 1 2 3 4 5 6 7 8; do
        call "c$i" run --pool p -j2 -- sh -c "$COUNTED"
    done
    well c1 c2 c3 c4 c5 c6 c7 c8
    expect_lines 16 log
    expect test "$(peak log)" -le 2
}

test_a_pool_lets_its_number_run() {
    export COUNT=4
    for who in a b c d; do
        call "$who" run --pool p -j4 -- sh -c "$MEET"
    done
    well a b c d
}

test_a_pool_bounds_the_jobs_of_many() {
    for who in a b c; do
        call "$who" map --pool p -j3 "$COUNTED" ::: 1 2 3 4 5
    done
    well a b c
    expect_lines 30 log
    expect test "$(peak log)" -le 3
}

test_a_pool_lets_its_number_of_jobs_run() {
    export COUNT=5
    call a map --pool p -j5 "$MEET" ::: 1 2 3
    call b map --pool p -j5 "$MEET" ::: 1 2
    well a b
}

test_map_and_run_share_a_pool() {
    hold a -j1
    wait_for has a
    call b map --pool p -j1 'echo b >>order; : {}' ::: 1
    wait_for queued 1
    expect_file order a
    touch go.a
    well a b
    expect_file order a b
}

test_pools_are_not_each_other() {
    hold a -j1
    wait_for has a
    vow run --pool q -j1 -- echo other
    expect_code 0
    expect_out other
    touch go.a
    well a
}

test_without_a_pool_nothing_is_shared() {
    hold a -j1
    wait_for has a
    vow map -j1 echo ::: alone
    expect_out alone
    touch go.a
    well a
}

test_the_command_is_as_without_a_pool() {
    echo in | vow run --pool p -j1 -- sh -c 'cat; echo bad >&2; exit 5'
    expect_code 5
    expect_out in
    expect_err bad
    vow map -k --pool p -j2 'echo {}; [ {} != b ]' ::: a b c
    expect_code 1
    expect_out a b c
}

test_who_comes_first_is_served_first() {
    hold a -j1
    wait_for has a
    hold b -j1
    wait_for queued 1
    hold c -j1
    wait_for queued 2
    touch go.a go.b go.c
    well a b c
    expect_file order a b c
}

test_the_limit_that_is_there_holds() {
    hold a -j1
    wait_for has a
    hold b -j5
    wait_for queued 1
    expect_file order a
    touch go.a go.b
    well a
    told_of 'p' '-j 1' b
}

# ---- weights ----------------------------------------------------------------

test_weights_count_in_the_pool() {
    weighty='echo +2 >>log; sleep 0.1; echo -2 >>log; : {}'
    call a map --pool p -j5 --weight 2 "$weighty" ::: 1 2 3 4
    call b map --pool p -j5 --weight 2 "$weighty" ::: 1 2 3 4
    well a b
    expect_lines 16 log
    expect test "$(peak log)" -le 4
}

test_weights_go_with_a_delay() {
    before=$(now_ms)
    vow map --pool p -j4 --weight 2 --delay 150ms "$STAMPED" ::: 1 2 3 4
    expect_code 0
    expect_err
    expect_lines 4 starts
    never_early starts "$before" 1 150
}

test_a_weight_above_the_limit_takes_all_of_it() {
    vow map --pool p -j2 --weight 5 echo ::: a b
    expect_code 0
    expect_sorted a b
}

# ---- by key -----------------------------------------------------------------

KEYED='echo +1 >>log.{1}; sleep 0.1; echo -1 >>log.{1}; : {2}'

test_each_key_has_its_own_places() {
    printf '%s\n' 'a 1' 'a 2' 'b 1' 'a 3' 'b 2' >items
    for who in c1 c2; do
        call "$who" map --pool 'h:{1}' -j1 -C ' ' -a items "$KEYED"
    done
    well c1 c2
    expect_lines 12 log.a
    expect_lines 8 log.b
    expect test "$(peak log.a)" -eq 1
    expect test "$(peak log.b)" -eq 1
}

test_keys_do_not_wait_for_each_other() {
    vow map --pool 'h:{}' -j1 'echo {} >>here
        until [ "$(wc -l <here)" -ge 3 ]; do sleep 0.02; done' ::: a b c
    expect_code 0
}

test_a_key_may_be_written_out() {
    call a run --pool h:one -j1 -- sh -c "$HELD"
    wait_for has a
    call b map --pool 'h:{}' -j1 'echo {} >>order' ::: one two
    wait_for has a two
    touch go.a
    well a b
    expect_file order a two one
}

test_a_pool_of_keys_is_told_by_its_name() {
    call a map --pool 'h:{}' -j3 'touch ran.{}; until [ -e go ]
        do sleep 0.02; done' ::: one two
    wait_for test -e ran.one
    wait_for test -e ran.two
    vow status h
    expect_code 0
    for line in 'h  *running 0/3  *queue 0' 'h:one  *running 1/3  *queue 0' \
        'h:two  *running 1/3  *queue 0'; do
        expect grep -qx "$line" "$OUT"
    done
    vow limit h -j 5
    expect_code 0
    vow limit h
    expect_out 'h  running 0/5  queue 0'
    touch go
    well a
}

# ---- in a span of time ------------------------------------------------------

test_a_rate_is_kept_by_many() {
    before=$(now_ms)
    for who in a b c; do
        call "$who" map --pool p -j20 --rate 6/400ms "$STAMPED" \
            ::: 1 2 3 4 5 6 7 8
    done
    well a b c
    expect_lines 24 starts
    never_early starts "$before" 6 400
}

feed() {
    echo first
    until [ -e lull ]; do sleep 0.02; done
    printf 'late\n%.0s' 1 2 3 4
}

# A bucket would be full now, and let nearly twice as many through.
test_a_rate_is_kept_by_many_after_a_lull() {
    for who in a b c; do
        mkfifo "in.$who"
        feed >"in.$who" &
        call "$who" map -a "in.$who" --pool p -j20 --rate 4/400ms \
            'date +%s%N >>{}'
    done
    wait_for has_lines 3 first
    sleep 0.35
    now_ms >before
    mv before lull
    well a b c
    expect_lines 12 late
    never_early late "$(cat lull)" 4 400
}

test_a_rate_is_kept_by_one_after_the_other() {
    before=$(now_ms)
    for _ in 1 2 3; do
        vow run --pool p --rate 2/1s -- sh -c "$STAMPED"
        expect_code 0
    done
    never_early starts "$before" 2 1000
}

test_a_rate_counts_those_that_were_killed() {
    before=$(now_ms)
    for _ in 1 2; do
        vow run --pool p --rate 1/1s -- sh -c "$STAMPED; kill -KILL \$PPID"
        expect_signal KILL
    done
    expect_lines 2 starts
    never_early starts "$before" 1 1000
}

test_a_rate_counts_retries() {
    before=$(now_ms)
    for who in a b; do
        call "$who" run --pool p --rate 1/200ms --retries 2 \
            --backoff 1ms..1ms -- sh -c "$STAMPED; exit 1"
    done
    settle a b
    expect_lines 6 starts
    never_early starts "$before" 1 200
}

test_a_rate_may_be_by_key() {
    before=$(now_ms)
    for who in c1 c2; do
        call "$who" map --pool 'h:{1}' -j20 --rate 1/300ms -C ' ' \
            'date +%s%N >>starts.{1}; : {2}' ::: 'a 1' 'b 1' 'a 2' 'b 2'
    done
    well c1 c2
    expect_lines 4 starts.a
    expect_lines 4 starts.b
    never_early starts.a "$before" 1 300
    never_early starts.b "$before" 1 300
}

test_both_limits_hold() {
    before=$(now_ms)
    for who in a b; do
        call "$who" map --pool p -j2 --rate 4/300ms "$STAMPED; $COUNTED" \
            ::: 1 2 3 4 5
    done
    well a b
    expect_lines 20 log
    expect test "$(peak log)" -le 2
    never_early starts "$before" 4 300
}

# ---- limits that change -----------------------------------------------------

test_a_limit_may_be_raised_while_they_run() {
    hold a -j1
    wait_for has a
    hold b -j1
    wait_for queued 1
    hold c -j1
    wait_for queued 2
    vow limit p -j 2
    expect_code 0
    wait_for has a b
    sleep 0.2
    expect_file order a b
    touch go.a go.b go.c
    well a b c
}

test_a_limit_may_be_raised_for_the_jobs_of_one_map() {
    start map --pool p -j1 "$GATED" ::: a b c
    wait_for test -e ran.a
    sleep 0.2
    expect_not test -e ran.b
    "$VOW" limit p -j 2
    wait_for test -e ran.b
    sleep 0.2
    expect_not test -e ran.c
    touch go.a go.b go.c
    finish
    expect_code 0
}

test_a_limit_may_be_lowered_while_they_run() {
    hold a -j2
    hold b -j2
    wait_for has_lines 2 order
    vow limit p -j 1
    expect_code 0
    hold c -j2
    wait_for queued 1
    touch go.a
    well a
    sleep 0.3
    # Nobody is ended, and nobody comes too early.
    expect_lines 2 order
    touch go.b
    wait_for has_lines 3 order
    touch go.c
    well b
    told_of 'p' '-j 1' c
}

test_a_rate_may_be_changed_while_they_wait() {
    vow run --pool p --rate 1/1h -- echo first
    expect_out first
    call b run --pool p --rate 1/1h -- echo second
    wait_for queued 1
    vow limit p --rate 100/s
    expect_code 0
    all_got second b
}

test_a_limit_may_be_there_before_anybody_comes() {
    vow limit p -j 2
    expect_code 0
    for i in 1 2 3 4 5; do
        call "c$i" run --pool p -- sh -c "$COUNTED"
    done
    well c1 c2 c3 c4 c5
    expect test "$(peak log)" -le 2
}

# ---- the end of a holder ----------------------------------------------------

test_a_killed_holder_gives_its_place_back() {
    hold a -j1 --lease 60s
    wait_for has a
    hold b -j1 --lease 60s
    wait_for queued 1
    killed=$(now_ms)
    send KILL a
    wait_for has a b
    took=$(($(now_ms) - killed))
    note "after $took ms"
    expect test "$took" -le "$AT_ONCE_MS"
    wait_for ended "$(cat pid.a)"
    touch go.b
    well b
}

test_a_killed_map_gives_all_its_places_back() {
    start map --pool p -j3 --lease 60s 'touch ran.{}; sleep 300' ::: 1 2 3
    wait_for test -e ran.1
    wait_for test -e ran.2
    wait_for test -e ran.3
    kill -KILL "$PID"
    finish
    export COUNT=3
    for who in a b c; do
        call "$who" run --pool p -j3 -- sh -c "$MEET"
    done
    well a b c
}

test_a_holder_that_is_told_to_end_gives_its_place_back() {
    hold a -j1 --lease 60s
    wait_for has a
    send TERM a
    settle a
    of a
    expect_signal TERM
    vow run --pool p -j1 -- echo mine
    expect_out mine
}

test_a_stopped_holder_loses_its_place() {
    hold a -j1 --lease "$LEASE" --pulse "$PULSE"
    wait_for has a
    hold b -j1 --lease "$LEASE" --pulse "$PULSE"
    wait_for queued 1
    send STOP a
    wait_for has a b
    send CONT a
    settle a
    of a
    expect_code 121
    wait_for ended "$(cat pid.a)"
    expect_not ended "$(cat pid.b)"
    touch go.b
    well b
}

test_a_place_held_longer_than_its_lease_is_not_lost() {
    hold a -j1 --lease "$LEASE" --pulse "$PULSE"
    wait_for has a
    hold b -j1 --lease "$LEASE" --pulse "$PULSE"
    wait_for queued 1
    sleep "$LONGER"
    expect has a
    touch go.a go.b
    well a b
}

test_a_process_in_the_background_holds_no_place() {
    vow run --pool p -j1 -- sh -c 'sleep 300 & :'
    expect_code 0
    vow run --pool p -j1 --deadline 60s -- echo mine
    expect_code 0
    expect_out mine
}

test_a_wait_for_a_retry_holds_no_place() {
    call a run --pool p -j1 --retries 1 -- \
        sh -c 'echo 300 >&"$VOW_RETRY_AFTER_FD"; touch tried; exit 75'
    wait_for test -e tried
    vow run --pool p -j1 -- echo mine
    expect_code 0
    expect_out mine
    send TERM a
    settle a
}

# ---- the end of a waiter ----------------------------------------------------

test_a_killed_waiter_is_passed_by() {
    hold a -j1 --lease 60s
    wait_for has a
    hold b -j1 --lease 60s
    wait_for queued 1
    hold c -j1 --lease 60s
    wait_for queued 2
    send KILL b
    settle b
    touch go.a go.c
    well a c
    expect_file order a c
}

test_a_signal_ends_the_wait_for_a_place() {
    hold a -j1
    wait_for has a
    for words in 'run --pool p -j1 -- touch ran' \
        'map --pool p -j1 touch ::: ran'; do
        # shellcheck disable=SC2086 # a list of words
        call b $words
        wait_for queued 1
        send TERM b
        settle b
        of b
        expect_signal TERM
        wait_for queued 0
    done
    expect_not test -e ran
    touch go.a
    well a
}

test_a_deadline_ends_the_wait_for_a_place() {
    hold a -j1
    wait_for has a
    vow run --pool p -j1 --deadline 300ms -- touch ran
    expect_code 124
    expect_not test -e ran
    wait_for queued 0
    touch go.a
    well a
}

# ---- bad usage --------------------------------------------------------------

test_bad_usage_is_told() {
    refused run --pool '' -j1 -- touch ran
    refused run --pool p -j x -- touch ran
    refused run --pool p -j 0 -- touch ran
    refused run --pool p --rate 50 -- touch ran
    expect_err_has 50/s
    refused run --pool p --lease soon -- touch ran
    refused run --pool p --pulse 5s --lease 1s -- touch ran
    for words in "--pool ''" "--pool p --lease soon"; do
        note "$words"
        eval "vow map $words touch ::: ran"
        expect_code 2
        expect_sentence
        expect_not test -e ran
    done
}

test_a_limit_at_once_of_one_run_needs_a_pool() {
    refused run -j4 -- touch ran
    expect_err_has --pool
}
