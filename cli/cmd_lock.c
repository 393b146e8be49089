/* SPDX-License-Identifier: MIT */
/* cmd_lock.c - vow lock: one at a time, or a few, with a number that grows.
 *
 * WHY   flock(1) is held by whatever inherits its descriptor, knows nothing of
 *       who waits in which order, and cannot tell a late holder from the next.
 * HOW   A lock is a pool of many places: exclusive takes them all, -s takes
 *       one, so that those who wait are served in their order whatever they
 *       wait for. --slots N is a pool of N places; --once is a name (see
 *       lock_hold.c). The command has our stdin,
 *       stdout and stderr, and nothing of the lock: what it leaves behind holds
 *       nothing. A place that is lost, or that cannot be known to be held any
 *       more, ends the command while the lease still lasts.
 * INVARIANTS
 *   L1  the place is given back when the command has ended, not before
 *   L2  the command runs only while we have the place, unless --on-lost keep
 */
#include "cmd.h"
#include "listing.h"
#include "lock_hold.h"
#include "nested.h"
#include "poller.h"
#include "proc.h"
#include "reaper.h"
#include "say.h"
#include "signals.h"
#include "store_open.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ID_SHARED = 1, ID_SLOTS, ID_ONCE, ID_TIMEOUT, ID_KILL_SEQ, ID_ON_LOST };
enum { LABEL_MAX = VOW_LABEL_MAX - 8, LABEL_CUT = 128 }; /* of the name */
enum { ENV_ADDED = 5, LEASE_MS = 10000 };

static const struct option_def options[] = {
    {ID_SHARED, 's', "shared", NULL,
     "shared lock: several holders with --shared at a time", "Lock", NULL},
    {ID_SLOTS, '\0', "slots", "N", "a semaphore of N permits instead of a lock",
     NULL, NULL},
    {ID_ONCE, '\0', "once", NULL,
     "if the holder dies, keep the lock: it is in doubt", NULL, NULL},
    WAIT_ROWS,
    {ID_TIMEOUT, '\0', "timeout", "D", "kill the command after D", "Time",
     NULL},
    {ID_KILL_SEQ, '\0', "kill-seq", "SEQ",
     "signals to kill it with (default TERM,5s,KILL)", NULL, NULL},
    LEASE_ROWS,
    {ID_ON_LOST, '\0', "on-lost", "HOW",
     "after a lost lock, kill the command (default) or keep it", NULL,
     "kill keep"},
    STORE_ROW,
    {.id = 0}};

const struct verb_def lock_verb = {
    .name = "lock",
    .usage = "[OPTION...] NAME [OPTION...] [--] COMMAND [ARG...]",
    .about = "run a command while holding a lock",
    .story =
        "Those who wait are served in the order they came. The exit code is\n"
        "the command's own; 75 when the lock was not to be had, 121 when it\n"
        "was lost and the command was killed. VOW_FENCE is a number that is\n"
        "larger for everyone who gets the lock later.\n"
        "\n"
        "  vow lock deploy -- ./deploy\n"
        "  vow lock backup -w 5m -- ./backup\n"
        "  vow lock db -s -- ./read\n"
        "  vow lock gpu --slots 2 -- ./train\n"
        "  vow lock payout --once -- ./pay\n",
    .operands = "NAME COMMAND",
    .options = options,
    .run = cmd_lock,
    .usage_code = EXIT_BROKEN};

static struct {
    struct store_opts store;
    const char *name;
    bool shared;
    bool once;
    uint32_t slots; /* 0: it is a lock */
    uint64_t timeout_ms;
    struct kill_seq kill;
    bool keep;
    char **command;
    char *program;

    vow_loop *loop;
    vow_authority *authority;
    struct text label;
    struct lock_ask ask;
    vow_future *place; /* that we wait for; NULL: none */
    struct lock_hold hold;
    struct proc proc;
    vow_deferred *over; /* the command */
    int by_signal;
    pid_t above; /* has the lock, and waits for us; 0: nobody */
    bool lost;
} lock;

static void read_command(int argc, char **argv);
static int read_options(struct options *o);
static void take(void *unused, int id, const struct options *o);
static void read_option(int id, const struct options *o);
static void check(const struct options *o, const char *sentence);
static void make_ready(void);
static void make_ask(void);
static void tell_difference(const char *label);
static void make_label(struct text *ret_label);
static void look_above(void);
static void on_name_joined(const vow_event *event, void *unused);
static void get_place(void);
static _Noreturn void not_had(int code, const char *why);
static int run_command(void);
static int start_command(void);
static bool is_in_doubt(int *code);
static char **make_env(void);
static void on_ended(struct proc *p);
static uint64_t grace_ms(void);
static vow_next on_lost(vow_error *e, void *user);
static void on_signal(int number, bool by_terminal);
static void leave(void);

