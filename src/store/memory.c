/* SPDX-License-Identifier: MIT */
/* memory.c - a store in the memory of one process.
 *
 * WHY   Named work within one process needs no file and no server; tests need
 *       many instances that meet on one clock.
 * HOW   A book under a mutex. A step takes the lock, asks the book, lets go and
 *       answers, all before it returns. Letters for an instance of the same
 *       loop come by a call of that loop, for others by a message to theirs;
 *       there is at most one of either under way, and it brings all letters.
 *       A memory of its own has no lock: nobody else can reach it.
 * INVARIANTS
 *   M1  nobody is called while the lock is held, but loops to post a message
 *   M2  an instance gets no message once it has left the book; it is freed when
 *       the last one has come
 * LIMITS  Time is read from the loop; for names, as of up to two microseconds
 *       ago, which makes a lease longer by that and never shorter.
 * THREADS  vow_memory: any. A store: that of its loop.
 */
#include "store/memory.h"
#include "base/assert.h"
#include "base/clock.h"
#include "store/book.h"
#include "vow/call.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    RECHECK_MS = 1000,
    LETTERS_MAX = 256,  /* in one turn */
    ANSWERS_STACK = 8,  /* more need memory */
    TICK_CYCLES = 4096, /* how long a time is good enough */
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
    struct vow__book *book; /* made for the first instance */
    vow_loop *stepping;     /* whose step it is */
};

struct instance {
    vow_store store;
    vow_store_ops ops;
    vow_loop *loop;
    vow_memory *memory;
    struct vow__inst *inst; /* NULL: closed */
    vow_store_events events;
    vow_call letters; /* brings them, if they come from this loop */
    vow_call tidy;
    bool tidying;
    bool posted;     /* a message is under way; under the lock */
    bool delivering; /* it cannot be freed */
    bool quick;      /* there are cycles to go by */
    uint64_t cycles; /* when us was read */
    uint64_t us;
};

static inline struct instance *of(vow_store *s)
{
    return (struct instance *)(void *)s;
}

static int memory_new(const struct vow_alloc *alloc, bool shared,
                      vow_memory **ret_memory);
static int join(struct instance *i, size_t value_max);
static void instance_free(struct instance *i);
static void lock(vow_memory *m);
static void unlock(vow_memory *m);
static struct vow__step begin(vow_store *s);
static struct vow__step begin_now(vow_store *s);
static void end(vow_store *s);
static void tidy_at(struct instance *i, uint64_t due_us);
static void tidy(void *user);
static void wake(void *user);
static void arrive(void *user);
static void deliver(void *user);
static void tell(const struct instance *i, struct vow__news *news);
static void answer(int rc, struct vow__answer *a, vow_records_fn done,
                   void *user);
static void answer_sheet(vow_store *s, int rc, struct vow__sheet *sheet,
                         vow_records_fn done, void *user);

static vow_future *do_close(vow_store *s);
static const vow_store_ops OPS; /* at the end, behind the steps */

/* ---- what is shared ----------------------------------------------------- */

int vow_memory_new(const struct vow_alloc *alloc, vow_memory **ret_memory)
{
    return memory_new(alloc, true, ret_memory);
}

static int memory_new(const struct vow_alloc *alloc, bool shared,
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
    vow__book_free(m->book);
    (void)pthread_mutex_destroy(&m->lock);
    vow__mem_free(&alloc, m, sizeof(*m));
    return NULL;
}

static void lock(vow_memory *m)
{
    if (m->shared)
        (void)pthread_mutex_lock(&m->lock);
}

static void unlock(vow_memory *m)
{
    if (m->shared)
        (void)pthread_mutex_unlock(&m->lock);
}

/* ---- an instance -------------------------------------------------------- */

int vow_store_memory_new(vow_loop *loop, vow_memory *m, vow_store **ret_store)
{
    VOW__ASSERT_THREAD(loop);
    return vow__store_memory_open(loop, m, VALUE_MAX, ret_store);
}

int vow__store_memory_open(vow_loop *loop, vow_memory *m, size_t value_max,
                           vow_store **ret_store)
{
    struct vow_alloc alloc = *vow_loop_alloc(loop);
    struct instance *i = vow__mem_zero(&alloc, sizeof(*i));
    if (i == NULL)
        return VOW_ENOMEM;
    bool real = (vow_loop_flags(loop) & VOW_LOOP_VIRTUAL_TIME) == 0;
    i->loop = loop;
    i->quick = real && vow__clock_has_cycles();
    i->ops = OPS;
    i->ops.value_max = value_max;
    i->ops.flags = VOW_STORE_STARTS | (m == NULL ? VOW_STORE_LOCAL : 0);
    i->store.ops = &i->ops;
    int rc = 0;
    if (m == NULL)
        rc = memory_new(&alloc, false, &i->memory);
    else
        i->memory = vow_memory_ref(m);
    if (rc == 0)
        rc = join(i, value_max);
    if (rc < 0) {
        instance_free(i);
        return rc;
    }
    *ret_store = &i->store;
    return 0;
}

