/* SPDX-License-Identifier: MIT */
/* cmd_share.c - vow share: run a command once for all callers of a name.
 *
 *   the store has a result  write the result
 *   another process runs    wait; with --follow, show the output as it comes
 *   no process runs         run the command (runner.h), publish the result,
 *                           write the output; on a terminal, with --follow and
 *                           without a store, show the output as it comes
 *   our lease was lost      wait for the next runner; the command is not
 *                           started again
 *   the result is stale     write the result; start a process in the background
 *                           (vow share --refresh), which runs the command if no
 *                           other process does
 */
#include "replay.h"
#include "role.h"
#include "runner.h"
#include "say.h"
#include "session.h"
#include "show.h"
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Time for a store that cannot be used to accept the result. */
enum { PUBLISH_MS = 5000 };

static struct {
    struct shared shared;
    vow_name name;
    const char *label; /* the name, or the command line */
    char printed[VOW_NAME_TEXT];
    char **argv; /* the command line of this process */
    vow_share_info info;
    struct runner runner;
    bool runs;          /* the runner was started here */
    vow_future *result; /* of vow_share(); owned */
    bool settled;       /* `result` is settled */
    vow_call timer;     /* of --wait, or of PUBLISH_MS */
    struct replay follow;
    bool live[3]; /* by descriptor: output of our command is shown at once */
    bool shown;   /* the delayed output or another runner's result was shown */
    bool unpublished; /* the store did not accept our result in time */
    /* our lease was lost */
    bool leaves;            /* does not wait for the next runner */
    vow_bytes *late_result; /* arrived while our command still ran */
    vow_error *late_error;  /* the same */
} share;

static void share_make_label(void);
static void share_start(void);
static vow_future *share_work(vow_lease *lease, void *unused);
static void report_unpublished(void);
static void on_share_published(struct runner *r);
static void on_share_doubt(struct runner *r);
static vow_error *on_share_made(struct runner *r);
static void await_publication(void);
static void on_publish_timeout(void *unused);
static void share_finish_run(void);
static void choose_live_output(vow_lease *lease);
static void show_delayed_output(void);
static void show_delayed_bytes(int fd, const char *at, size_t n, void *unused);
static void on_share_lost(struct runner *r);
static void on_lost_run_ended(struct runner *r);
static void report_lost_doubt(void);
static vow_next on_turn_left(vow_error *e, void *unused);
static void give_up_lost_run(void *unused);
static void on_share_hopeless(struct runner *r);
static void lost_run_failed(vow_error *e);
static void restart_output(void);
static void on_share_chunk(vow_bytes *chunk, void *unused);
static vow_next on_share_result(vow_value v, void *unused);
static bool role_ran_here(uint32_t role);
static void share_answer(const void *at, size_t n);
static vow_next on_share_failure(vow_error *e, void *unused);
static int share_report_error(const vow_error *e);
static const char *hint_command(const char *command);
static void on_wait_timeout(void *unused);
static void start_refresh(void);

int cmd_share(int argc, char **argv)
{
    struct shared *s = &share.shared;
    shared_read(s, &share_verb, argc, argv);
    share.argv = argv;
    share.name = shared_name(s);
    share_make_label();
    session_open(s);
    share_start();
    return session_run(share.result);
}

static void share_make_label(void)
{
    struct text t = {0};
    share.label = share.shared.name;
    for (size_t i = 0; share.label == NULL && i < share.shared.n_command; i++) {
        text_add(&t, " ", i > 0);
        text_add_quoted(&t, span_of(share.shared.command[i]));
    }
    if (share.label == NULL)
        share.label = t.at;
}

