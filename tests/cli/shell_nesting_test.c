/* SPDX-License-Identifier: MIT */
/* shell_nesting_test.c - scripts nobody would write: quotes and substitutions
 * in each other at random, with all that may confuse a reader of shell text.
 * Real shells must see the value where the scanner said it would be.
 */
#include "shell_kit.h"

enum { SCRIPTS = 60, DEPTH = 3 };

struct maker {
    struct text script;
    struct text want; /* what it prints */
    struct span value;
    uint64_t random;
};

static void add_word(struct maker *m, int depth);

static size_t draw(struct maker *m, size_t n)
{
    return (size_t)(test_random(&m->random) % n);
}

static void add(struct maker *m, const char *script, const char *want)
{
    text_add_str(&m->script, script);
    text_add_str(&m->want, want);
}

static void add_hole(struct maker *m)
{
    text_add_str(&m->script, "{}");
    text_add(&m->want, m->value.at, m->value.n);
}

/* A command inside $(...), among things that look like its end. An x behind
 * what is printed keeps newlines from being cut off. */
static void add_command(struct maker *m, int depth)
{
    static const char *const around[][2] = {
        {"", ""},
        {" ( ", " ) "},
        {"{ ", "; }"},
        {"# it's \"(\n", "\n"},
        {"case a in (b) : ')';; a) ", ";; esac"},
        {"case a in\n[\\)\"]\"]) ;; a|b)\n", "\nesac"},
        {"if :; then ", "; fi"},
        {"cat <<'E' >/dev/null\n)'\"\nE\n", ""},
        {": <<-Q; ", "\n$x)'\n\tQ\n"},
        {": ${x:-\")}\"} $((1 + (2)));", " # )"},
        {": `echo \")\" \\'`; ", ""},
        {": {} \"'{}\" '\"{}' \\'{}\\\";", ";:"},
        {"for case in esac; do ", "; done"},
        {"! : 2>/dev/null|| ", "&&:"},
        {": \"${x:-)}$(: \")\" {})\"; ", ""},
    };
    size_t i = draw(m, COUNT(around));
    text_add_str(&m->script, "$(");
    text_add_str(&m->script, around[i][0]);
    text_add_str(&m->script, "printf '%sx' ");
    add_word(m, depth);
    text_add_str(&m->want, "x");
    text_add_str(&m->script, around[i][1]);
    text_add_str(&m->script, strcmp(around[i][1], " # )") == 0 ? "\n)" : ")");
}

static void add_in_double(struct maker *m, int depth)
{
    switch (draw(m, depth > 0 ? 10 : 5)) {
    case 0:
        add(m, " it's # ", " it's # ");
        break;
    case 1:
        add(m, "\\\"\\\\\\$\\`", "\"\\$`");
        break;
    case 2:
        add(m, "$x`:`${x:-b)}", "b)");
        break;
    case 3:
    case 4:
        add_hole(m);
        break;
    default:
        add_command(m, depth - 1);
    }
}

static void add_in_word(struct maker *m, int depth)
{
    switch (draw(m, 6)) {
    case 0:
        add(m, "\\'\\\"\\\\\\$\\(\\ #", "'\"\\$( #");
        break;
    case 1:
        add(m, "'\\'", "\\");
        break;
    case 2:
        text_add_str(&m->script, "'\"$(");
        text_add_str(&m->want, "\"$(");
        add_hole(m);
        add(m, "`\\'", "`\\");
        break;
    case 3:
        add_hole(m);
        break;
    default:
        text_add_str(&m->script, "\"");
        for (size_t n = draw(m, 4); n > 0; n--)
            add_in_double(m, depth);
        text_add_str(&m->script, "\"");
    }
}

static void add_word(struct maker *m, int depth)
{
    add(m, "w", "w");
    for (size_t n = 1 + draw(m, 3); n > 0; n--)
        add_in_word(m, depth);
}

/* What is shown for pasting prints the same. */
static void check_shown(struct template *t, const struct maker *m)
{
    struct fields f = {.items = &m->value, .n_items = 1};
    struct text shown = {0};
    struct text out = {0};
    template_show(t, &f, &shown);
    char *argv[] = {shell_path, "-c", shown.at, NULL};
    int status = run(argv, &out);
    if (status != 0 || !is_folder_empty() || out.n != m->want.n ||
        memcmp(out.at, m->want.at, out.n) != 0)
        FAIL("%s is shown as %s, which does something else", m->script.at,
             shown.at);
    text_free(&shown);
    text_free(&out);
}

static void check_nestings(const char *shell)
{
    struct maker m = {.random = test_seed()};
    enter_folder(shell);
    for (size_t i = 0; i < SCRIPTS; i++) {
        m.value = span_of(values[draw(&m, COUNT(values))]);
        text_clear(&m.script);
        text_clear(&m.want);
        text_add_str(&m.script, "printf '%s' ");
        add_word(&m, DEPTH);
        text_add_str(&m.script, "; : {}");
        struct template *t = make(m.script.at);
        check_value(t, m.script.at, m.value, text_span(&m.want));
        check_shown(t, &m);
        template_free(t);
    }
    text_free(&m.script);
    text_free(&m.want);
    leave_folder();
}

TEST(shell_nesting, dash_sees_the_value)
{
    check_nestings("dash");
}

TEST(shell_nesting, bash_sees_the_value)
{
    check_nestings("bash");
}

TEST(shell_nesting, busybox_sees_the_value)
{
    check_nestings("busybox");
}
