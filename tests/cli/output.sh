# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016,SC1003 # jobs have variables of their own
# output.sh - what jobs write, byte for byte.

# ---- in groups --------------------------------------------------------------

slow_lines='for i in 1 2 3 4; do echo {}; sleep 0.05; done'

# Each job wrote the same line several times: in groups, there is one run each.
groups_of() {
    uniq "$1" | sort | tr '\n' ' '
}

test_the_lines_of_a_job_stay_together() {
    vow map -j4 "$slow_lines" ::: a b c d
    expect_code 0
    expect_lines 16 "$OUT"
    expect test "$(groups_of "$OUT")" = 'a b c d '
}

test_the_error_lines_of_a_job_stay_together() {
    vow map -j4 "{ $slow_lines; } >&2" ::: a b c d
    expect_out
    expect_lines 16 "$ERR"
    expect test "$(groups_of "$ERR")" = 'a b c d '
}

test_groups_are_the_default() {
    vow map --output=group -j4 "$slow_lines" ::: a b c d
    expect test "$(groups_of "$OUT")" = 'a b c d '
    vow map --output group -j4 "$slow_lines" ::: a b c d
    expect test "$(groups_of "$OUT")" = 'a b c d '
}

test_output_and_errors_go_their_own_ways() {
    vow map 'echo {}; echo {} bad >&2' ::: a
    expect_code 0
    expect_out a
    expect_err 'a bad'
}

test_a_group_is_shown_when_its_job_ends() {
    start map -j2 'echo {}; [ {} = a ] ||
        until [ -e go ]; do sleep 0.02; done' ::: a b
    wait_for has_line "$OUT" a
    expect_not has_line "$OUT" b
    touch go
    finish
    expect_code 0
    expect_out a b
}

test_nothing_is_added_to_the_output() {
    vow map -k printf ::: a b '' c
    expect_bytes abc
    expect_err
}

test_nul_and_every_other_byte_passes() {
    for n in $(seq 0 255); do
        printf '%b' "\\0$(printf %o "$n")"
    done >bytes
    expect test "$(wc -c <bytes)" -eq 256
    vow map cat ::: bytes
    expect_code 0
    cmp bytes "$OUT" || fail 'the output has changed'
    vow run -- cat bytes
    cmp bytes "$OUT" || fail 'the output has changed'
}

test_great_output_passes_whole() {
    vow map -j2 'head -c 20000000 /dev/zero | tr "\000" {}' ::: a b
    expect_code 0
    expect test "$(wc -c <"$OUT")" -eq 40000000
    expect test "$(fold -w 1000000 "$OUT" | cut -c 1 | uniq | wc -l)" -eq 2
}

test_great_output_passes_to_a_slow_reader() {
    "$VOW" map -j2 'head -c 3000000 /dev/zero; : {}' ::: a b c 2>"$ERR" | {
        sleep 0.5
        wc -c >size
    }
    expect_file size 9000000
    expect_err
}

test_great_output_leaves_no_file() {
    start map 'head -c 3000000 /dev/zero; touch {}
        until [ -e go ]; do sleep 0.02; done' ::: a
    wait_for test -e a
    find "$TMPDIR" -type f >during
    touch go
    finish
    expect_file during
    find "$TMPDIR" -mindepth 1 >after
    expect_file after
}

test_output_that_finds_no_room_is_not_lost_in_silence() {
    TMPDIR=$T/none vow map 'head -c 3000000 /dev/zero; : {}' ::: a
    if [ "$(wc -c <"$OUT")" -ne 3000000 ]; then
        expect_failure
        expect test -s "$ERR"
    fi
}

# ---- other ways -------------------------------------------------------------

test_keeping_the_order() {
    vow map -k -j3 'sleep 0.{}; echo {}' ::: 3 2 1
    expect_code 0
    expect_out 3 2 1
}

test_keeping_the_order_of_errors() {
    vow map -k -j3 'sleep 0.{}; echo {} >&2' ::: 3 2 1
    expect_err 3 2 1
}

test_keeping_the_order_does_not_wait_for_the_last() {
    start map -k -j2 'echo {}; [ {} = a ] ||
        until [ -e go ]; do sleep 0.02; done' ::: a b
    wait_for has_line "$OUT" a
    touch go
    finish
    expect_out a b
}

test_keeping_the_order_bears_failures() {
    vow map -k -j3 'sleep 0.{}; echo {}; exit {}' ::: 2 1 0
    expect_code 1
    expect_out 2 1 0
}

test_keeping_the_order_of_many() {
    seq 500 >wanted
    vow map -k -j4 -a wanted echo
    cmp wanted "$OUT" || fail 'the order is wrong'
}

