/* SPDX-License-Identifier: MIT */
/* etcd_end_test.c - keys that end when they should, if nobody changed them. */
#include "etcd_fake.h"
#include "etcd_real.h"

enum { MANY = 100 };

static struct {
    unsigned txns;
    unsigned deletes; /* in all of them */
    unsigned nested;  /* of these, with a compare of their own */
    unsigned unheard; /* requests that are dropped */
    bool holds;       /* the next is not answered */
    char last[64 * 1024];
} server;

static unsigned count(const char *text, const char *word)
{
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++)
        n++;
    return n;
}

static const char *end(struct fake_etcd *f, const char *path, const char *body)
{
    (void)f;
    CHECK_STR_EQ(path, "kv/txn");
    server.txns++;
    if (server.unheard > 0) {
        server.unheard--;
        return FAKE_HANG_UP;
    }
    server.deletes += count(body, "request_delete_range");
    server.nested += count(body, "request_txn");
    snprintf(server.last, sizeof(server.last), "%s", body);
    if (server.holds)
        return FAKE_SILENCE;
    return "{\"header\":{\"revision\":\"9\"},\"succeeded\":true}";
}

static struct vow__key key_of(unsigned number)
{
    char text[16];
    snprintf(text, sizeof(text), "/%u", number);
    return vow__key("x", NULL, text);
}

static void set_end(struct vow__etcd *e, unsigned number, uint64_t mod,
                    uint64_t after_ms)
{
    struct vow__key key = key_of(number);
    CHECK_INT_EQ(vow__end_key(e, &key, mod, after_ms), 0);
}

TEST(etcd_end, a_key_is_deleted_in_time_and_once)
{
    struct fake_etcd f;
    fake_etcd_open(&f, end);
    set_end(f.etcd, 1, 5, 500);
    fake_etcd_pass(&f, 499);
    CHECK_UINT_EQ(server.txns, 0);
    fake_etcd_pass(&f, 1);
    CHECK_UINT_EQ(server.txns, 1);
    CHECK_UINT_EQ(server.nested, 1);
    CHECK_UINT_EQ(server.deletes, 1);
    fake_etcd_pass(&f, 3000);
    CHECK_UINT_EQ(server.txns, 1);
    fake_etcd_close(&f);
}

TEST(etcd_end, one_that_is_named_again_has_the_new_time)
{
    struct fake_etcd f;
    fake_etcd_open(&f, end);
    set_end(f.etcd, 1, 5, 500);
    set_end(f.etcd, 2, 5, 500);
    fake_etcd_pass(&f, 400);
    set_end(f.etcd, 1, 6, 500);
    set_end(f.etcd, 2, 0, VOW__NEVER);
    set_end(f.etcd, 3, 0, VOW__NEVER);
    fake_etcd_pass(&f, 490);
    CHECK_UINT_EQ(server.txns, 0);
    set_end(f.etcd, 4, 5, 0);
    fake_etcd_pass(&f, 1);
    CHECK_UINT_EQ(server.txns, 1); /* sooner than the others */
    fake_etcd_pass(&f, 20);
    CHECK_UINT_EQ(server.txns, 2);
    CHECK_UINT_EQ(server.deletes, 2);
    CHECK(strstr(server.last, "\"mod_revision\":\"6\"") != NULL);
    fake_etcd_close(&f);
}

TEST(etcd_end, many_go_in_few_transactions)
{
    struct fake_etcd f;
    fake_etcd_open(&f, end);
    for (unsigned i = 0; i < MANY; i++)
        set_end(f.etcd, i, i % 2, 100 + i % 7);
    fake_etcd_pass(&f, 110);
    CHECK_UINT_EQ(server.deletes, MANY);
    CHECK_UINT_EQ(server.nested, MANY / 2);
    CHECK(server.txns <= 10);
    fake_etcd_close(&f);
}

TEST(etcd_end, what_fails_is_tried_until_it_is_gone)
{
    struct fake_etcd f;
    fake_etcd_open(&f, end);
    server.unheard = 2;
    set_end(f.etcd, 1, 5, 100);
    fake_etcd_pass(&f, 1200);
    CHECK_UINT_EQ(server.txns, 2);
    CHECK_UINT_EQ(server.deletes, 0);
    fake_etcd_pass(&f, 2000);
    CHECK_UINT_EQ(server.deletes, 1);
    fake_etcd_pass(&f, 10000);
    CHECK_UINT_EQ(server.txns, 3);

    server.unheard = 1000;
    server.txns = 0;
    set_end(f.etcd, 1, 5, 100);
    fake_etcd_pass(&f, 60000); /* a long outage */
    CHECK(server.txns >= 10);
    CHECK(server.txns <= 20);
    server.unheard = 0;
    fake_etcd_pass(&f, 4100);
    CHECK_UINT_EQ(server.deletes, 2);
    server.txns = 0;
    fake_etcd_pass(&f, 10000);
    CHECK_UINT_EQ(server.txns, 0);
    fake_etcd_close(&f);
}

