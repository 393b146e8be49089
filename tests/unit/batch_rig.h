/* SPDX-License-Identifier: MIT */
/* batch_rig.h - a world with a batch, over a server that does as it is told and
 * keeps a log of its calls. */
#ifndef TEST_BATCH_RIG_H
#define TEST_BATCH_RIG_H

#include "harness.h"
#include "world.h"

#include "vow/batch.h"
#include "vow/combine.h"

enum { LOG_MAX = 64, ITEMS_MAX = 128 };

/* What the function under the batch does. */
enum mode {
    ANSWER,  /* each item with its double, and is done */
    HANG,    /* keeps the call and the end of its future */
    PARTLY,  /* answers the first item, and hangs */
    LISTED,  /* a list of outcomes: odd ones fail */
    NOTHING, /* is done without an answer */
    REFUSE,  /* fails */
    NO_FUTURE
};

struct server {
    enum mode mode;
    size_t calls;
    size_t sizes[LOG_MAX];
    uint64_t at_ms[LOG_MAX];
    int64_t items[LOG_MAX][ITEMS_MAX];
    vow_batch_call *call[LOG_MAX]; /* HANG, PARTLY */
    vow_deferred *end[LOG_MAX];
    vow_error *error; /* of REFUSE, only to compare */
    int asked;        /* to stop */
    bool stubborn;    /* and does not */
    int asked_code;
    vow_error *asked_root; /* only to compare */
    void (*inside)(struct server *s, vow_batch_call *c);
    vow_batch *batch;
    vow_loop *loop;
};

struct rig {
    struct world w;
    struct server s;
    vow_batch *b;
};

static inline int code_of(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
}

static inline vow_future *list_of(vow_loop *loop, vow_batch_call *c)
{
    vow_future *each[ITEMS_MAX];
    size_t n = vow_batch_call_size(c);
    for (size_t i = 0; i < n; i++) {
        int64_t k = vow_as_int(vow_batch_call_item(c, i));
        if (k % 2 == 0)
            each[i] = vow_resolved(loop, vow_int(2 * k));
        else
            each[i] = vow_rejected(loop, vow_error_new(loop, VOW_EIO, "odd"));
    }
    vow_future *all = vow_all_settled(loop, each, n);
    for (size_t i = 0; i < n; i++) {
        (void)vow_error_of(each[i]);
        vow_future_unref(each[i]);
    }
    return all;
}

static inline void on_stop(vow_error *why, void *user)
{
    struct server *s = user;
    s->asked++;
    s->asked_code = vow_error_code(why);
    s->asked_root = vow_error_root(why);
    if (!s->stubborn)
        vow_reject(s->end[s->calls - 1], vow_error_ref(why));
}

static inline vow_future *hang(struct server *s, vow_batch_call *c)
{
    s->call[s->calls - 1] = c;
    vow_future *f = vow_promise(s->loop, &s->end[s->calls - 1]);
    vow_on_cancel(s->end[s->calls - 1], on_stop, s);
    return f;
}

static inline vow_future *serve(vow_loop *loop, vow_batch_call *c, void *user)
{
    struct server *s = user;
    size_t n = vow_batch_call_size(c);
    CHECK_PTR_EQ(loop, s->loop);
    CHECK(n > 0);
    if (s->calls < LOG_MAX) {
        s->sizes[s->calls] = n;
        s->at_ms[s->calls] = vow_loop_now_ns(loop) / 1000000;
        for (size_t i = 0; i < n && i < ITEMS_MAX; i++)
            s->items[s->calls][i] = vow_as_int(vow_batch_call_item(c, i));
    }
    s->calls++;
    if (s->inside != NULL)
        s->inside(s, c);
    switch (s->mode) {
    case ANSWER:
        for (size_t i = 0; i < n; i++)
            vow_batch_answer(
                c, i,
                vow_ok(vow_int(2 * vow_as_int(vow_batch_call_item(c, i)))));
        return vow_resolved(loop, vow_nothing());
    case PARTLY:
        vow_batch_answer(c, 0, vow_ok(vow_int(-1)));
        return hang(s, c);
    case HANG:
        return hang(s, c);
    case LISTED:
        return list_of(loop, c);
    case REFUSE:
        s->error = vow_error_new(loop, VOW_EBUSY, "not today");
        return vow_rejected(loop, s->error);
    case NO_FUTURE:
        return NULL;
    case NOTHING:
    default:
        return vow_resolved(loop, vow_int(7));
    }
}

static inline void rig_open(struct rig *r, enum mode mode,
                            const vow_batch_opts *opts)
{
    *r = (struct rig){.s.mode = mode};
    world_open(&r->w);
    r->s.loop = r->w.loop;
    CHECK_INT_EQ(vow_batch_new(r->w.loop, serve, &r->s, opts, &r->b), 0);
    r->s.batch = r->b;
}

static inline void rig_close(struct rig *r)
{
    vow_batch_unref(r->b);
    for (size_t i = 0; i < LOG_MAX; i++)
        vow_deferred_unref(r->s.end[i]);
    world_run(&r->w);
    world_close(&r->w);
}

static inline vow_future *ask(struct rig *r, int64_t k)
{
    return vow_batch_add(r->b, vow_int(k), 0);
}

/* The call that hangs ends: with `answer` for all, or with nothing. */
static inline void end_call(struct server *s, size_t k, int64_t answer)
{
    size_t n = vow_batch_call_size(s->call[k]);
    for (size_t i = 0; i < n && answer != 0; i++)
        vow_batch_answer(s->call[k], i, vow_ok(vow_int(answer)));
    vow_resolve(s->end[k], vow_nothing());
}

static inline void check_value(vow_future *f, int64_t want)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), want);
    vow_future_unref(f);
}

static inline void check_code(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(code_of(f), code);
    vow_future_unref(f);
}

static inline void drop_all(vow_future **f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        (void)vow_error_of(f[i]);
        vow_future_unref(f[i]);
    }
}

/* An item that counts how often it was dropped. */
struct token {
    int drops;
    struct rig *rig;
    void (*on_drop)(struct rig *r);
};

static inline void token_drop(void *ptr)
{
    struct token *t = ptr;
    t->drops++;
    if (t->on_drop != NULL)
        t->on_drop(t->rig);
}

static inline vow_value token(struct token *t)
{
    return vow_own(t, token_drop);
}

#endif
