/* SPDX-License-Identifier: MIT */
/* named_pool_rig.h - authorities on virtual time that meet in one memory, as if
 * each were a process, each behind a line to it that can be slow, cut or
 * frozen.
 *
 *     struct rig r;
 *     rig_open(&r, 2, &(vow_pool_limits){.concurrent = 1});
 *     vow_grant *g = rig_get(&r, 0);
 *     r.line[1].frozen = true;
 */
#ifndef TEST_NAMED_POOL_RIG_H
#define TEST_NAMED_POOL_RIG_H

#include "world.h"

#include <stdio.h>
#include <string.h>

enum { RIG_MAX = 3, STEPS_MAX = 256, HOLDS_MAX = 128, LEASE_MS = 1000 };

enum step_kind { STEP_FREE = 0, STEP_ACQUIRE, STEP_RELEASE, STEP_RENEW };

struct line;

/* A step that is under way. */
struct step {
    enum step_kind kind;
    struct line *line;
    vow_permit_request ask;
    vow_permit_hold holds[HOLDS_MAX];
    size_t n;
    uint64_t lease_ms;
    vow_permits_fn done;
    void *user;
    bool happened;
    int code;
    vow_pool_permit answers[HOLDS_MAX];
    vow_call call;
};

/* The line of one process to the memory. It is the store of its authority. */
struct line {
    vow_store store;
    vow_store_ops ops;
    vow_store *inner;
    vow_store_events events;
    vow_loop *loop;
    bool frozen;      /* steps neither happen nor end, events do not come */
    bool deaf;        /* events do not come */
    uint64_t to_ms;   /* until a step happens */
    uint64_t from_ms; /* and then until its answer is there */
    int refuse;       /* steps do not happen, and end so; 0: they do */
    int unsure;       /* so many happen, and end with VOW_EUNSURE */
    bool forgets;     /* a renewal says NONE */
    uint32_t acquires, releases, renews, renewed, most_renewed;
    struct step *steps;
};

static inline struct line *line_of(vow_store *s)
{
    return (struct line *)(void *)s;
}

static inline void line_happened(int code, const vow_pool_permit *places,
                                 size_t n, void *step)
{
    struct step *p = step;
    p->code = code;
    CHECK(n <= HOLDS_MAX);
    if (n > 0)
        memcpy(p->answers, places, n * sizeof(places[0]));
    p->n = n;
}

static inline void line_answer(void *step)
{
    struct step *p = step;
    vow_permits_fn done = p->done;
    p->kind = STEP_FREE;
    done(p->code, p->code == 0 ? p->answers : NULL, p->code == 0 ? p->n : 0,
         p->user);
}

/* At the other end of the line. */
static inline void line_happen(void *step)
{
    struct step *p = step;
    struct line *l = p->line;
    vow_store *s = l->inner;
    p->happened = true;
    if (l->refuse < 0) {
        p->code = l->refuse;
    } else if (p->kind == STEP_ACQUIRE) {
        s->ops->acquire(s, &p->ask, line_happened, p);
    } else if (p->kind == STEP_RELEASE) {
        s->ops->release(s, p->holds, line_happened, p);
    } else if (l->forgets) {
        memset(p->answers, 0, sizeof(p->answers));
    } else {
        s->ops->renew(s, p->holds, p->n, p->lease_ms, line_happened, p);
    }
    if (l->unsure > 0 && p->kind != STEP_RENEW) {
        l->unsure--;
        p->code = VOW_EUNSURE;
    }
    if (l->from_ms > 0)
        vow_call_at(&p->call, l->loop, vow_loop_due_ns(l->loop, l->from_ms),
                    line_answer, p);
    else
        line_answer(p);
}

static inline struct step *line_step(vow_store *s, enum step_kind kind,
                                     vow_permits_fn done, void *user)
{
    struct line *l = line_of(s);
    struct step *p = l->steps;
    while (p->kind != STEP_FREE)
        p++;
    CHECK(p < l->steps + STEPS_MAX);
    *p = (struct step){.kind = kind, .line = l, .done = done, .user = user};
    p->n = 1;
    return p;
}

