/* SPDX-License-Identifier: MIT */
/* file_make.c - a new file, and the end of an old one.
 *
 * WHY   Many processes may come first at once, find the file damaged at once,
 *       or be the first of a new boot; and a file that is half made must never
 *       be met.
 * HOW   All of this is done by the process that has `lock`. A new file is made
 *       under another name, whole, and then gets its own. From a damaged file,
 *       what must survive is taken over into the new file first, as far as the
 *       damaged one can be read, see file_firm.c. Then the damaged file is
 *       renamed, with what belongs to it, and `mark` is removed, by which all
 *       processes that have it open notice; then the new file gets the name. A
 *       process that dies in between leaves a new file that is whole, and the
 *       next process gives it the name. What was in a file that was damaged,
 *       removed or replaced by an older copy is not known any more, and `lost`
 *       says so: until somebody removes `lost`, nothing in mode VOW_ONCE is
 *       begun.
 *       A file of another boot is kept: records of mode once and limits stay,
 *       and what was granted within a rate counts as granted now, because no
 *       clock says how long the machine was off. All else was of processes
 *       that are no more.
 *       A file of an earlier schema is changed, in one transaction.
 * THREADS  loop thread only.
 */
#include "store/file/file_make.h"
#include "store/file/file_rows.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAP_US = 1000, ASIDE_MAX = 10000, FILE_ASIDE_MAX = 64 };

/* h: a name's hash; times are microseconds since the boot.
 *   rec         a record; ends: a sweep may delete the row from then on; inst:
 *               see file_rows.h; body: see file_row.c
 *   firm        copies of records that survive a reboot, see file_firm.c
 *   left_value  results with ttl 0, for the claims that waited for run `first`,
 *               when the row of the record is of a later run
 *   wait        instances that are registered as waiters
 *   parted      instances that have left in order, and until when the leases of
 *               their names last
 *   pool        law: the pool whose limits it has. next: no lease ends before;
 *               ends: as in rec; log: see file_pool_row.c
 *   permit      held permits and waiting requests of pools; due: see
 *               file_permit.c
 *   part        waiting requests of a pool, counted, in parts above `uncounted` */
static const char name_tables[] =
    "CREATE TABLE firm(h BLOB PRIMARY KEY,file TEXT,body BLOB,val BLOB)"
    "WITHOUT ROWID;"
    "CREATE TABLE rec(h BLOB PRIMARY KEY,ends INT,inst BLOB,file TEXT,"
    "body BLOB,val BLOB)WITHOUT ROWID;"
    "CREATE TABLE left_value(h BLOB,first INT,ends INT,inst BLOB,file TEXT,"
    "body BLOB,val BLOB,PRIMARY KEY(h,first))WITHOUT ROWID;"
    "CREATE TABLE wait(h BLOB,inst BLOB,PRIMARY KEY(h,inst))WITHOUT ROWID;"
    "CREATE TABLE parted(inst BLOB PRIMARY KEY,ends INT)WITHOUT ROWID;"
    "CREATE TABLE chunk(h BLOB,n INT,data BLOB,PRIMARY KEY(h,n))"
    "WITHOUT ROWID;";
static const char pool_tables[] =
    "CREATE TABLE pool(id BLOB PRIMARY KEY,law BLOB,label TEXT,"
    "concurrent INT,rate INT,span INT,held INT,holders INT,waiting INT,"
    "open INT,seq INT,fence INT,next INT,uncounted INT,ends INT,log BLOB)"
    "WITHOUT ROWID;"
    "CREATE TABLE permit(pool BLOB,tok BLOB,inst BLOB,held INT,open INT,"
    "seq INT,fence INT,weight INT,ends INT,due INT,PRIMARY KEY(pool,tok))"
    "WITHOUT ROWID;"
    "CREATE INDEX permit_queue ON permit(pool,seq,weight,held)"
    "WHERE held=0;"
    "CREATE INDEX permit_inst ON permit(pool,inst,due);"
    "CREATE TABLE part(pool BLOB,nth INT,waiting INT,weight INT,"
    "PRIMARY KEY(pool,nth))WITHOUT ROWID;";
