/* SPDX-License-Identifier: MIT */
/* floor.c - the floor: how fast C can be at the shape of the work.
 *
 * usage: bench_floor pool|malloc CASE
 *        bench_floor mutex post-1|post-4
 *
 * One object per link, a callback through a pointer, a ready queue, and nothing
 * else: no errors, no counting of references, no cancellation, no value but a
 * number, one handler per promise. "pool" takes the objects from a free list
 * without limits, "malloc" from the C library. The distance to it is the price
 * of everything the library promises.
 */
#include "floor.h"

typedef long (*then_fn)(void *ctx, long in);

typedef struct promise {
    then_fn then; /* handler of this promise, or NULL */
    void *ctx;
    struct promise *derived; /* promise that the handler's result settles */
    struct promise *link;    /* ready queue, sibling handler, or free list */
    long value;
    int settled;
} promise;

static int pooled;
static const char *peer;
static promise *pool, *ready, **ready_tail = &ready;
static long sink;

static promise *make(void)
{
    promise *p = pool;
    if (pooled && p != NULL)
        pool = p->link;
    else
        p = malloc(sizeof(*p));
    MUST(p != NULL);
    *p = (promise){0};
    return p;
}

static void drop(promise *p)
{
    if (!pooled) {
        free(p);
        return;
    }
    p->link = pool;
    pool = p;
}

static void settle(promise *p, long value)
{
    p->value = value;
    p->settled = 1;
    p->link = NULL;
    *ready_tail = p;
    ready_tail = &p->link;
}

static void drain(void)
{
    promise *p;
    while ((p = ready) != NULL) {
        ready = p->link;
        if (ready == NULL)
            ready_tail = &ready;
        long out = p->then != NULL ? p->then(p->ctx, p->value) : p->value;
        if (p->derived != NULL)
            settle(p->derived, out);
        else
            sink += out;
        drop(p);
    }
}

__attribute__((noinline)) static long add_one(void *ctx, long in)
{
    (void)ctx;
    return in + 1;
}

/* Volatile: the compiler must not see which handler is called. */
static then_fn volatile handler = add_one;

static promise *hang_links(promise *p)
{
    for (long i = 0; i < LINKS; i++) {
        promise *next = make();
        p->then = handler;
        p->derived = next;
        p = next;
    }
    return p;
}

static void take_sink(long expected)
{
    MUST(sink == expected);
    sink = 0;
}

static double chain(void)
{
    double begin = now_ns();
    promise *head = make();
    hang_links(head);
    settle(head, 0);
    drain();
    take_sink(LINKS);
    return (now_ns() - begin) / LINKS;
}

static double fanout(void)
{
    double begin = now_ns();
    promise *waiting = NULL, **tail = &waiting;
    for (long i = 0; i < LINKS; i++) {
        promise *h = make();
        h->then = handler;
        *tail = h;
        tail = &h->link;
    }
    while (waiting != NULL) {
        promise *h = waiting;
        waiting = h->link;
        settle(h, 0);
    }
    drain();
    take_sink(LINKS);
    return (now_ns() - begin) / LINKS;
}

static void cold_and_warm(double (*once)(void), const char *cold,
                          const char *warm)
{
    row(cold, peer, once(), "ns");
    once();
    row(warm, peer, once(), "ns");
}

static void floor_chain(void)
{
    cold_and_warm(chain, "chain-cold", "chain");
}

static void floor_fanout(void)
{
    cold_and_warm(fanout, "fanout-cold", "fanout");
}

/* As ours does it: then() makes a promise for the handler's result, which is
 * settled and dropped in turn. */
static void floor_cycle_derived(void)
{
    double begin = now_ns();
    for (long i = 0; i < CYCLES; i++) {
        promise *p = make();
        p->then = handler;
        p->derived = make();
        settle(p, 0);
        drain();
    }
    row("cycle-derived", peer, (now_ns() - begin) / CYCLES, "ns");
    take_sink(CYCLES);
}

static void floor_cycle(void)
{
    double begin = now_ns();
    for (long i = 0; i < CYCLES; i++) {
        promise *p = make();
        p->then = handler;
        settle(p, 0);
        drain();
    }
    row("cycle", peer, (now_ns() - begin) / CYCLES, "ns");
    take_sink(CYCLES);
    floor_cycle_derived();
}

static void floor_link_bytes(void)
{
    double rss = status_bytes("VmRSS:");
    promise *head = make();
    hang_links(head);
    row("link-bytes", peer, sizeof(promise), "bytes");
    row("link-rss", peer, (status_bytes("VmRSS:") - rss) / LINKS, "bytes");
    settle(head, 0);
    drain();
}

static const struct bench_case promise_cases[] = {
    {"chain", floor_chain},
    {"fanout", floor_fanout},
    {"cycle", floor_cycle},
    {"link-bytes", floor_link_bytes},
};

static const struct bench_case post_cases[] = {
    {"post-1", floor_post_1},
    {"post-4", floor_post_4},
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: %s pool|malloc|mutex CASE\n", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "mutex") == 0)
        return run_case(post_cases, COUNT(post_cases), argv[2]);
    pooled = strcmp(argv[1], "pool") == 0;
    peer = pooled ? "c-pool" : "c-malloc";
    return run_case(promise_cases, COUNT(promise_cases), argv[2]);
}
