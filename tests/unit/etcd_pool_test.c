/* SPDX-License-Identifier: MIT */
/* etcd_pool_test.c - places on a member of etcd: keys, leases that are lost,
 * limits that others change, tolls, and much at once. */
#include "etcd_real.h"
#include "store/etcd/etcd_service.h"

#include <stdio.h>
#include <string.h>

enum { LONG_MS = 3600 * 1000 };

static struct real rig;

struct told {
    unsigned done, places, doubts;
    int code;
    size_t n;
    vow_pool_permit at[256];
    vow_pool_info info;
    char label[VOW_LABEL_MAX + 1];
    vow_token token;
};
static struct told told;

static void on_places(int code, const vow_pool_permit *places, size_t n,
                      void *user)
{
    (void)user;
    told.done++;
    told.code = code;
    told.n = n;
    CHECK(n <= sizeof(told.at) / sizeof(told.at[0]));
    if (n > 0)
        memcpy(told.at, places, n * sizeof(places[0]));
}

static void on_pools(int code, const vow_pool_info *infos, size_t n, void *user)
{
    (void)user;
    told.done++;
    told.code = code;
    told.n = n;
    if (n == 0)
        return;
    told.info = infos[0];
    snprintf(told.label, sizeof(told.label), "%s", infos[0].label);
}

static void on_permit(const vow_token *token, void *user)
{
    (void)user;
    told.places++;
    told.token = *token;
}

static void on_doubt(void *user)
{
    (void)user;
    told.doubts++;
}

static void start(void)
{
    told = (struct told){.done = 0};
    real_open(&rig, VOW_ETCD_OPTS(.recheck_ms = 1000));
    rig.store->ops->listen(rig.store,
                           &(const vow_store_events){.on_permit = on_permit,
                                                     .on_doubt = on_doubt});
}

static vow_name pool_of(const char *text)
{
    return vow_name_of(text);
}

static vow_token token_of(uint64_t number)
{
    vow_token t = {.bytes = {0}};
    for (size_t i = 0; i < sizeof(t.bytes); i++)
        t.bytes[i] = (unsigned char)test_random(&number);
    return t;
}

#pragma GCC diagnostic ignored "-Woverride-init" /* what is given counts */
#define PLACE(number, ...)                                                     \
    (&(const vow_permit_request){.pool = pool_of("p"),                         \
                                 .limits_of = pool_of("p"),                    \
                                 .token = token_of(number),                    \
                                 .weight = 1,                                  \
                                 .lease_ms = LONG_MS,                          \
                                 .label = "p",                                 \
                                 __VA_ARGS__})

static void finish(void)
{
    REAL_UNTIL(&rig, told.done > 0);
    CHECK_UINT_EQ(told.done, 1);
}

static uint32_t acquire(const vow_permit_request *ask)
{
    told.done = 0;
    rig.store->ops->acquire(rig.store, ask, on_places, NULL);
    finish();
    return told.code == 0 ? told.at[0].status : 100 + (uint32_t)-told.code;
}

static uint32_t release(uint64_t number)
{
    const vow_permit_hold hold = {pool_of("p"), pool_of("p"), token_of(number),
                                  false};
    told.done = 0;
    rig.store->ops->release(rig.store, &hold, on_places, NULL);
    finish();
    CHECK_INT_EQ(told.code, 0);
    return told.at[0].status;
}

/* Tokens from the first on. */
static void renew_as(bool started, uint64_t first, size_t n, uint64_t lease_ms)
{
    static vow_permit_hold holds[256];
    for (size_t i = 0; i < n; i++)
        holds[i] = (vow_permit_hold){pool_of("p"), pool_of("p"),
                                     token_of(first + i), started};
    told.done = 0;
    rig.store->ops->renew(rig.store, holds, n, lease_ms, on_places, NULL);
    finish();
    CHECK_INT_EQ(told.code, 0);
    CHECK_UINT_EQ(told.n, n);
}

static void renew(uint64_t first, size_t n, uint64_t lease_ms)
{
    renew_as(false, first, n, lease_ms);
}

/* What they are for has begun. */
static void tell_starts(uint64_t first, size_t n)
{
    renew_as(true, first, n, LONG_MS);
}

