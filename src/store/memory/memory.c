/* SPDX-License-Identifier: MIT */
/* memory.c - a store in the memory of a process.
 *
 * WHY   Named work within one process needs no file and no server; tests need
 *       many instances with one clock.
 * HOW   A state (memory_state.h) under a mutex. A step takes the lock, asks the
 *       state, releases the lock and answers, all before the step returns. The
 *       events of an instance are delivered by a call of its loop: a
 *       vow_call if the step ran on the same loop, else a posted message. At
 *       most one of each is on the way, and delivers all events. A memory with
 *       a single instance has no lock.
 * INVARIANTS
 *   M1  no function of a user is called under the lock; loops are posted to
 *   M2  an instance gets no message after leaving the state; the instance is
 *       freed when the last message has come
 * LIMITS  Time is read from the loop; for names, as of up to two microseconds
 *       ago, which makes a lease longer by so much and never shorter.
 * THREADS  vow_memory: any. A store: the thread of the loop.
 */
#include "store/memory/memory.h"
#include "base/assert.h"
#include "base/clock.h"
#include "store/memory/memory_state.h"
#include "vow/call.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    RECHECK_MS = 1000,
    EVENTS_MAX = 256,   /* in one turn of the loop */
    ANSWERS_STACK = 8,  /* more are allocated */
    TICK_CYCLES = 4096, /* the time read before is used for so long */
    US_PER_S = 1000000,
    TIDY_US_MAX = 60 * US_PER_S,
    NS_PER_US = 1000
};
static const size_t VALUE_MAX = (size_t)1 << 30;

struct vow_memory {
    pthread_mutex_t lock;
    bool shared; /* false: one instance, and no lock */
    atomic_size_t refs;
    struct vow_alloc alloc;
    struct vow__memory_state *state; /* made for the first instance */
    vow_loop *stepping;              /* the loop of the step */
};

struct memory_store {
    vow_store store;
    vow_store_ops ops;
    vow_loop *loop;
    vow_memory *memory;
    struct vow__memory_instance *instance; /* NULL: closed */
    vow_store_events events;
    vow_call deliver; /* the events of steps of this loop */
    vow_call tidy;
    bool tidying;    /* `tidy` is pending */
    bool posted;     /* a message is on the way; under the lock */
    bool delivering; /* must not be freed */
    bool quick;      /* the CPU counts cycles */
    uint64_t cycles; /* when `us` was read */
    uint64_t us;
};

static inline struct memory_store *store_of(vow_store *s)
{
    return (struct memory_store *)(void *)s;
}

static int make_memory(const struct vow_alloc *alloc, bool shared,
                       vow_memory **ret_memory);
static int join_memory(struct memory_store *s, size_t value_max);
static void free_store(struct memory_store *s);
static void lock_memory(vow_memory *m);
static void unlock_memory(vow_memory *m);
static struct vow__memory_step begin_name_step(vow_store *s);
static struct vow__memory_step begin_exact_step(vow_store *s);
static void schedule_tidy(struct memory_store *s, uint64_t due_us);
static void tidy_memory(void *user);
static void wake_store(void *user);
static void arrive_message(void *user);
static void deliver_events(void *user);
static void deliver_event(const struct memory_store *s,
                          struct vow__memory_event *e);

static vow_future *memory_close(vow_store *s);
static const vow_store_ops OPS; /* at the end, behind the steps */

/* ---- memories ----------------------------------------------------------- */

int vow_memory_new(const struct vow_alloc *alloc, vow_memory **ret_memory)
{
    return make_memory(alloc, true, ret_memory);
}

static int make_memory(const struct vow_alloc *alloc, bool shared,
                       vow_memory **ret_memory)
{
    struct vow_alloc a = {.fn = NULL};
    if (alloc != NULL)
        a = *alloc;
    vow_memory *m = vow__mem_zero(&a, sizeof(*m));
    if (m == NULL)
        return VOW_ENOMEM;
    if (pthread_mutex_init(&m->lock, NULL) != 0) {
        vow__mem_free(&a, m, sizeof(*m));
        return VOW_ENOMEM;
    }
    m->alloc = a;
    m->shared = shared;
    atomic_init(&m->refs, 1);
    *ret_memory = m;
    return 0;
}

