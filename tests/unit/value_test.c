/* SPDX-License-Identifier: MIT */
/* value_test.c - values: kinds read back as they were put in, destructors
 * that run exactly once on every path, buffers shared without a copy. */
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/scope.h"

static void count_drop(void *ptr)
{
    ++*(int *)ptr;
}

/* ---- kinds -------------------------------------------------------------- */

TEST(value, reads_back_what_was_put_in)
{
    static const char text[] = "literal";
    CHECK_INT_EQ(vow_as_int(vow_int(INT64_MIN)), INT64_MIN);
    CHECK_INT_EQ(vow_as_int(vow_int(INT64_MAX)), INT64_MAX);
    CHECK(vow_as_real(vow_real(-0.5)) == -0.5);
    CHECK_PTR_EQ(vow_as_ptr(vow_ptr(text)), text);
    CHECK_PTR_EQ(vow_as_ptr(vow_own((void *)(uintptr_t)text, count_drop)),
                 text);
    CHECK_INT_EQ(vow_kind_of(vow_nothing()), VOW_NOTHING);
    CHECK_INT_EQ(vow_kind_of(vow_int(0)), VOW_INT);
    CHECK_INT_EQ(vow_kind_of(vow_real(0)), VOW_REAL);
    CHECK_INT_EQ(vow_kind_of(vow_ptr(text)), VOW_PTR);
}

TEST(value, owned_without_a_destructor_is_a_plain_pointer)
{
    int drops = 0;
    CHECK_INT_EQ(vow_kind_of(vow_own(&drops, count_drop)), VOW_OWNED);
    CHECK_INT_EQ(vow_kind_of(vow_own(&drops, NULL)), VOW_PTR);
    vow_value_drop(vow_own(&drops, NULL));
    CHECK_INT_EQ(drops, 0);
}

TEST(value, of_the_wrong_kind_reads_as_zero_or_null)
{
    int drops = 0;
    vow_value values[] = {vow_nothing(), vow_int(5), vow_real(1.5),
                          vow_ptr(&drops), vow_own(&drops, count_drop)};
    for (int i = 0; i < 5; i++) {
        CHECK_INT_EQ(vow_as_int(values[i]), i == 1 ? 5 : 0);
        CHECK(vow_as_real(values[i]) == (i == 2 ? 1.5 : 0));
        CHECK_PTR_EQ(vow_as_ptr(values[i]), i >= 3 ? &drops : NULL);
        CHECK_PTR_EQ(vow_as_bytes(values[i]), NULL);
        CHECK_UINT_EQ(vow_list_size(values[i]), 0);
        CHECK_PTR_EQ(vow_list_at(values[i], 0), NULL);
        CHECK_INT_EQ(vow_kind_of(vow_list_get(values[i], 0)), VOW_NOTHING);
    }
}

TEST(value, drop_destroys_what_is_owned_and_nothing_else)
{
    int drops = 0;
    vow_value_drop(vow_nothing());
    vow_value_drop(vow_int(1));
    vow_value_drop(vow_real(1));
    vow_value_drop(vow_ptr(&drops));
    CHECK_INT_EQ(drops, 0);
    vow_value_drop(vow_own(&drops, count_drop));
    CHECK_INT_EQ(drops, 1);
}

TEST(value, every_kind_goes_through_a_promise)
{
    struct world w;
    world_open(&w);
    static const char text[] = "literal";
    vow_value in[] = {vow_nothing(), vow_int(-9), vow_real(2.25),
                      vow_ptr(text)};
    for (int i = 0; i < 4; i++) {
        vow_deferred *d;
        vow_future *f = vow_promise(w.loop, &d);
        vow_future *g = vow_then(f, NULL, NULL, NULL);
        vow_resolve(d, in[i]);
        world_run(&w);
        vow_value out = vow_get(g);
        CHECK_INT_EQ(vow_kind_of(out), vow_kind_of(in[i]));
        CHECK_INT_EQ(vow_as_int(out), vow_as_int(in[i]));
        CHECK(vow_as_real(out) == vow_as_real(in[i]));
        CHECK_PTR_EQ(vow_as_ptr(out), vow_as_ptr(in[i]));
        vow_deferred_unref(d);
        vow_future_unref(f);
        vow_future_unref(g);
    }
    world_close(&w);
}

/* ---- bytes -------------------------------------------------------------- */

