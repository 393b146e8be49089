/* SPDX-License-Identifier: MIT */
/* etcd_service.h - etcd as a service for the engine in store/cas. Keys, leases
 * and versions are described in docs/design/010-etcd.md.
 *
 *   etcd_names.c      opening and closing; the steps of the store
 *   etcd_write.c      writes: one transaction for one name
 *   etcd_read.c       reads: names, lists, values, chunks
 *   etcd_permits.c    rows of pools: one transaction for each step
 *   etcd_limits.c     limits of pools; all pools
 *   etcd_turns.c      telling other processes that a request has its turn
 *   etcd_events.c     the watch of names
 *   etcd_ttl.c        leases of owners, records, results and entries
 *   etcd_pool_read.c  pools as keys say
 *   etcd_record.c, etcd_pool_text.c   the texts of keys
 *   etcd_call.c       requests on a fiber
 */
#ifndef VOW_STORE_ETCD_SERVICE_H
#define VOW_STORE_ETCD_SERVICE_H

#include "base/alloc.h"
#include "base/assert.h"
#include "store/cas/cas.h"
#include "store/etcd/etcd_internal.h"
#include "vow/fiber.h"
#include "vow/watch.h"

enum {
    VOW__ETCD_INST = 32,  /* letters of the name of an instance */
    VOW__ETCD_TURNS = 16, /* instances that are told in one transaction */
    VOW__ETCD_INLINE_MAX = 16 * 1024, /* bytes of a value inside the record */
    VOW__ETCD_KEEPS = 8,              /* leases of records and results */
    VOW__ETCD_OWNERS = 16             /* leases of owners, remembered */
};

enum vow__etcd_keep_kind {
    VOW__ETCD_KEEP_RUNS, /* running records: renewed while names are pulsed */
    VOW__ETCD_KEEP_RESULTS, /* never renewed */
    VOW__ETCD_KEEP_ENTRIES  /* alike, and not much longer than needed */
};

/* A lease that records, results or entries hang on. */
struct vow__etcd_keep {
    int64_t id; /* 0: none */
    enum vow__etcd_keep_kind kind;
    uint64_t ttl_ms;
    uint64_t sent_ns; /* of the last answered request */
};

struct vow__etcd_service {
    struct cas_service service;
    struct cas_service_ops ops;
    struct vow__etcd *etcd;
    struct cas_events events;
    /* The newest revision that an answer had. A version is a revision plus
     * `shift`, so that versions rise after etcd was restored from a backup,
     * when revisions begin again lower: then `restores` counts. */
    uint64_t revision, shift;
    uint64_t answered; /* version of the last answer */
    unsigned restores;
    uint64_t offset, offset_mod; /* of the key `e`, and its revision */
    char boot[96];               /* vow__etcd_boot_read() */
    /* the watches */
    struct vow__watch *watch;       /* of names; NULL: no answer yet */
    struct vow__watch *turns_watch; /* NULL: no request waited yet */
    vow_name told;                  /* the last change of a record, and when */
    uint64_t told_mod;
    vow_call doubt;
    /* leases */
    struct vow__etcd_keep keeps[VOW__ETCD_KEEPS];
    int64_t owners[VOW__ETCD_OWNERS]; /* 0: none */
    size_t next_owner;
    vow_future *turn;  /* a request for a keep is under way; or NULL */
    vow_future *early; /* a keep that is granted beforehand; or NULL */
    uint64_t early_ms;
    bool littered; /* records of lost names hang on a keep */
    /* closing */
    bool owns;
    void (*closed)(void *user);
    void *user;
    vow_call end;
    vow_watch early_end;
};

static inline struct vow__etcd_service *
vow__etcd_service_of(struct cas_service *service)
{
    return VOW__OUTER(service, struct vow__etcd_service, service);
}

/* ---- etcd_names.c -------------------------------------------------------- */

/* Sends a transaction, and learns from the answer: revision, restores. Codes as
 * of vow__etcd_await(). */
int vow__etcd_service_txn(struct vow__etcd_service *s, struct vow__txn *t,
                          uint64_t due_ns, json_t **ret_root);
/* The same on names; watches names from the first answer on. */
int vow__etcd_names_txn(struct vow__etcd_service *s, struct vow__txn *t,
                        uint64_t due_ns, json_t **ret_root);
void vow__etcd_service_txn_init(const struct vow__etcd_service *s,
                                struct vow__txn *ret_txn);

/* ---- etcd_record.c: texts ------------------------------------------------ */

