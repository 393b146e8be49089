/* SPDX-License-Identifier: MIT */
/* oracle.h - a store on src/store/rules, for tests that hold a store to the
 * rules.
 *
 * The oracle keeps a record per name, the results left for waiters, the
 * registered instances, the chunks, and the events of each instance. A step
 * calls one rule and carries out the decision, as the comments of EFFECT_ in
 * rules.h say. Clock and epochs are set by the test: o->now_us and o->number.
 * The oracle deletes no record by itself: `keep_until_us` of a slot says when a
 * store may.
 *
 *     struct oracle o;
 *     oracle_init(&o, &(struct oracle_opts){.recheck_ms = 5000});
 *     o.now_us = o.number = START_US;
 *     oracle_claim(&o, 0, &request, &answer);
 *     oracle_print(&o, stderr); // the last steps and answers, for a failure
 *
 * oracle_choose() makes requests: a list of steps, each relative to the record
 * (the owner's token, an older epoch, at the end of the lease), so that short
 * random histories reach every cell. oracle_do() runs such a request.
 *
 * Each step counts the cell of the state table (rules.c) that was reached:
 * o->reached[line][view]. oracle_missing() names a cell that was reached less
 * often than so many times.
 *
 * What the rules leave to the stores is decided here:
 *   - the runner of a result or revived record without a run is the runner of
 *     the instance, from the last claim with a runner;
 *   - a commit without a label keeps the label of the run that settles;
 *   - a result with a time to live of 0 is left if instances are registered or
 *     an owner was lost, or always with `leaves_all`;
 *   - an instance that is unregistered by a step is not told by this step.
 */
#ifndef TEST_ORACLE_H
#define TEST_ORACLE_H

#include "store/rules/rules.h"

#include <stdio.h>

enum {
    ORACLE_NAMES = 8,
    ORACLE_INSTANCES = 4,
    ORACLE_LEFT = 256,
    ORACLE_CHUNKS = 16,
    ORACLE_EVENTS = 8 * ORACLE_NAMES,
    ORACLE_VALUE = 64,
    ORACLE_LINES = 1024,
    ORACLE_LINE = 320
};

struct oracle_value {
    char bytes[ORACLE_VALUE];
    size_t n;
};

/* A record with texts and value. */
struct oracle_record {
    struct rules_record r;
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
    char refresher[VOW_LABEL_MAX + 1]; /* runner of r.refresh */
    struct oracle_value value;         /* of a result that is not left */
};

struct oracle_run {
    vow_token token;
    uint64_t epoch; /* 0: none */
    uint64_t first;
};

struct oracle_slot {
    vow_name name;
    bool there;
    struct oracle_record record;
    uint64_t keep_until_us;    /* a store may delete the record from then on */
    uint64_t kept_us;          /* the same, from the step that set it */
    struct oracle_run run;     /* the last that was granted or revived */
    struct oracle_run earlier; /* the run before */
    struct oracle_run refresher; /* the last that was granted */
    size_t owner;                /* instance of the owner or refresher */
    bool waits[ORACLE_INSTANCES];
    struct oracle_value chunks[ORACLE_CHUNKS];
    size_t n_left;
    struct oracle_record left[ORACLE_LEFT]; /* under (name, r.first) */
};

enum oracle_event_kind {
    ORACLE_SETTLED, /* `record` is the result */
    ORACLE_CHANGED, /* claim again */
    ORACLE_CANCEL,
    ORACLE_CHUNK
};

struct oracle_event {
    enum oracle_event_kind kind;
    vow_name name;
    struct oracle_record record;
};

struct oracle_answer {
    int code;
    uint32_t status;
    uint64_t epoch;
    uint64_t first;
    uint32_t waiters; /* registered instances of a running name */
    bool shows_value; /* `record` has the value */
    struct oracle_record record;
};

