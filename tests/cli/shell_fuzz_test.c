/* SPDX-License-Identifier: MIT */
/* shell_fuzz_test.c - random templates with hostile values, in real shells.
 *
 * WHAT  A template and a value are a pair. The guard refuses the template, or
 *       the value, or lets the pair run; then no command in the value may be
 *       executed. Every value that holds commands writes the number of its pair
 *       to a file, the canary; a run is good if that file stays empty. Some
 *       templates are built so that what they print is known: these must print
 *       the value byte for byte, and may not be refused.
 *
 * HOW   Templates are made from pieces that shells read in surprising ways, put
 *       into each other and changed at random. Several hundred pairs are one
 *       script, each in a subshell of its own, so that a process of the shell
 *       runs many. VOW_FUZZ_PAIRS says how many pairs each shell runs. A random
 *       template could do harm, so that root runs them as nobody.
 */
#include "shell_kit.h"

#include <regex.h>

enum { BATCH = 400, VALUES = 8, PAIRS = 600, KNOWN_EVERY = 6 };

#define CANARY "echo $VOWN>>$VOWC"

static const char *const hostile[] = {
    "$(" CANARY ")",
    "`" CANARY "`",
    "a[$(" CANARY ")]",
    "x[$(" CANARY ")]=1",
    "x[$(" CANARY ")]",
    "1+a[$(" CANARY ")]",
    "a[`" CANARY "`]",
    "-va[$(" CANARY ")]",
    "-c[$(" CANARY ")]",
    ";" CANARY ";",
    "\n" CANARY "\n",
    "| " CANARY,
    "& " CANARY " &",
    "\";" CANARY ";\"",
    "';" CANARY ";'",
    "'\"; " CANARY "; \"'",
    ")\"; " CANARY "; $(\"",
    "`; " CANARY "; `",
    "($(" CANARY "))",
    "x=$(" CANARY ")",
    "x=(`" CANARY "`)",
    "${x:=$(" CANARY ")}",
    "${x:-`" CANARY "`}",
    "$((a[$(" CANARY ")]))",
    "]$(" CANARY ")[",
    "]=$(" CANARY ")",
    "0]=1 x[$(" CANARY ")",
    "%d$(" CANARY ")",
    "E\n" CANARY,
    "E\n$(" CANARY ")\nE",
    "{a,$(" CANARY ")}",
    "esac;; *) " CANARY ";; esac",
    "}; " CANARY "; {",
    "); " CANARY "; (",
    "fi; " CANARY,
    "done; " CANARY,
    "#\n" CANARY,
    "\\$(" CANARY ")",
    "\\\n" CANARY,
    "*(e:" CANARY ":)",
    "-o " CANARY,
    "/dev/null;" CANARY,
    "1;" CANARY,
    "=(" CANARY ")",
    "<(" CANARY ")",
    "0 $(" CANARY ")",
    "x",
    "5",
    "a b",
    "",
    "-e",
    "BASH_ENV=$(" CANARY ")",
    "() { " CANARY "; }",
    "plain.c",
    "it's \"both\" $x",
    "\xff\xfe\n\t\x01",
};

