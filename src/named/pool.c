/* SPDX-License-Identifier: MIT */
/* pool.c - named limits, on the caller's loop.
 *
 * HOW   A request for a permit is a message to the hub's loop, and the answer
 *       is a promise. The grant is part of the permit and belongs to the
 *       caller's loop; release and cancel are a flag and a message. All memory
 *       for the answer, for a loss and for the release is allocated with the
 *       permit, so a permit cannot be lost for lack of memory. If the caller's
 *       loop is the hub's loop, the message is a call from the loop's queue:
 *       first come first served holds there as well.
 * INVARIANTS
 *   U1  the caller's loop has one reference of a permit until the answer came
 *       and the promise of the loss is settled
 * THREADS  the loop of the handle; limit_begin() and on_limit_answer(): the
 *          hub's loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/permit_internal.h"

#include <string.h>

enum { DRIFT_PERCENT = 1, MARGIN_NS = 2 * VOW__NS_PER_MS, RENEWALS = 3 };
static const uint64_t LEASE_MS_MAX = (uint64_t)1 << 40;

struct vow_pool {
    vow_backing backing;
    uint32_t refs;
    vow_authority *handle; /* counted */
    vow_name name;
    vow_pool_limits limits;
    uint64_t lease_ms;
    uint64_t span_ns;
    uint64_t every_ns;
    char label[];
};

/* A request to read or change limits. */
struct limit {
    vow_authority *handle; /* counted */
    struct vow__named_settler settler;
    vow_name name;
    bool change;
    vow_pool_limits to;
    char label[];
};

/* The value of the future, and the text behind the struct. */
struct limit_block {
    vow_pool_info info;
    struct vow_alloc alloc;
    char label[];
};

static bool pool_label_is_valid(const char *label);
static bool pool_limits_are_valid(const vow_pool_limits *l);
static vow_name pool_name_of(const char *label);
static int pool_set_times(vow_pool *o, const vow_pool_opts *opts);
static void pool_ref(const vow_backing *b);
static void pool_unref(const vow_backing *b);
static vow_future *backing_acquire(const vow_backing *b, const char *site,
                                   const char *key, uint32_t weight);
static vow_future *pool_acquire(const char *site, vow_pool *o, const char *key,
                                const vow_permit_request *what,
                                bool behind_gate);
static struct vow__named_permit *permit_new(vow_pool *o, const char *key,
                                            const vow_permit_request *what);
static vow_future *permit_send(const char *site, struct vow__named_permit *p);
static int permit_notify_hub(struct vow__named_permit *p);
static void permit_sync_by_message(void *permit);
static void permit_leave(struct vow__named_permit *p);
static void on_permit_cancel(vow_error *why, void *permit);
static void on_permit_answer(vow_future *f, void *permit);
static void grant_started(vow_grant *g);
static void grant_release(vow_grant *g);
static void grant_free(vow_grant *g);
static void permit_unref_when_over(struct vow__named_permit *p);
static void on_lost_settled(vow_future *f, void *permit);
static void limit_begin(void *limit);
static void on_limit_answer(int code, const vow_pool_info *info, size_t n,
                            void *limit);
static struct limit_block *limit_block_new(const vow_authority *a,
                                           const vow_pool_info *info);
static void limit_block_drop(void *block);
static void limit_free(struct limit *l);

/* ---- pools -------------------------------------------------------------- */

