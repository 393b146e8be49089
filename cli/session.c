/* SPDX-License-Identifier: MIT */
/* session.c - see session.h.
 *
 * HOW   Whatever is held when it is over is given up by closing the store: so a
 *       run that was ended by a signal, or could not begin, is free for the
 *       next one who waits before we are gone. What must not be done twice is
 *       not given up: with us dead, the store has it in doubt.
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
enum { STALL_MS = 1000 }; /* a signal ends us, whoever does not read */
#define WITHOUT "others may run the same now"
#define WAITING "waiting for it"
#define NOT_WAITING "not waiting for it"

static struct {
    const struct shared *shared;
    vow_loop *loop;
    vow_authority *authority;
    vow_deferred *over;
    vow_future *ended;
    vow_deferred *idle; /* no command runs any more */
    int code;
    int by_signal;
    bool alone;
    bool listens; /* for events of its own */
    bool catches; /* signals */
    bool shows;
    bool works;
    bool broken_pipe; /* nobody reads our stdout any more */
    bool free;        /* nothing in the store is ours */
    bool owes;        /* or something is, and stays so */
    char *trouble;    /* of the store, not told; NULL: none */
    bool down;        /* the store cannot be used */
    void (*at_end)(void);
    vow_call stall; /* looks whether somebody reads what is written */
    size_t waited;  /* bytes that were to be written when it looked last */
} meet;

static void on_event(const vow_event *event, void *unused);
static uint32_t policy(const struct shared *s);
static void open_our_own(struct shared *s, vow_error *failed);
static void tell_trouble(const char *why, const char *so);
static void note_trouble(const char *why);
static void wait_for_store(struct shared *s, vow_error *failed);
static void refuse_ourselves(uint64_t fence);
static void listen_for_signals(void);
static void as_cat_would(void);
static void on_signal(int number, bool by_terminal);
static void on_output_fails(int fd, int error);
static void write_rest(void);
static void look_for_reader(void *unused);

/* ---- the store ----------------------------------------------------------- */

void session_open(struct shared *s)
{
    vow_error *failed = NULL;
    meet.shared = s;
    if (vow_loop_new(NULL, &meet.loop) < 0)
        die(EXIT_BROKEN, "cannot make a loop: %s", strerror(errno));
    meet.ended = vow_promise(meet.loop, &meet.over);
    s->store.on_event = on_event;
    s->store.mode = s->mode;
    meet.authority = store_open(meet.loop, &s->store, &failed);
    if (meet.authority != NULL)
        return;
    int code = vow_error_code(failed);
    uint32_t how = policy(s);
    if (code == VOW_EINVAL || code == VOW_ENOTSUP || how == VOW_DOWN_FAIL ||
        s->peek)
        die(EXIT_BROKEN, "vow %s: the store %s cannot be used: %s",
            s->store.verb->name, store_shown(&s->store),
            vow_error_message(failed));
    if (how == VOW_DOWN_WAIT)
        wait_for_store(s, failed);
    else
        open_our_own(s, failed);
    vow_error_unref(failed);
}

/* As the library has it. */
static uint32_t policy(const struct shared *s)
{
    if (s->peek)
        return VOW_DOWN_FAIL;
    if (s->store.down != VOW_DOWN_DEFAULT)
        return s->store.down;
    return s->mode == VOW_SHARED ? VOW_DOWN_RUN : VOW_DOWN_FAIL;
}

/* A store that only we know: the same steps, and nobody else in them. */
static void open_our_own(struct shared *s, vow_error *failed)
{
    tell_trouble(vow_error_message(failed), WITHOUT);
    s->store.url = "memory:";
    s->store.alone = true;
    meet.authority = store_open_or_die(meet.loop, &s->store);
    meet.alone = true;
}

/* Not twice the same words. */
static void tell_trouble(const char *why, const char *so)
{
    if (strcmp(why, vow_error_text(VOW_ESTORE)) == 0)
        say("the store cannot be used: %s", so);
    else
        say("the store cannot be used: %s: %s", why, so);
}

