/* SPDX-License-Identifier: MIT */
/* 02_await.c - await in fibers: a loop with errors, two of them at once.
 *
 * ask() gives a future: the answer comes later, or an error does. worker() is
 * a fiber, so it asks in an ordinary loop, with ordinary locals and an ordinary
 * `if` for the error. Two workers run at once on one thread: while one waits,
 * the other goes on. Time is virtual, so every run prints the same. */
#include <stdio.h>
#include <vow.h>

struct asker {
    vow_loop *loop;
    const char *name;
    uint64_t pause_ms; /* how long one answer takes */
    int question;
};

static vow_next answer(vow_value v, void *user)
{
    const struct asker *a = user;
    (void)v;
    if (a->question == 3)
        return vow_fail_code(VOW_EIO, "the line was cut");
    return vow_ok(vow_int(a->question * 10));
}

/* Pretends to ask a server. */
static vow_future *ask(struct asker *a)
{
    VOW_AUTO(vow_future) wait = vow_delay(a->loop, a->pause_ms);
    return vow_then(wait, answer, NULL, a);
}

/* The body of a fiber. What it returns settles the fiber's future. */
static vow_next worker(void *arg)
{
    struct asker *a = arg;
    int64_t sum = 0;

    for (a->question = 1; a->question <= 4; a->question++) {
        VOW_AUTO(vow_future) reply = ask(a);
        int rc = vow_await(reply);
        if (rc == VOW_EIO) {
            printf("%s: no answer to %d: %s\n", a->name, a->question,
                   vow_error_message(vow_error_of(reply)));
            continue;
        }
        if (rc < 0)
            return vow_fail_code(rc, NULL); /* canceled, or no memory */
        printf("%s: the answer to %d is %d\n", a->name, a->question,
               (int)vow_as_int(vow_get(reply)));
        sum += vow_as_int(vow_get(reply));
    }
    return vow_ok(vow_int(sum));
}

int main(void)
{
    vow_loop *loop;
    if (vow_loop_new(VOW_LOOP_OPTS(.flags = VOW_LOOP_VIRTUAL_TIME), &loop) < 0)
        return 1;

    struct asker quick = {.loop = loop, .name = "quick", .pause_ms = 20};
    struct asker slow = {.loop = loop, .name = "slow", .pause_ms = 50};
    vow_future *pair[2] = {
        vow_async(loop, worker, &quick),
        vow_async(loop, worker, &slow),
    };
    vow_future *both = vow_all(loop, pair, 2);
    int rc = vow_loop_run_until(loop, both);
    if (rc == 0)
        printf("sums: %d and %d, after %d ms\n",
               (int)vow_as_int(vow_list_get(vow_get(both), 0)),
               (int)vow_as_int(vow_list_get(vow_get(both), 1)),
               (int)(vow_loop_now_ns(loop) / 1000000));

    vow_future_unref(pair[0]);
    vow_future_unref(pair[1]);
    vow_future_unref(both);
    vow_loop_close(loop);
    return rc == 0 ? 0 : 1;
}
