/* SPDX-License-Identifier: MIT */
/* shell_guard_test.c - which values a placeholder takes in which word, and that
 * no shell runs a value that a template takes.
 */
#include "shell_kit.h"

static const char *const shells[] = {"dash", "bash", "busybox", "zsh", "ksh93"};

static struct template *make_words(const char *const words[8],
                                   const char *shell, char **ret_error)
{
    struct template_opts o = {.shell = shell};
    size_t n = 0;
    while (n < 8 && words[n] != NULL)
        n++;
    return template_new((char *const *)(uintptr_t)words, n, &o, ret_error);
}

/* "any", "plain", "number" or "refused": what the placeholder takes. */
static const char *find_taken(const char *const words[8], const char *shell)
{
    static const char *const tried[] = {"a b", "a-b_1./:@%+=,", "-1.5"};
    static const char *const names[] = {"any", "plain", "number"};
    const char *taken = "nothing";
    char *error = NULL;
    struct template *t = make_words(words, shell, &error);
    free(error);
    if (t == NULL)
        return "refused";
    for (size_t i = 3; i > 0; i--) {
        struct span items[] = {span_of(tried[i - 1]), span_of("5")};
        struct fields f = {
            .items = items, .n_items = 1, .fields = items, .n_fields = 2};
        struct command c = {0};
        if (template_expand(t, &f, &c) == NULL)
            taken = names[i - 1];
        command_free(&c);
    }
    template_free(t);
    return taken;
}

static void check_taken(const char *const *scripts, const char *want)
{
    for (; *scripts != NULL; scripts++) {
        const char *words[8] = {*scripts};
        const char *got = find_taken(words, "sh");
        if (strcmp(got, want) != 0)
            FAIL("%s takes %s, want %s", *scripts, got, want);
    }
}

#define CHECK_WORDS(want, ...)                                                 \
    CHECK_STR_EQ(find_taken((const char *const[8]){__VA_ARGS__}, "sh"), want)

TEST(shell_guard, a_word_with_plain_characters_takes_any_value)
{
    static const char *const scripts[] = {
        "f {}",
        "f a{}.c --x={} '{}' \"{}\"",
        "bash build.sh {} out/{}.log",
        "bash -x build.sh a{}",
        "bash {}.sh",
        "\"$CC\" -c {}",
        "\"$CC\" -c {}.c -o {.}.o",
        "sh -c 'echo \"$1\"' _ {}",
        "sh -c 'echo \"$1\"' _ a{}",
        "sh -c {}",
        "bash -euc {} && f '{}'",
        "eval {}",
        "trap {} EXIT",
        "ssh host {}",
        "x={}; f \"$x\"",
        "x={} y='{}' f",
        "export x={}; sh -c 'f \"$x\"'",
        "x={}; export x; f",
        "x={}; eval 'f \"$x\"'",
        "x={}; f ${x%.c} ${#x} ${x:-y} \"${x}\"",
        "x={}; [[ $x == *.c ]]",
        "for i in {}; do f \"$i\"; done",
        "case {} in {}) f;; esac",
        "f > {} 2>> {}.log < {}",
        "f &> {}",
        "f <<< {}",
        "[ -f {} ] && [ {} = x ] && test -n {} && [ x != \"{}\" ]",
        "[ \"{}\" ]",
        "[ $(wc -l < {}) -gt 3 ]",
        "if [ \"$(f {})\" -eq 1 ]; then g; fi",
        "n=$(wc -c < {}); echo $((n / 1024))",
        "printf '%s\\n' {}",
        "printf '%-5s|%b %%' {} {}",
        "set -- {}",
        "x=({} {})",
        "make ENV={}",
        "f() { g \"$1\"; }; f {}",
        "cd {} && f",
        "x={}; cat <<E\n$x ${x%.c}\nE",
        "x={}; sh <<'E'\necho $x\nE",
        "sh <<< {}",
        "x={}; y=1; echo $((y))",
        "read x < {}; echo \"$x\"",
        "env a={} f",
        "f \\\n{} \"a \\\n b {}\"",
        NULL};
    check_taken(scripts, "any");
}

