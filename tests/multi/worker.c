/* SPDX-License-Identifier: MIT */
/* worker.c - one process of a fault campaign: asks for named work and places,
 * and writes down what happened.
 *
 *   worker STORE HISTORY SECONDS SEED
 *
 * It asks for names at random, does the work if it is its turn, takes places
 * in a pool under a limit and a rate, and appends a line to HISTORY for each
 * event, whole in one write. tests/multi/campaign reads them. When the time is
 * over it asks for nothing more, waits until all it asked for is settled, and
 * says so.
 *
 * VOW_DIE_AT=STEP:before|after:N  kills itself by SIGKILL at the N-th step of
 * that kind (claim, pulse, commit, acquire, release, renew): the store it uses
 * is wrapped by one that counts. VOW_FORK=1: a child that outlives it inherits
 * everything. VOW_STAMPEDE=FILE: ask five times for one name when the file
 * appears, and nothing else. VOW_STOP=FILE: the time is over when the file
 * appears. VOW_LONG=1: work takes longer than the time
 * between pulses. VOW_TRACE=1: what was asked of the store and what it said is
 * written down too (worker_trace.h), and some results are kept longer.
 * VOW_PATIENCE=S: when the time is over, what was asked for has so long to be
 * settled (20), with a store that answers.
 *
 * VOW_MODE=mixed: names in all modes, the mode by their first letter: n is
 * shared, f fenced, o once; and which leases are trusted is written down every
 * tick. A name of mode once is asked for in some seconds of its life, and its
 * result stays for longer than that: nothing but a resolution lets it begin
 * twice. VOW_MODE=once: only such, many at a time. VOW_MODE=resolve: asks for
 * nothing, and settles what is in doubt (worker_doubt.h). */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <vow.h>

enum { ASKERS = 8, HOT = 6, LEASE_MS = 1000, POOL_LIMIT = 4, RATE = 40 };
enum { LABEL = 32 };
enum { RATE_WINDOW_MS = 1000, NS_PER_MS = 1000000, NS_PER_S = 1000000000 };
/* Names of mode once: so many new ones, every so many seconds, and some of that
 * many rounds before are asked for again. */
enum { ONCE_FEW = 4, ONCE_MANY = 40, ONCE_ROUND_S = 2, ONCE_ROUNDS = 8 };
enum { ONCE_TTL_MS = 60000, ONCE_WORK_MS = 1500, ONCE_ASKERS = 24 };
enum { STAMPEDE_TTL_MS = 600000 }; /* longer than the last one takes */
enum { LATE_NS = 250 * NS_PER_MS, MOST_S = 180 };

static struct {
    vow_loop *loop;
    vow_authority *authority;
    vow_pool *pool;
    int history;
    uint64_t seed;
    uint64_t until_ns;
    uint64_t work_ms; /* takes at most so long */
    uint64_t patience_s;
    unsigned pending;
    bool trace;
    bool mixed;   /* names in all modes */
    bool once;    /* only such, */
    bool resolve; /* or none */
    struct run *runs;
    bool unanswered; /* the store did not answer somebody */
} me;

static void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void note_at(uint64_t ns, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool time_is_over(void);
static void tick(void);
static uint64_t now_ns(void);
static uint64_t any(uint64_t below);

#include "worker_trace.h"

#include "worker_die.h"
#include "worker_doubt.h"

struct asker {
    uint32_t mode;
    vow_name name;
    char label[LABEL];
    vow_share_info info;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static uint64_t any(uint64_t below)
{
    me.seed += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = me.seed;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % below;
}

static void note_line(uint64_t ns, const char *format, va_list args)
{
    char line[256];
    int n =
        snprintf(line, sizeof(line), "%" PRIu64 " %ld ", ns, (long)getpid());
    n += vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, args);
    line[n++] = '\n';
    if (write(me.history, line, (size_t)n) != n)
        _exit(9);
}

static void note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note_line(now_ns(), format, args);
    va_end(args);
}

static void note_at(uint64_t ns, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note_line(ns, format, args);
    va_end(args);
}

static bool time_is_over(void)
{
    const char *stop = getenv("VOW_STOP");
    if (stop != NULL && me.until_ns > now_ns() && access(stop, F_OK) == 0)
        me.until_ns = now_ns();
    return now_ns() >= me.until_ns;
}

/* ---- the work ----------------------------------------------------------- */

struct run {
    struct run *next;
    vow_lease *lease;
    char label[LABEL];
    uint64_t fence;
};

/* As of when that is asked: the process may be stopped behind it, and what is
 * trusted then was trusted before. */
static void note_trust(const struct run *r)
{
    uint64_t ns = now_ns();
    uint64_t left_ms = vow_lease_left_ms(r->lease);
    if (left_ms > 0)
        note_at(ns, "trusts %s %" PRIu64 " %" PRIu64, r->label, r->fence,
                left_ms);
}

