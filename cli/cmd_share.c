/* SPDX-License-Identifier: MIT */
/* cmd_share.c - vow share: run a command once for all callers of a name.
 *
 *   the result is there     written, and that is all
 *   another runs it         wait; with --follow, show what comes
 *   nobody does             run it (runner.h), publish it, write it; on a
 *                           terminal, with --follow and without a store it is
 *                           shown as it comes
 *   our lease was lost      wait like the others; the command is not started
 *                           again
 *   it is stale             written; a process of our own, which nobody waits
 *                           for, asks to make it anew and runs it if no other
 *                           does
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

/* Time for a store that cannot be used to take the result. */
enum { PUBLISH_MS = 5000 };

/* No result is as old as that; but one that another makes anew out of sight is
 * waited for, should the old one expire. */
#define NEVER_STALE UINT64_MAX

static struct {
    struct shared shared;
    vow_name name;
    const char *label; /* the name, or the command line */
    char printed[VOW_NAME_TEXT];
    char **words; /* of our own command line */
    vow_share_info info;
    struct runner runner;
    bool runs;
    vow_future *asked;
    bool answered; /* that is settled */
    vow_call patience;
    struct replay follow;
    bool live[3]; /* by descriptor: our command's output is shown as it comes */
    bool shown;   /* what was kept back, or the result of another instead */
    bool unpublished; /* the store did not take our result in time */
    /* our lease was lost */
    bool leaves;       /* without a successor's result */
    vow_bytes *heirs;  /* a result that came while our command ends */
    vow_error *failed; /* the same */
} one;

static void make_label(void);
static void ask(void);
static vow_future *work(vow_lease *lease, void *unused);
static void tell_unpublished(void);
static void on_published(struct runner *r);
static void on_doubt(struct runner *r);
static vow_error *on_made(struct runner *r);
static void await_publication(void);
static void not_taken(void *unused);
static void ran(void);
static void decide_what_is_live(vow_lease *lease);
static void show_kept_back(void);
static void show_unseen(int fd, const char *at, size_t n, void *unused);
static void on_lost(struct runner *r);
static void on_lost_run_ended(struct runner *r);
static void tell_doubt(void);
static vow_next on_turn_left(vow_error *e, void *unused);
static void lost_for_good(void *unused);
static void on_hopeless(struct runner *r);
static void lost_and_failed(vow_error *e);
static void from_start(void);
static void on_chunk(vow_bytes *chunk, void *unused);
static vow_next on_result(vow_value v, void *unused);
static bool ran_here(uint32_t role);
static void answer(const void *at, size_t n);
static vow_next on_failure(vow_error *e, void *unused);
static int explain(const vow_error *e);
static const char *how_to(const char *command);
static void out_of_patience(void *unused);
static void start_refresh(void);

int cmd_share(int argc, char **argv)
{
    struct shared *s = &one.shared;
    shared_read(s, &share_verb, argc, argv);
    one.words = argv;
    one.name = shared_name(s);
    make_label();
    session_open(s);
    ask();
    return session_run(one.asked);
}

static void make_label(void)
{
    struct text t = {0};
    one.label = one.shared.name;
    for (size_t i = 0; one.label == NULL && i < one.shared.n_command; i++) {
        text_add(&t, " ", i > 0);
        text_add_quoted(&t, span_of(one.shared.command[i]));
    }
    if (one.label == NULL)
        one.label = t.at;
}

static void ask(void)
{
    const struct shared *s = &one.shared;
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
        vow_call_at(&one.patience, session_loop(),
                    vow_loop_due_ns(session_loop(), s->store.wait_ms),
                    out_of_patience, NULL);
    one.asked = vow_share(
        session_authority(), &one.name, work, NULL,
        VOW_SHARE(.mode = s->mode, .flags = flags, .label = one.label,
                  .ttl_ms = s->ttl_ms, .fail_ttl_ms = s->fail_ttl_ms,
                  .stale_ms = s->stale_ms > 0 ? s->stale_ms : NEVER_STALE,
                  .lease_ms = s->store.lease_ms, .pulse_ms = s->store.pulse_ms,
                  .takeovers = s->takeovers, .store_down = s->store.down,
                  .on_chunk = on_chunk, .info = &one.info));
    if (vow_done(vow_future_ref(one.asked), on_result, on_failure, NULL) < 0)
        die(EXIT_BROKEN, "out of memory");
}

/* ---- we run it ----------------------------------------------------------- */