vow_memory *vow_memory_ref(vow_memory *m)
{
    if (m != NULL)
        atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

vow_memory *vow_memory_unref(vow_memory *m)
{
    if (m == NULL ||
        atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) > 1)
        return NULL;
    struct vow_alloc alloc = m->alloc;
    vow__memory_state_free(m->state);
    (void)pthread_mutex_destroy(&m->lock);
    vow__mem_free(&alloc, m, sizeof(*m));
    return NULL;
}

static void lock_memory(vow_memory *m)
{
    if (m->shared)
        (void)pthread_mutex_lock(&m->lock);
}

static void unlock_memory(vow_memory *m)
{
    if (m->shared)
        (void)pthread_mutex_unlock(&m->lock);
}

/* ---- instances ---------------------------------------------------------- */

int vow_store_memory_new(vow_loop *loop, vow_memory *m, vow_store **ret_store)
{
    VOW__ASSERT_THREAD(loop);
    return vow__store_memory_open(loop, m, VALUE_MAX, ret_store);
}

int vow__store_memory_open(vow_loop *loop, vow_memory *m, size_t value_max,
                           vow_store **ret_store)
{
    struct vow_alloc alloc = *vow_loop_alloc(loop);
    struct memory_store *s = vow__mem_zero(&alloc, sizeof(*s));
    if (s == NULL)
        return VOW_ENOMEM;
    bool real = (vow_loop_flags(loop) & VOW_LOOP_VIRTUAL_TIME) == 0;
    s->loop = loop;
    s->quick = real && vow__clock_has_cycles();
    s->ops = OPS;
    s->ops.value_max = value_max;
    s->ops.flags = VOW_STORE_STARTS | VOW_STORE_REFRESHES |
                   (m == NULL ? VOW_STORE_LOCAL : 0);
    s->store.ops = &s->ops;
    int rc = 0;
    if (m == NULL)
        rc = make_memory(&alloc, false, &s->memory);
    else
        s->memory = vow_memory_ref(m);
    if (rc == 0)
        rc = join_memory(s, value_max);
    if (rc < 0) {
        free_store(s);
        return rc;
    }
    *ret_store = &s->store;
    return 0;
}

static int join_memory(struct memory_store *s, size_t value_max)
{
    vow_memory *m = s->memory;
    int rc = 0;
    lock_memory(m);
    if (m->state == NULL)
        rc = vow__memory_state_new(
            &(const struct vow__memory_opts){
                .alloc = m->alloc,
                .pooled = (vow_loop_flags(s->loop) & VOW_LOOP_UNPOOLED) == 0,
                .exact = true,
                .seed = vow_loop_random(s->loop),
                .recheck_ms = RECHECK_MS,
                .value_max = value_max},
            &m->state);
    if (rc == 0)
        rc = vow__memory_join(m->state, wake_store, s, &s->instance);
    unlock_memory(m);
    return rc;
}

static vow_future *memory_close(vow_store *store)
{
    struct memory_store *s = store_of(store);
    vow_loop *loop = s->loop;
    struct vow__memory_step step = begin_name_step(store);
    vow__memory_leave(step.state, s->instance, step.now_us, false);
    s->instance = NULL; /* keeps M2 */
    bool posted = s->posted;
    unlock_memory(s->memory);
    (void)vow_call_stop(&s->deliver);
    (void)vow_call_stop(&s->tidy);
    if (!posted && !s->delivering)
        free_store(s);
    return vow_resolved(loop, vow_nothing());
}

static void free_store(struct memory_store *s)
{
    struct vow_alloc alloc = *vow_loop_alloc(s->loop);
    (void)vow_memory_unref(s->memory);
    vow__mem_free(&alloc, s, sizeof(*s));
}

/* ---- steps -------------------------------------------------------------- */

static struct vow__memory_step lock_step(struct memory_store *s)
{
    lock_memory(s->memory);
    s->memory->stepping = s->loop;
    return (struct vow__memory_step){s->memory->state, s->instance, s->us};
}

