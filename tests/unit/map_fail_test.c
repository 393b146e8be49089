/* SPDX-License-Identifier: MIT */
/* map_fail_test.c - vow_map() when items, the source or memory fail: at once,
 * after what runs has ended, or as results. */
#include "fault.h"
#include "map_work.h"

#include "vow/call.h"
#include "vow/combine.h"

#include <string.h>

/* ---- failing ------------------------------------------------------------ */

struct run {
    struct world w;
    struct work k;
    vow_range r;
    vow_future *f;
};

static void run_open(struct run *t, const vow_map_opts *opts)
{
    memset(t, 0, sizeof(*t));
    world_open(&t->w);
    t->f =
        vow_map(t->w.loop, vow_source_range(&t->r, 0, 10), held, &t->k, opts);
    world_run(&t->w);
}

static void run_close(struct run *t)
{
    world_run(&t->w);
    vow_future_unref(t->f);
    CHECK_UINT_EQ(t->k.running, 0);
    world_close(&t->w);
}

/* https://github.com/agentjido/jido_action/issues/219: later items still
 * start after a failure. */
TEST(map, fail_now_rejects_at_once_and_cancels_what_runs)
{
    struct run t;
    run_open(&t, VOW_MAP(.concurrent = 4));
    t.k.stubborn = true;
    end_ok(&t.k, 0);
    end_fail(t.w.loop, &t.k, 2, VOW_EIO);
    world_run(&t.w);
    check_rejected(t.f, VOW_EIO);
    CHECK_UINT_EQ(t.k.begun, 5); /* one in the place of the first */
    CHECK_INT_EQ(t.k.asked[1], 1);
    CHECK_INT_EQ(t.k.asked[3], 1);
    CHECK_INT_EQ(t.k.asked[4], 1);
    end_ok(&t.k, 1); /* too late, and let go of */
    end_fail(t.w.loop, &t.k, 3, VOW_EINVAL);
    end_fail(t.w.loop, &t.k, 4, VOW_ECANCELED);
    world_run(&t.w);
    check_rejected(t.f, VOW_EIO);
    CHECK_UINT_EQ(t.k.begun, 5);
    run_close(&t);
}

/* https://github.com/golang/go/issues/27837: "context canceled" instead of the
 * real error. */
TEST(map, cancel_of_the_others_never_hides_the_first_error)
{
    for (uint32_t mode = VOW_FAIL_NOW; mode <= VOW_FAIL_DRAIN; mode++) {
        struct run t;
        run_open(&t, VOW_MAP(.concurrent = 4, .fail = mode));
        end_fail(t.w.loop, &t.k, 2, VOW_EIO);
        end_fail(t.w.loop, &t.k, 1, VOW_ECANCELED);
        end_fail(t.w.loop, &t.k, 0, VOW_ETIMEDOUT);
        end_fail(t.w.loop, &t.k, 3, VOW_ECANCELED);
        world_run(&t.w);
        check_rejected(t.f, VOW_EIO);
        CHECK_STR_EQ(vow_error_message(vow_error_of(t.f)), "item 2 fails");
        run_close(&t);
    }
}

TEST(map, drain_prefers_the_cause_to_a_cancel_that_came_before_it)
{
    struct run t;
    run_open(&t, VOW_MAP(.concurrent = 4, .fail = VOW_FAIL_DRAIN));
    end_fail(t.w.loop, &t.k, 2, VOW_ECANCELED);
    end_fail(t.w.loop, &t.k, 0, VOW_ECANCELED);
    end_fail(t.w.loop, &t.k, 1, VOW_EIO);
    end_fail(t.w.loop, &t.k, 3, VOW_EINVAL);
    world_run(&t.w);
    check_rejected(t.f, VOW_EIO);
    run_close(&t);
}

/* https://github.com/ShipfoxHQ/shipfox/pull/618: rejects while work still
 * runs. */
TEST(map, fail_drain_begins_nothing_more_and_waits_for_what_runs)
{
    struct run t;
    run_open(&t, VOW_MAP(.concurrent = 4, .fail = VOW_FAIL_DRAIN));
    end_fail(t.w.loop, &t.k, 2, VOW_EIO);
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(t.f), VOW_PENDING);
    end_ok(&t.k, 0);
    end_ok(&t.k, 3);
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(t.f), VOW_PENDING);
    end_ok(&t.k, 1);
    world_run(&t.w);
    check_rejected(t.f, VOW_EIO);
    CHECK_UINT_EQ(t.k.begun, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK_INT_EQ(t.k.asked[i], 0);
    run_close(&t);
}

