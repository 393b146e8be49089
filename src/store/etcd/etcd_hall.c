/* SPDX-License-Identifier: MIT */
/* etcd_hall.c - the pools where this instance has places, and these places.
 *
 * WHY   All places of a process hang on one lease of etcd, which lives as long
 *       as one of them is renewed. A place that is not must end by itself, and
 *       all of them when the store is closed.
 * HOW   A guest is a place that was asked for here and was not yet given back.
 *       It has the end of its own lease, and is ended by a step in the lane of
 *       its pool: so no answer of a step says that it is there when its end is
 *       on the way. One whose turn has come and who does not come for it within
 *       ACCEPT_MS is ended as well.
 *       A hall is a pool that has guests, or a step that looks at it; and for
 *       a window more if it has tolls, whose age only who has seen them knows.
 * INVARIANTS
 *   H1  whoever may have a seat in etcd by a step of this instance is a guest
 *   H2  a guest whose step waits in its lane is freed by that step
 * LIMITS  What cannot be ended is tried again each RETRY_MS. What cannot be
 *         given back when the store is closed goes when its lease ends. What
 *         comes later than LATEST_MS after it was asked stays as long as the
 *         lease of this process.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_pools.h"

#include "base/assert.h"
#include "base/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ACCEPT_MS = 2000,
    RETRY_MS = 1000,
    LATEST_MS = 60000,
    REST_MS = 60000, /* how long tolls that nobody asks for are remembered */
    DELETES = 100,
    BOOT_ID = 36
};

static void read_boot(char *boot, size_t size);
static void hall_free(struct vow__hall *h);
static void on_rest(void *hall);
static void guest_free(struct vow__guest *g);
static void guest_state(struct vow__guest *g, enum vow__guest_state to);
static void arm(struct vow__guest *g);
static bool linger(struct vow__guest *g);
static void on_over(void *guest);
static void begin_end(struct vow__step_lane *step);
static void on_ended(struct vow__etcd *e, int code, const json_t *root,
                     void *guest);
static void refuse_end(struct vow__step_lane *step, int code);
static void end_ended(struct vow__guest *g, bool gone);
static void leave_hall(struct vow__hall *h, struct vow__txn *t, size_t *n);
static void send_leave(struct vow__etcd_places *p, struct vow__txn *t);
static void on_left(struct vow__etcd *e, int code, const json_t *root,
                    void *places);

/* ---- opening and closing ------------------------------------------------- */

int vow__etcd_places_open(struct vow__etcd *e,
                          struct vow__etcd_places **ret_places)
{
    struct vow_alloc alloc = *vow__etcd_alloc(e);
    struct vow__etcd_places *p = vow__mem_zero(&alloc, sizeof(*p));
    if (p == NULL)
        return VOW_ENOMEM;
    p->etcd = e;
    p->alloc = alloc;
    vow__table_init(&p->halls, &p->alloc, vow_loop_random(vow__etcd_loop(e)));
    read_boot(p->boot, sizeof(p->boot));
    *ret_places = p;
    return 0;
}

/* Those that have the same share a clock. "": nobody does. */
static void read_boot(char *boot, size_t size)
{
    char id[BOOT_ID + 1] = "";
    struct stat clock; /* the clock of a container may be set apart */
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, id, BOOT_ID);
    if (fd >= 0)
        (void)close(fd);
    bool good = n == BOOT_ID && strlen(id) == BOOT_ID &&
                stat("/proc/self/ns/time", &clock) == 0;
    if (good)
        (void)snprintf(boot, size, "%s.%lu", id, (unsigned long)clock.st_ino);
    else
        boot[0] = 0;
}

struct vow__instant vow__places_now(struct vow__etcd *e)
{
    return (struct vow__instant){.loop_us =
                                     vow_loop_now_ns(vow__etcd_loop(e)) / 1000,
                                 .boot_us = vow__clock_boot_ns() / 1000,
                                 .boot = vow__etcd_places(e)->boot};
}

void vow__etcd_places_close(struct vow__etcd_places *p)
{
    struct vow_alloc alloc = p->alloc;
    struct vow__table_node *n;
    vow__wake_close(p);
    while ((n = vow__table_next(&p->halls, NULL)) != NULL)
        hall_free(VOW__OUTER(n, struct vow__hall, named));
    (void)vow_call_stop(&p->idle);
    vow__table_fini(&p->halls);
    vow__mem_free(&alloc, p, sizeof(*p));
}

