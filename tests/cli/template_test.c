/* SPDX-License-Identifier: MIT */
/* template_test.c - placeholders, the exec form, what is shown and hashed. */
#include "harness.h"
#include "template.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

/* Up to eight of each; the fields are the items unless there are others. */
struct job {
    const char *words[8];
    const char *items[8];
    const char *fields[8];
    const char *names[8];
    const char *replace;
    bool exec;
    uint64_t seq; /* 0: 7 */
};

struct made {
    struct template *t;
    struct span items[8];
    struct span fields[8];
    struct fields f;
};

static size_t to_spans(struct span into[8], const char *const from[8])
{
    size_t n = 0;
    for (; n < 8 && from[n] != NULL; n++)
        into[n] = span_of(from[n]);
    return n;
}

static struct template *try_make(const struct job *j, char **ret_error)
{
    struct span names[8];
    size_t n = 0;
    while (n < 8 && j->words[n] != NULL)
        n++;
    struct template_opts o = {.replace = j->replace, .exec = j->exec};
    o.names = names;
    o.n_names = to_spans(names, j->names);
    return template_new((char *const *)(uintptr_t)j->words, n, &o, ret_error);
}

static void make(struct made *m, const struct job *j)
{
    char *error = NULL;
    *m = (struct made){0};
    m->t = try_make(j, &error);
    if (m->t == NULL)
        FAIL("%s", error);
    m->f.items = m->items;
    m->f.n_items = to_spans(m->items, j->items);
    m->f.n_fields = to_spans(m->fields, j->fields);
    m->f.fields = m->fields;
    if (j->fields[0] == NULL) {
        m->f.fields = m->items;
        m->f.n_fields = m->f.n_items;
    }
    m->f.seq = j->seq > 0 ? j->seq : 7;
    m->f.slot = 3;
}

/* The words of the job, joined by '|'. */
static void check_job(struct job j, const char *want)
{
    struct made m;
    struct command c = {0};
    struct text got = {0};
    size_t bytes = 0;
    make(&m, &j);
    for (int twice = 0; twice < 2; twice++) {
        (void)template_expand(m.t, &m.f, &c);
        text_clear(&got);
        bytes = c.argc * sizeof(char *);
        for (size_t i = 0; i < c.argc; i++) {
            text_addf(&got, "%s%s", i > 0 ? "|" : "", c.argv[i]);
            bytes += strlen(c.argv[i]) + 1;
        }
        CHECK_PTR_EQ(c.argv[c.argc], NULL);
        CHECK_STR_EQ(got.at, want);
        CHECK_UINT_EQ(c.bytes, bytes);
    }
    text_free(&got);
    command_free(&c);
    template_free(m.t);
}
#define CHECK_JOB(want, ...) check_job((struct job){__VA_ARGS__}, want)

static void check_shown(struct job j, const char *want)
{
    struct made m;
    struct text got = {0};
    make(&m, &j);
    template_show(m.t, &m.f, &got);
    CHECK_STR_EQ(got.at, want);
    text_free(&got);
    template_free(m.t);
}
#define CHECK_SHOWN(want, ...) check_shown((struct job){__VA_ARGS__}, want)

static void get_hash(struct job j, unsigned char hash[16])
{
    struct made m;
    make(&m, &j);
    template_hash(m.t, &m.f, hash);
    template_free(m.t);
}

static bool is_same_job(struct job a, struct job b)
{
    unsigned char hashes[2][16];
    get_hash(a, hashes[0]);
    get_hash(b, hashes[1]);
    return memcmp(hashes[0], hashes[1], 16) == 0;
}

static void check_refused(struct job j, const char *want)
{
    char *error = NULL;
    struct template *t = try_make(&j, &error);
    CHECK_PTR_EQ(t, NULL);
    if (strstr(error, want) == NULL)
        FAIL("%s, want %s", error, want);
    free(error);
}

/* ---- the exec form ------------------------------------------------------- */