/* https://github.com/sourcegraph/conc/issues/156,
 * https://github.com/sourcegraph/conc/issues/125: results are clipped after
 * the first error. */
TEST(map, fail_collect_has_a_place_with_its_own_status_for_every_item)
{
    struct run t;
    run_open(&t, VOW_MAP(.concurrent = 10, .fail = VOW_FAIL_COLLECT));
    for (size_t i = 0; i < 10; i++) {
        if (i % 3 == 1)
            end_fail(t.w.loop, &t.k, i, VOW_EIO);
        else
            end_ok(&t.k, i);
    }
    world_run(&t.w);
    CHECK_INT_EQ(vow_state_of(t.f), VOW_FULFILLED);
    CHECK_UINT_EQ(vow_list_size(vow_get(t.f)), 10);
    for (size_t i = 0; i < 10; i++) {
        vow_future *one = vow_list_at(vow_get(t.f), i);
        if (i % 3 == 1)
            check_rejected(one, VOW_EIO);
        else
            CHECK_INT_EQ(vow_as_int(vow_get(one)), 100 + (int64_t)i);
    }
    run_close(&t);
}

static vow_future *odd_fails(vow_loop *loop, vow_value item, size_t index,
                             void *user)
{
    (void)user;
    if (index % 2 == 1)
        return vow_rejected(loop, vow_error_new(loop, VOW_EIO, NULL));
    return vow_resolved(loop, item);
}

TEST(map, failures_that_come_at_once_are_told_as_any_other)
{
    struct world w;
    world_open(&w);
    vow_range r;
    vow_mapping *m;
    for (uint32_t mode = VOW_FAIL_NOW; mode <= VOW_FAIL_COLLECT; mode++) {
        vow_future *f =
            vow_map(w.loop, vow_source_range(&r, 0, 10), odd_fails, NULL,
                    VOW_MAP(.concurrent = 3, .fail = mode, .discard = true,
                            .ret_map = &m));
        world_run(&w);
        vow_map_stats s = vow_map_stats_get(m);
        if (mode == VOW_FAIL_COLLECT)
            CHECK_INT_EQ(vow_as_int(vow_get(f)), 10);
        else
            check_rejected(f, VOW_EIO);
        CHECK_UINT_EQ(s.pulled, mode == VOW_FAIL_COLLECT ? 10 : 2);
        CHECK_UINT_EQ(s.ended, s.pulled);
        CHECK_UINT_EQ(s.failed, s.pulled / 2);
        CHECK_UINT_EQ(s.running, 0);
        vow_mapping_unref(m);
        vow_future_unref(f);
    }
    world_close(&w);
}

static vow_future *no_future(vow_loop *loop, vow_value item, size_t index,
                             void *user)
{
    (void)loop;
    (void)item;
    (void)index;
    return user; /* NULL, or of another loop */
}

TEST(map, function_that_returns_no_future_of_the_loop_is_an_error)
{
    struct world w, other;
    vow_deferred *d;
    world_open(&w);
    world_open(&other);
    vow_range r;
    for (int i = 0; i < 2; i++) {
        vow_future *foreign = i == 0 ? NULL : vow_promise(other.loop, &d);
        vow_future *f = vow_map(w.loop, vow_source_range(&r, 0, 10), no_future,
                                foreign, VOW_MAP(.concurrent = 2));
        world_run(&w);
        check_rejected(f, VOW_EINVAL);
        CHECK_INT_EQ(r.next, 1);
        vow_future_unref(f);
    }
    vow_resolve_drop(d, vow_nothing());
    world_close(&other);
    world_close(&w);
}

/* ---- no memory ---------------------------------------------------------- */

/* A source whose items are owned, with a state that counts what is alive. */
struct depot {
    vow_loop *loop;
    int left;
    int waits;      /* so often it has none at first */
    int alive;      /* items */
    int drops;      /* of the state */
    uint64_t reads; /* of items while their future was pending */
};

static void depot_item_drop(void *ptr)
{
    struct depot *d = ptr;
    d->alive--;
}

static int depot_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    struct depot *d = state;
    CHECK_INT_EQ(d->drops, 0);
    if (d->left == 0)
        return 0;
    if (d->waits > 0) {
        d->waits--;
        *ret_wait = vow_delay(d->loop, 3);
        return VOW_EAGAIN;
    }
    d->left--;
    d->alive++;
    *ret_item = vow_own(d, depot_item_drop);
    return 1;
}

static void depot_drop(void *state)
{
    struct depot *d = state;
    CHECK_INT_EQ(d->alive, 0);
    d->drops++;
}

