/* SPDX-License-Identifier: MIT */
/* entry.c - one name that is asked for: claiming, waiting, settling.
 *
 * WHY   The five steps of the article: of all who ask for a name, in this
 *       process and in others, one works and the rest wait for it.
 * HOW   The first ask makes the entry and claims the name at the store; those
 *       who come while it is there join. What the store says moves the entry
 *       on: work here (lease.c), wait and look again, or hand out the result.
 *       A wait ends by a wake-up, or by a timer that comes a little after the
 *       owner's lease would end; either way the name is claimed again, which is
 *       safe at any time.
 * INVARIANTS  H1 to H4 in hub_internal.h
 * THREADS  the home's loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sm.h"
#include "collab/hub_internal.h"

#include <stdio.h>
#include <string.h>

enum { PAUSE_FIRST_MS = 20, PAUSE_MOST_MS = 1000, HOLD_OFF_MS = 2 };

static const uint8_t allowed[] = {
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

static void join(struct vow__entry *e, struct vow__ask *a);
static bool wait_with(struct vow__entry *e, struct vow__ask *a,
                      const vow_record *r);
static bool wants_to_join(struct vow__entry *e, const struct vow__ask *a,
                          const vow_record *r);
static bool only_look(const struct vow__entry *e);
static void peek(struct vow__entry *e);
static void on_peeked(int code, const vow_record *r, size_t n, void *entry);
static bool all_bare(const struct vow__entry *e);
static void claim_bare(struct vow__entry *e);
static void claim(struct vow__entry *e);
static void on_claimed(int code, const vow_record *r, size_t n, void *entry);
static void obey(struct vow__entry *e, const vow_record *r);
static void owned(struct vow__entry *e, const vow_record *r);
static bool may_be_refreshed(const struct vow__entry *e);
static void look_for_refresh(struct vow__entry *e);
static void on_refresh_seen(int code, const vow_record *r, size_t n,
                            void *entry);
static void wait_for(struct vow__entry *e, const vow_record *r);
static void look_again(void *entry);
static void store_is_down(struct vow__entry *e, int code);
static uint32_t policy_of(const struct vow__ask *a);
static void put_off(struct vow__ask *a);
static void idle(void *entry);

void vow__entry_move(struct vow__entry *e, enum vow__entry_state to)
{
    vow__sm_move(&e->state, (uint8_t)to, allowed);
}

/* ---- coming ------------------------------------------------------------- */

void vow__entry_ask(struct vow__hub *h, struct vow__ask *a)
{
    struct vow__entry *e = vow__entry_find(h, &a->name);
    if (e == NULL && h->names.count >= h->opts.names_max) {
        vow__ask_refuse(a, VOW_EQUEUEFULL, "too many names are asked for");
        return;
    }
    if (e == NULL)
        e = vow__entry_new(h, &a->name);
    if (e == NULL) {
        vow__ask_refuse(a, VOW_ENOMEM, NULL);
        return;
    }
    a->entry = e;
    if (e->n_asks > 0)
        vow__count(&h->counts.joined, 1);
    join(e, a);
}

struct vow__entry *vow__entry_new(struct vow__hub *h, const vow_name *name)
{
    struct vow__slab *home;
    struct vow__entry *e = vow__pool_take(&h->entries, &home);
    if (e == NULL)
        return NULL;
    memset(e, 0, sizeof(*e));
    e->home = home;
    e->name = *name;
    e->node.name = (const char *)e->name.hash;
    e->node.length = sizeof(e->name.hash);
    if (vow__table_add(&h->names, &e->node) < 0) {
        vow__pool_give(home, e);
        return NULL;
    }
    vow__count(&h->counts.names, 1);
    return e;
}

struct vow__entry *vow__entry_find(const struct vow__hub *h,
                                   const vow_name *name)
{
    struct vow__named *n = vow__table_find(&h->names, (const char *)name->hash,
                                           sizeof(name->hash));
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__entry, node);
}

