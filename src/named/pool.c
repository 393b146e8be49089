/* SPDX-License-Identifier: MIT */
/* pool.c - limits that have a name, as who uses them sees them.
 *
 * HOW   A permit is asked for by a message to the hub's loop and answered by a
 *       promise. The grant lies in the permit and belongs to the loop that
 *       asked; giving it back, and canceling, is a flag and a message. All that
 *       is needed to answer, to tell of a loss and to give back is made when
 *       the permit is asked for, so no lack of memory can lose a permit.
 *       On the hub's loop's own loop the message is a call from the queue: first come
 *       first served holds there as well.
 * INVARIANTS
 *   U1  its loop has one reference of a permit until the answer came and the
 *       promise of the loss is settled
 * THREADS  the loop of the authority's handle; begin_limit() and on_limit():
 *          the hub's loop's.
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
    vow_authority *of; /* counted */
    vow_name name;
    vow_pool_limits limits;
    uint64_t lease_ms;
    uint64_t span_ns;
    uint64_t every_ns;
    char label[];
};

/* To read limits, or to change them. */
struct limit {
    vow_authority *of; /* counted */
    struct vow__named_settler settler;
    vow_name name;
    bool change;
    vow_pool_limits to;
    char label[];
};

/* What comes back: the value, and its text behind it. */
struct limit_block {
    vow_pool_info info;
    struct vow_alloc alloc;
    char label[];
};

static bool label_is_good(const char *label);
static bool limits_are_good(const vow_pool_limits *l);
static vow_name name_of(const char *label);
static int measure(vow_pool *o, const vow_pool_opts *opts);
static void pool_ref(const vow_backing *b);
static void pool_unref(const vow_backing *b);
static vow_future *back_acquire(const vow_backing *b, const char *site,
                                const char *key, uint32_t weight);
static vow_future *acquire(const char *site, vow_pool *o, const char *key,
                           const vow_permit_request *what, bool behind_gate);
static struct vow__named_permit *place_new(vow_pool *o, const char *key,
                                           const vow_permit_request *what);
static vow_future *place_send(const char *site, struct vow__named_permit *p);
static int tell_home(struct vow__named_permit *p);
static void by_message(void *permit);
static void leave(struct vow__named_permit *p);
static void on_cancel(vow_error *why, void *permit);
static void on_answer(vow_future *f, void *permit);
static void grant_started(vow_grant *g);
static void grant_release(vow_grant *g);
static void grant_free(vow_grant *g);
static void forget(struct vow__named_permit *p);
static void on_forgotten(vow_future *f, void *permit);
static void begin_limit(void *limit);
static void on_limit(int code, const vow_pool_info *info, size_t n,
                     void *limit);
static struct limit_block *block_new(const vow_authority *a,
                                     const vow_pool_info *info);
static void block_drop(void *block);
static void limit_free(struct limit *l);

/* ---- pools -------------------------------------------------------------- */

int vow_pool_open(vow_authority *a, const char *label,
                  const vow_pool_opts *opts, vow_pool **ret_pool)
{
    VOW__ASSERT_THREAD(a->loop);
    const vow_pool_opts none = {.size = sizeof(none)};
    const vow_pool_opts *given = opts == NULL ? &none : opts;
    if (!label_is_good(label) || given->size != sizeof(none) ||
        !limits_are_good(&given->limits))
        return VOW_EINVAL;
    size_t size = strlen(label) + 1;
    vow_pool *o = vow__mem_zero(&a->alloc, sizeof(*o) + size);
    if (o == NULL)
        return VOW_ENOMEM;
    o->backing = (vow_backing){back_acquire, pool_ref, pool_unref};
    o->refs = 1;
    o->of = vow__named_handle_ref(a);
    o->name = name_of(label);
    o->limits = given->limits;
    memcpy(o->label, label, size);
    if (measure(o, given) < 0) {
        vow_pool_unref(o);
        return VOW_EINVAL;
    }
    *ret_pool = o;
    return 0;
}