TEST(template, items_are_appended_without_a_placeholder)
{
    CHECK_JOB("echo|a b", .words = {"echo"}, .items = {"a b"});
    CHECK_JOB("echo|-n|a|b", .words = {"echo", "-n"}, .items = {"a", "b"});
    CHECK_JOB("a|b", .items = {"a", "b"});
    CHECK_JOB("echo|7", .words = {"echo", "{#}"}, .items = {"a"});
}

TEST(template, a_word_of_its_own_becomes_one_argument_per_item)
{
    CHECK_JOB("f|a|b|-", .words = {"f", "{}", "-"}, .items = {"a", "b"});
    CHECK_JOB("f|x.c|a|b", .words = {"f", "x.c", "{.}"}, .items = {"a.c", "b"});
    CHECK_JOB("f|-", .words = {"f", "{}", "-"});
    CHECK_JOB("", .words = {"{}"});
}

TEST(template, several_items_in_a_word_are_joined)
{
    CHECK_JOB("f|=a b=", .words = {"f", "={}="}, .items = {"a", "b"});
    CHECK_JOB("f|a.c ba b", .words = {"f", "{}{.}"}, .items = {"a.c", "b"});
}

TEST(template, words_are_not_shell_text)
{
    CHECK_JOB("f|$(x)|a;b|$(y)", .words = {"f", "$(x)", "a;b"},
              .items = {"$(y)"});
    CHECK_JOB("my prog|a", .words = {"my prog"}, .items = {"a"}, .exec = true);
}

TEST(template, numbers_and_fields_are_put_in_place)
{
    CHECK_JOB("f|7-3", .words = {"f", "{#}-{%}"}, .items = {"a"});
    CHECK_JOB("f|18446744073709551615", .words = {"f", "{#}"}, .seq = ~0ULL);
    CHECK_JOB("f|y|x", .words = {"f", "{2}", "{1}"}, .items = {"x", "y"});
    CHECK_JOB("f|y|x", .words = {"f", "{02}", "{1}"}, .items = {"x", "y"});
    CHECK_JOB("f|b|d|.|e", .words = {"f", "{1/.}", "{2/}", "{2//}", "{1//}"},
              .items = {"a"}, .fields = {"e/b.c", "d"});
}

TEST(template, a_field_that_is_missing_is_empty)
{
    CHECK_JOB("f|[]||[]", .words = {"f", "[{3}]", "{9}", "[{2//}]"},
              .items = {"a"});
}

TEST(template, bytes_behind_a_nul_make_no_further_argument)
{
    struct made m;
    struct command c = {0};
    make(&m, &(struct job){.words = {"f", "{}", "--", "{}x"}, .items = {"a"}});
    m.items[0] = (struct span){"a\0b", 3};
    (void)template_expand(m.t, &m.f, &c);
    CHECK_UINT_EQ(c.argc, 4);
    CHECK_STR_EQ(c.argv[1], "a");
    CHECK_STR_EQ(c.argv[2], "--");
    CHECK_STR_EQ(c.argv[3], "ax");
    command_free(&c);
    template_free(m.t);
}

TEST(template, memory_is_used_again_for_longer_and_shorter_jobs)
{
    static char big[100001];
    struct made m;
    struct command c = {0};
    memset(big, 'x', sizeof(big) - 1);
    make(&m, &(struct job){.words = {"f {} '{}'"}, .items = {"a"}});
    for (size_t n = 0; n <= 8; n++) {
        m.f.n_items = n;
        for (size_t i = 0; i < n; i++)
            m.items[i] = span_of(n % 2 == 0 ? big : "y");
        (void)template_expand(m.t, &m.f, &c);
        CHECK_UINT_EQ(c.argc, n == 1 ? 5 : 5 + n);
        CHECK_PTR_EQ(c.argv[c.argc], NULL);
        for (size_t i = 5; n > 1 && i < c.argc; i++)
            CHECK_STR_EQ(c.argv[i], n % 2 == 0 ? big : "y");
    }
    command_free(&c);
    template_free(m.t);
}

/* ---- the shell form ------------------------------------------------------ */

