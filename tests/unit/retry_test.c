/* SPDX-License-Identifier: MIT */
/* retry_test.c - retry: tries, full jitter within its bounds, predicate,
 * budget, a server's retry-after, deadline, cancel. */
#include "harness.h"
#include "world.h"

#include "vow/retry.h"

/* ---- work that fails ---------------------------------------------------- */

enum { LOG_MAX = 128 };

struct job {
    uint32_t fails;          /* so many attempts fail, then it succeeds */
    uint32_t hangs_at;       /* this attempt stays pending in `hung` */
    int code;                /* of the failures; 0: VOW_EIO */
    uint64_t retry_after_ms; /* told with each failure */
    uint32_t calls;
    uint64_t at_ms[LOG_MAX]; /* when attempt i+1 began */
    vow_error *last;         /* the last failure, only to compare */
    vow_deferred *hung;
};

static vow_future *start(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct job *j = arg;
    CHECK_UINT_EQ(attempt, j->calls + 1);
    if (j->calls < LOG_MAX)
        j->at_ms[j->calls] = vow_loop_now_ns(loop) / 1000000;
    j->calls++;
    if (attempt == j->hangs_at)
        return vow_promise(loop, &j->hung);
    if (j->calls > j->fails)
        return vow_resolved(loop, vow_int(attempt));
    int code = j->code < 0 ? j->code : VOW_EIO;
    j->last = vow_error_new(loop, code, "attempt %u", (unsigned)attempt);
    if (j->retry_after_ms > 0)
        vow_error_set_retry_after_ms(j->last, j->retry_after_ms);
    return vow_rejected(loop, j->last);
}

/* How long it waited before attempt k+1, counted from attempt k, which takes
 * no time. */
static uint64_t wait_before(const struct job *j, uint32_t k)
{
    return j->at_ms[k] - j->at_ms[k - 1];
}

static uint64_t at_most(uint64_t first, uint64_t largest, uint32_t k)
{
    uint64_t ms = first;
    for (uint32_t i = 1; i < k && ms < largest; i++)
        ms *= 2;
    return ms < largest ? ms : largest;
}

static void check_rejected(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
}

/* Runs one retry to its end in a world of its own. */
static void run_alone(struct job *j, uint64_t seed, const vow_retry_opts *opts)
{
    struct world w;
    world_open_with(&w, VOW_LOOP_OPTS(.seed = seed));
    vow_future *f = vow_retry(w.loop, start, j, opts);
    world_run(&w);
    CHECK(vow_state_of(f) != VOW_PENDING);
    vow_error_of(f);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- tries -------------------------------------------------------------- */

TEST(retry, an_attempt_that_succeeds_is_the_outcome)
{
    struct world w;
    world_open(&w);
    struct job j = {0};
    vow_future *f = vow_retry(w.loop, start, &j, NULL);
    CHECK_UINT_EQ(j.calls, 0); /* from the queue, not inside the call */
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 1);
    CHECK_UINT_EQ(j.calls, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    vow_future_unref(f);
    world_close(&w);
}

TEST(retry, goes_on_until_an_attempt_succeeds)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 4};
    vow_future *f = vow_retry(w.loop, start, &j, VOW_RETRY(.tries = 10));
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 5);
    CHECK_UINT_EQ(j.calls, 5);
    vow_future_unref(f);
    world_close(&w);
}

TEST(retry, gives_up_after_its_tries_with_the_last_failure_as_it_came)
{
    static const uint32_t tries[] = {0, 1, 2, 7};
    for (size_t i = 0; i < 4; i++) {
        struct world w;
        world_open(&w);
        struct job j = {.fails = 100};
        vow_future *f =
            vow_retry(w.loop, start, &j, VOW_RETRY(.tries = tries[i]));
        world_run(&w);
        CHECK_UINT_EQ(j.calls, tries[i] == 0 ? 3 : tries[i]);
        CHECK_PTR_EQ(vow_error_of(f), j.last);
        vow_future_unref(f);
        world_close(&w);
    }
}

TEST(retry, copies_its_options)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 100};
    vow_retry_opts o = {.size = sizeof(o), .tries = 4};
    vow_future *f = vow_retry(w.loop, start, &j, &o);
    o.tries = 1;
    world_run(&w);
    CHECK_UINT_EQ(j.calls, 4);
    check_rejected(f, VOW_EIO);
    vow_future_unref(f);
    world_close(&w);
}

TEST(retry, goes_on_when_its_future_is_dropped)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 2};
    vow_future_unref(vow_retry(w.loop, start, &j, NULL));
    world_run(&w);
    CHECK_UINT_EQ(j.calls, 3);
    world_close(&w);
}

