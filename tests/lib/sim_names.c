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
enum { GAVE_UP_US = 60 * 1000000 };

#define BIT(says) (1u << (says))
#define SAME(a, b) (memcmp((a), (b), sizeof(*(a))) == 0)

static void check_says(struct sim_node *n, const struct sim_name *x,
                       const char *what, uint32_t allowed, const vow_record *r);
static void refresh(const struct sim *s, struct sim_name *x);
static bool has_heirs(const struct sim *s, const struct sim_name *x);
static bool same_bytes(vow_bytes *a, vow_bytes *b);
static bool gift_claimed(struct sim_node *n, struct sim_name *x,
                         const vow_claim_request *ask, const vow_record *r);
static void gift_close(struct sim_gift *g);
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
        for (uint32_t k = 0; k < SIM_NODES; k++)
            gift_close(&x->gifts[k]);
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
    for (uint32_t k = 0; k < SIM_NODES; k++)
        if (x->gifts[k].open && x->gifts[k].until_us <= now)
            gift_close(&x->gifts[k]);
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
    if (gift_claimed(n, x, ask, r))
        return;
    check_says(n, x, "claim", claim_may_say(s, x, ask), r);
    if (r->status == VOW_STATUS_WAITING) {
        SIM_CHECK(s, r->epoch == x->epoch);
        if ((ask->flags & VOW_CLAIM_NOWAIT) == 0) {
            x->waits |= BIT(n->number);
            x->wait_tokens[n->number] = ask->token;
            x->waits_since_ns[n->number] = s->now_ns;
            gift_close(&x->gifts[n->number]);
        }
        return;
    }
    x->waits &= ~BIT(n->number);
    gift_close(&x->gifts[n->number]);
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
        SIM_CHECK(s, same_bytes(r->value, x->value));
    }
}

/* A result with ttl 0 for who waited: it must be given to the token that was
 * registered, and may be given to another claim of that process; to nobody
 * else. */
static bool gift_claimed(struct sim_node *n, struct sim_name *x,
                         const vow_claim_request *ask, const vow_record *r)
{
    struct sim_gift *g = &x->gifts[n->number];
    if (!g->open || (ask->flags & VOW_CLAIM_FORCE) != 0)
        return false;
    bool given = r->status == VOW_STATUS_SETTLED && r->epoch == g->epoch &&
                 same_bytes(r->value, g->value);
    if (!given && SAME(&g->token, &ask->token))
        sim_fail(TEST_HERE, n->sim,
                 "p%u waited for %02x, epoch %llu, which was settled with ttl "
                 "0; its claim says %u, epoch %llu",
                 n->number, x->name.hash[0], (unsigned long long)g->epoch,
                 r->status, (unsigned long long)r->epoch);
    if (given)
        g->token = ask->token; /* it may be repeated */
    return given;
}

static void gift_close(struct sim_gift *g)
{
    vow_bytes_unref(g->value);
    *g = (struct sim_gift){.open = false};
}

/* A run that was lost a minute ago counts no more. */
static bool long_lost(const struct sim *s, const struct sim_name *x)
{
    return sim_now_us(s) >= x->end_us + 60 * UINT64_C(1000000);
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
    return x->takeovers >= ask->takeovers && !long_lost(s, x)
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
        x->takeovers = takeover && !long_lost(s, x) ? x->takeovers + 1 : 0;
        x->canceled = false;
        if (s->on_own != NULL)
            s->on_own(s, n, &x->name);
    }
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
    check_says(n, x, "pulse", may, r);
    if (r->status != VOW_STATUS_OWNED && r->status != VOW_STATUS_CANCELED)
        return;
    if (mine) {
        SIM_CHECK(s, r->epoch == x->epoch);
    } else { /* it had vanished */
        SIM_CHECK(s, r->epoch == hold->epoch);
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
    uint32_t gone = (ask->flags & (VOW_COMMIT_STRICT | VOW_COMMIT_RESOLVE)) != 0
                        ? BIT(VOW_STATUS_NONE)
                        : BIT(VOW_STATUS_OWNED);
    if (x->state == GONE)
        return gone;
    if (x->state == RUNS && (ask->flags & VOW_COMMIT_RESOLVE) != 0)
        return BIT(VOW_STATUS_OWNED) | BIT(VOW_STATUS_LOST);
    if (x->state == RUNS)
        return holds && !put ? BIT(VOW_STATUS_OWNED) : BIT(VOW_STATUS_LOST);
    uint32_t done = holds || (put && newer) ? BIT(VOW_STATUS_OWNED)
                                            : BIT(VOW_STATUS_SETTLED);
    return x->hidden && (put || newer) && !holds ? gone : done;
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
    if (x->state == RUNS)
        kept_us += x->lease_us;
    else
        x->waits = 0;
    x->hidden = ask->ttl_ms == 0;
    for (uint32_t k = 0; k < SIM_NODES && x->hidden; k++) {
        if ((x->waits & BIT(k)) == 0)
            continue;
        gift_close(&x->gifts[k]);
        x->gifts[k] = (struct sim_gift){.open = true,
                                        .token = x->wait_tokens[k],
                                        .until_us = now + kept_us,
                                        .epoch = ask->hold.epoch,
                                        .value = vow_bytes_ref(ask->value)};
    }
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
        gift_close(&x->gifts[n->number]);
        if (dead && x->state == RUNS && x->owner == n->number &&
            x->end_us > now)
            x->end_us = now;
    }
}
