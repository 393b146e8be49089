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
#include "named/hub_internal.h"

#include <stdio.h>
#include <string.h>

const uint8_t vow__entry_moves[] = {
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
static void join_others(struct vow__entry *e, struct vow__ask *a);
static bool wait_with(struct vow__entry *e, struct vow__ask *a,
                      const vow_record *r);
static bool wants_to_join(struct vow__entry *e, struct vow__ask *a,
                          const vow_record *r);
static bool only_look(const struct vow__entry *e);
static void peek(struct vow__entry *e);
static void on_peeked(int code, const vow_record *r, size_t n, void *entry);
static bool all_bare(const struct vow__entry *e);
static void claim_bare(struct vow__entry *e);
static void claim(struct vow__entry *e);
static bool still_patient(struct vow__entry *e);
static void obey(struct vow__entry *e, const vow_record *r);
static bool has_lapsed(const struct vow__entry *e);
static void owned(struct vow__entry *e, const vow_record *r);
static bool other_run_of(const struct vow__entry *e, vow_name *ret_name);
static void look_for_other_run(struct vow__entry *e, const vow_name *name);
static void on_other_run_seen(int code, const vow_record *r, size_t n,
                              void *entry);
static void wait_for_refresh(struct vow__entry *e);
static void wait_for(struct vow__entry *e, const vow_record *r);
static void idle(void *entry);

/* ---- coming ------------------------------------------------------------- */

void vow__entry_ask(struct vow__hub *h, struct vow__entry *e,
                    struct vow__ask *a)
{
    uint32_t mode = a->opts->mode;
    if (mode != VOW_SHARED && (h->store->ops->modes & 1u << mode) == 0) {
        vow__ask_refuse(a, VOW_ENOTSUP, "this store does not promise that");
        return;
    }
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
    struct vow__entry *e = vow__slab_take(&h->entries, &home);
    if (e == NULL)
        return NULL;
    e->home = home;
    e->name = *name;
    VOW__CLEAR(e, state, claimed_ns);
    e->node.name = (const char *)e->name.hash;
    e->node.length = sizeof(e->name.hash);
    if (vow__table_add(&h->names, &e->node) < 0) {
        vow__slab_give(home, e);
        return NULL;
    }
    vow__count(&h->counts.names, 1);
    return e;
}

struct vow__entry *vow__entry_find(const struct vow__hub *h,
                                   const vow_name *name)
{
    struct vow__table_node *n = vow__table_find(
        &h->names, (const char *)name->hash, sizeof(name->hash));
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__entry, node);
}

/* The first claims; others find out what to wait for. */
static void join(struct vow__entry *e, struct vow__ask *a)
{
    vow__list_push(&e->asks, &a->link);
    e->n_asks++;
    if (e->state != ENTRY_NEW && e->state != ENTRY_KEPT)
        join_others(e, a);
    if (e->state == ENTRY_NEW || e->state == ENTRY_KEPT)
        vow__entry_again(e);
}

/* It waits with them, if it may and wants to. */
static void join_others(struct vow__entry *e, struct vow__ask *a)
{
    bool runs = e->state == ENTRY_RUNNING || e->state == ENTRY_COMMITTING ||
                (e->state == ENTRY_PAUSING && e->committed);
    bool taken = runs || e->state == ENTRY_WAITING;
    bool force = (a->opts->flags & VOW_SHARE_FORCE) != 0;
    bool alone = e->lease != NULL && e->lease->alone;
    if (e->dying || (e->state == ENTRY_CLAIMING && force && !e->forced) ||
        (alone && vow__ask_policy(a) != VOW_DOWN_RUN))
        vow__ask_put_off(a);
    e->steps++; /* its code may close the authority: the entry stays */
    if (!a->later && taken)
        (void)wait_with(e, a, NULL);
    e->steps--;
    if (e->lease != NULL)
        atomic_store_explicit(&e->lease->waiters, e->n_asks,
                              memory_order_relaxed);
}

/* It waits for who works; or it may not and is settled, or does not want to and
 * asks again later: then false. */
