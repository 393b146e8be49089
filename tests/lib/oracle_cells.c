/* SPDX-License-Identifier: MIT */
/* oracle_cells.c - the cells of the state table that steps reach; see oracle.h.
 */
#include "oracle.h"

#include <inttypes.h>
#include <string.h>

static const char *const VIEW_NAMES[] = {"NONE",  "RUNNING", "LAPSED",
                                         "DOUBT", "SETTLED", "SPENT"};

/* Views are bits, 1 << enum rules_view. */
#define ALL 63u
#define HELD                                                                   \
    (1u << RULES_VIEW_RUNNING | 1u << RULES_VIEW_LAPSED |                      \
     1u << RULES_VIEW_DOUBT)
#define SETTLED (1u << RULES_VIEW_SETTLED)
#define ENDED (1u << RULES_VIEW_SETTLED | 1u << RULES_VIEW_SPENT)

/* The name of each line, and the views in which the line can be reached. */
static const struct {
    const char *name;
    unsigned views;
} LINES[LINE_N] = {[LINE_CLAIM_SAME] = {"claim, same", HELD | ENDED},
                   [LINE_CLAIM_LEFT] = {"claim, left", ALL},
                   [LINE_CLAIM_OTHER] = {"claim, other", ALL},
                   [LINE_CLAIM_NOWAIT] = {"claim, nowait", ALL},
                   [LINE_CLAIM_FORCE] = {"claim, force", ALL},
                   [LINE_CLAIM_REFRESH] = {"claim, refresh", ALL},
                   [LINE_CLAIM_BEHIND] = {"claim, behind a refresher", SETTLED},
                   [LINE_CLAIM_REFRESHER] = {"claim, refresher", SETTLED},
                   [LINE_PULSE_SAME] = {"pulse, same", HELD | ENDED},
                   [LINE_PULSE_OTHER] = {"pulse, other", ALL},
                   [LINE_PULSE_STRICT] = {"pulse, fenced or once", ALL},
                   [LINE_PULSE_REFRESHER] = {"pulse, refresher", SETTLED},
                   [LINE_COMMIT_SAME] = {"commit, same", HELD | ENDED},
                   [LINE_COMMIT_OTHER] = {"commit, other", HELD | ENDED},
                   [LINE_COMMIT_NEWER] = {"commit, newer", ALL},
                   [LINE_COMMIT_STRICT] = {"commit, strict", ALL},
                   [LINE_ABANDON_SAME] = {"abandon, same", HELD | ENDED},
                   [LINE_ABANDON_OTHER] = {"abandon, other", ALL},
                   [LINE_COMMIT_REFRESHER] = {"commit, refresher", SETTLED},
                   [LINE_FAIL_REFRESHER] = {"fail, refresher", SETTLED},
                   [LINE_FAIL_REPEATED] = {"fail, repeated", SETTLED},
                   [LINE_PUT_OTHER] = {"put, other", HELD | ENDED},
                   [LINE_PUT_NEWER] = {"put, newer", ALL},
                   [LINE_RESOLVE_SAME] = {"resolve, same", HELD | ENDED},
                   [LINE_RESOLVE_OTHER] = {"resolve, other", ALL},
                   [LINE_FORGET_SAME] = {"forget, same", HELD | ENDED},
                   [LINE_FORGET_ANY] = {"forget, any", ALL},
                   [LINE_FORGET_OTHER] = {"forget, other", ALL},
                   [LINE_FORGET_REFRESHING] = {"forget, refreshing", SETTLED},
                   [LINE_CANCEL] = {"cancel", ALL},
                   [LINE_CANCEL_REFRESHING] = {"cancel, refreshing", SETTLED},
                   [LINE_CHUNK_SAME] = {"chunk, same", HELD},
                   [LINE_CHUNK_REPEATED] = {"chunk, repeated", HELD},
                   [LINE_CHUNK_BEYOND] = {"chunk, beyond", HELD},
                   [LINE_CHUNK_OTHER] = {"chunk, other", ALL},
                   [LINE_CHUNK_REFRESHER] = {"chunk, refresher", SETTLED},
                   [LINE_PEEK] = {"peek", ALL},
                   [LINE_PROMOTED] = {"promoted", 1u << RULES_VIEW_RUNNING |
                                                      1u << RULES_VIEW_LAPSED}};

bool oracle_missing(const struct oracle *o, uint64_t count, char *text,
                    size_t size)
{
    for (size_t line = 0; line < LINE_N; line++)
        for (size_t view = 0; view < ORACLE_VIEWS; view++)
            if ((LINES[line].views & 1u << view) != 0 &&
                o->reached[line][view] < count) {
                snprintf(text, size, "%s, view %s: %" PRIu64 " of %" PRIu64,
                         LINES[line].name, VIEW_NAMES[view],
                         o->reached[line][view], count);
                return true;
            }
    return false;
}

