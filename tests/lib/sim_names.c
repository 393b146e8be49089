/* SPDX-License-Identifier: MIT */
/* sim_names.c - what vow/store.h promises of a name, in its shortest form.
 *
 * HOW   Each name has a state as the steps so far make it; every answer of the
 *       book must be one that this state allows, and moves it on. So the record
 *       is linearizable by construction: the steps have an order, that of the
 *       book, and each answer fits it. Besides:
 *         epochs rise with every claim that was granted,
 *         a lease is nobody else's before its end (unless its owner was seen to
 *         die), and in VOW_ONCE never,
 *         a result is accepted once for each epoch, and none from who was
 *         replaced,
 *         a result stays as long as it was promised, and what is kept for those
 *         who waited (ttl 0) is kept for them and for nobody else.
 */
#include "sim.h"

#include <string.h>

enum { GONE = 0, RUNS, DONE };
enum { GAVE_UP_US = 60 * 1000000, MINUTE_US = 60 * 1000000 };

#define BIT(says) (1u << (says))
#define SAME(a, b) (memcmp((a), (b), sizeof(*(a))) == 0)

static void check_says(struct sim_node *n, const struct sim_name *x,
                       const char *what, uint32_t allowed, const vow_record *r);
static void refresh(const struct sim *s, struct sim_name *x);
static bool has_heirs(const struct sim *s, const struct sim_name *x);
static bool same_bytes(vow_bytes *a, vow_bytes *b);
static const struct sim_left *find_left(const struct sim *s,
                                        const struct sim_name *x,
                                        const vow_claim_request *ask);
static uint32_t claim_may_say(const struct sim *s, const struct sim_name *x,
                              const vow_claim_request *ask);
static void claim_owns(struct sim_node *n, struct sim_name *x,
                       const vow_claim_request *ask, const vow_record *r);
static void settle(struct sim *s, struct sim_name *x,
                   const vow_commit_request *ask);
static uint32_t commit_may_say(const struct sim_name *x,
                               const vow_commit_request *ask);
static void commit_effect(struct sim_node *n, struct sim_name *x,
                          const vow_commit_request *ask);

struct sim_name *sim_name_of(struct sim *s, const vow_name *name)
{
    for (uint32_t i = 0; i < s->n_names; i++)
        if (vow_name_equal(&s->names[i].name, name))
            return &s->names[i];
    SIM_CHECK(s, s->n_names < SIM_NAMES);
    s->names[s->n_names].name = *name;
    return &s->names[s->n_names++];
}

void sim_names_fini(struct sim *s)
{
    for (uint32_t i = 0; i < s->n_names; i++) {
        struct sim_name *x = &s->names[i];
        vow_bytes_unref(x->value);
        for (uint32_t k = 0; k < SIM_LEFT; k++)
            vow_bytes_unref(x->left[k].value);
    }
}

/* What time alone has changed. */
static void refresh(const struct sim *s, struct sim_name *x)
{
    uint64_t now = sim_now_us(s);
    if (x->heir_us != 0 && now > x->heir_us && has_heirs(s, x))
        sim_fail(TEST_HERE, s,
                 "nobody took over from p%u, which died, by %.3f ms", x->owner,
                 (double)x->heir_us / 1e3);
    if (x->state == DONE && x->end_us <= now) {
        x->state = GONE;
        x->hidden = false;
    }
}

static void check_says(struct sim_node *n, const struct sim_name *x,
                       const char *what, uint32_t allowed, const vow_record *r)
{
    static const char *const STATE[] = {"gone", "running", "done"};
    if ((allowed & BIT(r->status)) != 0)
        return;
    sim_fail(TEST_HERE, n->sim,
             "p%u: a %s of %02x says %u, and only bits 0x%x are allowed: it is "
             "%s%s by p%u, epoch %llu, until %.3f ms",
             n->number, what, x->name.hash[0], r->status, allowed,
             STATE[x->state], x->hidden ? " and hidden" : "", x->owner,
             (unsigned long long)x->epoch, (double)x->end_us / 1e3);
}

