/* SPDX-License-Identifier: MIT */
/* file_internal.h - the inside of the store in a folder.
 *
 *   FOLDER/vow.db         records, waiters, chunks, pools (and -wal, -shm)
 *   FOLDER/lock           held by who makes the file, or sets it aside
 *   FOLDER/mark           removed with a file that is set aside; its bytes show
 *                         that a file is an older copy, the last sweep, and that
 *                         the log is in doubt
 *   FOLDER/cache          results that are found without vow.db: file_cache.c
 *   FOLDER/lost           records were lost, and why: see file_make.c
 *   FOLDER/line           tickets of writers: a fair order, no safety
 *   FOLDER/live/INST      locked as long as the instance lives
 *   FOLDER/sock/INST      where its wake-ups arrive
 *   FOLDER/val/NAME.INST.N  values that are too long for a row
 *
 * A step is one transaction. It is written as a function that is called in one
 * and returns 0 (keep it), a negative code of ours (undo it, and answer that),
 * or a code of SQLite's (undo it, and see what is wrong).
 *
 * file.c is the door; file_step.c has the transactions, file_turn.c the
 * line; file_folder.c, file_open.c and file_make.c the files;
 * file_live.c and file_peer.c who is alive; file_wake.c the wake-ups;
 * file_names.c the steps on names, file_change.c the decisions of the rules
 * carried out, file_row.c records as rows, file_epoch.c their numbers,
 * file_firm.c what survives a reboot, file_log.c a loss of power; file_look.c
 * lists; file_value.c and
 * file_chunk.c values, file_cache.c the results of commands; file_pool.c,
 * file_pool_row.c and file_permit.c pools; file_sweep.c what has expired.
 */
#ifndef VOW_STORE_FILE_INTERNAL_H
#define VOW_STORE_FILE_INTERNAL_H

#include "base/alloc.h"
#include "base/buf.h"
#include "base/list.h"
#include "vow/store_sqlite.h"
#include "vow/uv.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/types.h>

enum {
    FILE_ID = 16,               /* bytes of an instance's id */
    FILE_HEX = 2 * FILE_ID + 1, /* the same as text, with its NUL */
    FILE_GROWS_BY = 1 << 18,    /* bytes of the file */
    FILE_PATH_MAX = 440,        /* of the folder: SQLite takes 512 */
    FILE_NAME_MAX = 128,        /* the name of a value's file, with its NUL */
    FILE_LOST_MAX = 128,        /* why records were lost, with its NUL */
    FILE_WHY_MAX = FILE_PATH_MAX + 160 + FILE_LOST_MAX,
    FILE_BOOT_MAX = 40,          /* "7d0c1b1e-..." with its NUL */
    FILE_SQL_MAX = 128,          /* prepared statements; a power of two */
    FILE_INLINE_MAX = 64 * 1024, /* longer values have a file */
    FILE_RECHECK_MS = 250,
    FILE_REQUEST_MS = 1000
};
#define FILE_VALUE_MAX ((size_t)1 << 30)
#define FILE_BUF_MAX ((size_t)1 << 30) /* bytes of what a step gathers */
#define FILE_US_PER_MS INT64_C(1000)
#define FILE_FOREVER INT64_MAX /* an end that never comes, in a column */

enum vow__file_message_kind {
    FILE_RECORD = 'R',
    FILE_CANCEL = 'C',
    FILE_CHUNKS = 'K',
    FILE_PLACE = 'P'
};

/* A wake-up for an instance, as sent from `kind` on. */
struct vow__file_message {
    unsigned char to[FILE_ID];
    unsigned char kind;
    unsigned char what[32]; /* a name, or a token and zeros */
};

struct vow__file_line;

/* In what a transaction is. */
enum vow__file_phase { FILE_IDLE = 0, FILE_READS, FILE_WRITES };

