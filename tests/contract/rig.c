/* SPDX-License-Identifier: MIT */
/* rig.c - asking a store and waiting for its answer, time, and what it tells.
 *
 * HOW   Every ask begins one step and runs the loop until it is answered; on
 *       virtual time without moving it. An answer is copied at once.
 */
#include "contract.h"
#include <stdio.h>
#include <string.h>

enum { PATIENCE_MS = 90000, SLICE_MS = 2, SHORT_MS = 100 };

/* A step under way. */
struct step {
    unsigned done; /* how often it was answered */
    int code;
    size_t n;
    void *out;
    size_t room;
    size_t size; /* of what `out` has */
};

static void run_a_little(struct rig *r)
{
    if (!r->store->real_time) {
        world_advance_ms(&r->world, 0);
        return;
    }
    VOW_AUTO(vow_future) pause = vow_delay(r->world.loop, SLICE_MS);
    CHECK_INT_EQ(vow_loop_run_until(r->world.loop, pause), 0);
}

static void await(struct rig *r, const unsigned *counter, unsigned count)
{
    for (int i = 0; *counter < count && i < PATIENCE_MS / SLICE_MS; i++)
        run_a_little(r);
    if (*counter < count)
        FAIL("waited for %u, and there are %u", count, *counter);
}

static void finish(struct rig *r, struct step *s)
{
    await(r, &s->done, 1);
    CHECK_UINT_EQ(s->done, 1);
}

/* ---- records ------------------------------------------------------------- */

static void copy_text(char *to, const char *from)
{
    CHECK(from != NULL);
    CHECK(strlen(from) <= VOW_LABEL_MAX);
    snprintf(to, VOW_LABEL_MAX + 1, "%s", from);
}

static void copy_bytes(unsigned char *to, size_t room, vow_bytes *from)
{
    size_t n = vow_bytes_size(from) < room ? vow_bytes_size(from) : room;
    if (n > 0)
        memcpy(to, vow_bytes_data(from), n);
}

static void copy_record(struct rig_answer *a, const vow_record *r)
{
    a->status = r->status;
    a->epoch = r->epoch;
    a->first = r->first;
    a->mode = r->mode;
    a->takeovers = r->takeovers;
    a->waiters = r->waiters;
    a->failed = r->failed;
    a->age_ms = r->age_ms;
    a->pulse_ms = r->pulse_ms;
    a->left_ms = r->left_ms;
    a->cost_ms = r->cost_ms;
    a->name = r->name;
    copy_text(a->label, r->label);
    copy_text(a->runner, r->runner);
    a->value_size = vow_bytes_size(r->value);
    copy_bytes(a->value, sizeof(a->value), r->value);
}

static void on_records(int code, const vow_record *records, size_t n,
                       void *user)
{
    struct step *s = user;
    struct rig_answer *out = s->out;
    s->done++;
    s->code = code;
    s->n = n;
    CHECK(code == 0 || n == 0);
    for (size_t i = 0; i < n && i < s->room; i++) {
        out[i] = (struct rig_answer){.code = code};
        copy_record(&out[i], &records[i]);
    }
}

static struct rig_answer one(struct rig *r, struct step *s)
{
    struct rig_answer *a = s->out;
    finish(r, s);
    a->code = s->code;
    if (s->code == 0)
        CHECK_UINT_EQ(s->n, 1);
    return *a;
}

struct rig_answer rig_claim(struct rig *r, size_t i,
                            const vow_claim_request *ask)
{
    struct rig_answer a = {.code = 0};
    struct step s = {.out = &a, .room = 1};
    r->at[i]->ops->claim(r->at[i], ask, on_records, &s);
    return one(r, &s);
}

struct rig_answer rig_peek(struct rig *r, size_t i, const char *text)
{
    struct rig_answer a = {.code = 0};
    vow_name name = rig_name(text);
    a.code = rig_peek_all(r, i, &name, 1, &a);
    return a;
}

