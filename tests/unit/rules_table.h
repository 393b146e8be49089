/* SPDX-License-Identifier: MIT */
/* rules_table.h - the state table of named work, as data.
 *
 * SUBJECTS lists records, and the column of the table in which each record
 * stands at each boundary time. TABLE lists the cells: the first row that fits
 * a step counts. A row with `open` marks a cell about which the contract says
 * nothing. */
#ifndef TEST_RULES_TABLE_H
#define TEST_RULES_TABLE_H

#include "harness.h"
#include "store/rules/rules.h"
#include "vow/error.h"

#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define DAY (24 * 60 * MINUTE)
#define END_US (100 * RULES_DAY_US) /* the end of each record under test */
#define LEASE_US UINT64_C(30000000)
#define REFRESH_LEASE_US UINT64_C(20000000)
#define RECHECK_MS 5000
#define ASKED_LEASE_MS UINT64_C(45000)
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

enum { FIRST = 40, EPOCH = 50, REFRESH_EPOCH = 70, LEFT_EPOCH = 35 };
enum { LEFT_FIRST = 33, CHUNKS = 3, CHUNK_BYTES = 300, CHUNK_SIZE = 100 };

static const vow_token OWNER_TOKEN = {{'o'}};
static const vow_token REFRESHER_TOKEN = {{'r'}};
static const vow_token STRANGER_TOKEN = {{'s'}};

/* The result that an earlier run left for waiters. */
static const struct rules_record LEFT_RESULT = {.state = RULES_DONE,
                                                .spent = true,
                                                .token = {{'l'}},
                                                .epoch = LEFT_EPOCH,
                                                .first = LEFT_FIRST,
                                                .since_us = 1,
                                                .end_us = RULES_NEVER};

/* ---- subjects ------------------------------------------------------------ */

/* Columns of the table: views, and DONE by the state of the refresher. */
enum {
    NONE = 1,
    RUNNING = 2,
    LAPSED = 4, /* for less than a minute */
    OLD = 8,    /* lapsed for a minute or more, less than a day */
    DOUBT = 16,
    DONE = 32,     /* without a refresher */
    LIVE = 64,     /* DONE with a refresher that has a valid lease */
    SILENT = 128,  /* DONE with a refresher that has no valid lease */
    PAUSED = 256,  /* DONE after a failed refresh, within the pause */
    READY = 512,   /* DONE after a failed refresh and the pause */
    FAILED = 1024, /* a result that is a failure */
    GAVE_UP = 2048,
    SPENT = 4096,
    REFRESHED = LIVE | SILENT,
    HELD = RUNNING | LAPSED | OLD | DOUBT,
    SETTLED = DONE | LIVE | SILENT | PAUSED | READY | FAILED | GAVE_UP
};

struct moment {
    int64_t after_end_us; /* of the record's end */
    uint32_t column;      /* 0 ends the list */
    bool promoted;        /* the refresher has become the owner */
};

struct subject {
    const char *name;
    uint8_t state; /* RULES_NONE: the store has no record */
    uint8_t mode;
    bool spent;
    bool canceled;      /* the owner, or the refresher if there is one */
    uint32_t takeovers; /* 0: the first owner, */
    bool late;          /* or an owner after a lapse of more than a minute */
    bool has_refresh;
    bool refresh_failed;
    int64_t refresh_end_us; /* after END_US */
    struct moment at[9];
};

/* clang-format off */
#define AT_LEASE {{-1, RUNNING, 0}, {0, LAPSED, 0}, {MINUTE - 1, LAPSED, 0}, \
    {MINUTE, OLD, 0}, {DAY - 1, OLD, 0}, {DAY, NONE, 0}, {30 * DAY, NONE, 0}}
#define AT_ONCE {{-1, RUNNING, 0}, {0, DOUBT, 0}, {MINUTE - 1, DOUBT, 0}, \
    {MINUTE, DOUBT, 0}, {DAY - 1, DOUBT, 0}, {DAY, DOUBT, 0}, \
    {30 * DAY, DOUBT, 0}}
#define AT_RESULT(column) {{-1, column, 0}, {0, NONE, 0}, {MINUTE, NONE, 0}, \
    {DAY, NONE, 0}}
/* A refresher whose lease ends half a minute after the result. */
#define AT_LATER_REFRESH {{-1, LIVE, 0}, {0, RUNNING, 1}, \
    {30 * SECOND - 1, RUNNING, 1}, {30 * SECOND, LAPSED, 1}, \
    {90 * SECOND - 1, LAPSED, 1}, {90 * SECOND, OLD, 1}, \
    {30 * SECOND + DAY - 1, OLD, 1}, {30 * SECOND + DAY, NONE, 1}}
