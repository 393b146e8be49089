/* SPDX-License-Identifier: MIT */
/* runner.c - see runner.h.
 *
 * HOW   The pipes are waited for by edges: the kernel then lists them in the
 *       order in which they became readable. So each is read until it is empty.
 * INVARIANTS
 *   U1  chunks that were sent, one behind the other, are the beginning of the
 *       recording
 *   U2  a pipe that is not empty is being read, or an edge is still to come
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
    TURNS = 16,       /* chunks before others get a turn */
    PIPE_CHUNKS = 17, /* no pipe holds more */
    SEND_MAX = 1 << 20,
    SEND_MS = 20, /* between two chunks for those who follow */
    LEASE_MS = 10000,
    ENV_ADDED = 7,
    SECOND_US = 1000000
};

static char buffer[CHUNK];

static int launch(struct runner *r);
static void owe_result(const struct runner *r, bool owes);
static int open_pipe(struct runner_pipe *p, struct runner *of, int fd);
static char **make_env(const struct runner *r);
static bool is_ours(const char *variable);
static char *entry(const char *format, ...)
    __attribute__((format(printf, 1, 2)));
static int not_started(const struct runner *r, int error);
static void on_readable(struct poller *e, uint32_t events);
static void read_pipe(void *pipe);
static bool read_some(struct runner_pipe *p);
static void take(struct runner_pipe *p, size_t n);
static void too_big(struct runner *r);
static void on_cancel(vow_error *why, void *runner);
static void watch_lease(struct runner *r);
static void look_at_lease(void *runner);
static void lose(struct runner *r);
static vow_next on_lost(vow_error *e, void *runner);
static vow_next on_published(vow_value v, void *runner);
static vow_next on_not_published(vow_error *e, void *runner);
static void on_end(struct proc *p);
static void drain(struct runner_pipe *p);
static void settle(struct runner *r);
static void send_some(void *runner);
static vow_next on_sent(vow_value v, void *runner);
static vow_next on_not_sent(vow_error *e, void *runner);

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
    vow_on_cancel(r->done, on_cancel, r);
    (void)vow_lease_ref(o->lease);
    int code = launch(r);
    if (code != 0)
        session_over(code);
    else
        watch_lease(r);
    owe_result(r, code == 0);
    return f;
}

static void owe_result(const struct runner *r, bool owes)
{
    if (r->o.shared->mode == VOW_ONCE)
        session_owes_result(owes);
}

/* 0, or the exit code of what was said. */
static int launch(struct runner *r)
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
    if (error == 0 && ((out = open_pipe(&r->out, r, STDOUT_FILENO)) < 0 ||
                       (err = open_pipe(&r->err, r, STDERR_FILENO)) < 0))
        error = errno;
    if (error == 0)
        error = proc_start(&r->proc,
                           &(struct proc_opts){.path = path,
                                               .argv = r->o.argv,
                                               .env = make_env(r),
                                               .in = in,
                                               .out = out,
                                               .err = err,
                                               .also = -1,
                                               .timeout_ms = s->timeout_ms,
                                               .seq = r->seq,
                                               .kill = &s->kill,
                                               .ended = on_end});
    const int ends[] = {in, out, err};
    for (size_t i = 0; i < 3; i++)
        if (ends[i] >= 0)
            (void)close(ends[i]);
    free(path);
    return error == 0 ? 0 : not_started(r, error);
}

/* The command's end, or -1 and errno. */
static int open_pipe(struct runner_pipe *p, struct runner *of, int fd)
{
    int ends[2];
    p->of = of;
    p->fd = fd;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    (void)fcntl(ends[1], F_SETFL, 0); /* the command's end blocks */
    if (poller_watch(&p->poller, ends[0], EPOLLIN | EPOLLET, on_readable))
        return ends[1];
    (void)close(ends[0]);
    (void)close(ends[1]);
    return -1;
}

