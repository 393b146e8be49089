/* SPDX-License-Identifier: MIT */
/* redis_pool_rules_test.c - the scripts on pools are held to the rules.
 *
 * HOW   Random steps of several instances go to a real server, as the scripts
 *       that the store sends, and to the rules of pools on an array of permits
 *       (rules_pool_kit.h). Both have the clock of the test, which often jumps
 *       to the end of a lease or of a window, so all answers are equal to the
 *       microsecond: status, fence, ahead, again, limits. Equal are also those
 *       who are told, and behind each step the weight held, the weight open,
 *       the holders and the waiting requests.
 * LIMITS  Windows do not change, see pool.h. Steps that grant more than 128
 *       requests, and a rate with more than 64 requests ahead, are left out:
 *       there the scripts are bounded and the rules are not.
 */
#include "redis_line.h"
#include "rules_pool_kit.h"
#include "store/redis/redis_internal.h"

#include <stdio.h>

enum {
    POOLS = 7,
    INSTANCES = 3,
    STEPS = 12000,
    CROWD = 140, /* in one pool at once, without a rate */
    FEW = 40,    /* with a rate, see LIMITS */
    BATCH = 4,
    SHORT_MS = 8000,
    LONG_MS = 3600 * 1000
};

#define START_US (UINT64_C(40000) * 86400000000) /* no key ends meanwhile */

extern const struct vow__redis_script vow__redis_scripts_timed[VOW__LUA_N];

struct pool {
    uint64_t number, law;   /* name_of() these */
    vow_pool_limits limits; /* the first */
    bool changes;           /* by limit.lua */
    uint32_t weights, most; /* of one request; of requests at once */
    struct pool_kit kit;
};

enum { SAID = 8, TOLD = SAID, TOLD_HEAD, NEVER_FITS, REAPED_MANY, COUNTS };

struct twins {
    struct redis_server server;
    struct redis_line ask, hear;
    char sha[VOW__LUA_N][48];
    uint64_t seed, token, clock_us;
    struct pool pools[POOLS];
    unsigned counts[COUNTS];  /* answers by status, and events */
    vow_token told[KIT_TOLD]; /* by the rules, in this step */
    size_t n_told;
};

static const struct pool KINDS[POOLS] = {
    {.number = 1,
     .law = 1,
     .limits = {.concurrent = 5},
     .changes = true,
     .weights = 4,
     .most = FEW},
    {.number = 2,
     .law = 2,
     .limits = {.rate = 7, .window_us = 4000000},
     .changes = true,
     .weights = 3,
     .most = FEW},
    {.number = 3,
     .law = 3,
     .limits = {4, 9, 7000000},
     .changes = true,
     .weights = 2,
     .most = FEW},
    {.number = 4,
     .law = 4,
     .limits = {.rate = 50000, .window_us = 3000000},
     .weights = 9000,
     .most = FEW},
    {.number = 6,
     .law = 5,
     .limits = {.concurrent = 3},
     .changes = true,
     .weights = 3,
     .most = FEW},
    {.number = 8,
     .law = 7,
     .limits = {3, 5, 3000000},
     .changes = true,
     .weights = 2,
     .most = FEW},
    {.number = 9,
     .law = 9,
     .limits = {.concurrent = 3},
     .weights = 1,
     .most = CROWD},
};

static uint64_t roll(struct twins *t, uint64_t n)
{
    return test_random(&t->seed) % n;
}

static uint64_t number_of(const vow_token *token)
{
    uint64_t n;
    memcpy(&n, token->bytes, sizeof(n));
    return n;
}

/* The instance of a token, which never changes. */
static unsigned channel_of(uint64_t token)
{
    return (unsigned)(token % INSTANCES);
}

/* ---- a call of a script -------------------------------------------------- */

static void add_key(struct vow__command *c, const char *tag, const char *rest,
                    const char *part)
{
    char key[160];
    (void)snprintf(key, sizeof(key), "vow:s:{%s}%s%s", tag, rest, part);
    vow__command_text(c, key);
}

static void name_text(uint64_t number, char text[VOW_NAME_TEXT])
{
    vow_name name = {.hash = {[31] = 1}};
    memcpy(name.hash, &number, sizeof(number));
    vow_name_text(&name, text);
}

