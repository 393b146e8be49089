/* SPDX-License-Identifier: MIT */
/* core_post.c - messages from other threads to the loop.
 *
 * A million messages in all, from one thread or from four, while the loop runs
 * them; the time ends with the last message run. floor_post.c does the same
 * with a mutex, a list, malloc and uv_async.
 */
#include "core.h"
#include <pthread.h>
#include <sched.h>

struct inbox {
    vow_loop *loop;
    long each; /* messages per sender */
    long got;  /* loop thread only */
};

static void receive(void *arg)
{
    struct inbox *in = arg;
    if (++in->got == MESSAGES)
        vow_loop_release(in->loop);
}

static void *send_all(void *arg)
{
    struct inbox *in = arg;
    for (long i = 0; i < in->each; i++) {
        int rc;
        while ((rc = vow_loop_post(in->loop, receive, in)) == VOW_EQUEUEFULL)
            sched_yield();
        MUST(rc == 0);
    }
    return NULL;
}

static double post(int senders)
{
    pthread_t thread[4];
    struct inbox in = {.loop = open_loop(), .each = MESSAGES / senders};
    vow_loop_hold(in.loop);
    double begin = now_ns();
    for (int i = 0; i < senders; i++)
        MUST(pthread_create(&thread[i], NULL, send_all, &in) == 0);
    MUST(vow_loop_run(in.loop) == 0);
    double spent = now_ns() - begin;
    for (int i = 0; i < senders; i++)
        pthread_join(thread[i], NULL);
    MUST(in.got == MESSAGES);
    MUST(vow_loop_close(in.loop) == 0);
    return spent / MESSAGES;
}

void bench_post_1(void)
{
    row("post-1", "vow", median_of_five(post, 1), "ns");
}

void bench_post_4(void)
{
    row("post-4", "vow", median_of_five(post, 4), "ns");
}
