/* SPDX-License-Identifier: MIT */
/* map_stop.c - vow map: what ends a run before its input does.
 *
 * HOW   A failure that is to stop the run is seen when the process has ended,
 *       before the gate hears of it: so nothing starts in its place. A signal
 *       is passed on to the jobs; a second one kills them.
 */
#include "emit.h"
#include "map_run.h"
#include "say.h"
#include "signals.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { PERCENT_FROM = 3 /* jobs done, for a percentage to mean something */ };

static bool reached(const struct halt *h, uint64_t n);
static void change_jobs(int by);

void map_check_halt(const struct job *j)
{
    const struct halt *h = &run.settings.halt;
    bool failed = job_failed(j);
    uint64_t n = h->what == HALT_FAIL      ? run.failed
                 : h->what == HALT_SUCCESS ? run.done - run.failed
                                           : run.done;
    bool counts = h->what == HALT_DONE || (h->what == HALT_FAIL) == failed;
    if (h->when == HALT_NEVER || run.stopping != HALT_NEVER || !counts ||
        !reached(h, n))
        return;
    if (h->what != HALT_DONE)
        run.halt_code = h->what == HALT_SUCCESS ? 0 : job_exit_code(j);
    map_stop(h->when, 0);
}

/* A percentage is of all jobs if their number is known, else of those done. */
static bool reached(const struct halt *h, uint64_t n)
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
        return; /* only the reader is late */
    run.halt_code = EXIT_STOPPED;
    map_stop(HALT_NOW, 0);
}

/* What runs goes on as long as it may. */
void map_on_store_down(vow_error *e)
{
    if (run.stopping != HALT_NEVER)
        return;
    say("vow map: %s", vow_error_message(e));
    run.broken = true;
    map_stop(HALT_SOON, 0);
}

/* What the terminal sent, a job of --tty has got already; other jobs have groups
 * of their own. */
void map_on_signal(int number, bool by_terminal)
{
    switch (number) {
    case SIGCHLD:
        procs_reap();
        break;
    case SIGUSR1:
        change_jobs(1);
        break;
    case SIGUSR2:
        change_jobs(-1);
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
    default: /* INT, TERM, HUP, QUIT */
        if (run.by_signal != 0) {
            procs_signal(SIGKILL);
            break;
        }
        run.by_signal = number;
        emit_do_not_wait();
        map_stop(HALT_NOW, by_terminal && run.settings.tty ? SIGCONT : number);
    }
}

/* Nobody reads any more, or the disk is full: there is no point in going on. */
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

static void change_jobs(int by)
{
    uint32_t jobs = run.settings.jobs;
    if (!run.server && run.jobs.gate != NULL && (by > 0 || jobs > 1))
        map_set_places(by > 0 ? jobs + 1 : jobs - 1);
}
