/* SPDX-License-Identifier: MIT */
/* gate_run.c - a job from being let in to its end.
 *
 * WHY   However it ends, its places come back; and what was canceled while it
 *       ran holds them until it really has ended.
 * HOW   Jobs that were let in are begun from the loop's queue, a bounded number
 *       at a time. The start function is called first and the start stamped
 *       when it has returned, so that whatever time it reads is not later than
 *       the stamp. The caller's future follows what was started, which carries
 *       progress down and cancel up; a watch ends the job when the work has
 *       ended, whoever has let go of it meanwhile.
 * INVARIANTS
 *   R1  held and reserved of both quotas are what jobs in ASKS, STARTS and RUNS
 *       and permits have taken; reserved is of ASKS and STARTS alone
 *   R2  the last thing done to a job is to settle its promise, because that may
 *       run others' code
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"
#include "coord/started.h"

enum { BEGIN_AT_ONCE = 64 };

static void grant(struct job *j);
VOW__INLINE void starts(struct job *j);
static void begin_some(void *gate);
static void begin(struct job *j);
static void follow(struct job *j, vow_future *attempt);
static vow_future *wait_for_end(struct job *j, vow_future *attempt);
static void let_go(vow_future *f);
static void on_end(vow_future *attempt, void *job);
static void job_end(struct job *j, vow_future *attempt);
static struct job *places_of(struct job *j);
static struct job *loans_of(struct job *j);
static bool borrows(const struct job *j);

/* ---- let in -------------------------------------------------------------- */

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
        grant(j);
        return;
    }
    vow__gate_job_borrow(j);
    g->quota.reserved += j->weight;
    j->group->quota.reserved += j->weight;
    starts(j);
}

void vow__gate_job_starts(struct job *j)
{
    starts(j);
}

VOW__INLINE void starts(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    j->state = JOB_STARTS;
    vow__list_push(&g->starting, &j->link);
    if (!vow_call_pending(&g->begin))
        vow_call_soon(&g->begin, g->loop, begin_some, vow_gate_ref(g));
}

static void grant(struct job *j)
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

/* From the last to the first, each before all that came after it. */
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
        vow__gate_group_place(g, group, GROUP_IN_RING,
                              0); /* it may be able now */
}

/* ---- begun --------------------------------------------------------------- */

static void begin_some(void *gate)
{
    vow_gate *g = gate; /* the reference came with the call */
    g->beginning = true;
    for (int left = BEGIN_AT_ONCE; left > 0; left--) {
        if (g->starting == NULL)
            vow__gate_admit(g); /* what has ended meanwhile makes room */
        vow_link *l = vow__list_take(&g->starting);
        if (l == NULL)
            break;
        begin(vow__gate_job_of(l));
    }
    g->beginning = false;
    if (g->starting != NULL && !vow_call_pending(&g->begin))
        vow_call_soon(&g->begin, g->loop, begin_some, vow_gate_ref(g));
    vow__gate_admit(g);
    vow_gate_unref(g);
}

static void begin(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    if (vow_deferred_canceled(j->out) || vow_loop_closing(g->loop)) {
        vow__gate_job_give_back(j);
        j->state = JOB_LEFT; /* its hook is in the queue, or will be */
        return;
    }
    struct run *run = vow__gate_run_new(j);
    if (run == NULL) {
        vow__gate_job_give_back(j);
        vow__gate_job_reject(j, VOW_ENOMEM, NULL);
        return;
    }
    if (g->opts.oracle != NULL && borrows(j)) /* in the lender's place */
        vow_oracle_end(g->opts.oracle, j->weight);
    if (g->opts.oracle != NULL)
        vow_oracle_start(g->opts.oracle, j->weight, j->number);
    g->started++;
    vow_context *before = vow_context_enter(g->loop, &run->context);
    uint32_t number =
        j->extra == NULL ? 1 : vow__gate_attempts_number(j->extra->again);
    vow_future *attempt = j->start(g->loop, number, j->arg);
    vow_context_leave(g->loop, before);
    (void)vow__coord_tick_low(&g->tick);
    j->u.since_ns = vow__coord_tick_high(&g->tick);
    vow__coord_quota_stamp(&g->quota, j->weight, j->u.since_ns);
    vow__coord_quota_stamp(&j->group->quota, j->weight, j->u.since_ns);
    vow__gate_job_unreserve(j);
    follow(j, attempt);
}

/* What was started is moved in. */
static void follow(struct job *j, vow_future *attempt)
{
    vow_deferred *out = vow_deferred_ref(j->out);
    vow_future *ended = NULL;
    attempt = vow__coord_started(vow__gate_job_site(j), vow__gate_of(j)->loop,
                                 attempt);
    if (vow_ended(attempt))
        job_end(j, attempt);
    else
        ended = wait_for_end(j, attempt);
    bool wanted = vow_deferred_pending(out); /* not canceled inside start() */
    if (wanted)
        (void)vow_resolve_with(out, ended == NULL ? attempt : ended);
    else
        vow_ends_with(out, attempt);
    vow_deferred_unref(out); /* keeps R2 */
    vow_future_unref(ended);
    if (wanted)
        vow_future_unref(attempt);
    else
        let_go(attempt);
}

/* Cancel it, unless others hold it too; the reference is moved. */
static void let_go(vow_future *f)
{
    vow_future *link = vow_then_drop(f, NULL, NULL, NULL);
    (void)vow_error_of(link);
    (void)vow_cancel(link, NULL);
    vow_future_unref(link);
}