static void read_time(struct memory_store *s)
{
    if (s->quick)
        s->cycles = vow__clock_cycles();
    s->us = vow_loop_now_ns(s->loop) / NS_PER_US;
}

/* A step on names: the time may be a little old. */
static struct vow__memory_step begin_name_step(vow_store *store)
{
    struct memory_store *s = store_of(store);
    if (!s->quick || vow__clock_cycles() - s->cycles >= TICK_CYCLES)
        read_time(s);
    return lock_step(s);
}

/* A step on permits: a rate is exact. */
static struct vow__memory_step begin_exact_step(vow_store *store)
{
    read_time(store_of(store));
    return lock_step(store_of(store));
}

static void finish_step(vow_store *store)
{
    struct memory_store *s = store_of(store);
    bool untidy = !s->tidying && vow__memory_untidy(s->memory->state);
    unlock_memory(s->memory);
    if (VOW__UNLIKELY(untidy))
        schedule_tidy(s, 0);
}

static void schedule_tidy(struct memory_store *s, uint64_t due_us)
{
    uint64_t now_us = vow_loop_now_ns(s->loop) / NS_PER_US;
    uint64_t in_us = due_us > now_us ? due_us - now_us : 0;
    if (in_us < US_PER_S)
        in_us = US_PER_S;
    if (in_us > TIDY_US_MAX)
        in_us = TIDY_US_MAX;
    s->tidying = true;
    vow_call_weakly_at(&s->tidy, s->loop, (now_us + in_us) * NS_PER_US,
                       tidy_memory, s);
}

static void tidy_memory(void *user)
{
    struct memory_store *s = user;
    struct vow__memory_step step = begin_exact_step(&s->store);
    uint64_t next_us = vow__memory_tidy(step.state, step.now_us);
    unlock_memory(s->memory);
    s->tidying = false;
    if (next_us != UINT64_MAX)
        schedule_tidy(s, next_us);
}

/* ---- events ------------------------------------------------------------- */

/* Under the lock, on the thread of the step. A message that cannot be posted
 * is lost; the next event posts again. */
static void wake_store(void *user)
{
    struct memory_store *s = user;
    if (s->loop != s->memory->stepping)
        s->posted = s->posted || vow_loop_post(s->loop, arrive_message, s) == 0;
    else if (!vow_call_pending(&s->deliver))
        vow_call_soon(&s->deliver, s->loop, deliver_events, s);
}

static void arrive_message(void *user)
{
    struct memory_store *s = user;
    lock_memory(s->memory);
    s->posted = false;
    unlock_memory(s->memory);
    deliver_events(s);
}

/* An event may close the store. */
static void deliver_events(void *user)
{
    struct memory_store *s = user;
    struct vow__memory_event e;
    bool more = true;
    s->delivering = true;
    for (int n = 0; more && s->instance != NULL && n < EVENTS_MAX; n++) {
        struct vow__memory_step step = begin_exact_step(&s->store);
        more = vow__memory_event_take(&step, &e);
        finish_step(&s->store);
        if (more)
            deliver_event(s, &e);
    }
    s->delivering = false;
    if (s->instance == NULL && !s->posted)
        free_store(s);
    else if (s->instance != NULL && more)
        vow_call_soon(&s->deliver, s->loop, deliver_events, s);
}

static void deliver_event(const struct memory_store *s,
                          struct vow__memory_event *e)
{
    const vow_store_events *to = &s->events;
    const vow_record *r = &e->answer.record;
    if (e->kind == VOW__MEMORY_PERMIT) {
        if (to->on_permit != NULL)
            to->on_permit(&e->token, to->user);
        return;
    }
    if (e->kind == VOW__MEMORY_RECORD && to->on_record != NULL)
        to->on_record(r, to->user);
    else if (e->kind == VOW__MEMORY_CHUNKS && to->on_chunks != NULL)
        to->on_chunks(&r->name, to->user);
    else if (e->kind == VOW__MEMORY_CANCEL && to->on_cancel != NULL)
        to->on_cancel(&r->name, to->user);
    vow__memory_answer_fini(&e->answer);
}