static vow_source depot_open(struct depot *d, vow_loop *loop, int n, int waits)
{
    *d = (struct depot){.loop = loop, .left = n, .waits = waits};
    return (vow_source){.pull = depot_pull, .state = d, .drop = depot_drop};
}

/* Reads its item after a wait: it must still be there. */
static vow_next read_item(vow_value v, void *user)
{
    struct depot *d = user;
    (void)v;
    CHECK(d->alive > 0);
    CHECK_INT_EQ(d->drops, 0);
    d->reads++;
    return vow_ok(vow_int(7));
}

/* Without memory for its own steps it fails, as a user's would. */
static vow_future *slow_read(vow_loop *loop, vow_value item, size_t index,
                             void *user)
{
    (void)user;
    if (index % 3 == 2)
        return vow_resolved(loop, vow_int(7));
    return vow_then_drop(vow_delay(loop, 5 + 3 * index), read_item, NULL,
                         vow_as_ptr(item));
}

/* Asked to stop, it goes on and reads its item at the end. */
struct stubborn {
    vow_deferred *end;
    struct depot *depot;
    vow_call call;
};

static void stubborn_end(void *user)
{
    struct stubborn *s = user;
    (void)read_item(vow_nothing(), s->depot);
    vow_resolve_drop(s->end, vow_int(7));
}

static void stubborn_asked(vow_error *why, void *user)
{
    (void)why;
    (void)user;
}

static struct stubborn stubborns[MANY];

static vow_future *stubborn_read(vow_loop *loop, vow_value item, size_t index,
                                 void *user)
{
    struct stubborn *s = &stubborns[index];
    (void)user;
    *s = (struct stubborn){.depot = vow_as_ptr(item)};
    vow_future *f = vow_promise(loop, &s->end);
    if (!vow_deferred_pending(s->end)) {
        vow_deferred_unref(s->end);
        return f;
    }
    vow_on_cancel(s->end, stubborn_asked, s);
    vow_call_at(&s->call, loop, vow_loop_now_ns(loop) + 20000000, stubborn_end,
                s);
    return f;
}

static vow_future *slow_sink(size_t index, vow_future *outcome, void *user)
{
    struct depot *d = user;
    CHECK(vow_state_of(outcome) != VOW_PENDING);
    vow_error_of(outcome);
    return index % 2 == 0 ? NULL : vow_delay(d->loop, 2);
}

static void sweep_one(struct world *w, vow_map_fn fn, int waits,
                      const vow_map_opts *opts)
{
    struct depot d;
    vow_mapping *m = (vow_mapping *)&d;
    vow_map_opts o = *opts;
    o.ret_map = &m;
    o.sink_user = &d;
    vow_future *f =
        vow_map(w->loop, depot_open(&d, w->loop, 20, waits), fn, NULL, &o);
    CHECK(f != NULL);
    int rc = vow_loop_run_until(w->loop, f);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0 && o.sink == NULL && !o.discard)
        CHECK_UINT_EQ(vow_list_size(vow_get(f)), 20);
    else if (rc == 0)
        CHECK_INT_EQ(vow_as_int(vow_get(f)), 20);
    vow_future_unref(f);
    world_run(w);
    CHECK_INT_EQ(d.drops, 1);
    CHECK_INT_EQ(d.alive, 0);
    vow_mapping_unref(m);
}

FAULT_SWEEP(map, kept_results_survive_every_fault, FAULT_ALLOC)
{
    sweep_one(w, slow_read, 2, VOW_MAP(.concurrent = 4));
}

FAULT_SWEEP(map, drained_sink_survives_every_fault, FAULT_ALLOC)
{
    sweep_one(
        w, slow_read, 2,
        VOW_MAP(.concurrent = 4, .fail = VOW_FAIL_DRAIN, .sink = slow_sink));
}

FAULT_SWEEP(map, collected_results_survive_every_fault, FAULT_ALLOC)
{
    sweep_one(w, slow_read, 2,
              VOW_MAP(.concurrent = 18, .fail = VOW_FAIL_COLLECT,
                      .sink = slow_sink, .as_completed = true));
}

FAULT_SWEEP(map, item_outlives_work_that_cannot_be_watched_nor_stopped,
            FAULT_ALLOC)
{
    for (uint32_t mode = VOW_FAIL_NOW; mode <= VOW_FAIL_COLLECT; mode++)
        sweep_one(w, stubborn_read, 1, VOW_MAP(.concurrent = 3, .fail = mode));
}
