/* SPDX-License-Identifier: MIT */
/* memory_pools.c - pools and permits: the storage of the rules of pools.
 *
 * HOW   A step finds the pool, lets store/rules decide on the permits of the
 *       pool, and cleans up. The wait queue is a list, leases are a heap. A
 *       place in the queue is the difference of two counters; if a request left
 *       from the middle, the queue is counted again when a place is asked for.
 * INVARIANTS
 *   L1  a waiting permit is in the queue, a held one is not; both are in `ends`
 *       and in the table
 *   L2  a permit that is `gone` has an event on the way
 *   L3  the pool of a key without permits is in the heap of idle pools until
 *       the rate log is empty
 * LIMITS  O(log n) per step; O(queue) to count again. The rate log grows before
 *       it is full; without memory, starts share an entry: then a window is too
 *       long. A pool with limits of its own stays as long as the state.
 * THREADS one at a time: the caller has the lock.
 */
#include "store/memory/memory_pools.h"

#include <string.h>

enum { ROOM_GROWTH = 8 };

/* A step on a pool: the user of the storage. */
struct pool_use {
    struct vow__memory_state *m;
    struct vow__memory_pool *pool;
    struct vow__memory_instance *instance;
    struct vow__memory_permit *dropped; /* freed later: may still be told */
    bool acquires;
};

static struct vow__memory_pool *pool_find(struct vow__memory_state *m,
                                          const vow_name *name);
static struct vow__memory_pool *pool_for(struct vow__memory_state *m,
                                         const vow_permit_request *request);
static struct vow__memory_pool *pool_new(struct vow__memory_state *m,
                                         const vow_name *name,
                                         struct vow__memory_pool *law,
                                         const char *label);
static void pool_use_begin(struct pool_use *u, const struct vow__memory_step *s,
                           struct vow__memory_pool *pool);
static void pool_use_end(struct pool_use *u);
static void pool_rest(struct vow__memory_state *m,
                      struct vow__memory_pool *pool);
static void pool_wake(struct vow__memory_state *m,
                      struct vow__memory_pool *pool);
static void log_grow(struct vow__memory_state *m, struct rules_rate *log);
static void log_free(struct vow__memory_state *m,
                     struct vow__memory_pool *pool);
static struct rules_now now_of(const struct vow__memory_state *m);
static void info_fill(const struct vow__memory_step *s,
                      struct vow__memory_pool *pool,
                      const vow_pool_limits *limits, vow_pool_info *out);
static int permit_insert(struct pool_use *u, const struct rules_permit *rule);
static void queue_leave(struct vow__memory_pool *pool,
                        struct vow__memory_permit *p);
static void queue_recount(struct vow__memory_pool *pool);

/* ---- storage ------------------------------------------------------------ */

static int permit_give(struct vow__memory_permit *p, struct rules_permit *ret)
{
    if (p == NULL)
        return VOW_ENOENT;
    *ret = p->rule;
    ret->at = p;
    return 0;
}

static int storage_find(void *user, const vow_token *token,
                        struct rules_permit *ret)
{
    struct pool_use *u = user;
    struct vow__memory_permit want;
    want.key.token = *token;
    want.key.pool = u->pool;
    struct vow__table_node *n = vow__table_find(
        &u->m->pools.permits, (const char *)&want.key, sizeof(want.key));
    return permit_give(
        n == NULL ? NULL : VOW__OUTER(n, struct vow__memory_permit, node), ret);
}

static int storage_head(void *user, struct rules_permit *ret)
{
    vow_link *l = ((struct pool_use *)user)->pool->queue;
    return permit_give(
        l == NULL ? NULL : VOW__OUTER(l, struct vow__memory_permit, in_queue),
        ret);
}

static int storage_ended(void *user, uint64_t now_us, struct rules_permit *ret)
{
    struct vow__heap_node *n = ((struct pool_use *)user)->pool->ends;
    if (n == NULL || n->key > now_us)
        return VOW_ENOENT;
    return permit_give(VOW__OUTER(n, struct vow__memory_permit, by_end), ret);
}

static int storage_next_end(void *user, uint64_t *ret_us)
{
    *ret_us = ((struct pool_use *)user)->pool->ends->key;
    return 0;
}