TEST(retry, bad_arguments_arrive_as_a_rejection)
{
    struct world w;
    world_open(&w);
    struct job j = {0};
    vow_future *f = vow_retry(w.loop, NULL, &j, NULL);
    vow_future *g =
        vow_retry(w.loop, start, &j, VOW_RETRY(.backoff_ms = {100, 50}));
    world_run(&w);
    check_rejected(f, VOW_EINVAL);
    check_rejected(g, VOW_EINVAL);
    CHECK_UINT_EQ(j.calls, 0);
    vow_future_unref(f);
    vow_future_unref(g);
    world_close(&w);
}

TEST(retry, a_hundred_thousand_attempts_take_bounded_memory)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 99999};
    vow_future *f = vow_retry(w.loop, start, &j,
                              VOW_RETRY(.tries = 100000, .backoff_ms = {1, 1}));
    size_t bytes = w.alloc.live_bytes;
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 100000);
    CHECK(w.alloc.peak_bytes < bytes + 1000000);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- backoff ------------------------------------------------------------ */

TEST(retry, waits_within_full_jitter_for_every_seed)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct job j = {.fails = 100};
        run_alone(&j, seed, VOW_RETRY(.tries = 8, .backoff_ms = {100, 1000}));
        CHECK_UINT_EQ(j.calls, 8);
        for (uint32_t k = 1; k < 8; k++)
            CHECK(wait_before(&j, k) <= at_most(100, 1000, k));
    }
}

TEST(retry, waits_by_default_from_100_to_10000_ms)
{
    uint64_t longest[10] = {0};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct job j = {.fails = 100};
        run_alone(&j, seed, VOW_RETRY(.tries = 10));
        for (uint32_t k = 1; k < 10; k++) {
            CHECK(wait_before(&j, k) <= at_most(100, 10000, k));
            if (wait_before(&j, k) > longest[k])
                longest[k] = wait_before(&j, k);
        }
    }
    for (uint32_t k = 1; k < 10; k++) /* missed by chance: 2^-300 */
        CHECK(longest[k] > at_most(100, 10000, k) / 2);
}

TEST(retry, jitter_is_spread_over_the_whole_span)
{
    enum { N = 2000 };
    uint64_t sum = 0, least = UINT64_MAX, most = 0;
    int quarter[4] = {0};
    for (uint64_t seed = 1; seed <= N; seed++) {
        struct job j = {.fails = 1};
        run_alone(&j, seed * 7919, VOW_RETRY(.backoff_ms = {1000, 1000}));
        uint64_t ms = wait_before(&j, 1);
        CHECK(ms <= 1000);
        sum += ms;
        least = ms < least ? ms : least;
        most = ms > most ? ms : most;
        quarter[ms * 4 / 1001]++;
    }
    CHECK(least < 50);
    CHECK(most > 950);
    CHECK(sum / N > 460 && sum / N < 540);
    for (int i = 0; i < 4; i++)
        CHECK(quarter[i] > N / 4 - 150 && quarter[i] < N / 4 + 150);
}

TEST(retry, the_same_seed_waits_the_same)
{
    struct job a = {.fails = 9}, b = {.fails = 9};
    run_alone(&a, 77, VOW_RETRY(.tries = 10));
    run_alone(&b, 77, VOW_RETRY(.tries = 10));
    for (uint32_t k = 0; k < 10; k++)
        CHECK_UINT_EQ(a.at_ms[k], b.at_ms[k]);
}

TEST(retry, a_hundred_doublings_stay_at_the_largest_wait)
{
    struct job j = {.fails = 100};
    run_alone(&j, 5, VOW_RETRY(.tries = 101, .backoff_ms = {1, 50}));
    CHECK_UINT_EQ(j.calls, 101);
    uint64_t late = 0;
    for (uint32_t k = 1; k < 101; k++) {
        CHECK(wait_before(&j, k) <= 50);
        late += k > 64 ? wait_before(&j, k) : 0;
    }
    CHECK(late > 100);
}

/* https://github.com/HoneyryderChuck/httpx/issues/141: jitter only adds. */
TEST(retry, never_waits_shorter_than_the_server_asked)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct job j = {.fails = 4, .retry_after_ms = 700};
        run_alone(&j, seed, VOW_RETRY(.tries = 5, .backoff_ms = {10, 300}));
        CHECK_UINT_EQ(j.calls, 5);
        for (uint32_t k = 1; k < 5; k++) {
            CHECK(wait_before(&j, k) >= 700);
            CHECK(wait_before(&j, k) <= 700 + at_most(10, 300, k));
        }
    }
}

/* ---- predicate ---------------------------------------------------------- */

