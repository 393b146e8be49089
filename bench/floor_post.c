/* SPDX-License-Identifier: MIT */
/* floor_post.c - the floor for messages between threads: what one writes by
 * hand on libuv.
 *
 * A list under a mutex, one malloc per message, and uv_async_send() only when
 * the list was empty; the loop takes the whole list at once. No limit, no
 * errors, no close. Same counts and same threads as core_post.c.
 */
#include "floor.h"
#include <pthread.h>
#include <uv.h>

typedef struct message {
    struct message *next;
    void (*fn)(void *arg);
    void *arg;
} message;

struct inbox {
    uv_loop_t loop;
    uv_async_t wake;
    pthread_mutex_t lock;
    message *head, **tail; /* under the lock */
    long each;             /* messages per sender */
    long got;              /* loop thread only */
};

static void receive(void *arg)
{
    struct inbox *in = arg;
    in->got++;
}

static void push(struct inbox *in, void (*fn)(void *), void *arg)
{
    message *m = malloc(sizeof(*m));
    MUST(m != NULL);
    *m = (message){.fn = fn, .arg = arg};
    pthread_mutex_lock(&in->lock);
    int was_empty = in->head == NULL;
    *in->tail = m;
    in->tail = &m->next;
    pthread_mutex_unlock(&in->lock);
    if (was_empty)
        uv_async_send(&in->wake);
}

static void on_wake(uv_async_t *wake)
{
    struct inbox *in = wake->data;
    pthread_mutex_lock(&in->lock);
    message *m = in->head;
    in->head = NULL;
    in->tail = &in->head;
    pthread_mutex_unlock(&in->lock);
    while (m != NULL) {
        message *next = m->next;
        m->fn(m->arg);
        free(m);
        m = next;
    }
    if (in->got == MESSAGES)
        uv_close((uv_handle_t *)wake, NULL);
}

static void *send_all(void *arg)
{
    struct inbox *in = arg;
    for (long i = 0; i < in->each; i++)
        push(in, receive, in);
    return NULL;
}

static double post(int senders)
{
    pthread_t thread[4];
    struct inbox in = {.each = MESSAGES / senders};
    in.tail = &in.head;
    pthread_mutex_init(&in.lock, NULL);
    MUST(uv_loop_init(&in.loop) == 0);
    MUST(uv_async_init(&in.loop, &in.wake, on_wake) == 0);
    in.wake.data = &in;
    double begin = now_ns();
    for (int i = 0; i < senders; i++)
        MUST(pthread_create(&thread[i], NULL, send_all, &in) == 0);
    uv_run(&in.loop, UV_RUN_DEFAULT);
    double spent = now_ns() - begin;
    for (int i = 0; i < senders; i++)
        pthread_join(thread[i], NULL);
    MUST(in.got == MESSAGES);
    MUST(uv_loop_close(&in.loop) == 0);
    pthread_mutex_destroy(&in.lock);
    return spent / MESSAGES;
}

void floor_post_1(void)
{
    row("post-1", "c-mutex", median_of_five(post, 1), "ns");
}

void floor_post_4(void)
{
    row("post-4", "c-mutex", median_of_five(post, 4), "ns");
}
