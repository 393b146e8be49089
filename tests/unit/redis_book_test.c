/* SPDX-License-Identifier: MIT */
/* redis_book_test.c - the scripts on a real server against the book, side by
 * side: random steps, the same answers, the same wake-ups.
 *
 * Epochs are each one's own: those of a pair were given by the same step, and
 * all pairs of a name must be in the same order. Leases and results last for 0
 * or for an hour, so that nothing depends on how long a step takes.
 *
 * Where they may differ: the server drops the value of a result of ttl 0 that
 * nobody waited for, and then cannot answer with it (a late commit is lost, the
 * owner's own claim waits); giving up is told as a change.
 */
#include "redis_kit.h"
#include "store/book.h"
#include "vow/store_redis.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

enum {
    INSTANCES = 3,
    NAMES = 3,
    TOKENS = 12,
    STEPS = 200,
    SCRIPTS = 12,
    PAIRS = 2 * STEPS,
    LONG_MS = 3600 * 1000,
    RECHECK_MS = 5000,
    VALUE_MAX = 4096,
    PATIENCE_MS = 60000
};

struct pair {
    uint64_t book, redis;
    uint64_t name;
};

/* What was told to an instance. */
struct told {
    unsigned records, cancels;
    vow_name name;
    uint32_t status; /* of the last record, and: */
    uint64_t epoch;
    char value[128];
    size_t size;
};

struct owner {
    uint64_t token;
    struct pair epoch;
};

struct both {
    struct world world;
    struct redis_server server;
    vow_store *at[INSTANCES];
    struct told heard[INSTANCES]; /* by the server */
    struct vow__book *book;
    struct vow__inst *inst[INSTANCES];
    struct told read[INSTANCES]; /* of the book */
    uint64_t seed;
    struct pair pairs[PAIRS];
    size_t n_pairs;
    struct owner owners[NAMES];       /* the last one of each */
    uint64_t asked[NAMES][INSTANCES]; /* the last token of each */
    char said[256];                   /* the last step, for a failure */
};

/* An answer of either. */
struct answer {
    int code;
    size_t n;
    uint32_t status, mode, takeovers, waiters;
    uint64_t epoch, cost_ms, left_ms;
    bool failed;
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
    char value[128];
    size_t size;
};

static uint64_t roll(struct both *b, uint64_t n)
{
    return test_random(&b->seed) % n;
}

static vow_name name_of(uint64_t number)
{
    char text[32];
    snprintf(text, sizeof(text), "name %u", (unsigned)number);
    return vow_name_of(text);
}

static uint64_t number_of(const vow_name *name)
{
    for (uint64_t k = 0; k < NAMES; k++) {
        vow_name other = name_of(k);
        if (vow_name_equal(name, &other))
            return k;
    }
    FAIL("a name that nobody made");
}

static vow_token token_of(uint64_t number)
{
    vow_token t = {.bytes = {0}};
    memset(t.bytes, (int)number + 1, sizeof(t.bytes));
    return t;
}

static void copy_value(vow_bytes *from, char *to, size_t *ret_size)
{
    *ret_size = vow_bytes_size(from);
    CHECK(*ret_size <= 128);
    if (*ret_size > 0)
        memcpy(to, vow_bytes_data(from), *ret_size);
}

/* ---- the server ---------------------------------------------------------- */

static void on_record(const vow_record *r, void *user)
{
    struct told *t = user;
    t->records++;
    t->name = r->name;
    t->status = r->status;
    t->epoch = r->epoch;
    copy_value(r->value, t->value, &t->size);
}

static void on_cancel(const vow_name *name, void *user)
{
    struct told *t = user;
    t->cancels++;
    t->name = *name;
}

static void run_until(struct both *b, const unsigned *counter, unsigned count)
{
    for (int i = 0; *counter < count; i++) {
        VOW_AUTO(vow_future) pause = vow_delay(b->world.loop, i < 50 ? 0 : 1);
        CHECK_INT_EQ(vow_loop_run_until(b->world.loop, pause), 0);
        if (i > PATIENCE_MS)
            FAIL("%s: waited for %u, and there are %u", b->said, count,
                 *counter);
    }
}

struct step {
    unsigned done;
    struct answer *out; /* room for NAMES */
};

