/* SPDX-License-Identifier: MIT */
/* replay_order_test.c - the replay refuses histories with one wrong answer, and
 * accepts the same histories without. */
#include "harness.h"
#include "replay.h"

#include <string.h>

enum { LEASE_MS = 1000, STEPS = 64, LONG_MS = 3600000, RECHECK_MS = 1000 };

/* A history: steps with answers, each a millisecond long. */
struct story {
    struct replay_step steps[STEPS];
    size_t n;
    uint32_t allows;
};

static struct replay_step *tell_step(struct story *s, uint64_t at_ms,
                                     const struct replay_step *step)
{
    CHECK(s->n < STEPS);
    struct replay_step *new = &s->steps[s->n++];
    *new = *step;
    new->sent_us = at_ms * 1000;
    new->done_us = at_ms * 1000 + 999;
    new->answered = true;
    new->tells = REPLAY_EPOCH | REPLAY_FIRST | REPLAY_LOST | REPLAY_FAILED;
    if (new->told_first == 0)
        new->told_first = new->told_epoch;
    return new;
}

static struct replay_step *tell_claim(struct story *s, uint64_t at_ms,
                                      uint64_t token, uint32_t status,
                                      uint64_t epoch)
{
    return tell_step(s, at_ms,
                     &(struct replay_step){.kind = REPLAY_CLAIM,
                                           .token = token,
                                           .ms = LEASE_MS,
                                           .takeovers = 1000,
                                           .status = status,
                                           .told_epoch = epoch});
}

/* A takeover of the run that began with `first`. */
static struct replay_step *tell_takeover(struct story *s, uint64_t at_ms,
                                         uint64_t token, uint64_t epoch,
                                         uint64_t first)
{
    struct replay_step *claim =
        tell_claim(s, at_ms, token, VOW_STATUS_OWNED, epoch);
    claim->told_first = first;
    claim->told_takeovers = 1;
    return claim;
}

static struct replay_step *tell_pulse(struct story *s, uint64_t at_ms,
                                      uint64_t token, uint64_t epoch,
                                      uint32_t status)
{
    return tell_step(s, at_ms,
                     &(struct replay_step){.kind = REPLAY_PULSE,
                                           .token = token,
                                           .epoch = epoch,
                                           .ms = LEASE_MS,
                                           .status = status,
                                           .told_epoch = epoch});
}

static struct replay_step *tell_commit(struct story *s, uint64_t at_ms,
                                       uint64_t token, uint64_t epoch,
                                       uint64_t ttl_ms, uint32_t status)
{
    return tell_step(s, at_ms,
                     &(struct replay_step){.kind = REPLAY_COMMIT,
                                           .token = token,
                                           .epoch = epoch,
                                           .outcome = VOW_OUTCOME_DONE,
                                           .flags = VOW_COMMIT_STRICT,
                                           .ms = ttl_ms,
                                           .status = status,
                                           .told_epoch = epoch});
}

static struct replay_result judge_story(const struct story *s)
{
    const struct replay_opts opts = {.allows = s->allows,
                                     .recheck_ms = RECHECK_MS};
    return replay_run(s->steps, s->n, &opts);
}

static void check_true(const struct story *s)
{
    const struct replay_result r = judge_story(s);
    if (r.verdict == REPLAY_REFUSED)
        replay_print(s->steps, s->n, &r, stdout);
    CHECK_INT_EQ(r.verdict, REPLAY_EXPLAINED);
}

/* The last step is the wrong one. */
static void check_lie(const struct story *s)
{
    const struct replay_result r = judge_story(s);
    CHECK_INT_EQ(r.verdict, REPLAY_REFUSED);
    CHECK(r.step == s->n - 1);
}

static struct story run_with_result(uint64_t ttl_ms)
{
    struct story s = {.n = 0};
    tell_claim(&s, 10, 1, VOW_STATUS_OWNED, 5);
    tell_claim(&s, 20, 2, VOW_STATUS_WAITING, 5);
    tell_pulse(&s, 500, 1, 5, VOW_STATUS_OWNED);
    tell_commit(&s, 900, 1, 5, ttl_ms, VOW_STATUS_OWNED);
    return s;
}