struct vow__file {
    vow_store store; /* what others have of it: first */
    vow_store_ops ops;
    vow_loop *loop;
    struct vow_alloc alloc;
    vow_store_events events;
    vow_sqlite_opts opts;           /* without zeros */
    pid_t pid;                      /* of who opened it: a child of it is not */
    char home[FILE_PATH_MAX + 1];   /* where it was found first, and is again */
    char folder[FILE_PATH_MAX + 1]; /* the same, without links as of now */
    char why[FILE_WHY_MAX];         /* the last trouble, "" without one */

    /* The files; -1 or NULL: not open. */
    int dir;
    int mark;
    sqlite3 *db;
    sqlite3 *second; /* for checkpoints; NULL: not needed yet */
    int prepare_rc;  /* why the last statement could not be prepared */
    struct {
        const char *sql;
        sqlite3_stmt *stmt;
    } prepared[FILE_SQL_MAX];
    dev_t db_dev;
    ino_t db_ino;
    int64_t seen_us; /* when it was last seen under its path */
    struct vow__file_line *line;
    uint64_t ticket; /* in the line, when has_turn */
    bool has_turn;
    bool wrote;       /* in this step */
    bool firm;        /* this step must be on the disk before the answer */
    bool dir_synced;  /* the folder has been, since the file was opened */
    bool log_doubted; /* see file_log.c */
    uint64_t opened;  /* how many times */

    /* The transaction. */
    enum vow__file_phase phase;
    int64_t (*clock_us)(void); /* vow__file_clock_us(), but for tests */
    int64_t now_us;            /* since the boot; read when it began to write */
    uint64_t ends_ns;   /* when waiting for others has lasted long enough */
    int wal_frames;     /* after the last commit */
    int wal_tried;      /* frames when the last checkpoint was begun */
    bool full;          /* this step found no space on the disk */
    unsigned io_errors; /* steps in a row */
    ino_t wal_ino;      /* of the log; 0: not known */
    struct vow__buf messages; /* sent after the commit */
    struct vow__buf result;   /* sent with them, see file_wake.c */
    struct vow__buf litter;   /* names of files to be removed then */
    struct vow__buf unsent;   /* messages that the kernel refused */
    int64_t unsent_us;        /* since when */

    /* What the file says of itself: see file_make.c. */
    char boot[FILE_BOOT_MAX];
    int64_t time_ns; /* the inode of the clock's namespace */
    int64_t base;    /* epochs: this and the time since the boot */
    int64_t high;    /* no epoch above was given */

    /* The instance. Without `joined` it has not been needed yet. */
    bool joined;
    unsigned char id[FILE_ID];
    char hex[FILE_HEX];
    uint64_t process; /* the same for all of this process: begins the id */
    char runner[VOW_LABEL_MAX + 1];
    int live;
    int sock;
    uv_poll_t *poll; /* of sock */
    vow_link *peers; /* struct vow__file_peer */
    size_t n_peers;
    uv_timer_t later;        /* for what is done outside of a step. It is always
                         there: so only the loop frees the store */
    bool doubts;             /* to be told */
    bool swept;              /* inside of a step that sweeps */
    bool waited;             /* has been registered as waiting, or in a queue */
    bool claim_wrote;        /* the last one had to */
    bool claimed;            /* the first claim has come */
    uint64_t owns_until_us;  /* no lease of the instance ends later */
    struct vow__buf dead;    /* instances that this step has found dead */
    struct vow__buf waiting; /* ids registered for the name of a step */
    uint32_t n_waiting;      /* with those for which memory lacked */
    bool reread;    /* one of them is new: what was read may be too old */
    int64_t owns;   /* names, about */
    uint64_t files; /* values written */

    size_t handles; /* of libuv, not closed */
    vow_deferred *closing;
};

typedef int (*vow__file_fn)(struct vow__file *s, void *arg);

/* ---- file_step.c ------------------------------------------------------ */

/* Run a step. With WRITE it begins by writing. With READ the function asks by
 * vow__file_write() when it finds that it has to, and may then be called a second
 * time. GUESS: it will probably have to write; if that had to wait, as READ.
 * FREE: as GUESS, and as READ too if it is not our turn at once.
 * 0 or a code for the caller, explained in s->why. */
