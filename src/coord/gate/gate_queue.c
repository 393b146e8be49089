/* SPDX-License-Identifier: MIT */
/* gate_queue.c - the wait queue: jobs, their order, and the next to start.
 *
 * WHY   The order fits into one sentence: keys in turn, then priority with
 *       ageing, then arrival. No job starves, and no job waits behind a job
 *       that can never start.
 * HOW   A group has a list per priority level. All jobs age at the same pace,
 *       so the order of two waiting jobs never changes: arrival minus level
 *       times age_ms decides, and comparing the heads of the lists is enough. A
 *       new job joins first and is admitted if possible; only a job that still
 *       waits is checked for permission to wait.
 * INVARIANTS
 *   L1  queued == jobs in levels; waiting == queued + outside + lent
 *   L2  outside is empty, or the queue is full for the first job outside
 * LIMITS  join, leave and admission are O(levels in use).
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

enum { LOOK_AHEAD = 64, OUTSIDE_MAX = 1048576 };

static bool job_joins_blocked(const struct job *j);
static void queue_insert_before(struct job *j, vow_link *next);
static void level_insert_by_arrival(vow_link **list, struct extra *x);
static int job_check_wait(struct job *j, const char **ret_text);
static void outside_join(struct job *j);
static int queue_make_room(struct job *j, const char **ret_text);
static bool queue_enough_below(const struct job *j);
static size_t queue_max_jobs(const vow_gate *g);
static struct job *queue_oldest_job(vow_gate *g);
static struct job *queue_lowest_job(vow_gate *g);
static bool job_misses_deadline(struct job *j);
static void on_job_deadline(void *job);
static void gate_admit_plain(vow_gate *g);
static void job_take_turn(struct job *j);
static struct job *gate_next_job(vow_gate *g, uint64_t now_ns);
static struct job *ring_next_job(vow_gate *g, uint64_t now_ns, uint64_t *wake);
static struct job *ring_find_bypass(vow_gate *g, struct job *first,
                                    uint64_t now_ns, uint64_t *wake);
static bool job_may_be_passed(const vow_gate *g, const struct job *j,
                              uint64_t now_ns);
static bool outside_fetch(vow_gate *g);
static void gate_wake_at(vow_gate *g, uint64_t ns);
static void on_gate_timer(void *gate);

/* ---- join ---------------------------------------------------------------- */

int vow__gate_queue_join(struct job *j, const char **ret_text)
{
    vow_gate *g = vow__gate_of(j);
    j->u.since_ns = vow__gate_now(g);
    vow_on_cancel_now(j->out, vow__gate_job_cancel, j);
    bool blocked = job_joins_blocked(j);
    if (g->outside != NULL)
        outside_join(j);
    else
        vow__gate_queue_insert(j);
    if (!blocked)
        vow__gate_admit(g);
    if (j->state != JOB_WAITS && j->state != JOB_OUTSIDE)
        return 0;
    int rc = job_check_wait(j, ret_text);
    if (rc < 0) {
        vow__gate_queue_leave(j);
        vow__gate_admit(g);
    }
    return rc;
}

/* Returns whether the job joins behind jobs that could not start, of the key or
 * outside: then the job cannot start either. */
static bool job_joins_blocked(const struct job *j)
{
    const vow_gate *g = vow__gate_of(j);
    return g->outside != NULL ||
           (j->group->levels == UINT32_C(1) << j->level &&
            g->opts.bypass_count == 0 && g->opts.bypass_ms == 0);
}

void vow__gate_queue_insert(struct job *j)
{
    queue_insert_before(j, NULL);
}

/* Finds the position by number: the lists are in order of arrival. */
void vow__gate_queue_return(struct job *j)
{
    vow_link *next = j->group->level[j->level];
    if (j->slots == 0) {
        vow__gate_queue_lend(j);
    } else {
        while (next != NULL && vow__gate_job_of(next)->number < j->number)
            next = next->next;
        queue_insert_before(j, next);
    }
    vow__gate_job_bound(j);
}

