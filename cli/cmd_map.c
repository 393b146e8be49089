/* SPDX-License-Identifier: MIT */
/* cmd_map.c - vow map: preparing a run, and --dry-run. */
#include "cmd.h"
#include "emit.h"
#include "jobserver.h"
#include "map_run.h"
#include "pool_use.h"
#include "reaper.h"
#include "results.h"
#include "say.h"
#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run run;

static void map_prepare(int argc, char **argv);
static size_t count_command_words(int argc, char **argv, int at);
static void make_template(char **words, size_t n);
static void find_program(void);
static void open_terminal(void);
static void open_logs(void);
static void read_done(void);
static void open_gate(void);
static void open_bar(void);
static int dry_run(void);

int cmd_map(int argc, char **argv)
{
    map_prepare(argc, argv);
    if (run.settings.dry_run)
        return dry_run();
    reaper_start();
    vow_future *all = map_start();
    (void)vow_loop_run_until(run.loop, all);
    vow_future_unref(all);
    map_finish();
    return map_exit_code();
}

static void map_prepare(int argc, char **argv)
{
    struct settings *s = &run.settings;
    int at = settings_read(s, &map_verb, argc, argv);
    size_t n = count_command_words(argc, argv, at);
    if (n == 0)
        die(EXIT_USAGE, "vow map: no command given. See vow map --help");
    if (vow_loop_new(NULL, &run.loop) < 0)
        die(EXIT_BROKEN, "cannot create the event loop: %s", strerror(errno));
    poller_open(run.loop);
    run.input = input_new(run.loop, &s->input, argv + at + n,
                          (size_t)(argc - at) - n, s->files, s->n_files);
    signals_open(run.loop,
                 map_on_signal); /* before, signals end vow as usual */
    procs_open(run.loop);
    emit_open(run.loop, map_on_output_fails, streams_go_on);
    say_through(emit_text);
    run.halt_code = -1;
    run.jobs.loop = run.loop;
    run.jobs.settings = s;
    make_template(argv + at, n);
    jobs_open(&run.jobs);
    if (s->dry_run && (s->resume || s->resume_failed))
        read_done();
    if (s->dry_run)
        return;
    find_program();
    if (s->tty)
        open_terminal();
    if (s->results != NULL)
        results_open(s->results);
    open_logs();
    open_gate();
    open_bar();
}

/* Returns the number of words of the command. */
static size_t count_command_words(int argc, char **argv, int at)
{
    size_t n = 0;
    while (at + (int)n < argc && !input_is_separator(argv[at + (int)n]))
        n++;
    return n;
}

static void make_template(char **words, size_t n)
{
    const struct settings *s = &run.settings;
    char *sentence = NULL;
    struct template_opts *o = &run.placeholders;
    *o = (struct template_opts){
        .replace = s->replace, .shell = s->shell, .exec = s->exec};
    o->names = input_names(run.input, &o->n_names);
    o->n_fields = input_fields_most(run.input);
    run.jobs.template = template_new(words, n, o, &sentence);
    if (run.jobs.template == NULL)
        die_lines(EXIT_USAGE, "vow map: %s", sentence);
}

/* Finds the program before the first job, unless the program depends on the
 * item. */
static void find_program(void)
{
    const char *name = template_program(run.jobs.template);
    if (name == NULL)
        return;
    int rc = proc_find(name, &run.jobs.program);
    if (rc != 0)
        die(rc, "vow map: %s: %s", name,
            rc == EXIT_NOT_FOUND ? "command not found" : "cannot be run");
}

static void open_terminal(void)
{
    run.jobs.tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (run.jobs.tty < 0 || !proc_in_foreground())
        die(EXIT_USAGE, "vow map: --tty needs a terminal, and vow must run in "
                        "its foreground");
}

static void open_logs(void)
{
    const struct settings *s = &run.settings;
    char *sentence = NULL;
    bool resume = s->resume || s->resume_failed;
    if (s->log != NULL) {
        run.log = log_open(s->log, resume, &sentence);
        if (run.log == NULL)
            die(EXIT_BROKEN, "vow map: %s", sentence);
    }
    if (resume)
        read_done();
    if (s->joblog != NULL)
        run.joblog = joblog_open(s->joblog, resume, &sentence);
    if (s->joblog != NULL && run.joblog == NULL)
        die(EXIT_BROKEN, "vow map: %s", sentence);
}

static void read_done(void)
{
    const struct settings *s = &run.settings;
    char *sentence = NULL;
    run.skip_by_command = s->log == NULL;
    run.skip = s->log == NULL ? done_read_joblog(s->joblog, &sentence)
                              : done_read(s->log, &sentence);
    if (run.skip == NULL)
        die(EXIT_BROKEN, "vow map: %s", sentence);
}

static void open_gate(void)
{
    struct settings *s = &run.settings;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pool_open(run.loop, s, &map_verb, &run.placeholders);
    if (s->jobs == 0) {
        run.server = jobserver_open(run.loop, map_set_places);
        s->jobs = run.server ? 1 : cpus < 1 ? 1 : (uint32_t)cpus;
    }
    vow_gate_opts o = job_limits(s);
    int rc = vow_gate_new(run.loop, &o, &run.jobs.gate);
    if (rc < 0)
        die(EXIT_USAGE, "vow map: -j and --rate cannot be applied: %s",
            vow_error_text(rc));
    run.throttle = (struct throttle){.loop = run.loop,
                                     .gate = run.jobs.gate,
                                     .load = s->load,
                                     .memfree = s->memfree,
                                     .delay_ms = s->delay_ms};
    throttle_check(&run.throttle);
}

static void open_bar(void)
{
    const struct settings *s = &run.settings;
    const char *asked = s->progress != NULL ? s->progress
                        : s->bar            ? "auto"
                                            : "none";
    bool color = s->color != NULL && strcmp(s->color, "always") == 0;
    if (s->color == NULL || strcmp(s->color, "auto") == 0) {
        const char *no = getenv("NO_COLOR");
        const char *force = getenv("CLICOLOR_FORCE");
        color =
            (no == NULL || no[0] == '\0') &&
            ((force != NULL && force[0] != '\0' && strcmp(force, "0") != 0) ||
             isatty(STDERR_FILENO));
    }
    run.bar_style = bar_choose(asked, STDERR_FILENO);
    bar_open(&(struct bar_opts){.style = run.bar_style,
                                .fd = STDERR_FILENO,
                                .color = color,
                                .eta = true});
    say_around(bar_hide, bar_show);
}

static int dry_run(void)
{
    struct job *j = job_new(&run.jobs);
    vow_future *wait = NULL;
    int rc;
    while ((rc = input_next(run.input, &j->items, &wait)) == 1 ||
           rc == VOW_EAGAIN) {
        if (rc == VOW_EAGAIN) {
            (void)vow_loop_run_until(run.loop, wait);
            wait = vow_future_unref(wait);
            if (run.by_signal != 0)
                signals_die(run.by_signal);
            continue;
        }
        j->seq = ++run.pulled;
        if (map_already_done(j))
            continue;
        struct fields fields = job_fields(j);
        template_show_on(STDOUT_FILENO, run.jobs.template, &fields,
                         &run.command);
        text_add_str(&run.command, "\n");
        emit_text(STDOUT_FILENO, &run.command);
        if (emit_behind())
            emit_drain();
        if (run.by_signal != 0)
            signals_die(run.by_signal);
    }
    emit_drain();
    if (run.by_signal != 0)
        signals_die(run.by_signal);
    return run.broken || rc < 0 ? EXIT_BROKEN : 0;
}