static const char meta_table[] =
    "CREATE TABLE meta(boot TEXT,clock INT,base INT,high INT);";
/* ?1 boot, ?2 clock, ?3 now, ?4 numbers set aside */
static const char *const adoption[] = {
    "DELETE FROM rec",
    "DELETE FROM left_value",
    "DELETE FROM wait",
    "DELETE FROM parted",
    "DELETE FROM chunk",
    "DELETE FROM permit",
    "DELETE FROM part",
    "UPDATE meta SET boot=?1,clock=?2,base=high+1-?3,high=high+?4",
};

static int lock_take(struct vow__file *s, const char *file, int *ret_fd);
static void lock_drop(int fd);
static int build_file(struct vow__file *s, bool salvages);
static int put_file(struct vow__file *s);
static bool attach_old(struct vow__file *s);
static void remove_all(struct vow__file *s, const char *name);
static int first_row(struct vow__file *s);
static int exec(struct vow__file *s, const char *sql);
static int replace_file(struct vow__file *s);
static bool is_whole(struct vow__file *s, const char *name);
static int set_aside(struct vow__file *s, const char *aside);
static int adopt(struct vow__file *s);
static int upgrade_tables(struct vow__file *s);
static int end_change(struct vow__file *s, int rc);

/* ---- which boot --------------------------------------------------------- */

int vow__file_boot_read(struct vow__file *s)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    struct stat st = {.st_ino = 0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, s->boot, sizeof(s->boot) - 1);
    int error = errno;
    if (fd >= 0)
        (void)close(fd);
    if (n <= 0)
        return vow__file_fail(s, VOW_ESTORE, "%s: %s", path, strerror(error));
    s->boot[n] = '\0';
    s->boot[strcspn(s->boot, "\n")] = '\0';
    (void)stat("/proc/self/ns/time", &st); /* old kernels have one for all */
    s->time_ns = (int64_t)st.st_ino;
    return 0;
}

int vow__file_clock_ours(struct vow__file *s, bool *ret_ours)
{
    sqlite3_stmt *q = vow__file_sql(s, "SELECT boot,clock FROM meta");
    int rc;
    if (!vow__file_row(s, q, &rc))
        return rc == 0 || rc == SQLITE_ERROR ? SQLITE_CORRUPT : rc;
    const char *boot = (const char *)sqlite3_column_text(q, 0);
    *ret_ours = boot != NULL && strcmp(boot, s->boot) == 0 &&
                sqlite3_column_int64(q, 1) == s->time_ns;
    (void)sqlite3_reset(q);
    return 0;
}

int vow__file_pragma(struct vow__file *s, const char *sql, int64_t *ret_value)
{
    sqlite3_stmt *q = NULL;
    int rc = sqlite3_prepare_v2(s->db, sql, -1, &q, NULL);
    if (rc == 0)
        rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) {
        *ret_value = sqlite3_column_int64(q, 0);
        rc = 0;
    }
    (void)sqlite3_finalize(q);
    return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
}

void vow__file_path(const char *folder, const char *name,
                    char path[FILE_PATH_MAX + 32])
{
    (void)snprintf(path, FILE_PATH_MAX + 32, "%.*s/%.30s", FILE_PATH_MAX,
                   folder, name);
}

/* ---- locks -------------------------------------------------------------- */

static int lock_take(struct vow__file *s, const char *file, int *ret_fd)
{
    const int flags = O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = openat(s->dir, file, flags, 0600);
    if (fd < 0)
        return vow__file_fail_errno(s, file, errno);
    while (fcntl(fd, F_OFD_SETLK, &l) != 0) {
        int error = errno;
        bool busy = error == EAGAIN || error == EACCES;
        if (busy && vow__file_now_ns() < s->ends_ns) {
            vow__file_nap_us(NAP_US);
            continue;
        }
        (void)close(fd);
        if (!busy)
            return vow__file_fail_errno(s, file, error);
        return vow__file_fail(
            s, VOW_ESTORE,
            "%s/%s is locked by a process that does not go on; "
            "is it stopped?",
            s->folder, file);
    }
    *ret_fd = fd;
    return 0;
}

