/* SPDX-License-Identifier: MIT */
/* sqlite_rules_test.c - the store in a folder is held to the rules.
 *
 * Three instances in one folder and the oracle (tests/lib/oracle.h) run the
 * same requests under the same clock. After each step all fields of the answer,
 * the row of the record, the registered instances, the chunks, the results left
 * for waiters, the copy that survives a reboot, and the events are compared.
 */
#include "oracle.h"
#include "sqlite_kit.h"

#include <inttypes.h>

enum { INSTANCES = 3, STEPS = 100, ENOUGH = 5, HISTORIES_MAX = 5000 };
#define START_US (UINT64_C(1000) * RULES_DAY_US)
#define SAME(what, got, want)                                                  \
    do {                                                                       \
        uintmax_t got_ = (got);                                                \
        uintmax_t want_ = (want);                                              \
        if (got_ != want_)                                                     \
            rules_fail("%s is %ju, the rules say %ju", what, got_, want_);     \
    } while (0)

static struct oracle oracle;
static const char *const RUNNERS[INSTANCES] = {"host:1", "host:2", "x:3"};

/* What the store answered, and told. */
struct rules_rig {
    struct folder folder;
    struct kit kits[INSTANCES];
    unsigned chunks[INSTANCES]; /* told */
    struct oracle_request request;
    struct oracle_answer want;
    vow_name name;
};

__attribute__((format(printf, 1, 2))) _Noreturn static void
rules_fail(const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    oracle_print(&oracle, stderr);
    FAIL("%s", text);
}

static int64_t oracle_clock_us(void)
{
    return (int64_t)oracle.now_us;
}

static void on_chunks(const vow_name *name, void *user)
{
    struct kit *k = user;
    (void)name;
    k->places++; /* the test has no pools */
}

static void rules_open(struct rules_rig *rig)
{
    oracle_init(&oracle, &(struct oracle_opts){.recheck_ms = FILE_RECHECK_MS,
                                               .exact = true});
    oracle.now_us = oracle.number = START_US;
    folder_open(&rig->folder);
    for (size_t i = 0; i < INSTANCES; i++) {
        struct kit *k = &rig->kits[i];
        kit_open(k, rig->folder.path);
        struct vow__file *s = vow__file_of(k->store);
        s->clock_us = oracle_clock_us;
        s->swept = true; /* nothing is swept */
        s->events.on_chunks = on_chunks;
        vow_claim_request joins = kit_ask("an instance", 1 + i);
        joins.runner = RUNNERS[i];
        joins.lease_ms = 0;
        CHECK_UINT_EQ(kit_claim_as(k, &joins).status, VOW_STATUS_OWNED);
    }
}

static void rules_close(struct rules_rig *rig)
{
    for (size_t i = 0; i < INSTANCES; i++) {
        vow__file_of(rig->kits[i].store)->clock_us = vow__file_clock_us;
        kit_close(&rig->kits[i]);
    }
    folder_close(&rig->folder);
}

/* ---- the file ------------------------------------------------------------ */

/* Epochs are the clock, as in the oracle. */
static int base_step(struct vow__file *s, void *arg)
{
    (void)arg;
    s->base = 0;
    return vow__file_do(s, vow__file_sql(s, "UPDATE meta SET base=0"));
}

static void base_reset(struct rules_rig *rig)
{
    bool raised = false;
    for (size_t i = 0; i < INSTANCES; i++)
        raised |= vow__file_of(rig->kits[i].store)->base != 0;
    for (size_t i = 0; i < INSTANCES && raised; i++) {
        struct vow__file *s = vow__file_of(rig->kits[i].store);
        CHECK_INT_EQ(vow__file_step(s, VOW__FILE_WRITE, base_step, NULL), 0);
    }
}

static void same_refresher(const struct vow__file_row *got,
                           const struct oracle_record *want)
{
    const struct rules_refresh *a = &got->record.refresh;
    const struct rules_refresh *b = &want->r.refresh;
    SAME("refresher", a->epoch, b->epoch);
    SAME("the refresher's token",
         memcmp(&a->token, &b->token, sizeof(a->token)) != 0, 0);
    SAME("since when it refreshes", a->since_us, b->since_us);
    SAME("end of the refresher", a->end_us, b->end_us);
    SAME("lease of the refresher", a->lease_us, b->lease_us);
    SAME("failed refresh", a->failed, b->failed);
    SAME("canceled refresh", a->canceled, b->canceled);
    if (b->epoch != 0 && strcmp(got->refresher, want->refresher) != 0)
        rules_fail("the refresher runs on %s, the rules say %s", got->refresher,
                   want->refresher);
}