TEST(replay_order, refuses_a_stale_result)
{
    struct story s = run_with_result(100);
    tell_claim(&s, 950, 3, VOW_STATUS_SETTLED, 5);
    tell_claim(&s, 1001, 3, VOW_STATUS_OWNED, 6);
    check_true(&s);
    tell_claim(&s, 1010, 4, VOW_STATUS_SETTLED, 5);
    check_lie(&s);

    s = run_with_result(100);
    tell_claim(&s, 1001, 4, VOW_STATUS_SETTLED, 5); /* it has expired */
    check_lie(&s);
    s = run_with_result(LONG_MS);
    tell_claim(&s, 1001, 4, VOW_STATUS_OWNED, 6); /* it has not */
    check_lie(&s);
}

TEST(replay_order, refuses_two_owners)
{
    struct story s = {.n = 0};
    tell_claim(&s, 10, 1, VOW_STATUS_OWNED, 5);
    tell_pulse(&s, 500, 1, 5, VOW_STATUS_OWNED);
    struct story again = s;
    tell_takeover(&s, 1502, 2, 6, 5);
    check_true(&s);
    tell_pulse(&s, 1510, 1, 5, VOW_STATUS_OWNED);
    check_lie(&s);

    tell_takeover(&again, 1498, 2, 6, 5); /* the lease ends at 1500 */
    check_lie(&again);
    again.allows = REPLAY_LEASES_EARLY;
    check_true(&again);
}

TEST(replay_order, refuses_an_owner_whose_lease_has_ended)
{
    struct story s = {.n = 0};
    tell_claim(&s, 10, 1, VOW_STATUS_OWNED, 5);
    tell_claim(&s, 1008, 2, VOW_STATUS_WAITING, 5);
    check_true(&s);
    tell_claim(&s, 1012, 2, VOW_STATUS_WAITING, 5);
    check_lie(&s);
    s.allows = REPLAY_LEASES_LATE;
    check_true(&s);
}

TEST(replay_order, refuses_an_epoch_that_goes_back)
{
    struct story s = run_with_result(0);
    struct story lower = s;
    tell_claim(&s, 1000, 3, VOW_STATUS_OWNED, 6);
    check_true(&s);
    tell_claim(&lower, 1000, 3, VOW_STATUS_OWNED, 5);
    check_lie(&lower);
    tell_pulse(&s, 1100, 3, 6, VOW_STATUS_OWNED)->told_epoch = 5;
    check_lie(&s);
}

TEST(replay_order, refuses_a_result_nobody_committed)
{
    struct story s = run_with_result(LONG_MS);
    struct story other = s;
    tell_claim(&s, 1000, 3, VOW_STATUS_SETTLED, 5);
    check_true(&s);
    tell_claim(&s, 1010, 4, VOW_STATUS_SETTLED, 4);
    check_lie(&s);
    tell_claim(&other, 1000, 3, VOW_STATUS_SETTLED, 5)->told_failed = true;
    check_lie(&other);

    struct story none = {.n = 0};
    tell_claim(&none, 10, 1, VOW_STATUS_OWNED, 5);
    tell_claim(&none, 20, 2, VOW_STATUS_SETTLED, 5);
    check_lie(&none);
}

static struct story run_in_doubt(void)
{
    struct story s = {.n = 0};
    tell_claim(&s, 10, 1, VOW_STATUS_OWNED, 5)->mode = VOW_ONCE;
    tell_claim(&s, 1100, 2, VOW_STATUS_DOUBT, 5)->mode = VOW_ONCE;
    return s;
}

