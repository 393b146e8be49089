/* SPDX-License-Identifier: MIT */
/* authority_promise_test.c - what is promised to all who ask for a name: how
 * often the work is done, what each of them gets, what is refused. */
#include "authority_rig.h"

enum { MANY = 10000 };

static vow_future *at_once(vow_lease *lease, void *arg)
{
    struct labor *l = arg;
    (void)lease;
    l->n++;
    return vow_resolved(l->loop, text_value(l->loop, "at once"));
}

TEST(authority_promise, ten_thousand_askers_of_one_name_have_one_run)
{
    static vow_future *f[MANY];
    struct stage s;
    stage_open(&s, 3);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("one");
    for (int i = 0; i < MANY; i++)
        f[i] = vow_share(s.at[i % 3].a, &name, labor_work, &l, NULL);
    world_turn(&s.w);
    CHECK_INT_EQ(l.n, 1);
    world_advance_ms(&s.w, 5 * LEASE);
    labor_end(&l, "one");
    world_turn(&s.w);
    for (int i = 0; i < MANY; i++)
        CHECK_TEXT(f[i], "one");
    for (size_t i = 0; i < 3; i++) {
        CHECK_UINT_EQ(stage_stats(&s, i).waiting, 0);
        CHECK_UINT_EQ(stage_stats(&s, i).names, 0);
    }
    CHECK_INT_EQ(s.at[0].flaky.begun[STEP_CLAIM], 1); /* one per process */
    CHECK_INT_EQ(l.n, 1);
    let_go(f, MANY);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_promise, ten_thousand_names_at_once_are_each_done_once)
{
    static vow_future *f[MANY][2];
    static struct labor l[MANY];
    struct stage s;
    stage_open(&s, 2);
    for (int i = 0; i < MANY; i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%d", i);
        vow_name name = vow_name_of(text);
        l[i] = (struct labor){.loop = s.loop};
        for (int j = 0; j < 2; j++)
            f[i][j] = vow_share(s.at[j].a, &name, labor_work, &l[i], NULL);
    }
    world_advance_ms(&s.w, 2 * LEASE);
    CHECK_UINT_EQ(stage_stats(&s, 0).running + stage_stats(&s, 1).running,
                  MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK_INT_EQ(l[i].n, 1);
        labor_end(&l[i], i % 2 == 0 ? "even" : "odd");
    }
    world_advance_ms(&s.w, 1); /* more than one turn */
    for (int i = 0; i < MANY; i++) {
        CHECK_TEXT(f[i][0], i % 2 == 0 ? "even" : "odd");
        CHECK_TEXT(f[i][1], i % 2 == 0 ? "even" : "odd");
        CHECK_INT_EQ(l[i].n, 1);
        let_go(f[i], 2);
        labor_free(&l[i]);
    }
    CHECK_UINT_EQ(stage_stats(&s, 0).names + stage_stats(&s, 1).names, 0);
    stage_close(&s);
}

TEST(authority_promise, names_beyond_the_limit_are_refused_until_there_is_room)
{
    struct stage s;
    stage_open_with(&s, 1, VOW_AUTHORITY(.names_max = 2));
    struct labor l[3] = {{.loop = s.loop}, {.loop = s.loop}, {.loop = s.loop}};
    vow_name name[3] = {vow_name_of("a"), vow_name_of("b"), vow_name_of("c")};
    vow_future *f[5];
    for (int i = 0; i < 3; i++)
        f[i] = vow_share(s.at[0].a, &name[i], labor_work, &l[i], NULL);
    f[3] = vow_share(s.at[0].a, &name[0], labor_work, &l[0], NULL);
    world_turn(&s.w);
    CHECK_CODE(f[2], VOW_EQUEUEFULL);
    CHECK_INT_EQ(l[2].n, 0);
    CHECK_PENDING(f[3]); /* no new name */
    labor_end(&l[0], "a");
    world_turn(&s.w);
    CHECK_TEXT(f[3], "a");
    f[4] = vow_share(s.at[0].a, &name[2], labor_work, &l[2], NULL);
    world_turn(&s.w);
    CHECK_INT_EQ(l[2].n, 1);
    labor_end(&l[1], "b");
    labor_end(&l[2], "c");
    world_turn(&s.w);
    CHECK_TEXT(f[4], "c");
    let_go(f, 5);
    for (int i = 0; i < 3; i++)
        labor_free(&l[i]);
    stage_close(&s);
}

/* ---- what a work function may give back ---------------------------------- */

static int destroyed;
static void destroy(void *ptr)
{
    (void)ptr;
    destroyed++;
}

