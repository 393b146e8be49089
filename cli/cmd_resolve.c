/* SPDX-License-Identifier: MIT */
/* cmd_resolve.c - vow resolve: settle a name that is in doubt.
 *
 * WHY   A command of --once is never started again automatically when the
 *       runner died. Only a person, or a program that can check, knows how far
 *       the command came.
 * HOW   The fence of the run in doubt is read, and the answer is valid for this
 *       fence only. If two processes resolve the name at the same time, the
 *       second is told that the name is not in doubt any more.
 */
#include "cmd.h"
#include "listing.h"
#include "manage.h"
#include "replay.h"
#include "say.h"
#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { ID_DONE = 1, ID_FAILED, ID_RETRY, ID_TTL, ID_FENCE };
enum { DAY_MS = 24 * 3600 * 1000, PIECE = 64 * 1024 };

static const struct option_def options[] = {
    {ID_DONE, '\0', "done", "FILE",
     "the work was done; FILE (- is stdin) is its output", "Resolve", NULL},
    {ID_FAILED, '\0', "failed", NULL,
     "the work failed: exit code 1 for all callers", NULL, NULL},
    {ID_RETRY, '\0', "retry", NULL, "let the next caller run it again", NULL,
     NULL},
    {ID_TTL, '\0', "ttl", "D", "keep this answer for D (default 1d)", NULL,
     NULL},
    {ID_FENCE, '\0', "fence", "N",
     "only if the run with this fence is in doubt", NULL, NULL},
    STORE_ROW,
    RESULTS_ROW,
    {.id = 0}};

const struct verb_def resolve_verb = {
    .name = "resolve",
    .usage = "[OPTION...] NAME --done FILE|--failed|--retry",
    .about = "settle work that is in doubt",
    .story =
        "A command of --once whose runner died is in doubt: it may have done\n"
        "its work, or a part of it. vow status shows it, and it does not run\n"
        "again until vow resolve says what happened. The exit code is 66 if\n"
        "the name is not in doubt.\n"
        "\n"
        "  vow resolve charge:4711 --done receipt.txt\n"
        "  vow resolve charge:4711 --failed\n"
        "  vow resolve charge:4711 --retry\n",
    .operands = "NAME",
    .options = options,
    .run = cmd_resolve,
    .usage_code = EXIT_BROKEN};

struct answer {
    uint32_t how;     /* enum vow_what_happened; 0: no option given */
    const char *file; /* of --done */
    uint64_t ttl_ms;
    uint64_t fence; /* of --fence; 0: any */
    bool any_ttl;   /* --ttl was given */
};

static void resolve_read_option(struct answer *a, int id,
                                const struct options *o);
static void answer_set_how(struct answer *a, enum vow_what_happened how,
                           const struct options *o);
static uint64_t read_doubt_fence(const struct manage *m, const vow_name *name,
                                 uint32_t how);
static vow_bytes *answer_recording(const struct manage *m,
                                   const struct answer *a);
static void recording_add_file(struct recording *r, const char *path);

int cmd_resolve(int argc, char **argv)
{
    struct answer a = {.ttl_ms = DAY_MS};
    struct manage m = manage_of(&resolve_verb, argc, argv);
    for (int id; (id = manage_option(&m)) > 0;)
        resolve_read_option(&a, id, &m.options);
    if (a.how == 0)
        die(EXIT_BROKEN, "vow resolve: no answer given: use --done FILE, "
                         "--failed or --retry");
    if (a.any_ttl && a.how == VOW_DO_IT_AGAIN)
        die(EXIT_BROKEN, "vow resolve: --ttl cannot be combined with --retry");
    vow_name name = manage_open_name(&m);
    uint64_t fence = read_doubt_fence(&m, &name, a.how);
    int rc = VOW_ENOENT;
    if (fence != 0 && a.fence != 0 && a.fence != fence)
        say("vow resolve: '%s' is in doubt with fence %llu, not %llu", m.word,
            (unsigned long long)fence, (unsigned long long)a.fence);
    else if (fence != 0) {
        VOW_AUTO(vow_bytes) value = answer_recording(&m, &a);
        VOW_AUTO(vow_future)
        f = vow_authority_resolve(m.authority, &name, fence, a.how, value,
                                  a.ttl_ms);
        rc = manage_wait(&m, f);
        if (rc != 0)
            say("vow resolve: '%s' is not in doubt any more: another vow "
                "resolve was faster",
                m.word);
    }
    manage_close(&m);
    return rc == 0 ? 0 : EXIT_NOTHING;
}

