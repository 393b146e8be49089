/* SPDX-License-Identifier: MIT */
/* file_step.c - a step is a transaction, in its turn.
 *
 * WHY   Every step must be whole or not at all, whatever goes wrong in it, and
 *       end within a bounded time. And SQLite before 3.51.3 damages its file
 *       when a checkpoint and a writer that begins the log anew meet.
 * HOW   A step that may not need to write begins by reading, without waiting
 *       for anybody. When it has to write it takes its turn in the line. If the
 *       file has changed since it was read, the step is run again, writing from
 *       the start, with the turn in hand. SQLite never waits for a lock by
 *       itself; we do, up to request_ms.
 *       SQLite makes no checkpoint by itself either. Who finds the log long
 *       takes SQLite's lock for writing, and makes one through a second
 *       connection: so no writer meets it, in whatever process. A lock of our
 *       own around every step would do the same, and cost a tenth of it.
 *       It takes as long as the disk needs. So it is made between two steps,
 *       when the first is answered, and who was told of a result has it; or in
 *       a step, when the log is longer still.
 *       Who opens the file alone reads all of the log first. Commands that come
 *       one by one would do so each: the last who leaves makes it short.
 *       The file that was opened may be another's by now: someone removed the
 *       folder, or set a damaged file aside. Who does the latter removes `mark`
 *       too, and our own descriptor of that shows it; the path is looked at ten
 *       times a second. A step that is under way then counts as one before: all
 *       that was known is gone in either case.
 * INVARIANTS
 *   S1  a checkpoint is made only by who has SQLite's lock for writing
 *   S2  messages go out and files are removed after the commit, never without;
 *       of a step of S4, when the log is on the disk
 *   S3  a failed step leaves no transaction and no turn behind
 *   S4  a step that sets s->firm, or finds the log in doubt, is answered when
 *       the log is on the disk
 * THREADS  loop thread only.
 */
#include "base/clock.h"
#include "store/file/file_make.h"
#include "store/file/file_rows.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MOVED = 1 << 20,      /* as a code of SQLite's: the file is another's */
    REREAD = 1 << 21,     /* the same: an owner has died, see owner_died() */
    REREADS_MAX = 8,      /* of one step; then the next look tells */
    LOOK_US = 100 * 1000, /* between looks at the path */
    CHECKPOINT_FRAMES = 1000,
    CHECKPOINT_AGAIN = 500, /* more, when readers kept the log from ending */
    TIDY_FRAMES = 64,
    PAGE = 4096,
    RESERVE_PAGES = 128,
    NAP_FIRST_US = 100,
    NAP_MAX_US = 4000
};

static int run(struct vow__file *s, enum vow__file_how how, vow__file_fn fn,
               void *arg);
static int attempt(struct vow__file *s, enum vow__file_how how, vow__file_fn fn,
                   void *arg, bool rereads);
static int confirm_step(struct vow__file *s);
static int mend_log(struct vow__file *s);
static int begin(struct vow__file *s, enum vow__file_how how);
static int finish(struct vow__file *s);
static void undo(struct vow__file *s);
static int enter(struct vow__file *s);
static int enter_free(struct vow__file *s);
static bool wait_more(struct vow__file *s, long *nap_us);
static void leave(struct vow__file *s);
static bool is_long(const struct vow__file *s, int frames);
static void checkpoint(struct vow__file *s);
static int backfill(struct vow__file *s);
static void empty_log(struct vow__file *s);
static bool same_file(struct vow__file *s);
static bool is_busy(int rc);
static bool is_damage(int rc);
static bool is_io(int rc);
static bool is_full(const struct vow__file *s, int rc);

/* ---- running ------------------------------------------------------------ */

int vow__file_step(struct vow__file *s, enum vow__file_how how, vow__file_fn fn,
                   void *arg)
{
    if (getpid() != s->pid)
        return vow__file_fail(s, VOW_ESTORE,
                              "a store does not survive a fork: open it again "
                              "in the child");
    vow__file_patience(s);
    s->full = false;
    vow__buf_clear(&s->dead);
    int rc = run(s, how, fn, arg);
    bool wrote = s->wrote;
    bool firm = rc == 0 && (s->firm || vow__file_log_doubted(s));
    bool happened = rc == 0;
    if (happened && !firm)
        vow__file_messages_send(s); /* not after a checkpoint */
    leave(s);
    if (firm)
        rc = confirm_step(s);
    if (rc == 0) {
        vow__file_messages_send(s);
        vow__file_litter_clear(s);
    } else {
        vow__file_messages_drop(s); /* keeps S2 */
        vow__buf_clear(&s->litter);
    }
    if (happened) {
        s->io_errors = 0;
        if (wrote)
            vow__file_sweep(s);
    }
    if (rc > 0)
        rc = vow__file_fail_sqlite(s, rc);
    return rc;
}

