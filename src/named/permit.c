/* SPDX-License-Identifier: MIT */
/* permit.c - pool permits on the hub's loop: request, queue, loss, release.
 *
 * WHY   A permit that is lost here while the store counts the permit as held
 *       blocks other callers for a lease. A permit that is held here while the
 *       store has granted the permit to another caller breaks the limit. So a
 *       permit is given back in every case, and counts as lost before the store
 *       can grant it again.
 * HOW   A permit has a token, and at most one step in flight that decides about
 *       the permit. If the caller leaves meanwhile, the permit is given back
 *       when the answer comes. A lost answer is recovered by the same step with
 *       the same token. A queued request is repeated while the store is down,
 *       for as long as the store keeps the request: the leader of a cluster may
 *       die without harm. permit_renew.c decides when a permit is due.
 * INVARIANTS  P1 to P3 in permit_internal.h, and
 *   Q1  a permit is HELD only while `valid_ns` has not passed, as of the last
 *       check
 *   Q2  every permit that is not NEW or OVER is in the table
 *   Q3  no user code runs inside vow__named_permits_leave(),
 *       vow__named_permits_close() and vow__named_permits_doubt()
 * LIMITS  as many permits as names.
 * THREADS  the hub's loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/sm.h"
#include "named/permit_internal.h"

#include <stdio.h>

/* Retries when the store is only busy. */
enum { BUSY_PAUSES = 6 };

static void permit_move(struct vow__named_permit *p,
                        enum vow__named_permit_state to);
static void permit_admit(struct vow__named_permit *p);
static int permit_add_to_table(struct vow__named_permit *p);
static void permit_acquire(struct vow__named_permit *p);
static void on_permit_acquired(int code, const vow_pool_permit *at, size_t n,
                               void *permit);
static void permit_answered(struct vow__named_permit *p, int code,
                            const vow_pool_permit *at);
static bool permit_may_ask_again(const struct vow__named_permit *p, int code);
static void permit_granted(struct vow__named_permit *p,
                           const vow_pool_permit *at);
static void permit_queued(struct vow__named_permit *p,
                          const vow_pool_permit *at);
static void permit_refuse(struct vow__named_permit *p, int code);
static void permit_lose(struct vow__named_permit *p);
static void permit_give_back(struct vow__named_permit *p);
static void permit_release(struct vow__named_permit *p);
static void on_permit_released(int code, const vow_pool_permit *at, size_t n,
                               void *permit);
static void permit_over(struct vow__named_permit *p, int code,
                        const char *text);

static const char CLOSED[] = "the authority was closed";

static struct vow__named_hub *permit_hub(const struct vow__named_permit *p)
{
    return p->handle->hub;
}

static struct vow__named_permit *permit_of_node(struct vow__table_node *n)
{
    return VOW__OUTER(n, struct vow__named_permit, by_token);
}

static void permit_move(struct vow__named_permit *p,
                        enum vow__named_permit_state to)
{
    static const uint8_t allowed[] = {
        [PERMIT_NEW] = VOW__TO(PERMIT_ASKING) | VOW__TO(PERMIT_OVER),
        [PERMIT_ASKING] = VOW__TO(PERMIT_QUEUED) | VOW__TO(PERMIT_PAUSING) |
                          VOW__TO(PERMIT_HELD) | VOW__TO(PERMIT_LEAVING) |
                          VOW__TO(PERMIT_OVER),
        [PERMIT_QUEUED] = VOW__TO(PERMIT_ASKING) | VOW__TO(PERMIT_LEAVING) |
                          VOW__TO(PERMIT_OVER),
        [PERMIT_PAUSING] = VOW__TO(PERMIT_ASKING) | VOW__TO(PERMIT_LEAVING) |
                           VOW__TO(PERMIT_OVER),
        [PERMIT_HELD] = VOW__TO(PERMIT_LOST) | VOW__TO(PERMIT_LEAVING) |
                        VOW__TO(PERMIT_OVER),
        [PERMIT_LOST] = VOW__TO(PERMIT_LEAVING) | VOW__TO(PERMIT_OVER),
        [PERMIT_LEAVING] = VOW__TO(PERMIT_OVER),
        [PERMIT_OVER] = 0};
    vow__sm_move(&p->state, (uint8_t)to, allowed);
}

/* ---- arriving ----------------------------------------------------------- */

