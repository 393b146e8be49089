/* SPDX-License-Identifier: MIT */
/* etcd_trip.c - read, judge, write: how a step on a name is done.
 *
 * WHY   Etcd compares and writes, but does not think: what a step does is
 *       decided here, by what was read, and takes effect only if that is still
 *       so.
 * HOW   A transaction that fails has read the name in its other branch, so the
 *       next try is one round trip more. Most steps need no reading before the
 *       first: they suppose.
 *       A write without an answer may have taken effect, then or later. The
 *       name is read, by another member if need be, and judged anew: a token
 *       that is there tells. When the time of the step is over that is for the
 *       caller to repeat.
 *       Leases that are gone are asked for anew, and it is judged again.
 * INVARIANTS
 *   T1  while a trip runs its name is pinned, and its lane is its own
 *   T2  VOW_EUNSURE if anything was written that may take effect; any other
 *       error has changed nothing
 * LIMITS  TRIES transactions, then VOW_EAGAIN.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

enum {
    TRIES = 16,
    HOUR_MS = 3600 * 1000,
    DAY_MS = 24 * HOUR_MS /* a record stays so long when its owner is lost */
};

static void send(struct vow__trip *t, struct vow__txn *txn, vow__etcd_fn done);
static void on_read(struct vow__etcd *e, int code, const json_t *root,
                    void *trip);
static void on_written(struct vow__etcd *e, int code, const json_t *root,
                       void *trip);
static int take(struct vow__trip *t, const json_t *root, size_t first);
static void again(struct vow__trip *t);
static void lost_leases(struct vow__trip *t);
static uint64_t now_ns(const struct vow__trip *t);
static uint64_t keep_ms(const struct vow__trip *t);
static bool fresh(const struct vow__trip *t, const struct vow__hook *hook,
                  uint64_t ms, uint64_t span_ms);
static void on_alive(struct vow__etcd *e, int code, int64_t lease, void *trip);
static void on_keep(struct vow__etcd *e, int code, int64_t lease, void *trip);
static void on_wait(struct vow__etcd *e, int code, int64_t lease, void *trip);
static void on_once(struct vow__etcd *e, int code, int64_t lease, void *trip);
static void hung(struct vow__trip *t, int code);
static void on_value(struct vow__etcd *e, int code, const json_t *root,
                     void *trip);
static bool on_value_key(const struct vow__kv *kv, void *trip);
static void on_ticket(struct vow__etcd *e, int code, vow_bytes *bytes,
                      void *trip);

/* ---- beginning and ending ------------------------------------------------ */

bool vow__trip_begin(struct vow__trip *t)
{
    t->near = vow__near_pin(vow__etcd_news(t->etcd), &t->name); /* keeps T1 */
    if (t->near != NULL)
        return true;
    vow__trip_end(t, VOW_ENOMEM);
    return false;
}

void vow__trip_end(struct vow__trip *t, int code)
{
    if (code < 0 && code != VOW_ECLOSED && t->unsure) /* keeps T2 */
        code = VOW_EUNSURE;
    if (t->near != NULL && code == VOW_EUNSURE)
        t->near->sure = false; /* it may be otherwise by now */
    if (t->near != NULL)
        vow__near_unpin(t->near);
    t->near = NULL;
    vow__step_end(t->lane);
    t->ops->answer(t, code);
}

void vow__trip_fini(struct vow__trip *t)
{
    vow__er_fini(&t->er);
    vow__er_fini(&t->next);
}

/* ---- reading and writing ------------------------------------------------- */

void vow__trip_txn(struct vow__trip *t, struct vow__txn *ret_txn)
{
    vow__txn_init(ret_txn, vow__etcd_alloc(t->etcd),
                  vow__etcd_where_of(t->etcd)->prefix);
}

void vow__trip_read(struct vow__trip *t)
{
    struct vow__txn txn;
    vow__trip_txn(t, &txn);
    vow__er_ask(&txn, VOW__THEN, &t->name);
    if (t->ops->ask != NULL)
        t->ops->ask(t, &txn, VOW__THEN);
    t->first = 0;
    send(t, &txn, on_read);
}

void vow__trip_write(struct vow__trip *t, struct vow__txn *txn)
{
    vow__er_ask(txn, VOW__ELSE, &t->name);
    if (t->ops->ask != NULL)
        t->ops->ask(t, txn, VOW__ELSE);
    send(t, txn, on_written);
}

