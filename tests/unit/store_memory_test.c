/* SPDX-License-Identifier: MIT */
/* store_memory_test.c - the store in memory beside the contract: opening by
 * address, letters and closing, what is thrown away, and lack of memory. */
#include "fault.h"
#include "store_memory_rig.h"
#include "world.h"
#include <string.h>

/* ---- by address ---------------------------------------------------------- */

TEST(store, memory_is_opened_by_its_address)
{
    struct world w;
    world_open(&w);
    VOW_AUTO(vow_future) f = vow_store_open(w.loop, "memory:");
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), 0);
    vow_store *s = vow_as_ptr(vow_get(f));
    CHECK_STR_EQ(s->ops->kind, "memory");
    CHECK_UINT_EQ(s->ops->flags,
                  VOW_STORE_LOCAL | VOW_STORE_STARTS | VOW_STORE_REFRESHES);
    CHECK_UINT_EQ(s->ops->modes, 7);
    CHECK_UINT_EQ(claim(s, 1, 1).status, VOW_STATUS_OWNED);
    close_store(w.loop, s);
    f = vow_future_unref(f);
    world_close(&w);
}

TEST(store, an_address_that_is_none_is_refused_with_a_sentence)
{
    static const struct {
        const char *url;
        int code;
        const char *text;
    } cases[] = {
        {"", VOW_EINVAL, "is \"memory:\", \"file:DIR\""},
        {"/tmp/store", VOW_EINVAL, "is \"memory:\", \"file:DIR\""},
        {"memory", VOW_EINVAL, "is \"memory:\", \"file:DIR\""},
        {"http://host/", VOW_EINVAL, "is \"memory:\", \"file:DIR\""},
        {"memory:x", VOW_EINVAL, "nothing comes behind"},
        {"file:", VOW_EINVAL, "a folder comes behind"},
#ifndef VOW_HAVE_REDIS
        {"redis://host", VOW_ENOTSUP, "this build has no store on Redis"},
        {"unix:/socket", VOW_ENOTSUP, "this build has no store on Redis"},
#endif
#ifndef VOW_HAVE_ETCD
        {"etcd://host", VOW_ENOTSUP, "this build has no store on etcd"},
        {"etcds://host", VOW_ENOTSUP, "this build has no store on etcd"},
#endif
    };
    struct world w;
    world_open(&w);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        VOW_AUTO(vow_future) f = vow_store_open(w.loop, cases[i].url);
        CHECK_INT_EQ(vow_loop_run_until(w.loop, f), cases[i].code);
        CHECK(strstr(vow_error_message(vow_error_of(f)), cases[i].text) !=
              NULL);
    }
    world_close(&w);
}

#ifndef VOW_HAVE_SQLITE
TEST(store, a_folder_is_not_in_every_build)
{
    struct world w;
    world_open(&w);
    VOW_AUTO(vow_future) f = vow_store_open(w.loop, "file:/tmp/none");
    CHECK_INT_EQ(vow_loop_run_until(w.loop, f), VOW_ENOTSUP);
    f = vow_future_unref(f);
    world_close(&w);
}
#endif

/* ---- several instances --------------------------------------------------- */