static void share_start(void)
{
    const struct shared *s = &share.shared;
    uint32_t flags = VOW_SHARE_NO_REFRESH;
    flags |= s->store.no_wait ? VOW_SHARE_NOWAIT : 0;
    flags |= s->peek ? VOW_SHARE_PEEK : 0;
    flags |= s->force ? VOW_SHARE_FORCE : 0;
    flags |= s->follow ? VOW_SHARE_FOLLOW : 0;
    if (s->refresh)
        flags = VOW_SHARE_REFRESH | VOW_SHARE_NOWAIT;
    flags |= s->keep_lost ? VOW_SHARE_KEEP : 0;
    if (s->follow) {
        show_hold(STDOUT_FILENO, s->max_output);
        show_hold(STDERR_FILENO, s->max_output);
    }
    if (s->store.waits && !s->refresh)
        vow_call_at(&share.timer, session_loop(),
                    vow_loop_due_ns(session_loop(), s->store.wait_ms),
                    on_wait_timeout, NULL);
    share.result = vow_share(
        session_authority(), &share.name, share_work, NULL,
        VOW_SHARE(.mode = s->mode, .flags = flags, .label = share.label,
                  .ttl_ms = s->ttl_ms, .fail_ttl_ms = s->fail_ttl_ms,
                  .stale_ms = s->stale_ms, .lease_ms = s->store.lease_ms,
                  .pulse_ms = s->store.pulse_ms, .takeovers = s->takeovers,
                  .store_down = s->store.down, .on_chunk = on_share_chunk,
                  .info = &share.info));
    if (vow_done(vow_future_ref(share.result), on_share_result,
                 on_share_failure, NULL) < 0)
        die(EXIT_BROKEN, "out of memory");
}

/* ---- the command runs in this process ------------------------------------ */

static vow_future *share_work(vow_lease *lease, void *unused)
{
    (void)unused;
    if (share.runs)
        return runner_pass_turn(&share.runner, lease);
    (void)vow_call_stop(&share.timer);
    share.runs = true;
    choose_live_output(lease);
    restart_output();
    return runner_start(
        &share.runner,
        &(struct runner_opts){
            .shared = &share.shared,
            .argv = share.shared.command,
            .label = share.label,
            .lease = lease,
            .name = &share.name,
            .in = -1,
            .hide_out = !share.live[STDOUT_FILENO],
            .hide_err = !share.live[STDERR_FILENO],
            .chunks = share.shared.follow && !share.shared.refresh,
            .keeps = !share.shared.refresh,
            .made = on_share_made,
            .published = on_share_published,
            .lost = on_share_lost,
            .lost_ended = on_lost_run_ended,
            .hopeless = on_share_hopeless,
            .doubt = share.shared.mode == VOW_ONCE ? on_share_doubt : NULL});
}

/* Chooses which output is shown at once. Another runner's result may still
 * replace ours, so output is delayed until the store accepts the result. On a
 * terminal and with --follow output is shown at once, and kept in memory, to
 * skip the same bytes of another runner. */
static void choose_live_output(vow_lease *lease)
{
    const struct shared *s = &share.shared;
    bool alone = session_alone() || lease_is_alone(lease);
    session_at_end(show_delayed_output);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        bool seen = s->follow || isatty(fd) == 1;
        share.live[fd] = (alone || seen) && !s->refresh;
        if (seen && !alone)
            show_hold(fd, s->max_output);
    }
}

/* Shows the delayed output, once; not after another runner's result. */
static void show_delayed_output(void)
{
    if (share.shown || !share.runs || share.shared.refresh)
        return;
    share.shown = true;
    restart_output();
    runner_replay(&share.runner, show_delayed_bytes);
}

static void show_delayed_bytes(int fd, const char *at, size_t n, void *unused)
{
    if (!share.live[fd] || share.runner.lost)
        show_bytes(fd, at, n, unused);
}

/* Returns why the recording is no result: in a refresh, a failure does not
 * replace the existing result. */
static vow_error *on_share_made(struct runner *r)
{
    if (share.shared.refresh && ending_code(r->end) != 0)
        return vow_error_new(session_loop(), VOW_EIO, "the command failed");
    await_publication();
    return NULL;
}

