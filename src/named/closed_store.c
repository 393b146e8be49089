/* SPDX-License-Identifier: MIT */
/* closed_store.c - what is behind a hub when its store has been closed.
 *
 * WHY   A store may take its time to close, and until then answers, timers and
 *       commits that wait to be repeated still come. Whatever they begin ends
 *       as a step of a closed store does, and nobody has to look whether there
 *       is one.
 * THREADS  the hub's loop.
 */
#include "named/named_internal.h"

static void claim(vow_store *s, const vow_claim_request *ask,
                  vow_records_fn done, void *user)
{
    (void)s;
    (void)ask;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void peek(vow_store *s, const vow_name *names, size_t n,
                 vow_records_fn done, void *user)
{
    (void)s;
    (void)names;
    (void)n;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void pulse(vow_store *s, const vow_hold *holds, size_t n,
                  uint64_t lease_ms, vow_records_fn done, void *user)
{
    (void)s;
    (void)holds;
    (void)n;
    (void)lease_ms;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void commit(vow_store *s, const vow_commit_request *ask,
                   vow_records_fn done, void *user)
{
    (void)s;
    (void)ask;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void write(vow_store *s, const vow_hold *hold, vow_bytes *chunk,
                  vow_records_fn done, void *user)
{
    (void)s;
    (void)hold;
    (void)chunk;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void read(vow_store *s, const vow_name *name, uint64_t epoch,
                 uint64_t from, vow_chunks_fn done, void *user)
{
    (void)s;
    (void)name;
    (void)epoch;
    (void)from;
    done(VOW_ECLOSED, NULL, 0, 0, user);
}

static void acquire(vow_store *s, const vow_permit_request *ask,
                    vow_permits_fn done, void *user)
{
    (void)s;
    (void)ask;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void release(vow_store *s, const vow_permit_hold *hold,
                    vow_permits_fn done, void *user)
{
    (void)s;
    (void)hold;
    done(VOW_ECLOSED, NULL, 0, user);
}

static void renew(vow_store *s, const vow_permit_hold *holds, size_t n,
                  uint64_t lease_ms, vow_permits_fn done, void *user)
{
    (void)s;
    (void)holds;
    (void)n;
    (void)lease_ms;
    done(VOW_ECLOSED, NULL, 0, user);
}

/* What people ask for is refused before it gets here. */
vow_store *vow__named_store_closed(void)
{
    static const vow_store_ops operations = {.version = VOW_STORE_VERSION,
                                             .kind = "closed",
                                             .claim = claim,
                                             .peek = peek,
                                             .pulse = pulse,
                                             .commit = commit,
                                             .write = write,
                                             .read = read,
                                             .acquire = acquire,
                                             .release = release,
                                             .renew = renew};
    static vow_store closed = {.ops = &operations};
    return &closed;
}