static bool same_bytes(vow_bytes *a, vow_bytes *b)
{
    return vow_bytes_size(a) == vow_bytes_size(b) &&
           (a == b || memcmp(vow_bytes_data(a), vow_bytes_data(b),
                             vow_bytes_size(a)) == 0);
}

/* ---- claim -------------------------------------------------------------- */

void sim_saw_claim(struct sim_node *n, const vow_claim_request *ask,
                   const vow_record *r)
{
    struct sim *s = n->sim;
    struct sim_name *x = sim_name_of(s, &ask->name);
    refresh(s, x);
    const struct sim_left *left = find_left(s, x, ask);
    if (left != NULL) {
        check_says(n, x, "claim for what is left", BIT(VOW_STATUS_SETTLED), r);
        SIM_CHECK(s, r->epoch == left->epoch);
        SIM_CHECK(s, r->first == left->first);
        SIM_CHECK(s, same_bytes(r->value, left->value));
        x->waits &= ~BIT(n->number);
        return;
    }
    check_says(n, x, "claim", claim_may_say(s, x, ask), r);
    if (r->status == VOW_STATUS_WAITING) {
        SIM_CHECK(s, r->epoch == x->epoch);
        SIM_CHECK(s, r->first == x->first);
        if ((ask->flags & VOW_CLAIM_NOWAIT) == 0) {
            x->waits |= BIT(n->number);
            x->waits_since_ns[n->number] = s->now_ns;
        }
        return;
    }
    x->waits &= ~BIT(n->number);
    if (r->status == VOW_STATUS_OWNED) {
        claim_owns(n, x, ask, r);
    } else if (r->status == VOW_STATUS_SETTLED && x->state == RUNS) {
        x->state = DONE; /* too many were lost */
        x->token = (vow_token){.bytes = {0}};
        x->failed = true;
        x->end_us = sim_now_us(s) + GAVE_UP_US;
        x->waits = 0;
        vow_bytes_unref(x->value);
        x->value = vow_bytes_ref(r->value);
        SIM_CHECK(s, r->failed);
    } else if (r->status == VOW_STATUS_SETTLED) {
        SIM_CHECK(s, r->epoch == x->epoch);
        SIM_CHECK(s, r->failed == x->failed);
        SIM_CHECK(s, x->hidden || same_bytes(r->value, x->value));
    }
}

/* A claim that waited for the run gets the result, whatever became of the name
 * since; but the claim of an owner is of its own run. */
static const struct sim_left *find_left(const struct sim *s,
                                        const struct sim_name *x,
                                        const vow_claim_request *ask)
{
    bool mine = x->state != GONE && SAME(&x->token, &ask->token);
    if (ask->waited == 0 || mine || (ask->flags & VOW_CLAIM_FORCE) != 0)
        return NULL;
    for (uint32_t i = x->n_left; i > 0 && x->n_left - i < SIM_LEFT; i--) {
        const struct sim_left *left = &x->left[(i - 1) % SIM_LEFT];
        if (left->first == ask->waited && left->until_us > sim_now_us(s))
            return left;
    }
    return NULL;
}

static void leave_result(struct sim *s, struct sim_name *x, uint64_t until_us,
                         const vow_commit_request *ask)
{
    struct sim_left *left = &x->left[x->n_left++ % SIM_LEFT];
    for (uint32_t k = 0; k < SIM_LEFT; k++) /* a late repeat comes instead */
        if (x->left[k].first == x->first)
            x->left[k].until_us = 0;
    SIM_CHECK(s, left->until_us <= sim_now_us(s));
    vow_bytes_unref(left->value);
    *left = (struct sim_left){.first = x->first,
                              .until_us = until_us,
                              .epoch = ask->hold.epoch,
                              .value = vow_bytes_ref(ask->value)};
}

/* A run that was lost a minute ago counts no more. */
static bool long_lost(const struct sim *s, const struct sim_name *x)
{
    return sim_now_us(s) >= x->end_us + MINUTE_US;
}

