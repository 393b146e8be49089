/* SPDX-License-Identifier: MIT */
/* etcd_turns.c - telling other processes that a request has its turn.
 *
 * WHY   With a watch on the rows of a pool, each of 100 waiting processes would
 *       be told of each release: etcd and the processes would do nothing else.
 * HOW   Each process has a key, i/INST, and watches this key once a request has
 *       waited. A row tells the INST of its process. The step that makes a row
 *       fit puts the keys of the rows into i/INST: one event for one process.
 *       A join makes the key if there is none, on the lease of the row; a put
 *       by another process keeps the lease, and makes no key.
 *       Which rows fit is a question of the first rows of the pool only, in the
 *       order of creation: rows of weight 1 and more fill the limit.
 * LIMITS  A turn is not told if the process that should tell the turn dies, if
 *         the lease of i/INST ends before the lease of the row, or to a process
 *         of an earlier version: the request is found by the engine's recheck.
 * THREADS  loop thread only, on fibers; the watch tells from the loop's queue.
 */
#include "store/etcd/etcd_service.h"

#include <string.h>

static struct vow__key turns_key(const char *inst)
{
    char rest[VOW__ETCD_INST + 2] = "/";
    (void)strncat(rest, inst, VOW__ETCD_INST);
    return vow__key("i", NULL, rest);
}

/* ---- listening ------------------------------------------------------------ */

void vow__etcd_turns_join(const struct vow__etcd_service *s, struct vow__txn *t,
                          enum vow__branch b, int64_t lease)
{
    const struct vow__key key = turns_key(vow__etcd_inst(s->etcd));
    struct vow__buf none;
    struct vow__txn inner;
    vow__etcd_service_txn_init(s, &inner);
    vow__etcd_buf_init(&none, vow__etcd_alloc(s->etcd));
    vow__txn_if_absent(&inner, &key);
    vow__txn_put(&inner, VOW__THEN, &key, &none, lease);
    vow__txn_nest(t, b, &inner);
    vow__txn_fini(&inner);
}

/* The value is the keys of rows, a line each. */
static void on_turn(const struct vow__kv *kv, void *user)
{
    struct vow__etcd_service *s = user;
    struct vow__lines rest = {kv->value, kv->size};
    struct vow__line l;
    while (vow__line_take(&rest, &l)) {
        struct vow__etcd_pool_key key;
        char text[sizeof(struct vow__key)];
        if (l.word_n >= sizeof(text))
            continue;
        memcpy(text, l.word, l.word_n);
        text[l.word_n] = 0;
        if (vow__etcd_pool_key_read(text, &key) &&
            key.kind == VOW__ETCD_KEY_ROW)
            s->events.on_look(&key.name, &key.token, s->events.user);
    }
}

/* Turns that are told from now on are lost, until a join makes the key. */
static void on_turns_key_gone(const struct vow__kv *kv, void *user)
{
    (void)kv;
    vow__etcd_on_doubt(user);
}

/* Without memory for a watch, the next request that waits tries. */
void vow__etcd_turns_begin(struct vow__etcd_service *s, uint64_t revision)
{
    const struct vow__key key = turns_key(vow__etcd_inst(s->etcd));
    const struct vow__watch_events events = {.on_put = on_turn,
                                             .on_delete = on_turns_key_gone,
                                             .on_doubt = vow__etcd_on_doubt,
                                             .user = s};
    if (s->turns_watch == NULL && !vow__etcd_closing(s->etcd) &&
        vow__watch_open(s->etcd, &key, revision, &events, &s->turns_watch) < 0)
        s->turns_watch = NULL;
}

void vow__etcd_turns_end(struct vow__etcd_service *s)
{
    if (s->turns_watch != NULL)
        vow__watch_close(s->turns_watch);
    s->turns_watch = NULL;
}

/* ---- telling -------------------------------------------------------------- */