/* All steps have ended. */
void vow__etcd_places_leave(struct vow__etcd *e,
                            void (*done)(struct vow__etcd *e))
{
    struct vow__etcd_places *p = vow__etcd_places(e);
    struct vow__table_node *at = NULL;
    struct vow__txn t;
    size_t n = 0;
    vow__wake_close(p);
    p->left = done;
    p->leaving = 1; /* until all are sent */
    vow__txn_init(&t, &p->alloc, vow__etcd_where_of(e)->prefix);
    while ((at = vow__table_next(&p->halls, at)) != NULL)
        leave_hall(VOW__OUTER(at, struct vow__hall, named), &t, &n);
    if (n > 0)
        send_leave(p, &t);
    vow__txn_fini(&t);
    on_left(e, 0, NULL, p);
}

static void leave_hall(struct vow__hall *h, struct vow__txn *t, size_t *n)
{
    struct vow__table_node *at = NULL;
    while ((at = vow__table_next(&h->guests, at)) != NULL) {
        struct vow__guest *g = VOW__OUTER(at, struct vow__guest, named);
        struct vow__key key = vow__seat_key(&h->name, &g->token);
        (void)vow_call_stop(&g->end);
        vow__txn_delete(t, VOW__THEN, &key, 0);
        if (++*n < DELETES)
            continue;
        send_leave(h->places, t);
        *n = 0;
    }
}

static void send_leave(struct vow__etcd_places *p, struct vow__txn *t)
{
    p->leaving++;
    vow__etcd_txn(p->etcd, t, on_left, p);
}

static void on_left(struct vow__etcd *e, int code, const json_t *root,
                    void *places)
{
    struct vow__etcd_places *p = places;
    (void)code;
    (void)root;
    if (--p->leaving == 0)
        p->left(e);
}

/* ---- halls --------------------------------------------------------------- */

struct vow__hall *vow__hall_find(struct vow__etcd_places *p,
                                 const struct vow__hall_name *name)
{
    struct vow__table_node *n =
        vow__table_find(&p->halls, (const char *)name, sizeof(*name));
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__hall, named);
}

struct vow__hall *vow__hall_enter(struct vow__etcd *e,
                                  const struct vow__hall_name *name)
{
    struct vow__etcd_places *p = vow__etcd_places(e);
    struct vow__hall *h = vow__hall_find(p, name);
    if (h != NULL) {
        vow__hall_use(h);
        return h;
    }
    h = vow__mem_zero(&p->alloc, sizeof(*h));
    if (h == NULL)
        return NULL;
    h->places = p;
    h->name = *name;
    h->steps = 1;
    h->named = (struct vow__table_node){.name = (const char *)&h->name,
                                        .length = sizeof(h->name)};
    vow__crowd_init(&h->crowd, &p->alloc);
    vow__table_init_hashed(&h->guests, &p->alloc,
                           vow_loop_random(vow__etcd_loop(e)));
    if (vow__table_add(&p->halls, &h->named) == 0)
        return h;
    vow__table_fini(&h->guests);
    vow__mem_free(&p->alloc, h, sizeof(*h));
    return NULL;
}

void vow__hall_use(struct vow__hall *h)
{
    h->steps++;
    (void)vow_call_stop(&h->rest);
}

void vow__hall_leave(struct vow__hall *h)
{
    vow_loop *loop = vow__etcd_loop(h->places->etcd);
    uint64_t ms = h->crowd.limits.window_us / 1000 + 1;
    VOW__ASSERT(h->steps > 0);
    if (--h->steps > 0 || h->guests.count > 0)
        return;
    if (h->crowd.n_tolls == 0 || vow__etcd_closing(h->places->etcd))
        hall_free(h);
    else
        vow_call_weakly_at(&h->rest, loop,
                           vow_loop_due_ns(loop, ms < REST_MS ? ms : REST_MS),
                           on_rest, h);
}

static void on_rest(void *hall)
{
    hall_free(hall);
}

