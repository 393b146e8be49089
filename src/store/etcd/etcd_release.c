/* SPDX-License-Identifier: MIT */
/* etcd_release.c - a place is given back.
 *
 * HOW   One transaction that deletes the seat. What was held is known here; for
 *       one that queues, or was never answered, or whose start under a rate was
 *       never told, the pool is read with it. That start is told behind it.
 *       Nobody is granted anything: who waits sees that the seat is gone.
 *       Without an answer it is looked, and deleted, once more.
 * INVARIANTS
 *   R1  a step without an answer leaves the guest, whose lease ends it
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_pools.h"

enum { TRIES = 16 };

struct release {
    struct vow__step_lane step;
    vow_permits_fn done;
    void *user;
    vow_token token;
    struct vow__hall_name name;
    struct vow__hall *hall; /* NULL: it is not known here */
    bool known;             /* it is held: no need to look */
    bool unsure;            /* it may be given back already */
    unsigned tries;
    vow_pool_permit out;
};

static void begin_release(struct vow__step_lane *step);
static void refuse_release(struct vow__step_lane *step, int code);
static void give_back(struct release *r, const struct vow__guest *g);
static void on_given(struct vow__etcd *e, int code, const json_t *root,
                     void *release);
static void look(struct release *r);
static void on_looked(struct vow__etcd *e, int code, const json_t *root,
                      void *release);
static bool again(struct release *r, int code);
static void judge(struct release *r, struct vow__crowd *c);
static void on_reaped(struct vow__etcd *e, int code, const json_t *root,
                      void *release);
static void finish(struct release *r, int code);
static bool each_limits(const struct vow__kv *kv, void *user);

