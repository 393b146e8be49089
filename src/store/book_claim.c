/* SPDX-License-Identifier: MIT */
/* book_claim.c - who does the work: claim, pulse, commit.
 *
 * HOW   Whoever finds no record, or one whose lease has lapsed, owns it from
 *       that step on, with a larger epoch. Who finds it taken is registered in
 *       the same step, so that no wake-up is lost in between. A commit is
 *       judged by the token and the epoch of the owner and not by the time: a
 *       late one that nobody replaced counts, one that was replaced does not.
 *       Every step can be repeated with the same token.
 * INVARIANTS  B1 to B4 in book_internal.h; an error has changed nothing.
 */
#include "base/failure.h"
#include "store/book_internal.h"

/* What becomes of a commit. */
struct verdict {
    uint32_t status;
    bool effect; /* it takes effect now */
};

static bool gift_for(const struct vow__wait *w, const vow_claim_request *ask);
static bool counts(const struct vow__book *b, const struct vow__rec *r,
                   const vow_claim_request *ask);
static int decide(const struct vow__step *s, const vow_claim_request *ask,
                  struct vow__rec **rec, uint32_t *ret_says);
static int take_over(const struct vow__step *s, const vow_claim_request *ask,
                     struct vow__rec *r, uint32_t *ret_says);
static int give_up(struct vow__book *b, struct vow__rec *r);
static int own_new(const struct vow__step *s, const vow_claim_request *ask,
                   struct vow__rec **rec);
static int own(const struct vow__step *s, const vow_claim_request *ask,
               struct vow__rec *r);
static uint64_t next_epoch(struct vow__book *b, uint64_t above);
static int put_into_table(struct vow__book *b, struct vow__rec *r,
                          struct vow__rec *instead_of);
static int pulse_one(const struct vow__step *s, const vow_hold *hold,
                     uint64_t lease_ms, vow_record *out);
static int revive(const struct vow__step *s, const vow_hold *hold,
                  struct vow__rec **rec);
static struct vow__text *runner_of(const struct vow__inst *inst);
static bool holds(const struct vow__rec *r, const vow_hold *hold);
static struct verdict judge(const struct vow__book *b, const struct vow__rec *r,
                            const vow_commit_request *ask);
static struct verdict judge_running(const struct vow__book *b,
                                    const struct vow__rec *r,
                                    const vow_commit_request *ask);
static struct verdict judge_settled(const struct vow__rec *r,
                                    const vow_commit_request *ask);
static int take_effect(const struct vow__step *s, const vow_commit_request *ask,
                       struct vow__rec *r);
static int settle_new(const struct vow__step *s, const vow_commit_request *ask,
                      struct vow__rec **rec);

/* ---- claim -------------------------------------------------------------- */

int vow__book_claim(const struct vow__step *s, const vow_claim_request *ask,
                    struct vow__answer *out)
{
    struct vow__book *b = s->book;
    uint32_t status;
    if (ask->floor > VOW__EPOCH_MAX || ask->mode > VOW_ONCE)
        return VOW_EINVAL;
    vow__book_begin(b, s->now_us);
    struct vow__wait *w = vow__wait_find(b, s->inst, &ask->name);
    if (w != NULL && gift_for(w, ask)) {
        w->read = true;
        w->token = ask->token; /* which may be repeated */
        vow__answer_fill(b, w->rec, VOW_STATUS_SETTLED, &ask->name, out);
        return 0;
    }
    struct vow__rec *r = vow__rec_find(b, &ask->name);
    int rc = decide(s, ask, &r, &status);
    if (rc < 0)
        return rc;
    if (status != VOW_STATUS_WAITING && w != NULL)
        vow__wait_free(b, w);
    else if (w != NULL && (ask->flags & VOW_CLAIM_NOWAIT) == 0)
        vow__wait_again(b, w, r, &ask->token);
    else if (status == VOW_STATUS_WAITING &&
             (ask->flags & VOW_CLAIM_NOWAIT) == 0)
        rc = vow__wait_add(b, s->inst, r, &ask->token);
    if (rc < 0)
        return rc;
    vow__answer_fill(b, r, status, &ask->name, out);
    return 0;
}