struct giver {
    vow_loop *loop;
    vow_loop *other;
    int what;
    int runs;
};

enum {
    GIVE_NULL,
    GIVE_FOREIGN,
    GIVE_INT,
    GIVE_REAL,
    GIVE_PTR,
    GIVE_OWN,
    GIVE_LIST,
    GIVE_BIG,
    GIVE_REJECTED,
    GIVE_BROKEN,
    GIVE_WRONG, /* these are all failures; from here on they are none */
    GIVE_NOTHING = GIVE_WRONG,
    GIVE_EMPTY,
    GIVE_FITS,
    GIVE_ALL
};

static vow_value zeros(vow_loop *loop, size_t size)
{
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(loop, NULL, size, &b), 0);
    return vow_bytes_value(b);
}

static vow_value give_value(const struct giver *g)
{
    vow_value list;
    switch (g->what) {
    case GIVE_INT:
        return vow_int(7);
    case GIVE_REAL:
        return vow_real(0.5);
    case GIVE_PTR:
        return vow_ptr(&destroyed);
    case GIVE_OWN:
        return vow_own(&destroyed, destroy);
    case GIVE_LIST:
        CHECK_INT_EQ(vow_list_new(g->loop, NULL, 0, &list), 0);
        return list;
    case GIVE_BIG:
        return zeros(g->loop, 101);
    case GIVE_EMPTY:
        return zeros(g->loop, 0);
    case GIVE_FITS:
        return zeros(g->loop, 100);
    default:
        return vow_nothing();
    }
}

static vow_future *give(vow_lease *lease, void *arg)
{
    struct giver *g = arg;
    vow_deferred *end;
    (void)lease;
    g->runs++;
    switch (g->what) {
    case GIVE_NULL:
        return NULL;
    case GIVE_FOREIGN:
        return vow_resolved(g->other, vow_nothing());
    case GIVE_REJECTED:
        return vow_refused(g->loop, VOW_EIO, "no luck");
    case GIVE_BROKEN: {
        vow_future *f = vow_promise(g->loop, &end);
        vow_deferred_unref(end);
        return f;
    }
    default:
        return vow_resolved(g->loop, give_value(g));
    }
}

static int give_code(int what)
{
    return what == GIVE_BIG        ? VOW_E2BIG
           : what == GIVE_REJECTED ? VOW_EIO
           : what == GIVE_BROKEN   ? VOW_EBROKEN
           : what < GIVE_WRONG     ? VOW_EINVAL
                                   : 0;
}

static void check_gift(const struct giver *g, vow_future *f)
{
    CHECK_CODE(f, give_code(g->what));
    if (g->what < GIVE_WRONG)
        return;
    vow_bytes *b = vow_as_bytes(vow_get(f));
    CHECK((b == NULL) == (g->what == GIVE_NOTHING));
    if (b != NULL)
        CHECK_UINT_EQ(vow_bytes_size(b), g->what == GIVE_FITS ? 100 : 0);
}

TEST(authority_promise, whatever_the_work_gives_back_all_get_one_answer)
{
    struct world other;
    world_open(&other);
    for (int what = 0; what < GIVE_ALL; what++) {
        struct stage s;
        stage_open_with(&s, 2, VOW_AUTHORITY(.value_max = 100));
        struct giver g = {s.loop, other.loop, what, 0};
        struct labor next = {.loop = s.loop};
        vow_name name = vow_name_of("gift");
        destroyed = 0;
        vow_future *f[6];
        for (int i = 0; i < 4; i++)
            f[i] = vow_share(s.at[i % 2].a, &name, give, &g, NULL);
        world_turn(&s.w);
        for (int i = 0; i < 4; i++)
            check_gift(&g, f[i]);
        CHECK_INT_EQ(g.runs, 1);
        CHECK_INT_EQ(destroyed, what == GIVE_OWN);
        for (int i = 4; i < 6; i++) { /* the name is free again */
            f[i] = vow_share(s.at[i % 2].a, &name, labor_work, &next, NULL);
            world_turn(&s.w);
            labor_end(&next, "next");
            world_turn(&s.w);
            CHECK_TEXT(f[i], "next");
        }
        let_go(f, 6);
        labor_free(&next);
        stage_close(&s);
    }
    world_close(&other);
}

