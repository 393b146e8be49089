/* SPDX-License-Identifier: MIT */
/* pipeline_random_test.c - many pipelines with common beginnings, in any order
 * and at any time; with failures, losses and cancels; with every allocation
 * failing. The seed is told with a failure. */
#include "pipeline_rig.h"

enum { MANY = 1000, ROUNDS = 300, AT_ONCE = 40 };

static struct rig rig;

static uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(test_random(state) % n);
}

/* ---- in any order ------------------------------------------------------ */

static const char *const family[] = {"abcd", "abc", "abd", "acd"};
enum { FAMILY = 4 };

static void in_this_order(const int order[FAMILY], uint64_t gap_ms)
{
    vow_future *f[FAMILY];
    rig_open(&rig);
    for (int i = 0; i < FAMILY; i++) {
        f[i] = ask_with(&rig, rig.a[i % 2], family[order[i]],
                        (vow_share_opts){.ttl_ms = 60000}, NULL);
        world_advance_ms(rig.w, gap_ms);
    }
    world_advance_ms(rig.w, 100);
    for (int i = 0; i < FAMILY; i++)
        check_text(f[i], family[order[i]]);
    check_runs_are(&rig, 1);
    CHECK_UINT_EQ(rig.n_tallies, 7);
    rig_close(&rig);
}

static void permute(int order[FAMILY], int n, uint64_t gap_ms)
{
    if (n == FAMILY)
        in_this_order(order, gap_ms);
    for (int i = n; i < FAMILY; i++) {
        int kept = order[n];
        order[n] = order[i];
        order[i] = kept;
        permute(order, n + 1, gap_ms);
        order[i] = order[n];
        order[n] = kept;
    }
}

TEST(pipeline_random, each_beginning_runs_once_in_every_order_of_arrival)
{
    const uint64_t gaps[] = {0, 3, 10, 15, 40};
    for (size_t i = 0; i < sizeof(gaps) / sizeof(gaps[0]); i++)
        permute((int[]){0, 1, 2, 3}, 0, gaps[i]);
}

/* ---- at any time ------------------------------------------------------- */

static void random_text(uint64_t *random, char text[LONGEST + 1])
{
    size_t n = 1 + below(random, 6);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)('a' + below(random, 3));
    text[n] = '\0';
}

TEST(pipeline_random, each_beginning_runs_once_whoever_comes_when)
{
    uint64_t random = test_seed();
    for (int round = 0; round < ROUNDS; round++) {
        char text[AT_ONCE][LONGEST + 1];
        vow_future *f[AT_ONCE];
        rig_open(&rig);
        for (char c = 'a'; c < 'd'; c++)
            act(&rig, c)->ms = below(&random, 30);
        for (int i = 0; i < AT_ONCE; i++) {
            random_text(&random, text[i]);
            f[i] = ask_with(&rig, rig.a[below(&random, 2)], text[i],
                            (vow_share_opts){.ttl_ms = 60000}, NULL);
            world_advance_ms(rig.w, below(&random, 3) * below(&random, 20));
        }
        world_advance_ms(rig.w, 200);
        for (int i = 0; i < AT_ONCE; i++)
            check_text(f[i], text[i]);
        check_runs_are(&rig, 1);
        rig_close(&rig);
    }
}

TEST(pipeline_random, a_thousand_pipelines_over_twenty_beginnings_settle)
{
    static vow_future *f[MANY];
    static char text[MANY][LONGEST + 1];
    uint64_t random = test_seed();
    rig_open(&rig);
    for (int i = 0; i < MANY; i++) {
        uint32_t k = below(&random, 20);
        size_t n = 3 + below(&random, 4);
        text[i][0] = (char)('a' + k);
        text[i][1] = (char)('a' + k);
        for (size_t j = 2; j < n; j++)
            text[i][j] = (char)('a' + below(&random, 3));
        f[i] = ask_with(&rig, rig.a[i % 2], text[i],
                        (vow_share_opts){.ttl_ms = 60000}, NULL);
    }
    world_advance_ms(rig.w, 60);
    for (int i = 0; i < MANY; i++)
        check_text(f[i], text[i]);
    check_runs_are(&rig, 1);
    vow_authority_stats s = vow_authority_stats_get(rig.a[0]);
    CHECK_UINT_EQ(s.waiting, 0);
    CHECK_UINT_EQ(s.running, 0);
    rig_close(&rig);
}

/* ---- with everything that can go wrong --------------------------------- */