TEST(replay_order, refuses_a_doubt_that_is_taken_over)
{
    struct story s = run_in_doubt();
    tell_takeover(&s, 1200, 2, 6, 5)->mode = VOW_ONCE;
    check_lie(&s);
    s = run_in_doubt();
    tell_claim(&s, 1200, 2, VOW_STATUS_OWNED, 6)->mode = VOW_ONCE;
    check_lie(&s);
    s = run_in_doubt();
    struct replay_step *resolve =
        tell_commit(&s, 1200, 9, 5, 0, VOW_STATUS_OWNED);
    resolve->flags = VOW_COMMIT_RESOLVE;
    resolve->outcome = VOW_OUTCOME_ABANDONED;
    tell_claim(&s, 1300, 2, VOW_STATUS_OWNED, 6)->mode = VOW_ONCE;
    check_true(&s);
    s.steps[2].epoch = 4; /* resolved with the epoch of another run */
    s.steps[2].told_epoch = 4;
    s.n = 3;
    check_lie(&s);
    s = run_in_doubt();
    s.steps[1].sent_us = s.steps[1].done_us = 900000; /* too soon */
    check_lie(&s);
}

/* The result of a run is for the claims that waited, whatever became of the
 * name. */
TEST(replay_order, refuses_a_waiter_that_is_lost)
{
    struct story s = run_with_result(0);
    tell_claim(&s, 950, 3, VOW_STATUS_OWNED, 6);
    struct story lost = s;
    tell_claim(&s, 1000, 2, VOW_STATUS_SETTLED, 5)->waited = 5;
    check_true(&s);
    tell_claim(&lost, 1000, 2, VOW_STATUS_WAITING, 6)->waited = 5;
    check_lie(&lost);
    lost.allows = REPLAY_LEFT_MAY_GO;
    check_true(&lost);
    lost.allows = 0;
    tell_claim(&s, 1010, 4, VOW_STATUS_SETTLED, 5); /* has not waited */
    check_lie(&s);
    /* after twice the recheck interval and the lease */
    lost.steps[lost.n - 1].status = VOW_STATUS_OWNED;
    lost.steps[lost.n - 1].told_epoch = lost.steps[lost.n - 1].told_first = 7;
    lost.steps[lost.n - 1].told_takeovers = 1;
    lost.steps[lost.n - 1].told_first = 6;
    lost.steps[lost.n - 1].sent_us += 2 * (RECHECK_MS + LEASE_MS) * 1000;
    lost.steps[lost.n - 1].done_us += 2 * (RECHECK_MS + LEASE_MS) * 1000;
    check_true(&lost);
}

/* A service that leaves results for instances does not compare for which run a
 * claim has waited. */
TEST(replay_order, lets_any_claim_read_a_result_left_for_instances)
{
    struct story s = run_with_result(0);
    tell_claim(&s, 950, 3, VOW_STATUS_OWNED, 6);
    tell_claim(&s, 1000, 2, VOW_STATUS_SETTLED, 5);
    check_lie(&s);
    s.allows = REPLAY_LEFT_TO_ANY;
    check_true(&s);
    tell_claim(&s, 1010, 2, VOW_STATUS_SETTLED, 6); /* no result yet */
    check_lie(&s);
}

/* ---- steps without an answer --------------------------------------------- */

static void lose_answer(struct replay_step *s, uint64_t until_ms)
{
    s->answered = false;
    s->done_us = until_ms * 1000;
}

TEST(replay_order, explains_by_steps_without_an_answer)
{
    struct story s = {.n = 0};
    struct replay_step *claim = tell_claim(&s, 10, 1, 0, 0);
    lose_answer(claim, 500);
    struct story free = s;
    tell_claim(&free, 20, 2, VOW_STATUS_OWNED, 6);
    check_true(&free); /* the claim has not happened */
    tell_claim(&s, 20, 2, VOW_STATUS_WAITING, 5);
    check_true(&s);
    struct story again = s;
    tell_claim(&again, 600, 1, VOW_STATUS_OWNED, 5);
    check_true(&again); /* and the repeat tells the owner */
    tell_claim(&s, 30, 3, VOW_STATUS_WAITING, 4); /* it has one epoch */
    check_lie(&s);
    s.n--;
    tell_takeover(&s, 1600, 3, 7, 5);
    check_true(&s);
    s.steps[0].done_us = s.steps[0].sent_us - 1; /* it cannot have happened */
    s.n = 2;
    check_lie(&s);
}