/* It waits with the others, if it may and wants to; the first claims. */
static void join(struct vow__entry *e, struct vow__ask *a)
{
    bool runs = e->state == ENTRY_RUNNING || e->state == ENTRY_COMMITTING;
    bool taken = runs || e->state == ENTRY_WAITING;
    bool force = (a->opts.flags & VOW_SHARE_FORCE) != 0;
    vow__list_push(&e->asks, &a->link);
    e->n_asks++;
    if (e->dying || (e->state == ENTRY_CLAIMING && force && !e->forced))
        put_off(a);
    else if (taken)
        (void)wait_with(e, a, NULL);
    if (e->lease != NULL)
        atomic_store_explicit(&e->lease->waiters, e->n_asks,
                              memory_order_relaxed);
    if (e->state == ENTRY_KEPT || e->state == ENTRY_NEW)
        vow__entry_again(e);
}

/* It waits for who works; or it may not and is settled, or does not want to and
 * asks again later: then false. */
static bool wait_with(struct vow__entry *e, struct vow__ask *a,
                      const vow_record *r)
{
    if ((a->opts.flags & VOW_SHARE_PEEK) != 0) {
        vow__ask_refuse(a, VOW_ENOENT, "there is no result yet");
        return false;
    }
    if ((a->opts.flags & VOW_SHARE_NOWAIT) != 0) {
        vow__ask_refuse(a, VOW_EBUSY, "another does the work");
        return false;
    }
    if (!wants_to_join(e, a, r)) {
        put_off(a);
        return false;
    }
    a->waited = true;
    vow__ask_waits(a);
    vow__chunks_follow(e, a);
    return true;
}

static bool wants_to_join(struct vow__entry *e, const struct vow__ask *a,
                          const vow_record *r)
{
    struct vow__hub *h = vow__hub_of(e);
    if (a->opts.join == NULL)
        return true;
    vow_share_info running = {.fence = e->epoch};
    uint64_t began_ns = e->lease != NULL ? e->lease->began_ns : e->began_ns;
    running.age_ms = (vow__hub_now_ns(h) - began_ns) / VOW__NS_PER_MS;
    running.attempt = e->lease != NULL ? e->lease->attempt : 0;
    (void)snprintf(running.runner, sizeof(running.runner), "%s",
                   r == NULL ? h->runner : r->runner);
    return a->opts.join(&running, a->opts.user);
}

/* It asks again when this run is over. */
static void put_off(struct vow__ask *a)
{
    struct vow__entry *e = a->entry;
    vow__list_remove(&e->asks, &a->link);
    e->n_asks--;
    a->later = true;
    vow__list_push(&e->later, &a->link);
    if (e->n_asks == 0)
        vow__entry_look(e);
}

/* ---- claiming ----------------------------------------------------------- */

void vow__entry_again(struct vow__entry *e)
{
    (void)vow_call_stop(&e->timer);
    vow__entry_move(e, ENTRY_NEW);
    e->dying = false;
    vow_link *l;
    while (e->lease == NULL && (l = vow__list_take(&e->later)) != NULL) {
        struct vow__ask *a = vow__ask_of(l);
        a->later = false;
        vow__list_push(&e->asks, &a->link);
        e->n_asks++;
    }
    if (e->n_asks > 0 && only_look(e))
        peek(e);
    else if (e->n_asks > 0)
        claim(e);
    else if (e->steps == 0)
        vow__entry_free(e);
}

static bool only_look(const struct vow__entry *e)
{
    for (const vow_link *l = e->asks; l != NULL; l = l->next)
        if ((VOW__OUTER(l, const struct vow__ask, link)->opts.flags &
             VOW_SHARE_PEEK) == 0)
            return false;
    return true;
}

/* Nobody here would do the work: a claim would only be in the way. */
static void peek(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    vow__entry_move(e, ENTRY_CLAIMING);
    e->steps++;
    vow__step_begins(h);
    h->store->ops->peek(h->store, &e->name, 1, on_peeked, e);
}

