/* SPDX-License-Identifier: MIT */
/* etcd_renew.c - the leases of places: of those that hold, and that queue.
 *
 * HOW   A renewal is cut into parts, one for each pool, in the lane of that.
 *       All of them use one lease of etcd, so they cost one keepalive; each
 *       part reads its pool, and writes only what is to hang on another lease
 *       than before, what limits that fell have missed, what has started under a
 *       rate, or what is over.
 * INVARIANTS
 *   R1  the end of a lease is put off before the pool is read: what is read is
 *       not ended behind it
 * LIMITS  WRITES places are written at once, the others behind them.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_pools.h"

#include <stdlib.h>
#include <string.h>

enum { WRITES = 50, TRIES = 16 };

/* One block with all that follows. */
struct renewal {
    vow_permits_fn done;
    void *user;
    struct vow__etcd *etcd;
    uint64_t lease_ms;
    size_t size; /* of the block */
    size_t n;
    size_t left; /* parts without an answer */
    int code;    /* of one that was answered badly */
    vow_pool_permit *out;
    struct item *items; /* sorted by their pools */
    struct part *parts;
};
struct item {
    struct vow__hall_name name;
    vow_token token;
    bool started;
    size_t at; /* in `out` */
};
/* The places of one pool. */
struct part {
    struct vow__step_lane step;
    struct renewal *renewal;
    struct item *items;
    size_t n;
    size_t next; /* that is to be judged */
    struct vow__hall *hall;
    struct vow__crowd crowd;
    uint64_t doubts;
    int64_t lease;
    unsigned tries;
    bool wrote;
    size_t reaped; /* operations before what is read */
};

static struct renewal *renewal_new(struct vow__etcd *e,
                                   const vow_permit_hold *holds, size_t n);
static int by_pool(const void *a, const void *b);
static size_t cut(struct renewal *w);
static void begin_part(struct vow__step_lane *step);
static void refuse_part(struct vow__step_lane *step, int code);
static void hang(struct part *p);
static void on_lease(struct vow__etcd *e, int code, int64_t lease, void *part);
static void look(struct part *p);
static void on_looked(struct vow__etcd *e, int code, const json_t *root,
                      void *part);
static bool reap(struct part *p);
static void judge(struct part *p);
static int judge_one(struct part *p, const struct item *it, struct vow__txn *t,
                     size_t *writes);
static void rewrite(struct part *p, struct vow__seat *seat, struct vow__txn *t);
static void on_written(struct vow__etcd *e, int code, const json_t *root,
                       void *part);
static void settle(struct part *p);
static void part_end(struct part *p, int code);
static void join(struct renewal *w, int code);

