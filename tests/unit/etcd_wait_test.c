/* SPDX-License-Identifier: MIT */
/* etcd_wait_test.c - those who wait on etcd: they are woken by what happens
 * and do not look for it, and they settle whatever becomes of the stream that
 * wakes them. All look again so rarely that a wake-up that is lost is a test
 * that fails. */
#include "etcd_process.h"

#define PROC(...) (&(const struct proc_job){__VA_ARGS__})
#define SEAT_OPTS VOW_AUTHORITY(.lease_ms = RARELY_MS, .recheck_ms = RARELY_MS)

enum { NAMES = 50 };

static struct town r;
static struct seat a, b;
static struct turn owns[NAMES], waits[NAMES];

static const char *name_of(size_t i)
{
    static char text[16];
    (void)snprintf(text, sizeof(text), "n-%zu", i);
    return text;
}

/* One owns all names, and another waits for them. */
static void open_all(void)
{
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    for (size_t i = 0; i < NAMES; i++) {
        turn_take(&r, &a, &owns[i], name_of(i), VOW_SHARE(.mode = VOW_FENCED));
        CHECK(owns[i].code == 0 && owns[i].lease != NULL);
        turn_take(&r, &b, &waits[i], name_of(i), /* also while it is away */
                  VOW_SHARE(.mode = VOW_FENCED, .store_down = VOW_DOWN_WAIT));
        CHECK(waits[i].code == 0 && waits[i].lease == NULL);
    }
}

static void settle_and_close(void)
{
    for (size_t i = 0; i < NAMES; i++)
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

TEST(etcd_wait, fifty_who_wait_are_woken_and_do_not_look)
{
    open_all();
    uint64_t steps = town_asked(&r, "Txn") + town_asked(&r, "Range");
    town_pass(&r, 3000);
    steps = town_asked(&r, "Txn") + town_asked(&r, "Range") - steps;
    CHECK(steps <= 4); /* not one for each name */
    uint64_t streams =
        town_metric(&r, 0, "grpc_server_started_total{grpc_method=\"Watch\"");
    CHECK(streams <= 2 * 2); /* nor a stream */
    settle_and_close();
}

/* Begun at the same moment: no wake-up falls between asking and waiting. */
TEST(etcd_wait, who_comes_while_it_is_settled_hears_of_it)
{
    struct task other = {.r = &r, .text = "again"};
    static vow_future *f[NAMES];
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    for (size_t i = 0; i < NAMES; i++) {
        turn_take(&r, &a, &owns[i], name_of(i),
                  VOW_SHARE(.mode = VOW_FENCED, .ttl_ms = 60000));
        CHECK(owns[i].code == 0 && owns[i].lease != NULL);
    }
    for (size_t i = 0; i < NAMES; i++) {
        vow_name name = vow_name_of(name_of(i));
        f[i] = vow_share(b.a, &name, task_run, &other,
                         VOW_SHARE(.mode = VOW_FENCED));
        if (i % 5 != 0)
            town_pass(&r, i % 5);
        CHECK(vow_lease_resolve(owns[i].lease, town_text(&r, name_of(i))));
    }
    for (size_t i = 0; i < NAMES; i++) {
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f[i]), 0);
        CHECK(says(f[i], name_of(i)));
        vow_future_unref(f[i]);
        CHECK_INT_EQ(town_until(&r, vow_lease_settled(owns[i].lease)), 0);
        turn_drop(&owns[i]);
    }
    CHECK_UINT_EQ(other.runs, 0);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* The same for work that is given up: the next one gets it. */
TEST(etcd_wait, who_comes_while_it_is_abandoned_gets_it)
{
    struct task other = {.r = &r, .text = "again"};
    static vow_future *f[NAMES];
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    for (size_t i = 0; i < NAMES; i++) {
        turn_take(&r, &a, &owns[i], name_of(i), VOW_SHARE(.mode = VOW_FENCED));
        CHECK(owns[i].code == 0 && owns[i].lease != NULL);
    }
    for (size_t i = 0; i < NAMES; i++) {
        vow_name name = vow_name_of(name_of(i));
        f[i] = vow_share(b.a, &name, task_run, &other,
                         VOW_SHARE(.mode = VOW_FENCED));
        if (i % 5 != 0)
            town_pass(&r, i % 5);
        /* The asker of this process goes too: nobody is left here. */
        CHECK(vow_lease_abandon(owns[i].lease));
        (void)vow_cancel(owns[i].result, NULL);
    }
    for (size_t i = 0; i < NAMES; i++) {
        CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f[i]), 0);
        CHECK(says(f[i], "again"));
        vow_future_unref(f[i]);
        turn_drop(&owns[i]);
    }
    CHECK_UINT_EQ(other.runs, NAMES);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* ---- the stream ---------------------------------------------------------- */

TEST(etcd_wait, compaction_does_not_end_a_wait)
{
    open_all();
    for (int i = 0; i < 100; i++)
        etcd_put(&r.k, "elsewhere", "x");
    etcd_compact(&r.k);
    town_pass(&r, 500);
    settle_and_close();
}

TEST(etcd_wait, a_restart_and_compaction_do_not_end_a_wait)
{
    open_all();
    etcd_again(&r.k, 0);
    for (int i = 0; i < 50; i++)
        etcd_put(&r.k, "vow/elsewhere", "x");
    etcd_compact(&r.k);
    settle_and_close();
}

