/* SPDX-License-Identifier: MIT */
/* cas_pool_test.c - pools on the engine over a compare-and-set service, with
 * faults drawn from a seed, on virtual time.
 *
 * Each process is a fiber with a store of its own. A process acquires permits
 * of a lock, of a pool with weights, of a key and of a pool with a rate,
 * renews, releases, walks away, stops, dies and begins anew, and changes
 * limits. A ledger holds what the processes were told, and checks:
 *
 *   P1  permits with a valid lease never weigh more than the largest limit
 *       since the newest of them was requested
 *   P2  permits are granted in the order of the fences: when a permit is told,
 *       all requests with a smaller fence fit beside the permit
 *   P3  work that starts within any window weighs at most the rate
 *   P4  when the network is healed, every process comes to an end, and no
 *       request waits for longer than WAIT_MS_MAX
 *   P5  no fence comes twice; fences of the lock rise
 *   P6  at the end no permit and no request is left
 *
 * P1 to P3 do not hold in histories in which the service loses leases. Changed
 * limits spoil P5 of no pool: the lock keeps its limit.
 */
#include "cas_memory.h"
#include "world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SEEDS = 700,
    ACTORS = 5,
    ROUNDS = 8,
    TICKETS_MAX = 400,
    FAULTY_MS = 30000,
    HEALED_MS = 200000,
    WAIT_MS_MAX = 60000,
    TIMEOUT_MS = 2000,
    RATE = 4,
    HIGH_RATE = 300, /* starts that are close share an entry */
    WINDOW_MS = 700
};

enum { LOCK, WEIGHTS, KEY, RATED, HIGH, POOLS };

/* A request, from the first acquire to the release. */
struct ticket {
    int pool;
    uint32_t weight;
    vow_token token;
    uint64_t asked_ns; /* first acquire sent */
    uint64_t valid_ns; /* the lease, as the process believes */
    uint64_t fence;    /* of the grant; 0: waiting */
    bool waiting;      /* was told WAITING, and asks on */
    bool ended;        /* released, lost, given up, or died */
    uint64_t start_ns; /* of the work; 0: none */
};

/* A grant, as it was told: what was beside the permit. */
struct grant {
    size_t ticket;
    uint64_t sum;   /* of all that is known to be before or beside */
    uint64_t limit; /* 0: none */
    bool waiting[TICKETS_MAX];
};

struct actor {
    struct history *h;
    vow_store *store;
    struct cas_service *service;
    vow_deferred *event;
    struct ticket *ticket;
    bool finished;
};

struct history {
    uint64_t seed, random;
    struct world world;
    struct cas_world *server;
    uint64_t lease_ms, healed_ns;
    struct actor actors[ACTORS];
    struct ticket tickets[TICKETS_MAX];
    size_t n_tickets;
    struct grant grants[TICKETS_MAX];
    size_t n_grants;
    uint64_t limit_ns[2], limit[2]; /* of WEIGHTS: before, and now */
    bool limiting;                  /* a process changes the limits */
    uint64_t granted, waited, deaths, walked, limits;
    struct cas_faults faults;
};

