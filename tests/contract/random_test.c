/* SPDX-License-Identifier: MIT */
/* random_test.c - random steps of all instances, against a model.
 *
 * The model is the rules of vow/store.h once more, as plainly as possible: an
 * array of names, a bit for each who waits, no expiry but by comparing times.
 * Every answer of the store must be the model's. Epochs are the store's own:
 * they must be above all that were seen.
 *
 * On a store with real time, leases and results last for 0 or LONG_MS, so that
 * nothing depends on how long a step takes; on virtual time they last for any
 * time, and time passes.
 */
#include "contract.h"
#include <stdio.h>

enum { NAMES = 4, STEPS = 1500, STEPS_REAL = 300, TIME_STEP_MS = 400 };

enum state { ABSENT, RUNS, SETTLED };

struct model_name {
    enum state state;
    uint64_t token; /* of the owner, or of who settled it; 0: nobody */
    uint64_t epoch;
    uint64_t end_ms; /* of the lease, or of the result */
    uint64_t lease_ms;
    uint32_t mode, takeovers;
    bool failed, canceled;
    unsigned value; /* its number; 0: VOW_EGAVEUP */
    unsigned chunks;
    bool made_again; /* by a pulse: it takes no chunks */
    bool replaced;   /* an owner of the run was, or may have been */
    bool waits[RIG_INSTANCES];
    uint64_t wait_token[RIG_INSTANCES];
    uint64_t wait_first[RIG_INSTANCES];
    uint64_t hidden_ms; /* something may be left of a result for who waited */
};

struct model {
    struct rig *rig;
    uint64_t seed;
    uint64_t now_ms;
    uint64_t token; /* the last one that was made up */
    uint64_t epoch; /* the highest one seen */
    unsigned value; /* the last one */
    unsigned told[RIG_INSTANCES];
    bool tell[RIG_INSTANCES];
    struct model_name names[NAMES];
};

static const char *const NAME[NAMES] = {"a", "b", "c", "d"};

static uint64_t roll(struct model *m, uint64_t n)
{
    return test_random(&m->seed) % n;
}

static uint64_t span(struct model *m)
{
    if (m->rig->store->real_time)
        return roll(m, 3) == 0 ? 0 : LONG_MS;
    return roll(m, 4) == 0 ? 0 : roll(m, 4) == 0 ? LONG_MS : roll(m, 1000);
}

static bool alive(const struct model *m, const struct model_name *n)
{
    return n->end_ms > m->now_ms;
}

static void expire(const struct model *m, struct model_name *n)
{
    if (n->state == SETTLED && !alive(m, n))
        n->state = ABSENT;
}

static uint32_t says_of(const struct model *m, const struct model_name *n)
{
    if (n->state == ABSENT)
        return VOW_STATUS_NONE;
    if (n->state == SETTLED)
        return VOW_STATUS_SETTLED;
    if (alive(m, n))
        return VOW_STATUS_WAITING;
    return n->mode == VOW_ONCE ? VOW_STATUS_DOUBT : VOW_STATUS_NONE;
}

static unsigned waiting(const struct model_name *n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < RIG_INSTANCES; i++)
        sum += n->waits[i];
    return sum;
}

/* All who wait will be told, and are not registered any more. */
static void wake(struct model *m, struct model_name *n)
{
    for (size_t i = 0; i < RIG_INSTANCES; i++) {
        m->tell[i] |= n->waits[i];
        n->waits[i] = false;
    }
}

static void value_text(unsigned value, char text[16])
{
    snprintf(text, 16, "value %u", value);
}

static void check_settled(const struct model_name *n, struct rig_answer a)
{
    char text[16];
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.epoch, n->epoch);
    CHECK_INT_EQ(a.failed, n->failed);
    value_text(n->value, text);
    if (n->value == 0)
        CHECK_MEM_EQ(a.value, "-6014\n", 6);
    else
        CHECK_STR_EQ((const char *)a.value, text);
}

/* ---- claim --------------------------------------------------------------- */

/* Then it is as if it had never been begun. */
static bool long_lost(const struct model *m, const struct model_name *n)
{
    return m->now_ms >= n->end_ms + 60000;
}

static void model_own(struct model *m, struct model_name *n,
                      const vow_claim_request *ask, uint64_t token,
                      struct rig_answer a)
{
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > ask->floor);
    CHECK(a.epoch > m->epoch);
    m->epoch = a.epoch;
    n->takeovers = n->state == RUNS && !long_lost(m, n) ? n->takeovers + 1 : 0;
    n->replaced = n->state == RUNS;
    n->state = RUNS;
    n->token = token;
    n->epoch = a.epoch;
    n->mode = ask->mode;
    n->lease_ms = ask->lease_ms;
    n->end_ms = m->now_ms + ask->lease_ms;
    n->canceled = false;
    n->chunks = 0;
    n->made_again = false;
    CHECK_UINT_EQ(a.takeovers, n->takeovers);
}

