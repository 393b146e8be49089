/* SPDX-License-Identifier: MIT */
/* cas_turn.c - what is known of a pool, and the turns of waiting requests.
 *
 * WHY   No process grants a permit to another process: each waiting process
 *       must find out soon that the request has its turn. To read the pool
 *       after each change would cost every waiter a request for every release,
 *       and so would a watch: 100 waiting processes would be told of 100
 *       releases each.
 * HOW   The step that makes a request fit says so to the instance of this
 *       request alone. The caller then acquires, and what is granted is decided
 *       by the answer of one read. So a word too many costs a request, and a
 *       lost word costs time: a waiting caller asks again by itself, and all
 *       waiting requests are read again when the service is in doubt.
 *       Under a rate the first in the queue knows from the entries when the
 *       rate has room, and is told by a timer. Sums and entries are as last
 *       read: never too small, because sums before an unmarked row only fall.
 *       Without a clock, an entry is as old as the time since this process
 *       first saw the version of the entry.
 * LIMITS  O(n log n) for n entries to judge the pool.
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_pools.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRIES_FIRST = 8, LOOK_PAUSE_MS = 20, NS_PER_US = 1000 };

static void permit_look(struct cas_permit *p, bool rated);
static void on_pool_judge(void *user);
static void on_pool_look(void *user);

static struct cas_permit *permit_of(struct vow__table_node *node)
{
    return VOW__OUTER(node, struct cas_permit, node);
}

uint64_t vow__cas_loop_us(const struct cas *s)
{
    return vow__cas_now_ns(s) / NS_PER_US;
}

/* ---- entries ------------------------------------------------------------- */

/* A block has room for entries, and behind them for the starts of a tally. */
static size_t entries_size(size_t room)
{
    return room * (sizeof(struct cas_entry) + sizeof(struct rules_start));
}

int vow__cas_entries_add(struct cas_pool_found *found,
                         const struct cas_entry *entry)
{
    if (found->n == found->room) {
        size_t room = found->room == 0 ? ENTRIES_FIRST : 2 * found->room;
        struct cas_entry *more = vow__mem_new(found->alloc, entries_size(room));
        if (more == NULL)
            return VOW_ENOMEM;
        if (found->n > 0)
            memcpy(more, found->entries, found->n * sizeof(more[0]));
        vow__mem_free(found->alloc, found->entries, entries_size(found->room));
        found->entries = more;
        found->room = room;
    }
    found->entries[found->n++] = *entry;
    return 0;
}

void vow__cas_pool_found_fini(struct cas_pool_found *found)
{
    vow__mem_free(found->alloc, found->entries, entries_size(found->room));
    found->entries = NULL;
    found->n = found->room = 0;
}

struct cas_pool_found vow__cas_pool_found(const struct cas *s)
{
    return (struct cas_pool_found){.alloc = &s->alloc};
}

const struct cas_entry *vow__cas_entry_find(const struct cas_pool_found *found,
                                            uint64_t id)
{
    for (size_t i = 0; i < found->n; i++)
        if (found->entries[i].id == id)
            return &found->entries[i];
    return NULL;
}

/* Returns the place of an entry, if all are sorted by id. */
static size_t entries_place(const struct cas_pool_found *found, uint64_t id)
{
    size_t i = 0;
    while (i < found->n && found->entries[i].id < id)
        i++;
    return i;
}

int vow__cas_entries_put(struct cas_pool_found *found,
                         const struct cas_entry *entry)
{
    size_t i = entries_place(found, entry->id);
    if (i < found->n && found->entries[i].id == entry->id) {
        if (found->entries[i].version != entry->version)
            found->entries[i] = *entry;
        return 0;
    }
    int rc = vow__cas_entries_add(found, entry);
    if (rc < 0)
        return rc;
    memmove(&found->entries[i + 1], &found->entries[i],
            (found->n - 1 - i) * sizeof(found->entries[0]));
    found->entries[i] = *entry;
    return 0;
}

