/* SPDX-License-Identifier: MIT */
/* etcd_modes_test.c - work on etcd in each mode: fences only grow, what comes
 * late has no effect, and work that may happen only once is never
 * begun a second time by itself, whatever becomes of its owner. Processes are
 * really killed and stopped, and the member really restarted, and restored from
 * an older copy. */
#include "contract.h"
#include "etcd_process.h"

#define PROC(...) (&(const struct proc_job){__VA_ARGS__})
#define SEAT_OPTS VOW_AUTHORITY(.lease_ms = HELD_MS, .recheck_ms = RARELY_MS)

static struct town r;
static struct seat a, b;

/* ---- FENCED -------------------------------------------------------------- */

TEST(etcd_modes, fences_grow_over_deaths_restarts_and_results)
{
    enum { DEATHS = 3 };
    struct proc p[DEATHS];
    struct turn t;
    vow_name name = vow_name_of("fenced");
    uint64_t last = 0;
    town_start(&r, NULL);
    for (size_t i = 0; i < DEATHS; i++)
        proc_hire(&p[i],
                  PROC(.url = r.k.url, .name = "fenced", .mode = VOW_FENCED,
                       .takeovers = 100, .lease_ms = 1000));
    world_open_real(&r.w);
    for (size_t i = 0; i < DEATHS; i++) {
        uint64_t fence = proc_go(&p[i]);
        CHECK(fence > last);
        last = fence;
        proc_kill(&p[i]);
        etcd_again(&r.k, 0);
    }
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    for (int i = 0; i < 3; i++) {
        turn_take(&r, &a, &t, "fenced",
                  VOW_SHARE(.mode = VOW_FENCED, .takeovers = 100,
                            .ttl_ms = 60000, .store_down = VOW_DOWN_WAIT));
        CHECK_INT_EQ(t.code, 0);
        TOWN_UNTIL(&r, t.lease != NULL);
        CHECK(vow_lease_fence(t.lease) > last);
        last = vow_lease_fence(t.lease);
        CHECK_INT_EQ(turn_say(&r, &t, "x"), 0);
        turn_drop(&t);
        CHECK_UINT_EQ(seat_peek(&r, &a, &name).epoch, last);
        CHECK_INT_EQ(town_until(&r, vow_authority_forget(a.a, &name, last)), 0);
        etcd_again(&r.k, 0);
    }
    seat_close(&r, &a);
    town_close(&r);
}

