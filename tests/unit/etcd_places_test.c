/* SPDX-License-Identifier: MIT */
/* etcd_places_test.c - pools on etcd: the limits hold at every moment, also for
 * those who die, and over the death of a leader; and a rate is not exceeded in
 * any window, by the clock of those who were let in. */
#include "contract.h"
#include "etcd_process.h"

#define PROC(...) (&(const struct proc_job){__VA_ARGS__})

static struct town r;

/* A process with the pool. */
static struct member {
    struct seat s;
    vow_pool *pool;
} m[4];

static void member_open(struct member *who, const vow_pool_limits *limits,
                        uint64_t lease_ms)
{
    seat_open(&r, &who->s, r.k.url,
              VOW_AUTHORITY(.lease_ms = lease_ms, .recheck_ms = RARELY_MS));
    CHECK_INT_EQ(vow_pool_open(who->s.a, "pool", VOW_POOL(.limits = *limits),
                               &who->pool),
                 0);
}

static void member_close(struct member *who)
{
    who->pool = vow_pool_unref(who->pool);
    seat_close(&r, &who->s);
}

static void open_pools(size_t n, const vow_pool_limits *limits)
{
    town_open(&r, NULL);
    for (size_t i = 0; i < n; i++)
        member_open(&m[i], limits, HELD_MS);
}

static void close_pools(size_t n)
{
    for (size_t i = 0; i < n; i++)
        member_close(&m[i]);
    town_close(&r);
}

/* A place that was asked for. */
struct place {
    vow_future *f;
    vow_grant *g;
};

static void place_ask(struct member *who, struct place *p, uint32_t weight)
{
    p->g = NULL;
    p->f = vow_pool_acquire(who->pool, NULL, weight);
}

static bool place_has(struct place *p)
{
    if (p->f != NULL && vow_state_of(p->f) == VOW_FULFILLED) {
        p->g = vow_grant_take(vow_get(p->f));
        p->f = vow_future_unref(p->f);
    }
    CHECK(p->f == NULL || vow_state_of(p->f) == VOW_PENDING);
    return p->g != NULL;
}

static void place_get(struct member *who, struct place *p, uint32_t weight)
{
    place_ask(who, p, weight);
    TOWN_UNTIL(&r, place_has(p));
}

static void place_back(struct place *p)
{
    vow_grant_release(p->g);
    p->g = NULL;
}

/* It stands in the queue: so many do. */
static void place_queue(struct member *who, struct place *p, uint32_t weight,
                        uint64_t waiting)
{
    place_ask(who, p, weight);
    for (;;) {
        VOW_AUTO(vow_future) f = vow_pool_limit(who->s.a, "pool", NULL);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
        const vow_pool_info *info = vow_as_ptr(vow_get(f));
        if (info->waiting == waiting)
            return;
        town_pass(&r, 10);
    }
}

static vow_pool_info pool_info(struct member *who, const vow_pool_limits *set)
{
    VOW_AUTO(vow_future) f = vow_pool_limit(who->s.a, "pool", set);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    vow_pool_info info = *(const vow_pool_info *)vow_as_ptr(vow_get(f));
    info.label = NULL;
    return info;
}

/* ---- limits -------------------------------------------------------------- */

/* What is held by all together, as those see it who hold it: a random mix. */
TEST(etcd_places, no_more_is_held_at_once_than_allowed)
{
    enum { PLACES = 12, LIMIT = 5, GRANTS = 80 };
    struct place p[PLACES] = {{.f = NULL}};
    uint32_t weight[PLACES] = {0};
    uint64_t seed = test_seed(), held = 0, fence = 0;
    unsigned grants = 0;
    open_pools(4, &(const vow_pool_limits){.concurrent = LIMIT});
    while (grants < GRANTS) {
        for (size_t i = 0; i < PLACES; i++) {
            if (p[i].g != NULL && test_random(&seed) % 3 == 0) {
                held -= weight[i];
                place_back(&p[i]);
            } else if (p[i].g == NULL && p[i].f == NULL) {
                weight[i] = 1 + (uint32_t)(test_random(&seed) % LIMIT);
                place_ask(&m[i % 4], &p[i], weight[i]);
            } else if (p[i].g == NULL && place_has(&p[i])) {
                held += weight[i];
                grants++;
                CHECK(p[i].g->fence != 0 && p[i].g->fence != fence);
                fence = p[i].g->fence;
            }
            CHECK(held <= LIMIT);
        }
        town_pass(&r, 2);
    }
    for (size_t i = 0; i < PLACES; i++) {
        if (place_has(&p[i]))
            place_back(&p[i]);
        if (p[i].f != NULL)
            (void)vow_cancel(p[i].f, NULL);
        p[i].f = vow_future_unref(p[i].f);
    }
    for (int i = 0; pool_info(&m[0], NULL).held > 0; i++) {
        CHECK(i < 1200);
        town_pass(&r, 50);
    }
    CHECK_UINT_EQ(pool_info(&m[0], NULL).waiting, 0);
    close_pools(4);
}

