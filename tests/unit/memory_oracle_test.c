/* SPDX-License-Identifier: MIT */
/* memory_oracle_test.c - the memory store decides as the rules do.
 *
 * HOW   Random requests go to the state of a memory store and to the oracle,
 *       with the same clock and epochs, until every cell of the state table was
 *       reached often enough. All answers and events are equal.
 * LIMITS  The clock is never set back, and no awaited record is forgotten after
 *       a day: the time of a memory store never falls, and a memory store
 *       deletes expired records by itself.
 */
#include "oracle.h"
#include "store/memory/memory_slots.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 200, ENOUGH = 100, HISTORIES_MAX = 20000, INSTANCES = 3 };
#define START_US (UINT64_C(1000) * RULES_DAY_US)
#define RECHECK_MS UINT64_C(300000)

struct twins {
    struct world world;
    struct vow__memory_state *state;
    struct vow__memory_instance *at[INSTANCES];
    uint64_t seed;
};

static struct oracle oracle;

static void woken(void *user)
{
    (void)user;
}

static void begin_history(struct twins *t)
{
    struct vow__memory_opts opts = {.alloc = test_alloc_hook(&t->world.alloc),
                                    .pooled = !TEST_ASAN,
                                    .seed = 7,
                                    .recheck_ms = RECHECK_MS,
                                    .value_max = SIZE_MAX};
    oracle_clear(&oracle);
    oracle.now_us = oracle.number = START_US;
    CHECK_INT_EQ(vow__memory_state_new(&opts, &t->state), 0);
    for (size_t i = 0; i < INSTANCES; i++)
        CHECK_INT_EQ(vow__memory_join(t->state, woken, t, &t->at[i]), 0);
}

static void end_history(struct twins *t)
{
    for (size_t i = 0; i < INSTANCES; i++)
        vow__memory_leave(t->state, t->at[i], oracle.now_us, false);
    vow__memory_state_free(t->state);
}

#define FAIL_IF(cond) ((cond) ? fail_step(TEST_HERE, #cond) : (void)0)

static void fail_step(const char *site, const char *cond)
{
    oracle_print(&oracle, stderr);
    test_fail(site, "%s", cond);
}

static bool values_differ(const struct oracle_value *a, vow_bytes *b)
{
    return a->n != vow_bytes_size(b) ||
           (a->n > 0 && memcmp(a->bytes, vow_bytes_data(b), a->n) != 0);
}

static void check_answer(const vow_name *name, const struct oracle_answer *a,
                         const vow_record *got)
{
    const vow_record want = oracle_record_of(&oracle, name, a);
    bool want_none = a->record.r.state == RULES_NONE;
    FAIL_IF(got->status != want.status);
    FAIL_IF(!vow_name_equal(&got->name, name));
    if (got->status == VOW_STATUS_NONE || want_none)
        return;
    FAIL_IF(got->epoch != want.epoch);
    FAIL_IF(got->first != want.first);
    FAIL_IF(got->waiters != want.waiters);
    FAIL_IF(got->mode != want.mode);
    FAIL_IF(got->takeovers != want.takeovers);
    FAIL_IF(got->failed != want.failed);
    FAIL_IF(got->left_ms != want.left_ms);
    FAIL_IF(got->age_ms != want.age_ms);
    FAIL_IF(got->pulse_ms != want.pulse_ms);
    FAIL_IF(got->cost_ms != want.cost_ms);
    bool made_here = a->record.r.state == RULES_GAVE_UP; /* the failure */
    if (a->shows_value && !made_here)
        FAIL_IF(values_differ(&a->record.value, got->value));
    else if (!a->shows_value)
        FAIL_IF(got->value != NULL);
}

static void check_texts(const struct oracle_answer *a, const vow_record *got)
{
    if (got->status == VOW_STATUS_NONE || a->record.r.state == RULES_NONE)
        return;
    FAIL_IF(strcmp(got->label, a->record.label) != 0);
    FAIL_IF(strcmp(got->runner, a->record.runner) != 0);
}

static void check_peek(struct twins *t, const struct vow__memory_step *s,
                       const vow_name *name, const struct oracle_answer *a)
{
    struct vow__memory_records got;
    struct vow_alloc alloc = test_alloc_hook(&t->world.alloc);
    CHECK_INT_EQ(vow__memory_peek(s, name, 1, &got), 0);
    check_answer(name, a, &got.records[0]);
    check_texts(a, &got.records[0]);
    alloc.fn(alloc.ctx, got.records, got.size, 0);
}

static void check_pulse(const struct vow__memory_step *s,
                        const struct oracle_request *q,
                        const struct oracle_answer *a)
{
    vow_record got;
    CHECK_INT_EQ(vow__memory_pulse(s, &q->hold, 1, q->lease_ms, &got), a->code);
    if (a->code == 0)
        check_answer(&q->name, a, &got);
}