int rig_peek_all(struct rig *r, size_t i, const vow_name *names, size_t n,
                 struct rig_answer *out)
{
    struct step s = {.out = out, .room = n};
    r->at[i]->ops->peek(r->at[i], names, n, on_records, &s);
    finish(r, &s);
    CHECK_UINT_EQ(s.n, s.code == 0 ? n : 0);
    for (size_t k = 0; k < s.n; k++) {
        CHECK(vow_name_equal(&out[k].name, &names[k]));
        CHECK_UINT_EQ(out[k].value_size, 0);
    }
    return s.code;
}

struct rig_answer rig_pulse(struct rig *r, size_t i, const vow_hold *hold,
                            uint64_t lease_ms)
{
    struct rig_answer a = {.code = 0};
    struct step s = {.out = &a, .room = 1};
    r->at[i]->ops->pulse(r->at[i], hold, 1, lease_ms, on_records, &s);
    return one(r, &s);
}

int rig_pulse_all(struct rig *r, size_t i, const vow_hold *holds, size_t n,
                  struct rig_answer *out)
{
    struct step s = {.out = out, .room = n};
    r->at[i]->ops->pulse(r->at[i], holds, n, LONG_MS, on_records, &s);
    finish(r, &s);
    CHECK_UINT_EQ(s.n, s.code == 0 ? n : 0);
    return s.code;
}

struct rig_answer rig_commit(struct rig *r, size_t i,
                             const vow_commit_request *ask, const char *text)
{
    struct rig_answer a = {.code = 0};
    struct step s = {.out = &a, .room = 1};
    vow_commit_request with = *ask;
    VOW_AUTO(vow_bytes) value = NULL;
    if (text != NULL) {
        CHECK_INT_EQ(vow_bytes_new(r->world.loop, text, strlen(text), &value),
                     0);
        with.value = value;
    }
    r->at[i]->ops->commit(r->at[i], &with, on_records, &s);
    return one(r, &s);
}

struct rig_answer rig_forget(struct rig *r, size_t i, const char *text,
                             uint64_t epoch)
{
    struct rig_answer a = {.code = 0};
    struct step s = {.out = &a, .room = 1};
    vow_name name = rig_name(text);
    r->at[i]->ops->forget(r->at[i], &name, epoch, on_records, &s);
    return one(r, &s);
}

struct rig_answer rig_cancel(struct rig *r, size_t i, const char *text)
{
    struct rig_answer a = {.code = 0};
    struct step s = {.out = &a, .room = 1};
    vow_name name = rig_name(text);
    r->at[i]->ops->cancel(r->at[i], &name, on_records, &s);
    return one(r, &s);
}

size_t rig_list(struct rig *r, size_t i, struct rig_answer *out, size_t room)
{
    struct step s = {.out = out, .room = room};
    r->at[i]->ops->list(r->at[i], on_records, &s);
    finish(r, &s);
    CHECK_INT_EQ(s.code, 0);
    return s.n;
}

void rig_check_waiters(const struct rig *r, uint32_t got, uint32_t want)
{
    CHECK_UINT_EQ(got, r->store->counts_no_waiters ? UINT32_MAX : want);
}

/* ---- chunks -------------------------------------------------------------- */

struct rig_answer rig_write(struct rig *r, size_t i, const vow_hold *hold,
                            uint64_t number, const char *text)
{
    struct rig_answer a = {.code = 0};
    struct step s = {.out = &a, .room = 1};
    VOW_AUTO(vow_bytes) chunk = NULL;
    CHECK_INT_EQ(vow_bytes_new(r->world.loop, text, strlen(text), &chunk), 0);
    r->at[i]->ops->write(r->at[i], hold, number, chunk, on_records, &s);
    return one(r, &s);
}

static void on_chunks(int code, vow_bytes *const *chunks, size_t n,
                      uint64_t next, void *user)
{
    struct step *s = user;
    struct rig_chunks *out = s->out;
    size_t at = 0;
    s->done++;
    out->code = code;
    out->n = n;
    out->next = next;
    for (size_t i = 0; i < n; i++) {
        size_t size = vow_bytes_size(chunks[i]);
        CHECK(at + size + 2 <= sizeof(out->text));
        copy_bytes((unsigned char *)out->text + at, size, chunks[i]);
        at += size;
        out->text[at++] = '|';
    }
    out->text[at] = 0;
}

