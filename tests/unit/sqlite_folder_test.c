/* SPDX-License-Identifier: MIT */
/* sqlite_folder_test.c - which folders are taken, and why others are not. */
#include "sqlite_kit.h"
#include "store/file/file_make.h"

#include <sys/stat.h>

static void check_refused(const char *path, int code, const char *because)
{
    struct kit k;
    char why[600];
    CHECK_INT_EQ(kit_try_open(&k, path, 0, why), code);
    if (strstr(why, because) == NULL)
        FAIL("\"%s\" does not say \"%s\"", why, because);
}

static void below(char out[300], const struct folder *f, const char *name)
{
    snprintf(out, 300, "%s/%s", f->path, name);
}

TEST(sqlite_folder, is_made_and_closed_to_others)
{
    struct folder f;
    struct kit k;
    struct stat st;
    char path[300];
    folder_open(&f);
    below(path, &f, "new");
    kit_open(&k, path);
    CHECK(stat(path, &st) == 0);
    CHECK_UINT_EQ(st.st_mode & 07777, 0700);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    below(path, &f, "new/vow.db");
    CHECK(stat(path, &st) == 0);
    CHECK_UINT_EQ(st.st_mode & 0777, 0600);
    below(path, &f, "new/vow.db-wal");
    CHECK(stat(path, &st) == 0);
    CHECK_UINT_EQ(st.st_mode & 0777, 0600);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_folder, a_link_is_refused)
{
    struct folder f;
    char real[300];
    char link[300];
    folder_open(&f);
    below(real, &f, "real");
    below(link, &f, "link");
    CHECK(mkdir(real, 0700) == 0);
    CHECK(symlink(real, link) == 0);
    check_refused(link, VOW_EINVAL, "symbolic link");
    below(link, &f, "link///");
    check_refused(link, VOW_EINVAL, "symbolic link");
    folder_close(&f);
}

TEST(sqlite_folder, a_linked_file_in_it_is_not_followed)
{
    struct folder f;
    char path[300];
    char other[300];
    folder_open(&f);
    below(path, &f, "vow.db");
    below(other, &f, "other");
    CHECK(symlink(other, path) == 0);
    check_refused(f.path, VOW_ESTORE, "vow.db");
    folder_close(&f);
}

TEST(sqlite_folder, one_that_is_open_to_others_is_refused)
{
    struct folder f;
    folder_open(&f);
    CHECK(chmod(f.path, 0750) == 0);
    check_refused(f.path, VOW_EINVAL, "chmod 700");
    CHECK(chmod(f.path, 0700) == 0);
    folder_close(&f);
}

TEST(sqlite_folder, that_of_another_user_is_refused)
{
    struct folder f;
    folder_open(&f);
    if (geteuid() == 0) {
        CHECK(chown(f.path, 1, 1) == 0);
        check_refused(f.path, VOW_EINVAL, "belongs to user 1");
    } else {
        check_refused("/", VOW_EINVAL, "belongs to user 0");
    }
    folder_close(&f);
}

TEST(sqlite_folder, what_is_no_folder_is_refused)
{
    struct folder f;
    char path[300];
    folder_open(&f);
    below(path, &f, "file");
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fclose(file);
    check_refused(path, VOW_EINVAL, "not a folder");
    check_refused("", VOW_EINVAL, "no folder");
    below(path, &f, "nowhere/store");
    check_refused(path, VOW_ESTORE, "does not exist");
    folder_close(&f);
}

TEST(sqlite_folder, below_one_that_everybody_may_change_is_refused)
{
    struct folder f;
    struct kit k;
    char above[300];
    char path[300];
    folder_open(&f);
    below(above, &f, "above");
    below(path, &f, "above/store");
    CHECK(mkdir(above, 0700) == 0);
    CHECK(chmod(above, 0777) == 0);
    check_refused(path, VOW_EINVAL, "everybody may change");
    CHECK(chmod(above, 01777) == 0);
    kit_open(&k, path);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_folder, below_one_that_a_group_may_change_is_refused)
{
    struct folder f;
    struct kit k;
    char above[300];
    char path[300];
    folder_open(&f);
    below(above, &f, "above");
    below(path, &f, "above/store");
    CHECK(mkdir(above, 0700) == 0);
    if (geteuid() == 0) /* else it has our own group, which may be private */
        CHECK(chown(above, 0, 54321) == 0);
    CHECK(chmod(above, 0770) == 0);
    if (geteuid() == 0)
        check_refused(path, VOW_EINVAL, "group 54321 may change");
    CHECK(chmod(above, 01770) == 0);
    kit_open(&k, path);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_folder, below_one_of_another_user_is_refused)
{
    struct folder f;
    char above[300];
    char path[300];
    folder_open(&f);
    below(above, &f, "above");
    below(path, &f, "above/store");
    if (geteuid() == 0) {
        CHECK(mkdir(above, 0700) == 0);
        CHECK(mkdir(path, 0700) == 0);
        CHECK(chown(above, 54321, 0) == 0);
        check_refused(path, VOW_EINVAL, "of user 54321");
        CHECK(chmod(above, 01777) == 0); /* who owns it may still rename */
        check_refused(path, VOW_EINVAL, "of user 54321");
    }
    folder_close(&f);
}

