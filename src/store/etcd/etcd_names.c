/* SPDX-License-Identifier: MIT */
/* etcd_names.c - the service for named work, and the store over the service.
 *
 * HOW   The engine in store/cas makes a store of the service; the store on etcd
 *       hands its steps on names to that store, and has pools of its own.
 *       Every answer has a revision. An answer with a revision below those that
 *       were seen when the request was sent is from a cluster restored from a
 *       backup: versions go on above the former ones, and everybody asks again.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"
#include "store/etcd/etcd_service.h"

/* ---- transactions -------------------------------------------------------- */

void vow__etcd_service_txn_init(const struct vow__etcd_service *s,
                                struct vow__txn *ret_txn)
{
    vow__txn_init(ret_txn, vow__etcd_alloc(s->etcd),
                  vow__etcd_where_of(s->etcd)->prefix);
}

/* Notes the revision of an answer. `seen` and `restores` are those of the time
 * when the request was sent. Returns whether the answer can be used. */
static bool revision_take(struct vow__etcd_service *s, uint64_t revision,
                          uint64_t seen, unsigned restores)
{
    if (revision == 0 || restores != s->restores)
        return false;
    if (revision < seen) {
        s->shift += s->revision;
        s->revision = revision;
        s->restores++;
        vow__etcd_events_doubt(s);
    } else if (revision > s->revision) {
        s->revision = revision;
    }
    s->answered = revision + s->shift;
    return true;
}

int vow__etcd_service_txn(struct vow__etcd_service *s, struct vow__txn *t,
                          uint64_t due_ns, json_t **ret_root)
{
    uint64_t seen = s->revision;
    unsigned restores = s->restores;
    bool writes = t->writes;
    t->due_ns = due_ns;
    int rc = vow__etcd_await_txn(s->etcd, t, ret_root);
    if (rc < 0)
        return rc;
    if (revision_take(s, vow__json_revision(*ret_root), seen, restores))
        return 0;
    json_decref(*ret_root);
    *ret_root = NULL;
    vow__etcd_trouble(s->etcd, "etcd gave an unknown answer");
    return writes ? VOW_EUNSURE : VOW_ESTORE;
}

int vow__etcd_names_txn(struct vow__etcd_service *s, struct vow__txn *t,
                        uint64_t due_ns, json_t **ret_root)
{
    int rc = vow__etcd_service_txn(s, t, due_ns, ret_root);
    if (rc == 0)
        vow__etcd_events_begin(s, vow__json_revision(*ret_root));
    return rc;
}

/* ---- the service --------------------------------------------------------- */

static const char *service_explain(struct cas_service *service)
{
    const struct vow__etcd_service *s = vow__etcd_service_of(service);
    return vow__etcd_explain(vow__etcd_store(s->etcd));
}

static void service_free(struct vow__etcd_service *s)
{
    vow_future_unref(s->early);
    const struct vow_alloc alloc = *vow__etcd_alloc(s->etcd);
    vow__mem_free(&alloc, s, sizeof(*s));
}

static void on_service_end(void *user)
{
    struct vow__etcd_service *s = user;
    void (*closed)(void *user) = s->closed;
    void *closed_user = s->user;
    service_free(s);
    closed(closed_user);
}

static vow_next service_leave(void *arg)
{
    struct vow__etcd_service *s = arg;
    vow__etcd_ttl_close(s, s->owns);
    vow_call_soon(&s->end, vow__etcd_loop(s->etcd), on_service_end, s);
    return vow_ok(vow_nothing());
}

static void on_early_end(vow_future *settled, void *user)
{
    (void)vow_error_of(settled);
    on_service_end(user);
}

/* Without memory for a fiber the leases end by themselves. A lease granted
 * beforehand may be under way, on another fiber. */
static void service_close(struct cas_service *service, bool owns,
                          void (*closed)(void *user), void *user)
{
    struct vow__etcd_service *s = vow__etcd_service_of(service);
    vow_loop *loop = vow__etcd_loop(s->etcd);
    vow__etcd_events_end(s);
    s->owns = owns;
    s->closed = closed;
    s->user = user;
    VOW_AUTO(vow_future) fiber = vow_async(loop, service_leave, s);
    if (vow_state_of(fiber) != VOW_REJECTED)
        return;
    (void)vow_error_of(fiber);
    if (s->early != NULL)
        vow_watch_start(&s->early_end, s->early, on_early_end, s);
    else
        vow_call_soon(&s->end, loop, on_service_end, s);
}

static const struct cas_service_ops SERVICE_OPS = {
    .kind = "etcd",
    .modes = 1u << VOW_SHARED | 1u << VOW_FENCED | 1u << VOW_ONCE,
    .flags = CAS_WATCHES,
    .listen = vow__etcd_service_listen,
    .lease_grant = vow__etcd_service_grant,
    .lease_keep = vow__etcd_service_keep,
    .mark_drop = vow__etcd_service_drop,
    .read = vow__etcd_service_read,
    .write = vow__etcd_service_write,
    .value = vow__etcd_service_value,
    .chunks = vow__etcd_service_chunks,
    .list = vow__etcd_service_list,
    .permit_join = vow__etcd_permit_join,
    .permit_look = vow__etcd_permit_look,
    .permit_write = vow__etcd_permit_write,
    .permit_leave = vow__etcd_permit_leave,
    .pool_limit = vow__etcd_pool_limit,
    .pool_list = vow__etcd_pool_list,
    .explain = service_explain,
    .close = service_close,
};

