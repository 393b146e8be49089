/* SPDX-License-Identifier: MIT */
/* shell_form_test.c - how a placeholder is written by the quotes around it, and
 * where it is refused. That shells agree is shell_matrix_test.c's.
 */
#include "harness.h"
#include "shell_form.h"
#include "template.h"

#include <stdlib.h>
#include <string.h>

struct expected {
    const char *script;
    const char *result;
};

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static struct template *make(const char *script, char **ret_error)
{
    static char *word[1];
    struct template_opts o = {0};
    word[0] = (char *)(uintptr_t)script;
    return template_new(word, 1, &o, ret_error);
}

/* The script that is run, with so many items. */
static void check_script(const char *script, size_t n_items, const char *want)
{
    char *error = NULL;
    struct span items[12];
    struct command c = {0};
    struct fields f = {.items = items, .n_items = n_items, .fields = items};
    f.n_fields = n_items;
    for (size_t i = 0; i < COUNT(items); i++)
        items[i] = span_of("x");
    struct template *t = make(script, &error);
    if (t == NULL)
        FAIL("%s: %s", script, error);
    CHECK_STR_EQ(template_program(t), "sh");
    (void)template_expand(t, &f, &c);
    CHECK_STR_EQ(c.argv[0], "sh");
    CHECK_STR_EQ(c.argv[1], "-c");
    if (strcmp(c.argv[2], want) != 0)
        FAIL("%s became %s, want %s", script, c.argv[2], want);
    CHECK_STR_EQ(c.argv[3], "sh");
    command_free(&c);
    template_free(t);
}

static void check_scripts(const struct expected *e, size_t n)
{
    for (size_t i = 0; i < n; i++)
        check_script(e[i].script, 1, e[i].result);
}

/* `want` is in the error, which begins with `placeholder`. A script that the
 * error shows is not refused. */
static void check_refused(const char *script, const char *placeholder,
                          const char *want)
{
    static const char instead[] = "\nwrite instead:\n  ";
    char *error = NULL;
    char *again = NULL;
    struct template *t = make(script, &error);
    if (t != NULL)
        FAIL("%s was not refused", script);
    if (strncmp(error, placeholder, strlen(placeholder)) != 0 ||
        strstr(error, want) == NULL)
        FAIL("%s: %s, want %s and %s", script, error, placeholder, want);
    const char *better = strstr(error, instead);
    if (better != NULL) {
        t = make(better + strlen(instead), &again);
        if (t == NULL)
            FAIL("%s: %s, which is refused: %s", script, error, again);
        template_free(t);
    }
    free(error);
}

/* The error shows this script instead. */
static void check_better(const char *script, const char *better)
{
    struct text want = {0};
    text_addf(&want, "\nwrite instead:\n  %s", better);
    check_refused(script, "", want.at);
    text_free(&want);
}

static void check_all_refused(const char *const *scripts, const char *want)
{
    for (; *scripts != NULL; scripts++)
        check_refused(*scripts, "{}", want);
}

/* ---- places -------------------------------------------------------------- */

TEST(shell_form, a_bare_placeholder_is_quoted)
{
    static const struct expected e[] = {
        {"f {}", "f \"${1}\""},           {"f a{}b", "f a\"${1}\"b"},
        {"f --x={}", "f --x=\"${1}\""},   {"v={}; f $v", "v=\"${1}\"; f $v"},
        {"f {}|g", "f \"${1}\"|g"},       {"f >{}", "f >\"${1}\""},
        {"f 2>>{}&", "f 2>>\"${1}\"&"},   {"f <<< {}", "f <<< \"${1}\""},
        {"(f {})", "(f \"${1}\")"},       {"{ f {}; }", "{ f \"${1}\"; }"},
        {"f $HOME{}", "f $HOME\"${1}\""}, {"f $${}", "f $$\"${1}\""},
        {"f \\${}", "f \\$\"${1}\""},     {"f \\\\{}", "f \\\\\"${1}\""},
        {"f \\'{}", "f \\'\"${1}\""},     {"f a#b {}", "f a#b \"${1}\""},
        {"f ~/{}", "f ~/\"${1}\""},       {"a=(1 {} 2)", "a=(1 \"${1}\" 2)"},
        {"[ -f {} ]", "[ -f \"${1}\" ]"},
    };
    check_scripts(e, COUNT(e));
}

