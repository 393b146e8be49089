/* SPDX-License-Identifier: MIT */
/* etcd_pool_many_test.c - instances that contend for one pool, all at once and
 * each as if it were a process: limits hold, and everybody has its turn. */
#include "etcd_kit.h"
#include "store/etcd/etcd_internal.h"
#include "world.h"

#include <string.h>

enum { INSTANCES = 4, WORKERS = 24, ROUNDS = 10, LEASE_MS = 600000 };

/* One that asks, holds, gives back and asks again. */
struct worker {
    struct instance *at;
    vow_token token;
    uint32_t weight;
    unsigned rounds;
    bool asking; /* a step runs */
    bool woken;  /* meanwhile */
    bool waits;
    bool holds;
    uint64_t sent_us;
    uint64_t fence;
    vow_call call;
};

struct instance {
    vow_store *store;
    struct worker workers[WORKERS / INSTANCES];
};

static struct {
    struct world w;
    struct etcd_kit kit;
    struct instance instances[INSTANCES];
    vow_pool_limits limits;
    uint64_t seed;
    uint64_t held, most;
    unsigned finished;
    unsigned told; /* wake-ups */
    size_t grants;
    struct {
        uint64_t before_us, behind_us, weight;
    } log[WORKERS * ROUNDS];
} sea;

static void ask(void *worker);
static void give_back(void *worker);

static uint64_t now_us(void)
{
    return vow_loop_now_ns(sea.w.loop) / 1000;
}

static void after_us(struct worker *w, uint64_t us, vow_call_fn fn)
{
    vow_call_at(&w->call, sea.w.loop,
                vow_loop_now_ns(sea.w.loop) + us * 1000 + 1, fn, w);
}

static void granted(struct worker *w, const vow_pool_permit *p)
{
    CHECK(p->fence > w->fence);
    w->fence = p->fence;
    w->holds = true;
    sea.held += w->weight;
    CHECK(sea.most == 0 || sea.held <= sea.most);
    CHECK(sea.grants < WORKERS * ROUNDS);
    sea.log[sea.grants].before_us = w->sent_us;
    sea.log[sea.grants].behind_us = now_us();
    sea.log[sea.grants++].weight = w->weight;
    after_us(w, test_random(&sea.seed) % 5000, give_back);
}

static void on_asked(int code, const vow_pool_permit *p, size_t n, void *worker)
{
    struct worker *w = worker;
    CHECK_INT_EQ(code, 0);
    CHECK_UINT_EQ(n, 1);
    w->asking = false;
    if (p->status == VOW_STATUS_OWNED) {
        granted(w, p);
        return;
    }
    CHECK_UINT_EQ(p->status, VOW_STATUS_WAITING);
    w->waits = true;
    after_us(w, w->woken ? 0 : p->again_us, ask);
}

static void ask(void *worker)
{
    struct worker *w = worker;
    const vow_permit_request a = {.pool = vow_name_of("p"),
                                  .limits_of = vow_name_of("p"),
                                  .token = w->token,
                                  .weight = w->weight,
                                  .lease_ms = LEASE_MS,
                                  .limits = sea.limits,
                                  .label = "p"};
    w->asking = true;
    w->woken = false;
    w->waits = false;
    w->sent_us = now_us();
    w->at->store->ops->acquire(w->at->store, &a, on_asked, w);
}

static void on_given(int code, const vow_pool_permit *p, size_t n, void *worker)
{
    struct worker *w = worker;
    CHECK_INT_EQ(code, 0);
    CHECK_UINT_EQ(n, 1);
    CHECK_UINT_EQ(p->status, VOW_STATUS_OWNED);
    if (++w->rounds == ROUNDS)
        sea.finished++;
    else
        ask(w);
}

static void give_back(void *worker)
{
    struct worker *w = worker;
    const vow_permit_hold hold = {vow_name_of("p"), vow_name_of("p"), w->token,
                                  false};
    w->holds = false;
    sea.held -= w->weight;
    w->at->store->ops->release(w->at->store, &hold, on_given, w);
}

static void on_permit(const vow_token *token, void *instance)
{
    struct instance *at = instance;
    sea.told++;
    for (size_t i = 0; i < WORKERS / INSTANCES; i++) {
        struct worker *w = &at->workers[i];
        if (memcmp(&w->token, token, sizeof(*token)) != 0)
            continue;
        w->woken = true;
        if (w->waits)
            after_us(w, 0, ask);
    }
}