TEST(shell_guard, text_takes_any_value_if_no_word_names_a_shell)
{
    static const char *const any[] = {"f \"a {} b\"",
                                      "git commit -m 'fix {}; done'",
                                      "f \"$HOME/{}\" \"$x {}\"",
                                      "f \"$(g {})\" `h {}`",
                                      "sudo f 'a {}'",
                                      "awk '{print \"{}\"}' f",
                                      "psql -c \"select '{}'\"",
                                      NULL};
    static const char *const plain[] = {"sh -c 'f {}'",
                                        "sh -c -e 'echo {}'",
                                        "sh -c -- 'echo {}'",
                                        "sh -c 2>&1 \"echo {}\"",
                                        "sh \"-c\" 'echo {}'",
                                        "s''h -c 'echo {}'",
                                        "sh -c \"echo $(echo {})\"",
                                        "sh -c \"`f {}`\"",
                                        "bash -ceuo pipefail 'echo {}'",
                                        "bash --rcfile F -c 'echo {}'",
                                        "bash -o pipefail -c 'f {}'",
                                        "rbash -c 'f {}'",
                                        "ksh93 -c 'f {}'",
                                        "zsh-5.9 -c 'f {}'",
                                        "bash-static -c 'f {}'",
                                        "busybox ash -c 'f {}'",
                                        "A=1 /bin/sh -ec 'f {}'",
                                        "sudo -u x dash -c f{}",
                                        "sh -c f{}",
                                        "sh -c ./x _ f{}",
                                        "find . -exec sh -c 'f {}' \\;",
                                        "\"$SHELL\" -c \"echo {}\"",
                                        "$SHELL -c f{}",
                                        "sudo \"$SHELL\" -c 'echo {}'",
                                        "s=sh; env $s -c 'echo {}'",
                                        "$(echo sh) -c 'echo {}'",
                                        "{sh,-c} 'echo {}'",
                                        "/bin/?ash -c 'echo {}'",
                                        "\"$x\" 'a {}'",
                                        "{2} 'a {}'",
                                        "eval \"f {}\"",
                                        "eval f {}",
                                        "eval f{}",
                                        "A=1 eval 'f {}'",
                                        "command eval \"echo {}\"",
                                        "\\eval \"echo {}\"",
                                        "trap 'rm {}' EXIT",
                                        "trap -- 'rm -f {}' EXIT",
                                        "alias f=\"echo {}\"\nf",
                                        "alias f={}\nf",
                                        "ssh host 'f {}'",
                                        "ssh host f{}",
                                        "su -c 'f {}'",
                                        "su user -c f{}",
                                        "xargs -I% sh -c 'f {}'",
                                        "env -S 'f {}'",
                                        "env -Sf{}",
                                        "x={}; sh -c \"f $x\"",
                                        "x={}; eval \"f $x\"",
                                        "for i in {}; do sh -c \"f $i\"; done",
                                        "sh -c \"f $1\"; g {}",
                                        NULL};
    check_taken(any, "any");
    check_taken(plain, "plain");
}

TEST(shell_guard, operands_that_a_shell_evaluates_are_refused)
{
    static const char *const scripts[] = {
        "ls >& {}.log",
        "ls >&{}",
        "ls 2>&1 >&\"a {}\"",
        "let {}",
        "let x={}",
        "command let {}",
        "builtin -- let {}",
        "\\let {}",
        "\"$x\"let {}",
        "$x let {}",
        "built\"$x\"in let {}",
        "d\"$x\"eclare {}",
        "if let {}; then f; fi",
        "for x do let {}; done",
        "cat <<E\na\nE\nif let {}; then f; fi",
        "for x (a) let {}",
        ">f let {}",
        "2>f let {}",
        "let &>f {}",
        "coproc let {}",
        "declare \"x[{}]=1\"",
        "declare x={}",
        "declare -a x={}",
        "typeset -i x={}",
        "local x={}",
        "export {}",
        "export -a x={}",
        "readonly -a x={}",
        "read {}",
        "read -t {} x",
        "unset {}",
        "getopts ab {}",
        "test -v {}",
        "[ -v {} ]",
        "printf -v {} x",
        "printf -v x %s {}",
        "compgen -W {}",
        "BASH_ENV={} bash -c true",
        "export BASH_ENV={}",
        "env BASH_ENV={} bash -c true",
        "env ENV={} sh -i",
        "PS4={}; f",
        "PROMPT_COMMAND={}; f",
        "x={}; echo ${HOME:x}",
        "x={}; echo ${HOME:$x}",
        "x={}; echo ${!x}",
        "x={}; echo ${x@P}",
        "x={}; echo $((x + 1))",
        "x={}; ((x))",
        "x={}; let x",
        "x={}; [[ $x -eq 1 ]]",
        "x={}; a[$x]=1",
        "x={}; a[x]=1",
        "x={}; ls >& $x",
        "x={}; read \"$x\"",
        "declare -i x; x={}",
        "for i in {}; do echo $((i)); done",
        "echo $(($1)); f {}",
        "echo ${x:$1}; f {}",
        NULL};
    check_taken(scripts, "refused");
    CHECK_WORDS("refused", "env", "BASH_ENV={}", "bash", "-c", "true");
}

