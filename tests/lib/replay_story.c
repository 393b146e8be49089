/* SPDX-License-Identifier: MIT */
/* replay_story.c - print a history of steps for a reader; see replay.h. */
#include "replay.h"

#include "vow/error.h"

#include <inttypes.h>

enum { STORY_LINES = 40 };

static const char *const KIND_NAMES[] = {
    [REPLAY_CLAIM] = "claim",   [REPLAY_PULSE] = "pulse",
    [REPLAY_COMMIT] = "commit", [REPLAY_FORGET] = "forget",
    [REPLAY_CANCEL] = "cancel", [REPLAY_WRITE] = "write",
    [REPLAY_PEEK] = "peek"};

static const char *const STATUS_WORDS[] = {
    "NONE", "OWNED", "WAITING", "SETTLED", "DOUBT", "LOST", "CANCELED", "BUSY"};

static void print_step(const struct replay_step *s, FILE *out)
{
    fprintf(out, "# %" PRIu64 ".%03u .. ", s->sent_us / 1000,
            (unsigned)(s->sent_us % 1000));
    if (s->done_us == RULES_NEVER)
        fprintf(out, "never");
    else
        fprintf(out, "%" PRIu64 ".%03u", s->done_us / 1000,
                (unsigned)(s->done_us % 1000));
    fprintf(out, " ms: %u: %s by %" PRIx64, s->caller, KIND_NAMES[s->kind],
            s->token);
    if (s->epoch != 0)
        fprintf(out, ", epoch %" PRIu64, s->epoch);
    fprintf(out, ", mode %u, flags %u, %" PRIu64 " ms", s->mode, s->flags,
            s->ms);
    if (s->kind == REPLAY_COMMIT)
        fprintf(out, ", outcome %u", s->outcome);
    if (s->waited != 0)
        fprintf(out, ", waited %" PRIu64, s->waited);
    if (!s->answered)
        fprintf(out, " -> no answer\n");
    else if (s->code != 0)
        fprintf(out, " -> %s\n", vow_error_name(s->code));
    else
        fprintf(out, " -> %s epoch %" PRIu64 " first %" PRIu64 " lost %u%s\n",
                STATUS_WORDS[s->status % 8], s->told_epoch, s->told_first,
                s->told_takeovers, s->told_failed ? " failed" : "");
}

/* The steps that were under way until the refused step was answered. */
void replay_print(const struct replay_step *steps, size_t n,
                  const struct replay_result *result, FILE *out)
{
    const struct replay_step *refused = &steps[result->step];
    size_t shown = 0, skip = 0;
    for (size_t i = 0; i < n; i++)
        shown += steps[i].sent_us <= refused->done_us;
    skip = shown > STORY_LINES ? shown - STORY_LINES : 0;
    if (skip > 0)
        fprintf(out, "# (%zu steps before)\n", skip);
    for (size_t i = 0; i < n; i++) {
        if (steps[i].sent_us > refused->done_us)
            continue;
        if (skip > 0)
            skip--;
        else
            print_step(&steps[i], out);
    }
    fprintf(out, "# no order of the steps explains this answer:\n");
    print_step(refused, out);
}