/* A record as its key says, without what other keys say. */
struct vow__etcd_record {
    struct rules_record record;
    bool apart;     /* the value is in v/H/EPOCH */
    bool elsewhere; /* the value is a ticket of the store of results */
    uint64_t mark, refresh_mark; /* leases of the marks, when it was written;
                                    1: not known */
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
    const char *value; /* behind the lines, borrowed from the key */
    size_t size;
};
/* VOW_EIO: the key is not one of ours; told by vow__etcd_trouble(). */
int vow__etcd_record_read(struct vow__etcd *e, const struct vow__kv *kv,
                          struct vow__etcd_record *ret_record);
/* Writes the lines of e->record and the value. With `numbered`, the epoch of
 * the owner or of the refresher is the revision of the write plus `plus`, and
 * at least the epoch in the record. */
void vow__etcd_record_write(const struct vow__etcd_record *e,
                            enum cas_number numbered, uint64_t plus,
                            struct vow__buf *value);

/* A mark: the key n/H/a of an owner, or n/H/b of a refresher. */
struct vow__etcd_mark {
    vow_token token;
    uint64_t lease_ms;
};
bool vow__etcd_mark_read(const struct vow__kv *kv,
                         struct vow__etcd_mark *ret_mark);
void vow__etcd_mark_write(const struct vow__etcd_mark *m,
                          struct vow__buf *value);
/* The key n/H/c: how many chunks there are. */
bool vow__etcd_count_read(const struct vow__kv *kv, uint64_t *ret_chunks,
                          uint64_t *ret_bytes);
void vow__etcd_count_write(const struct rules_record *r,
                           struct vow__buf *value);
/* The key `e`. */
bool vow__etcd_offset_read(const struct vow__kv *kv, uint64_t *ret_offset);
void vow__etcd_offset_write(uint64_t offset, struct vow__buf *value);
/* "n/H/r": the name, and the letter behind it; 0: another key. */
char vow__etcd_name_key(const char *key, vow_name *ret_name);
/* v/H/EPOCH, v/H/g/FIRST, c/H/EPOCH/ and c/H/EPOCH/NUMBER */
struct vow__key vow__etcd_value_key(const vow_name *name, uint64_t epoch);
struct vow__key vow__etcd_left_key(const vow_name *name, uint64_t first);
struct vow__key vow__etcd_chunks_key(const vow_name *name, uint64_t epoch);
struct vow__key vow__etcd_chunk_key(const vow_name *name, uint64_t epoch,
                                    uint64_t number);

/* ---- etcd_pool_text.c: texts ---------------------------------------------- */

enum vow__etcd_pool_key_kind {
    VOW__ETCD_KEY_LIMITS, /* of name.limits_of, which is name.pool then */
    VOW__ETCD_KEY_ROW,
    VOW__ETCD_KEY_ENTRY
};
struct vow__etcd_pool_key {
    enum vow__etcd_pool_key_kind kind;
    struct cas_pool_name name;
    vow_token token; /* of a row */
    uint64_t id;     /* of an entry */
};
/* False: another key. */
bool vow__etcd_pool_key_read(const char *key,
                             struct vow__etcd_pool_key *ret_key);
struct vow__key vow__etcd_pool_key(const struct cas_pool_name *name);
struct vow__key vow__etcd_limits_key(const vow_name *limits_of);
struct vow__key vow__etcd_row_key(const struct cas_pool_name *name,
                                  const vow_token *token);
struct vow__key vow__etcd_rows_key(const struct cas_pool_name *name);
struct vow__key vow__etcd_entry_key(const struct cas_pool_name *name,
                                    uint64_t id);
/* False: the value is not one of ours. */
bool vow__etcd_limits_read(const struct vow__kv *kv,
                           vow_pool_limits *ret_limits);
bool vow__etcd_row_read(const struct vow__kv *kv, const vow_token *token,
                        struct rules_row *ret_row);
bool vow__etcd_entry_read(const struct vow__etcd_service *s,
                          const struct vow__kv *kv, uint64_t id,
                          struct cas_entry *ret_entry);
void vow__etcd_label_read(const struct vow__kv *kv, char to[VOW_LABEL_MAX + 1]);
void vow__etcd_row_texts(const struct vow__kv *kv, struct cas_row *row);
/* The instance that is told the turn; "": none. */
void vow__etcd_row_inst(const struct vow__kv *kv, char to[VOW__ETCD_INST + 1]);
/* `label` of a key; NULL: of no key. */
void vow__etcd_limits_write(const vow_pool_limits *limits, const char *label,
                            struct vow__buf *value);
void vow__etcd_row_write(const struct cas_row *row, const char *label,
                         const char *inst, struct vow__buf *value);