static vow_next work_done(vow_value v, void *user)
{
    struct run *r = user;
    char text[96];
    vow_bytes *b;
    (void)v;
    if (any(100) == 0 && getenv("VOW_STAMPEDE") == NULL)
        return vow_fail_code(VOW_EIO, "this run fails");
    int n = snprintf(text, sizeof(text), "%s/%" PRIu64 "/%ld", r->label,
                     r->fence, (long)getpid());
    if (vow_bytes_new(me.loop, text, (size_t)n, &b) < 0)
        return vow_fail_code(VOW_ENOMEM, NULL);
    uint64_t ns = now_ns();
    note_at(ns, "made %s %" PRIu64 " %" PRIu64 " %s", r->label, r->fence,
            vow_lease_left_ms(r->lease), text);
    return vow_ok(vow_bytes_value(b));
}

static void run_free(void *user)
{
    struct run *r = user;
    struct run **at = &me.runs;
    note("ended %s %" PRIu64, r->label, r->fence);
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    vow_lease_unref(r->lease);
    free(r);
}

static vow_next settled(vow_value v, void *user)
{
    struct run *r = user;
    (void)v;
    note("accepted %s %" PRIu64, r->label, r->fence);
    return vow_ok(vow_nothing());
}

static vow_next not_settled(vow_error *e, void *user)
{
    struct run *r = user;
    note("late %s %" PRIu64 " %s", r->label, r->fence,
         vow_error_name(vow_error_code(e)));
    return vow_ok(vow_nothing());
}

static vow_future *work(vow_lease *lease, void *arg)
{
    const struct asker *a = arg;
    struct run *r = calloc(1, sizeof(*r));
    struct run *copy = calloc(1, sizeof(*r));
    if (r == NULL || copy == NULL)
        abort();
    r->lease = vow_lease_ref(lease);
    r->fence = vow_lease_fence(lease);
    (void)snprintf(r->label, sizeof(r->label), "%s", a->label);
    *copy = *r;
    r->next = me.runs;
    me.runs = r;
    note("start %s %" PRIu64 " %u", r->label, r->fence,
         vow_lease_attempt(lease));
    vow_step told = {settled, not_settled, copy, free};
    VOW_AUTO(vow_future) at_store = vow_lease_settled(lease);
    vow_future_unref(vow_chain(at_store, &told, 1));
    VOW_AUTO(vow_future) wait = vow_delay(me.loop, 1 + any(me.work_ms));
    vow_step end = {work_done, NULL, r, run_free};
    return vow_chain(wait, &end, 1);
}

/* ---- asking ------------------------------------------------------------- */

static void ask(struct asker *a);

static void ask_or_end(struct asker *a)
{
    me.pending--;
    if (!time_is_over())
        ask(a);
    else
        free(a);
}

static vow_next rested(vow_value v, void *user)
{
    (void)v;
    ask_or_end(user);
    return vow_ok(vow_nothing());
}

static void again(struct asker *a)
{
    if (!me.trace)
        ask_or_end(a);
    else if (vow_done(vow_delay(me.loop, 1 + any(40)), rested, NULL, a) < 0)
        abort();
}

static vow_next got(vow_value v, void *user)
{
    struct asker *a = user;
    vow_bytes *b = vow_as_bytes(v);
    note("got %s %" PRIu64 " %u %.*s", a->label, a->info.fence, a->info.role,
         b == NULL ? 0 : (int)vow_bytes_size(b),
         b == NULL ? "" : (const char *)vow_bytes_data(b));
    again(a);
    return vow_ok(vow_nothing());
}

static vow_next failed(vow_error *e, void *user)
{
    struct asker *a = user;
    note("error %s %s", a->label, vow_error_name(vow_error_code(e)));
    again(a);
    return vow_ok(vow_nothing());
}

/* One of these seconds, or of some before; the same ones for all. */
static uint64_t once_number(void)
{
    uint64_t names = me.once ? ONCE_MANY : ONCE_FEW;
    uint64_t age = any(3) == 0 ? any(ONCE_ROUNDS) : 0;
    uint64_t round = now_ns() / NS_PER_S / ONCE_ROUND_S;
    return (round < age ? 0 : round - age) * names + any(names);
}

static void choose(struct asker *a)
{
    static const uint32_t modes[] = {VOW_SHARED, VOW_SHARED, VOW_SHARED,
                                     VOW_FENCED, VOW_FENCED, VOW_ONCE};
    a->mode = me.once    ? VOW_ONCE
              : me.mixed ? modes[any(sizeof(modes) / sizeof(modes[0]))]
                         : VOW_SHARED;
    uint64_t n = a->mode == VOW_ONCE ? once_number() : any(HOT);
    (void)snprintf(a->label, sizeof(a->label), "%c%" PRIu64, "nfo"[a->mode], n);
    a->name = vow_name_of(a->label);
    remember(&a->name, a->label);
}