int cmd_lock(int argc, char **argv)
{
    read_command(argc, argv);
    make_ready();
    lock.store.on_event = on_name_joined;
    lock.authority = store_open_or_die(lock.loop, &lock.store);
    make_ask();
    look_above();
    get_place();
    int code = run_command();
    if (!is_in_doubt(&code))
        leave(); /* keeps L1 */
    if (lock.by_signal != 0) {
        (void)reaper_kill_marked(0);
        reaper_kill_children();
        reaper_end();
        signals_die(lock.by_signal);
    }
    reaper_end();
    return code;
}

/* ---- what was asked for -------------------------------------------------- */

static void read_command(int argc, char **argv)
{
    struct options o = options_of(&lock_verb, argc, argv);
    lock.store = store_opts_of(&lock_verb);
    (void)units_kill_seq("TERM,5s,KILL", &lock.kill);
    store_config(&lock_verb, take, NULL);
    int at = read_options(&o);
    bool dashes = strcmp(argv[at - 1], "--") == 0; /* for a name like -x */
    if (at == argc || argv[at][0] == '\0' ||
        (dashes && (at + 1 == argc || strcmp(argv[at + 1], "--") != 0)))
        die(EXIT_BROKEN, "vow lock: no name given. See vow lock --help");
    lock.name = argv[at];
    o.at++;
    at = read_options(&o);
    if (at == argc)
        die(EXIT_BROKEN, "vow lock: no command given. See vow lock --help");
    if (lock.shared && lock.slots > 0)
        die(EXIT_BROKEN, "vow lock: --shared cannot be combined with --slots");
    if (lock.once && (lock.shared || lock.slots > 0))
        die(EXIT_BROKEN, "vow lock: --once is for one holder, without -s and "
                         "--slots");
    lock.store.mode = lock.once ? VOW_ONCE : VOW_SHARED;
    lock.command = argv + at;
}

/* Up to the next other word. */
static int read_options(struct options *o)
{
    int id;
    while ((id = options_next(o)) > 0)
        take(NULL, id, o);
    return o->at;
}

static void take(void *unused, int id, const struct options *o)
{
    (void)unused;
    if (!store_option(&lock.store, id, o))
        read_option(id, o);
}

static void read_option(int id, const struct options *o)
{
    uint64_t n;
    switch (id) {
    case ID_SHARED:
        lock.shared = true;
        break;
    case ID_SLOTS:
        check(o, units_count(o->value, &n));
        if (n == 0 || n > LOCK_PLACES)
            options_refuse(o, "slots are 1 to 1048576");
        lock.slots = (uint32_t)n;
        break;
    case ID_ONCE:
        lock.once = true;
        break;
    case ID_TIMEOUT:
        check(o, units_duration(o->value, &lock.timeout_ms));
        break;
    case ID_KILL_SEQ:
        check(o, units_kill_seq(o->value, &lock.kill));
        break;
    case ID_ON_LOST:
        lock.keep = strcmp(o->value, "keep") == 0;
        if (!lock.keep && strcmp(o->value, "kill") != 0)
            options_refuse(o, "use kill or keep");
        break;
    default:
        break;
    }
}

static void check(const struct options *o, const char *sentence)
{
    if (sentence != NULL)
        options_refuse(o, sentence);
}

/* ---- getting in ---------------------------------------------------------- */

/* A command that cannot be run does not wait for the lock. The guardian has
 * nothing of the store. */
static void make_ready(void)
{
    if (vow_loop_new(NULL, &lock.loop) < 0)
        die(EXIT_BROKEN, "cannot make a loop: %s", strerror(errno));
    poller_open(lock.loop);
    signals_open(lock.loop, on_signal);
    procs_open(lock.loop);
    int rc = proc_find(lock.command[0], &lock.program);
    if (rc != 0)
        die(rc, "vow lock: %s: %s", lock.command[0],
            rc == EXIT_NOT_FOUND ? "command not found" : "cannot be run");
    reaper_start();
}

static void make_ask(void)
{
    bool several = lock.slots > 0;
    make_label(&lock.label);
    if (several)
        tell_difference(lock.label.at);
    lock.ask =
        (struct lock_ask){.label = lock.label.at,
                          .once = lock.once,
                          .places = several ? lock.slots : LOCK_PLACES,
                          .weight = several || lock.shared ? 1 : LOCK_PLACES,
                          .grace_ms = grace_ms(),
                          .store = &lock.store};
}

