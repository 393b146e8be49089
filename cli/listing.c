/* SPDX-License-Identifier: MIT */
/* listing.c - see listing.h. */
#include "listing.h"
#include "table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_MAX = 24, PID_MOST = 8 };
enum { NAME_WIDTH = 16, HOST_SHORT = 8 }; /* columns, in a narrow window */
enum kind { KIND_POOL, KIND_SLOTS, KIND_LOCK };

static void add_names(struct table *t, const vow_record *const *records,
                      size_t n, size_t host_most);
static void add_name(struct table *t, const vow_record *r, size_t host_most);
static void add_runner(struct table *t, const char *runner, size_t host_most);
static void add_pool(struct table *t, const vow_pool_info *p);
static enum kind pool_kind(const vow_pool_info *p);
static const char *pool_shown_name(const vow_pool_info *p);
static void add_label(struct table *t, const char *label, const vow_name *name);
static bool is_empty_text(const char *s);
static int name_order(const void *a, const void *b);
static int pool_order(const void *a, const void *b);
static int record_rank(const vow_record *r);
static const char *short_duration(uint64_t ms, char *into);
static const char *rate_window_text(uint64_t us, char *into);
static void json_text(struct text *t, const char *key, const char *value);
static void json_name(struct text *t, const char *label, const vow_name *name);
static void json_number(struct text *t, const char *key, uint64_t n);
static void json_known(struct text *t, const char *key, uint64_t n, bool known);
static void json_window(struct text *t, uint64_t us);

const char *listing_state(const vow_record *r)
{
    switch ((enum vow_status)r->status) {
    case VOW_STATUS_SETTLED:
        return r->failed ? "failed" : "done";
    case VOW_STATUS_DOUBT:
        return "doubt";
    case VOW_STATUS_OWNED:
    case VOW_STATUS_WAITING:
    case VOW_STATUS_CANCELED:
        return "running";
    case VOW_STATUS_NONE:
    case VOW_STATUS_LOST:
    case VOW_STATUS_BUSY:
        break;
    }
    return "lost";
}

/* ---- tables -------------------------------------------------------------- */

void listing_names(struct text *ret_text, const vow_records *names,
                   size_t width)
{
    struct table t = {.align = "lllrrrrr"};
    if (names->n == 0)
        return;
    const vow_record **sorted = mem_new(names->n * sizeof(sorted[0]));
    for (size_t i = 0; i < names->n; i++)
        sorted[i] = &names->at[i];
    qsort(sorted, names->n, sizeof(sorted[0]), name_order);
    add_names(&t, sorted, names->n, VOW_LABEL_MAX);
    if (table_width(&t, NAME_WIDTH) > width) {
        table_free(&t);
        add_names(&t, sorted, names->n, HOST_SHORT);
    }
    table_show(&t, width, ret_text);
    table_free(&t);
    free(sorted);
}

static void add_names(struct table *t, const vow_record *const *records,
                      size_t n, size_t host_most)
{
    static const char *const headings[] = {
        "NAME", "STATE", "RUNNER", "AGE", "PULSE", "WAITERS", "LEFT", "FENCE"};
    for (size_t i = 0; i < sizeof(headings) / sizeof(headings[0]); i++)
        table_addf(t, "%s", headings[i]);
    for (size_t i = 0; i < n; i++)
        add_name(t, records[i], host_most);
}

static void add_name(struct table *t, const vow_record *r, size_t host_most)
{
    char age[SHORT_MAX], pulse[SHORT_MAX], left[SHORT_MAX];
    bool runs = record_rank(r) == 0;
    add_label(t, r->label, &r->name);
    table_addf(t, "%s", listing_state(r));
    add_runner(t, r->runner, host_most);
    table_addf(t, "%s", short_duration(r->age_ms, age));
    table_addf(t, "%s",
               runs && r->pulse_ms != UINT64_MAX
                   ? short_duration(r->pulse_ms, pulse)
                   : "-");
    if (r->waiters == UINT32_MAX)
        table_addf(t, "-");
    else
        table_addf(t, "%" PRIu32, r->waiters);
    table_addf(t, "%s",
               r->left_ms == UINT64_MAX ? "-"
                                        : short_duration(r->left_ms, left));
    table_addf(t, "%" PRIu64, r->epoch);
}