int vow_pool_open(vow_authority *a, const char *label,
                  const vow_pool_opts *opts, vow_pool **ret_pool)
{
    VOW__ASSERT_THREAD(a->loop);
    const vow_pool_opts none = {.size = sizeof(none)};
    const vow_pool_opts *given = opts == NULL ? &none : opts;
    if (!pool_label_is_valid(label) || given->size != sizeof(none) ||
        !pool_limits_are_valid(&given->limits))
        return VOW_EINVAL;
    size_t size = strlen(label) + 1;
    vow_pool *o = vow__mem_zero(&a->alloc, sizeof(*o) + size);
    if (o == NULL)
        return VOW_ENOMEM;
    o->backing = (vow_backing){backing_acquire, pool_ref, pool_unref};
    o->refs = 1;
    o->handle = vow__named_handle_ref(a);
    o->name = pool_name_of(label);
    o->limits = given->limits;
    memcpy(o->label, label, size);
    if (pool_set_times(o, given) < 0) {
        vow_pool_unref(o);
        return VOW_EINVAL;
    }
    *ret_pool = o;
    return 0;
}

static bool pool_label_is_valid(const char *label)
{
    return label[0] != '\0' &&
           strnlen(label, VOW_LABEL_MAX + 1) <= VOW_LABEL_MAX;
}

static bool pool_limits_are_valid(const vow_pool_limits *l)
{
    return l->rate == 0 || l->window_us > 0;
}

static vow_name pool_name_of(const char *label)
{
    const vow_field fields[] = {vow_field_text("pool"), vow_field_text(label)};
    return vow_name_make(NULL, fields, 2);
}

/* Sets how long a permit is valid without a renewal, less the clock drift, a
 * margin and the grace, and the time between renewals. Returns 0 or
 * VOW_EINVAL. */
static int pool_set_times(vow_pool *o, const vow_pool_opts *opts)
{
    const vow_authority_opts *hub = &o->handle->hub->opts;
    uint64_t lease_ms = opts->lease_ms > 0 ? opts->lease_ms : hub->lease_ms;
    if (lease_ms > LEASE_MS_MAX)
        lease_ms = LEASE_MS_MAX;
    uint64_t lease_ns = lease_ms * VOW__NS_PER_MS;
    uint64_t less = lease_ns / 100 * DRIFT_PERCENT + MARGIN_NS;
    if (opts->grace_ms >= lease_ms)
        return VOW_EINVAL;
    less += opts->grace_ms * VOW__NS_PER_MS;
    if (less >= lease_ns)
        return VOW_EINVAL;
    o->lease_ms = lease_ms;
    o->span_ns = lease_ns - less;
    o->every_ns = o->span_ns / RENEWALS + 1;
    uint64_t pulse_ns = hub->pulse_ms * VOW__NS_PER_MS;
    if (opts->lease_ms == 0 && pulse_ns < o->every_ns)
        o->every_ns = pulse_ns;
    return 0;
}

vow_pool *vow_pool_ref(vow_pool *p)
{
    if (p != NULL)
        p->refs++;
    return p;
}

vow_pool *vow_pool_unref(vow_pool *p)
{
    if (p == NULL || --p->refs > 0)
        return NULL;
    vow_authority *a = p->handle;
    struct vow_alloc alloc = a->alloc;
    vow__mem_free(&alloc, p, sizeof(*p) + strlen(p->label) + 1);
    vow__named_handle_unref(a);
    return NULL;
}

const vow_backing *vow_pool_backing(vow_pool *p)
{
    return &p->backing;
}

static vow_pool *pool_of_backing(const vow_backing *b)
{
    return VOW__OUTER((uintptr_t)b, vow_pool, backing);
}

static void pool_ref(const vow_backing *b)
{
    (void)vow_pool_ref(pool_of_backing(b));
}

static void pool_unref(const vow_backing *b)
{
    vow_pool_unref(pool_of_backing(b));
}

/* ---- requesting a permit ------------------------------------------------ */

vow_future *vow_pool_acquire_at(const char *site, vow_pool *p, const char *key,
                                uint32_t weight)
{
    VOW__ASSERT_THREAD(p->handle->loop);
    return pool_acquire(site, p, key,
                        &(const vow_permit_request){.weight = weight}, false);
}

