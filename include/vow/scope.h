/* SPDX-License-Identifier: MIT */
/* vow/scope.h - work that is canceled, and waited for, together.
 *
 * Scopes form a tree: canceling one cancels what was started in it and in its
 * children. What waits is rejected at once, what runs is asked. The first cause
 * is kept: waiters get VOW_ECANCELED with that cause behind it.
 *
 * Owner: counted. A parent stays alive while it has children. Dropping the
 * last reference of a scope does not cancel it.
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

/* Make a scope. In a canceled parent it is born canceled. Returns 0,
 * VOW_EINVAL (unknown flags, a parent of another loop) or VOW_ENOMEM;
 * *ret_scope is written only on success. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_scope_new(vow_loop *loop, const vow_scope_opts *opts,
                  vow_scope **ret_scope);
VOW_API VOW_LOOP_THREAD vow_scope *vow_scope_ref(vow_scope *s);
VOW_API VOW_LOOP_THREAD vow_scope *vow_scope_unref(vow_scope *s); /* NULL */

/* Make `f` a member; it was started for this scope. The future has the outcome
 * of `f`, or VOW_ECANCELED as soon as the scope is canceled, also when it
 * already was. `f` itself is then canceled, and stays a member until it has
 * ended (vow_ended()): what runs counts as running until it has ended, whatever
 * is chained to it. */
#define vow_scope_add(s, f) vow_scope_add_at(VOW_HERE, (s), (f))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_scope_add_at(const char *site, vow_scope *s, vow_future *f);

/* Cancel the scope and its children. `why` is borrowed, may be NULL. False when
 * it was canceled before: the first cause stays. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_scope_cancel(vow_scope *s, vow_error *why);

/* Settles when no member is left here or below: with nothing, or, if the scope
 * was canceled, with the first cause (VOW_ECANCELED itself only when no other
 * cause was given). */
#define vow_scope_wait(s) vow_scope_wait_at(VOW_HERE, (s))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_scope_wait_at(const char *site, vow_scope *s);

VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_scope_canceled(const vow_scope *s);
/* Why it was canceled, borrowed; NULL if it was not. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_error *vow_scope_cause(const vow_scope *s);
/* Members here and below. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
size_t vow_scope_size(const vow_scope *s);
/* Time left to the nearest deadline up the tree, rounded down; UINT64_MAX
 * without one, 0 when it has passed or the scope is canceled. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
uint64_t vow_scope_remaining_ms(const vow_scope *s);

/* A call when the scope is canceled, in the caller's memory, which stays where
 * it is until the hook ran or was removed. The fields are private. */
typedef struct vow_hook {
    vow_link link;
    vow_cancel_fn fn;
    void *user;
    vow_scope *scope;
} vow_hook;

/* Register a zeroed or removed hook: O(1), no memory. fn(why, user) runs once,
 * from the loop's queue; also when the scope is already canceled. The hook
 * keeps the scope alive. VOW_EINVAL when fn is NULL, VOW_EBUSY when it is
 * registered. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 2)
int vow_hook_add(vow_hook *hook, vow_scope *s, vow_cancel_fn fn, void *user);
/* Take it back: O(1), from anywhere, also from inside a hook of this scope. It
 * does not run after this. False when it was not registered. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
bool vow_hook_remove(vow_hook *hook);

static inline void vow_scope_cleanup(vow_scope **s)
{
    vow_scope_unref(*s);
}

VOW_END_DECLS

#endif
