/* SPDX-License-Identifier: MIT */
/* file_sweep.c - removing what is over, and what the dead have left.
 *
 * WHY   A result that nobody asks for again, a process that was killed: nobody
 *       meets what they leave, and it would stay.
 * HOW   Rows are removed by chance, after one step in some hundreds, so that
 *       many short commands do it as well as one long program: a stretch of the
 *       records, of results left, and of pools, from a name that is drawn. All
 *       is swept once a minute, by one process that writes or that leaves:
 *       `mark` has the time of the last sweep. That removes files of instances
 *       that have died, results in files that are over, and files that no row
 *       names any more and whose writer has died.
 *       A dead instance's file is locked by who removes it, so that one that is
 *       just being made is not taken for it.
 * LIMITS  ROWS rows and FILES files of each folder in one go.
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    ROWS = 1024,
    ROWS_CHANCE = 256, /* one step in so many looks at so many rows */
    DUE_CHANCE = 16,   /* and one in so many whether a sweep is due */
    FILES = 1024,
    FOUND_MAX = 64,
    ROUNDS_MAX = 64, /* files that cannot be removed come again */
    DUE_AT = 8       /* where `mark` has the time of the last sweep */
};
#define DUE_US (INT64_C(60) * 1000 * 1000)

/* A file with a value, and whether a row names it. */
struct asked {
    vow_name name;
    const char *file;
    bool named;
    bool over; /* and the row is */
};

struct graves {
    size_t n;
    unsigned char id[FOUND_MAX][FILE_ID];
};

static bool sweep_is_due(struct vow__file *s);
static int rows_step(struct vow__file *s, void *arg);
static int sweep_rows(struct vow__file *s, const unsigned char *from);
static int delete_over(struct vow__file *s, sqlite3_stmt *q,
                       const unsigned char *from, bool records);
static int sweep_pools(struct vow__file *s, const unsigned char *from);
static int sweep_parted(struct vow__file *s);
static void sweep_live(struct vow__file *s, struct graves *g);
static bool remove_dead(struct vow__file *s, const char *hex);
static void sweep_sockets(struct vow__file *s);
static int graves_step(struct vow__file *s, void *arg);
static void sweep_values(struct vow__file *s);
static bool is_orphan(struct vow__file *s, const char *file);
static int named_step(struct vow__file *s, void *arg);
static int over_step(struct vow__file *s, void *arg);
static DIR *folder(struct vow__file *s, const char *name);

void vow__file_sweep(struct vow__file *s)
{
    uint64_t chance = vow_loop_random(s->loop);
    if (s->swept)
        return;
    if (chance % DUE_CHANCE == 0)
        vow__file_sweep_all(s);
    if (chance % ROWS_CHANCE != 0)
        return;
    s->swept = true;
    (void)vow__file_step(s, VOW__FILE_WRITE, rows_step, NULL);
    s->swept = false;
}

void vow__file_sweep_all(struct vow__file *s)
{
    if (s->swept || s->db == NULL || !sweep_is_due(s))
        return;
    s->swept = true;
    (void)vow__file_step(s, VOW__FILE_WRITE, rows_step, NULL);
    if (s->dir >= 0)
        vow__file_sweep_files(s);
    s->swept = false;
}

/* A time to come is that of another boot. Two who find it due at once both
 * sweep, and do no harm. */
static bool sweep_is_due(struct vow__file *s)
{
    int64_t last = 0;
    int64_t now = vow__file_clock_us();
    bool known = pread(s->mark, &last, sizeof(last), DUE_AT) == sizeof(last);
    if (known && last <= now && now - last < DUE_US)
        return false;
    return pwrite(s->mark, &now, sizeof(now), DUE_AT) == sizeof(now);
}

void vow__file_sweep_files(struct vow__file *s)
{
    struct graves g = {.n = FOUND_MAX};
    for (int i = 0; i < ROUNDS_MAX && g.n == FOUND_MAX; i++) {
        g.n = 0;
        sweep_live(s, &g);
        if (g.n > 0)
            (void)vow__file_step(s, VOW__FILE_WRITE, graves_step, &g);
    }
    sweep_sockets(s);
    sweep_values(s);
}

/* ---- rows --------------------------------------------------------------- */

static int rows_step(struct vow__file *s, void *arg)
{
    uint64_t drawn[4];
    (void)arg;
    for (size_t i = 0; i < 4; i++)
        drawn[i] = vow_loop_random(s->loop);
    int rc = sweep_rows(s, (const unsigned char *)drawn);
    if (rc == 0)
        rc = sweep_pools(s, (const unsigned char *)drawn);
    return rc == 0 ? sweep_parted(s) : rc;
}

