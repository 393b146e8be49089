/* SPDX-License-Identifier: MIT */
/* shell_guard.c - decides which values a word of a command may have.
 *
 * WHY   Input is never shell text. A value reaches a script only as a
 *       positional parameter, and a shell does not read the result of an
 *       expansion as commands. Three things undo this: a place where a shell
 *       does read the result of an expansion once more (arithmetic, a
 *       subscript, the word behind >& in bash); a builtin that does so with its
 *       operands (let, declare, read); a command that is a shell itself
 *       (sh -c, eval, ssh).
 *
 * TERMS   A text runner is a shell, or a command that reads words as shell text
 *       (eval, ssh, xargs; see text_runners). A plain value has only letters,
 *       digits and _@%+=:,./- , and at least one of these.
 *
 * GRAMMAR   All that is allowed; the rest is refused before the first job.
 *
 *       script    commands with ; & && || | and newlines, ( ) { } if while
 *                 until for case, $(...) and `...` without a backslash
 *       command   [NAME=value...] [name word...] [redirections]
 *       place     a placeholder stands in a word, a value, the word of a
 *                 redirection but >&, a list of for, a word or pattern of case
 *
 *       word, by its form                          allows
 *         ALONE  {} "{}" '{}'                      any value
 *         MIXED  with plain characters: a{}.c      any value; plain values if
 *                                                  the word may be the text of
 *                                                  a shell
 *         TEXT   with blanks, operators, $x:       any value if the name of the
 *                "a {}"                            command is literal and no
 *                                                  word names a text runner,
 *                                                  else plain values
 *       word, by the name of its command
 *         let declare read unset ...               refused
 *         exit return shift [ -eq printf %d        a number
 *         eval trap alias                          plain values; `eval {}` and
 *                                                  `trap {} EXIT` run the item
 *                                                  on purpose
 *         a name with * ? [ {, or behind an alias  plain values
 *       NAME=value, an element of NAME=(...), for NAME in ..., set -- ...
 *         BASH_ENV ENV PS4 PROMPT_COMMAND          refused
 *         RANDOM OPTIND SECONDS ...                a number
 *         with blanks or operators: "a {}"         plain values
 *         any, if a command of the script          plain values
 *         evaluates an expansion: eval "$x"
 *
 *       The form of a word with $(...) is TEXT, also for the placeholders
 *       within the $(...). A variable that was assigned a placeholder (x={},
 *       for x in {}) and the script's own $1 and $@ follow the same rules as
 *       the placeholder: x={}; sh -c "f $x" is sh -c "f {}". If a command
 *       evaluates an expansion, all variables are treated alike: eval "$y" may
 *       get the value of x by ${y:=$x}, read or a function. The literal text of
 *       a shell or of eval is scanned in the same way: sh -c 'eval "$x"'.
 *
 * HOW   A literal word is compared without quotes: \eval, "sh" and s''h are
 *       names too. The name of a command is the first word behind assignments
 *       and behind command, builtin, exec and the like.
 *
 * SHELLS   The tables have the builtins and variables of dash, bash, busybox
 *       ash, ksh93 and zsh; tests/cli/shell_fuzz_test.c tries these shells.
 *
 * LIMITS   The guard does not know how a command uses its arguments: the text
 *       of an awk program, a file that a script writes and runs, calculations
 *       of a function of the script with its own $1, ssh host {}, sh -s {} with
 *       a script as input. A value that begins with - may be an option. The
 *       name of a variable given as text is not followed: x={}; y=x; $((y)).
 *       `set --` and `shift` move the script's parameters, and a {} behind
 *       these commands gets another value.
 */
#include "shell_scan.h"

#include <stdlib.h>

/* A word without quotes. */
struct content {
    struct span raw;
    struct text literal; /* text without placeholders and variables */
    size_t holes;
    size_t variables; /* number of $x and ${x} */
    bool other;       /* has other expansions */
    bool operators;   /* has blanks or operators, within quotes */
    bool pattern;     /* has unquoted * ? [ { ~: may become other words */
    bool glob;        /* has unquoted * ? [ {: may name any program */
};

struct guard {
    struct scanner *scanner;
    const struct word *words;
    struct content *content;
    size_t n;
    size_t name;    /* index of the command's name; n: no name */
    bool unsure;    /* a variable before the name may be empty */
    bool named;     /* a word names a text runner */
    bool runs_text; /* a word, an alias or a function names a text runner */
    bool nested;    /* the text of a shell evaluates its own parameters */
};

enum form { ALONE, MIXED, TEXT };
enum special { SPECIAL_NOT, SPECIAL_TEXT, SPECIAL_NUMBER };

struct ruling {
    enum why why;
    enum value_need need;
};

enum rule {
    RULE_NONE,
    RULE_CALCULATE, /* operands are expressions */
    RULE_DECLARE,   /* operands are names, values may be expressions */
    RULE_NAME,      /* operands are names of variables */
    RULE_EXPORT,
    RULE_NUMBER,
    RULE_TEST,
    RULE_PRINTF,
    RULE_DASHES, /* any value is allowed behind -- */
    RULE_LOOP,
    RULE_EVAL, /* this rule and all below: operands are shell text */
    RULE_TRAP,
    RULE_ALIAS
};

static void read_content(const struct guard *g, const struct word *word,
                         struct content *ret_content);
static size_t read_dollar(struct span raw, size_t at, struct content *c);
static bool has_joined_lines(const struct guard *g, const struct word *words,
                             size_t n);
static void find_command_name(struct guard *g);
static void skip_empty_words(struct guard *g);
static bool names_text_runner(const struct guard *g);
static bool reads_text(const struct guard *g);
static bool evaluates_words(struct guard *g);
static bool is_evaluated_by(const struct guard *g, size_t runner, size_t i);
static bool text_evaluates(const struct guard *g, struct span text);
static bool stores_runner_name(const struct guard *g);
static void rule_on_array(struct guard *g);
static void taint_loop(const struct guard *g);
static bool hides_eval(const struct guard *g);
static void rule_on_word(struct guard *g, size_t i);
static void rule_on_target(struct guard *g, const struct word *word);
static void apply_rulings(struct guard *g, const struct word *word,
                          const struct ruling rulings[2]);
