/* SPDX-License-Identifier: MIT */
/* authority_mend_test.c - small troubles that must stay small: a result that
 * the store does not take, an answer that took longer than the lease, a value
 * that was lost, a refresh that cannot begin. */
#include "authority_rig.h"

#include <stddef.h>

enum {
    TTL = 60000,
    STALE = 5000,
    LONG = 10000 /* a lease in which the longest pauses have room */
};

static void stage_end(struct stage *s, struct labor *l)
{
    for (size_t i = 0; i < s->n; i++)
        stage_leave(s, i);
    labor_free(l);
    stage_close(s);
}

/* The test's own, for a step that it replaces. */
static void *user_of(vow_store *store)
{
    char *process = (char *)store - offsetof(struct process, flaky);
    return ((struct process *)(void *)process)->user;
}

/* ---- a result that the store does not take ------------------------------- */

static const enum fate not_taken[] = {FATE_REFUSED, FATE_BUSY, FATE_UNSURE_NOT};
enum { NOT_TAKEN = sizeof(not_taken) / sizeof(not_taken[0]) };

/* One process works for some leases; then its commits fail, and only they. */
static vow_future *work_in_vain(struct stage *s, struct labor *l, uint32_t mode,
                                enum fate fate)
{
    vow_name name = vow_name_of("work");
    stage_open_with(s, 1, VOW_AUTHORITY(.lease_ms = LONG));
    *l = (struct labor){.loop = s->loop};
    vow_future *f = vow_share(s->at[0].a, &name, labor_work, l,
                              VOW_SHARE(.mode = mode, .ttl_ms = TTL));
    world_advance_ms(&s->w, 3 * LONG);
    CHECK_INT_EQ(l->n, 1);
    CHECK(s->at[0].flaky.begun[STEP_PULSE] > 3);
    flaky_next(&s->at[0].flaky, STEP_COMMIT, fate, FLAKY_ALWAYS);
    labor_end(l, "done");
    world_turn(&s->w);
    CHECK_PENDING(f);
    return f;
}

TEST(authority_mend, who_waits_gets_a_result_that_is_not_taken_for_a_lease)
{
    for (int i = 0; i < NOT_TAKEN; i++) {
        struct stage s;
        struct labor l;
        vow_future *f = work_in_vain(&s, &l, VOW_SHARED, not_taken[i]);
        world_advance_ms(&s.w, LONG / 4);
        CHECK_PENDING(f); /* it is worth trying */
        CHECK(s.at[0].flaky.begun[STEP_COMMIT] >= 2);
        world_advance_ms(&s.w, LONG - LONG / 4);
        CHECK_TEXT(f, "done");
        CHECK_INT_EQ(l.n, 1);
        vow_future_unref(f);
        stage_end(&s, &l);
    }
}

TEST(authority_mend, fenced_work_that_is_not_taken_for_a_lease_has_failed)
{
    for (int i = 0; i < NOT_TAKEN; i++) {
        struct stage s;
        struct labor l;
        vow_future *f = work_in_vain(&s, &l, VOW_FENCED, not_taken[i]);
        world_advance_ms(&s.w, LONG);
        CHECK_CODE(f,
                   not_taken[i] == FATE_UNSURE_NOT ? VOW_EUNSURE : VOW_ESTORE);
        CHECK_INT_EQ(l.n, 1);
        vow_future_unref(f);
        stage_end(&s, &l);
    }
}