/* The step has happened; whether a loss of power would undo it is not known
 * without the sync. While the log is in doubt, this holds for every step: a
 * repeated step, and a step that finds what another one has written. */
static int confirm_step(struct vow__file *s)
{
    int rc = SQLITE_IOERR;
    s->firm = false;
    if (s->db != NULL)
        rc = vow__file_log_doubted(s) ? mend_log(s) : vow__file_log_sync(s);
    if (rc == 0)
        return 0;
    return vow__file_fail(s, VOW_EUNSURE,
                          "%s: the disk does not confirm what was written",
                          s->folder);
}

static int mend_log(struct vow__file *s)
{
    long nap_us = NAP_FIRST_US;
    if (sqlite3_db_readonly(s->db, "main") == 1)
        return 0; /* this process can only look */
    int rc = enter(s);
    if (rc == 0)
        do
            rc = sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        while (is_busy(rc) && wait_more(s, &nap_us));
    if (rc == 0)
        rc = vow__file_log_mend(s);
    undo(s);
    s->wrote = false;
    leave(s);
    return rc;
}

static int run(struct vow__file *s, enum vow__file_how how, vow__file_fn fn,
               void *arg)
{
    long nap_us = NAP_FIRST_US;
    int damages = 0;
    int moves = 0;
    int rereads = 0;
    bool emptied = false;
    for (;;) {
        int rc = vow__file_open(s);
        if (rc == 0)
            rc = attempt(s, how, fn, arg, rereads < REREADS_MAX);
        if (rc == SQLITE_BUSY_SNAPSHOT) {
            how = VOW__FILE_WRITE;
        } else if (rc == REREAD) {
            rereads++;
        } else if (is_busy(rc) &&
                   (how == VOW__FILE_GUESS || how == VOW__FILE_FREE)) {
            how = VOW__FILE_READ;
        } else if (is_busy(rc)) {
            if (!wait_more(s, &nap_us))
                return rc;
        } else if (rc == MOVED) {
            leave(s);
            vow__file_close(s);
            if (++moves > 3)
                return vow__file_fail(s, VOW_ESTORE,
                                      "%s: somebody replaces it "
                                      "again and again",
                                      s->folder);
        } else if (is_damage(rc)) {
            leave(s);
            if (damages == 2)
                return rc;
            rc = vow__file_damaged(s, damages++ == 1);
            if (rc < 0)
                return rc;
        } else if (is_full(s, rc) && !emptied && s->db != NULL) {
            emptied = true; /* the log itself may be what fills the disk */
            empty_log(s);
            s->full = false;
        } else {
            return rc;
        }
    }
}

static int attempt(struct vow__file *s, enum vow__file_how how, vow__file_fn fn,
                   void *arg, bool rereads)
{
    vow__file_messages_drop(s);
    vow__buf_clear(&s->litter);
    s->reread = false;
    s->firm = false;
    int rc = begin(s, how);
    if (rc == 0)
        rc = fn(s, arg);
    if (rc == 0 && s->reread && rereads)
        rc = REREAD;
    if (rc == 0)
        rc = finish(s);
    if (rc != 0)
        undo(s);
    if ((rc == VOW_ESTORE || is_io(rc)) && !same_file(s))
        rc = MOVED; /* that may be why */
    return rc;
}

static int begin(struct vow__file *s, enum vow__file_how how)
{
    int rc = 0;
    if (how != VOW__FILE_READ) {
        rc = how == VOW__FILE_FREE ? enter_free(s) : enter(s);
        if (rc == 0)
            rc = vow__file_do(s, vow__file_sql(s, "BEGIN IMMEDIATE"));
    } else {
        rc = vow__file_do(s, vow__file_sql(s, "BEGIN"));
    }
    if (rc != 0)
        return rc;
    s->phase = how != VOW__FILE_READ ? FILE_WRITES : FILE_READS;
    s->now_us = s->clock_us();
    return 0;
}

