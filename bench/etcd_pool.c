/* SPDX-License-Identifier: MIT */
/* etcd_pool.c - many processes that share one pool, without a peer.
 *
 * Each process asks for a permit, keeps the permit for HOLD_MS, gives it back
 * and asks again. A wait is from the request until the permit is granted; the
 * waits of the first second are left out: all processes begin at once.
 */
#include "etcd.h"
#include "process.h"

#include <stdatomic.h>
#include <vow.h>

enum { PROCESSES = 100, PERMITS = 16, HOLD_MS = 10, WARM_S = 1, RUN_S = 8 };

/* In memory of all processes. */
struct crowd {
    atomic_int ready, next;
    atomic_bool go;
    struct {
        long jobs;
        double longest_ns;
    } of[PROCESSES];
};

struct member {
    struct crowd *crowd;
    vow_loop *loop;
    vow_pool *pool;
    int number;
};

static vow_next take_permits(void *user)
{
    struct member *m = user;
    struct crowd *c = m->crowd;
    atomic_fetch_add(&c->ready, 1);
    while (!atomic_load(&c->go))
        MUST(vow_sleep(m->loop, 1) == 0);
    double begin = now_ns(), first = begin + WARM_S * 1e9,
           end = first + RUN_S * 1e9;
    for (double asked = begin; asked < end; asked = now_ns()) {
        VOW_AUTO(vow_future) f = vow_pool_acquire(m->pool, NULL, 1);
        vow_grant *grant = NULL;
        MUST(vow_await(f) == 0);
        grant = vow_grant_take(vow_get(f));
        double waited = now_ns() - asked;
        MUST(grant != NULL && vow_sleep(m->loop, HOLD_MS) == 0);
        vow_grant_release(grant);
        if (asked < first)
            continue;
        c->of[m->number].jobs++;
        if (waited > c->of[m->number].longest_ns)
            c->of[m->number].longest_ns = waited;
    }
    return vow_ok(vow_nothing());
}

static void be_one_of_the_crowd(void *crowd)
{
    struct member m = {.crowd = crowd, .loop = open_loop()};
    char url[64];
    m.number = atomic_fetch_add(&m.crowd->next, 1);
    (void)snprintf(url, sizeof(url), "etcd://127.0.0.1:%d", server_port());
    VOW_AUTO(vow_future)
    opened = vow_authority_open(m.loop, url,
                                VOW_AUTHORITY(.flags = VOW_AUTHORITY_HERE));
    MUST(vow_loop_run_until(m.loop, opened) == 0);
    vow_authority *a = vow_authority_ref(vow_as_ptr(vow_get(opened)));
    MUST(vow_pool_open(a, "crowd", VOW_POOL(.limits = {.concurrent = PERMITS}),
                       &m.pool) == 0);
    VOW_AUTO(vow_future) done = vow_async(m.loop, take_permits, &m);
    MUST(vow_loop_run_until(m.loop, done) == 0);
    vow_pool_unref(m.pool);
    VOW_AUTO(vow_future) closed = vow_authority_close(a);
    MUST(vow_loop_run_until(m.loop, closed) == 0);
    vow_authority_unref(a);
}

void bench_pool(void)
{
    struct crowd *c = new_shared(sizeof(*c));
    pid_t pids[PROCESSES];
    long jobs = 0;
    double longest = 0;
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = start_child(be_one_of_the_crowd, c);
    while (atomic_load(&c->ready) < PROCESSES)
        nap_us(1000);
    atomic_store(&c->go, true);
    for (int i = 0; i < PROCESSES; i++)
        end_child(pids[i]);
    for (int i = 0; i < PROCESSES; i++) {
        jobs += c->of[i].jobs;
        longest = c->of[i].longest_ns > longest ? c->of[i].longest_ns : longest;
    }
    row("pool-rate", "vow", (double)jobs / RUN_S, "jobs/s");
    row("pool-wait", "vow", longest / 1e6, "ms");
}
