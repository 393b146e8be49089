/* SPDX-License-Identifier: MIT */
/* pipeline_step.c - runs a step here: first the input, then the function.
 *
 * WHY   The authority calls this process for one step, perhaps long after the
 *       request: the runner that the pipeline waited for was lost. The input of
 *       the step is requested only then.
 * HOW   The input is the output that the walk came from, or a new walk finds
 *       the input. When the input is there (a stream: when the first chunk is
 *       there) the function is called, and the outcome of the function is the
 *       outcome of the step run. An input that was lost during a read is not a
 *       failure of the step: the lease is abandoned, so that followers of the
 *       chunks start over too, and the authority calls again.
 * INVARIANTS
 *   T1  a step run waits for the input, or the function runs; settling `result`
 *       ends the step run
 *   T2  the input object lives as long as the future of the function is pending
 * THREADS  loop thread only.
 */
#include "base/alloc.h"
#include "named/pipeline/pipeline_internal.h"

enum { PULSES_PER_LEASE = 4 };

struct step_run {
    struct vow__pipeline_output *output; /* memory counted */
    vow_lease *lease; /* counted; NULL: the step is private */
    vow_deferred *result;
    struct vow__pipeline_walk *walk;    /* to the input; NULL: none */
    struct vow__pipeline_output *input; /* used; NULL: none, or not yet */
    struct vow__pipeline_listener listener;
    vow_call pulse;
    vow_future *work; /* NULL: waits for the input */
    vow_watch watch;
    vow_input in;
};

static void find_input(struct step_run *t);
static void on_input_reached(struct vow__pipeline_output *input, vow_error *e,
                             void *step_run);
static void on_input_changed(void *step_run);
static void step_keep_lease(void *step_run);
static void step_call_work(struct step_run *t);
static void on_step_run_cancel(vow_error *why, void *step_run);
static void on_step_work_end(vow_future *work, void *step_run);
static void step_repeat(struct step_run *t);
static void step_fail(struct step_run *t, vow_error *e);
static void step_run_free(struct step_run *t);

vow_future *vow__pipeline_step_begin(vow_lease *lease, void *output)
{
    struct vow__pipeline_output *out = output;
    struct vow__pipeline_plan *p = out->plan;
    if (out->wants == 0) { /* the last user has just left */
        (void)vow_lease_abandon(lease);
        return vow_refused_at(p->site, p->loop, VOW_ECANCELED, NULL);
    }
    struct step_run *t = vow__mem_zero(&p->alloc, sizeof(*t));
    if (t == NULL)
        return vow_refused_at(p->site, p->loop, VOW_ENOMEM, NULL);
    vow_future *end = vow_promise_at(p->site, p->loop, &t->result);
    t->output = out;
    out->refs++;
    t->lease = vow_lease_ref(lease);
    if (!vow_deferred_pending(t->result)) {
        step_run_free(t);
        return end;
    }
    vow_on_cancel(t->result, on_step_run_cancel, t);
    if (lease != NULL)
        vow__pipeline_output_follow(out);
    find_input(t);
    return end;
}

/* ---- the input ---------------------------------------------------------- */

static void find_input(struct step_run *t)
{
    struct vow__pipeline_output *out = t->output;
    struct vow__pipeline_plan *p = out->plan;
    if (t->lease != NULL && (out->flags & VOW_SHARE_MANUAL_PULSE) != 0)
        step_keep_lease(t);
    if (out->step == 0) {
        step_call_work(t);
    } else if (out->input != NULL) {
        t->input = vow__pipeline_output_want(out->input);
        vow__pipeline_output_listen(t->input, &t->listener, on_input_changed,
                                    t);
    } else {
        t->walk = vow__pipeline_walk_start(p, out->step - 1,
                                           vow__pipeline_plan_inner_flags(p),
                                           on_input_reached, t);
        if (t->walk == NULL)
            step_fail(t, vow_error_new(p->loop, VOW_ENOMEM, NULL));
    }
}