/* Its time to live is over before anybody hears that it was taken. */
TEST(authority_mend, a_result_that_was_taken_and_is_gone_is_nobodys_work)
{
    struct stage s;
    struct labor l;
    vow_name name = vow_name_of("work");
    stage_open(&s, 2);
    l = (struct labor){.loop = s.loop};
    const vow_share_opts *o = VOW_SHARE(.ttl_ms = LEASE / 20);
    VOW_AUTO(vow_future) f = vow_share(s.at[0].a, &name, labor_work, &l, o);
    world_turn(&s.w);
    flaky_next(&s.at[0].flaky, STEP_COMMIT, FATE_UNSURE_DONE, 1);
    labor_end(&l, "done");
    world_turn(&s.w);
    flaky_next(&s.at[0].flaky, STEP_COMMIT, FATE_UNSURE_NOT, FLAKY_ALWAYS);
    world_advance_ms(&s.w, LEASE);
    CHECK_TEXT(f, "done");
    VOW_AUTO(vow_future) g = vow_share(s.at[1].a, &name, labor_work, &l, o);
    world_turn(&s.w);
    CHECK_INT_EQ(l.n, 2);
    labor_end(&l, "again");
    world_turn(&s.w);
    CHECK_TEXT(g, "again");
    f = vow_future_unref(f);
    g = vow_future_unref(g);
    stage_end(&s, &l);
}

static bool join_none(const vow_share_info *running, void *user)
{
    (void)running;
    (void)user;
    return false;
}

/* The second run of a name begins where the first one ended. */
TEST(authority_mend, every_result_has_a_lease_of_time_to_be_taken)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("work");
    const vow_share_opts *o = VOW_SHARE(.ttl_ms = TTL, .join = join_none);
    vow_future *f[2];
    for (size_t i = 0; i < 2; i++) {
        f[i] = vow_share(s.at[0].a, &name, labor_work, &l, o);
        world_turn(&s.w);
    }
    for (size_t i = 0; i < 2; i++) {
        CHECK_INT_EQ(l.n, (int)i + 1);
        flaky_next(&s.at[0].flaky, STEP_COMMIT, FATE_REFUSED, 3);
        labor_end(&l, i == 0 ? "first" : "second");
        world_advance_ms(&s.w, 3 * LEASE);
        CHECK_TEXT(f[i], i == 0 ? "first" : "second");
    }
    VOW_AUTO(vow_future)
    there =
        vow_share(s.at[1].a, &name, labor_work, &l, VOW_SHARE(.ttl_ms = TTL));
    world_turn(&s.w);
    CHECK_TEXT(there, "second"); /* the store has it */
    CHECK_INT_EQ(l.n, 2);
    there = vow_future_unref(there);
    let_go(f, 2);
    stage_end(&s, &l);
}

/* ---- a claim that is answered too late ----------------------------------- */

enum { SLOW_CLAIMS = 50 };

/* A store that answers inside the call, and needs a lease for that. */
struct slow {
    struct stage s;
    vow_store_ops ops; /* as it was */
    int left;          /* so many claims are slow */
    int depth;         /* claims inside claims */
    int most;
};

static void slow_claim(vow_store *store, const vow_claim_request *ask,
                       vow_records_fn done, void *user)
{
    struct slow *t = user_of(store);
    t->depth++;
    t->most = t->depth > t->most ? t->depth : t->most;
    if (t->left > 0) {
        t->left--;
        world_advance_ms(&t->s.w, LEASE + LEASE / 4);
    }
    t->ops.claim(store, ask, done, user);
    t->depth--;
}

TEST(authority_mend, a_claim_that_took_a_lease_is_repeated_but_not_at_once)
{
    struct slow t = {.left = SLOW_CLAIMS};
    stage_open(&t.s, 1);
    struct labor l = {.loop = t.s.loop};
    vow_name name = vow_name_of("work");
    t.s.at[0].user = &t;
    t.ops = t.s.at[0].flaky.ops;
    t.s.at[0].flaky.ops.claim = slow_claim;
    VOW_AUTO(vow_future)
    f = vow_share(t.s.at[0].a, &name, labor_work, &l, VOW_SHARE(.ttl_ms = TTL));
    CHECK_INT_EQ(t.most, 1);
    CHECK_INT_EQ(t.left, SLOW_CLAIMS - 1);
    CHECK_INT_EQ(l.n, 0); /* another may have it */
    t.left = 0;
    world_advance_ms(&t.s.w, LEASE);
    CHECK_INT_EQ(t.most, 1);
    CHECK_INT_EQ(t.s.at[0].flaky.begun[STEP_CLAIM], 2);
    CHECK_INT_EQ(l.n, 1);
    labor_end(&l, "done");
    world_turn(&t.s.w);
    CHECK_TEXT(f, "done");
    f = vow_future_unref(f);
    stage_end(&t.s, &l);
}

