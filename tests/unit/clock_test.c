/* SPDX-License-Identifier: MIT */
/* clock_test.c - base/clock.c: two kinds of time, due times that do not
 * wrap round, seeds. */
#include "base/clock.h"
#include "harness.h"

#include <time.h>

static uint64_t monotonic_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

TEST(clock, virtual_time_is_what_it_was_set_to)
{
    struct vow__clock c = {.is_virtual = true};
    CHECK_UINT_EQ(vow__clock_now_ns(&c), 0);
    c.virtual_ns = UINT64_MAX;
    CHECK_UINT_EQ(vow__clock_now_ns(&c), UINT64_MAX);
}

TEST(clock, real_time_is_the_monotonic_clock_of_this_moment)
{
    struct vow__clock c = {.virtual_ns = 5}; /* not looked at */
    for (int i = 0; i < 1000; i++) {
        uint64_t before = monotonic_ns();
        uint64_t now = vow__clock_now_ns(&c);
        CHECK(before <= now);
        CHECK(now <= monotonic_ns());
    }
}

TEST(clock, due_is_so_many_milliseconds_from_now)
{
    struct vow__clock c = {.is_virtual = true, .virtual_ns = 7};
    CHECK_UINT_EQ(vow__clock_due_ns(&c, 0), 7);
    CHECK_UINT_EQ(vow__clock_due_ns(&c, 1), 1000007);
    CHECK_UINT_EQ(vow__clock_due_ns(&c, 86400000),
                  UINT64_C(86400000000000) + 7);
}

TEST(clock, due_in_real_time_is_never_short)
{
    struct vow__clock c = {.is_virtual = false};
    uint64_t before = monotonic_ns();
    CHECK(vow__clock_due_ns(&c, 10) >= before + 10000000);
}

TEST(clock, due_beyond_the_end_of_time_is_the_end_of_time)
{
    const uint64_t most = UINT64_MAX / VOW__NS_PER_MS;
    struct vow__clock c = {.is_virtual = true};
    CHECK_UINT_EQ(vow__clock_due_ns(&c, most), most * VOW__NS_PER_MS);
    CHECK_UINT_EQ(vow__clock_due_ns(&c, most + 1), UINT64_MAX);
    CHECK_UINT_EQ(vow__clock_due_ns(&c, UINT64_MAX), UINT64_MAX);
    c.virtual_ns = UINT64_MAX % VOW__NS_PER_MS; /* just fits */
    CHECK_UINT_EQ(vow__clock_due_ns(&c, most), UINT64_MAX);
    c.virtual_ns++;
    CHECK_UINT_EQ(vow__clock_due_ns(&c, most), UINT64_MAX);
    CHECK_UINT_EQ(vow__clock_due_ns(&c, most - 1),
                  UINT64_MAX - VOW__NS_PER_MS + 1);
}

TEST(clock, due_at_the_end_of_time_stays_there)
{
    struct vow__clock c = {.is_virtual = true, .virtual_ns = UINT64_MAX};
    CHECK_UINT_EQ(vow__clock_due_ns(&c, 0), UINT64_MAX);
    CHECK_UINT_EQ(vow__clock_due_ns(&c, 1), UINT64_MAX);
}

TEST(clock, seeds_are_not_the_same_twice)
{
    uint64_t seeds[64];
    for (int i = 0; i < 64; i++) {
        seeds[i] = vow__clock_entropy();
        for (int k = 0; k < i; k++)
            CHECK(seeds[k] != seeds[i]);
    }
}