static void send(struct vow__trip *t, struct vow__txn *txn, vow__etcd_fn done)
{
    int code = vow__etcd_closing(t->etcd) ? VOW_ECLOSED : 0;
    if (code == 0 && vow__step_late(t->lane)) {
        vow__etcd_late(t->etcd);
        code = VOW_ESTORE;
    }
    if (code == 0 && t->tries++ >= TRIES) {
        vow__etcd_trouble(t->etcd, "others change this name all the time");
        code = VOW_EAGAIN;
    }
    if (code == 0) {
        t->sent_ns = now_ns(t);
        txn->due_ns = t->lane->due_ns;
        vow__etcd_txn(t->etcd, txn, done, t);
    }
    vow__txn_fini(txn);
    if (code < 0)
        vow__trip_end(t, code);
}

static void on_read(struct vow__etcd *e, int code, const json_t *root,
                    void *trip)
{
    struct vow__trip *t = trip;
    (void)e;
    if (code == 0)
        code = take(t, root, 0);
    if (code == 0)
        t->ops->judge(t);
    else
        vow__trip_end(t, code == VOW_EUNSURE ? VOW_ESTORE : code);
}

static void on_written(struct vow__etcd *e, int code, const json_t *root,
                       void *trip)
{
    struct vow__trip *t = trip;
    (void)e;
    if (code == VOW_ENOENT) {
        lost_leases(t);
        vow__trip_hang(t, again);
        return;
    }
    if (code == VOW_EUNSURE) {
        t->unsure = true;
        vow__trip_read(t);
        return;
    }
    if (code == 0 && vow__json_succeeded(root)) {
        t->ops->wrote(t, root);
        return;
    }
    if (code == 0)
        code = take(t, root, t->first);
    if (code == 0)
        t->ops->judge(t);
    else
        vow__trip_end(t, code);
}

/* What the answer says of the name. If it makes no sense, that is as good as
 * none. */
static int take(struct vow__trip *t, const json_t *root, size_t first)
{
    struct vow__etcd_news *n = vow__etcd_news(t->etcd);
    struct vow__er er;
    int rc = vow__er_read(t->etcd, root, first, &t->name, &er);
    if (rc < 0)
        return rc == VOW_EIO ? VOW_ESTORE : rc;
    vow__er_fini(&t->er);
    t->er = er;
    if (er.revision > n->revision)
        n->revision = er.revision;
    n->offset = er.offset;
    n->offset_mod = er.offset_mod;
    if (t->ops->found != NULL)
        rc = t->ops->found(t, root, first + VOW__ER_RANGES);
    return rc == VOW_EIO ? VOW_ESTORE : rc;
}

static void again(struct vow__trip *t)
{
    vow__trip_read(t);
}

static uint64_t now_ns(const struct vow__trip *t)
{
    return vow_loop_now_ns(vow__etcd_loop(t->etcd));
}

/* ---- leases -------------------------------------------------------------- */

/* Which of them is not said. */
static void lost_leases(struct vow__trip *t)
{
    struct vow__etcd_news *n = vow__etcd_news(t->etcd);
    vow__lease_lost(t->etcd, t->alive);
    vow__lease_lost(t->etcd, t->keep);
    vow__lease_lost(t->etcd, t->wait);
    vow__lease_lost(t->etcd, t->once);
    n->keep.lease = 0;
    n->wait.lease = 0;
}

/* Records share a lease by hours, which is asked for once an hour; seats share
 * one that is asked for twice a recheck. */
void vow__trip_hang(struct vow__trip *t, void (*then)(struct vow__trip *t))
{
    const struct vow__etcd_news *n = vow__etcd_news(t->etcd);
    const struct vow__hang *h = &t->hang;
    uint64_t recheck_ms = vow__etcd_where_of(t->etcd)->recheck_ms;
    uint64_t due_ns = t->lane->due_ns;
    t->hung = then;
    t->hang_code = 0;
    t->hanging = 1; /* until all are asked for */
    t->alive = h->alive_ms == 0 ? 0 : vow__lease_ready(t->etcd, h->alive_ms);
    t->keep = 0;
    t->wait = 0;
    t->once = 0;
    if (h->keep && fresh(t, &n->keep, keep_ms(t), HOUR_MS))
        t->keep = n->keep.lease;
    if (h->wait && fresh(t, &n->wait, 2 * recheck_ms, recheck_ms / 2))
        t->wait = n->wait.lease;
    bool alive = h->alive_ms != 0 && t->alive == 0;
    bool keep = h->keep && t->keep == 0;
    bool wait = h->wait && t->wait == 0;
    t->hanging += (size_t)alive + keep + wait + (h->once_ms != 0);
    if (alive)
        vow__lease_use(t->etcd, h->alive_ms, due_ns, on_alive, t);
    if (keep)
        vow__lease_use(t->etcd, keep_ms(t), due_ns, on_keep, t);
    if (wait)
        vow__lease_use(t->etcd, 2 * recheck_ms, due_ns, on_wait, t);
    if (h->once_ms != 0)
        vow__lease_once(t->etcd, h->once_ms, due_ns, on_once, t);
    hung(t, 0);
}

