/* SPDX-License-Identifier: MIT */
/* combine.c - all, all_settled, any, race.
 *
 * WHY   A single future from many, without a callback that counts.
 * HOW   A group is a block of memory: a head, and a watch for each input. When
 *       the outcome is known, the watches that still wait leave their inputs,
 *       so a race against a long-lived future leaves nothing behind. An input
 *       with running work stays as a rest of the result: the result has not
 *       ended before the work, and holds the group until then (rest.c). The
 *       result list of all and all_settled is the group itself, which keeps the
 *       inputs: no values are copied.
 * INVARIANTS
 *   G1  watch.node.source of an input is the input's future, counted, from
 *       beginning to end, or NULL after the group has left the future
 *   G2  `out` is NULL once the result is settled and the group has dropped it
 * LIMITS  two allocations for any number of inputs; settling O(1) per input,
 *       plus O(n) once.
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

enum mode { ALL, ALL_SETTLED, ANY, RACE };

struct input {
    struct vow__core_watch watch;
    struct combine_group *group;
    bool done; /* the future is settled and was counted, or was left */
    bool rest; /* the future has not ended, and counts in end_refs */
};

/* The target of a VOW_LIST value: a future every `stride` bytes. */
struct items {
    size_t n;
    vow_future **first;
    size_t stride;
    void (*drop)(struct items *items);
};

struct array {
    struct items items;
    struct vow_alloc alloc;
    vow_future *at[];
};

struct combine_group {
    struct items items; /* the futures of the inputs, if is_list */
    vow_loop *loop;
    vow_future *out; /* the result; the group holds the deferred */
    enum mode mode;
    size_t n;
    size_t left;       /* inputs not yet settled */
    uint32_t refs;     /* the pending result or the list; `out` with rests */
    bool is_list;      /* the group is the value of the result */
    size_t first_rest; /* inputs before this index have no rest */
    vow_error *errors; /* ANY: the errors of the inputs, owned */
    struct input inputs[];
};

static vow_future *combine_inputs(const char *site, vow_loop *loop,
                                  vow_future *const *futures, size_t n,
                                  enum mode mode);
static struct combine_group *combine_group_new(const char *site, vow_loop *loop,
                                               size_t n, enum mode mode);
static void group_unref(struct combine_group *g);
static bool group_has_rests(const struct combine_group *g);
static void group_detach(struct combine_group *g);
static void group_input_set_rest(struct input *input, bool rest);
static void group_drop(struct items *items);
static void array_drop(struct items *items);
static void group_input_run(struct vow__core_watch *w);
static void group_conclude(struct combine_group *g);
static void group_inputs_let_go(struct combine_group *g, vow_error *why);
static void on_group_cancel(vow_error *why, void *user);
static size_t group_size(size_t n);

vow_future *vow_all_at(const char *site, vow_loop *loop,
                       vow_future *const *futures, size_t n)
{
    VOW__ASSERT_THREAD(loop);
    return combine_inputs(site, loop, futures, n, ALL);
}

vow_future *vow_all_settled_at(const char *site, vow_loop *loop,
                               vow_future *const *futures, size_t n)
{
    VOW__ASSERT_THREAD(loop);
    return combine_inputs(site, loop, futures, n, ALL_SETTLED);
}

vow_future *vow_any_at(const char *site, vow_loop *loop,
                       vow_future *const *futures, size_t n)
{
    VOW__ASSERT_THREAD(loop);
    return combine_inputs(site, loop, futures, n, ANY);
}

vow_future *vow_race_at(const char *site, vow_loop *loop,
                        vow_future *const *futures, size_t n)
{
    VOW__ASSERT_THREAD(loop);
    if (n == 0) { /* only vow_loop_close() settles the future */
        vow_future *f =
            vow__core_future_new(loop, site, VOW__PROMISE, 1, false);
        return f != NULL ? f : vow__core_future_no_memory(loop);
    }
    return combine_inputs(site, loop, futures, n, RACE);
}

size_t vow_list_size(vow_value list)
{
    return list.tag == VOW_LIST ? ((struct items *)list.as.ptr)->n : 0;
}

vow_future *vow_list_at(vow_value list, size_t index)
{
    if (index >= vow_list_size(list))
        return NULL;
    struct items *items = list.as.ptr;
    return *(vow_future **)(void *)((char *)items->first +
                                    index * items->stride);
}

vow_value vow_list_get(vow_value list, size_t index)
{
    vow_future *f = vow_list_at(list, index);
    return f == NULL ? vow_nothing() : vow_get(f);
}

