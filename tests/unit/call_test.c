/* SPDX-License-Identifier: MIT */
/* call_test.c - calls from the queue and at a time: their order, moving and
 * taking back, from inside, and what becomes of them when the loop closes. */
#include "harness.h"
#include "world.h"

#include "vow/call.h"
#include "vow/combine.h"
#include "vow/promise.h"

#include <stdlib.h>

enum { LOG_MAX = 32 };

struct log {
    vow_loop *loop;
    int n;
    int who[LOG_MAX];
    uint64_t at_ns[LOG_MAX];
};

struct caller {
    vow_call call;
    struct log *log;
    int id;
    int again; /* so many times more */
};

static void note(struct log *log, int id)
{
    CHECK(log->n < LOG_MAX);
    log->at_ns[log->n] = vow_loop_now_ns(log->loop);
    log->who[log->n++] = id;
}

static void called(void *user)
{
    struct caller *c = user;
    CHECK(!vow_call_pending(&c->call)); /* it may be used again, or freed */
    note(c->log, c->id);
}

static vow_next step_called(vow_value v, void *user)
{
    struct caller *c = user;
    (void)v;
    note(c->log, c->id);
    return vow_ok(vow_nothing());
}

static void check_log(const struct log *log, const char *want)
{
    char got[LOG_MAX + 1];
    for (int i = 0; i < log->n; i++)
        got[i] = (char)('0' + log->who[i]);
    got[log->n] = '\0';
    CHECK_STR_EQ(got, want);
}

static uint64_t ms(uint64_t n)
{
    return n * 1000000;
}

#define OPEN(w, log, c, count)                                                 \
    struct world w;                                                            \
    world_open(&w);                                                            \
    struct log log = {.loop = w.loop};                                         \
    struct caller c[count];                                                    \
    for (int i_ = 0; i_ < (count); i_++)                                       \
        c[i_] = (struct caller)                                                \
        {                                                                      \
            .log = &log, .id = i_                                              \
        }

/* ---- soon --------------------------------------------------------------- */

TEST(call, soon_comes_once_from_the_queue)
{
    OPEN(w, log, c, 1);
    CHECK(!vow_call_pending(&c[0].call));
    vow_call_soon(&c[0].call, w.loop, called, &c[0]);
    CHECK(vow_call_pending(&c[0].call));
    CHECK_INT_EQ(log.n, 0);
    world_turn(&w);
    CHECK_INT_EQ(log.n, 1);
    CHECK(!vow_call_pending(&c[0].call));
    world_run(&w);
    CHECK_INT_EQ(log.n, 1);
    CHECK_UINT_EQ(log.at_ns[0], 0);
    world_close(&w);
}

TEST(call, soon_comes_behind_what_is_ready_now)
{
    OPEN(w, log, c, 5);
    vow_future *f = vow_resolved(w.loop, vow_nothing());
    vow_future *g[2];
    g[0] = vow_then(f, step_called, NULL, &c[0]);
    vow_call_soon(&c[1].call, w.loop, called, &c[1]);
    vow_call_soon(&c[2].call, w.loop, called, &c[2]);
    g[1] = vow_then(f, step_called, NULL, &c[3]);
    vow_call_soon(&c[4].call, w.loop, called, &c[4]);
    world_turn(&w);
    check_log(&log, "01234");
    vow_future_unref(f);
    vow_future_unref(g[0]);
    vow_future_unref(g[1]);
    world_close(&w);
}

TEST(call, soon_that_is_pending_is_moved_behind)
{
    OPEN(w, log, c, 3);
    for (int i = 0; i < 3; i++)
        vow_call_soon(&c[i].call, w.loop, called, &c[i]);
    vow_call_soon(&c[0].call, w.loop, called, &c[0]);
    world_turn(&w);
    check_log(&log, "120");
    world_close(&w);
}

TEST(call, a_moved_call_has_its_new_function)
{
    OPEN(w, log, c, 3);
    vow_call_soon(&c[0].call, w.loop, called, &c[1]);
    vow_call_soon(&c[0].call, w.loop, called, &c[2]);
    world_turn(&w);
    check_log(&log, "2");
    world_close(&w);
}

TEST(call, needs_no_memory)
{
    OPEN(w, log, c, 2);
    w.alloc.fail_at = w.alloc.allocs + 1;
    w.alloc.fail_forever = true;
    vow_call_soon(&c[0].call, w.loop, called, &c[0]);
    vow_call_at(&c[1].call, w.loop, ms(5), called, &c[1]);
    world_run(&w);
    check_log(&log, "01");
    CHECK_UINT_EQ(w.alloc.fails, 0);
    w.alloc.fail_at = 0;
    world_close(&w);
}

