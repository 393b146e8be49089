/* SPDX-License-Identifier: MIT */
/* authority_rig.h - processes on virtual time whose stores fail on demand, and
 * work that watches over its own promise: whenever a run begins, no other run
 * of the name believes to be held, and the fence is larger than all before.
 */
#ifndef TEST_AUTHORITY_RIG_H
#define TEST_AUTHORITY_RIG_H

#include "authority_flaky.h"
#include "share_rig.h"

enum { STAGE_MAX = 4, LABOR_RUNS = 160, LEASE = 1000 };

struct stage;

struct process {
    struct stage *stage;
    struct flaky flaky;
    vow_authority *a;
    int events[16]; /* how often, by kind */
    vow_event last[16];
    void (*on_event)(const vow_event *e, void *user); /* of the test */
    void *user;
    bool gone;
};

struct stage {
    struct world w;
    vow_loop *loop;
    vow_memory *memory;
    struct process at[STAGE_MAX];
    size_t n;
};

static inline void stage_event(const vow_event *e, void *user)
{
    struct process *p = user;
    CHECK(e->kind < 16);
    p->events[e->kind]++;
    p->last[e->kind] = *e;
    if (p->on_event != NULL)
        p->on_event(e, p->user);
}

static inline void stage_open_with(struct stage *s, size_t processes,
                                   const vow_authority_opts *opts)
{
    *s = (struct stage){.n = processes};
    world_open(&s->w);
    s->loop = s->w.loop;
    CHECK_INT_EQ(vow_memory_new(vow_loop_alloc(s->loop), &s->memory), 0);
    for (size_t i = 0; i < processes; i++) {
        struct process *p = &s->at[i];
        vow_store *inner;
        p->stage = s;
        CHECK_INT_EQ(vow_store_memory_new(s->loop, s->memory, &inner), 0);
        flaky_init(&p->flaky, s->loop, inner);
        vow_authority_opts o = *opts;
        o.flags = VOW_AUTHORITY_HERE;
        o.store = &p->flaky.store;
        o.lease_ms = o.lease_ms == 0 ? LEASE : o.lease_ms;
        o.on_event = stage_event;
        o.on_event_user = p;
        VOW_AUTO(vow_future) f = vow_authority_open(s->loop, NULL, &o);
        CHECK_INT_EQ(vow_loop_run_until(s->loop, f), 0);
        p->a = vow_authority_ref(vow_as_ptr(vow_get(f)));
    }
}

static inline void stage_open(struct stage *s, size_t processes)
{
    stage_open_with(s, processes, VOW_AUTHORITY(.flags = 0));
}

/* A process ends in good order. */
static inline void stage_leave(struct stage *s, size_t i)
{
    struct process *p = &s->at[i];
    if (p->gone)
        return;
    p->gone = true;
    VOW_AUTO(vow_future) f = vow_authority_close(p->a);
    CHECK_INT_EQ(vow_loop_run_until(s->loop, f), 0);
    p->a = vow_authority_unref(p->a);
}

static inline void stage_close(struct stage *s)
{
    for (size_t i = 0; i < s->n; i++)
        stage_leave(s, i);
    world_turn(&s->w);
    vow_memory_unref(s->memory);
    world_close(&s->w);
}

/* The loop was closed while authorities were open: the handles go now. */
static inline void stage_lost(struct stage *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (!s->at[i].gone)
            vow_authority_unref(s->at[i].a);
    vow_memory_unref(s->memory);
    CHECK_UINT_EQ(s->w.unhandled - s->w.unhandled_closed, 0);
    test_alloc_fini(TEST_HERE, &s->w.alloc);
}

static inline vow_authority_stats stage_stats(struct stage *s, size_t i)
{
    return vow_authority_stats_get(s->at[i].a);
}

/* ---- work ---------------------------------------------------------------- */

struct run {
    struct labor *labor;
    vow_deferred *end;
    vow_lease *lease;
    int canceled; /* how often it was asked to stop */
    bool over;    /* it does nothing any more */
    bool failed;  /* as it was told to */
    bool gave_up; /* its lease, by itself */
};

struct labor {
    vow_loop *loop;
    struct run run[LABOR_RUNS];
    int n;
    bool loose;    /* a refresh and a run may go on at once */
    bool stubborn; /* goes on when it is asked to stop */
    /* Called inside the work function, at its begin. */
    void (*on_start)(struct labor *l, struct run *r);
    void *user;
};

static inline void labor_canceled(vow_error *why, void *user)
{
    struct run *r = user;
    r->canceled++;
    if (r->labor->stubborn)
        return;
    r->over = true;
    (void)vow_reject(r->end, vow_error_ref(why));
}

/* How many runs are under way and believe to have the lease. */
static inline int labor_live(const struct labor *l)
{
    int live = 0;
    for (int i = 0; i < l->n; i++)
        live += !l->run[i].over && !l->run[i].gave_up &&
                vow_lease_left_ms(l->run[i].lease) > 0;
    return live;
}

