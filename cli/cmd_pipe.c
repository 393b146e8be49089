/* SPDX-License-Identifier: MIT */
/* cmd_pipe.c - vow pipe: run a pipeline; shared first steps run once.
 *
 * HOW   The result of a step is the recording of its command (replay.h); the
 *       next one reads the stdout of that. A step counts only if all before it
 *       have ended with 0: one that failed is the result of those behind it,
 *       without what it wrote to stdout. With --stream a step reads the chunks
 *       of the one before it while that still runs.
 *
 *       What the last step writes to stdout is written when the result was
 *       accepted; as it comes with --stream, on a terminal and without a store.
 *       A step whose lease was lost is waited for like one of another: its
 *       command is not started again.
 */
#include "feed.h"
#include "replay.h"
#include "role.h"
#include "runner.h"
#include "say.h"
#include "session.h"
#include "show.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A step may have to begin again: what it read was lost. */
struct attempt {
    size_t step;
    const char *argv[4];
    struct runner runner;
    struct feed feed;
    vow_lease *lease;
    vow_deferred *end; /* of the step: not before its command has ended */
    /* what it reads */
    vow_input *in;
    struct replay reader; /* of the recording before it */
    bool asked;           /* for the next chunk */
    bool input_over;
    struct recording failure; /* of a step before it */
    vow_deferred *waits;      /* its command has ended, its input has not */
    vow_bytes *result;        /* that waits with it */
    bool starved;             /* there is no input: the step before failed */
};

static struct {
    struct shared shared;
    size_t *numbers;           /* of the steps */
    struct attempt **attempts; /* the last of each step; NULL: none here */
    vow_future *asked;
    vow_step_info *infos;
    bool live;         /* stdout of the last step is shown as it comes */
    bool shown;        /* what was kept back, or the result of another */
    vow_bytes *result; /* that came while a lost command still ended */
    vow_error *failed; /* the same */
} all;

static void ask(void);
static vow_future *work(vow_lease *lease, vow_input *in, void *number);
static bool is_last(const struct attempt *a);
static vow_future *begin(struct attempt *a, int in);
static vow_future *whole(struct attempt *a);
static void take_input(int fd, const char *at, size_t n, void *attempt);
static vow_future *failure_of(struct attempt *a, struct ending end);
static void pull(struct attempt *a);
static void on_hungry(struct feed *f);
static vow_next on_chunk(vow_value v, void *attempt);
static vow_next on_no_chunk(vow_error *e, void *attempt);
static void stop(struct attempt *a, vow_error *why);
static void input_ends(struct attempt *a);
static void decide_stdout(vow_lease *lease);
static void show_last(void);
static void show_stdout(int fd, const char *at, size_t n, void *unused);
static void on_lost(struct runner *r);
static void on_lost_step_ended(struct runner *r);
static vow_next on_step_passed(vow_error *e, void *unused);
static void on_hopeless_step(struct runner *r);
static struct attempt *lost_here(bool running);
static void answer_with(vow_bytes *bytes);
static void tell_failure(vow_error *e);
static void on_cancel(vow_error *why, void *attempt);
static vow_next on_ran(vow_value v, void *attempt);
static vow_next on_not_ran(vow_error *e, void *attempt);
static vow_next on_end(vow_value v, void *attempt);
static vow_next on_bad_end(vow_error *e, void *attempt);
static vow_next on_result(vow_value v, void *unused);
static bool failed_here(void);
static vow_next on_failure(vow_error *e, void *unused);
static size_t failed_step(int code);
static void tell_roles(void);
static bool never_ran(size_t step);

int cmd_pipe(int argc, char **argv)
{
    shared_read(&all.shared, &pipe_verb, argc, argv);
    session_open(&all.shared);
    if (all.shared.stream)
        show_hold(STDOUT_FILENO, all.shared.max_output);
    ask();
    return session_run(all.asked);
}

