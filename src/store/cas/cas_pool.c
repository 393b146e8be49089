/* SPDX-License-Identifier: MIT */
/* cas_pool.c - permits of this instance: states, leases, wake-ups.
 *
 * WHY   All permits of a process hang on shared leases of the service. A permit
 *       that is not renewed must end nevertheless, and so must a request whose
 *       answer was lost, and a request that has its turn and is not fetched:
 *       the others wait behind.
 * HOW   A permit has the end of its own lease. When the lease is over, a step
 *       removes the row. When a request was told that the request may have its
 *       turn, and no acquire or renewal follows within CAS_ACCEPT_MS, the row
 *       is removed, too. A join without an answer may come true for
 *       CAS_LATE_MS: so long, the row is removed again and again, less and less
 *       often. Callers are told from the loop's queue, by on_permits_tell().
 * INVARIANTS  Q1 to Q4 in cas_pools.h
 * LIMITS  A row that cannot be removed is tried again each CAS_END_AGAIN_MS. A
 *         row that cannot be removed during the close ends with the lease. A
 *         join that comes true later than CAS_LATE_MS stays as long as the
 *         lease of the process.
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_pools.h"

#include <string.h>

enum { REST_MS = 60000 };
#define NS_PER_MS UINT64_C(1000000)

static void pool_idle(struct cas_pool *pool);
static void pool_free(struct cas_pool *pool);
static void permit_free(struct cas_permit *p);
static void permit_state_set(struct cas_permit *p, enum cas_permit_state to);
static void permit_arm(struct cas_permit *p);
static bool permit_lingers(struct cas_permit *p);
static void on_permit_end(void *user);
static void on_permits_tell(void *user);

/* ---- pools --------------------------------------------------------------- */

static struct cas_pool *pool_at(struct vow__table_node *node)
{
    return VOW__OUTER(node, struct cas_pool, node);
}

static struct cas_permit *permit_at(struct vow__table_node *node)
{
    return VOW__OUTER(node, struct cas_permit, node);
}

struct cas_pool *vow__cas_pool_find(const struct cas *s,
                                    const struct cas_pool_name *name)
{
    struct vow__table_node *node =
        vow__table_find(&s->pools, (const char *)name, sizeof(*name));
    return node == NULL ? NULL : pool_at(node);
}

struct cas_pool *vow__cas_pool_use(struct cas *s,
                                   const struct cas_pool_name *name)
{
    struct cas_pool *pool = vow__cas_pool_find(s, name);
    if (pool != NULL) {
        pool->steps++;
        (void)vow_call_stop(&pool->rest);
        return pool;
    }
    pool = vow__mem_zero(&s->alloc, sizeof(*pool));
    if (pool == NULL)
        return NULL;
    pool->cas = s;
    pool->name = *name;
    pool->steps = 1;
    pool->found.alloc = &s->alloc;
    pool->node.name = (const char *)&pool->name;
    pool->node.length = sizeof(pool->name);
    vow__table_init_hashed(&pool->permits, &s->alloc, vow_loop_random(s->loop));
    if (vow__table_add(&s->pools, &pool->node) == 0)
        return pool;
    vow__table_fini(&pool->permits);
    vow__mem_free(&s->alloc, pool, sizeof(*pool));
    return NULL;
}

void vow__cas_pool_drop(struct cas_pool *pool)
{
    VOW__ASSERT(pool->steps > 0);
    if (--pool->steps == 0 && pool->permits.count == 0)
        pool_idle(pool);
}

static void on_pool_rested(void *user)
{
    pool_free(user);
}

/* The age of entries is known as long as the pool is: without a clock, other
 * processes may know of no start. */
static void pool_idle(struct cas_pool *pool)
{
    struct cas *s = pool->cas;
    uint64_t ms = pool->found.limits.window_us / 1000 + 1;
    if (pool->found.n == 0 || s->closing)
        pool_free(pool);
    else
        vow_call_weakly_at(
            &pool->rest, s->loop,
            vow_loop_due_ns(s->loop, ms < REST_MS ? ms : REST_MS),
            on_pool_rested, pool);
}