static void fill(struct answer *a, int code, const vow_record *r)
{
    *a = (struct answer){.code = code};
    if (r == NULL)
        return;
    a->n = 1;
    a->status = r->status;
    a->mode = r->mode;
    a->takeovers = r->takeovers;
    a->waiters = r->waiters;
    a->epoch = r->epoch;
    a->cost_ms = r->cost_ms;
    a->left_ms = r->left_ms;
    a->failed = r->failed;
    snprintf(a->label, sizeof(a->label), "%s", r->label);
    snprintf(a->runner, sizeof(a->runner), "%s", r->runner);
    copy_value(r->value, a->value, &a->size);
}

static void on_records(int code, const vow_record *r, size_t n, void *user)
{
    struct step *s = user;
    s->done++;
    CHECK(n <= NAMES);
    fill(s->out, code, NULL);
    for (size_t i = 0; i < n; i++)
        fill(&s->out[i], code, &r[i]);
}

static void finish(struct both *b, struct step *s)
{
    run_until(b, &s->done, 1);
    if (s->out[0].code == VOW_ESTORE || s->out[0].code == VOW_EUNSURE)
        FAIL("%s: %s", b->said, b->at[0]->ops->explain(b->at[0]));
}

/* ---- both ---------------------------------------------------------------- */

static void woken(void *user)
{
    (void)user;
}

static struct vow__step at(struct both *b, size_t i)
{
    return (struct vow__step){b->book, b->inst[i],
                              vow_loop_now_ns(b->world.loop) / 1000};
}

/* The pair of an answer of both: a new one is above all others. */
static void check_epochs(struct both *b, uint64_t k, uint64_t book,
                         uint64_t redis)
{
    CHECK((book == 0) == (redis == 0));
    if (book == 0)
        return;
    for (size_t i = 0; i < b->n_pairs; i++) {
        const struct pair *p = &b->pairs[i];
        if (p->name != k)
            continue;
        if ((p->book < book) != (p->redis < redis) ||
            (p->book == book) != (p->redis == redis))
            FAIL("%s: epochs %ju and %ju are not in the same order", b->said,
                 (uintmax_t)book, (uintmax_t)redis);
        if (p->book == book)
            return;
    }
    CHECK(b->n_pairs < PAIRS);
    b->pairs[b->n_pairs++] = (struct pair){book, redis, k};
}

static void check_settled(struct both *b, const struct answer *book,
                          const struct answer *redis)
{
    if (book->size != redis->size ||
        memcmp(book->value, redis->value, book->size) != 0)
        FAIL("%s: value %.*s, want %.*s", b->said, (int)redis->size,
             redis->value, (int)book->size, book->value);
    CHECK_UINT_EQ(redis->cost_ms, book->cost_ms);
}

static void check_same(struct both *b, uint64_t k, const struct answer *book,
                       const struct answer *redis)
{
    if (redis->code != book->code || redis->n != book->n)
        FAIL("%s: code %d, want %d", b->said, redis->code, book->code);
    if (book->n == 0)
        return;
    bool dropped = book->status == VOW_STATUS_SETTLED &&
                   (redis->status == VOW_STATUS_LOST ||
                    redis->status == VOW_STATUS_WAITING);
    if (redis->status != book->status && !dropped)
        FAIL("%s: says %u, want %u", b->said, redis->status, book->status);
    check_epochs(b, k, book->epoch, redis->epoch);
    if (redis->waiters != book->waiters)
        FAIL("%s: %u wait, want %u", b->said, redis->waiters, book->waiters);
    CHECK_UINT_EQ(redis->mode, book->mode);
    CHECK_UINT_EQ(redis->takeovers, book->takeovers);
    CHECK_INT_EQ(redis->failed, book->failed);
    CHECK_STR_EQ(redis->label, book->label);
    CHECK_STR_EQ(redis->runner, book->runner);
    CHECK_INT_EQ(redis->left_ms > LONG_MS / 2, book->left_ms > LONG_MS / 2);
    if (book->status == VOW_STATUS_SETTLED && !dropped && book->size > 0)
        check_settled(b, book, redis);
}

static void check_told(struct both *b, const struct told *t,
                       const struct told *h)
{
    if (h->status != VOW_STATUS_SETTLED)
        return;
    CHECK_UINT_EQ(t->status, VOW_STATUS_SETTLED);
    check_epochs(b, number_of(&t->name), t->epoch, h->epoch);
    CHECK_UINT_EQ(h->size, t->size);
    CHECK_MEM_EQ(h->value, t->value, t->size);
}

