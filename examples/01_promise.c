/* SPDX-License-Identifier: MIT */
/* 01_promise.c - a chain of steps, and recovery by inserting a new promise.
 *
 * fetch() fails twice. The step `again` catches the failure and answers with
 * the future of a new attempt: it is inserted into the chain, and the steps
 * that wait behind it never learn that anything went wrong. */
#include <stdio.h>
#include <vow.h>

struct client {
    vow_loop *loop;
    int attempt;
};

static vow_next answer(vow_value v, void *user)
{
    struct client *c = user;
    (void)v;
    if (c->attempt < 3)
        return vow_fail_code(VOW_EIO, "the line was cut");
    return vow_ok(vow_int(42));
}

/* Pretends to ask a server: the answer comes 10 ms later. */
static vow_future *fetch(struct client *c)
{
    c->attempt++;
    return vow_then_drop(vow_delay(c->loop, 10), answer, NULL, c);
}

static vow_next again(vow_error *e, void *user)
{
    struct client *c = user;
    printf("attempt %d failed: %s; trying again\n", c->attempt,
           vow_error_message(e));
    if (c->attempt == 5)
        return vow_pass(); /* give up: the error goes on down the chain */
    return vow_follow(vow_catch_drop(fetch(c), again, c));
}

static vow_next twice(vow_value v, void *user)
{
    (void)user;
    return vow_ok(vow_int(2 * vow_as_int(v)));
}

static vow_next show(vow_value v, void *user)
{
    const struct client *c = user;
    printf("got %d after %d attempts\n", (int)vow_as_int(v), c->attempt);
    return vow_pass();
}

int main(void)
{
    vow_loop *loop;
    if (vow_loop_new(NULL, &loop) < 0)
        return 1;

    struct client c = {.loop = loop};
    const vow_step steps[] = {
        {.fail = again, .user = &c},
        {.ok = twice},
        {.ok = show, .user = &c},
    };
    vow_future *first = fetch(&c);
    vow_future *done = vow_chain(first, steps, 3);
    int rc = vow_loop_run_until(loop, done);

    vow_future_unref(first);
    vow_future_unref(done);
    vow_loop_close(loop);
    return rc == 0 ? 0 : 1;
}
