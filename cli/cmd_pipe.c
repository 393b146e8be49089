/* SPDX-License-Identifier: MIT */
/* cmd_pipe.c - vow pipe: run a pipeline; shared first steps run once.
 *
 * HOW   The result of a step is the recording of the step's command
 *       (replay.h). The next step reads the stdout in this recording. If a step
 *       fails, the failure is also the result of all later steps: the stderr
 *       and the exit code, without the stdout. With --stream a step reads the
 *       chunks of the step before, while the step before still runs.
 *
 *       The stdout of the last step is written when the store has accepted the
 *       result; with --stream, on a terminal and without a store, the stdout is
 *       written at once. A step with a lost lease waits for the result of
 *       another process; the command is not started again.
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

/* A run of a step in this process. A step begins again, with a new attempt,
 * when the input was lost. */
struct attempt {
    size_t step; /* index */
    const char *argv[4];
    struct runner runner;
    struct feed feed;
    vow_lease *lease;
    vow_deferred *end; /* of the step; settled after the command has ended */
    /* the input */
    vow_input *in;
    struct replay reader;     /* reads the recording of the step before */
    bool chunk_pending;       /* vow_input_next() is not answered yet */
    bool input_over;          /* no chunk is read any more */
    struct recording failure; /* of the step before: the stderr */
    vow_deferred *held;       /* settles the step when the input is over; NULL:
                                 not waiting for the input */
    vow_bytes *result;        /* of the ended command; used with `held` */
    bool starved;             /* the input failed or was lost */
};

static struct {
    struct shared shared;
    size_t *numbers;           /* 0, 1, ...: the arguments of step_work() */
    struct attempt **attempts; /* the latest per step; NULL: not run here */
    vow_future *run;           /* the result of the pipeline; owned */
    vow_step_info *infos;      /* per step */
    bool live;              /* stdout of the last step is shown as it comes */
    bool shown;             /* the stdout or the result was shown */
    vow_bytes *late_result; /* arrived while a command with a lost lease ran */
    vow_error *late_error;  /* the same */
} pipeline;

static void pipe_start(void);
static vow_future *step_work(vow_lease *lease, vow_input *in, void *number);
static bool step_is_last(const struct attempt *a);
static vow_future *step_start(struct attempt *a, int in);
static vow_future *step_start_whole(struct attempt *a);
static void input_take(int fd, const char *at, size_t n, void *attempt);
static vow_future *step_pass_failure(struct attempt *a, struct ending end);
static void input_pull(struct attempt *a);
static void on_feed_empty(struct feed *f);
static vow_next on_input_chunk(vow_value v, void *attempt);
static vow_next on_input_failed(vow_error *e, void *attempt);
static void step_stop(struct attempt *a, vow_error *why);
static void input_finish(struct attempt *a);
static void step_choose_stdout(vow_lease *lease);
static void show_last_step(void);
static void show_step_stdout(int fd, const char *at, size_t n, void *unused);
static void on_step_lost(struct runner *r);
static void on_lost_step_ended(struct runner *r);
static vow_next on_turn_passed(vow_error *e, void *unused);
static void on_step_hopeless(struct runner *r);
static struct attempt *find_lost_step(bool running);
static void pipe_answer(vow_bytes *bytes);
static void pipe_report_failure(vow_error *e);
static void on_step_cancel(vow_error *why, void *attempt);
static vow_next on_step_ran(vow_value v, void *attempt);
static vow_next on_step_not_ran(vow_error *e, void *attempt);
static vow_next on_step_end(vow_value v, void *attempt);
static vow_next on_step_failed(vow_error *e, void *attempt);
static vow_next on_pipe_result(vow_value v, void *unused);
static bool any_step_failed(void);
static vow_next on_pipe_failure(vow_error *e, void *unused);
static size_t find_failed_step(int code);
static void pipe_report_roles(void);
static bool step_never_ran(size_t step);

int cmd_pipe(int argc, char **argv)
{
    shared_read(&pipeline.shared, &pipe_verb, argc, argv);
    session_open(&pipeline.shared);
    if (pipeline.shared.stream)
        show_hold(STDOUT_FILENO, pipeline.shared.max_output);
    pipe_start();
    return session_run(pipeline.run);
}

