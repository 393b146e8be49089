/* SPDX-License-Identifier: MIT */
/* breaker_rig.h - a world with a breaker, over work that does as it is told. */
#ifndef TEST_BREAKER_RIG_H
#define TEST_BREAKER_RIG_H

#include "harness.h"
#include "world.h"

#include "vow/breaker.h"

enum { LOG_MAX = 64, HUNG_MAX = 16 };

struct rig {
    struct world w;
    vow_breaker *b;
    int code; /* the work fails with it; 0: succeeds, 1: hangs, 2: NULL */
    uint32_t starts;
    vow_deferred *hung[HUNG_MAX];
    uint32_t n_hung;
    int asked;     /* to stop */
    bool stubborn; /* and does not */
    enum vow_breaker_state told[LOG_MAX];
    uint64_t told_ms[LOG_MAX];
    uint32_t n_told;
    void (*on_told)(struct rig *r, enum vow_breaker_state state);
    void (*inside)(struct rig *r); /* of start */
    int judged;
    vow_future *kept;
};

static inline void on_stop(vow_error *why, void *user)
{
    struct rig *r = user;
    r->asked++;
    if (!r->stubborn)
        vow_reject(r->hung[r->n_hung - 1], vow_error_ref(why));
}

static inline vow_future *start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct rig *r = arg;
    CHECK_PTR_EQ(loop, r->w.loop);
    CHECK_UINT_EQ(attempt, 1);
    r->starts++;
    if (r->inside != NULL)
        r->inside(r);
    if (r->code == 2)
        return NULL;
    if (r->code == 1) {
        CHECK(r->n_hung < HUNG_MAX);
        vow_future *f = vow_promise(loop, &r->hung[r->n_hung++]);
        vow_on_cancel(r->hung[r->n_hung - 1], on_stop, r);
        return f;
    }
    if (r->code < 0)
        return vow_rejected(loop, vow_error_new(loop, r->code, "down"));
    return vow_resolved(loop, vow_int(42));
}

static inline void on_change(enum vow_breaker_state state, void *user)
{
    struct rig *r = user;
    CHECK(r->n_told < LOG_MAX);
    r->told_ms[r->n_told] = vow_loop_now_ns(r->w.loop) / 1000000;
    r->told[r->n_told++] = state;
    if (r->on_told != NULL)
        r->on_told(r, state);
}

static inline void rig_open(struct rig *r, const vow_breaker_opts *opts)
{
    *r = (struct rig){.code = 0};
    world_open(&r->w);
    vow_breaker_opts o = {.size = sizeof(o)};
    if (opts != NULL)
        o = *opts;
    if (o.on_change != NULL)
        o.on_change_user = r;
    o.counts_user = r;
    CHECK_INT_EQ(vow_breaker_new(r->w.loop, opts == NULL ? NULL : &o, &r->b),
                 0);
}

static inline void rig_close(struct rig *r)
{
    for (uint32_t i = 0; i < r->n_hung; i++) {
        if (vow_deferred_pending(r->hung[i]))
            vow_resolve(r->hung[i], vow_nothing());
        vow_deferred_unref(r->hung[i]);
    }
    vow_breaker_unref(r->b);
    world_run(&r->w);
    world_close(&r->w);
}

/* A call that ends at once with this code, run to its end. */
static inline int outcome(struct rig *r, int code)
{
    r->code = code;
    vow_future *f = vow_breaker_run(r->b, start, r);
    world_turn(&r->w);
    CHECK(vow_state_of(f) != VOW_PENDING);
    int rc = vow_error_code(vow_error_of(f));
    CHECK(rc < 0 || vow_as_int(vow_get(f)) == 42);
    vow_future_unref(f);
    return rc;
}

static inline vow_future *hang(struct rig *r)
{
    r->code = 1;
    vow_future *f = vow_breaker_run(r->b, start, r);
    world_turn(&r->w);
    return f;
}

static inline void check_code(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
    vow_future_unref(f);
}

static inline void check_state(const struct rig *r, enum vow_breaker_state want)
{
    CHECK_INT_EQ(vow_breaker_state_of(r->b), want);
}

static inline void half_open(struct rig *r, uint32_t probes)
{
    rig_open(r, VOW_BREAKER(.failures = 1, .open_ms = 100, .probes = probes));
    outcome(r, VOW_EIO);
    world_advance_ms(&r->w, 100);
    check_state(r, VOW_BREAKER_HALF_OPEN);
}

static inline bool only_busy(vow_error *e, void *user)
{
    struct rig *r = user;
    r->judged++;
    return vow_error_code(e) == VOW_EBUSY;
}

#endif