TEST(shell_form, quotes_around_a_placeholder_stay)
{
    static const struct expected e[] = {
        {"f \"{}\"", "f \"${1}\""},
        {"f \"a {} b\"", "f \"a ${1} b\""},
        {"f \"it's {}\"", "f \"it's ${1}\""},
        {"f \"\\\"{}\\\\\"{}", "f \"\\\"${1}\\\\\"\"${1}\""},
        {"f \"\\${}\"", "f \"\\$${1}\""},
        {"f '{}'", "f ''\"${1}\"''"},
        {"f 'a \" {} b'", "f 'a \" '\"${1}\"' b'"},
        {"f '\\'{}", "f '\\'\"${1}\""},
        {"f '\\{}'", "f '\\'\"${1}\"''"},
        {"f '${}'", "f '$'\"${1}\"''"},
        {"f \"$'\" {}", "f \"$'\" \"${1}\""},
        {"f $\"a{}\"", "f $\"a${1}\""},
        {"f ''{}\"\"", "f ''\"${1}\"\"\""},
        {"f 'a'\"b\"{}'c{}'", "f 'a'\"b\"\"${1}\"'c'\"${1}\"''"},
    };
    check_scripts(e, COUNT(e));
}

TEST(shell_form, a_substitution_has_quotes_of_its_own)
{
    static const struct expected e[] = {
        {"f $(g {})", "f $(g \"${1}\")"},
        {"f \"$(g {})\"", "f \"$(g \"${1}\")\""},
        {"f \"$(g \"{}\") {}\"", "f \"$(g \"${1}\") ${1}\""},
        {"f \"$(g '{}') {}\"", "f \"$(g ''\"${1}\"'') ${1}\""},
        {"f $(g $(h \"$(i {})\" {}) {})",
         "f $(g $(h \"$(i \"${1}\")\" \"${1}\") \"${1}\")"},
        {"f \"$( (g; h) ) {}\"", "f \"$( (g; h) ) ${1}\""},
        {"f \"$(g \\) {})\"", "f \"$(g \\) \"${1}\")\""},
        {"f \"$(g ')') {}\"", "f \"$(g ')') ${1}\""},
        {"f \"$({ g) {}\"", "f \"$({ g) ${1}\""},
        {"f $(g)'{}'", "f $(g)''\"${1}\"''"},
        {"f \"${x:-$(g {})} {}\"", "f \"${x:-$(g \"${1}\")} ${1}\""},
        {"f `g {}` $(h {})", "f `g \"${1}\"` $(h \"${1}\")"},
        {"f \"`g \"{}\" '{}'`\"", "f \"`g \"${1}\" ''\"${1}\"''`\""},
    };
    check_scripts(e, COUNT(e));
}

TEST(shell_form, patterns_of_case_close_no_substitution)
{
    static const struct expected e[] = {
        {"f \"$(case x in x) g;; y|z) h;; esac) {}\"",
         "f \"$(case x in x) g;; y|z) h;; esac) ${1}\""},
        {"f \"$(case {} in (a) (g);; {}) h;; esac) {}\"",
         "f \"$(case \"${1}\" in (a) (g);; \"${1}\") h;; esac) ${1}\""},
        {"f \"$(case x in\nx)\n case y in y) g;; esac\n;;\nesac) {}\"",
         "f \"$(case x in\nx)\n case y in y) g;; esac\n;;\nesac) ${1}\""},
        {"f \"$(case in in in) esac) {}\"",
         "f \"$(case in in in) esac) ${1}\""},
        {"f \"$(echo case x in; g) {}\"", "f \"$(echo case x in; g) ${1}\""},
        {"f \"$(if case x in x) ;; esac; then g; fi) {}\"",
         "f \"$(if case x in x) ;; esac; then g; fi) ${1}\""},
        {"f \"$(for case in esac; do g; done) {}\"",
         "f \"$(for case in esac; do g; done) ${1}\""},
        {"f \"$(for x do case x in x) g;; esac; done) {}\"",
         "f \"$(for x do case x in x) g;; esac; done) ${1}\""},
        {"f \"$(g | case x in x) ;; if) ;; case) ;; esac) {}\"",
         "f \"$(g | case x in x) ;; if) ;; case) ;; esac) ${1}\""},
    };
    check_scripts(e, COUNT(e));
}

