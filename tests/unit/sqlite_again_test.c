/* SPDX-License-Identifier: MIT */
/* sqlite_again_test.c - trouble ends, and the store goes on by itself. */
#include "sqlite_kit.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

TEST(sqlite_again, a_removed_folder_is_made_anew)
{
    struct folder f;
    struct kit a;
    struct kit b;
    char path[300];
    folder_open(&f);
    snprintf(path, sizeof(path), "%s/store", f.path);
    kit_open(&a, path);
    kit_open(&b, path);
    uint64_t epoch = kit_claim(&a, "a", 1).epoch;
    CHECK_UINT_EQ(kit_claim(&b, "a", 2).status, VOW_STATUS_WAITING);
    folder_remove(path);
    struct kit_answer pulse = kit_pulse(&a, "a", 1, epoch);
    CHECK_UINT_EQ(pulse.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(pulse.epoch, epoch);
    kit_run_until(&a, &a.doubts, 1);
    CHECK_UINT_EQ(kit_claim(&b, "a", 2).status, VOW_STATUS_WAITING);
    kit_run_until(&b, &b.doubts, 1);
    CHECK_UINT_EQ(kit_commit(&a, "a", 1, pulse.epoch, 5).status,
                  VOW_STATUS_OWNED);
    kit_run_until(&b, &b.records, 1);
    CHECK_UINT_EQ(kit_claim(&b, "a", 2).size, 5);
    kit_close(&a);
    kit_close(&b);
    folder_close(&f);
}

TEST(sqlite_again, a_removed_file_is_made_anew)
{
    struct folder f;
    struct kit k;
    char path[300];
    folder_open(&f);
    kit_open(&k, f.path);
    uint64_t epoch = kit_claim(&k, "a", 1).epoch;
    CHECK_UINT_EQ(kit_commit(&k, "a", 1, epoch, 5).status, VOW_STATUS_OWNED);
    snprintf(path, sizeof(path), "%s/vow.db", f.path);
    CHECK(unlink(path) == 0);
    kit_nap_ms(150); /* its path is looked at ten times a second */
    struct kit_answer a = kit_claim(&k, "a", 2);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK(a.epoch > epoch);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_again, a_folder_that_cannot_be_made_is_told_until_it_can)
{
    struct folder f;
    struct kit k;
    char above[300];
    char path[300];
    folder_open(&f);
    snprintf(above, sizeof(above), "%s/above", f.path);
    snprintf(path, sizeof(path), "%s/above/store", f.path);
    CHECK(mkdir(above, 0700) == 0);
    kit_open(&k, path);
    folder_remove(above);
    CHECK_INT_EQ(kit_claim(&k, "a", 1).code, VOW_ESTORE);
    CHECK(strstr(kit_why(&k), "does not exist") != NULL);
    CHECK(mkdir(above, 0700) == 0);
    CHECK_INT_EQ(kit_claim(&k, "a", 1).code, 0);
    kit_close(&k);
    folder_close(&f);
}

/* No file may grow: the same as a full disk to all who write. */
TEST(sqlite_again, a_full_disk_is_told_until_there_is_room)
{
    struct folder f;
    struct kit k;
    struct rlimit all;
    folder_open(&f);
    kit_open(&k, f.path);
    uint64_t epoch = kit_claim(&k, "a", 1).epoch;
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK(getrlimit(RLIMIT_FSIZE, &all) == 0);
    struct rlimit little = {.rlim_cur = 4096, .rlim_max = all.rlim_max};
    CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_INT_EQ(kit_claim(&k, "b", 2).code, VOW_ESTORE);
        CHECK(kit_why(&k)[0] != '\0');
        CHECK_INT_EQ(kit_commit(&k, "a", 1, epoch, 10).code, VOW_ESTORE);
        CHECK_INT_EQ(kit_commit(&k, "a", 1, epoch, 100000).code, VOW_ESTORE);
        CHECK_INT_EQ(kit_acquire(&k, "p", 3).code, VOW_ESTORE);
    }
    CHECK_UINT_EQ(kit_count(f.path, "val"), 0);
    CHECK(setrlimit(RLIMIT_FSIZE, &all) == 0);
    CHECK_UINT_EQ(kit_commit(&k, "a", 1, epoch, 100000).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_claim(&k, "a", 5).size, 100000);
    CHECK_UINT_EQ(kit_claim(&k, "b", 2).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 3).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

static off_t log_size(const struct folder *f)
{
    char path[300];
    struct stat st;
    snprintf(path, sizeof(path), "%s/vow.db-wal", f->path);
    CHECK(stat(path, &st) == 0);
    return st.st_size;
}

/* A name that nobody asked for yet. */
static void run_new(struct kit *k)
{
    static int names;
    char name[16];
    snprintf(name, sizeof(name), "%d", names++);
    uint64_t epoch = kit_claim(k, name, 1).epoch;
    CHECK_UINT_EQ(kit_commit(k, name, 1, epoch, 10).status, VOW_STATUS_OWNED);
}

TEST(sqlite_again, other_tables_are_told)
{
    struct folder f;
    struct kit k;
    sqlite3 *db;
    char path[300];
    char why[600];
    folder_open(&f);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    kit_close(&k);
    snprintf(path, sizeof(path), "%s/vow.db", f.path);
    CHECK(sqlite3_open(path, &db) == SQLITE_OK);
    CHECK(sqlite3_exec(db, "ALTER TABLE rec RENAME TO other", NULL, NULL,
                       NULL) == SQLITE_OK);
    CHECK(sqlite3_close(db) == SQLITE_OK);
    int code = kit_try_open(&k, f.path, 0, why);
    if (code == 0) {
        CHECK_INT_EQ(kit_claim(&k, "a", 1).code, VOW_ESTORE);
        snprintf(why, sizeof(why), "%s", kit_why(&k));
        kit_close(&k);
    }
    CHECK(strstr(why, "has other tables") != NULL);
    folder_close(&f);
}

/* Who has opened the file hears of the newer vow, not that the folder should be
 * moved away. */
TEST(sqlite_again, tables_that_a_newer_vow_has_changed_meanwhile_are_told)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    kit_sql(f.path, "BEGIN;ALTER TABLE rec RENAME TO other;"
                    "PRAGMA user_version=99;COMMIT");
    for (int i = 0; i < 2; i++) {
        CHECK_INT_EQ(kit_claim(&k, "b", 2).code, VOW_ESTORE);
        CHECK(strstr(kit_why(&k), "made by a newer vow") != NULL);
    }
    CHECK_UINT_EQ(k.damages, 0);
    kit_close(&k);
    folder_close(&f);
}