static void begin(struct twins *t, enum vow__script script,
                  const struct pool *p, bool law, size_t args)
{
    static const char *const parts[] = {"", ":p", ":q", ":e", ":g"};
    struct vow__command *c = redis_line_begin(&t->ask, 3 + 6 + args);
    char tag[VOW_NAME_TEXT];
    char name[VOW_NAME_TEXT];
    char rest[64] = "";
    name_text(p->law, tag);
    name_text(p->number, name);
    if (p->law != p->number && !law)
        (void)snprintf(rest, sizeof(rest), ":%s", name);
    vow__command_text(c, "EVALSHA");
    vow__command_text(c, t->sha[script]);
    vow__command_uint(c, 6);
    add_key(c, tag, "", "");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        add_key(c, tag, rest, parts[i]);
}

static void add_token(struct twins *t, uint64_t number)
{
    vow_token token = kit_token(number);
    vow__command_add(&t->ask.command, token.bytes, sizeof(token.bytes));
}

static void add_channel(struct twins *t, unsigned inst)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "vow:i:%u", inst);
    vow__command_text(&t->ask.command, text);
}

static void add_limits(struct twins *t, const vow_pool_limits *limits)
{
    vow__command_uint(&t->ask.command, limits->concurrent);
    vow__command_uint(&t->ask.command, limits->rate);
    vow__command_uint(&t->ask.command, limits->window_us);
}

static void set_clock(struct twins *t)
{
    struct vow__command *c = redis_line_begin(&t->ask, 3);
    vow__command_text(c, "SET");
    vow__command_text(c, "vow:test-clock");
    vow__command_uint(c, t->clock_us);
    CHECK(vow__resp_is(redis_line_ask(&t->ask), "OK"));
    for (size_t i = 0; i < POOLS; i++)
        t->pools[i].kit.now_us = t->pools[i].kit.number = t->clock_us;
}

/* ---- comparing ----------------------------------------------------------- */

static uint64_t number_at(const struct vow__resp *list, size_t nth)
{
    return vow__resp_uint(vow__resp_at(list, nth), UINT64_MAX);
}

static void check_permit(struct twins *t, const struct vow__resp *got,
                         const vow_pool_permit *want)
{
    CHECK_UINT_EQ(number_at(got, 0), want->status);
    CHECK_UINT_EQ(number_at(got, 1), want->fence);
    CHECK_UINT_EQ(number_at(got, 2), want->ahead);
    CHECK_UINT_EQ(number_at(got, 3), want->again_us);
    t->counts[want->status]++;
    if (want->status == VOW_STATUS_NONE)
        return;
    CHECK_UINT_EQ(number_at(got, 4), want->limits.concurrent);
    CHECK_UINT_EQ(number_at(got, 5), want->limits.rate);
    CHECK_UINT_EQ(number_at(got, 6), want->limits.window_us);
}

/* A rule ran: what it told counts for the step. */
static void rule_ran(struct twins *t, struct pool *p)
{
    for (size_t i = 0; i < p->kit.n_told; i++) {
        const struct rules_permit *at = kit_permit(&p->kit, &p->kit.told[i]);
        CHECK(t->n_told < KIT_TOLD);
        t->told[t->n_told++] = p->kit.told[i];
        t->counts[TOLD]++;
        t->counts[TOLD_HEAD] += at != NULL && !at->held;
    }
    p->kit.n_told = 0;
}

static void take_told(struct twins *t, const struct vow__resp *v)
{
    const struct vow__resp *channel = vow__resp_at(v, 1);
    const struct vow__resp *text = vow__resp_at(v, 2);
    vow_token token;
    size_t i = 0;
    CHECK(vow__resp_is(vow__resp_at(v, 0), "message"));
    CHECK(channel->n == 7 && text->n == 17 && text->text[0] == 'G');
    memcpy(token.bytes, text->text + 1, 16);
    while (i < t->n_told && !kit_same(&t->told[i], &token))
        i++;
    if (i == t->n_told)
        FAIL("the server told %ju, the rules do not",
             (uintmax_t)number_of(&token));
    CHECK_UINT_EQ((unsigned)(channel->text[6] - '0'),
                  channel_of(number_of(&token)));
    t->told[i] = t->told[--t->n_told];
}

