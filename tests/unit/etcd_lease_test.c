/* SPDX-License-Identifier: MIT */
/* etcd_lease_test.c - leases that are shared, kept alive when need be, and
 * never believed to live longer than they do. */
#include "etcd_fake.h"
#include "etcd_real.h"

#include <inttypes.h>

enum { USES = 8 };

struct told {
    unsigned n;
    int code;
    int64_t lease;
    bool once_more; /* ask for the same when it is told */
};

/* What the gateway has granted, and how it behaves. */
static struct {
    int64_t id; /* 0: none */
    uint64_t ttl;
    uint64_t ttl_min;
    unsigned grants, renewals, revoked;
    unsigned unheard; /* requests that are dropped */
    unsigned unsaid;  /* requests that are done without an answer */
    bool holds;       /* the answer waits in fake.said */
    char held[256];
} server;

static int64_t id_in(const char *body)
{
    const char *at = strstr(body, "\"ID\":\"");
    CHECK(at != NULL);
    int64_t id = strtoll(at + 6, NULL, 10);
    CHECK(id > 0);
    return id;
}

static void print_lease(struct fake_etcd *f, const char *before,
                        const char *after)
{
    if (server.id != 0)
        snprintf(f->said, sizeof(f->said),
                 "%s{\"header\":{\"revision\":\"5\"},\"ID\":\"%" PRId64
                 "\",\"TTL\":\"%" PRIu64 "\"}%s",
                 before, server.id, server.ttl, after);
    else
        snprintf(f->said, sizeof(f->said),
                 "%s{\"header\":{\"revision\":\"5\"},\"ID\":\"%" PRId64 "\"}%s",
                 before, id_in(f->body), after);
}

static const char *lend(struct fake_etcd *f, const char *path, const char *body)
{
    if (strcmp(path, "lease/revoke") == 0) { /* the store is closed */
        server.revoked++;
        return "{}";
    }
    if (server.unheard > 0) {
        server.unheard--;
        return FAKE_HANG_UP;
    }
    if (strcmp(path, "lease/grant") == 0) {
        const char *ttl = strstr(body, "\"TTL\":\"");
        CHECK(ttl != NULL);
        server.grants++;
        server.id = id_in(body);
        server.ttl = strtoull(ttl + 7, NULL, 10);
        if (server.ttl < server.ttl_min)
            server.ttl = server.ttl_min;
        print_lease(f, "", "");
    } else {
        CHECK_STR_EQ(path, "lease/keepalive");
        server.renewals++;
        if (server.id != id_in(body))
            server.id = 0;
        print_lease(f, "{\"result\":", "}");
    }
    if (server.unsaid > 0) {
        server.unsaid--;
        return FAKE_HANG_UP;
    }
    if (!server.holds)
        return f->said;
    snprintf(server.held, sizeof(server.held), "%.255s", f->said);
    return FAKE_SILENCE;
}

static void let_go(struct fake_etcd *f)
{
    CHECK(server.held[0] != 0);
    fake_talk_answer(f->last, server.held);
    server.held[0] = 0;
    server.holds = false;
}

static void on_lease(struct vow__etcd *e, int code, int64_t lease, void *user)
{
    struct told *t = user;
    t->n++;
    t->code = code;
    t->lease = lease;
    if (t->once_more) {
        t->once_more = false;
        vow__lease_use(e, 1000, 0, on_lease, t);
    }
}

static void use(struct fake_etcd *f, uint64_t ms, struct told *t)
{
    *t = (struct told){.n = 0};
    vow__lease_use(f->etcd, ms, 0, on_lease, t);
    CHECK_UINT_EQ(t->n, 0);
}

/* Use one, and have it. */
static int64_t have(struct fake_etcd *f, uint64_t ms)
{
    struct told t;
    use(f, ms, &t);
    FAKE_ETCD_UNTIL(f, t.n == 1);
    CHECK_INT_EQ(t.code, 0);
    return t.lease;
}

static int64_t have_once(struct fake_etcd *f, uint64_t ms)
{
    struct told t = {.n = 0};
    vow__lease_once(f->etcd, ms, 0, on_lease, &t);
    CHECK_UINT_EQ(t.n, 0);
    FAKE_ETCD_UNTIL(f, t.n == 1);
    CHECK_INT_EQ(t.code, 0);
    return t.lease;
}

