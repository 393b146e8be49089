/* SPDX-License-Identifier: MIT */
/* entry.c - the entry of one name: claiming, waiting, settling.
 *
 * WHY   The five steps of the article: of all callers that request a name, in
 *       this process and in others, one works and the rest wait for the result.
 * HOW   The first waiter makes the entry and claims the name at the store;
 *       later waiters join. The answer of the store decides: work here
 *       (lease.c), wait and claim again, or hand out the result. A wait ends by
 *       a wake-up, or by a timer that fires a little after the owner's lease
 *       would end. Both claim the name again, which is safe at any time.
 * INVARIANTS  H1 to H4 in named_internal.h
 * THREADS  the hub's loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/named_internal.h"

#include <stdio.h>
#include <string.h>

const uint8_t vow__named_entry_moves[] = {
    [ENTRY_NEW] = VOW__TO(ENTRY_NEW) | VOW__TO(ENTRY_CLAIMING) |
                  VOW__TO(ENTRY_PAUSING) | VOW__TO(ENTRY_KEPT),
    [ENTRY_CLAIMING] = VOW__TO(ENTRY_NEW) | VOW__TO(ENTRY_WAITING) |
                       VOW__TO(ENTRY_RUNNING) | VOW__TO(ENTRY_COMMITTING) |
                       VOW__TO(ENTRY_PAUSING),
    [ENTRY_WAITING] = VOW__TO(ENTRY_NEW),
    [ENTRY_RUNNING] = VOW__TO(ENTRY_NEW) | VOW__TO(ENTRY_COMMITTING),
    [ENTRY_COMMITTING] = VOW__TO(ENTRY_NEW) | VOW__TO(ENTRY_PAUSING),
    [ENTRY_PAUSING] = VOW__TO(ENTRY_NEW) | VOW__TO(ENTRY_COMMITTING),
    [ENTRY_KEPT] = VOW__TO(ENTRY_NEW) | VOW__TO(ENTRY_KEPT),
};

static void entry_join(struct vow__named_entry *e, struct vow__named_waiter *w);
static void waiter_join_state(struct vow__named_entry *e,
                              struct vow__named_waiter *w);
static bool waiter_join_run(struct vow__named_entry *e,
                            struct vow__named_waiter *w, const vow_record *r);
static bool waiter_wants_run(struct vow__named_entry *e,
                             struct vow__named_waiter *w, const vow_record *r);
static bool waiters_only_peek(const struct vow__named_entry *e);
static void entry_peek(struct vow__named_entry *e);
static void on_name_peeked(int code, const vow_record *r, size_t n,
                           void *entry);
static bool waiters_need_no_store(const struct vow__named_entry *e);
static void claim_unstored(struct vow__named_entry *e);
static void entry_claim(struct vow__named_entry *e);
static bool busy_store_may_retry(struct vow__named_entry *e);
static void entry_apply_record(struct vow__named_entry *e, const vow_record *r);
static bool result_is_too_old(struct vow__named_entry *e, const vow_record *r);
static bool claim_has_lapsed(const struct vow__named_entry *e);
static void entry_owned(struct vow__named_entry *e, const vow_record *r);
static void entry_wait_for(struct vow__named_entry *e, const vow_record *r);
static void on_idle_check(void *entry);

/* ---- arriving ----------------------------------------------------------- */

void vow__named_entry_add_waiter(struct vow__named_hub *h,
                                 struct vow__named_entry *e,
                                 struct vow__named_waiter *w)
{
    uint32_t mode = w->opts->mode;
    if (mode != VOW_SHARED && (h->store->ops->modes & 1u << mode) == 0) {
        vow__named_waiter_refuse(w, VOW_ENOTSUP,
                                 "this store does not support the mode");
        return;
    }
    if (e == NULL && h->names.count >= h->opts.names_max) {
        vow__named_waiter_refuse(w, VOW_EQUEUEFULL,
                                 "too many names are requested at once");
        return;
    }
    if (e == NULL)
        e = vow__named_entry_new(h, &w->name, w->refresh);
    if (e == NULL) {
        vow__named_waiter_refuse(w, VOW_ENOMEM, NULL);
        return;
    }
    w->entry = e;
    if (e->n_waiters > 0)
        vow__named_count(&h->counts.joined, 1);
    entry_join(e, w);
}

