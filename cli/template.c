/* SPDX-License-Identifier: MIT */
/* template.c - makes the command line of each job.
 *
 * HOW   The words are cut once into pieces. In the exec form the words of a job
 *       are the pieces put together. In the shell form the script is written
 *       once, with "${1}" and the like in place of the placeholders (see
 *       shell_form.c), and each job only adds other values behind the script;
 *       the script is written again when a job has another number of items
 *       than the job before.
 */
#include "template.h"

#include "shell_form.h"
#include "table.h"
#include "template_cut.h"

#include <ctype.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIGITS = 24 }; /* digits of a number, and a NUL */

/* A value, or the values of all items, passed once however often used. Several
 * items may be needed both as a list of words and joined to one word. */
struct param {
    const struct piece *piece; /* a piece with this value */
    bool list;
    bool joined;
    size_t list_at; /* number of the first positional parameter */
    size_t joined_at;
};

struct template
{
    struct pieces pieces; /* pieces of all words */
    size_t *ends;         /* index behind the last piece of each word */
    size_t n_words;
    char *program;

    char *shell; /* NULL: exec form, without params and script */
    struct hole *holes;
    struct param *params;
    size_t n_params;
    struct text script;
    size_t script_items; /* number of items that `script` was written for */
    bool some_need;      /* some values must be plain words or numbers */
    char *refusal;       /* message for a job with other values */
};

static bool has_placeholder(const struct template *t, size_t word);
static bool wants_shell(const struct template *t);
static bool is_shell_script(char *const *words, const struct template_opts *o);
static struct template *template_make(char *const *words, size_t n,
                                      const struct template_opts *o,
                                      bool is_shell, char **ret_error);
static char *make_exec_form(struct template *t, bool append);
static void add_exec_line(struct text *into, const struct template *t);
static const char *find_unsafe_value(const struct template *t,
                                     const struct fields *f);
static char *check_pieces(const struct template *t,
                          const struct template_opts *o);
static char *piece_error(const struct piece *p, const char *what,
                         const char *why);
static char *piece_error_near(const struct piece *p, const char *as_text);

static char *make_shell_form(struct template *t, bool append);
static char *find_places(struct template *t, bool append);
static char *scan_script(struct template *t, struct span script, bool exec);
static void make_params(struct template *t);
static bool is_same_value(const struct piece *a, const struct piece *b);
static bool piece_is_listed(const struct template *t, const struct piece *p);
static void write_script(struct template *t, size_t n_items);
static void number_params(struct template *t, size_t n_items);

static size_t count_values(const struct piece *p, const struct fields *f);
static struct span get_value(const struct piece *p, const struct fields *f,
                             size_t i, char digits[DIGITS]);
static void add_joined(struct text *into, const struct piece *p,
                       const struct fields *f);
static void add_value(struct text *into, struct span value);
static void add_words(const struct template *t, const struct fields *f,
                      struct command *c);
static void add_params(const struct template *t, const struct fields *f,
                       struct command *c);
static void add_each_item(const struct piece *p, const struct fields *f,
                          struct command *c);
static void add_argument(struct command *c, const char *s);
static void end_argument(struct command *c);
static void set_argv(struct command *c);
static void show_command(struct template *t, const struct fields *f,
                         bool visible, struct text *into);
static void make_visible(struct text *t, size_t from);
static void show_hole(const struct template *t, const struct piece *p,
                      const struct fields *f, struct text *into);
static void hash_part(crypto_generichash_state *h, char kind, struct span s);

/* ---- making -------------------------------------------------------------- */

struct template *template_new(char *const *words, size_t n,
                              const struct template_opts *o, char **ret_error)
{
    struct template_opts inner = *o;
    bool script = n == 3 && is_shell_script(words, o);
    if (script)
        inner.shell = words[0];
    struct template *t =
        script ? template_make(words + 2, 1, &inner, true, ret_error)
               : template_make(words, n, o, false, ret_error);
    return t;
}

/* Returns whether the words are sh -c 'text with {}': a script for the given
 * shell. A placeholder alone is not such a script: the user means to run the
 * item. */
static bool is_shell_script(char *const *words, const struct template_opts *o)
{
    struct pieces pieces = {0};
    if (!shell_form_is_shell(span_of(words[0])) || strcmp(words[1], "-c") != 0)
        return false;
    template_cut(&pieces, span_of(words[2]), o);
    bool some = false;
    for (size_t i = 0; i < pieces.n; i++)
        some |= pieces.at[i].source != LITERAL;
    bool alone = pieces.n == 1;
    free(pieces.at);
    return some && !alone;
}

