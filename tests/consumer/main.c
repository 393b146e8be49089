/* SPDX-License-Identifier: MIT */
/* main.c - the smallest program of a stranger: it waits, and checks that the
 * header and the library are of one version. */
#include <stdio.h>
#include <string.h>
#include <vow.h>

static vow_next answer(vow_value v, void *user)
{
    (void)v;
    (void)user;
    return vow_ok(vow_int(42));
}

int main(void)
{
    vow_loop *loop;
    if (strcmp(vow_version(), VOW_VERSION) != 0)
        return 1;
    if (vow_loop_new(NULL, &loop) < 0)
        return 1;

    vow_future *wait = vow_delay(loop, 1);
    vow_future *done = vow_then(wait, answer, NULL, NULL);
    int rc = vow_loop_run_until(loop, done);
    int got = (int)vow_as_int(vow_get(done));
    printf("vow %s: %d\n", vow_version(), got);

    vow_future_unref(wait);
    vow_future_unref(done);
    vow_loop_close(loop);
    return rc == 0 && got == 42 ? 0 : 1;
}