struct vow__named_entry *vow__named_entry_new(struct vow__named_hub *h,
                                              const vow_name *name,
                                              bool refresh)
{
    struct vow__slab *slab;
    struct vow__named_entry *e = vow__slab_take(&h->entries, &slab);
    if (e == NULL)
        return NULL;
    e->slab = slab;
    e->name = *name;
    VOW__CLEAR(e, state, claimed_ns);
    e->node.name = (const char *)e->name.hash;
    e->node.length = sizeof(e->name.hash) - refresh;
    e->refresh = refresh;
    if (vow__table_add(&h->names, &e->node) < 0) {
        vow__slab_give(slab, e);
        return NULL;
    }
    vow__named_count(&h->counts.names, 1);
    return e;
}

struct vow__named_entry *vow__named_entry_find(const struct vow__named_hub *h,
                                               const vow_name *name,
                                               bool refresh)
{
    struct vow__table_node *n = vow__table_find(
        &h->names, (const char *)name->hash, sizeof(name->hash) - refresh);
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__named_entry, node);
}

/* Adds the waiter. The first waiter claims the name; the state of the entry
 * decides about later waiters. */
static void entry_join(struct vow__named_entry *e, struct vow__named_waiter *w)
{
    vow__list_push(&e->waiters, &w->link);
    e->n_waiters++;
    if (e->state != ENTRY_NEW && e->state != ENTRY_KEPT)
        waiter_join_state(e, w);
    if (e->state == ENTRY_NEW || e->state == ENTRY_KEPT)
        vow__named_entry_claim_again(e);
}

/* Lets the waiter join the claim or the run, or postpones the waiter. */
static void waiter_join_state(struct vow__named_entry *e,
                              struct vow__named_waiter *w)
{
    bool runs = e->state == ENTRY_RUNNING || e->state == ENTRY_COMMITTING ||
                (e->state == ENTRY_PAUSING && e->commit_again);
    bool taken = runs || e->state == ENTRY_WAITING;
    bool force = (w->opts->flags & VOW_SHARE_FORCE) != 0;
    bool alone = e->lease != NULL && e->lease->alone;
    if (e->unwanted || (e->state == ENTRY_CLAIMING && force && !e->forced) ||
        (alone && vow__named_waiter_down_policy(w) != VOW_DOWN_RUN))
        vow__named_waiter_postpone(w);
    e->steps++; /* user code may close the authority: keeps the entry */
    if (!w->postponed && taken)
        (void)waiter_join_run(e, w, NULL);
    e->steps--;
    if (e->lease != NULL)
        atomic_store_explicit(&e->lease->waiters, e->n_waiters,
                              memory_order_relaxed);
}

/* Lets the waiter wait for the run. Returns false if the waiter may not wait
 * and was refused, or declined to join and was postponed. */
static bool waiter_join_run(struct vow__named_entry *e,
                            struct vow__named_waiter *w, const vow_record *r)
{
    if ((w->opts->flags & VOW_SHARE_PEEK) != 0) {
        vow__named_waiter_refuse(w, VOW_ENOENT, "there is no result yet");
        return false;
    }
    if ((w->opts->flags & VOW_SHARE_NOWAIT) != 0) {
        vow__named_waiter_refuse(w, VOW_EBUSY, "another runner does the work");
        return false;
    }
    if (w->opts->join != NULL && !waiter_wants_run(e, w, r))
        return false;
    w->waited = true;
    vow__named_waiter_waits(w);
    vow__named_chunks_follow(e, w);
    return true;
}