/* It lives as long as the program. */
static char **make_env(const struct runner *r)
{
    const struct shared *s = r->o.shared;
    struct text word = {0};
    size_t n = 0, all = 0;
    while (environ[all] != NULL)
        all++;
    char **env = mem_new((all + ENV_ADDED + 1) * sizeof(env[0]));
    for (size_t i = 0; i < all; i++)
        if (!is_ours(environ[i]))
            env[n++] = environ[i];
    reaper_mark(&word, r->seq);
    env[n++] = word.at;
    env[n++] = entry("VOW_NAME=%.*s", VOW_LABEL_MAX, r->o.label);
    env[n++] = entry("VOW_FENCE=%llu",
                     (unsigned long long)vow_lease_fence(r->o.lease));
    env[n++] = entry("VOW_TRY=%u", vow_lease_attempt(r->o.lease));
    uint64_t fence = session_alone() ? 0 : vow_lease_fence(r->o.lease);
    char *held = nested_variable(
        fence == 0 ? NULL
                   : &(struct nested_hold){.store = &s->store, .fence = fence});
    if (held != NULL)
        env[n++] = held;
    if (s->timeout_ms > 0) {
        uint64_t due_us = proc_now_us() + s->timeout_ms * 1000;
        env[n++] = entry("VOW_DEADLINE=%llu.%06llu",
                         (unsigned long long)(due_us / SECOND_US),
                         (unsigned long long)(due_us % SECOND_US));
    }
    return env;
}

static bool is_ours(const char *variable)
{
    static const char *const ours[] = {
        "VOW_RUN=", "VOW_NAME=", "VOW_FENCE=", "VOW_TRY=", "VOW_DEADLINE="};
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        if (strncmp(variable, ours[i], strlen(ours[i])) == 0)
            return true;
    return nested_is_variable(variable);
}

static char *entry(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0)
        die(EXIT_BROKEN, "out of memory");
    va_end(args);
    return text;
}

/* Who waits may have the program, or the room for it: it is left to them. */
static int not_started(const struct runner *r, int error)
{
    const char *verb = r->o.shared->store.verb->name;
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

/* ---- what it writes ------------------------------------------------------ */

static void on_readable(struct poller *e, uint32_t events)
{
    (void)events;
    read_pipe(e); /* its first member */
}

/* Keeps U2. */
static void read_pipe(void *pipe)
{
    struct runner_pipe *p = pipe;
    for (int turns = TURNS; turns > 0; turns--)
        if (p->poller.fd < 0 || !read_some(p))
            return;
    vow_call_at(&p->more, session_loop(), vow_loop_now_ns(session_loop()),
                read_pipe, p);
}

/* False: nothing more now, or ever. */
static bool read_some(struct runner_pipe *p)
{
    ssize_t n = read(p->poller.fd, buffer, CHUNK);
    if (n < 0)
        return errno == EINTR;
    if (n == 0)
        poller_close(&p->poller);
    else
        take(p, (size_t)n);
    return n > 0;
}

/* What goes beyond --max-output is left out; the rest of the piece is not. */
static void take(struct runner_pipe *p, size_t n)
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
        send_some(r);
        if (!hidden)
            show_bytes(p->fd, buffer, n, NULL);
    }
    if (over)
        too_big(r);
}

/* Nobody gets it: there is no point in going on. */
static void too_big(struct runner *r)
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

static void on_cancel(vow_error *why, void *runner)
{
    struct runner *r = runner;
    vow_deferred *done = r->done;
    if (r->proc.pid == 0) { /* it never ran, or is being published */
        r->done = NULL;
        (void)vow_reject_drop(done, vow_error_ref(why));
        return;
    }
    if (r->stopped == NULL)
        r->stopped = vow_error_ref(why);
    bool lost = vow_error_code(vow_error_root(why)) == VOW_ELOST;
    if (lost)
        lose(r);
    proc_stop(&r->proc, lost ? SIGKILL : 0);
}

void runner_stop(struct runner *r, vow_error *why)
{
    r->ended = false; /* or at least it does not count */
    r->o.hide_out = r->o.hide_err = true;
    if (r->done != NULL)
        on_cancel(why, r);
}

static void watch_lease(struct runner *r)
{
    vow_lease *l = r->o.lease;
    if (!r->o.shared->keep_lost)
        look_at_lease(r);
    if (vow_done(vow_lease_lost(l), NULL, on_lost, r) < 0 ||
        vow_done(vow_lease_settled(l), on_published, on_not_published, r) < 0)
        die(EXIT_BROKEN, "out of memory");
}

/* A third of the lease is left for ending it. */
static void look_at_lease(void *runner)
{
    struct runner *r = runner;
    const struct store_opts *s = &r->o.shared->store;
    uint64_t third = (s->lease_ms > 0 ? s->lease_ms : LEASE_MS) / 3;
    uint64_t left = vow_lease_left_ms(r->o.lease);
    if (left > third) {
        vow_call_weakly_at(&r->watch, session_loop(),
                           vow_loop_due_ns(session_loop(), left - third),
                           look_at_lease, r);
        return;
    }
    lose(r);
    proc_stop_within(&r->proc, left - left / 4);
}

