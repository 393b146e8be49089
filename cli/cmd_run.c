/* SPDX-License-Identifier: MIT */
/* cmd_run.c - vow run: one command with retries, time limits and a log.
 *
 * HOW   One job (job.h) behind a gate with a limit of 1. The job inherits
 *       stdin, stdout and stderr. On a terminal the job stays in the process
 *       group of vow, so the job can read and gets Ctrl-C.
 */
#include "cmd.h"
#include "job.h"
#include "pool_use.h"
#include "reaper.h"
#include "say.h"
#include "signals.h"
#include "throttle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOG_TRIES = 500, LOG_WAIT_US = 10000 };

static struct {
    struct settings settings;
    struct jobs jobs;
    struct throttle throttle;
    struct job *job;
    int by_signal;
} single;

static void run_prepare(int argc, char **argv);
static char *const *escape_braces(char **words, size_t n);
static void run_make_job(void);
static void on_run_start(struct job *j);
static void on_run_store_down(vow_error *e);
static void on_run_signal(int number, bool by_terminal);
static void run_check_logs(void);
static void run_write_logs(void);
static struct log *log_open_retry(const char *path, char **ret_sentence);

int cmd_run(int argc, char **argv)
{
    run_prepare(argc, argv);
    reaper_start();
    run_make_job();
    throttle_check(&single.throttle);
    vow_future *f = job_run(single.job);
    if (single.by_signal != 0)
        job_stop(single.job, single.by_signal);
    (void)vow_loop_run_until(single.jobs.loop, f);
    vow_future_unref(f);
    throttle_end(&single.throttle);
    pool_close();
    run_write_logs();
    if (single.by_signal != 0) {
        (void)reaper_kill_marked(0);
        reaper_kill_children();
        reaper_end();
        signals_die(single.by_signal);
    }
    reaper_end();
    return job_exit_code(single.job);
}

static void run_prepare(int argc, char **argv)
{
    struct settings *s = &single.settings;
    struct jobs *js = &single.jobs;
    char *sentence = NULL;
    int at = settings_read(s, &run_verb, argc, argv);
    if (at == argc)
        die(EXIT_BROKEN, "vow run: no command given. See vow run --help");
    if (vow_loop_new(NULL, &js->loop) < 0)
        die(EXIT_BROKEN, "cannot create the event loop: %s", strerror(errno));
    poller_open(js->loop);
    signals_open(js->loop, on_run_signal);
    procs_open(js->loop);
    js->settings = s;
    js->inherit = true;
    js->on_start = on_run_start;
    js->on_store_down = on_run_store_down;
    js->template = template_new(
        escape_braces(argv + at, (size_t)(argc - at)), (size_t)(argc - at),
        &(struct template_opts){.exec = true}, &sentence);
    if (js->template == NULL)
        die(EXIT_BROKEN, "vow run: %s", sentence);
    int rc = proc_find(argv[at], &js->program);
    if (rc != 0)
        die(rc, "vow run: %s: %s", argv[at],
            rc == EXIT_NOT_FOUND ? "command not found" : "cannot be run");
    run_check_logs();
    jobs_open(js);
    pool_open(js->loop, s, &run_verb, NULL);
    s->jobs = 1;
    vow_gate_opts o = job_limits(s);
    if (vow_gate_new(js->loop, &o, &js->gate) < 0)
        die(EXIT_BROKEN, "vow run: --rate cannot be applied");
    single.throttle = (struct throttle){.loop = js->loop,
                                        .gate = js->gate,
                                        .load = s->load,
                                        .memfree = s->memfree,
                                        .delay_ms = s->delay_ms};
}

/* Returns the words with all braces escaped for the template; never freed. */
static char *const *escape_braces(char **words, size_t n)
{
    char **all = mem_new((n + 1) * sizeof(all[0]));
    for (size_t i = 0; i < n; i++) {
        struct text t = {0};
        text_add(&t, "", 0);
        for (const char *c = words[i]; *c != '\0'; c++)
            text_add(&t, (char[]){*c, *c}, *c == '{' || *c == '}' ? 2 : 1);
        all[i] = t.at;
    }
    return all;
}