static void model_claim(struct model *m, struct model_name *n, size_t i,
                        const vow_claim_request *ask, uint64_t token,
                        struct rig_answer a)
{
    bool force = (ask->flags & VOW_CLAIM_FORCE) != 0 && n->token != token;
    uint32_t status = says_of(m, n);
    bool waits = false;
    if (n->state == ABSENT || (n->state == SETTLED && force)) {
        n->state = ABSENT;
        model_own(m, n, ask, token, a);
    } else if (n->state == SETTLED) {
        check_settled(n, a);
    } else if (n->token == token) {
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.epoch, n->epoch);
        n->lease_ms = ask->lease_ms;
        n->end_ms = m->now_ms + ask->lease_ms;
    } else if (status == VOW_STATUS_WAITING) {
        waits = n->waits[i] || (ask->flags & VOW_CLAIM_NOWAIT) == 0;
        if ((ask->flags & VOW_CLAIM_NOWAIT) == 0) {
            n->wait_token[i] = token;
            n->wait_first[i] = a.first;
        }
    } else if (status == VOW_STATUS_DOUBT) {
        CHECK_UINT_EQ(a.status, VOW_STATUS_DOUBT);
    } else if (n->takeovers < ask->takeovers || force || long_lost(m, n)) {
        model_own(m, n, ask, token, a);
    } else {
        n->state = SETTLED;
        n->failed = true;
        n->value = 0;
        n->token = 0;
        n->end_ms = m->now_ms + 60000;
        check_settled(n, a);
        wake(m, n);
        m->tell[i] = false; /* it has the answer */
    }
    n->waits[i] = waits;
    if (!waits && status != VOW_STATUS_WAITING)
        return;
    if (a.status == VOW_STATUS_OWNED)
        return;
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(a.epoch, n->epoch);
    rig_check_waiters(m->rig, a.waiters, waiting(n));
}

static void step_claim(struct model *m, size_t k, size_t i)
{
    struct model_name *n = &m->names[k];
    uint64_t token = ++m->token;
    if (roll(m, 4) == 0 && n->state != ABSENT && n->token != 0)
        token = n->token;
    else if (n->waits[i] && roll(m, 2) == 0)
        token = n->wait_token[i];
    vow_claim_request ask =
        *ASK(NAME[k], token, .lease_ms = span(m),
             .takeovers = (uint32_t)roll(m, 5), .mode = (uint32_t)roll(m, 3),
             .floor = roll(m, 5) == 0 ? m->epoch + 3 : 0,
             .flags = (uint32_t)(roll(m, 4) == 0 ? roll(m, 4) : 0));
    model_claim(m, n, i, &ask, token, rig_claim(m->rig, i, &ask));
}

/* ---- commit -------------------------------------------------------------- */

/* A result with ttl 0: who waited has it, before and after a stranger's claim;
 * then nothing of it is left that could be seen. */
static void read_hidden(struct model *m, size_t k, const struct model_name *was)
{
    struct model_name *n = &m->names[k];
    for (size_t i = 0; i < RIG_INSTANCES; i++) {
        if (!was->waits[i])
            continue;
        if (roll(m, 3) == 0 && n->state == ABSENT) {
            size_t other = (i + 1) % RIG_INSTANCES;
            if (!was->waits[other])
                step_claim(m, k, other);
        }
        check_settled(was, rig_claim(m->rig, i,
                                     ASK(NAME[k], was->wait_token[i],
                                         .waited = was->wait_first[i])));
    }
}

static void model_settle(struct model *m, size_t k,
                         const vow_commit_request *ask, uint64_t token)
{
    struct model_name *n = &m->names[k];
    if (ask->outcome == VOW_OUTCOME_ABANDONED) {
        if (n->state == RUNS) {
            n->state = ABSENT;
            wake(m, n);
        }
        return;
    }
    if (ask->hold.epoch > m->epoch)
        m->epoch = ask->hold.epoch;
    uint64_t kept_ms = 2 * m->rig->at[0]->ops->recheck_ms;
    if (n->state == RUNS && n->replaced && kept_ms < 60000)
        kept_ms = 60000;
    n->state = SETTLED;
    n->failed = ask->outcome == VOW_OUTCOME_FAILED;
    n->value = m->value;
    n->token = token;
    n->epoch = ask->hold.epoch;
    n->end_ms = m->now_ms + ask->ttl_ms;
    if (ask->ttl_ms > 0) {
        wake(m, n);
        return;
    }
    struct model_name was = *n;
    n->state = ABSENT;
    n->hidden_ms = m->now_ms + n->lease_ms + kept_ms + 1;
    for (size_t i = 0; i < RIG_INSTANCES; i++)
        n->waits[i] = false;
    read_hidden(m, k, &was);
}

