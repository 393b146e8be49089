/* SPDX-License-Identifier: MIT */
/* share_test.c - the authority itself, in several processes, under all that can
 * go wrong.
 *
 * Askers come at random times, some leave, work takes longer or shorter than a
 * lease, some of it fails. The store is watched as everywhere (sim_names.c).
 * Here is looked at what the library does with it:
 *   every asker who stays is settled in the end, once,
 *   with a result that was accepted (VOW_SHARED: or made in its own process),
 *   all of one fence with the same,
 *   a lease says that it is over before the store gives it to another,
 *   in VOW_ONCE nobody's function is called twice,
 *   and nothing is left when all is closed.
 */
#include "sim_plan.h"

#include <string.h>

enum { LEASE_MS = 1000, ASKERS = 24, RUNS = 128, NAMES = 2, DEEDS = 6 };
static const uint64_t BY_HAND = UINT32_MAX; /* a result of vow_..._resolve() */

struct scene;

/* One call of somebody's function. */
struct run {
    struct sim_node *node;
    vow_lease *lease;
    vow_deferred *end;
    vow_call call;
    uint32_t name;
    uint32_t number;
    bool accepted;
    bool fails;
    bool over;
    bool stubborn; /* it does not hear of a cancel */
    bool alone;    /* the store does not know of it */
};

struct asker {
    struct sim_event comes, leaves;
    struct scene *scene;
    struct sim_node *node;
    vow_future *future;
    vow_watch watch;
    uint32_t number, name;
    uint32_t starts; /* of its function */
    uint64_t came_ns;
    uint64_t promised_ns; /* a result was committed while its process waited */
    uint64_t promised;    /* `first` of the run; 0: everybody finds it */
    uint32_t flags;       /* VOW_SHARE_... */
    uint64_t deadline_ms;
    bool begun, gone, settled;
    int code;
    struct {
        uint64_t fence;
        uint32_t run;
    } got;
    vow_share_info info;
};

/* Somebody looks after the names. */
struct deed {
    struct sim_event event;
    struct scene *scene;
    vow_future *future;
};

struct scene {
    struct sim_plan plan;
    struct sim sim;
    vow_authority *at[SIM_NODES];
    vow_name names[NAMES];
    uint32_t n_names;
    struct asker askers[ASKERS];
    uint32_t n_askers;
    struct run runs[RUNS];
    uint32_t n_runs;
    vow_share_opts opts;
    struct deed deeds[DEEDS];
    bool stops, again, by_hand; /* that somebody has decided */
    uint64_t work_ms;           /* at most */
    uint32_t fails;             /* of 1000 runs */
    bool stubborn;
};

static vow_future *work(vow_lease *lease, void *arg);
static void check_needed(struct scene *t, const struct run *r);
static void work_ends(void *run);
static void on_cancel(vow_error *why, void *run);
static void on_settled(vow_future *f, void *asker);

static struct scene *scene_of(struct sim *s)
{
    return VOW__OUTER(s, struct scene, sim);
}

/* ---- work --------------------------------------------------------------- */

static vow_future *work(vow_lease *lease, void *arg)
{
    struct asker *a = arg;
    struct scene *t = a->scene;
    struct sim *s = &t->sim;
    if (a->node->dead)
        return vow_refused(a->node->loop, VOW_ECLOSED, NULL);
    SIM_CHECK(s, t->n_runs < RUNS);
    struct run *r = &t->runs[t->n_runs];
    *r = (struct run){.node = a->node,
                      .name = a->name,
                      .number = t->n_runs++,
                      .lease = vow_lease_ref(lease),
                      .fails = sim_chance(s, t->fails),
                      .stubborn = t->stubborn,
                      .alone = vow_lease_left_ms(lease) == UINT64_MAX};
    sim_say(s, a->node, "asker %u begins run %u, fence %llu, left %llu ms",
            a->number, r->number, (unsigned long long)vow_lease_fence(lease),
            (unsigned long long)vow_lease_left_ms(lease));
    SIM_CHECK(s, (vow_lease_fence(lease) == 0) == r->alone);
    SIM_CHECK(s, !r->alone || t->opts.mode == VOW_SHARED);
    a->starts++;
    if (t->opts.mode == VOW_ONCE && a->starts > 1 && !t->again)
        sim_fail(TEST_HERE, s, "p%u: asker %u is to do it twice",
                 a->node->number, a->number);
    check_needed(t, r);
    vow_future *f = vow_promise(a->node->loop, &r->end);
    vow_on_cancel(r->end, on_cancel, r);
    vow_call_at(&r->call, a->node->loop,
                vow_loop_due_ns(a->node->loop, sim_draw(s, t->work_ms)),
                work_ends, r);
    return f;
}

