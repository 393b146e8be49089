/* SPDX-License-Identifier: MIT */
/* pipeline_step.c - a step is done here: first its input, then the function.
 *
 * WHY   The authority calls upon us for one step, also long after we have
 *       hooked on to somebody who was lost then. Whatever that step needs is
 *       asked for at that time.
 * HOW   The input is the feed the walk came from, or is walked to anew. When it
 *       is there (a stream: when it has begun) the function is called, and its
 *       outcome is that of the turn. A turn whose input was lost while it read
 *       is not a failure of the step: the lease is abandoned, so that those who
 *       follow its chunks begin anew too, and the authority calls again.
 * INVARIANTS
 *   T1  a turn waits for its input, or its function runs; its end ends it
 *   T2  the input object lives as long as what the function returned is pending
 * THREADS  loop thread only.
 */
#include "base/alloc.h"
#include "named/pipeline/pipeline_internal.h"

enum { PULSES_PER_LEASE = 4 };

struct turn {
    struct vow__pipeline_output *feed; /* counted as memory */
    vow_lease *lease;                  /* counted; NULL: the step is private */
    vow_deferred *end;
    struct vow__pipeline_walk *walk;    /* to its input; NULL: none */
    struct vow__pipeline_output *input; /* wanted; NULL: none, or not yet */
    struct vow__pipeline_listener ear;
    vow_call pulse;
    vow_future *work; /* NULL: it waits for its input */
    vow_watch watch;
    vow_input in;
};

static void find_input(struct turn *t);
static void on_reached(struct vow__pipeline_output *input, vow_error *e,
                       void *turn);
static void on_input(void *turn);
static void keep_lease(void *turn);
static void call(struct turn *t);
static void on_cancel(vow_error *why, void *turn);
static void on_end(vow_future *work, void *turn);
static void once_more(struct turn *t);
static void fail(struct turn *t, vow_error *e);
static void turn_free(struct turn *t);

vow_future *vow__pipeline_step_begin(vow_lease *lease, void *feed)
{
    struct vow__pipeline_output *f = feed;
    struct vow__pipeline_plan *p = f->plan;
    if (f->wants == 0) { /* we have just left */
        (void)vow_lease_abandon(lease);
        return vow_refused_at(p->site, p->loop, VOW_ECANCELED, NULL);
    }
    struct turn *t = vow__mem_zero(&p->alloc, sizeof(*t));
    if (t == NULL)
        return vow_refused_at(p->site, p->loop, VOW_ENOMEM, NULL);
    vow_future *end = vow_promise_at(p->site, p->loop, &t->end);
    t->feed = f;
    f->refs++;
    t->lease = vow_lease_ref(lease);
    if (!vow_deferred_pending(t->end)) {
        turn_free(t);
        return end;
    }
    vow_on_cancel(t->end, on_cancel, t);
    if (lease != NULL)
        vow__pipeline_output_follow(f);
    find_input(t);
    return end;
}

/* ---- its input ---------------------------------------------------------- */

static void find_input(struct turn *t)
{
    struct vow__pipeline_output *f = t->feed;
    struct vow__pipeline_plan *p = f->plan;
    if (t->lease != NULL && (f->flags & VOW_SHARE_MANUAL_PULSE) != 0)
        keep_lease(t);
    if (f->step == 0) {
        call(t);
    } else if (f->input != NULL) {
        t->input = vow__pipeline_output_want(f->input);
        vow__pipeline_output_listen(t->input, &t->ear, on_input, t);
    } else {
        t->walk = vow__pipeline_walk_start(
            p, f->step - 1, vow__pipeline_plan_inner_flags(p), on_reached, t);
        if (t->walk == NULL)
            fail(t, vow_error_new(p->loop, VOW_ENOMEM, NULL));
    }
}

static void on_reached(struct vow__pipeline_output *input, vow_error *e,
                       void *turn)
{
    struct turn *t = turn;
    t->walk = NULL;
    if (input == NULL) {
        fail(t, vow_error_ref(e));
        return;
    }
    t->input = input;
    vow__pipeline_output_listen(input, &t->ear, on_input, t);
}