static struct template *template_make(char *const *words, size_t n,
                                      const struct template_opts *o,
                                      bool is_shell, char **ret_error)
{
    struct template *t = mem_new(sizeof(*t));
    bool append = true;
    t->ends = mem_new((n + 1) * sizeof(*t->ends)); /* room to append */
    for (size_t i = 0; i < n; i++) {
        template_cut(&t->pieces, span_of(words[i]), o);
        t->ends[t->n_words++] = t->pieces.n;
        append = append && !has_placeholder(t, i);
    }
    char *error = check_pieces(t, o);
    bool shell = is_shell || (n == 1 && !o->exec && wants_shell(t));
    if (shell)
        t->shell = mem_copy(o->shell != NULL ? o->shell : "sh",
                            o->shell != NULL ? strlen(o->shell) : 2);
    if (error == NULL)
        error = shell ? make_shell_form(t, append) : make_exec_form(t, append);
    if (error == NULL)
        return t;
    template_free(t);
    *ret_error = error;
    return NULL;
}

void template_free(struct template *t)
{
    if (t == NULL)
        return;
    free(t->pieces.at);
    free(t->ends);
    free(t->program);
    free(t->shell);
    free(t->holes);
    free(t->params);
    text_free(&t->script);
    free(t->refusal);
    free(t);
}

const char *template_program(const struct template *t)
{
    return t->shell != NULL ? t->shell : t->program;
}

static bool has_placeholder(const struct template *t, size_t word)
{
    for (size_t i = word > 0 ? t->ends[word - 1] : 0; i < t->ends[word]; i++)
        if (t->pieces.at[i].source != LITERAL)
            return true;
    return false;
}

static bool wants_shell(const struct template *t)
{
    for (size_t i = 0; i < t->pieces.n; i++)
        if (t->pieces.at[i].source == LITERAL &&
            shell_form_wanted(t->pieces.at[i].text, i == 0))
            return true;
    return false;
}

/* Makes the exec form. The guard checks the words as the line of shell that
 * they would be. */
static char *make_exec_form(struct template *t, bool append)
{
    struct text program = {0};
    struct text line = {0};
    if (append) {
        pieces_add(
            &t->pieces,
            (struct piece){.source = ITEMS, .text = span_of("{}"), .how = ""});
        t->ends[t->n_words++] = t->pieces.n;
    }
    add_exec_line(&line, t);
    t->holes = mem_new((t->pieces.n + 1) * sizeof(*t->holes));
    char *error = scan_script(t, text_span(&line), true);
    text_free(&line);
    if (error != NULL || t->n_words == 0 || has_placeholder(t, 0))
        return error;
    text_add(&program, "", 0);
    for (size_t i = 0; i < t->ends[0]; i++)
        text_add(&program, t->pieces.at[i].text.at, t->pieces.at[i].text.n);
    t->program = program.at;
    return NULL;
}

static void add_exec_line(struct text *into, const struct template *t)
{
    static const char safe[] = "_@%+=:,./-";
    for (size_t w = 0, i = 0; w < t->n_words; w++) {
        size_t from = i;
        bool plain = t->ends[w] > i;
        for (; i < t->ends[w]; i++) {
            struct span s = t->pieces.at[i].text;
            for (size_t k = 0; t->pieces.at[i].source == LITERAL && k < s.n;
                 k++)
                plain = plain && (isalnum((unsigned char)s.at[k]) ||
                                  strchr(safe, s.at[k]) != NULL);
        }
        text_add_str(into, w == 0 ? "" : " ");
        text_add_str(into, plain ? "" : "'");
        for (i = from; i < t->ends[w]; i++) {
            const struct piece *p = &t->pieces.at[i];
            if (p->source != LITERAL)
                text_add(into, "", 1);
            for (size_t k = 0; p->source == LITERAL && k < p->text.n; k++)
                if (p->text.at[k] == '\'')
                    text_add_str(into, "'\\''");
                else
                    text_add(into, p->text.at + k, 1);
        }
        text_add_str(into, plain ? "" : "'");
    }
}

static char *check_pieces(const struct template *t,
                          const struct template_opts *o)
{
    static const char as_text[] =
        "double the braces if they are meant as they are";
    char what[64];
    for (size_t i = 0; i < t->pieces.n; i++) {
        const struct piece *p = &t->pieces.at[i];
        if (p->source != FIELD)
            continue;
        if (p->near != NULL)
            return piece_error_near(p, as_text);
        if (p->field == SIZE_MAX)
            return piece_error(p, ": fields are counted from 1; ", as_text);
        (void)snprintf(what, sizeof(what), ": no job has more than %zu %s; ",
                       o->n_fields, o->n_fields == 1 ? "field" : "fields");
        if (o->n_fields > 0 && p->field >= o->n_fields)
            return piece_error(p, what, as_text);
    }
    return NULL;
}