void vow__gate_job_bound(struct job *j)
{
    if (vow__gate_job_due_ns(j) != 0)
        vow_call_at(&j->extra->call, vow__gate_of(j)->loop, j->extra->due_ns,
                    on_job_deadline, j);
}

void vow__gate_queue_lend(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    vow_link *next = g->lent;
    j->state = JOB_LENT;
    vow__gate_waiting(g, 1);
    g->lent_count++;
    if (next != NULL && vow__gate_job_of(next->prev)->number < j->number)
        next = NULL; /* most jobs are the last; a returned job may not be */
    while (next != NULL && vow__gate_job_of(next)->number < j->number)
        next = next->next;
    vow__list_insert(&g->lent, next, &j->link);
}

static void queue_insert_before(struct job *j, vow_link *next)
{
    vow_gate *g = vow__gate_of(j);
    struct group *group = j->group;
    j->state = JOB_WAITS;
    vow__list_insert(&group->level[j->level], next, &j->link);
    group->levels |= UINT32_C(1) << j->level;
    group->waiting++;
    group->waiting_weight += j->weight;
    if (vow__gate_drops(g))
        level_insert_by_arrival(&g->level[j->level], j->extra);
    if (g->queued == 0 || g->heaviest < j->slots)
        g->heaviest = j->slots;
    vow__gate_waiting(g, 1);
    g->queued++;
    g->queued_bytes += vow__gate_job_bytes(j);
    if (group->place != GROUP_IN_RING &&
        (group->waiting == 1 || vow__gate_group_best(g, group) == j))
        vow__gate_group_place(g, group, GROUP_IN_RING, 0);
}

static void level_insert_by_arrival(vow_link **list, struct extra *x)
{
    vow_link *next = NULL;
    vow_link *l = *list == NULL ? NULL : (*list)->prev;
    while (l != NULL && VOW__OUTER(l, struct extra, in_level)->job->number >
                            x->job->number) {
        next = l;
        l = l == *list ? NULL : l->prev;
    }
    vow__list_insert(list, next, &x->in_level);
}

/* Lets a new job that could not start wait: lends slots, makes room, sets the
 * call for the deadline. Returns 0, or an error code with a text. */
static int job_check_wait(struct job *j, const char **ret_text)
{
    if (j->nested != VOW_NESTED_APART && vow__gate_job_stuck(j)) {
        *ret_text = "it would wait for a job that it is part of";
        if (j->nested == VOW_NESTED_REFUSE || !vow__gate_job_lend(j))
            return VOW_EDEADLK;
        if (j->state != JOB_LENT)
            return 0;
    }
    if (vow__gate_job_due_ns(j) != 0 && job_misses_deadline(j)) {
        *ret_text = "it could not start before its deadline";
        return VOW_ETIMEDOUT;
    }
    int rc = queue_make_room(j, ret_text);
    if (rc == 0 && j->state < JOB_STARTS)
        vow__gate_job_bound(j);
    return rc;
}

static void outside_join(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    j->state = JOB_OUTSIDE;
    vow__gate_waiting(g, 1);
    g->outside_count++;
    vow__list_push(&g->outside, &j->link);
}

static int queue_make_room(struct job *j, const char **ret_text)
{
    vow_gate *g = vow__gate_of(j);
    const vow_gate_opts *o = &g->opts;
    *ret_text = "the queue of the gate is full";
    if (j->state == JOB_LENT)
        return g->lent_count > OUTSIDE_MAX ? VOW_EQUEUEFULL : 0;
    if (!vow__gate_job_may_queue(j))
        return VOW_EQUEUEFULL;
    if (j->state == JOB_OUTSIDE)
        return g->outside_count > OUTSIDE_MAX ? VOW_EQUEUEFULL : 0;
    while (g->queued > queue_max_jobs(g) ||
           (o->queue_bytes > 0 && g->queued_bytes > o->queue_bytes)) {
        struct job *out = j;
        if (!queue_enough_below(j))
            return VOW_EQUEUEFULL;
        if (o->overflow == VOW_OVERFLOW_WAIT) {
            vow__gate_queue_leave(j);
            outside_join(j);
            break;
        }
        if (o->overflow == VOW_OVERFLOW_DROP_OLDEST)
            out = queue_oldest_job(g);
        else if (o->overflow == VOW_OVERFLOW_DROP_LOWEST)
            out = queue_lowest_job(g);
        if (out == j)
            return VOW_EQUEUEFULL;
        vow__gate_queue_leave(out);
        vow__gate_job_leaves(out,
                             vow_error_new_at(vow__gate_job_site(out), g->loop,
                                              VOW_EQUEUEFULL, NULL,
                                              "dropped to make room"));
    }
    if (g->leaving != NULL || j->state == JOB_OUTSIDE)
        vow__gate_admit(g); /* jobs that left may have blocked others */
    return 0;
}

