/* SPDX-License-Identifier: MIT */
/* world.h - a loop with virtual time, an allocator that counts, and a close
 * that fails on whatever was lost.
 *
 *     struct world w;
 *     world_open(&w);
 *     VOW_AUTO(vow_future) f = vow_delay(w.loop, 50);
 *     world_advance_ms(&w, 50);
 *     CHECK(vow_state_of(f) == VOW_FULFILLED);
 *     f = vow_future_unref(f);
 *     world_close(&w);
 *
 * A world stays where it is between open and close: the loop points into it.
 */
#ifndef TEST_WORLD_H
#define TEST_WORLD_H

#include "harness.h"
#include <pthread.h>
#include <vow.h>

struct test_block;

/* The allocator alone, for any thread. Counters are read when no other thread
 * allocates. A wrong old size, a write past either end of a block, or a second
 * free fails the test. A resize always moves the block. */
struct test_alloc {
    pthread_mutex_t lock;
    struct test_block *blocks; /* the live ones, newest first */
    size_t live_blocks;
    size_t live_bytes; /* as asked for, without our own overhead */
    size_t peak_bytes;
    uint64_t allocs;   /* new blocks and growths asked for, from 1 */
    uint64_t fail_at;  /* the one that is refused; 0: none */
    bool fail_forever; /* and all behind it */
    uint64_t fails;    /* refused so far */
};

void test_alloc_init(struct test_alloc *ta);
/* Fails the test if a block was not freed. */
void test_alloc_fini(const char *site, struct test_alloc *ta);
struct vow_alloc test_alloc_hook(struct test_alloc *ta);

struct world {
    vow_loop *loop;
    struct test_alloc alloc;
    bool sweep;                /* in a fault sweep, where VOW_ENOMEM is fine */
    uint64_t unhandled;        /* rejections told to the hook */
    uint64_t unhandled_closed; /* of these, VOW_ECLOSED */
    uint64_t unhandled_want;
    int unhandled_code; /* of the last one, with its site and message */
    char unhandled_site[128];
    char unhandled_message[128];
};

/* In world_open_with(): a loop on the real clock. */
#define WORLD_REAL_TIME UINT32_C(0x80000000)

/* Open on virtual time, with the test's seed, without pools under sanitizers
 * and with VOW_TEST_UNPOOLED=1. `extra` may be NULL; what it sets is kept, its
 * flags are added. */
#define world_open(w) world_open_at(TEST_HERE, (w), NULL)
#define world_open_with(w, extra) world_open_at(TEST_HERE, (w), (extra))
#define world_open_real(w)                                                     \
    world_open_at(TEST_HERE, (w), VOW_LOOP_OPTS(.flags = WORLD_REAL_TIME))
void world_open_at(const char *site, struct world *w,
                   const vow_loop_opts *extra);
/* The same in a zeroed world whose allocator is ready; gives the loop's code
 * back. For sweeps, which expect it to fail. */
int world_try_open(struct world *w, const vow_loop_opts *extra);

/* Run the loop; the test fails if that fails. */
#define world_advance_ms(w, ms)                                                \
    world_rc(TEST_HERE, "vow_loop_advance", vow_loop_advance((w)->loop, (ms)))
#define world_run(w)                                                           \
    world_rc(TEST_HERE, "vow_loop_run", vow_loop_run((w)->loop))
#define world_turn(w)                                                          \
    world_rc(TEST_HERE, "vow_loop_turn", vow_loop_turn((w)->loop))
void world_rc(const char *site, const char *what, int rc);

/* So many unhandled rejections will have been told when the world is closed;
 * without this call none. */
void world_expect_unhandled(struct world *w, uint64_t n);

/* Close. The test fails if a future, fiber, timer, scope or job is alive before
 * (nothing is run first), or a block afterwards. The dirty form takes what is
 * alive for granted, and rejections by the close itself that nobody handles;
 * the loop may be closed already and be NULL. */
#define world_close(w) world_close_at(TEST_HERE, (w), false)
#define world_close_dirty(w) world_close_at(TEST_HERE, (w), true)
void world_close_at(const char *site, struct world *w, bool dirty);

#endif