static void await_publication(void)
{
    vow_call_at(&share.timer, session_loop(),
                vow_loop_due_ns(session_loop(), PUBLISH_MS), on_publish_timeout,
                NULL);
}

/* Ends the wait for a store that cannot be used. A commit that may still be
 * answered is waited for: the timeout of the store bounds each attempt, and the
 * lease bounds the repeats. */
static void on_publish_timeout(void *unused)
{
    (void)unused;
    if (!session_store_is_down()) {
        await_publication();
    } else if (share.shared.mode == VOW_SHARED) {
        /* With --if-store-down run, a warning was printed before. */
        share.unpublished = share.shared.store.down == VOW_DOWN_WAIT;
        share_finish_run();
    } else {
        show_delayed_output();
        report_unpublished();
        session_over(EXIT_BROKEN);
    }
}

static void report_unpublished(void)
{
    const char *why = session_trouble();
    say("vow share: the result of %s was not published: %s", share.label,
        why == NULL ? "the store does not answer" : why);
}

static void on_share_published(struct runner *r)
{
    if (share.settled && r->ended)
        share_finish_run();
}

static void on_share_doubt(struct runner *r)
{
    struct text how = {0};
    char name[16];
    show_delayed_output();
    if (r->stopped != NULL)
        text_add_str(&how, "canceled when it had begun");
    else
        text_addf(&how, "killed by %s",
                  units_signal_name(WTERMSIG(r->proc.status), name));
    say("vow share: %s was %s, and is in doubt. Check what was done, then run: "
        "%s (or --done FILE, or --failed)",
        share.label, how.at, hint_command("vow resolve --retry"));
    text_free(&how);
    session_over(EXIT_BROKEN);
}

/* Shows the output and ends the session with the exit code of our command. */
static void share_finish_run(void)
{
    vow_share_info info = share.info;
    if (!role_ran_here(info.role))
        info = (vow_share_info){.role = VOW_ROLE_RAN};
    if (session_alone())
        info.role = VOW_ROLE_ALONE;
    (void)snprintf(info.runner, sizeof(info.runner), "%s", role_us());
    show_delayed_output();
    role_tell(&share.shared, share.label, NULL, &info);
    if (share.unpublished || session_trouble() != NULL)
        report_unpublished();
    session_over(ending_code(share.runner.end));
}

/* ---- our lease was lost -------------------------------------------------- */

/* Hides the output of our command, and waits for the next runner. */
static void on_share_lost(struct runner *r)
{
    const struct shared *s = &share.shared;
    (void)vow_call_stop(&share.timer);
    r->o.hide_out = r->o.hide_err = true;
    share.follow = (struct replay){0};
    restart_output();
    share.leaves = s->refresh || s->store.no_wait;
    if (s->mode == VOW_ONCE)
        return; /* leaving would release the name */
    if (share.leaves)
        (void)vow_cancel(share.result, NULL);
    else if (s->verbose)
        say("%s: the lease was lost; waiting for the next runner", share.label);
}

static void on_lost_run_ended(struct runner *r)
{
    const struct shared *s = &share.shared;
    if (s->mode == VOW_ONCE) {
        report_lost_doubt();
    } else if (share.late_result != NULL) {
        share_answer(vow_bytes_data(share.late_result),
                     vow_bytes_size(share.late_result));
    } else if (share.late_error != NULL) {
        lost_run_failed(share.late_error);
    } else if (share.leaves || share.settled) {
        give_up_lost_run(NULL);
    } else {
        if (s->store.waits)
            vow_call_at(&share.timer, session_loop(),
                        vow_loop_due_ns(session_loop(), s->store.wait_ms),
                        give_up_lost_run, NULL);
        if (vow_lease_left_ms(r->o.lease) == 0)
            runner_leave(r); /* another process may have the name */
        else if (vow_done(runner_pass_turn(r, r->o.lease), NULL, on_turn_left,
                          NULL) < 0)
            die(EXIT_BROKEN, "out of memory");
    }
}

