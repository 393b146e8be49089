/* SPDX-License-Identifier: MIT */
/* gate_run.c - a job from admission to the end.
 *
 * WHY   The slots are released however the job ends; a job canceled while
 *       running holds the slots until the work has really ended.
 * HOW   The loop's queue begins admitted jobs, a bounded number at a time. The
 *       start is stamped after the start function has returned, so a time read
 *       by the start function is not later than the stamp. The caller's future
 *       follows the attempt, the future from the start function, which carries
 *       progress down and cancel up. A watch ends the job when the work has
 *       ended, even if all readers have dropped the attempt.
 * INVARIANTS
 *   R1  held of both quotas is the sum of slots of permits and of jobs in
 *       BACKING, STARTS, RUNS and ENDED; reserved is the sum of weights of jobs
 *       in BACKING and STARTS
 *   R2  settling the promise is the last use of a job, because settling may run
 *       foreign code
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"
#include "coord/started.h"

enum { BEGIN_AT_ONCE = 64 };

static void permit_grant_job(struct job *j);
VOW__INLINE void job_push_starting(struct job *j);
static void gate_begin_jobs(void *gate);
static void job_begin_run(struct job *j);
static void job_follow_attempt(struct job *j, vow_future *attempt);
static vow_future *job_watch_end(struct job *j, vow_future *attempt);
static void attempt_let_go(vow_future *f);
static void on_attempt_end(vow_future *attempt, void *job);
static void job_end_run(struct job *j, vow_future *attempt);
static struct job *job_release_slots(struct job *j);
static struct job *job_release_loans(struct job *j);
static bool job_borrows(const struct job *j);

/* ---- admission ----------------------------------------------------------- */

void vow__gate_job_let_in(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    vow__gate_take(g, j->group, j->slots);
    if (j->extra != NULL) {
        (void)vow_call_stop(&j->extra->call);
        if (vow__gate_backed(g) && j->extra->lender == NULL) {
            vow__gate_backing_ask(j);
            return;
        }
    }
    if (!j->is_task) {
        permit_grant_job(j);
        return;
    }
    vow__gate_job_borrow(j);
    g->quota.reserved += j->weight;
    j->group->quota.reserved += j->weight;
    job_push_starting(j);
}

void vow__gate_job_starts(struct job *j)
{
    job_push_starting(j);
}

VOW__INLINE void job_push_starting(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    j->state = JOB_STARTS;
    vow__list_push(&g->starting, &j->link);
    if (!vow_call_pending(&g->begin))
        vow_call_soon(&g->begin, g->loop, gate_begin_jobs, vow_gate_ref(g));
}

static void permit_grant_job(struct job *j)
{
    vow_deferred *out = j->out;
    j->state = JOB_RUNS;
    j->out = NULL;
    j->u.since_ns =
        vow__gate_begins(vow__gate_of(j), j->group, j->weight, j->number);
    (void)vow_resolve_drop(out, vow__gate_permit_value(j));
}

uint64_t vow__gate_begins(vow_gate *g, struct group *group, uint32_t weight,
                          uint64_t number)
{
    g->started++;
    if (g->opts.oracle != NULL)
        vow_oracle_start(g->opts.oracle, weight, number);
    if ((g->slow & SLOW_TIMED) == 0)
        return 0;
    uint64_t now = vow__coord_tick_read(&g->tick);
    vow__coord_quota_stamp(&g->quota, weight, now);
    vow__coord_quota_stamp(&group->quota, weight, now);
    return now;
}

/* Goes from the last job to the first: each job is inserted before later
 * jobs. */
void vow__gate_recall(vow_gate *g)
{
    vow__gate_backing_recall(g, NULL);
    while (g->starting != NULL) {
        struct job *j = vow__gate_job_of(g->starting->prev);
        vow__list_remove(&g->starting, &j->link);
        vow__gate_job_give_back(j);
        vow__gate_queue_return(j);
    }
}

void vow__gate_job_unreserve(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    struct group *group = j->group;
    g->quota.reserved -= j->weight;
    group->quota.reserved -= j->weight;
    if (group->waiting > 0 && group->place != GROUP_IN_RING)
        vow__gate_group_place(g, group, GROUP_IN_RING, 0); /* may start now */
}

/* ---- begin --------------------------------------------------------------- */

static void gate_begin_jobs(void *gate)
{
    vow_gate *g = gate; /* the reference of the call */
    g->beginning = true;
    for (int left = BEGIN_AT_ONCE; left > 0; left--) {
        if (g->starting == NULL)
            vow__gate_admit(g); /* jobs ended in this loop free slots */
        vow_link *l = vow__list_take(&g->starting);
        if (l == NULL)
            break;
        job_begin_run(vow__gate_job_of(l));
    }
    g->beginning = false;
    if (g->starting != NULL && !vow_call_pending(&g->begin))
        vow_call_soon(&g->begin, g->loop, gate_begin_jobs, vow_gate_ref(g));
    vow__gate_admit(g);
    vow_gate_unref(g);
}