/* A result that is only for the claims that waited: the asker heard for which
 * run the process waits, and the owning claim was sent later. */
static bool can_tell(struct sim *s, const struct asker *a)
{
    const struct sim_name *x = sim_name_of(s, &a->scene->names[a->name]);
    uint32_t n = a->node->number;
    return a->promised == 0 ||
           (x->heard[n] == a->promised && a->came_ns <= x->heard_ns[n] &&
            x->heard_ns[n] <= x->owned_ns);
}

/* Somebody of this process waited when a result was accepted: he has it, and
 * need not work, unless it took him too long to look, or the result was taken
 * away meanwhile. */
static void check_needed(struct scene *t, const struct run *r)
{
    struct sim *s = &t->sim;
    uint64_t kept_ms = 2 * s->recheck_ms + LEASE_MS;
    if (t->opts.ttl_ms > 0 && t->opts.ttl_ms < kept_ms)
        kept_ms = t->opts.ttl_ms;
    const struct asker *waits = NULL;
    bool force = r->alone || t->again;
    for (uint32_t i = 0; i < t->n_askers; i++) {
        const struct asker *a = &t->askers[i];
        force = force || (a->begun && (a->flags & VOW_SHARE_FORCE) != 0);
        if (a->begun && !a->settled && a->node == r->node &&
            a->name == r->name && a->promised_ns != 0 && can_tell(s, a) &&
            s->now_ns - a->promised_ns < kept_ms * SIM_MS)
            waits = a;
    }
    if (waits != NULL && !force)
        sim_fail(TEST_HERE, s,
                 "p%u begins run %u, and asker %u has been waiting since "
                 "before the result at %.3f ms",
                 r->node->number, r->number, waits->number,
                 (double)waits->promised_ns / 1e6);
}

static void run_over(struct run *r)
{
    (void)vow_call_stop(&r->call);
    r->over = true;
    r->end = vow_deferred_unref(r->end);
    r->lease = vow_lease_unref(r->lease);
}

static void work_ends(void *run)
{
    struct run *r = run;
    uint64_t what[2] = {r->number, vow_lease_fence(r->lease)};
    vow_loop *loop = r->node->loop;
    vow_bytes *bytes;
    r->over = true; /* from now on it is no matter who else does it */
    sim_say(r->node->sim, r->node, "run %u ends%s", r->number,
            r->fails ? ", and has failed" : "");
    if (r->fails) {
        (void)vow_reject(r->end, vow_error_new(loop, VOW_EIO, NULL));
    } else {
        CHECK_INT_EQ(vow_bytes_new(loop, what, sizeof(what), &bytes), 0);
        (void)vow_resolve(r->end, vow_bytes_value(bytes));
    }
    run_over(r);
}

static void on_cancel(vow_error *why, void *run)
{
    struct run *r = run;
    sim_say(r->node->sim, r->node, "run %u is canceled", r->number);
    if (r->stubborn)
        return;
    r->over = true;
    (void)vow_reject(r->end, vow_error_ref(why));
    run_over(r);
}

/* ---- askers ------------------------------------------------------------- */

static void come(struct sim *s, struct sim_event *e)
{
    struct asker *a = VOW__OUTER(e, struct asker, comes);
    struct scene *t = a->scene;
    struct sim_node *n = &s->nodes[sim_draw(s, s->n_nodes)];
    if (!sim_up(n))
        return;
    a->node = n;
    a->begun = true;
    a->came_ns = s->now_ns;
    a->name = (uint32_t)sim_draw(s, t->n_names);
    vow_share_opts o = t->opts;
    o.flags |= a->flags;
    o.deadline_ms = a->deadline_ms;
    o.info = &a->info;
    sim_node_clock(n);
    sim_say(s, n, "asker %u comes for %02x, flags %u", a->number,
            t->names[a->name].hash[0], o.flags);
    a->future = vow_share(t->at[n->number], &t->names[a->name], work, a, &o);
    vow_watch_start(&a->watch, a->future, on_settled, a);
    sim_node_run(n);
}

