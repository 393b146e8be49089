/* SPDX-License-Identifier: MIT */
/* plan.c - drawing schedules, and telling them. */
#include "plan.h"
#include "harness.h"
#include "vow/gate.h"
#include <stdio.h>

enum {
    STEP_NS = 500,         /* between the fractions of two steps */
    JOBS_FROM_NS = 500000, /* the fractions of jobs lie behind */
    EVEN_SCALE = 50,       /* even starts are far apart */
    EVEN_WINDOW_MS = 840   /* has a whole share for each rate up to 8 */
};

struct draw {
    uint64_t random;
    uint32_t features;
    uint64_t scale;           /* ms */
    uint32_t key_window_most; /* in these */
};

static uint32_t below(struct draw *d, uint32_t n)
{
    return (uint32_t)(test_random(&d->random) % n);
}

static bool one_in(struct draw *d, uint32_t n)
{
    return below(d, n) == 0;
}

static bool has(const struct draw *d, uint32_t feature)
{
    return (d->features & feature) != 0;
}

/* ---- limits ------------------------------------------------------------- */

static void draw_rate(struct draw *d, struct model_limits *l)
{
    l->rate = 1 + below(d, 8);
    l->window_ns = (2 + below(d, 20)) * MODEL_MS;
    l->even = has(d, PLAN_EVEN) && !one_in(d, 8);
    if (has(d, PLAN_EVEN))
        l->window_ns = UINT64_C(1) * EVEN_WINDOW_MS * MODEL_MS;
    if (one_in(d, 10))
        l->rate = 0;
}

static void draw_queue(struct draw *d, struct model_limits *l)
{
    l->queue_max = 1 + below(d, 5);
    if (has(d, PLAN_SEMAPHORE))
        return;
    if (one_in(d, 8))
        l->queue_max = 0;
    if (one_in(d, 2))
        l->queue_bytes = 5 + below(d, 20);
    if (has(d, PLAN_OVERFLOW))
        l->overflow = below(d, 4);
}

/* The window of keys only shrinks: what a key did may be forgotten when it left
 * the window and nobody uses the key. */
static struct model_limits draw_limits(struct draw *d)
{
    struct model_limits l = {.queue_max = 1 << 20,
                             .window_ns = UINT64_C(1000) * MODEL_MS,
                             .key_window_ns = UINT64_C(1000) * MODEL_MS,
                             .age_ns = UINT64_C(1000) * MODEL_MS};
    if (has(d, PLAN_PLACES))
        l.concurrent = 1 + below(d, 4);
    if (one_in(d, 10) && !has(d, PLAN_SEMAPHORE))
        l.concurrent = 0;
    if (has(d, PLAN_RATE | PLAN_EVEN))
        draw_rate(d, &l);
    if (has(d, PLAN_QUEUE))
        draw_queue(d, &l);
    if (has(d, PLAN_PRIORITY))
        l.age_ns = (1 + below(d, 10)) * d->scale * MODEL_MS;
    if (has(d, PLAN_BYPASS)) {
        l.bypass_count = below(d, 4);
        l.bypass_ns = one_in(d, 2) ? below(d, 10) * d->scale * MODEL_MS : 0;
    }
    if (has(d, PLAN_KEY_LIMITS)) {
        l.key_concurrent = below(d, 4);
        l.key_rate = below(d, 4);
        d->key_window_most = 2 + below(d, d->key_window_most - 1);
        l.key_window_ns = d->key_window_most * d->scale * MODEL_MS;
    }
    return l;
}

/* ---- steps -------------------------------------------------------------- */

