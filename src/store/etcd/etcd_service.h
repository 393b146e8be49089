/* SPDX-License-Identifier: MIT */
/* etcd_service.h - named work on etcd: a service for the engine in store/cas.
 * Keys, leases and versions are described in docs/design/010-etcd.md.
 *
 *   etcd_names.c    opening and closing; the steps of the store
 *   etcd_write.c    writes: one transaction for one name
 *   etcd_read.c     reads: names, lists, values, chunks
 *   etcd_events.c   the watch
 *   etcd_ttl.c      leases of owners, records and results
 *   etcd_record.c   the text of a record
 *   etcd_await.c    requests on a fiber
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
    VOW__ETCD_INLINE_MAX = 16 * 1024, /* bytes of a value inside the record */
    VOW__ETCD_KEEPS = 8,              /* leases of records and results */
    VOW__ETCD_OWNERS = 16             /* leases of owners, remembered */
};

/* A lease that records or results hang on. */
struct vow__etcd_keep {
    int64_t id; /* 0: none */
    bool runs;  /* of running records: kept alive while names are pulsed */
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
    unsigned restores;
    uint64_t offset, offset_mod; /* of the key `e`, and its revision */
    /* the watch */
    struct vow__watch *watch; /* NULL: no answer yet */
    vow_name told;            /* the last change of a record, and when */
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
int vow__etcd_names_txn(struct vow__etcd_service *s, struct vow__txn *t,
                        uint64_t due_ns, json_t **ret_root);
void vow__etcd_names_txn_init(const struct vow__etcd_service *s,
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
                            struct vow__jot *value);

/* A mark: the key n/H/a of an owner, or n/H/b of a refresher. */
struct vow__etcd_mark {
    vow_token token;
    uint64_t lease_ms;
};
bool vow__etcd_mark_read(const struct vow__kv *kv,
                         struct vow__etcd_mark *ret_mark);
void vow__etcd_mark_write(const struct vow__etcd_mark *m,
                          struct vow__jot *value);
/* The key n/H/c: how many chunks there are. */
bool vow__etcd_count_read(const struct vow__kv *kv, uint64_t *ret_chunks,
                          uint64_t *ret_bytes);
void vow__etcd_count_write(const struct rules_record *r,
                           struct vow__jot *value);
/* The key `e`. */
bool vow__etcd_offset_read(const struct vow__kv *kv, uint64_t *ret_offset);
void vow__etcd_offset_write(uint64_t offset, struct vow__jot *value);
/* "n/H/r": the name, and the letter behind it; 0: another key. */
char vow__etcd_name_key(const char *key, vow_name *ret_name);
/* v/H/EPOCH, v/H/g/FIRST, c/H/EPOCH/ and c/H/EPOCH/NUMBER */
struct vow__key vow__etcd_value_key(const vow_name *name, uint64_t epoch);
struct vow__key vow__etcd_left_key(const vow_name *name, uint64_t first);
struct vow__key vow__etcd_chunks_key(const vow_name *name, uint64_t epoch);
struct vow__key vow__etcd_chunk_key(const vow_name *name, uint64_t epoch,
                                    uint64_t number);

/* ---- etcd_read.c --------------------------------------------------------- */

/* The operations that read a name: e, n/H/ and, with `waited`, v/H/g/WAITED;
 * and what they have found, from response `first` on. */
void vow__etcd_name_ask(struct vow__txn *t, enum vow__branch b,
                        const vow_name *name, uint64_t waited);
int vow__etcd_name_take(struct vow__etcd_service *s, const json_t *root,
                        size_t first, const vow_name *name, uint64_t waited,
                        struct cas_found *ret_found);
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

/* ---- etcd_ttl.c ---------------------------------------------------------- */

int vow__etcd_service_grant(struct cas_service *service, uint64_t ttl_ms,
                            bool marks, uint64_t due_ns,
                            struct cas_lease *ret_lease);
int vow__etcd_service_keep(struct cas_service *service, struct cas_lease *lease,
                           const vow_name *names, size_t n, uint64_t due_ns,
                           struct cas_found *ret_found);
/* Gives a lease that lives for `ms` from now on; UINT64_MAX: 0, no lease.
 * `runs`: of a running record. */
int vow__etcd_keep_use(struct vow__etcd_service *s, uint64_t ms, bool runs,
                       uint64_t due_ns, int64_t *ret_lease);
/* A write has found one of its leases gone. Returns 0 if it was the keep, which
 * is forgotten; VOW_ENOENT: the keep lives, so it was another. */
int vow__etcd_keep_gone(struct vow__etcd_service *s, int64_t keep,
                        uint64_t due_ns);
/* Revokes the leases, unless names are owned. */
void vow__etcd_ttl_close(struct vow__etcd_service *s, bool owns);

#endif
