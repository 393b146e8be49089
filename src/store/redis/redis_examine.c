/* SPDX-License-Identifier: MIT */
/* redis_examine.c - what the doctor asks the servers.
 *
 * WHY   A server may answer well for months, and yet be set to delete keys when
 *       the memory is full. Without questions nobody sees the setting before
 *       keys are lost.
 * HOW   An examination is a fiber (redis_fiber.c), and asks all masters
 *       question after question: settings and state, then clock and round trip.
 *       Last comes every command that the scripts need, on a key of the
 *       examination. A question that the user has no right to ask is a finding
 *       too: an examination needs no rights but the rights of the store. A
 *       server checks rights first: a command that fails for another reason,
 *       as on a key of another kind, is allowed.
 * LIMITS  VOW__EXAM_SERVERS masters; rights are tried on one master.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_examine.h"
#include "base/clock.h"
#include "store/redis/redis_names.h"

#include <stdio.h>
#include <string.h>

enum { QUESTION_WORDS = 8, US_PER_S = 1000000 };

/* KEY stands for the key of the examination, CHANNEL for a channel. */
#define KEY "\1"
#define CHANNEL "\2"
struct question {
    void (*take)(struct vow__exam *e, struct vow__exam_server *s,
                 const struct vow__resp *reply);
    const char *words[QUESTION_WORDS];
};

static void take_save(struct vow__exam *e, struct vow__exam_server *s,
                      const struct vow__resp *reply);
static void take_fsync(struct vow__exam *e, struct vow__exam_server *s,
                       const struct vow__resp *reply);
static void take_info(struct vow__exam *e, struct vow__exam_server *s,
                      const struct vow__resp *reply);
static void take_time(struct vow__exam *e, struct vow__exam_server *s,
                      const struct vow__resp *reply);
static void take_right(struct vow__exam *e, struct vow__exam_server *s,
                       const struct vow__resp *reply);
static int exam_run(struct vow__redis_fiber *f);
static int exam_ask(struct vow__exam *e, const struct question *q);
static void words_of(struct vow__exam *e, const struct question *q,
                     struct vow__buf *c);
static void on_master_answer(struct vow__redis *r, int code,
                             const struct vow__resp *reply, size_t node,
                             bool last, void *exam);
static void on_right_answer(struct vow__redis *r, int code,
                            const struct vow__resp *reply, void *exam);
static struct vow__exam_server *server_of(struct vow__exam *e, size_t node);
static void exam_end(struct vow__redis_fiber *f, int code);

/* All commands of the scripts are here: a test compares. */
static const struct question questions[] = {
    {take_save, {"CONFIG", "GET", "save"}},
    {take_fsync, {"CONFIG", "GET", "appendfsync"}},
    {take_info, {"INFO"}},
    {take_time, {"TIME"}},
    {take_time, {"TIME"}},
    {take_time, {"TIME"}},
    {take_time, {"TIME"}},
    {take_time, {"TIME"}},
    {take_right, {"TIME"}},
    {take_right, {"PERSIST", KEY}}, /* before the key exists */
    {take_right, {"HSET", KEY, "a", "1"}},
    {take_right, {"PEXPIRE", KEY, "10000"}},
    {take_right, {"EVAL", "return 1", "1", KEY}},
    {take_right,
     {"EVALSHA", "0000000000000000000000000000000000000000", "1", KEY}},
    {take_right, {"PUBLISH", CHANNEL, ""}},
    {take_right, {"SCAN", "0", "COUNT", "1"}},
    {take_right, {"HGET", KEY, "a"}},
    {take_right, {"HMGET", KEY, "a"}},
    {take_right, {"HGETALL", KEY}},
    {take_right, {"HKEYS", KEY}},
    {take_right, {"HLEN", KEY}},
    {take_right, {"HEXISTS", KEY, "a"}},
    {take_right, {"HINCRBY", KEY, "a", "1"}},
    {take_right, {"HDEL", KEY, "b"}},
    {take_right, {"LLEN", KEY}},
    {take_right, {"LRANGE", KEY, "0", "0"}},
    {take_right, {"RPUSH", KEY, "a"}},
    {take_right, {"ZADD", KEY, "1", "a"}},
    {take_right, {"ZCARD", KEY}},
    {take_right, {"ZRANGE", KEY, "0", "0"}},
    {take_right, {"ZRANGEBYLEX", KEY, "-", "+"}},
    {take_right, {"ZRANGEBYSCORE", KEY, "0", "1"}},
    {take_right, {"ZRANK", KEY, "a"}},
    {take_right, {"ZREM", KEY, "a"}},
    {take_right, {"ZREMRANGEBYSCORE", KEY, "0", "1"}},
    {take_right, {"ZSCORE", KEY, "a"}},
    {take_right, {"GET", KEY}},
    {take_right, {"SET", KEY, "1"}}, /* until DEL below */
    {take_right, {"EXISTS", KEY}},
    {take_right, {"PTTL", KEY}},
    {take_right, {"PEXPIREAT", KEY, "1"}},
    {take_right, {"DEL", KEY}},
};
enum { QUESTIONS = sizeof(questions) / sizeof(questions[0]) };

