/* SPDX-License-Identifier: MIT */
/* authority_threads_test.c - one authority, loops of several threads: leaving,
 * closing and ending at any moment, and values of all kinds. */
#include "share_rig.h"

#include <stdatomic.h>

enum { LOOPS = 4, NAMES = 3, ROUNDS = 300 };

struct crew {
    struct world w; /* the first handle's */
    vow_authority *first;
    vow_name name;
    atomic_int runs;
    atomic_int live[NAMES];
    _Atomic uint64_t fence;
    atomic_int joined, gone;
    atomic_int runner; /* the member that works; -1: none */
    int kind;
    void *(*main)(void *arg);
    uint64_t seed;
};

struct member {
    struct crew *c;
    int number;
    vow_loop *loop;
    vow_authority *a;
    uint64_t random;
};

/* A piece of work that ends by itself after a while. */
struct piece {
    struct member *m;
    int name;
    vow_deferred *end;
};

static void pause_ms(vow_loop *loop, uint64_t ms)
{
    CHECK(loop != NULL);
    VOW_AUTO(vow_future) f = vow_delay(loop, ms);
    CHECK_INT_EQ(vow_loop_run_until(loop, f), 0);
}

static void crew_open(struct crew *c)
{
    *c = (struct crew){.runner = -1, .name = vow_name_of("crew")};
    world_open_real(&c->w);
    VOW_AUTO(vow_future)
    f = vow_authority_open(
        c->w.loop, "memory:",
        VOW_AUTHORITY(.flags = VOW_AUTHORITY_THREAD, .lease_ms = 60000));
    CHECK_INT_EQ(vow_loop_run_until(c->w.loop, f), 0);
    c->first = vow_authority_ref(vow_as_ptr(vow_get(f)));
}

static void crew_close(struct crew *c)
{
    VOW_AUTO(vow_future) f = vow_authority_close(c->first);
    CHECK_INT_EQ(vow_loop_run_until(c->w.loop, f), 0);
    f = vow_future_unref(f);
    vow_authority_unref(c->first);
    world_close(&c->w);
}

static void crew_run(struct crew *c, void *(*main)(void *arg))
{
    pthread_t t[LOOPS];
    struct member m[LOOPS];
    for (int i = 0; i < LOOPS; i++) {
        m[i] = (struct member){
            .c = c, .number = i, .random = test_seed() + (uint64_t)i};
        CHECK_INT_EQ(pthread_create(&t[i], NULL, main, &m[i]), 0);
    }
    for (int i = 0; i < LOOPS; i++)
        CHECK_INT_EQ(pthread_join(t[i], NULL), 0);
}

static void member_open(struct member *m)
{
    CHECK_INT_EQ(vow_loop_new(NULL, &m->loop), 0);
    CHECK_INT_EQ(vow_authority_join(m->loop, m->c->first, &m->a), 0);
    CHECK_PTR_EQ(vow_authority_loop(m->a), m->loop);
    atomic_fetch_add(&m->c->joined, 1);
}

static void member_leave(struct member *m)
{
    VOW_AUTO(vow_future) f = vow_authority_close(m->a);
    CHECK_INT_EQ(vow_loop_run_until(m->loop, f), 0);
    m->a = vow_authority_unref(m->a);
}

static void member_close(struct member *m)
{
    if (m->a != NULL)
        member_leave(m);
    CHECK_INT_EQ(vow_loop_close(m->loop), 0);
}

/* ---- the one who works goes ---------------------------------------------- */

static void stop(vow_error *why, void *user)
{
    struct piece *p = user;
    int me = p->m->number; /* another may work already */
    (void)atomic_compare_exchange_strong(&p->m->c->runner, &me, -1);
    (void)vow_reject(p->end, vow_error_ref(why));
}

static vow_future *begin(vow_lease *lease, void *arg)
{
    struct piece *p = arg;
    struct crew *c = p->m->c;
    CHECK(p->end == NULL);
    CHECK(vow_lease_fence(lease) >
          atomic_exchange(&c->fence, vow_lease_fence(lease)));
    atomic_fetch_add(&c->runs, 1);
    vow_future *f = vow_promise(p->m->loop, &p->end);
    vow_on_cancel(p->end, stop, p);
    atomic_store(&c->runner, p->m->number);
    return f;
}

