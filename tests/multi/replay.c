/* SPDX-License-Identifier: MIT */
/* replay.c - explains histories of steps on names by the rules (replay.h).
 *
 *   vow-replay <HISTORIES
 *
 * Reads lines of words:
 *
 *   history NAME ALLOWS SKEW_US KEEP_US     begins a history
 *   step KIND CALLER SENT_US DONE_US AGAIN_US UNDONE_US TOKEN EPOCH MODE FLAGS
 *       MS TAKEOVERS FLOOR WAITED CODE STATUS TELLS EPOCH FIRST LOST
 *   end                                     judges the history
 *
 * ALLOWS are words with commas, or -: late, early, forgot, left, any. KIND is
 * claim, pulse, done, failed, back, resolve or retry. TOKEN is hexadecimal.
 * CODE is 0, or below 0 for a step without an answer, which may happen until
 * DONE_US. TELLS are bits of replay.h.
 * A line with the verdict answers each history:
 *
 *   explained NAME
 *   wide NAME           too many orders
 *   refused NAME STEP   the step, counted from 0; the story follows, with #
 */
#include "replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_MAX_BYTES = 512, NAME_MAX_BYTES = 64 };

struct told_history {
    char name[NAME_MAX_BYTES];
    struct replay_opts opts;
    struct replay_step *steps;
    size_t n, room;
};

struct kind_word {
    const char *word;
    enum replay_kind kind;
    uint32_t outcome;
};

static const struct kind_word KINDS[] = {
    {"claim", REPLAY_CLAIM, 0},
    {"pulse", REPLAY_PULSE, 0},
    {"done", REPLAY_COMMIT, VOW_OUTCOME_DONE},
    {"resolve", REPLAY_COMMIT, VOW_OUTCOME_DONE},
    {"failed", REPLAY_COMMIT, VOW_OUTCOME_FAILED},
    {"back", REPLAY_COMMIT, VOW_OUTCOME_ABANDONED},
    {"retry", REPLAY_COMMIT, VOW_OUTCOME_ABANDONED}};

static const char *const ALLOW_WORDS[] = {"late", "early", "forgot", "left",
                                          "any"};

static _Noreturn void refuse_line(const char *line)
{
    fprintf(stderr, "vow-replay: not a line of a history: %s\n", line);
    exit(2);
}

static uint32_t read_allows(const char *words)
{
    uint32_t allows = 0;
    for (size_t i = 0; i < sizeof(ALLOW_WORDS) / sizeof(ALLOW_WORDS[0]); i++)
        if (strstr(words, ALLOW_WORDS[i]) != NULL)
            allows |= UINT32_C(1) << i;
    return allows;
}

static void read_history(struct told_history *h, const char *line)
{
    char allows[NAME_MAX_BYTES];
    h->n = 0;
    h->opts = (struct replay_opts){.allows = 0};
    if (sscanf(line, "history %63s %63s %" SCNu64 " %" SCNu64, h->name, allows,
               &h->opts.skew_us, &h->opts.recheck_ms) != 4)
        refuse_line(line);
    h->opts.allows = read_allows(allows);
}

static struct replay_step *new_step(struct told_history *h)
{
    if (h->n == h->room) {
        h->room = 2 * h->room + 256;
        h->steps = realloc(h->steps, h->room * sizeof(*h->steps));
        if (h->steps == NULL)
            abort();
    }
    h->steps[h->n] = (struct replay_step){.kind = REPLAY_CLAIM};
    return &h->steps[h->n++];
}

static void read_step(struct told_history *h, const char *line)
{
    struct replay_step *s = new_step(h);
    char word[16];
    const struct kind_word *kind = NULL;
    int n =
        sscanf(line,
               "step %15s %" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu64
               " %" SCNu64 " %" SCNx64 " %" SCNu64 " %" SCNu32 " %" SCNu32
               " %" SCNu64 " %" SCNu32 " %" SCNu64 " %" SCNu64 " %d %" SCNu32
               " %" SCNu32 " %" SCNu64 " %" SCNu64 " %" SCNu32,
               word, &s->caller, &s->sent_us, &s->done_us, &s->again_us,
               &s->undone_us, &s->token, &s->epoch, &s->mode, &s->flags, &s->ms,
               &s->takeovers, &s->floor, &s->waited, &s->code, &s->status,
               &s->tells, &s->told_epoch, &s->told_first, &s->told_takeovers);
    for (size_t i = 0; n == 20 && i < sizeof(KINDS) / sizeof(KINDS[0]); i++)
        if (strcmp(word, KINDS[i].word) == 0)
            kind = &KINDS[i];
    if (kind == NULL)
        refuse_line(line);
    s->kind = kind->kind;
    s->outcome = kind->outcome;
    s->answered = s->code == 0;
}

static void judge_history(const struct told_history *h)
{
    const struct replay_result r = replay_run(h->steps, h->n, &h->opts);
    if (r.verdict == REPLAY_EXPLAINED)
        printf("explained %s\n", h->name);
    else if (r.verdict == REPLAY_WIDE)
        printf("wide %s\n", h->name);
    else
        printf("refused %s %zu\n", h->name, r.step);
    if (r.verdict == REPLAY_REFUSED)
        replay_print(h->steps, h->n, &r, stdout);
    (void)fflush(stdout);
}

int main(void)
{
    char line[LINE_MAX_BYTES];
    struct told_history h = {.n = 0};
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (strncmp(line, "history ", 8) == 0)
            read_history(&h, line);
        else if (strncmp(line, "step ", 5) == 0)
            read_step(&h, line);
        else if (strcmp(line, "end\n") == 0)
            judge_history(&h);
        else
            refuse_line(line);
    }
    free(h.steps);
    return 0;
}
