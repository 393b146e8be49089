/* SPDX-License-Identifier: MIT */
/* vow/record.h - what a store knows of a name, and what it is asked.
 *
 * These are the words between an authority and a store (vow/store.h), and what
 * people see who look (vow_authority_list()).
 */
#ifndef VOW_RECORD_H
#define VOW_RECORD_H

#include "vow/name.h"
#include "vow/promise.h"

VOW_BEGIN_DECLS

/* Who asks: 16 random bytes for each claim or place, the same when a step is
 * repeated. Compared as bytes, never shown. */
typedef struct vow_token {
    unsigned char bytes[16];
} vow_token;

/* What is promised of named work. */
enum vow_mode {
    VOW_SHARED = 0, /* at most one live leased runner; a lost one is replaced */
    VOW_FENCED = 1, /* and at most one result; without the store nothing runs */
    VOW_ONCE = 2    /* never replaced: if its owner dies, it is in doubt */
};

/* The answer of a store about a name, or about a permit of a pool. */
enum vow_status {
    VOW_STATUS_NONE = 0,     /* no such record or permit */
    VOW_STATUS_OWNED = 1,    /* the caller has the lease, or the permit */
    VOW_STATUS_WAITING = 2,  /* another runner has it; or in the wait queue */
    VOW_STATUS_SETTLED = 3,  /* the name has a result */
    VOW_STATUS_DOUBT = 4,    /* VOW_ONCE, and the owner is gone */
    VOW_STATUS_LOST = 5,     /* the caller's lease went to another runner */
    VOW_STATUS_CANCELED = 6, /* owned, and a cancel was asked for */
    VOW_STATUS_BUSY = 7      /* no permit is free, and a try does not queue */
};

typedef struct vow_record {
    vow_name name;
    uint32_t status;    /* enum vow_status */
    uint32_t mode;      /* enum vow_mode */
    uint64_t epoch;     /* of the claim: the fence, strictly increasing */
    uint32_t takeovers; /* how many owners before this one were lost */
    uint32_t waiters;   /* instances that are registered */
    bool failed;        /* settled with a failure */
    vow_bytes *value;   /* when settled; NULL: empty */
    uint64_t age_ms;    /* since it was claimed, or settled */
    uint64_t pulse_ms;  /* since the last pulse */
    uint64_t left_ms;   /* of the lease, or of the result; UINT64_MAX: no end */
    uint64_t cost_ms;   /* how long the work took, when settled */
    const char *label;  /* for people; "" without one */
    const char *runner; /* "host:pid" of the owner */
} vow_record;

typedef void (*vow_records_fn)(int code, const vow_record *records, size_t n,
                               void *user);

enum { VOW_LABEL_MAX = 255 }; /* bytes of a label or runner; cut if longer */

enum {
    VOW_CLAIM_NOWAIT = 1, /* do not register as waiting */
    VOW_CLAIM_FORCE = 2   /* a result that is there counts as gone */
};

typedef struct vow_claim_request {
    vow_name name;
    vow_token token;
    uint32_t mode;      /* enum vow_mode */
    uint32_t flags;     /* VOW_CLAIM_... */
    uint64_t lease_ms;  /* the silence after which it may be taken over */
    uint32_t takeovers; /* allowed; the next gives up: settled as a failure
                           VOW_EGAVEUP, for a minute */
    uint64_t floor;     /* the highest epoch this process has seen */
    const char *label;  /* may be NULL */
    const char *runner; /* may be NULL */
} vow_claim_request;

/* A name that is owned, as the owner proves it. */
typedef struct vow_hold {
    vow_name name;
    vow_token token;
    uint64_t epoch;
} vow_hold;

enum vow_outcome {
    VOW_OUTCOME_DONE = 1,
    VOW_OUTCOME_FAILED = 2,
    VOW_OUTCOME_ABANDONED = 3 /* the record goes; who waits may claim it */
};

enum {
    VOW_COMMIT_STRICT = 1, /* not if the record has vanished */
    VOW_COMMIT_PUT = 2,    /* a result of a smaller epoch, or nothing, is there:
                              replace it. The hold is of another name. */
    VOW_COMMIT_RESOLVE = 4 /* it is in doubt with this epoch: settle it. The
                              token does not matter. */
};

typedef struct vow_commit_request {
    vow_hold hold;
    uint32_t outcome; /* enum vow_outcome */
    uint32_t flags;   /* VOW_COMMIT_... */
    vow_bytes *value; /* borrowed until done; NULL: empty */
    uint64_t ttl_ms;  /* 0: only long enough for all who wait to read it */
    uint64_t cost_ms;
    const char *label;
} vow_commit_request;

/* Chunks that the owner wrote, in order, from number `from` on; `next` is the
 * number to go on with. */
typedef void (*vow_chunks_fn)(int code, vow_bytes *const *chunks, size_t n,
                              uint64_t next, void *user);

VOW_END_DECLS

#endif
