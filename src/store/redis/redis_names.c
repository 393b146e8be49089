/* SPDX-License-Identifier: MIT */
/* redis_names.c - claim, pulse, commit and the other steps on names.
 *
 * WHY   Each step is atomic at the server and one round trip: a script in lua/,
 *       whose keys all belong to one name.
 * HOW   A step on one name is a small struct that waits for the answer of the
 *       call. Steps on many names are cut into calls of at most CALL_MAX names,
 *       so that no script stalls the server; in a cluster each name has a call
 *       of its own. The answers of the calls are joined and given once.
 *       A sealed result that has expired is no result, whatever the server
 *       says: the step claims again, without the result.
 * INVARIANTS
 *   N1  the memory for the answer to a step that may change something is
 *       allocated before the step is sent; only the memory for a value is not,
 *       and values come only with answers that changed nothing
 * LIMITS  An answer that makes no sense is VOW_EUNSURE: the step may have
 *       happened.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_names.h"
#include "store/rules/rules.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    CALL_MAX = 128,
    TOO_LARGE = 253,
    REFUSED = 255,
    SEALED_LEFT_MS =
        10 * 60 * 1000 /* how long waiters may open a result left */
};

#define STATUS(what) (1u << VOW_STATUS_##what)

/* A step on one name. */
struct step {
    vow_records_fn done;
    void *user;
    vow_name name;
    uint32_t may_say;         /* STATUS(...) of what makes sense */
    uint32_t rowless;         /* of these, what comes without a row */
    bool valued;              /* a result comes with its value */
    bool refreshes;           /* the same, or without */
    uint64_t epoch;           /* of a commit or chunk */
    uint64_t waited;          /* of a claim */
    struct again *again;      /* of a claim whose result may be over */
    char text[VOW_NAME_TEXT]; /* of the name */
};

/* A claim that can be made once more. */
struct again {
    vow_store *store;
    vow_claim_request ask;
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
};

/* A step on many: one block with all that follows. */
struct batch {
    vow_records_fn done;
    void *user;
    size_t size; /* of the block */
    size_t n;
    size_t left; /* calls without an answer */
    bool pulse;  /* else it looks */
    uint64_t lease_ms;
    bool some; /* a call was answered well */
    int code;  /* of one that was not */
    vow_record *records;
    struct vow__redis_texts *texts; /* of those who look */
    struct part *parts;
};

/* The names of one call. */
struct part {
    struct batch *batch;
    size_t first;
    size_t n;
};

static struct step *begin_for_all(vow_store *store, enum vow__script script,
                                  const struct step *like,
                                  struct vow__call **ret_call);
static struct step *step_begin(struct vow__redis *r, enum vow__script script,
                               const struct step *like,
                               struct vow__call **ret_call);
static void step_end(struct vow__redis *r, struct step *s, int code,
                     const vow_record *rec);
static struct again *again_new(vow_store *store, const vow_claim_request *ask);
static void claim_again(struct vow__redis *r, struct step *s);
static void add_text(struct vow__call *c, const char *text);
static void add_left_key(struct vow__call *c, const struct step *s);
static bool token_is_zero(const vow_token *token);
static void on_record(struct vow__redis *r, int code,
                      const struct vow__resp *reply, void *step);
static int read_record(struct vow__redis *r, const struct step *s,
                       const struct vow__resp *reply, vow_record *rec,
                       struct vow__redis_texts *texts);
static void add_commit(struct vow__redis *r, struct vow__call *c,
                       const vow_commit_request *ask);
static struct batch *batch_new(struct vow__redis *r, size_t n, bool pulse);
static void batch_send(struct vow__redis *r, struct batch *b,
                       const vow_hold *holds);
static int part_send(struct vow__redis *r, struct part *p,
                     const vow_hold *holds);
static void on_part(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *part);
static int read_part(const struct part *p, const struct vow__resp *reply);
static int read_pulse(const struct batch *b, const struct vow__resp *found,
                      vow_record *rec);
static int read_look(const struct vow__resp *found, const struct vow__resp *now,
                     struct vow__redis_texts *texts, vow_record *rec);
static void join(struct vow__redis *r, struct batch *b, int code);

static uint64_t at_most(uint64_t number, uint64_t most)
{
    return number < most ? number : most;
}

/* ---- claim -------------------------------------------------------------- */