/* A refresher whose lease ends half a minute before the result. */
#define AT_EARLIER_REFRESH {{-30 * SECOND - 1, LIVE, 0}, \
    {-30 * SECOND, SILENT, 0}, {-1, SILENT, 0}, {0, LAPSED, 1}, \
    {30 * SECOND - 1, LAPSED, 1}, {30 * SECOND, OLD, 1}, \
    {DAY - 30 * SECOND - 1, OLD, 1}, {DAY - 30 * SECOND, NONE, 1}}

static const struct subject SUBJECTS[] = {
    {"no record", .at = {{0, NONE, 0}}},
    {"shared", RULES_RUNNING, VOW_SHARED, .takeovers = 2, .at = AT_LEASE},
    {"first owner", RULES_RUNNING, VOW_SHARED, .at = AT_LEASE},
    {"late owner", RULES_RUNNING, VOW_SHARED, .late = true, .at = AT_LEASE},
    {"fenced", RULES_RUNNING, VOW_FENCED, .takeovers = 2, .at = AT_LEASE},
    {"canceled", RULES_RUNNING, VOW_SHARED, .canceled = true, .at = AT_LEASE},
    {"once", RULES_RUNNING, VOW_ONCE, .at = AT_ONCE},
    {"canceled once", RULES_RUNNING, VOW_ONCE, .canceled = true, .at = AT_ONCE},
    {"done", RULES_DONE, VOW_SHARED, .takeovers = 2, .at = AT_RESULT(DONE)},
    {"done once", RULES_DONE, VOW_ONCE, .at = AT_RESULT(DONE)},
    {"failed", RULES_FAILED, VOW_FENCED, .at = AT_RESULT(FAILED)},
    {"gave up", RULES_GAVE_UP, .takeovers = 2, .at = AT_RESULT(GAVE_UP)},
    {"spent", RULES_DONE, .spent = true, .at = AT_RESULT(SPENT)},
    {"spent after takeovers", RULES_DONE, VOW_FENCED, .spent = true,
     .takeovers = 2, .at = AT_RESULT(SPENT)},
    {"spent failure", RULES_FAILED, VOW_ONCE, .spent = true,
     .at = AT_RESULT(SPENT)},
    {"refresher lives", RULES_DONE, .has_refresh = true,
     .refresh_end_us = 30 * SECOND, .at = AT_LATER_REFRESH},
    {"fenced refresher lives", RULES_DONE, VOW_FENCED, .has_refresh = true,
     .refresh_end_us = 30 * SECOND, .at = AT_LATER_REFRESH},
    {"canceled refresher", RULES_DONE, .has_refresh = true, .canceled = true,
     .refresh_end_us = 30 * SECOND, .at = AT_LATER_REFRESH},
    {"refresher lapsed", RULES_DONE, .has_refresh = true,
     .refresh_end_us = -30 * SECOND, .at = AT_EARLIER_REFRESH},
    {"refresher lapsed days ago", RULES_DONE, .has_refresh = true,
     .refresh_end_us = -2 * DAY, .at = {{-1, SILENT, 0}, {0, NONE, 1}}},
    {"refresh failed", RULES_DONE, .has_refresh = true, .refresh_failed = true,
     .refresh_end_us = SECOND, .at = {{-1, PAUSED, 0}, {0, NONE, 0}}},
    {"refresh failed before", RULES_DONE, .has_refresh = true,
     .refresh_failed = true, .refresh_end_us = -10 * SECOND,
     .at = {{-10 * SECOND - 1, PAUSED, 0}, {-10 * SECOND, READY, 0},
            {-1, READY, 0}, {0, NONE, 0}}},
};
/* clang-format on */

