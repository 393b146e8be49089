/* SPDX-License-Identifier: MIT */
/* cancel_rig.h - work that goes on after it was asked to stop, behind every
 * kind of link, and a count of what really runs.
 *
 *     struct cancel_rig r;
 *     cancel_open(&r, 1);
 *     struct body *a = cancel_body(&r, BODY_FIBER, WRAP_THEN);
 *     vow_future *f = vow_gate_run(gate, body_start, a, NULL);
 *     world_turn(&r.w);
 *     f = cancel_outside(&r, OUTSIDE_TIMEOUT, f);
 *     body_release(a);
 *     cancel_close(&r);
 *
 * A body counts as running from the call that starts it to the last thing it
 * does, whatever becomes of the futures around it. Faults are told and counted,
 * so that one test names all combinations that are wrong. */
#ifndef TEST_CANCEL_RIG_H
#define TEST_CANCEL_RIG_H

#include "harness.h"
#include "world.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

enum body_kind { BODY_FIBER, BODY_WORK, BODY_PROMISE, BODY_KINDS };

static const char *const body_names[BODY_KINDS] = {"fiber", "work", "promise"};

/* What the start function returns: the future of the body, or this of it. */
enum body_wrap {
    WRAP_BARE,
    WRAP_THEN,
    WRAP_CATCH,
    WRAP_FINALLY,
    WRAP_THEN_THEN,
    WRAP_THEN_FINALLY_CATCH,
    WRAP_CHAIN,
    WRAP_PROGRESS,
    WRAP_TIMEOUT,
    WRAP_DEADLINE,
    WRAP_ALL,
    WRAP_ALL_SETTLED,
    WRAP_ANY,
    WRAP_RACE,
    WRAP_FOLLOW,
    WRAP_FINALLY_FOLLOW,
    WRAP_RESOLVE_WITH,
    WRAP_SCOPE,
    WRAP_DONE_BESIDE,    /* behind then, and somebody else looks at the end */
    WRAP_FINALLY_BESIDE, /* the same by a finally that nobody holds */
    WRAP_LINKS,          /* so many are futures of a future */
    WRAP_RETRY = WRAP_LINKS,
    WRAP_HEDGE,
    WRAP_GATE,
    WRAP_SEM,
    WRAP_BREAKER,
    WRAP_MAP,
    WRAP_KINDS
};

static const char *const wrap_names[WRAP_KINDS] = {
    [WRAP_BARE] = "bare",
    [WRAP_THEN] = "then",
    [WRAP_CATCH] = "catch",
    [WRAP_FINALLY] = "finally",
    [WRAP_THEN_THEN] = "then+then",
    [WRAP_THEN_FINALLY_CATCH] = "then+finally+catch",
    [WRAP_CHAIN] = "chain",
    [WRAP_PROGRESS] = "on_progress",
    [WRAP_TIMEOUT] = "timeout",
    [WRAP_DEADLINE] = "deadline",
    [WRAP_ALL] = "all",
    [WRAP_ALL_SETTLED] = "all_settled",
    [WRAP_ANY] = "any",
    [WRAP_RACE] = "race",
    [WRAP_FOLLOW] = "follow",
    [WRAP_FINALLY_FOLLOW] = "finally+follow",
    [WRAP_RESOLVE_WITH] = "resolve_with",
    [WRAP_SCOPE] = "scope_add",
    [WRAP_DONE_BESIDE] = "then, done beside",
    [WRAP_FINALLY_BESIDE] = "then, finally beside",
    [WRAP_RETRY] = "retry",
    [WRAP_HEDGE] = "hedge",
    [WRAP_GATE] = "gate_run",
    [WRAP_SEM] = "sem_with",
    [WRAP_BREAKER] = "breaker_run",
    [WRAP_MAP] = "map"};

