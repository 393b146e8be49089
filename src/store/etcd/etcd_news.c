/* SPDX-License-Identifier: MIT */
/* etcd_news.c - what the watch means to who waits and who owns.
 *
 * WHY   No recheck is needed as long as changes are told: a result, an owner
 *       that is lost, a name that is free again, chunks, a wish to stop.
 * HOW   One watch for each instance on all names, begun behind the first answer
 *       that somebody relies on. A result that is in the change itself is told
 *       whole, any other change as "ask again".
 *       A wait is over with the change that ends the record: all who wait are
 *       unregistered by the transaction that makes it. But one that hides its
 *       result (ttl 0) leaves it to those who waited: such a wait stays until
 *       the next claim, whatever comes behind.
 *       A record that we own is known as long as nothing contradicts it.
 * INVARIANTS
 *   E1  nobody is told inside a step
 *   E2  no change is told twice to one wait
 * LIMITS  A watch for each instance: each change of any name goes to all of
 *         them. Good for some hundred processes.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

#include <inttypes.h>

enum { SEATS_MAX = 100 };

static void stand_up(void *news);
static void on_stood_up(struct vow__etcd *e, int code, const json_t *root,
                        void *news);
static void revoke(struct vow__etcd_news *n);
static void on_put(const struct vow__kv *kv, void *news);
static void on_delete(const struct vow__kv *kv, void *news);
static void on_doubt(void *news);
static void on_record(struct vow__near *near, const struct vow__kv *kv);
static void record_owned(struct vow__near *near, const struct vow__er *er);
static void record_awaited(struct vow__near *near, struct vow__er *er);
static void tell_result(struct vow__near *near, const struct vow__er *er);
static void changed(struct vow__near *near, uint64_t mod, bool over);
static void ask_again(struct vow__near *near);

int vow__news_open(struct vow__etcd *e, struct vow__etcd_news **ret_news)
{
    const struct vow_alloc *alloc = vow__etcd_alloc(e);
    struct vow__etcd_news *n = vow__mem_zero(alloc, sizeof(*n));
    if (n == NULL)
        return VOW_ENOMEM;
    n->etcd = e;
    n->alloc = *alloc;
    vow__table_init_hashed(&n->nears, &n->alloc,
                           vow_loop_random(vow__etcd_loop(e)));
    *ret_news = n;
    return 0;
}

void vow__news_leave(struct vow__etcd *e, void (*done)(struct vow__etcd *e))
{
    struct vow__etcd_news *n = vow__etcd_news(e);
    n->left = done;
    vow__ghosts_leave(n, stand_up);
}

/* Who waited does not any more. Those that have no room in one transaction end
 * with their lease. */
static void stand_up(void *news)
{
    struct vow__etcd_news *n = news;
    struct vow__etcd *e = n->etcd;
    struct vow__txn t;
    unsigned seats = 0;
    vow__txn_init(&t, &n->alloc, vow__etcd_where_of(e)->prefix);
    for (vow_link *l = n->all; l != NULL && seats < SEATS_MAX; l = l->next) {
        const struct vow__near *near = VOW__OUTER(l, struct vow__near, link);
        struct vow__key seat = vow__key_seat(e, &near->name);
        if (near->seat == 0)
            continue;
        vow__txn_delete(&t, VOW__THEN, &seat, 0);
        seats++;
    }
    if (seats > 0)
        vow__etcd_txn(e, &t, on_stood_up, n);
    else
        revoke(n);
    vow__txn_fini(&t);
}

static void on_stood_up(struct vow__etcd *e, int code, const json_t *root,
                        void *news)
{
    (void)e;
    (void)code;
    (void)root;
    revoke(news);
}

/* What this process owns keeps its leases for their time. */
static void revoke(struct vow__etcd_news *n)
{
    bool used = n->littered;
    for (vow_link *l = n->all; l != NULL && !used; l = l->next)
        used = VOW__OUTER(l, struct vow__near, link)->own != NULL;
    if (used)
        n->left(n->etcd);
    else
        vow__leases_revoke(n->etcd, n->left);
}

void vow__news_close(struct vow__etcd_news *n)
{
    struct vow_alloc alloc = n->alloc;
    vow__ghosts_close(n);
    if (n->watch != NULL)
        vow__watch_close(n->watch);
    (void)vow_call_stop(&n->tell);
    while (n->all != NULL)
        vow__near_free(VOW__OUTER(n->all, struct vow__near, link));
    vow__table_fini(&n->nears);
    vow__mem_free(&alloc, n, sizeof(*n));
}

/* What cannot be watched is asked for again by whoever waits. */
void vow__news_watch(struct vow__etcd_news *n, uint64_t revision)
{
    struct vow__key names = vow__key("n", NULL, "/");
    const struct vow__watch_events events = {.on_put = on_put,
                                             .on_delete = on_delete,
                                             .on_doubt = on_doubt,
                                             .user = n};
    if (n->watch != NULL || vow__etcd_closing(n->etcd))
        return;
    if (vow__watch_open(n->etcd, &names, revision, &events, &n->watch) == 0)
        n->watched = revision;
}

