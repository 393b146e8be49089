/* SPDX-License-Identifier: MIT */
/* gate_queue.c - who waits, in which order, and who is next.
 *
 * WHY   An order that can be told in a sentence: keys in turn, then priority
 *       with ageing, then arrival. Nobody starves, and nobody waits behind
 *       something that can never start.
 * HOW   A group has a list per priority level. All age at the same pace, so of
 *       two that wait the order never changes: arrival minus levels times
 *       age_ms decides, and the heads of the lists are all there is to compare.
 *       A newcomer joins first and is let in if it can be; only if it still
 *       waits then is it asked whether it may.
 * INVARIANTS
 *   L1  queued == jobs in levels; waiting == queued + outside + lent
 *   L2  outside is empty, or the queue is full for its first
 * LIMITS  joining, leaving and being let in are O(levels in use).
 * THREADS  loop thread only.
 */
#include "coord/gate/gate_internal.h"

enum { LOOK_AHEAD = 64, OUTSIDE_MAX = 1048576 };

static bool waits_last(const struct job *j);
static void insert_before(struct job *j, vow_link *next);
static void in_order_of_arrival(vow_link **list, struct extra *x);
static int stays(struct job *j, const char **ret_text);
static void go_outside(struct job *j);
static int make_room(struct job *j, const char **ret_text);
static bool enough_below(const struct job *j);
static size_t queue_max(const vow_gate *g);
static struct job *oldest(vow_gate *g);
static struct job *lowest(vow_gate *g);
static bool too_late(struct job *j);
static void on_deadline(void *job);
static void admit_plain(vow_gate *g);
static void take_turn(struct job *j);
static struct job *next_able(vow_gate *g, uint64_t now_ns);
static struct job *next_in_ring(vow_gate *g, uint64_t now_ns, uint64_t *wake);
static struct job *passer(vow_gate *g, struct job *first, uint64_t now_ns,
                          uint64_t *wake);
static bool may_be_passed(const vow_gate *g, const struct job *j,
                          uint64_t now_ns);
static bool fetch_outside(vow_gate *g);
static void wake_at(vow_gate *g, uint64_t ns);
static void on_timer(void *gate);

/* ---- joining ------------------------------------------------------------- */

int vow__gate_queue_join(struct job *j, const char **ret_text)
{
    vow_gate *g = vow__gate_of(j);
    j->u.since_ns = vow__gate_now(g);
    vow_on_cancel_now(j->out, vow__gate_job_cancel, j);
    bool last = waits_last(j);
    if (g->outside != NULL)
        go_outside(j);
    else
        vow__gate_queue_insert(j);
    if (!last)
        vow__gate_admit(g);
    if (j->state != JOB_WAITS && j->state != JOB_OUTSIDE)
        return 0;
    int rc = stays(j, ret_text);
    if (rc < 0) {
        vow__gate_queue_leave(j);
        vow__gate_admit(g);
    }
    return rc;
}

/* Behind others of its key that could not start: then neither can it. */
static bool waits_last(const struct job *j)
{
    const vow_gate *g = vow__gate_of(j);
    return g->outside != NULL ||
           (j->group->levels == UINT32_C(1) << j->level &&
            g->opts.bypass_count == 0 && g->opts.bypass_ms == 0);
}

void vow__gate_queue_insert(struct job *j)
{
    insert_before(j, NULL);
}

/* The lists are in order of arrival. */
void vow__gate_queue_return(struct job *j)
{
    vow_link *next = j->group->level[j->level];
    if (j->slots == 0) {
        vow__gate_queue_lend(j);
    } else {
        while (next != NULL && vow__gate_job_of(next)->number < j->number)
            next = next->next;
        insert_before(j, next);
    }
    vow__gate_job_bound(j);
}

void vow__gate_job_bound(struct job *j)
{
    if (vow__gate_job_due_ns(j) != 0)
        vow_call_at(&j->extra->call, vow__gate_of(j)->loop, j->extra->due_ns,
                    on_deadline, j);
}

void vow__gate_queue_lend(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    j->state = JOB_LENT;
    vow__gate_waiting(g, 1);
    g->lent_count++;
    vow__list_push(&g->lent, &j->link);
}