/* ---- lines of steps ------------------------------------------------------ */

static bool refresher_is(const struct rules_record *r, const vow_token *token)
{
    return r != NULL && r->refresh.epoch != 0 &&
           memcmp(&r->refresh.token, token, sizeof(*token)) == 0;
}

static bool refreshing(const struct oracle *o, const struct rules_record *r)
{
    return r != NULL && vow__rules_refreshing(r, o->now_us);
}

static bool same_token(const struct rules_record *r, const vow_token *token)
{
    return r != NULL && memcmp(&r->token, token, sizeof(*token)) == 0;
}

static bool same_owner(const struct rules_record *r, const vow_hold *hold)
{
    return same_token(r, &hold->token) && r->epoch == hold->epoch;
}

enum oracle_line oracle_claim_line(const struct oracle *o,
                                   const struct rules_record *r,
                                   const vow_claim_request *q, bool left)
{
    if (same_token(r, &q->token))
        return LINE_CLAIM_SAME;
    if ((q->flags & VOW_CLAIM_FORCE) != 0)
        return refreshing(o, r) ? LINE_CLAIM_BEHIND : LINE_CLAIM_FORCE;
    if (left)
        return LINE_CLAIM_LEFT;
    if (q->refresh != 0)
        return refresher_is(r, &q->token) && !r->refresh.failed
                   ? LINE_CLAIM_REFRESHER
                   : LINE_CLAIM_REFRESH;
    return (q->flags & VOW_CLAIM_NOWAIT) != 0 ? LINE_CLAIM_NOWAIT
                                              : LINE_CLAIM_OTHER;
}

enum oracle_line oracle_commit_line(const struct rules_record *r,
                                    const vow_commit_request *q)
{
    bool newer = r == NULL || q->hold.epoch > r->epoch;
    bool same = same_owner(r, &q->hold);
    if ((q->flags & VOW_COMMIT_RESOLVE) != 0)
        return r != NULL && r->epoch == q->hold.epoch ? LINE_RESOLVE_SAME
                                                      : LINE_RESOLVE_OTHER;
    if (refresher_is(r, &q->hold.token) && r->refresh.epoch == q->hold.epoch)
        return r->refresh.failed                ? LINE_FAIL_REPEATED
               : q->outcome == VOW_OUTCOME_DONE ? LINE_COMMIT_REFRESHER
                                                : LINE_FAIL_REFRESHER;
    if ((q->flags & VOW_COMMIT_PUT) != 0)
        return newer ? LINE_PUT_NEWER : LINE_PUT_OTHER;
    if (q->outcome == VOW_OUTCOME_ABANDONED)
        return same ? LINE_ABANDON_SAME : LINE_ABANDON_OTHER;
    if (same)
        return LINE_COMMIT_SAME;
    if ((q->flags & VOW_COMMIT_STRICT) != 0)
        return LINE_COMMIT_STRICT;
    return newer ? LINE_COMMIT_NEWER : LINE_COMMIT_OTHER;
}

enum oracle_line oracle_pulse_line(const struct rules_record *r,
                                   const vow_hold *hold)
{
    if (same_token(r, &hold->token))
        return LINE_PULSE_SAME;
    if (refresher_is(r, &hold->token))
        return LINE_PULSE_REFRESHER;
    return hold->mode == VOW_SHARED ? LINE_PULSE_OTHER : LINE_PULSE_STRICT;
}

enum oracle_line oracle_forget_line(const struct oracle *o,
                                    const struct rules_record *r,
                                    uint64_t epoch)
{
    if (refreshing(o, r))
        return LINE_FORGET_REFRESHING;
    if (epoch == 0)
        return LINE_FORGET_ANY;
    return r != NULL && epoch == r->epoch ? LINE_FORGET_SAME
                                          : LINE_FORGET_OTHER;
}

enum oracle_line oracle_cancel_line(const struct oracle *o,
                                    const struct rules_record *r)
{
    return refreshing(o, r) ? LINE_CANCEL_REFRESHING : LINE_CANCEL;
}

enum oracle_line oracle_chunk_line(const struct rules_record *r,
                                   const vow_hold *hold, uint64_t number)
{
    if (refresher_is(r, &hold->token))
        return LINE_CHUNK_REFRESHER;
    if (!same_owner(r, hold))
        return LINE_CHUNK_OTHER;
    if (number == r->chunks)
        return LINE_CHUNK_SAME;
    return number < r->chunks ? LINE_CHUNK_REPEATED : LINE_CHUNK_BEYOND;
}