/* Whole templates; {} and {2} are different values. */
static const char *const bases[] = {
    "ls >& {}.log",
    "ls >&{}",
    ": >& \"a {}\"",
    ": > {}",
    ": 2>>{}",
    ": <&{}",
    "sh -c -e 'echo {}'",
    "sh -c -- 'echo {}'",
    "bash -ceuo pipefail 'echo {}'",
    "bash --rcfile F -c 'echo {}'",
    "rbash -c 'echo {}'",
    "trap -- 'echo {}' EXIT",
    "trap 'echo {}' EXIT",
    "command eval \"echo {}\"",
    "\\eval \"echo {}\"",
    "eval echo {}",
    "eval echo a{}",
    "eval \"echo {}\"",
    "e''val echo {}",
    "sh -c 2>&1 \"echo {}\"",
    "sh -c \"echo $(echo {})\"",
    "\"$SHELL\" -c \"echo {}\"",
    "sh \"-c\" \"echo {}\"",
    "sh -c echo{}",
    "sh -c 'echo '{}",
    "alias f=\"echo {}\"\nf",
    "alias f={}\nf",
    "BASH_ENV={} bash -c true",
    "export BASH_ENV={}; bash -c true",
    "env BASH_ENV={} bash -c true",
    "PS4={}; set -x; :",
    "PS4={} bash -xc :",
    "x[{}+y[0]+2]=5",
    "x[1|{}]=5",
    "x=(\n[{}]=1\n)",
    "declare \"x[{}]=1\"",
    "x[{}]=1",
    "x[ {} ]=1",
    "2>&1 x[{}]=5",
    "x=([{}]=1)",
    "x=( [ {} ]=1 )",
    "x[0]={}",
    "x=({})",
    "x+=({})",
    "x={}; echo ${HOME:x}",
    "x={}; echo ${HOME:$x}",
    "x={}; echo ${!x}",
    "x={}; echo ${x@P}",
    "x={}; echo $((x))",
    "x={}; echo $(($x))",
    "x={}; ((x))",
    "x={}; let x",
    "x={}; [[ $x -eq 1 ]]",
    "x={}; [[ x -eq 1 ]]",
    "x={}; [ $x -eq 1 ]",
    "x={}; a[$x]=1",
    "x={}; echo ${a[x]}",
    "x={}; echo $a[x]",
    "x={}; eval \"echo $x\"",
    "x={}; sh -c \"echo $x\"",
    "x={}; typeset -i x",
    "typeset -i x; x={}",
    "declare -i x; x={}",
    "x={}; echo ${(e)x}",
    "x={}; echo ${(P)x}",
    "x={}; unset $x",
    "x={}; read $x",
    "x={}; : >& $x",
    "for i in {}; do echo $((i)); done",
    "for i in {}; do sh -c \"echo $i\"; done",
    "f (\t) { echo {}; }; f",
    "f() { sh -c \"echo {}\"; }; f",
    "f() { echo \"$1\"; }; f {}",
    "echo $(({}))",
    "echo $(( $(echo {}) ))",
    "(({}))",
    "let {}",
    "let x={}",
    "let \"x={}\"",
    "command let {}",
    "builtin let {}",
    "declare x={}",
    "declare -a x={}",
    "typeset {}",
    "local x={}",
    "export {}",
    "export x={}",
    "export -a x={}",
    "readonly x={}",
    "readonly -a x={}",
    "unset {}",
    "read {} </dev/null",
    "read -t {} x </dev/null",
    "mapfile {} </dev/null",
    "getopts ab {}",
    "printf -v {} x",
    "printf -v x %s {}",
    "printf %d {}",
    "printf {} {2}",
    "printf {}",
    "printf '%*s' {} x",
    "print {}",
    "print -f %d {}",
    "print -r -- {}",
    "[ {} -eq 1 ]",
    "[ 1 -lt {} ]",
    "[ -t {} ]",
    "[ -v {} ]",
    "test -v {}",
    "[ {} ]",
    "[ {} {2} ]",
    "test {} {2} 1",
    "[ {} = x ]",
    "[ -n {} ]",
    "[ $(echo {}) -eq 1 ]",
    "[[ {} -eq 1 ]]",
    "[[ -v {} ]]",
    "[[ {} = x ]]",
    "exit {}",
    "exit \"$(echo {})\"",
    "shift {}",

    "SECONDS={}; :",
    "RANDOM={}; :",
    "OPTIND={}; :",
    "COLUMNS={}; :",
    "HISTSIZE={}; :",
    "OPTIND=$(echo {})",
    "echo \"$x[{}]\"",
    "echo $HOME[{}]",
    "echo $#[{}]",
    "echo ${x[{}]}",
    "exec {x[{}]}</dev/null",
    "cat <#(({}))",
    "repeat {} :",
    "compgen -W {}",
    "compgen -W \"a {}\"",
    "complete -W {} x",
    "set -A {} b",
    "set -- {}",
    "set {}",
    "emulate sh -c \"echo {}\"",
    "coproc let {}",
    "if let {}; then :; fi",
    "for x (a) let {}",
    "for x in a; do let {}; done",
    "for x do let {}; done",
    "case a in a) let {};; esac",
    "{ let {}; }",
    "( let {} )",
    "time let {}",
    "! let {}",
    "noglob let {}",
    "A=1 let {}",
    ">/dev/null let {}",
    "let 2>/dev/null {}",
    "let &>/dev/null {}",
    "echo &>/dev/null {}",
    "echo `let {}`",
    "echo \"`eval \"echo {}\"`\"",
    "echo $(let {})",
    "echo \"$(eval \"echo {}\")\"",
    "cat <<E\n{}\nE",
    "cat <<E\n$(echo {})\nE",
    "x={}; cat <<E\n$x\nE",
    "cat <<{}\n{}\n",
    "cat <<<{}",
    "echo $'{}'",
    "echo \\{}",
    "echo `echo \\{}`",
    "echo ${}",
    "echo ${x:-{}}",
    "echo ${x:-$(echo {})}",
    "echo ${x:$(echo {})}",
    "echo {a,{}}",
    "echo ~{}",
    "echo =({})",
    "echo <(echo {})",
    "case {} in {}) ;; esac",
    "case x in [{}]) ;; esac",
    "find . -maxdepth 0 -exec sh -c 'echo {}' \\;",
    "env sh -c 'echo {}'",
    "env -S 'echo {}'",
    "env $SHELL -c 'echo {}'",
    "sudo() { \"$@\"; }; sudo sh -c \"echo {}\"",
    "xargs sh -c 'echo {}' </dev/null",
    "sh -c 'echo \"$1\"' _ {}",
    "sh -c 'echo \"$1\"' _ a{}",
    "sh -c 'echo {}' _ {2}",

    "\"$x\" -c 'echo {}'",
    "s=sh; $s -c \"echo {}\"",
    "s=sh; env $s -c \"echo {}\"",
    "{sh,-c} \"echo {}\"",
    "/bin/?ash -c \"echo {}\"",
    "$(echo sh) -c \"echo {}\"",
    "${SHELL:-sh} -c \"echo {}\"",
    "b=bash; ${b} -c 'echo {}'",
    "$0 -c 'echo {}'",
    "busybox sh -c 'echo {}'",
    "eval \"echo $1\"; : {}",
    "echo $(( $1 )); : {}",
    "a[$1]=1; : {}",
    "{}() { :; }; :",
    "function {} { :; }",
    "select i in {}; do break; done",
    "echo {} | while read -r l; do echo \"$l\"; done",
    "x={} sh -c 'echo \"$x\"'",
    "x=\"{}\"; y=$x; echo \"$y\"",
    "echo \"{}\" '{}' {}",
    "echo a{}b\"c{}d\"",
    "export x={}; sh -c 'echo \"$x\"'",
    "x={}; export x; sh -c 'echo \"$x\"'",
    "sh <<< \"echo {}\"",
    "bash -s <<< \"echo {}\"",
    "cat <<< \"echo {}\"",
    ". /dev/stdin <<< \"echo {}\"",
    "read x <<< {}; echo $((x))",
    "x={}; sh <<E\necho $x\nE",
    "x={}; cat <<E\n$((x)) ${HOME:x}\nE",
    "x={}; sh <<'E'\necho $x\nE",
    "alias s=sh\ns -c \"echo {}\"",
    "s() { sh -c \"$1\"; }; s \"echo {}\"",
    "=sh -c \"echo {}\"",
    "x={}; y=$x; echo $((y))",
    "x={}; y=\"a$x\"; z=${y#a}; ((z))",
    "x={}; for i in $x; do ((i)); done",
    "env BASH_FUNC_f%%={} bash -c f",
    "env {} bash -c true",
    "env a={} bash -c true",
    "$s -c f{}",
    "x={}; y=1; echo $((y))",
    "command -v {}",
    "type {}",
    "hash {}",
    "cd {}",
    "pushd {}",
    "umask {}",
    "ulimit -n {}",
    "wait {}",
    "jobs {}",
    "true {}",
    ": {}",
    "echo {} >/dev/null",
};

