/* SPDX-License-Identifier: MIT */
/* sim.c - time, processes, and the order of events.
 *
 * HOW   There is one true time, that of the store. What will happen lies in a
 *       heap; besides, each process has timers on its own loop, by its own
 *       clock. The next of all these is run, and then what it made ready, until
 *       nothing is left. A process that is stopped runs nothing, and its clock
 *       goes on: when it wakes up it is late, as after SIGSTOP.
 */
#include "sim.h"

#include "core/loop_internal.h"

#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { FEWER = 20, EVENTS_MAX = 400000, USUAL = 20000 };
static const int64_t DRIFT_PPM = 9000; /* leases are cut by 10000 */

static void on_unhandled(vow_error *error, const char *site, void *user);
static uint64_t local_ns(const struct sim_node *n);
static uint64_t due_ns(const struct sim_node *n);
static bool step(struct sim *s, uint64_t until_ns);
static void node_close(struct sim_node *n);

/* ---- schedules ---------------------------------------------------------- */

void sim_many(uint32_t count, void (*schedule)(uint64_t seed))
{
    const char *only = getenv("VOW_SCHEDULE");
    const char *all = getenv("VOW_SIM_SCHEDULES");
    uint64_t n = count;
    if (all != NULL)
        n = n * strtoull(all, NULL, 10) / USUAL;
    else if (TEST_ASAN || TEST_TSAN || getenv("VOW_TEST_SLOW") != NULL)
        n /= FEWER;
    uint64_t seed = test_seed();
    uint64_t random = seed;
    if (only != NULL) {
        n = 1;
        seed = strtoull(only, NULL, 10);
    }
    for (uint64_t i = 0; i < (n == 0 ? 1 : n); i++) {
        fprintf(stderr, "VOW_SCHEDULE=%llu (%llu of %llu)\n",
                (unsigned long long)seed, (unsigned long long)i + 1,
                (unsigned long long)n);
        schedule(seed);
        seed = (test_random(&random) & UINT32_MAX) | 1;
    }
}

/* Tokens are drawn from the seed too. */
static uint64_t token_random;

static void fill(void *to, size_t size)
{
    unsigned char *bytes = to;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)test_random(&token_random);
}

static uint32_t fill_word(void)
{
    return (uint32_t)test_random(&token_random);
}

static const char *fill_name(void)
{
    return "sim";
}

void sim_open(struct sim *s, uint64_t seed)
{
    static struct randombytes_implementation from_seed = {
        .implementation_name = fill_name, .random = fill_word, .buf = fill};
    token_random = seed;
    (void)randombytes_set_implementation(&from_seed);
    *s = (struct sim){.seed = seed,
                      .random = seed,
                      .now_ns = SIM_S,
                      .recheck_ms = 500,
                      .timeout_ns = 200 * SIM_MS,
                      .faults = {.delay_us = 2000},
                      .tell = getenv("VOW_SCHEDULE") != NULL};
    test_alloc_init(&s->alloc);
    CHECK_INT_EQ(
        vow__memory_state_new(
            &(struct vow__memory_opts){.alloc = test_alloc_hook(&s->alloc),
                                       .pooled = !TEST_ASAN,
                                       .seed = seed,
                                       .recheck_ms = s->recheck_ms,
                                       .value_max = 1 << 20},
            &s->book),
        0);
}

void sim_close(struct sim *s)
{
    s->closing = true;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        node_close(&s->nodes[i]);
    while (s->events != NULL) { /* messages that are still under way */
        struct sim_event *e = VOW__OUTER(s->events, struct sim_event, node);
        vow__heap_remove(&s->events, &e->node);
        e->fn(s, e);
    }
    sim_names_fini(s);
    vow__memory_state_free(s->book);
    test_alloc_fini(TEST_HERE, &s->alloc);
}

uint64_t sim_draw(struct sim *s, uint64_t n)
{
    return test_random(&s->random) % n;
}

bool sim_chance(struct sim *s, uint32_t of_1000)
{
    return of_1000 > 0 && sim_draw(s, 1000) < of_1000;
}

uint64_t sim_between(struct sim *s, uint64_t from, uint64_t to)
{
    return from + sim_draw(s, to - from + 1);
}

/* ---- telling ------------------------------------------------------------ */

void sim_fail(const char *site, const struct sim *s, const char *format, ...)
{
    char what[600];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    test_fail(site,
              "at %.3f ms: %s\nVOW_SCHEDULE=%llu and this test alone replay it",
              (double)s->now_ns / 1e6, what, (unsigned long long)s->seed);
}

void sim_say(const struct sim *s, const struct sim_node *n, const char *format,
             ...)
{
    va_list args;
    if (!s->tell)
        return;
    fprintf(stderr, "%11.3f ", (double)s->now_ns / 1e6);
    if (n != NULL)
        fprintf(stderr, "p%u ", n->number);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
}

/* ---- processes ---------------------------------------------------------- */

struct sim_node *sim_node_new(struct sim *s)
{
    SIM_CHECK(s, s->n_nodes < SIM_NODES);
    struct sim_node *n = &s->nodes[s->n_nodes];
    *n = (struct sim_node){.sim = s,
                           .number = s->n_nodes++,
                           .born_ns = s->now_ns,
                           .arrival_ns = s->now_ns};
    n->drift_ppm = (int64_t)sim_draw(s, 2 * (uint64_t)DRIFT_PPM) - DRIFT_PPM;
    uint32_t flags = VOW_LOOP_VIRTUAL_TIME;
    if (TEST_ASAN || TEST_TSAN)
        flags |= VOW_LOOP_UNPOOLED;
    CHECK_INT_EQ(
        vow_loop_new(
            VOW_LOOP_OPTS(.flags = flags, .alloc = test_alloc_hook(&s->alloc),
                          .on_unhandled = on_unhandled, .on_unhandled_user = n,
                          .seed = test_random(&s->random) | 1),
            &n->loop),
        0);
    sim_store_init(n);
    sim_say(s, n, "is born, clock %+lld ppm%s", (long long)n->drift_ppm,
            n->instant ? ", instant" : "");
    return n;
}

