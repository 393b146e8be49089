/* SPDX-License-Identifier: MIT */
/* rules.c - the protocol of named work: claim, pulse, commit, and managing.
 *
 * HOW   Each rule makes the record current, finds the view, and reads a line of
 *       this table. `same`: the record has the token of the request; for commit
 *       and chunk also the epoch. The first line of a step that fits decides.
 *
 *   step            NONE     RUNNING   LAPSED    DOUBT     SETTLED    SPENT
 *   claim, same     -        OWNED     OWNED     OWNED     SETTLED    SETTLED
 *   claim, left     SETTLED with the result that was left; not with FORCE
 *   claim, refresh  other    other     other     other     refresher, other
 *                                                          or SETTLED;
 *                                                          once: SETTLED
 *   claim, other    OWNED    WAITING   OWNED or  DOUBT     SETTLED;   OWNED
 *                                      gave up             FORCE: OWNED
 *   pulse, same     -        OWNED or CANCELED             SETTLED    SETTLED
 *   pulse, other    OWNED;   LOST      LOST      LOST      SETTLED;   SETTLED
 *                   fenced or once: LOST                   refresher: OWNED
 *   commit, same    -        settles   settles   settles   OWNED      OWNED
 *   commit, other   settles; LOST      LOST      LOST      SETTLED;   LOST;
 *                   STRICT: NONE;               refresher: settles    newer:
 *                   ABANDONED: OWNED            or keeps the result   as NONE
 *   resolve         NONE     LOST      LOST      settles   SETTLED    LOST
 *   forget          NONE     WAITING;  NONE      deletes   deletes    NONE
 *                            smaller epoch: NONE
 *   cancel          NONE     asks      NONE      DOUBT     SETTLED;   NONE
 *                                                 refresher: asks
 *   chunk, same     -        appends   appends   appends   LOST       LOST
 *
 * INVARIANTS  R1 to R6 in rules.h; every function here is pure.
 * THREADS  any.
 */
#include "store/rules/rules.h"
#include "base/assert.h"
#include "vow/error.h"

#include <string.h>

/* A step: the record as of now, all zeros if the view is NONE. */
struct step {
    struct rules_record r;
    enum rules_view view;
    struct rules_now now;
    uint64_t above; /* largest epoch of the stored record, expired or not */
    bool runs;      /* the view is RUNNING, LAPSED or DOUBT */
    bool stale;     /* the stored record is not `r`: the result has expired */
};

static const vow_token NO_TOKEN;

/* ---- records ----------------------------------------------------------- */