static int join(struct instance *i, size_t value_max)
{
    vow_memory *m = i->memory;
    int rc = 0;
    lock(m);
    if (m->book == NULL)
        rc = vow__book_new(
            &(const struct vow__book_opts){
                .alloc = m->alloc,
                .pooled = (vow_loop_flags(i->loop) & VOW_LOOP_UNPOOLED) == 0,
                .sure = true,
                .seed = vow_loop_random(i->loop),
                .recheck_ms = RECHECK_MS,
                .value_max = value_max},
            &m->book);
    if (rc == 0)
        rc = vow__book_join(m->book, wake, i, &i->inst);
    unlock(m);
    return rc;
}

static vow_future *do_close(vow_store *s)
{
    struct instance *i = of(s);
    vow_loop *loop = i->loop;
    struct vow__step step = begin(s);
    vow__book_leave(step.book, i->inst, step.now_us, false);
    i->inst = NULL; /* keeps M2 */
    bool posted = i->posted;
    unlock(i->memory);
    (void)vow_call_stop(&i->letters);
    (void)vow_call_stop(&i->tidy);
    if (!posted && !i->delivering)
        instance_free(i);
    return vow_resolved(loop, vow_nothing());
}

static void instance_free(struct instance *i)
{
    struct vow_alloc alloc = *vow_loop_alloc(i->loop);
    (void)vow_memory_unref(i->memory);
    vow__mem_free(&alloc, i, sizeof(*i));
}

/* ---- steps -------------------------------------------------------------- */

/* A step on names, whose time may be a little old. */
static struct vow__step begin(vow_store *s)
{
    struct instance *i = of(s);
    if (!i->quick || vow__clock_cycles() - i->cycles >= TICK_CYCLES)
        return begin_now(s);
    lock(i->memory);
    i->memory->stepping = i->loop;
    return (struct vow__step){i->memory->book, i->inst, i->us};
}

/* A step on places: a rate is exact. */
static struct vow__step begin_now(vow_store *s)
{
    struct instance *i = of(s);
    lock(i->memory);
    i->memory->stepping = i->loop;
    if (i->quick)
        i->cycles = vow__clock_cycles();
    i->us = vow_loop_now_ns(i->loop) / NS_PER_US;
    return (struct vow__step){i->memory->book, i->inst, i->us};
}

static void end(vow_store *s)
{
    struct instance *i = of(s);
    bool untidy = !i->tidying && vow__book_untidy(i->memory->book);
    unlock(i->memory);
    if (VOW__UNLIKELY(untidy))
        tidy_at(i, 0);
}

static void tidy_at(struct instance *i, uint64_t due_us)
{
    uint64_t now_us = vow_loop_now_ns(i->loop) / NS_PER_US;
    uint64_t in_us = due_us > now_us ? due_us - now_us : 0;
    if (in_us < US_PER_S)
        in_us = US_PER_S;
    if (in_us > TIDY_US_MAX)
        in_us = TIDY_US_MAX;
    i->tidying = true;
    vow_call_weakly_at(&i->tidy, i->loop, (now_us + in_us) * NS_PER_US, tidy,
                       i);
}

static void tidy(void *user)
{
    struct instance *i = user;
    struct vow__step step = begin_now(&i->store);
    uint64_t next_us = vow__book_tidy(step.book, step.now_us);
    unlock(i->memory);
    i->tidying = false;
    if (next_us != UINT64_MAX)
        tidy_at(i, next_us);
}

/* ---- letters ------------------------------------------------------------ */

/* Under the lock, on the thread of whoever makes the step. A message that
 * cannot be sent is lost; the next letter tries again. */
static void wake(void *user)
{
    struct instance *i = user;
    if (i->loop != i->memory->stepping)
        i->posted = i->posted || vow_loop_post(i->loop, arrive, i) == 0;
    else if (!vow_call_pending(&i->letters))
        vow_call_soon(&i->letters, i->loop, deliver, i);
}

static void arrive(void *user)
{
    struct instance *i = user;
    lock(i->memory);
    i->posted = false;
    unlock(i->memory);
    deliver(i);
}

