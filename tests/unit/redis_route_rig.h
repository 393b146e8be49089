/* SPDX-License-Identifier: MIT */
/* redis_route_rig.h - a store on Redis whose servers say what the test wants,
 * and calls of scripts to it. Time is virtual, and stands while bytes travel.
 */
#ifndef TEST_REDIS_ROUTE_RIG_H
#define TEST_REDIS_ROUTE_RIG_H

#include "fault.h"
#include "redis_fake.h"
#include "store/redis/redis_internal.h"

#include <stdio.h>
#include <string.h>

enum { RIG_FAKES = 4, RIG_CALLS = 160 };

struct route_rig {
    struct world own;
    struct world *w;
    struct fake fakes[RIG_FAKES];
    size_t n; /* of them */
    vow_store *store;
    struct vow__redis *redis;
    unsigned doubts;
    bool close_in_doubt, close_in_answer, call_in_answer;
    vow_future *closed;
    struct route_call {
        struct route_rig *rig;
        unsigned done;
        int code;
        unsigned order; /* of the answers */
        size_t node;
        bool last;
        char text[64];
        char why[VOW__REDIS_WHY];
    } calls[RIG_CALLS];
    size_t asked;
    unsigned answered;
};

static inline void rig_on_doubt(void *user);

static inline void rig_begin(struct route_rig *r, size_t fakes)
{
    memset(r, 0, sizeof(*r));
    r->w = &r->own;
    world_open(r->w);
    for (r->n = 0; r->n < fakes; r->n++)
        fake_open(&r->fakes[r->n]);
}

static inline bool rig_try_open(struct route_rig *r, const char *url,
                                const vow_redis_opts *opts)
{
    VOW_AUTO(vow_future) opened = vow_store_redis_open(r->w->loop, url, opts);
    if (vow_state_of(opened) != VOW_FULFILLED) {
        CHECK(fault_explains(r->w, vow_error_code(vow_error_of(opened))));
        return false;
    }
    r->store = vow_as_ptr(vow_get(opened));
    r->redis = vow__redis_of(r->store);
    r->store->ops->listen(r->store, &(const vow_store_events){
                                        .on_doubt = rig_on_doubt, .user = r});
    return true;
}

static inline void rig_open(struct route_rig *r)
{
    char url[64];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%u", r->fakes[0].port);
    CHECK(rig_try_open(r, url, NULL));
}

static inline void rig_close(struct route_rig *r)
{
    CHECK(r->closed == NULL);
    r->closed = r->store->ops->close(r->store);
}

static inline void rig_on_doubt(void *user)
{
    struct route_rig *r = user;
    r->doubts++;
    if (r->close_in_doubt)
        rig_close(r);
}

static inline void rig_step(struct route_rig *r)
{
    bool did = false;
    for (size_t i = 0; i < r->n; i++)
        did |= fake_serve(&r->fakes[i]);
    fake_turn(r->w);
    if (!did)
        fake_step(r->w, &r->fakes[0]);
}
#define UNTIL(r, cond)                                                         \
    do {                                                                       \
        while (!(cond))                                                        \
            rig_step(r);                                                       \
    } while (0)

/* As long as something is going on. */
static inline void rig_settle(struct route_rig *r)
{
    for (int quiet = 0; quiet < 30; quiet++) {
        for (size_t i = 0; i < r->n; i++)
            if (fake_serve(&r->fakes[i]))
                quiet = 0;
        fake_turn(r->w);
    }
}

/* Time passes, step by step, and everything is served in between. */
static inline void rig_pass(struct route_rig *r, uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i += 5) {
        world_advance_ms(r->w, ms - i < 5 ? ms - i : 5);
        rig_settle(r);
    }
}

static inline void rig_end(struct route_rig *r)
{
    if (r->closed == NULL && r->store != NULL)
        rig_close(r);
    if (r->closed != NULL) {
        UNTIL(r, vow_state_of(r->closed) != VOW_PENDING);
        r->closed = vow_future_unref(r->closed);
    }
    CHECK_UINT_EQ(r->answered, r->asked);
    for (size_t i = 0; i < r->n; i++)
        fake_close(&r->fakes[i]);
    if (r->w == &r->own) {
        world_run(r->w);
        world_close(r->w);
    }
}

/* ---- calls --------------------------------------------------------------- */

static inline struct route_call *rig_call(struct route_rig *r, const char *tag);

static inline void rig_note(struct route_call *c, int code,
                            const struct vow__resp *reply)
{
    struct route_rig *r = c->rig;
    CHECK((code == 0) == (reply != NULL));
    c->code = code;
    c->order = r->answered;
    if (code == 0 && reply->kind == VOW__RESP_TEXT)
        snprintf(c->text, sizeof(c->text), "%.*s", (int)reply->n, reply->text);
    if (code == VOW_ESTORE || code == VOW_EUNSURE || code == VOW_EAGAIN)
        snprintf(c->why, sizeof(c->why), "%s",
                 r->store->ops->explain(r->store));
    if (r->call_in_answer) {
        r->call_in_answer = false;
        (void)rig_call(r, "in-answer");
    }
    if (r->close_in_answer) {
        r->close_in_answer = false;
        rig_close(r);
    }
}

static inline void rig_reply(struct vow__redis *redis, int code,
                             const struct vow__resp *reply, void *user)
{
    struct route_call *c = user;
    CHECK(redis == c->rig->redis);
    CHECK_UINT_EQ(c->done++, 0);
    c->rig->answered++;
    rig_note(c, code, reply);
}

static inline struct route_call *rig_next(struct route_rig *r)
{
    CHECK(r->asked < RIG_CALLS);
    struct route_call *c = &r->calls[r->asked++];
    c->rig = r;
    return c;
}

/* A script with a key of this tag; the tag comes as its argument, too. */
static inline struct route_call *
rig_call_of(struct route_rig *r, enum vow__script script, const char *tag)
{
    struct route_call *c = rig_next(r);
    struct vow__call *call = vow__call_new(r->redis, script);
    if (call == NULL) {
        rig_reply(r->redis, VOW_ENOMEM, NULL, c);
        return c;
    }
    vow__call_key(call, "p:", tag, "");
    vow__call_key(call, "p:", tag, ":w");
    vow__call_text(call, tag);
    vow__call_uint(call, 7);
    vow__call_send(call, rig_reply, c);
    return c;
}

/* One that is not repeated when its link is lost. */
static inline struct route_call *rig_call(struct route_rig *r, const char *tag)
{
    return rig_call_of(r, VOW__LUA_COMMIT, tag);
}

/* Make a call, and wait for its answer. */
static inline struct route_call *rig_ask(struct route_rig *r, const char *tag)
{
    struct route_call *c = rig_call(r, tag);
    rig_settle(r);
    while (!c->done)
        rig_pass(r, 5);
    return c;
}

static inline void rig_plain(struct route_rig *r, const char *word,
                             struct vow__buf *c)
{
    vow__command_init(c, vow_loop_alloc(r->w->loop));
    vow__command_begin(c, 1);
    vow__command_text(c, word);
}

/* Says the argument again to scripts. */
static inline const char *say_tag(struct fake_conn *c, char **words, size_t n)
{
    static char text[80];
    (void)c;
    if (strcmp(words[0], "EVALSHA") != 0)
        return NULL;
    CHECK_UINT_EQ(n, 7);
    snprintf(text, sizeof(text), "+%s\r\n", words[5]);
    return text;
}

#define CHECK_HAS(text, part)                                                  \
    (strstr((text), (part)) != NULL                                            \
         ? (void)0                                                             \
         : FAIL("no \"%s\" in \"%s\"", (part), (text)))

#endif
