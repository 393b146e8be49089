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

/* A step. Nothing is copied before the decision needs a copy. */
struct step {
    const struct rules_record *r; /* as of now; all zeros if the view is NONE */
    struct rules_record owner;    /* is `r`, if the refresher is the owner */
    enum rules_view view;
    const struct rules_now *now;
    uint64_t above; /* largest epoch of the stored record, expired or not */
    bool runs;      /* the view is RUNNING, LAPSED or DOUBT */
    bool stale;     /* the stored record is not `r`: the result has expired */
};

static const struct rules_record NO_RECORD;
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

struct rules_record vow__rules_refresher(const struct rules_record *r)
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

/* The result has expired beside a refresher. */
static bool refresher_owns(const struct rules_record *r, uint64_t now_us)
{
    return r->state == RULES_DONE && r->end_us <= now_us &&
           r->refresh.epoch != 0 && !r->refresh.failed;
}

struct rules_record vow__rules_current(const struct rules_record *r,
                                       uint64_t now_us)
{
    if (r == NULL)
        return NO_RECORD;
    return refresher_owns(r, now_us) ? vow__rules_refresher(r) : *r;
}

static enum rules_view lease_view(uint64_t end_us, uint8_t mode,
                                  uint64_t now_us)
{
    if (end_us > now_us)
        return RULES_VIEW_RUNNING;
    if (mode == VOW_ONCE)
        return RULES_VIEW_DOUBT;
    return us_plus(end_us, RULES_DAY_US) <= now_us ? RULES_VIEW_NONE
                                                   : RULES_VIEW_LAPSED;
}

enum rules_view vow__rules_view(const struct rules_record *r, uint64_t now_us)
{
    if (r == NULL || r->state == RULES_NONE)
        return RULES_VIEW_NONE;
    if (r->state == RULES_RUNNING)
        return lease_view(r->end_us, r->mode, now_us);
    if (r->end_us > now_us)
        return r->spent ? RULES_VIEW_SPENT : RULES_VIEW_SETTLED;
    return refresher_owns(r, now_us)
               ? lease_view(r->refresh.end_us, r->mode, now_us)
               : RULES_VIEW_NONE;
}

bool vow__rules_refreshing(const struct rules_record *r, uint64_t now_us)
{
    const struct rules_refresh *f = &r->refresh;
    return f->epoch != 0 && !f->failed && f->end_us > now_us;
}

static uint32_t status_of_view(enum rules_view view)
{
    static const uint8_t statuses[] = {
        [RULES_VIEW_NONE] = VOW_STATUS_NONE,
        [RULES_VIEW_RUNNING] = VOW_STATUS_WAITING,
        [RULES_VIEW_LAPSED] = VOW_STATUS_NONE,
        [RULES_VIEW_DOUBT] = VOW_STATUS_DOUBT,
        [RULES_VIEW_SETTLED] = VOW_STATUS_SETTLED,
        [RULES_VIEW_SPENT] = VOW_STATUS_NONE};
    return statuses[view];
}

