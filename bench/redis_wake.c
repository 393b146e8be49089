/* SPDX-License-Identifier: MIT */
/* redis_wake.c - between processes: how soon a waiting one has the result,
 * beside a bare message, and one that a script sends which does the least that
 * a commit must; and a name that a thousand callers in eight processes ask for
 * at once.
 *
 * The processes tell each other by a page in common how far they are, so that
 * the clock starts when the other one surely waits and has come to rest.
 */
#include "redis.h"

enum {
    WAKES = 400,
    REST_MS = 1,
    LETTER = 120, /* bytes, as ours is */
    PROCESSES = 8,
    CALLERS = 1000,
    WORK_MS = 300
};

/* The page. Rounds are counted from 1. */
struct page {
    uint32_t flags;    /* of the authorities */
    atomic_long runs;  /* the round whose work has begun */
    atomic_long waits; /* the round the other is registered for */
    atomic_long ended; /* the round the other has the result of */
    atomic_long heard; /* the letters it has, two of each round */
    double end_ns;
};

/* One of the two processes. */
struct process {
    struct page *page;
    vow_loop *loop;
    vow_authority *authority;
    struct bare *bare;
    vow_deferred *end; /* of the work */
    long round;
};

static vow_future *open_ended(vow_lease *lease, void *process)
{
    struct process *p = process;
    (void)lease;
    vow_future *f = vow_promise(p->loop, &p->end);
    atomic_store(&p->page->runs, p->round);
    return f;
}

/* On the authority's thread. */
static void on_joined(const vow_event *e, void *process)
{
    struct process *p = process;
    if (e->kind == VOW_EVENT_JOINED)
        atomic_store(&p->page->waits, p->round);
}

static void wait_for(vow_loop *loop, atomic_long *word, long round)
{
    while (atomic_load(word) < round)
        MUST(vow_sleep(loop, 1) == 0);
}

static void run_process(struct process *p, vow_fiber_fn body)
{
    p->loop = open_loop();
    p->bare = bare_open(server_socket());
    p->authority = open_authority(p->loop, p->page->flags, on_joined, p);
    VOW_AUTO(vow_future) f = vow_async(p->loop, body, p);
    MUST(vow_loop_run_until(p->loop, f) == 0);
    close_authority(p->loop, p->authority);
    bare_close(p->bare);
}

/* ---- wake-ups ------------------------------------------------------------ */

static vow_future *never(vow_lease *lease, void *process)
{
    struct process *p = process;
    (void)lease;
    return vow_refused(p->loop, VOW_EINVAL, "the other one does it");
}

static vow_next wait_many(void *process)
{
    struct process *p = process;
    (void)ASK(p->bare, "SUBSCRIBE", "letters");
    for (p->round = 1; p->round <= WAKES; p->round++) {
        vow_name name = name_of_number("round", p->round);
        wait_for(p->loop, &p->page->runs, p->round);
        MUST(vow_await_drop(vow_share(p->authority, &name, never, p, NULL)) ==
             0);
        p->page->end_ns = now_ns();
        atomic_store(&p->page->ended, p->round);
        /* The floors: this thread in recv() instead. */
        for (int i = 0; i < 2; i++) {
            MUST(strlen(bare_read(p->bare)) == LETTER);
            p->page->end_ns = now_ns();
            atomic_fetch_add(&p->page->heard, 1);
        }
    }
    return vow_ok(vow_nothing());
}

static void be_waiter(void *page)
{
    struct process p = {.page = page};
    run_process(&p, wait_many);
}

struct waker {
    struct process process; /* first */
    char script[41];        /* its digest */
    double wake_ns[WAKES];
    double letter_ns[WAKES];
    double script_ns[WAKES];
};

/* What runs, by this token and epoch, has a result that ends; who waits is
 * told, and does no more. */
static const char least[] =
    "local clock = redis.call('TIME')\n"
    "local f = redis.call('HMGET', KEYS[1], 's', 'e', 'o')\n"
    "if f[1] ~= 'R' or f[2] ~= ARGV[2] or f[3] ~= ARGV[1] then\n"
    "    return {5}\n"
    "end\n"
    "local waiting = redis.call('HGETALL', KEYS[2])\n"
    "redis.call('HSET', KEYS[1], 's', 'D', 't', clock[1], 'v', '')\n"
    "redis.call('PEXPIRE', KEYS[1], ARGV[3])\n"
    "for i = 1, #waiting, 2 do\n"
    "    redis.call('PUBLISH', waiting[i], ARGV[4])\n"
    "end\n"
    "redis.call('DEL', KEYS[2])\n"
    "return {1}";

static double wake_once(struct process *p)
{
    struct page *page = p->page;
    vow_name name = name_of_number("round", p->round);
    vow_future *f = vow_share(p->authority, &name, open_ended, p, NULL);
    wait_for(p->loop, &page->waits, p->round);
    MUST(vow_sleep(p->loop, REST_MS) == 0);
    double begin = now_ns();
    MUST(vow_resolve_drop(p->end, vow_nothing()));
    MUST(vow_await_drop(f) == 0);
    wait_for(p->loop, &page->ended, p->round);
    return page->end_ns - begin;
}

static double letter_once(struct process *p, const char *letter)
{
    MUST(vow_sleep(p->loop, REST_MS) == 0);
    double begin = now_ns();
    (void)ASK(p->bare, "PUBLISH", "letters", letter);
    wait_for(p->loop, &p->page->heard, 2 * p->round - 1);
    return p->page->end_ns - begin;
}