static int entries_by_id(const void *a, const void *b)
{
    uint64_t left = ((const struct cas_entry *)a)->id;
    uint64_t right = ((const struct cas_entry *)b)->id;
    return left < right ? -1 : left > right;
}

static int starts_by_time(const void *a, const void *b)
{
    uint64_t left = ((const struct rules_start *)a)->at_us;
    uint64_t right = ((const struct rules_start *)b)->at_us;
    return left < right ? -1 : left > right;
}

/* The entries of a pool that is known are sorted by id. */
void vow__cas_entries_age(const struct cas *s, const struct cas_pool *pool,
                          struct cas_pool_found *found)
{
    const struct cas_entry *old = pool == NULL ? NULL : pool->found.entries;
    size_t n = pool == NULL ? 0 : pool->found.n;
    uint64_t now_us = vow__cas_loop_us(s);
    size_t k = 0;
    if (found->n > 1)
        qsort(found->entries, found->n, sizeof(found->entries[0]),
              entries_by_id);
    for (size_t i = 0; i < found->n; i++) {
        struct cas_entry *e = &found->entries[i];
        e->since_us = now_us;
        if (e->age_us != RULES_NEVER) {
            e->since_us = e->age_us < now_us ? now_us - e->age_us : 0;
            continue;
        }
        while (k < n && old[k].id < e->id)
            k++;
        if (k < n && old[k].id == e->id && old[k].version == e->version)
            e->since_us = old[k].since_us;
    }
}

struct rules_pool vow__cas_pool_tally(struct cas_pool_found *found)
{
    struct rules_pool p = {.limits = found->limits, .held = found->sums.marked};
    struct rules_start *starts =
        (struct rules_start *)(void *)(found->entries + found->room);
    uint32_t n = 0;
    if (found->n == 0 || found->limits.rate == 0)
        return p;
    for (size_t i = 0; i < found->n; i++) {
        const struct cas_entry *e = &found->entries[i];
        if (e->open > 0)
            p.open += e->weight;
        else
            starts[n++] = (struct rules_start){e->since_us, e->weight};
    }
    if (n > 1)
        qsort(starts, n, sizeof(starts[0]), starts_by_time);
    p.rate = (struct rules_rate){.starts = starts, .n = n, .room = n};
    return p;
}

/* ---- what a read has found ----------------------------------------------- */

/* Takes over the sum before a row. */
static void permit_see(struct cas_permit *p, const struct cas_row *row,
                       const struct cas_pool_found *found)
{
    if (p->state != CAS_PERMIT_QUEUED)
        return;
    if (!row->there || row->order != p->order) {
        vow__cas_permit_unseat(p);
        return;
    }
    p->before = row->before;
    p->marked = row->marked;
    if (p->looked)
        permit_look(p, found->limits.rate > 0);
    p->looked = false;
}

void vow__cas_pool_see(struct cas_pool *pool, struct cas_pool_found *found,
                       const struct cas_row *rows, size_t n, uint64_t doubts)
{
    const struct cas *s = pool->cas;
    size_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        struct cas_permit *p = vow__cas_permit_find(pool, &rows[i].token);
        if (p == NULL)
            continue;
        permit_see(p, &rows[i], found);
        seen += p->state == CAS_PERMIT_QUEUED;
    }
    if (found->revision >= pool->found.revision) {
        vow__cas_pool_found_fini(&pool->found);
        pool->found = *found;
        *found = vow__cas_pool_found(s);
    }
    if (seen == pool->n_queued && doubts == s->doubts)
        pool->doubted = false;
    vow__cas_pool_judge(pool);
}

/* ---- what is told -------------------------------------------------------- */

/* Under a rate, the request may be only the first in the queue. */
static void permit_look(struct cas_permit *p, bool rated)
{
    if (rated)
        vow__cas_permit_tell(p);
    else
        vow__cas_permit_turn(p);
}