static void memory_listen(vow_store *s, const vow_store_events *events)
{
    store_of(s)->events = *events;
}

/* ---- names -------------------------------------------------------------- */

/* Ends a step and answers: afterwards the store may be gone. */
static void answer_record(vow_store *s, int rc, struct vow__memory_answer *a,
                          vow_records_fn done, void *user)
{
    finish_step(s);
    done(rc, rc < 0 ? NULL : &a->record, rc < 0 ? 0 : 1, user);
    if (rc == 0)
        vow__memory_answer_fini(a);
}

static void memory_claim(vow_store *s, const vow_claim_request *request,
                         vow_records_fn done, void *user)
{
    struct vow__memory_answer a;
    struct vow__memory_step step = begin_name_step(s);
    answer_record(s, vow__memory_claim(&step, request, &a), &a, done, user);
}

static void memory_commit(vow_store *s, const vow_commit_request *request,
                          vow_records_fn done, void *user)
{
    struct vow__memory_answer a;
    struct vow__memory_step step = begin_name_step(s);
    answer_record(s, vow__memory_commit(&step, request, &a), &a, done, user);
}

static void memory_forget(vow_store *s, const vow_name *name, uint64_t epoch,
                          vow_records_fn done, void *user)
{
    struct vow__memory_answer a;
    struct vow__memory_step step = begin_name_step(s);
    answer_record(s, vow__memory_forget(&step, name, epoch, &a), &a, done,
                  user);
}

static void memory_cancel(vow_store *s, const vow_name *name,
                          vow_records_fn done, void *user)
{
    struct vow__memory_answer a;
    struct vow__memory_step step = begin_name_step(s);
    answer_record(s, vow__memory_cancel(&step, name, &a), &a, done, user);
}

static void memory_write(vow_store *s, const vow_hold *hold, uint64_t number,
                         vow_bytes *chunk, vow_records_fn done, void *user)
{
    struct vow__memory_answer a;
    struct vow__memory_step step = begin_name_step(s);
    answer_record(s, vow__memory_write(&step, hold, number, chunk, &a), &a,
                  done, user);
}

static void memory_pulse(vow_store *s, const vow_hold *holds, size_t n,
                         uint64_t lease_ms, vow_records_fn done, void *user)
{
    struct vow_alloc alloc = *vow_loop_alloc(store_of(s)->loop);
    vow_record few[ANSWERS_STACK];
    vow_record *out = few;
    if (n > ANSWERS_STACK)
        out = vow__mem_new(&alloc, n * sizeof(out[0]));
    if (out == NULL) {
        done(VOW_ENOMEM, NULL, 0, user);
        return;
    }
    struct vow__memory_step step = begin_name_step(s);
    int rc = vow__memory_pulse(&step, holds, n, lease_ms, out);
    finish_step(s);
    done(rc, rc < 0 ? NULL : out, rc < 0 ? 0 : n, user);
    if (out != few)
        vow__mem_free(&alloc, out, n * sizeof(out[0]));
}

/* Ends a step and answers; the block is of the allocator of the memory. */
static void answer_records(vow_store *s, int rc, struct vow__memory_records *a,
                           vow_records_fn done, void *user)
{
    struct vow_alloc alloc = store_of(s)->memory->alloc;
    finish_step(s);
    if (rc < 0) {
        done(rc, NULL, 0, user);
        return;
    }
    done(0, a->records, a->n, user);
    vow__mem_free(&alloc, a->records, a->size);
}

static void memory_peek(vow_store *s, const vow_name *names, size_t n,
                        vow_records_fn done, void *user)
{
    struct vow__memory_records a;
    struct vow__memory_step step = begin_name_step(s);
    answer_records(s, vow__memory_peek(&step, names, n, &a), &a, done, user);
}

static void memory_list(vow_store *s, vow_records_fn done, void *user)
{
    struct vow__memory_records a;
    struct vow__memory_step step = begin_name_step(s);
    answer_records(s, vow__memory_list(&step, &a), &a, done, user);
}

