/* SPDX-License-Identifier: MIT */
/* redis_rules_test.c - the scripts on a real server are held to the rules.
 *
 * The store and the oracle (tests/lib/oracle.h) run the same requests under the
 * same clock: the scripts of the test read the key PREFIX:test-clock. After
 * each step a script shows all that the server has about the name, and the test
 * compares this text with the oracle's: every field of the record, registered
 * instances, chunks, results left, and how long the keys are kept. Every field
 * of the answers and every byte of the messages is compared, too.
 *
 * Requests are sent without waiting for the answers before, on one connection:
 * the oracle knows what the next request is. One store acts for all instances,
 * by changing its channel.
 */
#include "oracle.h"
#include "redis_kit.h"
#include "store/redis/redis_link.h"
#include "store/redis/redis_names.h"
#include "store/redis/redis_route.h"
#include "vow/store_redis.h"
#include "world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    STEPS = 200,  /* of a random history */
    ENOUGH = 100, /* times that each cell is reached */
    HISTORIES_MAX = 3000,
    BATCH = 250,   /* histories of three steps that are under way at once */
    WINDOW = 1024, /* steps that are under way at once */
    DUMP = 16 * 1024,
    CHANNEL = 64,
    PATIENCE_MS = 60000,
    RECHECK_MS = 5 * 3600 * 1000
};

#define START_US (UINT64_C(20000) * RULES_DAY_US)

extern const struct vow__redis_script vow__redis_scripts_timed[VOW__LUA_N];

/* All that the server has about a name, as a text. */
static const char DUMP_SCRIPT[] =
    "local rec, call = KEYS[1], redis.call\n"
    "local out = {}\n"
    "local function hex(text)\n"
    "return (string.gsub(text or '', '.', function(c)\n"
    "return string.format('%02x', string.byte(c)) end))\n"
    "end\n"
    "local function show(names, f)\n"
    "for i = 1, #names do\n"
    "out[#out + 1] = string.sub(names, i, i) .. '=' .. (f[i] or '')\n"
    "end\n"
    "end\n"
    "local f = call('HMGET', rec, 's', 'm', 'e', 'f', 'a', 't', 'd', 'l',\n"
    "'r', 'L', 'h')\n"
    "if f[1] then\n"
    "show('smefatdlrLh', f)\n"
    "local kept = call('PTTL', rec)\n"
    "out[#out + 1] = 'kept=' .. (kept < 0 and 'never' or\n"
    "string.format('%.0f', math.floor((kept + 30000) / 60000)))\n"
    "out[#out + 1] = 'o=' .. hex(call('HGET', rec, 'o'))\n"
    "if f[1] == 'R' then\n"
    "show('xnbi', call('HMGET', rec, 'x', 'n', 'b', 'i'))\n"
    "else\n"
    "show('cv', call('HMGET', rec, 'c', 'v'))\n"
    "local g = call('HGET', rec, 'g')\n"
    "if g then\n"
    "local a, b = string.match(g, '^(%d+ %d+ %d+ %d+ %a %S+) (.*)$')\n"
    "out[#out + 1] = 'g=' .. a .. ' ' .. hex(string.sub(b, 1, 16)) ..\n"
    "' ' .. string.sub(b, 17)\n"
    "end\n"
    "end\n"
    "end\n"
    "local waits = call('HKEYS', rec .. ':w')\n"
    "table.sort(waits)\n"
    "out[#out + 1] = 'w=' .. table.concat(waits, ',')\n"
    "out[#out + 1] = 'chunks=' ..\n"
    "table.concat(call('LRANGE', rec .. ':c', 0, -1), ',')\n"
    "out[#out + 1] = 'left=' .. #call('KEYS', rec .. ':v:*')\n"
    "for i = 1, #ARGV do\n"
    "local left = rec .. ':v:' .. ARGV[i]\n"
    "show('smefatdclrLv', call('HMGET', left, 's', 'm', 'e', 'f', 'a', 't',\n"
    "'d', 'c', 'l', 'r', 'L', 'v'))\n"
    "end\n"
    "return table.concat(out, ' ')\n";

