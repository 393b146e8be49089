/* SPDX-License-Identifier: MIT */
/* scope.c - a tree of scopes: cancel together, wait together.
 *
 * WHY   Work that was started for a purpose must end with the purpose, and a
 *       caller that cancels the work must be able to wait for the end.
 * HOW   A member watches its future and has a result of its own. Canceling
 *       rejects the results at once and cancels the futures. A member stays
 *       until its future has ended, because work may still run. Canceling a
 *       tree first marks all scopes, which runs no user code, and then cancels
 *       the marked scopes. `active` counts the scope's own members and the
 *       children that are not empty; `hooked` counts hooks in the same way. So
 *       joining and leaving a busy scope is O(1).
 * INVARIANTS
 *   S1  active == members + children with active > 0; hooked likewise
 *   S2  a child of a canceled scope is canceled, with the same cause
 *   S3  the timer of the deadline keeps the loop running only while the scope
 *       has members or hooks
 * THREADS  loop thread only.
 */
#include "vow/scope.h"
#include "base/sm.h"
#include "core/promise_internal.h"

enum { OPEN, CANCELED };
static const uint8_t scope_moves[] = {[OPEN] = VOW__TO(CANCELED)};

struct vow_scope {
    vow_loop *loop;
    uint32_t refs; /* handles, members, children, waits, hooks, hook_call */
    uint32_t flags;
    uint8_t state;
    vow_scope *parent; /* counted */
    vow_link *children;
    vow_link in_parent;
    vow_link *members;
    vow_link *waits; /* struct scope_wait */
    size_t active;
    vow_link *hooks;
    size_t hook_count;
    size_t hooked;
    struct vow__core_watch hook_call; /* queued while canceled hooks wait */
    bool hook_queued;
    vow_error *cause;             /* cause of the cancel, counted */
    vow_error *cancel_error;      /* VOW_ECANCELED with `cause`, counted */
    vow_scope *next_marked;       /* while canceling a tree */
    struct vow__core_timer timer; /* fires at the deadline */
    uint64_t due_ns;              /* deadline; UINT64_MAX: none */
    uint64_t deadline_ms;         /* for the error message */
};

struct member {
    struct vow__core_watch watch; /* `out` is the result; the member holds the
                                     deferred */
    vow_link in_scope;
    vow_scope *scope; /* counted */
    vow_future *of;   /* the future. If node.rest of the watch is set, the
                         source of the watch is a rest of the future, and the
                         future is counted separately */
    bool out_open;    /* the result is not settled */
    bool cancel_sent; /* no further cancel of the future by the scope */
};

struct scope_wait {
    vow_link in_scope;
    vow_scope *scope; /* counted */
    vow_future *out;  /* the result; the wait holds the deferred */
};

static void member_run(struct vow__core_watch *w);
static void member_settle(struct member *m);
static void member_cancel(vow_error *why, void *user);
static void member_close(struct member *m, vow_error *why);
static void member_reject(struct member *m, bool rest, vow_error *why);
static void scope_join(vow_scope *s);
static void scope_leave(vow_scope *s);
static void scope_settle_waits(vow_scope *s);
static vow_future *scope_outcome(vow_scope *s, const char *site);
static void scope_wait_cancel(vow_error *why, void *user);
static void scope_wait_end(struct scope_wait *w);
static vow_scope *scope_mark_tree(vow_scope *top, vow_error *why);
static void scope_mark(vow_scope *s, vow_error *why, vow_scope **list);
static vow_scope *scope_tree_next(const vow_scope *s, const vow_scope *top);
static void scope_cancel_marked(vow_scope *s);
static void hooks_queue(vow_scope *s);
static void hooks_run(struct vow__core_watch *w);
static void deadline_fire(vow_loop *loop, struct vow__core_timer *t);
static void deadline_set_weak(vow_scope *s);

/* ---- the scope ----------------------------------------------------------- */

