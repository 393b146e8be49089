/* SPDX-License-Identifier: MIT */
/* batch_inside_test.c - batch: used from inside its own callbacks, in great
 * numbers, and without memory. */
#include "batch_rig.h"
#include "fault.h"

#include <stdlib.h>

/* ---- from inside -------------------------------------------------------- */

static vow_future *added_inside;

static void add_more(struct server *s, vow_batch_call *c)
{
    (void)c;
    if (s->calls == 1) {
        added_inside = vow_batch_add(s->batch, vow_int(50), 0);
        vow_batch_flush(s->batch);
    }
}

TEST(batch, the_function_may_add_items_and_flush)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.concurrent = 2, .wait_ms = 10));
    r.s.inside = add_more;
    vow_future *f = ask(&r, 1);
    world_run(&r.w);
    CHECK_UINT_EQ(r.s.calls, 2);
    CHECK_UINT_EQ(r.s.sizes[1], 1);
    CHECK_UINT_EQ(r.s.at_ms[1], 10);
    check_value(f, 2);
    check_value(added_inside, 100);
    rig_close(&r);
}

static void close_and_drop(struct server *s, vow_batch_call *c)
{
    (void)c;
    vow_batch_close(s->batch);
    s->batch = vow_batch_unref(s->batch);
}

TEST(batch, the_function_may_close_it_and_drop_the_last_reference)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.most = 1));
    r.s.inside = close_and_drop;
    r.b = NULL;
    vow_future *f = vow_batch_add(r.s.batch, vow_int(1), 0);
    vow_future *g = vow_batch_add(r.s.batch, vow_int(2), 0);
    world_run(&r.w);
    check_value(f, 2);
    check_code(g, VOW_ECLOSED);
    CHECK_UINT_EQ(r.s.calls, 1);
    rig_close(&r);
}

static vow_future *canceled_inside[2];

static void cancel_both(struct server *s, vow_batch_call *c)
{
    CHECK_UINT_EQ(vow_batch_call_size(c), 2);
    if (s->calls == 1)
        for (int i = 0; i < 2; i++)
            CHECK(vow_cancel(canceled_inside[i], NULL));
}

TEST(batch, the_function_may_cancel_the_items_of_its_call)
{
    static const enum mode modes[] = {HANG, ANSWER, NO_FUTURE};
    for (int k = 0; k < 3; k++) {
        struct rig r;
        rig_open(&r, modes[k], NULL);
        r.s.inside = cancel_both;
        canceled_inside[0] = ask(&r, 1);
        canceled_inside[1] = ask(&r, 2);
        world_run(&r.w);
        CHECK_INT_EQ(r.s.asked, k == 0); /* what it has begun is stopped */
        CHECK_UINT_EQ(vow_batch_stats_get(r.b).calls, 0);
        check_code(canceled_inside[0], VOW_ECANCELED);
        check_code(canceled_inside[1], VOW_ECANCELED);
        rig_close(&r);
    }
}

struct again {
    struct rig *rig;
    int left;
    vow_batch *last; /* dropped with the last answer */
};

static vow_next ask_again(vow_value v, void *user)
{
    struct again *a = user;
    CHECK_INT_EQ(vow_as_int(v), 2 * a->left);
    if (--a->left == 0) {
        vow_batch_close(a->last);
        vow_batch_unref(a->last);
        return vow_ok(vow_int(77));
    }
    vow_future *f = vow_batch_add(a->last, vow_int(a->left), 0);
    vow_batch_flush(a->last);
    return vow_follow(vow_then_drop(f, ask_again, NULL, a));
}

TEST(batch, answers_may_ask_again_a_hundred_thousand_times)
{
    struct rig r;
    rig_open(&r, ANSWER, VOW_BATCH(.wait_ms = 5));
    struct again a = {.rig = &r, .left = 100000, .last = r.b};
    vow_future *f = vow_then_drop(ask(&r, a.left), ask_again, NULL, &a);
    r.b = NULL;
    size_t bytes = r.w.alloc.live_bytes;
    world_run(&r.w);
    CHECK(r.w.alloc.peak_bytes < bytes + 200000);
    check_value(f, 77);
    rig_close(&r);
}