static void same_record(const struct vow__file_row *got,
                        const struct oracle_record *want)
{
    const struct rules_record *a = &got->record;
    const struct rules_record *b = &want->r;
    SAME("state", a->state, b->state);
    SAME("mode", a->mode, b->mode);
    SAME("canceled", a->canceled, b->canceled);
    SAME("spent", a->spent, b->spent);
    SAME("takeovers", a->takeovers, b->takeovers);
    SAME("chunks", a->chunks, b->chunks);
    SAME("token", memcmp(&a->token, &b->token, sizeof(a->token)) != 0, 0);
    SAME("epoch", a->epoch, b->epoch);
    SAME("first", a->first, b->first);
    SAME("since", a->since_us, b->since_us);
    SAME("end", a->end_us, b->end_us);
    SAME("lease", a->lease_us, b->lease_us);
    SAME("cost", a->cost_ms, b->cost_ms);
    SAME("bytes of chunks", a->chunk_bytes, b->chunk_bytes);
    same_refresher(got, want);
    if (strcmp(got->label, want->label) != 0 ||
        strcmp(got->runner, want->runner) != 0)
        rules_fail("the texts are %s, %s, the rules say %s, %s", got->label,
                   got->runner, want->label, want->runner);
}

static uint64_t count_rows(struct vow__file *s, const char *sql,
                           const vow_name *name)
{
    sqlite3_stmt *q = vow__file_sql(s, sql);
    int rc;
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    CHECK(vow__file_row(s, q, &rc));
    uint64_t n = (uint64_t)sqlite3_column_int64(q, 0);
    (void)sqlite3_reset(q);
    return n;
}

static void same_value(struct vow__file *s, const struct vow__file_row *row,
                       bool left, const struct oracle_value *want)
{
    VOW_AUTO(vow_bytes) value = NULL;
    CHECK_INT_EQ(vow__file_value_get(s, row, left, &value), 0);
    SAME("size of the value", vow_bytes_size(value), want->n);
    if (want->n > 0)
        SAME("value", memcmp(vow_bytes_data(value), want->bytes, want->n) != 0,
             0);
}

static int same_step(struct vow__file *s, void *arg)
{
    struct rules_rig *rig = arg;
    const struct oracle_slot *slot = oracle_slot(&oracle, &rig->name);
    struct vow__file_row row;
    struct vow__file_row other;
    CHECK_INT_EQ(vow__file_row_find(s, &rig->name, &row), 0);
    SAME("a record", row.record.state != RULES_NONE, slot->there);
    if (slot->there) {
        same_record(&row, &slot->record);
        same_value(s, &row, false, &slot->record.value);
    }
    SAME("a copy",
         count_rows(s, "SELECT count(*) FROM firm WHERE h=?1", &rig->name),
         slot->there && vow__file_is_firm(&slot->record.r));
    SAME("waiters",
         count_rows(s, "SELECT count(*) FROM wait WHERE h=?1", &rig->name),
         oracle_waiters(slot));
    SAME("chunks",
         count_rows(s, "SELECT count(*) FROM chunk WHERE h=?1", &rig->name),
         slot->there ? slot->record.r.chunks : 0);
    for (size_t i = 0; i < slot->n_left; i++) {
        const struct oracle_record *left = &slot->left[i];
        if (left->r.end_us <= oracle.now_us)
            continue;
        CHECK_INT_EQ(vow__file_left_find(s, &row, left->r.first, &other), 0);
        same_record(&other, left);
        same_value(s, &other, true, &left->value);
    }
    return 0;
}

/* ---- answers and events -------------------------------------------------- */

static void on_rules_answer(int code, const vow_record *got, size_t n,
                            void *user)
{
    struct rules_rig *rig = user;
    const struct oracle_answer *a = &rig->want;
    vow_record want = oracle_record_of(&oracle, &rig->name, a);
    bool pulse = rig->request.kind == ORACLE_PULSE;
    if (code != a->code)
        rules_fail("the code is %d, the rules say %d", code, a->code);
    if (code != 0)
        return;
    CHECK_UINT_EQ(n, 1);
    SAME("status", got->status, want.status);
    if (want.status == VOW_STATUS_NONE)
        return; /* there is no record to be shown */
    SAME("epoch", got->epoch, want.epoch);
    SAME("first", got->first, want.first);
    SAME("waiters", got->waiters, want.waiters);
    if (a->record.r.state == RULES_NONE)
        return;
    SAME("mode", got->mode, want.mode);
    SAME("takeovers", got->takeovers, want.takeovers);
    SAME("failed", got->failed, want.failed);
    SAME("age", got->age_ms, want.age_ms);
    SAME("pulse", got->pulse_ms, want.pulse_ms);
    SAME("left", got->left_ms, want.left_ms);
    SAME("cost", got->cost_ms, want.cost_ms);
    if (!pulse && (strcmp(got->label, want.label) != 0 ||
                   strcmp(got->runner, want.runner) != 0))
        rules_fail("the texts are %s, %s, the rules say %s, %s", got->label,
                   got->runner, want.label, want.runner);
    size_t size = vow_bytes_size(got->value);
    if (a->record.r.state == RULES_GAVE_UP && a->shows_value)
        SAME("a failure", size > 0, 1);
    else
        SAME("size of the value", size, a->shows_value ? a->record.value.n : 0);
}