static void pipe_start(void)
{
    const struct shared *s = &pipeline.shared;
    size_t n = s->n_steps;
    vow_pipe_step *steps = mem_new(n * sizeof(steps[0]));
    vow_field *fields = mem_new(2 * n * sizeof(fields[0]));
    vow_field *source;
    size_t n_source = shared_source(s, &source);
    pipeline.numbers = mem_new(n * sizeof(pipeline.numbers[0]));
    pipeline.attempts = mem_new(n * sizeof(pipeline.attempts[0]));
    pipeline.infos = mem_new(n * sizeof(pipeline.infos[0]));
    for (size_t i = 0; i < n; i++) {
        fields[2 * i] = vow_field_text("vow pipe: sh");
        fields[2 * i + 1] = vow_field_text(s->steps[i].script);
        pipeline.numbers[i] = i;
        steps[i] = (vow_pipe_step){.fields = &fields[2 * i],
                                   .n_fields = 2,
                                   .work = step_work,
                                   .arg = &pipeline.numbers[i],
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
    pipeline.run = vow_pipeline_run(
        session_authority(), steps, n,
        VOW_PIPELINE(.source = source, .n_source = n_source, .share = share),
        pipeline.infos);
    free(steps);
    free(fields);
    free(source);
    if (vow_done(vow_future_ref(pipeline.run), on_pipe_result, on_pipe_failure,
                 NULL) < 0)
        die(EXIT_BROKEN, "out of memory");
}

/* ---- a step runs in this process ----------------------------------------- */

static vow_future *step_work(vow_lease *lease, vow_input *in, void *number)
{
    const size_t *step = number;
    struct attempt *before = pipeline.attempts[*step];
    if (before != NULL && before->runner.lost)
        return runner_pass_turn(&before->runner, lease);
    struct attempt *a = mem_new(sizeof(*a)); /* never freed */
    int end;
    a->step = *step;
    a->in = in;
    a->lease = vow_lease_ref(lease);
    a->feed.poller.fd = -1;
    pipeline.attempts[a->step] = a;
    session_show(); /* opens the poller for the feed */
    if (step_is_last(a)) {
        step_choose_stdout(lease);
        show_from_start(STDOUT_FILENO);
    }
    if (a->step == 0) {
        a->input_over = true;
        return step_start(a, -1);
    }
    if (!pipeline.shared.stream)
        return step_start_whole(a);
    if ((end = feed_open(&a->feed, on_feed_empty)) < 0)
        return vow_refused(session_loop(), VOW_EIO, strerror(errno));
    vow_future *f = step_start(a, end);
    input_pull(a);
    return f;
}

static void step_choose_stdout(vow_lease *lease)
{
    const struct shared *s = &pipeline.shared;
    bool alone = session_alone() || lease_is_alone(lease);
    bool seen = s->stream || isatty(STDOUT_FILENO) == 1;
    pipeline.live = alone || seen;
    if (seen && !alone)
        show_hold(STDOUT_FILENO, s->max_output);
    session_at_end(show_last_step);
}

/* Shows the stdout of the last step, once. If the lease was lost, bytes that
 * were shown before are skipped. */
static void show_last_step(void)
{
    const struct attempt *last = pipeline.attempts[pipeline.shared.n_steps - 1];
    if (pipeline.shown || last == NULL || (pipeline.live && !last->runner.lost))
        return;
    pipeline.shown = true;
    show_from_start(STDOUT_FILENO);
    runner_replay(&last->runner, show_step_stdout);
}

/* Shows stdout only: stderr was shown as it came. */
static void show_step_stdout(int fd, const char *at, size_t n, void *unused)
{
    if (fd == STDOUT_FILENO)
        show_bytes(fd, at, n, unused);
}

static bool step_is_last(const struct attempt *a)
{
    return a->step + 1 == pipeline.shared.n_steps;
}

static vow_future *step_start(struct attempt *a, int in)
{
    const struct step_words *words = &pipeline.shared.steps[a->step];
    a->argv[0] = "sh";
    a->argv[1] = "-c";
    a->argv[2] = words->script;
    vow_future *f = runner_start(
        &a->runner, &(struct runner_opts){
                        .shared = &pipeline.shared,
                        .argv = (char *const *)(void *)a->argv,
                        .label = words->label,
                        .lease = a->lease,
                        .in = in,
                        .hide_out = !step_is_last(a) || !pipeline.live,
                        .chunks = pipeline.shared.stream && !step_is_last(a),
                        .keeps = step_is_last(a),
                        .lost = on_step_lost,
                        .lost_ended = on_lost_step_ended,
                        .hopeless = on_step_hopeless,
                        .name = &pipeline.infos[a->step].name});
    vow_future *end = vow_promise(session_loop(), &a->end);
    vow_on_cancel(a->end, on_step_cancel, a);
    if (vow_done(vow_then_drop(f, on_step_ran, on_step_not_ran, a), on_step_end,
                 on_step_failed, a) < 0)
        die(EXIT_BROKEN, "out of memory");
    return end;
}

/* Starts a step when the step before has ended. */
static vow_future *step_start_whole(struct attempt *a)
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
    (void)replay_feed(&a->reader, at, n, input_take, a);
    if (ending_code(end) != 0)
        return step_pass_failure(a, end);
    feed_end(&a->feed);
    return step_start(a, fd);
}

/* Takes the output of the step before: stdout is the input, stderr is kept. */
static void input_take(int fd, const char *at, size_t n, void *attempt)
{
    struct attempt *a = attempt;
    if (fd == STDOUT_FILENO)
        feed_bytes(&a->feed, at, n);
    else
        recording_add(&a->failure, fd, at, n);
}

/* Returns the failure of the step before as the result of this step. */
static vow_future *step_pass_failure(struct attempt *a, struct ending end)
{
    vow_bytes *bytes;
    recording_end(&a->failure, end);
    if (vow_bytes_new(session_loop(), a->failure.bytes.at, a->failure.bytes.n,
                      &bytes) < 0)
        die(EXIT_BROKEN, "out of memory");
    vow_lease_keep(a->lease, pipeline.shared.fail_ttl_ms);
    vow_lease_mark_failed(a->lease);
    return vow_resolved(session_loop(), vow_bytes_value(bytes));
}

/* ---- reading chunks with --stream ---------------------------------------- */

static void input_pull(struct attempt *a)
{
    if (a->chunk_pending || a->input_over)
        return;
    a->chunk_pending = true;
    if (vow_done(vow_input_next(a->in), on_input_chunk, on_input_failed, a) < 0)
        die(EXIT_BROKEN, "out of memory");
}

static void on_feed_empty(struct feed *f)
{
    input_pull(
        (struct attempt *)(void *)((char *)f - offsetof(struct attempt, feed)));
}

static vow_next on_input_chunk(vow_value v, void *attempt)
{
    struct attempt *a = attempt;
    vow_bytes *chunk = vow_as_bytes(v);
    const char *wrong = NULL;
    a->chunk_pending = false;
    if (chunk != NULL)
        wrong = replay_feed(&a->reader, vow_bytes_data(chunk),
                            vow_bytes_size(chunk), input_take, a);
    else if (!replay_over(&a->reader))
        wrong = "the output of the step before is incomplete";
    if (wrong != NULL) {
        VOW_AUTO(vow_error)
        e = vow_error_new(session_loop(), VOW_EINVAL, "%s", wrong);
        return on_input_failed(e, a);
    }
    if (chunk == NULL)
        input_finish(a);
    else if (a->feed.poller.fd < 0 || a->feed.text.n == 0)
        input_pull(a);
    return vow_ok(vow_nothing());
}

/* Ends the attempt: the input was lost, or is no recording. */
static vow_next on_input_failed(vow_error *e, void *attempt)
{
    struct attempt *a = attempt;
    a->chunk_pending = false;
    a->starved = a->starved || !a->input_over;
    step_stop(a, e);
    return vow_ok(vow_nothing());
}

static void input_finish(struct attempt *a)
{
    int code = ending_code(a->reader.end);
    a->input_over = true;
    feed_end(&a->feed);
    if (code != 0) {
        VOW_AUTO(vow_error)
        why = vow_error_new(session_loop(), VOW_EIO, "a step before failed");
        runner_stop(&a->runner, why);
    }
    if (a->held == NULL)
        return;
    if (code != 0) {
        VOW_AUTO(vow_future) f = step_pass_failure(a, a->reader.end);
        (void)vow_resolve_with(a->held, f);
        vow_deferred_unref(a->held);
    } else {
        (void)vow_resolve_drop(a->held, vow_bytes_value(a->result));
    }
    a->held = NULL;
}

/* ---- the end of a step --------------------------------------------------- */

/* Hides the output: from now on another process runs the step. */
static void on_step_lost(struct runner *r)
{
    const struct attempt *last = pipeline.attempts[pipeline.shared.n_steps - 1];
    r->o.hide_out = r->o.hide_err = true;
    if (last != NULL && r == &last->runner)
        show_from_start(STDOUT_FILENO);
    if (pipeline.shared.verbose)
        say("%s: the lease was lost; waiting for the next runner", r->o.label);
}

static void on_lost_step_ended(struct runner *r)
{
    if (pipeline.late_result != NULL && find_lost_step(true) == NULL)
        pipe_answer(pipeline.late_result);
    else if (pipeline.late_error != NULL && find_lost_step(true) == NULL)
        pipe_report_failure(pipeline.late_error);
    else if (vow_lease_left_ms(r->o.lease) == 0)
        runner_leave(r); /* another process may have the name */
    else if (vow_done(runner_pass_turn(r, r->o.lease), NULL, on_turn_passed,
                      NULL) < 0)
        die(EXIT_BROKEN, "out of memory");
}

static vow_next on_turn_passed(vow_error *e, void *unused)
{
    (void)e;
    (void)unused;
    return vow_ok(vow_nothing());
}

static void on_step_hopeless(struct runner *r)
{
    if (!session_is_over())
        show_last_step();
    runner_lost_for_good(r);
}

/* Returns an attempt with a lost lease; NULL: none. `running`: only an attempt
 * with a running command. */
static struct attempt *find_lost_step(bool running)
{
    for (size_t i = 0; i < pipeline.shared.n_steps; i++) {
        struct attempt *a = pipeline.attempts[i];
        if (a != NULL && a->runner.lost &&
            (!running || a->runner.proc.pid != 0))
            return a;
    }
    return NULL;
}

static void on_step_cancel(vow_error *why, void *attempt)
{
    step_stop(attempt, why);
}

static void step_stop(struct attempt *a, vow_error *why)
{
    a->input_over = true;
    runner_stop(&a->runner, why);
    if (a->held != NULL)
        (void)vow_reject_drop(a->held, vow_error_ref(why));
    a->held = NULL;
}

static vow_next on_step_ran(vow_value v, void *attempt)
{
    struct attempt *a = attempt;
    vow_bytes *bytes = vow_bytes_ref(vow_as_bytes(v));
    if (a->input_over)
        return vow_ok(vow_bytes_value(bytes));
    a->result = bytes;
    return vow_follow(vow_promise(session_loop(), &a->held));
}

static vow_next on_step_not_ran(vow_error *e, void *attempt)
{
    struct attempt *a = attempt;
    a->input_over = true; /* `in` is freed when the step is settled */
    if (replay_over(&a->reader) && ending_code(a->reader.end) != 0)
        return vow_follow(step_pass_failure(a, a->reader.end));
    return vow_fail(vow_error_ref(e));
}

static vow_next on_step_end(vow_value v, void *attempt)
{
    struct attempt *a = attempt;
    vow_bytes *bytes = vow_bytes_ref(vow_as_bytes(v));
    (void)vow_resolve_drop(a->end, vow_bytes_value(bytes));
    return vow_ok(vow_nothing());
}

static vow_next on_step_failed(vow_error *e, void *attempt)
{
    struct attempt *a = attempt;
    (void)vow_reject_drop(a->end, vow_error_ref(e));
    return vow_ok(vow_nothing());
}

/* ---- the end of the pipeline --------------------------------------------- */

static vow_next on_pipe_result(vow_value v, void *unused)
{
    vow_bytes *bytes = vow_as_bytes(v);
    (void)unused;
    if (find_lost_step(true) != NULL)
        pipeline.late_result =
            vow_bytes_ref(bytes); /* for on_lost_step_ended() */
    else
        pipe_answer(bytes);
    return vow_ok(vow_nothing());
}

static void pipe_answer(vow_bytes *bytes)
{
    const struct attempt *last = pipeline.attempts[pipeline.shared.n_steps - 1];
    const void *at = bytes == NULL ? NULL : vow_bytes_data(bytes);
    size_t n = bytes == NULL ? 0 : vow_bytes_size(bytes);
    struct ending end;
    const char *wrong = replay_check(at, n, &end);
    if (wrong != NULL)
        die(EXIT_BROKEN, "vow pipe: the result cannot be used: %s", wrong);
    if (last != NULL && last->runner.ended && !last->runner.lost) {
        show_last_step();
    } else if (!any_step_failed()) {
        show_from_start(STDOUT_FILENO);
        session_replay(at, n);
    }
    pipeline.shown = true;
    pipe_report_roles();
    session_over(ending_code(end));
}

/* Returns whether a step failed in this process; its stderr was shown. */
static bool any_step_failed(void)
{
    bool failed = false;
    for (size_t i = 0; i < pipeline.shared.n_steps; i++) {
        const struct attempt *a = pipeline.attempts[i];
        failed |= a != NULL && a->runner.ended && !a->runner.lost &&
                  ending_code(a->runner.end) != 0;
    }
    return failed;
}

static vow_next on_pipe_failure(vow_error *e, void *unused)
{
    (void)unused;
    if (find_lost_step(true) != NULL)
        pipeline.late_error = vow_error_ref(e); /* for on_lost_step_ended() */
    else if (!session_is_over())
        pipe_report_failure(e);
    return vow_ok(vow_nothing());
}

static void pipe_report_failure(vow_error *e)
{
    char printed[VOW_NAME_TEXT];
    int code = vow_error_code(e);
    const struct attempt *lost = find_lost_step(false);
    show_last_step();
    if (lost != NULL && runner_is_hopeless(code)) {
        runner_lost_for_good(&lost->runner);
        return;
    }
    size_t step = find_failed_step(code);
    if (step == pipeline.shared.n_steps)
        say("vow pipe: %s", vow_error_message(e));
    else if (code == VOW_ECANCELED)
        say("vow pipe: step '%s' was canceled",
            pipeline.shared.steps[step].label);
    else if (code == VOW_EGAVEUP)
        say("vow pipe: step '%s': %s; vow forget -- %s, or --force, to try "
            "again at once",
            pipeline.shared.steps[step].label, vow_error_message(e),
            vow_name_text(&pipeline.infos[step].name, printed));
    else
        say("vow pipe: step '%s': %s", pipeline.shared.steps[step].label,
            vow_error_message(e));
    session_over(EXIT_BROKEN);
}

/* Returns the index of the step that failed: the step before a failed input, or
 * the first step that was stopped here, or the last requested step, because no
 * step is requested after a failure. Returns the number of steps for errors of
 * the store or of memory. */
static size_t find_failed_step(int code)
{
    size_t n = pipeline.shared.n_steps, last = n;
    if (code == VOW_ESTORE || code == VOW_EAGAIN || code == VOW_ENOMEM)
        return n;
    for (size_t i = 0; i < n; i++) {
        const struct attempt *a = pipeline.attempts[i];
        if (a != NULL && a->starved)
            return i - 1;
        if (a != NULL && a->runner.stopped != NULL)
            return i;
        if (pipeline.infos[i].role != VOW_ROLE_NONE)
            last = i;
    }
    return last;
}

static void pipe_report_roles(void)
{
    for (size_t i = 0; i < pipeline.shared.n_steps; i++) {
        const vow_step_info *step = &pipeline.infos[i];
        const char *label = pipeline.shared.steps[i].label;
        vow_share_info info = {.role = step->role, .fence = step->fence};
        memcpy(info.runner, step->runner, sizeof(info.runner));
        if (step_never_ran(i))
            info = (vow_share_info){.role = VOW_ROLE_NONE};
        if (session_alone() && info.role != VOW_ROLE_NONE)
            info.role = VOW_ROLE_ALONE;
        role_tell(&pipeline.shared, label, label, &info);
    }
}

/* Returns whether this process owned the step, but only passed on the failure
 * of the step before. */
static bool step_never_ran(size_t step)
{
    const struct attempt *a = pipeline.attempts[step];
    uint32_t role = pipeline.infos[step].role;
    return a != NULL && a->runner.seq == 0 && role != VOW_ROLE_JOINED &&
           role != VOW_ROLE_CACHED;
}
