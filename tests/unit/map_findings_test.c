/* SPDX-License-Identifier: MIT */
/* map_findings_test.c - map: sources that cancel, contradict themselves or lend
 * futures of others; destructors that cancel; maps inside maps. */
#include "map_work.h"

#include "vow/combine.h"

/* ---- a source that does as it is told ----------------------------------- */

struct odd {
    int rc; /* of the first pull; the second is the end */
    bool gives_item;
    vow_future *wait;   /* given with it, moved; NULL: none */
    vow_future *cancel; /* by the first pull; NULL: nothing */
    int pulls;
    int begun;
    int drops; /* of the item */
};

static void count_drop(void *ptr)
{
    ((struct odd *)ptr)->drops++;
}

static int odd_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    struct odd *o = state;
    if (o->pulls++ > 0)
        return 0;
    if (o->cancel != NULL)
        CHECK(vow_cancel(o->cancel, NULL));
    if (o->gives_item)
        *ret_item = vow_own(o, count_drop);
    *ret_wait = o->wait;
    return o->rc;
}

static vow_future *at_once(vow_loop *loop, vow_value item, size_t index,
                           void *user)
{
    struct odd *o = user;
    (void)item;
    o->begun++;
    return vow_resolved(loop, vow_int((int64_t)index));
}

static vow_future *map_odd(struct world *w, struct odd *o)
{
    vow_source source = {.pull = odd_pull, .state = o};
    return vow_map(w->loop, source, at_once, o, VOW_MAP(.concurrent = 1));
}

/* ---- canceled by the source --------------------------------------------- */

TEST(map, a_pull_may_cancel_and_return_anything)
{
    static const int codes[] = {0, 1, 2, VOW_EINVAL, VOW_EAGAIN};
    for (size_t i = 0; i < 5; i++) {
        struct world w;
        world_open(&w);
        struct odd o = {.rc = codes[i], .gives_item = true};
        o.cancel = map_odd(&w, &o);
        world_advance_ms(&w, 1);
        check_rejected(o.cancel, VOW_ECANCELED);
        CHECK_INT_EQ(o.pulls, 1);
        CHECK_INT_EQ(o.begun, 0);
        CHECK_INT_EQ(o.drops, 1);
        vow_future_unref(o.cancel);
        world_close(&w);
    }
}

TEST(map, a_pull_that_cancels_and_waits_has_its_wait_canceled)
{
    struct world w;
    world_open(&w);
    vow_deferred *end;
    struct odd o = {.rc = VOW_EAGAIN, .wait = vow_promise(w.loop, &end)};
    o.cancel = map_odd(&w, &o);
    world_advance_ms(&w, 1);
    check_rejected(o.cancel, VOW_ECANCELED);
    CHECK(vow_deferred_canceled(end));
    vow_deferred_unref(end);
    vow_future_unref(o.cancel);
    world_close(&w);
}

/* The timeout lets go of the map, whose hook then comes from the queue. */
TEST(map, a_pull_that_cancels_through_a_timeout_is_the_last)
{
    struct world w;
    world_open(&w);
    struct odd o = {.rc = 1, .gives_item = true};
    vow_future *m = map_odd(&w, &o);
    o.cancel = vow_timeout(m, 1000);
    vow_future_unref(m);
    world_advance_ms(&w, 1);
    check_rejected(o.cancel, VOW_ECANCELED);
    CHECK_INT_EQ(o.pulls, 1);
    CHECK_INT_EQ(o.drops, 1);
    vow_future_unref(o.cancel);
    world_close(&w);
}

struct endless {
    int pulls;
    vow_future *around;
};

static int endless_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    struct endless *e = state;
    (void)ret_wait;
    e->pulls++;
    *ret_item = vow_int(1);
    return 1;
}

static vow_future *third_cancels(vow_loop *loop, vow_value item, size_t index,
                                 void *user)
{
    struct endless *e = user;
    (void)item;
    if (index == 2)
        CHECK(vow_cancel(e->around, NULL));
    return vow_resolved(loop, vow_nothing());
}