TEST(value, bytes_are_a_copy)
{
    struct world w;
    world_open(&w);
    char text[] = "abc";
    vow_bytes *b = NULL;
    CHECK_INT_EQ(vow_bytes_new(w.loop, text, 4, &b), 0);
    text[0] = 'X';
    CHECK_UINT_EQ(vow_bytes_size(b), 4);
    CHECK_MEM_EQ(vow_bytes_data(b), "abc", 4);
    vow_bytes_data(b)[1] = 'Y';
    CHECK_MEM_EQ(vow_bytes_data(b), "aYc", 4);
    CHECK_MEM_EQ(text, "Xbc", 4);
    CHECK_PTR_EQ(vow_bytes_unref(b), NULL);
    world_close(&w);
}

TEST(value, bytes_of_nothing_are_zeros_and_may_be_empty)
{
    struct world w;
    world_open(&w);
    vow_bytes *b = NULL, *empty = NULL;
    CHECK_INT_EQ(vow_bytes_new(w.loop, NULL, 100, &b), 0);
    CHECK_INT_EQ(vow_bytes_new(w.loop, NULL, 0, &empty), 0);
    for (int i = 0; i < 100; i++)
        CHECK_INT_EQ(vow_bytes_data(b)[i], 0);
    CHECK_UINT_EQ(vow_bytes_size(empty), 0);
    vow_bytes_unref(b);
    vow_bytes_unref(empty);
    CHECK_PTR_EQ(vow_bytes_unref(NULL), NULL);
    CHECK_INT_EQ(vow_kind_of(vow_bytes_value(NULL)), VOW_NOTHING);
    world_close(&w);
}

TEST(value, bytes_too_large_for_the_machine_are_refused)
{
    struct world w;
    world_open(&w);
    vow_bytes *b = NULL;
    CHECK_INT_EQ(vow_bytes_new(w.loop, NULL, SIZE_MAX, &b), VOW_ENOMEM);
    CHECK_INT_EQ(vow_bytes_new(w.loop, NULL, SIZE_MAX - 8, &b), VOW_ENOMEM);
    CHECK_PTR_EQ(b, NULL);
    world_close(&w);
}

static vow_next keep_bytes(vow_value v, void *user)
{
    *(vow_bytes **)user = vow_bytes_ref(vow_as_bytes(v));
    return vow_ok(vow_nothing());
}

TEST(value, bytes_reach_ten_waiters_without_a_copy_and_outlive_the_promise)
{
    struct world w;
    world_open(&w);
    vow_bytes *b, *got[10] = {NULL};
    CHECK_INT_EQ(vow_bytes_new(w.loop, "shared", 7, &b), 0);
    unsigned char *data = vow_bytes_data(b);
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    for (int i = 0; i < 10; i++)
        vow_future_unref(vow_then(f, keep_bytes, NULL, &got[i]));
    vow_resolve(d, vow_bytes_value(b));
    vow_deferred_unref(d);
    world_run(&w);
    vow_future_unref(f);
    for (int i = 0; i < 10; i++) {
        CHECK_PTR_EQ(vow_bytes_data(got[i]), data);
        CHECK_STR_EQ((char *)vow_bytes_data(got[i]), "shared");
        vow_bytes_unref(got[i]);
    }
    world_close(&w);
}

/* ---- owned values ------------------------------------------------------- */

struct reader {
    int runs, drops_seen;
    void *ptr;
    const int *drops;
};

static vow_next read_ptr(vow_value v, void *user)
{
    struct reader *r = user;
    r->runs++;
    r->ptr = vow_as_ptr(v);
    r->drops_seen = *r->drops;
    return vow_pass();
}

/* Each of ten readers sits behind a pass-through link, a promise that follows
 * it, and a step that passes; all handles but the last futures are dropped. */
TEST(value, owned_reaches_ten_readers_without_a_copy_and_is_destroyed_once)
{
    struct world w;
    world_open(&w);
    int drops = 0;
    struct reader r[10];
    vow_future *last[10];
    vow_deferred *d, *fd;
    vow_future *f = vow_promise(w.loop, &d);
    for (int i = 0; i < 10; i++) {
        r[i] = (struct reader){.drops = &drops};
        vow_future *link = vow_then(f, NULL, NULL, NULL);
        vow_future *follower = vow_promise(w.loop, &fd);
        vow_resolve_with(fd, link);
        last[i] = vow_then(follower, read_ptr, NULL, &r[i]);
        vow_deferred_unref(fd);
        vow_future_unref(follower);
        vow_future_unref(link);
    }
    vow_future_unref(f);
    vow_resolve(d, vow_own(&drops, count_drop));
    vow_deferred_unref(d);
    world_run(&w);
    for (int i = 0; i < 10; i++) {
        CHECK_INT_EQ(r[i].runs, 1);
        CHECK_PTR_EQ(r[i].ptr, &drops);
        CHECK_PTR_EQ(vow_as_ptr(vow_get(last[i])), &drops);
        CHECK_INT_EQ(drops, 0);
        vow_future_unref(last[i]);
    }
    CHECK_INT_EQ(drops, 1);
    world_close(&w);
}

