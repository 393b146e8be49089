/* SPDX-License-Identifier: MIT */
/* runner.h - runs one command for all requests of a name.
 *
 *     the command -> two pipes -> stdout and stderr of vow, as bytes arrive
 *                              -> a recording, which is the result
 *                              -> chunks of the recording, for followers
 *
 *     A follower is a process that waits for the name and shows the output
 *     while the command runs.
 *
 * HOW   The command has a process group of its own and dies with vow. The lease
 *       is watched: when two thirds of the lease have passed without a pulse
 *       that reached the store, the command is stopped, and killed before
 *       another owner may begin. Both pipes are read as soon as they are
 *       readable, in the order in which they became so; bytes written to both
 *       pipes before vow reads have no order any more.
 * LIMITS  A command that writes more than --max-output is ended. The output is
 *       held in memory up to this limit: a slow reader of vow's stdout does not
 *       delay the command, because other processes wait for the result.
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
    const char *label; /* for messages, and VOW_NAME */
    vow_lease *lease;
    const vow_name *name; /* lives as long as the runner */
    int in;               /* stdin of the command, moved; -1: /dev/null */
    bool hide_out;        /* the output is not written to vow's stdout, */
    bool hide_err;        /* nor to vow's stderr */
    bool chunks;          /* send chunks to followers */
    bool keeps;           /* keep the recording, for runner_replay() */
    /* Called when the command has ended by itself. Returns why the output is no
     * result, owned; NULL: a result. May be NULL. */
    runner_made_fn made;
    /* Called when the store has the result; may be NULL. */
    runner_fn published;
    /* Called when the lease is lost. The command is being ended, or goes on
     * (--on-lost keep), or had ended before the store refused the result. */
    runner_fn lost;
    /* Called when the lease is lost and the command has ended. */
    runner_fn lost_ended;
    /* Called when the lease is lost and no other process will have a result. */
    runner_fn hopeless;
    /* Called when a command that must not run twice was canceled, or killed by
     * a signal that vow did not send; NULL: the command may run twice. */
    runner_fn doubt;
};

/* The pipe for stdout or stderr of a command. */
struct runner_pipe {
    struct poller poller;
    struct runner *of;
    int fd;        /* 1 or 2: the descriptor in the command */
    vow_call more; /* reads on after TURNS chunks */
};

/* A runner, in the caller's memory until the program ends. */
struct runner {
    struct runner_opts o;
    uint64_t seq;
    struct proc proc;
    struct runner_pipe out, err;
    struct recording recording;
    vow_bytes *made;    /* the complete recording, counted; NULL: not kept */
    bool too_big;       /* more than --max-output: the command is being ended */
    vow_deferred *done; /* future of runner_start(); NULL: settled */
    vow_error *stopped; /* why the command was canceled; NULL: not canceled */
    bool lost;          /* the lease was lost before the result was published */
    unsigned turns;     /* leases of the name since the loss */
    vow_lease *turn;    /* lease to be given back, counted */
    bool published;
    bool ended; /* the command ended by itself: `end` is valid */
    struct ending end;
    vow_call watch; /* checks the lease */
    /* followers: */
    size_t sent;
    bool sending;
    bool flushing; /* the recording is complete: send the rest */
    vow_call send_again;
};

/* Starts the command. The future, owned, is fulfilled with the recording when
 * the command has ended; or rejected with VOW_E2BIG, or with the reason of the
 * cancel. Events that make all further work pointless (the command cannot be
 * run, a signal, a lost lease, a doubt) end the session by session_over(), and
 * the future stays pending. */
vow_future *runner_start(struct runner *r, const struct runner_opts *o);
/* Passes the output so far to `fn`, piece by piece. */
void runner_replay(const struct runner *r, replay_fn fn);
/* Returns how the process has ended. */
struct ending runner_ending(const struct proc *p);
/* Ends a command that is of no use any more, and shows no more output. The
 * future, if pending, is then rejected with `why`, borrowed. */
void runner_stop(struct runner *r, vow_error *why);

/* ---- runner_lost.c: after the loss of the lease -------------------------- */

/* Rejects the future with VOW_ELOST, if pending. The command must have
 * ended. */
void runner_leave(struct runner *r);
/* Gives back a new lease of the name: the command does not start again, and
 * other waiters are to get the name. Returns a future, owned, for the caller
 * that offered the lease. If no process waits, `hopeless` is called. */
vow_future *runner_pass_turn(struct runner *r, vow_lease *lease);
/* Writes that there is no result, and ends the session. */
void runner_lost_for_good(const struct runner *r);
/* Returns whether a request of a lost runner that failed with this code means
 * that no result will come. */
bool runner_is_hopeless(int code);
/* Returns whether the lease exists without the store: then no other process can
 * get the name. */
bool lease_is_alone(const vow_lease *lease);

#endif
