/* SPDX-License-Identifier: MIT */
/* etcd_limit.c - the limits of a pool: read, or set for all who use it.
 *
 * WHY   Without a rate a place is held because it fits, and nothing says so.
 *       Under limits that fall it fits no more, and yet it stays held.
 * HOW   Setting reads all pools of these limits at one revision. If limits
 *       fall, or a rate comes, who is held is marked in the transaction that
 *       sets them, or in some before it. Whose weight the old or the new limits
 *       never allow, and whose turn it was, goes in the same way.
 *       Both happen if a seat is still what was read. Who came to its place
 *       between the reading and the change has no mark: it says so itself when
 *       it renews. Until then it counts for those behind it as ever.
 * INVARIANTS
 *   T1  marks are made only under the limits by which they were judged
 * LIMITS  A pool of one key has no limits of its own: its keys are with the one
 *       whose limits count, and who sets limits does not know which that is.
 *       Limits stay for ever.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_pools.h"

#include <string.h>

enum { PLANS = 50, TRIES = 16 };

/* What becomes of a seat. */
enum { STAYS, IS_MARKED, GOES };

struct limit {
    struct vow__step_lane step;
    vow_pools_fn done;
    void *user;
    struct vow__hall_name name; /* law and pool are the same */
    bool sets;
    bool wrote;
    vow_pool_limits limits; /* to be */
    char label[VOW_LABEL_MAX + 1];
    struct vow__census census;
    size_t row, seat; /* how far plans are carried out */
    size_t inner;     /* of them in the transaction under way */
    bool last;        /* it sets them */
    unsigned tries;
};

static void begin(struct vow__step_lane *step);
static void refuse(struct vow__step_lane *step, int code);
static void read_one(struct limit *l);
static void on_one(struct vow__etcd *e, int code, const json_t *root,
                   void *limit);
static int tell(struct limit *l, struct vow__crowd *c);
static void read_all(struct limit *l);
static void on_all(struct vow__etcd *e, int code, const json_t *root,
                   void *limit);
static struct vow__crowd *own_crowd(struct limit *l);
static bool limits_fall(const struct limit *l, const struct vow__crowd *c);
static void plan(const struct limit *l, struct vow__crowd *c);
static void change(struct limit *l);
static void add_plans(struct limit *l, struct vow__txn *t);
static void add_plan(struct limit *l, struct vow__txn *t,
                     const struct vow__census_row *row,
                     const struct vow__seat *seat);
static void add_limits(struct limit *l, struct vow__txn *t);
static void on_changed(struct vow__etcd *e, int code, const json_t *root,
                       void *limit);
static bool again(struct limit *l, int code);
static void on_set(struct vow__etcd *e, struct limit *l, const json_t *root);
static void finish(struct limit *l, int code);

