/* SPDX-License-Identifier: MIT */
/* session.c - see session.h.
 *
 * HOW   Closing the store releases all names of the process. So after a signal,
 *       or if the command could not be started, the next waiter gets the name
 *       before this process has ended. The name of a --once command is not
 *       released: when the process is dead, the store has the name in doubt.
 */
#include "session.h"
#include "emit.h"
#include "nested.h"
#include "poller.h"
#include "proc.h"
#include "reaper.h"
#include "replay.h"
#include "say.h"
#include "show.h"
#include "signals.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAUSE_MS = 100, PAUSE_MAX_MS = 5000 };
enum { STALL_MS = 1000 }; /* after a signal, a slow reader loses the rest */
#define WITHOUT "other processes may run the same command now"
#define WAITING "waiting for it"
#define NOT_WAITING "not waiting for it"

static struct {
    const struct shared *shared;
    vow_loop *loop;
    vow_authority *authority;
    vow_deferred *over; /* resolved by session_over(); NULL: over */
    vow_future *ended;  /* the future of `over` */
    vow_deferred *idle; /* resolved when no command runs; NULL: not awaited */
    int code;           /* exit code */
    int by_signal;      /* first signal that ends the session; 0: none */
    bool alone;         /* the store is private */
    bool polls;         /* the poller is open */
    bool catches;       /* signals are caught */
    bool shows;         /* session_show() was called */
    bool works;         /* session_work() was called */
    bool broken_pipe;   /* stdout has no reader any more */
    bool holds_nothing; /* the store need not be closed */
    bool owes_result;   /* the store must not be closed: doubt */
    char *trouble;      /* of the store, not reported; NULL: none; owned */
    bool down;          /* the store cannot be used */
    void (*at_end)(void);
    vow_call stall;   /* timer that checks for a reader of the output */
    size_t unwritten; /* bytes that waited at the last check */
} session;

static void on_session_event(const vow_event *event, void *unused);
static uint32_t store_down_policy(const struct shared *s);
static void open_private_store(struct shared *s, vow_error *failed);
static void report_store_trouble(const char *why, const char *so);
static void session_note_trouble(const char *why);
static void wait_for_store(struct shared *s, vow_error *failed);
static void refuse_own_ancestor(uint64_t fence);
static void session_catch_signals(void);
static void restore_default_signals(void);
static void on_session_signal(int number, bool by_terminal);
static void on_session_output_error(int fd, int error);
static void write_remaining_output(void);
static void check_output_reader(void *unused);

/* ---- the store ----------------------------------------------------------- */

void session_open(struct shared *s)
{
    vow_error *failed = NULL;
    session.shared = s;
    if (vow_loop_new(NULL, &session.loop) < 0)
        die(EXIT_BROKEN, "cannot create the event loop: %s", strerror(errno));
    session.ended = vow_promise(session.loop, &session.over);
    s->store.on_event = on_session_event;
    s->store.mode = s->mode;
    session.authority = store_open(session.loop, &s->store, &failed);
    if (session.authority != NULL)
        return;
    int code = vow_error_code(failed);
    uint32_t how = store_down_policy(s);
    if (code == VOW_EINVAL || code == VOW_ENOTSUP || how == VOW_DOWN_FAIL ||
        s->peek)
        die(EXIT_BROKEN, "vow %s: the store %s cannot be used: %s",
            s->store.verb->name, store_shown(&s->store),
            vow_error_message(failed));
    if (how == VOW_DOWN_WAIT)
        wait_for_store(s, failed);
    else
        open_private_store(s, failed);
    vow_error_unref(failed);
}

/* Returns the policy for a store that is down, as the library chooses. */
static uint32_t store_down_policy(const struct shared *s)
{
    if (s->peek)
        return VOW_DOWN_FAIL;
    if (s->store.down != VOW_DOWN_DEFAULT)
        return s->store.down;
    return s->mode == VOW_SHARED ? VOW_DOWN_RUN : VOW_DOWN_FAIL;
}

/* Uses a private store in memory: the same steps, without other processes. */
static void open_private_store(struct shared *s, vow_error *failed)
{
    report_store_trouble(vow_error_message(failed), WITHOUT);
    s->store.url = "memory:";
    s->store.alone = true;
    session.authority = store_open_or_die(session.loop, &s->store);
    session.alone = true;
}

