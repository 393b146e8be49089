/* SPDX-License-Identifier: MIT */
/* etcd.c - the library's own side of `./dev bench etcd`: runs one case.
 *
 * usage: bench_etcd CASE, started by etcd.py, which gives it a member of its
 * own: VOW_BENCH_ETCD is the port. Claims are the store's own step, without an
 * authority; the floor is measured here in turns with ours, on the same server,
 * and gives rows of both. Every claim is of a new name.
 */
#include "etcd.h"
#include "process.h"

#include <pthread.h>
#include <vow.h>

enum {
    CONNECTIONS = 8,
    DEPTH = 64,
    CLAIMS = 1600, /* in a turn */
    MANY_TURNS = 5,
    ONES = 50, /* one at a time, in a turn */
    ONE_TURNS = 20,
    LEASE_MS = 10000
};

static const vow_token token = {"benchmark token"};

int server_port(void)
{
    const char *port = getenv("VOW_BENCH_ETCD");
    MUST(port != NULL);
    return (int)strtol(port, NULL, 10);
}

/* ---- ours ---------------------------------------------------------------- */

struct ours {
    vow_loop *loop;
    vow_store *store;
    long made, end; /* names */
    long answers;   /* to come */
    double *times;  /* of each; NULL: not wanted */
    double begin;   /* of the last */
};

static void claim_next(struct ours *o);

static void on_claimed(int code, const vow_record *r, size_t n, void *user)
{
    struct ours *o = user;
    MUST(code == 0 && n == 1 && r->status == VOW_STATUS_OWNED);
    o->answers--;
    if (o->times != NULL)
        *o->times++ = now_ns() - o->begin;
    if (o->made < o->end)
        claim_next(o);
}

static void claim_next(struct ours *o)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "claim %ld", o->made++);
    vow_claim_request ask = {.name = vow_name_of(text),
                             .token = token,
                             .lease_ms = LEASE_MS,
                             .takeovers = 3,
                             .runner = "bench:1"};
    o->answers++;
    o->begin = now_ns();
    o->store->ops->claim(o->store, &ask, on_claimed, o);
}

static bool idle(void *user)
{
    const struct ours *o = user;
    return o->answers == 0 && o->made == o->end;
}

/* So many in flight, until so many were claimed. */
static double claim_many(struct ours *o, long n, long depth)
{
    o->end = o->made + n;
    double begin = now_ns();
    for (long i = 0; i < depth && o->made < o->end; i++)
        claim_next(o);
    while (!idle(o)) {
        VOW_AUTO(vow_future) moment = vow_delay(o->loop, 1);
        MUST(vow_loop_run_until(o->loop, moment) == 0);
    }
    return now_ns() - begin;
}

static struct ours *open_ours(void)
{
    static struct ours o;
    char url[64];
    (void)snprintf(url, sizeof(url), "etcd://127.0.0.1:%d", server_port());
    o.loop = open_loop();
    VOW_AUTO(vow_future)
    f = vow_store_etcd_open(o.loop, url,
                            VOW_ETCD_OPTS(.connections = CONNECTIONS));
    MUST(vow_loop_run_until(o.loop, f) == 0);
    o.store = vow_as_ptr(vow_get(f));
    claim_many(&o, DEPTH, DEPTH); /* connected, warm */
    return &o;
}

static void close_ours(struct ours *o)
{
    VOW_AUTO(vow_future) f = o->store->ops->close(o->store);
    MUST(vow_loop_run_until(o->loop, f) == 0);
    MUST(vow_loop_close(o->loop) == 0);
}

/* ---- theirs -------------------------------------------------------------- */

struct client {
    pthread_t thread;
    struct gateway *gateway;
    long first, n;
    long long lease;
};

static void *run_client(void *user)
{
    struct client *c = user;
    for (long i = 0; i < c->n; i++)
        gateway_claim(c->gateway, c->first + i, c->lease);
    return NULL;
}

/* Over as many connections as ours. */
static double bare_many(struct client *clients, long *number)
{
    double begin = now_ns();
    for (int i = 0; i < CONNECTIONS; i++) {
        struct client *c = &clients[i];
        c->first = *number;
        c->n = CLAIMS / CONNECTIONS;
        *number += c->n;
        MUST(pthread_create(&c->thread, NULL, run_client, c) == 0);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        MUST(pthread_join(clients[i].thread, NULL) == 0);
    return now_ns() - begin;
}

/* ---- in turns ------------------------------------------------------------ */

static void bench_claim(void)
{
    static struct client clients[CONNECTIONS];
    double ours = 0, theirs = 0; /* seconds */
    long number = 0;
    struct ours *o = open_ours();
    for (int i = 0; i < CONNECTIONS; i++) {
        clients[i].gateway = gateway_open(server_port());
        clients[i].lease = gateway_lease(clients[i].gateway);
    }
    for (int i = 0; i < MANY_TURNS; i++) {
        ours += claim_many(o, CLAIMS, DEPTH) / 1e9;
        theirs += bare_many(clients, &number) / 1e9;
    }
    row("claim", "vow", CLAIMS * MANY_TURNS / ours, "names/s");
    row("claim", "c-http", CLAIMS * MANY_TURNS / theirs, "names/s");
    for (int i = 0; i < CONNECTIONS; i++)
        gateway_close(clients[i].gateway);
    close_ours(o);
}

static void bench_claim_one(void)
{
    static double ours[ONES * ONE_TURNS], theirs[ONES * ONE_TURNS];
    long number = 1000000;
    struct gateway *g = gateway_open(server_port());
    long long lease = gateway_lease(g);
    struct ours *o = open_ours();
    o->times = ours;
    for (int i = 0; i < ONE_TURNS; i++) {
        claim_many(o, ONES, 1);
        for (int k = 0; k < ONES; k++) {
            double begin = now_ns();
            gateway_claim(g, number++, lease);
            theirs[i * ONES + k] = now_ns() - begin;
        }
    }
    MUST(o->times == ours + COUNT(ours));
    row("claim-one", "vow", percentile(ours, COUNT(ours), 50) / 1e3, "us");
    row("claim-one", "c-http", percentile(theirs, COUNT(theirs), 50) / 1e3,
        "us");
    gateway_close(g);
    close_ours(o);
}

static const struct bench_case cases[] = {
    {"claim", bench_claim},
    {"claim-one", bench_claim_one},
    {"pool", bench_pool},
};

int main(int argc, char **argv)
{
    return run_ours(argc, argv, cases, COUNT(cases));
}