int vow_list_new(vow_loop *loop, vow_future *const *futures, size_t n,
                 vow_value *ret_list)
{
    VOW__ASSERT_THREAD(loop);
    struct array *a = NULL;
    int rc = n > 0 && futures == NULL ? VOW_EINVAL : 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (futures[i] == NULL || vow__core_future_is_pending(futures[i]) ||
            vow__core_future_loop(futures[i]) != loop)
            rc = VOW_EINVAL;
    if (rc == 0 && n <= (SIZE_MAX - sizeof(*a)) / sizeof(a->at[0]))
        a = vow__mem_new(&loop->alloc, sizeof(*a) + n * sizeof(a->at[0]));
    if (rc == 0 && a == NULL)
        rc = VOW_ENOMEM;
    if (rc < 0) {
        for (size_t i = 0; futures != NULL && i < n; i++)
            vow_future_unref(futures[i]);
        return rc;
    }
    a->alloc = loop->alloc;
    a->items = (struct items){
        .n = n, .first = a->at, .stride = sizeof(a->at[0]), .drop = array_drop};
    for (size_t i = 0; i < n; i++) {
        futures[i]->node.handled = 1;
        a->at[i] = futures[i];
    }
    ret_list->as.ptr = a;
    ret_list->tag = VOW_LIST;
    return 0;
}

void vow__core_value_list_drop(void *list)
{
    struct items *items = list;
    items->drop(items);
}

static void group_drop(struct items *items)
{
    group_unref(VOW__OUTER(items, struct combine_group, items));
}

static void array_drop(struct items *items)
{
    struct array *a = VOW__OUTER(items, struct array, items);
    struct vow_alloc alloc = a->alloc;
    size_t n = items->n;
    for (size_t i = 0; i < n; i++)
        vow__core_future_unref(a->at[i]);
    vow__mem_free(&alloc, a, sizeof(*a) + n * sizeof(a->at[0]));
}

static vow_future *combine_inputs(const char *site, vow_loop *loop,
                                  vow_future *const *futures, size_t n,
                                  enum mode mode)
{
    for (size_t i = 0; i < n; i++)
        if (futures == NULL || futures[i] == NULL ||
            vow__core_future_loop(futures[i]) != loop)
            return vow_refused_at(site, loop, VOW_EINVAL,
                                  "an input is NULL or of another loop");
    if (loop->closed)
        return vow_refused_at(site, loop, VOW_ECLOSED, NULL);
    struct combine_group *g = combine_group_new(site, loop, n, mode);
    if (g == NULL)
        return vow__core_future_no_memory(loop);
    vow_future *out = g->out;
    for (size_t i = 0; i < n; i++)
        vow__core_node_wait(loop, &g->inputs[i].watch.node, futures[i]);
    if (n == 0)
        group_conclude(g);
    return out;
}

static struct combine_group *combine_group_new(const char *site, vow_loop *loop,
                                               size_t n, enum mode mode)
{
    if (n > (SIZE_MAX - sizeof(struct combine_group)) / sizeof(struct input))
        return NULL;
    struct combine_group *g = vow__mem_zero(&loop->alloc, group_size(n));
    if (g == NULL)
        return NULL;
    g->loop = loop;
    g->mode = mode;
    g->refs = 1;
    g->n = n;
    g->left = n;
    if (mode == ANY) {
        g->errors = vow__error_make_list(&loop->alloc, site, VOW_EALLFAILED, n);
        if (g->errors == NULL)
            goto fail;
    }
    g->out = vow__core_promise_new(loop, site, on_group_cancel, g);
    if (g->out == NULL)
        goto fail;
    g->out->node.runs = 1;
    for (size_t i = 0; i < n; i++) {
        g->inputs[i].watch.node.kind = VOW__WATCH;
        g->inputs[i].watch.run = group_input_run;
        g->inputs[i].group = g;
    }
    return g;

fail:
    vow_error_unref(g->errors);
    vow__mem_free(&loop->alloc, g, group_size(n));
    return NULL;
}

static void group_input_run(struct vow__core_watch *w)
{
    struct input *input = VOW__OUTER(w, struct input, watch);
    struct combine_group *g = input->group;
    vow_future *source = w->node.source;
    bool failed = source->node.state == VOW_REJECTED;
    input->done = true;
    if (VOW__UNLIKELY(source->node.rest))
        group_input_set_rest(input, true);
    g->left--;
    if (g->mode == RACE || (g->mode == ALL && failed) ||
        (g->mode == ANY && !failed)) {
        vow__core_future_adopt_outcome(g->loop, g->out, source);
        group_inputs_let_go(g, NULL);
        group_detach(g);
        return;
    }
    if (g->mode == ANY) {
        if (vow_error_cause(g->errors) == NULL)
            vow__error_set_cause(g->errors, vow__core_future_error(source));
        vow__error_set_at(g->errors, (size_t)(input - g->inputs),
                          vow__core_future_error(source));
    }
    if (g->left == 0)
        group_conclude(g);
    else
        vow__core_progress_notify(g->loop, g->out,
                                  vow_int((int64_t)(g->n - g->left)));
}