/* The answer to a step under way may be older than this event. */
void vow__cas_pool_look(const struct cas_pool_name *name,
                        const vow_token *token, void *user)
{
    struct cas *s = user;
    struct cas_pool *pool = vow__cas_pool_find(s, name);
    struct cas_permit *p =
        pool == NULL ? NULL : vow__cas_permit_find(pool, token);
    if (p == NULL || s->closing)
        return;
    p->looked = p->lane.active != NULL;
    if (p->state == CAS_PERMIT_QUEUED)
        permit_look(p, pool->found.limits.rate > 0);
}

/* Turns may have been missed. */
void vow__cas_pools_doubt(struct cas *s)
{
    struct vow__table_node *node = NULL;
    s->doubts++;
    while ((node = vow__table_next(&s->pools, node)) != NULL) {
        struct cas_pool *pool = VOW__OUTER(node, struct cas_pool, node);
        pool->found.revision = 0; /* numbers may begin again lower */
        pool->doubted = true;
        vow__cas_pool_judge(pool);
    }
}

/* ---- turns --------------------------------------------------------------- */

void vow__cas_pool_judge(struct cas_pool *pool)
{
    if (pool->n_queued > 0 && !pool->cas->closing &&
        !vow_call_pending(&pool->judge))
        vow_call_soon(&pool->judge, pool->cas->loop, on_pool_judge, pool);
}

void vow__cas_pool_still(struct cas_pool *pool)
{
    (void)vow_call_stop(&pool->judge);
    (void)vow_call_stop(&pool->clock);
    (void)vow_call_stop(&pool->look);
}

/* Returns whether the request may be granted, or must leave. Tells a request
 * that has become the first under a rate: only the first knows when the rate
 * has room. *io_when_us: when the rate has room, if sooner. */
static bool permit_judge(struct cas_permit *p, const struct rules_pool *tally,
                         uint64_t now_us, uint64_t *io_when_us)
{
    enum rules_rank rank =
        vow__rules_rank(tally, p->before, p->weight, p->marked, now_us);
    if (rank != RULES_RANK_WAITING)
        return true;
    if (tally->limits.rate == 0)
        return false;
    if (p->before == 0 && !p->headed) {
        p->headed = true;
        vow__cas_permit_tell(p);
    }
    uint64_t when_us =
        vow__rules_rate_when(&tally->rate, &tally->limits, tally->open,
                             p->before, p->weight, now_us);
    if (when_us > now_us && when_us < *io_when_us)
        *io_when_us = when_us;
    return false;
}

static void on_pool_judge(void *user)
{
    struct cas_pool *pool = user;
    vow_loop *loop = pool->cas->loop;
    const struct rules_pool tally = vow__cas_pool_tally(&pool->found);
    struct vow__table_node *node = NULL;
    uint64_t now_us = vow__cas_loop_us(pool->cas);
    uint64_t when_us = RULES_NEVER;
    while ((node = vow__table_next(&pool->permits, node)) != NULL) {
        struct cas_permit *p = permit_of(node);
        if (p->state == CAS_PERMIT_QUEUED &&
            permit_judge(p, &tally, now_us, &when_us))
            vow__cas_permit_turn(p);
    }
    if (when_us != RULES_NEVER)
        vow_call_weakly_at(&pool->clock, loop,
                           vow_loop_due_ns(loop, (when_us - now_us) / 1000 + 1),
                           on_pool_judge, pool);
    if (pool->doubted && !pool->looking && !vow_call_pending(&pool->look))
        vow_call_weakly_at(&pool->look, loop, pool->look_ns, on_pool_look,
                           pool);
}

static void on_pool_look(void *user)
{
    struct cas_pool *pool = user;
    vow_loop *loop = pool->cas->loop;
    if (pool->n_queued == 0 || pool->cas->closing || pool->looking)
        return;
    pool->look_ns = vow_loop_due_ns(loop, LOOK_PAUSE_MS);
    vow__cas_pool_look_start(pool);
}