/* A stretch of the records, and of the results left for waiters. */
static int sweep_rows(struct vow__file *s, const unsigned char *from)
{
    static const char records[] =
        "DELETE FROM rec WHERE h IN(SELECT h FROM"
        "(SELECT h,ends FROM rec WHERE h>=?1 ORDER BY h LIMIT ?3)"
        " WHERE ends<=?2) RETURNING file,h";
    static const char left[] =
        "DELETE FROM left_value WHERE(h,first)IN(SELECT h,first FROM"
        "(SELECT h,first,ends FROM left_value WHERE h>=?1 ORDER BY h LIMIT ?3)"
        " WHERE ends<=?2) RETURNING file,h";
    int rc = delete_over(s, vow__file_sql(s, records), from, true);
    return rc == 0 ? delete_over(s, vow__file_sql(s, left), from, false) : rc;
}

/* Chunks, registered instances and the copy go with a record. If there was a
 * copy, the file of the value is removed when the log is on the disk: keeps S2.
 */
static int delete_kin(struct vow__file *s, const vow_name *name)
{
    static const char *const kin[] = {"DELETE FROM chunk WHERE h=?1",
                                      "DELETE FROM wait WHERE h=?1",
                                      "DELETE FROM firm WHERE h=?1"};
    int rc = 0;
    for (size_t i = 0; i < sizeof(kin) / sizeof(kin[0]) && rc == 0; i++) {
        sqlite3_stmt *q = vow__file_sql(s, kin[i]);
        vow__file_bind(q, 1, name->hash, sizeof(name->hash));
        rc = vow__file_do(s, q);
    }
    s->firm = s->firm || (rc == 0 && sqlite3_changes(s->db) > 0);
    return rc;
}

static int delete_over(struct vow__file *s, sqlite3_stmt *q,
                       const unsigned char *from, bool records)
{
    int rc;
    vow__file_bind(q, 1, from, sizeof(vow_name));
    vow__file_bind_int(q, 2, s->now_us);
    vow__file_bind_int(q, 3, ROWS);
    while (vow__file_row(s, q, &rc)) {
        char file[FILE_NAME_MAX];
        vow_name name;
        vow__file_text_read(q, 0, file, sizeof(file));
        vow__file_bytes_read(q, 1, name.hash, sizeof(name.hash));
        int code = file[0] == '\0' ? 0 : vow__file_litter(s, file);
        if (code == 0 && records)
            code = delete_kin(s, &name);
        if (code != 0) {
            (void)sqlite3_reset(q);
            return code;
        }
    }
    return rc;
}

/* A stretch of the pools: those of keys without permits, with an old rate log.
 */
static int sweep_pools(struct vow__file *s, const unsigned char *from)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "DELETE FROM pool WHERE id IN(SELECT id FROM"
           "(SELECT id,ends FROM pool WHERE id>=?1 ORDER BY id LIMIT ?3)"
           " WHERE ends<=?2)");
    vow__file_bind(q, 1, from, sizeof(vow_name));
    vow__file_bind_int(q, 2, s->now_us);
    vow__file_bind_int(q, 3, ROWS);
    return vow__file_do(s, q);
}

static int sweep_parted(struct vow__file *s)
{
    sqlite3_stmt *q = vow__file_sql(s, "DELETE FROM parted WHERE ends<=?1");
    vow__file_bind_int(q, 1, s->now_us);
    return vow__file_do(s, q);
}

/* ---- the dead ----------------------------------------------------------- */

void vow__file_bury(struct vow__file *s, const unsigned char *id)
{
    struct graves g = {.n = 1};
    char hex[FILE_HEX];
    if (!vow__file_gone(s, id))
        return;
    memcpy(g.id[0], id, FILE_ID);
    vow__file_hex(id, hex);
    if (vow__file_step(s, VOW__FILE_WRITE, graves_step, &g) == 0)
        (void)remove_dead(s, hex);
}

static int graves_step(struct vow__file *s, void *arg)
{
    struct graves *g = arg;
    int rc = 0;
    for (size_t i = 0; i < g->n && rc == 0; i++) {
        sqlite3_stmt *q = vow__file_sql(s, "DELETE FROM wait WHERE inst=?1");
        vow__file_bind(q, 1, g->id[i], FILE_ID);
        rc = vow__file_do(s, q);
        if (rc == 0)
            rc = vow__file_permits_drop(s, g->id[i]);
    }
    return rc;
}

static void sweep_live(struct vow__file *s, struct graves *g)
{
    DIR *dir = folder(s, "live");
    struct dirent *e;
    if (dir == NULL)
        return;
    for (int i = 0; i < FILES && (e = readdir(dir)) != NULL; i++) {
        unsigned char id[FILE_ID];
        if (g->n < FOUND_MAX && vow__file_unhex(e->d_name, id) &&
            remove_dead(s, e->d_name))
            memcpy(g->id[g->n++], id, FILE_ID);
    }
    (void)closedir(dir);
}

