/* SPDX-License-Identifier: MIT */
/* sqlite_live_test.c - processes that die, stop and fork. */
#include "sqlite_kit.h"

#include <fcntl.h>

/* A child that owns a name and holds the only place of a pool, and stays. */
static pid_t owner(const char *folder, atomic_uint *stage)
{
    struct kit k;
    pid_t pid = kit_child();
    if (pid != 0)
        return pid;
    kit_open(&k, folder);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 1).status, VOW_STATUS_OWNED);
    atomic_fetch_add(stage, 1);
    for (;;)
        kit_nap_ms(1000);
}

/* The lease lasts for an hour, and nobody looks again by himself: it is the
 * death itself that is told. */
TEST(sqlite_live, the_work_of_who_was_killed_is_taken_over_at_once)
{
    struct folder f;
    struct kit k;
    atomic_uint *stage = kit_shared(sizeof(*stage));
    folder_open(&f);
    pid_t pid = owner(f.path, stage);
    kit_await(stage, 1);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 2).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 2).status, VOW_STATUS_WAITING);
    kit_kill(pid);
    kit_run_until(&k, &k.records, 1);
    kit_run_until(&k, &k.places, 1);
    struct kit_answer a = kit_claim(&k, "a", 2);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 1);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 2).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_count(f.path, "live"), 1);
    CHECK_UINT_EQ(kit_count(f.path, "sock"), 1);
    kit_close(&k);
    CHECK_UINT_EQ(kit_count(f.path, "live"), 0);
    CHECK_UINT_EQ(kit_count(f.path, "sock"), 0);
    folder_close(&f);
}

/* Who comes later finds out by himself. */
TEST(sqlite_live, the_dead_are_found_by_whoever_asks)
{
    struct folder f;
    struct kit k;
    atomic_uint *stage = kit_shared(sizeof(*stage));
    folder_open(&f);
    pid_t pid = owner(f.path, stage);
    kit_await(stage, 1);
    kit_kill(pid);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_peek(&k, "a").status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(kit_claim(&k, "a", 2).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 2).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_live, a_dead_one_in_the_queue_does_not_block_it)
{
    struct folder f;
    struct kit k;
    atomic_uint *stage = kit_shared(sizeof(*stage));
    folder_open(&f);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 1).status, VOW_STATUS_OWNED);
    pid_t pid = kit_child();
    if (pid == 0) {
        struct kit child;
        kit_open(&child, f.path);
        CHECK_UINT_EQ(kit_acquire(&child, "p", 2).status, VOW_STATUS_WAITING);
        atomic_store(stage, 1);
        for (;;)
            kit_nap_ms(1000);
    }
    kit_await(stage, 1);
    kit_kill(pid);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 3).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(kit_release(&k, "p", 1).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 3).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

struct seen {
    int code;
    uint32_t waiters;
    uint64_t holders;
    uint64_t waiting;
    size_t pools;
};

static void see_names(int code, const vow_record *r, size_t n, void *user)
{
    struct seen *s = user;
    s->code = code;
    s->waiters = n == 1 ? r->waiters : UINT32_MAX;
}

static void see_pools(int code, const vow_pool_info *p, size_t n, void *user)
{
    struct seen *s = user;
    s->code = code;
    s->pools = n;
    s->holders = n == 1 ? p->holders : UINT64_MAX;
    s->waiting = n == 1 ? p->waiting : UINT64_MAX;
}

static struct seen look_around(struct kit *k)
{
    struct seen s = {.code = 1};
    k->store->ops->list(k->store, see_names, &s);
    CHECK_INT_EQ(s.code, 0);
    k->store->ops->pools(k->store, see_pools, &s);
    CHECK_INT_EQ(s.code, 0);
    return s;
}

TEST(sqlite_live, who_looks_does_not_see_the_dead)
{
    struct folder f;
    struct kit k;
    atomic_uint *stage = kit_shared(sizeof(*stage));
    folder_open(&f);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    pid_t pids[2];
    for (unsigned i = 0; i < 2; i++) {
        if ((pids[i] = kit_child()) == 0) {
            struct kit child;
            kit_open(&child, f.path);
            CHECK_UINT_EQ(kit_claim(&child, "a", 2 + i).status,
                          VOW_STATUS_WAITING);
            CHECK_UINT_EQ(kit_acquire(&child, "p", 2 + i).status,
                          i == 0 ? VOW_STATUS_OWNED : VOW_STATUS_WAITING);
            atomic_fetch_add(stage, 1);
            for (;;)
                kit_nap_ms(1000);
        }
        kit_await(stage, i + 1);
    }
    struct seen s = look_around(&k);
    CHECK(s.waiters == 2 && s.holders == 1 && s.waiting == 1);
    kit_kill(pids[0]);
    s = look_around(&k);
    CHECK(s.waiters == 1 && s.holders == 1 && s.waiting == 0);
    kit_kill(pids[1]);
    s = look_around(&k);
    CHECK(s.waiters == 0 && s.holders == 0 && s.waiting == 0);
    kit_close(&k);
    folder_close(&f);
}

