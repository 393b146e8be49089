/* SPDX-License-Identifier: MIT */
/* replay_step.c - decide one step of a history on one record; see replay.h.
 *
 * HOW   The rules need numbers for the time and for the end of the record. A
 *       *moment* is one case of their order: before the end, after the end, a
 *       minute or a day after. The rules are called at a fixed time with an end
 *       that stands for the moment; an end that the rules set is the span of
 *       the step's interval plus the time that the rules added. A refresher
 *       has an end of its own: each order of both ends is a moment.
 */
#include "replay.h"

#include <string.h>

#define AT_US (UINT64_C(1) << 50)          /* the time of every call */
#define LATER_US (UINT64_C(0x100000f0001)) /* an end that has not come */
#define NO_END RULES_NEVER
enum { MOMENTS = 8 };

/* One order of the step and the end of the record, or of the result left; and
 * of the end of the refresher. */
struct moment {
    uint64_t end_us;        /* for the rules */
    struct replay_span at;  /* when the step happens */
    struct replay_span end; /* what is then known of the end */
    uint64_t refresh_end_us;
    struct replay_span refresh_end;
};

struct attempt {
    const struct replay_case *c;
    const struct replay_way *way;
    struct moment moment;
    const struct replay_left *left; /* NULL: there is none */
    uint64_t number;
    struct replay_way *ret;
    size_t n;
    bool full; /* more outcomes than `ret` has room for */
};

static uint64_t us_later(uint64_t us, uint64_t by_us)
{
    return by_us > RULES_NEVER - us ? RULES_NEVER : us + by_us;
}

static uint64_t us_sooner(uint64_t us, uint64_t by_us)
{
    return us == RULES_NEVER ? us : us > by_us ? us - by_us : 0;
}

static uint64_t us_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t us_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- moments ------------------------------------------------------------- */

/* The step happens at least `from_us` and less than `to_us` after the end. By
 * another clock, the end may be later by `skew_us`. */
static size_t moment_after(const struct replay_span *end,
                           const struct replay_span *at, uint64_t from_us,
                           uint64_t to_us, uint64_t skew_us, struct moment *ret)
{
    struct moment m = {.end_us = AT_US - 1 - from_us, .at = *at, .end = *end};
    m.at.lo = us_max(at->lo, us_later(end->lo, from_us));
    if (to_us != NO_END && us_later(end->hi, to_us) != RULES_NEVER)
        m.at.hi = us_min(at->hi, end->hi + to_us - 1);
    if (m.at.lo > m.at.hi)
        return 0;
    m.end.hi = us_min(end->hi, us_later(us_sooner(m.at.hi, from_us), skew_us));
    *ret = m;
    return 1;
}

static size_t list_moments(const struct replay_span *end,
                           const struct replay_span *at, bool lease,
                           uint64_t skew_us, struct moment *ret)
{
    size_t n = 0;
    if (end->hi > at->lo) {
        struct moment *m = &ret[n++];
        *m =
            (struct moment){.end_us = AT_US + LATER_US, .at = *at, .end = *end};
        m->at.hi = us_min(at->hi, end->hi - 1);
    }
    if (end->lo > at->hi)
        return n;
    if (!lease)
        return n + moment_after(end, at, 0, NO_END, skew_us, &ret[n]);
    n += moment_after(end, at, 0, RULES_MINUTE_US, 0, &ret[n]);
    n += moment_after(end, at, RULES_MINUTE_US, RULES_DAY_US, 0, &ret[n]);
    return n + moment_after(end, at, RULES_DAY_US, NO_END, 0, &ret[n]);
}

/* All orders of the step, the end of the record and the end of the refresher:
 * the rules get two ends that are not equal. */
static size_t list_way_moments(const struct replay_way *w,
                               const struct replay_span *at, uint64_t skew_us,
                               struct moment ret[MOMENTS])
{
    struct moment ends[4], refreshes[4];
    size_t n = 0;
    size_t n_ends =
        list_moments(&w->end, at, w->state == RULES_RUNNING, skew_us, ends);
    for (size_t i = 0; i < n_ends; i++) {
        size_t n_refreshes = 1;
        refreshes[0] = ends[i];
        if (w->refresh_epoch != 0)
            n_refreshes =
                list_moments(&w->refresh_end, &ends[i].at,
                             w->refresh_failed == 0, skew_us, refreshes);
        for (size_t k = 0; k < n_refreshes; k++) {
            struct moment *m = &ret[n++];
            uint64_t end_us = refreshes[k].end_us;
            *m = ends[i];
            m->at = refreshes[k].at;
            m->refresh_end_us = end_us > AT_US ? end_us + 1 : end_us - 1;
            m->refresh_end = refreshes[k].end;
        }
    }
    return n;
}

