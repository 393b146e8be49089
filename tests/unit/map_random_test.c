/* SPDX-License-Identifier: MIT */
/* map_random_test.c - vow_map() under random loads, limits, failures, waits,
 * resizes and cancels on the virtual clock. What must be true at every start,
 * delivery and end is checked there. The seed is told with a failure. */
#include "map_work.h"

#include "vow/call.h"
#include "vow/combine.h"

#include <string.h>

enum { ITEMS = 60, SCHEDULES = 3000 };

struct item {
    struct trial *t;
    size_t index;
    bool fails;
    bool alive, ended, delivered;
    vow_deferred *end;
    vow_call call;
};

struct trial {
    struct world w;
    uint64_t random;
    vow_map_opts o;
    vow_mapping *m;
    vow_future *f;
    struct item items[ITEMS];
    size_t n, pulled, got;
    uint32_t limit, window;
    uint32_t running;
    size_t undelivered; /* begun and not */
    bool busy;          /* the sink */
    bool waiting;       /* the source */
    bool stopped;       /* canceled by the test */
    int first_code;     /* of the first item that failed */
    uint64_t first_ns;
    uint64_t settled_ns;
    int drops;
};

static uint32_t below(struct trial *t, uint32_t n)
{
    return (uint32_t)(test_random(&t->random) % n);
}

/* ---- the source, the function, the sink ---------------------------------- */

static void item_drop(void *ptr)
{
    struct item *i = ptr;
    CHECK(i->alive && i->ended);
    i->alive = false;
}

static vow_next source_ready(vow_value v, void *user)
{
    (void)v;
    ((struct trial *)user)->waiting = false;
    return vow_ok(vow_nothing());
}

static int pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    struct trial *t = state;
    CHECK(!t->waiting && t->drops == 0);
    CHECK(t->running < t->limit && t->undelivered < t->window);
    if (below(t, 8) == 0) {
        t->waiting = true;
        *ret_wait = vow_then_drop(vow_delay(t->w.loop, below(t, 20)),
                                  source_ready, NULL, t);
        return VOW_EAGAIN;
    }
    if (t->pulled == t->n)
        return 0;
    struct item *i = &t->items[t->pulled];
    *i = (struct item){.t = t, .index = t->pulled++, .alive = true};
    *ret_item = vow_own(i, item_drop);
    return 1;
}

static void source_drop(void *state)
{
    struct trial *t = state;
    t->drops++;
    for (size_t i = 0; i < t->pulled; i++)
        CHECK(!t->items[i].alive);
}

static void ended(struct item *i)
{
    struct trial *t = i->t;
    CHECK(i->alive && !i->ended);
    i->ended = true;
    t->running--;
    if (t->o.sink == NULL)
        t->undelivered--;
    if (i->fails && t->first_code == 0) {
        t->first_code = VOW_EIO;
        t->first_ns = vow_loop_now_ns(t->w.loop);
    }
}

static void end_later(void *user)
{
    struct item *i = user;
    ended(i);
    if (i->fails)
        vow_reject_code(i->end, VOW_EIO, NULL);
    else
        vow_resolve(i->end, vow_int((int64_t)i->index));
    vow_deferred_unref(i->end);
}

/* Some stop when they are asked, some go on. */
static void asked(vow_error *why, void *user)
{
    struct item *i = user;
    if (i->index % 2 == 0)
        return;
    vow_call_stop(&i->call);
    i->fails = false;
    ended(i);
    vow_reject_drop(i->end, vow_error_ref(why));
}

static vow_future *begin(vow_loop *loop, vow_value item, size_t index,
                         void *user)
{
    struct trial *t = user;
    struct item *i = vow_as_ptr(item);
    CHECK_UINT_EQ(i->index, index);
    CHECK(!t->stopped);
    t->running++;
    t->undelivered++;
    CHECK(t->running <= t->limit && t->undelivered <= t->window);
    i->fails = below(t, 30) == 0;
    if (below(t, 3) > 0) {
        uint64_t due = vow_loop_now_ns(loop) + below(t, 40) * 1000000;
        vow_future *f = vow_promise(loop, &i->end);
        vow_on_cancel(i->end, asked, i);
        vow_call_at(&i->call, loop, due, end_later, i);
        return f;
    }
    ended(i);
    if (i->fails)
        return vow_rejected(loop, vow_error_new(loop, VOW_EIO, NULL));
    return vow_resolved(loop, vow_int((int64_t)index));
}

static vow_next sink_ready(vow_value v, void *user)
{
    (void)v;
    ((struct trial *)user)->busy = false;
    return vow_ok(vow_nothing());
}