static struct ruling rule_on_stdin(const struct guard *g,
                                   const struct word *word, enum form form,
                                   bool variable);
static bool takes_more_words(const struct guard *g, size_t i);
static struct ruling find_ruling(const struct guard *g, size_t i,
                                 bool variable);
static struct ruling rule_on_form(const struct guard *g, size_t i,
                                  enum form form);
static struct ruling rule_on_operand(const struct guard *g, size_t i,
                                     enum form form, bool variable);
static struct ruling rule_on_value(const struct guard *g, size_t i);
static struct ruling rule_on_variable(const struct guard *g, struct span name,
                                      const struct word *word,
                                      const struct content *c);
static struct ruling rule_on_parameter(const struct guard *g, size_t i);
static struct ruling rule_on_loop(const struct guard *g, size_t i);
static enum special find_special(struct span name);
static struct ruling rule_on_test(const struct guard *g, size_t i,
                                  struct ruling number);
static struct ruling rule_on_printf(const struct guard *g, size_t i,
                                    struct ruling number);
static enum form find_form(const struct content *c, bool variable);
static enum rule find_rule(const struct guard *g);
static bool may_be_sourced(const struct content *c, bool for_shell);
static bool may_be_text(const struct guard *g, size_t runner, size_t i);
static bool begins_with_hole(const struct content *c);
static bool prints_strings(struct span format);
static void add_taint(struct scanner *s, struct span name,
                      const struct word *word);
static bool is_literal(const struct content *c);
static bool is_word(const struct content *c, const char *const *words);
static bool is_program(const struct content *c, const char *const *names);
static bool is_option(const struct content *c, const char *letters);
static struct span base_name(struct span word);
static bool is_name_within(struct span raw, const char *const *names);

static const char *const shells[] = {
    "sh",   "ash",  "bash", "rbash", "dash",  "hush",   "ksh", "rksh", "mksh",
    "lksh", "oksh", "zsh",  "rzsh",  "yash",  "posh",   "csh", "tcsh", "fish",
    "pwsh", "osh",  "ysh",  "nu",    "xonsh", "elvish", NULL};

/* Text runners other than shells: they read a word, or all words joined, as
 * shell text. */
static const char *const text_runners[] = {
    "eval",    "trap",  "alias",   "ssh",    "rsh",       "mosh",  "su",
    "runuser", "sg",    "flock",   "script", "watch",     "xargs", "parallel",
    "emulate", "at",    "batch",   "tmux",   "vow",       "entr",  "pdsh",
    "slogin",  "remsh", "autossh", "screen", "hyperfine", NULL};

/* Programs for which only the word behind -c is text. */
static const char *const option_runners[] = {"su",     "runuser", "sg", "flock",
                                             "script", "env",     NULL};

/* Variables with values that a shell runs. */
static const char *const run_variables[] = {"BASH_ENV",
                                            "ENV",
                                            "PROMPT_COMMAND",
                                            "PROMPT",
                                            "RPROMPT",
                                            "SPROMPT",
                                            "prompt",
                                            "PS0",
                                            "PS1",
                                            "PS2",
                                            "PS3",
                                            "PS4",
                                            "RPS1",
                                            "RPS2",
                                            "PROMPT2",
                                            "PROMPT3",
                                            "PROMPT4",
                                            "functions",
                                            "aliases",
                                            "galiases",
                                            "saliases",
                                            "dis_functions",
                                            "dis_aliases",
                                            "BASH_ALIASES",
                                            NULL};

/* Variables with values that a shell calculates. */
static const char *const number_variables[] = {"ARGC",
                                               "BASHPID",
                                               "COLUMNS",
                                               "EGID",
                                               "EPOCHREALTIME",
                                               "ERRNO",
                                               "EUID",
                                               "FUNCNEST",
                                               "GID",
                                               "HISTCMD",
                                               "HISTSIZE",
                                               "JOBMAX",
                                               "KEYTIMEOUT",
                                               "LINENO",
                                               "LINES",
                                               "LISTMAX",
                                               "MAILCHECK",
                                               "OPTIND",
                                               "PPID",
                                               "RANDOM",
                                               "SAVEHIST",
                                               "SECONDS",
                                               "SHLVL",
                                               "SRANDOM",
                                               "TMOUT",
                                               "TRY_BLOCK_ERROR",
                                               "TRY_BLOCK_INTERRUPT",
                                               "TTYIDLE",
                                               "UID",
                                               "EPOCHSECONDS",
                                               "PIPESTATUS",
                                               "PGRP",
                                               "USER_ID",
                                               "status",
                                               NULL};

static const char *const number_operators[] = {"-eq", "-ne", "-lt", "-le",
                                               "-gt", "-ge", "-t",  NULL};

/* ---- a command ----------------------------------------------------------- */