/* How the future of the job is ended from outside. */
enum outside {
    OUTSIDE_CANCEL,
    OUTSIDE_THEN, /* a link around it is canceled, and so on */
    OUTSIDE_FINALLY,
    OUTSIDE_PROGRESS,
    OUTSIDE_ALL,
    OUTSIDE_ANY,
    OUTSIDE_RACE,
    OUTSIDE_TIMEOUT,
    OUTSIDE_SCOPE,
    OUTSIDE_SCOPE_DEADLINE,
    OUTSIDE_LINKS,                  /* the others are up to the test */
    OUTSIDE_OPTION = OUTSIDE_LINKS, /* .deadline_ms */
    OUTSIDE_INNER, /* vow_timeout() inside the start function */
    OUTSIDE_CLOSE,
    OUTSIDE_KINDS
};

static const char *const outside_names[OUTSIDE_KINDS] = {
    [OUTSIDE_CANCEL] = "cancel",
    [OUTSIDE_THEN] = "cancel of then",
    [OUTSIDE_FINALLY] = "cancel of finally",
    [OUTSIDE_PROGRESS] = "cancel of on_progress",
    [OUTSIDE_ALL] = "cancel of all",
    [OUTSIDE_ANY] = "cancel of any",
    [OUTSIDE_RACE] = "cancel of race",
    [OUTSIDE_TIMEOUT] = "timeout",
    [OUTSIDE_SCOPE] = "scope cancel",
    [OUTSIDE_SCOPE_DEADLINE] = "scope deadline",
    [OUTSIDE_OPTION] = ".deadline_ms",
    [OUTSIDE_INNER] = "timeout inside",
    [OUTSIDE_CLOSE] = "close"};

enum { BODIES_MAX = 16, OUTSIDE_MS = 50, FAR_MS = 3600 * 1000 };

struct cancel_rig;

struct body {
    struct cancel_rig *rig;
    enum body_kind kind;
    enum body_wrap wrap;
    bool keeps;        /* the start function keeps a reference of its own */
    uint64_t inner_ms; /* a timeout inside the start function; 0: none */
    bool released;     /* it may end */
    bool begun;        /* on the thread of a job */
    int calls;         /* of the start function */
    atomic_int running;
    atomic_int asked; /* to stop */
    atomic_int ended;
    vow_future *raw;
    vow_future *door; /* the fiber waits for it */
    vow_deferred *key;
    vow_deferred *end;
    vow_range range;
    void (*on_end)(struct body *b); /* the last thing a body on the loop does */
    void *lent;
};

struct cancel_rig {
    struct world w;
    int limit;
    atomic_int running;
    int most;
    int faults;
    char name[128];
    pthread_mutex_t lock;
    pthread_cond_t moved;
    size_t n;
    struct body bodies[BODIES_MAX];
};

