/* SPDX-License-Identifier: MIT */
/* core_promise.c - chains, fan-out, one promise at a time, bytes per link.
 *
 * The first run in a process pays for page faults ("-cold", for information);
 * the third is the one that counts: memory comes from the loop's pools. The
 * time goes from the first create to the last free, so that a link is created,
 * settled, run and freed inside it.
 */
#include "core.h"

static vow_next add_one(vow_value v, void *user)
{
    (void)user;
    return vow_ok(vow_int(vow_as_int(v) + 1));
}

static vow_next count(vow_value v, void *user)
{
    int64_t *sum = user;
    *sum += vow_as_int(v);
    return vow_ok(vow_nothing());
}

/* p.then(f).then(f)...: the caller keeps the last future only. */
static vow_future *hang_links(vow_future *f, long n)
{
    for (long i = 0; i < n; i++) {
        vow_future *next = vow_then(f, add_one, NULL, NULL);
        vow_future_unref(f);
        f = next;
    }
    return f;
}

static double chain(vow_loop *loop)
{
    double begin = now_ns();
    vow_deferred *end;
    vow_future *last = hang_links(vow_promise(loop, &end), LINKS);
    vow_resolve(end, vow_int(0));
    vow_deferred_unref(end);
    MUST(vow_loop_run_until(loop, last) == 0);
    MUST(vow_as_int(vow_get(last)) == LINKS);
    vow_future_unref(last);
    return (now_ns() - begin) / LINKS;
}

/* A million handlers on one promise; their futures are not kept. */
static double fanout(vow_loop *loop)
{
    int64_t sum = 0;
    double begin = now_ns();
    vow_deferred *end;
    vow_future *f = vow_promise(loop, &end);
    for (long i = 0; i < LINKS; i++) {
        vow_future *each = vow_then(f, count, NULL, &sum);
        vow_future_unref(each);
    }
    vow_resolve(end, vow_int(1));
    vow_deferred_unref(end);
    vow_future_unref(f);
    MUST(vow_loop_run(loop) == 0);
    MUST(sum == LINKS);
    return (now_ns() - begin) / LINKS;
}

static void cold_and_warm(double (*once)(vow_loop *), const char *cold,
                          const char *warm)
{
    vow_loop *loop = open_loop();
    row(cold, "vow", once(loop), "ns");
    once(loop);
    row(warm, "vow", once(loop), "ns");
    MUST(vow_loop_close(loop) == 0);
}

void bench_chain(void)
{
    cold_and_warm(chain, "chain-cold", "chain");
}

void bench_fanout(void)
{
    cold_and_warm(fanout, "fanout-cold", "fanout");
}

struct rounds {
    vow_loop *loop;
    long left;
    int64_t sum;
};

/* One round: free the last, create, attach, resolve. The handler runs from the
 * loop's queue and begins the next, as in a program whose loop is running. */
static vow_next next_round(vow_value v, void *user)
{
    struct rounds *r = user;
    r->sum += vow_as_int(v);
    if (r->left-- > 0) {
        vow_deferred *end;
        vow_future *f = vow_promise(r->loop, &end);
        MUST(vow_done(f, next_round, NULL, r) == 0);
        vow_resolve_drop(end, vow_int(1));
    }
    return vow_ok(vow_int(0));
}

/* The same where each round needs a turn of the loop made by hand. */
static double rounds_by_hand(vow_loop *loop)
{
    int64_t sum = 0;
    double begin = now_ns();
    for (long i = 0; i < CYCLES; i++) {
        vow_deferred *end;
        vow_future *f = vow_promise(loop, &end);
        MUST(vow_done(f, count, NULL, &sum) == 0);
        vow_resolve_drop(end, vow_int(1));
        MUST(vow_loop_turn(loop) == 0);
    }
    MUST(sum == CYCLES);
    return (now_ns() - begin) / CYCLES;
}

/* Create, attach, resolve, run the handler, free: one at a time. There are two
 * promises in each round, since then() makes one for the handler's result. The
 * goal is against the floor's "cycle" with one object all the same; its
 * "cycle-derived" has two. */
void bench_cycle(void)
{
    vow_loop *loop = open_loop();
    struct rounds r = {.loop = loop, .left = CYCLES};
    double begin = now_ns();
    (void)next_round(vow_int(0), &r);
    MUST(vow_loop_run(loop) == 0);
    double spent = (now_ns() - begin) / CYCLES;
    MUST(r.sum == CYCLES);
    row("cycle", "vow", spent, "ns");
    row("cycle-derived", "vow", spent, "ns");
    row("cycle-turn", "vow", rounds_by_hand(loop), "ns");
    MUST(vow_loop_close(loop) == 0);
}

/* What a million pending links hold: by the pools' own count, and by the
 * resident memory of the process. */
void bench_link_bytes(void)
{
    vow_loop *loop = open_loop();
    vow_loop_stats before, after;
    vow_loop_stats_get(loop, &before);
    double rss = status_bytes("VmRSS:");

    vow_deferred *end;
    vow_future *last = hang_links(vow_promise(loop, &end), LINKS);
    vow_loop_stats_get(loop, &after);
    MUST(after.pending >= LINKS);
    row("link-bytes", "vow",
        (double)(after.pool_bytes - before.pool_bytes) / LINKS, "bytes");
    row("link-rss", "vow", (status_bytes("VmRSS:") - rss) / LINKS, "bytes");

    vow_resolve(end, vow_int(0));
    vow_deferred_unref(end);
    MUST(vow_loop_run_until(loop, last) == 0);
    vow_future_unref(last);
    MUST(vow_loop_close(loop) == 0);
}
