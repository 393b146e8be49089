/* SPDX-License-Identifier: MIT */
/* file_open.c - opening the file, and opening it again.
 *
 * WHY   Commands open a store for one step, so that it must be fast; and
 *       programs use one for months, in which anything may happen to it.
 * HOW   Everything is opened when it is needed, and anew when the folder or the
 *       file is another one. A file is looked at no further than its version
 *       and its clock; if a step finds it damaged, file_make.c looks at all
 *       of it. Times in the file are those of a boot: after another, leases
 *       and results are void. In containers the clock may run differently; two
 *       clocks never mix.
 * INVARIANTS
 *   O1  db is open: then dir, mark and the numbers of the file are too
 *   O2  while the folder is the same one, the instance stays alive, whatever
 *       happens to the file
 * THREADS  loop thread only.
 */
#include "store/file/file_make.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAP_US = 500, NAP_MAX_US = 1000, CHANGES_MAX = 8 };

static int open_files(struct vow__file *s);
static int open_mark(struct vow__file *s);
static int open_db(struct vow__file *s);
static ino_t wal_ino(struct vow__file *s);
static int check_version(struct vow__file *s);
static int check_clock(struct vow__file *s);
static void folder_path(const struct vow__file *s, const char *name,
                        char path[64]);
static const char *hasty_vfs(void);
static int as_given(sqlite3_vfs *vfs, const char *path, int room, char *out);
static int nap(sqlite3_vfs *vfs, int us);
static int on_wal(void *store, sqlite3 *db, const char *name, int frames);

int vow__file_open(struct vow__file *s)
{
    if (s->db != NULL)
        return 0;
    bool again = s->opened > 0;
    int rc = open_files(s);
    if (rc < 0) {
        vow__file_close(s);
        return rc == VOW_EINVAL && again ? VOW_ESTORE : rc;
    }
    s->opened++;
    if (again)
        vow__file_doubt(s); /* who waited is perhaps not registered any more */
    return 0;
}

static int open_files(struct vow__file *s)
{
    int rc = 0;
    if (s->dir >= 0 && !vow__file_same_folder(s)) {
        vow__file_leave(s);
        (void)close(s->dir);
        s->dir = -1;
    }
    if (vow__file_erased(s))
        vow__file_leave(s);
    if (s->dir < 0)
        rc = vow__file_folder_open(s, s->home);
    if (rc == 0 && s->boot[0] == '\0')
        rc = vow__file_boot_read(s);
    for (int i = 0; rc == 0; i++) {
        rc = open_mark(s);
        if (rc == 0)
            rc = open_db(s);
        if (rc != VOW_EAGAIN && rc != VOW_EBUSY)
            break;
        bool late = vow__file_now_ns() >= s->ends_ns;
        if (late && (rc == VOW_EBUSY || i >= CHANGES_MAX))
            return vow__file_fail_sqlite(s, SQLITE_BUSY);
        if (rc == VOW_EBUSY)
            vow__file_nap_us(NAP_US);
        vow__file_close(s);
        rc = 0;
    }
    return rc;
}