static uint64_t keep_ms(const struct vow__trip *t)
{
    return DAY_MS + (t->hang.keep_ms / HOUR_MS + 1) * HOUR_MS;
}

static bool fresh(const struct vow__trip *t, const struct vow__hook *hook,
                  uint64_t ms, uint64_t span_ms)
{
    return hook->lease != 0 && hook->ms == ms &&
           now_ns(t) - hook->used_ns < span_ms * 1000000;
}

static void on_alive(struct vow__etcd *e, int code, int64_t lease, void *trip)
{
    struct vow__trip *t = trip;
    (void)e;
    t->alive = lease;
    hung(t, code);
}

static void on_keep(struct vow__etcd *e, int code, int64_t lease, void *trip)
{
    struct vow__trip *t = trip;
    t->keep = lease;
    if (code == 0)
        vow__etcd_news(e)->keep =
            (struct vow__hook){keep_ms(t), lease, t->begun_ns};
    hung(t, code);
}

static void on_wait(struct vow__etcd *e, int code, int64_t lease, void *trip)
{
    struct vow__trip *t = trip;
    t->wait = lease;
    if (code == 0)
        vow__etcd_news(e)->wait = (struct vow__hook){
            2 * vow__etcd_where_of(e)->recheck_ms, lease, t->begun_ns};
    hung(t, code);
}

static void on_once(struct vow__etcd *e, int code, int64_t lease, void *trip)
{
    struct vow__trip *t = trip;
    (void)e;
    t->once = lease;
    hung(t, code);
}

static void hung(struct vow__trip *t, int code)
{
    if (t->hang_code == 0)
        t->hang_code = code;
    if (--t->hanging > 0)
        return;
    if (t->hang_code == 0)
        t->hung(t);
    else
        vow__trip_end(t, t->hang_code);
}

/* ---- values that are not in the record ----------------------------------- */

void vow__trip_value(struct vow__trip *t, struct vow__er *er,
                     void (*then)(struct vow__trip *t))
{
    struct vow__key key = vow__key_value(&t->name, er->epoch);
    struct vow__txn txn;
    t->valued = er;
    t->got = then;
    if (er->elsewhere && !vow__etcd_closing(t->etcd)) {
        vow__results_get(t->etcd, &t->name, er->epoch, er->value, on_ticket, t);
    } else if (er->apart || er->elsewhere) {
        vow__trip_txn(t, &txn);
        vow__txn_range(&txn, VOW__THEN, &key, 0);
        send(t, &txn, on_value);
    } else {
        then(t);
    }
}

/* If it is gone, so is the record. */
static void on_value(struct vow__etcd *e, int code, const json_t *root,
                     void *trip)
{
    struct vow__trip *t = trip;
    if (code == 0 &&
        !vow__json_each(e, vow__json_response(root, 0), on_value_key, t))
        code = VOW_ESTORE;
    if (code != 0)
        vow__trip_end(t, code == VOW_EUNSURE ? VOW_ESTORE : code);
    else if (t->valued->apart)
        vow__trip_read(t);
    else
        t->got(t);
}

static bool on_value_key(const struct vow__kv *kv, void *trip)
{
    struct vow__trip *t = trip;
    struct vow__er er = {.name = t->name};
    if (vow__er_read_key(t->etcd, kv, 'r', &er) == 0) {
        vow_bytes_unref(t->valued->value);
        t->valued->value = er.value;
        t->valued->apart = false;
        er.value = NULL;
    }
    vow__er_fini(&er);
    return true;
}

static void on_ticket(struct vow__etcd *e, int code, vow_bytes *bytes,
                      void *trip)
{
    struct vow__trip *t = trip;
    (void)e;
    if (code != 0) {
        vow__trip_end(t, code);
        return;
    }
    vow__step_renew(t->lane);
    vow_bytes *was = t->valued->value;
    t->valued->value = bytes == NULL ? NULL : vow_bytes_ref(bytes);
    t->valued->elsewhere = false;
    vow_bytes_unref(was);
    t->got(t);
}
