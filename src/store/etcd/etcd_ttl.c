/* SPDX-License-Identifier: MIT */
/* etcd_ttl.c - leases: of owners, of running records, of results, of entries.
 *
 * WHY   A lease of etcd costs a request to grant and one to keep alive, and
 *       many keys can hang on one lease.
 * HOW   Leases of owners are granted and renewed for the engine, which shares
 *       them. A *keep* is a lease for records: a running record outlives the
 *       lease of the owner by a day, so the keep is renewed once an hour, along
 *       with a pulse. Results and tombstones hang on a keep that is never
 *       renewed: the keep lives a little longer than needed, and is shared until
 *       the rest of its time is too short.
 *       The first keep is granted at the same time as the first lease of an
 *       owner: a claim costs two round trips in a new process, then one.
 *       A grant without an answer is repeated with another id: the first lease
 *       ends by itself.
 *       An entry of a rate that is open hangs on a longer lease than a closed
 *       one.
 *       A process that closes the store and owns nothing revokes the leases of
 *       owners and of running records, and leases of entries without entries:
 *       else each call of the command would leave a lease for a day.
 * INVARIANTS
 *   T1  at most one request for a keep is under way; `turn` is pending then
 * THREADS  loop thread only, on fibers.
 */
#include "store/etcd/etcd_service.h"

#include <inttypes.h>
#include <sodium.h>

enum {
    MS_PER_S = 1000,
    HOUR_MS = 3600 * MS_PER_S,
    REST_MS = 30000,
    ENTRY_REST_MS = 1000
};
static const uint64_t DAY_MS = UINT64_C(24) * HOUR_MS;
static const uint64_t KEEP_MS_MAX = UINT64_C(3153600000000); /* 100 years */

static uint64_t service_now_ns(const struct vow__etcd_service *s)
{
    return vow_loop_now_ns(vow__etcd_loop(s->etcd));
}

/* ---- requests ------------------------------------------------------------ */

/* Returns whether the answer is about this lease, alive. */
static bool lease_answered(const json_t *said, int64_t id)
{
    return vow__json_uint(said, "TTL") > 0 &&
           vow__json_uint(said, "ID") == (uint64_t)id;
}

static int lease_grant(struct vow__etcd_service *s, uint64_t seconds,
                       uint64_t due_ns, int64_t *ret_id, uint64_t *ret_sent_ns)
{
    int rc;
    do {
        struct vow__buf body;
        json_t *root = NULL;
        uint64_t random;
        randombytes_buf(&random, sizeof(random));
        int64_t id = (int64_t)(random >> 1) | 1;
        vow__etcd_buf_init(&body, vow__etcd_alloc(s->etcd));
        vow__buf_print(&body,
                       "{\"TTL\":\"%" PRIu64 "\",\"ID\":\"%" PRId64 "\"}",
                       seconds, id);
        *ret_sent_ns = service_now_ns(s);
        rc = vow__etcd_await(s->etcd, "lease/grant", &body, false, due_ns,
                             &root);
        if (rc == 0 && !lease_answered(root, id)) {
            vow__etcd_trouble(s->etcd, "etcd grants leases in an unknown way");
            rc = VOW_ESTORE;
        }
        json_decref(root);
        *ret_id = id;
    } while (rc == VOW_EUNSURE && service_now_ns(s) < due_ns &&
             !vow__etcd_closing(s->etcd));
    return rc == VOW_ENOENT ? VOW_ESTORE : rc;
}

/* VOW_ENOENT: the lease has ended. */
static int lease_renew(struct vow__etcd_service *s, int64_t id, uint64_t due_ns,
                       uint64_t *ret_sent_ns)
{
    struct vow__buf body;
    json_t *root = NULL;
    uint64_t sent_ns = service_now_ns(s);
    vow__etcd_buf_init(&body, vow__etcd_alloc(s->etcd));
    vow__buf_print(&body, "{\"ID\":\"%" PRId64 "\"}", id);
    int rc =
        vow__etcd_await(s->etcd, "lease/keepalive", &body, true, due_ns, &root);
    if (rc == 0 && !lease_answered(json_object_get(root, "result"), id))
        rc = VOW_ENOENT;
    json_decref(root);
    if (rc == 0)
        *ret_sent_ns = sent_ns;
    return rc;
}

static int lease_revoke(struct vow__etcd_service *s, int64_t id)
{
    struct vow__buf body;
    json_t *root = NULL;
    vow__etcd_buf_init(&body, vow__etcd_alloc(s->etcd));
    vow__buf_print(&body, "{\"ID\":\"%" PRId64 "\"}", id);
    int rc = vow__etcd_await(s->etcd, "lease/revoke", &body, false, 0, &root);
    json_decref(root);
    return rc == VOW_ENOENT ? 0 : rc;
}

