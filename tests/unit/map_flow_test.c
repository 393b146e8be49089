/* SPDX-License-Identifier: MIT */
/* map_flow_test.c - vow_map(): sinks with back-pressure and a window, order,
 * sources that wait, fail or never end, and a limit that changes. */
#include "map_work.h"

#include "vow/combine.h"
#include "vow/uv.h"

#include <string.h>

/* ---- a map of numbers into a sink ---------------------------------------- */

struct flow {
    struct world w;
    struct work k;
    vow_range r;
    vow_mapping *m;
    vow_future *f;
    size_t got[MANY]; /* indexes as delivered */
    size_t n_got;
    int refused;        /* outcomes that were rejections */
    vow_deferred *busy; /* the sink's last future, while `slow` */
    bool slow;          /* each delivery is waited for */
    vow_future *answer; /* else what the sink returns, once; NULL: nothing */
};

static vow_future *take(size_t index, vow_future *outcome, void *user)
{
    struct flow *t = user;
    CHECK(vow_state_of(outcome) != VOW_PENDING);
    CHECK_PTR_EQ(t->busy, NULL); /* nothing while it is busy */
    t->refused += vow_error_of(outcome) != NULL;
    t->got[t->n_got++] = index;
    if (t->slow)
        return vow_promise(t->w.loop, &t->busy);
    vow_future *answer = t->answer;
    t->answer = NULL;
    return answer;
}

static void flow_open(struct flow *t)
{
    memset(t, 0, sizeof(*t));
    world_open(&t->w);
}

static void flow_start(struct flow *t, vow_map_opts o)
{
    o.size = sizeof(o);
    o.sink = take;
    o.sink_user = t;
    o.ret_map = &t->m;
    t->f = vow_map(t->w.loop, vow_source_range(&t->r, 0, 20), held, &t->k, &o);
    world_run(&t->w);
}

static void sink_takes(struct flow *t)
{
    vow_deferred *busy = t->busy;
    CHECK(busy != NULL);
    t->busy = NULL;
    vow_resolve_drop(busy, vow_nothing());
    world_run(&t->w);
}

static void item_ends(struct flow *t, size_t index)
{
    end_ok(&t->k, index);
    world_run(&t->w);
}

static void flow_close(struct flow *t)
{
    world_run(&t->w);
    CHECK_UINT_EQ(t->k.running, 0);
    vow_mapping_unref(t->m);
    vow_future_unref(t->f);
    world_close(&t->w);
}

/* The rest, without waiting. */
static void finish_all(struct flow *t)
{
    t->slow = false;
    if (t->busy != NULL)
        sink_takes(t);
    for (size_t i = 0; i < 20; i++) {
        while (t->k.end[i] == NULL && i >= t->k.begun)
            world_run(&t->w);
        if (t->k.end[i] != NULL)
            item_ends(t, i);
    }
    world_run(&t->w);
    CHECK_INT_EQ(vow_as_int(vow_get(t->f)), 20);
    CHECK_UINT_EQ(t->n_got, 20);
}

/* ---- order and window --------------------------------------------------- */

TEST(map, sink_gets_results_in_input_order)
{
    struct flow t;
    flow_open(&t);
    flow_start(&t, (vow_map_opts){.concurrent = 3});
    item_ends(&t, 2);
    item_ends(&t, 1);
    CHECK_UINT_EQ(t.n_got, 0); /* the first is not there yet */
    CHECK_UINT_EQ(vow_map_stats_get(t.m).buffered, 2);
    CHECK_UINT_EQ(t.k.begun, 5); /* and more were begun meanwhile */
    item_ends(&t, 0);
    CHECK_UINT_EQ(t.n_got, 3);
    finish_all(&t);
    for (size_t i = 0; i < 20; i++)
        CHECK_UINT_EQ(t.got[i], i);
    flow_close(&t);
}

TEST(map, sink_gets_results_as_completed_if_asked_for)
{
    struct flow t;
    flow_open(&t);
    flow_start(&t, (vow_map_opts){.concurrent = 4, .as_completed = true});
    item_ends(&t, 2);
    item_ends(&t, 3);
    item_ends(&t, 0);
    CHECK_UINT_EQ(t.n_got, 3);
    CHECK_UINT_EQ(t.got[0], 2);
    CHECK_UINT_EQ(t.got[1], 3);
    CHECK_UINT_EQ(t.got[2], 0);
    finish_all(&t);
    flow_close(&t);
}

