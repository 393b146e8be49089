/* SPDX-License-Identifier: MIT */
/* closed_store.c - replaces the store of a hub when the store is closed.
 *
 * WHY   A store may take time to close. Until then answers and timers still
 *       arrive, and commits are still repeated. Every step that they begin ends
 *       with VOW_ECLOSED, so no caller has to check for a missing store.
 * THREADS  the hub's loop.
 */
#include "named/named_internal.h"

static void closed_claim(vow_store *s, const vow_claim_request *request,
                         vow_records_fn done, void *user)
{
    (void)s;
    (void)request;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void closed_peek(vow_store *s, const vow_name *names, size_t n,
                        vow_records_fn done, void *user)
{
    (void)s;
    (void)names;
    (void)n;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void closed_pulse(vow_store *s, const vow_hold *holds, size_t n,
                         uint64_t lease_ms, vow_records_fn done, void *user)
{
    (void)s;
    (void)holds;
    (void)n;
    (void)lease_ms;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void closed_commit(vow_store *s, const vow_commit_request *request,
                          vow_records_fn done, void *user)
{
    (void)s;
    (void)request;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void closed_write(vow_store *s, const vow_hold *hold, uint64_t number,
                         vow_bytes *chunk, vow_records_fn done, void *user)
{
    (void)s;
    (void)hold;
    (void)number;
    (void)chunk;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void closed_read(vow_store *s, const vow_name *name, uint64_t epoch,
                        uint64_t from, vow_chunks_fn done, void *user)
{
    (void)s;
    (void)name;
    (void)epoch;
    (void)from;
    done(VOW_ECLOSED, NULL, 0, 0, user);
}

static void closed_acquire(vow_store *s, const vow_permit_request *request,
                           vow_permits_fn done, void *user)
{
    (void)s;
    (void)request;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void closed_release(vow_store *s, const vow_permit_hold *hold,
                           vow_permits_fn done, void *user)
{
    (void)s;
    (void)hold;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void closed_renew(vow_store *s, const vow_permit_hold *holds, size_t n,
                         uint64_t lease_ms, vow_permits_fn done, void *user)
{
    (void)s;
    (void)holds;
    (void)n;
    (void)lease_ms;
    done(VOW_ECLOSED, NULL, 0, user);
}

/* Has only the steps that the hub itself begins: requests of users are refused
 * before they get here. */
vow_store *vow__named_store_closed(void)
{
    static const vow_store_ops operations = {.version = VOW_STORE_VERSION,
                                             .kind = "closed",
                                             .claim = closed_claim,
                                             .peek = closed_peek,
                                             .pulse = closed_pulse,
                                             .commit = closed_commit,
                                             .write = closed_write,
                                             .read = closed_read,
                                             .acquire = closed_acquire,
                                             .release = closed_release,
                                             .renew = closed_renew};
    static vow_store closed = {.ops = &operations};
    return &closed;
}
