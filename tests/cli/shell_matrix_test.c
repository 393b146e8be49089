/* SPDX-License-Identifier: MIT */
/* shell_matrix_test.c - input is never shell text: hostile values in scripts of
 * all kinds, run by real shells, arrive byte for byte and do nothing else.
 */
#include "shell_kit.h"

enum { BIG = 100000 };

/* In what a script is to print: the value, its parts, and a NUL. */
#define V "\1"
#define V_STEM "\2"
#define V_BASE "\3"
#define Z "\4"

struct script {
    const char *text;
    const char *want;
};

#define P "printf '%s\\0' "

static const struct script scripts[] = {
    {P "{}", V Z},
    {P "\"{}\"", V Z},
    {P "'{}'", V Z},
    {P "a{}b", "a" V "b" Z},
    {P "\"a {} $HOME\"'{} \"$b`'", "a " V " /" V " \"$b`" Z},
    {P "{} '{}' \"{}\" {}", V Z V Z V Z V Z},
    {"x=$(printf '%sx' {}); " P "\"$x\"", V "x" Z},
    {P "\"$(printf '%sx' {})\"", V "x" Z},
    {P "\"$(printf '%sx' \"{}\")\"", V "x" Z},
    {P "\"$(printf '%sx' '{}')\"", V "x" Z},
    {P "\"<$(printf '%sx' \"$(printf '%sx' \"$(printf '%sx' {})\")\")>\"",
     "<" V "xxx>" Z},
    {P "{.} \"{/}\" '{1.}'", V_STEM Z V_BASE Z V_STEM Z},
    {P "{} | cat", V Z},
    {P "\"`printf '%sx' {}`\"", V "x" Z},
    {"x=`printf '%sx' \"{}\"`; " P "\"$x\"", V "x" Z},
    {P "\"<`printf '%sx' '{}'`>\" \"{}\"", "<" V "x>" Z V Z},
    {": '{}' | { " P "{}; } && (" P "\"{}\")", V Z V Z},
    {"for i in 1 {} \"{}\"; do " P "\"$i\"; done", "1" Z V Z V Z},
    {"case {} in {}) " P "same;; *) " P "other;; esac", "same" Z},
    {"case x{} in x\"{}\") " P "same;; esac", "same" Z},
    {P "\"$(case x in (y) :;; x) printf '%sx' '{}';; esac)\"", V "x" Z},
    {"if [ x{} = \"x{}\" ]; then " P "{}; fi", V Z},
    {"v={} w='{}'; " P "\"$v\" \"$w\"", V Z V Z},
    {"v={} env sh -c 'printf \"%s\\0\" \"$v\"'", V Z},
    {"f() { " P "\"$2\"; }; f a {}", V Z},
    {"# it's {}\n" P "{} # \"{}", V Z},
    {"cat <<'E' >/dev/null; " P "{}\nit's \"$(\nE\n" P "'{}'", V Z V Z},
    {P "{11} {10} {1}", V Z "f10" Z V Z},
    {P "{#} $(({#} + {%})) \"{%}\"", "7" Z "10" Z "3" Z},
    {P "{{}} {{1}} '{x}' {}", "{}" Z "{1}" Z "{x}" Z V Z},
    {"echo one two | awk '{print $1}'; " P "{}", "one\n" V Z},
    {"set -f; set -u; IFS=a1; " P "{} \"{}\"", V Z V Z},
    {"printf '%s' {} | { IFS= read -r x || :; }; " P "{}", V Z},
    {P "x", "x" Z V Z}, /* appended */
};

static void add_wanted(struct text *into, const char *want, struct span value)
{
    for (; *want != '\0'; want++) {
        struct span s = {want, 1};
        if (*want == V[0])
            s = value;
        else if (*want == V_STEM[0])
            s = template_part(value, ".");
        else if (*want == V_BASE[0])
            s = template_part(value, "/");
        else if (*want == Z[0])
            s = (struct span){"", 1};
        text_add(into, s.at, s.n);
    }
}

static void check_script(const struct script *s)
{
    static char big[BIG];
    static char bytes[255];
    struct text want = {0};
    struct template *t = make(s->text);
    for (size_t i = 0; i < COUNT(values) + 2; i++) {
        struct span value = {big, sizeof(big)};
        if (i < COUNT(values))
            value = span_of(values[i]);
        if (i == COUNT(values))
            value = (struct span){bytes, sizeof(bytes)};
        for (size_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (char)(k + 1);
        for (size_t k = 0; i > COUNT(values) && k < sizeof(big); k++)
            big[k] = "a'\"$(`\\ \n*"[k % 10];
        text_clear(&want);
        add_wanted(&want, s->want, value);
        check_value(t, s->text, value, text_span(&want));
    }
    text_free(&want);
    template_free(t);
}

/* All of them in one job, as words and joined, once each. */
static void check_many(void)
{
    struct template *t = make(P "{} - \"{}\" '{2}'");
    struct span items[COUNT(values)];
    struct fields f = {.items = items, .n_items = COUNT(values)};
    struct command c = {0};
    struct text want = {0};
    struct text out = {0};
    for (size_t i = 0; i < COUNT(values); i++) {
        items[i] = span_of(values[i]);
        text_add(&want, values[i], items[i].n + 1);
    }
    text_add(&want, "-", 2);
    for (size_t i = 0; i < COUNT(values); i++)
        text_addf(&want, "%s%s", i > 0 ? " " : "", values[i]);
    text_add(&want, "", 1);
    text_add(&want, values[1], items[1].n + 1);
    f.fields = items;
    f.n_fields = COUNT(values);
    (void)template_expand(t, &f, &c);
    CHECK_UINT_EQ(c.argc, 4 + 1 + COUNT(values) + 1);
    CHECK_INT_EQ(run(c.argv, &out), 0);
    CHECK_UINT_EQ(out.n, want.n);
    CHECK_MEM_EQ(out.at, want.at, want.n);
    text_free(&want);
    text_free(&out);
    command_free(&c);
    template_free(t);
}

static void check_matrix(const char *shell)
{
    enter_folder(shell);
    for (size_t i = 0; i < COUNT(scripts); i++)
        check_script(&scripts[i]);
    check_many();
    leave_folder();
}

TEST(shell_matrix, dash_runs_no_value)
{
    check_matrix("dash");
}

TEST(shell_matrix, bash_runs_no_value)
{
    check_matrix("bash");
}

TEST(shell_matrix, busybox_runs_no_value)
{
    check_matrix("busybox");
}
