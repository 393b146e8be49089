/* SPDX-License-Identifier: MIT */
/* drive.c - one schedule: its steps, its jobs, and what the model is told.
 *
 * HOW   A call at a time takes one step and arms the next, so the loop runs
 *       everything, and between two steps all that was ready has run. Each
 *       function that the library calls first tells the model what happened,
 *       then does what the plan says.
 */
#include "drive.h"
#include <stdarg.h>
#include <stdio.h>

enum { FOREVER_MS = 1000 * 1000 * 1000 };

static void next_step(void *user);
static void take_step(struct drive *d, const struct plan_step *s);
static void take_other_step(struct drive *d, const struct plan_step *s);
static void ask(struct drive *d, const struct plan_step *s);
static int code_of(const struct drive_job *j);
static enum model_fate fate_of(struct drive_job *j);
static void ask_now(struct drive *d, const struct plan_step *s);
static void cancel(struct drive *d, uint32_t number);
static void finish(struct drive *d);
static void begin_work(struct drive_job *j);
static void end_work(void *job);
static void asked_to_stop(vow_error *why, void *job);
static void work_ended(struct drive_job *j);
static void granted(struct drive_job *j);
static vow_next on_value(vow_value v, void *job);
static vow_next on_error(vow_error *e, void *job);
static void happens(struct drive *d);
static void look(struct drive *d);
static void look_at_watches(struct drive *d);
static void see_truth(struct drive *d);
static bool is_true(const struct drive *d, const struct drive_watch *w);

/* ---- beginning and end -------------------------------------------------- */

bool drive_run(struct drive *d, const struct drive_front *front,
               uint32_t features, uint64_t seed)
{
    uint64_t left_out = d->left_out;
    bool tell = d->tell;
    *d = (struct drive){.front = front, .left_out = left_out, .tell = tell};
    plan_make(&d->plan, features, seed);
    d->two_handed = seed % 4 == 0;
    model_open(&d->model, &d->plan.limits);
    world_open_with(&d->w, VOW_LOOP_OPTS(.seed = seed));
    CHECK_INT_EQ(front->open(d), 0);
    if (tell) {
        fprintf(stderr, "limits%s:", d->two_handed ? " (permits)" : "");
        plan_tell_limits(&d->plan.limits);
    }
    vow_call_at(&d->call, d->w.loop, d->plan.steps[0].at_ns, next_step, d);
    world_advance_ms(&d->w, FOREVER_MS);
    look(d);
    drive_check_end(d);
    if (d->model.failure[0] != '\0')
        return false; /* what is left of it is left */
    for (uint32_t i = 0; i < d->model.n_jobs; i++)
        vow_future_unref(d->jobs[i].future);
    for (uint32_t i = 0; i < d->n_watches; i++) {
        (void)vow_cancel(d->watches[i].future, NULL);
        (void)vow_error_of(d->watches[i].future);
        vow_future_unref(d->watches[i].future);
    }
    front->drop(d);
    world_close(&d->w);
    return true;
}

/* All that is endless ends, nothing is paused: so all the rest must happen. */
static void finish(struct drive *d)
{
    d->last = true;
    drive_tell(d, "the end: what is endless ends\n");
    if (d->model.paused) {
        model_pause(&d->model, false);
        d->front->pause(d, false);
    }
    for (uint32_t i = 0; i < d->model.n_jobs; i++) {
        struct drive_job *j = &d->jobs[i];
        if (d->model.jobs[i].state == MODEL_RUNS && !vow_call_pending(&j->call))
            vow_call_at(&j->call, d->w.loop, plan_end_ns(d->model.now_ns, 1, i),
                        end_work, j);
    }
}

void drive_tell(struct drive *d, const char *format, ...)
{
    va_list args;
    if (!d->tell)
        return;
    uint64_t ns = vow_loop_now_ns(d->w.loop);
    fprintf(stderr, "%6llu.%06llu  ", (unsigned long long)(ns / MODEL_MS),
            (unsigned long long)(ns % MODEL_MS));
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
}

