/* SPDX-License-Identifier: MIT */
/* pipeline_walk.c - the way to a step: back to the longest known beginning, and
 * forwards from there.
 *
 * WHY   A pipeline that claimed the last step first and then walked back would
 *       hold the leases of all steps while the first step runs; pipelines that
 *       share only the beginning could not see that. So a step is requested
 *       when the input is there, and not before.
 * HOW   One peek at all names finds the last step with a result or a runner.
 *       The later steps are requested in order; if another process runs such a
 *       step meanwhile, the request is the same. A private step is skipped: it
 *       runs when a later step really runs here.
 * INVARIANTS
 *   W1  a walk waits for the peek, for the call that begins the walk, or for
 *       the reached output
 * THREADS  loop thread only.
 */
#include "base/alloc.h"
#include "named/pipeline/pipeline_internal.h"

struct vow__pipeline_walk {
    struct vow__pipeline_plan *plan; /* counted */
    size_t to;
    size_t from; /* first step of the walk */
    uint32_t flags;
    bool stopped;
    vow_future *peek; /* NULL: none */
    vow_watch watch;
    vow_call begin;
    struct vow__pipeline_output *at; /* used; NULL: not begun */
    struct vow__pipeline_listener listener;
    vow__pipeline_walk_fn fn;
    void *user;
};

static size_t walk_count_shared(const struct vow__pipeline_walk *w,
                                size_t *ret_last);
static int walk_peek(struct vow__pipeline_walk *w, size_t n);
static void on_walk_peeked(vow_future *seen, void *walk);
static size_t walk_longest_known(const struct vow__pipeline_walk *w,
                                 const vow_records *r);
static void walk_advance(void *walk);
static bool walk_is_blocked(struct vow__pipeline_walk *w);
static void walk_arrive(struct vow__pipeline_walk *w, vow_error *e);
static void walk_free(struct vow__pipeline_walk *w);

struct vow__pipeline_walk *
vow__pipeline_walk_start(struct vow__pipeline_plan *p, size_t to,
                         uint32_t flags, vow__pipeline_walk_fn fn, void *user)
{
    struct vow__pipeline_walk *w = vow__mem_zero(&p->alloc, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->plan = p;
    p->refs++;
    w->to = to;
    w->flags = flags;
    w->fn = fn;
    w->user = user;
    size_t last;
    size_t n = walk_count_shared(w, &last);
    if (n > 0 && (flags & (VOW_SHARE_PEEK | VOW_SHARE_REFRESH)) != 0) {
        w->from = last; /* earlier steps must not run */
        n = 0;
    }
    if (n < 2) {
        vow_call_soon(&w->begin, p->loop, walk_advance, w);
    } else if (walk_peek(w, n) < 0) {
        walk_free(w);
        return NULL;
    }
    return w;
}

void vow__pipeline_walk_stop(struct vow__pipeline_walk *w)
{
    if (w == NULL)
        return;
    w->stopped = true;
    if (w->peek == NULL)
        walk_free(w);
}

/* Returns the number of shared steps on the way, and the last of them. */
static size_t walk_count_shared(const struct vow__pipeline_walk *w,
                                size_t *ret_last)
{
    size_t n = 0;
    *ret_last = 0;
    for (size_t i = 0; i <= w->to; i++) {
        if (vow__pipeline_plan_private(w->plan, i))
            continue;
        *ret_last = i;
        n++;
    }
    return n;
}

/* ---- back --------------------------------------------------------------- */

static int walk_peek(struct vow__pipeline_walk *w, size_t n)
{
    const struct vow__pipeline_plan *p = w->plan;
    vow_name *names = vow__mem_new(&p->alloc, n * sizeof(*names));
    if (names == NULL)
        return VOW_ENOMEM;
    size_t k = 0;
    for (size_t i = 0; i <= w->to; i++)
        if (!vow__pipeline_plan_private(p, i))
            names[k++] = p->names[i];
    w->peek = vow_authority_peek_at(p->site, p->authority, names, n);
    vow__mem_free(&p->alloc, names, n * sizeof(*names));
    vow_watch_start(&w->watch, w->peek, on_walk_peeked, w);
    return 0;
}

/* Without an answer no step is known: the request will report the error. */
static void on_walk_peeked(vow_future *seen, void *walk)
{
    struct vow__pipeline_walk *w = walk;
    const vow_records *r = vow_as_ptr(vow_get(seen));
    (void)vow_error_of(seen);
    if (!w->stopped && r != NULL)
        w->from = walk_longest_known(w, r);
    w->peek = vow_future_unref(w->peek);
    if (w->stopped)
        walk_free(w);
    else
        walk_advance(w);
}

/* Returns the last known step; 0 also if no step is known. */
static size_t walk_longest_known(const struct vow__pipeline_walk *w,
                                 const vow_records *r)
{
    bool force = (w->flags & VOW_SHARE_FORCE) != 0;
    size_t known = 0;
    size_t k = 0;
    for (size_t i = 0; i <= w->to && k < r->n; i++) {
        if (vow__pipeline_plan_private(w->plan, i))
            continue;
        uint32_t status = r->at[k++].status;
        if (status != VOW_STATUS_NONE &&
            (!force || status == VOW_STATUS_WAITING))
            known = i;
    }
    return known;
}

/* ---- forwards ----------------------------------------------------------- */

static void walk_advance(void *walk)
{
    struct vow__pipeline_walk *w = walk;
    while (w->at == NULL || w->at->step < w->to) {
        if (w->at != NULL && walk_is_blocked(w))
            return;
        vow_error *e = w->at == NULL ? NULL : vow__pipeline_output_error(w->at);
        if (e != NULL) {
            walk_arrive(w, e);
            return;
        }
        size_t next = w->at == NULL ? w->from : w->at->step + 1;
        vow__pipeline_output_unlisten(&w->listener);
        w->at = vow__pipeline_output_open(w->plan, next, w->flags, w->at);
        if (w->at == NULL) {
            VOW_AUTO(vow_error)
            none = vow_error_new(w->plan->loop, VOW_ENOMEM, NULL);
            walk_arrive(w, none);
            return;
        }
    }
    walk_arrive(w, NULL);
}

/* Returns whether the next step cannot begin yet. */
static bool walk_is_blocked(struct vow__pipeline_walk *w)
{
    const struct vow__pipeline_plan *p = w->plan;
    struct vow__pipeline_output *at = w->at;
    if (vow__pipeline_plan_private(p, at->step) ||
        vow__pipeline_output_ready(at,
                                   vow__pipeline_plan_streams(p, at->step + 1)))
        return false;
    if (w->listener.to == NULL)
        vow__pipeline_output_listen(at, &w->listener, walk_advance, w);
    return true;
}

static void walk_arrive(struct vow__pipeline_walk *w, vow_error *e)
{
    vow__pipeline_walk_fn fn = w->fn;
    void *user = w->user;
    VOW_AUTO(vow_error) error = vow_error_ref(e);
    struct vow__pipeline_output *reached = NULL;
    vow__pipeline_output_unlisten(&w->listener);
    if (e == NULL) {
        reached = w->at;
        w->at = NULL;
    }
    walk_free(w);
    fn(reached, error, user);
}

static void walk_free(struct vow__pipeline_walk *w)
{
    struct vow__pipeline_plan *p = w->plan;
    (void)vow_call_stop(&w->begin);
    vow__pipeline_output_unlisten(&w->listener);
    vow__pipeline_output_leave(w->at);
    vow__mem_free(&p->alloc, w, sizeof(*w));
    vow__pipeline_plan_unref(p);
}