/* By somebody who removes the folder while it is being used, for instance. */
static void erase(const struct folder *f, const char *sub)
{
    char path[400];
    struct dirent *e;
    snprintf(path, sizeof(path), "%s/%s", f->path, sub);
    DIR *d = opendir(path);
    CHECK(d != NULL);
    while ((e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            CHECK(unlinkat(dirfd(d), e->d_name, 0) == 0);
    closedir(d);
}

TEST(sqlite_again, who_lives_is_not_taken_for_dead_when_its_files_were_removed)
{
    static const char *const subs[] = {"live", "sock"};
    struct folder f;
    struct kit k;
    struct kit other;
    folder_open(&f);
    kit_open(&k, f.path);
    for (unsigned i = 0; i < 2; i++) {
        char name[8];
        snprintf(name, sizeof(name), "n%u", i);
        CHECK_UINT_EQ(kit_claim(&k, name, 1).status, VOW_STATUS_OWNED);
        erase(&f, subs[i]);
        kit_nap_ms(110); /* it looks ten times a second */
        CHECK_UINT_EQ(kit_claim(&k, name, 1).status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(kit_count(f.path, subs[i]), 1);
        kit_open(&other, f.path);
        CHECK_UINT_EQ(kit_claim(&other, name, 2).status, VOW_STATUS_WAITING);
        kit_close(&other);
    }
    kit_close(&k);
    folder_close(&f);
}

/* As a folder is removed while somebody makes it anew. */
TEST(sqlite_again, a_log_that_was_removed_is_noticed)
{
    struct folder f;
    struct kit k;
    struct kit other;
    char path[300];
    folder_open(&f);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    snprintf(path, sizeof(path), "%s/vow.db-wal", f.path);
    CHECK(unlink(path) == 0);
    kit_nap_ms(110); /* it looks ten times a second */
    CHECK_UINT_EQ(kit_claim(&k, "b", 1).status, VOW_STATUS_OWNED);
    kit_open(&other, f.path);
    CHECK_UINT_EQ(kit_claim(&other, "b", 2).status, VOW_STATUS_WAITING);
    kit_close(&other);
    kit_close(&k);
    folder_close(&f);
}

/* One that reads keeps the log from ending, and all try less often; but not for
 * longer than it is there. */
TEST(sqlite_again, a_log_that_was_long_is_short_again)
{
    enum { FRAMES = 2500, FRAME = 4096 + 24, SHORT = 4194304 };
    struct folder f;
    struct kit k[2];
    sqlite3 *reader;
    char path[300];
    folder_open(&f);
    snprintf(path, sizeof(path), "%s/vow.db", f.path);
    kit_open(&k[0], f.path);
    kit_open(&k[1], f.path);
    CHECK(sqlite3_open(path, &reader) == SQLITE_OK);
    CHECK(sqlite3_exec(reader, "BEGIN;SELECT * FROM meta", NULL, NULL, NULL) ==
          SQLITE_OK);
    for (int i = 0; log_size(&f) < FRAMES * FRAME; i++)
        run_new(&k[i % 2]);
    CHECK(sqlite3_exec(reader, "COMMIT", NULL, NULL, NULL) == SQLITE_OK);
    CHECK(sqlite3_close(reader) == SQLITE_OK);
    while (log_size(&f) > SHORT)
        run_new(&k[0]);
    for (int i = 0; i < 1000; i++) {
        run_new(&k[1]);
        CHECK(log_size(&f) <= SHORT + 500 * FRAME);
    }
    kit_close(&k[0]);
    kit_close(&k[1]);
    folder_close(&f);
}

/* Who opens the file alone reads all of the log. */
TEST(sqlite_again, the_last_who_leaves_makes_the_log_short)
{
    enum { SHORT = 64 };
    struct folder f;
    struct kit k[2];
    sqlite3 *next;
    char path[300];
    int frames = 0;
    folder_open(&f);
    snprintf(path, sizeof(path), "%s/vow.db", f.path);
    kit_open(&k[0], f.path);
    kit_open(&k[1], f.path);
    for (int i = 0; i < 100; i++)
        run_new(&k[i % 2]);
    kit_close(&k[0]);
    run_new(&k[1]);
    kit_close(&k[1]);
    CHECK(sqlite3_open(path, &next) == SQLITE_OK);
    CHECK(sqlite3_exec(next, "SELECT * FROM meta", NULL, NULL, NULL) ==
          SQLITE_OK); /* opens the log */
    CHECK(sqlite3_wal_checkpoint_v2(next, NULL, SQLITE_CHECKPOINT_PASSIVE,
                                    &frames, NULL) == SQLITE_OK);
    CHECK(frames > 0 && frames < SHORT);
    CHECK(sqlite3_close(next) == SQLITE_OK);
    folder_close(&f);
}

static void as_nobody(const struct folder *f)
{
    enum { NOBODY = 65534 };
    if (geteuid() != 0)
        return;
    CHECK(chown(f->path, NOBODY, NOBODY) == 0);
    CHECK(setuid(NOBODY) == 0);
}

TEST(sqlite_again, a_folder_that_cannot_be_written_is_told_until_it_can)
{
    struct folder f;
    struct kit k;
    char why[600];
    folder_open(&f);
    as_nobody(&f);
    CHECK(chmod(f.path, 0500) == 0);
    CHECK_INT_EQ(kit_try_open(&k, f.path, 0, why), VOW_ESTORE);
    CHECK(strstr(why, "Permission denied") != NULL);
    CHECK(chmod(f.path, 0700) == 0);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    kit_close(&k);
    char path[300];
    snprintf(path, sizeof(path), "%s/vow.db", f.path);
    CHECK(chmod(path, 0400) == 0);
    int code = kit_try_open(&k, f.path, 0, why);
    if (code == 0) {
        CHECK_INT_EQ(kit_claim(&k, "b", 1).code, VOW_ESTORE);
        CHECK(strstr(kit_why(&k), "not written") != NULL);
        CHECK(chmod(path, 0600) == 0);
        CHECK_INT_EQ(kit_claim(&k, "b", 1).code, 0);
        kit_close(&k);
    }
    folder_close(&f);
}

/* ---- another boot -------------------------------------------------------- */

TEST(sqlite_again, after_another_boot_only_work_done_once_is_known)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    uint64_t epoch = kit_claim(&k, "result", 1).epoch;
    CHECK_UINT_EQ(kit_commit(&k, "result", 1, epoch, 5).status,
                  VOW_STATUS_OWNED);
    epoch = kit_claim(&k, "runs", 2).epoch;
    vow_claim_request once = kit_ask("once", 3);
    once.mode = VOW_ONCE;
    uint64_t once_epoch = kit_claim_as(&k, &once).epoch;
    vow_claim_request paid = kit_ask("paid", 9);
    paid.mode = VOW_ONCE;
    uint64_t paid_epoch = kit_claim_as(&k, &paid).epoch;
    CHECK_UINT_EQ(kit_commit(&k, "paid", 9, paid_epoch, 100).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 4).status, VOW_STATUS_OWNED);
    kit_close(&k);
    kit_sql(f.path, "UPDATE meta SET boot='another'");
    kit_open(&k, f.path);
    CHECK_UINT_EQ(kit_peek(&k, "result").status, VOW_STATUS_NONE);
    struct kit_answer a = kit_claim(&k, "runs", 5);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(a.takeovers, 0);
    CHECK(a.epoch > epoch);
    a = kit_claim(&k, "once", 6);
    CHECK_UINT_EQ(a.status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(a.epoch, once_epoch);
    a = kit_claim(&k, "paid", 8);
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.size, 100);
    CHECK_UINT_EQ(a.epoch, paid_epoch);
    CHECK_UINT_EQ(kit_acquire(&k, "p", 7).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_again, another_clock_does_not_mix_with_one_that_is_in_use)
{
    struct folder f;
    struct kit k;
    char why[600];
    atomic_uint *stage = kit_shared(sizeof(*stage));
    folder_open(&f);
    pid_t pid = kit_child();
    if (pid == 0) {
        kit_open(&k, f.path);
        CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
        atomic_store(stage, 1);
        for (;;)
            kit_nap_ms(1000);
    }
    kit_await(stage, 1);
    kit_sql(f.path, "UPDATE meta SET clock=clock+1");
    CHECK_INT_EQ(kit_try_open(&k, f.path, 0, why), VOW_EINVAL);
    CHECK(strstr(why, "another clock") != NULL);
    kit_kill(pid);
    kit_open(&k, f.path);
    kit_close(&k);
    folder_close(&f);
}

/* What was granted before counts as granted at the boot, whether it was given
 * back or its holder was killed. */
static void check_rate_over_boot(bool killed)
{
    struct folder f;
    struct kit k;
    struct kit_answer a;
    atomic_uint *stage = kit_shared(sizeof(*stage));
    vow_permit_request ask = {.pool = vow_name_of("p"),
                              .limits_of = vow_name_of("p"),
                              .token = kit_token(1),
                              .weight = 3,
                              .lease_ms = KIT_LONG_MS,
                              .limits = {.rate = 4, .window_us = 3600000000}};
    folder_open(&f);
    pid_t pid = kit_child();
    if (pid == 0) {
        kit_open(&k, f.path);
        k.store->ops->acquire(k.store, &ask, kit_on_place_answer, &a);
        CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
        atomic_store(stage, 1);
        if (!killed) {
            kit_close(&k);
            _exit(0);
        }
        for (;;)
            kit_nap_ms(1000);
    }
    kit_await(stage, 1);
    if (killed)
        kit_kill(pid);
    else
        kit_wait(pid);
    kit_sql(f.path, "UPDATE meta SET boot='another'");
    kit_open(&k, f.path);
    ask.token = kit_token(2);
    k.store->ops->acquire(k.store, &ask, kit_on_place_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_WAITING);
    ask.token = kit_token(3);
    ask.weight = 1;
    ask.pool = vow_name_of("q");
    ask.limits_of = ask.pool;
    k.store->ops->acquire(k.store, &ask, kit_on_place_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_again, a_rate_remembers_over_a_boot)
{
    check_rate_over_boot(false);
    check_rate_over_boot(true);
}

TEST(sqlite_again, epochs_rise_when_a_store_is_removed)
{
    struct folder f;
    struct kit k;
    char path[300];
    uint64_t last = 0;
    folder_open(&f);
    snprintf(path, sizeof(path), "%s/store", f.path);
    for (int i = 0; i < 2; i++) {
        kit_open(&k, path);
        uint64_t epoch = kit_claim(&k, "a", 1).epoch;
        CHECK(epoch > last);
        last = epoch;
        kit_close(&k);
        folder_remove(path);
        kit_nap_ms(20); /* longer than what the date of a file counts in */
    }
    folder_close(&f);
}
