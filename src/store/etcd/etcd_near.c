/* SPDX-License-Identifier: MIT */
/* etcd_near.c - names that this instance waits for, or owns.
 *
 * WHY   Who waits is told by a stream of changes that comes beside the answers:
 *       a change may come before the answer it follows. And who owns need not
 *       ask whether that is still so, as long as the stream has said nothing.
 * HOW   A name is remembered from the moment a step on it begins. While one
 *       runs, changes are put aside (`missed`): whether they were its own doing
 *       is known when it ends. A change behind the answer is told then.
 *       All of them hang in a list, the longest untouched first: what nobody
 *       has asked for in a long time is forgotten.
 * INVARIANTS
 *   A1  a name is in the table and in the list, or freed
 *   A2  one that is idle (no step, no wait, nothing owned, no ghost) is
 *       freed
 * LIMITS  A wait is forgotten after STALE rechecks without a claim; what is
 *         owned is only a short cut, and can be forgotten at any time.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    STALE = 10, /* rechecks */
    TIDY = 2    /* looked at for each that is added */
};

static struct vow__near *near_new(struct vow__etcd_news *n,
                                  const vow_name *name);
static void tidy(struct vow__etcd_news *n);
static bool stale(const struct vow__near *near, uint64_t now_ns);
static void catch_up(struct vow__near *near);

/* ---- coming and going ---------------------------------------------------- */

struct vow__near *vow__near_find(struct vow__etcd_news *n, const vow_name *name)
{
    struct vow__table_node *x = vow__table_find(
        &n->nears, (const char *)name->hash, sizeof(name->hash));
    return x == NULL ? NULL : VOW__OUTER(x, struct vow__near, named);
}

struct vow__near *vow__near_pin(struct vow__etcd_news *n, const vow_name *name)
{
    struct vow__near *near = vow__near_find(n, name);
    if (near == NULL)
        near = near_new(n, name);
    else
        vow__list_remove(&n->all, &near->link);
    if (near == NULL)
        return NULL;
    vow__list_push(&n->all, &near->link);
    near->touched_ns = vow_loop_now_ns(vow__etcd_loop(n->etcd));
    near->pins++;
    return near;
}

static struct vow__near *near_new(struct vow__etcd_news *n,
                                  const vow_name *name)
{
    tidy(n);
    struct vow__near *near = vow__mem_zero(&n->alloc, sizeof(*near));
    if (near == NULL)
        return NULL;
    near->news = n;
    near->name = *name;
    near->named.name = (const char *)near->name.hash;
    near->named.length = sizeof(near->name.hash);
    if (vow__table_add(&n->nears, &near->named) < 0) {
        vow__mem_free(&n->alloc, near, sizeof(*near));
        return NULL;
    }
    return near;
}

static void tidy(struct vow__etcd_news *n)
{
    uint64_t now_ns = vow_loop_now_ns(vow__etcd_loop(n->etcd));
    for (int i = 0; i < TIDY && n->all != NULL; i++) {
        struct vow__near *near = VOW__OUTER(n->all, struct vow__near, link);
        if (stale(near, now_ns)) {
            n->littered |= near->own != NULL;
            vow__near_free(near);
        } else {
            vow__list_remove(&n->all, &near->link);
            vow__list_push(&n->all, &near->link);
        }
    }
}

static bool stale(const struct vow__near *near, uint64_t now_ns)
{
    uint64_t recheck_ms = vow__etcd_where_of(near->news->etcd)->recheck_ms;
    uint64_t after_ns = STALE * recheck_ms * 1000000;
    return near->pins == 0 && !near->telling && near->ghosts == NULL &&
           near->due_ns <= now_ns && now_ns - near->touched_ns > after_ns;
}

void vow__near_unpin(struct vow__near *near)
{
    VOW__ASSERT(near->pins > 0);
    near->pins--;
    if (near->pins == 0 && near->missed != 0)
        catch_up(near);
    vow__near_free_idle(near);
}

/* A change came while a step ran, and is not what that step knows. */
static void catch_up(struct vow__near *near)
{
    const struct vow__er *own = near->own;
    if (near->since != 0 && !near->read && near->missed > near->heard) {
        near->heard = near->missed;
        vow__near_tell_soon(near);
    }
    if (own != NULL && near->missed > own->mod && near->missed > own->alive &&
        near->missed > own->bell)
        near->sure = false;
    near->missed = 0;
}

/* Keeps A2. */
void vow__near_free_idle(struct vow__near *near)
{
    if (near->pins == 0 && near->since == 0 && near->own == NULL &&
        near->ghosts == NULL && !near->telling)
        vow__near_free(near);
}

void vow__near_free(struct vow__near *near)
{
    struct vow__etcd_news *n = near->news;
    if (near->telling)
        vow__list_remove(&n->soon, &near->soon);
    vow__mem_free(&n->alloc, near->own, sizeof(*near->own));
    vow__table_remove(&n->nears, &near->named);
    vow__list_remove(&n->all, &near->link);
    vow__mem_free(&n->alloc, near, sizeof(*near));
}