static const char *const wraps[][2] = {
    {"if :; then ", "; fi"},
    {"if ", "\nthen :; fi"},
    {"( ", " )"},
    {"{ ", "; }"},
    {"for i in 1; do ", "; done"},
    {"for i in {}; do ", "; done"},
    {"while ", "; do break; done"},
    {"case a in (a) ", ";; esac"},
    {"case a in b) :;; a) ", "\nesac"},
    {": && ", ""},
    {"! ", ""},
    {"time ", ""},
    {"A=1 ", ""},
    {"A={} ", ""},
    {">/dev/null ", ""},
    {"2>&1 ", ""},
    {"command ", ""},
    {"builtin ", ""},
    {"exec ", ""},
    {"noglob ", ""},
    {"\\", ""},
    {"echo \"$(", ")\""},
    {"echo $(", "\n)"},
    {"echo `", "`"},
    {"x=$(", ")"},
    {"f() { ", "; }; f"},
    {"f() { ", "; }; f {}"},
    {"x={}; ", ""},
    {"", " | cat"},
    {"", " &"},
    {"", "; :"},
    {"# {}\n", ""},
    {"cat <<E >/dev/null\n'\"\nE\n", ""},
    {"[[ a = a ]] && ", ""},
    {"((1)) && ", ""},
    {"() { ", " }"},
    {"eval '", "'"},
    {"sh -c '", "'"},
    {"sh -c \"", "\""},
    {"{ :; } && ", ""},
    {"coproc ", ""},
    {"function g { ", "; }; g"},
    {"echo ${x:-$(", ")}"},
    {"<(", ")"},
    {"echo \"a $(: \")\"; ", ") b\""},
    {"if [ 1 = 1 ]; then\n", "\nfi"},
    {"set -- {}; ", ""},
    {"IFS=a; ", ""},
    {"- ", ""},
    {"A[0]=1 ", ""},
};

