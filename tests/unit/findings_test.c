/* SPDX-License-Identifier: MIT */
/* findings_test.c - corners in which a sentence of the headers did not hold.
 *
 * Each test failed before its cure. What callbacks may do is in reentry_test.c.
 */
#include "harness.h"
#include "world.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vow.h>

enum { MANY = 200000 };

static int code_of(vow_future *f)
{
    return vow_error_code(vow_error_of(f));
}

static vow_scope *new_scope(struct world *w, const vow_scope_opts *opts)
{
    vow_scope *s;
    CHECK_INT_EQ(vow_scope_new(w->loop, opts, &s), 0);
    return s;
}

static void open_unpooled(struct world *w)
{
    world_open_with(w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
}

static void no_memory(struct world *w, bool none)
{
    w->alloc.fail_at = none ? w->alloc.allocs + 1 : 0;
    w->alloc.fail_forever = none;
}

/* A promise that counts how often it is asked to stop. */
static void count(vow_error *why, void *user)
{
    CHECK_INT_EQ(vow_error_code(why), VOW_ECANCELED);
    ++*(int *)user;
}

static vow_future *running(struct world *w, vow_deferred **ret_end, int *asked)
{
    vow_future *f = vow_promise(w->loop, ret_end);
    vow_on_cancel(*ret_end, count, asked);
    return f;
}

/* ---- retry -------------------------------------------------------------- */

static vow_deferred *end;

static vow_future *pending_attempt(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)arg;
    CHECK_UINT_EQ(attempt, 1);
    return vow_promise(loop, &end);
}

static bool always(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    return true;
}

static void close_while_an_attempt_runs(const vow_retry_opts *opts)
{
    struct world w;
    world_open(&w);
    vow_future *f = vow_retry(w.loop, pending_attempt, NULL, opts);
    world_run(&w);
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(code_of(f), VOW_ECLOSED);
    vow_future_unref(f);
    vow_deferred_unref(end);
    world_close_dirty(&w);
}

TEST(findings, retry_ends_when_the_loop_closes)
{
    close_while_an_attempt_runs(NULL);
}

TEST(findings, retry_of_everything_ends_when_the_loop_refuses_to_wait)
{
    close_while_an_attempt_runs(VOW_RETRY(.retry_if = always));
}

/* Links come from the pool and go on, only the wait needs the allocator. */
static vow_future *last_memory(vow_loop *loop, uint32_t attempt, void *arg)
{
    CHECK_UINT_EQ(attempt, 1);
    vow_error *e = vow_error_new(loop, VOW_EIO, NULL);
    no_memory(arg, true);
    return vow_rejected(loop, e);
}

TEST(findings, retry_without_memory_for_the_wait_ends)
{
    struct world w;
    vow_loop_stats stats;
    world_open(&w);
    vow_future *f = vow_retry(w.loop, last_memory, &w, VOW_RETRY(.tries = 2));
    for (int i = 0; i < 10; i++)
        world_turn(&w);
    no_memory(&w, false);
    CHECK_INT_EQ(code_of(f), VOW_ENOMEM);
    vow_loop_stats_get(w.loop, &stats);
    CHECK(stats.handlers_run < 10);
    vow_future_unref(f);
    world_run(&w);
    world_close(&w);
}

static vow_future *never_started(vow_loop *loop, uint32_t attempt, void *arg)
{
    (void)loop;
    (void)attempt;
    (void)arg;
    FAIL("an attempt was started");
}

/* The options end where the readable page does. */
TEST(findings, retry_does_not_read_beyond_small_options)
{
    struct world w;
    world_open(&w);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    CHECK_INT_EQ(mprotect(map + page, page, PROT_NONE), 0);
    size_t *small = (size_t *)(void *)(map + page) - 2;
    small[0] = 2 * sizeof(*small);
    vow_future *f = vow_retry(w.loop, never_started, NULL,
                              (const vow_retry_opts *)(const void *)small);
    CHECK_INT_EQ(code_of(f), VOW_EINVAL);
    vow_future_unref(f);
    CHECK_INT_EQ(munmap(map, 2 * page), 0);
    world_run(&w);
    world_close(&w);
}

/* ---- timeouts and deadlines --------------------------------------------- */

TEST(findings, timeout_of_zero_gives_a_value_that_is_there)
{
    struct world w;
    world_open_real(&w);
    vow_future *f = vow_resolved(w.loop, vow_int(7));
    vow_future *t = vow_timeout(f, 0);
    CHECK_INT_EQ(vow_loop_run_until(w.loop, t), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(t)), 7);
    vow_future_unref(t);
    vow_future_unref(f);
    world_close(&w);
}

