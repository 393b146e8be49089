/* SPDX-License-Identifier: MIT */
/* pipeline.c - steps one after the other, whose common beginnings are done
 * once.
 *
 * WHY   The query cache of the article: a query is a row of steps, and many
 *       queries begin with the same ones. A name for each beginning is all that
 *       is needed to do it once, whoever comes first.
 * HOW   The names are hashes over the steps up to each. A run walks to the last
 *       step (pipeline_walk.c) and waits for its result.
 * INVARIANTS
 *   P1  a run walks, or waits for the last feed, until its end is settled
 * THREADS  loop thread only; vow_pipeline_names(): any.
 */
#include "base/alloc.h"
#include "named/pipeline/pipeline_internal.h"

#include <string.h>

struct run {
    struct vow__pipeline_plan *plan; /* counted */
    vow_deferred *end;
    vow_step_info *infos; /* the caller's; may be NULL */
    struct vow__pipeline_walk *walk;
    struct vow__pipeline_output *last; /* wanted; NULL: it is not reached */
    struct vow__pipeline_listener ear;
    vow_call deadline;
};

static const char *refuse(const vow_pipe_step *steps, size_t n,
                          const vow_pipeline_opts *o);
static struct vow__pipeline_plan *plan_new(const char *site, vow_authority *a,
                                           const vow_pipe_step *steps, size_t n,
                                           const vow_pipeline_opts *o);
static size_t label_size(const vow_pipe_step *s, const vow_share_opts *share);
static void copy_steps(struct vow__pipeline_plan *p, const vow_pipe_step *steps,
                       char *labels);
static vow_future *run_new(struct vow__pipeline_plan *p, vow_step_info *infos);
static void on_reached(struct vow__pipeline_output *last, vow_error *e,
                       void *run);
static void on_result(void *run);
static void on_deadline(void *run);
static void on_cancel(vow_error *why, void *run);
static void end_run(struct run *r, vow_future *result, vow_error *e);

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
    const char *wrong = refuse(steps, n, o);
    if (wrong != NULL)
        return vow_refused_at(site, vow_authority_loop(a), VOW_EINVAL, wrong);
    struct vow__pipeline_plan *p = plan_new(site, a, steps, n, o);
    if (p == NULL)
        return vow_refused_at(site, vow_authority_loop(a), VOW_ENOMEM, NULL);
    if (info != NULL)
        memcpy(info, p->infos, n * sizeof(*info));
    vow_future *f = run_new(p, info);
    vow__pipeline_plan_unref(p);
    return f;
}

/* NULL, or what is wrong. */
static const char *refuse(const vow_pipe_step *steps, size_t n,
                          const vow_pipeline_opts *o)
{
    uint32_t known = VOW_STEP_PRIVATE | VOW_STEP_STREAM;
    if (o->size != sizeof(*o) ||
        (o->share.size != 0 && o->share.size != sizeof(o->share)))
        return "the options are of another version";
    if (steps == NULL || n == 0)
        return "a pipeline has steps";
    for (size_t i = 0; i < n; i++) {
        if (steps[i].work == NULL)
            return "a step has no function that does it";
        if ((steps[i].flags & ~known) != 0)
            return "a step has an unknown flag";
    }
    return NULL;
}

/* ---- the plan ----------------------------------------------------------- */

/* The struct, its arrays in the order of their alignment, the labels. */
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
        s->fields = NULL; /* they are in the name */
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

static vow_future *run_new(struct vow__pipeline_plan *p, vow_step_info *infos)
{
    struct run *r = vow__mem_zero(&p->alloc, sizeof(*r));
    if (r == NULL)
        return vow_refused_at(p->site, p->loop, VOW_ENOMEM, NULL);
    vow_future *f = vow_promise_at(p->site, p->loop, &r->end);
    r->plan = p;
    p->refs++;
    r->infos = infos;
    if (vow_deferred_pending(r->end))
        r->walk = vow__pipeline_walk_start(p, p->n - 1, p->share.flags,
                                           on_reached, r);
    if (r->walk == NULL) {
        VOW_AUTO(vow_error) none = vow_error_new(p->loop, VOW_ENOMEM, NULL);
        end_run(r, NULL, none);
        return f;
    }
    vow_on_cancel_now(r->end, on_cancel, r);
    if (p->share.deadline_ms > 0)
        vow_call_at(&r->deadline, p->loop,
                    vow_loop_due_ns(p->loop, p->share.deadline_ms), on_deadline,
                    r);
    return f;
}

static void on_reached(struct vow__pipeline_output *last, vow_error *e,
                       void *run)
{
    struct run *r = run;
    r->walk = NULL;
    if (last == NULL) {
        end_run(r, NULL, e);
        return;
    }
    r->last = last;
    vow__pipeline_output_listen(last, &r->ear, on_result, r);
}

static void on_result(void *run)
{
    struct run *r = run;
    if (r->last->result != NULL)
        end_run(r, r->last->result, vow__pipeline_output_error(r->last));
}

static void on_deadline(void *run)
{
    struct run *r = run;
    unsigned long long ms = r->plan->share.deadline_ms;
    VOW_AUTO(vow_error)
    late = vow_error_new(r->plan->loop, VOW_ETIMEDOUT,
                         "no result within %llu ms", ms);
    end_run(r, NULL, late);
}

/* Inside vow_cancel(): calls nobody. */
static void on_cancel(vow_error *why, void *run)
{
    end_run(run, NULL, why);
}

static void end_run(struct run *r, vow_future *result, vow_error *e)
{
    struct vow__pipeline_plan *p = r->plan;
    (void)vow_call_stop(&r->deadline);
    if (r->infos != NULL)
        memcpy(r->infos, p->infos, p->n * sizeof(*r->infos));
    if (e != NULL)
        (void)vow_reject(r->end, vow_error_ref(e));
    else
        (void)vow_resolve_with(r->end, result);
    vow_deferred_unref(r->end);
    vow__pipeline_output_unlisten(&r->ear);
    vow__pipeline_walk_stop(r->walk);
    vow__pipeline_output_leave(r->last);
    vow__mem_free(&p->alloc, r, sizeof(*r));
    vow__pipeline_plan_unref(p);
}