static bool tokens_equal(const vow_token *a, const vow_token *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static uint64_t us_plus(uint64_t a, uint64_t b)
{
    return b > RULES_NEVER - a ? RULES_NEVER : a + b;
}

static uint64_t us_from_ms(uint64_t ms)
{
    return ms > RULES_NEVER / 1000 ? RULES_NEVER : ms * 1000;
}

static uint64_t larger_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns the running record of the refresher, without the result. */
static struct rules_record refresher_run(const struct rules_record *r)
{
    const struct rules_refresh *f = &r->refresh;
    return (struct rules_record){.state = RULES_RUNNING,
                                 .mode = r->mode,
                                 .canceled = f->canceled,
                                 .token = f->token,
                                 .epoch = f->epoch,
                                 .first = f->epoch,
                                 .since_us = f->since_us,
                                 .end_us = f->end_us,
                                 .lease_us = f->lease_us};
}

/* Returns the record as of now: a result that has expired beside a refresher is
 * the running record of the refresher. */
static struct rules_record record_current(const struct rules_record *r,
                                          uint64_t now_us)
{
    static const struct rules_record none;
    if (r == NULL)
        return none;
    if (r->state != RULES_DONE || r->end_us > now_us || r->refresh.epoch == 0 ||
        r->refresh.failed)
        return *r;
    return refresher_run(r);
}

enum rules_view vow__rules_view(const struct rules_record *r, uint64_t now_us)
{
    const struct rules_record c = record_current(r, now_us);
    if (c.state == RULES_NONE)
        return RULES_VIEW_NONE;
    if (c.state != RULES_RUNNING)
        return c.end_us <= now_us ? RULES_VIEW_NONE
               : c.spent          ? RULES_VIEW_SPENT
                                  : RULES_VIEW_SETTLED;
    if (c.end_us > now_us)
        return RULES_VIEW_RUNNING;
    if (c.mode == VOW_ONCE)
        return RULES_VIEW_DOUBT;
    return us_plus(c.end_us, RULES_DAY_US) <= now_us ? RULES_VIEW_NONE
                                                     : RULES_VIEW_LAPSED;
}

bool vow__rules_refreshing(const struct rules_record *r, uint64_t now_us)
{
    const struct rules_refresh *f = &r->refresh;
    return f->epoch != 0 && !f->failed && f->end_us > now_us;
}

uint32_t vow__rules_peek(const struct rules_record *r, uint64_t now_us)
{
    static const uint8_t statuses[] = {
        [RULES_VIEW_NONE] = VOW_STATUS_NONE,
        [RULES_VIEW_RUNNING] = VOW_STATUS_WAITING,
        [RULES_VIEW_LAPSED] = VOW_STATUS_NONE,
        [RULES_VIEW_DOUBT] = VOW_STATUS_DOUBT,
        [RULES_VIEW_SETTLED] = VOW_STATUS_SETTLED,
        [RULES_VIEW_SPENT] = VOW_STATUS_NONE};
    return statuses[vow__rules_view(r, now_us)];
}

/* Asserts R6. */
static void check_none(const struct rules_record *r)
{
    VOW__ASSERT(r->mode == 0 && !r->canceled && !r->spent);
    VOW__ASSERT((r->takeovers | r->chunks | r->chunk_bytes) == 0);
    VOW__ASSERT((r->epoch | r->first | r->refresh.epoch) == 0);
    VOW__ASSERT((r->since_us | r->end_us | r->lease_us | r->cost_ms) == 0);
    VOW__ASSERT(tokens_equal(&r->token, &NO_TOKEN));
}

/* Asserts R4, R6 and, for the refresher, R3. */
static void check_refresh(const struct rules_record *r)
{
    const struct rules_refresh *f = &r->refresh;
    if (f->epoch == 0) {
        VOW__ASSERT(tokens_equal(&f->token, &NO_TOKEN));
        VOW__ASSERT((f->since_us | f->end_us | f->lease_us) == 0);
        VOW__ASSERT(!f->failed && !f->canceled);
        return;
    }
    VOW__ASSERT(r->state == RULES_DONE && !r->spent && r->mode != VOW_ONCE);
    VOW__ASSERT(f->epoch > r->epoch && f->epoch <= RULES_EPOCH_MAX);
    VOW__ASSERT(!tokens_equal(&f->token, &NO_TOKEN));
}

void vow__rules_check(const struct rules_record *r)
{
    bool owned = !tokens_equal(&r->token, &NO_TOKEN);
    bool runs = r->state == RULES_RUNNING;
    check_refresh(r);
    if (r->state == RULES_NONE) {
        check_none(r);
        return;
    }
    VOW__ASSERT(r->state <= RULES_GAVE_UP && r->mode <= VOW_ONCE);
    VOW__ASSERT(!runs || owned);                                     /* R1 */
    VOW__ASSERT(r->state != RULES_GAVE_UP || (!owned && !r->spent)); /* R2 */
    VOW__ASSERT(r->first <= r->epoch);                               /* R3 */
    VOW__ASSERT(r->epoch <= RULES_EPOCH_MAX);
    VOW__ASSERT(runs || !r->canceled); /* R5 */
    VOW__ASSERT(runs || (r->chunks == 0 && r->chunk_bytes == 0));
    VOW__ASSERT(!runs || !r->spent);
}

static bool is_owner(const struct rules_record *r, const vow_hold *hold)
{
    return r->state != RULES_GAVE_UP && r->epoch == hold->epoch &&
           tokens_equal(&r->token, &hold->token);
}

static bool is_refresher(const struct rules_record *r, const vow_token *token)
{
    return r->refresh.epoch != 0 && !r->refresh.failed &&
           tokens_equal(&r->refresh.token, token);
}

/* ---- steps and decisions ----------------------------------------------- */

static struct step begin_step(const struct rules_record *r,
                              struct rules_now now)
{
    struct step s = {.view = vow__rules_view(r, now.now_us), .now = now};
    VOW__DEBUG_ASSERT(r == NULL || (vow__rules_check(r), true));
    if (s.view != RULES_VIEW_NONE)
        s.r = record_current(r, now.now_us);
    s.runs = s.r.state == RULES_RUNNING;
    if (r != NULL) {
        s.above = larger_of(r->epoch, r->refresh.epoch);
        s.stale = r->state != s.r.state;
    }
    return s;
}

/* Completes a decision: the old value goes, and until when the store keeps the
 * record. */
static struct decision end_step(const struct step *s, struct decision d)
{
    const struct rules_record *next = &d.next;
    const struct rules_refresh *f = &next->refresh;
    if (d.code != 0)
        return d;
    VOW__DEBUG_ASSERT((vow__rules_check(next), true));
    if (s->stale && (d.effects & EFFECT_WRITE) != 0)
        d.effects |= EFFECT_CLEAR;
    d.keep_until_us = next->end_us;
    if (next->state == RULES_RUNNING)
        d.keep_until_us = next->mode == VOW_ONCE
                              ? RULES_NEVER
                              : us_plus(next->end_us, RULES_DAY_US);
    else if (f->epoch != 0 && !f->failed)
        d.keep_until_us =
            larger_of(next->end_us, us_plus(f->end_us, RULES_DAY_US));
    return d;
}

static struct decision refuse_step(int code)
{
    return (struct decision){.code = code};
}

static struct decision decide_step(const struct rules_record *next,
                                   uint32_t status, uint32_t effects)
{
    return (struct decision){.status = status,
                             .effects = effects,
                             .epoch = next->epoch,
                             .first = next->first,
                             .next = *next};
}

/* The answer is about the refresher. */
static struct decision decide_refresh(const struct rules_record *next,
                                      uint32_t status, uint32_t effects)
{
    struct decision d = decide_step(next, status, effects);
    d.refresh = true;
    d.epoch = d.first = next->refresh.epoch;
    return d;
}

static struct decision delete_record(uint32_t status, uint32_t effects)
{
    static const struct rules_record none;
    return decide_step(&none, status, effects | EFFECT_WRITE | EFFECT_CLEAR);
}

/* ---- pulse ------------------------------------------------------------- */

static uint32_t renewed_status(bool canceled)
{
    return canceled ? VOW_STATUS_CANCELED : VOW_STATUS_OWNED;
}

static struct decision renew_owner(const struct step *s, uint64_t lease_ms)
{
    struct rules_record next = s->r;
    next.lease_us = us_from_ms(lease_ms);
    next.end_us = us_plus(s->now.now_us, next.lease_us);
    return decide_step(&next, renewed_status(next.canceled), EFFECT_WRITE);
}

static struct decision renew_refresher(const struct step *s, uint64_t lease_ms)
{
    struct rules_record next = s->r;
    struct rules_refresh *f = &next.refresh;
    f->lease_us = us_from_ms(lease_ms);
    f->end_us = us_plus(s->now.now_us, f->lease_us);
    return decide_refresh(&next, renewed_status(f->canceled), EFFECT_WRITE);
}

/* The record has vanished: a flush, a failover, a removed folder. Shared work
 * goes on with its own epoch; fenced work and work of mode once does not. */
static struct decision revive_owner(const struct step *s, const vow_hold *hold,
                                    uint32_t mode, uint64_t lease_ms)
{
    if (mode != VOW_SHARED)
        return decide_step(&s->r, VOW_STATUS_LOST, 0);
    if (tokens_equal(&hold->token, &NO_TOKEN))
        return refuse_step(VOW_EINVAL);
    struct step again = *s;
    again.r = (struct rules_record){.state = RULES_RUNNING,
                                    .mode = VOW_SHARED,
                                    .token = hold->token,
                                    .epoch = hold->epoch,
                                    .first = hold->epoch,
                                    .since_us = s->now.now_us};
    return renew_owner(&again, lease_ms);
}

struct decision vow__rules_pulse(const struct rules_record *r,
                                 const vow_hold *hold, uint32_t mode,
                                 uint64_t lease_ms, struct rules_now now)
{
    const struct step s = begin_step(r, now);
    struct decision d;
    if (hold->epoch > RULES_EPOCH_MAX || mode > VOW_ONCE)
        return refuse_step(VOW_EINVAL);
    if (s.view == RULES_VIEW_NONE)
        d = revive_owner(&s, hold, mode, lease_ms);
    else if (s.runs && tokens_equal(&s.r.token, &hold->token))
        d = renew_owner(&s, lease_ms);
    else if (s.runs)
        d = decide_step(&s.r, VOW_STATUS_LOST, 0);
    else if (is_refresher(&s.r, &hold->token))
        d = renew_refresher(&s, lease_ms);
    else
        d = decide_step(&s.r, VOW_STATUS_SETTLED, 0);
    return end_step(&s, d);
}

/* ---- claim ------------------------------------------------------------- */

/* Returns an epoch above all epochs before; above RULES_EPOCH_MAX, the claim is
 * refused. */
static uint64_t grant_epoch(const struct step *s, const vow_claim_request *q)
{
    return larger_of(s->now.number, larger_of(s->above, q->floor) + 1);
}

/* The caller owns the name. `first` 0: the name was free. */
static struct decision grant_claim(const struct step *s,
                                   const vow_claim_request *q, uint64_t first)
{
    uint64_t lease_us = us_from_ms(q->lease_ms);
    uint64_t epoch = grant_epoch(s, q);
    if (epoch > RULES_EPOCH_MAX)
        return refuse_step(VOW_EINVAL);
    const struct rules_record next = {.state = RULES_RUNNING,
                                      .mode = (uint8_t)q->mode,
                                      .token = q->token,
                                      .epoch = epoch,
                                      .first = first != 0 ? first : epoch,
                                      .since_us = s->now.now_us,
                                      .end_us =
                                          us_plus(s->now.now_us, lease_us),
                                      .lease_us = lease_us};
    return decide_step(&next, VOW_STATUS_OWNED,
                       EFFECT_WRITE | EFFECT_TEXTS | EFFECT_CLEAR);
}

static struct decision give_up_run(const struct step *s)
{
    struct rules_record next = s->r;
    next.state = RULES_GAVE_UP;
    next.canceled = false;
    next.token = NO_TOKEN;
    next.chunks = 0;
    next.chunk_bytes = 0;
    next.since_us = s->now.now_us;
    next.end_us = us_plus(s->now.now_us, RULES_MINUTE_US);
    return decide_step(&next, VOW_STATUS_SETTLED,
                       EFFECT_WRITE | EFFECT_CLEAR | EFFECT_WAKE | EFFECT_SHOW);
}

/* The next owner takes over, or the work is given up. A lease that lapsed a
 * minute ago or earlier does not count as a takeover. */
static struct decision claim_lapsed(const struct step *s,
                                    const vow_claim_request *q)
{
    bool force = (q->flags & VOW_CLAIM_FORCE) != 0;
    bool long_ago = us_plus(s->r.end_us, RULES_MINUTE_US) <= s->now.now_us;
    if (!force && !long_ago && s->r.takeovers >= q->takeovers)
        return give_up_run(s);
    struct decision d = grant_claim(s, q, s->r.first);
    d.next.takeovers = long_ago ? 0 : s->r.takeovers + 1;
    return d;
}

/* The owner, or the refresher beside a result, is at work. */
static struct decision wait_for_owner(const struct step *s,
                                      const vow_claim_request *q)
{
    uint32_t effects = (q->flags & VOW_CLAIM_NOWAIT) != 0 ? 0 : EFFECT_WAIT;
    return s->runs ? decide_step(&s->r, VOW_STATUS_WAITING, effects)
                   : decide_refresh(&s->r, VOW_STATUS_WAITING, effects);
}

/* The name has a result. The refresher of this token is renewed. A result of
 * the epoch that the caller read gets a refresher, unless a refresher is at
 * work or has failed a moment ago. Mode once is never refreshed: keeps R4. */
static struct decision claim_refresh(const struct step *s,
                                     const vow_claim_request *q,
                                     uint64_t refresh)
{
    const struct rules_refresh *f = &s->r.refresh;
    bool once = s->r.mode == VOW_ONCE || q->mode == VOW_ONCE;
    if (!once && is_refresher(&s->r, &q->token)) {
        struct decision d = renew_refresher(s, q->lease_ms);
        d.status = VOW_STATUS_OWNED;
        return d;
    }
    if (once || s->r.state != RULES_DONE || s->r.epoch != refresh ||
        (f->epoch != 0 && f->end_us > s->now.now_us))
        return decide_step(&s->r, VOW_STATUS_SETTLED, 0);
    uint64_t lease_us = us_from_ms(q->lease_ms);
    struct rules_record next = s->r;
    next.refresh =
        (struct rules_refresh){.token = q->token,
                               .epoch = grant_epoch(s, q),
                               .since_us = s->now.now_us,
                               .end_us = us_plus(s->now.now_us, lease_us),
                               .lease_us = lease_us};
    if (next.refresh.epoch > RULES_EPOCH_MAX)
        return refuse_step(VOW_EINVAL);
    return decide_refresh(&next, VOW_STATUS_OWNED, EFFECT_WRITE);
}

static struct decision claim_other(const struct step *s,
                                   const vow_claim_request *q)
{
    bool force = (q->flags & VOW_CLAIM_FORCE) != 0;
    if (s->view == RULES_VIEW_RUNNING)
        return wait_for_owner(s, q);
    if (s->view == RULES_VIEW_LAPSED)
        return claim_lapsed(s, q);
    if (s->view == RULES_VIEW_DOUBT)
        return decide_step(&s->r, VOW_STATUS_DOUBT, 0);
    if (s->view == RULES_VIEW_SETTLED && !force)
        return decide_step(&s->r, VOW_STATUS_SETTLED, EFFECT_SHOW);
    if (s->view == RULES_VIEW_SETTLED &&
        vow__rules_refreshing(&s->r, s->now.now_us))
        return wait_for_owner(s, q);
    return grant_claim(s, q, 0);
}

struct decision vow__rules_claim(const struct rules_record *r,
                                 const struct rules_record *left,
                                 const vow_claim_request *request,
                                 uint64_t refresh, struct rules_now now)
{
    const struct step s = begin_step(r, now);
    bool same =
        s.r.state != RULES_NONE && tokens_equal(&s.r.token, &request->token);
    bool force = (request->flags & VOW_CLAIM_FORCE) != 0;
    struct decision d;
    if (request->floor > RULES_EPOCH_MAX || request->mode > VOW_ONCE ||
        tokens_equal(&request->token, &NO_TOKEN))
        return refuse_step(VOW_EINVAL);
    if (same && s.runs) {
        d = renew_owner(&s, request->lease_ms);
        d.status = VOW_STATUS_OWNED; /* a cancel is told by the next pulse */
    } else if (same) {
        d = decide_step(&s.r, VOW_STATUS_SETTLED, s.r.spent ? 0 : EFFECT_SHOW);
    } else if (left != NULL && !force) {
        d = decide_step(&s.r, VOW_STATUS_SETTLED, EFFECT_SHOW);
        d.left = true;
        d.epoch = left->epoch;
        d.first = left->first;
    } else if (refresh != 0 && s.view == RULES_VIEW_SETTLED) {
        d = claim_refresh(&s, request, refresh);
    } else {
        d = claim_other(&s, request);
    }
    if (d.code == 0 && d.status != VOW_STATUS_WAITING)
        d.effects |= EFFECT_UNWAIT;
    return end_step(&s, d);
}

/* ---- commit ------------------------------------------------------------ */

/* Settles the run `r`, or with state NONE a name that has none. A time to live
 * of 0 leaves the value for the claims that waited for the run. */
static struct decision settle_record(const struct step *s,
                                     const struct rules_record *r,
                                     const vow_commit_request *q)
{
    bool ran = r->state != RULES_NONE;
    bool spent = q->ttl_ms == 0;
    uint64_t kept_us =
        spent ? us_plus(s->now.keep_us, r->lease_us) : us_from_ms(q->ttl_ms);
    const struct rules_record next = {
        .state = q->outcome == VOW_OUTCOME_FAILED ? RULES_FAILED : RULES_DONE,
        .mode = ran ? r->mode : VOW_SHARED,
        .spent = spent,
        .takeovers = r->takeovers,
        .token = q->hold.token,
        .epoch = q->hold.epoch,
        .first = ran ? r->first : q->hold.epoch,
        .since_us = s->now.now_us,
        .end_us = us_plus(s->now.now_us, kept_us),
        .lease_us = r->lease_us,
        .cost_ms = q->cost_ms};
    if (spent && s->now.exact && next.first == next.epoch)
        return delete_record(VOW_STATUS_OWNED, 0);
    return decide_step(&next, VOW_STATUS_OWNED,
                       EFFECT_WRITE | EFFECT_TEXTS | EFFECT_VALUE |
                           EFFECT_CLEAR | EFFECT_WAKE |
                           (spent ? EFFECT_LEAVE : 0u));
}

static struct decision commit_none(const struct step *s,
                                   const vow_commit_request *q)
{
    static const struct rules_record none;
    if (q->outcome == VOW_OUTCOME_ABANDONED)
        return decide_step(&s->r, VOW_STATUS_OWNED, 0);
    if ((q->flags & VOW_COMMIT_STRICT) != 0)
        return decide_step(&s->r, VOW_STATUS_NONE, 0);
    return settle_record(s, &none, q);
}

static struct decision commit_running(const struct step *s,
                                      const vow_commit_request *q)
{
    bool put = (q->flags & VOW_COMMIT_PUT) != 0;
    if (put || !is_owner(&s->r, &q->hold))
        return decide_step(&s->r, VOW_STATUS_LOST, 0);
    if (q->outcome == VOW_OUTCOME_ABANDONED)
        return delete_record(VOW_STATUS_OWNED, EFFECT_WAKE);
    return settle_record(s, &s->r, q);
}

/* A refresh that failed keeps the old result, and lets no other refresh begin
 * for a second; a refresh that was abandoned, at once. The refresher stays in
 * the record, so that a repeated commit has the same answer. */
static struct decision commit_refresh(const struct step *s,
                                      const vow_commit_request *q)
{
    struct rules_record next = s->r;
    if (q->outcome == VOW_OUTCOME_DONE) {
        next = refresher_run(&s->r);
        return settle_record(s, &next, q);
    }
    next.refresh.failed = true;
    next.refresh.canceled = false;
    next.refresh.end_us = s->now.now_us;
    if (q->outcome == VOW_OUTCOME_FAILED)
        next.refresh.end_us = us_plus(s->now.now_us, RULES_REFRESH_PAUSE_US);
    return decide_refresh(&next, VOW_STATUS_OWNED, EFFECT_WRITE);
}

static struct decision commit_settled(const struct step *s,
                                      const vow_commit_request *q)
{
    const struct rules_refresh *f = &s->r.refresh;
    bool put = (q->flags & VOW_COMMIT_PUT) != 0;
    bool newer = q->hold.epoch > s->r.epoch;
    bool refresher = f->epoch != 0 && f->epoch == q->hold.epoch &&
                     tokens_equal(&f->token, &q->hold.token);
    if (is_owner(&s->r, &q->hold)) /* the step came twice */
        return decide_step(&s->r, VOW_STATUS_OWNED, 0);
    if (s->r.spent)
        return put || newer ? commit_none(s, q)
                            : decide_step(&s->r, VOW_STATUS_LOST, 0);
    if (refresher && !f->failed)
        return commit_refresh(s, q);
    if (refresher && q->outcome != VOW_OUTCOME_DONE) /* the step came twice */
        return decide_refresh(&s->r, VOW_STATUS_OWNED, 0);
    return put && newer ? commit_none(s, q)
                        : decide_step(&s->r, VOW_STATUS_SETTLED, EFFECT_SHOW);
}

/* A doubt is settled by the epoch alone. Asked about any other record, the rule
 * answers and changes nothing. */
static struct decision resolve_doubt(const struct step *s,
                                     const vow_commit_request *q)
{
    bool doubt = s->view == RULES_VIEW_DOUBT && s->r.epoch == q->hold.epoch;
    if (s->view == RULES_VIEW_NONE)
        return decide_step(&s->r, VOW_STATUS_NONE, 0);
    if (doubt && q->outcome == VOW_OUTCOME_ABANDONED)
        return delete_record(VOW_STATUS_OWNED, EFFECT_WAKE);
    if (doubt)
        return settle_record(s, &s->r, q);
    if (s->runs)
        return decide_step(&s->r, VOW_STATUS_LOST, 0);
    if (is_owner(&s->r, &q->hold))
        return decide_step(&s->r, VOW_STATUS_OWNED, 0);
    return s->r.spent ? decide_step(&s->r, VOW_STATUS_LOST, 0)
                      : decide_step(&s->r, VOW_STATUS_SETTLED, EFFECT_SHOW);
}

struct decision vow__rules_commit(const struct rules_record *r,
                                  const vow_commit_request *request,
                                  struct rules_now now)
{
    const struct step s = begin_step(r, now);
    struct decision d;
    if (request->outcome < VOW_OUTCOME_DONE ||
        request->outcome > VOW_OUTCOME_ABANDONED ||
        request->hold.epoch > RULES_EPOCH_MAX)
        return refuse_step(VOW_EINVAL);
    if ((request->flags & VOW_COMMIT_RESOLVE) != 0)
        d = resolve_doubt(&s, request);
    else if (s.view == RULES_VIEW_NONE)
        d = commit_none(&s, request);
    else if (s.runs)
        d = commit_running(&s, request);
    else
        d = commit_settled(&s, request);
    if (d.status == VOW_STATUS_OWNED)
        d.epoch = request->hold.epoch;
    return end_step(&s, d);
}

/* ---- managing ---------------------------------------------------------- */

struct decision vow__rules_forget(const struct rules_record *r, uint64_t epoch,
                                  struct rules_now now)
{
    const struct step s = begin_step(r, now);
    bool result = s.view == RULES_VIEW_SETTLED || s.view == RULES_VIEW_DOUBT;
    uint32_t status = vow__rules_peek(r, now.now_us);
    if (s.view == RULES_VIEW_RUNNING && epoch != 0 && epoch < s.r.epoch)
        status = VOW_STATUS_NONE; /* the run of this epoch is gone */
    if (!result || (epoch != 0 && epoch != s.r.epoch))
        return end_step(&s, decide_step(&s.r, status, 0));
    if (!vow__rules_refreshing(&s.r, now.now_us))
        return end_step(&s, delete_record(VOW_STATUS_NONE, EFFECT_WAKE));
    if (epoch == 0)
        return end_step(&s, decide_step(&s.r, VOW_STATUS_WAITING, 0));
    const struct rules_record next = refresher_run(&s.r);
    return end_step(
        &s, decide_step(&next, VOW_STATUS_NONE, EFFECT_WRITE | EFFECT_CLEAR));
}

struct decision vow__rules_cancel(const struct rules_record *r,
                                  struct rules_now now)
{
    const struct step s = begin_step(r, now);
    const uint32_t effects = EFFECT_WRITE | EFFECT_TELL_OWNER;
    struct rules_record next = s.r;
    if (s.view == RULES_VIEW_RUNNING) {
        next.canceled = true;
        return end_step(&s, decide_step(&next, VOW_STATUS_WAITING, effects));
    }
    if (s.view == RULES_VIEW_SETTLED &&
        vow__rules_refreshing(&s.r, now.now_us)) {
        next.refresh.canceled = true;
        return end_step(&s, decide_refresh(&next, VOW_STATUS_WAITING, effects));
    }
    return end_step(&s, decide_step(&s.r, vow__rules_peek(r, now.now_us), 0));
}

struct decision vow__rules_chunk(const struct rules_record *r,
                                 const vow_hold *hold, uint32_t number,
                                 size_t size, size_t most, struct rules_now now)
{
    const struct step s = begin_step(r, now);
    bool refreshes =
        is_refresher(&s.r, &hold->token) && s.r.refresh.epoch == hold->epoch;
    struct rules_record next = s.r;
    if (!refreshes && !(s.runs && is_owner(&s.r, hold)))
        return end_step(&s, decide_step(&s.r, VOW_STATUS_LOST, 0));
    if (refreshes || number != s.r.chunks) /* no follower can read the chunk */
        return end_step(&s, decide_step(&s.r, VOW_STATUS_OWNED, 0));
    if (size > most || s.r.chunk_bytes > most - size)
        return refuse_step(VOW_E2BIG);
    next.chunks++;
    next.chunk_bytes += size;
    return end_step(
        &s, decide_step(&next, VOW_STATUS_OWNED, EFFECT_WRITE | EFFECT_CHUNK));
}
