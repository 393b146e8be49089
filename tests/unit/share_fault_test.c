/* SPDX-License-Identifier: MIT */
/* share_fault_test.c - named work without memory: everything settles, and
 * nothing is lost. */
#include "fault.h"
#include "share_rig.h"

static vow_authority *process(struct world *w, vow_memory *m, int *rc)
{
    vow_store *store;
    *rc = vow_store_memory_new(w->loop, m, &store);
    if (*rc < 0)
        return NULL;
    VOW_AUTO(vow_future)
    f = vow_authority_open(w->loop, NULL,
                           VOW_AUTHORITY(.store = store,
                                         .flags = VOW_AUTHORITY_HERE,
                                         .lease_ms = 100));
    *rc = vow_loop_run_until(w->loop, f);
    if (*rc < 0) {
        VOW_AUTO(vow_future) closed = store->ops->close(store);
        (void)vow_loop_run_until(w->loop, closed);
        return NULL;
    }
    return vow_authority_ref(vow_as_ptr(vow_get(f)));
}

static void leave(struct world *w, vow_authority *a)
{
    if (a == NULL)
        return;
    VOW_AUTO(vow_future) f = vow_authority_close(a);
    (void)vow_loop_run_until(w->loop, f);
    vow_authority_unref(a);
    (void)vow_loop_turn(w->loop);
}

static vow_future *bytes_work(vow_lease *lease, void *arg)
{
    vow_bytes *b;
    (void)lease;
    if (vow_bytes_new(arg, "x", 1, &b) < 0)
        return vow_refused(arg, VOW_ENOMEM, NULL);
    return vow_resolved(arg, vow_bytes_value(b));
}

static vow_future *fail_work(vow_lease *lease, void *arg)
{
    (void)lease;
    return vow_refused(arg, VOW_EIO, NULL);
}

static void settled(struct world *w, vow_future *f, int also)
{
    (void)vow_loop_advance(w->loop, 2000);
    CHECK(vow_state_of(f) != VOW_PENDING);
    int rc = vow_error_code(vow_error_of(f));
    CHECK(rc == 0 || rc == also || fault_explains(w, rc));
    vow_future_unref(f);
}

FAULT_SWEEP(share_fault, sharing_between_processes_survives_every_fault,
            FAULT_ALLOC)
{
    vow_memory *m;
    vow_authority *a = NULL, *b = NULL;
    int rc = vow_memory_new(vow_loop_alloc(w->loop), &m);
    if (rc < 0) {
        CHECK(fault_explains(w, rc));
        return;
    }
    a = process(w, m, &rc);
    if (rc == 0)
        b = process(w, m, &rc);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0) {
        vow_name x = vow_name_of("x"), y = vow_name_of("y");
        const vow_share_opts *o =
            VOW_SHARE(.ttl_ms = 50, .tries = 2, .label = "label");
        vow_future *f1 = vow_share(a, &x, bytes_work, w->loop, o);
        vow_future *f2 = vow_share(b, &x, bytes_work, w->loop, o);
        vow_future *f3 = vow_share(a, &x, bytes_work, w->loop, o);
        vow_future *f4 = vow_share(b, &y, fail_work, w->loop, o);
        vow_future *f5 = vow_share(a, &y, fail_work, w->loop, o);
        settled(w, f1, 0);
        settled(w, f2, 0);
        settled(w, f3, 0);
        settled(w, f4, VOW_EIO);
        settled(w, f5, VOW_EIO);
    }
    leave(w, a);
    leave(w, b);
    vow_memory_unref(m);
}

FAULT_SWEEP(share_fault, leases_by_hand_survive_every_fault, FAULT_ALLOC)
{
    VOW_AUTO(vow_future) open = vow_authority_open(w->loop, "memory:", NULL);
    int rc = vow_loop_run_until(w->loop, open);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc < 0)
        return;
    vow_authority *a = vow_authority_ref(vow_as_ptr(vow_get(open)));
    open = vow_future_unref(open);
    vow_name x = vow_name_of("x");
    VOW_AUTO(vow_future) f = vow_claim_name(a, &x, NULL, NULL, NULL);
    rc = vow_loop_run_until(w->loop, f);
    CHECK(rc == 0 || fault_explains(w, rc));
    const vow_claim *c = rc == 0 ? vow_as_ptr(vow_get(f)) : NULL;
    if (c != NULL && c->lease != NULL) {
        VOW_AUTO(vow_future) lost = vow_lease_lost(c->lease);
        VOW_AUTO(vow_future) done = vow_lease_settled(c->lease);
        (void)vow_lease_notify(c->lease, vow_int(1));
        (void)vow_lease_resolve(c->lease, vow_int(2));
        (void)vow_loop_turn(w->loop);
        (void)vow_error_of(lost);
        (void)vow_error_of(done);
        CHECK(vow_state_of(c->result) != VOW_PENDING);
        (void)vow_error_of(c->result);
    }
    f = vow_future_unref(f);
    f = vow_authority_list(a);
    rc = vow_loop_run_until(w->loop, f);
    CHECK(rc == 0 || fault_explains(w, rc));
    f = vow_future_unref(f);
    leave(w, a);
}
