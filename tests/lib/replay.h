/* SPDX-License-Identifier: MIT */
/* replay.h - is there an order in which a store could have given all answers?
 *
 * WHY   A store is linearizable if each step on a name seems to happen at one
 *       moment between request and answer. Then an order of all steps exists
 *       in which each answer is the one that the rules (store/rules) decide.
 * HOW   The search of Wing and Gong, done whenever an answer comes (Lowe): all
 *       orders of the steps under way are followed, each with the record that
 *       the order leads to, and equal records once. replay_step.c decides one
 *       step on one record by the rules.
 *
 * Times. The store does a step at an unknown moment of the step's interval. So
 * the end of a lease or of a result is a span: the earliest and the latest end
 * that fits the answers so far. The rules are asked about each case that the
 * interval of the step allows: before the end, after the end, and for a lease a
 * minute and a day after the end.
 *
 * Steps without an answer may happen at any time up to `done_us`, once, or
 * never. What else a store may do beyond the rules has a name in `allows`, or a
 * field of a step. The search never refuses an answer that some order with
 * these allowances explains; some wrong answers about time stay unseen.
 *
 * Epochs. A grant without an answer has an unknown epoch: the search tries the
 * epochs that answers tell and that no claim was told, and an epoch that nobody
 * was told.
 *
 * LIMITS  64 steps of a name at once; beyond, or beyond the effort allowed, the
 *         verdict is REPLAY_WIDE.
 */
#ifndef TEST_REPLAY_H
#define TEST_REPLAY_H

#include "store/rules/rules.h"

#include <stdio.h>

enum replay_kind {
    REPLAY_CLAIM,
    REPLAY_PULSE,
    REPLAY_COMMIT,
    REPLAY_FORGET,
    REPLAY_CANCEL,
    REPLAY_WRITE,
    REPLAY_PEEK
};

/* What an answer tells beside the status. */
enum { REPLAY_EPOCH = 1, REPLAY_FIRST = 2, REPLAY_LOST = 4, REPLAY_FAILED = 8 };

struct replay_step {
    enum replay_kind kind;
    uint32_t caller; /* for the story */
    uint64_t sent_us;
    uint64_t done_us;   /* the answer came, or the step may happen until then */
    bool answered;      /* false: the step may have happened, or not */
    uint64_t again_us;  /* the step may happen once more until then, also beside
                           the answer: the store repeats a lost write; 0: no */
    uint64_t undone_us; /* of a claim: until then the store may abandon a grant
                           that no answer told; 0: never */
    /* the request */
    uint64_t token; /* not 0 */
    uint64_t epoch; /* of the hold, or of the result to forget */
    uint32_t mode, flags, outcome;
    uint64_t ms; /* lease, or time to live of a result */
    uint32_t takeovers;
    uint64_t floor, waited;
    uint64_t refresh; /* epoch of the result that the claim refreshes */
    uint64_t number;  /* of a chunk */
    /* the answer */
    int code;
    uint32_t status;
    uint32_t tells; /* REPLAY_EPOCH ...: which of the next fields count */
    uint64_t told_epoch, told_first;
    uint32_t told_takeovers;
    bool told_failed;
};

/* What a store may do beyond the rules. */
enum {
    REPLAY_LEASES_LATE = 1,  /* a lease may last longer than requested */
    REPLAY_LEASES_EARLY = 2, /* a service ended leases before their time */
    REPLAY_FORGOT = 4,       /* the store lost its records before the first
                                step: nothing is known of the record */
    REPLAY_LEFT_MAY_GO = 8,  /* a result left for waiters may be missing */
    REPLAY_LEFT_TO_ANY = 16  /* results are left for instances: claims may read
                                any of them, whatever the caller waited for */
};

struct replay_opts {
    uint32_t allows;
    uint64_t skew_us;    /* ends are early or late by at most this */
    uint64_t recheck_ms; /* as in struct rules_now */
    size_t effort; /* decisions of the rules until REPLAY_WIDE; 0: a default */
};

enum replay_verdict { REPLAY_EXPLAINED, REPLAY_REFUSED, REPLAY_WIDE };

struct replay_result {
    enum replay_verdict verdict;
    size_t step; /* REFUSED: the first step that no order explains */
    size_t effort;
};

/* Judges the steps on one name, in any order. */
struct replay_result replay_run(const struct replay_step *steps, size_t n,
                                const struct replay_opts *opts);

/* Prints the steps up to the refused step, in order of the requests. */
void replay_print(const struct replay_step *steps, size_t n,
                  const struct replay_result *result, FILE *out);

/* ---- replay_step.c: one step on one record ------------------------------- */

enum { REPLAY_LEFT_MAX = 12, REPLAY_OUTCOMES = 64 };

struct replay_span {
    uint64_t lo, hi;
};

struct replay_left {
    uint64_t first, epoch, failed;
    struct replay_span end;
};

/* A record that an order leads to. No padding: ways are compared as bytes. */
struct replay_way {
    /* bounds: a way with wider bounds explains more */
    uint64_t top;     /* the highest epoch granted */
    uint64_t time_us; /* the next step happens not before */
    struct replay_span end, refresh_end;
    uint64_t happened; /* bits of steps under way that have happened */
    uint64_t token, epoch, first, lease_us;
    uint64_t refresh_token, refresh_epoch, refresh_lease_us;
    uint32_t takeovers, chunks;
    uint8_t state, mode, canceled, spent;
    uint8_t unknown; /* nothing is known of the record */
    uint8_t vague;   /* `first` and `takeovers` are not known */
    uint8_t refresh_failed, refresh_canceled;
    uint8_t n_left, pad[7];
    struct replay_left left[REPLAY_LEFT_MAX];
};

struct replay_case {
    const struct replay_step *step;
    const struct replay_opts *opts;
    uint64_t now_us;        /* the step has happened by then */
    bool unsure;            /* decide without comparing the answer */
    bool undo;              /* the store abandons the grant of the claim */
    const uint64_t *grants; /* of an unsure claim: epochs to try */
    size_t n_grants;
    uint64_t below;         /* only smaller ones */
    const uint64_t *waited; /* by any claim, sorted */
    size_t n_waited;
    const uint64_t *spent; /* epochs of results without a time, sorted */
    size_t n_spent;
};

/* The epoch of a grant that nobody was told is above `top`, and below all
 * further epochs: so epochs are counted in steps of 256. */
enum { REPLAY_EPOCH_SHIFT = 8 };

/* Finds all records that the step may lead to; *ret has REPLAY_OUTCOMES. More
 * than that: there was no room for all. */
size_t replay_decide(const struct replay_case *c, const struct replay_way *way,
                     struct replay_way *ret);

#endif