static void report_lost_doubt(void)
{
    show_delayed_output();
    say("vow share: %s is in doubt: its lease was lost when it had begun. "
        "Check what was done, then run: %s (or --done FILE, or --failed)",
        share.label, hint_command("vow resolve --retry"));
    session_over(EXIT_BROKEN);
}

static vow_next on_turn_left(vow_error *e, void *unused)
{
    (void)e;
    (void)unused;
    return vow_ok(vow_nothing());
}

static void give_up_lost_run(void *unused)
{
    (void)unused;
    on_share_hopeless(&share.runner);
}

static void on_share_hopeless(struct runner *r)
{
    if (!session_is_over())
        show_delayed_output();
    runner_lost_for_good(r);
}

/* Ends the session: no other runner will have a result, or all waiters get the
 * same failure. */
static void lost_run_failed(vow_error *e)
{
    int code = vow_error_code(e);
    if (share.leaves || runner_is_hopeless(code)) {
        give_up_lost_run(NULL);
        return;
    }
    show_delayed_output();
    session_over(share_report_error(e));
}

/* ---- another process runs the command ------------------------------------ */

static void restart_output(void)
{
    show_from_start(STDOUT_FILENO);
    show_from_start(STDERR_FILENO);
}

static void on_share_chunk(vow_bytes *chunk, void *unused)
{
    (void)unused;
    if (share.runs && !share.runner.lost)
        return; /* a chunk of our own command */
    session_show();
    if (chunk == NULL) {
        share.follow = (struct replay){0};
        restart_output();
        return;
    }
    const char *wrong = replay_feed(&share.follow, vow_bytes_data(chunk),
                                    vow_bytes_size(chunk), show_bytes, NULL);
    if (wrong != NULL)
        die(EXIT_BROKEN, "vow share: cannot follow %s: %s", share.label, wrong);
}

static vow_next on_share_result(vow_value v, void *unused)
{
    vow_bytes *bytes = vow_as_bytes(v);
    (void)unused;
    (void)vow_call_stop(&share.timer);
    if (share.runs && role_ran_here(share.info.role)) {
        share.settled = true;
        if (share.runner.published && share.runner.ended)
            share_finish_run();
    } else if (share.shared.refresh) {
        session_over(0); /* another process refreshes the result */
    } else if (share.runs && share.runner.proc.pid != 0) {
        share.late_result = vow_bytes_ref(bytes); /* for on_lost_run_ended() */
    } else {
        share_answer(bytes == NULL ? NULL : vow_bytes_data(bytes),
                     bytes == NULL ? 0 : vow_bytes_size(bytes));
    }
    return vow_ok(vow_nothing());
}

static bool role_ran_here(uint32_t role)
{
    return role == VOW_ROLE_RAN || role == VOW_ROLE_TAKEOVER ||
           role == VOW_ROLE_ALONE;
}

/* Shows the result of another process, and ends the session. */
static void share_answer(const void *at, size_t n)
{
    struct ending end;
    const char *wrong = replay_check(at, n, &end);
    if (wrong != NULL)
        die(EXIT_BROKEN,
            "vow share: the result of %s cannot be used: %s. Is the name used "
            "by something else?",
            share.label, wrong);
    share.shown = true;
    restart_output();
    if (share.runs) { /* the whole result is here: no limit */
        show_hold(STDOUT_FILENO, UINT64_MAX);
        show_hold(STDERR_FILENO, UINT64_MAX);
    }
    session_replay(at, n);
    role_tell(&share.shared, share.label, NULL, &share.info);
    if (share.info.role == VOW_ROLE_STALE && !share.shared.peek)
        start_refresh();
    if ((share.info.role == VOW_ROLE_CACHED ||
         share.info.role == VOW_ROLE_STALE) &&
        !store_has_leases(&share.shared.store))
        session_holds_nothing();
    session_over(ending_code(end));
}