/* Only a new permit can fail. The event of a permit is out of date when the
 * caller acquires again. */
static int storage_put(void *user, const struct rules_permit *permit)
{
    struct pool_use *u = user;
    struct vow__memory_permit *p = permit->at;
    if (p == NULL)
        return permit_insert(u, permit);
    if (permit->held && !p->rule.held)
        queue_leave(u->pool, p); /* keeps L1 */
    else if (u->acquires)
        vow__memory_unsend(p->instance, &p->sent);
    if (permit->end_us != p->by_end.key) {
        vow__heap_remove(&u->pool->ends, &p->by_end);
        p->by_end.key = permit->end_us;
        vow__heap_insert(&u->pool->ends, &p->by_end);
    }
    p->rule = *permit;
    return 0;
}

static int permit_insert(struct pool_use *u, const struct rules_permit *rule)
{
    struct vow__memory_pool *pool = u->pool;
    struct vow__slab *slab;
    struct vow__memory_permit *p =
        vow__slab_take(&u->m->pools.permit_memory, &slab);
    if (p == NULL)
        return VOW_ENOMEM;
    p->slab = slab; /* each by itself: quicker than zeros before */
    p->rule = *rule;
    p->gone = false;
    p->instance = u->instance;
    p->sent.kind = VOW__MEMORY_NO_EVENT;
    p->key.token = rule->token;
    p->key.pool = pool;
    p->node.name = (const char *)&p->key;
    p->node.length = sizeof(p->key);
    if (vow__table_add(&u->m->pools.permits, &p->node) < 0) {
        vow__slab_give(slab, p);
        return VOW_ENOMEM;
    }
    p->by_end.key = rule->end_us;
    p->by_end.seq = ++u->m->seq;
    vow__heap_insert(&pool->ends, &p->by_end);
    vow__list_push(&u->instance->permits, &p->in_instance);
    if (rule->held)
        return 0;
    p->before = pool->joined++;
    p->before_weight = pool->joined_weight;
    pool->joined_weight += rule->weight;
    vow__list_push(&pool->queue, &p->in_queue);
    return 0;
}

static int storage_drop(void *user, const struct rules_permit *permit)
{
    struct pool_use *u = user;
    struct vow__memory_permit *p = permit->at;
    if (!p->rule.held)
        queue_leave(u->pool, p);
    vow__heap_remove(&u->pool->ends, &p->by_end);
    vow__table_remove(&u->m->pools.permits, &p->node);
    if (u->dropped != NULL)
        vow__memory_permit_free(u->m, u->dropped);
    u->dropped = p;
    return 0;
}

static int storage_ahead(void *user, const struct rules_permit *permit,
                         uint64_t *ret_n, uint64_t *ret_weight)
{
    struct vow__memory_pool *pool = ((struct pool_use *)user)->pool;
    const struct vow__memory_permit *p = permit->at;
    if (pool->recount)
        queue_recount(pool);
    if (p == NULL) { /* put by this step: the last */
        *ret_n = pool->joined - 1 - pool->passed;
        *ret_weight =
            pool->joined_weight - permit->weight - pool->passed_weight;
    } else {
        *ret_n = p->before - pool->passed;
        *ret_weight = p->before_weight - pool->passed_weight;
    }
    return 0;
}

static void storage_tell(void *user, const struct rules_permit *permit)
{
    struct pool_use *u = user;
    struct vow__memory_permit *p = permit->at;
    if (p == u->dropped) {
        p->gone = true; /* keeps L2 */
        u->dropped = NULL;
    }
    vow__memory_send(p->instance, &p->sent, VOW__MEMORY_PERMIT);
}

void vow__memory_pools_init(struct vow__memory_state *m)
{
    m->pools.storage = (struct rules_storage){
        .find = storage_find,
        .head = storage_head,
        .ended = storage_ended,
        .next_end = storage_next_end,
        .put = storage_put,
        .drop = storage_drop,
        .ahead = storage_ahead,
        .tell = storage_tell,
    };
}

static void queue_leave(struct vow__memory_pool *pool,
                        struct vow__memory_permit *p)
{
    if (pool->queue == &p->in_queue) {
        pool->passed++;
        pool->passed_weight += p->rule.weight;
    } else {
        pool->recount = true;
    }
    vow__list_remove(&pool->queue, &p->in_queue);
}

