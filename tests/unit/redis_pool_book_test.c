/* SPDX-License-Identifier: MIT */
/* redis_pool_book_test.c - the scripts on pools do what the book does.
 *
 * HOW   Random steps of several instances go to a real server, as the scripts
 *       that the store sends, and to a book. Each script tells at which time of
 *       the server it ran: the book is given the same, so all answers are equal
 *       to the microsecond. So are those who are told. Fences are other numbers
 *       in the same order.
 *       Windows and short leases are of a few milliseconds, and pass while the
 *       steps are made.
 * LIMITS  Limits of pools of keys change only without a rate and without short
 *       leases: the book grants their keys at once, the store a moment later.
 */
#include "book_rig.h"
#include "redis_line.h"
#include "store/redis/redis_internal.h"
#include <stdio.h>

enum {
    POOLS = 6,
    SPOTS = 48, /* in one pool at once */
    STEPS = 6000,
    LONG_MS = 3600 * 1000
};

/* What both know of one place. */
struct spot {
    uint64_t token;
    size_t inst;
    uint32_t weight;
    uint64_t fence, book_fence; /* 0: not known */
};

struct pool {
    uint64_t number, law; /* book_name() of these */
    const char *label, *law_label;
    vow_pool_limits limits;
    bool changes;    /* by limit.lua */
    bool short_ones; /* leases */
    bool rough;      /* when to ask again is not compared: renewals of several,
                        whose leases end together, and weights that become
                        impossible, which a book has for a little longer */
    uint32_t weights;
    size_t n;
    struct spot spots[SPOTS];
};

struct twins {
    struct book_rig rig;
    struct redis_server server;
    struct redis_line ask, hear;
    char sha[VOW__LUA_N][48];
    uint64_t seed, token;
    struct pool pools[POOLS];
    unsigned status[8]; /* how often it was said */
    unsigned told;
    bool batch; /* the last step renewed several */
};

static const struct pool KINDS[POOLS] = {
    {.number = 1,
     .law = 1,
     .label = "once",
     .law_label = "once",
     .limits = {.concurrent = 5},
     .changes = true,
     .short_ones = true,
     .rough = true,
     .weights = 4},
    {.number = 2,
     .law = 2,
     .label = "rate",
     .law_label = "rate",
     .limits = {.rate = 7, .window_us = 4000},
     .changes = true,
     .short_ones = true,
     .weights = 3},
    {.number = 3,
     .law = 3,
     .label = "both",
     .law_label = "both",
     .limits = {.concurrent = 4, .rate = 9, .window_us = 7000},
     .changes = true,
     .short_ones = true,
     .weights = 2},
    {.number = 4,
     .law = 4,
     .label = "high",
     .law_label = "high",
     .limits = {.rate = 50000, .window_us = 3000000},
     .short_ones = true,
     .weights = 9000},
    {.number = 6,
     .law = 5,
     .label = "key:a",
     .law_label = "key",
     .limits = {.concurrent = 3},
     .changes = true,
     .rough = true,
     .weights = 3},
    {.number = 8,
     .law = 7,
     .label = "fast:a",
     .law_label = "fast",
     .limits = {.concurrent = 3, .rate = 5, .window_us = 3000},
     .short_ones = true,
     .weights = 2},
};

static uint64_t roll(struct twins *t, uint64_t n)
{
    return test_random(&t->seed) % n;
}

/* ---- a call of a script -------------------------------------------------- */

static void add_key(struct vow__command *c, const char *tag, const char *rest,
                    const char *part)
{
    char key[160];
    (void)snprintf(key, sizeof(key), "vow:s:{%s}%s%s", tag, rest, part);
    vow__command_text(c, key);
}