static bool waiter_wants_run(struct vow__named_entry *e,
                             struct vow__named_waiter *w, const vow_record *r)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow_share_info running = {.fence = e->epoch};
    uint64_t now_ns = vow__named_hub_now_ns(h);
    uint64_t age_ns = e->lease != NULL
                          ? vow__named_lease_age_ns(e->lease, now_ns)
                          : now_ns - e->began_ns;
    running.age_ms = age_ns / VOW__NS_PER_MS;
    running.attempt = e->lease != NULL ? e->lease->attempt : 0;
    (void)snprintf(running.runner, sizeof(running.runner), "%s",
                   r != NULL && r->runner != NULL  ? r->runner
                   : r == NULL && e->lease != NULL ? h->runner
                                                   : "");
    (void)vow__named_waiter_ref(w);
    bool joins = w->opts->join(&running, w->opts->user);
    bool pending = w->entry != NULL; /* false: user code canceled the waiter */
    if (pending && !joins) {
        w->own_opts.flags |= VOW_SHARE_FORCE; /* not this run's result */
        vow__named_waiter_postpone(w);
    }
    vow__named_waiter_unref(w);
    return pending && joins;
}

/* ---- claiming ----------------------------------------------------------- */

void vow__named_entry_claim_again(struct vow__named_entry *e)
{
    if (e->state != ENTRY_KEPT) /* else the time of the value goes on */
        (void)vow_call_stop(&e->timer);
    vow__named_entry_move(e, ENTRY_NEW);
    e->unwanted = false;
    vow_link *l;
    while (e->lease == NULL && (l = vow__list_take(&e->postponed)) != NULL) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        w->postponed = false;
        vow__list_push(&e->waiters, &w->link);
        e->n_waiters++;
    }
    if (e->n_waiters > 0 && waiters_only_peek(e))
        entry_peek(e);
    else if (e->n_waiters > 0)
        entry_claim(e);
    else if (e->steps == 0)
        vow__named_entry_free(e);
}

static bool waiters_only_peek(const struct vow__named_entry *e)
{
    for (const vow_link *l = e->waiters; l != NULL; l = l->next)
        if ((VOW__OUTER(l, const struct vow__named_waiter, link)->opts->flags &
             VOW_SHARE_PEEK) == 0)
            return false;
    return true;
}

/* Looks at the name without a claim: no waiter would work, and a claim would
 * only block other processes. */
static void entry_peek(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow__named_entry_move(e, ENTRY_CLAIMING);
    e->steps++;
    vow__named_step_begins(h);
    h->store->ops->peek(h->store, &e->name, 1, on_name_peeked, e);
}

static void on_name_peeked(int code, const vow_record *r, size_t n, void *entry)
{
    struct vow__named_entry *e = entry;
    if (code != 0 || (n == 1 && r->status == VOW_STATUS_DOUBT)) {
        vow__named_entry_claimed(code, r, n, entry);
        return;
    }
    e->steps--;
    vow__named_step_ended(vow__named_entry_hub(e), code);
    vow__named_entry_move(e, ENTRY_NEW);
    if (r->status == VOW_STATUS_SETTLED && e->n_waiters > 0) {
        entry_claim(e); /* the answer to a claim has the value */
        return;
    }
    vow_link *next;
    for (vow_link *l = e->waiters; l != NULL; l = next) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        next = l->next;
        if ((w->opts->flags & VOW_SHARE_PEEK) != 0)
            vow__named_waiter_refuse(w, VOW_ENOENT, "there is no result");
    }
    vow__named_entry_claim_again(e);
}

/* Returns whether no waiter needs a record: no result outlives the run, and no
 * lease is needed, because the store is private to this process. */
