/* SPDX-License-Identifier: MIT */
/* coord_sem.c - the semaphore: free, with a queue, and the memory of a waiter.
 *
 * A waiter keeps its future, takes the permit out of it in a handler, and gives
 * it back there. So it is one future, one handler and 16 bytes of the caller's.
 */
#include "coord.h"

static vow_sem *open_sem(vow_loop *loop)
{
    vow_sem *sem = NULL;
    MUST(vow_sem_new(loop, VOW_SEM_OPTS(.permits = PERMITS), &sem) == 0);
    return sem;
}

/* Everything is free again, and nobody waits. */
static void close_sem(vow_loop *loop, vow_sem *sem)
{
    vow_sem_stats stats = vow_sem_stats_get(sem);
    MUST(stats.held == 0);
    MUST(stats.waiting == 0);
    vow_sem_unref(sem);
    MUST(vow_loop_close(loop) == 0);
}

/* ---- free --------------------------------------------------------------- */

static double try_and_release(vow_sem *sem)
{
    double begin = now_ns();
    for (long i = 0; i < FREES; i++) {
        vow_permit p;
        MUST(vow_sem_try(sem, 3, &p));
        vow_permit_release(&p);
    }
    return (now_ns() - begin) / FREES;
}

struct turns {
    vow_sem *sem;
    vow_future *granted;
    long left;
};

static void ask(struct turns *t);

static vow_next next_turn(vow_value v, void *user)
{
    struct turns *t = user;
    (void)v;
    vow_permit p = vow_permit_take(vow_get(t->granted));
    MUST(vow_permit_held(&p));
    vow_future_unref(t->granted);
    vow_permit_release(&p);
    if (--t->left > 0)
        ask(t);
    return vow_ok(vow_nothing());
}

static void ask(struct turns *t)
{
    t->granted = vow_sem_acquire(t->sem, 3);
    MUST(vow_done(vow_future_ref(t->granted), next_turn, NULL, t) == 0);
}

/* Peers whose acquire is a plain call are compared with ours that is one. The
 * future goes through the loop's queue before its handler runs. */
void bench_sem_free(void)
{
    vow_loop *loop = open_loop();
    struct turns t = {.sem = open_sem(loop), .left = FUTURES};
    double spent = try_and_release(t.sem);
    row("sem-free", "vow", spent, "ns");
    row("sem-free-try", "vow", spent, "ns");

    double begin = now_ns();
    ask(&t);
    MUST(vow_loop_run(loop) == 0);
    row("sem-free-future", "vow", (now_ns() - begin) / FUTURES, "ns");
    MUST(t.left == 0);
    close_sem(loop, t.sem);
}

/* ---- a queue ------------------------------------------------------------ */

struct crowd;

struct waiter {
    struct crowd *crowd;
};

struct crowd {
    vow_loop *loop;
    vow_sem *sem;
    vow_permit hold; /* all of it, while they come */
    struct waiter *waiters;
    long served;
};

/* In the order of arrival, with what was asked for. */
static vow_next be_served(vow_value v, void *user)
{
    struct waiter *w = user;
    struct crowd *c = w->crowd;
    MUST(w == &c->waiters[c->served]);
    c->served++;
    vow_permit p = vow_permit_take(v);
    MUST(vow_permit_held(&p));
    vow_permit_release(&p);
    return vow_ok(vow_nothing());
}

static void hang_waiters(struct crowd *c, long n)
{
    c->served = 0;
    MUST(vow_sem_try(c->sem, PERMITS, &c->hold));
    for (long i = 0; i < n; i++) {
        struct waiter *w = &c->waiters[i];
        w->crowd = c;
        vow_future *granted = vow_sem_acquire(c->sem, (uint32_t)(i % 4 + 1));
        MUST(vow_done(granted, be_served, NULL, w) == 0);
    }
}

static void drain(struct crowd *c, long n)
{
    vow_permit_release(&c->hold);
    MUST(vow_loop_run(c->loop) == 0);
    MUST(c->served == n);
}

static void hang_and_drain(void *load, long n)
{
    hang_waiters(load, n);
    drain(load, n);
}

static struct crowd open_crowd(long n)
{
    struct crowd c = {.loop = open_loop()};
    c.sem = open_sem(c.loop);
    c.waiters = malloc((size_t)n * sizeof(c.waiters[0]));
    MUST(c.waiters != NULL);
    return c;
}

static void close_crowd(struct crowd *c)
{
    free(c->waiters);
    close_sem(c->loop, c->sem);
}

static double queue_once(struct crowd *c)
{
    double begin = now_ns();
    hang_and_drain(c, WAITERS);
    return (now_ns() - begin) / WAITERS;
}

void bench_sem_queue(void)
{
    struct crowd c = open_crowd(WAITERS);
    row("sem-queue-cold", "vow", queue_once(&c), "ns");
    queue_once(&c);
    row("sem-queue", "vow", queue_once(&c), "ns");
    close_crowd(&c);
}

/* Resident memory with all of them waiting, the caller's own included. */
void bench_sem_bytes(void)
{
    struct crowd c = open_crowd(WAITERS);
    double rss = status_bytes("VmRSS:");
    hang_waiters(&c, WAITERS);
    row("sem-bytes", "vow", (status_bytes("VmRSS:") - rss) / WAITERS, "bytes");
    drain(&c, WAITERS);
    close_crowd(&c);
}

void bench_sem_growth(void)
{
    struct crowd c = open_crowd(MANY);
    report_growth("sem", hang_and_drain, &c);
    close_crowd(&c);
}
