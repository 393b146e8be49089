/* SPDX-License-Identifier: MIT */
/* Tests of what three members of etcd promise together: leaders die, streams
 * end and stand still, a majority is lost and comes back, and members are asked
 * in turn. Nothing that was answered is lost, nothing runs without a majority
 * but what may, and all goes on by itself. */
#include "etcd_process.h"

#define PROC(...) (&(const struct proc_job){__VA_ARGS__})
#define THREE ETCD_OPTS(.members = 3)
/* Where a leader that stands still is replaced soon. */
#define THREE_HASTY ETCD_OPTS(.members = 3, .beat_ms = 50, .elect_ms = 500)
#define FENCED(...) VOW_SHARE(.mode = VOW_FENCED, __VA_ARGS__)

enum { TIMEOUT_MS = 10000, ADDED_MS = 9000 };

static struct town r;
static struct seat a, b;

static const vow_authority_opts *rarely(uint64_t lease_ms)
{
    static vow_authority_opts o;
    o = (vow_authority_opts){
        .size = sizeof(o), .lease_ms = lease_ms, .recheck_ms = RARELY_MS};
    return &o;
}

static const char *name_of(size_t i)
{
    static char text[16];
    (void)snprintf(text, sizeof(text), "n-%zu", i);
    return text;
}

/* ---- leaders ------------------------------------------------------------- */

