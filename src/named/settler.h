/* SPDX-License-Identifier: MIT */
/* settler.h - the settling end of a promise, on this loop or on another's.
 *
 * WHY   The table of names lives on one loop; those who ask may live on others.
 *       Who settles need not know which it is.
 * LIMITS  Between loops go bytes, numbers, pointers of somebody else and
 *         nothing; an error goes by its code and message.
 * THREADS  the hub's loop.
 */
#ifndef VOW_NAMED_SETTLER_H
#define VOW_NAMED_SETTLER_H

#include "vow/remote.h"

struct vow__named_settler {
    vow_deferred *here; /* of the hub's loop; NULL: */
    vow_remote *there;  /* of another; both NULL: gone */
};

/* A promise of `loop`; `home` is the loop that will settle it. */
vow_future *vow__named_settler_open(const char *site, vow_loop *loop,
                                    const vow_loop *home,
                                    struct vow__named_settler *ret_end);

static inline bool
vow__named_settler_is_open(const struct vow__named_settler *e)
{
    return e->here != NULL || e->there != NULL;
}

/* Settle and let go of it; again, they do nothing. vow__named_settler_resolve() moves the
 * value. vow__named_settler_copy() settles with what a settled future of the hub's loop has,
 * which stays; vow__named_settler_reject() borrows the error. */
void vow__named_settler_resolve(struct vow__named_settler *e, vow_value v);
void vow__named_settler_copy(struct vow__named_settler *e, vow_future *settled);
void vow__named_settler_reject(struct vow__named_settler *e, vow_error *error);
void vow__named_settler_refuse(struct vow__named_settler *e, int code,
                               const char *text);
/* Tell how far it is; `news` is borrowed. */
void vow__named_settler_notify(struct vow__named_settler *e, vow_value news);
/* Let go of it: nobody has its future. */
void vow__named_settler_drop(struct vow__named_settler *e);

/* May it go to another loop? */
static inline bool vow__named_value_travels(vow_value v)
{
    enum vow_kind kind = vow_kind_of(v);
    return kind != VOW_OWNED && kind != VOW_LIST;
}

/* A second one of a value that can be had twice, else nothing. */
static inline vow_value vow__named_value_again(vow_value v)
{
    if (vow_kind_of(v) == VOW_BYTES)
        (void)vow_bytes_ref(vow_as_bytes(v));
    return vow__named_value_travels(v) ? v : vow_nothing();
}

#endif
