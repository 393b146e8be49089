# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# findings.sh - what goes wrong at night: slow readers, full tables, killers.

# ---- output -----------------------------------------------------------------

# Streams that end while much waits to be written, among others that are held.
test_lines_of_many_jobs_pass_to_a_slow_reader() {
    mkfifo pipe
    perl -e 'open my $in, "<", "pipe"; select undef, undef, undef, 1;
        while (my $n = sysread $in, $_, 65536) {
            $sum += $n; select undef, undef, undef, 0.001 }
        print "$sum\n"' >sum &
    reader=$!
    OUT=$PWD/pipe
    # shellcheck disable=SC2046 # words
    vow map -j12 --output line 'case {} in
        ?) yes xxxxxxxxxxxxxxxxxxxxxxxxxxx | head -n 700000 ;;
        *) yes aaaaaaaaaaaaaaaaaaaaaaaaaaa | head -n 2100 ;; esac' \
        ::: $(seq 400)
    OUT=/dev/null
    wait "$reader"
    expect_code 0
    expect_file sum $((28 * (9 * 700000 + 391 * 2100)))
}

test_output_that_waits_its_turn_needs_few_descriptors() {
    ulimit -n 256
    # shellcheck disable=SC2046 # words
    vow map -j4 -k '[ {} != 1 ] || sleep 2; head -c 60000 /dev/zero' \
        ::: $(seq 600)
    expect_code 0
    expect test "$(wc -c <"$OUT")" -eq 36000000
}

test_output_that_stays_in_memory_is_not_called_lost() {
    # shellcheck disable=SC2046 # words
    TMPDIR=/nowhere/at/all vow map -j4 -k \
        '[ {} != 1 ] || sleep 1; head -c 60000 /dev/zero' ::: $(seq 200)
    expect test "$(wc -c <"$OUT")" -eq 12000000
    expect_code 0
    expect_err
}

test_bad_input_ends_no_job_and_loses_no_output() {
    mkfifo pipe
    { printf 'a\n'; sleep 0.5; printf 'b\0c\ne\n'; } >pipe &
    vow map -j2 -a pipe 'sleep 1; echo {}'
    expect_code 125
    expect_out a
    expect_err_has NUL
}

test_a_stuck_reader_of_errors_does_not_keep_vow_from_ending() {
    mkfifo pipe
    exec 8<>pipe
    ERR=$PWD/pipe
    # shellcheck disable=SC2046 # words
    start map -v --output none true {} "$(printf '%0100d' 0)" ::: $(seq 3000)
    ERR=/dev/null
    sleep 2
    kill -TERM "$PID"
    wait_for test -e "$STATUS"
    expect_signal TERM
}

test_a_pipe_of_another_user_does_not_block() {
    [ "$(id -u)" -eq 0 ] || return 0
    chmod 755 "$T" "$T/work"
    ln -s "$VOW" vow
    mkfifo -m 600 pipe
    exec 8<>pipe
    setpriv --reuid=65534 --regid=65534 --clear-groups "$VOW" map \
        'head -c 300000 /dev/zero; : {}' ::: 1 2 >&8 2>/dev/null &
    vow=$!
    sleep 1
    kill -TERM "$vow"
    wait_for eval '! kill -0 $vow'
}

# ---- ending -----------------------------------------------------------------

# timeout(1) signals its child, and then the group, which is the child again. It
# does so with a signal that it gets, too.
test_jobs_have_their_grace_under_timeout() {
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
        rm -f ready clean
        timeout 300 "$VOW" map --kill-seq TERM,100s,KILL '
            trap "sleep 0.3; touch clean; exit" TERM; touch ready
            while :; do sleep 0.02; done; : {}' ::: a &
        timeout=$!
        wait_for test -e ready
        kill -TERM "$timeout"
        wait "$timeout" || true
        expect test -e clean
    done
}

test_a_killed_group_leaves_nothing() {
    VOW_TEST_RUN=$VOW_TEST_ID setsid "$VOW" map \
        'sleep 300 & touch ready; wait; : {}' ::: 1 &
    group=$!
    wait_for test -e ready
    kill -s KILL -- "-$group"
    expect_none_left
}

test_vow_hears_signals_while_it_waits_for_a_header() {
    mkfifo pipe
    exec 8<>pipe
    start map --header -a pipe echo '{a}'
    sleep 0.3
    kill -TERM "$PID"
    wait_for test -e "$STATUS"
    expect_signal TERM
}

