/* SPDX-License-Identifier: MIT */
/* etcd_grant_test.c - who holds a place and who waits, from keys alone: by
 * hand, against a model, and by processes that judge by what they read earlier.
 */
#include "store/etcd/etcd_grant.h"
#include "world.h"

#include <string.h>

static struct test_alloc memory;

static struct vow__crowd crowd_of(uint32_t concurrent, uint32_t rate,
                                  uint64_t window_us)
{
    struct vow__crowd c;
    test_alloc_init(&memory);
    struct vow_alloc alloc = test_alloc_hook(&memory);
    vow__crowd_init(&c, &alloc);
    c.limits = (vow_pool_limits){concurrent, rate, window_us};
    return c;
}

static void crowd_end(struct vow__crowd *c)
{
    vow__crowd_fini(c);
    test_alloc_fini(TEST_HERE, &memory);
}

static vow_token token_of(uint64_t number)
{
    vow_token t = {.bytes = {0}};
    memcpy(t.bytes, &number, sizeof(number));
    return t;
}

static void add(struct vow__crowd *c, uint64_t number, uint32_t weight)
{
    struct vow__seat s = {.token = token_of(number),
                          .create = number,
                          .mod = number,
                          .lease_ms = 10000,
                          .weight = weight};
    CHECK_INT_EQ(vow__crowd_add(c, &s, NULL, 0), 0);
}

static struct vow__seat *seat(const struct vow__crowd *c, uint64_t number)
{
    vow_token t = token_of(number);
    return vow__crowd_find(c, &t);
}

static void leave(struct vow__crowd *c, uint64_t number)
{
    vow_token t = token_of(number);
    vow__crowd_remove(c, &t);
}

static void toll(struct vow__crowd *c, uint64_t id, uint64_t weight,
                 uint64_t since_us)
{
    CHECK_INT_EQ(
        vow__crowd_charge(c, &(const struct vow__toll){.id = id,
                                                       .mod = id,
                                                       .weight = weight,
                                                       .since_us = since_us}),
        0);
}

static unsigned rank(struct vow__crowd *c, uint64_t number, uint64_t now_us)
{
    vow__crowd_rank(c, now_us);
    return seat(c, number)->rank;
}

/* ---- by hand ------------------------------------------------------------- */

TEST(etcd_grant, who_came_first_holds_whatever_order_keys_have)
{
    struct vow__crowd c = crowd_of(3, 0, 0);
    add(&c, 9, 1);
    add(&c, 7, 1);
    add(&c, 8, 2);
    CHECK_UINT_EQ(rank(&c, 7, 0), VOW__RANK_HELD);
    CHECK_UINT_EQ(seat(&c, 8)->rank, VOW__RANK_HELD);
    CHECK_UINT_EQ(seat(&c, 9)->rank, VOW__RANK_WAITS);
    CHECK_UINT_EQ(seat(&c, 9)->ahead, 0);
    vow_pool_info info;
    vow__crowd_count(&c, 0, &info);
    CHECK_UINT_EQ(info.held, 3);
    CHECK_UINT_EQ(info.holders, 2);
    CHECK_UINT_EQ(info.waiting, 1);
    crowd_end(&c);
}

TEST(etcd_grant, a_heavy_head_is_not_overtaken)
{
    struct vow__crowd c = crowd_of(3, 0, 0);
    add(&c, 1, 2);
    add(&c, 2, 3);
    add(&c, 3, 1);
    CHECK_UINT_EQ(rank(&c, 3, 0), VOW__RANK_WAITS);
    CHECK_UINT_EQ(seat(&c, 3)->ahead, 1);
    leave(&c, 2);
    CHECK_UINT_EQ(rank(&c, 3, 0), VOW__RANK_HELD);
    crowd_end(&c);
}

TEST(etcd_grant, a_mark_holds_under_any_limits)
{
    struct vow__crowd c = crowd_of(1, 0, 0);
    add(&c, 1, 1);
    add(&c, 2, 5);
    seat(&c, 2)->marked = true;
    CHECK_UINT_EQ(rank(&c, 2, 0), VOW__RANK_HELD);
    CHECK_UINT_EQ(seat(&c, 1)->rank, VOW__RANK_WAITS);
    c.limits.rate = 1;
    CHECK_UINT_EQ(rank(&c, 2, 0), VOW__RANK_HELD);
    leave(&c, 2);
    CHECK_UINT_EQ(rank(&c, 1, 0), VOW__RANK_TURN);
    crowd_end(&c);
}