static void on_peeked(int code, const vow_record *r, size_t n, void *entry)
{
    struct vow__entry *e = entry;
    if (code != 0 || (n == 1 && r->says == VOW_SAYS_DOUBT)) {
        on_claimed(code, r, n, entry);
        return;
    }
    e->steps--;
    vow__step_ended(vow__hub_of(e), code);
    vow__entry_move(e, ENTRY_NEW);
    if (r->says == VOW_SAYS_SETTLED && e->n_asks > 0) {
        claim(e); /* has the value */
        return;
    }
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        next = l->next;
        if ((a->opts.flags & VOW_SHARE_PEEK) != 0)
            vow__ask_refuse(a, VOW_ENOENT, "there is no result");
    }
    vow__entry_again(e);
}

/* Nothing of these askers outlives the run, nor needs a lease. */
static bool all_bare(const struct vow__entry *e)
{
    for (vow_link *l = e->asks; l != NULL; l = l->next) {
        const struct vow__ask *a = vow__ask_of(l);
        const vow_share_opts *o = &a->opts;
        if (o->flags != 0 || o->mode != VOW_SHARED || a->refresh ||
            (o->ttl_ms | o->fail_ttl_ms | o->stale_ms) != 0 || o->early > 0)
            return false;
    }
    return e->outcome == NULL && vow__hub_is_bare(vow__hub_of(e));
}

static void claim_bare(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    const vow_record own = {.says = VOW_SAYS_OWN, .epoch = ++h->floor};
    e->bare = true;
    e->epoch = own.epoch;
    e->claimed_ns = vow__hub_now_ns(h);
    vow__count(&h->counts.claims, 1);
    vow__entry_move(e, ENTRY_CLAIMING);
    vow__lease_begin(e, &own, false);
}

static void claim(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    e->bare = false;
    if (all_bare(e)) {
        claim_bare(e);
        return;
    }
    h->stored = true;
    const struct vow__ask *first = vow__ask_of(e->asks);
    vow_claim_ask ask = {.name = e->name,
                         .mode = first->opts.mode,
                         .lease_ms = vow__ask_lease_ms(first),
                         .takeovers = first->opts.takeovers,
                         .floor = h->floor,
                         .label = first->label,
                         .runner = h->runner};
    bool wait = false;
    e->forced = false;
    for (vow_link *l = e->asks; l != NULL; l = l->next) {
        const vow_share_opts *o = &vow__ask_of(l)->opts;
        wait = wait || (o->flags & (VOW_SHARE_NOWAIT | VOW_SHARE_PEEK)) == 0;
        e->forced = e->forced || (o->flags & VOW_SHARE_FORCE) != 0;
    }
    if (!wait)
        ask.flags |= VOW_CLAIM_NOWAIT;
    if (e->forced)
        ask.flags |= VOW_CLAIM_FORCE;
    if (!e->unspent)
        vow__token_make(h, &e->token);
    e->unspent = true;
    ask.token = e->token;
    vow__entry_move(e, ENTRY_CLAIMING);
    e->claimed_ns = vow__hub_now_ns(h);
    e->steps++;
    vow__count(&h->counts.claims, 1);
    vow__step_begins(h);
    h->store->ops->claim(h->store, &ask, on_claimed, e);
}

static void on_claimed(int code, const vow_record *r, size_t n, void *entry)
{
    struct vow__entry *e = entry;
    (void)n;
    e->steps--;
    vow__step_ended(vow__hub_of(e), code);
    if (code == 0) {
        e->pauses = 0;
        obey(e, r);
    } else if (code == VOW_ESTORE || code == VOW_EUNSURE) {
        store_is_down(e, code);
    } else {
        VOW_AUTO(vow_error)
        error = vow_error_new(vow__hub_of(e)->loop, code, NULL);
        vow__entry_reject(e, error);
    }
}

