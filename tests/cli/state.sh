# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016,SC1003 # jobs have variables of their own
# state.sh - logs, and going on where a run ended.

# ---- logs -------------------------------------------------------------------

test_a_log_has_lines_of_json() {
    vow map --log log.jsonl 'exit {}' ::: 0 3
    expect_code 1
    expect_json log.jsonl
    expect has_lines 2 log.jsonl
    expect grep -qE '"exit[a-z_]*": *3[,}]' log.jsonl
    expect_out
}

test_a_log_tells_the_signal() {
    vow map --log log.jsonl 'kill -9 $$; : {}' ::: a
    expect grep -qE '"signal[a-z_]*": *("?(SIG)?KILL"?|9)[,}]' log.jsonl
}

test_a_log_holds_any_item() {
    printf '\377"\\\001\t\n' | vow map --log log.jsonl true
    expect_code 0
    expect_json log.jsonl
}

test_a_log_that_cannot_be_written_is_told_before_the_first_job() {
    vow map --log nowhere/log touch ::: ran
    expect_code 2 125
    expect_err_has nowhere
    expect_not test -e ran
}

# No line per job: the first loss is told, and what ended without a record is
# listed.
expect_told_once() {
    expect_code 125
    expect test "$(grep -c "cannot write to $1: " "$ERR")" -eq 1
    expect_err_has "$2; no more jobs are started"
    expect_err_has "are not in $1, "
    expect test "$(wc -l <"$ERR")" -lt 30
    expect test "$(find . -name 'ran.*' | wc -l)" -lt 100
}

test_a_log_on_a_full_disk_ends_the_run() {
    seq 1000 >numbers
    ln -s /dev/full full
    vow map -j2 --log full -a numbers 'touch ran.{}'
    expect_told_once full 'No space left on device'
}

test_results_that_cannot_be_written_end_the_run() {
    seq 1000 >numbers
    vow map -j2 --results res -a numbers 'touch ran.{}; rm -r res/{}'
    expect_told_once res 'No such file or directory'
}

# A limit on the size of files stands for a disk that fills up: the log has some
# jobs by then.
test_a_run_whose_disk_got_full_is_resumed_without_a_gap() {
    seq 100 >numbers
    (ulimit -f 8 && vow map -j2 --log log -a numbers 'echo {} >>ran')
    expect_told_once log 'File too large'
    recorded=$(wc -l <log)
    expect test "$recorded" -ge 1
    missing=$(sed -n 's/^vow: \([0-9]*\) of 100 jobs ended and .*/\1/p' "$ERR")
    expect test "$((recorded + missing))" -eq "$(wc -l <ran)"
    expect_json log
    vow map -j2 --log log --resume -a numbers 'echo {} >>ran'
    expect_code 0
    expect_lines 100 log
    expect_lines "$((100 + missing))" ran
}

test_a_joblog_on_a_full_disk_ends_the_run() {
    seq 1000 >numbers
    (ulimit -f 8 && vow map -j2 --joblog log -a numbers 'touch ran.{}; : x {}')
    expect_code 125
    expect_told_once log 'File too large'
}

test_the_log_of_run_on_a_full_disk_is_told() {
    head -c 2000 /dev/zero | tr '\0' x >long
    for _ in 1 2 3; do
        (ulimit -f 8 && vow run --log log -- sh -c 'exit 3' "$(cat long)")
        expect_code 3
    done
    expect_err 'vow run: cannot write to log: File too large'
    expect_json log
}

test_a_joblog_has_nine_columns() {
    vow map -j1 --joblog joblog 'exit {}' ::: 0 3
    expect_code 1
    expect_lines 3 joblog
    head -n 1 joblog | tr '\t' '\n' >names
    expect_file names Seq Host Starttime JobRuntime Send Receive Exitval \
        Signal Command
    sed 1d joblog | cut -f 1,7,8 >columns
    expect_file columns "1${TAB}0${TAB}0" "2${TAB}3${TAB}0"
    expect_not grep -qv "^\([^$TAB]*$TAB\)\{8\}[^$TAB]*\$" joblog
}

test_a_joblog_has_the_time() {
    before=$(date +%s)
    vow map --joblog joblog 'sleep 0.3; : {}' ::: a
    start=$(sed 1d joblog | cut -f 3 | tr -d ' ')
    runtime=$(sed 1d joblog | cut -f 4 | tr -d ' ')
    expect test "${start%.*}" -ge "$before"
    case $runtime in
    0.[012]* | 0 | '') fail "it ran 0.3 seconds, not $runtime" ;;
    esac
}

test_a_joblog_counts_the_bytes_received() {
    vow map --joblog joblog echo ::: four
    expect test "$(sed 1d joblog | cut -f 6)" -eq 5
}

