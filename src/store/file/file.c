/* SPDX-License-Identifier: MIT */
/* file.c - the store in a folder: its door, and its end.
 *
 * WHY   Processes of one machine share work without a server, and without
 *       waiting for a lease when one of them dies.
 * HOW   See file_internal.h for the map. A step is done, and answered, before
 *       its call returns; a wake-up comes through the loop.
 *       A child by fork() has a store that answers VOW_ESTORE to all, and
 *       touches nothing that is its parent's.
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int store_new(vow_loop *loop, const vow_sqlite_opts *opts,
                     struct vow__file **ret_store);
static int options(struct vow__file *s, const vow_sqlite_opts *opts);
static void store_free(struct vow__file *s);
static void set_listener(vow_store *store, const vow_store_events *events);
static const char *explain(vow_store *store);
static vow_future *close_store(vow_store *store);
static int part_step(struct vow__file *s, void *arg);
static void on_closed(uv_handle_t *handle);

static const vow_store_ops operations = {
    .version = VOW_STORE_VERSION,
    .modes = 1u << VOW_SHARED | 1u << VOW_FENCED | 1u << VOW_ONCE,
    .flags = VOW_STORE_STARTS | VOW_STORE_REFRESHES,
    .recheck_ms = FILE_RECHECK_MS,
    .kind = "sqlite",
    .listen = set_listener,
    .claim = vow__file_cache_claim,
    .peek = vow__file_peek,
    .pulse = vow__file_pulse,
    .commit = vow__file_commit,
    .forget = vow__file_forget,
    .cancel = vow__file_cancel,
    .list = vow__file_list,
    .write = vow__file_chunk_write,
    .read = vow__file_chunk_read,
    .acquire = vow__file_acquire,
    .release = vow__file_release,
    .renew = vow__file_renew,
    .limit = vow__file_limit,
    .pools = vow__file_pools,
    .close = close_store,
    .explain = explain,
    .examine = vow__file_examine,
};

/* ---- opening ------------------------------------------------------------ */

vow_future *vow_store_sqlite_open_at(const char *site, vow_loop *loop,
                                     const char *folder,
                                     const vow_sqlite_opts *opts)
{
    VOW__ASSERT_THREAD(loop);
    struct vow__file *s;
    vow_deferred *d;
    int rc = store_new(loop, opts, &s);
    if (rc < 0)
        return vow_refused_at(site, loop, rc, NULL);
    vow__file_patience(s);
    rc = vow__file_folder_open(s, folder);
    if (rc == 0 && !vow__file_cache_usable(s))
        rc = vow__file_open(s);
    vow_future *f = vow_promise_at(site, loop, &d);
    if (rc == 0 && vow_deferred_pending(d)) {
        (void)uv_timer_init(vow_loop_uv(loop), &s->later);
        s->later.data = s;
        s->handles = 1;
        (void)vow_resolve_drop(d, vow_ptr(&s->store));
        return f;
    }
    if (rc == VOW_EAGAIN)
        rc = VOW_ESTORE;
    (void)vow_reject_code(d, rc, s->why);
    vow_deferred_unref(d);
    store_free(s);
    return f;
}

static int store_new(vow_loop *loop, const vow_sqlite_opts *opts,
                     struct vow__file **ret_store)
{
    struct vow_alloc alloc = *vow_loop_alloc(loop);
    struct vow__file *s = vow__mem_zero(&alloc, sizeof(*s));
    if (s == NULL)
        return VOW_ENOMEM;
    s->loop = loop;
    s->alloc = alloc;
    struct vow__buf *const bufs[] = {&s->messages, &s->result, &s->litter,
                                     &s->unsent,   &s->dead,   &s->waiting};
    for (size_t i = 0; i < sizeof(bufs) / sizeof(bufs[0]); i++)
        vow__buf_init(bufs[i], &alloc, FILE_BUF_MAX);
    s->pid = getpid();
    s->clock_us = vow__file_clock_us;
    s->dir = -1;
    s->mark = -1;
    s->live = -1;
    s->sock = -1;
    int rc = options(s, opts);
    if (rc < 0) {
        store_free(s);
        return rc;
    }
    s->ops = operations;
    s->ops.value_max = s->opts.value_max;
    s->store.ops = &s->ops;
    *ret_store = s;
    return 0;
}

static int options(struct vow__file *s, const vow_sqlite_opts *opts)
{
    if (opts != NULL && opts->size != sizeof(*opts))
        return VOW_EINVAL;
    if (opts != NULL)
        s->opts = *opts;
    if (s->opts.request_ms == 0)
        s->opts.request_ms = FILE_REQUEST_MS;
    if (s->opts.value_max == 0)
        s->opts.value_max = FILE_VALUE_MAX;
    return 0;
}

static void set_listener(vow_store *store, const vow_store_events *events)
{
    vow__file_of(store)->events = *events;
}

static const char *explain(vow_store *store)
{
    return vow__file_of(store)->why;
}

/* ---- closing ------------------------------------------------------------ */

static vow_future *close_store(vow_store *store)
{
    struct vow__file *s = vow__file_of(store);
    if (getpid() != s->pid) /* files, locks, handles: all is the parent's */
        return vow_resolved(s->loop, vow_nothing());
    vow_future *f = vow_promise(s->loop, &s->closing);
    if (s->joined && (s->waited || s->owns > 0) && s->db != NULL)
        (void)vow__file_step(s, VOW__FILE_WRITE, part_step, s);
    vow__file_unwatch_all(s);
    bool took_part = s->joined;
    vow__file_leave(s);
    if (took_part)
        vow__file_sweep_all(s);
    vow__file_tidy(s);
    uv_close((uv_handle_t *)&s->later, on_closed);
    return f;
}

/* What the instance owns is kept by the leases alone from now on. */
static int part_step(struct vow__file *s, void *arg)
{
    int rc = 0;
    (void)arg;
    if (s->owns > 0) {
        sqlite3_stmt *q =
            vow__file_sql(s, "INSERT OR REPLACE INTO parted VALUES(?1,?2)");
        vow__file_bind(q, 1, s->id, FILE_ID);
        vow__file_bind_int(q, 2,
                           s->owns_until_us > INT64_MAX
                               ? FILE_FOREVER
                               : (int64_t)s->owns_until_us);
        rc = vow__file_do(s, q);
    }
    if (rc == 0 && s->waited) {
        sqlite3_stmt *q = vow__file_sql(s, "DELETE FROM wait WHERE inst=?1");
        vow__file_bind(q, 1, s->id, FILE_ID);
        rc = vow__file_do(s, q);
    }
    return rc == 0 && s->waited ? vow__file_permits_drop(s, s->id) : rc;
}

static void on_closed(uv_handle_t *handle)
{
    vow__file_handle_closed(handle->data);
}

void vow__file_handle_closed(struct vow__file *s)
{
    VOW__ASSERT(s->handles > 0);
    s->handles--;
    if (s->closing == NULL || s->handles > 0)
        return;
    vow_deferred *d = s->closing;
    store_free(s);
    (void)vow_resolve_drop(d, vow_nothing());
}

static void store_free(struct vow__file *s)
{
    struct vow_alloc alloc = s->alloc;
    vow__file_close(s);
    if (s->dir >= 0)
        (void)close(s->dir);
    vow__buf_fini(&s->messages);
    vow__buf_fini(&s->result);
    vow__buf_fini(&s->litter);
    vow__buf_fini(&s->unsent);
    vow__buf_fini(&s->dead);
    vow__buf_fini(&s->waiting);
    vow__mem_free(&alloc, s, sizeof(*s));
}