TEST(map, no_more_than_the_window_is_begun_behind_a_slow_item)
{
    struct flow t;
    flow_open(&t);
    flow_start(&t, (vow_map_opts){.concurrent = 2, .window = 5});
    for (size_t i = 1; i < 5; i++)
        item_ends(&t, i);
    vow_map_stats s = vow_map_stats_get(t.m);
    CHECK_UINT_EQ(s.pulled, 5);
    CHECK_UINT_EQ(s.running, 1); /* there is a place, but no room */
    CHECK_UINT_EQ(s.buffered, 4);
    CHECK_INT_EQ(t.r.next, 5);
    item_ends(&t, 0);
    s = vow_map_stats_get(t.m);
    CHECK_UINT_EQ(s.pulled, 7);
    CHECK_UINT_EQ(s.buffered, 0);
    finish_all(&t);
    flow_close(&t);
}

TEST(map, window_is_4_times_the_limit_by_default)
{
    struct flow t;
    flow_open(&t);
    flow_start(&t, (vow_map_opts){.concurrent = 2});
    for (size_t i = 1; i < 8; i++)
        item_ends(&t, i);
    CHECK_UINT_EQ(vow_map_stats_get(t.m).pulled, 8);
    finish_all(&t);
    flow_close(&t);
}

/* https://github.com/rust-lang/futures-rs/issues/2387: work in flight starves
 * while the consumer is busy. */
TEST(map, work_goes_on_while_the_sink_is_busy_until_the_window_is_full)
{
    struct flow t;
    flow_open(&t);
    t.slow = true;
    flow_start(&t, (vow_map_opts){.concurrent = 3, .window = 6});
    item_ends(&t, 0); /* delivered, and the sink is busy with it */
    CHECK_UINT_EQ(t.n_got, 1);
    for (size_t i = 1; i < 7; i++)
        item_ends(&t, i);
    vow_map_stats s = vow_map_stats_get(t.m);
    CHECK_UINT_EQ(t.n_got, 1);
    CHECK_UINT_EQ(s.ended, 7);
    CHECK_UINT_EQ(s.buffered, 6);
    CHECK_UINT_EQ(s.running, 0);
    for (size_t n = 2; n < 7; n++) {
        sink_takes(&t);
        CHECK_UINT_EQ(t.n_got, n); /* one by one */
    }
    finish_all(&t);
    flow_close(&t);
}

/* ---- what the sink returns ---------------------------------------------- */

TEST(map, settled_future_of_the_sink_holds_nothing_up)
{
    struct flow t;
    flow_open(&t);
    t.answer = vow_resolved(t.w.loop, vow_int(1));
    flow_start(&t, (vow_map_opts){.concurrent = 3});
    end_ok(&t.k, 0);
    item_ends(&t, 1);
    CHECK_UINT_EQ(t.n_got, 2);
    finish_all(&t);
    flow_close(&t);
}

static vow_error *full(struct flow *t)
{
    return vow_error_new(t->w.loop, VOW_EIO, "disk full");
}

TEST(map, sink_that_fails_at_once_fails_the_map)
{
    for (uint32_t mode = VOW_FAIL_NOW; mode <= VOW_FAIL_COLLECT; mode++) {
        struct flow t;
        flow_open(&t);
        t.answer = vow_rejected(t.w.loop, full(&t));
        flow_start(&t, (vow_map_opts){.concurrent = 3, .fail = mode});
        item_ends(&t, 0);
        bool now = mode == VOW_FAIL_NOW;
        CHECK_INT_EQ(t.k.asked[1] + t.k.asked[2], now ? 2 : 0);
        CHECK_INT_EQ(vow_state_of(t.f), now ? VOW_REJECTED : VOW_PENDING);
        if (!now) {
            end_fail(t.w.loop, &t.k, 1, VOW_EINVAL);
            item_ends(&t, 2);
        }
        check_rejected(t.f, VOW_EIO);
        CHECK_UINT_EQ(t.n_got, 1); /* nothing more after that */
        CHECK_UINT_EQ(t.k.begun, 3);
        flow_close(&t);
    }
}