TEST(shell_guard, operators_of_two_lines_are_refused)
{
    static const char *const refused[] = {
        "echo >\\\n& {}", "echo $\\\n(( {} ))", "[\\\n[ {} -eq 1 ]]",
        "echo \"$\\\n(( {} ))\""};
    static const char *const taken[] = {"true &&\\\n  echo {}",
                                        "echo a \\\n{}"};
    for (size_t i = 0; i < sizeof(refused) / sizeof(*refused); i++)
        CHECK_STR_EQ(find_taken((const char *const[8]){refused[i]}, "bash"),
                     "refused");
    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken); i++)
        CHECK_STR_EQ(find_taken((const char *const[8]){taken[i]}, "bash"),
                     "any");
}

TEST(shell_guard, operands_that_are_calculated_take_numbers)
{
    static const char *const scripts[] = {
        "exit {}",           "f || return {}",  "shift {}",
        "[ {} -eq 1 ]",      "[ 1 -lt {} ]",    "test -t {}",
        "printf '%d\\n' {}", "printf %5.2f {}", "printf 2>f %d {}",
        "RANDOM={}; f",      "OPTIND={}; f",    NULL};
    check_taken(scripts, "number");
    CHECK_STR_EQ(find_taken((const char *const[8]){"[ $(f {}) -eq 1 ]"}, "zsh"),
                 "plain");
    CHECK_STR_EQ(find_taken((const char *const[8]){"ls *({})"}, "zsh"),
                 "refused");
    CHECK_STR_EQ(find_taken((const char *const[8]){"echo ({})"}, "zsh"),
                 "refused");
    CHECK_STR_EQ(find_taken((const char *const[8]){"{let {}; }"}, "zsh"),
                 "plain");
    CHECK_STR_EQ(find_taken((const char *const[8]){"x=({} a)"}, "zsh"), "any");
}

TEST(shell_guard, words_without_a_shell_are_judged_alike)
{
    CHECK_WORDS("any", "echo", "a {}");
    CHECK_WORDS("any", "sh", "-c", "f {}"); /* becomes a script for that sh */
    CHECK_WORDS("any", "sh", "-c", "{}");
    CHECK_WORDS("any", "sh", "-c", "f \"$1\"", "_", "{}");
    CHECK_WORDS("any", "bash", "build.sh", "{}", "--out={}.log");
    CHECK_WORDS("any", "find", ".", "-name", "*{}*");
    CHECK_WORDS("any", "let", "{}");
    CHECK_WORDS("any", "if", "a {}");
    CHECK_WORDS("any", "A=1", "{}");
    CHECK_WORDS("plain", "sh", "-c", "-e", "echo {}");
    CHECK_WORDS("plain", "sh", "-c", "--", "echo {}");
    CHECK_WORDS("plain", "bash", "-ceuo", "pipefail", "echo {}");
    CHECK_WORDS("plain", "bash", "--rcfile", "F", "-c", "echo {}");
    CHECK_WORDS("plain", "rbash", "-c", "-x", "echo {}");
    CHECK_WORDS("plain", "sudo", "sh", "-c", "echo {}");
    CHECK_WORDS("plain", "ssh", "{2}", "f {}");
    CHECK_WORDS("plain", "{2}", "-c", "echo {}");
}

/* ---- text that is put into a variable ------------------------------------ */