void vow__etcd_release(vow_store *store, const vow_permit_hold *hold,
                       vow_permits_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(store);
    int rc = vow__etcd_usable(e);
    struct release *r =
        rc < 0 ? NULL : vow__mem_zero(vow__etcd_alloc(e), sizeof(*r));
    if (r == NULL) {
        done(rc < 0 ? rc : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    r->done = done;
    r->user = user;
    r->token = hold->token;
    r->name = (struct vow__hall_name){hold->limits_of, hold->pool};
    r->step = (struct vow__step_lane){
        .lane = hold->pool, .begin = begin_release, .refuse = refuse_release};
    vow__step_begin(e, &r->step);
}

static struct release *release_of(struct vow__step_lane *step)
{
    return VOW__OUTER(step, struct release, step);
}

static void refuse_release(struct vow__step_lane *step, int code)
{
    struct release *r = release_of(step);
    r->done(code, NULL, 0, r->user);
    vow__mem_free(vow__etcd_alloc(step->etcd), r, sizeof(*r));
}

static void begin_release(struct vow__step_lane *step)
{
    struct release *r = release_of(step);
    struct vow__guest *g = NULL;
    r->hall = vow__hall_find(vow__etcd_places(step->etcd), &r->name);
    if (r->hall != NULL) {
        vow__hall_use(r->hall);
        g = vow__guest_find(r->hall, &r->token);
    }
    r->known = g != NULL && g->state == VOW__GUEST_HELD;
    if (r->known && (g->toll_id == 0 || g->started)) {
        give_back(r, g);
        return;
    }
    if (g != NULL)
        g->started = true;
    look(r);
}

/* It is held: nothing needs to be found out, unless the bell rings. */
static void give_back(struct release *r, const struct vow__guest *g)
{
    struct vow__etcd *e = r->step.etcd;
    struct vow__key key = vow__seat_key(&r->name, &r->token);
    struct vow__key bell = vow__over_key(&r->name);
    struct vow__key limits = vow__limits_key(&r->name.law);
    struct vow__txn t;
    vow__hall_txn(&r->step, &t);
    vow__txn_if_created(&t, &key, g->create);
    vow__txn_if_absent(&t, &bell);
    vow__txn_range(&t, VOW__THEN, &limits, 0);
    vow__txn_delete(&t, VOW__THEN, &key, 0);
    vow__etcd_txn(e, &t, on_given, r);
    vow__txn_fini(&t);
}

static void on_given(struct vow__etcd *e, int code, const json_t *root,
                     void *release)
{
    struct release *r = release;
    const struct vow__guest *g = vow__guest_find(r->hall, &r->token);
    if (again(r, code))
        return;
    if (code < 0 || !vow__json_succeeded(root)) {
        if (code < 0)
            finish(r, code);
        else
            look(r);
        return;
    }
    r->out = (vow_pool_permit){.status = VOW_STATUS_OWNED,
                               .fence = g == NULL ? 0 : g->fence};
    (void)vow__json_each(e, vow__json_response(root, 0), each_limits,
                         &r->out.limits);
    finish(r, 0);
}

/* As it was before it went; and those who are over go as well. */
static void look(struct release *r)
{
    struct vow__etcd *e = r->step.etcd;
    struct vow__key key = vow__seat_key(&r->name, &r->token);
    struct vow__txn t;
    vow__hall_txn(&r->step, &t);
    vow__hall_ask(&t, VOW__THEN, &r->name);
    vow__txn_delete(&t, VOW__THEN, &key, 0);
    vow__etcd_txn(e, &t, on_looked, r);
    vow__txn_fini(&t);
}

static void on_looked(struct vow__etcd *e, int code, const json_t *root,
                      void *release)
{
    struct release *r = release;
    struct vow__crowd c;
    struct vow__txn t;
    if (again(r, code))
        return;
    vow__crowd_init(&c, vow__etcd_alloc(e));
    vow__hall_txn(&r->step, &t);
    if (code == 0)
        code = vow__unsure(vow__hall_read(e, root, 0, &r->name, &c));
    if (code == 0)
        judge(r, &c);
    size_t writes = code < 0 ? 0 : vow__hall_reap(&t, &r->name, &c, &r->token);
    if (code == 0 && r->hall != NULL)
        writes += vow__tolls_start(&t, r->hall, &c, VOW__REAP_MAX);
    if (writes > 0)
        vow__etcd_txn(e, &t, on_reaped, r);
    else
        finish(r, code);
    vow__txn_fini(&t);
    vow__crowd_fini(&c);
}

static bool again(struct release *r, int code)
{
    if (code != VOW_EUNSURE || vow__step_late(&r->step) || ++r->tries == TRIES)
        return false;
    r->unsure = true;
    look(r);
    return true;
}

static void judge(struct release *r, struct vow__crowd *c)
{
    const struct vow__guest *g =
        r->hall == NULL ? NULL : vow__guest_find(r->hall, &r->token);
    vow__crowd_rank(c, vow__places_now(r->step.etcd).loop_us);
    const struct vow__seat *seat = vow__crowd_find(c, &r->token);
    r->out.limits = c->limits;
    if (seat == NULL && r->unsure && r->known && g != NULL) {
        r->out.status = VOW_STATUS_OWNED;
        r->out.fence = g->fence;
    }
    if (seat == NULL || seat->lease_ms == 0)
        return;
    bool held = (r->known && g != NULL && g->create == seat->create) ||
                seat->rank == VOW__RANK_HELD;
    r->out.status = held ? VOW_STATUS_OWNED : VOW_STATUS_WAITING;
    r->out.fence = held ? seat->create + c->offset : 0;
}

/* Whatever came of it: it is given back. */
static void on_reaped(struct vow__etcd *e, int code, const json_t *root,
                      void *release)
{
    (void)e;
    (void)root;
    finish(release, code == VOW_ECLOSED ? code : 0);
}

static void finish(struct release *r, int code)
{
    struct vow__etcd *e = r->step.etcd;
    vow__step_end(&r->step);
    if (code == 0 && r->hall != NULL)
        vow__guest_dismiss(vow__guest_find(r->hall, &r->token));
    if (r->hall != NULL)
        vow__hall_leave(r->hall);
    r->done(code, code == 0 ? &r->out : NULL, code == 0, r->user);
    vow__mem_free(vow__etcd_alloc(e), r, sizeof(*r));
}

static bool each_limits(const struct vow__kv *kv, void *user)
{
    (void)vow__limits_read(kv, user, NULL);
    return true;
}