test_a_joblog_tells_the_truth_of_a_killed_job() {
    vow map --joblog joblog 'kill -TERM $$; : {}' ::: a
    expect test "$(sed 1d joblog | cut -f 8)" -eq 15
    expect test "$(sed 1d joblog | cut -f 7)" -ne 0
}

test_a_joblog_tells_the_truth_of_a_late_job() {
    vow map --joblog joblog --timeout 300ms 'sleep 300; : {}' ::: a
    expect_lines 2 joblog
    expect test "$(sed 1d joblog | cut -f 7,8)" != "0${TAB}0"
}

test_a_joblog_has_one_line_per_job() {
    vow map --joblog joblog true ::: "$(printf 'a\tb\n1\t2\nc')"
    expect_lines 2 joblog
}

# ---- going on ---------------------------------------------------------------

job='echo {} >>ran'

# resume ITEM...: what a run with the log of the test does with these items.
resume() {
    : >ran
    vow map -j1 --log log --resume "$job" ::: "$@"
}

test_resume_runs_what_is_not_in_the_log() {
    resume a b
    expect_file ran a b
    resume a b c d
    expect_code 0
    expect_file ran c d
    expect_out
    expect_err
}

test_resume_without_a_log_yet_runs_all() {
    resume a b
    expect_code 0
    expect_file ran a b
}

test_resume_after_all_was_done_runs_nothing() {
    resume a b c
    expect_file ran a b c
    resume a b c
    expect_code 0
    expect_file ran
}

test_resume_goes_by_content_when_the_order_changed() {
    resume a b c
    expect_file ran a b c
    resume c a b
    expect_code 0
    expect_file ran
}

test_resume_runs_changed_items_only() {
    resume a b c
    resume a B c
    expect_file ran B
}

test_resume_runs_items_put_before_the_others() {
    resume a b
    resume new a b
    expect_file ran new
}

test_resume_bears_shortened_input() {
    resume a b c
    resume c
    expect_code 0
    expect_file ran
    resume a b c d
    expect_file ran d
}

test_resume_runs_the_second_copy_of_an_equal_item() {
    resume a
    resume a a
    expect_file ran a
    resume a a a a
    expect_file ran a a
    resume a a a
    expect_file ran
}

test_equal_items_are_jobs_of_their_own() {
    resume a a b a
    expect_file ran a a b a
    resume a a b a
    expect_file ran
}

test_resume_runs_all_of_a_changed_command() {
    resume a b
    job='echo {} again >>ran'
    resume a b
    expect_file ran 'a again' 'b again'
}

test_resume_goes_by_the_command_and_not_by_limits() {
    resume a b
    expect_file ran a b
    : >ran
    vow map -j4 -k --retries 3 --timeout 20s --log log --resume "$job" ::: a b
    expect_file ran
}

test_resume_tells_blanks_from_words() {
    : >ran
    vow map -n 2 -j1 --log log --resume sh -c 'echo $# >>ran' sh ::: a b
    vow map -n 2 -j1 --log log --resume sh -c 'echo $# >>ran' sh ::: 'a b'
    expect_file ran 2 1
}

test_resume_with_input_from_a_pipe() {
    printf 'a\nb\n' | vow map -j1 --log log --resume "$job"
    : >ran
    printf 'b\nc\na\n' | vow map -j1 --log log --resume "$job"
    expect_file ran c
}

test_resume_failed_runs_failed_jobs_again() {
    vow map -j1 --log log 'echo {} >>ran; [ {} != b ] || [ -e good ]' ::: a b c
    expect_code 1
    : >ran
    touch good
    vow map -j1 --log log --resume-failed \
        'echo {} >>ran; [ {} != b ] || [ -e good ]' ::: a b c d
    expect_code 0
    expect_file ran b d
    : >ran
    vow map -j1 --log log --resume-failed \
        'echo {} >>ran; [ {} != b ] || [ -e good ]' ::: a b c d
    expect_code 0
    expect_file ran
}

# Whatever is cut off, a run with what remains of the log knows of no job more
# and then of all of them.
test_a_torn_last_line_is_borne() {
    resume a b c
    cp log whole
    size=$(wc -c <whole)
    known=3
    kept=$((size - 1))
    while [ "$kept" -gt 0 ]; do
        note "the first $kept bytes"
        head -c "$kept" whole >log
        resume a b c
        expect_code 0
        missing=$(wc -l <ran)
        expect test "$missing" -le 3
        expect test $((3 - missing)) -le "$known"
        known=$((3 - missing))
        resume a b c
        expect_code 0
        expect_file ran
        expect_json log
        kept=$((kept - 31))
    done
    expect test "$known" -eq 0
}

test_an_empty_log_is_borne() {
    : >log
    resume a
    expect_code 0
    expect_file ran a
}