static void lose(struct runner *r)
{
    if (r->lost)
        return;
    r->lost = true;
    r->o.lost(r);
}

static vow_next on_lost(vow_error *e, void *runner)
{
    struct runner *r = runner;
    if (r->proc.pid == 0 || vow_error_code(e) != VOW_ELOST)
        return vow_ok(vow_nothing());
    lose(r);
    if (!r->o.shared->keep_lost) {
        proc_signal(&r->proc, SIGKILL);
        proc_stop(&r->proc, SIGKILL);
    }
    return vow_ok(vow_nothing());
}

static vow_next on_published(vow_value v, void *runner)
{
    struct runner *r = runner;
    (void)v;
    r->published = true;
    owe_result(r, false);
    if (r->o.published != NULL)
        r->o.published(r);
    return vow_ok(vow_nothing());
}

/* While it runs that is told by its end; and we may have gone on without. */
static vow_next on_not_published(vow_error *e, void *runner)
{
    struct runner *r = runner;
    (void)e;
    if (!r->ended || session_is_over())
        return vow_ok(vow_nothing());
    lose(r);
    r->o.lost_ended(r);
    return vow_ok(vow_nothing());
}

/* ---- the end ------------------------------------------------------------- */

static void on_end(struct proc *p)
{
    struct runner *r =
        (struct runner *)(void *)((char *)p - offsetof(struct runner, proc));
    drain(&r->out);
    drain(&r->err);
    (void)vow_call_stop(&r->watch);
    if (session_ends())
        return;
    if (r->lost) {
        r->o.lost_ended(r);
        return;
    }
    bool killed = WIFSIGNALED(p->status) && !p->told; /* by somebody else */
    if ((r->stopped != NULL || killed) && r->o.doubt != NULL && !r->too_big) {
        r->o.doubt(r);
        return;
    }
    if (r->stopped != NULL) { /* which says nothing of the next time */
        vow_deferred *done = r->done;
        owe_result(r, false);
        r->done = NULL;
        vow_lease_keep(r->o.lease, 0);
        (void)vow_reject_drop(done, r->stopped);
        return;
    }
    r->ended = true;
    r->end = runner_ending(p);
    recording_end(&r->recording, r->end);
    r->flushing = true;
    send_some(r);
}

/* What a process that it left writes later is not its output. */
static void drain(struct runner_pipe *p)
{
    (void)vow_call_stop(&p->more);
    for (int left = PIPE_CHUNKS; left > 0 && p->poller.fd >= 0; left--)
        if (!read_some(p))
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

static void settle(struct runner *r)
{
    vow_deferred *done = r->done;
    vow_bytes *bytes = NULL;
    r->done = NULL;
    vow_on_cancel(done, NULL, NULL);
    vow_error *refused = r->o.made == NULL ? NULL : r->o.made(r);
    if (refused != NULL) {
        owe_result(r, false);
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

/* In chunks: each is given up or written by itself. */
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

/* ---- those who follow ---------------------------------------------------- */

/* One chunk at a time, so that many small ones become one: keeps U1. */
static void send_some(void *runner)
{
    struct runner *r = runner;
    vow_bytes *chunk = NULL;
    size_t n = r->recording.bytes.n - r->sent;
    if (r->sending || (!r->flushing && vow_call_pending(&r->send_again)))
        return;
    (void)vow_call_stop(&r->send_again);
    if (!r->o.chunks || n == 0) {
        if (r->flushing && r->done != NULL)
            settle(r);
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
    if (vow_done(f, on_sent, on_not_sent, r) < 0)
        die(EXIT_BROKEN, "out of memory");
}

static vow_next on_sent(vow_value v, void *runner)
{
    struct runner *r = runner;
    (void)v;
    r->sending = false;
    if (r->flushing)
        send_some(r);
    else
        vow_call_weakly_at(&r->send_again, session_loop(),
                           vow_loop_due_ns(session_loop(), SEND_MS), send_some,
                           r);
    return vow_ok(vow_nothing());
}

/* They get it with the result, if there will be one. */
static vow_next on_not_sent(vow_error *e, void *runner)
{
    struct runner *r = runner;
    (void)e;
    r->o.chunks = false;
    return on_sent(vow_nothing(), r);
}
