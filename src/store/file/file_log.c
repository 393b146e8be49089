/* SPDX-License-Identifier: MIT */
/* file_log.c - the log of SQLite, on the disk.
 *
 * WHY   A step that must survive is answered when the log is on the disk. A
 *       sync that fails is not made good by the next one: Linux takes the bytes
 *       for written, and the next sync has nothing to do. And bytes that are
 *       missing in the log end the log: each frame has a checksum over all
 *       frames before, so steps that were synced later are lost too.
 * HOW   After a failed sync the log is in doubt. `mark` says so, because the
 *       next process may open the log after the failure and would not hear of
 *       it. While the log is in doubt, a step is answered only behind the mend:
 *       under the write lock, every frame is read, checked and written again,
 *       and then the log is synced. A kernel that has dropped the bytes shows
 *       by the checksums; then the log stays in doubt. No checkpoint is made of
 *       a log in doubt: the log that is on the disk would be older than the
 *       pages in the file.
 *       The layout of log and index is in SQLite's walformat.html.
 * INVARIANTS
 *   L1  the doubt ends only when all frames were written and synced anew
 * THREADS  loop thread only.
 */
#include "store/file/file_internal.h"

#include <string.h>
#include <unistd.h>

enum {
    DOUBT_AT = 16, /* where `mark` has the doubt: 0 or 1 */
    /* Of the index: its first part, and where the number of frames is. */
    INDEX_SIZE = 32768,
    INDEX_FRAMES = 16,
    /* Of the log: the head, the head of a frame, and what is where. */
    LOG_PAGE = 4096,
    LOG_HEAD = 32,
    HEAD_PAGE = 8,
    HEAD_SALTS = 16,
    HEAD_SUMS = 24,
    FRAME_HEAD = 24,
    FRAME_SALTS = 8,
    FRAME_SUMS = 16,
    SALTS = 8
};

/* Of the log so far: each frame has the sums up to there. */
struct log_sums {
    uint32_t one, two;
    bool big_endian;
};

static int log_rewrite(sqlite3_file *log, uint32_t frames);

/* ---- the doubt ----------------------------------------------------------- */

void vow__file_log_doubt(struct vow__file *s)
{
    static const unsigned char doubted = 1;
    s->log_doubted = true;
    if (pwrite(s->mark, &doubted, 1, DOUBT_AT) < 0)
        return; /* this process still knows */
}

bool vow__file_log_doubted(const struct vow__file *s)
{
    unsigned char doubted = 0;
    return s->log_doubted ||
           (pread(s->mark, &doubted, 1, DOUBT_AT) == 1 && doubted != 0);
}

/* ---- syncing ------------------------------------------------------------- */

/* NULL: there is no log yet. */
static sqlite3_file *log_file(struct vow__file *s)
{
    sqlite3_file *log = NULL;
    int rc =
        sqlite3_file_control(s->db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &log);
    return rc == 0 && log != NULL && log->pMethods != NULL ? log : NULL;
}

int vow__file_log_sync(struct vow__file *s)
{
    sqlite3_file *log = log_file(s);
    int rc = log == NULL ? 0 : log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
    if (rc != 0)
        vow__file_log_doubt(s);
    if (rc == 0 && !s->dir_synced)
        s->dir_synced = fsync(s->dir) == 0;
    return rc;
}

/* The number of frames in the log; nobody writes. */
static int log_frames(struct vow__file *s, uint32_t *ret_frames)
{
    sqlite3_file *db = NULL;
    volatile void *index = NULL;
    int rc =
        sqlite3_file_control(s->db, "main", SQLITE_FCNTL_FILE_POINTER, &db);
    if (rc == 0)
        rc = db->pMethods->xShmMap(db, 0, INDEX_SIZE, 0, &index);
    if (rc == 0 && index == NULL)
        rc = SQLITE_IOERR_SHMMAP;
    if (rc == 0)
        *ret_frames = ((volatile uint32_t *)index)[INDEX_FRAMES / 4];
    return rc;
}

int vow__file_log_mend(struct vow__file *s)
{
    static const unsigned char sound = 0;
    sqlite3_file *log = log_file(s);
    uint32_t frames = 0;
    int rc = log == NULL ? SQLITE_IOERR : log_frames(s, &frames);
    if (rc == 0) /* tells of what failed before, and no more */
        (void)log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
    if (rc == 0)
        rc = log_rewrite(log, frames);
    if (rc == 0)
        rc = vow__file_log_sync(s);
    if (rc != 0)
        return rc;
    s->log_doubted = false; /* keeps L1 */
    return pwrite(s->mark, &sound, 1, DOUBT_AT) == 1 ? 0 : SQLITE_IOERR_WRITE;
}

/* ---- writing the log again ----------------------------------------------- */

static uint32_t word_read(const unsigned char *at, bool big_endian)
{
    return big_endian ? (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 |
                            (uint32_t)at[2] << 8 | at[3]
                      : (uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 |
                            (uint32_t)at[1] << 8 | at[0];
}

static void sums_add(struct log_sums *sums, const unsigned char *at,
                     size_t size)
{
    for (size_t i = 0; i < size; i += 8) {
        sums->one += word_read(at + i, sums->big_endian) + sums->two;
        sums->two += word_read(at + i + 4, sums->big_endian) + sums->one;
    }
}

static bool sums_equal(const struct log_sums *sums, const unsigned char *at)
{
    return word_read(at, true) == sums->one &&
           word_read(at + 4, true) == sums->two;
}

static int head_rewrite(sqlite3_file *log, unsigned char head[LOG_HEAD],
                        struct log_sums *sums)
{
    int rc = log->pMethods->xRead(log, head, LOG_HEAD, 0);
    if (rc != 0)
        return rc;
    sums->big_endian = (head[3] & 1) != 0;
    sums_add(sums, head, HEAD_SUMS);
    if (word_read(head + HEAD_PAGE, true) != LOG_PAGE ||
        !sums_equal(sums, head + HEAD_SUMS))
        return SQLITE_IOERR_READ;
    return log->pMethods->xWrite(log, head, LOG_HEAD, 0);
}

static int frame_rewrite(sqlite3_file *log, sqlite3_int64 at,
                         const unsigned char head[LOG_HEAD],
                         struct log_sums *sums)
{
    unsigned char frame[FRAME_HEAD + LOG_PAGE];
    int rc = log->pMethods->xRead(log, frame, sizeof(frame), at);
    if (rc != 0)
        return rc;
    sums_add(sums, frame, FRAME_SALTS);
    sums_add(sums, frame + FRAME_HEAD, LOG_PAGE);
    if (memcmp(frame + FRAME_SALTS, head + HEAD_SALTS, SALTS) != 0 ||
        !sums_equal(sums, frame + FRAME_SUMS))
        return SQLITE_IOERR_READ;
    return log->pMethods->xWrite(log, frame, sizeof(frame), at);
}

/* Writes the same bytes: readers of the log do not notice. */
static int log_rewrite(sqlite3_file *log, uint32_t frames)
{
    unsigned char head[LOG_HEAD];
    struct log_sums sums = {.one = 0};
    sqlite3_int64 at = LOG_HEAD;
    int rc = frames == 0 ? 0 : head_rewrite(log, head, &sums);
    for (; frames > 0 && rc == 0; frames--) {
        rc = frame_rewrite(log, at, head, &sums);
        at += FRAME_HEAD + LOG_PAGE;
    }
    return rc;
}