/* Messages have come when PING is answered. */
static void check_told(struct twins *t)
{
    vow__command_text(redis_line_begin(&t->hear, 1), "PING");
    const struct vow__resp *v = redis_line_ask(&t->hear);
    for (; !vow__resp_is(v, "PONG"); v = redis_line_read(&t->hear))
        take_told(t, v);
    if (t->n_told > 0)
        FAIL("the rules tell %ju, the server did not",
             (uintmax_t)number_of(&t->told[0]));
}

/* What the server keeps about the pool: nothing, if nobody uses a key. */
static void check_kept(struct twins *t, const struct pool *p)
{
    static const char text[] =
        "local v = redis.call('HMGET', KEYS[2], 'h', 'n', 'y') "
        "return {tonumber(v[1] or 0), tonumber(v[2] or 0), "
        "tonumber(v[3] or 0), redis.call('ZCARD', KEYS[4]), "
        "redis.call('HLEN', KEYS[3]), redis.call('ZCARD', KEYS[5])}";
    static const char *const parts[] = {"", "", ":p", ":q", ":e"};
    struct vow__command *c = redis_line_begin(&t->ask, 3 + 5);
    char tag[VOW_NAME_TEXT];
    char name[VOW_NAME_TEXT];
    char rest[64] = "";
    name_text(p->law, tag);
    name_text(p->number, name);
    if (p->law != p->number)
        (void)snprintf(rest, sizeof(rest), ":%s", name);
    vow__command_text(c, "EVAL");
    vow__command_text(c, text);
    vow__command_uint(c, 5);
    for (size_t i = 0; i < 5; i++)
        add_key(c, tag, i == 0 ? "" : rest, parts[i]);
    const struct vow__resp *got = redis_line_ask(&t->ask);
    CHECK_UINT_EQ(number_at(got, 0), p->kit.pool.held);
    CHECK_UINT_EQ(number_at(got, 1), p->kit.pool.holders);
    CHECK_UINT_EQ(number_at(got, 2), p->kit.pool.open);
    CHECK_UINT_EQ(number_at(got, 3), p->kit.pool.waiting);
    CHECK_UINT_EQ(number_at(got, 4), p->kit.n);
    CHECK_UINT_EQ(number_at(got, 5), p->kit.n);
}

static void check_info(const struct vow__resp *got, const struct pool *p)
{
    const struct rules_pool *want = &p->kit.pool;
    CHECK_UINT_EQ(number_at(got, 1), want->limits.concurrent);
    CHECK_UINT_EQ(number_at(got, 2), want->limits.rate);
    CHECK_UINT_EQ(number_at(got, 3), want->limits.window_us);
    CHECK_UINT_EQ(number_at(got, 4), want->held);
    CHECK_UINT_EQ(number_at(got, 5), want->holders);
    CHECK_UINT_EQ(number_at(got, 6), want->waiting);
    CHECK_UINT_EQ(number_at(got, 7), vow__rules_pool_used(want, p->kit.now_us));
}

/* ---- steps --------------------------------------------------------------- */

static uint64_t some_lease(struct twins *t, const struct pool *p)
{
    bool is_long = roll(t, p->most == CROWD ? 5 : 2) == 0;
    return is_long ? LONG_MS : 1 + roll(t, SHORT_MS);
}

/* Of a permit, or now and then of none. */
static uint64_t some_token(struct twins *t, const struct pool *p)
{
    if (p->kit.n == 0 || roll(t, 8) == 0)
        return ++t->token;
    return number_of(&p->kit.permits[roll(t, p->kit.n)].token);
}

