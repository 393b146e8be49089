/* SPDX-License-Identifier: MIT */
/* settler.c - settles a promise of the hub's loop or of another loop. */
#include "named/settler.h"

vow_future *vow__named_settler_open(const char *site, vow_loop *loop,
                                    const vow_loop *hub_loop,
                                    struct vow__named_settler *ret_settler)
{
    *ret_settler = (struct vow__named_settler){0};
    return loop == hub_loop
               ? vow_promise_at(site, loop, &ret_settler->local)
               : vow_promise_remote_at(site, loop, &ret_settler->remote);
}

void vow__named_settler_resolve(struct vow__named_settler *s, vow_value v)
{
    struct vow__named_settler taken = *s;
    *s = (struct vow__named_settler){0};
    if (taken.local != NULL)
        (void)vow_resolve_drop(taken.local, v);
    else if (taken.remote != NULL)
        (void)vow_resolve_any(taken.remote, v);
    else
        vow_value_drop(v);
    if (taken.remote != NULL)
        vow_remote_unref(taken.remote);
}

void vow__named_settler_copy(struct vow__named_settler *s, vow_future *settled)
{
    if (vow_state_of(settled) == VOW_REJECTED) {
        vow__named_settler_reject(s, vow_error_of(settled));
        return;
    }
    vow_value v = vow_get(settled);
    if (vow__named_value_travels(v)) {
        vow__named_settler_resolve(s, vow__named_value_again(v));
    } else if (s->local != NULL) {
        vow_deferred *d = s->local;
        *s = (struct vow__named_settler){0};
        (void)vow_resolve_with(d, settled);
        vow_deferred_unref(d);
    } else {
        vow__named_settler_refuse(
            s, VOW_EINVAL,
            "a result for another loop is bytes, a number or "
            "nothing");
    }
}

void vow__named_settler_reject(struct vow__named_settler *s, vow_error *error)
{
    struct vow__named_settler taken = *s;
    if (taken.remote != NULL) {
        vow__named_settler_refuse(s, vow_error_code(error),
                                  vow_error_message(error));
        return;
    }
    *s = (struct vow__named_settler){0};
    if (taken.local != NULL)
        (void)vow_reject_drop(taken.local, vow_error_ref(error));
}

void vow__named_settler_refuse(struct vow__named_settler *s, int code,
                               const char *text)
{
    struct vow__named_settler taken = *s;
    *s = (struct vow__named_settler){0};
    if (taken.local != NULL) {
        (void)vow_reject_code(taken.local, code, text);
        vow_deferred_unref(taken.local);
    } else if (taken.remote != NULL) {
        vow_loop *loop = vow_remote_loop(taken.remote);
        (void)vow_reject_any(
            taken.remote,
            vow_error_new(loop, code, "%s",
                          text == NULL ? vow_error_text(code) : text));
        vow_remote_unref(taken.remote);
    }
}

void vow__named_settler_notify(struct vow__named_settler *s, vow_value progress)
{
    if (s->local != NULL)
        (void)vow_notify(s->local, vow__named_value_again(progress));
    else if (s->remote != NULL && vow__named_value_travels(progress))
        (void)vow_notify_any(s->remote, vow__named_value_again(progress));
}

void vow__named_settler_drop(struct vow__named_settler *s)
{
    vow__named_settler_resolve(s, vow_nothing());
}
