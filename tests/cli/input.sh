# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC1003 # a backslash at the end
# input.sh - where the items come from and how they are cut.

test_three_colons_give_one_job_per_item() {
    vow map -k echo ::: a b c
    expect_code 0
    expect_out a b c
    expect_err
}

test_four_colons_read_items_from_a_file() {
    printf 'a\nb c\n' >items
    vow map -k echo :::: items
    expect_code 0
    expect_out a 'b c'
}

test_option_a_reads_items_from_a_file() {
    printf 'a\nb\n' >items
    vow map -k -a items echo
    expect_code 0
    expect_out a b
}

test_option_a_with_a_dash_reads_standard_input() {
    printf 'a\nb\n' | vow map -k -a - echo
    expect_code 0
    expect_out a b
}

test_standard_input_has_one_item_per_line() {
    printf 'a\nb\nc\n' | vow map -k echo
    expect_code 0
    expect_out a b c
    expect_err
}

test_standard_input_is_left_alone_when_items_are_given() {
    printf 'mine\n' | {
        vow map echo ::: a
        cat >rest
    }
    expect_out a
    expect_file rest mine
}

test_standard_input_is_left_alone_when_a_file_is_given() {
    printf 'a\n' >items
    printf 'mine\n' | {
        vow map -a items echo
        cat >rest
    }
    expect_out a
    expect_file rest mine
}

test_blanks_quotes_and_backslashes_are_part_of_a_line() {
    printf '%s\n' '  two  words ' "it's" '"quoted"' 'back\slash\' |
        vow map -k printf '[%s]\n'
    expect_out '[  two  words ]' "[it's]" '["quoted"]' '[back\slash\]'
}

test_an_empty_line_is_an_empty_item() {
    printf 'a\n\nb\n' | vow map -k printf '[%s]\n'
    expect_out '[a]' '[]' '[b]'
}

test_an_empty_argument_is_an_empty_item() {
    vow map -k printf '[%s]\n' ::: a '' b
    expect_out '[a]' '[]' '[b]'
}

test_a_last_line_without_newline_is_an_item() {
    printf 'a\nb' | vow map -k echo
    expect_code 0
    expect_out a b
}

test_a_carriage_return_is_data() {
    printf 'a\r\nb\r\n' | vow map -k printf '[%s]\n'
    expect_bytes '[a\r]\n[b\r]\n'
}

test_bytes_that_are_not_utf_8_are_data() {
    printf '\377\376\n' | vow map -k printf '[%s]\n'
    expect_bytes '[\0377\0376]\n'
}

test_a_line_of_100_kilobytes_arrives_whole() {
    head -c 100000 /dev/zero | tr '\0' x >line
    echo >>line
    vow map -a line echo
    expect_code 0
    cmp line "$OUT" || fail 'the line has changed'
}

test_option_0_cuts_at_nul() {
    printf 'a\nb\0c d\0' | vow map -k -0 printf '[%s]\n'
    expect_bytes '[a\nb]\n[c d]\n'
}

test_option_0_takes_a_last_item_without_nul() {
    printf 'a\0b' | vow map -k -0 echo
    expect_out a b
}

test_option_d_cuts_at_that_character() {
    printf 'a,b b,c' | vow map -k -d , echo
    expect_out a 'b b' c
}

test_option_d_knows_backslash_t() {
    printf 'a\tb b\tc' | vow map -k -d '\t' echo
    expect_out a 'b b' c
}

test_option_d_takes_the_tab_itself() {
    printf 'a\tb b\tc' | vow map -k -d "$TAB" echo
    expect_out a 'b b' c
}

test_columns_are_cut_at_the_separator() {
    printf '%s\n' 'a,b b,c' 'd,e,f' | vow map -k -C , echo '{3}-{2}-{1}'
    expect_out 'c-b b-a' f-e-d
}

test_columns_may_be_cut_at_a_tab() {
    printf 'a b\tc\n' | vow map -k -C "$TAB" echo '{2}-{1}'
    expect_out 'c-a b'
}

test_columns_may_be_empty() {
    printf 'a,,c\n' | vow map -C , printf '[%s]' '{1}' '{2}' '{3}'
    expect_bytes '[a][][c]'
}

test_the_whole_line_is_there_beside_its_columns() {
    printf 'a,b\n' | vow map -C , echo '{2} of {}'
    expect_out 'b of a,b'
}

test_a_separator_is_no_pattern() {
    printf 'a.b|c\n' | vow map -C . echo '{2} {1}'
    expect_out 'b|c a'
    printf 'a.b|c\n' | vow map -C '|' echo '{2} {1}'
    expect_out 'c a.b'
}

test_columns_of_arguments_are_cut_too() {
    vow map -k -C : echo '{2} {1}' ::: a:b c:d
    expect_out 'b a' 'd c'
}