struct rig;

/* A step under way, with the answer of the oracle. */
struct step {
    struct rig *rig;
    struct oracle_request request;
    struct oracle_answer answer;
    vow_record record;
    size_t first_line; /* of the history */
    size_t line;
    char dump[DUMP];
};

struct messages {
    char text[256 * 1024];
    size_t n;
};

struct rig {
    struct world world;
    struct redis_server server;
    vow_store *store;
    struct vow__redis *redis;
    char channels[ORACLE_INSTANCES][CHANNEL]; /* of the same length */
    char sha[64];
    int fd; /* subscribed to all channels */
    vow_name name;
    char name_text[VOW_NAME_TEXT];
    char key[128];
    uint64_t clock_us; /* that was set */
    size_t first_line; /* of the history */
    struct step steps[WINDOW];
    size_t n_steps;
    unsigned sent, done;
    struct messages want[ORACLE_INSTANCES], got[ORACLE_INSTANCES];
    struct oracle oracle;
};

/* ---- failures ------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) _Noreturn static void
fail_step(const struct step *s, const char *format, ...)
{
    char text[2 * DUMP + 256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    oracle_print_lines(&s->rig->oracle, s->first_line, s->line, stderr);
    fprintf(stderr, "# %s\n", text);
    FAIL("step %zu differs, see above", s->line);
}

#define SAME(s, what, got, want)                                               \
    do {                                                                       \
        uintmax_t got_ = (got);                                                \
        uintmax_t want_ = (want);                                              \
        if (got_ != want_)                                                     \
            fail_step((s), "%s is %ju, the rules say %ju", what, got_, want_); \
    } while (0)

/* ---- what the server has ------------------------------------------------- */

static const char *state_of(const struct rules_record *r)
{
    static const char *const states[] = {"", "R", "D", "E", "G"};
    return states[r->state];
}

static const char *end_of(uint64_t end_us, char text[32])
{
    snprintf(text, 32, "%" PRIu64,
             end_us == RULES_NEVER ? VOW__REDIS_NUMBER_MAX : end_us);
    return text;
}

__attribute__((format(printf, 3, 4))) static size_t
add_to(char *to, size_t n, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int more = vsnprintf(to + n, DUMP - n, format, args);
    va_end(args);
    CHECK(more >= 0 && n + (size_t)more < DUMP);
    return n + (size_t)more;
}

static size_t show_token(const vow_token *token, char *to, size_t n)
{
    for (size_t i = 0; i < sizeof(token->bytes); i++)
        n = add_to(to, n, "%02x", token->bytes[i]);
    return n;
}

static size_t show_refresher(const struct rig *rig,
                             const struct oracle_slot *slot, char *to, size_t n)
{
    const struct rules_refresh *f = &slot->record.r.refresh;
    if (f->epoch == 0)
        return n;
    n = add_to(to, n, "g=%ju %ju %ju %ju %s %s ", (uintmax_t)f->epoch,
               (uintmax_t)f->since_us, (uintmax_t)f->end_us,
               (uintmax_t)f->lease_us / 1000,
               f->failed     ? "F"
               : f->canceled ? "X"
                             : "R",
               rig->channels[slot->owner]);
    n = show_token(&f->token, to, n);
    return add_to(to, n, " %s ", slot->record.refresher);
}

