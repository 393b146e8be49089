/* SPDX-License-Identifier: MIT */
/* authority_random_test.c - random askers, against a model that knows only what
 * vow/share.h says: who runs, how often, and what each of them gets.
 *
 * With stores that work the model knows the outcome of every step. With stores
 * that fail there is what always holds: one live lease, growing fences (both in
 * authority_rig.h), results that were made, and an end for everybody.
 */
#include "authority_rig.h"

enum { NAMES = 3, PROCESSES = 3, ASKERS = 40, STEPS_EACH = 120, TTL_MS = 301 };

/* One function's argument: it tells the model where the work is done. */
struct post {
    struct play *play;
    int name, process;
};

struct asker {
    int name, process;
    uint64_t due_ms; /* of its deadline; 0: none */
    vow_future *f;
    bool over;    /* the model says so: */
    int code;     /* with this, */
    int value;    /* or this */
    bool checked; /* it was compared */
};

struct subject {
    vow_name name;
    struct labor l;
    int where;     /* the process that does it; -1: none */
    int runs;      /* as the model counts */
    int kept;      /* the result that is kept */
    uint64_t till; /* until then */
};

struct play {
    struct stage s;
    uint64_t random;
    uint64_t now_ms;
    int next_value;
    struct subject on[NAMES];
    struct post post[NAMES][PROCESSES];
    struct asker a[ASKERS];
    size_t n;
    int began; /* where the last work began */
};

static uint64_t draw(struct play *p, uint64_t n)
{
    return test_random(&p->random) % n;
}

static vow_future *work(vow_lease *lease, void *arg)
{
    struct post *post = arg;
    post->play->began = post->process;
    return labor_work(lease, &post->play->on[post->name].l);
}

static void play_open(struct play *p, uint64_t seed, int names)
{
    *p = (struct play){.random = seed, .next_value = 1};
    stage_open_with(&p->s, PROCESSES, VOW_AUTHORITY(.recheck_ms = 500));
    for (int i = 0; i < names; i++) {
        char text[24];
        (void)snprintf(text, sizeof(text), "name %d", i);
        p->on[i] = (struct subject){.name = vow_name_of(text), .where = -1};
        p->on[i].l.loop = p->s.loop;
        for (int k = 0; k < PROCESSES; k++)
            p->post[i][k] = (struct post){p, i, k};
    }
}

static void play_close(struct play *p)
{
    for (size_t i = 0; i < PROCESSES; i++)
        stage_leave(&p->s, i);
    for (size_t i = 0; i < p->n; i++)
        vow_future_unref(p->a[i].f);
    for (int i = 0; i < NAMES; i++)
        labor_free(&p->on[i].l);
    stage_close(&p->s);
}

/* ---- the model ----------------------------------------------------------- */

static int waiting(const struct play *p, int name, int process)
{
    int n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += !p->a[i].over && p->a[i].name == name &&
             (process < 0 || p->a[i].process == process);
    return n;
}

static void settle_all(struct play *p, int name, int code, int value)
{
    for (size_t i = 0; i < p->n; i++) {
        struct asker *a = &p->a[i];
        if (a->over || a->name != name)
            continue;
        a->over = true;
        a->code = code;
        a->value = value;
    }
    p->on[name].where = -1;
}

/* A run began: the model cannot know where. */
static void model_begins(struct play *p, int name)
{
    struct subject *on = &p->on[name];
    on->runs++;
    CHECK_INT_EQ(on->l.n, on->runs);
    CHECK(waiting(p, name, p->began) > 0);
    on->where = p->began;
}

static void model_leaves(struct play *p, struct asker *a, int code)
{
    struct subject *on = &p->on[a->name];
    a->over = true;
    a->code = code;
    if (on->where != a->process || waiting(p, a->name, a->process) > 0)
        return;
    on->where = -1;
    if (waiting(p, a->name, -1) > 0)
        model_begins(p, a->name);
}

