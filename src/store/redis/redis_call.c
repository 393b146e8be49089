/* SPDX-License-Identifier: MIT */
/* redis_call.c - a call of a script, from the first key to the answer; and a
 * plain command to every master.
 *
 * HOW   Keys and arguments are encoded as they come. The number of keys stands
 *       in front and is known last: the buffer begins with room for the number,
 *       and the call is sent from the first used byte on. A call keeps the
 *       words until the answer, so that the call can go to another server.
 * INVARIANTS
 *   C1  a call is answered exactly once, and then freed
 * THREADS  loop thread only.
 */
#include "store/redis/redis_route.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    ROOM = 17, /* "$10\r\n0123456789\r\n" */
    KEY_MAX = 512,
    USUAL = 768 /* bytes that most calls need not grow beyond */
};

struct each;

static struct vow__call *call_new(struct vow__redis_route *route, uint8_t kind);
static void frame(struct vow__call *c);
static void expand(struct vow__call *c);
static struct each *each_new(const struct vow__call *c);
static void each_drop(struct vow__redis_route *route, struct each *e);
static size_t each_size(size_t n);
static void on_each(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *user);
static void call_free(struct vow__call *c);

/* ---- making one ---------------------------------------------------------- */

struct vow__call *vow__call_new(struct vow__redis *r, enum vow__script script)
{
    struct vow__call *c = call_new(vow__redis_route(r), VOW__CALL_SCRIPT);
    if (c == NULL)
        return NULL;
    c->script = (uint16_t)script;
    (void)vow__buf_reserve(&c->body, USUAL);
    vow__command_text(&c->body, "0123456789");
    return c;
}

static struct vow__call *call_new(struct vow__redis_route *route, uint8_t kind)
{
    struct vow__call *c = vow__mem_new(&route->alloc, sizeof(*c));
    if (c == NULL)
        return NULL;
    *c = (struct vow__call){.route = route, .kind = kind};
    vow__command_init(&c->body, &route->alloc);
    return c;
}

void vow__call_key(struct vow__call *c, const char *kind, const char *tag,
                   const char *rest)
{
    const char *const parts[] = {
        c->route->where->prefix, kind, "{", tag, "}", rest};
    char key[KEY_MAX];
    size_t n = 0;
    VOW__ASSERT(!c->after_keys);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t size = strlen(parts[i]);
        VOW__ASSERT(size < sizeof(key) - n);
        memcpy(key + n, parts[i], size);
        n += size;
    }
    if (c->keys++ == 0)
        c->slot = vow__slot_of(tag, strlen(tag));
    vow__command_add(&c->body, key, n);
}

void vow__call_highest(struct vow__call *c, const char *tag)
{
    static const char rest[] = "}:e\r\n";
    vow__call_key(c, "p:", tag, ":e");
    c->highest_n = strlen(tag);
    c->highest_at = c->body.n - (sizeof(rest) - 1) - c->highest_n;
}

/* The key is as long as it was: only the tag is another. */
void vow__call_alone(struct vow__call *c)
{
    if (c->highest_n > 0)
        memset(c->body.bytes + c->highest_at, '-', c->highest_n);
}

void vow__call_arg(struct vow__call *c, const void *bytes, size_t n)
{
    c->after_keys = true;
    c->words++;
    vow__command_add(&c->body, bytes, n);
}

void vow__call_text(struct vow__call *c, const char *text)
{
    vow__call_arg(c, text, strlen(text));
}

void vow__call_uint(struct vow__call *c, uint64_t number)
{
    c->after_keys = true;
    c->words++;
    vow__command_uint(&c->body, number);
}

void vow__call_send(struct vow__call *c, vow__reply_fn done, void *user)
{
    c->done = done;
    c->user = user;
    c->words += 1 + c->keys;
    c->deadline_ns =
        vow_loop_due_ns(c->route->loop, c->route->where->timeout_ms);
    if (c->body.code != 0) {
        vow__call_end(c, VOW_ENOMEM, NULL);
        return;
    }
    frame(c);
    vow__route_go(c);
}

/* The number of keys ends where the keys begin. */
static void frame(struct vow__call *c)
{
    static const char size[] = "$0\r\n";
    char *end = c->body.bytes + ROOM - 2;
    char *at = end;
    size_t left = c->keys;
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    size_t digits = (size_t)(end - at);
    VOW__ASSERT(digits < 10);
    at -= sizeof(size) - 1;
    memcpy(at, size, sizeof(size) - 1);
    at[1] = (char)('0' + digits);
    c->highest_at -= (size_t)(at - c->body.bytes);
    vow__buf_take(&c->body, (size_t)(at - c->body.bytes));
}

/* ---- its end ------------------------------------------------------------- */

