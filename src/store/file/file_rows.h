/* SPDX-License-Identifier: MIT */
/* file_rows.h - records, waiters, values and places, as rows of a file. See
 * file_make.c for the tables and file_internal.h for the files. */
#ifndef VOW_STORE_FILE_ROWS_H
#define VOW_STORE_FILE_ROWS_H

#include "store/file/file_internal.h"

/* Above this an epoch is not believed: it would use up the numbers. */
#define FILE_EPOCH_MAX (UINT64_MAX / 4)

enum vow__file_state { FILE_RUNS = 0, FILE_DONE = 1, FILE_FAILED = 2 };

/* What is known of a name, and how this instance waits for it. */
struct vow__file_rec {
    vow_name name;
    bool there;    /* else nothing of the following is set */
    uint8_t state; /* enum vow__file_state */
    bool hidden;   /* a result with ttl 0: only who waited may see it */
    bool canceled;
    bool waited; /* somebody was registered as waiting since it runs */
    uint32_t mode;
    uint32_t takeovers;
    uint32_t waiters; /* see vow__file_rec_count() */
    int64_t epoch;
    vow_token token;
    bool owned; /* by an instance whose death shows, which is: */
    unsigned char inst[FILE_ID];
    int64_t since_us, pulse_us, end_us, lease_us, cost_ms;
    int64_t chunks, bytes; /* written so far */
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
    char file[FILE_NAME_MAX]; /* of the value; "" without one */

    bool waits;
    bool wait_read;     /* the hidden result was */
    int64_t wait_epoch; /* of the hidden result; 0: it runs */
    vow_token wait_token;
};

/* What goes into a row as its value. Both NULL and "": empty. */
struct vow__file_value {
    vow_bytes *bytes; /* borrowed */
    char file[FILE_NAME_MAX];
};

/* ---- file_row.c ------------------------------------------------------- */

int vow__file_rec_find(struct vow__file *s, const vow_name *name,
                       struct vow__file_rec *r);
int vow__file_rec_put(struct vow__file *s, const struct vow__file_rec *r,
                      const struct vow__file_value *value);
/* The lease is renewed, and it is this instance's. */
int vow__file_rec_renew(struct vow__file *s, struct vow__file_rec *r,
                        uint64_t lease_ms);
/* Chunks and the file of what is about to be replaced. */
int vow__file_rec_clear(struct vow__file *s, const struct vow__file_rec *r);
int vow__file_rec_delete(struct vow__file *s, const struct vow__file_rec *r);
/* Set r->waiters. */
int vow__file_rec_count(struct vow__file *s, struct vow__file_rec *r);
/* What a claim of a stranger would find. */
uint32_t vow__file_rec_says(struct vow__file *s, const struct vow__file_rec *r);
/* Who waits is told and waits no more; with an epoch, for it to be read. */
int vow__file_rec_wake(struct vow__file *s, const struct vow__file_rec *r,
                       int64_t epoch, size_t *ret_n);
/* What columns of a row say, from number `at` on: FILE_REC_COLUMNS. 0, or
 * SQLITE_CORRUPT. */
#define FILE_REC_COLUMNS "r.ends,r.inst,r.file,r.body"
int vow__file_rec_read(sqlite3_stmt *q, int at, struct vow__file_rec *r);
/* The same as a row of `once`, for those who waited. */
int vow__file_once_put(struct vow__file *s, const struct vow__file_rec *r,
                       const struct vow__file_value *value);
void vow__file_text_read(sqlite3_stmt *q, int at, char *text, size_t room);
void vow__file_bytes_read(sqlite3_stmt *q, int at, void *bytes, size_t size);
/* A name by which rows are walked through: 0, or SQLITE_CORRUPT. */
int vow__file_name_read(sqlite3_stmt *q, int at, vow_name *name);
/* For the caller of a step; texts and value stay where they are. */
vow_record vow__file_record(const struct vow__file *s,
                            const struct vow__file_rec *r, uint32_t status);
void vow__file_text_cut(char *to, const char *from);

/* A number above all that were given, and above `above`. */
int vow__file_epoch(struct vow__file *s, int64_t above, int64_t *ret_epoch);
/* One was given elsewhere. */
int vow__file_epoch_seen(struct vow__file *s, int64_t epoch);
/* Raise s->high: a file in which that is smaller is older. */
int vow__file_epoch_count(struct vow__file *s);

