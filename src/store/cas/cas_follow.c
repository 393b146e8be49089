/* SPDX-License-Identifier: MIT */
/* cas_follow.c - the sums and entries of a pool, followed by events.
 *
 * WHY   No process grants a permit to another process: each waiting process
 *       must find out soon that the request has its turn. To read the pool
 *       after each change would cost every waiter a request for every release.
 * HOW   An answer has the weight that is marked, the weight of the unmarked
 *       rows before each row, and the entries of the rate, all of one revision.
 *       Each later event changes these sums: O(1), without a list of rows. A
 *       new row is behind all rows that wait here, and changes nothing.
 *       Answers and events overtake each other. Each sum has the revision of
 *       its read, and takes later events only. An answer that is older than the
 *       newest event may miss events that have passed: then the sum is not
 *       followed, and the pool is read again.
 *       The sums here decide only when a caller is told, and when a turn is
 *       over. What is granted is decided by the answer of one read.
 *       Without a watch, the sums are as last read: never too small, because
 *       sums before an unmarked row only fall.
 *       Without a clock, an entry is as old as the time since this process
 *       first saw the version of the entry.
 * INVARIANTS
 *   F1  a followed sum is the sum of the service at revision `newest`, or of
 *       the read if the read is newer. Debug builds compare both at each read.
 * LIMITS  O(waiting permits of the process) for an event, O(n log n) for n
 *         entries to judge the pool.
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_pools.h"

#include <stdlib.h>
#include <string.h>

enum {
    ENTRIES_FIRST = 8,
    LOOK_PAUSE_MS = 20,
    UNFOLLOW_MS = 1000,
    NS_PER_US = 1000
};

static inline void pool_check_sums(const struct cas_pool *pool,
                                   const struct cas_pool_found *found,
                                   const struct cas_row *rows, size_t n);
static void pool_apply(struct cas_pool *pool, const struct cas_pool_event *e);
static void permit_apply(struct cas_permit *p, const struct cas_pool_event *e);
static void permit_look(struct cas_permit *p, bool rated);
static void on_pool_judge(void *user);
static void on_pool_look(void *user);

static bool is_token_of(const vow_token *a, const vow_token *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static struct cas_permit *permit_of(struct vow__table_node *node)
{
    return VOW__OUTER(node, struct cas_permit, node);
}

static bool pool_watches(const struct cas_pool *pool)
{
    return (pool->cas->flags & CAS_WATCHES) != 0;
}

/* Returns whether a read may miss a change that no event is going to tell. */
static bool pool_is_outrun(const struct cas_pool *pool,
                           const struct cas_pool_found *found, uint64_t doubts)
{
    const struct cas *s = pool->cas;
    bool told = s->service->ops->pools_follow == NULL ||
                (s->follow != 0 && found->revision >= s->follow);
    return pool_watches(pool) &&
           (!told || found->revision < pool->newest || doubts != s->doubts);
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

static void entries_remove(struct cas_pool_found *found, uint64_t id)
{
    size_t i = entries_place(found, id);
    if (i < found->n && found->entries[i].id == id)
        memmove(&found->entries[i], &found->entries[i + 1],
                (--found->n - i) * sizeof(found->entries[0]));
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
                       const struct cas_pool_found *found, bool outrun)
{
    if (p->state != CAS_PERMIT_QUEUED)
        return;
    if (!row->there || row->order != p->order) {
        vow__cas_permit_unseat(p);
        return;
    }
    p->followed = !outrun;
    p->revision = found->revision;
    p->before = row->before;
    p->marked = row->marked;
    if (p->looked)
        permit_look(p, found->limits.rate > 0);
    p->looked = false;
}

void vow__cas_pool_see(struct cas_pool *pool, struct cas_pool_found *found,
                       const struct cas_row *rows, size_t n, uint64_t doubts)
{
    vow__cas_pools_follow(pool->cas, found->revision);
    bool outrun = pool_is_outrun(pool, found, doubts);
    bool older = found->revision < pool->found.revision;
    VOW__DEBUG_ASSERT((pool_check_sums(pool, found, rows, n), true));
    for (size_t i = 0; i < n; i++) {
        struct cas_permit *p = vow__cas_permit_find(pool, &rows[i].token);
        if (p != NULL)
            permit_see(p, &rows[i], found, outrun);
    }
    if (!older && (!outrun || !pool->followed)) {
        vow__cas_pool_found_fini(&pool->found);
        pool->found = *found;
        pool->followed = !outrun;
        *found = vow__cas_pool_found(pool->cas);
    }
    vow__cas_pool_judge(pool);
}

static void on_unfollow(void *user)
{
    struct cas *s = user;
    struct vow__table_node *node = NULL;
    s->follow = 0;
    s->service->ops->pools_follow(s->service, 0);
    while ((node = vow__table_next(&s->pools, node)) != NULL)
        VOW__OUTER(node, struct cas_pool, node)->followed = false;
}

/* Changes behind the read of the first waiting request are told; an older read
 * is outrun. For a moment after the last waiting request, the service goes on:
 * mostly the next request is near. */
void vow__cas_pools_follow(struct cas *s, uint64_t revision)
{
    if (s->service->ops->pools_follow == NULL || s->closing)
        return;
    if (s->n_queued > 0 && s->follow == 0) {
        s->follow = revision;
        s->service->ops->pools_follow(s->service, revision);
    }
    if (s->n_queued > 0)
        (void)vow_call_stop(&s->unfollow);
    else if (s->follow != 0 && !vow_call_pending(&s->unfollow))
        vow_call_weakly_at(&s->unfollow, s->loop,
                           vow_loop_due_ns(s->loop, UNFOLLOW_MS), on_unfollow,
                           s);
}

/* F1: if the read is of the newest event, both are of the same revision. */
static inline void pool_check_sums(const struct cas_pool *pool,
                                   const struct cas_pool_found *found,
                                   const struct cas_row *rows, size_t n)
{
    if (!pool_watches(pool) || !pool->followed ||
        found->revision != pool->newest ||
        found->revision < pool->found.revision)
        return;
    VOW__ASSERT(pool->found.sums.marked == found->sums.marked);
    for (size_t i = 0; i < n; i++) {
        const struct cas_permit *p = vow__cas_permit_find(pool, &rows[i].token);
        if (p != NULL && p->state == CAS_PERMIT_QUEUED && p->followed &&
            p->order == rows[i].order && p->revision <= found->revision)
            VOW__ASSERT(p->before == rows[i].before);
    }
}

/* ---- what is told -------------------------------------------------------- */

void vow__cas_pool_changed(const struct cas_pool_event *e, void *user)
{
    struct cas *s = user;
    struct cas_pool *pool = vow__cas_pool_find(s, &e->pool);
    struct vow__table_node *node = NULL;
    if (s->closing)
        return;
    if (e->change != CAS_LIMITS_SET) {
        if (pool != NULL)
            pool_apply(pool, e);
        return;
    }
    while ((node = vow__table_next(&s->pools, node)) != NULL) {
        pool = VOW__OUTER(node, struct cas_pool, node);
        if (vow_name_equal(&pool->name.limits_of, &e->pool.limits_of))
            pool_apply(pool, e);
    }
}

/* Changes the sum of the marked weight; a sum that makes no sense is read
 * again. */
static void pool_mark_weight(struct cas_pool *pool, uint64_t plus,
                             uint64_t minus)
{
    struct rules_order *sums = &pool->found.sums;
    if (sums->marked + plus < minus)
        pool->followed = false;
    else
        sums->marked += plus - minus;
}

static void entry_apply(struct cas_pool *pool, const struct cas_pool_event *e)
{
    uint64_t now_us = vow__cas_loop_us(pool->cas);
    uint64_t age_us = e->entry.age_us == RULES_NEVER ? 0 : e->entry.age_us;
    struct cas_entry entry = e->entry;
    entry.since_us = age_us < now_us ? now_us - age_us : 0;
    if (e->change == CAS_ENTRY_GONE)
        entries_remove(&pool->found, entry.id);
    else if (vow__cas_entries_put(&pool->found, &entry) < 0)
        pool->followed = false; /* keeps F1 */
}

/* The sums do not depend on the limits. */
static void limits_apply(struct cas_pool_found *found,
                         const struct cas_pool_event *e)
{
    found->there = e->there;
    found->limits = e->limits;
    found->limits_version = e->limits_version;
}

static void pool_apply(struct cas_pool *pool, const struct cas_pool_event *e)
{
    struct vow__table_node *node = NULL;
    if (e->revision > pool->newest)
        pool->newest = e->revision;
    if (pool->followed && e->revision > pool->found.revision) {
        if (e->change == CAS_ROW_MARKED)
            pool_mark_weight(pool, e->weight, 0);
        else if (e->change == CAS_ROW_GONE && e->marked)
            pool_mark_weight(pool, 0, e->weight);
        else if (e->change == CAS_ENTRY_SET || e->change == CAS_ENTRY_GONE)
            entry_apply(pool, e);
        else if (e->change == CAS_LIMITS_SET)
            limits_apply(&pool->found, e);
    }
    while ((node = vow__table_next(&pool->permits, node)) != NULL)
        permit_apply(permit_of(node), e);
    vow__cas_pool_judge(pool);
}

static void permit_apply(struct cas_permit *p, const struct cas_pool_event *e)
{
    bool row = e->change == CAS_ROW_MARKED || e->change == CAS_ROW_GONE;
    if (!row || p->state != CAS_PERMIT_QUEUED || !p->followed ||
        e->revision <= p->revision)
        return;
    if (e->order == p->order && is_token_of(&e->token, &p->token)) {
        p->marked = true;
        if (e->change == CAS_ROW_GONE)
            vow__cas_permit_unseat(p);
    } else if (e->order < p->order && !e->marked) {
        if (p->before < e->weight)
            p->followed = false;
        else
            p->before -= e->weight;
    }
}

/* Under a rate, the request may be only the first in the queue. */
static void permit_look(struct cas_permit *p, bool rated)
{
    if (rated)
        vow__cas_permit_tell(p);
    else
        vow__cas_permit_turn(p, true);
}

/* Without a watch: the service says that the request may have its turn. The
 * answer to a step under way may be older than this event. */
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

static void pool_unfollow(struct cas_pool *pool)
{
    struct vow__table_node *node = NULL;
    pool->followed = false;
    while ((node = vow__table_next(&pool->permits, node)) != NULL)
        permit_of(node)->followed = false;
}

void vow__cas_pools_doubt(struct cas *s)
{
    struct vow__table_node *node = NULL;
    s->doubts++;
    s->follow = s->follow > 0; /* the numbers may begin again lower */
    while ((node = vow__table_next(&s->pools, node)) != NULL) {
        struct cas_pool *pool = VOW__OUTER(node, struct cas_pool, node);
        pool->newest = 0;
        pool->found.revision = 0;
        pool_unfollow(pool);
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
    bool look = !pool->followed;
    while (pool->followed &&
           (node = vow__table_next(&pool->permits, node)) != NULL) {
        struct cas_permit *p = permit_of(node);
        if (p->state != CAS_PERMIT_QUEUED)
            continue;
        look = look || !p->followed;
        if (p->followed)
            vow__cas_permit_turn(p, permit_judge(p, &tally, now_us, &when_us));
    }
    if (when_us != RULES_NEVER)
        vow_call_weakly_at(&pool->clock, loop,
                           vow_loop_due_ns(loop, (when_us - now_us) / 1000 + 1),
                           on_pool_judge, pool);
    if (look && !pool->looking && !vow_call_pending(&pool->look))
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
