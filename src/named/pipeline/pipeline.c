/* SPDX-License-Identifier: MIT */
/* pipeline.c - a sequence of steps; common beginnings of pipelines run once.
 *
 * WHY   The query cache of the article: a query is a sequence of steps, and
 *       many queries begin with the same steps. With a name for each beginning,
 *       the first pipeline that needs a beginning runs it for all.
 * HOW   The name of a step is a hash over all steps up to that step. A run
 *       walks to the last step (pipeline_walk.c) and waits for the result.
 * INVARIANTS
 *   P1  a run walks, or waits for the last output, until `result` is settled
 * THREADS  loop thread only; vow_pipeline_names(): any.
 */
#include "base/alloc.h"
#include "named/pipeline/pipeline_internal.h"

#include <string.h>

struct pipeline_run {
    struct vow__pipeline_plan *plan; /* counted */
    vow_deferred *result;
    vow_step_info *infos; /* the caller's; may be NULL */
    struct vow__pipeline_walk *walk;
    struct vow__pipeline_output *last; /* used; NULL: not reached */
    struct vow__pipeline_listener listener;
    vow_call deadline;
};

static const char *pipeline_check_args(const vow_pipe_step *steps, size_t n,
                                       const vow_pipeline_opts *o);
static struct vow__pipeline_plan *plan_new(const char *site, vow_authority *a,
                                           const vow_pipe_step *steps, size_t n,
                                           const vow_pipeline_opts *o);
static size_t label_size(const vow_pipe_step *s, const vow_share_opts *share);
static void copy_steps(struct vow__pipeline_plan *p, const vow_pipe_step *steps,
                       char *labels);
static vow_future *pipeline_run_new(struct vow__pipeline_plan *p,
                                    vow_step_info *infos);
static void on_last_step_reached(struct vow__pipeline_output *last,
                                 vow_error *e, void *pipeline_run);
static void on_last_output(void *pipeline_run);
static void on_pipeline_deadline(void *pipeline_run);
static void on_pipeline_cancel(vow_error *why, void *pipeline_run);
static void pipeline_run_end(struct pipeline_run *r, vow_future *result,
                             vow_error *e);

void vow_pipeline_names(const vow_pipe_step *steps, size_t n,
                        const vow_pipeline_opts *opts, vow_name *ret_names)
{
    const vow_pipeline_opts none = {.size = sizeof(none)};
    const vow_pipeline_opts *o = opts == NULL ? &none : opts;
    vow_name before = vow_name_make(o->key, o->source, o->n_source);
    for (size_t i = 0; i < n; i++) {
        before =
            vow_name_step(o->key, &before, steps[i].fields, steps[i].n_fields);
        ret_names[i] = before;
    }
}

vow_future *vow_pipeline_run_at(const char *site, vow_authority *a,
                                const vow_pipe_step *steps, size_t n,
                                const vow_pipeline_opts *opts,
                                vow_step_info *info)
{
    const vow_pipeline_opts none = {.size = sizeof(none)};
    const vow_pipeline_opts *o = opts == NULL ? &none : opts;
    const char *wrong = pipeline_check_args(steps, n, o);
    if (wrong != NULL)
        return vow_refused_at(site, vow_authority_loop(a), VOW_EINVAL, wrong);
    struct vow__pipeline_plan *p = plan_new(site, a, steps, n, o);
    if (p == NULL)
        return vow_refused_at(site, vow_authority_loop(a), VOW_ENOMEM, NULL);
    if (info != NULL)
        memcpy(info, p->infos, n * sizeof(*info));
    vow_future *f = pipeline_run_new(p, info);
    vow__pipeline_plan_unref(p);
    return f;
}

/* Returns NULL or an error text. */
static const char *pipeline_check_args(const vow_pipe_step *steps, size_t n,
                                       const vow_pipeline_opts *o)
{
    uint32_t known = VOW_STEP_PRIVATE | VOW_STEP_STREAM;
    if (o->size != sizeof(*o) ||
        (o->share.size != 0 && o->share.size != sizeof(o->share)))
        return "the options are of another version";
    if (steps == NULL || n == 0)
        return "a pipeline needs at least one step";
    for (size_t i = 0; i < n; i++) {
        if (steps[i].work == NULL)
            return "a step has no function that does it";
        if ((steps[i].flags & ~known) != 0)
            return "a step has an unknown flag";
    }
    return NULL;
}

/* ---- the plan ----------------------------------------------------------- */

