/* SPDX-License-Identifier: MIT */
/* authority_late_test.c - authorities that are closed while their store has
 * steps under way, and takes its time: to answer them, to close, or both. What
 * comes late finds everything in order, nothing more is asked of a store that
 * was told to close, and all who waited are told. */
#include "authority_rig.h"

#include <stddef.h>

enum {
    LONG = 10000, /* the lease: it does not end meanwhile */
    PULSE = 3000,
    QUIET = 1000, /* how long an authority waits for answers, at most */
    LATE = 300    /* how long the store closes */
};

/* When the store answers what is under way, and is closed. */
enum way { AT_ONCE, LATER, WAYS };

struct scene {
    struct stage s;
    struct labor l;
    vow_name name;
    enum way way;
    struct process *p;   /* that is closed */
    vow_store_ops ops;   /* of its store */
    vow_future *f[2];    /* who wait there */
    vow_future *written; /* by who works, while the store closes */
    vow_future *closed;
    int steps; /* that the store had begun when it was told to close */
    bool told;
    bool over;
};

/* ---- a store that closes ------------------------------------------------- */

static struct scene *scene_of(struct flaky *f)
{
    char *process = (char *)f - offsetof(struct process, flaky);
    return ((struct process *)(void *)process)->user;
}

static int steps_begun(const struct flaky *f)
{
    int n = 0;
    for (int i = 0; i < STEPS; i++)
        n += f->begun[i];
    return n;
}

static vow_next answer_late(vow_value v, void *flaky)
{
    struct flaky *f = flaky;
    (void)v;
    for (struct answer *a = f->held; a != NULL; a = a->next)
        a->code = VOW_ECLOSED;
    flaky_release(f);
    return vow_follow(vow_delay(f->loop, LATE / 2));
}

static vow_next close_late(vow_value v, void *flaky)
{
    struct flaky *f = flaky;
    (void)v;
    CHECK_PENDING(scene_of(f)->closed); /* not before its store */
    scene_of(f)->over = true;
    return vow_follow(f->inner->ops->close(f->inner));
}

static vow_future *scene_store_closes(vow_store *store)
{
    struct flaky *f = flaky_of(store);
    struct scene *c = scene_of(f);
    CHECK(!c->told);
    c->told = true;
    c->steps = steps_begun(f);
    if (c->way == AT_ONCE) {
        c->over = true;
        return c->ops.close(store);
    }
    f->closed = true;
    vow_future *half = vow_delay(f->loop, LATE / 2);
    return vow_then_drop(vow_then_drop(half, answer_late, NULL, f), close_late,
                         NULL, f);
}

/* ---- the scene ----------------------------------------------------------- */

/* Two processes; the one that will be closed is the first or the second. */
static void scene_open(struct scene *c, enum way way, size_t who)
{
    *c = (struct scene){.way = way, .name = vow_name_of("work")};
    stage_open_with(&c->s, 2,
                    VOW_AUTHORITY(.lease_ms = LONG, .pulse_ms = PULSE));
    c->l = (struct labor){.loop = c->s.loop};
    c->p = &c->s.at[who];
    c->p->user = c;
    c->ops = c->p->flaky.ops;
    c->p->flaky.ops.close = scene_store_closes;
}

/* From now on answers of this step wait. */
static void hold(struct scene *c, enum step step)
{
    flaky_next(&c->p->flaky, step, FATE_HELD, FLAKY_ALWAYS);
}

static vow_future *ask(struct scene *c, size_t process,
                       const vow_share_opts *opts)
{
    vow_future *f =
        vow_share(c->s.at[process].a, &c->name, labor_work, &c->l, opts);
    world_turn(&c->s.w);
    return f;
}

/* The process is closed, and so is its store before long. */
static void scene_close(struct scene *c)
{
    c->p->gone = true;
    if (c->closed == NULL)
        c->closed = vow_authority_close(c->p->a);
    world_advance_ms(&c->s.w, QUIET + LATE + 100);
    CHECK_CODE(c->closed, 0);
    CHECK(c->over);
    CHECK_INT_EQ(steps_begun(&c->p->flaky), c->steps);
    for (size_t i = 0; i < 2; i++)
        if (c->f[i] != NULL)
            CHECK_CODE(c->f[i], VOW_ECLOSED);
    CHECK(c->p->flaky.held == NULL);
    c->p->a = vow_authority_unref(c->p->a);
    let_go(c->f, 2);
    c->closed = vow_future_unref(c->closed);
    c->written = vow_future_unref(c->written);
    for (size_t i = 0; i < 2; i++)
        stage_leave(&c->s, i);
    labor_free(&c->l);
    stage_close(&c->s);
}

#define SCENE(c, who)                                                          \
    struct scene c;                                                            \
    for (int way = scene_first(&(c), (who)); way < WAYS;                       \
         way = scene_next(&(c), way, (who)))

static int scene_first(struct scene *c, size_t who)
{
    scene_open(c, AT_ONCE, who);
    return AT_ONCE;
}

static int scene_next(struct scene *c, int way, size_t who)
{
    scene_close(c);
    if (++way < WAYS)
        scene_open(c, (enum way)way, who);
    return way;
}

/* ---- what is under way --------------------------------------------------- */

TEST(authority_late, a_name_is_being_claimed)
{
    SCENE(c, 0)
    {
        hold(&c, STEP_CLAIM);
        c.f[0] = ask(&c, 0, VOW_SHARE(.ttl_ms = LONG));
        c.f[1] = ask(&c, 0, VOW_SHARE(.ttl_ms = LONG));
        CHECK(c.p->flaky.held != NULL);
    }
}

