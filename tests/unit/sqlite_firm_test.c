/* SPDX-License-Identifier: MIT */
/* sqlite_firm_test.c - what must survive a loss of power, when the disk does
 * not confirm what was written.
 *
 * HOW   SQLite's log is opened by a VFS that can refuse to sync, as a disk with
 *       an error does. What was written and not confirmed is then not on the
 *       disk, and a later sync that succeeds does not bring the bytes there:
 *       the kernel takes them for written. Only bytes that are written again
 *       are. A loss of power cuts the log before the first missing byte.
 */
#include "sqlite_kit.h"

#include <dirent.h>
#include <sys/syscall.h>

enum { LONG = 100 * 1000 };

/* ---- a disk -------------------------------------------------------------- */

/* The log of one folder; `off`: another folder is used. */
static struct {
    bool off;
    bool broken;                    /* no sync succeeds */
    bool forgets;                   /* and the kernel drops the bytes */
    bool full;                      /* nothing can be written */
    unsigned syncs;                 /* that succeeded */
    sqlite3_int64 lost_at, lost_to; /* bytes that are not on the disk */
    sqlite3_int64 synced;           /* all bytes before are */
} disk;

static sqlite3_vfs *disk_system;
static const sqlite3_io_methods *disk_real;

static int disk_write(sqlite3_file *f, const void *from, int n,
                      sqlite3_int64 at)
{
    if (disk.full)
        return SQLITE_FULL;
    if (!disk.off && at <= disk.lost_at && at + n > disk.lost_at)
        disk.lost_at = at + n;
    return disk_real->xWrite(f, from, n, at);
}

static void disk_forget(sqlite3_file *f)
{
    static const char zeros[64];
    for (sqlite3_int64 at = disk.lost_at; at < disk.lost_to; at += 64)
        CHECK_INT_EQ(disk_real->xWrite(f, zeros, sizeof(zeros), at), SQLITE_OK);
}

static int disk_sync(sqlite3_file *f, int flags)
{
    sqlite3_int64 size = 0;
    if (disk.off)
        return disk_real->xSync(f, flags);
    CHECK_INT_EQ(disk_real->xFileSize(f, &size), SQLITE_OK);
    bool lost = disk.lost_at < disk.lost_to;
    if (disk.broken) {
        disk.lost_at = lost ? disk.lost_at : disk.synced;
        disk.lost_to = size;
        if (disk.forgets)
            disk_forget(f);
        return SQLITE_IOERR_FSYNC;
    }
    disk.synced = lost ? disk.lost_at : size;
    disk.syncs++;
    return disk_real->xSync(f, flags);
}

static int disk_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f,
                     int flags, int *out_flags)
{
    static sqlite3_io_methods methods;
    (void)vfs;
    int rc = disk_system->xOpen(disk_system, name, f, flags, out_flags);
    if (rc != SQLITE_OK || (flags & SQLITE_OPEN_WAL) == 0)
        return rc;
    disk_real = f->pMethods;
    methods = *disk_real;
    methods.xWrite = disk_write;
    methods.xSync = disk_sync;
    f->pMethods = &methods;
    return rc;
}

static void disk_install(void)
{
    static sqlite3_vfs vfs;
    CHECK_INT_EQ(sqlite3_initialize(), SQLITE_OK);
    disk_system = sqlite3_vfs_find("unix");
    vfs = *disk_system;
    vfs.zName = "disk";
    vfs.xOpen = disk_open;
    CHECK_INT_EQ(sqlite3_vfs_register(&vfs, 1), SQLITE_OK);
}

static struct {
    unsigned values;  /* files in val/ */
    unsigned folders; /* val/ itself */
} synced;

/* In the place of the one of the C library. */
int fsync(int fd)
{
    char link[64];
    char path[400] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof(path) - 1);
    const char *end = strrchr(path, '/');
    synced.values += strstr(path, "/val/") != NULL;
    synced.folders += size > 0 && end != NULL && strcmp(end, "/val") == 0;
    return (int)syscall(SYS_fsync, fd);
}