TEST(authority_promise, a_kept_result_of_nothing_is_a_result)
{
    struct stage s;
    stage_open(&s, 2);
    struct giver g = {s.loop, NULL, GIVE_NOTHING, 0};
    vow_name name = vow_name_of("nothing");
    for (int i = 0; i < 4; i++) {
        VOW_AUTO(vow_future)
        f = vow_share(s.at[i % 2].a, &name, give, &g,
                      VOW_SHARE(.ttl_ms = 60000));
        world_turn(&s.w);
        CHECK_CODE(f, 0);
        CHECK(vow_kind_of(vow_get(f)) == VOW_NOTHING);
    }
    CHECK_INT_EQ(g.runs, 1);
    stage_close(&s);
}

TEST(authority_promise, what_makes_no_sense_is_refused_and_starts_nothing)
{
    struct stage s;
    stage_open(&s, 1);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("sense");
    const vow_share_opts bad[] = {
        *VOW_SHARE(.flags = 1U << 30), *VOW_SHARE(.mode = 9),
        *VOW_SHARE(.store_down = 9),   {.size = 3},
        *VOW_SHARE(.early = -1),       *VOW_SHARE(.lease_ms = 5, .pulse_ms = 5),
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        VOW_AUTO(vow_future)
        f = vow_share(s.at[0].a, &name, labor_work, &l, &bad[i]);
        world_turn(&s.w);
        CHECK_CODE(f, VOW_EINVAL);
    }
    VOW_AUTO(vow_future) f = vow_share(s.at[0].a, &name, NULL, NULL, NULL);
    world_turn(&s.w);
    CHECK_CODE(f, VOW_EINVAL);
    f = vow_future_unref(f);
    CHECK_INT_EQ(l.n, 0);
    CHECK_UINT_EQ(stage_stats(&s, 0).names, 0);
    stage_close(&s);
}

/* ---- how one asks -------------------------------------------------------- */

