/* SPDX-License-Identifier: MIT */
/* cmd_lock.c - vow lock: run a command while holding a lock or a slot, with a
 * fence.
 *
 * WHY   flock(1) is held by every process that inherits the descriptor, does
 *       not serve waiters in their order, and cannot tell a late holder from
 *       the next holder.
 * HOW   A lock is a pool with a limit of LOCK_PLACES. An exclusive holder has a
 *       permit of that weight, --shared has a permit of weight 1, so exclusive
 *       and shared waiters are served in one order. --slots N is a pool with
 *       the limit N; --once is a name (see lock_hold.c). The command inherits
 *       stdin, stdout and stderr, and nothing of the lock: processes that the
 *       command leaves behind hold nothing. If the permit is lost, or cannot
 *       be confirmed any more, the command is killed before the lease ends.
 * INVARIANTS
 *   L1  the permit is released when the command has ended, not before
 *   L2  the command runs only while vow holds the permit, unless --on-lost keep
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
enum { LABEL_MAX = VOW_LABEL_MAX - 8, LABEL_CUT = 128 }; /* bytes of NAME */
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
        "Waiters get the lock in the order they came. The exit code is that\n"
        "of the command; 75 if the lock is taken (-n, -w), 121 if the lock\n"
        "was lost and the command was killed. VOW_FENCE is a number that\n"
        "grows with each holder.\n"
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
    uint32_t slots; /* of --slots; 0: a lock */
    uint64_t timeout_ms;
    struct kill_seq kill;
    bool keep; /* --on-lost keep */
    char **command;
    char *program; /* the path of command[0]; owned */

    vow_loop *loop;
    vow_authority *authority;
    struct text label;
    struct lock_request request;
    vow_future *acquiring; /* pending request for the lock; NULL: none */
    struct lock_hold hold;
    struct proc proc;
    vow_deferred *command_end; /* resolved when the command has ended */
    int by_signal;             /* first signal that ends vow; 0: none */
    pid_t ancestor; /* holds the lock and waits for this process; 0: none */
    bool lost;      /* the lock, while the command ran */
} lock;

static void lock_read_command(int argc, char **argv);
static int lock_read_options(struct options *o);
static void lock_take_option(void *unused, int id, const struct options *o);
static void lock_read_option(int id, const struct options *o);
static void lock_check_value(const struct options *o, const char *sentence);
static void lock_prepare(void);
static void lock_make_request(void);
static void lock_report_slots(const char *label);
static void lock_make_label(struct text *ret_label);
static void lock_check_ancestors(void);
static void on_lock_joined(const vow_event *event, void *unused);
static void lock_acquire(void);
static _Noreturn void lock_report_failure(int code, const char *why);
static int lock_run_command(void);
static int lock_start_command(void);
static bool lock_is_in_doubt(int *code);
static char **lock_make_env(void);
static void on_lock_command_end(struct proc *p);
static uint64_t lock_grace_ms(void);
static vow_next on_lock_lost(vow_error *e, void *user);
static void on_lock_signal(int number, bool by_terminal);
static void lock_release(void);

int cmd_lock(int argc, char **argv)
{
    lock_read_command(argc, argv);
    lock_prepare();
    lock.store.on_event = on_lock_joined;
    lock.authority = store_open_or_die(lock.loop, &lock.store);
    lock_make_request();
    lock_check_ancestors();
    lock_acquire();
    int code = lock_run_command();
    if (!lock_is_in_doubt(&code))
        lock_release(); /* keeps L1 */
    if (lock.by_signal != 0) {
        (void)reaper_kill_marked(0);
        reaper_kill_children();
        reaper_end();
        signals_die(lock.by_signal);
    }
    reaper_end();
    return code;
}

/* ---- options ------------------------------------------------------------- */

static void lock_read_command(int argc, char **argv)
{
    struct options o = options_of(&lock_verb, argc, argv);
    lock.store = store_opts_of(&lock_verb);
    (void)units_kill_seq("TERM,5s,KILL", &lock.kill);
    store_config(&lock_verb, lock_take_option, NULL);
    int at = lock_read_options(&o);
    bool dashes = strcmp(argv[at - 1], "--") == 0; /* before a NAME like -x */
    if (at == argc || argv[at][0] == '\0' ||
        (dashes && (at + 1 == argc || strcmp(argv[at + 1], "--") != 0)))
        die(EXIT_BROKEN, "vow lock: no name given. See vow lock --help");
    lock.name = argv[at];
    o.at++;
    at = lock_read_options(&o);
    if (at == argc)
        die(EXIT_BROKEN, "vow lock: no command given. See vow lock --help");
    if (lock.shared && lock.slots > 0)
        die(EXIT_BROKEN, "vow lock: --shared cannot be combined with --slots");
    if (lock.once && (lock.shared || lock.slots > 0))
        die(EXIT_BROKEN, "vow lock: --once cannot be combined with --shared or "
                         "--slots");
    lock.store.mode = lock.once ? VOW_ONCE : VOW_SHARED;
    lock.command = argv + at;
}