static void queue_recount(struct vow__memory_pool *pool)
{
    pool->joined = pool->passed;
    pool->joined_weight = pool->passed_weight;
    for (vow_link *l = pool->queue; l != NULL; l = l->next) {
        struct vow__memory_permit *p =
            VOW__OUTER(l, struct vow__memory_permit, in_queue);
        p->before = pool->joined++;
        p->before_weight = pool->joined_weight;
        pool->joined_weight += p->rule.weight;
    }
    pool->recount = false;
}

void vow__memory_permit_free(struct vow__memory_state *m,
                             struct vow__memory_permit *permit)
{
    (void)m;
    vow__memory_unsend(permit->instance, &permit->sent);
    vow__list_remove(&permit->instance->permits, &permit->in_instance);
    vow__slab_give(permit->slab, permit);
}

/* ---- steps -------------------------------------------------------------- */

static void pool_use_begin(struct pool_use *u, const struct vow__memory_step *s,
                           struct vow__memory_pool *pool)
{
    *u =
        (struct pool_use){.m = s->state, .pool = pool, .instance = s->instance};
    s->state->pools.storage.user = u;
    if (pool->law != pool)
        pool->rule.limits = pool->law->rule.limits;
    if (pool->rule.limits.rate > 0)
        log_grow(s->state, &pool->rule.rate);
}

static void pool_use_end(struct pool_use *u)
{
    if (u->dropped != NULL)
        vow__memory_permit_free(u->m, u->dropped);
    if (u->pool->rule.fence > u->m->counter)
        u->m->counter = u->pool->rule.fence;
}

static struct rules_now now_of(const struct vow__memory_state *m)
{
    return (struct rules_now){.now_us = m->now_us, .number = m->counter + 1};
}

int vow__memory_acquire(const struct vow__memory_step *s,
                        const vow_permit_request *request, vow_pool_permit *out)
{
    struct pool_use u;
    vow__memory_begin(s->state, s->now_us);
    struct vow__memory_pool *pool = pool_for(s->state, request);
    if (pool == NULL)
        return VOW_ENOMEM;
    pool_use_begin(&u, s, pool);
    u.acquires = true;
    int rc = vow__rules_acquire(&pool->rule, &s->state->pools.storage, request,
                                now_of(s->state), out);
    pool_use_end(&u);
    pool_rest(s->state, pool);
    return rc;
}

void vow__memory_release(const struct vow__memory_step *s,
                         const vow_permit_hold *hold, vow_pool_permit *out)
{
    struct pool_use u;
    vow__memory_begin(s->state, s->now_us);
    struct vow__memory_pool *pool = pool_find(s->state, &hold->pool);
    if (pool == NULL) {
        *out = (vow_pool_permit){.status = VOW_STATUS_NONE};
        return;
    }
    pool_use_begin(&u, s, pool);
    (void)vow__rules_release(&pool->rule, &s->state->pools.storage,
                             &hold->token, now_of(s->state), out);
    pool_use_end(&u);
    pool_rest(s->state, pool);
}

int vow__memory_renew(const struct vow__memory_step *s,
                      const vow_permit_hold *holds, size_t n, uint64_t lease_ms,
                      vow_pool_permit *out)
{
    struct pool_use u;
    if (lease_ms == 0)
        return VOW_EINVAL;
    vow__memory_begin(s->state, s->now_us);
    for (size_t i = 0; i < n; i++) {
        struct vow__memory_pool *pool = pool_find(s->state, &holds[i].pool);
        if (pool == NULL) {
            out[i] = (vow_pool_permit){.status = VOW_STATUS_NONE};
            continue;
        }
        pool_use_begin(&u, s, pool);
        (void)vow__rules_renew(&pool->rule, &s->state->pools.storage, &holds[i],
                               lease_ms, now_of(s->state), &out[i]);
        pool_use_end(&u);
        pool_rest(s->state, pool);
    }
    return 0;
}