static void wait_for_store(struct shared *s, vow_error *failed)
{
    uint64_t pause_ms = PAUSE_MS, waited_ms = 0;
    tell_trouble(vow_error_message(failed),
                 s->store.no_wait ? NOT_WAITING : WAITING);
    if (s->store.no_wait)
        exit(s->store.busy_code);
    while (meet.authority == NULL) {
        if (s->store.waits && waited_ms >= s->store.wait_ms)
            exit(s->store.busy_code);
        if (s->store.waits && pause_ms > s->store.wait_ms - waited_ms)
            pause_ms = s->store.wait_ms - waited_ms;
        VOW_AUTO(vow_future) f = vow_delay(meet.loop, pause_ms);
        (void)vow_loop_run_until(meet.loop, f);
        waited_ms += pause_ms;
        pause_ms = pause_ms * 2 > PAUSE_MAX_MS ? PAUSE_MAX_MS : pause_ms * 2;
        vow_error *again = NULL;
        meet.authority = store_open(meet.loop, &s->store, &again);
        vow_error_unref(again);
    }
}

static void on_event(const vow_event *event, void *unused)
{
    (void)unused;
    uint32_t how = policy(meet.shared);
    bool gives_up = meet.shared->store.no_wait && !meet.works;
    if (event->kind == VOW_EVENT_JOINED) {
        listen_for_signals();
        refuse_ourselves(event->fence);
    }
    if (event->kind == VOW_EVENT_UP) {
        meet.down = false;
        note_trouble(NULL);
    }
    if (event->kind == VOW_EVENT_DOWN)
        meet.down = true;
    if (event->kind != VOW_EVENT_DOWN || meet.shared->refresh)
        return;
    if (how == VOW_DOWN_FAIL)
        note_trouble(event->text);
    if (how == VOW_DOWN_RUN)
        tell_trouble(event->text, WITHOUT);
    else if (how == VOW_DOWN_WAIT)
        tell_trouble(event->text, gives_up ? NOT_WAITING : WAITING);
    if (how == VOW_DOWN_WAIT && gives_up)
        session_over(meet.shared->store.busy_code);
}

static void note_trouble(const char *why)
{
    free(meet.trouble);
    meet.trouble = why == NULL ? NULL : mem_copy(why, strlen(why));
}

const char *session_trouble(void)
{
    return meet.trouble;
}

bool session_store_is_down(void)
{
    return meet.down;
}

/* Who runs it waits for a command that waits for us. */
static void refuse_ourselves(uint64_t fence)
{
    const struct shared *s = meet.shared;
    pid_t owner = 0;
    if (!s->store.no_wait && !s->store.waits && !session_is_over())
        owner = nested_owner(&s->store, fence);
    if (owner == 0)
        return;
    if (s->steps != NULL)
        say("vow pipe: a step is run by process %d, which has started this "
            "command and waits for it; take another step",
            owner);
    else
        say("vow share: %s is run by process %d, which has started this "
            "command and waits for it; take another name, -n or -w",
            s->name != NULL ? s->name : s->command[0], owner);
    session_over(EXIT_BROKEN);
}

vow_loop *session_loop(void)
{
    return meet.loop;
}

vow_authority *session_authority(void)
{
    return meet.authority;
}

bool session_alone(void)
{
    return meet.alone;
}

/* ---- while something runs ------------------------------------------------ */

/* A waiter that is told to end says so to the store. */
static void listen_for_signals(void)
{
    if (!meet.listens)
        poller_open(meet.loop);
    meet.listens = true;
    if (!meet.catches)
        signals_open(meet.loop, on_signal);
    meet.catches = true;
}

void session_show(void)
{
    if (meet.shows)
        return;
    meet.shows = true;
    if (!meet.listens)
        poller_open(meet.loop);
    meet.listens = true;
    emit_open(meet.loop, on_output_fails, NULL);
    say_through(emit_text);
}

