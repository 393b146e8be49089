/* SPDX-License-Identifier: MIT */
/* map_stop.c - vow map: early ends of a run.
 *
 * HOW   A failure that stops the run is handled when the process has ended,
 *       before the gate is informed: so no job starts in the place of the
 *       failed job. A signal is passed on to the jobs; a second signal kills
 *       the jobs.
 */
#include "emit.h"
#include "map_run.h"
#include "say.h"
#include "signals.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PERCENT_FROM = 3 /* jobs done before a percentage is used */ };

static bool halt_is_reached(const struct halt *h, uint64_t n);
static void jobs_change_limit(int by);

void map_check_halt(const struct job *j)
{
    const struct halt *h = &run.settings.halt;
    bool failed = job_failed(j);
    uint64_t n = h->what == HALT_FAIL      ? run.failed
                 : h->what == HALT_SUCCESS ? run.done - run.failed
                                           : run.done;
    bool counts = h->what == HALT_DONE || (h->what == HALT_FAIL) == failed;
    if (h->when == HALT_NEVER || run.stopping != HALT_NEVER || !counts ||
        !halt_is_reached(h, n))
        return;
    if (h->what != HALT_DONE)
        run.halt_code = h->what == HALT_SUCCESS ? 0 : job_exit_code(j);
    map_stop(h->when, 0);
}

/* Returns whether n reaches the limit of --halt. A percentage is of all jobs if
 * their number is known, else of the jobs done. */
static bool halt_is_reached(const struct halt *h, uint64_t n)
{
    bool open;
    if (!h->percent)
        return n >= h->n;
    uint64_t total = input_total(run.input, &open);
    if (total > 0 && !open)
        return n * 100 >= h->n * total;
    return run.done >= PERCENT_FROM && n * 100 >= h->n * run.done;
}

void map_stop(enum halt_when when, int number)
{
    run.stopping = when;
    throttle_end(&run.throttle);
    (void)vow_call_stop(&run.stop_after);
    for (struct job *j = run.jobs.live, *next; j != NULL; j = next) {
        next = j->next;
        if (!j->counted && (when == HALT_NOW || j->proc.pid == 0))
            job_stop(j, number);
    }
    if (when == HALT_NOW)
        procs_stop(number);
    input_wake(run.input);
    if (run.room != NULL)
        (void)vow_resolve_drop(run.room, vow_nothing());
    run.room = NULL;
}

void map_on_stop_after(void *user)
{
    (void)user;
    if (run.ended && run.live == 0)
        return; /* only writing the output takes longer */
    run.halt_code = EXIT_STOPPED;
    map_stop(HALT_NOW, 0);
}

/* Starts no more jobs; running jobs go on until their pool permits are lost. */
void map_on_store_down(vow_error *e)
{
    if (run.stopping != HALT_NEVER)
        return;
    say("vow map: %s", vow_error_message(e));
    run.broken = true;
    map_stop(HALT_SOON, 0);
}

/* A job of --tty has already got a signal from the terminal, because the job is
 * in vow's process group; other jobs have groups of their own. */
void map_on_signal(int number, bool by_terminal)
{
    switch (number) {
    case SIGCHLD:
        procs_reap();
        break;
    case SIGUSR1:
        jobs_change_limit(1);
        break;
    case SIGUSR2:
        jobs_change_limit(-1);
        break;
    case SIGWINCH:
        bar_resized();
        break;
    case SIGTSTP:
        bar_hide();
        procs_signal(SIGTSTP);
        signals_stop_us();
        procs_signal(SIGCONT);
        bar_show();
        break;
    default:
        if (run.by_signal != 0) {
            procs_signal(SIGKILL);
            break;
        }
        run.by_signal = number;
        emit_do_not_wait();
        map_stop(HALT_NOW, by_terminal && run.settings.tty ? SIGCONT : number);
    }
}

/* Ends the run: the reader has gone, or the disk is full. */
void map_on_output_fails(int fd, int error)
{
    if (error == EPIPE) {
        run.by_signal = run.by_signal == 0 ? SIGPIPE : run.by_signal;
    } else {
        run.broken = true;
        if (fd == STDOUT_FILENO)
            say("cannot write to stdout: %s", strerror(error));
    }
    if (run.stopping != HALT_NOW)
        map_stop(HALT_NOW, 0);
}

static void jobs_change_limit(int by)
{
    uint32_t jobs = run.settings.jobs;
    if (!run.server && run.jobs.gate != NULL && (by > 0 || jobs > 1))
        map_set_places(by > 0 ? jobs + 1 : jobs - 1);
}
