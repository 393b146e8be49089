/* SPDX-License-Identifier: MIT */
/* gate_explain.c - the state of a gate, and why a job still waits.
 *
 * HOW   The gate keeps only counters and a mean run time for this file. A job
 *       is found by walking the lists, and the jobs ahead by comparing it with
 *       all waiting jobs. The expected start is the latest time that any limit
 *       gives: rate and pauses are exact, slots are estimated by the mean run
 *       time.
 * LIMITS  O(waiting jobs).
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

#include <stdarg.h>
#include <stdio.h>

struct text {
    char *at;
    size_t size;
    size_t length; /* as if `size` were large enough */
};

static const struct job *job_find(const vow_gate *g, const vow_future *f);
static const struct job *job_find_in(vow_link *list, const vow_future *f);
static bool job_is_attempt_of(const struct job *j, const vow_future *f);
static uint32_t job_blocked_by(vow_gate *g, const struct job *j, size_t ahead,
                               uint64_t now_ns);
static size_t job_count_ahead(vow_gate *g, const struct job *j,
                              uint64_t *ret_weight);
static size_t groups_count_ahead(vow_gate *g, const struct group *own,
                                 size_t own_ahead, uint64_t *weight);
static size_t group_count_turns(const struct group *other, size_t most,
                                uint64_t *weight);
static uint64_t job_expected_ns(vow_gate *g, const struct job *j,
                                uint64_t ahead, uint64_t now_ns);