TEST(template, a_value_used_twice_is_passed_once)
{
    CHECK_JOB("sh|-c|f \"${1}\" \"${1}\" ''\"${1}\"''|sh|a",
              .words = {"f {} \"{}\" '{}'"}, .items = {"a"});
    CHECK_JOB("sh|-c|f \"${1}\" \"${2}\" \"${1}\" \"${3}\"|sh|b|7|a",
              .words = {"f {2} {#} \"{2}\" {1}"}, .items = {"a", "b"});
    CHECK_JOB("sh|-c|f \"${1}\" \"${2}\" \"${1}\"|sh|a|b.c",
              .words = {"f {1.} {2} \"{1.}\""}, .items = {"a.b", "b.c"});
}

TEST(template, several_items_are_passed_listed_and_joined)
{
    CHECK_JOB("sh|-c|f \"${2}\" \"${3}\" \"-${1}\"|sh|a b c|a|b c",
              .words = {"f {} \"-{}\""}, .items = {"a", "b c"});
    CHECK_JOB("sh|-c|f \"$@\"|sh|a|b", .words = {"f {}"}, .items = {"a", "b"});
    CHECK_JOB("sh|-c|f \"$@\"|sh", .words = {"f {}"});
}

TEST(template, the_shell_may_be_named)
{
    char *error = NULL;
    char shell[] = "/bin/bash";
    char *words[] = {"echo {}"};
    struct template_opts o = {.shell = shell};
    struct template *t = template_new(words, 1, &o, &error);
    shell[0] = 'x';
    CHECK_STR_EQ(template_program(t), "/bin/bash");
    template_free(t);
}

TEST(template, several_words_are_never_the_shell_form)
{
    CHECK_JOB("echo|a; b {}|x", .words = {"echo", "a; b {{}}"}, .items = {"x"});
    CHECK_JOB("a b|x", .words = {"a b", "{}"}, .items = {"x"});
}

/* ---- braces -------------------------------------------------------------- */

TEST(template, unknown_braces_stay)
{
    CHECK_JOB("awk|{print $1}|x", .words = {"awk", "{print $1}"},
              .items = {"x"});
    CHECK_JOB("awk|{if (a) {b}}|x", .words = {"awk", "{if (a) {b}}"},
              .items = {"x"});
    CHECK_JOB("f|{{.Names}}|{a,b}|{|}|}}|{{|x",
              .words = {"f", "{{.Names}}", "{a,b}", "{", "}", "}}", "{{"},
              .items = {"x"});
    CHECK_JOB("f|{\"a\":{\"b\":x}}", .words = {"f", "{\"a\":{\"b\":{}}}"},
              .items = {"x"});
    CHECK_JOB("f|{1x}|{-1}|{ }|{...}|{///}|{1,2}|x",
              .words = {"f", "{1x}", "{-1}", "{ }", "{...}", "{///}", "{1,2}"},
              .items = {"x"});
    CHECK_JOB("sh|-c|awk '{print $1}' \"${1}\"|sh|x",
              .words = {"awk '{print $1}' {}"}, .items = {"x"});
}

TEST(template, doubled_braces_are_literal)
{
    CHECK_JOB("f|{}|x", .words = {"f", "{{}}"}, .items = {"x"});
    CHECK_JOB("f|{.}{1/}{#}|x", .words = {"f", "{{.}}{{1/}}{{#}}"},
              .items = {"x"});
    CHECK_JOB("f|{x}", .words = {"f", "{{{}}}"}, .items = {"x"});
    CHECK_JOB("f|{{}}|x", .words = {"f", "{{{{}}}}"}, .items = {"x"});
    CHECK_JOB("f|{{x}}", .words = {"f", "{{{{{}}}}}"}, .items = {"x"});
    CHECK_JOB("f|{x|x}|{{{}", .words = {"f", "{{}", "{}}", "{{{{}}"},
              .items = {"x"}, .exec = true, .replace = "{}");
    CHECK_JOB("sh|-c|f {} \"${1}\"|sh|x", .words = {"f {{}} {}"},
              .items = {"x"});
}