void vow__redis_examine(vow_store *store, vow_findings_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    struct vow__exam *e = vow__mem_zero(vow__redis_alloc(r), sizeof(*e));
    if (e == NULL) {
        done(VOW_ENOMEM, NULL, 0, user);
        return;
    }
    e->done = done;
    e->user = user;
    (void)snprintf(e->scratch, sizeof(e->scratch), "p:{doctor-%016llx}",
                   (unsigned long long)vow_loop_random(vow__redis_loop(r)));
    vow__redis_fiber_start(&e->fiber, r, exam_run, exam_end);
}

/* ---- asking -------------------------------------------------------------- */

static int exam_run(struct vow__redis_fiber *f)
{
    struct vow__exam *e = VOW__OUTER(f, struct vow__exam, fiber);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < QUESTIONS; i++) {
        e->question = i; /* also for an answer after a failure */
        rc = exam_ask(e, &questions[i]);
    }
    if (rc == 0)
        vow__exam_judge(e);
    return rc == VOW_EUNSURE ? VOW_ESTORE : rc; /* questions change nothing */
}

static int exam_ask(struct vow__exam *e, const struct question *q)
{
    struct vow__redis *r = e->fiber.r;
    struct vow__buf c;
    words_of(e, q, &c);
    e->sent_ns = vow_loop_now_ns(vow__redis_loop(r));
    vow__redis_fiber_begin(&e->fiber);
    if (q->take == take_right)
        vow__redis_one(r, e->servers[0].node, &c, on_right_answer, e);
    else
        vow__redis_each(r, &c, on_master_answer, e);
    vow__buf_fini(&c);
    return vow__redis_fiber_wait(&e->fiber, 0);
}

static void words_of(struct vow__exam *e, const struct question *q,
                     struct vow__buf *c)
{
    const char *prefix = vow__redis_where_of(e->fiber.r)->prefix;
    char text[512];
    size_t n = 0;
    while (n < QUESTION_WORDS && q->words[n] != NULL)
        n++;
    vow__command_init(c, vow__redis_alloc(e->fiber.r));
    vow__command_begin(c, n);
    for (size_t i = 0; i < n; i++) {
        const char *word = q->words[i];
        bool own = word[0] == KEY[0] || word[0] == CHANNEL[0];
        (void)snprintf(text, sizeof(text), "%s%s", prefix,
                       word[0] == KEY[0] ? e->scratch : "i:doctor");
        vow__command_text(c, own ? text : word);
    }
}

static void on_master_answer(struct vow__redis *r, int code,
                             const struct vow__resp *reply, size_t node,
                             bool last, void *exam)
{
    struct vow__exam *e = exam;
    struct vow__exam_server *s = code == 0 ? server_of(e, node) : NULL;
    (void)r;
    if (s != NULL)
        questions[e->question].take(e, s, reply);
    if (last)
        vow__redis_fiber_answered(&e->fiber, e->n_servers == 0 ? code : 0);
}