TEST(authority_promise, force_waits_for_a_run_that_goes_on)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("force");
    vow_share_info info[3] = {{0}, {0}, {0}};
    vow_future *f[3];
    f[0] = vow_share(s.at[0].a, &name, labor_work, &l,
                     VOW_SHARE(.ttl_ms = 60000, .info = &info[0]));
    world_advance_ms(&s.w, 70);
    for (int i = 1; i < 3; i++)
        f[i] = vow_share(s.at[i - 1].a, &name, labor_work, &l,
                         VOW_SHARE(.ttl_ms = 60000, .info = &info[i],
                                   .flags = VOW_SHARE_FORCE));
    world_advance_ms(&s.w, 70);
    labor_end(&l, "first");
    world_turn(&s.w);
    for (int i = 0; i < 3; i++) {
        CHECK_TEXT(f[i], "first");
        CHECK_UINT_EQ(info[i].role, i == 0 ? VOW_ROLE_RAN : VOW_ROLE_JOINED);
        CHECK_UINT_EQ(info[i].fence, vow_lease_fence(l.run[0].lease));
        CHECK(strchr(info[i].runner, ':') != NULL);
        CHECK_UINT_EQ(info[i].attempt, 1);
    }
    CHECK_INT_EQ(l.n, 1);
    let_go(f, 3);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_promise, two_who_force_at_once_share_one_new_run)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("force");
    const vow_share_opts *kept = VOW_SHARE(.ttl_ms = 60000);
    const vow_share_opts *force =
        VOW_SHARE(.ttl_ms = 60000, .flags = VOW_SHARE_FORCE);
    vow_future *f[6];
    f[0] = vow_share(s.at[0].a, &name, labor_work, &l, kept);
    world_turn(&s.w);
    labor_end(&l, "old");
    world_turn(&s.w);
    for (int i = 1; i < 5; i++)
        f[i] = vow_share(s.at[i % 2].a, &name, labor_work, &l, force);
    world_turn(&s.w);
    CHECK_INT_EQ(l.n, 2);
    labor_end(&l, "new");
    world_turn(&s.w);
    for (int i = 1; i < 5; i++)
        CHECK_TEXT(f[i], "new");
    f[5] = vow_share(s.at[1].a, &name, labor_work, &l, kept);
    world_turn(&s.w);
    CHECK_TEXT(f[5], "new");
    CHECK_INT_EQ(l.n, 2);
    let_go(f, 6);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_promise, who_only_looks_never_works_and_never_waits)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("look");
    const vow_share_opts *look = VOW_SHARE(.flags = VOW_SHARE_PEEK);
    const vow_share_opts *nowait =
        VOW_SHARE(.flags = VOW_SHARE_NOWAIT, .ttl_ms = 500);
    for (size_t i = 0; i < 2; i++) {
        VOW_AUTO(vow_future)
        p = vow_share(s.at[i].a, &name, labor_work, &l, look);
        world_turn(&s.w);
        CHECK_CODE(p, VOW_ENOENT);
    }
    VOW_AUTO(vow_future)
    f = vow_share(s.at[0].a, &name, labor_work, &l, nowait);
    world_turn(&s.w);
    CHECK_INT_EQ(l.n, 1); /* nobody did it */
    for (size_t i = 0; i < 2; i++) {
        VOW_AUTO(vow_future)
        p = vow_share(s.at[i].a, &name, labor_work, &l, look);
        VOW_AUTO(vow_future)
        n = vow_share(s.at[i].a, &name, labor_work, &l, nowait);
        world_turn(&s.w);
        CHECK_CODE(p, VOW_ENOENT);
        CHECK_CODE(n, VOW_EBUSY);
    }
    CHECK_UINT_EQ(stage_stats(&s, 1).names, 0);
    labor_end(&l, "there");
    world_turn(&s.w);
    for (size_t i = 0; i < 2; i++) {
        VOW_AUTO(vow_future)
        p = vow_share(s.at[i].a, &name, labor_work, &l, look);
        VOW_AUTO(vow_future)
        n = vow_share(s.at[i].a, &name, labor_work, &l, nowait);
        world_turn(&s.w);
        CHECK_TEXT(p, "there");
        CHECK_TEXT(n, "there");
    }
    world_advance_ms(&s.w, 600);
    VOW_AUTO(vow_future) p = vow_share(s.at[1].a, &name, NULL, NULL, look);
    world_turn(&s.w);
    CHECK_CODE(p, VOW_ENOENT);
    CHECK_INT_EQ(l.n, 1);
    p = vow_future_unref(p);
    f = vow_future_unref(f);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_promise, a_kept_failure_is_seen_by_those_who_look_and_is_forced)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("failure");
    const vow_share_opts *o = VOW_SHARE(.fail_ttl_ms = 60000);
    vow_future *f[4];
    f[0] = vow_share(s.at[0].a, &name, labor_work, &l, o);
    world_turn(&s.w);
    labor_fail(&l, VOW_EIO, "broken pipe");
    world_turn(&s.w);
    f[1] = vow_share(s.at[1].a, &name, NULL, NULL,
                     VOW_SHARE(.flags = VOW_SHARE_PEEK));
    f[2] = vow_share(s.at[1].a, &name, labor_work, &l, o);
    world_turn(&s.w);
    for (int i = 0; i < 3; i++) {
        CHECK_CODE(f[i], VOW_EIO);
        CHECK_STR_EQ(vow_error_message(vow_error_of(f[i])), "broken pipe");
    }
    CHECK_INT_EQ(l.n, 1);
    f[3] = vow_share(s.at[1].a, &name, labor_work, &l,
                     VOW_SHARE(.flags = VOW_SHARE_FORCE));
    world_turn(&s.w);
    labor_end(&l, "mended");
    world_turn(&s.w);
    CHECK_TEXT(f[3], "mended");
    let_go(f, 4);
    labor_free(&l);
    stage_close(&s);
}

/* ---- who does not want to join ------------------------------------------- */

struct picky {
    int asked;
    bool yes;
    vow_share_info seen;
};

static bool pick(const vow_share_info *running, void *user)
{
    struct picky *p = user;
    if (p->asked++ == 0)
        p->seen = *running;
    return p->yes;
}

TEST(authority_promise, who_does_not_join_gets_the_run_after_it_even_if_kept)
{
    for (size_t where = 0; where < 2; where++) {
        struct stage s;
        stage_open(&s, 2);
        struct labor l = {.loop = s.loop};
        struct picky no = {0, false, {0}}, yes = {0, true, {0}};
        vow_name name = vow_name_of("picky");
        vow_future *f[4];
        f[0] = vow_share(s.at[0].a, &name, labor_work, &l,
                         VOW_SHARE(.ttl_ms = 60000));
        world_advance_ms(&s.w, 80);
        const vow_share_opts *o =
            VOW_SHARE(.ttl_ms = 60000, .join = pick, .user = &no);
        f[1] = vow_share(s.at[where].a, &name, labor_work, &l, o);
        f[2] = vow_share(s.at[where].a, &name, labor_work, &l, o);
        f[3] =
            vow_share(s.at[where].a, &name, labor_work, &l,
                      VOW_SHARE(.ttl_ms = 60000, .join = pick, .user = &yes));
        world_turn(&s.w);
        CHECK(no.asked >= 1 && yes.asked >= 1);
        CHECK_UINT_EQ(no.seen.fence, vow_lease_fence(l.run[0].lease));
        CHECK_UINT_EQ(no.seen.age_ms, 80);
        CHECK(strchr(no.seen.runner, ':') != NULL);
        labor_end(&l, "first");
        world_advance_ms(&s.w, 10);
        CHECK_TEXT(f[0], "first");
        CHECK_TEXT(f[3], "first");
        CHECK_PENDING(f[1]);
        CHECK_INT_EQ(l.n, 2); /* one for both */
        labor_end(&l, "second");
        world_advance_ms(&s.w, 10);
        CHECK_TEXT(f[1], "second");
        CHECK_TEXT(f[2], "second");
        CHECK_INT_EQ(l.n, 2);
        let_go(f, 4);
        labor_free(&l);
        stage_close(&s);
    }
}

