/* SPDX-License-Identifier: MIT */
/* sqlite_examine_test.c - what a doctor finds in a folder. */
#include "findings.h"
#include "sqlite_kit.h"
#include <fcntl.h>

static const struct findings *examine(struct kit *k)
{
    static struct findings f;
    f = (struct findings){.done = 0};
    k->store->ops->examine(k->store, on_findings, &f);
    CHECK_UINT_EQ(f.done, 1);
    return &f;
}

TEST(sqlite_examine, a_common_folder_is_good)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    const struct findings *all = examine(&k);
    CHECK_UINT_EQ(all->n, 6);
    check_finding(all, "folder", VOW_FINDING_GOOD, f.path);
    check_finding(all, "file system", VOW_FINDING_GOOD, "MB free");
    check_finding(all, "sqlite", VOW_FINDING_GOOD, sqlite3_libversion());
    check_finding(all, "log", VOW_FINDING_GOOD, "MB");
    check_finding(all, "damage", VOW_FINDING_GOOD, "none");
    check_finding(all, "processes", VOW_FINDING_GOOD, "0 take part");
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_examine, others_who_take_part_are_counted_and_not_itself)
{
    struct folder f;
    struct kit k, other;
    folder_open(&f);
    kit_open(&k, f.path);
    kit_open(&other, f.path);
    (void)kit_claim(&k, "a", 1);
    check_finding(examine(&k), "processes", VOW_FINDING_GOOD, "0 take");
    (void)kit_claim(&other, "b", 2);
    check_finding(examine(&k), "processes", VOW_FINDING_GOOD, "1 take");
    kit_close(&other);
    check_finding(examine(&k), "processes", VOW_FINDING_GOOD, "0 take");
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_examine, a_folder_that_was_opened_to_others_since_is_bad)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    CHECK(chmod(f.path, 0750) == 0);
    check_finding(examine(&k), "folder", VOW_FINDING_BAD, "mode 0750");
    kit_close(&k);
    folder_close(&f);
}

/* The number of free pages, in the head of the file, is another. */
TEST(sqlite_examine, damage_is_told)
{
    struct folder f;
    struct kit k;
    char path[FOLDER_MAX + 16];
    const unsigned char free_pages[] = {0, 0, 0, 9};
    folder_open(&f);
    kit_open(&k, f.path);
    (void)kit_claim(&k, "a", 1);
    struct vow__file *s = vow__file_of(k.store);
    CHECK_INT_EQ(sqlite3_wal_checkpoint_v2(
                     s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL),
                 SQLITE_OK);
    snprintf(path, sizeof(path), "%s/vow.db", f.path);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    CHECK(pwrite(fd, free_pages, sizeof(free_pages), 36) == 4);
    vow__file_disconnect(s);
    check_finding(examine(&k), "damage", VOW_FINDING_BAD, "reelist");
    kit_close(&k);
    close(fd); /* not before: SQLite's locks would go with it */
    folder_close(&f);
}

TEST(sqlite_examine, without_memory_it_says_so)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    k.world.alloc.fail_at = k.world.alloc.allocs + 1;
    CHECK_INT_EQ(examine(&k)->code, VOW_ENOMEM);
    CHECK_INT_EQ(examine(&k)->code, 0);
    kit_close(&k);
    folder_close(&f);
}