/* A child by fork() may have the descriptor too, and the lock with it. */
static void lock_drop(int fd)
{
    struct flock l = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    (void)fcntl(fd, F_OFD_SETLK, &l);
    (void)close(fd);
}

/* ---- a new one ---------------------------------------------------------- */

int vow__file_make(struct vow__file *s)
{
    struct stat st;
    int lock;
    int rc = lock_take(s, "lock", &lock);
    if (rc < 0)
        return rc;
    if (fstatat(s->dir, "vow.db", &st, AT_SYMLINK_NOFOLLOW) != 0) {
        bool removed = s->opened > 0 || faccessat(s->dir, "live", F_OK,
                                                  AT_SYMLINK_NOFOLLOW) == 0;
        rc = removed ? vow__file_lost_write(s, "vow.db was removed") : 0;
        if (rc == 0 && !is_whole(s, "vow.db.new"))
            rc = build_file(s, false);
        if (rc == 0)
            rc = put_file(s);
    }
    lock_drop(lock);
    return rc;
}

int vow__file_make_folders(struct vow__file *s)
{
    static const char *const folders[] = {"live", "sock", "val"};
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        if (mkdirat(s->dir, folders[i], 0700) == 0)
            s->dir_synced = false;
        else if (errno != EEXIST)
            return vow__file_fail_errno(s, folders[i], errno);
    return 0;
}

/* The tables, and what can be taken from a damaged file. */
static int build_tables(struct vow__file *s, bool salvages)
{
    int rc = exec(s, meta_table);
    if (rc == 0)
        rc = exec(s, pool_tables);
    if (rc == 0)
        rc = exec(s, name_tables);
    if (rc == 0)
        rc = first_row(s);
    s->now_us = s->clock_us();
    return rc == 0 && salvages ? vow__file_firm_salvage(s) : rc;
}

/* Makes vow.db.new. `salvages`: takes what is firm from vow.db, which is
 * damaged; as long as that lasts, no process writes to it, if it can be locked.
 */
static int build_file(struct vow__file *s, bool salvages)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    remove_all(s, "vow.db.new");
    int fd = openat(s->dir, "vow.db.new", flags, 0600); /* SQLite's is 0644 */
    if (fd < 0)
        return vow__file_fail_errno(s, "vow.db.new", errno);
    (void)close(fd);
    int rc = vow__file_connect(s, "vow.db.new", SQLITE_OPEN_READWRITE);
    if (rc == 0 && salvages)
        salvages = attach_old(s);
    if (rc == 0 && exec(s, "BEGIN IMMEDIATE") != 0)
        rc = exec(s, "BEGIN");
    if (rc == 0)
        rc = build_tables(s, salvages);
    if (rc == 0)
        rc = exec(s, "COMMIT");
    if (rc > 0)
        rc = vow__file_fail_sqlite(s, rc);
    vow__file_disconnect(s);
    if (rc != 0)
        remove_all(s, "vow.db.new");
    return rc;
}

/* Gives vow.db.new, which is whole, its name. There is no vow.db. */
static int put_file(struct vow__file *s)
{
    int rc = vow__file_connect(s, "vow.db.new", SQLITE_OPEN_READWRITE);
    if (rc == 0)
        (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0,
                                NULL);
    if (rc == 0)
        rc = exec(s, "PRAGMA journal_mode=WAL");
    if (rc == 0)
        vow__file_reserve(s);
    else
        rc = vow__file_fail_sqlite(s, rc);
    vow__file_disconnect(s);
    if (rc != 0)
        return rc;
    remove_all(s, "vow.db"); /* a log that was left would be played into it */
    (void)unlinkat(s->dir, "cache", 0);
    if (renameat(s->dir, "vow.db.new", s->dir, "vow.db") != 0)
        return vow__file_fail_errno(s, "vow.db", errno);
    return vow__file_make_folders(s); /* last: they show that it was there */
}