void vow__named_permit_sync(void *permit)
{
    struct vow__named_permit *p = permit;
    if (p->state == PERMIT_NEW)
        permit_admit(p);
    else if (atomic_load(&p->left) && p->in_heap && p->state != PERMIT_LEAVING)
        permit_give_back(p); /* else an answer is on the way */
    else if (p->state == PERMIT_HELD && vow__named_permit_owes_start(p))
        vow__named_permit_hurry(p);
}

static void permit_admit(struct vow__named_permit *p)
{
    const struct vow__named_hub *h = permit_hub(p);
    if (atomic_load(&p->left)) {
        permit_over(p, VOW_ECANCELED, NULL);
    } else if (h->closing || h->store == NULL || !p->handle->attached) {
        permit_over(p, VOW_ECLOSED, CLOSED);
    } else {
        int rc = permit_add_to_table(p);
        if (rc < 0)
            permit_over(p, rc, NULL);
        else
            permit_acquire(p);
    }
}

/* Adds the permit to the table: keeps Q2, since the request follows. */
static int permit_add_to_table(struct vow__named_permit *p)
{
    struct vow__named_hub *h = permit_hub(p);
    int rc = h->permits == NULL ? vow__named_permits_open(h) : 0;
    if (rc < 0)
        return rc;
    if (h->permits->tokens.count >= h->opts.names_max)
        return VOW_EQUEUEFULL;
    vow__named_token_make(h, &p->request.token);
    p->by_token.name = (const char *)p->request.token.bytes;
    p->by_token.length = sizeof(p->request.token.bytes);
    return vow__table_add(&h->permits->tokens, &p->by_token);
}

/* ---- requesting --------------------------------------------------------- */

static void permit_acquire(struct vow__named_permit *p)
{
    struct vow__named_hub *h = permit_hub(p);
    vow__named_permit_unschedule(p);
    permit_move(p, PERMIT_ASKING);
    p->woken = false;
    p->renewing = false;
    p->round++;
    p->sent_ns = vow__named_hub_now_ns(h);
    vow__named_step_begins(h);
    h->store->ops->acquire(h->store, &p->request, on_permit_acquired,
                           vow__named_permit_ref(p));
}

static void on_permit_acquired(int code, const vow_pool_permit *at, size_t n,
                               void *permit)
{
    struct vow__named_permit *p = permit;
    struct vow__named_hub *h = permit_hub(p);
    if (p->state == PERMIT_ASKING) /* else the hub has closed */
        permit_answered(p, code == 0 && n != 1 ? VOW_ESTORE : code, at);
    vow__named_step_ended(h, code);
    vow__named_permit_unref(p);
}

static void permit_answered(struct vow__named_permit *p, int code,
                            const vow_pool_permit *at)
{
    bool own = code == 0 && at->status == VOW_STATUS_OWNED;
    bool waits = code == 0 && at->status == VOW_STATUS_WAITING;
    if (own || waits)
        vow__named_permit_confirmed(p, p->sent_ns);
    else if (code == VOW_EUNSURE && !p->known)
        vow__named_permit_confirmed(p, vow__named_hub_now_ns(permit_hub(p)));
    p->known = p->known || own || waits || code == VOW_EUNSURE;
    p->was_queued = p->was_queued || waits;
    if (code == 0)
        p->pauses = 0;
    if (atomic_load(&p->left)) {
        permit_give_back(p);
    } else if (own) {
        permit_granted(p, at);
    } else if (waits) {
        permit_queued(p, at);
    } else if (permit_may_ask_again(p, code)) {
        permit_move(p, PERMIT_PAUSING);
        vow__named_permit_pause(p);
    } else {
        permit_refuse(p, code == 0            ? VOW_EBUSY
                         : code == VOW_EAGAIN ? VOW_ESTORE
                                              : code);
    }
}

/* Returns whether to repeat the request: when the store is only busy or may
 * have granted the permit, and always for a queued request. The store keeps a
 * known request for a lease. */
static bool permit_may_ask_again(const struct vow__named_permit *p, int code)
{
    if (code == VOW_EAGAIN && !p->was_queued)
        return p->pauses < BUSY_PAUSES;
    bool away = code == VOW_ESTORE || code == VOW_EAGAIN;
    return (code == VOW_EUNSURE || (away && p->was_queued)) &&
           vow__named_hub_now_ns(permit_hub(p)) < p->kept_ns;
}

/* Takes a grant. If the answer came too late to be valid, the request is
 * repeated: the token keeps the permit, if the store still has the permit. */