static void on_settled(vow_future *f, void *asker)
{
    struct asker *a = asker;
    struct sim *s = &a->scene->sim;
    a->settled = true;
    a->code = vow_error_code(vow_error_of(f));
    if (a->code == 0) {
        vow_bytes *b = vow_as_bytes(vow_get(f));
        uint64_t what[2];
        SIM_CHECK(s, vow_bytes_size(b) == sizeof(what));
        memcpy(what, vow_bytes_data(b), sizeof(what));
        a->got.run = (uint32_t)what[0];
        a->got.fence = what[1];
    }
    sim_say(s, a->node, "asker %u: %s, run %u, role %u, fence %llu", a->number,
            a->code == 0 ? "ok" : vow_error_name(a->code), a->got.run,
            a->info.role, (unsigned long long)a->info.fence);
}

static void leave(struct sim *s, struct sim_event *e)
{
    struct asker *a = VOW__OUTER(e, struct asker, leaves);
    if (!a->begun || a->settled || !sim_up(a->node))
        return;
    sim_say(s, a->node, "asker %u leaves", a->number);
    a->gone = true;
    sim_node_clock(a->node);
    (void)vow_cancel(a->future, NULL);
    sim_node_run(a->node);
}

/* ---- who looks after them ----------------------------------------------- */

static vow_future *resolve(struct scene *t, struct sim_node *n,
                           const struct sim_name *x)
{
    const uint64_t what[2] = {BY_HAND, x->epoch};
    enum vow_what_happened how =
        (enum vow_what_happened)sim_between(&t->sim, 1, 3);
    VOW_AUTO(vow_bytes) value = NULL;
    CHECK_INT_EQ(vow_bytes_new(n->loop, what, sizeof(what), &value), 0);
    uint64_t ttl_ms = sim_draw(&t->sim, 2) * 60000; /* or nobody remembers */
    t->again = t->again || how == VOW_DO_IT_AGAIN || ttl_ms == 0;
    t->by_hand = true;
    sim_say(&t->sim, n, "resolves %02x, epoch %llu, in way %d", x->name.hash[0],
            (unsigned long long)x->epoch, (int)how);
    return vow_authority_resolve(t->at[n->number], &x->name, x->epoch, how,
                                 how == VOW_IT_HAPPENED ? value : NULL, ttl_ms);
}

static void look_after(struct sim *s, struct sim_event *e)
{
    struct deed *d = VOW__OUTER(e, struct deed, event);
    struct scene *t = d->scene;
    struct sim_node *n = &s->nodes[sim_draw(s, s->n_nodes)];
    const struct sim_name *x =
        sim_name_of(s, &t->names[sim_draw(s, t->n_names)]);
    vow_authority *a = t->at[n->number];
    uint64_t what = sim_draw(s, 4);
    if (!sim_up(n))
        return;
    sim_node_clock(n);
    if (what == 0) {
        t->stops = true;
        d->future = vow_authority_cancel(a, &x->name);
    } else if (what == 1) {
        t->again = true; /* also of what is in doubt */
        d->future = vow_authority_forget(a, &x->name, 0);
    } else if (what == 2 && t->opts.mode == VOW_ONCE) {
        d->future = resolve(t, n, x);
    } else {
        d->future = vow_authority_list(a);
    }
    sim_node_run(n);
}

/* ---- what is watched ---------------------------------------------------- */

static void alone(struct sim *s, struct sim_node *n, const vow_name *name)
{
    struct scene *t = scene_of(s);
    for (uint32_t i = 0; i < t->n_runs; i++) {
        const struct run *r = &t->runs[i];
        if (r->over || r->node->dead ||
            !vow_name_equal(&t->names[r->name], name))
            continue;
        sim_node_clock(r->node);
        uint64_t left = vow_lease_left_ms(r->lease);
        if (left > 0 && left != UINT64_MAX)
            sim_fail(TEST_HERE, s,
                     "p%u has it now, and p%u thinks to have it for %llu ms "
                     "(run %u)",
                     n->number, r->node->number, (unsigned long long)left,
                     r->number);
    }
}

static void accepted(struct sim *s, const vow_commit_request *ask,
                     uint32_t waits)
{
    struct scene *t = scene_of(s);
    const struct sim_name *x = sim_name_of(s, &ask->hold.name);
    uint64_t what[2];
    for (uint32_t i = 0; i < t->n_askers; i++) {
        struct asker *a = &t->askers[i];
        if (a->begun && !a->settled && (waits & 1u << a->node->number) != 0 &&
            a->came_ns <= x->waits_since_ns[a->node->number] &&
            vow_name_equal(&t->names[a->name], &ask->hold.name)) {
            a->promised_ns = s->now_ns;
            a->promised = ask->ttl_ms > 0 ? 0 : x->first;
        }
    }
    if (ask->outcome != VOW_OUTCOME_DONE ||
        vow_bytes_size(ask->value) != sizeof(what))
        return;
    memcpy(what, vow_bytes_data(ask->value), sizeof(what));
    if (what[0] == BY_HAND)
        return;
    t->runs[what[0]].accepted = true;
    sim_say(s, NULL, "the result of run %u stands", (uint32_t)what[0]);
}