/* False: it cannot be read at all, and nothing is taken from it. */
static bool attach_old(struct vow__file *s)
{
    char attach[128];
    int64_t high = 0;
    (void)snprintf(attach, sizeof(attach),
                   "ATTACH '/proc/self/fd/%d/vow.db' AS old", s->dir);
    if (exec(s, attach) != 0)
        return false;
    if (vow__file_pragma(s, "SELECT high FROM old.meta", &high) == 0 &&
        high > s->high && high < (int64_t)RULES_EPOCH_MAX)
        s->high = high;
    return true;
}

static void remove_all(struct vow__file *s, const char *name)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    char file[64];
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        (void)snprintf(file, sizeof(file), "%s%s", name, ends[i]);
        (void)unlinkat(s->dir, file, 0);
    }
}

/* Epochs begin at the date of the file, so that those of a store that was
 * removed stay below, and above all that we know of. That is all the date is
 * used for. */
static int first_row(struct vow__file *s)
{
    struct stat st;
    char head[96];
    if (fstatat(s->dir, "vow.db.new", &st, AT_SYMLINK_NOFOLLOW) != 0)
        return SQLITE_IOERR_FSTAT;
    int64_t now_us = vow__file_clock_us();
    int64_t first = (int64_t)st.st_mtim.tv_sec * 1000 * 1000 +
                    (int64_t)st.st_mtim.tv_nsec / 1000;
    if (first <= s->high)
        first = s->high + 1;
    int64_t base = first > now_us ? first - now_us : 0;
    sqlite3_stmt *q = vow__file_sql(s, "INSERT INTO meta VALUES(?1,?2,?3,0)");
    if (q == NULL)
        return s->prepare_rc;
    vow__file_bind_text(q, 1, s->boot);
    (void)sqlite3_bind_int64(q, 2, s->time_ns);
    (void)sqlite3_bind_int64(q, 3, base);
    int rc = vow__file_do(s, q);
    (void)snprintf(head, sizeof(head),
                   "PRAGMA application_id=%d;PRAGMA user_version=%d",
                   VOW__FILE_APPLICATION, VOW__FILE_VERSION);
    return rc == 0 ? exec(s, head) : rc;
}

static int exec(struct vow__file *s, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL);
}

/* ---- a damaged one ------------------------------------------------------ */

int vow__file_damaged(struct vow__file *s, bool surely)
{
    int lock = -1;
    vow__file_close(s);
    int rc = lock_take(s, "lock", &lock);
    if (rc < 0)
        return rc;
    if (!vow__file_moved(s) && (surely || !is_whole(s, "vow.db")))
        rc = replace_file(s);
    lock_drop(lock);
    return rc;
}