/* Opens a kit on a copy of the folder, after a loss of power and a reboot. */
static void power_lose(struct kit *k, const char *folder)
{
    char copy[400];
    char command[4000];
    snprintf(copy, sizeof(copy), "%s/copy", folder);
    snprintf(command, sizeof(command),
             "rm -rf '%s'; mkdir -m 700 '%s' && cp -p '%s'/vow.db* '%s' && "
             "cp -pr '%s/val' '%s' && rm -f '%s/vow.db-shm' && "
             "truncate -s %lld '%s/vow.db-wal'",
             copy, copy, folder, copy, folder, copy, copy,
             (long long)disk.synced, copy);
    CHECK_INT_EQ(system(command), 0);
    disk.off = true;
    kit_sql(copy, "UPDATE meta SET boot='another'");
    kit_open(k, copy);
}

static void power_back(struct kit *k)
{
    kit_close(k);
    disk.off = false;
}

/* ---- asking -------------------------------------------------------------- */

static struct kit_answer once_claim(struct kit *k, const char *name,
                                    uint64_t token)
{
    vow_claim_request ask = kit_ask(name, token);
    ask.mode = VOW_ONCE;
    return kit_claim_as(k, &ask);
}

static struct kit_answer once_commit(struct kit *k, const char *name,
                                     uint64_t token, uint64_t epoch,
                                     size_t size)
{
    return kit_commit_mode(k, name, token, epoch, size, VOW_ONCE);
}

/* Removes all files of values. */
static void remove_values(const char *folder)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/val", folder);
    DIR *dir = opendir(path);
    struct dirent *e;
    CHECK(dir != NULL);
    while ((e = readdir(dir)) != NULL)
        if (e->d_name[0] != '.' || strlen(e->d_name) > 2)
            CHECK(unlinkat(dirfd(dir), e->d_name, 0) == 0);
    closedir(dir);
}

/* ---- values -------------------------------------------------------------- */