/* Returns whether dropping all jobs of lower levels would free enough bytes; no
 * job is dropped in vain. */
static bool queue_enough_below(const struct job *j)
{
    const vow_gate *g = vow__gate_of(j);
    size_t most = g->opts.queue_bytes;
    if (g->opts.overflow != VOW_OVERFLOW_DROP_LOWEST || most == 0)
        return true;
    size_t left = g->queued_bytes;
    for (int i = 0; i < j->level; i++)
        for (vow_link *l = g->level[i]; l != NULL && left > most; l = l->next)
            left -= VOW__OUTER(l, struct extra, in_level)->bytes;
    return left <= most;
}

static size_t queue_max_jobs(const vow_gate *g)
{
    return g->opts.queue_max == VOW_NO_QUEUE ? 0 : g->opts.queue_max;
}

bool vow__gate_job_may_queue(const struct job *j)
{
    const vow_gate *g = vow__gate_of(j);
    size_t most = g->opts.queue_bytes;
    return queue_max_jobs(g) > 0 &&
           (most == 0 || vow__gate_job_bytes(j) <= most);
}

static struct job *queue_oldest_job(vow_gate *g)
{
    struct job *found = NULL;
    for (int i = 0; i < LEVELS; i++) {
        if (g->level[i] == NULL)
            continue;
        struct job *j = VOW__OUTER(g->level[i], struct extra, in_level)->job;
        if (found == NULL || j->number < found->number)
            found = j;
    }
    return found;
}

static struct job *queue_lowest_job(vow_gate *g)
{
    int i = 0;
    while (g->level[i] == NULL)
        i++;
    return VOW__OUTER(g->level[i]->prev, struct extra, in_level)->job;
}

/* Returns whether the rate and the pauses with a known end, as of now, leave no
 * start before the deadline. */
static bool job_misses_deadline(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    const struct group *group = j->group;
    uint64_t due = j->extra->due_ns;
    uint64_t now = vow__gate_now(g);
    uint64_t ahead = 0;
    bool one_level = (group->levels & (group->levels - 1)) == 0;
    if (j->state == JOB_WAITS && one_level && g->opts.bypass_count == 0 &&
        g->opts.bypass_ms == 0)
        ahead = group->waiting_weight - j->weight;
    return g->paused_ns >= due || group->paused_ns >= due ||
           vow__coord_quota_earliest(&g->quota, ahead, j->weight, now) >= due ||
           vow__coord_quota_earliest(&group->quota, ahead, j->weight, now) >=
               due;
}

static void on_job_deadline(void *job)
{
    struct job *j = job;
    vow_gate *g = vow_gate_ref(vow__gate_of(j));
    if (j->state == JOB_BACKING)
        vow__gate_backing_ask_end(j);
    else
        vow__gate_queue_leave(j);
    g->expired++;
    vow__gate_admit(g);
    vow__gate_job_reject_with(
        j, vow_error_new_at(vow__gate_job_site(j), g->loop, VOW_ETIMEDOUT, NULL,
                            "still waiting after %llu ms",
                            (unsigned long long)j->extra->deadline_ms));
    vow_gate_unref(g);
}

/* ---- leave --------------------------------------------------------------- */

