/* SPDX-License-Identifier: MIT */
/* sqlite_pool_rules_test.c - pools in a folder are held to the rules.
 *
 * Random steps (rules_pool_twins.h) go to three instances in one folder. Behind
 * each step the rows of the pool are compared: the counts, the rate log, the
 * permits and the order of the queue.
 * LIMITS  At most RULES_REAP_MAX leases end together: the store may choose
 *         which permits go first.
 */
#include "folder.h"
#include "rules_pool_twins.h"
#include "store/file/file_pool.h"
#include "world.h"

enum { STEPS = 6000 };

static int64_t clock_us;

struct file_side {
    struct twins twins;
    struct folder folder;
    struct instance {
        struct file_side *side;
        unsigned number;
        struct world world;
        vow_store *store;
    } instances[TWINS_INSTANCES];
};

static int64_t read_clock(void)
{
    return clock_us;
}

static struct vow__file *file_at(struct file_side *f, unsigned inst)
{
    return vow__file_of(f->instances[inst].store);
}

/* ---- steps --------------------------------------------------------------- */

static int load_step(struct vow__file *s, void *arg)
{
    (void)arg;
    return vow__file_epoch_load(s);
}

static uint64_t set_clock(void *user, uint64_t now_us)
{
    struct file_side *f = user;
    clock_us = (int64_t)now_us;
    CHECK_INT_EQ(vow__file_step(file_at(f, 0), VOW__FILE_READ, load_step, NULL),
                 0);
    return vow__file_epoch_number(file_at(f, 0));
}

struct answer {
    int code;
    vow_pool_permit permits[TWINS_BATCH];
    vow_pool_info info;
};

static void on_permits(int code, const vow_pool_permit *p, size_t n, void *user)
{
    struct answer *a = user;
    a->code = code;
    CHECK(n <= TWINS_BATCH);
    if (n > 0)
        memcpy(a->permits, p, n * sizeof(*p));
}

static void on_pool(int code, const vow_pool_info *p, size_t n, void *user)
{
    struct answer *a = user;
    a->code = code;
    if (n > 0)
        a->info = *p;
}

static int acquire(void *user, unsigned inst, const vow_permit_request *q,
                   vow_pool_permit *ret)
{
    vow_store *s = ((struct file_side *)user)->instances[inst].store;
    struct answer a;
    s->ops->acquire(s, q, on_permits, &a);
    *ret = a.permits[0];
    return a.code;
}

static void release(void *user, unsigned inst, const vow_permit_hold *hold,
                    vow_pool_permit *ret)
{
    vow_store *s = ((struct file_side *)user)->instances[inst].store;
    struct answer a;
    s->ops->release(s, hold, on_permits, &a);
    CHECK_INT_EQ(a.code, 0);
    *ret = a.permits[0];
}

static void renew(void *user, unsigned inst, const vow_permit_hold *holds,
                  size_t n, uint64_t lease_ms, vow_pool_permit *ret)
{
    vow_store *s = ((struct file_side *)user)->instances[inst].store;
    struct answer a;
    s->ops->renew(s, holds, n, lease_ms, on_permits, &a);
    CHECK_INT_EQ(a.code, 0);
    memcpy(ret, a.permits, n * sizeof(*ret));
}

static bool limit(void *user, const struct twins_pool *p, bool law,
                  const vow_pool_limits *limits, vow_pool_info *ret)
{
    vow_store *s = ((struct file_side *)user)->instances[0].store;
    struct answer a;
    s->ops->limit(s, law ? &p->law_name : &p->name, limits, "law", on_pool, &a);
    CHECK(a.code == 0 || (a.code == VOW_ENOENT && limits == NULL));
    *ret = a.info;
    return a.code == 0;
}

static void on_permit(const vow_token *token, void *user)
{
    struct instance *i = user;
    twins_told(&i->side->twins, i->number, token);
}

static void take_told(void *user)
{
    struct file_side *f = user;
    for (unsigned i = 0; i < TWINS_INSTANCES; i++) {
        uv_handle_t *socket = (uv_handle_t *)file_at(f, i)->poll;
        uv_ref(socket); /* or the loop has nothing to do */
        (void)uv_run(vow_loop_uv(f->instances[i].world.loop), UV_RUN_NOWAIT);
        uv_unref(socket);
    }
}

/* ---- the file ------------------------------------------------------------ */

static void same_log(const struct twins_pool *p,
                     const struct vow__file_pool *row)
{
    const struct rules_rate *want = &p->kit.pool.rate;
    const struct rules_rate *got = &row->rule.rate;
    uint32_t n = 0; /* starts that count are the same; others may be gone */
    for (uint32_t i = 0; i < want->n; i++) {
        const struct rules_start *e = &want->starts[i];
        if (e->at_us + p->limits.window_us < p->kit.now_us)
            continue;
        uint32_t at = got->n - (want->n - i);
        CHECK(want->n - i <= got->n);
        CHECK_UINT_EQ(got->starts[at].at_us, e->at_us);
        CHECK_UINT_EQ(got->starts[at].weight, e->weight);
        n++;
    }
    if (n > 0)
        CHECK_UINT_EQ(got->began_us, want->began_us);
}

