/* SPDX-License-Identifier: MIT */
/* vow/scope.h - a group of futures: canceled together, waited for together.
 *
 * Scopes form a tree: canceling a scope cancels the members of the scope and of
 * all children. Waiting futures are rejected at once, running work is asked to
 * stop. The first cause is kept: readers get VOW_ECANCELED with the first cause
 * behind.
 *
 * Owner: counted. A parent stays alive while there are children. Dropping the
 * last reference of a scope does not cancel the scope.
 * Threads: loop thread only.
 */
#ifndef VOW_SCOPE_H
#define VOW_SCOPE_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

typedef struct vow_scope vow_scope;

enum { VOW_SCOPE_FAIL_FAST = 1 /* a member's rejection cancels the scope */ };

typedef struct vow_scope_opts {
    size_t size;          /* set by VOW_SCOPE_OPTS */
    vow_scope *parent;    /* NULL: a root */
    uint32_t flags;       /* VOW_SCOPE_... */
    uint64_t deadline_ms; /* from now; 0: none but the parent's */
} vow_scope_opts;
#define VOW_SCOPE_OPTS(...)                                                    \
    (&(const vow_scope_opts){.size = sizeof(vow_scope_opts), __VA_ARGS__})

/* Makes a scope; a scope with a canceled parent is canceled from the start.
 * Returns 0, VOW_EINVAL (unknown flags, a parent of another loop) or
 * VOW_ENOMEM; *ret_scope is written only on success. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_scope_new(vow_loop *loop, const vow_scope_opts *opts,
                  vow_scope **ret_scope);
VOW_API VOW_LOOP_THREAD vow_scope *vow_scope_ref(vow_scope *s);
VOW_API VOW_LOOP_THREAD vow_scope *vow_scope_unref(vow_scope *s); /* NULL */

/* Makes `f` a member, and returns a future with the outcome of `f`, or with
 * VOW_ECANCELED as soon as the scope is canceled, at once if the scope already
 * is. Canceling the scope cancels `f`. `f` stays a member until `f` has ended
 * (vow_ended()), whatever is chained to `f`. */
#define vow_scope_add(s, f) vow_scope_add_at(VOW_HERE, (s), (f))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_scope_add_at(const char *site, vow_scope *s, vow_future *f);

/* Cancels the scope and all children. `why` is borrowed, may be NULL. Returns
 * false if the scope was canceled before: the first cause stays. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_scope_cancel(vow_scope *s, vow_error *why);

/* Returns a future that settles when the scope and all children have no members
 * left: with nothing, or, if the scope was canceled, with the first cause
 * (VOW_ECANCELED if no other cause was given). */
#define vow_scope_wait(s) vow_scope_wait_at(VOW_HERE, (s))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_scope_wait_at(const char *site, vow_scope *s);

VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_scope_canceled(const vow_scope *s);
/* Returns the first cause, borrowed; NULL if the scope is not canceled. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_error *vow_scope_cause(const vow_scope *s);
/* Returns the number of members of the scope and of all children. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
size_t vow_scope_size(const vow_scope *s);
/* Returns the milliseconds to the nearest deadline up the tree, rounded down;
 * UINT64_MAX without a deadline; 0 if the deadline has passed or the scope is
 * canceled. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_scope_remaining_ms(const vow_scope *s);

/* A function called when a scope is canceled. The struct lies in the caller's
 * memory and must not move until the hook ran or was removed. The fields are
 * private. */
typedef struct vow_hook {
    vow_link link;
    vow_cancel_fn fn;
    void *user;
    vow_scope *scope;
} vow_hook;

/* Registers a zeroed or removed hook: O(1), no memory. fn(why, user) runs once,
 * from the loop's queue, also if the scope is already canceled. The hook keeps
 * the scope alive. Returns 0, VOW_EINVAL if `fn` is NULL, or VOW_EBUSY if the
 * hook is registered. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 2)
int vow_hook_add(vow_hook *hook, vow_scope *s, vow_cancel_fn fn, void *user);
/* Removes a hook: O(1), from anywhere, also from inside a hook of the scope.
 * The hook does not run any more. Returns false if the hook was not
 * registered. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_hook_remove(vow_hook *hook);

static inline void vow_scope_cleanup(vow_scope **s)
{
    vow_scope_unref(*s);
}

VOW_END_DECLS

#endif