/* All that the book has for an instance; the server must tell the same. */
static void check_news(struct both *b)
{
    for (size_t i = 0; i < INSTANCES; i++) {
        struct told *t = &b->read[i];
        struct told *h = &b->heard[i];
        struct vow__news news;
        struct vow__step s = at(b, i);
        while (vow__book_mail(&s, &news)) {
            CHECK(news.kind == VOW__NEWS_RECORD ||
                  news.kind == VOW__NEWS_CANCEL);
            if (news.kind == VOW__NEWS_RECORD)
                on_record(&news.answer.record, t);
            else
                on_cancel(&news.answer.record.name, t);
            vow__answer_fini(&news.answer);
            run_until(b, &h->records, t->records);
            run_until(b, &h->cancels, t->cancels);
            CHECK(vow_name_equal(&h->name, &t->name));
            if (news.kind == VOW__NEWS_RECORD)
                check_told(b, t, h);
        }
        if (h->records != t->records || h->cancels != t->cancels)
            FAIL("%s: %zu was told too much", b->said, i);
    }
}

static struct answer of_book(int code, struct vow__answer *a)
{
    struct answer out;
    fill(&out, code, code == 0 ? &a->record : NULL);
    if (code == 0)
        vow__answer_fini(a);
    return out;
}

/* ---- steps --------------------------------------------------------------- */

/* Some epoch that the name was given, mostly a late one. */
static struct pair some_epoch(struct both *b, uint64_t k)
{
    struct pair found = {1, 1, k};
    uint64_t back = roll(b, 4) == 0 ? roll(b, STEPS) : roll(b, 3);
    for (size_t i = b->n_pairs; i > 0; i--) {
        if (b->pairs[i - 1].name != k)
            continue;
        found = b->pairs[i - 1];
        if (back-- == 0)
            break;
    }
    return found;
}

/* Mostly the owner of the name. */
static struct owner some_owner(struct both *b, uint64_t k)
{
    struct owner o = b->owners[k];
    if (o.epoch.book == 0 || roll(b, 6) == 0)
        o.epoch = some_epoch(b, k);
    if (roll(b, 6) == 0)
        o.token = roll(b, TOKENS);
    return o;
}

static uint64_t span(struct both *b)
{
    return roll(b, 3) == 0 ? 0 : LONG_MS;
}

static const char *some_text(struct both *b)
{
    static const char *const texts[] = {NULL, "", "one", "two", "three"};
    return texts[roll(b, 5)];
}

static const char *runner_of(size_t i)
{
    static const char *const runners[INSTANCES] = {"host:1", "host:2", "x:3"};
    return runners[i];
}

static void step_claim(struct both *b, size_t i, uint64_t k)
{
    struct pair floor =
        roll(b, 5) == 0 ? some_epoch(b, k) : (struct pair){0, 0, k};
    struct answer redis;
    struct step step = {.out = &redis};
    struct vow__answer found;
    uint64_t token = roll(b, 3) == 0 ? b->asked[k][i] : roll(b, TOKENS);
    vow_claim_request ask = {.name = name_of(k),
                             .token = token_of(token),
                             .mode = (uint32_t)roll(b, 3),
                             .flags =
                                 roll(b, 4) == 0 ? (uint32_t)roll(b, 4) : 0,
                             .lease_ms = span(b),
                             .takeovers = (uint32_t)roll(b, 4),
                             .floor = floor.book,
                             .label = some_text(b),
                             .runner = runner_of(i)};
    snprintf(b->said, sizeof(b->said),
             "%zu claims %u by %u, mode %u, flags %u, lease %u", i, (unsigned)k,
             ask.token.bytes[0], ask.mode, ask.flags, (unsigned)ask.lease_ms);
    struct vow__step s = at(b, i);
    int code = vow__book_claim(&s, &ask, &found);
    struct answer book = of_book(code, &found);
    ask.floor = floor.redis;
    b->at[i]->ops->claim(b->at[i], &ask, on_records, &step);
    finish(b, &step);
    check_same(b, k, &book, &redis);
    b->asked[k][i] = token;
    if (book.status == VOW_STATUS_OWNED)
        b->owners[k] = (struct owner){token, {book.epoch, redis.epoch, k}};
}

