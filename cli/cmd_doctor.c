/* SPDX-License-Identifier: MIT */
/* cmd_doctor.c - vow doctor: check the store, and say what to fix.
 *
 * WHY   Most problems of a store can be found before they cause harm. The
 *       store knows where to look.
 * HOW   The store returns a list of findings. Each finding is a line with a
 *       mark: ok, note or BAD. The advice follows below, indented. Programs
 *       read --json and the exit code.
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
        "Each line is a finding: ok, note or BAD. The exit code is 1 if a\n"
        "finding is BAD, and 125 if the store cannot be reached.\n"
        "\n"
        "  vow doctor\n"
        "  vow doctor --store redis://cache.local\n",
    .operands = "",
    .options = options,
    .run = cmd_doctor,
    .usage_code = EXIT_BROKEN};

struct report {
    bool json;
    size_t width;
    struct text out;
    bool bad;
    int code;
    vow_deferred *done;
};

static void doctor_examine(const struct manage *m, struct report *r,
                           const char *shown);
static void add_leftover(const char *folder, long pid, void *report);
static vow_store *doctor_open_store(const struct manage *m);
static void on_findings(int code, const vow_finding *findings, size_t n,
                        void *report);
static void add_finding(struct report *r, const vow_finding *f);
static void finding_add_json(struct report *r, const vow_finding *f);
static void add_advice(struct report *r, const char *advice);
static void doctor_close_store(const struct manage *m, vow_store *s);

int cmd_doctor(int argc, char **argv)
{
    struct report r = {.width = table_window(STDOUT_FILENO)};
    struct manage m = manage_of(&doctor_verb, argc, argv);
    while (manage_option(&m) > 0)
        r.json = true;
    if (m.word != NULL)
        die(EXIT_BROKEN,
            "vow doctor: unexpected argument '%s': give the address of a store "
            "as --store ADDRESS",
            m.word);
    if (vow_loop_new(NULL, &m.loop) < 0)
        die(EXIT_BROKEN, "cannot create the event loop: %s", strerror(errno));
    char *shown = store_shown(&m.store);
    doctor_examine(&m, &r, shown);
    free(shown);
    manage_print(&m, &r.out);
    text_free(&r.out);
    (void)vow_loop_close(m.loop);
    return r.bad ? EXIT_SOME_FAILED : 0;
}

static void doctor_examine(const struct manage *m, struct report *r,
                           const char *shown)
{
    vow_store *s = doctor_open_store(m);
    add_finding(
        r, &(const vow_finding){.what = "store", .text = shown, .advice = ""});
    if (s->ops->examine != NULL) {
        vow_future *f = vow_promise(m->loop, &r->done);
        s->ops->examine(s, on_findings, r);
        (void)vow_loop_run_until(m->loop, f);
        vow_future_unref(f);
    }
    if (r->code < 0)
        die(EXIT_BROKEN, "vow doctor: the store cannot be used: %s",
            s->ops->explain(s)[0] != '\0' ? s->ops->explain(s)
                                          : vow_error_text(r->code));
    doctor_close_store(m, s);
    if (m->store.url == NULL)
        leftovers_find(shown + strlen("file:"), add_leftover, r);
}

/* Adds a finding about a store in another folder. Processes that use the other
 * store are not coordinated with this store. */
static void add_leftover(const char *folder, long pid, void *report)
{
    struct text text = {0};
    text_addf(&text, "a store in %s, ", folder);
    if (pid != 0)
        text_addf(&text, "used by process %ld", pid);
    else
        text_add_str(&text, "not in use");
    const vow_finding found = {
        .level = pid != 0 ? VOW_FINDING_BAD : VOW_FINDING_WARN,
        .what = "leftover",
        .text = text.at,
        .advice = "An older vow kept its store there. Its locks and results "
                  "are not seen here. Remove the folder when no process uses "
                  "it."};
    add_finding(report, &found);
    text_free(&text);
}

static vow_store *doctor_open_store(const struct manage *m)
{
    char *url = store_address(&m->store);
    if (strncmp(url, "memory:", strlen("memory:")) == 0)
        die(EXIT_BROKEN, "vow doctor: memory: is private to one process, there "
                         "is nothing to check; use file:DIR, redis://HOST or "
                         "etcd://HOST");
    vow_future *f = vow_store_open(m->loop, url);
    free(url);
    if (vow_loop_run_until(m->loop, f) < 0)
        die(EXIT_BROKEN, "vow doctor: %s", vow_error_message(vow_error_of(f)));
    vow_store *s = vow_as_ptr(vow_get(f));
    vow_future_unref(f);
    return s;
}

static void doctor_close_store(const struct manage *m, vow_store *s)
{
    vow_future *f = s->ops->close(s);
    (void)vow_loop_run_until(m->loop, f);
    vow_future_unref(f);
}

static void on_findings(int code, const vow_finding *findings, size_t n,
                        void *report)
{
    struct report *r = report;
    r->code = code;
    for (size_t i = 0; i < n; i++)
        add_finding(r, &findings[i]);
    (void)vow_resolve_drop(r->done, vow_nothing());
}

static void add_finding(struct report *r, const vow_finding *f)
{
    static const char *const marks[] = {"ok", "note", "BAD"};
    uint32_t level = f->level <= VOW_FINDING_BAD ? f->level : VOW_FINDING_BAD;
    r->bad = r->bad || level == VOW_FINDING_BAD;
    if (r->json) {
        finding_add_json(r, f);
        return;
    }
    text_addf(&r->out, "%-4s  %-*s ", marks[level], WHAT_WIDTH, f->what);
    table_add_visible(&r->out, span_of(f->text));
    text_add_str(&r->out, "\n");
    add_advice(r, f->advice);
}

static void finding_add_json(struct report *r, const vow_finding *f)
{
    static const char *const levels[] = {"good", "warn", "bad"};
    uint32_t level = f->level <= VOW_FINDING_BAD ? f->level : VOW_FINDING_BAD;
    text_addf(&r->out, "{\"level\":\"%s\",\"what\":", levels[level]);
    text_add_json(&r->out, span_of(f->what));
    text_add_str(&r->out, ",\"says\":");
    text_add_json(&r->out, span_of(f->text));
    text_add_str(&r->out, ",\"advice\":");
    text_add_json(&r->out, span_of(f->advice));
    text_add_str(&r->out, "}\n");
}

/* Adds the advice as indented lines that fit into the window. */
static void add_advice(struct report *r, const char *advice)
{
    size_t room = r->width > 2 * INDENT ? r->width - INDENT : INDENT;
    while (advice[0] != '\0') {
        size_t n = strlen(advice);
        if (n > room) {
            n = room;
            while (n > 0 && advice[n] != ' ')
                n--;
            if (n == 0)
                n = strcspn(advice, " ");
        }
        text_addf(&r->out, "%*s", INDENT, "");
        table_add_visible(&r->out, (struct span){.at = advice, .n = n});
        text_add_str(&r->out, "\n");
        advice += n;
        advice += strspn(advice, " ");
    }
}