void vow__redis_claim(vow_store *store, const vow_claim_request *ask,
                      vow_records_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    struct vow__call *c;
    if (ask->floor >= VOW__REDIS_NUMBER_MAX || ask->mode > VOW_ONCE ||
        token_is_zero(&ask->token)) {
        done(VOW_EINVAL, NULL, 0, user);
        return;
    }
    struct step *s =
        step_begin(r, VOW__LUA_CLAIM,
                   &(struct step){.done = done,
                                  .user = user,
                                  .name = ask->name,
                                  .valued = true,
                                  .waited = ask->waited,
                                  .refreshes = ask->refresh != 0,
                                  .may_say = STATUS(OWNED) | STATUS(WAITING) |
                                             STATUS(SETTLED) | STATUS(DOUBT)},
                   &c);
    if (s == NULL)
        return;
    if (vow__redis_where_of(r)->sealed && (ask->flags & VOW_CLAIM_FORCE) == 0)
        s->again = again_new(store, ask); /* without memory it fails */
    size_t runner = vow__redis_text_size(ask->runner);
    if (runner > 0)
        vow__redis_text_copy(vow__redis_runner(r), VOW_LABEL_MAX + 1,
                             ask->runner, runner);
    vow__call_arg(c, ask->token.bytes, sizeof(ask->token.bytes));
    vow__call_text(c, vow__redis_channel(r));
    vow__call_uint(c, at_most(ask->lease_ms, VOW__REDIS_MS_MAX));
    vow__call_uint(c, ask->takeovers);
    vow__call_uint(c, ask->flags & (VOW_CLAIM_NOWAIT | VOW_CLAIM_FORCE));
    vow__call_uint(c, ask->floor);
    vow__call_uint(c, ask->mode);
    add_text(c, ask->label);
    add_text(c, ask->runner);
    vow__call_text(c, s->text);
    vow__call_uint(c, ask->refresh);
    vow__call_send(c, on_record, s);
}

static struct again *again_new(vow_store *store, const vow_claim_request *ask)
{
    struct again *a =
        vow__mem_new(vow__redis_alloc(vow__redis_of(store)), sizeof(*a));
    if (a == NULL)
        return NULL;
    a->store = store;
    a->ask = *ask;
    a->ask.flags |= VOW_CLAIM_FORCE;
    vow__redis_text_copy(a->label, sizeof(a->label),
                         ask->label == NULL ? "" : ask->label,
                         vow__redis_text_size(ask->label));
    vow__redis_text_copy(a->runner, sizeof(a->runner),
                         ask->runner == NULL ? "" : ask->runner,
                         vow__redis_text_size(ask->runner));
    a->ask.label = a->label;
    a->ask.runner = a->runner;
    return a;
}

static void claim_again(struct vow__redis *r, struct step *s)
{
    struct again *a = s->again;
    vow_records_fn done = s->done;
    void *user = s->user;
    vow__mem_free(vow__redis_alloc(r), s, sizeof(*s));
    vow__redis_claim(a->store, &a->ask, done, user);
    vow__mem_free(vow__redis_alloc(r), a, sizeof(*a));
}

/* The key of the result that the run left for waiters. */
static void add_left_key(struct vow__call *c, const struct step *s)
{
    char rest[32];
    (void)snprintf(rest, sizeof(rest), ":v:%" PRIu64, s->waited);
    vow__call_key(c, "p:", s->text, rest);
}

static bool token_is_zero(const vow_token *token)
{
    static const vow_token zero;
    return memcmp(token, &zero, sizeof(zero)) == 0;
}

static void add_text(struct vow__call *c, const char *text)
{
    vow__call_arg(c, text == NULL ? "" : text, vow__redis_text_size(text));
}

/* ---- commit ------------------------------------------------------------- */