/* On a full disk the damaged file stays: the next step tries again. */
static int replace_file(struct vow__file *s)
{
    char aside[FILE_ASIDE_MAX];
    char why[128];
    struct stat st;
    int n = 1;
    do {
        (void)snprintf(aside, sizeof(aside), "vow.db.damaged-%d", n);
    } while (fstatat(s->dir, aside, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
             ++n < ASIDE_MAX);
    (void)snprintf(why, sizeof(why), "vow.db was damaged and is now %.60s",
                   aside);
    int rc = vow__file_lost_write(s, why);
    if (rc == 0)
        rc = build_file(s, true);
    if (rc == VOW_ESTORE && !s->full) /* the damage is in the way */
        rc = build_file(s, false);
    if (rc == 0)
        rc = set_aside(s, aside);
    return rc == 0 ? put_file(s) : rc;
}

/* All of it is read: this is for when something is wrong. */
static bool is_whole(struct vow__file *s, const char *name)
{
    int64_t id = 0;
    int64_t version = 0;
    int64_t rows = 0;
    sqlite3_stmt *q = NULL;
    bool whole = false;
    int rc = vow__file_connect(s, name, SQLITE_OPEN_READWRITE);
    if (rc == 0)
        rc = vow__file_pragma(s, "PRAGMA application_id", &id);
    if (rc == 0)
        rc = vow__file_pragma(s, "PRAGMA user_version", &version);
    if (rc == 0)
        rc = vow__file_pragma(s, "SELECT count(*) FROM meta", &rows);
    if (rc == 0)
        rc = sqlite3_prepare_v2(s->db, "PRAGMA quick_check(1)", -1, &q, NULL);
    if (rc == 0 && sqlite3_step(q) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(q, 0);
        whole = text != NULL && strcmp(text, "ok") == 0;
    }
    (void)sqlite3_finalize(q);
    vow__file_disconnect(s);
    return whole && id == VOW__FILE_APPLICATION &&
           version >= VOW__FILE_VERSION_OLDEST && rows == 1;
}

static int set_aside(struct vow__file *s, const char *aside)
{
    char from[32];
    char to[80];
    char path[FILE_PATH_MAX + 32];
    static const char *const ends[] = {"-wal", "-shm", ""};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        (void)snprintf(from, sizeof(from), "vow.db%s", ends[i]);
        (void)snprintf(to, sizeof(to), "%.60s%s", aside, ends[i]);
        if (renameat(s->dir, from, s->dir, to) != 0 && errno != ENOENT)
            return vow__file_fail_errno(s, from, errno);
    }
    (void)unlinkat(s->dir, "mark", 0); /* by this the others notice */
    vow__file_path(s->home, aside, path);
    if (s->opts.on_damage != NULL)
        s->opts.on_damage(path, s->opts.on_damage_user);
    return 0;
}

/* ---- lost records -------------------------------------------------------- */

int vow__file_lost_write(struct vow__file *s, const char *why)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(s->dir, "lost", flags, 0600);
    if (fd < 0)
        return errno == EEXIST ? 0 : vow__file_fail_errno(s, "lost", errno);
    ssize_t n = write(fd, why, strlen(why));
    (void)close(fd); /* the file counts, its text is for people */
    return n < 0 ? vow__file_fail_errno(s, "lost", errno) : 0;
}