test_a_header_names_the_columns() {
    printf 'name,age\nann,7\nbob,8\n' |
        vow map -k -C , --header echo '{name} is {age}'
    expect_code 0
    expect_out 'ann is 7' 'bob is 8'
}

test_a_header_leaves_the_numbers_of_columns() {
    printf 'name,age\nann,7\n' | vow map -C , --header echo '{2} {1}'
    expect_out '7 ann'
}

test_a_header_without_columns_names_the_item() {
    printf 'file\na b\nc\n' | vow map -k --header echo 'got {file}'
    expect_out 'got a b' 'got c'
}

test_a_header_alone_gives_no_job() {
    printf 'name,age\n' | vow map -C , --header echo '{name}'
    expect_code 0
    expect_out
}

test_job_numbers_do_not_count_the_header() {
    printf 'name\nann\n' | vow map --header echo '{#} {name}'
    expect_out '1 ann'
}

test_option_n_gives_several_items_to_a_job() {
    printf '%s\n' 1 2 3 4 5 | vow map -k -n 2 echo
    expect_code 0
    expect_out '1 2' '3 4' 5
}

test_option_n_appends_separate_arguments() {
    vow map -k -n 2 printf '[%s]' ::: 'a a' b c
    expect_bytes '[a a][b][c]'
}

test_option_n_puts_all_items_at_the_placeholder() {
    vow map -k -n 2 echo x {} y ::: a b c
    expect_out 'x a b y' 'x c y'
}

test_option_n_numbers_the_items_of_a_job() {
    vow map -k -n 2 echo '{2} {1}' ::: a b c d
    expect_out 'b a' 'd c'
}

test_several_lists_give_every_combination_in_order() {
    vow map -k echo ::: a b ::: 1 2 3
    expect_code 0
    expect_out 'a 1' 'a 2' 'a 3' 'b 1' 'b 2' 'b 3'
}

test_several_lists_are_separate_arguments() {
    vow map printf '[%s]' ::: 'a a' ::: b
    expect_bytes '[a a][b]'
}

test_several_lists_are_named_by_number() {
    vow map -k echo '{2}{1}' ::: a b ::: 1 2
    expect_out 1a 2a 1b 2b
}

test_three_lists_multiply() {
    vow map -k echo '{1}{2}{3}' ::: a b ::: c d ::: e f
    expect_out ace acf ade adf bce bcf bde bdf
}

test_a_list_and_a_file_multiply() {
    printf '1\n2\n' >items
    vow map -k echo '{1}{2}' ::: a b :::: items
    expect_out a1 a2 b1 b2
    vow map -k echo '{1}{2}' :::: items ::: a b
    expect_out 1a 1b 2a 2b
}

test_a_product_with_an_empty_list_is_empty() {
    : >empty
    vow map echo ::: a b :::: empty
    expect_code 0
    expect_out
}

test_empty_standard_input_gives_no_job() {
    vow map echo ran </dev/null
    expect_code 0
    expect_out
    expect_err
}

test_an_empty_file_gives_no_job() {
    : >empty
    vow map -a empty echo ran
    expect_code 0
    expect_out
    expect_err
}

test_three_colons_and_nothing_give_no_job() {
    vow map echo ran :::
    expect_code 0
    expect_out
}

test_empty_input_gives_no_job_with_option_n() {
    vow map -n 10 echo ran </dev/null
    expect_code 0
    expect_out
}

test_items_that_look_like_options_are_data() {
    vow map -k printf '[%s]\n' ::: -e --help -- -j0
    expect_code 0
    expect_out '[-e]' '[--help]' '[--]' '[-j0]'
}

test_options_after_the_command_belong_to_it() {
    vow map -k printf '[%s]' -j --bar ::: a
    expect_bytes '[-j][--bar][a]'
}

test_two_dashes_end_the_options() {
    vow map -k -- echo ::: a
    expect_code 0
    expect_out a
}

test_a_job_runs_before_the_input_has_ended() {
    {
        echo first
        wait_for test -e first
        echo second
    } | vow map touch
    expect_code 0
    expect test -e second
}

test_endless_input_is_read_as_needed() {
    yes | vow map -j1 --halt now,done=3 echo
    expect_code 0 3
    expect_out y y y
}

test_a_fifo_is_a_file() {
    mkfifo pipe
    printf 'a\nb\n' >pipe &
    vow map -k -a pipe echo
    expect_out a b
}

test_a_short_queue_reads_all_the_input() {
    seq 50 | vow map -k -j2 --queue 1 echo
    expect_code 0
    seq 50 >wanted
    cmp wanted "$OUT" || fail 'the output is not as expected'
}

