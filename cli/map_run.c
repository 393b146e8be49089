/* SPDX-License-Identifier: MIT */
/* map_run.c - vow map: makes jobs of items, runs the jobs and shows the output.
 *
 * HOW   vow_map() pulls items and keeps a few more than can run; vow_gate_run()
 *       decides when each job may start, and starts a failed job again. A job
 *       is counted as soon as the job has ended for good; the map delivers the
 *       job in order, no faster than the output is read; then the job is
 *       logged.
 * INVARIANTS
 *   C1  no item is pulled and no job begins once `stopping` is set
 *   C2  a job is counted once: as done, unrun or skipped
 */
#include "map_run.h"
#include "emit.h"
#include "jobserver.h"
#include "pool_use.h"
#include "results.h"
#include "say.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    KEEP_WINDOW = 1000,   /* jobs that may wait for earlier jobs with -k */
    KEEP_BYTES = 8 << 20, /* bytes of output in memory of these jobs */
    AHEAD_BYTES = 1 << 20 /* bytes of items that wait to start */
};

static int map_pull(void *state, vow_value *ret_item, vow_future **ret_wait);
static size_t output_files_max(void);
static uint32_t job_weight(const struct job *j);
static vow_future *map_begin_job(vow_loop *loop, vow_value item, size_t index,
                                 void *user);
static void job_add_tags(struct job *j);
static void tag_add_items(struct text *tag, int fd, const struct fields *f);
static void job_not_ahead(struct job *j);
static void source_resume(void);
static void on_job_start(struct job *j);
static void on_job_last_end(struct job *j);
static vow_next on_job_done(vow_value v, void *user);
static vow_future *map_deliver(size_t index, vow_future *outcome, void *user);
static void map_show_held(void);
static bool stream_may_flow(const struct stream *out);
static void job_show(struct job *j);
static void job_show_json(struct job *j);
static void map_refresh(void);
static void on_draw_due(void *user);

vow_future *map_start(void)
{
    const struct settings *s = &run.settings;
    uint64_t ahead = s->queue > 0 ? s->queue : 2 * (uint64_t)s->jobs;
    uint64_t most = s->jobs + ahead;
    uint32_t concurrent =
        most > UINT32_MAX / 4 ? UINT32_MAX / 4 : (uint32_t)most;
    uint32_t window = concurrent;
    if (s->keep_order && window < KEEP_WINDOW)
        window = KEEP_WINDOW;
    if (s->stop_after_ms > 0)
        vow_call_at(&run.stop_after, run.loop,
                    vow_loop_due_ns(run.loop, s->stop_after_ms),
                    map_on_stop_after, NULL);
    run.began_ms = vow_loop_now_ns(run.loop) / 1000000;
    streams_open(run.loop, stream_may_flow);
    run.jobs.on_start = on_job_start;
    run.jobs.on_last_end = on_job_last_end;
    run.jobs.on_end = map_refresh;
    run.jobs.on_store_down = map_on_store_down;
    if (!run.server)
        pool_watch(map_set_places);
    map_draw();
    return vow_map(
        run.loop, ((vow_source){.pull = map_pull}), map_begin_job, NULL,
        VOW_MAP(.concurrent = concurrent, .window = window,
                .fail = VOW_FAIL_COLLECT, .as_completed = !s->keep_order,
                .sink = map_deliver, .ret_map = &run.mapping));
}

static int map_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    (void)state;
    int rc = 0;
    if ((run.ahead > AHEAD_BYTES && run.live > procs_running() + 1) ||
        (streams_in_files() > output_files_max() && run.undelivered > 0)) {
        *ret_wait = vow_promise(run.loop, &run.room);
        return VOW_EAGAIN;
    }
    struct job *j = job_new(&run.jobs);
    while (run.stopping == HALT_NEVER) {
        rc = input_next(run.input, &j->items, ret_wait);
        if (rc != 1)
            break;
        j->seq = ++run.pulled;
        if (!map_already_done(j)) {
            j->weight = job_weight(j);
            if (j->weight == 0)
                break;
            run.ahead += j->items.bytes.n;
            *ret_item = vow_ptr(j);
            return 1;
        }
        run.skipped++;
    }
    if (rc == 1 || (rc < 0 && rc != VOW_EAGAIN)) { /* a message was written */
        run.broken = true;
        rc = 0; /* the jobs before this item run */
    }
    run.ended |= rc == 0 && run.stopping == HALT_NEVER;
    job_free(j);
    return run.stopping == HALT_NEVER ? rc : 0;
}

