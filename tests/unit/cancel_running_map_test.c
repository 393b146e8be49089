/* SPDX-License-Identifier: MIT */
/* cancel_running_map_test.c - a map keeps its limit, its items and what it was
 * lent until every body has ended, whatever is chained to it. */
#include "cancel_rig.h"

#include "vow/map.h"

enum { ITEMS = 4 };

/* Ways to end an item, or all of the map; before these, those of `outside`. */
enum map_end {
    MAP_ITEM_FAILS = OUTSIDE_KINDS, /* another item fails */
    MAP_SINK_FAILS,
    MAP_SOURCE_FAILS,
    MAP_ENDS
};

static const char *const map_end_names[] = {
    "another item fails", "the sink fails", "the source fails"};

struct map_case;

struct map_item {
    struct map_case *of;
    size_t index;
    bool pulled, dropped;
};

struct map_case {
    struct cancel_rig r;
    int end;       /* enum outside or enum map_end */
    uint32_t fail; /* enum vow_map_fail */
    struct map_item items[ITEMS];
    size_t n_pulled;
    bool paused; /* the source has let the first item begin */
    int dropped; /* how often the source was */
    vow_mapping *map;
};

static void drop_map_item(void *ptr)
{
    struct map_item *i = ptr;
    i->dropped = true;
    if (i->of->r.n > i->index &&
        atomic_load(&i->of->r.bodies[i->index].running) > 0)
        cancel_fault(&i->of->r, "item %d is dropped while its body runs",
                     (int)i->index);
}

static int pull_map_item(void *state, vow_value *ret_item,
                         vow_future **ret_wait)
{
    struct map_case *c = state;
    if (c->n_pulled == 1 && !c->paused) {
        c->paused = true;
        *ret_wait = vow_delay(c->r.w.loop, 10);
        return VOW_EAGAIN;
    }
    if (c->end == MAP_SOURCE_FAILS && c->n_pulled == 1)
        return VOW_EIO;
    if (c->n_pulled == ITEMS)
        return 0;
    struct map_item *i = &c->items[c->n_pulled];
    *i = (struct map_item){.of = c, .index = c->n_pulled++, .pulled = true};
    *ret_item = vow_own(i, drop_map_item);
    return 1;
}

static void drop_map_source(void *state)
{
    struct map_case *c = state;
    c->dropped++;
    if (atomic_load(&c->r.running) > 0)
        cancel_fault(&c->r, "source.drop is called while %d run",
                     atomic_load(&c->r.running));
}

/* Item 0 does not end; item 1 fails, if that is the case; the others end. */
static vow_future *start_map_item(vow_loop *loop, vow_value item, size_t index,
                                  void *user)
{
    struct map_case *c = user;
    CHECK_PTR_EQ(vow_as_ptr(item), &c->items[index]);
    if (c->dropped > 0)
        cancel_fault(&c->r, "an item starts after source.drop");
    if (index == 1 && c->end == MAP_ITEM_FAILS)
        return vow_refused(loop, VOW_EIO, NULL);
    return body_begin(&c->r.bodies[index]);
}

static vow_future *fail_map_sink(size_t index, vow_future *outcome, void *user)
{
    struct map_case *c = user;
    (void)outcome;
    if (c->end != MAP_SINK_FAILS || index != 1)
        return NULL;
    return vow_refused(c->r.w.loop, VOW_EIO, NULL);
}

static void open_map_case(struct map_case *c, enum body_kind kind,
                          enum body_wrap wrap, bool keeps)
{
    bool two = c->end >= MAP_ITEM_FAILS;
    struct cancel_rig *r = &c->r;
    cancel_open(r, two ? 2 : 1);
    for (int i = 0; i < ITEMS; i++) {
        struct body *b = cancel_short_body(r, kind, i == 0 ? wrap : WRAP_BARE);
        if (two) /* what ends at once */
            b->kind = i == 0 ? kind : BODY_PROMISE;
    }
    r->bodies[0].released = false;
    r->bodies[0].keeps = keeps;
    r->bodies[0].inner_ms = c->end == OUTSIDE_INNER ? OUTSIDE_MS : 0;
    static const char *const fails[] = {"now", "drain", "collect"};
    (void)snprintf(r->name, sizeof(r->name), "map (%s): %s behind %s%s, %s",
                   fails[c->fail], body_names[kind], wrap_names[wrap],
                   keeps ? " (kept)" : "",
                   c->end < OUTSIDE_KINDS
                       ? outside_names[c->end]
                       : map_end_names[c->end - MAP_ITEM_FAILS]);
}