static double script_once(struct waker *w, const char *letter)
{
    struct process *p = &w->process;
    char record[64];
    char waits[64];
    (void)snprintf(record, sizeof(record), "least:{%ld}", p->round);
    (void)snprintf(waits, sizeof(waits), "least:{%ld}:w", p->round);
    (void)ASK(p->bare, "HSET", record, "s", "R", "o", "me", "e", "1", "m", "0",
              "a", "0", "l", "label", "r", "runner", "d", "1", "L", "1");
    (void)ASK(p->bare, "HSET", waits, "letters", "token");
    MUST(vow_sleep(p->loop, REST_MS) == 0);
    double begin = now_ns();
    (void)ASK(p->bare, "EVALSHA", w->script, "2", record, waits, "me", "1",
              "20000", letter);
    wait_for(p->loop, &p->page->heard, 2 * p->round);
    return p->page->end_ns - begin;
}

static vow_next wake_many(void *process)
{
    struct waker *w = process;
    struct process *p = &w->process;
    char letter[LETTER + 1] = {0};
    memset(letter, 'x', LETTER);
    (void)snprintf(w->script, sizeof(w->script), "%s",
                   ASK(p->bare, "SCRIPT", "LOAD", least));
    for (p->round = 1; p->round <= WAKES; p->round++) {
        w->wake_ns[p->round - 1] = wake_once(p);
        w->letter_ns[p->round - 1] = letter_once(p, letter);
        w->script_ns[p->round - 1] = script_once(w, letter);
    }
    return vow_ok(vow_nothing());
}

static void report_times(const char *what, const char *peer, double *ns)
{
    static const struct {
        const char *name;
        double percent;
    } parts[] = {{"p50", 50}, {"p99", 99}};
    for (size_t i = 0; i < COUNT(parts); i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "%s-%s", what, parts[i].name);
        row(name, peer, percentile(ns, WAKES, parts[i].percent) / 1e3, "us");
    }
}

static void wake(const char *what, uint32_t flags)
{
    static struct waker w;
    struct page *page = new_shared(sizeof(*page));
    page->flags = flags;
    w.process = (struct process){.page = page};
    pid_t waiter = start_child(be_waiter, page);
    run_process(&w.process, wake_many);
    end_child(waiter);
    MUST(vow_loop_close(w.process.loop) == 0);
    report_times(what, "vow", w.wake_ns);
    report_times(what, "c-redis", w.letter_ns);
    if (flags == VOW_AUTHORITY_HERE)
        report_times("wake-floor", "c-redis", w.script_ns);
}

void bench_wake(void)
{
    wake("wake", VOW_AUTHORITY_HERE);
    wake("wake-thread", 0);
}

/* ---- one hot name -------------------------------------------------------- */

struct crowd {
    atomic_int ready;
    atomic_bool go;
    atomic_long runs;
    atomic_long served;
};

struct member {
    struct crowd *crowd;
    vow_loop *loop;
};

static vow_future *some_work(vow_lease *lease, void *member)
{
    struct member *m = member;
    (void)lease;
    atomic_fetch_add(&m->crowd->runs, 1);
    return vow_delay(m->loop, WORK_MS);
}

static vow_next be_served(vow_value v, void *member)
{
    struct member *m = member;
    (void)v;
    atomic_fetch_add(&m->crowd->served, 1);
    return vow_ok(vow_nothing());
}

static void be_one_of_eight(void *crowd)
{
    struct member m = {.crowd = crowd, .loop = open_loop()};
    vow_authority *a = open_authority(m.loop, 0, NULL, NULL);
    vow_name name = vow_name_of("hot");
    VOW_AUTO(vow_future) f = vow_authority_peek(a, &name, 1);
    MUST(vow_loop_run_until(m.loop, f) == 0); /* connected */
    atomic_fetch_add(&m.crowd->ready, 1);
    while (!atomic_load(&m.crowd->go))
        nap_us(1000);
    for (int i = 0; i < CALLERS / PROCESSES; i++)
        MUST(vow_done(vow_share(a, &name, some_work, &m, NULL), be_served, NULL,
                      &m) == 0);
    MUST(vow_loop_run(m.loop) == 0);
    close_authority(m.loop, a);
}

/* Calls of the script that are in what a server has told of itself since, up to
 * the mark that is sent last. */
static long count_calls(struct bare *monitor, struct bare *b, const char *sha)
{
    long calls = 0;
    const char *line = "";
    (void)ASK(b, "ECHO", "the end of it");
    while (strstr(line, "the end of it") == NULL) {
        line = bare_read(monitor);
        calls += strstr(line, sha) != NULL;
    }
    return calls;
}

void bench_hot(void)
{
    char sha[41];
    pid_t pids[PROCESSES];
    struct crowd *c = new_shared(sizeof(*c));
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = start_child(be_one_of_eight, c);
    struct bare *b = bare_open(server_socket());
    struct bare *monitor = bare_open(server_socket());
    bare_load_claim(b, sha);
    while (atomic_load(&c->ready) < PROCESSES)
        nap_us(1000);
    (void)ASK(monitor, "MONITOR");
    atomic_store(&c->go, true);
    for (int i = 0; i < PROCESSES; i++)
        end_child(pids[i]);
    MUST(atomic_load(&c->served) == CALLERS);
    row("hot-runs", "vow", (double)atomic_load(&c->runs), "runs");
    row("hot-claims", "vow", (double)count_calls(monitor, b, sha), "claims");
    bare_close(monitor);
    bare_close(b);
}