/* ---- one for many -------------------------------------------------------- */

TEST(etcd_lease, first_uses_share_one_grant)
{
    struct fake_etcd f;
    struct told t[USES];
    fake_etcd_open(&f, lend);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), 0);
    for (size_t i = 0; i < USES; i++)
        use(&f, i % 2 == 0 ? 1000 : 900, &t[i]);
    FAKE_ETCD_UNTIL(&f, t[USES - 1].n == 1);
    for (size_t i = 0; i < USES; i++) {
        CHECK_UINT_EQ(t[i].n, 1);
        CHECK_INT_EQ(t[i].code, 0);
        CHECK_INT_EQ(t[i].lease, server.id);
    }
    CHECK_STR_EQ(f.log, "lease/grant ");
    CHECK_UINT_EQ(server.ttl, 2);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), server.id);
    fake_etcd_close(&f);
}

TEST(etcd_lease, each_length_has_its_own)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    int64_t one = have(&f, 1000);
    int64_t other = have(&f, 1001);
    CHECK_UINT_EQ(server.ttl, 3);
    CHECK(one != other);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1), one); /* two seconds, too */
    CHECK_INT_EQ(have(&f, 2000), other);
    CHECK_UINT_EQ(server.grants, 2);
    fake_etcd_close(&f);
}

TEST(etcd_lease, none_is_no_lease)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    CHECK_INT_EQ(have(&f, 0), 0);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 0), 0);
    CHECK_INT_EQ(have_once(&f, UINT64_MAX), 0);
    CHECK_UINT_EQ(f.asked, 0);
    fake_etcd_close(&f);
}

TEST(etcd_lease, the_longest_is_what_etcd_takes)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    int64_t id = have(&f, UINT64_MAX);
    CHECK_UINT_EQ(server.ttl, 9000000000);
    fake_etcd_pass(&f, 100);
    CHECK_INT_EQ(have(&f, UINT64_MAX), id); /* and that it does not end */
    CHECK(have_once(&f, UINT64_MAX - 1) != 0);
    fake_etcd_close(&f);
}

/* ---- how long it lives --------------------------------------------------- */

TEST(etcd_lease, uses_within_the_slack_cost_nothing)
{
    struct fake_etcd f;
    struct told t[USES];
    fake_etcd_open(&f, lend);
    int64_t id = have(&f, 1000);
    fake_etcd_pass(&f, 1000);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), id);
    CHECK_INT_EQ(have(&f, 1000), id);
    CHECK_UINT_EQ(f.asked, 1);
    fake_etcd_pass(&f, 1);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), 0);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 900), id);
    for (size_t i = 0; i < USES; i++)
        use(&f, 1000, &t[i]);
    FAKE_ETCD_UNTIL(&f, t[USES - 1].n == 1);
    CHECK_STR_EQ(f.log, "lease/grant lease/keepalive ");
    CHECK_INT_EQ(t[0].lease, id);
    fake_etcd_pass(&f, 999);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), id);
    fake_etcd_close(&f);
}

TEST(etcd_lease, it_is_counted_from_when_the_request_was_sent)
{
    struct fake_etcd f;
    struct told t;
    fake_etcd_open(&f, lend);
    server.holds = true;
    use(&f, 1000, &t);
    FAKE_ETCD_UNTIL(&f, f.asked == 1);
    fake_etcd_pass(&f, 600);
    let_go(&f);
    FAKE_ETCD_UNTIL(&f, t.n == 1);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), server.id);
    fake_etcd_pass(&f, 401);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), 0);
    fake_etcd_close(&f);
}

TEST(etcd_lease, who_joins_a_request_too_late_waits_for_another)
{
    struct fake_etcd f;
    struct told early, late;
    fake_etcd_open(&f, lend);
    int64_t id = have(&f, 1000);
    fake_etcd_pass(&f, 1500);
    server.holds = true;
    use(&f, 1000, &early);
    FAKE_ETCD_UNTIL(&f, f.asked == 2);
    fake_etcd_pass(&f, 1001);
    use(&f, 1000, &late);
    let_go(&f);
    FAKE_ETCD_UNTIL(&f, late.n == 1);
    CHECK_UINT_EQ(early.n, 1);
    CHECK_INT_EQ(late.lease, id);
    CHECK_UINT_EQ(server.renewals, 2);
    fake_etcd_pass(&f, 990);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), id);
    fake_etcd_close(&f);
}