void shell_guard_command(struct scanner *s, const struct word *words, size_t n,
                         bool function)
{
    struct guard g = {.scanner = s};
    struct word *operands = mem_new((n + 1) * sizeof(*operands));
    for (size_t i = 0; i < n; i++)
        if (words[i].target == NO_TARGET)
            operands[g.n++] = words[i];
    g.words = operands;
    g.content = mem_new((g.n + 1) * sizeof(*g.content));
    for (size_t i = 0; i < g.n; i++)
        read_content(&g, &g.words[i], &g.content[i]);
    find_command_name(&g);
    skip_empty_words(&g);
    g.named = names_text_runner(&g);
    g.runs_text = g.named || s->hides_runner;
    s->line_runs_text = s->line_runs_text || g.runs_text || reads_text(&g);
    bool evaluates = evaluates_words(&g);
    s->evaluates = s->evaluates || evaluates;
    for (size_t i = 0; i < g.n; i++)
        if (g.words[i].marks < g.words[i].marks_end)
            rule_on_word(&g, i);
    for (size_t i = 0; i < n; i++)
        if (words[i].target != NO_TARGET)
            rule_on_target(&g, &words[i]);
    rule_on_array(&g);
    taint_loop(&g);
    if (has_joined_lines(&g, words, n))
        for (size_t m = words[0].marks; m < words[n - 1].marks_end; m++)
            if (s->marks[m].need < NEED_PLAIN)
                s->marks[m].need = NEED_PLAIN;
    enum rule rule = find_rule(&g);
    if (rule == RULE_CALCULATE || rule == RULE_DECLARE)
        shell_scan_names(s, words[0].from, words[n - 1].to, WHY_LET);
    /* From now on, any name may be a text runner. */
    if (rule == RULE_ALIAS || (g.named && function))
        s->hides_runner = true;
    if (rule == RULE_ALIAS || (evaluates && function))
        s->hides_eval = true;
    s->stores_runner = s->stores_runner || stores_runner_name(&g);
    for (size_t i = 0; i < g.n; i++)
        text_free(&g.content[i].literal);
    free(g.content);
    free(operands);
}

/* Returns whether a word goes on behind a backslash and a newline: the joined
 * word may be a reserved word or an assignment that the scanner has not
 * recognized. */
static bool has_joined_lines(const struct guard *g, const struct word *words,
                             size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *at = g->scanner->script.at;
        for (size_t k = words[i].from; k + 1 < words[i].to; k++) {
            if (at[k] == '"' || at[k] == '\'')
                break;
            if (at[k] == '\\' && at[k + 1] == '\n')
                return true;
        }
    }
    return false;
}

/* Finds the name of the command, behind assignments and words that only say how
 * to run the command. */
static void find_command_name(struct guard *g)
{
    static const char *const before[] = {
        "command", "builtin", "exec", "nocorrect", "noglob", "-", NULL};
    bool options = false;
    for (g->name = 0; g->name < g->n; g->name++) {
        const struct content *c = &g->content[g->name];
        if ((!options && !g->scanner->form->exec &&
             shell_scan_assigned(c->raw) > 0) ||
            (options && is_option(c, NULL)))
            continue;
        if (g->scanner->form->exec ||
            !scan_among(text_span(&c->literal), before))
            return;
        options = true;
    }
}

/* Skips unquoted variables before the name of a builtin with a rule: an empty
 * variable without quotes is no word, as in $x let. */
static void skip_empty_words(struct guard *g)
{
    size_t name = g->name;
    while (g->name + 1 < g->n && g->content[g->name].raw.at[0] == '$' &&
           g->content[g->name].literal.n == 0)
        g->name++;
    g->unsure = g->name > name;
    if (g->unsure && find_rule(g) == RULE_NONE) {
        g->name = name;
        g->unsure = false;
    }
}

/* Returns whether a word names a text runner. A word that is not literal may be
 * a shell if the word looks like the name of a shell, or if an option with a c
 * follows; env -S runs text, too. */
static bool names_text_runner(const struct guard *g)
{
    bool unknown = false;
    bool env = false;
    for (size_t i = 0; i < g->n; i++) {
        const struct content *c = &g->content[i];
        struct span literal = text_span(&c->literal);
        if (unknown && is_option(c, "c"))
            return true;
        if (env && is_option(c, "S"))
            return true;
        if (is_literal(c)) {
            env = env || span_is(base_name(literal), "env");
            if (shell_form_is_shell(literal) ||
                scan_among(base_name(literal), text_runners))
                return true;
        } else if (c->variables > 0 || c->other || c->pattern) {
            unknown = true;
            bool inner = memmem(c->raw.at, c->raw.n, "$(", 2) != NULL ||
                         memchr(c->raw.at, '`', c->raw.n) != NULL;
            if (!inner && (is_name_within(c->raw, shells) ||
                           is_name_within(c->raw, text_runners)))
                return true;
        }
    }
    return false;
}

/* Returns whether a shell evaluates the input of the command: . /dev/stdin,
 * read PS4. */
static bool reads_text(const struct guard *g)
{
    static const char *const files[] = {".", "source", NULL};
    bool reads = false;
    for (size_t i = 0; i < g->n && !reads; i++)
        reads = is_word(&g->content[i], files) ||
                (i > g->name && find_rule(g) == RULE_NAME &&
                 find_special(g->content[i].raw) != SPECIAL_NOT);
    return reads;
}

/* Returns whether a word that a shell reads as text has the value of a
 * variable, or the output of a command. Such a variable needs plain values. */
static bool evaluates_words(struct guard *g)
{
    bool evaluates = false;
    for (size_t i = 1; i < g->n && g->named; i++) {
        const struct content *c = &g->content[i];
        const struct word *word = &g->words[i];
        bool expands = c->variables > 0 || c->other;
        bool evaluated = false;
        for (size_t k = 0; k < i && !evaluated; k++)
            evaluated = is_evaluated_by(g, k, i);
        if (!evaluated)
            continue;
        if (!expands && c->holes == 0) {
            expands = text_evaluates(g, text_span(&c->literal));
            g->nested = g->nested || expands;
        }
        evaluates = evaluates || expands;
        for (size_t m = word->marks; m < word->marks_end; m++)
            if (g->scanner->marks[m].name.at != NULL &&
                g->scanner->marks[m].need < NEED_PLAIN)
                g->scanner->marks[m].need = NEED_PLAIN;
    }
    return evaluates;
}

static bool is_evaluated_by(const struct guard *g, size_t runner, size_t i)
{
    const struct content *c = &g->content[runner];
    return (is_program(c, text_runners) && !is_program(c, option_runners)) ||
           may_be_text(g, runner, i);
}

/* Returns whether the literal text of eval or sh -c, which is a script too,
 * evaluates an expansion. */