TEST(shell_form, expansions_are_passed_over)
{
    static const struct expected e[] = {
        {"f ${x:-\"}\"} '{}'", "f ${x:-\"}\"} ''\"${1}\"''"},
        {"f ${x:-'}'} \"{}\"", "f ${x:-'}'} \"${1}\""},
        {"f \"${x:-it's} {}\"", "f \"${x:-it's} ${1}\""},
        {"f \"${x:-\"a b\"} {}\"", "f \"${x:-\"a b\"} ${1}\""},
        {"f \"${x#\\}} {}\"", "f \"${x#\\}} ${1}\""},
        {"f \"${#x} $# {}\"", "f \"${#x} $# ${1}\""},
        {"f \"$((1 << (2))) {}\"", "f \"$((1 << (2))) ${1}\""},
        {"f `g \"` {}", "f `g \"` \"${1}\""},
        {"f \"`g \\` h` {}\"", "f \"`g \\` h` ${1}\""},
        {"f $'it\\'s' {}", "f $'it\\'s' \"${1}\""},
        {"f $$'a\\' {}", "f $$'a\\' \"${1}\""},
        {"((x = 1)); f '{}'", "((x = 1)); f ''\"${1}\"''"},
        {"[[ a < b ]] && f {}", "[[ a < b ]] && f \"${1}\""},
        {"diff <(f {}) <(g '{}') \"{}\"",
         "diff <(f \"${1}\") <(g ''\"${1}\"'') \"${1}\""},
    };
    check_scripts(e, COUNT(e));
}

TEST(shell_form, comments_hide_quotes_and_get_no_value)
{
    static const struct expected e[] = {
        {"# it's {}\nf {}", "# it's \nf \"${1}\""},
        {"f {} # don't", "f \"${1}\" # don't"},
        {"f \"$(g # )\"\n) {}\"", "f \"$(g # )\"\n) ${1}\""},
        {"f;# it's\ng \"{}\"", "f;# it's\ng \"${1}\""},
        {"f \\\n# it's\n{}", "f \\\n# it's\n\"${1}\""},
        {"f a\\\n#'b' {}", "f a\\\n#'b' \"${1}\""},
    };
    check_scripts(e, COUNT(e));
}

TEST(shell_form, here_documents_are_passed_over)
{
    static const struct expected e[] = {
        {"f <<E {}\nit's\nE\ng '{}'",
         "f <<E \"${1}\"\nit's\nE\ng ''\"${1}\"''"},
        {"f <<'E F' >{}\n\"\nE F\ng {}",
         "f <<'E F' >\"${1}\"\n\"\nE F\ng \"${1}\""},
        {"f <<-Q\n\t'\n\tQ\ng {}", "f <<-Q\n\t'\n\tQ\ng \"${1}\""},
        {"f << \\E;g\n\" \\\nE\nh {}", "f << \\E;g\n\" \\\nE\nh \"${1}\""},
        {"f <<A <<\"B\"\n'\nA\n\"\nB\ng {}",
         "f <<A <<\"B\"\n'\nA\n\"\nB\ng \"${1}\""},
        {"f <<E \"a\nb\" {}\n'\nE\ng {}",
         "f <<E \"a\nb\" \"${1}\"\n'\nE\ng \"${1}\""},
        {"f \"$(g <<E\n)\"'\nE\n) {}\"", "f \"$(g <<E\n)\"'\nE\n) ${1}\""},
        {"f <<E $(g\nh)\n'\nE\ni {}", "f <<E $(g\nh)\n'\nE\ni \"${1}\""},
        {"{ f <<E; }\n'\nE\ng {}", "{ f <<E; }\n'\nE\ng \"${1}\""},
        {"f <<E\na\\\nE\n'\nE\ng {}", "f <<E\na\\\nE\n'\nE\ng \"${1}\""},
    };
    check_scripts(e, COUNT(e));
}

