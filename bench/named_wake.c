/* SPDX-License-Identifier: MIT */
/* named_wake.c - between processes: how soon a waiting one has the result, and
 * how soon one takes over when the runner is killed.
 *
 * The processes tell each other by a page in common how far they are, so that
 * the clock starts when the other one surely waits and has come to rest.
 */
#include "named.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAKES = 400, KILLS = 40, REST_MS = 1, LETTER = 33 };

/* The page. Rounds are counted from 1. */
struct page {
    const char *what; /* is measured */
    const char *folder;
    uint32_t flags;    /* of the authorities */
    int ends[2];       /* of a pair of datagram sockets */
    int floor_ends[2]; /* the same, for the floor */
    atomic_long runs;  /* the round whose work has begun */
    atomic_long waits; /* the round the other is registered for */
    atomic_long ended; /* the round the other has the result of */
    atomic_long least; /* the round the other has registered at the floor */
    double begin_ns;
    double end_ns;
};

/* One of the two processes. */
struct process {
    struct page *page;
    vow_loop *loop;
    vow_authority *authority;
    struct wake_floor *floor;
    vow_deferred *end; /* of the work */
    long round;
};

static vow_name name_of_round(const struct process *p, const char *kind)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "%s %s %ld", p->page->what, kind,
                   p->round);
    return vow_name_of(text);
}

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
    p->authority =
        open_authority(p->loop, p->page->folder, p->page->flags, on_joined, p);
    VOW_AUTO(vow_future) f = vow_async(p->loop, body, p);
    MUST(vow_loop_run_until(p->loop, f) == 0);
    close_authority(p->loop, p->authority);
}

/* ---- wake-ups ------------------------------------------------------------ */

static vow_future *never(vow_lease *lease, void *process)
{
    struct process *p = process;
    (void)lease;
    return vow_refused(p->loop, VOW_EINVAL, "the other one does it");
}

static void open_floor(struct process *p, bool sends)
{
    const struct page *page = p->page;
    p->floor = floor_open(page->folder, page->floor_ends[sends ? 0 : 1], sends,
                          WAKES, page->flags != VOW_AUTHORITY_HERE);
}

/* The floors: this thread in recv(), or read(), instead. */
static void wait_at_floors(struct process *p)
{
    char letter[LETTER];
    struct page *page = p->page;
    vow_name name = name_of_round(p, "waiter");
    MUST(recv(page->ends[1], letter, LETTER, 0) == LETTER);
    page->end_ns = now_ns();
    MUST(send(page->ends[1], letter, LETTER, 0) == LETTER);
    wait_for(p->loop, &page->least, 2 * p->round - 1);
    floor_register(p->floor, &name);
    atomic_store(&page->least, 2 * p->round);
    floor_receive(p->floor);
    page->end_ns = now_ns();
    MUST(send(page->ends[1], letter, LETTER, 0) == LETTER);
}

static vow_next wait_many(void *process)
{
    struct process *p = process;
    open_floor(p, false);
    for (p->round = 1; p->round <= WAKES; p->round++) {
        vow_name name = name_of_round(p, "round");
        wait_for(p->loop, &p->page->runs, p->round);
        MUST(vow_await_drop(vow_share(p->authority, &name, never, p, NULL)) ==
             0);
        p->page->end_ns = now_ns();
        atomic_store(&p->page->ended, p->round);
        wait_at_floors(p);
    }
    floor_close(p->floor);
    return vow_ok(vow_nothing());
}

static void be_waiter(void *page)
{
    struct process p = {.page = page};
    run_process(&p, wait_many);
}

struct waker {
    struct process process; /* first */
    double wake_ns[WAKES];
    double ping_ns[WAKES];
    double least_ns[WAKES];
};

static double wake_once(struct process *p)
{
    struct page *page = p->page;
    vow_name name = name_of_round(p, "round");
    vow_future *f = vow_share(p->authority, &name, open_ended, p, NULL);
    wait_for(p->loop, &page->waits, p->round);
    MUST(vow_sleep(p->loop, REST_MS) == 0);
    page->begin_ns = now_ns();
    MUST(vow_resolve_drop(p->end, vow_nothing()));
    MUST(vow_await_drop(f) == 0);
    wait_for(p->loop, &page->ended, p->round);
    return page->end_ns - page->begin_ns;
}