static void job_begin_run(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    if (vow_deferred_canceled(j->out) || vow_loop_closing(g->loop)) {
        vow__gate_job_give_back(j);
        j->state = JOB_CANCELING; /* the cancel hook is queued, or will be */
        return;
    }
    struct run *run = vow__gate_run_new(j);
    if (run == NULL) {
        vow__gate_job_give_back(j);
        vow__gate_job_reject(j, VOW_ENOMEM, NULL);
        return;
    }
    if (g->opts.oracle != NULL && job_borrows(j)) /* in slots of the lender */
        vow_oracle_end(g->opts.oracle, j->weight);
    if (g->opts.oracle != NULL)
        vow_oracle_start(g->opts.oracle, j->weight, j->number);
    g->started++;
    vow_context *before = vow_context_enter(g->loop, &run->context);
    uint32_t number =
        j->extra == NULL ? 1 : vow__gate_attempts_number(j->extra->attempts);
    vow_future *attempt = j->start(g->loop, number, j->arg);
    vow_context_leave(g->loop, before);
    (void)vow__coord_tick_low(&g->tick);
    j->u.since_ns = vow__coord_tick_high(&g->tick);
    vow__coord_quota_stamp(&g->quota, j->weight, j->u.since_ns);
    vow__coord_quota_stamp(&j->group->quota, j->weight, j->u.since_ns);
    vow__gate_job_unreserve(j);
    job_follow_attempt(j, attempt);
}

/* Lets the caller's future follow the attempt. The attempt is moved. */
static void job_follow_attempt(struct job *j, vow_future *attempt)
{
    vow_deferred *out = vow_deferred_ref(j->out);
    vow_future *followed = NULL;
    attempt = vow__coord_started(vow__gate_job_site(j), vow__gate_of(j)->loop,
                                 attempt);
    if (vow_ended(attempt))
        job_end_run(j, attempt);
    else
        followed = job_watch_end(j, attempt);
    bool wanted = vow_deferred_pending(out); /* false: canceled in start() */
    if (wanted)
        (void)vow_resolve_with(out, followed == NULL ? attempt : followed);
    else
        vow_ends_with(out, attempt);
    vow_deferred_unref(out); /* keeps R2 */
    vow_future_unref(followed);
    if (wanted)
        vow_future_unref(attempt);
    else
        attempt_let_go(attempt);
}

/* Cancels the future unless other readers hold the future; the reference is
 * moved. */
static void attempt_let_go(vow_future *f)
{
    vow_future *link = vow_then_drop(f, NULL, NULL, NULL);
    (void)vow_error_of(link);
    (void)vow_cancel(link, NULL);
    vow_future_unref(link);
}

/* Watches the attempt. Returns the future for the caller's future to follow,
 * owned; NULL: the attempt. */
static vow_future *job_watch_end(struct job *j, vow_future *attempt)
{
    vow_watch_start(&j->in.run->end, attempt, on_attempt_end, j);
    if (vow_state_of(attempt) != VOW_PENDING)
        return NULL; /* settled; only the dropped work still runs */
    if (j->extra != NULL && vow__gate_backed(vow__gate_of(j)))
        vow__gate_grant_watch(j, attempt);
    uint64_t due_ns = vow__gate_job_due_ns(j);
    if (due_ns == 0 || due_ns == UINT64_MAX)
        return NULL;
    vow_future *bounded =
        vow_deadline_at(vow__gate_job_site(j), attempt, due_ns);
    if (vow_state_of(bounded) == VOW_REJECTED) /* no deadline set */
        (void)vow_cancel(attempt, NULL);
    return bounded;
}

/* ---- end ----------------------------------------------------------------- */

static void on_attempt_end(vow_future *attempt, void *job)
{
    job_end_run(job, attempt);
}

static void job_end_run(struct job *j, vow_future *attempt)
{
    vow_gate *g = vow_gate_ref(vow__gate_of(j));
    vow_error *failure =
        vow_state_of(attempt) == VOW_REJECTED ? vow_error_of(attempt) : NULL;
    vow_deferred *out = j->out;
    j->out = NULL;
    vow__list_remove(&g->running, &j->link);
    vow_on_cancel(out, NULL, NULL); /* too late to cancel */
    g->failed += failure != NULL;
    vow__gate_learn(g, j->u.since_ns, failure, j->group);
    j->state = JOB_ENDED;
    vow_context_end(&j->in.run->context);
    vow__gate_job_places_back(j);
    if (!g->beginning) /* else gate_begin_jobs() admits */
        vow__gate_admit(g);
    if (g->leaving != NULL)
        vow__gate_flush(g);
    vow_deferred_unref(out);
    vow_gate_unref(g);
}