bool map_already_done(struct job *j)
{
    bool failed_too = !run.settings.resume_failed;
    struct fields fields = job_fields(j);
    if (run.log == NULL && run.skip == NULL)
        return false;
    template_hash(run.jobs.template, &fields, j->hash);
    if (run.skip == NULL)
        return false;
    if (!run.skip_by_command) {
        bool done = done_take(run.skip, j->hash, failed_too);
        j->again = !done && done_take_failed(run.skip, j->hash);
        return done;
    }
    text_clear(&run.command);
    template_show(run.jobs.template, &fields, &run.command);
    return done_take_command(run.skip, text_span(&run.command), failed_too);
}

/* Returns how many files of output may be open: half of the descriptors; the
 * others are for pipes and the rest. */
static size_t output_files_max(void)
{
    static size_t most;
    struct rlimit r;
    if (most == 0)
        most = getrlimit(RLIMIT_NOFILE, &r) == 0 ? r.rlim_cur / 2 : 512;
    return most;
}

/* Returns the weight of a job, at most the limit. 0: --weight is not a number,
 * and a message was written. */
static uint32_t job_weight(const struct job *j)
{
    const struct settings *s = &run.settings;
    const char *w = s->weight;
    uint64_t n = 1;
    if (w == NULL)
        return 1;
    struct span value = span_of(w);
    if (w[0] == '{') {
        unsigned long field = strtoul(w + 1, NULL, 10);
        value = (struct span){.at = "", .n = 0};
        struct fields fields = job_fields(j);
        if (field <= fields.n_fields)
            value = fields.fields[field - 1];
    }
    char *text = mem_copy(value.at, value.n);
    const char *wrong = units_count(text, &n);
    if (wrong != NULL || n == 0)
        say("vow map: --weight %s: job %llu has '%s', not a number from 1 on",
            w, (unsigned long long)j->seq, text);
    free(text);
    if (wrong != NULL || n == 0)
        return 0;
    n = n > s->jobs ? s->jobs : n;
    if (s->pool != NULL)
        return n > pool_weight_most() ? pool_weight_most() : (uint32_t)n;
    return s->rate.n > 0 && n > s->rate.n ? s->rate.n : (uint32_t)n;
}

static vow_future *map_begin_job(vow_loop *loop, vow_value item, size_t index,
                                 void *user)
{
    struct job *j = vow_as_ptr(item);
    (void)loop;
    (void)user;
    j->index = index;
    if (run.settings.tag)
        job_add_tags(j);
    run.live++;
    vow_future *f = vow_then_drop(job_run(j), on_job_done, NULL, NULL);
    if (run.stopping != HALT_NEVER)
        job_stop(j, 0); /* the item was pulled before the stop: keeps C1 */
    map_refresh();
    return f;
}

static void job_add_tags(struct job *j)
{
    struct fields fields = job_fields(j);
    tag_add_items(&j->out.tag, STDOUT_FILENO, &fields);
    tag_add_items(&j->err.tag, STDERR_FILENO, &fields);
}

static void tag_add_items(struct text *tag, int fd, const struct fields *f)
{
    bool visible = isatty(fd);
    for (size_t i = 0; i < f->n_items; i++) {
        if (visible)
            table_add_visible(tag, f->items[i]);
        else
            text_add(tag, f->items[i].at, f->items[i].n);
        text_add_str(tag, i + 1 < f->n_items ? " " : "\t");
    }
}

/* Counts the items of the job as no longer waiting: the job has started or
 * never will. */
static void job_not_ahead(struct job *j)
{
    if (j->counted_ahead)
        return;
    j->counted_ahead = true;
    run.ahead -= j->items.bytes.n;
    source_resume();
}

static void source_resume(void)
{
    vow_deferred *room = run.room;
    run.room = NULL;
    if (room != NULL)
        (void)vow_resolve_drop(room, vow_nothing());
}

static void on_job_start(struct job *j)
{
    job_not_ahead(j);
    if (run.settings.results != NULL)
        results_begin(j, run.settings.results);
    if (run.settings.verbose) {
        struct fields fields = job_fields(j);
        text_clear(&run.command);
        template_show_on(STDERR_FILENO, run.jobs.template, &fields,
                         &run.command);
        if (j->tries > 1)
            say_command("%.*s (try %u)", (int)run.command.n, run.command.at,
                        j->tries);
        else
            say_command("%.*s", (int)run.command.n, run.command.at);
    }
    throttle_started(&run.throttle);
    map_refresh();
}

/* Counts the job when the last process has ended, before the gate is
 * informed. */
static void on_job_last_end(struct job *j)
{
    map_count(j);
    map_check_halt(j);
}