static int try_map_case(enum body_kind kind, enum body_wrap wrap, int end,
                        uint32_t fail, bool keeps)
{
    struct map_case c = {.end = end, .fail = fail};
    struct cancel_rig *r = &c.r;
    open_map_case(&c, kind, wrap, keeps);
    vow_source source = {pull_map_item, &c, drop_map_source};
    vow_future *f =
        vow_map(r->w.loop, source, start_map_item, &c,
                VOW_MAP(.concurrent = (uint32_t)r->limit, .fail = fail,
                        .as_completed = true, .sink = fail_map_sink,
                        .sink_user = &c, .ret_map = &c.map));
    cancel_turns(r);
    struct body *a = &r->bodies[0];
    CHECK_INT_EQ(a->calls, 1);
    if (end < OUTSIDE_LINKS)
        f = cancel_outside(r, (enum outside)end, f);
    else
        world_advance_ms(&r->w, OUTSIDE_MS);
    cancel_pass(r);
    cancel_pass(r);
    CHECK_INT_EQ(atomic_load(&a->running), 1);
    CANCEL_EXPECT(r, c.dropped == 0);
    CANCEL_EXPECT(r, vow_map_stats_get(c.map).running == 1);
    bool ends_early = end < MAP_ITEM_FAILS || fail != VOW_FAIL_COLLECT;
    CANCEL_EXPECT(r, !ends_early || r->limit == 2 || r->bodies[1].calls == 0);
    if (end != OUTSIDE_INNER || fail != VOW_FAIL_NOW)
        CANCEL_EXPECT(r, end < OUTSIDE_LINKS || fail == VOW_FAIL_NOW ||
                             vow_state_of(f) == VOW_PENDING);

    body_release(a);
    world_run(&r->w);
    CANCEL_EXPECT(r, c.dropped == 1);
    for (size_t i = 0; i < c.n_pulled; i++)
        CANCEL_EXPECT(r, c.items[i].dropped);
    bool goes_on = fail == VOW_FAIL_COLLECT && end == OUTSIDE_INNER;
    CANCEL_EXPECT(r, !goes_on || r->bodies[ITEMS - 1].calls == 1);
    cancel_settled(r, f, "the map");
    vow_mapping_unref(c.map);
    return cancel_close(r);
}

static void try_map(enum body_kind kind, bool keeps)
{
    int faults = 0;
    for (int end = 0; end < MAP_ENDS; end++) {
        if (end == OUTSIDE_OPTION || end == OUTSIDE_CLOSE)
            continue;
        for (uint32_t fail = VOW_FAIL_NOW; fail <= VOW_FAIL_COLLECT; fail++) {
            if (kind == BODY_WORK && end > OUTSIDE_CANCEL &&
                end < OUTSIDE_LINKS && fail != VOW_FAIL_NOW)
                continue; /* nothing new, and each takes threads */
            for (int wrap = 0; wrap < WRAP_KINDS; wrap++)
                faults +=
                    try_map_case(kind, (enum body_wrap)wrap, end, fail, keeps);
        }
    }
    CHECK_INT_EQ(faults, 0);
}

TEST(cancel_running_map, a_fiber_keeps_what_the_map_was_lent)
{
    try_map(BODY_FIBER, false);
}

TEST(cancel_running_map, a_job_on_a_thread_keeps_what_the_map_was_lent)
{
    try_map(BODY_WORK, false);
}

TEST(cancel_running_map, a_promise_with_a_hook_keeps_what_the_map_was_lent)
{
    try_map(BODY_PROMISE, false);
}

TEST(cancel_running_map, work_that_another_holds_too_keeps_what_was_lent)
{
    try_map(BODY_FIBER, true);
    try_map(BODY_PROMISE, true);
}

/* ---- an array that is freed by source.drop ------------------------------- */

struct read_item {
    vow_loop *loop;
    const int *item;
};

static int sum_of_items;

static vow_next read_item_late(void *arg)
{
    struct read_item *i = arg;
    (void)vow_sleep(i->loop, 100);
    (void)vow_sleep(i->loop, 100); /* the first may have been cut short */
    sum_of_items += *i->item;
    return vow_ok(vow_nothing());
}

static vow_future *start_read(vow_loop *loop, vow_value item, size_t index,
                              void *user)
{
    struct read_item *i = (struct read_item *)user + index;
    *i = (struct read_item){loop, vow_as_ptr(item)};
    return vow_then_drop(vow_async(loop, read_item_late, i), chain_ok, NULL,
                         NULL);
}

static bool array_freed;

static void free_array(void *state)
{
    (void)state;
    array_freed = true;
}

TEST(cancel_running_map, an_array_may_be_freed_by_the_drop_of_its_source)
{
    struct world w;
    int array[ITEMS] = {1, 10, 100, 1000};
    struct read_item reads[ITEMS];
    vow_span span;
    world_open(&w);
    vow_source s = vow_source_array(&span, array, ITEMS, sizeof(array[0]));
    s.drop = free_array;
    vow_future *f =
        vow_map(w.loop, s, start_read, reads, VOW_MAP(.concurrent = 2));
    world_advance_ms(&w, 10);
    vow_cancel(f, NULL);
    while (!array_freed)
        world_advance_ms(&w, 1);
    CHECK_INT_EQ(sum_of_items, 11); /* the two that ran have read theirs */
    world_run(&w);
    CHECK_INT_EQ(sum_of_items, 11);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), VOW_ECANCELED);
    vow_future_unref(f);
    world_close(&w);
}
