/* SPDX-License-Identifier: MIT */
/* redis_pools.c - pool permits: acquire, release, renew.
 *
 * WHY   Limits that hosts share are kept by the server alone: each step is one
 *       script, see lua/places.lua, on the server's time.
 * HOW   All keys of a pool have the tag of the pool with the limits, so that
 *       one call can read both pools. Renewals of many permits are cut into
 *       calls of at most CALL_MAX, sorted by pools; in a cluster each tag has
 *       calls of its own. The answers of the calls are joined and given once.
 *       The store remembers the permits and requests of this instance, and
 *       releases all when the store is closed.
 * INVARIANTS
 *   P1  the memory for an answer is allocated before the call is sent
 * LIMITS  An answer that makes no sense is VOW_EUNSURE: the step may have
 *       happened.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_pools.h"

#include "base/assert.h"
#include "base/table.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALL_MAX = 128, ANSWER_ITEMS = 8 };
/* A place is known by its pool and token, all before this member. */
enum { HOLD_KEY = offsetof(vow_permit_hold, started) };

/* An answer: see lua/acquire.lua. */
enum { AT_STATUS, AT_FENCE, AT_AHEAD, AT_AGAIN, AT_LIMITS };

struct vow__redis_places {
    struct vow_alloc alloc;
    struct vow__table held; /* struct held: and those that queue */
    size_t leaving;         /* calls without an answer */
    void (*left)(struct vow__redis *r);
};

struct held {
    struct vow__table_node named; /* by all of the hold */
    vow_permit_hold hold;
};

/* A step on one place. */
struct step {
    vow_permits_fn done;
    void *user;
    vow_permit_hold hold;
    bool asks;  /* else it gives back */
    bool fresh; /* it was not known before */
};

/* A renewal of many: one block with all that follows. */
struct renewal {
    vow_permits_fn done;
    void *user;
    size_t size; /* of the block */
    size_t n;
    size_t left; /* calls without an answer */
    int code;    /* of one that was answered badly */
    vow_pool_permit *out;
    struct item *items; /* sorted by their pools */
    struct part *parts;
};
struct item {
    vow_permit_hold hold;
    size_t at; /* in `out` */
};
/* The places of one call. */
struct part {
    struct renewal *renewal;
    size_t first;
    size_t n;
};

static struct step *step_new(struct vow__redis *r, const struct step *like,
                             struct vow__call **ret_call);
static void on_permit(struct vow__redis *r, int code,
                      const struct vow__resp *reply, void *step);
static int read_place(const struct vow__resp *reply, vow_pool_permit *out);
static int remember(struct vow__redis *r, const vow_permit_hold *hold,
                    bool *ret_fresh);
static void forget(struct vow__redis *r, const vow_permit_hold *hold);
static struct renewal *renewal_new(struct vow__redis *r,
                                   const vow_permit_hold *holds, size_t n);
static int by_pool(const void *a, const void *b);
static size_t cut(const struct vow__redis *r, struct renewal *w);
static int part_send(struct vow__redis *r, struct part *p, uint64_t lease_us);
static void on_part(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *part);
static void join(struct vow__redis *r, struct renewal *w, int code);
static int give_back(struct vow__redis *r, const vow_permit_hold *hold);
static void on_left(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *places);

/* ---- keys and arguments -------------------------------------------------- */

void vow__redis_pool_keys(struct vow__call *c, const vow_name *limits_of,
                          const vow_name *pool)
{
    static const char *const parts[] = {"", ":p", ":q", ":e", ":g"};
    char tag[VOW_NAME_TEXT];
    char name[VOW_NAME_TEXT];
    char rest[VOW_NAME_TEXT + 8];
    bool own = vow_name_equal(limits_of, pool);
    (void)vow_name_text(limits_of, tag);
    (void)vow_name_text(pool, name);
    vow__call_key(c, "s:", tag, "");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        (void)snprintf(rest, sizeof(rest), "%s%s%s", own ? "" : ":",
                       own ? "" : name, parts[i]);
        vow__call_key(c, "s:", tag, rest);
    }
}

void vow__redis_limit_args(struct vow__call *c, const vow_pool_limits *limits)
{
    uint64_t window_us = limits->window_us;
    vow__call_uint(c, limits->concurrent);
    vow__call_uint(c, limits->rate);
    vow__call_uint(c, window_us < INT64_MAX ? window_us : INT64_MAX);
}

void vow__redis_text_arg(struct vow__call *c, const char *text)
{
    vow__call_arg(c, text == NULL ? "" : text, vow__redis_text_size(text));
}

static uint64_t us_of_ms(uint64_t ms)
{
    return 1000 * (ms < VOW__REDIS_MS_MAX ? ms : VOW__REDIS_MS_MAX);
}

/* ---- one place ----------------------------------------------------------- */