/* Never a file of this process: to close it would give up its lock. */
static bool remove_dead(struct vow__file *s, const char *hex)
{
    unsigned char id[FILE_ID];
    char path[64];
    if (!vow__file_unhex(hex, id) || strlen(hex) != FILE_HEX - 1 ||
        vow__file_ours(s, id))
        return false;
    (void)snprintf(path, sizeof(path), "live/%s", hex);
    int fd = openat(s->dir, path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fd < 0)
        return false;
    bool dead = fcntl(fd, F_SETLK, &l) == 0;
    if (dead) {
        (void)unlinkat(s->dir, path, 0);
        (void)snprintf(path, sizeof(path), "sock/%s", hex);
        (void)unlinkat(s->dir, path, 0);
    }
    (void)close(fd);
    return dead;
}

/* An instance makes its live file before its socket, and removes it after. */
static void sweep_sockets(struct vow__file *s)
{
    DIR *dir = folder(s, "sock");
    struct dirent *e;
    if (dir == NULL)
        return;
    for (int i = 0; i < FILES && (e = readdir(dir)) != NULL; i++) {
        unsigned char id[FILE_ID];
        char path[64];
        (void)snprintf(path, sizeof(path), "live/%.40s", e->d_name);
        if (vow__file_unhex(e->d_name, id) &&
            faccessat(s->dir, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0)
            (void)unlinkat(dirfd(dir), e->d_name, 0);
    }
    (void)closedir(dir);
}

/* ---- values ------------------------------------------------------------- */

static void sweep_values(struct vow__file *s)
{
    DIR *dir = folder(s, "val");
    struct dirent *e;
    if (dir == NULL)
        return;
    for (int i = 0; i < FILES && (e = readdir(dir)) != NULL; i++)
        if (is_orphan(s, e->d_name))
            vow__file_value_unlink(s, e->d_name);
    (void)closedir(dir);
}

/* NAME.INST.NUMBER: its writer has died, and no row names it; or its row is over,
 * and goes too. */
static bool is_orphan(struct vow__file *s, const char *file)
{
    char text[VOW_NAME_TEXT];
    unsigned char id[FILE_ID];
    struct asked asked = {.file = file};
    if (strlen(file) < sizeof(text) + FILE_HEX || file[sizeof(text) - 1] != '.')
        return false;
    memcpy(text, file, sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    if (!vow_name_parse(text, &asked.name) ||
        !vow__file_unhex(file + sizeof(text), id))
        return false;
    bool gone = vow__file_gone(s, id); /* first: a writer may commit and end */
    if (vow__file_step(s, VOW__FILE_READ, named_step, &asked) != 0)
        return false;
    if (asked.over)
        return vow__file_step(s, VOW__FILE_WRITE, over_step, &asked) == 0 &&
               !asked.named;
    return !asked.named && gone;
}

static int named_step(struct vow__file *s, void *arg)
{
    struct asked *asked = arg;
    sqlite3_stmt *q = vow__file_sql(
        s, "SELECT ends<=?3 FROM rec WHERE h=?1 AND file=?2 UNION ALL"
           " SELECT 0 FROM left_value WHERE h=?1 AND file=?2");
    int rc;
    vow__file_bind(q, 1, asked->name.hash, sizeof(asked->name.hash));
    vow__file_bind_text(q, 2, asked->file);
    vow__file_bind_int(q, 3, s->now_us);
    asked->named = vow__file_row(s, q, &rc);
    asked->over = asked->named && sqlite3_column_int(q, 0) != 0;
    if (asked->named)
        (void)sqlite3_reset(q);
    return rc;
}

/* asked->named: another has written the row meanwhile, or it was kept. */
static int over_step(struct vow__file *s, void *arg)
{
    struct asked *asked = arg;
    sqlite3_stmt *q = vow__file_sql(s, "DELETE FROM rec WHERE h=?1 AND file=?2"
                                       " AND ends<=?3");
    vow__file_bind(q, 1, asked->name.hash, sizeof(asked->name.hash));
    vow__file_bind_text(q, 2, asked->file);
    vow__file_bind_int(q, 3, s->now_us);
    int rc = vow__file_do(s, q);
    asked->named = rc != 0 || sqlite3_changes(s->db) == 0;
    return rc == 0 && !asked->named ? delete_kin(s, &asked->name) : rc;
}

static DIR *folder(struct vow__file *s, const char *name)
{
    int fd = openat(s->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL && fd >= 0)
        (void)close(fd);
    return dir;
}