TEST(findings, timeout_gives_a_value_that_came_before_the_loop_was_late)
{
    struct world w;
    vow_deferred *d;
    world_open_real(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *t = vow_timeout(f, 1);
    CHECK(vow_resolve(d, vow_int(7)));
    uint64_t late = vow_loop_now_ns(w.loop) + 5000000;
    while (vow_loop_now_ns(w.loop) < late) {
    }
    CHECK_INT_EQ(vow_loop_run_until(w.loop, t), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(t)), 7);
    vow_future_unref(t);
    vow_future_unref(f);
    vow_deferred_unref(d);
    world_close(&w);
}

TEST(findings, timeout_without_memory_is_a_timeout)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    vow_future *f = vow_promise(w.loop, &d);
    vow_future *t = vow_timeout(f, 5);
    no_memory(&w, true);
    world_advance_ms(&w, 5);
    no_memory(&w, false);
    CHECK_INT_EQ(code_of(t), VOW_ETIMEDOUT);
    vow_future_unref(t);
    vow_future_unref(f);
    vow_deferred_unref(d);
    world_close(&w);
}

TEST(findings, deadline_without_memory_is_a_timeout)
{
    struct world w;
    open_unpooled(&w);
    vow_scope *s = new_scope(&w, VOW_SCOPE_OPTS(.deadline_ms = 5));
    no_memory(&w, true);
    world_advance_ms(&w, 5);
    no_memory(&w, false);
    CHECK_INT_EQ(vow_error_code(vow_scope_cause(s)), VOW_ETIMEDOUT);
    vow_scope_unref(s);
    world_close(&w);
}

TEST(findings, promise_without_memory_has_an_empty_site)
{
    struct world w;
    vow_deferred *d;
    open_unpooled(&w);
    no_memory(&w, true);
    vow_future *f = vow_promise(w.loop, &d);
    no_memory(&w, false);
    CHECK_INT_EQ(code_of(f), VOW_ENOMEM);
    CHECK_STR_EQ(vow_future_site(f), "");
    vow_future_unref(f);
    vow_deferred_unref(d);
    world_close(&w);
}

/* Without a member or a hook a deadline does not keep the loop running; a hook
 * of a child counts as well. */
TEST(findings, deadline_of_a_parent_fires_for_the_hook_of_a_child)
{
    struct world w;
    int asked = 0;
    vow_hook hook = {.scope = NULL};
    world_open(&w);
    vow_scope *parent = new_scope(&w, VOW_SCOPE_OPTS(.deadline_ms = 100));
    vow_scope *child = new_scope(&w, VOW_SCOPE_OPTS(.parent = parent));
    CHECK_INT_EQ(vow_hook_add(&hook, child, count, &asked), 0);
    world_run(&w);
    CHECK_INT_EQ(asked, 1);
    CHECK_UINT_EQ(vow_loop_now_ns(w.loop), 100 * UINT64_C(1000000));
    vow_scope_unref(child);
    vow_scope_unref(parent);
    world_close(&w);
}

/* ---- who is canceled, and who is not ------------------------------------ */

static vow_future *shared;

static vow_next insert_shared(vow_value v, void *user)
{
    (void)v;
    (void)user;
    return vow_follow(vow_future_ref(shared));
}

/* With nobody else at the link, the member came to wait for the shared future
 * itself, and canceled it. */
TEST(findings, scope_leaves_alone_what_a_member_follows_and_others_hold)
{
    struct world w;
    vow_deferred *d;
    world_open(&w);
    shared = vow_promise(w.loop, &d);
    vow_scope *s = new_scope(&w, NULL);
    vow_future *start = vow_resolved(w.loop, vow_nothing());
    vow_future *link = vow_then(start, insert_shared, NULL, NULL);
    vow_future *member = vow_scope_add(s, link);
    vow_future_unref(link);
    world_run(&w);
    CHECK(vow_scope_cancel(s, NULL));
    world_run(&w);
    CHECK_INT_EQ(code_of(member), VOW_ECANCELED);
    CHECK_UINT_EQ(vow_scope_size(s), 0);
    CHECK_INT_EQ(vow_state_of(shared), VOW_PENDING);
    CHECK(vow_resolve(d, vow_int(1)));
    vow_future_unref(member);
    vow_future_unref(start);
    vow_future_unref(shared);
    vow_deferred_unref(d);
    vow_scope_unref(s);
    world_close(&w);
}

static vow_next clean_up(void *user)
{
    (void)user;
    return vow_ok(vow_nothing());
}

/* Two readers of one promise: the first is canceled and stays behind it, the
 * second is the last that needs it. */