#define EXPECT(h, cond)                                                        \
    ((cond) ? (void)0                                                          \
            : test_fail(                                                       \
                  TEST_HERE, "seed %ju at %ju ms: %s", (uintmax_t)(h)->seed,   \
                  (uintmax_t)(vow_loop_now_ns((h)->world.loop) / 1000000),     \
                  #cond))

static uint64_t draw(struct history *h, uint64_t n)
{
    return test_random(&h->random) % n;
}

static uint64_t now_ns(const struct history *h)
{
    return vow_loop_now_ns(h->world.loop);
}

static vow_name pool_name(int pool)
{
    vow_name name = {.hash = {(unsigned char)(pool + 1), 3}};
    return name;
}

static vow_name limits_name(int pool)
{
    return pool_name(pool == KEY ? WEIGHTS : pool);
}

static vow_pool_limits first_limits(int pool)
{
    static const vow_pool_limits LIMITS[POOLS] = {
        [LOCK] = {.concurrent = 1},
        [WEIGHTS] = {.concurrent = 4},
        [KEY] = {.concurrent = 4},
        [RATED] = {.concurrent = 3,
                   .rate = RATE,
                   .window_us = WINDOW_MS * 1000},
        [HIGH] = {.rate = HIGH_RATE, .window_us = WINDOW_MS * 1000}};
    return LIMITS[pool];
}

/* ---- steps of a fiber ---------------------------------------------------- */

struct answer {
    int code;
    vow_pool_permit permit;
    vow_pool_info info;
    vow_deferred *end;
};

static void answer_end(struct answer *a)
{
    vow_deferred *end = a->end;
    CHECK(end != NULL);
    a->end = NULL;
    (void)vow_resolve_drop(end, vow_nothing());
}

static void on_permits(int code, const vow_pool_permit *p, size_t n, void *user)
{
    struct answer *a = user;
    a->code = code;
    CHECK(code != 0 || n == 1);
    if (code == 0)
        a->permit = *p;
    answer_end(a);
}

static void on_pools(int code, const vow_pool_info *p, size_t n, void *user)
{
    struct answer *a = user;
    a->code = code;
    CHECK(code != 0 || n == 1);
    if (code == 0)
        a->info = *p;
    answer_end(a);
}

static vow_future *begin_step(struct actor *a, struct answer *answer)
{
    *answer = (struct answer){.code = 1};
    return vow_promise(a->h->world.loop, &answer->end);
}

static vow_permit_request request_of(const struct actor *a,
                                     const struct ticket *t, uint32_t flags)
{
    return (vow_permit_request){.pool = pool_name(t->pool),
                                .limits_of = limits_name(t->pool),
                                .token = t->token,
                                .weight = t->weight,
                                .flags = flags,
                                .lease_ms = a->h->lease_ms,
                                .limits = first_limits(t->pool),
                                .label = "pool",
                                .limits_label = "limits"};
}

static vow_permit_hold hold_of(const struct ticket *t, bool started)
{
    return (vow_permit_hold){.pool = pool_name(t->pool),
                             .limits_of = limits_name(t->pool),
                             .token = t->token,
                             .started = started};
}

static struct answer do_acquire(struct actor *a, const struct ticket *t,
                                uint32_t flags)
{
    struct answer answer;
    const vow_permit_request q = request_of(a, t, flags);
    vow_future *f = begin_step(a, &answer);
    a->store->ops->acquire(a->store, &q, on_permits, &answer);
    CHECK_INT_EQ(vow_await_drop(f), 0);
    return answer;
}

static struct answer do_release(struct actor *a, const struct ticket *t)
{
    struct answer answer;
    const vow_permit_hold hold = hold_of(t, false);
    vow_future *f = begin_step(a, &answer);
    a->store->ops->release(a->store, &hold, on_permits, &answer);
    CHECK_INT_EQ(vow_await_drop(f), 0);
    return answer;
}

static struct answer do_renew(struct actor *a, const struct ticket *t)
{
    struct answer answer;
    const vow_permit_hold hold = hold_of(t, t->start_ns != 0);
    vow_future *f = begin_step(a, &answer);
    a->store->ops->renew(a->store, &hold, 1, a->h->lease_ms, on_permits,
                         &answer);
    CHECK_INT_EQ(vow_await_drop(f), 0);
    return answer;
}

static struct answer do_limit(struct actor *a, int pool,
                              const vow_pool_limits *limits)
{
    struct answer answer;
    const vow_name name = pool_name(pool);
    vow_future *f = begin_step(a, &answer);
    a->store->ops->limit(a->store, &name, limits, "", on_pools, &answer);
    CHECK_INT_EQ(vow_await_drop(f), 0);
    return answer;
}

static void pause_ms(struct actor *a, uint64_t ms)
{
    CHECK_INT_EQ(vow_sleep(a->h->world.loop, ms), 0);
}

static bool is_open(int code)
{
    return code == VOW_EUNSURE || code == VOW_ESTORE || code == VOW_EAGAIN;
}

/* ---- processes ----------------------------------------------------------- */

static void wake_actor(struct actor *a)
{
    vow_deferred *event = a->event;
    a->event = NULL;
    if (event != NULL)
        (void)vow_resolve_drop(event, vow_nothing());
}

static void on_permit_event(const vow_token *token, void *user)
{
    struct actor *a = user;
    if (a->ticket != NULL &&
        memcmp(token, &a->ticket->token, sizeof(*token)) == 0)
        wake_actor(a);
}

static void on_doubt_event(void *user)
{
    wake_actor(user);
}

static void open_process(struct actor *a)
{
    struct history *h = a->h;
    const struct cas_opts opts = {.timeout_ms = TIMEOUT_MS};
    const vow_store_events events = {
        .on_permit = on_permit_event, .on_doubt = on_doubt_event, .user = a};
    a->service = cas_memory_client(h->server);
    CHECK_INT_EQ(vow__cas_open(h->world.loop, a->service, &opts, &a->store), 0);
    a->store->ops->listen(a->store, &events);
}

static void close_process(struct actor *a)
{
    vow_store *s = a->store;
    a->store = NULL;
    a->service = NULL;
    CHECK_INT_EQ(vow_await_drop(s->ops->close(s)), 0);
}

/* The process dies, or closes the store, and another begins. */
static void end_and_begin(struct actor *a, bool dies)
{
    a->h->deaths += dies;
    if (a->ticket != NULL)
        a->ticket->ended = true;
    a->ticket = NULL;
    if (dies)
        cas_memory_kill(a->service);
    close_process(a);
    open_process(a);
}

/* Waits for an event, or for a time. */
static void wait_event(struct actor *a, uint64_t ms)
{
    vow_loop *loop = a->h->world.loop;
    vow_future *event = vow_promise(loop, &a->event);
    vow_future *late = vow_delay(loop, ms);
    vow_future *both[] = {event, late};
    vow_future *first = vow_race(loop, both, 2);
    CHECK_INT_EQ(vow_await_drop(first), 0);
    wake_actor(a);
    vow_future_unref(event);
    (void)vow_cancel(late, NULL);
    vow_future_unref(late);
}

/* ---- the ledger ---------------------------------------------------------- */

static bool is_live(const struct history *h, const struct ticket *t)
{
    return !t->ended && now_ns(h) < t->valid_ns;
}

/* The largest limit that was in force since a time; 0: any. */
static uint64_t limit_since(const struct history *h, int pool, uint64_t ns)
{
    uint64_t most = h->limit[1];
    if (pool != WEIGHTS && pool != KEY)
        return first_limits(pool).concurrent;
    if (ns <= h->limit_ns[1] && h->limit[0] > most)
        most = h->limit[0];
    return ns <= h->limit_ns[0] ? 8 : most;
}

static void check_sum(struct history *h, const struct grant *g)
{
    EXPECT(h, g->sum <= g->limit || g->limit == 0 ||
                  cas_world_faults(h->server).leases > 0);
}

/* A request has its fence: earlier grants with a larger fence have counted the
 * request, if the request was waiting then. P2. */
static void check_order(struct history *h, size_t ticket)
{
    const struct ticket *t = &h->tickets[ticket];
    for (size_t i = 0; i < h->n_grants; i++) {
        struct grant *g = &h->grants[i];
        const struct ticket *o = &h->tickets[g->ticket];
        if (!g->waiting[ticket] || o->fence < t->fence)
            continue;
        g->sum += t->weight;
        check_sum(h, g);
    }
}

/* P1 and P5. */
static void note_grant(struct actor *a, struct ticket *t, uint64_t fence)
{
    struct history *h = a->h;
    size_t ticket = (size_t)(t - h->tickets);
    CHECK(h->n_grants < TICKETS_MAX);
    t->fence = fence;
    t->waiting = false;
    h->granted++;
    check_order(h, ticket);
    struct grant *g = &h->grants[h->n_grants++];
    *g = (struct grant){.ticket = ticket,
                        .limit = limit_since(h, t->pool, t->asked_ns)};
    for (size_t i = 0; i < h->n_tickets; i++) {
        const struct ticket *o = &h->tickets[i];
        if (o->pool != t->pool)
            continue;
        EXPECT(h, i == ticket || o->fence != fence);
        EXPECT(h, t->pool != LOCK || o->fence <= fence);
        if (!is_live(h, o))
            continue;
        g->sum += o->fence != 0 ? o->weight : 0;
        g->waiting[i] = o->waiting;
    }
    check_sum(h, g);
}

/* P3: every window that ends with this start. */
static void note_start(struct actor *a, struct ticket *t)
{
    struct history *h = a->h;
    uint64_t sum = 0, rate = first_limits(t->pool).rate;
    t->start_ns = now_ns(h);
    for (size_t i = 0; i < h->n_tickets; i++) {
        const struct ticket *o = &h->tickets[i];
        if (o->pool == t->pool && o->start_ns != 0 &&
            o->start_ns + WINDOW_MS * UINT64_C(1000000) >= t->start_ns)
            sum += o->weight;
    }
    EXPECT(h,
           sum <= rate || rate == 0 || cas_world_faults(h->server).leases > 0);
}

/* ---- work ---------------------------------------------------------------- */

/* Releases, again and again; in some histories gives up. */
static void end_ticket(struct actor *a)
{
    struct history *h = a->h;
    struct ticket *t = a->ticket;
    t->ended = true;
    a->ticket = NULL;
    for (int i = 0; i < 20; i++) {
        struct answer r = do_release(a, t);
        if (r.code == 0 || draw(h, 6) == 0)
            return;
        EXPECT(h, is_open(r.code));
        pause_ms(a, draw(h, 100));
    }
}

/* Works and renews until the work is done, the permit is lost, or the process
 * ends. */
static void work(struct actor *a)
{
    struct history *h = a->h;
    struct ticket *t = a->ticket;
    pause_ms(a, draw(h, 2) * draw(h, 200)); /* nobody knows the start yet */
    if (!is_live(h, t)) {
        end_ticket(a);
        return;
    }
    uint64_t end_ns = now_ns(h) + draw(h, 2 * h->lease_ms) * 1000000;
    note_start(a, t);
    while (now_ns(h) < end_ns) {
        pause_ms(a, h->lease_ms / 4);
        if (draw(h, 40) == 0) {
            end_and_begin(a, draw(h, 2) == 0);
            return;
        }
        if (draw(h, 60) == 0)
            pause_ms(a, 2 * h->lease_ms); /* the process was stopped */
        uint64_t sent_ns = now_ns(h);
        struct answer r = do_renew(a, t);
        if (is_open(r.code))
            continue;
        CHECK_INT_EQ(r.code, 0);
        if (r.permit.status != VOW_STATUS_OWNED) {
            EXPECT(h, r.permit.status == VOW_STATUS_NONE);
            t->ended = true;
            break;
        }
        t->valid_ns = sent_ns + h->lease_ms * 1000000;
        EXPECT(h, r.permit.fence == t->fence);
    }
    end_ticket(a);
}

static struct ticket *new_ticket(struct actor *a)
{
    struct history *h = a->h;
    EXPECT(h, h->n_tickets < TICKETS_MAX);
    uint64_t number = h->n_tickets + 1;
    struct ticket *t = &h->tickets[h->n_tickets++];
    *t = (struct ticket){.pool = (int)draw(h, POOLS),
                         .weight = 1,
                         .token = {.bytes = {1}},
                         .asked_ns = now_ns(h)};
    if (t->pool != LOCK)
        t->weight = 1 + (uint32_t)draw(h, 2);
    if (t->pool == HIGH)
        t->weight = 50 + (uint32_t)draw(h, 100);
    memcpy(t->token.bytes + 8, &number, sizeof(number));
    return t;
}

/* A release right behind an acquire: nothing is left. */
static void acquire_and_leave(struct actor *a, struct ticket *t)
{
    struct answer acquired;
    const vow_permit_request q = request_of(a, t, 0);
    vow_future *f = begin_step(a, &acquired);
    a->store->ops->acquire(a->store, &q, on_permits, &acquired);
    if (draw(a->h, 2) == 0)
        pause_ms(a, draw(a->h, 50));
    a->ticket = t;
    end_ticket(a);
    CHECK_INT_EQ(vow_await_drop(f), 0);
}

static void change_limit(struct actor *a)
{
    struct history *h = a->h;
    const vow_pool_limits limits = {.concurrent = 2 + (uint32_t)draw(h, 5)};
    if (h->limiting) /* the last limits would not be known */
        return;
    h->limiting = true;
    h->limits++;
    h->limit_ns[0] = h->limit_ns[1];
    h->limit[0] = h->limit[1];
    h->limit_ns[1] = UINT64_MAX; /* either may be in force */
    if (limits.concurrent > h->limit[0])
        h->limit[0] = limits.concurrent;
    h->limit[1] = h->limit[0];
    struct answer r = do_limit(a, WEIGHTS, &limits);
    EXPECT(h, r.code == 0 || is_open(r.code));
    h->limiting = false;
    if (r.code != 0) /* perhaps later: the largest of all */
        h->limit[1] = 8;
    h->limit_ns[0] = h->limit_ns[1] = now_ns(h);
    if (r.code == 0)
        h->limit[1] = limits.concurrent;
}

/* Tells whether the request is over. */
static bool answer_note(struct actor *a, const struct answer *r,
                        uint64_t sent_ns, uint32_t flags)
{
    struct history *h = a->h;
    struct ticket *t = a->ticket;
    if (is_open(r->code)) {
        if (draw(h, 8) == 0) { /* walks away */
            h->walked++;
            t->ended = true;
            a->ticket = NULL;
            return true;
        }
        t->waiting = false; /* or not: nobody knows */
        pause_ms(a, draw(h, 200));
        return false;
    }
    CHECK_INT_EQ(r->code, 0);
    t->valid_ns = sent_ns + h->lease_ms * 1000000;
    if (r->permit.status == VOW_STATUS_OWNED) {
        if (now_ns(h) < t->valid_ns) {
            note_grant(a, t, r->permit.fence);
            work(a);
        } else {
            end_ticket(a);
        }
        return true;
    }
    if (r->permit.status == VOW_STATUS_WAITING) {
        t->waiting = true;
        h->waited++;
        uint64_t ms = r->permit.again_us / 1000 + 1;
        wait_event(a, ms < h->lease_ms / 3 ? ms : h->lease_ms / 3);
        return false;
    }
    EXPECT(h, r->permit.status == VOW_STATUS_BUSY ||
                  r->permit.status == VOW_STATUS_NONE);
    EXPECT(h, r->permit.status != VOW_STATUS_BUSY || flags != 0);
    t->waiting = false;
    if (r->permit.status == VOW_STATUS_NONE) {
        t->asked_ns = now_ns(h); /* the next acquire is a new request */
        return false;
    }
    t->ended = true;
    a->ticket = NULL;
    return true;
}

/* A request, until the work is done. */
static void one_round(struct actor *a)
{
    struct history *h = a->h;
    struct ticket *t = new_ticket(a);
    uint32_t flags = draw(h, 6) == 0 ? VOW_PERMIT_TRY : 0;
    if (draw(h, 12) == 0) {
        acquire_and_leave(a, t);
        return;
    }
    a->ticket = t;
    for (bool over = false; !over;) {
        uint64_t sent_ns = now_ns(h);
        uint64_t since_ns =
            t->asked_ns > h->healed_ns ? t->asked_ns : h->healed_ns;
        EXPECT(h, h->healed_ns == 0 || /* P4 */
                      sent_ns - since_ns < WAIT_MS_MAX * UINT64_C(1000000));
        if (draw(h, 60) == 0) {
            end_and_begin(a, draw(h, 2) == 0);
            return;
        }
        bool renews = t->waiting && draw(h, 3) == 0;
        struct answer r = renews ? do_renew(a, t) : do_acquire(a, t, flags);
        over = answer_note(a, &r, sent_ns, renews ? 0 : flags);
    }
}

static vow_next actor_main(void *arg)
{
    struct actor *a = arg;
    struct history *h = a->h;
    open_process(a);
    for (int i = 0; i < ROUNDS; i++) {
        pause_ms(a, draw(h, 1500));
        if (draw(h, 10) == 0 && h->healed_ns == 0)
            cas_memory_cut(a->service, true);
        if (draw(h, 12) == 0)
            change_limit(a);
        else
            one_round(a);
        cas_memory_cut(a->service, false);
    }
    a->finished = true;
    return vow_ok(vow_nothing());
}

/* P6. */
static vow_next last_look(void *arg)
{
    struct actor *a = arg;
    struct history *h = a->h;
    pause_ms(a, 130000); /* leases, late joins and their ends are over */
    for (int i = 0; i < POOLS; i++)
        (void)do_limit(a, i, NULL); /* a step ends the leases of the dead */
    pause_ms(a, 10000);
    for (int i = 0; i < POOLS; i++) {
        struct answer r = do_limit(a, i, NULL);
        EXPECT(h, r.code == 0 || r.code == VOW_ENOENT);
        EXPECT(h, r.code != 0 || (r.info.holders == 0 && r.info.waiting == 0 &&
                                  r.info.rate_used == 0));
    }
    for (int i = 0; i < ACTORS; i++)
        close_process(&h->actors[i]);
    return vow_ok(vow_nothing());
}

/* ---- histories ----------------------------------------------------------- */

static struct cas_plan draw_plan(struct history *h)
{
    bool watch = draw(h, 2) == 0;
    return (struct cas_plan){.flags = watch ? CAS_WATCHES : CAS_REGISTERS,
                             .clock = !watch,
                             .seed = draw(h, UINT64_MAX) | 1,
                             .value_max = 1024,
                             .delay_ms = 1 + draw(h, 40),
                             .skew_ms = draw(h, 100),
                             .lost_requests = (unsigned)draw(h, 60),
                             .lost_answers = (unsigned)draw(h, 60),
                             .late_writes = (unsigned)draw(h, 60),
                             .lost_events = (unsigned)draw(h, 100),
                             .doubled_events = (unsigned)draw(h, 100),
                             .lost_leases =
                                 draw(h, 4) == 0 ? (unsigned)draw(h, 30) : 0,
                             .late_ms = 1 + draw(h, 5000)};
}

static void run_history(struct history *h, uint64_t seed)
{
    vow_future *ends[ACTORS];
    *h = (struct history){.seed = seed, .random = seed};
    world_open(&h->world);
    const struct cas_plan plan = draw_plan(h);
    h->lease_ms = 300 + draw(h, 1500);
    h->limit[0] = h->limit[1] = first_limits(WEIGHTS).concurrent;
    h->server = cas_world_new(h->world.loop, &plan);
    for (int i = 0; i < ACTORS; i++) {
        h->actors[i] = (struct actor){.h = h};
        ends[i] = vow_async(h->world.loop, actor_main, &h->actors[i]);
    }
    world_advance_ms(&h->world, FAULTY_MS);
    cas_world_heal(h->server);
    h->healed_ns = now_ns(h);
    world_advance_ms(&h->world, HEALED_MS);
    for (int i = 0; i < ACTORS; i++) {
        EXPECT(h, h->actors[i].finished); /* P4 */
        vow_future_unref(ends[i]);
    }
    vow_future *last = vow_async(h->world.loop, last_look, &h->actors[0]);
    world_advance_ms(&h->world, 200000);
    EXPECT(h, vow_state_of(last) == VOW_FULFILLED);
    vow_future_unref(last);
    h->faults = cas_world_faults(h->server);
    cas_world_free(h->server);
    world_close(&h->world);
}

/* VOW_CAS_SEEDS: how many histories; VOW_CAS_FROM: the first. */
TEST_OPTS(cas_pool_sim, random_histories_keep_the_promises, .timeout_s = 3000)
{
    static struct history h;
    const char *many = getenv("VOW_CAS_SEEDS");
    const char *from = getenv("VOW_CAS_FROM");
    uint64_t n = many == NULL ? SEEDS : strtoull(many, NULL, 10);
    uint64_t first =
        from == NULL ? test_seed() << 20 : strtoull(from, NULL, 10);
    uint64_t granted = 0, waited = 0, deaths = 0, walked = 0, late = 0;
    uint64_t limits = 0;
    for (uint64_t i = 0; i < n; i++) {
        run_history(&h, first + i);
        granted += h.granted;
        waited += h.waited;
        deaths += h.deaths;
        walked += h.walked;
        limits += h.limits;
        late += h.faults.late_done;
    }
    if (n >= SEEDS) { /* else the histories show nothing */
        CHECK(granted > 10 * n);
        CHECK(waited > 5 * n);
        CHECK(deaths > n / 4);
        CHECK(walked > n / 20);
        CHECK(limits > n / 2);
        CHECK(late > n / 4);
    }
}
