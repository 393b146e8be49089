/* SPDX-License-Identifier: MIT */
/* map_work.h - work for a map's items that ends when the test says so, and
 * looks at what became of it. Used by the tests of vow_map(). */
#ifndef TEST_MAP_WORK_H
#define TEST_MAP_WORK_H

#include "harness.h"
#include "world.h"

#include "vow/map.h"

enum { MANY = 32 };

struct work;
struct ask {
    struct work *w;
    size_t index;
};

struct work {
    uint32_t begun;
    uint32_t running, most;
    size_t order[MANY];      /* indexes in the order of their start */
    vow_deferred *end[MANY]; /* of those that have not ended */
    int asked[MANY];         /* to stop */
    bool stubborn;           /* and does not */
    struct ask asks[MANY];
};

static inline void asked_to_stop(vow_error *why, void *user)
{
    struct ask *a = user;
    CHECK_INT_EQ(vow_error_code(why), VOW_ECANCELED);
    a->w->asked[a->index]++;
    if (a->w->stubborn)
        return;
    vow_reject_drop(a->w->end[a->index], vow_error_ref(why));
    a->w->end[a->index] = NULL;
    a->w->running--;
}

static inline vow_future *held(vow_loop *loop, vow_value item, size_t index,
                               void *user)
{
    struct work *w = user;
    (void)item;
    CHECK(index < MANY);
    w->order[w->begun++] = index;
    if (++w->running > w->most)
        w->most = w->running;
    vow_future *f = vow_promise(loop, &w->end[index]);
    w->asks[index] = (struct ask){w, index};
    vow_on_cancel(w->end[index], asked_to_stop, &w->asks[index]);
    return f;
}

static inline void end_ok(struct work *w, size_t index)
{
    vow_resolve_drop(w->end[index], vow_int(100 + (int64_t)index));
    w->end[index] = NULL;
    w->running--;
}

static inline void end_fail(vow_loop *loop, struct work *w, size_t index,
                            int code)
{
    vow_reject_drop(w->end[index],
                    vow_error_new(loop, code, "item %d fails", (int)index));
    w->end[index] = NULL;
    w->running--;
}

static inline void check_rejected(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
}

static inline void check_list(vow_future *f, size_t n, int64_t first,
                              int64_t step)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_kind_of(vow_get(f)), VOW_LIST);
    CHECK_UINT_EQ(vow_list_size(vow_get(f)), n);
    for (size_t i = 0; i < n; i++)
        CHECK_INT_EQ(vow_as_int(vow_list_get(vow_get(f), i)),
                     first + (int64_t)i * step);
}

#endif
