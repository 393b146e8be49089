/* SPDX-License-Identifier: MIT */
/* model.c - the referee: what is asked for, and what happened. */
#include "model.h"
#include "vow/gate.h"
#include <stdarg.h>
#include <stdio.h>

static void forget_let_in(struct model *m, uint32_t number);
static void expire_due(struct model *m);
static void unexpire(struct model *m, uint32_t number);
static uint64_t next_change(const struct model *m);

void model_open(struct model *m, const struct model_limits *limits)
{
    *m = (struct model){.limits = *limits};
    model_change_memory(m, limits);
}

void model_fail(struct model *m, const char *format, ...)
{
    va_list args;
    if (m->failure[0] != '\0')
        return;
    va_start(args, format);
    (void)vsnprintf(m->failure, sizeof(m->failure), format, args);
    va_end(args);
}

/* ---- time --------------------------------------------------------------- */

/* From one change to the next: a deadline, or a key whose limits let go. */
void model_pass(struct model *m, uint64_t now_ns)
{
    uint64_t first, last, change = 0;
    if (now_ns > m->now_ns)
        model_enter(m);
    while (m->now_ns < now_ns && m->failure[0] == '\0') {
        model_next(m, &first, &last);
        change = next_change(m);
        change = change < now_ns ? change : now_ns;
        if (last < change)
            model_fail(m, "nothing started at %llu ns, where it had to",
                       (unsigned long long)last);
        m->now_ns = change;
        expire_due(m);
        model_refresh(m);
        if (change < now_ns)
            model_enter(m);
    }
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if (m->jobs[i].state == MODEL_RUNS && m->jobs[i].due_ns < now_ns &&
            !m->jobs[i].settled)
            model_fail(m, "job %u runs beyond its deadline", i);
}

static uint64_t next_change(const struct model *m)
{
    uint64_t at = MODEL_NEVER;
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if (model_is_queued(&m->jobs[i]) && m->jobs[i].due_ns < at)
            at = m->jobs[i].due_ns;
    for (uint32_t k = 0; k < MODEL_KEYS; k++) {
        int head = m->round[k].in ? -1 : model_head(m, k);
        uint64_t able =
            head < 0 ? MODEL_NEVER : model_key_time(m, &m->jobs[head]);
        at = able < at ? able : at;
    }
    return at;
}

static void expire_due(struct model *m)
{
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if (model_is_queued(&m->jobs[i]) && m->jobs[i].due_ns <= m->now_ns)
            model_leave(m, i, VOW_ETIMEDOUT, &m->counts.expired);
}

void model_quiet(struct model *m)
{
    uint64_t first, last;
    model_enter(m);
    m->quiet_place = m->last_place;
    model_next(m, &first, &last);
    if (m->n_let_in > 0)
        model_fail(m, "job %u was let in and did not start", m->let_in[0]);
    if (last <= m->now_ns)
        model_fail(m, "nothing more started at this instant, where it had to");
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if ((m->jobs[i].state == MODEL_ENDED ||
             m->jobs[i].state == MODEL_GONE) &&
            !m->jobs[i].settled)
            model_fail(m, "job %u is over and has no outcome", i);
}

bool model_may_more(const struct model *m)
{
    uint64_t first, last;
    model_next(m, &first, &last);
    return first <= m->now_ns || model_outside(m);
}

/* ---- what is asked for -------------------------------------------------- */

void model_cancel(struct model *m, uint32_t number)
{
    struct model_job *j = &m->jobs[number];
    if (j->state == MODEL_LET_IN && j->only_waits)
        return;                     /* it has its permit */
    if (j->state == MODEL_LET_IN) { /* its places and its tokens come back */
        forget_let_in(m, number);
        for (uint32_t i = 0; i < m->n_starts; i++)
            if (m->starts[i].number == number)
                m->starts[i].known = m->starts[i].key_known = 0;
        m->counts.started--;
    }
    if (j->state == MODEL_RUNS)
        j->asked_ns = m->now_ns;
    if (model_is_queued(j) || j->state == MODEL_LET_IN) {
        model_leave(m, number, VOW_ECANCELED, &m->counts.canceled);
        model_happens(m);
    }
}