/* A statement that changes nothing, and takes the lock for it. */
int vow__file_write(struct vow__file *s)
{
    if (s->phase == FILE_WRITES)
        return 0;
    VOW__ASSERT(s->phase == FILE_READS);
    int rc = enter(s);
    if (rc == 0)
        rc = vow__file_do(s, vow__file_sql(s, "DELETE FROM wait WHERE 0"));
    if (rc != 0)
        return rc;
    s->phase = FILE_WRITES;
    s->now_us = s->clock_us();
    return 0;
}

static int finish(struct vow__file *s)
{
    if (s->phase == FILE_READS && !same_file(s))
        return MOVED;
    int rc = vow__file_do(s, vow__file_sql(s, "COMMIT"));
    if (rc == 0)
        s->phase = FILE_IDLE;
    return rc;
}

static void undo(struct vow__file *s)
{
    s->phase = FILE_IDLE;
    if (s->db != NULL && sqlite3_get_autocommit(s->db) == 0)
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
}

/* ---- turns and checkpoints ---------------------------------------------- */

static int enter(struct vow__file *s)
{
    if (s->line == NULL)
        s->line = vow__file_line_open(s->dir);
    if (s->line != NULL && !s->has_turn)
        s->has_turn = vow__file_turn_take(s->line, s->pid, s->ends_ns,
                                          VOW__FILE_STUCK_MS, &s->ticket);
    s->wrote = true;
    return same_file(s) ? 0 : MOVED;
}

/* The same without waiting in the line. */
static int enter_free(struct vow__file *s)
{
    uint64_t ends_ns = s->ends_ns;
    s->ends_ns = 0;
    int rc = enter(s);
    s->ends_ns = ends_ns;
    if (rc != 0 || s->has_turn || s->line == NULL)
        return rc;
    s->wrote = false;
    return SQLITE_BUSY;
}

/* Between two attempts. False: it has lasted long enough. */
static bool wait_more(struct vow__file *s, long *nap_us)
{
    if (vow__file_now_ns() >= s->ends_ns)
        return false;
    if (s->has_turn)
        vow__file_turn_beat(s->line);
    vow__file_nap_us(*nap_us);
    *nap_us = *nap_us * 2 < NAP_MAX_US ? *nap_us * 2 : NAP_MAX_US;
    return true;
}

static void leave(struct vow__file *s)
{
    if (s->wrote && is_long(s, CHECKPOINT_FRAMES + CHECKPOINT_AGAIN))
        checkpoint(s);
    else if (s->wrote && is_long(s, CHECKPOINT_FRAMES))
        vow__file_relieve_soon(s);
    if (s->has_turn)
        vow__file_turn_pass(s->line, s->ticket);
    s->wrote = false;
    s->has_turn = false;
}

static bool is_long(const struct vow__file *s, int frames)
{
    return s->db != NULL && s->wal_frames >= frames + s->wal_tried;
}

void vow__file_relieve(struct vow__file *s)
{
    if (getpid() != s->pid || !is_long(s, CHECKPOINT_FRAMES))
        return;
    vow__file_patience(s);
    if (enter(s) == 0)
        checkpoint(s);
    s->wrote = false; /* if that was in vain, the next step will see */
    leave(s);
}

/* The log goes into the file when it is long, and the next who writes begins it
 * anew. If somebody has the lock, it waits for another time: it is our turn, so
 * that one was stopped. */
static void checkpoint(struct vow__file *s)
{
    s->wal_tried = s->wal_frames - CHECKPOINT_FRAMES + CHECKPOINT_AGAIN;
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == 0 &&
        (!vow__file_log_doubted(s) || vow__file_log_mend(s) == 0) &&
        backfill(s) == 0) { /* keeps S1 */
        s->wal_tried = 0;
        s->wal_frames = 0;
        vow__file_reserve(s);
    }
    undo(s);
}

/* Room in the file for what the log may have next time, or a log that has taken
 * the last of the disk could not be emptied. */
void vow__file_reserve(struct vow__file *s)
{
    int64_t pages = 0;
    if (vow__file_pragma(s, "PRAGMA page_count", &pages) != 0)
        return;
    sqlite3_int64 size = (pages + RESERVE_PAGES) * PAGE;
    (void)sqlite3_file_control(s->db, NULL, SQLITE_FCNTL_SIZE_HINT, &size);
}

