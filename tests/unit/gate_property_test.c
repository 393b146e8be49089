/* SPDX-License-Identifier: MIT */
/* gate_property_test.c - whatever is asked of a gate in whatever order, it does
 * what the model says, to the nanosecond: who starts, when and in which order,
 * who is rejected and why; and the oracle agrees.
 *
 * Each test draws 12,500 schedules from a corner of what a gate can do.
 */
#include "drive.h"
#include "harness.h"

enum { SCHEDULES = 2500 };

/* ---- a gate ------------------------------------------------------------- */

static vow_gate_opts options(const struct model_limits *l)
{
    return (vow_gate_opts){
        .size = sizeof(vow_gate_opts),
        .concurrent = l->concurrent,
        .rate = l->rate,
        .window_ms = l->window_ns / MODEL_MS,
        .even = l->even,
        .queue_max = l->queue_max == 0 ? VOW_NO_QUEUE : l->queue_max,
        .queue_bytes = l->queue_bytes,
        .overflow = l->overflow,
        .age_ms = l->age_ns / MODEL_MS,
        .bypass_count = l->bypass_count,
        .bypass_ms = l->bypass_ns / MODEL_MS,
        .key_concurrent = l->key_concurrent,
        .key_rate = l->key_rate,
        .key_window_ms = l->key_window_ns / MODEL_MS,
    };
}

/* Numbers rise from start to start when nothing but arrival decides. One in
 * four goes without an oracle: then the gate takes its short ways. */
static int open_gate(struct drive *d)
{
    const struct model_limits *l = &d->plan.limits;
    const uint32_t others = PLAN_PRIORITY | PLAN_KEYS | PLAN_BYPASS;
    int rc =
        vow_oracle_new(d->w.loop,
                       VOW_ORACLE(.concurrent = l->concurrent, .rate = l->rate,
                                  .window_ms = l->window_ns / MODEL_MS,
                                  .ordered = (d->plan.features & others) == 0),
                       &d->oracle);
    vow_gate_opts o = options(l);
    if (d->plan.n_steps % 4 == 0)
        d->oracle = vow_oracle_unref(d->oracle);
    o.oracle = d->oracle;
    return rc != 0 ? rc : vow_gate_new(d->w.loop, &o, &d->gate);
}

static void drop_gate(struct drive *d)
{
    d->gate = vow_gate_unref(d->gate);
    d->oracle = vow_oracle_unref(d->oracle);
}

static const char *key_name(uint32_t key)
{
    static const char *const names[MODEL_KEYS] = {NULL, "a", "b", "c"};
    return names[key];
}

static vow_job_opts job_options(const struct drive_job *j)
{
    const struct model_job *job = &j->step->job;
    return (vow_job_opts){.size = sizeof(vow_job_opts),
                          .weight = job->weight,
                          .priority = job->priority,
                          .key = key_name(job->key),
                          .bytes = job->bytes,
                          .deadline_ms = j->step->deadline_ms};
}

static vow_future *ask_gate(struct drive *d, struct drive_job *j)
{
    vow_job_opts o = job_options(j);
    if (d->two_handed)
        return vow_gate_enter(d->gate, &o);
    return vow_gate_run(d->gate, drive_start, j, &o);
}

static bool is_in_gate(struct drive *d, const struct drive_job *j)
{
    vow_job_explain x;
    vow_gate_explain(d->gate, j->future, &x);
    return x.state == VOW_JOB_STARTS;
}

static bool try_gate(struct drive *d, struct drive_job *j)
{
    vow_job_opts o = job_options(j);
    return vow_gate_try(d->gate, &o, &j->permit);
}

static int set_gate(struct drive *d, const struct model_limits *l)
{
    vow_gate_opts o = options(l);
    return vow_gate_set(d->gate, &o);
}

static void pause_gate(struct drive *d, bool paused)
{
    if (paused)
        vow_gate_pause(d->gate);
    else
        vow_gate_resume(d->gate);
}

static void report_gate(struct drive *d, uint32_t key, uint64_t ms)
{
    vow_gate_report(d->gate, key_name(key), ms);
}