/* Do what the store says. */
static void obey(struct vow__entry *e, const vow_record *r)
{
    if (r->epoch > vow__hub_of(e)->floor)
        vow__hub_of(e)->floor = r->epoch;
    e->epoch = r->epoch;
    if (r->says == VOW_SAYS_OWN) {
        e->unspent = false;
        owned(e, r);
    } else if (r->says == VOW_SAYS_WAIT) {
        wait_for(e, r);
    } else if (r->says == VOW_SAYS_SETTLED) {
        vow__entry_settle_record(e, r);
    } else {
        VOW_AUTO(vow_error)
        error = vow_error_new(vow__hub_of(e)->loop, VOW_EDOUBT,
                              "in doubt: %s began it and died, and it may have "
                              "happened",
                              r->runner == NULL ? "its owner" : r->runner);
        vow__entry_reject(e, error);
    }
}

/* The name is ours. Those who only look leave; those who race are told to, if
 * this is because another was lost. */
static void owned(struct vow__entry *e, const vow_record *r)
{
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        next = l->next;
        if ((a->opts.flags & VOW_SHARE_PEEK) != 0)
            vow__ask_refuse(a, VOW_ENOENT, "there is no result");
        else if ((a->opts.flags & VOW_SHARE_RACE) != 0 && a->waited)
            vow__ask_refuse(a, VOW_ERETRY, NULL);
    }
    e->takeovers = r->takeovers;
    if (may_be_refreshed(e))
        look_for_refresh(e);
    else
        vow__lease_begin(e, r, false);
}

/* Its last result has expired; is somebody still at making it anew? */
static bool may_be_refreshed(const struct vow__entry *e)
{
    bool aging = false;
    for (vow_link *l = e->asks; l != NULL; l = l->next) {
        const struct vow__ask *a = vow__ask_of(l);
        aging = aging ||
                (!a->refresh && (a->opts.stale_ms > 0 || a->opts.early > 0));
    }
    return aging;
}

static void look_for_refresh(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    vow_name name = vow__refresh_name(&e->name);
    e->steps++;
    vow__step_begins(h);
    h->store->ops->peek(h->store, &name, 1, on_refresh_seen, e);
}

/* Then that one is waited for, as if it had the name. */
static void on_refresh_seen(int code, const vow_record *r, size_t n,
                            void *entry)
{
    struct vow__entry *e = entry;
    const vow_record own = {.epoch = e->epoch, .takeovers = e->takeovers};
    e->steps--;
    vow__step_ended(vow__hub_of(e), code);
    if (code != 0 || n != 1 || r->says != VOW_SAYS_WAIT) {
        vow__lease_begin(e, &own, false);
        return;
    }
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        next = l->next;
        if ((a->opts.flags & VOW_SHARE_NOWAIT) != 0)
            vow__ask_refuse(a, VOW_EBUSY, "another does the work");
    }
    e->hold_off = true;
    vow__lease_give_back(e);
}

/* ---- waiting ------------------------------------------------------------ */

static void wait_for(struct vow__entry *e, const vow_record *r)
{
    struct vow__hub *h = vow__hub_of(e);
    vow__entry_move(e, ENTRY_WAITING);
    e->held_off = 0;
    uint64_t age_ns = r->age_ms * VOW__NS_PER_MS;
    uint64_t now = vow__hub_now_ns(h);
    e->began_ns = now > age_ns ? now - age_ns : 0;
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        next = l->next;
        if (a->waited)
            vow__chunks_follow(e, a);
        else if (wait_with(e, a, r))
            vow__hub_tell(h, VOW_EVENT_JOINED, &e->name, r->epoch, 0, NULL);
    }
    uint64_t lease_ms = r->left_ms + r->pulse_ms;
    uint64_t jitter = vow_loop_random(h->loop) % (lease_ms / 10 + 1);
    uint64_t ms = r->left_ms + jitter + 1;
    if (ms > h->opts.recheck_ms)
        ms = h->opts.recheck_ms;
    vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms), look_again,
                e);
    vow__chunks_read(e);
}

static void look_again(void *entry)
{
    vow__entry_again(entry);
}