static uint32_t claim_may_say(const struct sim *s, const struct sim_name *x,
                              const vow_claim_request *ask)
{
    bool mine = SAME(&x->token, &ask->token);
    bool force = (ask->flags & VOW_CLAIM_FORCE) != 0;
    if (x->state == DONE && (mine || (!x->hidden && !force)))
        return BIT(VOW_STATUS_SETTLED);
    if (x->state != RUNS || mine)
        return BIT(VOW_STATUS_OWNED);
    if (x->end_us > sim_now_us(s))
        return BIT(VOW_STATUS_WAITING);
    if (x->mode == VOW_ONCE)
        return BIT(VOW_STATUS_DOUBT);
    return x->takeovers >= ask->takeovers && !force && !long_lost(s, x)
               ? BIT(VOW_STATUS_SETTLED)
               : BIT(VOW_STATUS_OWNED);
}

static void claim_owns(struct sim_node *n, struct sim_name *x,
                       const vow_claim_request *ask, const vow_record *r)
{
    struct sim *s = n->sim;
    bool again = x->state == RUNS && SAME(&x->token, &ask->token);
    bool takeover = x->state == RUNS && !again;
    if (again) {
        SIM_CHECK(s, r->epoch == x->epoch);
        SIM_CHECK(s, x->owner == n->number); /* a token is nobody else's */
    } else {
        SIM_CHECK(s, r->epoch > x->epoch_max);
        SIM_CHECK(s, r->epoch > ask->floor);
        x->owns++;
        x->owned_ns = n->sent_ns;
        x->first = takeover ? x->first : r->epoch;
        x->takeovers = takeover && !long_lost(s, x) ? x->takeovers + 1 : 0;
        x->canceled = false;
        if (s->on_own != NULL)
            s->on_own(s, n, &x->name);
    }
    SIM_CHECK(s, r->first == x->first);
    SIM_CHECK(s, r->takeovers == x->takeovers);
    x->heir_us = 0;
    x->state = RUNS;
    x->hidden = false;
    x->owner = n->number;
    x->token = ask->token;
    x->epoch = r->epoch;
    x->epoch_max = r->epoch;
    x->mode = again ? x->mode : ask->mode;
    x->lease_us = ask->lease_ms * 1000;
    x->end_us = sim_now_us(s) + x->lease_us;
}

/* ---- pulse -------------------------------------------------------------- */

void sim_saw_pulse(struct sim_node *n, const vow_hold *hold, uint64_t lease_ms,
                   const vow_record *r)
{
    struct sim *s = n->sim;
    struct sim_name *x = sim_name_of(s, &hold->name);
    refresh(s, x);
    uint32_t may = BIT(VOW_STATUS_OWNED);
    bool mine = x->state == RUNS && SAME(&x->token, &hold->token);
    if (x->state == RUNS)
        may = !mine         ? BIT(VOW_STATUS_LOST)
              : x->canceled ? BIT(VOW_STATUS_CANCELED)
                            : BIT(VOW_STATUS_OWNED);
    else if (x->state == DONE)
        may = BIT(VOW_STATUS_SETTLED);
    else if (hold->mode != VOW_SHARED)
        may = BIT(VOW_STATUS_LOST);
    check_says(n, x, "pulse", may, r);
    if (r->status != VOW_STATUS_OWNED && r->status != VOW_STATUS_CANCELED)
        return;
    if (mine) {
        SIM_CHECK(s, r->epoch == x->epoch);
    } else { /* it had vanished */
        SIM_CHECK(s, r->epoch == hold->epoch);
        x->first = hold->epoch;
        x->takeovers = 0;
        x->canceled = false;
        x->hidden = false;
        x->mode = VOW_SHARED;
    }
    x->state = RUNS;
    x->owner = n->number;
    x->token = hold->token;
    x->epoch = r->epoch;
    x->epoch_max = r->epoch > x->epoch_max ? r->epoch : x->epoch_max;
    x->lease_us = lease_ms * 1000;
    x->end_us = sim_now_us(s) + x->lease_us;
}

/* ---- commit ------------------------------------------------------------- */