static size_t show_record(const struct rig *rig, const struct oracle_slot *slot,
                          char *to, size_t n)
{
    const struct oracle_record *record = &slot->record;
    const struct rules_record *r = &record->r;
    char end[32];
    n = add_to(to, n,
               "s=%s m=%u e=%ju f=%ju a=%u t=%ju d=%s l=%s r=%s L=%ju h=%s ",
               state_of(r), r->mode, (uintmax_t)r->epoch, (uintmax_t)r->first,
               r->takeovers, (uintmax_t)r->since_us, end_of(r->end_us, end),
               record->label, record->runner, (uintmax_t)r->lease_us / 1000,
               r->spent ? "1" : "");
    if (slot->kept_us == RULES_NEVER)
        n = add_to(to, n, "kept=never o=");
    else
        n = add_to(to, n, "kept=%ju o=",
                   (uintmax_t)(slot->kept_us + 30000000) / 60000000 +
                       r->refresh.failed);
    if (r->state == RULES_GAVE_UP)
        return add_to(to, n, " c= v= ");
    n = show_token(&r->token, to, n);
    if (r->state != RULES_RUNNING) {
        n = add_to(to, n, " c=%ju v=%.*s ", (uintmax_t)r->cost_ms,
                   (int)record->value.n, record->value.bytes);
        return show_refresher(rig, slot, to, n);
    }
    n = add_to(to, n, " x=%s ", r->canceled ? "1" : "");
    n = r->chunks == 0 ? add_to(to, n, "n= b= ")
                       : add_to(to, n, "n=%u b=%ju ", r->chunks,
                                (uintmax_t)r->chunk_bytes);
    return add_to(to, n, "i=%s ", rig->channels[slot->owner]);
}

static void show_slot(const struct rig *rig, const struct oracle_slot *slot,
                      char *to)
{
    size_t n = 0;
    const char *between = "w=";
    if (slot->there)
        n = show_record(rig, slot, to, n);
    for (size_t i = 0; i < ORACLE_INSTANCES; i++)
        if (slot->waits[i]) {
            n = add_to(to, n, "%s%s", between, rig->channels[i]);
            between = ",";
        }
    n = add_to(to, n, "%s chunks=", between[0] == 'w' ? "w=" : "");
    for (uint32_t i = 0; slot->there && i < slot->record.r.chunks; i++)
        n = add_to(to, n, "%s%.*s", i == 0 ? "" : ",", (int)slot->chunks[i].n,
                   slot->chunks[i].bytes);
    n = add_to(to, n, " left=%zu", slot->n_left);
    for (size_t i = 0; i < slot->n_left; i++) {
        const struct oracle_record *left = &slot->left[i];
        const struct rules_record *r = &left->r;
        n = add_to(to, n,
                   " s=%s m=%u e=%ju f=%ju a=%u t=%ju d=%ju c=%ju l=%s r=%s "
                   "L=%ju v=%.*s",
                   state_of(r), r->mode, (uintmax_t)r->epoch,
                   (uintmax_t)r->first, r->takeovers, (uintmax_t)r->since_us,
                   (uintmax_t)r->end_us, (uintmax_t)r->cost_ms, left->label,
                   left->runner, (uintmax_t)r->lease_us / 1000,
                   (int)left->value.n, left->value.bytes);
    }
}

static void on_dump(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *step)
{
    struct step *s = step;
    (void)r;
    s->rig->done++;
    CHECK_INT_EQ(code, 0);
    if (reply->n != strlen(s->dump) ||
        memcmp(reply->text, s->dump, reply->n) != 0)
        fail_step(s, "the server has\n#   %.*s\n# the rules say\n#   %s",
                  (int)reply->n, reply->text, s->dump);
}

/* ---- answers ------------------------------------------------------------- */

static void check_value(struct step *s, const vow_record *got)
{
    const struct oracle_answer *a = &s->answer;
    size_t n = vow_bytes_size(got->value);
    if (a->record.r.state == RULES_GAVE_UP) {
        CHECK((n > 0) == a->shows_value); /* the store made the failure */
        return;
    }
    size_t want = a->shows_value ? a->record.value.n : 0;
    if (n != want || (n > 0 && memcmp(vow_bytes_data(got->value),
                                      a->record.value.bytes, n) != 0))
        fail_step(s, "the value has %zu bytes, the rules say %zu: %.*s", n,
                  want, (int)want, a->record.value.bytes);
}