/* The end that the rules have set: known, or the time of the step and more. */
static struct replay_span span_of_end(const struct attempt *a, uint64_t end_us,
                                      bool lease)
{
    const struct replay_opts *o = a->c->opts;
    struct replay_span at = a->moment.at;
    if (end_us == RULES_NEVER)
        return (struct replay_span){RULES_NEVER, RULES_NEVER};
    if (end_us == a->moment.end_us)
        return a->moment.end;
    if (a->way->refresh_epoch != 0 && end_us == a->moment.refresh_end_us)
        return a->moment.refresh_end;
    uint64_t more_us = end_us - AT_US;
    struct replay_span end = {us_sooner(at.lo + more_us, o->skew_us),
                              us_later(at.hi + more_us, o->skew_us)};
    if (lease && (o->allows & REPLAY_LEASES_EARLY) != 0)
        end.lo = 0;
    if (lease && (o->allows & REPLAY_LEASES_LATE) != 0)
        end.hi = RULES_NEVER;
    return end;
}

/* ---- records ------------------------------------------------------------- */

static vow_token token_of_number(uint64_t number)
{
    vow_token token = {.bytes = {0}};
    memcpy(token.bytes, &number, sizeof(number));
    return token;
}

static uint64_t number_of_token(const vow_token *token)
{
    uint64_t number;
    memcpy(&number, token->bytes, sizeof(number));
    return number;
}

static uint64_t scaled(uint64_t epoch)
{
    return epoch << REPLAY_EPOCH_SHIFT;
}

static void way_record(const struct replay_way *w, const struct moment *m,
                       struct rules_record *ret)
{
    *ret = (struct rules_record){.state = w->state,
                                 .mode = w->mode,
                                 .canceled = w->canceled,
                                 .spent = w->spent,
                                 .takeovers = w->takeovers,
                                 .chunks = w->chunks,
                                 .token = token_of_number(w->token),
                                 .epoch = w->epoch,
                                 .first = w->first,
                                 .end_us = m->end_us,
                                 .lease_us = w->lease_us};
    if (w->end.lo == RULES_NEVER)
        ret->end_us = RULES_NEVER;
    if (w->refresh_epoch != 0)
        ret->refresh =
            (struct rules_refresh){.token = token_of_number(w->refresh_token),
                                   .epoch = w->refresh_epoch,
                                   .end_us = m->refresh_end_us,
                                   .lease_us = w->refresh_lease_us,
                                   .failed = w->refresh_failed,
                                   .canceled = w->refresh_canceled};
}

static void keep_left(struct replay_way *w, const struct replay_left *left)
{
    if (w->n_left == REPLAY_LEFT_MAX)
        memmove(w->left, w->left + 1, --w->n_left * sizeof(w->left[0]));
    w->left[w->n_left++] = *left;
}

/* A result left that is over for all further steps is the same as none. */
static void drop_left(struct replay_way *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->n_left; i++)
        if (w->left[i].end.hi > w->time_us)
            w->left[n++] = w->left[i];
    memset(&w->left[n], 0, (w->n_left - n) * sizeof(w->left[0]));
    w->n_left = (uint8_t)n;
}