void vow__etcd_entry_write(const struct vow__etcd_service *s,
                           const struct cas_entry *e, const char *label,
                           struct vow__buf *value);
/* Which start of which machine this is. */
void vow__etcd_boot_read(char *boot, size_t size);

/* ---- etcd_pool_read.c ---------------------------------------------------- */

struct vow__etcd_row {
    struct rules_row row;
    uint64_t mod;
    int64_t lease;
    size_t text, size; /* the value, in the texts of the reading */
};
/* A pool that was read: rows in the order of creation, twice. */
struct vow__etcd_pool {
    struct cas_pool_found found;
    struct vow__etcd_row *rows;
    struct rules_row *order;
    size_t n, room;
};
struct vow__etcd_pools {
    struct vow__etcd_service *service;
    const struct vow_alloc *alloc;
    struct vow__etcd_pool *pools;
    size_t n, room;
    uint64_t revision;
    struct vow__buf texts;
    struct vow__key next; /* behind the last key */
    int code;             /* VOW_ENOMEM */
};
void vow__etcd_pools_init(struct vow__etcd_service *s,
                          struct vow__etcd_pools *ret_pools);
void vow__etcd_pools_fini(struct vow__etcd_pools *ps);
/* Reads the keys of a tree. */
int vow__etcd_pools_read(struct vow__etcd_pools *ps,
                         const struct vow__key *tree, uint64_t due_ns);
/* Takes a pool from the ranges of the limits (NULL: not asked for) and of rows
 * and entries, as the first of the reading. */
int vow__etcd_pool_take(struct vow__etcd_pools *ps, const json_t *limits,
                        const json_t *rows, const struct cas_pool_name *name);
/* The operations that read a pool; and what they have found, from response
 * `first` on: the pool, and the rows of `n` tokens. */
void vow__etcd_pool_ask(struct vow__txn *t, enum vow__branch b,
                        const struct cas_pool_name *name);
int vow__etcd_pool_answer(struct vow__etcd_service *s, const json_t *root,
                          size_t first, const struct cas_pool_name *name,
                          const vow_token *tokens, size_t n,
                          struct cas_pool_found *ret_pool,
                          struct cas_row *ret_rows);
/* A row as the engine reads it. */
struct cas_row vow__etcd_row_found(const struct vow__etcd_pools *ps,
                                   const struct vow__etcd_pool *p,
                                   const vow_token *token);
/* Moves the pool out. */
void vow__etcd_pool_move(struct vow__etcd_pool *p,
                         struct cas_pool_found *ret_found);

/* ---- etcd_turns.c ---------------------------------------------------------- */

/* Adds to a join: this instance can be told turns, as long as the lease lives. */
void vow__etcd_turns_join(const struct vow__etcd_service *s, struct vow__txn *t,
                          enum vow__branch b, int64_t lease);
/* A request waits: listens to turns from behind this revision on. */
void vow__etcd_turns_begin(struct vow__etcd_service *s, uint64_t revision);
void vow__etcd_turns_end(struct vow__etcd_service *s);
/* Requests to tell. */
struct vow__etcd_turns {
    struct vow__etcd_service *service;
    struct {
        char inst[VOW__ETCD_INST + 1];
        struct vow__buf rows;
    } at[VOW__ETCD_TURNS];
    size_t n;
};
void vow__etcd_turns_init(struct vow__etcd_service *s,
                          struct vow__etcd_turns *ret_turns);
/* Row number `i` of the pool. When there is no room, tells all before. */
void vow__etcd_turns_add(struct vow__etcd_turns *ts,
                         const struct vow__etcd_pools *ps,
                         const struct vow__etcd_pool *p, size_t i,
                         uint64_t due_ns);
/* Tells all that were added, and drops them. Nobody waits for an answer but the
 * caller: a turn that is not told is found later. */
void vow__etcd_turns_tell(struct vow__etcd_turns *ts, uint64_t due_ns);
/* Tells the requests of the first pool that fit since a row went. The row is as
 * it was, and may still be in the pool as read; not `there`: any row. */
void vow__etcd_turns_freed(const struct vow__etcd_pools *ps,
                           const struct cas_row *gone, uint64_t due_ns);

/* ---- etcd_permits.c, etcd_limits.c ---------------------------------------- */

int vow__etcd_permit_join(struct cas_service *service,
                          const vow_permit_request *q,
                          const struct cas_lease *lease, uint64_t due_ns,
                          struct cas_pool_found *ret_pool,
                          struct cas_row *ret_row);