TEST(shell_form, parameters_above_9_have_braces)
{
    check_script("f {1} {2} {3} {4} {5} {6} {7} {8} {9} {10} {11} \"{11}\"", 11,
                 "f \"${1}\" \"${2}\" \"${3}\" \"${4}\" \"${5}\" \"${6}\" "
                 "\"${7}\" \"${8}\" \"${9}\" \"${10}\" \"${11}\" \"${11}\"");
}

TEST(shell_form, numbers_of_jobs_and_slots_may_be_calculated_with)
{
    static const struct expected e[] = {
        {"f $(({%} - 1)) {#}", "f $((${1} - 1)) \"${2}\""},
        {"f \"$(({#} + \"{#}\"))\"", "f \"$((${1} + \"${1}\"))\""},
        {"(({#} < 3)) && f", "((${1} < 3)) && f"},
        {"a[{#}]=1; f {}", "a[\"${1}\"]=1; f \"${2}\""},
        {"[[ {#} -eq 1 ]]", "[[ \"${1}\" -eq 1 ]]"},
    };
    check_scripts(e, COUNT(e));
}

/* ---- several items ------------------------------------------------------- */

TEST(shell_form, several_items_are_words_or_joined)
{
    check_script("f {}", 3, "f \"$@\"");
    check_script("f {} {.}", 2, "f \"${1}\" \"${2}\" \"${3}\" \"${4}\"");
    check_script("f \"{}\"", 3, "f \"${1}\"");
    check_script("f {} '{}' {#}", 2,
                 "f \"${2}\" \"${3}\" ''\"${1}\"'' \"${4}\"");
    check_script("for i in {}; do f; done", 2, "for i in \"$@\"; do f; done");
    check_script("f {} {#}", 0, "f  \"${1}\"");
    check_script("f <{} {}", 2, "f <\"${1}\" \"${2}\" \"${3}\"");
}

/* A second word there would be a command or no longer a shell's grammar. */
TEST(shell_form, several_items_are_joined_where_one_word_is_wanted)
{
    check_script("v={} f", 2, "v=\"${1}\" f");
    check_script("f a{}", 2, "f a\"${1}\"");
    check_script("f {}{}", 2, "f \"${1}\"\"${1}\"");
    check_script("> {} f", 2, "> \"${1}\" f");
    check_script(">|{} f", 2, ">|\"${1}\" f");
    check_script("f <<<{}", 2, "f <<<\"${1}\"");
    check_script("case {} in a) f;; esac", 2, "case \"${1}\" in a) f;; esac");
    check_script("case a in {}) f;; esac", 2, "case a in \"${1}\") f;; esac");
}

/* ---- appending ----------------------------------------------------------- */

TEST(shell_form, items_are_appended_to_the_last_command)
{
    check_script("f -x", 1, "f -x \"${1}\"");
    check_script("f -x", 2, "f -x \"$@\"");
    check_script("f | g", 1, "f | g \"${1}\"");
    check_script("A=1 f", 1, "A=1 f \"${1}\"");
    check_script("cd x; f \"$HOME\"", 1, "cd x; f \"$HOME\" \"${1}\"");
    check_script("~/f", 1, "~/f \"${1}\"");
    check_script("awk '{print $1}'", 1, "awk '{print $1}' \"${1}\"");
}

