/* SPDX-License-Identifier: MIT */
/* fake_backing.h - a backing with a limit of its own, for tests of what stands
 * before it.
 *
 *     struct fake k;
 *     fake_init(&k, 1);
 *     load_open(&l, VOW_GATE(.backing = &k.backing));
 *     fake_open(&k, l.w->loop);
 *
 * It grants in order of arrival, at once while there is room. With `late` it
 * grants nothing until fake_grant(); with `refuse` it rejects with that code.
 * Requests have numbers, from 0; fences are the numbers and one. */
#ifndef TEST_FAKE_BACKING_H
#define TEST_FAKE_BACKING_H

#include "harness.h"
#include "world.h"

#include <string.h>

enum { FAKE_TICKETS = 600 };

struct fake;

struct fake_ticket {
    vow_grant grant;
    struct fake *of;
    vow_deferred *out; /* while it waits */
    vow_deferred *end; /* of `lost` */
    uint32_t weight;
    char key[8];
    const char *site;
    bool granted, canceled, started, released, freed;
};

struct fake {
    vow_backing backing;
    vow_loop *loop;
    uint32_t limit;
    bool late;
    bool loses;  /* its grants can be lost */
    int refuse;  /* a code */
    bool absent; /* it answers with no future at all */
    bool empty;  /* it answers with a value that is no grant */
    int refs;
    size_t n; /* asked */
    uint32_t held, most, waiting, started, released, freed;
    struct fake_ticket tickets[FAKE_TICKETS];
};

static inline void fake_fill(struct fake *k);

static inline void fake_release(vow_grant *g)
{
    struct fake_ticket *t = (struct fake_ticket *)(void *)g;
    CHECK(t->granted);
    CHECK(!t->released);
    t->released = true;
    if (t->end != NULL)
        (void)vow_resolve(t->end, vow_nothing()); /* unless it is lost */
    t->of->released++;
    t->of->held -= t->weight;
    fake_fill(t->of);
}

static inline void fake_started(vow_grant *g)
{
    struct fake_ticket *t = (struct fake_ticket *)(void *)g;
    CHECK(t->granted);
    CHECK(!t->started);
    CHECK(!t->released);
    t->started = true;
    t->of->started++;
}

static inline void fake_free(vow_grant *g)
{
    struct fake_ticket *t = (struct fake_ticket *)(void *)g;
    CHECK(t->released);
    CHECK(!t->freed);
    t->freed = true;
    t->of->freed++;
    vow_deferred_unref(t->end);
    vow_future_unref(g->lost);
}

static inline void fake_answer(struct fake_ticket *t)
{
    vow_deferred *out = t->out;
    t->out = NULL;
    t->granted = true;
    t->of->held += t->weight;
    t->of->waiting--;
    if (t->of->held > t->of->most)
        t->of->most = t->of->held;
    if (t->of->loses)
        t->grant.lost = vow_promise(t->of->loop, &t->end);
    (void)vow_resolve_drop(out, vow_grant_value(&t->grant));
}

/* Grant a request that waits, whatever the limit. */
static inline void fake_grant(struct fake *k, size_t i)
{
    CHECK(i < k->n);
    CHECK(k->tickets[i].out != NULL);
    fake_answer(&k->tickets[i]);
}

/* What is held is lost. */
static inline void fake_lose(struct fake *k, size_t i)
{
    CHECK(vow_reject_code(k->tickets[i].end, VOW_ELOST, "taken away"));
}

static inline void fake_fill(struct fake *k)
{
    for (size_t i = 0; !k->late && i < k->n; i++) {
        struct fake_ticket *t = &k->tickets[i];
        if (t->out == NULL)
            continue;
        if (k->held + t->weight > k->limit)
            return;
        fake_answer(t);
    }
}

static inline void fake_cancel(vow_error *why, void *ticket)
{
    struct fake_ticket *t = ticket;
    vow_deferred *out = t->out;
    t->out = NULL;
    t->canceled = true;
    t->of->waiting--;
    fake_fill(t->of);
    (void)vow_reject_drop(out, vow_error_ref(why));
}

static inline vow_future *fake_acquire(const vow_backing *b, const char *site,
                                       const char *key, uint32_t weight)
{
    struct fake *k = (struct fake *)(uintptr_t)b;
    CHECK(k->n < FAKE_TICKETS);
    struct fake_ticket *t = &k->tickets[k->n];
    if (k->absent || k->empty || k->refuse < 0)
        k->n++;
    if (k->absent)
        return NULL;
    if (k->empty)
        return vow_resolved(k->loop, vow_int(1));
    if (k->refuse < 0)
        return vow_refused(k->loop, k->refuse, "not you");
    *t = (struct fake_ticket){.of = k, .weight = weight, .site = site};
    if (key != NULL)
        memcpy(t->key, key, strlen(key) + 1);
    t->grant.release = fake_release;
    t->grant.free = fake_free;
    t->grant.started = fake_started;
    t->grant.fence = k->n + 1;
    vow_future *f = vow_promise(k->loop, &t->out);
    if (vow_state_of(f) != VOW_PENDING) { /* no memory */
        t->out = vow_deferred_unref(t->out);
        return f;
    }
    vow_on_cancel_now(t->out, fake_cancel, t);
    k->n++;
    k->waiting++;
    fake_fill(k);
    return f;
}

static inline void fake_ref(const vow_backing *b)
{
    ((struct fake *)(uintptr_t)b)->refs++;
}

static inline void fake_unref(const vow_backing *b)
{
    CHECK(((struct fake *)(uintptr_t)b)->refs-- > 0);
}

static inline void fake_init(struct fake *k, uint32_t limit)
{
    memset(k, 0, sizeof(*k));
    k->backing.acquire = fake_acquire;
    k->backing.ref = fake_ref;
    k->backing.unref = fake_unref;
    k->limit = limit;
    k->loses = true;
}

static inline void fake_open(struct fake *k, vow_loop *loop)
{
    k->loop = loop;
}

/* All it gave came back, nobody waits for it, and nobody knows it. */
static inline void fake_check_unused(const struct fake *k)
{
    CHECK_UINT_EQ(k->held, 0);
    CHECK_UINT_EQ(k->waiting, 0);
    CHECK_UINT_EQ(k->freed, k->released);
    CHECK_INT_EQ(k->refs, 0);
}

#endif