/* ---- a value that only this process has ---------------------------------- */

/* An authority on memory alone, and what is done there. */
struct alone {
    struct world w;
    vow_authority *a;
    vow_lease *lease;
    vow_name name;
    int runs;
};

static void alone_open(struct alone *t)
{
    *t = (struct alone){.name = vow_name_of("kept")};
    world_open_with(&t->w, VOW_LOOP_OPTS(.flags = VOW_LOOP_UNPOOLED));
    VOW_AUTO(vow_future) f = vow_authority_open(t->w.loop, "memory:", NULL);
    CHECK_INT_EQ(vow_loop_run_until(t->w.loop, f), 0);
    t->a = vow_authority_ref(vow_as_ptr(vow_get(f)));
}

static void alone_close(struct alone *t)
{
    t->lease = vow_lease_unref(t->lease);
    VOW_AUTO(vow_future) f = vow_authority_close(t->a);
    CHECK_INT_EQ(vow_loop_run_until(t->w.loop, f), 0);
    vow_authority_unref(t->a);
    f = vow_future_unref(f);
    world_turn(&t->w);
    world_close(&t->w);
}

static vow_future *make_again(vow_lease *lease, void *alone)
{
    struct alone *t = alone;
    (void)lease;
    t->runs++;
    vow_bytes *b;
    int rc = vow_bytes_new(t->w.loop, "made", 4, &b);
    if (rc < 0)
        return vow_refused(t->w.loop, rc, NULL);
    return vow_resolved(t->w.loop, vow_bytes_value(b));
}

static vow_future *ask_alone(struct alone *t, uint32_t flags)
{
    vow_future *f = vow_share(t->a, &t->name, make_again, t,
                              VOW_SHARE(.ttl_ms = TTL, .flags = flags));
    world_advance_ms(&t->w, 1);
    return f;
}

/* Who looks finds the value or none; who asks has it, made again if need be. */
static void check_kept(struct alone *t, const char *value)
{
    VOW_AUTO(vow_future) look = ask_alone(t, VOW_SHARE_PEEK);
    if (vow_error_of(look) == NULL)
        CHECK_TEXT(look, value);
    else
        CHECK_CODE(look, VOW_ENOENT);
    const int before = t->runs;
    VOW_AUTO(vow_future) f = ask_alone(t, 0);
    CHECK_TEXT(f, t->runs == before ? value : "made");
    VOW_AUTO(vow_future) again = ask_alone(t, 0);
    CHECK_TEXT(again, t->runs == before ? value : "made");
    CHECK(t->runs <= before + 1);
}

static void settle_now(struct alone *t)
{
    (void)vow_lease_resolve(t->lease, text_value(t->w.loop, "value"));
}

static bool settle_in_join(const vow_share_info *running, void *alone)
{
    (void)running;
    settle_now(alone);
    return true;
}

static void settle_in_chunk(vow_bytes *chunk, void *alone)
{
    if (chunk != NULL)
        settle_now(alone);
}

/* Somebody has the lease, and another waits who settles it by its own code. */
static vow_future *hand_over(struct alone *t, const vow_share_opts *waits)
{
    VOW_AUTO(vow_future)
    f = vow_claim_name(t->a, &t->name, NULL, NULL, VOW_SHARE(.ttl_ms = TTL));
    CHECK_INT_EQ(vow_loop_run_until(t->w.loop, f), 0);
    const vow_claim *c = vow_as_ptr(vow_get(f));
    t->lease = vow_lease_ref(c->lease);
    return vow_share(t->a, &t->name, make_again, t, waits);
}

