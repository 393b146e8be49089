/* SPDX-License-Identifier: MIT */
/* map_end.c - vow map: counting jobs, their logs, the summary, the exit code.
 */
#include "emit.h"
#include "guard.h"
#include "jobserver.h"
#include "map_run.h"
#include "pool_use.h"
#include "results.h"
#include "say.h"
#include "signals.h"

#include <errno.h>
#include <string.h>

/* What xargs would exit with. */
enum { XARGS_FAILED = 123, XARGS_255 = 124, XARGS_KILLED = 125 };
enum { COUNT_MAX = 100 };

static int xargs_code(const struct job *j);
static void remember(struct job *j);
static void cannot_write(const char *file, int error, const struct job *j);
static void summary(void);

void map_count(struct job *j)
{
    if (j->counted)
        return;
    j->counted = true;
    run.done++;
    if (!job_failed(j))
        return;
    int code = xargs_code(j);
    run.worst = code > run.worst ? code : run.worst;
    if (run.failed < FAILURES_SHOWN)
        remember(j);
    run.failed++;
}

static int xargs_code(const struct job *j)
{
    if (j->end.kind == END_NOT_RUN)
        return j->end.code;
    if (j->end.kind == END_EXIT)
        return j->end.code == 255 ? XARGS_255 : XARGS_FAILED;
    return XARGS_KILLED;
}

/* The beginning of a long command says enough. */
static void remember(struct job *j)
{
    struct failure *f = &run.failures[run.failed];
    struct fields fields = job_fields(j);
    text_clear(&run.command);
    template_show(run.jobs.template, &fields, &run.command);
    bool cut = run.command.n > SHOWN_BYTES;
    if (cut) {
        run.command.n = SHOWN_BYTES;
        text_add_str(&run.command, " ...");
    }
    f->command = mem_copy(run.command.at, run.command.n);
    (void)job_end_text(j, f->end, sizeof(f->end));
}

void map_write_logs(struct job *j)
{
    struct record r;
    const struct settings *s = &run.settings;
    if (run.log == NULL && run.joblog == NULL && s->results == NULL)
        return;
    job_record(j, &run.command, &r);
    if (s->results != NULL)
        results_end(j, s->results, r.command);
    if (run.log != NULL)
        cannot_write(s->log, log_write(run.log, &r), j);
    if (run.joblog != NULL)
        cannot_write(s->joblog, joblog_write(run.joblog, &r), j);
}

static void cannot_write(const char *file, int error, const struct job *j)
{
    if (error == 0)
        return;
    run.broken = true;
    if (j == NULL)
        say("cannot write to %s: %s", file, strerror(error));
    else
        say("cannot write to %s: %s; job %llu is not in it", file,
            strerror(error), (unsigned long long)j->seq);
}

/* ---- the end ------------------------------------------------------------- */

void map_finish(void)
{
    emit_drain(); /* before the summary, which is to stand below */
    bar_close();
    jobserver_close();
    pool_close();
    if (run.by_signal != 0 || run.stopping == HALT_NOW)
        (void)guard_hunt(0);
    if (run.by_signal != 0)
        guard_hunt_children();
    if (run.log != NULL)
        cannot_write(run.settings.log, log_close(run.log), NULL);
    if (run.joblog != NULL && fclose(run.joblog) != 0)
        cannot_write(run.settings.joblog, errno, NULL);
    if (run.by_signal == 0)
        summary();
    emit_drain();
    guard_end();
}

static void summary(void)
{
    if (run.failed > 0)
        say("%llu of %llu jobs failed:", (unsigned long long)run.failed,
            (unsigned long long)run.done);
    for (uint64_t i = 0; i < run.failed && i < FAILURES_SHOWN; i++)
        say_command("  %s: %s", run.failures[i].end, run.failures[i].command);
    if (run.failed > FAILURES_SHOWN)
        say("  and %llu more",
            (unsigned long long)(run.failed - FAILURES_SHOWN));
    if (run.settings.verbose)
        say("%llu done, %llu failed, %llu left out, %llu not run",
            (unsigned long long)run.done, (unsigned long long)run.failed,
            (unsigned long long)run.skipped, (unsigned long long)run.unrun);
}

int map_exit_code(void)
{
    const struct settings *s = &run.settings;
    if (run.by_signal != 0)
        signals_die(run.by_signal);
    if (run.broken)
        return EXIT_BROKEN;
    if (s->exit_style == EXIT_XARGS)
        return run.worst;
    if (s->exit_style == EXIT_COUNT)
        return run.failed > COUNT_MAX ? COUNT_MAX + 1 : (int)run.failed;
    if (run.halt_code >= 0)
        return run.halt_code;
    if (run.stopping != HALT_NEVER && (!run.ended || run.unrun > 0))
        return EXIT_STOPPED;
    return run.failed > 0 ? EXIT_SOME_FAILED : 0;
}
