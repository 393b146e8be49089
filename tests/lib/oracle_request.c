/* SPDX-License-Identifier: MIT */
/* oracle_request.c - requests relative to the record of a name; see oracle.h.
 *
 * Each line of CHOICES is a step of one of three instances, each with a token
 * of its own, at once or at a boundary of time.
 */
#include "harness.h"
#include "oracle.h"

#include <inttypes.h>
#include <string.h>

#define LEASE_MS UINT64_C(3600000)
#define TTL_MS UINT64_C(7200000)
#define LONG_MS UINT64_C(10800000) /* longer than a result */
#define SECOND_US UINT64_C(1000000)

/* Whose token, and which epoch. */
enum subject {
    RUN,     /* token and epoch of the last run */
    EARLIER, /* of the run before; without, epoch 1 and token 1 */
    NEWER,   /* token 2, and an epoch above all */
    FRESHER, /* of the last refresher */
    OTHER    /* token 2, and the epoch of the last run */
};

/* When: relative to the end of the record's lease or result. */
enum moment { NOW, BEFORE_END, AT_END, MINUTE_AFTER, DAY_AFTER, SOON, BACK };

struct choice {
    enum oracle_kind kind;
    enum subject subject; /* a claim: RUN is the token of the last run */
    uint64_t ms;          /* lease of a claim or pulse, ttl of a commit */
    uint32_t flags;
    uint32_t mode; /* or outcome of a commit */
    uint32_t more; /* takeovers; chunks beyond the next */
    enum moment when;
    bool refresh; /* the claim refreshes the result */
    bool waited;  /* the claim names the last run; EARLIER: the run before */
};