static bool waiters_need_no_store(const struct vow__named_entry *e)
{
    for (vow_link *l = e->waiters; l != NULL; l = l->next) {
        const struct vow__named_waiter *w = vow__named_waiter_of(l);
        const vow_share_opts *o = w->opts;
        if (o == &vow__named_default_share_opts)
            continue;
        if (o->flags != 0 || o->mode != VOW_SHARED || w->refresh ||
            (o->ttl_ms | o->fail_ttl_ms | o->stale_ms) != 0 || o->early > 0)
            return false;
    }
    return e->outcome == NULL &&
           vow__named_hub_is_unstored(vow__named_entry_hub(e));
}

static void claim_unstored(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    e->unstored = true;
    e->epoch = ++h->floor;
    e->takeovers = 0;
    e->lease_ms = vow__named_waiter_lease_ms(vow__named_waiter_of(e->waiters));
    vow__named_count(&h->counts.claims, 1);
    vow__named_entry_move(e, ENTRY_CLAIMING);
    vow__named_lease_begin(e, false);
}

static void entry_claim(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    if (e->ask_successor) {
        vow__named_entry_ask_successor(e);
        return;
    }
    e->unstored = false;
    if (e->refresh && vow__named_refresh_peek(e))
        return;
    if (waiters_need_no_store(e)) {
        claim_unstored(e);
        return;
    }
    h->stored = true;
    const struct vow__named_waiter *first = vow__named_waiter_of(e->waiters);
    vow_claim_request request = {.name = e->name,
                                 .mode = first->opts->mode,
                                 .lease_ms = vow__named_waiter_lease_ms(first),
                                 .takeovers = first->opts->takeovers,
                                 .floor = h->floor,
                                 .waited = e->refresh ? 0 : e->first,
                                 .refresh = first->refreshed,
                                 .label = first->label,
                                 .runner = h->runner};
    bool wait = false;
    e->forced = false;
    for (vow_link *l = e->waiters; l != NULL; l = l->next) {
        const struct vow__named_waiter *w = vow__named_waiter_of(l);
        uint32_t flags = w->opts->flags;
        wait = wait || (flags & (VOW_SHARE_NOWAIT | VOW_SHARE_PEEK)) == 0;
        e->forced = e->forced || ((flags & VOW_SHARE_FORCE) != 0 && !w->waited);
    }
    if (!wait || e->refresh)
        request.flags |= VOW_CLAIM_NOWAIT;
    if (e->forced || e->valueless)
        request.flags |= VOW_CLAIM_FORCE;
    e->valueless = false;
    if (!e->token_unused)
        vow__named_token_make(h, &e->token);
    e->token_unused = true;
    request.token = e->token;
    e->mode = (uint8_t)request.mode;
    vow__named_entry_move(e, ENTRY_CLAIMING);
    e->woken = false;
    e->claimed_ns = vow__named_hub_now_ns(h);
    e->lease_ms = request.lease_ms;
    e->steps++;
    vow__named_count(&h->counts.claims, 1);
    vow__named_step_begins(h);
    h->store->ops->claim(h->store, &request, vow__named_entry_claimed, e);
}

void vow__named_entry_claimed(int code, const vow_record *r, size_t n,
                              void *entry)
{
    struct vow__named_entry *e = entry;
    (void)n;
    e->steps--;
    vow__named_step_ended(vow__named_entry_hub(e), code);
    if (code == 0) {
        e->pauses = 0;
        e->busy_ns = 0;
        entry_apply_record(e, r);
    } else if (code == VOW_EAGAIN && busy_store_may_retry(e)) {
        (void)vow__named_entry_pause(e, UINT64_MAX);
    } else if (code == VOW_ESTORE || code == VOW_EUNSURE ||
               code == VOW_EAGAIN) {
        vow__named_entry_down(e);
    } else {
        struct vow__named_hub *h = vow__named_entry_hub(e);
        bool of_the_value = code == VOW_EIO || code == VOW_E2BIG;
        const char *why = of_the_value ? vow__named_store_trouble(h) : NULL;
        VOW_AUTO(vow_error)
        error = why == NULL ? vow_error_new(h->loop, code, NULL)
                            : vow_error_new(h->loop, code, "%s", why);
        vow__named_entry_reject(e, error);
    }
}