static const char *const tokens[] = {
    " ",         " ",     " ",      " ",       ";",       "\n",   "&",
    "|",         "&&",    "(",      ")",       "{ ",      "}",    "\"",
    "\"",        "'",     "'",      "`",       "$(",      "$((",  "))",
    "((",        "${x:-", "${",     "[[ ",     " ]]",     "[ ",   " ]",
    "x=",        "x[",    "]=",     "=(",      "\\",      "\t",   "#",
    "<<E\n",     "\nE\n", "<<<",    ">&",      ">",       "<",    "2>&1",
    "&>",        "echo",  "let",    "eval",    "sh -c",   "-c",   "-e",
    "declare",   "read",  "printf", "-v",      "%s",      "%d",   "trap",
    "alias",     "exit",  "test",   "-eq",     "=",       "if",   "then",
    "fi",        "for",   "in",     "do",      "done",    "case", "esac",
    "function",  "f",     "()",     "$x",      "\"$x\"",  "$1",   "$@",
    "${1}",      "a",     "1",      "+",       "~",       "*",    "?",
    "{a,",       "$'",    "$\"",    "command", "builtin", "time", "!",
    "BASH_ENV=", "PS4=",  "set -x", "RANDOM=", "\\\n",    ":",    "export",
    "{}",        "{}",    "{}",     "{2}",
};