int vow_scope_new(vow_loop *loop, const vow_scope_opts *opts,
                  vow_scope **ret_scope)
{
    VOW__ASSERT_THREAD(loop);
    static const vow_scope_opts defaults = {.size = sizeof(defaults)};
    const vow_scope_opts *o = opts == NULL ? &defaults : opts;
    if (o->size != sizeof(*o) || (o->flags & ~(uint32_t)VOW_SCOPE_FAIL_FAST) ||
        (o->parent != NULL && o->parent->loop != loop))
        return VOW_EINVAL;
    vow_scope *s = vow__mem_zero(&loop->alloc, sizeof(*s));
    if (s == NULL)
        return VOW_ENOMEM;
    s->loop = loop;
    s->refs = 1;
    s->flags = o->flags;
    s->due_ns = UINT64_MAX;
    s->hook_call.node.kind = VOW__WATCH;
    s->hook_call.run = hooks_run;
    s->timer.fire = deadline_fire;
    loop->scopes++;
    if (o->parent != NULL) {
        s->parent = vow_scope_ref(o->parent);
        vow__list_push(&o->parent->children, &s->in_parent);
    }
    if (s->parent != NULL && s->parent->state == CANCELED) {
        vow_scope *list = NULL;
        scope_mark(s, s->parent->cause, &list); /* keeps S2 */
        scope_cancel_marked(list);
    } else if (o->deadline_ms > 0) {
        s->deadline_ms = o->deadline_ms;
        s->due_ns = vow__clock_due_ns(&loop->clock, o->deadline_ms);
        s->timer.weak = true;
        vow__core_timer_start(loop, &s->timer, s->due_ns);
    }
    *ret_scope = s;
    return 0;
}

vow_scope *vow_scope_ref(vow_scope *s)
{
    VOW__ASSERT_THREAD_OF(s, s->loop);
    if (s != NULL)
        s->refs++;
    return s;
}

vow_scope *vow_scope_unref(vow_scope *s)
{
    VOW__ASSERT_THREAD_OF(s, s->loop);
    while (s != NULL && --s->refs == 0) {
        vow_scope *parent = s->parent;
        vow_loop *loop = s->loop;
        VOW__ASSERT(s->active == 0);
        VOW__ASSERT(s->waits == NULL);
        vow__core_timer_stop(loop, &s->timer);
        if (parent != NULL)
            vow__list_remove(&parent->children, &s->in_parent);
        vow_error_unref(s->cause);
        vow_error_unref(s->cancel_error);
        vow__mem_free(&loop->alloc, s, sizeof(*s));
        loop->scopes--;
        vow__core_loop_maybe_free(loop);
        s = parent;
    }
    return NULL;
}

bool vow_scope_canceled(const vow_scope *s)
{
    VOW__ASSERT_THREAD(s->loop);
    return s->state == CANCELED;
}

vow_error *vow_scope_cause(const vow_scope *s)
{
    VOW__ASSERT_THREAD(s->loop);
    return s->cause;
}

size_t vow_scope_size(const vow_scope *s)
{
    VOW__ASSERT_THREAD(s->loop);
    size_t n = 0;
    for (const vow_scope *at = s; at != NULL; at = scope_tree_next(at, s))
        for (const vow_link *l = at->members; l != NULL; l = l->next)
            n++;
    return n;
}

uint64_t vow_scope_remaining_ms(const vow_scope *s)
{
    VOW__ASSERT_THREAD(s->loop);
    uint64_t due = UINT64_MAX;
    if (s->state == CANCELED)
        return 0;
    for (const vow_scope *at = s; at != NULL; at = at->parent)
        if (at->due_ns < due)
            due = at->due_ns;
    if (due == UINT64_MAX)
        return UINT64_MAX;
    uint64_t now = vow__clock_now_ns(&s->loop->clock);
    return now >= due ? 0 : (due - now) / VOW__NS_PER_MS;
}

/* ---- members ------------------------------------------------------------- */

