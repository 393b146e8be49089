/* SPDX-License-Identifier: MIT */
/* model_come.c - a newcomer: let in, refused, in the queue, outside, or in the
 * place of another.
 *
 * Whoever can start at once is let in by the very call. In the other cases the
 * rules have some play: the model then takes what became of the job, and says
 * whether that was one of them.
 */
#include "model.h"
#include "vow/gate.h"

static void let_in(struct model *m, uint32_t number, bool for_another);
static void let_others_in(struct model *m, uint32_t but, bool any);
static bool is_one_of_several(const struct model *m, uint32_t number);
static bool must_start(const struct model *m, uint32_t number);
static bool must_refuse(const struct model *m, const struct model_job *j);
static void make_room(struct model *m, uint32_t number);
static uint64_t bytes_above(const struct model *m, uint32_t newcomer);
static uint32_t first_to_drop(const struct model *m, uint32_t newcomer);

uint32_t model_come(struct model *m, const struct model_job *job,
                    enum model_fate fate)
{
    bool is_seen = !model_outside(m); /* else it stands behind those */
    uint32_t number = m->n_jobs++;
    struct model_job *j = &m->jobs[number];
    *j = *job;
    j->came_ns = m->now_ns;
    j->asked_ns = MODEL_NEVER;
    j->state = MODEL_WAITS;
    if (m->closed)
        model_leave(m, number, VOW_ECLOSED, &m->counts.refused);
    else if (!model_fits_ever(m, j))
        model_leave(m, number, VOW_EINVAL, &m->counts.refused);
    else if (is_seen)
        model_happens(m);
    model_refresh(m);
    if (fate <= MODEL_IS_LET_IN_FOR_ANOTHER) {
        let_in(m, number, fate == MODEL_IS_LET_IN_FOR_ANOTHER);
    } else if (must_start(m, number)) {
        model_fail(m, "job %u is not let in, which must", number);
    } else if (model_is_queued(j) &&
               (fate == MODEL_IS_LATE || must_refuse(m, j))) {
        if (model_expected(m, number) < j->due_ns)
            model_fail(m, "job %u is refused, but may start in time", number);
        model_leave(m, number, VOW_ETIMEDOUT, &m->counts.refused);
    } else if (model_is_queued(j)) {
        let_others_in(m, number, false);
        make_room(m, number);
    }
    model_enter(m);
    return number;
}

/* A newcomer that is blocked by its key takes the turn from it, and one that
 * was dropped stands in nobody's way: then these start first. When it is known
 * that the newcomer was let in, so were some of several who may be first. */
static void let_others_in(struct model *m, uint32_t but, bool any)
{
    uint32_t i = 0;
    while (i < but && !model_may_start(m, but)) {
        if (any ? !model_may_start(m, i) : !must_start(m, i)) {
            i++;
            continue;
        }
        m->jobs[i].loosely = is_one_of_several(m, i);
        model_take(m, i, MODEL_LET_IN);
        model_refresh(m);
        i = 0;
    }
}

/* Others might be let in before it. */
static bool is_one_of_several(const struct model *m, uint32_t number)
{
    bool several = false;
    for (uint32_t i = 0; i < m->n_jobs; i++)
        several = several || (i != number && model_may_start(m, i));
    return several;
}

/* When the queue is full, who stood in its way may have to leave. Then others
 * may go before it: who was not seen to be able to pass until now. */
static void let_in(struct model *m, uint32_t number, bool for_another)
{
    if (for_another) {
        make_room(m, number);
        model_enter(m);
    }
    let_others_in(m, number, true);
    m->jobs[number].loosely = is_one_of_several(m, number);
    if (!model_may_start(m, number))
        model_fail(m, "job %u is let in, which may not", number);
    model_take(m, number, MODEL_LET_IN);
}

/* Who is let in is not stamped before its function has returned. */
static bool must_refuse(const struct model *m, const struct model_job *j)
{
    return m->n_let_in == 0 && model_earliest(m, j) >= j->due_ns;
}

/* No other may be first, and nothing may be before it. */
static bool must_start(const struct model *m, uint32_t number)
{
    uint64_t first, last;
    model_next(m, &first, &last);
    return model_may_start(m, number) && last <= m->now_ns &&
           !is_one_of_several(m, number) && !model_outside(m);
}

/* ---- room in the queue -------------------------------------------------- */