TEST(etcd_lease, a_server_that_grants_more_is_believed)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    server.ttl_min = 5;
    int64_t id = have(&f, 1000);
    fake_etcd_pass(&f, 4000);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), id);
    fake_etcd_pass(&f, 1);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), 0);
    fake_etcd_close(&f);
}

/* ---- when it is gone ----------------------------------------------------- */

TEST(etcd_lease, one_that_is_gone_is_followed_by_another)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    int64_t id = have(&f, 1000);
    fake_etcd_pass(&f, 5000);
    server.id = 0;
    CHECK(have(&f, 1000) != id);
    CHECK_STR_EQ(f.log, "lease/grant lease/keepalive lease/grant ");
    fake_etcd_close(&f);
}

TEST(etcd_lease, one_that_was_lost_is_not_used_before_it_is_sure)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    int64_t id = have(&f, 1000);
    vow__lease_lost(f.etcd, id + 2);
    vow__lease_lost(f.etcd, 0);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), id);
    vow__lease_lost(f.etcd, id);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), 0);
    CHECK_INT_EQ(have(&f, 1000), id); /* it was another */
    vow__lease_lost(f.etcd, id);
    server.id = 0;
    CHECK(have(&f, 1000) != id);
    CHECK_STR_EQ(f.log, "lease/grant lease/keepalive lease/keepalive "
                        "lease/grant ");
    fake_etcd_close(&f);
}

TEST(etcd_lease, an_answer_from_before_it_was_lost_does_not_count)
{
    struct fake_etcd f;
    struct told t;
    fake_etcd_open(&f, lend);
    int64_t id = have(&f, 1000);
    fake_etcd_pass(&f, 1500);
    server.holds = true;
    use(&f, 1000, &t);
    FAKE_ETCD_UNTIL(&f, f.asked == 2);
    vow__lease_lost(f.etcd, id);
    server.id = 0;
    let_go(&f);
    server.holds = true;
    FAKE_ETCD_UNTIL(&f, f.asked == 3);
    CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), 0);
    let_go(&f);
    FAKE_ETCD_UNTIL(&f, t.n == 1);
    CHECK_INT_EQ(t.code, 0);
    CHECK(t.lease != id);
    CHECK_UINT_EQ(server.renewals, 2);
    CHECK_UINT_EQ(server.grants, 2);
    fake_etcd_close(&f);
}

TEST(etcd_lease, a_grant_without_an_answer_is_found_by_its_id)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    server.unsaid = 1;
    CHECK_INT_EQ(have(&f, 1000), server.id);
    CHECK_STR_EQ(f.log, "lease/grant lease/keepalive ");
    CHECK_UINT_EQ(server.grants, 1);
    fake_etcd_close(&f);
}

TEST(etcd_lease, a_grant_that_never_was_is_asked_for_again)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    server.unheard = 1;
    CHECK_INT_EQ(have(&f, 1000), server.id);
    CHECK_STR_EQ(f.log, "lease/grant lease/keepalive lease/grant ");
    fake_etcd_close(&f);
}

TEST(etcd_lease, without_an_answer_nothing_has_happened)
{
    struct fake_etcd f;
    struct told t;
    fake_etcd_open(&f, lend);
    server.unheard = 100;
    use(&f, 1000, &t);
    FAKE_ETCD_UNTIL(&f, t.n == 1);
    CHECK_INT_EQ(t.code, VOW_ESTORE);
    CHECK_INT_EQ(t.lease, 0);
    CHECK(f.asked <= 4);
    server.unheard = 0;
    CHECK(have(&f, 1000) != 0);

    fake_etcd_pass(&f, 1500); /* a server that only listens */
    server.holds = true;
    use(&f, 1000, &t);
    fake_etcd_pass(&f, 2990);
    CHECK_UINT_EQ(t.n, 0);
    fake_etcd_pass(&f, 20);
    CHECK_UINT_EQ(t.n, 1);
    CHECK_INT_EQ(t.code, VOW_ESTORE);
    fake_etcd_close(&f);
}

