/* SPDX-License-Identifier: MIT */
/* job.c - see job.h.
 *
 * HOW   An attempt is a promise. Canceling the promise stops the process; the
 *       promise is settled when the process has ended. So the gate keeps the
 *       permit as long as there is a process. When the job's deadline passes,
 *       the gate settles its future first: then `late` waits for the process.
 * INVARIANTS
 *   J1  a job has a slot while an attempt runs
 *   J2  stdout is kept of the last attempt alone, stderr of all attempts
 */
#include "job.h"
#include "nested.h"
#include "pool_use.h"
#include "reaper.h"
#include "say.h"
#include "store_open.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEMPFAIL = 75, ENV_ADDED = 9, REFUSED = -1 };
enum { LACKS_MS = 20, LACKS_MAX_MS = 5000 /* while no process runs */ };

static const char *job_pool_key(const struct job *j);
static vow_future *attempt_start(vow_loop *loop, uint32_t number, void *job);
static int attempt_spawn(struct job *j);
static int jobs_stdin(const struct jobs *js);
static bool jobs_share_group(const struct jobs *js);
static int attempt_open_streams(struct job *j, int *ret_out, int *ret_err);
static void attempt_fill_env(struct job *j, int retry_fd);
static char *env_entry(size_t which, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void attempt_begin(void *job);
static bool attempt_may_wait(struct job *j, int error);
static void attempt_not_started(struct job *j, int error);
static void attempt_reject(struct job *j, vow_error *e);
static struct job *job_of(struct proc *p);
static void on_process_stopped(struct proc *p);
static void on_process_end(struct proc *p);
static void attempt_classify(struct job *j);
static uint64_t attempt_retry_after_ms(struct job *j);
static void on_attempt_cancel(vow_error *why, void *job);
static bool attempt_is_last(struct job *j);
static void job_set_retrying(struct job *j, bool waits);
static bool job_may_retry(vow_error *e, void *job);
static bool job_is_retryable(const struct job *j);
static vow_next on_job_ok(vow_value v, void *job);
static vow_next on_job_fail(vow_error *e, void *job);
static void job_not_admitted(struct job *j, vow_error *e);
static vow_next job_finish(struct job *j);
static void job_take_slot(struct job *j);
static void job_give_slot(struct job *j);

/* ---- all jobs ------------------------------------------------------------ */

void jobs_open(struct jobs *js)
{
    static const char *const ours[] = {
        "VOW_RUN=", "VOW_SEQ=",      "VOW_SLOT=",
        "VOW_TRY=", "VOW_DEADLINE=", "VOW_RETRY_AFTER_FD="};
    size_t n = 0;
    while (environ[n] != NULL)
        n++;
    js->env = mem_new((n + ENV_ADDED) * sizeof(js->env[0]));
    for (size_t i = 0; i < n; i++) {
        bool added = false;
        for (size_t k = 0; k < sizeof(ours) / sizeof(ours[0]); k++)
            added |= strncmp(environ[i], ours[k], strlen(ours[k])) == 0;
        if (!added && !nested_is_variable(environ[i]))
            js->env[js->n_env++] = environ[i];
    }
    js->null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (js->null < 0)
        die(EXIT_BROKEN, "cannot open /dev/null: %s", strerror(errno));
}

struct job *job_new(struct jobs *js)
{
    struct job *j = js->spare;
    struct items items = {0};
    if (j == NULL)
        j = mem_new(sizeof(*j));
    else {
        js->spare = j->next;
        items = j->items; /* the memory of the items is used again */
    }
    *j = (struct job){.jobs = js, .items = items, .retry_after = -1};
    j->out = j->err = stream_of(0);
    return j;
}

void job_free(struct job *j)
{
    stream_drop(&j->out);
    stream_drop(&j->err);
    j->next = j->jobs->spare;
    j->jobs->spare = j;
}

/* With a pool, the rate is a limit of the pool. */
vow_gate_opts job_limits(const struct settings *s)
{
    vow_gate_opts o = {.size = sizeof(o), .concurrent = s->jobs};
    if (s->pool == NULL) {
        o.rate = s->rate.n;
        o.window_ms = s->rate.window_ms;
        o.even = s->even;
    }
    pool_behind(&o);
    return o;
}

/* ---- running ------------------------------------------------------------- */

vow_future *job_run(struct job *j)
{
    const struct settings *s = j->jobs->settings;
    const vow_retry_opts retry = {
        .size = sizeof(retry),
        .tries = UINT32_MAX, /* job_may_retry() counts */
        .backoff_ms = {s->backoff.first_ms, s->backoff.most_ms},
        .retry_if = job_may_retry,
        .retry_if_user = j};
    const vow_job_opts o = {.size = sizeof(o),
                            .weight = j->weight,
                            .deadline_ms = s->deadline_ms,
                            .key = job_pool_key(j),
                            .retry = &retry};
    vow_error *refused = pool_refuses(o.key, o.weight);
    if (s->deadline_ms > 0)
        j->due_us = proc_now_us() + s->deadline_ms * 1000;
    j->next = j->jobs->live;
    j->prev = NULL;
    if (j->next != NULL)
        j->next->prev = j;
    j->jobs->live = j;
    j->whole = refused != NULL
                   ? vow_rejected(j->jobs->loop, refused)
                   : vow_gate_run(j->jobs->gate, attempt_start, j, &o);
    return vow_then(j->whole, on_job_ok, on_job_fail, j);
}

static const char *job_pool_key(const struct job *j)
{
    const struct settings *s = j->jobs->settings;
    if (s->pool == NULL)
        return NULL;
    struct fields fields = job_fields(j);
    return pool_key(&fields);
}

static vow_future *attempt_start(vow_loop *loop, uint32_t number, void *job)
{
    struct job *j = job;
    (void)number;
    j->tries++;
    job_set_retrying(j, false);
    job_take_slot(j);
    vow_future *f = vow_promise(loop, &j->attempt);
    vow_on_cancel(j->attempt, on_attempt_cancel, j);
    attempt_begin(j);
    return f;
}

/* Starts the process of an attempt; called again after a lack of resources. */
static void attempt_begin(void *job)
{
    struct job *j = job;
    int error = attempt_spawn(j);
    if (error == 0) {
        j->started = true;
        if (j->jobs->on_start != NULL)
            j->jobs->on_start(j);
        return;
    }
    stream_end(&j->out);
    stream_end(&j->err);
    if (j->retry_after >= 0)
        (void)close(j->retry_after);
    j->retry_after = -1;
    if (attempt_may_wait(j, error)) {
        vow_call_at(&j->lack_call, j->jobs->loop,
                    vow_loop_due_ns(j->jobs->loop, LACKS_MS), attempt_begin, j);
        return;
    }
    j->started = true;
    attempt_not_started(j, error);
    attempt_reject(j, vow_error_new(j->jobs->loop, VOW_EIO, "not started"));
}

/* Returns whether a lacking resource may become free, so that the attempt is
 * worth starting again. Descriptors (EMFILE) are freed only by vow itself: by
 * running jobs and by files of kept output. Any process may free other
 * resources: wait up to LACKS_MAX_MS. */
static bool attempt_may_wait(struct job *j, int error)
{
    uint64_t now = vow_loop_now_ns(j->jobs->loop);
    bool ours = error == EMFILE;
    bool lacks = ours || error == EAGAIN || error == ENFILE ||
                 error == ENOMEM || error == ETXTBSY;
    if (!lacks || procs_running() > 0) {
        j->lacks_ns = 0;
        return lacks;
    }
    if (ours && streams_in_files() == 0)
        return false;
    if (j->lacks_ns == 0)
        j->lacks_ns = now;
    return now - j->lacks_ns < (uint64_t)LACKS_MAX_MS * 1000000;
}

static void attempt_reject(struct job *j, vow_error *e)
{
    vow_deferred *attempt = j->attempt;
    j->attempt = NULL;
    job_give_slot(j);
    vow_on_cancel(attempt, NULL, NULL);
    (void)vow_reject_drop(attempt, e);
}

/* Starts the process. Returns 0, an errno, or REFUSED after a message. The
 * process's ends of all pipes are closed in any case. */
static int attempt_spawn(struct job *j)
{
    struct jobs *js = j->jobs;
    const struct settings *s = js->settings;
    struct fields fields = job_fields(j);
    const char *refused = template_expand(js->template, &fields, &js->command);
    char *path = js->program;
    int ends[2] = {-1, -1}, out = 1, err = 2, error = 0;
    if (refused != NULL) {
        say("job %llu: %s", (unsigned long long)j->seq, refused);
        return REFUSED;
    }
    if (path == NULL) {
        int rc = proc_find(js->command.argv[0], &path);
        error = rc == 0 ? 0 : rc == EXIT_NOT_FOUND ? ENOENT : EACCES;
    }
    if (error == 0 && !js->inherit)
        error = attempt_open_streams(j, &out, &err);
    if (error == 0 && s->retries > 0 && pipe2(ends, O_CLOEXEC) == 0) {
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
        j->retry_after = ends[0];
    }
    attempt_fill_env(j, ends[1]);
    if (error == 0)
        error = proc_start(
            &j->proc, &(struct proc_opts){.path = path,
                                          .argv = js->command.argv,
                                          .env = js->env,
                                          .in = jobs_stdin(js),
                                          .out = out,
                                          .err = err,
                                          .also = ends[1],
                                          .in_our_group = jobs_share_group(js),
                                          .timeout_ms = s->timeout_ms,
                                          .seq = j->seq,
                                          .kill = &s->kill,
                                          .ended = on_process_end,
                                          .stopped = on_process_stopped});
    if (ends[1] >= 0)
        (void)close(ends[1]);
    if (out > 2 && out != js->null)
        (void)close(out);
    if (err > 2 && err != js->null)
        (void)close(err);
    if (path != js->program)
        free(path);
    return error;
}

static int jobs_stdin(const struct jobs *js)
{
    if (js->inherit)
        return STDIN_FILENO;
    return js->tty > 0 ? js->tty : js->null;
}

/* Returns whether the job stays in vow's process group. There a job can use the
 * terminal, and gets Ctrl-C and Ctrl-Z. */
static bool jobs_share_group(const struct jobs *js)
{
    return (js->inherit || js->tty > 0) && proc_in_foreground();
}

/* Keeps J2. */
static int attempt_open_streams(struct job *j, int *ret_out, int *ret_err)
{
    const struct settings *s = j->jobs->settings;
    if (s->output == OUTPUT_LIVE && s->results == NULL)
        return 0;
    if (s->output == OUTPUT_NONE && s->results == NULL && !s->json) {
        *ret_out = *ret_err = j->jobs->null;
        return 0;
    }
    struct text tag = j->out.tag;
    j->out.tag = (struct text){0};
    stream_drop(&j->out);
    *ret_out = stream_open(&j->out, STDOUT_FILENO);
    j->out.tag = tag;
    if (*ret_out < 0)
        return errno;
    struct stream before = j->err;
    *ret_err = stream_open(&j->err, STDERR_FILENO);
    j->err.tag = before.tag;
    j->err.text = before.text;
    j->err.file = before.file;
    j->err.in_file = before.in_file;
    j->err.bytes = before.bytes;
    j->out.by_lines = j->err.by_lines = s->output == OUTPUT_LINE;
    return *ret_err < 0 ? errno : 0;
}

/* Adds the variables of the job to the environment. The strings are used until
 * the process has a copy. */
static void attempt_fill_env(struct job *j, int retry_fd)
{
    static struct text word;
    static char *held;
    struct jobs *js = j->jobs;
    size_t n = js->n_env;
    free(held);
    held = pool_held(job_pool_key(j), j->weight);
    if (held != NULL)
        js->env[n++] = held;
    reaper_mark(&word, j->seq);
    js->env[n++] = word.at;
    js->env[n++] = env_entry(0, "VOW_SEQ=%llu", (unsigned long long)j->seq);
    js->env[n++] = env_entry(1, "VOW_SLOT=%u", j->slot);
    js->env[n++] = env_entry(2, "VOW_TRY=%u", j->tries);
    if (retry_fd >= 0)
        js->env[n++] =
            env_entry(3, "VOW_RETRY_AFTER_FD=%d", proc_also_number());
    if (j->due_us > 0)
        js->env[n++] = env_entry(4, "VOW_DEADLINE=%llu.%06llu",
                                 (unsigned long long)(j->due_us / 1000000),
                                 (unsigned long long)(j->due_us % 1000000));
    js->env[n] = NULL;
}

static char *env_entry(size_t which, const char *format, ...)
{
    static char entries[ENV_ADDED][64];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(entries[which], sizeof(entries[which]), format, args);
    va_end(args);
    return entries[which];
}

static void attempt_not_started(struct job *j, int error)
{
    long most = sysconf(_SC_ARG_MAX);
    const char *name = j->jobs->command.argv[0];
    j->end = (struct end){.kind = END_NOT_RUN, .code = EXIT_CANNOT_RUN};
    if (error == ENOENT)
        j->end.code = EXIT_NOT_FOUND;
    if (error == E2BIG)
        say("job %llu: its arguments have %zu bytes; the limit is %ld with the "
            "environment, and 131072 for one argument: use fewer or shorter "
            "items per job (-n)",
            (unsigned long long)j->seq, j->jobs->command.bytes, most);
    else if (error == EMFILE)
        say("job %llu: cannot run %s: too few file descriptors; raise the "
            "limit (ulimit -n)",
            (unsigned long long)j->seq, name);
    else if (error != REFUSED) /* REFUSED wrote a message */
        say("job %llu: cannot run %s: %s", (unsigned long long)j->seq, name,
            error == ENOENT ? "not found" : strerror(error));
}

/* ---- the end of an attempt ----------------------------------------------- */

static struct job *job_of(struct proc *p)
{
    return (struct job *)(void *)((char *)p - offsetof(struct job, proc));
}

static void on_process_stopped(struct proc *p)
{
    const struct job *j = job_of(p);
    if (j->jobs->inherit)
        say("vow run: the command wants to use the terminal, but runs in the "
            "background: it is ended; run it in the foreground");
    else
        say("job %llu wants to use the terminal, which jobs do not have: it is "
            "ended; --tty runs one job at a time and lends it the terminal",
            (unsigned long long)j->seq);
}

static void on_process_end(struct proc *p)
{
    struct job *j = job_of(p);
    vow_deferred *attempt = j->attempt;
    vow_deferred *late = j->late;
    stream_end(&j->out);
    stream_end(&j->err);
    attempt_classify(j);
    job_give_slot(j);
    uint64_t wait_ms = attempt_retry_after_ms(j);
    j->attempt = j->late = NULL;
    bool last = attempt_is_last(j);
    job_set_retrying(j, !last && late == NULL);
    if (j->jobs->on_last_end != NULL && last)
        j->jobs->on_last_end(j);
    if (j->jobs->on_end != NULL)
        j->jobs->on_end();
    vow_on_cancel(attempt, NULL, NULL);
    if (job_failed(j)) {
        vow_error *e = vow_error_new(j->jobs->loop, VOW_EIO, "it failed");
        if (wait_ms > 0)
            vow_error_set_retry_after_ms(e, wait_ms);
        (void)vow_reject_drop(attempt, e);
    } else {
        (void)vow_resolve_drop(attempt, vow_nothing());
    }
    if (late != NULL)
        (void)vow_resolve_drop(late, vow_nothing());
}

/* Returns whether no further attempt follows. If false, the deadline may still
 * forbid another attempt. */
static bool attempt_is_last(struct job *j)
{
    return !job_failed(j) || j->tries > j->jobs->settings->retries ||
           !job_is_retryable(j);
}

static void job_set_retrying(struct job *j, bool waits)
{
    j->jobs->retrying -= j->retrying;
    j->jobs->retrying += waits;
    j->retrying = waits;
}

static void attempt_classify(struct job *j)
{
    int status = j->proc.status;
    bool exited = WIFEXITED(status);
    j->end =
        (struct end){.kind = exited ? END_EXIT : END_SIGNAL,
                     .code = exited ? WEXITSTATUS(status) : WTERMSIG(status)};
    if (!job_failed(j) && (j->out.error != 0 || j->err.error != 0))
        j->end.code = EXIT_BROKEN; /* a part of the output is lost */
    if (!job_failed(j) && j->proc.wanted_tty)
        j->end.code = EXIT_CANNOT_RUN;
    if (j->proc.timed_out || j->late != NULL) {
        j->end.kind = END_TIMEOUT;
        j->end.exited = exited;
    }
    if (j->lost)
        j->end = (struct end){.kind = END_EXIT, .code = EXIT_LOST};
}

/* Returns how long the job asked to wait, in milliseconds; 0: not asked. The
 * job writes seconds to VOW_RETRY_AFTER_FD. */
static uint64_t attempt_retry_after_ms(struct job *j)
{
    char text[64];
    if (j->retry_after < 0)
        return 0;
    ssize_t n = read(j->retry_after, text, sizeof(text) - 1);
    (void)close(j->retry_after);
    j->retry_after = -1;
    if (n <= 0)
        return 0;
    text[n] = '\0';
    double s = strtod(text, NULL);
    return s > 0 && s < 1e9 ? (uint64_t)ceil(s * 1000) : 0;
}

static void on_attempt_cancel(vow_error *why, void *job)
{
    struct job *j = job;
    j->lost = vow_error_code(vow_error_root(why)) == VOW_ELOST;
    if (j->lost)
        say("job %llu: its pool permit was lost, so the job is ended",
            (unsigned long long)j->seq);
    if (j->proc.pid == 0) { /* the attempt waits for a lacking resource */
        (void)vow_call_stop(&j->lack_call);
        j->started |= j->lost;
        if (j->lost)
            j->end = (struct end){.kind = END_EXIT, .code = EXIT_LOST};
        attempt_reject(j, vow_error_ref(why));
    } else if (!j->lost)
        proc_stop(&j->proc, 0);
    else
        proc_stop_within(&j->proc, pool_lost_ms());
}

static bool job_may_retry(vow_error *e, void *job)
{
    const struct job *j = job;
    if (vow_error_code(e) != VOW_EIO || j->stopped)
        return false;
    return j->tries <= j->jobs->settings->retries && job_is_retryable(j);
}

static bool job_is_retryable(const struct job *j)
{
    const struct retry_on *on = &j->jobs->settings->retry_on;
    unsigned code = (unsigned)j->end.code & 255;
    if (j->stopped || j->end.kind == END_NOT_RUN || j->proc.wanted_tty)
        return false;
    if (j->end.kind == END_TIMEOUT)
        return on->timeout;
    if (j->end.kind == END_SIGNAL)
        return on->signal;
    return code == TEMPFAIL || (on->codes[code / 64] >> (code % 64) & 1) != 0;
}

/* ---- the end of the job -------------------------------------------------- */

static vow_next on_job_ok(vow_value v, void *job)
{
    (void)v;
    return job_finish(job);
}

static vow_next on_job_fail(vow_error *e, void *job)
{
    struct job *j = job;
    int code = vow_error_code(e);
    if (j->proc.pid != 0) { /* past the deadline, being ended */
        vow_future *late = vow_promise(j->jobs->loop, &j->late);
        return vow_follow(vow_then_drop(late, on_job_ok, NULL, j));
    }
    if (code == VOW_ETIMEDOUT && j->end.kind != END_TIMEOUT)
        j->end = (struct end){
            .kind = END_TIMEOUT, .code = EXIT_TIMEOUT, .exited = true};
    else if (!j->started && code == VOW_ECANCELED)
        j->unrun = true;
    else if (!j->started || code == VOW_ESTORE)
        job_not_admitted(j, e);
    return job_finish(j);
}

/* Records why a job got no permit. A store that is down affects all jobs: the
 * message is written once by on_store_down(), and the job counts as not run. */
static void job_not_admitted(struct job *j, vow_error *e)
{
    bool store = vow_error_code(e) == VOW_ESTORE;
    if (store && j->jobs->on_store_down != NULL)
        j->jobs->on_store_down(e);
    else
        say("job %llu: %s", (unsigned long long)j->seq, vow_error_message(e));
    if (j->started)
        return;
    j->unrun = store;
    j->end = (struct end){.kind = END_NOT_RUN, .code = EXIT_BROKEN};
}

static vow_next job_finish(struct job *j)
{
    job_set_retrying(j, false);
    if (j->prev != NULL)
        j->prev->next = j->next;
    else
        j->jobs->live = j->next;
    if (j->next != NULL)
        j->next->prev = j->prev;
    j->whole = vow_future_unref(j->whole);
    return vow_ok(vow_ptr(j));
}

void job_stop(struct job *j, int number)
{
    j->stopped = true;
    if (j->proc.pid != 0)
        proc_stop(&j->proc, number);
    else
        (void)vow_cancel(j->whole, NULL);
}

/* ---- slots --------------------------------------------------------------- */

/* Takes the lowest free slot: keeps J1. */
static void job_take_slot(struct job *j)
{
    struct jobs *js = j->jobs;
    size_t i = 0;
    while (i < js->n_slots && js->slots[i])
        i++;
    if (i == js->n_slots) {
        size_t n = js->n_slots == 0 ? 16 : 2 * js->n_slots;
        js->slots = mem_resize(js->slots, n);
        memset(js->slots + js->n_slots, 0, n - js->n_slots);
        js->n_slots = n;
    }
    js->slots[i] = true;
    j->slot = (uint32_t)i + 1;
}

static void job_give_slot(struct job *j)
{
    j->jobs->slots[j->slot - 1] = false;
}

/* ---- properties of a job ------------------------------------------------- */

struct fields job_fields(const struct job *j)
{
    struct spans *spans = &j->jobs->spans;
    spans_of(&j->items, j->jobs->settings->input.columns, spans);
    return (struct fields){.items = spans->items,
                           .n_items = spans->n_items,
                           .fields = spans->fields,
                           .n_fields = spans->n_fields,
                           .seq = j->seq,
                           .slot = j->slot == 0 ? 1 : j->slot};
}

bool job_failed(const struct job *j)
{
    return j->end.kind != END_EXIT || j->end.code != 0;
}

int job_exit_code(const struct job *j)
{
    if (j->end.kind == END_TIMEOUT)
        return EXIT_TIMEOUT;
    return j->end.kind == END_SIGNAL ? EXIT_SIGNAL + j->end.code : j->end.code;
}

const char *job_end_text(const struct job *j, char *into, size_t room)
{
    char name[16];
    if (j->lost)
        (void)snprintf(into, room, "lost its pool permit");
    else if (j->end.kind == END_TIMEOUT)
        (void)snprintf(into, room, "timed out");
    else if (j->proc.wanted_tty && job_failed(j))
        (void)snprintf(into, room, "wanted the terminal");
    else if (j->end.kind == END_SIGNAL)
        (void)snprintf(into, room, "killed by %s",
                       units_signal_name(j->end.code, name));
    else if (j->end.kind == END_NOT_RUN)
        (void)snprintf(into, room, "not started");
    else
        (void)snprintf(into, room, "exit %d", j->end.code);
    return into;
}

void job_record(struct job *j, struct text *command, struct record *ret)
{
    struct fields fields = job_fields(j);
    text_clear(command);
    template_show(j->jobs->template, &fields, command);
    *ret = (struct record){.seq = j->seq,
                           .slot = j->slot,
                           .tries = j->tries,
                           .start_us = j->proc.start_us,
                           .wall_us = j->proc.wall_us,
                           .end = j->end,
                           .out_bytes = j->out.bytes,
                           .err_bytes = j->err.bytes,
                           .usage = j->proc.usage,
                           .stopped = j->stopped && job_failed(j),
                           .again = j->again,
                           .command = text_span(command)};
    memcpy(ret->hash, j->hash, sizeof(ret->hash));
}