/* Reads options up to the next other word. Returns the index of the word. */
static int lock_read_options(struct options *o)
{
    int id;
    while ((id = options_next(o)) > 0)
        lock_take_option(NULL, id, o);
    return o->at;
}

static void lock_take_option(void *unused, int id, const struct options *o)
{
    (void)unused;
    if (!store_option(&lock.store, id, o))
        lock_read_option(id, o);
}

static void lock_read_option(int id, const struct options *o)
{
    uint64_t n;
    switch (id) {
    case ID_SHARED:
        lock.shared = true;
        break;
    case ID_SLOTS:
        lock_check_value(o, units_count(o->value, &n));
        if (n == 0 || n > LOCK_PLACES)
            options_refuse(o, "use 1 to 1048576");
        lock.slots = (uint32_t)n;
        break;
    case ID_ONCE:
        lock.once = true;
        break;
    case ID_TIMEOUT:
        lock_check_value(o, units_duration(o->value, &lock.timeout_ms));
        break;
    case ID_KILL_SEQ:
        lock_check_value(o, units_kill_seq(o->value, &lock.kill));
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

static void lock_check_value(const struct options *o, const char *sentence)
{
    if (sentence != NULL)
        options_refuse(o, sentence);
}

/* ---- getting the lock ---------------------------------------------------- */

/* Finds the program before waiting for the lock. Starts the reaper before the
 * store is opened, so the reaper inherits nothing of the store. */
static void lock_prepare(void)
{
    if (vow_loop_new(NULL, &lock.loop) < 0)
        die(EXIT_BROKEN, "cannot create the event loop: %s", strerror(errno));
    poller_open(lock.loop);
    signals_open(lock.loop, on_lock_signal);
    procs_open(lock.loop);
    int rc = proc_find(lock.command[0], &lock.program);
    if (rc != 0)
        die(rc, "vow lock: %s: %s", lock.command[0],
            rc == EXIT_NOT_FOUND ? "command not found" : "cannot be run");
    reaper_start();
}

static void lock_make_request(void)
{
    bool several = lock.slots > 0;
    lock_make_label(&lock.label);
    if (several)
        lock_report_slots(lock.label.at);
    lock.request = (struct lock_request){
        .label = lock.label.at,
        .once = lock.once,
        .limit = several ? lock.slots : LOCK_PLACES,
        .weight = several || lock.shared ? 1 : LOCK_PLACES,
        .grace_ms = lock_grace_ms(),
        .store = &lock.store};
}

/* Tells the user if the slots exist with another number: the existing number
 * stays. */
static void lock_report_slots(const char *label)
{
    char limits[LISTING_LIMITS];
    VOW_AUTO(vow_future) f = vow_pool_limit(lock.authority, label, NULL);
    int rc = vow_loop_run_until(lock.loop, f);
    const vow_pool_info *existing = rc == 0 ? vow_as_ptr(vow_get(f)) : NULL;
    (void)vow_error_of(f); /* the request for the permit reports errors */
    if (existing != NULL && existing->limits.concurrent != lock.slots)
        say("slots '%s' have %s; vow limit %s changes it", lock.name,
            listing_limits(&existing->limits, limits), label);
}

/* Makes the label "lock:NAME" or "slots:NAME". A long NAME is cut, and a hash
 * is added. */
static void lock_make_label(struct text *ret_label)
{
    char printed[VOW_NAME_TEXT];
    size_t n = strlen(lock.name);
    vow_name name = vow_name_of(lock.name);
    text_add_str(ret_label, lock.slots > 0 ? SLOTS_LABEL : LOCK_LABEL);
    text_add(ret_label, lock.name, n > LABEL_MAX ? LABEL_CUT : n);
    if (n > LABEL_MAX)
        text_addf(ret_label, "~%s", vow_name_text(&name, printed));
}

/* If ancestor processes hold so much of the lock that this request cannot be
 * granted, waiting would be a deadlock. An ancestor may have lost the lock, so
 * the request is tried once, without waiting. */
static void lock_check_ancestors(void)
{
    const struct lock_request *a = &lock.request;
    if (a->once || lock.store.no_wait || lock.store.waits)
        return;
    uint64_t held = nested_weight(&lock.store, a->label, NULL, &lock.ancestor);
    lock.request.try_once = held > 0 && held + a->weight > a->limit;
}

/* Does the same for a name (--once): the event of joining has the owner's
 * fence. */
static void on_lock_joined(const vow_event *event, void *unused)
{
    (void)unused;
    if (event->kind != VOW_EVENT_JOINED || lock.store.no_wait ||
        lock.store.waits)
        return;
    lock.ancestor = nested_owner(&lock.store, event->fence);
    lock.request.try_once = lock.ancestor != 0;
    if (lock.request.try_once && lock.acquiring != NULL)
        (void)vow_cancel(lock.acquiring, NULL);
}

/* Gets the lock, or exits. */
static void lock_acquire(void)
{
    lock.acquiring = lock_get(&lock.hold, lock.authority, &lock.request);
    if (lock.by_signal != 0 || (lock.request.once && lock.request.try_once))
        (void)vow_cancel(lock.acquiring, NULL);
    int rc = vow_loop_run_until(lock.loop, lock.acquiring);
    if (rc == 0)
        lock_take(&lock.hold, lock.acquiring);
    if (rc < 0 || lock.by_signal != 0) {
        struct text why = {0};
        text_add_str(&why, vow_error_message(vow_error_of(lock.acquiring)));
        lock.acquiring = vow_future_unref(lock.acquiring);
        lock_release();
        reaper_end();
        if (lock.by_signal != 0)
            signals_die(lock.by_signal);
        lock_report_failure(rc, why.at);
    }
    lock.acquiring = vow_future_unref(lock.acquiring);
}

static _Noreturn void lock_report_failure(int code, const char *why)
{
    struct text word = {0};
    if (lock.request.try_once && (code == VOW_EBUSY || code == VOW_ECANCELED))
        die(EXIT_BROKEN,
            "vow lock: '%s' is held by process %d, which has started this "
            "command and waits for it; use another name, -n or -w",
            lock.name, lock.ancestor);
    if (code == VOW_EBUSY || code == VOW_ETIMEDOUT)
        exit(lock.store.busy_code);
    if (code == VOW_ESTORE)
        die(EXIT_BROKEN, "vow lock: the store %s cannot be used: %s",
            store_shown(&lock.store), why);
    if (code != VOW_EDOUBT)
        die(EXIT_BROKEN, "vow lock: %s", why);
    text_add_quoted(&word, text_span(&lock.label));
    die(EXIT_BROKEN,
        "vow lock: %s is %s. Check what was done, then run: vow resolve %s "
        "--retry",
        lock.name, why, word.at);
}

/* ---- the command --------------------------------------------------------- */

static int lock_run_command(void)
{
    vow_future *f = vow_promise(lock.loop, &lock.command_end);
    int error = lock_start_command();
    if (error != 0)
        say("vow lock: cannot run %s: %s", lock.command[0], strerror(error));
    if (error == 0 && lock.hold.lost != NULL)
        (void)vow_done(vow_future_ref(lock.hold.lost), NULL, on_lock_lost,
                       NULL);
    if (error == 0)
        (void)vow_loop_run_until(lock.loop, f);
    else
        (void)vow_deferred_unref(lock.command_end);
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

/* With --once, a command that was killed by another process may be half done:
 * the lock is not released. A signal of the terminal reaches the whole process
 * group, and counts as a signal to vow. */
static bool lock_is_in_doubt(int *code)
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
        "doubt. Check what was done, then run: vow resolve %s --retry",
        lock.name, units_signal_name(number, name), word.at);
    text_free(&word);
    *code = EXIT_BROKEN;
    return true;
}

static int lock_start_command(void)
{
    char **env = lock_make_env();
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
                                        .ended = on_lock_command_end});
    free(env);
    return error;
}

