# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # jobs have variables of their own
# show.sh - what vow says of its own accord: nothing.

ESC=$(printf '\033')
CR=$(printf '\r')

# ---- not a byte unless asked for --------------------------------------------

test_a_run_with_many_options_says_nothing() {
    vow map -j2 -k --rate 100/s --even --retries 1 --backoff 1s..1m \
        --timeout 20s --deadline 1m --stop-after 1m --delay 1ms --load 10000 \
        --memfree 1k --weight 1 --queue 5 --log log --joblog joblog \
        --results results --halt soon,fail=5 echo ::: a b
    expect_code 0
    expect_out a b
    expect_err
}

test_run_says_nothing() {
    vow run --retries 1 --timeout 20s --rate 5/s -- true
    expect_code 0
    expect_out
    expect_err
}

test_a_bar_is_for_terminals_only() {
    for option in --bar --eta --progress=auto; do
        note "$option"
        vow map -k "$option" echo ::: a b
        expect_code 0
        expect_out a b
        expect_err
    done
}

test_progress_none_says_nothing() {
    vow map -k --progress none echo ::: a b
    expect_out a b
    expect_err
}

test_plain_progress_has_no_control_characters() {
    vow map -k --progress plain 'sleep 0.3; echo {}' ::: a b
    expect_code 0
    expect_out a b
    expect_not grep -q "[$ESC$CR]" "$ERR"
}

test_progress_tells_who_waits_for_another_try() {
    start map --retries 1 --progress plain \
        'echo 300 >&$VOW_RETRY_AFTER_FD; : {}; exit 75' ::: a
    wait_for grep -qF '0/1  1 retrying' "$ERR"
    kill -TERM "$PID"
    finish
}

test_progress_tells_who_failed_after_the_last_try() {
    vow map --retries 1 --backoff 1ms --progress plain \
        'sleep 1; : {}; exit 75' ::: a
    expect_code 1
    expect_err_has '1/1  1 failed'
}

test_option_v_tells_the_commands() {
    vow map -v echo ::: one two
    expect_code 0
    expect_sorted one two
    expect_err_has 'echo one'
    expect_err_has 'echo two'
}

test_a_failure_is_told_without_colours_in_a_file() {
    vow map 'exit {}' ::: 3
    expect_code 1
    expect_out
    expect test -s "$ERR"
    expect_not grep -q "$ESC" "$ERR"
}

test_the_time_left_does_not_need_all_the_input() {
    {
        echo first
        wait_for test -e first
        echo second
    } | vow map --bar --eta touch
    expect_code 0
    expect test -e second
}

# ---- help -------------------------------------------------------------------

test_help_is_on_standard_output() {
    for command in help --help 'help map' 'help run' 'map --help' \
        'run --help'; do
        note "$command"
        # shellcheck disable=SC2086 # words
        vow $command
        expect_code 0
        expect_err
        expect test -s "$OUT"
    done
}

test_help_names_verbs_and_options() {
    vow help
    expect_out_has map
    expect_out_has run
    vow map --help
    for option in -j --rate --retries --timeout --halt --output --resume \
        --dry-run --kill-seq --bar; do
        expect_out_has "$option"
    done
}

test_the_version_is_told() {
    vow --version
    expect_code 0
    expect_err
    expect grep -q '^vow .*[0-9][.][0-9]' "$OUT"
}

test_completion_is_there_for_three_shells() {
    for shell in bash zsh fish; do
        note "$shell"
        vow completion "$shell"
        expect_code 0
        expect_err
        expect_out_has retries
    done
    vow completion tcsh
    expect_failure
}

test_completion_works_in_bash() {
    vow completion bash
    cp "$OUT" completion
    bash -c '. ./completion && complete -p vow' >/dev/null ||
        fail 'bash knows no completion for vow'
}

# ---- on a terminal ----------------------------------------------------------

# end_of_terminal: wait for the script, then show its screen if the test fails.
end_of_terminal() {
    wait_for terminal_over
    screen >"$T/screen" || true
    show_screen
}

