# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# bounded.sh - what is without end outside takes little room inside.

million=1000000

# feed_lines COUNT: that many short lines, through the pipe `lines`.
feed_lines() {
    mkfifo lines
    yes | head -n "$1" >lines &
}

test_a_million_lines_take_little_memory() {
    feed_lines "$million"
    start map -j2 -n 100000 -a lines sh -c 'echo $# >>counts' sh
    watch_memory
    expect_code 0
    expect_lines 10 counts
    expect test "$(sort -u counts)" -eq 100000
    expect_small
}

test_a_dry_run_of_a_million_lines_takes_little_memory() {
    feed_lines "$million"
    mkfifo commands
    wc -l <commands >count &
    counter=$!
    OUT=$PWD/commands
    start map --dry-run -a lines echo
    OUT=/dev/null
    watch_memory
    wait "$counter"
    expect_code 0
    expect_file count "$million"
    expect_small
}

test_endless_input_waits_behind_a_slow_job() {
    mkfifo lines
    yes "$(head -c 1000 /dev/zero | tr '\0' x)" >lines 2>/dev/null &
    start map -j1 --stop-after 3s -a lines 'sleep 300; : {}'
    watch_memory
    expect_small
}

test_columns_and_headers_take_little_memory() {
    mkfifo lines
    {
        echo a,b
        yes x,y | head -n 1000000
    } >lines &
    start map --dry-run -C , --header -a lines echo '{b}' '{a}'
    watch_memory
    expect_code 0
    expect_lines 1000000 "$OUT"
    expect_small
}

test_a_product_of_lists_takes_little_memory() {
    seq 1000 >thousand
    start map --dry-run echo :::: thousand :::: thousand
    watch_memory
    expect_code 0
    expect_lines 1000000 "$OUT"
    expect_small
}

test_great_output_takes_little_memory() {
    mkfifo bytes
    wc -c <bytes >count &
    counter=$!
    OUT=$PWD/bytes
    start map -j2 'head -c 200000000 /dev/zero; : {}' ::: a b
    OUT=/dev/null
    watch_memory
    wait "$counter"
    expect_code 0
    expect_file count 400000000
    expect_small
}

# Two bytes per character: many a chunk ends within one.
test_great_output_in_json_takes_little_memory() {
    mkfifo json
    tr -d '\n' <json | wc -c >count &
    counter=$!
    OUT=$PWD/json
    start map -j2 --json 'yes {} | tr -d "\n" | head -c 30000001' ::: aé é
    OUT=/dev/null
    watch_memory
    wait "$counter"
    expect_code 0
    read -r bytes <count
    expect test "$bytes" -ge 60000002
    expect test "$bytes" -le 60001000
    expect_small
}

test_a_line_without_end_takes_little_memory() {
    mkfifo bytes
    wc -c <bytes >count &
    counter=$!
    OUT=$PWD/bytes
    start map --output line 'head -c 50000000 /dev/zero; : {}' ::: a
    OUT=/dev/null
    watch_memory
    wait "$counter"
    expect_code 0
    read -r bytes <count
    expect test "$bytes" -ge 50000000
    expect_small
}

test_order_behind_a_slow_first_job_takes_little_memory() {
    seq 300 >items
    start map -k -j2 -a items 'echo {}; [ {} != 1 ] || sleep 3
        head -c 100000 /dev/zero | tr "\000" x; echo'
    watch_memory
    expect_code 0
    expect_small
    grep '[0-9]' "$OUT" >order
    cmp items order || fail 'the order is wrong'
    expect test "$(wc -c <"$OUT")" -eq $((300 * 100001 + $(wc -c <items)))
}

test_order_behind_many_short_jobs_takes_little_memory() {
    seq 3000 >items
    start map -k -j2 -a items 'echo {}; [ {} != 1 ] || sleep 5'
    watch_memory
    expect_code 0
    expect_small
    cmp items "$OUT" || fail 'the order is wrong'
}

# The items are long, so that whoever keeps them all is found out.
test_many_failures_are_summed_up() {
    line=$(head -c 10000 /dev/zero | tr '\0' x)
    yes "$line" | head -n 3000 >items
    start map -j2 -a items false
    watch_memory
    expect_code 1
    expect_small
    expect test "$(wc -c <"$ERR")" -le 1000000
    expect test "$(wc -l <"$ERR")" -le 200
    expect grep -q '3[,.]*000' "$ERR"
}

test_many_retries_take_little_memory() {
    start map --retries 2000 --backoff 1ms..1ms \
        'head -c 20000 /dev/zero; exit 1; : {}' ::: a
    watch_memory
    expect_code 1
    expect_small
}

test_a_log_takes_little_memory() {
    line=$(head -c 10000 /dev/zero | tr '\0' x)
    yes "$line" | head -n 2000 >items
    start map -j2 --log log --joblog joblog -a items true
    watch_memory
    expect_code 0
    expect_small
}

test_a_line_of_input_without_end_is_told() {
    mkfifo bytes
    head -c 50000000 /dev/zero | tr '\0' x >bytes &
    start map -a bytes true
    watch_memory
    expect_failure
    expect test -s "$ERR"
    expect test "$(wc -c <"$ERR")" -le 5000
}
