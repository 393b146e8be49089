/* SPDX-License-Identifier: MIT */
/* etcd_pulse.c - staying the owner of names.
 *
 * WHY   A process that owns a thousand names must not ask a thousand times
 *       whether it still does.
 * HOW   All names of a process hang on one lease of etcd: as long as that is
 *       kept alive nobody can take them over. So a pulse is a keepalive, and a
 *       name that is known to be ours (etcd_near.c) is answered by that alone.
 *       It is believed only when the watch has had an eighth of the lease to
 *       say otherwise.
 *       All others are read, judged and written, AT_ONCE at a time. A record
 *       that vanished is made again with the epoch of its owner.
 *       Each name is pulsed in its lane, so that it is behind the steps that
 *       were begun before.
 * INVARIANTS
 *   P1  `left` counts names without an answer, and one until all have begun
 * LIMITS  Of a pulse that failed for some names nothing is told of the others.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

#include <string.h>

enum { AT_ONCE = 8, TRUST = 8 /* an eighth */ };

struct beat {
    struct vow__step_lane lane;
    struct pulse *pulse;
    vow_link link; /* of those that wait to be asked for */
    vow_hold hold;
    vow_record *record;
};

struct pulse {
    struct vow__etcd *etcd;
    struct vow_alloc alloc;
    size_t size; /* of this block */
    vow_records_fn done;
    void *user;
    uint64_t lease_ms;
    uint64_t begun_ns;
    int64_t lease;
    bool leased;
    vow_link *waiting;
    size_t running;
    size_t n;
    size_t left;
    bool some; /* a name was answered well */
    int code;  /* of one that was not */
    vow_record *records;
    struct beat *beats;
};

/* A name that has to be asked for. */
struct ask {
    struct vow__trip trip;
    struct beat *beat;
    enum vow__act act;
};

static struct pulse *pulse_new(struct vow__etcd *e, const vow_hold *holds,
                               size_t n);
static void on_lease(struct vow__etcd *e, int code, int64_t lease, void *pulse);
static void begin(struct vow__step_lane *lane);
static void refuse(struct vow__step_lane *lane, int code);
static void go_on(struct pulse *p);
static bool answer_at_once(struct beat *b);
static void ask_for(struct beat *b);
static void read_it(struct vow__trip *t);
static void judge(struct vow__trip *t);
static void write_again(struct ask *a);
static void write_renewal(struct ask *a);
static void wrote(struct vow__trip *t, const json_t *root);
static void finish(struct ask *a, uint32_t status);
static void answer(struct vow__trip *t, int code);
static void join(struct pulse *p, int code);

static const struct vow__trip_ops operations = {
    .judge = judge, .wrote = wrote, .answer = answer};

static struct ask *ask_of(struct vow__trip *t)
{
    return VOW__OUTER(t, struct ask, trip);
}

void vow__etcd_pulse(vow_store *s, const vow_hold *holds, size_t n,
                     uint64_t lease_ms, vow_records_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(s);
    struct pulse *p = NULL;
    int rc = vow__etcd_usable(e);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (holds[i].epoch > VOW__EPOCH_MAX)
            rc = VOW_EINVAL;
    if (rc == 0 && n > 0 && (p = pulse_new(e, holds, n)) == NULL)
        rc = VOW_ENOMEM;
    if (p == NULL) {
        done(rc, NULL, 0, user);
        return;
    }
    p->done = done;
    p->user = user;
    p->lease_ms = lease_ms < VOW__LEASE_MS_MAX ? lease_ms : VOW__LEASE_MS_MAX;
    p->begun_ns = vow_loop_now_ns(vow__etcd_loop(e));
    p->left += 2; /* until all are in their lanes, and the lease is there */
    vow__lease_use(e, p->lease_ms, 0, on_lease, p);
    for (size_t i = 0; i < n; i++)
        vow__step_begin(e, &p->beats[i].lane);
    join(p, 0);
}