static void pool_free(struct cas_pool *pool)
{
    struct cas *s = pool->cas;
    VOW__ASSERT(pool->steps == 0 && pool->permits.count == 0);
    vow__cas_pool_still(pool);
    (void)vow_call_stop(&pool->rest);
    vow__cas_pool_found_fini(&pool->found);
    vow__table_fini(&pool->permits);
    vow__table_remove(&s->pools, &pool->node);
    vow__mem_free(&s->alloc, pool, sizeof(*pool));
}

/* Steps of the close remove all rows. Without memory, the leases do. */
void vow__cas_pools_close(struct cas *s)
{
    struct vow__table_node *node = vow__table_next(&s->pools, NULL);
    (void)vow_call_stop(&s->tell);
    while (node != NULL) {
        struct cas_pool *pool = pool_at(node);
        struct vow__table_node *at = vow__table_next(&pool->permits, NULL);
        pool->steps++;
        vow__cas_pool_still(pool);
        while (at != NULL) {
            struct cas_permit *p = permit_at(at);
            at = vow__table_next(&pool->permits, at);
            p->steps++;
            (void)vow_call_stop(&p->end);
            if (!p->ending && vow__cas_permit_end(p) < 0)
                p->end_ns = 0;
            vow__cas_permit_drop(p);
        }
        node = vow__table_next(&s->pools, node);
        vow__cas_pool_drop(pool);
    }
}

void vow__cas_pools_fini(struct cas *s)
{
    struct vow__table_node *node = vow__table_next(&s->pools, NULL);
    while (node != NULL) {
        struct cas_pool *pool = pool_at(node);
        node = vow__table_next(&s->pools, node);
        pool_free(pool);
    }
    vow__table_fini(&s->pools);
}

/* ---- permits ------------------------------------------------------------- */

struct cas_permit *vow__cas_permit_find(const struct cas_pool *pool,
                                        const vow_token *token)
{
    struct vow__table_node *node = vow__table_find(
        &pool->permits, (const char *)token->bytes, sizeof(token->bytes));
    return node == NULL ? NULL : permit_at(node);
}

struct cas_permit *vow__cas_permit_use(struct cas_pool *pool,
                                       const vow_token *token)
{
    struct cas *s = pool->cas;
    struct cas_permit *p = vow__cas_permit_find(pool, token);
    if (p != NULL) {
        p->steps++;
        return p;
    }
    p = vow__mem_zero(&s->alloc, sizeof(*p));
    if (p == NULL)
        return NULL;
    p->pool = pool;
    p->token = *token;
    p->steps = 1;
    p->node.name = (const char *)p->token.bytes;
    p->node.length = sizeof(p->token.bytes);
    if (vow__table_add(&pool->permits, &p->node) == 0)
        return p;
    vow__mem_free(&s->alloc, p, sizeof(*p));
    return NULL;
}

/* A permit without an end has no row. While closing, the lease ends the row. */
void vow__cas_permit_drop(struct cas_permit *p)
{
    VOW__ASSERT(p->steps > 0);
    VOW__DEBUG_ASSERT((vow__cas_permit_check(p), true));
    if (--p->steps == 0 && (p->end_ns == 0 || p->pool->cas->closing))
        permit_free(p);
}

static void permit_free(struct cas_permit *p)
{
    struct cas_pool *pool = p->pool;
    struct cas *s = pool->cas;
    VOW__ASSERT(!p->ending && p->lane.active == NULL);
    permit_state_set(p, CAS_PERMIT_ASKED);
    if (p->in_news)
        vow__list_remove(&s->news, &p->news);
    (void)vow_call_stop(&p->end);
    vow__table_remove(&pool->permits, &p->node);
    vow__mem_free(&s->alloc, p, sizeof(*p));
    if (pool->steps == 0 && pool->permits.count == 0)
        pool_idle(pool);
}