/* Not SQLITE_CHECKPOINT_TRUNCATE: that has all locks of readers for as long as
 * it takes to cut the log, and who is stopped then stops them all. 0 when all
 * of the log is in the file. */
static int backfill(struct vow__file *s)
{
    int frames = 0;
    int done = 0;
    int rc = s->second == NULL ? vow__file_connect_second(s) : 0;
    if (rc == 0)
        rc = sqlite3_wal_checkpoint_v2(
            s->second, NULL, SQLITE_CHECKPOINT_PASSIVE, &frames, &done);
    if (rc == SQLITE_IOERR_FSYNC)
        vow__file_log_doubt(s);
    return rc == 0 && done < frames ? SQLITE_BUSY : rc;
}

void vow__file_tidy(struct vow__file *s)
{
    if (s->db != NULL && s->wal_frames >= TIDY_FRAMES &&
        !vow__file_anybody_lives(s))
        empty_log(s);
}

/* The next who writes would begin the log anew only as long as somebody knows
 * that all of it is in the file: so we are the next. It is cut then, if it was
 * long. */
static void empty_log(struct vow__file *s)
{
    checkpoint(s);
    if (s->wal_frames == 0)
        (void)sqlite3_exec(s->db, "UPDATE meta SET high=high+1", NULL, NULL,
                           NULL);
}

static bool same_file(struct vow__file *s)
{
    struct stat st;
    if (fstat(s->mark, &st) != 0 || st.st_nlink == 0)
        return false;
    int64_t now_us = vow__file_clock_us();
    if (now_us < s->seen_us + LOOK_US)
        return true;
    s->seen_us = now_us;
    return !vow__file_moved(s);
}

static bool is_busy(int rc)
{
    return rc > 0 &&
           ((rc & 0xff) == SQLITE_BUSY || (rc & 0xff) == SQLITE_PROTOCOL);
}

static bool is_damage(int rc)
{
    return rc > 0 &&
           ((rc & 0xff) == SQLITE_CORRUPT || (rc & 0xff) == SQLITE_NOTADB);
}

static bool is_io(int rc)
{
    return rc > 0 && (rc & 0xff) == SQLITE_IOERR;
}

static bool is_full(const struct vow__file *s, int rc)
{
    return s->full || (rc > 0 && (rc & 0xff) == SQLITE_FULL) ||
           (is_io(rc) && sqlite3_system_errno(s->db) == ENOSPC);
}

/* ---- statements --------------------------------------------------------- */

sqlite3_stmt *vow__file_sql(struct vow__file *s, const char *sql)
{
    size_t at = ((uintptr_t)sql >> 3) * 31 % FILE_SQL_MAX;
    for (size_t i = 0; i < FILE_SQL_MAX && s->prepared[at].sql != NULL; i++) {
        if (s->prepared[at].sql == sql)
            return s->prepared[at].stmt;
        at = (at + 1) % FILE_SQL_MAX;
    }
    VOW__ASSERT(s->prepared[at].sql == NULL);
    sqlite3_stmt *stmt = NULL;
    s->prepare_rc = sqlite3_prepare_v3(s->db, sql, -1,
                                       SQLITE_PREPARE_PERSISTENT, &stmt, NULL);
    if (s->prepare_rc != 0)
        return NULL;
    s->prepared[at].sql = sql;
    s->prepared[at].stmt = stmt;
    return stmt;
}

int vow__file_do(struct vow__file *s, sqlite3_stmt *q)
{
    int rc;
    if (vow__file_row(s, q, &rc))
        (void)sqlite3_reset(q);
    return rc;
}

bool vow__file_row(struct vow__file *s, sqlite3_stmt *q, int *rc)
{
    *rc = s->prepare_rc;
    if (q == NULL)
        return false;
    int step = sqlite3_step(q);
    *rc = step == SQLITE_ROW || step == SQLITE_DONE ? 0 : step;
    if (step == SQLITE_ROW)
        return true;
    (void)sqlite3_reset(q);
    return false;
}

void vow__file_bind(sqlite3_stmt *q, int at, const void *data, size_t size)
{
    if (q != NULL)
        (void)sqlite3_bind_blob64(q, at, data, size, SQLITE_STATIC);
}

