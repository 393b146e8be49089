/* SPDX-License-Identifier: MIT */
/* store/cas/cas.h - a store on any service with compare-and-set.
 *
 * WHY   A remote store is hard in a few places: writes without an answer,
 *       claims of a process that is gone, leases shared by many names,
 *       wake-ups. The engine does this once. A service (etcd, PostgreSQL) is
 *       the table cas_service_ops below, and states no rule of named work.
 * HOW   A step reads a name at a version, asks store/rules for the decision,
 *       and writes if the version is unchanged; else the step begins again.
 *       Read on in cas_internal.h, then cas.c (steps), cas_change.c (one
 *       change of one name), cas_names.c.
 *
 * CONTRACT OF A SERVICE (tests/lib/cas_memory.c is the smallest service)
 *
 * Names. A name has a record, a version, marks, values, chunks, and perhaps
 * waiters. A version is larger than 0 and rises with each write of the name,
 * also after the record was deleted; a name without a record has version 0. A
 * record of state NONE is a tombstone: stored like any other record, so that a
 * write which assumed an absent record and arrives late has no effect.
 *
 * Marks. A mark (name, token) hangs on a lease and ends with the lease. The
 * owner of a RUNNING record has a mark, and so has a refresher. The service
 * alone ends leases; an ended lease never comes back, and its marks neither.
 * Without a watch, a lease that is over, with marks that are absent, may still
 * be renewed, until a write that relies on the absence has ended the lease. A
 * mark of a token that is neither the record's token nor the refresher's goes
 * with the write that removes the token. The end of a lease leaves the record
 * and the version as they are.
 *
 * Time. Each answer has the time `now_us`: of the service's clock, the same for
 * all processes, or of the wall clock of the process, if the service has no
 * clock. Ends of results are times of this clock, as exact as the clock.
 *
 * Numbers. The epoch of a granted claim is a number of the service, larger than
 * every number and every epoch that was ever written before.
 *
 * Writes. A write is atomic: compare, then record, mark, value, chunk, waiters
 * and messages together; or nothing. An answer is one of
 *     0             the write has happened
 *     VOW_EAGAIN    the compare failed; the answer has the name as it is
 *     VOW_ENOENT    the lease of the mark has ended; nothing happened
 *     VOW_EUNSURE   the write may have happened, or may until a minute after
 *                   the deadline of the write
 *     VOW_ESTORE, VOW_E2BIG, VOW_ENOMEM, VOW_ECLOSED   nothing happened
 * Reads go on at another server by themselves, until the deadline.
 *
 * Events. A service with CAS_WATCHES tells every change of every name after the
 * first answer, in the order of changes: records, marks that have ended,
 * chunks. If events may have been lost, the service calls on_doubt. A service
 * with CAS_REGISTERS tells an instance only about names for which the instance
 * is registered or owner, perhaps twice, late, or not at all.
 *
 * Pools. A pool is a set of rows in the order in which the service created the
 * rows; store/rules/order.h says which rows are held. A row is a key, or a row
 * of a table, with a token, a weight, a lease of the service, and perhaps a
 * mark; the row ends with the lease, and by permit_leave. The order of a row
 * rises with each row of the pool that is created, and never changes; the order
 * of a row is given out before any later row is visible. The fence of a row
 * rises with the order, also when the service was restored from a backup. A row
 * has a version, which changes with each write of the row.
 *   The limits of a pool are those of the pool `limits_of`, mostly the pool
 * itself; a *key* is a pool with the limits of another pool. Limits have a
 * version; limits stay until somebody deletes the pool at the service.
 *   An answer about a pool is of one atomic read. `revision` is the number of
 * the last change of the pool that the answer has seen, or a later number that
 * no unseen change has; numbers rise with each change of rows, entries and
 * limits. Without a watch, a row whose lease is over is not seen, and the step
 * that does not see the row ends the lease.
 *   An *entry* is weight that counts against a rate. An open entry counts as of
 * now: work was granted and has perhaps not started. When the start is told,
 * the engine writes the entry once more, closed. Only one instance writes an
 * entry. With a clock, the service closes an entry of a row that went with its
 * lease. The service removes an entry when keep_ms have passed since the last
 * write, and not before. With a clock, the age of an entry is the time since
 * the last write, by the clock; without, the engine counts from the time when
 * the engine first saw this version of the entry.
 *   A service calls on_look for an unmarked row when the row begins to fit by
 * the concurrency limit, when the row becomes the first waiting row under a
 * rate, and when new limits have removed the row: in the step that causes this,
 * to the instance that joined; perhaps twice, late, or not at all. The end of a
 * lease is told to no instance.
 *
 * Owner: open gives the service to the store, which closes the service.
 * Threads: the thread of the loop. Functions that return a code are called on
 * fibers and may await; all arguments stay valid until the return.
 */