/* Is there a hidden result that this one waited for? */
static bool gift_for(const struct vow__wait *w, const vow_claim_request *ask)
{
    return w->rec != NULL && w->rec->hidden &&
           (ask->flags & VOW_CLAIM_FORCE) == 0 &&
           (!w->read || vow__token_same(&w->token, &ask->token));
}

static int decide(const struct vow__step *s, const vow_claim_request *ask,
                  struct vow__rec **rec, uint32_t *ret_says)
{
    struct vow__rec *r = *rec;
    *ret_says = VOW_STATUS_OWNED;
    if (r == NULL || !counts(s->book, r, ask))
        return own_new(s, ask, rec);
    if (r->state == VOW__REC_RUNNING &&
        vow__token_same(&r->token, &ask->token)) {
        vow__rec_renew(s->book, r, s->inst, ask->lease_ms);
        return 0;
    }
    *ret_says = r->hidden ? VOW_STATUS_SETTLED : vow__rec_says(s->book, r);
    return *ret_says == VOW_STATUS_NONE ? take_over(s, ask, r, ret_says) : 0;
}

/* Is the record there, for this claim? A result that its own token has settled
 * always is: the claim came twice. */
static bool counts(const struct vow__book *b, const struct vow__rec *r,
                   const vow_claim_request *ask)
{
    if (r->state == VOW__REC_RUNNING)
        return true;
    if (vow__token_same(&r->token, &ask->token))
        return r->end_us > b->now_us;
    return (ask->flags & VOW_CLAIM_FORCE) == 0 &&
           vow__rec_says(b, r) == VOW_STATUS_SETTLED;
}

/* Its lease has lapsed. When that is long ago, it is a new beginning. */
static int take_over(const struct vow__step *s, const vow_claim_request *ask,
                     struct vow__rec *r, uint32_t *ret_says)
{
    bool anew = s->book->now_us >= r->end_us &&
                s->book->now_us - r->end_us >= VOW__GAVE_UP_US;
    *ret_says = VOW_STATUS_SETTLED;
    bool force = (ask->flags & VOW_CLAIM_FORCE) != 0;
    if (!anew && !force && r->takeovers >= ask->takeovers)
        return give_up(s->book, r);
    *ret_says = VOW_STATUS_OWNED;
    int rc = own(s, ask, r);
    if (rc < 0)
        return rc;
    r->takeovers = anew ? 0 : r->takeovers + 1;
    r->late = true;
    return 0;
}

static int give_up(struct vow__book *b, struct vow__rec *r)
{
    vow_bytes *value;
    int rc = vow__failure_make(&b->alloc, VOW_EGAVEUP, NULL, &value);
    if (rc < 0)
        return rc;
    r->token = (vow_token){.bytes = {0}}; /* nobody's: all of them were lost */
    vow__rec_settle(b, r, value, true, VOW__GAVE_UP_US);
    vow_bytes_unref(value);
    return 0;
}

static int own_new(const struct vow__step *s, const vow_claim_request *ask,
                   struct vow__rec **rec)
{
    struct vow__book *b = s->book;
    struct vow__rec *r = vow__rec_new(b, &ask->name);
    if (r == NULL)
        return VOW_ENOMEM;
    int rc = own(s, ask, r);
    if (rc < 0)
        vow__rec_free(b, r);
    else
        rc = put_into_table(b, r, *rec);
    *rec = r;
    return rc;
}

static int own(const struct vow__step *s, const vow_claim_request *ask,
               struct vow__rec *r)
{
    struct vow__book *b = s->book;
    struct vow__text *label;
    struct vow__text *runner;
    int rc = vow__text_make(b, ask->label, NULL, &label);
    if (rc < 0)
        return rc;
    rc = vow__text_make(b, ask->runner, &s->inst->runner, &runner);
    if (rc < 0) {
        vow__text_drop(b, label);
        return rc;
    }
    vow__rec_disown(b, r);
    vow__text_drop(b, r->label);
    vow__text_drop(b, r->runner);
    r->label = label;
    r->runner = runner;
    r->token = ask->token;
    r->mode = (uint8_t)ask->mode;
    r->epoch = next_epoch(b, ask->floor);
    r->since_us = b->now_us;
    vow__rec_renew(b, r, s->inst, ask->lease_ms);
    return 0;
}

