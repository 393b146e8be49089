/* SPDX-License-Identifier: MIT */
/* etcd_step.c - steps of one name, or of one pool, go one behind another.
 *
 * WHY   A step is several requests: it reads, judges and writes. Two of one
 *       process on the same name would only make each other's transactions
 *       fail, and steps must take effect in the order they were asked for.
 * HOW   A lane is there while a step of it runs or waits. The first begins at
 *       once; when it ends the next begins from the loop's queue, so that a
 *       thousand that fail at once need one stack frame.
 *       A step has the timeout from when it was asked for. One that does not
 *       get its turn in time is refused: those that stand behind each other
 *       when etcd is silent fail together, not one timeout after the other.
 * INVARIANTS
 *   S1  a lane has a step that runs, or the next is pending, or it is gone
 *   S2  once closed nothing waits in a lane, and nothing begins
 * LIMITS  A lane is one block of memory; what cannot have one is refused with
 *         VOW_ENOMEM.
 * THREADS  loop thread only.
 */
#include "base/table.h"
#include "store/etcd/etcd_internal.h"

struct vow__etcd_steps {
    struct vow__etcd *etcd;
    struct vow_alloc alloc;
    struct vow__table lanes;
    bool closed;
};

struct lane {
    struct vow__table_node named; /* its name is `name` */
    vow_name name;
    struct vow__etcd_steps *steps;
    vow_link *waits; /* vow__step_lane.link */
    vow_call next;
};

static struct lane *lane_find(struct vow__etcd_steps *s, const vow_name *name);
static struct lane *lane_new(struct vow__etcd_steps *s, const vow_name *name);
static void lane_free(struct lane *lane);
static void on_next(void *user);
static uint64_t due_ns(struct vow__etcd *e);
static void lane_renew(struct vow__step_lane *step);
static struct vow__step_lane *take(vow_link **waits);

int vow__steps_open(struct vow__etcd *e, struct vow__etcd_steps **ret_steps)
{
    struct vow_alloc alloc = *vow__etcd_alloc(e);
    struct vow__etcd_steps *s = vow__mem_zero(&alloc, sizeof(*s));
    if (s == NULL)
        return VOW_ENOMEM;
    s->etcd = e;
    s->alloc = alloc;
    vow__table_init_hashed(&s->lanes, &s->alloc,
                           vow_loop_random(vow__etcd_loop(e)));
    *ret_steps = s;
    return 0;
}

void vow__step_begin(struct vow__etcd *e, struct vow__step_lane *step)
{
    struct vow__etcd_steps *s = vow__etcd_steps(e);
    step->etcd = e;
    step->due_ns = due_ns(e);
    if (s->closed) {
        step->refuse(step, VOW_ECLOSED);
        return;
    }
    struct lane *lane = lane_find(s, &step->lane);
    if (lane != NULL) {
        vow__list_push(&lane->waits, &step->link);
        return;
    }
    if (lane_new(s, &step->lane) == NULL)
        step->refuse(step, VOW_ENOMEM);
    else
        step->begin(step);
}

/* Keeps S1. */
void vow__step_end(struct vow__step_lane *step)
{
    struct lane *lane = lane_find(vow__etcd_steps(step->etcd), &step->lane);
    VOW__ASSERT(lane != NULL);
    VOW__ASSERT(!vow_call_pending(&lane->next));
    if (lane->waits == NULL)
        lane_free(lane);
    else
        vow_call_soon(&lane->next, vow__etcd_loop(step->etcd), on_next, lane);
}

static void on_next(void *user)
{
    struct lane *lane = user;
    struct vow__step_lane *step = take(&lane->waits);
    if (!vow__step_late(step)) {
        step->begin(step);
        return;
    }
    vow__etcd_late(step->etcd);
    vow__step_end(step);
    step->refuse(step, VOW_ESTORE);
}

/* ---- time ---------------------------------------------------------------- */

static uint64_t due_ns(struct vow__etcd *e)
{
    return vow_loop_due_ns(vow__etcd_loop(e),
                           vow__etcd_where_of(e)->timeout_ms);
}

/* All requests of a step end when it is due: one that is asked for its time
 * much later was stopped with the whole process. */
bool vow__step_late(struct vow__step_lane *step)
{
    vow_loop *loop = vow__etcd_loop(step->etcd);
    if (vow__http_forgive(loop, step->due_ns, &step->forgiven))
        lane_renew(step);
    return vow_loop_now_ns(loop) >= step->due_ns;
}

static void lane_renew(struct vow__step_lane *step)
{
    struct lane *lane = lane_find(vow__etcd_steps(step->etcd), &step->lane);
    VOW__ASSERT(lane != NULL);
    step->due_ns = due_ns(step->etcd);
    for (vow_link *l = lane->waits; l != NULL; l = l->next)
        VOW__OUTER(l, struct vow__step_lane, link)->due_ns = step->due_ns;
}

/* ---- closing ------------------------------------------------------------- */

/* First the lanes, then those who waited: they may do what they like. */
void vow__steps_close(struct vow__etcd_steps *s)
{
    vow_link *waits = NULL;
    struct vow__table_node *at = vow__table_next(&s->lanes, NULL);
    s->closed = true; /* keeps S2 */
    while (at != NULL) {
        struct lane *lane = VOW__OUTER(at, struct lane, named);
        at = vow__table_next(&s->lanes, at);
        vow__list_splice(&waits, &lane->waits);
        if (vow_call_stop(&lane->next))
            lane_free(lane);
    }
    while (waits != NULL) {
        struct vow__step_lane *step = take(&waits);
        step->refuse(step, VOW_ECLOSED);
    }
}

void vow__steps_free(struct vow__etcd_steps *s)
{
    struct vow_alloc alloc = s->alloc;
    VOW__ASSERT(s->lanes.count == 0);
    vow__table_fini(&s->lanes);
    vow__mem_free(&alloc, s, sizeof(*s));
}

/* ---- lanes --------------------------------------------------------------- */

static struct lane *lane_find(struct vow__etcd_steps *s, const vow_name *name)
{
    struct vow__table_node *n = vow__table_find(
        &s->lanes, (const char *)name->hash, sizeof(name->hash));
    return n == NULL ? NULL : VOW__OUTER(n, struct lane, named);
}

static struct lane *lane_new(struct vow__etcd_steps *s, const vow_name *name)
{
    struct lane *lane = vow__mem_zero(&s->alloc, sizeof(*lane));
    if (lane == NULL)
        return NULL;
    lane->steps = s;
    lane->name = *name;
    lane->named.name = (const char *)lane->name.hash;
    lane->named.length = sizeof(lane->name.hash);
    if (vow__table_add(&s->lanes, &lane->named) < 0) {
        vow__mem_free(&s->alloc, lane, sizeof(*lane));
        return NULL;
    }
    return lane;
}

static void lane_free(struct lane *lane)
{
    struct vow__etcd_steps *s = lane->steps;
    vow__table_remove(&s->lanes, &lane->named);
    vow__mem_free(&s->alloc, lane, sizeof(*lane));
}

static struct vow__step_lane *take(vow_link **waits)
{
    vow_link *link = vow__list_take(waits);
    VOW__ASSERT(link != NULL);
    return VOW__OUTER(link, struct vow__step_lane, link);
}