TEST(template, option_I_renames_the_item)
{
    CHECK_JOB("f|ax{}b|x|{{}}", .words = {"f", "a%{}b", "%", "{{}}"},
              .items = {"x"}, .replace = "%");
    CHECK_JOB("f|x.c|x|7", .words = {"f", "_.c", "{1}", "{#}"}, .items = {"x"},
              .replace = "_");
    CHECK_JOB("f|{x}|{}", .words = {"f", "{FILE}", "{}"}, .items = {"x"},
              .replace = "FILE");
    CHECK_JOB("sh|-c|f \"${1}\" ''\"${1}\"''|sh|x", .words = {"f @@ '@@'"},
              .items = {"x"}, .replace = "@@");
    check_refused((struct job){.words = {"f $@ x"}, .replace = "@"},
                  "@ cannot");
    CHECK_JOB("f|{}|x", .words = {"f", "{{}}", "{}"}, .items = {"x"},
              .replace = "{}");
}

TEST(template, header_names_are_fields)
{
    CHECK_JOB(
        "f|x|y.c|y|{none}|{age.}",
        .words = {"f", "{name}", "{file}", "{file.}", "{none}", "{{age.}}"},
        .items = {"z"}, .fields = {"x", "y.c", "3"},
        .names = {"name", "file", "age"});
    CHECK_JOB("f|1|2|1", .words = {"f", "{a}", "{a.}", "{a/}"}, .items = {"z"},
              .fields = {"1", "2"}, .names = {"a", "a."});
    CHECK_JOB("f|b|b", .words = {"f", "{1}", "{2}"}, .items = {"z"},
              .fields = {"a", "b"}, .names = {"x", "1"});
    CHECK_JOB("f|z|7|3", .words = {"f", "{.}", "{#}", "{%}"}, .items = {"z.c"},
              .fields = {"a", "b", "c", "d"}, .names = {".", "#", "%", ""});
    CHECK_JOB("sh|-c|f \"${1}\"|sh|y", .words = {"f {my col}"}, .items = {"z"},
              .fields = {"x", "y"}, .names = {"a", "my col"});
    check_refused((struct job){.words = {"f ${HOME}"}, .names = {"HOME"}},
                  "{HOME} cannot stand in ${...}");
}

TEST(template, field_0_is_refused)
{
    check_refused((struct job){.words = {"f", "a{0}"}},
                  "{0}: fields are count");
    check_refused((struct job){.words = {"f {00.}"}},
                  "{00.}: fields are count");
    CHECK_JOB("f|{0}|x", .words = {"f", "{{0}}"}, .items = {"x"});
}

TEST(template, shell_text_of_an_exec_form_gets_its_values_as_parameters)
{
    CHECK_JOB("sh|-c|f \"${1}\"|sh|$(x)", .words = {"sh", "-c", "f {}"},
              .items = {"$(x)"});
    CHECK_JOB("/bin/bash|-c|f{ ''\"${1}\"''|sh|a b",
              .words = {"/bin/bash", "-c", "f{ '{}'"}, .items = {"a b"});
    CHECK_JOB("env|A=1|/bin/bash|-eu|-c|f 'x1'|x",
              .words = {"env", "A=1", "/bin/bash", "-eu", "-c", "f '{1}'", "x"},
              .items = {"x1"});
    CHECK_JOB("sh|-c|f \"$1\"|sh|x",
              .words = {"sh", "-c", "f \"$1\"", "sh", "{}"}, .items = {"x"});
    CHECK_JOB("sh|-c|x", .words = {"sh", "-c"}, .items = {"x"});
    CHECK_JOB("sh|-c|x", .words = {"sh", "-c", "{}"}, .items = {"x"});
    CHECK_JOB("gcc|-c|x.c", .words = {"gcc", "-c", "{}.c"}, .items = {"x"});
}

/* ---- what is known before the first job ---------------------------------- */