/* ---- steps -------------------------------------------------------------- */

static void next_step(void *user)
{
    struct drive *d = user;
    look(d);
    d->stopped_one = false;
    if (d->step == d->plan.n_steps) {
        finish(d);
        return;
    }
    do {
        uint32_t i = d->step++;
        d->job_of[i] = MODEL_JOBS;
        if ((d->left_out >> i & 1) == 0)
            take_step(d, &d->plan.steps[i]);
        see_truth(d);
    } while (d->step < d->plan.n_steps && d->plan.steps[d->step].same_turn &&
             !d->stopped_one && !model_may_more(&d->model));
    uint64_t at_ns = d->model.now_ns + MODEL_MS + 1;
    if (d->step < d->plan.n_steps)
        at_ns = d->plan.steps[d->step].at_ns;
    if (d->model.failure[0] == '\0')
        vow_call_at(&d->call, d->w.loop, at_ns, next_step, d);
}

static void take_step(struct drive *d, const struct plan_step *s)
{
    if (d->tell && s->kind != PLAN_CANCEL) {
        drive_tell(d, "%s", "");
        if (s->kind == PLAN_ASK || s->kind == PLAN_TRY)
            fprintf(stderr, "job %u: ", d->model.n_jobs);
        plan_tell_step(s);
    }
    if (s->kind == PLAN_ASK)
        ask(d, s);
    else if (s->kind == PLAN_TRY)
        ask_now(d, s);
    else if (s->kind == PLAN_CANCEL)
        cancel(d, d->job_of[s->target]);
    else
        take_other_step(d, s);
}

static void take_other_step(struct drive *d, const struct plan_step *s)
{
    struct drive_watch *w = &d->watches[d->n_watches];
    switch (s->kind) {
    case PLAN_SET:
        d->changed = true;
        model_set(&d->model, &s->limits);
        drive_same(d, "what the change of limits returned",
                   (uint64_t)d->front->set(d, &s->limits), 0);
        break;
    case PLAN_PAUSE:
    case PLAN_RESUME:
        model_pause(&d->model, s->kind == PLAN_PAUSE);
        d->front->pause(d, s->kind == PLAN_PAUSE);
        break;
    case PLAN_REPORT:
        model_report(&d->model, s->job.key, s->ms * MODEL_MS);
        d->front->report(d, s->job.key, s->ms);
        break;
    case PLAN_CLEAR:
        model_clear(&d->model);
        d->front->clear(d);
        break;
    case PLAN_CLOSE:
        model_close(&d->model);
        d->front->close(d);
        break;
    default:
        if (d->n_watches == DRIVE_WATCHES)
            break;
        *w = (struct drive_watch){.room = s->kind == PLAN_ROOM,
                                  .bytes = s->job.bytes};
        w->future = w->room ? d->front->room(d, w->bytes) : d->front->idle(d);
        d->n_watches++;
        break;
    }
}

static struct drive_job *new_job(struct drive *d, const struct plan_step *s)
{
    struct drive_job *j = &d->jobs[d->model.n_jobs];
    d->job_of[d->step - 1] = d->model.n_jobs;
    *j = (struct drive_job){.drive = d, .step = s, .number = d->model.n_jobs};
    return j;
}

static void ask(struct drive *d, const struct plan_step *s)
{
    struct drive_job *j = new_job(d, s);
    struct model_job job = s->job;
    job.only_waits = d->two_handed;
    if (s->deadline_ms > 0)
        job.due_ns = d->model.now_ns + s->deadline_ms * MODEL_MS;
    j->future = d->front->ask(d, j);
    (void)model_come(&d->model, &job, fate_of(j));
    if (d->two_handed && vow_state_of(j->future) == VOW_FULFILLED)
        granted(j); /* its handler comes behind those granted after it */
    CHECK_INT_EQ(vow_done(vow_future_ref(j->future), on_value, on_error, j), 0);
}