/* Builds the record that the store has. */
static inline struct rules_record build_record(const struct subject *s)
{
    struct rules_record r = {.state = s->state,
                             .mode = s->mode,
                             .spent = s->spent,
                             .canceled = s->canceled && !s->has_refresh,
                             .takeovers = s->takeovers,
                             .epoch = EPOCH,
                             .first =
                                 s->takeovers > 0 || s->late ? FIRST : EPOCH,
                             .since_us = END_US - 5 * RULES_DAY_US,
                             .end_us = END_US,
                             .lease_us = LEASE_US};
    if (s->state != RULES_GAVE_UP)
        r.token = OWNER_TOKEN;
    if (s->state == RULES_RUNNING) {
        r.chunks = CHUNKS;
        r.chunk_bytes = CHUNK_BYTES;
    }
    if (s->has_refresh) {
        const uint64_t end = END_US + (uint64_t)s->refresh_end_us;
        r.refresh = (struct rules_refresh){.token = REFRESHER_TOKEN,
                                           .epoch = REFRESH_EPOCH,
                                           .since_us = end - REFRESH_LEASE_US,
                                           .end_us = end,
                                           .lease_us = REFRESH_LEASE_US,
                                           .failed = s->refresh_failed,
                                           .canceled = s->canceled};
    }
    return r;
}

/* Builds the record as each rule must take the record: a refresher beside an
 * expired result is the owner, and the first owner of a free name. */
static inline struct rules_record
promote_refresher(const struct rules_record *r)
{
    return (struct rules_record){.state = RULES_RUNNING,
                                 .mode = r->mode,
                                 .canceled = r->refresh.canceled,
                                 .token = r->refresh.token,
                                 .epoch = r->refresh.epoch,
                                 .first = r->refresh.epoch,
                                 .since_us = r->refresh.since_us,
                                 .end_us = r->refresh.end_us,
                                 .lease_us = r->refresh.lease_us};
}

/* ---- steps --------------------------------------------------------------- */

enum kind { CLAIM = 1, PULSE, COMMIT, PUT, RESOLVE, FORGET, CANCEL, CHUNK };

/* The caller of a step: token for a claim, token and epoch for other steps. */
enum {
    OWNER = 1, /* or the runner that settled */
    REFRESHER = 2,
    SKEWED = 4, /* the right token with another epoch */
    STRANGER = 8
};

/* Options of a step. */
enum {
    NOWAIT = 1 << 0,
    FORCE = 1 << 1,
    WITH_LEFT = 1 << 2,     /* a result is left for the caller */
    REFRESH = 1 << 3,       /* of the result that is there */
    REFRESH_OTHER = 1 << 4, /* of another result */
    OVER = 1 << 5,          /* no further takeover is allowed */
    STRICT = 1 << 6,
    FAILURE = 1 << 7,
    ABANDON = 1 << 8,
    TTL_0 = 1 << 9,
    EXACT = 1 << 10,
    HOLD_SHARED = 1 << 11, /* the mode of a pulse */
    WAS_CANCELED = 1 << 12,
    LOWER = 1 << 13, /* the epoch of the step, compared with the owner's */
    EQUAL = 1 << 14,
    HIGHER = 1 << 15,
    ANY_EPOCH = 1 << 16, /* forget(0) */
    BELOW = 1 << 17,     /* the number of the chunk */
    NEXT = 1 << 18,
    ABOVE = 1 << 19,
    LARGE = 1 << 20,
    FIRST_OWNER = 1 << 21, /* no owner was replaced since the name was free */
    EXPIRED = 1 << 22,     /* the store still has the record of a free name */
    ONCE = 1 << 23         /* the mode of a claim, or of the record */
};

struct step {
    enum kind kind;
    uint32_t options;
    vow_claim_request claim;
    vow_commit_request commit;
    vow_hold hold; /* of pulse and chunk */
    uint32_t mode; /* of pulse */
    uint64_t lease_ms;
    uint64_t epoch; /* of forget */
    uint32_t number;
    size_t most;
    struct rules_now now;
};

/* Calls the rule of a step. */
static inline struct decision run_step(const struct rules_record *r,
                                       const struct step *s)
{
    const bool left = (s->options & WITH_LEFT) != 0;
    switch (s->kind) {
    case CLAIM:
        return vow__rules_claim(r, left ? &LEFT_RESULT : NULL, &s->claim,
                                s->now);
    case PULSE:
        return vow__rules_pulse(r, &s->hold, s->mode, s->lease_ms, s->now);
    case COMMIT:
    case PUT:
    case RESOLVE:
        return vow__rules_commit(r, &s->commit, s->now);
    case FORGET:
        return vow__rules_forget(r, s->epoch, s->now);
    case CANCEL:
        return vow__rules_cancel(r, s->now);
    case CHUNK:
        return vow__rules_chunk(r, &s->hold, s->number, CHUNK_SIZE, s->most,
                                s->now);
    }
    FAIL("no such step");
}

/* ---- the table ----------------------------------------------------------- */

