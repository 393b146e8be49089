/* SPDX-License-Identifier: MIT */
/* rules_history_test.c - random histories of one name, under the rules.
 *
 * A small store holds one record, the values left for waiters, and the
 * registered waiters, and carries out decisions as the comments of EFFECT_ say.
 * Simulated processes claim, wait, pulse, fall silent, commit, refresh, forget,
 * cancel, resolve and repeat steps, while the time jumps from boundary to
 * boundary. The properties are checked from the answers that the processes
 * got, not from the record:
 *
 *   H1  at most one runner has a valid lease, refreshers included
 *   H2  each granted epoch is larger than all epochs granted before
 *   H3  a runner settles at most once, and a replaced runner never settles
 *       while the store knows of the replacement
 *   H4  a run in mode once is never taken over, and its result never refreshed
 *   H5  a registered waiter gets the accepted result of the awaited run as long
 *       as the value is left; the waiter never runs the command instead
 *   H6  a repeated step has the same answer
 */
#include "harness.h"
#include "store/rules/rules.h"

#include <string.h>

enum { PROCESSES = 6, STEPS = 60, HISTORIES = 5000, LEFT_MAX = STEPS + 4 };
enum { EVENT_MIN = 100 };

/* Events that the histories must reach. */
enum {
    GRANT,
    TAKEOVER,
    REFRESH,
    WAIT,
    READ_LEFT, /* a waiter has read the result left */
    GIVE_UP,
    DOUBT,
    REVIVAL,   /* of a record that had vanished */
    PROMOTION, /* a refresher has become the owner */
    RESULT,
    LATE_RESULT, /* of a lapsed lease */
    REFUSAL,     /* of the result of a replaced runner */
    RESOLUTION,
    CANCEL,
    EVENTS
};

#define SECOND UINT64_C(1000000)
#define LEASE_MS UINT64_C(8000)
#define LEASE_US (LEASE_MS * 1000)
#define RECHECK_MS 5000

/* A process with at most one claim. A silent process sends nothing. */
struct process {
    vow_token token;
    uint32_t mode;
    bool silent;
    bool registered; /* the store has registered the process as a waiter */
    uint64_t waited; /* `first` of the awaited run; 0: the process is idle */
    bool holds;      /* the process runs the command */
    bool refreshes;  /* beside a result */
    bool replaced;   /* another process was granted the name, or the run was
                        settled or deleted by a resolve or forget */
    bool settled;    /* a result of this claim was accepted */
    uint64_t epoch;
    uint64_t first;
    uint64_t lease_end_us;
};

/* A value left for waiters. */
struct left {
    struct rules_record record;
    uint64_t value;
};

/* An accepted result, as the history remembers the result. */
struct accepted {
    uint64_t first;
    uint64_t value;
    uint64_t left_until_us; /* 0: not left */
    uint64_t writes;        /* of the store, with this result included */
};

struct history {
    uint64_t seed;
    uint64_t random;
    uint64_t now_us;
    int step;
    bool exact; /* no step is repeated */
    /* the store */
    bool has_record;
    struct rules_record record;
    uint64_t keep_until_us;
    uint64_t value; /* of the record */
    uint64_t number;
    uint64_t writes;
    struct left left[LEFT_MAX];
    size_t n_left;
    /* the processes, and facts about the past */
    struct process processes[PROCESSES];
    struct accepted accepted[LEFT_MAX];
    size_t n_accepted;
    uint64_t highest; /* granted epoch */
    uint64_t values;
    uint64_t tokens;
    uint64_t events[EVENTS]; /* how often each event came */
};

