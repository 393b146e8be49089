# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# command.sh - how a command and an item become a process.

# ---- without a shell --------------------------------------------------------

test_words_are_executed_without_a_shell() {
    vow map echo '$HOME' '$(id)' '*' ';' '>file' ::: a
    expect_code 0
    expect_out '$HOME $(id) * ; >file a'
    expect_not test -e file
}

test_an_item_is_never_shell_text() {
    vow map -k echo ::: '$(touch hacked)' '; touch hacked' '`touch hacked`'
    expect_out '$(touch hacked)' '; touch hacked' '`touch hacked`'
    expect_not test -e hacked
}

test_a_single_plain_word_is_executed() {
    printf '#!/bin/sh\nprintf "[%%s]" "$@"\n' >prog
    chmod +x prog
    vow map ./prog ::: 'a b'
    expect_bytes '[a b]'
}

test_option_exec_runs_a_word_with_blanks() {
    mkdir 'my dir'
    printf '#!/bin/sh\nprintf "[%%s]" "$@"\n' >'my dir/prog'
    chmod +x 'my dir/prog'
    vow map --exec './my dir/prog' ::: 'a b'
    expect_code 0
    expect_bytes '[a b]'
}

test_the_command_is_found_by_path() {
    mkdir bin
    printf '#!/bin/sh\necho found "$1"\n' >bin/only-here
    chmod +x bin/only-here
    PATH=$PWD/bin:$PATH vow map only-here ::: a
    expect_out 'found a'
}

test_the_command_itself_may_be_an_item() {
    vow map -k {} hello ::: echo printf
    expect_code 0
    expect_bytes 'hello\nhello'
}

# ---- with a shell -----------------------------------------------------------

test_a_single_word_with_blanks_is_run_by_a_shell() {
    vow map -k 'echo {} | tr a-z A-Z' ::: a 'b  c'
    expect_code 0
    expect_out A 'B  C'
}

test_a_single_word_with_shell_characters_is_run_by_a_shell() {
    vow map 'echo>{}' ::: a
    expect_code 0
    expect test -e a
}

test_a_shell_line_without_placeholder_gets_the_item_appended() {
    vow map 'echo x; printf "[%s]"' ::: 'a  b'
    expect_code 0
    expect_bytes 'x\n[a  b]'
}

test_a_placeholder_is_one_word_whatever_quotes_are_around_it() {
    for template in 'printf "[%s]" {}' 'printf "[%s]" "{}"' \
        "printf '[%s]' '{}'" 'printf "%s" "[$(printf %s {})]"' \
        'printf "%s" "[$(printf %s "{}")]"'; do
        note "$template"
        vow map "$template" ::: 'a  $b "c'"'"' *'
        expect_code 0
        expect_bytes '[a  $b "c'"'"' *]'
    done
}

test_a_placeholder_in_backquotes_is_one_word_or_refused() {
    vow map 'printf "%s" "[`printf %s {}`]"' ::: 'a  $b *'
    expect_code 0 2
    [ "$(cat "$STATUS")" = 'exit 2' ] || expect_bytes '[a  $b *]'
    [ "$(cat "$STATUS")" = 'exit 0' ] || expect test -s "$ERR"
}

test_text_around_a_placeholder_stays_with_it() {
    vow map 'printf "[%s]" x{}y "x{}y" '"'x{}y'" ::: 'a  b'
    expect_bytes '[xa  by][xa  by][xa  by]'
}

test_variables_of_the_line_are_the_shells() {
    vow map 'x={}; printf "[%s]" "$x"' ::: 'a  b'
    expect_code 0
    expect_bytes '[a  b]'
}

test_option_shell_names_the_shell() {
    printf '#!/bin/sh\necho mine\nexec /bin/sh "$@"\n' >mysh
    chmod +x mysh
    vow map --shell ./mysh 'echo {}; :' ::: a
    expect_code 0
    expect_out mine a
}

test_bash_may_be_the_shell() {
    vow map --shell /bin/bash 'echo "${BASH_VERSION:+bash}" {}' ::: 'a  b'
    expect_code 0
    expect_out 'bash a  b'
}

# ---- what a shell would run -------------------------------------------------

# never_runs COMMAND...: the item is refused or data, whatever is in it.
never_runs() {
    for item in '$(touch PWN)' 'a[$(touch PWN)]' 'x[$(touch PWN)]=1' \
        '; touch PWN;'; do
        note "$* ::: $item"
        vow map "$@" ::: "$item"
        expect_not test -e PWN
    done
}

