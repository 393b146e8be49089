/* SPDX-License-Identifier: MIT */
/* redis_pool_rules_test.c - the scripts on pools are held to the rules.
 *
 * Random steps (rules_pool_twins.h) go to a real server, as the scripts that
 * the store sends.
 * LIMITS  Steps that grant more than 128 requests, and a rate with more than 64
 *         requests ahead, are left out: there the scripts are bounded and the
 *         rules are not.
 */
#include "redis_line.h"
#include "rules_pool_twins.h"
#include "store/redis/redis_internal.h"

enum { STEPS = 12000 };

extern const struct vow__redis_script vow__redis_scripts_timed[VOW__LUA_N];

struct redis_side {
    struct twins twins;
    struct redis_server server;
    struct redis_line ask, hear;
    char sha[VOW__LUA_N][48];
};

/* ---- a call of a script -------------------------------------------------- */

static void add_key(struct vow__buf *c, const char *tag, const char *rest,
                    const char *part)
{
    char key[160];
    (void)snprintf(key, sizeof(key), "vow:s:{%s}%s%s", tag, rest, part);
    vow__command_text(c, key);
}

/* The names in the keys of a pool: of the law, and of a key behind it. */
static void names_text(const vow_name *name, const vow_name *law,
                       char tag[VOW_NAME_TEXT], char rest[64])
{
    char text[VOW_NAME_TEXT];
    vow_name_text(law, tag);
    vow_name_text(name, text);
    rest[0] = '\0';
    if (!vow_name_equal(name, law))
        (void)snprintf(rest, 64, ":%s", text);
}

static void begin(struct redis_side *r, enum vow__script script,
                  const vow_name *name, const vow_name *law, size_t args)
{
    static const char *const parts[] = {"", ":p", ":q", ":e", ":g"};
    struct vow__buf *c = redis_line_begin(&r->ask, 3 + 6 + args);
    char tag[VOW_NAME_TEXT];
    char rest[64];
    names_text(name, law, tag, rest);
    vow__command_text(c, "EVALSHA");
    vow__command_text(c, r->sha[script]);
    vow__command_uint(c, 6);
    add_key(c, tag, "", "");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        add_key(c, tag, rest, parts[i]);
}

static void add_token(struct redis_side *r, const vow_token *token)
{
    vow__command_add(&r->ask.command, token->bytes, sizeof(token->bytes));
}

static void add_channel(struct redis_side *r, unsigned inst)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "vow:i:%u", inst);
    vow__command_text(&r->ask.command, text);
}

static void add_limits(struct redis_side *r, const vow_pool_limits *limits)
{
    vow__command_uint(&r->ask.command, limits->concurrent);
    vow__command_uint(&r->ask.command, limits->rate);
    vow__command_uint(&r->ask.command, limits->window_us);
}

static uint64_t number_at(const struct vow__resp *list, size_t nth)
{
    return vow__resp_uint(vow__resp_at(list, nth), UINT64_MAX);
}

static vow_pool_limits limits_at(const struct vow__resp *list, size_t nth)
{
    return (vow_pool_limits){.concurrent = (uint32_t)number_at(list, nth),
                             .rate = (uint32_t)number_at(list, nth + 1),
                             .window_us = number_at(list, nth + 2)};
}

static vow_pool_permit permit_of(const struct vow__resp *got)
{
    return (vow_pool_permit){.status = (uint32_t)number_at(got, 0),
                             .fence = number_at(got, 1),
                             .ahead = number_at(got, 2),
                             .again_us = number_at(got, 3),
                             .limits = limits_at(got, 4)};
}

/* ---- steps --------------------------------------------------------------- */

static uint64_t set_clock(void *user, uint64_t now_us)
{
    struct redis_side *r = user;
    struct vow__buf *c = redis_line_begin(&r->ask, 3);
    vow__command_text(c, "SET");
    vow__command_text(c, "vow:test-clock");
    vow__command_uint(c, now_us);
    CHECK(vow__resp_is(redis_line_ask(&r->ask), "OK"));
    return now_us;
}

static int acquire(void *user, unsigned inst, const vow_permit_request *q,
                   vow_pool_permit *ret)
{
    struct redis_side *r = user;
    begin(r, VOW__LUA_ACQUIRE, &q->pool, &q->limits_of, 10);
    add_token(r, &q->token);
    vow__command_uint(&r->ask.command, q->weight);
    vow__command_uint(&r->ask.command, q->flags);
    vow__command_uint(&r->ask.command, 1000 * q->lease_ms);
    add_channel(r, inst);
    add_limits(r, &q->limits);
    vow__command_text(&r->ask.command, q->limits_label);
    vow__command_text(&r->ask.command, q->label);
    *ret = permit_of(redis_line_ask(&r->ask));
    return ret->status == VOW_STATUS_NONE ? VOW_EINVAL : 0;
}

static void release(void *user, unsigned inst, const vow_permit_hold *hold,
                    vow_pool_permit *ret)
{
    struct redis_side *r = user;
    (void)inst;
    begin(r, VOW__LUA_RELEASE, &hold->pool, &hold->limits_of, 1);
    add_token(r, &hold->token);
    *ret = permit_of(redis_line_ask(&r->ask));
}

static void renew(void *user, unsigned inst, const vow_permit_hold *holds,
                  size_t n, uint64_t lease_ms, vow_pool_permit *ret)
{
    struct redis_side *r = user;
    begin(r, VOW__LUA_RENEW, &holds->pool, &holds->limits_of, 2 + 3 * n);
    vow__command_uint(&r->ask.command, 1000 * lease_ms);
    add_channel(r, inst);
    for (size_t i = 0; i < n; i++) {
        vow__command_uint(&r->ask.command, 1);
        add_token(r, &holds[i].token);
        vow__command_uint(&r->ask.command, holds[i].started);
    }
    const struct vow__resp *got = redis_line_ask(&r->ask);
    CHECK_UINT_EQ(got->n, n);
    for (size_t i = 0; i < n; i++)
        ret[i] = permit_of(vow__resp_at(got, i));
}