static void explain_append(struct text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void vow_gate_stats_get(const vow_gate *g, vow_gate_stats *ret_stats)
{
    VOW__ASSERT_THREAD(g->loop);
    uint32_t most = g->quota.most;
    size_t starting = 0;
    for (vow_link *l = g->starting; l != NULL; l = l->next)
        starting++;
    *ret_stats = (vow_gate_stats){
        .waiting = g->waiting + g->asking_count,
        .waiting_bytes = g->queued_bytes,
        .running = g->active - g->asking_count,
        .weight = g->quota.held,
        .concurrent = most == UINT32_MAX ? 0 : most,
        .keys = g->keys.count,
        .started = g->started,
        .ended = g->started - (g->active - g->asking_count - starting),
        .failed = g->failed,
        .refused = g->refused,
        .dropped = g->dropped,
        .canceled = g->canceled,
        .expired = g->expired,
    };
}

void vow_gate_explain(const vow_gate *gate, const vow_future *job,
                      vow_job_explain *ret_explain)
{
    VOW__ASSERT_THREAD(gate->loop);
    vow_gate *g = (vow_gate *)(uintptr_t)gate; /* `tick` is written */
    const struct job *j = job_find(g, job);
    vow_job_explain x = {.starts_in_ms = UINT64_MAX};
    uint64_t now = vow__gate_now(g);
    if (j != NULL)
        x.waited_ms =
            now > j->u.since_ns ? (now - j->u.since_ns) / VOW__NS_PER_MS : 0;
    if (j != NULL && j->state == JOB_RUNS)
        x.state = VOW_JOB_RUNS;
    else if (j != NULL && j->state == JOB_STARTS)
        x.state = VOW_JOB_STARTS;
    else if (j != NULL)
        x.state = VOW_JOB_WAITS;
    if (x.state == VOW_JOB_WAITS && j->state == JOB_BACKING) {
        x.blocked = VOW_BY_BACKING;
    } else if (x.state == VOW_JOB_WAITS) {
        uint64_t weight = 0;
        x.ahead = job_count_ahead(g, j, &weight);
        x.blocked = job_blocked_by(g, j, x.ahead, now);
        uint64_t at = job_expected_ns(g, j, weight, now);
        uint64_t left = at > now ? at - now : 0;
        if (at != UINT64_MAX)
            x.starts_in_ms =
                left / VOW__NS_PER_MS + (left % VOW__NS_PER_MS != 0);
    } else if (x.state != VOW_JOB_UNKNOWN) {
        x.starts_in_ms = 0;
    }
    *ret_explain = x;
}

/* ---- find a job ---------------------------------------------------------- */

static const struct job *job_find(const vow_gate *g, const vow_future *f)
{
    const struct job *j = job_find_in(g->starting, f);
    struct group *group = NULL;
    if (j == NULL)
        j = job_find_in(g->running, f);
    if (j == NULL)
        j = job_find_in(g->asking, f);
    if (j == NULL)
        j = job_find_in(g->lent, f);
    if (j == NULL)
        j = job_find_in(g->outside, f);
    while (j == NULL && (group = vow__gate_group_next((vow_gate *)(uintptr_t)g,
                                                      group)) != NULL)
        for (int i = 0; j == NULL && i < LEVELS; i++)
            j = job_find_in(group->level[i], f);
    return j;
}

static bool job_is_attempt_of(const struct job *j, const vow_future *f)
{
    return j->extra != NULL &&
           vow__gate_attempts_result(j->extra->attempts) == f;
}

static const struct job *job_find_in(vow_link *list, const vow_future *f)
{
    for (; list != NULL; list = list->next)
        if (vow_deferred_future(vow__gate_job_of(list)->out) == f ||
            job_is_attempt_of(vow__gate_job_of(list), f))
            return vow__gate_job_of(list);
    return NULL;
}

/* ---- jobs ahead ---------------------------------------------------------- */

static uint32_t job_blocked_by(vow_gate *g, const struct job *j, size_t ahead,
                               uint64_t now_ns)
{
    const struct vow__coord_quota *own = &j->group->quota;
    uint32_t bits = 0;
    if (j->state == JOB_OUTSIDE)
        bits |= VOW_BY_ROOM;
    if (ahead > 0)
        bits |= VOW_BY_ORDER;
    if (!vow__coord_quota_fits(&g->quota, j->slots))
        bits |= VOW_BY_CONCURRENCY;
    if (vow__coord_quota_when(&g->quota, j->weight, now_ns) != 0)
        bits |= VOW_BY_RATE;
    if (!vow__coord_quota_fits(own, j->slots) ||
        vow__coord_quota_when(own, j->weight, now_ns) != 0)
        bits |= VOW_BY_KEY;
    if (g->paused || now_ns < g->paused_ns || now_ns < j->group->paused_ns)
        bits |= VOW_BY_PAUSE;
    return bits;
}

/* Returns the number of jobs ahead: in the job's group all jobs with a better
 * rank, in each other group as many jobs as the group has turns before. */
static size_t job_count_ahead(vow_gate *g, const struct job *j,
                              uint64_t *ret_weight)
{
    size_t ahead = 0;
    uint64_t weight = 0;
    const struct group *group = j->group;
    if (j->state == JOB_LENT)
        return 0;
    for (int i = 0; i < LEVELS; i++) {
        for (vow_link *l = group->level[i]; l != NULL; l = l->next) {
            const struct job *other = vow__gate_job_of(l);
            if (other == j ||
                (j->state == JOB_WAITS && !vow__gate_job_before(g, other, j)))
                continue;
            ahead++;
            weight += other->weight;
        }
    }
    size_t own = ahead;
    for (vow_link *l = g->outside; j->state == JOB_OUTSIDE && l != &j->link;
         l = l->next) {
        ahead++;
        weight += vow__gate_job_of(l)->weight;
    }
    *ret_weight = weight;
    return ahead + groups_count_ahead(g, group, own, ret_weight);
}

/* Counts jobs of other groups; a group before `own` in the ring has an extra
 * turn. */
static size_t groups_count_ahead(vow_gate *g, const struct group *own,
                                 size_t own_ahead, uint64_t *weight)
{
    size_t ahead = 0;
    bool before = own->place == GROUP_IN_RING;
    for (vow_link *l = g->ring; l != NULL; l = l->next) {
        const struct group *other = VOW__OUTER(l, struct group, link);
        if (other == own)
            before = false;
        else
            ahead += group_count_turns(other, own_ahead + before, weight);
    }
    const struct group *other = NULL;
    while ((other = vow__gate_group_next(g, other)) != NULL)
        if (other != own && other->place != GROUP_IN_RING)
            ahead += group_count_turns(other, own_ahead, weight);
    return ahead;
}

static size_t group_count_turns(const struct group *other, size_t most,
                                uint64_t *weight)
{
    size_t n = most < other->waiting ? most : other->waiting;
    if (n > 0)
        *weight += other->waiting_weight / other->waiting * n;
    return n;
}

/* ---- expected start ------------------------------------------------------ */

static uint64_t job_expected_ns(vow_gate *g, const struct job *j,
                                uint64_t ahead, uint64_t now_ns)
{
    uint64_t at =
        vow__coord_quota_earliest(&g->quota, ahead, j->weight, now_ns);
    uint64_t own =
        vow__coord_quota_earliest(&j->group->quota, 0, j->weight, now_ns);
    uint64_t until =
        j->group->paused_ns > g->paused_ns ? j->group->paused_ns : g->paused_ns;
    at = own > at ? own : at;
    at = until > at ? until : at;
    if (g->paused)
        return UINT64_MAX;
    uint64_t need = g->quota.held + ahead + j->slots;
    if (g->quota.most == UINT32_MAX || need <= g->quota.most)
        return at;
    if (g->mean_ns == 0)
        return UINT64_MAX;
    /* All slots are released once per mean run time; the current runs are, on
     * average, half over. */
    double rounds = (double)(need - g->quota.most) / g->quota.most;
    double ns = (double)g->mean_ns * (rounds < 0.5 ? 0.5 : rounds);
    uint64_t by_slots = ns > 1e18 ? UINT64_MAX / 2 : now_ns + (uint64_t)ns;
    return by_slots > at ? by_slots : at;
}

/* ---- text ---------------------------------------------------------------- */

size_t vow_job_explain_text(const vow_job_explain *x, char *text, size_t size)
{
    struct text t = {.at = text, .size = size};
    unsigned long long ms = x->waited_ms;
    if (size > 0)
        text[0] = '\0';
    if (x->state == VOW_JOB_UNKNOWN)
        explain_append(&t, "not a job of this gate, or it has ended");
    if (x->state == VOW_JOB_STARTS)
        explain_append(&t, "starts now");
    if (x->state == VOW_JOB_RUNS)
        explain_append(&t, "has run for %llu ms", ms);
    if (x->state != VOW_JOB_WAITS)
        return t.length;
    explain_append(&t, "waits for %llu ms", ms);
    if (x->ahead > 0)
        explain_append(&t, " behind %zu other%s", x->ahead,
                       x->ahead == 1 ? "" : "s");
    if (x->blocked & VOW_BY_ROOM)
        explain_append(&t, "; the queue is full");
    if (x->blocked & VOW_BY_PAUSE)
        explain_append(&t, "; paused");
    if (x->blocked & VOW_BY_CONCURRENCY)
        explain_append(&t, "; the slots it needs are taken");
    if (x->blocked & VOW_BY_RATE)
        explain_append(&t, "; the rate is used up");
    if (x->blocked & VOW_BY_KEY)
        explain_append(&t, "; its key is at its limit");
    if (x->blocked & VOW_BY_BACKING)
        explain_append(&t, "; the shared limit has not granted it");
    if (x->starts_in_ms == UINT64_MAX)
        explain_append(&t, "; when it starts cannot be said");
    else
        explain_append(&t, "; expected to start in %llu ms",
                       (unsigned long long)x->starts_in_ms);
    return t.length;
}

static void explain_append(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t room = t->length < t->size ? t->size - t->length : 0;
    int n = vsnprintf(room > 0 ? t->at + t->length : NULL, room, format, args);
    va_end(args);
    t->length += n > 0 ? (size_t)n : 0;
}
