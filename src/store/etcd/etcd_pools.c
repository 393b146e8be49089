/* SPDX-License-Identifier: MIT */
/* etcd_pools.c - a place is asked for.
 *
 * WHY   Limits that hosts share are kept by etcd's order of revisions alone:
 *       see etcd_grant.c for who holds what.
 * HOW   Asking writes a seat and reads the whole pool in one transaction, which
 *       is all if there is no rate: the answer says whether the place is held,
 *       and nobody can take that away. With a rate a second one marks it.
 *       What must not stay is deleted before it is answered: a weight that is
 *       never allowed, a try that found no room. Whose lease was 0 is thrown
 *       out before anything is judged.
 *       A transaction without an answer is followed by another, while there is
 *       time: it finds what the first has done.
 *       A repeat finds its seat and reads only. It is written again if it is to
 *       hang on another lease, or if it was held and limits that fell meanwhile
 *       have missed it: its order stays that of its creation.
 *       Under a rate above TOLLS, grants of this instance that follow each
 *       other closely share a toll, which counts from the newest on: it leaves
 *       the window late by at most one TOLLS-th of it, never early. Tolls that
 *       count no more are deleted by the way. A toll whose grants have not all
 *       started counts as of now: renewals and releases tell of starts, and who
 *       dies before that leaves a toll that counts until its own lease ends.
 * INVARIANTS
 *   P1  who was told OWN is told so again until its seat is gone
 *   P2  a step that may have written something and failed is VOW_EUNSURE
 * LIMITS  Every ask reads all of its pool. A try that finds no room counts for
 *         those who ask in that moment.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_pools.h"

#include "base/assert.h"

#include <string.h>

enum {
    TRIES = 16,    /* of a transaction that others make fail */
    LOOKS = 3,     /* of one who asks when a lease was to end */
    TOLLS = 100,   /* in a window, of one instance */
    SWEEP = 32,    /* tolls to a grant */
    LATE_MS = 2000 /* how long tolls stay behind their window */
};
/* A window that is longer ends with its tolls: ten years. */
static const uint64_t WINDOW_MS_MAX = (uint64_t)10 * 366 * 24 * 3600 * 1000;

struct ask {
    struct vow__step_lane step;
    vow_permits_fn done;
    void *user;
    vow_permit_request what;
    struct vow__hall_name name;
    struct vow__hall *hall;
    struct vow__guest *guest;
    struct vow__crowd crowd;
    uint64_t doubts; /* when the crowd was asked for */
    unsigned tries;
    unsigned looks;
    bool fresh;   /* it was no guest before */
    bool anew;    /* its seat was made by this step */
    bool wrote;   /* the seat is there, or may be */
    bool changed; /* its seat was changed by this step */
    bool grants;  /* it is about to be marked, with a toll */
    bool over;    /* it is over behind this step */
    uint64_t hang_ms;
    size_t reaped; /* operations before what is read */
    int code;      /* what is answered when it is deleted */
    int64_t lease;
    int64_t toll_lease;
    struct vow__seat seat; /* as it is to be written */
    struct vow__toll toll; /* and the toll */
    vow_pool_permit place;
    char label[VOW_LABEL_MAX + 1];
    char limits_label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
};

static void begin_ask(struct vow__step_lane *step);
static void refuse_ask(struct vow__step_lane *step, int code);
static void hang(struct ask *a);
static void on_lease(struct vow__etcd *e, int code, int64_t lease, void *ask);
static void sit(struct ask *a);
static void on_sat(struct vow__etcd *e, int code, const json_t *root,
                   void *ask);
static void looked(struct ask *a, int code);
static bool reap(struct ask *a);
static void on_reaped(struct vow__etcd *e, int code, const json_t *root,
                      void *ask);