vow_future *vow_scope_add_at(const char *site, vow_scope *s, vow_future *f)
{
    VOW__ASSERT_THREAD(s->loop);
    vow_loop *loop = s->loop;
    if (vow__core_future_loop(f) != loop)
        return vow_refused_at(site, loop, VOW_EINVAL,
                              "a future of another loop");
    if (loop->closed)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    struct member *m = vow__mem_zero(&loop->alloc, sizeof(*m));
    if (m == NULL)
        return vow__core_future_no_memory(loop);
    vow_future *out =
        vow__core_promise_new(loop, site, member_cancel, &m->watch);
    if (out == NULL) {
        vow__mem_free(&loop->alloc, m, sizeof(*m));
        return vow__core_future_no_memory(loop);
    }
    out->node.relayed = 1;
    m->watch.node.kind = VOW__WATCH;
    m->watch.run = member_run;
    m->watch.out = out;
    m->out_open = true;
    m->of = f;
    m->scope = vow_scope_ref(s);
    vow__list_push(&s->members, &m->in_scope);
    scope_join(s);
    vow__core_node_wait(loop, &m->watch.node, f);
    if (s->state == CANCELED)
        member_close(m, s->cancel_error);
    return out;
}

/* Runs when the future, or a rest of the future, is settled. The member leaves
 * the scope when the future has ended. */
static void member_run(struct vow__core_watch *w)
{
    struct member *m = VOW__OUTER(w, struct member, watch);
    vow_scope *s = m->scope;
    vow_loop *loop = s->loop;
    vow_future *source = w->node.source;
    vow_future *f = m->of;
    bool again = w->node.rest;
    if (!again)
        member_settle(m);
    vow_future *rest = vow__core_rest_next(f);
    if (rest != NULL) {
        w->node.rest = 1;
        vow__core_node_wait_moved(loop, &w->node, rest);
        vow__core_future_count_end_ref(rest, 1);
    } else {
        vow__list_remove(&s->members, &m->in_scope);
        vow__mem_free(&loop->alloc, m, sizeof(*m));
    }
    if (again) {
        vow__core_future_count_end_ref(source, -1);
        vow__core_future_unref(source);
    }
    if (rest == NULL) {
        vow__core_future_unref(f);
        scope_leave(s);
        vow_scope_unref(s);
    }
    vow__core_futures_reap(loop);
}

/* Settles the result with the outcome of the future. */
static void member_settle(struct member *m)
{
    vow_scope *s = m->scope;
    vow_future *f = m->of;
    vow_future *out = m->out_open ? m->watch.out : NULL;
    m->out_open = false;
    m->watch.out = NULL;
    m->cancel_sent = true; /* a later cancel of the scope is too late */
    if (out != NULL) {
        vow__core_future_adopt(s->loop, out, f);
        vow_deferred_unref(vow__core_deferred_of(out));
    }
    int code = vow_error_code(
        f->node.state == VOW_REJECTED ? vow__core_future_error(f) : NULL);
    if ((s->flags & VOW_SCOPE_FAIL_FAST) != 0 && code < 0 &&
        code != VOW_ECANCELED) /* canceled by a reader is no failure */
        (void)vow_scope_cancel(s, vow__core_future_error(f));
}

/* Runs when a reader cancels the result. */
static void member_cancel(vow_error *why, void *user)
{
    struct member *m = VOW__OUTER(user, struct member, watch);
    vow_future *f = m->of;
    bool ours =
        vow__core_future_is_pending(f) && vow__core_future_readers(f) == 1;
    member_reject(m, vow__core_rest_counts(f), why);
    if (ours)
        (void)vow_cancel(f, why);
}

/* Runs when the scope is canceled: rejects the result at once and cancels the
 * future. */
static void member_close(struct member *m, vow_error *why)
{
    vow_future *f = m->of;
    bool sent = m->cancel_sent;
    m->cancel_sent = true;
    if (m->out_open)
        member_reject(m, true, why);
    if (!sent)
        (void)vow_cancel(f, why);
}

/* Rejects the result before the future is settled. With `rest`, the future is a
 * rest of the result. */
static void member_reject(struct member *m, bool rest, vow_error *why)
{
    vow_future *out = m->watch.out;
    m->out_open = false;
    m->watch.out = NULL;
    vow__core_future_count_end_ref(m->of, 1);
    vow__core_future_reject(m->scope->loop, out, vow_error_ref(why));
    if (rest)
        vow__core_rest_add(out, vow__core_future_ref(m->of));
    vow_deferred_unref(vow__core_deferred_of(out));
}