static void copy_folder(const char *from, const char *to)
{
    pid_t pid = fork();
    int status = 0;
    CHECK(pid >= 0);
    if (pid == 0) {
        (void)execlp("cp", "cp", "-a", "--sparse=always", from, to, NULL);
        _exit(127);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT_EQ(status, 0);
}

/* Who has seen larger ones lifts them, and that counts for all who come later
 * to that name. */
TEST(etcd_modes, fences_grow_over_a_member_restored_from_a_copy)
{
    struct task t = {.r = &r, .text = "x"};
    struct turn mine, other;
    char live[2 * FOLDER_MAX], copy[2 * FOLDER_MAX];
    town_open(&r, NULL);
    (void)snprintf(live, sizeof(live), "%s/0", r.k.folder.path);
    (void)snprintf(copy, sizeof(copy), "%s/copy", r.k.folder.path);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    CHECK_INT_EQ(task_share(&a, &t, "n", "x", VOW_SHARE(.mode = VOW_FENCED)),
                 0);
    etcd_kill(&r.k, 0);
    copy_folder(live, copy);
    etcd_again(&r.k, 0);
    for (int i = 0; i < 200; i++)
        etcd_put(&r.k, "elsewhere", "x");
    while (task_share(&a, &t, "n", "x", VOW_SHARE(.mode = VOW_FENCED)) != 0)
        town_pass(&r, 50);
    uint64_t seen = t.fence;
    CHECK(seen > 200);

    etcd_kill(&r.k, 0);
    folder_remove(live);
    CHECK(rename(copy, live) == 0);
    etcd_again(&r.k, 0);
    CHECK(etcd_revision(&r.k) < 200);
    do {
        turn_take(&r, &a, &mine, "n", VOW_SHARE(.mode = VOW_FENCED));
        town_pass(&r, 50);
    } while (mine.code != 0);
    TOWN_UNTIL(&r, mine.lease != NULL);
    CHECK(vow_lease_fence(mine.lease) > seen);
    seen = vow_lease_fence(mine.lease);

    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    turn_take(&r, &b, &other, "n",
              VOW_SHARE(.mode = VOW_FENCED, .ttl_ms = 60000));
    CHECK(other.code == 0 && other.lease == NULL);
    CHECK(vow_lease_abandon(mine.lease));
    (void)vow_cancel(mine.result, NULL); /* it would ask again */
    TOWN_UNTIL(&r, other.lease != NULL);
    /* It was told of this fence, by waiting for it. */
    CHECK(vow_lease_fence(other.lease) > seen);
    CHECK_INT_EQ(turn_say(&r, &other, "y"), 0);
    CHECK_INT_EQ(turn_hears(&r, &other, "y"), 0);
    turn_drop(&mine);
    turn_drop(&other);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

TEST(etcd_modes, who_was_stopped_for_too_long_settles_nothing)
{
    struct proc p;
    struct turn t;
    vow_name name = vow_name_of("late");
    town_start(&r, NULL);
    proc_hire(&p, PROC(.url = r.k.url, .name = "late", .mode = VOW_FENCED,
                       .text = "late", .lease_ms = 1500));
    world_open_real(&r.w);
    uint64_t fence = proc_go(&p);
    CHECK(kill(p.pid, SIGSTOP) == 0);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    turn_take(&r, &a, &t, "late",
              VOW_SHARE(.mode = VOW_FENCED, .ttl_ms = 60000));
    CHECK_INT_EQ(t.code, 0);
    TOWN_UNTIL(&r, t.lease != NULL);
    CHECK(vow_lease_fence(t.lease) > fence);

    /* While the next one works. */
    proc_nod(&p);
    CHECK(kill(p.pid, SIGCONT) == 0);
    CHECK_INT_EQ(proc_hear(&p), VOW_ELOST);
    CHECK(vow_lease_left_ms(t.lease) > 0);
    CHECK_UINT_EQ(seat_peek(&r, &a, &name).epoch, vow_lease_fence(t.lease));
    CHECK_INT_EQ(turn_say(&r, &t, "in time"), 0);
    CHECK_INT_EQ(turn_hears(&r, &t, "in time"), 0);
    turn_drop(&t);
    struct task again = {.r = &r, .text = "no"};
    CHECK_INT_EQ(task_share(&a, &again, "late", "in time",
                            VOW_SHARE(.mode = VOW_FENCED)),
                 0);
    CHECK_UINT_EQ(again.runs, 0);
    proc_kill(&p);
    seat_close(&r, &a);
    town_close(&r);
}

/* The same when the next one has already settled it. */
TEST(etcd_modes, who_wakes_after_the_next_result_settles_nothing)
{
    struct proc p;
    struct task t = {.r = &r, .text = "in time"};
    town_start(&r, NULL);
    proc_hire(&p, PROC(.url = r.k.url, .name = "late", .text = "late",
                       .lease_ms = 1500));
    world_open_real(&r.w);
    uint64_t fence = proc_go(&p);
    CHECK(kill(p.pid, SIGSTOP) == 0);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    CHECK_INT_EQ(
        task_share(&a, &t, "late", "in time", VOW_SHARE(.ttl_ms = 60000)), 0);
    CHECK_UINT_EQ(t.runs, 1);
    CHECK(t.fence > fence);
    proc_nod(&p);
    CHECK(kill(p.pid, SIGCONT) == 0);
    CHECK_INT_EQ(proc_hear(&p), VOW_ELOST);
    CHECK_INT_EQ(
        task_share(&a, &t, "late", "in time", VOW_SHARE(.ttl_ms = 60000)), 0);
    CHECK_UINT_EQ(t.runs, 1);
    proc_kill(&p);
    seat_close(&r, &a);
    town_close(&r);
}

/* ---- SHARED -------------------------------------------------------------- */

TEST(etcd_modes, a_killed_runner_is_replaced_after_its_lease_not_before)
{
    enum { LEASE_MS = 3000 };
    struct proc p;
    struct task t = {.r = &r, .text = "mine"};
    vow_share_info info = {.role = 0};
    town_start(&r, NULL);
    proc_hire(&p, PROC(.url = r.k.url, .name = "shared", .lease_ms = LEASE_MS));
    world_open_real(&r.w);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    uint64_t before = town_ms(&r);
    uint64_t fence = proc_go(&p);
    proc_kill(&p);
    uint64_t dead = town_ms(&r);
    CHECK_INT_EQ(task_share(&a, &t, "shared", "mine",
                            VOW_SHARE(.ttl_ms = 60000, .info = &info)),
                 0);
    CHECK(town_ms(&r) - before >= LEASE_MS);
    CHECK(town_ms(&r) - dead < LEASE_MS + LATE_MS + SLACK_MS);
    CHECK_UINT_EQ(t.runs, 1);
    CHECK(t.fence > fence);
    CHECK_UINT_EQ(info.role, VOW_ROLE_TAKEOVER);
    CHECK_UINT_EQ(atomic_load(&a.told[VOW_EVENT_TAKEOVER]), 1);
    seat_close(&r, &a);
    town_close(&r);
}

/* ---- ONCE ---------------------------------------------------------------- */

#define ONCE(...) VOW_SHARE(.mode = VOW_ONCE, __VA_ARGS__)

enum { OWNED_S = 600 }; /* the lease of a process that is killed */

static int resolve(struct seat *s, const char *text, uint64_t fence,
                   enum vow_what_happened how, const char *value)
{
    vow_name name = vow_name_of(text);
    VOW_AUTO(vow_bytes) bytes = NULL;
    CHECK_INT_EQ(vow_bytes_new(r.w.loop, value, strlen(value), &bytes), 0);
    return town_until(
        &r, vow_authority_resolve(s->a, &name, fence, how, bytes, 60000));
}

/* Who waited when it died, and who comes later, in whatever mode. */
TEST(etcd_modes, what_was_begun_once_is_in_doubt_for_all)
{
    struct proc p;
    struct turn waits;
    struct task t = {.r = &r, .text = "again"};
    vow_name name = vow_name_of("once");
    town_start(&r, NULL);
    proc_hire(&p, PROC(.url = r.k.url, .name = "once", .mode = VOW_ONCE,
                       .lease_ms = OWNED_S * 1000));
    world_open_real(&r.w);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    uint64_t fence = proc_go(&p);
    turn_take(&r, &a, &waits, "once", ONCE(.ttl_ms = 60000));
    CHECK(waits.code == 0 && waits.lease == NULL);
    proc_kill(&p);
    town_end_leases(&r, OWNED_S);
    CHECK_INT_EQ(turn_hears(&r, &waits, ""), VOW_EDOUBT);
    turn_drop(&waits);
    CHECK_INT_EQ(task_share(&a, &t, "once", "", ONCE(.ttl_ms = 1)), VOW_EDOUBT);
    CHECK_INT_EQ(task_share(&b, &t, "once", "", ONCE(.ttl_ms = 1)), VOW_EDOUBT);
    CHECK_INT_EQ(task_share(&b, &t, "once", "", VOW_SHARE(.ttl_ms = 1)),
                 VOW_EDOUBT);
    CHECK_INT_EQ(task_share(&b, &t, "once", "", ONCE(.flags = VOW_SHARE_FORCE)),
                 VOW_EDOUBT);
    vow_record seen = seat_peek(&r, &b, &name);
    CHECK_UINT_EQ(seen.status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(seen.epoch, fence);
    CHECK_UINT_EQ(seen.mode, VOW_ONCE);

    /* Also for those who come after a restart. */
    etcd_again(&r.k, 0);
    seat_close(&r, &b);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    CHECK_INT_EQ(task_share(&b, &t, "once", "", ONCE(.ttl_ms = 1)), VOW_EDOUBT);
    CHECK_UINT_EQ(t.runs, 0);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

TEST(etcd_modes, only_the_right_fence_resolves)
{
    struct proc p;
    struct task t = {.r = &r, .text = "again"};
    vow_name name = vow_name_of("once");
    town_start(&r, NULL);
    proc_hire(&p, PROC(.url = r.k.url, .name = "once", .mode = VOW_ONCE,
                       .lease_ms = OWNED_S * 1000));
    world_open_real(&r.w);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    uint64_t fence = proc_go(&p);
    /* It runs. */
    CHECK_INT_EQ(resolve(&a, "once", fence, VOW_IT_HAPPENED, "no"), VOW_ENOENT);
    CHECK_INT_EQ(resolve(&a, "once", fence, VOW_DO_IT_AGAIN, "no"), VOW_ENOENT);
    proc_kill(&p);
    town_end_leases(&r, OWNED_S);
    CHECK_INT_EQ(task_share(&a, &t, "once", "", ONCE(.ttl_ms = 1)), VOW_EDOUBT);
    CHECK(resolve(&a, "once", 0, VOW_DO_IT_AGAIN, "no") != 0);
    const uint64_t wrong[] = {1, fence - 1, fence + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_INT_EQ(resolve(&a, "once", wrong[i], VOW_IT_HAPPENED, "no"),
                     VOW_ENOENT);
        CHECK_INT_EQ(resolve(&a, "once", wrong[i], VOW_IT_FAILED, "no"),
                     VOW_ENOENT);
        CHECK_INT_EQ(resolve(&a, "once", wrong[i], VOW_DO_IT_AGAIN, "no"),
                     VOW_ENOENT);
    }
    CHECK_UINT_EQ(seat_peek(&r, &a, &name).status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(seat_peek(&r, &a, &name).epoch, fence);
    CHECK_INT_EQ(resolve(&a, "once", fence, VOW_IT_HAPPENED, "it did"), 0);
    CHECK_INT_EQ(task_share(&a, &t, "once", "it did", ONCE(.ttl_ms = 1)), 0);
    /* It is settled: nobody changes that any more. */
    CHECK_INT_EQ(resolve(&a, "once", fence, VOW_DO_IT_AGAIN, "no"), VOW_ENOENT);
    CHECK_INT_EQ(resolve(&a, "once", fence, VOW_IT_FAILED, "no"), VOW_ENOENT);
    CHECK_INT_EQ(task_share(&a, &t, "once", "it did", ONCE(.ttl_ms = 1)), 0);
    CHECK_UINT_EQ(t.runs, 0);
    seat_close(&r, &a);
    town_close(&r);
}

/* A process owned these, and died; etcd need not be waited for. */
static void doubts(struct proc *p, uint64_t *fences, size_t n)
{
    proc_nod(p);
    for (size_t i = 0; i < n; i++)
        fences[i] = (uint64_t)proc_hear(p);
    proc_kill(p);
    CHECK(etcd_revoke_all(&r.k) > 0);
}

TEST(etcd_modes, what_is_done_again_is_done_by_one_with_a_larger_fence)
{
    struct task t = {.r = &r, .text = "again"};
    struct turn first, second;
    struct proc p;
    uint64_t fence;
    town_start(&r, NULL);
    proc_hire(&p, PROC(.url = r.k.url, .name = "once", .mode = VOW_ONCE,
                       .lease_ms = 60000));
    world_open_real(&r.w);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    doubts(&p, &fence, 1);
    CHECK_INT_EQ(task_share(&b, &t, "once", "", ONCE(.ttl_ms = 1)), VOW_EDOUBT);
    CHECK_INT_EQ(resolve(&b, "once", fence, VOW_DO_IT_AGAIN, ""), 0);
    turn_take(&r, &b, &first, "once", ONCE(.ttl_ms = 60000));
    turn_take(&r, &a, &second, "once", ONCE(.ttl_ms = 60000));
    CHECK(first.code == 0 && second.code == 0);
    CHECK(first.lease != NULL && second.lease == NULL);
    CHECK(vow_lease_fence(first.lease) > fence);
    /* The old fence has no power over the new run. */
    CHECK_INT_EQ(resolve(&a, "once", fence, VOW_DO_IT_AGAIN, ""), VOW_ENOENT);
    CHECK_INT_EQ(turn_say(&r, &first, "again"), 0);
    CHECK_INT_EQ(turn_hears(&r, &second, "again"), 0);
    turn_drop(&first);
    turn_drop(&second);
    CHECK_UINT_EQ(t.runs, 0);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

TEST(etcd_modes, of_two_who_resolve_at_once_one_has_effect)
{
    enum { ROUNDS = 8 };
    uint64_t fences[ROUNDS];
    struct proc p;
    town_start(&r, NULL);
    proc_hire(&p, PROC(.url = r.k.url, .name = "once", .names = ROUNDS,
                       .mode = VOW_ONCE, .lease_ms = 60000));
    world_open_real(&r.w);
    doubts(&p, fences, ROUNDS);
    seat_open(&r, &a, r.k.url, SEAT_OPTS);
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    for (int i = 0; i < ROUNDS; i++) {
        struct task t = {.r = &r, .text = "again"};
        char text[24];
        (void)snprintf(text, sizeof(text), "once-%d", i);
        vow_name name = vow_name_of(text);
        VOW_AUTO(vow_bytes) by_a = NULL;
        VOW_AUTO(vow_bytes) by_b = NULL;
        CHECK_INT_EQ(vow_bytes_new(r.w.loop, "by a", 4, &by_a), 0);
        CHECK_INT_EQ(vow_bytes_new(r.w.loop, "by b", 4, &by_b), 0);
        VOW_AUTO(vow_future)
        fa = vow_authority_resolve(a.a, &name, fences[i], VOW_IT_HAPPENED, by_a,
                                   60000);
        VOW_AUTO(vow_future)
        fb = vow_authority_resolve(
            b.a, &name, fences[i],
            i % 2 == 0 ? VOW_IT_HAPPENED : VOW_DO_IT_AGAIN, by_b, 60000);
        int ca = vow_loop_run_until(r.w.loop, fa);
        int cb = vow_loop_run_until(r.w.loop, fb);
        CHECK((ca == 0) != (cb == 0));
        CHECK_INT_EQ(ca + cb, VOW_ENOENT);
        const char *want = ca == 0 ? "by a" : i % 2 == 0 ? "by b" : "again";
        CHECK_INT_EQ(task_share(&a, &t, text, want, ONCE(.ttl_ms = 60000)), 0);
        CHECK_INT_EQ(task_share(&b, &t, text, want, ONCE(.ttl_ms = 60000)), 0);
        CHECK_UINT_EQ(t.runs, strcmp(want, "again") == 0 ? 1 : 0);
    }
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* An owner that lives is not in doubt because etcd forgot its lease: it has it
 * again, or it is told that it is lost; and nobody else gets it. */
TEST(etcd_modes, a_lease_ended_by_hand_starts_nothing_a_second_time)
{
    struct turn mine;
    struct task again = {.r = &r, .text = "again"};
    town_open(&r, NULL);
    seat_open(&r, &a, r.k.url,
              VOW_AUTHORITY(.lease_ms = HELD_MS, .pulse_ms = 1000,
                            .recheck_ms = RARELY_MS));
    seat_open(&r, &b, r.k.url, SEAT_OPTS);
    turn_take(&r, &a, &mine, "once", ONCE(.ttl_ms = 60000));
    CHECK(mine.code == 0 && mine.lease != NULL);
    CHECK(etcd_revoke_all(&r.k) > 0);
    int rc =
        task_share(&b, &again, "once", "", ONCE(.flags = VOW_SHARE_NOWAIT));
    CHECK(rc == VOW_EDOUBT || rc == VOW_EBUSY);
    town_pass(&r, 4000);
    CHECK_INT_EQ(again.runs, 0);
    rc = turn_say(&r, &mine, "mine");
    CHECK(rc == 0 || rc == VOW_ELOST);
    CHECK_INT_EQ(task_share(&b, &again, "once", "mine", ONCE(.ttl_ms = 1)),
                 rc == 0 ? 0 : VOW_EDOUBT);
    CHECK_INT_EQ(again.runs, 0);
    turn_drop(&mine);
    seat_close(&r, &b);
    seat_close(&r, &a);
    town_close(&r);
}

/* ---- stores that are closed, and floors ---------------------------------- */

/* What is owned stays until its lease ends; and what is once is in doubt then,
 * for everybody and for as long as nobody says more. */
static void closed_in_doubt(struct rig *rig)
{
    uint64_t lease = rig_short_ms(rig);
    uint64_t once =
        rig_claim(rig, 0, ASK("once", 1, .mode = VOW_ONCE, .lease_ms = lease))
            .epoch;
    uint64_t fenced =
        rig_claim(rig, 0,
                  ASK("fenced", 1, .mode = VOW_FENCED, .lease_ms = lease))
            .epoch;
    rig_close(rig, 0);
    rig_lapse(rig);
    for (size_t i = 1; i < 4; i++) {
        struct rig_answer got = rig_claim(
            rig, i, ASK("once", 1 + i, .mode = i == 1 ? VOW_SHARED : VOW_ONCE));
        CHECK_INT_EQ(got.code, 0);
        CHECK_UINT_EQ(got.status, VOW_STATUS_DOUBT);
        CHECK_UINT_EQ(got.epoch, once);
    }
    struct rig_answer got =
        rig_claim(rig, 1, ASK("fenced", 2, .mode = VOW_FENCED));
    CHECK_UINT_EQ(got.status, VOW_STATUS_OWNED);
    CHECK(got.epoch > fenced);
    /* Its own token, from another process, is not its owner any more: it may
     * be told that it is, but not that it is new. */
    got = rig_claim(rig, 4, ASK("once", 99, .mode = VOW_ONCE));
    CHECK_UINT_EQ(got.status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(rig_commit(rig, 1, COMMIT("once", 1, once + 1), "x").status,
                  VOW_STATUS_LOST);
    CHECK_UINT_EQ(rig_peek(rig, 2, "once").status, VOW_STATUS_DOUBT);
    CHECK_UINT_EQ(
        rig_commit(rig, 1, COMMIT("once", 0, once, .flags = VOW_COMMIT_RESOLVE),
                   "it did")
            .status,
        VOW_STATUS_OWNED);
    CHECK_UINT_EQ(rig_claim(rig, 2, ASK("once", 7, .mode = VOW_ONCE)).status,
                  VOW_STATUS_SETTLED);
}

TEST(etcd_modes, what_a_closed_store_owned_is_in_doubt)
{
    contract_run(&rig_etcd, closed_in_doubt);
}

/* As after a restore: etcd counts from less than what was seen. */
static void lifted(struct rig *rig)
{
    const uint64_t seen = UINT64_C(1) << 40;
    struct rig_answer got =
        rig_claim(rig, 0, ASK("n", 1, .mode = VOW_FENCED, .floor = seen));
    CHECK_UINT_EQ(got.status, VOW_STATUS_OWNED);
    CHECK(got.epoch > seen);
    uint64_t last = got.epoch;
    for (uint64_t i = 1; i < 5; i++) {
        /* Another, who has seen nothing, behind each way to end. */
        if (i % 2 == 1)
            CHECK_UINT_EQ(rig_commit(rig, i - 1,
                                     COMMIT("n", i, last,
                                            .outcome = VOW_OUTCOME_ABANDONED),
                                     NULL)
                              .status,
                          VOW_STATUS_OWNED);
        else {
            CHECK_UINT_EQ(
                rig_commit(rig, i - 1, COMMIT("n", i, last), "x").status,
                VOW_STATUS_OWNED);
            CHECK_UINT_EQ(rig_forget(rig, i, "n", last).status,
                          VOW_STATUS_NONE);
        }
        got = rig_claim(rig, i, ASK("n", i + 1, .mode = VOW_FENCED));
        CHECK_UINT_EQ(got.status, VOW_STATUS_OWNED);
        CHECK(got.epoch > last);
        last = got.epoch;
    }
    /* The pulse of one whose record vanished keeps it. */
    CHECK(etcd_revoke_all(rig->state) > 0);
    vow_hold hold = {
        .name = rig_name("n"), .token = rig_token(5), .epoch = last};
    got = rig_pulse(rig, 4, &hold, LONG_MS);
    CHECK_INT_EQ(got.code, 0);
    CHECK(got.status == VOW_STATUS_OWNED || got.status == VOW_STATUS_LOST);
    CHECK(got.status != VOW_STATUS_OWNED || got.epoch == last);
}

TEST(etcd_modes, fences_that_were_lifted_stay_lifted)
{
    contract_run(&rig_etcd, lifted);
}