/* The number that is there holds. */
static void tell_difference(const char *label)
{
    char limits[LISTING_LIMITS];
    VOW_AUTO(vow_future) f = vow_pool_limit(lock.authority, label, NULL);
    int rc = vow_loop_run_until(lock.loop, f);
    const vow_pool_info *there = rc == 0 ? vow_as_ptr(vow_get(f)) : NULL;
    (void)vow_error_of(f); /* the place will tell */
    if (there != NULL && there->limits.concurrent != lock.slots)
        say("slots '%s' have %s; vow limit %s changes it", lock.name,
            listing_limits(&there->limits, limits), label);
}

/* A name that is too long is told apart by its hash. */
static void make_label(struct text *ret_label)
{
    char printed[VOW_NAME_TEXT];
    size_t n = strlen(lock.name);
    vow_name name = vow_name_of(lock.name);
    text_add_str(ret_label, lock.slots > 0 ? SLOTS_LABEL : LOCK_LABEL);
    text_add(ret_label, lock.name, n > LABEL_MAX ? LABEL_CUT : n);
    if (n > LABEL_MAX)
        text_addf(ret_label, "~%s", vow_name_text(&name, printed));
}

/* If commands above us leave too little, we would wait for ourselves. They may
 * have lost it, so we do ask; but we do not wait. */
static void look_above(void)
{
    const struct lock_ask *a = &lock.ask;
    if (a->once || lock.store.no_wait || lock.store.waits)
        return;
    uint64_t held = nested_weight(&lock.store, a->label, NULL, &lock.above);
    lock.ask.try_once = held > 0 && held + a->weight > a->places;
}

/* The same of a name, whose owner is known when it is asked for. */
static void on_name_joined(const vow_event *event, void *unused)
{
    (void)unused;
    if (event->kind != VOW_EVENT_JOINED || lock.store.no_wait ||
        lock.store.waits)
        return;
    lock.above = nested_owner(&lock.store, event->fence);
    lock.ask.try_once = lock.above != 0;
    if (lock.ask.try_once && lock.place != NULL)
        (void)vow_cancel(lock.place, NULL);
}

/* Or do not come back. */
static void get_place(void)
{
    lock.place = lock_get(&lock.hold, lock.authority, &lock.ask);
    if (lock.by_signal != 0 || (lock.ask.once && lock.ask.try_once))
        (void)vow_cancel(lock.place, NULL);
    int rc = vow_loop_run_until(lock.loop, lock.place);
    if (rc == 0)
        lock_take(&lock.hold, lock.place);
    if (rc < 0 || lock.by_signal != 0) {
        struct text why = {0};
        text_add_str(&why, vow_error_message(vow_error_of(lock.place)));
        lock.place = vow_future_unref(lock.place);
        leave();
        reaper_end();
        if (lock.by_signal != 0)
            signals_die(lock.by_signal);
        not_had(rc, why.at);
    }
    lock.place = vow_future_unref(lock.place);
}

static _Noreturn void not_had(int code, const char *why)
{
    struct text word = {0};
    if (lock.ask.try_once && (code == VOW_EBUSY || code == VOW_ECANCELED))
        die(EXIT_BROKEN,
            "vow lock: '%s' is held by process %d, which has started this "
            "command and waits for it; take another name, -n or -w",
            lock.name, lock.above);
    if (code == VOW_EBUSY || code == VOW_ETIMEDOUT)
        exit(lock.store.busy_code);
    if (code == VOW_ESTORE)
        die(EXIT_BROKEN, "vow lock: the store %s cannot be used: %s",
            store_shown(&lock.store), why);
    if (code != VOW_EDOUBT)
        die(EXIT_BROKEN, "vow lock: %s", why);
    text_add_quoted(&word, text_span(&lock.label));
    die(EXIT_BROKEN,
        "vow lock: %s is %s. Find out, then: vow resolve %s --retry", lock.name,
        why, word.at);
}

/* ---- the command --------------------------------------------------------- */

static int run_command(void)
{
    vow_future *f = vow_promise(lock.loop, &lock.over);
    int error = start_command();
    if (error != 0)
        say("vow lock: cannot run %s: %s", lock.command[0], strerror(error));
    if (error == 0 && lock.hold.lost != NULL)
        (void)vow_done(vow_future_ref(lock.hold.lost), NULL, on_lost, NULL);
    if (error == 0)
        (void)vow_loop_run_until(lock.loop, f);
    else
        (void)vow_deferred_unref(lock.over);
    vow_future_unref(f);
    int status = lock.proc.status;
    if (error != 0)
        return error == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_RUN;
    if (lock.lost && !lock.keep)
        return EXIT_LOST;
    if (lock.proc.timed_out)
        return EXIT_TIMEOUT;
    return WIFEXITED(status) ? WEXITSTATUS(status)
                             : EXIT_SIGNAL + WTERMSIG(status);
}