TEST(shell_guard, text_that_a_variable_may_give_to_eval_takes_plain_values)
{
    static const char *const plain[] = {
        "cmd=\"gzip -n {}\"; eval \"$cmd\"",
        "cmd=\"gzip -n {}\"; sh -c \"$cmd\"",
        "cmd=\"rm -f {}\"; trap \"$cmd\" EXIT",
        "x=a{}; eval \"$x\"",
        "x={}; eval \"$x\"",
        "x=a{}; eval $x",
        "x=a{}; y=$x; eval \"$y\"",
        "x=a{}; eval \"`echo $x`\"",
        "x=$(echo a {}); eval \"$x\"",
        "x={}; : \"${y:=$x}\"; eval \"$y\"",
        ": \"${y:=$1}\"; eval \"$y\"; f {}",
        "for c in \"echo {}\"; do eval \"$c\"; done",
        "for c in a{}; do eval \"$c\"; done",
        "for c do eval \"$c\"; done; f {}",
        "set -- \"echo {}\"; eval \"$1\"",
        "set -- {}; eval \"$1\"",
        "x=a{}; env sh -c \"$x\"",
        "x=a{}; bash -e -c \"$x\"",
        "x=a{}; \"$SHELL\" -c \"$x\"",
        "x=a{}; ssh host \"$x\"",
        "x=a{}; /usr/bin/ssh host \"$x\"",
        "x=a{}; su -c \"$x\"",
        "x=a{}; env -S \"$x\"",
        "x=a{}; vow run \"$x\"",
        "x=a{}; sh <<< \"$x\"",
        "x=a{}; sh <<E\n$x\nE",
        "export X=\"echo {}\"; sh -c \"$X\"",
        "export X=a{}; sh -c 'eval \"$X\"'",
        "sh -c 'x=\"echo {}\"; eval \"$x\"'",
        "sh -c 'eval \"$1\"' _ {}",
        "x=(echo \"a {}\"); eval \"${x[@]}\"",
        "x=({ a{}); eval \"${x[@]}\"",
        "f() { eval \"$1\"; }; f a{}",
        "e=eval; $e f{}",
        "alias e=eval\ne {}.x",
        "vow map \"echo {}\" ::: a",
        "vow map f{} ::: a",
        "parallel f{} ::: a",
        "/bin/[s]h -c {}.x",
        "/bin/[s]h -e -c {}.x",
        "env /bin/[s]h -c {}.x",
        "{eval,echo} {}.x",
        "{eval,echo} {}",
        "x=\"a {}\"; f",
        "for x in \"a {}\"; do f; done",
        "set -- \"a {}\"",
        "export x=\"a {}\"",
        "x=(f \"a {}\")",
        NULL};
    check_taken(plain, "plain");
    CHECK_WORDS("plain", "sh", "-c", "x=\"echo {}\"; eval \"$x\"");
    CHECK_WORDS("plain", "vow", "map", "echo {}");
    CHECK_WORDS("plain", "sudo", "sh", "-c", "eval \"$1\"", "_", "{}");
}

TEST(shell_guard, variables_that_no_command_evaluates_take_any_value)
{
    static const char *const any[] = {"x={}; echo \"$x\"",
                                      "f={}; gzip -c \"$f\" > \"$f.gz\"",
                                      "for i in {}; do echo \"$i\"; done",
                                      "sh -c 'echo \"$1\"' _ {}",
                                      "x={}; sh -c 'echo \"$1\"' _ \"$x\"",
                                      "x={}; bash build.sh \"$x\"",
                                      "echo \"a b {}\"",
                                      "\"$CC\" -c {}",
                                      "~/bin/f a{}",
                                      "x={}; trap 'rm -f \"$x\"' EXIT",
                                      "x={}; eval 'f \"$x\"'",
                                      "x=\"$HOME/{}\"; f \"$x\"",
                                      "x=\"$(dirname {})/new-{/}\"; f \"$x\"",
                                      "x=({ if {}); f \"${x[@]}\"",
                                      "set -- {}; f \"$@\"",
                                      "find . | xargs grep {}",
                                      "print -r -- \"a {}\"",
                                      NULL};
    check_taken(any, "any");
}