static void draw_job(struct draw *d, struct plan_step *s)
{
    bool apart = has(d, PLAN_BYPASS | PLAN_KEY_LIMITS);
    s->job = (struct model_job){.weight = 1, .due_ns = MODEL_NEVER};
    if (!one_in(d, 3))
        s->job.weight = 1 + below(d, one_in(d, 10) ? 6 : 3);
    if (has(d, PLAN_PRIORITY))
        s->job.priority = (int32_t)below(d, 5) - 2;
    if (has(d, PLAN_PRIORITY) && one_in(d, 10))
        s->job.priority = (int32_t)below(d, 32) - 16;
    if (has(d, PLAN_KEYS))
        s->job.key = below(d, MODEL_KEYS);
    if (has(d, PLAN_QUEUE))
        s->job.bytes = below(d, 10);
    if (has(d, PLAN_DEADLINES) && !one_in(d, 3))
        s->deadline_ms = (1 + below(d, 30)) * d->scale;
    s->ms = below(d, 12) * d->scale;
    s->stubborn = one_in(d, 3);
    uint32_t work = below(d, 10);
    s->work = work < 5   ? PLAN_TAKES
              : work < 6 ? PLAN_FAILS
              : work < 8 ? PLAN_AT_ONCE
              : work < 9 ? PLAN_FAILS_AT_ONCE
                         : PLAN_ENDLESS;
    /* What ends while others are let in: where that decides who is passed or
     * skipped, the order is nobody's promise. */
    if (apart && (s->work == PLAN_AT_ONCE || s->work == PLAN_FAILS_AT_ONCE))
        s->work = PLAN_TAKES;
}

static enum plan_kind draw_kind(struct draw *d)
{
    uint32_t n = below(d, 100);
    if (n < 62)
        return PLAN_ASK;
    if (n < 67)
        return PLAN_TRY;
    if (n < 79)
        return PLAN_CANCEL;
    if (n < 85)
        return has(d, PLAN_CHANGES) ? PLAN_SET : PLAN_ASK;
    if (n < 89)
        return has(d, PLAN_PAUSES) ? PLAN_REPORT : PLAN_ASK;
    if (n < 92)
        return has(d, PLAN_PAUSES) ? PLAN_PAUSE : PLAN_ASK;
    if (n < 95)
        return has(d, PLAN_PAUSES) ? PLAN_RESUME : PLAN_ASK;
    if (n < 96)
        return has(d, PLAN_PAUSES) ? PLAN_CLEAR : PLAN_ASK;
    return n < 98 || has(d, PLAN_SEMAPHORE) ? PLAN_IDLE : PLAN_ROOM;
}

static void draw_step(struct draw *d, struct plan *p, uint32_t i)
{
    struct plan_step *s = &p->steps[i];
    s->kind = draw_kind(d);
    if (i > 20 && one_in(d, 60))
        s->kind = PLAN_CLOSE;
    draw_job(d, s);
    if (s->kind == PLAN_CANCEL)
        s->target =
            one_in(d, 2) && i > 2 ? i - 1 - below(d, 3) : below(d, i + 1);
    s->limits = p->limits;
    if (s->kind == PLAN_SET && has(d, PLAN_SEMAPHORE))
        s->limits.concurrent = 1 + below(d, 4);
    else if (s->kind == PLAN_SET)
        s->limits = draw_limits(d);
    if (s->kind == PLAN_REPORT)
        s->ms = below(d, 20) * d->scale;
}

/* With the step before it, or right behind that; but two ends of pauses or
 * deadlines never fall on the same instant. */
static void join_step_before(struct draw *d, struct plan_step *s)
{
    bool burst = s[-1].same_turn;
    if (!one_in(d, burst ? 2 : 3) || s->kind == PLAN_REPORT ||
        s[-1].kind == PLAN_REPORT)
        return;
    s->at_ns = s[-1].at_ns;
    s->same_turn = (burst || one_in(d, 2)) &&
                   (s->kind == PLAN_ASK || s->kind == PLAN_CANCEL);
    for (const struct plan_step *o = s - 1; o->at_ns == s->at_ns; o--) {
        if (s->deadline_ms > 0 && s->deadline_ms <= o->deadline_ms)
            s->deadline_ms = o->deadline_ms + 1;
        if (o->number == 0)
            break;
    }
}