static void run_make_job(void)
{
    struct job *j = job_new(&single.jobs);
    j->seq = 1;
    j->weight = 1;
    struct fields fields = job_fields(j);
    template_hash(single.jobs.template, &fields, j->hash);
    single.job = j;
}

static void on_run_start(struct job *j)
{
    struct text command = {0};
    throttle_started(&single.throttle);
    if (!single.settings.verbose)
        return;
    struct fields fields = job_fields(j);
    template_show_on(STDERR_FILENO, single.jobs.template, &fields, &command);
    say_command("%.*s (try %u)", (int)command.n, command.at, j->tries);
    text_free(&command);
}

static void on_run_store_down(vow_error *e)
{
    say("vow run: %s", vow_error_message(e));
    single.job->end = (struct end){.kind = END_NOT_RUN, .code = EXIT_BROKEN};
}

/* Passes signals on. A command in the process group of vow already has the
 * signals of the terminal. */
static void on_run_signal(int number, bool by_terminal)
{
    if (number == SIGCHLD) {
        procs_reap();
    } else if (number == SIGTSTP) {
        procs_signal(SIGTSTP);
        signals_stop_us();
        procs_signal(SIGCONT);
    } else if (number == SIGUSR1 || number == SIGUSR2 || number == SIGWINCH) {
        procs_signal(number);
    } else if (single.by_signal == 0) {
        single.by_signal = number;
        if (single.job == NULL)
            return; /* the pool is being opened */
        bool has_it = by_terminal && !single.job->proc.own_group;
        job_stop(single.job, has_it ? SIGCONT : number);
    } else {
        procs_signal(SIGKILL);
    }
}

/* Exits before the command runs if a log cannot be written, or the file is
 * no log. */
static void run_check_logs(void)
{
    const struct settings *s = &single.settings;
    char *sentence = NULL;
    struct log *l = s->log == NULL ? NULL : log_open(s->log, true, &sentence);
    FILE *f = NULL;
    if (l != NULL)
        (void)log_close(l);
    else if (sentence != NULL && strstr(sentence, "in use") == NULL)
        die(EXIT_BROKEN, "vow run: %s", sentence);
    free(sentence);
    sentence = NULL;
    if (s->joblog != NULL)
        f = joblog_open(s->joblog, true, &sentence);
    if (s->joblog != NULL && f == NULL)
        die(EXIT_BROKEN, "vow run: %s", sentence);
    if (f != NULL)
        (void)fclose(f);
}

static void run_write_logs(void)
{
    const struct settings *s = &single.settings;
    struct text command = {0};
    struct record r;
    char *sentence = NULL;
    const char *file = s->log;
    int rc = 0;
    job_record(single.job, &command, &r);
    if (s->log != NULL) {
        struct log *l = log_open_retry(s->log, &sentence);
        rc = l == NULL ? -1 : log_write(l, &r);
        if (l != NULL && log_close(l) != 0 && rc == 0)
            rc = errno;
    }
    if (s->joblog != NULL && rc == 0) {
        file = s->joblog;
        FILE *f = joblog_open(file, true, &sentence);
        rc = f == NULL ? -1 : joblog_write(f, &r);
        if (f != NULL && fclose(f) != 0 && rc == 0)
            rc = errno;
    }
    if (sentence != NULL)
        say("vow run: %s", sentence);
    else if (rc != 0)
        say("vow run: cannot write to %s: %s", file, strerror(rc));
    free(sentence);
    text_free(&command);
}

/* Opens the log, and retries while another process writes a line. */
static struct log *log_open_retry(const char *path, char **ret_sentence)
{
    struct log *l = log_open(path, true, ret_sentence);
    for (int i = 0; l == NULL && i < LOG_TRIES; i++) {
        if (strstr(*ret_sentence, "in use") == NULL)
            break;
        (void)usleep(LOG_WAIT_US);
        free(*ret_sentence);
        *ret_sentence = NULL;
        l = log_open(path, true, ret_sentence);
    }
    return l;
}