/* Commands as words, without a shell. */
static const char *const execs[][6] = {
    {"sh", "-c", "-e", "echo {}"},
    {"sh", "-c", "--", "echo {}"},
    {"sh", "-c", "echo {}"},
    {"bash", "-ceuo", "pipefail", "echo {}"},
    {"bash", "--rcfile", "F", "-c", "echo {}"},
    {"rbash", "-c", "echo {}"},
    {"env", "BASH_ENV={}", "bash", "-c", "true"},
    {"env", "-S", "echo {}"},
    {"env", "{}", "bash", "-c", "true"},
    {"env", "BASH_FUNC_f%%={}", "bash", "-c", "f"},
    {"env", "sh", "-c", "echo {}"},
    {"env", "A=1", "sh", "-ec", "echo {}", "x"},
    {"sh", "-c", "echo{}"},
    {"sh", "-o", "errexit", "-c", "echo{}"},
    {"sh", "-c", "echo \"$1\"", "_", "{}"},
    {"sh", "-c", "echo \"$1\"", "_", "a {}"},
    {"{2}", "-c", "echo {}"},
    {"busybox", "sh", "-c", "echo {}"},
    {"echo", "a {}"},
    {"printf", "%s", "{}"},
    {"/bin/sh", "-c", "eval \"echo {}\""},
};

struct fuzz {
    uint64_t random;
    struct text template;
    struct text driver;
    struct text want; /* for each known pair: number, output */
    size_t pairs;     /* tried */
    size_t ran;
    size_t executed;
    size_t wrong; /* bytes */
    char first[4000];
};

static size_t draw(struct fuzz *z, size_t n)
{
    return (size_t)(test_random(&z->random) % n);
}

#define PICK(z, list) ((list)[draw(z, COUNT(list))])

/* ---- templates ----------------------------------------------------------- */

static void wrap(struct fuzz *z)
{
    struct text old = z->template;
    const char *const *w = wraps[draw(z, COUNT(wraps))];
    z->template = (struct text){0};
    text_add_str(&z->template, w[0]);
    text_add(&z->template, old.at, old.n);
    text_add_str(&z->template, w[1]);
    text_free(&old);
}

/* One place is changed: a blank, quotes, a token put in or a byte left out. */
static void change(struct fuzz *z)
{
    static const char *const blanks[] = {
        "\t", "  ", " \\\n", " 2>/dev/null ", " >/dev/null ", " -- ", "\n"};
    static const char *const quoted[] = {
        "\"{}\"", "'{}'", "a{}",        "{}b",           "\"a {}\"", "'a {} b'",
        "{2}",    "{}{}", "$(echo {})", "\"`echo {}`\"", "$x{}"};
    struct text old = z->template;
    if (old.n == 0)
        return;
    size_t at = draw(z, old.n);
    size_t kind = draw(z, 4);
    const char *from = old.at + at;
    z->template = (struct text){0};
    size_t cut = 0;
    const char *into = PICK(z, tokens);
    if (kind == 0 && strchr(from, ' ') != NULL) {
        at = (size_t)(strchr(from, ' ') - old.at);
        into = PICK(z, blanks);
        cut = 1;
    } else if (kind == 1 && strstr(old.at, "{}") != NULL) {
        at = (size_t)(strstr(old.at, "{}") - old.at);
        into = PICK(z, quoted);
        cut = 2;
    } else if (kind == 2) {
        into = "";
        cut = 1;
    }
    text_add(&z->template, old.at, at);
    text_add_str(&z->template, into);
    text_add_str(&z->template, old.at + at + cut);
    text_free(&old);
}

static void make_wild(struct fuzz *z)
{
    text_clear(&z->template);
    if (draw(z, 5) == 0) {
        for (size_t n = 2 + draw(z, 14); n > 0; n--)
            text_add_str(&z->template, PICK(z, tokens));
        return;
    }
    text_add_str(&z->template, PICK(z, bases));
    if (draw(z, 4) == 0) {
        text_add_str(&z->template, draw(z, 2) == 0 ? "; " : "\n");
        text_add_str(&z->template, PICK(z, bases));
    }
    for (size_t n = draw(z, 4); n > 0; n--)
        if (draw(z, 2) == 0)
            wrap(z);
        else
            change(z);
}

