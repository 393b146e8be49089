/* SPDX-License-Identifier: MIT */
/* etcd_end.c - keys that end before their lease does.
 *
 * WHY   A lease of etcd counts in seconds and is shared: what hangs on it lives
 *       a little longer than it should, or as long as others keep it alive. Who
 *       wrote such a key ends it in time, while it lives itself.
 * HOW   A heap by time, and a table by key: one that is named again gets the
 *       new time. Those that are due go in one transaction, each as one within
 *       it that compares its own revision: what has changed does not keep the
 *       others.
 * INVARIANTS
 *   K1  a key is in the heap or under way, never both
 *   K2  one transaction is under way at most; if none is, the timer is that of
 *       the first that is due
 * LIMITS  ENDS_MAX keys at once. What fails is tried for as long as the store
 *         is open: their lease may live as long as the process. What is left
 *         when it is closed ends with its lease.
 * THREADS  loop thread only.
 */
#include "base/heap.h"
#include "base/table.h"
#include "store/etcd/etcd_internal.h"

#include <string.h>

enum {
    AGAIN_MS = 1000, /* when it failed; doubled for each time, */
    DOUBLINGS = 2,   /* so often */
    ENDS_MAX = 40    /* of the 128 that a transaction may have */
};

struct vow__etcd_ends {
    struct vow__etcd *etcd;
    vow_loop *loop;
    struct vow_alloc alloc;
    struct vow__table keys;     /* struct end */
    struct vow__heap_node *due; /* struct end; their keys are ns */
    vow_link *ending;           /* struct end, under way */
    vow_call timer;
    uint64_t seq;
};

struct end {
    struct vow__table_node named; /* its name is the key */
    struct vow__heap_node node;   /* of due */
    vow_link link;                /* of ending */
    struct vow__key key;
    uint64_t mod;       /* 0: any */
    unsigned doublings; /* of the time until it is tried again */
    bool sent;          /* it is under way, and since then: */
    bool anew;          /* it has a new time */
    bool never;         /* it is to stay */
};

static struct end *end_find(struct vow__etcd_ends *all,
                            const struct vow__key *key);
static struct end *end_new(struct vow__etcd_ends *all,
                           const struct vow__key *key);
static void end_free(struct vow__etcd_ends *all, struct end *x);
static void end_at(struct vow__etcd_ends *all, struct end *x, uint64_t due_ns);
static void keep_key(struct vow__etcd_ends *all, struct end *x);
static void arm(struct vow__etcd_ends *all);
static void on_due(void *user);
static void end_one(struct vow__etcd_ends *all, struct vow__txn *t,
                    const struct end *x);
static void on_ended(struct vow__etcd *e, int code, const json_t *root,
                     void *user);
static void end_told(struct vow__etcd_ends *all, struct end *x, int code);

int vow__ends_open(struct vow__etcd *e, struct vow__etcd_ends **ret_ends)
{
    struct vow_alloc alloc = *vow__etcd_alloc(e);
    struct vow__etcd_ends *all = vow__mem_zero(&alloc, sizeof(*all));
    if (all == NULL)
        return VOW_ENOMEM;
    all->etcd = e;
    all->loop = vow__etcd_loop(e);
    all->alloc = alloc;
    vow__table_init(&all->keys, &all->alloc, vow_loop_random(all->loop));
    *ret_ends = all;
    return 0;
}

/* All calls have ended. */
void vow__ends_close(struct vow__etcd_ends *all)
{
    struct vow_alloc alloc = all->alloc;
    struct vow__table_node *n;
    VOW__ASSERT(all->ending == NULL);
    (void)vow_call_stop(&all->timer);
    while ((n = vow__table_next(&all->keys, NULL)) != NULL)
        end_free(all, VOW__OUTER(n, struct end, named));
    vow__table_fini(&all->keys);
    vow__mem_free(&alloc, all, sizeof(*all));
}

/* ---- naming them --------------------------------------------------------- */

int vow__end_key(struct vow__etcd *e, const struct vow__key *key, uint64_t mod,
                 uint64_t after_ms)
{
    struct vow__etcd_ends *all = vow__leases_ends(vow__etcd_leases(e));
    struct end *x = end_find(all, key);
    if (after_ms == VOW__NEVER) {
        if (x != NULL)
            keep_key(all, x);
        return 0;
    }
    if (x == NULL)
        x = end_new(all, key);
    if (x == NULL)
        return VOW_ENOMEM;
    x->mod = mod;
    x->doublings = 0;
    end_at(all, x, vow_loop_due_ns(all->loop, after_ms));
    return 0;
}

static void keep_key(struct vow__etcd_ends *all, struct end *x)
{
    if (x->sent)
        x->never = true;
    else
        end_free(all, x);
    arm(all);
}

