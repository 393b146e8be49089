/* SPDX-License-Identifier: MIT */
/* runner.c - see runner.h.
 *
 * HOW   The pipes are watched with EPOLLET: the kernel then lists the pipes in
 *       the order in which they became readable. So each pipe is read until
 *       empty.
 * INVARIANTS
 *   U1  the chunks sent so far, joined, are the beginning of the recording
 *   U2  a pipe with bytes is being read, or an event of the pipe is still to
 *       come
 */
#include "runner.h"
#include "emit.h"
#include "nested.h"
#include "reaper.h"
#include "say.h"
#include "session.h"
#include "show.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CHUNK = 64 << 10,
    TURNS = 16,       /* chunks read before other events are handled */
    PIPE_CHUNKS = 17, /* most chunks in a pipe */
    SEND_MAX = 1 << 20,
    SEND_MS = 20, /* time between two chunks for followers */
    LEASE_MS = 10000,
    ENV_ADDED = 7,
    SECOND_US = 1000000
};

static char buffer[CHUNK];

static int runner_launch(struct runner *r);
static void runner_owe_result(const struct runner *r, bool owes);
static int runner_open_pipe(struct runner_pipe *p, struct runner *of, int fd);
static char **runner_make_env(const struct runner *r);
static bool variable_is_replaced(const char *variable);
static char *env_format(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static int runner_not_started(const struct runner *r, int error);
static void on_runner_readable(struct poller *poller, uint32_t events);
static void runner_read_pipe(void *pipe);
static bool runner_read_chunk(struct runner_pipe *p);
static void runner_take_output(struct runner_pipe *p, size_t n);
static void runner_output_too_big(struct runner *r);
static void on_runner_cancel(vow_error *why, void *runner);
static void runner_watch_lease(struct runner *r);
static void runner_check_lease(void *runner);
static void runner_lose(struct runner *r);
static vow_next on_lease_lost(vow_error *poller, void *runner);
static vow_next on_result_published(vow_value v, void *runner);
static vow_next on_result_refused(vow_error *poller, void *runner);
static void on_runner_end(struct proc *p);
static void runner_drain_pipe(struct runner_pipe *p);
static void runner_settle(struct runner *r);
static void runner_send_chunk(void *runner);
static vow_next on_chunk_sent(vow_value v, void *runner);
static vow_next on_chunk_not_sent(vow_error *poller, void *runner);

/* ---- starting ------------------------------------------------------------ */

vow_future *runner_start(struct runner *r, const struct runner_opts *o)
{
    static uint64_t seq;
    *r = (struct runner){.o = *o, .out.poller.fd = -1, .err.poller.fd = -1};
    r->seq = ++seq;
    session_work();
    vow_future *f = vow_promise(session_loop(), &r->done);
    if (!vow_deferred_pending(r->done))
        die(EXIT_BROKEN, "out of memory");
    vow_on_cancel(r->done, on_runner_cancel, r);
    (void)vow_lease_ref(o->lease);
    int code = runner_launch(r);
    if (code != 0)
        session_over(code);
    else
        runner_watch_lease(r);
    runner_owe_result(r, code == 0);
    return f;
}

static void runner_owe_result(const struct runner *r, bool owes)
{
    if (r->o.shared->mode == VOW_ONCE)
        session_owes_result(owes);
}

/* Starts the process. Returns 0, or the exit code after a message. */
static int runner_launch(struct runner *r)
{
    const struct shared *s = r->o.shared;
    char *path = NULL;
    int in = r->o.in, out = -1, err = -1, error = 0;
    int code = proc_find(r->o.argv[0], &path);
    if (code != 0)
        error = code == EXIT_NOT_FOUND ? ENOENT : EACCES;
    if (error == 0 && in < 0 &&
        (in = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
        error = errno;
    if (error == 0 &&
        ((out = runner_open_pipe(&r->out, r, STDOUT_FILENO)) < 0 ||
         (err = runner_open_pipe(&r->err, r, STDERR_FILENO)) < 0))
        error = errno;
    if (error == 0)
        error = proc_start(&r->proc,
                           &(struct proc_opts){.path = path,
                                               .argv = r->o.argv,
                                               .env = runner_make_env(r),
                                               .in = in,
                                               .out = out,
                                               .err = err,
                                               .also = -1,
                                               .timeout_ms = s->timeout_ms,
                                               .seq = r->seq,
                                               .kill = &s->kill,
                                               .ended = on_runner_end});
    const int ends[] = {in, out, err};
    for (size_t i = 0; i < 3; i++)
        if (ends[i] >= 0)
            (void)close(ends[i]);
    free(path);
    return error == 0 ? 0 : runner_not_started(r, error);
}

/* Opens a pipe. Returns the command's end, or -1 and errno. */
static int runner_open_pipe(struct runner_pipe *p, struct runner *of, int fd)
{
    int ends[2];
    p->of = of;
    p->fd = fd;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    (void)fcntl(ends[1], F_SETFL, 0); /* the command's end blocks */
    if (poller_watch(&p->poller, ends[0], EPOLLIN | EPOLLET,
                     on_runner_readable))
        return ends[1];
    (void)close(ends[0]);
    (void)close(ends[1]);
    return -1;
}

/* Makes the environment of the command, which is never freed. */
static char **runner_make_env(const struct runner *r)
{
    const struct shared *s = r->o.shared;
    struct text word = {0};
    size_t n = 0, all = 0;
    while (environ[all] != NULL)
        all++;
    char **env = mem_new((all + ENV_ADDED + 1) * sizeof(env[0]));
    for (size_t i = 0; i < all; i++)
        if (!variable_is_replaced(environ[i]))
            env[n++] = environ[i];
    reaper_mark(&word, r->seq);
    env[n++] = word.at;
    env[n++] = env_format("VOW_NAME=%.*s", VOW_LABEL_MAX, r->o.label);
    env[n++] = env_format("VOW_FENCE=%llu",
                          (unsigned long long)vow_lease_fence(r->o.lease));
    env[n++] = env_format("VOW_TRY=%u", vow_lease_attempt(r->o.lease));
    uint64_t fence = session_alone() ? 0 : vow_lease_fence(r->o.lease);
    char *held = nested_variable(
        fence == 0 ? NULL
                   : &(struct nested_hold){.store = &s->store, .fence = fence});
    if (held != NULL)
        env[n++] = held;
    if (s->timeout_ms > 0) {
        uint64_t due_us = proc_now_us() + s->timeout_ms * 1000;
        env[n++] = env_format("VOW_DEADLINE=%llu.%06llu",
                              (unsigned long long)(due_us / SECOND_US),
                              (unsigned long long)(due_us % SECOND_US));
    }
    return env;
}

static bool variable_is_replaced(const char *variable)
{
    static const char *const ours[] = {
        "VOW_RUN=", "VOW_NAME=", "VOW_FENCE=", "VOW_TRY=", "VOW_DEADLINE="};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (strncmp(variable, ours[i], strlen(ours[i])) == 0)
            return true;
    return nested_is_variable(variable);
}

static char *env_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        die(EXIT_BROKEN, "out of memory");
    va_end(args);
    return text;
}

/* Writes why the command was not started. Returns the exit code. The name is
 * left to other waiters: they may have the program, or enough memory. */
static int runner_not_started(const struct runner *r, int error)
{
    const struct shared *shared = r->o.shared;
    const char *verb = shared->store.verb->name;
    if (error == ENOENT && shared->name_by_place) {
        say("vow %s: %s: command not found; '%s' was taken as the name: use "
            "vow %s NAME -- COMMAND",
            verb, r->o.argv[0], shared->name, verb);
        return EXIT_NOT_FOUND;
    }
    if (error == ENOENT) {
        say("vow %s: %s: command not found", verb, r->o.argv[0]);
        return EXIT_NOT_FOUND;
    }
    say("vow %s: %s: cannot be run: %s", verb, r->o.argv[0], strerror(error));
    return error == EAGAIN || error == ENOMEM || error == EMFILE ||
                   error == ENFILE
               ? EXIT_BROKEN
               : EXIT_CANNOT_RUN;
}

/* ---- output of the command ----------------------------------------------- */

static void on_runner_readable(struct poller *poller, uint32_t events)
{
    (void)events;
    runner_read_pipe(poller); /* first member of runner_pipe */
}

/* Keeps U2. */
static void runner_read_pipe(void *pipe)
{
    struct runner_pipe *p = pipe;
    for (int turns = TURNS; turns > 0; turns--)
        if (p->poller.fd < 0 || !runner_read_chunk(p))
            return;
    vow_call_at(&p->more, session_loop(), vow_loop_now_ns(session_loop()),
                runner_read_pipe, p);
}

/* Reads a chunk. Returns false if there are no more bytes now, or ever. */
static bool runner_read_chunk(struct runner_pipe *p)
{
    ssize_t n = read(p->poller.fd, buffer, CHUNK);
    if (n < 0)
        return errno == EINTR;
    if (n == 0)
        poller_close(&p->poller);
    else
        runner_take_output(p, (size_t)n);
    return n > 0;
}

/* Records, sends and shows a chunk. Bytes beyond --max-output are dropped. */
static void runner_take_output(struct runner_pipe *p, size_t n)
{
    struct runner *r = p->of;
    bool hidden = p->fd == STDERR_FILENO ? r->o.hide_err : r->o.hide_out;
    if (r->too_big)
        return;
    uint64_t room = r->o.shared->max_output - r->recording.kept;
    bool over = n > room;
    if (over)
        n = (size_t)room;
    if (n > 0) {
        recording_add(&r->recording, p->fd, buffer, n);
        runner_send_chunk(r);
        if (!hidden)
            show_bytes(p->fd, buffer, n, NULL);
    }
    if (over)
        runner_output_too_big(r);
}

/* Ends the command: output beyond --max-output is no result. */
static void runner_output_too_big(struct runner *r)
{
    r->too_big = true;
    if (r->stopped == NULL)
        r->stopped =
            vow_error_new(session_loop(), VOW_E2BIG,
                          "it writes more than %llu bytes; give a larger "
                          "--max-output",
                          (unsigned long long)r->o.shared->max_output);
    proc_stop(&r->proc, 0);
}

/* ---- being stopped ------------------------------------------------------- */

static void on_runner_cancel(vow_error *why, void *runner)
{
    struct runner *r = runner;
    vow_deferred *done = r->done;
    if (r->proc.pid == 0) { /* not started, or being published */
        r->done = NULL;
        (void)vow_reject_drop(done, vow_error_ref(why));
        return;
    }
    if (r->stopped == NULL)
        r->stopped = vow_error_ref(why);
    bool lost = vow_error_code(vow_error_root(why)) == VOW_ELOST;
    if (lost)
        runner_lose(r);
    proc_stop(&r->proc, lost ? SIGKILL : 0);
}

void runner_stop(struct runner *r, vow_error *why)
{
    r->ended = false; /* the end does not count */
    r->o.hide_out = r->o.hide_err = true;
    if (r->done != NULL)
        on_runner_cancel(why, r);
}

static void runner_watch_lease(struct runner *r)
{
    vow_lease *l = r->o.lease;
    if (!r->o.shared->keep_lost)
        runner_check_lease(r);
    if (vow_done(vow_lease_lost(l), NULL, on_lease_lost, r) < 0 ||
        vow_done(vow_lease_settled(l), on_result_published, on_result_refused,
                 r) < 0)
        die(EXIT_BROKEN, "out of memory");
}

/* Stops the command when only a third of the lease is left, enough time to end
 * the command. */
static void runner_check_lease(void *runner)
{
    struct runner *r = runner;
    const struct store_opts *s = &r->o.shared->store;
    uint64_t third = (s->lease_ms > 0 ? s->lease_ms : LEASE_MS) / 3;
    uint64_t left = vow_lease_left_ms(r->o.lease);
    if (left > third) {
        vow_call_weakly_at(&r->watch, session_loop(),
                           vow_loop_due_ns(session_loop(), left - third),
                           runner_check_lease, r);
        return;
    }
    runner_lose(r);
    proc_stop_within(&r->proc, left - left / 4);
}

static void runner_lose(struct runner *r)
{
    if (r->lost)
        return;
    r->lost = true;
    r->o.lost(r);
}

static vow_next on_lease_lost(vow_error *poller, void *runner)
{
    struct runner *r = runner;
    if (r->proc.pid == 0 || vow_error_code(poller) != VOW_ELOST)
        return vow_ok(vow_nothing());
    runner_lose(r);
    if (!r->o.shared->keep_lost) {
        proc_signal(&r->proc, SIGKILL);
        proc_stop(&r->proc, SIGKILL);
    }
    return vow_ok(vow_nothing());
}

static vow_next on_result_published(vow_value v, void *runner)
{
    struct runner *r = runner;
    (void)v;
    r->published = true;
    runner_owe_result(r, false);
    if (r->o.published != NULL)
        r->o.published(r);
    return vow_ok(vow_nothing());
}

/* Handles a refused result. While the command runs, on_runner_end() handles the
 * loss; and the session may already be over. */
static vow_next on_result_refused(vow_error *poller, void *runner)
{
    struct runner *r = runner;
    (void)poller;
    if (!r->ended || session_is_over())
        return vow_ok(vow_nothing());
    runner_lose(r);
    r->o.lost_ended(r);
    return vow_ok(vow_nothing());
}

/* ---- the end ------------------------------------------------------------- */

static void on_runner_end(struct proc *p)
{
    struct runner *r =
        (struct runner *)(void *)((char *)p - offsetof(struct runner, proc));
    runner_drain_pipe(&r->out);
    runner_drain_pipe(&r->err);
    (void)vow_call_stop(&r->watch);
    if (session_ends())
        return;
    if (r->lost) {
        r->o.lost_ended(r);
        return;
    }
    bool killed = WIFSIGNALED(p->status) && !p->told; /* not by vow */
    if ((r->stopped != NULL || killed) && r->o.doubt != NULL && !r->too_big) {
        r->o.doubt(r);
        return;
    }
    if (r->stopped != NULL) { /* not a result to keep */
        vow_deferred *done = r->done;
        runner_owe_result(r, false);
        r->done = NULL;
        vow_lease_keep(r->o.lease, 0);
        (void)vow_reject_drop(done, r->stopped);
        return;
    }
    r->ended = true;
    r->end = runner_ending(p);
    recording_end(&r->recording, r->end);
    r->flushing = true;
    runner_send_chunk(r);
}

/* Reads the rest of a pipe, and closes the pipe. Later output of a process that
 * the command left behind is not output of the command. */
static void runner_drain_pipe(struct runner_pipe *p)
{
    (void)vow_call_stop(&p->more);
    for (int left = PIPE_CHUNKS; left > 0 && p->poller.fd >= 0; left--)
        if (!runner_read_chunk(p))
            break;
    poller_close(&p->poller);
}

struct ending runner_ending(const struct proc *p)
{
    if (p->timed_out)
        return (struct ending){.number = EXIT_TIMEOUT};
    if (WIFSIGNALED(p->status))
        return (struct ending){.by_signal = true,
                               .number = WTERMSIG(p->status)};
    return (struct ending){.number = WEXITSTATUS(p->status)};
}

static void runner_settle(struct runner *r)
{
    vow_deferred *done = r->done;
    vow_bytes *bytes = NULL;
    r->done = NULL;
    vow_on_cancel(done, NULL, NULL);
    vow_error *refused = r->o.made == NULL ? NULL : r->o.made(r);
    if (refused != NULL) {
        runner_owe_result(r, false);
        (void)vow_reject_drop(done, refused);
        return;
    }
    if (ending_code(r->end) != 0)
        vow_lease_mark_failed(r->o.lease);
    if (vow_bytes_new(session_loop(), r->recording.bytes.at,
                      r->recording.bytes.n, &bytes) < 0)
        die(EXIT_BROKEN, "out of memory");
    text_free(&r->recording.bytes);
    if (r->o.keeps)
        r->made = vow_bytes_ref(bytes);
    (void)vow_resolve_drop(done, vow_bytes_value(bytes));
}

/* Passes the recording in chunks: each chunk is written or given up on its
 * own. */
void runner_replay(const struct runner *r, replay_fn fn)
{
    struct replay p = {0};
    const char *at = r->recording.bytes.at;
    size_t left = r->recording.bytes.n;
    if (r->made != NULL) {
        at = (const char *)vow_bytes_data(r->made);
        left = vow_bytes_size(r->made);
    }
    while (left > 0) {
        size_t n = left < CHUNK ? left : CHUNK;
        (void)replay_feed(&p, at, n, fn, NULL);
        at += n;
        left -= n;
    }
}

/* ---- followers ----------------------------------------------------------- */

/* Sends a chunk to the followers. Only one chunk is sent at a time, so that
 * many small chunks become one: keeps U1. */
static void runner_send_chunk(void *runner)
{
    struct runner *r = runner;
    vow_bytes *chunk = NULL;
    size_t n = r->recording.bytes.n - r->sent;
    if (r->sending || (!r->flushing && vow_call_pending(&r->send_again)))
        return;
    (void)vow_call_stop(&r->send_again);
    if (!r->o.chunks || n == 0) {
        if (r->flushing && r->done != NULL)
            runner_settle(r);
        return;
    }
    n = n > SEND_MAX ? SEND_MAX : n;
    recording_cut(&r->recording);
    if (vow_bytes_new(session_loop(), r->recording.bytes.at + r->sent, n,
                      &chunk) < 0)
        die(EXIT_BROKEN, "out of memory");
    r->sent += n;
    r->sending = true;
    vow_future *f = vow_lease_write(r->o.lease, chunk);
    vow_bytes_unref(chunk);
    if (vow_done(f, on_chunk_sent, on_chunk_not_sent, r) < 0)
        die(EXIT_BROKEN, "out of memory");
}

static vow_next on_chunk_sent(vow_value v, void *runner)
{
    struct runner *r = runner;
    (void)v;
    r->sending = false;
    if (r->flushing)
        runner_send_chunk(r);
    else
        vow_call_weakly_at(&r->send_again, session_loop(),
                           vow_loop_due_ns(session_loop(), SEND_MS),
                           runner_send_chunk, r);
    return vow_ok(vow_nothing());
}

/* After an error, followers get the output with the result, if there will be a
 * result. */
static vow_next on_chunk_not_sent(vow_error *poller, void *runner)
{
    struct runner *r = runner;
    (void)poller;
    r->o.chunks = false;
    return on_chunk_sent(vow_nothing(), r);
}