static uint64_t next_epoch(struct vow__book *b, uint64_t above)
{
    b->counter = (above > b->counter ? above : b->counter) + 1; /* keeps B4 */
    return b->counter;
}

/* The other goes out of sight; a hidden one stays with those who may read it.
 * On failure the new one is freed, and there was no other. */
static int put_into_table(struct vow__book *b, struct vow__rec *r,
                          struct vow__rec *instead_of)
{
    if (instead_of != NULL)
        r->late = instead_of->late;
    if (instead_of != NULL && instead_of->waits != NULL)
        vow__rec_lose(b, instead_of);
    else if (instead_of != NULL)
        vow__rec_free(b, instead_of);
    return vow__rec_add(b, r);
}

/* ---- pulse -------------------------------------------------------------- */

int vow__book_pulse(const struct vow__step *s, const vow_hold *hold, size_t n,
                    uint64_t lease_ms, vow_record *out)
{
    vow__book_begin(s->book, s->now_us);
    for (size_t i = 0; i < n; i++) {
        int rc = pulse_one(s, &hold[i], lease_ms, &out[i]);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int pulse_one(const struct vow__step *s, const vow_hold *hold,
                     uint64_t lease_ms, vow_record *out)
{
    struct vow__book *b = s->book;
    struct vow__rec *r = vow__rec_find(b, &hold->name);
    uint32_t status = VOW_STATUS_SETTLED;
    if (r == NULL || (r->state == VOW__REC_SETTLED && r->end_us <= b->now_us)) {
        int rc = revive(s, hold, &r);
        if (rc < 0)
            return rc;
    }
    if (r->state == VOW__REC_RUNNING) {
        status = VOW_STATUS_LOST;
        if (vow__token_same(&r->token, &hold->token)) {
            vow__rec_renew(b, r, s->inst, lease_ms);
            status = r->canceled ? VOW_STATUS_CANCELED : VOW_STATUS_OWNED;
        }
    }
    vow__record_fill(b, r, status, &hold->name, out);
    return 0;
}

/* The record has vanished: its owner is still there, and keeps its epoch. */
static int revive(const struct vow__step *s, const vow_hold *hold,
                  struct vow__rec **rec)
{
    struct vow__book *b = s->book;
    if (hold->epoch > VOW__EPOCH_MAX)
        return VOW_EINVAL;
    struct vow__rec *r = vow__rec_new(b, &hold->name);
    if (r == NULL)
        return VOW_ENOMEM;
    int rc = put_into_table(b, r, *rec);
    if (rc < 0)
        return rc;
    r->token = hold->token;
    r->epoch = hold->epoch;
    if (hold->epoch > b->counter)
        b->counter = hold->epoch; /* keeps B4 */
    r->since_us = b->now_us;
    r->runner = runner_of(s->inst);
    r->chunks.bytes = b->value_max; /* the first ones are gone: no more */
    *rec = r;
    return 0;
}

static struct vow__text *runner_of(const struct vow__inst *inst)
{
    if (inst->runner != NULL)
        inst->runner->refs++;
    return inst->runner;
}

/* ---- commit ------------------------------------------------------------- */

int vow__book_commit(const struct vow__step *s, const vow_commit_request *ask,
                     struct vow__answer *out)
{
    struct vow__book *b = s->book;
    if (ask->outcome < VOW_OUTCOME_DONE ||
        ask->outcome > VOW_OUTCOME_ABANDONED ||
        ask->hold.epoch > VOW__EPOCH_MAX)
        return VOW_EINVAL;
    if (vow_bytes_size(ask->value) > b->value_max)
        return VOW_E2BIG;
    vow__book_begin(b, s->now_us);
    struct vow__rec *r = vow__rec_find(b, &ask->hold.name);
    if (r != NULL && r->state == VOW__REC_SETTLED && r->end_us <= b->now_us) {
        vow__rec_free(b, r);
        r = NULL;
    }
    struct verdict v = judge(b, r, ask);
    int rc = v.effect ? take_effect(s, ask, r) : 0;
    if (rc < 0)
        return rc;
    bool mine = v.status == VOW_STATUS_OWNED || v.status == VOW_STATUS_NONE;
    vow__answer_fill(b, mine ? NULL : r, v.status, &ask->hold.name, out);
    if (v.status == VOW_STATUS_OWNED)
        out->record.epoch = ask->hold.epoch;
    return 0;
}

static struct verdict judge(const struct vow__book *b, const struct vow__rec *r,
                            const vow_commit_request *ask)
{
    if (r != NULL)
        return r->state == VOW__REC_RUNNING ? judge_running(b, r, ask)
                                            : judge_settled(r, ask);
    bool abandoned = ask->outcome == VOW_OUTCOME_ABANDONED;
    if ((ask->flags & VOW_COMMIT_RESOLVE) != 0 ||
        ((ask->flags & VOW_COMMIT_STRICT) != 0 && !abandoned))
        return (struct verdict){VOW_STATUS_NONE, false};
    return (struct verdict){VOW_STATUS_OWNED, true};
}

static struct verdict judge_running(const struct vow__book *b,
                                    const struct vow__rec *r,
                                    const vow_commit_request *ask)
{
    bool right = (ask->flags & VOW_COMMIT_PUT) == 0 && holds(r, &ask->hold);
    if ((ask->flags & VOW_COMMIT_RESOLVE) != 0)
        right = vow__rec_says(b, r) == VOW_STATUS_DOUBT &&
                r->epoch == ask->hold.epoch;
    return (struct verdict){right ? VOW_STATUS_OWNED : VOW_STATUS_LOST, right};
}

static struct verdict judge_settled(const struct vow__rec *r,
                                    const vow_commit_request *ask)
{
    bool put = (ask->flags & VOW_COMMIT_PUT) != 0;
    bool newer = ask->hold.epoch > r->epoch;
    if (holds(r, &ask->hold)) /* it did, and this is the second time */
        return (struct verdict){VOW_STATUS_OWNED, false};
    if (r->hidden && (put || newer))
        return judge(NULL, NULL, ask);
    if (put && newer)
        return (struct verdict){VOW_STATUS_OWNED, true};
    return (struct verdict){VOW_STATUS_SETTLED, false};
}

static bool holds(const struct vow__rec *r, const vow_hold *hold)
{
    return r->epoch == hold->epoch && vow__token_same(&r->token, &hold->token);
}

/* `r` runs, or is to be replaced, or is NULL. */
static int take_effect(const struct vow__step *s, const vow_commit_request *ask,
                       struct vow__rec *r)
{
    struct vow__book *b = s->book;
    struct vow__text *label;
    bool runs = r != NULL && r->state == VOW__REC_RUNNING;
    if (ask->hold.epoch > b->counter)
        b->counter = ask->hold.epoch; /* keeps B4 */
    if (ask->outcome == VOW_OUTCOME_ABANDONED) {
        if (runs)
            vow__rec_vanish(b, r);
        return 0;
    }
    int rc = vow__text_make(b, ask->label, NULL, &label);
    if (rc == 0 && !runs)
        rc = settle_new(s, ask, &r);
    if (rc < 0) {
        vow__text_drop(b, label);
        return rc;
    }
    VOW__ASSERT(r != NULL);
    if (label != NULL) {
        vow__text_drop(b, r->label);
        r->label = label;
    }
    r->token = ask->hold.token;
    r->epoch = ask->hold.epoch;
    r->cost_ms = ask->cost_ms;
    vow__rec_settle(b, r, ask->value, ask->outcome == VOW_OUTCOME_FAILED,
                    vow__us_of_ms(ask->ttl_ms));
    return 0;
}

/* A record to be settled, that never ran. */
static int settle_new(const struct vow__step *s, const vow_commit_request *ask,
                      struct vow__rec **rec)
{
    struct vow__rec *r = vow__rec_new(s->book, &ask->hold.name);
    if (r == NULL)
        return VOW_ENOMEM;
    int rc = put_into_table(s->book, r, *rec);
    if (rc == 0)
        r->runner = runner_of(s->inst);
    *rec = r;
    return rc;
}
