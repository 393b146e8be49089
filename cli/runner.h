/* SPDX-License-Identifier: MIT */
/* runner.h - one command, run for all who ask for its name.
 *
 *     the command -> two pipes -> our own stdout and stderr, as it comes
 *                              -> a recording, which is the result
 *                              -> chunks of it, for those who follow
 *
 * HOW   The command has a process group of its own and dies with us. Its lease
 *       is watched: when two thirds of it have passed without a sign of life
 *       that reached the store, it is told to end, and killed before another
 *       one may begin. Both pipes are read as soon as they have something, in
 *       the order in which they got it; but what was written to both before we
 *       came to read has no order any more.
 * LIMITS  What writes more than --max-output is ended. Up to then it is held in
 *       memory: a slow reader of our stdout does not hold up the command, for
 *       whose result others wait.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_RUNNER_H
#define VOW_CLI_RUNNER_H

#include "poller.h"
#include "proc.h"
#include "replay.h"
#include "shared_options.h"

struct runner;
typedef void (*runner_fn)(struct runner *r);
typedef vow_error *(*runner_made_fn)(struct runner *r);

struct runner_opts {
    const struct shared *shared;
    char *const *argv;
    const char *label; /* for sentences, and VOW_NAME */
    vow_lease *lease;
    const vow_name *name; /* it stays */
    int in;               /* its stdin, moved; -1: /dev/null */
    bool hide_out;        /* what it writes is not for our own stdout, */
    bool hide_err;        /* nor stderr */
    bool chunks;          /* for those who follow */
    bool keeps;           /* what it wrote, for runner_replay() after its end */
    /* It has ended by itself. Returns why that is no result, owned; NULL: it
     * is. May be NULL. */
    runner_made_fn made;
    /* The store has taken the result; may be NULL. */
    runner_fn published;
    /* The lease is lost. The command is being ended, or goes on (--on-lost
     * keep), or had ended before the store refused its result. */
    runner_fn lost;
    /* The same, and the command has ended. */
    runner_fn lost_ended;
    /* The same, and no other will have a result. */
    runner_fn hopeless;
    /* What is not to run twice was canceled, or killed by a signal that is not
     * ours; NULL if it may run twice. */
    runner_fn doubt;
};

/* One of its pipes. */
struct runner_pipe {
    struct poller poller;
    struct runner *of;
    int fd;        /* 1 or 2 */
    vow_call more; /* there was more than one turn's */
};

/* In the caller's memory, where it stays until the program ends. */
struct runner {
    struct runner_opts o;
    uint64_t seq;
    struct proc proc;
    struct runner_pipe out, err;
    struct recording recording;
    vow_bytes *made;    /* the recording, when it is complete */
    bool too_big;       /* to be recorded: it is being ended */
    vow_deferred *done; /* NULL: settled */
    vow_error *stopped; /* somebody canceled it */
    bool lost;          /* its lease, before the result was published */
    unsigned turns;     /* that came since */
    vow_lease *turn;    /* the one that is being passed on; counted */
    bool published;
    bool ended; /* by itself, so that `end` counts */
    struct ending end;
    vow_call watch; /* looks at the lease */
    /* those who follow */
    size_t sent;
    bool sending;
    bool flushing; /* the recording is complete */
    vow_call send_again;
};

/* Start it. The future, owned, is fulfilled with the recording when it has
 * ended; or rejected: VOW_E2BIG, or with why it was canceled. What makes all
 * further work pointless (it cannot be run, a signal, a lost lease, a doubt) is
 * told by session_over(), and the future stays pending. */
vow_future *runner_start(struct runner *r, const struct runner_opts *o);
/* What it has written so far, piece by piece. */
void runner_replay(const struct runner *r, replay_fn fn);
/* How its process has ended. */
struct ending runner_ending(const struct proc *p);
/* It is of no use any more: end it, and show nothing more. The future, if it is
 * pending, is then rejected with `why`, borrowed. */
void runner_stop(struct runner *r, vow_error *why);

/* ---- runner_lost.c: its lease was lost ----------------------------------- */

/* It has ended: reject the future, if it is pending. */
void runner_leave(struct runner *r);
/* The name is ours again, by this lease, and the command does not start again:
 * whoever else waits is to have it. The future, owned, is for who gave the
 * turn. If nobody waits, it is hopeless. */
vow_future *runner_pass_turn(struct runner *r, vow_lease *lease);
/* There is no other result: tell, and end. */
void runner_lost_for_good(const struct runner *r);
/* Whether a lost runner whose request failed with this code has no result to
 * expect any more. */
bool runner_is_hopeless(int code);
/* Without the store, nobody else can have the name. */
bool lease_is_alone(const vow_lease *lease);

#endif