/* What a commit must be answered with. */
static uint32_t judge(const struct model *m, const struct model_name *n,
                      const vow_commit_request *ask, uint64_t token)
{
    bool same = n->token == token && n->epoch == ask->hold.epoch;
    bool put = (ask->flags & VOW_COMMIT_PUT) != 0;
    bool resolve = (ask->flags & VOW_COMMIT_RESOLVE) != 0;
    bool strict = (ask->flags & VOW_COMMIT_STRICT) != 0 &&
                  ask->outcome != VOW_OUTCOME_ABANDONED;
    if (n->state == ABSENT)
        return strict || resolve ? VOW_STATUS_NONE : VOW_STATUS_OWNED;
    if (n->state == SETTLED && (same || (put && ask->hold.epoch > n->epoch)))
        return VOW_STATUS_OWNED;
    if (n->state == SETTLED)
        return VOW_STATUS_SETTLED;
    if (resolve)
        return says_of(m, n) == VOW_STATUS_DOUBT && n->epoch == ask->hold.epoch
                   ? VOW_STATUS_OWNED
                   : VOW_STATUS_LOST;
    return same && !put ? VOW_STATUS_OWNED : VOW_STATUS_LOST;
}

static void step_commit(struct model *m, size_t k, size_t i)
{
    struct model_name *n = &m->names[k];
    uint64_t token = n->token;
    uint64_t epoch = n->epoch;
    char text[16];
    if (n->state == ABSENT && n->hidden_ms > m->now_ms)
        return; /* who comes late with what is left to the store */
    if (n->state == ABSENT || n->token == 0 || roll(m, 4) == 0)
        token = ++m->token;
    if (roll(m, 4) == 0)
        epoch = m->epoch > 3 ? m->epoch - roll(m, 4) : 1;
    static const uint32_t flags[] = {
        0, 0, 0, VOW_COMMIT_STRICT, VOW_COMMIT_PUT, VOW_COMMIT_RESOLVE};
    vow_commit_request ask = *COMMIT(
        NAME[k], token, epoch == 0 ? 1 : epoch, .ttl_ms = span(m),
        .flags = flags[roll(m, 6)], .outcome = 1 + (uint32_t)roll(m, 3));
    if ((ask.flags & VOW_COMMIT_PUT) != 0)
        ask.outcome = VOW_OUTCOME_DONE;
    value_text(++m->value, text);
    uint32_t status = judge(m, n, &ask, token);
    bool again =
        n->state == SETTLED && n->token == token && n->epoch == ask.hold.epoch;
    struct rig_answer a = rig_commit(m->rig, i, &ask, text);
    CHECK_UINT_EQ(a.status, status);
    if (status == VOW_STATUS_SETTLED)
        check_settled(n, a);
    if (status == VOW_STATUS_OWNED && !again)
        model_settle(m, k, &ask, token);
}

/* ---- the others ---------------------------------------------------------- */

static void step_pulse(struct model *m, size_t k, size_t i)
{
    struct model_name *n = &m->names[k];
    uint64_t token = n->token;
    if (n->state == ABSENT && n->hidden_ms > m->now_ms)
        return;
    if (n->state == ABSENT || roll(m, 4) == 0)
        token = ++m->token;
    uint64_t epoch = n->state == ABSENT ? m->epoch + 1 : n->epoch;
    vow_hold hold = {
        .name = rig_name(NAME[k]), .token = rig_token(token), .epoch = epoch};
    uint64_t lease_ms = span(m);
    struct rig_answer a = rig_pulse(m->rig, i, &hold, lease_ms);
    if (n->state == SETTLED) {
        CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    } else if (n->state == ABSENT) {
        CHECK_UINT_EQ(a.epoch, epoch);
        model_own(m, n, ASK(NAME[k], token, .lease_ms = lease_ms), token, a);
        n->made_again = true;
    } else if (n->token != token) {
        CHECK_UINT_EQ(a.status, VOW_STATUS_LOST);
    } else {
        CHECK_UINT_EQ(a.status,
                      n->canceled ? VOW_STATUS_CANCELED : VOW_STATUS_OWNED);
        CHECK_UINT_EQ(a.epoch, n->epoch);
        n->lease_ms = lease_ms;
        n->end_ms = m->now_ms + lease_ms;
    }
}