vow_future *vow_pool_try_at(const char *site, vow_pool *p, const char *key,
                            uint32_t weight)
{
    VOW__ASSERT_THREAD(p->handle->loop);
    return pool_acquire(
        site, p, key,
        &(const vow_permit_request){.weight = weight, .flags = VOW_PERMIT_TRY},
        false);
}

static vow_future *backing_acquire(const vow_backing *b, const char *site,
                                   const char *key, uint32_t weight)
{
    return pool_acquire(site, pool_of_backing(b), key,
                        &(const vow_permit_request){.weight = weight}, true);
}

/* Requests a permit. A gate reports the start of the work; for other callers
 * the work starts with the answer. */
static vow_future *pool_acquire(const char *site, vow_pool *o, const char *key,
                                const vow_permit_request *what,
                                bool behind_gate)
{
    vow_loop *loop = o->handle->loop;
    if (what->weight == 0)
        return vow_refused_at(site, loop, VOW_EINVAL,
                              "a permit has a weight of 1 or more");
    if (o->handle->closing)
        return vow_refused_at(site, loop, VOW_ECLOSED,
                              "the authority was closed");
    struct vow__named_permit *p = permit_new(o, key, what);
    if (p == NULL)
        return vow_refused_at(site, loop, VOW_ENOMEM, NULL);
    p->behind_gate = behind_gate;
    return permit_send(site, p);
}

static struct vow__named_permit *permit_new(vow_pool *o, const char *key,
                                            const vow_permit_request *what)
{
    size_t length = strlen(o->label);
    size_t extra = key == NULL ? 0 : strlen(key) + 1;
    size_t room = 2 * (length + 1) + extra; /* with and without the key */
    struct vow__named_permit *p =
        vow__mem_zero(&o->handle->alloc, sizeof(*p) + room);
    if (p == NULL)
        return NULL;
    atomic_init(&p->refs, 2); /* the hub's loop and this loop: keeps U1 */
    p->handle = vow__named_handle_ref(o->handle);
    p->span_ns = o->span_ns;
    p->every_ns = o->every_ns;
    p->grant = (vow_grant){
        .release = grant_release, .free = grant_free, .started = grant_started};
    p->request = *what;
    p->request.pool = o->name;
    p->request.limits_of = o->name;
    p->request.lease_ms = o->lease_ms;
    p->request.limits = o->limits;
    p->request.label = p->label;
    p->request.runner = o->handle->hub->runner;
    memcpy(p->label, o->label, length);
    if (key != NULL) {
        const vow_field field = vow_field_text(key);
        p->request.pool = vow_name_step(NULL, &o->name, &field, 1);
        p->label[length] = ':';
        memcpy(p->label + length + 1, key, extra);
    }
    p->size = sizeof(*p) + room;
    p->request.limits_label =
        memcpy(p->label + length + extra + 1, o->label, length + 1);
    return p;
}

void vow__named_permit_unref(struct vow__named_permit *p)
{
    if (atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    vow_authority *handle = p->handle;
    struct vow_alloc alloc = handle->alloc;
    vow__mem_free(&alloc, p, p->size);
    vow__named_handle_unref(handle);
}

/* Sends the permit to the hub's loop. The permit moves, also on failure. */
static vow_future *permit_send(const char *site, struct vow__named_permit *p)
{
    vow_loop *loop = p->handle->loop;
    const vow_loop *hub_loop = p->handle->hub->loop;
    vow_future *f = vow_promise_at(site, loop, &p->result);
    vow_future *answer =
        vow__named_settler_open(site, loop, hub_loop, &p->answer_settler);
    p->grant.lost =
        vow__named_settler_open(site, loop, hub_loop, &p->lost_settler);
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0)
        rc = vow_error_code(vow_error_of(answer));
    if (rc == 0)
        rc = vow_error_code(vow_error_of(p->grant.lost));
    if (rc == 0)
        rc = permit_notify_hub(p);
    if (rc == 0) {
        vow_on_cancel_now(p->result, on_permit_cancel, p);
        vow_watch_start(&p->watch, answer, on_permit_answer, p);
        vow_future_unref(answer);
        return f;
    }
    vow_future_unref(f);
    vow_future_unref(answer);
    vow_future_unref(p->grant.lost);
    (void)vow_resolve_drop(p->result, vow_nothing());
    vow__named_settler_drop(&p->answer_settler);
    vow__named_settler_drop(&p->lost_settler);
    vow__named_permit_unref(p);
    vow__named_permit_unref(p);
    return vow_refused_at(site, loop, rc, NULL);
}