static void ask(struct asker *a)
{
    choose(a);
    a->info = (vow_share_info){0};
    me.pending++;
    vow_share_opts o =
        *VOW_SHARE(.label = a->label, .info = &a->info, .mode = a->mode,
                   .ttl_ms = any(3) == 0 ? 30 * (me.trace ? 1 + any(8) : 1) : 0,
                   .takeovers = 1000, .store_down = VOW_DOWN_WAIT);
    if (a->mode != VOW_SHARED && any(2) == 0)
        o.store_down = VOW_DOWN_DEFAULT;
    if (a->mode == VOW_ONCE)
        o.ttl_ms = o.fail_ttl_ms = ONCE_TTL_MS;
    if (vow_done(vow_share(me.authority, &a->name, work, a, &o), got, failed,
                 a) < 0)
        abort();
}

/* ---- places ------------------------------------------------------------- */

struct place {
    vow_grant *grant;
    unsigned weight;
};

static void take_place(void);

static vow_next give_back(vow_value v, void *user)
{
    struct place *p = user;
    (void)v;
    note("leaves %" PRIu64 " %u", p->grant->fence, p->weight);
    vow_grant_release(p->grant);
    me.pending--;
    free(p);
    take_place();
    return vow_ok(vow_nothing());
}

static vow_next lost_place(vow_error *e, void *user)
{
    (void)e;
    note("lostplace %" PRIu64, (uint64_t)(uintptr_t)user);
    return vow_ok(vow_nothing());
}

static vow_next entered(vow_value v, void *user)
{
    struct place *p = user;
    p->grant = vow_grant_take(v);
    note("enters %" PRIu64 " %u", p->grant->fence, p->weight);
    if (p->grant->lost != NULL)
        vow_future_unref(vow_catch(p->grant->lost, lost_place,
                                   (void *)(uintptr_t)p->grant->fence));
    if (vow_done(vow_delay(me.loop, 1 + any(me.work_ms)), give_back, NULL, p) <
        0)
        abort();
    return vow_ok(vow_nothing());
}

/* Why there is no place: whole when it is not the last one's reason. */
static void note_trouble(const vow_error *e)
{
    static char last[160];
    char text[sizeof(last)];
    (void)vow_error_describe(e, text, sizeof(text));
    if (strcmp(text, last) != 0)
        note("trouble %s", text);
    memcpy(last, text, sizeof(last));
}

static vow_next no_place(vow_error *e, void *user)
{
    note("noplace %s", vow_error_name(vow_error_code(e)));
    note_trouble(e);
    free(user);
    me.pending--;
    take_place(); /* which waits a little first */
    return vow_ok(vow_nothing());
}

static vow_next ask_place(vow_value v, void *user)
{
    (void)v;
    struct place *p = user;
    if (vow_done(vow_pool_acquire(me.pool, NULL, p->weight), entered, no_place,
                 p) < 0)
        abort();
    return vow_ok(vow_nothing());
}

static void take_place(void)
{
    if (time_is_over())
        return;
    struct place *p = calloc(1, sizeof(*p));
    if (p == NULL)
        abort();
    p->weight = 1 + (unsigned)any(3);
    me.pending++;
    if (vow_done(vow_delay(me.loop, 1 + any(10)), ask_place, NULL, p) < 0)
        abort();
}

/* ---- the whole ---------------------------------------------------------- */

/* Many at once for one name: five askers, when the file appears. */
static void stampede(const char *go)
{
    while (access(go, F_OK) != 0)
        (void)usleep(2000);
    me.until_ns = now_ns();
    for (int i = 0; i < 5; i++) {
        struct asker *a = calloc(1, sizeof(*a));
        if (a == NULL)
            abort();
        (void)snprintf(a->label, sizeof(a->label), "one");
        a->name = vow_name_of(a->label);
        me.pending++;
        vow_share_opts o =
            *VOW_SHARE(.label = a->label, .info = &a->info,
                       .ttl_ms = STAMPEDE_TTL_MS, .store_down = VOW_DOWN_WAIT);
        if (vow_done(vow_share(me.authority, &a->name, work, a, &o), got,
                     failed, a) < 0)
            abort();
    }
}