static void check_asker(struct asker *a)
{
    if (!a->over) {
        CHECK_PENDING(a->f);
        return;
    }
    if (a->checked)
        return;
    a->checked = true;
    CHECK_CODE(a->f, a->code);
    char want[16];
    (void)snprintf(want, sizeof(want), "%d", a->value);
    if (a->code == 0)
        CHECK_TEXT(a->f, want);
    if (a->code == VOW_EIO)
        CHECK_STR_EQ(vow_error_message(vow_error_of(a->f)), want);
}

static void check_play(struct play *p)
{
    for (size_t i = 0; i < p->n; i++)
        check_asker(&p->a[i]);
    for (int i = 0; i < NAMES; i++)
        CHECK_INT_EQ(p->on[i].l.n, p->on[i].runs);
    for (int k = 0; k < PROCESSES; k++) {
        const vow_authority_stats st = stage_stats(&p->s, (size_t)k);
        size_t want = 0, running = 0;
        for (int i = 0; i < NAMES; i++) {
            want += (size_t)waiting(p, i, k);
            running += p->on[i].where == k;
        }
        CHECK(st.waiting <= want); /* those who are alike count once */
        CHECK((st.waiting > 0) == (want > 0));
        CHECK_UINT_EQ(st.running, running);
    }
}

/* ---- steps --------------------------------------------------------------- */

static bool due_is_free(const struct play *p, uint64_t due)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->a[i].due_ms == due)
            return false;
    return true;
}

static void step_ask(struct play *p)
{
    struct asker *a = &p->a[p->n];
    struct subject *on;
    if (p->n == ASKERS)
        return;
    *a = (struct asker){.name = (int)draw(p, NAMES),
                        .process = (int)draw(p, PROCESSES)};
    on = &p->on[a->name];
    if (draw(p, 2) == 0) {
        a->due_ms = p->now_ms + 1 + draw(p, 600);
        while (!due_is_free(p, a->due_ms))
            a->due_ms++;
    }
    p->n++;
    a->f = vow_share(
        p->s.at[a->process].a, &on->name, work, &p->post[a->name][a->process],
        VOW_SHARE(.ttl_ms = a->name == 0 ? 0 : TTL_MS,
                  .deadline_ms = a->due_ms == 0 ? 0 : a->due_ms - p->now_ms));
    world_turn(&p->s.w);
    if (on->kept != 0 && p->now_ms < on->till)
        a->over = true, a->value = on->kept;
    else if (on->where < 0)
        model_begins(p, a->name);
}

static void step_cancel(struct play *p)
{
    if (p->n == 0)
        return;
    struct asker *a = &p->a[draw(p, p->n)];
    CHECK(vow_cancel(a->f, NULL) == !a->over);
    world_turn(&p->s.w);
    if (!a->over)
        model_leaves(p, a, VOW_ECANCELED);
}

static void step_end(struct play *p)
{
    const int name = (int)draw(p, NAMES);
    struct subject *on = &p->on[name];
    if (on->where < 0)
        return;
    const int value = p->next_value++;
    char text[16];
    (void)snprintf(text, sizeof(text), "%d", value);
    if (draw(p, 5) == 0) {
        labor_fail(&on->l, VOW_EIO, text);
        world_turn(&p->s.w);
        settle_all(p, name, VOW_EIO, value);
    } else {
        labor_end(&on->l, text);
        world_turn(&p->s.w);
        settle_all(p, name, 0, value);
        on->kept = name == 0 ? 0 : value;
        on->till = p->now_ms + TTL_MS;
    }
}

/* Time goes on from one deadline to the next, so that the model can follow. */
static void step_time(struct play *p)
{
    const uint64_t end = p->now_ms + 2 * draw(p, 100);
    while (true) {
        struct asker *first = NULL;
        for (size_t i = 0; i < p->n; i++) {
            struct asker *a = &p->a[i];
            if (!a->over && a->due_ms != 0 && a->due_ms <= end &&
                (first == NULL || a->due_ms < first->due_ms))
                first = a;
        }
        const uint64_t to = first == NULL ? end : first->due_ms;
        world_advance_ms(&p->s.w, to - p->now_ms);
        p->now_ms = to;
        if (first == NULL)
            return;
        model_leaves(p, first, VOW_ETIMEDOUT);
    }
}