void vow__gate_queue_leave(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    struct group *group = j->group;
    vow__gate_waiting(g, -1);
    if (j->state == JOB_OUTSIDE) {
        vow__list_remove(&g->outside, &j->link);
        g->outside_count--;
        return;
    }
    if (j->state == JOB_LENT) {
        vow__list_remove(&g->lent, &j->link);
        g->lent_count--;
        return;
    }
    VOW__ASSERT(j->state == JOB_WAITS);
    vow__list_remove(&group->level[j->level], &j->link);
    if (group->level[j->level] == NULL)
        group->levels &= ~(UINT32_C(1) << j->level);
    if (vow__gate_drops(g))
        vow__list_remove(&g->level[j->level], &j->extra->in_level);
    group->waiting--;
    group->waiting_weight -= j->weight;
    g->queued--;
    g->queued_bytes -= vow__gate_job_bytes(j);
    if (group->waiting == 0)
        vow__gate_group_place(g, group, GROUP_UNLISTED, 0);
    else if (group->place != GROUP_IN_RING) /* new first job: keeps K1 */
        vow__gate_group_place(g, group, GROUP_IN_RING, 0);
}

/* ---- admit --------------------------------------------------------------- */

void vow__gate_admit(vow_gate *g)
{
    struct job *j;
    if (vow__gate_plain(g) &&
        (g->keyless.levels & ~(UINT32_C(1) << -LOWEST)) == 0) {
        gate_admit_plain(g);
        return;
    }
    uint64_t now = vow__gate_now(g); /* read once: an old time is safe */
    do {
        while ((j = gate_next_job(g, now)) != NULL)
            job_take_turn(j);
    } while (g->outside != NULL && outside_fetch(g)); /* keeps L2 */
    if ((g->slow & SLOW_WAITS) != 0)
        vow__gate_tell_waits(g);
}

/* Does the work of vow__gate_admit() for a plain gate: no time, no turns. */
static void gate_admit_plain(vow_gate *g)
{
    vow_link **level = &g->keyless.level[-LOWEST];
    while (*level != NULL && !vow_loop_closing(g->loop)) {
        struct job *j = vow__gate_job_of(*level);
        if (!vow__coord_quota_fits(&g->quota, j->slots))
            return;
        job_take_turn(j);
    }
}

static void job_take_turn(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    struct group *group = j->group;
    bool in_turn = j->state == JOB_WAITS;
    vow__gate_queue_leave(j);
    if (vow_deferred_canceled(j->out)) { /* the cancel hook is queued */
        j->state = JOB_CANCELING;
        if (j->extra != NULL)
            (void)vow_call_stop(&j->extra->call);
        return;
    }
    if (in_turn && group->waiting > 0 && group->link.next != NULL)
        vow__gate_group_place(g, group, GROUP_IN_RING, 0); /* to the end */
    vow__gate_job_let_in(j);
}

/* Returns the next job that can start now. Otherwise sets the timer and returns
 * NULL; a job that waits for slots is tried again when slots are released. */
static struct job *gate_next_job(vow_gate *g, uint64_t now_ns)
{
    uint64_t wake = UINT64_MAX;
    struct job *j = NULL;
    if (g->waiting > g->outside_count && !g->paused &&
        !vow_loop_closing(g->loop)) {
        wake = g->paused_ns;
        if (!vow__gate_paused(g, now_ns)) {
            wake = g->later == NULL ? UINT64_MAX
                                    : vow__gate_groups_wake(g, now_ns);
            if (g->lent != NULL)
                j = vow__gate_lent_next(g, now_ns, &wake);
            if (j == NULL)
                j = ring_next_job(g, now_ns, &wake);
        }
    }
    if (j == NULL)
        gate_wake_at(g, wake);
    return j;
}

/* Returns the next job of the ring that can start, or NULL; lowers *wake to the
 * time of the next try. */
static struct job *ring_next_job(vow_gate *g, uint64_t now_ns, uint64_t *wake)
{
    while (g->ring != NULL) {
        struct group *group = VOW__OUTER(g->ring, struct group, link);
        struct job *j = vow__gate_group_best(g, group);
        uint64_t when = vow__gate_group_blocks(group, j, now_ns);
        if (when == 0 && !vow__coord_quota_fits(&g->quota, j->slots))
            return ring_find_bypass(g, j, now_ns, wake);
        if (when == 0) {
            when = vow__coord_quota_when(&g->quota, j->weight, now_ns);
            *wake = when < *wake ? when : *wake;
            return when == 0 ? j : NULL;
        }
        *wake = when < *wake ? when : *wake;
        vow__gate_group_place(g, group,
                              when == UINT64_MAX ? GROUP_UNLISTED : GROUP_LATER,
                              when); /* keeps K1 */
    }
    return NULL;
}