static void add_on_drop(struct rig *r)
{
    vow_future *f = vow_batch_add(r->s.batch, vow_int(9), 0);
    (void)vow_error_of(f);
    vow_future_unref(f);
    vow_batch_flush(r->s.batch);
}

static void drop_on_drop(struct rig *r)
{
    if (r->b == NULL)
        return;
    vow_batch_close(r->b);
    r->b = vow_batch_unref(r->b);
}

/* Where a destructor runs: late answers aside, those are all. */
TEST(batch, destructors_of_items_may_use_and_drop_it)
{
    void (*const on_drop[])(struct rig *) = {add_on_drop, drop_on_drop};
    for (int k = 0; k < 8; k++) {
        struct rig r;
        rig_open(&r, k & 4 ? HANG : ANSWER, VOW_BATCH(.most = 2));
        vow_batch *also = k & 1 ? NULL : vow_batch_ref(r.b);
        struct token t[3] = {{0}};
        vow_future *f[3];
        for (int i = 0; i < 3; i++) {
            t[i] = (struct token){.rig = &r, .on_drop = on_drop[k & 1]};
            f[i] = vow_batch_add(r.b, token(&t[i]), 0);
        }
        if (k & 2)
            CHECK(vow_cancel(f[0], NULL));
        world_run(&r.w);
        for (size_t i = 0; i < LOG_MAX && r.s.end[i] != NULL; i++)
            end_call(&r.s, i, 1);
        world_run(&r.w);
        for (size_t i = 0; i < LOG_MAX && r.s.end[i] != NULL; i++)
            if (vow_deferred_pending(r.s.end[i]))
                end_call(&r.s, i, 1);
        if (also != NULL)
            vow_batch_close(also);
        vow_batch_unref(also);
        world_run(&r.w);
        for (int i = 0; i < 3; i++)
            CHECK_INT_EQ(t[i].drops, 1);
        drop_all(f, 3);
        rig_close(&r);
    }
}

static void unref_on_drop(struct rig *r)
{
    r->b = vow_batch_unref(r->b);
}

TEST(batch, the_destructor_of_a_refused_item_may_drop_the_last_reference)
{
    struct rig r;
    rig_open(&r, ANSWER, NULL);
    vow_batch_close(r.b);
    struct token t = {.rig = &r, .on_drop = unref_on_drop};
    check_code(vow_batch_add(r.b, token(&t), 0), VOW_ECLOSED);
    CHECK_INT_EQ(t.drops, 1);
    CHECK_PTR_EQ(r.b, NULL);
    rig_close(&r);
}

/* ---- many --------------------------------------------------------------- */

enum { MANY = 100000 };

TEST(batch, a_long_queue_is_worked_off_closed_and_canceled_in_little_stack)
{
    static vow_future *f[MANY];
    for (int way = 0; way < 3; way++) {
        struct rig r;
        rig_open(&r, ANSWER, VOW_BATCH(.most = way == 0 ? 1 : 1000));
        for (int i = 0; i < MANY; i++)
            f[i] = ask(&r, i);
        if (way == 1)
            vow_batch_close(r.b);
        for (int i = 0; i < MANY && way == 2; i++)
            CHECK(vow_cancel(f[i], NULL));
        world_run(&r.w);
        CHECK_UINT_EQ(r.s.calls, way == 0 ? MANY : 0);
        for (int i = 0; i < MANY; i++)
            if (way == 0)
                check_value(f[i], 2 * i);
            else
                check_code(f[i], way == 1 ? VOW_ECLOSED : VOW_ECANCELED);
        rig_close(&r);
    }
}

/* ---- no memory ---------------------------------------------------------- */