bool vow__file_lost_read(struct vow__file *s, char why[FILE_LOST_MAX])
{
    int fd = openat(s->dir, "lost", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno != ENOENT;
    ssize_t n = read(fd, why, FILE_LOST_MAX - 1);
    (void)close(fd);
    why[n > 0 ? n : 0] = '\0';
    why[strcspn(why, "\n")] = '\0';
    return true;
}

/* `mark` has the number `high` of the last claim in mode VOW_ONCE. A file with
 * a smaller one is a copy from before that claim. The mark is read first: it is
 * written after the commit. */
int vow__file_age_check(struct vow__file *s)
{
    int64_t marked = 0;
    int64_t high = 0;
    if (pread(s->mark, &marked, sizeof(marked), 0) != sizeof(marked))
        return 0;
    int rc = vow__file_pragma(s, "SELECT high FROM meta", &high);
    if (rc != 0 || marked <= high)
        return rc;
    rc = vow__file_lost_write(s, "vow.db was replaced by an older copy");
    if (rc == 0)
        vow__file_age_mark(s, high);
    return rc;
}

/* If this fails, an older copy may go unnoticed, and nothing else happens. */
void vow__file_age_mark(struct vow__file *s, int64_t high)
{
    if (pwrite(s->mark, &high, sizeof(high), 0) < 0)
        return;
}

/* ---- another boot ------------------------------------------------------- */

int vow__file_adopt(struct vow__file *s)
{
    int lock = -1;
    int rc = lock_take(s, "lock", &lock);
    if (rc < 0)
        return rc;
    if (vow__file_anybody_lives(s))
        rc =
            vow__file_fail(s, VOW_EINVAL,
                           "%s is in use by processes with another clock (of a "
                           "container?): use another folder",
                           s->folder);
    else
        rc = adopt(s);
    lock_drop(lock);
    return rc;
}

static int adopt(struct vow__file *s)
{
    bool ours = false;
    int64_t now_us = s->clock_us();
    int rc = exec(s, "BEGIN IMMEDIATE");
    s->now_us = now_us;
    if (rc == 0)
        rc = vow__file_clock_ours(s, &ours);
    size_t n = ours ? 0 : sizeof(adoption) / sizeof(adoption[0]);
    (void)unlinkat(s->dir, "cache", 0);
    for (size_t i = 0; i < n && rc == 0; i++) {
        sqlite3_stmt *q = vow__file_sql(s, adoption[i]);
        if (q != NULL) { /* what a statement has not is refused, and may be */
            (void)sqlite3_bind_text(q, 1, s->boot, -1, SQLITE_STATIC);
            (void)sqlite3_bind_int64(q, 2, s->time_ns);
            (void)sqlite3_bind_int64(q, 3, now_us);
            (void)sqlite3_bind_int64(q, 4, FILE_EPOCHS_AHEAD);
        }
        rc = vow__file_do(s, q);
    }
    if (rc == 0 && !ours)
        rc = vow__file_firm_reboot(s);
    if (rc == 0 && !ours)
        rc = vow__file_pools_change(s, false);
    return end_change(s, rc);
}

/* Commits a change of all tables, or undoes the change. */
static int end_change(struct vow__file *s, int rc)
{
    if (rc == 0)
        rc = exec(s, "COMMIT");
    if (rc == 0)
        return vow__file_log_sync(s);
    (void)exec(s, "ROLLBACK");
    return rc;
}

/* ---- an earlier schema -------------------------------------------------- */

int vow__file_upgrade(struct vow__file *s)
{
    int lock = -1;
    if (sqlite3_db_readonly(s->db, "main") == 1)
        return vow__file_fail(
            s, VOW_ESTORE,
            "%s was made by an earlier vow, and is read only, "
            "so it cannot be upgraded: use the earlier vow, "
            "or another folder",
            s->folder);
    int rc = lock_take(s, "lock", &lock);
    if (rc < 0)
        return rc;
    rc = upgrade_tables(s);
    lock_drop(lock);
    return rc;
}

/* Owners and waiters of the earlier version could not go on: as long as there
 * are any, the file stays as it is. */
static int upgrade_tables(struct vow__file *s)
{
    static const char begin[] = "ALTER TABLE rec RENAME TO old_rec;"
                                "DROP TABLE once;"
                                "DROP TABLE wait;"
                                "DROP TABLE chunk;"
                                "DROP TABLE place;"
                                "ALTER TABLE pool RENAME TO old_pool;"
                                "ALTER TABLE spent RENAME TO old_spent";
    static const char pools[] =
        "INSERT INTO pool SELECT id,law,label,concurrent,rate,span,0,0,0,0,"
        "seq,fence,0,0,0,NULL FROM old_pool";
    static const char end[] = "DROP TABLE old_rec;"
                              "DROP TABLE old_pool;"
                              "DROP TABLE old_spent";
    char version[64];
    int64_t there = 0;
    int rc = exec(s, "BEGIN IMMEDIATE");
    s->now_us = s->clock_us();
    if (rc == 0)
        rc = vow__file_pragma(s, "PRAGMA user_version", &there);
    if (rc != 0 || there >= VOW__FILE_VERSION)
        return end_change(s, rc); /* another process was first */
    if (vow__file_anybody_lives(s))
        rc = vow__file_fail(s, VOW_ESTORE,
                            "%s is in use by processes of an earlier vow: wait "
                            "until these have ended, or use another folder",
                            s->folder);
    if (rc == 0)
        rc = exec(s, begin);
    if (rc == 0)
        rc = exec(s, name_tables);
    if (rc == 0)
        rc = exec(s, pool_tables);
    if (rc == 0)
        rc = exec(s, pools);
    if (rc == 0)
        rc = vow__file_firm_upgrade(s);
    if (rc == 0)
        rc = vow__file_pools_change(s, true);
    if (rc == 0)
        rc = exec(s, end);
    (void)snprintf(version, sizeof(version), "PRAGMA user_version=%d",
                   VOW__FILE_VERSION);
    if (rc == 0)
        rc = exec(s, version);
    return end_change(s, rc);
}
