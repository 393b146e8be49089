/* SPDX-License-Identifier: MIT */
/* inbox.c - messages from other threads.
 *
 * WHY   A loop belongs to a thread; other threads reach the loop only here.
 * HOW   A list under a mutex. A sender that finds the list empty wakes the
 *       loop, so a thousand messages cost one wake-up. The loop takes the whole
 *       list and runs the messages outside the lock. Closing is a flag under
 *       the same mutex: a message is either accepted, and runs, or refused. A
 *       vow_remote may outlive the loop: the remote counts a reference to the
 *       inbox, and the inbox keeps the loop's memory.
 *       libuv drops a wake-up while one is pending, and ends the pending one
 *       just before on_loop_wake(), which takes the lock therefore: a sender
 *       whose wake-up was dropped has pushed before. A look at `waiting` alone
 *       could pass the sender's write, and the message would stay.
 * INVARIANTS
 *   I1  messages run in the order of acceptance
 *   I2  if the list is not empty, a wake-up is under way or the loop is running
 *   I3  no message is accepted after `closed` is set
 * THREADS  any for pushing; the loop's for running.
 */
#include "core/loop_internal.h"

struct post {
    struct vow__core_message message;
    vow_post_fn fn;
    void *arg;
};

static void post_run(vow_loop *loop, struct vow__core_message *m);
static struct vow__core_message *inbox_take_all(struct vow__core_inbox *in);
static void messages_run(vow_loop *loop, struct vow__core_message *m);

int vow__core_inbox_new(vow_loop *loop, uint32_t max)
{
    struct vow__core_inbox *in = vow__mem_zero(&loop->alloc, sizeof(*in));
    if (in == NULL)
        return VOW_ENOMEM;
    int rc = uv_mutex_init(&in->mutex);
    if (rc < 0) {
        vow__mem_free(&loop->alloc, in, sizeof(*in));
        return rc;
    }
    atomic_init(&in->refs, 1);
    atomic_init(&in->waiting, false);
    in->max = max;
    in->last = &in->first;
    in->loop = loop;
    loop->inbox = in;
    return 0;
}

struct vow__core_inbox *vow__core_inbox_ref(struct vow__core_inbox *in)
{
    atomic_fetch_add_explicit(&in->refs, 1, memory_order_relaxed);
    return in;
}

void vow__core_inbox_unref(struct vow__core_inbox *in)
{
    if (atomic_fetch_sub_explicit(&in->refs, 1, memory_order_acq_rel) > 1)
        return;
    vow_loop *loop = in->loop;
    struct vow_alloc alloc = loop->alloc;
    uv_mutex_destroy(&in->mutex);
    vow__mem_free(&alloc, in, sizeof(*in));
    vow__mem_free(&alloc, loop, sizeof(*loop));
}

void vow__core_inbox_lock(struct vow__core_inbox *in)
{
    uv_mutex_lock(&in->mutex);
}

void vow__core_inbox_unlock(struct vow__core_inbox *in)
{
    uv_mutex_unlock(&in->mutex);
}

bool vow__core_inbox_closed(const struct vow__core_inbox *in)
{
    return in->closed;
}

bool vow__core_inbox_push(struct vow__core_inbox *in,
                          struct vow__core_message *m)
{
    if (in->closed) /* keeps I3 */
        return false;
    m->next = NULL;
    *in->last = m;
    in->last = &m->next;
    if (in->count++ == 0) { /* keeps I2 */
        atomic_store_explicit(&in->waiting, true, memory_order_release);
        (void)uv_async_send(&in->loop->wake);
    }
    return true;
}

int vow_loop_post(vow_loop *loop, vow_post_fn fn, void *arg)
{
    struct vow__core_inbox *in = loop->inbox;
    if (fn == NULL)
        return VOW_EINVAL;
    struct post *p = vow__mem_new(&loop->alloc, sizeof(*p));
    if (p == NULL)
        return VOW_ENOMEM;
    p->message.run = post_run;
    p->fn = fn;
    p->arg = arg;
    int rc = 0;
    vow__core_inbox_lock(in);
    if (in->count >= in->max)
        rc = VOW_EQUEUEFULL;
    else if (!vow__core_inbox_push(in, &p->message))
        rc = VOW_ECLOSED;
    vow__core_inbox_unlock(in);
    if (rc < 0)
        vow__mem_free(&loop->alloc, p, sizeof(*p));
    return rc;
}

void vow__core_inbox_take(vow_loop *loop)
{
    messages_run(loop, inbox_take_all(loop->inbox));
}

void vow__core_inbox_close(vow_loop *loop)
{
    struct vow__core_inbox *in = loop->inbox;
    vow__core_inbox_lock(in);
    in->closed = true;
    vow__core_inbox_unlock(in);
    messages_run(loop, inbox_take_all(in));
}

static struct vow__core_message *inbox_take_all(struct vow__core_inbox *in)
{
    vow__core_inbox_lock(in);
    struct vow__core_message *m = in->first;
    in->first = NULL;
    in->last = &in->first;
    in->count = 0;
    atomic_store_explicit(&in->waiting, false, memory_order_release);
    vow__core_inbox_unlock(in);
    return m;
}

static void messages_run(vow_loop *loop, struct vow__core_message *m)
{
    while (m != NULL) {
        struct vow__core_message *next = m->next;
        m->run(loop, m);
        m = next;
    }
}

static void post_run(vow_loop *loop, struct vow__core_message *m)
{
    struct post *p = VOW__OUTER(m, struct post, message);
    vow_post_fn fn = p->fn;
    void *arg = p->arg;
    vow__mem_free(&loop->alloc, p, sizeof(*p));
    fn(arg);
}
