/* SPDX-License-Identifier: MIT */
/* Tests of steps whose answer is lost: the only member is stopped, or killed
 * and started again, while they are under way. They end in time; VOW_ESTORE
 * means that nothing happened; and the same step asked again tells the truth,
 * so that there is one owner, one result, one place. The trouble comes at
 * another moment in each round: what must hold does not depend on it. */
#include "contract.h"
#include "etcd_world.h"

enum { TIMEOUT_MS = 1000, ROUNDS = 7, QUIET_MS = 300 };

enum trouble { STOPPED, KILLED };

static struct etcd_kit k;

static void begin(struct rig *r)
{
    etcd_start(&k, NULL);
    r->state = &k;
}

static vow_store *open_one(struct rig *r)
{
    VOW_AUTO(vow_future)
    f = vow_store_etcd_open(
        r->world.loop, k.url,
        VOW_ETCD_OPTS(.value_max = RIG_VALUE_MAX, .timeout_ms = TIMEOUT_MS));
    CHECK_INT_EQ(vow_loop_run_until(r->world.loop, f), 0);
    return vow_as_ptr(vow_get(f));
}

static void end(struct rig *r)
{
    (void)r;
    etcd_stop(&k);
}

static const struct rig_store hasty = {.name = "etcd",
                                       .real_time = true,
                                       .late_ms = LATE_MS,
                                       .begin = begin,
                                       .open = open_one,
                                       .end = end};

