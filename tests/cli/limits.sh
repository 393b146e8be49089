# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# limits.sh - how many at once, and how many in a span of time.
#
# Times are checked in one direction only: no start may come too early. A start
# is noted by the job itself, so never before it happened, and is compared with
# a moment before vow could know of it. So a slow machine makes no failure.

# Jobs that note when they run; peak() reads it.
counted='echo +1 >>log; sleep 0.1; echo -1 >>log; : {}'

# at_most N OPTION...: of ten jobs, never more than N run at once.
at_most() {
    most=$1
    shift
    rm -f log
    vow map "$@" "$counted" ::: 1 2 3 4 5 6 7 8 9 10
    expect_code 0
    expect_lines 20 log
    expect test "$(peak log)" -le "$most"
}

# together N OPTION...: N jobs run at once; each waits for the others.
together() {
    count=$1
    shift
    rm -f here
    seq "$count" | COUNT=$count vow map "$@" 'echo {} >>here
        until [ "$(wc -l <here)" -ge "$COUNT" ]; do sleep 0.02; done'
    expect_code 0
    expect_lines "$count" here
}

# ---- at once ----------------------------------------------------------------

test_option_j_bounds_the_jobs_at_once() {
    at_most 1 -j1
    at_most 3 -j 3
}

test_option_j_lets_that_many_run() {
    together 5 -j5
    together 20 -j 20
}

test_option_capital_p_is_option_j() {
    at_most 2 -P2
    together 5 -P 5
}

test_without_option_j_there_are_as_many_jobs_as_processors() {
    at_most "$(nproc)"
    together "$(nproc)"
}

test_option_j_takes_percents_of_the_processors() {
    at_most $((($(nproc) + 1) / 2)) -j 50%
    together $((2 * $(nproc))) -j 200%
    at_most $((2 * $(nproc))) -j 200%
    together 1 -j 1%
}

test_option_j_takes_multiples_of_the_processors() {
    together $((3 * $(nproc))) -j 3x
    at_most "$(nproc)" -j 1x
}

test_more_slots_than_items_do_no_harm() {
    vow map -k -j 1000 echo ::: a b
    expect_code 0
    expect_out a b
}

test_weight_takes_several_slots() {
    at_most 2 -j4 --weight 2
    together 2 -j4 --weight 2
}

test_weight_may_come_from_a_column() {
    printf '%s\n' 'a 4' 'b 1' 'c 1' 'd 3' 'e 2' 'f 2' 'g 4' 'h 1' |
        vow map -j4 -C ' ' --weight '{2}' \
            'echo +{2} >>log; sleep 0.1; echo -{2} >>log; : {1}'
    expect_code 0
    expect_lines 16 log
    expect test "$(peak log)" -le 4
}

test_weight_from_a_column_lets_light_jobs_run_together() {
    printf '%s\n' 'a 2' 'b 1' 'c 1' | vow map -j4 -C ' ' --weight '{2}' \
        'echo {1} >>here
        until [ "$(wc -l <here)" -ge 3 ]; do sleep 0.02; done'
    expect_code 0
}

test_a_weight_above_the_slots_does_not_hang() {
    vow map -j2 --weight 5 echo ::: a
    expect_code 0 1 2 125
}

test_a_weight_that_is_no_number_is_told() {
    printf 'a x\n' | vow map -j2 -C ' ' --weight '{2}' echo '{1}'
    expect_failure
    expect_err_has x
}

test_a_huge_memfree_holds_jobs_back() {
    start map -j4 --memfree 1000000G "$counted" ::: 1 2 3 4
    sleep 1
    kill -TERM "$PID" 2>/dev/null || true
    finish
    [ ! -e log ] || expect test "$(peak log)" -le 1
}

test_a_small_memfree_lets_all_run() {
    vow map -k --memfree 1k echo ::: a b
    expect_code 0
    expect_out a b
    vow map -k --memfree 1M echo ::: a b
    expect_code 0
}

loaded() {
    read -r load _ </proc/loadavg
    case $load in
    0.0[0-4]) false ;;
    esac
}

test_a_small_load_holds_jobs_back() {
    sh -c 'while :; do :; done' &
    busy=$!
    for _ in $(seq 60); do
        ! loaded || break
        sleep 1
    done
    start map -j4 --load 0.01 "$counted" ::: 1 2 3 4 5 6
    sleep 1
    kill -TERM "$PID" 2>/dev/null || true
    finish
    kill "$busy"
    expect loaded
    [ ! -e log ] || expect test "$(peak log)" -le 1
}