/* ---- death --------------------------------------------------------------- */

TEST(etcd_places, the_place_of_a_killed_process_is_free_after_its_lease)
{
    enum { LEASE_MS = 10000 };
    const vow_pool_limits limits = {.concurrent = 2};
    struct proc holds, queues;
    struct place next;
    town_start(&r, NULL);
    proc_hire(&holds,
              PROC(.kind = PROC_PLACE, .url = r.k.url, .name = "pool",
                   .weight = 2, .limits = limits, .lease_ms = LEASE_MS));
    proc_hire(&queues,
              PROC(.kind = PROC_PLACE, .url = r.k.url, .name = "pool",
                   .weight = 2, .limits = limits, .lease_ms = LEASE_MS));
    world_open_real(&r.w);
    member_open(&m[0], &limits, HELD_MS);
    uint64_t fence = proc_go(&holds);
    proc_nod(&queues);
    while (pool_info(&m[0], NULL).waiting != 1)
        town_pass(&r, 10);
    place_queue(&m[0], &next, 1, 2);
    proc_kill(&queues); /* the head of the queue, and the holder */
    uint64_t dead = town_ms(&r);
    proc_kill(&holds);
    TOWN_UNTIL(&r, place_has(&next));
    uint64_t took = town_ms(&r) - dead;
    CHECK(took < LEASE_MS + LATE_MS + SLACK_MS);
    CHECK(took >= LEASE_MS / 2); /* a pulse may have been due */
    CHECK(next.g->fence > fence);
    vow_pool_info info = pool_info(&m[0], NULL);
    CHECK_UINT_EQ(info.held, 1);
    CHECK_UINT_EQ(info.waiting, 0);
    place_back(&next);
    member_close(&m[0]);
    town_close(&r);
}

/* Who was stopped and is replaced is told, and its place is not two. */
TEST(etcd_places, a_place_that_is_lost_is_told)
{
    enum { LEASE_MS = 3000 };
    struct place p;
    town_open(&r, NULL);
    for (size_t i = 0; i < 2; i++)
        member_open(&m[i], &(const vow_pool_limits){.concurrent = 1}, LEASE_MS);
    uint64_t since = town_ms(&r);
    place_get(&m[0], &p, 1);
    CHECK(p.g->lost != NULL);
    vow_future *lost = vow_future_ref(p.g->lost);
    CHECK(vow_state_of(lost) == VOW_PENDING || town_ms(&r) - since >= LEASE_MS);
    /* Nobody can renew it: the store is away for longer than the lease. */
    etcd_freeze(&r.k, 0);
    CHECK_INT_EQ(town_until(&r, lost), VOW_ELOST);
    etcd_thaw(&r.k, 0);
    place_back(&p);
    struct place next = {.f = NULL};
    do { /* the store may be down for a moment more */
        vow_future_unref(next.f);
        place_ask(&m[1], &next, 1);
        (void)vow_loop_run_until(r.w.loop, next.f);
    } while (vow_state_of(next.f) == VOW_REJECTED);
    CHECK(place_has(&next));
    place_back(&next);
    close_pools(2);
}

/* ---- rate ---------------------------------------------------------------- */

enum { RATE = 5, WINDOW_MS = 1000, FOR_MS = 9000, GRANTS_MAX = 512 };

/* One try: it was granted within this span, if it was. */
struct span {
    uint64_t from_us, to_us;
    uint32_t weight;
};

struct trier {
    struct rig *r;
    size_t i;
    uint64_t token;
    bool busy;
    uint32_t weight;
    uint64_t from_us;
};

static struct span spans[GRANTS_MAX];
static size_t n_spans;

static void on_released(int code, const vow_pool_permit *p, size_t n,
                        void *user)
{
    (void)code;
    (void)p;
    (void)n;
    ((struct trier *)user)->busy = false;
}

static void on_tried(int code, const vow_pool_permit *p, size_t n, void *user)
{
    struct trier *t = user;
    CHECK(code == 0 || code == VOW_ESTORE || code == VOW_EUNSURE);
    CHECK_UINT_EQ(n, code == 0 ? 1 : 0);
    if (code != 0 || p->status != VOW_STATUS_OWNED) {
        t->busy = false;
        return;
    }
    CHECK(n_spans < GRANTS_MAX);
    spans[n_spans++] = (struct span){t->from_us, rig_now_us(t->r), t->weight};
    vow_permit_hold hold = {rig_name("p"), rig_name("p"), rig_token(t->token),
                            false};
    t->r->at[t->i]->ops->release(t->r->at[t->i], &hold, on_released, t);
}

static void try_again(struct trier *t, uint64_t token, uint32_t weight)
{
    vow_store *s = t->r->at[t->i];
    t->busy = true;
    t->token = token;
    t->weight = weight;
    t->from_us = rig_now_us(t->r);
    s->ops->acquire(
        s,
        PLACE("p", token, .weight = weight, .flags = VOW_PERMIT_TRY,
              .limits = {.rate = RATE, .window_us = WINDOW_MS * 1000}),
        on_tried, t);
}