static void check_record(struct step *s, const vow_record *got)
{
    const vow_record *want = &s->record;
    SAME(s, "mode", got->mode, want->mode);
    SAME(s, "epoch", got->epoch, want->epoch);
    SAME(s, "first", got->first, want->first);
    SAME(s, "takeovers", got->takeovers, want->takeovers);
    SAME(s, "waiters", got->waiters, want->waiters);
    SAME(s, "failed", got->failed, want->failed);
    SAME(s, "age", got->age_ms, want->age_ms);
    SAME(s, "pulse", got->pulse_ms, want->pulse_ms);
    SAME(s, "left", got->left_ms, want->left_ms);
    SAME(s, "cost", got->cost_ms, want->cost_ms);
    if (strcmp(got->label, want->label) != 0 ||
        strcmp(got->runner, want->runner) != 0)
        fail_step(s, "label and runner are %s, %s, the rules say %s, %s",
                  got->label, got->runner, want->label, want->runner);
}

/* Some answers have only a status, see redis_names.c. */
static void on_answer(int code, const vow_record *got, size_t n, void *step)
{
    struct step *s = step;
    const enum oracle_kind kind = s->request.kind;
    const uint32_t status = s->answer.status;
    s->rig->done++;
    if (code != s->answer.code)
        fail_step(s, "the code is %d (%s), the rules say %d", code,
                  s->rig->store->ops->explain(s->rig->store), s->answer.code);
    if (code != 0)
        return;
    CHECK_UINT_EQ(n, 1);
    SAME(s, "status", got->status, status);
    if (kind == ORACLE_PULSE) {
        SAME(s, "epoch", got->epoch, s->answer.epoch);
        SAME(s, "takeovers", got->takeovers, s->record.takeovers);
        return;
    }
    if (kind == ORACLE_WRITE || status == VOW_STATUS_NONE)
        return;
    if (kind == ORACLE_COMMIT && status == VOW_STATUS_OWNED) {
        SAME(s, "epoch", got->epoch, s->answer.epoch);
        return;
    }
    check_record(s, got);
    if (status == VOW_STATUS_SETTLED &&
        (kind == ORACLE_CLAIM || kind == ORACLE_COMMIT))
        check_value(s, got);
}

/* ---- messages ------------------------------------------------------------ */

__attribute__((format(printf, 2, 3))) static void
add_message(struct messages *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int more = vsnprintf(m->text + m->n, sizeof(m->text) - m->n, format, args);
    va_end(args);
    CHECK(more >= 0 && m->n + (size_t)more < sizeof(m->text));
    m->n += (size_t)more;
}

/* The message of an event; each ends with a blank line. */
static void expect_message(struct rig *rig, size_t instance,
                           const struct oracle_event *e)
{
    static const char letters[] = "SAXC";
    const struct oracle_record *record = &e->record;
    const struct rules_record *r = &record->r;
    struct messages *m = &rig->want[instance];
    add_message(m, "%c%s", letters[e->kind], rig->name_text);
    if (e->kind == ORACLE_SETTLED) {
        add_message(m, " %s %u %ju %u ", state_of(r), r->mode,
                    (uintmax_t)r->epoch, r->takeovers);
        if (r->end_us == RULES_NEVER)
            add_message(m, "-1");
        else
            add_message(m, "%ju", (uintmax_t)(r->end_us - r->since_us));
        add_message(m, " %ju %d %zu %zu\n%s%s%.*s", (uintmax_t)r->cost_ms,
                    r->spent, strlen(record->label), strlen(record->runner),
                    record->label, record->runner, (int)record->value.n,
                    record->value.bytes);
    }
    add_message(m, "\n\n");
}

static void read_fully(int fd, char *to, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t more = read(fd, to + got, n - got);
        CHECK(more > 0);
        got += (size_t)more;
    }
}

/* Reads "$5\r\n" or "*3\r\n". */
static size_t read_size(int fd, char kind)
{
    char text[32];
    size_t n = 0;
    do {
        CHECK(n + 1 < sizeof(text));
        read_fully(fd, text + n++, 1);
    } while (text[n - 1] != '\n');
    text[n] = 0;
    if (text[0] != kind)
        FAIL("%c was expected: %s", kind, text);
    return (size_t)strtoul(text + 1, NULL, 10);
}

static void read_bulk(int fd, char *to, size_t size)
{
    size_t n = read_size(fd, '$');
    CHECK(n + 2 < size);
    read_fully(fd, to, n + 2);
    to[n] = 0;
}