void vow__redis_commit(vow_store *store, const vow_commit_request *ask,
                       vow_records_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    struct vow__call *c;
    vow_bytes *sealed = NULL;
    int rc = 0;
    if (ask->outcome < VOW_OUTCOME_DONE ||
        ask->outcome > VOW_OUTCOME_ABANDONED ||
        ask->hold.epoch >= VOW__REDIS_NUMBER_MAX || ask->hold.epoch == 0)
        rc = VOW_EINVAL;
    else if (vow_bytes_size(ask->value) > vow__redis_where_of(r)->value_max)
        rc = VOW_E2BIG;
    else if (ask->outcome != VOW_OUTCOME_ABANDONED)
        rc = vow__redis_seal(
            r,
            &(struct vow__seal_of){&ask->hold.name, ask->hold.epoch,
                                   ask->outcome == VOW_OUTCOME_FAILED
                                       ? VOW__PART_FAILED
                                       : VOW__PART_DONE},
            ask->ttl_ms > 0 ? ask->ttl_ms : SEALED_LEFT_MS, ask->value,
            &sealed);
    if (rc < 0) {
        done(rc, NULL, 0, user);
        return;
    }
    struct step *s =
        step_begin(r, VOW__LUA_COMMIT,
                   &(struct step){.done = done,
                                  .user = user,
                                  .name = ask->hold.name,
                                  .epoch = ask->hold.epoch,
                                  .valued = true,
                                  .may_say = STATUS(NONE) | STATUS(OWNED) |
                                             STATUS(SETTLED) | STATUS(LOST),
                                  .rowless = STATUS(NONE) | STATUS(OWNED)},
                   &c);
    if (s != NULL) {
        add_commit(r, c, ask);
        vow__call_text(c, s->text);
        vow__call_arg(c, sealed == NULL ? "" : (char *)vow_bytes_data(sealed),
                      vow_bytes_size(sealed));
        vow__call_send(c, on_record, s);
    }
    vow_bytes_unref(sealed);
}

static uint64_t spent_keep_ms(uint64_t recheck_ms, bool replaced)
{
    return at_most(vow__rules_keep_us(recheck_ms, replaced) / 1000,
                   VOW__REDIS_MS_MAX);
}

static void add_commit(struct vow__redis *r, struct vow__call *c,
                       const vow_commit_request *ask)
{
    static const char *const outcomes[] = {"", "D", "E", "A"};
    const struct vow__redis_where *w = vow__redis_where_of(r);
    vow__call_arg(c, ask->hold.token.bytes, sizeof(ask->hold.token.bytes));
    vow__call_uint(c, ask->hold.epoch);
    vow__call_text(c, outcomes[ask->outcome]);
    vow__call_uint(c, ask->flags & (VOW_COMMIT_STRICT | VOW_COMMIT_PUT |
                                    VOW_COMMIT_RESOLVE));
    if (ask->ttl_ms > VOW__REDIS_MS_MAX)
        vow__call_text(c, "-1");
    else
        vow__call_uint(c, ask->ttl_ms);
    vow__call_uint(c, at_most(ask->cost_ms, VOW__REDIS_NUMBER_MAX));
    add_text(c, ask->label);
    vow__call_text(c, vow__redis_runner(r));
    vow__call_uint(c, w->inline_max);
    vow__call_uint(c, spent_keep_ms(w->recheck_ms, false));
    vow__call_uint(c, spent_keep_ms(w->recheck_ms, true));
}

/* ---- forget, cancel ----------------------------------------------------- */

/* By whoever, of whatever is there. */
static struct step *begin_for_all(vow_store *store, enum vow__script script,
                                  const struct step *like,
                                  struct vow__call **ret_call)
{
    struct step s = *like;
    s.may_say =
        STATUS(NONE) | STATUS(WAITING) | STATUS(SETTLED) | STATUS(DOUBT);
    s.rowless = STATUS(NONE);
    return step_begin(vow__redis_of(store), script, &s, ret_call);
}

void vow__redis_forget(vow_store *store, const vow_name *name, uint64_t epoch,
                       vow_records_fn done, void *user)
{
    const struct step like = {.done = done, .user = user, .name = *name};
    struct vow__call *c;
    struct step *s = begin_for_all(store, VOW__LUA_FORGET, &like, &c);
    if (s == NULL)
        return;
    vow__call_uint(c, epoch);
    vow__call_text(c, s->text);
    vow__call_send(c, on_record, s);
}

void vow__redis_cancel(vow_store *store, const vow_name *name,
                       vow_records_fn done, void *user)
{
    const struct step like = {.done = done, .user = user, .name = *name};
    struct vow__call *c;
    struct step *s = begin_for_all(store, VOW__LUA_CANCEL, &like, &c);
    if (s == NULL)
        return;
    vow__call_text(c, s->text);
    vow__call_send(c, on_record, s);
}

/* ---- write -------------------------------------------------------------- */