static void on_input(void *turn)
{
    struct turn *t = turn;
    bool stream = vow__pipeline_plan_streams(t->feed->plan, t->feed->step);
    if (t->work != NULL) {
        vow__pipeline_input_check(&t->in);
        return;
    }
    if (!vow__pipeline_output_ready(t->input, stream))
        return;
    vow_error *e = vow__pipeline_output_error(t->input);
    if (e != NULL)
        fail(t, vow_error_ref(e));
    else
        call(t);
}

/* The function pulses by hand; until it is called, we do. */
static void keep_lease(void *turn)
{
    struct turn *t = turn;
    vow_loop *loop = t->feed->plan->loop;
    uint64_t ms = vow_lease_left_ms(t->lease) / PULSES_PER_LEASE + 1;
    if (vow_lease_pulse(t->lease))
        vow_call_at(&t->pulse, loop, vow_loop_due_ns(loop, ms), keep_lease, t);
}

/* ---- the function ------------------------------------------------------- */

static void call(struct turn *t)
{
    const struct vow__pipeline_plan *p = t->feed->plan;
    const vow_pipe_step *step = &p->steps[t->feed->step];
    bool stream = (step->flags & VOW_STEP_STREAM) != 0;
    (void)vow_call_stop(&t->pulse);
    if (!stream)
        vow__pipeline_output_unlisten(&t->ear);
    vow__pipeline_input_init(&t->in, p->loop, t->input, stream);
    vow_future *work = step->work(t->lease, &t->in, step->arg);
    if (work == NULL || vow_future_loop(work) != p->loop) {
        vow_future_unref(work);
        work = vow_refused_at(p->site, p->loop, VOW_EINVAL,
                              "the step returned no future of this loop");
    }
    t->work = work;
    vow_watch_start(&t->watch, work, on_end, t);
}

static void on_cancel(vow_error *why, void *turn)
{
    struct turn *t = turn;
    if (t->work != NULL)
        (void)vow_cancel(t->work, why);
    else
        fail(t, vow_error_ref(why));
}

static void on_end(vow_future *work, void *turn)
{
    struct turn *t = turn;
    (void)vow_error_of(work); /* goes on to those who ask */
    if (vow__pipeline_input_lost(&t->in)) {
        once_more(t);
    } else if (t->in.told != NULL) {
        fail(t, vow_error_ref(t->in.told));
    } else {
        (void)vow_resolve_with(t->end, work);
        turn_free(t);
    }
}

/* A private step has nobody who follows it, and begins again by itself. */
static void once_more(struct turn *t)
{
    const struct vow__pipeline_plan *p = t->feed->plan;
    if (t->lease != NULL || vow_deferred_canceled(t->end)) {
        if (t->lease != NULL)
            (void)vow_lease_abandon(t->lease);
        fail(t, vow_error_new(p->loop, VOW_ERETRY, NULL));
        return;
    }
    vow__pipeline_input_fini(&t->in);
    t->work = vow_future_unref(t->work);
    on_input(t);
}

static void fail(struct turn *t, vow_error *e)
{
    (void)vow_reject(t->end, e);
    turn_free(t);
}

static void turn_free(struct turn *t)
{
    struct vow__pipeline_output *f = t->feed;
    struct vow_alloc alloc = f->plan->alloc;
    (void)vow_call_stop(&t->pulse);
    vow__pipeline_walk_stop(t->walk);
    vow__pipeline_output_unlisten(&t->ear);
    vow__pipeline_input_fini(&t->in);
    vow__pipeline_output_leave(t->input);
    vow_future_unref(t->work);
    vow_deferred_unref(t->end);
    (void)vow_lease_unref(t->lease);
    vow__mem_free(&alloc, t, sizeof(*t));
    vow__pipeline_output_unref(f);
}