static void on_unhandled(vow_error *error, const char *site, void *user)
{
    const struct sim_node *n = user;
    if (n->dead || n->sim->loop_errors)
        return;
    sim_fail(site, n->sim, "p%u: nobody handled %s: %s", n->number,
             vow_error_name(vow_error_code(error)), vow_error_message(error));
}

static void node_close(struct sim_node *n)
{
    n->closed = true;
    sim_store_end(n, VOW_ECLOSED);
    sim_store_leave(n, false);
    CHECK_INT_EQ(vow_loop_close(n->loop), 0);
    n->loop = NULL;
}

void sim_crash(struct sim_node *n, bool noticed)
{
    sim_say(n->sim, n, "CRASHES%s", noticed ? ", and the store notices" : "");
    n->dead = true;
    sim_saw_crash(n, noticed);
    if (noticed)
        sim_store_leave(n, true);
    sim_mail(n->sim);
}

void sim_stop(struct sim_node *n, uint64_t ns)
{
    sim_say(n->sim, n, "STOPS for %.3f ms", (double)ns / 1e6);
    n->stopped_ns = n->sim->now_ns + ns;
}

void sim_cut(struct sim_node *n, uint64_t ns)
{
    sim_say(n->sim, n, "is CUT OFF for %.3f ms", (double)ns / 1e6);
    n->cut_ns = n->sim->now_ns + ns;
}

bool sim_up(const struct sim_node *n)
{
    return !n->dead && n->stopped_ns <= n->sim->now_ns;
}

void sim_heal(struct sim *s)
{
    sim_say(s, NULL, "all is well from now on");
    s->faults = (struct sim_faults){.delay_us = 2000};
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        s->nodes[i].stopped_ns = s->now_ns;
        s->nodes[i].cut_ns = s->now_ns;
    }
}

/* ---- time --------------------------------------------------------------- */

uint64_t sim_now_us(const struct sim *s)
{
    return s->now_ns / SIM_US;
}

void sim_at(struct sim *s, struct sim_event *e, uint64_t ns,
            void (*fn)(struct sim *s, struct sim_event *e))
{
    e->fn = fn;
    e->node.key = ns;
    e->node.seq = ++s->seq;
    vow__heap_insert(&s->events, &e->node);
}

static uint64_t local_ns(const struct sim_node *n)
{
    int64_t age = (int64_t)(n->sim->now_ns - n->born_ns);
    return (uint64_t)(age + age / 1000000 * n->drift_ppm +
                      age % 1000000 * n->drift_ppm / 1000000);
}

/* When it has something to do, in true time. */
static uint64_t due_ns(const struct sim_node *n)
{
    const struct sim *s = n->sim;
    if (n->dead || (n->loop->timers == NULL && n->loop->ready == NULL))
        return UINT64_MAX;
    uint64_t now = local_ns(n);
    uint64_t due = n->loop->ready != NULL ? now : n->loop->timers->key;
    uint64_t at = s->now_ns;
    if (due > now) /* a little late is no harm: T1 of timer.c */
        at += (due - now) * 1000000 / (uint64_t)(1000000 + n->drift_ppm) + 2;
    return at > n->stopped_ns ? at : n->stopped_ns;
}

void sim_node_clock(struct sim_node *n)
{
    n->loop->clock.virtual_ns = local_ns(n);
}

bool sim_node_late(struct sim_node *n)
{
    sim_node_clock(n);
    return n->loop->busy || n->loop->ready != NULL ||
           (n->loop->timers != NULL &&
            n->loop->timers->key <= n->loop->clock.virtual_ns);
}

void sim_node_run(struct sim_node *n)
{
    uint32_t turns = 0;
    sim_node_clock(n);
    do {
        (void)vow_loop_turn(n->loop);
        if (++turns > 1000)
            sim_fail(TEST_HERE, n->sim, "p%u does not come to rest", n->number);
    } while (n->loop->ready != NULL ||
             (n->loop->timers != NULL &&
              n->loop->timers->key <= n->loop->clock.virtual_ns));
}

void sim_run(struct sim *s, uint64_t until_ns)
{
    while (step(s, until_ns))
        if (++s->events_run > EVENTS_MAX)
            sim_fail(TEST_HERE, s, "too many events");
}

static bool step(struct sim *s, uint64_t until_ns)
{
    struct sim_node *who = NULL;
    uint64_t next = s->events == NULL ? UINT64_MAX : s->events->key;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        uint64_t due = due_ns(&s->nodes[i]);
        if (due < next) {
            next = due;
            who = &s->nodes[i];
        }
    }
    if (next > until_ns) {
        s->now_ns = until_ns > s->now_ns ? until_ns : s->now_ns;
        return false;
    }
    if (next > s->now_ns)
        s->now_ns = next;
    if (who != NULL) {
        sim_node_run(who);
        return true;
    }
    struct sim_event *e = VOW__OUTER(s->events, struct sim_event, node);
    vow__heap_remove(&s->events, &e->node);
    e->fn(s, e);
    return true;
}

uint64_t sim_delay(struct sim *s)
{
    uint64_t us = sim_between(s, 20, s->faults.delay_us);
    if (sim_chance(s, s->faults.slow))
        us = sim_draw(s, 2 * s->timeout_ns / SIM_US);
    return us * SIM_US;
}
