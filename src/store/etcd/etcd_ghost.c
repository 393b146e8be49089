/* SPDX-License-Identifier: MIT */
/* etcd_ghost.c - a claim or a pulse without an answer, which may have taken
 * effect, or may yet, and nobody knows.
 *
 * WHY   All names of a process hang on one lease. One whose claim had no answer
 *       and was not repeated would be alive as long as the process is, without
 *       an owner; in mode once it would be in doubt then, though nothing has
 *       begun.
 * HOW   A claim: the name is read. If the record is the one that this claim has
 *       made, it is given back. In any case n/H/f is written, the fence: every
 *       claim compares its revision, so what is still under way has no effect
 *       any more. Until etcd has answered it is tried again. A claim of the
 *       same process that finds the record of a ghost takes it over at once.
 *       What the store leaves behind when it is closed is given back, or
 *       fenced off, by one transaction without looking.
 *       A pulse: its work has begun. When its lease would be over the name is
 *       read; if it is of that token still, and is not what this process knows
 *       to own, its n/H/a is deleted: it has lapsed, as it would have if the
 *       process had died.
 *       A ghost does not wait in the lane of its name, nor does anybody wait
 *       for it: all have one lane of their own. It judges only while no step of
 *       the name is under way, and all that it does compares the revisions of
 *       the record and of n/H/a: an owner that is told so later has changed
 *       one of them.
 * INVARIANTS
 *   G1  a ghost is in the list of all, and in that of its name, until freed
 *   G2  a record is given back only if no claim and no pulse was ever told that
 *       it owns it: it is as it was made (`since_us`: who renews it from
 *       another lease changes that), and its epoch is above `told`
 * LIMITS  A fence stays for FENCE_MS: what reaches etcd later still counts.
 *         Without memory nothing is looked for.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

enum {
    FIRST_MS = 200, /* when it is looked for; doubled when that failed, */
    DOUBLINGS = 4,  /* so often */
    LATEST_MS = 10000,
    FENCE_MS = 60000,
    LEAVE_MAX = 40 /* ghosts in a transaction */
};

struct ghost {
    vow_link link; /* of all */
    vow_link by_name;
    struct vow__near *near;
    vow_call due;
    struct vow__step_lane lane;
    struct vow__trip trip;
    struct vow__er made; /* what its claim has written */
    uint64_t told;       /* records up to this epoch were answered for */
    bool claims;         /* else it is that of a pulse */
    bool lingers;        /* the name is its token's, by another step */
    unsigned doublings;
};

static struct ghost *ghost_new(struct vow__etcd *e, const struct vow__er *made);
static void ghost_free(struct ghost *g);
static void wait_for(struct ghost *g, uint64_t ms);
static void wait_for_lease(struct ghost *g);
static void on_due(void *ghost);
static void begin(struct vow__step_lane *lane);
static void refuse(struct vow__step_lane *lane, int code);
static void look(struct vow__trip *t);
static void judge(struct vow__trip *t);
static void judge_claim(struct ghost *g);
static void judge_pulse(struct ghost *g);
static void put_fence(struct vow__txn *txn, enum vow__branch b,
                      const vow_name *name, int64_t lease);
static void give_back(struct vow__txn *txn, const vow_name *name);
static void wrote(struct vow__trip *t, const json_t *root);
static void answer(struct vow__trip *t, int code);
static bool left_behind(struct ghost *g, struct vow__txn *txn);
static void on_left(struct vow__etcd *e, int code, const json_t *root,
                    void *news);

static const struct vow__trip_ops operations = {
    .judge = judge, .wrote = wrote, .answer = answer};

static struct ghost *ghost_of(struct vow__trip *t)
{
    return VOW__OUTER(t, struct ghost, trip);
}

/* ---- coming and going ---------------------------------------------------- */

void vow__ghost_claim(struct vow__etcd *e, const struct vow__er *made,
                      uint64_t told)
{
    struct ghost *g = ghost_new(e, made);
    if (g == NULL)
        return;
    g->claims = true;
    g->told = told;
    if (!vow__etcd_closing(e))
        wait_for(g, FIRST_MS);
}

void vow__ghost_pulse(struct vow__etcd *e, const vow_hold *hold,
                      uint64_t lease_ms)
{
    const struct vow__er made = {
        .name = hold->name, .token = hold->token, .lease_ms = lease_ms};
    struct ghost *g = vow__etcd_closing(e) ? NULL : ghost_new(e, &made);
    if (g != NULL)
        wait_for_lease(g);
}

