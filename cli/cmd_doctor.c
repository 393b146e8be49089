/* SPDX-License-Identifier: MIT */
/* cmd_doctor.c - vow doctor: look at the store, and say what to do.
 *
 * WHY   Most trouble with a store can be seen before it hurts, by who knows
 *       where to look: the store does.
 * HOW   One line for each thing it looked at, with a mark: ok, note or BAD.
 *       What to do about it follows below, indented. Programs get JSON and the
 *       exit code.
 */
#include "cmd.h"
#include "leftovers.h"
#include "manage.h"
#include "say.h"
#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ID_JSON = 1, WHAT_WIDTH = 11, INDENT = 18 };

static const struct option_def options[] = {
    {ID_JSON, '\0', "json", NULL, "one line of JSON per entry", "Show", NULL},
    STORE_ROW,
    {.id = 0}};

const struct verb_def doctor_verb = {
    .name = "doctor",
    .usage = "[OPTION...]",
    .about = "check the store and say what to fix",
    .story =
        "Each thing that was looked at is ok, or there is a note, or it is\n"
        "BAD. The exit code is 1 if something is bad, and 125 if the\n"
        "store cannot be reached.\n"
        "\n"
        "  vow doctor\n"
        "  vow doctor --store redis://cache.local\n",
    .operands = "",
    .options = options,
    .run = cmd_doctor,
    .usage_code = EXIT_BROKEN};

struct visit {
    bool json;
    size_t width;
    struct text out;
    bool bad;
    int code;
    vow_deferred *done;
};

static void examine(const struct manage *m, struct visit *v, const char *shown);
static void add_leftover(const char *folder, long pid, void *visit);
static vow_store *open_store(const struct manage *m);
static void on_findings(int code, const vow_finding *findings, size_t n,
                        void *visit);
static void add_finding(struct visit *v, const vow_finding *f);
static void add_json(struct visit *v, const vow_finding *f);
static void add_advice(struct visit *v, const char *advice);
static void close_store(const struct manage *m, vow_store *s);

int cmd_doctor(int argc, char **argv)
{
    struct visit v = {.width = table_window(STDOUT_FILENO)};
    struct manage m = manage_of(&doctor_verb, argc, argv);
    while (manage_option(&m) > 0)
        v.json = true;
    if (m.word != NULL)
        die(EXIT_BROKEN,
            "vow doctor: it takes no word; is '%s' an address? Give it to "
            "--store",
            m.word);
    if (vow_loop_new(NULL, &m.loop) < 0)
        die(EXIT_BROKEN, "cannot make a loop: %s", strerror(errno));
    char *shown = store_shown(&m.store);
    examine(&m, &v, shown);
    free(shown);
    manage_print(&m, &v.out);
    text_free(&v.out);
    (void)vow_loop_close(m.loop);
    return v.bad ? EXIT_SOME_FAILED : 0;
}

static void examine(const struct manage *m, struct visit *v, const char *shown)
{
    vow_store *s = open_store(m);
    add_finding(
        v, &(const vow_finding){.what = "store", .text = shown, .advice = ""});
    if (s->ops->examine != NULL) {
        vow_future *f = vow_promise(m->loop, &v->done);
        s->ops->examine(s, on_findings, v);
        (void)vow_loop_run_until(m->loop, f);
        vow_future_unref(f);
    }
    if (v->code < 0)
        die(EXIT_BROKEN, "vow doctor: the store cannot be used: %s",
            s->ops->explain(s)[0] != '\0' ? s->ops->explain(s)
                                          : vow_error_text(v->code));
    close_store(m, s);
    if (m->store.url == NULL)
        leftovers_find(shown + strlen("file:"), add_leftover, v);
}

/* A store elsewhere, which harms as long as somebody uses it. */
static void add_leftover(const char *folder, long pid, void *visit)
{
    struct text text = {0};
    text_addf(&text, "a store in %s, ", folder);
    if (pid != 0)
        text_addf(&text, "used by process %ld", pid);
    else
        text_add_str(&text, "used by nobody");
    const vow_finding found = {
        .level = pid != 0 ? VOW_FINDING_BAD : VOW_FINDING_WARN,
        .what = "leftover",
        .text = text.at,
        .advice = "An older vow kept its store there, and what is held there "
                  "is not seen here. Remove the folder when nobody uses it."};
    add_finding(visit, &found);
    text_free(&text);
}

static vow_store *open_store(const struct manage *m)
{
    char *url = store_address(&m->store);
    if (strncmp(url, "memory:", strlen("memory:")) == 0)
        die(EXIT_BROKEN, "vow doctor: memory: is the memory of one process: "
                         "there is nothing to look at");
    vow_future *f = vow_store_open(m->loop, url);
    free(url);
    if (vow_loop_run_until(m->loop, f) < 0)
        die(EXIT_BROKEN, "vow doctor: %s", vow_error_message(vow_error_of(f)));
    vow_store *s = vow_as_ptr(vow_get(f));
    vow_future_unref(f);
    return s;
}

static void close_store(const struct manage *m, vow_store *s)
{
    vow_future *f = s->ops->close(s);
    (void)vow_loop_run_until(m->loop, f);
    vow_future_unref(f);
}

static void on_findings(int code, const vow_finding *findings, size_t n,
                        void *visit)
{
    struct visit *v = visit;
    v->code = code;
    for (size_t i = 0; i < n; i++)
        add_finding(v, &findings[i]);
    (void)vow_resolve_drop(v->done, vow_nothing());
}

static void add_finding(struct visit *v, const vow_finding *f)
{
    static const char *const marks[] = {"ok", "note", "BAD"};
    uint32_t level = f->level <= VOW_FINDING_BAD ? f->level : VOW_FINDING_BAD;
    v->bad = v->bad || level == VOW_FINDING_BAD;
    if (v->json) {
        add_json(v, f);
        return;
    }
    text_addf(&v->out, "%-4s  %-*s ", marks[level], WHAT_WIDTH, f->what);
    table_add_visible(&v->out, span_of(f->text));
    text_add_str(&v->out, "\n");
    add_advice(v, f->advice);
}

static void add_json(struct visit *v, const vow_finding *f)
{
    static const char *const levels[] = {"good", "warn", "bad"};
    uint32_t level = f->level <= VOW_FINDING_BAD ? f->level : VOW_FINDING_BAD;
    text_addf(&v->out, "{\"level\":\"%s\",\"what\":", levels[level]);
    text_add_json(&v->out, span_of(f->what));
    text_add_str(&v->out, ",\"says\":");
    text_add_json(&v->out, span_of(f->text));
    text_add_str(&v->out, ",\"advice\":");
    text_add_json(&v->out, span_of(f->advice));
    text_add_str(&v->out, "}\n");
}

/* As lines that fit, under what was said. */
static void add_advice(struct visit *v, const char *advice)
{
    size_t room = v->width > 2 * INDENT ? v->width - INDENT : INDENT;
    while (advice[0] != '\0') {
        size_t n = strlen(advice);
        if (n > room) {
            n = room;
            while (n > 0 && advice[n] != ' ')
                n--;
            if (n == 0)
                n = strcspn(advice, " ");
        }
        text_addf(&v->out, "%*s", INDENT, "");
        table_add_visible(&v->out, (struct span){.at = advice, .n = n});
        text_add_str(&v->out, "\n");
        advice += n;
        advice += strspn(advice, " ");
    }
}