static void on_input_reached(struct vow__pipeline_output *input, vow_error *e,
                             void *step_run)
{
    struct step_run *t = step_run;
    t->walk = NULL;
    if (input == NULL) {
        step_fail(t, vow_error_ref(e));
        return;
    }
    t->input = input;
    vow__pipeline_output_listen(input, &t->listener, on_input_changed, t);
}

static void on_input_changed(void *step_run)
{
    struct step_run *t = step_run;
    bool stream = vow__pipeline_plan_streams(t->output->plan, t->output->step);
    if (t->work != NULL) {
        vow__pipeline_input_check(&t->in);
        return;
    }
    if (!vow__pipeline_output_ready(t->input, stream))
        return;
    vow_error *e = vow__pipeline_output_error(t->input);
    if (e != NULL)
        step_fail(t, vow_error_ref(e));
    else
        step_call_work(t);
}

/* Pulses until the function is called; then the function pulses by hand. */
static void step_keep_lease(void *step_run)
{
    struct step_run *t = step_run;
    vow_loop *loop = t->output->plan->loop;
    uint64_t ms = vow_lease_left_ms(t->lease) / PULSES_PER_LEASE + 1;
    if (vow_lease_pulse(t->lease))
        vow_call_at(&t->pulse, loop, vow_loop_due_ns(loop, ms), step_keep_lease,
                    t);
}

/* ---- the function ------------------------------------------------------- */

static void step_call_work(struct step_run *t)
{
    const struct vow__pipeline_plan *p = t->output->plan;
    const vow_pipe_step *step = &p->steps[t->output->step];
    bool stream = (step->flags & VOW_STEP_STREAM) != 0;
    (void)vow_call_stop(&t->pulse);
    if (!stream)
        vow__pipeline_output_unlisten(&t->listener);
    vow__pipeline_input_init(&t->in, p->loop, t->input, stream);
    vow_future *work = step->work(t->lease, &t->in, step->arg);
    if (work == NULL || vow_future_loop(work) != p->loop) {
        vow_future_unref(work);
        work = vow_refused_at(p->site, p->loop, VOW_EINVAL,
                              "the step returned no future of this loop");
    }
    t->work = work;
    vow_watch_start(&t->watch, work, on_step_work_end, t);
}

static void on_step_run_cancel(vow_error *why, void *step_run)
{
    struct step_run *t = step_run;
    if (t->work != NULL)
        (void)vow_cancel(t->work, why);
    else
        step_fail(t, vow_error_ref(why));
}

static void on_step_work_end(vow_future *work, void *step_run)
{
    struct step_run *t = step_run;
    (void)vow_error_of(work); /* goes on to the waiters */
    if (vow__pipeline_input_lost(&t->in)) {
        step_repeat(t);
    } else if (t->in.error != NULL) {
        step_fail(t, vow_error_ref(t->in.error));
    } else {
        (void)vow_resolve_with(t->result, work);
        step_run_free(t);
    }
}

/* Abandons the lease. A private step has no lease, and begins again at once. */
static void step_repeat(struct step_run *t)
{
    const struct vow__pipeline_plan *p = t->output->plan;
    if (t->lease != NULL || vow_deferred_canceled(t->result)) {
        if (t->lease != NULL)
            (void)vow_lease_abandon(t->lease);
        step_fail(t, vow_error_new(p->loop, VOW_ERETRY, NULL));
        return;
    }
    vow__pipeline_input_fini(&t->in);
    t->work = vow_future_unref(t->work);
    on_input_changed(t);
}

static void step_fail(struct step_run *t, vow_error *e)
{
    (void)vow_reject(t->result, e);
    step_run_free(t);
}

static void step_run_free(struct step_run *t)
{
    struct vow__pipeline_output *out = t->output;
    struct vow_alloc alloc = out->plan->alloc;
    (void)vow_call_stop(&t->pulse);
    vow__pipeline_walk_stop(t->walk);
    vow__pipeline_output_unlisten(&t->listener);
    vow__pipeline_input_fini(&t->in);
    vow__pipeline_output_leave(t->input);
    vow_future_unref(t->work);
    vow_deferred_unref(t->result);
    (void)vow_lease_unref(t->lease);
    vow__mem_free(&alloc, t, sizeof(*t));
    vow__pipeline_output_unref(out);
}
