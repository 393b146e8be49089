/* SPDX-License-Identifier: MIT */
/* etcd_own.c - becoming the owner of a name, and staying it.
 *
 * WHY   A claim and the pulse of an owner whose record has vanished both make
 *       a record; both renew one that is theirs.
 * HOW   The epoch is the revision of the transaction that writes the record,
 *       plus what the key `e` says, which is compared in it. Where that would
 *       not be above the floor, the same transaction raises `e`: after etcd was
 *       restored from a backup its revisions begin again lower. An owner whose
 *       record has vanished keeps its epoch, which the record then says.
 *       While it runs, a record hangs on a lease of a day and more, which the
 *       process keeps alive; in mode once it hangs on nothing. Being alive is a
 *       key of its own.
 * INVARIANTS
 *   O1  `e` is only ever raised
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

static void put_record(struct vow__trip *t, struct vow__txn *txn,
                       bool with_epoch);
static void put_alive(struct vow__trip *t, struct vow__txn *txn);
static int64_t keep_of(const struct vow__trip *t);
static void remember(struct vow__trip *t, const json_t *root);

void vow__own_write(struct vow__trip *t, struct vow__txn *txn, uint64_t floor,
                    bool leaves)
{
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__key fence = vow__key("n", &t->name, "/f");
    struct vow__key offset = vow__key("e", NULL, "");
    struct vow__key bell = vow__key("n", &t->name, "/c");
    struct vow__key chunks = vow__key("c", &t->name, "/");
    struct vow__key seat = vow__key_seat(t->etcd, &t->name);
    const struct vow__er *er = &t->er;
    struct vow__key value = vow__key_value(&t->name, er->epoch);
    vow__txn_if_mod(txn, &record, er->mod);
    if (er->state == VOW__ER_RUNS && !vow__er_of(er, &t->next.token))
        vow__txn_if_mod(txn, &alive, er->alive);
    vow__txn_if_mod(txn, &fence, er->fence);
    vow__txn_if_mod(txn, &offset, er->offset_mod);
    t->next.fence = er->fence;
    t->next.offset = er->offset;
    t->next.offset_mod = er->offset_mod;
    vow__own_raise(t, txn, floor);
    put_record(t, txn, t->next.epoch != 0);
    put_alive(t, txn);
    if (er->bell != 0) {
        vow__txn_delete(txn, VOW__THEN, &bell, 0);
        vow__txn_delete(txn, VOW__THEN, &chunks, VOW__TREE);
    }
    if (er->apart)
        vow__txn_delete(txn, VOW__THEN, &value, 0);
    if (leaves)
        vow__txn_delete(txn, VOW__THEN, &seat, 0);
}

void vow__own_raise(struct vow__trip *t, struct vow__txn *txn, uint64_t above)
{
    struct vow__key key = vow__key("e", NULL, "");
    const struct vow__er *er = &t->er;
    struct vow__jot value;
    if (er->revision + er->offset >= above)
        return;
    vow__jot_init(&value, vow__etcd_alloc(t->etcd));
    t->next.offset = above - er->revision; /* keeps O1 */
    vow__er_write_offset(t->next.offset, &value);
    vow__txn_put(txn, VOW__THEN, &key, &value, 0);
    vow__jot_fini(&value);
}

static void put_record(struct vow__trip *t, struct vow__txn *txn,
                       bool with_epoch)
{
    struct vow__key key = vow__key("n", &t->name, "/r");
    struct vow__jot value;
    vow__jot_init(&value, vow__etcd_alloc(t->etcd));
    vow__er_write(&t->next, with_epoch, &value);
    t->next.lease = keep_of(t);
    vow__txn_put(txn, VOW__THEN, &key, &value, t->next.lease);
    vow__jot_fini(&value);
}

/* A lease of 0 has ended as soon as it is given. */
static void put_alive(struct vow__trip *t, struct vow__txn *txn)
{
    struct vow__key key = vow__key("n", &t->name, "/a");
    struct vow__jot value;
    t->next.alive_lease = t->alive;
    if (t->next.lease_ms == 0) {
        vow__txn_delete(txn, VOW__THEN, &key, 0);
        return;
    }
    vow__jot_init(&value, vow__etcd_alloc(t->etcd));
    vow__er_write_alive(&t->next, &value);
    vow__txn_put(txn, VOW__THEN, &key, &value, t->alive);
    vow__jot_fini(&value);
}

static int64_t keep_of(const struct vow__trip *t)
{
    return t->next.mode == VOW_ONCE ? 0 : t->keep;
}

bool vow__own_wrote(struct vow__trip *t, const json_t *root, uint64_t floor)
{
    struct vow__etcd_news *n = vow__etcd_news(t->etcd);
    uint64_t revision = vow__json_revision(root);
    struct vow__er *next = &t->next;
    if (next->offset != t->er.offset)
        next->offset_mod = revision;
    next->mod = revision;
    next->bell = 0;
    if (next->epoch == 0)
        next->epoch = revision + next->offset;
    n->revision = revision;
    n->offset = next->offset;
    n->offset_mod = next->offset_mod;
    remember(t, root);
    return revision + t->er.offset > floor;
}

/* What was to be is what is. */
static void remember(struct vow__trip *t, const json_t *root)
{
    uint64_t revision = vow__json_revision(root);
    uint32_t waiters = t->er.waiters;
    vow__er_fini(&t->er);
    t->er = t->next;
    t->next = (struct vow__er){.mod = 0};
    t->er.revision = revision;
    t->er.alive = t->er.lease_ms == 0 ? 0 : revision;
    t->er.waiters = waiters;
}

/* It is its owner's, whether it has lapsed or not. A record that hangs on the
 * lease of another process, or whose owner was alive by another, is written
 * again, and is not as it was made then: no ghost takes it for its own. */
void vow__renew_write(struct vow__trip *t, struct vow__txn *txn,
                      uint64_t lease_ms, bool leaves)
{
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key seat = vow__key_seat(t->etcd, &t->name);
    vow__er_fini(&t->next);
    t->next = t->er;
    t->next.value = NULL;
    t->next.lease_ms = lease_ms;
    vow__txn_if_mod(txn, &record, t->er.mod);
    if (t->er.lease != keep_of(t) || t->er.alive_lease != t->alive ||
        lease_ms == 0) {
        t->next.since_us++;
        t->next.mod = 0;
        put_record(t, txn, true);
    }
    put_alive(t, txn);
    if (leaves)
        vow__txn_delete(txn, VOW__THEN, &seat, 0);
}

void vow__renew_wrote(struct vow__trip *t, const json_t *root)
{
    if (t->next.mod == 0)
        t->next.mod = vow__json_revision(root);
    remember(t, root);
}