TEST(etcd_wait, a_stream_that_stood_still_does_not_end_a_wait)
{
    open_all();
    etcd_freeze(&r.k, 0);
    town_pass(&r, 6000);
    etcd_thaw(&r.k, 0);
    settle_and_close();
}

/* It happens while nobody listens, and its history is gone when they do. */
TEST(etcd_wait, what_was_compacted_away_is_heard_all_the_same)
{
    enum { PROCS = 3 };
    struct proc p[PROCS];
    struct turn mine;
    town_start(&r, NULL);
    for (size_t i = 0; i < PROCS; i++)
        proc_hire(&p[i],
                  PROC(.kind = PROC_WAITER, .url = r.k.url, .name = "n",
                       .mode = VOW_ONCE, .text = "x", .lease_ms = HELD_MS));
    world_open_real(&r.w);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    turn_take(&r, &a, &mine, "n", VOW_SHARE(.mode = VOW_ONCE, .ttl_ms = 60000));
    CHECK(mine.code == 0 && mine.lease != NULL);
    for (size_t i = 0; i < PROCS; i++) {
        (void)proc_go(&p[i]);
        CHECK(kill(p[i].pid, SIGSTOP) == 0);
    }
    etcd_again(&r.k, 0); /* their streams are cut */
    CHECK_INT_EQ(turn_say(&r, &mine, "x"), 0);
    turn_drop(&mine);
    for (int i = 0; i < 50; i++)
        etcd_put(&r.k, "vow/elsewhere", "x");
    etcd_compact(&r.k);
    for (size_t i = 0; i < PROCS; i++)
        CHECK(kill(p[i].pid, SIGCONT) == 0);
    for (size_t i = 0; i < PROCS; i++) {
        TOWN_UNTIL(&r, proc_told(&p[i]));
        CHECK_INT_EQ(proc_hear(&p[i]), 0);
        CHECK_INT_EQ(proc_hear(&p[i]), 1);
        proc_kill(&p[i]);
    }
    seat_close(&r, &a);
    town_close(&r);
}

/* A waiter that slept for longer than its own lease at etcd has lost what it
 * was registered by. */
TEST(etcd_wait, who_slept_for_longer_than_a_lease_hears_too)
{
    struct proc p;
    struct turn mine;
    town_start(&r, NULL);
    proc_hire(&p, PROC(.kind = PROC_WAITER, .url = r.k.url, .name = "n",
                       .text = "x", .lease_ms = 1000));
    world_open_real(&r.w);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    turn_take(&r, &a, &mine, "n", VOW_SHARE(.ttl_ms = 60000));
    CHECK(mine.code == 0 && mine.lease != NULL);
    (void)proc_go(&p);
    CHECK(kill(p.pid, SIGSTOP) == 0);
    town_pass(&r, 5000);
    CHECK_INT_EQ(turn_say(&r, &mine, "x"), 0);
    turn_drop(&mine);
    CHECK(kill(p.pid, SIGCONT) == 0);
    TOWN_UNTIL(&r, proc_told(&p));
    CHECK_INT_EQ(proc_hear(&p), 0);
    CHECK_INT_EQ(proc_hear(&p), 1);
    proc_kill(&p);
    seat_close(&r, &a);
    town_close(&r);
}

/* ---- the owner ----------------------------------------------------------- */

/* Of all who wait for what a dead process owned, one for each name goes on. */
TEST(etcd_wait, each_name_of_the_dead_goes_to_one)
{
    enum { DEAD = 12, OWNED_S = 600 };
    struct proc p;
    struct task t[2] = {{.r = &r, .text = "x"}, {.r = &r, .text = "x"}};
    static vow_future *f[2][DEAD];
    town_start(&r, NULL);
    proc_hire(&p, PROC(.url = r.k.url, .name = "n", .names = DEAD,
                       .mode = VOW_FENCED, .lease_ms = OWNED_S * 1000));
    world_open_real(&r.w);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    proc_nod(&p);
    for (size_t i = 0; i < DEAD; i++)
        (void)proc_hear(&p);
    for (size_t i = 0; i < DEAD; i++) {
        vow_name name = vow_name_of(name_of(i));
        f[0][i] = vow_share(a.a, &name, task_run, &t[0],
                            VOW_SHARE(.mode = VOW_FENCED, .ttl_ms = 60000));
        f[1][i] = vow_share(b.a, &name, task_run, &t[1],
                            VOW_SHARE(.mode = VOW_FENCED, .ttl_ms = 60000));
    }
    town_pass(&r, 1000);
    CHECK_UINT_EQ(t[0].runs + t[1].runs, 0);
    proc_kill(&p);
    town_end_leases(&r, OWNED_S);
    uint64_t dead = town_ms(&r);
    for (size_t i = 0; i < DEAD; i++)
        for (size_t s = 0; s < 2; s++) {
            CHECK_INT_EQ(vow_loop_run_until(r.w.loop, f[s][i]), 0);
            CHECK(says(f[s][i], "x"));
            vow_future_unref(f[s][i]);
        }
    CHECK(town_ms(&r) - dead < SLACK_MS);
    CHECK_UINT_EQ(t[0].runs + t[1].runs, DEAD);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}