static inline void cancel_fault(struct cancel_rig *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline void cancel_fault(struct cancel_rig *r, const char *format, ...)
{
    va_list args;
    if (r->faults++ > 0) /* the first of a case tells enough */
        return;
    va_start(args, format);
    (void)fprintf(stderr, "%s: ", r->name);
    (void)vfprintf(stderr, format, args);
    (void)fprintf(stderr, "\n");
    va_end(args);
}

#define CANCEL_EXPECT(r, cond)                                                 \
    ((cond) ? (void)0 : cancel_fault((r), "not true: %s", #cond))

static inline void cancel_name(struct cancel_rig *r, const char *what,
                               const struct body *b, enum outside o)
{
    (void)snprintf(r->name, sizeof(r->name), "%s: %s behind %s%s, %s", what,
                   body_names[b->kind], wrap_names[b->wrap],
                   b->keeps ? " (kept)" : "", outside_names[o]);
}

static inline void cancel_init(struct cancel_rig *r, int limit)
{
    r->limit = limit;
    (void)pthread_mutex_init(&r->lock, NULL);
    (void)pthread_cond_init(&r->moved, NULL);
}

static inline void cancel_open(struct cancel_rig *r, int limit)
{
    *r = (struct cancel_rig){.name = ""};
    world_open_with(&r->w, VOW_LOOP_OPTS(.work_threads = BODIES_MAX));
    cancel_init(r, limit);
}

/* A new body, which runs until it is released. */
static inline struct body *cancel_body(struct cancel_rig *r,
                                       enum body_kind kind, enum body_wrap wrap)
{
    CHECK(r->n < BODIES_MAX);
    struct body *b = &r->bodies[r->n++];
    b->rig = r;
    b->kind = kind;
    b->wrap = wrap;
    return b;
}

/* A body that ends as soon as it has begun. */
static inline struct body *cancel_short_body(struct cancel_rig *r,
                                             enum body_kind kind,
                                             enum body_wrap wrap)
{
    struct body *b = cancel_body(r, kind, wrap);
    b->released = true;
    return b;
}

/* ---- the body ------------------------------------------------------------ */

static inline void body_begins(struct body *b)
{
    struct cancel_rig *r = b->rig;
    b->calls++;
    if (atomic_fetch_add(&b->running, 1) > 0)
        cancel_fault(r, "one body runs twice at once");
    int now = atomic_fetch_add(&r->running, 1) + 1;
    r->most = now > r->most ? now : r->most;
    if (now > r->limit)
        cancel_fault(r, "%d run at once, the limit is %d", now, r->limit);
}

static inline void body_ends(struct body *b)
{
    if (b->on_end != NULL && b->kind != BODY_WORK)
        b->on_end(b);
    atomic_fetch_add(&b->ended, 1);
    atomic_fetch_sub(&b->running, 1);
    atomic_fetch_sub(&b->rig->running, 1);
}

static inline vow_next body_fiber(void *arg)
{
    struct body *b = arg;
    while (!b->released && vow_state_of(b->door) == VOW_PENDING) {
        if (vow_await(b->door) == VOW_ECANCELED)
            b->asked++;
    }
    body_ends(b);
    return vow_ok(vow_nothing());
}

static inline vow_next body_work(vow_job *job, void *arg)
{
    struct body *b = arg;
    struct cancel_rig *r = b->rig;
    (void)pthread_mutex_lock(&r->lock);
    b->begun = true;
    (void)pthread_cond_broadcast(&r->moved);
    while (!b->released)
        (void)pthread_cond_wait(&r->moved, &r->lock);
    (void)pthread_mutex_unlock(&r->lock);
    if (vow_job_canceled(job))
        b->asked++;
    body_ends(b);
    return vow_fail_code(VOW_ECANCELED, NULL);
}

static inline void body_asked(vow_error *why, void *arg)
{
    struct body *b = arg;
    (void)why;
    b->asked++;
}

/* Begins the body and returns its future. A job on a thread has begun: one that
 * still waited for its thread would never run. */
static inline vow_future *body_open(struct body *b)
{
    struct cancel_rig *r = b->rig;
    vow_future *f;
    body_begins(b);
    switch (b->kind) {
    case BODY_FIBER:
        if (b->door == NULL)
            b->door = vow_promise(r->w.loop, &b->key);
        f = vow_async(r->w.loop, body_fiber, b);
        break;
    case BODY_WORK:
        b->begun = false;
        f = vow_work(r->w.loop, body_work, b);
        (void)pthread_mutex_lock(&r->lock);
        while (!b->begun)
            (void)pthread_cond_wait(&r->moved, &r->lock);
        (void)pthread_mutex_unlock(&r->lock);
        break;
    case BODY_PROMISE:
    default:
        vow_deferred_unref(b->end);
        f = vow_promise(r->w.loop, &b->end);
        vow_on_cancel(b->end, body_asked, b);
        if (b->released) {
            body_ends(b);
            (void)vow_resolve(b->end, vow_nothing());
        }
        break;
    }
    if (b->keeps) {
        vow_future_unref(b->raw);
        b->raw = vow_future_ref(f);
    }
    return f;
}

/* Lets the body end. A job on a thread ends by itself, at any time from now. */
static inline void body_release(struct body *b)
{
    struct cancel_rig *r = b->rig;
    (void)pthread_mutex_lock(&r->lock);
    b->released = true;
    (void)pthread_cond_broadcast(&r->moved);
    (void)pthread_mutex_unlock(&r->lock);
    if (b->key != NULL)
        (void)vow_resolve(b->key, vow_nothing());
    if (b->kind == BODY_PROMISE && atomic_load(&b->running) > 0) {
        body_ends(b);
        (void)vow_resolve(b->end, vow_nothing());
    }
}

/* ---- what is chained to it ----------------------------------------------- */

static inline vow_next chain_ok(vow_value v, void *user)
{
    (void)v;
    (void)user;
    return vow_pass();
}

static inline vow_next chain_fail(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    return vow_pass();
}

static inline vow_next chain_ignore(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    return vow_ok(vow_nothing());
}

static inline vow_next chain_finally(void *user)
{
    (void)user;
    return vow_ok(vow_nothing());
}

static inline void chain_progress(vow_value v, void *user)
{
    (void)v;
    (void)user;
}

static inline vow_next chain_follow(vow_value v, void *future)
{
    (void)v;
    return vow_follow(future);
}

static inline vow_next chain_finally_follow(void *future)
{
    return vow_follow(future);
}

static inline vow_future *chain_with(vow_loop *loop, enum body_wrap wrap,
                                     vow_future *f)
{
    vow_future *some[2] = {f, NULL}, *out;
    switch (wrap) {
    case WRAP_ALL:
        some[1] = vow_resolved(loop, vow_int(1));
        out = vow_all(loop, some, 2);
        break;
    case WRAP_ALL_SETTLED:
        some[1] = vow_resolved(loop, vow_int(1));
        out = vow_all_settled(loop, some, 2);
        break;
    case WRAP_ANY:
        some[1] = vow_refused(loop, VOW_EIO, NULL);
        out = vow_any(loop, some, 2);
        break;
    case WRAP_RACE:
    default:
        some[1] = vow_delay(loop, FAR_MS);
        out = vow_race(loop, some, 2);
        break;
    }
    vow_future_unref(some[1]);
    return out;
}

static inline vow_future *chain_in_scope(vow_loop *loop, vow_future *f)
{
    vow_scope *s;
    CHECK_INT_EQ(vow_scope_new(loop, NULL, &s), 0);
    vow_future *out = vow_scope_add(s, f);
    vow_scope_unref(s);
    return out;
}

static inline vow_future *chain_resolve(vow_loop *loop, vow_future *f)
{
    vow_deferred *d;
    vow_future *out = vow_promise(loop, &d);
    CHECK(vow_resolve_with(d, f));
    vow_deferred_unref(d);
    return out;
}

/* A future of a future, whose reference is moved. */
static inline vow_future *chain_link(vow_loop *loop, enum body_wrap wrap,
                                     vow_future *f)
{
    const vow_step steps[3] = {{.ok = chain_ok},
                               {.fail = chain_fail},
                               {.ok = chain_ok, .fail = chain_fail}};
    vow_future *out, *mid;
    switch (wrap) {
    case WRAP_BARE:
        return f;
    case WRAP_THEN:
        return vow_then_drop(f, chain_ok, NULL, NULL);
    case WRAP_CATCH:
        return vow_catch_drop(f, chain_fail, NULL);
    case WRAP_FINALLY:
        out = vow_finally(f, chain_finally, NULL);
        break;
    case WRAP_THEN_THEN:
        f = vow_then_drop(f, chain_ok, NULL, NULL);
        return vow_then_drop(f, chain_ok, chain_fail, NULL);
    case WRAP_THEN_FINALLY_CATCH:
        f = vow_then_drop(f, chain_ok, NULL, NULL);
        mid = vow_finally(f, chain_finally, NULL);
        out = vow_catch_drop(mid, chain_fail, NULL);
        break;
    case WRAP_CHAIN:
        out = vow_chain(f, steps, 3);
        break;
    case WRAP_PROGRESS:
        out = vow_on_progress(f, chain_progress, NULL);
        break;
    case WRAP_TIMEOUT:
        out = vow_timeout(f, FAR_MS);
        break;
    case WRAP_DEADLINE:
        out = vow_deadline(f, vow_loop_due_ns(loop, FAR_MS));
        break;
    case WRAP_FOLLOW: /* the step takes the reference */
        return vow_then_drop(vow_resolved(loop, vow_nothing()), chain_follow,
                             NULL, f);
    case WRAP_FINALLY_FOLLOW:
        mid = vow_resolved(loop, vow_nothing());
        out = vow_finally(mid, chain_finally_follow, f);
        vow_future_unref(mid);
        return out;
    case WRAP_RESOLVE_WITH:
        out = chain_resolve(loop, f);
        break;
    case WRAP_SCOPE:
        out = chain_in_scope(loop, f);
        break;
    case WRAP_DONE_BESIDE:
        CHECK_INT_EQ(vow_done(vow_future_ref(f), chain_ok, chain_ignore, NULL),
                     0);
        return vow_then_drop(f, chain_ok, NULL, NULL);
    case WRAP_FINALLY_BESIDE:
        vow_future_unref(vow_finally(f, chain_finally, NULL));
        return vow_then_drop(f, chain_ok, NULL, NULL);
    default:
        out = chain_with(loop, wrap, f);
        break;
    }
    vow_future_unref(f);
    return out;
}

static inline vow_future *body_attempt(vow_loop *loop, uint32_t attempt,
                                       void *body)
{
    (void)loop;
    (void)attempt;
    return body_open(body);
}

static inline vow_future *body_item(vow_loop *loop, vow_value item, size_t at,
                                    void *body)
{
    (void)loop;
    (void)item;
    (void)at;
    return body_open(body);
}

/* The body is begun by a function of the library's. */
static inline vow_future *body_open_in(vow_loop *loop, struct body *b)
{
    vow_future *f;
    vow_gate *g;
    vow_sem *s;
    vow_breaker *k;
    switch (b->wrap) {
    case WRAP_RETRY:
        return vow_retry(loop, body_attempt, b, VOW_RETRY(.tries = 1));
    case WRAP_HEDGE:
        return vow_hedge(loop, body_attempt, b, VOW_HEDGE(.most = 1));
    case WRAP_GATE:
        CHECK_INT_EQ(vow_gate_new(loop, NULL, &g), 0);
        f = vow_gate_run(g, body_attempt, b, NULL);
        vow_gate_unref(g);
        return f;
    case WRAP_SEM:
        CHECK_INT_EQ(vow_sem_new(loop, NULL, &s), 0);
        f = vow_sem_with(s, 1, body_attempt, b);
        vow_sem_unref(s);
        return f;
    case WRAP_BREAKER:
        CHECK_INT_EQ(vow_breaker_new(loop, NULL, &k), 0);
        f = vow_breaker_run(k, body_attempt, b);
        vow_breaker_unref(k);
        return f;
    case WRAP_MAP:
    default:
        return vow_map(loop, vow_source_range(&b->range, 0, 1), body_item, b,
                       VOW_MAP(.concurrent = 1, .discard = true));
    }
}

/* Starts the body and returns what the wrap makes of its future. */
static inline vow_future *body_begin(struct body *b)
{
    vow_loop *loop = b->rig->w.loop;
    vow_future *f;
    if (b->wrap < WRAP_LINKS)
        f = chain_link(loop, b->wrap, body_open(b));
    else
        f = body_open_in(loop, b);
    if (b->inner_ms == 0)
        return f;
    vow_future *out = vow_timeout(f, b->inner_ms);
    vow_future_unref(f);
    return out;
}

static inline vow_future *body_start(vow_loop *loop, uint32_t attempt,
                                     void *body)
{
    (void)loop;
    (void)attempt;
    return body_begin(body);
}

/* Somebody else reads it too: then it goes on and is not asked to stop. */
static inline bool body_shared(const struct body *b)
{
    return b->keeps || b->wrap == WRAP_DONE_BESIDE ||
           b->wrap == WRAP_FINALLY_BESIDE;
}

/* ---- from outside -------------------------------------------------------- */

/* Ready handlers run, and no time passes. */
static inline void cancel_turns(struct cancel_rig *r)
{
    for (int i = 0; i < 6; i++)
        world_turn(&r->w);
}

/* The same, and a little time passes; jobs on threads go on. */
static inline void cancel_pass(struct cancel_rig *r)
{
    cancel_turns(r);
    world_advance_ms(&r->w, 20);
}

static inline void cancel_check_code(struct cancel_rig *r, vow_future *f,
                                     int code)
{
    if (vow_state_of(f) == VOW_PENDING)
        cancel_fault(r, "the caller still waits");
    else if (vow_error_code(vow_error_of(f)) != code)
        cancel_fault(r, "the caller sees %s, want %s",
                     vow_error_name(vow_error_code(vow_error_of(f))),
                     vow_error_name(code));
}

static inline vow_future *outside_around(vow_loop *loop, enum outside o,
                                         vow_future *f)
{
    switch (o) {
    case OUTSIDE_THEN:
        return vow_then(f, chain_ok, NULL, NULL);
    case OUTSIDE_FINALLY:
        return vow_finally(f, chain_finally, NULL);
    case OUTSIDE_PROGRESS:
        return vow_on_progress(f, chain_progress, NULL);
    case OUTSIDE_ALL:
        return vow_all(loop, &f, 1);
    case OUTSIDE_ANY:
        return vow_any(loop, &f, 1);
    case OUTSIDE_RACE:
    default:
        return vow_race(loop, &f, 1);
    }
}

/* Ends the job from outside and returns the future that its caller now has;
 * the caller of a link is told at once. */
static inline vow_future *cancel_outside(struct cancel_rig *r, enum outside o,
                                         vow_future *f)
{
    vow_loop *loop = r->w.loop;
    vow_future *out;
    vow_scope *s = NULL;
    int code = VOW_ECANCELED;
    switch (o) {
    case OUTSIDE_CANCEL:
        (void)vow_cancel(f, NULL);
        return f;
    case OUTSIDE_TIMEOUT:
        out = vow_timeout(f, OUTSIDE_MS);
        code = VOW_ETIMEDOUT;
        break;
    case OUTSIDE_SCOPE:
    case OUTSIDE_SCOPE_DEADLINE:
        CHECK_INT_EQ(
            vow_scope_new(loop,
                          VOW_SCOPE_OPTS(.deadline_ms = o == OUTSIDE_SCOPE
                                                            ? 0
                                                            : OUTSIDE_MS),
                          &s),
            0);
        out = vow_scope_add(s, f);
        break;
    default:
        out = outside_around(loop, o, f);
        break;
    }
    vow_future_unref(f);
    if (o == OUTSIDE_SCOPE)
        (void)vow_scope_cancel(s, NULL);
    else if (o == OUTSIDE_TIMEOUT || o == OUTSIDE_SCOPE_DEADLINE)
        world_advance_ms(&r->w, OUTSIDE_MS);
    else
        (void)vow_cancel(out, NULL);
    cancel_check_code(r, out, code);
    vow_scope_unref(s);
    return out;
}

/* Everything ends, and nothing is left of it. Returns the faults. */
static inline int cancel_close(struct cancel_rig *r)
{
    for (size_t i = 0; i < r->n; i++)
        body_release(&r->bodies[i]);
    world_run(&r->w);
    for (size_t i = 0; i < r->n; i++) {
        struct body *b = &r->bodies[i];
        vow_future_unref(b->raw);
        vow_future_unref(b->door);
        vow_deferred_unref(b->key);
        vow_deferred_unref(b->end);
    }
    world_run(&r->w);
    if (atomic_load(&r->running) != 0)
        cancel_fault(r, "%d run at the end", atomic_load(&r->running));
    (void)fprintf(stderr, "%s\n", r->name); /* seen when the close fails */
    world_close(&r->w);
    (void)pthread_mutex_destroy(&r->lock);
    (void)pthread_cond_destroy(&r->moved);
    return r->faults;
}

/* Settled, and then dropped. */
static inline void cancel_settled(struct cancel_rig *r, vow_future *f,
                                  const char *whose)
{
    if (vow_state_of(f) == VOW_PENDING)
        cancel_fault(r, "%s never settles", whose);
    (void)vow_error_of(f);
    vow_future_unref(f);
}

#endif