TEST(authority_mend, a_value_settled_inside_join_is_never_an_empty_one)
{
    struct alone t;
    alone_open(&t);
    VOW_AUTO(vow_future)
    f = hand_over(&t,
                  VOW_SHARE(.ttl_ms = TTL, .join = settle_in_join, .user = &t));
    world_advance_ms(&t.w, 1);
    CHECK_TEXT(f, "value");
    check_kept(&t, "value");
    f = vow_future_unref(f);
    alone_close(&t);
}

TEST(authority_mend, a_value_settled_inside_a_chunk_is_never_an_empty_one)
{
    struct alone t;
    alone_open(&t);
    VOW_AUTO(vow_future)
    f = hand_over(&t, VOW_SHARE(.ttl_ms = TTL, .flags = VOW_SHARE_FOLLOW,
                                .on_chunk = settle_in_chunk, .user = &t));
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(t.w.loop, "v", 1, &b), 0);
    VOW_AUTO(vow_future) written = vow_lease_write(t.lease, b);
    vow_bytes_unref(b);
    world_advance_ms(&t.w, 1);
    CHECK_TEXT(f, "value");
    check_kept(&t, "value");
    f = vow_future_unref(f);
    written = vow_future_unref(written);
    alone_close(&t);
}

/* With each allocation failing in turn; false: there was no such. */
static bool lose_one(uint32_t flags, uint64_t which)
{
    struct alone t;
    alone_open(&t);
    VOW_AUTO(vow_future) first = ask_alone(&t, 0);
    CHECK_TEXT(first, "made");
    t.w.alloc.fail_at = t.w.alloc.allocs + which;
    VOW_AUTO(vow_future) f = ask_alone(&t, flags);
    const bool met = t.w.alloc.fails > 0;
    t.w.alloc.fail_at = 0;
    CHECK(vow_state_of(f) != VOW_PENDING);
    const int code = vow_error_code(vow_error_of(f));
    CHECK(code == 0 || code == VOW_ENOMEM);
    check_kept(&t, "made");
    first = vow_future_unref(first);
    f = vow_future_unref(f);
    alone_close(&t);
    return met;
}

TEST(authority_mend, a_value_lost_for_want_of_memory_is_never_an_empty_one)
{
    const uint32_t flags[] = {0, VOW_SHARE_PEEK, VOW_SHARE_FORCE,
                              VOW_SHARE_REFRESH};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
        uint64_t which = 1;
        while (lose_one(flags[i], which))
            which++;
        CHECK(which > 1);
    }
}

/* ---- a refresh that cannot begin ----------------------------------------- */

enum { HITS = 200 };

/* Results can be read, and nothing can be written. */
struct full {
    struct stage s;
    vow_store_ops ops; /* as it was */
    struct labor l;
    vow_name name;
    enum fate fate; /* of claims that refresh */
    int claims;
};

static void full_claim(vow_store *store, const vow_claim_request *ask,
                       vow_records_fn done, void *user)
{
    struct full *t = user_of(store);
    if (ask->refresh != 0) {
        t->claims++;
        flaky_next(flaky_of(store), STEP_CLAIM, t->fate, t->fate != FATE_FINE);
    }
    t->ops.claim(store, ask, done, user);
}

static vow_future *ask_full(struct full *t)
{
    vow_future *f = vow_share(t->s.at[0].a, &t->name, labor_work, &t->l,
                              VOW_SHARE(.ttl_ms = TTL, .stale_ms = STALE,
                                        .store_down = VOW_DOWN_WAIT));
    world_turn(&t->s.w);
    return f;
}

static void full_hits(struct full *t)
{
    for (int i = 0; i < HITS; i++) {
        VOW_AUTO(vow_future) f = ask_full(t);
        CHECK_TEXT(f, "old");
        if (i % 10 == 0)
            world_advance_ms(&t->s.w, 10);
    }
}

