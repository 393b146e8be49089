/* SPDX-License-Identifier: MIT */
/* share_rig.h - authorities on virtual time, as if each were a process, and
 * work that is settled by hand. */
#ifndef TEST_SHARE_RIG_H
#define TEST_SHARE_RIG_H

#include "world.h"

#include <stdio.h>
#include <string.h>

enum { RIG_MAX = 4 };

struct rig {
    struct world w;
    vow_memory *memory;
    vow_authority *at[RIG_MAX];
    vow_store *store[RIG_MAX];
    size_t n;
    uint32_t events[16]; /* how often, by kind */
};

static inline void rig_event(const vow_event *e, void *user)
{
    struct rig *r = user;
    CHECK(e->kind < 16);
    r->events[e->kind]++;
}

/* One more process: an authority of its own on the shared memory. */
static inline vow_authority *rig_process(struct rig *r)
{
    CHECK(r->n < RIG_MAX);
    CHECK_INT_EQ(vow_store_memory_new(r->w.loop, r->memory, &r->store[r->n]),
                 0);
    VOW_AUTO(vow_future)
    f = vow_authority_open(
        r->w.loop, NULL,
        VOW_AUTHORITY(.store = r->store[r->n], .lease_ms = 1000,
                      .pulse_ms = 300, .flags = VOW_AUTHORITY_HERE,
                      .on_event = rig_event, .on_event_user = r));
    CHECK_INT_EQ(vow_loop_run_until(r->w.loop, f), 0);
    r->at[r->n] = vow_authority_ref(vow_as_ptr(vow_get(f)));
    return r->at[r->n++];
}

static inline void rig_open(struct rig *r, size_t processes)
{
    *r = (struct rig){0};
    world_open(&r->w);
    CHECK_INT_EQ(vow_memory_new(vow_loop_alloc(r->w.loop), &r->memory), 0);
    for (size_t i = 0; i < processes; i++)
        (void)rig_process(r);
}

static inline void rig_close(struct rig *r)
{
    for (size_t i = 0; i < r->n; i++) {
        VOW_AUTO(vow_future) f = vow_authority_close(r->at[i]);
        CHECK_INT_EQ(vow_loop_run_until(r->w.loop, f), 0);
        vow_authority_unref(r->at[i]);
    }
    world_turn(&r->w);
    vow_memory_unref(r->memory);
    world_close(&r->w);
}

/* Work that ends when the test says so. */
struct hand {
    vow_loop *loop;
    vow_deferred *end;
    vow_lease *lease;
    int runs;
    int canceled;
};

static inline void hand_canceled(vow_error *why, void *user)
{
    struct hand *h = user;
    h->canceled++;
    (void)vow_reject(h->end, vow_error_ref(why));
}

static inline vow_future *hand_work(vow_lease *lease, void *arg)
{
    struct hand *h = arg;
    vow_deferred_unref(h->end);
    vow_lease_unref(h->lease);
    h->lease = vow_lease_ref(lease);
    h->runs++;
    vow_future *f = vow_promise(h->loop, &h->end);
    vow_on_cancel(h->end, hand_canceled, h);
    return f;
}

static inline void hand_free(struct hand *h)
{
    h->end = vow_deferred_unref(h->end);
    h->lease = vow_lease_unref(h->lease);
}

static inline vow_value text_value(vow_loop *loop, const char *text)
{
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(loop, text, strlen(text), &b), 0);
    return vow_bytes_value(b);
}

#define CHECK_TEXT(f, want) check_text(TEST_HERE, (f), (want))
static inline void check_text(const char *site, vow_future *f, const char *want)
{
    if (vow_state_of(f) != VOW_FULFILLED)
        test_fail(site, "state %d, code %d", (int)vow_state_of(f),
                  vow_error_code(vow_error_of(f)));
    vow_bytes *b = vow_as_bytes(vow_get(f));
    if (b == NULL)
        test_fail(site, "no bytes");
    if (vow_bytes_size(b) != strlen(want) ||
        memcmp(vow_bytes_data(b), want, strlen(want)) != 0)
        test_fail(site, "got %.*s, want %s", (int)vow_bytes_size(b),
                  (const char *)vow_bytes_data(b), want);
}

#endif