TEST(store_memory, instances_meet_and_the_memory_outlives_its_handle)
{
    struct world w;
    world_open(&w);
    vow_memory *m = open_memory(&w);
    vow_store *a = open_store(&w, m);
    vow_store *b = open_store(&w, m);
    CHECK_UINT_EQ(a->ops->flags, VOW_STORE_STARTS | VOW_STORE_REFRESHES);
    vow_memory_unref(vow_memory_ref(m));
    m = vow_memory_unref(m);
    CHECK(m == NULL);
    CHECK(vow_memory_unref(NULL) == NULL);
    CHECK_UINT_EQ(claim(a, 1, 1).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(claim(b, 1, 2).status, VOW_STATUS_WAITING);
    close_store(w.loop, a);
    CHECK_UINT_EQ(claim(b, 1, 2).status, VOW_STATUS_WAITING);
    world_advance_ms(&w, 10000);
    CHECK_UINT_EQ(claim(b, 1, 2).status, VOW_STATUS_OWNED);
    close_store(w.loop, b);
    world_close(&w);
}

TEST(store_memory, a_memory_that_nobody_used_can_be_dropped)
{
    struct world w;
    world_open(&w);
    vow_memory_unref(open_memory(&w));
    world_close(&w);
}

TEST(store_memory, a_store_can_be_closed_when_it_hears)
{
    struct world w;
    struct heard h = {.records = 0};
    world_open(&w);
    vow_memory *m = open_memory(&w);
    vow_store *a = open_store(&w, m);
    vow_store *b = open_store(&w, m);
    h.close = b;
    hear(b, &h);
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t epoch = claim(a, i, i).epoch;
        (void)claim(b, i, 100 + i);
        (void)commit(a, i, i, epoch, 0);
    }
    world_advance_ms(&w, 0);
    CHECK_UINT_EQ(h.records, 1); /* the others were its letters too */
    close_store(w.loop, a);
    vow_memory_unref(m);
    world_close(&w);
}

TEST(store_memory, many_letters_come_in_several_turns)
{
    struct world w;
    struct heard h = {.records = 0};
    world_open(&w);
    vow_memory *m = open_memory(&w);
    vow_store *a = open_store(&w, m);
    vow_store *b = open_store(&w, m);
    hear(b, &h);
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t epoch = claim(a, i, i).epoch;
        (void)claim(b, i, 10000 + i);
        (void)commit(a, i, i, epoch, i % 2 == 0 ? 0 : 1000);
    }
    CHECK_UINT_EQ(h.records, 0);
    world_advance_ms(&w, 0);
    CHECK_UINT_EQ(h.records, 1000);
    close_store(w.loop, a);
    close_store(w.loop, b);
    vow_memory_unref(m);
    world_close(&w);
}

TEST(store_memory, who_does_not_listen_is_not_harmed)
{
    struct world w;
    world_open(&w);
    vow_memory *m = open_memory(&w);
    vow_store *a = open_store(&w, m);
    vow_store *b = open_store(&w, m);
    uint64_t epoch = claim(a, 1, 1).epoch;
    (void)claim(b, 1, 2);
    (void)commit(a, 1, 1, epoch, 0);
    world_advance_ms(&w, 0);
    close_store(w.loop, a);
    close_store(w.loop, b);
    vow_memory_unref(m);
    world_close(&w);
}

TEST(store_memory, large_batches_are_answered)
{
    enum { N = 100 };
    struct world w;
    struct said said = {.n = 0};
    static vow_hold holds[N];
    static vow_name names[N];
    world_open(&w);
    vow_store *s = open_store(&w, NULL);
    for (uint64_t i = 0; i < N; i++) {
        names[i] = name_of(i);
        holds[i] = (vow_hold){.name = name_of(i),
                              .token = token_of(i),
                              .epoch = claim(s, i, i).epoch};
    }
    s->ops->pulse(s, holds, N, 10000, on_said, &said);
    CHECK_UINT_EQ(said.records, N);
    CHECK_UINT_EQ(said.status, VOW_STATUS_OWNED);
    s->ops->peek(s, names, N, on_said, &said);
    CHECK_UINT_EQ(said.records, N);
    CHECK_UINT_EQ(said.status, VOW_STATUS_WAITING);
    s->ops->list(s, on_said, &said);
    CHECK_UINT_EQ(said.records, N);
    CHECK_UINT_EQ(said.n, 3);
    close_store(w.loop, s);
    world_close(&w);
}

