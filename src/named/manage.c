/* SPDX-License-Identifier: MIT */
/* manage.c - listing names and pools; forgetting, canceling, resolving names.
 *
 * HOW   Each operation is a step of the store, or two. A request carries the
 *       operation to the hub's loop and the answer back. Data that the store
 *       lends for the time of a callback is copied into one block, which the
 *       value owns.
 * THREADS  the caller's loop; request_arrive(), begin_...() and on_...(): the
 *          hub's loop.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "named/named_internal.h"

#include <string.h>

struct request {
    vow_authority *handle; /* counted */
    struct vow__named_settler settler;
    void (*begin)(struct request *r);
    vow_name name;
    uint64_t fence;
    vow_commit_request commit; /* with a counted value */
    size_t n;
    vow_name names[];
};

static vow_future *request_send(const char *site, vow_authority *a,
                                const struct request *what,
                                const vow_name *names);
static void request_arrive(void *request);
static void request_done(struct request *r, int code);
static void request_free(struct request *r);
static void begin_list(struct request *r);
static void begin_pools(struct request *r);
static void begin_peek(struct request *r);
static void begin_forget(struct request *r);
static void begin_cancel(struct request *r);
static void begin_resolve(struct request *r);
static void on_records_listed(int code, const vow_record *r, size_t n,
                              void *request);
static void on_pools_listed(int code, const vow_pool_info *p, size_t n,
                            void *request);
static void on_forget_answer(int code, const vow_record *r, size_t n,
                             void *request);
static void on_cancel_answer(int code, const vow_record *r, size_t n,
                             void *request);
static void on_resolve_answer(int code, const vow_record *r, size_t n,
                              void *request);

/* ---- requesting --------------------------------------------------------- */

vow_future *vow_authority_list_at(const char *site, vow_authority *a)
{
    VOW__ASSERT_THREAD(a->loop);
    return request_send(site, a, &(struct request){.begin = begin_list}, NULL);
}

vow_future *vow_authority_pools_at(const char *site, vow_authority *a)
{
    VOW__ASSERT_THREAD(a->loop);
    return request_send(site, a, &(struct request){.begin = begin_pools}, NULL);
}

vow_future *vow_authority_peek_at(const char *site, vow_authority *a,
                                  const vow_name *names, size_t n)
{
    VOW__ASSERT_THREAD(a->loop);
    return request_send(site, a, &(struct request){.begin = begin_peek, .n = n},
                        names);
}

vow_future *vow_authority_forget_at(const char *site, vow_authority *a,
                                    const vow_name *name, uint64_t fence)
{
    VOW__ASSERT_THREAD(a->loop);
    struct request what = {
        .begin = begin_forget, .name = *name, .fence = fence};
    return request_send(site, a, &what, NULL);
}

vow_future *vow_authority_cancel_at(const char *site, vow_authority *a,
                                    const vow_name *name)
{
    VOW__ASSERT_THREAD(a->loop);
    struct request what = {.begin = begin_cancel, .name = *name};
    return request_send(site, a, &what, NULL);
}

vow_future *vow_authority_resolve_at(const char *site, vow_authority *a,
                                     const vow_name *name, uint64_t fence,
                                     vow_resolution what)
{
    VOW__ASSERT_THREAD(a->loop);
    if (what.how < VOW_IT_HAPPENED || what.how > VOW_DO_IT_AGAIN)
        return vow_refused_at(site, a->loop, VOW_EINVAL,
                              "an unknown resolution");
    struct request r = {
        .begin = begin_resolve,
        .name = *name,
        .commit = {.hold = {.name = *name, .epoch = fence, .mode = VOW_ONCE},
                   .flags = VOW_COMMIT_RESOLVE,
                   .outcome = (uint32_t)what.how,
                   .value = what.value,
                   .ttl_ms = what.ttl_ms}};
    return request_send(site, a, &r, NULL);
}

_Static_assert((int)VOW_IT_HAPPENED == (int)VOW_OUTCOME_DONE &&
                   (int)VOW_IT_FAILED == (int)VOW_OUTCOME_FAILED &&
                   (int)VOW_DO_IT_AGAIN == (int)VOW_OUTCOME_ABANDONED,
               "a resolution is an outcome");

static vow_future *request_send(const char *site, vow_authority *a,
                                const struct request *what,
                                const vow_name *names)
{
    size_t extra = what->n * sizeof(vow_name);
    struct request *r = vow__mem_zero(&a->alloc, sizeof(*r) + extra);
    if (r == NULL)
        return vow_refused_at(site, a->loop, VOW_ENOMEM, NULL);
    memcpy(r, what, sizeof(*r));
    if (extra > 0)
        memcpy(r->names, names, extra);
    r->handle = vow__named_handle_ref(a);
    (void)vow_bytes_ref(r->commit.value);
    vow_future *f =
        vow__named_settler_open(site, a->loop, a->hub->loop, &r->settler);
    int rc = vow_error_code(vow_error_of(f));
    if (rc == 0 && !a->closing)
        rc = vow__named_hub_run(a, request_arrive, r);
    else if (rc == 0)
        rc = VOW_ECLOSED;
    if (rc == 0)
        return f;
    vow_future_unref(f);
    request_free(r);
    return vow_refused_at(site, a->loop, rc, NULL);
}

