/* SPDX-License-Identifier: MIT */
/* commit.c - sends the outcome of the work to the store.
 *
 * HOW   Token and fence, never the time, decide at the store whether the
 *       outcome counts. A commit without an answer is repeated, which is safe,
 *       while the lease may be valid; no pulse is sent after the first commit.
 *       A late outcome changes nothing, and the waiters of this process wait
 *       for the result of the successor.
 * THREADS  the hub's loop.
 */
#include "base/clock.h"
#include "base/failure.h"
#include "named/named_internal.h"

static void settle_without_store(struct vow__named_entry *e,
                                 vow_future *outcome);
static void claim_after_give_back(struct vow__named_entry *e);
static void send_commit(struct vow__named_entry *e);
static void on_committed(int code, const vow_record *r, size_t n, void *entry);
static void commit_failed(struct vow__named_entry *e, int code);
static void commit_came_late(struct vow__named_entry *e);
static void commit_forget(struct vow__named_entry *e);

void vow__named_lease_commit(struct vow__named_entry *e, vow_future *outcome)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    const vow_lease *l = e->lease;
    const vow_share_opts *o = l->waiter->opts;
    bool ok = vow_state_of(outcome) == VOW_FULFILLED;
    bool good = ok && !l->marked_failed;
    uint64_t ttl_ms = good ? o->ttl_ms : o->fail_ttl_ms;
    if (l->ttl_ms != UINT64_MAX)
        ttl_ms = l->ttl_ms;
    if (e->unstored && ttl_ms == 0) {
        e->commit.ttl_ms = 0;
        settle_without_store(e, outcome);
        return;
    }
    vow_bytes *value = NULL;
    if (!ok) {
        vow_error *error = vow_error_of(outcome);
        (void)vow__failure_make(&h->alloc, vow_error_code(error),
                                vow_error_message(error), &value);
    } else if ((h->store->ops->flags & VOW_STORE_LOCAL) == 0) {
        value = vow_bytes_ref(vow_as_bytes(vow_get(outcome)));
    }
    uint64_t took_ns = vow__named_lease_age_ns(l, vow__named_hub_about_ns(h));
    e->commit = (vow_commit_request){
        .hold = {.name = e->name,
                 .token = l->token,
                 .epoch = l->epoch,
                 .mode = e->mode},
        .outcome = good ? VOW_OUTCOME_DONE : VOW_OUTCOME_FAILED,
        .flags = o->mode == VOW_SHARED ? 0 : VOW_COMMIT_STRICT,
        .value = value,
        .ttl_ms = ttl_ms,
        .cost_ms = took_ns / VOW__NS_PER_MS + 1,
        .label = l->waiter->label};
    (void)vow_future_ref(outcome);
    vow_future_unref(e->outcome);
    e->outcome = outcome;
    if (e->refresh && good)
        vow__named_refresh_keep(e);
    if (l->alone) {
        commit_forget(e);
        settle_without_store(e, outcome);
        return;
    }
    if (e->unstored) { /* the runner called vow_lease_keep() */
        h->stored = true;
        e->commit.flags |= VOW_COMMIT_PUT;
    }
    send_commit(e);
}

/* Settles the waiters without a step of the store. */
static void settle_without_store(struct vow__named_entry *e,
                                 vow_future *outcome)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow__named_entry_move(e, ENTRY_COMMITTING);
    vow__named_hub_tell(h, VOW_EVENT_SETTLED, &e->name, e->lease->epoch, 0,
                        NULL);
    vow__named_entry_settle(e, outcome);
}

void vow__named_lease_give_back(struct vow__named_entry *e)
{
    uint64_t epoch = e->lease == NULL ? e->epoch : e->lease->epoch;
    if (e->unstored) {
        if (e->lease != NULL)
            vow__named_lease_over(e->lease, false);
        claim_after_give_back(e);
        return;
    }
    e->commit = (vow_commit_request){
        .hold = {.name = e->name, .token = e->token, .epoch = epoch},
        .outcome = VOW_OUTCOME_ABANDONED};
    send_commit(e);
}

static void claim_after_give_back(struct vow__named_entry *e)
{
    if (e->hold_off && e->n_waiters > 0)
        vow__named_entry_hold_off(e);
    else
        vow__named_entry_claim_again(e);
}

static void send_commit(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    if (e->state != ENTRY_COMMITTING) {
        e->commit_until_ns = 0;
        vow__named_entry_move(e, ENTRY_COMMITTING);
    }
    e->steps++;
    vow__named_step_begins(h);
    h->store->ops->commit(h->store, &e->commit, on_committed, e);
}

void vow__named_lease_commit_again(void *entry)
{
    struct vow__named_entry *e = entry;
    vow__named_entry_move(e, ENTRY_COMMITTING);
    send_commit(e);
}

