# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# errors.sh - mistakes are told in a clear sentence, before anything runs.

# A sentence, not the whole manual.
expect_sentence() {
    expect test -s "$ERR"
    expect test "$(wc -l <"$ERR")" -le 5
    expect_out
}

# refuses ARGUMENT...: bad usage, and the last of the arguments is told.
refuses() {
    note "$*"
    vow map "$@" touch ::: ran
    expect_code 2
    for last; do :; done
    expect_err_has "$last"
    expect_sentence
    expect_not test -e ran
}

# ---- options ----------------------------------------------------------------

test_an_unknown_option_is_told_with_the_nearest_one() {
    for pair in retires=retries tiemeout=timeout joblogs=joblog outptu=output \
        dryrun=dry-run; do
        note "$pair"
        vow map "--${pair%=*}" touch ::: ran
        expect_code 2
        expect_err_has "--${pair%=*}"
        expect grep -qwe "--${pair#*=}" "$ERR"
        expect_sentence
        expect_not test -e ran
    done
}

test_an_unknown_option_like_no_other_is_told() {
    refuses --xyzzyplugh
}

test_an_unknown_short_option_is_told() {
    vow map -y touch ::: ran
    expect_code 2
    expect_err_has -y
    expect_sentence
    expect_not test -e ran
}

test_an_unknown_option_of_run_is_told_with_the_nearest_one() {
    vow run --tiemeout 1s -- touch ran
    expect_code 125
    expect_err_has --timeout
    expect_sentence
    expect_not test -e ran
}

test_an_unknown_verb_is_told_with_the_nearest_one() {
    vow mpa echo ::: a
    expect_failure
    expect_err_has mpa
    expect grep -qw map "$ERR"
    expect_sentence
}

test_vow_alone_tells_how_to_use_it() {
    vow
    expect_failure
    expect_err_has map
    expect_out
}

test_an_option_without_its_value_is_told() {
    for option in -j --rate --timeout --log; do
        note "$option"
        vow map "$option"
        expect_code 2
        expect_err_has "$option"
    done
}

test_an_option_that_takes_no_value_is_told() {
    refuses --bar=5
}

test_a_missing_command_is_told() {
    vow map ::: a
    expect_code 2
    expect_sentence
    vow map -j2
    expect_code 2
    expect_sentence
}

# ---- values -----------------------------------------------------------------

test_a_rate_needs_its_unit() {
    vow map --rate 50 touch ::: ran
    expect_code 2
    expect_err_has 50/s
    expect_sentence
    expect_not test -e ran
}

test_a_bad_rate_is_told() {
    for rate in x/s 0/s -1/s 5/0s 5/parsec / 5/ /s 5/s/s 1e9999/s \
        99999999999999999999/s; do
        refuses --rate "$rate"
    done
}

test_a_bad_number_is_told() {
    for value in x -1 '' 1y 3,4 99999999999999999999; do
        for option in -j -n --retries --queue; do
            refuses "$option" "$value"
        done
    done
}

test_no_items_per_job_is_told() {
    refuses -n 0
}

test_no_jobs_at_once_does_not_hang() {
    vow map -j 0 echo ::: a
    expect_code 0 2
}

test_a_bad_duration_is_told() {
    for value in x -1s 5parsecs '' s 1..2s 99999999999999999999s; do
        for option in --timeout --deadline --stop-after --delay; do
            refuses "$option" "$value"
        done
    done
}

test_a_bad_backoff_is_told() {
    for value in x 1s..x ..; do
        refuses --backoff "$value"
    done
}

test_a_bad_retry_on_is_told() {
    for value in banana 300 -5; do
        refuses --retry-on "$value"
    done
}

test_a_bad_kill_seq_is_told() {
    for value in BANANA TERM,x,KILL TERM,,KILL; do
        refuses --kill-seq "$value"
    done
}

test_a_bad_halt_is_told() {
    for value in sometimes now now,fail now,fail=x now,sleep=1 later,fail=1; do
        refuses --halt "$value"
    done
}

test_a_bad_size_is_told() {
    for value in lots 5Q -1; do
        refuses --memfree "$value"
    done
}

test_a_bad_load_is_told() {
    for value in heavy -1; do
        refuses --load "$value"
    done
}

test_a_bad_weight_is_told() {
    for value in heavy -1; do
        refuses --weight "$value"
    done
}

test_a_bad_choice_is_told() {
    for option in --output --color --exit; do
        refuses "$option" sometimes
    done
    vow map --progress=sometimes echo ::: a
    expect_code 2
    expect_sentence
}

# ---- placeholders -----------------------------------------------------------

test_a_placeholder_in_a_here_document_is_refused() {
    vow map 'touch ran
cat <<END
{}
END' ::: a
    expect_code 2
    expect_err 'vow map: {} cannot stand in a here-document' '  {}' '  ^^' \
        'write instead:' '  item={}; touch ran' 'cat <<END' '$item' END
    expect_not test -e ran
}

test_a_placeholder_in_arithmetic_is_refused() {
    vow map 'touch ran; echo $(({} + 1))' ::: 'a[$(touch hacked)]'
    expect_code 2
    expect_sentence
    expect_not test -e ran
    expect_not test -e hacked
}

test_a_shell_line_with_open_quotes_is_told() {
    vow map 'touch ran; echo "{}' ::: a
    expect_failure
    expect test -s "$ERR"
}

# ---- input ------------------------------------------------------------------

test_input_that_is_not_there_is_told() {
    vow map -a nothing-here touch ::: ran
    expect_failure
    vow map -a nothing-here touch
    expect_failure
    expect_err_has nothing-here
    expect_sentence
    vow map touch :::: nothing-here
    expect_failure
    expect_err_has nothing-here
    expect_sentence
}

test_input_that_is_a_folder_is_told() {
    mkdir folder
    vow map -a folder echo
    expect_failure
    expect_err_has folder
    expect_sentence
}

test_unreadable_input_is_told_before_the_first_job() {
    vow map touch ::: ran :::: nothing-here
    expect_failure
    expect_err_has nothing-here
    expect_not test -e ran
}

test_closed_standard_input_does_not_hang() {
    code=0
    "$VOW" map echo <&- >"$OUT" 2>"$ERR" || code=$?
    expect test "$code" -lt 128
    expect_out
}

# ---- too much ---------------------------------------------------------------

# A number of at least three digits: the limit, in bytes or in kilobytes.
expect_limit() {
    expect_failure
    expect grep -qE '[0-9]{3}' "$ERR"
    expect grep -qiE 'long|limit|large|big' "$ERR"
    expect test "$(wc -c <"$ERR")" -le 5000
}

test_an_argument_that_is_too_long_tells_the_limit() {
    head -c 200000 /dev/zero | tr '\0' x >line
    vow map -a line true
    expect_limit
}

test_an_argument_list_that_is_too_long_tells_the_limit() {
    seq 1000000000 1000999999 | vow map -n 1000000 true
    expect_limit
}

test_jobs_after_one_that_is_too_long_still_run() {
    {
        echo before
        head -c 200000 /dev/zero | tr '\0' x
        echo
        echo after
    } | vow map -k echo
    expect_failure
    expect has_line "$OUT" before
    expect has_line "$OUT" after
}

test_the_nearest_option_is_named_as_the_help_has_it() {
    for words in '--retrys --retries' '--max-proc --jobs' '--open-ty --tty'; do
        vow map "${words% *}" 1 true ::: a
        expect_code 2
        expect_err_has "did you mean '${words#* }'?"
    done
}