static bool wait_with(struct vow__entry *e, struct vow__ask *a,
                      const vow_record *r)
{
    if ((a->opts->flags & VOW_SHARE_PEEK) != 0) {
        vow__ask_refuse(a, VOW_ENOENT, "there is no result yet");
        return false;
    }
    if ((a->opts->flags & VOW_SHARE_NOWAIT) != 0) {
        vow__ask_refuse(a, VOW_EBUSY, "another does the work");
        return false;
    }
    if (a->opts->join != NULL && !wants_to_join(e, a, r))
        return false;
    a->waited = true;
    vow__ask_waits(a);
    vow__chunks_follow(e, a);
    return true;
}

static bool wants_to_join(struct vow__entry *e, struct vow__ask *a,
                          const vow_record *r)
{
    struct vow__hub *h = vow__hub_of(e);
    vow_share_info running = {.fence = e->epoch};
    uint64_t began_ns = e->lease != NULL ? e->lease->began_ns : e->began_ns;
    running.age_ms = (vow__hub_now_ns(h) - began_ns) / VOW__NS_PER_MS;
    running.attempt = e->lease != NULL ? e->lease->attempt : 0;
    (void)snprintf(running.runner, sizeof(running.runner), "%s",
                   r != NULL          ? r->runner
                   : e->lease != NULL ? h->runner
                                      : "");
    (void)vow__ask_ref(a);
    bool joins = a->opts->join(&running, a->opts->user);
    bool here = a->entry != NULL; /* or its own code has canceled it */
    if (here && !joins) {
        a->own.flags |= VOW_SHARE_FORCE; /* a result of this run is none */
        vow__ask_put_off(a);
    }
    vow__ask_unref(a);
    return here && joins;
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
        if ((VOW__OUTER(l, const struct vow__ask, link)->opts->flags &
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
    if (code != 0 || (n == 1 && r->status == VOW_STATUS_DOUBT)) {
        vow__entry_claimed(code, r, n, entry);
        return;
    }
    e->steps--;
    vow__step_ended(vow__hub_of(e), code);
    vow__entry_move(e, ENTRY_NEW);
    if (r->status == VOW_STATUS_SETTLED && e->n_asks > 0) {
        claim(e); /* has the value */
        return;
    }
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        next = l->next;
        if ((a->opts->flags & VOW_SHARE_PEEK) != 0)
            vow__ask_refuse(a, VOW_ENOENT, "there is no result");
    }
    vow__entry_again(e);
}

/* Nothing of these askers outlives the run, nor needs a lease. */
static bool all_bare(const struct vow__entry *e)
{
    for (vow_link *l = e->asks; l != NULL; l = l->next) {
        const struct vow__ask *a = vow__ask_of(l);
        const vow_share_opts *o = a->opts;
        if (o == &vow__no_wishes)
            continue;
        if (o->flags != 0 || o->mode != VOW_SHARED || a->refresh ||
            (o->ttl_ms | o->fail_ttl_ms | o->stale_ms) != 0 || o->early > 0)
            return false;
    }
    return e->outcome == NULL && vow__hub_is_bare(vow__hub_of(e));
}

static void claim_bare(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    e->bare = true;
    e->epoch = ++h->floor;
    e->takeovers = 0;
    e->lease_ms = vow__ask_lease_ms(vow__ask_of(e->asks));
    vow__count(&h->counts.claims, 1);
    vow__entry_move(e, ENTRY_CLAIMING);
    vow__lease_begin(e, false);
}

static void claim(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    if (e->look_back) {
        vow__entry_look_back(e);
        return;
    }
    e->bare = false;
    if (all_bare(e)) {
        claim_bare(e);
        return;
    }
    h->stored = true;
    const struct vow__ask *first = vow__ask_of(e->asks);
    vow_claim_request ask = {.name = e->name,
                             .mode = first->opts->mode,
                             .lease_ms = vow__ask_lease_ms(first),
                             .takeovers = first->opts->takeovers,
                             .floor = h->floor,
                             .label = first->label,
                             .runner = h->runner};
    bool wait = false;
    e->forced = false;
    for (vow_link *l = e->asks; l != NULL; l = l->next) {
        const struct vow__ask *a = vow__ask_of(l);
        uint32_t flags = a->opts->flags;
        wait = wait || (flags & (VOW_SHARE_NOWAIT | VOW_SHARE_PEEK)) == 0;
        e->forced = e->forced || ((flags & VOW_SHARE_FORCE) != 0 && !a->waited);
    }
    if (!wait)
        ask.flags |= VOW_CLAIM_NOWAIT;
    if (e->forced || e->valueless)
        ask.flags |= VOW_CLAIM_FORCE;
    e->valueless = false;
    if (!e->unspent)
        vow__token_make(h, &e->token);
    e->unspent = true;
    ask.token = e->token;
    e->once = ask.mode == VOW_ONCE;
    vow__entry_move(e, ENTRY_CLAIMING);
    e->woken = false;
    e->claimed_ns = vow__hub_now_ns(h);
    e->lease_ms = ask.lease_ms;
    e->steps++;
    vow__count(&h->counts.claims, 1);
    vow__step_begins(h);
    h->store->ops->claim(h->store, &ask, vow__entry_claimed, e);
}

void vow__entry_claimed(int code, const vow_record *r, size_t n, void *entry)
{
    struct vow__entry *e = entry;
    (void)n;
    e->steps--;
    vow__step_ended(vow__hub_of(e), code);
    if (code == 0) {
        e->pauses = 0;
        e->busy_ns = 0;
        obey(e, r);
    } else if (code == VOW_EAGAIN && still_patient(e)) {
        (void)vow__entry_pause(e, UINT64_MAX);
    } else if (code == VOW_ESTORE || code == VOW_EUNSURE ||
               code == VOW_EAGAIN) {
        vow__entry_down(e);
    } else {
        struct vow__hub *h = vow__hub_of(e);
        bool of_the_value = code == VOW_EIO || code == VOW_E2BIG;
        const char *why = of_the_value ? vow__store_trouble(h) : NULL;
        VOW_AUTO(vow_error)
        error = why == NULL ? vow_error_new(h->loop, code, NULL)
                            : vow_error_new(h->loop, code, "%s", why);
        vow__entry_reject(e, error);
    }
}

/* A store that is only busy is waited for, as long as a lease. */
static bool still_patient(struct vow__entry *e)
{
    if (e->busy_ns == 0)
        e->busy_ns = e->claimed_ns;
    uint64_t ms =
        (vow__hub_now_ns(vow__hub_of(e)) - e->busy_ns) / VOW__NS_PER_MS;
    return e->n_asks > 0 && ms < e->lease_ms;
}

/* Do what the store says. */
static void obey(struct vow__entry *e, const vow_record *r)
{
    if (r->epoch > vow__hub_of(e)->floor)
        vow__hub_of(e)->floor = r->epoch;
    e->epoch = r->epoch;
    if (e->news != NULL && vow__news_settle(e, r))
        return;
    vow__news_drop(e);
    if (r->status == VOW_STATUS_OWNED && has_lapsed(e) && e->n_asks > 0) {
        /* The same token tells whose it is now. */
        (void)vow__entry_pause(e, UINT64_MAX);
    } else if (r->status == VOW_STATUS_OWNED) {
        e->unspent = false;
        owned(e, r);
    } else if (r->status == VOW_STATUS_WAITING) {
        wait_for(e, r);
    } else if (r->status == VOW_STATUS_SETTLED) {
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

/* The answer took so long that another may have it by now. */
static bool has_lapsed(const struct vow__entry *e)
{
    uint64_t took_ns = vow__hub_now_ns(vow__hub_of(e)) - e->claimed_ns;
    return took_ns / VOW__NS_PER_MS >= e->lease_ms;
}

/* The name is ours. Those who only look leave; those who race are told to, if
 * this is because another was lost. */
static void owned(struct vow__entry *e, const vow_record *r)
{
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        next = l->next;
        if ((a->opts->flags & VOW_SHARE_PEEK) != 0)
            vow__ask_refuse(a, VOW_ENOENT, "there is no result");
        else if ((a->opts->flags & VOW_SHARE_RACE) != 0 && a->waited)
            vow__ask_refuse(a, VOW_ERETRY, NULL);
    }
    e->takeovers = r->takeovers;
    vow_name name;
    if (other_run_of(e, &name))
        look_for_other_run(e, &name);
    else
        vow__lease_begin(e, false);
}

/* A result is made under its own name, or, while it is there, under the name of
 * its refresh. The owner of one of the two names looks at the other before it
 * begins: of two owners, at least the later one sees the other. */
static bool other_run_of(const struct vow__entry *e, vow_name *ret_name)
{
    bool aging = false;
    for (vow_link *l = e->asks; l != NULL; l = l->next) {
        const struct vow__ask *a = vow__ask_of(l);
        if (a->refresh) {
            *ret_name = a->target;
            return true;
        }
        aging = aging || a->opts->stale_ms > 0 || a->opts->early > 0;
    }
    *ret_name = vow__refresh_name(&e->name);
    return aging;
}

static void look_for_other_run(struct vow__entry *e, const vow_name *name)
{
    struct vow__hub *h = vow__hub_of(e);
    e->steps++;
    vow__step_begins(h);
    h->store->ops->peek(h->store, name, 1, on_other_run_seen, e);
}

/* A refresh gives way to the run of the name, also to one that is yet to come:
 * a result that has expired is made by an ordinary run. */
static void on_other_run_seen(int code, const vow_record *r, size_t n,
                              void *entry)
{
    struct vow__entry *e = entry;
    bool known = code == 0 && n == 1;
    bool refresh = e->asks != NULL && vow__ask_of(e->asks)->refresh;
    e->steps--;
    vow__step_ended(vow__hub_of(e), code);
    if (known && refresh && r->status != VOW_STATUS_SETTLED)
        vow__refresh_give_way(e);
    else if (known && !refresh && r->status == VOW_STATUS_WAITING)
        wait_for_refresh(e);
    else
        vow__lease_begin(e, false);
}

/* As if the refresh had the name. */
static void wait_for_refresh(struct vow__entry *e)
{
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        next = l->next;
        if ((a->opts->flags & VOW_SHARE_NOWAIT) != 0)
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
    uint32_t joined = 0;
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        bool calls = a->opts->join != NULL && !a->waited;
        next = l->next;
        if (a->waited)
            vow__chunks_follow(e, a);
        else
            joined += wait_with(e, a, r);
        if (calls) /* its code may have changed who waits */
            next = e->asks;
    }
    uint64_t lease_ms = r->left_ms + r->pulse_ms;
    uint64_t jitter = vow_loop_random(h->loop) % (lease_ms / 10 + 1);
    uint64_t ms = r->left_ms + jitter + 1;
    if (ms > h->opts.recheck_ms)
        ms = h->opts.recheck_ms;
    if (e->woken)
        ms = 0;
    vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                vow__entry_look_again, e);
    vow__chunks_read(e);
    const vow_name name = e->name;
    for (; joined > 0; joined--)
        vow__hub_tell(h, VOW_EVENT_JOINED, &name, r->epoch, 0, NULL);
}