static bool text_evaluates(const struct guard *g, struct span text)
{
    struct shell_form form = {.strict = g->scanner->form->strict};
    struct scanner inner = {.script = text, .form = &form};
    shell_scan(&inner);
    free(inner.marks);
    free(inner.words);
    free(inner.taints);
    return inner.evaluates || inner.hides_eval;
}

/* Returns whether a variable gets the name of a text runner: e=eval, for e in
 * eval sh. A later $e is then a text runner. */
static bool stores_runner_name(const struct guard *g)
{
    bool loop = find_rule(g) == RULE_LOOP;
    for (size_t i = 0; i < g->n; i++) {
        struct span literal = text_span(&g->content[i].literal);
        const char *equals = memchr(literal.at, '=', literal.n);
        if (equals != NULL && shell_scan_assigned(literal) > 0) {
            literal.n -= (size_t)(equals + 1 - literal.at);
            literal.at = equals + 1;
        } else if (!loop) {
            continue;
        }
        if (shell_form_is_shell(literal) ||
            scan_among(base_name(literal), text_runners))
            return true;
    }
    return false;
}

/* Rules on the elements of NAME=(...), which were already ruled on as words of
 * a command. */
static void rule_on_array(struct guard *g)
{
    struct scanner *s = g->scanner;
    if (s->n_levels < 2 || !s->levels[s->n_levels - 1].array)
        return;
    size_t at = s->levels[s->n_levels - 2].word;
    struct span outer = {s->script.at + at, s->script.n - at};
    struct span name = {outer.at, shell_scan_assigned(outer)};
    for (size_t i = 0; i < g->n; i++) {
        if (g->words[i].marks == g->words[i].marks_end)
            continue;
        struct ruling r =
            rule_on_variable(g, name, &g->words[i], &g->content[i]);
        apply_rulings(g, &g->words[i], (const struct ruling[2]){r, r});
    }
}

/* Taints the variable of a loop without a list: the loop goes over the script's
 * own parameters. */
static void taint_loop(const struct guard *g)
{
    struct scanner *s = g->scanner;
    struct word all = {.marks_end = SIZE_MAX};
    if (find_rule(g) != RULE_LOOP || g->n != g->name + 2 ||
        s->levels[s->n_levels - 1].function)
        return;
    add_taint(s, g->content[g->name + 1].raw, &all);
    if (find_special(g->content[g->name + 1].raw) != SPECIAL_NOT)
        s->evaluates = true;
}

static void rule_on_word(struct guard *g, size_t i)
{
    struct scanner *s = g->scanner;
    struct ruling rulings[] = {find_ruling(g, i, false),
                               find_ruling(g, i, true)};
    if (rulings[0].need == NEED_PLAIN && s->text.to == 0)
        s->text = (struct shell_text){
            .from = g->words[i].from,
            .to = g->words[i].to,
            .simple = g->content[i].variables == 0 && !g->content[i].other &&
                      i > g->name &&
                      (takes_more_words(g, i) || find_rule(g) >= RULE_EVAL),
            .takes_more = takes_more_words(g, i)};
    apply_rulings(g, &g->words[i], rulings);
}

static void rule_on_target(struct guard *g, const struct word *word)
{
    struct ruling rulings[2] = {{0}, {0}};
    struct content c;
    read_content(g, word, &c);
    for (size_t variable = 0; variable < 2; variable++) {
        if (word->target == TARGET_COPY)
            rulings[variable].why = WHY_COPY;
        if (word->target == TARGET_TEXT)
            rulings[variable] = rule_on_stdin(g, word, find_form(&c, variable),
                                              variable == 1 && c.variables > 0);
    }
    text_free(&c.literal);
    apply_rulings(g, word, rulings);
}

/* Applies the first ruling to the placeholders and the second to the variables
 * of a word. */
static void apply_rulings(struct guard *g, const struct word *word,
                          const struct ruling rulings[2])
{
    struct scanner *s = g->scanner;
    for (size_t m = word->marks; m < word->marks_end; m++) {
        struct mark *mark = &s->marks[m];
        const struct ruling *r = &rulings[mark->name.at != NULL];
        if (mark->name.at == NULL && s->holes[mark->hole].number)
            continue;
        if (mark->why == WHY_NOT)
            mark->why = r->why;
        if (mark->need < r->need)
            mark->need = r->need;
        if (mark->name.at == NULL && find_rule(g) == RULE_TEST)
            s->holes[mark->hole].single = true;
    }
}

/* Returns whether the word is the text of sh -c and the last word of the
 * command. */
static bool takes_more_words(const struct guard *g, size_t i)
{
    bool shell = false;
    bool option = false;
    for (size_t k = 0; k < i; k++) {
        option = option || (shell && is_option(&g->content[k], "c"));
        shell = shell || shell_form_is_shell(text_span(&g->content[k].literal));
    }
    return option && i + 1 == g->n;
}

static struct ruling find_ruling(const struct guard *g, size_t i, bool variable)
{
    const struct content *c = &g->content[i];
    enum form form = find_form(c, variable);
    bool ours = i < g->name && !g->scanner->form->exec;
    if (ours && shell_scan_assigned(c->raw) > 0)
        return rule_on_value(g, i);
    struct ruling operand = rule_on_operand(g, i, form, variable);
    struct ruling r = rule_on_form(g, i, form);
    if (operand.need > r.need)
        r.need = operand.need;
    if (operand.why != WHY_NOT)
        r.why = operand.why;
    return r;
}

/* Rules on the word behind <<<: the script of a shell, or the value for
 * read. */
static struct ruling rule_on_stdin(const struct guard *g,
                                   const struct word *word, enum form form,
                                   bool variable)
{
    for (size_t k = g->name + 1; k < g->n && find_rule(g) == RULE_NAME; k++) {
        if (find_special(g->content[k].raw) != SPECIAL_NOT)
            return (struct ruling){.why = WHY_VARIABLE};
        add_taint(g->scanner, g->content[k].raw, word);
    }
    bool text = g->runs_text || reads_text(g);
    if (text && variable)
        g->scanner->evaluates = true;
    bool plain = text && (variable || form != ALONE);
    return (struct ruling){.need = plain ? NEED_PLAIN : NEED_NOTHING};
}