void vow__news_tell(void *news)
{
    struct vow__etcd_news *n = news;
    const vow_store_events *events = vow__etcd_events(n->etcd);
    while (n->soon != NULL) {
        struct vow__near *near =
            VOW__OUTER(vow__list_take(&n->soon), struct vow__near, soon);
        const vow_record r = {.name = near->name, .label = "", .runner = ""};
        near->telling = false;
        vow__near_free_idle(near);
        events->on_record(&r, events->user);
    }
}

/* ---- changes ------------------------------------------------------------- */

static void on_put(const struct vow__kv *kv, void *news)
{
    struct vow__etcd_news *n = news;
    const vow_store_events *events = vow__etcd_events(n->etcd);
    vow_name name;
    char letter = vow__er_key(kv->key, &name);
    struct vow__near *near = letter == 0 ? NULL : vow__near_find(n, &name);
    if (near == NULL || letter == 'f')
        return;
    if (letter == 'r') {
        on_record(near, kv);
        return;
    }
    bool follows = letter == 'c' && near->since != 0 && !near->gift;
    if (near->pins > 0)
        near->missed = letter == 'c' ? near->missed : kv->mod;
    else if (near->own != NULL &&
             kv->mod > (letter == 'c' ? near->own->bell : near->own->alive))
        near->sure = false;
    if (follows)
        events->on_chunks(&name, events->user);
}

static void on_delete(const struct vow__kv *kv, void *news)
{
    vow_name name;
    char letter = vow__er_key(kv->key, &name);
    struct vow__near *near = letter == 0 ? NULL : vow__near_find(news, &name);
    if (near != NULL && (letter == 'r' || letter == 'a'))
        changed(near, kv->mod, letter == 'r');
}

static void on_doubt(void *news)
{
    struct vow__etcd_news *n = news;
    const vow_store_events *events = vow__etcd_events(n->etcd);
    for (vow_link *l = n->all; l != NULL; l = l->next)
        VOW__OUTER(l, struct vow__near, link)->sure = false;
    events->on_doubt(events->user);
}

static void on_record(struct vow__near *near, const struct vow__kv *kv)
{
    struct vow__etcd *e = near->news->etcd;
    struct vow__er er = {.name = near->name};
    if (vow__er_read_key(e, kv, 'r', &er) < 0) {
        vow__er_fini(&er);
        changed(near, kv->mod, false);
        return;
    }
    vow_name name = near->name;
    if (near->own != NULL && er.mod > near->own->mod)
        record_owned(near, &er);
    near = vow__near_find(vow__etcd_news(e), &name); /* they were told */
    if (near != NULL && near->pins > 0)
        near->missed = er.mod;
    else if (near != NULL)
        record_awaited(near, &er);
    vow__er_fini(&er);
}

static void record_owned(struct vow__near *near, const struct vow__er *er)
{
    const vow_store_events *events = vow__etcd_events(near->news->etcd);
    struct vow__er *own = near->own;
    bool ours = er->state == VOW__ER_RUNS && vow__er_of(er, &own->token) &&
                er->epoch == own->epoch;
    bool canceled = ours && er->canceled && !own->canceled;
    if (ours && near->pins == 0)
        own->mod = er->mod;
    else if (near->pins == 0)
        near->sure = false;
    own->canceled |= canceled;
    if (canceled)
        events->on_cancel(&er->name, events->user);
}

/* A record that another owns now is waited for like the one before. */
static void record_awaited(struct vow__near *near, struct vow__er *er)
{
    if (near->since == 0 || near->gift || er->mod <= near->heard ||
        er->state == VOW__ER_RUNS)
        return;
    near->heard = er->mod; /* keeps E2 */
    near->gift = er->hidden;
    if (er->apart || er->elsewhere) {
        if (!er->hidden)
            vow__near_leave(near);
        ask_again(near);
        return;
    }
    tell_result(near, er);
}

static void tell_result(struct vow__near *near, const struct vow__er *er)
{
    const vow_store_events *events = vow__etcd_events(near->news->etcd);
    const vow_record r = vow__er_record(er, VOW_STATUS_SETTLED);
    if (er->hidden)
        near->read = true;
    else
        vow__near_leave(near);
    vow__near_free_idle(near);
    events->on_record(&r, events->user);
}

/* Its record has gone, or its owner. */
static void changed(struct vow__near *near, uint64_t mod, bool over)
{
    if (near->pins > 0) {
        near->missed = mod;
        return;
    }
    if (near->own != NULL && mod > near->own->mod && mod > near->own->alive)
        near->sure = false;
    if (near->since == 0 || near->gift || mod <= near->heard)
        return;
    near->heard = mod; /* keeps E2 */
    if (over)
        vow__near_leave(near);
    ask_again(near);
}

static void ask_again(struct vow__near *near)
{
    const vow_store_events *events = vow__etcd_events(near->news->etcd);
    const vow_record r = {.name = near->name, .label = "", .runner = ""};
    vow__near_free_idle(near);
    events->on_record(&r, events->user);
}
