/* SPDX-License-Identifier: MIT */
/* authority_flaky.h - a store that does to its caller whatever vow/store.h
 * allows: it refuses, loses answers, answers late, is cut off, tells its news
 * twice or not at all. Behind it is the store in memory, on virtual time.
 *
 *     f.fate[STEP_COMMIT] = FATE_UNSURE_DONE, f.fates[STEP_COMMIT] = 1;
 *
 * lets the next commit happen and loses its answer. An answer that is held
 * stays until flaky_release().
 */
#ifndef TEST_AUTHORITY_FLAKY_H
#define TEST_AUTHORITY_FLAKY_H

#include "world.h"

#include <stdlib.h>
#include <string.h>

enum step {
    STEP_CLAIM,
    STEP_PEEK,
    STEP_PULSE,
    STEP_COMMIT,
    STEP_FORGET,
    STEP_CANCEL,
    STEP_LIST,
    STEP_WRITE,
    STEP_READ,
    STEPS
};

enum fate {
    FATE_FINE,
    FATE_REFUSED,     /* VOW_ESTORE: it did not happen */
    FATE_BUSY,        /* VOW_EAGAIN: it did not happen either */
    FATE_UNSURE_DONE, /* VOW_EUNSURE: it did */
    FATE_UNSURE_NOT,  /* VOW_EUNSURE: it did not */
    FATE_HELD         /* it happened, the answer waits to be released */
};

enum { FLAKY_TOKENS = 32, FLAKY_ALWAYS = 1 << 30, FLAKY_TIMEOUT_MS = 250 };

struct flaky;

/* An answer under way. */
struct answer {
    struct answer *next;
    struct flaky *f;
    enum fate fate;
    uint64_t delay_ms;
    vow_records_fn done;
    vow_chunks_fn read;
    void *user;
    int code;
    vow_record *records;
    char (*texts)[2][VOW_LABEL_MAX + 1];
    vow_bytes **chunks;
    size_t n;
    uint64_t go_on;
    vow_future *timer;
};

struct flaky {
    vow_store store; /* first: this is the vow_store */
    vow_store_ops ops;
    vow_store *inner;
    vow_loop *loop;
    enum fate fate[STEPS]; /* of the next so many steps */
    int fates[STEPS];
    uint64_t delay_ms[STEPS]; /* of their answers */
    bool cut;                 /* nothing gets there, nothing comes back */
    bool deaf;                /* no news */
    bool doubled;             /* all news twice */
    bool closed;
    int begun[STEPS];
    vow_token claims[FLAKY_TOKENS]; /* the last ones first asked with */
    vow_token commits[FLAKY_TOKENS];
    vow_store_events events;
    struct answer *held; /* the oldest first */
};

static inline struct flaky *flaky_of(vow_store *s)
{
    return (struct flaky *)s;
}

static inline void answer_free(struct answer *a)
{
    for (size_t i = 0; i < a->n && a->records != NULL; i++)
        vow_bytes_unref(a->records[i].value);
    for (size_t i = 0; i < a->n && a->chunks != NULL; i++)
        vow_bytes_unref(a->chunks[i]);
    vow_future_unref(a->timer);
    free(a->records);
    free(a->texts);
    free(a->chunks);
    free(a);
}

/* Out of the list and to the caller. */
static inline void answer_give(struct answer *a, int code)
{
    struct answer **at = &a->f->held;
    while (*at != NULL && *at != a)
        at = &(*at)->next;
    if (*at == a)
        *at = a->next;
    const size_t n = code == 0 ? a->n : 0;
    if (a->done != NULL)
        a->done(code, n == 0 ? NULL : a->records, n, a->user);
    else
        a->read(code, n == 0 ? NULL : a->chunks, n, a->go_on, a->user);
    if (a->timer != NULL)
        (void)vow_cancel(a->timer, NULL);
    answer_free(a);
}