TEST(etcd_grant, who_is_never_allowed_counts_until_its_turn)
{
    struct vow__crowd c = crowd_of(2, 0, 0);
    add(&c, 1, 2);
    add(&c, 2, 1);
    add(&c, 3, 5);
    add(&c, 4, 1);
    CHECK_UINT_EQ(rank(&c, 3, 0), VOW__RANK_WAITS);
    CHECK_UINT_EQ(seat(&c, 4)->ahead, 2);
    leave(&c, 1);
    CHECK_UINT_EQ(rank(&c, 3, 0), VOW__RANK_OUT);
    CHECK_UINT_EQ(seat(&c, 4)->rank, VOW__RANK_HELD);
    vow_pool_info info;
    vow__crowd_count(&c, 0, &info);
    CHECK_UINT_EQ(info.waiting, 0);
    crowd_end(&c);
}

TEST(etcd_grant, who_waits_asks_again_when_a_lease_would_end)
{
    struct vow__crowd c = crowd_of(1, 0, 0);
    add(&c, 1, 1);
    add(&c, 2, 1);
    seat(&c, 1)->lease_ms = 100;
    CHECK_UINT_EQ(rank(&c, 2, 0), VOW__RANK_WAITS);
    CHECK_UINT_EQ(vow__crowd_again_us(&c, seat(&c, 2), 0), 101000);
    seat(&c, 2)->lease_ms = 50; /* before its own is over */
    CHECK_UINT_EQ(rank(&c, 2, 0), VOW__RANK_WAITS);
    CHECK_UINT_EQ(vow__crowd_again_us(&c, seat(&c, 2), 0), 25001);
    seat(&c, 2)->lease_ms = UINT64_MAX;
    seat(&c, 1)->lease_ms = UINT64_MAX;
    CHECK_UINT_EQ(rank(&c, 2, 0), VOW__RANK_WAITS);
    CHECK(vow__crowd_again_us(&c, seat(&c, 2), 0) > UINT64_MAX / 4);
    crowd_end(&c);
}

TEST(etcd_grant, a_rate_wants_marks_and_counts_tolls_for_a_closed_window)
{
    struct vow__crowd c = crowd_of(0, 5, 1000);
    toll(&c, 1, 3, 100);
    toll(&c, 2, 2, 200);
    add(&c, 7, 3);
    CHECK_UINT_EQ(rank(&c, 7, 300), VOW__RANK_WAITS);
    CHECK_UINT_EQ(vow__crowd_again_us(&c, seat(&c, 7), 300), 801);
    CHECK_UINT_EQ(rank(&c, 7, 1100), VOW__RANK_WAITS);
    CHECK_UINT_EQ(rank(&c, 7, 1101), VOW__RANK_TURN);
    CHECK_UINT_EQ(vow__crowd_again_us(&c, seat(&c, 7), 1101), 1);
    vow_pool_info info;
    vow__crowd_count(&c, 1101, &info);
    CHECK_UINT_EQ(info.rate_used, 2);
    CHECK_UINT_EQ(info.held, 0);
    CHECK_UINT_EQ(info.waiting, 1);
    crowd_end(&c);
}

TEST(etcd_grant, who_is_behind_waits_for_whole_windows)
{
    struct vow__crowd c = crowd_of(0, 2, 1000);
    toll(&c, 1, 2, 100);
    for (uint64_t i = 0; i < 5; i++)
        add(&c, 10 + i, 1);
    CHECK_UINT_EQ(rank(&c, 10, 200), VOW__RANK_WAITS);
    CHECK_UINT_EQ(vow__crowd_again_us(&c, seat(&c, 11), 200), 901);
    CHECK_UINT_EQ(vow__crowd_again_us(&c, seat(&c, 12), 200), 901 + 1001);
    CHECK_UINT_EQ(vow__crowd_again_us(&c, seat(&c, 14), 200), 901 + 2002);
    vow__crowd_forgive(&c, 1);
    CHECK_UINT_EQ(rank(&c, 11, 200), VOW__RANK_TURN);
    CHECK_UINT_EQ(seat(&c, 12)->rank, VOW__RANK_WAITS);
    crowd_end(&c);
}