static void hall_free(struct vow__hall *h)
{
    struct vow__etcd_places *p = h->places;
    struct vow__table_node *n;
    while ((n = vow__table_next(&h->guests, NULL)) != NULL)
        guest_free(VOW__OUTER(n, struct vow__guest, named));
    (void)vow_call_stop(&h->wake);
    (void)vow_call_stop(&h->clock);
    (void)vow_call_stop(&h->rest);
    vow__table_fini(&h->guests);
    vow__crowd_fini(&h->crowd);
    vow__table_remove(&p->halls, &h->named);
    vow__mem_free(&p->alloc, h, sizeof(*h));
}

/* ---- guests -------------------------------------------------------------- */

struct vow__guest *vow__guest_find(const struct vow__hall *h,
                                   const vow_token *token)
{
    struct vow__table_node *n = vow__table_find(
        &h->guests, (const char *)token->bytes, sizeof(token->bytes));
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__guest, named);
}

struct vow__guest *vow__guest_enter(struct vow__hall *h, const vow_token *token)
{
    struct vow__guest *g = vow__guest_find(h, token);
    if (g != NULL)
        return g;
    g = vow__mem_zero(&h->places->alloc, sizeof(*g));
    if (g == NULL)
        return NULL;
    g->hall = h;
    g->token = *token;
    g->named = (struct vow__table_node){.name = (const char *)g->token.bytes,
                                        .length = sizeof(g->token.bytes)};
    if (vow__table_add(&h->guests, &g->named) == 0)
        return g;
    vow__mem_free(&h->places->alloc, g, sizeof(*g));
    return NULL;
}

/* Keeps H2: the step finds it over, and frees it. */
void vow__guest_dismiss(struct vow__guest *g)
{
    if (g == NULL)
        return;
    guest_state(g, VOW__GUEST_ASKED);
    g->over_ns = 0;
    if (!g->ending && !linger(g))
        guest_free(g);
}

static void guest_free(struct vow__guest *g)
{
    struct vow__hall *h = g->hall;
    guest_state(g, VOW__GUEST_ASKED);
    if (g->in_news)
        vow__list_remove(&h->places->news, &g->news);
    (void)vow_call_stop(&g->end);
    vow__table_remove(&h->guests, &g->named);
    vow__mem_free(&h->places->alloc, g, sizeof(*g));
}

void vow__guest_seated(struct vow__guest *g, const struct vow__crowd *c,
                       const struct vow__seat *seat, bool held)
{
    g->create = seat->create;
    g->fence = seat->create + c->offset;
    guest_state(g, held ? VOW__GUEST_HELD : VOW__GUEST_QUEUED);
}

/* ---- starts under a rate ------------------------------------------------- */

uint32_t vow__toll_open(const struct vow__hall *h, uint64_t toll_id)
{
    uint32_t open = 0;
    struct vow__table_node *n = NULL;
    while ((n = vow__table_next(&h->guests, n)) != NULL) {
        const struct vow__guest *g = VOW__OUTER(n, struct vow__guest, named);
        open +=
            g->toll_id == toll_id && g->state == VOW__GUEST_HELD && !g->started;
    }
    return open;
}

/* Nobody else writes these tolls, and steps of a pool come one by one. */
static bool is_ours(const struct vow__hall *h, uint64_t toll_id)
{
    struct vow__table_node *n = NULL;
    while ((n = vow__table_next(&h->guests, n)) != NULL)
        if (VOW__OUTER(n, struct vow__guest, named)->toll_id == toll_id)
            return true;
    return false;
}

size_t vow__tolls_start(struct vow__txn *t, const struct vow__hall *h,
                        struct vow__crowd *c, size_t most)
{
    struct vow__instant now = vow__places_now(h->places->etcd);
    size_t n = 0;
    for (size_t i = 0; i < c->n_tolls && n < most; i++) {
        struct vow__toll *toll = &c->tolls[i];
        if (toll->open == 0 || !is_ours(h, toll->id))
            continue;
        uint32_t open = vow__toll_open(h, toll->id);
        if (open >= toll->open)
            continue;
        struct vow__key key = vow__toll_key(&h->name, toll->id);
        struct vow__jot value;
        toll->open = open;
        toll->since_us = now.loop_us;
        vow__jot_init(&value, &h->places->alloc);
        vow__toll_write(&value, c, toll, &now);
        vow__txn_if_mod(t, &key, toll->mod);
        vow__txn_put(t, VOW__THEN, &key, &value, toll->lease);
        vow__jot_fini(&value);
        n++;
    }
    return n;
}