#ifndef VOW_STORE_CAS_H
#define VOW_STORE_CAS_H

#include "store/rules/order.h"
#include "store/rules/rules.h"
#include "vow/store.h"

struct cas_service;

/* A lease at the service: valid for at least ttl_ms from sent_ns on, the time
 * of the loop when the last answered grant or keepalive was sent. */
struct cas_lease {
    uint64_t id; /* 0: no lease */
    uint64_t ttl_ms;
    uint64_t sent_ns;
};

/* The mark of a token, as a read has seen the mark. */
struct cas_mark {
    uint64_t lease;   /* id; 0: there is no mark: the lease has ended, or the
                         claim had a lease of 0 ms */
    uint64_t left_us; /* of the lease; RULES_NEVER: not known */
    uint64_t gone_us; /* without a mark: for how long. A service that does not
                         know says 0, and RULES_MINUTE_US after a minute */
};

enum { CAS_WAITERS_UNKNOWN = UINT32_MAX };

/* A name as one atomic read has seen the name. In the record, end_us of a lease
 * is 0: the marks tell. */
struct cas_found {
    vow_name name;
    uint64_t version; /* 0: no record, and no tombstone */
    uint64_t now_us;  /* when the name was so */
    struct rules_record record;
    struct cas_mark owner;     /* of record.token */
    struct cas_mark refresher; /* of record.refresh.token */
    struct rules_record left;  /* the result left under `waited` of the read */
    bool has_left;
    bool registered;  /* this instance is registered as a waiter */
    bool valued;      /* `value` is set; false in a read with values: the value
                         is apart, see `value` of the service */
    vow_bytes *value; /* counted: of the result left, if there is one, else of
                         the record; NULL: empty */
    uint32_t waiters; /* CAS_WAITERS_UNKNOWN: services that watch */
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
};

struct cas_read {
    const vow_name *names;
    size_t n;
    uint64_t waited; /* of a single name: read the result left under this
                        number, too; 0: none */
    bool values;     /* with the values that are not apart */
    uint64_t due_ns; /* deadline, by the clock of the loop */
};

/* Which epoch of `next` the service numbers. */
enum cas_number { CAS_NUMBER_NONE, CAS_NUMBER_OWNER, CAS_NUMBER_REFRESHER };

/* A conditional write. Compared are:
 *   - the version of the name with was->version
 *   - with `marks`: that the owner's and the refresher's mark are there, or
 *     absent, as in `was`. If the service lets a lease live until a step ends
 *     the lease, this step ends the lease of an absent mark
 *   - that no result is left under `waited`; 0: not compared
 * On a conflict the answer has the name with values, and with the result left
 * under `waited`; with `wait`, the instance is then registered as a waiter, in
 * the same atomic step, if any mark of the name lives. */