static void cancel_both(struct world *w, vow_future *first, vow_future *second,
                        const int *asked)
{
    CHECK(vow_cancel(first, NULL));
    world_turn(w);
    CHECK_INT_EQ(*asked, 0);
    CHECK(vow_cancel(second, NULL));
    world_turn(w);
    CHECK_INT_EQ(*asked, 1);
    vow_future_unref(first);
    vow_future_unref(second);
}

TEST(findings, canceled_finally_does_not_count_as_a_reader)
{
    struct world w;
    vow_deferred *d;
    int asked = 0;
    world_open(&w);
    vow_future *f = running(&w, &d, &asked);
    vow_future *cleaned = vow_finally(f, clean_up, NULL);
    vow_future *link = vow_then(f, NULL, NULL, NULL);
    vow_future_unref(f);
    cancel_both(&w, cleaned, link, &asked);
    CHECK(vow_resolve(d, vow_nothing()));
    vow_deferred_unref(d);
    world_run(&w);
    world_close(&w);
}

TEST(findings, canceled_member_does_not_count_as_a_reader)
{
    struct world w;
    vow_deferred *d;
    int asked = 0;
    world_open(&w);
    vow_scope *s = new_scope(&w, NULL);
    vow_future *f = running(&w, &d, &asked);
    vow_future *member = vow_scope_add(s, f);
    vow_future *link = vow_then(f, NULL, NULL, NULL);
    vow_future_unref(f);
    cancel_both(&w, member, link, &asked);
    CHECK(vow_resolve(d, vow_nothing()));
    vow_deferred_unref(d);
    world_run(&w);
    vow_scope_unref(s);
    world_close(&w);
}

TEST(findings, timeout_cancels_what_only_a_canceled_finally_waits_for)
{
    struct world w;
    vow_deferred *d;
    int asked = 0;
    world_open(&w);
    vow_future *f = running(&w, &d, &asked);
    vow_future *cleaned = vow_finally(f, clean_up, NULL);
    vow_future *t = vow_timeout(f, 5);
    vow_future_unref(f);
    CHECK(vow_cancel(cleaned, NULL));
    world_advance_ms(&w, 5);
    CHECK_INT_EQ(code_of(t), VOW_ETIMEDOUT);
    CHECK_INT_EQ(asked, 1);
    vow_future_unref(cleaned);
    vow_future_unref(t);
    CHECK(vow_resolve(d, vow_nothing()));
    vow_deferred_unref(d);
    world_run(&w);
    world_close(&w);
}

TEST(findings, cancel_is_not_lost_when_the_promise_follows_another)
{
    struct world w;
    vow_deferred *d, *other_end;
    int asked = 0;
    world_open(&w);
    vow_future *f = running(&w, &d, &asked);
    vow_future *other = vow_promise(w.loop, &other_end);
    CHECK(vow_cancel(f, NULL));
    CHECK(vow_resolve_with(d, other));
    world_run(&w);
    CHECK_INT_EQ(code_of(f), VOW_ECANCELED);
    CHECK_INT_EQ(vow_state_of(other), VOW_PENDING); /* we hold it */
    vow_future_unref(f);
    vow_future_unref(other);
    vow_deferred_unref(d);
    vow_deferred_unref(other_end);
    world_close(&w);
}

TEST(findings, second_hook_of_a_promise_is_asked_by_the_next_cancel)
{
    struct world w;
    vow_deferred *d;
    int first = 0, second = 0;
    world_open(&w);
    vow_future *f = running(&w, &d, &first);
    CHECK(vow_cancel(f, NULL));
    world_run(&w);
    vow_on_cancel(d, count, &second);
    CHECK(vow_cancel(f, NULL));
    world_run(&w);
    CHECK_INT_EQ(first, 1);
    CHECK_INT_EQ(second, 1);
    vow_future_unref(f);
    CHECK(vow_resolve(d, vow_nothing()));
    vow_deferred_unref(d);
    world_close(&w);
}

TEST(findings, member_canceled_by_its_reader_does_not_fail_the_scope)
{
    struct world w;
    vow_deferred *d[2];
    vow_future *member[2];
    world_open(&w);
    vow_scope *s = new_scope(&w, VOW_SCOPE_OPTS(.flags = VOW_SCOPE_FAIL_FAST));
    for (int i = 0; i < 2; i++) {
        vow_future *f = vow_promise(w.loop, &d[i]);
        member[i] = vow_scope_add(s, f);
        vow_future_unref(f);
    }
    CHECK(vow_cancel(member[0], NULL));
    world_run(&w);
    CHECK(!vow_scope_canceled(s));
    CHECK_INT_EQ(vow_state_of(member[1]), VOW_PENDING);
    CHECK(vow_reject_code(d[1], VOW_EIO, NULL)); /* that does */
    world_run(&w);
    CHECK_INT_EQ(vow_error_code(vow_scope_cause(s)), VOW_EIO);
    CHECK_INT_EQ(code_of(member[1]), VOW_EIO);
    for (int i = 0; i < 2; i++) {
        vow_future_unref(member[i]);
        vow_deferred_unref(d[i]);
    }
    vow_scope_unref(s);
    world_close(&w);
}