static inline vow_next answer_due(vow_value v, void *user)
{
    struct answer *a = user;
    (void)v;
    a->timer = vow_future_unref(a->timer);
    answer_give(a, a->code);
    return vow_ok(vow_nothing());
}

static inline vow_next answer_dropped(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    return vow_ok(vow_nothing());
}

static inline void answer_later(struct answer *a)
{
    struct answer **at = &a->f->held;
    while (*at != NULL)
        at = &(*at)->next;
    *at = a;
    if (a->fate == FATE_HELD)
        return;
    vow_future *delay = vow_delay(a->f->loop, a->delay_ms);
    a->timer = vow_then_drop(delay, answer_due, answer_dropped, a);
}

static inline struct answer *answer_new(struct flaky *f, enum step step,
                                        void *user)
{
    struct answer *a = calloc(1, sizeof(*a));
    CHECK(a != NULL);
    a->f = f;
    a->user = user;
    a->fate = FATE_FINE;
    a->delay_ms = f->delay_ms[step];
    f->begun[step]++;
    if (f->fates[step] > 0) {
        a->fate = f->fate[step];
        f->fates[step] -= f->fates[step] < FLAKY_ALWAYS;
    }
    if (f->cut) {
        a->fate = FATE_UNSURE_NOT;
        a->delay_ms = FLAKY_TIMEOUT_MS;
    }
    return a;
}

/* Whether the step goes on to the store; else it is answered. */
static inline bool answer_begins(struct answer *a)
{
    if (!a->f->closed && a->fate != FATE_REFUSED && a->fate != FATE_BUSY &&
        a->fate != FATE_UNSURE_NOT)
        return true;
    a->code = a->f->closed                 ? VOW_ECLOSED
              : a->fate == FATE_UNSURE_NOT ? VOW_EUNSURE
              : a->fate == FATE_BUSY       ? VOW_EAGAIN
                                           : VOW_ESTORE;
    if (a->delay_ms > 0 && !a->f->closed)
        answer_later(a);
    else
        answer_give(a, a->code);
    return false;
}

/* The store has answered. */
static inline void answer_came(struct answer *a, int code)
{
    a->code = a->fate == FATE_UNSURE_DONE && code == 0 ? VOW_EUNSURE : code;
    if (code != VOW_ECLOSED && (a->delay_ms > 0 || a->fate == FATE_HELD))
        answer_later(a);
    else
        answer_give(a, a->code);
}

static inline const char *text_copy(char *to, const char *from)
{
    (void)strncpy(to, from == NULL ? "" : from, VOW_LABEL_MAX);
    return to;
}

static inline void records_came(int code, const vow_record *records, size_t n,
                                void *user)
{
    struct answer *a = user;
    a->n = n;
    a->records = calloc(n + 1, sizeof(*a->records));
    a->texts = calloc(n + 1, sizeof(*a->texts));
    CHECK(a->records != NULL && a->texts != NULL);
    for (size_t i = 0; i < n; i++) {
        a->records[i] = records[i];
        (void)vow_bytes_ref(records[i].value);
        a->records[i].label = text_copy(a->texts[i][0], records[i].label);
        a->records[i].runner = text_copy(a->texts[i][1], records[i].runner);
    }
    answer_came(a, code);
}

static inline void chunks_came(int code, vow_bytes *const *chunks, size_t n,
                               uint64_t next, void *user)
{
    struct answer *a = user;
    a->n = n;
    a->go_on = next;
    a->chunks = calloc(n + 1, sizeof(*a->chunks));
    CHECK(a->chunks != NULL);
    for (size_t i = 0; i < n; i++)
        a->chunks[i] = vow_bytes_ref(chunks[i]);
    answer_came(a, code);
}

/* ---- the steps ----------------------------------------------------------- */

#define FLAKY_STEP(kind, call)                                                 \
    struct flaky *f = flaky_of(s);                                             \
    struct answer *a = answer_new(f, (kind), user);                            \
    a->done = done;                                                            \
    if (answer_begins(a))                                                      \
    f->inner->ops->call