void vow__near_tell_soon(struct vow__near *near)
{
    struct vow__etcd_news *n = near->news;
    if (near->telling)
        return;
    near->telling = true;
    vow__list_push(&n->soon, &near->soon);
    vow_call_soon(&n->tell, vow__etcd_loop(n->etcd), vow__news_tell, n);
}

/* ---- waiting ------------------------------------------------------------- */

void vow__near_wait(struct vow__near *near, const vow_token *token,
                    uint64_t revision, uint64_t seat)
{
    struct vow__etcd *e = near->news->etcd;
    struct vow__key key = vow__key_seat(e, &near->name);
    near->since = revision;
    near->heard = revision;
    near->waiter = *token;
    near->gift = false;
    near->read = false;
    if (seat != 0)
        near->seat = seat;
    vow__news_watch(near->news, revision);
    if (near->news->watched > revision) /* what lies between is not told */
        vow__near_tell_soon(near);
    if (near->seat != 0) /* without memory its lease will do */
        (void)vow__end_key(e, &key, near->seat,
                           2 * vow__etcd_where_of(e)->recheck_ms);
}

void vow__near_leave(struct vow__near *near)
{
    struct vow__etcd *e = near->news->etcd;
    struct vow__key key = vow__key_seat(e, &near->name);
    if (near->seat != 0)
        (void)vow__end_key(e, &key, 0, VOW__NEVER);
    near->seat = 0;
    near->since = 0;
    near->gift = false;
    near->read = false;
}

uint64_t vow__near_since(const struct vow__near *near,
                         const vow_claim_request *ask)
{
    bool same = memcmp(near->waiter.bytes, ask->token.bytes,
                       sizeof(ask->token.bytes)) == 0;
    if ((ask->flags & VOW_CLAIM_FORCE) != 0 || (near->read && !same))
        return 0;
    return near->since;
}

/* ---- owning -------------------------------------------------------------- */

/* Without memory it is not remembered: then pulses ask. */
void vow__near_own(struct vow__near *near, const struct vow__er *er,
                   uint64_t begun_ns)
{
    struct vow__etcd_news *n = near->news;
    vow__ghost_owned(near, er);
    if (near->own == NULL)
        near->own = vow__mem_new(&n->alloc, sizeof(*near->own));
    if (near->own == NULL) {
        n->littered = true;
        return;
    }
    *near->own = *er;
    near->own->value = NULL;
    near->confirmed_ns = vow_loop_now_ns(vow__etcd_loop(n->etcd));
    vow__news_watch(n, er->revision);
    near->sure = n->watch != NULL && n->watched <= er->revision;
    vow__near_renew(near, begun_ns);
}

void vow__near_renew(struct vow__near *near, uint64_t begun_ns)
{
    struct vow__etcd *e = near->news->etcd;
    vow_loop *loop = vow__etcd_loop(e);
    struct vow__key key = vow__key("n", &near->name, "/a");
    const struct vow__er *own = near->own;
    uint64_t passed_ms = (vow_loop_now_ns(loop) - begun_ns) / 1000000;
    uint64_t left_ms =
        own->lease_ms > passed_ms ? own->lease_ms - passed_ms : 0;
    near->due_ns = vow_loop_due_ns(loop, left_ms);
    if (own->alive == 0)
        (void)vow__end_key(e, &key, 0, VOW__NEVER);
    else /* without memory its lease will do */
        (void)vow__end_key(e, &key, own->alive, left_ms);
}

void vow__near_disown(struct vow__near *near)
{
    struct vow__etcd_news *n = near->news;
    struct vow__key key = vow__key("n", &near->name, "/a");
    (void)vow__end_key(n->etcd, &key, 0, VOW__NEVER);
    vow__mem_free(&n->alloc, near->own, sizeof(*near->own));
    near->own = NULL;
    near->sure = false;
    near->due_ns = 0;
}

/* ---- keys ---------------------------------------------------------------- */

struct vow__key vow__key_seat(struct vow__etcd *e, const vow_name *name)
{
    char rest[64];
    (void)snprintf(rest, sizeof(rest), "/%s", vow__etcd_inst(e));
    return vow__key("w", name, rest);
}

struct vow__key vow__key_value(const vow_name *name, uint64_t epoch)
{
    char rest[32];
    (void)snprintf(rest, sizeof(rest), "/%" PRIu64, epoch);
    return vow__key("v", name, rest);
}

struct vow__key vow__key_gift(const vow_name *name, uint64_t epoch)
{
    char rest[32];
    (void)snprintf(rest, sizeof(rest), "/g/%" PRIu64, epoch);
    return vow__key("v", name, rest);
}