void vow__redis_write(vow_store *store, const vow_hold *hold, uint64_t number,
                      vow_bytes *chunk, vow_records_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    size_t most = vow__redis_where_of(r)->value_max;
    struct vow__call *c;
    vow_bytes *sealed = NULL;
    int rc = 0;
    if (number >= VOW__REDIS_NUMBER_MAX)
        rc = VOW_EINVAL;
    else if (vow_bytes_size(chunk) > most)
        rc = VOW_E2BIG;
    else
        rc = vow__redis_seal(
            r, &(struct vow__seal_of){&hold->name, hold->epoch, number + 1},
            UINT64_MAX, chunk, &sealed);
    if (rc < 0) {
        done(rc, NULL, 0, user);
        return;
    }
    struct step *s =
        step_begin(r, VOW__LUA_WRITE,
                   &(struct step){.done = done,
                                  .user = user,
                                  .name = hold->name,
                                  .epoch = hold->epoch,
                                  .may_say = STATUS(OWNED) | STATUS(LOST),
                                  .rowless = STATUS(OWNED) | STATUS(LOST)},
                   &c);
    if (s != NULL) {
        vow__call_arg(c, hold->token.bytes, sizeof(hold->token.bytes));
        vow__call_uint(c, hold->epoch);
        vow__call_uint(c, number);
        vow__call_uint(c, vow_bytes_size(chunk));
        vow__call_uint(c, most);
        vow__call_text(c, s->text);
        vow__call_arg(c, sealed == NULL ? "" : (char *)vow_bytes_data(sealed),
                      vow_bytes_size(sealed));
        vow__call_send(c, on_record, s);
    }
    vow_bytes_unref(sealed);
}

/* ---- steps on one name -------------------------------------------------- */

/* A step and its call with all keys of the name. NULL: `done` was told. */
static struct step *step_begin(struct vow__redis *r, enum vow__script script,
                               const struct step *like,
                               struct vow__call **ret_call)
{
    static const char *const keys[][4] = {[VOW__LUA_CLAIM] = {":w", ":c"},
                                          [VOW__LUA_COMMIT] = {":w", ":c"},
                                          [VOW__LUA_WRITE] = {":w", ":c"},
                                          [VOW__LUA_FORGET] = {":w", ":c"},
                                          [VOW__LUA_CANCEL] = {":w"}};
    struct step *s = vow__mem_new(vow__redis_alloc(r), sizeof(*s));
    struct vow__call *c = s == NULL ? NULL : vow__call_new(r, script);
    if (c == NULL) {
        vow__mem_free(vow__redis_alloc(r), s, sizeof(*s));
        like->done(VOW_ENOMEM, NULL, 0, like->user);
        return NULL;
    }
    *s = *like;
    (void)vow_name_text(&s->name, s->text);
    vow__call_key(c, "p:", s->text, "");
    for (const char *const *rest = keys[script]; *rest != NULL; rest++)
        vow__call_key(c, "p:", s->text, *rest);
    if (s->waited != 0)
        add_left_key(c, s);
    if (script == VOW__LUA_CLAIM)
        vow__call_highest(c, s->text);
    *ret_call = c;
    return s;
}

static void step_end(struct vow__redis *r, struct step *s, int code,
                     const vow_record *rec)
{
    vow_records_fn done = s->done;
    void *user = s->user;
    vow__mem_free(vow__redis_alloc(r), s->again, sizeof(*s->again));
    vow__mem_free(vow__redis_alloc(r), s, sizeof(*s));
    done(code, code == 0 ? rec : NULL, code == 0, user);
}

static void on_record(struct vow__redis *r, int code,
                      const struct vow__resp *reply, void *step)
{
    struct step *s = step;
    struct vow__redis_texts texts;
    vow_record rec = {.label = "", .runner = ""};
    if (code == 0)
        code = read_record(r, s, reply, &rec, &texts);
    vow_bytes *value = rec.value;
    if (code == VOW_EIO) {
        vow__redis_trouble(r, "the answer of the server makes no sense");
        code = VOW_EUNSURE;
    }
    if (code == VOW_ENOENT && s->again != NULL)
        claim_again(r, s);
    else
        step_end(r, s, code == VOW_ENOENT ? VOW_ESTORE : code, &rec);
    vow_bytes_unref(value);
}