void vow__entry_changed(const vow_record *r, void *hub)
{
    struct vow__entry *e = vow__entry_find(hub, &r->name);
    if (e == NULL || e->state != ENTRY_WAITING)
        return;
    if (r->says != VOW_SAYS_SETTLED) {
        vow__entry_again(e);
        return;
    }
    (void)vow_call_stop(&e->timer);
    e->epoch = r->epoch;
    vow__entry_settle_record(e, r);
}

/* ---- the store is down -------------------------------------------------- */

static void store_is_down(struct vow__entry *e, int code)
{
    bool alone = false;
    const vow_store *s = vow__hub_of(e)->store;
    const char *why =
        s->ops->explain == NULL ? NULL : s->ops->explain(vow__hub_of(e)->store);
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        uint32_t policy = policy_of(a);
        next = l->next;
        alone = alone || policy == VOW_DOWN_RUN;
        if (policy == VOW_DOWN_FAIL)
            vow__ask_refuse(a, code, why);
    }
    if (alone)
        vow__lease_begin(e, NULL, true);
    else if (e->n_asks > 0)
        (void)vow__entry_pause(e, UINT64_MAX);
    else
        vow__entry_again(e);
}

static uint32_t policy_of(const struct vow__ask *a)
{
    if (a->opts.store_down != VOW_DOWN_DEFAULT)
        return a->opts.store_down;
    bool works = a->opts.mode == VOW_SHARED && !a->refresh &&
                 (a->opts.flags & VOW_SHARE_PEEK) == 0;
    return works ? VOW_DOWN_RUN : VOW_DOWN_FAIL;
}

void vow__entry_hold_off(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    uint64_t most = vow__ask_lease_ms(vow__ask_of(e->asks)) / 4 + 1;
    uint64_t ms = HOLD_OFF_MS;
    for (uint32_t k = 0; k < e->held_off && ms < most; k++)
        ms *= 2;
    if (ms > most)
        ms = most;
    e->held_off++;
    e->hold_off = false;
    e->committed = false;
    vow__entry_move(e, ENTRY_NEW);
    vow__entry_move(e, ENTRY_PAUSING);
    vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms), look_again,
                e);
}

bool vow__entry_pause(struct vow__entry *e, uint64_t at_most_ms)
{
    struct vow__hub *h = vow__hub_of(e);
    uint64_t ms = PAUSE_FIRST_MS;
    for (uint32_t k = 0; k < e->pauses && ms < PAUSE_MOST_MS; k++)
        ms *= 2;
    ms = ms / 2 + vow_loop_random(h->loop) % ms;
    if (ms > at_most_ms)
        return false;
    e->pauses++;
    e->committed = e->state == ENTRY_COMMITTING;
    vow__entry_move(e, ENTRY_PAUSING);
    vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms), look_again,
                e);
    if (e->committed)
        vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                    vow__lease_commit_again, e);
    return true;
}

/* ---- leaving ------------------------------------------------------------ */

void vow__entry_look(struct vow__entry *e)
{
    if (!vow_call_pending(&e->idle))
        vow_call_soon(&e->idle, vow__hub_of(e)->loop, idle, e);
}

/* Does anybody still wait for it? */
static void idle(void *entry)
{
    struct vow__entry *e = entry;
    if (e->n_asks > 0)
        return;
    if (e->state == ENTRY_RUNNING && !e->dying &&
        (e->lease->ask->work != NULL || e->lease->alone)) {
        e->dying = true; /* who comes now waits for its end, and asks again */
        vow__lease_cancel(e->lease, NULL, false);
    } else if (e->state == ENTRY_WAITING ||
               (e->state == ENTRY_PAUSING && !e->committed)) {
        vow__entry_again(e);
    }
}

void vow__entry_free(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    (void)vow_call_stop(&e->timer);
    (void)vow_call_stop(&e->idle);
    (void)vow_call_stop(&e->pump);
    vow__chunks_clear(e);
    vow_future_unref(e->outcome);
    vow_error_unref(e->first_error);
    vow__table_remove(&h->names, &e->node);
    vow__count(&h->counts.names, (uint64_t)-1);
    vow__pool_give(e->home, e);
}