/* ---- by the form of a word ----------------------------------------------- */

static enum form find_form(const struct content *c, bool variable)
{
    size_t others = variable ? c->holes : c->variables;
    size_t same = variable ? c->variables : c->holes;
    if (c->operators || c->other || others > 0 || (variable && same > 1))
        return TEXT;
    return same == 1 && c->literal.n == 0 ? ALONE : MIXED;
}

static struct ruling rule_on_form(const struct guard *g, size_t i,
                                  enum form form)
{
    static const char *const setters[] = {"env", "sudo", "doas", NULL};
    bool known =
        !g->unsure && (g->name == g->n || is_literal(&g->content[g->name]));
    bool set = false; /* the word may be NAME=value for a command behind */
    for (size_t k = 0; k < i; k++)
        set = set || is_word(&g->content[k], setters);
    if (may_be_sourced(&g->content[i], set || g->runs_text))
        return (struct ruling){.why = WHY_VARIABLE};
    bool plain = form == TEXT && i != g->name && (!known || g->runs_text);
    if (g->scanner->form->strict && g->name < g->n && g->n > 1)
        plain = plain || g->content[g->name].raw.at[0] == '{'; /* zsh: {let x */
    plain = plain || (i > g->name && hides_eval(g));
    for (size_t k = 0; form == MIXED && k < i; k++)
        plain = plain || may_be_text(g, k, i);
    for (size_t k = i + 1; form != TEXT && set && k < g->n; k++)
        plain = plain || shell_form_is_shell(text_span(&g->content[k].literal));
    return (struct ruling){.need = plain ? NEED_PLAIN : NEED_NOTHING};
}

/* Returns whether the command, or its text, may be eval: the text evaluates its
 * own parameters; or there is an alias, or a function that evaluates text; or
 * the name is a pattern; or the name is not literal, and a variable has the
 * name of a text runner. */
static bool hides_eval(const struct guard *g)
{
    const struct content *name = &g->content[g->name];
    if (g->nested || g->scanner->hides_eval)
        return true;
    return !g->scanner->form->exec &&
           (name->glob || (!is_literal(name) && g->scanner->stores_runner));
}

/* Returns whether the word may assign a variable that a shell runs.
 * `for_shell`: a shell may get the variable ENV; in make ENV={}, no shell
 * does. */
static bool may_be_sourced(const struct content *c, bool for_shell)
{
    static const char *const sourced[] = {"BASH_ENV", "PS4", "PROMPT_COMMAND",
                                          NULL};
    struct span literal = text_span(&c->literal);
    struct span name = {literal.at, shell_scan_assigned(literal)};
    return scan_among(name, sourced) || (for_shell && span_is(name, "ENV")) ||
           strncmp(literal.at, "BASH_FUNC_", 10) == 0;
}

/* Returns whether word i, with a placeholder and plain characters, may be the
 * text of the shell that word `runner` names. Not so behind the name of a
 * script file, or behind a literal text. */
static bool may_be_text(const struct guard *g, size_t runner, size_t i)
{
    static const char *const joiners[] = {
        "ssh",  "rsh", "mosh",     "watch", "slogin", "remsh", "autossh",
        "pdsh", "vow", "parallel", "tmux",  "screen", NULL};
    const struct content *c = &g->content[runner];
    struct span literal = text_span(&c->literal);
    bool shell = is_literal(c) ? shell_form_is_shell(literal)
                               : is_name_within(c->raw, shells);
    if (is_program(c, joiners))
        return true;
    for (size_t k = runner + 1; c->glob && k < i; k++)
        if (is_option(&g->content[k], "c"))
            return true; /* [s]h -c f{} */
    if (runner == g->name && !is_literal(c) && i == runner + 2 &&
        is_option(&g->content[i - 1], "c") && !shell)
        return !begins_with_hole(&g->content[i]); /* $x -c f{} */
    if (!shell && !is_program(c, option_runners))
        return false;
    bool splits = span_is(base_name(literal), "env"); /* -S 'sh -c' f{} */
    bool text_next = !is_literal(c); /* -c was there, or may have been */
    bool value_next = false;
    for (size_t k = runner + 1; k < i; k++) {
        const struct content *w = &g->content[k];
        bool option = is_option(w, NULL);
        bool script = shell && !option && !value_next && !text_next;
        if (is_literal(w) && (script || (text_next && w->operators)) && !splits)
            return false;
        text_next = text_next || !is_literal(w) || is_option(w, "cS");
        value_next = option && (is_option(w, "oOARDT") ||
                                strncmp(w->literal.at, "--", 2) == 0);
    }
    return text_next || is_option(&g->content[i], "cS");
}

static bool begins_with_hole(const struct content *c)
{
    size_t i = 0;
    while (i < c->raw.n && (c->raw.at[i] == '"' || c->raw.at[i] == '\''))
        i++;
    return i < c->raw.n && c->raw.at[i] == '\0';
}

/* ---- by the name of the command ------------------------------------------ */

