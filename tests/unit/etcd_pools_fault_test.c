/* SPDX-License-Identifier: MIT */
/* etcd_pools_fault_test.c - pools on etcd without memory, without answers, and
 * without a watch: each step is answered, an error is one that the fault
 * explains, no turn is lost, and no row is left behind. */
#include "etcd_pools_kit.h"

/* ---- without memory ------------------------------------------------------ */

/* One member for all runs: each has pools of its own. */
static struct etcd_kit *fault_member(void)
{
    static struct etcd_kit member;
    static bool runs;
    if (!runs)
        etcd_start(&member, NULL);
    runs = true;
    return &member;
}

static struct pools *sweep_begin(struct world *w, char name[32])
{
    static struct names n;
    static struct pools p;
    static unsigned runs;
    names_begin(&n, w, fault_member());
    pools_begin(&p, &n);
    snprintf(name, 32, "pool %u", ++runs);
    return &p;
}

/* VOW_EUNSURE: what was written before cannot be taken back. VOW_ESTORE: an
 * answer could not be read. */
static bool fine(const struct pools *p, struct permit_told t)
{
    const struct world *w = p->n->w;
    bool known = t.code == VOW_ENOMEM || t.code == VOW_EUNSURE ||
                 t.code == VOW_ESTORE || t.code == VOW_EAGAIN;
    if (t.code != 0 && !(known && fault_fired(w)))
        FAIL("code %d without a reason", t.code);
    return t.code == 0;
}

static bool fine_as(const struct pools *p, struct permit_told t,
                    uint32_t status)
{
    if (!fine(p, t))
        return false;
    if (t.at[0].status != status && !fault_fired(p->n->w))
        FAIL("status %u, not %u", t.at[0].status, status);
    return true;
}

static bool both_open(const struct pools *p)
{
    return p->n->at[0].store != NULL && p->n->at[1].store != NULL;
}

/* All rows go with the close; without memory at the close, with the lease. */
static void sweep_end(struct pools *p, const char *name)
{
    struct world *w = p->n->w;
    uint64_t fails = w->alloc.fails;
    pools_end(p);
    if (w->alloc.fails == fails)
        CHECK_UINT_EQ(pool_count(p, name, "q/"), 0);
    else
        (void)etcd_revoke_all(p->n->member);
    etcd_delete(p->n->member, pool_key(name, "l"));
}

/* A request that waits is told its turn; without memory, the request may find
 * out by a renewal. */
static void sweep_turn(struct pools *p, const char *name)
{
    for (unsigned ms = 1; p->turns[1] == 0; ms++) {
        pools_step(p);
        if (ms % 1000 != 0)
            continue;
        CHECK(fault_fired(p->n->w));
        struct permit_told t = renew(p, 1, RENEW(name, 2));
        if (fine(p, t) && t.at[0].status != VOW_STATUS_WAITING)
            return;
        CHECK(ms < 5000);
    }
}

FAULT_SWEEP(etcd_pools_fault, a_permit_that_another_waits_for, FAULT_ALLOC)
{
    char name[32];
    struct pools *p = sweep_begin(w, name);
    if (both_open(p)) {
        bool a = fine_as(p, acquire(p, 0, PERMIT(name, 1)), VOW_STATUS_OWNED);
        bool b = fine_as(p, acquire(p, 1, PERMIT(name, 2)), VOW_STATUS_WAITING);
        a = fine(p, release(p, 0, name, 1)) && a;
        if (a && b && !w->alloc.fail_forever)
            sweep_turn(p, name);
        (void)fine_as(p, acquire(p, 1, PERMIT(name, 2)), VOW_STATUS_OWNED);
        (void)fine(p, release(p, 1, name, 2));
    }
    sweep_end(p, name);
}