/* Makes the hub's loop read the flags. A closing handle gives all permits back,
 * so no message is needed then, and the hub's loop may be gone. */
static int permit_notify_hub(struct vow__named_permit *p)
{
    vow_authority *a = p->handle;
    if (vow__named_is_hub_loop(a)) {
        if (p->state != PERMIT_OVER)
            vow_call_soon(&p->call, a->loop, vow__named_permit_sync, p);
        return 0;
    }
    if (a->closing)
        return VOW_ECLOSED;
    int rc = vow_loop_post(a->hub->loop, permit_sync_by_message,
                           vow__named_permit_ref(p));
    if (rc < 0)
        vow__named_permit_unref(p);
    return rc;
}

static void permit_sync_by_message(void *permit)
{
    vow__named_permit_sync(permit);
    vow__named_permit_unref(permit);
}

/* If the message cannot be sent, the hub's loop finds the flag later. */
static void permit_leave(struct vow__named_permit *p)
{
    if (!atomic_exchange(&p->left, true))
        (void)permit_notify_hub(p);
}

static void on_permit_cancel(vow_error *why, void *permit)
{
    struct vow__named_permit *p = permit;
    vow_deferred *result = p->result;
    p->result = NULL;
    permit_leave(p);
    (void)vow_reject_drop(result, vow_error_ref(why));
}

/* Runs when the hub's loop has answered, or when this loop closes. */
static void on_permit_answer(vow_future *f, void *permit)
{
    struct vow__named_permit *p = permit;
    vow_deferred *result = p->result;
    vow_error *error = vow_error_of(f);
    p->result = NULL;
    if (result != NULL && error == NULL) {
        if (!p->behind_gate)
            grant_started(&p->grant);
        (void)vow_resolve_drop(result, vow_grant_value(&p->grant));
        return;
    }
    if (result != NULL)
        (void)vow_reject_drop(result, vow_error_ref(error));
    if (vow_loop_closing(p->handle->loop))
        permit_leave(p);
    permit_unref_when_over(p);
}

/* ---- grants ------------------------------------------------------------- */

static struct vow__named_permit *permit_of_grant(vow_grant *g)
{
    return VOW__OUTER(g, struct vow__named_permit, grant);
}

/* If the message cannot be sent, the next renewal reports the start. */
static void grant_started(vow_grant *g)
{
    struct vow__named_permit *p = permit_of_grant(g);
    if (atomic_load(&p->rated) && !atomic_exchange(&p->started, true))
        (void)permit_notify_hub(p);
}

static void grant_release(vow_grant *g)
{
    permit_leave(permit_of_grant(g));
}

static void grant_free(vow_grant *g)
{
    permit_unref_when_over(permit_of_grant(g));
}

/* Drops the reference of this loop after the hub's loop has settled the loss,
 * so that a loss that the caller does not need is not reported as unhandled. */
static void permit_unref_when_over(struct vow__named_permit *p)
{
    vow_future *lost = p->grant.lost;
    if (vow_state_of(lost) == VOW_PENDING)
        vow_watch_start(&p->watch, lost, on_lost_settled, p);
    else
        on_lost_settled(lost, p);
    vow_future_unref(lost);
}

static void on_lost_settled(vow_future *f, void *permit)
{
    (void)vow_error_of(f);
    vow__named_permit_unref(permit);
}

