/* SPDX-License-Identifier: MIT */
/* vow/record.h - the record of a name in a store, and the requests to a store.
 *
 * The types are used between an authority and a store (vow/store.h), and in the
 * answers of vow_authority_list() and vow_authority_peek().
 */
#ifndef VOW_RECORD_H
#define VOW_RECORD_H

#include "vow/name.h"
#include "vow/promise.h"

VOW_BEGIN_DECLS

/* The identity of a claim or of a permit request: 16 random bytes, the same
 * when a step is repeated. Compared as bytes, never shown. */
typedef struct vow_token {
    unsigned char bytes[16];
} vow_token;

/* The guarantee for named work. */
enum vow_mode {
    VOW_SHARED = 0, /* at most one live owner; a lost owner is replaced */
    VOW_FENCED = 1, /* also at most one result; nothing runs without a store */
    VOW_ONCE = 2    /* a lost owner is not replaced: the name is in doubt */
};

/* The answer of a store about a name, or about a permit of a pool. */
enum vow_status {
    VOW_STATUS_NONE = 0,     /* no such record or permit */
    VOW_STATUS_OWNED = 1,    /* the caller has the lease, or the permit */
    VOW_STATUS_WAITING = 2,  /* another owner has the name; or in the queue */
    VOW_STATUS_SETTLED = 3,  /* the name has a result */
    VOW_STATUS_DOUBT = 4,    /* VOW_ONCE, and the owner is gone */
    VOW_STATUS_LOST = 5,     /* the caller's lease went to another owner */
    VOW_STATUS_CANCELED = 6, /* owned, and the owner was asked to stop */
    VOW_STATUS_BUSY = 7      /* no permit is free, and a try does not queue */
};

typedef struct vow_record {
    vow_name name;
    uint32_t status;    /* enum vow_status */
    uint32_t mode;      /* enum vow_mode */
    uint64_t epoch;     /* of the claim: the fence, strictly increasing */
    uint64_t first;     /* OWNED, WAITING: epoch of the first owner since the
                           name was free, for `waited` of a later claim */
    uint32_t takeovers; /* lost owners before the current owner */
    uint32_t waiters;   /* registered instances; UINT32_MAX: not known */
    bool failed;        /* settled with a failure */
    vow_bytes *value;   /* when settled; NULL: empty */
    uint64_t age_ms;    /* since the claim, or since settled */
    uint64_t pulse_ms;  /* since the last pulse; UINT64_MAX: not known */
    uint64_t left_ms;   /* of the lease, or of the result; UINT64_MAX: no end */
    uint64_t cost_ms;   /* run time of the work, when settled */
    const char *label;  /* for people; "": none */
    const char *runner; /* "host:pid" of the owner */
} vow_record;

typedef void (*vow_records_fn)(int code, const vow_record *records, size_t n,
                               void *user);

enum { VOW_LABEL_MAX = 255 }; /* bytes of a label or runner; cut if longer */

enum {
    VOW_CLAIM_NOWAIT = 1, /* do not register the instance as waiting */
    VOW_CLAIM_FORCE = 2   /* ignore an existing result */
};

typedef struct vow_claim_request {
    vow_name name;
    vow_token token;
    uint32_t mode;      /* enum vow_mode */
    uint32_t flags;     /* VOW_CLAIM_... */
    uint64_t lease_ms;  /* takeover after so long without a pulse */
    uint32_t takeovers; /* takeovers allowed; a claim beyond settles the name as
                           a failure VOW_EGAVEUP, for a minute */
    uint64_t floor;     /* the highest epoch this process has seen */
    uint64_t waited;    /* `first` of the run the caller waited for or lost: a
                           result left for waiters is answered; 0: none */
    uint64_t refresh;   /* epoch of the result that the caller found, and would
                           replace while the result is read; 0: none */
    const char *label;  /* may be NULL */
    const char *runner; /* may be NULL */
} vow_claim_request;

/* The proof of ownership: name, token and epoch of a claim. */
typedef struct vow_hold {
    vow_name name;
    vow_token token;
    uint64_t epoch;
    uint32_t mode; /* enum vow_mode of the claim */
} vow_hold;

enum vow_outcome {
    VOW_OUTCOME_DONE = 1,
    VOW_OUTCOME_FAILED = 2,
    VOW_OUTCOME_ABANDONED = 3 /* removes the record: a waiter may claim */
};

enum {
    VOW_COMMIT_STRICT = 1, /* refuse if the record has vanished */
    VOW_COMMIT_PUT = 2,    /* set the result if there is none, or replace a
                              result of a smaller epoch. Token and epoch are
                              of a claim of another name. */
    VOW_COMMIT_RESOLVE = 4 /* settle a name in doubt with this epoch; the token
                              is not compared */
};

typedef struct vow_commit_request {
    vow_hold hold;
    uint32_t outcome; /* enum vow_outcome */
    uint32_t flags;   /* VOW_COMMIT_... */
    vow_bytes *value; /* borrowed until done; NULL: empty */
    uint64_t ttl_ms;  /* 0: only for waiters (vow/store.h) */
    uint64_t cost_ms; /* run time of the work */
    const char *label;
} vow_commit_request;

/* Called with chunks written by the owner, in order, from the requested number
 * on. `next` is the number to read from next. */
typedef void (*vow_chunks_fn)(int code, vow_bytes *const *chunks, size_t n,
                              uint64_t next, void *user);

VOW_END_DECLS

#endif