static vow_future *work(vow_lease *lease, void *unused)
{
    (void)unused;
    if (one.runs)
        return runner_pass_turn(&one.runner, lease);
    (void)vow_call_stop(&one.patience);
    one.runs = true;
    decide_what_is_live(lease);
    from_start();
    return runner_start(
        &one.runner,
        &(struct runner_opts){
            .shared = &one.shared,
            .argv = one.shared.command,
            .label = one.label,
            .lease = lease,
            .name = &one.name,
            .in = -1,
            .hide_out = !one.live[STDOUT_FILENO],
            .hide_err = !one.live[STDERR_FILENO],
            .chunks = one.shared.follow && !one.shared.refresh,
            .keeps = !one.shared.refresh,
            .made = on_made,
            .published = on_published,
            .lost = on_lost,
            .lost_ended = on_lost_run_ended,
            .hopeless = on_hopeless,
            .doubt = one.shared.mode == VOW_ONCE ? on_doubt : NULL});
}

/* A result that may yet be replaced by that of another is not shown, unless
 * somebody looks: then what was seen already is known should that happen. */
static void decide_what_is_live(vow_lease *lease)
{
    const struct shared *s = &one.shared;
    bool alone = session_alone() || lease_is_alone(lease);
    session_at_end(show_kept_back);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        bool seen = s->follow || isatty(fd) == 1;
        one.live[fd] = (alone || seen) && !s->refresh;
        if (seen && !alone)
            show_hold(fd, s->max_output);
    }
}

/* Once; not if the result of another was shown instead. */
static void show_kept_back(void)
{
    if (one.shown || !one.runs || one.shared.refresh)
        return;
    one.shown = true;
    from_start();
    runner_replay(&one.runner, show_unseen);
}

static void show_unseen(int fd, const char *at, size_t n, void *unused)
{
    if (!one.live[fd] || one.runner.lost)
        show_bytes(fd, at, n, unused);
}

/* A failure does not replace a result that is there. */
static vow_error *on_made(struct runner *r)
{
    if (one.shared.refresh && ending_code(r->end) != 0)
        return vow_error_new(session_loop(), VOW_EIO, "its command failed");
    await_publication();
    return NULL;
}

static void await_publication(void)
{
    vow_call_at(&one.patience, session_loop(),
                vow_loop_due_ns(session_loop(), PUBLISH_MS), not_taken, NULL);
}

/* Ends the wait for a store that cannot be used. A commit that may still be
 * answered is waited for: the timeout of the store bounds each attempt, and the
 * lease bounds the repeats. */
static void not_taken(void *unused)
{
    (void)unused;
    if (!session_store_is_down()) {
        await_publication();
    } else if (one.shared.mode == VOW_SHARED) {
        /* With run, the warning about the store has said so. */
        one.unpublished = one.shared.store.down == VOW_DOWN_WAIT;
        ran();
    } else {
        show_kept_back();
        tell_unpublished();
        session_over(EXIT_BROKEN);
    }
}

static void tell_unpublished(void)
{
    const char *why = session_trouble();
    say("vow share: the result of %s was not published: %s", one.label,
        why == NULL ? "the store does not answer" : why);
}

static void on_published(struct runner *r)
{
    if (one.answered && r->ended)
        ran();
}

static void on_doubt(struct runner *r)
{
    struct text how = {0};
    char name[16];
    show_kept_back();
    if (r->stopped != NULL)
        text_add_str(&how, "canceled when it had begun");
    else
        text_addf(&how, "killed by %s",
                  units_signal_name(WTERMSIG(r->proc.status), name));
    say("vow share: %s was %s, and is in doubt. Find out, then: %s (or --done "
        "FILE, or --failed)",
        one.label, how.at, how_to("vow resolve --retry"));
    text_free(&how);
    session_over(EXIT_BROKEN);
}

/* The command has ended, and what it made is where it belongs. */
static void ran(void)
{
    vow_share_info info = one.info;
    if (!ran_here(info.role))
        info = (vow_share_info){.role = VOW_ROLE_RAN};
    if (session_alone())
        info.role = VOW_ROLE_ALONE;
    (void)snprintf(info.runner, sizeof(info.runner), "%s", role_us());
    show_kept_back();
    role_tell(&one.shared, one.label, NULL, &info);
    if (one.unpublished || session_trouble() != NULL)
        tell_unpublished();
    session_over(ending_code(one.runner.end));
}

/* ---- our lease was lost -------------------------------------------------- */