static enum rule find_rule(const struct guard *g)
{
    static const struct {
        const char *name;
        enum rule rule;
    } builtins[] = {
        {"let", RULE_CALCULATE},   {"repeat", RULE_CALCULATE},
        {"declare", RULE_DECLARE}, {"typeset", RULE_DECLARE},
        {"local", RULE_DECLARE},   {"integer", RULE_DECLARE},
        {"float", RULE_DECLARE},   {"private", RULE_DECLARE},
        {"nameref", RULE_DECLARE}, {"compound", RULE_DECLARE},
        {"enum", RULE_DECLARE},    {"export", RULE_EXPORT},
        {"readonly", RULE_EXPORT}, {"read", RULE_NAME},
        {"mapfile", RULE_NAME},    {"readarray", RULE_NAME},
        {"unset", RULE_NAME},      {"getopts", RULE_NAME},
        {"compgen", RULE_NAME},    {"complete", RULE_NAME},
        {"compopt", RULE_NAME},    {"bind", RULE_NAME},
        {"fc", RULE_NAME},         {"hist", RULE_NAME},
        {"coproc", RULE_NAME},     {"vared", RULE_NAME},
        {"zparseopts", RULE_NAME}, {"zstyle", RULE_NAME},
        {"zformat", RULE_NAME},    {"zregexparse", RULE_NAME},
        {"zmodload", RULE_NAME},   {"zle", RULE_NAME},
        {"bindkey", RULE_NAME},    {"sched", RULE_NAME},
        {"functions", RULE_NAME},  {"autoload", RULE_NAME},
        {"exit", RULE_NUMBER},     {"return", RULE_NUMBER},
        {"break", RULE_NUMBER},    {"continue", RULE_NUMBER},
        {"shift", RULE_NUMBER},    {"logout", RULE_NUMBER},
        {"bye", RULE_NUMBER},      {"ulimit", RULE_NUMBER},
        {"test", RULE_TEST},       {"[", RULE_TEST},
        {"printf", RULE_PRINTF},   {"print", RULE_DASHES},
        {"set", RULE_DASHES},      {"eval", RULE_EVAL},
        {"trap", RULE_TRAP},       {"emulate", RULE_TRAP},
        {"alias", RULE_ALIAS},     {"for", RULE_LOOP},
        {"select", RULE_LOOP},
    };
    if (g->scanner->form->exec || g->name == g->n)
        return RULE_NONE;
    /* "$x"let is a name too if x is empty */
    struct span name = text_span(&g->content[g->name].literal);
    for (size_t i = 0; i < sizeof(builtins) / sizeof(*builtins); i++)
        if (span_is(name, builtins[i].name))
            return builtins[i].rule;
    return RULE_NONE;
}

/* Rules on an operand by the name of the command. Shells that are not common
 * calculate with the operands of more builtins: there a placeholder within
 * $(...), or a variable, must be plain, because the command may print the
 * value. */
static struct ruling rule_on_operand(const struct guard *g, size_t i,
                                     enum form form, bool variable)
{
    const struct content *c = &g->content[i];
    struct ruling plain = {.need = NEED_PLAIN};
    struct ruling number = {.need = NEED_NUMBER};
    bool strict = g->scanner->form->strict;
    if (c->other || variable)
        number.need = strict ? NEED_PLAIN : NEED_NOTHING;
    if (i <= g->name)
        return (struct ruling){0};
    switch (find_rule(g)) {
    case RULE_CALCULATE:
        return (struct ruling){.why = WHY_LET};
    case RULE_DECLARE:
    case RULE_NAME:
        return (struct ruling){.why = WHY_OPERAND};
    case RULE_EXPORT:
        return rule_on_value(g, i);
    case RULE_NUMBER:
        return number;
    case RULE_TEST:
        return rule_on_test(g, i, number);
    case RULE_PRINTF:
        return rule_on_printf(g, i, number);
    case RULE_DASHES:
        for (size_t k = g->name; k < i && !is_option(&g->content[k], "P"); k++)
            if (is_word(&g->content[k], (const char *const[]){"--", NULL}))
                return rule_on_parameter(g, i);
        return plain;
    case RULE_EVAL:
        if (form != ALONE || i != g->name + 1)
            return plain;
        break;
    case RULE_TRAP:
        if (form != ALONE)
            return plain;
        break;
    case RULE_ALIAS:
        return plain;
    case RULE_LOOP:
        return rule_on_loop(g, i);
    case RULE_NONE:
        break;
    }
    return (struct ruling){0};
}

/* Rules on a word behind --: of set -- {}, and of print, which may store words
 * with -v or -z. */
static struct ruling rule_on_parameter(const struct guard *g, size_t i)
{
    struct ruling r =
        rule_on_variable(g, span_of("@"), &g->words[i], &g->content[i]);
    bool set = span_is(text_span(&g->content[g->name].literal), "set");
    return set ? r : (struct ruling){0};
}

/* Rules on a word of for NAME in {}: an assignment to NAME, or to several names
 * in zsh. */
static struct ruling rule_on_loop(const struct guard *g, size_t i)
{
    struct ruling worst = {0};
    for (size_t k = g->name + 1; k < i; k++) {
        if (is_word(&g->content[k], (const char *const[]){"in", NULL}) &&
            k > g->name + 1)
            break;
        struct ruling r = rule_on_variable(g, g->content[k].raw, &g->words[i],
                                           &g->content[i]);
        worst.why = r.why != WHY_NOT ? r.why : worst.why;
        worst.need = r.need > worst.need ? r.need : worst.need;
    }
    return worst;
}

/* Rules on NAME={}, also behind export and readonly: with options, these may
 * declare an array, and bash reads the value of an array again. */
static struct ruling rule_on_value(const struct guard *g, size_t i)
{
    const struct content *c = &g->content[i];
    size_t n = shell_scan_assigned(c->raw);
    struct span name = {c->raw.at, n};
    for (size_t k = g->name; k < i; k++)
        if (shell_scan_assigned(g->content[k].raw) == 0 &&
            (!is_literal(&g->content[k]) || is_option(&g->content[k], NULL)))
            n = 0;
    if (n == 0 && i > g->name)
        return (struct ruling){.why = WHY_OPERAND};
    struct ruling r = rule_on_variable(g, name, &g->words[i], c);
    const char *value = memchr(c->raw.at, '=', c->raw.n);
    bool array =
        value != NULL && value + 1 < c->raw.at + c->raw.n && value[1] == '(';
    if (array && r.need == NEED_PLAIN)
        r.need = NEED_NOTHING; /* the elements were ruled on */
    return r;
}

