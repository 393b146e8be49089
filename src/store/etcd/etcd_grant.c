/* SPDX-License-Identifier: MIT */
/* etcd_grant.c - from the keys of a pool to who holds a place, and who waits.
 *
 * WHY   Etcd runs no code of ours: there is no one place where a place is
 *       granted. Each process judges by itself, from keys that it has read at
 *       one revision, and all must judge alike, at any revision from then on.
 * HOW   Places stand in the order in which etcd created them. One that is
 *       marked is held. Without a rate an unmarked one is held as well if the
 *       marked, the unmarked before it and itself fit: nobody needs to write
 *       that. With a rate nothing is held that is not marked; who may be, by
 *       the same sum and by the rate with all unmarked before it, marks itself
 *       and writes a toll in one transaction. The toll counts as of now until
 *       its writer tells that the work has started.
 * INVARIANTS  while the limits stay as they are:
 *   G1  who is held stays so until it goes: what came later never counts, what
 *       goes makes sums smaller, a mark moves a weight that its own successors
 *       have counted already; and marking one that is held takes no place from
 *       one before it, whose sum is part of the other's
 *   G2  the weight held is at most `concurrent`: the last of the unmarked that
 *       are held has counted all marked, all unmarked that are held, and itself
 *   G3  the tolls of any window are at most `rate`: of those in a window, the
 *       last in the queue counted every other when it was marked, as a toll or
 *       as unmarked before it
 *   G4  one whose weight is never allowed, and before whom nobody waits, is
 *       out: it is not counted, and it will not come back. Before that it
 *       counts as all do, for those behind it wait anyway
 *   Whoever changes limits marks who is held and deletes who is out: see
 *   etcd_limit.c.
 * LIMITS  O(n) to rank, O(n log n) if they came unsorted; O(n) to find one.
 *       Who is far behind asks more seldom: FAR places double the time.
 * THREADS  any; it knows no loop.
 */
#include "store/etcd/etcd_grant.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 8, FAR = 8, US_PER_MS = 1000 };

static int room_for_one(const struct vow_alloc *alloc, void **items, size_t n,
                        size_t *room, size_t size);
static int keep_text(struct vow__crowd *c, const char *text, size_t size,
                     struct vow__seat *seat);
static int by_creation(const void *a, const void *b);
static int by_time(const void *a, const void *b);
static int by_id(const void *a, const void *b);
static void put_in_order(struct vow__crowd *c, uint64_t now_us);
static void find_least(struct vow__crowd *c);
static uint64_t used(const struct vow__crowd *c, uint64_t now_us);
static uint64_t when_us(const struct vow__crowd *c,
                        const struct vow__seat *seat, uint64_t now_us);
static uint64_t leaves_us(const struct vow__crowd *c, uint64_t units,
                          uint64_t now_us);
static uint64_t plus(uint64_t a, uint64_t b);
static uint64_t times(uint64_t a, uint64_t b);

/* ---- who is there -------------------------------------------------------- */

void vow__crowd_init(struct vow__crowd *c, const struct vow_alloc *alloc)
{
    *c = (struct vow__crowd){.alloc = *alloc};
}

void vow__crowd_fini(struct vow__crowd *c)
{
    vow__mem_free(&c->alloc, c->seats, c->room * sizeof(c->seats[0]));
    vow__mem_free(&c->alloc, c->tolls, c->toll_room * sizeof(c->tolls[0]));
    vow__mem_free(&c->alloc, c->texts, c->texts_room);
    vow__crowd_init(c, &c->alloc);
}

static int room_for_one(const struct vow_alloc *alloc, void **items, size_t n,
                        size_t *room, size_t size)
{
    if (n < *room)
        return 0;
    size_t more = *room == 0 ? FIRST_ROOM : 2 * *room;
    void *fresh =
        more > SIZE_MAX / size ? NULL : vow__mem_new(alloc, more * size);
    if (fresh == NULL)
        return VOW_ENOMEM;
    if (n > 0)
        memcpy(fresh, *items, n * size);
    vow__mem_free(alloc, *items, *room * size);
    *items = fresh;
    *room = more;
    return 0;
}

int vow__crowd_add(struct vow__crowd *c, const struct vow__seat *seat,
                   const char *text, size_t text_size)
{
    void *items = c->seats;
    struct vow__seat kept = *seat;
    int rc = keep_text(c, text, text_size, &kept);
    if (rc == 0)
        rc = room_for_one(&c->alloc, &items, c->n, &c->room, sizeof(kept));
    if (rc < 0)
        return rc;
    c->seats = items;
    c->seats[c->n++] = kept;
    return 0;
}