#define HASTY(name)                                                            \
    static void body_##name(struct rig *r);                                    \
    TEST(etcd_unsure, name)                                                    \
    {                                                                          \
        contract_run(&hasty, body_##name);                                     \
    }                                                                          \
    static void body_##name(struct rig *r)

/* ---- a step under way ---------------------------------------------------- */

struct heard {
    unsigned done;
    int code;
    uint32_t status;
    uint64_t epoch;
    uint64_t at_us; /* when it was answered */
    struct rig *r;
};

static void on_record(int code, const vow_record *rec, size_t n, void *user)
{
    struct heard *h = user;
    h->done++;
    h->code = code;
    h->at_us = rig_now_us(h->r);
    if (code == 0 && n > 0) {
        h->status = rec[0].status;
        h->epoch = rec[0].epoch;
    }
}

static void on_permit(int code, const vow_pool_permit *p, size_t n, void *user)
{
    struct heard *h = user;
    h->done++;
    h->code = code;
    h->at_us = rig_now_us(h->r);
    if (code == 0 && n > 0)
        h->status = p->status;
}

static void on_pools(int code, const vow_pool_info *p, size_t n, void *user)
{
    struct heard *h = user;
    (void)p;
    (void)n;
    h->done++;
    h->code = code;
    h->at_us = rig_now_us(h->r);
}

static void begin_claim(struct rig *r, size_t i, const vow_claim_request *ask,
                        struct heard *h)
{
    *h = (struct heard){.r = r};
    r->at[i]->ops->claim(r->at[i], ask, on_record, h);
}

static void begin_commit(struct rig *r, size_t i, const vow_commit_request *ask,
                         const char *text, struct heard *h)
{
    VOW_AUTO(vow_bytes) value = NULL;
    vow_commit_request with = *ask;
    CHECK_INT_EQ(vow_bytes_new(r->world.loop, text, strlen(text), &value), 0);
    with.value = value;
    *h = (struct heard){.r = r};
    r->at[i]->ops->commit(r->at[i], &with, on_record, h);
}

/* The trouble, `round` milliseconds from now, until all of these are answered;
 * and it is over. */
static void trouble(struct rig *r, enum trouble what, unsigned round,
                    const struct heard *h, size_t n)
{
    rig_advance_ms(r, round);
    if (what == STOPPED)
        etcd_freeze(&k, 0);
    else
        etcd_kill(&k, 0);
    for (size_t i = 0; i < n; i++) {
        rig_expect(r, &h[i].done, 1);
        CHECK(h[i].code == 0 || h[i].code == VOW_ESTORE ||
              h[i].code == VOW_EUNSURE);
    }
    if (what == STOPPED)
        etcd_thaw(&k, 0);
    else
        etcd_again(&k, 0);
    rig_advance_ms(r, QUIET_MS);
}

/* Ask until there is an answer: the store is there again. */
static struct rig_answer claim_again(struct rig *r, size_t i,
                                     const vow_claim_request *ask)
{
    for (;;) {
        struct rig_answer a = rig_claim(r, i, ask);
        if (a.code == 0)
            return a;
        CHECK(a.code == VOW_ESTORE || a.code == VOW_EUNSURE);
    }
}

static struct rig_answer commit_again(struct rig *r, size_t i,
                                      const vow_commit_request *ask,
                                      const char *text)
{
    for (;;) {
        struct rig_answer a = rig_commit(r, i, ask, text);
        if (a.code == 0)
            return a;
        CHECK(a.code == VOW_ESTORE || a.code == VOW_EUNSURE);
    }
}

static struct rig_answer peek_again(struct rig *r, size_t i, const char *text)
{
    for (;;) {
        struct rig_answer a = rig_peek(r, i, text);
        if (a.code == 0)
            return a;
        CHECK(a.code == VOW_ESTORE || a.code == VOW_EUNSURE);
    }
}

static const char *name_of(unsigned round)
{
    static char text[16];
    (void)snprintf(text, sizeof(text), "n-%u", round);
    return text;
}

/* ---- in time ------------------------------------------------------------- */

/* A timeout that is long beside what a busy machine may add: two of them one
 * after the other would be seen. */
enum { PATIENCE_MS = 10000, ADDED_MS = 9000 };

static vow_store *open_patient(struct rig *r)
{
    VOW_AUTO(vow_future)
    f = vow_store_etcd_open(r->world.loop, k.url,
                            VOW_ETCD_OPTS(.timeout_ms = PATIENCE_MS));
    CHECK_INT_EQ(vow_loop_run_until(r->world.loop, f), 0);
    vow_store *s = vow_as_ptr(vow_get(f));
    s->ops->listen(s, &(const vow_store_events){.user = NULL});
    return s;
}

/* All fail, in time; then the member goes on and the store is closed. */
static void expect_in_time(struct rig *r, vow_store *s, const struct heard *h,
                           size_t n)
{
    uint64_t since = rig_now_us(r);
    for (size_t i = 0; i < n; i++) {
        rig_expect(r, &h[i].done, 1);
        uint64_t took = (h[i].at_us - since) / 1000;
        if (h[i].code != VOW_ESTORE && h[i].code != VOW_EUNSURE)
            FAIL("step %zu: code %d", i, h[i].code);
        if (took > 2 * PATIENCE_MS + ADDED_MS) /* one is forgiven */
            FAIL("step %zu took %llu ms", i, (unsigned long long)took);
    }
    CHECK(s->ops->explain(s)[0] != 0);
    etcd_thaw(&k, 0);
    VOW_AUTO(vow_future) closed = s->ops->close(s);
    CHECK_INT_EQ(vow_loop_run_until(r->world.loop, closed), 0);
}

HASTY(every_step_ends_when_its_time_is_over)
{
    enum { STEPS = 11 };
    static struct heard h[STEPS];
    vow_name n[STEPS];
    vow_store *s = open_patient(r);
    for (size_t i = 0; i < STEPS; i++) {
        h[i].r = r;
        n[i] = rig_name(name_of((unsigned)i));
    }
    s->ops->claim(s, ASK("n-2", 1), on_record, &h[2]);
    s->ops->claim(s, ASK("n-10", 1), on_record, &h[10]);
    rig_expect(r, &h[2].done, 1);
    rig_expect(r, &h[10].done, 1);
    vow_hold hold = {
        .name = n[10], .token = rig_token(1), .epoch = h[10].epoch};
    vow_permit_hold place = {n[7], n[7], rig_token(1), false};
    uint64_t epoch = h[2].epoch;
    h[2].done = h[10].done = 0;
    etcd_freeze(&k, 0);
    s->ops->claim(s, ASK("n-0", 2), on_record, &h[0]);
    s->ops->peek(s, &n[1], 1, on_record, &h[1]);
    s->ops->commit(s, COMMIT("n-2", 1, epoch), on_record, &h[2]);
    s->ops->forget(s, &n[3], 0, on_record, &h[3]);
    s->ops->cancel(s, &n[4], on_record, &h[4]);
    s->ops->list(s, on_record, &h[5]);
    s->ops->acquire(s, PLACE("n-6", 1, .limits = {.concurrent = 1}), on_permit,
                    &h[6]);
    s->ops->release(s, &place, on_permit, &h[7]);
    s->ops->limit(s, &n[8], NULL, "n", on_pools, &h[8]);
    s->ops->pools(s, on_pools, &h[9]);
    /* With the same lease, the renewal of a moment ago would suffice. */
    s->ops->pulse(s, &hold, 1, 2 * LONG_MS, on_record, &h[10]);
    expect_in_time(r, s, h, STEPS);
}

/* They go one behind another, and their time does not. */
HASTY(steps_of_one_name_or_pool_fail_together)
{
    enum { EACH = 4, STEPS = 4 * EACH };
    static struct heard h[STEPS];
    vow_name name = rig_name("n-0");
    vow_store *s = open_patient(r);
    for (size_t i = 0; i < STEPS; i++)
        h[i].r = r;
    etcd_freeze(&k, 0);
    for (unsigned i = 0; i < EACH; i++) {
        s->ops->claim(s, ASK("n-0", 1 + i), on_record, &h[4 * i]);
        s->ops->peek(s, &name, 1, on_record, &h[4 * i + 1]);
        s->ops->acquire(s, PLACE("p", 1 + i, .limits = {.concurrent = 1}),
                        on_permit, &h[4 * i + 2]);
        s->ops->forget(s, &name, 0, on_record, &h[4 * i + 3]);
    }
    expect_in_time(r, s, h, STEPS);
}

/* ---- claims -------------------------------------------------------------- */

static void claims_tell(struct rig *r, enum trouble what)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct heard h;
        const char *text = name_of(round);
        begin_claim(r, 0, ASK(text, round), &h);
        trouble(r, what, round, &h, 1);
        struct rig_answer seen = peek_again(r, 1, text);
        if (h.code == VOW_ESTORE)
            CHECK_UINT_EQ(seen.status, VOW_STATUS_NONE);
        if (h.code == 0)
            CHECK_UINT_EQ(seen.epoch, h.epoch);
        struct rig_answer again = claim_again(r, 0, ASK(text, round));
        CHECK_UINT_EQ(again.status, VOW_STATUS_OWNED);
        if (seen.status == VOW_STATUS_WAITING)
            CHECK_UINT_EQ(again.epoch, seen.epoch);
        CHECK_UINT_EQ(claim_again(r, 1, ASK(text, 100)).status,
                      VOW_STATUS_WAITING);
    }
}