/* Answered, listed, canceled in the queue and in a call, closed. */
FAULT_SWEEP(batch, survives_every_fault, FAULT_ALLOC)
{
    static const enum mode modes[] = {ANSWER, LISTED, REFUSE, NOTHING};
    struct server s = {.loop = w->loop};
    struct token t[6] = {{0}};
    vow_future *f[6];
    vow_batch *b;
    int rc = vow_batch_new(w->loop, serve, &s,
                           VOW_BATCH(.most = 2, .wait_ms = 5), &b);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc != 0)
        return;
    for (int k = 0; k < 5; k++) {
        s.mode = modes[k % 4];
        for (int i = 0; i < 6; i++) {
            t[i].drops = 0;
            f[i] = vow_batch_add(b, token(&t[i]), 1);
        }
        (void)vow_cancel(f[4], NULL);
        if (k == 4)
            vow_batch_close(b);
        world_run(w);
        for (int i = 0; i < 6; i++) {
            int code = code_of(f[i]);
            CHECK(vow_state_of(f[i]) != VOW_PENDING);
            CHECK(code != VOW_ENOMEM || fault_fired(w));
            CHECK(k > 1 || i == 4 || code == 0 || fault_explains(w, code));
            vow_future_unref(f[i]);
            CHECK_INT_EQ(t[i].drops, 1);
        }
    }
    vow_batch_unref(b);
}

FAULT_SWEEP(batch, a_call_under_way_survives_every_fault, FAULT_ALLOC)
{
    struct server s = {.loop = w->loop, .mode = HANG};
    vow_batch *b;
    int rc = vow_batch_new(w->loop, serve, &s, NULL, &b);
    if (rc != 0)
        return;
    vow_future *f = vow_batch_add(b, vow_int(1), 0);
    vow_future *g = vow_batch_add(b, vow_int(2), 0);
    world_run(w);
    (void)vow_cancel(f, NULL);
    if (s.end[0] != NULL && vow_deferred_pending(s.end[0]))
        vow_batch_answer(s.call[0], vow_batch_call_size(s.call[0]) - 1,
                         vow_ok(vow_int(4)));
    world_run(w);
    (void)vow_cancel(g, NULL);
    world_run(w);
    if (s.end[0] != NULL && vow_deferred_pending(s.end[0]))
        end_call(&s, 0, 1);
    world_run(w);
    CHECK(vow_state_of(f) == VOW_REJECTED);
    CHECK(vow_state_of(g) == VOW_FULFILLED || fault_explains(w, code_of(g)));
    (void)vow_error_of(f);
    vow_future_unref(f);
    vow_future_unref(g);
    vow_deferred_unref(s.end[0]);
    vow_batch_unref(b);
}

/* ---- any load ----------------------------------------------------------- */

enum { LOAD = 200 };

struct load {
    struct world w;
    vow_batch *b;
    vow_batch_opts o;
    uint64_t random;
    uint32_t n; /* items asked for */
    struct {
        vow_future *f;
        size_t bytes;
        uint64_t at_ms;
        bool flushed;
        bool gone; /* canceled or in a call */
    } items[LOAD];
    uint32_t running;
    int64_t last; /* item that was put into a call */
};

struct load_call {
    struct load *load;
    vow_batch_call *call;
};

static uint64_t below(struct load *l, uint64_t n)
{
    return test_random(&l->random) % n;
}

static uint64_t now_ms(const struct load *l)
{
    return vow_loop_now_ns(l->w.loop) / 1000000;
}

static vow_next load_answer(vow_value v, void *user)
{
    struct load_call *lc = user;
    struct load *l = lc->load;
    (void)v;
    for (size_t i = 0; i < vow_batch_call_size(lc->call); i++)
        if (below(l, 4) > 0)
            (void)vow_batch_answer(
                lc->call, i,
                vow_ok(vow_int(vow_as_int(vow_batch_call_item(lc->call, i)))));
    return below(l, 8) > 0 ? vow_ok(vow_nothing())
                           : vow_fail_code(VOW_EIO, NULL);
}

static void load_call_end(void *user)
{
    struct load_call *lc = user;
    lc->load->running--;
    free(lc);
}

/* Why was it made now? There must be a reason. */
static void check_reason(struct load *l, vow_batch_call *c, size_t bytes)
{
    int64_t first = vow_as_int(vow_batch_call_item(c, 0));
    size_t waiting = vow_batch_stats_get(l->b).waiting, more = 0;
    for (uint32_t i = 0; i < l->n; i++)
        more += l->items[i].gone ? 0 : l->items[i].bytes;
    CHECK(vow_batch_call_size(c) + waiting >= l->o.most ||
          (l->o.bytes > 0 && bytes + more >= l->o.bytes) ||
          l->items[first].flushed ||
          now_ms(l) - l->items[first].at_ms >= l->o.wait_ms);
}