static int code_of(const struct drive_job *j)
{
    if (j->future == NULL || vow_state_of(j->future) != VOW_REJECTED)
        return 0;
    return vow_error_code(vow_error_of(j->future));
}

static enum model_fate fate_of(struct drive_job *j)
{
    struct drive *d = j->drive;
    if (code_of(j) < 0)
        return code_of(j) == VOW_ETIMEDOUT ? MODEL_IS_LATE : MODEL_IS_OTHER;
    if (vow_state_of(j->future) == VOW_PENDING && !d->front->is_let_in(d, j))
        return MODEL_IS_OTHER;
    for (uint32_t i = 0; i < d->model.n_jobs; i++)
        if (d->model.jobs[i].state == MODEL_WAITS &&
            code_of(&d->jobs[i]) == VOW_EQUEUEFULL)
            return MODEL_IS_LET_IN_FOR_ANOTHER;
    return MODEL_IS_LET_IN;
}

static void ask_now(struct drive *d, const struct plan_step *s)
{
    struct drive_job *j = new_job(d, s);
    bool got = d->front->ask_now(d, j);
    drive_tell(d, "job %u %s\n", j->number, got ? "runs" : "got nothing");
    (void)model_try(&d->model, &s->job, got);
    if (got)
        begin_work(j);
}

/* A permit that was granted is given back instead. */
static void cancel(struct drive *d, uint32_t number)
{
    struct drive_job *j = &d->jobs[number];
    if (number >= d->model.n_jobs)
        return;
    drive_tell(d, "job %u: cancel\n", number);
    if (vow_permit_held(&j->permit)) {
        (void)vow_call_stop(&j->call);
        work_ended(j);
    } else if (j->future != NULL) {
        d->stopped_one = d->model.jobs[number].state == MODEL_RUNS;
        model_cancel(&d->model, number);
        (void)vow_cancel(j->future, NULL);
    }
}

/* ---- jobs --------------------------------------------------------------- */

vow_future *drive_start(vow_loop *loop, uint32_t attempt, void *job)
{
    struct drive_job *j = job;
    struct drive *d = j->drive;
    happens(d);
    drive_tell(d, "job %u starts\n", j->number);
    if (attempt != 1)
        model_fail(&d->model, "job %u starts again", j->number);
    model_started(&d->model, j->number);
    vow_future *work = vow_promise(loop, &j->end);
    vow_on_cancel(j->end, asked_to_stop, j);
    begin_work(j);
    return work;
}

static void begin_work(struct drive_job *j)
{
    struct drive *d = j->drive;
    enum plan_work work = j->step->work;
    uint64_t ms = work == PLAN_ENDLESS ? 1 : j->step->ms;
    j->start_ns = d->model.now_ns;
    j->started = ++d->events;
    if (work == PLAN_FAILS || work == PLAN_FAILS_AT_ONCE)
        j->work = VOW_EIO;
    if (work == PLAN_AT_ONCE || work == PLAN_FAILS_AT_ONCE)
        work_ended(j);
    else if (work != PLAN_ENDLESS || d->last)
        vow_call_at(&j->call, d->w.loop,
                    plan_end_ns(d->model.now_ns, ms, j->number), end_work, j);
}

static void end_work(void *job)
{
    struct drive_job *j = job;
    happens(j->drive);
    work_ended(j);
}

static void asked_to_stop(vow_error *why, void *job)
{
    struct drive_job *j = job;
    (void)why;
    happens(j->drive);
    drive_tell(j->drive, "job %u is asked to stop\n", j->number);
    if (j->step->stubborn && j->step->work != PLAN_ENDLESS)
        return;
    (void)vow_call_stop(&j->call);
    j->work = VOW_ECANCELED;
    work_ended(j);
}