/* Reads all messages that were published before. */
static void read_messages(struct rig *rig)
{
    char word[CHANNEL];
    char channel[CHANNEL];
    static char text[DUMP];
    CHECK_INT_EQ(write(rig->fd, "PING\r\n", 6), 6);
    for (;;) {
        size_t n = read_size(rig->fd, '*');
        read_bulk(rig->fd, word, sizeof(word));
        read_bulk(rig->fd, channel, sizeof(channel));
        if (n == 2 && strcmp(word, "pong") == 0)
            return;
        CHECK_STR_EQ(word, "message");
        read_bulk(rig->fd, text, sizeof(text));
        for (size_t i = 0; i < ORACLE_INSTANCES; i++)
            if (strcmp(channel, rig->channels[i]) == 0)
                add_message(&rig->got[i], "%s\n\n", text);
    }
}

static void check_messages(struct rig *rig)
{
    read_messages(rig);
    for (size_t i = 0; i < ORACLE_INSTANCES; i++) {
        struct messages *want = &rig->want[i];
        struct messages *got = &rig->got[i];
        if (want->n != got->n || memcmp(want->text, got->text, want->n) != 0) {
            size_t at = 0;
            while (at < want->n && at < got->n &&
                   want->text[at] == got->text[at])
                at++;
            at -= at < 200 ? at : 200;
            FAIL("messages to instance %zu: %.600s\n# the rules say: %.600s", i,
                 got->n > at ? got->text + at : "",
                 want->n > at ? want->text + at : "");
        }
        want->n = got->n = 0;
    }
}

/* ---- steps --------------------------------------------------------------- */

static void drain(struct rig *rig)
{
    for (int i = 0; rig->done < rig->sent; i++) {
        VOW_AUTO(vow_future)
        pause = vow_delay(rig->world.loop, i < 999 ? 0 : 1);
        CHECK_INT_EQ(vow_loop_run_until(rig->world.loop, pause), 0);
        CHECK(i < PATIENCE_MS);
    }
    rig->n_steps = 0;
    check_messages(rig);
}

static void on_plain(struct vow__redis *r, int code,
                     const struct vow__resp *reply, void *user)
{
    struct rig *rig = user;
    (void)r;
    rig->done++;
    CHECK_INT_EQ(code, 0);
    CHECK(reply->kind != VOW__RESP_ERROR);
}

/* A command of at most two arguments, behind all that was sent. */
static void send_plain(struct rig *rig, const char *word, const char *a,
                       const char *b)
{
    struct vow__buf c;
    vow__command_init(&c, vow__redis_alloc(rig->redis));
    vow__command_begin(&c, a == NULL ? 1 : 3);
    vow__command_text(&c, word);
    if (a != NULL) {
        vow__command_text(&c, a);
        vow__command_text(&c, b);
    }
    rig->sent++;
    vow__redis_one(rig->redis, 0, &c, on_plain, rig);
    vow__buf_fini(&c);
}

static void send_dump(struct rig *rig, struct step *s)
{
    const struct oracle_slot *slot = oracle_slot(&rig->oracle, &rig->name);
    struct vow__buf c;
    show_slot(rig, slot, s->dump);
    vow__command_init(&c, vow__redis_alloc(rig->redis));
    vow__command_begin(&c, 4 + slot->n_left);
    vow__command_text(&c, "EVALSHA");
    vow__command_text(&c, rig->sha);
    vow__command_text(&c, "1");
    vow__command_text(&c, rig->key);
    for (size_t i = 0; i < slot->n_left; i++)
        vow__command_uint(&c, slot->left[i].r.first);
    rig->sent++;
    vow__redis_one(rig->redis, 0, &c, on_dump, s);
    vow__buf_fini(&c);
}

static void set_clock(struct rig *rig, uint64_t now_us)
{
    char text[32];
    snprintf(text, sizeof(text), "%" PRIu64, now_us);
    if (rig->clock_us != now_us)
        send_plain(rig, "SET", "vow:test-clock", text);
    rig->clock_us = now_us;
}