test_a_shell_reads_no_item_as_text_behind_its_options() {
    never_runs sh -c -e 'echo {}'
    never_runs sh -c -- 'echo {}'
    never_runs bash -ceuo pipefail 'echo {}'
    never_runs bash --rcfile F -c 'echo {}'
    never_runs rbash -c 'echo {}'
    never_runs 'sh -c 2>&1 "echo {}"'
    never_runs 'sh -c "echo $(echo {})"'
    never_runs '"$SHELL" -c "echo {}"'
    never_runs 'sh "-c" "echo {}"'
}

test_a_builtin_reads_no_item_as_text() {
    never_runs "trap -- 'rm -f {}' EXIT"
    never_runs 'command eval "echo {}"'
    never_runs '\eval "echo {}"'
    never_runs 'alias f="echo {}"
f'
    never_runs 'BASH_ENV={} bash -c true'
    never_runs env BASH_ENV={} bash -c true
}

test_bash_evaluates_no_item() {
    for template in 'ls >& {}.log' 'x[{}+y[0]+2]=5' 'x[1|{}]=5' 'x=(
[{}]=1
)' 'declare "x[{}]=1"' 'x={}; echo ${HOME:x}' 'let {}' 'read {}' \
        'test -v {}' 'printf -v {} x' 'x={}; echo ${!x}' 'OPTIND={}; :'; do
        never_runs --shell bash "$template"
        never_runs bash -c "$template"
    done
}

test_a_function_is_refused_whatever_blanks_are_in_its_head() {
    vow map "f (${TAB}) { echo {}; }; f own" ::: item
    expect_code 2
    expect_err_has 'write instead:' '  item={}; f'
}

test_a_refused_template_is_shown_with_the_place_and_what_works() {
    vow map 'ls >& {}.log' ::: a
    expect_code 2
    expect_err \
        'vow map: {} cannot stand behind >&: bash expands the word there twice' \
        '  ls >& {}.log' '        ^^' 'write instead:' '  ls > {}.log 2>&1'
}

test_a_refused_job_is_told_what_works() {
    vow map 'bash -e -c "echo {}"' ::: plain 'a b'
    expect_code 1
    expect_out plain
    expect_err_has "as in bash -e -c 'echo \"\$1\"' _ {}"
    vow map bash -e -c 'echo "$1"' _ {} ::: 'a b'
    expect_out 'a b'
}

test_what_takes_any_item_takes_it_as_it_is() {
    printf 'printf "[%%s]" "$@"\n' >build.sh
    vow map 'bash build.sh {} x{}' ::: '$(touch PWN)'
    expect_bytes '[$(touch PWN)][x$(touch PWN)]'
    CC=echo vow map '"$CC" -c {}' ::: 'a[$(touch PWN)] b'
    expect_out '-c a[$(touch PWN)] b'
    vow map sh -c {} ::: 'echo asked for'
    expect_out 'asked for'
    expect_not test -e PWN
}

# ---- placeholders -----------------------------------------------------------

test_placeholders_cut_a_path() {
    for pair in '{}=d.d/s/file.tar.gz' '{.}=d.d/s/file.tar' \
        '{/}=file.tar.gz' '{//}=d.d/s' '{/.}=file.tar'; do
        note "$pair"
        vow map echo "${pair%%=*}" ::: d.d/s/file.tar.gz
        expect_out "${pair#*=}"
    done
}

test_placeholders_cut_a_path_in_a_shell_line() {
    vow map 'echo {.} "{/}" {//} {/.}; :' ::: 'a b/c d.txt'
    expect_out 'a b/c d c d.txt a b c d'
}

test_a_name_without_extension_stays_whole() {
    vow map echo '{.} {/.}' ::: a.d/file
    expect_out 'a.d/file file'
}

test_a_name_without_folder_is_in_the_current_one() {
    vow map echo '{//} {/}' ::: file.c
    expect_out '. file.c'
}

test_jobs_are_numbered_from_1() {
    vow map -k echo '{#}={}' ::: a b c
    expect_out 1=a 2=b 3=c
}

test_slots_are_numbered_from_1() {
    vow map -j1 -k echo '{%}={}' ::: a b c
    expect_out 1=a 1=b 1=c
}

test_nothing_is_appended_when_only_the_number_is_asked_for() {
    vow map -k echo '{#}' ::: a b
    expect_out 1 2
}

test_a_slot_belongs_to_one_job_at_a_time() {
    vow map -j3 'mkdir s{%} && sleep 0.0{} && rmdir s{%}' ::: 1 2 3 4 5 6
    expect_code 0
    expect_err
    vow map -j3 'echo {%}; : {}' ::: 1 2 3 4 5 6
    expect_lines 6 "$OUT"
    expect_not grep -qvx '[123]' "$OUT"
}

test_placeholders_cut_a_numbered_path() {
    vow map echo '{2.} {1.}' ::: a/b.c ::: d.tar.gz
    expect_out 'd.tar a/b'
}