static void begin(struct twins *t, enum vow__script script,
                  const struct pool *p, size_t args)
{
    struct vow__command *c = redis_line_begin(&t->ask, 3 + 7 + args);
    char tag[VOW_NAME_TEXT];
    char name[VOW_NAME_TEXT];
    char rest[64] = "";
    vow_name law = book_name(p->law);
    vow_name pool = book_name(p->number);
    vow_name_text(&law, tag);
    if (p->law != p->number)
        (void)snprintf(rest, sizeof(rest), ":%s", vow_name_text(&pool, name));
    vow__command_text(c, "EVALSHA");
    vow__command_text(c, t->sha[script]);
    vow__command_uint(c, 7);
    add_key(c, tag, "", "");
    add_key(c, tag, rest, "");
    add_key(c, tag, rest, ":p");
    add_key(c, tag, rest, ":q");
    add_key(c, tag, rest, ":e");
    add_key(c, tag, rest, ":g");
    add_key(c, tag, "", ":k");
}

static void add_token(struct twins *t, uint64_t number)
{
    vow_token token = book_token(number);
    vow__command_add(&t->ask.command, token.bytes, sizeof(token.bytes));
}

static void add_channel(struct twins *t, size_t inst)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "vow:i:%zu", inst);
    vow__command_text(&t->ask.command, text);
}

static void add_limits(struct twins *t, const vow_pool_limits *limits)
{
    vow__command_uint(&t->ask.command, limits->concurrent);
    vow__command_uint(&t->ask.command, limits->rate);
    vow__command_uint(&t->ask.command, limits->window_us);
}

/* The book has the time that the script had. */
static void same_time(struct twins *t, const struct vow__resp *reply,
                      size_t nth)
{
    t->rig.now_us = vow__resp_uint(vow__resp_at(reply, nth), 0);
    CHECK(t->rig.now_us > 0);
}

/* ---- comparing ----------------------------------------------------------- */

static void drop(struct pool *p, struct spot *s)
{
    if (s != NULL)
        *s = p->spots[--p->n];
}

static void check_fences(struct pool *p, struct spot *s)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct spot *o = &p->spots[i];
        if (o != s && o->fence > 0)
            CHECK((o->fence < s->fence) == (o->book_fence < s->book_fence));
    }
}

static void check_place(struct pool *p, struct spot *s,
                        const struct vow__resp *got,
                        const vow_pool_permit *want)
{
    uint64_t v[7];
    for (size_t i = 0; i < 7; i++)
        v[i] = vow__resp_uint(vow__resp_at(got, i), UINT64_MAX);
    CHECK_UINT_EQ(v[0], want->status);
    if (want->status == VOW_STATUS_NONE)
        return;
    CHECK_UINT_EQ(v[2], want->ahead);
    if (!p->rough)
        CHECK_UINT_EQ(v[3], want->again_us);
    CHECK_UINT_EQ(v[4], want->limits.concurrent);
    CHECK_UINT_EQ(v[5], want->limits.rate);
    CHECK_UINT_EQ(v[6], want->limits.window_us);
    CHECK((v[3] == 0) == (want->again_us == 0));
    CHECK((v[1] == 0) == (want->fence == 0));
    if (s == NULL || want->status != VOW_STATUS_OWNED)
        return;
    CHECK((s->fence == v[1]) == (s->book_fence == want->fence));
    s->fence = v[1];
    s->book_fence = want->fence;
    check_fences(p, s);
}

struct info {
    char label[32];
    uint64_t v[8];
};

static struct info read_info(struct twins *t, const struct vow__resp *got)
{
    struct info out = {.label = ""};
    const struct vow__resp *label = vow__resp_at(got, 0);
    CHECK(label->kind == VOW__RESP_TEXT && label->n < sizeof(out.label));
    memcpy(out.label, label->text, label->n);
    for (size_t i = 1; i < 8; i++)
        out.v[i] = vow__resp_uint(vow__resp_at(got, i), UINT64_MAX);
    same_time(t, got, 8);
    return out;
}

static void check_info(const struct info *got, const vow_pool_info *want)
{
    CHECK_STR_EQ(got->label, want->label);
    CHECK_UINT_EQ(got->v[1], want->limits.concurrent);
    CHECK_UINT_EQ(got->v[2], want->limits.rate);
    CHECK_UINT_EQ(got->v[3], want->limits.window_us);
    CHECK_UINT_EQ(got->v[4], want->held);
    CHECK_UINT_EQ(got->v[5], want->holders);
    CHECK_UINT_EQ(got->v[6], want->waiting);
    CHECK_UINT_EQ(got->v[7], want->rate_used);
}