/* Whatever it is now, it was heard of. */
static void guest_state(struct vow__guest *g, enum vow__guest_state to)
{
    struct vow__etcd_places *p = g->hall->places;
    p->queued -= g->state == VOW__GUEST_QUEUED;
    g->state = (uint8_t)to;
    p->queued += g->state == VOW__GUEST_QUEUED;
    vow__wake_count(p);
    if (!g->told)
        return;
    g->told = false;
    arm(g);
}

void vow__guest_lease(struct vow__guest *g, uint64_t lease_ms)
{
    g->over_ns =
        vow_loop_due_ns(vow__etcd_loop(g->hall->places->etcd), lease_ms);
    arm(g);
}

void vow__guest_turn(struct vow__guest *g, bool turn)
{
    if (g->told == turn)
        return;
    g->told = turn;
    g->forfeit_ns =
        vow_loop_due_ns(vow__etcd_loop(g->hall->places->etcd), ACCEPT_MS);
    arm(g);
    if (turn)
        vow__guest_tell(g);
}

/* ---- their end ----------------------------------------------------------- */

static uint64_t end_ns(const struct vow__guest *g)
{
    return g->told && g->forfeit_ns < g->over_ns ? g->forfeit_ns : g->over_ns;
}

static void arm(struct vow__guest *g)
{
    if (!g->ending)
        vow_call_weakly_at(&g->end, vow__etcd_loop(g->hall->places->etcd),
                           end_ns(g), on_over, g);
}

void vow__guest_late(struct vow__guest *g)
{
    g->late_ns =
        vow_loop_due_ns(vow__etcd_loop(g->hall->places->etcd), LATEST_MS);
}

/* Keeps H1: is it still to be looked for? Less and less often. */
static bool linger(struct vow__guest *g)
{
    struct vow__etcd_places *p = g->hall->places;
    vow_loop *loop = vow__etcd_loop(p->etcd);
    uint64_t now_ns = vow_loop_now_ns(loop);
    if (g->late_ns <= now_ns || vow__etcd_closing(p->etcd))
        return false;
    uint64_t left_ms = (g->late_ns - now_ns) / VOW__NS_PER_MS;
    uint64_t since_ms = left_ms < LATEST_MS ? LATEST_MS - left_ms : 0;
    guest_state(g, VOW__GUEST_ASKED);
    if (g->in_news)
        vow__list_remove(&p->news, &g->news);
    g->in_news = false;
    vow__guest_lease(g, since_ms > RETRY_MS ? since_ms : RETRY_MS);
    return true;
}

static void on_over(void *guest)
{
    struct vow__guest *g = guest;
    g->ending = true;
    vow__hall_use(g->hall);
    g->step = (struct vow__step_lane){
        .lane = g->hall->name.pool, .begin = begin_end, .refuse = refuse_end};
    vow__step_begin(g->hall->places->etcd, &g->step);
}

/* It may have been renewed meanwhile. */
static void begin_end(struct vow__step_lane *step)
{
    struct vow__guest *g = VOW__OUTER(step, struct vow__guest, step);
    struct vow__etcd *e = step->etcd;
    struct vow__key key = vow__seat_key(&g->hall->name, &g->token);
    struct vow__txn t;
    if (end_ns(g) > vow_loop_now_ns(vow__etcd_loop(e))) {
        vow__step_end(step);
        end_ended(g, false);
        return;
    }
    vow__hall_txn(step, &t);
    vow__txn_delete(&t, VOW__THEN, &key, 0);
    vow__etcd_txn(e, &t, on_ended, g);
}

static void on_ended(struct vow__etcd *e, int code, const json_t *root,
                     void *guest)
{
    struct vow__guest *g = guest;
    (void)root;
    (void)e;
    vow__step_end(&g->step);
    if (code < 0)
        vow__guest_lease(g, RETRY_MS);
    end_ended(g, code == 0);
}

static void refuse_end(struct vow__step_lane *step, int code)
{
    struct vow__guest *g = VOW__OUTER(step, struct vow__guest, step);
    (void)code;
    vow__guest_lease(g, RETRY_MS);
    end_ended(g, false);
}

static void end_ended(struct vow__guest *g, bool gone)
{
    struct vow__hall *h = g->hall;
    g->ending = false;
    if (gone && !linger(g))
        guest_free(g);
    else if (!gone && !vow__etcd_closing(h->places->etcd))
        arm(g);
    vow__hall_leave(h);
}