TEST(store_memory, results_that_are_over_go_without_a_step)
{
    struct world w;
    world_open(&w);
    vow_store *s = open_store(&w, NULL);
    uint64_t epoch = claim(s, 1, 1).epoch; /* what stays was made now */
    (void)commit(s, 1, 1, epoch, 0);
    for (uint64_t i = 0; i < 2000; i++) {
        epoch = claim(s, i, i).epoch;
        (void)commit(s, i, i, epoch, 5000);
    }
    size_t full = w.alloc.live_bytes;
    world_advance_ms(&w, 5000);
    world_advance_ms(&w, 60000);
    CHECK(w.alloc.live_bytes < full / 4);
    vow_loop_stats st;
    vow_loop_stats_get(w.loop, &st);
    CHECK_UINT_EQ(st.timers, 0); /* it keeps no loop running */
    close_store(w.loop, s);
    world_close(&w);
}

/* ---- memory -------------------------------------------------------------- */

static void on_places(int code, const vow_pool_permit *places, size_t n,
                      void *user)
{
    (void)places;
    (void)n;
    *(int *)user = code;
}

static void on_pools(int code, const vow_pool_info *pools, size_t n, void *user)
{
    (void)pools;
    (void)n;
    *(int *)user = code;
}

static void check_rc(struct world *w, int rc)
{
    CHECK(rc == 0 || fault_explains(w, rc));
}

static void use_all(struct world *w, vow_store *a, vow_store *b)
{
    int rc = 0;
    struct said said = {.n = 0};
    vow_pool_limits limits = {.concurrent = 1, .rate = 3, .window_us = 1000};
    vow_permit_hold hold = {.pool = name_of(7), .token = token_of(1)};
    struct said own = claim(a, 1, 1);
    check_rc(w, own.code);
    check_rc(w, claim(b, 1, 2).code);
    check_rc(w, commit(a, 1, 1, own.epoch, 0).code);
    a->ops->list(a, on_said, &said);
    check_rc(w, said.code);
    vow_permit_request ask = {.pool = name_of(7),
                              .limits_of = name_of(8),
                              .token = token_of(1),
                              .weight = 1,
                              .lease_ms = 1000,
                              .limits = limits,
                              .label = "pool"};
    a->ops->acquire(a, &ask, on_places, &rc);
    check_rc(w, rc);
    ask.token = token_of(2);
    b->ops->acquire(b, &ask, on_places, &rc);
    check_rc(w, rc);
    a->ops->release(a, &hold, on_places, &rc);
    CHECK_INT_EQ(rc, 0);
    a->ops->pools(a, on_pools, &rc);
    check_rc(w, rc);
    a->ops->limit(a, &ask.limits_of, &limits, "label", on_pools, &rc);
    check_rc(w, rc);
}

FAULT_SWEEP(store_memory, survives_every_fault, FAULT_ALLOC)
{
    struct vow_alloc alloc = test_alloc_hook(&w->alloc);
    struct heard h = {.records = 0};
    vow_memory *m = NULL;
    vow_store *a = NULL;
    vow_store *b = NULL;
    int rc = vow_memory_new(&alloc, &m);
    check_rc(w, rc);
    if (rc == 0) {
        check_rc(w, vow_store_memory_new(w->loop, m, &a));
        check_rc(w, vow_store_memory_new(w->loop, m, &b));
    }
    if (a != NULL && b != NULL) {
        hear(b, &h);
        use_all(w, a, b);
        world_advance_ms(w, 10);
    }
    if (a != NULL)
        vow_future_unref(a->ops->close(a));
    if (b != NULL)
        vow_future_unref(b->ops->close(b));
    vow_memory_unref(m);
}

FAULT_SWEEP(store, opening_survives_every_fault, FAULT_ALLOC)
{
    VOW_AUTO(vow_future) f = vow_store_open(w->loop, "memory:");
    int rc = vow_loop_run_until(w->loop, f);
    check_rc(w, rc);
    vow_store *s = vow_as_ptr(vow_get(f));
    CHECK((s != NULL) == (rc == 0));
    if (s != NULL)
        vow_future_unref(s->ops->close(s));
}