static const struct choice CHOICES[] = {
    {ORACLE_CLAIM, RUN, LEASE_MS, .when = NOW},
    {ORACLE_CLAIM, RUN, 0, .when = NOW},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .more = 3},
    {ORACLE_CLAIM, OTHER, LEASE_MS, VOW_CLAIM_NOWAIT, .more = 3},
    {ORACLE_CLAIM, OTHER, LEASE_MS, VOW_CLAIM_FORCE, .more = 1},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .waited = true, .more = 1},
    {ORACLE_CLAIM, NEWER, LEASE_MS, .mode = VOW_FENCED},
    {ORACLE_CLAIM, NEWER, LEASE_MS, .mode = VOW_ONCE, .more = 1},
    {ORACLE_CLAIM, NEWER, LEASE_MS, VOW_CLAIM_FORCE, VOW_ONCE, .waited = true},
    {ORACLE_CLAIM, EARLIER, LEASE_MS, .waited = true},
    {ORACLE_CLAIM, EARLIER, LEASE_MS, .when = AT_END, .waited = true},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .mode = VOW_ONCE},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .when = BEFORE_END},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .when = AT_END, .more = 1},
    {ORACLE_CLAIM, NEWER, LEASE_MS, .when = AT_END},
    {ORACLE_CLAIM, NEWER, LEASE_MS, .when = AT_END, .waited = true},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .when = MINUTE_AFTER},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .when = DAY_AFTER},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .when = BACK},
    {ORACLE_PULSE, RUN, LEASE_MS, .when = NOW},
    {ORACLE_PULSE, RUN, 0, .mode = VOW_ONCE},
    {ORACLE_PULSE, RUN, LEASE_MS, .when = AT_END},
    {ORACLE_PULSE, EARLIER, LEASE_MS, .when = NOW},
    {ORACLE_PULSE, EARLIER, LEASE_MS, .mode = VOW_FENCED},
    {ORACLE_PULSE, RUN, LEASE_MS, .when = DAY_AFTER},
    {ORACLE_COMMIT, RUN, TTL_MS, .mode = VOW_OUTCOME_DONE},
    {ORACLE_COMMIT, RUN, 0, .mode = VOW_OUTCOME_DONE},
    {ORACLE_COMMIT, RUN, UINT64_MAX, VOW_COMMIT_STRICT, VOW_OUTCOME_FAILED,
     .when = NOW},
    {ORACLE_COMMIT, RUN, 0, .mode = VOW_OUTCOME_FAILED},
    {ORACLE_COMMIT, RUN, 0, .mode = VOW_OUTCOME_ABANDONED},
    {ORACLE_COMMIT, EARLIER, 0, .mode = VOW_OUTCOME_ABANDONED},
    {ORACLE_COMMIT, EARLIER, TTL_MS, .mode = VOW_OUTCOME_DONE},
    {ORACLE_COMMIT, NEWER, TTL_MS, .mode = VOW_OUTCOME_DONE},
    {ORACLE_COMMIT, NEWER, 0, .mode = VOW_OUTCOME_FAILED},
    {ORACLE_COMMIT, OTHER, TTL_MS, VOW_COMMIT_STRICT, VOW_OUTCOME_DONE,
     .when = NOW},
    {ORACLE_COMMIT, NEWER, TTL_MS, VOW_COMMIT_PUT, VOW_OUTCOME_DONE,
     .when = NOW},
    {ORACLE_COMMIT, EARLIER, TTL_MS, VOW_COMMIT_PUT, VOW_OUTCOME_DONE,
     .when = NOW},
    {ORACLE_COMMIT, OTHER, TTL_MS, VOW_COMMIT_RESOLVE, VOW_OUTCOME_DONE,
     .when = NOW},
    {ORACLE_COMMIT, OTHER, 0, VOW_COMMIT_RESOLVE, VOW_OUTCOME_FAILED,
     .when = AT_END},
    {ORACLE_COMMIT, OTHER, 0, VOW_COMMIT_RESOLVE, VOW_OUTCOME_ABANDONED,
     .when = AT_END},
    {ORACLE_COMMIT, EARLIER, TTL_MS, VOW_COMMIT_RESOLVE, VOW_OUTCOME_DONE,
     .when = NOW},
    {ORACLE_FORGET, .ms = 0},
    {ORACLE_FORGET, RUN, 1, .when = NOW},
    {ORACLE_FORGET, EARLIER, 1, .when = NOW},
    {ORACLE_FORGET, EARLIER, 1, .when = AT_END},
    {ORACLE_CANCEL_STEP, .when = NOW},
    {ORACLE_WRITE, RUN, .when = NOW},
    {ORACLE_WRITE, RUN, .more = 1},
    {ORACLE_WRITE, RUN, .flags = 1}, /* the first again */
    {ORACLE_WRITE, OTHER, .when = NOW},
    {ORACLE_PEEK, .when = BEFORE_END},
    {ORACLE_PEEK, .when = AT_END},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .more = 3}, /* N_PLAIN: of refreshes */
    {ORACLE_COMMIT, RUN, TTL_MS, .mode = VOW_OUTCOME_DONE},
    {ORACLE_CLAIM, OTHER, LONG_MS, .refresh = true},
    {ORACLE_CLAIM, OTHER, 0, .when = SOON, .refresh = true},
    {ORACLE_CLAIM, FRESHER, LONG_MS, .refresh = true},
    {ORACLE_CLAIM, NEWER, LEASE_MS, .mode = VOW_ONCE, .refresh = true},
    {ORACLE_CLAIM, NEWER, LEASE_MS, VOW_CLAIM_FORCE, .when = AT_END},
    {ORACLE_CLAIM, OTHER, LEASE_MS, VOW_CLAIM_FORCE, .more = 1},
    {ORACLE_PULSE, FRESHER, LONG_MS, .when = NOW},
    {ORACLE_PULSE, FRESHER, 0, .when = NOW},
    {ORACLE_PULSE, FRESHER, LEASE_MS, .when = AT_END},
    {ORACLE_COMMIT, FRESHER, TTL_MS, .mode = VOW_OUTCOME_DONE},
    {ORACLE_COMMIT, FRESHER, 0, .mode = VOW_OUTCOME_DONE},
    {ORACLE_COMMIT, FRESHER, 0, .mode = VOW_OUTCOME_DONE, .when = AT_END},
    {ORACLE_COMMIT, FRESHER, TTL_MS, VOW_COMMIT_STRICT, VOW_OUTCOME_FAILED,
     .when = NOW},
    {ORACLE_COMMIT, FRESHER, 0, .mode = VOW_OUTCOME_ABANDONED},
    {ORACLE_WRITE, FRESHER, .when = NOW},
    {ORACLE_CANCEL_STEP, .when = NOW},
    {ORACLE_FORGET, .ms = 0},
    {ORACLE_FORGET, RUN, 1, .when = NOW},
};