static struct end *end_find(struct vow__etcd_ends *all,
                            const struct vow__key *key)
{
    struct vow__table_node *n =
        vow__table_find(&all->keys, key->text, strlen(key->text));
    return n == NULL ? NULL : VOW__OUTER(n, struct end, named);
}

/* It is at the end of time. */
static struct end *end_new(struct vow__etcd_ends *all,
                           const struct vow__key *key)
{
    struct end *x = vow__mem_zero(&all->alloc, sizeof(*x));
    if (x == NULL)
        return NULL;
    x->key = *key;
    x->named.name = x->key.text;
    x->named.length = strlen(x->key.text);
    if (vow__table_add(&all->keys, &x->named) < 0) {
        vow__mem_free(&all->alloc, x, sizeof(*x));
        return NULL;
    }
    x->node.key = UINT64_MAX;
    vow__heap_insert(&all->due, &x->node);
    return x;
}

static void end_free(struct vow__etcd_ends *all, struct end *x)
{
    vow__table_remove(&all->keys, &x->named);
    if (!x->sent)
        vow__heap_remove(&all->due, &x->node);
    vow__mem_free(&all->alloc, x, sizeof(*x));
}

static void end_at(struct vow__etcd_ends *all, struct end *x, uint64_t due_ns)
{
    if (!x->sent)
        vow__heap_remove(&all->due, &x->node);
    x->node.key = due_ns;
    x->node.seq = all->seq++;
    x->anew = x->sent;
    x->never = false;
    if (!x->sent)
        vow__heap_insert(&all->due, &x->node); /* keeps K1 */
    arm(all);
}

/* ---- ending them --------------------------------------------------------- */

static void arm(struct vow__etcd_ends *all)
{
    if (all->due == NULL || all->ending != NULL)
        (void)vow_call_stop(&all->timer);
    else
        vow_call_weakly_at(&all->timer, all->loop, all->due->key, on_due, all);
}

static void on_due(void *user)
{
    struct vow__etcd_ends *all = user;
    uint64_t loop_ns = vow_loop_now_ns(all->loop);
    struct vow__txn t;
    if (vow__etcd_closing(all->etcd))
        return;
    vow__txn_init(&t, &all->alloc, vow__etcd_where_of(all->etcd)->prefix);
    for (size_t n = 0; n < ENDS_MAX; n++) {
        if (all->due == NULL || all->due->key > loop_ns)
            break;
        struct end *x = VOW__OUTER(all->due, struct end, node);
        vow__heap_remove(&all->due, &x->node);
        x->sent = true;
        vow__list_push(&all->ending, &x->link); /* keeps K1 */
        end_one(all, &t, x);
    }
    VOW__ASSERT(all->ending != NULL);
    vow__etcd_txn(all->etcd, &t, on_ended, all);
}

static void end_one(struct vow__etcd_ends *all, struct vow__txn *t,
                    const struct end *x)
{
    unsigned tree = x->key.text[x->named.length - 1] == '/' ? VOW__TREE : 0;
    struct vow__txn inner;
    if (x->mod == 0) {
        vow__txn_delete(t, VOW__THEN, &x->key, tree);
        return;
    }
    vow__txn_init(&inner, &all->alloc, t->prefix);
    if (tree != 0)
        vow__txn_if_quiet(&inner, &x->key, x->mod);
    else
        vow__txn_if_mod(&inner, &x->key, x->mod);
    vow__txn_delete(&inner, VOW__THEN, &x->key, tree);
    vow__txn_nest(t, VOW__THEN, &inner);
    vow__txn_fini(&inner);
}

static void on_ended(struct vow__etcd *e, int code, const json_t *root,
                     void *user)
{
    struct vow__etcd_ends *all = user;
    (void)root;
    while (all->ending != NULL) {
        struct end *x =
            VOW__OUTER(vow__list_take(&all->ending), struct end, link);
        end_told(all, x, code);
    }
    if (!vow__etcd_closing(e))
        arm(all);
}

/* Back into the heap if it has a new time, or to try again. */
static void end_told(struct vow__etcd_ends *all, struct end *x, int code)
{
    bool again = code != 0 && code != VOW_ECLOSED;
    if (x->never || (!x->anew && !again)) {
        end_free(all, x);
        return;
    }
    if (!x->anew)
        x->node.key =
            vow_loop_due_ns(all->loop, (uint64_t)AGAIN_MS << x->doublings);
    if (!x->anew && x->doublings < DOUBLINGS)
        x->doublings++;
    x->anew = false;
    x->sent = false;
    vow__heap_insert(&all->due, &x->node);
}