static enum special find_special(struct span name)
{
    return scan_among(name, run_variables)      ? SPECIAL_TEXT
           : scan_among(name, number_variables) ? SPECIAL_NUMBER
                                                : SPECIAL_NOT;
}

/* Rules on a word assigned to a variable. A word with operators needs plain
 * values, because a command that the guard does not know may evaluate the
 * variable. */
static struct ruling rule_on_variable(const struct guard *g, struct span name,
                                      const struct word *word,
                                      const struct content *c)
{
    enum special special = find_special(name);
    if (special == SPECIAL_TEXT)
        return (struct ruling){.why = WHY_VARIABLE};
    if (special == SPECIAL_NUMBER)
        return (struct ruling){.why = c->other ? WHY_VARIABLE : WHY_NOT,
                               .need = c->other ? NEED_NOTHING : NEED_NUMBER};
    add_taint(g->scanner, name, word);
    bool text = c->operators && !c->other;
    return (struct ruling){.need = text ? NEED_PLAIN : NEED_NOTHING};
}

/* Rules on an operand of test. Any value is allowed next to an operator,
 * because there the value is not read as an operator; unless an operator of the
 * test calculates, or takes the name of a variable. */
static struct ruling rule_on_test(const struct guard *g, size_t i,
                                  struct ruling number)
{
    static const char *const names[] = {"-v", "-R", NULL};
    static const char *const before[] = {
        "=",  "==", "!=", "<",  ">",  "-n", "-z", "-e",  "-f",  "-d",  "-r",
        "-w", "-x", "-s", "-L", "-h", "-b", "-c", "-p",  "-S",  "-u",  "-g",
        "-k", "-O", "-G", "-N", "-a", "!",  "-o", "-nt", "-ot", "-ef", NULL};
    static const char *const behind[] = {"=",   "==",  "!=", "-nt",
                                         "-ot", "-ef", NULL};
    static const char *const closing[] = {"]", NULL};
    size_t operands = 0;
    bool calculates = false;
    for (size_t k = g->name + 1; k < g->n; k++) {
        const struct content *c = &g->content[k];
        if (is_word(c, names))
            return (struct ruling){.why = WHY_OPERAND};
        calculates = calculates || is_word(c, number_operators);
        operands += !is_word(c, closing);
    }
    if (calculates)
        return number;
    if (operands <= 1 || is_word(&g->content[i - 1], before) ||
        (i + 1 < g->n && is_word(&g->content[i + 1], behind)))
        return (struct ruling){0};
    return (struct ruling){.need = NEED_PLAIN};
}

bool shell_guard_calculates(struct span word)
{
    static const char *const names[] = {"-v", "-R", "-o", NULL};
    return scan_among(word, number_operators) || scan_among(word, names);
}

/* Rules on a word of printf. Any value is allowed if the format is literal and
 * has no conversions but %s, %b and %q. */
static struct ruling rule_on_printf(const struct guard *g, size_t i,
                                    struct ruling number)
{
    size_t format = g->name + 1;
    if (is_word(&g->content[format], (const char *const[]){"--", NULL}))
        format++;
    if (is_option(&g->content[g->name + 1], "v"))
        return (struct ruling){.why = WHY_OPERAND};
    const struct content *c = &g->content[format < g->n ? format : i];
    bool known = c->holes == 0 && !c->other && c->variables == 0;
    if (i <= format && c->holes > 0)
        return (struct ruling){.need = NEED_PLAIN};
    if (known && prints_strings(text_span(&c->literal)))
        return (struct ruling){0};
    if (!known && number.need == NEED_NUMBER)
        number.need = NEED_PLAIN;
    return number;
}

static bool prints_strings(struct span format)
{
    for (size_t i = 0; i < format.n; i++) {
        if (format.at[i] != '%')
            continue;
        for (i++; i < format.n && scan_one_of(format.at[i], "-+ #0123456789.");)
            i++;
        if (i < format.n && !scan_one_of(format.at[i], "sbq%"))
            return false;
    }
    return true;
}

/* ---- variables ----------------------------------------------------------- */

static void add_taint(struct scanner *s, struct span name,
                      const struct word *word)
{
    s->taints = scan_grow(s->taints, s->n_taints, sizeof(*s->taints));
    s->taints[s->n_taints++] =
        (struct taint){name, shell_scan_depth(s), word->marks, word->marks_end};
}

/* Returns whether the variable may have the value of a placeholder. Applies the
 * need of the variable to the placeholders assigned to the variable, directly
 * or through other variables. */
static bool spread_need(struct scanner *s, struct span name,
                        enum value_need need, int steps)
{
    bool given = false;
    static const char *const implicit[] = {
        "@", "*", "_", "PWD", "OLDPWD", "DIRSTACK", "argv", "BASH_ARGV", NULL};
    bool ours =
        scan_among(name, implicit) || (name.at[0] >= '0' && name.at[0] <= '9');
    struct taint all = {.marks_end = s->n_marks};
    for (size_t i = 0; i < (ours ? 1 : s->n_taints) && steps > 0; i++) {
        const struct taint *t = ours ? &all : &s->taints[i];
        if (!ours &&
            (t->name.n != name.n || memcmp(t->name.at, name.at, name.n) != 0))
            continue;
        for (size_t m = t->marks; m < t->marks_end && m < s->n_marks; m++) {
            struct mark *mark = &s->marks[m];
            if (mark->name.at != NULL && !ours && mark->depth == t->depth)
                given |= spread_need(s, mark->name, need, steps - 1);
            if (mark->name.at != NULL || s->holes[mark->hole].number ||
                (!ours && mark->depth != t->depth))
                continue;
            given = true;
            if (mark->need < need)
                mark->need = need;
        }
    }
    return given;
}

/* Requires plain values of all variables: any variable may be the evaluated
 * variable. */