/* Called when the job has ended for good. */
static vow_next on_job_done(vow_value v, void *user)
{
    struct job *j = vow_as_ptr(v);
    (void)user;
    run.live--;
    run.undelivered++;
    if (j->out.flows)
        stream_emit(&j->err); /* stderr of the job follows the stdout */
    if (streams_flowing() == NULL)
        map_show_held();
    job_not_ahead(j);
    if (j->unrun)
        run.unrun++;
    else if (!j->counted) /* no process, or ended too late */
        on_job_last_end(j);
    run.kept += j->out.text.n + j->err.text.n;
    if (run.kept > KEEP_BYTES) {
        run.kept -= j->out.text.n + j->err.text.n;
        stream_spill(&j->out);
        stream_spill(&j->err);
    }
    map_refresh();
    return vow_ok(v);
}

/* Shows a job in order; if the output of another job flows, as soon as the flow
 * has ended. */
static vow_future *map_deliver(size_t index, vow_future *outcome, void *user)
{
    struct job *j = vow_as_ptr(vow_get(outcome));
    (void)user;
    run.next_index = index + 1;
    if (streams_flowing() != NULL) {
        run.held = j;
        return vow_promise(run.loop, &run.held_end);
    }
    job_show(j);
    return emit_behind() ? emit_drained() : NULL;
}

static void map_show_held(void)
{
    struct job *j = run.held;
    run.held = NULL;
    if (j == NULL)
        return;
    job_show(j);
    (void)vow_resolve_drop(run.held_end, vow_nothing());
}

/* Returns whether the output may be passed on from now on, as it arrives. Not
 * if another attempt might replace the output, or if other jobs come before. */
static bool stream_may_flow(const struct stream *out)
{
    const struct settings *s = &run.settings;
    const struct job *j =
        (const void *)((const char *)out - offsetof(struct job, out));
    return out->target == STDOUT_FILENO && s->output == OUTPUT_GROUP &&
           s->retries == 0 && !s->tag && !s->json && s->results == NULL &&
           run.held == NULL && (!s->keep_order || j->index == run.next_index);
}

static void job_show(struct job *j)
{
    const struct settings *s = &run.settings;
    size_t kept = j->out.text.n + j->err.text.n;
    run.kept -= kept < run.kept ? kept : run.kept;
    if (j->out.error != 0 || j->err.error != 0) {
        int error = j->out.error != 0 ? j->out.error : j->err.error;
        say("job %llu: part of its output is lost: %s",
            (unsigned long long)j->seq, strerror(error));
        run.broken = true;
    }
    if (s->json && !j->unrun) {
        job_show_json(j);
    } else if (s->output == OUTPUT_GROUP) {
        stream_emit(&j->out);
        stream_emit(&j->err);
    }
    if (!j->unrun)
        map_write_logs(j); /* unlogged jobs run again with --resume */
    job_free(j);
    run.undelivered--;
    source_resume();
    streams_go_on();
}

static void job_show_json(struct job *j)
{
    struct record r;
    job_record(j, &run.command, &r);
    int error = results_json(j, &r);
    if (error == 0)
        return;
    say("job %llu: cannot write its JSON: %s", (unsigned long long)j->seq,
        strerror(error));
    run.broken = true;
}

/* ---- limits that change -------------------------------------------------- */

void map_set_places(uint32_t places)
{
    struct settings *s = &run.settings;
    vow_gate_opts o = vow_gate_get(run.jobs.gate);
    for (const struct job *j = run.jobs.live; j != NULL; j = j->next)
        if (j->proc.pid == 0 && j->weight > places)
            places = j->weight; /* the job waits for permits of this weight */
    o.concurrent = places;
    pool_behind(&o);
    if (vow_gate_set(run.jobs.gate, &o) < 0)
        return;
    uint64_t ahead = s->queue > 0 ? s->queue : 2 * (uint64_t)places;
    s->jobs = places;
    (void)vow_map_resize(run.mapping, (uint32_t)(places + ahead));
}

/* ---- progress ------------------------------------------------------------ */

static void map_refresh(void)
{
    if (run.server) {
        vow_gate_stats s;
        vow_gate_stats_get(run.jobs.gate, &s);
        jobserver_want(procs_running(), s.waiting);
    }
    map_draw();
}

void map_draw(void)
{
    on_draw_due(NULL);
}

static void on_draw_due(void *user)
{
    struct bar_state *b = &run.bar;
    (void)user;
    if (run.bar_style == BAR_NONE)
        return;
    b->done = run.done;
    b->failed = run.failed;
    b->skipped = run.skipped;
    b->running = procs_running();
    b->retrying = run.jobs.retrying;
    b->now_ms = vow_loop_now_ns(run.loop) / 1000000 - run.began_ms;
    b->total = input_total(run.input, &b->open);
    bar_update(b);
    uint64_t next = bar_next_ms();
    if (next == UINT64_MAX || vow_call_pending(&run.draw))
        return;
    vow_call_weakly_at(&run.draw, run.loop, (next + run.began_ms) * 1000000,
                       on_draw_due, NULL);
}
