/* SPDX-License-Identifier: MIT */
/* cmd_run.c - vow run: one command with retries, time limits and a log.
 *
 * HOW   One job (job.h) behind a gate of one place. It has our stdin, stdout
 *       and stderr; on a terminal it stays in our process group, so that it can
 *       read and Ctrl-C reaches it.
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
} one;

static void make_ready(int argc, char **argv);
static char *const *literal(char **words, size_t n);
static void make_job(void);
static void on_start(struct job *j);
static void on_store_down(vow_error *e);
static void on_signal(int number, bool by_terminal);
static void check_logs(void);
static void write_logs(void);
static struct log *patiently_open(const char *path, char **ret_sentence);

int cmd_run(int argc, char **argv)
{
    make_ready(argc, argv);
    reaper_start();
    make_job();
    throttle_check(&one.throttle);
    vow_future *f = job_run(one.job);
    if (one.by_signal != 0)
        job_stop(one.job, one.by_signal);
    (void)vow_loop_run_until(one.jobs.loop, f);
    vow_future_unref(f);
    throttle_end(&one.throttle);
    pool_close();
    write_logs();
    if (one.by_signal != 0) {
        (void)reaper_kill_marked(0);
        reaper_kill_children();
        reaper_end();
        signals_die(one.by_signal);
    }
    reaper_end();
    return job_exit_code(one.job);
}

static void make_ready(int argc, char **argv)
{
    struct settings *s = &one.settings;
    struct jobs *js = &one.jobs;
    char *sentence = NULL;
    int at = settings_read(s, &run_verb, argc, argv);
    if (at == argc)
        die(EXIT_BROKEN, "vow run: no command given. See vow run --help");
    if (vow_loop_new(NULL, &js->loop) < 0)
        die(EXIT_BROKEN, "cannot make a loop: %s", strerror(errno));
    poller_open(js->loop);
    signals_open(js->loop, on_signal);
    procs_open(js->loop);
    js->settings = s;
    js->inherit = true;
    js->on_start = on_start;
    js->on_store_down = on_store_down;
    js->template = template_new(
        literal(argv + at, (size_t)(argc - at)), (size_t)(argc - at),
        &(struct template_opts){.exec = true}, &sentence);
    if (js->template == NULL)
        die(EXIT_BROKEN, "vow run: %s", sentence);
    int rc = proc_find(argv[at], &js->program);
    if (rc != 0)
        die(rc, "vow run: %s: %s", argv[at],
            rc == EXIT_NOT_FOUND ? "command not found" : "cannot be run");
    check_logs();
    jobs_open(js);
    pool_open(js->loop, s, &run_verb, NULL);
    s->jobs = 1;
    vow_gate_opts o = job_limits(s);
    if (vow_gate_new(js->loop, &o, &js->gate) < 0)
        die(EXIT_BROKEN, "vow run: these limits cannot be kept");
    one.throttle = (struct throttle){.loop = js->loop,
                                     .gate = js->gate,
                                     .load = s->load,
                                     .memfree = s->memfree,
                                     .delay_ms = s->delay_ms};
}

/* Words in which braces mean nothing; they live as long as the program. */
static char *const *literal(char **words, size_t n)
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

static void make_job(void)
{
    struct job *j = job_new(&one.jobs);
    j->seq = 1;
    j->weight = 1;
    struct fields fields = job_fields(j);
    template_hash(one.jobs.template, &fields, j->hash);
    one.job = j;
}

static void on_start(struct job *j)
{
    struct text command = {0};
    throttle_started(&one.throttle);
    if (!one.settings.verbose)
        return;
    struct fields fields = job_fields(j);
    template_show_on(STDERR_FILENO, one.jobs.template, &fields, &command);
    say_command("%.*s (try %u)", (int)command.n, command.at, j->tries);
    text_free(&command);
}

static void on_store_down(vow_error *e)
{
    say("vow run: %s", vow_error_message(e));
    one.job->end = (struct end){.kind = END_NOT_RUN, .code = EXIT_BROKEN};
}

/* What the terminal sent, a command in our group has got already. */
static void on_signal(int number, bool by_terminal)
{
    if (number == SIGCHLD) {
        procs_reap();
    } else if (number == SIGTSTP) {
        procs_signal(SIGTSTP);
        signals_stop_us();
        procs_signal(SIGCONT);
    } else if (number == SIGUSR1 || number == SIGUSR2 || number == SIGWINCH) {
        procs_signal(number);
    } else if (one.by_signal == 0) {
        one.by_signal = number;
        if (one.job == NULL)
            return; /* the pool is being opened */
        bool has_it = by_terminal && !one.job->proc.own_group;
        job_stop(one.job, has_it ? SIGCONT : number);
    } else {
        procs_signal(SIGKILL);
    }
}

/* Before the command runs: a log that is none, or cannot be written. */
static void check_logs(void)
{
    const struct settings *s = &one.settings;
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

static void write_logs(void)
{
    const struct settings *s = &one.settings;
    struct text command = {0};
    struct record r;
    char *sentence = NULL;
    const char *file = s->log;
    int rc = 0;
    job_record(one.job, &command, &r);
    if (s->log != NULL) {
        struct log *l = patiently_open(s->log, &sentence);
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

/* Others have the log for the time of one line. */
static struct log *patiently_open(const char *path, char **ret_sentence)
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
