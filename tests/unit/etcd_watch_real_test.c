/* SPDX-License-Identifier: MIT */
/* etcd_watch_real_test.c - a watch on a member of etcd that is hurt. */
#include "etcd_heard.h"
#include "etcd_real.h"

static void real_begin(struct real *r, struct heard *h)
{
    real_open(r, VOW_ETCD_OPTS(.recheck_ms = 500, .timeout_ms = 500));
    memset(h, 0, sizeof(*h));
    CHECK_INT_EQ(hear(r->etcd, h, etcd_revision(&r->kit)), 0);
}

static void real_finish(struct real *r, struct heard *h)
{
    heard_close(h);
    real_close(r);
}

TEST(etcd_watch, etcd_tells_of_puts_deletes_and_leases_that_end)
{
    static struct real r;
    static struct heard h;
    char want[256];
    real_begin(&r, &h);
    uint64_t at = etcd_revision(&r.kit);
    etcd_put(&r.kit, "vow/n/a", "1"); /* perhaps before there is a stream */
    REAL_UNTIL(&r, h.puts == 1);
    etcd_put(&r.kit, "vow/n0", "1");
    etcd_put(&r.kit, "vow/m/a", "1");
    etcd_put(&r.kit, "vow/n/b", "");
    etcd_delete(&r.kit, "vow/n/a");
    (void)etcd_say(&r.kit, "lease/grant", "{\"TTL\":\"60\",\"ID\":\"77\"}");
    (void)etcd_say(&r.kit, "kv/put",
                   "{\"key\":\"dm93L24vYQ==\",\"lease\":\"77\"}");
    (void)etcd_say(&r.kit, "lease/revoke", "{\"ID\":\"77\"}");
    REAL_UNTIL(&r, h.deletes == 2);
    snprintf(want, sizeof(want),
             "+n/a=1@%" PRIu64 " +n/b=@%" PRIu64 " -n/a@%" PRIu64
             " +n/a=@%" PRIu64 " -n/a@%" PRIu64 " ",
             at + 1, at + 4, at + 5, at + 6, at + 7);
    CHECK_STR_EQ(h.log, want);
    real_finish(&r, &h);
}

TEST(etcd_watch, etcd_tells_all_of_a_long_past)
{
    enum { PUTS = 200, SIZE = 30000 };
    static struct real r;
    static struct heard h;
    static char body[2 * SIZE];
    real_open(&r, NULL);
    memset(&h, 0, sizeof(h));
    size_t n = (size_t)snprintf(body, sizeof(body),
                                "{\"key\":\"dm93L24vYQ==\",\"value\":\"");
    for (int i = 0; i < SIZE / 3; i++)
        n += (size_t)snprintf(body + n, sizeof(body) - n, "eHh4");
    snprintf(body + n, sizeof(body) - n, "\"}");
    uint64_t at = etcd_revision(&r.kit);
    for (int i = 0; i < PUTS; i++)
        CHECK(etcd_number(etcd_ask(&r.kit, 0, "kv/put", body), "revision") > 0);
    CHECK_INT_EQ(hear(r.etcd, &h, at), 0);
    REAL_UNTIL(&r, h.puts == PUTS);
    etcd_put(&r.kit, "vow/n/a", "");
    REAL_UNTIL(&r, h.puts == PUTS + 1);
    CHECK_UINT_EQ(h.last, at + PUTS + 1);
    CHECK_UINT_EQ(h.doubts, 0);
    real_finish(&r, &h);
}

TEST(etcd_watch, nothing_is_lost_when_a_server_is_killed_or_frozen)
{
    static struct real r;
    static struct heard h;
    real_begin(&r, &h);
    etcd_put(&r.kit, "vow/n/a", "1");
    REAL_UNTIL(&r, h.puts == 1);
    etcd_kill(&r.kit, 0);
    real_pass(&r, 300);
    etcd_again(&r.kit, 0);
    etcd_put(&r.kit, "vow/n/a", "2");
    REAL_UNTIL(&r, h.puts == 2);
    etcd_freeze(&r.kit, 0);
    real_pass(&r, 2500);
    etcd_thaw(&r.kit, 0);
    etcd_put(&r.kit, "vow/n/a", "3");
    REAL_UNTIL(&r, h.puts == 3);
    CHECK_UINT_EQ(h.doubts, 0);
    real_finish(&r, &h);
}

TEST(etcd_watch, etcd_that_has_forgotten_the_past_is_in_doubt)
{
    static struct real r;
    static struct heard h;
    real_open(&r, NULL);
    memset(&h, 0, sizeof(h));
    uint64_t at = etcd_revision(&r.kit);
    for (int i = 0; i < 5; i++)
        etcd_put(&r.kit, "vow/n/a", "1");
    etcd_compact(&r.kit);
    CHECK_INT_EQ(hear(r.etcd, &h, at), 0);
    REAL_UNTIL(&r, h.doubts == 1);
    CHECK_UINT_EQ(h.puts, 0);
    etcd_put(&r.kit, "vow/n/a", "2");
    REAL_UNTIL(&r, h.puts == 1);
    CHECK_UINT_EQ(h.last, at + 6);
    real_pass(&r, 300);
    CHECK_UINT_EQ(h.doubts, 1);
    real_finish(&r, &h);
}