static void resolve_read_option(struct answer *a, int id,
                                const struct options *o)
{
    const char *wrong = NULL;
    switch (id) {
    case ID_DONE:
        answer_set_how(a, VOW_IT_HAPPENED, o);
        a->file = o->value;
        break;
    case ID_FAILED:
        answer_set_how(a, VOW_IT_FAILED, o);
        break;
    case ID_RETRY:
        answer_set_how(a, VOW_DO_IT_AGAIN, o);
        break;
    case ID_TTL:
        wrong = units_duration(o->value, &a->ttl_ms);
        a->any_ttl = true;
        break;
    default:
        wrong = units_count(o->value, &a->fence);
        break;
    }
    if (wrong != NULL)
        options_refuse(o, wrong);
}

static void answer_set_how(struct answer *a, enum vow_what_happened how,
                           const struct options *o)
{
    if (a->how != 0)
        options_refuse(o, "use only one of --done, --failed and --retry");
    a->how = how;
}

/* Returns the fence of the run in doubt; or 0, after a message why the name is
 * not in doubt. */
static uint64_t read_doubt_fence(const struct manage *m, const vow_name *name,
                                 uint32_t how)
{
    VOW_AUTO(vow_future) f = vow_authority_peek(m->authority, name, 1);
    (void)manage_wait(m, f);
    const vow_records *r = vow_as_ptr(vow_get(f));
    uint32_t status =
        r != NULL && r->n == 1 ? r->at[0].status : VOW_STATUS_NONE;
    if (status == VOW_STATUS_DOUBT && how != VOW_DO_IT_AGAIN &&
        strncmp(r->at[0].label, LOCK_LABEL, strlen(LOCK_LABEL)) == 0)
        die(EXIT_BROKEN,
            "vow resolve: '%s' is a lock and has no result: use --retry to "
            "let the next holder in",
            m->word);
    if (status == VOW_STATUS_DOUBT)
        return r->at[0].epoch;
    say("vow resolve: '%s' is not in doubt: %s", m->word,
        status == VOW_STATUS_SETTLED ? "it has a result"
        : status == VOW_STATUS_NONE  ? "the store has no such name"
                                     : "it is running");
    return 0;
}

/* Makes the recording of a command that ended as the answer says; NULL for
 * --retry. */
static vow_bytes *answer_recording(const struct manage *m,
                                   const struct answer *a)
{
    struct recording r = {.kept = 0};
    vow_bytes *bytes = NULL;
    if (a->how == VOW_DO_IT_AGAIN)
        return NULL;
    if (a->how == VOW_IT_HAPPENED)
        recording_add_file(&r, a->file);
    recording_end(&r, (struct ending){.number = a->how == VOW_IT_FAILED});
    if (vow_bytes_new(m->loop, r.bytes.at, r.bytes.n, &bytes) < 0)
        die(EXIT_BROKEN, "vow resolve: out of memory");
    text_free(&r.bytes);
    return bytes;
}

static void recording_add_file(struct recording *r, const char *path)
{
    char piece[PIECE];
    ssize_t n;
    bool in = strcmp(path, "-") == 0;
    int fd = in ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        die(EXIT_BROKEN, "vow resolve: cannot open %s: %s", path,
            strerror(errno));
    while ((n = read(fd, piece, sizeof(piece))) > 0)
        recording_add(r, STDOUT_FILENO, piece, (size_t)n);
    if (n < 0)
        die(EXIT_BROKEN, "vow resolve: cannot read %s: %s", path,
            strerror(errno));
    if (!in)
        (void)close(fd);
}
