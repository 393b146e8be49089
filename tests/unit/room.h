/* SPDX-License-Identifier: MIT */
/* room.h - a world with one semaphore, for its tests. Requests have numbers, in
 * the order they were made; what a test leaves behind, room_close() gives
 * back. */
#ifndef TEST_ROOM_H
#define TEST_ROOM_H

#include "fault.h"
#include "harness.h"
#include "world.h"

#include <string.h>

enum { ASKS = 64 };

struct room {
    struct world w;
    vow_sem *s;
    vow_future *ask[ASKS];
    vow_permit held[ASKS];
    int n;
};

static inline void room_open(struct room *r, const vow_sem_opts *opts)
{
    memset(r, 0, sizeof(*r));
    world_open(&r->w);
    CHECK_INT_EQ(vow_sem_new(r->w.loop, opts, &r->s), 0);
}

/* Ask; the number of the request. */
static inline int ask(struct room *r, uint32_t weight)
{
    CHECK(r->n < ASKS);
    r->ask[r->n] = vow_sem_acquire(r->s, weight);
    CHECK(r->ask[r->n] != NULL);
    world_turn(&r->w);
    return r->n++;
}

/* Whether the request has its permits; they are then taken. */
static inline bool got(struct room *r, int i)
{
    world_turn(&r->w);
    if (vow_permit_held(&r->held[i]))
        return true;
    if (vow_state_of(r->ask[i]) == VOW_FULFILLED)
        r->held[i] = vow_permit_take(vow_get(r->ask[i]));
    return vow_permit_held(&r->held[i]);
}

static inline int hold(struct room *r, uint32_t weight)
{
    int i = ask(r, weight);
    CHECK(got(r, i));
    return i;
}

static inline void give(struct room *r, int i)
{
    CHECK(vow_permit_held(&r->held[i]));
    vow_permit_release(&r->held[i]);
    world_turn(&r->w);
}

static inline bool waits(struct room *r, int i)
{
    world_turn(&r->w);
    return vow_state_of(r->ask[i]) == VOW_PENDING;
}

static inline int code_of(vow_future *f)
{
    CHECK(vow_state_of(f) == VOW_REJECTED);
    return vow_error_code(vow_error_of(f));
}

static inline void check_use(const struct room *r, uint32_t held,
                             size_t waiting)
{
    vow_sem_stats st = vow_sem_stats_get(r->s);
    CHECK_UINT_EQ(st.held, held);
    CHECK_UINT_EQ(st.waiting, waiting);
}

static inline void room_drop(struct room *r)
{
    for (int i = 0; i < r->n; i++) {
        vow_permit_release(&r->held[i]);
        if (r->ask[i] != NULL)
            (void)vow_error_of(r->ask[i]);
        r->ask[i] = vow_future_unref(r->ask[i]);
    }
}

/* Everything comes back, whatever the test left behind. */
static inline void room_close(struct room *r)
{
    room_drop(r);
    world_run(&r->w);
    check_use(r, 0, 0);
    CHECK_PTR_EQ(vow_sem_unref(r->s), NULL);
    world_close(&r->w);
}

#endif