static void finish(struct piece *p, const char *text)
{
    CHECK(vow_resolve(p->end, text_value(p->m->loop, text)));
}

/* The first two who work go: one closes its handle, one its loop. The third
 * ends the work. */
static void *goes_main(void *arg)
{
    struct member *m = arg;
    struct piece p = {.m = m};
    member_open(m);
    while (atomic_load(&m->c->joined) < LOOPS)
        pause_ms(m->loop, 1);
    VOW_AUTO(vow_future) f = vow_share(m->a, &m->c->name, begin, &p, NULL);
    while (vow_state_of(f) == VOW_PENDING) {
        pause_ms(m->loop, 1);
        if (atomic_load(&m->c->runner) != m->number)
            continue;
        pause_ms(m->loop, 20); /* the others wait by now */
        const int gone = atomic_fetch_add(&m->c->gone, 1);
        if (gone == 0) {
            member_leave(m);
        } else if (gone == 1) {
            CHECK_INT_EQ(vow_loop_close(m->loop), 0);
            m->loop = NULL;
        } else {
            finish(&p, "third");
            CHECK_INT_EQ(vow_loop_run_until(m->loop, f), 0);
        }
        if (gone < 2)
            CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ECLOSED);
    }
    if (vow_error_code(vow_error_of(f)) == 0)
        CHECK_TEXT(f, "third");
    f = vow_future_unref(f);
    vow_deferred_unref(p.end);
    if (m->loop != NULL)
        member_close(m);
    else
        vow_authority_unref(m->a);
    return NULL;
}

TEST(authority_threads, when_the_one_who_works_goes_another_loop_takes_over)
{
    struct crew c;
    crew_open(&c);
    crew_run(&c, goes_main);
    CHECK_INT_EQ(atomic_load(&c.runs), 3);
    CHECK_UINT_EQ(vow_authority_stats_get(c.first).waiting, 0);
    crew_close(&c);
}

static void ignore(vow_error *why, void *user)
{
    (void)why;
    (void)user;
}

static vow_future *stubborn(vow_lease *lease, void *arg)
{
    struct piece *p = arg;
    (void)lease;
    atomic_fetch_add(&p->m->c->runs, 1);
    vow_future *f = vow_promise(p->m->loop, &p->end);
    vow_on_cancel(p->end, ignore, p);
    return f;
}

TEST(authority_threads, the_close_does_not_wait_for_work_that_does_not_stop)
{
    for (int how = 0; how < 3; how++) {
        struct crew c;
        crew_open(&c);
        struct member m = {.c = &c, .loop = c.w.loop};
        struct piece p = {.m = &m};
        VOW_AUTO(vow_future)
        f = vow_share(c.first, &c.name, stubborn, &p, NULL);
        while (atomic_load(&c.runs) == 0)
            pause_ms(c.w.loop, 1);
        VOW_AUTO(vow_future) closed = NULL;
        if (how == 0)
            closed = vow_authority_close(c.first);
        if (how <= 1)
            vow_authority_unref(c.first);
        if (how == 0)
            CHECK_INT_EQ(vow_loop_run_until(c.w.loop, closed), 0);
        else
            CHECK_INT_EQ(vow_loop_close(c.w.loop), 0);
        if (how == 0)
            CHECK_INT_EQ(vow_loop_run_until(c.w.loop, f), VOW_ECLOSED);
        CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ECLOSED);
        f = vow_future_unref(f);
        closed = vow_future_unref(closed);
        vow_deferred_unref(p.end);
        if (how == 2)
            vow_authority_unref(c.first);
        if (how == 0)
            world_turn(&c.w), world_close(&c.w);
        else
            test_alloc_fini(TEST_HERE, &c.w.alloc);
    }
}

/* ---- leaving at random --------------------------------------------------- */

static void short_stop(vow_error *why, void *user)
{
    struct piece *p = user;
    if (p->end != NULL) {
        atomic_fetch_sub(&p->m->c->live[p->name], 1);
        (void)vow_reject_drop(p->end, vow_error_ref(why));
        p->end = NULL;
    }
}

