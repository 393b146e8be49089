/* SPDX-License-Identifier: MIT */
/* main.c - the smallest program of a stranger on libuv: a timer of libuv
 * resolves a promise, on one loop, and the header and the library are of one
 * version. */
#include <stdio.h>
#include <string.h>
#include <vow.h>
#include <vow/uv.h>

static void ring(uv_timer_t *timer)
{
    vow_resolve_drop((vow_deferred *)timer->data, vow_int(41));
    uv_close((uv_handle_t *)timer, NULL);
}

static vow_next add_one(vow_value v, void *user)
{
    (void)user;
    return vow_ok(vow_int(vow_as_int(v) + 1));
}

int main(void)
{
    vow_loop *loop;
    if (strcmp(vow_version(), VOW_VERSION) != 0)
        return 1;
    if (vow_loop_new(NULL, &loop) < 0)
        return 1;

    vow_deferred *end;
    vow_future *rings = vow_promise(loop, &end);
    uv_timer_t timer;
    uv_timer_init(vow_loop_uv(loop), &timer);
    timer.data = end;
    uv_timer_start(&timer, ring, 1, 0);

    vow_future *done = vow_then(rings, add_one, NULL, NULL);
    int rc = vow_loop_run_until(loop, done);
    int got = (int)vow_as_int(vow_get(done));
    printf("vow %s on libuv %s: %d\n", vow_version(), uv_version_string(), got);

    vow_future_unref(rings);
    vow_future_unref(done);
    vow_loop_close(loop);
    return rc == 0 && got == 42 ? 0 : 1;
}