static bool label_is_good(const char *label)
{
    return label[0] != '\0' &&
           strnlen(label, VOW_LABEL_MAX + 1) <= VOW_LABEL_MAX;
}

static bool limits_are_good(const vow_pool_limits *l)
{
    return l->rate == 0 || l->window_us > 0;
}

static vow_name name_of(const char *label)
{
    const vow_field fields[] = {vow_field_text("pool"), vow_field_text(label)};
    return vow_name_make(NULL, fields, 2);
}

/* How long a permit is trusted without news, less what our clock may be slow by;
 * and how often it is renewed in that time. */
static int measure(vow_pool *o, const vow_pool_opts *opts)
{
    const vow_authority_opts *hub = &o->of->hub->opts;
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
    vow_authority *a = p->of;
    struct vow_alloc alloc = a->alloc;
    vow__mem_free(&alloc, p, sizeof(*p) + strlen(p->label) + 1);
    vow__named_handle_unref(a);
    return NULL;
}

const vow_backing *vow_pool_backing(vow_pool *p)
{
    return &p->backing;
}

static vow_pool *pool_of(const vow_backing *b)
{
    return VOW__OUTER((uintptr_t)b, vow_pool, backing);
}

static void pool_ref(const vow_backing *b)
{
    (void)vow_pool_ref(pool_of(b));
}

static void pool_unref(const vow_backing *b)
{
    vow_pool_unref(pool_of(b));
}

/* ---- asking for a permit ------------------------------------------------- */

vow_future *vow_pool_acquire_at(const char *site, vow_pool *p, const char *key,
                                uint32_t weight)
{
    VOW__ASSERT_THREAD(p->of->loop);
    return acquire(site, p, key, &(const vow_permit_request){.weight = weight},
                   false);
}

vow_future *vow_pool_try_at(const char *site, vow_pool *p, const char *key,
                            uint32_t weight)
{
    VOW__ASSERT_THREAD(p->of->loop);
    return acquire(
        site, p, key,
        &(const vow_permit_request){.weight = weight, .flags = VOW_PERMIT_TRY},
        false);
}

static vow_future *back_acquire(const vow_backing *b, const char *site,
                                const char *key, uint32_t weight)
{
    return acquire(site, pool_of(b), key,
                   &(const vow_permit_request){.weight = weight}, true);
}

/* A gate says when the work starts; for all others it has with the answer. */
static vow_future *acquire(const char *site, vow_pool *o, const char *key,
                           const vow_permit_request *what, bool behind_gate)
{
    vow_loop *loop = o->of->loop;
    if (what->weight == 0)
        return vow_refused_at(site, loop, VOW_EINVAL,
                              "a permit has a weight of 1 or more");
    if (o->of->closing)
        return vow_refused_at(site, loop, VOW_ECLOSED,
                              "the authority was closed");
    struct vow__named_permit *p = place_new(o, key, what);
    if (p == NULL)
        return vow_refused_at(site, loop, VOW_ENOMEM, NULL);
    p->behind_gate = behind_gate;
    return place_send(site, p);
}

static struct vow__named_permit *place_new(vow_pool *o, const char *key,
                                           const vow_permit_request *what)
{
    size_t length = strlen(o->label);
    size_t extra = key == NULL ? 0 : strlen(key) + 1;
    size_t room = 2 * (length + 1) + extra; /* with the key, and without */
    struct vow__named_permit *p =
        vow__mem_zero(&o->of->alloc, sizeof(*p) + room);
    if (p == NULL)
        return NULL;
    atomic_init(&p->refs, 2); /* the hub's loop's, and our own: keeps U1 */
    p->of = vow__named_handle_ref(o->of);
    p->span_ns = o->span_ns;
    p->every_ns = o->every_ns;
    p->grant = (vow_grant){
        .release = grant_release, .free = grant_free, .started = grant_started};
    p->ask = *what;
    p->ask.pool = o->name;
    p->ask.limits_of = o->name;
    p->ask.lease_ms = o->lease_ms;
    p->ask.limits = o->limits;
    p->ask.label = p->label;
    p->ask.runner = o->of->hub->runner;
    memcpy(p->label, o->label, length);
    if (key != NULL) {
        const vow_field field = vow_field_text(key);
        p->ask.pool = vow_name_step(NULL, &o->name, &field, 1);
        p->label[length] = ':';
        memcpy(p->label + length + 1, key, extra);
    }
    p->size = sizeof(*p) + room;
    p->ask.limits_label =
        memcpy(p->label + length + extra + 1, o->label, length + 1);
    return p;
}

