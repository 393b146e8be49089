/* SPDX-License-Identifier: MIT */
/* etcd_await.c - requests to etcd that a fiber awaits.
 *
 * HOW   The request owns its answer: a fiber that a closing loop has woken
 *       before the answer leaves the request alone, and the answer is dropped.
 *       A request that etcd refuses because etcd is busy was not executed, and
 *       is sent again after a pause, until the deadline.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_internal.h"
#include "vow/fiber.h"

#include <string.h>

enum { BUSY_PAUSE_MS = 50 };

struct reply {
    struct vow_alloc alloc;
    vow_deferred *end;
    bool done, left;
    int code;
    json_t *root;     /* counted */
    vow_bytes *bytes; /* counted */
};

static int reply_new(struct vow__etcd *e, struct reply **ret_reply,
                     vow_future **ret_future)
{
    const struct vow_alloc *alloc = vow__etcd_alloc(e);
    struct reply *r = vow__mem_zero(alloc, sizeof(*r));
    if (r == NULL)
        return VOW_ENOMEM;
    r->alloc = *alloc;
    *ret_future = vow_promise(vow__etcd_loop(e), &r->end);
    if (vow_state_of(*ret_future) != VOW_PENDING) {
        int rc = vow_error_code(vow_error_of(*ret_future));
        vow_deferred_unref(r->end);
        vow_future_unref(*ret_future);
        vow__mem_free(alloc, r, sizeof(*r));
        return rc < 0 ? rc : VOW_ENOMEM;
    }
    *ret_reply = r;
    return 0;
}

static void reply_free(struct reply *r)
{
    const struct vow_alloc alloc = r->alloc;
    json_decref(r->root);
    vow_bytes_unref(r->bytes);
    vow__mem_free(&alloc, r, sizeof(*r));
}

static void reply_end(struct reply *r)
{
    vow_deferred *end = r->end;
    r->done = true;
    if (r->left)
        reply_free(r);
    (void)vow_resolve_drop(end, vow_nothing());
}

static void on_reply(struct vow__etcd *e, int code, const json_t *root,
                     void *user)
{
    struct reply *r = user;
    (void)e;
    r->code = code;
    r->root = json_incref((json_t *)(uintptr_t)root);
    reply_end(r);
}

static void on_result(struct vow__etcd *e, int code, vow_bytes *bytes,
                      void *user)
{
    struct reply *r = user;
    (void)e;
    r->code = code;
    r->bytes = bytes == NULL ? NULL : vow_bytes_ref(bytes);
    reply_end(r);
}

/* Waits, and moves the answer out. The future is dropped. */
static int reply_await(struct reply *r, vow_future *f, json_t **ret_root,
                       vow_bytes **ret_bytes)
{
    (void)vow_await(f);
    vow_future_unref(f);
    if (!r->done) { /* the loop closes */
        r->left = true;
        return VOW_ECLOSED;
    }
    int rc = r->code;
    if (ret_root != NULL && rc == 0) {
        *ret_root = r->root;
        r->root = NULL;
    }
    if (ret_bytes != NULL && rc == 0) {
        *ret_bytes = r->bytes;
        r->bytes = NULL;
    }
    reply_free(r);
    return rc;
}

/* Returns whether a request that found etcd busy may be sent again. */
static bool busy_pause(struct vow__etcd *e, int rc, uint64_t due_ns)
{
    vow_loop *loop = vow__etcd_loop(e);
    return rc == VOW_EAGAIN && vow_loop_now_ns(loop) < due_ns &&
           vow_sleep(loop, BUSY_PAUSE_MS) == 0;
}

int vow__etcd_await(struct vow__etcd *e, const char *path,
                    struct vow__jot *body, bool safe, uint64_t due_ns,
                    json_t **ret_root)
{
    struct reply *r = NULL;
    vow_future *f = NULL;
    struct vow__jot copy;
    int rc;
    do {
        rc = reply_new(e, &r, &f);
        if (rc < 0)
            break;
        vow__jot_init(&copy, vow__etcd_alloc(e));
        vow__jot_bytes(&copy, body->text, body->n);
        copy.bad |= body->bad;
        vow__etcd_call_with(e,
                            &(const struct vow__etcd_request){
                                .path = path, .safe = safe, .due_ns = due_ns},
                            &copy, on_reply, r);
        rc = reply_await(r, f, ret_root, NULL);
    } while (busy_pause(e, rc, due_ns));
    vow__jot_fini(body);
    if (rc == VOW_ESTORE && due_ns != 0 &&
        vow_loop_now_ns(vow__etcd_loop(e)) >= due_ns)
        vow__etcd_late(e);
    if (rc == VOW_ECLOSED && !safe)
        return VOW_EUNSURE;
    return rc == VOW_EAGAIN ? VOW_ESTORE : rc;
}

int vow__etcd_await_txn(struct vow__etcd *e, struct vow__txn *t,
                        json_t **ret_root)
{
    struct vow__jot body;
    vow__txn_body(t, &body);
    return vow__etcd_await(e, "kv/txn", &body, !t->writes, t->due_ns, ret_root);
}

int vow__etcd_await_result(struct vow__etcd *e, const vow_commit_request *put,
                           vow_bytes **ret_ticket)
{
    struct reply *r = NULL;
    vow_future *f = NULL;
    int rc = reply_new(e, &r, &f);
    if (rc < 0)
        return rc;
    vow__results_put(e, put, on_result, r);
    return reply_await(r, f, NULL, ret_ticket);
}

int vow__etcd_await_value(struct vow__etcd *e, const vow_name *name,
                          uint64_t epoch, vow_bytes *ticket,
                          vow_bytes **ret_value)
{
    struct reply *r = NULL;
    vow_future *f = NULL;
    int rc = reply_new(e, &r, &f);
    if (rc < 0)
        return rc;
    vow__results_get(e, name, epoch, ticket, on_result, r);
    return reply_await(r, f, NULL, ret_value);
}