static void memory_read(vow_store *s, const vow_name *name, uint64_t epoch,
                        uint64_t from, vow_chunks_fn done, void *user)
{
    struct vow__memory_chunks c;
    struct vow__memory_step step = begin_name_step(s);
    int rc = vow__memory_read(&step, name, epoch, from, &c);
    finish_step(s);
    if (rc < 0) {
        done(rc, NULL, 0, 0, user);
        return;
    }
    done(0, c.chunks, c.n, c.next, user);
    vow__memory_chunks_fini(&c);
}

/* ---- permits ------------------------------------------------------------ */

static void memory_acquire(vow_store *s, const vow_permit_request *ask,
                           vow_permits_fn done, void *user)
{
    vow_pool_permit place;
    struct vow__memory_step step = begin_exact_step(s);
    int rc = vow__memory_acquire(&step, ask, &place);
    finish_step(s);
    done(rc, rc < 0 ? NULL : &place, rc < 0 ? 0 : 1, user);
}

static void memory_release(vow_store *s, const vow_permit_hold *hold,
                           vow_permits_fn done, void *user)
{
    vow_pool_permit place;
    struct vow__memory_step step = begin_exact_step(s);
    vow__memory_release(&step, hold, &place);
    finish_step(s);
    done(0, &place, 1, user);
}

static void memory_renew(vow_store *s, const vow_permit_hold *holds, size_t n,
                         uint64_t lease_ms, vow_permits_fn done, void *user)
{
    struct vow_alloc alloc = *vow_loop_alloc(store_of(s)->loop);
    vow_pool_permit few[ANSWERS_STACK];
    vow_pool_permit *out = few;
    if (n > ANSWERS_STACK)
        out = vow__mem_new(&alloc, n * sizeof(out[0]));
    if (out == NULL) {
        done(VOW_ENOMEM, NULL, 0, user);
        return;
    }
    struct vow__memory_step step = begin_exact_step(s);
    int rc = vow__memory_renew(&step, holds, n, lease_ms, out);
    finish_step(s);
    done(rc, rc < 0 ? NULL : out, rc < 0 ? 0 : n, user);
    if (out != few)
        vow__mem_free(&alloc, out, n * sizeof(out[0]));
}

static void memory_limit(vow_store *s, const vow_name *pool,
                         const vow_pool_limits *limits, const char *label,
                         vow_pools_fn done, void *user)
{
    struct vow__memory_pool_answer a;
    struct vow__memory_step step = begin_exact_step(s);
    int rc = vow__memory_limit(&step, pool, limits, label, &a);
    finish_step(s);
    done(rc, rc < 0 ? NULL : &a.info, rc < 0 ? 0 : 1, user);
}

static void memory_pools(vow_store *s, vow_pools_fn done, void *user)
{
    struct vow_alloc alloc = store_of(s)->memory->alloc;
    vow_pool_info *infos;
    size_t n;
    size_t size;
    struct vow__memory_step step = begin_exact_step(s);
    int rc = vow__memory_pools(&step, &infos, &n, &size);
    finish_step(s);
    if (rc < 0) {
        done(rc, NULL, 0, user);
        return;
    }
    done(0, infos, n, user);
    vow__mem_free(&alloc, infos, size);
}

/* The only failure is a lack of memory. */
static const char *memory_explain(vow_store *s)
{
    (void)s;
    return "";
}

static const vow_store_ops OPS = {
    .version = VOW_STORE_VERSION,
    .modes = 1u << VOW_SHARED | 1u << VOW_FENCED | 1u << VOW_ONCE,
    .recheck_ms = RECHECK_MS,
    .kind = "memory",
    .listen = memory_listen,
    .claim = memory_claim,
    .peek = memory_peek,
    .pulse = memory_pulse,
    .commit = memory_commit,
    .forget = memory_forget,
    .cancel = memory_cancel,
    .list = memory_list,
    .write = memory_write,
    .read = memory_read,
    .acquire = memory_acquire,
    .release = memory_release,
    .renew = memory_renew,
    .limit = memory_limit,
    .pools = memory_pools,
    .explain = memory_explain,
    .close = memory_close,
};