TEST(map, sink_that_fails_later_fails_the_map)
{
    struct flow t;
    flow_open(&t);
    t.slow = true;
    flow_start(&t, (vow_map_opts){.concurrent = 3, .fail = VOW_FAIL_COLLECT});
    end_fail(t.w.loop, &t.k, 0, VOW_EINVAL); /* no reason to stop */
    world_run(&t.w);
    CHECK_INT_EQ(t.refused, 1);
    item_ends(&t, 1);
    vow_reject_drop(t.busy, full(&t));
    world_run(&t.w);
    for (size_t i = 2; i < 5; i++)
        item_ends(&t, i);
    check_rejected(t.f, VOW_EIO);
    CHECK_UINT_EQ(t.n_got, 1);
    CHECK_UINT_EQ(t.k.begun, 5);
    flow_close(&t);
}

/* https://github.com/sourcegraph/conc/issues/156: each with its own status. */
TEST(map, drain_delivers_all_that_was_begun_before_it_rejects)
{
    struct flow t;
    flow_open(&t);
    flow_start(&t, (vow_map_opts){.concurrent = 4, .fail = VOW_FAIL_DRAIN});
    end_fail(t.w.loop, &t.k, 1, VOW_EIO);
    item_ends(&t, 2);
    CHECK_UINT_EQ(t.n_got, 0);
    item_ends(&t, 0);
    CHECK_UINT_EQ(t.n_got, 3);
    item_ends(&t, 3);
    check_rejected(t.f, VOW_EIO);
    CHECK_UINT_EQ(t.n_got, 4);
    CHECK_INT_EQ(t.refused, 1);
    flow_close(&t);
}

TEST(map, drain_waits_for_a_sink_that_is_busy)
{
    struct flow t;
    flow_open(&t);
    t.slow = true;
    flow_start(&t, (vow_map_opts){.concurrent = 2, .fail = VOW_FAIL_DRAIN});
    item_ends(&t, 0);
    end_fail(t.w.loop, &t.k, 1, VOW_EIO);
    item_ends(&t, 2);
    CHECK_UINT_EQ(t.n_got, 1);
    sink_takes(&t);
    sink_takes(&t);
    CHECK_UINT_EQ(t.n_got, 3);
    CHECK_INT_EQ(vow_state_of(t.f), VOW_PENDING);
    sink_takes(&t);
    check_rejected(t.f, VOW_EIO);
    flow_close(&t);
}

TEST(map, fail_now_delivers_nothing_after_the_failure)
{
    struct flow t;
    flow_open(&t);
    flow_start(&t, (vow_map_opts){.concurrent = 4});
    item_ends(&t, 1);
    end_fail(t.w.loop, &t.k, 2, VOW_EIO);
    item_ends(&t, 0);
    check_rejected(t.f, VOW_EIO);
    CHECK_UINT_EQ(t.n_got, 0);
    CHECK_UINT_EQ(vow_map_stats_get(t.m).buffered, 0);
    flow_close(&t);
}

/* ---- sources ------------------------------------------------------------ */

/* Numbers that are put in by hand; what it does when it has none is a plan. */
struct tap {
    vow_loop *loop;
    int ready;    /* numbers it can give */
    int code;     /* then: 0, an error, or VOW_EAGAIN with a future */
    bool without; /* a future */
    bool at_once; /* the future is settled */
    vow_deferred *more;
    int pulls, drops;
    bool over; /* it said so */
};

static int tap_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    struct tap *p = state;
    CHECK(!p->over);
    p->pulls++;
    if (p->ready > 0) {
        p->ready--;
        *ret_item = vow_nothing();
        return 1;
    }
    p->over = p->code != VOW_EAGAIN;
    if (p->over || p->without)
        return p->code;
    if (p->at_once) {
        p->ready = 1;
        *ret_wait = vow_resolved(p->loop, vow_nothing());
        p->at_once = false;
    } else {
        *ret_wait = vow_promise(p->loop, &p->more);
    }
    return VOW_EAGAIN;
}

static void tap_drop(void *state)
{
    struct tap *p = state;
    p->drops++;
}

static void tap_start(struct flow *t, struct tap *p, vow_map_opts o)
{
    flow_open(t);
    p->loop = t->w.loop;
    o.size = sizeof(o);
    vow_source src = {.pull = tap_pull, .state = p, .drop = tap_drop};
    t->f = vow_map(t->w.loop, src, held, &t->k, &o);
    world_run(&t->w);
}

static void tap_more(struct flow *t, struct tap *p, int n)
{
    p->ready = n;
    vow_resolve_drop(p->more, vow_nothing());
    p->more = NULL;
    world_run(&t->w);
}