TEST(call, keeps_the_loop_running_until_it_came)
{
    struct world w;
    world_open_real(&w);
    struct log log = {.loop = w.loop};
    struct caller c = {.log = &log, .id = 1};
    vow_call_soon(&c.call, w.loop, called, &c);
    world_run(&w);
    check_log(&log, "1");
    world_close(&w);
}

/* ---- at a time ---------------------------------------------------------- */

TEST(call, at_a_time_comes_then_and_never_earlier)
{
    OPEN(w, log, c, 1);
    vow_call_at(&c[0].call, w.loop, ms(10), called, &c[0]);
    world_advance_ms(&w, 9);
    CHECK(vow_call_pending(&c[0].call));
    CHECK_INT_EQ(log.n, 0);
    world_advance_ms(&w, 5);
    CHECK_INT_EQ(log.n, 1);
    CHECK_UINT_EQ(log.at_ns[0], ms(10));
    CHECK(!vow_call_pending(&c[0].call));
    world_close(&w);
}

TEST(call, at_a_time_counts_nanoseconds_of_the_clock_of_the_loop)
{
    OPEN(w, log, c, 2);
    world_advance_ms(&w, 7);
    vow_call_at(&c[0].call, w.loop, ms(7) + 1, called, &c[0]);
    vow_call_at(&c[1].call, w.loop, ms(8) - 1, called, &c[1]);
    world_run(&w);
    check_log(&log, "01");
    CHECK_UINT_EQ(log.at_ns[0], ms(7) + 1);
    CHECK_UINT_EQ(log.at_ns[1], ms(8) - 1);
    world_close(&w);
}

TEST(call, at_a_time_keeps_the_loop_running)
{
    OPEN(w, log, c, 1);
    vow_call_at(&c[0].call, w.loop, ms(3000), called, &c[0]);
    world_run(&w);
    CHECK_INT_EQ(log.n, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), ms(3000));
    world_close(&w);
}

TEST(call, at_a_time_that_has_passed_comes_without_delay_but_not_inside)
{
    OPEN(w, log, c, 2);
    world_advance_ms(&w, 10);
    vow_call_at(&c[0].call, w.loop, ms(3), called, &c[0]);
    vow_call_at(&c[1].call, w.loop, ms(10), called, &c[1]);
    CHECK_INT_EQ(log.n, 0);
    world_turn(&w);
    check_log(&log, "01");
    CHECK_UINT_EQ(log.at_ns[1], ms(10));
    world_close(&w);
}

TEST(call, calls_come_in_the_order_of_their_times)
{
    OPEN(w, log, c, 6);
    static const uint64_t at[] = {50, 10, 30, 10, 20, 10};
    for (int i = 0; i < 6; i++)
        vow_call_at(&c[i].call, w.loop, ms(at[i]), called, &c[i]);
    world_run(&w);
    check_log(&log, "135420"); /* and of one time, as they were asked for */
    world_close(&w);
}

TEST(call, can_be_moved_to_any_place)
{
    OPEN(w, log, c, 5);
    vow_call_at(&c[0].call, w.loop, ms(10), called, &c[0]);
    vow_call_at(&c[0].call, w.loop, ms(40), called, &c[0]); /* later */
    vow_call_at(&c[1].call, w.loop, ms(40), called, &c[1]);
    vow_call_at(&c[1].call, w.loop, ms(20), called, &c[1]); /* earlier */
    vow_call_soon(&c[2].call, w.loop, called, &c[2]);
    vow_call_at(&c[2].call, w.loop, ms(30), called, &c[2]); /* off the queue */
    vow_call_at(&c[3].call, w.loop, ms(30), called, &c[3]);
    vow_call_soon(&c[3].call, w.loop, called, &c[3]); /* into the queue */
    vow_call_at(&c[4].call, w.loop, ms(40), called, &c[4]);
    vow_call_at(&c[4].call, w.loop, ms(40), called, &c[4]); /* the same */
    world_run(&w);
    check_log(&log, "31204");
    CHECK_UINT_EQ(log.at_ns[0], 0);
    CHECK_UINT_EQ(log.at_ns[1], ms(20));
    CHECK_UINT_EQ(log.at_ns[2], ms(30));
    CHECK_UINT_EQ(log.at_ns[3], ms(40));
    world_close(&w);
}