static vow_share_opts random_share(uint64_t *random)
{
    return (vow_share_opts){
        .ttl_ms = below(random, 2) * (1 + below(random, 200)),
        .tries = below(random, 3),
        .flags = below(random, 4) == 0 ? VOW_SHARE_MANUAL_PULSE : 0,
        .takeovers = 1 + below(random, 3),
        .stale_ms = below(random, 4) == 0 ? 1 + below(random, 50) : 0,
        .deadline_ms = below(random, 8) == 0 ? 1 + below(random, 400) : 0};
}

static void random_acts(uint64_t *random)
{
    for (char c = 'a'; c < 'd'; c++) {
        struct act *a = act(&rig, c);
        a->ms = below(random, 4) == 0 ? below(random, 400) : below(random, 20);
        a->flags = below(random, 4) == 0 ? VOW_STEP_PRIVATE : 0;
        a->code = below(random, 3) == 0 ? VOW_EIO : 0;
        a->fails = (int)below(random, 4);
    }
}

static int n_fulfilled, n_failed, n_left;

static void check_end(vow_future *f, const char *text)
{
    int code = vow_error_code(vow_error_of(f));
    CHECK(vow_state_of(f) != VOW_PENDING);
    n_fulfilled += code == 0;
    n_failed += code == VOW_EIO;
    n_left += code == VOW_ECANCELED;
    if (code == 0)
        check_text(f, text);
    else if (code == VOW_EIO || code == VOW_ECANCELED ||
             code == VOW_ETIMEDOUT || code == VOW_EGAVEUP)
        vow_future_unref(f);
    else
        FAIL("%s: %s", text, vow_error_message(vow_error_of(f)));
}

/* A third one comes and goes. */
static void random_close(uint64_t *random)
{
    if (below(random, 8) != 0)
        return;
    if (rig.a[2] == NULL) {
        CHECK_INT_EQ(rig_try_authority(&rig, 2), 0);
        return;
    }
    vow_future_unref(vow_authority_close(rig.a[2]));
    rig.a[2] = vow_authority_unref(rig.a[2]);
}

TEST(pipeline_random, all_settle_whatever_fails_or_is_lost)
{
    uint64_t random = test_seed();
    for (int round = 0; round < ROUNDS; round++) {
        char text[AT_ONCE][LONGEST + 1];
        vow_future *f[AT_ONCE];
        bool third[AT_ONCE];
        rig_open(&rig);
        rig.lease_ms = 100;
        CHECK_INT_EQ(rig_try_authority(&rig, 2), 0);
        random_acts(&random);
        for (int i = 0; i < AT_ONCE; i++) {
            size_t which = below(&random, 3);
            third[i] = which == 2;
            random_text(&random, text[i]);
            f[i] =
                ask_with(&rig, rig.a[which] == NULL ? rig.a[0] : rig.a[which],
                         text[i], random_share(&random), NULL);
            world_advance_ms(rig.w, below(&random, 3) * below(&random, 50));
            if (below(&random, 6) == 0)
                (void)vow_cancel(f[below(&random, (uint32_t)i + 1)], NULL);
            random_close(&random);
        }
        world_advance_ms(rig.w, 60000);
        for (int i = 0; i < AT_ONCE; i++) {
            if (third[i] && vow_error_code(vow_error_of(f[i])) == VOW_ECLOSED)
                vow_future_unref(f[i]);
            else
                check_end(f[i], text[i]);
        }
        CHECK_INT_EQ(rig.running, 0);
        rig_close(&rig);
    }
    CHECK(n_fulfilled > ROUNDS * AT_ONCE / 4); /* all of it has happened */
    CHECK(n_failed > ROUNDS);
    CHECK(n_left > ROUNDS);
}

/* ---- without memory ---------------------------------------------------- */

FAULT_SWEEP(pipeline_random, steps_survive_every_fault, FAULT_ALLOC)
{
    int rc = rig_try_open(&rig, w);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc < 0) {
        rig_end(&rig);
        return;
    }
    act(&rig, 'p')->flags = VOW_STEP_PRIVATE;
    vow_future *f = ask_for(&rig, "abpc");
    vow_future *g = ask_for(&rig, "abd");
    vow_future *h = ask_for(&rig, "abp");
    world_advance_ms(w, 100);
    CHECK(explained(w, f, "abpc"));
    CHECK(explained(w, g, "abd"));
    CHECK(explained(w, h, "abp"));
    rig_end(&rig);
}
