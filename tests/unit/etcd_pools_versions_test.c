/* SPDX-License-Identifier: MIT */
/* etcd_pools_versions_test.c - pools that processes of earlier versions share:
 * the keys and lines that they have written count, and what is written now has
 * the lines that they read. */
#include "base/clock.h"
#include "etcd_pools_kit.h"

/* Rows of processes of an earlier version, by number. */
static const char *old_row(const char *pool, unsigned number)
{
    char rest[64];
    snprintf(rest, sizeof(rest), "q/%030u07", number);
    return pool_key(pool, rest);
}

static void put_row(struct pools *p, unsigned number, unsigned weight,
                    const char *held)
{
    char value[256];
    snprintf(value, sizeof(value),
             "weight %u\nlease 60000\n%ssince 1700000000000000\n"
             "runner old:%u\n",
             weight, held, number);
    etcd_put(p->n->member, old_row("p", number), value);
}

static void put_limits(struct pools *p, unsigned concurrent, unsigned rate)
{
    char value[256];
    snprintf(value, sizeof(value),
             "concurrent %u\nrate %u\nwindow %u\nlabel old\n", concurrent, rate,
             rate > 0 ? 60000000 : 0);
    etcd_put(p->n->member, pool_key("p", "l"), value);
}

static void check_permit(struct permit_told t, uint32_t status)
{
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(t.at[0].status, status);
}

static void check_has(struct pools *p, const char *key, const char *line)
{
    const char *value = etcd_get(p->n->member, key);
    if (value == NULL || strstr(value, line) == NULL)
        FAIL("no \"%s\" in \"%s\"", line, value == NULL ? "" : value);
}

static const char *new_row(uint64_t number)
{
    char rest[64];
    vow_token token = token_of(number);
    size_t n = (size_t)snprintf(rest, sizeof(rest), "q/");
    for (size_t i = 0; i < sizeof(token.bytes); i++)
        n += (size_t)snprintf(rest + n, sizeof(rest) - n, "%02x",
                              token.bytes[i]);
    return pool_key("p", rest);
}

/* ---- concurrency --------------------------------------------------------- */

