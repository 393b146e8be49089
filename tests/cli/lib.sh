# SPDX-License-Identifier: MIT
# shellcheck shell=dash
# lib.sh - what the tests of the command are written with.
#
# A test says `vow map ...`, then what it expects. vow's output, its errors and
# the way it ended are kept in files, so this works at the end of a pipeline
# too. A failed expectation ends the test.
#
# $VOW  the program         $T    the test's folder; it runs in $T/work
# $OUT $ERR                 what vow wrote; set OUT=/dev/null to drop it
# $PID                      the process of vow, after `start`

OUT=$T/out
ERR=$T/err
STATUS=$T/status
# shellcheck disable=SC2034 # for the tests
TAB=$(printf '\t')
ulimit -c 0

# ---- running vow ------------------------------------------------------------

# The shell cannot tell exit 143 from a death by TERM and starts what is in the
# background with INT and QUIT ignored. So a parent in between does the waiting,
# and marks the environment: all that vow leaves behind has the mark too. The
# descriptors of whoever runs the tests end here. The modules POSIX and Config would
# take five times as long as vow.
# shellcheck disable=SC2016 # for perl
PARENT='
my ($status, $pidfile) = splice @ARGV, 0, 2;
my $pid = fork;
if (!$pid) {
    $SIG{$_} = "DEFAULT" for qw(HUP INT QUIT TERM PIPE USR1 USR2 CHLD TSTP);
    $SIG{$_} = "IGNORE" for split " ", $ENV{VOW_TEST_IGNORE} // "";
    delete $ENV{VOW_TEST_IGNORE};
    $ENV{VOW_TEST_RUN} = $ENV{VOW_TEST_ID};
    opendir my $d, "/proc/self/fd";
    my @open = grep { /^\d+$/ && $_ > 2 } readdir $d;
    closedir $d;
    for (@open) { open my $f, "<&=", $_ and close $f }
    exec { $ARGV[0] } @ARGV or exit 127;
}
sub note { open my $f, ">", "$_[0].new"; print $f $_[1]; close $f;
           rename "$_[0].new", $_[0] }
note($pidfile, "$pid\n");
waitpid $pid, 0;
my $n = $? & 127;
my $usage = "\0" x 256; # getrusage(RUSAGE_CHILDREN): its maxrss is in KiB
syscall($ENV{VOW_TEST_GETRUSAGE}, -1, $usage);
note("$pidfile.peak", unpack("x32 l!", $usage) . "\n");
if ($n) {
    require Config;
    note($status, "signal " . (split " ", $Config::Config{sig_name})[$n] . "\n");
} else {
    note($status, "exit " . ($? >> 8) . "\n");
}'

vow() {
    rm -f "$STATUS"
    perl -e "$PARENT" "$STATUS" "$T/pid" "$VOW" "$@" >"$OUT" 2>"$ERR" || true
}

# start ARGUMENT...: run vow in the background. `finish` waits for its end.
start() {
    rm -f "$T/pid" "$STATUS"
    : >"$ERR"
    perl -e "$PARENT" "$STATUS" "$T/pid" "$VOW" "$@" >"$OUT" 2>"$ERR" &
    SUPERVISOR=$!
    wait_for test -s "$T/pid"
    PID=$(cat "$T/pid")
}

finish() {
    wait "$SUPERVISOR" || true
}

# ---- what is expected -------------------------------------------------------

# note TEXT: shown only if the test fails.
note() {
    printf '%s\n' "-- $*"
}

fail() {
    : >"$T/failed"
    printf '%s\n' "$*"
    printf 'status: %s\n' "$(cat "$STATUS" 2>/dev/null)"
    for stream in "$ERR" "$OUT"; do
        [ -f "$stream" ] || continue
        head -c 2000 "$stream" | sed "s/^/${stream##*/}: /" | head -n 20
    done
    exit 1
}

# expect COMMAND...: the command is true.
expect() {
    "$@" || fail "expected: $*"
}

expect_not() {
    if "$@"; then
        fail "not expected: $*"
    fi
}

# expect_code N...: vow exited, with one of these.
expect_code() {
    for code; do
        [ "$(cat "$STATUS")" != "exit $code" ] || return 0
    done
    fail "expected: exit $*"
}

# expect_failure: vow exited, and not with 0.
expect_failure() {
    case $(cat "$STATUS") in
    'exit 0' | signal*) fail 'expected: a failure' ;;
    esac
}

# expect_signal NAME: vow was killed by that signal.
expect_signal() {
    [ "$(cat "$STATUS")" = "signal $1" ] || fail "expected: death by $1"
}