/* An attempt after one that failed may have the same lease; 0 is of work that
 * is not coordinated. */
static inline void check_fence(const struct run *before, vow_lease *lease)
{
    const uint64_t old = vow_lease_fence(before->lease);
    const uint64_t fence = vow_lease_fence(lease);
    if (fence == 0 || fence > old || (before->failed && fence == old))
        return;
    FAIL("a fence of %llu after one of %llu", (unsigned long long)fence,
         (unsigned long long)old);
}

static inline struct run *labor_begin(struct labor *l, vow_lease *lease)
{
    if (!l->loose)
        CHECK_INT_EQ(labor_live(l), 0);
    for (int i = 0; i < l->n; i++)
        check_fence(&l->run[i], lease);
    CHECK(l->n < LABOR_RUNS);
    struct run *r = &l->run[l->n++];
    *r = (struct run){.labor = l, .lease = vow_lease_ref(lease)};
    return r;
}

static inline vow_future *labor_work(vow_lease *lease, void *arg)
{
    struct labor *l = arg;
    struct run *r = labor_begin(l, lease);
    vow_future *f = vow_promise(l->loop, &r->end);
    vow_on_cancel(r->end, labor_canceled, r);
    if (l->on_start != NULL)
        l->on_start(l, r);
    return f;
}

/* A lease that came by hand is a run without a deferred. */
static inline void labor_take(vow_lease *lease, void *arg)
{
    struct labor *l = arg;
    labor_begin(l, lease);
}

/* The last run ends. */
static inline void labor_end(struct labor *l, const char *text)
{
    CHECK(l->n > 0);
    struct run *r = &l->run[l->n - 1];
    r->over = true;
    CHECK(r->end != NULL
              ? vow_resolve(r->end, text_value(l->loop, text))
              : vow_lease_resolve(r->lease, text_value(l->loop, text)));
}

static inline void labor_fail(struct labor *l, int code, const char *text)
{
    CHECK(l->n > 0);
    struct run *r = &l->run[l->n - 1];
    r->over = r->failed = true;
    CHECK(r->end != NULL
              ? vow_reject_code(r->end, code, text)
              : vow_lease_reject(r->lease,
                                 vow_error_new(l->loop, code, "%s", text)));
}

/* Any run, perhaps when it no longer counts. */
static inline void labor_end_of(struct labor *l, int i, const char *text)
{
    l->run[i].over = true;
    if (l->run[i].end != NULL)
        (void)vow_resolve(l->run[i].end, text_value(l->loop, text));
    else
        (void)vow_lease_resolve(l->run[i].lease, text_value(l->loop, text));
}

static inline struct run *labor_last(struct labor *l)
{
    CHECK(l->n > 0);
    return &l->run[l->n - 1];
}

static inline void labor_free(struct labor *l)
{
    for (int i = 0; i < l->n; i++) {
        vow_deferred_unref(l->run[i].end);
        vow_lease_unref(l->run[i].lease);
    }
    l->n = 0;
}

/* ---- askers -------------------------------------------------------------- */

#define CHECK_PENDING(f) check_pending(TEST_HERE, (f))
static inline void check_pending(const char *site, vow_future *f)
{
    if (vow_state_of(f) != VOW_PENDING)
        test_fail(site, "settled with %s, should be pending",
                  vow_error_name(vow_error_code(vow_error_of(f))));
}

#define CHECK_CODE(f, want) check_code(TEST_HERE, (f), (want))
static inline void check_code(const char *site, vow_future *f, int want)
{
    if (vow_state_of(f) == VOW_PENDING)
        test_fail(site, "pending, should be %s", vow_error_name(want));
    const int got = vow_error_code(vow_error_of(f));
    if (got != want)
        test_fail(site, "got %s, want %s", got == 0 ? "0" : vow_error_name(got),
                  want == 0 ? "0" : vow_error_name(want));
}

/* All the stores work, and all the work is done: what waits must settle. */
static inline void stage_heal(struct stage *s, struct labor *l, vow_future **f,
                              size_t n)
{
    size_t settled = 0;
    for (int round = 0; round < 200 && settled < n; round++) {
        for (size_t i = 0; i < s->n; i++) {
            s->at[i].flaky.cut = false;
            flaky_release(&s->at[i].flaky);
            flaky_all(&s->at[i].flaky, FATE_FINE);
        }
        world_advance_ms(&s->w, 100);
        for (int i = 0; i < l->n; i++)
            if (!l->run[i].over)
                labor_end_of(l, i, "healed");
        world_turn(&s->w);
        for (settled = 0;
             settled < n && vow_state_of(f[settled]) != VOW_PENDING; settled++)
            ;
    }
    for (size_t i = 0; i < n; i++)
        if (vow_state_of(f[i]) == VOW_PENDING)
            FAIL("asker %zu never settled", i);
}

/* Drop some futures at once. */
static inline void let_go(vow_future **f, size_t n)
{
    for (size_t i = 0; i < n; i++)
        f[i] = vow_future_unref(f[i]);
}

#endif