/* Returns whether no key hangs on a lease that lives. */
static bool lease_is_bare(struct vow__etcd_service *s, int64_t id)
{
    struct vow__buf body;
    json_t *root = NULL;
    vow__etcd_buf_init(&body, vow__etcd_alloc(s->etcd));
    vow__buf_print(&body, "{\"ID\":\"%" PRId64 "\",\"keys\":true}", id);
    int rc =
        vow__etcd_await(s->etcd, "lease/timetolive", &body, true, 0, &root);
    bool bare = rc == 0 && lease_answered(root, id) &&
                json_array_size(json_object_get(root, "keys")) == 0;
    json_decref(root);
    return bare;
}

/* ---- keeps --------------------------------------------------------------- */

static uint64_t keep_left_ms(const struct vow__etcd_service *s,
                             const struct vow__etcd_keep *k)
{
    uint64_t used_ms = (service_now_ns(s) - k->sent_ns + 999999) / 1000000;
    return k->id == 0 || used_ms > k->ttl_ms ? 0 : k->ttl_ms - used_ms;
}

/* How long a keep is made: running records share a keep by hours. */
static uint64_t keep_ttl_ms(uint64_t ms, enum vow__etcd_keep_kind kind)
{
    uint64_t rest_ms = kind == VOW__ETCD_KEEP_ENTRIES ? ENTRY_REST_MS : REST_MS;
    if (kind == VOW__ETCD_KEEP_RUNS)
        return (ms / HOUR_MS + 2) * HOUR_MS;
    rest_ms = ms / 8 > rest_ms ? ms / 8 : rest_ms;
    return (ms + rest_ms) / MS_PER_S * MS_PER_S + MS_PER_S;
}

static struct vow__etcd_keep *keep_find(struct vow__etcd_service *s,
                                        uint64_t ms,
                                        enum vow__etcd_keep_kind kind)
{
    uint64_t ttl_ms = keep_ttl_ms(ms, kind);
    bool runs = kind == VOW__ETCD_KEEP_RUNS;
    for (size_t i = 0; i < VOW__ETCD_KEEPS; i++) {
        struct vow__etcd_keep *k = &s->keeps[i];
        bool fits = runs ? k->ttl_ms == ttl_ms : k->ttl_ms <= 2 * ttl_ms;
        if (k->id != 0 && k->kind == kind && fits &&
            (runs || keep_left_ms(s, k) >= ms))
            return k;
    }
    return NULL;
}

/* An empty place, else the place of the keep that is nearest to its end. */
static struct vow__etcd_keep *keep_place(struct vow__etcd_service *s)
{
    struct vow__etcd_keep *place = &s->keeps[0];
    for (size_t i = 1; i < VOW__ETCD_KEEPS; i++)
        if (keep_left_ms(s, &s->keeps[i]) < keep_left_ms(s, place))
            place = &s->keeps[i];
    return place;
}

static int keep_request(struct vow__etcd_service *s, uint64_t ms,
                        enum vow__etcd_keep_kind kind, uint64_t due_ns)
{
    struct vow__etcd_keep *k = keep_find(s, ms, kind);
    int rc = VOW_ENOENT;
    if (k != NULL)
        rc = lease_renew(s, k->id, due_ns, &k->sent_ns);
    if (k != NULL && rc == VOW_ENOENT)
        k->id = 0;
    if (rc != VOW_ENOENT)
        return rc;
    struct vow__etcd_keep made = {.kind = kind,
                                  .ttl_ms = keep_ttl_ms(ms, kind)};
    rc =
        lease_grant(s, made.ttl_ms / MS_PER_S, due_ns, &made.id, &made.sent_ns);
    if (rc == 0)
        *keep_place(s) = made;
    return rc;
}

/* Keeps T1. */
static int keep_turn(struct vow__etcd_service *s, uint64_t ms,
                     enum vow__etcd_keep_kind kind, uint64_t due_ns)
{
    vow_deferred *end;
    vow_future *turn = vow_promise(vow__etcd_loop(s->etcd), &end);
    int rc = vow_error_code(vow_error_of(turn));
    if (vow_state_of(turn) == VOW_PENDING) {
        s->turn = turn;
        rc = keep_request(s, ms, kind, due_ns);
        s->turn = NULL;
        (void)vow_resolve_drop(end, vow_nothing());
    } else {
        vow_deferred_unref(end);
    }
    vow_future_unref(turn);
    return rc;
}

int vow__etcd_keep_use(struct vow__etcd_service *s, uint64_t ms,
                       enum vow__etcd_keep_kind kind, uint64_t due_ns,
                       int64_t *ret_lease)
{
    int rc = 0;
    *ret_lease = 0;
    if (ms == UINT64_MAX)
        return 0;
    ms = ms < KEEP_MS_MAX ? ms : KEEP_MS_MAX;
    while (rc == 0) {
        const struct vow__etcd_keep *k = keep_find(s, ms, kind);
        if (k != NULL && keep_left_ms(s, k) >= ms) {
            *ret_lease = k->id;
            return 0;
        }
        if (s->turn == NULL) {
            rc = keep_turn(s, ms, kind, due_ns);
            continue;
        }
        VOW_AUTO(vow_future) turn = vow_future_ref(s->turn);
        rc = vow_await(turn);
    }
    return rc == VOW_EUNSURE ? VOW_ESTORE : rc;
}

