/* SPDX-License-Identifier: MIT */
/* census.c - all live futures: counts by site, and unhandled rejections.
 *
 * WHY   To find the promise that a program forgot to settle.
 * HOW   All futures are in the loop's slab cache, and the cache can be walked:
 *       a census costs nothing before the call. Sites are compared by text,
 *       because two compilation units may hold the same literal twice.
 * LIMITS  the census is O(live × log sites) and needs memory for the sites.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

#include <stdlib.h>
#include <string.h>

struct tally {
    vow_census *lines; /* sorted by site */
    size_t n;
    size_t room;
    const struct vow_alloc *alloc;
};

static vow_future *future_next_live(const vow_loop *loop,
                                    struct vow__slab_cursor *at);
static int tally_add(struct tally *t, const vow_future *f);
static int tally_grow(struct tally *t);
static int compare_by_count(const void *a, const void *b);

int vow__core_promises_open(vow_loop *loop, bool share_slabs)
{
    vow__slab_init(&loop->futures, &loop->alloc, loop, sizeof(vow_future),
                   share_slabs);
    vow_future *f = vow__core_future_new(loop, NULL, VOW__NONE, 1, false);
    if (f == NULL)
        return VOW_ENOMEM;
    f->node.handled = 1;
    f->node.state = VOW_REJECTED;
    f->u.value.as.ptr = vow__error_static(VOW_ENOMEM);
    f->u.value.tag = VOW_NOTHING;
    loop->no_memory = f;
    return 0;
}

/* Frees no future during the walk: rejecting moves waiters to the ready queue,
 * and hook_now hooks are queued. */
bool vow__core_promises_reject_all(vow_loop *loop)
{
    struct vow__slab_cursor at = {0};
    vow_future *f;
    vow_error *e = NULL;
    while ((f = future_next_live(loop, &at)) != NULL) {
        if (!vow__core_future_is_pending(f) || f->node.kind != VOW__PROMISE)
            continue;
        if (e == NULL)
            e = vow__core_error_new(loop, NULL, VOW_ECLOSED, NULL, NULL);
        if (f->node.hook_now)
            vow__core_hook_queue(loop, f, e);
        else
            vow__core_future_reject(loop, f, vow_error_ref(e));
    }
    bool some = e != NULL;
    vow_error_unref(e);
    return some;
}

/* Gathers the futures in a list before the first call, because on_unhandled may
 * free futures. The list uses the links of the nodes. */
void vow__core_promises_tell_unhandled(vow_loop *loop)
{
    struct vow__slab_cursor at = {0};
    vow_link *list = NULL;
    vow_future *f;
    while ((f = future_next_live(loop, &at)) != NULL) {
        if (f->node.state == VOW_REJECTED && !f->node.handled) {
            f->node.handled = 1;
            vow__list_push(&list, &vow__core_future_ref(f)->node.link);
        }
    }
    vow_link *l;
    while ((l = vow__list_take(&list)) != NULL) {
        struct vow__core_node *n = VOW__OUTER(l, struct vow__core_node, link);
        f = VOW__OUTER(n, vow_future, node);
        vow__core_loop_tell_unhandled(loop, f);
        vow__core_future_unref(f);
    }
}

/* Runs when the loop closes and no work runs any more. Takes rings of rests
 * apart as well. */
bool vow__core_promises_forget_rests(vow_loop *loop)
{
    struct vow__slab_cursor at = {0};
    vow_link *list = NULL;
    vow_link *l;
    vow_future *f;
    while ((f = future_next_live(loop, &at)) != NULL)
        if (f->node.rest && !vow__core_future_is_pending(f) &&
            f->node.kind != VOW__FINALLY)
            vow__list_push(&list, &vow__core_future_ref(f)->node.link);
    bool some = list != NULL;
    while ((l = vow__list_take(&list)) != NULL) {
        f = VOW__OUTER(VOW__OUTER(l, struct vow__core_node, link), vow_future,
                       node);
        if (f->node.rest)
            vow__core_rest_release(f);
        f->node.rest = 0;
        vow__core_future_unref(f);
    }
    return some;
}