TEST(authority_mend, old_hits_ask_once_for_a_refresh_that_cannot_begin)
{
    const enum fate fates[] = {FATE_REFUSED, FATE_BUSY, FATE_HELD};
    for (size_t i = 0; i < sizeof(fates) / sizeof(fates[0]); i++) {
        struct full t = {.name = vow_name_of("cache")};
        stage_open(&t.s, 1);
        t.l = (struct labor){.loop = t.s.loop};
        t.s.at[0].user = &t;
        t.ops = t.s.at[0].flaky.ops;
        t.s.at[0].flaky.ops.claim = full_claim;
        VOW_AUTO(vow_future) f = ask_full(&t);
        labor_end(&t.l, "old");
        world_advance_ms(&t.s.w, STALE + 1);
        CHECK_TEXT(f, "old");
        t.fate = fates[i];
        full_hits(&t);
        CHECK(t.claims > 0 && t.claims < HITS / 4);
        CHECK_UINT_EQ(stage_stats(&t.s, 0).waiting, 1);
        CHECK_INT_EQ(t.l.n, 1);
        t.fate = FATE_FINE;
        flaky_release(&t.s.at[0].flaky);
        world_advance_ms(&t.s.w, 2 * LEASE);
        CHECK_INT_EQ(t.l.n, 2); /* then it begins */
        full_hits(&t);
        CHECK_INT_EQ(t.l.n, 2);
        labor_end(&t.l, "new");
        world_turn(&t.s.w);
        CHECK_UINT_EQ(stage_stats(&t.s, 0).waiting, 0);
        VOW_AUTO(vow_future) g = ask_full(&t);
        CHECK_TEXT(g, "new");
        f = vow_future_unref(f);
        g = vow_future_unref(g);
        stage_end(&t.s, &t.l);
    }
}

/* ---- a store that takes no results --------------------------------------- */

/* Other steps are answered meanwhile, as those of a store whose results are
 * elsewhere: that it is down is told once, and that it is up when it is. */
static void take_no_result(bool in_the_end)
{
    struct stage s;
    stage_open_with(&s, 1, VOW_AUTHORITY(.lease_ms = LONG));
    struct labor l = {.loop = s.loop};
    struct flaky *flaky = &s.at[0].flaky;
    vow_name name = vow_name_of("long");
    flaky_next(flaky, STEP_COMMIT, FATE_REFUSED, FLAKY_ALWAYS);
    VOW_AUTO(vow_future)
    f = vow_share(s.at[0].a, &name, labor_work, &l, VOW_SHARE(.ttl_ms = TTL));
    world_turn(&s.w);
    labor_end(&l, "result");
    for (int i = 0; i < 8; i++) {
        world_advance_ms(&s.w, LONG / 20);
        VOW_AUTO(vow_future) look = vow_authority_peek(s.at[0].a, &name, 1);
        CHECK_INT_EQ(vow_loop_run_until(s.loop, look), 0);
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_DOWN], 1);
        CHECK_INT_EQ(s.at[0].events[VOW_EVENT_UP], 0);
        look = vow_future_unref(look);
    }
    CHECK(flaky->begun[STEP_COMMIT] > 2);
    if (in_the_end)
        flaky_all(flaky, FATE_FINE);
    world_advance_ms(&s.w, 2 * LONG);
    CHECK_TEXT(f, "result");
    VOW_AUTO(vow_future) look = vow_authority_peek(s.at[0].a, &name, 1);
    CHECK_INT_EQ(vow_loop_run_until(s.loop, look), 0);
    CHECK_INT_EQ(s.at[0].events[VOW_EVENT_DOWN], 1);
    CHECK_INT_EQ(s.at[0].events[VOW_EVENT_UP], 1);
    look = vow_future_unref(look);
    f = vow_future_unref(f);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_mend, a_store_that_takes_no_result_is_told_of_once)
{
    take_no_result(true);
    take_no_result(false);
}
