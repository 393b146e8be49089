/* SPDX-License-Identifier: MIT */
/* sqlite_many_test.c - many processes at once: making the store, fair turns,
 * and what a stopped one costs. */
#include "sqlite_kit.h"

enum { CROWD = 30, WRITERS = 10, RUN_MS = 1500 };

TEST(sqlite_many, all_who_come_first_at_once_have_a_store)
{
    struct folder f;
    char path[300];
    pid_t pids[CROWD];
    atomic_uint *stage = kit_shared(2 * sizeof(*stage));
    folder_open(&f);
    snprintf(path, sizeof(path), "%s/store", f.path);
    for (int i = 0; i < CROWD; i++) {
        pids[i] = kit_child();
        if (pids[i] == 0) {
            struct kit k;
            atomic_fetch_add(&stage[0], 1);
            kit_await(&stage[1], 1);
            kit_open(&k, path);
            CHECK_UINT_EQ(k.damages, 0);
            CHECK_INT_EQ(kit_claim(&k, "a", 1 + (uint64_t)i).code, 0);
            kit_close(&k);
            _exit(0);
        }
    }
    kit_await(&stage[0], CROWD);
    atomic_store(&stage[1], 1);
    for (int i = 0; i < CROWD; i++)
        kit_wait(pids[i]);
    CHECK_UINT_EQ(kit_count(path, "live"), 0);
    folder_close(&f);
}

/* ---- fair turns ---------------------------------------------------------- */

struct score {
    atomic_uint ready, go, stop;
    atomic_uint served; /* claims of all */
    atomic_uint steps[WRITERS];
    atomic_uint late[WRITERS]; /* steps that others overtook too often */
};

/* Claim and give back, as fast as it goes. */
static void writer(const char *folder, struct score *score, int i)
{
    struct kit k;
    char name[32];
    uint64_t token = 1;
    kit_open(&k, folder);
    snprintf(name, sizeof(name), "%d", i);
    atomic_fetch_add(&score->ready, 1);
    kit_await(&score->go, 1);
    while (atomic_load(&score->stop) == 0) {
        unsigned before = atomic_load(&score->served);
        struct kit_answer a = kit_claim(&k, name, ++token);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        unsigned others = atomic_fetch_add(&score->served, 1) - before;
        if (others > 2 * WRITERS)
            atomic_fetch_add(&score->late[i], 1);
        a = kit_abandon(&k, name, token, a.epoch);
        if (a.status != VOW_STATUS_OWNED)
            FAIL("%d, %s", a.code, kit_why(&k));
        atomic_fetch_add(&score->steps[i], 1);
    }
    kit_close(&k);
    _exit(0);
}

/* While one waits, each of the others has a turn or two. Who is paused by the
 * machine just before it stands in line is overtaken, but not mostly. */
TEST(sqlite_many, writers_are_served_in_turn)
{
    struct folder f;
    pid_t pids[WRITERS];
    struct score *score = kit_shared(sizeof(*score));
    folder_open(&f);
    for (int i = 0; i < WRITERS; i++)
        if ((pids[i] = kit_child()) == 0)
            writer(f.path, score, i);
    kit_await(&score->ready, WRITERS);
    atomic_store(&score->go, 1);
    kit_nap_ms(RUN_MS);
    atomic_store(&score->stop, 1);
    for (int i = 0; i < WRITERS; i++) {
        kit_wait(pids[i]);
        unsigned n = atomic_load(&score->steps[i]);
        unsigned late = atomic_load(&score->late[i]);
        if (n > 8 ? 4 * late > n : late == n && n > 1)
            FAIL("of %u steps of one, others overtook %u", n, late);
    }
    folder_close(&f);
}

/* Wherever it is stopped, others go on: either it has nothing that they need,
 * or they hear of it in time. */