void vow__etcd_limit(vow_store *store, const vow_name *pool,
                     const vow_pool_limits *limits, const char *label,
                     vow_pools_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(store);
    int rc = vow__etcd_usable(e);
    struct limit *l =
        rc < 0 ? NULL : vow__mem_zero(vow__etcd_alloc(e), sizeof(*l));
    if (l == NULL) {
        done(rc < 0 ? rc : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    l->done = done;
    l->user = user;
    l->name = (struct vow__hall_name){*pool, *pool};
    l->sets = limits != NULL;
    if (l->sets)
        l->limits = *limits;
    size_t n = label == NULL ? 0 : strnlen(label, VOW_LABEL_MAX);
    if (n > 0)
        memcpy(l->label, label, n);
    l->step = (struct vow__step_lane){
        .lane = *pool, .begin = begin, .refuse = refuse};
    vow__census_init(&l->census, e);
    vow__step_begin(e, &l->step);
}

static struct limit *limit_of(struct vow__step_lane *step)
{
    return VOW__OUTER(step, struct limit, step);
}

static void begin(struct vow__step_lane *step)
{
    struct limit *l = limit_of(step);
    if (l->sets)
        read_all(l);
    else
        read_one(l);
}

static void refuse(struct vow__step_lane *step, int code)
{
    struct limit *l = limit_of(step);
    l->done(code, NULL, 0, l->user);
    vow__mem_free(vow__etcd_alloc(step->etcd), l, sizeof(*l));
}

static void finish(struct limit *l, int code)
{
    struct vow__etcd *e = l->step.etcd;
    vow__step_end(&l->step);
    if (l->done != NULL)
        l->done(code, NULL, 0, l->user);
    vow__census_fini(&l->census);
    vow__mem_free(vow__etcd_alloc(e), l, sizeof(*l));
}

/* ---- reading ------------------------------------------------------------- */

static void read_one(struct limit *l)
{
    struct vow__txn t;
    vow__hall_txn(&l->step, &t);
    vow__hall_ask(&t, VOW__THEN, &l->name);
    vow__etcd_txn(l->step.etcd, &t, on_one, l);
    vow__txn_fini(&t);
}

/* Those who are over go first. */
static void on_one(struct vow__etcd *e, int code, const json_t *root,
                   void *limit)
{
    struct limit *l = limit;
    struct vow__crowd c;
    struct vow__txn t;
    if (again(l, code)) {
        l->inner = 0;
        read_one(l);
        return;
    }
    vow__crowd_init(&c, vow__etcd_alloc(e));
    vow__hall_txn(&l->step, &t);
    if (code == 0)
        code = vow__hall_read(e, root, l->inner, &l->name, &c);
    if (code == VOW_EIO)
        code = VOW_ESTORE;
    l->inner = code < 0 ? 0 : vow__hall_reap(&t, &l->name, &c, NULL);
    if (l->inner > 0) {
        vow__hall_ask(&t, VOW__THEN, &l->name);
        vow__etcd_txn(e, &t, on_one, l);
    } else {
        finish(l, code < 0 ? code : tell(l, &c));
    }
    vow__txn_fini(&t);
    vow__crowd_fini(&c);
}

/* Of the pool itself. The lane is still ours: what is asked for meanwhile comes
 * behind. */
static int tell(struct limit *l, struct vow__crowd *c)
{
    uint64_t now_us = vow__places_now(l->step.etcd).loop_us;
    vow_pools_fn done = l->done;
    vow_pool_info info = {
        .pool = l->name.pool, .label = c->label, .limits = c->limits};
    if (!c->there)
        return VOW_ENOENT;
    vow__crowd_rank(c, now_us);
    vow__crowd_count(c, now_us, &info);
    l->done = NULL;
    done(0, &info, 1, l->user);
    return 0;
}

/* ---- setting ------------------------------------------------------------- */

static void read_all(struct limit *l)
{
    struct vow__etcd *e = l->step.etcd;
    struct vow__key tree = vow__key("s", &l->name.law, "/");
    struct vow__txn t;
    vow__hall_txn(&l->step, &t);
    vow__txn_range(&t, VOW__THEN, &tree, VOW__TREE);
    vow__etcd_txn(e, &t, on_all, l);
    vow__txn_fini(&t);
}

static void on_all(struct vow__etcd *e, int code, const json_t *root,
                   void *limit)
{
    struct limit *l = limit;
    struct vow__census *c = &l->census;
    vow__census_fini(c);
    vow__census_init(c, e);
    if (code == 0 &&
        !vow__json_each(e, vow__json_response(root, 0), vow__census_add, c)) {
        vow__etcd_trouble(e, "etcd gave an answer that is none");
        code = VOW_ESTORE;
    }
    if (code == 0)
        code = c->code;
    if (code < 0) {
        finish(l, l->wrote ? vow__unsure(code) : code);
        return;
    }
    vow__census_end(c);
    for (size_t i = 0; i < c->n; i++)
        plan(l, &c->rows[i].crowd);
    l->row = l->seat = 0;
    change(l);
}

/* NULL: there are no limits yet. */
static struct vow__crowd *own_crowd(struct limit *l)
{
    for (size_t i = 0; i < l->census.n; i++)
        if (!l->census.rows[i].crowd.keyed)
            return &l->census.rows[i].crowd;
    return NULL;
}

/* May somebody who is held now not fit then? */
static bool limits_fall(const struct limit *l, const struct vow__crowd *c)
{
    uint32_t old = c->limits.concurrent;
    uint32_t to = l->limits.concurrent;
    return l->limits.rate > 0 || (to > 0 && (old == 0 || to < old));
}

/* What becomes of each. */
static void plan(const struct limit *l, struct vow__crowd *c)
{
    bool fall = limits_fall(l, c);
    for (size_t i = 0; i < c->n; i++)
        if (c->seats[i].lease_ms == 0) { /* it is over */
            c->seats[i].weight = 0;
            c->seats[i].marked = false;
        }
    vow__crowd_rank(c, l->census.now.loop_us);
    for (size_t i = 0; i < c->n; i++) {
        struct vow__seat *s = &c->seats[i];
        if (s->rank == VOW__RANK_OUT || s->lease_ms == 0) {
            s->plan = GOES;
            s->weight = 0; /* for those behind it */
        } else if (fall && !s->marked && s->rank == VOW__RANK_HELD) {
            s->plan = IS_MARKED;
            s->marked = true;
        }
    }
    c->limits = l->limits;
    vow__crowd_rank(c, l->census.now.loop_us);
    for (size_t i = 0; i < c->n; i++)
        if (c->seats[i].rank == VOW__RANK_OUT)
            c->seats[i].plan = GOES;
}

static void change(struct limit *l)
{
    struct vow__etcd *e = l->step.etcd;
    struct vow__key key = vow__limits_key(&l->name.law);
    const struct vow__crowd *own = own_crowd(l);
    struct vow__txn t;
    vow__hall_txn(&l->step, &t);
    vow__txn_if_mod(&t, &key, own == NULL ? 0 : own->limits_mod);
    add_plans(l, &t);
    l->last = l->row == l->census.n;
    if (l->last)
        add_limits(l, &t);
    l->wrote = true;
    vow__etcd_txn(e, &t, on_changed, l);
    vow__txn_fini(&t);
}

/* As many as one transaction takes. */
static void add_plans(struct limit *l, struct vow__txn *t)
{
    l->inner = 0;
    for (; l->row < l->census.n; l->row++, l->seat = 0) {
        const struct vow__census_row *row = &l->census.rows[l->row];
        for (; l->seat < row->crowd.n; l->seat++) {
            if (row->crowd.seats[l->seat].plan == STAYS)
                continue;
            if (l->inner == PLANS)
                return;
            add_plan(l, t, row, &row->crowd.seats[l->seat]);
            l->inner++;
        }
    }
}

/* If it is still what was read, and only then: its lease is alive too. */
static void add_plan(struct limit *l, struct vow__txn *t,
                     const struct vow__census_row *row,
                     const struct vow__seat *seat)
{
    struct vow__key key = vow__seat_key(&row->name, &seat->token);
    struct vow__jot value;
    struct vow__txn inner;
    if (seat->plan == GOES) {
        vow__seat_drop(t, &row->name, seat);
        return;
    }
    vow__hall_txn(&l->step, &inner);
    vow__jot_init(&value, vow__etcd_alloc(l->step.etcd));
    vow__seat_rewrite(&value, &row->crowd, seat);
    vow__txn_if_mod(&inner, &key, seat->mod);
    vow__txn_put(&inner, VOW__THEN, &key, &value, seat->lease);
    vow__txn_nest(t, VOW__THEN, &inner);
    vow__jot_fini(&value);
    vow__txn_fini(&inner);
}

static void add_limits(struct limit *l, struct vow__txn *t)
{
    struct vow__key key = vow__limits_key(&l->name.law);
    const struct vow__crowd *own = own_crowd(l);
    const char *label = l->label;
    struct vow__jot value;
    if (label[0] == 0 && own != NULL)
        label = own->label;
    vow__jot_init(&value, vow__etcd_alloc(l->step.etcd));
    vow__limits_write(&value, &l->limits, label);
    vow__txn_put(t, VOW__THEN, &key, &value, 0);
    vow__hall_ask(t, VOW__THEN, &l->name);
    vow__jot_fini(&value);
}

static void on_changed(struct vow__etcd *e, int code, const json_t *root,
                       void *limit)
{
    struct limit *l = limit;
    bool good = code == 0 && vow__json_succeeded(root);
    if (good && l->last)
        on_set(e, l, root);
    else if (good)
        change(l); /* keeps T1: they are still those */
    else if (again(l, code))
        read_all(l);
    else if (code < 0 && code != VOW_ENOENT)
        finish(l, l->last ? code : vow__unsure(code));
    else if (++l->tries < TRIES)
        read_all(l);
    else
        finish(l, VOW_EAGAIN);
}

/* Without an answer, and with time: all is read once more. */
static bool again(struct limit *l, int code)
{
    return code == VOW_EUNSURE && !vow__step_late(&l->step) &&
           ++l->tries < TRIES;
}

static void on_set(struct vow__etcd *e, struct limit *l, const json_t *root)
{
    struct vow__crowd c;
    vow__crowd_init(&c, vow__etcd_alloc(e));
    int rc = vow__hall_read(e, root, l->inner + 1, &l->name, &c);
    if (rc == 0)
        rc = tell(l, &c);
    vow__crowd_fini(&c);
    finish(l, vow__unsure(rc));
}