static void insert_before(struct job *j, vow_link *next)
{
    vow_gate *g = vow__gate_of(j);
    struct group *group = j->group;
    j->state = JOB_WAITS;
    vow__list_insert(&group->level[j->level], next, &j->link);
    group->levels |= UINT32_C(1) << j->level;
    group->waiting++;
    group->waiting_weight += j->weight;
    if (vow__gate_drops(g))
        in_order_of_arrival(&g->level[j->level], j->extra);
    if (g->queued == 0 || g->heaviest < j->slots)
        g->heaviest = j->slots;
    vow__gate_waiting(g, 1);
    g->queued++;
    g->queued_bytes += vow__gate_job_bytes(j);
    if (group->place != GROUP_IN_RING &&
        (group->waiting == 1 || vow__gate_group_best(g, group) == j))
        vow__gate_group_place(g, group, GROUP_IN_RING, 0);
}

static void in_order_of_arrival(vow_link **list, struct extra *x)
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

/* A newcomer could not start: may it wait? */
static int stays(struct job *j, const char **ret_text)
{
    if (j->nested != VOW_NESTED_APART && vow__gate_job_stuck(j)) {
        *ret_text = "it would wait for a job that it is part of";
        if (j->nested == VOW_NESTED_REFUSE || !vow__gate_job_lend(j))
            return VOW_EDEADLK;
        if (j->state != JOB_LENT)
            return 0;
    }
    if (vow__gate_job_due_ns(j) != 0 && too_late(j)) {
        *ret_text = "it could not start before its deadline";
        return VOW_ETIMEDOUT;
    }
    int rc = make_room(j, ret_text);
    if (rc == 0 && j->state < JOB_STARTS)
        vow__gate_job_bound(j);
    return rc;
}

static void go_outside(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    j->state = JOB_OUTSIDE;
    vow__gate_waiting(g, 1);
    g->outside_count++;
    vow__list_push(&g->outside, &j->link);
}

static int make_room(struct job *j, const char **ret_text)
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
    while (g->queued > queue_max(g) ||
           (o->queue_bytes > 0 && g->queued_bytes > o->queue_bytes)) {
        struct job *out = j;
        if (!enough_below(j))
            return VOW_EQUEUEFULL;
        if (o->overflow == VOW_OVERFLOW_WAIT) {
            vow__gate_queue_leave(j);
            go_outside(j);
            break;
        }
        if (o->overflow == VOW_OVERFLOW_DROP_OLDEST)
            out = oldest(g);
        else if (o->overflow == VOW_OVERFLOW_DROP_LOWEST)
            out = lowest(g);
        if (out == j)
            return VOW_EQUEUEFULL;
        vow__gate_queue_leave(out);
        vow__gate_job_leaves(out,
                             vow_error_new_at(vow__gate_job_site(out), g->loop,
                                              VOW_EQUEUEFULL, NULL,
                                              "dropped to make room"));
    }
    if (g->leaving != NULL || j->state == JOB_OUTSIDE)
        vow__gate_admit(g); /* who left may have been in the way */
    return 0;
}

/* Nobody is dropped in vain: do those of lower levels have the bytes? */
static bool enough_below(const struct job *j)
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

static size_t queue_max(const vow_gate *g)
{
    return g->opts.queue_max == VOW_NO_QUEUE ? 0 : g->opts.queue_max;
}

bool vow__gate_job_may_queue(const struct job *j)
{
    const vow_gate *g = vow__gate_of(j);
    size_t most = g->opts.queue_bytes;
    return queue_max(g) > 0 && (most == 0 || vow__gate_job_bytes(j) <= most);
}

static struct job *oldest(vow_gate *g)
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

static struct job *lowest(vow_gate *g)
{
    int i = 0;
    while (g->level[i] == NULL)
        i++;
    return VOW__OUTER(g->level[i]->prev, struct extra, in_level)->job;
}

/* As things stand, by the rate and by pauses that have an end. */
static bool too_late(struct job *j)
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

static void on_deadline(void *job)
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

/* ---- leaving ------------------------------------------------------------- */

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
    else if (group->place != GROUP_IN_RING) /* another is its first: keeps K1 */
        vow__gate_group_place(g, group, GROUP_IN_RING, 0);
}

/* ---- being let in -------------------------------------------------------- */