TEST(template, the_program_is_known_unless_it_is_an_item)
{
    static const struct {
        const char *words[3];
        const char *program;
    } e[] = {
        {{"echo", "{}"}, "echo"},
        {{"{}"}, NULL},
        {{"./{}.sh", "x"}, NULL},
        {{"./my%prog"}, "./my%prog"},
        {{"a{{}}b", "{}"}, "a{}b"},
        {{"echo {}"}, "sh"},
        {{NULL}, NULL},
        {{"", "{}"}, ""},
    };
    for (size_t i = 0; i < COUNT(e); i++) {
        struct made m;
        make(&m, &(struct job){.words = {e[i].words[0], e[i].words[1]}});
        if (e[i].program == NULL)
            CHECK_PTR_EQ(template_program(m.t), NULL);
        else
            CHECK_STR_EQ(template_program(m.t), e[i].program);
        template_free(m.t);
    }
}

TEST(template, a_field_that_nobody_has_is_empty_however_high)
{
    CHECK_JOB("f||", .words = {"f", "{12.}", "{99999999999999999999999999999}"},
              .items = {"x"});
    template_free(NULL);
}

TEST(template, parts_of_a_path_are_cut)
{
    static const char *const e[][6] = {
        /* value, {.}, {/}, {//}, {/.} */
        {"/a/b.c", "/a/b", "b.c", "/a", "b"},
        {"a.tar.gz", "a.tar", "a.tar.gz", ".", "a.tar"},
        {"a.d/b", "a.d/b", "b", "a.d", "b"},
        {"a/b/", "a/b/", "b", "a", "b"},
        {"a.d/", "a.d/", "a.d", ".", "a"},
        {"a//b", "a//b", "b", "a", "b"},
        {"/a", "/a", "a", "/", "a"},
        {"//a", "//a", "a", "/", "a"},
        {"/", "/", "/", "/", "/"},
        {"///", "///", "/", "/", "/"},
        {"", "", "", ".", ""},
        {".profile", ".profile", ".profile", ".", ".profile"},
        {"x/.a.b", "x/.a", ".a.b", "x", ".a"},
        {"..", "..", "..", ".", ".."},
        {"a.", "a", "a.", ".", "a"},
        {"a\n.b\n", "a\n", "a\n.b\n", ".", "a\n"},
        {"-a.b", "-a", "-a.b", ".", "-a"},
    };
    static const char *const how[] = {"", ".", "/", "//", "/."};
    for (size_t i = 0; i < COUNT(e); i++)
        for (size_t k = 0; k < COUNT(how); k++) {
            struct span got = template_part(span_of(e[i][0]), how[k]);
            if (!span_is(got, e[i][k]))
                FAIL("{%s} of %s is %.*s, want %s", how[k], e[i][0], (int)got.n,
                     got.at, e[i][k]);
        }
    CHECK(span_is(template_part((struct span){NULL, 0}, "//"), "."));
    CHECK(span_is(template_part((struct span){NULL, 0}, "/."), ""));
}

/* ---- what is shown ------------------------------------------------------- */

TEST(template, the_exec_form_is_shown_word_by_word)
{
    CHECK_SHOWN("echo 'a b' '' x.c", .words = {"echo", "{}", "", "x.c"},
                .items = {"a b"});
    CHECK_SHOWN("echo 'it'\\''s'", .words = {"echo"}, .items = {"it's"});
}

TEST(template, the_shell_form_is_shown_with_its_values)
{
    CHECK_SHOWN("sort a > \"a.s\"", .words = {"sort {} > \"{}.s\""},
                .items = {"a"});
    CHECK_SHOWN("f 'a b' 'c'd \"a b\" 'a b'",
                .words = {"f {1} {2}d \"{1}\" '{1}'"}, .items = {"a b", "c"});
    CHECK_SHOWN("f '' \"\" ''", .words = {"f {} \"{}\" '{}'"}, .items = {""});
    CHECK_SHOWN("f '$(x)' \"\"'$(x)'\"\" '$(x)'", .words = {"f {} \"{}\" '{}'"},
                .items = {"$(x)"});
    CHECK_SHOWN("f 'a'\\''b' \"a'b\" 'a'\\''b'", .words = {"f {} \"{}\" '{}'"},
                .items = {"a'b"});
    CHECK_SHOWN("f a 'b c' \"a b c\"", .words = {"f {} \"{}\""},
                .items = {"a", "b c"});
    CHECK_SHOWN("f -x a b", .words = {"f -x"}, .items = {"a", "b"});
    CHECK_SHOWN("f $((7 + 1))", .words = {"f $(({#} + 1))"});
    CHECK_SHOWN("f # \ng 'a\nb'", .words = {"f # {}\ng {}"}, .items = {"a\nb"});
}