/* Prints the value, and nothing else; what is around it does nothing. */
static void make_known(struct fuzz *z)
{
    static const char *const words[] = {
        "{}",
        "\"{}\"",
        "'{}'",
        "\"$(printf '%sx' {})\"",
        "\"$(printf '%sx' \"{}\")\"",
        "\"$(printf '%sx' '{}' | cat)\"",
        "\"`printf '%sx' {}`\"",
        "\"$(x={}; printf '%sx' \"$x\")\"",
        "\"$(for i in {}; do printf '%sx' \"$i\"; done)\"",
        "\"$(case {} in {}) printf '%sx' {};; esac)\"",
        "\"$(sh -c 'printf \"%sx\" \"$1\"' _ {})\"",
    };
    static const char *const around[][2] = {
        {"", ""},
        {"( ", " )"},
        {"{ ", "; }"},
        {"if :; then ", "; fi"},
        {"for i in 1; do ", "; done"},
        {"case a in b) : ')';; a) ", ";; esac"},
        {": '{}' \"a {} b\" a{}b; ", ""},
        {"x={} y='{}'; ", ""},
        {": >/dev/null 2>&1 && ", ""},
        {"# it's {}\n", ""},
        {"cat <<'E' >/dev/null\nit's \"$(\nE\n", ""},
        {": \"$HOME {}\" $((1 + {#})); ", ""},
        {"export x={}; ", ""},
        {"[ x{} = \"x{}\" ] && ", ""},
        {"f() { : \"$1\"; }; f {}; ", ""},
    };
    const char *word = PICK(z, words);
    text_clear(&z->template);
    text_addf(&z->template, "printf '%%s\\0' %s", word);
    for (size_t n = draw(z, 3); n > 0; n--) {
        struct text old = z->template;
        const char *const *w = around[draw(z, COUNT(around))];
        z->template = (struct text){0};
        text_addf(&z->template, "%s%s%s", w[0], old.at, w[1]);
        text_free(&old);
    }
}

/* ---- pairs --------------------------------------------------------------- */

/* Outside of quotes there is nothing but quoted words. */
static void add_quoted(struct text *into, const char *s)
{
    text_add_str(into, "'");
    for (; *s != '\0'; s++)
        text_add_str(into, *s == '\'' ? "'\\''" : (char[]){*s, '\0'});
    text_add_str(into, "'");
}

/* sh -c SCRIPT sh VALUE... as a subshell; other words as a command. */
static void add_pair(struct fuzz *z, const struct command *c, bool shell,
                     bool known)
{
    text_addf(&z->driver, "VOWN=%zu\n", z->pairs);
    if (shell) {
        /* A function may call itself for ever. And ulimit makes ksh fork, as
         * other shells do for ( without it. */
        text_add_str(&z->driver, "(ulimit -t 2; ulimit -v 500000; set --");
        for (size_t i = 4; i < c->argc; i++) {
            text_add_str(&z->driver, " ");
            add_quoted(&z->driver, c->argv[i]);
        }
        text_add_str(&z->driver, "\neval ");
        add_quoted(&z->driver, c->argv[2]);
        text_add_str(&z->driver, ")");
    } else {
        text_add_str(&z->driver, "env");
        for (size_t i = 0; i < c->argc; i++) {
            text_add_str(&z->driver, " ");
            add_quoted(&z->driver, c->argv[i]);
        }
    }
    text_addf(&z->driver, " </dev/null 2>/dev/null%s\n",
              known ? "" : " >/dev/null");
    z->ran++;
}

/* eval {}, trap {} EXIT, sh -c {}: the item is the command, as was asked for.
 * And what x=$(command {}) prints is not the item. */