/* An event may close the store. */
static void deliver(void *user)
{
    struct instance *i = user;
    struct vow__news news;
    bool more = true;
    i->delivering = true;
    for (int n = 0; more && i->inst != NULL && n < LETTERS_MAX; n++) {
        struct vow__step step = begin_now(&i->store);
        more = vow__book_mail(&step, &news);
        end(&i->store);
        if (more)
            tell(i, &news);
    }
    i->delivering = false;
    if (i->inst == NULL && !i->posted)
        instance_free(i);
    else if (i->inst != NULL && more)
        vow_call_soon(&i->letters, i->loop, deliver, i);
}

static void tell(const struct instance *i, struct vow__news *news)
{
    const vow_store_events *e = &i->events;
    const vow_record *r = &news->answer.record;
    if (news->kind == VOW__NEWS_PLACE) {
        if (e->on_permit != NULL)
            e->on_permit(&news->token, e->user);
        return;
    }
    if (news->kind == VOW__NEWS_RECORD && e->on_record != NULL)
        e->on_record(r, e->user);
    else if (news->kind == VOW__NEWS_CHUNKS && e->on_chunks != NULL)
        e->on_chunks(&r->name, e->user);
    else if (news->kind == VOW__NEWS_CANCEL && e->on_cancel != NULL)
        e->on_cancel(&r->name, e->user);
    vow__answer_fini(&news->answer);
}

static void do_listen(vow_store *s, const vow_store_events *events)
{
    of(s)->events = *events;
}

/* ---- names -------------------------------------------------------------- */

/* The store may be gone when this returns. */
static void answer(int rc, struct vow__answer *a, vow_records_fn done,
                   void *user)
{
    if (rc < 0) {
        done(rc, NULL, 0, user);
        return;
    }
    done(0, &a->record, 1, user);
    vow__answer_fini(a);
}

static void do_claim(vow_store *s, const vow_claim_request *ask,
                     vow_records_fn done, void *user)
{
    struct vow__answer a;
    struct vow__step step = begin(s);
    int rc = vow__book_claim(&step, ask, &a);
    end(s);
    answer(rc, &a, done, user);
}

static void do_commit(vow_store *s, const vow_commit_request *ask,
                      vow_records_fn done, void *user)
{
    struct vow__answer a;
    struct vow__step step = begin(s);
    int rc = vow__book_commit(&step, ask, &a);
    end(s);
    answer(rc, &a, done, user);
}

static void do_forget(vow_store *s, const vow_name *name, uint64_t epoch,
                      vow_records_fn done, void *user)
{
    struct vow__answer a;
    struct vow__step step = begin(s);
    vow__book_forget(&step, name, epoch, &a);
    end(s);
    answer(0, &a, done, user);
}

static void do_cancel(vow_store *s, const vow_name *name, vow_records_fn done,
                      void *user)
{
    struct vow__answer a;
    struct vow__step step = begin(s);
    vow__book_cancel(&step, name, &a);
    end(s);
    answer(0, &a, done, user);
}

static void do_pulse(vow_store *s, const vow_hold *holds, size_t n,
                     uint64_t lease_ms, vow_records_fn done, void *user)
{
    struct vow_alloc alloc = *vow_loop_alloc(of(s)->loop);
    vow_record few[ANSWERS_STACK];
    vow_record *out = few;
    if (n > ANSWERS_STACK)
        out = vow__mem_new(&alloc, n * sizeof(out[0]));
    if (out == NULL) {
        done(VOW_ENOMEM, NULL, 0, user);
        return;
    }
    struct vow__step step = begin(s);
    int rc = vow__book_pulse(&step, holds, n, lease_ms, out);
    end(s);
    done(rc, rc < 0 ? NULL : out, rc < 0 ? 0 : n, user);
    if (out != few)
        vow__mem_free(&alloc, out, n * sizeof(out[0]));
}

static void do_peek(vow_store *s, const vow_name *names, size_t n,
                    vow_records_fn done, void *user)
{
    struct vow__sheet sheet;
    struct vow__step step = begin(s);
    int rc = vow__book_peek(&step, names, n, &sheet);
    end(s);
    answer_sheet(s, rc, &sheet, done, user);
}

static void do_list(vow_store *s, vow_records_fn done, void *user)
{
    struct vow__sheet sheet;
    struct vow__step step = begin(s);
    int rc = vow__book_list(&step, &sheet);
    end(s);
    answer_sheet(s, rc, &sheet, done, user);
}

/* The block is of the memory's allocator. */
static void answer_sheet(vow_store *s, int rc, struct vow__sheet *sheet,
                         vow_records_fn done, void *user)
{
    struct vow_alloc alloc = of(s)->memory->alloc;
    if (rc < 0) {
        done(rc, NULL, 0, user);
        return;
    }
    done(0, sheet->records, sheet->n, user);
    vow__mem_free(&alloc, sheet->records, sheet->size);
}