TEST(shell_form, items_are_never_appended_as_a_command_of_their_own)
{
    static const char *const scripts[] = {"f;",
                                          "f &",
                                          "f |",
                                          "f &&",
                                          "f\n",
                                          "A=1 B=2",
                                          "if f\nthen",
                                          "f # x",
                                          "(f x)",
                                          "{ f x; }",
                                          "f 'x",
                                          "f \"x y",
                                          "f $(g",
                                          "f x >",
                                          ">x ",
                                          "f <<E\nE",
                                          "! ",
                                          "f \\",
                                          "f() { g; }",
                                          "f x; fi",
                                          "for i in 1; do f; done",
                                          "case x in a) f;; esac"};
    for (size_t i = 0; i < COUNT(scripts); i++)
        check_refused(scripts[i], "the items", "write {} where");
}

/* ---- refusals ------------------------------------------------------------ */

TEST(shell_form, arithmetic_is_refused)
{
    static const char *const scripts[] = {
        "f $(({}))",
        "f \"$((1 + {}))\"",
        "f $((\"{}\"))",
        "f $(('{}'))",
        "f $(( (1) + {} ))",
        "(( {} > 1 )) && f",
        "for ((i = 0; i < {}; i++)); do f; done",
        "f $[{}]",
        "f \"$[ 1 + {} ]\"",
        "f $((${x} + {}))",
        "((f {}) | g)",
        "f $(($(g {}) + 1))",
        "f ${x:$(g {})}",
        "f ${x:1:$(g {})}",
        NULL};
    check_all_refused(scripts, "arithmetic");
    check_refused("f $(({#} + {2.}))", "{2.}", "arithmetic");
    check_refused("f $(('{#}'))", "{#}", "arithmetic");
    check_better("f $(({} * 2))", "n=$(expr {} + 0); f $(($n * 2))");
}

TEST(shell_form, tests_and_subscripts_that_evaluate_are_refused)
{
    static const char *const tests[] = {"[[ {} -eq 1 ]]",
                                        "if [[ -v \"{}\" ]]; then f; fi",
                                        "! [[ a && '{}' -lt 2 ]] || f",
                                        "f; [[ (a) || {} -eq 1 ]]",
                                        "for i do [[ {} -eq 1 ]]; done",
                                        "time -p [[ {} -eq 1 ]]",
                                        NULL};
    static const char *const subscripts[] = {
        "a[{}]=x",      "a[\"{}\"]=x",    "a['{}']+=x", "a[ {} ]=x",
        "a=([{}]=x)",   "f; a[1+{}]=x",   "a[b[{}]]=x", "a=( [\"{}\"]=x )",
        "a[$(f {})]=x", "x[{}+y[0]+2]=5", "x[1|{}]=5",  "x=(\n[{}]=1\n)",
        "2>f a[{}]=1",  "a\\\n[{}]=1",    "f $x[{}]",   "f \"$x[{}]\"",
        "f x[{}]",      "exec {x[{}]}<f", NULL};
    check_all_refused(tests, "[[...]]");
    check_all_refused(subscripts, "subscript");
    check_script("echo x\\[{}] [{}]", 1, "echo x\\[\"${1}\"] [\"${1}\"]");
    check_script("echo x:[{}]=1", 1, "echo x:[\"${1}\"]=1");
    check_script("echo \"a[{}]=x\"", 1, "echo \"a[${1}]=x\"");
    check_script("[ {} = x ] && a=1", 1, "[ \"${1}\" = x ] && a=1");
    check_script("[[ x ]]; f {}", 1, "[[ x ]]; f \"${1}\"");
}

TEST(shell_form, expansions_are_refused)
{
    static const char *const braces[] = {"f ${}",
                                         "f \"${}\"",
                                         "f ${x:-{}}",
                                         "f \"${x:-{}}\"",
                                         "f ${x#\"{}\"}",
                                         "f ${x#'{}'}",
                                         "f \"${x:-\"{}\"}\"",
                                         "f ${x:-${y:-{}}}",
                                         NULL};
    check_all_refused(braces, "${...}");
    check_better("f ${1}", "item={1}; f $item");
    check_better("f ${x:-{}}", "item={}; f ${x:-$item}");
    check_refused("f ${#}", "{#}", "${...}");
}