TEST(sqlite_folder, what_others_left_in_it_is_refused)
{
    static const char *const names[] = {"store/vow.db", "store/mark",
                                        "store/live", "store/val"};
    struct folder f;
    struct kit k;
    char path[300];
    char file[300];
    folder_open(&f);
    below(path, &f, "store");
    kit_open(&k, path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    kit_close(&k);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct stat st;
        below(file, &f, names[i]);
        CHECK(stat(file, &st) == 0);
        CHECK(chmod(file, 0770) == 0);
        check_refused(path, VOW_EINVAL, "remove the folder");
        CHECK(chmod(file, st.st_mode & 07777) == 0);
        if (geteuid() != 0)
            continue;
        CHECK(chown(file, 54321, 0) == 0);
        check_refused(path, VOW_EINVAL, "belongs to user 54321");
        CHECK(chown(file, 0, 0) == 0);
    }
    kit_open(&k, path);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_folder, a_store_that_others_could_write_to_is_to_be_removed)
{
    struct folder f;
    struct kit k;
    char path[300];
    folder_open(&f);
    below(path, &f, "store");
    kit_open(&k, path);
    kit_close(&k);
    CHECK(chmod(path, 0777) == 0);
    check_refused(path, VOW_EINVAL, "remove it");
    CHECK(chmod(path, 0700) == 0);
    folder_close(&f);
}

/* What is opened is in the folder that was checked, though another has its name
 * by now. */
TEST(sqlite_folder, is_the_one_that_was_checked_whatever_is_renamed)
{
    struct folder f;
    struct kit k;
    struct kit other;
    char path[300];
    char aside[300];
    int64_t records = 0;
    folder_open(&f);
    below(path, &f, "store");
    below(aside, &f, "aside");
    kit_open(&k, path);
    CHECK_UINT_EQ(kit_claim(&k, "a", 1).status, VOW_STATUS_OWNED);
    struct vow__file *s = vow__file_of(k.store);
    vow__file_close(s);
    CHECK(rename(path, aside) == 0);
    kit_open(&other, path);
    CHECK_INT_EQ(vow__file_connect(s, "vow.db", SQLITE_OPEN_READWRITE), 0);
    CHECK_INT_EQ(vow__file_pragma(s, "SELECT count(*) FROM rec", &records), 0);
    CHECK_INT_EQ(records, 1);
    vow__file_close(s);
    kit_close(&other);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_folder, system_file_systems_have_no_store)
{
    struct kit k;
    char why[600];
    CHECK(kit_try_open(&k, "/proc/self/vow", 0, why) < 0);
    CHECK(why[0] != '\0');
}

/* A path that no socket address has room for. */
TEST(sqlite_folder, a_deep_one_has_wake_ups_too)
{
    struct folder f;
    struct kit a;
    struct kit b;
    char path[300];
    folder_open(&f);
    snprintf(path, sizeof(path), "%s/%0150d", f.path, 7);
    kit_open(&a, path);
    kit_open(&b, path);
    uint64_t epoch = kit_claim(&a, "a", 1).epoch;
    CHECK_UINT_EQ(kit_claim(&b, "a", 2).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(kit_commit(&a, "a", 1, epoch, 3).status, VOW_STATUS_OWNED);
    kit_run_until(&b, &b.records, 1);
    CHECK_UINT_EQ(kit_claim(&b, "a", 2).size, 3);
    kit_close(&a);
    kit_close(&b);
    folder_close(&f);
}

TEST(sqlite_folder, one_that_is_too_deep_is_refused)
{
    struct folder f;
    char path[600];
    folder_open(&f);
    size_t n = (size_t)snprintf(path, sizeof(path), "%s", f.path);
    while (n < FILE_PATH_MAX) {
        n += (size_t)snprintf(path + n, sizeof(path) - n, "/%060d", 1);
        CHECK(mkdir(path, 0700) == 0);
    }
    check_refused(path, VOW_EINVAL, "longer than");
    folder_close(&f);
}

TEST(sqlite_folder, a_relative_path_means_the_same_folder_for_ever)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    CHECK(chdir(f.path) == 0);
    kit_open(&k, "store");
    CHECK(chdir("/") == 0);
    uint64_t epoch = kit_claim(&k, "a", 1).epoch;
    CHECK_UINT_EQ(kit_commit(&k, "a", 1, epoch, 100000).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_claim(&k, "a", 2).size, 100000);
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_folder, an_option_block_of_no_version_is_refused)
{
    struct world w;
    struct folder f;
    vow_sqlite_opts opts = {.size = 3};
    folder_open(&f);
    world_open_real(&w);
    VOW_AUTO(vow_future) s = vow_store_sqlite_open(w.loop, f.path, &opts);
    CHECK_INT_EQ(vow_error_code(vow_error_of(s)), VOW_EINVAL);
    s = vow_future_unref(s);
    world_close(&w);
    folder_close(&f);
}