uint32_t vow__rules_peek(const struct rules_record *r, uint64_t now_us)
{
    return status_of_view(vow__rules_view(r, now_us));
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

static void begin_step(struct step *s, const struct rules_record *r,
                       const struct rules_now *now)
{
    VOW__DEBUG_ASSERT(r == NULL || (vow__rules_check(r), true));
    s->now = now;
    s->view = vow__rules_view(r, now->now_us);
    s->above = r == NULL ? 0 : larger_of(r->epoch, r->refresh.epoch);
    s->r = s->view == RULES_VIEW_NONE ? &NO_RECORD : r;
    if (refresher_owns(s->r, now->now_us)) {
        s->owner = vow__rules_refresher(r);
        s->r = &s->owner;
    }
    s->runs = s->r->state == RULES_RUNNING;
    s->stale = r != NULL && r->state != s->r->state;
}

/* Completes a decision: the old value goes, and until when the store keeps the
 * record. */
static void end_step(const struct step *s, struct decision *d)
{
    const struct rules_record *next = &d->next;
    const struct rules_refresh *f = &next->refresh;
    if (d->code != 0)
        return;
    VOW__DEBUG_ASSERT((vow__rules_check(next), true));
    if (s->stale && (d->effects & EFFECT_WRITE) != 0)
        d->effects |= EFFECT_CLEAR;
    d->keep_until_us = next->end_us;
    if (next->state == RULES_RUNNING)
        d->keep_until_us = next->mode == VOW_ONCE
                               ? RULES_NEVER
                               : us_plus(next->end_us, RULES_DAY_US);
    else if (f->epoch != 0 && !f->failed)
        d->keep_until_us =
            larger_of(next->end_us, us_plus(f->end_us, RULES_DAY_US));
}

static void refuse_step(int code, struct decision *d)
{
    *d = (struct decision){.code = code};
}

/* The answer is about d->next. */
static void decide_next(uint32_t status, uint32_t effects, struct decision *d)
{
    d->code = 0;
    d->status = status;
    d->effects = effects;
    d->left = false;
    d->refresh = false;
    d->epoch = d->next.epoch;
    d->first = d->next.first;
}

/* The answer is about the refresher of d->next. */
static void decide_refresh(uint32_t status, uint32_t effects,
                           struct decision *d)
{
    decide_next(status, effects, d);
    d->refresh = true;
    d->epoch = d->first = d->next.refresh.epoch;
}

/* The record stays as the record is. */
static void keep_record(const struct step *s, uint32_t status, uint32_t effects,
                        struct decision *d)
{
    d->next = *s->r;
    decide_next(status, effects, d);
}

static void delete_record(uint32_t status, uint32_t effects, struct decision *d)
{
    d->next = NO_RECORD;
    decide_next(status, effects | EFFECT_WRITE | EFFECT_CLEAR, d);
}

/* ---- pulse ------------------------------------------------------------- */

static uint32_t renewed_status(bool canceled)
{
    return canceled ? VOW_STATUS_CANCELED : VOW_STATUS_OWNED;
}

/* Renews the lease of d->next. */
static void renew_next(const struct step *s, uint64_t lease_ms,
                       struct decision *d)
{
    struct rules_record *next = &d->next;
    next->lease_us = us_from_ms(lease_ms);
    next->end_us = us_plus(s->now->now_us, next->lease_us);
    decide_next(renewed_status(next->canceled), EFFECT_WRITE, d);
}

static void renew_owner(const struct step *s, uint64_t lease_ms,
                        struct decision *d)
{
    d->next = *s->r;
    renew_next(s, lease_ms, d);
}

static void renew_refresher(const struct step *s, uint64_t lease_ms,
                            struct decision *d)
{
    struct rules_refresh *f = &d->next.refresh;
    d->next = *s->r;
    f->lease_us = us_from_ms(lease_ms);
    f->end_us = us_plus(s->now->now_us, f->lease_us);
    decide_refresh(renewed_status(f->canceled), EFFECT_WRITE, d);
}

/* The record has vanished: a flush, a failover, a removed folder. Shared work
 * goes on with its own epoch; fenced work and work of mode once does not. */
static void revive_owner(const struct step *s, const vow_hold *hold,
                         uint32_t mode, uint64_t lease_ms, struct decision *d)
{
    if (mode != VOW_SHARED) {
        keep_record(s, VOW_STATUS_LOST, 0, d);
        return;
    }
    if (tokens_equal(&hold->token, &NO_TOKEN)) {
        refuse_step(VOW_EINVAL, d);
        return;
    }
    d->next = (struct rules_record){.state = RULES_RUNNING,
                                    .mode = VOW_SHARED,
                                    .token = hold->token,
                                    .epoch = hold->epoch,
                                    .first = hold->epoch,
                                    .since_us = s->now->now_us};
    renew_next(s, lease_ms, d);
}

struct decision vow__rules_pulse(const struct rules_record *r,
                                 const vow_hold *hold, uint32_t mode,
                                 uint64_t lease_ms, struct rules_now now)
{
    struct step s;
    struct decision d;
    begin_step(&s, r, &now);
    if (hold->epoch > RULES_EPOCH_MAX || mode > VOW_ONCE)
        refuse_step(VOW_EINVAL, &d);
    else if (s.view == RULES_VIEW_NONE)
        revive_owner(&s, hold, mode, lease_ms, &d);
    else if (s.runs && tokens_equal(&s.r->token, &hold->token))
        renew_owner(&s, lease_ms, &d);
    else if (s.runs)
        keep_record(&s, VOW_STATUS_LOST, 0, &d);
    else if (is_refresher(s.r, &hold->token))
        renew_refresher(&s, lease_ms, &d);
    else
        keep_record(&s, VOW_STATUS_SETTLED, 0, &d);
    end_step(&s, &d);
    return d;
}

/* ---- claim ------------------------------------------------------------- */

/* Returns an epoch above all epochs before; above RULES_EPOCH_MAX, the claim is
 * refused. */
static uint64_t grant_epoch(const struct step *s, const vow_claim_request *q)
{
    return larger_of(s->now->number, larger_of(s->above, q->floor) + 1);
}

/* The caller owns the name. `first` 0: the name was free. */
static void grant_claim(const struct step *s, const vow_claim_request *q,
                        uint64_t first, struct decision *d)
{
    uint64_t lease_us = us_from_ms(q->lease_ms);
    uint64_t epoch = grant_epoch(s, q);
    if (epoch > RULES_EPOCH_MAX) {
        refuse_step(VOW_EINVAL, d);
        return;
    }
    d->next = (struct rules_record){.state = RULES_RUNNING,
                                    .mode = (uint8_t)q->mode,
                                    .token = q->token,
                                    .epoch = epoch,
                                    .first = first != 0 ? first : epoch,
                                    .since_us = s->now->now_us,
                                    .end_us = us_plus(s->now->now_us, lease_us),
                                    .lease_us = lease_us};
    decide_next(VOW_STATUS_OWNED, EFFECT_WRITE | EFFECT_TEXTS | EFFECT_CLEAR,
                d);
}

static void give_up_run(const struct step *s, struct decision *d)
{
    struct rules_record *next = &d->next;
    *next = *s->r;
    next->state = RULES_GAVE_UP;
    next->canceled = false;
    next->token = NO_TOKEN;
    next->chunks = 0;
    next->chunk_bytes = 0;
    next->since_us = s->now->now_us;
    next->end_us = us_plus(s->now->now_us, RULES_MINUTE_US);
    decide_next(VOW_STATUS_SETTLED,
                EFFECT_WRITE | EFFECT_CLEAR | EFFECT_WAKE | EFFECT_SHOW, d);
}

/* The next owner takes over, or the work is given up. A lease that lapsed a
 * minute ago or earlier does not count as a takeover. */
static void claim_lapsed(const struct step *s, const vow_claim_request *q,
                         struct decision *d)
{
    const struct rules_record *r = s->r;
    bool force = (q->flags & VOW_CLAIM_FORCE) != 0;
    bool long_ago = us_plus(r->end_us, RULES_MINUTE_US) <= s->now->now_us;
    if (!force && !long_ago && r->takeovers >= q->takeovers) {
        give_up_run(s, d);
        return;
    }
    grant_claim(s, q, r->first, d);
    if (d->code == 0)
        d->next.takeovers = long_ago ? 0 : r->takeovers + 1;
}

/* The owner, or the refresher beside a result, is at work. */
static void wait_for_owner(const struct step *s, const vow_claim_request *q,
                           struct decision *d)
{
    uint32_t effects = (q->flags & VOW_CLAIM_NOWAIT) != 0 ? 0 : EFFECT_WAIT;
    d->next = *s->r;
    if (s->runs)
        decide_next(VOW_STATUS_WAITING, effects, d);
    else
        decide_refresh(VOW_STATUS_WAITING, effects, d);
}

/* The name has a result. The refresher of this token is renewed. A result of
 * the epoch that the caller read gets a refresher, unless a refresher is at
 * work or has failed a moment ago. Mode once is never refreshed: keeps R4. */
static void claim_refresh(const struct step *s, const vow_claim_request *q,
                          struct decision *d)
{
    const struct rules_refresh *f = &s->r->refresh;
    uint64_t lease_us = us_from_ms(q->lease_ms);
    uint64_t epoch = grant_epoch(s, q);
    bool once = s->r->mode == VOW_ONCE || q->mode == VOW_ONCE;
    if (!once && is_refresher(s->r, &q->token)) {
        renew_refresher(s, q->lease_ms, d);
        d->status = VOW_STATUS_OWNED;
        return;
    }
    if (once || s->r->state != RULES_DONE || s->r->epoch != q->refresh ||
        (f->epoch != 0 && f->end_us > s->now->now_us)) {
        keep_record(s, VOW_STATUS_SETTLED, 0, d);
        return;
    }
    if (epoch > RULES_EPOCH_MAX) {
        refuse_step(VOW_EINVAL, d);
        return;
    }
    d->next = *s->r;
    d->next.refresh =
        (struct rules_refresh){.token = q->token,
                               .epoch = epoch,
                               .since_us = s->now->now_us,
                               .end_us = us_plus(s->now->now_us, lease_us),
                               .lease_us = lease_us};
    decide_refresh(VOW_STATUS_OWNED, EFFECT_WRITE, d);
}

static void claim_other(const struct step *s, const vow_claim_request *q,
                        struct decision *d)
{
    bool force = (q->flags & VOW_CLAIM_FORCE) != 0;
    bool settled = s->view == RULES_VIEW_SETTLED;
    if (s->view == RULES_VIEW_RUNNING)
        wait_for_owner(s, q, d);
    else if (s->view == RULES_VIEW_LAPSED)
        claim_lapsed(s, q, d);
    else if (s->view == RULES_VIEW_DOUBT)
        keep_record(s, VOW_STATUS_DOUBT, 0, d);
    else if (settled && !force)
        keep_record(s, VOW_STATUS_SETTLED, EFFECT_SHOW, d);
    else if (settled && vow__rules_refreshing(s->r, s->now->now_us))
        wait_for_owner(s, q, d);
    else
        grant_claim(s, q, 0, d);
}

struct decision vow__rules_claim(const struct rules_record *r,
                                 const struct rules_record *left,
                                 const vow_claim_request *request,
                                 struct rules_now now)
{
    struct step s;
    struct decision d;
    begin_step(&s, r, &now);
    bool same =
        s.r->state != RULES_NONE && tokens_equal(&s.r->token, &request->token);
    bool force = (request->flags & VOW_CLAIM_FORCE) != 0;
    if (request->floor > RULES_EPOCH_MAX || request->mode > VOW_ONCE ||
        tokens_equal(&request->token, &NO_TOKEN)) {
        refuse_step(VOW_EINVAL, &d);
    } else if (same && s.runs) {
        renew_owner(&s, request->lease_ms, &d);
        d.status = VOW_STATUS_OWNED; /* a cancel is told by the next pulse */
    } else if (same) {
        keep_record(&s, VOW_STATUS_SETTLED, s.r->spent ? 0 : EFFECT_SHOW, &d);
    } else if (left != NULL && !force) {
        keep_record(&s, VOW_STATUS_SETTLED, EFFECT_SHOW, &d);
        d.left = true;
        d.epoch = left->epoch;
        d.first = left->first;
    } else if (request->refresh != 0 && s.view == RULES_VIEW_SETTLED) {
        claim_refresh(&s, request, &d);
    } else {
        claim_other(&s, request, &d);
    }
    if (d.code == 0 && d.status != VOW_STATUS_WAITING)
        d.effects |= EFFECT_UNWAIT;
    end_step(&s, &d);
    return d;
}

/* ---- commit ------------------------------------------------------------ */

uint64_t vow__rules_keep_us(uint64_t recheck_ms, bool replaced)
{
    uint64_t us = us_from_ms(recheck_ms);
    return larger_of(us_plus(us, us), replaced ? RULES_MINUTE_US : 0);
}

/* Settles the run `r`, or with state NONE a name that has none. A time to live
 * of 0 leaves the value for the claims that waited for the run. */
static void settle_record(const struct step *s, const struct rules_record *r,
                          const vow_commit_request *q, struct decision *d)
{
    bool ran = r->state != RULES_NONE;
    bool spent = q->ttl_ms == 0;
    uint64_t first = ran ? r->first : q->hold.epoch;
    bool replaced = first != q->hold.epoch;
    uint64_t kept_us =
        spent ? us_plus(vow__rules_keep_us(s->now->recheck_ms, replaced),
                        r->lease_us)
              : us_from_ms(q->ttl_ms);
    if (spent && s->now->exact && !replaced) {
        delete_record(VOW_STATUS_OWNED, 0, d);
        return;
    }
    d->next = (struct rules_record){
        .state = q->outcome == VOW_OUTCOME_FAILED ? RULES_FAILED : RULES_DONE,
        .mode = ran ? r->mode : VOW_SHARED,
        .spent = spent,
        .takeovers = r->takeovers,
        .token = q->hold.token,
        .epoch = q->hold.epoch,
        .first = first,
        .since_us = s->now->now_us,
        .end_us = us_plus(s->now->now_us, kept_us),
        .lease_us = r->lease_us,
        .cost_ms = q->cost_ms};
    decide_next(VOW_STATUS_OWNED,
                EFFECT_WRITE | EFFECT_TEXTS | EFFECT_VALUE | EFFECT_CLEAR |
                    EFFECT_WAKE | (spent ? EFFECT_LEAVE : 0u),
                d);
}

static void commit_none(const struct step *s, const vow_commit_request *q,
                        struct decision *d)
{
    if (q->outcome == VOW_OUTCOME_ABANDONED)
        keep_record(s, VOW_STATUS_OWNED, 0, d);
    else if ((q->flags & VOW_COMMIT_STRICT) != 0)
        keep_record(s, VOW_STATUS_NONE, 0, d);
    else
        settle_record(s, &NO_RECORD, q, d);
}

static void commit_running(const struct step *s, const vow_commit_request *q,
                           struct decision *d)
{
    bool put = (q->flags & VOW_COMMIT_PUT) != 0;
    if (put || !is_owner(s->r, &q->hold))
        keep_record(s, VOW_STATUS_LOST, 0, d);
    else if (q->outcome == VOW_OUTCOME_ABANDONED)
        delete_record(VOW_STATUS_OWNED, EFFECT_WAKE, d);
    else
        settle_record(s, s->r, q, d);
}

/* A refresh that failed keeps the old result, and lets no other refresh begin
 * for a second; a refresh that was abandoned, at once. The refresher stays in
 * the record, so that a repeated commit has the same answer. */
static void commit_refresh(const struct step *s, const vow_commit_request *q,
                           struct decision *d)
{
    struct rules_refresh *f = &d->next.refresh;
    if (q->outcome == VOW_OUTCOME_DONE) {
        const struct rules_record run = vow__rules_refresher(s->r);
        settle_record(s, &run, q, d);
        return;
    }
    d->next = *s->r;
    f->failed = true;
    f->canceled = false;
    f->end_us = s->now->now_us;
    if (q->outcome == VOW_OUTCOME_FAILED)
        f->end_us = us_plus(s->now->now_us, RULES_REFRESH_PAUSE_US);
    decide_refresh(VOW_STATUS_OWNED, EFFECT_WRITE, d);
}

static void commit_settled(const struct step *s, const vow_commit_request *q,
                           struct decision *d)
{
    const struct rules_refresh *f = &s->r->refresh;
    bool put = (q->flags & VOW_COMMIT_PUT) != 0;
    bool newer = q->hold.epoch > s->r->epoch;
    bool refresher = f->epoch != 0 && f->epoch == q->hold.epoch &&
                     tokens_equal(&f->token, &q->hold.token);
    if (is_owner(s->r, &q->hold)) { /* the step came twice */
        keep_record(s, VOW_STATUS_OWNED, 0, d);
    } else if (s->r->spent && (put || newer)) {
        commit_none(s, q, d);
    } else if (s->r->spent) {
        keep_record(s, VOW_STATUS_LOST, 0, d);
    } else if (refresher && !f->failed) {
        commit_refresh(s, q, d);
    } else if (refresher && q->outcome != VOW_OUTCOME_DONE) {
        d->next = *s->r; /* the step came twice */
        decide_refresh(VOW_STATUS_OWNED, 0, d);
    } else if (put && newer) {
        commit_none(s, q, d);
    } else {
        keep_record(s, VOW_STATUS_SETTLED, EFFECT_SHOW, d);
    }
}

/* A doubt is settled by the epoch alone. Asked about any other record, the rule
 * answers and changes nothing. */
static void resolve_doubt(const struct step *s, const vow_commit_request *q,
                          struct decision *d)
{
    bool doubt = s->view == RULES_VIEW_DOUBT && s->r->epoch == q->hold.epoch;
    if (s->view == RULES_VIEW_NONE)
        keep_record(s, VOW_STATUS_NONE, 0, d);
    else if (doubt && q->outcome == VOW_OUTCOME_ABANDONED)
        delete_record(VOW_STATUS_OWNED, EFFECT_WAKE, d);
    else if (doubt)
        settle_record(s, s->r, q, d);
    else if (s->runs)
        keep_record(s, VOW_STATUS_LOST, 0, d);
    else if (is_owner(s->r, &q->hold))
        keep_record(s, VOW_STATUS_OWNED, 0, d);
    else if (s->r->spent)
        keep_record(s, VOW_STATUS_LOST, 0, d);
    else
        keep_record(s, VOW_STATUS_SETTLED, EFFECT_SHOW, d);
}

struct decision vow__rules_commit(const struct rules_record *r,
                                  const vow_commit_request *request,
                                  struct rules_now now)
{
    struct step s;
    struct decision d;
    begin_step(&s, r, &now);
    if (request->outcome < VOW_OUTCOME_DONE ||
        request->outcome > VOW_OUTCOME_ABANDONED ||
        request->hold.epoch > RULES_EPOCH_MAX)
        refuse_step(VOW_EINVAL, &d);
    else if ((request->flags & VOW_COMMIT_RESOLVE) != 0)
        resolve_doubt(&s, request, &d);
    else if (s.view == RULES_VIEW_NONE)
        commit_none(&s, request, &d);
    else if (s.runs)
        commit_running(&s, request, &d);
    else
        commit_settled(&s, request, &d);
    if (d.status == VOW_STATUS_OWNED)
        d.epoch = request->hold.epoch;
    end_step(&s, &d);
    return d;
}

/* ---- managing ---------------------------------------------------------- */

struct decision vow__rules_forget(const struct rules_record *r, uint64_t epoch,
                                  struct rules_now now)
{
    struct step s;
    struct decision d;
    begin_step(&s, r, &now);
    bool result = s.view == RULES_VIEW_SETTLED || s.view == RULES_VIEW_DOUBT;
    uint32_t status = status_of_view(s.view);
    if (s.view == RULES_VIEW_RUNNING && epoch != 0 && epoch < s.r->epoch)
        status = VOW_STATUS_NONE; /* the run of this epoch is gone */
    if (!result || (epoch != 0 && epoch != s.r->epoch)) {
        keep_record(&s, status, 0, &d);
    } else if (!vow__rules_refreshing(s.r, now.now_us)) {
        delete_record(VOW_STATUS_NONE, EFFECT_WAKE, &d);
    } else if (epoch == 0) {
        keep_record(&s, VOW_STATUS_WAITING, 0, &d);
    } else {
        d.next = vow__rules_refresher(s.r);
        decide_next(VOW_STATUS_NONE, EFFECT_WRITE | EFFECT_CLEAR, &d);
    }
    end_step(&s, &d);
    return d;
}

struct decision vow__rules_cancel(const struct rules_record *r,
                                  struct rules_now now)
{
    struct step s;
    struct decision d;
    const uint32_t effects = EFFECT_WRITE | EFFECT_TELL_OWNER;
    begin_step(&s, r, &now);
    d.next = *s.r;
    if (s.view == RULES_VIEW_RUNNING) {
        d.next.canceled = true;
        decide_next(VOW_STATUS_WAITING, effects, &d);
    } else if (s.view == RULES_VIEW_SETTLED &&
               vow__rules_refreshing(s.r, now.now_us)) {
        d.next.refresh.canceled = true;
        decide_refresh(VOW_STATUS_WAITING, effects, &d);
    } else {
        decide_next(status_of_view(s.view), 0, &d);
    }
    end_step(&s, &d);
    return d;
}

struct decision vow__rules_chunk(const struct rules_record *r,
                                 const vow_hold *hold, uint64_t number,
                                 size_t size, size_t most, struct rules_now now)
{
    struct step s;
    struct decision d;
    begin_step(&s, r, &now);
    bool refreshes =
        is_refresher(s.r, &hold->token) && s.r->refresh.epoch == hold->epoch;
    d.next = *s.r;
    if (!refreshes && !(s.runs && is_owner(s.r, hold))) {
        decide_next(VOW_STATUS_LOST, 0, &d);
    } else if (refreshes || number != s.r->chunks) {
        decide_next(VOW_STATUS_OWNED, 0,
                    &d); /* no follower can read the chunk */
    } else if (size > most || s.r->chunk_bytes > most - size) {
        refuse_step(VOW_E2BIG, &d);
    } else {
        d.next.chunks++;
        d.next.chunk_bytes += size;
        decide_next(VOW_STATUS_OWNED, EFFECT_WRITE | EFFECT_CHUNK, &d);
    }
    end_step(&s, &d);
    return d;
}
