/* SPDX-License-Identifier: MIT */
/* cmd_limit.c - vow limit: show or change the limits of a pool, for all who use
 * it.
 *
 * HOW   What is not said stays as it is: the limits are read first. Who runs
 *       meanwhile goes on; who waits is let in, or waits longer.
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
    .story = "A pool is what --pool of vow map and vow run names. A change is\n"
             "for all who use it, also for those that run already.\n"
             "\n"
             "  vow limit api\n"
             "  vow limit api -j 10 --rate 20/s\n"
             "  vow limit api --rate none\n",
    .operands = "NAME",
    .options = options,
    .run = cmd_limit,
    .usage_code = EXIT_BROKEN};

/* What was asked for. */
struct change {
    bool jobs, rate, even, json;
    uint32_t concurrent;
    struct rate of_rate;
};

static void read_option(struct change *c, int id, const struct options *o);
static void check(const struct options *o, const char *sentence);
static void show(const struct manage *m, const vow_pool_info *info, bool json);
static void check_change(const struct manage *m, const struct change *c);
static vow_future *change_limits(const struct manage *m, const struct change *c,
                                 vow_future *read);

int cmd_limit(int argc, char **argv)
{
    struct change c = {.jobs = false};
    struct manage m = manage_of(&limit_verb, argc, argv);
    for (int id; (id = manage_option(&m)) > 0;)
        read_option(&c, id, &m.options);
    manage_needs_word(&m, "say which pool");
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
        show(&m, vow_as_ptr(vow_get(f)), c.json);
    vow_future_unref(f);
    manage_close(&m);
    return rc == VOW_ENOENT ? EXIT_NOTHING : 0;
}

/* One that only its keys have used has no label yet. */
static void show(const struct manage *m, const vow_pool_info *info, bool json)
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

static void read_option(struct change *c, int id, const struct options *o)
{
    bool none = o->value != NULL && strcmp(o->value, "none") == 0;
    uint64_t n = 0;
    switch (id) {
    case ID_JOBS:
        if (!none)
            check(o, units_count(o->value, &n));
        if (n > UINT32_MAX || (n == 0 && !none))
            options_refuse(o, "a limit is a number from 1 on, or none");
        c->jobs = true;
        c->concurrent = (uint32_t)n;
        break;
    case ID_RATE:
        c->rate = true;
        c->of_rate = (struct rate){.n = 0};
        if (!none)
            check(o, units_rate(o->value, &c->of_rate));
        break;
    case ID_EVEN:
        c->even = true;
        break;
    default:
        c->json = true;
    }
}

static void check(const struct options *o, const char *sentence)
{
    if (sentence != NULL)
        options_refuse(o, sentence);
}

/* A lock with other places would be no lock. */
static void check_change(const struct manage *m, const struct change *c)
{
    if (c->even && c->of_rate.n == 0)
        die(EXIT_BROKEN, "vow limit: --even requires --rate N/U");
    if ((c->jobs || c->rate) &&
        strncmp(m->word, LOCK_LABEL, strlen(LOCK_LABEL)) == 0)
        die(EXIT_BROKEN, "vow limit: '%s' is a lock, its limit is one holder",
            m->word);
    if (listing_is_taken(m->word))
        die(EXIT_BROKEN, "vow limit: no pool has the name '%s'; see vow lock",
            m->word);
    const char *colon = strchr(m->word, ':');
    if (colon != NULL &&
        strncmp(m->word, LOCK_LABEL, strlen(LOCK_LABEL)) != 0 &&
        strncmp(m->word, SLOTS_LABEL, strlen(SLOTS_LABEL)) != 0)
        die(EXIT_BROKEN,
            "vow limit: '%s' is a key; the limits of all keys are those of "
            "'%.*s'",
            m->word, (int)(colon - m->word), m->word);
}

/* What was not said stays; `read` is moved. */
static vow_future *change_limits(const struct manage *m, const struct change *c,
                                 vow_future *read)
{
    const vow_pool_info *before = vow_as_ptr(vow_get(read));
    vow_pool_limits to = {.concurrent = 0};
    vow_pool_limits asked = pool_limits(c->concurrent, &c->of_rate, c->even);
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