void vow__etcd_renew(vow_store *store, const vow_permit_hold *holds, size_t n,
                     uint64_t lease_ms, vow_permits_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(store);
    int rc = lease_ms == 0 ? VOW_EINVAL : vow__etcd_usable(e);
    struct renewal *w = rc < 0 || n == 0 ? NULL : renewal_new(e, holds, n);
    if (w == NULL) {
        done(rc < 0 || n == 0 ? rc : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    w->done = done;
    w->user = user;
    w->lease_ms = lease_ms;
    size_t parts = cut(w);
    w->left = parts + 1; /* until all have begun */
    for (size_t i = 0; i < parts; i++)
        vow__step_begin(e, &w->parts[i].step);
    join(w, 0);
}

static struct renewal *renewal_new(struct vow__etcd *e,
                                   const vow_permit_hold *holds, size_t n)
{
    size_t one =
        sizeof(vow_pool_permit) + sizeof(struct item) + sizeof(struct part);
    if (n > (SIZE_MAX - sizeof(struct renewal)) / one)
        return NULL;
    size_t size = sizeof(struct renewal) + n * one;
    struct renewal *w = vow__mem_zero(vow__etcd_alloc(e), size);
    if (w == NULL)
        return NULL;
    w->etcd = e;
    w->size = size;
    w->n = n;
    w->parts = (struct part *)(void *)(w + 1);
    w->out = (vow_pool_permit *)(void *)(w->parts + n);
    w->items = (struct item *)(void *)(w->out + n);
    for (size_t i = 0; i < n; i++)
        w->items[i] = (struct item){.name = {holds[i].limits_of, holds[i].pool},
                                    .token = holds[i].token,
                                    .started = holds[i].started,
                                    .at = i};
    qsort(w->items, n, sizeof(w->items[0]), by_pool);
    return w;
}

static int by_pool(const void *a, const void *b)
{
    const struct item *x = a;
    const struct item *y = b;
    int order = memcmp(&x->name, &y->name, sizeof(x->name));
    if (order == 0)
        order = x->at < y->at ? -1 : 1;
    return order;
}

/* Into parts; how many there are. */
static size_t cut(struct renewal *w)
{
    size_t parts = 0;
    struct part *p = NULL;
    for (size_t i = 0; i < w->n; i++) {
        struct item *it = &w->items[i];
        if (p == NULL ||
            memcmp(&it->name, &p->items->name, sizeof(it->name)) != 0) {
            p = &w->parts[parts++];
            p->renewal = w;
            p->items = it;
            p->step = (struct vow__step_lane){.lane = it->name.pool,
                                              .begin = begin_part,
                                              .refuse = refuse_part};
            vow__crowd_init(&p->crowd, vow__etcd_alloc(w->etcd));
        }
        p->n++;
    }
    return parts;
}

static void join(struct renewal *w, int code)
{
    struct vow__etcd *e = w->etcd;
    if (w->code == 0)
        w->code = code;
    if (--w->left > 0)
        return;
    bool good = w->code == 0;
    w->done(w->code, good ? w->out : NULL, good ? w->n : 0, w->user);
    vow__mem_free(vow__etcd_alloc(e), w, w->size);
}

/* ---- a part -------------------------------------------------------------- */

static struct part *part_of(struct vow__step_lane *step)
{
    return VOW__OUTER(step, struct part, step);
}

static void refuse_part(struct vow__step_lane *step, int code)
{
    join(part_of(step)->renewal, code);
}

static void begin_part(struct vow__step_lane *step)
{
    struct part *p = part_of(step);
    p->hall = vow__hall_enter(step->etcd, &p->items->name);
    if (p->hall == NULL)
        part_end(p, VOW_ENOMEM);
    else
        hang(p);
}

static void hang(struct part *p)
{
    struct vow__etcd *e = p->step.etcd;
    uint64_t lease_ms = p->renewal->lease_ms;
    if (lease_ms == 0)
        lease_ms = VOW__OVER_MS;
    p->lease = vow__lease_ready(e, lease_ms);
    if (p->lease != 0)
        look(p);
    else
        vow__lease_use(e, lease_ms, p->step.due_ns, on_lease, p);
}

static void on_lease(struct vow__etcd *e, int code, int64_t lease, void *part)
{
    struct part *p = part;
    (void)e;
    p->lease = lease;
    if (code < 0)
        part_end(p, p->wrote ? vow__unsure(code) : code);
    else
        look(p);
}

static void look(struct part *p)
{
    struct vow__etcd *e = p->step.etcd;
    struct vow__txn t;
    for (size_t i = 0; i < p->n && p->renewal->lease_ms > 0; i++) {
        struct vow__guest *g = vow__guest_find(p->hall, &p->items[i].token);
        if (g != NULL)
            vow__guest_lease(g, p->renewal->lease_ms); /* keeps R1 */
    }
    p->doubts = vow__etcd_places(e)->doubts;
    vow__hall_txn(&p->step, &t);
    p->reaped = 0;
    vow__hall_ask(&t, VOW__THEN, &p->items->name);
    vow__etcd_txn(e, &t, on_looked, p);
    vow__txn_fini(&t);
}

static void on_looked(struct vow__etcd *e, int code, const json_t *root,
                      void *part)
{
    struct part *p = part;
    if (code == 0)
        code = vow__hall_read(e, root, p->reaped, &p->items->name, &p->crowd);
    if (code == VOW_EIO)
        code = VOW_ESTORE;
    if (p->wrote)
        code = vow__unsure(code);
    if (code < 0) {
        part_end(p, code);
        return;
    }
    p->next = 0;
    vow__crowd_recall(&p->crowd, &p->hall->crowd);
    if (!reap(p))
        judge(p);
}

/* First those go whose lease is over, also those that are to be renewed. */
static bool reap(struct part *p)
{
    struct vow__txn t;
    vow__hall_txn(&p->step, &t);
    p->reaped = vow__hall_reap(&t, &p->items->name, &p->crowd, NULL);
    vow__hall_ask(&t, VOW__THEN, &p->items->name);
    if (p->reaped > 0)
        vow__etcd_txn(p->step.etcd, &t, on_looked, p);
    vow__txn_fini(&t);
    return p->reaped > 0;
}

/* ---- judging ------------------------------------------------------------- */

/* As many as are written at once. */
static void judge(struct part *p)
{
    struct vow__etcd *e = p->step.etcd;
    struct vow__txn t;
    size_t writes = 0;
    int code = 0;
    vow__hall_txn(&p->step, &t);
    if (p->next == 0)
        vow__crowd_rank(&p->crowd, vow__places_now(e).loop_us);
    while (p->next < p->n && writes < WRITES && code == 0)
        code = judge_one(p, &p->items[p->next++], &t, &writes);
    if (p->next == p->n && code == 0)
        writes += vow__tolls_start(&t, p->hall, &p->crowd, WRITES - writes);
    if (code < 0) {
        part_end(p, p->wrote ? vow__unsure(code) : code);
    } else if (writes > 0) {
        struct vow__key bell = vow__over_key(&p->items->name);
        if (p->renewal->lease_ms == 0)
            vow__txn_put(&t, VOW__THEN, &bell, NULL, p->lease);
        vow__hall_ask(&t, VOW__ELSE, &p->items->name);
        p->wrote = true;
        vow__etcd_txn(e, &t, on_written, p);
    } else {
        settle(p);
    }
    vow__txn_fini(&t);
}

/* What is written is believed; if it fails all is read again. */
static int judge_one(struct part *p, const struct item *it, struct vow__txn *t,
                     size_t *writes)
{
    const struct renewal *w = p->renewal;
    struct vow__seat *seat = vow__crowd_find(&p->crowd, &it->token);
    vow_pool_permit *out = &p->renewal->out[it->at];
    *out = (vow_pool_permit){.status = VOW_STATUS_NONE};
    if (seat == NULL)
        return 0;
    struct vow__guest *g = vow__guest_find(p->hall, &it->token);
    bool held =
        g != NULL && g->state == VOW__GUEST_HELD && g->create == seat->create;
    bool own = held || seat->rank == VOW__RANK_HELD;
    bool never = !own && seat->rank == VOW__RANK_OUT;
    if (!never)
        *out = vow__place_of(&p->crowd, seat, own,
                             vow__places_now(w->etcd).loop_us);
    if (never) {
        struct vow__key key = vow__seat_key(&it->name, &it->token);
        vow__txn_delete(t, VOW__THEN, &key, 0);
        ++*writes;
        return 0;
    }
    if (g == NULL && (g = vow__guest_enter(p->hall, &it->token)) == NULL)
        return VOW_ENOMEM;
    g->started |= it->started;
    if (g->over_ns == 0)
        vow__guest_lease(g, w->lease_ms == 0 ? VOW__OVER_MS : w->lease_ms);
    bool mark = held && seat->rank != VOW__RANK_HELD;
    if (!mark && seat->lease == p->lease && seat->lease_ms == w->lease_ms)
        return 0;
    seat->marked |= mark;
    rewrite(p, seat, t);
    ++*writes;
    return 0;
}

static void rewrite(struct part *p, struct vow__seat *seat, struct vow__txn *t)
{
    struct vow__key key = vow__seat_key(&p->items->name, &seat->token);
    struct vow__jot value;
    seat->lease = p->lease;
    seat->lease_ms = p->renewal->lease_ms;
    vow__jot_init(&value, vow__etcd_alloc(p->step.etcd));
    vow__seat_rewrite(&value, &p->crowd, seat);
    vow__txn_if_mod(t, &key, seat->mod);
    vow__txn_put(t, VOW__THEN, &key, &value, seat->lease);
    vow__jot_fini(&value);
}

static void on_written(struct vow__etcd *e, int code, const json_t *root,
                       void *part)
{
    struct part *p = part;
    if (code == 0 && vow__json_succeeded(root)) {
        judge(p);
        return;
    }
    if (code == VOW_ENOENT)
        vow__lease_lost(e, p->lease);
    bool unsure = code == VOW_EUNSURE && !vow__step_late(&p->step);
    bool again =
        (code == 0 || code == VOW_ENOENT || unsure) && ++p->tries < TRIES;
    if (!again)
        part_end(p, vow__unsure(code == 0 ? VOW_EAGAIN : code));
    else if (code == VOW_ENOENT || unsure)
        hang(p);
    else {
        p->reaped = 0;
        on_looked(e, 0, root, p);
    }
}

/* ---- ending -------------------------------------------------------------- */

static void settle(struct part *p)
{
    const struct renewal *w = p->renewal;
    for (size_t i = 0; i < p->n; i++) {
        struct vow__guest *g = vow__guest_find(p->hall, &p->items[i].token);
        const struct vow__seat *seat =
            vow__crowd_find(&p->crowd, &p->items[i].token);
        uint32_t status = w->out[p->items[i].at].status;
        bool stays = status != VOW_STATUS_NONE && w->lease_ms > 0;
        if (g != NULL && stays && seat != NULL) {
            if (g->state == VOW__GUEST_QUEUED && status == VOW_STATUS_OWNED &&
                !g->told)
                vow__guest_tell(g); /* as if another step had granted it */
            vow__guest_seated(g, &p->crowd, seat, status == VOW_STATUS_OWNED);
            continue;
        }
        if (status == VOW_STATUS_NONE)
            vow__crowd_remove(&p->crowd, &p->items[i].token);
        vow__guest_dismiss(g);
    }
    part_end(p, 0);
}

static void part_end(struct part *p, int code)
{
    vow__step_end(&p->step);
    if (p->hall != NULL && code == 0)
        vow__hall_seen(p->hall, &p->crowd, p->doubts);
    if (p->hall != NULL)
        vow__hall_leave(p->hall);
    vow__crowd_fini(&p->crowd);
    join(p->renewal, code);
}