static void ask(void)
{
    const struct shared *s = &all.shared;
    size_t n = s->n_steps;
    vow_pipe_step *steps = mem_new(n * sizeof(steps[0]));
    vow_field *fields = mem_new(2 * n * sizeof(fields[0]));
    vow_field *source;
    size_t n_source = shared_source(s, &source);
    all.numbers = mem_new(n * sizeof(all.numbers[0]));
    all.attempts = mem_new(n * sizeof(all.attempts[0]));
    all.infos = mem_new(n * sizeof(all.infos[0]));
    for (size_t i = 0; i < n; i++) {
        fields[2 * i] = vow_field_text("vow pipe: sh");
        fields[2 * i + 1] = vow_field_text(s->steps[i].script);
        all.numbers[i] = i;
        steps[i] = (vow_pipe_step){.fields = &fields[2 * i],
                                   .n_fields = 2,
                                   .work = work,
                                   .arg = &all.numbers[i],
                                   .label = s->steps[i].label};
        if (s->stream && i > 0)
            steps[i].flags = VOW_STEP_STREAM;
    }
    uint32_t flags =
        (s->keep_lost ? VOW_SHARE_KEEP : 0) | (s->force ? VOW_SHARE_FORCE : 0);
    const vow_share_opts share = {.size = sizeof(share),
                                  .mode = s->mode,
                                  .flags = flags,
                                  .ttl_ms = s->ttl_ms,
                                  .fail_ttl_ms = s->fail_ttl_ms,
                                  .lease_ms = s->store.lease_ms,
                                  .pulse_ms = s->store.pulse_ms,
                                  .takeovers = s->takeovers,
                                  .store_down = s->store.down};
    all.asked = vow_pipeline_run(
        session_authority(), steps, n,
        VOW_PIPELINE(.source = source, .n_source = n_source, .share = share),
        all.infos);
    free(steps);
    free(fields);
    free(source);
    if (vow_done(vow_future_ref(all.asked), on_result, on_failure, NULL) < 0)
        die(EXIT_BROKEN, "out of memory");
}

/* ---- a step runs here ---------------------------------------------------- */

static vow_future *work(vow_lease *lease, vow_input *in, void *number)
{
    const size_t *step = number;
    struct attempt *before = all.attempts[*step];
    if (before != NULL && before->runner.lost)
        return runner_pass_turn(&before->runner, lease);
    struct attempt *a = mem_new(sizeof(*a)); /* others may still know it */
    int end;
    a->step = *step;
    a->in = in;
    a->lease = vow_lease_ref(lease);
    a->feed.poller.fd = -1;
    all.attempts[a->step] = a;
    session_show(); /* what feeds it listens */
    if (is_last(a)) {
        decide_stdout(lease);
        show_from_start(STDOUT_FILENO);
    }
    if (a->step == 0) {
        a->input_over = true;
        return begin(a, -1);
    }
    if (!all.shared.stream)
        return whole(a);
    if ((end = feed_open(&a->feed, on_hungry)) < 0)
        return vow_refused(session_loop(), VOW_EIO, strerror(errno));
    vow_future *f = begin(a, end);
    pull(a);
    return f;
}

static void decide_stdout(vow_lease *lease)
{
    const struct shared *s = &all.shared;
    bool alone = session_alone() || lease_is_alone(lease);
    bool seen = s->stream || isatty(STDOUT_FILENO) == 1;
    all.live = alone || seen;
    if (seen && !alone)
        show_hold(STDOUT_FILENO, s->max_output);
    session_at_end(show_last);
}

/* What the last step wrote here, once: if it was lost, as far as it was not
 * seen. */
static void show_last(void)
{
    const struct attempt *last = all.attempts[all.shared.n_steps - 1];
    if (all.shown || last == NULL || (all.live && !last->runner.lost))
        return;
    all.shown = true;
    show_from_start(STDOUT_FILENO);
    runner_replay(&last->runner, show_stdout);
}

/* What it wrote to stderr was shown as it came. */
static void show_stdout(int fd, const char *at, size_t n, void *unused)
{
    if (fd == STDOUT_FILENO)
        show_bytes(fd, at, n, unused);
}

static bool is_last(const struct attempt *a)
{
    return a->step + 1 == all.shared.n_steps;
}