static vow_next short_end(vow_value v, void *user)
{
    struct piece *p = user;
    (void)v;
    if (p->end != NULL) {
        atomic_fetch_sub(&p->m->c->live[p->name], 1);
        (void)vow_resolve_drop(p->end, text_value(p->m->loop, "short"));
        p->end = NULL;
    }
    return vow_ok(vow_nothing());
}

static vow_future *short_work(vow_lease *lease, void *arg)
{
    struct piece *p = arg;
    struct crew *c = p->m->c;
    (void)lease;
    CHECK_INT_EQ(atomic_fetch_add(&c->live[p->name], 1), 0);
    atomic_fetch_add(&c->runs, 1);
    vow_future *f = vow_promise(p->m->loop, &p->end);
    vow_on_cancel(p->end, short_stop, p);
    const uint64_t ms = test_random(&p->m->random) % 3;
    CHECK_INT_EQ(vow_done(vow_delay(p->m->loop, ms), short_end, NULL, p), 0);
    return f;
}

static void short_round(struct member *m, struct piece *p)
{
    vow_name name = vow_name_of(p->name == 0 ? "0" : p->name == 1 ? "1" : "2");
    const uint64_t how = test_random(&m->random) % 4;
    VOW_AUTO(vow_future)
    f = vow_share(m->a, &name, short_work, p,
                  VOW_SHARE(.deadline_ms = how == 0 ? 1 : 0));
    VOW_AUTO(vow_future) g = vow_share(m->a, &name, short_work, p, NULL);
    if (how == 1)
        (void)vow_cancel(g, NULL);
    if (how <= 2)
        pause_ms(m->loop, test_random(&m->random) % 2);
    if (how == 2) {
        (void)vow_cancel(f, NULL);
        (void)vow_cancel(g, NULL);
    }
    const int rc = vow_loop_run_until(m->loop, f);
    CHECK(rc == 0 || (rc == VOW_ETIMEDOUT && how == 0) ||
          (rc == VOW_ECANCELED && how == 2));
    const int other = vow_loop_run_until(m->loop, g);
    CHECK(other == 0 || (other == VOW_ECANCELED && how >= 1 && how <= 2));
}

static void *short_main(void *arg)
{
    struct member *m = arg;
    struct piece p[NAMES];
    for (int i = 0; i < NAMES; i++)
        p[i] = (struct piece){.m = m, .name = i};
    member_open(m);
    for (int i = 0; i < ROUNDS; i++) {
        short_round(m, &p[test_random(&m->random) % NAMES]);
        for (int k = 0; k < NAMES; k++)
            while (p[k].end != NULL) /* what is closed is not waited for */
                pause_ms(m->loop, 1);
        if (test_random(&m->random) % 50 == 0) { /* come back */
            member_leave(m);
            CHECK_INT_EQ(vow_authority_join(m->loop, m->c->first, &m->a), 0);
        }
    }
    member_leave(m);
    pause_ms(m->loop, 5);
    member_close(m);
    return NULL;
}

TEST(authority_threads, leaving_at_random_leaves_nobody_behind)
{
    struct crew c;
    crew_open(&c);
    crew_run(&c, short_main);
    for (int i = 0; i < NAMES; i++)
        CHECK_INT_EQ(atomic_load(&c.live[i]), 0);
    CHECK(atomic_load(&c.runs) > 0);
    for (int i = 0; i < 100 && vow_authority_stats_get(c.first).names > 0; i++)
        pause_ms(c.w.loop, 10);
    CHECK_UINT_EQ(vow_authority_stats_get(c.first).names, 0);
    crew_close(&c);
}

/* ---- values -------------------------------------------------------------- */

static atomic_int destroyed;
static void destroy(void *ptr)
{
    (void)ptr;
    atomic_fetch_add(&destroyed, 1);
}