test_a_terminal_alone_makes_no_bar() {
    terminal 80 24 sh '"$VOW" map -j1 "sleep 0.3; echo {}" ::: a b; echo end'
    end_of_terminal
    expect_file "$T/screen" a b end
    printf '%s\r\n' a b end >wanted
    wait_for cmp -s wanted "$T/raw"
}

test_progress_none_makes_no_bar_on_a_terminal() {
    terminal 80 24 sh \
        '"$VOW" map --progress none -j1 "sleep 0.3; echo {}" ::: a b; echo end'
    end_of_terminal
    printf '%s\r\n' a b end >wanted
    wait_for cmp -s wanted "$T/raw"
}

# Some output is there, and below it something that is not.
bar_below_output() {
    screen >"$T/now" || true
    grep -qx out1 "$T/now" && ! tail -n 1 "$T/now" | grep -q -e '^out' -e '^end'
}

has_bar() {
    screen | grep -v -e '^out' -e '^end' | grep -q '[0-9]'
}

shows() {
    screen | grep -qx "$1"
}

# The third waits for the file go.
six_jobs='-j1 "sleep 0.1; until [ {} != 3 ] || [ -e go ]; do sleep 0.02; done
    echo out{}" ::: 1 2 3 4 5 6; echo end'

# bar_comes OPTION...: it is drawn, and leaves the output as it should be.
bar_comes() {
    terminal 80 24 sh "\"\$VOW\" map $* $six_jobs"
    wait_for has_bar
    wait_for bar_below_output
    touch go
    end_of_terminal
    grep '^out' "$T/screen" >lines
    expect_file lines out1 out2 out3 out4 out5 out6
}

test_a_bar_is_drawn_under_the_output() {
    bar_comes --bar
}

test_progress_bar_is_a_bar() {
    bar_comes --progress bar
}

test_the_time_left_is_drawn_under_the_output() {
    bar_comes --eta
}

test_a_bar_goes_with_order_and_tags() {
    terminal 80 24 sh '"$VOW" map --bar --tag -k -j2 \
        "sleep 0.2; echo x; sleep 0.2; echo y; : {}" ::: a b; echo end'
    end_of_terminal
    grep '^[ab] ' "$T/screen" | tr -s ' ' >lines
    expect_file lines 'a x' 'a y' 'b x' 'b y'
}

test_a_bar_is_on_standard_error() {
    terminal 80 24 sh "\"\$VOW\" map --bar ${six_jobs%;*} >file; echo end"
    wait_for has_bar
    touch go
    end_of_terminal
    expect_file file out1 out2 out3 out4 out5 out6
}

test_errors_in_a_file_get_no_bar() {
    touch go
    terminal 80 24 sh "\"\$VOW\" map --bar ${six_jobs%;*} 2>file; echo end"
    end_of_terminal
    expect_file file
    expect_file "$T/screen" out1 out2 out3 out4 out5 out6 end
}

# Colours are 30 to 48 and 90 to 107, also as part of a longer sequence.
has_colour() {
    grep -qE "$ESC\[([0-9;]*;)?(3[0-8]|4[0-8]|9[0-7]|10[0-7])(;[0-9;]*)?m" "$1"
}

test_no_color_is_respected() {
    for before in 'NO_COLOR=1' 'NO_COLOR=1 CLICOLOR_FORCE=1'; do
        note "$before"
        terminal 80 24 sh "export $before
            \"\$VOW\" map --bar -v 'sleep 0.2; exit {}' ::: 0 1 2; echo end"
        end_of_terminal
        expect_not has_colour "$T/raw"
    done
}

test_color_never_is_respected() {
    terminal 80 24 sh '
        "$VOW" map --bar --color never "sleep 0.2; exit {}" ::: 0 1 2; echo end'
    end_of_terminal
    expect_not has_colour "$T/raw"
}