/* The store acts as this instance. */
static void become(struct rig *rig, size_t instance)
{
    memcpy((char *)(uintptr_t)vow__redis_channel(rig->redis),
           rig->channels[instance], strlen(rig->channels[instance]));
    memcpy(vow__redis_runner(rig->redis), rig->oracle.runners[instance],
           VOW_LABEL_MAX + 1);
}

static void send_step(struct rig *rig, struct step *s, vow_bytes *value)
{
    const struct oracle_request *q = &s->request;
    const vow_store_ops *ops = rig->store->ops;
    vow_commit_request commit = q->commit;
    commit.value = value;
    switch (q->kind) {
    case ORACLE_CLAIM:
        ops->claim(rig->store, &q->claim, on_answer, s);
        break;
    case ORACLE_PULSE:
        ops->pulse(rig->store, &q->hold, 1, q->lease_ms, on_answer, s);
        break;
    case ORACLE_COMMIT:
        ops->commit(rig->store, &commit, on_answer, s);
        break;
    case ORACLE_FORGET:
        ops->forget(rig->store, &q->name, q->epoch, on_answer, s);
        break;
    case ORACLE_CANCEL_STEP:
        ops->cancel(rig->store, &q->name, on_answer, s);
        break;
    case ORACLE_WRITE:
        ops->write(rig->store, &q->hold, q->number, value, on_answer, s);
        break;
    case ORACLE_PEEK:
        ops->peek(rig->store, &q->name, 1, on_answer, s);
        break;
    }
}

static void run_step(struct rig *rig, size_t choice)
{
    struct oracle *o = &rig->oracle;
    struct oracle_event e;
    vow_bytes *value;
    if (rig->n_steps == WINDOW)
        drain(rig);
    struct step *s = &rig->steps[rig->n_steps++];
    s->rig = rig;
    oracle_choose(o, &rig->name, choice, &s->request);
    CHECK_INT_EQ(vow_bytes_new(rig->world.loop, s->request.bytes,
                               strlen(s->request.bytes), &value),
                 0);
    set_clock(rig, s->request.now_us);
    oracle_do(o, &s->request, value, &s->answer);
    s->record = oracle_record_of(o, &rig->name, &s->answer);
    s->first_line = rig->first_line;
    s->line = o->n_lines;
    become(rig, s->request.instance);
    rig->sent++;
    send_step(rig, s, value);
    send_dump(rig, s);
    vow_bytes_unref(value);
    for (size_t i = 0; i < ORACLE_INSTANCES; i++)
        while (oracle_event_take(o, i, &e))
            expect_message(rig, i, &e);
}

static void begin_history(struct rig *rig)
{
    send_plain(rig, "FLUSHALL", NULL, NULL);
    oracle_clear(&rig->oracle);
    rig->clock_us = 0;
    rig->oracle.now_us = START_US;
    rig->oracle.number = START_US;
    rig->first_line = rig->oracle.n_lines;
}

/* ---- opening ------------------------------------------------------------- */

static void rig_subscribe(struct rig *rig)
{
    char text[ORACLE_INSTANCES * CHANNEL + 16] = "SUBSCRIBE";
    char word[CHANNEL];
    size_t n = strlen(vow__redis_channel(rig->redis));
    for (size_t i = 0; i < ORACLE_INSTANCES; i++) {
        CHECK(n < CHANNEL);
        memset(rig->channels[i], 'a' + (int)i, n);
        memcpy(rig->channels[i], "vow:i:", 6);
        strcat(text, " ");
        strcat(text, rig->channels[i]);
    }
    strcat(text, "\r\n");
    rig->fd = redis_connect(rig->server.port);
    CHECK_INT_EQ(write(rig->fd, text, strlen(text)), (ssize_t)strlen(text));
    for (size_t i = 0; i < ORACLE_INSTANCES; i++) {
        CHECK_UINT_EQ(read_size(rig->fd, '*'), 3);
        read_bulk(rig->fd, word, sizeof(word));
        read_bulk(rig->fd, word, sizeof(word));
        CHECK_UINT_EQ(read_size(rig->fd, ':'), i + 1);
    }
}