static bool is_asked(const char *script)
{
    static regex_t asked, printed;
    static bool ready;
    if (!ready) {
        CHECK_INT_EQ(regcomp(&printed,
                             "[xi](=| in )[^ ;]*([$][(]|`).*[^A-Za-z][xi]|"
                             "-[a-zA-Z]*i.* x=[\"']*([$][(]|`)|"
                             "<<< *[\"']*([$][(]|`)",
                             REG_EXTENDED | REG_NOSUB),
                     0);
        CHECK_INT_EQ(
            regcomp(&asked,
                    "(eval|trap|-[A-Za-z]*[cS][A-Za-z]*)"
                    "([\"'\\ "
                    "\t\n]|--|-e|[0-9]*>&?[0-9]|[0-9]*>/dev/null|<<<[a-z]*)*"
                    "[$][{]?[0-9A-Za-z@*][}]?[\"']*([] \t\n;&|)}`]|$)",
                    REG_EXTENDED | REG_NOSUB),
            0);
    }
    ready = true;
    return regexec(&asked, script, 0, NULL, 0) == 0 ||
           regexec(&printed, script, 0, NULL, 0) == 0;
}

static void try_value(struct fuzz *z, struct template *t,
                      const char *const v[2], bool known)
{
    static struct command c;
    struct span fields[] = {span_of(v[0]), span_of(v[1])};
    struct fields f = {.items = fields,
                       .n_items = 1,
                       .fields = fields,
                       .n_fields = 2,
                       .seq = 7,
                       .slot = 3};
    z->pairs++;
    /* print{}f {2}: the item has made the name of the command. */
    if (strstr(z->template.at, "{2}") != NULL && v[0][0] * v[1][0] == 0)
        return;
    const char *refused = template_expand(t, &f, &c);
    if (refused != NULL && known)
        FAIL("%s was refused for %s", z->template.at, v[0]);
    if (refused != NULL)
        return;
    const char *program = template_program(t);
    bool shell = program != NULL && strcmp(program, shell_path) == 0;
    if (!known && shell && is_asked(c.argv[2]))
        return;
    add_pair(z, &c, shell, known);
    if (!known)
        return;
    bool added = strstr(z->template.at, "%sx") != NULL;
    text_addf(&z->want, "%s%s", v[0], added ? "x" : "");
    text_add(&z->want, "", 1);
}

static void try_template(struct fuzz *z)
{
    char *words[6] = {NULL};
    struct template_opts o = {.shell = shell_path, .n_fields = 0};
    char *error = NULL;
    size_t n = 1;
    bool known = draw(z, KNOWN_EVERY) == 0;
    if (known)
        make_known(z);
    else
        make_wild(z);
    words[0] = z->template.at;
    if (!known && draw(z, 8) == 0) {
        const char *const *e = execs[draw(z, COUNT(execs))];
        for (n = 0; n < 6 && e[n] != NULL; n++)
            words[n] = (char *)(uintptr_t)e[n];
    }
    struct template *t = template_new(words, n, &o, &error);
    if (t == NULL && known)
        FAIL("%s was refused: %s", words[0], error);
    free(error);
    for (size_t i = 0; i < VALUES; i++) {
        const char *v[] = {PICK(z, hostile), PICK(z, hostile)};
        if (t == NULL)
            z->pairs++;
        else
            try_value(z, t, v, known);
    }
    template_free(t);
}

/* ---- batches ------------------------------------------------------------- */

/* Each line of the canary is the number of a pair. The last one is kept for the
 * message; VOW_FUZZ_SHOW=1 prints all. */