static bool has_epoch(const uint64_t *epochs, size_t n, uint64_t epoch)
{
    for (size_t lo = 0, hi = n; lo < hi;) {
        size_t mid = (lo + hi) / 2;
        if (scaled(epochs[mid]) == epoch)
            return true;
        if (scaled(epochs[mid]) < epoch)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

static void write_refresh(const struct attempt *a,
                          const struct rules_refresh *f, struct replay_way *w)
{
    w->refresh_end = (struct replay_span){0, 0};
    if (f->epoch != 0)
        w->refresh_end = span_of_end(a, f->end_us, !f->failed);
    w->refresh_token = number_of_token(&f->token);
    w->refresh_epoch = f->epoch;
    w->refresh_lease_us = f->lease_us;
    w->refresh_failed = f->failed;
    w->refresh_canceled = f->canceled;
}

static void write_way(const struct attempt *a, const struct decision *d,
                      struct replay_way *w)
{
    const struct rules_record *next = &d->next;
    bool runs = next->state == RULES_RUNNING;
    uint64_t epoch = runs ? next->epoch : next->refresh.epoch;
    bool granted = epoch > w->top && a->c->step->kind == REPLAY_CLAIM;
    w->end = (struct replay_span){0, 0};
    if (next->state != RULES_NONE)
        w->end = span_of_end(a, next->end_us, runs);
    write_refresh(a, &next->refresh, w);
    w->state = next->state;
    w->mode = next->mode;
    w->canceled = next->canceled;
    w->spent = next->spent;
    w->takeovers = next->takeovers;
    w->chunks = next->chunks;
    w->token = number_of_token(&next->token);
    w->epoch = next->epoch;
    w->lease_us = runs ? next->lease_us : 0;
    if (next->first != w->first)
        w->vague = w->vague && next->first != next->epoch;
    w->first = next->first;
    w->unknown = 0;
    w->time_us = a->moment.at.lo;
    if (granted && a->number != 0) /* else nobody is told the epoch */
        w->top = epoch;
    if ((d->effects & EFFECT_LEAVE) != 0 &&
        has_epoch(a->c->waited, a->c->n_waited, next->first))
        keep_left(w,
                  &(struct replay_left){next->first, next->epoch,
                                        next->state == RULES_FAILED, w->end});
    drop_left(w);
}

/* ---- answers ------------------------------------------------------------- */

static bool tells_epoch(uint32_t status)
{
    return status == VOW_STATUS_OWNED || status == VOW_STATUS_WAITING ||
           status == VOW_STATUS_SETTLED || status == VOW_STATUS_DOUBT ||
           status == VOW_STATUS_CANCELED;
}

static bool same_answer(const struct attempt *a, const struct decision *d)
{
    const struct replay_step *s = a->c->step;
    const struct rules_record *r = &d->next;
    uint32_t takeovers = d->refresh ? 0 : r->takeovers;
    bool failed = r->state == RULES_FAILED || r->state == RULES_GAVE_UP;
    bool vague = a->way->vague && r->first == a->way->first && !d->refresh;
    if (d->left)
        failed = a->left->failed != 0;
    if (s->code != d->code)
        return false;
    if (d->code != 0)
        return true;
    if (s->status != d->status)
        return false;
    if ((s->tells & REPLAY_EPOCH) != 0 && tells_epoch(d->status) &&
        scaled(s->told_epoch) != d->epoch)
        return false;
    if ((s->tells & REPLAY_FAILED) != 0 && d->status == VOW_STATUS_SETTLED &&
        s->told_failed != failed)
        return false;
    bool runs =
        d->status == VOW_STATUS_OWNED || d->status == VOW_STATUS_WAITING;
    if (s->kind != REPLAY_CLAIM || !runs || vague)
        return true;
    return ((s->tells & REPLAY_FIRST) == 0 ||
            scaled(s->told_first) == d->first) &&
           ((s->tells & REPLAY_LOST) == 0 || s->told_takeovers == takeovers);
}

/* ---- rules --------------------------------------------------------------- */

static vow_hold step_hold(const struct replay_step *s)
{
    return (vow_hold){.token = token_of_number(s->token),
                      .epoch = scaled(s->epoch),
                      .mode = s->mode};
}

static struct decision call_claim(const struct attempt *a,
                                  const struct rules_record *r,
                                  struct rules_now now)
{
    const struct replay_step *s = a->c->step;
    const vow_claim_request q = {.token = token_of_number(s->token),
                                 .mode = s->mode,
                                 .flags = s->flags,
                                 .lease_ms = s->ms,
                                 .takeovers = s->takeovers,
                                 .refresh = scaled(s->refresh),
                                 .floor =
                                     us_max(scaled(s->floor), a->way->top)};
    struct rules_record left = {.state = RULES_DONE};
    if (a->left != NULL) {
        left.epoch = a->left->epoch;
        left.first = a->left->first;
    }
    return vow__rules_claim(r, a->left == NULL ? NULL : &left, &q, now);
}

static struct decision call_commit(const struct attempt *a,
                                   const struct rules_record *r,
                                   struct rules_now now)
{
    const struct replay_step *s = a->c->step;
    vow_commit_request q = {.hold = step_hold(s),
                            .outcome = s->outcome,
                            .flags = s->flags,
                            .ttl_ms = s->ms};
    if (a->c->undo) {
        q.hold.epoch =
            a->way->refresh_epoch != 0 && a->way->refresh_token == s->token
                ? a->way->refresh_epoch
                : a->way->epoch;
        q.outcome = VOW_OUTCOME_ABANDONED;
        q.flags = 0;
    }
    return vow__rules_commit(r, &q, now);
}

static struct decision call_peek(const struct rules_record *r)
{
    struct rules_record seen = vow__rules_current(r, AT_US);
    if (vow__rules_view(r, AT_US) == RULES_VIEW_NONE)
        seen = (struct rules_record){.state = RULES_NONE};
    return (struct decision){.status = vow__rules_peek(r, AT_US),
                             .epoch = seen.epoch,
                             .first = seen.first,
                             .next = seen};
}

static struct decision call_rule(const struct attempt *a,
                                 const struct rules_record *r)
{
    const struct replay_step *s = a->c->step;
    const struct rules_now now = {.now_us = AT_US,
                                  .number = a->number,
                                  .recheck_ms = a->c->opts->recheck_ms};
    const vow_hold hold = step_hold(s);
    if (a->c->undo)
        return call_commit(a, r, now);
    switch (s->kind) {
    case REPLAY_CLAIM:
        return call_claim(a, r, now);
    case REPLAY_PULSE:
        return vow__rules_pulse(r, &hold, s->mode, s->ms, now);
    case REPLAY_COMMIT:
        return call_commit(a, r, now);
    case REPLAY_FORGET:
        return vow__rules_forget(r, hold.epoch, now);
    case REPLAY_CANCEL:
        return vow__rules_cancel(r, now);
    case REPLAY_WRITE:
        return vow__rules_chunk(r, &hold, s->number, 0, SIZE_MAX, now);
    case REPLAY_PEEK:
        break;
    }
    return call_peek(r);
}

/* ---- outcomes ------------------------------------------------------------ */

/* A renewal that may have happened lets the lease end later, or not. */
static void widen_lease(const struct attempt *a, bool refresh,
                        struct replay_way *w)
{
    const struct replay_opts *o = a->c->opts;
    uint64_t hi_us = us_later(a->moment.at.hi, a->c->step->ms * 1000);
    struct replay_span *end = refresh ? &w->refresh_end : &w->end;
    *w = *a->way;
    if ((o->allows & REPLAY_LEASES_LATE) != 0)
        end->hi = RULES_NEVER;
    end->hi = us_max(end->hi, us_later(hi_us, o->skew_us));
}

static void try_moment(struct attempt *a)
{
    const struct replay_case *c = a->c;
    struct replay_way *w = &a->ret[a->n];
    struct rules_record r;
    way_record(a->way, &a->moment, &r);
    bool exists = a->way->state != RULES_NONE;
    const struct decision d = call_rule(a, exists ? &r : NULL);
    bool writes = d.code == 0 && (d.effects & EFFECT_WRITE) != 0;
    if (c->unsure ? !writes : !same_answer(a, &d))
        return;
    if (a->n == REPLAY_OUTCOMES) {
        a->full = true;
        return;
    }
    *w = *a->way;
    bool renews = c->unsure && c->step->kind <= REPLAY_PULSE && exists;
    bool refresh = d.refresh && d.next.refresh.epoch == a->way->refresh_epoch;
    if (renews && (refresh || (d.next.state == RULES_RUNNING &&
                               d.next.epoch == a->way->epoch)))
        widen_lease(a, refresh, w);
    else if (writes)
        write_way(a, &d, w);
    else if (exists)
        w->end = a->moment.end;
    if (exists && !writes && a->way->refresh_epoch != 0)
        w->refresh_end = a->moment.refresh_end;
    a->n++;
}

static void try_numbers(struct attempt *a)
{
    const struct replay_case *c = a->c;
    a->number = scaled(c->step->told_epoch);
    if (!c->unsure || c->step->kind != REPLAY_CLAIM) {
        try_moment(a);
        return;
    }
    a->number = 0;
    try_moment(a);
    for (size_t i = 0; i < c->n_grants; i++) {
        a->number = scaled(c->grants[i]);
        if (a->number > a->way->top && c->grants[i] < c->below)
            try_moment(a);
    }
}

/* Returns whether the answer may show a result left that the search does not
 * follow: left before a loss, or for an instance. */
static bool reads_left(const struct replay_case *c)
{
    const struct replay_step *s = c->step;
    bool any = (c->opts->allows & REPLAY_LEFT_TO_ANY) != 0;
    if (c->unsure || s->kind != REPLAY_CLAIM || s->status != VOW_STATUS_SETTLED)
        return false;
    if ((c->opts->allows & REPLAY_FORGOT) != 0 && (any || s->waited != 0))
        return true;
    return any && has_epoch(c->spent, c->n_spent, scaled(s->told_epoch));
}

/* With the result left, and without, if its end may have come. */
static void try_left(struct attempt *a)
{
    const struct replay_case *c = a->c;
    const struct replay_left *left = NULL;
    const struct replay_way *w = a->way;
    for (size_t i = 0; i < w->n_left && c->step->waited != 0; i++)
        if (w->left[i].first == scaled(c->step->waited))
            left = &w->left[i];
    bool may_go = left == NULL || left->end.lo <= a->moment.at.hi ||
                  (c->opts->allows & REPLAY_LEFT_MAY_GO) != 0;
    if (left != NULL && left->end.hi > a->moment.at.lo) {
        a->left = left;
        try_numbers(a);
    }
    a->left = NULL;
    if (may_go)
        try_numbers(a);
    if (left == NULL && reads_left(c) && a->n < REPLAY_OUTCOMES)
        a->ret[a->n++] = *w;
}

/* Nothing is known of the record: an answer that changes nothing fits, and a
 * change is one of the caller's own run. */
static void decide_unknown(struct attempt *a, struct replay_way *own)
{
    const struct replay_step *s = a->c->step;
    bool runs =
        s->status == VOW_STATUS_OWNED || s->status == VOW_STATUS_CANCELED;
    if (a->c->unsure)
        return;
    if (s->code != 0 || !runs || s->kind > REPLAY_COMMIT) {
        a->ret[a->n++] = *a->way;
        return;
    }
    bool resolves =
        s->kind == REPLAY_COMMIT && (s->flags & VOW_COMMIT_RESOLVE) != 0;
    *own = *a->way;
    own->state = RULES_RUNNING;
    own->token = s->token;
    own->epoch = own->first =
        scaled(s->kind == REPLAY_CLAIM ? s->told_epoch : s->epoch);
    own->mode = (uint8_t)(resolves ? VOW_ONCE : s->mode);
    own->canceled = s->status == VOW_STATUS_CANCELED;
    own->end = (struct replay_span){0, RULES_NEVER};
    own->vague = 1;
    a->way = own;
    a->moment.end_us = resolves ? AT_US - 1 : AT_US + LATER_US;
    size_t before = a->n;
    try_moment(a);
    for (size_t i = before; i < a->n; i++) {
        a->ret[i].vague = 1;
        a->ret[i].unknown = 0;
        if (s->kind == REPLAY_CLAIM && (s->tells & REPLAY_LOST) != 0)
            a->ret[i].takeovers = s->told_takeovers;
    }
}

size_t replay_decide(const struct replay_case *c, const struct replay_way *way,
                     struct replay_way *ret)
{
    struct moment moments[MOMENTS];
    struct replay_way own;
    struct attempt a = {.c = c, .way = way, .ret = ret};
    struct replay_span at = {us_max(c->step->sent_us, way->time_us), c->now_us};
    if (!c->unsure)
        at.hi = us_min(at.hi, c->step->done_us);
    if (at.lo > at.hi)
        return 0;
    if (way->unknown) {
        a.moment = (struct moment){.at = at, .end = {0, RULES_NEVER}};
        a.number = scaled(c->step->told_epoch);
        decide_unknown(&a, &own);
        return a.n;
    }
    size_t n = 1;
    moments[0] = (struct moment){.at = at};
    if (way->state != RULES_NONE)
        n = list_way_moments(way, &at, c->opts->skew_us, moments);
    for (size_t i = 0; i < n; i++) {
        a.moment = moments[i];
        try_left(&a);
    }
    return a.full ? REPLAY_OUTCOMES + 1 : a.n;
}