static void open_instance(struct instance *at)
{
    VOW_AUTO(vow_future)
    opened = vow_store_etcd_open(sea.w.loop, sea.kit.url,
                                 VOW_ETCD_OPTS(.timeout_ms = 60000));
    CHECK_INT_EQ(vow_loop_run_until(sea.w.loop, opened), 0);
    at->store = vow_as_ptr(vow_get(opened));
    at->store->ops->listen(at->store, &(const vow_store_events){
                                          .on_permit = on_permit, .user = at});
    for (size_t i = 0; i < WORKERS / INSTANCES; i++) {
        struct worker *w = &at->workers[i];
        w->at = at;
        w->weight = 1 + (uint32_t)(test_random(&sea.seed) % 3);
        for (size_t k = 0; k < sizeof(w->token.bytes); k++)
            w->token.bytes[k] = (unsigned char)test_random(&sea.seed);
    }
}

static void pause_ms(uint64_t ms)
{
    VOW_AUTO(vow_future) f = vow_delay(sea.w.loop, ms);
    CHECK_INT_EQ(vow_loop_run_until(sea.w.loop, f), 0);
}

static void on_limit(int code, const vow_pool_info *infos, size_t n, void *user)
{
    (void)infos;
    (void)n;
    CHECK(code == 0 || code == VOW_EAGAIN);
    *(bool *)user = true;
}

static void set_limits(uint32_t concurrent)
{
    vow_name pool = vow_name_of("p");
    vow_store *s = sea.instances[0].store;
    bool done = false;
    sea.limits.concurrent = concurrent;
    s->ops->limit(s, &pool, &sea.limits, "p", on_limit, &done);
    while (!done)
        pause_ms(1);
}

static void run(vow_pool_limits limits, bool limits_change)
{
    memset(&sea, 0, sizeof(sea));
    sea.seed = test_seed();
    sea.limits = limits;
    sea.most = limits.concurrent;
    etcd_start(&sea.kit, NULL);
    world_open_real(&sea.w);
    for (size_t i = 0; i < INSTANCES; i++)
        open_instance(&sea.instances[i]);
    for (size_t i = 0; i < INSTANCES; i++)
        for (size_t k = 0; k < WORKERS / INSTANCES; k++)
            ask(&sea.instances[i].workers[k]);
    for (uint32_t i = 0; sea.finished < WORKERS; i++) {
        pause_ms(20);
        if (limits_change)
            set_limits(3 + i % (limits.concurrent - 2));
    }
    CHECK_UINT_EQ(sea.held, 0);
    if (limits.rate == 0) /* nothing but the limits */
        CHECK_UINT_EQ(etcd_count(&sea.kit, "vow/s/"), 1);
    for (size_t i = 0; i < INSTANCES; i++) {
        vow_store *s = sea.instances[i].store;
        VOW_AUTO(vow_future) closed = s->ops->close(s);
        CHECK_INT_EQ(vow_loop_run_until(sea.w.loop, closed), 0);
    }
    world_run(&sea.w);
    world_close(&sea.w);
    etcd_stop(&sea.kit);
}

TEST(etcd_pool_many, a_limit_holds_and_everybody_has_its_turn)
{
    run((vow_pool_limits){.concurrent = 5}, false);
    CHECK_UINT_EQ(sea.grants, WORKERS * ROUNDS);
    CHECK(sea.told > 0);
}

TEST(etcd_pool_many, limits_that_change_all_the_time_hold)
{
    run((vow_pool_limits){.concurrent = 7}, true);
}

TEST(etcd_pool_many, a_rate_holds_in_every_window)
{
    run((vow_pool_limits){.concurrent = 9, .rate = 30, .window_us = 200000},
        false);
    for (size_t i = 0; i < sea.grants; i++) {
        uint64_t sum = 0;
        for (size_t k = 0; k < sea.grants; k++)
            if (sea.log[k].before_us >= sea.log[i].before_us &&
                sea.log[k].behind_us - sea.log[i].before_us <= 200000)
                sum += sea.log[k].weight;
        CHECK(sum <= 30);
    }
}