TEST(findings, scope_canceled_by_a_cancel_keeps_the_cause_behind_it)
{
    struct world w;
    world_open(&w);
    vow_scope *s = new_scope(&w, NULL);
    vow_error *first = vow_error_new(w.loop, VOW_ETIMEDOUT, "first");
    vow_error *told = vow_error_wrap(w.loop, VOW_ECANCELED, first, "told");
    CHECK(vow_scope_cancel(s, told));
    CHECK_PTR_EQ(vow_scope_cause(s), first);
    vow_future *f = vow_scope_wait(s);
    CHECK_INT_EQ(code_of(f), VOW_ETIMEDOUT);
    vow_future_unref(f);
    vow_error_unref(told);
    vow_error_unref(first);
    vow_scope_unref(s);
    world_close(&w);
}

/* ---- following ---------------------------------------------------------- */

static vow_future *borrowed;

static vow_next await_borrowed(void *arg)
{
    (void)arg;
    return vow_ok(vow_int(vow_await(borrowed)));
}

/* The link goes when it follows the shared future and nobody holds it; the
 * fiber was left with a future that had been freed. */
TEST(findings, await_goes_on_when_others_drop_the_handle_it_was_given)
{
    struct world w;
    vow_deferred *start_end, *shared_end;
    open_unpooled(&w);
    vow_future *start = vow_promise(w.loop, &start_end);
    shared = vow_promise(w.loop, &shared_end);
    borrowed = vow_then(start, insert_shared, NULL, NULL);
    vow_future *fiber = vow_async(w.loop, await_borrowed, NULL);
    world_run(&w);
    vow_future_unref(borrowed);
    CHECK(vow_resolve(start_end, vow_nothing()));
    world_run(&w);
    CHECK(vow_reject_code(shared_end, VOW_EIO, NULL));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, fiber), 0);
    CHECK_INT_EQ(vow_as_int(vow_get(fiber)), VOW_EIO);
    vow_future_unref(fiber);
    vow_future_unref(start);
    vow_future_unref(shared);
    vow_deferred_unref(start_end);
    vow_deferred_unref(shared_end);
    world_close(&w);
}

/* The way up was walked for each of them: minutes, and now no time at all. */
TEST(findings, promises_that_follow_one_another_take_linear_time)
{
    struct world w;
    vow_deferred *first, *d;
    vow_future **readers = malloc(MANY * sizeof(*readers));
    world_open(&w);
    vow_future *tail = vow_promise(w.loop, &first);
    for (int i = 0; i < MANY; i++) {
        vow_future *f = vow_promise(w.loop, &d);
        readers[i] = vow_then(f, NULL, NULL, NULL);
        CHECK(vow_resolve_with(d, tail));
        vow_deferred_unref(d);
        vow_future_unref(tail);
        tail = f;
    }
    CHECK(vow_resolve(first, vow_int(1)));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, readers[MANY - 1]), 0);
    for (int i = 0; i < MANY; i++)
        vow_future_unref(readers[i]);
    free(readers);
    vow_future_unref(tail);
    vow_deferred_unref(first);
    world_run(&w);
    world_close(&w);
}

TEST(findings, steps_that_follow_the_end_of_a_chain_take_linear_time)
{
    struct world w;
    vow_deferred *d;
    vow_future **readers = malloc(MANY * sizeof(*readers));
    world_open(&w);
    shared = vow_promise(w.loop, &d);
    for (int i = 0; i < MANY; i++) {
        vow_future *link = vow_then(shared, NULL, NULL, NULL);
        vow_future_unref(shared);
        shared = link;
    }
    vow_future *start = vow_resolved(w.loop, vow_nothing());
    for (int i = 0; i < MANY; i++) {
        vow_future *link = vow_then(start, insert_shared, NULL, NULL);
        readers[i] = vow_then(link, NULL, NULL, NULL);
        vow_future_unref(link);
    }
    world_run(&w);
    CHECK(vow_resolve(d, vow_int(1)));
    CHECK_INT_EQ(vow_loop_run_until(w.loop, readers[MANY - 1]), 0);
    for (int i = 0; i < MANY; i++)
        vow_future_unref(readers[i]);
    free(readers);
    vow_future_unref(start);
    vow_future_unref(shared);
    vow_deferred_unref(d);
    world_run(&w);
    world_close(&w);
}