/* How the record has changed. */
enum after {
    KEPT = 0,
    FRESH,      /* the caller owns a free name */
    TAKEN,      /* the caller has replaced the owner */
    TAKEN_LATE, /* the same, and the owner does not count as lost */
    RENEWED,    /* the owner's lease is longer */
    REVIVED,    /* a vanished record is made again for the owner */
    STOPPED,    /* GAVE_UP */
    RESULT,     /* of the run that was found */
    NEW_RESULT, /* of a run without a record */
    GONE,
    SHOWN_LEFT,       /* the answer is the result left */
    REFRESHING,       /* the caller refreshes the result */
    REFRESH_RENEWED,  /* the refresher's lease is longer */
    REFRESH_FAILED,   /* the result stays */
    REFRESH_DROPPED,  /* the same, and the next refresh may begin at once */
    REFRESH_KEPT,     /* no field has changed: the refresh has ended before */
    PROMOTED,         /* the refresher is the owner, the result is gone */
    ASKED_TO_STOP,    /* the owner is canceled */
    STILL_CANCELED,   /* no field has changed */
    REFRESH_CANCELED, /* the refresher is canceled */
    APPENDED          /* a chunk */
};

struct row {
    enum kind kind;
    uint32_t columns; /* 0: all */
    uint32_t who;     /* 0: all */
    uint32_t with;    /* options that the step must have */
    uint32_t without; /* options that the step must not have */
    uint32_t status;
    uint32_t effects;
    uint32_t maybe; /* effects about which the contract says nothing */
    enum after after;
    int code;
    bool open;           /* the contract says nothing about the cell */
    bool gone_next_time; /* a repeated step finds no record: NONE */
    uint32_t apart;      /* the group whose test has the cell */
    uint32_t twice;      /* the group whose test repeats the step; 0: `apart` */
};

/* Groups of cells with a test of their own. */
enum { TOGETHER = 0, EXPIRED_EPOCH, STRICT_ABANDON, REFRESH_END, FORGET_LIVE };

#define S(name) .status = VOW_STATUS_##name
#define E(mask) .effects = (mask)
#define WRITE EFFECT_WRITE
#define UNWAIT EFFECT_UNWAIT
#define SHOW EFFECT_SHOW
#define WAIT EFFECT_WAIT
#define E_GRANT (WRITE | EFFECT_TEXTS | EFFECT_CLEAR | UNWAIT)
#define E_DELETE (WRITE | EFFECT_CLEAR | EFFECT_WAKE)
#define E_SETTLE (E_DELETE | EFFECT_TEXTS | EFFECT_VALUE)

