/* SPDX-License-Identifier: MIT */
/* share.c - asking for named work: the options, and the two doors.
 *
 * HOW   Many askers of one loop for one name, with the same function and
 *       argument and no wishes of their own, are a shared_waiter: one ask, and for each
 *       of them a link behind its future. The second of them makes it. Each
 *       leaves by canceling its link; with the last, the ask leaves.
 *
 * THREADS  the loop of who asks.
 */
#include "vow/share.h"
#include "named/named_internal.h"

enum { TAKEOVERS = 3, SHARE_FLAGS = 2 * VOW_SHARE_REFRESH - 1 };

const vow_share_opts vow__named_default_share_opts = {
    .size = sizeof(vow__named_default_share_opts), .takeovers = TAKEOVERS};

/* What somebody asks for. */
struct question {
    const char *site;
    vow_authority *of;
    const vow_name *name;
    vow_shared_fn work; /* NULL: */
    vow_lease_fn on_lease;
    void *arg;
    const vow_share_opts *opts;
    bool looked;                    /* for the entry of the name: */
    struct vow__named_entry *entry; /* NULL: there is none */
};

static const char *complete(const vow_authority *a, const vow_share_opts *given,
                            vow_share_opts *ret_opts);
static vow_future *ask(const struct question *q);
static bool is_plain(const vow_share_opts *o);
static vow_future *join_crowd(const struct question *q);

vow_future *vow_share_at(const char *site, vow_authority *a,
                         const vow_name *name, vow_shared_fn work, void *arg,
                         const vow_share_opts *opts)
{
    VOW__ASSERT_THREAD(a->loop);
    bool peeks = opts != NULL && opts->size == sizeof(*opts) &&
                 (opts->flags & VOW_SHARE_PEEK) != 0;
    if (work == NULL && !peeks)
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "there is no function that does the work");
    struct question q = {.site = site,
                         .of = a,
                         .name = name,
                         .work = work,
                         .arg = arg,
                         .opts = opts};
    if (vow__named_is_hub_loop(a) && !a->closing && is_plain(opts)) {
        q.looked = true;
        q.entry = vow__named_entry_find(a->hub, name);
    }
    if (q.entry == NULL || q.entry->waiters == NULL || q.entry->unwanted)
        return ask(&q);
    return join_crowd(&q);
}

static bool is_plain(const vow_share_opts *o)
{
    return o == NULL ||
           (o->size == sizeof(*o) && o->flags == 0 && o->mode == VOW_SHARED &&
            o->deadline_ms == 0 && o->info == NULL && o->join == NULL &&
            o->stale_ms == 0 && o->early == 0 && o->store_down == 0);
}

static vow_future *join_crowd(const struct question *q)
{
    struct vow__named_entry *e = q->entry;
    struct vow__named_hub *h = q->of->hub;
    const struct vow__named_waiter *like =
        e->shared_waiter != NULL ? e->shared_waiter
                                 : vow__named_waiter_of(e->waiters);
    if (like->work != q->work || like->arg != q->arg)
        return ask(q);
    if (e->shared_waiter != NULL) {
        vow__named_count(&h->counts.asked, 1);
        vow__named_count(&h->counts.joined, 1);
        return vow_then_at(q->site,
                           vow_deferred_future(e->shared_waiter->settler.here),
                           NULL, NULL, NULL);
    }
    VOW_AUTO(vow_future) of_shared = ask(q);
    e = vow__named_entry_find(h, q->name);
    if (e == NULL || e->waiters == NULL ||
        vow_state_of(of_shared) != VOW_PENDING)
        return vow_future_ref(of_shared);
    struct vow__named_waiter *last = vow__named_waiter_of(e->waiters->prev);
    if (last->settler.here == NULL ||
        vow_deferred_future(last->settler.here) != of_shared)
        return vow_future_ref(of_shared);
    e->shared_waiter = last;
    return vow_then_at(q->site, of_shared, NULL, NULL, NULL);
}

vow_future *vow_claim_name_at(const char *site, vow_authority *a,
                              const vow_name *name, vow_lease_fn on_lease,
                              void *user, const vow_share_opts *opts)
{
    VOW__ASSERT_THREAD(a->loop);
    const struct question q = {.site = site,
                               .of = a,
                               .name = name,
                               .on_lease = on_lease,
                               .arg = user,
                               .opts = opts};
    if (opts != NULL && opts->size == sizeof(*opts) &&
        (opts->flags & VOW_SHARE_REFRESH) != 0)
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "a result is made anew by vow_share()");
    return ask(&q);
}

static vow_future *ask(const struct question *q)
{
    vow_authority *a = q->of;
    const vow_share_opts *o = &vow__named_default_share_opts;
    vow_share_opts complete_ones;
    const char *wrong = NULL;
    if (q->opts != NULL) {
        wrong = complete(a, q->opts, &complete_ones);
        o = &complete_ones;
    }
    if (wrong != NULL)
        return vow_refused_at(q->site, a->loop, VOW_EINVAL, wrong);
    if (a->closing)
        return vow_refused_at(q->site, a->loop, VOW_ECLOSED,
                              "the authority was closed");
    struct vow__named_waiter *new =
        vow__named_waiter_new(q->site, a, q->name, o);
    if (new == NULL)
        return vow_refused_at(q->site, a->loop, VOW_ENOMEM, NULL);
    new->looked = q->looked;
    new->entry = q->entry;
    new->work = q->work;
    new->on_lease = q->on_lease;
    new->arg = q->arg;
    bool two_handed = q->work == NULL && (o->flags & VOW_SHARE_PEEK) == 0;
    return vow__named_waiter_send(new, two_handed);
}

/* NULL, or what is wrong. */
static const char *complete(const vow_authority *a, const vow_share_opts *given,
                            vow_share_opts *ret_opts)
{
    vow_share_opts o = {.size = sizeof(o)};
    if (given != NULL && given->size != sizeof(o))
        return "the options are of another version";
    if (given != NULL)
        o = *given;
    uint64_t lease_ms = o.lease_ms > 0 ? o.lease_ms : a->hub->opts.lease_ms;
    if (o.takeovers == 0)
        o.takeovers = TAKEOVERS;
    else if (o.takeovers == VOW_NO_TAKEOVER)
        o.takeovers = 0;
    *ret_opts = o;
    if (o.mode > VOW_ONCE || (o.flags & ~(uint32_t)SHARE_FLAGS) != 0 ||
        o.store_down > VOW_DOWN_FAIL)
        return "an unknown mode, flag or policy";
    if (o.mode != VOW_SHARED && o.store_down == VOW_DOWN_RUN)
        return "work of this mode is not done without the store";
    bool anew = (o.stale_ms > 0 && o.stale_ms != UINT64_MAX) || o.early > 0 ||
                (o.flags & VOW_SHARE_REFRESH) != 0;
    if (o.mode == VOW_ONCE && anew)
        return "work of mode once is not made anew: leave out stale_ms, early "
               "and VOW_SHARE_REFRESH";
    if (o.pulse_ms >= lease_ms)
        return "a pulse must be shorter than the lease";
    if (!(o.early >= 0))
        return "early is a number from 0 on";
    return NULL;
}