TEST(etcd_grant, a_toll_is_as_old_as_the_first_sight_of_it)
{
    struct vow__crowd old = crowd_of(0, 2, 1000);
    struct vow__crowd c;
    vow__crowd_init(&c, &old.alloc);
    c.limits = old.limits;
    toll(&old, 1, 1, 100);
    toll(&old, 3, 1, 300);
    toll(&c, 3, 2, 900); /* of the same revision: the same */
    toll(&c, 2, 1, 900);
    vow__crowd_recall(&c, &old);
    vow_pool_info info;
    vow__crowd_rank(&c, 1300);
    vow__crowd_count(&c, 1300, &info);
    CHECK_UINT_EQ(info.rate_used, 3);
    vow__crowd_rank(&c, 1301);
    vow__crowd_count(&c, 1301, &info);
    CHECK_UINT_EQ(info.rate_used, 1);
    CHECK_INT_EQ(vow__crowd_charge(
                     &c,
                     &(const struct vow__toll){
                         .id = 2, .mod = 9, .weight = 2, .since_us = 1500}),
                 0);
    vow__crowd_count(&c, 2500, &info); /* it was written again */
    CHECK_UINT_EQ(info.rate_used, 2);
    vow__crowd_fini(&c);
    crowd_end(&old);
}

TEST(etcd_grant, numbers_beyond_all_measure_are_survived)
{
    struct vow__crowd c = crowd_of(UINT32_MAX, UINT32_MAX, UINT64_MAX);
    for (uint64_t i = 1; i < 9; i++) {
        add(&c, i, UINT32_MAX);
        seat(&c, i)->lease_ms = UINT64_MAX;
        toll(&c, i, UINT64_MAX, UINT64_MAX - i);
    }
    CHECK_UINT_EQ(rank(&c, 8, 5), VOW__RANK_WAITS);
    CHECK(vow__crowd_again_us(&c, seat(&c, 8), 5) > 0);
    c.limits = (vow_pool_limits){.concurrent = 0};
    CHECK_UINT_EQ(rank(&c, 8, 5), VOW__RANK_HELD);
    crowd_end(&c);
}

TEST(etcd_grant, texts_and_seats_survive_a_lack_of_memory)
{
    struct vow__crowd c = crowd_of(1, 0, 0);
    memory.fail_at = memory.allocs + 1;
    memory.fail_forever = true;
    struct vow__seat s = {.token = token_of(1), .create = 1, .weight = 1};
    CHECK_INT_EQ(vow__crowd_add(&c, &s, "text", 4), VOW_ENOMEM);
    CHECK_INT_EQ(vow__crowd_set(&c, &s), VOW_ENOMEM);
    CHECK_INT_EQ(vow__crowd_charge(&c, &(const struct vow__toll){.id = 1}),
                 VOW_ENOMEM);
    memory.fail_at = 0;
    CHECK_INT_EQ(vow__crowd_add(&c, &s, "text", 4), 0);
    CHECK_MEM_EQ(c.texts + seat(&c, 1)->text, "text", 4);
    s.weight = 7;
    CHECK_INT_EQ(vow__crowd_set(&c, &s), 0);
    CHECK_UINT_EQ(c.n, 1);
    CHECK_UINT_EQ(seat(&c, 1)->weight, 7);
    crowd_end(&c);
}

/* ---- against a model ----------------------------------------------------- */

enum { SPOTS = 64, LOG = 4096, STEPS = 4000 };

/* One list in the order of arrival: who is granted is so until it goes. */
struct model {
    struct vow__crowd crowd;
    uint64_t seed, now_us, number;
    size_t n;
    struct spot {
        uint64_t number;
        uint32_t weight;
        bool held;
    } spots[SPOTS];
    size_t grants;
    struct {
        uint64_t us;
        uint32_t weight;
    } log[LOG];
};

static uint64_t roll(struct model *m, uint64_t n)
{
    return test_random(&m->seed) % n;
}

static uint64_t held(const struct model *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->n; i++)
        sum += m->spots[i].held ? m->spots[i].weight : 0;
    return sum;
}

static uint64_t paid(const struct model *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->grants; i++)
        if (m->log[i].us + m->crowd.limits.window_us >= m->now_us)
            sum += m->log[i].weight;
    return sum;
}

static void drop(struct model *m, size_t at)
{
    leave(&m->crowd, m->spots[at].number);
    m->n--;
    memmove(&m->spots[at], &m->spots[at + 1],
            (m->n - at) * sizeof(m->spots[0]));
}

