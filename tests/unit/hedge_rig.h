/* SPDX-License-Identifier: MIT */
/* hedge_rig.h - a world, and attempts that go as planned. */
#ifndef TEST_HEDGE_RIG_H
#define TEST_HEDGE_RIG_H

#include "harness.h"
#include "world.h"

#include "vow/context.h"
#include "vow/hedge.h"

enum { MOST = 16, HANG = 1, NO_FUTURE = 2 };

struct rig {
    struct world w;
    vow_loop *loop;
    int plan[MOST + 1]; /* of attempt i: a code, 0: value i, HANG, NO_FUTURE */
    uint32_t starts;
    uint64_t at_ms[MOST + 1];
    vow_deferred *end[MOST + 1];
    int asked[MOST + 1];
    vow_error *asked_root; /* of the last, only to compare */
    bool stubborn;
    vow_error *errors[MOST + 1]; /* only to compare */
    int drops;                   /* of values */
    vow_future *result;
    void (*inside)(struct rig *r);
    vow_context *seen;
};

struct ask {
    struct rig *rig;
    uint32_t attempt;
};
static struct ask asks[MOST + 1];

static inline void on_stop(vow_error *why, void *user)
{
    struct ask *a = user;
    a->rig->asked[a->attempt]++;
    a->rig->asked_root = vow_error_root(why);
    if (!a->rig->stubborn)
        vow_reject(a->rig->end[a->attempt], vow_error_ref(why));
}

static inline vow_future *start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct rig *r = arg;
    CHECK_PTR_EQ(loop, r->loop);
    CHECK_UINT_EQ(attempt, r->starts + 1);
    CHECK(attempt <= MOST);
    r->at_ms[attempt] = vow_loop_now_ns(loop) / 1000000;
    r->starts++;
    r->seen = vow_context_current(loop);
    if (r->inside != NULL)
        r->inside(r);
    int plan = r->plan[attempt];
    if (plan == NO_FUTURE)
        return NULL;
    if (plan == 0)
        return vow_resolved(loop, vow_int(attempt));
    if (plan < 0) {
        r->errors[attempt] =
            vow_error_new(loop, plan, "attempt %u", (unsigned)attempt);
        return vow_rejected(loop, r->errors[attempt]);
    }
    vow_future *f = vow_promise(loop, &r->end[attempt]);
    asks[attempt] = (struct ask){r, attempt};
    vow_on_cancel(r->end[attempt], on_stop, &asks[attempt]);
    return f;
}

/* All attempts from this one on hang. */
static inline void rig_open(struct rig *r, uint32_t hang_from)
{
    *r = (struct rig){.starts = 0};
    world_open(&r->w);
    r->loop = r->w.loop;
    for (uint32_t i = hang_from; i <= MOST; i++)
        r->plan[i] = HANG;
}

static inline void drop_ends(struct rig *r)
{
    for (int i = 1; i <= MOST; i++)
        vow_deferred_unref(r->end[i]);
}

static inline void rig_close(struct rig *r)
{
    drop_ends(r);
    world_run(&r->w);
    world_close(&r->w);
}

static inline void check_value(vow_future *f, int64_t want)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), want);
    vow_future_unref(f);
}

static inline void check_code(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
    vow_future_unref(f);
}

static inline void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

#endif