static void work_ended(struct drive_job *j)
{
    drive_tell(j->drive, "job %u ends\n", j->number);
    model_ended(&j->drive->model, j->number);
    j->ended = ++j->drive->events;
    if (vow_permit_held(&j->permit)) {
        vow_permit_release(&j->permit);
        return;
    }
    if (j->work == 0)
        vow_resolve(j->end, vow_nothing());
    else
        vow_reject_code(j->end, j->work, NULL);
    j->end = vow_deferred_unref(j->end);
}

/* ---- outcomes ----------------------------------------------------------- */

static vow_next on_value(vow_value v, void *job)
{
    struct drive_job *j = job;
    struct drive *d = j->drive;
    (void)v;
    happens(d);
    if (d->two_handed && j->started == 0)
        granted(j);
    model_settled(&d->model, j->number, 0, d->two_handed ? 0 : j->work);
    return vow_ok(vow_nothing());
}

static void granted(struct drive_job *j)
{
    struct drive *d = j->drive;
    drive_tell(d, "job %u starts\n", j->number);
    model_started(&d->model, j->number);
    j->permit = vow_permit_take(vow_get(j->future));
    if (!vow_permit_held(&j->permit))
        model_fail(&d->model, "job %u was granted nothing", j->number);
    begin_work(j);
}

static vow_next on_error(vow_error *e, void *job)
{
    struct drive_job *j = job;
    struct drive *d = j->drive;
    happens(d);
    drive_tell(d, "job %u has %s\n", j->number,
               vow_error_name(vow_error_code(e)));
    model_settled(&d->model, j->number, vow_error_code(e), j->work);
    return vow_ok(vow_nothing());
}

/* ---- what the model sees ------------------------------------------------ */

/* Time has come so far; and who was refused early is out before its future
 * tells. */
static void happens(struct drive *d)
{
    struct model *m = &d->model;
    model_pass(m, vow_loop_now_ns(d->w.loop));
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if (m->jobs[i].due_ns != MODEL_NEVER &&
            m->jobs[i].state <= MODEL_WAITS &&
            code_of(&d->jobs[i]) == VOW_ETIMEDOUT)
            model_expired(m, i);
}

/* Between two steps: nothing is left to do, and all figures agree. */
static void look(struct drive *d)
{
    happens(d);
    model_quiet(&d->model);
    if (d->model.failure[0] != '\0')
        return;
    d->front->check(d);
    look_at_watches(d);
}

static bool is_true(const struct drive *d, const struct drive_watch *w)
{
    uint32_t weight;
    if (w->room)
        return model_has_room(&d->model, w->bytes);
    return model_waiting(&d->model) == 0 && d->model.n_let_in == 0 &&
           model_running(&d->model, &weight) == 0;
}

static void see_truth(struct drive *d)
{
    const struct model_limits *l = &d->model.limits;
    for (uint32_t i = 0; i < d->n_watches; i++) {
        struct drive_watch *w = &d->watches[i];
        bool open = d->model.closed || model_outside(&d->model) ||
                    l->queue_max == 0 ||
                    (l->queue_bytes > 0 && w->bytes > l->queue_bytes);
        if (w->room && open)
            w->maybe = true;
        else if (is_true(d, w))
            w->true_once = true;
    }
}

/* A future of something is settled as soon as that was true once. */
static void look_at_watches(struct drive *d)
{
    see_truth(d);
    for (uint32_t i = 0; i < d->n_watches; i++) {
        const struct drive_watch *w = &d->watches[i];
        bool settled = vow_state_of(w->future) != VOW_PENDING;
        const char *what = w->room ? "room" : "idle";
        if (w->true_once && !settled)
            model_fail(&d->model, "a future of %s is still pending", what);
        if (settled && !w->true_once && !w->maybe)
            model_fail(&d->model, "a future of %s is settled early", what);
    }
}

void drive_same(struct drive *d, const char *what, uint64_t got, uint64_t want)
{
    if (got != want)
        model_fail(&d->model, "%s, got %llu, want %llu", what,
                   (unsigned long long)got, (unsigned long long)want);
}