TEST(authority_late, somebody_looks_for_a_result)
{
    SCENE(c, 0)
    {
        hold(&c, STEP_PEEK);
        c.f[0] = ask(&c, 0, VOW_SHARE(.flags = VOW_SHARE_PEEK));
        CHECK(c.p->flaky.held != NULL);
    }
}

TEST(authority_late, who_refreshes_looks_for_the_old_result)
{
    SCENE(c, 0)
    {
        hold(&c, STEP_PEEK);
        c.f[0] =
            ask(&c, 0, VOW_SHARE(.ttl_ms = 1000, .flags = VOW_SHARE_REFRESH));
        CHECK(c.p->flaky.held != NULL);
        CHECK_INT_EQ(c.p->flaky.begun[STEP_CLAIM], 0);
        CHECK_INT_EQ(c.l.n, 0);
    }
}

TEST(authority_late, a_pulse_and_the_name_given_back)
{
    SCENE(c, 0)
    {
        hold(&c, STEP_PULSE);
        hold(&c, STEP_COMMIT);
        c.f[0] = ask(&c, 0, VOW_SHARE(.ttl_ms = LONG));
        world_advance_ms(&c.s.w, PULSE + PULSE / 5);
        CHECK_INT_EQ(c.l.n, 1);
        CHECK_INT_EQ(c.p->flaky.begun[STEP_PULSE], 1);
        CHECK(c.p->flaky.held != NULL);
    }
}

TEST(authority_late, a_result_is_being_committed)
{
    SCENE(c, 0)
    {
        hold(&c, STEP_COMMIT);
        c.f[0] = ask(&c, 0, VOW_SHARE(.ttl_ms = LONG));
        labor_end(&c.l, "done");
        world_turn(&c.s.w);
        CHECK(c.p->flaky.held != NULL);
        CHECK_PENDING(c.f[0]);
    }
}

static void hear_nothing(vow_bytes *chunk, void *user)
{
    CHECK(chunk == NULL);
    (void)user;
}

TEST(authority_late, chunks_are_being_read)
{
    SCENE(c, 1)
    {
        const vow_share_opts *o =
            VOW_SHARE(.flags = VOW_SHARE_FOLLOW, .on_chunk = hear_nothing);
        VOW_AUTO(vow_future) worker = ask(&c, 0, o);
        hold(&c, STEP_READ);
        c.f[0] = ask(&c, 1, o);
        CHECK(c.p->flaky.held != NULL);
        CHECK_PENDING(worker);
        labor_end(&c.l, "done");
        worker = vow_future_unref(worker);
    }
}

TEST(authority_late, a_result_is_handed_over_in_pieces)
{
    SCENE(c, 0)
    {
        hold(&c, STEP_WRITE);
        c.f[0] = ask(&c, 0, VOW_SHARE(.flags = VOW_SHARE_FOLLOW));
        vow_bytes *b;
        CHECK_INT_EQ(vow_bytes_new(c.s.loop, "piece", 5, &b), 0);
        c.written = vow_lease_write(c.l.run[0].lease, b);
        vow_bytes_unref(b);
        CHECK(c.p->flaky.held != NULL);
        CHECK_PENDING(c.written);
    }
}

/* ---- what begins while the store closes ---------------------------------- */

TEST(authority_late, a_name_that_a_busy_store_did_not_take_back)
{
    SCENE(c, 0)
    {
        flaky_next(&c.p->flaky, STEP_COMMIT, FATE_BUSY, FLAKY_ALWAYS);
        c.f[0] = ask(&c, 0, VOW_SHARE(.ttl_ms = LONG));
        world_advance_ms(&c.s.w, 50);
        CHECK_INT_EQ(c.l.n, 1); /* the close gives it back, in vain */
    }
}

TEST(authority_late, a_result_that_a_store_did_not_take_yet)
{
    SCENE(c, 0)
    {
        flaky_next(&c.p->flaky, STEP_COMMIT, FATE_REFUSED, FLAKY_ALWAYS);
        c.f[0] = ask(&c, 0, VOW_SHARE(.ttl_ms = LONG));
        labor_end(&c.l, "done");
        world_turn(&c.s.w);
        CHECK_INT_EQ(c.p->flaky.begun[STEP_COMMIT], 1);
        CHECK_PENDING(c.f[0]);
    }
}

static vow_next write_now(vow_value v, void *scene)
{
    struct scene *c = scene;
    (void)v;
    CHECK(c->told && !c->over);
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(c->s.loop, "piece", 5, &b), 0);
    c->written = vow_lease_write(c->l.run[0].lease, b);
    vow_bytes_unref(b);
    (void)vow_error_of(c->written);
    return vow_ok(vow_nothing());
}

/* A worker that goes on writes to a store that is no more. */
TEST(authority_late, who_writes_while_the_store_closes)
{
    struct scene c;
    scene_open(&c, LATER, 0);
    c.l.stubborn = true;
    hold(&c, STEP_COMMIT);
    c.f[0] = ask(&c, 0, VOW_SHARE(.flags = VOW_SHARE_FOLLOW));
    CHECK_INT_EQ(c.l.n, 1);
    VOW_AUTO(vow_future)
    f = vow_then_drop(vow_delay(c.s.loop, QUIET + LATE / 4), write_now, NULL,
                      &c);
    c.closed = vow_authority_close(c.p->a);
    world_advance_ms(&c.s.w, QUIET + LATE / 2 - 1);
    CHECK_CODE(f, 0);
    CHECK(c.written != NULL);
    labor_end_of(&c.l, 0, "for nobody");
    f = vow_future_unref(f);
    scene_close(&c);
}
