/* SPDX-License-Identifier: MIT */
/* sqlite_firm_test.c - what must survive a loss of power, when the disk does
 * not confirm what was written.
 *
 * HOW   SQLite's log is opened by a VFS that can refuse to sync, as a disk with
 *       an error does. What was written and not confirmed is then not on the
 *       disk, and a later sync that succeeds does not bring the bytes there:
 *       the kernel takes them for written. Only bytes that are written again
 *       are. A loss of power cuts the log before the first byte that is missing.
 */
#include "sqlite_kit.h"

#include <dirent.h>

enum { LONG = 100 * 1000 };

/* ---- a disk -------------------------------------------------------------- */

/* The log of one folder; `off`: another folder is used. */
static struct {
    bool off;
    bool broken;                    /* no sync succeeds */
    unsigned syncs;                 /* that succeeded */
    sqlite3_int64 lost_at, lost_to; /* bytes that are not on the disk */
    sqlite3_int64 synced;           /* all bytes before are */
} disk;

static sqlite3_vfs *disk_system;
static const sqlite3_io_methods *disk_real;

static int disk_write(sqlite3_file *f, const void *from, int n,
                      sqlite3_int64 at)
{
    if (!disk.off && at <= disk.lost_at && at + n > disk.lost_at)
        disk.lost_at = at + n;
    return disk_real->xWrite(f, from, n, at);
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

/* ---- asking -------------------------------------------------------------- */

static struct kit_answer claim_once(struct kit *k, const char *name,
                                    uint64_t token)
{
    vow_claim_request ask = kit_ask(name, token);
    ask.mode = VOW_ONCE;
    return kit_claim_as(k, &ask);
}

static struct kit_answer commit_once(struct kit *k, const char *name,
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
    struct kit_answer a = claim_once(&k, "pay", 1);
    CHECK_UINT_EQ(a.status, VOW_STATUS_OWNED);
    disk.broken = true;
    CHECK_INT_EQ(commit_once(&k, "pay", 1, a.epoch, LONG).code, VOW_EUNSURE);
    disk.broken = false;
    CHECK_UINT_EQ(commit_once(&k, "pay", 1, a.epoch, LONG).status,
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(kit_count(f.path, "val"), 1);
    struct kit_answer b = claim_once(&k, "pay", 2);
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
    struct kit_answer a = claim_once(&k, "pay", 1);
    CHECK_UINT_EQ(commit_once(&k, "pay", 1, a.epoch, LONG).status,
                  VOW_STATUS_OWNED);
    remove_values(f.path);
    CHECK_INT_EQ(claim_once(&k, "pay", 2).code, VOW_EIO);
    CHECK(strstr(kit_why(&k), "forget") != NULL);
    CHECK_INT_EQ(claim_once(&k, "pay", 3).code, VOW_EIO);
    CHECK_INT_EQ(kit_claim(&k, "pay", 4).code, VOW_EIO);
    k.store->ops->forget(k.store, &name, 0, kit_on_answer, &a);
    CHECK_UINT_EQ(a.status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(claim_once(&k, "pay", 5).status, VOW_STATUS_OWNED);
    kit_close(&k);
    folder_close(&f);
}