bool vow__file_same_folder(struct vow__file *s)
{
    struct stat ours;
    struct stat there;
    return fstat(s->dir, &ours) == 0 && lstat(s->home, &there) == 0 &&
           ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

/* A folder that cannot be written to can be looked at. */
static int open_mark(struct vow__file *s)
{
    const int flags = O_NOFOLLOW | O_CLOEXEC;
    s->mark = openat(s->dir, "mark", O_RDWR | O_CREAT | flags, 0600);
    int error = errno;
    if (s->mark < 0 && (error == EROFS || error == EACCES))
        s->mark = openat(s->dir, "mark", O_RDONLY | flags);
    return s->mark >= 0 ? 0 : vow__file_fail_errno(s, "mark", error);
}

/* VOW_EAGAIN: something has been done about it. VOW_EBUSY: others are doing
 * something. */
static int open_db(struct vow__file *s)
{
    struct stat st;
    int rc = fstatat(s->dir, "vow.db", &st, AT_SYMLINK_NOFOLLOW);
    if (rc != 0 && errno == ENOENT) {
        rc = vow__file_make(s);
        return rc == 0 ? VOW_EAGAIN : rc;
    }
    if (rc != 0)
        return vow__file_fail_errno(s, "vow.db", errno);
    s->db_dev = st.st_dev;
    s->db_ino = st.st_ino;
    s->seen_us = vow__file_clock_us();
    rc = vow__file_connect(s, "vow.db", SQLITE_OPEN_READWRITE);
    if (rc == 0)
        rc = check_version(s);
    if (rc == 0)
        rc = check_clock(s);
    s->wal_ino = wal_ino(s);
    if (rc > 0 &&
        ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB))
        rc = vow__file_damaged(s, false) == 0 ? VOW_EAGAIN : VOW_ESTORE;
    if (rc > 0 && ((rc & 0xff) == SQLITE_BUSY ||
                   (rc & 0xff) == SQLITE_PROTOCOL || vow__file_moved(s)))
        rc = VOW_EBUSY;
    return rc > 0 ? vow__file_fail_sqlite(s, rc) : rc;
}

bool vow__file_moved(struct vow__file *s)
{
    struct stat st;
    char path[FILE_PATH_MAX + 32];
    vow__file_path(s->home, "vow.db", path);
    return lstat(path, &st) != 0 || st.st_ino != s->db_ino ||
           st.st_dev != s->db_dev || wal_ino(s) != s->wal_ino ||
           vow__file_erased(s);
}

/* A log that was removed has our transactions, and nobody else's. */
static ino_t wal_ino(struct vow__file *s)
{
    struct stat st;
    int rc = fstatat(s->dir, "vow.db-wal", &st, AT_SYMLINK_NOFOLLOW);
    return rc == 0 ? st.st_ino : 0;
}

/* ---- the connection ----------------------------------------------------- */

int vow__file_connect(struct vow__file *s, const char *name, int flags)
{
    char path[64];
    folder_path(s, name, path);
    flags |=
        SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOFOLLOW;
    const char *vfs = hasty_vfs();
    int rc =
        vfs == NULL ? SQLITE_NOMEM : sqlite3_open_v2(path, &s->db, flags, vfs);
    if (rc != 0)
        return s->db == NULL ? SQLITE_NOMEM : sqlite3_extended_errcode(s->db);
    sqlite3_int64 none = 0;
    int piece = FILE_GROWS_BY;
    (void)sqlite3_extended_result_codes(s->db, 1);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    (void)sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    (void)sqlite3_file_control(s->db, NULL, SQLITE_FCNTL_MMAP_SIZE, &none);
    (void)sqlite3_file_control(s->db, NULL, SQLITE_FCNTL_CHUNK_SIZE, &piece);
    (void)sqlite3_wal_hook(s->db, on_wal, s); /* and so none by itself */
    return sqlite3_exec(s->db,
                        "PRAGMA synchronous=NORMAL;PRAGMA cell_size_check=1;"
                        "PRAGMA journal_size_limit=4194304",
                        NULL, NULL, NULL);
}

/* SQLite takes a path. This one leads to the folder that was checked, whatever
 * others rename. */
static void folder_path(const struct vow__file *s, const char *name,
                        char path[64])
{
    (void)snprintf(path, 64, "/proc/self/fd/%d/%.30s", s->dir, name);
}

/* For checkpoints; it stays open, or each would wait for the disk to know of a
 * new descriptor. */
int vow__file_connect_second(struct vow__file *s)
{
    int64_t version;
    sqlite3 *first = s->db;
    int rc = vow__file_connect(s, "vow.db", SQLITE_OPEN_READWRITE);
    if (rc == 0) /* opens the log */
        rc = vow__file_pragma(s, "PRAGMA user_version", &version);
    s->second = s->db;
    s->db = first;
    if (rc != 0) {
        (void)sqlite3_close_v2(s->second);
        s->second = NULL;
    }
    return rc;
}

