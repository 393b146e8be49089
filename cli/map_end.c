/* SPDX-License-Identifier: MIT */
/* map_end.c - vow map: counts of jobs, logs, the summary, the exit code. */
#include "emit.h"
#include "jobserver.h"
#include "map_run.h"
#include "pool_use.h"
#include "reaper.h"
#include "results.h"
#include "say.h"
#include "signals.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Exit codes of xargs. */
enum { XARGS_FAILED = 123, XARGS_255 = 124, XARGS_KILLED = 125 };
enum { COUNT_MAX = 100 };

static int job_xargs_code(const struct job *j);
static void list_add_job(struct failure *list, uint64_t n, struct job *j);
static bool check_record_written(const char *file, int error);
static void check_log_closed(const char *file, int error);
static void summary_print(void);
static void summary_list_jobs(const struct failure *list, uint64_t n);
static bool input_count_jobs(uint64_t *ret_given);

void map_count(struct job *j)
{
    if (j->counted)
        return;
    j->counted = true;
    run.done++;
    if (!job_failed(j))
        return;
    int code = job_xargs_code(j);
    run.worst = code > run.worst ? code : run.worst;
    list_add_job(run.failures, run.failed++, j);
}

static int job_xargs_code(const struct job *j)
{
    if (j->end.kind == END_NOT_RUN)
        return j->end.code;
    if (j->end.kind == END_EXIT)
        return j->end.code == 255 ? XARGS_255 : XARGS_FAILED;
    return XARGS_KILLED;
}

/* Adds the job to a list for the summary. A long command is cut. */
static void list_add_job(struct failure *list, uint64_t n, struct job *j)
{
    struct fields fields = job_fields(j);
    if (n >= FAILURES_SHOWN)
        return;
    text_clear(&run.command);
    template_show_on(STDERR_FILENO, run.jobs.template, &fields, &run.command);
    bool cut = run.command.n > SHOWN_BYTES;
    if (cut) {
        run.command.n = SHOWN_BYTES;
        text_add_str(&run.command, " ...");
    }
    list[n].command = mem_copy(run.command.at, run.command.n);
    (void)job_end_text(j, list[n].end, sizeof(list[n].end));
}

void map_write_logs(struct job *j)
{
    struct record r;
    const struct settings *s = &run.settings;
    bool all = true;
    if (run.log == NULL && run.joblog == NULL && s->results == NULL)
        return;
    job_record(j, &run.command, &r);
    if (s->results != NULL)
        all &= check_record_written(s->results,
                                    results_end(j, s->results, r.command));
    if (run.log != NULL)
        all &= check_record_written(s->log, log_write(run.log, &r));
    if (run.joblog != NULL)
        all &= check_record_written(s->joblog, joblog_write(run.joblog, &r));
    if (!all)
        list_add_job(run.missing, run.unrecorded++, j);
}

/* Returns whether the record was written. If not, no more jobs are started,
 * because --resume could not skip unrecorded jobs; running jobs may end. */
static bool check_record_written(const char *file, int error)
{
    if (error == 0)
        return true;
    run.broken = true;
    if (run.unwritable == NULL)
        say("cannot write to %s: %s; no more jobs are started", file,
            strerror(error));
    if (run.unwritable == NULL)
        run.unwritable = file;
    if (run.stopping == HALT_NEVER)
        map_stop(HALT_SOON, 0);
    return false;
}

static void check_log_closed(const char *file, int error)
{
    if (error == 0)
        return;
    run.broken = true;
    say("cannot write to %s: %s", file, strerror(error));
}

/* ---- the end ------------------------------------------------------------- */

void map_finish(void)
{
    emit_drain(); /* the summary comes below the output of jobs */
    bar_close();
    jobserver_close();
    pool_close();
    if (run.by_signal != 0 || run.stopping == HALT_NOW)
        (void)reaper_kill_marked(0);
    if (run.by_signal != 0)
        reaper_kill_children();
    if (run.log != NULL)
        check_log_closed(run.settings.log, log_close(run.log));
    if (run.joblog != NULL && fclose(run.joblog) != 0)
        check_log_closed(run.settings.joblog, errno);
    if (run.by_signal == 0)
        summary_print();
    emit_drain();
    reaper_end();
}

static void summary_print(void)
{
    char rest[64] = "";
    uint64_t given = 0, unrun = run.unrun;
    bool known = input_count_jobs(&given);
    if (known)
        unrun = given - run.done;
    else
        given = run.done;
    if (!known)
        (void)snprintf(rest, sizeof(rest),
                       ", the rest of the input was not run");
    else if (unrun > 0)
        (void)snprintf(rest, sizeof(rest), ", %llu %s not run",
                       (unsigned long long)unrun, unrun == 1 ? "was" : "were");
    if (run.failed > 0)
        say("%llu of %llu jobs failed%s:", (unsigned long long)run.failed,
            (unsigned long long)given, rest);
    summary_list_jobs(run.failures, run.failed);
    if (run.unrecorded > 0)
        say("%llu of %llu jobs ended and are not in %s%s:",
            (unsigned long long)run.unrecorded, (unsigned long long)given,
            run.unwritable, rest);
    summary_list_jobs(run.missing, run.unrecorded);
    if (run.settings.verbose)
        say("%llu done, %llu failed, %llu left out, %llu not run",
            (unsigned long long)run.done, (unsigned long long)run.failed,
            (unsigned long long)run.skipped, (unsigned long long)unrun);
}

static void summary_list_jobs(const struct failure *list, uint64_t n)
{
    for (uint64_t i = 0; i < n && i < FAILURES_SHOWN; i++)
        say_command("  %s: %s", list[i].end, list[i].command);
    if (n > FAILURES_SHOWN)
        say("  and %llu more", (unsigned long long)(n - FAILURES_SHOWN));
}

/* Counts the jobs of the input, without jobs that --resume has skipped. Returns
 * false if a part of the input was not read. */
static bool input_count_jobs(uint64_t *ret_given)
{
    bool guess = false;
    uint64_t all = run.ended ? run.pulled : input_total(run.input, &guess);
    *ret_given = all - run.skipped;
    return run.ended || (all > 0 && !guess);
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