static struct pulse *pulse_new(struct vow__etcd *e, const vow_hold *holds,
                               size_t n)
{
    const size_t one = sizeof(vow_record) + sizeof(struct beat);
    if (n > (SIZE_MAX - sizeof(struct pulse)) / one)
        return NULL;
    size_t size = sizeof(struct pulse) + n * one;
    struct pulse *p = vow__mem_zero(vow__etcd_alloc(e), size);
    if (p == NULL)
        return NULL;
    p->etcd = e;
    p->alloc = *vow__etcd_alloc(e);
    p->size = size;
    p->n = n;
    p->left = n;
    p->beats = (struct beat *)(void *)(p + 1);
    p->records = (vow_record *)(void *)(p->beats + n);
    for (size_t i = 0; i < n; i++) {
        p->records[i] =
            (vow_record){.name = holds[i].name, .label = "", .runner = ""};
        p->beats[i] = (struct beat){
            .pulse = p,
            .hold = holds[i],
            .record = &p->records[i],
            .lane = {.lane = holds[i].name, .begin = begin, .refuse = refuse}};
    }
    return p;
}

static void on_lease(struct vow__etcd *e, int code, int64_t lease, void *pulse)
{
    struct pulse *p = pulse;
    (void)e;
    p->leased = true;
    p->lease = lease;
    if (code < 0)
        p->code = code;
    go_on(p);
    join(p, 0);
}

static void begin(struct vow__step_lane *lane)
{
    struct beat *b = VOW__OUTER(lane, struct beat, lane);
    struct pulse *p = b->pulse;
    vow__list_push(&p->waiting, &b->link);
    p->left++; /* it may end meanwhile */
    go_on(p);
    join(p, 0);
}

static void refuse(struct vow__step_lane *lane, int code)
{
    join(VOW__OUTER(lane, struct beat, lane)->pulse, code);
}

/* Those who can. The caller keeps it from ending. */
static void go_on(struct pulse *p)
{
    while (p->leased && p->waiting != NULL && p->running < AT_ONCE) {
        struct beat *b =
            VOW__OUTER(vow__list_take(&p->waiting), struct beat, link);
        if (p->code < 0) {
            vow__step_end(&b->lane);
            join(p, p->code);
        } else if (answer_at_once(b)) {
            vow__step_end(&b->lane);
            p->some = true;
            join(p, 0);
        } else {
            p->running++;
            ask_for(b);
        }
    }
}

/* ---- names that are known to be ours ------------------------------------- */

static bool answer_at_once(struct beat *b)
{
    struct pulse *p = b->pulse;
    struct vow__etcd_news *n = vow__etcd_news(p->etcd);
    struct vow__near *near = vow__near_find(n, &b->hold.name);
    uint64_t now_ns = vow_loop_now_ns(vow__etcd_loop(p->etcd));
    if (near == NULL || near->own == NULL || !near->sure || near->pins > 0)
        return false;
    const struct vow__er *own = near->own;
    int64_t keep = own->mode == VOW_ONCE ? 0 : n->keep.lease;
    uint64_t hour_ns = UINT64_C(3600) * 1000000000;
    if (!vow__er_of(own, &b->hold.token) || own->alive == 0 ||
        own->lease_ms != p->lease_ms || own->alive_lease != p->lease ||
        own->lease != keep || now_ns - n->keep.used_ns >= hour_ns ||
        now_ns >= near->due_ns ||
        now_ns - near->confirmed_ns < p->lease_ms / TRUST * 1000000)
        return false;
    near->touched_ns = now_ns;
    vow__near_renew(near, p->begun_ns);
    b->record->status = own->canceled ? VOW_STATUS_CANCELED : VOW_STATUS_OWNED;
    b->record->epoch = own->epoch;
    b->record->mode = own->mode;
    b->record->takeovers = own->takeovers;
    b->record->left_ms = p->lease_ms;
    return true;
}

/* ---- all others ---------------------------------------------------------- */

static void ask_for(struct beat *b)
{
    struct pulse *p = b->pulse;
    struct ask *a = vow__mem_zero(&p->alloc, sizeof(*a));
    if (a == NULL) {
        p->running--;
        vow__step_end(&b->lane);
        join(p, VOW_ENOMEM);
        return;
    }
    a->beat = b;
    if (p->some) /* etcd answers: there are only many */
        vow__step_renew(&b->lane);
    a->trip = (struct vow__trip){.ops = &operations,
                                 .etcd = p->etcd,
                                 .lane = &b->lane,
                                 .name = b->hold.name,
                                 .begun_ns = p->begun_ns,
                                 .hang = {.alive_ms = p->lease_ms,
                                          .keep = true,
                                          .keep_ms = p->lease_ms}};
    if (vow__trip_begin(&a->trip))
        vow__trip_hang(&a->trip, read_it);
}

static void read_it(struct vow__trip *t)
{
    vow__trip_read(t);
}