static bool code_is_allowed(const struct scene *t, const struct asker *a)
{
    switch (a->code) {
    case 0:
        return true;
    case VOW_EIO:
        return t->fails > 0 || t->by_hand;
    case VOW_ECANCELED:
        return a->gone || t->stops || t->by_hand;
    case VOW_EDOUBT:
        return t->opts.mode == VOW_ONCE;
    case VOW_EGAVEUP:
        return t->opts.takeovers < 100;
    case VOW_EBUSY:
        return (a->flags & VOW_SHARE_NOWAIT) != 0;
    case VOW_ENOENT:
        return (a->flags & VOW_SHARE_PEEK) != 0;
    case VOW_ERETRY:
        return (t->opts.flags & VOW_SHARE_RACE) != 0;
    case VOW_ETIMEDOUT:
        return a->deadline_ms > 0;
    case VOW_ESTORE:
    case VOW_EUNSURE:
        return (t->opts.mode != VOW_SHARED ||
                (a->flags & VOW_SHARE_PEEK) != 0) &&
               t->plan.faults != 0;
    default:
        return false;
    }
}

static void check_asker(struct scene *t, const struct asker *a)
{
    struct sim *s = &t->sim;
    if (!a->settled)
        sim_fail(TEST_HERE, s, "p%u: asker %u is not settled", a->node->number,
                 a->number);
    if (!code_is_allowed(t, a))
        sim_fail(TEST_HERE, s, "p%u: asker %u got %s", a->node->number,
                 a->number, vow_error_name(a->code));
    if (a->code != 0)
        return;
    if (a->got.run == BY_HAND) {
        SIM_CHECK(s, t->by_hand);
        return;
    }
    const struct run *r = &t->runs[a->got.run];
    bool mine = t->opts.mode == VOW_SHARED && r->node == a->node;
    SIM_CHECK(s, r->name == a->name);
    if (!r->accepted && !mine)
        sim_fail(TEST_HERE, s,
                 "p%u: asker %u got the result of run %u, which was never "
                 "accepted",
                 a->node->number, a->number, r->number);
    for (uint32_t i = 0; i < a->number; i++) {
        const struct asker *b = &t->askers[i];
        if (b->settled && b->code == 0 && b->name == a->name &&
            b->got.run != BY_HAND && b->info.fence == a->info.fence &&
            !t->runs[a->got.run].alone && !t->runs[b->got.run].alone &&
            a->got.run != b->got.run)
            sim_fail(TEST_HERE, s,
                     "askers %u and %u got runs %u and %u of fence %llu",
                     a->number, b->number, a->got.run, b->got.run,
                     (unsigned long long)a->info.fence);
    }
}

/* ---- a schedule --------------------------------------------------------- */

static void begin(struct sim *s)
{
    struct scene *t = scene_of(s);
    struct sim_node *n = sim_node_new(s);
    n->instant = sim_draw(s, 8) == 0;
    VOW_AUTO(vow_future)
    f = vow_authority_open(n->loop, NULL,
                           VOW_AUTHORITY(.store = &n->store,
                                         .flags = VOW_AUTHORITY_HERE,
                                         .lease_ms = LEASE_MS));
    sim_node_run(n);
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    t->at[n->number] = vow_authority_ref(vow_as_ptr(vow_get(f)));
}