/* Says, now, who waits, the row, the value. */
static int read_record(struct vow__redis *r, const struct step *s,
                       const struct vow__resp *reply, vow_record *rec,
                       struct vow__redis_texts *texts)
{
    uint64_t status = vow__resp_uint(vow__resp_at(reply, 0), UINT64_MAX);
    uint64_t now_us = vow__resp_uint(vow__resp_at(reply, 1), 0);
    uint64_t waiters = vow__resp_uint(vow__resp_at(reply, 2), 0);
    if (status == REFUSED || status == TOO_LARGE)
        return status == REFUSED ? VOW_EINVAL : VOW_E2BIG;
    if (status > VOW_STATUS_BUSY || (s->may_say & 1u << status) == 0 ||
        now_us == 0)
        return VOW_EIO;
    rec->name = s->name;
    rec->status = (uint32_t)status;
    rec->waiters = (uint32_t)at_most(waiters, UINT32_MAX);
    if ((s->rowless & 1u << status) != 0) {
        rec->epoch = status == VOW_STATUS_OWNED ? s->epoch : 0;
        return 0;
    }
    int state = vow__redis_row(vow__resp_at(reply, 3), now_us, texts, rec);
    if (state < 0 || status != VOW_STATUS_SETTLED)
        return state < 0 ? state : 0;
    if (state == VOW__STATE_RUNS)
        return VOW_EIO;
    bool valued = s->valued && !(s->refreshes && reply->n == 4);
    return valued ? vow__redis_value(r, rec, state, vow__resp_at(reply, 4),
                                     &rec->value)
                  : 0;
}

/* ---- steps on many names ------------------------------------------------ */