static char *piece_error_near(const struct piece *p, const char *as_text)
{
    struct text error = {0};
    text_add(&error, p->text.at, p->text.n);
    text_addf(&error, ": no column has this name; did you mean {%.*s}? Or %s",
              (int)p->near->n, p->near->at, as_text);
    return error.at;
}

static char *piece_error(const struct piece *p, const char *what,
                         const char *why)
{
    struct text error = {0};
    text_add(&error, p->text.at, p->text.n);
    text_addf(&error, "%s%s", what, why);
    return error.at;
}

/* ---- the shell form ------------------------------------------------------ */

static char *make_shell_form(struct template *t, bool append)
{
    if (append) {
        pieces_add(&t->pieces, (struct piece){.text = span_of(" ")});
        pieces_add(&t->pieces, (struct piece){.source = ITEMS,
                                              .text = span_of("the items"),
                                              .how = ""});
        t->ends[0] = t->pieces.n;
    }
    t->holes = mem_new(t->pieces.n * sizeof(*t->holes));
    t->params = mem_new(t->pieces.n * sizeof(*t->params));
    char *error = find_places(t, append);
    if (error == NULL) {
        make_params(t);
        write_script(t, 1);
    }
    return error;
}

static char *find_places(struct template *t, bool append)
{
    struct text script = {0};
    for (size_t i = 0; i < t->pieces.n; i++) {
        const struct piece *p = &t->pieces.at[i];
        bool literal = p->source == LITERAL;
        text_add(&script, literal ? p->text.at : "", literal ? p->text.n : 1);
    }
    char *error = scan_script(t, text_span(&script), false);
    text_free(&script);
    if (!append || (error == NULL && t->holes[0].argument))
        return error;
    free(error);
    return piece_error(&t->pieces.at[t->pieces.n - 1], " cannot stand ",
                       "at the end of this script: write {} where they belong");
}

/* Finds the places of the placeholders, and the needs of their values. */
static char *scan_script(struct template *t, struct span script, bool exec)
{
    struct shell_form form = {
        .exec = exec,
        .strict = !exec && !shell_form_is_common(span_of(t->shell))};
    char *better = NULL;
    size_t n = 0;
    for (size_t i = 0; i < t->pieces.n; i++) {
        struct piece *p = &t->pieces.at[i];
        if (p->source == LITERAL)
            continue;
        t->holes[n].number = p->source == SEQ || p->source == SLOT;
        t->holes[n].text = p->text;
        p->hole = n++;
    }
    char *error = shell_form_scan(script, &form, t->holes, &better);
    for (size_t i = 0; i < n; i++)
        t->some_need |= t->holes[i].need != NEED_NOTHING;
    if (t->some_need) {
        struct text refusal = {0};
        text_add_str(&refusal,
                     "a value with other characters than letters, digits and "
                     "_@%+=:,./- may be read as commands by an inner shell "
                     "or by eval: pass it as an argument, as in ");
        text_add_str(&refusal,
                     better != NULL ? better : "sh -c '... \"$1\"' _ {}");
        t->refusal = refusal.at;
    }
    free(better);
    return error;
}

static void make_params(struct template *t)
{
    for (size_t i = 0; i < t->pieces.n; i++) {
        struct piece *p = &t->pieces.at[i];
        size_t n = 0;
        if (p->source == LITERAL)
            continue;
        while (n < t->n_params && !is_same_value(t->params[n].piece, p))
            n++;
        if (n == t->n_params)
            t->params[t->n_params++].piece = p;
        p->param = n;
        t->params[n].list = t->params[n].list || piece_is_listed(t, p);
        t->params[n].joined = t->params[n].joined || !piece_is_listed(t, p);
    }
}

static bool is_same_value(const struct piece *a, const struct piece *b)
{
    return a->source == b->source && strcmp(a->how, b->how) == 0 &&
           (a->source != FIELD || a->field == b->field);
}

static bool piece_is_listed(const struct template *t, const struct piece *p)
{
    const struct hole *h = &t->holes[p->hole];
    return p->source == ITEMS && h->place == HOLE_WORDS && !h->single;
}

