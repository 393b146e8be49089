# SPDX-License-Identifier: MIT
# shellcheck shell=dash disable=SC2016 # the shells have variables of their own
# completion.sh - what bash, zsh and fish offer for the real verbs, with the
# names of a store. options_test.c has the rest.

# shellcheck source=/dev/null
. "$0/store.sh"

# A store with a result, a lock, slots and a pool. One name would do harm on a
# command line.
prepare() {
    vow share --ttl 1h alpha -- true
    vow share --ttl 1h '$(touch hacked)' -- true
    vow share --ttl 1h --argv -- echo hello
    vow lock deploy -- true
    vow lock --slots 2 gpu -- true
    vow limit api -j 3
    "$VOW" share --store "file:$T/other" --ttl 1h beta -- true
    touch here
    PATH=${VOW%/*}:$PATH
}

# ---- the names --------------------------------------------------------------

# offered VERB NAME...: these are offered to it, whatever their order.
offered() {
    OUT=$T/names vow status --names "$1"
    expect_code 0
    expect_err
    shift
    LC_ALL=C sort "$T/names" >"$T/sorted.names"
    expect_file "$T/sorted.names" "$@"
}

test_each_verb_is_offered_its_names() {
    prepare
    offered status alpha api deploy gpu
    offered share alpha
    offered result alpha
    offered forget alpha
    offered cancel
    offered resolve
    offered lock deploy gpu
    offered limit api
    call a share running -- sh -c "$JOB"
    call b share --once doubt -- sh -c 'touch begun; exec sleep 300'
    wait_for runs_are 1
    wait_for test -e begun
    offered cancel doubt running
    send KILL b
    settle b
    offered resolve doubt
    expect_not test -e hacked
    touch go
    settle a
}

test_names_make_no_store() {
    offered share
    expect_not test -e "$T/store"
}

# Nobody who presses a key waits for a server that does not answer.
test_names_are_not_waited_for() {
    mkfifo silent
    perl -MIO::Socket::UNIX -e 'my $s = IO::Socket::UNIX->new(
        Local => "deaf", Listen => 1); open my $f, ">", "listens";
        my @held; push @held, $s->accept while 1' &
    deaf=$!
    wait_for test -e listens
    before=$(now_ms)
    VOW_STORE="unix:$PWD/deaf?timeout=600000" vow status --names share
    kill "$deaf"
    expect_out
    expect test "$(($(now_ms) - before))" -lt 60000
}

# ---- the shells -------------------------------------------------------------

# offers LINE CANDIDATE...: as tried by $SHELL_OF, and perhaps options.
offers() {
    line=$1
    shift
    note "$SHELL_OF: $line"
    "${SHELL_OF}_offers" "$line" | sed '/^-[^-]/d;/^--./d' |
        LC_ALL=C sort -u >candidates
    expect_file candidates "$@"
}

bash_offers() {
    bash --norc -c '. ./script
        COMP_LINE=$1
        read -ra COMP_WORDS <<<"$1"
        [[ $1 != *" " ]] || COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _vow
        ((${#COMPREPLY[@]} == 0)) || printf "%s\n" "${COMPREPLY[@]}"' \
        bash "$1"
}

fish_offers() {
    fish --no-config -c '. ./script
        complete -C $argv[1] | string replace -r "\t.*" ""' "$1"
}

# What the line becomes, if there is one candidate.
zsh_offers() {
    rm -f line
    zsh -f -c '
        zmodload zsh/zpty
        zpty -b z zsh -f -i
        zpty -w z "PS1=; autoload -U compinit; compinit -u -D; . ./script
            seen() { print -r -- \$BUFFER >line.new; mv line.new line }
            zle -N seen; bindkey \"^X\" seen; : >ready"
        until [[ -e ready ]] { zpty -rt z got; sleep 0.02 }
        rm ready
        zpty -n -w z "$1"$'\''\t\x18'\''
        until [[ -e line ]] { zpty -rt z got; sleep 0.02 }
        zpty -d z' zsh "$1"
    line_now=$(cat line)
    line_now=${line_now#"${1% *} "}
    [ "$line_now" = "${1##* }" ] || echo "${line_now% }"
}

# with_shell NAME: it has the script; false: there is no such shell.
with_shell() {
    SHELL_OF=$1
    command -v "$1" >found || return 1
    prepare
    vow completion "$1"
    cp "$OUT" script
}

# What all of them do; each line takes a shell of its own.
offers_the_same() {
    offers 'vow share mkfif'
    offers 'vow lock x mkfif'
    offers 'vow lock --lease 5s x -- cat her' here
    offers 'vow share --argv -- mkfif' mkfifo
    offers 'vow status al' alpha
    offers "vow share --store file:$T/other be" beta
    expect_not test -e hacked
}

# What the quick ones do besides.
offers_more() {
    for verb in status result forget cancel resolve limit share lock; do
        offers "vow $verb mkfif"
        offers "vow $verb her"
    done
    for verb in share lock; do
        offers "vow $verb x mkfif"
        offers "vow $verb x -- mkfif" mkfifo
        offers "vow $verb x -" --
        offers "vow $verb x " --
    done
    offers 'vow doctor mkfif'
    offers 'vow pipe mkfif'
    offers 'vow map mkfif' mkfifo
    offers 'vow run -- mkfif' mkfifo
    offers 'vow status ' alpha api deploy gpu
    offers 'vow share al' alpha
    offers 'vow result al' alpha
    offers 'vow cancel al'
    offers 'vow lock de' deploy
    offers 'vow limit ap' api
}

test_bash_offers_programs_only_behind_the_dashes() {
    with_shell bash || return 0
    offers_the_same
    offers_more
}

test_fish_offers_programs_only_behind_the_dashes() {
    with_shell fish || return 0
    offers_the_same
    offers_more
}

test_zsh_offers_programs_only_behind_the_dashes() {
    with_shell zsh || return 0
    offers_the_same
}
