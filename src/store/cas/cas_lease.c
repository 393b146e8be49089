/* SPDX-License-Identifier: MIT */
/* cas_lease.c - leases at the service, each shared by many names.
 *
 * WHY   A lease costs a round trip to grant and to renew. A thousand names of a
 *       process must not cost more than one name.
 * HOW   A *slot* has the lease of one length: whole seconds, and CAS_SLACK_MS
 *       more. A use asks for `ms` from now on: while enough of the lease is
 *       left, the use costs nothing; else the lease is renewed, and other uses
 *       wait for the same answer. Nothing renews a lease but a use: an owner
 *       pulses. A name whose own lease ends while the shared lease lives on
 *       loses the mark by vow__cas_name_lapse().
 *       A lease that has ended is granted anew; the marks on the old lease are
 *       gone, and the next renewal of each name writes the name.
 * INVARIANTS
 *   S1  of a slot, at most one request is under way, and `turn` is pending then
 * THREADS  the thread of the loop; uses are on fibers.
 */
#include "store/cas/cas_internal.h"

enum { SLOTS_MAX = 8, MS_PER_S = 1000 };
static const uint64_t LEASE_MS_MAX = UINT64_C(3153600000000); /* 100 years */

struct cas_slot {
    vow_link link;
    uint64_t ttl_ms;
    struct cas_lease lease;
    vow_future *turn;  /* the request under way, or NULL; counted */
    vow_deferred *end; /* of `turn` */
    size_t users;      /* uses under way */
};

static struct cas_slot *slot_find(struct cas *s, uint64_t ms);
static void slots_trim(struct cas *s);
static void slot_kept(struct cas *s, const struct cas_lease *lease);
static int slot_turn(struct cas *s, struct cas_slot *slot);
static void slot_done(struct cas_slot *slot, int rc);
static int slot_wait(struct cas_slot *slot);
static int slot_grant(struct cas *s, struct cas_slot *slot, bool marks,
                      uint64_t due_ns);
static int slot_renew(struct cas *s, struct cas_slot *slot, bool marks,
                      uint64_t due_ns);
static bool slot_lasts(const struct cas *s, const struct cas_slot *slot,
                       uint64_t ms);

static struct cas_slot *slot_at(vow_link *l)
{
    return VOW__OUTER(l, struct cas_slot, link);
}

/* ---- using --------------------------------------------------------------- */

int vow__cas_lease_use(struct cas *s, uint64_t ms, bool marks, uint64_t due_ns,
                       struct cas_lease *ret_lease)
{
    struct cas_slot *slot = slot_find(s, ms);
    int rc = slot == NULL ? VOW_ENOMEM : 0;
    if (slot == NULL)
        return rc;
    slot->users++;
    while (rc == 0 && !slot_lasts(s, slot, ms))
        rc = slot->turn != NULL ? slot_wait(slot)
                                : slot_renew(s, slot, marks, due_ns);
    slot->users--;
    *ret_lease = slot->lease;
    return rc;
}

int vow__cas_lease_read(struct cas *s, uint64_t ms, const struct cas_read *read,
                        struct cas_found *ret_found,
                        struct cas_lease *ret_lease)
{
    struct cas_service *service = s->service;
    int rc;
    do {
        rc = vow__cas_lease_use(s, ms, true, read->due_ns, ret_lease);
        if (rc < 0)
            return rc;
        rc = service->ops->lease_keep(service, ret_lease, read->names, read->n,
                                      read->due_ns, ret_found);
        if (rc == VOW_ENOENT)
            vow__cas_lease_gone(s, ret_lease->id);
    } while (rc == VOW_ENOENT);
    if (rc == 0)
        slot_kept(s, ret_lease);
    return rc == VOW_EUNSURE ? VOW_ESTORE : rc;
}

static bool slot_lasts(const struct cas *s, const struct cas_slot *slot,
                       uint64_t ms)
{
    const struct cas_lease *l = &slot->lease;
    uint64_t used_ms = (vow__cas_now_ns(s) - l->sent_ns + 999999) / 1000000;
    ms = ms < LEASE_MS_MAX ? ms : LEASE_MS_MAX;
    return l->id != 0 && slot->turn == NULL && used_ms + ms <= l->ttl_ms;
}

/* Notes a keepalive that was sent beside the slot. */
static void slot_kept(struct cas *s, const struct cas_lease *lease)
{
    for (vow_link *l = s->leases; l != NULL; l = l->next)
        if (slot_at(l)->lease.id == lease->id &&
            slot_at(l)->lease.sent_ns < lease->sent_ns)
            slot_at(l)->lease.sent_ns = lease->sent_ns;
}

