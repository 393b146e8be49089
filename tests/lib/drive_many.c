/* SPDX-License-Identifier: MIT */
/* drive_many.c - many schedules, and what is said of one that fails. */
#include "drive.h"
#include <stdio.h>
#include <stdlib.h>

enum { FEWER = 10 }; /* schedules where each takes long */

static void tell_failure(struct drive *d, const struct drive_front *front,
                         uint32_t features, uint64_t seed);
static void check_limit(struct drive *d, const struct drive_job *j,
                        const char *what, uint64_t seen, uint32_t limit);

void drive_many(const struct drive_front *front, uint32_t features,
                uint32_t count)
{
    static struct drive d;
    const char *only = getenv("VOW_SCHEDULE");
    const char *many = getenv("VOW_DRIVE_SCHEDULES");
    uint64_t random = test_seed();
    if (many != NULL)
        count = (uint32_t)strtoul(many, NULL, 10);
    else if (TEST_ASAN || TEST_TSAN || getenv("VOW_TEST_SLOW") != NULL)
        count /= FEWER;
    if (only != NULL)
        count = 1;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t seed = test_random(&random) & UINT32_MAX;
        if (only != NULL)
            seed = strtoull(only, NULL, 10);
        d.left_out = 0;
        d.tell = only != NULL;
        fprintf(stderr, "VOW_SCHEDULE=%llu (%u of %u)\n",
                (unsigned long long)seed, i + 1, count);
        if (!drive_run(&d, front, features, seed))
            tell_failure(&d, front, features, seed);
    }
}

/* Leave out each step without which it still fails, until none is left. */
static void tell_failure(struct drive *d, const struct drive_front *front,
                         uint32_t features, uint64_t seed)
{
    uint64_t needless = 0, before;
    uint32_t n_steps = d->plan.n_steps;
    d->tell = false;
    do {
        before = needless;
        for (uint32_t i = n_steps; i-- > 0;) {
            d->left_out = needless | UINT64_C(1) << i;
            if (!drive_run(d, front, features, seed))
                needless = d->left_out;
        }
    } while (needless != before);
    fprintf(stderr, "The steps that matter of VOW_SCHEDULE=%llu:\n",
            (unsigned long long)seed);
    d->left_out = needless;
    d->tell = true;
    (void)drive_run(d, front, features, seed);
    FAIL("%s\nVOW_SCHEDULE=%llu and this test alone replay it",
         d->model.failure, (unsigned long long)seed);
}

/* ---- by brute force ----------------------------------------------------- */

/* From what was seen alone, not from what the model made of it: each start
 * against all starts of the window that ends with it, and against all that ran
 * at that time. */
static void check_start(struct drive *d, const struct drive_job *j)
{
    const struct model_limits *l = &d->plan.limits;
    uint32_t key = j->step->job.key;
    uint64_t in_window = 0, at_once = 0, of_key = 0, of_key_at_once = 0;
    for (uint32_t i = 0; i < d->model.n_jobs; i++) {
        const struct drive_job *o = &d->jobs[i];
        uint32_t weight = o->step->job.weight;
        bool same = o->step->job.key == key && key > 0;
        if (o->started == 0 || o->started > j->started)
            continue;
        if (j->start_ns - o->start_ns <= l->window_ns)
            in_window += weight;
        if (same && j->start_ns - o->start_ns <= l->key_window_ns)
            of_key += weight;
        if (o->ended == 0 || o->ended > j->started) {
            at_once += weight;
            of_key_at_once += same ? weight : 0;
        }
    }
    check_limit(d, j, "within the window", in_window, l->rate);
    check_limit(d, j, "at once", at_once, l->concurrent);
    check_limit(d, j, "of its key within the window", of_key, l->key_rate);
    check_limit(d, j, "of its key at once", of_key_at_once, l->key_concurrent);
}

static void check_limit(struct drive *d, const struct drive_job *j,
                        const char *what, uint64_t seen, uint32_t limit)
{
    if (limit > 0 && seen > limit)
        model_fail(&d->model, "job %u starts as one of %llu %s, of %u",
                   j->number, (unsigned long long)seen, what, limit);
}

void drive_check_end(struct drive *d)
{
    struct model *m = &d->model;
    uint32_t weight;
    drive_same(d, "waiting at the end", model_waiting(m), 0);
    drive_same(d, "running at the end", model_running(m, &weight), 0);
    for (uint32_t i = 0; i < m->n_jobs; i++) {
        if (d->jobs[i].future != NULL &&
            vow_state_of(d->jobs[i].future) == VOW_PENDING)
            model_fail(m, "job %u is pending for ever", i);
        if (d->jobs[i].started > 0 && !d->changed)
            check_start(d, &d->jobs[i]);
    }
    if (d->oracle == NULL)
        return;
    vow_oracle_stats st = vow_oracle_stats_get(d->oracle);
    drive_same(d, "starts told to the oracle", st.starts, m->counts.started);
    if (st.breaches > 0) {
        char text[120];
        (void)vow_breach_text(&st.first, text, sizeof(text));
        model_fail(m, "the oracle says: %s", text);
    }
}