int vow__etcd_keep_gone(struct vow__etcd_service *s, int64_t keep,
                        uint64_t due_ns)
{
    for (size_t i = 0; keep != 0 && i < VOW__ETCD_KEEPS; i++) {
        struct vow__etcd_keep *k = &s->keeps[i];
        uint64_t sent_ns;
        if (k->id != keep)
            continue;
        int rc = k->kind == VOW__ETCD_KEEP_RUNS
                     ? lease_renew(s, keep, due_ns, &sent_ns)
                     : VOW_ENOENT;
        if (rc != VOW_ENOENT)
            return rc == 0 ? VOW_ENOENT : rc;
        if (k->id == keep)
            k->id = 0;
        return 0;
    }
    return VOW_ENOENT;
}

/* Renews the keeps of running records, each once an hour. What fails is tried
 * with the next pulse. */
static void keeps_renew(struct vow__etcd_service *s, uint64_t due_ns)
{
    for (size_t i = 0; i < VOW__ETCD_KEEPS && s->turn == NULL; i++) {
        struct vow__etcd_keep *k = &s->keeps[i];
        uint64_t used_ns = service_now_ns(s) - k->sent_ns;
        if (k->id == 0 || k->kind != VOW__ETCD_KEEP_RUNS ||
            used_ns / 1000000 < HOUR_MS)
            continue;
        int64_t id = k->id;
        uint64_t sent_ns = k->sent_ns;
        int rc = lease_renew(s, id, due_ns, &sent_ns);
        if (k->id == id && rc == VOW_ENOENT)
            k->id = 0;
        else if (k->id == id)
            k->sent_ns = sent_ns;
    }
}

/* ---- leases of owners ---------------------------------------------------- */

static vow_next keep_early(void *arg)
{
    struct vow__etcd_service *s = arg;
    uint64_t due_ns = vow_loop_due_ns(vow__etcd_loop(s->etcd),
                                      vow__etcd_where_of(s->etcd)->timeout_ms);
    int64_t lease;
    (void)vow__etcd_keep_use(s, s->early_ms, VOW__ETCD_KEEP_RUNS, due_ns,
                             &lease);
    return vow_ok(vow_nothing());
}

/* Grants the keep that a claim needs along with this lease. */
static void keep_begin_early(struct vow__etcd_service *s, uint64_t lease_ms)
{
    s->early_ms = lease_ms + DAY_MS;
    if (s->early != NULL || lease_ms >= KEEP_MS_MAX ||
        keep_find(s, s->early_ms, VOW__ETCD_KEEP_RUNS) != NULL)
        return;
    s->early = vow_async(vow__etcd_loop(s->etcd), keep_early, s);
}

int vow__etcd_service_grant(struct cas_service *service, uint64_t ttl_ms,
                            bool marks, uint64_t due_ns,
                            struct cas_lease *ret_lease)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    int64_t id;
    uint64_t sent_ns = 0;
    if (marks)
        keep_begin_early(s, ttl_ms);
    int rc = lease_grant(s, ttl_ms / MS_PER_S, due_ns, &id, &sent_ns);
    if (rc < 0)
        return rc;
    s->owners[s->next_owner++ % VOW__ETCD_OWNERS] = id;
    *ret_lease = (struct cas_lease){
        .id = (uint64_t)id, .ttl_ms = ttl_ms, .sent_ns = sent_ns};
    return 0;
}

int vow__etcd_service_keep(struct cas_service *service, struct cas_lease *lease,
                           const vow_name *names, size_t n, uint64_t due_ns,
                           struct cas_found *ret_found)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    (void)names;
    (void)n;
    (void)ret_found;
    int rc = lease_renew(s, (int64_t)lease->id, due_ns, &lease->sent_ns);
    if (rc == 0)
        keeps_renew(s, due_ns);
    return rc;
}

/* ---- the end ------------------------------------------------------------- */

/* A silent etcd is asked once: the leases end by themselves. */
void vow__etcd_ttl_close(struct vow__etcd_service *s, bool owns)
{
    int rc = 0;
    if (s->early != NULL)
        (void)vow_await_drop(s->early);
    s->early = NULL;
    for (size_t i = 0; rc == 0 && !owns && i < VOW__ETCD_OWNERS; i++)
        if (s->owners[i] != 0)
            rc = lease_revoke(s, s->owners[i]);
    for (size_t i = 0; i < VOW__ETCD_KEEPS; i++) {
        const struct vow__etcd_keep *k = &s->keeps[i];
        if (k->id != 0 && k->kind == VOW__ETCD_KEEP_ENTRIES && rc == 0 &&
            lease_is_bare(s, k->id))
            rc = lease_revoke(s, k->id); /* of entries that were open */
        if (k->id != 0 && k->kind == VOW__ETCD_KEEP_RUNS && rc == 0 && !owns &&
            !s->littered)
            rc = lease_revoke(s, k->id);
    }
}