TEST(value, owned_is_alive_in_the_handler_when_every_handle_is_gone)
{
    struct world w;
    world_open(&w);
    int drops = 0;
    struct reader r = {.drops = &drops};
    vow_deferred *d;
    vow_future *f = vow_promise(w.loop, &d);
    vow_future_unref(vow_then(f, read_ptr, NULL, &r));
    vow_future_unref(f);
    vow_resolve(d, vow_own(&drops, count_drop));
    vow_deferred_unref(d);
    world_run(&w);
    CHECK_INT_EQ(r.runs, 1);
    CHECK_INT_EQ(r.drops_seen, 0);
    CHECK_INT_EQ(drops, 1);
    world_close(&w);
}

static void drop_future(void *ptr)
{
    vow_future_unref(ptr);
}

TEST(value, a_destructor_may_drop_a_future_whose_value_is_owned_too)
{
    struct world w;
    world_open(&w);
    int drops = 0;
    vow_future *inner = vow_resolved(w.loop, vow_own(&drops, count_drop));
    vow_future *outer = vow_resolved(w.loop, vow_own(inner, drop_future));
    CHECK_INT_EQ(drops, 0);
    vow_future_unref(outer);
    CHECK_INT_EQ(drops, 1);
    world_close(&w);
}

/* ---- every path --------------------------------------------------------- */

/* Each takes the value, runs to its end and leaves nothing. */
typedef void path_fn(struct world *w, vow_value v);

static void path_unread(struct world *w, vow_value v)
{
    vow_deferred *d;
    vow_future_unref(vow_promise(w->loop, &d));
    vow_resolve(d, v);
    vow_deferred_unref(d);
}

static void path_late(struct world *w, vow_value v)
{
    vow_deferred *d;
    vow_future *f = vow_promise(w->loop, &d);
    vow_resolve(d, vow_int(1));
    CHECK(!vow_resolve(d, v));
    vow_deferred_unref(d);
    vow_future_unref(f);
}

static void path_canceled(struct world *w, vow_value v)
{
    vow_deferred *d;
    vow_future *f = vow_promise(w->loop, &d);
    vow_cancel(f, NULL);
    CHECK(!vow_settle(d, vow_ok(v)));
    vow_deferred_unref(d);
    vow_future_unref(f);
}

static void path_canceled_reader(struct world *w, vow_value v)
{
    vow_future *f = vow_resolved(w->loop, v);
    vow_future *g = vow_then(f, NULL, NULL, NULL);
    vow_future_unref(f);
    vow_cancel(g, NULL);
    vow_future_unref(g);
}

static vow_next return_user(vow_value v, void *user)
{
    (void)v;
    return vow_ok(*(vow_value *)user);
}

static void path_step(struct world *w, vow_value v)
{
    vow_future *f = vow_resolved(w->loop, vow_int(1));
    vow_future_unref(vow_then(f, return_user, NULL, &v));
    vow_future_unref(f);
    world_run(w);
}

static vow_next fail_after(vow_value v, void *user)
{
    (void)v;
    (void)user;
    return vow_fail_code(VOW_EIO, NULL);
}

static void path_replaced_by_an_error(struct world *w, vow_value v)
{
    vow_future *f = vow_resolved(w->loop, v);
    vow_future *g = vow_then(f, fail_after, NULL, NULL);
    vow_future_unref(f);
    world_run(w);
    CHECK_INT_EQ(vow_error_code(vow_error_of(g)), VOW_EIO);
    vow_future_unref(g);
}

static void path_follow(struct world *w, vow_value v)
{
    vow_deferred *d;
    vow_future *f = vow_promise(w->loop, &d);
    vow_settle(d, vow_follow(vow_resolved(w->loop, v)));
    world_run(w);
    CHECK_PTR_EQ(vow_as_ptr(vow_get(f)), v.as.ptr);
    vow_deferred_unref(d);
    vow_future_unref(f);
}