static void need_plain_variables(struct scanner *s)
{
    for (size_t m = 0; m < s->n_marks; m++)
        if (s->marks[m].name.at != NULL && s->marks[m].need < NEED_PLAIN)
            s->marks[m].need = NEED_PLAIN;
    for (size_t i = 0; i < s->n_taints; i++)
        for (size_t m = s->taints[i].marks;
             m < s->taints[i].marks_end && m < s->n_marks; m++)
            if (s->marks[m].need < NEED_PLAIN)
                s->marks[m].need = NEED_PLAIN;
}

void shell_guard_finish(struct scanner *s)
{
    if (s->evaluates)
        need_plain_variables(s);
    for (size_t m = 0; m < s->n_marks; m++) {
        struct mark *mark = &s->marks[m];
        if (mark->name.at != NULL &&
            (mark->why != WHY_NOT || mark->need != NEED_NOTHING) &&
            !spread_need(s, mark->name, mark->need, 8))
            mark->why = WHY_NOT;
    }
    for (size_t m = 0; m < s->n_marks; m++)
        if (s->marks[m].name.at == NULL && !s->holes[s->marks[m].hole].number)
            s->holes[s->marks[m].hole].need = s->marks[m].need;
}

/* ---- words --------------------------------------------------------------- */

static void read_content(const struct guard *g, const struct word *word,
                         struct content *ret_content)
{
    struct span raw = {g->scanner->script.at + word->from,
                       word->to - word->from};
    static const char operators[] = " \t\n|&;<>()$`\"'\\";
    struct content *c = ret_content;
    char quote = '\0';
    *c = (struct content){.raw = raw};
    text_add(&c->literal, "", 0);
    for (size_t i = 0; i < raw.n; i++) {
        char at = raw.at[i];
        bool quoted = quote != '\0';
        if (at == '\0') {
            c->holes++;
            continue;
        }
        if (at == quote) {
            quote = '\0';
            continue;
        }
        if (quote == '\0' && (at == '"' || at == '\'')) {
            quote = at;
            continue;
        }
        if (quote != '\'' && at == '\\' && i + 1 < raw.n) {
            quoted = true;
            at = raw.at[++i];
            if (at == '\n')
                continue;
        } else if (quote != '\'' && at == '$') {
            i = read_dollar(raw, i, c);
            continue;
        } else if (quote != '\'' && at == '`') {
            c->other = true;
        }
        c->operators = c->operators || scan_one_of(at, operators);
        c->pattern = c->pattern || (!quoted && scan_one_of(at, "*?[{~"));
        c->glob = c->glob || (!quoted && scan_one_of(at, "*?[{"));
        text_add(&c->literal, &at, 1);
    }
    if (raw.n > 1 && raw.at[0] == '=') /* zsh: =sh is /bin/sh */
        c->pattern = true;
    if (span_is(raw, "[") || span_is(raw, "{"))
        c->pattern = c->glob = false;
}

/* Reads an expansion. Returns the index of the last byte read. */
static size_t read_dollar(struct span raw, size_t at, struct content *c)
{
    bool brace = at + 1 < raw.n && raw.at[at + 1] == '{';
    size_t from = at + 1 + brace;
    size_t to = from;
    while (to < raw.n && scan_name_char(raw.at[to]))
        to++;
    if (to == from && to < raw.n && scan_one_of(raw.at[to], "@*"))
        to++;
    if (to > from && (!brace || (to < raw.n && raw.at[to] == '}'))) {
        c->variables++;
        return brace ? to : to - 1;
    }
    c->other = true;
    return at;
}

static bool is_literal(const struct content *c)
{
    return c->holes == 0 && c->variables == 0 && !c->other && !c->pattern;
}

/* Returns whether the word is literal and in the list. */
static bool is_word(const struct content *c, const char *const *words)
{
    return is_literal(c) && scan_among(text_span(&c->literal), words);
}

/* Returns whether the word is literal and in the list, perhaps with a path. */
static bool is_program(const struct content *c, const char *const *names)
{
    return is_literal(c) &&
           scan_among(base_name(text_span(&c->literal)), names);
}

/* Returns whether the word is an option -x or +x with one of these letters;
 * NULL: with any letter. */
static bool is_option(const struct content *c, const char *letters)
{
    return c->literal.n > 1 && scan_one_of(c->literal.at[0], "-+") &&
           (letters == NULL || strpbrk(c->literal.at, letters) != NULL);
}

static struct span base_name(struct span word)
{
    const char *slash = word.n > 0 ? memrchr(word.at, '/', word.n) : NULL;
    const char *name = slash != NULL ? slash + 1 : word.at;
    return (struct span){name, word.n - (size_t)(name - word.at)};
}

/* Accepts a version behind the name: ksh93, zsh-5.9, bash-static. */
bool shell_form_is_shell(struct span word)
{
    struct span name = base_name(word);
    if (name.n > 7 && memcmp(name.at + name.n - 7, "-static", 7) == 0)
        name.n -= 7;
    while (name.n > 0 && scan_one_of(name.at[name.n - 1], "0123456789.-"))
        name.n--;
    return name.n > 0 && scan_among(name, shells);
}

bool shell_form_is_common(struct span word)
{
    static const char *const common[] = {"sh",  "dash",    "bash", "rbash",
                                         "ash", "busybox", NULL};
    return scan_among(base_name(word), common);
}

/* Returns whether a run of letters in the word, in either case, is one of the
 * names: $SHELL, b?sh. */
static bool is_name_within(struct span raw, const char *const *names)
{
    for (size_t i = 0; i < raw.n; i++) {
        char name[16] = "";
        size_t n = 0;
        while (i + n < raw.n && ((raw.at[i + n] | 32) >= 'a') &&
               (raw.at[i + n] | 32) <= 'z')
            n++;
        for (size_t k = 0; k < n && n < sizeof(name); k++)
            name[k] = (char)(raw.at[i + k] | 32);
        if (name[0] != '\0' &&
            (strcmp(name, "shell") == 0 || scan_among(span_of(name), names)))
            return true;
        i += n;
    }
    return false;
}