TEST(map, source_that_has_none_yet_is_asked_again_when_its_future_settles)
{
    struct flow t;
    struct tap p = {.ready = 1, .code = VOW_EAGAIN};
    tap_start(&t, &p, (vow_map_opts){.concurrent = 3});
    CHECK_UINT_EQ(t.k.begun, 1);
    CHECK_INT_EQ(p.pulls, 2);
    item_ends(&t, 0);
    CHECK_INT_EQ(p.pulls, 2); /* not before */
    CHECK_INT_EQ(vow_state_of(t.f), VOW_PENDING);
    tap_more(&t, &p, 5);
    CHECK_UINT_EQ(t.k.begun, 4);
    CHECK_INT_EQ(p.pulls, 5); /* only when one can start */
    for (size_t i = 1; i < 6; i++)
        item_ends(&t, i);
    p.code = 0;
    tap_more(&t, &p, 0);
    CHECK_INT_EQ(p.drops, 1);
    check_list(t.f, 6, 100, 1);
    flow_close(&t);
}

TEST(map, source_with_a_future_that_is_settled_is_asked_again)
{
    struct flow t;
    struct tap p = {.code = VOW_EAGAIN, .at_once = true};
    tap_start(&t, &p, (vow_map_opts){.concurrent = 3});
    CHECK_UINT_EQ(t.k.begun, 1);
    item_ends(&t, 0);
    p.code = 0;
    tap_more(&t, &p, 0);
    check_list(t.f, 1, 100, 1);
    flow_close(&t);
}

TEST(map, source_that_fails_fails_the_map_as_an_item_would)
{
    for (uint32_t mode = VOW_FAIL_NOW; mode <= VOW_FAIL_COLLECT; mode++) {
        struct flow t;
        struct tap p = {.ready = 2, .code = VOW_ETIMEDOUT};
        tap_start(&t, &p, (vow_map_opts){.concurrent = 3, .fail = mode});
        bool now = mode == VOW_FAIL_NOW;
        CHECK_INT_EQ(t.k.asked[0] + t.k.asked[1], now ? 2 : 0);
        CHECK_INT_EQ(vow_state_of(t.f), now ? VOW_REJECTED : VOW_PENDING);
        for (size_t i = 0; !now && i < 2; i++)
            item_ends(&t, i);
        check_rejected(t.f, VOW_ETIMEDOUT);
        CHECK_INT_EQ(p.drops, 1);
        flow_close(&t);
    }
}

TEST(map, source_whose_future_is_rejected_has_failed)
{
    struct flow t;
    struct tap p = {.code = VOW_EAGAIN};
    tap_start(&t, &p, (vow_map_opts){.concurrent = 3});
    vow_reject_drop(p.more, full(&t));
    world_run(&t.w);
    check_rejected(t.f, VOW_EIO);
    CHECK_INT_EQ(p.pulls, 1);
    CHECK_INT_EQ(p.drops, 1);
    flow_close(&t);
}

TEST(map, source_that_breaks_the_rules_is_an_error_not_a_hang)
{
    static const int codes[] = {VOW_EAGAIN, 2};
    for (size_t i = 0; i < 2; i++) {
        struct flow t;
        struct tap p = {.code = codes[i], .without = true};
        tap_start(&t, &p, (vow_map_opts){.concurrent = 3});
        check_rejected(t.f, VOW_EINVAL);
        flow_close(&t);
    }
}

TEST(map, failure_ends_the_wait_for_the_source)
{
    for (uint32_t mode = VOW_FAIL_NOW; mode <= VOW_FAIL_DRAIN; mode++) {
        struct flow t;
        struct tap p = {.ready = 1, .code = VOW_EAGAIN};
        tap_start(&t, &p, (vow_map_opts){.concurrent = 3, .fail = mode});
        end_fail(t.w.loop, &t.k, 0, VOW_EIO);
        world_run(&t.w);
        check_rejected(t.f, VOW_EIO);
        CHECK(!vow_deferred_pending(p.more));
        CHECK_INT_EQ(p.drops, 1);
        vow_deferred_unref(p.more);
        flow_close(&t);
    }
}

/* ---- without an end ----------------------------------------------------- */

static int endless_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    (void)ret_wait;
    *ret_item = vow_int(++*(int64_t *)state);
    return 1;
}

