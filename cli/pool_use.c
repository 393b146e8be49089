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
    KEYS_AT_ONCE = 16, /* times what one key may have */
    JOBS_MOST = 1024,  /* of a run with keys */
    LOOK_MS = 2000,
    LEASE_MS = 10000
};

static struct {
    vow_loop *loop;
    struct store_opts store;
    vow_authority *authority;
    vow_pool *pool; /* NULL: none is used */
    char *name;
    const char *literal;  /* the key of all jobs; NULL: */
    struct template *key; /* how it is made; NULL: jobs have none */
    struct command made;
    vow_pool_limits limits;
    uint32_t each; /* that one key may have in this run */
    bool bounded;  /* no job waits for ever */
    void (*on_jobs)(uint32_t jobs);
    vow_call look;
} use;

static void split(const char *said, const struct verb_def *verb,
                  const struct template_opts *placeholders);
static bool read_limits(const struct verb_def *verb);
static void tell_difference(const vow_pool_limits *said);
static uint32_t jobs_at_once(void);
static uint64_t grace_ms(void);
static void look_again(void *user);
static vow_next on_limits(vow_value v, void *user);
static vow_next on_no_limits(vow_error *e, void *user);

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
    vow_pool_limits said = pool_limits(s->jobs, &s->rate, s->even);
    split(s->pool, verb, placeholders);
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
    if (read_limits(verb))
        tell_difference(&said);
    else if (said.concurrent == 0 && said.rate == 0)
        die(verb->usage_code,
            "vow %s: there is no pool '%s' yet; say its limits: -j N or "
            "--rate N/U",
            verb->name, use.name);
    else
        use.limits = said;
    VOW_AUTO(vow_error)
    refused = use.key == NULL ? pool_refuses(use.literal, 1) : NULL;
    if (refused != NULL)
        die(EXIT_BROKEN, "vow %s: %s", verb->name, vow_error_message(refused));
    int rc = vow_pool_open(use.authority, use.name,
                           VOW_POOL(.limits = said, .grace_ms = grace_ms()),
                           &use.pool);
    if (rc < 0)
        die(verb->usage_code, "vow %s: --pool %s: %s", verb->name, use.name,
            vow_error_text(rc));
    s->jobs =
        use.limits.concurrent == 0 && use.key == NULL ? 0 : jobs_at_once();
}

/* Behind the first colon is the key. A letter before it keeps it one word. */
static void split(const char *said, const struct verb_def *verb,
                  const struct template_opts *placeholders)
{
    const char *colon = strchr(said, ':');
    char *sentence = NULL;
    struct text word = {0};
    size_t n = colon == NULL ? strlen(said) : (size_t)(colon - said);
    if (n == 0 || n > VOW_LABEL_MAX)
        die(verb->usage_code,
            "vow %s: --pool %s: a pool has a name of 1 to "
            "%d bytes, and behind a colon perhaps a key",
            verb->name, said, VOW_LABEL_MAX);
    use.name = mem_copy(said, n);
    if (listing_is_taken(use.name))
        die(verb->usage_code,
            "vow %s: --pool %s: '%s' is for vow lock; give it another name",
            verb->name, said, use.name);
    if (colon == NULL)
        return;
    if (placeholders == NULL) {
        use.literal = colon + 1;
        return;
    }
    text_addf(&word, "k%s", colon + 1); /* it stays */
    struct template_opts o = *placeholders;
    o.exec = true;
    use.key = template_new(&word.at, 1, &o, &sentence);
    if (use.key == NULL)
        die(verb->usage_code, "vow %s: --pool %s: %s", verb->name, said,
            sentence);
}

/* False: there is no such pool yet. */
static bool read_limits(const struct verb_def *verb)
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

static void tell_difference(const vow_pool_limits *said)
{
    char limits[LISTING_LIMITS];
    const vow_pool_limits *l = &use.limits;
    bool jobs = said->concurrent > 0 && said->concurrent != l->concurrent;
    bool rate = said->rate > 0 &&
                (said->rate != l->rate || said->window_us != l->window_us);
    if (jobs || rate)
        say("pool '%s' has %s; vow limit %s changes it", use.name,
            listing_limits(l, limits), use.name);
}

/* As many as one key may have; and with keys, those of several. */
static uint32_t jobs_at_once(void)
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
    (void)template_expand(use.key, f, &use.made); /* never a shell's */
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
        "pool '%s%s%s' lets %u in, and %llu of these are held by commands that "
        "have started this one and wait for it, such as process %d; take "
        "another pool",
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
    return grace_ms() / 2;
}

/* The last third of the lease: half is for jobs to end, the rest for a machine
 * that is late. */
static uint64_t grace_ms(void)
{
    return (use.store.lease_ms > 0 ? use.store.lease_ms : LEASE_MS) / 3;
}

void pool_watch(void (*on_jobs)(uint32_t jobs))
{
    use.on_jobs = on_jobs;
    if (use.pool != NULL)
        vow_call_weakly_at(&use.look, use.loop,
                           vow_loop_due_ns(use.loop, LOOK_MS), look_again,
                           NULL);
}

static void look_again(void *user)
{
    (void)user;
    (void)vow_done(vow_pool_limit(use.authority, use.name, NULL), on_limits,
                   on_no_limits, NULL);
}

static vow_next on_limits(vow_value v, void *user)
{
    const vow_pool_info *info = vow_as_ptr(v);
    uint32_t before = jobs_at_once();
    (void)user;
    if (use.pool == NULL || info == NULL)
        return vow_ok(vow_nothing());
    use.limits = info->limits;
    uint32_t now = jobs_at_once();
    if (now != before)
        use.on_jobs(now);
    pool_watch(use.on_jobs);
    return vow_ok(vow_nothing());
}

/* Those who ask for places hear of it as well. */
static vow_next on_no_limits(vow_error *e, void *user)
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