/* Prints a warning; does not repeat the generic text of VOW_ESTORE. */
static void report_store_trouble(const char *why, const char *so)
{
    if (strcmp(why, vow_error_text(VOW_ESTORE)) == 0)
        say("the store cannot be used: %s", so);
    else
        say("the store cannot be used: %s: %s", why, so);
}

static void wait_for_store(struct shared *s, vow_error *failed)
{
    uint64_t pause_ms = PAUSE_MS, waited_ms = 0;
    report_store_trouble(vow_error_message(failed),
                         s->store.no_wait ? NOT_WAITING : WAITING);
    if (s->store.no_wait)
        exit(s->store.busy_code);
    while (session.authority == NULL) {
        if (s->store.waits && waited_ms >= s->store.wait_ms)
            exit(s->store.busy_code);
        if (s->store.waits && pause_ms > s->store.wait_ms - waited_ms)
            pause_ms = s->store.wait_ms - waited_ms;
        VOW_AUTO(vow_future) f = vow_delay(session.loop, pause_ms);
        (void)vow_loop_run_until(session.loop, f);
        waited_ms += pause_ms;
        pause_ms = pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause_ms * 2;
        vow_error *again = NULL;
        session.authority = store_open(session.loop, &s->store, &again);
        vow_error_unref(again);
    }
}

static void on_session_event(const vow_event *event, void *unused)
{
    (void)unused;
    uint32_t how = store_down_policy(session.shared);
    bool gives_up = session.shared->store.no_wait && !session.works;
    if (event->kind == VOW_EVENT_JOINED) {
        session_catch_signals();
        refuse_own_ancestor(event->fence);
    }
    if (event->kind == VOW_EVENT_UP) {
        session.down = false;
        session_note_trouble(NULL);
    }
    if (event->kind == VOW_EVENT_DOWN)
        session.down = true;
    if (event->kind != VOW_EVENT_DOWN || session.shared->refresh)
        return;
    if (how == VOW_DOWN_FAIL)
        session_note_trouble(event->text);
    if (how == VOW_DOWN_RUN)
        report_store_trouble(event->text, WITHOUT);
    else if (how == VOW_DOWN_WAIT)
        report_store_trouble(event->text, gives_up ? NOT_WAITING : WAITING);
    if (how == VOW_DOWN_WAIT && gives_up)
        session_over(session.shared->store.busy_code);
}

static void session_note_trouble(const char *why)
{
    free(session.trouble);
    session.trouble = why == NULL ? NULL : mem_copy(why, strlen(why));
}

const char *session_trouble(void)
{
    return session.trouble;
}

bool session_store_is_down(void)
{
    return session.down;
}

/* Ends the session if an ancestor process owns the name: the ancestor waits for
 * this process, and waiting for the ancestor would be a deadlock. */
static void refuse_own_ancestor(uint64_t fence)
{
    const struct shared *s = session.shared;
    pid_t owner = 0;
    if (!s->store.no_wait && !s->store.waits && !session_is_over())
        owner = nested_owner(&s->store, fence);
    if (owner == 0)
        return;
    if (s->steps != NULL)
        say("vow pipe: a step is run by process %d, which has started this "
            "command and waits for it; use another step",
            owner);
    else
        say("vow share: %s is run by process %d, which has started this "
            "command and waits for it; use another name, -n or -w",
            s->name != NULL ? s->name : s->command[0], owner);
    session_over(EXIT_BROKEN);
}

vow_loop *session_loop(void)
{
    return session.loop;
}

vow_authority *session_authority(void)
{
    return session.authority;
}

bool session_alone(void)
{
    return session.alone;
}

/* ---- while something runs ------------------------------------------------ */

/* Catches signals, so that a waiter leaves the wait queue before the end. */
static void session_catch_signals(void)
{
    if (!session.polls)
        poller_open(session.loop);
    session.polls = true;
    if (!session.catches)
        signals_open(session.loop, on_session_signal);
    session.catches = true;
}

void session_show(void)
{
    if (session.shows)
        return;
    session.shows = true;
    if (!session.polls)
        poller_open(session.loop);
    session.polls = true;
    emit_open(session.loop, on_session_output_error, NULL);
    say_through(emit_text);
}

