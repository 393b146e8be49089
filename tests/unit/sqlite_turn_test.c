/* SPDX-License-Identifier: MIT */
/* sqlite_turn_test.c - the line of writers: order, and every way it fails. */
#include "sqlite_kit.h"

#include <fcntl.h>
#include <pthread.h>

static const uint64_t SECOND = UINT64_C(1000000000);

struct hall {
    struct folder folder;
    int dir;
    struct vow__file_line *line;
};

static void hall_open(struct hall *h)
{
    folder_open(&h->folder);
    h->dir = open(h->folder.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(h->dir >= 0);
    h->line = vow__file_line_open(h->dir);
    CHECK(h->line != NULL);
}

static void hall_close(struct hall *h)
{
    vow__file_line_close(h->line);
    close(h->dir);
    folder_close(&h->folder);
}

static bool take_until(struct vow__file_line *line, uint64_t patience_ns,
                       uint64_t stuck_ms, uint64_t *ret_ticket)
{
    return vow__file_turn_take(line, getpid(), vow__file_now_ns() + patience_ns,
                               stuck_ms, ret_ticket);
}

static uint64_t take(struct vow__file_line *line)
{
    uint64_t ticket;
    CHECK(take_until(line, 60 * SECOND, VOW__FILE_STUCK_MS, &ticket));
    return ticket;
}

TEST(sqlite_turn, alone_it_comes_at_once)
{
    struct hall h;
    hall_open(&h);
    for (int i = 0; i < 5000; i++)
        vow__file_turn_pass(h.line, take(h.line));
    hall_close(&h);
}

enum { QUEUE = 8, FOR_EVER_MS = 1000000 }; /* however busy the machine is */

struct guest {
    struct hall *hall;
    atomic_uint *served;
    unsigned nth;
    pthread_t thread;
};

static void *visit(void *arg)
{
    struct guest *g = arg;
    struct vow__file_line *line = vow__file_line_open(g->hall->dir);
    uint64_t ticket;
    CHECK(take_until(line, 60 * SECOND, FOR_EVER_MS, &ticket));
    CHECK_UINT_EQ(atomic_fetch_add(g->served, 1), g->nth);
    vow__file_turn_pass(line, ticket);
    vow__file_line_close(line);
    return NULL;
}

TEST(sqlite_turn, who_comes_first_is_served_first)
{
    struct hall h;
    struct guest guests[QUEUE];
    atomic_uint served = 0;
    hall_open(&h);
    _Atomic uint64_t *drawn = (void *)h.line; /* numbers, so far */
    uint64_t ticket = take(h.line);
    for (unsigned i = 0; i < QUEUE; i++) {
        guests[i] = (struct guest){&h, &served, i, 0};
        CHECK(pthread_create(&guests[i].thread, NULL, visit, &guests[i]) == 0);
        while (atomic_load(drawn) < i + 2)
            kit_nap_ms(1);
    }
    CHECK_UINT_EQ(atomic_load(&served), 0);
    vow__file_turn_pass(h.line, ticket);
    for (unsigned i = 0; i < QUEUE; i++)
        CHECK(pthread_join(guests[i].thread, NULL) == 0);
    CHECK_UINT_EQ(atomic_load(&served), QUEUE);
    hall_close(&h);
}

TEST(sqlite_turn, one_that_makes_no_move_is_passed_over)
{
    struct hall h;
    hall_open(&h);
    uint64_t stuck = take(h.line);
    uint64_t next = take(h.line);
    CHECK(next > stuck);
    vow__file_turn_pass(h.line, stuck); /* too late: nothing happens */
    vow__file_turn_pass(h.line, next);
    vow__file_turn_pass(h.line, take(h.line));
    hall_close(&h);
}

/* Twenty dead ones with their turn cost no more than one. */
TEST(sqlite_turn, the_dead_are_passed_over_all_at_once)
{
    enum { STUCK_MS = 500 }; /* so that a pause of the machine does not count */
    struct hall h;
    uint64_t ticket;
    hall_open(&h);
    (void)take(h.line);
    pid_t pids[20];
    for (int i = 0; i < 20; i++) {
        pids[i] = kit_child();
        if (pids[i] == 0) {
            for (;;) { /* keep the first from being passed over */
                vow__file_turn_beat(h.line);
                (void)take_until(h.line, SECOND, VOW__FILE_STUCK_MS, &ticket);
            }
        }
    }
    kit_nap_ms(50);
    for (int i = 0; i < 20; i++)
        kit_kill(pids[i]);
    uint64_t before = kit_now_ms();
    CHECK(take_until(h.line, 60 * SECOND, STUCK_MS, &ticket));
    vow__file_turn_pass(h.line, ticket);
    uint64_t took = kit_now_ms() - before;
    if (took > 16 * STUCK_MS)
        FAIL("it took %ju ms", (uintmax_t)took);
    hall_close(&h);
}

TEST(sqlite_turn, who_waits_too_long_leaves_and_is_not_waited_for)
{
    struct hall h;
    uint64_t ticket;
    hall_open(&h);
    uint64_t first = take(h.line);
    CHECK(!take_until(h.line, SECOND / 1000, FOR_EVER_MS, &ticket));
    vow__file_turn_pass(h.line, first);
    vow__file_turn_pass(h.line, take(h.line));
    hall_close(&h);
}

TEST(sqlite_turn, noise_in_the_file_costs_order_and_no_more)
{
    struct hall h;
    uint64_t seed = test_seed();
    hall_open(&h);
    for (int round = 0; round < 20; round++) {
        uint64_t *words = (uint64_t *)(void *)h.line;
        uint64_t ticket;
        for (int i = 0; i < 200; i++)
            words[i] = test_random(&seed);
        for (int i = 0; i < 3; i++)
            if (take_until(h.line, SECOND / 20, VOW__FILE_STUCK_MS, &ticket))
                vow__file_turn_pass(h.line, ticket);
    }
    hall_close(&h);
}

TEST(sqlite_turn, a_file_that_cannot_be_made_is_none)
{
    CHECK_PTR_EQ(vow__file_line_open(-1), NULL);
    vow__file_line_close(NULL);
}