struct cas_write {
    vow_name name;
    const struct cas_found *was;
    uint64_t waited;
    bool marks, wait;
    /* EFFECT_WRITE: `next`, texts, mark and `keep_ms`. EFFECT_VALUE: `value`,
     * or under (name, next.first) with EFFECT_LEAVE. EFFECT_CHUNK: `value` is
     * the last chunk of `next`. CLEAR, WAIT, UNWAIT, WAKE and TELL_OWNER as in
     * rules.h; WAIT, UNWAIT and the messages only with CAS_REGISTERS. */
    uint32_t effects;
    struct rules_record next;
    uint64_t now_us; /* time of the decision */
    bool fresh;      /* since_us and end_us of `next` are of this write:
                              vow__cas_write_record() moves both */
    enum cas_number number;
    const vow_token *token; /* gets a mark; NULL: marks stay */
    struct cas_lease lease; /* of the mark; id 0: the mark of the token goes */
    const char *label, *runner;
    uint64_t keep_ms; /* delete the record not before this time has passed, and
                         never while a mark lives; UINT64_MAX: never */
    vow_bytes *value;
    uint64_t due_ns;
};

/* ---- pools --------------------------------------------------------------- */

struct cas_pool_name {
    vow_name pool, limits_of; /* as in vow_permit_request */
};

/* An entry of a rate, see above. */
struct cas_entry {
    uint64_t id;      /* order of the row that the entry was made for */
    uint64_t version; /* 0: there is no entry */
    uint64_t weight;
    uint32_t open;     /* grants of which the start is not known */
    uint64_t age_us;   /* since the last write; RULES_NEVER: not known */
    uint64_t since_us; /* the engine's: age, as a time of the loop */
    uint64_t keep_ms;  /* in a write: remove the entry not before */
};

/* A row as a read has seen the row. */
struct cas_row {
    vow_token token;
    bool there; /* else all that follows is 0 */
    bool made;  /* by this permit_join */
    bool marked;
    uint32_t weight;
    uint64_t order, version, fence;
    uint64_t lease; /* id */
    uint64_t lease_ms;
    uint64_t before; /* vow__rules_order_find() */
    uint64_t ahead;
    /* For services that write whole rows; the engine reads neither. */
    uint64_t since_us;
    char runner[VOW_LABEL_MAX + 1];
};

/* A pool as a read has seen the pool. */
struct cas_pool_found {
    uint64_t revision;
    uint64_t now_us; /* time of the read, as of names */
    bool there;      /* there are limits */
    uint64_t limits_version;
    vow_pool_limits limits;
    struct rules_order sums;   /* vow__rules_order_sum() */
    struct cas_entry *entries; /* vow__cas_entries_add() */
    size_t n, room;
    const struct vow_alloc *alloc; /* of the entries; set by the engine */
    struct cas_pool_name name;
    char label[VOW_LABEL_MAX + 1];
};

/* Pools that are being listed. */
struct cas_pools_found {
    struct cas_pool_found *pools;
    size_t n, room;
    const struct vow_alloc *alloc;
};

/* A change of a row by the process of the row. */
struct cas_row_change {
    const struct cas_row *row; /* as it was read; the version is compared */
    bool mark;                 /* the row is marked from now on */
    struct cas_lease lease;    /* the row hangs on this lease from now on */
    uint64_t lease_ms;         /* of the permit */
};

/* A conditional write of rows and entries of one pool, all or nothing. Compared
 * are the versions of the rows, the versions of the entries (0: no such entry),
 * and limits_version, unless 0. */
struct cas_pool_write {
    struct cas_pool_name pool;
    uint64_t limits_version;
    const struct cas_row_change *rows;
    size_t n_rows;
    const struct cas_entry *entries; /* id, version, weight, open, keep_ms */
    size_t n_entries;
    /* Entries that count no more: each is removed if the version matches, and
     * whatever happens to the write. */
    const struct cas_entry *spent;
    size_t n_spent;
    const char *label; /* of the pool, for a service that keeps no other */
    uint64_t due_ns;
};