FAULT_SWEEP(etcd_pools_fault, a_permit_under_a_rate, FAULT_ALLOC)
{
    char name[32];
    struct pools *p = sweep_begin(w, name);
    const vow_pool_limits rate = {.rate = 1, .window_us = 60000000};
    if (both_open(p)) {
        (void)fine_as(p, acquire(p, 0, PERMIT(name, 1, .limits = rate)),
                      VOW_STATUS_OWNED);
        (void)fine_as(p, acquire(p, 1, PERMIT(name, 2)), VOW_STATUS_WAITING);
        (void)fine(p, renew(p, 0, RENEW(name, 1, .started = true)));
        (void)fine(p, release(p, 0, name, 1));
        (void)fine_as(p,
                      acquire(p, 1, PERMIT(name, 3, .flags = VOW_PERMIT_TRY)),
                      VOW_STATUS_BUSY);
    }
    sweep_end(p, name);
}

FAULT_SWEEP(etcd_pools_fault, renewals_and_another_lease, FAULT_ALLOC)
{
    char name[32];
    struct pools *p = sweep_begin(w, name);
    if (both_open(p)) {
        for (uint64_t i = 1; i <= 3; i++)
            (void)fine(p,
                       acquire(p, 0, PERMIT(name, i, .limits.concurrent = 2)));
        (void)fine(p, renew(p, 0, RENEW(name, 1, .n = 3)));
        struct permit_told t =
            renew(p, 0, RENEW(name, 1, .n = 3, .lease_ms = LONG_MS / 2));
        if (fine(p, t) && !fault_fired(w)) {
            CHECK_UINT_EQ(t.at[1].status, VOW_STATUS_OWNED);
            CHECK_UINT_EQ(t.at[2].status, VOW_STATUS_WAITING);
        }
    }
    sweep_end(p, name);
}

FAULT_SWEEP(etcd_pools_fault, limits_and_lists, FAULT_ALLOC)
{
    char name[32];
    struct pools *p = sweep_begin(w, name);
    const vow_pool_limits one = {.concurrent = 1};
    const vow_pool_limits three = {.concurrent = 3};
    if (both_open(p)) {
        for (uint64_t i = 1; i <= 3; i++)
            (void)fine(p,
                       acquire(p, 0, PERMIT(name, i, .limits.concurrent = 2)));
        struct permit_told low = limit(p, 1, name, &one);
        if (fine(p, low) && !fault_fired(w))
            CHECK_UINT_EQ(low.info.held, 2);
        (void)fine(p, limit(p, 1, name, &three));
        struct permit_told t = limit(p, 1, name, NULL);
        if (fine(p, t) && !fault_fired(w))
            CHECK_UINT_EQ(t.info.held, 3);
        (void)fine(p, list_pools(p, 1));
    }
    sweep_end(p, name);
}

/* ---- without answers ----------------------------------------------------- */

enum { ALL = 1000, SHORT_MS = 5000 };

static void check_permit(struct permit_told t, uint32_t status)
{
    CHECK_INT_EQ(t.code, 0);
    CHECK_UINT_EQ(t.at[0].status, status);
}

TEST(etcd_pools_fault, a_join_without_an_answer_is_repeated)
{
    struct pools *p = pools_open();
    p->n->lose = 2;
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(p->n->txns, 3);
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 1);
    pools_close(p);
}

/* Whether the requests are lost or the answers. */
static void check_unsure(struct pools *p, const char *name, bool unsaid)
{
    p->n->lose = ALL;
    p->n->unsaid = unsaid;
    CHECK_INT_EQ(acquire(p, 0, PERMIT(name, 1)).code, VOW_EUNSURE);
    p->n->lose = 0;
    CHECK_UINT_EQ(pool_count(p, name, "q/"), unsaid ? 0 : 1);
    struct permit_told a = acquire(p, 0, PERMIT(name, 1));
    check_permit(a, VOW_STATUS_OWNED);
    check_permit(acquire(p, 1, PERMIT(name, 2)), VOW_STATUS_WAITING);
    struct permit_told again = acquire(p, 0, PERMIT(name, 1));
    check_permit(again, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(again.at[0].fence, a.at[0].fence);
    CHECK_UINT_EQ(pool_count(p, name, "q/"), 2);
}

TEST(etcd_pools_fault, an_unsure_join_is_settled_by_the_same_token)
{
    struct pools *p = pools_open();
    check_unsure(p, "p", false);
    check_unsure(p, "q", true);
    pools_close(p);
}

TEST(etcd_pools_fault, an_unsure_join_that_nobody_repeats_ends)
{
    struct pools *p = pools_open();
    p->n->lose = ALL;
    CHECK_INT_EQ(acquire(p, 0, PERMIT("p", 1, .lease_ms = SHORT_MS)).code,
                 VOW_EUNSURE);
    p->n->lose = 0;
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 1);
    names_pass(p->n, SHORT_MS + 1000);
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 0);
    pools_close(p);
}