TEST(shell_guard, a_loop_variable_is_an_assigned_one)
{
    static const char *const refused[] = {
        "for PS4 in {}; do set -x; :; done",
        "for x PS4 in a {}; do set -x; :; done",
        "select PROMPT_COMMAND in {}; do f; done",
        "read PS4 <<< {}; set -x; :",
        "x={}; for PS4 in $x; do set -x; :; done",
        "functions[f]=\"echo {}\"; f",
        "functions[f]={}; f",
        "functions=(f {}); f",
        "aliases+=(f {}); f",
        "BASH_ALIASES[f]={}; f",
        NULL};
    static const char *const numbers[] = {
        "for RANDOM in {}; do f; done", "for SECONDS in a{}; do f; done", NULL};
    check_taken(refused, "refused");
    check_taken(numbers, "number");
}

/* ---- what is said -------------------------------------------------------- */

static char *get_error(const char *script)
{
    char *error = NULL;
    struct template *t =
        make_words((const char *const[8]){script}, "sh", &error);
    if (t != NULL)
        FAIL("%s was not refused", script);
    return error;
}

TEST(shell_guard, an_error_shows_the_place_and_a_script_that_works)
{
    CHECK_STR_EQ(
        get_error("ls >& {}.log; f"),
        "{} cannot stand behind >&: bash expands the word there twice\n"
        "  ls >& {}.log; f\n"
        "        ^^\n"
        "write instead:\n"
        "  ls > {}.log 2>&1; f");
    CHECK_STR_EQ(get_error("a\n\tlet x={2.}; b"),
                 "{2.} cannot stand in an expression that a builtin "
                 "calculates: a shell runs the commands in an expression such "
                 "as a[$(command)]\n"
                 "  \tlet x={2.}; b\n"
                 "  \t      ^^^^\n"
                 "write instead:\n"
                 "  n=$(expr {2.} + 0); a\n\tlet x=$n; b");
    CHECK_STR_EQ(get_error("x={}; echo ${HOME:x}"),
                 "x, which has an item, cannot stand in arithmetic: a shell "
                 "runs the commands in an expression such as a[$(command)]\n"
                 "  x={}; echo ${HOME:x}\n"
                 "                    ^\n"
                 "write instead:\n"
                 "  x=$(expr {} + 0); echo ${HOME:x}");
}

static void check_said(const char *want, const char *const words[8])
{
    char *error = NULL;
    struct template *t = make_words(words, "sh", &error);
    struct span item = span_of("a b");
    struct command c = {0};
    const char *said =
        template_expand(t, &(struct fields){.items = &item, .n_items = 1}, &c);
    CHECK(said != NULL);
    if (strstr(said, want) == NULL)
        FAIL("%s, want %s", said, want);
    command_free(&c);
    template_free(t);
}
#define CHECK_SAID(want, ...)                                                  \
    check_said(want, (const char *const[8]){__VA_ARGS__})

TEST(shell_guard, a_job_that_is_refused_is_told_what_works)
{
    CHECK_SAID("as in bash -ec 'echo \"$1\"' _ {}", "bash -ec \"echo {}\"");
    CHECK_SAID("as in sudo sh -c 'f \"<$1>\" \"$1\"' _ {}", "sudo", "sh", "-c",
               "f \"<{}>\" {}");
    CHECK_SAID("as in item={}; trap 'rm \"$item\"' EXIT", "trap 'rm {}' EXIT");
    CHECK_SAID("as in sh -c '... \"$1\"' _ {}", "ssh host 'f {}'");
    CHECK_SAID("is no number", "exit {}");
}

/* ---- in real shells ------------------------------------------------------ */