static struct ghost *ghost_new(struct vow__etcd *e, const struct vow__er *made)
{
    struct vow__etcd_news *n = vow__etcd_news(e);
    n->littered = true;
    struct ghost *g =
        made->lease_ms == 0 ? NULL : vow__mem_zero(&n->alloc, sizeof(*g));
    if (g == NULL)
        return NULL;
    g->near = vow__near_pin(n, &made->name);
    if (g->near == NULL) {
        vow__mem_free(&n->alloc, g, sizeof(*g));
        return NULL;
    }
    g->lane = (struct vow__step_lane){.begin = begin, .refuse = refuse};
    g->trip = (struct vow__trip){
        .ops = &operations, .etcd = e, .lane = &g->lane, .name = made->name};
    g->made = *made;
    vow__list_push(&n->ghosts, &g->link);
    vow__list_push(&g->near->ghosts, &g->by_name); /* keeps G1 */
    vow__near_unpin(g->near);
    return g;
}

static void ghost_free(struct ghost *g)
{
    struct vow__etcd_news *n = vow__etcd_news(g->trip.etcd);
    struct vow__near *near = g->near;
    (void)vow_call_stop(&g->due);
    vow__list_remove(&n->ghosts, &g->link);
    vow__list_remove(&near->ghosts, &g->by_name);
    vow__mem_free(&n->alloc, g, sizeof(*g));
    vow__near_free_idle(near);
}

void vow__ghosts_close(struct vow__etcd_news *n)
{
    while (n->ghosts != NULL)
        ghost_free(VOW__OUTER(n->ghosts, struct ghost, link));
}

/* ---- what others see of them --------------------------------------------- */

/* G2 */
static bool is_its(const struct ghost *g, const struct vow__er *er)
{
    return g->claims && er->state == VOW__ER_RUNS &&
           vow__er_of(er, &g->made.token) && er->since_us == g->made.since_us &&
           er->epoch > g->told;
}

bool vow__ghost_has(const struct vow__near *near, const struct vow__er *er)
{
    for (const vow_link *l = near->ghosts; l != NULL; l = l->next)
        if (is_its(VOW__OUTER(l, struct ghost, by_name), er))
            return true;
    return false;
}

void vow__ghost_owned(struct vow__near *near, const struct vow__er *er)
{
    for (vow_link *l = near->ghosts; l != NULL; l = l->next) {
        struct ghost *g = VOW__OUTER(l, struct ghost, by_name);
        if (vow__er_of(er, &g->made.token) && er->epoch > g->told)
            g->told = er->epoch; /* keeps G2 */
    }
}

/* ---- looking for one ----------------------------------------------------- */

static void wait_for(struct ghost *g, uint64_t ms)
{
    vow_loop *loop = vow__etcd_loop(g->trip.etcd);
    vow_call_weakly_at(&g->due, loop, vow_loop_due_ns(loop, ms), on_due, g);
}

/* Etcd itself gives up after some seconds. */
static void wait_for_lease(struct ghost *g)
{
    g->claims = false;
    g->doublings = DOUBLINGS;
    wait_for(g, g->made.lease_ms > LATEST_MS ? g->made.lease_ms : LATEST_MS);
}

static void on_due(void *ghost)
{
    struct ghost *g = ghost;
    vow__step_begin(g->trip.etcd, &g->lane);
}

static void begin(struct vow__step_lane *lane)
{
    struct vow__trip *t = &VOW__OUTER(lane, struct ghost, lane)->trip;
    t->begun_ns = vow_loop_now_ns(vow__etcd_loop(t->etcd));
    t->tries = 0;
    t->unsure = false;
    t->hang = (struct vow__hang){.once_ms = ghost_of(t)->claims ? FENCE_MS : 0};
    if (vow__trip_begin(t))
        vow__trip_hang(t, look);
}

static void refuse(struct vow__step_lane *lane, int code)
{
    answer(&VOW__OUTER(lane, struct ghost, lane)->trip, code);
}

static void look(struct vow__trip *t)
{
    vow__trip_read(t);
}

static void judge(struct vow__trip *t)
{
    struct ghost *g = ghost_of(t);
    if (t->near->pins > 1) /* a step of the name is under way: later */
        vow__trip_end(t, VOW_EAGAIN);
    else if (g->claims)
        judge_claim(g);
    else
        judge_pulse(g);
}

/* Is it of that token, and alive, and does nobody here know? */
static bool is_adrift(const struct ghost *g)
{
    const struct vow__er *er = &g->trip.er;
    const struct vow__er *own = g->near->own;
    bool known = own != NULL && own->alive == er->alive;
    return !known && er->state == VOW__ER_RUNS && er->alive != 0 &&
           vow__er_of(er, &g->made.token);
}