struct oracle_opts {
    uint64_t recheck_ms; /* as in struct rules_now */
    bool exact;          /* as in struct rules_now */
    bool rises;          /* oracle_do() numbers above all epochs granted, also
                           of other names; else the number is the clock */
    bool clamps;         /* a claim that waits shortens a lease with more left
                           than its length: the clock was set back */
    bool promotes;       /* each step but peek stores the record of a refresher
                            beside an expired result as that of the owner */
    bool leaves_all;     /* also results that no instance waits for */
    size_t chunk_bytes;  /* of all chunks of a run; 0: any */
};

/* Lines of the state table, with what distinguishes steps of one line. */
enum oracle_line {
    LINE_CLAIM_SAME,
    LINE_CLAIM_LEFT, /* a result is left for the caller */
    LINE_CLAIM_OTHER,
    LINE_CLAIM_NOWAIT,
    LINE_CLAIM_FORCE,
    LINE_CLAIM_REFRESH,
    LINE_CLAIM_BEHIND, /* with force, while the result is refreshed */
    LINE_CLAIM_REFRESHER,
    LINE_PULSE_SAME,
    LINE_PULSE_OTHER,
    LINE_PULSE_STRICT, /* another token, mode fenced or once */
    LINE_PULSE_REFRESHER,
    LINE_COMMIT_SAME,
    LINE_COMMIT_OTHER, /* of a smaller epoch */
    LINE_COMMIT_NEWER,
    LINE_COMMIT_STRICT, /* another token or epoch */
    LINE_ABANDON_SAME,
    LINE_ABANDON_OTHER,
    LINE_COMMIT_REFRESHER,
    LINE_FAIL_REFRESHER, /* or to abandon */
    LINE_FAIL_REPEATED,  /* the refresh has ended without a result */
    LINE_PUT_OTHER,
    LINE_PUT_NEWER,
    LINE_RESOLVE_SAME, /* the epoch of the record */
    LINE_RESOLVE_OTHER,
    LINE_FORGET_SAME, /* the epoch of the record */
    LINE_FORGET_ANY,
    LINE_FORGET_OTHER,
    LINE_FORGET_REFRESHING,
    LINE_CANCEL,
    LINE_CANCEL_REFRESHING,
    LINE_CHUNK_SAME,
    LINE_CHUNK_REPEATED,
    LINE_CHUNK_BEYOND,
    LINE_CHUNK_OTHER,
    LINE_CHUNK_REFRESHER,
    LINE_PEEK,
    LINE_PROMOTED, /* any step on the stored record of an expired result */
    LINE_N
};
enum { ORACLE_VIEWS = RULES_VIEW_SPENT + 1 };

struct oracle {
    struct oracle_opts opts;
    uint64_t now_us;
    uint64_t number;
    uint64_t highest;         /* epoch that was granted or revived */
    struct rules_record seen; /* by the step under way */
    struct oracle_slot slots[ORACLE_NAMES];
    size_t n_slots;
    char runners[ORACLE_INSTANCES][VOW_LABEL_MAX + 1];
    struct oracle_event events[ORACLE_INSTANCES][ORACLE_EVENTS];
    size_t n_events[ORACLE_INSTANCES];
    uint64_t reached[LINE_N][ORACLE_VIEWS];
    char lines[ORACLE_LINES][ORACLE_LINE]; /* the last steps */
    size_t n_lines;                        /* of all steps */
};

void oracle_init(struct oracle *o, const struct oracle_opts *opts);
/* Forgets all names and events; keeps the lines and the counts of cells. */
void oracle_clear(struct oracle *o);

/* The slot of a name; a new name gets a slot. */
struct oracle_slot *oracle_slot(struct oracle *o, const vow_name *name);
/* Returns the result left under (name, first), or NULL: none, or expired. */
const struct oracle_record *oracle_left(struct oracle *o, const vow_name *name,
                                        uint64_t first);
/* The registered instances of a name. */
uint32_t oracle_waiters(const struct oracle_slot *slot);

/* ---- steps of an instance ------------------------------------------------ */

void oracle_claim(struct oracle *o, size_t instance,
                  const vow_claim_request *request, struct oracle_answer *ret);
void oracle_pulse(struct oracle *o, size_t instance, const vow_hold *hold,
                  uint64_t lease_ms, struct oracle_answer *ret);