static void request_arrive(void *request)
{
    struct request *r = request;
    struct vow__named_hub *h = r->handle->hub;
    if (h->closing || h->store == NULL) {
        vow__named_settler_refuse(&r->settler, VOW_ECLOSED,
                                  "the authority was closed");
        request_free(r);
        return;
    }
    vow__named_step_begins(h);
    r->begin(r);
}

/* Ends the request, after an answer or with an error code. */
static void request_done(struct request *r, int code)
{
    struct vow__named_hub *h = r->handle->hub;
    bool trouble = code == VOW_ESTORE || code == VOW_EAGAIN ||
                   code == VOW_EUNSURE || code == VOW_E2BIG || code == VOW_EIO;
    if (code < 0)
        vow__named_settler_refuse(&r->settler, code,
                                  trouble ? vow__named_store_trouble(h) : NULL);
    vow__named_step_ended(h, code);
    request_free(r);
}

static void request_free(struct request *r)
{
    vow_authority *a = r->handle;
    struct vow_alloc alloc = a->alloc;
    vow__named_settler_drop(&r->settler);
    vow_bytes_unref(r->commit.value);
    vow__mem_free(&alloc, r, sizeof(*r) + r->n * sizeof(vow_name));
    vow__named_handle_unref(a);
}

/* ---- looking ------------------------------------------------------------ */

static void begin_list(struct request *r)
{
    vow_store *s = r->handle->hub->store;
    s->ops->list(s, on_records_listed, r);
}

static void begin_peek(struct request *r)
{
    vow_store *s = r->handle->hub->store;
    s->ops->peek(s, r->names, r->n, on_records_listed, r);
}

static void begin_pools(struct request *r)
{
    vow_store *s = r->handle->hub->store;
    s->ops->pools(s, on_pools_listed, r);
}

/* One block: the struct for the caller, the array, the texts. */
struct list_block {
    union {
        vow_records records;
        vow_pools pools;
    } seen;
    struct vow_alloc alloc;
    size_t size;
    char *free; /* place of the next text */
};

static void list_block_drop(void *ptr)
{
    struct list_block *b = ptr;
    struct vow_alloc alloc = b->alloc;
    vow__mem_free(&alloc, b, b->size);
}

static struct list_block *list_block_new(const struct vow_alloc *alloc,
                                         size_t array, size_t texts)
{
    size_t size = sizeof(struct list_block) + array + texts;
    struct list_block *b = vow__mem_zero(alloc, size);
    if (b == NULL)
        return NULL;
    b->alloc = *alloc;
    b->size = size;
    b->free = (char *)(b + 1) + array;
    return b;
}

static size_t list_text_size(const char *text)
{
    return text == NULL ? 1 : strlen(text) + 1;
}

static const char *list_block_add_text(struct list_block *b, const char *text)
{
    size_t size = list_text_size(text);
    char *at = b->free;
    memcpy(at, text == NULL ? "" : text, size);
    b->free += size;
    return at;
}

/* Makes the record of a run that a private store does not know
 * (vow__named_hub_is_unstored()). Returns whether the entry has such a run. */
static bool unstored_record(const struct vow__named_entry *e, vow_record *ret)
{
    if (e == NULL || !e->unstored || e->lease == NULL)
        return false;
    const vow_lease *l = e->lease;
    uint64_t ran_ns = vow__named_lease_age_ns(l, vow__named_hub_now_ns(l->hub));
    *ret = (vow_record){.name = e->name,
                        .status = VOW_STATUS_WAITING,
                        .epoch = atomic_load(&l->epoch),
                        .waiters = e->n_waiters > 1,
                        .age_ms = ran_ns / VOW__NS_PER_MS,
                        .left_ms = UINT64_MAX,
                        .label = "",
                        .runner = l->hub->runner};
    return true;
}

static size_t list_unstored(const struct vow__named_hub *h, vow_record *ret)
{
    size_t n = 0;
    vow_record none;
    const struct vow__table_node *at = vow__table_next(&h->names, NULL);
    for (; at != NULL; at = vow__table_next(&h->names, at))
        n +=
            unstored_record(VOW__OUTER(at, const struct vow__named_entry, node),
                            ret == NULL ? &none : ret + n);
    return n;
}

static size_t count_unstored(const struct vow__named_hub *h)
{
    return list_unstored(h, NULL);
}

