/* SPDX-License-Identifier: MIT */
/* redis_link_rig.h - a link to a server that says what the test wants. */
#ifndef TEST_REDIS_LINK_RIG_H
#define TEST_REDIS_LINK_RIG_H

#include "fault.h"
#include "redis_fake.h"
#include "store/redis/redis_internal.h"

#include <stdio.h>
#include <string.h>

enum { RIG_ANSWERS = 128, RIG_TEXT = 128 };

struct link_rig {
    struct world own;
    struct world *w; /* own, or that of a sweep */
    struct fake fake;
    struct vow__link *link;
    unsigned ready, ended;
    bool for_good;
    struct vow__greeting server;
    char why[VOW__REDIS_WHY];
    unsigned pushes;
    char push[RIG_TEXT]; /* the text of the last */
    struct {
        unsigned done;
        int code;
        enum vow__resp_kind kind;
        char text[RIG_TEXT];
        bool after_end;
    } answers[RIG_ANSWERS];
    size_t asked;
    size_t answered;
    bool close_in_ready, close_in_push, close_in_end, close_in_answer;
};

/* A command under way: which rig, and the number of its answer. */
struct link_ask {
    struct link_rig *rig;
    size_t number;
};
static struct link_ask link_asks[RIG_ANSWERS];

static inline void rig_link_close(struct link_rig *r, int code)
{
    struct vow__link *l = r->link;
    r->link = NULL;
    vow__link_close(l, code);
}

static inline void rig_on_ready(const struct vow__greeting *g, void *user)
{
    struct link_rig *r = user;
    CHECK_UINT_EQ(r->ready++, 0);
    CHECK_UINT_EQ(r->ended, 0);
    r->server = *g;
    if (r->close_in_ready)
        rig_link_close(r, VOW_ECLOSED);
}

static inline void rig_on_push(const struct vow__resp *push, void *user)
{
    struct link_rig *r = user;
    const struct vow__resp *text = vow__resp_at(push, 2);
    CHECK(r->link != NULL);
    CHECK_UINT_EQ(r->ready, 1);
    CHECK_UINT_EQ(r->ended, 0);
    r->pushes++;
    snprintf(r->push, sizeof(r->push), "%.*s",
             text->kind == VOW__RESP_TEXT ? (int)text->n : 0,
             text->kind == VOW__RESP_TEXT ? text->text : "");
    if (r->close_in_push)
        rig_link_close(r, VOW_ECLOSED);
}

static inline void rig_on_end(bool for_good, const char *why, void *user)
{
    struct link_rig *r = user;
    CHECK_UINT_EQ(r->ended++, 0);
    CHECK_UINT_EQ(r->answered, r->asked);
    r->for_good = for_good;
    snprintf(r->why, sizeof(r->why), "%s", why);
    if (r->close_in_end)
        rig_link_close(r, VOW_ECLOSED);
}

static inline void rig_on_answer(int code, const struct vow__resp *reply,
                                 void *user)
{
    struct link_ask *a = user;
    struct link_rig *r = a->rig;
    CHECK_UINT_EQ(r->answers[a->number].done++, 0);
    CHECK((code == 0) == (reply != NULL));
    r->answered++;
    r->answers[a->number].code = code;
    if (code == 0) {
        bool text =
            reply->kind == VOW__RESP_TEXT || reply->kind == VOW__RESP_ERROR;
        r->answers[a->number].kind = reply->kind;
        snprintf(r->answers[a->number].text, RIG_TEXT, "%.*s",
                 text ? (int)reply->n : 0, text ? reply->text : "");
    }
    if (r->close_in_answer && r->link != NULL)
        rig_link_close(r, VOW_ECLOSED);
}

static inline struct vow__link_opts rig_link_opts(const struct link_rig *r)
{
    return (struct vow__link_opts){
        .scripts = vow__redis_scripts,
        .to = {.host = "127.0.0.1",
               .port = r->fake.port,
               .connect_ms = 1000,
               .unsent_max = 1 << 20},
        .limits = {.bytes = 1 << 20, .items = 1000},
        .user = "me",
        .password = "secret",
        .channel = "chan",
        .timeout_ms = 1000,
        .ask_role_ms = 5000,
    };
}

static inline int rig_link_try(struct link_rig *r,
                               const struct vow__link_opts *o)
{
    return vow__link_open(r->w->loop, o,
                          &(const struct vow__link_events){
                              .on_ready = rig_on_ready,
                              .on_push = rig_on_push,
                              .on_end = rig_on_end,
                              .user = r,
                          },
                          &r->link);
}

static inline void rig_link_begin(struct link_rig *r)
{
    memset(r, 0, sizeof(*r));
    r->w = &r->own;
    world_open(r->w);
    fake_open(&r->fake);
}

static inline void rig_link_open(struct link_rig *r)
{
    struct vow__link_opts o = rig_link_opts(r);
    CHECK_INT_EQ(rig_link_try(r, &o), 0);
}

#define RIG_UNTIL(r, cond) FAKE_UNTIL((r)->w, &(r)->fake, cond)

static inline void rig_link_ready(struct link_rig *r)
{
    rig_link_begin(r);
    rig_link_open(r);
    RIG_UNTIL(r, r->ready || r->ended);
    CHECK_STR_EQ(r->why, "");
}

static inline void rig_link_end(struct link_rig *r)
{
    if (r->link != NULL)
        rig_link_close(r, VOW_ECLOSED);
    CHECK_UINT_EQ(r->answered, r->asked);
    fake_close(&r->fake);
    if (r->w == &r->own) {
        world_run(r->w);
        world_close(r->w);
    }
}

static inline struct link_ask *rig_ask(struct link_rig *r)
{
    CHECK(r->asked < RIG_ANSWERS);
    struct link_ask *a = &link_asks[r->asked];
    *a = (struct link_ask){.rig = r, .number = r->asked++};
    return a;
}

/* A command of one word; its number. */
static inline size_t rig_say(struct link_rig *r, const char *word)
{
    struct vow__buf c;
    struct link_ask *a = rig_ask(r);
    vow__command_init(&c, vow_loop_alloc(r->w->loop));
    vow__command_begin(&c, 1);
    vow__command_text(&c, word);
    vow__link_send(r->link, &c, rig_on_answer, a);
    vow__buf_fini(&c);
    return a->number;
}

/* A script with one key; `tail` is the caller's, to be freed afterwards. */
static inline size_t rig_eval(struct link_rig *r, enum vow__script script,
                              const char *key, struct vow__buf *tail)
{
    struct link_ask *a = rig_ask(r);
    vow__command_init(tail, vow_loop_alloc(r->w->loop));
    vow__command_uint(tail, 1);
    vow__command_text(tail, key);
    vow__link_eval(r->link, script, tail, 2, rig_on_answer, a);
    return a->number;
}

#endif