/* Steps that lead to rare cells, drawn more often. */
static const struct choice OFTEN[] = {
    {ORACLE_CLAIM, OTHER, LEASE_MS, .mode = VOW_ONCE, .waited = false},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .mode = VOW_ONCE, .waited = false},
    {ORACLE_CLAIM, EARLIER, LEASE_MS, .when = AT_END, .waited = true},
    {ORACLE_CLAIM, EARLIER, LEASE_MS, .when = AT_END, .waited = true},
    {ORACLE_CLAIM, EARLIER, LEASE_MS, .when = AT_END, .waited = true},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .mode = VOW_ONCE, .waited = false},
    {ORACLE_CLAIM, RUN, LEASE_MS, .when = AT_END},
    {ORACLE_CLAIM, RUN, LEASE_MS, .when = AT_END},
    {ORACLE_CLAIM, EARLIER, LEASE_MS, .when = AT_END, .waited = true},
    {ORACLE_CLAIM, EARLIER, LEASE_MS, .waited = true},
    {ORACLE_CLAIM, EARLIER, LEASE_MS, .waited = true},
    {ORACLE_CLAIM, EARLIER, LEASE_MS, .waited = true},
    {ORACLE_CLAIM, OTHER, LEASE_MS, .more = 3},
    {ORACLE_COMMIT, RUN, 0, .mode = VOW_OUTCOME_DONE},
    {ORACLE_COMMIT, RUN, 0, .mode = VOW_OUTCOME_DONE},
    {ORACLE_COMMIT, RUN, 0, .mode = VOW_OUTCOME_ABANDONED, .when = AT_END},
    {ORACLE_COMMIT, RUN, 0, .mode = VOW_OUTCOME_ABANDONED, .when = AT_END},
    {ORACLE_CLAIM, NEWER, LEASE_MS, .mode = VOW_ONCE, .more = 1},
    {ORACLE_CLAIM, OTHER, LEASE_MS, VOW_CLAIM_NOWAIT, .when = AT_END},
    {ORACLE_WRITE, RUN, .flags = 0},
    {ORACLE_WRITE, RUN, .flags = 1, .when = AT_END},
    {ORACLE_WRITE, RUN, .flags = 1, .when = AT_END},
    {ORACLE_WRITE, RUN, .flags = 1, .when = AT_END},
};

enum {
    N_CHOICES = sizeof(CHOICES) / sizeof(CHOICES[0]),
    N_PLAIN = N_CHOICES - 20,
    N_OFTEN = sizeof(OFTEN) / sizeof(OFTEN[0]),
    REFRESH_EVERY = 40 /* steps */
};

size_t oracle_choices(void)
{
    return N_CHOICES;
}

size_t oracle_plain_choices(void)
{
    return N_PLAIN;
}

size_t oracle_draw(uint64_t *seed, size_t step)
{
    if (step % REFRESH_EVERY < 3)
        return N_PLAIN + step % REFRESH_EVERY;
    if (step % REFRESH_EVERY < 8)
        return N_PLAIN + test_random(seed) % (N_CHOICES - N_PLAIN);
    return test_random(seed) % (N_CHOICES + N_OFTEN);
}

static vow_token token_of(unsigned number)
{
    vow_token token;
    memset(token.bytes, (int)number, sizeof(token.bytes));
    return token;
}

/* A new token for a new run: not the token of a run that is known. */
static vow_token fresh_token(const struct oracle_slot *slot, unsigned from)
{
    vow_token token = token_of(from);
    while (memcmp(&token, &slot->run.token, sizeof(token)) == 0 ||
           memcmp(&token, &slot->earlier.token, sizeof(token)) == 0 ||
           memcmp(&token, &slot->refresher.token, sizeof(token)) == 0)
        token = token_of(from += 3);
    return token;
}

static struct oracle_run choose_run(const struct oracle *o,
                                    const struct oracle_slot *slot,
                                    enum subject subject)
{
    struct oracle_run run = slot->run;
    if (run.epoch == 0)
        run = (struct oracle_run){token_of(1), 2, 2};
    if (subject == EARLIER)
        return slot->earlier.epoch != 0
                   ? slot->earlier
                   : (struct oracle_run){token_of(1), 1, 1};
    if (subject == FRESHER && slot->refresher.epoch != 0)
        return slot->refresher;
    if (subject == RUN || subject == FRESHER)
        return run;
    run.token = fresh_token(slot, subject == NEWER ? 'C' : 'B');
    if (subject == NEWER)
        run.epoch = o->number + SECOND_US;
    return run;
}