/* Returns whether to try a busy store again, for as long as a lease. */
static bool busy_store_may_retry(struct vow__named_entry *e)
{
    if (e->busy_ns == 0)
        e->busy_ns = e->claimed_ns;
    uint64_t ms =
        (vow__named_hub_now_ns(vow__named_entry_hub(e)) - e->busy_ns) /
        VOW__NS_PER_MS;
    return e->n_waiters > 0 && ms < e->lease_ms;
}

/* Acts on the answer of the store. */
static void entry_apply_record(struct vow__named_entry *e, const vow_record *r)
{
    if (r->epoch > vow__named_entry_hub(e)->floor)
        vow__named_entry_hub(e)->floor = r->epoch;
    if (r->status == VOW_STATUS_SETTLED && result_is_too_old(e, r)) {
        vow__named_entry_claim_again(e);
        return;
    }
    e->epoch = r->epoch;
    if (e->early_result != NULL) {
        if (vow__named_early_result_settle(e, r))
            return;
        vow__named_early_result_drop(e);
    }
    if (r->status == VOW_STATUS_OWNED && claim_has_lapsed(e) &&
        e->n_waiters > 0) {
        /* A claim with the same token will show the current owner. */
        (void)vow__named_entry_pause(e, UINT64_MAX);
    } else if (r->status == VOW_STATUS_OWNED) {
        e->token_unused = false;
        entry_owned(e, r);
    } else if (e->refresh) {
        vow__named_refresh_refused(e, r->status);
    } else if (r->status == VOW_STATUS_WAITING) {
        entry_wait_for(e, r);
    } else if (r->status == VOW_STATUS_SETTLED) {
        vow__named_entry_settle_record(e, r);
    } else {
        VOW_AUTO(vow_error)
        error = vow_error_new(vow__named_entry_hub(e)->loop, VOW_EDOUBT,
                              "in doubt: %s began the work and died; the work "
                              "may have happened",
                              r->runner == NULL ? "its owner" : r->runner);
        vow__named_entry_reject(e, error);
    }
}

/* Returns whether waiters that want no result from before have waited for a
 * refresh, which has failed: the result is older than the run. */
static bool result_is_too_old(struct vow__named_entry *e, const vow_record *r)
{
    bool any = false;
    if (e->first == 0 || r->epoch >= e->epoch)
        return false;
    for (vow_link *l = e->waiters; l != NULL; l = l->next) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        if ((w->opts->flags & VOW_SHARE_FORCE) == 0 || !w->waited)
            continue;
        w->waited = false;
        any = true;
    }
    return any;
}

/* Returns whether the answer took a lease or longer: another process may own
 * the name. */
static bool claim_has_lapsed(const struct vow__named_entry *e)
{
    uint64_t took_ns =
        vow__named_hub_now_ns(vow__named_entry_hub(e)) - e->claimed_ns;
    return took_ns / VOW__NS_PER_MS >= e->lease_ms;
}

/* Handles a granted claim. Refuses waiters that only peek, and waiters with
 * VOW_SHARE_RACE that waited for an owner that was lost. */
static void entry_owned(struct vow__named_entry *e, const vow_record *r)
{
    vow_link *next;
    for (vow_link *l = e->waiters; l != NULL; l = next) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        next = l->next;
        if ((w->opts->flags & VOW_SHARE_PEEK) != 0)
            vow__named_waiter_refuse(w, VOW_ENOENT, "there is no result");
        else if ((w->opts->flags & VOW_SHARE_RACE) != 0 && w->waited)
            vow__named_waiter_refuse(w, VOW_ERETRY, NULL);
    }
    e->takeovers = r->takeovers;
    e->first = r->first;
    e->chunks_written = 0;
    vow__named_lease_begin(e, false);
}

/* ---- waiting ------------------------------------------------------------ */