static double ping_once(struct process *p)
{
    char letter[LETTER] = {0};
    MUST(vow_sleep(p->loop, REST_MS) == 0);
    double begin = now_ns();
    MUST(send(p->page->ends[0], letter, LETTER, 0) == LETTER);
    MUST(recv(p->page->ends[0], letter, LETTER, 0) == LETTER);
    return p->page->end_ns - begin;
}

static double least_once(struct process *p)
{
    char letter[LETTER];
    struct page *page = p->page;
    vow_name name = name_of_round(p, "owner");
    floor_register(p->floor, &name);
    atomic_store(&page->least, 2 * p->round - 1);
    wait_for(p->loop, &page->least, 2 * p->round);
    MUST(vow_sleep(p->loop, REST_MS) == 0);
    double begin = now_ns();
    floor_send(p->floor);
    MUST(recv(page->ends[0], letter, LETTER, 0) == LETTER);
    return page->end_ns - begin;
}

static vow_next wake_many(void *process)
{
    struct waker *w = process;
    struct process *p = &w->process;
    open_floor(p, true);
    for (p->round = 1; p->round <= WAKES; p->round++) {
        w->wake_ns[p->round - 1] = wake_once(p);
        w->ping_ns[p->round - 1] = ping_once(p);
        w->least_ns[p->round - 1] = least_once(p);
    }
    floor_close(p->floor);
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

static void wake(const char *folder, const char *what, const char *least,
                 uint32_t flags)
{
    static struct waker w;
    struct page *page = new_shared(sizeof(*page));
    page->what = what;
    page->folder = folder;
    page->flags = flags;
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, page->ends) == 0);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, page->floor_ends) == 0);
    w.process = (struct process){.page = page};
    pid_t waiter = start_child(be_waiter, page);
    run_process(&w.process, wake_many);
    end_child(waiter);
    MUST(vow_loop_close(w.process.loop) == 0);
    report_times(what, "vow", w.wake_ns);
    report_times(what, "c-dgram", w.ping_ns);
    report_times(least, "c-sqlite", w.least_ns);
}

void bench_wake(void)
{
    const char *folder = new_folder();
    wake(folder, "wake", "wake-floor", VOW_AUTHORITY_HERE);
    wake(folder, "wake-thread", "wake-thread-floor", 0);
}

/* ---- takeovers ----------------------------------------------------------- */

static vow_next run_for_ever(void *process)
{
    struct process *p = process;
    vow_name name = name_of_round(p, "round");
    (void)vow_await_drop(vow_share(p->authority, &name, open_ended, p, NULL));
    return vow_ok(vow_nothing());
}

static void be_runner(void *page)
{
    struct process p = {.page = page, .round = 1};
    run_process(&p, run_for_ever);
}

static vow_future *take_over(vow_lease *lease, void *process)
{
    struct process *p = process;
    p->page->end_ns = now_ns();
    MUST(vow_lease_attempt(lease) == 2);
    return vow_resolved(p->loop, vow_nothing());
}

static vow_next succeed(void *process)
{
    struct process *p = process;
    vow_name name = name_of_round(p, "round");
    wait_for(p->loop, &p->page->runs, p->round);
    MUST(vow_await_drop(vow_share(p->authority, &name, take_over, p, NULL)) ==
         0);
    return vow_ok(vow_nothing());
}

static void be_successor(void *page)
{
    struct process p = {.page = page, .round = 1};
    run_process(&p, succeed);
}

/* Milliseconds from the kill to the beginning of the next run. */
static double kill_once(const char *folder)
{
    int status;
    struct page *page = new_shared(sizeof(*page));
    page->what = "takeover";
    page->folder = folder;
    pid_t successor = start_child(be_successor, page);
    pid_t runner = start_child(be_runner, page);
    while (atomic_load(&page->waits) == 0)
        nap_us(1000);
    nap_us(REST_MS * 1000);
    double begin = now_ns();
    MUST(kill(runner, SIGKILL) == 0);
    MUST(waitpid(runner, &status, 0) == runner);
    end_child(successor);
    return (page->end_ns - begin) / 1e6;
}

void bench_takeover(void)
{
    double ms[KILLS];
    const char *folder = new_folder();
    for (int i = 0; i < KILLS; i++)
        ms[i] = kill_once(folder);
    row("takeover-p50", "vow", percentile(ms, KILLS, 50), "ms");
    row("takeover-max", "vow", percentile(ms, KILLS, 100), "ms");
}