/* A removal of a row, if the row has the order; 0: any order. With an entry, the
 * entry is written in the same step, if the versions match: else VOW_EAGAIN, and
 * nothing happens. */
struct cas_leave {
    struct cas_pool_name pool;
    vow_token token;
    uint64_t order;
    const struct cas_entry *entry; /* or NULL */
    const char *label;             /* as in struct cas_pool_write */
    uint32_t concurrent;           /* of the limits, as last read */
    bool look; /* answer the whole pool; else limits and the row may do */
    uint64_t due_ns;
};

/* Called from the loop's queue, never inside a function of the service. */
struct cas_events {
    /* The name has changed. `found` is borrowed, with the value of a result, or
     * of the result left by this change, if the service has the value at hand
     * (`valued`). */
    void (*on_record)(const vow_name *name, const struct cas_found *found,
                      void *user);
    void (*on_doubt)(void *user);
    void (*on_look)(const struct cas_pool_name *pool, const vow_token *token,
                    void *user);
    void *user;
};

enum {
    CAS_WRITE_MAX = 32, /* rows of a write; as many entries */
    CAS_SPENT_MAX = 16
};

enum {
    CAS_WATCHES = 1,  /* tells all changes; keepalives read no names */
    CAS_REGISTERS = 2 /* tells registered waiters and owners */
};

struct cas_service_ops {
    const char *kind;
    uint32_t modes; /* bits, 1 << enum vow_mode */
    uint32_t flags; /* CAS_WATCHES or CAS_REGISTERS */
    size_t value_max;
    uint64_t recheck_ms;

    /* Called once, before any other function. */
    void (*listen)(struct cas_service *s, const struct cas_events *events);

    /* Grants a lease. VOW_EUNSURE: a lease nobody uses ends by itself. With
     * `marks`, a mark of a name is going to hang on the lease. */
    int (*lease_grant)(struct cas_service *s, uint64_t ttl_ms, bool marks,
                       uint64_t due_ns, struct cas_lease *ret_lease);
    /* Renews a lease, and sets sent_ns. With CAS_REGISTERS, also reads the `n`
     * names, without values; else n is 0. VOW_ENOENT: the lease has ended. */
    int (*lease_keep)(struct cas_service *s, struct cas_lease *lease,
                      const vow_name *names, size_t n, uint64_t due_ns,
                      struct cas_found *ret_found);
    /* Ends the mark of a token before the lease, if the name has the version.
     * VOW_EAGAIN: another version. */
    int (*mark_drop)(struct cas_service *s, const vow_name *name,
                     const vow_token *token, uint64_t version, uint64_t due_ns);
    /* Reads names; *ret_found has room for all. */
    int (*read)(struct cas_service *s, const struct cas_read *read,
                struct cas_found *ret_found);
    int (*write)(struct cas_service *s, const struct cas_write *w,
                 struct cas_found *ret_found);
    /* Reads a value that is apart: of the record's result, or with `left`, of
     * the result left under that number. VOW_ENOENT: the value is gone, or of
     * another epoch. */
    int (*value)(struct cas_service *s, const vow_name *name, uint64_t epoch,
                 uint64_t left, uint64_t due_ns, vow_bytes **ret_value);
    /* Reads at most `room` chunks of an epoch, from number `from` on, with the
     * record, without values. After an error, too, the caller drops chunks. */
    int (*chunks)(struct cas_service *s, const vow_name *name, uint64_t epoch,
                  uint64_t from, uint64_t due_ns, struct cas_found *ret_found,
                  vow_bytes **ret_chunks, size_t room, size_t *ret_n);
    /* Reads at most `room` names behind `after` (zeros: from the beginning), in
     * the order of names, without values. Fewer than `room`: the end. */
    int (*list)(struct cas_service *s, const vow_name *after, uint64_t due_ns,
                struct cas_found *ret_found, size_t room, size_t *ret_n);

