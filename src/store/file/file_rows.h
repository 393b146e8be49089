/* SPDX-License-Identifier: MIT */
/* file_rows.h - records, waiters, values and pools, as rows of a file. See
 * file_make.c for the tables and file_internal.h for the files. */
#ifndef VOW_STORE_FILE_ROWS_H
#define VOW_STORE_FILE_ROWS_H

#include "store/file/file_internal.h"
#include "store/rules/rules.h"

/* A record, or a result left for waiters, with what no rule reads. */
struct vow__file_row {
    vow_name name;
    struct rules_record record; /* state RULES_NONE: there is no row */
    bool owned; /* by an instance, whose death expires the lease: the owner, or
                   the refresher of a result */
    unsigned char inst[FILE_ID];
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
    char refresher[VOW_LABEL_MAX + 1]; /* runner of record.refresh */
    char file[FILE_NAME_MAX];          /* of the value; "" without a file */
    bool left; /* a spent record whose value, for the claims that waited, is in
                  the same row */
};

/* The value of a row. Both NULL and "": empty. */
struct vow__file_value {
    vow_bytes *bytes; /* borrowed */
    char file[FILE_NAME_MAX];
};

/* ---- file_row.c ------------------------------------------------------- */

/* Reads a body: a part that does not fit leaves `sound` false. */
struct vow__file_body {
    const unsigned char *at;
    const unsigned char *end;
    bool sound;
};
void vow__file_body_bytes(struct vow__file_body *b, void *to, size_t size);
void vow__file_body_numbers(struct vow__file_body *b, uint64_t *n,
                            size_t count);
void vow__file_body_text(struct vow__file_body *b, char *to, uint64_t size);
/* Writes numbers, of at most ten bytes each. Returns the end. */
unsigned char *vow__file_body_put(unsigned char *at, const uint64_t *n,
                                  size_t count);
/* Whether a record keeps the invariants of rules.h. */
bool vow__file_record_sound(const struct rules_record *r);

/* Columns of a row, read from column `at` on: 0, or SQLITE_CORRUPT. */
#define FILE_ROW_COLUMNS "inst,file,body"
int vow__file_row_read(sqlite3_stmt *q, int at, struct vow__file_row *row);
int vow__file_row_find(struct vow__file *s, const vow_name *name,
                       struct vow__file_row *row);
/* Writes the record with a value; NULL: only the record, the value stays.
 * `keep_until_us`: a sweep may delete the row from then on. */
int vow__file_row_put(struct vow__file *s, const struct vow__file_row *row,
                      uint64_t keep_until_us,
                      const struct vow__file_value *value);
/* Runs a statement that copies a row: ?1 name, ?2 end, ?3 body. */
int vow__file_row_copy(struct vow__file *s, sqlite3_stmt *q,
                       const struct vow__file_row *row, uint64_t keep_until_us);
int vow__file_row_delete(struct vow__file *s, const vow_name *name);
/* The result left for the claims that waited for the run `first`; `of` is the
 * row of the name, which may have the result. */
int vow__file_left_find(struct vow__file *s, const struct vow__file_row *of,
                        uint64_t first, struct vow__file_row *row);
/* Keeps a result left in the row of the record, before the row is replaced. */
int vow__file_left_keep(struct vow__file *s, const struct vow__file_row *row);
/* Expires the lease of an owner or refresher that has died. A caller with the
 * token of the owner lives; NULL: a stranger. */
void vow__file_row_bury(struct vow__file *s, struct vow__file_row *row,
                        const vow_token *token);
/* Whether the refresher of an expired result is the owner: then the runner of
 * the row is the refresher's from now on. */
bool vow__file_row_promoted(const struct vow__file *s,
                            struct vow__file_row *row);
/* The record as the caller of a step sees the record; texts are borrowed. */
vow_record vow__file_record(const struct vow__file *s,
                            const struct vow__file_row *row, uint32_t status);
/* The same without name and texts. */
vow_record vow__file_record_of(const struct vow__file *s,
                               const struct rules_record *r, uint32_t status);
void vow__file_text_read(sqlite3_stmt *q, int at, char *text, size_t room);
void vow__file_bytes_read(sqlite3_stmt *q, int at, void *bytes, size_t size);
/* A name by which rows are walked through: 0, or SQLITE_CORRUPT. */
int vow__file_name_read(sqlite3_stmt *q, int at, vow_name *name);
void vow__file_text_cut(char *to, const char *from);

/* Times and spans without overflow. */
int64_t vow__file_us_of_ms(uint64_t ms);
int64_t vow__file_after(const struct vow__file *s, int64_t span_us);

/* ---- file_epoch.c ----------------------------------------------------- */

/* Numbers that are set aside for the time to come: a number is a microsecond,
 * and these are ten minutes. */
#define FILE_EPOCHS_AHEAD (INT64_C(600) * 1000 * 1000)