/* Settles the result: all inputs are settled, and none decided the outcome. */
static void group_conclude(struct combine_group *g)
{
    vow_future *out = g->out;
    if (g->mode == ANY) {
        vow_error *errors = g->errors;
        g->errors = NULL;
        vow__core_future_reject(g->loop, out, errors);
        group_detach(g);
        return;
    }
    g->is_list = true;
    g->items = (struct items){.n = g->n,
                              .first = &g->inputs[0].watch.node.source,
                              .stride = sizeof(g->inputs[0]),
                              .drop = group_drop};
    vow_value list;
    list.as.ptr = &g->items;
    list.tag = VOW_LIST;
    vow__core_future_fulfil(g->loop, out, list);
    if (VOW__UNLIKELY(group_has_rests(g))) {
        g->refs++; /* the list and `out` */
        group_detach(g);
        return;
    }
    g->out = NULL; /* keeps G2 */
    vow_deferred_unref(vow__core_deferred_of(out));
}

/* Makes all waiting inputs leave their futures; with `why`, futures without
 * another reader are canceled. */
static void group_inputs_let_go(struct combine_group *g, vow_error *why)
{
    for (size_t i = 0; i < g->n; i++) {
        struct input *input = &g->inputs[i];
        if (input->done)
            continue;
        input->done = true;
        vow_future *source = vow__core_node_unwait(g->loop, &input->watch.node);
        if (why != NULL || !vow__core_future_is_pending(source)
                ? vow__core_rest_counts(source)
                : vow__core_future_runs_work(source)) {
            input->watch.node.source = vow__core_future_ref(source);
            group_input_set_rest(input, true);
        }
        if (why != NULL)
            vow__core_source_let_go(g->loop, source, why);
        else
            vow__core_future_unref(source);
    }
}

static void on_group_cancel(vow_error *why, void *user)
{
    struct combine_group *g = user;
    vow__core_future_reject(g->loop, g->out, vow_error_ref(why));
    group_inputs_let_go(g, why);
    group_detach(g);
}

/* Drops the settled result. The result holds the group as long as inputs have
 * not ended. */
static void group_detach(struct combine_group *g)
{
    vow_future *out = vow__core_future_ref(g->out);
    g->out = NULL; /* keeps G2 */
    if (group_has_rests(g)) {
        out->node.kind = VOW__GROUP;
        out->node.rest = 1;
        out->user = g;
    } else {
        group_unref(g);
    }
    vow_deferred_unref(vow__core_deferred_of(out));
    vow__core_rest_trim(out);
    vow__core_future_unref(out);
}

static bool group_has_rests(const struct combine_group *g)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->inputs[i].rest)
            return true;
    return false;
}

static void group_input_set_rest(struct input *input, bool rest)
{
    input->rest = rest;
    vow__core_future_count_end_ref(input->watch.node.source, rest ? 1 : -1);
}

static void group_unref(struct combine_group *g)
{
    if (--g->refs > 0)
        return;
    for (size_t i = 0; i < g->n; i++) {
        vow_future *source = g->inputs[i].watch.node.source;
        if (source == NULL)
            continue;
        if (g->inputs[i].rest)
            group_input_set_rest(&g->inputs[i], false);
        vow__core_future_unref(source);
    }
    VOW__ASSERT(g->out == NULL);
    vow_error_unref(g->errors);
    vow__mem_free(&g->loop->alloc, g, group_size(g->n));
}

/* ---- rests --------------------------------------------------------------- */

vow_future **vow__core_group_rest(vow_future *out)
{
    struct combine_group *g = out->user;
    if (g == NULL)
        return NULL;
    while (g->first_rest < g->n && !g->inputs[g->first_rest].rest)
        g->first_rest++;
    return g->first_rest == g->n ? NULL
                                 : &g->inputs[g->first_rest].watch.node.source;
}

void vow__core_group_rest_drop(vow_future *out)
{
    struct combine_group *g = out->user;
    struct input *input = &g->inputs[g->first_rest];
    vow_future *source = input->watch.node.source;
    group_input_set_rest(input, false);
    if (g->is_list)
        return;
    input->watch.node.source = NULL;
    vow__core_future_unref(source);
}

void vow__core_group_release(vow_future *out)
{
    struct combine_group *g = out->user;
    out->user = NULL;
    if (g != NULL)
        group_unref(g);
}

static size_t group_size(size_t n)
{
    return sizeof(struct combine_group) + n * sizeof(struct input);
}