void vow__etcd_turns_init(struct vow__etcd_service *s,
                          struct vow__etcd_turns *ret_turns)
{
    ret_turns->service = s;
    ret_turns->n = 0;
}

void vow__etcd_turns_tell(struct vow__etcd_turns *ts, uint64_t due_ns)
{
    struct vow__etcd_service *s = ts->service;
    struct vow__txn t;
    json_t *root = NULL;
    if (ts->n == 0)
        return;
    vow__etcd_service_txn_init(s, &t);
    for (size_t i = 0; i < ts->n; i++) {
        const struct vow__key key = turns_key(ts->at[i].inst);
        struct vow__txn inner;
        vow__etcd_service_txn_init(s, &inner);
        vow__txn_if_there(&inner, &key);
        vow__txn_put(&inner, VOW__THEN, &key, &ts->at[i].rows, VOW__SAME_LEASE);
        vow__txn_nest(&t, VOW__THEN, &inner);
        vow__txn_fini(&inner);
        vow__buf_fini(&ts->at[i].rows);
    }
    ts->n = 0;
    (void)vow__etcd_service_txn(s, &t, due_ns, &root);
    json_decref(root);
}

void vow__etcd_turns_add(struct vow__etcd_turns *ts,
                         const struct vow__etcd_pools *ps,
                         const struct vow__etcd_pool *p, size_t i,
                         uint64_t due_ns)
{
    const struct vow__etcd_row *row = &p->rows[i];
    const struct vow__kv kv = {.value = ps->texts.bytes + row->text,
                               .size = row->size};
    char inst[VOW__ETCD_INST + 1];
    size_t k = 0;
    vow__etcd_row_inst(&kv, inst);
    if (inst[0] == 0)
        return;
    while (k < ts->n && strcmp(ts->at[k].inst, inst) != 0)
        k++;
    if (k == VOW__ETCD_TURNS) {
        vow__etcd_turns_tell(ts, due_ns);
        k = 0;
    }
    if (k == ts->n) {
        memcpy(ts->at[k].inst, inst, sizeof(inst));
        vow__etcd_buf_init(&ts->at[k].rows, ps->alloc);
        ts->n++;
    }
    vow__buf_text(&ts->at[k].rows,
                  vow__etcd_row_key(&p->found.name, &row->row.token).text);
    vow__buf_text(&ts->at[k].rows, "\n");
}

/* Returns whether a row fits since `gone` went: fits, and did not fit before;
 * or is the first in the queue of a rate, and was not. `sum` is up to the row. */
static bool row_is_freed(const struct vow__etcd_pool *p, size_t i, uint64_t sum,
                         bool first, const struct cas_row *gone)
{
    const vow_pool_limits *l = &p->found.limits;
    uint64_t freed = gone->there ? gone->weight : UINT32_MAX;
    bool behind =
        gone->there && !gone->marked && gone->order < p->order[i].order;
    return (l->concurrent > 0 && sum <= l->concurrent &&
            sum + freed > l->concurrent) ||
           (l->rate > 0 && first && behind);
}

void vow__etcd_turns_freed(const struct vow__etcd_pools *ps,
                           const struct cas_row *gone, uint64_t due_ns)
{
    const struct vow__etcd_pool *p = &ps->pools[0];
    uint64_t sum = p->found.sums.marked;
    bool first = true;
    struct vow__etcd_turns turns;
    vow__etcd_turns_init(ps->service, &turns);
    sum -=
        gone->there && gone->marked && sum >= gone->weight ? gone->weight : 0;
    for (size_t i = 0; i < p->n; i++) {
        const struct rules_row *r = &p->order[i];
        if (r->marked || (gone->there && r->order == gone->order))
            continue;
        sum += r->weight;
        if (row_is_freed(p, i, sum, first, gone))
            vow__etcd_turns_add(&turns, ps, p, i, due_ns);
        first = false;
    }
    vow__etcd_turns_tell(&turns, due_ns);
}