static void limit(const vow_pool_limits *limits)
{
    vow_name pool = pool_of("p");
    told.done = 0;
    rig.store->ops->limit(rig.store, &pool, limits, NULL, on_pools, NULL);
    finish();
}

static void list(void)
{
    told.done = 0;
    rig.store->ops->pools(rig.store, on_pools, NULL);
    finish();
    CHECK_INT_EQ(told.code, 0);
}

static char *key(const char *rest)
{
    static char text[256];
    vow_name pool = pool_of("p");
    char name[VOW_NAME_TEXT];
    (void)vow_name_text(&pool, name);
    snprintf(text, sizeof(text), "vow/s/%s/%s", name, rest);
    return text;
}

static char *seat_key(uint64_t number)
{
    static char text[256];
    vow_name pool = pool_of("p");
    vow_token token = token_of(number);
    struct cas_pool_name name = {pool, pool};
    snprintf(text, sizeof(text), "vow/%s",
             vow__etcd_row_key(&name, &token).text);
    return text;
}

static uint64_t count(const char *kind)
{
    vow_name pool = pool_of("p");
    struct cas_pool_name name = {pool, pool};
    char text[256];
    snprintf(text, sizeof(text), "vow/%s%s", vow__etcd_pool_key(&name).text,
             kind);
    return etcd_count(&rig.kit, text);
}

/* The machine has paused for so long that something may have ended. */
static bool passed(uint64_t since_ms, uint64_t ms)
{
    real_pass(&rig, 0); /* the loop looks at the clock */
    return real_ms(&rig) - since_ms >= ms;
}

/* ---- keys ---------------------------------------------------------------- */

TEST(etcd_pool, keys_are_for_people_and_come_back)
{
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .label = "a\\b\nc", .runner = "host:7",
                                .weight = 2, .limits = {2, 0, 0})),
                  VOW_STATUS_OWNED);
    CHECK_STR_EQ(etcd_get(&rig.kit, key("l")),
                 "concurrent 2\nrate 0\nwindow 0\nlabel a\\\\b\\nc\n");
    const char *value = etcd_get(&rig.kit, seat_key(1));
    CHECK(strncmp(value, "weight 2\nlease 3600000\nsince ", 29) == 0);
    CHECK(strstr(value, "\nrunner host:7\n") != NULL);
    limit(NULL);
    CHECK_STR_EQ(told.label, "a\\b\nc");
    CHECK_UINT_EQ(release(1), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(count(""), 0);
    real_close(&rig);
}

TEST(etcd_pool, what_is_not_ours_counts_for_nothing)
{
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = {2, 0, 0})), VOW_STATUS_OWNED);
    etcd_put(&rig.kit, seat_key(7), "weight one\nlease 5\n");
    etcd_put(&rig.kit, seat_key(8), "weight 2\n");
    char stray[256];
    snprintf(stray, sizeof(stray), "%.*s", (int)strlen(seat_key(1)) - 1,
             seat_key(1));
    etcd_put(&rig.kit, stray, "weight 2\nlease 5\n");
    etcd_put(&rig.kit, key("x"), "weight 2\nlease 5\n");
    etcd_put(&rig.kit, "vow/s/", "");
    etcd_put(&rig.kit, "vow/s/short/l", "concurrent 1\n");
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(3)), VOW_STATUS_WAITING);
    list();
    CHECK_UINT_EQ(told.n, 1);
    CHECK_UINT_EQ(told.info.held, 2);
    CHECK_UINT_EQ(told.info.waiting, 1);
    real_close(&rig);
}

TEST(etcd_pool, fences_are_above_what_was_added_to_revisions)
{
    start();
    CHECK_UINT_EQ(acquire(PLACE(1)), VOW_STATUS_OWNED);
    uint64_t before = told.at[0].fence;
    CHECK(before > 0 && before < 1000);
    etcd_put(&rig.kit, "vow/e", "plus 5000\n");
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_OWNED);
    CHECK(told.at[0].fence > 5000 + before);
    real_close(&rig);
}

/* ---- leases -------------------------------------------------------------- */