static vow_future *same(vow_loop *loop, vow_value item, size_t index,
                        void *user)
{
    (void)index;
    (void)user;
    return vow_resolved(loop, item);
}

struct polls {
    uv_check_t check;
    int count;
    int64_t pulled, at_last, most;
    vow_future *f;
};

static void on_poll(uv_check_t *handle)
{
    struct polls *p = handle->data;
    if (p->pulled - p->at_last > p->most)
        p->most = p->pulled - p->at_last;
    p->at_last = p->pulled;
    if (++p->count == 50)
        vow_cancel(p->f, NULL);
}

TEST(map, endless_input_that_never_waits_leaves_libuv_its_turns)
{
    struct world w;
    world_open_real(&w);
    struct polls p = {0};
    CHECK_INT_EQ(uv_check_init(vow_loop_uv(w.loop), &p.check), 0);
    p.check.data = &p;
    CHECK_INT_EQ(uv_check_start(&p.check, on_poll), 0);
    uv_unref((uv_handle_t *)&p.check);
    vow_source src = {.pull = endless_pull, .state = &p.pulled};
    p.f = vow_map(w.loop, src, same, NULL,
                  VOW_MAP(.concurrent = 4, .discard = true));
    world_run(&w);
    check_rejected(p.f, VOW_ECANCELED);
    CHECK(p.count >= 50);
    CHECK(p.pulled > 10000);
    CHECK(p.most <= 2000); /* between two polls */
    uv_close((uv_handle_t *)&p.check, NULL);
    vow_future_unref(p.f);
    world_close(&w);
}

static vow_future *take_enough(size_t index, vow_future *outcome, void *user)
{
    (void)outcome;
    if (index == 100000)
        vow_cancel(*(vow_future **)user, NULL);
    CHECK(index <= 100000);
    return NULL;
}

TEST(map, endless_input_takes_bounded_memory_and_ends_when_the_sink_has_enough)
{
    struct world w;
    world_open(&w);
    int64_t pulled = 0;
    size_t before = w.alloc.live_bytes;
    vow_source src = {.pull = endless_pull, .state = &pulled};
    vow_future *f;
    f = vow_map(w.loop, src, same, NULL,
                VOW_MAP(.concurrent = 8, .sink = take_enough, .sink_user = &f));
    world_run(&w);
    check_rejected(f, VOW_ECANCELED);
    CHECK(pulled <= 100001 + 32);
    CHECK(w.alloc.peak_bytes < before + 50000);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- resizing ----------------------------------------------------------- */

/* https://github.com/sindresorhus/p-map/issues/28: change the concurrency of a
 * running map. */
TEST(map, limit_can_be_raised_and_lowered_while_it_runs)
{
    struct flow t;
    flow_open(&t);
    flow_start(&t, (vow_map_opts){.concurrent = 2, .as_completed = true});
    CHECK_UINT_EQ(t.k.running, 2);
    CHECK_INT_EQ(vow_map_resize(t.m, 5), 0);
    CHECK_UINT_EQ(t.k.running, 2); /* from the queue, as ever */
    world_run(&t.w);
    CHECK_UINT_EQ(t.k.running, 5);
    CHECK_INT_EQ(vow_map_resize(t.m, 1), 0);
    for (size_t i = 0; i < 4; i++) {
        item_ends(&t, i);
        CHECK_UINT_EQ(t.k.begun, 5); /* nothing is stopped, nothing begins */
    }
    item_ends(&t, 4);
    CHECK_UINT_EQ(t.k.begun, 6);
    CHECK_UINT_EQ(t.k.running, 1);
    CHECK_UINT_EQ(vow_map_stats_get(t.m).concurrent, 1);
    CHECK_INT_EQ(vow_map_resize(t.m, 0), VOW_EINVAL);
    CHECK_INT_EQ(vow_map_resize(t.m, 20), 0);
    finish_all(&t);
    CHECK_INT_EQ(vow_map_resize(t.m, 3), 0); /* too late to matter */
    flow_close(&t);
}

TEST(map, window_grows_with_a_limit_that_outgrows_it)
{
    struct flow t;
    flow_open(&t);
    flow_start(&t, (vow_map_opts){.concurrent = 2, .window = 2});
    CHECK_INT_EQ(vow_map_resize(t.m, 17), 0);
    world_run(&t.w);
    CHECK_UINT_EQ(t.k.running, 17);
    finish_all(&t);
    flow_close(&t);
}