test_a_great_load_lets_all_run() {
    vow map -k --load 100000 echo ::: a b
    expect_code 0
    expect_out a b
}

# ---- while it runs ----------------------------------------------------------

gated='touch ran.{}; until [ -e go.{} ]; do sleep 0.02; done'

test_usr1_allows_one_job_more() {
    start map -j1 "$gated" ::: a b c
    wait_for test -e ran.a
    sleep 0.2
    expect_not test -e ran.b
    kill -USR1 "$PID"
    wait_for test -e ran.b
    sleep 0.2
    expect_not test -e ran.c
    touch go.a go.b go.c
    finish
    expect_code 0
}

test_usr2_allows_one_job_less() {
    start map -j2 "$gated" ::: a b c
    wait_for test -e ran.a
    wait_for test -e ran.b
    kill -USR2 "$PID"
    sleep 0.2
    touch go.a
    sleep 0.4
    expect_not test -e ran.c
    touch go.b
    wait_for test -e ran.c
    touch go.c
    finish
    expect_code 0
}

test_usr2_ends_no_job() {
    start map -j2 "$gated; echo {}" ::: a b
    wait_for test -e ran.a
    wait_for test -e ran.b
    kill -USR2 "$PID"
    sleep 0.2
    touch go.a go.b
    finish
    expect_code 0
    expect_sorted a b
}

# ---- in a span of time ------------------------------------------------------

# never_early FILE BEFORE M W: line k of the sorted starts is no earlier than
# W ms after BEFORE for every M lines above it. Two milliseconds are for the
# clocks, which are not the same.
never_early() {
    index=0
    sort -n "$1" >"$T/starts"
    while read -r start; do
        after=$((start / 1000000 - $2))
        note "start $index came after $after ms"
        windows=$((index / $3))
        [ "$after" -ge $((windows * $4 - 2)) ] || fail 'that was too early'
        index=$((index + 1))
    done <"$T/starts"
}

stamped='date +%s%N >>starts; : {}'

test_rate_bounds_the_starts() {
    before=$(now_ms)
    vow map -j20 --rate 3/400ms "$stamped" ::: 1 2 3 4 5 6 7 8 9 10
    expect_code 0
    expect_lines 10 starts
    never_early starts "$before" 3 400
}

test_rate_bounds_the_starts_of_a_second() {
    before=$(now_ms)
    vow map -j20 --rate 4/s "$stamped" ::: 1 2 3 4 5 6 7 8 9
    expect_code 0
    never_early starts "$before" 4 1000
}

test_rate_bounds_a_burst_after_a_lull() {
    {
        echo first
        sleep 0.35
        now_ms >lull
        printf 'late\n%.0s' 1 2 3 4 5 6 7
    } | vow map -j20 --rate 3/400ms 'date +%s%N >>{}'
    expect_code 0
    expect_lines 7 late
    never_early late "$(cat lull)" 3 400
}

test_rate_counts_retries() {
    before=$(now_ms)
    vow map --rate 1/300ms --retries 3 --backoff 1ms..1ms "$stamped; exit 1" \
        ::: a
    expect_code 1
    expect_lines 4 starts
    never_early starts "$before" 1 300
}

test_rate_holds_after_a_stop() {
    mkfifo items
    {
        seq 4
        wait_for test -e stopped
        seq 5 12
    } >items &
    start map -j20 --rate 3/400ms -a items "$stamped"
    wait_for has_lines 3 starts
    kill -STOP "$PID"
    touch stopped
    sleep 1.5
    on=$(now_ms)
    kill -CONT "$PID"
    finish
    expect_code 0
    expect_lines 12 starts
    while read -r moment; do
        [ $((moment / 1000000)) -lt "$on" ] || echo "$moment"
    done <starts >late
    never_early late "$on" 3 400
}

test_rate_is_not_a_limit_of_jobs_at_once() {
    together 4 -j4 --rate 4/100ms
}

test_even_spreads_the_starts() {
    before=$(now_ms)
    vow map -j20 --rate 5/500ms --even "$stamped" ::: 1 2 3 4 5 6 7
    expect_code 0
    expect_lines 7 starts
    never_early starts "$before" 1 100
}

test_delay_keeps_starts_apart() {
    before=$(now_ms)
    vow map -j20 --delay 150ms "$stamped" ::: 1 2 3 4 5
    expect_code 0
    expect_lines 5 starts
    never_early starts "$before" 1 150
}