static bool limit(void *user, const struct twins_pool *p, bool law,
                  const vow_pool_limits *limits, vow_pool_info *ret)
{
    struct redis_side *r = user;
    begin(r, limits == NULL ? VOW__LUA_POOL : VOW__LUA_LIMIT,
          law ? &p->law_name : &p->name, &p->law_name, limits == NULL ? 0 : 4);
    if (limits != NULL) {
        add_limits(r, limits);
        vow__command_text(&r->ask.command, "law");
    }
    const struct vow__resp *got = redis_line_ask(&r->ask);
    if (got->kind == VOW__RESP_NIL)
        return false;
    *ret = (vow_pool_info){.limits = limits_at(got, 1),
                           .held = number_at(got, 4),
                           .holders = number_at(got, 5),
                           .waiting = number_at(got, 6),
                           .rate_used = number_at(got, 7)};
    return true;
}

/* ---- comparing ----------------------------------------------------------- */

/* Messages have come when PING is answered. */
static void take_told(void *user)
{
    struct redis_side *r = user;
    vow__command_text(redis_line_begin(&r->hear, 1), "PING");
    const struct vow__resp *v = redis_line_ask(&r->hear);
    for (; !vow__resp_is(v, "PONG"); v = redis_line_read(&r->hear)) {
        const struct vow__resp *channel = vow__resp_at(v, 1);
        const struct vow__resp *text = vow__resp_at(v, 2);
        vow_token token;
        CHECK(vow__resp_is(vow__resp_at(v, 0), "message"));
        CHECK(channel->n == 7 && text->n == 17 && text->text[0] == 'G');
        memcpy(token.bytes, text->text + 1, 16);
        twins_told(&r->twins, (unsigned)(channel->text[6] - '0'), &token);
    }
}

/* What the server keeps about the pool: nothing, if nobody uses a key. */
static void check_kept(void *user, struct twins_pool *p)
{
    static const char text[] =
        "local v = redis.call('HMGET', KEYS[2], 'h', 'n', 'y') "
        "return {tonumber(v[1] or 0), tonumber(v[2] or 0), "
        "tonumber(v[3] or 0), redis.call('ZCARD', KEYS[4]), "
        "redis.call('HLEN', KEYS[3]), redis.call('ZCARD', KEYS[5])}";
    static const char *const parts[] = {"", "", ":p", ":q", ":e"};
    struct redis_side *r = user;
    struct vow__buf *c = redis_line_begin(&r->ask, 3 + 5);
    char tag[VOW_NAME_TEXT];
    char rest[64];
    names_text(&p->name, &p->law_name, tag, rest);
    vow__command_text(c, "EVAL");
    vow__command_text(c, text);
    vow__command_uint(c, 5);
    for (size_t i = 0; i < 5; i++)
        add_key(c, tag, i == 0 ? "" : rest, parts[i]);
    const struct vow__resp *got = redis_line_ask(&r->ask);
    CHECK_UINT_EQ(number_at(got, 0), p->kit.pool.held);
    CHECK_UINT_EQ(number_at(got, 1), p->kit.pool.holders);
    CHECK_UINT_EQ(number_at(got, 2), p->kit.pool.open);
    CHECK_UINT_EQ(number_at(got, 3), p->kit.pool.waiting);
    CHECK_UINT_EQ(number_at(got, 4), p->kit.n);
    CHECK_UINT_EQ(number_at(got, 5), p->kit.n);
}

/* ---- the test ------------------------------------------------------------ */

static void load_scripts(struct redis_side *r)
{
    for (size_t i = VOW__LUA_ACQUIRE; i <= VOW__LUA_POOL; i++) {
        struct vow__buf *c = redis_line_begin(&r->ask, 3);
        vow__command_text(c, "SCRIPT");
        vow__command_text(c, "LOAD");
        vow__command_text(c, vow__redis_scripts_timed[i].text);
        const struct vow__resp *sha = redis_line_ask(&r->ask);
        CHECK(sha->kind == VOW__RESP_TEXT && sha->n == 40);
        memcpy(r->sha[i], sha->text, sha->n);
    }
}

TEST(redis_pool_rules, every_answer_is_that_of_the_rules)
{
    static struct redis_side r;
    const struct twins_side side = {.user = &r,
                                    .clock = set_clock,
                                    .acquire = acquire,
                                    .release = release,
                                    .renew = renew,
                                    .limit = limit,
                                    .tell = take_told,
                                    .kept = check_kept};
    redis_start(&r.server, NULL);
    redis_line_open(&r.ask, &r.server);
    redis_line_open(&r.hear, &r.server);
    load_scripts(&r);
    for (unsigned i = 0; i < TWINS_INSTANCES; i++) {
        char channel[32];
        struct vow__buf *c = redis_line_begin(&r.hear, 2);
        (void)snprintf(channel, sizeof(channel), "vow:i:%u", i);
        vow__command_text(c, "SUBSCRIBE");
        vow__command_text(c, channel);
        (void)redis_line_ask(&r.hear);
    }
    twins_open(&r.twins, &side);
    twins_run(&r.twins, STEPS);
    CHECK(r.twins.counts[TWINS_REAPED_MANY] > 3);
    redis_line_close(&r.hear);
    redis_line_close(&r.ask);
    redis_stop(&r.server);
}
