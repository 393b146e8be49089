/* SPDX-License-Identifier: MIT */
/* sqlite_damage_test.c - a damaged file is set aside, and that is told. */
#include "sqlite_kit.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { PAGE = 4096 };

/* A store with so many results, all in the file and none in the log. */
static void fill(const char *folder, unsigned names)
{
    struct kit k;
    kit_open(&k, folder);
    for (unsigned i = 0; i < names; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%u", i);
        uint64_t epoch = kit_claim(&k, name, 1).epoch;
        CHECK_UINT_EQ(kit_commit(&k, name, 1, epoch, 300).status,
                      VOW_STATUS_OWNED);
    }
    kit_close(&k);
    kit_sql(folder, "PRAGMA wal_checkpoint(TRUNCATE)");
}

/* Write noise over the file from one page on, to another. */
static void spoil(const char *folder, off_t from_page, off_t to_page)
{
    char path[300];
    unsigned char noise[PAGE];
    uint64_t seed = 42;
    snprintf(path, sizeof(path), "%s/vow.db", folder);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    for (off_t page = from_page; page < to_page; page++) {
        for (size_t i = 0; i < PAGE; i++)
            noise[i] = (unsigned char)test_random(&seed);
        CHECK(pwrite(fd, noise, PAGE, page * PAGE) == PAGE);
    }
    close(fd);
}

static void check_aside(struct kit *k, const char *folder, const char *name)
{
    char path[300];
    struct stat st;
    CHECK_UINT_EQ(k->damages, 1);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    CHECK_STR_EQ(k->damaged, path);
    CHECK(stat(path, &st) == 0);
}

TEST(sqlite_damage, noise_is_set_aside_when_it_is_opened)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    fill(f.path, 5);
    spoil(f.path, 0, 5);
    kit_open(&k, f.path);
    check_aside(&k, f.path, "vow.db.damaged-1");
    CHECK_UINT_EQ(kit_claim(&k, "1", 2).status, VOW_STATUS_OWNED);
    kit_close(&k);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(k.damages, 0);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_damage, noise_in_the_middle_is_met_by_a_step)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    fill(f.path, 200);
    spoil(f.path, 3, 200);
    kit_open(&k, f.path);
    for (unsigned i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%u", i);
        struct kit_answer a = kit_claim(&k, name, 2);
        CHECK_INT_EQ(a.code, 0);
        CHECK(a.status == VOW_STATUS_OWNED || k.damages == 0);
    }
    check_aside(&k, f.path, "vow.db.damaged-1");
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_damage, one_after_the_other_each_has_its_own_name)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    for (int i = 1; i <= 3; i++) {
        char name[32];
        snprintf(name, sizeof(name), "vow.db.damaged-%d", i);
        fill(f.path, 2);
        spoil(f.path, 0, 2);
        kit_open(&k, f.path);
        check_aside(&k, f.path, name);
        kit_close(&k);
    }
    folder_close(&f);
}

TEST(sqlite_damage, an_empty_file_is_none_of_ours)
{
    struct folder f;
    struct kit k;
    char path[300];
    folder_open(&f);
    fill(f.path, 2);
    snprintf(path, sizeof(path), "%s/vow.db", f.path);
    CHECK(truncate(path, 0) == 0);
    kit_open(&k, f.path);
    check_aside(&k, f.path, "vow.db.damaged-1");
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_damage, a_database_of_somebody_else_is_none_of_ours)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_sql(f.path, "CREATE TABLE other(x); PRAGMA user_version=1");
    kit_open(&k, f.path);
    check_aside(&k, f.path, "vow.db.damaged-1");
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_damage, a_row_that_cannot_be_read_is_damage)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    fill(f.path, 3);
    kit_sql(f.path, "UPDATE rec SET body=x'00'");
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "1", 2).status, VOW_STATUS_OWNED);
    check_aside(&k, f.path, "vow.db.damaged-1");
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_damage, a_newer_version_is_refused_and_stays)
{
    struct folder f;
    struct kit k;
    char why[600];
    folder_open(&f);
    fill(f.path, 3);
    kit_sql(f.path, "PRAGMA user_version=3");
    CHECK_INT_EQ(kit_try_open(&k, f.path, 0, why), VOW_ESTORE);
    CHECK(strstr(why, "newer") != NULL);
    kit_sql(f.path, "PRAGMA user_version=2");
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "1", 2).status, VOW_STATUS_SETTLED);
    kit_close(&k);
    folder_close(&f);
}