uint64_t vow__gate_group_blocks(const struct group *group, const struct job *j,
                                uint64_t now_ns)
{
    if (now_ns < group->paused_ns)
        return group->paused_ns;
    if (!vow__coord_quota_fits(&group->quota, j->slots))
        return UINT64_MAX;
    return vow__coord_quota_when(&group->quota, j->weight, now_ns);
}

struct job *vow__gate_group_best(const vow_gate *g, const struct group *group)
{
    struct job *best = NULL;
    for (uint32_t left = group->levels; left != 0; left &= left - 1) {
        struct job *j = vow__gate_job_of(group->level[__builtin_ctz(left)]);
        if (best == NULL || vow__gate_job_before(g, j, best))
            best = j;
    }
    return best;
}

bool vow__gate_job_before(const vow_gate *g, const struct job *a,
                          const struct job *b)
{
    int64_t age = (int64_t)(g->opts.age_ms * VOW__NS_PER_MS);
    int64_t rank_a = (int64_t)a->u.since_ns - a->level * age;
    int64_t rank_b = (int64_t)b->u.since_ns - b->level * age;
    if (rank_a != rank_b)
        return rank_a < rank_b;
    return a->number < b->number;
}

/* Returns a job behind `first` that fits where `first` does not, if every job
 * in between may be passed again. */
static struct job *ring_find_bypass(vow_gate *g, struct job *first,
                                    uint64_t now_ns, uint64_t *wake)
{
    int looked = 0;
    if (g->opts.bypass_count == 0 && g->opts.bypass_ms == 0)
        return NULL;
    for (struct job *j = first; looked < LOOK_AHEAD; looked++) {
        if (!job_may_be_passed(g, j, now_ns) || j->link.next == NULL)
            return NULL;
        j = vow__gate_job_of(j->link.next);
        if (!vow__coord_quota_fits(&g->quota, j->slots))
            continue;
        uint64_t when = vow__coord_quota_when(&g->quota, j->weight, now_ns);
        uint64_t own = vow__gate_group_blocks(j->group, j, now_ns);
        when = own > when ? own : when;
        *wake = when < *wake ? when : *wake;
        if (when == 0) {
            for (struct job *p = first; p != j;
                 p = vow__gate_job_of(p->link.next))
                p->bypassed++;
            return j;
        }
    }
    return NULL;
}

static bool job_may_be_passed(const vow_gate *g, const struct job *j,
                              uint64_t now_ns)
{
    uint32_t count = g->opts.bypass_count;
    uint64_t ms = g->opts.bypass_ms;
    if (count > 0 && j->bypassed >= count)
        return false;
    return ms == 0 || (now_ns - j->u.since_ns) / VOW__NS_PER_MS < ms;
}

static bool outside_fetch(vow_gate *g)
{
    bool some = false;
    while (g->outside != NULL) {
        struct job *j = vow__gate_job_of(g->outside);
        if (!vow__gate_has_room(g, vow__gate_job_bytes(j)))
            break;
        vow__gate_queue_leave(j);
        vow__gate_queue_insert(j);
        some = true;
    }
    return some;
}

static void gate_wake_at(vow_gate *g, uint64_t ns)
{
    if (ns == g->timer_ns)
        return;
    g->timer_ns = ns;
    if (ns == UINT64_MAX)
        (void)vow_call_stop(&g->timer);
    else
        vow_call_at(&g->timer, g->loop, ns, on_gate_timer, g);
}

static void on_gate_timer(void *gate)
{
    vow_gate *g = vow_gate_ref(gate);
    g->timer_ns = UINT64_MAX;
    (void)vow__coord_tick_read(&g->tick);
    vow__gate_admit(g);
    vow_gate_unref(g);
}