void oracle_commit(struct oracle *o, size_t instance,
                   const vow_commit_request *request,
                   struct oracle_answer *ret);
void oracle_forget(struct oracle *o, const vow_name *name, uint64_t epoch,
                   struct oracle_answer *ret);
void oracle_cancel(struct oracle *o, const vow_name *name,
                   struct oracle_answer *ret);
void oracle_write(struct oracle *o, const vow_hold *hold, uint64_t number,
                  vow_bytes *chunk, struct oracle_answer *ret);
void oracle_peek(struct oracle *o, const vow_name *name,
                 struct oracle_answer *ret);

/* ---- requests ------------------------------------------------------------ */

enum oracle_kind {
    ORACLE_CLAIM,
    ORACLE_PULSE,
    ORACLE_COMMIT,
    ORACLE_FORGET,
    ORACLE_CANCEL_STEP,
    ORACLE_WRITE,
    ORACLE_PEEK
};

/* A request to a store and to the oracle; the fields that the kind has. */
struct oracle_request {
    enum oracle_kind kind;
    size_t instance;
    uint64_t now_us; /* the clock of the step: o->now_us or later */
    vow_name name;
    vow_claim_request claim;
    vow_hold hold; /* ORACLE_PULSE, ORACLE_WRITE */
    uint64_t lease_ms;
    vow_commit_request commit; /* `value` is `bytes` */
    uint64_t epoch;            /* ORACLE_FORGET */
    uint64_t number;           /* ORACLE_WRITE */
    char bytes[ORACLE_VALUE];  /* value or chunk, a text */
};

/* How many requests there are to choose from; the first oracle_plain_choices()
 * are not about refreshes. The three choices after these make a result that is
 * being refreshed. */
size_t oracle_choices(void);
size_t oracle_plain_choices(void);
/* Draws the choice of a step, counted from 0: choices that lead to rare cells
 * come more often, and now and then a result is refreshed. */
size_t oracle_draw(uint64_t *seed, size_t step);
/* Makes request number `choice` for a name, at o->now_us or later, relative to
 * the record of the name. Leases and results last for whole minutes. */
void oracle_choose(struct oracle *o, const vow_name *name, size_t choice,
                   struct oracle_request *ret);
/* Sets the clock of the request, and the number, see `rises`, and runs the
 * step; `value`: the bytes of the request. */
void oracle_do(struct oracle *o, const struct oracle_request *request,
               vow_bytes *value, struct oracle_answer *ret);

/* ---- answers ------------------------------------------------------------- */

/* The record of an answer as a store shows the record; texts are borrowed, the
 * value is not set. */
vow_record oracle_record_of(const struct oracle *o, const vow_name *name,
                            const struct oracle_answer *answer);
/* Takes the oldest event of an instance; false: there is none. */
bool oracle_event_take(struct oracle *o, size_t instance,
                       struct oracle_event *ret);

/* ---- history and cells --------------------------------------------------- */

void oracle_print(const struct oracle *o, FILE *out);
/* Prints the lines from number `from` to number `to`, as far as there. */
void oracle_print_lines(const struct oracle *o, size_t from, size_t to,
                        FILE *out);
/* The line of a step on a record as the step finds the record; NULL: none. */
enum oracle_line oracle_claim_line(const struct oracle *o,
                                   const struct rules_record *r,
                                   const vow_claim_request *q, bool left);
enum oracle_line oracle_pulse_line(const struct rules_record *r,
                                   const vow_hold *hold);
enum oracle_line oracle_commit_line(const struct rules_record *r,
                                    const vow_commit_request *q);
enum oracle_line oracle_forget_line(const struct oracle *o,
                                    const struct rules_record *r,
                                    uint64_t epoch);
enum oracle_line oracle_cancel_line(const struct oracle *o,
                                    const struct rules_record *r);
enum oracle_line oracle_chunk_line(const struct rules_record *r,
                                   const vow_hold *hold, uint64_t number);
/* Writes the name of a cell that can be reached and was reached less than
 * `count` times; false: there is none. */
bool oracle_missing(const struct oracle *o, uint64_t count, char *text,
                    size_t size);

#endif