TEST(etcd_pools_versions, holders_and_waiters_of_both_are_one_queue)
{
    struct pools *p = pools_open();
    put_limits(p, 2, 0);
    put_row(p, 1, 1, "");
    put_row(p, 2, 1, "");
    struct permit_told t = acquire(p, 0, PERMIT("p", 1, .limits = {9, 0, 0}));
    check_permit(t, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(t.at[0].ahead, 0);
    CHECK_UINT_EQ(t.at[0].limits.concurrent, 2);
    put_row(p, 3, 1, "");
    t = acquire(p, 1, PERMIT("p", 2));
    check_permit(t, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(t.at[0].ahead, 2);
    POOLS_UNTIL(p, p->watches == 2 && p->head[0] && p->head[1]);
    etcd_delete(p->n->member, old_row("p", 2));
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(p->turns[1], 0);
    etcd_delete(p->n->member, old_row("p", 1)); /* the turn of the old row */
    t = renew(p, 1, RENEW("p", 2));
    check_permit(t, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(t.at[0].ahead, 0);
    check_permit(release(p, 0, "p", 1), VOW_STATUS_OWNED);
    POOLS_UNTIL(p, p->turns[1] > 0);
    check_permit(acquire(p, 1, PERMIT("p", 2)), VOW_STATUS_OWNED);
    t = limit(p, 0, "p", NULL);
    CHECK_UINT_EQ(t.info.held, 2);
    CHECK_STR_EQ(t.label, "old");
    pools_close(p);
}

/* The row keeps its place when an earlier version moves the row to another
 * lease. */
TEST(etcd_pools_versions, a_row_that_is_put_again_keeps_its_place)
{
    struct pools *p = pools_open();
    put_limits(p, 1, 0);
    put_row(p, 1, 1, "");
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_WAITING);
    POOLS_UNTIL(p, p->watches == 1 && p->head[0]);
    put_row(p, 1, 1, "");
    pools_pass(p, 100);
    CHECK_UINT_EQ(p->turns[0], 0);
    check_permit(renew(p, 0, RENEW("p", 1)), VOW_STATUS_WAITING);
    etcd_delete(p->n->member, old_row("p", 1));
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    pools_close(p);
}

/* ---- limits -------------------------------------------------------------- */

/* As an earlier version does: first the marks, then the limits. */
TEST(etcd_pools_versions, limits_lowered_by_an_earlier_version_are_respected)
{
    struct pools *p = pools_open();
    put_limits(p, 3, 0);
    put_row(p, 1, 1, "");
    put_row(p, 2, 1, "");
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    check_permit(acquire(p, 1, PERMIT("p", 2)), VOW_STATUS_WAITING);
    POOLS_UNTIL(p, p->watches == 1 && p->head[1]);
    put_row(p, 1, 1, "held 1\n");
    put_row(p, 2, 1, "held 1\n");
    put_limits(p, 1, 0); /* without a mark of the row of this version */
    check_permit(renew(p, 0, RENEW("p", 1)), VOW_STATUS_OWNED);
    check_has(p, new_row(1), "\nheld 1\n");
    check_permit(renew(p, 1, RENEW("p", 2)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(limit(p, 1, "p", NULL).info.held, 3);
    etcd_delete(p->n->member, old_row("p", 1));
    etcd_delete(p->n->member, old_row("p", 2));
    check_permit(renew(p, 1, RENEW("p", 2)), VOW_STATUS_WAITING);
    CHECK_UINT_EQ(p->turns[1], 0);
    check_permit(release(p, 0, "p", 1), VOW_STATUS_OWNED);
    POOLS_UNTIL(p, p->turns[1] > 0);
    check_permit(acquire(p, 1, PERMIT("p", 2)), VOW_STATUS_OWNED);
    pools_close(p);
}

TEST(etcd_pools_versions, limits_raised_by_an_earlier_version_are_found)
{
    struct pools *p = pools_open();
    put_limits(p, 1, 0);
    put_row(p, 1, 1, "");
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_WAITING);
    POOLS_UNTIL(p, p->watches == 1 && p->head[0]);
    put_limits(p, 2, 0);
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    pools_close(p);
}

TEST(etcd_pools_versions, limits_lowered_now_mark_rows_of_an_earlier_version)
{
    struct pools *p = pools_open();
    const vow_pool_limits one = {.concurrent = 1};
    put_limits(p, 2, 0);
    put_row(p, 1, 1, "");
    put_row(p, 2, 1, "");
    put_row(p, 3, 1, "");
    struct permit_told t = limit(p, 0, "p", &one);
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(t.info.held, 2);
    CHECK_UINT_EQ(t.info.waiting, 1);
    CHECK_STR_EQ(t.label, "old");
    for (unsigned i = 1; i <= 2; i++) {
        check_has(p, old_row("p", i),
                  "weight 1\nlease 60000\nheld 1\nsince 1700000000000000\n"
                  "runner old:");
    }
    CHECK(strstr(etcd_get(p->n->member, old_row("p", 3)), "held") == NULL);
    check_has(p, pool_key("p", "l"),
              "concurrent 1\nrate 0\nwindow 0\nlabel old\n");
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_WAITING);
    pools_close(p);
}

/* ---- rates --------------------------------------------------------------- */

static void put_entry(struct pools *p, unsigned id, unsigned weight,
                      unsigned open, uint64_t age_us)
{
    char rest[64], boot[96], value[512];
    vow__etcd_boot_read(boot, sizeof(boot));
    snprintf(rest, sizeof(rest), "t/%016x", id);
    snprintf(value, sizeof(value),
             "weight %u\nopen %u\nboot %s\nat %" PRIu64 "\n", weight, open,
             boot, vow__clock_boot_ns() / 1000 - age_us);
    etcd_put(p->n->member, pool_key("p", rest), value);
}

TEST(etcd_pools_versions, entries_of_an_earlier_version_count_by_their_age)
{
    struct pools *p = pools_open();
    world_advance_ms(p->n->w, LONG_MS); /* the loop is older than entries */
    put_limits(p, 0, 3);
    put_row(p, 1, 1, "held 1\n");
    put_entry(p, 1, 1, 1, 90000000); /* open: counts as of now */
    put_entry(p, 2, 1, 0, 1000000);
    put_entry(p, 3, 5, 0, 90000000); /* counts no more */
    CHECK_UINT_EQ(limit(p, 1, "p", NULL).info.rate_used, 2);
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    struct permit_told t = acquire(p, 1, PERMIT("p", 2));
    check_permit(t, VOW_STATUS_WAITING);
    CHECK(t.at[0].again_us > 50000000);
    CHECK(t.at[0].again_us <= 59000000);
    pools_close(p);
}

TEST(etcd_pools_versions, a_waiting_row_of_an_earlier_version_is_granted_first)
{
    struct pools *p = pools_open();
    put_limits(p, 0, 1);
    put_row(p, 1, 1, "");
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_WAITING);
    POOLS_UNTIL(p, p->watches == 1 && p->head[0]);
    etcd_delete(p->n->member, old_row("p", 1));
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    pools_close(p);
}

TEST(etcd_pools_versions, an_earlier_version_reads_rows_entries_and_limits)
{
    struct pools *p = pools_open();
    const vow_pool_limits rate = {
        .concurrent = 7, .rate = 3, .window_us = 60000000};
    struct permit_told t = acquire(
        p, 0, PERMIT("p", 1, .weight = 2, .limits = rate, .lease_ms = 60000));
    check_permit(t, VOW_STATUS_OWNED);
    check_permit(acquire(p, 0, PERMIT("p", 2, .weight = 3)),
                 VOW_STATUS_WAITING);
    check_has(p, pool_key("p", "l"),
              "concurrent 7\nrate 3\nwindow 60000000\nlabel p\n");
    check_has(p, new_row(1), "weight 2\nlease 60000\nheld 1\nsince ");
    check_has(p, new_row(1), "\nrunner r\n");
    CHECK(strstr(etcd_get(p->n->member, new_row(2)), "held") == NULL);
    char rest[64];
    snprintf(rest, sizeof(rest), "t/%016" PRIx64, t.at[0].fence);
    check_has(p, pool_key("p", rest), "weight 2\nopen 1\nboot ");
    check_has(p, pool_key("p", rest), "\nat ");
    CHECK_UINT_EQ(pool_count(p, "p", "t/"), 1);
    pools_close(p);
}
