/* SPDX-License-Identifier: MIT */
/* etcd_ghost.c - a claim or pulse that may have taken effect, and that nobody
 * knows of.
 *
 * WHY   All names of a process hang on one lease. One whose claim had no answer
 *       and was not repeated would be alive as long as the process is, without
 *       an owner.
 * HOW   When its lease would be over, the name is read. If it is of that token
 *       still, and is not what this process knows to own, its n/H/a is deleted:
 *       it has lapsed, as it would have if the process had died.
 * INVARIANTS
 *   G1  a ghost is in the list of all until it is freed
 * LIMITS  A request that reaches etcd later than that, and finds nothing there,
 *         is not found. Etcd itself gives up after some seconds: it is waited
 *         for LATEST_MS at least.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

enum { LATEST_MS = 10000, AGAIN_MS = 5000 };

struct ghost {
    vow_link link;
    vow_call due;
    struct vow__step_lane lane;
    struct vow__trip trip;
    vow_token token;
};

static void on_due(void *ghost);
static void begin(struct vow__step_lane *lane);
static void refuse(struct vow__step_lane *lane, int code);
static void judge(struct vow__trip *t);
static void wrote(struct vow__trip *t, const json_t *root);
static void answer(struct vow__trip *t, int code);
static void wait_for(struct ghost *g, uint64_t ms);
static void ghost_free(struct ghost *g);

static const struct vow__trip_ops operations = {
    .judge = judge, .wrote = wrote, .answer = answer};

void vow__ghost_add(struct vow__etcd *e, const vow_name *name,
                    const vow_token *token, uint64_t lease_ms)
{
    struct vow__etcd_news *n = vow__etcd_news(e);
    struct ghost *g = NULL;
    if (lease_ms > 0 && !vow__etcd_closing(e))
        g = vow__mem_zero(&n->alloc, sizeof(*g));
    n->littered = true;
    if (g == NULL)
        return;
    g->lane = (struct vow__step_lane){
        .lane = *name, .begin = begin, .refuse = refuse};
    g->trip = (struct vow__trip){
        .ops = &operations, .etcd = e, .lane = &g->lane, .name = *name};
    g->token = *token;
    vow__list_push(&n->ghosts, &g->link); /* keeps G1 */
    wait_for(g, lease_ms > LATEST_MS ? lease_ms : LATEST_MS);
}

void vow__ghosts_close(struct vow__etcd_news *n)
{
    while (n->ghosts != NULL)
        ghost_free(VOW__OUTER(n->ghosts, struct ghost, link));
}

static void wait_for(struct ghost *g, uint64_t ms)
{
    vow_loop *loop = vow__etcd_loop(g->trip.etcd);
    vow_call_weakly_at(&g->due, loop, vow_loop_due_ns(loop, ms), on_due, g);
}

static void on_due(void *ghost)
{
    struct ghost *g = ghost;
    vow__step_begin(g->trip.etcd, &g->lane);
}

static void begin(struct vow__step_lane *lane)
{
    struct vow__trip *t = &VOW__OUTER(lane, struct ghost, lane)->trip;
    t->tries = 0;
    t->unsure = false;
    if (vow__trip_begin(t))
        vow__trip_read(t);
}

static void refuse(struct vow__step_lane *lane, int code)
{
    answer(&VOW__OUTER(lane, struct ghost, lane)->trip, code);
}

static void judge(struct vow__trip *t)
{
    const struct ghost *g = VOW__OUTER(t, struct ghost, trip);
    const struct vow__er *own = t->near->own;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__txn txn;
    bool known = own != NULL && own->alive == t->er.alive;
    if (known || t->er.state != VOW__ER_RUNS || t->er.alive == 0 ||
        !vow__er_of(&t->er, &g->token)) {
        vow__trip_end(t, 0);
        return;
    }
    vow__trip_txn(t, &txn);
    vow__txn_if_mod(&txn, &record, t->er.mod);
    vow__txn_if_mod(&txn, &alive, t->er.alive);
    vow__txn_delete(&txn, VOW__THEN, &alive, 0);
    vow__trip_write(t, &txn);
}

static void wrote(struct vow__trip *t, const json_t *root)
{
    (void)root;
    vow__trip_end(t, 0);
}

static void answer(struct vow__trip *t, int code)
{
    struct ghost *g = VOW__OUTER(t, struct ghost, trip);
    vow__trip_fini(t);
    if (code < 0 && !vow__etcd_closing(t->etcd))
        wait_for(g, AGAIN_MS);
    else
        ghost_free(g);
}

static void ghost_free(struct ghost *g)
{
    struct vow__etcd_news *n = vow__etcd_news(g->trip.etcd);
    (void)vow_call_stop(&g->due);
    vow__list_remove(&n->ghosts, &g->link);
    vow__mem_free(&n->alloc, g, sizeof(*g));
}