static void judge_pulse(struct ghost *g)
{
    struct vow__trip *t = &g->trip;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__txn txn;
    if (!is_adrift(g)) {
        vow__trip_end(t, 0);
        return;
    }
    vow__trip_txn(t, &txn);
    vow__txn_if_mod(&txn, &record, t->er.mod);
    vow__txn_if_mod(&txn, &alive, t->er.alive);
    vow__txn_delete(&txn, VOW__THEN, &alive, 0);
    vow__trip_write(t, &txn);
}

static void judge_claim(struct ghost *g)
{
    struct vow__trip *t = &g->trip;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__txn txn;
    bool its = is_its(g, &t->er);
    g->lingers = !its && t->er.epoch > g->told && is_adrift(g);
    vow__trip_txn(t, &txn);
    vow__txn_if_mod(&txn, &record, t->er.mod);
    if (its) {
        vow__txn_if_mod(&txn, &alive, t->er.alive);
        give_back(&txn, &t->name);
    }
    put_fence(&txn, VOW__THEN, &t->name, t->once);
    vow__trip_write(t, &txn);
}

static void put_fence(struct vow__txn *txn, enum vow__branch b,
                      const vow_name *name, int64_t lease)
{
    struct vow__key fence = vow__key("n", name, "/f");
    vow__txn_put(txn, b, &fence, NULL, lease);
}

/* All who wait see it, and none has a seat any more. */
static void give_back(struct vow__txn *txn, const vow_name *name)
{
    struct vow__key record = vow__key("n", name, "/r");
    struct vow__key alive = vow__key("n", name, "/a");
    struct vow__key seats = vow__key("w", name, "/");
    vow__txn_delete(txn, VOW__THEN, &record, 0);
    vow__txn_delete(txn, VOW__THEN, &alive, 0);
    vow__txn_delete(txn, VOW__THEN, &seats, VOW__TREE);
}

static void wrote(struct vow__trip *t, const json_t *root)
{
    (void)root;
    vow__trip_end(t, 0);
}

static void answer(struct vow__trip *t, int code)
{
    struct ghost *g = ghost_of(t);
    vow__trip_fini(t);
    if (vow__etcd_closing(t->etcd)) {
        if (!g->claims || code == 0)
            ghost_free(g); /* others are left behind */
    } else if (code < 0) {
        wait_for(g, (uint64_t)FIRST_MS << g->doublings);
        if (g->doublings < DOUBLINGS)
            g->doublings++;
    } else if (g->claims && g->lingers) {
        wait_for_lease(g);
    } else {
        ghost_free(g);
    }
}

/* ---- the end of the store ------------------------------------------------ */

void vow__ghosts_leave(struct vow__etcd_news *n, void (*then)(void *news))
{
    struct vow__txn txn;
    unsigned count = 0;
    n->ghosts_left = then;
    vow__txn_init(&txn, &n->alloc, vow__etcd_where_of(n->etcd)->prefix);
    for (vow_link *l = n->ghosts; l != NULL && count < LEAVE_MAX; l = l->next)
        count += left_behind(VOW__OUTER(l, struct ghost, link), &txn);
    if (count > 0)
        vow__etcd_txn(n->etcd, &txn, on_left, n);
    else
        then(n);
    vow__txn_fini(&txn);
}

static bool left_behind(struct ghost *g, struct vow__txn *txn)
{
    struct vow__etcd_news *n = vow__etcd_news(g->trip.etcd);
    struct vow__key record = vow__key("n", &g->made.name, "/r");
    struct vow__jot value;
    struct vow__txn inner;
    if (!g->claims || g->told != 0 || n->keep.lease == 0)
        return false;
    vow__txn_init(&inner, &n->alloc, txn->prefix);
    vow__jot_init(&value, &n->alloc);
    vow__er_write(&g->made, false, &value);
    vow__txn_if_value(&inner, &record, &value); /* keeps G2 */
    give_back(&inner, &g->made.name);
    put_fence(&inner, VOW__ELSE, &g->made.name, n->keep.lease);
    vow__txn_nest(txn, VOW__THEN, &inner);
    vow__jot_fini(&value);
    vow__txn_fini(&inner);
    return true;
}

/* If it was not heard, nobody will know. */
static void on_left(struct vow__etcd *e, int code, const json_t *root,
                    void *news)
{
    struct vow__etcd_news *n = news;
    (void)e;
    (void)code;
    (void)root;
    n->ghosts_left(n);
}