static vow_next on_share_failure(vow_error *e, void *unused)
{
    (void)unused;
    (void)vow_call_stop(&share.timer);
    if (session_is_over())
        return vow_ok(vow_nothing());
    if (share.runs && share.runner.lost) {
        if (share.runner.proc.pid != 0)
            share.late_error = vow_error_ref(e); /* for on_lost_run_ended() */
        else
            lost_run_failed(e);
    } else if (share.runs && share.runner.ended) {
        /* the result is not shared, but the caller gets the output */
        share.settled = true;
        if (vow_error_code(e) == VOW_E2BIG)
            say("vow share: %s: %s", share.label, vow_error_message(e));
        if (share.runner.published)
            share_finish_run();
    } else if (share.shared.refresh) {
        session_over(0); /* another process or a later caller refreshes */
    } else {
        show_delayed_output();
        session_over(share_report_error(e));
    }
    return vow_ok(vow_nothing());
}

static int share_report_error(const vow_error *e)
{
    const struct shared *s = &share.shared;
    int code = vow_error_code(e);
    if (s->peek && store_has_none(code))
        return EXIT_NOTHING;
    if (code == VOW_EBUSY && s->store.no_wait) {
        if (s->verbose)
            say("%s: another process runs it", share.label);
        return s->store.busy_code;
    }
    if (code == VOW_EDOUBT)
        say("vow share: %s is %s. Check what was done, then run: %s (or --done "
            "FILE, or --failed)",
            share.label, vow_error_message(e),
            hint_command("vow resolve --retry"));
    else if (code == VOW_EGAVEUP)
        say("vow share: %s: %s; %s, or --force, to try again at once",
            share.label, vow_error_message(e), hint_command("vow forget"));
    else if (code == VOW_ECANCELED)
        say("vow share: %s was canceled", share.label);
    else
        say("vow share: %s: %s", share.label, vow_error_message(e));
    return EXIT_BROKEN;
}

/* Returns the command line for the user: `command`, and the NAME if a terminal
 * shows the NAME unchanged, or else the id. Never freed. */
static const char *hint_command(const char *command)
{
    struct text t = {0}, shown = {0}; /* never freed */
    const char *word = share.shared.n_depends == 0 ? share.shared.name : NULL;
    if (word != NULL)
        table_add_visible(&shown, span_of(word));
    if (word == NULL || shown.n > VOW_LABEL_MAX || strcmp(shown.at, word) != 0)
        word = vow_name_text(&share.name, share.printed);
    text_addf(&t, "%s %s", command, word[0] == '-' ? "-- " : "");
    text_add_quoted(&t, span_of(word));
    return t.at;
}

static void on_wait_timeout(void *unused)
{
    (void)unused;
    if (share.shared.verbose)
        say("%s: another process still runs it", share.label);
    session_over(share.shared.store.busy_code);
}

/* ---- refresh in the background ------------------------------------------- */

/* Starts `vow share --refresh` with the same arguments, in a session of its own
 * without a terminal. The store decides which process runs the command. */
static void start_refresh(void)
{
    size_t n = 0;
    pid_t pid;
    posix_spawnattr_t how;
    posix_spawn_file_actions_t files;
    while (share.argv[n] != NULL)
        n++;
    char **argv = mem_new((n + 3) * sizeof(argv[0]));
    argv[0] = "vow";
    argv[1] = "share";
    argv[2] = "--refresh";
    memcpy(argv + 3, share.argv + 1, n * sizeof(argv[0]));
    (void)posix_spawnattr_init(&how);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDWR, 0);
    (void)posix_spawn_file_actions_adddup2(&files, 0, 1);
    (void)posix_spawn_file_actions_adddup2(&files, 0, 2);
    (void)posix_spawn_file_actions_addclosefrom_np(&files, 3);
    int error =
        posix_spawn(&pid, "/proc/self/exe", &files, &how, argv, environ);
    if (error != 0 && share.shared.verbose)
        say("%s: cannot be refreshed: %s", share.label, strerror(error));
    free(argv);
}