/* With --once, a command that was killed by a signal of somebody else may be
 * half done: the lock is not given back. What the terminal sends to all of our
 * group counts as a signal to us. */
static bool is_in_doubt(int *code)
{
    const struct proc *p = &lock.proc;
    struct text word = {0};
    char name[16];
    int number = WIFSIGNALED(p->status) ? WTERMSIG(p->status) : 0;
    bool typed = !p->own_group && (number == SIGINT || number == SIGQUIT);
    if (!lock.once || number == 0 || typed || p->told || lock.by_signal != 0)
        return false;
    text_add_quoted(&word, text_span(&lock.label));
    say("vow lock: the command of '%s' was killed by %s, and the lock is in "
        "doubt. Find out, then: vow resolve %s --retry",
        lock.name, units_signal_name(number, name), word.at);
    text_free(&word);
    *code = EXIT_BROKEN;
    return true;
}

static int start_command(void)
{
    char **env = make_env();
    int error = proc_start(
        &lock.proc, &(struct proc_opts){.path = lock.program,
                                        .argv = lock.command,
                                        .env = env,
                                        .in = STDIN_FILENO,
                                        .out = STDOUT_FILENO,
                                        .err = STDERR_FILENO,
                                        .also = -1,
                                        .in_our_group = proc_in_foreground(),
                                        .timeout_ms = lock.timeout_ms,
                                        .seq = 1,
                                        .kill = &lock.kill,
                                        .ended = on_ended});
    free(env);
    return error;
}

/* Ours without what is told anew; the strings stay. */
static char **make_env(void)
{
    static struct text run, name, fence;
    static const char *const ours[] = {"VOW_RUN=", "VOW_NAME=", "VOW_FENCE="};
    size_t n = 0, kept = 0;
    while (environ[n] != NULL)
        n++;
    char **env = mem_new((n + ENV_ADDED) * sizeof(env[0]));
    for (size_t i = 0; i < n; i++) {
        bool told = false;
        for (size_t k = 0; k < sizeof(ours) / sizeof(ours[0]); k++)
            told |= strncmp(environ[i], ours[k], strlen(ours[k])) == 0;
        if (!told && !nested_is_variable(environ[i]))
            env[kept++] = environ[i];
    }
    reaper_mark(&run, 1);
    text_addf(&name, "VOW_NAME=%.*s", VOW_LABEL_MAX, lock.name);
    text_addf(&fence, "VOW_FENCE=%llu", (unsigned long long)lock.hold.fence);
    env[kept++] = run.at;
    env[kept++] = name.at;
    env[kept++] = fence.at;
    char *held = nested_variable(
        &(struct nested_hold){.store = &lock.store,
                              .fence = lock.once ? lock.hold.fence : 0,
                              .pool = lock.ask.label,
                              .weight = lock.ask.weight});
    if (held != NULL)
        env[kept++] = held;
    return env;
}

static void on_ended(struct proc *p)
{
    (void)p;
    (void)vow_resolve_drop(lock.over, vow_nothing());
}

/* Keeps L2: of the last third of the lease, half is for TERM to work, the rest
 * for a machine that is late. */
static uint64_t grace_ms(void)
{
    return (lock.store.lease_ms > 0 ? lock.store.lease_ms : LEASE_MS) / 3;
}

static vow_next on_lost(vow_error *e, void *user)
{
    (void)user;
    if (lock.proc.pid == 0 || lock.lost)
        return vow_ok(vow_nothing());
    if (vow_error_code(e) == VOW_ECANCELED) { /* by vow cancel, with --once */
        say("vow lock: the lock '%s' was canceled", lock.name);
        proc_stop(&lock.proc, SIGTERM);
        return vow_ok(vow_nothing());
    }
    lock.lost = true;
    say("vow lock: the lock '%s' is lost: %s%s", lock.name,
        vow_error_message(e), lock.keep ? "; the command goes on" : "");
    if (!lock.keep)
        proc_stop_within(&lock.proc, grace_ms() / 2);
    return vow_ok(vow_nothing());
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
    } else if (lock.by_signal != 0) {
        if (lock.proc.pid == 0)
            signals_die(number); /* the store is slow */
        procs_signal(SIGKILL);
    } else {
        lock.by_signal = number;
        bool has_it = by_terminal && !lock.proc.own_group;
        if (lock.proc.pid != 0)
            proc_stop(&lock.proc, has_it ? SIGCONT : number);
        else if (lock.place != NULL)
            (void)vow_cancel(lock.place, NULL);
    }
}

static void leave(void)
{
    lock_leave(&lock.hold);
    store_close(lock.loop, lock.authority);
}