static void judge(struct vow__trip *t)
{
    struct ask *a = ask_of(t);
    a->act = vow__judge_pulse(&t->er, &a->beat->hold.token);
    switch (a->act) {
    case VOW__ACT_OWN:
        if (a->beat->hold.mode == VOW_SHARED)
            write_again(a);
        else
            finish(a, VOW_STATUS_LOST);
        break;
    case VOW__ACT_RENEW:
        write_renewal(a);
        break;
    case VOW__ACT_SETTLED:
        finish(a, VOW_STATUS_SETTLED);
        break;
    default:
        finish(a, VOW_STATUS_LOST);
        break;
    }
}

/* The record has vanished: its owner is still there. */
static void write_again(struct ask *a)
{
    struct vow__trip *t = &a->trip;
    const struct vow__er *was = t->near->own;
    struct vow__txn txn;
    vow__er_fini(&t->next);
    if (was != NULL && vow__er_of(was, &a->beat->hold.token))
        t->next = *was;
    else
        vow__er_text(t->next.runner, vow__etcd_news(t->etcd)->runner);
    t->next.name = t->name;
    t->next.state = VOW__ER_RUNS;
    t->next.token = a->beat->hold.token;
    t->next.epoch = a->beat->hold.epoch;
    t->next.lease_ms = a->beat->pulse->lease_ms;
    t->next.since_us = vow__etcd_wall_us();
    t->next.canceled = false;
    t->next.takeovers = 0;
    t->next.chunks = 0;
    t->next.chunk_bytes = 0;
    vow__trip_txn(t, &txn);
    vow__own_write(t, &txn, a->beat->hold.epoch, false);
    vow__trip_write(t, &txn);
}

static void write_renewal(struct ask *a)
{
    struct vow__trip *t = &a->trip;
    struct vow__txn txn;
    vow__trip_txn(t, &txn);
    vow__renew_write(t, &txn, a->beat->pulse->lease_ms, false);
    vow__trip_write(t, &txn);
}

static void wrote(struct vow__trip *t, const json_t *root)
{
    struct ask *a = ask_of(t);
    if (a->act == VOW__ACT_RENEW) {
        vow__renew_wrote(t, root);
    } else if (!vow__own_wrote(t, root, a->beat->hold.epoch)) {
        write_again(a);
        return;
    }
    vow__near_own(t->near, &t->er, t->begun_ns);
    finish(a, t->er.canceled ? VOW_STATUS_CANCELED : VOW_STATUS_OWNED);
}

static void finish(struct ask *a, uint32_t status)
{
    struct vow__trip *t = &a->trip;
    struct pulse *p = a->beat->pulse;
    vow_record *r = a->beat->record;
    bool ours = status == VOW_STATUS_OWNED || status == VOW_STATUS_CANCELED;
    r->status = status;
    r->epoch = t->er.epoch;
    r->mode = t->er.mode;
    r->takeovers = t->er.takeovers;
    r->left_ms = ours ? p->lease_ms : 0;
    if (!ours && t->near->own != NULL &&
        vow__er_of(t->near->own, &a->beat->hold.token))
        vow__near_disown(t->near);
    vow__trip_end(t, 0);
}

static void answer(struct vow__trip *t, int code)
{
    struct ask *a = ask_of(t);
    struct pulse *p = a->beat->pulse;
    uint32_t status = a->beat->record->status;
    bool late = t->unsure && status != VOW_STATUS_OWNED &&
                status != VOW_STATUS_CANCELED;
    if (code == VOW_EUNSURE || (code == 0 && late))
        vow__ghost_pulse(p->etcd, &a->beat->hold, p->lease_ms);
    vow__trip_fini(t);
    vow__mem_free(&p->alloc, a, sizeof(*a));
    p->some |= code == 0;
    p->running--;
    go_on(p);
    join(p, code);
}

/* One less to wait for. What happened in part is unsure. */
static void join(struct pulse *p, int code)
{
    if (p->code == 0 || code == VOW_ECLOSED)
        p->code = code;
    else if (code != 0 && code != p->code && p->code != VOW_ECLOSED)
        p->code = VOW_EUNSURE;
    if (--p->left > 0) /* keeps P1 */
        return;
    code = p->code;
    if (code != 0 && code != VOW_ECLOSED && p->some)
        code = VOW_EUNSURE;
    const struct vow_alloc alloc = p->alloc;
    p->done(code, code == 0 ? p->records : NULL, code == 0 ? p->n : 0, p->user);
    vow__mem_free(&alloc, p, p->size);
}
