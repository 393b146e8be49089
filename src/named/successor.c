/* SPDX-License-Identifier: MIT */
/* successor.c - a lease was lost: what has become of the name since?
 *
 * WHY   A result with no time to live is for those who waited when it was
 *       committed. The runner that was lost did not wait: its claim would find
 *       the name free, and the work would be done again although the successor
 *       has a result.
 * HOW   Stores keep the result of a takeover for the owner that was lost, and
 *       answer a commit of the old hold with it. VOW_COMMIT_RESOLVE has an
 *       effect on records in doubt only, so such a commit of any other mode
 *       asks and changes nothing. As long as the record is still that of the
 *       old hold and others wait for the name, one of them is about to take
 *       over: the question is repeated, and no claim gets in their way. When
 *       another has the name, it is claimed: then this instance is registered
 *       as waiting, and is told like the others.
 * LIMITS  A successor that commits between the last question and the claim is
 *         missed, unless its result is kept for longer.
 * THREADS  the hub's loop.
 */
#include "named/named_internal.h"

/* Those who live look again within 5 s, most a tenth of the lease after its
 * end. */
enum { LOOK_MS = 50, LOOKS_MAX = 128, LOOKS_PER_LEASE = 50 };

static void on_looked_back(int code, const vow_record *r, size_t n,
                           void *entry);
static bool is_down(int code);
static void look_soon(struct vow__named_entry *e);

void vow__named_entry_ask_successor(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    const vow_commit_request ask = {
        .hold = {.name = e->name, .token = e->token, .epoch = e->epoch},
        .outcome = VOW_OUTCOME_ABANDONED,
        .flags = VOW_COMMIT_RESOLVE};
    vow__named_entry_move(e, ENTRY_CLAIMING);
    e->steps++;
    vow__named_step_begins(h);
    h->store->ops->commit(h->store, &ask, on_looked_back, e);
}

static void on_looked_back(int code, const vow_record *r, size_t n, void *entry)
{
    struct vow__named_entry *e = entry;
    if (is_down(code)) { /* as after a claim; the question stays open */
        e->claimed_ns = vow__named_hub_now_ns(vow__named_entry_hub(e));
        vow__named_entry_claimed(code, r, n, e);
        return;
    }
    e->steps--;
    vow__named_step_ended(vow__named_entry_hub(e), code);
    bool ours =
        code == 0 && r->status == VOW_STATUS_LOST && r->epoch == e->epoch;
    if (ours && r->waiters > 0 && e->n_waiters > 0 &&
        e->successor_asks < LOOKS_MAX) {
        look_soon(e);
        return;
    }
    e->ask_successor = false;
    e->pauses = 0;
    if (code == 0 && r->status == VOW_STATUS_SETTLED && e->n_waiters > 0)
        vow__named_entry_settle_record(e, r);
    else
        vow__named_entry_claim_again(e);
}

static bool is_down(int code)
{
    return code == VOW_ESTORE || code == VOW_EUNSURE || code == VOW_EAGAIN;
}

static void look_soon(struct vow__named_entry *e)
{
    vow_loop *loop = vow__named_entry_hub(e)->loop;
    uint64_t ms = e->lease_ms / LOOKS_PER_LEASE + 1;
    e->successor_asks++;
    e->committed = false;
    vow__named_entry_move(e, ENTRY_PAUSING);
    vow_call_at(&e->timer, loop,
                vow_loop_due_ns(loop, ms < LOOK_MS ? ms : LOOK_MS),
                vow__named_entry_recheck, e);
}