/* Who was told of what: by messages, which have come when PING is answered, and
 * by letters. */
struct told {
    size_t n;
    struct {
        size_t inst;
        unsigned char token[16];
    } at[2 * SPOTS];
};

static void hear_server(struct twins *t, struct told *out)
{
    vow__command_text(redis_line_begin(&t->hear, 1), "PING");
    const struct vow__resp *v = redis_line_ask(&t->hear);
    out->n = 0;
    while (!vow__resp_is(v, "PONG")) {
        const struct vow__resp *channel = vow__resp_at(v, 1);
        const struct vow__resp *text = vow__resp_at(v, 2);
        CHECK(vow__resp_is(vow__resp_at(v, 0), "message"));
        CHECK(channel->n > 6 && text->n == 17 && text->text[0] == 'G');
        CHECK(out->n < 2 * SPOTS);
        out->at[out->n].inst = (size_t)(channel->text[6] - '0');
        memcpy(out->at[out->n++].token, text->text + 1, 16);
        v = redis_line_read(&t->hear);
    }
}

static void check_told(struct twins *t)
{
    struct told got;
    struct vow__news news;
    size_t n = 0;
    hear_server(t, &got);
    for (size_t i = 0; i < BOOK_INSTANCES; i++) {
        struct vow__step s = book_step(&t->rig, i);
        while (vow__book_mail(&s, &news)) {
            CHECK_INT_EQ(news.kind, VOW__NEWS_PLACE);
            size_t k = 0;
            while (k < got.n &&
                   (got.at[k].inst != i ||
                    memcmp(got.at[k].token, news.token.bytes, 16) != 0))
                k++;
            if (k == got.n)
                FAIL("instance %zu was not told by the server", i);
            n++;
        }
    }
    if (!t->batch || got.n < n) /* a book takes back what is told of one that
                                   the same batch finds gone */
        CHECK_UINT_EQ(got.n, n);
    t->told += (unsigned)n;
}

/* ---- steps --------------------------------------------------------------- */

static uint64_t some_lease(struct twins *t, const struct pool *p)
{
    uint64_t x = roll(t, 8);
    if (x == 0)
        return 0;
    return p->short_ones && x < 4 ? 1 + roll(t, 8) : LONG_MS;
}

static struct spot *some_spot(struct twins *t, struct pool *p)
{
    return p->n == 0 || roll(t, 8) == 0 ? NULL : &p->spots[roll(t, p->n)];
}

static void acquire(struct twins *t, struct pool *p)
{
    struct spot *s = some_spot(t, p);
    if (s == NULL || roll(t, 2) == 0) {
        if (p->n == SPOTS)
            return;
        s = &p->spots[p->n++];
        *s = (struct spot){.token = ++t->token,
                           .inst = roll(t, BOOK_INSTANCES),
                           .weight = 1 + (uint32_t)roll(t, p->weights)};
    }
    vow_permit_request ask = {.pool = book_name(p->number),
                              .limits_of = book_name(p->law),
                              .token = book_token(s->token),
                              .weight = s->weight,
                              .lease_ms = some_lease(t, p),
                              .flags = roll(t, 4) == 0 ? VOW_PERMIT_TRY : 0,
                              .limits = p->limits,
                              .label = p->label,
                              .limits_label = p->law_label};
    begin(t, VOW__LUA_ACQUIRE, p, 10);
    add_token(t, s->token);
    vow__command_uint(&t->ask.command, ask.weight);
    vow__command_uint(&t->ask.command, ask.flags);
    vow__command_uint(&t->ask.command, 1000 * ask.lease_ms);
    add_channel(t, s->inst);
    add_limits(t, &ask.limits);
    vow__command_text(&t->ask.command, ask.limits_label);
    vow__command_text(&t->ask.command, ask.label);
    const struct vow__resp *got = redis_line_ask(&t->ask);
    same_time(t, got, 7);
    vow_pool_permit want = {.status = 0};
    struct vow__step step = book_step(&t->rig, s->inst);
    int rc = vow__book_acquire(&step, &ask, &want);
    uint64_t status = vow__resp_uint(vow__resp_at(got, 0), 99);
    if (rc == 0)
        check_place(p, s, got, &want);
    else
        CHECK_INT_EQ(rc, VOW_EINVAL);
    if (rc < 0)
        CHECK_UINT_EQ(status, 0);
    t->status[status]++;
    if (rc < 0 || want.status == VOW_STATUS_BUSY)
        drop(p, s);
}

