/* SPDX-License-Identifier: MIT */
/* chaos_test.c - random actions from random places leave nothing behind.
 *
 * Each test runs many schedules of chaos.h. The first has the seed of the run,
 * the others seeds made of it; before each, its own is told. So when one fails
 * or crashes, the last such line names the seed to give to --seed, and the run
 * begins with that schedule. Threads do not obey a seed: with these, what comes
 * again is only likely to.
 */
#include "chaos.h"
#include <stdio.h>
#include <stdlib.h>

enum {
    STEPS = 150, /* at the top of a schedule */
    ACTIONS = 400,
    ACTIONS_AT_END = 60, /* while handles are dropped and the loop closes */
    ENOUGH = 300         /* schedules in which chance leaves nothing out */
};

/* ---- beginning and end -------------------------------------------------- */

static void begin(struct chaos *c, const struct chaos_plan *plan,
                  struct chaos_tally *tally, uint64_t seed)
{
    *c = (struct chaos){.plan = plan, .tally = tally, .random = seed};
    const uint32_t unpooled = chaos_one_in(c, 4) ? 0 : VOW_LOOP_UNPOOLED;
    const uint32_t turn_max = 1 + chaos_below(c, 20);
    world_open_with(
        &c->w,
        VOW_LOOP_OPTS(.flags = unpooled | (plan->threads ? WORLD_REAL_TIME : 0),
                      .on_unhandled = chaos_on_unhandled,
                      .on_unhandled_user = c, .seed = seed,
                      .turn_max = turn_max, .work_threads = 2));
    c->thread = pthread_self();
    c->left = ACTIONS;
    c->trace = getenv("VOW_CHAOS_TRACE") != NULL;
}

/* Whether there was one. */
static bool drop_each(struct chaos *c)
{
    bool some = false;
    for (uint32_t i = 0; i < CHAOS_FUTURES; i++) {
        some = some || c->futures[i].future != NULL;
        chaos_drop_future(c, i);
    }
    for (uint32_t i = 0; i < CHAOS_ENDS; i++) {
        some = some || c->ends[i] != NULL;
        chaos_drop_end(c, i);
    }
    for (uint32_t i = 0; i < CHAOS_SCOPES; i++) {
        some = some || c->scopes[i] != NULL;
        chaos_drop_scope(c, i);
    }
    for (uint32_t i = 0; i < CHAOS_HOOKS; i++) {
        some = some || c->hooks[i].added;
        chaos_drop_hook(c, i);
    }
    for (uint32_t i = 0; i < CHAOS_REMOTES; i++) {
        some = some || c->remotes[i].remote != NULL;
        chaos_drop_remote(c, i);
    }
    return some;
}

/* Destructors may take new ones, until they have had their share. */
static void drop_all(struct chaos *c)
{
    c->depth++;
    for (struct chaos_token *t = c->tokens; t != NULL; t = t->next)
        if (t->link != NULL)
            chaos_check_link(t);
    while (drop_each(c)) {
    }
    c->depth--;
}

/* C4 and C5, for all that is still held. */
static void check_all_settled(struct chaos *c)
{
    for (uint32_t i = 0; i < CHAOS_FUTURES; i++)
        CHECK(c->futures[i].future == NULL ||
              vow_state_of(c->futures[i].future) != VOW_PENDING);
    for (struct chaos_token *t = c->tokens; t != NULL; t = t->next)
        CHECK(t->link == NULL || vow_state_of(t->link) != VOW_PENDING);
    for (uint32_t i = 0; i < CHAOS_SCOPES; i++)
        CHECK(c->scopes[i] == NULL || vow_scope_size(c->scopes[i]) == 0);
    for (uint32_t i = 0; i < CHAOS_ENDS; i++)
        if (c->ends[i] != NULL) {
            CHECK(!vow_deferred_pending(c->ends[i]));
            CHECK(!vow_resolve(c->ends[i], chaos_value_of(chaos_token(c))));
            CHECK(!vow_notify(c->ends[i], chaos_value_of(chaos_token(c))));
        }
    for (uint32_t i = 0; i < CHAOS_REMOTES; i++)
        CHECK(c->remotes[i].remote == NULL ||
              !vow_resolve_any(c->remotes[i].remote, vow_nothing()));
    CHECK_INT_EQ(c->fibers, 0);
}

static void close_loop(struct chaos *c)
{
    c->closing = true;
    c->running++;
    CHECK_INT_EQ(vow_loop_close(c->w.loop), 0);
    c->running--;
    c->w.loop = NULL;
    c->left = 0;
    check_all_settled(c);
}