static void acquire(struct twins *t, struct pool *p)
{
    bool is_new = p->kit.n < p->most && roll(t, 2) == 0;
    uint64_t token = is_new ? ++t->token : some_token(t, p);
    uint32_t weight = 1 + (uint32_t)roll(t, p->weights);
    uint64_t lease_ms = some_lease(t, p);
    uint32_t flags = roll(t, 4) == 0 ? VOW_PERMIT_TRY : 0;
    vow_pool_permit want = {.status = VOW_STATUS_NONE};
    vow_token text = kit_token(token);
    if (p->kit.n >= p->most && kit_permit(&p->kit, &text) == NULL)
        return;
    begin(t, VOW__LUA_ACQUIRE, p, false, 10);
    add_token(t, token);
    vow__command_uint(&t->ask.command, weight);
    vow__command_uint(&t->ask.command, flags);
    vow__command_uint(&t->ask.command, 1000 * lease_ms);
    add_channel(t, channel_of(token));
    add_limits(t, &p->limits);
    vow__command_text(&t->ask.command, "law");
    vow__command_text(&t->ask.command, "pool");
    const struct vow__resp *got = redis_line_ask(&t->ask);
    int rc = kit_acquire(&p->kit, token, weight, lease_ms, flags, &want);
    rule_ran(t, p);
    if (rc < 0) {
        CHECK_INT_EQ(rc, VOW_EINVAL);
        want = (vow_pool_permit){.status = VOW_STATUS_NONE};
        t->counts[NEVER_FITS]++;
    }
    check_permit(t, got, &want);
}

static void release(struct twins *t, struct pool *p)
{
    uint64_t token = some_token(t, p);
    vow_pool_permit want;
    begin(t, VOW__LUA_RELEASE, p, false, 1);
    add_token(t, token);
    const struct vow__resp *got = redis_line_ask(&t->ask);
    CHECK_INT_EQ(kit_release(&p->kit, token, &want), 0);
    rule_ran(t, p);
    check_permit(t, got, &want);
}

/* Of one instance; as if each were renewed by a step of its own. */
static void renew(struct twins *t, struct pool *p)
{
    uint64_t tokens[BATCH] = {some_token(t, p)};
    bool started[BATCH];
    uint64_t lease_ms = some_lease(t, p);
    size_t n = 1;
    for (size_t more = roll(t, BATCH); more > 0; more--) {
        tokens[n] = some_token(t, p);
        n += channel_of(tokens[n]) == channel_of(tokens[0]) && p->kit.n <= FEW;
    }
    begin(t, VOW__LUA_RENEW, p, false, 2 + 3 * n);
    vow__command_uint(&t->ask.command, 1000 * lease_ms);
    add_channel(t, channel_of(tokens[0]));
    for (size_t i = 0; i < n; i++) {
        started[i] = roll(t, 2) == 0;
        vow__command_uint(&t->ask.command, 1);
        add_token(t, tokens[i]);
        vow__command_uint(&t->ask.command, started[i]);
    }
    const struct vow__resp *got = redis_line_ask(&t->ask);
    CHECK_UINT_EQ(got->n, n);
    for (size_t i = 0; i < n; i++) {
        vow_pool_permit want;
        CHECK_INT_EQ(kit_renew(&p->kit, tokens[i], lease_ms, started[i], &want),
                     0);
        rule_ran(t, p);
        check_permit(t, vow__resp_at(got, i), &want);
    }
}

/* Limits of a pool of keys reach the key with its next step. */
static void limit(struct twins *t, struct pool *p)
{
    vow_pool_limits limits = p->limits;
    bool own = p->law == p->number;
    if (!p->changes)
        return;
    limits.concurrent = roll(t, 6) == 0 ? 0 : 2 + (uint32_t)roll(t, 5);
    if (limits.rate > 0)
        limits.rate = roll(t, 6) == 0 ? 0 : 2 + (uint32_t)roll(t, 9);
    begin(t, VOW__LUA_LIMIT, p, true, 4);
    add_limits(t, &limits);
    vow__command_text(&t->ask.command, "law");
    const struct vow__resp *got = redis_line_ask(&t->ask);
    if (!own) {
        p->kit.pool.limits = limits;
        return;
    }
    CHECK_INT_EQ(vow__rules_limit(&p->kit.pool, &p->kit.storage, &limits,
                                  kit_step(&p->kit)),
                 0);
    rule_ran(t, p);
    check_info(got, p);
}

/* A key that nobody uses may be gone. */
static void look(struct twins *t, struct pool *p)
{
    begin(t, VOW__LUA_POOL, p, false, 0);
    const struct vow__resp *got = redis_line_ask(&t->ask);
    CHECK_INT_EQ(vow__rules_limit(&p->kit.pool, &p->kit.storage, NULL,
                                  kit_step(&p->kit)),
                 0);
    rule_ran(t, p);
    if (got->kind == VOW__RESP_NIL)
        CHECK_UINT_EQ(p->kit.n, 0);
    else
        check_info(got, p);
}