void vow__redis_acquire(vow_store *store, const vow_permit_request *ask,
                        vow_permits_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    struct step like = {.done = done, .user = user, .asks = true};
    struct vow__call *c;
    like.hold = (vow_permit_hold){
        .pool = ask->pool, .limits_of = ask->limits_of, .token = ask->token};
    int rc = VOW_EINVAL;
    if (ask->weight > 0 && ask->lease_ms > 0)
        rc = remember(r, &like.hold, &like.fresh);
    if (rc < 0) {
        done(rc, NULL, 0, user);
        return;
    }
    struct step *s = step_new(r, &like, &c);
    if (s == NULL)
        return;
    vow__call_arg(c, ask->token.bytes, sizeof(ask->token.bytes));
    vow__call_uint(c, ask->weight);
    vow__call_uint(c, ask->flags & VOW_PERMIT_TRY);
    vow__call_uint(c, us_of_ms(ask->lease_ms));
    vow__call_text(c, vow__redis_channel(r));
    vow__redis_limit_args(c, &ask->limits);
    bool own = vow_name_equal(&ask->pool, &ask->limits_of);
    vow__redis_text_arg(c, own ? ask->label : ask->limits_label);
    vow__redis_text_arg(c, ask->label);
    vow__call_send(c, on_permit, s);
}

void vow__redis_release(vow_store *store, const vow_permit_hold *hold,
                        vow_permits_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    struct vow__call *c;
    struct step *s = step_new(
        r, &(struct step){.done = done, .user = user, .hold = *hold}, &c);
    if (s == NULL)
        return;
    vow__call_arg(c, hold->token.bytes, sizeof(hold->token.bytes));
    vow__call_send(c, on_permit, s);
}

/* The call has its keys. NULL: told. */
static struct step *step_new(struct vow__redis *r, const struct step *like,
                             struct vow__call **ret_call)
{
    enum vow__script script = like->asks ? VOW__LUA_ACQUIRE : VOW__LUA_RELEASE;
    struct step *s = vow__mem_new(vow__redis_alloc(r), sizeof(*s));
    *ret_call = s == NULL ? NULL : vow__call_new(r, script);
    if (*ret_call == NULL) {
        vow__mem_free(vow__redis_alloc(r), s, sizeof(*s));
        if (like->fresh)
            forget(r, &like->hold);
        like->done(VOW_ENOMEM, NULL, 0, like->user);
        return NULL;
    }
    *s = *like;
    vow__redis_pool_keys(*ret_call, &like->hold.limits_of, &like->hold.pool);
    return s;
}

static void on_permit(struct vow__redis *r, int code,
                      const struct vow__resp *reply, void *step)
{
    struct step *s = step;
    vow_pool_permit place = {.status = VOW_STATUS_NONE};
    if (code == 0 && read_place(reply, &place) < 0) {
        vow__redis_trouble(r, "the server gave an answer that is none");
        code = VOW_EUNSURE;
    }
    if (code == 0 && s->asks && place.status == VOW_STATUS_NONE)
        code = VOW_EINVAL; /* the limits never allow it */
    bool unknown = code == VOW_EUNSURE || code == VOW_ECLOSED;
    bool none = code == VOW_EINVAL || place.status == VOW_STATUS_BUSY ||
                (code < 0 && !unknown && s->fresh);
    if (s->asks ? none : code == 0) /* else close() gives it back once more */
        forget(r, &s->hold);
    s->done(code, code == 0 ? &place : NULL, code == 0, s->user);
    vow__mem_free(vow__redis_alloc(r), s, sizeof(*s));
}

static int read_place(const struct vow__resp *reply, vow_pool_permit *out)
{
    uint64_t v[AT_LIMITS];
    if (reply->kind != VOW__RESP_LIST || reply->n != ANSWER_ITEMS)
        return VOW_EIO;
    for (size_t i = 0; i < AT_LIMITS; i++)
        v[i] = vow__resp_uint(vow__resp_at(reply, i), UINT64_MAX);
    bool known = v[AT_STATUS] == VOW_STATUS_OWNED ||
                 v[AT_STATUS] == VOW_STATUS_WAITING ||
                 v[AT_STATUS] == VOW_STATUS_BUSY ||
                 v[AT_STATUS] == VOW_STATUS_NONE;
    if (!known || v[AT_FENCE] == UINT64_MAX || v[AT_AHEAD] == UINT64_MAX ||
        v[AT_AGAIN] == UINT64_MAX)
        return VOW_EIO;
    *out = (vow_pool_permit){.status = (uint32_t)v[AT_STATUS],
                             .fence = v[AT_FENCE],
                             .ahead = v[AT_AHEAD],
                             .again_us = v[AT_AGAIN]};
    return vow__redis_limits_read(reply, AT_LIMITS, &out->limits);
}