test_vow_hears_signals_while_it_opens_its_input() {
    mkfifo pipe
    start map -a pipe echo
    sleep 0.3
    kill -TERM "$PID"
    wait_for test -e "$STATUS"
    expect_signal TERM
}

test_a_dry_run_hears_signals_while_it_waits_for_input() {
    mkfifo pipe
    exec 8<>pipe
    start map --dry-run -a pipe echo
    sleep 0.3
    kill -TERM "$PID"
    wait_for test -e "$STATUS"
    expect_signal TERM
}

# Both see that the pipe is readable, one gets the line.
test_two_runs_that_read_one_pipe_hear_signals() {
    mkfifo pipe
    exec 8<>pipe
    "$VOW" map true <pipe &
    other=$!
    start map -a pipe true
    for i in $(seq 2000); do
        echo "$i" >&8
    done
    sleep 1
    for i in $(seq 100); do
        echo "$i" >&8
        sleep 0.02
        grep -hqs pipe_read "/proc/$PID/wchan" "/proc/$other/wchan" && break
    done
    kill -TERM "$PID" "$other"
    wait_for test -e "$STATUS"
    wait_for eval '! kill -0 $other'
}

test_children_of_the_shell_before_are_not_killed() {
    sh -c 'sleep 300 & echo $! >child
        exec "$VOW" map "touch ready; sleep 300; : {}" ::: a' &
    vow=$!
    wait_for test -e ready
    kill -TERM "$vow"
    wait "$vow" || true
    expect kill -0 "$(cat child)"
}

test_run_on_a_terminal_passes_ctrl_c_on_once() {
    cat >ints <<'END'
use POSIX;
sigaction(SIGINT, POSIX::SigAction->new(sub { $n++ }));
open my $f, ">", "ready"; close $f;
select undef, undef, undef, 0.001 until $n;
my $end = time + 2;
select undef, undef, undef, 0.001 while time < $end;
open $f, ">>", "count"; print $f "$n\n";
END
    for _ in 1 2 3 4 5; do
        rm -f ready
        terminal 80 24 sh '"$VOW" run -- perl ints'
        wait_for test -e ready
        keys C-c
        wait_for terminal_over
    done
    expect_file count 1 1 1 1 1
}

test_run_lets_a_command_ask_on_the_terminal() {
    terminal 80 24 sh 'touch ready
        echo | "$VOW" run -- sh -c "read a </dev/tty; echo \$a >got"'
    wait_for test -e ready
    sleep 0.5
    keys secret Enter
    wait_for has_line got secret
}

# ---- starting ---------------------------------------------------------------

test_jobs_wait_for_descriptors() {
    ulimit -n 64
    # shellcheck disable=SC2046 # words
    vow map -j60 'sleep 0.1; echo {}' ::: $(seq 100)
    expect_code 0
    expect_lines 100 "$OUT"
}

test_jobs_wait_for_processes() {
    [ "$(id -u)" -eq 0 ] || return 0
    setpriv --reuid=64123 --regid=64123 --clear-groups bash -c 'ulimit -u 8
        cd / && "$VOW" map -j30 sleep 0.{} ::: 1 2 3 1 2 3 1 2 3 1 2 3' ||
        fail 'a job was not started'
}

test_a_failed_start_leaves_no_descriptor() {
    printf '#!/no/such/interpreter\n' >bad
    chmod +x bad
    mkfifo pipe
    exec 8<>pipe
    start map --retries 1 -a pipe ./bad
    seq 200 >&8
    wait_for has_lines 200 "$ERR"
    count=$(find "/proc/$PID/fd" | wc -l)
    kill -TERM "$PID"
    expect test "$count" -lt 60
}

test_a_program_that_may_not_be_run_is_126() {
    : >data
    vow map --exec -e '{}' ::: ./data
    expect_code 126
}

test_fewer_places_than_a_job_weighs() {
    start map -j4 --weight 4 -k 'touch ready
        until [ -e go ]; do sleep 0.02; done; echo {}' ::: 1 2 3
    wait_for test -e ready
    kill -USR2 "$PID"
    touch go
    finish
    expect_code 0
    expect_out 1 2 3
}

test_an_item_may_begin_with_three_colons() {
    vow map -k echo ::: a :::b c
    expect_out a :::b c
}