static uint64_t choose_time(const struct oracle *o,
                            const struct oracle_slot *slot, enum moment when)
{
    uint64_t end_us = slot->there ? slot->record.r.end_us : o->now_us;
    if (end_us == RULES_NEVER)
        end_us = o->now_us;
    uint64_t at_us = when == BEFORE_END     ? end_us - 1
                     : when == AT_END       ? end_us
                     : when == MINUTE_AFTER ? end_us + RULES_MINUTE_US
                     : when == DAY_AFTER    ? end_us + RULES_DAY_US
                                            : 0;
    if (when == SOON)
        return o->now_us + RULES_REFRESH_PAUSE_US;
    if (when == BACK)
        return o->now_us - 10 * SECOND_US;
    return at_us > o->now_us ? at_us : o->now_us;
}

static void choose_claim(const struct oracle *o, const struct oracle_slot *slot,
                         const struct choice *c, struct oracle_request *ret)
{
    const struct oracle_run run = choose_run(o, slot, c->subject);
    static const char *const runners[] = {"host:1", "host:2", "x:3"};
    ret->claim = (vow_claim_request){
        .name = slot->name,
        .token = run.token,
        .mode = c->mode,
        .flags = c->flags,
        .lease_ms = c->ms,
        .takeovers = c->more,
        .floor = c->subject == NEWER && c->waited ? o->number + 5 : 0,
        .waited = !c->waited              ? 0
                  : c->subject == EARLIER ? slot->earlier.first
                                          : slot->run.first,
        .refresh = !c->refresh   ? 0
                   : slot->there ? slot->record.r.epoch
                                 : 1,
        .label = c->mode == VOW_ONCE ? "a label" : NULL,
        .runner = runners[ret->instance]};
}

void oracle_choose(struct oracle *o, const vow_name *name, size_t choice,
                   struct oracle_request *ret)
{
    const struct oracle_slot *slot = oracle_slot(o, name);
    const struct choice *c =
        choice < N_CHOICES ? &CHOICES[choice] : &OFTEN[choice - N_CHOICES];
    const struct oracle_run run = choose_run(o, slot, c->subject);
    *ret = (struct oracle_request){.kind = c->kind,
                                   .instance = c->subject == NEWER
                                                   ? 2
                                                   : c->subject == OTHER ||
                                                         c->subject == FRESHER,
                                   .now_us = choose_time(o, slot, c->when),
                                   .name = *name};
    ret->hold = (vow_hold){*name, run.token, run.epoch, c->mode};
    snprintf(ret->bytes, sizeof(ret->bytes), "bytes %zu of choice %zu",
             o->n_lines, choice);
    if (c->kind == ORACLE_CLAIM)
        choose_claim(o, slot, c, ret);
    ret->lease_ms = c->ms;
    ret->epoch = c->ms == 0 ? 0 : run.epoch;
    ret->number = c->flags != 0 ? 0 : slot->record.r.chunks + c->more;
    ret->commit =
        (vow_commit_request){.hold = ret->hold,
                             .outcome = c->mode,
                             .flags = c->flags,
                             .ttl_ms = c->ms,
                             .cost_ms = choice,
                             .label = c->subject == NEWER ? "new" : NULL};
    ret->commit.hold.mode = VOW_SHARED;
}

void oracle_do(struct oracle *o, const struct oracle_request *request,
               vow_bytes *value, struct oracle_answer *ret)
{
    vow_commit_request commit = request->commit;
    commit.value = value;
    o->now_us = request->now_us;
    o->number =
        !o->opts.rises || o->now_us > o->highest ? o->now_us : o->highest + 1;
    switch (request->kind) {
    case ORACLE_CLAIM:
        oracle_claim(o, request->instance, &request->claim, ret);
        break;
    case ORACLE_PULSE:
        oracle_pulse(o, request->instance, &request->hold, request->lease_ms,
                     ret);
        break;
    case ORACLE_COMMIT:
        oracle_commit(o, request->instance, &commit, ret);
        break;
    case ORACLE_FORGET:
        oracle_forget(o, &request->name, request->epoch, ret);
        break;
    case ORACLE_CANCEL_STEP:
        oracle_cancel(o, &request->name, ret);
        break;
    case ORACLE_WRITE:
        oracle_write(o, &request->hold, request->number, value, ret);
        break;
    case ORACLE_PEEK:
        oracle_peek(o, &request->name, ret);
        break;
    }
}