static inline void flaky_claim(vow_store *s, const vow_claim_request *ask,
                               vow_records_fn done, void *user)
{
    flaky_of(s)->claims[flaky_of(s)->begun[STEP_CLAIM] % FLAKY_TOKENS] =
        ask->token;
    FLAKY_STEP(STEP_CLAIM, claim(f->inner, ask, records_came, a));
}

static inline void flaky_peek(vow_store *s, const vow_name *names, size_t n,
                              vow_records_fn done, void *user)
{
    FLAKY_STEP(STEP_PEEK, peek(f->inner, names, n, records_came, a));
}

static inline void flaky_pulse(vow_store *s, const vow_hold *holds, size_t n,
                               uint64_t lease_ms, vow_records_fn done,
                               void *user)
{
    FLAKY_STEP(STEP_PULSE,
               pulse(f->inner, holds, n, lease_ms, records_came, a));
}

static inline void flaky_commit(vow_store *s, const vow_commit_request *ask,
                                vow_records_fn done, void *user)
{
    flaky_of(s)->commits[flaky_of(s)->begun[STEP_COMMIT] % FLAKY_TOKENS] =
        ask->hold.token;
    FLAKY_STEP(STEP_COMMIT, commit(f->inner, ask, records_came, a));
}

static inline void flaky_forget(vow_store *s, const vow_name *name,
                                uint64_t epoch, vow_records_fn done, void *user)
{
    FLAKY_STEP(STEP_FORGET, forget(f->inner, name, epoch, records_came, a));
}

static inline void flaky_cancel(vow_store *s, const vow_name *name,
                                vow_records_fn done, void *user)
{
    FLAKY_STEP(STEP_CANCEL, cancel(f->inner, name, records_came, a));
}

static inline void flaky_list(vow_store *s, vow_records_fn done, void *user)
{
    FLAKY_STEP(STEP_LIST, list(f->inner, records_came, a));
}

static inline void flaky_write(vow_store *s, const vow_hold *hold,
                               uint64_t number, vow_bytes *chunk,
                               vow_records_fn done, void *user)
{
    FLAKY_STEP(STEP_WRITE,
               write(f->inner, hold, number, chunk, records_came, a));
}

static inline void flaky_read(vow_store *s, const vow_name *name,
                              uint64_t epoch, uint64_t from, vow_chunks_fn read,
                              void *user)
{
    struct flaky *f = flaky_of(s);
    struct answer *a = answer_new(f, STEP_READ, user);
    a->read = read;
    if (answer_begins(a))
        f->inner->ops->read(f->inner, name, epoch, from, chunks_came, a);
}

/* Places go straight through. */
static inline void flaky_acquire(vow_store *s, const vow_permit_request *ask,
                                 vow_permits_fn done, void *user)
{
    vow_store *inner = flaky_of(s)->inner;
    inner->ops->acquire(inner, ask, done, user);
}

static inline void flaky_give_back(vow_store *s, const vow_permit_hold *hold,
                                   vow_permits_fn done, void *user)
{
    vow_store *inner = flaky_of(s)->inner;
    inner->ops->release(inner, hold, done, user);
}

static inline void flaky_renew(vow_store *s, const vow_permit_hold *holds,
                               size_t n, uint64_t lease_ms, vow_permits_fn done,
                               void *user)
{
    vow_store *inner = flaky_of(s)->inner;
    inner->ops->renew(inner, holds, n, lease_ms, done, user);
}

static inline void flaky_limit(vow_store *s, const vow_name *pool,
                               const vow_pool_limits *limits, const char *label,
                               vow_pools_fn done, void *user)
{
    vow_store *inner = flaky_of(s)->inner;
    inner->ops->limit(inner, pool, limits, label, done, user);
}

static inline void flaky_pools(vow_store *s, vow_pools_fn done, void *user)
{
    vow_store *inner = flaky_of(s)->inner;
    inner->ops->pools(inner, done, user);
}