struct judge {
    int asked;
    int code_seen;
    int yes; /* so many times */
};

static bool worth_it(vow_error *e, void *user)
{
    struct judge *j = user;
    j->asked++;
    j->code_seen = vow_error_code(e);
    return j->asked <= j->yes;
}

TEST(retry, stops_when_the_failure_is_not_worth_another_attempt)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 100, .code = VOW_EBUSY};
    struct judge judge = {.yes = 2};
    vow_future *f = vow_retry(
        w.loop, start, &j,
        VOW_RETRY(.tries = 50, .retry_if = worth_it, .retry_if_user = &judge));
    world_run(&w);
    CHECK_UINT_EQ(j.calls, 3);
    CHECK_INT_EQ(judge.asked, 3);
    CHECK_INT_EQ(judge.code_seen, VOW_EBUSY);
    CHECK_PTR_EQ(vow_error_of(f), j.last);
    vow_future_unref(f);
    world_close(&w);
}

TEST(retry, does_not_by_itself_retry_what_was_canceled)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 100, .code = VOW_ECANCELED};
    vow_future *f = vow_retry(w.loop, start, &j, NULL);
    world_run(&w);
    CHECK_UINT_EQ(j.calls, 1);
    CHECK_PTR_EQ(vow_error_of(f), j.last);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- budget ------------------------------------------------------------- */

/* One caller after the other; gives the number of retries. */
static uint32_t retries_of(struct world *w, vow_retry_budget *b, int callers,
                           uint32_t fails)
{
    uint32_t retries = 0;
    for (int i = 0; i < callers; i++) {
        struct job j = {.fails = fails};
        vow_future *f = vow_retry(
            w->loop, start, &j,
            VOW_RETRY(.tries = 100, .backoff_ms = {1, 1}, .budget = b));
        world_run(w);
        if (vow_state_of(f) == VOW_REJECTED)
            CHECK_PTR_EQ(vow_error_of(f), j.last);
        CHECK(j.calls >= 1);
        retries += j.calls - 1;
        vow_future_unref(f);
    }
    return retries;
}

/* https://github.com/apache/opendal/issues/7376 */
TEST(retry, a_budget_bounds_the_retries_of_all_callers_together)
{
    struct world w;
    world_open(&w);
    vow_retry_budget *b;
    CHECK_INT_EQ(vow_retry_budget_new(w.loop, 20, 10, &b), 0);
    uint32_t retries = retries_of(&w, b, 100, UINT32_MAX);
    CHECK(retries >= 28); /* a full reserve and a fifth of a hundred */
    CHECK(retries <= 10 + 20);
    CHECK_PTR_EQ(vow_retry_budget_unref(b), NULL);
    world_close(&w);
}

TEST(retry, a_budget_saves_no_more_than_its_reserve)
{
    struct world w;
    world_open(&w);
    vow_retry_budget *b;
    CHECK_INT_EQ(vow_retry_budget_new(w.loop, 100, 5, &b), 0);
    CHECK_UINT_EQ(retries_of(&w, b, 50, 0), 0);
    CHECK_UINT_EQ(retries_of(&w, b, 1, UINT32_MAX), 5);
    CHECK_UINT_EQ(retries_of(&w, b, 3, UINT32_MAX), 3);
    vow_retry_budget_unref(b);
    world_close(&w);
}

TEST(retry, an_empty_budget_allows_none_and_first_attempts_always)
{
    struct world w;
    world_open(&w);
    vow_retry_budget *b;
    CHECK_INT_EQ(vow_retry_budget_new(w.loop, 0, 0, &b), 0);
    CHECK_UINT_EQ(retries_of(&w, b, 10, UINT32_MAX), 0);
    vow_retry_budget_unref(b);
    CHECK_PTR_EQ(vow_retry_budget_unref(NULL), NULL);
    world_close(&w);
}

TEST(retry, keeps_its_budget_alive)
{
    struct world w;
    world_open(&w);
    vow_retry_budget *b;
    CHECK_INT_EQ(vow_retry_budget_new(w.loop, 100, 5, &b), 0);
    retries_of(&w, b, 10, 0);
    struct job j = {.fails = 2};
    vow_future *f = vow_retry(w.loop, start, &j, VOW_RETRY(.budget = b));
    vow_retry_budget_unref(b);
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 3);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- deadline ----------------------------------------------------------- */