enum vow__file_how {
    VOW__FILE_READ = 0,
    VOW__FILE_WRITE,
    VOW__FILE_GUESS,
    VOW__FILE_FREE
};
int vow__file_step(struct vow__file *s, enum vow__file_how how, vow__file_fn fn,
                   void *arg);
int vow__file_write(struct vow__file *s);
/* Make a long log short: between two steps, and before it is closed. */
void vow__file_relieve(struct vow__file *s);
void vow__file_tidy(struct vow__file *s);
void vow__file_reserve(struct vow__file *s);
/* From now on, others are waited for up to request_ms. */
void vow__file_patience(struct vow__file *s);

/* Prepared once. NULL: it could not be, as vow__file_do() and vow__file_row() then
 * say. The text is a literal. */
sqlite3_stmt *vow__file_sql(struct vow__file *s, const char *sql);
/* Run a statement for its effect. Go to the next row: false at the end, with 0
 * in *rc, or with an error. A row that is not followed by the end is reset. */
int vow__file_do(struct vow__file *s, sqlite3_stmt *q);
bool vow__file_row(struct vow__file *s, sqlite3_stmt *q, int *rc);
void vow__file_bind(sqlite3_stmt *q, int at, const void *data, size_t size);
void vow__file_bind_text(sqlite3_stmt *q, int at, const char *text);
void vow__file_bind_int(sqlite3_stmt *q, int at, int64_t number);

/* Set s->why; returns `code`. */
int vow__file_fail(struct vow__file *s, int code, const char *format, ...)
    VOW_PRINTF(3, 4);
/* The same for a failed call of the system's: VOW_ESTORE. */
int vow__file_fail_errno(struct vow__file *s, const char *what, int error);
/* Why SQLite could not: a code for the caller. */
int vow__file_fail_sqlite(struct vow__file *s, int rc);

/* Since the boot, as in the file; and to wait by, of the system too: a lock is
 * waited for in real time, whatever the loop's is. */
int64_t vow__file_clock_us(void);
uint64_t vow__file_now_ns(void);
void vow__file_nap_us(long us);

/* ---- file_log.c ------------------------------------------------------- */

/* After a commit: the log is on the disk. 0, or a code of SQLite, and then the
 * log is in doubt. */
int vow__file_log_sync(struct vow__file *s);
void vow__file_log_doubt(struct vow__file *s);
bool vow__file_log_doubted(const struct vow__file *s);
/* With SQLite's lock for writing, and without changes: writes the log again, and
 * ends the doubt. 0, or a code of SQLite. */
int vow__file_log_mend(struct vow__file *s);

/* ---- file_turn.c ------------------------------------------------------ */

/* NULL: there will be no order. */
struct vow__file_line *vow__file_line_open(int dir);
void vow__file_line_close(struct vow__file_line *line);
enum { VOW__FILE_STUCK_MS = 20 };
/* Wait for our turn, not longer than until `ends_ns`. False: go without. A turn
 * that makes no move for `stuck_ms`, VOW__FILE_STUCK_MS but in tests of the order
 * on busy machines, is passed over. */
bool vow__file_turn_take(struct vow__file_line *line, pid_t pid,
                         uint64_t ends_ns, uint64_t stuck_ms,
                         uint64_t *ret_ticket);
/* Whose turn it is lives, and waits for something else. */
void vow__file_turn_beat(struct vow__file_line *line);
void vow__file_turn_pass(struct vow__file_line *line, uint64_t ticket);

/* ---- file_folder.c, file_open.c, file_make.c ---------------------- */

/* Find or make the folder and see that it is safe: s->dir, s->folder. */
int vow__file_folder_open(struct vow__file *s, const char *given);
/* The name of the file system if several machines may use it; NULL: it is of
 * this machine. */
const char *vow__file_shared_system(int fd);
/* All that a step needs, if it is not there or not the right one any more. */
int vow__file_open(struct vow__file *s);
void vow__file_close(struct vow__file *s);
/* Fails the step: the file has a version of a newer vow. */
int vow__file_refuse_newer(struct vow__file *s, int64_t version);
/* Is the file we use still the one that others find? */
bool vow__file_moved(struct vow__file *s);
/* Is the folder still the one that others find? */
bool vow__file_same_folder(struct vow__file *s);
/* Make a new file, unless another did meanwhile; and folders that are not
 * there. */