/* Makes one block: the struct, the arrays in order of alignment, the labels. */
static struct vow__pipeline_plan *plan_new(const char *site, vow_authority *a,
                                           const vow_pipe_step *steps, size_t n,
                                           const vow_pipeline_opts *o)
{
    vow_loop *loop = vow_authority_loop(a);
    size_t size = sizeof(struct vow__pipeline_plan);
    for (size_t i = 0; i < n; i++)
        size += sizeof(vow_pipe_step) + sizeof(vow_step_info) +
                sizeof(vow_name) + label_size(&steps[i], &o->share);
    struct vow__pipeline_plan *p = vow__mem_zero(vow_loop_alloc(loop), size);
    if (p == NULL)
        return NULL;
    p->refs = 1;
    p->size = size;
    p->alloc = *vow_loop_alloc(loop);
    p->authority = vow_authority_ref(a);
    p->loop = loop;
    p->site = site;
    p->share = o->share;
    p->share.size = sizeof(p->share);
    p->n = n;
    p->steps = (vow_pipe_step *)(void *)(p + 1);
    p->infos = (vow_step_info *)(void *)(p->steps + n);
    p->names = (vow_name *)(void *)(p->infos + n);
    copy_steps(p, steps, (char *)(p->names + n));
    vow_pipeline_names(steps, n, o, p->names);
    for (size_t i = 0; i < n; i++)
        p->infos[i].name = p->names[i];
    return p;
}

static size_t label_size(const vow_pipe_step *s, const vow_share_opts *share)
{
    const char *label = s->label != NULL ? s->label : share->label;
    return label == NULL ? 0 : strlen(label) + 1;
}

static void copy_steps(struct vow__pipeline_plan *p, const vow_pipe_step *steps,
                       char *labels)
{
    for (size_t i = 0; i < p->n; i++) {
        vow_pipe_step *s = &p->steps[i];
        size_t size = label_size(&steps[i], &p->share);
        *s = steps[i];
        s->fields = NULL; /* part of the name */
        s->n_fields = 0;
        if (s->label == NULL)
            s->label = p->share.label;
        if (size > 0)
            s->label = memcpy(labels, s->label, size);
        labels += size;
    }
}

void vow__pipeline_plan_unref(struct vow__pipeline_plan *p)
{
    if (--p->refs > 0)
        return;
    struct vow_alloc alloc = p->alloc;
    vow_authority_unref(p->authority);
    vow__mem_free(&alloc, p, p->size);
}

/* ---- a run -------------------------------------------------------------- */

static vow_future *pipeline_run_new(struct vow__pipeline_plan *p,
                                    vow_step_info *infos)
{
    struct pipeline_run *r = vow__mem_zero(&p->alloc, sizeof(*r));
    if (r == NULL)
        return vow_refused_at(p->site, p->loop, VOW_ENOMEM, NULL);
    vow_future *f = vow_promise_at(p->site, p->loop, &r->result);
    r->plan = p;
    p->refs++;
    r->infos = infos;
    if (vow_deferred_pending(r->result))
        r->walk = vow__pipeline_walk_start(p, p->n - 1, p->share.flags,
                                           on_last_step_reached, r);
    if (r->walk == NULL) {
        VOW_AUTO(vow_error) none = vow_error_new(p->loop, VOW_ENOMEM, NULL);
        pipeline_run_end(r, NULL, none);
        return f;
    }
    vow_on_cancel_now(r->result, on_pipeline_cancel, r);
    if (p->share.deadline_ms > 0)
        vow_call_at(&r->deadline, p->loop,
                    vow_loop_due_ns(p->loop, p->share.deadline_ms),
                    on_pipeline_deadline, r);
    return f;
}

static void on_last_step_reached(struct vow__pipeline_output *last,
                                 vow_error *e, void *pipeline_run)
{
    struct pipeline_run *r = pipeline_run;
    r->walk = NULL;
    if (last == NULL) {
        pipeline_run_end(r, NULL, e);
        return;
    }
    r->last = last;
    vow__pipeline_output_listen(last, &r->listener, on_last_output, r);
}

static void on_last_output(void *pipeline_run)
{
    struct pipeline_run *r = pipeline_run;
    if (r->last->result != NULL)
        pipeline_run_end(r, r->last->result,
                         vow__pipeline_output_error(r->last));
}

static void on_pipeline_deadline(void *pipeline_run)
{
    struct pipeline_run *r = pipeline_run;
    unsigned long long ms = r->plan->share.deadline_ms;
    VOW_AUTO(vow_error)
    late = vow_error_new(r->plan->loop, VOW_ETIMEDOUT,
                         "no result within %llu ms", ms);
    pipeline_run_end(r, NULL, late);
}

/* Runs inside vow_cancel(), and calls no user code. */
static void on_pipeline_cancel(vow_error *why, void *pipeline_run)
{
    pipeline_run_end(pipeline_run, NULL, why);
}

static void pipeline_run_end(struct pipeline_run *r, vow_future *result,
                             vow_error *e)
{
    struct vow__pipeline_plan *p = r->plan;
    (void)vow_call_stop(&r->deadline);
    if (r->infos != NULL)
        memcpy(r->infos, p->infos, p->n * sizeof(*r->infos));
    if (e != NULL)
        (void)vow_reject(r->result, vow_error_ref(e));
    else
        (void)vow_resolve_with(r->result, result);
    vow_deferred_unref(r->result);
    vow__pipeline_output_unlisten(&r->listener);
    vow__pipeline_walk_stop(r->walk);
    vow__pipeline_output_leave(r->last);
    vow__mem_free(&p->alloc, r, sizeof(*r));
    vow__pipeline_plan_unref(p);
}
