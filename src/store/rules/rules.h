/* SPDX-License-Identifier: MIT */
/* store/rules/rules.h - the protocol of named work, as pure functions.
 *
 * WHY   Every store must decide alike who owns a name, which result counts and
 *       which waiters are told. The decisions are stated here once.
 * HOW   A store finds the record of a name, calls one rule, and carries out the
 *       decision, all in one atomic step. A rule reads only its arguments: no
 *       I/O, no clock, no allocation. Texts, values, chunks and the list of
 *       waiters stay with the store; a decision says by EFFECT_ bits what
 *       happens to them.
 *
 * A record as a stranger finds it (enum rules_view):
 *
 *   NONE     no record; or a result that has expired; or a lapsed lease that
 *            is a day old
 *   RUNNING  the owner's lease is valid
 *   LAPSED   the lease has expired; mode shared or fenced: may be taken over
 *   DOUBT    the lease has expired; mode once: never taken over
 *   SETTLED  a result that every caller may read
 *   SPENT    a result with a time to live of 0: only claims that waited for the
 *            run may read the value, which is left under (name, first)
 *
 * A *refresher* is a second runner beside a result (`refresh` of the record):
 * when the result expires, the refresher becomes the owner.
 *
 * INVARIANTS  run by vow__rules_check() before and after each rule
 *   R1  a RUNNING record has a token
 *   R2  GAVE_UP has no token, is not spent, and has no refresher
 *   R3  first is at most epoch; all epochs are at most RULES_EPOCH_MAX
 *   R4  a refresher has a larger epoch than the result, and a token; only a
 *       DONE result that is not spent and not of mode once has a refresher
 *   R5  only a RUNNING record is canceled or has chunks; only a DONE or FAILED
 *       record is spent
 *   R6  NONE is all zeros, and so is `refresh` without a refresher
 * LIMITS
 *   - Waiters with FORCE behind a refresher that fails are not woken; such
 *     waiters claim again after the recheck interval of the store.
 *   - A record that is gone from the store and a record that has expired are
 *     the same to the rules. So an owner that was replaced long ago can revive
 *     shared work after the newer result has expired, and a step repeated after
 *     the end of the record is a step on a free name.
 *   - A resolve that deletes the record answers NONE when repeated.
 * THREADS  any.
 */
#ifndef VOW_STORE_RULES_H
#define VOW_STORE_RULES_H

#include "vow/record.h"

/* ---- constants of the protocol ----------------------------------------- */

/* VOW_EGAVEUP is remembered for this time; a lapsed lease counts as a takeover
 * for this time. */
#define RULES_MINUTE_US UINT64_C(60000000)
/* A lapsed lease is remembered for this time: a pulse or commit of the owner
 * still counts, as long as the name was not claimed. */
#define RULES_DAY_US UINT64_C(86400000000)
/* After a failed refresh the next refresh waits for this time. */
#define RULES_REFRESH_PAUSE_US UINT64_C(1000000)
#define RULES_NEVER UINT64_MAX /* an end that never comes */
/* A larger epoch is VOW_EINVAL, also as the epoch that a grant would have. */
#define RULES_EPOCH_MAX (UINT64_MAX / 4)

/* ---- records ----------------------------------------------------------- */

enum rules_state {
    RULES_NONE = 0,
    RULES_RUNNING,
    RULES_DONE,
    RULES_FAILED,
    RULES_GAVE_UP /* a failure VOW_EGAVEUP, which the store makes itself */
};

struct rules_refresh {
    vow_token token;
    uint64_t epoch;    /* 0: no refresher */
    uint64_t since_us; /* when the refresh was claimed */
    uint64_t end_us;   /* of the lease; `failed`: no refresh before this */
    uint64_t lease_us;
    bool failed;   /* the refresh has ended without a result: the old result
                      stays, and a repeated end has the same answer */
    bool canceled; /* the refresher was asked to stop */
};

struct rules_record {
    uint8_t state;      /* enum rules_state */
    uint8_t mode;       /* enum vow_mode */
    bool canceled;      /* RUNNING: the owner was asked to stop */
    bool spent;         /* settled with a time to live of 0 */
    uint32_t takeovers; /* owners lost since the name was free */
    uint32_t chunks;    /* written in this epoch */
    vow_token token;    /* of the owner, or of the runner that settled */
    uint64_t epoch;     /* the fence: larger for every granted claim */
    uint64_t first;     /* epoch of the first owner since the name was free;
                           takeovers keep this number */
    uint64_t since_us;  /* claimed or settled, by the store's clock */
    uint64_t end_us;    /* of the lease or of the result, by the same clock */
    uint64_t lease_us;
    uint64_t cost_ms;
    uint64_t chunk_bytes; /* of all chunks of this epoch */
    struct rules_refresh refresh;
};

enum rules_view {
    RULES_VIEW_NONE = 0,
    RULES_VIEW_RUNNING,
    RULES_VIEW_LAPSED,
    RULES_VIEW_DOUBT,
    RULES_VIEW_SETTLED,
    RULES_VIEW_SPENT
};

/* Returns the view of a record; NULL is RULES_VIEW_NONE. A lease is valid while
 * end_us is later than now_us. After the clock was set back, the difference may
 * be more than lease_us: the store shows at most lease_us as the time left. A
 * service that expires leases itself passes end_us RULES_NEVER while the lease
 * lives, else 0, and now_us 1. */
enum rules_view vow__rules_view(const struct rules_record *r, uint64_t now_us);

/* Returns whether a refresher has a valid lease. */
bool vow__rules_refreshing(const struct rules_record *r, uint64_t now_us);