void vow__core_loop_tell_unhandled(vow_loop *loop, vow_future *f)
{
    vow_error *e = vow__core_future_error(f);
    int code = vow_error_code(e);
    if (code == VOW_ECANCELED || code == VOW_ECLOSED || !vow__error_tell(e))
        return;
    loop->unhandled++;
    if (loop->on_unhandled == NULL)
        return;
    struct vow__core_visit before = vow__core_visit_begin(loop);
    loop->on_unhandled(e, vow_future_site(f), loop->on_unhandled_user);
    vow__core_visit_end(loop, before);
}

void vow_loop_stats_get(const vow_loop *loop, vow_loop_stats *ret_stats)
{
    VOW__ASSERT_THREAD(loop);
    struct vow__slab_cursor at = {0};
    size_t live = 0;
    size_t pending = 0;
    const vow_future *f;
    while ((f = future_next_live(loop, &at)) != NULL) {
        live++;
        pending += vow__core_future_is_pending(f);
    }
    *ret_stats = (vow_loop_stats){
        .futures = live,
        .pending = pending,
        .fibers = vow__core_fibers_count(loop),
        .stacks = vow__core_fibers_stacks(loop),
        .guards_missing = vow__core_fibers_guards_missing(loop),
        .timers = loop->timers_strong,
        .scopes = loop->scopes,
        .jobs = vow__core_work_count(loop),
        .late_settles = loop->late_settles,
        .unhandled = loop->unhandled,
        .handlers_run = loop->handlers_run,
        .pool_bytes = loop->futures.slabs * vow__slab_bytes(&loop->futures),
    };
}

int vow_loop_census(vow_loop *loop, vow_census_fn fn, void *user)
{
    VOW__ASSERT_THREAD(loop);
    struct tally t = {.alloc = &loop->alloc};
    struct vow__slab_cursor at = {0};
    const vow_future *f;
    int rc = 0;
    while (rc == 0 && (f = future_next_live(loop, &at)) != NULL)
        rc = tally_add(&t, f);
    if (rc == 0 && t.n > 0)
        qsort(t.lines, t.n, sizeof(*t.lines), compare_by_count);
    for (size_t i = 0; rc == 0 && i < t.n; i++)
        fn(&t.lines[i], user);
    vow__mem_free(&loop->alloc, t.lines, t.room * sizeof(*t.lines));
    return rc;
}

/* Returns the next live future, without the loop's no_memory; NULL: the end. */
static vow_future *future_next_live(const vow_loop *loop,
                                    struct vow__slab_cursor *at)
{
    vow_future *f;
    do
        f = vow__slab_next(&loop->futures, at);
    while (f != NULL && (f->node.kind == VOW__FREE || f == loop->no_memory));
    return f;
}

static int tally_add(struct tally *t, const vow_future *f)
{
    const char *site = f->site == NULL ? "" : f->site;
    size_t low = 0;
    size_t high = t->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(t->lines[middle].site, site) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == t->n || strcmp(t->lines[low].site, site) != 0) {
        if (t->n == t->room && tally_grow(t) < 0)
            return VOW_ENOMEM;
        memmove(&t->lines[low + 1], &t->lines[low],
                (t->n - low) * sizeof(*t->lines));
        t->lines[low] = (vow_census){.site = site};
        t->n++;
    }
    if (vow__core_future_is_pending(f))
        t->lines[low].pending++;
    else
        t->lines[low].settled++;
    return 0;
}

static int tally_grow(struct tally *t)
{
    size_t room = t->room == 0 ? 16 : 2 * t->room;
    vow_census *lines = vow__mem_new(t->alloc, room * sizeof(*lines));
    if (lines == NULL)
        return VOW_ENOMEM;
    if (t->n > 0)
        memcpy(lines, t->lines, t->n * sizeof(*lines));
    vow__mem_free(t->alloc, t->lines, t->room * sizeof(*lines));
    t->lines = lines;
    t->room = room;
    return 0;
}

static int compare_by_count(const void *a, const void *b)
{
    const vow_census *x = a;
    const vow_census *y = b;
    size_t nx = x->pending + x->settled;
    size_t ny = y->pending + y->settled;
    if (nx != ny)
        return nx < ny ? 1 : -1;
    return strcmp(x->site, y->site);
}
