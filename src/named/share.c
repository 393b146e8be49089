/* SPDX-License-Identifier: MIT */
/* share.c - requests for named work: options, vow_share(), vow_claim_name().
 *
 * HOW   Callers of one loop that request one name with the same function and
 *       argument and with plain options get a shared waiter: one waiter, and
 *       for each caller a link behind the waiter's future. The second caller
 *       makes the shared waiter. A caller leaves by canceling the link; with
 *       the last link the waiter leaves.
 *
 * THREADS  the loop of the caller.
 */
#include "vow/share.h"
#include "named/named_internal.h"

enum { TAKEOVERS = 3, SHARE_FLAGS = 2 * VOW_SHARE_REFRESH - 1 };

const vow_share_opts vow__named_default_share_opts = {
    .size = sizeof(vow__named_default_share_opts), .takeovers = TAKEOVERS};

/* The arguments of a request. */
struct share_request {
    const char *site;
    vow_authority *handle;
    const vow_name *name;
    vow_shared_fn work; /* NULL: on_lease is used */
    vow_lease_fn on_lease;
    void *arg;
    const vow_share_opts *opts;
    bool entry_known;               /* `entry` was looked up */
    struct vow__named_entry *entry; /* NULL: no entry exists */
};

static const char *share_opts_complete(const vow_authority *a,
                                       const vow_share_opts *given,
                                       vow_share_opts *ret_opts);
static vow_future *share_send(const struct share_request *req);
static bool opts_are_plain(const vow_share_opts *o);
static vow_future *join_shared_waiter(const struct share_request *req);

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
    struct share_request req = {.site = site,
                                .handle = a,
                                .name = name,
                                .work = work,
                                .arg = arg,
                                .opts = opts};
    if (vow__named_is_hub_loop(a) && !a->closing && opts_are_plain(opts)) {
        req.entry_known = true;
        req.entry = vow__named_entry_find(a->hub, name, false);
    }
    if (req.entry == NULL || req.entry->waiters == NULL || req.entry->unwanted)
        return share_send(&req);
    return join_shared_waiter(&req);
}

static bool opts_are_plain(const vow_share_opts *o)
{
    return o == NULL ||
           (o->size == sizeof(*o) && o->flags == 0 && o->mode == VOW_SHARED &&
            o->deadline_ms == 0 && o->info == NULL && o->join == NULL &&
            o->stale_ms == 0 && o->early == 0 && o->store_down == 0);
}

static vow_future *join_shared_waiter(const struct share_request *req)
{
    struct vow__named_entry *e = req->entry;
    struct vow__named_hub *h = req->handle->hub;
    const struct vow__named_waiter *like =
        e->shared_waiter != NULL ? e->shared_waiter
                                 : vow__named_waiter_of(e->waiters);
    if (like->work != req->work || like->arg != req->arg)
        return share_send(req);
    if (e->shared_waiter != NULL) {
        vow__named_count(&h->counts.asked, 1);
        vow__named_count(&h->counts.joined, 1);
        return vow_then_at(req->site,
                           vow_deferred_future(e->shared_waiter->settler.local),
                           NULL, NULL, NULL);
    }
    VOW_AUTO(vow_future) shared_result = share_send(req);
    e = vow__named_entry_find(h, req->name, false);
    if (e == NULL || e->waiters == NULL ||
        vow_state_of(shared_result) != VOW_PENDING)
        return vow_future_ref(shared_result);
    struct vow__named_waiter *last = vow__named_waiter_of(e->waiters->prev);
    if (last->settler.local == NULL ||
        vow_deferred_future(last->settler.local) != shared_result)
        return vow_future_ref(shared_result);
    e->shared_waiter = last;
    return vow_then_at(req->site, shared_result, NULL, NULL, NULL);
}

vow_future *vow_claim_name_at(const char *site, vow_authority *a,
                              const vow_name *name, vow_lease_fn on_lease,
                              void *user, const vow_share_opts *opts)
{
    VOW__ASSERT_THREAD(a->loop);
    const struct share_request req = {.site = site,
                                      .handle = a,
                                      .name = name,
                                      .on_lease = on_lease,
                                      .arg = user,
                                      .opts = opts};
    if (opts != NULL && opts->size == sizeof(*opts) &&
        (opts->flags & VOW_SHARE_REFRESH) != 0)
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "VOW_SHARE_REFRESH requires vow_share()");
    return share_send(&req);
}

static vow_future *share_send(const struct share_request *req)
{
    vow_authority *a = req->handle;
    const vow_share_opts *o = &vow__named_default_share_opts;
    vow_share_opts complete_opts;
    const char *wrong = NULL;
    if (req->opts != NULL) {
        wrong = share_opts_complete(a, req->opts, &complete_opts);
        o = &complete_opts;
    }
    if (wrong != NULL)
        return vow_refused_at(req->site, a->loop, VOW_EINVAL, wrong);
    if (a->closing)
        return vow_refused_at(req->site, a->loop, VOW_ECLOSED,
                              "the authority was closed");
    struct vow__named_waiter *new =
        vow__named_waiter_new(req->site, a, req->name, o);
    if (new == NULL)
        return vow_refused_at(req->site, a->loop, VOW_ENOMEM, NULL);
    new->entry_known = req->entry_known;
    new->entry = req->entry;
    new->work = req->work;
    new->on_lease = req->on_lease;
    new->arg = req->arg;
    bool with_claim = req->work == NULL && (o->flags & VOW_SHARE_PEEK) == 0;
    return vow__named_waiter_send(new, with_claim);
}

/* Checks and completes the options. Returns NULL or an error text. */
static const char *share_opts_complete(const vow_authority *a,
                                       const vow_share_opts *given,
                                       vow_share_opts *ret_opts)
{
    vow_share_opts *o = ret_opts;
    if (given->size != sizeof(*o))
        return "the options are of another version";
    *o = *given;
    uint64_t lease_ms = o->lease_ms > 0 ? o->lease_ms : a->hub->opts.lease_ms;
    if (o->takeovers == 0)
        o->takeovers = TAKEOVERS;
    else if (o->takeovers == VOW_NO_TAKEOVER)
        o->takeovers = 0;
    if (o->mode > VOW_ONCE || (o->flags & ~(uint32_t)SHARE_FLAGS) != 0 ||
        o->store_down > VOW_DOWN_FAIL)
        return "an unknown mode, flag or policy";
    if (o->mode != VOW_SHARED && o->store_down == VOW_DOWN_RUN)
        return "work of this mode is not done without the store";
    bool refreshes = (o->stale_ms > 0 && o->stale_ms != UINT64_MAX) ||
                     o->early > 0 || (o->flags & VOW_SHARE_REFRESH) != 0;
    if (o->mode == VOW_ONCE && refreshes)
        return "work of mode once cannot be refreshed: leave out stale_ms, "
               "early and VOW_SHARE_REFRESH";
    if (o->pulse_ms >= lease_ms)
        return "a pulse must be shorter than the lease";
    if (!(o->early >= 0))
        return "early must be 0 or greater";
    return NULL;
}