/* Each was executed once, or is close to one that was. */
static const char *const reproductions[] = {
    "ls >& {}.log",
    "sh -c -e 'echo {}'",
    "sh -c -- 'echo {}'",
    "bash -ceuo pipefail 'echo {}'",
    "bash --rcfile F -c 'echo {}'",
    "rbash -c 'echo {}'",
    "trap -- 'echo {}' EXIT",
    "command eval \"echo {}\"",
    "\\eval \"echo {}\"",
    "sh -c 2>&1 \"echo {}\"",
    "sh -c \"echo $(echo {})\"",
    "\"$SHELL\" -c \"echo {}\"",
    "sh \"-c\" \"echo {}\"",
    "alias f=\"echo {}\"\nf",
    "BASH_ENV={} bash -c true",
    "x[{}+y[0]+2]=5",
    "x[1|{}]=5",
    "x=(\n[{}]=1\n)",
    "declare \"x[{}]=1\"",
    "x={}; echo ${HOME:x}",
    "f (\t) { echo {}; }; f",
    "exit {}",
    "printf %d {}",
    "[ -v {} ]",
    "OPTIND={}; f",
    "x={}; echo ${!x}",
    "[ {} {2} ]",
    "echo \"$x[{}]\"",
    "exec x=({})",
    "print {}",
    "export {}",
    "read -t {} x",
    "cmd=\"gzip -n {}\"; eval \"$cmd\"",
    "cmd=\"gzip -n {}\"; sh -c \"$cmd\"",
    "cmd=\"rm -f {}\"; trap \"$cmd\" EXIT",
    "x=a{}; eval \"$x\"",
    "x=a{}; eval $x",
    "x=a{}; y=$x; eval \"$y\"",
    "for c in \"echo {}\"; do eval \"$c\"; done",
    "for c do eval \"$c\"; done; : a{}",
    "set -- \"echo {}\"; eval \"$1\"",
    "x=a{}; env sh -c \"$x\"",
    "export X=\"echo {}\"; sh -c \"$X\"",
    "export X=a{}; sh -c 'eval \"$X\"'",
    "sh -c 'x=\"echo {}\"; eval \"$x\"'",
    "x=(echo a{}); eval \"${x[@]}\"",
    "f() { eval \"$1\"; }; f a{}",
    "e=eval; $e f{}",
    "x={}; read PS4 <<E; set -x; :\n$x\nE",
    "x=a{}; . /dev/stdin <<E\n$x\nE",
    ": a{}; eval \"$_\"",
    "env -S 'sh -c' a{}",
    "set -o promptsubst; print -P -- {}",
    "for PS4 do set -x; :; done; : {}",
    "for PS4 in {}; do set -x; :; done",
    "for RANDOM in {}; do :; done",
    "for SECONDS in {}; do :; done",
    "read PS4 <<< {}; set -x; :",
    "functions[f]=\"echo {}\"; f",
    "functions=(f {}); f",
    "/bin/[s]h -c {}.x",
    "{eval,echo} {}.x",
    "{eval,echo} {}",
    "alias e=eval\ne {}.x",
    "shopt -s expand_aliases\nalias e=eval\ne {}.x",
};

static void check_reproductions(const char *shell)
{
    static const char *const tried[] = {
        "$(touch PWNED)",
        "a[$(touch PWNED)]",
        "x[$(touch PWNED)]=1",
        "; touch PWNED;",
        "\n touch PWNED\n",
        "`touch PWNED`",
        "x",
    };
    struct text out = {0};
    struct command c = {0};
    enter_folder(shell);
    for (size_t i = 0; i < COUNT(reproductions); i++) {
        char *error = NULL;
        struct template *t = make_words(
            (const char *const[8]){reproductions[i]}, shell_path, &error);
        free(error);
        for (size_t k = 0; t != NULL && k < COUNT(tried); k++) {
            struct span items[] = {span_of(tried[k]), span_of(tried[1])};
            struct fields f = {
                .items = items, .n_items = 1, .fields = items, .n_fields = 2};
            if (template_expand(t, &f, &c) == NULL)
                (void)run(c.argv, &out);
            if (access("PWNED", F_OK) == 0)
                FAIL("%s ran %s with %s", shell, reproductions[i], tried[k]);
        }
        template_free(t);
    }
    text_free(&out);
    command_free(&c);
    clear_folder();
    leave_folder();
}

TEST(shell_guard, no_installed_shell_runs_a_value)
{
    for (size_t i = 0; i < COUNT(shells); i++) {
        pid_t child = fork();
        if (child == 0) {
            if (strcmp(shells[i], "ksh93") != 0 ||
                system("command -v ksh93 >/dev/null") == 0)
                check_reproductions(shells[i]);
            _exit(0);
        }
        int status = 0;
        CHECK_INT_EQ(waitpid(child, &status, 0), child);
        CHECK_INT_EQ(status, 0);
    }
}