/* $x and y are not $xy, and 2 > file is not 2>file. */
TEST(template, a_shown_value_does_not_melt_with_what_is_around_it)
{
    CHECK_SHOWN("f $x'y' \"$x\"'y'\"\"", .words = {"f $x{} \"$x{}\""},
                .items = {"y"});
    CHECK_SHOWN("f '2'>a", .words = {"f {}>a"}, .items = {"2"});
    CHECK_SHOWN("f ~'root'", .words = {"f ~{}"}, .items = {"root"});
    CHECK_SHOWN("'a'=1 f", .words = {"{}=1 f"}, .items = {"a"});
}

/* ---- what identifies a job ----------------------------------------------- */

TEST(template, the_hash_goes_by_content)
{
    struct job j = {.words = {"f", "{}"}, .items = {"a"}};
    CHECK(is_same_job(j, j));
    CHECK(is_same_job(
        (struct job){.words = {"f {} {#} {%}"}, .items = {"a"}, .seq = 1},
        (struct job){.words = {"f {} {#} {%}"}, .items = {"a"}, .seq = 2}));
    CHECK(
        is_same_job((struct job){.words = {"f", "{1}"}, .items = {"a", "b"}},
                    (struct job){.words = {"f", "{1}"}, .items = {"a", "c"}}));
}

TEST(template, different_jobs_have_different_hashes)
{
    static const struct job jobs[] = {
        {.words = {"f", "{}"}, .items = {"a"}},
        {.words = {"f", "{}"}, .items = {"b"}},
        {.words = {"f", "{}"}, .items = {""}},
        {.words = {"f", "{}"}, .items = {"a", "b"}},
        {.words = {"f", "{}"}, .items = {"ab"}},
        {.words = {"f", "{}"}, .items = {"a b"}},
        {.words = {"f", "{}", "x"}, .items = {"a"}},
        {.words = {"f", "x", "{}"}, .items = {"a"}},
        {.words = {"f", "x{}"}, .items = {"a"}},
        {.words = {"fx", "{}"}, .items = {"a"}},
        {.words = {"f", "{}{}"}, .items = {"a"}},
        {.words = {"f", "{}", "{#}"}, .items = {"a"}},
        {.words = {"f", "{1}", "{2}"}, .items = {"a", "bc"}},
        {.words = {"f", "{1}", "{2}"}, .items = {"ab", "c"}},
        {.words = {"f {}"}, .items = {"a"}},
        {.words = {"f {}"}, .items = {"a"}, .exec = true},
        {.words = {"f {}"}, .items = {"a\n"}},
        {.words = {"f a {}"}, .items = {""}},
    };
    for (size_t i = 0; i < COUNT(jobs); i++)
        for (size_t k = i + 1; k < COUNT(jobs); k++)
            if (is_same_job(jobs[i], jobs[k]))
                FAIL("jobs %zu and %zu have the same hash", i, k);
}

/* A log of today is read by the vow of tomorrow. */
TEST(template, the_hash_does_not_change_from_version_to_version)
{
    static const unsigned char want[16] = {0xc7, 0xe7, 0x41, 0xc1, 0x22, 0x56,
                                           0x6e, 0x25, 0xfa, 0x48, 0x6c, 0x0c,
                                           0x58, 0x9c, 0x04, 0xf0};
    unsigned char got[16];
    get_hash(
        (struct job){.words = {"echo", "-n", "x{}"}, .items = {"a", "b c"}},
        got);
    CHECK_MEM_EQ(got, want, 16);
}