TEST(etcd_pools_fault, a_join_that_comes_after_the_release_is_ended)
{
    struct pools *p = pools_open();
    p->n->lose = 1;
    p->n->late = true;
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    check_permit(release(p, 0, "p", 1), VOW_STATUS_OWNED);
    names_pass(p->n, 20000);
    names_arrive(p->n);
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 1);
    names_pass(p->n, 40000);
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 0);
    unsigned before = p->n->txns;
    names_pass(p->n, 100000);
    CHECK(p->n->txns <= before + 1);
    pools_close(p);
}

/* A late join never gives back what the same token has acquired again. */
TEST(etcd_pools_fault, a_late_join_does_not_end_the_next_permit)
{
    struct pools *p = pools_open();
    p->n->lose = 1;
    p->n->late = true;
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    check_permit(release(p, 0, "p", 1), VOW_STATUS_OWNED);
    struct permit_told a = acquire(p, 0, PERMIT("p", 1));
    check_permit(a, VOW_STATUS_OWNED);
    names_arrive(p->n);
    for (int i = 0; i < 8; i++) {
        names_pass(p->n, 10000);
        struct permit_told t = renew(p, 0, RENEW("p", 1));
        check_permit(t, VOW_STATUS_OWNED);
        CHECK_UINT_EQ(t.at[0].fence, a.at[0].fence);
    }
    pools_close(p);
}

TEST(etcd_pools_fault, a_release_without_an_answer_tells_the_permit)
{
    struct pools *p = pools_open();
    struct permit_told a = acquire(p, 0, PERMIT("p", 1));
    p->n->lose = 1;
    struct permit_told t = release(p, 0, "p", 1);
    check_permit(t, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(t.at[0].fence, a.at[0].fence);
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 0);
    pools_close(p);
}

