# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# kill.sh - when vow is killed, nothing is left behind.

both_ready() {
    [ -e ready.1 ] && [ -e ready.2 ]
}

# start_two JOB [GRACE]: vow with two jobs of that kind, both under way. They
# have that long to end.
start_two() {
    rm -f ready.*
    start map -j2 --kill-seq "TERM,${2:-300ms},KILL" "$1" ::: 1 2
    wait_for both_ready
}

# killed_by SIGNAL: send it to vow, which must die by it and take all along.
killed_by() {
    kill "-$1" "$PID"
    finish
    expect_signal "$1"
    expect_none_left
}

# no_signal_leaves JOB: for TERM, INT, HUP, QUIT and KILL of vow.
no_signal_leaves() {
    for signal in TERM INT HUP QUIT KILL; do
        note "$signal"
        start_two "$1"
        killed_by "$signal"
    done
}

# ---- nothing is left --------------------------------------------------------

test_no_job_is_left() {
    no_signal_leaves 'touch ready.{}; exec sleep 300'
}

test_no_grandchild_is_left() {
    no_signal_leaves 'sleep 300 & sh -c "sleep 300 & sleep 300" &
        touch ready.{}; wait'
}

test_no_job_that_ignores_signals_is_left() {
    no_signal_leaves 'trap "" TERM INT HUP QUIT; sleep 300 & touch ready.{}
        while :; do sleep 300; done'
}

test_no_orphan_of_a_job_is_left() {
    no_signal_leaves '(sleep 300 &); touch ready.{}; sleep 300'
}

two_stopped() {
    [ "$(left | sed 's/environ$/status/' |
        xargs grep -hsc '^State:.T' | grep -c 1)" -ge 2 ]
}

test_no_stopped_job_is_left() {
    for signal in TERM INT HUP QUIT KILL; do
        note "$signal"
        start_two 'sleep 300 & touch ready.{}; kill -STOP $$; wait'
        wait_for two_stopped
        killed_by "$signal"
    done
}

test_no_job_that_called_setsid_is_left() {
    for signal in TERM INT HUP QUIT; do
        note "$signal"
        start_two "export N={}; setsid -w sh -c 'touch ready.\$N; sleep 300'"
        killed_by "$signal"
    done
}

test_no_daemon_of_a_job_is_left() {
    for signal in TERM INT HUP QUIT; do
        note "$signal"
        start_two "export N={}
            (setsid sh -c 'touch ready.\$N; sleep 300' &); sleep 300"
        killed_by "$signal"
    done
}

is_left() {
    left | grep -q "^/proc/$1/"
}

is_gone() {
    ! is_left "$1"
}

# Nobody is there to find the session that a job made when vow is killed so:
# the job itself must go, that session need not.
test_a_job_that_called_setsid_ends_with_a_killed_vow() {
    start_two 'echo $$ >pid.{}; setsid -w sleep 300 & touch ready.{}; wait'
    expect is_left "$(cat pid.1)"
    kill -KILL "$PID"
    finish
    expect_signal KILL
    wait_for is_gone "$(cat pid.1)"
    wait_for is_gone "$(cat pid.2)"
}

# start_behind SCRIPT JOB: as a shell that calls exec behind a script of its own:
# what the script has started is there before vow is.
start_behind() {
    program=$VOW
    VOW=/bin/sh
    start -c "$1"'
        exec "$0" map --kill-seq TERM,300ms,KILL "$1" ::: a' "$program" "$2"
    VOW=$program
}

count_alive() {
    n=0
    while read -r pid; do
        ! kill -0 "$pid" 2>/dev/null || n=$((n + 1))
    done <"$1"
    echo "$n"
}

test_children_from_before_are_not_killed() {
    start_behind 'i=0
        while [ $((i += 1)) -le 100 ]; do sleep 300 & echo $! >>before; done' \
        '(setsid sleep 300 & echo $! >orphan); touch ready; sleep 300; : {}'
    wait_for test -e ready
    kill -TERM "$PID"
    finish
    expect_signal TERM
    expect test "$(count_alive before)" -eq 100
    wait_for is_gone "$(cat orphan)"
}

is_child_of_vow() {
    grep -q "^PPid:${TAB}$PID\$" "/proc/$1/status"
}

# Its parent ends when vow is there to adopt it.
test_orphans_of_children_from_before_are_not_killed() {
    start_behind 'sh -c "until [ -e ready ]; do sleep 0.02; done
            sleep 300 & echo \$! >orphan.new; mv orphan.new orphan" &' \
        'touch ready; sleep 300; : {}'
    wait_for test -e orphan
    wait_for is_child_of_vow "$(cat orphan)"
    kill -TERM "$PID"
    finish
    expect_signal TERM
    expect test "$(count_alive orphan)" -eq 1
}

test_a_killed_vow_takes_its_jobs_along_whatever_the_output() {
    for output in group line live none; do
        note "$output"
        rm -f ready.*
        start map -j2 --output "$output" \
            'sleep 300 & touch ready.{}; wait' ::: 1 2
        wait_for both_ready
        killed_by KILL
    done
}

test_run_leaves_nothing() {
    for signal in TERM INT HUP QUIT KILL; do
        note "$signal"
        rm -f ready
        start run --kill-seq TERM,300ms,KILL -- \
            sh -c 'sleep 300 & touch ready; wait'
        wait_for test -e ready
        killed_by "$signal"
    done
}