int vow__etcd_names_open(struct vow__etcd *e, vow_store **ret_names)
{
    const struct vow__etcd_where *where = vow__etcd_where_of(e);
    struct vow__etcd_service *s = vow__mem_zero(vow__etcd_alloc(e), sizeof(*s));
    if (s == NULL)
        return VOW_ENOMEM;
    s->etcd = e;
    vow__etcd_boot_read(s->boot, sizeof(s->boot));
    s->ops = SERVICE_OPS;
    s->ops.recheck_ms = where->recheck_ms;
    s->ops.value_max =
        where->results == NULL ? where->value_max : VOW__ETCD_RESULTS_MAX;
    s->service.ops = &s->ops;
    int rc = vow__cas_open(
        vow__etcd_loop(e), &s->service,
        &(const struct cas_opts){.timeout_ms = where->timeout_ms}, ret_names);
    if (rc < 0)
        service_free(s);
    return rc;
}

/* ---- the steps ----------------------------------------------------------- */

/* Returns the store for names, or NULL: the step was refused. */
static vow_store *names_of(vow_store *store, vow_records_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(store);
    int rc = vow__etcd_usable(e);
    if (rc < 0)
        done(rc, NULL, 0, user);
    return rc < 0 ? NULL : vow__etcd_names(e);
}

void vow__etcd_claim(vow_store *store, const vow_claim_request *request,
                     vow_records_fn done, void *user)
{
    vow_store *names = names_of(store, done, user);
    if (names != NULL)
        names->ops->claim(names, request, done, user);
}

void vow__etcd_peek(vow_store *store, const vow_name *name, size_t n,
                    vow_records_fn done, void *user)
{
    vow_store *names = names_of(store, done, user);
    if (names != NULL)
        names->ops->peek(names, name, n, done, user);
}

void vow__etcd_pulse(vow_store *store, const vow_hold *holds, size_t n,
                     uint64_t lease_ms, vow_records_fn done, void *user)
{
    vow_store *names = names_of(store, done, user);
    if (names != NULL)
        names->ops->pulse(names, holds, n, lease_ms, done, user);
}

void vow__etcd_commit(vow_store *store, const vow_commit_request *request,
                      vow_records_fn done, void *user)
{
    vow_store *names = names_of(store, done, user);
    if (names == NULL)
        return;
    if (vow_bytes_size(request->value) > names->ops->value_max)
        vow__etcd_trouble(vow__etcd_of(store),
                          "a result of more than %zu bytes is not in etcd: %s",
                          names->ops->value_max, store->ops->value_advice);
    names->ops->commit(names, request, done, user);
}

void vow__etcd_forget(vow_store *store, const vow_name *name, uint64_t epoch,
                      vow_records_fn done, void *user)
{
    vow_store *names = names_of(store, done, user);
    if (names != NULL)
        names->ops->forget(names, name, epoch, done, user);
}

void vow__etcd_cancel(vow_store *store, const vow_name *name,
                      vow_records_fn done, void *user)
{
    vow_store *names = names_of(store, done, user);
    if (names != NULL)
        names->ops->cancel(names, name, done, user);
}

void vow__etcd_list(vow_store *store, vow_records_fn done, void *user)
{
    vow_store *names = names_of(store, done, user);
    if (names != NULL)
        names->ops->list(names, done, user);
}

void vow__etcd_write(vow_store *store, const vow_hold *hold, uint64_t number,
                     vow_bytes *chunk, vow_records_fn done, void *user)
{
    vow_store *names = names_of(store, done, user);
    if (names != NULL)
        names->ops->write(names, hold, number, chunk, done, user);
}

void vow__etcd_read(vow_store *store, const vow_name *name, uint64_t epoch,
                    uint64_t from, vow_chunks_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(store);
    vow_store *names = vow__etcd_names(e);
    int rc = vow__etcd_usable(e);
    if (rc < 0)
        done(rc, NULL, 0, 0, user);
    else
        names->ops->read(names, name, epoch, from, done, user);
}

/* ---- steps on pools ------------------------------------------------------ */

void vow__etcd_acquire(vow_store *store, const vow_permit_request *request,
                       vow_permits_fn done, void *user)
{
    vow_store *names = vow__etcd_names(vow__etcd_of(store));
    int rc = vow__etcd_usable(vow__etcd_of(store));
    if (rc < 0)
        done(rc, NULL, 0, user);
    else
        names->ops->acquire(names, request, done, user);
}

void vow__etcd_release(vow_store *store, const vow_permit_hold *hold,
                       vow_permits_fn done, void *user)
{
    vow_store *names = vow__etcd_names(vow__etcd_of(store));
    int rc = vow__etcd_usable(vow__etcd_of(store));
    if (rc < 0)
        done(rc, NULL, 0, user);
    else
        names->ops->release(names, hold, done, user);
}

void vow__etcd_renew(vow_store *store, const vow_permit_hold *holds, size_t n,
                     uint64_t lease_ms, vow_permits_fn done, void *user)
{
    vow_store *names = vow__etcd_names(vow__etcd_of(store));
    int rc = vow__etcd_usable(vow__etcd_of(store));
    if (rc < 0)
        done(rc, NULL, 0, user);
    else
        names->ops->renew(names, holds, n, lease_ms, done, user);
}

void vow__etcd_limit(vow_store *store, const vow_name *pool,
                     const vow_pool_limits *limits, const char *label,
                     vow_pools_fn done, void *user)
{
    vow_store *names = vow__etcd_names(vow__etcd_of(store));
    int rc = vow__etcd_usable(vow__etcd_of(store));
    if (rc < 0)
        done(rc, NULL, 0, user);
    else
        names->ops->limit(names, pool, limits, label, done, user);
}

void vow__etcd_pools(vow_store *store, vow_pools_fn done, void *user)
{
    vow_store *names = vow__etcd_names(vow__etcd_of(store));
    int rc = vow__etcd_usable(vow__etcd_of(store));
    if (rc < 0)
        done(rc, NULL, 0, user);
    else
        names->ops->pools(names, done, user);
}