# A delay is between starts, whatever they weigh.
test_delay_goes_with_weights() {
    before=$(now_ms)
    vow map -j4 --weight 2 --delay 150ms "$stamped" ::: 1 2 3 4
    expect_code 0
    expect_err
    expect_lines 4 starts
    never_early starts "$before" 1 150
}

test_delay_goes_with_a_rate() {
    before=$(now_ms)
    vow map -j20 --rate 100/s --delay 150ms "$stamped" ::: 1 2 3
    expect_code 0
    expect_lines 3 starts
    never_early starts "$before" 1 150
}

test_run_takes_a_delay_between_tries() {
    before=$(now_ms)
    vow run --delay 300ms --retries 2 --backoff 1ms..1ms -- \
        sh -c 'date +%s%N >>starts; exit 1'
    expect_code 1
    expect_lines 3 starts
    never_early starts "$before" 1 300
}

test_rate_has_many_units() {
    for rate in 50/s 50/1s 100/m 10/500ms 100/h; do
        note "$rate"
        vow map --rate "$rate" true ::: a
        expect_code 0
        expect_err
    done
}

test_run_takes_a_rate() {
    before=$(now_ms)
    vow run --rate 1/300ms --retries 2 --backoff 1ms..1ms -- \
        sh -c 'date +%s%N >>starts; exit 1'
    expect_code 1
    never_early starts "$before" 1 300
}

# ---- under make -------------------------------------------------------------

# under_make JOBS RECIPE...: make with one target for each recipe. A token that
# is not given back is something that make complains of.
under_make() {
    jobs=$1
    shift
    number=0
    : >rules
    for recipe; do
        number=$((number + 1))
        printf 't%s:\n\t%s\n' "$number" "$recipe" >>rules
    done
    {
        printf 'all:'
        printf ' t%s' $(seq "$number")
        echo
        cat rules
    } >Makefile
    code=0
    COUNTED=$counted make "-j$jobs" >"$OUT" 2>"$ERR" || code=$?
    echo "exit $code" >"$STATUS"
    expect_not grep -qi token "$ERR"
}

test_make_bounds_the_jobs() {
    under_make 3 '+"$$VOW" map "$$COUNTED" ::: 1 2 3 4 5 6 7 8 9'
    expect_code 0
    expect_lines 18 log
    expect test "$(peak log)" -le 3
}

meet='echo {} >>here; until [ $(wc -l <here) -ge $COUNT ]; do sleep 0.02; done'

test_make_lets_its_number_of_jobs_run() {
    export MEET="$meet" COUNT=5
    under_make 5 '+"$$VOW" map "$$MEET" ::: 1 2 3 4 5'
    expect_code 0
    expect_lines 5 here
}

test_make_shares_its_number_among_several() {
    under_make 3 '+"$$VOW" map "$$COUNTED" ::: 1 2 3 4 5 6' \
        '+"$$VOW" map "$$COUNTED" ::: 1 2 3 4 5 6'
    expect_code 0
    expect_lines 24 log
    expect test "$(peak log)" -le 3
}

test_make_gets_its_tokens_back_after_a_failure() {
    under_make 4 '-+"$$VOW" map -e "exit {}" ::: 1 1 1 1 1' \
        '-+"$$VOW" map "exit {}" ::: 0 1 0 1 0' \
        '-+"$$VOW" map --timeout 300ms "sleep {}" ::: 60 60 60'
    expect_code 0
}

test_option_j_is_stronger_than_make() {
    export MEET="$meet" COUNT=6
    under_make 2 '+"$$VOW" map -j6 "$$MEET" ::: 1 2 3 4 5 6'
    expect_code 0
}

test_a_job_server_that_make_keeps_to_itself_is_no_error() {
    # Without the plus sign, make says where it is and closes it.
    under_make 3 '"$$VOW" map -k echo ::: a b c'
    expect_code 0
    sed 1d "$OUT" >rest
    expect_file rest a b c
}

test_make_without_option_j_has_no_job_server() {
    printf 'all:\n\t@+"$$VOW" map -k echo ::: a b\n' >Makefile
    make >"$OUT" 2>"$ERR"
    expect_out a b
    expect_err
}

# job_server TOKENS: as of make 4.4, a named pipe with these characters in it.
job_server() {
    mkfifo server
    exec 7<>server
    printf %s "$1" >&7
    export MAKEFLAGS="k -j3 --jobserver-auth=fifo:$PWD/server -- A=b"
}

tokens() {
    dd iflag=nonblock bs=99 count=1 <&7 2>/dev/null | fold -w 1 | sort |
        tr -d '\n'
}