TEST(replay_order, explains_an_epoch_that_nobody_was_told)
{
    struct story s = {.n = 0};
    lose_answer(tell_claim(&s, 10, 1, 0, 0), 500);
    tell_claim(&s, 1600, 2, VOW_STATUS_OWNED, 6)->told_takeovers = 1;
    s.steps[1].tells &= ~(uint32_t)REPLAY_FIRST;
    check_true(&s);
    s.steps[1].told_takeovers = 2;
    check_lie(&s);
}

TEST(replay_order, lets_a_step_without_an_answer_happen_once)
{
    struct story s = {.n = 0};
    lose_answer(tell_claim(&s, 10, 1, 0, 0), 5000);
    tell_claim(&s, 20, 2, VOW_STATUS_WAITING, 5);
    struct replay_step *back = tell_commit(&s, 30, 1, 5, 0, VOW_STATUS_OWNED);
    back->outcome = VOW_OUTCOME_ABANDONED;
    tell_claim(&s, 40, 2, VOW_STATUS_WAITING, 6);
    check_lie(&s);
    s.steps[0].again_us = 5000000;
    check_true(&s);
}

TEST(replay_order, explains_a_claim_that_the_store_undoes)
{
    struct story s = {.n = 0};
    lose_answer(tell_claim(&s, 10, 1, 0, 0), 500);
    tell_claim(&s, 20, 2, VOW_STATUS_WAITING, 5);
    tell_claim(&s, 30, 2, VOW_STATUS_OWNED, 6);
    check_lie(&s);
    s.steps[0].undone_us = 25000;
    check_true(&s);
    s.steps[2].sent_us = s.steps[2].done_us = 19000;
    s.steps[1].sent_us = s.steps[1].done_us = 29000; /* it was not undone */
    s.steps[1].told_epoch = s.steps[1].told_first = 5;
    CHECK_INT_EQ(judge_story(&s).verdict, REPLAY_REFUSED);
}

TEST(replay_order, knows_nothing_of_a_record_before_a_loss)
{
    struct story s = {.allows = REPLAY_FORGOT};
    tell_claim(&s, 10, 2, VOW_STATUS_WAITING, 5);
    tell_pulse(&s, 20, 1, 5, VOW_STATUS_OWNED);
    check_true(&s);
    tell_claim(&s, 30, 2, VOW_STATUS_WAITING, 6);
    check_lie(&s);
    s.allows = 0;
    CHECK_INT_EQ(judge_story(&s).verdict, REPLAY_REFUSED);

    struct story owner = {.allows = REPLAY_FORGOT};
    tell_claim(&owner, 10, 1, VOW_STATUS_OWNED, 5)->floor = 9; /* a repeat */
    check_true(&owner);
    tell_claim(&owner, 20, 2, VOW_STATUS_OWNED, 6);
    check_lie(&owner);
}

/* ---- random histories ---------------------------------------------------- */

/* A store by the rules, one step after another; the intervals of the steps
 * overlap. */
static void draw_story_step(struct story *s, struct rules_record *r,
                            uint64_t *random, uint64_t *now_us)
{
    uint64_t token = 1 + test_random(random) % 4;
    vow_token bytes = {.bytes = {(unsigned char)token}};
    const struct rules_now now = {.now_us = *now_us +=
                                  1000 + test_random(random) % 400000,
                                  .number = 10 * (s->n + 1),
                                  .recheck_ms = RECHECK_MS};
    bool owner = memcmp(&r->token, &bytes, sizeof(bytes)) == 0 &&
                 r->state == RULES_RUNNING;
    struct decision d;
    struct replay_step *step;
    if (owner && test_random(random) % 2 == 0) {
        const vow_commit_request q = {
            .hold = {.token = bytes, .epoch = r->epoch},
            .outcome = VOW_OUTCOME_DONE,
            .flags = VOW_COMMIT_STRICT,
            .ttl_ms = test_random(random) % 2 * 500};
        d = vow__rules_commit(r, &q, now);
        step = tell_commit(s, 0, token, r->epoch, q.ttl_ms, d.status);
    } else {
        if (!owner && test_random(random) % 2 == 0)
            token += 4;
        bytes.bytes[0] = (unsigned char)token;
        const vow_claim_request q = {
            .token = bytes, .lease_ms = LEASE_MS, .takeovers = 1000};
        d = vow__rules_claim(r, NULL, &q, now);
        step = tell_claim(s, 0, token, d.status, d.epoch);
    }
    CHECK_INT_EQ(d.code, 0);
    step->told_epoch = d.epoch;
    step->told_first = d.first;
    step->told_takeovers = d.next.takeovers;
    step->sent_us = *now_us - test_random(random) % 100000;
    step->done_us = *now_us + test_random(random) % 100000;
    if ((d.effects & EFFECT_WRITE) != 0)
        *r = d.next;
}