static void play_once(uint64_t seed)
{
    static struct play p;
    play_open(&p, seed, NAMES);
    for (int i = 0; i < STEPS_EACH; i++) {
        const uint64_t what = draw(&p, 10);
        if (what < 4)
            step_ask(&p);
        else if (what < 6)
            step_cancel(&p);
        else if (what < 8)
            step_end(&p);
        else
            step_time(&p);
        check_play(&p);
    }
    for (size_t i = 0; i < p.n; i++)
        if (!p.a[i].over) {
            CHECK(vow_cancel(p.a[i].f, NULL));
            world_turn(&p.s.w);
            model_leaves(&p, &p.a[i], VOW_ECANCELED);
        }
    check_play(&p);
    for (int i = 0; i < NAMES; i++)
        for (int k = 0; k < p.on[i].l.n; k++)
            CHECK(p.on[i].l.run[k].over);
    play_close(&p);
}

TEST(authority_random, everybody_gets_what_the_model_says)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < 300; i++)
        play_once(test_random(&seed));
}

/* ---- with faults --------------------------------------------------------- */

static void break_something(struct play *p)
{
    struct flaky *f = &p->s.at[draw(p, PROCESSES)].flaky;
    const enum step step = (enum step)draw(p, STEPS);
    switch (draw(p, 8)) {
    case 0:
        f->cut = !f->cut;
        break;
    case 1:
        f->deaf = !f->deaf;
        break;
    case 2:
        f->doubled = !f->doubled;
        break;
    case 3:
        f->delay_ms[step] = draw(p, 3) == 0 ? draw(p, 2 * LEASE) : draw(p, 50);
        break;
    case 4:
        flaky_all(f, FATE_FINE);
        flaky_release(f);
        break;
    default:
        flaky_next(f, step, (enum fate)draw(p, 5), (int)draw(p, 6));
        break;
    }
}

static uint32_t mode_of(int name)
{
    return name == 0 ? VOW_SHARED : VOW_FENCED;
}

static void fault_ask(struct play *p)
{
    if (p->n == ASKERS)
        return;
    struct asker *a = &p->a[p->n++];
    *a = (struct asker){.name = (int)draw(p, 2),
                        .process = (int)draw(p, PROCESSES)};
    const uint64_t deadline = draw(p, 4) == 0 ? 1 + draw(p, 3000) : 0;
    a->f = vow_share(p->s.at[a->process].a, &p->on[a->name].name, work,
                     &p->post[a->name][a->process],
                     VOW_SHARE(.mode = mode_of(a->name), .takeovers = 50,
                               .ttl_ms = 60000 * draw(p, 2),
                               .deadline_ms = deadline,
                               .store_down = VOW_DOWN_WAIT));
    world_turn(&p->s.w);
}

/* A result tells whose it is. */
static void end_run(struct labor *l, int i)
{
    char text[16];
    (void)snprintf(text, sizeof(text), "%d", i + 1);
    if (!l->run[i].over)
        labor_end_of(l, i, text);
}

/* Whoever thinks that he works, ends. */
static void fault_end(struct play *p)
{
    struct labor *l = &p->on[draw(p, 2)].l;
    if (l->n > 0)
        end_run(l, (int)draw(p, (uint64_t)l->n));
    world_turn(&p->s.w);
}

static void fault_heal(struct play *p)
{
    for (int round = 0; round < 300; round++) {
        for (size_t k = 0; k < PROCESSES; k++) {
            struct flaky *f = &p->s.at[k].flaky;
            f->cut = f->deaf = false;
            memset(f->delay_ms, 0, sizeof(f->delay_ms));
            flaky_release(f);
            flaky_all(f, FATE_FINE);
        }
        world_advance_ms(&p->s.w, 100);
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < p->on[i].l.n; k++)
                end_run(&p->on[i].l, k);
    }
}