enum nemesis { PEACE, COME_AND_GO, LEADERS_DIE };

/* More than the rate lies wholly within one window: whenever in its span each
 * of them was granted. */
static void check_rate(void)
{
    for (size_t i = 0; i < n_spans; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < n_spans; k++)
            if (spans[k].from_us >= spans[i].from_us &&
                spans[k].to_us < spans[i].from_us + WINDOW_MS * 1000)
                sum += spans[k].weight;
        if (sum > RATE)
            FAIL("%llu were let in within one window of %d ms",
                 (unsigned long long)sum, WINDOW_MS);
    }
}

static void rate_holds(struct rig *rig, uint32_t heaviest, enum nemesis what)
{
    struct trier t[3];
    uint64_t token = 1, total = 0;
    for (size_t i = 0; i < 3; i++)
        t[i] = (struct trier){.r = rig, .i = i};
    uint64_t end = rig_now_us(rig) + FOR_MS * 1000;
    uint64_t change = rig_now_us(rig) + 1300 * 1000;
    while (rig_now_us(rig) < end || total < 2 * RATE) { /* it does let in */
        for (size_t i = 0; i < 3; i++)
            if (!t[i].busy) {
                token++;
                try_again(&t[i], token, 1 + (uint32_t)(token % heaviest));
            }
        rig_advance_ms(rig, 5);
        total = 0;
        for (size_t i = 0; i < n_spans; i++)
            total += spans[i].weight;
        if (rig_now_us(rig) < change || t[2].busy)
            continue;
        change = rig_now_us(rig) + 1300 * 1000;
        if (what == COME_AND_GO) {
            rig_close(rig, 2);
            rig_reopen(rig, 2);
        } else if (what == LEADERS_DIE) {
            etcd_again(rig->state, etcd_leader(rig->state));
        }
    }
    while (t[0].busy || t[1].busy || t[2].busy)
        rig_advance_ms(rig, 5);
    check_rate();
}

static void body_weighted(struct rig *rig)
{
    rate_holds(rig, 3, PEACE);
}

TEST(etcd_places, a_rate_counts_weights)
{
    contract_run(&rig_etcd, body_weighted);
}

static void body_come_and_go(struct rig *rig)
{
    rate_holds(rig, 1, COME_AND_GO);
}

TEST(etcd_places, a_rate_holds_for_those_who_come_anew)
{
    contract_run(&rig_etcd, body_come_and_go);
}

static void begin_three(struct rig *rig)
{
    etcd_start(&r.k, ETCD_OPTS(.members = 3));
    rig->state = &r.k;
}

static vow_store *open_one(struct rig *rig)
{
    VOW_AUTO(vow_future)
    f = vow_store_etcd_open(rig->world.loop, r.k.url,
                            VOW_ETCD_OPTS(.value_max = RIG_VALUE_MAX));
    CHECK_INT_EQ(vow_loop_run_until(rig->world.loop, f), 0);
    return vow_as_ptr(vow_get(f));
}

static void end_three(struct rig *rig)
{
    etcd_stop(rig->state);
}

static const struct rig_store three = {.name = "etcd",
                                       .real_time = true,
                                       .late_ms = LATE_MS,
                                       .begin = begin_three,
                                       .open = open_one,
                                       .end = end_three};

static void body_leaders_die(struct rig *rig)
{
    rate_holds(rig, 1, LEADERS_DIE);
}

TEST(etcd_places, a_rate_holds_while_leaders_die)
{
    contract_run(&three, body_leaders_die);
}

/* Held and queued for over the death of the leader. */
TEST(etcd_places, places_outlive_the_leader)
{
    const vow_pool_limits limits = {.concurrent = 2};
    struct place p[3];
    town_open(&r, ETCD_OPTS(.members = 3));
    for (size_t i = 0; i < 3; i++) {
        seat_open(&r, &m[i].s, r.k.url,
                  VOW_AUTHORITY(.lease_ms = HELD_MS, .recheck_ms = RARELY_MS));
        CHECK_INT_EQ(vow_pool_open(m[i].s.a, "pool", VOW_POOL(.limits = limits),
                                   &m[i].pool),
                     0);
    }
    place_get(&m[0], &p[0], 2);
    place_queue(&m[1], &p[1], 1, 1);
    place_queue(&m[2], &p[2], 2, 2);
    size_t leader = etcd_leader(&r.k);
    etcd_kill(&r.k, leader);
    town_pass(&r, 2000);
    CHECK(!place_has(&p[1]) && !place_has(&p[2]));
    CHECK_UINT_EQ(vow_state_of(p[0].g->lost), VOW_PENDING);
    place_back(&p[0]);
    TOWN_UNTIL(&r, place_has(&p[1]));
    CHECK(!place_has(&p[2]));
    etcd_again(&r.k, leader);
    place_back(&p[1]);
    TOWN_UNTIL(&r, place_has(&p[2]));
    place_back(&p[2]);
    close_pools(3);
}
