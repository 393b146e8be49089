/* SPDX-License-Identifier: MIT */
/* context.c - the job or purpose that code runs for, kept through every wait.
 *
 * WHY   A job waits for ever if it requests a permit which only the end of the
 *       same job can free. To report this, a gate must know the job of the
 *       running code.
 * HOW   The loop has a current context. A step attached in a context is
 *       replaced by a step of this file. The `user` of the new step is a small
 *       block with the context and the original step. Steps outside contexts
 *       cost no more than a test of loop->in. A fiber keeps the context in its
 *       control block.
 * INVARIANTS
 *   C1  loop->in is NULL between handlers
 *   C2  a parent that has ended is skipped, and dropped by the next
 *       vow_context_parent()
 * THREADS  loop thread only.
 */
#include "core/promise_internal.h"

/* The `user` of a step in a context. */
struct carried {
    vow_loop *loop;
    vow_context *context; /* counted */
    vow_step step;
    vow_finally_fn finally;
};

static vow_next carried_ok(vow_value v, void *user);
static vow_next carried_fail(vow_error *e, void *user);
static vow_next carried_finally(void *user);
static void carried_drop(void *user);
static vow_context *context_nearest(vow_context *c);

void vow_context_init(vow_context *c, vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    c->refs = 1;
    c->ended = false;
    c->parent = vow_context_ref(context_nearest(loop->in));
    if (c->parent != NULL) /* drops ended contexts: the chain must not grow */
        (void)vow_context_parent(c->parent);
}

vow_context *vow_context_ref(vow_context *c)
{
    if (c != NULL)
        c->refs++;
    return c;
}

vow_context *vow_context_unref(vow_context *c)
{
    while (c != NULL && --c->refs == 0) {
        vow_context *parent = c->parent;
        c->parent = NULL;
        if (c->drop != NULL)
            c->drop(c);
        c = parent;
    }
    return NULL;
}

void vow_context_end(vow_context *c)
{
    c->ended = true;
}

vow_context *vow_context_current(const vow_loop *loop)
{
    VOW__ASSERT_THREAD(loop);
    return loop->in;
}

vow_context *vow_context_parent(vow_context *c)
{
    while (c->parent != NULL && c->parent->ended) {
        vow_context *gone = c->parent;
        c->parent = vow_context_ref(gone->parent); /* keeps C2 */
        vow_context_unref(gone);
    }
    return c->parent;
}

vow_context *vow_context_enter(vow_loop *loop, vow_context *c)
{
    VOW__ASSERT_THREAD(loop);
    vow_context *before = loop->in;
    loop->in = c;
    return before;
}

void vow_context_leave(vow_loop *loop, vow_context *before)
{
    VOW__ASSERT_THREAD(loop);
    loop->in = before;
}

static vow_context *context_nearest(vow_context *c)
{
    return c != NULL && c->ended ? vow_context_parent(c) : c;
}

/* ---- steps in a context -------------------------------------------------- */

bool vow__core_context_carry(vow_loop *loop, vow_step *step,
                             vow_finally_fn *finally)
{
    struct carried *c = vow__mem_zero(&loop->alloc, sizeof(*c));
    if (c == NULL)
        return false;
    c->loop = loop;
    c->context = vow_context_ref(loop->in);
    c->step = *step;
    step->ok = step->ok == NULL ? NULL : carried_ok;
    step->fail = step->fail == NULL ? NULL : carried_fail;
    step->user = c;
    step->drop = carried_drop;
    if (finally != NULL) {
        c->finally = *finally;
        *finally = carried_finally;
    }
    return true;
}

/* Handlers run from the ready queue, where loop->in is NULL. */
static vow_next carried_ok(vow_value v, void *user)
{
    struct carried *c = user;
    c->loop->in = c->context;
    vow_next next = c->step.ok(v, c->step.user);
    c->loop->in = NULL; /* keeps C1 */
    return next;
}

static vow_next carried_fail(vow_error *e, void *user)
{
    struct carried *c = user;
    c->loop->in = c->context;
    vow_next next = c->step.fail(e, c->step.user);
    c->loop->in = NULL;
    return next;
}

static vow_next carried_finally(void *user)
{
    struct carried *c = user;
    c->loop->in = c->context;
    vow_next next = c->finally(c->step.user);
    c->loop->in = NULL;
    return next;
}

static void carried_drop(void *user)
{
    struct carried *c = user;
    vow_loop *loop = c->loop;
    if (c->step.drop != NULL)
        c->step.drop(c->step.user);
    vow_context_unref(c->context);
    vow__mem_free(&loop->alloc, c, sizeof(*c));
}