static void release(struct twins *t, struct pool *p)
{
    struct spot *s = some_spot(t, p);
    uint64_t token = s == NULL ? ++t->token : s->token;
    vow_permit_hold hold = {book_name(p->number), book_name(p->law),
                            book_token(token), false};
    begin(t, VOW__LUA_RELEASE, p, 1);
    add_token(t, token);
    const struct vow__resp *got = redis_line_ask(&t->ask);
    same_time(t, got, 7);
    vow_pool_permit want;
    struct vow__step step = book_step(&t->rig, s == NULL ? 0 : s->inst);
    vow__book_release(&step, &hold, &want);
    check_place(p, s, got, &want);
    drop(p, s);
}

/* One of them, or some that are of the same instance. With a lease that is over
 * at once only one: the book takes back what it has to tell of it. */
static size_t some_spots(struct twins *t, struct pool *p, bool several,
                         struct spot **at)
{
    size_t n = 0;
    size_t first = roll(t, p->n);
    size_t most = several ? 1 + roll(t, 4) : 1;
    for (size_t i = 0; i < p->n && n < most; i++) {
        struct spot *s = &p->spots[(first + i) % p->n];
        if (n == 0 || s->inst == at[0]->inst)
            at[n++] = s;
    }
    return n;
}

static void renew(struct twins *t, struct pool *p)
{
    struct spot *at[4] = {NULL};
    vow_permit_hold holds[4];
    vow_pool_permit want[4];
    uint64_t lease_ms = some_lease(t, p);
    if (p->n == 0)
        return;
    size_t n = some_spots(t, p, p->rough && lease_ms > 0, at);
    t->batch = n > 1;
    begin(t, VOW__LUA_RENEW, p, 2 + 3 * n);
    vow__command_uint(&t->ask.command, 1000 * lease_ms);
    add_channel(t, at[0]->inst);
    for (size_t i = 0; i < n; i++) {
        holds[i] = (vow_permit_hold){book_name(p->number), book_name(p->law),
                                     book_token(at[i]->token), roll(t, 2) == 0};
        vow__command_uint(&t->ask.command, 1);
        add_token(t, at[i]->token);
        vow__command_uint(&t->ask.command, holds[i].started);
    }
    const struct vow__resp *got = redis_line_ask(&t->ask);
    same_time(t, vow__resp_at(got, 0), 7);
    struct vow__step step = book_step(&t->rig, at[0]->inst);
    vow__book_renew(&step, holds, n, lease_ms, want);
    CHECK_UINT_EQ(got->n, n);
    for (size_t i = 0; i < n; i++)
        check_place(p, want[i].status == 0 ? NULL : at[i], vow__resp_at(got, i),
                    &want[i]);
}

static void change(struct twins *t, vow_pool_limits *limits)
{
    if (limits->concurrent > 0)
        limits->concurrent = 2 + (uint32_t)roll(t, 5);
    if (limits->rate > 0) {
        limits->rate = 3 + (uint32_t)roll(t, 8);
        limits->window_us = 1000 + roll(t, 8000);
    }
}

/* If a key has a queue, the book hears of it when that is looked at, which is
 * when the server grants. */