static void forget_let_in(struct model *m, uint32_t number)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_let_in; i++)
        if (m->let_in[i] != number)
            m->let_in[n++] = m->let_in[i];
    m->n_let_in = n;
}

void model_set(struct model *m, const struct model_limits *limits)
{
    uint32_t overflow = m->limits.overflow;
    if (limits->rate != m->limits.rate ||
        limits->key_rate != m->limits.key_rate)
        model_change_memory(m, limits);
    m->limits = *limits;
    m->limits.overflow = overflow;
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if (model_is_queued(&m->jobs[i]) && (!model_fits_ever(m, &m->jobs[i]) ||
                                             model_never_in(m, &m->jobs[i])))
            model_leave(m, i, VOW_EINVAL, &m->counts.dropped);
    model_happens(m);
}

void model_pause(struct model *m, bool paused)
{
    m->paused = paused;
    if (!paused)
        m->paused_until_ns = 0;
    model_happens(m);
}

void model_report(struct model *m, uint32_t key, uint64_t for_ns)
{
    uint64_t *until =
        key == 0 ? &m->paused_until_ns : &m->key_paused_until_ns[key];
    if (m->now_ns + for_ns > *until)
        *until = m->now_ns + for_ns;
    model_refresh(m);
}

void model_clear(struct model *m)
{
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if (model_is_queued(&m->jobs[i]))
            model_leave(m, i, VOW_ECANCELED, &m->counts.dropped);
    model_happens(m);
}

void model_close(struct model *m)
{
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if (model_is_queued(&m->jobs[i]))
            model_leave(m, i, VOW_ECLOSED, &m->counts.dropped);
    m->closed = true;
    model_refresh(m);
}

/* ---- what happened ------------------------------------------------------ */

void model_started(struct model *m, uint32_t number)
{
    struct model_job *j = &m->jobs[number];
    if (m->failure[0] != '\0')
        return;
    if (j->state == MODEL_LET_IN) {
        if (m->let_in[0] != number && !j->only_waits &&
            !m->jobs[m->let_in[0]].loosely)
            model_fail(m, "job %u started, but job %u was let in before",
                       number, m->let_in[0]);
        forget_let_in(m, number);
        j->state = MODEL_RUNS;
        model_remember(m);
        return;
    }
    if (j->code == VOW_ETIMEDOUT && j->gone_ns == m->now_ns &&
        j->due_ns == m->now_ns)
        unexpire(m, number);
    while (!model_may_start(m, number) && model_enter_one(m)) {
    }
    if (m->n_let_in > 0 && !m->jobs[m->let_in[0]].loosely)
        model_fail(m, "job %u started, but job %u was let in", number,
                   m->let_in[0]);
    else if (!model_may_start(m, number))
        model_fail(m, "job %u started, which may not", number);
    model_take(m, number, MODEL_RUNS);
    model_happens(m);
}

/* In the instant of its deadline it may still start. Whether its key was left
 * by others who expired, and lost its place, nobody knows. */
static void unexpire(struct model *m, uint32_t number)
{
    struct model_turn *t = &m->round[m->jobs[number].key];
    m->jobs[number].state = MODEL_WAITS;
    m->counts.expired--;
    if (t->from == 0)
        *t = (struct model_turn){.from = 1};
    model_refresh(m);
}

void model_ended(struct model *m, uint32_t number)
{
    if (m->jobs[number].state != MODEL_RUNS)
        model_fail(m, "job %u ended and did not run", number);
    m->jobs[number].state = MODEL_ENDED;
    m->counts.ended++;
    model_happens(m);
}

void model_expired(struct model *m, uint32_t number)
{
    struct model_job *j = &m->jobs[number];
    if (!model_is_queued(j))
        return;
    if (model_expected(m, number) < j->due_ns)
        model_fail(m, "job %u is refused, but may start in time", number);
    model_leave(m, number, VOW_ETIMEDOUT, &m->counts.expired);
    model_refresh(m);
}