/* Adds "host:pid". A long host is cut, because the pid is more useful than the
 * end of the host. */
static void add_runner(struct table *t, const char *runner, size_t host_most)
{
    struct text shown = {0};
    if (is_empty_text(runner)) {
        table_addf(t, "-");
        return;
    }
    const char *colon = strrchr(runner, ':');
    size_t host = colon == NULL ? strlen(runner) : (size_t)(colon - runner);
    if (host > host_most && colon != NULL && strlen(colon) <= PID_MOST) {
        text_add(&shown, runner, host_most - 1);
        text_add_str(&shown, "…");
        text_add_str(&shown, colon);
    } else {
        text_add_str(&shown, runner);
    }
    table_add(t, text_span(&shown), host_most + PID_MOST);
    text_free(&shown);
}

void listing_pools(struct text *ret_text, const vow_pools *pools, size_t width)
{
    struct table t = {.align = "llll", .gap = 2};
    const vow_pool_info **sorted = mem_new((pools->n + 1) * sizeof(sorted[0]));
    for (size_t i = 0; i < pools->n; i++)
        sorted[i] = &pools->at[i];
    qsort(sorted, pools->n, sizeof(sorted[0]), pool_order);
    for (size_t i = 0; i < pools->n; i++)
        add_pool(&t, sorted[i]);
    table_show(&t, width, ret_text);
    table_free(&t);
    free(sorted);
}

static void add_pool(struct table *t, const vow_pool_info *p)
{
    char span[SHORT_MAX];
    const vow_pool_limits *l = &p->limits;
    enum kind kind = pool_kind(p);
    add_label(t, pool_shown_name(p), &p->pool);
    if (kind == KIND_LOCK)
        table_addf(t,
                   p->held == LOCK_PLACES ? "locked"
                   : p->held == 0         ? "free"
                                          : "shared by %" PRIu64,
                   p->held);
    else if (l->concurrent == 0)
        table_addf(t, "running %" PRIu64, p->held);
    else
        table_addf(t, "%s %" PRIu64 "/%" PRIu32,
                   kind == KIND_SLOTS ? "slots" : "running", p->held,
                   l->concurrent);
    if (l->rate == 0)
        table_addf(t, "%s", "");
    else
        table_addf(t, "rate %" PRIu64 "/%" PRIu32 " per %s", p->rate_used,
                   l->rate, rate_window_text(l->window_us, span));
    table_addf(t, "queue %" PRIu64, p->waiting);
}

bool listing_is_idle_lock(const vow_pool_info *p)
{
    return pool_kind(p) != KIND_POOL && p->holders == 0 && p->waiting == 0;
}

bool listing_is_taken(const char *pool)
{
    static const char *const taken[] = {LOCK_LABEL, SLOTS_LABEL};
    size_t n = strlen(pool);
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        if (n + 1 == strlen(taken[i]) && strncmp(taken[i], pool, n) == 0)
            return true;
    return false;
}

/* A name of --pool has no colon, except before a key. */
static enum kind pool_kind(const vow_pool_info *p)
{
    const char *label = is_empty_text(p->label) ? "" : p->label;
    if (strncmp(label, LOCK_LABEL, strlen(LOCK_LABEL)) == 0)
        return KIND_LOCK;
    if (strncmp(label, SLOTS_LABEL, strlen(SLOTS_LABEL)) == 0)
        return KIND_SLOTS;
    return KIND_POOL;
}