static inline void line_send(struct step *p)
{
    struct line *l = p->line;
    if (l->frozen)
        return;
    if (l->to_ms > 0)
        vow_call_at(&p->call, l->loop, vow_loop_due_ns(l->loop, l->to_ms),
                    line_happen, p);
    else
        line_happen(p);
}

/* What was sent while it was frozen goes on. */
static inline void line_thaw(struct line *l)
{
    l->frozen = false;
    for (struct step *p = l->steps; p < l->steps + STEPS_MAX; p++) {
        if (p->kind != STEP_FREE && !p->happened && !vow_call_pending(&p->call))
            line_send(p);
    }
}

static inline void line_acquire(vow_store *s, const vow_permit_request *ask,
                                vow_permits_fn done, void *user)
{
    struct step *p = line_step(s, STEP_ACQUIRE, done, user);
    p->ask = *ask;
    line_of(s)->acquires++;
    line_send(p);
}

static inline void line_release(vow_store *s, const vow_permit_hold *hold,
                                vow_permits_fn done, void *user)
{
    struct step *p = line_step(s, STEP_RELEASE, done, user);
    p->holds[0] = *hold;
    line_of(s)->releases++;
    line_send(p);
}

static inline void line_renew(vow_store *s, const vow_permit_hold *holds,
                              size_t n, uint64_t lease_ms, vow_permits_fn done,
                              void *user)
{
    struct line *l = line_of(s);
    struct step *p = line_step(s, STEP_RENEW, done, user);
    CHECK(n <= HOLDS_MAX);
    memcpy(p->holds, holds, n * sizeof(holds[0]));
    p->n = n;
    p->lease_ms = lease_ms;
    l->renews++;
    l->renewed += (uint32_t)n;
    l->most_renewed = n > l->most_renewed ? (uint32_t)n : l->most_renewed;
    line_send(p);
}

static inline void line_limit(vow_store *s, const vow_name *pool,
                              const vow_pool_limits *limits, const char *label,
                              vow_pools_fn done, void *user)
{
    vow_store *inner = line_of(s)->inner;
    if (line_of(s)->refuse < 0)
        done(line_of(s)->refuse, NULL, 0, user);
    else
        inner->ops->limit(inner, pool, limits, label, done, user);
}

static inline void line_pools(vow_store *s, vow_pools_fn done, void *user)
{
    vow_store *inner = line_of(s)->inner;
    inner->ops->pools(inner, done, user);
}

static inline void line_on_place(const vow_token *token, void *line)
{
    struct line *l = line;
    if (!l->frozen && !l->deaf)
        l->events.on_permit(token, l->events.user);
}

static inline void line_listen(vow_store *s, const vow_store_events *events)
{
    struct line *l = line_of(s);
    const vow_store_events own = {.on_permit = line_on_place, .user = l};
    l->events = *events;
    l->inner->ops->listen(l->inner, &own);
}

static inline const char *line_explain(vow_store *s)
{
    return line_of(s)->refuse < 0 ? "the line is cut" : "";
}

static inline vow_future *line_close(vow_store *s)
{
    struct line *l = line_of(s);
    for (struct step *p = l->steps; p < l->steps + STEPS_MAX; p++) {
        if (p->kind == STEP_FREE)
            continue;
        (void)vow_call_stop(&p->call);
        p->code = VOW_ECLOSED;
        line_answer(p);
    }
    return l->inner->ops->close(l->inner);
}

/* ---- the rig ------------------------------------------------------------- */

struct rig {
    struct world own;
    struct world *w;
    vow_memory *memory;
    struct line line[RIG_MAX];
    vow_authority *at[RIG_MAX];
    vow_pool *pool[RIG_MAX];
    size_t n;
    vow_pool_limits limits;
    vow_event_fn on_event; /* with the rig */
};

static struct step rig_steps[RIG_MAX][STEPS_MAX]; /* too large for a stack */