void vow__memory_permits_leave(struct vow__memory_state *m,
                               struct vow__memory_instance *instance)
{
    const struct vow__memory_step s = {m, instance, m->now_us};
    vow_pool_permit out;
    struct pool_use u;
    while (instance->permits != NULL) {
        struct vow__memory_permit *p = VOW__OUTER(
            instance->permits, struct vow__memory_permit, in_instance);
        struct vow__memory_pool *pool = p->key.pool;
        if (p->gone) {
            vow__memory_permit_free(m, p);
            continue;
        }
        vow_token token = p->rule.token;
        pool_use_begin(&u, &s, pool);
        (void)vow__rules_release(&pool->rule, &m->pools.storage, &token,
                                 now_of(m), &out);
        pool_use_end(&u);
        pool_rest(m, pool);
    }
}

/* ---- pools -------------------------------------------------------------- */

static struct vow__memory_pool *pool_find(struct vow__memory_state *m,
                                          const vow_name *name)
{
    struct vow__table_node *n = vow__table_find(
        &m->pools.by_name, (const char *)name->hash, sizeof(name->hash));
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__memory_pool, node);
}

/* Finds the pool of a request, or makes the pool. NULL: no memory. */
static struct vow__memory_pool *pool_for(struct vow__memory_state *m,
                                         const vow_permit_request *request)
{
    struct vow__memory_pool *law = NULL;
    struct vow__memory_pool *pool = pool_find(m, &request->pool);
    if (pool != NULL) {
        pool_wake(m, pool);
        return pool;
    }
    if (!vow_name_equal(&request->pool, &request->limits_of)) {
        law = pool_find(m, &request->limits_of);
        if (law == NULL) {
            law = pool_new(m, &request->limits_of, NULL, request->limits_label);
            if (law == NULL)
                return NULL;
            law->rule.limits = request->limits;
        }
        law = law->law;
    }
    pool = pool_new(m, &request->pool, law, request->label);
    if (pool != NULL && law == NULL)
        pool->rule.limits = request->limits;
    return pool;
}

/* `law` NULL: limits of its own. */
static struct vow__memory_pool *pool_new(struct vow__memory_state *m,
                                         const vow_name *name,
                                         struct vow__memory_pool *law,
                                         const char *label)
{
    struct vow__memory_pool *pool = vow__mem_zero(&m->alloc, sizeof(*pool));
    if (pool == NULL)
        return NULL;
    pool->name = *name;
    pool->node.name = (const char *)pool->name.hash;
    pool->node.length = sizeof(pool->name.hash);
    pool->by_idle.seq = ++m->seq;
    pool->law = law == NULL ? pool : law;
    pool->rule.rate.starts = &pool->first;
    pool->rule.rate.room = 1;
    if (vow__memory_text_make(m, label, &pool->label) < 0 ||
        vow__table_add(&m->pools.by_name, &pool->node) < 0) {
        vow__memory_text_unref(m, pool->label);
        vow__mem_free(&m->alloc, pool, sizeof(*pool));
        return NULL;
    }
    return pool;
}

void vow__memory_pool_free(struct vow__memory_state *m,
                           struct vow__memory_pool *pool)
{
    VOW__ASSERT(pool->ends == NULL);
    pool_wake(m, pool);
    vow__table_remove(&m->pools.by_name, &pool->node);
    vow__memory_text_unref(m, pool->label);
    log_free(m, pool);
    vow__mem_free(&m->alloc, pool, sizeof(*pool));
}

/* Frees the pool of a key without permits, now or when the rate log is empty
 * (keeps L3). */
static void pool_rest(struct vow__memory_state *m,
                      struct vow__memory_pool *pool)
{
    if (pool->ends != NULL || pool->law == pool || pool->idle)
        return;
    pool->by_idle.key =
        vow__rules_rate_over(&pool->rule.rate, &pool->law->rule.limits);
    if (pool->by_idle.key <= m->now_us) {
        vow__memory_pool_free(m, pool);
        return;
    }
    pool->idle = true;
    vow__heap_insert(&m->pools.idle, &pool->by_idle);
}

static void pool_wake(struct vow__memory_state *m,
                      struct vow__memory_pool *pool)
{
    if (pool->idle)
        vow__heap_remove(&m->pools.idle, &pool->by_idle);
    pool->idle = false;
}

/* Makes room for the entry that a step may add; without memory, the rules share
 * the newest entry. */