void vow__call_orphan(struct vow__call *c)
{
    c->orphan = true;
    c->done(c->route->r, VOW_ECLOSED, NULL, c->user);
}

/* Keeps C1. */
void vow__call_end(struct vow__call *c, int code, const struct vow__resp *reply)
{
    struct vow__redis_route *route = c->route;
    if (code == 0 && c->kind == VOW__CALL_EACH) {
        expand(c);
        return;
    }
    if (c->orphan)
        ; /* answered before */
    else if (c->kind == VOW__CALL_EACH)
        c->each_done(route->r, code, NULL, 0, true, c->user);
    else
        c->done(route->r, code, reply, c->user);
    call_free(c);
}

static void call_free(struct vow__call *c)
{
    vow__buf_fini(&c->body);
    vow__mem_free(&c->route->alloc, c, sizeof(*c));
}

void vow__call_fail(struct vow__call *c, int code, const char *format, ...)
{
    char why[VOW__REDIS_WHY];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    vow__redis_trouble(c->route->r, "%s", why);
    vow__call_end(c, c->unsure ? VOW_EUNSURE : code, NULL);
}

/* ---- plain commands ------------------------------------------------------ */

/* A command to all masters, whose answers come one by one. */
struct each {
    vow__each_fn done;
    void *user;
    size_t n;
    size_t answers; /* to come */
    size_t left;    /* reasons to stay */
    struct part {
        struct each *each;
        size_t node;
    } parts[];
};

struct vow__call *vow__call_plain(struct vow__redis_route *route,
                                  const struct vow__buf *command)
{
    struct vow__call *c = call_new(route, VOW__CALL_PLAIN);
    if (c == NULL)
        return NULL;
    c->body.code = command->code;
    vow__buf_add(&c->body, command->bytes, command->n);
    if (c->body.code != 0) {
        call_free(c);
        return NULL;
    }
    c->deadline_ns = vow_loop_due_ns(route->loop, route->where->timeout_ms);
    return c;
}

void vow__redis_one(struct vow__redis *r, size_t node, const struct vow__buf *c,
                    vow__reply_fn done, void *user)
{
    struct vow__call *call = vow__call_plain(vow__redis_route(r), c);
    if (call == NULL) {
        done(r, VOW_ENOMEM, NULL, user);
        return;
    }
    call->number = node;
    call->done = done;
    call->user = user;
    vow__route_go(call);
}

void vow__redis_each(struct vow__redis *r, const struct vow__buf *c,
                     vow__each_fn done, void *user)
{
    struct vow__call *call = vow__call_plain(vow__redis_route(r), c);
    if (call == NULL) {
        done(r, VOW_ENOMEM, NULL, 0, true, user);
        return;
    }
    call->kind = VOW__CALL_EACH;
    call->each_done = done;
    call->user = user;
    vow__route_go(call);
}

/* All masters are known: one call each. Some may be answered at once. */
static void expand(struct vow__call *c)
{
    struct vow__redis_route *route = c->route;
    struct each *e = each_new(c);
    if (e == NULL || e->n == 0) {
        int code = e == NULL ? VOW_ENOMEM : VOW_ESTORE;
        if (e != NULL)
            vow__mem_free(&route->alloc, e, each_size(0));
        vow__call_fail(c, code, "the cluster has no masters");
        return;
    }
    e->left++; /* it stays until all were sent */
    for (size_t i = 0; i < e->n; i++)
        vow__redis_one(route->r, e->parts[i].node, &c->body, on_each,
                       &e->parts[i]);
    each_drop(route, e);
    call_free(c);
}

static struct each *each_new(const struct vow__call *c)
{
    struct vow__cluster *cluster = c->route->cluster;
    size_t size = cluster == NULL ? 1 : vow__cluster_size(cluster);
    size_t n = 0;
    for (size_t i = 0; i < size; i++)
        n += cluster == NULL || !vow__cluster_at(cluster, i)->gone;
    struct each *e = vow__mem_new(&c->route->alloc, each_size(n));
    if (e == NULL)
        return NULL;
    *e = (struct each){
        .done = c->each_done, .user = c->user, .answers = n, .left = n};
    for (size_t i = 0; i < size; i++)
        if (cluster == NULL || !vow__cluster_at(cluster, i)->gone)
            e->parts[e->n++] = (struct part){.each = e, .node = i};
    return e;
}

static void on_each(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *user)
{
    struct part *p = user;
    struct each *e = p->each;
    bool last = --e->answers == 0;
    e->done(r, code, reply, p->node, last, e->user);
    each_drop(vow__redis_route(r), e);
}

static void each_drop(struct vow__redis_route *route, struct each *e)
{
    if (--e->left == 0)
        vow__mem_free(&route->alloc, e, each_size(e->n));
}

static size_t each_size(size_t n)
{
    return sizeof(struct each) + n * sizeof(struct part);
}