/* Returns whether a record with registered instances expires by then: the state
 * tells these instances, and the oracle deletes nothing by itself. */
static bool expires_awaited(uint64_t now_us)
{
    for (size_t i = 0; i < oracle.n_slots; i++)
        if (oracle.slots[i].there && oracle.slots[i].keep_until_us <= now_us &&
            oracle_waiters(&oracle.slots[i]) > 0)
            return true;
    return false;
}

/* The request, to the state. */
static void check_step(struct twins *t, const struct oracle_request *q,
                       vow_bytes *value, const struct oracle_answer *a)
{
    struct vow__memory_answer got;
    const struct vow__memory_step s = {t->state, t->at[q->instance], q->now_us};
    vow_commit_request commit = q->commit;
    int code = 0;
    commit.value = value;
    t->state->counter = q->now_us - 1; /* the number of the oracle */
    switch (q->kind) {
    case ORACLE_CLAIM:
        code = vow__memory_claim(&s, &q->claim, &got);
        break;
    case ORACLE_COMMIT:
        code = vow__memory_commit(&s, &commit, &got);
        break;
    case ORACLE_FORGET:
        code = vow__memory_forget(&s, &q->name, q->epoch, &got);
        break;
    case ORACLE_CANCEL_STEP:
        code = vow__memory_cancel(&s, &q->name, &got);
        break;
    case ORACLE_WRITE:
        code = vow__memory_write(&s, &q->hold, q->number, value, &got);
        break;
    case ORACLE_PULSE:
        check_pulse(&s, q, a);
        return;
    case ORACLE_PEEK:
        check_peek(t, &s, &q->name, a);
        return;
    }
    CHECK_INT_EQ(code, a->code);
    if (code < 0)
        return;
    check_answer(&q->name, a, &got.record);
    check_texts(a, &got.record);
    vow__memory_answer_fini(&got);
}

/* Each event of the oracle comes, in the same order; the two kinds of chunks
 * and results of one name are one event of the state. */
static void check_events(struct twins *t)
{
    static const enum vow__memory_event_kind kinds[] = {
        [ORACLE_SETTLED] = VOW__MEMORY_RECORD,
        [ORACLE_CHANGED] = VOW__MEMORY_RECORD,
        [ORACLE_CANCEL] = VOW__MEMORY_CANCEL,
        [ORACLE_CHUNK] = VOW__MEMORY_CHUNKS};
    for (size_t i = 0; i < INSTANCES; i++) {
        struct oracle_event want;
        struct vow__memory_event got;
        const struct vow__memory_step s = {t->state, t->at[i], oracle.now_us};
        while (oracle_event_take(&oracle, i, &want)) {
            FAIL_IF(!vow__memory_event_take(&s, &got));
            FAIL_IF(got.kind != kinds[want.kind]);
            if (want.kind == ORACLE_SETTLED) {
                FAIL_IF(got.answer.record.status != VOW_STATUS_SETTLED);
                FAIL_IF(got.answer.record.epoch != want.record.r.epoch);
                FAIL_IF(
                    values_differ(&want.record.value, got.answer.record.value));
            }
            vow__memory_answer_fini(&got.answer);
        }
        FAIL_IF(vow__memory_event_take(&s, &got));
    }
}

static void run_history(struct twins *t, const vow_name *names, size_t n)
{
    begin_history(t);
    for (int i = 0; i < STEPS; i++) {
        struct oracle_request q;
        struct oracle_answer a;
        vow_bytes *value;
        const vow_name *name = &names[test_random(&t->seed) % n];
        oracle_choose(&oracle, name, oracle_draw(&t->seed, (size_t)i), &q);
        if (q.now_us < oracle.now_us)
            q.now_us = oracle.now_us;
        if (expires_awaited(q.now_us))
            continue;
        CHECK_INT_EQ(
            vow_bytes_new(t->world.loop, q.bytes, strlen(q.bytes), &value), 0);
        oracle_do(&oracle, &q, value, &a);
        check_step(t, &q, value, &a);
        check_events(t);
        vow_bytes_unref(value);
    }
    end_history(t);
}

TEST(memory_oracle, all_answers_and_events_are_those_of_the_rules)
{
    struct twins t = {.seed = test_seed()};
    const vow_name names[] = {vow_name_of("a"), vow_name_of("b")};
    char missing[128] = "";
    int histories = 0;
    world_open(&t.world);
    oracle_init(&oracle, &(struct oracle_opts){.recheck_ms = RECHECK_MS,
                                               .leaves_all = true});
    while (oracle_missing(&oracle, ENOUGH, missing, sizeof(missing))) {
        if (histories++ == HISTORIES_MAX)
            FAIL("not reached: %s", missing);
        run_history(&t, names, 1 + (size_t)histories % 2);
    }
    world_close(&t.world);
}