void vow__named_permit_unref(struct vow__named_permit *p)
{
    if (atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    vow_authority *of = p->of;
    struct vow_alloc alloc = of->alloc;
    vow__mem_free(&alloc, p, p->size);
    vow__named_handle_unref(of);
}

/* It moves: it is on its way, or gone. */
static vow_future *place_send(const char *site, struct vow__named_permit *p)
{
    vow_loop *loop = p->of->loop;
    const vow_loop *home = p->of->hub->loop;
    vow_future *f = vow_promise_at(site, loop, &p->out);
    vow_future *answer = vow__named_settler_open(site, loop, home, &p->answer);
    p->grant.lost = vow__named_settler_open(site, loop, home, &p->lost);
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0)
        rc = vow_error_code(vow_error_of(answer));
    if (rc == 0)
        rc = vow_error_code(vow_error_of(p->grant.lost));
    if (rc == 0)
        rc = tell_home(p);
    if (rc == 0) {
        vow_on_cancel_now(p->out, on_cancel, p);
        vow_watch_start(&p->watch, answer, on_answer, p);
        vow_future_unref(answer);
        return f;
    }
    vow_future_unref(f);
    vow_future_unref(answer);
    vow_future_unref(p->grant.lost);
    (void)vow_resolve_drop(p->out, vow_nothing());
    vow__named_settler_drop(&p->answer);
    vow__named_settler_drop(&p->lost);
    vow__named_permit_unref(p);
    vow__named_permit_unref(p);
    return vow_refused_at(site, loop, rc, NULL);
}

/* A handle that closes has told the hub's loop of all its permits: no message needs
 * to follow, and the hub's loop may be gone. */
static int tell_home(struct vow__named_permit *p)
{
    vow_authority *a = p->of;
    if (vow__named_is_hub_loop(a)) {
        if (p->state != PERMIT_OVER)
            vow_call_soon(&p->call, a->loop, vow__named_permit_sync, p);
        return 0;
    }
    if (a->closing)
        return VOW_ECLOSED;
    int rc = vow_loop_post(a->hub->loop, by_message, vow__named_permit_ref(p));
    if (rc < 0)
        vow__named_permit_unref(p);
    return rc;
}

static void by_message(void *permit)
{
    vow__named_permit_sync(permit);
    vow__named_permit_unref(permit);
}

/* If the message cannot be sent, the hub's loop sees the flag by itself. */
static void leave(struct vow__named_permit *p)
{
    if (!atomic_exchange(&p->left, true))
        (void)tell_home(p);
}

static void on_cancel(vow_error *why, void *permit)
{
    struct vow__named_permit *p = permit;
    vow_deferred *out = p->out;
    p->out = NULL;
    leave(p);
    (void)vow_reject_drop(out, vow_error_ref(why));
}

/* Settled by the hub's loop; or because this loop closes. */
static void on_answer(vow_future *f, void *permit)
{
    struct vow__named_permit *p = permit;
    vow_deferred *out = p->out;
    vow_error *error = vow_error_of(f);
    p->out = NULL;
    if (out != NULL && error == NULL) {
        if (!p->behind_gate)
            grant_started(&p->grant);
        (void)vow_resolve_drop(out, vow_grant_value(&p->grant));
        return;
    }
    if (out != NULL)
        (void)vow_reject_drop(out, vow_error_ref(error));
    if (vow_loop_closing(p->of->loop))
        leave(p);
    forget(p);
}

/* ---- grants ------------------------------------------------------------- */