static void permit_granted(struct vow__named_permit *p,
                           const vow_pool_permit *at)
{
    uint64_t now = vow__named_hub_now_ns(permit_hub(p));
    p->valid_ns = p->sent_ns + p->span_ns;
    if (now >= p->valid_ns) {
        permit_move(p, PERMIT_PAUSING);
        vow__named_permit_schedule_at(p, now);
        return;
    }
    permit_move(p, PERMIT_HELD);
    p->renew_ns = p->sent_ns + vow__named_permit_renewal_ns(p);
    vow__named_permit_schedule(p);
    p->grant.fence = at->fence;
    atomic_store(&p->rated,
                 at->limits.rate > 0 && (permit_hub(p)->store->ops->flags &
                                         VOW_STORE_STARTS) != 0);
    vow__named_settler_resolve(&p->answer_settler, vow_nothing());
}

static void permit_queued(struct vow__named_permit *p,
                          const vow_pool_permit *at)
{
    uint64_t now = vow__named_hub_now_ns(permit_hub(p));
    permit_move(p, PERMIT_QUEUED);
    p->again_ns = p->woken ? now : vow__named_permit_again_ns(p, at);
    p->renew_ns = p->sent_ns + vow__named_permit_renewal_ns(p);
    vow__named_permit_schedule(p);
}

/* Refuses the caller. Limits are never bypassed: no permit without a store. */
static void permit_refuse(struct vow__named_permit *p, int code)
{
    char text[VOW_LABEL_MAX + 128];
    const char *why = NULL;
    if (code == VOW_EINVAL) {
        (void)snprintf(
            text, sizeof(text), "pool '%.*s' never allows a weight of %lu",
            VOW_LABEL_MAX, p->label, (unsigned long)p->request.weight);
        why = text;
    } else if (code == VOW_EBUSY) {
        (void)snprintf(text, sizeof(text), "pool '%.*s' has no permit now",
                       VOW_LABEL_MAX, p->label);
        why = text;
    } else if (code == VOW_ESTORE || code == VOW_EUNSURE) {
        why = vow__named_store_trouble(permit_hub(p));
    }
    vow__named_settler_refuse(&p->answer_settler, code, why);
    permit_give_back(p);
}

/* ---- leaving ------------------------------------------------------------ */

/* Reports the loss. The store may still keep the permit, for the grace, so the
 * permit is not given back before the holder releases the grant. */
static void permit_lose(struct vow__named_permit *p)
{
    uint64_t lease_ns = p->request.lease_ms * VOW__NS_PER_MS;
    vow__named_settler_refuse(&p->lost_settler, VOW_ELOST,
                              "the permit could not be renewed in time");
    permit_move(p, PERMIT_LOST);
    vow__named_permit_schedule_at(p, p->valid_ns + (lease_ns - p->span_ns));
}

/* Releases the permit at the store, after the caller got an answer or left. */
static void permit_give_back(struct vow__named_permit *p)
{
    struct vow__named_hub *h = permit_hub(p);
    if (!p->known) {
        permit_over(p, VOW_ECANCELED, NULL);
        return;
    }
    vow__named_settler_refuse(&p->answer_settler, VOW_ECANCELED, NULL);
    vow__named_settler_resolve(&p->lost_settler, vow_nothing());
    permit_move(p, PERMIT_LEAVING);
    p->pauses = 0;
    p->release_until_ns =
        vow__named_hub_now_ns(h) + p->request.lease_ms * VOW__NS_PER_MS;
    permit_release(p);
}

static void permit_release(struct vow__named_permit *p)
{
    struct vow__named_hub *h = permit_hub(p);
    const vow_permit_hold hold = {.pool = p->request.pool,
                                  .limits_of = p->request.limits_of,
                                  .token = p->request.token};
    vow__named_permit_unschedule(p);
    vow__named_step_begins(h);
    h->store->ops->release(h->store, &hold, on_permit_released,
                           vow__named_permit_ref(p));
}

/* Repeats a release that may not have happened, for as long as the store keeps
 * the permit. */
static void on_permit_released(int code, const vow_pool_permit *at, size_t n,
                               void *permit)
{
    struct vow__named_permit *p = permit;
    struct vow__named_hub *h = permit_hub(p);
    (void)at;
    (void)n;
    if (p->state == PERMIT_LEAVING) {
        if (code < 0 && vow__named_hub_now_ns(h) < p->release_until_ns)
            vow__named_permit_pause(p);
        else
            permit_over(p, VOW_ECANCELED, NULL);
    }
    vow__named_step_ended(h, code);
    vow__named_permit_unref(p);
}