int vow__file_make(struct vow__file *s);
int vow__file_make_folders(struct vow__file *s);
/* SQLite found it damaged: set it aside if that is so. `surely`: do not look
 * again. */
int vow__file_damaged(struct vow__file *s, bool surely);
/* Records were lost: write down why, for all who come. True: some were, until
 * somebody removes the file. */
int vow__file_lost_write(struct vow__file *s, const char *why);
bool vow__file_lost_read(struct vow__file *s, char why[FILE_LOST_MAX]);
/* Is the file an older copy? Write down how new it is. */
int vow__file_age_check(struct vow__file *s);
void vow__file_age_mark(struct vow__file *s, int64_t high);
/* The files belong to another boot or clock, of which nobody lives. */
int vow__file_adopt(struct vow__file *s);
/* The file is of an earlier vow: change the tables. */
int vow__file_upgrade(struct vow__file *s);
int vow__file_connect(struct vow__file *s, const char *name, int flags);
int vow__file_connect_second(struct vow__file *s);
void vow__file_disconnect(struct vow__file *s);

/* ---- file_live.c, file_peer.c --------------------------------------- */

/* Be an instance that others can see and wake. */
int vow__file_join(struct vow__file *s);
/* Files and descriptors of the instance go, also of one half made. */
void vow__file_leave(struct vow__file *s);
/* Has it died? An empty id never has. */
bool vow__file_gone(struct vow__file *s, const unsigned char *id);
/* The same and, if it lives and shows, whose it is. */
bool vow__file_gone_pid(struct vow__file *s, const unsigned char *id,
                        pid_t *ret_pid);
bool vow__file_anybody_lives(struct vow__file *s);
bool vow__file_erased(struct vow__file *s);
/* An instance of this process, though perhaps of another store. */
bool vow__file_ours(struct vow__file *s, const unsigned char *id);
void vow__file_hex(const unsigned char *id, char hex[FILE_HEX]);
bool vow__file_unhex(const char *hex, unsigned char *id);

/* Tell when it dies, as long as this is asked again every second. */
void vow__file_watch(struct vow__file *s, const unsigned char *id);
void vow__file_unwatch_all(struct vow__file *s);

/* ---- file_cache.c ------------------------------------------------------ */

/* Returns whether the folder has a cache of its database: then the first step
 * that needs the database opens the database. */
bool vow__file_cache_usable(struct vow__file *s);
/* Call in a write step before a result is replaced or removed. 0 or VOW_ESTORE.
 */
int vow__file_cache_drop(struct vow__file *s, const vow_name *name);
/* As vow__file_claim(); the first claim of the instance looks into the cache. */
void vow__file_cache_claim(vow_store *store, const vow_claim_request *request,
                           vow_records_fn done, void *user);

/* ---- file_wake.c ------------------------------------------------------ */

int vow__file_socket_open(struct vow__file *s);
void vow__file_socket_close(struct vow__file *s);
/* Sends a message to an instance when the transaction is committed. Without
 * memory the message is not sent. */
void vow__file_tell(struct vow__file *s, const void *to,
                    enum vow__file_message_kind kind, const void *what,
                    size_t size);
/* The messages FILE_RECORD of this step about the name of `r` carry the record
 * with the value, unless the value is too large for a message. At most one name
 * is settled in a step. */
void vow__file_tell_result(struct vow__file *s, const vow_record *r);
void vow__file_messages_send(struct vow__file *s);
void vow__file_messages_drop(struct vow__file *s);
/* Tell on_doubt soon. Call vow__file_relieve() soon. */
void vow__file_doubt(struct vow__file *s);
void vow__file_relieve_soon(struct vow__file *s);
/* One of s->handles is closed. */
void vow__file_handle_closed(struct vow__file *s);

#endif