struct rig_chunks rig_read(struct rig *r, size_t i, const char *text,
                           uint64_t epoch, uint64_t from)
{
    struct rig_chunks out = {.code = 0};
    struct step s = {.out = &out};
    vow_name name = rig_name(text);
    r->at[i]->ops->read(r->at[i], &name, epoch, from, on_chunks, &s);
    finish(r, &s);
    return out;
}

/* ---- places -------------------------------------------------------------- */

static void on_places(int code, const vow_pool_permit *places, size_t n,
                      void *user)
{
    struct step *s = user;
    struct rig_place *out = s->out;
    s->done++;
    out->code = code;
    CHECK_UINT_EQ(n, code == 0 ? 1 : 0);
    if (code == 0)
        out->place = places[0];
}

struct rig_place rig_acquire(struct rig *r, size_t i,
                             const vow_permit_request *ask)
{
    struct rig_place out = {.code = 0};
    struct step s = {.out = &out};
    r->at[i]->ops->acquire(r->at[i], ask, on_places, &s);
    finish(r, &s);
    return out;
}

struct rig_place rig_release(struct rig *r, size_t i, const char *text,
                             uint64_t number)
{
    struct rig_place out = {.code = 0};
    struct step s = {.out = &out};
    vow_permit_hold hold = {rig_name(text), rig_limits_name(text),
                            rig_token(number), false};
    r->at[i]->ops->release(r->at[i], &hold, on_places, &s);
    finish(r, &s);
    return out;
}

void rig_renew_hold(struct rig *r, size_t i, const vow_permit_hold *hold,
                    uint64_t lease_ms, struct rig_place *ret_place)
{
    struct step s = {.out = ret_place};
    r->at[i]->ops->renew(r->at[i], hold, 1, lease_ms, on_places, &s);
    finish(r, &s);
}

struct rig_place rig_renew(struct rig *r, size_t i, const char *text,
                           uint64_t number, uint64_t lease_ms)
{
    struct rig_place out = {.code = 0};
    const vow_permit_hold hold = {rig_name(text), rig_limits_name(text),
                                  rig_token(number), false};
    rig_renew_hold(r, i, &hold, lease_ms, &out);
    return out;
}

struct rig_place rig_start(struct rig *r, size_t i, const char *text,
                           uint64_t number, uint64_t lease_ms)
{
    struct rig_place out = {.code = 0};
    const vow_permit_hold hold = {rig_name(text), rig_limits_name(text),
                                  rig_token(number), true};
    rig_renew_hold(r, i, &hold, lease_ms, &out);
    return out;
}

static void on_pools(int code, const vow_pool_info *pools, size_t n, void *user)
{
    struct step *s = user;
    struct rig_pool *out = s->out;
    s->done++;
    s->code = code;
    s->n = n;
    for (size_t i = 0; i < n && i < s->room; i++) {
        out[i] = (struct rig_pool){.code = 0, .info = pools[i]};
        copy_text(out[i].label, pools[i].label);
        out[i].info.label = NULL;
    }
}

struct rig_pool rig_limit(struct rig *r, size_t i, const char *text,
                          const vow_pool_limits *limits)
{
    struct rig_pool out = {.code = 0};
    struct step s = {.out = &out, .room = 1};
    vow_name name = rig_name(text);
    r->at[i]->ops->limit(r->at[i], &name, limits, text, on_pools, &s);
    finish(r, &s);
    CHECK_UINT_EQ(s.n, s.code == 0 ? 1 : 0);
    out.code = s.code;
    return out;
}

size_t rig_pools(struct rig *r, size_t i, struct rig_pool *out, size_t room)
{
    struct step s = {.out = out, .room = room};
    r->at[i]->ops->pools(r->at[i], on_pools, &s);
    finish(r, &s);
    CHECK_INT_EQ(s.code, 0);
    return s.n;
}

/* ---- names and tokens ---------------------------------------------------- */

/* Not vow_name_of(): a store need not know how names are made. */
vow_name rig_limits_name(const char *pool)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "%.*s", (int)strcspn(pool, ":"), pool);
    return rig_name(text);
}

vow_name rig_name(const char *text)
{
    vow_name name = {.hash = {0}};
    uint64_t state = 1;
    for (const char *c = text; *c != 0; c++) {
        state = state * 31 + (unsigned char)*c;
        (void)test_random(&state);
    }
    for (size_t i = 0; i < sizeof(name.hash); i++)
        name.hash[i] = (unsigned char)test_random(&state);
    return name;
}