static vow_future *value_work(vow_lease *lease, void *arg)
{
    struct member *m = arg;
    vow_value v = vow_nothing();
    (void)lease;
    atomic_fetch_add(&m->c->runs, 1);
    switch (m->c->kind) {
    case VOW_INT:
        v = vow_int(-5);
        break;
    case VOW_REAL:
        v = vow_real(0.25);
        break;
    case VOW_PTR:
        v = vow_ptr(&destroyed);
        break;
    case VOW_OWNED:
        v = vow_own(&destroyed, destroy);
        break;
    case VOW_BYTES:
        v = text_value(m->loop, "bytes");
        break;
    case VOW_LIST:
        CHECK_INT_EQ(vow_list_new(m->loop, NULL, 0, &v), 0);
        break;
    default:
        break;
    }
    return vow_resolved(m->loop, v);
}

static void check_value(int kind, vow_value v)
{
    CHECK_INT_EQ(vow_kind_of(v), kind);
    if (kind == VOW_INT)
        CHECK_INT_EQ(vow_as_int(v), -5);
    if (kind == VOW_REAL)
        CHECK(vow_as_real(v) > 0.2 && vow_as_real(v) < 0.3);
    if (kind == VOW_PTR || kind == VOW_OWNED)
        CHECK_PTR_EQ(vow_as_ptr(v), &destroyed);
    if (kind == VOW_BYTES)
        CHECK_UINT_EQ(vow_bytes_size(vow_as_bytes(v)), 5);
}

/* Either a loop gets the value, or all of them are told that it cannot go. */
static void *value_main(void *arg)
{
    struct member *m = arg;
    member_open(m);
    while (atomic_load(&m->c->joined) < LOOPS)
        pause_ms(m->loop, 1);
    for (int i = 0; i < 3; i++) {
        VOW_AUTO(vow_future)
        f = vow_share(m->a, &m->c->name, value_work, m,
                      VOW_SHARE(.ttl_ms = 60000, .fail_ttl_ms = 60000));
        const int rc = vow_loop_run_until(m->loop, f);
        if (rc == 0)
            check_value(m->c->kind, vow_get(f));
        else
            CHECK_INT_EQ(rc, VOW_EINVAL);
        atomic_fetch_or(&m->c->gone, rc == 0 ? 1 : 2);
    }
    member_close(m);
    return NULL;
}

TEST(authority_threads, a_value_of_any_kind_goes_to_all_or_to_none)
{
    for (int kind = VOW_NOTHING; kind <= VOW_LIST; kind++) {
        struct crew c;
        atomic_store(&destroyed, 0);
        crew_open(&c);
        c.kind = kind;
        crew_run(&c, value_main);
        CHECK_INT_EQ(atomic_load(&c.runs), 1);
        CHECK(atomic_load(&c.gone) == 1 || atomic_load(&c.gone) == 2);
        if (kind == VOW_NOTHING || kind == VOW_INT || kind == VOW_REAL ||
            kind == VOW_BYTES || kind == VOW_PTR)
            CHECK_INT_EQ(atomic_load(&c.gone), 1);
        crew_close(&c);
        CHECK_INT_EQ(atomic_load(&destroyed), kind == VOW_OWNED);
    }
}

/* ---- by hand ------------------------------------------------------------ */

struct hands {
    struct member *m;
    vow_lease *lease;
};

static void take(vow_lease *lease, void *user)
{
    struct hands *h = user;
    CHECK(h->lease == NULL);
    h->lease = vow_lease_ref(lease);
}

static bool decide(struct hands *h, uint64_t how)
{
    vow_lease *l = h->lease;
    h->lease = NULL;
    if (l == NULL)
        return false;
    if (how == 0)
        (void)vow_lease_abandon(l);
    else if (how == 1)
        (void)vow_lease_notify(l, vow_int(1));
    else
        (void)vow_lease_resolve(l, text_value(h->m->loop, "by hand"));
    vow_lease_unref(l); /* unsettled: it is given up */
    return how > 1;
}