test_a_placeholder_may_be_repeated_within_a_word() {
    vow map echo 'pre{}-{}post' ::: a
    expect_out prea-apost
}

test_double_braces_are_literal() {
    vow map echo '{{}}' ::: a
    expect_out '{} a'
    vow map echo '{{#}} {}' ::: a
    expect_out '{#} a'
    vow map echo '{{{}}}' ::: a
    expect_out '{a}'
}

test_double_braces_are_literal_in_a_shell_line() {
    vow map 'echo "{{}}" {}' ::: a
    expect_out '{} a'
}

test_unknown_words_in_braces_stay() {
    vow map echo '{foo} {a,b} {print $1} { } {}' ::: x
    expect_out '{foo} {a,b} {print $1} { } x'
}

test_awk_needs_no_quoting() {
    printf 'one two\n' >data
    vow map awk '{print $2}' ::: data
    expect_code 0
    expect_out two
}

test_awk_works_in_a_shell_line() {
    printf 'one two\n' >data
    vow map "awk '{print \$2}' {} | tr a-z A-Z" ::: data
    expect_out TWO
}

test_braces_within_an_item_are_data() {
    vow map -k echo {} ::: '{}' '{#}' '{{' '{1}'
    expect_out '{}' '{#}' '{{' '{1}'
}

test_option_capital_i_renames_the_placeholder() {
    vow map -I % echo 'a%b' {} ::: x
    expect_out 'axb {}'
}

test_option_capital_i_takes_a_word() {
    vow map -I FILE 'echo "FILE" | tr a-z A-Z' ::: x
    expect_out X
}

test_run_has_no_placeholders() {
    vow run -- echo {} '{#}'
    expect_out '{} {#}'
}

test_run_takes_its_words_as_they_are() {
    vow run -- printf '[%s]' 'a  b' '$x' '' -j
    expect_code 0
    expect_bytes '[a  b][$x][][-j]'
}

# ---- what a job is given ----------------------------------------------------

test_a_job_reads_nothing_from_standard_input() {
    printf 'a\nb\nc\n' | vow map -k -j1 'cat; readlink /proc/self/fd/0; echo {}'
    expect_out /dev/null a /dev/null b /dev/null c
}

test_a_job_knows_its_number_slot_and_try() {
    vow map -k -j1 'echo {} $VOW_SEQ $VOW_SLOT $VOW_TRY' ::: a b
    expect_out 'a 1 1 1' 'b 2 1 1'
}

test_a_job_has_the_environment_of_vow() {
    GREETING='hello  there' vow map 'echo "$GREETING"; : {}' ::: a
    expect_out 'hello  there'
}

test_a_job_runs_in_the_folder_of_vow() {
    vow map 'pwd; : {}' ::: a
    expect_out "$PWD"
}

# In a subshell: this shell opens none of its own, so they all come from vow.
only_three_descriptors() {
    vow map "$@" '(ls /proc/$$/fd >fds.{#})
        echo "$VOW_RETRY_AFTER_FD" >more.{#}; : {}' ::: a b c d
    expect_code 0
    for number in 1 2 3 4; do
        grep -vxF -e "$(cat "more.$number")" "fds.$number" >fds || true
        expect_file fds 0 1 2
    done
}

test_a_job_sees_only_three_descriptors() {
    only_three_descriptors -j2
}

test_a_job_sees_only_three_descriptors_whatever_vow_has_open() {
    only_three_descriptors -j3 -k --log log --joblog joblog --results results \
        --retries 2 --rate 100/s --timeout 20s
}

test_a_job_sees_only_three_descriptors_live() {
    only_three_descriptors -j2 --output live
}

test_a_command_of_run_sees_only_three_descriptors() {
    vow run -- sh -c '(ls /proc/$$/fd >fds)
        echo "$VOW_RETRY_AFTER_FD" >more'
    expect_code 0
    grep -vxF -e "$(cat more)" fds >rest || true
    expect_file rest 0 1 2
}

test_a_job_has_no_signal_blocked_or_ignored() {
    vow map 'grep -E "^Sig(Blk|Ign)" /proc/self/status; : {}' ::: a
    expect_out "SigBlk:${TAB}0000000000000000" "SigIgn:${TAB}0000000000000000"
}

test_a_command_of_run_has_no_signal_blocked_or_ignored() {
    vow run -- grep -E '^Sig(Blk|Ign)' /proc/self/status
    expect_out "SigBlk:${TAB}0000000000000000" "SigIgn:${TAB}0000000000000000"
}

test_a_job_leads_a_process_group_of_its_own() {
    vow map -k 'read -r _ _ _ _ group _ </proc/$$/stat
        [ "$group" = $$ ] && echo own; : {}' ::: a b
    expect_out own own
}