TEST(etcd_pool, a_lease_that_is_lost_loses_places_and_the_next_has_another)
{
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = {1, 0, 0})), VOW_STATUS_OWNED);
    CHECK(etcd_revoke_all(&rig.kit) > 0);
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_OWNED);
    renew(1, 2, LONG_MS);
    CHECK_UINT_EQ(told.at[0].status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(told.at[1].status, VOW_STATUS_OWNED);
    CHECK(etcd_revoke_all(&rig.kit) > 0);
    CHECK_UINT_EQ(release(2), VOW_STATUS_NONE);
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_OWNED);
    real_close(&rig);
}

TEST(etcd_pool, another_lease_keeps_the_order)
{
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = {1, 0, 0})), VOW_STATUS_OWNED);
    uint64_t fence = told.at[0].fence;
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(acquire(PLACE(3)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(acquire(PLACE(2, .lease_ms = 60000)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(told.at[0].ahead, 0);
    renew(1, 1, 50000);
    CHECK_UINT_EQ(told.at[0].status, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(told.at[0].fence, fence);
    CHECK(strstr(etcd_get(&rig.kit, seat_key(1)), "lease 50000\n") != NULL);
    CHECK(strstr(etcd_get(&rig.kit, seat_key(2)), "lease 60000\n") != NULL);
    CHECK_UINT_EQ(acquire(PLACE(3)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(told.at[0].ahead, 1);
    real_close(&rig);
}

TEST(etcd_pool, a_place_ends_with_its_own_lease_while_others_live)
{
    bool lost = true; /* the second, as long as it is not there */
    uint64_t since = 0;
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .lease_ms = 900, .limits = {2, 0, 0})),
                  VOW_STATUS_OWNED);
    do {
        if (lost) {
            since = real_ms(&rig);
            CHECK_UINT_EQ(acquire(PLACE(2, .lease_ms = 900)), VOW_STATUS_OWNED);
        }
        real_pass(&rig, 250);
        uint64_t now = real_ms(&rig);
        renew(2, 1, 900);
        lost = told.at[0].status != VOW_STATUS_OWNED;
        CHECK(!lost || passed(since, 900));
        since = now;
    } while (etcd_get(&rig.kit, seat_key(1)) != NULL);
    CHECK(etcd_get(&rig.kit, seat_key(2)) != NULL || passed(since, 900));
    renew(1, 1, 900);
    CHECK_UINT_EQ(told.at[0].status, VOW_STATUS_NONE);
    real_close(&rig);
}

TEST(etcd_pool, many_places_move_to_another_lease)
{
    start();
    for (uint64_t i = 0; i < 120; i++)
        CHECK_UINT_EQ(acquire(PLACE(i, .limits = {100, 0, 0})),
                      i < 100 ? VOW_STATUS_OWNED : VOW_STATUS_WAITING);
    renew(0, 120, 1800 * 1000);
    for (size_t i = 0; i < 120; i++)
        CHECK_UINT_EQ(told.at[i].status,
                      i < 100 ? VOW_STATUS_OWNED : VOW_STATUS_WAITING);
    for (uint64_t i = 0; i < 120; i++)
        CHECK(strstr(etcd_get(&rig.kit, seat_key(i)), "lease 1800000\n"));
    real_close(&rig);
}

TEST(etcd_pool, closing_gives_all_places_back)
{
    start();
    for (uint64_t i = 0; i < 130; i++)
        (void)acquire(PLACE(i, .limits = {100, 0, 0}));
    CHECK_UINT_EQ(count("q/"), 130);
    VOW_AUTO(vow_future) closed = rig.store->ops->close(rig.store);
    CHECK_INT_EQ(vow_loop_run_until(rig.w.loop, closed), 0);
    CHECK_UINT_EQ(count("q/"), 0);
    closed = vow_future_unref(closed);
    world_run(&rig.w);
    world_close(&rig.w);
    etcd_stop(&rig.kit);
}

/* ---- limits -------------------------------------------------------------- */

TEST(etcd_pool, lower_limits_mark_who_is_held_however_many)
{
    start();
    for (uint64_t i = 0; i < 120; i++)
        CHECK_UINT_EQ(acquire(PLACE(i)), VOW_STATUS_OWNED);
    limit(&(const vow_pool_limits){.concurrent = 3});
    CHECK_INT_EQ(told.code, 0);
    CHECK_UINT_EQ(told.info.held, 120);
    CHECK_STR_EQ(told.label, "p");
    for (uint64_t i = 0; i < 120; i++)
        CHECK(strstr(etcd_get(&rig.kit, seat_key(i)), "held 1\n") != NULL);
    CHECK_UINT_EQ(acquire(PLACE(500)), VOW_STATUS_WAITING);
    real_close(&rig);
}

TEST(etcd_pool, who_was_told_that_it_holds_stays_so_if_limits_missed_it)
{
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .weight = 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(2, .weight = 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(3, .weight = 2)), VOW_STATUS_OWNED);
    etcd_put(&rig.kit, key("l"), "concurrent 1\n");
    renew(1, 1, LONG_MS);
    CHECK_UINT_EQ(told.at[0].status, VOW_STATUS_OWNED);
    CHECK(strstr(etcd_get(&rig.kit, seat_key(1)), "held 1\n") != NULL);
    CHECK_UINT_EQ(acquire(PLACE(2, .weight = 2)), VOW_STATUS_OWNED);
    CHECK(strstr(etcd_get(&rig.kit, seat_key(2)), "held 1\n") != NULL);
    CHECK_UINT_EQ(release(3), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(4)), VOW_STATUS_WAITING);
    real_close(&rig);
}

/* Nobody tells of what people do to keys: the request asks again in time. */
TEST(etcd_pool, limits_that_rise_by_another_hand_are_found)
{
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = {1, 0, 0})), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_WAITING);
    CHECK(told.at[0].again_us <= 1000 * rig.store->ops->recheck_ms + 1000);
    etcd_put(&rig.kit, key("l"), "concurrent 2\n");
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_OWNED);
    real_close(&rig);
}