static vow_future *begin(struct attempt *a, int in)
{
    const struct step_words *words = &all.shared.steps[a->step];
    a->argv[0] = "sh";
    a->argv[1] = "-c";
    a->argv[2] = words->script;
    vow_future *f = runner_start(
        &a->runner,
        &(struct runner_opts){.shared = &all.shared,
                              .argv = (char *const *)(void *)a->argv,
                              .label = words->label,
                              .lease = a->lease,
                              .in = in,
                              .hide_out = !is_last(a) || !all.live,
                              .chunks = all.shared.stream && !is_last(a),
                              .keeps = is_last(a),
                              .lost = on_lost,
                              .lost_ended = on_lost_step_ended,
                              .hopeless = on_hopeless_step,
                              .name = &all.infos[a->step].name});
    vow_future *end = vow_promise(session_loop(), &a->end);
    vow_on_cancel(a->end, on_cancel, a);
    if (vow_done(vow_then_drop(f, on_ran, on_not_ran, a), on_end, on_bad_end,
                 a) < 0)
        die(EXIT_BROKEN, "out of memory");
    return end;
}

/* The step before it has ended. */
static vow_future *whole(struct attempt *a)
{
    vow_bytes *bytes = vow_input_whole(a->in);
    const void *at = bytes == NULL ? NULL : vow_bytes_data(bytes);
    size_t n = bytes == NULL ? 0 : vow_bytes_size(bytes);
    struct ending end;
    const char *wrong = replay_check(at, n, &end);
    if (wrong != NULL)
        return vow_refused(session_loop(), VOW_EINVAL, wrong);
    a->input_over = true;
    int fd = -1;
    if (ending_code(end) == 0 && (fd = feed_open(&a->feed, NULL)) < 0)
        return vow_refused(session_loop(), VOW_EIO, strerror(errno));
    (void)replay_feed(&a->reader, at, n, take_input, a);
    if (ending_code(end) != 0)
        return failure_of(a, end);
    feed_end(&a->feed);
    return begin(a, fd);
}

/* What the step before it wrote. */
static void take_input(int fd, const char *at, size_t n, void *attempt)
{
    struct attempt *a = attempt;
    if (fd == STDOUT_FILENO)
        feed_bytes(&a->feed, at, n);
    else
        recording_add(&a->failure, fd, at, n); /* should it be one */
}

/* The failure of a step before it is its own. */
static vow_future *failure_of(struct attempt *a, struct ending end)
{
    vow_bytes *bytes;
    recording_end(&a->failure, end);
    if (vow_bytes_new(session_loop(), a->failure.bytes.at, a->failure.bytes.n,
                      &bytes) < 0)
        die(EXIT_BROKEN, "out of memory");
    vow_lease_keep(a->lease, all.shared.fail_ttl_ms);
    vow_lease_mark_failed(a->lease);
    return vow_resolved(session_loop(), vow_bytes_value(bytes));
}

/* ---- reading while the step before it writes ----------------------------- */

static void pull(struct attempt *a)
{
    if (a->asked || a->input_over)
        return;
    a->asked = true;
    if (vow_done(vow_input_next(a->in), on_chunk, on_no_chunk, a) < 0)
        die(EXIT_BROKEN, "out of memory");
}

static void on_hungry(struct feed *f)
{
    pull(
        (struct attempt *)(void *)((char *)f - offsetof(struct attempt, feed)));
}

static vow_next on_chunk(vow_value v, void *attempt)
{
    struct attempt *a = attempt;
    vow_bytes *chunk = vow_as_bytes(v);
    const char *wrong = NULL;
    a->asked = false;
    if (chunk != NULL)
        wrong = replay_feed(&a->reader, vow_bytes_data(chunk),
                            vow_bytes_size(chunk), take_input, a);
    else if (!replay_over(&a->reader))
        wrong = "its end is missing";
    if (wrong != NULL) {
        VOW_AUTO(vow_error)
        e = vow_error_new(session_loop(), VOW_EINVAL, "%s", wrong);
        return on_no_chunk(e, a);
    }
    if (chunk == NULL)
        input_ends(a);
    else if (a->feed.poller.fd < 0 || a->feed.text.n == 0)
        pull(a);
    return vow_ok(vow_nothing());
}

/* It was lost, or is not what it should be: this attempt ends too. */
static vow_next on_no_chunk(vow_error *e, void *attempt)
{
    struct attempt *a = attempt;
    a->asked = false;
    a->starved = a->starved || !a->input_over;
    stop(a, e);
    return vow_ok(vow_nothing());
}