/* Returns the record as of now: a result that has expired beside a refresher is
 * the running record of the refresher. `r` NULL: all zeros. */
struct rules_record vow__rules_current(const struct rules_record *r,
                                       uint64_t now_us);
/* Returns the running record of the refresher, without the result: what an
 * answer about the refresher shows. */
struct rules_record vow__rules_refresher(const struct rules_record *r);

/* Asserts R1 to R6. */
void vow__rules_check(const struct rules_record *r);

/* ---- steps ------------------------------------------------------------- */

struct rules_now {
    uint64_t now_us; /* the store's clock */
    uint64_t number; /* above every epoch that this store has granted; 0: the
                         service numbers the write itself, and takes the larger
                         of both */
    uint64_t recheck_ms; /* the store's interval: see vow__rules_keep_us() */
    bool exact; /* the store repeats no step, and no waiter is registered:
                         a spent record is deleted at once if first == epoch,
                         that is, without a takeover */
};

enum rules_effect {
    EFFECT_WRITE = 1,        /* store `next`; state NONE deletes the record */
    EFFECT_TEXTS = 2,        /* label and runner are those of the request; an
                                empty label keeps the old label */
    EFFECT_VALUE = 4,        /* the value of the request is the value of the
                                result */
    EFFECT_LEAVE = 8,        /* the value lies under (name, next.first) until
                                next.end_us, whatever becomes of the record */
    EFFECT_CLEAR = 16,       /* before VALUE and CHUNK: drop value and chunks of
                                the former epoch; values left for waiters stay.
                                Set by each write of a RUNNING record over a
                                stored result or an expired record */
    EFFECT_WAIT = 32,        /* register the caller's instance as a waiter */
    EFFECT_UNWAIT = 64,      /* unregister the caller's instance */
    EFFECT_WAKE = 128,       /* tell all registered instances, with the result
                                if there is one, and unregister them */
    EFFECT_TELL_OWNER = 256, /* tell the instance of the owner or refresher:
                                on_cancel */
    EFFECT_SHOW = 512,       /* the answer has the value: of the result left, or
                                of the record */
    EFFECT_CHUNK = 1024      /* append the chunk, and tell the waiters */
};

struct decision {
    int code;         /* 0; VOW_EINVAL, VOW_E2BIG: nothing changes */
    uint32_t status;  /* enum vow_status: the answer */
    uint32_t effects; /* EFFECT_...; 0: nothing to do */
    bool left;        /* the answer shows the result left, not the record */
    bool refresh;     /* the step is one of the refresher: the answer shows the
                         refresher's lease and epoch */
    uint64_t epoch;   /* of the answer */
    uint64_t first;   /* of the answer: a later claim waits for this run */
    struct rules_record next; /* meaningful with EFFECT_WRITE, and for the
                                 answer; without a change a copy of the
                                 record */
    uint64_t keep_until_us;   /* the store may delete the record from then on;
                                 RULES_NEVER: not by itself */
};

/* Returns by how much a spent result outlives the lease: twice the recheck
 * interval, in which every waiter asks; and at least a minute if an owner was
 * replaced: the owner may have been stopped, and asks when the process goes on.
 */
uint64_t vow__rules_keep_us(uint64_t recheck_ms, bool replaced);

/* Each rule decides one step. `r` NULL: there is no record. A step that comes
 * twice has the same answer and no second effect. */

/* `left`: the result left under (name, first of the run that the caller waited
 * for), or NULL. A result of mode once is not refreshed, and a claim of mode
 * once refreshes nothing: the answer is SETTLED. The epoch of a grant is larger
 * than all epochs of the record, also of an expired record. A token of zeros is
 * VOW_EINVAL. */
struct decision vow__rules_claim(const struct rules_record *r,
                                 const struct rules_record *left,
                                 const vow_claim_request *request,
                                 struct rules_now now);
/* `mode`: enum vow_mode of the hold; a larger number is VOW_EINVAL. A record
 * that has vanished is made again only for VOW_SHARED; a token of zeros is then
 * VOW_EINVAL. */
struct decision vow__rules_pulse(const struct rules_record *r,
                                 const vow_hold *hold, uint32_t mode,
                                 uint64_t lease_ms, struct rules_now now);
/* On a name without a run the result has mode VOW_SHARED: stores use
 * VOW_COMMIT_STRICT for other modes. To abandon a run that is gone is OWNED,
 * also with STRICT. FAILED and ABANDONED of a refresher keep the result, and
 * the answer is about the refresher. */
struct decision vow__rules_commit(const struct rules_record *r,
                                  const vow_commit_request *request,
                                  struct rules_now now);
/* `epoch`: of the result to delete; 0: any. With the epoch of a result beside a
 * refresher, the refresher becomes the owner. An epoch below the epoch of the
 * owner is of a run that is gone: NONE. */
struct decision vow__rules_forget(const struct rules_record *r, uint64_t epoch,
                                  struct rules_now now);
struct decision vow__rules_cancel(const struct rules_record *r,
                                  struct rules_now now);
/* `number` counts the chunks of the epoch from 0. A chunk beyond the next
 * number is not stored: chunks before were lost with the record. `most`: bytes
 * of all chunks together; beyond, VOW_E2BIG. */
struct decision vow__rules_chunk(const struct rules_record *r,
                                 const vow_hold *hold, uint64_t number,
                                 size_t size, size_t most,
                                 struct rules_now now);
/* Returns the status for peek and list: what a claim of a stranger would find,
 * and VOW_STATUS_NONE for a lapsed lease. */
uint32_t vow__rules_peek(const struct rules_record *r, uint64_t now_us);

#endif
