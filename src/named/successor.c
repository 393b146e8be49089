/* SPDX-License-Identifier: MIT */
/* successor.c - after a lost lease, asks the store for the successor's result.
 *
 * WHY   A result without a time to live is for the processes that waited at the
 *       commit. The owner that was lost did not wait: a claim would find the
 *       name free, and the work would run again although the successor has a
 *       result.
 * HOW   Stores keep the result of a takeover for the lost owner, and answer a
 *       commit of the old hold with the result. VOW_COMMIT_RESOLVE changes only
 *       records in doubt, so for other records such a commit is a read. While
 *       the record is still of the old hold and other processes wait for the
 *       name, a takeover is about to come: the request is repeated, and no
 *       claim gets in the way. When another process owns the name, this process
 *       claims: the claim registers this process as waiting, and the result
 *       arrives as for other waiting processes.
 * LIMITS  In a store that ignores `waited` of a claim (etcd), a successor that
 *         commits between the last request and the claim is missed, unless the
 *         result is kept for longer.
 * THREADS  the hub's loop.
 */
#include "named/named_internal.h"

/* Waiting processes that live claim again within 5 s, most of them within a
 * tenth of the lease after the lease has ended. */
enum { ASK_PAUSE_MS = 50, ASKS_MAX = 128, ASKS_PER_LEASE = 50 };

static void on_successor_answer(int code, const vow_record *r, size_t n,
                                void *entry);
static bool code_is_down(int code);
static void successor_ask_soon(struct vow__named_entry *e);

void vow__named_entry_ask_successor(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    const vow_commit_request request = {
        .hold = {.name = e->name, .token = e->token, .epoch = e->epoch},
        .outcome = VOW_OUTCOME_ABANDONED,
        .flags = VOW_COMMIT_RESOLVE};
    vow__named_entry_move(e, ENTRY_CLAIMING);
    e->steps++;
    vow__named_step_begins(h);
    h->store->ops->commit(h->store, &request, on_successor_answer, e);
}

static void on_successor_answer(int code, const vow_record *r, size_t n,
                                void *entry)
{
    struct vow__named_entry *e = entry;
    if (code_is_down(code)) { /* as after a claim; ask_successor stays set */
        e->claimed_ns = vow__named_hub_now_ns(vow__named_entry_hub(e));
        vow__named_entry_claimed(code, r, n, e);
        return;
    }
    e->steps--;
    vow__named_step_ended(vow__named_entry_hub(e), code);
    bool old_hold =
        code == 0 && r->status == VOW_STATUS_LOST && r->epoch == e->epoch;
    if (old_hold && r->waiters > 0 && e->n_waiters > 0 &&
        e->successor_asks < ASKS_MAX) {
        successor_ask_soon(e);
        return;
    }
    e->ask_successor = false;
    e->pauses = 0;
    if (code == 0 && r->status == VOW_STATUS_SETTLED && e->n_waiters > 0)
        vow__named_entry_settle_record(e, r);
    else
        vow__named_entry_claim_again(e);
}

static bool code_is_down(int code)
{
    return code == VOW_ESTORE || code == VOW_EUNSURE || code == VOW_EAGAIN;
}

static void successor_ask_soon(struct vow__named_entry *e)
{
    vow_loop *loop = vow__named_entry_hub(e)->loop;
    uint64_t ms = e->lease_ms / ASKS_PER_LEASE + 1;
    e->successor_asks++;
    e->commit_again = false;
    vow__named_entry_move(e, ENTRY_PAUSING);
    vow_call_at(&e->timer, loop,
                vow_loop_due_ns(loop, ms < ASK_PAUSE_MS ? ms : ASK_PAUSE_MS),
                vow__named_entry_recheck, e);
}