test_run_leaves_nothing_that_ignores_signals() {
    for signal in TERM INT HUP QUIT KILL; do
        note "$signal"
        rm -f ready
        start run --kill-seq TERM,300ms,KILL -- sh -c '
            trap "" TERM INT HUP QUIT; touch ready; while :; do sleep 300; done'
        wait_for test -e ready
        killed_by "$signal"
    done
}

# ---- how a run ends ---------------------------------------------------------

test_the_same_signal_is_passed_on() {
    for signal in TERM INT HUP QUIT; do
        note "$signal"
        rm -f got
        start_two 'for s in TERM INT HUP QUIT; do
                trap "echo $s >>got; exit 0" $s; done
            touch ready.{}; while :; do sleep 0.05; done' 100s
        killed_by "$signal"
        expect_file got "$signal" "$signal"
    done
}

test_jobs_have_time_to_clean_up() {
    start map --kill-seq TERM,100s,KILL 'trap "sleep 0.5; touch clean; exit" TERM
        touch ready; while :; do sleep 0.05; done; : {}' ::: a
    wait_for test -e ready
    killed_by TERM
    expect test -e clean
}

test_nothing_more_is_started() {
    start map -j1 'touch ran.{}; trap "exit 0" TERM
        while :; do sleep 0.05; done' ::: a b c
    wait_for test -e ran.a
    killed_by TERM
    expect_not test -e ran.b
    expect_not test -e ran.c
}

test_a_second_signal_kills_at_once() {
    start map --kill-seq TERM,300s,KILL 'trap "touch got" TERM; touch ready
        while :; do sleep 0.05; done; : {}' ::: a
    wait_for test -e ready
    sh -c "kill -TERM $PID; :"
    wait_for test -e got
    sleep 0.1 # within 20 ms it would be the same one, sent to a group as well
    killed_by TERM # by another process
}

# Two signals of one process are one wish, as on a machine where timeout(1) was
# not running between its two.
test_a_second_signal_of_one_sender_leaves_the_grace() {
    start map --kill-seq TERM,300s,KILL 'trap "touch got" TERM; touch ready
        until [ -e go ]; do sleep 0.02; done; touch clean; : {}' ::: a
    wait_for test -e ready
    sh -c 'kill -TERM "$1"; sleep 0.1; kill -TERM "$1"' sh "$PID"
    wait_for test -e got
    sleep 0.3
    touch go
    finish
    expect_signal TERM
    expect test -e clean
}

test_the_output_of_finished_jobs_is_kept() {
    start map -k -j1 'echo {}; [ {} = a ] || { touch ready; sleep 300; }' \
        ::: a b
    wait_for test -e ready
    killed_by TERM
    expect has_line "$OUT" a
}

test_a_signal_ends_the_wait_for_input() {
    mkfifo pipe
    exec 8<>pipe
    start map -a pipe echo
    echo a >&8
    wait_for has_line "$OUT" a
    killed_by TERM
}

test_a_signal_ends_the_wait_for_the_rate() {
    start map --rate 1/m echo ::: a b
    wait_for has_line "$OUT" a
    killed_by TERM
}

test_a_signal_ends_the_wait_for_a_retry() {
    start map --retries 1 'echo 300 >&$VOW_RETRY_AFTER_FD; touch {}; exit 75' \
        ::: a
    wait_for test -e a
    killed_by TERM
}

test_a_signal_ends_the_wait_for_a_reader() {
    mkfifo pipe
    exec 8<>pipe
    OUT=$PWD/pipe
    start map --kill-seq TERM,300ms,KILL \
        'head -c 1000000 /dev/zero; touch {}' ::: a
    # The test keeps the pipe open and never reads it.
    OUT=/dev/null
    wait_for test -e a
    killed_by TERM
}

test_nohup_is_respected() {
    VOW_TEST_IGNORE=HUP start map -k 'touch ready
        until [ -e go ]; do sleep 0.02; done; echo {}' ::: a
    wait_for test -e ready
    kill -HUP "$PID"
    sleep 0.3
    touch go
    finish
    expect_code 0
    expect_out a
}

test_a_process_left_in_the_background_does_not_hold_up_the_run() {
    vow map -k 'sleep 300 >/dev/null 2>&1 & echo {}' ::: a b
    expect_code 0
    expect_out a b
}

test_a_process_that_holds_the_output_does_not_hold_up_the_run() {
    vow map -k 'sleep 300 & echo {}' ::: a b
    expect_code 0
    expect_out a b
}

# ---- Ctrl-C -----------------------------------------------------------------

loop='for i in 1 2 3; do
    "$VOW" map "touch ready; sleep 300; : {}" ::: a
    echo >>next
done'

ctrl_c_stops() {
    terminal 80 24 "$1" "$loop"
    wait_for test -e ready
    keys C-c
    wait_for terminal_over
    show_screen
    expect_not test -e next
    expect_none_left
}

test_ctrl_c_stops_a_loop_of_bash() {
    ctrl_c_stops bash
}

test_ctrl_c_stops_a_loop_of_sh() {
    ctrl_c_stops sh
}

test_ctrl_c_stops_a_loop_around_run() {
    loop='for i in 1 2 3; do
        "$VOW" run -- sh -c "touch ready; sleep 300; :"; echo >>next
    done'
    ctrl_c_stops bash
}

test_a_guardian_finds_the_group_of_what_cleared_its_environment() {
    start map 'env -i sleep 301.7 & touch ready; : {}; wait' ::: a
    wait_for test -e ready
    kill -KILL "$PID"
    finish
    wait_for no_process_named 'sleep 301.7'
}

no_process_named() {
    ! grep -lsz "^301.7$" /proc/[0-9]*/cmdline >/dev/null
}