/* ---- limits ------------------------------------------------------------- */

vow_future *vow_pool_limit_at(const char *site, vow_authority *a,
                              const char *label, const vow_pool_limits *limits)
{
    VOW__ASSERT_THREAD(a->loop);
    if (!pool_label_is_valid(label))
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "a pool has a label of 1 to 255 bytes");
    if (limits != NULL && !pool_limits_are_valid(limits))
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "a rate needs a window");
    if (a->closing)
        return vow_refused_at(site, a->loop, VOW_ECLOSED,
                              "the authority was closed");
    size_t size = strlen(label) + 1;
    struct limit *l = vow__mem_zero(&a->alloc, sizeof(*l) + size);
    if (l == NULL)
        return vow_refused_at(site, a->loop, VOW_ENOMEM, NULL);
    l->handle = vow__named_handle_ref(a);
    l->name = pool_name_of(label);
    l->change = limits != NULL;
    if (limits != NULL)
        l->to = *limits;
    memcpy(l->label, label, size);
    vow_future *f =
        vow__named_settler_open(site, a->loop, a->hub->loop, &l->settler);
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0)
        rc = vow__named_hub_run(a, limit_begin, l);
    if (rc == 0)
        return f;
    vow_future_unref(f);
    limit_free(l);
    return vow_refused_at(site, a->loop, rc, NULL);
}

static void limit_begin(void *limit)
{
    struct limit *l = limit;
    struct vow__named_hub *h = l->handle->hub;
    if (h->closing || h->store == NULL) {
        vow__named_settler_refuse(&l->settler, VOW_ECLOSED,
                                  "the authority was closed");
        limit_free(l);
        return;
    }
    vow__named_step_begins(h);
    h->store->ops->limit(h->store, &l->name, l->change ? &l->to : NULL,
                         l->label, on_limit_answer, l);
}

static void on_limit_answer(int code, const vow_pool_info *info, size_t n,
                            void *limit)
{
    struct limit *l = limit;
    struct vow__named_hub *h = l->handle->hub;
    const char *why = code == VOW_ENOENT ? "there is no such pool" : NULL;
    struct limit_block *b = NULL;
    if (code == 0 && n == 1)
        b = limit_block_new(l->handle, info);
    if (b != NULL)
        vow__named_settler_resolve(&l->settler, vow_own(b, limit_block_drop));
    else if (code == 0)
        vow__named_settler_refuse(&l->settler, n == 1 ? VOW_ENOMEM : VOW_ESTORE,
                                  NULL);
    else
        vow__named_settler_refuse(&l->settler, code,
                                  code == VOW_ESTORE || code == VOW_EUNSURE ||
                                          code == VOW_EAGAIN
                                      ? vow__named_store_trouble(h)
                                      : why);
    vow__named_step_ended(h, code);
    limit_free(l);
}

static struct limit_block *limit_block_new(const vow_authority *a,
                                           const vow_pool_info *info)
{
    const char *label = info->label == NULL ? "" : info->label;
    size_t size = strlen(label) + 1;
    struct limit_block *b = vow__mem_new(&a->alloc, sizeof(*b) + size);
    if (b == NULL)
        return NULL;
    b->info = *info;
    b->alloc = a->alloc;
    b->info.label = memcpy(b->label, label, size);
    return b;
}

static void limit_block_drop(void *block)
{
    struct limit_block *b = block;
    struct vow_alloc alloc = b->alloc;
    vow__mem_free(&alloc, b, sizeof(*b) + strlen(b->label) + 1);
}

static void limit_free(struct limit *l)
{
    vow_authority *a = l->handle;
    struct vow_alloc alloc = a->alloc;
    vow__named_settler_drop(&l->settler);
    vow__mem_free(&alloc, l, sizeof(*l) + strlen(l->label) + 1);
    vow__named_handle_unref(a);
}