static struct story draw_story(uint64_t seed)
{
    struct story s = {.n = 0};
    struct rules_record r = {.state = RULES_NONE};
    uint64_t now_us = 1000000;
    while (s.n < 30)
        draw_story_step(&s, &r, &seed, &now_us);
    return s;
}

/* The changed answer tells an epoch that was never granted. */
TEST(replay_order, accepts_random_histories_and_refuses_one_changed_answer)
{
    uint64_t changed = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct story s = draw_story(test_seed() + seed);
        check_true(&s);
        uint64_t random = seed;
        for (int i = 0; i < 5; i++) {
            struct story lie = s;
            struct replay_step *step = &lie.steps[test_random(&random) % lie.n];
            if (step->status != VOW_STATUS_WAITING &&
                step->status != VOW_STATUS_SETTLED)
                continue;
            step->told_epoch += 5;
            changed++;
            CHECK_INT_EQ(judge_story(&lie).verdict, REPLAY_REFUSED);
        }
        for (size_t i = 0; i < s.n; i++)
            if (i % 5 == 0)
                lose_answer(&s.steps[i], RULES_NEVER / 1000 - 1);
        check_true(&s);
    }
    CHECK(changed > 300);
}

static struct replay_step *tell_refresh(struct story *s, uint64_t at_ms,
                                        uint64_t token, uint32_t status,
                                        uint64_t epoch)
{
    struct replay_step *claim = tell_claim(s, at_ms, token, status, epoch);
    claim->refresh = 5;
    return claim;
}

/* The result of epoch 5 expires at 1300 ms. */
static struct story refresh_of_result(void)
{
    struct story s = run_with_result(400);
    tell_refresh(&s, 950, 2, VOW_STATUS_OWNED, 6);
    tell_refresh(&s, 960, 3, VOW_STATUS_SETTLED, 5);
    tell_claim(&s, 970, 4, VOW_STATUS_SETTLED, 5);
    check_true(&s);
    return s;
}

TEST(replay_order, refuses_a_second_refresher)
{
    struct story s = refresh_of_result();
    tell_refresh(&s, 980, 3, VOW_STATUS_OWNED, 7);
    check_lie(&s);
    s = refresh_of_result();
    tell_refresh(&s, 2100, 3, VOW_STATUS_OWNED, 7)->told_takeovers = 1;
    check_lie(&s); /* a takeover has the number of the first run */
}

TEST(replay_order, refuses_a_run_beside_a_refresher_of_an_expired_result)
{
    struct story s = refresh_of_result();
    tell_claim(&s, 1400, 4, VOW_STATUS_WAITING, 6);
    check_true(&s);
    tell_claim(&s, 1410, 5, VOW_STATUS_OWNED, 7);
    check_lie(&s);
    s = refresh_of_result();
    tell_claim(&s, 1400, 4, VOW_STATUS_SETTLED, 5);
    check_lie(&s);
    s = refresh_of_result();
    tell_pulse(&s, 1410, 2, 6, VOW_STATUS_OWNED);
    tell_commit(&s, 1500, 2, 6, LONG_MS, VOW_STATUS_OWNED);
    tell_claim(&s, 1510, 4, VOW_STATUS_SETTLED, 6);
    check_true(&s);
    tell_claim(&s, 1520, 4, VOW_STATUS_SETTLED, 5);
    check_lie(&s);
}