static uint64_t place_of(const struct rules_permit *permits, size_t n,
                         const struct rules_permit *t)
{
    uint64_t before = 0;
    for (size_t i = 0; i < n; i++)
        before += !permits[i].held && permits[i].order < t->order;
    return before;
}

/* A step that only reads leaves the lease as it is: then the row is right. */
static void same_permit(struct twins_pool *p, struct rules_permit *want,
                        const struct rules_permit *got)
{
    CHECK_UINT_EQ(got->held, want->held);
    CHECK_UINT_EQ(got->open, want->open);
    CHECK_UINT_EQ(got->fence, want->fence);
    CHECK_UINT_EQ(got->weight, want->weight);
    if (!want->held && got->end_us < want->end_us) {
        CHECK(2 * (got->end_us - p->kit.now_us) >=
              want->end_us - p->kit.now_us);
        want->end_us = got->end_us;
    }
    CHECK_UINT_EQ(got->end_us, want->end_us);
}

static int kept_step(struct vow__file *s, void *arg)
{
    static struct rules_permit rows[KIT_PERMITS];
    static struct vow__file_pool row;
    static struct vow__file_pool_use u;
    struct twins_pool *p = arg;
    const struct rules_pool *want = &p->kit.pool;
    CHECK_INT_EQ(vow__file_pool_find(s, &p->name, &row), 0);
    if (!row.there) {
        CHECK_UINT_EQ(p->kit.n, 0);
        CHECK_UINT_EQ(vow__rules_pool_used(want, p->kit.now_us), 0);
        return 0;
    }
    CHECK_UINT_EQ(row.rule.held, want->held);
    CHECK_UINT_EQ(row.rule.holders, want->holders);
    CHECK_UINT_EQ(row.rule.open, want->open);
    CHECK_UINT_EQ(row.rule.waiting, want->waiting);
    same_log(p, &row);
    vow__file_pool_use(&u, s, &row, NULL);
    for (size_t i = 0; i < p->kit.n; i++) {
        CHECK_INT_EQ(vow__file_permit_find(&u, &p->kit.permits[i].token), 0);
        rows[i] = u.mine.rule;
        same_permit(p, &p->kit.permits[i], &rows[i]);
        CHECK(row.next_us <= u.mine.due_us);
        CHECK(u.mine.due_us <= (int64_t)rows[i].end_us);
    }
    for (size_t i = 0; i < p->kit.n; i++)
        if (!rows[i].held)
            CHECK_UINT_EQ(
                place_of(rows, p->kit.n, &rows[i]),
                place_of(p->kit.permits, p->kit.n, &p->kit.permits[i]));
    return 0;
}

static void check_kept(void *user, struct twins_pool *p)
{
    struct file_side *f = user;
    CHECK_INT_EQ(vow__file_step(file_at(f, 0), VOW__FILE_READ, kept_step, p),
                 0);
}

/* ---- the test ------------------------------------------------------------ */

static void instance_open(struct file_side *f, unsigned number)
{
    struct instance *i = &f->instances[number];
    i->side = f;
    i->number = number;
    world_open_real(&i->world);
    VOW_AUTO(vow_future)
    opened = vow_store_sqlite_open(i->world.loop, f->folder.path, NULL);
    CHECK_UINT_EQ(vow_state_of(opened), VOW_FULFILLED);
    i->store = vow_as_ptr(vow_get(opened));
    i->store->ops->listen(
        i->store, &(const vow_store_events){.on_permit = on_permit, .user = i});
    file_at(f, number)->clock_us = read_clock;
    file_at(f, number)->swept = true; /* nothing is swept */
    CHECK_INT_EQ(
        vow__file_step(file_at(f, number), VOW__FILE_READ, load_step, NULL), 0);
    CHECK_INT_EQ(vow__file_join(file_at(f, number)), 0);
}

static void instance_close(struct instance *i)
{
    VOW_AUTO(vow_future) closed = i->store->ops->close(i->store);
    CHECK_INT_EQ(vow_loop_run_until(i->world.loop, closed), 0);
    closed = vow_future_unref(closed);
    world_close(&i->world);
}

TEST(sqlite_pool_rules, every_answer_is_that_of_the_rules)
{
    static struct file_side f;
    const struct twins_side side = {.user = &f,
                                    .clock = set_clock,
                                    .acquire = acquire,
                                    .release = release,
                                    .renew = renew,
                                    .limit = limit,
                                    .tell = take_told,
                                    .kept = check_kept,
                                    .early = true,
                                    .moves = true,
                                    .crowd_stays = true};
    clock_us = TWINS_START_US;
    folder_open(&f.folder);
    for (unsigned i = 0; i < TWINS_INSTANCES; i++)
        instance_open(&f, i);
    twins_open(&f.twins, &side);
    twins_run(&f.twins, STEPS);
    for (unsigned i = 0; i < TWINS_INSTANCES; i++)
        instance_close(&f.instances[i]);
    folder_close(&f.folder);
}