/* Times and spans without overflow. */
int64_t vow__file_us_of_ms(uint64_t ms);
int64_t vow__file_after(const struct vow__file *s, int64_t span_us);
uint64_t vow__file_ms_until(const struct vow__file *s, int64_t then_us);
uint64_t vow__file_ms_since(const struct vow__file *s, int64_t then_us);

/* ---- file_claim.c, file_commit.c, file_look.c, file_chunk.c ----- */

void vow__file_claim(vow_store *store, const vow_claim_request *ask,
                     vow_records_fn done, void *user);
void vow__file_pulse(vow_store *store, const vow_hold *holds, size_t n,
                     uint64_t lease_ms, vow_records_fn done, void *user);
void vow__file_commit(vow_store *store, const vow_commit_request *ask,
                      vow_records_fn done, void *user);
void vow__file_forget(vow_store *store, const vow_name *name, uint64_t epoch,
                      vow_records_fn done, void *user);
void vow__file_cancel(vow_store *store, const vow_name *name,
                      vow_records_fn done, void *user);
void vow__file_peek(vow_store *store, const vow_name *names, size_t n,
                    vow_records_fn done, void *user);
void vow__file_list(vow_store *store, vow_records_fn done, void *user);
void vow__file_chunk_write(vow_store *store, const vow_hold *hold,
                           uint64_t number, vow_bytes *chunk,
                           vow_records_fn done, void *user);
void vow__file_chunk_read(vow_store *store, const vow_name *name,
                          uint64_t epoch, uint64_t from, vow_chunks_fn done,
                          void *user);

/* Settle what is in `r` with a result: all but texts, token and epoch. */
struct vow__file_result {
    struct vow__file_value value;
    bool failed;
    uint64_t ttl_ms;
    uint64_t cost_ms;
};
int vow__file_settle(struct vow__file *s, struct vow__file_rec *r,
                     const struct vow__file_result *result);

/* ---- file_value.c ----------------------------------------------------- */

/* The value of the record, or with an epoch that of a hidden result; the
 * caller's. NULL: it is empty. VOW_ENOENT: it is gone. */
int vow__file_value_get(struct vow__file *s, const vow_name *name,
                        int64_t epoch, vow_bytes **ret_bytes);
/* Before a step: a long value goes into a file. `out` borrows the bytes. */
int vow__file_value_write(struct vow__file *s, const vow_name *name,
                          vow_bytes *bytes, struct vow__file_value *out);
void vow__file_value_unlink(struct vow__file *s, const char *file);
void vow__file_value_bind(sqlite3_stmt *q, int at,
                          const struct vow__file_value *value);
/* Remove a file when the step is committed. */
int vow__file_litter(struct vow__file *s, const char *file);
void vow__file_litter_clear(struct vow__file *s);

/* ---- file_pool.c, file_grant.c -------------------------------------- */

void vow__file_acquire(vow_store *store, const vow_permit_request *ask,
                       vow_permits_fn done, void *user);
void vow__file_release(vow_store *store, const vow_permit_hold *hold,
                       vow_permits_fn done, void *user);
void vow__file_renew(vow_store *store, const vow_permit_hold *holds, size_t n,
                     uint64_t lease_ms, vow_permits_fn done, void *user);
void vow__file_limit(vow_store *store, const vow_name *pool,
                     const vow_pool_limits *limits, const char *label,
                     vow_pools_fn done, void *user);
void vow__file_pools(vow_store *store, vow_pools_fn done, void *user);

/* All places of an instance go, and others have their turn. Inside a step. */
int vow__file_places_of(struct vow__file *s, const unsigned char *id);

/* ---- file_examine.c --------------------------------------------------- */

void vow__file_examine(vow_store *store, vow_findings_fn done, void *user);

/* ---- file_sweep.c ----------------------------------------------------- */

/* After a step, now and then: remove what is over. */
void vow__file_sweep(struct vow__file *s);
/* The same for everything, if that is due. */
void vow__file_sweep_all(struct vow__file *s);
void vow__file_sweep_files(struct vow__file *s);
/* If an instance is dead, its files and rows go. */
void vow__file_bury(struct vow__file *s, const unsigned char *id);

static inline struct vow__file *vow__file_of(vow_store *store)
{
    return VOW__OUTER(store, struct vow__file, store);
}

#endif