static int keep_text(struct vow__crowd *c, const char *text, size_t size,
                     struct vow__seat *seat)
{
    seat->text = c->texts_n;
    seat->text_size = text == NULL ? 0 : size;
    if (seat->text_size == 0)
        return 0;
    if (size > c->texts_room - c->texts_n) {
        size_t room = 2 * (c->texts_room + size);
        char *texts = vow__mem_new(&c->alloc, room);
        if (texts == NULL)
            return VOW_ENOMEM;
        if (c->texts_n > 0)
            memcpy(texts, c->texts, c->texts_n);
        vow__mem_free(&c->alloc, c->texts, c->texts_room);
        c->texts = texts;
        c->texts_room = room;
    }
    memcpy(c->texts + c->texts_n, text, size);
    c->texts_n += size;
    return 0;
}

int vow__crowd_set(struct vow__crowd *c, const struct vow__seat *seat)
{
    struct vow__seat *old = vow__crowd_find(c, &seat->token);
    if (old == NULL)
        return vow__crowd_add(c, seat, NULL, 0);
    *old = *seat;
    old->text_size = 0;
    return 0;
}

void vow__crowd_remove(struct vow__crowd *c, const vow_token *token)
{
    struct vow__seat *seat = vow__crowd_find(c, token);
    if (seat == NULL)
        return;
    c->n--;
    memmove(seat, seat + 1, (c->n - (size_t)(seat - c->seats)) * sizeof(*seat));
}

struct vow__seat *vow__crowd_find(const struct vow__crowd *c,
                                  const vow_token *token)
{
    for (size_t i = 0; i < c->n; i++)
        if (memcmp(&c->seats[i].token, token, sizeof(*token)) == 0)
            return &c->seats[i];
    return NULL;
}

/* ---- tolls --------------------------------------------------------------- */

/* One that was seen already is not younger now. */
int vow__crowd_charge(struct vow__crowd *c, const struct vow__toll *toll)
{
    void *items = c->tolls;
    for (size_t i = 0; i < c->n_tolls; i++) {
        if (c->tolls[i].id != toll->id)
            continue;
        uint64_t since = c->tolls[i].since_us;
        bool same = c->tolls[i].mod == toll->mod;
        c->tolls[i] = *toll;
        if (same && since < toll->since_us)
            c->tolls[i].since_us = since;
        return 0;
    }
    int rc = room_for_one(&c->alloc, &items, c->n_tolls, &c->toll_room,
                          sizeof(*toll));
    if (rc < 0)
        return rc;
    c->tolls = items;
    c->tolls[c->n_tolls++] = *toll;
    return 0;
}

void vow__crowd_forgive(struct vow__crowd *c, uint64_t id)
{
    for (size_t i = 0; i < c->n_tolls; i++) {
        if (c->tolls[i].id == id) {
            c->tolls[i] = c->tolls[--c->n_tolls];
            return;
        }
    }
}

static void sort(struct vow__toll *tolls, size_t n,
                 int (*order)(const void *, const void *))
{
    if (n > 1)
        qsort(tolls, n, sizeof(tolls[0]), order);
}

void vow__crowd_recall(struct vow__crowd *c, struct vow__crowd *old)
{
    size_t k = 0;
    sort(c->tolls, c->n_tolls, by_id);
    sort(old->tolls, old->n_tolls, by_id);
    for (size_t i = 0; i < c->n_tolls; i++) {
        struct vow__toll *t = &c->tolls[i];
        while (k < old->n_tolls && old->tolls[k].id < t->id)
            k++;
        if (k < old->n_tolls && old->tolls[k].id == t->id &&
            old->tolls[k].mod == t->mod && old->tolls[k].since_us < t->since_us)
            t->since_us = old->tolls[k].since_us;
    }
}

/* A window is closed at both ends. */
bool vow__toll_counts(const struct vow__crowd *c, const struct vow__toll *toll,
                      uint64_t now_us)
{
    return toll->open > 0 ||
           plus(toll->since_us, c->limits.window_us) >= now_us;
}

static uint64_t used(const struct vow__crowd *c, uint64_t now_us)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < c->n_tolls; i++)
        if (vow__toll_counts(c, &c->tolls[i], now_us))
            sum = plus(sum, c->tolls[i].weight);
    return sum;
}

/* ---- ranks --------------------------------------------------------------- */