static void step_forget(struct model *m, size_t k, size_t i)
{
    struct model_name *n = &m->names[k];
    uint64_t epoch = roll(m, 2) == 0 ? 0 : n->epoch + roll(m, 2);
    uint32_t status = says_of(m, n);
    bool over = status == VOW_STATUS_SETTLED || status == VOW_STATUS_DOUBT;
    if (over && (epoch == 0 || epoch == n->epoch)) {
        n->state = ABSENT;
        wake(m, n);
        status = VOW_STATUS_NONE;
    }
    CHECK_UINT_EQ(rig_forget(m->rig, i, NAME[k], epoch).status, status);
}

static void step_cancel(struct model *m, size_t k, size_t i)
{
    struct model_name *n = &m->names[k];
    uint32_t status = says_of(m, n);
    n->canceled |= status == VOW_STATUS_WAITING;
    CHECK_UINT_EQ(rig_cancel(m->rig, i, NAME[k]).status, status);
}

static void step_chunk(struct model *m, size_t k, size_t i)
{
    struct model_name *n = &m->names[k];
    vow_hold hold = {.name = rig_name(NAME[k]),
                     .token = rig_token(n->token),
                     .epoch = n->epoch};
    bool runs = n->state == RUNS;
    struct rig_answer a =
        rig_write(m->rig, i, &hold, n->chunks + n->made_again, "x");
    if (runs && n->made_again)
        CHECK(a.code == VOW_E2BIG || a.status == VOW_STATUS_OWNED);
    else
        CHECK_UINT_EQ(a.status, runs ? VOW_STATUS_OWNED : VOW_STATUS_LOST);
    n->chunks += runs && !n->made_again;
    unsigned from = n->chunks > 10 ? n->chunks - 10 : 0;
    struct rig_chunks c = rig_read(m->rig, i, NAME[k], n->epoch, from);
    CHECK_INT_EQ(c.code, runs ? 0 : VOW_ENOENT);
    if (runs)
        CHECK_UINT_EQ(c.next, n->chunks);
}

/* All names, by all ways to look. */
static void check_all(struct model *m, size_t i)
{
    vow_name names[NAMES];
    struct rig_answer out[NAMES];
    unsigned shown = 0;
    for (size_t k = 0; k < NAMES; k++) {
        expire(m, &m->names[k]);
        names[k] = rig_name(NAME[k]);
    }
    CHECK_INT_EQ(rig_peek_all(m->rig, i, names, NAMES, out), 0);
    for (size_t k = 0; k < NAMES; k++) {
        struct model_name *n = &m->names[k];
        uint32_t status = says_of(m, n);
        CHECK_UINT_EQ(out[k].status, status);
        shown += status != VOW_STATUS_NONE;
        if (status == VOW_STATUS_NONE)
            continue;
        CHECK_UINT_EQ(out[k].epoch, n->epoch);
        if (status == VOW_STATUS_WAITING)
            rig_check_waiters(m->rig, out[k].waiters, waiting(n));
    }
    struct rig_answer list[2 * NAMES];
    size_t n = rig_list(m->rig, i, list, 2 * NAMES);
    for (size_t k = 0; k < n; k++)
        shown -= list[k].status != VOW_STATUS_NONE;
    CHECK_UINT_EQ(shown, 0);
}

static void step(struct model *m)
{
    static void (*const steps[])(struct model *, size_t, size_t) = {
        step_claim,  step_claim,  step_claim,  step_claim,
        step_commit, step_commit, step_commit, step_pulse,
        step_pulse,  step_forget, step_cancel, step_chunk};
    size_t k = roll(m, NAMES);
    size_t i = roll(m, RIG_INSTANCES);
    for (size_t j = 0; j < RIG_INSTANCES; j++) {
        m->told[j] = m->rig->news[j].records;
        m->tell[j] = false;
    }
    expire(m, &m->names[k]);
    steps[roll(m, sizeof(steps) / sizeof(steps[0]))](m, k, i);
    for (size_t j = 0; j < RIG_INSTANCES; j++)
        if (m->tell[j])
            rig_expect(m->rig, &m->rig->news[j].records, m->told[j] + 1);
}

CONTRACT(random, every_answer_is_that_of_the_model)
{
    static struct model m;
    bool real = r->store->real_time;
    m = (struct model){.rig = r, .seed = test_seed()};
    for (int i = 0; i < (real ? STEPS_REAL : STEPS); i++) {
        step(&m);
        if (roll(&m, 4) == 0)
            check_all(&m, roll(&m, RIG_INSTANCES));
        if (!real && roll(&m, 3) == 0) {
            uint64_t ms = roll(&m, TIME_STEP_MS);
            rig_advance_ms(r, ms);
            m.now_ms += ms;
        }
    }
}