/* A result that was made by a run, or an error that may be. */
static void check_outcome(struct play *p, struct asker *a)
{
    if (vow_state_of(a->f) == VOW_PENDING)
        FAIL("an asker of name %d in process %d never settled", a->name,
             a->process);
    const int code = vow_error_code(vow_error_of(a->f));
    if (code == 0) {
        vow_bytes *b = vow_as_bytes(vow_get(a->f));
        char text[16] = {0};
        memcpy(text, vow_bytes_data(b), vow_bytes_size(b));
        const int run = (int)strtol(text, NULL, 10);
        CHECK(run >= 1 && run <= p->on[a->name].l.n);
        return;
    }
    const bool untold = /* it was done, and nobody knows whether it counts */
        mode_of(a->name) == VOW_FENCED &&
        (code == VOW_EUNSURE || code == VOW_ESTORE);
    if (code != VOW_ECANCELED && code != VOW_ETIMEDOUT && !untold)
        FAIL("asker of name %d: %s", a->name, vow_error_name(code));
}

static void fault_once(uint64_t seed)
{
    static struct play p;
    play_open(&p, seed, 2);
    for (int i = 0; i < 200; i++) {
        const uint64_t what = draw(&p, 12);
        if (what < 3)
            fault_ask(&p);
        else if (what == 3 && p.n > 0)
            (void)vow_cancel(p.a[draw(&p, p.n)].f, NULL);
        else if (what < 6)
            fault_end(&p);
        else if (what < 9)
            break_something(&p);
        else
            world_advance_ms(&p.s.w, draw(&p, 400));
        if (p.on[0].l.n > LABOR_RUNS / 2 || p.on[1].l.n > LABOR_RUNS / 2)
            break;
    }
    fault_heal(&p);
    for (size_t i = 0; i < p.n; i++)
        check_outcome(&p, &p.a[i]);
    for (size_t k = 0; k < PROCESSES; k++)
        CHECK_UINT_EQ(stage_stats(&p.s, k).names, 0);
    play_close(&p);
}

TEST(authority_random, everybody_settles_whatever_the_stores_do)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < 200; i++)
        fault_once(test_random(&seed));
}

/* ---- with everything ----------------------------------------------------- */

static bool wild_join(const vow_share_info *running, void *user)
{
    (void)running;
    return draw(user, 4) != 0;
}

static void wild_chunk(vow_bytes *chunk, void *user)
{
    struct play *p = user;
    (void)chunk;
    if (draw(p, 8) == 0)
        (void)vow_cancel(p->a[draw(p, p->n)].f, NULL);
}

static void wild_event(const vow_event *e, void *user)
{
    struct play *p = user;
    (void)e;
    if (p->n > 0 && draw(p, 16) == 0)
        (void)vow_cancel(p->a[draw(p, p->n)].f, NULL);
}

static void wild_lease(vow_lease *lease, void *arg)
{
    const struct post *post = arg;
    labor_take(lease, &post->play->on[post->name].l);
}

static vow_next wild_claimed(vow_value v, void *user)
{
    const vow_claim *c = vow_as_ptr(v);
    if (c->lease != NULL)
        wild_lease(c->lease, user);
    return vow_follow(vow_future_ref(c->result));
}

static void wild_ask(struct play *p)
{
    const uint32_t flag = UINT32_C(1) << draw(p, 8);
    const int name = (int)draw(p, 2), process = (int)draw(p, PROCESSES);
    struct process *at = &p->s.at[process];
    struct post *post = &p->post[name][process];
    if (p->n == ASKERS || at->gone)
        return;
    vow_share_opts o =
        *VOW_SHARE(.mode = mode_of(name), .takeovers = 50, .user = p,
                   .ttl_ms = 2000 * draw(p, 2), .on_chunk = wild_chunk,
                   .tries = (uint32_t)draw(p, 3),
                   .flags = flag < VOW_SHARE_NO_REFRESH ? flag : 0,
                   .join = draw(p, 5) == 0 ? wild_join : NULL,
                   .deadline_ms = draw(p, 4) == 0 ? 1 + draw(p, 3000) : 0,
                   .store_down =
                       draw(p, 2) == 0 ? VOW_DOWN_WAIT : VOW_DOWN_FAIL);
    const bool hands = draw(p, 3) == 0 && (o.flags & VOW_SHARE_PEEK) == 0;
    struct asker *a = &p->a[p->n];
    *a = (struct asker){.name = name, .process = process};
    a->f = hands ? vow_then_drop(vow_claim_name(at->a, &p->on[name].name,
                                                wild_lease, post, &o),
                                 wild_claimed, NULL, post)
                 : vow_share(at->a, &p->on[name].name, work, post, &o);
    p->n++;
    world_turn(&p->s.w);
}