/* The model grants heads as long as they fit. */
static void grant(struct model *m)
{
    const vow_pool_limits *l = &m->crowd.limits;
    for (size_t i = 0; i < m->n; i++) {
        struct spot *s = &m->spots[i];
        if (s->held)
            continue;
        if (!vow__limits_allow(l, s->weight)) {
            vow__crowd_rank(&m->crowd, m->now_us);
            CHECK_UINT_EQ(seat(&m->crowd, s->number)->rank, VOW__RANK_OUT);
            drop(m, i--);
            continue;
        }
        if ((l->concurrent > 0 && held(m) + s->weight > l->concurrent) ||
            (l->rate > 0 && paid(m) + s->weight > l->rate))
            return;
        s->held = true;
        if (l->rate == 0)
            continue;
        CHECK(m->grants < LOG);
        m->log[m->grants].us = m->now_us;
        m->log[m->grants++].weight = s->weight;
    }
}

/* What counts no more may go. */
static void sweep(struct vow__crowd *c, uint64_t now_us)
{
    for (size_t i = c->n_tolls; i-- > 0;)
        if (!vow__toll_counts(c, &c->tolls[i], now_us))
            vow__crowd_forgive(c, c->tolls[i].id);
}

/* Keys say the same. Who may be marked is. */
static void compare(struct model *m)
{
    struct vow__crowd *c = &m->crowd;
    uint64_t ahead = 0;
    sweep(c, m->now_us);
    vow__crowd_rank(c, m->now_us);
    for (size_t i = 0; i < c->n; i++) {
        struct vow__seat *s = &c->seats[i];
        if (s->rank != VOW__RANK_TURN)
            continue;
        s->marked = true;
        toll(c, s->create, s->weight, m->now_us);
    }
    vow__crowd_rank(c, m->now_us);
    CHECK_UINT_EQ(c->n, m->n);
    for (size_t i = 0; i < m->n; i++) {
        const struct vow__seat *s = seat(c, m->spots[i].number);
        CHECK_UINT_EQ(s->rank,
                      m->spots[i].held ? VOW__RANK_HELD : VOW__RANK_WAITS);
        if (m->spots[i].held)
            continue;
        CHECK_UINT_EQ(s->ahead, ahead);
        CHECK(vow__crowd_again_us(c, s, m->now_us) > 0);
        ahead++;
    }
}

/* As etcd_limit.c does: who is held is marked if limits fall. */
static void set_limits(struct model *m)
{
    struct vow__crowd *c = &m->crowd;
    vow__crowd_rank(c, m->now_us);
    for (size_t i = 0; i < c->n; i++)
        c->seats[i].marked |= c->seats[i].rank == VOW__RANK_HELD;
    c->limits.concurrent = roll(m, 5) == 0 ? 0 : 2 + (uint32_t)roll(m, 8);
    if (c->limits.rate > 0)
        c->limits.rate = 3 + (uint32_t)roll(m, 8);
}

static void run_model(struct model *m, vow_pool_limits limits)
{
    *m = (struct model){.seed = test_seed()};
    m->crowd = crowd_of(limits.concurrent, limits.rate, limits.window_us);
    for (int i = 0; i < STEPS && m->grants < LOG - SPOTS; i++) {
        uint64_t x = roll(m, 16);
        if (x < 8 && m->n < SPOTS) {
            struct spot s = {.number = ++m->number,
                             .weight = 1 + (uint32_t)roll(m, 4)};
            add(&m->crowd, s.number, s.weight);
            m->spots[m->n++] = s;
        } else if (x < 15 && m->n > 0) {
            drop(m, roll(m, m->n));
        } else if (x == 15) {
            set_limits(m);
        }
        grant(m);
        compare(m);
        m->now_us += roll(m, 300);
        grant(m);
        compare(m);
    }
    crowd_end(&m->crowd);
}

TEST(etcd_grant, concurrency_is_that_of_the_model)
{
    static struct model m;
    run_model(&m, (vow_pool_limits){.concurrent = 5});
}

TEST(etcd_grant, rates_are_those_of_the_model)
{
    static struct model m;
    run_model(&m,
              (vow_pool_limits){.concurrent = 6, .rate = 7, .window_us = 1000});
    CHECK(m.grants > 100);
}

/* ---- by what was read earlier -------------------------------------------- */

enum { ACTORS = 12, MOVES = 20000 };

/* Processes that read the pool, and judge and write some time later: nothing
 * is compared but that the own seat is still there. */