static void on_committed(int code, const vow_record *r, size_t n, void *entry)
{
    struct vow__named_entry *e = entry;
    struct vow__named_hub *h = vow__named_entry_hub(e);
    (void)n;
    e->steps--;
    h->repeated_commits -= e->commit_again;
    e->commit_again = false;
    vow__named_step_ended(h, code);
    bool abandoned = e->commit.outcome == VOW_OUTCOME_ABANDONED;
    if (code != 0) {
        commit_failed(e, code);
        return;
    }
    e->pauses = 0;
    if (abandoned) {
        commit_forget(e);
        if (e->lease != NULL)
            vow__named_lease_over(e->lease, false);
        if (r->status == VOW_STATUS_SETTLED && e->n_waiters > 0)
            vow__named_entry_settle_record(e, r); /* a successor was faster */
        else
            claim_after_give_back(e);
    } else if (r->status == VOW_STATUS_OWNED) {
        VOW_AUTO(vow_future) outcome = vow_future_ref(e->outcome);
        vow__named_hub_tell(h, VOW_EVENT_SETTLED, &e->name,
                            e->commit.hold.epoch, 0, NULL);
        vow_bytes_unref(e->commit.value);
        e->commit.value = NULL;
        vow__named_entry_settle(e, outcome);
    } else {
        struct vow__named_waiter *worker = e->lease->waiter;
        bool once = worker->opts->mode == VOW_ONCE && worker->entry == e;
        if (once && r->status != VOW_STATUS_SETTLED)
            vow__named_waiter_refuse(worker, VOW_EDOUBT,
                                     "its result came too late");
        commit_came_late(e);
        if (e->refresh)
            vow__named_refresh_refused(e, r->status);
        else if (r->status == VOW_STATUS_SETTLED)
            vow__named_entry_settle_record(e, r);
        else
            vow__named_entry_claim_again(e);
    }
}

/* Returns the time `ms` after now; without an end, the last time there is. */
static uint64_t end_of_span(uint64_t now_ns, uint64_t ms)
{
    return ms > (UINT64_MAX - now_ns) / VOW__NS_PER_MS
               ? UINT64_MAX
               : now_ns + ms * VOW__NS_PER_MS;
}

/* Handles a failed commit. Repeats the commit until the lease, as valid at the
 * first failure, has ended. Then, in mode VOW_SHARED, the waiters of this
 * process get the result; in other modes, an error. A full disk ends the
 * repetitions at once in mode VOW_SHARED; other modes wait for room, because
 * the store must know the result. */
static void commit_failed(struct vow__named_entry *e, int code)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow_lease *l = e->lease;
    bool full = code == VOW_ENOSPC;
    bool down =
        full || code == VOW_ESTORE || code == VOW_EUNSURE || code == VOW_EAGAIN;
    bool shared = l != NULL && l->waiter->opts->mode == VOW_SHARED;
    uint64_t now = vow__named_hub_now_ns(h);
    if (e->commit_until_ns == 0 && l != NULL)
        e->commit_until_ns = end_of_span(now, vow__named_lease_valid_ms(l));
    uint64_t left_ms = e->commit_until_ns > now
                           ? (e->commit_until_ns - now) / VOW__NS_PER_MS
                           : 0;
    bool again = down && !h->closing && !(full && shared);
    if (again && vow__named_entry_pause(e, left_ms))
        return;
    VOW_AUTO(vow_future) outcome = vow_future_ref(e->outcome);
    bool abandoned = e->commit.outcome == VOW_OUTCOME_ABANDONED;
    bool settle_here = shared && down;
    commit_forget(e);
    if (!abandoned && settle_here) {
        vow__named_entry_settle(e, outcome);
        return;
    }
    VOW_AUTO(vow_error)
    error =
        vow_error_new(h->loop, full || code == VOW_EAGAIN ? VOW_ESTORE : code,
                      "the work was done, and the store did not take its "
                      "result");
    if (l != NULL)
        vow__named_lease_over(l, false);
    if (abandoned)
        vow__named_entry_claim_again(e);
    else
        vow__named_entry_reject(e, error);
}

/* Handles an outcome that the store refused: another process works or has
 * settled the name, and the waiters of this process wait for that result. */
static void commit_came_late(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    commit_forget(e);
    vow__named_count(&h->counts.late, 1);
    vow__named_hub_tell(h, VOW_EVENT_LATE, &e->name, e->lease->epoch, VOW_ELOST,
                        NULL);
    for (vow_link *k = e->waiters; k != NULL; k = k->next)
        vow__named_waiter_of(k)->waited = true;
    vow__named_lease_over(e->lease, false);
    vow__named_entry_move(e, ENTRY_NEW);
    e->state = ENTRY_CLAIMING; /* as if a claim was answered */
}

static void commit_forget(struct vow__named_entry *e)
{
    vow_bytes_unref(e->commit.value);
    e->commit.value = NULL;
    e->outcome = vow_future_unref(e->outcome);
}