static void do_write(vow_store *s, const vow_hold *hold, uint64_t number,
                     vow_bytes *chunk, vow_records_fn done, void *user)
{
    (void)number;
    struct vow__answer a;
    struct vow__step step = begin(s);
    int rc = vow__book_write(&step, hold, chunk, &a);
    end(s);
    answer(rc, &a, done, user);
}

static void do_read(vow_store *s, const vow_name *name, uint64_t epoch,
                    uint64_t from, vow_chunks_fn done, void *user)
{
    struct vow__page page;
    struct vow__step step = begin(s);
    int rc = vow__book_read(&step, name, epoch, from, &page);
    end(s);
    if (rc < 0) {
        done(rc, NULL, 0, 0, user);
        return;
    }
    done(0, page.chunks, page.n, page.next, user);
    vow__page_fini(&page);
}

/* ---- places ------------------------------------------------------------- */

static void do_acquire(vow_store *s, const vow_permit_request *ask,
                       vow_permits_fn done, void *user)
{
    vow_pool_permit place;
    if (ask->lease_ms == 0) {
        done(VOW_EINVAL, NULL, 0, user);
        return;
    }
    struct vow__step step = begin_now(s);
    int rc = vow__book_acquire(&step, ask, &place);
    end(s);
    done(rc, rc < 0 ? NULL : &place, rc < 0 ? 0 : 1, user);
}

static void do_release(vow_store *s, const vow_permit_hold *hold,
                       vow_permits_fn done, void *user)
{
    vow_pool_permit place;
    struct vow__step step = begin_now(s);
    vow__book_release(&step, hold, &place);
    end(s);
    done(0, &place, 1, user);
}

static void do_renew(vow_store *s, const vow_permit_hold *holds, size_t n,
                     uint64_t lease_ms, vow_permits_fn done, void *user)
{
    struct vow_alloc alloc = *vow_loop_alloc(of(s)->loop);
    vow_pool_permit few[ANSWERS_STACK];
    vow_pool_permit *out = few;
    if (lease_ms == 0) {
        done(VOW_EINVAL, NULL, 0, user);
        return;
    }
    if (n > ANSWERS_STACK)
        out = vow__mem_new(&alloc, n * sizeof(out[0]));
    if (out == NULL) {
        done(VOW_ENOMEM, NULL, 0, user);
        return;
    }
    struct vow__step step = begin_now(s);
    vow__book_renew(&step, holds, n, lease_ms, out);
    end(s);
    done(0, out, n, user);
    if (out != few)
        vow__mem_free(&alloc, out, n * sizeof(out[0]));
}

static void do_limit(vow_store *s, const vow_name *pool,
                     const vow_pool_limits *limits, const char *label,
                     vow_pools_fn done, void *user)
{
    struct vow__pool_answer a;
    struct vow__step step = begin_now(s);
    int rc = vow__book_limit(&step, pool, limits, label, &a);
    end(s);
    done(rc, rc < 0 ? NULL : &a.info, rc < 0 ? 0 : 1, user);
}

static void do_pools(vow_store *s, vow_pools_fn done, void *user)
{
    struct vow_alloc alloc = of(s)->memory->alloc;
    vow_pool_info *infos;
    size_t n;
    size_t size;
    struct vow__step step = begin_now(s);
    int rc = vow__book_pools(&step, &infos, &n, &size);
    end(s);
    if (rc < 0) {
        done(rc, NULL, 0, user);
        return;
    }
    done(0, infos, n, user);
    vow__mem_free(&alloc, infos, size);
}

/* There is no trouble to tell of but a lack of memory. */
static const char *do_explain(vow_store *s)
{
    (void)s;
    return "";
}

static const vow_store_ops OPS = {
    .version = VOW_STORE_VERSION,
    .modes = 1u << VOW_SHARED | 1u << VOW_FENCED | 1u << VOW_ONCE,
    .recheck_ms = RECHECK_MS,
    .kind = "memory",
    .listen = do_listen,
    .claim = do_claim,
    .peek = do_peek,
    .pulse = do_pulse,
    .commit = do_commit,
    .forget = do_forget,
    .cancel = do_cancel,
    .list = do_list,
    .write = do_write,
    .read = do_read,
    .acquire = do_acquire,
    .release = do_release,
    .renew = do_renew,
    .limit = do_limit,
    .pools = do_pools,
    .explain = do_explain,
    .close = do_close,
};