TEST(call, at_the_end_of_time_never_comes)
{
    OPEN(w, log, c, 1);
    vow_call_at(&c[0].call, w.loop, UINT64_MAX, called, &c[0]);
    world_advance_ms(&w, UINT64_C(1) << 40);
    CHECK_INT_EQ(log.n, 0);
    CHECK(vow_call_stop(&c[0].call));
    world_run(&w);
    world_close(&w);
}

/* ---- taking back -------------------------------------------------------- */

TEST(call, taken_back_it_does_not_come)
{
    OPEN(w, log, c, 3);
    CHECK(!vow_call_stop(&c[0].call)); /* zeroed, it is not pending */
    for (int i = 0; i < 3; i++)
        vow_call_soon(&c[i].call, w.loop, called, &c[i]);
    CHECK(vow_call_stop(&c[1].call));
    CHECK(!vow_call_pending(&c[1].call));
    CHECK(!vow_call_stop(&c[1].call));
    world_turn(&w);
    check_log(&log, "02");
    CHECK(!vow_call_stop(&c[0].call)); /* it has come */
    vow_call_at(&c[1].call, w.loop, ms(10), called, &c[1]);
    CHECK(vow_call_stop(&c[1].call));
    CHECK(!vow_call_stop(&c[1].call));
    world_run(&w);
    check_log(&log, "02");
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);        /* no timer is left */
    vow_call_soon(&c[1].call, w.loop, called, &c[1]); /* it can be used again */
    world_turn(&w);
    check_log(&log, "021");
    world_close(&w);
}

/* ---- from inside -------------------------------------------------------- */

static void stop_next(void *user)
{
    struct caller *c = user;
    called(c);
    CHECK(vow_call_stop(&(c + 1)->call));
}

TEST(call, one_may_take_back_another_that_is_ready_or_due)
{
    OPEN(w, log, c, 4);
    vow_call_soon(&c[0].call, w.loop, stop_next, &c[0]);
    vow_call_soon(&c[1].call, w.loop, called, &c[1]);
    vow_call_at(&c[2].call, w.loop, ms(5), stop_next, &c[2]);
    vow_call_at(&c[3].call, w.loop, ms(5), called, &c[3]);
    world_run(&w);
    check_log(&log, "02");
    world_close(&w);
}

static void come_again_soon(void *user)
{
    struct caller *c = user;
    called(c);
    if (c->again-- > 0)
        vow_call_soon(&c->call, c->log->loop, come_again_soon, c);
}

static void come_again_later(void *user)
{
    struct caller *c = user;
    called(c);
    if (c->again-- > 0)
        vow_call_at(&c->call, c->log->loop,
                    vow_loop_now_ns(c->log->loop) + ms(10), come_again_later,
                    c);
}

TEST(call, may_ask_for_itself_again)
{
    OPEN(w, log, c, 3);
    c[0].again = 2;
    c[1].again = 2;
    vow_call_soon(&c[0].call, w.loop, come_again_soon, &c[0]);
    vow_call_soon(&c[2].call, w.loop, called, &c[2]);
    vow_call_at(&c[1].call, w.loop, ms(10), come_again_later, &c[1]);
    world_run(&w);
    check_log(&log, "0200111"); /* behind the others each time */
    CHECK_UINT_EQ(log.at_ns[6], ms(30));
    world_close(&w);
}

static void count_and_come_again(void *user)
{
    struct caller *c = user;
    c->id++;
    vow_call_soon(&c->call, c->log->loop, count_and_come_again, c);
}

TEST(call, one_that_comes_for_ever_does_not_hold_the_turn)
{
    struct world w;
    world_open_with(&w, VOW_LOOP_OPTS(.turn_max = 100));
    struct log log = {.loop = w.loop};
    struct caller c = {.log = &log};
    vow_call_soon(&c.call, w.loop, count_and_come_again, &c);
    world_turn(&w);
    CHECK_INT_EQ(c.id, 100);
    world_turn(&w);
    CHECK_INT_EQ(c.id, 200);
    CHECK(vow_call_stop(&c.call));
    world_close(&w);
}

static void free_it(void *user)
{
    struct caller *c = user;
    called(c);
    free(c);
}

TEST(call, may_free_its_own_memory)
{
    struct world w;
    world_open(&w);
    struct log log = {.loop = w.loop};
    for (int i = 0; i < 2; i++) {
        struct caller *c = calloc(1, sizeof(*c));
        CHECK(c != NULL);
        c->log = &log;
        c->id = i;
        if (i == 0)
            vow_call_soon(&c->call, w.loop, free_it, c);
        else
            vow_call_at(&c->call, w.loop, ms(1), free_it, c);
    }
    world_run(&w);
    check_log(&log, "01");
    world_close(&w);
}