test_a_word_that_only_begins_like_a_separator_is_an_item() {
    vow map -k echo ::: a :::x b
    expect_out a :::x b
}

test_linked_lists_are_refused_with_advice() {
    vow map echo ::: a b :::+ 1 2
    expect_code 2
    expect_err_has 'split them by -C'
}

test_a_nul_byte_ends_the_run_after_what_runs() {
    printf 'a\nb\0c\ne\n' | vow map -j1 'sleep 0.2; echo {}'
    expect_code 125
    expect_out a
    expect_err_has NUL
}

# ---- what would be wrong in silence -----------------------------------------

# refused SENTENCE ARGUMENT...: vow map refuses these before the first job.
refused() {
    sentence=$1
    shift
    note "$*"
    vow map "$@"
    expect_code 2
    expect_out
    expect_err_has "$sentence"
}

test_several_files_are_several_sources() {
    seq 2 >numbers
    printf 'a\nb\n' >letters
    vow map -k -a numbers -a letters echo '{1}' '{2}' ::: x y
    expect_code 0
    expect_out '1 a' '1 a' '1 b' '1 b' '2 a' '2 a' '2 b' '2 b'
    vow map -k -a numbers --arg-file letters echo
    expect_out '1 a' '1 b' '2 a' '2 b'
}

test_a_pattern_is_no_separator() {
    for pattern in '\s+' '\d' '\W' ' +' ', *' '[,;]' '[[:space:]]+' ',|;' \
        ' {2,}' '\s*,\s*' '\t+' '\0' 'a\0'; do
        refused "-C" -C "$pattern" echo '{1}' ::: 'a b'
    done
    refused 'plain text, not a pattern' -d '\s' echo ::: a
}

test_signs_are_separators() {
    for separator in '|' '||' ' | ' '+' '++' '*' '.' '::' '->' '?' '^' '$' \
        '[' '{'; do
        note "$separator"
        vow map -C "$separator" echo '{1}' '{2}' ::: "a${separator}b"
        expect_code 0
        expect_out 'a b'
    done
    vow map -C ' \+ ' echo '{2}' ::: 'a + b'
    expect_out b
    vow map -C '\|' echo '{2}' ::: 'a|b'
    expect_out b
    vow map -C '\r' echo '{2}' ::: "$(printf 'a\rb')"
    expect_out b
}

test_a_column_that_is_nearly_named_is_refused() {
    for name in hos hsot hosts hust Host host2 host2.; do
        refused "{$name}: no column has this name; did you mean {host}?" \
            -C, --header echo "{$name}" ::: host,age Ann,41
    done
    refused '{ag}: no column' -C, --header 'echo {host} {ag}' ::: host,age Ann,41
}

test_other_braces_stay() {
    vow map -k -C, --header echo '{host.}' '{word}' '{a b}' '{{hsot}}' '{i}' \
        ::: host,i Ann.x,41
    expect_code 0
    expect_out 'Ann {word} {a b} {hsot} 41'
    # shellcheck disable=SC2016 # for the job
    vow map -C, --header 'hos=1; echo ${hos} {host}' ::: host,x Ann,41
    expect_out '1 Ann'
    vow map -C, --header echo '{x}' '{y}' ::: name,z Ann,41
    expect_out '{x} {y} Ann,41'
}

test_a_field_that_no_job_has_is_refused() {
    refused '{2}: no job has more than 1 field' echo '{2}' ::: a b
    refused '{2}: no job has more than 1 field' grep -E 'a{2}' ::: a
    refused '{3/}: no job has more than 2 fields' 'echo {3/}' ::: a ::: b
    refused '{3}: no job has more than 2 fields' -n2 echo '{3}' ::: a b c
    refused '{3}: no job has more than 2 fields' -n9 echo '{3}' ::: a b
    refused '{3}: no job has more than 2 fields' -C, echo '{3}' ::: a,b c
    refused '{2}: no job has more than 1 field' --pool 'p:{2}' -j1 echo ::: a
    echo a | vow map echo '{2}'
    expect_code 2
}

test_a_field_that_a_job_may_have_is_empty() {
    vow map -k -C, echo '<{2}>' ::: a,b c
    expect_out '<b>' '<>'
    vow map -k -n2 echo '<{2}>' ::: a b c
    expect_out '<b>' '<>'
    echo a | vow map -C, echo '<{3}>'
    expect_code 0
    expect_out '<>'
}

test_a_header_is_asked_for_as_with_parallel() {
    for header in '--header :' --header=: --header; do
        note "$header"
        # shellcheck disable=SC2086 # words
        vow map -C, $header echo '{name}' ::: name,age Ann,41
        expect_code 0
        expect_out Ann
    done
    refused 'use --header' --header=x echo ::: a b
}