static void scope_join(vow_scope *s)
{
    for (; s != NULL && s->active++ == 0; s = s->parent)
        deadline_set_weak(s);
}

static void scope_leave(vow_scope *s)
{
    for (; s != NULL && --s->active == 0; s = s->parent) {
        deadline_set_weak(s);
        scope_settle_waits(s);
    }
}

/* ---- canceling ----------------------------------------------------------- */

bool vow_scope_cancel(vow_scope *s, vow_error *why)
{
    VOW__ASSERT_THREAD(s->loop);
    if (s->state == CANCELED)
        return false;
    while (vow_error_code(why) == VOW_ECANCELED && vow_error_cause(why) != NULL)
        why = vow_error_cause(why); /* the first cause */
    vow_error *cause = vow_error_ref(why);
    if (cause == NULL)
        cause = vow__core_error_new(s->loop, NULL, VOW_ECANCELED, NULL, NULL);
    scope_cancel_marked(scope_mark_tree(s, cause));
    vow_error_unref(cause);
    return true;
}

/* Marks the whole tree and runs no user code. Returns the list of marked
 * scopes; each is counted, so the list stays valid during the cancels. */
static vow_scope *scope_mark_tree(vow_scope *top, vow_error *why)
{
    vow_scope *list = NULL;
    for (vow_scope *s = top; s != NULL; s = scope_tree_next(s, top))
        if (s->state == OPEN)
            scope_mark(s, why, &list);
    return list;
}

static void scope_mark(vow_scope *s, vow_error *why, vow_scope **list)
{
    vow__sm_move(&s->state, CANCELED, scope_moves);
    s->cause = vow_error_ref(why);
    s->cancel_error = vow__core_cancel_error(s->loop, NULL, why);
    vow__core_timer_stop(s->loop, &s->timer);
    vow_scope_ref(s);
    s->next_marked = *list;
    *list = s;
}

static void scope_cancel_marked(vow_scope *s)
{
    while (s != NULL) {
        vow_scope *next = s->next_marked;
        vow_link *l = s->members;
        while (l != NULL) { /* members leave from the ready queue, not here */
            struct member *m = VOW__OUTER(l, struct member, in_scope);
            l = l->next;
            member_close(m, s->cancel_error);
        }
        hooks_queue(s);
        vow_scope_unref(s);
        s = next;
    }
}

/* Returns the next scope of a depth-first walk below `top`; NULL: the end. */
static vow_scope *scope_tree_next(const vow_scope *s, const vow_scope *top)
{
    if (s->children != NULL)
        return VOW__OUTER(s->children, vow_scope, in_parent);
    while (s != top && s->in_parent.next == NULL)
        s = s->parent;
    return s == top ? NULL
                    : VOW__OUTER(s->in_parent.next, vow_scope, in_parent);
}

static void deadline_fire(vow_loop *loop, struct vow__core_timer *t)
{
    vow_scope *s = VOW__OUTER(t, vow_scope, timer);
    vow_error *e =
        vow__core_error_or(vow_error_new_at(NULL, loop, VOW_ETIMEDOUT, NULL,
                                            "the deadline of %llu ms passed",
                                            (unsigned long long)s->deadline_ms),
                           VOW_ETIMEDOUT);
    (void)vow_scope_cancel(s, e);
    vow_error_unref(e);
}

static void deadline_set_weak(vow_scope *s)
{
    bool weak = s->active == 0 && s->hooked == 0; /* keeps S3 */
    if (!s->timer.armed || s->timer.weak == weak)
        return;
    vow__core_timer_stop(s->loop, &s->timer);
    s->timer.weak = weak;
    vow__core_timer_start(s->loop, &s->timer, s->due_ns);
}

/* ---- waiting ------------------------------------------------------------- */