HASTY(a_claim_that_was_stopped_tells_the_truth_when_asked_again)
{
    claims_tell(r, STOPPED);
}

HASTY(a_claim_whose_member_died_tells_the_truth_when_asked_again)
{
    claims_tell(r, KILLED);
}

/* Whether it owns now; what it was told before is true. */
static bool owns(struct rig *r, size_t i, const vow_claim_request *ask,
                 const struct heard *before)
{
    struct rig_answer again = claim_again(r, i, ask);
    CHECK(again.status == VOW_STATUS_OWNED ||
          again.status == VOW_STATUS_WAITING);
    if (before->code == 0 && before->status == VOW_STATUS_OWNED) {
        CHECK_UINT_EQ(again.status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(again.epoch, before->epoch);
    }
    return again.status == VOW_STATUS_OWNED;
}

static void one_owns(struct rig *r, enum trouble what)
{
    enum { ASKERS = 4 };
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct heard h[ASKERS];
        unsigned owners = 0;
        const char *text = name_of(round);
        uint32_t mode = round % 3;
        for (size_t i = 0; i < ASKERS; i++)
            begin_claim(r, i, ASK(text, i + 1, .mode = mode), &h[i]);
        trouble(r, what, round, h, ASKERS);
        for (size_t i = 0; i < ASKERS; i++)
            owners += owns(r, i, ASK(text, i + 1, .mode = mode), &h[i]);
        CHECK_UINT_EQ(owners, 1);
    }
}

HASTY(of_many_who_claim_while_it_stops_one_owns)
{
    one_owns(r, STOPPED);
}

HASTY(of_many_who_claim_while_it_dies_one_owns)
{
    one_owns(r, KILLED);
}

/* ---- results ------------------------------------------------------------- */