static bool open_all(const char *address)
{
    VOW_AUTO(vow_future) opened = vow_store_open(me.loop, address);
    if (vow_loop_run_until(me.loop, opened) < 0) {
        char text[256];
        (void)vow_error_describe(vow_error_of(opened), text, sizeof(text));
        note("cannot %s", text);
        return false;
    }
    vow_store *store = vow_as_ptr(vow_get(opened));
    make_deadly(store);
    if (me.trace)
        listen_to(store);
    VOW_AUTO(vow_future)
    f = vow_authority_open(me.loop, NULL,
                           VOW_AUTHORITY(.store = store, .lease_ms = LEASE_MS,
                                         .flags = VOW_AUTHORITY_HERE));
    if (vow_loop_run_until(me.loop, f) < 0)
        return false;
    me.authority = vow_authority_ref(vow_as_ptr(vow_get(f)));
    vow_pool_limits limits = {.concurrent = POOL_LIMIT,
                              .rate = RATE,
                              .window_us = RATE_WINDOW_MS * 1000};
    return vow_pool_open(me.authority, "campaign", VOW_POOL(.limits = limits),
                         &me.pool) == 0;
}

/* How many descriptors are open, when that was asked for. */
static void note_descriptors(const char *when)
{
    DIR *open_ones = me.trace ? opendir("/proc/self/fd") : NULL;
    unsigned n = 0;
    if (open_ones == NULL)
        return;
    while (readdir(open_ones) != NULL)
        n++;
    (void)closedir(open_ones);
    note("descriptors %s %u", when, n);
}

/* It runs, whatever the store does: a gap tells that it did not. */
static void tick(void)
{
    static uint64_t last_ns;
    if (now_ns() < last_ns + UINT64_C(100) * NS_PER_MS)
        return;
    last_ns = now_ns();
    note("tick");
    for (struct run *r = me.mixed ? me.runs : NULL; r != NULL; r = r->next)
        note_trust(r);
}

/* A waiter is lost who waits for so long while the store answers, and while
 * this process runs: time in which either did not counts only in the end. */
static void wait_for_all(void)
{
    uint64_t patient_ns = 0;
    while (me.pending > 0 && patient_ns < me.patience_s * NS_PER_S) {
        uint64_t began_ns = now_ns();
        tick();
        VOW_AUTO(vow_future) wait = vow_delay(me.loop, 5);
        (void)vow_loop_run_until(me.loop, wait);
        uint64_t took_ns = now_ns() - began_ns;
        if (!time_is_over() || me.unanswered || took_ns > LATE_NS)
            patient_ns = 0;
        else
            patient_ns += took_ns;
        me.unanswered = false;
        if (now_ns() > me.until_ns + (me.patience_s + MOST_S) * NS_PER_S)
            break;
    }
    note("pending %u", me.pending);
}

static void read_environment(void)
{
    const char *mode = getenv("VOW_MODE");
    me.once = mode != NULL && strcmp(mode, "once") == 0;
    me.mixed = me.once || (mode != NULL && strcmp(mode, "mixed") == 0);
    me.resolve = mode != NULL && strcmp(mode, "resolve") == 0;
    me.work_ms = getenv("VOW_LONG") == NULL ? 40 : 700;
    if (me.once)
        me.work_ms = ONCE_WORK_MS;
    me.trace = getenv("VOW_TRACE") != NULL;
    const char *patience = getenv("VOW_PATIENCE");
    me.patience_s = patience == NULL ? 20 : strtoull(patience, NULL, 10);
}

static void begin_work(void)
{
    const char *go = getenv("VOW_STAMPEDE");
    if (go != NULL)
        stampede(go);
    int askers = me.once ? ONCE_ASKERS : ASKERS;
    for (int i = 0; go == NULL && !me.resolve && i < askers; i++) {
        struct asker *a = calloc(1, sizeof(*a));
        if (a == NULL)
            abort();
        ask(a);
    }
    for (int i = 0; go == NULL && !me.resolve && !me.once && i < 2; i++)
        take_place();
    if (me.resolve)
        resolve_doubts();
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    me.history = open(argv[2], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    me.seed = strtoull(argv[4], NULL, 10);
    if (me.history < 0 || vow_loop_new(NULL, &me.loop) < 0)
        return 2;
    read_environment();
    note("opens");
    note_descriptors("before");
    while (!open_all(argv[1])) /* the folder may be in trouble */
        (void)usleep(20000);
    me.until_ns =
        now_ns() + (uint64_t)(strtod(argv[3], NULL) * (double)NS_PER_S);
    note(me.resolve ? "looks" : "asks");
    begin_work();
    if (getenv("VOW_FORK") != NULL && fork() == 0) {
        (void)sleep(2);
        _exit(0);
    }
    wait_for_all();
    note_descriptors("within");
    VOW_AUTO(vow_future) closed = vow_authority_close(me.authority);
    (void)vow_loop_run_until(me.loop, closed);
    note_descriptors("after");
    note("closed");
    return me.pending > 0;
}