void vow__file_bind_text(sqlite3_stmt *q, int at, const char *text)
{
    if (q != NULL)
        (void)sqlite3_bind_text(q, at, text, -1, SQLITE_STATIC);
}

void vow__file_bind_int(sqlite3_stmt *q, int at, int64_t number)
{
    if (q != NULL)
        (void)sqlite3_bind_int64(q, at, number);
}

/* ---- what is wrong ------------------------------------------------------ */

int vow__file_fail(struct vow__file *s, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(s->why, sizeof(s->why), format, args);
    va_end(args);
    return code;
}

int vow__file_fail_errno(struct vow__file *s, const char *what, int error)
{
    s->full = error == ENOSPC || error == EDQUOT;
    if (s->full)
        return vow__file_fail(s, VOW_ESTORE, "%s: no space left on the disk",
                              s->folder);
    return vow__file_fail(s, VOW_ESTORE, "%s/%s: %s", s->folder, what,
                          strerror(error));
}

/* A newer vow has changed the tables since the file was opened, or they were
 * never ours. */
static int refuse_tables(struct vow__file *s)
{
    int64_t version = 0;
    if (s->db != NULL)
        (void)vow__file_pragma(s, "PRAGMA user_version", &version);
    if (version > VOW__FILE_VERSION)
        return vow__file_refuse_newer(s, version);
    return vow__file_fail(s, VOW_ESTORE,
                          "%s/vow.db has other tables than this vow makes: "
                          "move the folder away, or use another",
                          s->folder);
}

/* After a write that failed the connection is kept: what was undone may lie in
 * the log all the same, whole, because old bytes there were the same. It is
 * written over by the next who writes; but if we closed as the last, and opened
 * again, the log would be read from its beginning, and it would be there. */
int vow__file_fail_sqlite(struct vow__file *s, int rc)
{
    int error = s->db == NULL ? 0 : sqlite3_system_errno(s->db);
    const char *text =
        s->db == NULL ? sqlite3_errstr(rc) : sqlite3_errmsg(s->db);
    int code = VOW_ESTORE;
    switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_PROTOCOL: /* a reader could not begin for as long */
        return vow__file_fail(s, VOW_EAGAIN,
                              "%s: another process has been writing for more "
                              "than %llu ms; is it stopped?",
                              s->folder,
                              (unsigned long long)s->opts.request_ms);
    case SQLITE_NOMEM:
        return vow__file_fail(s, VOW_ENOMEM, "out of memory");
    case SQLITE_TOOBIG:
        return vow__file_fail(s, VOW_E2BIG, "%s: too big for a row", s->folder);
    case SQLITE_FULL:
        code = vow__file_fail_errno(s, "vow.db", ENOSPC);
        break;
    case SQLITE_READONLY:
        code = vow__file_fail(s, code, "%s: it can be read, but not written to",
                              s->folder);
        break;
    case SQLITE_ERROR: /* statements of ours that it does not understand */
        code = refuse_tables(s);
        break;
    default:
        if (is_io(rc) && error != 0)
            code = vow__file_fail_errno(s, "vow.db", error);
        else
            code = vow__file_fail(s, code, "%s/vow.db: %s", s->folder,
                                  error != 0 ? strerror(error) : text);
        break;
    }
    s->io_errors += is_io(rc);
    if ((rc & 0xff) != SQLITE_FULL && (!is_io(rc) || s->io_errors > 1))
        vow__file_close(s); /* the next step opens all anew: it may help */
    return code;
}

/* ---- small things ------------------------------------------------------- */

int64_t vow__file_clock_us(void)
{
    return (int64_t)(vow__clock_boot_ns() / 1000);
}

uint64_t vow__file_now_ns(void)
{
    static const struct vow__clock real = {.is_virtual = false};
    return vow__clock_now_ns(&real);
}

void vow__file_patience(struct vow__file *s)
{
    static const struct vow__clock real = {.is_virtual = false};
    s->ends_ns = vow__clock_due_ns(&real, s->opts.request_ms);
}

void vow__file_nap_us(long us)
{
    struct timespec t = {.tv_sec = us / 1000000,
                         .tv_nsec = us % 1000000 * 1000};
    (void)ppoll(NULL, 0, &t, NULL);
}