/* Waits for the request of another use, and shares the code. */
static int slot_wait(struct cas_slot *slot)
{
    VOW_AUTO(vow_future) turn = vow_future_ref(slot->turn);
    int rc = vow_await(turn);
    return rc < 0 ? rc : (int)vow_as_int(vow_get(turn));
}

static int slot_renew(struct cas *s, struct cas_slot *slot, bool marks,
                      uint64_t due_ns)
{
    struct cas_service *service = s->service;
    int rc = slot_turn(s, slot);
    if (rc < 0)
        return rc;
    if (slot->lease.id != 0) {
        rc = service->ops->lease_keep(service, &slot->lease, NULL, 0, due_ns,
                                      NULL);
        if (rc == VOW_ENOENT)
            slot->lease.id = 0;
    }
    if (slot->lease.id == 0)
        rc = slot_grant(s, slot, marks, due_ns);
    slot_done(slot, rc);
    return rc;
}

static int slot_grant(struct cas *s, struct cas_slot *slot, bool marks,
                      uint64_t due_ns)
{
    struct cas_lease lease = {.id = 0};
    int rc = s->service->ops->lease_grant(s->service, slot->ttl_ms, marks,
                                          due_ns, &lease);
    if (rc == 0)
        slot->lease = lease;
    return rc;
}

/* Takes the turn of a slot: keeps S1. */
static int slot_turn(struct cas *s, struct cas_slot *slot)
{
    vow_deferred *end;
    vow_future *turn = vow_promise(s->loop, &end);
    if (vow_state_of(turn) != VOW_PENDING) {
        int rc = vow_error_code(vow_error_of(turn));
        vow_deferred_unref(end);
        vow_future_unref(turn);
        return rc;
    }
    slot->turn = turn;
    slot->end = end;
    return 0;
}

/* The code is a value: a rejection without a reader would be reported. */
static void slot_done(struct cas_slot *slot, int rc)
{
    vow_future *turn = slot->turn;
    vow_deferred *end = slot->end;
    slot->turn = NULL;
    slot->end = NULL;
    (void)vow_resolve_drop(end, vow_int(rc));
    vow_future_unref(turn);
}

/* ---- slots --------------------------------------------------------------- */

static struct cas_slot *slot_find(struct cas *s, uint64_t ms)
{
    if (ms > LEASE_MS_MAX)
        ms = LEASE_MS_MAX;
    uint64_t seconds = (ms + MS_PER_S - 1) / MS_PER_S;
    uint64_t ttl_ms = seconds * MS_PER_S + CAS_SLACK_MS;
    for (vow_link *l = s->leases; l != NULL; l = l->next)
        if (slot_at(l)->ttl_ms == ttl_ms)
            return slot_at(l);
    slots_trim(s);
    struct cas_slot *slot = vow__mem_zero(&s->alloc, sizeof(*slot));
    if (slot == NULL)
        return NULL;
    slot->ttl_ms = ttl_ms;
    vow__list_push(&s->leases, &slot->link);
    s->n_leases++;
    return slot;
}

/* Forgets slots without a live lease, if there are many. */
static void slots_trim(struct cas *s)
{
    vow_link *next;
    for (vow_link *l = s->leases; l != NULL && s->n_leases >= SLOTS_MAX;
         l = next) {
        struct cas_slot *slot = slot_at(l);
        next = l->next;
        if (slot->users > 0 || slot_lasts(s, slot, 0))
            continue;
        vow__list_remove(&s->leases, l);
        s->n_leases--;
        vow__mem_free(&s->alloc, slot, sizeof(*slot));
    }
}

void vow__cas_lease_gone(struct cas *s, uint64_t id)
{
    for (vow_link *l = s->leases; l != NULL; l = l->next)
        if (slot_at(l)->lease.id == id)
            slot_at(l)->lease.id = 0;
}

bool vow__cas_lease_mine(const struct cas *s, uint64_t id)
{
    for (vow_link *l = s->leases; id != 0 && l != NULL; l = l->next)
        if (slot_at(l)->lease.id == id)
            return true;
    return false;
}

void vow__cas_leases_fini(struct cas *s)
{
    while (s->leases != NULL) {
        struct cas_slot *slot = slot_at(vow__list_take(&s->leases));
        VOW__ASSERT(slot->users == 0);
        vow__mem_free(&s->alloc, slot, sizeof(*slot));
    }
}