static void write_script(struct template *t, size_t n_items)
{
    text_clear(&t->script);
    number_params(t, n_items);
    t->script_items = n_items;
    for (size_t i = 0; i < t->pieces.n; i++) {
        const struct piece *p = &t->pieces.at[i];
        const struct param *v = &t->params[p->param];
        if (p->source == LITERAL)
            text_add(&t->script, p->text.at, p->text.n);
        else if (!piece_is_listed(t, p))
            shell_form_write(&t->script, t->holes[p->hole].place, v->joined_at,
                             1);
        else if (t->n_params == 1 && !v->joined && n_items != 1)
            text_add_str(&t->script, "\"$@\""); /* any number */
        else
            shell_form_write(&t->script, HOLE_WORDS, v->list_at, n_items);
    }
}

/* Numbers the parameters. A single item is the same parameter listed or
 * joined. */
static void number_params(struct template *t, size_t n_items)
{
    size_t next = 1;
    for (size_t i = 0; i < t->n_params; i++) {
        struct param *v = &t->params[i];
        v->joined_at = next;
        next += v->joined || n_items == 1;
        v->list_at = n_items == 1 ? v->joined_at : next;
        next += v->list && n_items != 1 ? n_items : 0;
    }
}

/* ---- values -------------------------------------------------------------- */

static size_t count_values(const struct piece *p, const struct fields *f)
{
    return p->source == ITEMS ? f->n_items : 1;
}

static struct span get_value(const struct piece *p, const struct fields *f,
                             size_t i, char digits[DIGITS])
{
    struct span none = {.at = "", .n = 0};
    switch (p->source) {
    case ITEMS:
        return template_part(f->items[i], p->how);
    case FIELD:
        return p->field < f->n_fields
                   ? template_part(f->fields[p->field], p->how)
                   : none;
    case SEQ:
    case SLOT:
        snprintf(digits, DIGITS, "%ju",
                 (uintmax_t)(p->source == SEQ ? f->seq : f->slot));
        return span_of(digits);
    case LITERAL:
        return p->text;
    }
    return none;
}

static void add_joined(struct text *into, const struct piece *p,
                       const struct fields *f)
{
    char digits[DIGITS];
    for (size_t i = 0; i < count_values(p, f); i++) {
        struct span value = get_value(p, f, i, digits);
        text_add(into, " ", i > 0);
        add_value(into, value);
    }
}

/* Adds a value up to the first NUL: an argument ends at a NUL, and must not be
 * counted as two. */
static void add_value(struct text *into, struct span value)
{
    text_add(into, value.at, value.n > 0 ? strnlen(value.at, value.n) : 0);
}

/* ---- command lines ------------------------------------------------------- */

const char *template_expand(struct template *t, const struct fields *f,
                            struct command *ret_command)
{
    struct command *c = ret_command;
    text_clear(&c->arena);
    c->argc = 0;
    if (t->shell == NULL) {
        add_words(t, f, c);
    } else {
        if (t->script_items != f->n_items)
            write_script(t, f->n_items);
        add_argument(c, t->shell);
        add_argument(c, "-c");
        add_argument(c, t->script.at);
        add_argument(c, "sh");
        add_params(t, f, c);
    }
    if (c->argc == 0)
        add_argument(c, ""); /* an empty command: not found */
    set_argv(c);
    return t->some_need ? find_unsafe_value(t, f) : NULL;
}

/* Returns why this job cannot be run, or NULL. */
static const char *find_unsafe_value(const struct template *t,
                                     const struct fields *f)
{
    char digits[DIGITS];
    for (size_t i = 0; i < t->pieces.n; i++) {
        const struct piece *p = &t->pieces.at[i];
        if (p->source == LITERAL)
            continue;
        enum value_need need = t->holes[p->hole].need;
        for (size_t k = 0; k < count_values(p, f); k++)
            if (!shell_form_fits(need, get_value(p, f, k, digits)))
                return need == NEED_NUMBER
                           ? "a value that is no number would be calculated "
                             "by the shell, which may run commands in it"
                           : t->refusal;
    }
    return NULL;
}

static void add_words(const struct template *t, const struct fields *f,
                      struct command *c)
{
    for (size_t w = 0, i = 0; w < t->n_words; w++) {
        const struct piece *p = &t->pieces.at[i];
        if (t->ends[w] - i == 1 && p->source == ITEMS) {
            add_each_item(p, f, c);
            i++;
            continue;
        }
        for (; i < t->ends[w]; i++)
            add_joined(&c->arena, &t->pieces.at[i], f);
        end_argument(c);
    }
}

/* Adds the parameters in the order of number_params(). */
static void add_params(const struct template *t, const struct fields *f,
                       struct command *c)
{
    for (size_t i = 0; i < t->n_params; i++) {
        const struct param *v = &t->params[i];
        if (v->joined || f->n_items == 1) {
            add_joined(&c->arena, v->piece, f);
            end_argument(c);
        }
        if (v->list && f->n_items != 1)
            add_each_item(v->piece, f, c);
    }
}