void session_work(void)
{
    session_show();
    listen_for_signals();
    if (meet.works)
        return;
    meet.works = true;
    procs_open(meet.loop);
    reaper_start();
}

bool session_ends(void)
{
    bool last = procs_running() == 0;
    if (last && meet.idle != NULL)
        (void)vow_resolve(meet.idle, vow_nothing());
    if (last && meet.by_signal != 0)
        session_over(EXIT_SIGNAL + meet.by_signal);
    return meet.by_signal != 0 || meet.idle != NULL;
}

/* Commands have groups of their own: what the terminal sent has not reached
 * them. */
static void on_signal(int number, bool by_terminal)
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
    } else if (meet.by_signal != 0) {
        emit_do_not_wait();
        procs_signal(SIGKILL);
    } else {
        meet.by_signal = number;
        procs_stop(number);
        if (procs_running() == 0)
            session_over(EXIT_SIGNAL + number);
    }
}

/* Others may want the result all the same. */
static void on_output_fails(int fd, int error)
{
    if (fd != STDOUT_FILENO)
        return;
    if (error != EPIPE) {
        say("cannot write to stdout: %s", strerror(error));
        meet.code = EXIT_BROKEN;
    } else {
        meet.broken_pipe = true;
    }
}

void session_replay(const void *at, size_t n)
{
    struct replay p = {0};
    int error = 0;
    if (meet.catches && !meet.shows)
        as_cat_would();
    if (meet.shows)
        (void)replay_feed(&p, at, n, show_bytes, NULL);
    else
        error = replay_write(at, n);
    if (error != 0)
        die(EXIT_BROKEN, "vow %s: cannot write: %s",
            meet.shared->store.verb->name, strerror(error));
}

/* Nothing is left but writing, which may take long: signals end us. */
static void as_cat_would(void)
{
    struct sigaction was;
    if (sigaction(SIGPIPE, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
        (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, signals_before(), NULL);
}

/* ---- the end ------------------------------------------------------------- */

void session_over(int code)
{
    if (meet.over == NULL)
        return;
    if (meet.code == 0)
        meet.code = code;
    (void)vow_resolve_drop(meet.over, vow_nothing());
    meet.over = NULL;
}

void session_holds_nothing(void)
{
    meet.free = true;
}

void session_owes_result(bool owes)
{
    meet.owes = owes;
}

bool session_is_over(void)
{
    return meet.over == NULL;
}

void session_at_end(void (*fn)(void))
{
    meet.at_end = fn;
}

int session_run(vow_future *asked)
{
    (void)vow_loop_run_until(meet.loop, meet.ended);
    if (meet.works && procs_running() > 0) {
        procs_stop(0); /* nobody waits for them any more */
        VOW_AUTO(vow_future) f = vow_promise(meet.loop, &meet.idle);
        (void)vow_loop_run_until(meet.loop, f);
    }
    if (meet.works && meet.by_signal != 0) {
        (void)reaper_kill_marked(0);
        reaper_kill_children();
    }
    if (!meet.free && !meet.owes) {
        (void)vow_cancel(asked, NULL);
        store_close(meet.loop, meet.authority);
    }
    if (meet.at_end != NULL)
        meet.at_end();
    if (meet.shows)
        write_rest();
    if (meet.works)
        reaper_end();
    if (meet.by_signal != 0)
        signals_die(meet.by_signal);
    if (meet.broken_pipe)
        signals_die(SIGPIPE);
    return meet.code;
}

static void write_rest(void)
{
    if (meet.by_signal != 0)
        look_for_reader(NULL);
    emit_drain();
    (void)vow_call_stop(&meet.stall);
}

static void look_for_reader(void *unused)
{
    (void)unused;
    size_t waiting = emit_waiting();
    if (waiting > 0 && waiting == meet.waited)
        emit_do_not_wait();
    meet.waited = waiting;
    vow_call_at(&meet.stall, meet.loop, vow_loop_due_ns(meet.loop, STALL_MS),
                look_for_reader, NULL);
}
