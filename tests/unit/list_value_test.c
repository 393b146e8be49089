/* SPDX-License-Identifier: MIT */
/* list_value_test.c - lists made by hand from settled futures. */
#include "fault.h"
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/promise.h"

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

static int code_of(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
}

TEST(list_value, has_the_futures_in_their_order)
{
    struct world w;
    world_open(&w);
    vow_future *f[3] = {
        vow_resolved(w.loop, vow_int(7)),
        vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "second")),
        vow_resolved(w.loop, vow_ptr("third"))};
    vow_future *was[3] = {f[0], f[1], f[2]};
    vow_value list = vow_nothing();
    CHECK_INT_EQ(vow_list_new(w.loop, f, 3, &list), 0);
    f[0] = f[1] = f[2] = NULL; /* the array is not needed any more */
    CHECK_INT_EQ(vow_kind_of(list), VOW_LIST);
    CHECK_UINT_EQ(vow_list_size(list), 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_PTR_EQ(vow_list_at(list, i), was[i]);
    CHECK_PTR_EQ(vow_list_at(list, 3), NULL);
    CHECK_PTR_EQ(vow_list_at(list, SIZE_MAX), NULL);
    CHECK_INT_EQ(vow_as_int(vow_list_get(list, 0)), 7);
    CHECK_INT_EQ(vow_kind_of(vow_list_get(list, 1)), VOW_NOTHING);
    CHECK_STR_EQ(vow_as_ptr(vow_list_get(list, 2)), "third");
    CHECK_INT_EQ(vow_kind_of(vow_list_get(list, 3)), VOW_NOTHING);
    CHECK_INT_EQ(code_of(vow_list_at(list, 1)), VOW_EIO);
    vow_value_drop(list);
    world_close(&w);
}

TEST(list_value, may_be_empty)
{
    struct world w;
    world_open(&w);
    vow_value list = vow_nothing();
    CHECK_INT_EQ(vow_list_new(w.loop, NULL, 0, &list), 0);
    CHECK_INT_EQ(vow_kind_of(list), VOW_LIST);
    CHECK_UINT_EQ(vow_list_size(list), 0);
    CHECK_PTR_EQ(vow_list_at(list, 0), NULL);
    vow_value_drop(list);
    world_close(&w);
}

TEST(list_value, takes_over_the_references)
{
    struct world w;
    world_open(&w);
    int drops[2] = {0, 0};
    vow_future *kept = vow_resolved(w.loop, vow_own(&drops[0], count_drop));
    vow_future *f[] = {vow_future_ref(kept),
                       vow_resolved(w.loop, vow_own(&drops[1], count_drop)),
                       vow_future_ref(kept)}; /* it may repeat */
    vow_value list;
    CHECK_INT_EQ(vow_list_new(w.loop, f, 3, &list), 0);
    CHECK_PTR_EQ(vow_list_at(list, 0), vow_list_at(list, 2));
    CHECK_INT_EQ(drops[0] + drops[1], 0);
    vow_value_drop(list);
    CHECK_INT_EQ(drops[0], 0); /* held by us */
    CHECK_INT_EQ(drops[1], 1);
    CHECK_PTR_EQ(vow_as_ptr(vow_get(kept)), &drops[0]);
    vow_future_unref(kept);
    CHECK_INT_EQ(drops[0], 1);
    world_close(&w);
}

TEST(list_value, a_rejection_in_it_is_looked_after)
{
    struct world w;
    world_open(&w);
    vow_future *f[] = {
        vow_rejected(w.loop, vow_error_new(w.loop, VOW_EIO, "mine"))};
    vow_value list;
    CHECK_INT_EQ(vow_list_new(w.loop, f, 1, &list), 0);
    vow_value_drop(list); /* and is not told as unhandled: see the close */
    world_close(&w);
}

TEST(list_value, refuses_one_that_is_pending_and_drops_all)
{
    struct world w;
    world_open(&w);
    for (int at = 0; at < 3; at++) {
        int drops[3] = {0, 0, 0};
        vow_deferred *d;
        vow_future *f[3];
        for (int i = 0; i < 3; i++)
            f[i] = i == at
                       ? vow_promise(w.loop, &d)
                       : vow_resolved(w.loop, vow_own(&drops[i], count_drop));
        vow_value list = vow_int(5);
        CHECK_INT_EQ(vow_list_new(w.loop, f, 3, &list), VOW_EINVAL);
        CHECK_INT_EQ(vow_as_int(list), 5); /* untouched */
        for (int i = 0; i < 3; i++)
            CHECK_INT_EQ(drops[i], i != at);
        CHECK(vow_deferred_pending(d)); /* dropped is not canceled */
        vow_resolve_drop(d, vow_nothing());
    }
    world_close(&w);
}