static void input_ends(struct attempt *a)
{
    int code = ending_code(a->reader.end);
    a->input_over = true;
    feed_end(&a->feed);
    if (code != 0) {
        VOW_AUTO(vow_error)
        why = vow_error_new(session_loop(), VOW_EIO, "a step before it failed");
        runner_stop(&a->runner, why);
    }
    if (a->waits == NULL)
        return;
    if (code != 0) {
        VOW_AUTO(vow_future) f = failure_of(a, a->reader.end);
        (void)vow_resolve_with(a->waits, f);
        vow_deferred_unref(a->waits);
    } else {
        (void)vow_resolve_drop(a->waits, vow_bytes_value(a->result));
    }
    a->waits = NULL;
}

/* ---- its end ------------------------------------------------------------- */

/* From now on the step is another's. */
static void on_lost(struct runner *r)
{
    const struct attempt *last = all.attempts[all.shared.n_steps - 1];
    r->o.hide_out = r->o.hide_err = true;
    if (last != NULL && r == &last->runner)
        show_from_start(STDOUT_FILENO);
    if (all.shared.verbose)
        say("%s: the lease was lost; waiting for the next runner", r->o.label);
}

static void on_lost_step_ended(struct runner *r)
{
    if (all.result != NULL && lost_here(true) == NULL)
        answer_with(all.result);
    else if (all.failed != NULL && lost_here(true) == NULL)
        tell_failure(all.failed);
    else if (vow_lease_left_ms(r->o.lease) == 0) /* others may have it */
        runner_leave(r);
    else if (vow_done(runner_pass_turn(r, r->o.lease), NULL, on_step_passed,
                      NULL) < 0)
        die(EXIT_BROKEN, "out of memory");
}

static vow_next on_step_passed(vow_error *e, void *unused)
{
    (void)e;
    (void)unused;
    return vow_ok(vow_nothing());
}

static void on_hopeless_step(struct runner *r)
{
    if (!session_is_over())
        show_last();
    runner_lost_for_good(r);
}

/* A step whose lease was lost here; `running`: whose command still is. */
static struct attempt *lost_here(bool running)
{
    for (size_t i = 0; i < all.shared.n_steps; i++) {
        struct attempt *a = all.attempts[i];
        if (a != NULL && a->runner.lost &&
            (!running || a->runner.proc.pid != 0))
            return a;
    }
    return NULL;
}

static void on_cancel(vow_error *why, void *attempt)
{
    stop(attempt, why);
}

static void stop(struct attempt *a, vow_error *why)
{
    a->input_over = true;
    runner_stop(&a->runner, why);
    if (a->waits != NULL)
        (void)vow_reject_drop(a->waits, vow_error_ref(why));
    a->waits = NULL;
}

static vow_next on_ran(vow_value v, void *attempt)
{
    struct attempt *a = attempt;
    vow_bytes *bytes = vow_bytes_ref(vow_as_bytes(v));
    if (a->input_over)
        return vow_ok(vow_bytes_value(bytes));
    a->result = bytes;
    return vow_follow(vow_promise(session_loop(), &a->waits));
}

static vow_next on_not_ran(vow_error *e, void *attempt)
{
    struct attempt *a = attempt;
    a->input_over = true; /* it is gone when this has returned */
    if (replay_over(&a->reader) && ending_code(a->reader.end) != 0)
        return vow_follow(failure_of(a, a->reader.end));
    return vow_fail(vow_error_ref(e));
}

static vow_next on_end(vow_value v, void *attempt)
{
    struct attempt *a = attempt;
    vow_bytes *bytes = vow_bytes_ref(vow_as_bytes(v));
    (void)vow_resolve_drop(a->end, vow_bytes_value(bytes));
    return vow_ok(vow_nothing());
}

static vow_next on_bad_end(vow_error *e, void *attempt)
{
    struct attempt *a = attempt;
    (void)vow_reject_drop(a->end, vow_error_ref(e));
    return vow_ok(vow_nothing());
}

/* ---- the end of all ------------------------------------------------------ */

static vow_next on_result(vow_value v, void *unused)
{
    vow_bytes *bytes = vow_as_bytes(v);
    (void)unused;
    if (lost_here(true) != NULL)
        all.result = vow_bytes_ref(bytes); /* for when it has ended */
    else
        answer_with(bytes);
    return vow_ok(vow_nothing());
}