killed_job='echo {} >>ran
    [ {} != b ] || [ -e go ] || { touch ready; sleep 300; }'

goes_on_after() {
    : >ran
    start map -j1 --log log --resume "$killed_job" ::: a b c
    wait_for test -e ready
    wait_for has_lines 1 log # b may begin before a is recorded
    kill "-$1" "$PID"
    finish
    expect_signal "$1"
    expect_file ran a b
    expect_none_left
    touch go
    : >ran
    vow map -j1 --log log --resume-failed "$killed_job" ::: a b c
    expect_code 0
    expect_file ran b c
}

test_a_killed_run_goes_on() {
    goes_on_after KILL
}

test_a_run_ended_by_a_signal_goes_on() {
    goes_on_after TERM
}

test_two_runs_on_one_log_are_refused() {
    start map --log log --resume \
        'touch ready; until [ -e go ]; do sleep 0.02; done; echo {}' ::: a
    wait_for test -e ready
    code=0
    "$VOW" map --log log --resume touch ::: ran >said 2>&1 || code=$?
    expect test "$code" -ne 0
    expect test "$code" -lt 128
    expect grep -q log said
    expect_not test -e ran
    code=0
    "$VOW" map --log log touch ::: ran >said 2>&1 || code=$?
    expect test "$code" -ne 0
    expect_not test -e ran
    touch go
    finish
    expect_code 0
    expect_out a
    expect_json log
}

test_a_log_is_free_after_its_run() {
    resume a
    vow map --log log --resume echo ::: x
    expect_code 0
    expect_out x
}

test_resume_needs_a_log() {
    vow map --resume touch ::: ran
    expect_code 2
    expect_err_has --log
    expect_not test -e ran
}

# ---- what would run ---------------------------------------------------------

test_dry_run_runs_nothing() {
    vow map --dry-run touch ::: a b
    expect_code 0
    expect_out 'touch a' 'touch b'
    expect_err
    expect_not test -e a
}

# pastes COMMAND...: what --dry-run prints does in a shell what vow does.
pastes() {
    set -- "$@" ::: plain 'two  words' '' "it's" '"q"' '$HOME' '`id`' '*' '\' \
        '~' -n '#x' 'a;b' '!x' '{}' "$(printf 'new\nline')" "$(printf '\377')"
    vow map -k "$@"
    expect_code 0
    cp "$OUT" wanted
    expect test -s wanted
    vow map -k --dry-run "$@"
    expect_code 0
    cp "$OUT" script
    for shell in sh bash; do
        "$shell" ./script >got
        cmp wanted got || fail "pasted into $shell, it does something else"
    done
}

test_dry_run_is_ready_to_paste() {
    pastes printf '[%s]\n'
    pastes printf '[%s]\n' 'x{}y' '{#}'
}

test_dry_run_of_a_shell_line_is_ready_to_paste() {
    pastes 'printf "[%s]\n" {} | cat'
    pastes 'printf "[%s]\n" "x{}y" '"'{}'"' "$(printf %s {})"; :'
}

test_dry_run_numbers_the_jobs() {
    vow map --dry-run echo '{#}' {} ::: a b
    expect_out 'echo 1 a' 'echo 2 b'
}

test_dry_run_writes_no_log() {
    vow map --dry-run --log log echo ::: a
    expect_code 0
    vow map --log log --resume echo ::: a
    expect_out a
}

test_dry_run_with_resume_shows_what_is_missing() {
    vow map --log log echo ::: a
    vow map --log log --resume --dry-run echo ::: a b
    expect_out 'echo b'
}

# ---- what the end of the run ended ------------------------------------------

test_what_was_stopped_runs_again() {
    vow map -j2 -e --log log 'case {} in a) sleep 0.3; exit 1;; esac; sleep 60' \
        ::: a b
    expect_code 1
    vow map --log log --resume --dry-run 'case {} in a) sleep 0.3; exit 1;; esac; sleep 60' ::: a b
    expect_lines 1 "$OUT"
}

test_what_failed_and_did_well_later_is_one_job() {
    vow map --log log 'echo {} >>ran; [ -e good ]' ::: a
    expect_code 1
    touch good
    vow map --log log --resume-failed 'echo {} >>ran; [ -e good ]' ::: a
    expect_code 0
    vow map --log log --resume 'echo {} >>ran; [ -e good ]' ::: a a
    expect_code 0
    expect_file ran a a a
}

test_many_runs_write_to_one_log() {
    seq 8 | xargs -P8 -n1 "$VOW" run --log log true
    expect_lines 8 log
}

test_run_tells_a_bad_log_before_it_runs() {
    echo 'no log of ours' >log
    vow run --log log touch ran
    expect_code 125
    expect test ! -e ran
}