static void add_each_item(const struct piece *p, const struct fields *f,
                          struct command *c)
{
    for (size_t i = 0; i < f->n_items; i++) {
        add_value(&c->arena, get_value(p, f, i, NULL));
        end_argument(c);
    }
}

static void add_argument(struct command *c, const char *s)
{
    text_add_str(&c->arena, s);
    end_argument(c);
}

static void end_argument(struct command *c)
{
    text_add(&c->arena, "", 1);
    c->argc++;
}

/* Sets argv after all bytes were added, because adding may move the bytes. */
static void set_argv(struct command *c)
{
    char *at = c->arena.at;
    if (c->room <= c->argc) {
        c->room = 2 * c->argc + 8;
        c->argv = mem_resize(c->argv, c->room * sizeof(*c->argv));
    }
    for (size_t i = 0; i < c->argc; i++) {
        c->argv[i] = at;
        at += strlen(at) + 1;
    }
    c->argv[c->argc] = NULL;
    c->bytes = c->arena.n + c->argc * sizeof(*c->argv);
}

void command_free(struct command *c)
{
    free(c->argv);
    text_free(&c->arena);
    *c = (struct command){0};
}

/* ---- for people and logs ------------------------------------------------- */

void template_show(struct template *t, const struct fields *f,
                   struct text *ret_text)
{
    show_command(t, f, false, ret_text);
}

void template_show_on(int fd, struct template *t, const struct fields *f,
                      struct text *ret_text)
{
    show_command(t, f, isatty(fd), ret_text);
}

static void show_command(struct template *t, const struct fields *f,
                         bool visible, struct text *into)
{
    struct command words = {0};
    if (t->shell == NULL) {
        (void)template_expand(t, f, &words);
        for (size_t i = 0; i < words.argc; i++) {
            size_t from = into->n;
            text_add(into, " ", i > 0);
            text_add_quoted(into, span_of(words.argv[i]));
            if (visible)
                make_visible(into, from);
        }
        command_free(&words);
        return;
    }
    for (size_t i = 0; i < t->pieces.n; i++) {
        const struct piece *p = &t->pieces.at[i];
        size_t from = into->n;
        if (p->source == LITERAL)
            text_add(into, p->text.at, p->text.n);
        else
            show_hole(t, p, f, into);
        if (p->source != LITERAL && visible)
            make_visible(into, from);
    }
}

static void make_visible(struct text *t, size_t from)
{
    struct text shown = {0};
    table_add_visible(&shown,
                      (struct span){.at = t->at + from, .n = t->n - from});
    t->n = from;
    text_add(t, shown.at, shown.n);
    text_free(&shown);
}

static void show_hole(const struct template *t, const struct piece *p,
                      const struct fields *f, struct text *into)
{
    const struct hole *hole = &t->holes[p->hole];
    struct text joined = {0};
    for (size_t i = 0; piece_is_listed(t, p) && i < f->n_items; i++) {
        text_add(into, " ", i > 0);
        shell_form_show(into, hole, get_value(p, f, i, NULL));
    }
    if (piece_is_listed(t, p))
        return;
    add_joined(&joined, p, f);
    shell_form_show(into, hole, text_span(&joined));
    text_free(&joined);
}

void template_hash(struct template *t, const struct fields *f,
                   unsigned char ret_hash[16])
{
    crypto_generichash_state h;
    struct span none = {.at = "", .n = 0};
    crypto_generichash_init(&h, NULL, 0, 16);
    hash_part(&h, t->shell != NULL ? 's' : 'e', none);
    for (size_t w = 0, i = 0; w < t->n_words; w++) {
        hash_part(&h, 'w', none);
        for (; i < t->ends[w]; i++) {
            const struct piece *p = &t->pieces.at[i];
            bool ours = p->source == SEQ || p->source == SLOT;
            size_t n = ours ? 0 : count_values(p, f);
            hash_part(&h, p->source == LITERAL ? 't' : 'p', none);
            for (size_t k = 0; k < n; k++)
                hash_part(&h, 'v', get_value(p, f, k, NULL));
        }
    }
    crypto_generichash_final(&h, ret_hash, 16);
}

static void hash_part(crypto_generichash_state *h, char kind, struct span s)
{
    unsigned char head[9] = {(unsigned char)kind};
    for (size_t i = 0; i < 8; i++)
        head[1 + i] = (unsigned char)((uint64_t)s.n >> (8 * i));
    crypto_generichash_update(h, head, sizeof(head));
    crypto_generichash_update(h, (const unsigned char *)s.at, s.n);
}