/* A little, or to the end of a lease or of the window of a start. */
static void move_clock(struct twins *t)
{
    const struct pool *p = &t->pools[roll(t, POOLS)];
    const struct rules_rate *l = &p->kit.pool.rate;
    uint64_t to = t->clock_us + 1 + roll(t, 3000);
    uint64_t x = roll(t, 20);
    if (x < 3 && p->kit.n > 0)
        to = p->kit.permits[roll(t, p->kit.n)].end_us - 1 + roll(t, 3);
    else if (x < 6 && l->n > 0)
        to = l->starts[roll(t, l->n)].at_us + p->limits.window_us + roll(t, 3);
    else if (x < 7)
        to = t->clock_us + roll(t, 3000000);
    if (to > t->clock_us && to < t->clock_us + 40000000)
        t->clock_us = to;
    set_clock(t);
}

static void step(struct twins *t)
{
    struct pool *p = &t->pools[roll(t, POOLS)];
    uint64_t x = roll(t, 20);
    size_t ended = 0;
    if (roll(t, 3) > 0)
        move_clock(t);
    for (size_t i = 0; i < p->kit.n; i++)
        ended += p->kit.permits[i].end_us <= p->kit.now_us;
    t->counts[REAPED_MANY] += ended > RULES_REAP_MAX;
    if (x < 10)
        acquire(t, p);
    else if (x < 13)
        release(t, p);
    else if (x < 18)
        renew(t, p);
    else if (x < 19)
        look(t, p);
    else
        limit(t, p);
    check_told(t);
    check_kept(t, p);
}

/* A crowd whose short leases end together. */
static void fill_crowd(struct twins *t)
{
    struct pool *p = &t->pools[POOLS - 1];
    for (int i = 0; i < 400 && p->kit.n < CROWD; i++) {
        acquire(t, p);
        check_told(t);
    }
    t->clock_us += 1000 * SHORT_MS;
    set_clock(t);
}

static void load_scripts(struct twins *t)
{
    for (size_t i = VOW__LUA_ACQUIRE; i <= VOW__LUA_POOL; i++) {
        struct vow__command *c = redis_line_begin(&t->ask, 3);
        vow__command_text(c, "SCRIPT");
        vow__command_text(c, "LOAD");
        vow__command_text(c, vow__redis_scripts_timed[i].text);
        const struct vow__resp *sha = redis_line_ask(&t->ask);
        CHECK(sha->kind == VOW__RESP_TEXT && sha->n == 40);
        memcpy(t->sha[i], sha->text, sha->n);
    }
}

static void twins_open(struct twins *t)
{
    t->seed = test_seed();
    t->clock_us = START_US;
    redis_start(&t->server, NULL);
    redis_line_open(&t->ask, &t->server);
    redis_line_open(&t->hear, &t->server);
    load_scripts(t);
    for (size_t i = 0; i < POOLS; i++) {
        t->pools[i] = KINDS[i];
        kit_open(&t->pools[i].kit, KINDS[i].limits);
    }
    for (unsigned i = 0; i < INSTANCES; i++) {
        char channel[32];
        struct vow__command *c = redis_line_begin(&t->hear, 2);
        (void)snprintf(channel, sizeof(channel), "vow:i:%u", i);
        vow__command_text(c, "SUBSCRIBE");
        vow__command_text(c, channel);
        (void)redis_line_ask(&t->hear);
    }
    set_clock(t);
}

TEST(redis_pool_rules, every_answer_is_that_of_the_rules)
{
    static struct twins t;
    twins_open(&t);
    for (int i = 0; i < STEPS; i++) {
        if (i % (STEPS / 20) == 0)
            fill_crowd(&t);
        step(&t);
    }
    CHECK(t.counts[VOW_STATUS_OWNED] > 500 &&
          t.counts[VOW_STATUS_WAITING] > 500);
    CHECK(t.counts[VOW_STATUS_BUSY] > 50 && t.counts[VOW_STATUS_NONE] > 50);
    CHECK(t.counts[TOLD] > 200 && t.counts[TOLD_HEAD] > 10);
    CHECK(t.counts[NEVER_FITS] > 20 && t.counts[REAPED_MANY] > 3);
    redis_line_close(&t.hear);
    redis_line_close(&t.ask);
    redis_stop(&t.server);
}