void vow__gate_admit(vow_gate *g)
{
    struct job *j;
    if (vow__gate_plain(g) &&
        (g->no_key.levels & ~(UINT32_C(1) << -LOWEST)) == 0) {
        admit_plain(g);
        return;
    }
    uint64_t now = vow__gate_now(g); /* once for all: it only gets later */
    do {
        while ((j = next_able(g, now)) != NULL)
            take_turn(j);
    } while (g->outside != NULL && fetch_outside(g)); /* keeps L2 */
    if ((g->slow & SLOW_WAITS) != 0)
        vow__gate_tell_waits(g);
}

/* The same as below, in short. */
static void admit_plain(vow_gate *g)
{
    vow_link **line = &g->no_key.level[-LOWEST];
    while (*line != NULL && !vow_loop_closing(g->loop)) {
        struct job *j = vow__gate_job_of(*line);
        if (!vow__coord_quota_fits(&g->quota, j->slots))
            return;
        take_turn(j);
    }
}

static void take_turn(struct job *j)
{
    vow_gate *g = vow__gate_of(j);
    struct group *group = j->group;
    bool in_turn = j->state == JOB_WAITS;
    vow__gate_queue_leave(j);
    if (vow_deferred_canceled(j->out)) { /* and its hook is in the queue */
        j->state = JOB_LEFT;
        if (j->extra != NULL)
            (void)vow_call_stop(&j->extra->call);
        return;
    }
    if (in_turn && group->waiting > 0 && group->link.next != NULL)
        vow__gate_group_place(g, group, GROUP_IN_RING, 0); /* to the end */
    vow__gate_job_let_in(j);
}

/* The job whose turn it is, if it can start now. Otherwise the timer is set,
 * or what it waits for will call again. */
static struct job *next_able(vow_gate *g, uint64_t now_ns)
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
                j = next_in_ring(g, now_ns, &wake);
        }
    }
    if (j == NULL)
        wake_at(g, wake);
    return j;
}

/* Lowers *wake to the time at which to look again. */
static struct job *next_in_ring(vow_gate *g, uint64_t now_ns, uint64_t *wake)
{
    while (g->ring != NULL) {
        struct group *group = VOW__OUTER(g->ring, struct group, link);
        struct job *j = vow__gate_group_best(g, group);
        uint64_t when = vow__gate_group_blocks(group, j, now_ns);
        if (when == 0 && !vow__coord_quota_fits(&g->quota, j->slots))
            return passer(g, j, now_ns, wake);
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

/* What its own key says: 0 now, a time, or UINT64_MAX: when a place of the key
 * comes back or a start of it is stamped. */
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

/* One behind `first` that fits where `first` does not, if all it would pass
 * may be passed once more. */
static struct job *passer(vow_gate *g, struct job *first, uint64_t now_ns,
                          uint64_t *wake)
{
    int looked = 0;
    if (g->opts.bypass_count == 0 && g->opts.bypass_ms == 0)
        return NULL;
    for (struct job *j = first; looked < LOOK_AHEAD; looked++) {
        if (!may_be_passed(g, j, now_ns) || j->link.next == NULL)
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
                p->passed++;
            return j;
        }
    }
    return NULL;
}

static bool may_be_passed(const vow_gate *g, const struct job *j,
                          uint64_t now_ns)
{
    uint32_t count = g->opts.bypass_count;
    uint64_t ms = g->opts.bypass_ms;
    if (count > 0 && j->passed >= count)
        return false;
    return ms == 0 || (now_ns - j->u.since_ns) / VOW__NS_PER_MS < ms;
}

static bool fetch_outside(vow_gate *g)
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

static void wake_at(vow_gate *g, uint64_t ns)
{
    if (ns == g->timer_ns)
        return;
    g->timer_ns = ns;
    if (ns == UINT64_MAX)
        (void)vow_call_stop(&g->timer);
    else
        vow_call_at(&g->timer, g->loop, ns, on_timer, g);
}

static void on_timer(void *gate)
{
    vow_gate *g = vow_gate_ref(gate);
    g->timer_ns = UINT64_MAX;
    (void)vow__coord_tick_read(&g->tick);
    vow__gate_admit(g);
    vow_gate_unref(g);
}