vow_future *vow_scope_wait_at(const char *site, vow_scope *s)
{
    VOW__ASSERT_THREAD(s->loop);
    if (s->active == 0)
        return scope_outcome(s, site);
    struct scope_wait *w = vow__mem_zero(&s->loop->alloc, sizeof(*w));
    if (w == NULL)
        return vow__core_future_no_memory(s->loop);
    w->out = vow__core_promise_new(s->loop, site, scope_wait_cancel, w);
    if (w->out == NULL) {
        vow__mem_free(&s->loop->alloc, w, sizeof(*w));
        return vow__core_future_no_memory(s->loop);
    }
    w->scope = vow_scope_ref(s);
    vow__list_push(&s->waits, &w->in_scope);
    return w->out;
}

static vow_future *scope_outcome(vow_scope *s, const char *site)
{
    return s->state == CANCELED
               ? vow_rejected_at(site, s->loop, vow_error_ref(s->cause))
               : vow_resolved_at(site, s->loop, vow_nothing());
}

static void scope_settle_waits(vow_scope *s)
{
    size_t n = 0; /* without waits that are added meanwhile */
    for (const vow_link *l = s->waits; l != NULL; l = l->next)
        n++;
    for (; n > 0 && s->waits != NULL; n--) {
        struct scope_wait *w =
            VOW__OUTER(s->waits, struct scope_wait, in_scope);
        if (s->state == CANCELED)
            vow__core_future_reject(s->loop, w->out, vow_error_ref(s->cause));
        else
            vow__core_future_fulfil(s->loop, w->out, vow_nothing());
        scope_wait_end(w); /* the caller holds the scope */
    }
}

static void scope_wait_cancel(vow_error *why, void *user)
{
    struct scope_wait *w = user;
    vow__core_future_reject(w->scope->loop, w->out, vow_error_ref(why));
    scope_wait_end(w);
}

static void scope_wait_end(struct scope_wait *w)
{
    vow_scope *s = w->scope;
    vow_future *out = w->out;
    vow__list_remove(&s->waits, &w->in_scope);
    vow__mem_free(&s->loop->alloc, w, sizeof(*w));
    vow_deferred_unref(vow__core_deferred_of(out));
    vow_scope_unref(s);
}

/* ---- hooks --------------------------------------------------------------- */

int vow_hook_add(vow_hook *hook, vow_scope *s, vow_cancel_fn fn, void *user)
{
    VOW__ASSERT_THREAD(s->loop);
    if (fn == NULL)
        return VOW_EINVAL;
    if (hook->scope != NULL)
        return VOW_EBUSY;
    hook->fn = fn;
    hook->user = user;
    hook->scope = vow_scope_ref(s);
    vow__list_push(&s->hooks, &hook->link);
    s->hook_count++;
    for (vow_scope *up = s; up != NULL && up->hooked++ == 0; up = up->parent)
        deadline_set_weak(up);
    if (s->state == CANCELED)
        hooks_queue(s);
    return 0;
}

bool vow_hook_remove(vow_hook *hook)
{
    vow_scope *s = hook->scope;
    if (s == NULL)
        return false;
    vow__list_remove(&s->hooks, &hook->link);
    hook->scope = NULL;
    s->hook_count--;
    for (vow_scope *up = s; up != NULL && --up->hooked == 0; up = up->parent)
        deadline_set_weak(up);
    vow_scope_unref(s);
    return true;
}

static void hooks_queue(vow_scope *s)
{
    if (s->hook_queued || s->hooks == NULL)
        return;
    s->hook_queued = true;
    vow_scope_ref(s);
    vow__core_loop_enqueue(s->loop, &s->hook_call.node.link);
}

/* Runs the hooks. A hook may remove and add hooks: so always the first hook
 * runs, and hooks added meanwhile run from the ready queue later. */
static void hooks_run(struct vow__core_watch *w)
{
    vow_scope *s = VOW__OUTER(w, vow_scope, hook_call);
    s->hook_queued = false;
    for (size_t n = s->hook_count; n > 0 && s->hooks != NULL; n--) {
        vow_hook *hook = VOW__OUTER(s->hooks, vow_hook, link);
        vow_cancel_fn fn = hook->fn;
        void *user = hook->user;
        (void)vow_hook_remove(hook);
        fn(s->cancel_error, user);
    }
    hooks_queue(s);
    vow_scope_unref(s);
}