static void on_records_listed(int code, const vow_record *records, size_t n,
                              void *request)
{
    struct request *r = request;
    size_t texts = 0;
    for (size_t i = 0; i < n; i++)
        texts += list_text_size(records[i].label) +
                 list_text_size(records[i].runner);
    bool list = r->begin == begin_list;
    size_t unstored = list ? count_unstored(r->handle->hub) : 0;
    size_t room = (n + unstored) * sizeof(*records);
    struct list_block *b =
        code < 0 ? NULL : list_block_new(&r->handle->alloc, room, texts);
    if (b == NULL) {
        request_done(r, code < 0 ? code : VOW_ENOMEM);
        return;
    }
    vow_record *copy = (vow_record *)(void *)(b + 1);
    for (size_t i = 0; i < n; i++) {
        copy[i] = records[i];
        copy[i].value = NULL;
        copy[i].label = list_block_add_text(b, records[i].label);
        copy[i].runner = list_block_add_text(b, records[i].runner);
        if (!list && records[i].status == VOW_STATUS_NONE)
            (void)unstored_record(
                vow__named_entry_find(r->handle->hub, &r->names[i], false),
                &copy[i]);
    }
    if (unstored > 0)
        n += list_unstored(r->handle->hub, copy + n);
    b->seen.records = (vow_records){.n = n, .at = copy};
    vow__named_settler_resolve(&r->settler, vow_own(b, list_block_drop));
    request_done(r, 0);
}

static void on_pools_listed(int code, const vow_pool_info *pools, size_t n,
                            void *request)
{
    struct request *r = request;
    size_t texts = 0;
    for (size_t i = 0; i < n; i++)
        texts += list_text_size(pools[i].label);
    struct list_block *b =
        code < 0 ? NULL
                 : list_block_new(&r->handle->alloc, n * sizeof(*pools), texts);
    if (b == NULL) {
        request_done(r, code < 0 ? code : VOW_ENOMEM);
        return;
    }
    vow_pool_info *copy = (vow_pool_info *)(void *)(b + 1);
    for (size_t i = 0; i < n; i++) {
        copy[i] = pools[i];
        copy[i].label = list_block_add_text(b, pools[i].label);
    }
    b->seen.pools = (vow_pools){.n = n, .at = copy};
    vow__named_settler_resolve(&r->settler, vow_own(b, list_block_drop));
    request_done(r, 0);
}

/* ---- changing ----------------------------------------------------------- */

static void begin_forget(struct request *r)
{
    vow_store *s = r->handle->hub->store;
    vow_record runs;
    if (unstored_record(vow__named_entry_find(r->handle->hub, &r->name, false),
                        &runs)) {
        on_forget_answer(0, &runs, 1, r);
        return;
    }
    s->ops->forget(s, &r->name, r->fence, on_forget_answer, r);
}

static void on_forget_answer(int code, const vow_record *rec, size_t n,
                             void *request)
{
    struct request *r = request;
    if (code == 0 && n == 1 && rec->status == VOW_STATUS_WAITING)
        vow__named_settler_refuse(&r->settler, VOW_EBUSY,
                                  "the work is being done");
    else if (code == 0)
        vow__named_settler_resolve(
            &r->settler, vow_int(n == 1 && rec->status == VOW_STATUS_NONE));
    request_done(r, code);
}

static void begin_cancel(struct request *r)
{
    vow_store *s = r->handle->hub->store;
    vow_record runs;
    if (unstored_record(vow__named_entry_find(r->handle->hub, &r->name, false),
                        &runs)) {
        vow__named_lease_stop(&r->name, r->handle->hub);
        on_cancel_answer(0, &runs, 1, r);
        return;
    }
    s->ops->cancel(s, &r->name, on_cancel_answer, r);
}

static void on_cancel_answer(int code, const vow_record *rec, size_t n,
                             void *request)
{
    struct request *r = request;
    if (code == 0 && n == 1 && rec->status == VOW_STATUS_WAITING)
        vow__named_settler_resolve(&r->settler, vow_nothing());
    else if (code == 0)
        vow__named_settler_refuse(&r->settler, VOW_ENOENT,
                                  "no runner does this work");
    request_done(r, code);
}

/* Uses a new token: of two callers that resolve, the later gets an error. */
static void begin_resolve(struct request *r)
{
    vow_store *s = r->handle->hub->store;
    vow__named_token_make(r->handle->hub, &r->commit.hold.token);
    s->ops->commit(s, &r->commit, on_resolve_answer, r);
}

static void on_resolve_answer(int code, const vow_record *rec, size_t n,
                              void *request)
{
    struct request *r = request;
    if (code == 0 && n == 1 && rec->status == VOW_STATUS_OWNED)
        vow__named_settler_resolve(&r->settler, vow_nothing());
    else if (code == 0)
        vow__named_settler_refuse(&r->settler, VOW_ENOENT,
                                  "the name is not in doubt with this fence");
    request_done(r, code);
}