static void on_greeted(int code, const vow_record *r, size_t n, void *user)
{
    struct rig *rig = user;
    (void)r;
    (void)n;
    rig->done++;
    CHECK_INT_EQ(code, 0);
}

static struct rig *rig_open(void)
{
    static struct rig rig;
    world_open_real(&rig.world);
    redis_start(&rig.server, NULL);
    VOW_AUTO(vow_future)
    opened = vow_store_redis_open(
        rig.world.loop, rig.server.url,
        VOW_REDIS_OPTS(.recheck_ms = RECHECK_MS, .timeout_ms = PATIENCE_MS));
    CHECK(vow_state_of(opened) == VOW_FULFILLED);
    rig.store = vow_as_ptr(vow_get(opened));
    rig.redis = vow__redis_of(rig.store);
    vow__redis_route(rig.redis)->scripts = vow__redis_scripts_timed;
    vow__redis_route(rig.redis)->main.link->scripts = vow__redis_scripts_timed;
    rig.name = vow_name_of("a");
    (void)vow_name_text(&rig.name, rig.name_text);
    snprintf(rig.key, sizeof(rig.key), "vow:p:{%s}", rig.name_text);
    snprintf(rig.sha, sizeof(rig.sha), "%s",
             redis_say(&rig.server, "SCRIPT", "LOAD", DUMP_SCRIPT, NULL));
    oracle_init(&rig.oracle, &(struct oracle_opts){.recheck_ms = RECHECK_MS,
                                                   .clamps = true,
                                                   .promotes = true,
                                                   .rises = true});
    for (size_t i = 0; i < VOW__LUA_N; i++) /* else a step is sent twice */
        send_plain(&rig, "SCRIPT", "LOAD", vow__redis_scripts_timed[i].text);
    rig.sent++;
    rig.store->ops->peek(rig.store, &rig.name, 1, on_greeted, &rig);
    rig_subscribe(&rig);
    drain(&rig);
    return &rig;
}

static void rig_close(struct rig *rig)
{
    drain(rig);
    VOW_AUTO(vow_future) closed = rig->store->ops->close(rig->store);
    CHECK_INT_EQ(vow_loop_run_until(rig->world.loop, closed), 0);
    closed = vow_future_unref(closed);
    CHECK_INT_EQ(close(rig->fd), 0);
    redis_stop(&rig->server);
    world_close(&rig->world);
}

/* ---- tests --------------------------------------------------------------- */

TEST(redis_rules, random_histories_reach_every_cell)
{
    struct rig *rig = rig_open();
    uint64_t seed = test_seed();
    char missing[128] = "";
    int histories = 0;
    while (oracle_missing(&rig->oracle, ENOUGH, missing, sizeof(missing))) {
        if (histories++ == HISTORIES_MAX)
            FAIL("not reached: %s", missing);
        begin_history(rig);
        for (int i = 0; i < STEPS; i++)
            run_step(rig, oracle_draw(&seed, (size_t)i));
    }
    rig_close(rig);
}

/* Runs all histories of two steps of `n` choices, after the steps `first`. */
static void run_histories(struct rig *rig, size_t n, const size_t *first,
                          size_t n_first)
{
    for (size_t i = 0; i < n * n; i++) {
        begin_history(rig);
        for (size_t k = 0; k < n_first; k++)
            run_step(rig, first[k]);
        run_step(rig, i / n);
        run_step(rig, i % n);
        if (i % BATCH == 0)
            drain(rig);
    }
}

TEST_OPTS(redis_rules, short_histories_are_answered_alike, .timeout_s = 900)
{
    struct rig *rig = rig_open();
    const size_t n = oracle_plain_choices();
    const size_t refreshed[] = {n, n + 1, n + 2};
    run_histories(rig, n, NULL, 0);
    run_histories(rig, oracle_choices(), refreshed, 3);
    for (size_t first = 0; first < n; first++)
        run_histories(rig, n, &first, 1);
    rig_close(rig);
}