TEST(etcd_pool, a_seat_that_somebody_deleted_is_asked_for_again)
{
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = {1, 0, 0})), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(acquire(PLACE(3)), VOW_STATUS_WAITING);
    etcd_delete(&rig.kit, seat_key(2));
    renew(2, 1, LONG_MS);
    CHECK_UINT_EQ(told.at[0].status, VOW_STATUS_NONE);
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(told.at[0].ahead, 1);
    real_close(&rig);
}

/* A join reads as many rows as may hold permits: these rows are not ours. */
TEST(etcd_pool, garbage_before_the_rows_grants_nothing_more)
{
    start();
    for (uint64_t i = 0; i < 3; i++)
        etcd_put(&rig.kit, seat_key(100 + i), "garbage\n");
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = {2, 0, 0})), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(2, .limits = {2, 0, 0})), VOW_STATUS_OWNED);
    for (int tries = 0; tries < 2; tries++) {
        for (uint64_t i = 3; i < 8; i++) {
            CHECK_UINT_EQ(acquire(PLACE(i, .limits = {2, 0, 0})),
                          VOW_STATUS_WAITING);
            CHECK_UINT_EQ(told.at[0].ahead, i - 3);
        }
    }
    real_close(&rig);
}

/* The limits of a request are for a pool that has none. */
TEST(etcd_pool, limits_of_the_request_do_not_say_what_is_read)
{
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = {3, 0, 0}, .weight = 2)),
                  VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(2, .limits = {1, 0, 0})), VOW_STATUS_OWNED);
    for (uint64_t i = 3; i < 7; i++) {
        CHECK_UINT_EQ(acquire(PLACE(i, .limits = {1, 0, 0})),
                      VOW_STATUS_WAITING);
        CHECK_UINT_EQ(told.at[0].ahead, i - 3);
        CHECK_UINT_EQ(told.at[0].limits.concurrent, 3);
    }
    CHECK_UINT_EQ(release(1), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(4, .limits = {1, 0, 0})), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(5, .limits = {9, 0, 0})), VOW_STATUS_WAITING);
    real_close(&rig);
}

/* ---- rates --------------------------------------------------------------- */