/* The newcomer waits, waits outside, or takes the place of others. */
static void make_room(struct model *m, uint32_t number)
{
    struct model_job *j = &m->jobs[number];
    const struct model_limits *l = &m->limits;
    bool behind = model_outside(m);
    j->state = MODEL_OUTSIDE;
    if (model_never_in(m, j) ||
        (l->overflow == VOW_OVERFLOW_REJECT && !model_has_room(m, j->bytes))) {
        model_leave(m, number, VOW_EQUEUEFULL, &m->counts.refused);
        return;
    }
    if (l->overflow == VOW_OVERFLOW_DROP_LOWEST && l->queue_bytes > 0 &&
        bytes_above(m, number) > l->queue_bytes) { /* nobody goes in vain */
        model_leave(m, number, VOW_EQUEUEFULL, &m->counts.refused);
        return;
    }
    while (l->overflow != VOW_OVERFLOW_WAIT && !model_has_room(m, j->bytes)) {
        uint32_t out = first_to_drop(m, number);
        model_leave(m, out, VOW_EQUEUEFULL,
                    out == number ? &m->counts.refused : &m->counts.dropped);
        if (out == number)
            return;
    }
    if (l->overflow != VOW_OVERFLOW_WAIT ||
        (!behind && model_has_room(m, j->bytes)))
        j->state = MODEL_WAITS;
}

bool model_never_in(const struct model *m, const struct model_job *j)
{
    const struct model_limits *l = &m->limits;
    return j->state == MODEL_OUTSIDE &&
           (l->queue_max == 0 ||
            (l->queue_bytes > 0 && j->bytes > l->queue_bytes));
}

/* What would be there if all of lower priority were dropped. */
static uint64_t bytes_above(const struct model *m, uint32_t newcomer)
{
    const struct model_job *j = &m->jobs[newcomer];
    uint64_t bytes = j->bytes;
    for (uint32_t i = 0; i < newcomer; i++)
        if (m->jobs[i].state == MODEL_WAITS &&
            m->jobs[i].priority >= j->priority)
            bytes += m->jobs[i].bytes;
    return bytes;
}

static uint32_t first_to_drop(const struct model *m, uint32_t newcomer)
{
    uint32_t out = newcomer;
    for (uint32_t i = newcomer; i-- > 0;) {
        const struct model_job *j = &m->jobs[i];
        if (j->state != MODEL_WAITS)
            continue;
        if (m->limits.overflow == VOW_OVERFLOW_DROP_OLDEST ||
            j->priority < m->jobs[out].priority)
            out = i;
    }
    return out;
}

/* ---- now or not at all -------------------------------------------------- */

uint32_t model_try(struct model *m, const struct model_job *job, bool got)
{
    uint32_t number = m->n_jobs++;
    struct model_job *j = &m->jobs[number];
    *j = *job;
    j->came_ns = m->now_ns;
    j->state = MODEL_GONE; /* not in the way of the others */
    j->settled = true;
    bool able = !m->closed && model_fits_ever(m, j) &&
                model_gate_time(m, j) <= m->now_ns &&
                model_key_time(m, j) <= m->now_ns;
    bool passes = model_head(m, j->key) >= 0 || !model_round_is_empty(m);
    if (got && (!able || passes))
        model_fail(m, "a try got what it may not have");
    if (!got && able && model_waiting(m) == 0)
        model_fail(m, "a try did not get what is free");
    if (got) {
        model_take(m, number, MODEL_RUNS);
        model_happens(m);
    }
    return number;
}

/* ---- in time? ----------------------------------------------------------- */

/* Everything starts as soon as rates and pauses let it, in order, as if there
 * were places enough. */
uint64_t model_expected(const struct model *m, uint32_t number)
{
    struct model then = *m;
    uint64_t first, last;
    then.limits.concurrent = then.limits.key_concurrent = 0;
    then.paused = false;
    for (uint32_t i = 0; i < then.n_jobs; i++)
        then.jobs[i].due_ns = MODEL_NEVER;
    model_refresh(&then);
    model_next(&then, &first, &last);
    while (first < m->jobs[number].due_ns && m->failure[0] == '\0') {
        model_pass(&then, first);
        for (uint32_t i = 0; i < then.n_jobs; i++)
            if (model_may_start(&then, i)) {
                model_take(&then, i, MODEL_RUNS);
                model_refresh(&then);
                break;
            }
        model_enter(&then);
        if (then.jobs[number].state == MODEL_RUNS)
            return then.now_ns;
        model_next(&then, &first, &last);
    }
    return first;
}