static void settle(void *user)
{
    vow_resolve_drop(user, vow_int(4));
}

TEST(call, may_settle_a_promise_and_its_handlers_run)
{
    struct world w;
    world_open(&w);
    vow_call soon = {{0}}, later = {{0}};
    vow_deferred *a, *b;
    vow_future *f = vow_promise(w.loop, &a);
    vow_future *g = vow_promise(w.loop, &b);
    vow_call_soon(&soon, w.loop, settle, a);
    vow_call_at(&later, w.loop, ms(5), settle, b);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, g), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(f)) + vow_as_int(vow_get(g)), 8);
    vow_future_unref(f);
    vow_future_unref(g);
    world_close(&w);
}

static void run_the_loop(void *user)
{
    struct caller *c = user;
    called(c);
    CHECK_INT_EQ(vow_loop_turn(c->log->loop), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_run(c->log->loop), VOW_EBUSY);
    CHECK_INT_EQ(vow_loop_close(c->log->loop), VOW_EBUSY);
}

TEST(call, may_not_run_or_close_the_loop)
{
    OPEN(w, log, c, 2);
    vow_call_soon(&c[0].call, w.loop, run_the_loop, &c[0]);
    vow_call_at(&c[1].call, w.loop, ms(1), run_the_loop, &c[1]);
    world_run(&w);
    check_log(&log, "01");
    world_close(&w);
}

/* ---- many --------------------------------------------------------------- */

static uint64_t last_ns;

static void in_order(void *user)
{
    struct caller *c = user;
    uint64_t now = vow_loop_now_ns(c->log->loop);
    CHECK(now >= last_ns);
    CHECK_UINT_EQ(now, ms((uint64_t)c->id));
    last_ns = now;
    c->log->n++;
}

TEST(call, a_hundred_thousand_come_each_at_its_time)
{
    enum { N = 100000 };
    static struct caller c[N];
    struct world w;
    world_open(&w);
    struct log log = {.loop = w.loop};
    uint64_t random = test_seed();
    int stopped = 0;
    for (int i = 0; i < N; i++) {
        c[i] = (struct caller){.log = &log,
                               .id = (int)(test_random(&random) % 5000)};
        vow_call_at(&c[i].call, w.loop, ms((uint64_t)c[i].id), in_order, &c[i]);
        if (i % 7 == 3)
            stopped += vow_call_stop(&c[i - 2].call);
    }
    world_run(&w);
    CHECK_INT_EQ(log.n, N - stopped);
    world_close(&w);
}

/* ---- the end of the loop ------------------------------------------------ */

TEST(call, soon_still_comes_when_the_loop_closes)
{
    OPEN(w, log, c, 1);
    c[0].again = 2;
    vow_call_soon(&c[0].call, w.loop, come_again_soon, &c[0]);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    check_log(&log, "000");
    w.loop = NULL;
    world_close_dirty(&w);
}

static vow_next ask_while_closing(vow_error *e, void *user)
{
    struct caller *c = user;
    CHECK_INT_EQ(vow_error_code(e), VOW_ECLOSED);
    vow_call_soon(&c[0].call, c->log->loop, called, &c[0]);
    vow_call_at(&c[1].call, c->log->loop, 0, called, &c[1]);
    return vow_ok(vow_nothing());
}

TEST(call, soon_comes_and_a_timer_does_not_when_asked_for_while_it_closes)
{
    OPEN(w, log, c, 2);
    vow_future *f = vow_race(w.loop, NULL, 0);
    CHECK_INT_EQ(vow_done(vow_future_ref(f), NULL, ask_while_closing, c), 0);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    check_log(&log, "0");
    (void)vow_call_stop(&c[1].call);
    vow_future_unref(f);
    world_close_dirty(&w);
}

TEST(call, at_a_time_never_comes_when_the_loop_is_closed)
{
    OPEN(w, log, c, 2);
    vow_future *hold = vow_resolved(w.loop, vow_nothing());
    vow_call_at(&c[0].call, w.loop, ms(5), called, &c[0]);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    CHECK(vow_call_stop(&c[0].call)); /* while something of the loop is held */
    CHECK(!vow_call_stop(&c[0].call));
    vow_call_at(&c[1].call, w.loop, 0, called, &c[1]);
    CHECK(vow_call_stop(&c[1].call));
    CHECK_INT_EQ(log.n, 0);
    vow_future_unref(hold);
    w.loop = NULL;
    world_close_dirty(&w);
}