static struct vow__named_permit *place_of(vow_grant *g)
{
    return VOW__OUTER(g, struct vow__named_permit, grant);
}

/* If the message cannot be sent, the next renewal tells. */
static void grant_started(vow_grant *g)
{
    struct vow__named_permit *p = place_of(g);
    if (atomic_load(&p->rated) && !atomic_exchange(&p->started, true))
        (void)tell_home(p);
}

static void grant_release(vow_grant *g)
{
    leave(place_of(g));
}

static void grant_free(vow_grant *g)
{
    forget(place_of(g));
}

/* Our reference goes when the hub's loop has said its last word, so that a loss that
 * nobody needs to hear of is no unhandled rejection. */
static void forget(struct vow__named_permit *p)
{
    vow_future *lost = p->grant.lost;
    if (vow_state_of(lost) == VOW_PENDING)
        vow_watch_start(&p->watch, lost, on_forgotten, p);
    else
        on_forgotten(lost, p);
    vow_future_unref(lost);
}

static void on_forgotten(vow_future *f, void *permit)
{
    (void)vow_error_of(f);
    vow__named_permit_unref(permit);
}

/* ---- limits ------------------------------------------------------------- */

vow_future *vow_pool_limit_at(const char *site, vow_authority *a,
                              const char *label, const vow_pool_limits *limits)
{
    VOW__ASSERT_THREAD(a->loop);
    if (!label_is_good(label))
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "a pool has a label of 1 to 255 bytes");
    if (limits != NULL && !limits_are_good(limits))
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "a rate needs a window");
    if (a->closing)
        return vow_refused_at(site, a->loop, VOW_ECLOSED,
                              "the authority was closed");
    size_t size = strlen(label) + 1;
    struct limit *l = vow__mem_zero(&a->alloc, sizeof(*l) + size);
    if (l == NULL)
        return vow_refused_at(site, a->loop, VOW_ENOMEM, NULL);
    l->of = vow__named_handle_ref(a);
    l->name = name_of(label);
    l->change = limits != NULL;
    if (limits != NULL)
        l->to = *limits;
    memcpy(l->label, label, size);
    vow_future *f =
        vow__named_settler_open(site, a->loop, a->hub->loop, &l->settler);
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0)
        rc = vow__named_hub_run(a, begin_limit, l);
    if (rc == 0)
        return f;
    vow_future_unref(f);
    limit_free(l);
    return vow_refused_at(site, a->loop, rc, NULL);
}

static void begin_limit(void *limit)
{
    struct limit *l = limit;
    struct vow__named_hub *h = l->of->hub;
    if (h->closing || h->store == NULL) {
        vow__named_settler_refuse(&l->settler, VOW_ECLOSED,
                                  "the authority was closed");
        limit_free(l);
        return;
    }
    vow__named_step_begins(h);
    h->store->ops->limit(h->store, &l->name, l->change ? &l->to : NULL,
                         l->label, on_limit, l);
}

static void on_limit(int code, const vow_pool_info *info, size_t n, void *limit)
{
    struct limit *l = limit;
    struct vow__named_hub *h = l->of->hub;
    const char *why = code == VOW_ENOENT ? "there is no such pool" : NULL;
    struct limit_block *b = NULL;
    if (code == 0 && n == 1)
        b = block_new(l->of, info);
    if (b != NULL)
        vow__named_settler_resolve(&l->settler, vow_own(b, block_drop));
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

static struct limit_block *block_new(const vow_authority *a,
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

static void block_drop(void *block)
{
    struct limit_block *b = block;
    struct vow_alloc alloc = b->alloc;
    vow__mem_free(&alloc, b, sizeof(*b) + strlen(b->label) + 1);
}

static void limit_free(struct limit *l)
{
    vow_authority *a = l->of;
    struct vow_alloc alloc = a->alloc;
    vow__named_settler_drop(&l->settler);
    vow__mem_free(&alloc, l, sizeof(*l) + strlen(l->label) + 1);
    vow__named_handle_unref(a);
}