static void on_right_answer(struct vow__redis *r, int code,
                            const struct vow__resp *reply, void *exam)
{
    struct vow__exam *e = exam;
    (void)r;
    if (code == 0)
        take_right(e, &e->servers[0], reply);
    vow__redis_fiber_answered(&e->fiber, code);
}

static void exam_end(struct vow__redis_fiber *f, int code)
{
    struct vow__exam *e = VOW__OUTER(f, struct vow__exam, fiber);
    e->done(code, code == 0 ? e->findings : NULL, code == 0 ? e->n : 0,
            e->user);
    vow__mem_free(vow__redis_alloc(f->r), e, sizeof(*e));
}

/* NULL: more than VOW__EXAM_SERVERS masters. */
static struct vow__exam_server *server_of(struct vow__exam *e, size_t node)
{
    for (size_t i = 0; i < e->n_servers; i++)
        if (e->servers[i].node == node)
            return &e->servers[i];
    if (e->n_servers == VOW__EXAM_SERVERS)
        return NULL;
    struct vow__exam_server *s = &e->servers[e->n_servers++];
    s->node = node;
    return s;
}

/* ---- answers ------------------------------------------------------------- */

/* Name and value. */
static bool take_config(const struct vow__resp *reply, char *to, size_t size)
{
    const struct vow__resp *value = vow__resp_at(reply, 1);
    if (reply->kind != VOW__RESP_LIST || value->kind != VOW__RESP_TEXT)
        return false;
    vow__redis_text_copy(to, size, value->text, value->n);
    return true;
}

static void take_save(struct vow__exam *e, struct vow__exam_server *s,
                      const struct vow__resp *reply)
{
    (void)e;
    s->config_seen = take_config(reply, s->save, sizeof(s->save));
}

static void take_fsync(struct vow__exam *e, struct vow__exam_server *s,
                       const struct vow__resp *reply)
{
    (void)e;
    (void)take_config(reply, s->fsync, sizeof(s->fsync));
}

static void take_info(struct vow__exam *e, struct vow__exam_server *s,
                      const struct vow__resp *reply)
{
    (void)e;
    s->info_seen = reply->kind == VOW__RESP_TEXT;
    if (s->info_seen)
        vow__exam_info(s, reply->text, reply->n);
}

/* The time was read in the middle of the round trip. */
static void take_time(struct vow__exam *e, struct vow__exam_server *s,
                      const struct vow__resp *reply)
{
    uint64_t took_us =
        (vow_loop_now_ns(vow__redis_loop(e->fiber.r)) - e->sent_ns) / 1000;
    uint64_t here_us = vow__clock_date_us() - took_us / 2;
    uint64_t there_us = vow__resp_uint(vow__resp_at(reply, 0), 0) * US_PER_S +
                        vow__resp_uint(vow__resp_at(reply, 1), 0);
    size_t at = s->rounds;
    if (reply->kind != VOW__RESP_LIST || s->rounds == VOW__EXAM_ROUNDS)
        return;
    while (at > 0 && s->took_us[at - 1] > took_us) {
        s->took_us[at] = s->took_us[at - 1];
        at--;
    }
    s->took_us[at] = took_us;
    s->rounds++;
    if (at == 0)
        s->ahead_us = (int64_t)(there_us - here_us);
}

static void take_right(struct vow__exam *e, struct vow__exam_server *s,
                       const struct vow__resp *reply)
{
    const char *command = questions[e->question].words[0];
    size_t n = strlen(e->refused);
    (void)s;
    if (vow__error_is(reply, "OOM") || vow__error_is(reply, "NOREPLICAS") ||
        vow__error_is(reply, "MISCONF"))
        vow__error_words(reply, e->unwritten, sizeof(e->unwritten));
    if (!vow__error_is(reply, "NOPERM") &&
        !vow__error_is(reply, "ERR unknown command"))
        return;
    if (strcmp(command, "SCAN") == 0)
        e->scan_refused = true;
    else
        (void)snprintf(e->refused + n, sizeof(e->refused) - n, "%s%s",
                       n > 0 ? ", " : "", command);
}