static void answer_with(vow_bytes *bytes)
{
    const struct attempt *last = all.attempts[all.shared.n_steps - 1];
    const void *at = bytes == NULL ? NULL : vow_bytes_data(bytes);
    size_t n = bytes == NULL ? 0 : vow_bytes_size(bytes);
    struct ending end;
    const char *wrong = replay_check(at, n, &end);
    if (wrong != NULL)
        die(EXIT_BROKEN, "vow pipe: the result cannot be used: %s", wrong);
    if (last != NULL && last->runner.ended && !last->runner.lost) {
        show_last();
    } else if (!failed_here()) {
        show_from_start(STDOUT_FILENO);
        session_replay(at, n);
    }
    all.shown = true;
    tell_roles();
    session_over(ending_code(end));
}

/* Then what it wrote to stderr was shown. */
static bool failed_here(void)
{
    bool failed = false;
    for (size_t i = 0; i < all.shared.n_steps; i++) {
        const struct attempt *a = all.attempts[i];
        failed |= a != NULL && a->runner.ended && !a->runner.lost &&
                  ending_code(a->runner.end) != 0;
    }
    return failed;
}

static vow_next on_failure(vow_error *e, void *unused)
{
    (void)unused;
    if (lost_here(true) != NULL)
        all.failed = vow_error_ref(e); /* for when it has ended */
    else if (!session_is_over())
        tell_failure(e);
    return vow_ok(vow_nothing());
}

static void tell_failure(vow_error *e)
{
    char printed[VOW_NAME_TEXT];
    int code = vow_error_code(e);
    const struct attempt *lost = lost_here(false);
    show_last();
    if (lost != NULL && runner_is_hopeless(code)) {
        runner_lost_for_good(&lost->runner);
        return;
    }
    size_t step = failed_step(code);
    if (step == all.shared.n_steps)
        say("vow pipe: %s", vow_error_message(e));
    else if (code == VOW_ECANCELED)
        say("vow pipe: step '%s' was canceled", all.shared.steps[step].label);
    else if (code == VOW_EGAVEUP)
        say("vow pipe: step '%s': %s; vow forget -- %s, or --force, to try "
            "again at once",
            all.shared.steps[step].label, vow_error_message(e),
            vow_name_text(&all.infos[step].name, printed));
    else
        say("vow pipe: step '%s': %s", all.shared.steps[step].label,
            vow_error_message(e));
    session_over(EXIT_BROKEN);
}

/* The first that was stopped here. Or the last that was asked for: nothing is
 * asked for behind a failure; but trouble with the store is of no step. */
static size_t failed_step(int code)
{
    size_t n = all.shared.n_steps, last = n;
    if (code == VOW_ESTORE || code == VOW_EAGAIN || code == VOW_ENOMEM)
        return n;
    for (size_t i = 0; i < n; i++) {
        const struct attempt *a = all.attempts[i];
        if (a != NULL && a->starved)
            return i - 1;
        if (a != NULL && a->runner.stopped != NULL)
            return i;
        if (all.infos[i].role != VOW_ROLE_NONE)
            last = i;
    }
    return last;
}

static void tell_roles(void)
{
    for (size_t i = 0; i < all.shared.n_steps; i++) {
        const vow_step_info *step = &all.infos[i];
        const char *label = all.shared.steps[i].label;
        vow_share_info info = {.role = step->role, .fence = step->fence};
        memcpy(info.runner, step->runner, sizeof(info.runner));
        if (never_ran(i))
            info = (vow_share_info){.role = VOW_ROLE_NONE};
        if (session_alone() && info.role != VOW_ROLE_NONE)
            info.role = VOW_ROLE_ALONE;
        role_tell(&all.shared, label, label, &info);
    }
}

/* It fell to us, and had only the failure of a step before it to pass on. */
static bool never_ran(size_t step)
{
    const struct attempt *a = all.attempts[step];
    uint32_t role = all.infos[step].role;
    return a != NULL && a->runner.seq == 0 && role != VOW_ROLE_JOINED &&
           role != VOW_ROLE_CACHED;
}
