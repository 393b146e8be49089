/* SPDX-License-Identifier: MIT */
/* pool_use.c - see pool_use.h. */
#include "pool_use.h"
#include "listing.h"
#include "nested.h"
#include "say.h"
#include "store_open.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    KEYS_AT_ONCE = 16, /* keys that a run works on; times the limit of a key */
    JOBS_MOST = 1024,  /* of a run with keys */
    LOOK_MS = 2000,    /* between two reads of the limits */
    LEASE_MS = 10000
};

static struct {
    vow_loop *loop;
    struct store_opts store;
    vow_authority *authority;
    vow_pool *pool; /* NULL: no --pool */
    char *name;
    const char *literal;    /* the key of all jobs; NULL: none, or a template */
    struct template *key;   /* of the key per job; NULL: none, or literal */
    struct command made;    /* memory for the key of a job */
    vow_pool_limits limits; /* as last read */
    uint32_t each;          /* concurrency limit of a key in this run */
    bool bounded;           /* --deadline bounds all waits */
    void (*on_jobs)(uint32_t jobs);
    vow_call look; /* timer of the next read */
} use;

static void split_pool_option(const char *given, const struct verb_def *verb,
                              const struct template_opts *placeholders);
static bool read_pool_limits(const struct verb_def *verb);
static void report_pool_limits(const vow_pool_limits *given);
static uint32_t pool_jobs_at_once(void);
static uint64_t pool_grace_ms(void);
static void pool_look_again(void *user);
static vow_next on_pool_limits(vow_value v, void *user);
static vow_next on_pool_limits_failed(vow_error *e, void *user);

vow_pool_limits pool_limits(uint32_t jobs, const struct rate *rate, bool even)
{
    vow_pool_limits l = {.concurrent = jobs,
                         .rate = rate->n,
                         .window_us = rate->window_ms * 1000};
    if (even && rate->n > 0) {
        l.rate = 1;
        l.window_us = (l.window_us + rate->n - 1) / rate->n;
    }
    return l;
}

/* ---- opening ------------------------------------------------------------- */

void pool_open(vow_loop *loop, struct settings *s, const struct verb_def *verb,
               const struct template_opts *placeholders)
{
    if (s->pool == NULL)
        return;
    vow_pool_limits given = pool_limits(s->jobs, &s->rate, s->even);
    split_pool_option(s->pool, verb, placeholders);
    use.bounded = s->deadline_ms > 0;
    use.loop = loop;
    use.store = store_opts_of(verb);
    if (s->store.url != NULL)
        use.store.url = s->store.url;
    if (s->store.lease_ms > 0)
        use.store.lease_ms = s->store.lease_ms;
    if (s->store.pulse_ms > 0)
        use.store.pulse_ms = s->store.pulse_ms;
    use.authority = store_open_or_die(loop, &use.store);
    if (read_pool_limits(verb))
        report_pool_limits(&given);
    else if (given.concurrent == 0 && given.rate == 0)
        die(verb->usage_code,
            "vow %s: there is no pool '%s' yet; to create it, give -j N or "
            "--rate N/U",
            verb->name, use.name);
    else
        use.limits = given;
    VOW_AUTO(vow_error)
    refused = use.key == NULL ? pool_refuses(use.literal, 1) : NULL;
    if (refused != NULL)
        die(EXIT_BROKEN, "vow %s: %s", verb->name, vow_error_message(refused));
    int rc = vow_pool_open(
        use.authority, use.name,
        VOW_POOL(.limits = given, .grace_ms = pool_grace_ms()), &use.pool);
    if (rc < 0)
        die(verb->usage_code, "vow %s: --pool %s: %s", verb->name, use.name,
            vow_error_text(rc));
    s->jobs =
        use.limits.concurrent == 0 && use.key == NULL ? 0 : pool_jobs_at_once();
}

/* Splits NAME:KEY at the first colon. The letter k before the key joins several
 * items to a single word (template.h). */
static void split_pool_option(const char *given, const struct verb_def *verb,
                              const struct template_opts *placeholders)
{
    const char *colon = strchr(given, ':');
    char *sentence = NULL;
    struct text word = {0};
    size_t n = colon == NULL ? strlen(given) : (size_t)(colon - given);
    if (n == 0 || n > VOW_LABEL_MAX)
        die(verb->usage_code,
            "vow %s: invalid --pool '%s': use NAME or NAME:KEY, with a NAME "
            "of 1 to %d bytes",
            verb->name, given, VOW_LABEL_MAX);
    use.name = mem_copy(given, n);
    if (listing_is_taken(use.name))
        die(verb->usage_code,
            "vow %s: invalid --pool '%s': '%s' is reserved for vow lock; use "
            "another name",
            verb->name, given, use.name);
    if (colon == NULL)
        return;
    if (placeholders == NULL) {
        use.literal = colon + 1;
        return;
    }
    text_addf(&word, "k%s", colon + 1); /* never freed */
    struct template_opts o = *placeholders;
    o.exec = true;
    use.key = template_new(&word.at, 1, &o, &sentence);
    if (use.key == NULL)
        die(verb->usage_code, "vow %s: --pool %s: %s", verb->name, given,
            sentence);
}

