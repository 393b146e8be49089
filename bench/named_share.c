/* SPDX-License-Identifier: MIT */
/* named_share.c - named work in one process: a hot name, distinct names, kept
 * results, and what a name costs.
 *
 * The work is a future that is settled from the start, and everybody reads the
 * result. Nothing is kept unless the case says so, as the peer keeps nothing.
 */
#include "named.h"

struct bench {
    vow_loop *loop;
    vow_authority *authority;
    const vow_share_opts *opts;
    vow_name *names;
    long at; /* of the next name, one at a time */
    long end;
    long runs; /* of the work */
    long sum;  /* of the results that were read */
};

/* An asker with an argument of its own. */
struct asker {
    struct bench *bench;
};

static struct bench open_bench(void)
{
    struct bench b = {.loop = open_loop()};
    VOW_AUTO(vow_future) f = vow_authority_open(b.loop, "memory:", NULL);
    MUST(vow_loop_run_until(b.loop, f) == 0);
    b.authority = vow_authority_ref(vow_as_ptr(vow_get(f)));
    return b;
}

static void close_bench(struct bench *b)
{
    free(b->names);
    close_authority(b->loop, b->authority);
    MUST(vow_loop_close(b->loop) == 0);
}

static vow_future *work(vow_lease *lease, void *bench)
{
    struct bench *b = bench;
    (void)lease;
    b->runs++;
    return vow_resolved(b->loop, vow_int(1));
}

static vow_next read_result(vow_value v, void *bench)
{
    struct bench *b = bench;
    b->sum += vow_as_int(v);
    return vow_ok(vow_nothing());
}

/* The names of the numbers; they are made before the time is taken. */
static void make_names(struct bench *b, long n)
{
    b->names = malloc((size_t)n * sizeof(b->names[0]));
    MUST(b->names != NULL);
    for (long i = 0; i < n; i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "%ld", i);
        b->names[i] = vow_name_of(text);
    }
}

/* ---- one hot name -------------------------------------------------------- */

static void ask_alike(struct bench *b, const vow_name *name)
{
    for (long i = 0; i < ASKERS; i++)
        MUST(vow_done(vow_share(b->authority, name, work, b, NULL), read_result,
                      NULL, b) == 0);
    MUST(vow_loop_run(b->loop) == 0);
}

static vow_future *work_of_asker(vow_lease *lease, void *asker)
{
    return work(lease, ((struct asker *)asker)->bench);
}

static void ask_apart(struct bench *b, const vow_name *name)
{
    static struct asker askers[ASKERS];
    for (long i = 0; i < ASKERS; i++) {
        struct asker *a = &askers[i];
        a->bench = b;
        MUST(vow_done(vow_share(b->authority, name, work_of_asker, a, NULL),
                      read_result, NULL, b) == 0);
    }
    MUST(vow_loop_run(b->loop) == 0);
}

static void hot(struct bench *b, const char *what,
                void (*ask)(struct bench *b, const vow_name *name))
{
    vow_name name = vow_name_of("hot");
    char runs[64];
    for (long i = 0; i < WARMUP / ASKERS; i++)
        ask(b, &name);
    b->runs = 0;
    b->sum = 0;
    double begin = now_ns();
    for (long i = 0; i < ASKS / ASKERS; i++)
        ask(b, &name);
    row(what, "vow", (now_ns() - begin) / ASKS, "ns");
    MUST(b->sum == ASKS);
    (void)snprintf(runs, sizeof(runs), "%s-runs", what);
    row(runs, "vow", (double)b->runs * ASKERS / ASKS, "runs");
}

void bench_share_hot(void)
{
    struct bench b = open_bench();
    hot(&b, "share-hot", ask_alike);
    hot(&b, "share-hot-own", ask_apart);
    close_bench(&b);
}

/* ---- distinct names ------------------------------------------------------ */

static void ask_next(struct bench *b);

static vow_next go_on(vow_value v, void *bench)
{
    struct bench *b = bench;
    b->sum += vow_as_int(v);
    if (b->at < b->end)
        ask_next(b);
    return vow_ok(vow_nothing());
}

static void ask_next(struct bench *b)
{
    const vow_name *name = &b->names[b->at++];
    MUST(vow_done(vow_share(b->authority, name, work, b, b->opts), go_on, NULL,
                  b) == 0);
}

static double one_by_one(struct bench *b, long n)
{
    double begin = now_ns();
    b->end = b->at + n;
    ask_next(b);
    MUST(vow_loop_run(b->loop) == 0);
    return (now_ns() - begin) / (double)n;
}

void bench_share_one(void)
{
    struct bench b = open_bench();
    make_names(&b, WARMUP + ASKS);
    one_by_one(&b, WARMUP);
    row("share-one", "vow", one_by_one(&b, ASKS), "ns");
    MUST(b.sum == WARMUP + ASKS && b.runs == WARMUP + ASKS);
    close_bench(&b);
}

static double in_crowds(struct bench *b, long n)
{
    double begin = now_ns();
    for (long i = 0; i < n; i++) {
        const vow_name *name = &b->names[b->at++];
        MUST(vow_done(vow_share(b->authority, name, work, b, NULL), read_result,
                      NULL, b) == 0);
        if (i % ASKERS == ASKERS - 1)
            MUST(vow_loop_run(b->loop) == 0);
    }
    return (now_ns() - begin) / (double)n;
}

void bench_share_many(void)
{
    struct bench b = open_bench();
    make_names(&b, WARMUP + ASKS);
    in_crowds(&b, WARMUP);
    row("share-many", "vow", in_crowds(&b, ASKS), "ns");
    MUST(b.sum == WARMUP + ASKS && b.runs == WARMUP + ASKS);
    close_bench(&b);
}

/* Fewer names, since they stay. */
void bench_share_kept(void)
{
    const long n = ASKS / 50;
    struct bench b = open_bench();
    b.opts = VOW_SHARE(.ttl_ms = 3600000);
    make_names(&b, n);
    row("share-kept", "vow", one_by_one(&b, n), "ns");
    b.at = 0;
    row("share-cached", "vow", one_by_one(&b, n), "ns");
    MUST(b.sum == 2 * n && b.runs == n);
    close_bench(&b);
}

/* ---- names --------------------------------------------------------------- */

void bench_name(void)
{
    static char texts[ASKERS][32];
    unsigned char all = 0;
    for (int i = 0; i < ASKERS; i++)
        (void)snprintf(texts[i], sizeof(texts[i]), "report:2026-11:%06d", i);
    double begin = now_ns();
    for (int i = 0; i < NAMES; i++)
        all |= vow_name_of(texts[i % ASKERS]).hash[0];
    row("name", "vow", (now_ns() - begin) / NAMES, "ns");
    MUST(all != 0);
}