/* The future for the caller's to follow, owned; NULL: the attempt itself. */
static vow_future *wait_for_end(struct job *j, vow_future *attempt)
{
    vow_watch_start(&j->in.run->end, attempt, on_end, j);
    if (vow_state_of(attempt) != VOW_PENDING)
        return NULL; /* it has let go of what runs */
    if (j->extra != NULL && vow__gate_backed(vow__gate_of(j)))
        vow__gate_grant_watch(j, attempt);
    uint64_t due_ns = vow__gate_job_due_ns(j);
    if (due_ns == 0 || due_ns == UINT64_MAX)
        return NULL;
    vow_future *bounded =
        vow_deadline_at(vow__gate_job_site(j), attempt, due_ns);
    if (vow_state_of(bounded) == VOW_REJECTED) /* it cannot be bounded */
        (void)vow_cancel(attempt, NULL);
    return bounded;
}

/* ---- ended --------------------------------------------------------------- */

static void on_end(vow_future *attempt, void *job)
{
    job_end(job, attempt);
}

static void job_end(struct job *j, vow_future *attempt)
{
    vow_gate *g = vow_gate_ref(vow__gate_of(j));
    vow_error *failure =
        vow_state_of(attempt) == VOW_REJECTED ? vow_error_of(attempt) : NULL;
    vow_deferred *out = j->out;
    j->out = NULL;
    vow__list_remove(&g->running, &j->link);
    vow_on_cancel(out, NULL, NULL); /* it is too late for that */
    g->failed += failure != NULL;
    vow__gate_learn(g, j->u.since_ns, failure, j->group);
    j->state = JOB_ENDED;
    vow_context_end(&j->in.run->context);
    vow__gate_job_places_back(j);
    if (!g->beginning) /* else it will soon be done for several */
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
        if (g->opts.oracle != NULL && !borrows(j))
            vow_oracle_end(g->opts.oracle, j->slots);
        struct job *lender = places_of(j);
        if (g->lent != NULL)
            vow__gate_lent_orphans(g, j->in.run);
        vow__gate_job_free(j);
        j = lender;
    }
}

/* Let go of the places; returns the one who lent them, NULL: nobody. */
static struct job *places_of(struct job *j)
{
    vow__gate_release(vow__gate_of(j), j->group, j->slots);
    return j->extra == NULL ? NULL : loans_of(j);
}

/* The same for what it has of others: a grant, or a job's places. */
static struct job *loans_of(struct job *j)
{
    if (vow__gate_backed(vow__gate_of(j)))
        vow__gate_grant_return(j);
    if (!borrows(j))
        return NULL;
    j->extra->lender->lent -= j->weight;
    j->extra->borrows = false;
    return j->extra->lender->job;
}

static bool borrows(const struct job *j)
{
    return j->extra != NULL && j->extra->borrows;
}

void vow__gate_job_give_back(struct job *j)
{
    vow__gate_job_unreserve(j);
    vow__gate_job_places_back(places_of(j));
}

void vow__gate_take(vow_gate *g, struct group *group, uint32_t slots)
{
    g->quota.held += slots;
    if (group != &g->no_key)
        group->quota.held += slots;
    g->active++;
}

void vow__gate_release(vow_gate *g, struct group *group, uint32_t slots)
{
    g->quota.held -= slots;
    if (group != &g->no_key)
        group->quota.held -= slots;
    g->active--;
    if (group->waiting > 0 && group->place == GROUP_UNLISTED)
        vow__gate_group_place(g, group, GROUP_IN_RING,
                              0); /* it may be able now */
}

/* ---- ended without having begun ------------------------------------------ */

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

void vow__gate_job_leaves(struct job *j, vow_error *rejection)
{
    vow_gate *g = vow__gate_of(j);
    if (j->extra != NULL)
        (void)vow_call_stop(&j->extra->call);
    j->state = JOB_LEAVES;
    j->u.rejection = rejection;
    g->dropped++;
    vow__list_push(&g->leaving, &j->link);
}

void vow__gate_flush(vow_gate *g)
{
    vow_link *l;
    vow_gate_ref(g);
    while ((l = vow__list_take(&g->leaving)) != NULL)
        vow__gate_job_reject_with(vow__gate_job_of(l),
                                  vow__gate_job_of(l)->u.rejection);
    vow_gate_unref(g);
}

void vow__gate_job_cancel(vow_error *why, void *job)
{
    struct job *j = job;
    vow_gate *g = vow_gate_ref(vow__gate_of(j));
    if (j->state == JOB_RUNS) { /* inside its start function */
        (void)vow_reject(j->out, vow_error_ref(why));
        vow_gate_unref(g);
        return;
    }
    g->canceled += j->state != JOB_LEAVES;
    if (j->state == JOB_LEAVES) {
        vow__list_remove(&g->leaving, &j->link);
        vow_error_unref(j->u.rejection);
    } else if (j->state == JOB_STARTS) {
        vow__list_remove(&g->starting, &j->link);
        vow__gate_job_give_back(j);
    } else if (j->state == JOB_BACKING) {
        vow__gate_backing_ask_end(j);
    } else if (j->state != JOB_LEFT) {
        vow__gate_queue_leave(j);
    }
    vow__gate_job_reject_with(j, vow_error_ref(why));
    vow__gate_admit(g);
    vow_gate_unref(g);
}
