/* SPDX-License-Identifier: MIT */
/* etcd_process.h - a process that owns, waits, or has a place, to be
 * killed or stopped.
 *
 *     struct proc p;
 *     proc_hire(&p, &(struct proc_job){.url = r.k.url, .name = "a", ...});
 *     fence = proc_go(&p);
 *     proc_kill(&p);
 *
 * Hire it before anything else is opened: it is forked. It is told to go on by
 * proc_go() and tells numbers, which proc_hear() waits for:
 *   an owner   its fence; then, after proc_nod(), it settles and tells how
 *              that went. With `names` it owns so many, "NAME-0" and so on,
 *              tells all fences, and settles none
 *   a waiter   0 when it waits; then the code of the result, and whether it
 *              was `text`
 *   a place    its fence
 *
 * proc_go() and proc_hear() block the loop of the test, but not the threads of
 * its authorities: a waiter that was canceled just before still waits there,
 * and may claim the name that the process is to own.
 */
#ifndef TEST_ETCD_PROCESS_H
#define TEST_ETCD_PROCESS_H

#include "etcd_world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum proc_kind { PROC_OWNER, PROC_WAITER, PROC_PLACE };

struct proc_job {
    enum proc_kind kind;
    const char *url;
    const char *name; /* of the work, or label of the pool */
    const char *text; /* of the result; NULL: "done" */
    uint32_t mode;
    uint32_t takeovers;
    size_t names;      /* 0: one, that of `name` */
    uint64_t lease_ms; /* 0: 3000 */
    uint32_t weight;
    vow_pool_limits limits;
};

struct proc {
    pid_t pid; /* 0: dead */
    int to, from;
};

static inline void proc_tell(int fd, int64_t number)
{
    if (write(fd, &number, sizeof(number)) != (ssize_t)sizeof(number))
        _exit(1);
}

static inline void proc_nod(struct proc *p)
{
    CHECK(write(p->to, "x", 1) == 1);
}

static inline int64_t proc_hear(struct proc *p)
{
    int64_t number = 0;
    ssize_t n;
    do
        n = read(p->from, &number, sizeof(number));
    while (n < 0 && errno == EINTR);
    CHECK(n == (ssize_t)sizeof(number));
    return number;
}

/* A number that is there. */
static inline bool proc_told(struct proc *p)
{
    struct pollfd fd = {.fd = p->from, .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

static inline uint64_t proc_go(struct proc *p)
{
    proc_nod(p);
    return (uint64_t)proc_hear(p);
}

static inline void proc_kill(struct proc *p)
{
    if (p->pid == 0)
        return;
    CHECK(kill(p->pid, SIGKILL) == 0);
    while (waitpid(p->pid, NULL, 0) < 0)
        CHECK(errno == EINTR);
    p->pid = 0;
    close(p->to);
    close(p->from);
}

static inline void proc_wait_nod(struct town *r, int in)
{
    struct pollfd fd = {.fd = in, .events = POLLIN};
    char byte;
    while (poll(&fd, 1, 0) != 1)
        town_pass(r, 10);
    if (read(in, &byte, 1) != 1)
        _exit(0);
}

/* Claim it, and wait for it if another has it. False: the store failed, at once
 * or meanwhile. */
static inline bool proc_takes(struct town *r, struct seat *s, struct turn *t,
                              const struct proc_job *j)
{
    turn_take(r, s, t, j->name,
              VOW_SHARE(.mode = j->mode, .flags = VOW_SHARE_KEEP,
                        .takeovers = j->takeovers, .ttl_ms = 60000));
    if (t->code == 0) {
        TOWN_UNTIL(r,
                   t->lease != NULL || vow_state_of(t->result) != VOW_PENDING);
        if (t->lease != NULL)
            return true;
        t->code = vow_error_code(vow_error_of(t->result));
    }
    CHECK(t->code == VOW_ESTORE || t->code == VOW_EUNSURE);
    return false;
}

static inline void proc_own(struct town *r, struct seat *s, int in, int out,
                            const struct proc_job *j)
{
    static struct turn t;
    while (!proc_takes(r, s, &t, j)) /* members may be electing a leader */
        turn_drop(&t);
    proc_tell(out, (int64_t)vow_lease_fence(t.lease));
    proc_wait_nod(r, in);
    proc_tell(out, turn_say(r, &t, j->text != NULL ? j->text : "done"));
}

static inline void proc_own_all(struct town *r, struct seat *s, int out,
                                const struct proc_job *j)
{
    for (size_t i = 0; i < j->names; i++) {
        struct turn t;
        char name[64];
        (void)snprintf(name, sizeof(name), "%s-%zu", j->name, i);
        turn_take(r, s, &t, name,
                  VOW_SHARE(.mode = j->mode, .flags = VOW_SHARE_KEEP,
                            .takeovers = j->takeovers, .ttl_ms = 60000));
        CHECK(t.code == 0 && t.lease != NULL);
        proc_tell(out, (int64_t)vow_lease_fence(t.lease));
    }
}

static inline void proc_await(struct town *r, struct seat *s, int out,
                              const struct proc_job *j)
{
    static struct turn t;
    turn_take(r, s, &t, j->name, VOW_SHARE(.mode = j->mode));
    CHECK_INT_EQ(t.code, 0);
    CHECK(t.lease == NULL);
    proc_tell(out, 0);
    int rc = vow_loop_run_until(r->w.loop, t.result);
    proc_tell(out, rc);
    proc_tell(out, rc == 0 && says(t.result, j->text));
}

static inline void proc_place(struct town *r, struct seat *s, int out,
                              const struct proc_job *j)
{
    vow_pool *pool = NULL;
    CHECK_INT_EQ(
        vow_pool_open(s->a, j->name, VOW_POOL(.limits = j->limits), &pool), 0);
    vow_future *f = vow_pool_acquire(pool, NULL, j->weight);
    CHECK_INT_EQ(vow_loop_run_until(r->w.loop, f), 0);
    vow_grant *g = vow_grant_take(vow_get(f));
    proc_tell(out, (int64_t)g->fence);
}

static inline _Noreturn void proc_live(const struct proc_job *j, int in,
                                       int out)
{
    static struct town r;
    static struct seat s;
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (read(in, &byte, 1) != 1)
        _exit(0);
    world_open_real(&r.w);
    seat_open(&r, &s, j->url,
              VOW_AUTHORITY(.lease_ms = j->lease_ms != 0 ? j->lease_ms : 3000,
                            .recheck_ms = RARELY_MS));
    if (j->names > 0)
        proc_own_all(&r, &s, out, j);
    else if (j->kind == PROC_OWNER)
        proc_own(&r, &s, in, out, j);
    else if (j->kind == PROC_WAITER)
        proc_await(&r, &s, out, j);
    else
        proc_place(&r, &s, out, j);
    proc_wait_nod(&r, in); /* it stays, and keeps its lease */
    _exit(0);
}

static inline void proc_hire(struct proc *p, const struct proc_job *j)
{
    int to[2], from[2];
    CHECK(pipe2(to, O_CLOEXEC) == 0);
    CHECK(pipe2(from, O_CLOEXEC) == 0);
    p->pid = fork();
    CHECK(p->pid >= 0);
    if (p->pid == 0) {
        close(to[1]);
        close(from[0]);
        proc_live(j, to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    p->to = to[1];
    p->from = from[0];
}

#endif