static void entry_wait_for(struct vow__named_entry *e, const vow_record *r)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow__named_entry_move(e, ENTRY_WAITING);
    e->first = r->first;
    e->hold_offs = 0;
    uint64_t age_ns = r->age_ms * VOW__NS_PER_MS;
    uint64_t now = vow__named_hub_now_ns(h);
    e->began_ns = now > age_ns ? now - age_ns : 0;
    uint32_t joined = 0;
    vow_link *next;
    for (vow_link *l = e->waiters; l != NULL; l = next) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        bool calls = w->opts->join != NULL && !w->waited;
        next = l->next;
        if (w->waited)
            vow__named_chunks_follow(e, w);
        else
            joined += waiter_join_run(e, w, r);
        if (calls) /* user code may have changed the list */
            next = e->waiters;
    }
    uint64_t lease_ms =
        r->left_ms + (r->pulse_ms == UINT64_MAX ? 0 : r->pulse_ms);
    uint64_t jitter = vow_loop_random(h->loop) % (lease_ms / 10 + 1);
    uint64_t ms = r->left_ms + jitter + 1;
    if (ms > h->opts.recheck_ms)
        ms = h->opts.recheck_ms;
    if (e->woken)
        ms = 0;
    vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                vow__named_entry_recheck, e);
    vow__named_chunks_read(e);
    const vow_name name = e->name;
    for (; joined > 0; joined--)
        vow__named_hub_tell(h, VOW_EVENT_JOINED, &name, r->epoch, 0, NULL);
}

void vow__named_entry_changed(const vow_record *r, void *hub)
{
    struct vow__named_entry *e = vow__named_entry_find(hub, &r->name, false);
    if (e == NULL)
        return;
    /* an event may be late: the result of a run before has a smaller epoch */
    bool settled = r->status == VOW_STATUS_SETTLED && r->epoch >= e->epoch;
    if (e->state == ENTRY_CLAIMING) {
        e->woken = true; /* before the answer to the claim in flight */
        if (settled)
            vow__named_early_result_keep(e, r);
    }
    if (e->state != ENTRY_WAITING)
        return;
    if (!settled) {
        vow__named_entry_claim_again(e);
        return;
    }
    (void)vow_call_stop(&e->timer);
    e->epoch = r->epoch;
    vow__named_entry_settle_record(e, r);
}

/* ---- leaving ------------------------------------------------------------ */

void vow__named_entry_check_idle(struct vow__named_entry *e)
{
    if (!vow_call_pending(&e->idle_check))
        vow_call_soon(&e->idle_check, vow__named_entry_hub(e)->loop,
                      on_idle_check, e);
}

/* Cancels the work, or frees the entry, if no waiter is left. */
static void on_idle_check(void *entry)
{
    struct vow__named_entry *e = entry;
    if (e->n_waiters > 0)
        return;
    if (e->state == ENTRY_RUNNING && !e->unwanted &&
        (e->lease->waiter->work != NULL || e->lease->alone)) {
        e->unwanted = true; /* new waiters are postponed */
        vow__named_lease_cancel(e->lease, NULL, false);
    } else if ((e->state == ENTRY_WAITING && e->postponed == NULL) ||
               (e->state == ENTRY_PAUSING && !e->commit_again)) {
        vow__named_entry_claim_again(e);
    }
}

void vow__named_entry_free(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    (void)vow_call_stop(&e->timer);
    (void)vow_call_stop(&e->idle_check);
    if (e->early_result != NULL)
        vow__named_early_result_drop(e);
    vow__named_chunks_clear(e);
    if (e->outcome != NULL)
        vow_future_unref(e->outcome);
    if (e->commit.value != NULL)
        e->commit.value = vow_bytes_unref(e->commit.value);
    if (e->first_error != NULL)
        vow_error_unref(e->first_error);
    vow__table_remove(&h->names, &e->node);
    vow__named_count(&h->counts.names, (uint64_t)-1);
    vow__slab_give(e->slab, e);
}