void plan_make(struct plan *p, uint32_t features, uint64_t seed)
{
    struct draw d = {.random = seed,
                     .features = features,
                     .scale = features & PLAN_EVEN ? EVEN_SCALE : 1,
                     .key_window_most = 16};
    *p = (struct plan){.features = features};
    p->limits = draw_limits(&d);
    p->n_steps = 8 + below(&d, PLAN_STEPS - 8);
    uint64_t ms = 0;
    for (uint32_t i = 0; i < p->n_steps; i++) {
        struct plan_step *s = &p->steps[i];
        draw_step(&d, p, i);
        if (!one_in(&d, 3))
            ms += below(&d, one_in(&d, 8) ? 20 : 3) * d.scale;
        s->number = i;
        s->at_ns = ms * MODEL_MS + (uint64_t)i * STEP_NS;
        if (i > 0)
            join_step_before(&d, s);
    }
}

uint64_t plan_end_ns(uint64_t now_ns, uint64_t ms, uint32_t number)
{
    uint64_t end = (now_ns / MODEL_MS + ms) * MODEL_MS + JOBS_FROM_NS +
                   (uint64_t)number * STEP_NS;
    return end > now_ns ? end : end + MODEL_MS;
}

/* ---- telling ------------------------------------------------------------ */

static void tell_ms(const char *name, uint64_t ns)
{
    if (ns > 0)
        fprintf(stderr, " .%s=%llu", name, (unsigned long long)(ns / MODEL_MS));
}

static void tell_number(const char *name, uint64_t n)
{
    if (n > 0)
        fprintf(stderr, " .%s=%llu", name, (unsigned long long)n);
}

void plan_tell_limits(const struct model_limits *l)
{
    static const char *const overflow[] = {"reject", "drop oldest",
                                           "drop lowest", "wait"};
    tell_number("concurrent", l->concurrent);
    tell_number("rate", l->rate);
    tell_ms("window_ms", l->window_ns);
    tell_number("even", l->even);
    fprintf(stderr, " .queue_max=%u", l->queue_max);
    tell_number("queue_bytes", l->queue_bytes);
    fprintf(stderr, " .overflow=%s", overflow[l->overflow]);
    tell_ms("age_ms", l->age_ns);
    tell_number("bypass_count", l->bypass_count);
    tell_ms("bypass_ms", l->bypass_ns);
    tell_number("key_concurrent", l->key_concurrent);
    tell_number("key_rate", l->key_rate);
    tell_ms("key_window_ms", l->key_window_ns);
    fprintf(stderr, "\n");
}

static void tell_job(const struct plan_step *s)
{
    static const char *const work[] = {"takes", "fails after", "at once",
                                       "fails at once", "endless"};
    fprintf(stderr, " .weight=%u", s->job.weight);
    if (s->job.priority != 0)
        fprintf(stderr, " .priority=%d", (int)s->job.priority);
    if (s->job.key > 0)
        fprintf(stderr, " .key=%c", (int)('`' + s->job.key));
    tell_number("bytes", s->job.bytes);
    tell_number("deadline_ms", s->deadline_ms);
    fprintf(stderr, ", %s", work[s->work]);
    if (s->work == PLAN_TAKES || s->work == PLAN_FAILS)
        fprintf(stderr, " %llu ms", (unsigned long long)s->ms);
    fprintf(stderr, "%s\n", s->stubborn ? ", stubborn" : "");
}

void plan_tell_step(const struct plan_step *s)
{
    static const char *const kind[] = {"ask",   "try",    "cancel", "set",
                                       "pause", "resume", "report", "clear",
                                       "close", "idle",   "room"};
    fprintf(stderr, "%s%s", kind[s->kind],
            s->same_turn ? " (in the same turn)" : "");
    if (s->kind == PLAN_ASK || s->kind == PLAN_TRY)
        tell_job(s);
    else if (s->kind == PLAN_SET)
        plan_tell_limits(&s->limits);
    else if (s->kind == PLAN_REPORT)
        fprintf(stderr, " key %u for %llu ms\n", s->job.key,
                (unsigned long long)s->ms);
    else if (s->kind == PLAN_ROOM)
        fprintf(stderr, " for %zu bytes\n", s->job.bytes);
    else
        fprintf(stderr, "\n");
}