static void commits_tell(struct rig *r, enum trouble what)
{
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct heard h;
        const char *text = name_of(round);
        uint64_t epoch =
            claim_again(r, 0, ASK(text, round, .mode = VOW_ONCE)).epoch;
        begin_commit(r, 0, COMMIT(text, round, epoch), "v", &h);
        trouble(r, what, round, &h, 1);
        struct rig_answer seen = peek_again(r, 1, text);
        if (h.code == VOW_ESTORE)
            CHECK_UINT_EQ(seen.status, VOW_STATUS_WAITING);
        if (h.code == 0)
            CHECK_UINT_EQ(seen.status, VOW_STATUS_SETTLED);
        struct rig_answer again =
            commit_again(r, 0, COMMIT(text, round, epoch), "v");
        CHECK_UINT_EQ(again.status, VOW_STATUS_OWNED);
        for (size_t i = 1; i < 3; i++) {
            struct rig_answer got = claim_again(r, i, ASK(text, 100 + i));
            CHECK_UINT_EQ(got.status, VOW_STATUS_SETTLED);
            CHECK_UINT_EQ(got.epoch, epoch);
            CHECK_UINT_EQ(got.value_size, 1);
            CHECK_INT_EQ(got.value[0], 'v');
        }
    }
}

HASTY(a_result_that_was_stopped_is_taken_once)
{
    commits_tell(r, STOPPED);
}

HASTY(a_result_whose_member_died_is_taken_once)
{
    commits_tell(r, KILLED);
}

/* End the leases of this length alone: not those of results. */
static void end_leases(unsigned seconds)
{
    static char said[4096];
    unsigned n = 0;
    (void)snprintf(said, sizeof(said), "%s",
                   etcd_say(&k, "lease/leases", "%s", "{}"));
    for (char *at = said; (at = strstr(at, "\"ID\":\"")) != NULL; at++) {
        unsigned long long id = strtoull(at + strlen("\"ID\":\""), NULL, 10);
        uint64_t ttl = etcd_number(
            etcd_say(&k, "lease/timetolive", "{\"ID\":\"%llu\"}", id),
            "grantedTTL");
        if (ttl < seconds || ttl > seconds + 3)
            continue;
        (void)etcd_say(&k, "lease/revoke", "{\"ID\":\"%llu\"}", id);
        n++;
    }
    CHECK(n > 0);
}

/* The lease is gone when it is over, and another asks: he has the name or its
 * result, and the owner hears which. */
static void one_result(struct rig *r, unsigned round, uint32_t mode)
{
    struct heard h;
    const char *text = name_of(round);
    uint64_t epoch =
        claim_again(r, 0, ASK(text, 1, .mode = mode, .lease_ms = 600000)).epoch;
    begin_commit(r, 0, COMMIT(text, 1, epoch), "v", &h);
    trouble(r, STOPPED, round, &h, 1);
    end_leases(600);
    struct rig_answer next = claim_again(r, 1, ASK(text, 2, .mode = mode));
    struct rig_answer mine = commit_again(r, 0, COMMIT(text, 1, epoch), "v");
    if (next.status == VOW_STATUS_OWNED) {
        CHECK(next.epoch > epoch);
        CHECK(h.code != 0);
        CHECK_UINT_EQ(mine.status, VOW_STATUS_LOST);
        CHECK_UINT_EQ(
            commit_again(r, 1, COMMIT(text, 2, next.epoch), "w").status,
            VOW_STATUS_OWNED);
    } else if (next.status == VOW_STATUS_SETTLED) {
        CHECK_UINT_EQ(mine.status, VOW_STATUS_OWNED);
    } else {
        CHECK_UINT_EQ(mode, VOW_ONCE);
        CHECK_UINT_EQ(next.status, VOW_STATUS_DOUBT);
        CHECK(h.code != 0);
    }
    const char want = next.status == VOW_STATUS_OWNED ? 'w' : 'v';
    struct rig_answer got = claim_again(r, 2, ASK(text, 3, .mode = mode));
    CHECK_UINT_EQ(got.status, VOW_STATUS_SETTLED);
    CHECK_INT_EQ(got.value[0], want);
}

HASTY(one_result_is_taken_when_the_lease_ends_meanwhile)
{
    for (unsigned round = 0; round < ROUNDS; round++)
        one_result(r, round, round % 2 == 0 ? VOW_FENCED : VOW_ONCE);
}

/* ---- places -------------------------------------------------------------- */