TEST(etcd_pool, grants_that_follow_closely_share_a_toll)
{
    vow_pool_limits limits = {.rate = 1000, .window_us = 3600000000};
    start();
    for (uint64_t i = 0; i < 40; i++) {
        CHECK_UINT_EQ(acquire(PLACE(i, .weight = 3, .limits = limits)),
                      VOW_STATUS_OWNED);
        CHECK_UINT_EQ(release(i), VOW_STATUS_OWNED);
    }
    CHECK_UINT_EQ(count("t/"), 1);
    limit(NULL);
    CHECK_UINT_EQ(told.info.rate_used, 120);
    CHECK_UINT_EQ(told.info.held, 0);
    real_close(&rig);
}

TEST(etcd_pool, tolls_of_a_low_rate_are_kept_apart_and_swept)
{
    vow_pool_limits limits = {.rate = 8, .window_us = 400000};
    uint64_t since = 0, tolls;
    start();
    for (uint64_t i = 0; i < 8; i++) {
        since = real_ms(&rig);
        CHECK_UINT_EQ(acquire(PLACE(i, .limits = limits)), VOW_STATUS_OWNED);
    }
    tolls = count("t/");
    CHECK(tolls <= 8);
    CHECK(tolls > 0 || passed(since, 2000));
    tell_starts(0, 8);
    real_pass(&rig, 450);
    since = real_ms(&rig);
    CHECK_UINT_EQ(acquire(PLACE(9)), VOW_STATUS_OWNED);
    tolls = count("t/");
    CHECK(tolls == 1 || (tolls == 0 && passed(since, 2000)));
    real_close(&rig);
}

/* Its process is gone, and nobody knows whether and when it has started. */
TEST(etcd_pool, a_lost_place_that_never_told_its_start_counts_on)
{
    vow_pool_limits limits = {.rate = 1, .window_us = 200000};
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = limits)), VOW_STATUS_OWNED);
    etcd_delete(&rig.kit, seat_key(1));
    real_pass(&rig, 450);
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_WAITING);
    CHECK(told.at[0].again_us > 100000);
    CHECK_UINT_EQ(count("t/"), 1);
    real_close(&rig);
}

/* With the starts of half of them, or without an answer to that, it still does
 * as of now; when the last was told or is given back, it ends. */
TEST(etcd_pool, a_shared_toll_counts_from_its_last_start)
{
    vow_pool_limits limits = {.rate = 200, .window_us = 1000000};
    start();
    for (uint64_t i = 0; i < 20; i++)
        CHECK_UINT_EQ(acquire(PLACE(i, .weight = 10, .limits = limits)),
                      VOW_STATUS_OWNED);
    CHECK_UINT_EQ(acquire(PLACE(99)), VOW_STATUS_WAITING);
    tell_starts(0, 19);
    tell_starts(0, 19);
    real_pass(&rig, 1100);
    limit(NULL);
    CHECK(told.info.rate_used >= 10); /* that of the last, with its toll */
    uint64_t since = real_ms(&rig);
    CHECK_UINT_EQ(release(19), VOW_STATUS_OWNED);
    limit(NULL);
    CHECK(told.info.rate_used >= 10 || passed(since, 1000));
    real_pass(&rig, 1100);
    limit(NULL);
    CHECK_UINT_EQ(told.info.rate_used, 0);
    real_close(&rig);
}

TEST(etcd_pool, tolls_of_another_machine_count_from_the_first_sight)
{
    vow_pool_limits limits = {.rate = 3, .window_us = 300000};
    vow_name pool = pool_of("p");
    struct cas_pool_name name = {pool, pool};
    char toll[256];
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = limits)), VOW_STATUS_OWNED);
    snprintf(toll, sizeof(toll), "vow/%s", vow__etcd_entry_key(&name, 7).text);
    real_pass(&rig, 0);
    uint64_t since = real_ms(&rig);
    etcd_put(&rig.kit, toll, "weight 3\nboot another\nat 1\n");
    bool waits = acquire(PLACE(2)) == VOW_STATUS_WAITING;
    uint64_t took_us = 1000 * (real_ms(&rig) - since + 1);
    CHECK(waits || took_us >= 300000);
    if (waits) {
        CHECK(told.at[0].again_us + took_us >= 300000);
        CHECK(told.at[0].again_us <= 300001);
        unsigned before = told.places;
        REAL_UNTIL(&rig, told.places > before); /* by its own clock */
        CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_OWNED);
    }
    real_close(&rig);
}