static void rules_do(struct rules_rig *rig, vow_bytes *value)
{
    const struct oracle_request *q = &rig->request;
    vow_store *s = rig->kits[q->instance].store;
    vow_commit_request commit = q->commit;
    commit.value = value;
    switch (q->kind) {
    case ORACLE_CLAIM:
        s->ops->claim(s, &q->claim, on_rules_answer, rig);
        break;
    case ORACLE_PULSE:
        s->ops->pulse(s, &q->hold, 1, q->lease_ms, on_rules_answer, rig);
        break;
    case ORACLE_COMMIT:
        s->ops->commit(s, &commit, on_rules_answer, rig);
        break;
    case ORACLE_FORGET:
        s->ops->forget(s, &q->name, q->epoch, on_rules_answer, rig);
        break;
    case ORACLE_CANCEL_STEP:
        s->ops->cancel(s, &q->name, on_rules_answer, rig);
        break;
    case ORACLE_WRITE:
        s->ops->write(s, &q->hold, q->number, value, on_rules_answer, rig);
        break;
    case ORACLE_PEEK:
        s->ops->peek(s, &q->name, 1, on_rules_answer, rig);
        break;
    }
}

static void same_events(struct rules_rig *rig)
{
    for (size_t i = 0; i < INSTANCES; i++) {
        struct kit *k = &rig->kits[i];
        struct oracle_event e;
        unsigned records = 0;
        unsigned cancels = 0;
        unsigned chunks = 0;
        while (oracle_event_take(&oracle, i, &e)) {
            records += e.kind == ORACLE_SETTLED || e.kind == ORACLE_CHANGED;
            cancels += e.kind == ORACLE_CANCEL;
            chunks += e.kind == ORACLE_CHUNK;
        }
        k->records = k->cancels = k->places = 0;
        uv_handle_t *socket = (uv_handle_t *)vow__file_of(k->store)->poll;
        uv_ref(socket); /* or the loop has nothing to do */
        (void)uv_run(vow_loop_uv(k->world.loop), UV_RUN_NOWAIT);
        uv_unref(socket);
        SAME("records told", k->records, records);
        SAME("cancels told", k->cancels, cancels);
        SAME("chunks told", k->places, chunks);
    }
}

TEST(sqlite_rules, random_requests_are_answered_as_the_rules_say)
{
    static struct rules_rig rig;
    uint64_t seed = test_seed();
    char missing[128] = "";
    char text[32];
    int histories = 0;
    rules_open(&rig);
    while (oracle_missing(&oracle, ENOUGH, missing, sizeof(missing))) {
        if (histories++ == HISTORIES_MAX)
            FAIL("not reached: %s", missing);
        oracle_clear(&oracle);
        for (size_t i = 0; i < INSTANCES; i++)
            snprintf(oracle.runners[i], sizeof(oracle.runners[i]), "%s",
                     RUNNERS[i]);
        snprintf(text, sizeof(text), "name %d", histories);
        rig.name = vow_name_of(text);
        for (int i = 0; i < STEPS; i++) {
            struct oracle_request *q = &rig.request;
            VOW_AUTO(vow_bytes) value = NULL;
            oracle_choose(&oracle, &rig.name, oracle_draw(&seed, (size_t)i), q);
            CHECK_INT_EQ(vow_bytes_new(rig.kits[0].world.loop, q->bytes,
                                       strlen(q->bytes), &value),
                         0);
            oracle_do(&oracle, q, value, &rig.want);
            base_reset(&rig);
            rules_do(&rig, value);
            CHECK_INT_EQ(vow__file_step(vow__file_of(rig.kits[0].store),
                                        VOW__FILE_READ, same_step, &rig),
                         0);
            same_events(&rig);
        }
    }
    rules_close(&rig);
}