TEST(shell_form, quotes_that_cannot_hold_a_value_are_refused)
{
    static const char *const backquotes[] = {"f `g \\`h {}\\``",
                                             "f `g \\$x {}`", NULL};
    static const char *const ansi[] = {"f $'{}'", "f $'\\'{}'", "f $'a\\{}'",
                                       NULL};
    static const char *const backslashes[] = {"f \\{}", "f \"\\{}\"",
                                              "f \\\\\\{}", NULL};
    check_all_refused(backquotes, "$(...)");
    check_all_refused(ansi, "$'...'");
    check_better("f $'a{}b'", "f $'a'{}$'b'");
    check_better("f \\{}", "f \\\\{}");
    check_all_refused(backslashes, "backslash");
}

TEST(shell_form, here_documents_are_refused)
{
    static const char *const bodies[] = {"f <<E\n{}\nE\n",
                                         "f <<'E'\na {}\nE",
                                         "f <<-Q\n\t{}\n\tQ\n",
                                         "f <<E\nE \n{}\nE\n",
                                         "f \"$(g <<E\n{}\nE\n)\"",
                                         "f <<A <<B\nA\n{}\nB\n",
                                         "f <<E\na\\\nE\n{}\nE\n",
                                         "f <<Q\n\tQ\n{}\nQ\n",
                                         NULL};
    static const char *const ends[] = {"f <<{}\n{}\n", "f <<-E{}\n",
                                       "f << '{}'\n", "f <<\\{}\n", NULL};
    check_all_refused(bodies, "here-document");
    check_better("f <<E\na {}\nE", "item={}; f <<E\na $item\nE");
    check_all_refused(ends, "ends a here-document");
    check_refused("f \"$(g <<E)\" {}\nE\n", "{}", "close the $(...)");
}

TEST(shell_form, functions_are_refused)
{
    static const char *const scripts[] = {"f() { g {}; }; f",
                                          "f () (g \"{}\"); f",
                                          "function f { g {}; }; f",
                                          "f()\n{\n g $(h {})\n}",
                                          "f() if g {}; then h; fi",
                                          "f (\t) { g {}; }; f",
                                          "f ( \\\n) { g {}; }; f",
                                          "{}() { g; }",
                                          NULL};
    check_all_refused(scripts, "function");
    check_better("f() { g {}; }; f", "item={}; f() { g \"$item\"; }; f");
    check_script("f() { g \"$1\"; }; f {}", 1, "f() { g \"$1\"; }; f \"${1}\"");
    check_script("a=(); f {}", 1, "a=(); f \"${1}\"");
}

/* ---- one word: which form ------------------------------------------------ */

TEST(shell_form, one_word_is_for_a_shell_by_its_characters)
{
    static const char *const shell[] = {
        "FOO=1 cmd", "a b", "a\tb", "a\nb", "a|b", "a&",       "a;b",
        "a<b",       "a>b", "(a)",  "$a",   "`a`", "\\a",      "\"a\"",
        "'a'",       "a*",  "a?",   "[ab]", "~/a", "a{}b{.}|", NULL};
    static const char *const exec[] = {
        "{}",  "./a-b_c", "{.}",  "./my%prog", "a=b", "a#", "#a", "a~",  "a]",
        "{#}", "{%}",     "{/}x", "{a,b}",     "a!",  "a^", "",   "{}~", NULL};
    for (size_t i = 0; shell[i] != NULL; i++)
        CHECK(shell_form_wanted(span_of(shell[i]), true));
    for (size_t i = 0; exec[i] != NULL; i++) {
        char *error = NULL;
        struct template *t = make(exec[i], &error);
        const char *program = t == NULL ? "sh" : template_program(t);
        if (program != NULL && strcmp(program, "sh") == 0)
            FAIL("%s is taken for shell text", exec[i]);
        template_free(t);
    }
}
