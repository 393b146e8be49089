/* SPDX-License-Identifier: MIT */
/* settler.h - settles a promise of the hub's loop or of another loop.
 *
 * WHY   The table of names is on one loop; waiters may be on other loops. The
 *       code that settles need not know the loop of the future.
 * LIMITS  Bytes, numbers, nothing and pointers of other owners can go to
 *         another loop; of an error, the code and the message.
 * THREADS  the hub's loop.
 */
#ifndef VOW_NAMED_SETTLER_H
#define VOW_NAMED_SETTLER_H

#include "vow/remote.h"

struct vow__named_settler {
    vow_deferred *local; /* for a future of the hub's loop; or NULL */
    vow_remote *remote;  /* for another loop; both NULL: settled */
};

/* Makes a promise of `loop` that `hub_loop` will settle. */
vow_future *vow__named_settler_open(const char *site, vow_loop *loop,
                                    const vow_loop *hub_loop,
                                    struct vow__named_settler *ret_settler);

static inline bool
vow__named_settler_is_open(const struct vow__named_settler *s)
{
    return s->local != NULL || s->remote != NULL;
}

/* Settle the promise and empty the settler; a second call does nothing. resolve
 * moves the value. copy takes the outcome of a settled future of the hub's
 * loop, which stays. reject borrows the error. */
void vow__named_settler_resolve(struct vow__named_settler *s, vow_value v);
void vow__named_settler_copy(struct vow__named_settler *s, vow_future *settled);
void vow__named_settler_reject(struct vow__named_settler *s, vow_error *error);
void vow__named_settler_refuse(struct vow__named_settler *s, int code,
                               const char *text);
/* Passes progress, borrowed, to the future. */
void vow__named_settler_notify(struct vow__named_settler *s,
                               vow_value progress);
/* Settles with nothing, when the caller has no future. */
void vow__named_settler_drop(struct vow__named_settler *s);

/* Returns whether a value may go to another loop. */
static inline bool vow__named_value_travels(vow_value v)
{
    enum vow_kind kind = vow_kind_of(v);
    return kind != VOW_OWNED && kind != VOW_LIST;
}

/* Returns a second reference of a value that may travel, else nothing. */
static inline vow_value vow__named_value_again(vow_value v)
{
    if (vow_kind_of(v) == VOW_BYTES)
        (void)vow_bytes_ref(vow_as_bytes(v));
    return vow__named_value_travels(v) ? v : vow_nothing();
}

#endif