/* Makes the environment of the command: the environment of vow with new values
 * for vow's variables. The strings are never freed. */
static char **lock_make_env(void)
{
    static struct text run, name, fence;
    static const char *const ours[] = {"VOW_RUN=", "VOW_NAME=", "VOW_FENCE="};
    size_t n = 0, kept = 0;
    while (environ[n] != NULL)
        n++;
    char **env = mem_new((n + ENV_ADDED) * sizeof(env[0]));
    for (size_t i = 0; i < n; i++) {
        bool replaced = false;
        for (size_t k = 0; k < sizeof(ours) / sizeof(ours[0]); k++)
            replaced |= strncmp(environ[i], ours[k], strlen(ours[k])) == 0;
        if (!replaced && !nested_is_variable(environ[i]))
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
                              .pool = lock.request.label,
                              .weight = lock.request.weight});
    if (held != NULL)
        env[kept++] = held;
    return env;
}

static void on_lock_command_end(struct proc *p)
{
    (void)p;
    (void)vow_resolve_drop(lock.command_end, vow_nothing());
}

/* Keeps L2: the lock counts as lost when a third of the lease is left. Half of
 * the third is for SIGTERM to work, the rest is for delays of the machine. */
static uint64_t lock_grace_ms(void)
{
    return (lock.store.lease_ms > 0 ? lock.store.lease_ms : LEASE_MS) / 3;
}

static vow_next on_lock_lost(vow_error *e, void *user)
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
        proc_stop_within(&lock.proc, lock_grace_ms() / 2);
    return vow_ok(vow_nothing());
}

/* Passes signals on. A command in the process group of vow already has the
 * signals of the terminal. */
static void on_lock_signal(int number, bool by_terminal)
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
            signals_die(number); /* the store is slow to answer */
        procs_signal(SIGKILL);
    } else {
        lock.by_signal = number;
        bool has_it = by_terminal && !lock.proc.own_group;
        if (lock.proc.pid != 0)
            proc_stop(&lock.proc, has_it ? SIGCONT : number);
        else if (lock.acquiring != NULL)
            (void)vow_cancel(lock.acquiring, NULL);
    }
}

static void lock_release(void)
{
    lock_leave(&lock.hold);
    store_close(lock.loop, lock.authority);
}