static void hands_round(struct member *m)
{
    struct hands h = {.m = m};
    const uint64_t how = test_random(&m->random) % 5;
    VOW_AUTO(vow_future)
    f = vow_claim_name(m->a, &m->c->name, take, &h,
                       VOW_SHARE(.deadline_ms = how == 4 ? 1 : 0));
    if (how == 3)
        (void)vow_cancel(f, NULL);
    const int rc = vow_loop_run_until(m->loop, f);
    CHECK(rc == 0 || rc == VOW_ECANCELED || rc == VOW_ETIMEDOUT);
    if (rc != 0)
        return;
    const vow_claim *c = vow_as_ptr(vow_get(f));
    VOW_AUTO(vow_future) result = vow_future_ref(c->result);
    if (c->lease != NULL)
        take(c->lease, &h);
    f = vow_future_unref(f);
    while (vow_state_of(result) == VOW_PENDING) {
        if (!decide(&h, how) && how == 2 && test_random(&m->random) % 9 == 0)
            (void)vow_cancel(result, NULL);
        pause_ms(m->loop, 1);
        if (how < 2 && h.lease != NULL)
            (void)decide(&h, test_random(&m->random) % 3);
    }
    const int code = vow_error_code(vow_error_of(result));
    CHECK(code == 0 || code == VOW_ECANCELED || code == VOW_ETIMEDOUT);
    if (code == 0)
        CHECK_TEXT(result, "by hand");
    vow_lease_unref(h.lease);
}

static void *hands_main(void *arg)
{
    struct member *m = arg;
    member_open(m);
    for (int i = 0; i < ROUNDS / 3; i++)
        hands_round(m);
    member_close(m);
    return NULL;
}

TEST(authority_threads, leases_by_hand_go_from_loop_to_loop)
{
    struct crew c;
    crew_open(&c);
    crew_run(&c, hands_main);
    crew_close(&c);
}

/* ---- leaving before the work began --------------------------------------- */

static vow_future *counted_work(vow_lease *lease, void *arg)
{
    struct member *m = arg;
    (void)lease;
    atomic_fetch_add(&m->c->runs, 1);
    return vow_resolved(m->loop, vow_nothing());
}

/* The hub's loop takes messages in order: with this result, what was sent
 * before is done, and its answers are in the inboxes. */
static void hub_has_caught_up(struct member *first)
{
    const vow_name other = vow_name_of("other");
    VOW_AUTO(vow_future)
    f = vow_share(first->a, &other, counted_work, first, NULL);
    CHECK_INT_EQ(vow_loop_run_until(first->loop, f), 0);
    CHECK_INT_EQ(atomic_exchange(&first->c->runs, 0), 1);
}

TEST(authority_threads, the_work_of_a_canceled_caller_does_not_begin)
{
    for (int how = 0; how < 4; how++) {
        struct crew c;
        crew_open(&c);
        struct member first = {.c = &c, .loop = c.w.loop, .a = c.first};
        struct member m = {.c = &c, .number = 1};
        vow_share_info info;
        member_open(&m);
        VOW_AUTO(vow_future)
        f = vow_share(m.a, &c.name, counted_work, &m,
                      VOW_SHARE(.info = how % 2 == 1 ? &info : NULL));
        hub_has_caught_up(&first);
        /* the message that begins the work is in the inbox of m.loop */
        CHECK(vow_cancel(f, NULL));
        if (how < 2)
            pause_ms(m.loop, 1);
        else
            member_leave(&m);
        CHECK_INT_EQ(atomic_load(&c.runs), 0);
        VOW_AUTO(vow_future)
        next = vow_share(c.first, &c.name, counted_work, &first, NULL);
        CHECK_INT_EQ(vow_loop_run_until(c.w.loop, next), 0);
        CHECK_INT_EQ(atomic_load(&c.runs), 1);
        f = vow_future_unref(f);
        next = vow_future_unref(next);
        member_close(&m);
        crew_close(&c);
    }
}

static void count_lease(vow_lease *lease, void *user)
{
    struct member *m = user;
    (void)lease; /* not kept: abandoned */
    atomic_fetch_add(&m->c->runs, 1);
}