TEST(list_value, refuses_nothing_and_what_is_of_another_loop)
{
    struct world w, other;
    world_open(&w);
    world_open(&other);
    vow_value list = vow_int(5);
    CHECK_INT_EQ(vow_list_new(w.loop, NULL, 1, &list), VOW_EINVAL);
    vow_future *f[] = {vow_resolved(w.loop, vow_nothing()), NULL};
    CHECK_INT_EQ(vow_list_new(w.loop, f, 2, &list), VOW_EINVAL);
    vow_future *g[] = {vow_resolved(w.loop, vow_nothing()),
                       vow_resolved(other.loop, vow_nothing())};
    CHECK_INT_EQ(vow_list_new(w.loop, g, 2, &list), VOW_EINVAL);
    CHECK_INT_EQ(vow_as_int(list), 5);
    world_close(&other);
    world_close(&w);
}

static vow_next sum(vow_value v, void *user)
{
    int64_t *total = user;
    for (size_t i = 0; i < vow_list_size(v); i++)
        *total += vow_as_int(vow_list_get(v, i));
    return vow_pass();
}

TEST(list_value, goes_through_promises_as_those_of_vow_all_do)
{
    struct world w;
    world_open(&w);
    vow_future *f[4];
    for (int i = 0; i < 4; i++)
        f[i] = vow_resolved(w.loop, vow_int(i));
    vow_value list;
    CHECK_INT_EQ(vow_list_new(w.loop, f, 4, &list), 0);
    vow_deferred *d;
    int64_t total = 0;
    vow_future *first = vow_promise(w.loop, &d);
    vow_future *a = vow_then(first, sum, NULL, &total);
    vow_future *b = vow_then(first, sum, NULL, &total); /* two readers */
    vow_resolve_drop(d, list);
    world_run(&w);
    CHECK_INT_EQ(total, 12);
    vow_future_unref(first);
    CHECK_UINT_EQ(vow_list_size(vow_get(a)), 4); /* passed on */
    vow_future_unref(a);
    CHECK_INT_EQ(vow_as_int(vow_list_get(vow_get(b), 3)), 3);
    vow_future_unref(b);
    world_close(&w);
}

TEST(list_value, lists_in_lists_are_dropped_without_recursion)
{
    enum { DEEP = 100000 };
    struct world w;
    world_open(&w);
    int drops = 0;
    vow_future *f = vow_resolved(w.loop, vow_own(&drops, count_drop));
    for (int i = 0; i < DEEP; i++) {
        vow_value list;
        CHECK_INT_EQ(vow_list_new(w.loop, &f, 1, &list), 0);
        f = vow_resolved(w.loop, list);
    }
    CHECK_INT_EQ(drops, 0);
    vow_future_unref(f);
    CHECK_INT_EQ(drops, 1);
    world_close(&w);
}

TEST(list_value, may_be_dropped_after_the_loop_was_closed)
{
    struct world w;
    world_open(&w);
    int drops = 0;
    vow_future *f[] = {vow_resolved(w.loop, vow_own(&drops, count_drop))};
    vow_value list;
    CHECK_INT_EQ(vow_list_new(w.loop, f, 1, &list), 0);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_UINT_EQ(vow_list_size(list), 1);
    vow_value_drop(list);
    CHECK_INT_EQ(drops, 1);
    world_close_dirty(&w);
}

FAULT_SWEEP(list_value, survives_every_fault, FAULT_ALLOC)
{
    int drops[3] = {0, 0, 0};
    vow_future *f[3];
    for (int i = 0; i < 3; i++)
        f[i] = vow_resolved(w->loop, vow_own(&drops[i], count_drop));
    vow_value list = vow_int(5);
    int rc = vow_list_new(w->loop, f, 3, &list);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0)
        vow_value_drop(list);
    else
        CHECK_INT_EQ(vow_as_int(list), 5);
    for (int i = 0; i < 3; i++)
        CHECK_INT_EQ(drops[i], 1);
}