static void draw_options(struct scene *t)
{
    struct sim *s = &t->sim;
    t->opts = (vow_share_opts){.size = sizeof(t->opts),
                               .mode = (uint32_t)sim_draw(s, 3),
                               .takeovers = 1000,
                               .tries = (uint32_t)sim_draw(s, 3),
                               .store_down = VOW_DOWN_WAIT};
    if (sim_draw(s, 2) == 0)
        t->opts.ttl_ms = sim_between(s, 100, 20000);
    if (sim_draw(s, 4) == 0)
        t->opts.takeovers = 2;
    if (sim_draw(s, 4) == 0)
        t->opts.store_down = VOW_DOWN_DEFAULT;
    if (t->opts.mode == VOW_ONCE)
        t->opts.tries = 1;
    if (sim_draw(s, 8) == 0)
        t->opts.flags |= VOW_SHARE_RACE;
    if (sim_draw(s, 8) == 0)
        t->opts.flags |= VOW_SHARE_KEEP;
    t->work_ms = sim_between(s, 1, 3 * LEASE_MS);
    t->fails = sim_draw(s, 3) == 0 ? (uint32_t)sim_draw(s, 500) : 0;
    t->stubborn = sim_draw(s, 4) == 0;
    t->n_names = (uint32_t)sim_between(s, 1, NAMES);
    t->names[0] = vow_name_of("one");
    t->names[1] = vow_name_of("two");
}

static void draw_asker(struct scene *t, struct asker *a)
{
    static const uint32_t FLAGS[] = {VOW_SHARE_NOWAIT, VOW_SHARE_PEEK,
                                     VOW_SHARE_FORCE};
    struct sim *s = &t->sim;
    uint64_t span = t->plan.healed_ns - s->now_ns;
    sim_at(s, &a->comes, s->now_ns + sim_draw(s, span), come);
    if (s->prompt) /* who waits stays, to take over */
        return;
    if (sim_draw(s, 8) == 0)
        a->flags = FLAGS[sim_draw(s, 3)];
    if (sim_draw(s, 8) == 0)
        a->deadline_ms = sim_between(s, 1, 3 * LEASE_MS);
    if (sim_draw(s, 8) == 0)
        sim_at(s, &a->leaves, s->now_ns + sim_draw(s, 2 * span), leave);
}

/* Nobody sees what a process does that has died; its memory must be freed. */
static void bury(struct scene *t, struct sim_node *n)
{
    vow_authority_unref(t->at[n->number]);
    (void)vow_loop_run(n->loop);
}

static void close_all(struct scene *t)
{
    struct sim *s = &t->sim;
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (!s->nodes[i].dead)
            vow_authority_unref(t->at[i]);
    sim_run(s, s->now_ns + 10 * SIM_S);
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (!s->nodes[i].dead)
            SIM_CHECK(s, s->nodes[i].closed);
    for (uint32_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i].dead)
            bury(t, &s->nodes[i]);
    for (uint32_t i = 0; i < t->n_runs; i++)
        if (!t->runs[i].over)
            run_over(&t->runs[i]);
    for (uint32_t i = 0; i < t->n_askers; i++) {
        (void)vow_watch_stop(&t->askers[i].watch);
        vow_future_unref(t->askers[i].future);
    }
    for (uint32_t i = 0; i < DEEDS; i++) {
        if (t->deeds[i].future != NULL)
            (void)vow_error_of(t->deeds[i].future);
        vow_future_unref(t->deeds[i].future);
    }
}

static void schedule(uint64_t seed)
{
    static struct scene all;
    struct scene *t = &all;
    struct sim *s = &t->sim;
    memset(t, 0, sizeof(*t));
    sim_open(s, seed);
    draw_options(t);
    sim_plan_make(&t->plan, s, PLAN_ALL, LEASE_MS);
    t->plan.restart = begin;
    s->on_own = alone;
    s->on_accept = accepted;
    s->late_us = 110 * 1000;
    for (uint64_t n = sim_between(s, 2, 4); n > 0; n--)
        begin(s);
    t->n_askers = (uint32_t)sim_between(s, 2, ASKERS);
    for (uint32_t i = 0; i < t->n_askers; i++) {
        t->askers[i].scene = t;
        t->askers[i].number = i;
        draw_asker(t, &t->askers[i]);
    }
    for (uint64_t i = sim_draw(s, 4) == 0 ? DEEDS : 0; i > 0; i--) {
        struct deed *d = &t->deeds[i - 1];
        d->scene = t;
        sim_at(s, &d->event,
               s->now_ns + sim_draw(s, 2 * (t->plan.healed_ns - s->now_ns)),
               look_after);
    }
    sim_run(s, t->plan.healed_ns);
    sim_run(s, s->now_ns + 100 * (uint64_t)LEASE_MS * SIM_MS);
    for (uint32_t i = 0; i < t->n_askers; i++)
        if (t->askers[i].begun && !t->askers[i].node->dead)
            check_asker(t, &t->askers[i]);
    close_all(t);
    sim_close(s);
}

TEST(sim_share, settles_all_with_one_result_whatever_goes_wrong)
{
    sim_many(8000, schedule);
}