void vow__cas_permit_check(const struct cas_permit *p)
{
    VOW__ASSERT(p->state == CAS_PERMIT_ASKED || p->order != 0 ||
                p->state == CAS_PERMIT_ENDING); /* Q1 */
    VOW__ASSERT(p->state != CAS_PERMIT_QUEUED ||
                p->pool->n_queued > 0); /* Q2 */
    VOW__ASSERT(p->end_ns == 0 || p->ending || vow_call_pending(&p->end) ||
                p->pool->cas->closing); /* Q3 */
    VOW__ASSERT(!p->told || p->state == CAS_PERMIT_QUEUED);
}

/* ---- states -------------------------------------------------------------- */

/* Which state follows which; keeps Q4. */
static bool move_allowed(enum cas_permit_state from, enum cas_permit_state to)
{
    static const unsigned TO[] = {
        [CAS_PERMIT_ASKED] = 1u << CAS_PERMIT_QUEUED | 1u << CAS_PERMIT_HELD |
                             1u << CAS_PERMIT_ENDING,
        [CAS_PERMIT_QUEUED] = 1u << CAS_PERMIT_HELD | 1u << CAS_PERMIT_ENDING |
                              1u << CAS_PERMIT_ASKED,
        [CAS_PERMIT_HELD] = 1u << CAS_PERMIT_ENDING | 1u << CAS_PERMIT_ASKED |
                            1u << CAS_PERMIT_QUEUED,
        [CAS_PERMIT_ENDING] = 1u << CAS_PERMIT_ASKED};
    return from == to || (TO[from] & 1u << to) != 0;
}

static void permit_state_set(struct cas_permit *p, enum cas_permit_state to)
{
    struct cas_pool *pool = p->pool;
    VOW__ASSERT(move_allowed(p->state, to));
    bool was_queued = p->state == CAS_PERMIT_QUEUED;
    bool queued = to == CAS_PERMIT_QUEUED;
    p->state = to;
    p->told = false;
    pool->n_queued = pool->n_queued - was_queued + queued; /* keeps Q2 */
}

/* HELD to QUEUED: another row than the caller was told of. */
void vow__cas_permit_seat(struct cas_permit *p, const struct cas_row *row,
                          bool held)
{
    VOW__ASSERT(row->there && p->state != CAS_PERMIT_ENDING);
    VOW__ASSERT(p->state != CAS_PERMIT_HELD || held || p->order != row->order);
    if (p->order != row->order) {
        p->entry.version = 0;
        p->started = false;
    }
    p->closing = false;
    p->order = row->order;
    p->fence = row->fence;
    p->weight = row->weight;
    p->marked = row->marked;
    p->headed = row->ahead == 0;
    permit_state_set(p, held ? CAS_PERMIT_HELD : CAS_PERMIT_QUEUED);
    permit_arm(p);
}

void vow__cas_permit_fence(const struct cas_permit *p, struct cas_row *row)
{
    if (row->there && p->order == row->order && p->fence != 0)
        row->fence = p->fence;
}

void vow__cas_permit_lose(struct cas_permit *p)
{
    permit_state_set(p, CAS_PERMIT_ENDING);
}

void vow__cas_permit_gone(struct cas_permit *p)
{
    permit_state_set(p, CAS_PERMIT_ASKED);
    p->order = p->fence = 0;
    p->entry.version = 0;
    p->started = p->closing = false;
    p->end_ns = 0;
    if (!permit_lingers(p))
        (void)vow_call_stop(&p->end);
}

/* The lease goes on: its end looks once more for a row. */
void vow__cas_permit_unseat(struct cas_permit *p)
{
    VOW__ASSERT(p->state == CAS_PERMIT_QUEUED);
    permit_state_set(p, CAS_PERMIT_ASKED);
    p->order = 0;
    vow__cas_permit_tell(p);
}