static void step_commit(struct both *b, size_t i, uint64_t k)
{
    static const uint32_t flags[] = {
        0, 0, 0, VOW_COMMIT_STRICT, VOW_COMMIT_PUT, VOW_COMMIT_RESOLVE};
    struct owner owner = some_owner(b, k);
    struct pair epoch = owner.epoch;
    struct answer redis;
    struct step step = {.out = &redis};
    struct vow__answer found;
    char text[32];
    vow_bytes *value;
    snprintf(text, sizeof(text), "value %u", (unsigned)roll(b, 1000000));
    CHECK_INT_EQ(vow_bytes_new(b->world.loop, text, strlen(text), &value), 0);
    vow_commit_request ask = {.hold = {.name = name_of(k),
                                       .token = token_of(owner.token),
                                       .epoch = epoch.book},
                              .outcome = 1 + (uint32_t)roll(b, 3),
                              .flags = flags[roll(b, 6)],
                              .value = value,
                              .ttl_ms = roll(b, 8) == 0 ? UINT64_MAX : span(b),
                              .cost_ms = roll(b, 100),
                              .label = some_text(b)};
    snprintf(b->said, sizeof(b->said),
             "%zu commits %u by %u with %ju, outcome %u, flags %u, ttl %ju", i,
             (unsigned)k, ask.hold.token.bytes[0], (uintmax_t)epoch.book,
             ask.outcome, ask.flags, (uintmax_t)ask.ttl_ms);
    struct vow__step s = at(b, i);
    int code = vow__book_commit(&s, &ask, &found);
    struct answer book = of_book(code, &found);
    ask.hold.epoch = epoch.redis;
    b->at[i]->ops->commit(b->at[i], &ask, on_records, &step);
    finish(b, &step);
    check_same(b, k, &book, &redis);
    vow_bytes_unref(value);
}

static void step_pulse(struct both *b, size_t i, uint64_t k)
{
    struct owner owner = some_owner(b, k);
    struct pair epoch = owner.epoch;
    struct answer redis[NAMES];
    struct step step = {.out = redis};
    vow_record found[2];
    uint64_t lease_ms = span(b);
    vow_hold holds[2] = {{.name = name_of(k),
                          .token = token_of(owner.token),
                          .epoch = epoch.book},
                         {.name = name_of((k + 1) % NAMES),
                          .token = token_of(roll(b, TOKENS)),
                          .epoch = epoch.book}};
    snprintf(b->said, sizeof(b->said), "%zu pulses %u by %u with %ju, lease %u",
             i, (unsigned)k, holds[0].token.bytes[0], (uintmax_t)epoch.book,
             (unsigned)lease_ms);
    struct vow__step s = at(b, i);
    CHECK_INT_EQ(vow__book_pulse(&s, holds, 2, lease_ms, found), 0);
    holds[0].epoch = epoch.redis;
    holds[1].epoch = epoch.redis;
    b->at[i]->ops->pulse(b->at[i], holds, 2, lease_ms, on_records, &step);
    finish(b, &step);
    for (size_t n = 0; n < 2; n++) { /* that is all a pulse is asked for */
        if (redis[n].status != found[n].status)
            FAIL("%s: says %u, want %u", b->said, redis[n].status,
                 found[n].status);
        CHECK_UINT_EQ(redis[n].takeovers, found[n].takeovers);
        check_epochs(b, (k + n) % NAMES, found[n].epoch, redis[n].epoch);
    }
    if (found[0].status != VOW_STATUS_OWNED)
        return;
    b->owners[k] =
        (struct owner){owner.token, {found[0].epoch, redis[0].epoch, k}};
}

/* Forget, or cancel. */
static void step_manage(struct both *b, size_t i, uint64_t k)
{
    struct pair epoch =
        roll(b, 2) == 0 ? (struct pair){0, 0, k} : some_epoch(b, k);
    struct answer redis;
    struct step step = {.out = &redis};
    struct vow__answer found;
    vow_name name = name_of(k);
    bool forget = roll(b, 2) == 0;
    snprintf(b->said, sizeof(b->said), "%zu %s %u with %ju", i,
             forget ? "forgets" : "cancels", (unsigned)k,
             (uintmax_t)epoch.book);
    struct vow__step s = at(b, i);
    if (forget) {
        vow__book_forget(&s, &name, epoch.book, &found);
        b->at[i]->ops->forget(b->at[i], &name, epoch.redis, on_records, &step);
    } else {
        vow__book_cancel(&s, &name, &found);
        b->at[i]->ops->cancel(b->at[i], &name, on_records, &step);
    }
    struct answer book = of_book(0, &found);
    book.size = 0; /* the value is not asked for */
    finish(b, &step);
    check_same(b, k, &book, &redis);
}