static void places_count_once(struct rig *r, enum trouble what)
{
    const vow_pool_limits limits = {.concurrent = 3};
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct heard h = {.r = r};
        const char *text = name_of(round);
        vow_permit_hold hold = {rig_name(text), rig_limits_name(text),
                                rig_token(1), false};
        struct rig_place place;
        struct rig_pool pool;
        r->at[0]->ops->acquire(r->at[0],
                               PLACE(text, 1, .weight = 2, .limits = limits),
                               on_permit, &h);
        trouble(r, what, round, &h, 1);
        do
            place = rig_acquire(r, 0,
                                PLACE(text, 1, .weight = 2, .limits = limits));
        while (place.code != 0);
        CHECK_UINT_EQ(place.place.status, VOW_STATUS_OWNED);
        while ((pool = rig_limit(r, 1, text, NULL)).code != 0)
            ;
        CHECK_UINT_EQ(pool.info.held, 2);
        CHECK_UINT_EQ(pool.info.holders, 1);

        h = (struct heard){.r = r};
        r->at[0]->ops->release(r->at[0], &hold, on_permit, &h);
        trouble(r, what, round, &h, 1);
        while (rig_release(r, 0, text, 1).code != 0)
            ;
        do
            place =
                rig_acquire(r, 1,
                            PLACE(text, 2, .weight = 3, .flags = VOW_PERMIT_TRY,
                                  .limits = limits));
        while (place.code != 0);
        CHECK_UINT_EQ(place.place.status, VOW_STATUS_OWNED);
    }
}

HASTY(a_place_that_was_stopped_counts_once)
{
    places_count_once(r, STOPPED);
}

HASTY(a_place_whose_member_died_counts_once)
{
    places_count_once(r, KILLED);
}

/* ---- as programs see it -------------------------------------------------- */

static struct town pr;
static struct seat a, b;

static vow_future *freeze_and_say(vow_lease *lease, void *arg)
{
    struct task *t = arg;
    etcd_freeze(&pr.k, 0);
    return task_run(lease, t);
}

/* Whatever the asker is told, it is true of what others hear later. */
static void share_unsure(uint32_t mode, uint64_t lease_ms, uint64_t frozen_ms)
{
    struct task t = {.r = &pr, .text = "x"}, other = {.r = &pr, .text = "y"};
    vow_name name = vow_name_of("n");
    town_open(&pr, NULL);
    seat_open(&pr, &a, town_url(&pr, "?timeout=1000"),
              VOW_AUTHORITY(.lease_ms = lease_ms, .recheck_ms = RARELY_MS));
    VOW_AUTO(vow_future)
    f = vow_share(a.a, &name, freeze_and_say, &t,
                  VOW_SHARE(.mode = mode, .ttl_ms = 60000));
    TOWN_UNTIL(&pr, t.runs > 0);
    town_pass(&pr, frozen_ms);
    etcd_thaw(&pr.k, 0);
    int rc = vow_loop_run_until(pr.w.loop, f);
    if (rc != 0 && rc != VOW_EUNSURE && rc != VOW_ELOST && rc != VOW_EDOUBT &&
        rc != VOW_ESTORE)
        FAIL("it says %s", vow_error_name(rc));
    CHECK(rc != 0 || says(f, "x"));
    if (frozen_ms < lease_ms / 2)
        CHECK_INT_EQ(rc, 0);
    CHECK_UINT_EQ(t.runs, 1);
    f = vow_future_unref(f);
    seat_open(&pr, &b, pr.k.url, VOW_AUTHORITY(.lease_ms = 3000));
    vow_record seen = seat_peek(&pr, &b, &name);
    const char *want = seen.status == VOW_STATUS_SETTLED ? "x" : "y";
    CHECK(rc != 0 || seen.status == VOW_STATUS_SETTLED);
    int code = task_share(&b, &other, "n", want,
                          VOW_SHARE(.mode = mode, .ttl_ms = 60000));
    CHECK(code == 0 || (code == VOW_EDOUBT && mode == VOW_ONCE));
    CHECK_UINT_EQ(other.runs, code == 0 && want[0] == 'y' ? 1 : 0);
    CHECK(mode != VOW_ONCE || other.runs == 0);
    seat_close(&pr, &b);
    seat_close(&pr, &a);
    town_close(&pr);
}

TEST(etcd_unsure, a_short_pause_at_the_end_of_work_is_not_noticed)
{
    share_unsure(VOW_FENCED, 20000, 1500);
}

TEST(etcd_unsure, a_long_pause_at_the_end_of_work_is_told_truly)
{
    share_unsure(VOW_FENCED, 2000, 6000);
}

TEST(etcd_unsure, a_long_pause_at_the_end_of_what_is_once)
{
    share_unsure(VOW_ONCE, 2000, 6000);
}