static const struct row TABLE[] = {
    /* clang-format off */
    /* The token that owns or has settled; then a result left; then refresh. */
    {CLAIM, HELD, OWNER, S(OWNED), E(WRITE | UNWAIT), .after = RENEWED},
    {CLAIM, SETTLED, OWNER, S(SETTLED), E(SHOW | UNWAIT)},
    {CLAIM, SPENT, OWNER, S(SETTLED), E(UNWAIT)},
    {CLAIM, SETTLED, .with = REFRESH | ONCE, .without = WITH_LEFT, S(SETTLED),
     E(UNWAIT), .maybe = SHOW},
    {CLAIM, REFRESHED, REFRESHER, REFRESH, WITH_LEFT, S(OWNED), E(WRITE),
     .maybe = UNWAIT | EFFECT_TEXTS, .after = REFRESH_RENEWED},
    {CLAIM, REFRESHED | READY, REFRESHER, .open = true},
    {CLAIM, .with = WITH_LEFT, .without = FORCE, S(SETTLED), E(SHOW),
     .maybe = UNWAIT, .after = SHOWN_LEFT},
    {CLAIM, DONE | SILENT | READY, .with = REFRESH, S(OWNED), E(WRITE),
     .maybe = UNWAIT | EFFECT_TEXTS, .after = REFRESHING},
    {CLAIM, SETTLED, .with = REFRESH, S(SETTLED), E(UNWAIT), .maybe = SHOW},
    {CLAIM, SETTLED, .with = REFRESH_OTHER, S(SETTLED), E(UNWAIT),
     .maybe = SHOW},
    /* Any other claim. */
    {CLAIM, NONE, .with = EXPIRED, S(OWNED), E(E_GRANT), .after = FRESH,
     .apart = EXPIRED_EPOCH},
    {CLAIM, NONE | SPENT, S(OWNED), E(E_GRANT), .after = FRESH},
    {CLAIM, OLD, S(OWNED), E(E_GRANT), .after = TAKEN_LATE},
    {CLAIM, RUNNING, .with = NOWAIT, S(WAITING)},
    {CLAIM, RUNNING, S(WAITING), E(WAIT)},
    {CLAIM, LAPSED, .with = OVER, .without = FORCE, S(SETTLED),
     E(E_DELETE | UNWAIT | SHOW), .after = STOPPED},
    {CLAIM, LAPSED, S(OWNED), E(E_GRANT), .after = TAKEN},
    {CLAIM, DOUBT, S(DOUBT), E(UNWAIT)},
    {CLAIM, LIVE, .with = FORCE | NOWAIT, S(WAITING)},
    {CLAIM, LIVE, .with = FORCE, S(WAITING), E(WAIT)},
    {CLAIM, SETTLED, .with = FORCE, S(OWNED), E(E_GRANT), .after = FRESH},
    {CLAIM, SETTLED, S(SETTLED), E(SHOW | UNWAIT)},

    {PULSE, NONE, .with = HOLD_SHARED, S(OWNED), E(WRITE), .after = REVIVED},
    {PULSE, NONE, S(LOST)},
    {PULSE, HELD, OWNER | SKEWED, WAS_CANCELED, S(CANCELED), E(WRITE),
     .after = RENEWED},
    {PULSE, HELD, OWNER | SKEWED, S(OWNED), E(WRITE), .after = RENEWED},
    {PULSE, HELD, S(LOST)},
    {PULSE, REFRESHED, SKEWED, .open = true}, /* of owner or refresher */
    {PULSE, REFRESHED, REFRESHER, WAS_CANCELED, S(CANCELED), E(WRITE),
     .after = REFRESH_RENEWED},
    {PULSE, REFRESHED, REFRESHER, S(OWNED), E(WRITE),
     .after = REFRESH_RENEWED},
    {PULSE, SETTLED | SPENT, S(SETTLED)},

    {COMMIT, NONE, .with = STRICT | ABANDON, S(OWNED),
     .apart = STRICT_ABANDON},
    {COMMIT, NONE, .with = ABANDON, S(OWNED)},
    {COMMIT, NONE, .with = STRICT, S(NONE)},
    {COMMIT, NONE, S(OWNED), E(E_SETTLE), .after = NEW_RESULT},
    {COMMIT, HELD, OWNER, STRICT | ABANDON, S(OWNED), E(E_DELETE),
     .after = GONE, .twice = STRICT_ABANDON},
    {COMMIT, HELD, OWNER, ABANDON, S(OWNED), E(E_DELETE), .after = GONE},
    {COMMIT, HELD, OWNER, S(OWNED), E(E_SETTLE), .after = RESULT},
    {COMMIT, HELD, S(LOST)},
    {COMMIT, SETTLED | SPENT, OWNER, S(OWNED)},
    {COMMIT, REFRESHED, REFRESHER, ABANDON, S(OWNED), E(WRITE),
     .maybe = EFFECT_WAKE, .after = REFRESH_DROPPED, .twice = REFRESH_END},
    {COMMIT, REFRESHED, REFRESHER, FAILURE, S(OWNED), E(WRITE),
     .maybe = EFFECT_WAKE, .after = REFRESH_FAILED, .twice = REFRESH_END},
    {COMMIT, REFRESHED, REFRESHER, S(OWNED), E(E_SETTLE), .after = RESULT},
    {COMMIT, PAUSED | READY, REFRESHER, FAILURE, S(OWNED),
     .after = REFRESH_KEPT, .apart = REFRESH_END},
    {COMMIT, PAUSED | READY, REFRESHER, ABANDON, S(OWNED),
     .after = REFRESH_KEPT, .apart = REFRESH_END},
    {COMMIT, SETTLED, .with = ABANDON | HIGHER, .open = true},
    {COMMIT, SETTLED, S(SETTLED), E(SHOW)},
    {COMMIT, SPENT, .with = HIGHER | STRICT | ABANDON, S(OWNED),
     .apart = STRICT_ABANDON},
    {COMMIT, SPENT, .with = HIGHER | ABANDON, S(OWNED)},
    {COMMIT, SPENT, .with = HIGHER | STRICT, S(NONE)},
    {COMMIT, SPENT, .with = HIGHER, S(OWNED), E(E_SETTLE),
     .after = NEW_RESULT},
    {COMMIT, SPENT, S(LOST)},

    {PUT, NONE, S(OWNED), E(E_SETTLE), .after = NEW_RESULT},
    {PUT, HELD, OWNER, .open = true},
    {PUT, HELD, S(LOST)},
    {PUT, REFRESHED | PAUSED | READY, .open = true},
    {PUT, SETTLED | SPENT, OWNER, S(OWNED)},
    {PUT, SPENT, S(OWNED), E(E_SETTLE), .after = NEW_RESULT},
    {PUT, SETTLED, .with = HIGHER, S(OWNED), E(E_SETTLE), .after = NEW_RESULT},
    {PUT, SETTLED, S(SETTLED), E(SHOW)},

    {RESOLVE, NONE, S(NONE)},
    {RESOLVE, RUNNING | LAPSED | OLD, S(LOST)},
    {RESOLVE, DOUBT, .with = EQUAL | ABANDON, S(OWNED), E(E_DELETE),
     .after = GONE, .gone_next_time = true},
    {RESOLVE, DOUBT, .with = EQUAL, S(OWNED), E(E_SETTLE), .after = RESULT},
    {RESOLVE, DOUBT, S(LOST)},
    {RESOLVE, SETTLED | SPENT, OWNER, S(OWNED)},
    {RESOLVE, SETTLED | SPENT, .with = EQUAL, .open = true},
    {RESOLVE, SETTLED, S(SETTLED), .maybe = SHOW},
    {RESOLVE, SPENT, S(LOST)},

    {FORGET, NONE | LAPSED | OLD | SPENT, S(NONE)},
    {FORGET, RUNNING, .with = LOWER, S(NONE)},
    {FORGET, RUNNING, S(WAITING)},
    {FORGET, DOUBT, .with = ANY_EPOCH, S(NONE), E(E_DELETE), .after = GONE},
    {FORGET, DOUBT, .with = EQUAL, S(NONE), E(E_DELETE), .after = GONE},
    {FORGET, DOUBT, S(DOUBT)},
    {FORGET, LIVE, .with = ANY_EPOCH, S(WAITING)},
    {FORGET, LIVE, .with = EQUAL, S(NONE), E(WRITE | EFFECT_CLEAR),
     .maybe = EFFECT_WAKE, .after = PROMOTED, .twice = FORGET_LIVE},
    {FORGET, SETTLED, .with = ANY_EPOCH, S(NONE), E(E_DELETE), .after = GONE},
    {FORGET, SETTLED, .with = EQUAL, S(NONE), E(E_DELETE), .after = GONE},
    {FORGET, SETTLED, S(SETTLED), .maybe = SHOW},

    {CANCEL, NONE | LAPSED | OLD | SPENT, S(NONE)},
    {CANCEL, RUNNING | LIVE, .with = WAS_CANCELED, S(WAITING),
     .maybe = WRITE | EFFECT_TELL_OWNER, .after = STILL_CANCELED},
    {CANCEL, RUNNING, S(WAITING), E(WRITE | EFFECT_TELL_OWNER),
     .after = ASKED_TO_STOP},
    {CANCEL, LIVE, S(WAITING), E(WRITE | EFFECT_TELL_OWNER),
     .after = REFRESH_CANCELED},
    {CANCEL, DOUBT, S(DOUBT)},
    {CANCEL, SETTLED, S(SETTLED), .maybe = SHOW},

    {CHUNK, NONE, S(LOST)},
    {CHUNK, HELD, OWNER, BELOW, S(OWNED)},
    {CHUNK, HELD, OWNER, ABOVE | LARGE, .open = true},
    {CHUNK, HELD, OWNER, ABOVE, S(OWNED)},
    {CHUNK, HELD, OWNER, NEXT | LARGE, .code = VOW_E2BIG},
    {CHUNK, HELD, OWNER, NEXT, S(OWNED), E(WRITE | EFFECT_CHUNK),
     .after = APPENDED},
    {CHUNK, REFRESHED, REFRESHER, .open = true},
    {CHUNK, .status = VOW_STATUS_LOST},
    /* clang-format on */
};

/* Returns the first row that fits. */
static inline const struct row *find_row(enum kind kind, uint32_t column,
                                         uint32_t who, uint32_t options)
{
    for (size_t i = 0; i < COUNT(TABLE); i++) {
        const struct row *row = &TABLE[i];
        if (row->kind == kind &&
            (row->columns == 0 || (row->columns & column) != 0) &&
            (row->who == 0 || (row->who & who) != 0) &&
            (row->with & ~options) == 0 && (row->without & options) == 0)
            return row;
    }
    FAIL("the table has no row: step %d, column %u", kind, column);
}

#endif