static void limit(struct twins *t, struct pool *p)
{
    struct pool law = {.number = p->law, .law = p->law};
    vow_name names[2] = {book_name(p->law), book_name(p->number)};
    struct vow__pool_answer want;
    const char *label = roll(t, 2) == 0 ? "" : p->law_label;
    change(t, &p->limits);
    begin(t, VOW__LUA_LIMIT, &law, 4);
    add_limits(t, &p->limits);
    vow__command_text(&t->ask.command, label);
    const struct vow__resp *got = redis_line_ask(&t->ask);
    struct info infos[2] = {read_info(t, got)};
    const struct vow__resp *keys = vow__resp_at(got, 9);
    bool key = p->law != p->number && keys->n > 0;
    CHECK_UINT_EQ(keys->n, key);
    if (key) {
        char text[VOW_NAME_TEXT];
        CHECK(vow__resp_is(vow__resp_at(keys, 0),
                           vow_name_text(&names[1], text)));
        begin(t, VOW__LUA_POOL, p, 0);
        infos[1] = read_info(t, redis_line_ask(&t->ask));
    }
    struct vow__step step = book_step(&t->rig, 0);
    CHECK_INT_EQ(vow__book_limit(&step, &names[0], &p->limits, label, &want),
                 0);
    check_info(&infos[0], &want.info);
    if (key) {
        CHECK_INT_EQ(vow__book_limit(&step, &names[1], NULL, NULL, &want), 0);
        check_info(&infos[1], &want.info);
    }
}

/* A pool of one key may be gone here and not yet gone there. */
static void look(struct twins *t, struct pool *p)
{
    vow_name name = book_name(p->number);
    struct vow__pool_answer want;
    begin(t, VOW__LUA_POOL, p, 0);
    const struct vow__resp *got = redis_line_ask(&t->ask);
    if (got->kind == VOW__RESP_NIL)
        return;
    struct info info = read_info(t, got);
    struct vow__step step = book_step(&t->rig, 0);
    int rc = vow__book_limit(&step, &name, NULL, NULL, &want);
    if (rc == 0)
        check_info(&info, &want.info);
    else
        CHECK(p->law != p->number);
}

static void step(struct twins *t)
{
    struct pool *p = &t->pools[roll(t, POOLS)];
    uint64_t x = roll(t, 20);
    t->batch = false;
    if (x < 10)
        acquire(t, p);
    else if (x < 14)
        release(t, p);
    else if (x < 18)
        renew(t, p);
    else if (x < 19)
        look(t, p);
    else if (p->changes)
        limit(t, p);
    check_told(t);
}

static void load_scripts(struct twins *t)
{
    for (size_t i = VOW__LUA_ACQUIRE; i <= VOW__LUA_POOL; i++) {
        struct vow__command *c = redis_line_begin(&t->ask, 3);
        vow__command_text(c, "SCRIPT");
        vow__command_text(c, "LOAD");
        vow__command_text(c, vow__redis_scripts[i].text);
        const struct vow__resp *sha = redis_line_ask(&t->ask);
        CHECK(sha->kind == VOW__RESP_TEXT && sha->n == 40);
        memcpy(t->sha[i], sha->text, sha->n);
    }
}

TEST(redis_pool_book, every_answer_is_that_of_the_book)
{
    static struct twins t;
    t.seed = test_seed();
    memcpy(t.pools, KINDS, sizeof(KINDS));
    redis_start(&t.server, NULL);
    redis_line_open(&t.ask, &t.server);
    redis_line_open(&t.hear, &t.server);
    book_open(&t.rig, false);
    load_scripts(&t);
    for (size_t i = 0; i < BOOK_INSTANCES; i++) {
        char channel[32];
        struct vow__command *c = redis_line_begin(&t.hear, 2);
        (void)snprintf(channel, sizeof(channel), "vow:i:%zu", i);
        vow__command_text(c, "SUBSCRIBE");
        vow__command_text(c, channel);
        (void)redis_line_ask(&t.hear);
    }
    for (int i = 0; i < STEPS; i++)
        step(&t);
    CHECK(t.status[VOW_STATUS_OWNED] > 100 &&
          t.status[VOW_STATUS_WAITING] > 100);
    CHECK(t.status[VOW_STATUS_BUSY] > 10 && t.status[VOW_STATUS_NONE] > 10);
    CHECK(t.told > 100);
    book_close(&t.rig);
    redis_line_close(&t.hear);
    redis_line_close(&t.ask);
    redis_stop(&t.server);
}