void vow__entry_changed(const vow_record *r, void *hub)
{
    struct vow__entry *e = vow__entry_find(hub, &r->name);
    if (e != NULL && e->state == ENTRY_CLAIMING) {
        e->woken = true; /* before the answer that it waits for */
        if (r->status == VOW_STATUS_SETTLED)
            vow__news_keep(e, r);
    }
    if (e == NULL || e->state != ENTRY_WAITING)
        return;
    if (r->status != VOW_STATUS_SETTLED) {
        vow__entry_again(e);
        return;
    }
    (void)vow_call_stop(&e->timer);
    e->epoch = r->epoch;
    vow__entry_settle_record(e, r);
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
    } else if ((e->state == ENTRY_WAITING && e->later == NULL) ||
               (e->state == ENTRY_PAUSING && !e->committed)) {
        vow__entry_again(e);
    }
}

void vow__entry_free(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    (void)vow_call_stop(&e->timer);
    (void)vow_call_stop(&e->idle);
    vow__news_drop(e);
    vow__chunks_clear(e);
    if (e->outcome != NULL)
        vow_future_unref(e->outcome);
    if (e->commit.value != NULL)
        e->commit.value = vow_bytes_unref(e->commit.value);
    if (e->first_error != NULL)
        vow_error_unref(e->first_error);
    vow__table_remove(&h->names, &e->node);
    vow__count(&h->counts.names, (uint64_t)-1);
    vow__slab_give(e->home, e);
}