static bool again(struct ask *a, int code);
static void judge(struct ask *a);
static bool is_due(const struct ask *a, uint64_t now_us);
static bool make_change(struct ask *a, const struct vow__seat *seat, bool held);
static void change(struct ask *a);
static void on_toll_lease(struct vow__etcd *e, int code, int64_t lease,
                          void *ask);
static void write_toll(struct ask *a, struct vow__txn *t);
static void sweep_tolls(struct ask *a, struct vow__txn *t);
static void on_changed(struct vow__etcd *e, int code, const json_t *root,
                       void *ask);
static void believe(struct ask *a, uint64_t revision);
static void settle(struct ask *a, bool own);
static void drop(struct ask *a, int code);
static void on_dropped(struct vow__etcd *e, int code, const json_t *root,
                       void *ask);
static void finish(struct ask *a, int code);

/* ---- what steps share ---------------------------------------------------- */

vow_pool_permit vow__place_of(const struct vow__crowd *c,
                              const struct vow__seat *seat, bool held,
                              uint64_t now_us)
{
    vow_pool_permit out = {.status = VOW_STATUS_OWNED,
                           .fence = seat->create + c->offset,
                           .limits = c->limits};
    if (held)
        return out;
    out.status = VOW_STATUS_WAITING;
    out.fence = 0;
    out.ahead = seat->ahead;
    out.again_us = vow__crowd_again_us(c, seat, now_us);
    return out;
}

int vow__unsure(int code)
{
    return code == 0 || code == VOW_ECLOSED ? code : VOW_EUNSURE;
}

static void copy_text(char to[VOW_LABEL_MAX + 1], const char *from)
{
    size_t n = from == NULL ? 0 : strnlen(from, VOW_LABEL_MAX);
    if (n > 0)
        memcpy(to, from, n);
    to[n] = 0;
}

/* ---- asking -------------------------------------------------------------- */