void vow__cas_permit_turn(struct cas_permit *p)
{
    if (p->told || p->state != CAS_PERMIT_QUEUED)
        return;
    p->told = true;
    p->fetch_ns = vow_loop_due_ns(p->pool->cas->loop, CAS_ACCEPT_MS);
    permit_arm(p);
    vow__cas_permit_tell(p);
}

void vow__cas_permit_tell(struct cas_permit *p)
{
    struct cas *s = p->pool->cas;
    if (p->in_news || s->closing)
        return;
    p->in_news = true;
    vow__list_push(&s->news, &p->news);
    vow_call_soon(&s->tell, s->loop, on_permits_tell, s);
}

/* The code of the caller may acquire, release, or close the store. */
static void on_permits_tell(void *user)
{
    struct cas *s = user;
    const vow_store_events *e = &s->events;
    vow__cas_stay(s);
    while (s->news != NULL && !s->closing) {
        struct cas_permit *p =
            VOW__OUTER(vow__list_take(&s->news), struct cas_permit, news);
        const vow_token token = p->token;
        p->in_news = false;
        if (e->on_permit != NULL)
            e->on_permit(&token, e->user);
    }
    vow__cas_leave(s);
}

/* ---- ends ---------------------------------------------------------------- */

static uint64_t permit_end_ns(const struct cas_permit *p)
{
    return p->told && p->fetch_ns < p->end_ns ? p->fetch_ns : p->end_ns;
}

bool vow__cas_permit_is_over(const struct cas_permit *p)
{
    return permit_end_ns(p) <= vow__cas_now_ns(p->pool->cas);
}

/* Keeps Q3. */
static void permit_arm(struct cas_permit *p)
{
    struct cas *s = p->pool->cas;
    if (!p->ending && p->end_ns != 0 && !s->closing)
        vow_call_weakly_at(&p->end, s->loop, permit_end_ns(p), on_permit_end,
                           p);
}

void vow__cas_permit_lease(struct cas_permit *p, uint64_t ms)
{
    VOW__ASSERT(p->steps > 0);
    p->lease_ms = ms;
    p->end_ns = vow_loop_due_ns(p->pool->cas->loop, ms);
    permit_arm(p);
}

void vow__cas_permit_late(struct cas_permit *p)
{
    p->late_ns = vow_loop_due_ns(p->pool->cas->loop, CAS_LATE_MS);
}

/* Returns whether a join may still come true: then the permit stays. */
static bool permit_lingers(struct cas_permit *p)
{
    struct cas *s = p->pool->cas;
    uint64_t now_ns = vow__cas_now_ns(s);
    if (p->late_ns <= now_ns || s->closing)
        return false;
    uint64_t left_ms = (p->late_ns - now_ns) / NS_PER_MS;
    uint64_t since_ms = left_ms < CAS_LATE_MS ? CAS_LATE_MS - left_ms : 0;
    p->end_ns = vow_loop_due_ns(
        s->loop, since_ms > CAS_END_AGAIN_MS ? since_ms : CAS_END_AGAIN_MS);
    permit_arm(p);
    return true;
}

void vow__cas_permit_end_later(struct cas_permit *p, bool failed)
{
    struct cas *s = p->pool->cas;
    p->ending = false;
    if (s->closing)
        p->end_ns = 0; /* the lease ends the row */
    else if (failed)
        p->end_ns = p->fetch_ns = vow_loop_due_ns(s->loop, CAS_END_AGAIN_MS);
    permit_arm(p);
}

static void on_permit_end(void *user)
{
    struct cas_permit *p = user;
    p->steps++;
    if (vow__cas_permit_end(p) < 0)
        vow__cas_permit_end_later(p, true);
    vow__cas_permit_drop(p);
}