static void path_combined(struct world *w, vow_value v)
{
    vow_future *f = vow_resolved(w->loop, v);
    vow_future *twice[2] = {f, f};
    vow_future *made[4] = {
        vow_all(w->loop, twice, 2), vow_all_settled(w->loop, twice, 2),
        vow_any(w->loop, twice, 2), vow_race(w->loop, twice, 2)};
    vow_future_unref(f);
    world_run(w);
    for (int i = 0; i < 4; i++)
        vow_future_unref(made[i]);
}

static void path_after_the_timeout(struct world *w, vow_value v)
{
    vow_deferred *d;
    vow_future *f = vow_promise(w->loop, &d);
    vow_future *limit = vow_timeout(f, 5);
    world_advance_ms(w, 5);
    CHECK(vow_resolve(d, v));
    CHECK_INT_EQ(vow_error_code(vow_error_of(limit)), VOW_ETIMEDOUT);
    vow_deferred_unref(d);
    vow_future_unref(f);
    vow_future_unref(limit);
}

static void path_scope(struct world *w, vow_value v)
{
    vow_scope *s;
    CHECK_INT_EQ(vow_scope_new(w->loop, NULL, &s), 0);
    vow_future *f = vow_resolved(w->loop, v);
    vow_future_unref(vow_scope_add(s, f));
    vow_future_unref(f);
    world_run(w);
    vow_scope_unref(s);
}

static void path_notify(struct world *w, vow_value v)
{
    vow_deferred *d;
    vow_future *f = vow_promise(w->loop, &d);
    CHECK(vow_notify(d, v));
    vow_resolve(d, vow_nothing());
    world_run(w);
    vow_deferred_unref(d);
    vow_future_unref(f);
}

TEST(value, owned_is_destroyed_exactly_once_on_every_path)
{
    static const struct {
        const char *name;
        path_fn *run;
    } paths[] = {
        {"unread", path_unread},
        {"late", path_late},
        {"canceled", path_canceled},
        {"canceled reader", path_canceled_reader},
        {"step", path_step},
        {"replaced by an error", path_replaced_by_an_error},
        {"follow", path_follow},
        {"combined", path_combined},
        {"after the timeout", path_after_the_timeout},
        {"scope", path_scope},
        {"notify", path_notify},
    };
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        struct world w;
        int drops = 0;
        world_open(&w);
        paths[i].run(&w, vow_own(&drops, count_drop));
        world_run(&w);
        world_close(&w);
        if (drops != 1)
            FAIL("%s: got %d drops, want 1", paths[i].name, drops);
    }
}

TEST(value, owned_is_destroyed_once_when_the_loop_is_closed)
{
    struct world w;
    world_open(&w);
    int kept = 0, queued = 0, told = 0;
    vow_future *f = vow_resolved(w.loop, vow_own(&kept, count_drop));
    struct reader r = {.drops = &queued};
    vow_future *g = vow_resolved(w.loop, vow_own(&queued, count_drop));
    vow_future_unref(vow_then(g, read_ptr, NULL, &r));
    vow_future_unref(g);
    vow_deferred *d;
    vow_future *h = vow_promise(w.loop, &d);
    CHECK(vow_notify(d, vow_own(&told, count_drop)));
    CHECK_INT_EQ(vow_loop_close(w.loop), 0);
    w.loop = NULL;
    CHECK_INT_EQ(r.runs, 1);
    CHECK_INT_EQ(queued, 1);
    vow_future_unref(f);
    vow_future_unref(h);
    vow_deferred_unref(d);
    CHECK_INT_EQ(kept, 1);
    CHECK_INT_EQ(told, 1);
    world_close_dirty(&w);
}

/* ---- lists -------------------------------------------------------------- */

TEST(value, a_list_goes_down_a_chain_like_any_value)
{
    struct world w;
    world_open(&w);
    int drops = 0;
    vow_future *in = vow_resolved(w.loop, vow_own(&drops, count_drop));
    vow_future *all = vow_all(w.loop, &in, 1);
    vow_future *g = vow_then(all, NULL, NULL, NULL);
    vow_future *h = vow_then(g, NULL, NULL, NULL);
    vow_future_unref(in);
    vow_future_unref(all);
    vow_future_unref(g);
    world_run(&w);
    CHECK_INT_EQ(vow_kind_of(vow_get(h)), VOW_LIST);
    CHECK_PTR_EQ(vow_as_ptr(vow_list_get(vow_get(h), 0)), &drops);
    CHECK_INT_EQ(drops, 0);
    vow_future_unref(h);
    CHECK_INT_EQ(drops, 1);
    world_close(&w);
}
