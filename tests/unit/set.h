/* SPDX-License-Identifier: MIT */
/* set.h - a world with some promises, for the tests of promises.
 *
 * Promise i has its ends in d[i] and f[i]. What is kept, and the ends that the
 * test did not let go itself, are dropped at the close. That is each file's
 * own: some let all handlers run first, some want them to run without readers.
 */
#ifndef TEST_SET_H
#define TEST_SET_H

#include "harness.h"
#include "world.h"

#include "vow/promise.h"

#include <string.h>

enum { MANY = 5, KEPT = 16 };

struct set {
    struct world w;
    vow_deferred *d[MANY];
    vow_future *f[MANY];
    vow_future *kept[KEPT];
    size_t n_kept;
};

static inline vow_loop *set_open(struct set *s)
{
    memset(s, 0, sizeof(*s));
    world_open(&s->w);
    for (int i = 0; i < MANY; i++) {
        s->f[i] = vow_promise(s->w.loop, &s->d[i]);
        CHECK(s->f[i] != NULL);
        CHECK(s->d[i] != NULL);
    }
    return s->w.loop;
}

static inline vow_future *keep(struct set *s, vow_future *f)
{
    CHECK(f != NULL);
    CHECK(s->n_kept < KEPT);
    s->kept[s->n_kept++] = f;
    return f;
}

/* The promises the test had no use for too, so that none ends broken. */
static inline void set_settle(struct set *s)
{
    for (int i = 0; i < MANY; i++) {
        if (s->d[i] != NULL && vow_deferred_pending(s->d[i]))
            vow_resolve(s->d[i], vow_nothing());
        vow_deferred_unref(s->d[i]);
    }
}

static inline void set_drop(struct set *s)
{
    for (int i = 0; i < MANY; i++)
        vow_future_unref(s->f[i]);
    for (size_t i = 0; i < s->n_kept; i++)
        vow_future_unref(s->kept[i]);
}

static inline void check_fulfilled(vow_future *f, int64_t want)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), want);
}

static inline void check_rejected(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
}

#endif