TEST(etcd_cluster_more, fences_grow_over_dead_leaders)
{
    struct task t = {.r = &r, .text = "x"};
    vow_name name = vow_name_of("n");
    uint64_t last = 0;
    town_open(&r, THREE_HASTY);
    seat_open(&r, &a, r.k.url, rarely(HELD_MS));
    seat_open(&r, &b, r.k.url, rarely(HELD_MS));
    for (int i = 0; i < 4; i++) {
        struct seat *s = i % 2 == 0 ? &a : &b;
        size_t leader = etcd_leader(&r.k);
        etcd_kill(&r.k, leader);
        /* Without a leader for a moment: it may be refused, never run twice. */
        unsigned runs = t.runs;
        while (task_share(s, &t, "n", "x", FENCED(.ttl_ms = 60000)) != 0)
            town_pass(&r, 50);
        CHECK(t.runs == runs + 1);
        CHECK(t.fence > last);
        last = t.fence;
        int rc;
        while ((rc = town_until(&r, vow_authority_forget(s->a, &name, last))) !=
               0)
            CHECK(rc == VOW_ESTORE || rc == VOW_EUNSURE);
        etcd_again(&r.k, leader);
    }
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* Held over the death of the leader, and settled under the next. */
TEST(etcd_cluster_more, a_dead_leader_costs_no_lease_and_no_result)
{
    enum { NAMES = 20 };
    static struct turn owns[NAMES], waits[NAMES];
    town_open(&r, THREE);
    seat_open(&r, &a, r.k.url, rarely(HELD_MS));
    seat_open(&r, &b, r.k.url, rarely(HELD_MS));
    for (size_t i = 0; i < NAMES; i++) {
        turn_take(&r, &a, &owns[i], name_of(i), FENCED(.ttl_ms = 60000));
        turn_take(&r, &b, &waits[i], name_of(i), FENCED(.ttl_ms = 60000));
        CHECK(owns[i].code == 0 && owns[i].lease != NULL);
        CHECK(waits[i].code == 0 && waits[i].lease == NULL);
    }
    size_t leader = etcd_leader(&r.k);
    etcd_kill(&r.k, leader);
    for (size_t i = 0; i < NAMES / 2; i++)
        CHECK_INT_EQ(turn_say(&r, &owns[i], name_of(i)), 0);
    etcd_again(&r.k, leader);
    for (size_t i = NAMES / 2; i < NAMES; i++)
        CHECK_INT_EQ(turn_say(&r, &owns[i], name_of(i)), 0);
    for (size_t i = 0; i < NAMES; i++) {
        CHECK_INT_EQ(turn_hears(&r, &waits[i], name_of(i)), 0);
        CHECK_UINT_EQ(waits[i].leases, 0);
        turn_drop(&owns[i]);
        turn_drop(&waits[i]);
    }
    CHECK_UINT_EQ(atomic_load(&a.told[VOW_EVENT_LOST]), 0);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* A new leader restarts the lease that keeps a result, but not the time to live
 * of the result. */
TEST(etcd_cluster_more, a_new_leader_keeps_no_result_beyond_its_time_to_live)
{
    enum { TTL_MS = 4000 };
    struct task t = {.r = &r, .text = "x"};
    int rc;
    town_open(&r, THREE_HASTY);
    seat_open(&r, &a, r.k.url, rarely(HELD_MS));
    seat_open(&r, &b, r.k.url, rarely(HELD_MS));
    CHECK_INT_EQ(task_share(&a, &t, "n", "x", FENCED(.ttl_ms = TTL_MS)), 0);
    uint64_t since = town_ms(&r);
    town_pass(&r, TTL_MS * 3 / 4);
    size_t leader = etcd_leader(&r.k);
    etcd_kill(&r.k, leader);
    etcd_again(&r.k, leader);
    while (town_ms(&r) - since <= TTL_MS)
        town_pass(&r, 50);
    do
        rc = task_share(&b, &t, "n", "x", FENCED(.ttl_ms = TTL_MS));
    while (rc == VOW_ESTORE || rc == VOW_EUNSURE);
    CHECK_INT_EQ(rc, 0);
    CHECK_UINT_EQ(t.runs, 2);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

TEST(etcd_cluster_more, an_owner_and_the_leader_die_and_it_is_in_doubt)
{
    struct proc p;
    struct task t = {.r = &r, .text = "again"};
    vow_name name = vow_name_of("once");
    town_start(&r, THREE);
    proc_hire(&p, PROC(.url = r.k.url, .name = "once", .mode = VOW_ONCE,
                       .lease_ms = 2000));
    world_open_real(&r.w);
    seat_open(&r, &a, r.k.url, rarely(HELD_MS));
    uint64_t fence = proc_go(&p);
    size_t leader = etcd_leader(&r.k);
    proc_kill(&p);
    etcd_kill(&r.k, leader);
    int rc;
    do
        rc = task_share(&a, &t, "once", "", VOW_SHARE(.mode = VOW_ONCE));
    while (rc == VOW_ESTORE || rc == VOW_EUNSURE);
    CHECK_INT_EQ(rc, VOW_EDOUBT);
    CHECK_UINT_EQ(seat_peek(&r, &a, &name).epoch, fence);
    etcd_again(&r.k, leader);
    etcd_kill(&r.k, (leader + 1) % 3);
    do
        rc = task_share(&a, &t, "once", "", VOW_SHARE(.mode = VOW_ONCE));
    while (rc == VOW_ESTORE || rc == VOW_EUNSURE);
    CHECK_INT_EQ(rc, VOW_EDOUBT);
    CHECK_UINT_EQ(t.runs, 0);
    do
        rc = town_until(&r, vow_authority_resolve(a.a, &name, fence,
                                                  VOW_DO_IT_AGAIN, NULL, 0));
    while (rc == VOW_ESTORE || rc == VOW_EUNSURE);
    CHECK_INT_EQ(rc, 0);
    do
        rc = task_share(&a, &t, "once", "again", VOW_SHARE(.mode = VOW_ONCE));
    while (rc == VOW_ESTORE);
    CHECK_INT_EQ(rc, 0);
    CHECK_UINT_EQ(t.runs, 1);
    CHECK(t.fence > fence);
    seat_close(&r, &a);
    town_close(&r);
}

/* A leader that stands still is replaced, and comes back with what it thought
 * was going on. */
TEST(etcd_cluster_more, a_leader_that_comes_back_changes_nothing)
{
    struct task t[2] = {{.r = &r, .text = "x"}, {.r = &r, .text = "x"}};
    town_open(&r, THREE_HASTY);
    seat_open(&r, &a, r.k.url, rarely(HELD_MS));
    seat_open(&r, &b, r.k.url, rarely(HELD_MS));
    for (size_t i = 0; i < 3; i++) {
        vow_future *f[2];
        size_t leader = etcd_leader(&r.k);
        vow_name name = vow_name_of(name_of(i));
        etcd_freeze(&r.k, leader);
        f[0] = vow_share(a.a, &name, task_run, &t[0],
                         FENCED(.ttl_ms = 60000, .store_down = VOW_DOWN_WAIT));
        f[1] = vow_share(b.a, &name, task_run, &t[1],
                         FENCED(.ttl_ms = 60000, .store_down = VOW_DOWN_WAIT));
        town_pass(&r, 1500);
        (void)etcd_leader(&r.k); /* another one */
        etcd_thaw(&r.k, leader);
        for (size_t s = 0; s < 2; s++) {
            CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f[s]), 0);
            CHECK(says(f[s], "x"));
            vow_future_unref(f[s]);
        }
        CHECK_UINT_EQ(t[0].runs + t[1].runs, i + 1);
    }
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* ---- streams ------------------------------------------------------------- */

static size_t who_streams(void)
{
    for (;;) {
        for (size_t i = 0; i < r.k.n; i++)
            if (town_metric(&r, i, "etcd_debugging_mvcc_watcher_total") > 0)
                return i;
        town_pass(&r, 20);
    }
}

/* The member that wakes a waiter is away, and then it happens. The owner asks
 * another one. */
static void stream_lost(bool freeze)
{
    struct turn mine, waits;
    char url[64];
    town_open(&r, THREE);
    seat_open(&r, &b, r.k.url, rarely(RARELY_MS));
    /* Whoever else has a stream asks the same member first. */
    seat_open(&r, &a, r.k.url, rarely(RARELY_MS));
    turn_take(&r, &a, &mine, "n", FENCED(.ttl_ms = 60000));
    CHECK(mine.code == 0 && mine.lease != NULL);
    turn_take(&r, &b, &waits, "n", FENCED(.ttl_ms = 60000));
    CHECK(waits.code == 0 && waits.lease == NULL);
    size_t away = who_streams();
    if (freeze)
        etcd_freeze(&r.k, away);
    else
        etcd_kill(&r.k, away);
    uint64_t since = town_ms(&r);
    CHECK_INT_EQ(turn_say(&r, &mine, "x"), 0);
    CHECK_INT_EQ(turn_hears(&r, &waits, "x"), 0);
    CHECK(town_ms(&r) - since < RARELY_MS / 2);
    turn_drop(&mine);
    turn_drop(&waits);
    /* And somebody who has never asked it. */
    struct seat c;
    struct task t = {.r = &r, .text = "y"};
    memset(&c, 0, sizeof(c));
    (void)snprintf(url, sizeof(url), "etcd://127.0.0.1:%u?timeout=30000",
                   r.k.at[(away + 1) % 3].port);
    seat_open(&r, &c, url, rarely(RARELY_MS));
    CHECK_INT_EQ(task_share(&c, &t, "n", "x", FENCED(.ttl_ms = 60000)), 0);
    seat_close(&r, &c);
    seat_close(&r, &a);
    seat_close(&r, &b);
    if (freeze)
        etcd_thaw(&r.k, away);
    town_close(&r);
}

TEST(etcd_cluster_more, who_waits_hears_when_its_member_was_killed)
{
    stream_lost(false);
}

TEST(etcd_cluster_more, who_waits_hears_when_its_member_stands_still)
{
    stream_lost(true);
}

/* ---- without a majority -------------------------------------------------- */

static void away(size_t member, bool freeze)
{
    if (freeze)
        etcd_freeze(&r.k, member);
    else
        etcd_kill(&r.k, member);
}

static void back(size_t member, bool freeze)
{
    if (freeze)
        etcd_thaw(&r.k, member);
    else
        etcd_again(&r.k, member);
}

/* Refused in time, not begun, and fine again without anybody's help. */
static void refuse_in_time(uint32_t mode, bool freeze)
{
    struct task t = {.r = &r, .text = "x"};
    char options[32];
    (void)snprintf(options, sizeof(options), "?timeout=%d", TIMEOUT_MS);
    town_open(&r, THREE);
    seat_open(&r, &a, town_url(&r, options), rarely(HELD_MS));
    CHECK_INT_EQ(task_share(&a, &t, "before", "x", VOW_SHARE(.mode = mode)), 0);
    size_t leader = etcd_leader(&r.k);
    away((leader + 1) % 3, freeze);
    away((leader + 2) % 3, freeze);
    for (size_t i = 0; i < 3; i++) {
        uint64_t since = town_ms(&r);
        int rc = task_share(&a, &t, name_of(i), "x", VOW_SHARE(.mode = mode));
        uint64_t took = town_ms(&r) - since;
        if (rc != VOW_ESTORE && rc != VOW_EUNSURE)
            FAIL("it says %s", vow_error_name(rc));
        if (took > 2 * TIMEOUT_MS + ADDED_MS) /* one is forgiven */
            FAIL("ask %zu took %llu ms", i, (unsigned long long)took);
    }
    CHECK_UINT_EQ(t.runs, 1);
    CHECK(atomic_load(&a.told[VOW_EVENT_DOWN]) > 0);
    back((leader + 1) % 3, freeze);
    back((leader + 2) % 3, freeze);
    int rc;
    while ((rc = task_share(&a, &t, "after", "x",
                            VOW_SHARE(.mode = mode, .ttl_ms = 60000))) != 0)
        CHECK(rc == VOW_ESTORE || rc == VOW_EUNSURE);
    CHECK_UINT_EQ(t.runs, 2);
    CHECK(atomic_load(&a.told[VOW_EVENT_UP]) > 0);
    seat_close(&r, &a);
    town_close(&r);
}

TEST(etcd_cluster_more, fenced_work_is_refused_in_time_when_two_are_dead)
{
    refuse_in_time(VOW_FENCED, false);
}

TEST(etcd_cluster_more, fenced_work_is_refused_in_time_when_two_stand_still)
{
    refuse_in_time(VOW_FENCED, true);
}

TEST(etcd_cluster_more, what_is_once_is_refused_in_time_when_two_are_dead)
{
    refuse_in_time(VOW_ONCE, false);
}

TEST(etcd_cluster_more, shared_work_runs_alone_or_as_was_asked)
{
    struct task t = {.r = &r, .text = "x"};
    vow_share_info info = {.role = 0};
    town_open(&r, THREE_HASTY);
    seat_open(&r, &a, town_url(&r, "?timeout=1000"), rarely(HELD_MS));
    etcd_kill(&r.k, 0);
    etcd_kill(&r.k, 1);
    CHECK_INT_EQ(task_share(&a, &t, "n", "x", VOW_SHARE(.info = &info)), 0);
    CHECK_UINT_EQ(info.role, VOW_ROLE_ALONE);
    CHECK_UINT_EQ(t.runs, 1);
    int rc =
        task_share(&a, &t, "n", "x", VOW_SHARE(.store_down = VOW_DOWN_FAIL));
    CHECK(rc == VOW_ESTORE || rc == VOW_EUNSURE);
    CHECK_UINT_EQ(t.runs, 1);
    /* It may not be asked for what it is not for. */
    CHECK(task_share(&a, &t, "m", "x", FENCED(.store_down = VOW_DOWN_RUN)) !=
          0);
    CHECK_UINT_EQ(t.runs, 1);
    vow_name name = vow_name_of("waits");
    VOW_AUTO(vow_future)
    f = vow_share(a.a, &name, task_run, &t,
                  FENCED(.store_down = VOW_DOWN_WAIT, .ttl_ms = 60000));
    town_pass(&r, 3000);
    CHECK_UINT_EQ(vow_state_of(f), VOW_PENDING);
    CHECK_UINT_EQ(t.runs, 1);
    etcd_again(&r.k, 0);
    etcd_again(&r.k, 1);
    CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
    CHECK_UINT_EQ(t.runs, 2);
    f = vow_future_unref(f);
    seat_close(&r, &a);
    town_close(&r);
}

/* By its own clock, not later than its lease: nobody else can have it yet. */
TEST(etcd_cluster_more, an_owner_without_a_majority_gives_up_in_time)
{
    enum { LEASE_MS = 4000 };
    struct turn mine, next;
    struct proc p;
    town_start(&r, THREE_HASTY);
    proc_hire(&p, PROC(.url = r.k.url, .name = "n", .mode = VOW_FENCED,
                       .lease_ms = HELD_MS));
    world_open_real(&r.w);
    seat_open(&r, &a, r.base, rarely(LEASE_MS));
    for (;;) { /* members may be electing a leader */
        turn_take(&r, &a, &mine, "n", FENCED(.flags = VOW_SHARE_KEEP));
        if (mine.code == 0 && mine.lease != NULL)
            break;
        CHECK(mine.code == VOW_ESTORE || mine.code == VOW_EUNSURE);
        turn_drop(&mine);
    }
    size_t leader = etcd_leader(&r.k);
    etcd_freeze(&r.k, (leader + 1) % 3);
    etcd_freeze(&r.k, (leader + 2) % 3);
    uint64_t since = town_ms(&r);
    CHECK_INT_EQ(town_until(&r, vow_lease_lost(mine.lease)), VOW_ELOST);
    CHECK(town_ms(&r) - since < LEASE_MS + SLACK_MS);
    CHECK_UINT_EQ(vow_lease_left_ms(mine.lease), 0);
    /* The waiter would claim the name again. The thread of the authority learns
     * of the cancel only when this loop runs, and proc_go() blocks this loop:
     * first wait until the authority has forgotten the name. */
    (void)vow_cancel(mine.result, NULL);
    TOWN_UNTIL(&r, vow_authority_stats_get(a.a).names == 0);
    etcd_thaw(&r.k, (leader + 1) % 3);
    etcd_thaw(&r.k, (leader + 2) % 3);
    uint64_t fence = proc_go(&p);
    CHECK(fence > vow_lease_fence(mine.lease));
    CHECK_INT_EQ(turn_say(&r, &mine, "late"), VOW_ELOST);
    seat_open(&r, &b, r.k.url, rarely(HELD_MS));
    turn_take(&r, &b, &next, "n", FENCED(.ttl_ms = 1));
    CHECK(next.code == 0 && next.lease == NULL);
    proc_nod(&p);
    CHECK_INT_EQ(proc_hear(&p), 0);
    CHECK_INT_EQ(turn_hears(&r, &next, "done"), 0);
    turn_drop(&mine);
    turn_drop(&next);
    proc_kill(&p);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* ---- in turn ------------------------------------------------------------- */

/* Hosts that refuse cost nothing: the first ask is answered. */
TEST(etcd_cluster_more, hosts_that_refuse_are_passed_over)
{
    struct task t = {.r = &r, .text = "x"};
    char url[128];
    town_open(&r, THREE);
    etcd_kill(&r.k, 0);
    (void)etcd_leader(&r.k);
    (void)snprintf(url, sizeof(url),
                   "etcd://127.0.0.1:1,127.0.0.1:%u,localhost:2,127.0.0.1:%u"
                   "?timeout=60000",
                   r.k.at[0].port, r.k.at[1].port);
    seat_open(&r, &a, url, rarely(HELD_MS));
    CHECK_INT_EQ(task_share(&a, &t, "n", "x", FENCED(.ttl_ms = 60000)), 0);
    /* The one that answered is gone, and another is back. */
    etcd_again(&r.k, 0);
    etcd_kill(&r.k, 1);
    (void)etcd_leader(&r.k);
    CHECK_INT_EQ(task_share(&a, &t, "m", "x", FENCED(.ttl_ms = 60000)), 0);
    CHECK_UINT_EQ(t.runs, 2);
    seat_close(&r, &a);
    town_close(&r);
}

/* One that says nothing, and is named first, costs a part of the timeout: every
 * step is answered, by those who have never asked before and by those who have.
 * If it was the leader there is another first. */
TEST(etcd_cluster_more, a_host_that_says_nothing_is_left)
{
    enum { NAMES = 5 };
    struct task t = {.r = &r, .text = "x"};
    vow_name name = vow_name_of("n-0");
    vow_pool *pool = NULL;
    town_open(&r, THREE);
    etcd_freeze(&r.k, 0);
    (void)etcd_leader(&r.k);
    for (unsigned fresh = 0; fresh < 3; fresh++) {
        seat_open(&r, &a, town_url(&r, "?timeout=12000"), rarely(HELD_MS));
        if (fresh == 0)
            for (size_t i = 0; i < NAMES; i++)
                CHECK_INT_EQ(task_share(&a, &t, name_of(i), "x",
                                        VOW_SHARE(.mode = (uint32_t)i % 3,
                                                  .ttl_ms = 600000)),
                             0);
        else if (fresh == 1)
            CHECK_UINT_EQ(seat_peek(&r, &a, &name).status, VOW_STATUS_SETTLED);
        CHECK_INT_EQ(vow_pool_open(a.a, "p",
                                   VOW_POOL(.limits = {.concurrent = 1}),
                                   &pool),
                     0);
        VOW_AUTO(vow_future) f = vow_pool_acquire(pool, NULL, 1);
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f), 0);
        vow_grant_release(vow_grant_take(vow_get(f)));
        f = vow_future_unref(f);
        pool = vow_pool_unref(pool);
        seat_close(&r, &a);
    }
    CHECK_UINT_EQ(t.runs, NAMES);
    etcd_thaw(&r.k, 0);
    town_close(&r);
}