static inline int rig_process(struct rig *r)
{
    struct line *l = &r->line[r->n];
    *l = (struct line){.loop = r->w->loop, .steps = rig_steps[r->n]};
    l->ops = (vow_store_ops){.version = VOW_STORE_VERSION,
                             .modes = 1u << VOW_SHARED,
                             .recheck_ms = 100,
                             .value_max = 1024,
                             .kind = "line",
                             .listen = line_listen,
                             .acquire = line_acquire,
                             .release = line_release,
                             .renew = line_renew,
                             .limit = line_limit,
                             .pools = line_pools,
                             .explain = line_explain,
                             .close = line_close};
    l->store.ops = &l->ops;
    int rc = vow_store_memory_new(r->w->loop, r->memory, &l->inner);
    if (rc < 0)
        return rc;
    VOW_AUTO(vow_future)
    f = vow_authority_open(
        r->w->loop, NULL,
        VOW_AUTHORITY(.store = &l->store, .lease_ms = LEASE_MS, .pulse_ms = 300,
                      .flags = VOW_AUTHORITY_HERE, .on_event = r->on_event,
                      .on_event_user = r));
    rc = vow_loop_run_until(r->w->loop, f);
    if (rc < 0) { /* the store stays ours */
        vow_future_unref(l->inner->ops->close(l->inner));
        return rc;
    }
    r->at[r->n] = vow_authority_ref(vow_as_ptr(vow_get(f)));
    r->n++;
    return vow_pool_open(r->at[r->n - 1], "api", VOW_POOL(.limits = r->limits),
                         &r->pool[r->n - 1]);
}

static inline int rig_open_in(struct rig *r, struct world *w, size_t processes,
                              const vow_pool_limits *limits)
{
    r->w = w;
    r->limits = *limits;
    r->n = 0;
    memset(r->pool, 0, sizeof(r->pool));
    int rc = vow_memory_new(vow_loop_alloc(w->loop), &r->memory);
    for (size_t i = 0; rc == 0 && i < processes; i++)
        rc = rig_process(r);
    return rc;
}

static inline void rig_open(struct rig *r, size_t processes,
                            const vow_pool_limits *limits)
{
    memset(r, 0, sizeof(*r));
    world_open(&r->own);
    CHECK_INT_EQ(rig_open_in(r, &r->own, processes, limits), 0);
}

static inline void rig_leave(struct rig *r, size_t i)
{
    r->pool[i] = vow_pool_unref(r->pool[i]);
    if (r->at[i] == NULL)
        return;
    VOW_AUTO(vow_future) f = vow_authority_close(r->at[i]);
    CHECK_INT_EQ(vow_loop_run_until(r->w->loop, f), 0);
    r->at[i] = vow_authority_unref(r->at[i]);
}

static inline void rig_close(struct rig *r)
{
    for (size_t i = 0; i < r->n; i++)
        rig_leave(r, i);
    world_turn(r->w);
    r->memory = vow_memory_unref(r->memory);
    if (r->w == &r->own)
        world_close(r->w);
}

/* What the store knows of the pool, whoever asks. */
static inline vow_pool_info rig_info(struct rig *r, size_t i)
{
    VOW_AUTO(vow_future) f = vow_pool_limit(r->at[i], "api", NULL);
    CHECK_INT_EQ(vow_loop_run_until(r->w->loop, f), 0);
    vow_pool_info info = *(const vow_pool_info *)vow_as_ptr(vow_get(f));
    CHECK_STR_EQ(info.label, "api");
    info.label = NULL;
    return info;
}

#define CHECK_POOL(r, held_, waiting_)                                         \
    do {                                                                       \
        vow_pool_info info_ = rig_info((r), 0);                                \
        CHECK_UINT_EQ(info_.held, (held_));                                    \
        CHECK_UINT_EQ(info_.waiting, (waiting_));                              \
    } while (0)

/* A place that must be there now, out of its future. */
static inline vow_grant *rig_take(struct rig *r, vow_future *f)
{
    world_turn(r->w);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_grant *g = vow_grant_take(vow_get(f));
    CHECK(g != NULL);
    vow_future_unref(f);
    return g;
}

static inline vow_grant *rig_get(struct rig *r, size_t i)
{
    return rig_take(r, vow_pool_acquire(r->pool[i], NULL, 1));
}

#define CHECK_CODE(f, code)                                                    \
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), (code))
#define CHECK_PENDING(f) CHECK_INT_EQ(vow_state_of(f), VOW_PENDING)

#endif