struct sea {
    struct vow__crowd crowd; /* as it is in etcd */
    uint64_t seed, now_us, number;
    struct actor {
        uint64_t number; /* 0: it has no seat */
        bool held;       /* as it believes */
        bool decided;
        uint64_t stamp_us;
        struct vow__crowd seen;
    } actors[ACTORS];
    size_t grants;
    struct {
        uint64_t us;
        uint32_t weight;
    } log[LOG];
};

static void copy(struct vow__crowd *to, const struct vow__crowd *from)
{
    vow__crowd_fini(to);
    to->limits = from->limits;
    for (size_t i = 0; i < from->n; i++)
        CHECK_INT_EQ(vow__crowd_add(to, &from->seats[i], NULL, 0), 0);
    for (size_t i = 0; i < from->n_tolls; i++)
        CHECK_INT_EQ(vow__crowd_charge(to, &from->tolls[i]), 0);
}

static void decide(struct sea *s, struct actor *a)
{
    vow__crowd_rank(&a->seen, s->now_us);
    const struct vow__seat *mine = seat(&a->seen, a->number);
    if (mine == NULL || a->held || a->decided)
        return;
    a->held = mine->rank == VOW__RANK_HELD;
    a->decided = mine->rank == VOW__RANK_TURN;
    a->stamp_us = s->now_us;
}

static void write_grant(struct sea *s, struct actor *a)
{
    struct vow__seat *mine = seat(&s->crowd, a->number);
    if (!a->decided)
        return;
    mine->marked = true;
    toll(&s->crowd, a->number, mine->weight, a->stamp_us);
    CHECK(s->grants < LOG);
    s->log[s->grants].us = a->stamp_us;
    s->log[s->grants++].weight = mine->weight;
    a->decided = false;
    a->held = true;
}

static void act(struct sea *s, struct actor *a)
{
    uint64_t x = test_random(&s->seed);
    if (a->number == 0) {
        a->number = ++s->number;
        add(&s->crowd, a->number, 1 + (uint32_t)(x % 3));
    } else if (x % 8 < 3) {
        copy(&a->seen, &s->crowd);
    } else if (x % 8 < 5) {
        decide(s, a);
    } else if (x % 8 < 7) {
        write_grant(s, a);
    } else if (!a->decided && (x >> 8) % 2 == 0) {
        leave(&s->crowd, a->number);
        a->number = 0;
        a->held = false;
        vow__crowd_fini(&a->seen);
    }
}

static void check_sea(struct sea *s)
{
    uint64_t sum = 0;
    sweep(&s->crowd, s->now_us);
    vow__crowd_rank(&s->crowd, s->now_us);
    for (size_t i = 0; i < ACTORS; i++) {
        const struct vow__seat *mine = seat(&s->crowd, s->actors[i].number);
        if (!s->actors[i].held)
            continue;
        CHECK_UINT_EQ(mine->rank, VOW__RANK_HELD);
        sum += mine->weight;
    }
    CHECK(sum <= s->crowd.limits.concurrent);
}

static void check_windows(const struct sea *s)
{
    for (size_t i = 0; i < s->grants; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < s->grants; k++)
            if (s->log[k].us >= s->log[i].us &&
                s->log[k].us - s->log[i].us <= s->crowd.limits.window_us)
                sum += s->log[k].weight;
        CHECK(sum <= s->crowd.limits.rate);
    }
}

static void run_sea(struct sea *s, vow_pool_limits limits)
{
    *s = (struct sea){.seed = test_seed()};
    s->crowd = crowd_of(limits.concurrent, limits.rate, limits.window_us);
    for (size_t i = 0; i < ACTORS; i++)
        vow__crowd_init(&s->actors[i].seen, &s->crowd.alloc);
    for (int i = 0; i < MOVES && s->grants < LOG - 1; i++) {
        act(s, &s->actors[test_random(&s->seed) % ACTORS]);
        s->now_us += test_random(&s->seed) % 20;
        check_sea(s);
    }
    for (size_t i = 0; i < ACTORS; i++)
        vow__crowd_fini(&s->actors[i].seen);
}

TEST(etcd_grant, nobody_loses_a_place_or_has_too_much_by_reading_earlier)
{
    static struct sea s;
    run_sea(&s, (vow_pool_limits){.concurrent = 5});
    crowd_end(&s.crowd);
}

TEST(etcd_grant, no_window_has_too_much_by_reading_earlier)
{
    static struct sea s;
    run_sea(&s,
            (vow_pool_limits){.concurrent = 9, .rate = 4, .window_us = 500});
    CHECK(s.grants > 100);
    check_windows(&s);
    crowd_end(&s.crowd);
}