static void join_threads(struct chaos *c)
{
    for (; c->n_threads > 0; c->n_threads--)
        CHECK_INT_EQ(pthread_join(c->threads[c->n_threads - 1], NULL), 0);
}

static void end(struct chaos *c)
{
    c->left = chaos_one_in(c, 2) ? 0 : ACTIONS_AT_END;
    if (c->plan->close_first) {
        close_loop(c);
        join_threads(c);
    } else {
        drop_all(c);
        join_threads(c);
        close_loop(c);
    }
    drop_all(c);
    world_close_dirty(&c->w);
    while (c->tokens != NULL) {
        struct chaos_token *t = c->tokens;
        c->tokens = t->next;
        chaos_check_token(t);
        free(t);
    }
}

/* ---- schedules ---------------------------------------------------------- */

/* Run it to its end, or until one is settled. */
static void run_out(struct chaos *c)
{
    VOW_AUTO(vow_future) f = chaos_one_in(c, 2) ? chaos_pick(c) : NULL;
    c->depth++;
    for (uint32_t i = 0; i < CHAOS_REMOTES; i++)
        chaos_drop_remote(c, i);
    c->depth--;
    c->waits = true;
    c->running++;
    if (f == NULL)
        world_run(&c->w);
    else if (vow_loop_run_until(c->w.loop, f) != VOW_EAGAIN)
        CHECK(vow_state_of(f) != VOW_PENDING);
    c->running--;
    c->waits = false;
}

static void step(struct chaos *c)
{
    chaos_act(c, CHAOS_TOP);
    c->running++;
    if (chaos_one_in(c, 4))
        world_turn(&c->w);
    if (chaos_one_in(c, 8) && !c->plan->threads)
        world_advance_ms(&c->w, chaos_below(c, 20));
    c->running--;
    if (chaos_one_in(c, 40))
        run_out(c);
    if (chaos_one_in(c, 30))
        for (uint32_t i = 0; i < CHAOS_FUTURES; i += 1 + chaos_below(c, 2))
            chaos_drop_future(c, i);
}

static void run_schedule(const struct chaos_plan *plan,
                         struct chaos_tally *tally, uint64_t seed)
{
    struct chaos c;
    begin(&c, plan, tally, seed);
    for (int i = 0; i < STEPS; i++)
        step(&c);
    end(&c);
}

static void check_tally(const struct chaos_plan *plan,
                        const struct chaos_tally *tally)
{
    for (uint32_t i = 0; i < chaos_action_count; i++)
        if (tally->actions[i] == 0 &&
            (plan->threads || !chaos_actions[i].threads))
            FAIL("nothing tried %s", chaos_actions[i].name);
    for (uint32_t i = 0; i < CHAOS_PLACE_COUNT; i++)
        if (tally->places[i] == 0)
            FAIL("nothing was tried from %s", chaos_place_names[i]);
}

static void run_schedules(struct chaos_plan plan, uint32_t n)
{
    struct chaos_tally tally = {.actions = {0}};
    uint64_t state = test_seed(), seed = state;
    if (TEST_ASAN || TEST_TSAN || getenv("VOW_TEST_SLOW") != NULL)
        n /= 10;
    CHECK(chaos_action_count <= CHAOS_ACTIONS);
    for (uint32_t i = 0; i < n; i++) {
        fprintf(stderr, "schedule %u: --seed %llu\n", i,
                (unsigned long long)seed);
        run_schedule(&plan, &tally, seed);
        seed = (test_random(&state) & UINT32_MAX) | 1;
    }
    if (n >= ENOUGH)
        check_tally(&plan, &tally);
}

TEST(chaos, random_actions_from_random_places_leave_nothing_behind)
{
    run_schedules((struct chaos_plan){.close_first = false}, 3000);
}

TEST(chaos, handles_that_outlive_the_loop_are_settled)
{
    run_schedules((struct chaos_plan){.close_first = true}, 3000);
}

TEST(chaos, one_allocation_in_40_fails_and_nothing_is_left_behind)
{
    run_schedules((struct chaos_plan){.fault_one_in = 40}, 3000);
}

TEST(chaos, one_allocation_in_40_fails_and_handles_outlive_the_loop)
{
    run_schedules((struct chaos_plan){.fault_one_in = 40, .close_first = true},
                  3000);
}

TEST(chaos, threads_that_end_before_the_loop_leave_nothing_behind)
{
    run_schedules((struct chaos_plan){.threads = true}, 200);
}

TEST(chaos, threads_that_outlive_the_loop_leave_nothing_behind)
{
    run_schedules((struct chaos_plan){.threads = true, .close_first = true},
                  200);
}