TEST(sqlite_many, a_stopped_writer_does_not_stop_the_others)
{
    struct folder f;
    struct kit k;
    char why[600];
    pid_t pids[2];
    uint64_t token = 1;
    unsigned held = 0;
    unsigned blind = 0;
    struct score *score = kit_shared(sizeof(*score));
    folder_open(&f);
    for (int i = 0; i < 2; i++)
        if ((pids[i] = kit_child()) == 0)
            writer(f.path, score, i);
    kit_await(&score->ready, 2);
    atomic_store(&score->go, 1);
    CHECK_INT_EQ(kit_try_open(&k, f.path, 100, why), 0);
    for (int i = 0; i < 60; i++) {
        CHECK(kill(pids[0], SIGSTOP) == 0);
        int code = kit_claim(&k, "x", ++token).code;
        CHECK(code == 0 || code == VOW_EAGAIN);
        held += code != 0;
        code = kit_peek(&k, "x").code;
        CHECK(code == 0 || code == VOW_EAGAIN);
        blind += code != 0;
        CHECK(kill(pids[0], SIGCONT) == 0);
        kit_nap_ms(1 + i % 7);
    }
    CHECK(held < 60); /* it is not always stopped with the lock in hand, */
    CHECK(blind < 6); /* and who only looks, almost always can */
    atomic_store(&score->stop, 1);
    for (int i = 0; i < 2; i++) {
        kit_wait(pids[i]);
        CHECK(atomic_load(&score->steps[i]) > 0);
    }
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_many, a_lock_that_is_never_given_up_is_told_in_time)
{
    struct folder f;
    struct kit k;
    char why[600];
    char path[300];
    sqlite3 *db = NULL;
    folder_open(&f);
    CHECK_INT_EQ(kit_try_open(&k, f.path, 100, why), 0);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    snprintf(path, sizeof(path), "%s/vow.db", f.path);
    CHECK_INT_EQ(sqlite3_open(path, &db), SQLITE_OK);
    CHECK_INT_EQ(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), 0);
    CHECK_INT_EQ(kit_claim(&k, "b", 2).code, VOW_EAGAIN);
    CHECK(strstr(kit_why(&k), "another process has been writing") != NULL);
    CHECK_UINT_EQ(kit_peek(&k, "a").status, VOW_STATUS_WAITING);
    CHECK_INT_EQ(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), 0);
    CHECK_INT_EQ(sqlite3_close(db), 0);
    CHECK_UINT_EQ(kit_claim(&k, "b", 2).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

/* ---- killed at any time -------------------------------------------------- */

enum { NAMES = 3, KILLS = 120, WORKERS = 6 };

struct ledger {
    _Atomic uint64_t epoch[NAMES]; /* the highest that was given */
    atomic_int owner[NAMES];       /* pid, while it works */
    atomic_int doomed[KILLS];      /* pids, just before they are killed */
    atomic_uint works;
    atomic_uint over; /* all of them are */
};

static bool doomed(struct ledger *l, int pid)
{
    for (int i = 0; i < KILLS; i++)
        if (atomic_load(&l->doomed[i]) == pid)
            return true;
    return atomic_load(&l->over) != 0;
}

/* Own a name, work for a moment, give it back. One before that has not given it
 * back must have been killed. */
static void worker(const char *folder, struct ledger *l, uint64_t seed)
{
    struct kit k;
    kit_open(&k, folder);
    for (;;) {
        size_t n = test_random(&seed) % NAMES;
        char name[2] = {(char)('a' + n), '\0'};
        uint64_t token = test_random(&seed);
        struct kit_answer a = kit_claim(&k, name, token);
        CHECK_INT_EQ(a.code, 0);
        if (a.status != VOW_STATUS_OWNED) {
            VOW_AUTO(vow_future) pause = vow_delay(k.world.loop, 1);
            CHECK_INT_EQ(vow_loop_run_until(k.world.loop, pause), 0);
            continue;
        }
        int before = atomic_exchange(&l->owner[n], (int)getpid());
        CHECK(before == 0 || doomed(l, before));
        CHECK(atomic_exchange(&l->epoch[n], a.epoch) < a.epoch);
        if (test_random(&seed) % 4 == 0)
            kit_nap_ms(1);
        atomic_store(&l->owner[n], 0);
        atomic_fetch_add(&l->works, 1);
        CHECK_UINT_EQ(kit_abandon(&k, name, token, a.epoch).status,
                      VOW_STATUS_OWNED);
    }
}

TEST(sqlite_many, one_owner_at_a_time_whoever_is_killed)
{
    struct folder f;
    pid_t pids[WORKERS];
    struct ledger *l = kit_shared(sizeof(*l));
    uint64_t seed = test_seed();
    folder_open(&f);
    for (int i = 0; i < WORKERS; i++)
        if ((pids[i] = kit_child()) == 0)
            worker(f.path, l, seed + (uint64_t)i);
    for (int i = 0; i < KILLS; i++) {
        size_t victim = test_random(&seed) % WORKERS;
        kit_nap_ms((long)(test_random(&seed) % 15));
        int status;
        atomic_store(&l->doomed[i], (int)pids[victim]);
        CHECK(kill(pids[victim], SIGKILL) == 0);
        CHECK(waitpid(pids[victim], &status, 0) == pids[victim]);
        CHECK(WIFSIGNALED(status)); /* else it found something wrong */
        if ((pids[victim] = kit_child()) == 0)
            worker(f.path, l, test_random(&seed));
    }
    atomic_store(&l->over, 1);
    for (int i = 0; i < WORKERS; i++)
        kit_kill(pids[i]);
    CHECK(atomic_load(&l->works) > 0);
    struct kit k; /* and the file is whole */
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    for (int i = 0; i < 4; i++)
        vow__file_sweep_files(vow__file_of(k.store));
    CHECK_UINT_EQ(kit_count(f.path, "live"), 1);
    kit_close(&k);
    kit_sql(f.path, "PRAGMA wal_checkpoint(TRUNCATE)");
    folder_close(&f);
}