test_a_job_server_in_a_fifo_bounds_the_jobs() {
    job_server xy
    at_most 3
    expect test "$(tokens)" = xy
}

test_a_job_server_in_a_fifo_lets_its_number_of_jobs_run() {
    job_server vwxyz
    together 6
    expect test "$(tokens)" = vwxyz
}

test_a_job_server_without_tokens_allows_one_job() {
    job_server ''
    at_most 1
}

test_a_job_server_gets_its_tokens_back_when_vow_is_killed() {
    job_server xy
    start map 'touch ran.{}; sleep 300' ::: 1 2 3 4
    wait_for test -e ran.1
    wait_for test -e ran.2
    wait_for test -e ran.3
    kill -TERM "$PID"
    finish
    expect_signal TERM
    expect test "$(tokens)" = xy
}

two_tokens_back() {
    back="$back$(tokens)"
    [ "${#back}" -eq 2 ]
}

test_a_job_server_gets_its_tokens_back_when_jobs_end() {
    job_server xy
    start map "$gated" ::: 1 2 3
    wait_for test -e ran.1
    wait_for test -e ran.2
    wait_for test -e ran.3
    expect test "$(tokens)" = ''
    touch go.2 go.3
    back=''
    wait_for two_tokens_back
    touch go.1
    finish
    expect_code 0
}

test_option_j_leaves_the_tokens_alone() {
    job_server xy
    start map -j5 "$gated" ::: 1 2 3 4 5
    wait_for test -e ran.5
    expect test "$(tokens)" = xy
    touch go.1 go.2 go.3 go.4 go.5
    finish
    expect_code 0
    expect test "$(tokens)" = ''
}

test_a_job_server_that_is_gone_is_no_error() {
    export MAKEFLAGS=" -j3 --jobserver-auth=fifo:$PWD/nothing"
    vow map -k echo ::: a b
    expect_code 0
    expect_out a b
    export MAKEFLAGS=' -j3 --jobserver-auth=98,99'
    vow map -k echo ::: a b
    expect_code 0
    expect_out a b
}

# ---- few descriptors --------------------------------------------------------

# with_files N ARGUMENT...: run vow with so many descriptors, none of which is
# inherited from the test but the first three. Sets `code`.
with_files() {
    as_shell vow "$@"
    code=$(sed 's/exit //' "$STATUS")
}

# as_shell vow|start N ARGUMENT...
# shellcheck disable=SC2016 # for the inner shell
as_shell() {
    how=$1 files=$2 program=$VOW
    shift 2
    VOW=/bin/sh
    "$how" -c 'ulimit -n "$0" && exec "$@"' "$files" "$program" "$@"
    VOW=$program
}

test_too_few_descriptors_are_told_at_once() {
    for n in 4 5 6 8 10 12 13 14 15 16 17; do
        note "$n"
        with_files "$n" map --retries 9 echo ::: a
        [ "$code" -ne 0 ] || continue
        expect_code 1 125
        expect grep -qi -e 'too few file descriptors' -e 'too many open' "$ERR"
    done
    with_files 4 map echo ::: a
    expect_code 125
    expect_err 'vow: too few file descriptors: 1 are free, and vow needs at least 8; raise the limit (ulimit -n)'
    with_files 4 help map
    expect_code 0
}

# find_fewest [OPTION...]: sets `files` to what one job at a time of vow map with
# these options needs, and no more; `log` is free for --log.
find_fewest() {
    code=1
    for n in $(seq 10 64); do
        [ "$code" -ne 0 ] || return 0
        rm -f log
        with_files "$n" map "$@" echo ::: a
    done
    expect_code 0
}

test_jobs_wait_for_descriptors_that_others_have() {
    find_fewest
    with_files "$files" map -j4 'sleep 0.05; echo {}' ::: 1 2 3 4 5 6
    expect_code 0
    expect_err
    expect_sorted 1 2 3 4 5 6
}

test_a_wait_for_descriptors_has_an_end() {
    find_fewest
    with_files "$files" map -j2 --deadline 1s --kill-seq KILL \
        'touch ran.{}; sleep 300' ::: 1 2
    expect_code 1
    expect_err_has "timed out: touch ran.'2'; sleep 300"
    expect_not test -e ran.2
    find_fewest --log log
    rm log
    as_shell start "$files" map -j2 -v --log log 'touch ran.{}; sleep 300' ::: 3 4
    wait_for test -e ran.3
    kill -TERM "$PID"
    finish
    expect_signal TERM
    expect_not test -e ran.4
    expect_lines 1 log
    expect_none_left
}