TEST(authority_promise, who_does_not_join_outlives_the_failure_of_that_run)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    struct picky no = {0, false, {0}};
    vow_name name = vow_name_of("picky");
    const vow_share_opts *o =
        VOW_SHARE(.fail_ttl_ms = 60000, .join = pick, .user = &no);
    vow_future *f[3];
    for (int i = 0; i < 3; i++) {
        f[i] = vow_share(s.at[i % 2].a, &name, labor_work, &l, o);
        world_turn(&s.w);
    }
    labor_fail(&l, VOW_EIO, "failed");
    world_advance_ms(&s.w, 10);
    CHECK_CODE(f[0], VOW_EIO);
    for (int i = 1; i < 3; i++) { /* whoever is next, the last is picky again */
        CHECK_INT_EQ(l.n, i + 1);
        labor_end(&l, "good");
        world_advance_ms(&s.w, 10);
    }
    CHECK_TEXT(f[1], "good");
    CHECK_TEXT(f[2], "good");
    let_go(f, 3);
    labor_free(&l);
    stage_close(&s);
}

/* ---- results ------------------------------------------------------------- */

TEST(authority_promise, the_worker_decides_how_long_its_result_is_kept)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("kept");
    const vow_share_opts *look = VOW_SHARE(.flags = VOW_SHARE_PEEK);
    vow_share_info info = {0};
    VOW_AUTO(vow_future)
    f = vow_share(s.at[0].a, &name, labor_work, &l, VOW_SHARE(.ttl_ms = 100));
    world_turn(&s.w);
    vow_lease_keep(l.run[0].lease, 5000);
    labor_end(&l, "long");
    world_advance_ms(&s.w, 4900);
    VOW_AUTO(vow_future)
    g = vow_share(s.at[1].a, &name, NULL, NULL,
                  VOW_SHARE(.flags = VOW_SHARE_PEEK, .info = &info));
    world_turn(&s.w);
    CHECK_TEXT(g, "long");
    CHECK_UINT_EQ(info.role, VOW_ROLE_CACHED);
    CHECK_UINT_EQ(info.age_ms, 4900);
    world_advance_ms(&s.w, 200);
    vow_future_unref(g);
    g = vow_share(s.at[1].a, &name, NULL, NULL, look);
    world_turn(&s.w);
    CHECK_CODE(g, VOW_ENOENT);
    g = vow_future_unref(g);
    f = vow_future_unref(f);
    labor_free(&l);
    stage_close(&s);
}

TEST(authority_promise, forget_is_refused_while_the_work_runs)
{
    struct stage s;
    stage_open(&s, 2);
    struct labor l = {.loop = s.loop};
    vow_name name = vow_name_of("forget");
    VOW_AUTO(vow_future)
    f = vow_share(s.at[0].a, &name, labor_work, &l, VOW_SHARE(.ttl_ms = 9000));
    world_turn(&s.w);
    for (size_t i = 0; i < 2; i++) {
        VOW_AUTO(vow_future) g = vow_authority_forget(s.at[i].a, &name, 0);
        world_turn(&s.w);
        CHECK_CODE(g, VOW_EBUSY);
    }
    labor_end(&l, "result");
    world_turn(&s.w);
    VOW_AUTO(vow_future) g = vow_authority_forget(s.at[1].a, &name, 0);
    world_turn(&s.w);
    CHECK_INT_EQ(vow_as_int(vow_get(g)), 1);
    g = vow_future_unref(g);
    g = vow_share(s.at[0].a, &name, at_once, &l, NULL);
    world_turn(&s.w);
    CHECK_TEXT(g, "at once"); /* no copy of it was kept here */
    g = vow_future_unref(g);
    f = vow_future_unref(f);
    l.n = 1;
    labor_free(&l);
    stage_close(&s);
}