/* Fails with the history and step in the message. */
#define EXPECT(h, cond)                                                        \
    ((cond) ? (void)0                                                          \
            : test_fail(TEST_HERE, "history %ju, step %d: %s",                 \
                        (uintmax_t)(h)->seed, (h)->step, #cond))

static uint64_t pick_number(struct history *h, uint64_t below)
{
    return test_random(&h->random) % below;
}

static vow_token make_token(struct history *h)
{
    vow_token token = {{0}};
    h->tokens++;
    memcpy(token.bytes, &h->tokens, sizeof(h->tokens));
    return token;
}

/* ---- the store ----------------------------------------------------------- */

static const struct rules_record *find_record(const struct history *h)
{
    return h->has_record ? &h->record : NULL;
}

static const struct left *find_left(const struct history *h, uint64_t first)
{
    for (size_t i = 0; first != 0 && i < h->n_left; i++)
        if (h->left[i].record.first == first &&
            h->now_us < h->left[i].record.end_us)
            return &h->left[i];
    return NULL;
}

static bool has_waiters(const struct history *h)
{
    for (size_t i = 0; i < PROCESSES; i++)
        if (h->processes[i].registered)
            return true;
    return false;
}

static struct rules_now now_of(struct history *h)
{
    h->number += 1 + pick_number(h, 3);
    return (struct rules_now){.now_us = h->now_us,
                              .number = h->number,
                              .recheck_ms = RECHECK_MS,
                              .exact = h->exact && !has_waiters(h)};
}

/* Leaves the value under (name, next.first), in place of an older value. */
static void leave_value(struct history *h, const struct rules_record *next,
                        uint64_t value)
{
    size_t i = 0;
    while (i < h->n_left && h->left[i].record.first != next->first)
        i++;
    EXPECT(h, i < LEFT_MAX);
    h->left[i] = (struct left){*next, value};
    h->n_left += i == h->n_left;
}

/* Carries out a decision for a process; `value` is the request's. */
static void apply_decision(struct history *h, struct process *p,
                           const struct decision *d, uint64_t value)
{
    EXPECT(h, d->code == 0);
    if ((d->effects & EFFECT_CLEAR) != 0)
        h->value = 0;
    if ((d->effects & EFFECT_VALUE) != 0)
        h->value = d->next.spent ? 0 : value;
    if ((d->effects & EFFECT_LEAVE) != 0)
        leave_value(h, &d->next, value);
    if ((d->effects & EFFECT_WRITE) != 0) {
        vow__rules_check(&d->next);
        EXPECT(h, d->next.state != RULES_RUNNING || h->value == 0);
        h->has_record = d->next.state != RULES_NONE;
        h->record = d->next;
        h->keep_until_us = d->keep_until_us;
        h->writes++;
    }
    if ((d->effects & EFFECT_WAIT) != 0)
        p->registered = true;
    if ((d->effects & EFFECT_UNWAIT) != 0)
        p->registered = false;
    if ((d->effects & EFFECT_WAKE) != 0)
        for (size_t i = 0; i < PROCESSES; i++)
            h->processes[i].registered = false;
}

/* Deletes the record when the store may, in half of the cases. */
static void expire_record(struct history *h)
{
    if (h->has_record && h->now_us >= h->keep_until_us &&
        pick_number(h, 2) == 0) {
        h->has_record = false;
        h->value = 0;
        memset(&h->record, 0, sizeof(h->record));
    }
}

/* ---- properties ---------------------------------------------------------- */

static bool lease_is_valid(const struct history *h, const struct process *p)
{
    return p->holds && h->now_us < p->lease_end_us;
}

/* H1. */
static void check_runners(const struct history *h)
{
    int runners = 0;
    for (size_t i = 0; i < PROCESSES; i++)
        runners += lease_is_valid(h, &h->processes[i]);
    EXPECT(h, runners <= 1);
}

/* Returns the result that is left for the run, by the history's own notes. */
static const struct accepted *find_accepted(const struct history *h,
                                            uint64_t first)
{
    for (size_t i = h->n_accepted; i > 0; i--)
        if (h->accepted[i - 1].first == first)
            return &h->accepted[i - 1];
    return NULL;
}

/* For how long the value is left. */
static uint64_t span_left(uint64_t ttl_ms, uint64_t lease_us, bool replaced)
{
    return ttl_ms == 0 ? vow__rules_keep_us(RECHECK_MS, replaced) + lease_us
                       : 0;
}

/* Notes an accepted result. A store that is exact leaves no value if there are
 * no waiters and no owner was lost: `left_us` is 0. */
static void note_accepted(struct history *h, uint64_t first, uint64_t value,
                          uint64_t left_us)
{
    EXPECT(h, h->n_accepted < LEFT_MAX);
    h->accepted[h->n_accepted++] = (struct accepted){
        .first = first,
        .value = value,
        .left_until_us = left_us == 0 ? 0 : h->now_us + left_us,
        .writes = h->writes};
}

/* Notes that the process owns the name: H2, H4, and which run is continued. */
static void note_grant(struct history *h, struct process *p,
                       const struct decision *d)
{
    bool continued = d->first == d->epoch;
    EXPECT(h, d->epoch > h->highest);
    h->highest = d->epoch;
    for (size_t i = 0; i < PROCESSES; i++) {
        struct process *q = &h->processes[i];
        if (q == p || !q->holds || q->replaced)
            continue;
        EXPECT(h, !lease_is_valid(h, q));
        EXPECT(h, q->mode != VOW_ONCE);
        if (!q->refreshes && !d->refresh &&
            h->now_us < q->lease_end_us + RULES_MINUTE_US) {
            EXPECT(h, d->first == q->first);
        }
        continued = continued || d->first == q->first;
        q->replaced = true;
    }
    EXPECT(h, continued);
    EXPECT(h, !d->refresh ||
                  (p->mode != VOW_ONCE && d->next.mode != VOW_ONCE)); /* H4 */
    h->events[d->refresh ? REFRESH : GRANT]++;
    h->events[TAKEOVER] += d->first != d->epoch;
    p->holds = true;
    p->replaced = p->settled = false;
    p->refreshes = d->refresh;
    p->epoch = d->epoch;
    p->first = d->first;
    p->registered = false;
    p->waited = 0;
}

/* Ends the claim of a process. */
static void end_claim(struct process *p)
{
    p->holds = false;
    p->registered = false;
    p->waited = 0;
}

/* H5: checks the answer to a claim that names the awaited run. */
static void check_waiter(const struct history *h, const struct process *p,
                         const vow_claim_request *request,
                         const struct decision *d, const struct left *left)
{
    const struct accepted *a = find_accepted(h, p->waited);
    if (p->waited == 0 || (request->flags & VOW_CLAIM_FORCE) != 0 || a == NULL)
        return;
    if (h->now_us < a->left_until_us) {
        EXPECT(h, d->status == VOW_STATUS_SETTLED && d->left);
        EXPECT(h, left != NULL && left->value == a->value);
        EXPECT(h, (d->effects & EFFECT_SHOW) != 0);
    }
    if (p->registered && a->writes == h->writes && h->value == a->value)
        EXPECT(h, d->status == VOW_STATUS_SETTLED ||
                      h->now_us >= h->record.end_us);
}

/* Marks lapsed runs as ended by another process; epoch 0: all. */
static void replace_lapsed(struct history *h, uint64_t epoch)
{
    for (size_t i = 0; i < PROCESSES; i++) {
        struct process *q = &h->processes[i];
        if (q->holds && (epoch == 0 || q->epoch == epoch) &&
            !lease_is_valid(h, q))
            q->replaced = true;
    }
}

/* ---- steps of processes -------------------------------------------------- */

/* H6: the same step again, at the same time. */
static void check_repeat(const struct history *h, const struct decision *a,
                         const struct decision *b)
{
    const uint32_t changes =
        EFFECT_VALUE | EFFECT_LEAVE | EFFECT_CLEAR | EFFECT_WAKE | EFFECT_TEXTS;
    EXPECT(h, b->code == a->code && b->status == a->status);
    EXPECT(h, a->status == VOW_STATUS_NONE || b->epoch == a->epoch);
    EXPECT(h, (b->effects & changes) == 0);
}

static bool wants_repeat(struct history *h)
{
    return !h->exact && pick_number(h, 3) == 0;
}

static void note_claim(struct history *h, struct process *p,
                       const struct decision *d)
{
    if (d->status == VOW_STATUS_OWNED) {
        if (!p->holds || d->epoch != p->epoch)
            note_grant(h, p, d);
        p->lease_end_us = h->now_us + LEASE_US;
    } else if (d->status == VOW_STATUS_WAITING) {
        p->waited = d->first;
        EXPECT(h, d->first != 0);
    } else {
        end_claim(p);
    }
}

/* Returns the awaited runner, by the history's own notes. */
static const struct process *find_runner(const struct history *h)
{
    for (size_t i = 0; i < PROCESSES; i++)
        if (lease_is_valid(h, &h->processes[i]))
            return &h->processes[i];
    return NULL;
}

static void send_claim(struct history *h, struct process *p,
                       const vow_claim_request *request)
{
    const struct left *left = find_left(h, p->waited);
    struct decision d =
        vow__rules_claim(find_record(h), left == NULL ? NULL : &left->record,
                         request, now_of(h));
    check_waiter(h, p, request, &d, left);
    if (d.status == VOW_STATUS_WAITING) { /* with the number of the run */
        EXPECT(h, find_runner(h) != NULL);
        EXPECT(h, d.first == find_runner(h)->first);
    }
    if (d.status == VOW_STATUS_SETTLED && !d.left && h->has_record &&
        h->record.state != RULES_GAVE_UP && d.next.state != RULES_GAVE_UP &&
        (d.effects & EFFECT_SHOW) != 0)
        EXPECT(h, h->value != 0);
    apply_decision(h, p, &d, 0);
    if ((d.effects & EFFECT_WRITE) != 0 && d.next.state == RULES_GAVE_UP) {
        replace_lapsed(h, 0);
        h->events[GIVE_UP]++;
    }
    note_claim(h, p, &d);
    h->events[READ_LEFT] += d.left;
    h->events[WAIT] += d.status == VOW_STATUS_WAITING;
    h->events[DOUBT] += d.status == VOW_STATUS_DOUBT;
}

/* Sends a new claim, or the claim of a waiter again. */
static void step_claim(struct history *h, struct process *p)
{
    static const uint32_t flags[] = {0, 0, 0, VOW_CLAIM_NOWAIT,
                                     VOW_CLAIM_FORCE};
    static const uint32_t modes[8] = {VOW_SHARED, VOW_SHARED, VOW_SHARED,
                                      VOW_SHARED, VOW_FENCED, VOW_FENCED,
                                      VOW_FENCED, VOW_ONCE};
    if (p->holds)
        return;
    if (p->waited == 0) {
        p->token = make_token(h);
        p->mode = modes[pick_number(h, 8)];
    }
    vow_claim_request request = {.token = p->token,
                                 .mode = p->mode,
                                 .flags = flags[pick_number(h, 5)],
                                 .lease_ms = LEASE_MS,
                                 .takeovers = (uint32_t)pick_number(h, 4)};
    if (pick_number(h, 8) == 0) {
        request.floor = h->number + pick_number(h, 10);
        h->number = request.floor + 1;
    }
    send_claim(h, p, &request);
    if (wants_repeat(h) && (p->holds || p->waited != 0)) {
        const bool held = p->holds;
        const uint64_t epoch = p->epoch;
        send_claim(h, p, &request);
        EXPECT(h, p->holds == held && p->epoch == epoch);
    }
}

/* Claims the refresh of the result that the store shows. */
static void step_refresh(struct history *h, struct process *p)
{
    if (p->holds || p->waited != 0 || !h->has_record)
        return;
    p->token = make_token(h);
    p->mode = h->record.mode;
    vow_claim_request request = {.token = p->token,
                                 .mode = p->mode,
                                 .flags = VOW_CLAIM_NOWAIT,
                                 .lease_ms = LEASE_MS,
                                 .takeovers = 1,
                                 .refresh = h->record.epoch};
    send_claim(h, p, &request);
    if (wants_repeat(h) && p->holds) {
        const uint64_t epoch = p->epoch;
        send_claim(h, p, &request);
        EXPECT(h, p->holds && p->epoch == epoch);
    }
}

static void step_pulse(struct history *h, struct process *p)
{
    const vow_hold hold = {.token = p->token, .epoch = p->epoch};
    if (!p->holds)
        return;
    const bool free =
        vow__rules_view(find_record(h), h->now_us) == RULES_VIEW_NONE;
    struct decision d =
        vow__rules_pulse(find_record(h), &hold, p->mode, LEASE_MS, now_of(h));
    apply_decision(h, p, &d, 0);
    if (wants_repeat(h)) {
        struct decision again = vow__rules_pulse(find_record(h), &hold, p->mode,
                                                 LEASE_MS, now_of(h));
        check_repeat(h, &d, &again);
        apply_decision(h, p, &again, 0);
    }
    if (d.status == VOW_STATUS_OWNED || d.status == VOW_STATUS_CANCELED) {
        EXPECT(h, d.epoch == p->epoch);
        if (free) { /* the record had vanished: made again for mode shared */
            EXPECT(h, p->mode == VOW_SHARED);
            p->replaced = p->refreshes = false;
            p->first = p->epoch;
            h->events[REVIVAL]++;
        }
        EXPECT(h, !p->replaced);
        h->events[PROMOTION] += p->refreshes && !d.refresh;
        h->events[CANCEL] += d.status == VOW_STATUS_CANCELED;
        p->lease_end_us = h->now_us + LEASE_US;
    } else {
        end_claim(p);
    }
}

/* What a commit found, and the value it brought. */
struct commit_case {
    enum rules_view before;
    uint64_t spent_epoch; /* of the record that the commit found */
    uint64_t value;
    bool exact;
};

/* H3. Notes a result that the store has accepted from a process. */
static void note_commit(struct history *h, struct process *p,
                        const vow_commit_request *q, const struct decision *d,
                        const struct commit_case *c)
{
    const enum rules_view before = c->before;
    const bool vanished =
        before == RULES_VIEW_NONE || before == RULES_VIEW_SPENT;
    if ((d->effects & EFFECT_WRITE) == 0 || d->status != VOW_STATUS_OWNED)
        return;
    EXPECT(h, !p->settled);
    EXPECT(h, !p->replaced || vanished);
    EXPECT(h, before != RULES_VIEW_SPENT || p->epoch > c->spent_epoch);
    EXPECT(h, !vanished || (q->flags & VOW_COMMIT_STRICT) == 0);
    if (d->next.state == RULES_NONE && q->outcome == VOW_OUTCOME_ABANDONED)
        return;
    if ((d->effects & EFFECT_VALUE) == 0 && d->next.state != RULES_NONE) {
        EXPECT(h, p->refreshes && q->outcome != VOW_OUTCOME_DONE);
        return;
    }
    p->settled = true;
    h->events[RESULT]++;
    h->events[PROMOTION] += p->refreshes && before != RULES_VIEW_SETTLED;
    h->events[LATE_RESULT] += h->now_us >= p->lease_end_us;
    const bool deleted = d->next.state == RULES_NONE;
    EXPECT(h, !deleted || (c->exact && q->ttl_ms == 0));
    EXPECT(h, deleted || vanished || d->next.first == p->first);
    EXPECT(h, deleted || d->next.epoch == p->epoch);
    uint64_t left_us = span_left(q->ttl_ms, vanished ? 0 : LEASE_US,
                                 !vanished && p->first != p->epoch);
    note_accepted(h, vanished ? p->epoch : p->first, c->value,
                  deleted ? 0 : left_us);
}

static void step_commit(struct history *h, struct process *p)
{
    static const uint64_t ttls[] = {0, 0, 0, 3000, 10000, UINT64_MAX};
    static const uint32_t outcomes[] = {VOW_OUTCOME_DONE, VOW_OUTCOME_DONE,
                                        VOW_OUTCOME_DONE, VOW_OUTCOME_FAILED,
                                        VOW_OUTCOME_ABANDONED};
    if (!p->holds)
        return;
    const vow_commit_request request = {
        .hold = {.token = p->token, .epoch = p->epoch},
        .outcome = outcomes[pick_number(h, 5)],
        .flags = p->mode == VOW_SHARED ? 0 : VOW_COMMIT_STRICT,
        .ttl_ms = ttls[pick_number(h, 6)]};
    const struct rules_now now = now_of(h);
    const uint64_t value = ++h->values;
    const struct commit_case found = {
        .before = vow__rules_view(find_record(h), h->now_us),
        .spent_epoch = h->record.epoch,
        .value = value,
        .exact = now.exact};
    struct decision d = vow__rules_commit(find_record(h), &request, now);
    apply_decision(h, p, &d, value);
    note_commit(h, p, &request, &d, &found);
    h->events[REFUSAL] += p->replaced && d.status != VOW_STATUS_OWNED;
    end_claim(p);
    if (wants_repeat(h)) {
        struct decision again =
            vow__rules_commit(find_record(h), &request, now_of(h));
        check_repeat(h, &d, &again);
        apply_decision(h, p, &again, value);
    }
}

/* Resolves a doubt; the epoch is right, or of another run. */
static void step_resolve(struct history *h, struct process *p)
{
    if (!h->has_record)
        return;
    const bool doubt =
        vow__rules_peek(&h->record, h->now_us) == VOW_STATUS_DOUBT;
    const uint64_t epoch = h->record.epoch + (pick_number(h, 4) == 0);
    const vow_commit_request request = {
        .hold = {.token = make_token(h), .epoch = epoch},
        .outcome = VOW_OUTCOME_DONE + (uint32_t)pick_number(h, 3),
        .flags = VOW_COMMIT_RESOLVE,
        .ttl_ms = pick_number(h, 2) * 20000};
    const bool right = doubt && epoch == h->record.epoch;
    const uint64_t first = h->record.first;
    const struct rules_now now = now_of(h);
    const uint64_t value = ++h->values;
    struct decision d = vow__rules_commit(&h->record, &request, now);
    apply_decision(h, p, &d, value);
    EXPECT(h, right == ((d.effects & EFFECT_WRITE) != 0));
    EXPECT(h, !right || d.status == VOW_STATUS_OWNED);
    if (!right)
        return;
    replace_lapsed(h, epoch);
    h->events[RESOLUTION]++;
    if (request.outcome != VOW_OUTCOME_ABANDONED)
        note_accepted(
            h, first, value,
            d.next.state == RULES_NONE
                ? 0
                : span_left(request.ttl_ms, LEASE_US, d.first != d.epoch));
}

static void step_forget(struct history *h, struct process *p)
{
    uint64_t epoch = h->has_record ? h->record.epoch : 0;
    epoch = pick_number(h, 3) == 0 ? 0 : epoch + (pick_number(h, 4) == 0);
    const struct process *runner = find_runner(h);
    struct decision d = vow__rules_forget(find_record(h), epoch, now_of(h));
    apply_decision(h, p, &d, 0);
    if ((d.effects & EFFECT_WRITE) == 0)
        return;
    /* Only a refresher outlives a forget. */
    EXPECT(h, (runner != NULL) == (d.next.state == RULES_RUNNING));
    EXPECT(h, runner == NULL || d.next.epoch == runner->epoch);
    for (size_t i = 0; i < PROCESSES; i++)
        if (h->processes[i].holds && h->processes[i].mode == VOW_ONCE)
            h->processes[i].replaced = true;
}

static void step_cancel(struct history *h, struct process *p)
{
    const struct process *runner = find_runner(h);
    struct decision d = vow__rules_cancel(find_record(h), now_of(h));
    EXPECT(h, (d.status == VOW_STATUS_WAITING) == (runner != NULL));
    apply_decision(h, p, &d, 0);
}

/* ---- time ---------------------------------------------------------------- */

/* Moves the time to just before, at or after a boundary of the record. */
static void jump_to_boundary(struct history *h)
{
    static const uint64_t after[] = {0, RULES_MINUTE_US, RULES_DAY_US};
    const struct rules_record *r = &h->record;
    uint64_t end = r->refresh.epoch != 0 && pick_number(h, 2) == 0
                       ? r->refresh.end_us
                       : r->end_us;
    if (end == 0 || end == RULES_NEVER)
        return;
    end += after[pick_number(h, 8) / 3] + pick_number(h, 3) - 1;
    if (end > h->now_us)
        h->now_us = end;
}

static void pass_time(struct history *h)
{
    const uint64_t kind = pick_number(h, 16);
    if (kind < 6)
        h->now_us += pick_number(h, SECOND);
    else if (kind < 9)
        h->now_us += pick_number(h, LEASE_US);
    else if (kind < 11)
        jump_to_boundary(h);
    else if (kind == 11 && pick_number(h, 4) == 0)
        h->now_us += pick_number(h, 2 * RULES_MINUTE_US);
    else if (kind == 12 && pick_number(h, 16) == 0)
        h->now_us += pick_number(h, 2 * RULES_DAY_US);
}

/* ---- histories ----------------------------------------------------------- */

/* Sends a step of a process that is not silent: as a person who manages the
 * name, as a runner, as a waiter, or as a new caller. */
static void run_random_step(struct history *h)
{
    struct process *p = &h->processes[pick_number(h, PROCESSES)];
    const uint64_t kind = pick_number(h, 32);
    if (p->silent)
        p->silent = pick_number(h, 6) != 0;
    else if (kind < 2)
        p->silent = true;
    else if (kind < 4)
        step_resolve(h, p);
    else if (kind == 4)
        step_forget(h, p);
    else if (kind < 7)
        step_cancel(h, p);
    else if (p->holds && kind % 2 == 0)
        step_pulse(h, p);
    else if (p->holds)
        step_commit(h, p);
    else if (p->waited == 0 && kind % 2 == 0)
        step_refresh(h, p);
    else
        step_claim(h, p);
}

static void run_history(uint64_t seed, bool exact, uint64_t *events)
{
    static struct history h;
    memset(&h, 0, sizeof(h));
    h.seed = h.random = seed;
    h.exact = exact;
    h.now_us = 100 * RULES_DAY_US;
    for (h.step = 0; h.step < STEPS; h.step++) {
        pass_time(&h);
        expire_record(&h);
        run_random_step(&h);
        check_runners(&h);
    }
    for (size_t i = 0; i < EVENTS; i++)
        events[i] += h.events[i];
}

static void run_histories(bool exact)
{
    uint64_t random = test_seed();
    uint64_t events[EVENTS] = {0};
    for (int i = 0; i < HISTORIES; i++)
        run_history(test_random(&random), exact, events);
    for (size_t i = 0; i < EVENTS; i++)
        if (events[i] < EVENT_MIN)
            FAIL("event %zu came %ju times, want %d", i, (uintmax_t)events[i],
                 EVENT_MIN);
}

TEST(rules_history, a_store_that_repeats_steps_keeps_the_promises)
{
    run_histories(false);
}

TEST(rules_history, an_exact_store_keeps_the_promises)
{
    run_histories(true);
}
