/* SPDX-License-Identifier: MIT */
/* share.c - asking for named work: the options, and the two doors.
 *
 * HOW   Many askers of one loop for one name, with the same function and
 *       argument and no wishes of their own, are a crowd: one ask, and for each
 *       of them a link behind its future. The second of them makes it. Each
 *       leaves by canceling its link; with the last, the ask leaves.
 *
 * THREADS  the loop of who asks.
 */
#include "vow/share.h"
#include "collab/hub_internal.h"

enum { TAKEOVERS = 3, SHARE_FLAGS = 2 * VOW_SHARE_REFRESH - 1 };

static const char *complete(const vow_authority *a, const vow_share_opts *given,
                            vow_share_opts *ret_opts);
static vow_future *ask(const char *site, vow_authority *a, const vow_name *name,
                       const struct vow__ask *what, const vow_share_opts *opts);

static bool is_plain(const vow_share_opts *o);
static vow_future *join_crowd(const char *site, vow_authority *a,
                              struct vow__entry *e, const struct vow__ask *what,
                              const vow_share_opts *opts);

vow_future *vow_share_at(const char *site, vow_authority *a,
                         const vow_name *name, vow_shared_fn work, void *arg,
                         const vow_share_opts *opts)
{
    bool peeks = opts != NULL && opts->size == sizeof(*opts) &&
                 (opts->flags & VOW_SHARE_PEEK) != 0;
    if (work == NULL && !peeks)
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "there is no function that does the work");
    const struct vow__ask what = {.work = work, .arg = arg};
    struct vow__entry *e = NULL;
    if (vow__at_home(a) && !a->closing && is_plain(opts))
        e = vow__entry_find(a->hub, name);
    if (e == NULL || e->asks == NULL || e->dying)
        return ask(site, a, name, &what, opts);
    return join_crowd(site, a, e, &what, opts);
}

static bool is_plain(const vow_share_opts *o)
{
    return o == NULL ||
           (o->size == sizeof(*o) && o->flags == 0 && o->mode == VOW_SHARED &&
            o->deadline_ms == 0 && o->info == NULL && o->join == NULL &&
            o->stale_ms == 0 && o->early == 0 && o->store_down == 0);
}

static vow_future *join_crowd(const char *site, vow_authority *a,
                              struct vow__entry *e, const struct vow__ask *what,
                              const vow_share_opts *opts)
{
    const struct vow__ask *like =
        e->crowd != NULL ? e->crowd : vow__ask_of(e->asks);
    if (like->work != what->work || like->arg != what->arg)
        return ask(site, a, &e->name, what, opts);
    VOW_AUTO(vow_future) of_crowd = NULL;
    if (e->crowd != NULL) {
        vow__count(&a->hub->counts.asked, 1);
        vow__count(&a->hub->counts.joined, 1);
        return vow_then_at(site, vow_deferred_future(e->crowd->end.here), NULL,
                           NULL, NULL);
    }
    vow_name name = e->name;
    of_crowd = ask(site, a, &name, what, opts);
    e = vow__entry_find(a->hub, &name);
    if (e == NULL || e->asks == NULL || vow_state_of(of_crowd) != VOW_PENDING)
        return vow_future_ref(of_crowd);
    struct vow__ask *last = vow__ask_of(e->asks->prev);
    if (last->end.here == NULL ||
        vow_deferred_future(last->end.here) != of_crowd)
        return vow_future_ref(of_crowd);
    e->crowd = last;
    return vow_then_at(site, of_crowd, NULL, NULL, NULL);
}

vow_future *vow_claim_name_at(const char *site, vow_authority *a,
                              const vow_name *name, vow_lease_fn on_lease,
                              void *user, const vow_share_opts *opts)
{
    const struct vow__ask what = {.on_lease = on_lease, .arg = user};
    if (opts != NULL && opts->size == sizeof(*opts) &&
        (opts->flags & VOW_SHARE_REFRESH) != 0)
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "a result is made anew by vow_share()");
    return ask(site, a, name, &what, opts);
}

static vow_future *ask(const char *site, vow_authority *a, const vow_name *name,
                       const struct vow__ask *what, const vow_share_opts *opts)
{
    vow_share_opts o;
    const char *wrong = complete(a, opts, &o);
    if (wrong != NULL)
        return vow_refused_at(site, a->loop, VOW_EINVAL, wrong);
    if (a->closing)
        return vow_refused_at(site, a->loop, VOW_ECLOSED,
                              "the authority was closed");
    struct vow__ask *new = vow__ask_new(site, a, name, &o);
    if (new == NULL)
        return vow_refused_at(site, a->loop, VOW_ENOMEM, NULL);
    new->work = what->work;
    new->on_lease = what->on_lease;
    new->arg = what->arg;
    bool two_handed = what->work == NULL && (o.flags & VOW_SHARE_PEEK) == 0;
    return vow__ask_send(new, two_handed);
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
    if (o.pulse_ms >= lease_ms)
        return "a pulse must be shorter than the lease";
    if (!(o.early >= 0))
        return "early is a number from 0 on";
    return NULL;
}