static int compare(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int by_creation(const void *a, const void *b)
{
    return compare(((const struct vow__seat *)a)->create,
                   ((const struct vow__seat *)b)->create);
}

static int by_time(const void *a, const void *b)
{
    return compare(((const struct vow__toll *)a)->since_us,
                   ((const struct vow__toll *)b)->since_us);
}

static int by_id(const void *a, const void *b)
{
    return compare(((const struct vow__toll *)a)->id,
                   ((const struct vow__toll *)b)->id);
}

static void put_in_order(struct vow__crowd *c, uint64_t now_us)
{
    bool sorted = true;
    for (size_t i = 1; i < c->n && sorted; i++)
        sorted = c->seats[i - 1].create <= c->seats[i].create;
    if (!sorted)
        qsort(c->seats, c->n, sizeof(c->seats[0]), by_creation);
    for (size_t i = 0; i < c->n_tolls; i++)
        if (c->tolls[i].open > 0)
            c->tolls[i].since_us = now_us;
    sort(c->tolls, c->n_tolls, by_time);
}

bool vow__limits_allow(const vow_pool_limits *l, uint32_t weight)
{
    return (l->concurrent == 0 || weight <= l->concurrent) &&
           (l->rate == 0 || weight <= l->rate);
}

void vow__crowd_rank(struct vow__crowd *c, uint64_t now_us)
{
    const vow_pool_limits *limits = &c->limits;
    uint64_t sum = 0; /* of the marked, and the unmarked so far */
    uint64_t ahead = 0, before = 0;
    bool waits = false; /* somebody before it */
    put_in_order(c, now_us);
    find_least(c);
    uint64_t paid = limits->rate > 0 ? used(c, now_us) : 0;
    for (size_t i = 0; i < c->n; i++)
        sum += c->seats[i].marked ? c->seats[i].weight : 0;
    for (size_t i = 0; i < c->n; i++) {
        struct vow__seat *s = &c->seats[i];
        s->ahead = ahead;
        s->before = before;
        s->rank = VOW__RANK_HELD;
        if (s->marked)
            continue;
        s->rank = VOW__RANK_OUT;
        if (!waits && !vow__limits_allow(limits, s->weight)) /* G4 */
            continue;
        sum += s->weight;
        bool fits = limits->concurrent == 0 || sum <= limits->concurrent;
        bool allowed =
            limits->rate == 0 || plus(paid, before + s->weight) <= limits->rate;
        s->rank = !fits || !allowed   ? VOW__RANK_WAITS
                  : limits->rate == 0 ? VOW__RANK_HELD
                                      : VOW__RANK_TURN;
        if (s->rank == VOW__RANK_HELD)
            continue;
        waits |= s->rank == VOW__RANK_WAITS;
        ahead++;
        before += s->weight;
    }
}

static void find_least(struct vow__crowd *c)
{
    c->least = 0;
    c->least_ms = UINT64_MAX;
    c->second_ms = UINT64_MAX;
    for (size_t i = 0; i < c->n; i++) {
        uint64_t ms = c->seats[i].lease_ms;
        if (ms < c->least_ms) {
            c->second_ms = c->least_ms;
            c->least_ms = ms;
            c->least = i;
        } else if (ms < c->second_ms) {
            c->second_ms = ms;
        }
    }
}

void vow__crowd_count(const struct vow__crowd *c, uint64_t now_us,
                      vow_pool_info *info)
{
    info->held = info->holders = info->waiting = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct vow__seat *s = &c->seats[i];
        bool held = s->rank == VOW__RANK_HELD;
        info->held += held ? s->weight : 0;
        info->holders += held;
        info->waiting += !held && s->rank != VOW__RANK_OUT;
    }
    info->rate_used = used(c, now_us);
}

/* ---- when to ask again --------------------------------------------------- */

/* By the rate, if that holds it back: it is counted as if all before it came
 * at once, so it is never too late. Else a lease must end, and wake-ups come;
 * its own is renewed before it is over. */
uint64_t vow__crowd_again_us(const struct vow__crowd *c,
                             const struct vow__seat *seat, uint64_t now_us)
{
    if (seat->rank == VOW__RANK_TURN)
        return 1;
    if (c->limits.rate > 0) {
        uint64_t when = when_us(c, seat, now_us);
        if (when > now_us)
            return when - now_us;
    }
    bool mine = &c->seats[c->least] == seat;
    uint64_t others = times(mine ? c->second_ms : c->least_ms, US_PER_MS);
    others = plus(times(others, 1 + seat->ahead / FAR), US_PER_MS);
    uint64_t own = times(seat->lease_ms, US_PER_MS) / 2 + 1;
    return others < own ? others : own;
}

/* Of all units that are still to be granted, number n can follow when number
 * n - rate has left the window. So whole rates ahead are whole windows. */
static uint64_t when_us(const struct vow__crowd *c,
                        const struct vow__seat *seat, uint64_t now_us)
{
    uint64_t rate = c->limits.rate;
    uint64_t n = seat->before + seat->weight;
    uint64_t paid = used(c, now_us);
    VOW__ASSERT(n > 0);
    uint64_t windows = (n - 1) / rate;
    uint64_t first = n - windows * rate; /* 1 to rate */
    uint64_t when = now_us;
    if (plus(paid, first) > rate)
        when = leaves_us(c, paid + first - rate, now_us);
    return plus(when, times(windows, plus(c->limits.window_us, 1)));
}

/* When the oldest `units` will have left. */
static uint64_t leaves_us(const struct vow__crowd *c, uint64_t units,
                          uint64_t now_us)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < c->n_tolls; i++) {
        if (!vow__toll_counts(c, &c->tolls[i], now_us))
            continue;
        sum = plus(sum, c->tolls[i].weight);
        if (sum >= units)
            return plus(plus(c->tolls[i].since_us, c->limits.window_us), 1);
    }
    return now_us;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    return b != 0 && a > UINT64_MAX / b ? UINT64_MAX : a * b;
}
