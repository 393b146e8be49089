/* SPDX-License-Identifier: MIT */
/* pipeline_walk.c - the way to a step: back to the longest beginning that is
 * known, and forwards from there.
 *
 * WHY   Who claimed the last step first and then walked back would hold the
 *       leases of all steps while the first one runs; others who share only the
 *       beginning could not tell. So a step is asked for when its input is
 *       there, and not before.
 * HOW   One look at all names tells which is the last that has a result or a
 *       runner. The steps behind it are asked for one after the other; whoever
 *       does one of them meanwhile, it is the same question. A private step is
 *       passed: it is done when a step behind it is really done here.
 * INVARIANTS
 *   W1  it waits for the look, for the call that begins, or for the feed it
 *       has reached
 * THREADS  loop thread only.
 */
#include "base/alloc.h"
#include "named/pipeline/pipeline_internal.h"

struct vow__pipeline_walk {
    struct vow__pipeline_plan *plan; /* counted */
    size_t to;
    size_t from; /* where it begins */
    uint32_t flags;
    bool stopped;
    vow_future *look; /* NULL: none */
    vow_watch watch;
    vow_call begin;
    struct vow__pipeline_output *at; /* wanted; NULL: it has not begun */
    struct vow__pipeline_listener ear;
    vow__pipeline_walk_fn fn;
    void *user;
};

static size_t shared_steps(const struct vow__pipeline_walk *w,
                           size_t *ret_last);
static int look(struct vow__pipeline_walk *w, size_t n);
static void on_look(vow_future *seen, void *walk);
static size_t longest_known(const struct vow__pipeline_walk *w,
                            const vow_records *r);
static void go_on(void *walk);
static bool blocked(struct vow__pipeline_walk *w);
static void arrive(struct vow__pipeline_walk *w, vow_error *e);
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
    size_t n = shared_steps(w, &last);
    if (n > 0 && (flags & (VOW_SHARE_PEEK | VOW_SHARE_REFRESH)) != 0) {
        w->from = last; /* nothing before it is to be made */
        n = 0;
    }
    if (n < 2) {
        vow_call_soon(&w->begin, p->loop, go_on, w);
    } else if (look(w, n) < 0) {
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
    if (w->look == NULL)
        walk_free(w);
}

/* How many there are on the way. */
static size_t shared_steps(const struct vow__pipeline_walk *w, size_t *ret_last)
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

static int look(struct vow__pipeline_walk *w, size_t n)
{
    const struct vow__pipeline_plan *p = w->plan;
    vow_name *names = vow__mem_new(&p->alloc, n * sizeof(*names));
    if (names == NULL)
        return VOW_ENOMEM;
    size_t k = 0;
    for (size_t i = 0; i <= w->to; i++)
        if (!vow__pipeline_plan_private(p, i))
            names[k++] = p->names[i];
    w->look = vow_authority_peek_at(p->site, p->authority, names, n);
    vow__mem_free(&p->alloc, names, n * sizeof(*names));
    vow_watch_start(&w->watch, w->look, on_look, w);
    return 0;
}

/* Without an answer nothing is known: asking will tell what is wrong. */
static void on_look(vow_future *seen, void *walk)
{
    struct vow__pipeline_walk *w = walk;
    const vow_records *r = vow_as_ptr(vow_get(seen));
    (void)vow_error_of(seen);
    if (!w->stopped && r != NULL)
        w->from = longest_known(w, r);
    w->look = vow_future_unref(w->look);
    if (w->stopped)
        walk_free(w);
    else
        go_on(w);
}

/* 0 also when none is. */
static size_t longest_known(const struct vow__pipeline_walk *w,
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

static void go_on(void *walk)
{
    struct vow__pipeline_walk *w = walk;
    while (w->at == NULL || w->at->step < w->to) {
        if (w->at != NULL && blocked(w))
            return;
        vow_error *e = w->at == NULL ? NULL : vow__pipeline_output_error(w->at);
        if (e != NULL) {
            arrive(w, e);
            return;
        }
        size_t next = w->at == NULL ? w->from : w->at->step + 1;
        vow__pipeline_output_unlisten(&w->ear);
        w->at = vow__pipeline_output_open(w->plan, next, w->flags, w->at);
        if (w->at == NULL) {
            VOW_AUTO(vow_error)
            none = vow_error_new(w->plan->loop, VOW_ENOMEM, NULL);
            arrive(w, none);
            return;
        }
    }
    arrive(w, NULL);
}

/* Can the step behind it not begin yet? */
static bool blocked(struct vow__pipeline_walk *w)
{
    const struct vow__pipeline_plan *p = w->plan;
    struct vow__pipeline_output *at = w->at;
    if (vow__pipeline_plan_private(p, at->step) ||
        vow__pipeline_output_ready(at,
                                   vow__pipeline_plan_streams(p, at->step + 1)))
        return false;
    if (w->ear.to == NULL)
        vow__pipeline_output_listen(at, &w->ear, go_on, w);
    return true;
}

static void arrive(struct vow__pipeline_walk *w, vow_error *e)
{
    vow__pipeline_walk_fn fn = w->fn;
    void *user = w->user;
    VOW_AUTO(vow_error) error = vow_error_ref(e);
    struct vow__pipeline_output *reached = NULL;
    vow__pipeline_output_unlisten(&w->ear);
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
    vow__pipeline_output_unlisten(&w->ear);
    vow__pipeline_output_leave(w->at);
    vow__mem_free(&p->alloc, w, sizeof(*w));
    vow__pipeline_plan_unref(p);
}