void sim_saw_commit(struct sim_node *n, const vow_commit_request *ask,
                    const vow_record *r)
{
    struct sim *s = n->sim;
    struct sim_name *x = sim_name_of(s, &ask->hold.name);
    refresh(s, x);
    check_says(n, x, "commit", commit_may_say(x, ask), r);
    if (r->status == VOW_STATUS_SETTLED) {
        SIM_CHECK(s, r->epoch == x->epoch);
        SIM_CHECK(s, same_bytes(r->value, x->value));
    }
    bool again = x->state == DONE && x->epoch == ask->hold.epoch &&
                 SAME(&x->token, &ask->hold.token);
    if (r->status == VOW_STATUS_OWNED && !again)
        commit_effect(n, x, ask);
}

static uint32_t commit_may_say(const struct sim_name *x,
                               const vow_commit_request *ask)
{
    bool put = (ask->flags & VOW_COMMIT_PUT) != 0;
    bool newer = ask->hold.epoch > x->epoch;
    bool holds =
        ask->hold.epoch == x->epoch && SAME(&x->token, &ask->hold.token);
    uint32_t flags = ask->flags;
    if (ask->outcome == VOW_OUTCOME_ABANDONED)
        flags &= ~(uint32_t)VOW_COMMIT_STRICT;
    uint32_t gone = (flags & (VOW_COMMIT_STRICT | VOW_COMMIT_RESOLVE)) != 0
                        ? BIT(VOW_STATUS_NONE)
                        : BIT(VOW_STATUS_OWNED);
    if (x->state == GONE)
        return gone;
    if (x->state == RUNS && (ask->flags & VOW_COMMIT_RESOLVE) != 0)
        return BIT(VOW_STATUS_OWNED) | BIT(VOW_STATUS_LOST);
    if (x->state == RUNS)
        return holds && !put ? BIT(VOW_STATUS_OWNED) : BIT(VOW_STATUS_LOST);
    if (holds)
        return BIT(VOW_STATUS_OWNED);
    if (x->hidden && (flags & VOW_COMMIT_RESOLVE) == 0)
        return put || newer ? gone : BIT(VOW_STATUS_LOST);
    if (x->hidden)
        return BIT(VOW_STATUS_LOST);
    return put && newer ? BIT(VOW_STATUS_OWNED) : BIT(VOW_STATUS_SETTLED);
}

static void commit_effect(struct sim_node *n, struct sim_name *x,
                          const vow_commit_request *ask)
{
    struct sim *s = n->sim;
    x->heir_us = 0;
    if ((ask->flags & VOW_COMMIT_RESOLVE) != 0 && x->state == RUNS) {
        SIM_CHECK(s, x->mode == VOW_ONCE);
        SIM_CHECK(s, x->end_us <= sim_now_us(s));
        SIM_CHECK(s, x->epoch == ask->hold.epoch);
    }
    if (ask->outcome == VOW_OUTCOME_ABANDONED) {
        if (x->state == RUNS)
            x->state = GONE;
        x->waits = x->state == GONE ? 0 : x->waits;
        return;
    }
    for (uint32_t i = 0; i < x->n_accepted; i++)
        if (x->accepted[i] == ask->hold.epoch && x->state != GONE)
            sim_fail(TEST_HERE, s, "p%u: a second result of epoch %llu",
                     n->number, (unsigned long long)ask->hold.epoch);
    SIM_CHECK(s, x->n_accepted < SIM_EPOCHS);
    x->accepted[x->n_accepted++] = ask->hold.epoch;
    if (s->on_accept != NULL)
        s->on_accept(s, ask, x->state == RUNS ? x->waits : 0);
    settle(s, x, ask);
}

static void settle(struct sim *s, struct sim_name *x,
                   const vow_commit_request *ask)
{
    uint64_t now = sim_now_us(s);
    uint64_t kept_us = 2 * s->recheck_ms * 1000;
    bool replaced = x->state == RUNS && x->first != ask->hold.epoch;
    if (replaced && kept_us < MINUTE_US) /* an owner that was stopped */
        kept_us = MINUTE_US;
    if (x->state == RUNS)
        kept_us += x->lease_us;
    else
        x->waits = 0;
    x->hidden = ask->ttl_ms == 0;
    if (x->state != RUNS)
        x->first = ask->hold.epoch;
    if (x->hidden)
        leave_result(s, x, now + kept_us, ask);
    x->waits = 0;
    x->state = DONE;
    x->token = ask->hold.token;
    x->epoch = ask->hold.epoch;
    x->epoch_max = x->epoch > x->epoch_max ? x->epoch : x->epoch_max;
    x->failed = ask->outcome == VOW_OUTCOME_FAILED;
    x->end_us = now + (x->hidden ? kept_us : ask->ttl_ms * 1000);
    vow_bytes_unref(x->value);
    x->value = vow_bytes_ref(ask->value);
}