void vow__etcd_acquire(vow_store *store, const vow_permit_request *ask,
                       vow_permits_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(store);
    int rc = vow__etcd_usable(e);
    if (rc == 0 && (ask->weight == 0 || ask->lease_ms == 0))
        rc = VOW_EINVAL;
    struct ask *a =
        rc < 0 ? NULL : vow__mem_zero(vow__etcd_alloc(e), sizeof(*a));
    if (a == NULL) {
        done(rc < 0 ? rc : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    a->done = done;
    a->user = user;
    a->what = *ask;
    copy_text(a->label, ask->label);
    copy_text(a->limits_label, ask->limits_label);
    copy_text(a->runner, ask->runner);
    a->name = (struct vow__hall_name){ask->limits_of, ask->pool};
    bool own = vow_name_equal(&ask->limits_of, &ask->pool);
    a->what.label = a->label;
    a->what.limits_label = own ? a->label : a->limits_label;
    a->what.runner = a->runner;
    a->over = ask->lease_ms == 0;
    a->hang_ms = a->over ? VOW__OVER_MS : ask->lease_ms;
    a->step = (struct vow__step_lane){
        .lane = ask->pool, .begin = begin_ask, .refuse = refuse_ask};
    vow__crowd_init(&a->crowd, vow__etcd_alloc(e));
    vow__step_begin(e, &a->step);
}

static struct ask *ask_of(struct vow__step_lane *step)
{
    return VOW__OUTER(step, struct ask, step);
}

static void refuse_ask(struct vow__step_lane *step, int code)
{
    struct ask *a = ask_of(step);
    a->done(code, NULL, 0, a->user);
    vow__mem_free(vow__etcd_alloc(step->etcd), a, sizeof(*a));
}

static void begin_ask(struct vow__step_lane *step)
{
    struct ask *a = ask_of(step);
    const vow_token *token = &a->what.token;
    a->hall = vow__hall_enter(step->etcd, &a->name);
    if (a->hall != NULL) {
        a->fresh = vow__guest_find(a->hall, token) == NULL;
        a->guest = vow__guest_enter(a->hall, token);
    }
    if (a->guest == NULL)
        finish(a, VOW_ENOMEM);
    else
        hang(a);
}

static void hang(struct ask *a)
{
    struct vow__etcd *e = a->step.etcd;
    a->lease = vow__lease_ready(e, a->hang_ms);
    if (a->lease != 0)
        sit(a);
    else
        vow__lease_use(e, a->hang_ms, a->step.due_ns, on_lease, a);
}

static void on_lease(struct vow__etcd *e, int code, int64_t lease, void *ask)
{
    struct ask *a = ask;
    (void)e;
    a->lease = lease;
    if (code < 0)
        finish(a, a->wrote ? vow__unsure(code) : code);
    else
        sit(a);
}

/* Limits that are not there yet are those of who asks. */
static void write_limits(struct ask *a, struct vow__txn *t, enum vow__branch b)
{
    struct vow__key key = vow__limits_key(&a->name.law);
    struct vow__jot value;
    struct vow__txn inner;
    vow__hall_txn(&a->step, &inner);
    vow__jot_init(&value, vow__etcd_alloc(a->step.etcd));
    vow__limits_write(&value, &a->what.limits, a->what.limits_label);
    vow__txn_if_absent(&inner, &key);
    vow__txn_put(&inner, VOW__THEN, &key, &value, 0);
    vow__txn_nest(t, b, &inner);
    vow__jot_fini(&value);
    vow__txn_fini(&inner);
}

static void ring(struct ask *a, struct vow__txn *t)
{
    struct vow__key bell = vow__over_key(&a->name);
    if (!a->over)
        return;
    vow__txn_put(t, VOW__THEN, &bell, NULL, a->lease);
    vow__etcd_litter(a->step.etcd); /* it outlives us */
}

/* At the end of the queue, if it has no seat; and look. */
static void sit(struct ask *a)
{
    struct vow__etcd *e = a->step.etcd;
    struct vow__key key = vow__seat_key(&a->name, &a->what.token);
    struct vow__jot value;
    struct vow__txn t;
    vow__hall_txn(&a->step, &t);
    vow__jot_init(&value, vow__etcd_alloc(e));
    vow__seat_write(&value, &a->what);
    vow__txn_if_absent(&t, &key);
    vow__txn_put(&t, VOW__THEN, &key, &value, a->lease);
    write_limits(a, &t, VOW__THEN);
    write_limits(a, &t, VOW__ELSE);
    vow__hall_ask(&t, VOW__THEN, &a->name);
    vow__hall_ask(&t, VOW__ELSE, &a->name);
    ring(a, &t);
    vow__guest_lease(a->guest, a->hang_ms);
    a->doubts = vow__etcd_places(e)->doubts;
    vow__etcd_txn(e, &t, on_sat, a);
    vow__jot_fini(&value);
    vow__txn_fini(&t);
}

static void on_sat(struct vow__etcd *e, int code, const json_t *root, void *ask)
{
    struct ask *a = ask;
    if (code == VOW_EUNSURE) {
        a->wrote = true;
        vow__guest_late(a->guest);
    }
    if (again(a, code))
        return;
    if (code < 0) {
        finish(a, a->wrote ? vow__unsure(code) : code);
        return;
    }
    a->anew = vow__json_succeeded(root);
    a->wrote = true;
    code = vow__hall_read(e, root, a->anew ? 2 : 1, &a->name, &a->crowd);
    looked(a, code);
}

static void looked(struct ask *a, int code)
{
    if (code < 0) {
        finish(a, vow__unsure(code));
        return;
    }
    vow__crowd_recall(&a->crowd, &a->hall->crowd);
    if (!reap(a))
        judge(a);
}

/* First those go whose lease is over, also if it is our own: then it has no
 * seat. */
static bool reap(struct ask *a)
{
    const vow_token *but = a->anew || a->changed ? &a->what.token : NULL;
    struct vow__txn t;
    vow__hall_txn(&a->step, &t);
    a->reaped = vow__hall_reap(&t, &a->name, &a->crowd, but);
    vow__hall_ask(&t, VOW__THEN, &a->name);
    if (a->reaped > 0)
        vow__etcd_txn(a->step.etcd, &t, on_reaped, a);
    vow__txn_fini(&t);
    return a->reaped > 0;
}

static void on_reaped(struct vow__etcd *e, int code, const json_t *root,
                      void *ask)
{
    struct ask *a = ask;
    if (again(a, code))
        return;
    if (code == 0)
        code = vow__hall_read(e, root, a->reaped, &a->name, &a->crowd);
    looked(a, code);
}

/* A lease was lost: once more, with another. Without an answer: what was
 * written is found, by another member. True: it goes on by itself. */
static bool again(struct ask *a, int code)
{
    struct vow__etcd *e = a->step.etcd;
    bool unsure = code == VOW_EUNSURE && !vow__step_late(&a->step);
    if (code != VOW_ENOENT && !unsure)
        return false;
    if (code == VOW_ENOENT) {
        vow__lease_lost(e, a->lease);
        vow__lease_lost(e, a->toll_lease);
    }
    a->toll_lease = 0;
    if (++a->tries < TRIES)
        hang(a);
    else
        finish(a, a->wrote ? VOW_EUNSURE : VOW_EAGAIN);
    return true;
}

/* ---- judging ------------------------------------------------------------- */

static void judge(struct ask *a)
{
    uint64_t now_us = vow__places_now(a->step.etcd).loop_us;
    vow__crowd_rank(&a->crowd, now_us);
    struct vow__seat *seat = vow__crowd_find(&a->crowd, &a->what.token);
    if (seat == NULL) { /* it went meanwhile */
        if (++a->tries < TRIES)
            hang(a);
        else
            finish(a, VOW_EUNSURE);
        return;
    }
    bool held = a->guest->state == VOW__GUEST_HELD &&
                a->guest->create == seat->create; /* P1 */
    bool own = held || seat->rank == VOW__RANK_HELD;
    a->grants = !own && seat->rank == VOW__RANK_TURN;
    a->toll_lease = 0; /* windows may have changed */
    bool unknown = a->anew || a->guest->state == VOW__GUEST_ASKED;
    bool never =
        seat->rank == VOW__RANK_OUT ||
        (unknown && !vow__limits_allow(&a->crowd.limits, seat->weight));
    if (!own && never) {
        drop(a, VOW_EINVAL);
    } else if (!own && !a->grants && unknown &&
               (a->what.flags & VOW_PERMIT_TRY) != 0) {
        a->place = (vow_pool_permit){.status = VOW_STATUS_BUSY,
                                     .limits = a->crowd.limits};
        drop(a, 0);
    } else if (make_change(a, seat, held)) {
        change(a);
    } else if (!own && is_due(a, now_us) && ++a->looks < LOOKS) {
        sit(a);
    } else {
        settle(a, own);
    }
}

/* It was told to ask now because a lease may end: its process may be about to
 * say so. */
static bool is_due(const struct ask *a, uint64_t now_us)
{
    const struct vow__guest *g = a->guest;
    return g->state == VOW__GUEST_QUEUED && a->crowd.limits.rate == 0 &&
           now_us >= g->again_us;
}

/* What its seat must say, and if that is something else than it says. */
static bool make_change(struct ask *a, const struct vow__seat *seat, bool held)
{
    bool moves = seat->lease != a->lease || seat->lease_ms != a->what.lease_ms;
    a->seat = *seat;
    a->seat.marked |= a->grants || (held && seat->rank != VOW__RANK_HELD);
    if (moves) {
        a->seat.lease = a->lease;
        a->seat.lease_ms = a->what.lease_ms;
    }
    return moves || a->seat.marked != seat->marked;
}

static void settle(struct ask *a, bool own)
{
    uint64_t now_us = vow__places_now(a->step.etcd).loop_us;
    const struct vow__seat *seat = vow__crowd_find(&a->crowd, &a->what.token);
    VOW__ASSERT(seat != NULL);
    a->place = vow__place_of(&a->crowd, seat, own, now_us);
    if (a->over)
        vow__guest_dismiss(a->guest);
    else
        vow__guest_seated(a->guest, &a->crowd, seat, own);
    if (!a->over && !own)
        a->guest->again_us = a->place.again_us < UINT64_MAX - now_us
                                 ? now_us + a->place.again_us
                                 : UINT64_MAX;
    finish(a, 0);
}

static void finish(struct ask *a, int code)
{
    struct vow__etcd *e = a->step.etcd;
    bool nothing = code < 0 && code != VOW_EUNSURE && !a->wrote && a->fresh;
    vow__step_end(&a->step);
    if (nothing && (code != VOW_ECLOSED || a->lease == 0))
        vow__guest_dismiss(a->guest);
    if (a->crowd.revision != 0)
        vow__hall_seen(a->hall, &a->crowd, a->doubts);
    if (a->hall != NULL)
        vow__hall_leave(a->hall);
    a->done(code, code == 0 ? &a->place : NULL, code == 0, a->user);
    vow__crowd_fini(&a->crowd);
    vow__mem_free(vow__etcd_alloc(e), a, sizeof(*a));
}

/* ---- it must not stay ---------------------------------------------------- */

static void drop(struct ask *a, int code)
{
    struct vow__key key = vow__seat_key(&a->name, &a->what.token);
    struct vow__txn t;
    a->code = code;
    vow__hall_txn(&a->step, &t);
    vow__txn_delete(&t, VOW__THEN, &key, 0);
    vow__etcd_txn(a->step.etcd, &t, on_dropped, a);
    vow__txn_fini(&t);
}

static void on_dropped(struct vow__etcd *e, int code, const json_t *root,
                       void *ask)
{
    struct ask *a = ask;
    (void)e;
    (void)root;
    if (code == VOW_EUNSURE && !vow__step_late(&a->step) &&
        ++a->tries < TRIES) {
        drop(a, a->code);
        return;
    }
    if (code < 0) {
        finish(a, vow__unsure(code));
        return;
    }
    vow__crowd_remove(&a->crowd, &a->what.token);
    vow__guest_dismiss(a->guest);
    a->guest = NULL;
    finish(a, a->code);
}

/* ---- its seat changes ---------------------------------------------------- */

/* Whether it may be marked is judged by limits that must still be those. */
static void change(struct ask *a)
{
    struct vow__etcd *e = a->step.etcd;
    struct vow__key key = vow__seat_key(&a->name, &a->what.token);
    struct vow__jot value;
    struct vow__txn t;
    if (a->grants && a->toll_lease == 0) {
        uint64_t ms = a->crowd.limits.window_us / 1000;
        ms = (ms < WINDOW_MS_MAX ? ms : WINDOW_MS_MAX) + LATE_MS;
        ms += a->over ? 0 : a->hang_ms; /* a start that is never told */
        vow__lease_once(e, ms, a->step.due_ns, on_toll_lease, a);
        return;
    }
    vow__hall_txn(&a->step, &t);
    vow__jot_init(&value, vow__etcd_alloc(e));
    vow__seat_rewrite(&value, &a->crowd, &a->seat);
    vow__txn_if_mod(&t, &key, a->seat.mod);
    vow__txn_put(&t, VOW__THEN, &key, &value, a->seat.lease);
    if (a->grants) {
        write_toll(a, &t);
        sweep_tolls(a, &t);
    }
    ring(a, &t);
    vow__hall_ask(&t, VOW__ELSE, &a->name);
    vow__etcd_txn(e, &t, on_changed, a);
    vow__jot_fini(&value);
    vow__txn_fini(&t);
}

static void on_toll_lease(struct vow__etcd *e, int code, int64_t lease,
                          void *ask)
{
    struct ask *a = ask;
    (void)e;
    a->toll_lease = lease;
    if (code < 0)
        finish(a, vow__unsure(code));
    else
        change(a);
}

/* One of its own, or more weight on the last that we wrote. */
static void write_toll(struct ask *a, struct vow__txn *t)
{
    struct vow__hall *h = a->hall;
    struct vow__crowd *c = &a->crowd;
    struct vow__instant now = vow__places_now(a->step.etcd);
    struct vow__key limits = vow__limits_key(&a->name.law);
    struct vow__jot value;
    uint64_t width = c->limits.rate > TOLLS ? c->limits.window_us / TOLLS : 0;
    a->toll = (struct vow__toll){.id = a->seat.create,
                                 .weight = a->seat.weight,
                                 .since_us = now.loop_us};
    for (size_t i = 0; i < c->n_tolls; i++)
        if (c->tolls[i].id == h->toll_id &&
            now.loop_us - h->toll_began_us < width) {
            a->toll = c->tolls[i];
            a->toll.weight += a->seat.weight;
            a->toll.since_us = now.loop_us;
        }
    struct vow__key key = vow__toll_key(&a->name, a->toll.id);
    a->toll.lease = a->toll_lease;
    a->toll.open = vow__toll_open(h, a->toll.id) + (a->over ? 0 : 1);
    a->guest->toll_id = a->toll.id; /* also if nobody answers */
    a->guest->started = false;
    vow__jot_init(&value, vow__etcd_alloc(a->step.etcd));
    vow__toll_write(&value, c, &a->toll, &now);
    vow__txn_if_mod(t, &limits, c->limits_mod);
    vow__txn_if_mod(t, &key, a->toll.mod);
    vow__txn_put(t, VOW__THEN, &key, &value, a->toll_lease);
    vow__jot_fini(&value);
}

static void sweep_tolls(struct ask *a, struct vow__txn *t)
{
    const struct vow__crowd *c = &a->crowd;
    uint64_t now_us = vow__places_now(a->step.etcd).loop_us;
    size_t swept = 0;
    for (size_t i = 0; i < c->n_tolls && swept < SWEEP; i++) {
        if (vow__toll_counts(c, &c->tolls[i], now_us) ||
            c->tolls[i].id == a->toll.id)
            continue;
        struct vow__key key = vow__toll_key(&a->name, c->tolls[i].id);
        vow__txn_delete(t, VOW__THEN, &key, 0);
        swept++;
    }
}

static void on_changed(struct vow__etcd *e, int code, const json_t *root,
                       void *ask)
{
    struct ask *a = ask;
    if (again(a, code))
        return;
    if (code == 0 && vow__json_succeeded(root)) {
        believe(a, vow__json_revision(root));
        return;
    }
    if (code == 0)
        code = vow__hall_read(e, root, 0, &a->name, &a->crowd);
    if (code == 0 && ++a->tries == TRIES)
        code = VOW_EAGAIN;
    looked(a, code);
}

/* What was read, with what was written: as the watch would tell. */
static void believe(struct ask *a, uint64_t revision)
{
    struct vow__seat *seat = vow__crowd_find(&a->crowd, &a->what.token);
    VOW__ASSERT(seat != NULL);
    bool own = a->seat.marked || seat->rank == VOW__RANK_HELD;
    *seat = a->seat;
    seat->mod = revision;
    a->changed = true;
    if (a->grants) {
        struct vow__hall *h = a->hall;
        if (h->toll_id != a->toll.id)
            h->toll_began_us = a->toll.since_us;
        h->toll_id = a->toll.id;
        a->toll.mod = revision;
        (void)vow__crowd_charge(&a->crowd, &a->toll); /* or when it is read */
    }
    settle(a, own);
}
