/* SPDX-License-Identifier: MIT */
/* cmd_limit.c - vow limit: show or change the limits of a pool, for all
 * processes.
 *
 * HOW   The current limits are read first, and a limit without an option keeps
 *       the current value. Running jobs go on; waiters get permits as the new
 *       limits allow.
 */
#include "cmd.h"
#include "listing.h"
#include "manage.h"
#include "pool_use.h"
#include "say.h"
#include "table.h"
#include "units.h"

#include <string.h>
#include <unistd.h>

enum { ID_JOBS = 1, ID_RATE, ID_EVEN, ID_JSON };

static const struct option_def options[] = {
    {ID_JOBS, 'j', "jobs", "N|none", "concurrency limit", "Limits", "none"},
    {ID_RATE, '\0', "rate", "N/U|none", "rate limit of starts: 50/s, 100/m",
     NULL, "none"},
    {ID_EVEN, '\0', "even", NULL, "space the starts of --rate evenly", NULL,
     NULL},
    {ID_JSON, '\0', "json", NULL, "one line of JSON", "Show", NULL},
    STORE_ROW,
    {.id = 0}};

const struct verb_def limit_verb = {
    .name = "limit",
    .usage = "[OPTION...] POOL",
    .about = "show or change the limits of a pool",
    .story =
        "POOL is the NAME in --pool NAME of vow map and vow run. A change\n"
        "applies to all processes that use the pool, also to running ones.\n"
        "\n"
        "  vow limit api\n"
        "  vow limit api -j 10 --rate 20/s\n"
        "  vow limit api --rate none\n",
    .operands = "NAME",
    .options = options,
    .run = cmd_limit,
    .usage_code = EXIT_BROKEN};

/* The options. */
struct change {
    bool jobs, rate, even, json;
    uint32_t concurrent; /* of --jobs; 0: none */
    struct rate rate_limit;
};

static void limit_read_option(struct change *c, int id,
                              const struct options *o);
static void limit_check_value(const struct options *o, const char *sentence);
static void limit_show(const struct manage *m, const vow_pool_info *info,
                       bool json);
static void check_change(const struct manage *m, const struct change *c);
static vow_future *change_limits(const struct manage *m, const struct change *c,
                                 vow_future *read);

int cmd_limit(int argc, char **argv)
{
    struct change c = {.jobs = false};
    struct manage m = manage_of(&limit_verb, argc, argv);
    for (int id; (id = manage_option(&m)) > 0;)
        limit_read_option(&c, id, &m.options);
    manage_needs_word(&m, "no pool given");
    check_change(&m, &c);
    manage_open(&m);
    vow_future *f = vow_pool_limit(m.authority, m.word, NULL);
    int rc = manage_wait(&m, f);
    bool change = c.jobs || c.rate;
    if (change) {
        f = change_limits(&m, &c, f);
        rc = manage_wait(&m, f);
    }
    if (rc == 0 && (!change || c.json))
        limit_show(&m, vow_as_ptr(vow_get(f)), c.json);
    vow_future_unref(f);
    manage_close(&m);
    return rc == VOW_ENOENT ? EXIT_NOTHING : 0;
}

/* Shows the limits under the name of the command line: a pool that was used
 * only with keys has no label yet. */
static void limit_show(const struct manage *m, const vow_pool_info *info,
                       bool json)
{
    struct text out = {0};
    vow_pool_info named = *info;
    named.label = m->word;
    if (json)
        listing_pool_json(&out, &named);
    else
        listing_pools(&out, &(vow_pools){.n = 1, .at = &named},
                      table_window(STDOUT_FILENO));
    manage_print(m, &out);
    text_free(&out);
}

static void limit_read_option(struct change *c, int id, const struct options *o)
{
    bool none = o->value != NULL && strcmp(o->value, "none") == 0;
    uint64_t n = 0;
    switch (id) {
    case ID_JOBS:
        if (!none)
            limit_check_value(o, units_count(o->value, &n));
        if (n > UINT32_MAX || (n == 0 && !none))
            options_refuse(o, "use a number from 1 on, or none");
        c->jobs = true;
        c->concurrent = (uint32_t)n;
        break;
    case ID_RATE:
        c->rate = true;
        c->rate_limit = (struct rate){.n = 0};
        if (!none)
            limit_check_value(o, units_rate(o->value, &c->rate_limit));
        break;
    case ID_EVEN:
        c->even = true;
        break;
    default:
        c->json = true;
    }
}

static void limit_check_value(const struct options *o, const char *sentence)
{
    if (sentence != NULL)
        options_refuse(o, sentence);
}

/* Refuses changes that would break a lock, and names that are no pool. */
static void check_change(const struct manage *m, const struct change *c)
{
    if (c->even && c->rate_limit.n == 0)
        die(EXIT_BROKEN, "vow limit: --even requires --rate N/U");
    if ((c->jobs || c->rate) &&
        strncmp(m->word, LOCK_LABEL, strlen(LOCK_LABEL)) == 0)
        die(EXIT_BROKEN,
            "vow limit: '%s' is a lock, its limit is always one holder",
            m->word);
    if (listing_is_taken(m->word))
        die(EXIT_BROKEN,
            "vow limit: '%s' is reserved for vow lock and is no pool; use "
            "another name",
            m->word);
    const char *colon = strchr(m->word, ':');
    if (colon != NULL &&
        strncmp(m->word, LOCK_LABEL, strlen(LOCK_LABEL)) != 0 &&
        strncmp(m->word, SLOTS_LABEL, strlen(SLOTS_LABEL)) != 0)
        die(EXIT_BROKEN,
            "vow limit: '%s' is a key; the limits are set for the pool '%.*s', "
            "and "
            "apply to each key",
            m->word, (int)(colon - m->word), m->word);
}

/* Changes the limits for which an option was given. `read`, the future of the
 * current limits, is moved. */
static vow_future *change_limits(const struct manage *m, const struct change *c,
                                 vow_future *read)
{
    const vow_pool_info *before = vow_as_ptr(vow_get(read));
    vow_pool_limits to = {.concurrent = 0};
    vow_pool_limits asked = pool_limits(c->concurrent, &c->rate_limit, c->even);
    if (before != NULL)
        to = before->limits;
    if (c->jobs)
        to.concurrent = asked.concurrent;
    if (c->rate) {
        to.rate = asked.rate;
        to.window_us = asked.window_us;
    }
    vow_future_unref(read);
    return vow_pool_limit(m->authority, m->word, &to);
}