/* Ends the permit; `code` is for a caller that still waits. */
static void permit_over(struct vow__named_permit *p, int code, const char *text)
{
    vow__named_settler_refuse(&p->answer_settler, code, text); /* keeps P2 */
    vow__named_settler_resolve(&p->lost_settler, vow_nothing());
    vow__named_permit_unschedule(p);
    (void)vow_call_stop(&p->call);
    if (p->state != PERMIT_NEW)
        vow__table_remove(&permit_hub(p)->permits->tokens, &p->by_token);
    permit_move(p, PERMIT_OVER);
    vow__named_permit_unref(p);
}

/* ---- events of the store and of the hub --------------------------------- */

void vow__named_permits_changed(const vow_token *token, void *hub)
{
    struct vow__named_hub *h = hub;
    if (h->permits == NULL)
        return;
    struct vow__table_node *n = vow__table_find(
        &h->permits->tokens, (const char *)token->bytes, sizeof(token->bytes));
    struct vow__named_permit *p = n == NULL ? NULL : permit_of_node(n);
    if (p == NULL)
        return;
    p->woken = true;
    if (p->state == PERMIT_QUEUED && !atomic_load(&p->left))
        permit_acquire(p);
}

void vow__named_permits_doubt(struct vow__named_hub *h)
{
    struct vow__table_node *n = NULL;
    while (h->permits != NULL &&
           (n = vow__table_next(&h->permits->tokens, n)) != NULL) {
        struct vow__named_permit *p = permit_of_node(n);
        p->woken = true; /* for ASKING */
        p->again_ns = 0;
        if (p->state == PERMIT_QUEUED)
            vow__named_permit_schedule(p);
    }
}

/* Marks the permits; their releases begin later: keeps Q3. */
void vow__named_permits_leave(struct vow__named_hub *h, vow_authority *handle)
{
    struct vow__table_node *n = NULL;
    while (h->permits != NULL &&
           (n = vow__table_next(&h->permits->tokens, n)) != NULL) {
        struct vow__named_permit *p = permit_of_node(n);
        if (p->handle != handle)
            continue;
        vow__named_settler_refuse(&p->answer_settler, VOW_ECLOSED, CLOSED);
        vow__named_settler_refuse(&p->lost_settler, VOW_ELOST, CLOSED);
        atomic_store(&p->left, true);
        if (p->in_heap)
            vow__named_permit_schedule_at(p, 0);
    }
}

/* Ends all permits; the store gives permits back when closed. */
void vow__named_permits_close(struct vow__named_hub *h)
{
    struct vow__named_permits *s = h->permits;
    struct vow__table_node *n;
    if (s == NULL)
        return;
    s->timer_blocked = true; /* for good */
    while ((n = vow__table_next(&s->tokens, NULL)) != NULL) {
        vow__named_settler_refuse(&permit_of_node(n)->lost_settler, VOW_ELOST,
                                  CLOSED);
        permit_over(permit_of_node(n), VOW_ECLOSED, CLOSED);
    }
    (void)vow_call_stop(&s->timer);
    vow__table_fini(&s->tokens);
    h->permits = NULL;
    vow__mem_free(&h->alloc, s, sizeof(*s));
}

/* ---- due permits -------------------------------------------------------- */

/* Every branch removes the permit from the heap, or schedules a later time. */
void vow__named_permit_due(struct vow__named_permit *p, uint64_t now)
{
    if (p->state == PERMIT_LEAVING) {
        permit_release(p);
    } else if (atomic_load(&p->left)) {
        permit_give_back(p);
    } else if (p->state == PERMIT_LOST) {
        permit_over(p, VOW_ELOST, NULL);
    } else if (p->state == PERMIT_PAUSING ||
               (p->state == PERMIT_QUEUED && now >= p->again_ns)) {
        permit_acquire(p);
    } else if (p->state == PERMIT_HELD && now >= p->valid_ns) {
        permit_lose(p); /* keeps Q1 */
    } else {
        vow__named_permit_renew(p, now);
    }
}

void vow__named_permit_forgotten(struct vow__named_permit *p)
{
    vow__named_settler_refuse(&p->lost_settler, VOW_ELOST,
                              "the lease of the permit is over");
    permit_over(p, VOW_ELOST, NULL);
}