static void note_executed(struct fuzz *z, const char *canary)
{
    char number[32];
    char head[48];
    size_t last = 0;
    FILE *file = fopen(canary, "r");
    while (file != NULL && fgets(number, sizeof(number), file) != NULL) {
        size_t pair = strtoul(number, NULL, 10);
        z->executed += pair != last;
        snprintf(head, sizeof(head), "VOWN=%zu\n", pair);
        const char *at = strstr(z->driver.at, head);
        const char *end = at != NULL ? strstr(at + 1, "\nVOWN=") : NULL;
        size_t n = end != NULL ? (size_t)(end - at) : 0;
        if (pair != last)
            snprintf(z->first, sizeof(z->first), "%.*s", (int)n, at);
        if (pair != last && getenv("VOW_FUZZ_SHOW") != NULL)
            fprintf(stderr, "%s\n", z->first);
        last = pair;
    }
    if (file != NULL)
        fclose(file);
    unlink(canary);
}

static void run_batch(struct fuzz *z)
{
    static struct text out;
    char canary[128];
    char driver[128];
    snprintf(canary, sizeof(canary), "%s/canary", folder);
    snprintf(driver, sizeof(driver), "%s/driver", folder);
    FILE *file = fopen(driver, "w");
    CHECK(file != NULL);
    fprintf(file, "VOWC=%s\nexport VOWC VOWN\n", canary);
    fwrite(z->driver.at, 1, z->driver.n, file);
    fputs("VOWN=\nwait\n", file);
    CHECK_INT_EQ(fclose(file), 0);
    char *argv[] = {"setpriv",
                    "--reuid=65534",
                    "--regid=65534",
                    "--clear-groups",
                    "timeout",
                    "-k",
                    "5",
                    "300",
                    shell_path,
                    driver,
                    NULL};
    run(geteuid() == 0 ? argv : argv + 4, &out);
    note_executed(z, canary);
    if (out.n != z->want.n || memcmp(out.at, z->want.at, out.n) != 0) {
        size_t i = 0;
        while (i < out.n && i < z->want.n && out.at[i] == z->want.at[i])
            i++;
        while (i > 0 && out.at[i - 1] != '\0')
            i--;
        FAIL("printed <%.200s>, want <%.200s>", i < out.n ? out.at + i : "",
             i < z->want.n ? z->want.at + i : "");
    }
    CHECK_INT_EQ(unlink(driver), 0);
    text_clear(&z->driver);
    text_clear(&z->want);
}

static void check_shell(const char *shell)
{
    struct fuzz z = {.random = test_seed()};
    const char *pairs = getenv("VOW_FUZZ_PAIRS");
    size_t wanted = pairs != NULL ? strtoul(pairs, NULL, 10) : PAIRS;
    enter_folder(shell);
    CHECK_INT_EQ(chmod(folder, 0777), 0);
    CHECK_INT_EQ(chmod(".", 0555), 0); /* a file's name is a value, too */
    while (z.pairs < wanted) {
        size_t until = z.ran + BATCH;
        while (z.pairs < wanted && z.ran < until)
            try_template(&z);
        run_batch(&z);
    }
    fprintf(stderr, "%s: %zu pairs, %zu allowed, %zu executed\n", shell,
            z.pairs, z.ran, z.executed);
    if (z.executed > 0)
        FAIL("%zu of %zu pairs were executed, such as %s", z.executed, z.pairs,
             z.first);
    clear_folder();
    leave_folder();
    text_free(&z.template);
    text_free(&z.driver);
    text_free(&z.want);
}

TEST_OPTS(shell_fuzz, dash_executes_no_value, .timeout_s = 3600)
{
    check_shell("dash");
}

TEST_OPTS(shell_fuzz, bash_executes_no_value, .timeout_s = 3600)
{
    check_shell("bash");
}

TEST_OPTS(shell_fuzz, busybox_executes_no_value, .timeout_s = 3600)
{
    check_shell("busybox");
}

TEST_OPTS(shell_fuzz, zsh_executes_no_value, .timeout_s = 3600)
{
    check_shell("zsh");
}

/* Only nightly installs it. */
TEST_OPTS(shell_fuzz, ksh_executes_no_value, .timeout_s = 3600)
{
    if (getenv("VOW_FUZZ_PAIRS") == NULL &&
        system("command -v ksh93 >/dev/null") != 0)
        return;
    check_shell("ksh93");
}