TEST(map, canceled_through_a_timeout_it_pulls_no_more)
{
    struct world w;
    world_open(&w);
    struct endless e = {0};
    vow_source source = {.pull = endless_pull, .state = &e};
    vow_future *m = vow_map(w.loop, source, third_cancels, &e,
                            VOW_MAP(.concurrent = 1, .discard = true));
    e.around = vow_timeout(m, 1000);
    vow_future_unref(m);
    world_advance_ms(&w, 1);
    CHECK_INT_EQ(e.pulls, 3);
    check_rejected(e.around, VOW_ECANCELED);
    vow_future_unref(e.around);
    world_close(&w);
}

static vow_future *second_cancels(size_t index, vow_future *outcome, void *user)
{
    struct endless *e = user;
    (void)outcome;
    CHECK(index < 2);
    if (index == 1)
        CHECK(vow_cancel(e->around, NULL));
    return NULL;
}

static vow_future *index_of(vow_loop *loop, vow_value item, size_t index,
                            void *user)
{
    (void)item;
    (void)user;
    return vow_resolved(loop, vow_int((int64_t)index));
}

TEST(map, canceled_through_a_timeout_it_delivers_no_more)
{
    struct world w;
    world_open(&w);
    struct endless e = {0};
    vow_range range;
    vow_future *m = vow_map(
        w.loop, vow_source_range(&range, 0, 9), index_of, NULL,
        VOW_MAP(.concurrent = 3, .sink = second_cancels, .sink_user = &e));
    e.around = vow_timeout(m, 1000);
    vow_future_unref(m);
    world_advance_ms(&w, 1);
    check_rejected(e.around, VOW_ECANCELED);
    vow_future_unref(e.around);
    world_close(&w);
}

/* ---- canceled by a destructor ------------------------------------------- */

struct starved {
    struct world w;
    vow_future *map;
    bool keeps; /* the future, after the cancel */
};

static void cancel_map(void *ptr)
{
    struct starved *s = ptr;
    vow_future *map = s->map;
    if (s->keeps) {
        (void)vow_cancel(map, NULL);
        return;
    }
    s->map = NULL;
    (void)vow_cancel(map, NULL);
    vow_future_unref(map);
}

static vow_future *last_memory(vow_loop *loop, vow_value item, size_t index,
                               void *user)
{
    struct starved *s = user;
    (void)item;
    (void)index;
    vow_future *f = vow_resolved(loop, vow_own(s, cancel_map));
    s->w.alloc.fail_at = s->w.alloc.allocs + 1;
    s->w.alloc.fail_forever = true;
    return f;
}