# A bar that is too long for its line leaves pieces behind at each drawing.
stays_in_its_line() {
    lines=$(wc -l <"$T/screen")
    expect test "$lines" -le 3
    expect has_line "$T/screen" end
}

many_jobs='
    "$VOW" map --bar --eta -j1 "sleep 0.03; : {}" ::: $(seq 40); echo end'

test_a_bar_fits_a_narrow_terminal() {
    terminal 20 10 sh "$many_jobs"
    end_of_terminal
    stays_in_its_line
}

test_a_bar_fits_a_very_narrow_terminal() {
    terminal 8 10 sh "$many_jobs"
    end_of_terminal
    stays_in_its_line
}

test_a_bar_bears_a_change_of_width() {
    terminal 80 24 sh "\"\$VOW\" map --bar $six_jobs"
    wait_for shows out1
    tmux -S "$SOCKET" resize-window -x 30 -y 24
    touch go
    end_of_terminal
    grep '^out' "$T/screen" >lines
    expect_file lines out1 out2 out3 out4 out5 out6
}

test_a_hidden_cursor_comes_back() {
    terminal 80 24 sh '
        "$VOW" map --bar "touch ready; sleep 300; : {}" ::: a & echo $! >pid
        wait; echo end'
    wait_for test -e ready
    wait_for test -s pid
    sleep 0.3
    kill -TERM "$(cat pid)"
    end_of_terminal
    tr "$ESC" '\n' <"$T/raw" | sed -n 's/^\[?25\([hl]\).*/\1/p' >cursor
    [ ! -s cursor ] || expect test "$(tail -n 1 cursor)" = h
}

test_progress_needs_no_word() {
    vow map --progress echo ::: a
    expect_code 0
    expect_out a
    vow map --progress plain echo ::: a
    expect_code 0
    expect_out a
    expect_err_has '1/1'
    vow map --progress=soon echo ::: a
    expect_code 2
    expect_err_has 'auto, bar, plain or none'
}

# ---- items that would do something to a terminal ----------------------------

# The title of the window, a bell, a line of its own, and a control of 8 bits.
shown='\x1b]0;PWN\a'
make_hostile() {
    printf '\033]0;PWN\007\nvow: all is well\302\233' >item
}

# expect_escaped: nothing of the item has reached the terminal as it is.
expect_escaped() {
    wait_for terminal_over
    show_screen
    expect_not grep -qF "$(printf '\033]0;PWN')" "$T/raw"
    expect_not grep -qF "$(printf '\302\233')" "$T/raw"
    expect_not grep -q '^vow: all is well' "$T/raw"
    screen >"$T/screen"
    expect grep -qF -e "$shown"'\nvow: all is well\u009b' "$T/screen"
}

test_items_are_escaped_on_a_terminal() {
    make_hostile
    for options in 'map false' 'map "exit 1; : {}"' 'map "exit 1; : \"{}\""' \
        'map -v true' 'map --dry-run echo' 'map --dry-run "echo '"'{}'"'"' \
        'map --tag "echo x; : {}"' 'map --tag --output line "echo x >&2; : {}"' \
        'map -v --tty true' 'run -v true'; do
        note "$options"
        case $options in
        run*) terminal 200 24 sh "\"\$VOW\" $options \"\$(cat item)\"" ;;
        *) terminal 200 24 sh "\"\$VOW\" $options ::: \"\$(cat item)\"" ;;
        esac
        expect_escaped
    done
}

test_a_script_of_several_lines_stays_so_on_a_terminal() {
    terminal 80 24 sh '"$VOW" map --dry-run "echo {}
echo 2" ::: a'
    wait_for terminal_over
    expect test "$(screen | tr '\n' /)" = 'echo a/echo 2/'
}

test_items_are_as_they_are_elsewhere() {
    make_hostile
    vow map --dry-run echo ::: "$(cat item)"
    expect_bytes "echo '$(cat item)'\n"
    vow map --tag 'echo x; : {}' ::: "$(cat item)"
    expect_bytes "$(cat item)\tx\n"
}