void model_settled(struct model *m, uint32_t number, int code, int work)
{
    struct model_job *j = &m->jobs[number];
    bool late = code == VOW_ETIMEDOUT && j->due_ns == m->now_ns;
    bool asked = code == VOW_ECANCELED && j->asked_ns == m->now_ns;
    if (j->settled)
        model_fail(m, "job %u has a second outcome", number);
    j->settled = true;
    if (model_is_queued(j) && code == VOW_ETIMEDOUT)
        model_expired(m, number);
    if (j->state == MODEL_GONE && (code != j->code || m->now_ns != j->gone_ns))
        model_fail(m, "job %u, gone at %llu with %s, has the outcome %s",
                   number, (unsigned long long)j->gone_ns,
                   vow_error_name(j->code), vow_error_name(code));
    if (j->state == MODEL_ENDED && code != work && !late && !asked)
        model_fail(m, "job %u ended with %s and has the outcome %s", number,
                   vow_error_name(work), vow_error_name(code));
    if (j->state == MODEL_RUNS && !late && !asked && !j->only_waits)
        model_fail(m, "job %u runs and has the outcome %s", number,
                   vow_error_name(code));
    if (model_is_queued(j) || j->state == MODEL_LET_IN)
        model_fail(m, "job %u waits and has the outcome %s", number,
                   vow_error_name(code));
}

/* ---- between the files -------------------------------------------------- */

/* It takes its places and its share of the rates; its key goes to the end of
 * the round; whom it passed counts it. */
void model_take(struct model *m, uint32_t number, enum model_state state)
{
    struct model_job *j = &m->jobs[number];
    int head = model_head(m, j->key);
    for (uint32_t i = 0; head >= 0 && (int)number != head && i < number; i++)
        if (m->jobs[i].state == MODEL_WAITS && m->jobs[i].key == j->key &&
            m->jobs[i].priority == j->priority)
            m->jobs[i].passed++;
    j->state = state;
    if (state == MODEL_LET_IN)
        m->let_in[m->n_let_in++] = number;
    m->starts[m->n_starts++] = (struct model_start){.at_ns = m->now_ns,
                                                    .number = number,
                                                    .weight = j->weight,
                                                    .key = j->key};
    if (m->limits.rate > 0)
        m->starts[m->n_starts - 1].known = j->weight;
    if (m->limits.key_rate > 0)
        m->starts[m->n_starts - 1].key_known = j->weight;
    m->counts.started++;
    model_turn_taken(m, j->key);
    if (state == MODEL_RUNS)
        model_remember(m);
}

void model_leave(struct model *m, uint32_t number, int code, uint64_t *count)
{
    struct model_job *j = &m->jobs[number];
    j->state = MODEL_GONE;
    j->code = code;
    j->gone_ns = m->now_ns;
    if (count != NULL)
        ++*count;
}

void model_happens(struct model *m)
{
    m->event_ns = m->now_ns;
    model_refresh(m);
}

/* ---- looking ------------------------------------------------------------ */

bool model_is_queued(const struct model_job *j)
{
    return j->state == MODEL_WAITS || j->state == MODEL_OUTSIDE;
}

uint32_t model_waiting(const struct model *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_jobs; i++)
        n += model_is_queued(&m->jobs[i]);
    return n;
}

bool model_outside(const struct model *m)
{
    bool some = false;
    for (uint32_t i = 0; i < m->n_jobs; i++)
        some = some || m->jobs[i].state == MODEL_OUTSIDE;
    return some;
}

size_t model_waiting_bytes(const struct model *m)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if (m->jobs[i].state == MODEL_WAITS)
            bytes += m->jobs[i].bytes;
    return bytes;
}

uint32_t model_running(const struct model *m, uint32_t *ret_weight)
{
    uint32_t n = 0;
    *ret_weight = 0;
    for (uint32_t i = 0; i < m->n_jobs; i++)
        if (m->jobs[i].state == MODEL_RUNS) {
            *ret_weight += m->jobs[i].weight;
            n++;
        }
    return n;
}

bool model_has_room(const struct model *m, size_t bytes)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_jobs; i++)
        n += m->jobs[i].state == MODEL_WAITS;
    return n < m->limits.queue_max &&
           (m->limits.queue_bytes == 0 ||
            model_waiting_bytes(m) + bytes <= m->limits.queue_bytes);
}