TEST(etcd_end, what_is_said_while_it_is_under_way_counts)
{
    struct fake_etcd f;
    fake_etcd_open(&f, end);
    server.holds = true;
    for (unsigned i = 1; i <= 3; i++)
        set_end(f.etcd, i, 5, 100);
    fake_etcd_pass(&f, 110);
    CHECK_UINT_EQ(server.txns, 1);
    set_end(f.etcd, 1, 6, 200);        /* again */
    set_end(f.etcd, 2, 6, VOW__NEVER); /* and not even if it failed */
    set_end(f.etcd, 3, 6, VOW__NEVER); /* no: */
    set_end(f.etcd, 3, 7, 300);
    server.holds = false;
    server.unheard = 1;
    fake_talk_end(f.last);
    fake_etcd_pass(&f, 100);
    CHECK_UINT_EQ(server.txns, 1);
    CHECK_UINT_EQ(server.deletes, 3);
    server.unheard = 0;
    fake_etcd_pass(&f, 5000);
    CHECK_UINT_EQ(server.txns, 3);
    CHECK_UINT_EQ(server.deletes, 5);
    CHECK(strstr(server.last, "\"mod_revision\":\"7\"") != NULL);
    fake_etcd_close(&f);
}

TEST(etcd_end, a_loop_does_not_wait_for_it)
{
    struct fake_etcd f;
    fake_etcd_open(&f, end);
    set_end(f.etcd, 1, 5, 60000);
    world_run(f.w);
    CHECK(vow_loop_now_ns(f.w->loop) < UINT64_C(60000) * 1000000);
    fake_etcd_close(&f);
    CHECK_UINT_EQ(server.txns, 0);
}

TEST(etcd_end, a_store_can_be_closed_while_it_is_under_way)
{
    struct fake_etcd f;
    fake_etcd_open(&f, end);
    server.holds = true;
    set_end(f.etcd, 1, 5, 10);
    set_end(f.etcd, 2, 5, 1000);
    fake_etcd_pass(&f, 20);
    CHECK_UINT_EQ(server.txns, 1);
    set_end(f.etcd, 1, 5, 10);
    fake_etcd_close(&f);
}

FAULT_SWEEP(etcd_end, without_memory_it_is_told_or_tried_again, FAULT_ALLOC)
{
    static struct fake_etcd f;
    unsigned set = 0;
    memset(&server, 0, sizeof(server));
    fake_etcd_begin(&f, w, end);
    for (unsigned i = 0; f.store != NULL && i < 3; i++) {
        struct vow__key key = key_of(i);
        int rc = vow__end_key(f.etcd, &key, 5, 10);
        CHECK(rc == 0 || fault_explains(w, rc));
        set += rc == 0;
    }
    if (f.store != NULL) {
        fake_etcd_pass(&f, 20);
        fake_etcd_pass(&f, 1000);
        CHECK(server.deletes >= set || w->alloc.fail_forever);
    }
    fake_etcd_end(&f);
}

TEST(etcd_end, etcd_keeps_what_has_changed_and_ends_the_others)
{
    static struct real r;
    real_open(&r, NULL);
    etcd_put(&r.kit, "vow/x/1", "a");
    uint64_t first = etcd_revision(&r.kit);
    etcd_put(&r.kit, "vow/x/2", "a");
    etcd_put(&r.kit, "vow/x/3", "a");
    uint64_t last = etcd_revision(&r.kit);
    etcd_put(&r.kit, "vow/y/1", "a");
    etcd_put(&r.kit, "vow/y/2", "a");
    etcd_put(&r.kit, "vow/z/1", "a");
    uint64_t trees = etcd_revision(&r.kit);
    etcd_put(&r.kit, "vow/z/2", "a");
    uint64_t since = real_ms(&r);
    set_end(r.etcd, 1, first, 50);
    set_end(r.etcd, 2, last, 50); /* another's revision */
    set_end(r.etcd, 3, 0, 50);
    struct vow__key y = vow__key("y", NULL, "/");
    struct vow__key z = vow__key("z", NULL, "/");
    CHECK_INT_EQ(vow__end_key(r.etcd, &y, trees, 50), 0);
    CHECK_INT_EQ(vow__end_key(r.etcd, &z, trees, 50), 0);
    real_pass(&r, 20);
    if (real_ms(&r) - since < 50)
        CHECK_UINT_EQ(etcd_count(&r.kit, "vow/"), 7);
    REAL_UNTIL(&r, etcd_count(&r.kit, "vow/") == 3);
    CHECK_STR_EQ(etcd_get(&r.kit, "vow/x/2"), "a");
    CHECK_UINT_EQ(etcd_count(&r.kit, "vow/z/"), 2);
    real_close(&r);
}
