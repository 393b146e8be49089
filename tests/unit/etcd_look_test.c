/* SPDX-License-Identifier: MIT */
/* etcd_look_test.c - many names at once, and results in another store. */
#include "etcd_names_kit.h"
#include "etcd_real.h"

enum { MANY = 130 };

struct seen {
    bool done;
    int code;
    size_t n;
    unsigned status[8];
    unsigned waiters;
};

static void on_seen(int code, const vow_record *r, size_t n, void *user)
{
    struct seen *s = user;
    s->done = true;
    s->code = code;
    s->n = n;
    for (size_t i = 0; i < n; i++) {
        CHECK(r[i].status < 8);
        CHECK(r[i].value == NULL);
        s->status[r[i].status]++;
        s->waiters += r[i].waiters;
    }
}

/* A third runs, a third is settled, a third has lapsed. */
static void make_many(struct names *n, vow_name *names)
{
    char name[16];
    for (uint64_t i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "name %u", (unsigned)i);
        names[i] = vow_name_of(name);
        uint64_t epoch =
            claim(n, 0, ASK(name, i, .lease_ms = i % 3 == 2 ? 0 : LONG_MS))
                .epoch;
        if (i % 3 == 1)
            (void)commit(n, 0, COMMIT(name, i, epoch), "x");
    }
    for (uint64_t i = 0; i < MANY; i += 3) { /* last: etcd ends their seats */
        snprintf(name, sizeof(name), "name %u", (unsigned)i);
        (void)claim(n, 1, ASK(name, 1000 + i));
    }
}

TEST(etcd_look, many_names_are_looked_at_by_few_requests)
{
    struct names *n = names_open();
    vow_store *s = n->at[1].store;
    vow_name names[MANY];
    struct seen seen = {.done = false};
    make_many(n, names);
    n->txns = 0;
    s->ops->peek(s, names, MANY, on_seen, &seen);
    while (!seen.done)
        names_step(n);
    CHECK_UINT_EQ(n->txns, 4);
    CHECK_UINT_EQ(seen.n, MANY);
    CHECK_UINT_EQ(seen.status[VOW_STATUS_WAITING], 44);
    CHECK_UINT_EQ(seen.status[VOW_STATUS_SETTLED], 43);
    CHECK_UINT_EQ(seen.status[VOW_STATUS_NONE], 43);
    CHECK_UINT_EQ(seen.waiters, 44);
    names_close(n);
}

TEST(etcd_look, a_list_of_several_pages_has_all_and_counts_who_waits)
{
    struct names *n = names_open();
    vow_store *s = n->at[1].store;
    vow_name names[MANY];
    struct seen seen = {.done = false};
    make_many(n, names);
    etcd_put(n->member, "vow/n/nothing", "of ours");
    etcd_put(n->member, "vow/w/nothing", "of ours");
    etcd_put(n->member, whole_key("n", "name 1", "/r"), "gibberish");
    etcd_put(n->member, whole_key("w", "nobody", "/x"), "");
    n->txns = 0;
    s->ops->list(s, on_seen, &seen);
    while (!seen.done)
        names_step(n);
    CHECK_INT_EQ(seen.code, 0);
    CHECK_UINT_EQ(n->txns, 3); /* 174 keys of names, 46 of who waits */
    CHECK_UINT_EQ(seen.n, MANY - 1);
    CHECK_UINT_EQ(seen.status[VOW_STATUS_WAITING], 44);
    CHECK_UINT_EQ(seen.status[VOW_STATUS_SETTLED], 42);
    CHECK_UINT_EQ(seen.waiters, 44);
    names_close(n);
}

static const char *nothing(struct fake_etcd *f, const char *path,
                           const char *body)
{
    (void)f;
    (void)path;
    (void)body;
    return "{}";
}

TEST(etcd_look, an_answer_to_a_list_that_is_none_is_told)
{
    static struct fake_etcd f;
    struct seen seen = {.done = false};
    fake_etcd_open(&f, nothing);
    f.store->ops->list(f.store, on_seen, &seen);
    FAKE_ETCD_UNTIL(&f, seen.done);
    CHECK_INT_EQ(seen.code, VOW_ESTORE);
    CHECK_STR_EQ(f.store->ops->explain(f.store),
                 "etcd gave an answer that is none");
    fake_etcd_close(&f);
}

TEST(etcd_look, a_peek_is_behind_what_was_begun_before)
{
    struct names *n = names_open();
    vow_store *s = n->at[0].store;
    struct answer a = {.done = false}, b = {.done = false};
    vow_name name = vow_name_of("a");
    n->hold = true;
    s->ops->claim(s, ASK("a", 1), on_records, &a);
    s->ops->peek(s, &name, 1, on_records, &b);
    while (n->held[0] == 0)
        names_step(n);
    names_settle(n);
    CHECK(!b.done);
    names_let_go(n);
    CHECK_UINT_EQ(await(n, &b)->status, VOW_STATUS_WAITING);
    names_close(n);
}

/* ---- results elsewhere --------------------------------------------------- */

static struct answer *real_await(struct real *r, struct answer *a)
{
    REAL_UNTIL(r, a->done);
    return a;
}

TEST(etcd_look, a_value_that_is_too_long_lies_in_another_store)
{
    static struct real r;
    enum { SIZE = 100 * 1024 };
    real_open(&r, VOW_ETCD_OPTS(.results = "memory:", .value_max = 1024));
    vow_store *s = r.store;
    VOW_AUTO(vow_bytes) value = NULL;
    CHECK_INT_EQ(vow_bytes_new(r.w.loop, NULL, SIZE, &value), 0);
    memset(vow_bytes_data(value), 'y', SIZE);
    for (uint64_t ttl_ms = 0; ttl_ms <= LONG_MS; ttl_ms += LONG_MS) {
        struct answer own = {.done = false}, waits = {.done = false},
                      a = {.done = false}, b = {.done = false};
        const char *name = ttl_ms == 0 ? "hidden" : "shown";
        s->ops->claim(s, ASK(name, 1), on_records, &own);
        s->ops->claim(s, ASK(name, 2), on_records, &waits);
        CHECK_UINT_EQ(real_await(&r, &own)->status, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(real_await(&r, &waits)->status, VOW_STATUS_WAITING);
        s->ops->commit(
            s, COMMIT(name, 1, own.epoch, .value = value, .ttl_ms = ttl_ms),
            on_records, &a);
        CHECK_UINT_EQ(real_await(&r, &a)->status, VOW_STATUS_OWNED);
        s->ops->claim(s, ASK(name, 2), on_records, &b);
        real_await(&r, &b);
        CHECK_UINT_EQ(b.status, VOW_STATUS_SETTLED);
        CHECK_UINT_EQ(b.size, SIZE);
        CHECK(b.value[0] == 'y');
    }
    value = vow_bytes_unref(value);
    real_close(&r);
}