TEST(map, a_destructor_may_cancel_it_when_there_is_no_memory_for_the_list)
{
    for (int keeps = 0; keeps < 2; keeps++) {
        struct starved s = {.keeps = keeps == 1};
        vow_range range;
        world_open_with(&s.w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
        s.map = vow_map(s.w.loop, vow_source_range(&range, 0, 1), last_memory,
                        &s, VOW_MAP(.concurrent = 1));
        world_advance_ms(&s.w, 1);
        s.w.alloc.fail_at = 0;
        s.w.alloc.fail_forever = false;
        world_advance_ms(&s.w, 1);
        if (s.map != NULL)
            CHECK_INT_EQ(vow_state_of(s.map), VOW_REJECTED);
        (void)(s.map != NULL && vow_error_of(s.map) != NULL);
        vow_future_unref(s.map);
        world_close(&s.w);
    }
}

/* ---- what does not fit -------------------------------------------------- */

TEST(map, a_wait_that_comes_with_an_item_is_dropped)
{
    struct world w;
    world_open(&w);
    struct odd o = {.rc = 1, .gives_item = true};
    o.wait = vow_resolved(w.loop, vow_nothing());
    vow_future *m = map_odd(&w, &o);
    world_advance_ms(&w, 1);
    check_list(m, 1, 0, 0);
    CHECK_INT_EQ(o.drops, 1);
    vow_future_unref(m);
    world_close(&w);
}

TEST(map, a_wait_that_comes_with_the_end_or_an_error_is_not_waited_for)
{
    static const int codes[] = {0, VOW_EIO};
    for (size_t i = 0; i < 2; i++) {
        struct world w;
        world_open(&w);
        vow_deferred *end;
        struct odd o = {.rc = codes[i], .wait = vow_promise(w.loop, &end)};
        vow_future *m = map_odd(&w, &o);
        world_advance_ms(&w, 1);
        CHECK_INT_EQ(vow_state_of(m), i == 0 ? VOW_FULFILLED : VOW_REJECTED);
        CHECK_INT_EQ(vow_error_code(vow_error_of(m)), codes[i]);
        vow_future_unref(m);
        vow_resolve_drop(end, vow_nothing());
        world_close(&w);
    }
}

TEST(map, an_item_that_comes_without_the_code_for_it_is_dropped)
{
    static const int codes[] = {0, 2, VOW_EIO, VOW_EAGAIN};
    for (size_t i = 0; i < 4; i++) {
        struct world w;
        world_open(&w);
        struct odd o = {.rc = codes[i], .gives_item = true};
        if (codes[i] == VOW_EAGAIN)
            o.wait = vow_delay(w.loop, 5);
        vow_future *m = map_odd(&w, &o);
        world_advance_ms(&w, 10);
        CHECK(vow_state_of(m) != VOW_PENDING);
        CHECK_INT_EQ(o.drops, 1);
        CHECK_INT_EQ(o.begun, 0);
        (void)vow_error_of(m);
        vow_future_unref(m);
        world_close(&w);
    }
}

/* ---- other loops -------------------------------------------------------- */

TEST(map, a_wait_of_another_loop_is_refused)
{
    struct world w, other;
    world_open(&w);
    world_open(&other);
    vow_deferred *end;
    vow_future *foreign = vow_promise(other.loop, &end);
    struct odd o = {.rc = VOW_EAGAIN, .wait = vow_future_ref(foreign)};
    vow_future *m = map_odd(&w, &o);
    world_advance_ms(&w, 1);
    check_rejected(m, VOW_EINVAL);
    CHECK_INT_EQ(vow_state_of(foreign), VOW_PENDING);
    vow_resolve_drop(end, vow_nothing());
    world_advance_ms(&other, 1);
    vow_future_unref(foreign);
    vow_future_unref(m);
    world_close(&w);
    world_close(&other);
}

static vow_future *elsewhere(size_t index, vow_future *outcome, void *user)
{
    (void)index;
    (void)outcome;
    return vow_future_ref(user);
}

TEST(map, a_future_of_another_loop_from_the_sink_is_refused)
{
    for (uint32_t mode = VOW_FAIL_NOW; mode <= VOW_FAIL_COLLECT; mode++) {
        struct world w, other;
        world_open(&w);
        world_open(&other);
        vow_deferred *end;
        vow_range range;
        vow_future *foreign = vow_promise(other.loop, &end);
        vow_future *m =
            vow_map(w.loop, vow_source_range(&range, 0, 2), index_of, NULL,
                    VOW_MAP(.concurrent = 1, .fail = mode, .sink = elsewhere,
                            .sink_user = foreign));
        world_advance_ms(&w, 1);
        check_rejected(m, VOW_EINVAL);
        CHECK_INT_EQ(vow_state_of(foreign), VOW_PENDING);
        vow_resolve_drop(end, vow_nothing());
        world_advance_ms(&other, 1);
        vow_future_unref(foreign);
        vow_future_unref(m);
        world_close(&w);
        world_close(&other);
    }
}

/* ---- resizing ----------------------------------------------------------- */

struct resizer {
    vow_mapping *map;
    int pulls;
    uint32_t running[MANY]; /* when each item began */
};

static int sixth_resizes(void *state, vow_value *ret_item,
                         vow_future **ret_wait)
{
    struct resizer *r = state;
    (void)ret_wait;
    if (++r->pulls > 10)
        return 0;
    if (r->pulls == 6)
        CHECK_INT_EQ(vow_map_resize(r->map, 1), 0);
    *ret_item = vow_int(1);
    return 1;
}

static vow_future *note_running(vow_loop *loop, vow_value item, size_t index,
                                void *user)
{
    struct resizer *r = user;
    (void)item;
    r->running[index] = vow_map_stats_get(r->map).running;
    return vow_delay(loop, 10);
}

TEST(map, the_item_whose_pull_lowers_the_limit_is_the_last_above_it)
{
    struct world w;
    world_open(&w);
    struct resizer r = {0};
    vow_source source = {.pull = sixth_resizes, .state = &r};
    vow_future *m = vow_map(w.loop, source, note_running, &r,
                            VOW_MAP(.concurrent = 8, .ret_map = &r.map));
    world_advance_ms(&w, 1000);
    for (uint32_t i = 0; i < 10; i++)
        CHECK_UINT_EQ(r.running[i], i < 6 ? i + 1 : 1);
    CHECK_INT_EQ(vow_state_of(m), VOW_FULFILLED);
    vow_future_unref(m);
    vow_mapping_unref(r.map);
    world_close(&w);
}

TEST(map, a_limit_beyond_all_items_costs_nothing)
{
    struct world w;
    world_open(&w);
    vow_range range;
    vow_future *m =
        vow_map(w.loop, vow_source_range(&range, INT64_MAX - 3, INT64_MAX),
                index_of, NULL, VOW_MAP(.concurrent = UINT32_MAX));
    world_advance_ms(&w, 1);
    check_list(m, 3, 0, 1);
    vow_future_unref(m);
    world_close(&w);
}

/* ---- maps inside maps --------------------------------------------------- */

enum { DEEP = 20000 };

struct nest {
    int left;
    vow_deferred *end; /* of the innermost item */
    vow_range ranges[DEEP + 1];
};
static struct nest nest;

static vow_future *inner(vow_loop *loop, vow_value item, size_t index,
                         void *user)
{
    (void)item;
    (void)index;
    if (nest.left == 0)
        return vow_promise(loop, &nest.end);
    vow_range *range = &nest.ranges[nest.left--];
    return vow_map(loop, vow_source_range(range, 0, 1), inner, user,
                   VOW_MAP(.concurrent = 1));
}

static vow_future *map_deep(struct world *w)
{
    nest.left = DEEP;
    vow_future *m = vow_map(w->loop, vow_source_range(&nest.ranges[0], 0, 1),
                            inner, NULL, VOW_MAP(.concurrent = 1));
    world_advance_ms(w, 1);
    CHECK(nest.end != NULL);
    return m;
}

TEST(map, very_deep_inside_maps_it_is_canceled)
{
    struct world w;
    world_open(&w);
    vow_future *m = map_deep(&w);
    CHECK(vow_cancel(m, NULL));
    world_advance_ms(&w, 1);
    check_rejected(m, VOW_ECANCELED);
    CHECK(vow_deferred_canceled(nest.end));
    vow_future_unref(m);
    nest.end = vow_deferred_unref(nest.end);
    world_close(&w);
}

TEST(map, very_deep_inside_maps_it_succeeds_and_its_lists_are_dropped)
{
    struct world w;
    world_open(&w);
    vow_future *m = map_deep(&w);
    vow_resolve_drop(nest.end, vow_int(1));
    world_advance_ms(&w, 1);
    CHECK_INT_EQ(vow_state_of(m), VOW_FULFILLED);
    vow_future_unref(m);
    world_close(&w);
}