int vow__etcd_permit_look(struct cas_service *service,
                          const struct cas_pool_name *name,
                          const vow_token *tokens, size_t n, uint64_t due_ns,
                          struct cas_pool_found *ret_pool,
                          struct cas_row *ret_rows);
int vow__etcd_permit_write(struct cas_service *service,
                           const struct cas_pool_write *w,
                           uint64_t *ret_version);
int vow__etcd_permit_leave(struct cas_service *service,
                           const struct cas_leave *l,
                           struct cas_pool_found *ret_pool,
                           struct cas_row *ret_row);
int vow__etcd_pool_limit(struct cas_service *service, const vow_name *pool,
                         const vow_pool_limits *limits, const char *label,
                         uint64_t version, uint64_t due_ns,
                         struct cas_pool_found *ret_pool);
int vow__etcd_pool_list(struct cas_service *service, uint64_t due_ns,
                        struct cas_pools_found *ret_pools);

/* ---- etcd_read.c --------------------------------------------------------- */

/* The operations that read a name: e, n/H/ and, with `waited`, v/H/g/WAITED;
 * and what they have found, from response `first` on. */
void vow__etcd_name_ask(struct vow__txn *t, enum vow__branch b,
                        const vow_name *name, uint64_t waited);
int vow__etcd_name_take(struct vow__etcd_service *s, const json_t *root,
                        size_t first, const vow_name *name, uint64_t waited,
                        struct cas_found *ret_found);
/* Takes the key `e` of an answer. */
int vow__etcd_offset_take(struct vow__etcd_service *s, const json_t *range);
/* Makes the name of a record, with the value if the value is in the record. */
int vow__etcd_found_make(struct vow__etcd_service *s, const vow_name *name,
                         uint64_t mod, const struct vow__etcd_record *r,
                         struct cas_found *ret_found);
int vow__etcd_service_read(struct cas_service *service,
                           const struct cas_read *read,
                           struct cas_found *ret_found);
int vow__etcd_service_list(struct cas_service *service, const vow_name *after,
                           uint64_t due_ns, struct cas_found *ret_found,
                           size_t room, size_t *ret_n);
int vow__etcd_service_value(struct cas_service *service, const vow_name *name,
                            uint64_t epoch, uint64_t left, uint64_t due_ns,
                            vow_bytes **ret_value);
int vow__etcd_service_chunks(struct cas_service *service, const vow_name *name,
                             uint64_t epoch, uint64_t from, uint64_t due_ns,
                             struct cas_found *ret_found,
                             vow_bytes **ret_chunks, size_t room,
                             size_t *ret_n);

/* ---- etcd_write.c -------------------------------------------------------- */

int vow__etcd_service_write(struct cas_service *service,
                            const struct cas_write *w,
                            struct cas_found *ret_found);
int vow__etcd_service_drop(struct cas_service *service, const vow_name *name,
                           const vow_token *token, uint64_t version,
                           uint64_t due_ns);

/* ---- etcd_events.c ------------------------------------------------------- */

void vow__etcd_service_listen(struct cas_service *service,
                              const struct cas_events *events);
/* Watches from behind a revision, if there is no watch yet. */
void vow__etcd_events_begin(struct vow__etcd_service *s, uint64_t revision);
void vow__etcd_events_end(struct vow__etcd_service *s);
/* Tells, later, that events may have been lost. */
void vow__etcd_events_doubt(struct vow__etcd_service *s);
void vow__etcd_on_doubt(void *user); /* at once */

/* ---- etcd_ttl.c ---------------------------------------------------------- */

int vow__etcd_service_grant(struct cas_service *service, uint64_t ttl_ms,
                            bool marks, uint64_t due_ns,
                            struct cas_lease *ret_lease);
int vow__etcd_service_keep(struct cas_service *service, struct cas_lease *lease,
                           const vow_name *names, size_t n, uint64_t due_ns,
                           struct cas_found *ret_found);
/* Gives a lease that lives for `ms` from now on; UINT64_MAX: 0, no lease. */
int vow__etcd_keep_use(struct vow__etcd_service *s, uint64_t ms,
                       enum vow__etcd_keep_kind kind, uint64_t due_ns,
                       int64_t *ret_lease);
/* A write has found one of its leases gone. Returns 0 if it was the keep, which
 * is forgotten; VOW_ENOENT: the keep lives, so it was another. */
int vow__etcd_keep_gone(struct vow__etcd_service *s, int64_t keep,
                        uint64_t due_ns);
/* Revokes the leases, unless names are owned. */
void vow__etcd_ttl_close(struct vow__etcd_service *s, bool owns);

#endif
