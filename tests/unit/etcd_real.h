/* SPDX-License-Identifier: MIT */
/* etcd_real.h - a store on a member of etcd of its own, in real time. */
#ifndef TEST_ETCD_REAL_H
#define TEST_ETCD_REAL_H

#include "etcd_kit.h"
#include "store/etcd/etcd_internal.h"
#include "world.h"

enum { REAL_TIMEOUT_MS = 60000 }; /* no pause of a busy machine is so long */

struct real {
    struct etcd_kit kit;
    struct world w;
    vow_store *store;
    struct vow__etcd *etcd;
};

/* Without a timeout in `opts`, which may be NULL, it is a long one. */
static inline void real_open(struct real *r, const vow_etcd_opts *opts)
{
    vow_etcd_opts o = opts != NULL ? *opts : *VOW_ETCD_OPTS(.timeout_ms = 0);
    if (o.timeout_ms == 0)
        o.timeout_ms = REAL_TIMEOUT_MS;
    etcd_start(&r->kit, NULL);
    world_open_real(&r->w);
    VOW_AUTO(vow_future)
    opened = vow_store_etcd_open(r->w.loop, r->kit.url, &o);
    CHECK_INT_EQ(vow_loop_run_until(r->w.loop, opened), 0);
    r->store = vow_as_ptr(vow_get(opened));
    r->etcd = vow__etcd_of(r->store);
}

static inline void real_close(struct real *r)
{
    VOW_AUTO(vow_future) closed = r->store->ops->close(r->store);
    CHECK_INT_EQ(vow_loop_run_until(r->w.loop, closed), 0);
    closed = vow_future_unref(closed);
    world_run(&r->w);
    world_close(&r->w);
    etcd_stop(&r->kit);
}

static inline void real_pass(struct real *r, uint64_t ms)
{
    VOW_AUTO(vow_future) f = vow_delay(r->w.loop, ms);
    CHECK_INT_EQ(vow_loop_run_until(r->w.loop, f), 0);
}

static inline uint64_t real_ms(const struct real *r)
{
    return vow_loop_now_ns(r->w.loop) / 1000000;
}

/* Wait until this holds; a minute and more means that it never does. */
#define REAL_UNTIL(r, cond)                                                    \
    do {                                                                       \
        for (int i_ = 0; i_ < 6000 && !(cond); i_++)                           \
            real_pass((r), 10);                                                \
        CHECK(cond);                                                           \
    } while (0)

#endif