static int64_t a_minute_later(void)
{
    return vow__file_clock_us() + 60000000;
}

TEST(sqlite_live, what_was_lost_long_ago_counts_no_more)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    vow_claim_request ask = {.name = vow_name_of("a"), .takeovers = 2};
    for (uint32_t i = 0; i < 3; i++) {
        ask.token = kit_token(1 + i);
        CHECK_UINT_EQ(kit_claim_as(&k, &ask).takeovers, i);
    }
    vow__file_of(k.store)->clock_us = a_minute_later;
    ask.token = kit_token(9);
    struct kit_answer a = kit_claim_as(&k, &ask);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 0);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_live, once_and_dead_is_in_doubt)
{
    struct folder f;
    struct kit k;
    atomic_uint *stage = kit_shared(sizeof(*stage));
    folder_open(&f);
    pid_t pid = kit_child();
    if (pid == 0) {
        kit_open(&k, f.path);
        vow_claim_request ask = kit_ask("a", 1);
        ask.mode = VOW_ONCE;
        CHECK_UINT_EQ(kit_claim_as(&k, &ask).status, VOW_STATUS_OWNED);
        atomic_store(stage, 1);
        for (;;)
            kit_nap_ms(1000);
    }
    kit_await(stage, 1);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 2).status, VOW_STATUS_WAITING);
    kit_kill(pid);
    CHECK_UINT_EQ(kit_claim(&k, "a", 2).status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(kit_peek(&k, "a").status, VOW_STATUS_DOUBT);
    kit_close(&k);
    folder_close(&f);
}