/* The request goes on, for who has more time. */
TEST(etcd_lease, who_waits_has_a_time_of_its_own)
{
    struct fake_etcd f;
    struct told t[2] = {{.n = 0}};
    fake_etcd_open(&f, lend);
    server.holds = true;
    vow__lease_use(f.etcd, 1000, vow_loop_due_ns(f.w->loop, 300), on_lease,
                   &t[0]);
    vow__lease_use(f.etcd, 1000, 0, on_lease, &t[1]);
    fake_etcd_pass(&f, 290);
    CHECK_UINT_EQ(t[0].n, 0);
    fake_etcd_pass(&f, 20);
    CHECK_UINT_EQ(t[0].n, 1);
    CHECK_INT_EQ(t[0].code, VOW_ESTORE);
    CHECK_INT_EQ(t[0].lease, 0);
    CHECK(strstr(vow__etcd_explain(vow__etcd_store(f.etcd)),
                 " did not answer within ") != NULL);
    CHECK_UINT_EQ(t[1].n, 0);
    let_go(&f);
    FAKE_ETCD_UNTIL(&f, t[1].n == 1);
    CHECK_INT_EQ(t[1].code, 0);
    CHECK_INT_EQ(t[1].lease, server.id);
    CHECK_UINT_EQ(server.grants, 1);
    CHECK_UINT_EQ(t[0].n, 1);
    fake_etcd_close(&f);
}

TEST(etcd_lease, answers_that_are_no_leases_are_not_believed)
{
    static const char *const bad[] = {"{}", "{\"ID\":\"7\",\"TTL\":\"9\"}",
                                      "{\"TTL\":{}}"};
    struct fake_etcd f;
    struct told t;
    fake_etcd_open(&f, lend);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        server.holds = true;
        use(&f, 1000, &t);
        FAKE_ETCD_UNTIL(&f, f.asked == i + 1);
        fake_talk_answer(f.last, bad[i]);
        FAKE_ETCD_UNTIL(&f, t.n == 1);
        CHECK_INT_EQ(t.code, VOW_ESTORE);
        CHECK_INT_EQ(vow__lease_ready(f.etcd, 1000), 0);
    }
    fake_etcd_close(&f);
}

/* ---- for results --------------------------------------------------------- */

TEST(etcd_lease, results_share_one_for_its_first_second)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    int64_t id = have_once(&f, 3000);
    CHECK_UINT_EQ(server.ttl, 4);
    fake_etcd_pass(&f, 1000);
    CHECK_INT_EQ(have_once(&f, 3000), id);
    CHECK(have(&f, 3000) != id); /* names never hang on it */
    fake_etcd_pass(&f, 1);
    int64_t next = have_once(&f, 3000);
    CHECK(next != id);
    vow__lease_lost(f.etcd, next);
    CHECK(have_once(&f, 3000) != next);
    CHECK_UINT_EQ(server.grants, 4);
    CHECK_UINT_EQ(server.renewals, 0);
    fake_etcd_close(&f);
}

TEST(etcd_lease, lengths_of_results_are_forgotten)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    size_t before = f.w->alloc.live_blocks;
    for (uint64_t i = 0; i < 40; i++) {
        (void)have_once(&f, 10000 + i * 1000);
        fake_etcd_pass(&f, 1000);
    }
    CHECK(f.w->alloc.live_blocks < before + 10);
    CHECK_UINT_EQ(server.grants, 40);
    fake_etcd_close(&f);
}

TEST(etcd_lease, an_unsure_one_for_results_is_granted_anew)
{
    struct fake_etcd f;
    fake_etcd_open(&f, lend);
    server.unsaid = 1;
    CHECK_INT_EQ(have_once(&f, 3000), server.id);
    CHECK_STR_EQ(f.log, "lease/grant lease/grant ");
    fake_etcd_close(&f);
}

/* ---- the end ------------------------------------------------------------- */

TEST(etcd_lease, who_waits_is_told_when_the_store_is_closed)
{
    struct fake_etcd f;
    struct told asked, ready, later;
    fake_etcd_open(&f, lend);
    (void)have(&f, 1000);
    server.holds = true;
    use(&f, 5000, &asked);
    FAKE_ETCD_UNTIL(&f, f.asked == 2);
    use(&f, 1000, &ready);
    struct vow__etcd *e = f.etcd;
    VOW_AUTO(vow_future) closed = f.store->ops->close(f.store);
    later = (struct told){.n = 0};
    vow__lease_use(e, 1000, 0, on_lease, &later);
    CHECK_INT_EQ(later.code, VOW_ECLOSED);
    CHECK_INT_EQ(vow__lease_ready(e, 1000), 0);
    FAKE_ETCD_UNTIL(&f, vow_state_of(closed) != VOW_PENDING);
    f.store = NULL;
    CHECK_UINT_EQ(asked.n, 1);
    CHECK_INT_EQ(asked.code, VOW_ECLOSED);
    CHECK_UINT_EQ(ready.n, 1);
    CHECK_INT_EQ(ready.code, VOW_ECLOSED);
    closed = vow_future_unref(closed);
    fake_etcd_close(&f);
}