TEST(sqlite_firm, a_result_that_the_disk_did_not_confirm_keeps_its_file)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    struct kit_answer a = once_claim(&k, "pay", 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    disk.broken = true;
    CHECK_INT_EQ(once_commit(&k, "pay", 1, a.epoch, LONG).code, VOW_EUNSURE);
    disk.broken = false;
    CHECK_UINT_EQ(once_commit(&k, "pay", 1, a.epoch, LONG).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_count(f.path, "val"), 1);
    struct kit_answer b = once_claim(&k, "pay", 2);
    CHECK_UINT_EQ(b.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(b.size, LONG);
    kit_close(&k);
    folder_close(&f);
}

/* A person finds out, and says what is to be done. */
TEST(sqlite_firm, work_of_mode_once_whose_result_is_gone_is_not_begun_again)
{
    struct folder f;
    struct kit k;
    vow_name name = vow_name_of("pay");
    folder_open(&f);
    kit_open(&k, f.path);
    struct kit_answer a = once_claim(&k, "pay", 1);
    CHECK_UINT_EQ(once_commit(&k, "pay", 1, a.epoch, LONG).status,
                  VOW_STATUS_OWNED);
    remove_values(f.path);
    CHECK_INT_EQ(once_claim(&k, "pay", 2).code, VOW_EIO);
    CHECK(strstr(kit_why(&k), "forget") != NULL);
    CHECK_INT_EQ(once_claim(&k, "pay", 3).code, VOW_EIO);
    CHECK_INT_EQ(kit_claim(&k, "pay", 4).code, VOW_EIO);
    k.store->ops->forget(k.store, &name, 0, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(once_claim(&k, "pay", 5).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}

/* The name of the file must be on the disk too. */
TEST(sqlite_firm, a_value_that_must_survive_is_synced_with_its_name)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    kit_open(&k, f.path);
    uint64_t epoch = kit_claim(&k, "cache", 1).epoch;
    synced.values = synced.folders = 0;
    CHECK_UINT_EQ(kit_commit(&k, "cache", 1, epoch, LONG).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(synced.values, 0);
    epoch = once_claim(&k, "pay", 1).epoch;
    CHECK_UINT_EQ(once_commit(&k, "pay", 1, epoch, LONG).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(synced.values, 1);
    CHECK_UINT_EQ(synced.folders, 1);
    kit_close(&k);
    folder_close(&f);
}

/* A person says what came of the work, and does not say of which mode it is. */
TEST(sqlite_firm, the_value_of_a_resolution_is_synced)
{
    struct folder f;
    struct kit k;
    struct kit_answer a;
    VOW_AUTO(vow_bytes) value = NULL;
    folder_open(&f);
    kit_open(&k, f.path);
    vow_claim_request ask = kit_ask("pay", 1);
    ask.mode = VOW_ONCE;
    ask.lease_ms = 1;
    uint64_t epoch = kit_claim_as(&k, &ask).epoch;
    while (kit_peek(&k, "pay").status != VOW_STATUS_DOUBT)
        kit_nap_ms(1);
    CHECK_INT_EQ(vow_bytes_new(k.world.loop, NULL, LONG, &value), 0);
    vow_commit_request resolve = {
        .hold = {.name = vow_name_of("pay"), .epoch = epoch},
        .outcome = VOW_OUTCOME_DONE,
        .flags = VOW_COMMIT_RESOLVE,
        .ttl_ms = KIT_LONG_MS,
        .value = value};
    synced.values = synced.folders = 0;
    k.store->ops->commit(k.store, &resolve, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(synced.values, 1);
    CHECK_UINT_EQ(synced.folders, 1);
    value = vow_bytes_unref(value);
    kit_close(&k);
    folder_close(&f);
}

/* ---- records ------------------------------------------------------------- */

TEST(sqlite_firm, a_repeated_claim_is_on_the_disk_before_the_work_begins)
{
    struct folder f;
    struct kit k;
    struct kit after;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    CHECK_UINT_EQ(once_claim(&k, "first", 1).status, VOW_STATUS_OWNED);
    disk.broken = true;
    CHECK_INT_EQ(once_claim(&k, "pay", 2).code, VOW_EUNSURE);
    CHECK_INT_EQ(once_claim(&k, "pay", 2).code, VOW_EUNSURE);
    disk.broken = false;
    struct kit_answer a = once_claim(&k, "pay", 2);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    power_lose(&after, f.path);
    CHECK_UINT_EQ(once_claim(&after, "first", 9).status, VOW_STATUS_DOUBT);
    struct kit_answer b = once_claim(&after, "pay", 9);
    CHECK_UINT_EQ(b.status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(b.epoch, a.epoch);
    power_back(&after);
    kit_close(&k);
    folder_close(&f);
}

/* The repeat changes nothing, and is not answered before. */
TEST(sqlite_firm, a_repeated_commit_is_on_the_disk_before_the_answer)
{
    struct folder f;
    struct kit k;
    struct kit after;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    uint64_t epoch = once_claim(&k, "pay", 1).epoch;
    disk.broken = true;
    CHECK_INT_EQ(once_commit(&k, "pay", 1, epoch, 3).code, VOW_EUNSURE);
    CHECK_INT_EQ(once_commit(&k, "pay", 1, epoch, 3).code, VOW_EUNSURE);
    CHECK_INT_EQ(once_claim(&k, "pay", 2).code, VOW_EUNSURE);
    disk.broken = false;
    CHECK_UINT_EQ(once_commit(&k, "pay", 1, epoch, 3).status, VOW_STATUS_OWNED);
    unsigned syncs = disk.syncs;
    CHECK_UINT_EQ(once_commit(&k, "pay", 1, epoch, 3).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(disk.syncs, syncs);
    power_lose(&after, f.path);
    struct kit_answer a = once_claim(&after, "pay", 9);
    CHECK_UINT_EQ(a.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(a.size, 3);
    power_back(&after);
    kit_close(&k);
    folder_close(&f);
}

/* Behind bytes that are missing in the log, nothing of it counts. */
TEST(sqlite_firm, another_process_writes_what_the_disk_did_not_confirm)
{
    struct folder f;
    struct kit k;
    struct kit other;
    struct kit after;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    kit_open(&other, f.path);
    CHECK_UINT_EQ(once_claim(&k, "first", 1).status, VOW_STATUS_OWNED);
    disk.broken = true;
    CHECK_INT_EQ(once_claim(&k, "pay", 1).code, VOW_EUNSURE);
    disk.broken = false;
    CHECK_UINT_EQ(once_claim(&other, "send", 2).status, VOW_STATUS_OWNED);
    power_lose(&after, f.path);
    CHECK_UINT_EQ(once_claim(&after, "pay", 9).status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(once_claim(&after, "send", 9).status, VOW_STATUS_DOUBT);
    power_back(&after);
    kit_close(&other);
    kit_close(&k);
    folder_close(&f);
}

/* A log that was read back from the disk is not the log that was written. */
TEST(sqlite_firm, what_the_kernel_has_dropped_is_not_confirmed)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    CHECK_UINT_EQ(once_claim(&k, "first", 1).status, VOW_STATUS_OWNED);
    disk.broken = disk.forgets = true;
    CHECK_INT_EQ(once_claim(&k, "pay", 2).code, VOW_EUNSURE);
    disk.broken = false;
    CHECK_INT_EQ(once_claim(&k, "pay", 2).code, VOW_EUNSURE);
    kit_close(&k);
    folder_close(&f);
}

/* Messages of one process arrive in order: the next one is of other work. */
TEST(sqlite_firm, no_waiter_is_told_what_the_disk_did_not_confirm)
{
    struct folder f;
    struct kit k;
    struct kit waiter;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    kit_open(&waiter, f.path);
    uint64_t epoch = once_claim(&k, "pay", 1).epoch;
    uint64_t other = kit_claim(&k, "other", 2).epoch;
    CHECK_UINT_EQ(once_claim(&waiter, "pay", 8).status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(kit_claim(&waiter, "other", 9).status, VOW_STATUS_WAITING);
    disk.broken = true;
    CHECK_INT_EQ(once_commit(&k, "pay", 1, epoch, 3).code, VOW_EUNSURE);
    disk.broken = false;
    CHECK_UINT_EQ(once_commit(&k, "pay", 1, epoch, 3).status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_commit(&k, "other", 2, other, 4).status,
                  VOW_STATUS_OWNED);
    kit_run_until(&waiter, &waiter.records, 1);
    CHECK_UINT_EQ(waiter.records, 1);
    CHECK_UINT_EQ(waiter.told.size, 4);
    CHECK_UINT_EQ(once_claim(&waiter, "pay", 8).status, VOW_STATUS_SETTLED);
    kit_close(&waiter);
    kit_close(&k);
    folder_close(&f);
}

/* After a loss of power the record may be there again, and names the file. */
TEST(sqlite_firm, a_value_is_removed_when_the_disk_has_confirmed_it)
{
    struct folder f;
    struct kit k;
    struct kit after;
    struct kit_answer a;
    vow_name name = vow_name_of("pay");
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    uint64_t epoch = once_claim(&k, "pay", 1).epoch;
    CHECK_UINT_EQ(once_commit(&k, "pay", 1, epoch, LONG).status,
                  VOW_STATUS_OWNED);
    disk.broken = true;
    k.store->ops->forget(k.store, &name, 0, kit_on_answer, &a);
    CHECK_INT_EQ(a.code, VOW_EUNSURE);
    power_lose(&after, f.path);
    CHECK_UINT_EQ(once_claim(&after, "pay", 9).size, LONG);
    power_back(&after);
    disk.broken = false;
    kit_close(&k);
    folder_close(&f);
}

TEST(sqlite_firm, a_result_that_is_over_is_swept_as_a_whole)
{
    struct folder f;
    struct kit k;
    struct kit after;
    struct kit_answer a;
    VOW_AUTO(vow_bytes) value = NULL;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    uint64_t epoch = once_claim(&k, "pay", 1).epoch;
    CHECK_INT_EQ(vow_bytes_new(k.world.loop, NULL, LONG, &value), 0);
    vow_commit_request commit = {.hold = {.name = vow_name_of("pay"),
                                          .token = kit_token(1),
                                          .epoch = epoch,
                                          .mode = VOW_ONCE},
                                 .outcome = VOW_OUTCOME_DONE,
                                 .ttl_ms = 1,
                                 .value = value};
    k.store->ops->commit(k.store, &commit, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    while (kit_peek(&k, "pay").status != VOW_STATUS_NONE)
        kit_nap_ms(1);
    vow__file_sweep_files(vow__file_of(k.store));
    CHECK_UINT_EQ(kit_count(f.path, "val"), 0);
    power_lose(&after, f.path);
    CHECK_UINT_EQ(once_claim(&after, "pay", 9).status, VOW_STATUS_OWNED);
    power_back(&after);
    value = vow_bytes_unref(value);
    kit_close(&k);
    folder_close(&f);
}

/* Shared work is not synced, and its bytes lie in the log before others. */
TEST(sqlite_firm, a_checkpoint_that_cannot_sync_leaves_the_log_in_doubt)
{
    struct folder f;
    struct kit k;
    struct kit after;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    CHECK_UINT_EQ(once_claim(&k, "first", 1).status, VOW_STATUS_OWNED);
    disk.broken = true;
    while (!vow__file_of(k.store)->log_doubted)
        CHECK_INT_EQ(kit_claim(&k, "cache", 2).code, 0); /* renews the lease */
    CHECK_INT_EQ(kit_claim(&k, "cache", 2).code, VOW_EUNSURE);
    disk.broken = false;
    CHECK_UINT_EQ(once_claim(&k, "pay", 3).status, VOW_STATUS_OWNED);
    power_lose(&after, f.path);
    CHECK_UINT_EQ(once_claim(&after, "first", 9).status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(once_claim(&after, "pay", 9).status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(after.damages, 0);
    power_back(&after);
    kit_close(&k);
    folder_close(&f);
}

/* ---- who owns names ------------------------------------------------------ */

/* An instance that leaves in order keeps its names for their leases. */
TEST(sqlite_firm, a_name_that_was_not_confirmed_at_first_is_kept_all_the_same)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    uint64_t epoch = once_claim(&k, "other", 1).epoch;
    CHECK_UINT_EQ(once_commit(&k, "other", 1, epoch, 3).status,
                  VOW_STATUS_OWNED);
    disk.broken = true;
    CHECK_INT_EQ(once_claim(&k, "pay", 2).code, VOW_EUNSURE);
    disk.broken = false;
    CHECK_UINT_EQ(once_claim(&k, "pay", 2).status, VOW_STATUS_OWNED);
    CHECK_INT_EQ(vow__file_of(k.store)->owns, 1);
    kit_close(&k);
    kit_open(&k, f.path);
    CHECK_UINT_EQ(once_claim(&k, "pay", 9).status, VOW_STATUS_WAITING);
    kit_close(&k);
    folder_close(&f);
}

/* The disk is full: shared work is given back, fenced work is kept. */
TEST(sqlite_firm, work_that_is_kept_on_a_full_disk_is_counted_once)
{
    struct folder f;
    struct kit k;
    folder_open(&f);
    disk_install();
    kit_open(&k, f.path);
    vow_claim_request ask = kit_ask("deploy", 1);
    ask.mode = VOW_FENCED;
    uint64_t epoch = kit_claim_as(&k, &ask).epoch;
    disk.full = true;
    CHECK_INT_EQ(kit_commit_mode(&k, "deploy", 1, epoch, 3, VOW_FENCED).code,
                 VOW_ENOSPC);
    disk.full = false;
    CHECK_INT_EQ(vow__file_of(k.store)->owns, 1);
    kit_close(&k);
    folder_close(&f);
}