    /* Creates a row behind all rows, on a lease, or finds the row of the token;
     * sets limits and label if there are none. Answers the pool and the row.
     * The request is repeated after VOW_EUNSURE. */
    int (*permit_join)(struct cas_service *s, const vow_permit_request *q,
                       const struct cas_lease *lease, uint64_t due_ns,
                       struct cas_pool_found *ret_pool,
                       struct cas_row *ret_row);
    /* Reads a pool and the rows of `n` tokens. */
    int (*permit_look)(struct cas_service *s, const struct cas_pool_name *pool,
                       const vow_token *tokens, size_t n, uint64_t due_ns,
                       struct cas_pool_found *ret_pool,
                       struct cas_row *ret_rows);
    /* Writes at most CAS_WRITE_MAX rows and entries. *ret_version is the version of all that was
     * written. VOW_EAGAIN: the compare failed. VOW_ENOENT: a lease has
     * ended. */
    int (*permit_write)(struct cas_service *s, const struct cas_pool_write *w,
                        uint64_t *ret_version);
    /* Removes a row. Answers pool and row as before the step, the whole pool
     * with VOW_EAGAIN; a row that was not there is no error. */
    int (*permit_leave)(struct cas_service *s, const struct cas_leave *leave,
                        struct cas_pool_found *ret_pool,
                        struct cas_row *ret_row);
    /* Reads a pool, or sets limits and label if limits_version is `version`,
     * else VOW_EAGAIN; an empty label keeps the old label. Carries out
     * vow__rules_order_limit() for the pool and its keys: if not in one step,
     * marks come before the limits, and each mark compares the old limits. A
     * row that was missed is marked by the process of the row, and no row leaves
     * that may have been held since. Answers the pool as after the step. */
    int (*pool_limit)(struct cas_service *s, const vow_name *pool,
                      const vow_pool_limits *limits, const char *label,
                      uint64_t version, uint64_t due_ns,
                      struct cas_pool_found *ret_pool);
    /* Reads all pools with limits, by vow__cas_pools_add(). Pools of keys that
     * have neither rows nor entries may be missing. */
    int (*pool_list)(struct cas_service *s, uint64_t due_ns,
                     struct cas_pools_found *ret_pools);

    const char *(*explain)(struct cas_service *s);
    void (*examine)(struct cas_service *s, vow_findings_fn done, void *user);
    /* No function is under way. With `owns` false, the leases may be ended.
     * Frees the service, and calls closed(user) once, from the loop's queue. */
    void (*close)(struct cas_service *s, bool owns, void (*closed)(void *user),
                  void *user);
};

struct cas_service {
    const struct cas_service_ops *ops;
};

struct cas_opts {
    uint64_t timeout_ms; /* of a step, with all tries */
};

/* Makes a store of a service; the service belongs to the store on success.
 * Returns 0 or VOW_ENOMEM. */
int vow__cas_open(vow_loop *loop, struct cas_service *service,
                  const struct cas_opts *opts, vow_store **ret_store);

/* ---- for services -------------------------------------------------------- */

/* Returns the record that a write stores at time `now_us`, with the number of
 * the write: times moved, epoch and `first` numbered, no ends of leases. */
struct rules_record vow__cas_write_record(const struct cas_write *w,
                                          uint64_t now_us, uint64_t number);

/* Drops the value. */
void vow__cas_found_fini(struct cas_found *found);

/* Adds an entry to a pool that is being read. VOW_ENOMEM. */
int vow__cas_entries_add(struct cas_pool_found *found,
                         const struct cas_entry *entry);
/* Drops the entries. */
void vow__cas_pool_found_fini(struct cas_pool_found *found);
/* Adds a pool to a list; the entries move into the list, also without success.
 * VOW_ENOMEM. */
int vow__cas_pools_add(struct cas_pools_found *list,
                       struct cas_pool_found *found);

#endif