test_input_that_does_not_block_is_waited_for() {
    mkfifo pipe
    { sleep 0.3; printf 'a\n1\n'; } >pipe &
    perl -e 'use Fcntl; fcntl STDIN, F_SETFL, O_NONBLOCK;
        open STDOUT, ">", "got"; exec @ARGV' \
        "$VOW" map --header echo '{a}' <pipe || fail 'it gave up'
    expect_file got 1
}

# four_tokens_had: so many, of all that were taken until now.
four_tokens_had() {
    dd if=tokens bs=5 count=1 iflag=nonblock 2>/dev/null >>had || true
    [ "$(wc -c <had)" -ge 4 ]
}

# tokens_free N ARGUMENT...: when N jobs have run, vow map leaves 4 of 5 tokens
# to others.
tokens_free() {
    count=$1
    shift
    mkfifo tokens
    exec 9<>tokens
    printf +++++ >&9
    MAKEFLAGS="-j6 --jobserver-auth=fifo:$PWD/tokens" start map "$@"
    wait_for has_lines "$count" ran
    wait_for four_tokens_had
}

test_no_tokens_are_held_while_the_rate_waits() {
    tokens_free 1 --rate 1/h 'echo {} >>ran' ::: 1 2 3 4 5 6 7 8 9
}

test_no_tokens_are_held_between_tries() {
    # Three: no more are read ahead for the one place that needs no token.
    tokens_free 3 --retries 2 --backoff 1h..2h 'echo {} >>ran; exit {}' ::: 1 2 3
}

test_tokens_go_back_when_vow_gives_up() {
    mkfifo tokens
    exec 9<>tokens
    printf +++++ >&9
    { printf '1\n2\n3\n'; sleep 0.5; printf 'x\0y\n'; } |
        MAKEFLAGS="-j6 --jobserver-auth=fifo:$PWD/tokens" \
        vow map 'sleep 2; : {}'
    dd if=tokens of=had bs=5 count=1 iflag=nonblock 2>/dev/null || true
    expect test "$(wc -c <had)" -eq 5
}

# ---- going on ---------------------------------------------------------------

test_resume_runs_a_job_again_that_the_end_of_vow_ended() {
    start map -j2 --log log '[ -e go ] || { touch ready.{}; sleep 300; }
        echo {} >>ran' ::: a b c
    wait_for eval '[ -e ready.a ] && [ -e ready.b ]'
    kill -TERM "$PID"
    finish
    touch go
    vow map -j1 --log log --resume '[ -e go ] || { touch ready.{}; sleep 300; }
        echo {} >>ran' ::: a b c
    expect_file ran a b c
}

test_resume_shows_what_was_never_shown() {
    job='[ {} != 1 ] || [ -e go ] || sleep 300; echo {}; touch did.{}'
    start map -k -j2 --log log "$job" ::: 1 2 3
    wait_for test -e did.3
    sleep 0.3
    kill -KILL "$PID"
    finish
    cp "$OUT" all
    touch go
    vow map -k -j2 --log log --resume "$job" ::: 1 2 3
    cat "$OUT" >>all
    sort -o all all
    expect_file all 1 2 3
}

test_output_that_finds_no_file_stays_in_memory() {
    TMPDIR=/nowhere/at/all vow map 'head -c 1000000 /dev/zero; : {}' ::: a
    expect_code 0
    expect test "$(wc -c <"$OUT")" -eq 1000000
}

test_a_job_whose_output_was_lost_is_not_done() {
    TMPDIR=/nowhere/at/all vow map --log log \
        'head -c 80000000 /dev/zero; : {}' ::: a
    expect_code 125
    vow map --log log --resume-failed 'head -c 80000000 /dev/zero; : {}' ::: a
    expect test "$(wc -c <"$OUT")" -eq 80000000
}

test_the_log_of_run_is_opened_before_the_command() {
    vow run --log /nowhere/at/all -- touch ran
    expect_code 125
    expect_not test -e ran
}

test_a_slow_reader_is_no_early_stop() {
    mkfifo pipe
    { sleep 12; cat >/dev/null; } <pipe &
    OUT=$PWD/pipe
    vow map --stop-after 10s 'head -c 200000 /dev/zero; : {}' ::: a b
    OUT=/dev/null
    expect_code 0
}