static inline const char *flaky_explain(vow_store *s)
{
    (void)s;
    return "it does what the test says";
}

static inline vow_future *flaky_close(vow_store *s)
{
    struct flaky *f = flaky_of(s);
    f->closed = true;
    while (f->held != NULL)
        answer_give(f->held, VOW_ECLOSED);
    return f->inner->ops->close(f->inner);
}

/* ---- its news ------------------------------------------------------------ */

static inline int flaky_news(const struct flaky *f)
{
    return f->deaf || f->cut ? 0 : f->doubled ? 2 : 1;
}

static inline void flaky_on_record(const vow_record *r, void *user)
{
    struct flaky *f = user;
    for (int n = flaky_news(f); n > 0; n--)
        f->events.on_record(r, f->events.user);
}

static inline void flaky_on_cancel(const vow_name *name, void *user)
{
    struct flaky *f = user;
    for (int n = flaky_news(f); n > 0; n--)
        f->events.on_cancel(name, f->events.user);
}

static inline void flaky_on_chunks(const vow_name *name, void *user)
{
    struct flaky *f = user;
    for (int n = flaky_news(f); n > 0; n--)
        f->events.on_chunks(name, f->events.user);
}

static inline void flaky_on_place(const vow_token *token, void *user)
{
    struct flaky *f = user;
    for (int n = flaky_news(f); n > 0; n--)
        f->events.on_permit(token, f->events.user);
}

static inline void flaky_on_doubt(void *user)
{
    struct flaky *f = user;
    for (int n = flaky_news(f); n > 0; n--)
        f->events.on_doubt(f->events.user);
}

static inline void flaky_listen(vow_store *s, const vow_store_events *events)
{
    struct flaky *f = flaky_of(s);
    f->events = *events;
    f->inner->ops->listen(f->inner,
                          &(vow_store_events){.on_record = flaky_on_record,
                                              .on_cancel = flaky_on_cancel,
                                              .on_chunks = flaky_on_chunks,
                                              .on_permit = flaky_on_place,
                                              .on_doubt = flaky_on_doubt,
                                              .user = f});
}

/* ---- for tests ----------------------------------------------------------- */

static inline void flaky_init(struct flaky *f, vow_loop *loop, vow_store *inner)
{
    *f = (struct flaky){.inner = inner, .loop = loop, .ops = *inner->ops};
    f->ops.listen = flaky_listen;
    f->ops.claim = flaky_claim;
    f->ops.peek = flaky_peek;
    f->ops.pulse = flaky_pulse;
    f->ops.commit = flaky_commit;
    f->ops.forget = flaky_forget;
    f->ops.cancel = flaky_cancel;
    f->ops.list = flaky_list;
    f->ops.write = flaky_write;
    f->ops.read = flaky_read;
    f->ops.acquire = flaky_acquire;
    f->ops.release = flaky_give_back;
    f->ops.renew = flaky_renew;
    f->ops.limit = flaky_limit;
    f->ops.pools = flaky_pools;
    f->ops.explain = flaky_explain;
    f->ops.close = flaky_close;
    f->store.ops = &f->ops;
}

/* The next `n` steps of a kind end so. */
static inline void flaky_next(struct flaky *f, enum step step, enum fate fate,
                              int n)
{
    f->fate[step] = fate;
    f->fates[step] = n;
}

/* All steps from now on; FATE_FINE: it works again. */
static inline void flaky_all(struct flaky *f, enum fate fate)
{
    for (int i = 0; i < STEPS; i++)
        flaky_next(f, (enum step)i, fate, fate == FATE_FINE ? 0 : FLAKY_ALWAYS);
}

/* What is held goes out now, in its order, and nothing more is held. */
static inline void flaky_release(struct flaky *f)
{
    for (int i = 0; i < STEPS; i++)
        if (f->fate[i] == FATE_HELD)
            f->fates[i] = 0;
    while (f->held != NULL)
        answer_give(f->held, f->held->code);
}

#endif