vow_token rig_token(uint64_t number)
{
    vow_token token = {.bytes = {0}};
    uint64_t state = number + 1;
    for (size_t i = 0; i < sizeof(token.bytes); i++)
        token.bytes[i] = (unsigned char)test_random(&state);
    return token;
}

/* ---- what is told -------------------------------------------------------- */

static void told_record(const vow_record *rec, void *user)
{
    struct rig_news *news = user;
    news->records++;
    news->name = rec->name;
    news->status = rec->status;
    news->epoch = rec->epoch;
    CHECK(rec->status == 0 || rec->status == VOW_STATUS_SETTLED);
    if (rec->status == 0)
        return;
    news->value_size = vow_bytes_size(rec->value);
    copy_bytes(news->value, sizeof(news->value), rec->value);
}

static void told_cancel(const vow_name *name, void *user)
{
    struct rig_news *news = user;
    news->cancels++;
    news->name = *name;
}

static void told_chunks(const vow_name *name, void *user)
{
    struct rig_news *news = user;
    news->chunks++;
    news->name = *name;
}

static void told_place(const vow_token *token, void *user)
{
    struct rig_news *news = user;
    news->places++;
    news->token = *token;
}

static void told_doubt(void *user)
{
    struct rig_news *news = user;
    news->doubts++;
}

void rig_expect(struct rig *r, const unsigned *counter, unsigned count)
{
    await(r, counter, count);
}

/* ---- time ---------------------------------------------------------------- */

uint64_t rig_short_ms(const struct rig *r)
{
    return r->store->short_ms > 0 ? r->store->short_ms : SHORT_MS;
}

void rig_lapse(struct rig *r)
{
    rig_advance_ms(r, rig_short_ms(r) + 1 + r->store->late_ms);
    while (r->store->lapsed != NULL && !r->store->lapsed(r))
        run_a_little(r);
}

void rig_advance_ms(struct rig *r, uint64_t ms)
{
    if (!r->store->real_time) {
        world_advance_ms(&r->world, ms);
        return;
    }
    VOW_AUTO(vow_future) pause = vow_delay(r->world.loop, ms);
    CHECK_INT_EQ(vow_loop_run_until(r->world.loop, pause), 0);
}

uint64_t rig_now_us(const struct rig *r)
{
    return vow_loop_now_ns(r->world.loop) / 1000;
}

/* ---- instances ----------------------------------------------------------- */

void rig_reopen(struct rig *r, size_t i)
{
    CHECK(r->at[i] == NULL);
    r->news[i] = (struct rig_news){.records = 0};
    r->at[i] = r->store->open(r);
    CHECK_UINT_EQ(r->at[i]->ops->version, VOW_STORE_VERSION);
    CHECK_UINT_EQ(r->at[i]->ops->value_max, RIG_VALUE_MAX);
    CHECK_STR_EQ(r->at[i]->ops->kind, r->store->name);
    r->at[i]->ops->listen(r->at[i],
                          &(const vow_store_events){.on_record = told_record,
                                                    .on_cancel = told_cancel,
                                                    .on_chunks = told_chunks,
                                                    .on_permit = told_place,
                                                    .on_doubt = told_doubt,
                                                    .user = &r->news[i]});
}

void rig_close(struct rig *r, size_t i)
{
    VOW_AUTO(vow_future) closed = r->at[i]->ops->close(r->at[i]);
    r->at[i] = NULL;
    CHECK_INT_EQ(vow_loop_run_until(r->world.loop, closed), 0);
}

void contract_run(const struct rig_store *store, contract_fn body)
{
    struct rig r = {.store = store};
    if (store->real_time)
        world_open_real(&r.world);
    else
        world_open(&r.world);
    store->begin(&r);
    for (size_t i = 0; i < RIG_INSTANCES; i++)
        rig_reopen(&r, i);
    body(&r);
    for (size_t i = 0; i < RIG_INSTANCES; i++)
        if (r.at[i] != NULL)
            rig_close(&r, i);
    store->end(&r);
    world_close(&r.world);
}