void session_work(void)
{
    session_show();
    session_catch_signals();
    if (session.works)
        return;
    session.works = true;
    procs_open(session.loop);
    reaper_start();
}

bool session_ends(void)
{
    bool last = procs_running() == 0;
    if (last && session.idle != NULL)
        (void)vow_resolve(session.idle, vow_nothing());
    if (last && session.by_signal != 0)
        session_over(EXIT_SIGNAL + session.by_signal);
    return session.by_signal != 0 || session.idle != NULL;
}

/* Passes signals on. Commands have process groups of their own: a signal of the
 * terminal has not reached them. */
static void on_session_signal(int number, bool by_terminal)
{
    (void)by_terminal;
    if (number == SIGCHLD) {
        procs_reap();
    } else if (number == SIGTSTP) {
        procs_signal(SIGTSTP);
        signals_stop_us();
        procs_signal(SIGCONT);
    } else if (number == SIGUSR1 || number == SIGUSR2 || number == SIGWINCH) {
        procs_signal(number);
    } else if (session.by_signal != 0) {
        emit_do_not_wait();
        procs_signal(SIGKILL);
    } else {
        session.by_signal = number;
        procs_stop(number);
        if (procs_running() == 0)
            session_over(EXIT_SIGNAL + number);
    }
}

/* Notes the error; the command goes on, because waiters may need the result. */
static void on_session_output_error(int fd, int error)
{
    if (fd != STDOUT_FILENO)
        return;
    if (error != EPIPE) {
        say("cannot write to stdout: %s", strerror(error));
        session.code = EXIT_BROKEN;
    } else {
        session.broken_pipe = true;
    }
}

void session_replay(const void *at, size_t n)
{
    struct replay p = {0};
    int error = 0;
    if (session.catches && !session.shows)
        restore_default_signals();
    if (session.shows)
        (void)replay_feed(&p, at, n, show_bytes, NULL);
    else
        error = replay_write(at, n);
    if (error != 0)
        die(EXIT_BROKEN, "vow %s: cannot write: %s",
            session.shared->store.verb->name, strerror(error));
}

/* Lets signals end the process again: only writing is left, and may take
 * long. */
static void restore_default_signals(void)
{
    struct sigaction was;
    if (sigaction(SIGPIPE, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
        (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, signals_before(), NULL);
}

/* ---- the end ------------------------------------------------------------- */

void session_over(int code)
{
    if (session.over == NULL)
        return;
    if (session.code == 0)
        session.code = code;
    (void)vow_resolve_drop(session.over, vow_nothing());
    session.over = NULL;
}

void session_holds_nothing(void)
{
    session.holds_nothing = true;
}

void session_owes_result(bool owes)
{
    session.owes_result = owes;
}

bool session_is_over(void)
{
    return session.over == NULL;
}

void session_at_end(void (*fn)(void))
{
    session.at_end = fn;
}

int session_run(vow_future *asked)
{
    (void)vow_loop_run_until(session.loop, session.ended);
    if (session.works && procs_running() > 0) {
        procs_stop(0); /* the result is not needed any more */
        VOW_AUTO(vow_future) f = vow_promise(session.loop, &session.idle);
        (void)vow_loop_run_until(session.loop, f);
    }
    if (session.works && session.by_signal != 0) {
        (void)reaper_kill_marked(0);
        reaper_kill_children();
    }
    if (!session.holds_nothing && !session.owes_result) {
        (void)vow_cancel(asked, NULL);
        store_close(session.loop, session.authority);
    }
    if (session.at_end != NULL)
        session.at_end();
    if (session.shows)
        write_remaining_output();
    if (session.works)
        reaper_end();
    if (session.by_signal != 0)
        signals_die(session.by_signal);
    if (session.broken_pipe)
        signals_die(SIGPIPE);
    return session.code;
}

static void write_remaining_output(void)
{
    if (session.by_signal != 0)
        check_output_reader(NULL);
    emit_drain();
    (void)vow_call_stop(&session.stall);
}

static void check_output_reader(void *unused)
{
    (void)unused;
    size_t waiting = emit_waiting();
    if (waiting > 0 && waiting == session.unwritten)
        emit_do_not_wait();
    session.unwritten = waiting;
    vow_call_at(&session.stall, session.loop,
                vow_loop_due_ns(session.loop, STALL_MS), check_output_reader,
                NULL);
}