/* Returns the label without the prefix of locks and slots. */
static const char *pool_shown_name(const vow_pool_info *p)
{
    enum kind kind = pool_kind(p);
    if (kind == KIND_POOL)
        return p->label;
    return p->label + strlen(kind == KIND_LOCK ? LOCK_LABEL : SLOTS_LABEL);
}

static void add_label(struct table *t, const char *label, const vow_name *name)
{
    char printed[VOW_NAME_TEXT];
    if (is_empty_text(label))
        label = vow_name_text(name, printed);
    table_add(t, span_of(label), 0);
}

static bool is_empty_text(const char *s)
{
    return s == NULL || s[0] == '\0';
}

static int record_rank(const vow_record *r)
{
    static const char *const states[] = {"running", "lost", "doubt", "failed",
                                         "done"};
    int i = 0;
    while (strcmp(states[i], listing_state(r)) != 0)
        i++;
    return i;
}

static int name_order(const void *a, const void *b)
{
    const vow_record *x = *(const vow_record *const *)a;
    const vow_record *y = *(const vow_record *const *)b;
    int order = record_rank(x) - record_rank(y);
    if (order == 0)
        order = strcmp(x->label == NULL ? "" : x->label,
                       y->label == NULL ? "" : y->label);
    return order != 0 ? order : memcmp(&x->name, &y->name, sizeof(x->name));
}

static int pool_order(const void *a, const void *b)
{
    const vow_pool_info *x = *(const vow_pool_info *const *)a;
    const vow_pool_info *y = *(const vow_pool_info *const *)b;
    int order = pool_kind(x) == pool_kind(y)  ? 0
                : pool_kind(x) < pool_kind(y) ? -1
                                              : 1;
    if (order == 0)
        order = strcmp(x->label == NULL ? "" : x->label,
                       y->label == NULL ? "" : y->label);
    return order != 0 ? order : memcmp(&x->pool, &y->pool, sizeof(x->pool));
}

/* Returns a duration in at most five columns: 850ms, 9.5s, 59s, 12m, 9d. */
static const char *short_duration(uint64_t ms, char *into)
{
    static const struct {
        uint64_t below; /* limit, in units */
        uint64_t unit;  /* ms */
        const char *name;
    } units[] = {{1000, 1, "ms"},
                 {100, 1000, "s"},
                 {100, 60000, "m"},
                 {48, 3600000, "h"},
                 {UINT64_MAX, 86400000, "d"}};
    size_t i = 0;
    while (ms / units[i].unit >= units[i].below)
        i++;
    if (i == 1 && ms < 10000)
        (void)snprintf(into, SHORT_MAX, "%" PRIu64 ".%" PRIu64 "s", ms / 1000,
                       ms / 100 % 10);
    else
        (void)snprintf(into, SHORT_MAX, "%" PRIu64 "%s", ms / units[i].unit,
                       units[i].name);
    return into;
}

/* Returns the exact window of a rate: 1s, 500ms, 2m, 333334us. */
static const char *rate_window_text(uint64_t us, char *into)
{
    static const struct {
        uint64_t unit;
        const char *name;
    } units[] = {{86400000000, "d"}, {3600000000, "h"}, {60000000, "m"},
                 {1000000, "s"},     {1000, "ms"},      {1, "us"}};
    size_t i = 0;
    while (us == 0 || us % units[i].unit != 0)
        if (units[++i].unit == 1)
            break;
    (void)snprintf(into, SHORT_MAX, "%" PRIu64 "%s", us / units[i].unit,
                   units[i].name);
    return into;
}

const char *listing_limits(const vow_pool_limits *l, char into[LISTING_LIMITS])
{
    char span[SHORT_MAX];
    size_t n = 0;
    if (l->concurrent > 0)
        n = (size_t)snprintf(into, LISTING_LIMITS, "-j %" PRIu32,
                             l->concurrent);
    if (l->rate > 0)
        (void)snprintf(into + n, LISTING_LIMITS - n, "%s%" PRIu32 "/%s",
                       n > 0 ? " and " : "", l->rate,
                       rate_window_text(l->window_us, span));
    if (l->concurrent == 0 && l->rate == 0)
        (void)snprintf(into, LISTING_LIMITS, "no limits");
    return into;
}