static void clear_gate(struct drive *d)
{
    vow_gate_clear(d->gate, NULL);
}

static void close_gate(struct drive *d)
{
    vow_gate_close(d->gate);
}

static vow_future *idle_gate(struct drive *d)
{
    return vow_gate_idle(d->gate);
}

static vow_future *room_gate(struct drive *d, size_t bytes)
{
    return vow_gate_room(d->gate, bytes);
}

static void check_gate(struct drive *d)
{
    const struct model *m = &d->model;
    vow_gate_stats st;
    uint32_t weight, running = model_running(m, &weight);
    vow_gate_stats_get(d->gate, &st);
    drive_same(d, "stats.waiting", st.waiting, model_waiting(m));
    drive_same(d, "stats.waiting_bytes", st.waiting_bytes,
               model_waiting_bytes(m));
    drive_same(d, "stats.running", st.running, running);
    drive_same(d, "stats.weight", st.weight, weight);
    drive_same(d, "stats.started", st.started, m->counts.started);
    drive_same(d, "stats.ended", st.ended, m->counts.ended);
    drive_same(d, "stats.refused", st.refused, m->counts.refused);
    drive_same(d, "stats.dropped", st.dropped, m->counts.dropped);
    drive_same(d, "stats.canceled", st.canceled, m->counts.canceled);
    drive_same(d, "stats.expired", st.expired, m->counts.expired);
}

static const struct drive_front gate_front = {
    .open = open_gate,
    .ask = ask_gate,
    .is_let_in = is_in_gate,
    .ask_now = try_gate,
    .set = set_gate,
    .pause = pause_gate,
    .report = report_gate,
    .clear = clear_gate,
    .close = close_gate,
    .idle = idle_gate,
    .room = room_gate,
    .check = check_gate,
    .drop = drop_gate,
};

/* ---- corners ------------------------------------------------------------ */

TEST(gate_property, places_and_a_rate_are_taken_in_one_step)
{
    drive_many(&gate_front, PLAN_PLACES | PLAN_RATE, SCHEDULES);
}

TEST(gate_property, priorities_age_and_small_ones_pass_within_bounds)
{
    drive_many(&gate_front,
               PLAN_PLACES | PLAN_RATE | PLAN_PRIORITY | PLAN_BYPASS,
               SCHEDULES);
}

TEST(gate_property, keys_take_turns)
{
    drive_many(&gate_front, PLAN_PLACES | PLAN_RATE | PLAN_KEYS | PLAN_PRIORITY,
               SCHEDULES);
}

TEST(gate_property, a_key_has_limits_of_its_own)
{
    drive_many(&gate_front,
               PLAN_PLACES | PLAN_RATE | PLAN_KEYS | PLAN_KEY_LIMITS |
                   PLAN_PAUSES,
               SCHEDULES);
}

TEST(gate_property, a_full_queue_does_what_it_was_told)
{
    drive_many(&gate_front,
               PLAN_PLACES | PLAN_RATE | PLAN_QUEUE | PLAN_OVERFLOW |
                   PLAN_PRIORITY,
               SCHEDULES);
}

TEST(gate_property, deadlines_and_pauses_reject_no_earlier_than_they_must)
{
    drive_many(&gate_front,
               PLAN_PLACES | PLAN_RATE | PLAN_DEADLINES | PLAN_PAUSES,
               SCHEDULES);
}

TEST(gate_property, even_starts_keep_their_distance)
{
    drive_many(&gate_front,
               PLAN_PLACES | PLAN_EVEN | PLAN_DEADLINES | PLAN_CHANGES,
               SCHEDULES);
}

TEST(gate_property, everything_at_the_same_time)
{
    drive_many(&gate_front,
               PLAN_PLACES | PLAN_RATE | PLAN_PRIORITY | PLAN_KEYS |
                   PLAN_KEY_LIMITS | PLAN_BYPASS | PLAN_QUEUE | PLAN_OVERFLOW |
                   PLAN_DEADLINES | PLAN_CHANGES | PLAN_PAUSES,
               SCHEDULES);
}