void vow__redis_pulse(vow_store *store, const vow_hold *holds, size_t n,
                      uint64_t lease_ms, vow_records_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    int code = 0;
    for (size_t i = 0; i < n; i++)
        if (holds[i].epoch >= VOW__REDIS_NUMBER_MAX ||
            token_is_zero(&holds[i].token))
            code = VOW_EINVAL;
    struct batch *b = n == 0 || code < 0 ? NULL : batch_new(r, n, true);
    if (b == NULL) {
        done(n == 0 || code < 0 ? code : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    b->done = done;
    b->user = user;
    for (size_t i = 0; i < n; i++)
        b->records[i].name = holds[i].name;
    b->lease_ms = at_most(lease_ms, VOW__REDIS_MS_MAX);
    batch_send(r, b, holds);
}

void vow__redis_peek(vow_store *store, const vow_name *names, size_t n,
                     vow_records_fn done, void *user)
{
    struct vow__redis *r = vow__redis_of(store);
    struct batch *b = n == 0 ? NULL : batch_new(r, n, false);
    if (b == NULL) {
        done(n == 0 ? 0 : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    b->done = done;
    b->user = user;
    for (size_t i = 0; i < n; i++)
        b->records[i].name = names[i];
    batch_send(r, b, NULL);
}

static struct batch *batch_new(struct vow__redis *r, size_t n, bool pulse)
{
    size_t each = vow__redis_one_slot(r) ? CALL_MAX : 1;
    size_t parts = n / each + (n % each != 0);
    size_t one = sizeof(vow_record) + sizeof(struct part) +
                 (pulse ? 0 : sizeof(struct vow__redis_texts));
    if (n > (SIZE_MAX - sizeof(struct batch)) / one)
        return NULL;
    size_t size = sizeof(struct batch) + n * one;
    struct batch *b = vow__mem_zero(vow__redis_alloc(r), size);
    if (b == NULL)
        return NULL;
    b->size = size;
    b->n = n;
    b->pulse = pulse;
    b->left = parts;
    b->records = (vow_record *)(void *)(b + 1);
    b->parts = (struct part *)(void *)(b->records + n);
    b->texts = pulse ? NULL : (struct vow__redis_texts *)(void *)(b->parts + n);
    for (size_t i = 0; i < parts; i++)
        b->parts[i] = (struct part){
            .batch = b, .first = i * each, .n = at_most(each, n - i * each)};
    return b;
}

/* It may be over, and freed, when the last call is sent. */
static void batch_send(struct vow__redis *r, struct batch *b,
                       const vow_hold *holds)
{
    size_t parts = b->left;
    b->left++; /* until all are sent */
    for (size_t i = 0; i < parts; i++) {
        int rc = part_send(r, &b->parts[i], holds);
        if (rc < 0)
            join(r, b, rc);
    }
    join(r, b, 0);
}

static int part_send(struct vow__redis *r, struct part *p,
                     const vow_hold *holds)
{
    const struct batch *b = p->batch;
    char name[VOW_NAME_TEXT];
    struct vow__call *c =
        vow__call_new(r, b->pulse ? VOW__LUA_PULSE : VOW__LUA_PEEK);
    if (c == NULL)
        return VOW_ENOMEM;
    for (size_t i = p->first; i < p->first + p->n; i++) {
        (void)vow_name_text(&b->records[i].name, name);
        vow__call_key(c, "p:", name, "");
        if (!b->pulse)
            vow__call_key(c, "p:", name, ":w");
    }
    if (b->pulse) {
        vow__call_highest(c, name);
        vow__call_uint(c, b->lease_ms);
        vow__call_text(c, vow__redis_channel(r));
        vow__call_text(c, vow__redis_runner(r));
    }
    for (size_t i = p->first; holds != NULL && i < p->first + p->n; i++) {
        vow__call_arg(c, holds[i].token.bytes, sizeof(holds[i].token.bytes));
        vow__call_uint(c, holds[i].epoch);
        vow__call_uint(c, holds[i].mode);
    }
    vow__call_send(c, on_part, p);
    return 0;
}

static void on_part(struct vow__redis *r, int code,
                    const struct vow__resp *reply, void *part)
{
    const struct part *p = part;
    if (code == 0)
        code = read_part(p, reply);
    if (code == VOW_EIO) {
        vow__redis_trouble(r, "the answer of the server makes no sense");
        code = VOW_EUNSURE;
    }
    p->batch->some |= code == 0;
    join(r, p->batch, code);
}

static int read_part(const struct part *p, const struct vow__resp *reply)
{
    const struct batch *b = p->batch;
    size_t want = b->pulse ? 3 * p->n : p->n + 1;
    if (reply->kind != VOW__RESP_LIST || reply->n != want)
        return VOW_EIO;
    for (size_t i = 0; i < p->n; i++) {
        vow_record *rec = &b->records[p->first + i];
        rec->label = "";
        rec->runner = "";
        int rc = b->pulse ? read_pulse(b, &reply->items[3 * i], rec)
                          : read_look(&reply->items[i + 1], &reply->items[0],
                                      &b->texts[p->first + i], rec);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Says, epoch, takeovers. */
static int read_pulse(const struct batch *b, const struct vow__resp *found,
                      vow_record *rec)
{
    uint64_t status = vow__resp_uint(&found[0], UINT64_MAX);
    uint64_t epoch = vow__resp_uint(&found[1], 0);
    uint64_t takeovers = vow__resp_uint(&found[2], 0);
    bool ours = status == VOW_STATUS_OWNED || status == VOW_STATUS_CANCELED;
    if ((!ours && status != VOW_STATUS_SETTLED && status != VOW_STATUS_LOST) ||
        (ours && epoch == 0) || epoch > VOW__REDIS_NUMBER_MAX)
        return VOW_EIO;
    rec->status = (uint32_t)status;
    rec->epoch = epoch;
    rec->takeovers = (uint32_t)at_most(takeovers, UINT32_MAX);
    rec->left_ms = ours ? b->lease_ms : 0;
    return 0;
}

/* Says, who waits and the row. */
static int read_look(const struct vow__resp *found, const struct vow__resp *now,
                     struct vow__redis_texts *texts, vow_record *rec)
{
    uint64_t now_us = vow__resp_uint(now, 0);
    uint64_t status = vow__resp_uint(vow__resp_at(found, 0), UINT64_MAX);
    uint64_t waiters = vow__resp_uint(vow__resp_at(found, 1), 0);
    const struct vow__resp *row = vow__resp_at(found, 2);
    if (now_us == 0 ||
        (status != VOW_STATUS_NONE && status != VOW_STATUS_WAITING &&
         status != VOW_STATUS_SETTLED && status != VOW_STATUS_DOUBT))
        return VOW_EIO;
    rec->status = (uint32_t)status;
    rec->waiters = (uint32_t)at_most(waiters, UINT32_MAX);
    if (status == VOW_STATUS_NONE && row->kind == VOW__RESP_NIL)
        return 0;
    int state = vow__redis_row(row, now_us, texts, rec);
    return state < 0 ? state : 0;
}

/* One call was answered, or all were sent. What happened in part is unsure;
 * looking has no effect. */
static void join(struct vow__redis *r, struct batch *b, int code)
{
    if (b->code == 0 || code == VOW_ECLOSED)
        b->code = code;
    else if (code != 0 && code != b->code && b->code != VOW_ECLOSED)
        b->code = VOW_EUNSURE;
    if (--b->left > 0)
        return;
    code = b->code;
    if (code != 0 && code != VOW_ECLOSED && b->some && b->pulse)
        code = VOW_EUNSURE;
    const struct vow_alloc alloc = *vow__redis_alloc(r);
    b->done(code, code == 0 ? b->records : NULL, code == 0 ? b->n : 0, b->user);
    vow__mem_free(&alloc, b, b->size);
}