/* Who is stopped lives: only its lease can end. And then it comes too late. */
TEST(sqlite_live, who_is_stopped_is_replaced_when_its_lease_ends)
{
    struct folder f;
    struct kit k;
    atomic_uint *stage = kit_shared(2 * sizeof(*stage));
    folder_open(&f);
    pid_t pid = kit_child();
    if (pid == 0) {
        kit_open(&k, f.path);
        vow_claim_request ask = kit_ask("a", 1);
        ask.lease_ms = 300;
        uint64_t epoch = kit_claim_as(&k, &ask).epoch;
        atomic_store(&stage[0], 1);
        kit_await(&stage[1], 1);
        CHECK_UINT_EQ(kit_commit(&k, "a", 1, epoch, 1).status, VOW_STATUS_LOST);
        kit_close(&k);
        _exit(0);
    }
    kit_await(&stage[0], 1);
    CHECK(kill(pid, SIGSTOP) == 0);
    kit_open(&k, f.path);
    struct kit_answer a = kit_claim(&k, "a", 2);
    while (a.status == VOW_STATUS_WAITING) {
        kit_nap_ms(10);
        a = kit_claim(&k, "a", 2);
    }
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(kill(pid, SIGCONT) == 0);
    atomic_store(&stage[1], 1);
    kit_wait(pid);
    CHECK_UINT_EQ(kit_commit(&k, "a", 2, a.epoch, 2).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

/* ---- fork ---------------------------------------------------------------- */

TEST(sqlite_live, a_child_by_fork_can_do_nothing_and_disturbs_nobody)
{
    struct folder f;
    struct kit k;
    struct kit other;
    folder_open(&f);
    kit_open(&k, f.path);
    uint64_t epoch = kit_claim(&k, "a", 1).epoch;
    pid_t pid = kit_child();
    if (pid == 0) {
        CHECK_INT_EQ(kit_claim(&k, "b", 2).code, VOW_ESTORE);
        CHECK(strstr(kit_why(&k), "fork") != NULL);
        CHECK_INT_EQ(kit_commit(&k, "a", 1, epoch, 100000).code, VOW_ESTORE);
        CHECK_INT_EQ(kit_peek(&k, "a").code, VOW_ESTORE);
        VOW_AUTO(vow_future) closed = k.store->ops->close(k.store);
        CHECK(vow_state_of(closed) == VOW_FULFILLED);
        closed = vow_future_unref(closed);
        kit_open(&other, f.path); /* its own works */
        CHECK_UINT_EQ(kit_claim(&other, "a", 3).status, VOW_STATUS_WAITING);
        kit_close(&other);
        _exit(0);
    }
    kit_wait(pid);
    pid = kit_child(); /* and one that only ends, whatever it has inherited */
    if (pid == 0)
        _exit(0);
    kit_wait(pid);
    CHECK_UINT_EQ(kit_pulse(&k, "a", 1, epoch).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_commit(&k, "a", 1, epoch, 3).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

/* Locks of the open file would go on in the child, this one does not. */
TEST(sqlite_live, an_owner_is_dead_though_its_child_lives)
{
    struct folder f;
    struct kit k;
    atomic_uint *stage = kit_shared(2 * sizeof(*stage));
    folder_open(&f);
    pid_t pid = kit_child();
    if (pid == 0) {
        kit_open(&k, f.path);
        CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
        if (kit_child() == 0) {
            atomic_store(&stage[0], 1);
            kit_await(&stage[1], 1);
            _exit(0);
        }
        for (;;)
            kit_nap_ms(1000);
    }
    kit_await(&stage[0], 1);
    kit_kill(pid);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 2).status, VOW_STATUS_OWNED);
    kit_close(&k);
    atomic_store(&stage[1], 1);
    folder_close(&f);
}

/* To look at the instances of one's own process must not cost their locks. */
TEST(sqlite_live, two_stores_of_one_process_stay_alive)
{
    struct folder f;
    struct kit a;
    struct kit b;
    folder_open(&f);
    kit_open(&a, f.path);
    kit_open(&b, f.path);
    CHECK_UINT_EQ(kit_claim(&a, "a", 1).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_claim(&b, "b", 2).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_claim(&b, "a", 3).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(kit_claim(&a, "b", 4).status, VOW_STATUS_WAITING);
    vow__file_sweep_files(vow__file_of(a.store));
    pid_t pid = kit_child();
    if (pid == 0) {
        struct kit k;
        kit_open(&k, f.path);
        CHECK_UINT_EQ(kit_claim(&k, "a", 5).status, VOW_STATUS_WAITING);
        CHECK_UINT_EQ(kit_claim(&k, "b", 5).status, VOW_STATUS_WAITING);
        vow__file_sweep_files(vow__file_of(k.store));
        CHECK_UINT_EQ(kit_claim(&k, "a", 5).status, VOW_STATUS_WAITING);
        kit_close(&k);
        _exit(0);
    }
    kit_wait(pid);
    kit_close(&a);
    kit_close(&b);
    folder_close(&f);
}

TEST(sqlite_live, who_only_looks_sweeps_no_other_store_of_its_process)
{
    struct folder f;
    struct kit owner;
    struct kit other;
    vow_pool_limits limits = {.concurrent = 1};
    vow_name pool = vow_name_of("p");
    struct seen s;
    folder_open(&f);
    kit_open(&owner, f.path);
    kit_open(&other, f.path);
    CHECK_UINT_EQ(kit_claim(&owner, "a", 1).status, VOW_STATUS_OWNED);
    for (int i = 0; i < 4000; i++) { /* a sweep comes by chance */
        limits.concurrent = 1 + (uint32_t)i % 2;
        other.store->ops->limit(other.store, &pool, &limits, "p", see_pools,
                                &s);
        CHECK_INT_EQ(s.code, 0);
    }
    CHECK_UINT_EQ(kit_count(f.path, "live"), 1);
    CHECK_UINT_EQ(kit_claim(&other, "a", 2).status, VOW_STATUS_WAITING);
    kit_close(&other);
    kit_close(&owner);
    folder_close(&f);
}

TEST(sqlite_live, what_the_dead_left_is_swept)
{
    struct folder f;
    struct kit k;
    atomic_uint *stage = kit_shared(sizeof(*stage));
    folder_open(&f);
    for (unsigned i = 1; i <= 3; i++) {
        pid_t pid = owner(f.path, stage);
        kit_await(stage, i);
        kit_kill(pid);
    }
    CHECK_UINT_EQ(kit_count(f.path, "live"), 3);
    kit_open(&k, f.path);
    vow__file_sweep_files(vow__file_of(k.store));
    CHECK_UINT_EQ(kit_count(f.path, "live"), 0);
    CHECK_UINT_EQ(kit_count(f.path, "sock"), 0);
    kit_close(&k);
    folder_close(&f);
}

/* The start counts for half a minute: then no key is known any more. A key with
 * a permit stays. */
TEST(sqlite_live, keys_of_a_pool_with_a_rate_are_swept)
{
    enum { KEYS = 20 };
    struct folder f;
    struct kit k;
    struct seen s = {.code = 1};
    struct kit_answer a;
    folder_open(&f);
    kit_open(&k, f.path);
    for (uint64_t i = 1; i <= KEYS; i++) {
        char key[32];
        snprintf(key, sizeof(key), "p:%d", (int)i);
        vow_permit_request ask = {.pool = vow_name_of(key),
                                  .limits_of = vow_name_of("p"),
                                  .token = kit_token(i),
                                  .weight = 1,
                                  .lease_ms = KIT_LONG_MS,
                                  .limits = {.rate = 2, .window_us = 30000000}};
        k.store->ops->acquire(k.store, &ask, kit_on_place_answer, &a);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        if (i < KEYS)
            CHECK_UINT_EQ(kit_release(&k, key, i).status, VOW_STATUS_OWNED);
    }
    k.store->ops->pools(k.store, see_pools, &s);
    CHECK_UINT_EQ(s.pools, 1 + KEYS);
    vow__file_of(k.store)->clock_us = a_minute_later;
    do { /* a sweep comes by chance, with a step that writes */
        CHECK_UINT_EQ(kit_release(&k, "p", 99).status, VOW_STATUS_NONE);
        k.store->ops->pools(k.store, see_pools, &s);
    } while (s.pools > 2);
    CHECK_UINT_EQ(s.pools, 2);
    vow__file_of(k.store)->clock_us = vow__file_clock_us;
    kit_close(&k);
    folder_close(&f);
}

/* Once a minute, whoever leaves sweeps: what the dead have left, also a socket
 * alone, and results in files that are over. */
TEST(sqlite_live, who_leaves_sweeps_if_that_is_due)
{
    struct folder f;
    struct kit k;
    struct kit_answer got;
    char path[300];
    atomic_uint *stage = kit_shared(sizeof(*stage));
    VOW_AUTO(vow_bytes) value = NULL;
    folder_open(&f);
    kit_open(&k, f.path);
    CHECK_INT_EQ(vow_bytes_new(k.world.loop, NULL, 100000, &value), 0);
    vow_commit_request commit = {.hold = {.name = vow_name_of("v"),
                                          .token = kit_token(1),
                                          .epoch = kit_claim(&k, "v", 1).epoch},
                                 .outcome = VOW_OUTCOME_DONE,
                                 .ttl_ms = 1,
                                 .value = value};
    k.store->ops->commit(k.store, &commit, kit_on_answer, &got);
    CHECK_UINT_EQ(got.status, VOW_STATUS_OWNED);
    while (kit_peek(&k, "v").status != VOW_STATUS_NONE)
        kit_nap_ms(1);
    value = vow_bytes_unref(value);
    for (unsigned i = 1; i <= 100; i++) { /* more than are swept in one go */
        pid_t pid = owner(f.path, stage);
        kit_await(stage, i);
        kit_kill(pid);
    }
    kit_close(&k);
    snprintf(path, sizeof(path), "%s/sock/%032d", f.path, 7);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    snprintf(path, sizeof(path), "%s/mark", f.path);
    CHECK(truncate(path, 0) == 0); /* or longer ago */
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "y", 1).status, VOW_STATUS_OWNED);
    kit_close(&k);
    CHECK_UINT_EQ(kit_count(f.path, "live"), 0);
    CHECK_UINT_EQ(kit_count(f.path, "sock"), 0);
    CHECK_UINT_EQ(kit_count(f.path, "val"), 0);
    folder_close(&f);
}

/* A reader, and the owner of a name, which commits and ends when the reader has
 * read the name for the first time. */
struct reading {
    struct kit *owner;
    vow_name name;
    uint64_t epoch;
    unsigned reads;
    uint32_t status;
};

static int read_and_judge(struct vow__file *s, void *arg)
{
    struct reading *r = arg;
    struct vow__file_row row;
    int rc = vow__file_row_find(s, &r->name, &row);
    if (r->reads++ == 0) {
        CHECK_UINT_EQ(kit_commit(r->owner, "a", 1, r->epoch, 1).status,
                      VOW_STATUS_OWNED);
        kit_close(r->owner);
    }
    vow__file_row_bury(s, &row, NULL);
    r->status = vow__rules_peek(&row.record, (uint64_t)s->now_us);
    return rc;
}

TEST(sqlite_live, who_commits_and_ends_while_it_is_read_is_not_taken_for_dead)
{
    struct folder f;
    struct kit owner;
    struct kit k;
    folder_open(&f);
    kit_open(&owner, f.path);
    kit_open(&k, f.path);
    vow_claim_request ask = kit_ask("a", 1);
    ask.mode = VOW_ONCE;
    struct reading r = {.owner = &owner,
                        .name = ask.name,
                        .epoch = kit_claim_as(&owner, &ask).epoch};
    CHECK_INT_EQ(vow__file_step(vow__file_of(k.store), VOW__FILE_READ,
                                read_and_judge, &r),
                 0);
    CHECK_UINT_EQ(r.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(r.reads, 2);
    kit_close(&k);
    folder_close(&f);
}