/* Who has the old file open goes over to the new one with its next step. */
TEST(sqlite_damage, all_who_have_it_open_notice)
{
    struct folder f;
    struct kit a;
    struct kit b;
    folder_open(&f);
    fill(f.path, 200);
    kit_open(&a, f.path);
    kit_open(&b, f.path);
    CHECK_UINT_EQ(kit_claim(&b, "before", 1).status, VOW_STATUS_OWNED);
    spoil(f.path, 3, 200);
    for (unsigned i = 0; i < 200 && a.damages == 0; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%u", i);
        CHECK_INT_EQ(kit_claim(&a, name, 2).code, 0);
    }
    check_aside(&a, f.path, "vow.db.damaged-1");
    uint64_t epoch = kit_claim(&a, "x", 3).epoch;
    CHECK_UINT_EQ(kit_claim(&b, "x", 4).status, VOW_STATUS_WAITING);
    kit_run_until(&b, &b.doubts, 1);
    CHECK_UINT_EQ(kit_pulse(&b, "before", 1, 1).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_claim(&a, "before", 5).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(kit_commit(&a, "x", 3, epoch, 4).status, VOW_STATUS_OWNED);
    kit_run_until(&b, &b.records, 1);
    kit_close(&a);
    kit_close(&b);
    folder_close(&f);
}

/* ---- what must not be begun twice ---------------------------------------- */

static struct kit_answer claim_once(struct kit *k, const char *name,
                                    uint64_t token)
{
    vow_claim_request ask = kit_ask(name, token);
    ask.mode = VOW_ONCE;
    return kit_claim_as(k, &ask);
}

/* Make a name that was begun in mode VOW_ONCE and has a result. */
static void settle_once(const char *folder, const char *name)
{
    struct kit k;
    kit_open(&k, folder);
    struct kit_answer a = claim_once(&k, name, 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_commit(&k, name, 1, a.epoch, 3).status, VOW_STATUS_OWNED);
    kit_close(&k);
    kit_sql(folder, "PRAGMA wal_checkpoint(TRUNCATE)");
}

/* Every caller is refused, as often as it asks, until `lost` is removed. */
static void check_once_refused(const char *folder, const char *why)
{
    struct kit k;
    char path[300];
    for (int i = 0; i < 2; i++) {
        kit_open(&k, folder);
        CHECK_UINT_EQ(kit_claim(&k, "shared", 7).status, VOW_STATUS_OWNED);
        for (uint64_t token = 8; token < 10; token++) {
            CHECK_INT_EQ(claim_once(&k, "pay", token).code, VOW_EIO);
            if (strstr(kit_why(&k), why) == NULL ||
                strstr(kit_why(&k), "/lost") == NULL)
                FAIL("\"%s\" does not say \"%s\"", kit_why(&k), why);
        }
        kit_close(&k);
    }
    snprintf(path, sizeof(path), "%s/lost", folder);
    CHECK(unlink(path) == 0);
    for (int i = 0; i < 2; i++) {
        kit_open(&k, folder);
        CHECK_UINT_EQ(claim_once(&k, "pay", 11).status, VOW_STATUS_OWNED);
        kit_close(&k);
    }
}

TEST(sqlite_damage, nothing_is_begun_once_after_a_damage)
{
    struct folder f;
    folder_open(&f);
    settle_once(f.path, "pay");
    spoil(f.path, 0, 5);
    check_once_refused(f.path, "damaged");
    folder_close(&f);
}

/* The damage is in the table of all records: copies, limits and the highest
 * epoch lie elsewhere. */
TEST(sqlite_damage, what_must_survive_is_taken_from_a_damaged_file)
{
    struct folder f;
    struct kit k;
    vow_name pool = vow_name_of("pool");
    vow_pool_limits limits = {.concurrent = 7};
    vow_pool_info info = {.label = NULL};
    folder_open(&f);
    settle_once(f.path, "pay");
    kit_open(&k, f.path);
    struct kit_answer doubt = claim_once(&k, "sent", 2);
    CHECK_UINT_EQ(doubt.status, VOW_STATUS_OWNED);
    k.store->ops->limit(k.store, &pool, &limits, "pool", kit_on_pool, &info);
    kit_close(&k);
    fill(f.path, 200);
    spoil(f.path, 8, 200);
    kit_open(&k, f.path);
    for (unsigned i = 0; i < 200; i++) {
        char name[32];
        snprintf(name, sizeof(name), "%u", i);
        CHECK_INT_EQ(kit_claim(&k, name, 2).code, 0);
    }
    check_aside(&k, f.path, "vow.db.damaged-1");
    CHECK_UINT_EQ(claim_once(&k, "pay", 11).status, VOW_STATUS_SETTLED);
    struct kit_answer a = claim_once(&k, "sent", 12);
    CHECK_UINT_EQ(a.status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(a.epoch, doubt.epoch);
    CHECK_INT_EQ(claim_once(&k, "new", 13).code, VOW_EIO);
    info.limits.concurrent = 0;
    k.store->ops->limit(k.store, &pool, NULL, NULL, kit_on_pool, &info);
    CHECK_UINT_EQ(info.limits.concurrent, 7);
    CHECK(kit_claim(&k, "b", 14).epoch > doubt.epoch);
    kit_close(&k);
    folder_close(&f);
}

static void keep_times(int code, const vow_record *r, size_t n, void *user)
{
    CHECK(code == 0 && n == 1);
    *(vow_record *)user = *r;
}

/* The process that finds the damage has not made a step yet. */
TEST(sqlite_damage, a_salvaged_result_has_all_of_its_time_to_live)
{
    struct folder f;
    struct kit k;
    vow_record r;
    folder_open(&f);
    settle_once(f.path, "pay");
    kit_sql(f.path, "DELETE FROM meta");
    uint64_t before_ms = kit_now_ms();
    kit_open(&k, f.path);
    check_aside(&k, f.path, "vow.db.damaged-1");
    vow_claim_request ask = kit_ask("pay", 2);
    ask.mode = VOW_ONCE;
    k.store->ops->claim(k.store, &ask, keep_times, &r);
    uint64_t took_ms = kit_now_ms() - before_ms;
    CHECK_UINT_EQ(r.status, VOW_STATUS_SETTLED);
    CHECK(r.age_ms <= took_ms + 1);
    CHECK(r.left_ms + took_ms + 1 >= KIT_LONG_MS);
    kit_close(&k);
    folder_close(&f);
}

static void die_on_damage(const char *moved_to, void *user)
{
    (void)moved_to;
    (void)user;
    _exit(0);
}

static void set_limit(const char *folder, const char *pool, uint32_t concurrent)
{
    struct kit k;
    vow_name name = vow_name_of(pool);
    vow_pool_limits limits = {.concurrent = concurrent};
    vow_pool_info info = {.label = NULL};
    kit_open(&k, folder);
    k.store->ops->limit(k.store, &name, &limits, pool, kit_on_pool, &info);
    CHECK_UINT_EQ(info.limits.concurrent, concurrent);
    kit_close(&k);
    kit_sql(folder, "PRAGMA wal_checkpoint(TRUNCATE)");
}

/* The damaged file has its other name, and the new file has none yet. */
TEST(sqlite_damage, who_dies_while_a_file_is_set_aside_loses_nothing)
{
    struct folder f;
    struct kit k;
    vow_name pool = vow_name_of("pool");
    vow_pool_info info = {.label = NULL};
    folder_open(&f);
    settle_once(f.path, "pay");
    set_limit(f.path, "pool", 7);
    kit_sql(f.path, "DELETE FROM meta");
    pid_t pid = kit_child();
    if (pid == 0) {
        struct world w;
        world_open_real(&w);
        vow_future_unref(vow_store_sqlite_open(
            w.loop, f.path, VOW_SQLITE_OPTS(.on_damage = die_on_damage)));
        _exit(1);
    }
    kit_wait(pid);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(k.damages, 0);
    CHECK_UINT_EQ(claim_once(&k, "pay", 11).status, VOW_STATUS_SETTLED);
    CHECK_INT_EQ(claim_once(&k, "new", 12).code, VOW_EIO);
    k.store->ops->limit(k.store, &pool, NULL, NULL, kit_on_pool, &info);
    CHECK_UINT_EQ(info.limits.concurrent, 7);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_damage, nothing_is_begun_once_after_the_file_was_removed)
{
    struct folder f;
    char path[300];
    folder_open(&f);
    settle_once(f.path, "pay");
    snprintf(path, sizeof(path), "%s/vow.db", f.path);
    CHECK(unlink(path) == 0);
    check_once_refused(f.path, "removed");
    folder_close(&f);
}

TEST(sqlite_damage, nothing_is_begun_once_after_an_older_copy_came_back)
{
    struct folder f;
    char command[700];
    folder_open(&f);
    settle_once(f.path, "other");
    snprintf(command, sizeof(command), "cp '%s/vow.db' '%s/copy'", f.path,
             f.path);
    CHECK_INT_EQ(system(command), 0);
    settle_once(f.path, "pay");
    snprintf(command, sizeof(command),
             "rm -f '%s'/vow.db-* && cp '%s/copy' '%s/vow.db'", f.path, f.path,
             f.path);
    CHECK_INT_EQ(system(command), 0);
    check_once_refused(f.path, "older copy");
    folder_close(&f);
}

/* A process that has used the folder knows that there were records in it. */
TEST(sqlite_damage, who_used_a_removed_folder_begins_nothing_once)
{
    struct folder f;
    struct kit k;
    char path[300];
    folder_open(&f);
    snprintf(path, sizeof(path), "%s/store", f.path);
    kit_open(&k, path);
    CHECK_UINT_EQ(claim_once(&k, "pay", 1).status, VOW_STATUS_OWNED);
    folder_remove(path);
    CHECK_INT_EQ(claim_once(&k, "pay", 2).code, VOW_EIO);
    kit_close(&k);
    folder_close(&f);
}

/* ---- rows that make no sense --------------------------------------------- */

static void on_pools(int code, const vow_pool_info *pools, size_t n, void *user)
{
    (void)pools;
    (void)n;
    *(int *)user = code;
}

/* Rows are walked through by their ids: one of another size has no next. */
TEST(sqlite_damage, an_id_of_the_wrong_size_is_no_walk_without_end)
{
    static const char *const poison[] = {
        "UPDATE pool SET id=x'ff'",
        "UPDATE pool SET id=zeroblob(33)",
        "UPDATE permit SET pool=x'01'",
    };
    for (size_t i = 0; i < sizeof(poison) / sizeof(poison[0]); i++) {
        struct folder f;
        struct kit k;
        int code = 1;
        folder_open(&f);
        kit_open(&k, f.path);
        CHECK_UINT_EQ(kit_acquire(&k, "p", 1).status, VOW_STATUS_OWNED);
        kit_sql(f.path, poison[i]);
        k.store->ops->pools(k.store, on_pools, &code);
        CHECK_INT_EQ(code, 0);
        kit_close(&k); /* gives places back */
        kit_open(&k, f.path);
        CHECK_UINT_EQ(kit_claim(&k, "a", 2).status, VOW_STATUS_OWNED);
        kit_close(&k);
        folder_close(&f);
    }
}

/* The permit is there, and the pool says that it has none. */
TEST(sqlite_damage, a_pool_that_does_not_count_its_permits_is_damage)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 1).status, VOW_STATUS_OWNED);
    kit_sql(f.path, "UPDATE pool SET held=0,holders=0,open=0");
    kit_close(&k); /* gives the permit back */
    CHECK_UINT_EQ(k.damages, 1);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 2).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_damage, numbers_that_would_overflow_are_damage)
{
    /* The token, and 14 numbers: the epoch, or the time since, is the largest
     * number that there is. And a refresher with the largest epoch. */
#define TOKEN "01000000000000000000000000000000"
#define MOST "ffffffffffffffffff01"
    static const char *const poison[] = {
        "UPDATE meta SET base=9223372036854775807",
        "UPDATE meta SET base=-9223372036854775807",
        "UPDATE meta SET high=9223372036854775807",
        "UPDATE rec SET body=x'" TOKEN "01000000" MOST "000000000000000000'",
        "UPDATE rec SET body=x'" TOKEN "010000000000" MOST "00000000000000'",
        "UPDATE rec SET body=x'" TOKEN "02000000" MOST "000000000000000000'",
        "UPDATE rec SET body=x'" TOKEN "0204000001000000000000000000" TOKEN MOST
        "000000'",
    };
    for (size_t i = 0; i < sizeof(poison) / sizeof(poison[0]); i++) {
        struct folder f;
        struct kit k;
        folder_open(&f);
        fill(f.path, 1);
        kit_sql(f.path, poison[i]);
        kit_open(&k, f.path);
        (void)kit_peek(&k, "0");
        (void)kit_claim(&k, "0", 2);
        struct kit_answer a = kit_claim(&k, "b", 3);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        CHECK(a.epoch < RULES_EPOCH_MAX);
        CHECK_UINT_EQ(k.damages, 1);
        kit_close(&k);
        folder_close(&f);
    }
}