test_lines_are_shown_as_they_come() {
    start map --output line 'echo {}; until [ -e go ]; do sleep 0.02; done' \
        ::: a
    wait_for has_line "$OUT" a
    touch go
    finish
    expect_code 0
    expect_out a
}

test_lines_are_never_broken() {
    vow map -j4 --output line 'for i in 1 2 3; do printf {}; sleep 0.03
        printf "{}\n"; done' ::: a b c d
    expect_sorted aa aa aa bb bb bb cc cc cc dd dd dd
}

test_a_last_line_without_newline_is_shown_too() {
    vow map --output line printf ::: abc
    expect_out_has abc
}

test_live_output_is_shown_at_once() {
    start map --output live 'printf {}; until [ -e go ]; do sleep 0.02; done' \
        ::: abc
    wait_for grep -q abc "$OUT"
    touch go
    finish
    expect_code 0
    expect_bytes abc
}

test_no_output_at_all() {
    vow map --output none 'echo {}; exit {}' ::: 0
    expect_code 0
    expect_out
    expect_err
    vow map --output none 'echo {}; exit {}' ::: 1
    expect_code 1
    expect_out
}

test_a_tag_stands_before_each_line() {
    vow map -k --tag 'echo one; echo two; : {}' ::: a 'b c'
    expect_code 0
    expect_out "a${TAB}one" "a${TAB}two" "b c${TAB}one" "b c${TAB}two"
}

test_a_tag_stands_before_each_line_of_errors() {
    vow map -k --tag 'echo one >&2; : {}' ::: a b
    expect_err "a${TAB}one" "b${TAB}one"
}

test_a_tag_goes_with_lines() {
    vow map --output line --tag 'echo x; : {}' ::: a b
    expect_sorted "a${TAB}x" "b${TAB}x"
}

# ---- files and records ------------------------------------------------------

test_results_are_files() {
    vow map --results res 'echo out {}; echo err {} >&2' ::: a b
    expect_code 0
    for item in a b; do
        for stream in out err; do
            found=$(grep -rlx "$stream $item" res | wc -l)
            expect test "$found" -ge 1
        done
    done
    # Output and errors of a job are in files of their own.
    expect_not test -n "$(grep -rlx 'out a' res | xargs grep -lx 'err a')"
}

test_results_are_exact() {
    vow map --results res 'printf "a\000b\377"; : {}' ::: x
    printf 'a\0b\377' >wanted
    find res -type f -exec cmp -s wanted {} \; -print >found
    expect_lines 1 found
}

# In a folder to which others write too: links, and folders that are theirs.
test_results_follow_no_planted_links() {
    mkdir out out/2 elsewhere
    ln -s "$PWD/elsewhere" out/1
    echo precious >file
    ln -s "$PWD/file" out/2/stdout
    vow map --results out echo ::: a b
    expect_failure
    expect_file file precious
    expect test -z "$(ls elsewhere)"
    [ "$(id -u)" -eq 0 ] || return 0
    rm -r out
    mkdir -p out/1
    chown 12345 out/1
    vow map --results out echo ::: a
    expect_failure
    expect test -z "$(ls out/1)"
}

test_results_stay_in_their_folder() {
    mkdir -p deep/er
    (cd deep/er && vow map --results res echo ::: \
        ../../../escaped a/b /vow-cli-escaped .. .)
    expect_code 0
    {
        find "$T/work" -type f ! -path '*/deep/er/res/*'
        find / -maxdepth 1 -name 'vow-cli-escaped*'
    } >"$T/outside"
    expect_file "$T/outside"
    # Five jobs, each with its own output: none has replaced another's.
    found=$(grep -rlxF -e a/b -e /vow-cli-escaped -e .. -e . \
        -e ../../../escaped deep/er/res | wc -l)
    expect test "$found" -ge 5
}

test_json_is_one_object_per_job() {
    vow map -k --json 'echo hello {}; exit {}' ::: 0 3
    expect_code 1
    expect_lines 2 "$OUT"
    expect_json "$OUT"
    expect_out_has 'hello 0'
    expect_out_has 'hello 3'
    expect grep -qE '"exit[a-z_]*": *3[,}]' "$OUT"
}

test_json_holds_any_bytes() {
    vow map --json 'printf "q\"b\\\\s\001\t\377\000é\n"; : {}' \
        ::: "$(printf '\376"\\')"
    expect_code 0
    expect_lines 1 "$OUT"
    expect_json "$OUT"
}