/* ---- JSON ---------------------------------------------------------------- */

void listing_name_json(struct text *ret_text, const vow_record *r)
{
    static const char *const modes[] = {"shared", "fenced", "once"};
    bool runs = record_rank(r) == 0;
    text_add_str(ret_text, "{\"kind\":\"name\"");
    json_name(ret_text, r->label, &r->name);
    json_text(ret_text, "state", listing_state(r));
    json_text(ret_text, "mode", r->mode <= VOW_ONCE ? modes[r->mode] : "");
    json_text(ret_text, "runner", r->runner);
    json_number(ret_text, "age_ms", r->age_ms);
    json_known(ret_text, "pulse_ms", r->pulse_ms,
               runs && r->pulse_ms != UINT64_MAX);
    json_known(ret_text, "waiters", r->waiters, r->waiters != UINT32_MAX);
    json_known(ret_text, "left_ms", r->left_ms, r->left_ms != UINT64_MAX);
    json_number(ret_text, "fence", r->epoch);
    json_number(ret_text, "takeovers", r->takeovers);
    json_known(ret_text, "cost_ms", r->cost_ms,
               r->status == VOW_STATUS_SETTLED);
    text_add_str(ret_text, "}\n");
}

/* For a lock, "running" is the number of holders. "limit" is 1 for a free or
 * exclusive lock, and null for a shared lock. */
void listing_pool_json(struct text *ret_text, const vow_pool_info *p)
{
    static const char *const kinds[] = {"pool", "slots", "lock"};
    const vow_pool_limits *l = &p->limits;
    bool lock = pool_kind(p) == KIND_LOCK;
    bool alone = lock && p->held == LOCK_PLACES;
    text_addf(ret_text, "{\"kind\":\"%s\"", kinds[pool_kind(p)]);
    json_name(ret_text, pool_shown_name(p), &p->pool);
    json_number(ret_text, "running", lock ? p->holders : p->held);
    json_known(ret_text, "limit", lock ? 1 : l->concurrent,
               lock ? alone || p->held == 0 : l->concurrent > 0);
    json_number(ret_text, "holders", p->holders);
    json_number(ret_text, "queue", p->waiting);
    json_number(ret_text, "rate_used", p->rate_used);
    json_known(ret_text, "rate", l->rate, l->rate > 0);
    if (l->rate > 0)
        json_window(ret_text, l->window_us);
    else
        json_known(ret_text, "window_ms", 0, false);
    text_add_str(ret_text, "}\n");
}

/* Adds the window; with --even the window may be no whole number of ms. */
static void json_window(struct text *t, uint64_t us)
{
    text_addf(t, ",\"window_ms\":%" PRIu64, us / 1000);
    if (us % 1000 != 0)
        text_addf(t, ".%03u", (unsigned)(us % 1000));
}

/* Adds the label for users, and the id. */
static void json_name(struct text *t, const char *label, const vow_name *name)
{
    char printed[VOW_NAME_TEXT];
    (void)vow_name_text(name, printed);
    json_text(t, "name", is_empty_text(label) ? printed : label);
    json_text(t, "id", printed);
}

static void json_text(struct text *t, const char *key, const char *value)
{
    text_addf(t, ",\"%s\":", key);
    text_add_json(t, span_of(value == NULL ? "" : value));
}

static void json_number(struct text *t, const char *key, uint64_t n)
{
    text_addf(t, ",\"%s\":%" PRIu64, key, n);
}

static void json_known(struct text *t, const char *key, uint64_t n, bool known)
{
    if (known)
        json_number(t, key, n);
    else
        text_addf(t, ",\"%s\":null", key);
}
