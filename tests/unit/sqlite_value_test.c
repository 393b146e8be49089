/* SPDX-License-Identifier: MIT */
/* sqlite_value_test.c - values that have a file of their own. */
#include "sqlite_kit.h"

#include <dirent.h>
#include <fcntl.h>

enum { LARGE = 3000000 };

static void settle(struct kit *k, const char *name, size_t size)
{
    struct kit_answer a = kit_claim(k, name, 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_commit(k, name, 1, a.epoch, size).status,
                  VOW_STATUS_OWNED);
}

static void forget(struct kit *k, const char *name)
{
    struct kit_answer a;
    vow_name n = vow_name_of(name);
    k->store->ops->forget(k->store, &n, 0, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_NONE);
}

/* The path of the only value's file. */
static void value_path(const struct folder *f, char path[600])
{
    char folder[300];
    snprintf(folder, sizeof(folder), "%s/val", f->path);
    DIR *dir = opendir(folder);
    struct dirent *e;
    CHECK(dir != NULL);
    path[0] = '\0';
    while ((e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.' || strlen(e->d_name) > 2)
            snprintf(path, 600, "%s/%s", folder, e->d_name);
    closedir(dir);
    CHECK(path[0] != '\0');
}

TEST(sqlite_value, a_long_one_is_read_by_others_and_goes_with_its_record)
{
    struct folder f;
    struct kit a;
    struct kit b;
    folder_open(&f);
    kit_open(&a, f.path);
    kit_open(&b, f.path);
    settle(&a, "a", LARGE);
    CHECK_UINT_EQ(kit_count(f.path, "val"), 1);
    struct kit_answer got = kit_claim(&b, "a", 2);
    CHECK_UINT_EQ(got.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(got.size, LARGE);
    CHECK_UINT_EQ(got.first, 'v');
    forget(&b, "a");
    CHECK_UINT_EQ(kit_count(f.path, "val"), 0);
    kit_close(&a);
    kit_close(&b);
    folder_close(&f);
}

TEST(sqlite_value, a_commit_without_effect_leaves_no_file)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    uint64_t epoch = kit_claim(&k, "a", 1).epoch;
    CHECK_UINT_EQ(kit_commit(&k, "a", 9, epoch, LARGE).status, VOW_STATUS_LOST);
    CHECK_UINT_EQ(kit_count(f.path, "val"), 0);
    CHECK_UINT_EQ(kit_commit(&k, "a", 1, epoch, LARGE).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_commit(&k, "a", 1, epoch, LARGE).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_commit(&k, "a", 9, 1, LARGE).status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(kit_count(f.path, "val"), 1);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_value, a_forced_claim_removes_the_file_of_the_old_result)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    settle(&k, "a", LARGE);
    vow_claim_request ask = kit_ask("a", 2);
    ask.flags = VOW_CLAIM_FORCE;
    CHECK_UINT_EQ(kit_claim_as(&k, &ask).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_count(f.path, "val"), 0);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_value, a_result_whose_file_is_gone_is_gone)
{
    struct folder f;
    struct kit k;
    char path[600];
    folder_open(&f);
    kit_open(&k, f.path);
    settle(&k, "a", LARGE);
    value_path(&f, path);
    CHECK(unlink(path) == 0);
    settle(&k, "a", LARGE);
    value_path(&f, path);
    CHECK(truncate(path, 100) == 0);
    settle(&k, "a", LARGE);
    CHECK_UINT_EQ(kit_claim(&k, "a", 2).size, LARGE);
    CHECK_UINT_EQ(kit_count(f.path, "val"), 1);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_value, one_with_ttl_0_is_for_who_waited_and_then_swept)
{
    struct folder f;
    struct kit a;
    struct kit b;
    struct kit_answer got;
    folder_open(&f);
    kit_open(&a, f.path);
    kit_open(&b, f.path);
    VOW_AUTO(vow_bytes) value = NULL;
    CHECK_INT_EQ(vow_bytes_new(a.world.loop, NULL, LARGE, &value), 0);
    vow_claim_request ask = kit_ask("a", 1);
    ask.lease_ms = 1;
    uint64_t epoch = kit_claim_as(&a, &ask).epoch;
    vow_claim_request wait = kit_ask("a", 2);
    wait.takeovers = 0;
    (void)kit_pulse(&a, "a", 1, epoch);
    got = kit_claim_as(&b, &wait);
    CHECK_UINT_EQ(got.status, VOW_STATUS_WAITING);
    wait.waited = got.waited;
    (void)kit_claim_as(&a, &ask); /* the short lease again */
    vow_commit_request commit = {.hold = {.name = vow_name_of("a"),
                                          .token = kit_token(1),
                                          .epoch = epoch},
                                 .outcome = VOW_OUTCOME_DONE,
                                 .value = value};
    uint64_t since = kit_now_ms();
    a.store->ops->commit(a.store, &commit, kit_on_answer, &got);
    CHECK_UINT_EQ(got.status, VOW_STATUS_OWNED);
    bool fetched = kit_claim_as(&b, &wait).size == LARGE;
    fetched = kit_count(f.path, "val") == 1 && fetched;
    /* A busy machine may have taken longer than it is kept. */
    CHECK(fetched || kit_now_ms() - since >= 2 * FILE_RECHECK_MS);
    kit_nap_ms(2 * FILE_RECHECK_MS + 50);
    while (kit_count(f.path, "val") > 0) /* some step sweeps */
        for (uint64_t i = 0; i < 100; i++)
            (void)kit_claim(&a, "b", 1);
    value = vow_bytes_unref(value);
    kit_close(&a);
    kit_close(&b);
    folder_close(&f);
}

TEST(sqlite_value, files_that_the_dead_left_are_swept_and_others_stay)
{
    struct folder f;
    struct kit k;
    char path[600];
    char orphan[700];
    folder_open(&f);
    pid_t pid = kit_child();
    if (pid == 0) {
        kit_open(&k, f.path);
        settle(&k, "a", LARGE);
        value_path(&f, path);
        snprintf(orphan, sizeof(orphan), "%s0", path);
        kit_close(&k);
        close(open(orphan, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        _exit(0);
    }
    kit_wait(pid);
    CHECK_UINT_EQ(kit_count(f.path, "val"), 2);
    kit_open(&k, f.path);
    vow__file_sweep_files(vow__file_of(k.store));
    CHECK_UINT_EQ(kit_count(f.path, "val"), 1);
    CHECK_UINT_EQ(kit_claim(&k, "a", 2).size, LARGE);
    settle(&k, "b", LARGE); /* and what is ours stays */
    vow__file_sweep_files(vow__file_of(k.store));
    CHECK_UINT_EQ(kit_count(f.path, "val"), 2);
    kit_close(&k);
    folder_close(&f);
}