/* The permit counts as lost, and the row goes as soon as etcd answers. */
TEST(etcd_pools_fault, a_release_that_is_unsure_is_carried_out_later)
{
    struct pools *p = pools_open();
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    check_permit(acquire(p, 1, PERMIT("p", 2)), VOW_STATUS_WAITING);
    p->n->lose = ALL;
    p->n->unsaid = true;
    CHECK_INT_EQ(release(p, 0, "p", 1).code, VOW_EUNSURE);
    p->n->lose = 0;
    check_permit(renew(p, 0, RENEW("p", 1)), VOW_STATUS_NONE);
    POOLS_UNTIL(p, p->turns[1] > 0);
    check_permit(acquire(p, 1, PERMIT("p", 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 1);
    pools_close(p);
}

TEST(etcd_pools_fault, a_mark_without_an_answer_is_found_and_counts_once)
{
    struct pools *p = pools_open();
    struct permit_told t = {.done = 0};
    const vow_pool_limits rate = {.rate = 2, .window_us = 3600000000};
    const vow_permit_request *q = PERMIT("p", 1, .limits = rate);
    store_of(p, 0)->ops->acquire(store_of(p, 0), q, permits_told, &t);
    POOLS_UNTIL(p, p->n->txns == 1);
    p->n->lose = ALL;
    CHECK_INT_EQ(permit_await(p, &t)->code, VOW_EUNSURE);
    p->n->lose = 0;
    check_permit(acquire(p, 0, q), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(pool_count(p, "p", "t/"), 1);
    CHECK_UINT_EQ(limit(p, 1, "p", NULL).info.rate_used, 1);
    check_permit(acquire(p, 1, PERMIT("p", 2)), VOW_STATUS_OWNED);
    check_permit(acquire(p, 1, PERMIT("p", 3)), VOW_STATUS_WAITING);
    pools_close(p);
}

TEST(etcd_pools_fault, a_renewal_without_an_answer_changes_nothing_twice)
{
    struct pools *p = pools_open();
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    check_permit(acquire(p, 0, PERMIT("p", 2)), VOW_STATUS_WAITING);
    unsigned before = p->n->txns;
    p->n->lose = ALL; /* of a read: nothing has happened */
    CHECK_INT_EQ(renew(p, 0, RENEW("p", 1, .n = 2)).code, VOW_ESTORE);
    p->n->lose = 0;
    struct permit_told t = {.done = 0};
    const vow_permit_hold holds[] = {permit_hold("p", 1), permit_hold("p", 2)};
    before = p->n->txns;
    store_of(p, 0)->ops->renew(store_of(p, 0), holds, 2, LONG_MS / 2,
                               permits_told, &t); /* another lease */
    POOLS_UNTIL(p, p->n->txns == before + 1);
    p->n->lose = ALL;
    CHECK_INT_EQ(permit_await(p, &t)->code, VOW_EUNSURE);
    p->n->lose = 0;
    t = renew(p, 0, RENEW("p", 1, .n = 2, .lease_ms = LONG_MS / 2));
    check_permit(t, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(t.at[1].status, VOW_STATUS_WAITING);
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 2);
    pools_close(p);
}

TEST(etcd_pools_fault, limits_without_an_answer_are_unsure_and_then_settled)
{
    struct pools *p = pools_open();
    struct permit_told t = {.done = 0};
    const vow_pool_limits two = {.concurrent = 2};
    const vow_pool_limits three = {.concurrent = 3};
    vow_name pool = vow_name_of("p");
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    p->n->lose = ALL;
    CHECK_INT_EQ(limit(p, 1, "p", NULL).code, VOW_ESTORE);
    CHECK_INT_EQ(limit(p, 1, "p", &two).code, VOW_ESTORE);
    CHECK_INT_EQ(list_pools(p, 1).code, VOW_ESTORE);
    p->n->lose = 0;
    CHECK_UINT_EQ(limit(p, 1, "p", NULL).info.limits.concurrent, 1);
    unsigned before = p->n->txns;
    store_of(p, 1)->ops->limit(store_of(p, 1), &pool, &two, NULL, infos_told,
                               &t);
    POOLS_UNTIL(p, p->n->txns == before + 2);
    p->n->lose = ALL;
    CHECK_INT_EQ(permit_await(p, &t)->code, VOW_EUNSURE);
    p->n->lose = 0;
    CHECK_UINT_EQ(limit(p, 1, "p", NULL).info.limits.concurrent, 2);
    t = (struct permit_told){.done = 0};
    before = p->n->txns;
    store_of(p, 1)->ops->limit(store_of(p, 1), &pool, &three, NULL, infos_told,
                               &t);
    POOLS_UNTIL(p, p->n->txns == before + 2);
    p->n->lose = 1; /* the next read tells */
    CHECK_INT_EQ(permit_await(p, &t)->code, 0);
    CHECK_UINT_EQ(t.info.limits.concurrent, 3);
    CHECK_UINT_EQ(t.info.held, 1);
    CHECK_STR_EQ(t.label, "p");
    pools_close(p);
}

TEST(etcd_pools_fault, closing_ends_a_join_in_flight_and_leaves_no_row)
{
    struct pools *p = pools_open();
    struct permit_told t = {.done = 0};
    p->n->hold = true;
    store_of(p, 0)->ops->acquire(store_of(p, 0), PERMIT("p", 1), permits_told,
                                 &t);
    POOLS_UNTIL(p, p->n->held[0] != 0);
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 1);
    pools_end(p);
    CHECK_UINT_EQ(t.done, 1);
    CHECK_INT_EQ(t.code, VOW_ECLOSED);
    CHECK_UINT_EQ(pool_count(p, "p", "q/"), 0);
    world_run(p->n->w);
    world_close(p->n->w);
    etcd_stop(p->n->member);
}

/* ---- garbage ------------------------------------------------------------- */

static bool is_refusal(int code)
{
    return code == VOW_EUNSURE || code == VOW_ESTORE || code == VOW_EAGAIN;
}

/* Each step once, answered by garbage, and then once more. */
static void check_garbage(struct pools *p, const char *name, const char *text)
{
    const vow_pool_limits two = {.concurrent = 2};
    p->garbage = text;
    CHECK_INT_EQ(acquire(p, 0, PERMIT(name, 1)).code, VOW_EUNSURE);
    p->garbage = NULL;
    struct permit_told a = acquire(p, 0, PERMIT(name, 1));
    check_permit(a, VOW_STATUS_OWNED);
    check_permit(acquire(p, 1, PERMIT(name, 2)), VOW_STATUS_WAITING);
    p->garbage = text;
    CHECK(is_refusal(renew(p, 0, RENEW(name, 1)).code));
    CHECK(is_refusal(limit(p, 1, name, NULL).code));
    CHECK(is_refusal(limit(p, 1, name, &two).code));
    CHECK(is_refusal(list_pools(p, 1).code));
    p->garbage = NULL;
    struct permit_told t = renew(p, 0, RENEW(name, 1));
    check_permit(t, VOW_STATUS_OWNED);
    CHECK_UINT_EQ(t.at[0].fence, a.at[0].fence);
    t = limit(p, 1, name, NULL);
    CHECK_UINT_EQ(t.info.limits.concurrent, 1);
    CHECK_UINT_EQ(t.info.held, 1);
    CHECK_UINT_EQ(t.info.waiting, 1);
    p->garbage = text;
    CHECK(is_refusal(release(p, 0, name, 1).code));
    p->garbage = NULL;
    CHECK_INT_EQ(release(p, 0, name, 1).code, 0);
    check_permit(acquire(p, 1, PERMIT(name, 2)), VOW_STATUS_OWNED);
    CHECK_UINT_EQ(pool_count(p, name, "q/"), 1);
    check_permit(release(p, 1, name, 2), VOW_STATUS_OWNED);
}

TEST(etcd_pools_fault, garbage_is_refused_and_nothing_is_held_twice)
{
    static const char unreadable[] =
        ",\"succeeded\":true,\"responses\":["
        "{\"response_range\":{\"kvs\":7}},{\"response_range\":{\"kvs\":7}},"
        "{\"response_range\":{\"kvs\":7}},{\"response_range\":{\"kvs\":7}},"
        "{\"response_range\":{\"kvs\":7}}]";
    static const char *const TEXTS[] = {
        ",\"succeeded\":true",
        ",\"succeeded\":true,\"responses\":[]",
        ",\"succeeded\":true,\"responses\":7",
        ",\"succeeded\":true,\"responses\":[{},{},{},{},{}]",
        ",\"succeeded\":true,\"responses\":[[],0,null,\"\",false]",
        unreadable};
    struct pools *p = pools_open();
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        char name[32];
        snprintf(name, sizeof(name), "pool %zu", i);
        fprintf(stderr, "garbage %zu\n", i);
        check_garbage(p, name, TEXTS[i]);
    }
    pools_close(p);
}

/* ---- the watch ----------------------------------------------------------- */

static struct pools *open_waiting(void)
{
    struct pools *p = pools_open();
    check_permit(acquire(p, 0, PERMIT("p", 1)), VOW_STATUS_OWNED);
    check_permit(acquire(p, 1, PERMIT("p", 2)), VOW_STATUS_WAITING);
    POOLS_UNTIL(p, p->watches == 1 && p->head[1]);
    return p;
}

/* Without a word from the watch, the next acquire would be half an hour away. */
static void check_turn(struct pools *p)
{
    POOLS_UNTIL(p, p->turns[1] > 0);
    check_permit(acquire(p, 1, PERMIT("p", 2)), VOW_STATUS_OWNED);
    pools_close(p);
}

TEST(etcd_pools_fault, a_watch_that_breaks_loses_no_turn)
{
    struct pools *p = open_waiting();
    watch_break(p, 1);
    check_permit(release(p, 0, "p", 1), VOW_STATUS_OWNED);
    check_turn(p);
}

TEST(etcd_pools_fault, a_watch_behind_a_compaction_loses_no_turn)
{
    struct pools *p = open_waiting();
    watch_break(p, 1);
    check_permit(release(p, 0, "p", 1), VOW_STATUS_OWNED);
    for (int i = 0; i < 5; i++)
        etcd_put(p->n->member, "vow/x", "1");
    etcd_compact(p->n->member);
    check_turn(p);
}

TEST(etcd_pools_fault, a_watch_that_stands_still_loses_no_turn)
{
    struct pools *p = open_waiting();
    p->still = true;
    check_permit(release(p, 0, "p", 1), VOW_STATUS_OWNED);
    POOLS_UNTIL(p, p->watches > 1);
    p->still = false;
    check_turn(p);
}

TEST(etcd_pools_fault, a_line_that_is_garbage_loses_no_turn)
{
    struct pools *p = open_waiting();
    fake_talk_say(p->talk[1], "{\"result\":{\"header\":{\"revision\":\"9\"},"
                              "\"events\":[{\"kv\":7}]}}\n");
    check_permit(release(p, 0, "p", 1), VOW_STATUS_OWNED);
    check_turn(p);
}

/* The rate has room: nothing is told. */
TEST(etcd_pools_fault, a_turn_under_a_rate_needs_no_watch)
{
    struct pools *p = pools_open();
    const vow_pool_limits rate = {.rate = 1, .window_us = 1000000};
    check_permit(acquire(p, 0, PERMIT("p", 1, .limits = rate)),
                 VOW_STATUS_OWNED);
    check_permit(renew(p, 0, RENEW("p", 1, .started = true)), VOW_STATUS_OWNED);
    struct permit_told t = acquire(p, 1, PERMIT("p", 2));
    check_permit(t, VOW_STATUS_WAITING);
    p->still = true;
    pools_pass(p, t.at[0].again_us / 1000 + 1);
    check_permit(acquire(p, 1, PERMIT("p", 2)), VOW_STATUS_OWNED);
    pools_close(p);
}

/* ---- limits that come late ------------------------------------------------ */

/* A heavy request waits when the change of limits reads the pool, and is
 * granted before the change arrives: nobody takes the permit away. */
TEST(etcd_pools_fault, late_limits_do_not_take_a_permit_away)
{
    struct pools *p = pools_open();
    const vow_pool_limits four = {.concurrent = 4};
    const vow_pool_limits two = {.concurrent = 2};
    struct permit_told t = {.done = 0};
    vow_name pool = vow_name_of("p");
    check_permit(acquire(p, 0, PERMIT("p", 1, .weight = 4, .limits = four)),
                 VOW_STATUS_OWNED);
    check_permit(acquire(p, 0, PERMIT("p", 2, .weight = 3)),
                 VOW_STATUS_WAITING);
    unsigned before = p->n->txns;
    store_of(p, 1)->ops->limit(store_of(p, 1), &pool, &two, NULL, infos_told,
                               &t);
    POOLS_UNTIL(p, p->n->txns == before + 2);
    p->n->lose = ALL;
    p->n->unsaid = p->n->late = true;
    CHECK_INT_EQ(permit_await(p, &t)->code, VOW_EUNSURE);
    p->n->lose = 0;
    check_permit(release(p, 0, "p", 1), VOW_STATUS_OWNED);
    check_permit(acquire(p, 0, PERMIT("p", 2, .weight = 3)), VOW_STATUS_OWNED);
    names_arrive(p->n);
    CHECK_UINT_EQ(limit(p, 1, "p", NULL).info.limits.concurrent, 2);
    check_permit(renew(p, 0, RENEW("p", 2)), VOW_STATUS_OWNED);
    check_permit(acquire(p, 1, PERMIT("p", 3)), VOW_STATUS_WAITING);
    pools_close(p);
}