static void log_grow(struct vow__memory_state *m, struct rules_rate *log)
{
    uint32_t room = log->room * ROOM_GROWTH;
    if (room > RULES_RATE_ENTRIES)
        room = RULES_RATE_ENTRIES;
    if (log->n < log->room || room == log->room)
        return;
    struct rules_start *starts =
        vow__mem_new(&m->alloc, room * sizeof(starts[0]));
    if (starts == NULL)
        return;
    memcpy(starts, log->starts, log->n * sizeof(starts[0]));
    if (log->room > 1)
        vow__mem_free(&m->alloc, log->starts,
                      log->room * sizeof(log->starts[0]));
    log->starts = starts;
    log->room = room;
}

static void log_free(struct vow__memory_state *m, struct vow__memory_pool *pool)
{
    struct rules_rate *log = &pool->rule.rate;
    if (log->room > 1)
        vow__mem_free(&m->alloc, log->starts,
                      log->room * sizeof(log->starts[0]));
}

/* ---- limits ------------------------------------------------------------- */

int vow__memory_limit(const struct vow__memory_step *s, const vow_name *name,
                      const vow_pool_limits *limits, const char *label,
                      struct vow__memory_pool_answer *out)
{
    struct vow__memory_state *m = s->state;
    struct vow__memory_text *text = NULL;
    vow__memory_begin(m, s->now_us);
    struct vow__memory_pool *pool = pool_find(m, name);
    if (pool == NULL && limits == NULL)
        return VOW_ENOENT;
    if (pool != NULL && pool->law != pool && limits != NULL)
        return VOW_EINVAL;
    if (limits != NULL && vow__memory_text_make(m, label, &text) < 0)
        return VOW_ENOMEM;
    if (pool == NULL && (pool = pool_new(m, name, NULL, NULL)) == NULL) {
        vow__memory_text_unref(m, text);
        return VOW_ENOMEM;
    }
    if (text != NULL) {
        vow__memory_text_unref(m, pool->label);
        pool->label = text;
    }
    info_fill(s, pool, limits, &out->info);
    if (pool->label != NULL) {
        memcpy(out->label, pool->label->chars, pool->label->length + 1);
        out->info.label = out->label;
    }
    return 0;
}

static void info_fill(const struct vow__memory_step *s,
                      struct vow__memory_pool *pool,
                      const vow_pool_limits *limits, vow_pool_info *out)
{
    const struct rules_pool *rule = &pool->rule;
    struct pool_use u;
    pool_use_begin(&u, s, pool);
    (void)vow__rules_limit(&pool->rule, &s->state->pools.storage, limits,
                           now_of(s->state));
    pool_use_end(&u);
    *out = (vow_pool_info){.pool = pool->name,
                           .label = "",
                           .limits = rule->limits,
                           .held = rule->held,
                           .holders = rule->holders,
                           .waiting = rule->waiting,
                           .rate_used =
                               vow__rules_pool_used(rule, s->state->now_us)};
}

int vow__memory_pools(const struct vow__memory_step *s,
                      vow_pool_info **ret_infos, size_t *ret_n,
                      size_t *ret_size)
{
    struct vow__memory_state *m = s->state;
    struct vow__table *t = &m->pools.by_name;
    struct vow__table_node *at = NULL;
    vow__memory_begin(m, s->now_us);
    size_t n = 0;
    size_t size = t->count * sizeof(vow_pool_info);
    while ((at = vow__table_next(t, at)) != NULL) {
        struct vow__memory_pool *pool =
            VOW__OUTER(at, struct vow__memory_pool, node);
        size += pool->label == NULL ? 0 : pool->label->length + 1;
    }
    vow_pool_info *infos = size == 0 ? NULL : vow__mem_new(&m->alloc, size);
    if (infos == NULL && size > 0)
        return VOW_ENOMEM;
    char *texts = (char *)(infos + t->count);
    while ((at = vow__table_next(t, at)) != NULL) {
        struct vow__memory_pool *pool =
            VOW__OUTER(at, struct vow__memory_pool, node);
        info_fill(s, pool, NULL, &infos[n]);
        if (pool->label != NULL) {
            memcpy(texts, pool->label->chars, pool->label->length + 1);
            infos[n].label = texts;
            texts += pool->label->length + 1;
        }
        n++;
    }
    *ret_infos = infos;
    *ret_n = n;
    *ret_size = size;
    return 0;
}
