/* SPDX-License-Identifier: MIT */
/* settler.c - the settling end of a promise, on this loop or on another's. */
#include "named/settler.h"

vow_future *vow__named_settler_open(const char *site, vow_loop *loop,
                                    const vow_loop *home,
                                    struct vow__named_settler *ret_end)
{
    *ret_end = (struct vow__named_settler){0};
    return loop == home ? vow_promise_at(site, loop, &ret_end->here)
                        : vow_promise_remote_at(site, loop, &ret_end->there);
}

void vow__named_settler_resolve(struct vow__named_settler *e, vow_value v)
{
    struct vow__named_settler end = *e;
    *e = (struct vow__named_settler){0};
    if (end.here != NULL)
        (void)vow_resolve_drop(end.here, v);
    else if (end.there != NULL)
        (void)vow_resolve_any(end.there, v);
    else
        vow_value_drop(v);
    if (end.there != NULL)
        vow_remote_unref(end.there);
}

void vow__named_settler_copy(struct vow__named_settler *e, vow_future *settled)
{
    if (vow_state_of(settled) == VOW_REJECTED) {
        vow__named_settler_reject(e, vow_error_of(settled));
        return;
    }
    vow_value v = vow_get(settled);
    if (vow__named_value_travels(v)) {
        vow__named_settler_resolve(e, vow__named_value_again(v));
    } else if (e->here != NULL) {
        vow_deferred *d = e->here;
        *e = (struct vow__named_settler){0};
        (void)vow_resolve_with(d, settled);
        vow_deferred_unref(d);
    } else {
        vow__named_settler_refuse(
            e, VOW_EINVAL,
            "a result for another loop is bytes, a number or "
            "nothing");
    }
}

void vow__named_settler_reject(struct vow__named_settler *e, vow_error *error)
{
    struct vow__named_settler end = *e;
    if (end.there != NULL) {
        vow__named_settler_refuse(e, vow_error_code(error),
                                  vow_error_message(error));
        return;
    }
    *e = (struct vow__named_settler){0};
    if (end.here != NULL)
        (void)vow_reject_drop(end.here, vow_error_ref(error));
}

void vow__named_settler_refuse(struct vow__named_settler *e, int code,
                               const char *text)
{
    struct vow__named_settler end = *e;
    *e = (struct vow__named_settler){0};
    if (end.here != NULL) {
        (void)vow_reject_code(end.here, code, text);
        vow_deferred_unref(end.here);
    } else if (end.there != NULL) {
        vow_loop *loop = vow_remote_loop(end.there);
        (void)vow_reject_any(
            end.there,
            vow_error_new(loop, code, "%s",
                          text == NULL ? vow_error_text(code) : text));
        vow_remote_unref(end.there);
    }
}

void vow__named_settler_notify(struct vow__named_settler *e, vow_value news)
{
    if (e->here != NULL)
        (void)vow_notify(e->here, vow__named_value_again(news));
    else if (e->there != NULL && vow__named_value_travels(news))
        (void)vow_notify_any(e->there, vow__named_value_again(news));
}

void vow__named_settler_drop(struct vow__named_settler *e)
{
    vow__named_settler_resolve(e, vow_nothing());
}