static void check_outcome(struct item *i, vow_future *outcome)
{
    if (i->fails)
        CHECK_INT_EQ(vow_error_code(vow_error_of(outcome)), VOW_EIO);
    else
        CHECK_INT_EQ(vow_as_int(vow_get(outcome)), (int64_t)i->index);
}

static vow_future *sink(size_t index, vow_future *outcome, void *user)
{
    struct trial *t = user;
    struct item *i = &t->items[index];
    CHECK(i->ended && !i->delivered && !t->busy && !t->stopped);
    CHECK(t->o.as_completed || index == t->got);
    CHECK(!i->fails || t->o.fail != VOW_FAIL_NOW);
    check_outcome(i, outcome);
    i->delivered = true;
    t->got++;
    t->undelivered--;
    if (below(t, 3) > 0)
        return NULL;
    t->busy = true;
    return vow_then_drop(vow_delay(t->w.loop, below(t, 10)), sink_ready, NULL,
                         t);
}

/* ---- a trial ------------------------------------------------------------ */

static vow_next settled_ok(vow_value v, void *user)
{
    struct trial *t = user;
    (void)v;
    t->settled_ns = vow_loop_now_ns(t->w.loop);
    return vow_ok(vow_nothing());
}

static vow_next settled_fail(vow_error *e, void *user)
{
    (void)e;
    return settled_ok(vow_nothing(), user);
}

static void trial_start(struct trial *t)
{
    t->n = below(t, ITEMS);
    t->limit = 1 + below(t, 8);
    t->window = t->limit + below(t, 10);
    t->o = (vow_map_opts){.size = sizeof(t->o),
                          .concurrent = t->limit,
                          .window = t->window,
                          .fail = below(t, 3),
                          .as_completed = below(t, 2) == 0,
                          .discard = below(t, 2) == 0,
                          .sink_user = t,
                          .ret_map = &t->m};
    if (below(t, 2) == 0)
        t->o.sink = sink;
    vow_source src = {.pull = pull, .state = t, .drop = source_drop};
    t->f = vow_map(t->w.loop, src, begin, t, &t->o);
    vow_future_unref(vow_then(t->f, settled_ok, settled_fail, t));
}

static void resize(struct trial *t)
{
    t->limit = 1 + below(t, 8);
    if (t->window < t->limit)
        t->window = t->limit;
    CHECK_INT_EQ(vow_map_resize(t->m, t->limit), 0);
}

static void trial_check(struct trial *t)
{
    int code = vow_error_code(vow_error_of(t->f));
    CHECK(vow_state_of(t->f) != VOW_PENDING);
    CHECK_INT_EQ(t->drops, 1);
    CHECK_UINT_EQ(t->running, 0);
    bool fails = t->first_code != 0 && t->o.fail != VOW_FAIL_COLLECT;
    if (t->stopped && code == VOW_ECANCELED)
        return;
    CHECK_INT_EQ(code, fails ? t->first_code : 0);
    if (fails && t->o.fail == VOW_FAIL_NOW)
        CHECK_UINT_EQ(t->settled_ns, t->first_ns);
    if (code != 0)
        return;
    CHECK_UINT_EQ(t->pulled, t->n);
    if (t->o.sink != NULL)
        CHECK_UINT_EQ(t->got, t->n);
    if (t->o.sink != NULL || t->o.discard) {
        CHECK_INT_EQ(vow_as_int(vow_get(t->f)), (int64_t)t->n);
        return;
    }
    CHECK_UINT_EQ(vow_list_size(vow_get(t->f)), t->n);
    for (size_t i = 0; i < t->n; i++)
        check_outcome(&t->items[i], vow_list_at(vow_get(t->f), i));
}

TEST(map, keeps_its_rules_under_random_loads)
{
    static struct trial t;
    uint64_t seeds = test_seed();
    for (int i = 0; i < SCHEDULES; i++) {
        memset(&t, 0, sizeof(t));
        t.random = test_random(&seeds);
        world_open(&t.w);
        trial_start(&t);
        for (uint32_t left = below(&t, 40); left > 0; left--) {
            world_advance_ms(&t.w, below(&t, 20));
            if (below(&t, 4) == 0)
                resize(&t);
        }
        if (below(&t, 4) == 0)
            t.stopped = vow_cancel(t.f, NULL);
        world_run(&t.w);
        trial_check(&t);
        vow_mapping_unref(t.m);
        vow_future_unref(t.f);
        world_close(&t.w);
    }
}