/* From now on we wait like the others, whose output ours is not. */
static void on_lost(struct runner *r)
{
    const struct shared *s = &one.shared;
    (void)vow_call_stop(&one.patience);
    r->o.hide_out = r->o.hide_err = true;
    one.follow = (struct replay){0};
    from_start();
    one.leaves = s->refresh || s->store.no_wait;
    if (s->mode == VOW_ONCE)
        return; /* to leave would be to give it back */
    if (one.leaves)
        (void)vow_cancel(one.asked, NULL);
    else if (s->verbose)
        say("%s: the lease was lost; waiting for the next runner", one.label);
}

static void on_lost_run_ended(struct runner *r)
{
    const struct shared *s = &one.shared;
    if (s->mode == VOW_ONCE) {
        tell_doubt();
    } else if (one.heirs != NULL) {
        answer(vow_bytes_data(one.heirs), vow_bytes_size(one.heirs));
    } else if (one.failed != NULL) {
        lost_and_failed(one.failed);
    } else if (one.leaves || one.answered) {
        lost_for_good(NULL);
    } else {
        if (s->store.waits)
            vow_call_at(&one.patience, session_loop(),
                        vow_loop_due_ns(session_loop(), s->store.wait_ms),
                        lost_for_good, NULL);
        if (vow_lease_left_ms(r->o.lease) == 0) /* others may have it */
            runner_leave(r);
        else if (vow_done(runner_pass_turn(r, r->o.lease), NULL, on_turn_left,
                          NULL) < 0)
            die(EXIT_BROKEN, "out of memory");
    }
}

static void tell_doubt(void)
{
    show_kept_back();
    say("vow share: %s is in doubt: its lease was lost when it had begun. Find "
        "out, then: %s (or --done FILE, or --failed)",
        one.label, how_to("vow resolve --retry"));
    session_over(EXIT_BROKEN);
}

static vow_next on_turn_left(vow_error *e, void *unused)
{
    (void)e;
    (void)unused;
    return vow_ok(vow_nothing());
}

static void lost_for_good(void *unused)
{
    (void)unused;
    on_hopeless(&one.runner);
}

static void on_hopeless(struct runner *r)
{
    if (!session_is_over())
        show_kept_back();
    runner_lost_for_good(r);
}

/* There will be no result of another; or others are told the same. */
static void lost_and_failed(vow_error *e)
{
    int code = vow_error_code(e);
    if (one.leaves || runner_is_hopeless(code)) {
        lost_for_good(NULL);
        return;
    }
    show_kept_back();
    session_over(explain(e));
}

/* ---- others do ----------------------------------------------------------- */

static void from_start(void)
{
    show_from_start(STDOUT_FILENO);
    show_from_start(STDERR_FILENO);
}

static void on_chunk(vow_bytes *chunk, void *unused)
{
    (void)unused;
    if (one.runs && !one.runner.lost)
        return; /* our own */
    session_show();
    if (chunk == NULL) {
        one.follow = (struct replay){0};
        from_start();
        return;
    }
    const char *wrong = replay_feed(&one.follow, vow_bytes_data(chunk),
                                    vow_bytes_size(chunk), show_bytes, NULL);
    if (wrong != NULL)
        die(EXIT_BROKEN, "vow share: cannot follow %s: %s", one.label, wrong);
}

static vow_next on_result(vow_value v, void *unused)
{
    vow_bytes *bytes = vow_as_bytes(v);
    (void)unused;
    (void)vow_call_stop(&one.patience);
    if (one.runs && ran_here(one.info.role)) {
        one.answered = true;
        if (one.runner.published && one.runner.ended)
            ran();
    } else if (one.shared.refresh) {
        session_over(0); /* another makes it anew */
    } else if (one.runs && one.runner.proc.pid != 0) {
        one.heirs = vow_bytes_ref(bytes); /* for when ours has ended */
    } else {
        answer(bytes == NULL ? NULL : vow_bytes_data(bytes),
               bytes == NULL ? 0 : vow_bytes_size(bytes));
    }
    return vow_ok(vow_nothing());
}

static bool ran_here(uint32_t role)
{
    return role == VOW_ROLE_RAN || role == VOW_ROLE_TAKEOVER ||
           role == VOW_ROLE_ALONE;
}