/* Reads the numbers of the file. */
int vow__file_epoch_load(struct vow__file *s);
/* Returns a number above all epochs that were granted, as far as is known. */
uint64_t vow__file_epoch_number(const struct vow__file *s);
/* An epoch has been granted, here or elsewhere. */
int vow__file_epoch_seen(struct vow__file *s, uint64_t seen);
/* Raises s->high: a file in which that is smaller is older. */
int vow__file_epoch_count(struct vow__file *s);

/* ---- file_change.c ---------------------------------------------------- */

/* A step on a name: find the record, call a rule, carry out the decision. */
struct vow__file_change {
    /* Filled in by the caller. */
    const vow_name *name;
    struct decision (*decide)(const struct vow__file_change *c,
                              const struct rules_record *r,
                              const struct rules_record *left,
                              struct rules_now now);
    const void *request;    /* for decide() */
    const vow_token *token; /* of the owner, if the caller is the owner */
    uint64_t waited;        /* of a claim */
    bool claims;            /* the rule needs a new epoch */
    bool owns;              /* the step can make the instance the owner */
    bool settles;           /* with a time to live of 0 */
    const char *label;      /* texts of the request, or NULL */
    const char *runner;
    const struct vow__file_value *value; /* or the chunk; NULL: empty */

    /* The answer. */
    struct vow__file_row row;
    struct vow__file_row left;
    struct decision decision;
    bool applied;     /* the decision has changed the file */
    uint32_t waiters; /* registered instances, if the name runs */
    vow_bytes *shown; /* the value of the answer */
    int owned;        /* names that the instance owns more, or less */
    bool inherited;   /* the name of an instance that perhaps has died: */
    unsigned char dead[FILE_ID];

    /* For file_change.c. */
    bool promoted; /* row.record is a result that has expired, row.runner the
                      refresher's, who owns the name */
    bool known;    /* there was a record */
    bool listed;   /* s->waiting is the list of this step */
    bool was_firm; /* see vow__file_is_firm() */
};
/* Does the step; inside a transaction. */
int vow__file_change(struct vow__file *s, struct vow__file_change *c);
vow_record vow__file_change_record(const struct vow__file *s,
                                   const struct vow__file_change *c);
int vow__file_waiters_count(struct vow__file *s, const vow_name *name,
                            uint32_t *ret_n);
int vow__file_chunk_add(struct vow__file *s, const vow_name *name,
                        uint32_t number, const struct vow__file_value *chunk);

/* ---- file_names.c, file_look.c, file_chunk.c -------------------------- */

void vow__file_claim(vow_store *store, const vow_claim_request *request,
                     vow_records_fn done, void *user);
void vow__file_pulse(vow_store *store, const vow_hold *holds, size_t n,
                     uint64_t lease_ms, vow_records_fn done, void *user);
void vow__file_commit(vow_store *store, const vow_commit_request *request,
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

/* ---- file_firm.c ------------------------------------------------------ */

/* Whether a record must survive a reboot, and the copy that does. */
bool vow__file_is_firm(const struct rules_record *r);
int vow__file_firm_put(struct vow__file *s, const vow_name *name);
int vow__file_firm_delete(struct vow__file *s, const vow_name *name);
/* Fills an empty `rec`: after a reboot from the copies, from the attached
 * database `old`, or from the table `old_rec` of schema version 1. */
int vow__file_firm_reboot(struct vow__file *s);
int vow__file_firm_salvage(struct vow__file *s);
int vow__file_firm_upgrade(struct vow__file *s);

/* ---- file_value.c ----------------------------------------------------- */

/* The value of a record, or with left of a result left; the caller's.
 * NULL: empty. VOW_ENOENT: the value is gone. */
int vow__file_value_get(struct vow__file *s, const struct vow__file_row *row,
                        bool left, vow_bytes **ret_bytes);
/* The same of a value with a file. */
int vow__file_value_read(struct vow__file *s, const char *file, int64_t size,
                         vow_bytes **ret_bytes);
/* Before a step: a long value goes into a file. `out` borrows the bytes.
 * `firm`: the file must survive a reboot. */
int vow__file_value_write(struct vow__file *s, const vow_name *name,
                          vow_bytes *bytes, bool firm,
                          struct vow__file_value *out);
void vow__file_value_unlink(struct vow__file *s, const char *file);
void vow__file_value_bind(sqlite3_stmt *q, int at,
                          const struct vow__file_value *value);
/* Remove a file when the step is committed. */
int vow__file_litter(struct vow__file *s, const char *file);
void vow__file_litter_clear(struct vow__file *s);

/* ---- file_pool.c, file_permit.c, file_pool_row.c --------------------- */

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

/* Drops all permits of an instance, and grants others. Inside a step. */
int vow__file_permits_drop(struct vow__file *s, const unsigned char *id);
/* Finds a pool from *pool on in which an instance has a permit. */
int vow__file_permits_find(struct vow__file *s, const unsigned char *id,
                           vow_name *pool, bool *ret_there);
/* Fits all pools to a new boot, without permits; or to this schema. */
int vow__file_pools_change(struct vow__file *s, bool upgrade);

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