static vow_future *load_serve(vow_loop *loop, vow_batch_call *c, void *user)
{
    struct load *l = user;
    size_t n = vow_batch_call_size(c), bytes = 0;
    CHECK(n >= 1 && n <= l->o.most);
    CHECK(++l->running <= l->o.concurrent);
    for (size_t i = 0; i < n; i++) {
        int64_t k = vow_as_int(vow_batch_call_item(c, i));
        CHECK(k > l->last); /* in order of arrival */
        CHECK(!l->items[k].gone);
        l->items[k].gone = true;
        l->last = k;
        bytes += l->items[k].bytes;
    }
    CHECK(n == 1 || l->o.bytes == 0 || bytes <= l->o.bytes);
    check_reason(l, c, bytes);
    struct load_call *lc = malloc(sizeof(*lc));
    *lc = (struct load_call){l, c};
    const vow_step step = {load_answer, NULL, lc, load_call_end};
    VOW_AUTO(vow_future) wait = vow_delay(loop, below(l, 12));
    return vow_chain(wait, &step, 1);
}

static void load_act(struct load *l)
{
    uint32_t any = (uint32_t)below(l, l->n + 1);
    switch (below(l, 8)) {
    case 0:
        vow_batch_flush(l->b);
        for (uint32_t i = 0; i < l->n; i++)
            l->items[i].flushed = true;
        break;
    case 1:
        if (any < l->n && vow_cancel(l->items[any].f, NULL))
            l->items[any].gone = true;
        break;
    case 2:
    case 3:
        world_advance_ms(&l->w, 1 + below(l, 3));
        break;
    default:
        l->items[l->n].bytes = below(l, 15);
        l->items[l->n].at_ms = now_ms(l);
        l->items[l->n].f =
            vow_batch_add(l->b, vow_int((int64_t)l->n), l->items[l->n].bytes);
        if (vow_state_of(l->items[l->n].f) == VOW_REJECTED) {
            CHECK_INT_EQ(code_of(l->items[l->n].f), VOW_EQUEUEFULL);
            l->items[l->n].gone = true;
        }
        l->n++;
        break;
    }
}

/* With a call free nobody waits longer than he must. */
static void check_waits(struct load *l)
{
    world_advance_ms(&l->w, 0);
    vow_batch_stats s = vow_batch_stats_get(l->b);
    size_t waiting = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->items[i].gone)
            continue;
        waiting++;
        CHECK(l->running == l->o.concurrent ||
              (now_ms(l) - l->items[i].at_ms < l->o.wait_ms &&
               !l->items[i].flushed));
    }
    CHECK_UINT_EQ(s.waiting, waiting);
    CHECK(s.waiting <= l->o.queue_max);
    CHECK(l->running == l->o.concurrent || waiting < l->o.most);
}

TEST(batch, keeps_its_limits_under_any_load)
{
    static struct load l;
    for (uint64_t round = 0; round < 300; round++) {
        l = (struct load){.random = test_seed() + round, .last = -1};
        l.o = (vow_batch_opts){.size = sizeof(l.o),
                               .most = 1 + (uint32_t)below(&l, 6),
                               .bytes = below(&l, 2) * below(&l, 40),
                               .wait_ms = below(&l, 3) * below(&l, 10),
                               .concurrent = 1 + (uint32_t)below(&l, 3),
                               .queue_max = 6 + (uint32_t)below(&l, 30)};
        world_open(&l.w);
        CHECK_INT_EQ(vow_batch_new(l.w.loop, load_serve, &l, &l.o, &l.b), 0);
        while (l.n < LOAD) {
            load_act(&l);
            if (below(&l, 2) == 0)
                check_waits(&l);
        }
        world_run(&l.w);
        CHECK_UINT_EQ(l.running, 0);
        for (uint32_t i = 0; i < l.n; i++) {
            CHECK(vow_state_of(l.items[i].f) != VOW_PENDING);
            if (vow_state_of(l.items[i].f) == VOW_FULFILLED)
                CHECK_INT_EQ(vow_as_int(vow_get(l.items[i].f)), i);
            (void)vow_error_of(l.items[i].f);
            vow_future_unref(l.items[i].f);
        }
        vow_batch_unref(l.b);
        world_close(&l.w);
    }
}