/* ---- the rest ----------------------------------------------------------- */

void sim_saw_forget(struct sim_node *n, const vow_name *name, uint64_t epoch,
                    const vow_record *r)
{
    struct sim_name *x = sim_name_of(n->sim, name);
    refresh(n->sim, x);
    bool there = x->state == DONE && !x->hidden;
    bool lapsed = x->state == RUNS && x->end_us <= sim_now_us(n->sim);
    bool doubt = lapsed && x->mode == VOW_ONCE;
    bool meant = epoch == 0 || epoch == x->epoch;
    uint32_t may = BIT(VOW_STATUS_NONE);
    if (there && !meant)
        may = BIT(VOW_STATUS_SETTLED);
    else if (doubt && !meant)
        may = BIT(VOW_STATUS_DOUBT);
    else if (x->state == RUNS && !lapsed)
        may = BIT(VOW_STATUS_WAITING);
    check_says(n, x, "forget", may, r);
    if ((there || doubt) && meant) {
        x->state = GONE;
        x->waits = 0;
    }
}

void sim_saw_cancel(struct sim_node *n, const vow_name *name,
                    const vow_record *r)
{
    struct sim_name *x = sim_name_of(n->sim, name);
    refresh(n->sim, x);
    bool runs = x->state == RUNS && x->end_us > sim_now_us(n->sim);
    SIM_CHECK(n->sim, (r->status == VOW_STATUS_WAITING) == runs);
    x->canceled = x->canceled || runs;
}

void sim_saw_peek(struct sim_node *n, const vow_name *name, const vow_record *r)
{
    struct sim_name *x = sim_name_of(n->sim, name);
    refresh(n->sim, x);
    bool lapsed = x->end_us <= sim_now_us(n->sim);
    uint32_t may = BIT(VOW_STATUS_NONE);
    if (x->state == RUNS)
        may = !lapsed               ? BIT(VOW_STATUS_WAITING)
              : x->mode == VOW_ONCE ? BIT(VOW_STATUS_DOUBT)
                                    : BIT(VOW_STATUS_NONE);
    else if (x->state == DONE && !x->hidden)
        may = BIT(VOW_STATUS_SETTLED);
    check_says(n, x, "peek", may, r);
}

static bool has_heirs(const struct sim *s, const struct sim_name *x)
{
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (!s->nodes[i].dead && (x->waits & BIT(i)) != 0)
            return true;
    return false;
}

/* Who waits takes over when the lease is over, or at once if the store knows. A
 * pulse may still be under way, and clocks may be slow. */
void sim_saw_crash(struct sim_node *n, bool noticed)
{
    struct sim *s = n->sim;
    for (uint32_t i = 0; i < s->n_names; i++) {
        struct sim_name *x = &s->names[i];
        uint64_t us = 3 * s->faults.delay_us;
        if (!noticed)
            us += x->lease_us + x->lease_us / 100 + s->late_us;
        if (s->prompt && x->state == RUNS && x->owner == n->number &&
            x->mode != VOW_ONCE && has_heirs(s, x))
            x->heir_us = sim_now_us(s) + us;
    }
}

void sim_saw_leave(struct sim_node *n, bool dead)
{
    uint64_t now = sim_now_us(n->sim);
    for (uint32_t i = 0; i < n->sim->n_names; i++) {
        struct sim_name *x = &n->sim->names[i];
        x->waits &= ~BIT(n->number);
        if (dead && x->state == RUNS && x->owner == n->number &&
            x->end_us > now)
            x->end_us = now;
    }
}