static void step_peek(struct both *b, size_t i, uint64_t k)
{
    struct answer redis[NAMES];
    struct step step = {.out = redis};
    struct vow__sheet found;
    vow_name names[NAMES];
    (void)k;
    snprintf(b->said, sizeof(b->said), "%zu peeks", i);
    for (uint64_t n = 0; n < NAMES; n++)
        names[n] = name_of(n);
    struct vow__step s = at(b, i);
    CHECK_INT_EQ(vow__book_peek(&s, names, NAMES, &found), 0);
    b->at[i]->ops->peek(b->at[i], names, NAMES, on_records, &step);
    finish(b, &step);
    for (size_t n = 0; n < NAMES; n++) {
        struct answer book;
        fill(&book, 0, &found.records[n]);
        check_same(b, n, &book, &redis[n]);
    }
    struct vow_alloc alloc = test_alloc_hook(&b->world.alloc);
    vow__mem_free(&alloc, found.records, found.size);
}

/* ---- scripts ------------------------------------------------------------- */

static void both_open(struct both *b)
{
    struct vow_alloc alloc = test_alloc_hook(&b->world.alloc);
    CHECK_INT_EQ(
        vow__book_new(&(struct vow__book_opts){.alloc = alloc,
                                               .seed = b->seed,
                                               .recheck_ms = RECHECK_MS,
                                               .value_max = VALUE_MAX},
                      &b->book),
        0);
    for (size_t i = 0; i < INSTANCES; i++) {
        CHECK_INT_EQ(vow__book_join(b->book, woken, b, &b->inst[i]), 0);
        VOW_AUTO(vow_future)
        opened = vow_store_redis_open(
            b->world.loop, b->server.url,
            VOW_REDIS_OPTS(.value_max = VALUE_MAX, .recheck_ms = RECHECK_MS,
                           .timeout_ms = PATIENCE_MS));
        if (vow_state_of(opened) != VOW_FULFILLED)
            FAIL("%s", vow_error_message(vow_error_of(opened)));
        b->at[i] = vow_as_ptr(vow_get(opened));
        b->at[i]->ops->listen(b->at[i],
                              &(const vow_store_events){.on_record = on_record,
                                                        .on_cancel = on_cancel,
                                                        .user = &b->heard[i]});
    }
}

/* Each instance is known by its runner from its first claim on. */
static void introduce(struct both *b)
{
    for (size_t i = 0; i < INSTANCES; i++) {
        struct answer redis;
        struct step step = {.out = &redis};
        struct vow__answer found;
        struct vow__step s = at(b, i);
        vow_claim_request ask = {.name = name_of(NAMES + i),
                                 .token = token_of(i),
                                 .runner = runner_of(i)};
        CHECK_INT_EQ(vow__book_claim(&s, &ask, &found), 0);
        vow__answer_fini(&found);
        b->at[i]->ops->claim(b->at[i], &ask, on_records, &step);
        finish(b, &step);
        CHECK_UINT_EQ(redis.status, VOW_STATUS_OWNED);
    }
}

static void both_close(struct both *b)
{
    for (size_t i = 0; i < INSTANCES; i++) {
        VOW_AUTO(vow_future) closed = b->at[i]->ops->close(b->at[i]);
        CHECK_INT_EQ(vow_loop_run_until(b->world.loop, closed), 0);
        vow__book_leave(b->book, b->inst[i], at(b, i).now_us, false);
    }
    vow__book_free(b->book);
}

static void run_script(struct both *b)
{
    static void (*const steps[])(struct both *, size_t, uint64_t) = {
        step_claim, step_claim,  step_claim,  step_claim,
        step_claim, step_commit, step_commit, step_commit,
        step_pulse, step_manage, step_manage, step_peek};
    both_open(b);
    introduce(b);
    for (int i = 0; i < STEPS; i++) {
        size_t who = roll(b, INSTANCES);
        uint64_t k = roll(b, NAMES);
        steps[roll(b, sizeof(steps) / sizeof(steps[0]))](b, who, k);
        check_news(b);
    }
    both_close(b);
}

TEST(redis_book, random_steps_are_answered_alike)
{
    static struct both b;
    uint64_t seed = test_seed();
    world_open_real(&b.world);
    redis_start(&b.server, NULL);
    for (int i = 0; i < SCRIPTS; i++) {
        memset(b.heard, 0, sizeof(b.heard));
        memset(b.read, 0, sizeof(b.read));
        memset(b.owners, 0, sizeof(b.owners));
        b.n_pairs = 0;
        b.seed = test_random(&seed);
        CHECK_STR_EQ(redis_say(&b.server, "FLUSHALL", NULL), "OK");
        run_script(&b);
    }
    redis_stop(&b.server);
    world_close(&b.world);
}