/* A process that is stopped in the middle of SQLite's own locks keeps others
 * from reading, and SQLite tries again for ten seconds, sleeping between. So it
 * has the system's functions but for two: it sleeps less, and gives up sooner,
 * and we try again for as long as we want to; and it takes paths as they are,
 * and does not look for links in them. NULL: no memory. */
static const char *hasty_vfs(void)
{
    static const char name[] = "vow-hasty";
    const sqlite3_vfs *system = sqlite3_vfs_find(NULL);
    if (sqlite3_vfs_find(name) != NULL)
        return name;
    sqlite3_vfs *hasty = sqlite3_malloc64(sizeof(*hasty));
    if (hasty == NULL || system == NULL) {
        sqlite3_free(hasty);
        return NULL;
    }
    *hasty = *system;
    hasty->pNext = NULL;
    hasty->zName = name;
    hasty->xSleep = nap;
    hasty->xFullPathname = as_given;
    if (sqlite3_vfs_register(hasty, 0) == 0)
        return name; /* it stays as long as the process */
    sqlite3_free(hasty);
    return NULL;
}

static int nap(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    vow__file_nap_us(us < NAP_MAX_US ? us : NAP_MAX_US);
    return us;
}

static int as_given(sqlite3_vfs *vfs, const char *path, int room, char *out)
{
    (void)vfs;
    int n = snprintf(out, (size_t)room, "%s", path);
    return n >= 0 && n < room ? SQLITE_OK : SQLITE_CANTOPEN;
}

static int on_wal(void *store, sqlite3 *db, const char *name, int frames)
{
    struct vow__file *s = store;
    (void)db;
    (void)name;
    if (frames < s->wal_frames)
        s->wal_tried = 0; /* it was begun anew */
    s->wal_frames = frames;
    return SQLITE_OK;
}

void vow__file_disconnect(struct vow__file *s)
{
    for (size_t i = 0; i < FILE_SQL_MAX; i++)
        (void)sqlite3_finalize(s->prepared[i].stmt);
    memset(s->prepared, 0, sizeof(s->prepared));
    (void)sqlite3_close_v2(s->second);
    (void)sqlite3_close_v2(s->db);
    s->second = NULL;
    s->db = NULL;
    s->wal_frames = 0;
    s->wal_tried = 0;
    s->dir_synced = false;
}

/* The folder and the instance stay: keeps O2. */
void vow__file_close(struct vow__file *s)
{
    if (s->db != NULL)
        vow__file_disconnect(s);
    vow__file_line_close(s->line);
    s->line = NULL;
    if (s->mark >= 0)
        (void)close(s->mark);
    s->mark = -1;
}

/* ---- is it the right one ------------------------------------------------ */

int vow__file_refuse_newer(struct vow__file *s, int64_t version)
{
    return vow__file_fail(
        s, VOW_ESTORE,
        "%s/vow.db has version %lld of the tables, made by a newer vow, and "
        "this vow knows version %d: use the newer vow, or another folder",
        s->folder, (long long)version, VOW__FILE_VERSION);
}

static int check_version(struct vow__file *s)
{
    int64_t id;
    int64_t version;
    int rc = vow__file_pragma(s, "PRAGMA application_id", &id);
    if (rc == 0)
        rc = vow__file_pragma(s, "PRAGMA user_version", &version);
    if (rc != 0)
        return rc;
    if (id != VOW__FILE_APPLICATION || version < VOW__FILE_VERSION_OLDEST)
        return SQLITE_NOTADB;
    if (version > VOW__FILE_VERSION)
        return vow__file_refuse_newer(s, version);
    if (version == VOW__FILE_VERSION)
        return 0;
    rc = vow__file_upgrade(s);
    return rc == 0 ? VOW_EAGAIN : rc;
}

static int check_clock(struct vow__file *s)
{
    bool ours;
    int rc = vow__file_age_check(s);
    if (rc == 0)
        rc = vow__file_clock_ours(s, &ours);
    if (rc != 0 || ours)
        return rc;
    rc = vow__file_adopt(s);
    return rc == 0 ? VOW_EAGAIN : rc;
}