static vow_next wild_ignored(vow_error *e, void *user)
{
    (void)e;
    (void)user;
    return vow_ok(vow_nothing());
}

/* A run does what runs do, also when it is lost. */
static void wild_work(struct play *p)
{
    struct labor *l = &p->on[draw(p, 2)].l;
    if (l->n == 0)
        return;
    struct run *r = &l->run[draw(p, (uint64_t)l->n)];
    VOW_AUTO(vow_bytes) chunk = NULL;
    CHECK_INT_EQ(vow_bytes_new(p->s.loop, "x", 1, &chunk), 0);
    switch (draw(p, 5)) {
    case 0:
        (void)vow_lease_pulse(r->lease);
        break;
    case 1:
        (void)vow_done(vow_lease_write(r->lease, chunk), NULL, wild_ignored,
                       NULL);
        break;
    case 2:
        r->gave_up = vow_lease_abandon(r->lease) || r->gave_up;
        r->over = r->over || r->end == NULL; /* or is canceled, or goes on */
        break;
    case 3:
        if (!r->over && r->end != NULL)
            r->over = r->failed = vow_reject_code(r->end, VOW_EIO, NULL);
        break;
    default:
        (void)vow_lease_notify(r->lease, vow_int(1));
        break;
    }
    world_turn(&p->s.w);
}

static void wild_manage(struct play *p)
{
    struct process *at = &p->s.at[draw(p, PROCESSES)];
    const vow_name *name = &p->on[draw(p, 2)].name;
    if (at->gone)
        return;
    vow_future *f = draw(p, 2) == 0 ? vow_authority_forget(at->a, name, 0)
                                    : vow_authority_cancel(at->a, name);
    (void)vow_done(f, NULL, wild_ignored, NULL);
    world_turn(&p->s.w);
}

static void wild_once(uint64_t seed)
{
    static struct play p;
    play_open(&p, seed, 2);
    for (size_t i = 0; i < PROCESSES; i++) {
        p.s.at[i].on_event = wild_event;
        p.s.at[i].user = &p;
    }
    for (int i = 0; i < 200; i++) {
        const uint64_t what = draw(&p, 16);
        if (what < 4)
            wild_ask(&p);
        else if (what < 6)
            fault_end(&p);
        else if (what < 9)
            break_something(&p);
        else if (what < 11)
            wild_work(&p);
        else if (what == 11)
            wild_manage(&p);
        else if (what == 12 && draw(&p, 20) == 0)
            stage_leave(&p.s, draw(&p, PROCESSES));
        else
            world_advance_ms(&p.s.w, draw(&p, 400));
        if (p.on[0].l.n > LABOR_RUNS / 2 || p.on[1].l.n > LABOR_RUNS / 2)
            break;
    }
    fault_heal(&p);
    for (size_t i = 0; i < p.n; i++) {
        if (vow_state_of(p.a[i].f) == VOW_PENDING)
            FAIL("asker %zu never settled", i);
        (void)vow_error_of(p.a[i].f);
    }
    /* of claims that were canceled when they had just been granted */
    world_expect_unhandled(&p.s.w, p.s.w.unhandled);
    play_close(&p);
}

TEST(authority_random, nobody_is_left_behind_whatever_anybody_does)
{
    uint64_t seed = test_seed();
    for (int i = 0; i < 200; i++)
        wild_once(test_random(&seed));
}