FAULT_SWEEP(etcd_lease, without_memory_a_use_fails_and_the_next_does_not,
            FAULT_ALLOC)
{
    static struct fake_etcd f;
    struct told t[3] = {{.once_more = true}};
    memset(&server, 0, sizeof(server));
    fake_etcd_begin(&f, w, lend);
    if (f.store != NULL) {
        vow__lease_use(f.etcd, 1000, 0, on_lease, &t[0]);
        vow__lease_use(f.etcd, 1000, 0, on_lease, &t[1]);
        vow__lease_once(f.etcd, 1000, 0, on_lease, &t[2]);
        FAKE_ETCD_UNTIL(&f, t[0].n == 2 && t[1].n == 1 && t[2].n == 1);
        for (size_t i = 0; i < 3; i++)
            CHECK(t[i].code == 0 || fault_explains(w, t[i].code));
    }
    fake_etcd_end(&f);
}

/* ---- on a server --------------------------------------------------------- */

static int64_t real_have(struct real *r, uint64_t ms)
{
    struct told t = {.n = 0};
    vow__lease_use(r->etcd, ms, 0, on_lease, &t);
    REAL_UNTIL(r, t.n == 1);
    CHECK_INT_EQ(t.code, 0);
    return t.lease;
}

static uint64_t left_of(struct real *r, int64_t lease)
{
    return etcd_number(etcd_say(&r->kit, "lease/timetolive",
                                "{\"ID\":\"%" PRId64 "\"}", lease),
                       "grantedTTL");
}

TEST(etcd_lease, etcd_keeps_it_while_it_is_used_and_no_longer)
{
    static struct real r;
    real_open(&r, NULL);
    CHECK_UINT_EQ(left_of(&r, real_have(&r, 60000)), 61);
    uint64_t used = real_ms(&r);
    int64_t id = real_have(&r, 1000);
    for (int kept = 0; kept < 12; kept++) { /* as a pulse does */
        uint64_t before = used;
        real_pass(&r, 333);
        used = real_ms(&r);
        int64_t now = real_have(&r, 1000);
        if (now == id)
            continue;
        CHECK(real_ms(&r) - before >= 1000); /* a pause of the machine */
        id = now;
        kept = 0;
    }
    REAL_UNTIL(&r, left_of(&r, id) == 0);
    CHECK(real_have(&r, 1000) != id);
    real_close(&r);
}

TEST(etcd_lease, one_that_was_revoked_is_followed_by_another)
{
    static struct real r;
    real_open(&r, NULL);
    uint64_t since = real_ms(&r);
    int64_t id = real_have(&r, 60000);
    CHECK_UINT_EQ(etcd_revoke_all(&r.kit), 1);
    CHECK(vow__lease_ready(r.etcd, 60000) == id || real_ms(&r) - since >= 1000);
    vow__lease_lost(r.etcd, id); /* as a transaction has told */
    int64_t next = real_have(&r, 60000);
    CHECK(next != id);
    CHECK_UINT_EQ(etcd_revoke_all(&r.kit), 1);
    real_pass(&r, 1100);
    CHECK(real_have(&r, 60000) != next);
    real_close(&r);
}

TEST(etcd_lease, it_outlives_a_server_that_was_away)
{
    static struct real r;
    struct told t = {.n = 0};
    real_open(&r, NULL);
    int64_t id = real_have(&r, 60000);
    etcd_kill(&r.kit, 0);
    real_pass(&r, 1100);
    vow__lease_use(r.etcd, 60000, 0, on_lease, &t);
    REAL_UNTIL(&r, t.n == 1);
    CHECK_INT_EQ(t.code, VOW_ESTORE);
    etcd_again(&r.kit, 0);
    CHECK_INT_EQ(real_have(&r, 60000), id); /* restarted with its whole ttl */
    real_close(&r);
}