int vow__redis_limits_read(const struct vow__resp *reply, size_t at,
                           vow_pool_limits *out)
{
    uint64_t v[3];
    for (size_t i = 0; i < 3; i++)
        v[i] = vow__resp_uint(vow__resp_at(reply, at + i), UINT64_MAX);
    if (v[0] > UINT32_MAX || v[1] > UINT32_MAX || v[2] == UINT64_MAX)
        return VOW_EIO;
    *out = (vow_pool_limits){.concurrent = (uint32_t)v[0],
                             .rate = (uint32_t)v[1],
                             .window_us = v[2]};
    return 0;
}

/* ---- renewals ------------------------------------------------------------ */

void vow__redis_renew(vow_store *store, const vow_permit_hold *holds, size_t n,
                      uint64_t lease_ms, vow_permits_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    int rc = lease_ms == 0 ? VOW_EINVAL : 0;
    struct renewal *w = rc < 0 || n == 0 ? NULL : renewal_new(r, holds, n);
    if (w == NULL) {
        done(rc < 0 || n == 0 ? rc : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    w->done = done;
    w->user = user;
    size_t parts = cut(r, w);
    w->left = parts + 1; /* until all are sent */
    for (size_t i = 0; i < parts; i++) {
        rc = part_send(r, &w->parts[i], us_of_ms(lease_ms));
        if (rc < 0)
            join(r, w, rc);
    }
    join(r, w, 0);
}

static struct renewal *renewal_new(struct vow__redis *r,
                                   const vow_permit_hold *holds, size_t n)
{
    size_t one =
        sizeof(vow_pool_permit) + sizeof(struct item) + sizeof(struct part);
    if (n > (SIZE_MAX - sizeof(struct renewal)) / one)
        return NULL;
    size_t size = sizeof(struct renewal) + n * one;
    struct renewal *w = vow__mem_zero(vow__redis_alloc(r), size);
    if (w == NULL)
        return NULL;
    w->size = size;
    w->n = n;
    w->out = (vow_pool_permit *)(void *)(w + 1);
    w->items = (struct item *)(void *)(w->out + n);
    w->parts = (struct part *)(void *)(w->items + n);
    for (size_t i = 0; i < n; i++)
        w->items[i] = (struct item){.hold = holds[i], .at = i};
    qsort(w->items, n, sizeof(w->items[0]), by_pool);
    return w;
}

static int by_pool(const void *a, const void *b)
{
    const struct item *x = a;
    const struct item *y = b;
    int order = memcmp(&x->hold.limits_of, &y->hold.limits_of,
                       sizeof(x->hold.limits_of));
    if (order == 0)
        order = memcmp(&x->hold.pool, &y->hold.pool, sizeof(x->hold.pool));
    if (order == 0)
        order = x->at < y->at ? -1 : 1;
    return order;
}

/* Into calls; how many there are. */
static size_t cut(const struct vow__redis *r, struct renewal *w)
{
    bool one_slot = vow__redis_one_slot(r);
    size_t parts = 0;
    struct part *p = NULL;
    for (size_t i = 0; i < w->n; i++) {
        bool joins =
            p != NULL && p->n < CALL_MAX &&
            (one_slot || vow_name_equal(&w->items[i].hold.limits_of,
                                        &w->items[p->first].hold.limits_of));
        if (!joins) {
            p = &w->parts[parts++];
            *p = (struct part){.renewal = w, .first = i};
        }
        p->n++;
    }
    return parts;
}

/* Is it of the same pool as the one before it? */
static bool same_pool(const struct part *p, size_t i)
{
    const struct item *items = p->renewal->items;
    return i > p->first &&
           vow_name_equal(&items[i].hold.limits_of,
                          &items[i - 1].hold.limits_of) &&
           vow_name_equal(&items[i].hold.pool, &items[i - 1].hold.pool);
}

static int part_send(struct vow__redis *r, struct part *p, uint64_t lease_us)
{
    const struct item *items = p->renewal->items;
    uint64_t pool = 0;
    struct vow__call *c = vow__call_new(r, VOW__LUA_RENEW);
    if (c == NULL)
        return VOW_ENOMEM;
    for (size_t i = p->first; i < p->first + p->n; i++)
        if (!same_pool(p, i))
            vow__redis_pool_keys(c, &items[i].hold.limits_of,
                                 &items[i].hold.pool);
    vow__call_uint(c, lease_us);
    vow__call_text(c, vow__redis_channel(r));
    for (size_t i = p->first; i < p->first + p->n; i++) {
        pool += !same_pool(p, i);
        vow__call_uint(c, pool);
        vow__call_arg(c, items[i].hold.token.bytes,
                      sizeof(items[i].hold.token.bytes));
        vow__call_uint(c, items[i].hold.started);
    }
    vow__call_send(c, on_part, p);
    return 0;
}

static void on_part(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *part)
{
    struct part *p = part;
    struct renewal *w = p->renewal;
    if (code == 0 && (reply->kind != VOW__RESP_LIST || reply->n != p->n))
        code = VOW_EIO;
    for (size_t i = 0; i < p->n && code == 0; i++) {
        const struct item *it = &w->items[p->first + i];
        vow_pool_permit *out = &w->out[it->at];
        code = read_place(vow__resp_at(reply, i), out);
        if (code < 0 || out->status != VOW_STATUS_NONE)
            continue;
        *out = (vow_pool_permit){.status = VOW_STATUS_NONE};
        forget(r, &it->hold);
    }
    if (code == VOW_EIO) {
        vow__redis_trouble(r, "the server gave an answer that is none");
        code = VOW_EUNSURE;
    }
    join(r, w, code);
}

static void join(struct vow__redis *r, struct renewal *w, int code)
{
    if (w->code == 0)
        w->code = code;
    if (--w->left > 0)
        return;
    bool good = w->code == 0;
    w->done(w->code, good ? w->out : NULL, good ? w->n : 0, w->user);
    vow__mem_free(vow__redis_alloc(r), w, w->size);
}

/* ---- what this instance has ---------------------------------------------- */

int vow__redis_places_open(struct vow__redis *r,
                           struct vow__redis_places **ret_places)
{
    struct vow__redis_places *p =
        vow__mem_zero(vow__redis_alloc(r), sizeof(*p));
    if (p == NULL)
        return VOW_ENOMEM;
    p->alloc = *vow__redis_alloc(r);
    vow__table_init(&p->held, &p->alloc, vow_loop_random(vow__redis_loop(r)));
    *ret_places = p;
    return 0;
}

void vow__redis_places_close(struct vow__redis_places *places)
{
    struct vow__table_node *n;
    if (places == NULL)
        return;
    while ((n = vow__table_next(&places->held, NULL)) != NULL) {
        struct held *h = VOW__OUTER(n, struct held, named);
        vow__table_remove(&places->held, n);
        vow__mem_free(&places->alloc, h, sizeof(*h));
    }
    vow__table_fini(&places->held);
    struct vow_alloc alloc = places->alloc;
    vow__mem_free(&alloc, places, sizeof(*places));
}

static int remember(struct vow__redis *r, const vow_permit_hold *hold,
                    bool *ret_fresh)
{
    struct vow__redis_places *places = vow__redis_places(r);
    *ret_fresh = false;
    if (vow__table_find(&places->held, (const char *)hold, HOLD_KEY) != NULL)
        return 0;
    struct held *h = vow__mem_new(&places->alloc, sizeof(*h));
    if (h == NULL)
        return VOW_ENOMEM;
    h->hold = *hold;
    h->named = (struct vow__table_node){.name = (const char *)&h->hold,
                                        .length = HOLD_KEY};
    int rc = vow__table_add(&places->held, &h->named);
    if (rc < 0)
        vow__mem_free(&places->alloc, h, sizeof(*h));
    *ret_fresh = rc == 0;
    return rc;
}

static void forget(struct vow__redis *r, const vow_permit_hold *hold)
{
    struct vow__redis_places *places = vow__redis_places(r);
    struct vow__table_node *n =
        vow__table_find(&places->held, (const char *)hold, HOLD_KEY);
    if (n == NULL)
        return;
    struct held *h = VOW__OUTER(n, struct held, named);
    vow__table_remove(&places->held, n);
    vow__mem_free(&places->alloc, h, sizeof(*h));
}

/* Those that cannot be given back now go when their lease ends. */
void vow__redis_places_leave(struct vow__redis *r,
                             void (*done)(struct vow__redis *r))
{
    struct vow__redis_places *places = vow__redis_places(r);
    struct vow__table_node *n;
    places->left = done;
    places->leaving = 1; /* until all are sent */
    while ((n = vow__table_next(&places->held, NULL)) != NULL) {
        vow_permit_hold hold = VOW__OUTER(n, struct held, named)->hold;
        forget(r, &hold);
        places->leaving++;
        if (give_back(r, &hold) < 0)
            places->leaving--;
    }
    on_left(r, 0, NULL, places);
}

static int give_back(struct vow__redis *r, const vow_permit_hold *hold)
{
    struct vow__call *c = vow__call_new(r, VOW__LUA_RELEASE);
    if (c == NULL)
        return VOW_ENOMEM;
    vow__redis_pool_keys(c, &hold->limits_of, &hold->pool);
    vow__call_arg(c, hold->token.bytes, sizeof(hold->token.bytes));
    vow__call_send(c, on_left, vow__redis_places(r));
    return 0;
}

static void on_left(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *places)
{
    struct vow__redis_places *p = places;
    (void)code;
    (void)reply;
    if (--p->leaving == 0)
        p->left(r);
}