TEST(retry, at_the_deadline_the_running_attempt_is_canceled)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 1, .hangs_at = 2};
    vow_future *f =
        vow_retry(w.loop, start, &j,
                  VOW_RETRY(.deadline_ms = 500, .backoff_ms = {100, 100}));
    world_advance_ms(&w, 499);
    CHECK_UINT_EQ(j.calls, 2);
    CHECK_INT_EQ(vow_state_of(f), VOW_PENDING);
    vow_error *failure = vow_error_ref(j.last);
    world_advance_ms(&w, 1);
    check_rejected(f, VOW_ETIMEDOUT);
    CHECK_PTR_EQ(vow_error_cause(vow_error_of(f)), failure);
    CHECK(!vow_deferred_pending(j.hung));
    vow_error_unref(failure);
    vow_deferred_unref(j.hung);
    vow_future_unref(f);
    world_close(&w);
}

TEST(retry, an_attempt_that_could_not_begin_in_time_is_not_waited_for)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 9, .retry_after_ms = 5000};
    vow_future *f =
        vow_retry(w.loop, start, &j, VOW_RETRY(.deadline_ms = 1000));
    world_turn(&w);
    CHECK_PTR_EQ(vow_error_of(f), j.last);
    CHECK_UINT_EQ(j.calls, 1);
    world_run(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    vow_future_unref(f);
    world_close(&w);
}

TEST(retry, a_deadline_that_was_met_leaves_no_timer)
{
    struct world w;
    world_open(&w);
    struct job j = {0};
    vow_future *f =
        vow_retry(w.loop, start, &j, VOW_RETRY(.deadline_ms = 1000));
    world_run(&w);
    CHECK_INT_EQ(vow_as_int(vow_get(f)), 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 0);
    vow_future_unref(f);
    world_close(&w);
}

/* ---- cancel, progress, values ------------------------------------------- */

TEST(retry, canceled_during_an_attempt_cancels_the_attempt)
{
    struct world w;
    world_open(&w);
    struct job j = {.hangs_at = 1};
    vow_future *f = vow_retry(w.loop, start, &j, NULL);
    world_run(&w);
    CHECK_UINT_EQ(j.calls, 1);
    CHECK(vow_cancel(f, NULL));
    check_rejected(f, VOW_ECANCELED);
    world_run(&w);
    CHECK(!vow_deferred_pending(j.hung));
    CHECK_UINT_EQ(j.calls, 1);
    vow_deferred_unref(j.hung);
    vow_future_unref(f);
    world_close(&w);
}

TEST(retry, canceled_during_a_wait_ends_the_wait)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 9, .retry_after_ms = 60000};
    vow_future *f = vow_retry(w.loop, start, &j, NULL);
    world_advance_ms(&w, 10);
    CHECK_UINT_EQ(j.calls, 1);
    CHECK(vow_cancel(f, NULL));
    check_rejected(f, VOW_ECANCELED);
    world_run(&w);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 10000000);
    CHECK_UINT_EQ(j.calls, 1);
    vow_future_unref(f);
    world_close(&w);
}

TEST(retry, canceled_before_it_began_never_begins)
{
    struct world w;
    world_open(&w);
    struct job j = {0};
    vow_future *f = vow_retry(w.loop, start, &j, NULL);
    CHECK(vow_cancel(f, NULL));
    check_rejected(f, VOW_ECANCELED);
    world_run(&w);
    CHECK_UINT_EQ(j.calls, 0);
    vow_future_unref(f);
    world_close(&w);
}

static void keep_progress(vow_value v, void *user)
{
    *(int64_t *)user = vow_as_int(v);
}

TEST(retry, progress_of_the_attempts_goes_on)
{
    struct world w;
    world_open(&w);
    struct job j = {.fails = 1, .hangs_at = 2};
    int64_t heard = 0;
    vow_future *f = vow_retry(w.loop, start, &j, NULL);
    vow_future *g = vow_on_progress(f, keep_progress, &heard);
    world_run(&w);
    CHECK(vow_notify(j.hung, vow_int(66)));
    world_run(&w);
    CHECK_INT_EQ(heard, 66);
    vow_resolve(j.hung, vow_nothing());
    vow_deferred_unref(j.hung);
    world_run(&w);
    vow_future_unref(f);
    vow_future_unref(g);
    world_close(&w);
}

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

TEST(retry, an_owned_result_is_destroyed_once)
{
    struct world w;
    world_open(&w);
    struct job j = {.hangs_at = 1};
    int drops = 0;
    vow_future *f = vow_retry(w.loop, start, &j, NULL);
    world_run(&w);
    vow_resolve(j.hung, vow_own(&drops, count_drop));
    vow_deferred_unref(j.hung);
    world_run(&w);
    CHECK_PTR_EQ(vow_as_ptr(vow_get(f)), &drops);
    CHECK_INT_EQ(drops, 0);
    vow_future_unref(f);
    CHECK_INT_EQ(drops, 1);
    world_close(&w);
}