# expect_file FILE [LINE...]: exactly these lines, or nothing at all.
expect_file() {
    file=$1
    shift
    : >"$T/wanted"
    [ $# -eq 0 ] || printf '%s\n' "$@" >"$T/wanted"
    cmp -s "$T/wanted" "$file" || {
        : >"$T/failed"
        diff -a -u --label expected --label "${file##*/}" "$T/wanted" "$file" ||
            true
        fail "${file##*/} is not as expected"
    }
}

expect_out() {
    expect_file "$OUT" "$@"
}

expect_err() {
    expect_file "$ERR" "$@"
}

# expect_sorted LINE...: these lines, in any order; give them sorted.
expect_sorted() {
    LC_ALL=C sort "$OUT" >"$T/sorted"
    expect_file "$T/sorted" "$@"
}

# expect_bytes TEXT: vow wrote exactly this, with \n, \t and \0NNN in it.
expect_bytes() {
    printf '%b' "$1" >"$T/wanted"
    cmp "$T/wanted" "$OUT" || fail "expected the bytes: $1"
}

# Without regard to case, and as plain text.
expect_err_has() {
    grep -qiF -e "$1" "$ERR" || fail "expected in err: $1"
}

expect_out_has() {
    grep -qiF -e "$1" "$OUT" || fail "expected in out: $1"
}

# expect_lines N FILE
expect_lines() {
    lines=$(wc -l <"$2")
    [ "$lines" -eq "$1" ] || fail "expected $1 lines in $2, there are $lines"
}

# expect_json FILE: every line is a JSON object, in UTF-8.
expect_json() {
    iconv -f UTF-8 -t UTF-8 "$1" >/dev/null || fail "$1 is not in UTF-8"
    # shellcheck disable=SC2016 # for perl
    perl -ne '
        BEGIN { our $json = qr/
            (?(DEFINE)
            (?<value> \s* (?: (?&object) | (?&array) | (?&string)
                | -?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?
                | true | false | null ) \s*)
            (?<object> \{ \s* (?: (?&pair) (?: , (?&pair) )* )? \})
            (?<pair> \s* (?&string) \s* : (?&value))
            (?<array> \[ \s* (?: (?&value) (?: , (?&value) )* )? \])
            (?<string> " (?: [^"\\\x00-\x1f]
                | \\ (?: ["\\\/bfnrt] | u[0-9a-fA-F]{4} ) )* ")
            )/x }
        unless (/^$json(?&object)$/) { print; exit 1 }' "$1" ||
        fail "a line of $1 is not JSON"
}

# ---- time and processes -----------------------------------------------------

# wait_for COMMAND...: wait until the command is true. The command is tried less
# often after half a second, as trying costs the other tests time. The limit of
# two minutes is for a condition that never comes true.
wait_for() {
    for look in $(seq $((1200 * VOW_TEST_SLOW))); do
        "$@" 2>/dev/null && return
        if [ "$look" -le 25 ]; then sleep 0.02; else sleep 0.1; fi
    done
    fail "waited in vain for: $*"
}

has_line() {
    grep -qxF -e "$2" "$1"
}

has_lines() {
    [ -f "$2" ] && [ "$(wc -l <"$2")" -ge "$1" ]
}

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

# Whatever was started by the vow under test and lives, itself included, as
# lines /proc/N/environ.
left() {
    grep -lsz "^VOW_TEST_RUN=$VOW_TEST_ID\$" /proc/[0-9]*/environ || true
}

none_left() {
    [ -z "$(left)" ]
}

# The last of them may still be dying when vow has ended.
expect_none_left() {
    for _ in $(seq $((600 * VOW_TEST_SLOW))); do
        ! none_left || return 0
        sleep 0.05
    done
    left | while read -r file; do
        note "left: $(tr '\0' ' ' 2>/dev/null <"${file%environ}cmdline")"
    done
    fail 'processes are left'
}

# peak FILE: the greatest sum of its lines, each a number with its sign, on the
# way down the file. Jobs write +1 when they begin and -1 before they end.
peak() {
    sum=0 most=0
    while read -r step; do
        sum=$((sum + step))
        [ "$sum" -le "$most" ] || most=$sum
    done <"$1"
    echo "$most"
}

# watch_memory: wait for the vow of `start` to end; $MEMORY is the most memory, in
# KiB, that vow or a command of vow had at a time.
watch_memory() {
    finish
    MEMORY=$(cat "$T/pid.peak")
}

# expect_small: the memory of vow stayed within the bound.
expect_small() {
    [ "$MEMORY" -lt "${VOW_TEST_MEMORY:-10240}" ] ||
        fail "vow or a command of vow used $MEMORY KiB of memory"
}

# ---- a terminal -------------------------------------------------------------

# terminal WIDTH HEIGHT SHELL SCRIPT: run a script in a terminal of its own. All
# that reaches its screen is also in the file $T/raw.
# shellcheck disable=SC2016 # for the script
terminal() {
    printf 'until [ -e "$T/go" ]; do sleep 0.02; done\n' >"$T/script"
    printf 'export VOW_TEST_RUN="$VOW_TEST_ID"\n%s\n' "$4" >>"$T/script"
    printf 'set -g %s\n' 'remain-on-exit on' "remain-on-exit-format ''" \
        'status off' 'history-limit 500' >"$T/tmux.conf"
    rm -f "$T/go" "$T/raw"
    SOCKET=${SOCKET:-$T/tmux}x
    SHELL=/bin/sh tmux -S "$SOCKET" -f "$T/tmux.conf" new-session -d \
        -x "$1" -y "$2" -c "$PWD" "exec $3 $T/script"
    tmux -S "$SOCKET" pipe-pane "cat >$T/raw"
    wait_for test -e "$T/raw"
    : >"$T/go"
}

# keys KEY...: type, in tmux's names.
keys() {
    tmux -S "$SOCKET" send-keys "$@"
}

# The screen with what was scrolled out of it, without empty lines.
screen() {
    tmux -S "$SOCKET" capture-pane -p -S - | grep -v '^ *$'
}

terminal_over() {
    [ "$(tmux -S "$SOCKET" display-message -p '#{pane_dead}')" = 1 ]
}

# show_screen: for a test that fails.
show_screen() {
    screen | sed 's/^/screen: /' || true
}