/* A result of somebody else's. */
static void answer(const void *at, size_t n)
{
    struct ending end;
    const char *wrong = replay_check(at, n, &end);
    if (wrong != NULL)
        die(EXIT_BROKEN,
            "vow share: the result of %s cannot be used: %s. Is the name used "
            "by something else?",
            one.label, wrong);
    one.shown = true;
    from_start();
    if (one.runs) { /* it is here: no bound keeps it from being shown */
        show_hold(STDOUT_FILENO, UINT64_MAX);
        show_hold(STDERR_FILENO, UINT64_MAX);
    }
    session_replay(at, n);
    role_tell(&one.shared, one.label, NULL, &one.info);
    if (one.info.role == VOW_ROLE_STALE && !one.shared.peek)
        start_refresh();
    if ((one.info.role == VOW_ROLE_CACHED || one.info.role == VOW_ROLE_STALE) &&
        !store_has_leases(&one.shared.store))
        session_holds_nothing();
    session_over(ending_code(end));
}

static vow_next on_failure(vow_error *e, void *unused)
{
    (void)unused;
    (void)vow_call_stop(&one.patience);
    if (session_is_over())
        return vow_ok(vow_nothing());
    if (one.runs && one.runner.lost) {
        if (one.runner.proc.pid != 0)
            one.failed = vow_error_ref(e); /* for when ours has ended */
        else
            lost_and_failed(e);
    } else if (one.runs && one.runner.ended) {
        /* its caller has it all the same */
        one.answered = true;
        if (vow_error_code(e) == VOW_E2BIG)
            say("vow share: %s: %s", one.label, vow_error_message(e));
        if (one.runner.published)
            ran();
    } else if (one.shared.refresh) {
        session_over(0); /* others, or the next who asks */
    } else {
        show_kept_back();
        session_over(explain(e));
    }
    return vow_ok(vow_nothing());
}

static int explain(const vow_error *e)
{
    const struct shared *s = &one.shared;
    int code = vow_error_code(e);
    if (s->peek && store_has_none(code))
        return EXIT_NOTHING;
    if (code == VOW_EBUSY && s->store.no_wait) {
        if (s->verbose)
            say("%s: another runs it", one.label);
        return s->store.busy_code;
    }
    if (code == VOW_EDOUBT)
        say("vow share: %s is %s. Find out, then: %s (or --done FILE, or "
            "--failed)",
            one.label, vow_error_message(e), how_to("vow resolve --retry"));
    else if (code == VOW_EGAVEUP)
        say("vow share: %s: %s; %s, or --force, to try again at once",
            one.label, vow_error_message(e), how_to("vow forget"));
    else if (code == VOW_ECANCELED)
        say("vow share: %s was canceled", one.label);
    else
        say("vow share: %s: %s", one.label, vow_error_message(e));
    return EXIT_BROKEN;
}

/* By the word that was given, if it can be copied from a terminal. */
static const char *how_to(const char *command)
{
    struct text t = {0}, shown = {0}; /* they stay */
    const char *word = one.shared.n_depends == 0 ? one.shared.name : NULL;
    if (word != NULL)
        table_add_visible(&shown, span_of(word));
    if (word == NULL || shown.n > VOW_LABEL_MAX || strcmp(shown.at, word) != 0)
        word = vow_name_text(&one.name, one.printed);
    text_addf(&t, "%s %s", command, word[0] == '-' ? "-- " : "");
    text_add_quoted(&t, span_of(word));
    return t.at;
}

static void out_of_patience(void *unused)
{
    (void)unused;
    if (one.shared.verbose)
        say("%s: another still runs it", one.label);
    session_over(one.shared.store.busy_code);
}

/* ---- out of sight -------------------------------------------------------- */

/* Ourselves once more, with the same words: which of all these does the work is
 * decided by the store. */
static void start_refresh(void)
{
    size_t n = 0;
    pid_t pid;
    posix_spawnattr_t how;
    posix_spawn_file_actions_t files;
    while (one.words[n] != NULL)
        n++;
    char **argv = mem_new((n + 3) * sizeof(argv[0]));
    argv[0] = "vow";
    argv[1] = "share";
    argv[2] = "--refresh";
    memcpy(argv + 3, one.words + 1, n * sizeof(argv[0]));
    (void)posix_spawnattr_init(&how);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSID);
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDWR, 0);
    (void)posix_spawn_file_actions_adddup2(&files, 0, 1);
    (void)posix_spawn_file_actions_adddup2(&files, 0, 2);
    (void)posix_spawn_file_actions_addclosefrom_np(&files, 3);
    int error =
        posix_spawn(&pid, "/proc/self/exe", &files, &how, argv, environ);
    if (error != 0 && one.shared.verbose)
        say("%s: cannot be made anew: %s", one.label, strerror(error));
    free(argv);
}