void vow__gate_job_places_back(struct job *j)
{
    while (j != NULL && j->state == JOB_ENDED && j->in.run->lent == 0) {
        vow_gate *g = vow__gate_of(j);
        if (g->opts.oracle != NULL && !job_borrows(j))
            vow_oracle_end(g->opts.oracle, j->slots);
        struct job *lender = job_release_slots(j);
        if (g->lent != NULL)
            vow__gate_lent_orphans(g, j->in.run);
        vow__gate_job_free(j);
        j = lender;
    }
}

/* Releases the slots, the grant and the loan. Returns the lender; NULL:
 * none. */
static struct job *job_release_slots(struct job *j)
{
    vow__gate_release(vow__gate_of(j), j->group, j->slots);
    return j->extra == NULL ? NULL : job_release_loans(j);
}

/* Releases the grant, and returns borrowed slots to the lender. */
static struct job *job_release_loans(struct job *j)
{
    if (vow__gate_backed(vow__gate_of(j)))
        vow__gate_grant_return(j);
    if (!job_borrows(j))
        return NULL;
    j->extra->lender->lent -= j->weight;
    j->extra->borrows = false;
    return j->extra->lender->job;
}

static bool job_borrows(const struct job *j)
{
    return j->extra != NULL && j->extra->borrows;
}

void vow__gate_job_give_back(struct job *j)
{
    vow__gate_job_unreserve(j);
    vow__gate_job_places_back(job_release_slots(j));
}

void vow__gate_take(vow_gate *g, struct group *group, uint32_t slots)
{
    g->quota.held += slots;
    if (group != &g->keyless)
        group->quota.held += slots;
    g->active++;
}

void vow__gate_release(vow_gate *g, struct group *group, uint32_t slots)
{
    g->quota.held -= slots;
    if (group != &g->keyless)
        group->quota.held -= slots;
    g->active--;
    if (group->waiting > 0 && group->place == GROUP_UNLISTED)
        vow__gate_group_place(g, group, GROUP_IN_RING, 0); /* may start now */
}

/* ---- reject and cancel --------------------------------------------------- */

void vow__gate_job_reject(struct job *j, int code, const char *text)
{
    text = text == NULL ? vow_error_text(code) : text;
    vow__gate_job_reject_with(j, vow_error_new_at(vow__gate_job_site(j),
                                                  vow__gate_of(j)->loop, code,
                                                  NULL, "%s", text));
}

void vow__gate_job_reject_with(struct job *j, vow_error *e)
{
    vow_deferred *out = j->out;
    j->out = NULL;
    vow_on_cancel(out, NULL, NULL);
    vow__gate_job_free(j);
    (void)vow_reject_drop(out, e); /* keeps R2 */
}

void vow__gate_job_leaves(struct job *j, vow_error *e)
{
    vow_gate *g = vow__gate_of(j);
    if (j->extra != NULL)
        (void)vow_call_stop(&j->extra->call);
    j->state = JOB_REJECTING;
    j->u.reject_error = e;
    g->dropped++;
    vow__list_push(&g->leaving, &j->link);
}

void vow__gate_flush(vow_gate *g)
{
    vow_link *l;
    vow_gate_ref(g);
    while ((l = vow__list_take(&g->leaving)) != NULL)
        vow__gate_job_reject_with(vow__gate_job_of(l),
                                  vow__gate_job_of(l)->u.reject_error);
    vow_gate_unref(g);
}

void vow__gate_job_cancel(vow_error *why, void *job)
{
    struct job *j = job;
    vow_gate *g = vow_gate_ref(vow__gate_of(j));
    if (j->state == JOB_RUNS) { /* inside the start function */
        (void)vow_reject(j->out, vow_error_ref(why));
        vow_gate_unref(g);
        return;
    }
    g->canceled += j->state != JOB_REJECTING;
    if (j->state == JOB_REJECTING) {
        vow__list_remove(&g->leaving, &j->link);
        vow_error_unref(j->u.reject_error);
    } else if (j->state == JOB_STARTS) {
        vow__list_remove(&g->starting, &j->link);
        vow__gate_job_give_back(j);
    } else if (j->state == JOB_BACKING) {
        vow__gate_backing_ask_end(j);
    } else if (j->state != JOB_CANCELING) {
        vow__gate_queue_leave(j);
    }
    vow__gate_job_reject_with(j, vow_error_ref(why));
    vow__gate_admit(g);
    vow_gate_unref(g);
}