/* Returns false if there is no such pool yet. */
static bool read_pool_limits(const struct verb_def *verb)
{
    VOW_AUTO(vow_future) f = vow_pool_limit(use.authority, use.name, NULL);
    int rc = vow_loop_run_until(use.loop, f);
    const vow_pool_info *info = vow_as_ptr(vow_get(f));
    if (rc < 0 && rc != VOW_ENOENT)
        die(EXIT_BROKEN, "vow %s: %s", verb->name,
            vow_error_message(vow_error_of(f)));
    if (rc < 0 || info == NULL)
        return false;
    use.limits = info->limits;
    return true;
}

static void report_pool_limits(const vow_pool_limits *given)
{
    char limits[LISTING_LIMITS];
    const vow_pool_limits *l = &use.limits;
    bool jobs = given->concurrent > 0 && given->concurrent != l->concurrent;
    bool rate = given->rate > 0 &&
                (given->rate != l->rate || given->window_us != l->window_us);
    if (jobs || rate)
        say("pool '%s' has %s; vow limit %s changes it", use.name,
            listing_limits(l, limits), use.name);
}

/* Returns the concurrency limit of this run: the limit of a key, times
 * KEYS_AT_ONCE with a key per job. */
static uint32_t pool_jobs_at_once(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    use.each = use.limits.concurrent > 0 ? use.limits.concurrent
               : cpus < 1                ? 1
                                         : (uint32_t)cpus;
    if (use.key == NULL || use.each >= JOBS_MOST)
        return use.each;
    uint32_t all = use.each * KEYS_AT_ONCE;
    return all > JOBS_MOST ? JOBS_MOST : all;
}

/* ---- using --------------------------------------------------------------- */

void pool_behind(vow_gate_opts *o)
{
    if (use.pool == NULL)
        return;
    o->backing = vow_pool_backing(use.pool);
    o->key_concurrent = use.key == NULL ? 0 : use.each;
}

const char *pool_key(const struct fields *f)
{
    if (use.key == NULL)
        return use.literal;
    (void)template_expand(use.key, f, &use.made); /* never a shell line */
    return use.made.argv[0] + 1;
}

vow_error *pool_refuses(const char *key, uint32_t weight)
{
    pid_t holder;
    uint32_t most = use.limits.concurrent;
    if (use.authority == NULL || most == 0 || use.bounded)
        return NULL;
    uint64_t held = nested_weight(&use.store, use.name, key, &holder);
    if (held == 0 || held + weight <= most)
        return NULL;
    return vow_error_new(
        use.loop, VOW_EDEADLK,
        "pool '%s%s%s' allows %u at a time, and %llu of these are held by "
        "commands that have started this one and wait for it, such as process "
        "%d; use another pool",
        use.name, key == NULL ? "" : ":", key == NULL ? "" : key, most,
        (unsigned long long)held, holder);
}

char *pool_held(const char *key, uint32_t weight)
{
    if (use.pool == NULL)
        return nested_variable(NULL);
    return nested_variable(&(struct nested_hold){
        .store = &use.store, .pool = use.name, .key = key, .weight = weight});
}

uint32_t pool_weight_most(void)
{
    uint32_t most =
        use.limits.concurrent > 0 ? use.limits.concurrent : UINT32_MAX;
    if (use.pool == NULL)
        return UINT32_MAX;
    return use.limits.rate > 0 && use.limits.rate < most ? use.limits.rate
                                                         : most;
}

uint64_t pool_lost_ms(void)
{
    return pool_grace_ms() / 2;
}

/* A permit counts as lost when a third of the lease is left. Half of the third
 * is for jobs to end, the rest is for delays of the machine. */
static uint64_t pool_grace_ms(void)
{
    return (use.store.lease_ms > 0 ? use.store.lease_ms : LEASE_MS) / 3;
}

void pool_watch(void (*on_jobs)(uint32_t jobs))
{
    use.on_jobs = on_jobs;
    if (use.pool != NULL)
        vow_call_weakly_at(&use.look, use.loop,
                           vow_loop_due_ns(use.loop, LOOK_MS), pool_look_again,
                           NULL);
}

static void pool_look_again(void *user)
{
    (void)user;
    (void)vow_done(vow_pool_limit(use.authority, use.name, NULL),
                   on_pool_limits, on_pool_limits_failed, NULL);
}

static vow_next on_pool_limits(vow_value v, void *user)
{
    const vow_pool_info *info = vow_as_ptr(v);
    uint32_t before = pool_jobs_at_once();
    (void)user;
    if (use.pool == NULL || info == NULL)
        return vow_ok(vow_nothing());
    use.limits = info->limits;
    uint32_t now = pool_jobs_at_once();
    if (now != before)
        use.on_jobs(now);
    pool_watch(use.on_jobs);
    return vow_ok(vow_nothing());
}

/* Ignores the error: requests for permits get the same error. */
static vow_next on_pool_limits_failed(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    if (use.pool != NULL)
        pool_watch(use.on_jobs);
    return vow_ok(vow_nothing());
}

void pool_close(void)
{
    if (use.pool == NULL)
        return;
    (void)vow_call_stop(&use.look);
    use.pool = vow_pool_unref(use.pool);
    store_close(use.loop, use.authority);
}