TEST(authority_threads, a_lease_does_not_reach_a_canceled_caller)
{
    struct crew c;
    crew_open(&c);
    struct member first = {.c = &c, .loop = c.w.loop, .a = c.first};
    struct hands h = {.m = &first};
    struct member m = {.c = &c, .number = 1};
    member_open(&m);
    VOW_AUTO(vow_future) f = vow_claim_name(c.first, &c.name, take, &h, NULL);
    CHECK_INT_EQ(vow_loop_run_until(c.w.loop, f), 0);
    const vow_claim *works = vow_as_ptr(vow_get(f));
    take(works->lease, &h);
    VOW_AUTO(vow_future)
    g = vow_claim_name(m.a, &c.name, count_lease, &m, NULL);
    CHECK_INT_EQ(vow_loop_run_until(m.loop, g), 0);
    const vow_claim *waits = vow_as_ptr(vow_get(g));
    CHECK(waits->lease == NULL);
    VOW_AUTO(vow_future) result = vow_future_ref(waits->result);
    CHECK(vow_cancel(works->result, NULL)); /* not to get the lease again */
    (void)decide(&h, 0);
    hub_has_caught_up(&first);
    /* the lease is in the inbox of m.loop */
    CHECK(vow_cancel(result, NULL));
    pause_ms(m.loop, 1);
    CHECK_INT_EQ(atomic_load(&c.runs), 0);
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    result = vow_future_unref(result);
    member_close(&m);
    crew_close(&c);
}

/* ---- joining ------------------------------------------------------------- */

TEST(authority_threads, an_authority_at_home_on_a_loop_cannot_be_joined)
{
    struct rig r;
    struct world other;
    vow_authority *a = NULL;
    rig_open(&r, 1);
    world_open(&other);
    CHECK_INT_EQ(vow_authority_join(other.loop, r.at[0], &a), VOW_EINVAL);
    CHECK(a == NULL);
    world_close(&other);
    rig_close(&r);
}

TEST(authority_threads, a_closed_handle_cannot_be_joined)
{
    struct crew c;
    struct world other;
    vow_authority *a = NULL;
    crew_open(&c);
    world_open_real(&other);
    VOW_AUTO(vow_future) f = vow_authority_close(c.first);
    CHECK_INT_EQ(vow_loop_run_until(c.w.loop, f), 0);
    CHECK_INT_EQ(vow_authority_join(other.loop, c.first, &a), VOW_ECLOSED);
    f = vow_future_unref(f);
    vow_authority_unref(c.first);
    world_close(&other);
    world_close(&c.w);
}

/* ---- chunks -------------------------------------------------------------- */

struct listener {
    char text[64];
    vow_share_info info;
};

static void hear(vow_bytes *chunk, void *user)
{
    struct listener *l = user;
    (void)strncat(l->text,
                  chunk == NULL ? "|" : (const char *)vow_bytes_data(chunk),
                  chunk == NULL ? 1 : vow_bytes_size(chunk));
}

static vow_future *telling_work(vow_lease *lease, void *arg)
{
    struct member *m = arg;
    for (int i = 0; i < 5; i++) {
        VOW_AUTO(vow_bytes) chunk = NULL;
        CHECK_INT_EQ(vow_bytes_new(m->loop, &"abcde"[i], 1, &chunk), 0);
        VOW_AUTO(vow_future) f = vow_lease_write(lease, chunk);
    }
    return vow_then_drop(vow_delay(m->loop, 20), NULL, NULL, NULL);
}

static void *telling_main(void *arg)
{
    struct member *m = arg;
    struct listener l = {{0}, {0}};
    member_open(m);
    while (atomic_load(&m->c->joined) < LOOPS)
        pause_ms(m->loop, 1);
    VOW_AUTO(vow_future)
    f = vow_share(m->a, &m->c->name, telling_work, m,
                  VOW_SHARE(.flags = VOW_SHARE_FOLLOW, .on_chunk = hear,
                            .user = &l, .info = &l.info));
    CHECK_INT_EQ(vow_loop_run_until(m->loop, f), 0);
    CHECK_STR_EQ(l.text, l.info.role == VOW_ROLE_RAN ? "" : "abcde");
    f = vow_future_unref(f);
    member_close(m);
    return NULL;
}

TEST(authority_threads, every_loop_hears_every_chunk_in_order)
{
    struct crew c;
    crew_open(&c);
    crew_run(&c, telling_main);
    crew_close(&c);
}