TEST(etcd_pool, a_turn_that_nobody_comes_for_is_forfeited)
{
    vow_pool_limits limits = {.rate = 1, .window_us = 5000000};
    start();
    CHECK_UINT_EQ(acquire(PLACE(1, .limits = limits)), VOW_STATUS_OWNED);
    tell_starts(1, 1);
    CHECK_UINT_EQ(acquire(PLACE(2)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(acquire(PLACE(3)), VOW_STATUS_WAITING);
    vow_token want = token_of(3); /* 2 s behind that of the second */
    REAL_UNTIL(&rig, memcmp(&told.token, &want, sizeof(want)) == 0);
    CHECK(told.places >= 2);
    CHECK_UINT_EQ(acquire(PLACE(3)), VOW_STATUS_OWNED);
    renew(2, 1, LONG_MS);
    CHECK_UINT_EQ(told.at[0].status, VOW_STATUS_NONE);
    real_close(&rig);
}

/* ---- much at once -------------------------------------------------------- */

static unsigned answered;
static unsigned owns;

static void on_many(int code, const vow_pool_permit *places, size_t n,
                    void *user)
{
    (void)user;
    CHECK_INT_EQ(code, 0);
    CHECK_UINT_EQ(n, 1);
    answered++;
    owns += places[0].status == VOW_STATUS_OWNED;
}

/* A release does not wait behind requests: the next one may be granted before
 * its answer, or be told. */
TEST(etcd_pool, requests_begun_at_once_queue_in_their_order)
{
    start();
    answered = owns = 0;
    for (uint64_t i = 0; i < 50; i++)
        rig.store->ops->acquire(rig.store, PLACE(i, .limits = {10, 0, 0}),
                                on_many, NULL);
    const vow_permit_hold first = {pool_of("p"), pool_of("p"), token_of(0),
                                   false};
    rig.store->ops->release(rig.store, &first, on_many, NULL);
    REAL_UNTIL(&rig, answered == 51);
    CHECK(owns == 11 || owns == 12);
    REAL_UNTIL(&rig, told.places > 0 || owns == 12);
    renew(1, 49, LONG_MS);
    for (size_t i = 0; i < 49; i++)
        CHECK_UINT_EQ(told.at[i].status,
                      i < 10 ? VOW_STATUS_OWNED : VOW_STATUS_WAITING);
    real_close(&rig);
}

TEST(etcd_pool, pools_are_listed_page_by_page)
{
    struct cas_pool_name name = {pool_of("p"), pool_of("p")};
    static char body[64 * 1024];
    start();
    limit(&(const vow_pool_limits){.concurrent = 7});
    for (uint64_t page = 0; page < 25; page++) {
        size_t at = (size_t)snprintf(body, sizeof(body), "{\"success\":[");
        for (uint64_t i = 0; i < 100; i++) {
            char text[256], b64[512];
            name.pool = pool_of(i < 50 ? "a" : "b");
            vow_token token = token_of(100 * page + i);
            snprintf(text, sizeof(text), "vow/%s",
                     vow__etcd_row_key(&name, &token).text);
            struct vow__buf j;
            vow__etcd_buf_init(&j, vow__etcd_alloc(rig.etcd));
            vow__etcd_buf_base64(&j, text, strlen(text));
            snprintf(b64, sizeof(b64), "%.*s", (int)j.n, j.bytes);
            vow__buf_fini(&j);
            at += (size_t)snprintf(
                body + at, sizeof(body) - at,
                "%s{\"request_put\":{\"key\":\"%s\",\"value\":"
                "\"d2VpZ2h0IDEKbGVhc2UgOTAwMApsYWJlbCB4Cg==\"}}",
                i == 0 ? "" : ",", b64);
        }
        snprintf(body + at, sizeof(body) - at, "]}");
        CHECK(etcd_number(etcd_ask(&rig.kit, 0, "kv/txn", body), "revision") >
              0);
    }
    list();
    CHECK_UINT_EQ(told.n, 3);
    real_close(&rig);
}
