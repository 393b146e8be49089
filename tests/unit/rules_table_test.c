/* SPDX-License-Identifier: MIT */
/* rules_table_test.c - the state table of named work, cell by cell.
 *
 * Each test runs one kind of step with all options over all subjects and times
 * of rules_table.h, and compares the decision with the row of the table that
 * applies. Each decision is also checked against laws that hold for every cell;
 * for a row with `open` only the laws are checked. */
#include "rules_table.h"

#include <string.h>

/* ---- scenes ------------------------------------------------------------- */

/* A record at a time, a step, and the row that applies. */
struct scene {
    const struct subject *subject;
    const struct moment *moment;
    struct rules_record stored; /* in the store */
    struct rules_record found;  /* `stored` with the refresher promoted */
    const struct rules_record *record; /* `stored`, or NULL */
    uint64_t now_us;
    const char *step_name;
    struct step step;
    uint32_t who;
    const struct row *row;
    uint32_t apart; /* the group of cells under test */
    struct decision got;
};

/* Fails with the scene in the message, and the number of the row. */
#define EXPECT(scene, cond)                                                    \
    ((cond) ? (void)0 : fail_scene(TEST_HERE, scene, #cond))

static void fail_scene(const char *site, const struct scene *x,
                       const char *what)
{
    test_fail(
        site,
        "%s: %s, column %#x%s, now end%+jd us, who %u, options %#x, row %zu%s; "
        "want status %u effects %#x; got code %d status %u effects %#x epoch "
        "%ju first %ju: %s",
        x->step_name, x->subject->name, x->moment->column,
        x->moment->promoted ? " promoted" : "",
        (intmax_t)x->moment->after_end_us, x->who, x->step.options,
        (size_t)(x->row - TABLE), x->row->open ? " open" : "", x->row->status,
        x->row->effects, x->got.code, x->got.status, x->got.effects,
        (uintmax_t)x->got.epoch, (uintmax_t)x->got.first, what);
}

static bool same_token(const vow_token *a, const vow_token *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static bool same_refresh(const struct rules_refresh *a,
                         const struct rules_refresh *b)
{
    return same_token(&a->token, &b->token) && a->epoch == b->epoch &&
           a->since_us == b->since_us && a->end_us == b->end_us &&
           a->lease_us == b->lease_us && a->failed == b->failed &&
           a->canceled == b->canceled;
}

/* Compares all fields but the refresher. */
static bool same_main(const struct rules_record *a,
                      const struct rules_record *b)
{
    return a->state == b->state && a->mode == b->mode &&
           a->canceled == b->canceled && a->spent == b->spent &&
           a->takeovers == b->takeovers && a->chunks == b->chunks &&
           same_token(&a->token, &b->token) && a->epoch == b->epoch &&
           a->first == b->first && a->since_us == b->since_us &&
           a->end_us == b->end_us && a->lease_us == b->lease_us &&
           a->cost_ms == b->cost_ms && a->chunk_bytes == b->chunk_bytes;
}

static bool same_record(const struct rules_record *a,
                        const struct rules_record *b)
{
    return same_main(a, b) && same_refresh(&a->refresh, &b->refresh);
}

static bool is_zero(const struct rules_record *r)
{
    return same_record(r, &(struct rules_record){0});
}

static uint64_t max_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Adds, and stays at RULES_NEVER. */
static uint64_t add_time(uint64_t a, uint64_t b)
{
    return a > RULES_NEVER - b ? RULES_NEVER : a + b;
}

static uint64_t micros(uint64_t ms)
{
    return ms > RULES_NEVER / 1000 ? RULES_NEVER : ms * 1000;
}

/* Returns the epoch that a granted claim must have. */
static uint64_t granted_epoch(const struct scene *x)
{
    const struct step *s = &x->step;
    uint64_t epoch = max_of(s->now.number, s->claim.floor + 1);
    if (x->record != NULL)
        epoch = max_of(epoch,
                       max_of(x->record->epoch, x->record->refresh.epoch) + 1);
    return epoch;
}

/* ---- what a row says about the record ------------------------------------ */

static void check_fresh(const struct scene *x, uint64_t first,
                        uint32_t takeovers)
{
    const struct rules_record want = {
        .state = RULES_RUNNING,
        .mode = (uint8_t)x->step.claim.mode,
        .takeovers = takeovers,
        .token = x->step.claim.token,
        .epoch = granted_epoch(x),
        .first = first == 0 ? granted_epoch(x) : first,
        .since_us = x->now_us,
        .end_us = add_time(x->now_us, micros(x->step.claim.lease_ms)),
        .lease_us = micros(x->step.claim.lease_ms)};
    EXPECT(x, same_record(&x->got.next, &want));
    EXPECT(x, x->got.epoch == want.epoch);
    EXPECT(x, x->got.first == want.first);
    EXPECT(x, !x->got.left && !x->got.refresh);
}

static void check_renewed(const struct scene *x)
{
    const uint64_t lease = micros(x->step.kind == CLAIM ? x->step.claim.lease_ms
                                                        : x->step.lease_ms);
    struct rules_record want = x->found;
    want.lease_us = lease;
    want.end_us = add_time(x->now_us, lease);
    EXPECT(x, same_record(&x->got.next, &want));
    EXPECT(x, x->got.epoch == want.epoch && x->got.first == want.first);
}

static void check_revived(const struct scene *x)
{
    const vow_hold *hold = &x->step.hold;
    const struct rules_record *next = &x->got.next;
    EXPECT(x, next->state == RULES_RUNNING && next->mode == x->step.mode);
    EXPECT(x, same_token(&next->token, &hold->token));
    EXPECT(x, next->epoch == hold->epoch && next->first == hold->epoch);
    EXPECT(x, next->lease_us == micros(x->step.lease_ms));
    EXPECT(x, next->end_us == add_time(x->now_us, next->lease_us));
    EXPECT(x, next->takeovers == 0 && next->chunks == 0 && !next->canceled);
    EXPECT(x, next->refresh.epoch == 0 && x->got.epoch == hold->epoch);
}

static void check_stopped(const struct scene *x)
{
    const struct rules_record *next = &x->got.next;
    EXPECT(x, next->state == RULES_GAVE_UP && !next->spent);
    EXPECT(x, same_token(&next->token, &(vow_token){{0}}));
    EXPECT(x, next->end_us == x->now_us + RULES_MINUTE_US);
    EXPECT(x, next->since_us == x->now_us && next->refresh.epoch == 0);
    EXPECT(x, next->first == x->found.first && next->epoch >= x->found.epoch);
}

/* Checks a result of the owner, the refresher, or a run without a record. */
static void check_result(const struct scene *x)
{
    const vow_commit_request *q = &x->step.commit;
    const struct rules_record *next = &x->got.next;
    const bool fresh = x->row->after == NEW_RESULT;
    const bool refresher = x->who == REFRESHER && !x->moment->promoted;
    const uint64_t lease = fresh       ? 0
                           : refresher ? REFRESH_LEASE_US
                                       : x->found.lease_us;
    const uint64_t kept_us =
        vow__rules_keep_us(RECHECK_MS, next->first != next->epoch);
    EXPECT(x, next->state ==
                  (q->outcome == VOW_OUTCOME_DONE ? RULES_DONE : RULES_FAILED));
    EXPECT(x, next->epoch == q->hold.epoch && x->got.epoch == next->epoch);
    EXPECT(x, next->since_us == x->now_us && next->cost_ms == q->cost_ms);
    EXPECT(x, next->refresh.epoch == 0 && !next->canceled);
    EXPECT(x, next->spent == (q->ttl_ms == 0));
    if (q->ttl_ms != 0)
        EXPECT(x, next->end_us == add_time(x->now_us, micros(q->ttl_ms)));
    else if (fresh) /* the lease is not known */
        EXPECT(x, next->end_us >= x->now_us + kept_us);
    else
        EXPECT(x, next->end_us == x->now_us + kept_us + lease);
    if (x->step.kind != RESOLVE)
        EXPECT(x, same_token(&next->token, &q->hold.token));
    if (!fresh && !refresher) {
        EXPECT(x, next->first == x->found.first);
        EXPECT(x, next->takeovers == x->found.takeovers);
        EXPECT(x, next->mode == x->found.mode);
    } else {
        EXPECT(x, next->first == next->epoch && next->takeovers == 0);
        EXPECT(x, next->mode == (fresh ? VOW_SHARED : x->found.mode));
    }
}

static void check_refreshing(const struct scene *x)
{
    const struct rules_refresh want = {
        .token = x->step.claim.token,
        .epoch = granted_epoch(x),
        .since_us = x->now_us,
        .end_us = add_time(x->now_us, micros(x->step.claim.lease_ms)),
        .lease_us = micros(x->step.claim.lease_ms)};
    EXPECT(x, same_main(&x->got.next, &x->stored));
    EXPECT(x, same_refresh(&x->got.next.refresh, &want));
    EXPECT(x, x->got.refresh && x->got.epoch == want.epoch);
}

static void check_refresh_renewed(const struct scene *x)
{
    const uint64_t lease = micros(x->step.kind == CLAIM ? x->step.claim.lease_ms
                                                        : x->step.lease_ms);
    struct rules_refresh want = x->stored.refresh;
    want.lease_us = lease;
    want.end_us = add_time(x->now_us, lease);
    EXPECT(x, same_main(&x->got.next, &x->stored));
    EXPECT(x, same_refresh(&x->got.next.refresh, &want));
    EXPECT(x, x->got.refresh && x->got.epoch == REFRESH_EPOCH);
}

/* Checks that the result stays, that the refresher has ended, and that the
 * answer is about the refresher. */
static void check_refresh_ended(const struct scene *x)
{
    struct rules_refresh want = x->stored.refresh;
    if (x->row->after != REFRESH_KEPT) {
        want.failed = true;
        want.canceled = false;
        want.end_us = x->now_us;
    }
    if (x->row->after == REFRESH_FAILED)
        want.end_us += RULES_REFRESH_PAUSE_US;
    EXPECT(x, same_main(&x->got.next, &x->stored));
    EXPECT(x, same_refresh(&x->got.next.refresh, &want));
    EXPECT(x, x->got.refresh && !x->got.left);
    EXPECT(x, x->got.epoch == REFRESH_EPOCH && x->got.first == REFRESH_EPOCH);
}

static void check_canceled(const struct scene *x)
{
    struct rules_record want = x->found;
    if (x->row->after == ASKED_TO_STOP)
        want.canceled = true;
    if (x->row->after == REFRESH_CANCELED)
        want.refresh.canceled = true;
    EXPECT(x, same_record(&x->got.next, &want));
}

static void check_kept(const struct scene *x)
{
    EXPECT(x, (x->got.effects & EFFECT_WRITE) == 0);
    if (x->moment->column != NONE)
        EXPECT(x, same_record(&x->got.next, &x->stored) ||
                      same_record(&x->got.next, &x->found));
    EXPECT(x, !x->got.left);
    if (x->got.status == VOW_STATUS_DOUBT)
        EXPECT(x, x->got.epoch == EPOCH && x->got.first == x->stored.first);
    if (x->got.status == VOW_STATUS_SETTLED)
        EXPECT(x, x->got.epoch == EPOCH && x->got.first == x->stored.first);
    if (x->got.status == VOW_STATUS_WAITING && x->moment->column == RUNNING)
        EXPECT(x, x->got.epoch == x->found.epoch &&
                      x->got.first == x->found.first);
}

static void check_after(const struct scene *x)
{
    struct rules_record want = x->found;
    switch (x->row->after) {
    case KEPT:
        check_kept(x);
        break;
    case FRESH:
        check_fresh(x, 0, 0);
        break;
    case TAKEN:
        check_fresh(x, x->found.first, x->found.takeovers + 1);
        break;
    case TAKEN_LATE:
        check_fresh(x, x->found.first, 0);
        break;
    case RENEWED:
        check_renewed(x);
        break;
    case REVIVED:
        check_revived(x);
        break;
    case STOPPED:
        check_stopped(x);
        break;
    case RESULT:
    case NEW_RESULT:
        check_result(x);
        break;
    case GONE:
        EXPECT(x, is_zero(&x->got.next));
        return;
    case SHOWN_LEFT:
        EXPECT(x, x->got.left && x->got.epoch == LEFT_EPOCH);
        EXPECT(x, x->got.first == LEFT_FIRST);
        return;
    case REFRESHING:
        check_refreshing(x);
        break;
    case REFRESH_RENEWED:
        check_refresh_renewed(x);
        break;
    case REFRESH_FAILED:
    case REFRESH_DROPPED:
    case REFRESH_KEPT:
        check_refresh_ended(x);
        break;
    case PROMOTED:
        want = promote_refresher(&x->stored);
        EXPECT(x, same_record(&x->got.next, &want));
        return;
    case ASKED_TO_STOP:
    case STILL_CANCELED:
    case REFRESH_CANCELED:
        check_canceled(x);
        break;
    case APPENDED:
        want.chunks++;
        want.chunk_bytes += CHUNK_SIZE;
        EXPECT(x, same_record(&x->got.next, &want));
        return;
    }
}

/* ---- laws --------------------------------------------------------------- */

/* Returns whether the store has a record that counts no more: a result that has
 * expired, or a lease that lapsed a day ago. */
static bool is_stale(const struct scene *x)
{
    return x->record != NULL &&
           (x->moment->promoted || x->moment->column == NONE);
}

static void check_effects(const struct scene *x)
{
    const struct decision *d = &x->got;
    const uint32_t changes = EFFECT_TEXTS | EFFECT_VALUE | EFFECT_LEAVE |
                             EFFECT_CLEAR | EFFECT_WAKE | EFFECT_CHUNK;
    if (d->code != 0)
        EXPECT(x, d->effects == 0);
    if (d->status == VOW_STATUS_WAITING && x->step.kind == CANCEL)
        EXPECT(x, (d->effects &
                   ~(uint32_t)(WRITE | EFFECT_TELL_OWNER | EFFECT_CLEAR)) == 0);
    else if (d->status == VOW_STATUS_WAITING)
        EXPECT(x, (d->effects & ~(uint32_t)EFFECT_WAIT) == 0);
    if ((d->effects & EFFECT_WRITE) == 0)
        EXPECT(x, (d->effects & changes) == 0);
    if ((d->effects & EFFECT_WRITE) != 0 && x->record != NULL &&
        (is_stale(x) || d->next.epoch != x->record->epoch))
        EXPECT(x, (d->effects & EFFECT_CLEAR) != 0); /* no old value stays */
    if ((d->effects & EFFECT_LEAVE) != 0)
        EXPECT(x, d->next.spent && d->next.end_us > x->now_us);
    if (d->status == VOW_STATUS_LOST || d->status == VOW_STATUS_NONE)
        EXPECT(x, (d->effects & EFFECT_SHOW) == 0);
}

/* A grant has a larger epoch; `first` is kept by a takeover alone; a doubt is
 * never taken over. */
static void check_grant(const struct scene *x)
{
    const struct decision *d = &x->got;
    const struct rules_record *r = x->record;
    if (x->step.kind != CLAIM || d->code != 0 || d->status != VOW_STATUS_OWNED)
        return;
    EXPECT(x, (d->effects & EFFECT_WRITE) != 0);
    EXPECT(x, x->moment->column != DOUBT || x->who == OWNER);
    if (d->epoch == x->found.epoch || d->epoch == x->found.refresh.epoch)
        return; /* the caller has owned the name before */
    EXPECT(x, d->epoch > x->step.claim.floor);
    EXPECT(x, d->epoch >= x->step.now.number);
    EXPECT(x, r == NULL || d->epoch > r->epoch);
    EXPECT(x, r == NULL || d->epoch > r->refresh.epoch);
    if (d->refresh)
        EXPECT(x, d->next.refresh.epoch == d->epoch);
    else if ((x->moment->column & (LAPSED | OLD)) != 0)
        EXPECT(x, d->first == x->found.first && d->next.first == d->first);
    else
        EXPECT(x, d->first == d->epoch && d->next.first == d->first);
}

/* No live lease is deleted; the deletion of a record changes no view. */
static void check_keep(const struct scene *x)
{
    const struct decision *d = &x->got;
    const struct rules_record *next = &d->next;
    if (d->code != 0 || (d->effects & EFFECT_WRITE) == 0 ||
        next->state == RULES_NONE)
        return;
    EXPECT(x, d->keep_until_us >= next->end_us);
    if (next->refresh.epoch != 0 && !next->refresh.failed)
        EXPECT(x, d->keep_until_us >= next->refresh.end_us);
    if (next->state == RULES_RUNNING && next->mode == VOW_ONCE)
        EXPECT(x, d->keep_until_us == RULES_NEVER);
    if (d->keep_until_us != RULES_NEVER)
        EXPECT(x, vow__rules_view(next, d->keep_until_us) == RULES_VIEW_NONE);
    vow__rules_check(next);
}

/* A step that comes twice has the same answer and no second effect. */
static void check_repeat(const struct scene *x, uint64_t later_us)
{
    const uint32_t changes = EFFECT_TEXTS | EFFECT_VALUE | EFFECT_LEAVE |
                             EFFECT_CLEAR | EFFECT_WAKE | EFFECT_CHUNK;
    const bool written = (x->got.effects & EFFECT_WRITE) != 0;
    const struct rules_record next = written ? x->got.next : x->stored;
    const bool absent = written ? next.state == RULES_NONE : x->record == NULL;
    const uint64_t now_us = x->now_us;
    const uint32_t want =
        x->row->gone_next_time ? VOW_STATUS_NONE : x->got.status;
    struct step again = x->step;
    if (x->got.code != 0 || again.now.exact ||
        vow__rules_view(&next, now_us) !=
            vow__rules_view(&next, now_us + later_us) ||
        (now_us < next.refresh.end_us) !=
            (now_us + later_us < next.refresh.end_us))
        return;
    again.now.now_us += later_us;
    again.now.number += again.now.number > 0 ? 5 : 0;
    struct decision d = run_step(absent ? NULL : &next, &again);
    EXPECT(x, d.code == x->got.code);
    if (d.status != want)
        fail_scene(TEST_HERE, x, "the repeated step has another status");
    EXPECT(x, d.status == VOW_STATUS_NONE || d.epoch == x->got.epoch);
    EXPECT(x, d.status != VOW_STATUS_OWNED || d.first == x->got.first);
    EXPECT(x, d.status != VOW_STATUS_OWNED || d.refresh == x->got.refresh);
    EXPECT(x, (d.effects & changes) == 0);
}

/* ---- running scenes ----------------------------------------------------- */

/* Adds the options that follow from the record. */
static void add_options(struct scene *x, uint64_t epoch)
{
    const struct rules_record *found = &x->found;
    uint32_t *options = &x->step.options;
    if (epoch > 0)
        *options |= epoch < found->epoch   ? LOWER
                    : epoch > found->epoch ? HIGHER
                                           : EQUAL;
    if (x->subject->canceled)
        *options |= WAS_CANCELED;
    if (found->first == found->epoch || x->moment->column == NONE)
        *options |= FIRST_OWNER;
    if (x->record != NULL && x->moment->column == NONE)
        *options |= EXPIRED;
    if (x->step.kind == CLAIM &&
        (x->step.claim.mode == VOW_ONCE || found->mode == VOW_ONCE))
        *options |= ONCE;
}

/* Returns the role of a token; epoch 0 counts as the right epoch. */
static uint32_t find_role(const struct scene *x, const vow_token *token,
                          uint64_t epoch)
{
    const struct rules_record *found = &x->found;
    if (same_token(token, &found->token))
        return epoch == 0 || epoch == found->epoch ? OWNER : SKEWED;
    if (found->refresh.epoch != 0 && same_token(token, &found->refresh.token))
        return epoch == 0 || epoch == found->refresh.epoch ? REFRESHER : SKEWED;
    return STRANGER;
}

/* Compares the decision with the row, where the row says something. */
static void compare_row(const struct scene *x)
{
    const struct row *row = x->row;
    const uint32_t options = x->step.options;
    uint32_t want = row->effects, maybe = row->maybe;
    const bool settles = row->after == RESULT || row->after == NEW_RESULT;
    EXPECT(x, x->got.code == row->code);
    if (row->code != 0)
        return;
    EXPECT(x, x->got.status == row->status);
    if (settles && (options & TTL_0) != 0)
        want |= EFFECT_LEAVE;
    if (is_stale(x) && (want & WRITE) != 0)
        want |= EFFECT_CLEAR;
    if (is_stale(x) && (maybe & WRITE) != 0)
        maybe |= EFFECT_CLEAR;
    if (settles && (options & TTL_0) != 0 && (options & EXACT) != 0 &&
        (row->after == NEW_RESULT || (options & FIRST_OWNER) != 0)) {
        /* No waiter reads the result, and no step is repeated. */
        const uint32_t rest = E_SETTLE | EFFECT_LEAVE;
        EXPECT(x, (x->got.effects & ~rest) == 0);
        EXPECT(x, (x->got.effects & EFFECT_LEAVE) == 0);
        EXPECT(x, is_zero(&x->got.next));
        return;
    }
    EXPECT(x, (x->got.effects & want) == want);
    EXPECT(x, (x->got.effects & ~(want | maybe)) == 0);
    check_after(x);
}

/* Runs the step of the scene, and checks the decision, if the cell belongs to
 * the group under test. */
static void run_scene(struct scene *x, const vow_token *token, uint64_t epoch)
{
    const struct rules_record before = x->stored;
    x->step.now.now_us = x->now_us;
    x->step.now.recheck_ms = RECHECK_MS;
    x->step.now.exact = (x->step.options & EXACT) != 0;
    add_options(x, epoch);
    x->who = find_role(x, token, epoch);
    x->row = find_row(x->step.kind, x->moment->column, x->who, x->step.options);
    const uint32_t twice =
        x->row->twice == TOGETHER ? x->row->apart : x->row->twice;
    if (x->row->apart != x->apart && twice != x->apart)
        return;
    x->got = run_step(x->record, &x->step);
    EXPECT(x, same_record(&x->stored, &before));
    check_effects(x);
    check_grant(x);
    check_keep(x);
    if (!x->row->open)
        compare_row(x);
    if (twice != x->apart)
        return;
    check_repeat(x, 0);
    check_repeat(x, 1);
}

/* Runs `fn` for each subject at each of its times, and checks the cells of a
 * group. */
static void for_each_scene(const char *step_name, uint32_t apart,
                           void (*fn)(struct scene *x))
{
    for (size_t i = 0; i < COUNT(SUBJECTS); i++)
        for (const struct moment *m = SUBJECTS[i].at; m->column != 0; m++) {
            struct scene x = {.subject = &SUBJECTS[i],
                              .moment = m,
                              .step_name = step_name,
                              .apart = apart,
                              .row = TABLE};
            x.now_us = END_US + (uint64_t)m->after_end_us;
            if (x.subject->state != RULES_NONE) {
                x.stored = build_record(x.subject);
                x.record = &x.stored;
            }
            x.found = m->promoted ? promote_refresher(&x.stored) : x.stored;
            fn(&x);
        }
}

/* ---- views -------------------------------------------------------------- */

static void check_view(struct scene *x)
{
    static const struct {
        uint32_t columns;
        uint32_t view, peek;
    } views[] = {{NONE, RULES_VIEW_NONE, VOW_STATUS_NONE},
                 {RUNNING, RULES_VIEW_RUNNING, VOW_STATUS_WAITING},
                 {LAPSED | OLD, RULES_VIEW_LAPSED, VOW_STATUS_NONE},
                 {DOUBT, RULES_VIEW_DOUBT, VOW_STATUS_DOUBT},
                 {SETTLED, RULES_VIEW_SETTLED, VOW_STATUS_SETTLED},
                 {SPENT, RULES_VIEW_SPENT, VOW_STATUS_NONE}};
    for (size_t i = 0; i < COUNT(views); i++) {
        if ((views[i].columns & x->moment->column) == 0)
            continue;
        EXPECT(x, vow__rules_view(x->record, x->now_us) == views[i].view);
        EXPECT(x, vow__rules_peek(x->record, x->now_us) == views[i].peek);
    }
    if (x->record != NULL && !x->moment->promoted)
        EXPECT(x, vow__rules_refreshing(x->record, x->now_us) ==
                      (x->moment->column == LIVE));
    vow__rules_check(&x->stored);
}

TEST(rules_table, each_record_has_its_view_and_peek_status)
{
    for_each_scene("view", TOGETHER, check_view);
}

TEST(rules_table, a_service_that_expires_leases_has_the_same_views)
{
    struct rules_record r = build_record(&SUBJECTS[1]);
    r.since_us = 0;
    r.end_us = RULES_NEVER;
    CHECK_UINT_EQ(vow__rules_view(&r, 1), RULES_VIEW_RUNNING);
    r.end_us = 0;
    CHECK_UINT_EQ(vow__rules_view(&r, 1), RULES_VIEW_LAPSED);
    r.mode = VOW_ONCE;
    CHECK_UINT_EQ(vow__rules_view(&r, 1), RULES_VIEW_DOUBT);
    r.end_us = RULES_NEVER;
    CHECK_UINT_EQ(vow__rules_view(&r, 1), RULES_VIEW_RUNNING);
}

/* ---- claim -------------------------------------------------------------- */

/* Runs a claim with each floor, number, mode, and count of takeovers. */
static void run_claims(struct scene *x, const vow_token *token,
                       uint32_t options)
{
    static const uint64_t floors[] = {0, 55, 2000};
    static const uint64_t numbers[] = {0, 45, 1000};
    const uint32_t lost = x->found.takeovers;
    const uint32_t allowed[] = {0, lost, lost + 1};
    for (size_t i = 0; i < COUNT(floors) * COUNT(numbers); i++)
        for (size_t k = 0; k < 2 * COUNT(allowed); k++) {
            const uint32_t most = allowed[k / 2];
            x->step = (struct step){
                .kind = CLAIM,
                .options = options | (lost < most ? 0 : OVER),
                .claim = {.token = *token,
                          .mode = k % 2 == 0 ? VOW_SHARED : VOW_ONCE,
                          .lease_ms = i == 0 ? UINT64_MAX : ASKED_LEASE_MS,
                          .takeovers = most,
                          .floor = floors[i % COUNT(floors)],
                          .label = "label",
                          .runner = "host:1"},
                .now = {.number = numbers[i / COUNT(floors)]}};
            vow_claim_request *q = &x->step.claim;
            q->flags |= (options & NOWAIT) != 0 ? VOW_CLAIM_NOWAIT : 0;
            q->flags |= (options & FORCE) != 0 ? VOW_CLAIM_FORCE : 0;
            if ((options & REFRESH) != 0)
                x->step.claim.refresh = x->found.epoch;
            if ((options & REFRESH_OTHER) != 0)
                x->step.claim.refresh = x->found.epoch + 1;
            run_scene(x, token, 0);
        }
}

static void run_each_token(struct scene *x, const uint32_t *options, size_t n)
{
    const vow_token *const tokens[] = {&OWNER_TOKEN, &REFRESHER_TOKEN,
                                       &STRANGER_TOKEN};
    for (size_t i = 0; i < COUNT(tokens); i++)
        for (size_t k = 0; k < n; k++)
            run_claims(x, tokens[i], options[k]);
}

static void run_plain_claims(struct scene *x)
{
    static const uint32_t options[] = {0, NOWAIT, FORCE, FORCE | NOWAIT};
    run_each_token(x, options, COUNT(options));
}

static void run_waited_claims(struct scene *x)
{
    static const uint32_t options[] = {WITH_LEFT, WITH_LEFT | NOWAIT,
                                       WITH_LEFT | FORCE};
    run_each_token(x, options, COUNT(options));
}

static void run_refresh_claims(struct scene *x)
{
    static const uint32_t options[] = {
        REFRESH,       REFRESH | NOWAIT,       REFRESH | WITH_LEFT,
        REFRESH_OTHER, REFRESH_OTHER | NOWAIT, REFRESH_OTHER | WITH_LEFT};
    run_each_token(x, options, COUNT(options));
}

TEST(rules_table, a_claim_is_decided_as_the_table_says)
{
    for_each_scene("claim", TOGETHER, run_plain_claims);
}

TEST(rules_table, a_claim_with_a_result_left_is_decided_as_the_table_says)
{
    for_each_scene("claim, left", TOGETHER, run_waited_claims);
}

TEST(rules_table, a_refresh_is_decided_as_the_table_says)
{
    for_each_scene("claim, refresh", TOGETHER, run_refresh_claims);
}

/* ---- steps of a hold ----------------------------------------------------- */

static const uint64_t HOLD_EPOCHS[] = {45, EPOCH, 60, REFRESH_EPOCH, 80};

/* Calls `fn` with each token and epoch of a hold. */
static void for_each_hold(struct scene *x,
                          void (*fn)(struct scene *x, const vow_hold *hold))
{
    const vow_token tokens[] = {OWNER_TOKEN, REFRESHER_TOKEN, STRANGER_TOKEN};
    for (size_t i = 0; i < COUNT(tokens) * COUNT(HOLD_EPOCHS); i++)
        fn(x, &(vow_hold){.token = tokens[i / COUNT(HOLD_EPOCHS)],
                          .epoch = HOLD_EPOCHS[i % COUNT(HOLD_EPOCHS)]});
}

static void run_pulse(struct scene *x, const vow_hold *hold)
{
    static const uint64_t leases[] = {1, ASKED_LEASE_MS, UINT64_MAX};
    for (size_t i = 0; i < COUNT(leases); i++)
        for (uint32_t mode = VOW_SHARED; mode <= VOW_ONCE; mode++) {
            x->step =
                (struct step){.kind = PULSE,
                              .options = mode == VOW_SHARED ? HOLD_SHARED : 0,
                              .hold = *hold,
                              .mode = mode,
                              .lease_ms = leases[i],
                              .now = {.number = 1000}};
            run_scene(x, &hold->token, hold->epoch);
        }
}

static void run_pulses(struct scene *x)
{
    for_each_hold(x, run_pulse);
}

TEST(rules_table, a_pulse_is_decided_as_the_table_says)
{
    for_each_scene("pulse", TOGETHER, run_pulses);
}

/* Runs a commit with each time to live, on a store that is exact or not. */
static void run_outcome(struct scene *x, const vow_hold *hold, enum kind kind,
                        uint32_t flags, uint32_t outcome)
{
    static const uint64_t ttls[] = {0, 5000, UINT64_MAX};
    uint32_t options = (flags & VOW_COMMIT_STRICT) != 0 ? STRICT : 0;
    options |= outcome == VOW_OUTCOME_FAILED ? FAILURE : 0;
    options |= outcome == VOW_OUTCOME_ABANDONED ? ABANDON : 0;
    for (size_t i = 0; i < 2 * COUNT(ttls); i++) {
        const uint64_t ttl = ttls[i / 2];
        x->step = (struct step){.kind = kind,
                                .options = options | (ttl == 0 ? TTL_0 : 0) |
                                           (i % 2 == 0 ? 0 : EXACT),
                                .commit = {.hold = *hold,
                                           .outcome = outcome,
                                           .flags = flags,
                                           .ttl_ms = ttl,
                                           .cost_ms = 77,
                                           .label = "label"},
                                .now = {.number = 1000}};
        run_scene(x, &hold->token, hold->epoch);
    }
}

static void run_commit(struct scene *x, const vow_hold *hold)
{
    for (uint32_t outcome = VOW_OUTCOME_DONE; outcome <= VOW_OUTCOME_ABANDONED;
         outcome++) {
        run_outcome(x, hold, COMMIT, 0, outcome);
        run_outcome(x, hold, COMMIT, VOW_COMMIT_STRICT, outcome);
    }
}

static void run_put(struct scene *x, const vow_hold *hold)
{
    if (same_token(&hold->token, &x->found.refresh.token))
        return; /* the hold of a put is of another name */
    run_outcome(x, hold, PUT, VOW_COMMIT_PUT, VOW_OUTCOME_DONE);
    run_outcome(x, hold, PUT, VOW_COMMIT_PUT, VOW_OUTCOME_FAILED);
}

static void run_resolve(struct scene *x, const vow_hold *hold)
{
    for (uint32_t outcome = VOW_OUTCOME_DONE; outcome <= VOW_OUTCOME_ABANDONED;
         outcome++)
        run_outcome(x, hold, RESOLVE, VOW_COMMIT_RESOLVE, outcome);
}

static void run_commits(struct scene *x)
{
    for_each_hold(x, run_commit);
}

static void run_puts(struct scene *x)
{
    for_each_hold(x, run_put);
}

static void run_resolves(struct scene *x)
{
    for_each_hold(x, run_resolve);
}

TEST(rules_table, a_commit_is_decided_as_the_table_says)
{
    for_each_scene("commit", TOGETHER, run_commits);
}

TEST(rules_table, a_put_replaces_only_a_result_of_a_smaller_epoch)
{
    for_each_scene("put", TOGETHER, run_puts);
}

TEST(rules_table, a_resolve_settles_only_a_doubt_of_the_same_epoch)
{
    for_each_scene("resolve", TOGETHER, run_resolves);
}

/* Runs the chunks below, at and above the next number, small and too large. */
static void run_chunk(struct scene *x, const vow_hold *hold)
{
    const uint32_t next = x->found.chunks;
    const uint64_t bytes = x->found.chunk_bytes;
    for (uint32_t number = next > 0 ? next - 1 : 0; number <= next + 2;
         number++)
        for (uint32_t large = 0; large < 2; large++) {
            const uint32_t place = number < next    ? BELOW
                                   : number == next ? NEXT
                                                    : ABOVE;
            x->step = (struct step){.kind = CHUNK,
                                    .options = place | (large != 0 ? LARGE : 0),
                                    .hold = *hold,
                                    .number = number,
                                    .most = bytes + CHUNK_SIZE - large,
                                    .now = {.number = 1000}};
            run_scene(x, &hold->token, hold->epoch);
        }
}

static void run_chunks(struct scene *x)
{
    for_each_hold(x, run_chunk);
}

TEST(rules_table, a_chunk_is_decided_as_the_table_says)
{
    for_each_scene("chunk", TOGETHER, run_chunks);
}

/* ---- forget and cancel -------------------------------------------------- */

static void run_forgets(struct scene *x)
{
    x->step = (struct step){.kind = FORGET, .options = ANY_EPOCH};
    run_scene(x, &STRANGER_TOKEN, 0);
    for (size_t i = 0; i < COUNT(HOLD_EPOCHS); i++) {
        x->step = (struct step){.kind = FORGET, .epoch = HOLD_EPOCHS[i]};
        run_scene(x, &STRANGER_TOKEN, HOLD_EPOCHS[i]);
    }
}

static void run_cancels(struct scene *x)
{
    x->step = (struct step){.kind = CANCEL};
    run_scene(x, &STRANGER_TOKEN, 0);
}

TEST(rules_table, a_forget_is_decided_as_the_table_says)
{
    for_each_scene("forget", TOGETHER, run_forgets);
}

TEST(rules_table, a_cancel_is_decided_as_the_table_says)
{
    for_each_scene("cancel", TOGETHER, run_cancels);
}

/* ---- cells that are tested apart ----------------------------------------- */

/* The record is not deleted yet, and the fence must not go back. */
TEST(rules_table, a_grant_over_an_expired_record_has_a_larger_epoch)
{
    for_each_scene("claim", EXPIRED_EPOCH, run_plain_claims);
    for_each_scene("claim, left", EXPIRED_EPOCH, run_waited_claims);
    for_each_scene("claim, refresh", EXPIRED_EPOCH, run_refresh_claims);
}

TEST(rules_table, a_strict_abandon_that_comes_twice_is_owned_twice)
{
    for_each_scene("commit", STRICT_ABANDON, run_commits);
}

TEST(rules_table, the_end_of_a_refresh_that_comes_twice_has_the_same_answer)
{
    for_each_scene("commit", REFRESH_END, run_commits);
}

TEST(rules_table, a_forget_beside_a_refresher_has_the_same_answer_twice)
{
    for_each_scene("forget", FORGET_LIVE, run_forgets);
}