# It is written in pieces, which end anywhere within a character.
test_json_tears_no_character() {
    for before in '' a aa aaa; do
        note "${#before}"
        { printf %s "$before"; yes 😀 | tr -d '\n' | head -c 400000; } >bytes
        vow map --json cat ::: bytes
        expect_code 0
        # shellcheck disable=SC2016 # for perl
        perl -MJSON::PP -0777 -ne '
            my $s = decode_json($_)->{stdout}; utf8::encode($s); print $s' \
            "$OUT" >decoded
        cmp bytes decoded || fail 'the output has changed'
    done
}

# As JSON it is twice as long, and longer than a file may be.
test_json_that_finds_no_room_is_told() {
    (ulimit -f 800 && vow map --json 'yes "" | head -c 300000; : {}' ::: a)
    expect_code 125
    expect_out
    expect_err_has 'job 1: cannot write its JSON: File too large'
}

# ---- readers that leave, disks that are full --------------------------------

test_a_reader_that_leaves_ends_the_run_quietly() {
    yes | "$VOW" map echo 2>"$ERR" | head -n 1 >first
    expect_file first y
    expect_err
}

test_a_reader_that_leaves_ends_the_jobs() {
    VOW_TEST_RUN=$VOW_TEST_ID "$VOW" map -j3 'case {} in
        b) until [ -e go ]; do sleep 0.02; done ;;
        c) sleep 300 ;;
        esac; echo {}' ::: a b c 2>"$ERR" | {
        head -n 1 >first
        exec <&-
        touch go
    }
    expect_file first a
    expect_err
    expect_none_left
}

test_a_full_disk_is_told() {
    OUT=/dev/full
    vow map echo ::: a
    OUT=/dev/null
    expect_failure
    expect test -s "$ERR"
    expect grep -qi -e space -e full "$ERR"
}

test_a_full_disk_ends_endless_work() {
    OUT=/dev/full
    yes | vow map echo
    OUT=/dev/null
    expect_failure
    expect test -s "$ERR"
}

test_closed_output_is_no_disaster() {
    code=0
    "$VOW" map echo ::: a >&- 2>"$ERR" || code=$?
    expect test "$code" -lt 128
    code=0
    "$VOW" map true ::: a >&- 2>&- <&- || code=$?
    expect test "$code" -lt 128
}

test_a_line_without_end_is_not_continued_by_another_job() {
    vow map -j1 --output line 'printf "%s\nno end" {}' ::: 1 2
    printf '1\nno end\n2\nno end' >wanted
    expect cmp wanted "$OUT"
}

test_many_long_outputs_by_lines_come_to_an_end() {
    seq 100 >numbers
    vow map -j12 --output line \
        'case {} in ?) yes x | head -c 4000000;; *) yes a | head -c 60000;; esac' \
        :::: numbers
    expect_code 0
    expect test "$(wc -c <"$OUT")" -eq 41460000
}

# ---- a lot of it ------------------------------------------------------------

# Runs of equal lines with their lengths: one per job if nothing is mixed.
runs() {
    uniq -c "$OUT" | awk '{ print $2, $1 }'
}

test_big_outputs_are_not_mixed() {
    vow map -j4 'yes {} | head -c 24000000; echo {} >&2' ::: a b c d
    expect_code 0
    runs | sort >got
    expect_file got 'a 12000000' 'b 12000000' 'c 12000000' 'd 12000000'
    expect_lines 4 "$ERR"
}

test_big_outputs_keep_their_order() {
    vow map -k -j4 '[ {} != a ] || sleep 0.5; yes {} | head -c 24000000' \
        ::: a b c d
    expect_code 0
    runs >got
    expect_file got 'a 12000000' 'b 12000000' 'c 12000000' 'd 12000000'
}

test_big_outputs_bear_a_slow_reader() {
    mkfifo pipe
    { sleep 1; cat; } <pipe >all &
    reader=$!
    OUT=$PWD/pipe
    vow map -j4 'yes {} | head -c 24000000' ::: a b c d
    expect_code 0
    wait "$reader"
    OUT=$PWD/all
    runs | sort >got
    expect_file got 'a 12000000' 'b 12000000' 'c 12000000' 'd 12000000'
}

test_a_small_output_waits_for_a_big_one_that_is_being_shown() {
    vow map -j2 'case {} in big) yes x | head -c 20000000; sleep 1
        yes x | head -c 20000000;; *) sleep 0.5; echo small;; esac' ::: big small
    expect_code 0
    runs >got
    grep -c small got >count
    expect_file count 1
    expect_lines 2 got
}

test_the_output_of_a_failed_try_is_never_shown_however_big() {
    vow map --retries 1 --backoff 1ms 'yes $VOW_TRY | head -c 20000000
        [ "$VOW_TRY" = 2 ] && : {}' ::: a
    expect_code 0
    runs >got
    expect_file got '2 10000000'
}
