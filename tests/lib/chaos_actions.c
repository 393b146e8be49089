/* SPDX-License-Identifier: MIT */
/* chaos_actions.c - what a schedule may do: one call of the library each, or a
 * few, on handles that chance picks.
 *
 * Whatever runs inside a call, such as the destructor of a value that is
 * refused, may change every slot. So an action has a reference of its own to
 * what it works on, and a slot gets the new handle before the old one is
 * dropped.
 */
#include "chaos.h"
#include <sched.h>
#include <stdlib.h>

enum { TRIES = 4 /* to find an open end */ };

static uint32_t any_end(struct chaos *c)
{
    return chaos_below(c, CHAOS_ENDS);
}

/* ---- both ends ---------------------------------------------------------- */

static void ask(struct chaos *c, uint32_t end)
{
    struct chaos_token *t = chaos_token(c);
    t->once = true;
    t->slot = end;
    vow_on_cancel(c->ends[end], chaos_on_cancel, t);
}

static void make_promise(struct chaos *c)
{
    const uint32_t i = any_end(c);
    vow_deferred *d;
    if (vow_deferred_pending(c->ends[i]))
        return;
    vow_future *f = vow_promise(c->w.loop, &d);
    CHECK_INT_EQ(vow_deferred_pending(d), vow_state_of(f) == VOW_PENDING);
    vow_deferred *old = c->ends[i];
    c->ends[i] = d;
    if (chaos_one_in(c, 3))
        ask(c, i);
    chaos_put(c, f);
    vow_deferred_unref(old);
}

static void make_settled(struct chaos *c)
{
    chaos_put(c, chaos_one_in(c, 2) ? vow_resolved(c->w.loop, chaos_value(c))
                                    : vow_rejected(c->w.loop, chaos_error(c)));
}

/* Settle an end in one of all ways; only the first may win. A late value is
 * destroyed inside the call, which then may do anything to the slot. */
static void settle(struct chaos *c)
{
    VOW_AUTO(vow_deferred) d = vow_deferred_ref(c->ends[any_end(c)]);
    VOW_AUTO(vow_future) f = chaos_pick(c);
    const bool open = vow_deferred_pending(d);
    bool won = open;
    if (d == NULL)
        return;
    switch (chaos_below(c, 5)) {
    case 0:
        won = vow_resolve(d, chaos_value(c));
        break;
    case 1:
        won = vow_reject(d, chaos_error(c));
        break;
    case 2:
        won = vow_reject_code(d, VOW_EAGAIN, "chaos");
        break;
    case 3:
        won = f == NULL ? open : vow_resolve_with(d, f);
        break;
    default:
        won = vow_settle(d, chaos_next(c));
        break;
    }
    CHECK_INT_EQ(won, open);
}

static void settle_and_drop(struct chaos *c)
{
    const uint32_t i = any_end(c);
    vow_deferred *d = c->ends[i];
    if (d == NULL)
        return;
    const bool open = vow_deferred_pending(d);
    c->ends[i] = NULL;
    CHECK_INT_EQ(chaos_one_in(c, 2) ? vow_resolve_drop(d, chaos_value(c))
                                    : vow_reject_drop(d, chaos_error(c)),
                 open);
}

/* Twice at an end that is open, if one is found: the second may replace what
 * the first told. */
static void notify(struct chaos *c)
{
    uint32_t i = any_end(c);
    for (int n = 0; n < TRIES && !vow_deferred_pending(c->ends[i]); n++)
        i = any_end(c);
    VOW_AUTO(vow_deferred) d = vow_deferred_ref(c->ends[i]);
    for (int n = 0; n < 2 && d != NULL; n++) {
        const bool open = vow_deferred_pending(d);
        const bool told = vow_notify(d, chaos_value(c));
        CHECK(told == open || (open && c->w.alloc.fails > 0));
    }
}

static void ask_when_canceled(struct chaos *c)
{
    const uint32_t i = any_end(c);
    if (c->ends[i] != NULL && chaos_one_in(c, 4))
        vow_on_cancel(c->ends[i], NULL, NULL);
    else if (c->ends[i] != NULL)
        ask(c, i);
}

static void drop_end(struct chaos *c)
{
    chaos_drop_end(c, any_end(c));
}

static void drop_future(struct chaos *c)
{
    chaos_drop_future(c, chaos_below(c, CHAOS_FUTURES));
}

static void cancel(struct chaos *c)
{
    VOW_AUTO(vow_future) f = chaos_pick(c);
    if (f == NULL)
        return;
    VOW_AUTO(vow_error) why = chaos_one_in(c, 2) ? chaos_error(c) : NULL;
    const bool pending = vow_state_of(f) == VOW_PENDING;
    CHECK_INT_EQ(vow_cancel(f, why), pending);
}

static void look_at_error(struct chaos *c)
{
    VOW_AUTO(vow_future) f = chaos_pick(c);
    if (f != NULL && vow_state_of(f) == VOW_REJECTED)
        chaos_check_error(vow_error_of(f));
}

/* ---- chaining ----------------------------------------------------------- */

static vow_step any_step(struct chaos *c, struct chaos_token *t)
{
    vow_step s = {.user = t};
    if (!chaos_one_in(c, 4))
        s.ok = chaos_on_ok;
    if (chaos_one_in(c, 2))
        s.fail = chaos_on_fail;
    t->once = true;
    t->unless_canceled = s.ok != NULL && s.fail != NULL;
    return s;
}

static void attach_then(struct chaos *c)
{
    vow_future *f = chaos_pick(c);
    if (f == NULL)
        return;
    struct chaos_token *t = chaos_token(c);
    const vow_step s = any_step(c, t);
    if (chaos_one_in(c, 2)) {
        chaos_put_link(c, vow_then_drop(f, s.ok, s.fail, t), t);
    } else {
        chaos_put_link(c, vow_then(f, s.ok, s.fail, t), t);
        vow_future_unref(f);
    }
}

/* Nobody can cancel it: with a handler for either outcome it runs. */
static void attach_last(struct chaos *c)
{
    vow_future *f = chaos_pick(c);
    if (f == NULL)
        return;
    struct chaos_token *t = chaos_token(c);
    const vow_step s = any_step(c, t);
    const bool accepted = vow_done(f, s.ok, s.fail, t) == 0;
    t->sure = accepted && t->unless_canceled;
    CHECK(accepted || c->w.alloc.fails > 0);
}

static void attach_chain(struct chaos *c)
{
    enum { STEPS_MAX = 3 };
    VOW_AUTO(vow_future) f = chaos_pick(c);
    vow_step steps[STEPS_MAX];
    struct chaos_token *last = NULL;
    if (f == NULL)
        return;
    const uint32_t n = chaos_below(c, STEPS_MAX + 1);
    for (uint32_t i = 0; i < n; i++) {
        last = chaos_token(c);
        last->drops_want = 1;
        steps[i] = any_step(c, last);
        steps[i].drop = chaos_drop;
    }
    vow_future *link = vow_chain(f, steps, n);
    if (last == NULL)
        chaos_put(c, link);
    else
        chaos_put_link(c, link, last);
}

static void attach_finally(struct chaos *c)
{
    VOW_AUTO(vow_future) f = chaos_pick(c);
    if (f == NULL)
        return;
    struct chaos_token *t = chaos_token(c);
    vow_future *link = vow_finally(f, chaos_on_finally, t);
    t->once = true;
    t->sure = vow_state_of(link) == VOW_PENDING; /* canceled or not */
    chaos_put_link(c, link, t);
}

static void attach_listener(struct chaos *c)
{
    VOW_AUTO(vow_future) f = chaos_pick(c);
    if (f == NULL)
        return;
    struct chaos_token *t = chaos_token(c);
    chaos_put_link(c, vow_on_progress(f, chaos_on_progress, t), t);
}

/* ---- one from many, and time -------------------------------------------- */

static vow_future *combine_these(struct chaos *c, vow_future *const *in,
                                 uint32_t n)
{
    switch (chaos_below(c, 4)) {
    case 0:
        return vow_all(c->w.loop, in, n);
    case 1:
        return vow_any(c->w.loop, in, n);
    case 2:
        return vow_race(c->w.loop, in, n);
    default:
        return vow_all_settled(c->w.loop, in, n);
    }
}

static void combine(struct chaos *c)
{
    enum { INPUTS_MAX = 5 };
    vow_future *in[INPUTS_MAX];
    uint32_t n = 0;
    for (uint32_t k = chaos_below(c, INPUTS_MAX + 1); k > 0; k--)
        if ((in[n] = chaos_pick(c)) != NULL)
            n++;
    chaos_put(c, combine_these(c, in, n));
    while (n > 0)
        vow_future_unref(in[--n]);
}

static void delay(struct chaos *c)
{
    chaos_put(c, vow_delay(c->w.loop, chaos_ms(c)));
}

static void limit_time(struct chaos *c)
{
    VOW_AUTO(vow_future) f = chaos_pick(c);
    if (f != NULL)
        chaos_put(c, vow_timeout(f, chaos_ms(c)));
}

static void retry(struct chaos *c)
{
    vow_retry_budget *budget = NULL;
    if (chaos_one_in(c, 3))
        (void)!vow_retry_budget_new(c->w.loop, 50, 1, &budget);
    vow_retry_opts o = {.size = sizeof(o), .budget = budget};
    o.tries = 1 + chaos_below(c, 3);
    o.backoff_ms[0] = 1;
    o.backoff_ms[1] = 1 + chaos_ms(c);
    o.deadline_ms = chaos_one_in(c, 2) ? 1 + chaos_ms(c) : 0;
    o.retry_if = chaos_one_in(c, 2) ? chaos_retry_if : NULL;
    o.retry_if_user = c;
    chaos_put(c, vow_retry(c->w.loop, chaos_start, chaos_token(c), &o));
    vow_retry_budget_unref(budget);
}

/* ---- scopes ------------------------------------------------------------- */

static vow_scope *any_scope(struct chaos *c)
{
    return vow_scope_ref(c->scopes[chaos_below(c, CHAOS_SCOPES)]);
}

static void make_or_drop_scope(struct chaos *c)
{
    const uint32_t i = chaos_below(c, CHAOS_SCOPES);
    if (c->scopes[i] != NULL) {
        chaos_drop_scope(c, i);
        return;
    }
    VOW_AUTO(vow_scope) parent = any_scope(c);
    vow_scope_opts o = {.size = sizeof(o)};
    o.parent = chaos_one_in(c, 2) ? parent : NULL;
    o.flags = chaos_one_in(c, 3) ? VOW_SCOPE_FAIL_FAST : 0;
    o.deadline_ms = chaos_one_in(c, 2) ? chaos_ms(c) : 0;
    const int rc = vow_scope_new(c->w.loop, &o, &c->scopes[i]);
    CHECK(rc == 0 || (rc == VOW_ENOMEM && c->w.alloc.fails > 0));
    CHECK_INT_EQ(c->scopes[i] != NULL, rc == 0);
}

static void join_scope(struct chaos *c)
{
    VOW_AUTO(vow_future) f = chaos_pick(c);
    VOW_AUTO(vow_scope) s = any_scope(c);
    if (f != NULL && s != NULL)
        chaos_put(c, vow_scope_add(s, f));
}

static void cancel_scope(struct chaos *c)
{
    VOW_AUTO(vow_scope) s = any_scope(c);
    if (s == NULL || chaos_one_in(c, 2))
        return;
    VOW_AUTO(vow_error) why = chaos_one_in(c, 2) ? chaos_error(c) : NULL;
    const bool before = vow_scope_canceled(s);
    CHECK_INT_EQ(vow_scope_cancel(s, why), !before);
    CHECK(vow_scope_canceled(s));
    CHECK_UINT_EQ(vow_scope_remaining_ms(s), 0);
    chaos_check_error(vow_scope_cause(s));
}

static void wait_for_scope(struct chaos *c)
{
    VOW_AUTO(vow_scope) s = any_scope(c);
    if (s != NULL)
        chaos_put(c, vow_scope_wait(s));
}

static void add_or_remove_hook(struct chaos *c)
{
    const uint32_t i = chaos_below(c, CHAOS_HOOKS);
    VOW_AUTO(vow_scope) s = any_scope(c);
    if (s == NULL || chaos_one_in(c, 3)) {
        chaos_drop_hook(c, i);
        return;
    }
    struct chaos_token *t = chaos_token(c);
    t->once = true;
    t->slot = i;
    const int rc = vow_hook_add(&c->hooks[i].hook, s, chaos_on_hook, t);
    CHECK_INT_EQ(rc, c->hooks[i].added ? VOW_EBUSY : 0);
    c->hooks[i].added = true;
}

/* ---- fibers, posts, remotes --------------------------------------------- */

static void start_fiber(struct chaos *c)
{
    struct chaos_token *t = chaos_token(c);
    vow_future *f = vow_async(c->w.loop, chaos_fiber, t);
    t->once = true;
    t->sure = vow_state_of(f) == VOW_PENDING;
    chaos_put(c, f);
}

/* Wherever this is: in a fiber it waits, elsewhere it is told so. */
static void wait_here(struct chaos *c)
{
    chaos_wait(c);
}

static void post(struct chaos *c)
{
    struct chaos_token *t = chaos_token(c);
    t->once = true;
    t->sure = vow_loop_post(c->w.loop, chaos_post, t) == 0;
}

/* None while the loop is run to its end: it would wait for it. */
static void make_remote(struct chaos *c)
{
    const uint32_t i = chaos_below(c, CHAOS_REMOTES);
    vow_remote *r;
    if (c->waits || c->remotes[i].remote != NULL)
        return;
    vow_future *f = vow_promise_remote(c->w.loop, &r);
    CHECK_INT_EQ(r != NULL, vow_state_of(f) == VOW_PENDING);
    c->remotes[i].remote = r;
    c->remotes[i].settled = false;
    chaos_put(c, f);
}

static void settle_remote(struct chaos *c)
{
    const uint32_t i = chaos_below(c, CHAOS_REMOTES);
    VOW_AUTO(vow_remote) r = vow_remote_ref(c->remotes[i].remote);
    if (r == NULL)
        return;
    const bool open = !c->remotes[i].settled && !c->closing;
    const uint32_t way = chaos_below(c, 4);
    if (way == 0) {
        (void)vow_notify_any(r, chaos_value(c));
    } else if (way == 1) {
        chaos_drop_remote(c, i);
    } else {
        c->remotes[i].settled = true;
        bool won = way == 2 ? vow_resolve_any(r, chaos_value(c))
                            : vow_reject_any(r, chaos_error(c));
        CHECK(won == open || c->closing);
    }
}

/* ---- the loop ----------------------------------------------------------- */

static void add_line(const vow_census *line, void *user)
{
    *(size_t *)user += line->pending + line->settled;
}

static void count(struct chaos *c)
{
    vow_loop_stats st;
    size_t sum = 0, scopes = 0;
    vow_loop_stats_get(c->w.loop, &st);
    for (uint32_t i = 0; i < CHAOS_SCOPES; i++)
        scopes += c->scopes[i] != NULL;
    CHECK(st.pending <= st.futures);
    CHECK(st.scopes >= scopes);
    CHECK(st.fibers >= (size_t)c->fibers);
    if (vow_loop_census(c->w.loop, add_line, &sum) == 0)
        CHECK_UINT_EQ(sum, st.futures);
    if (chaos_one_in(c, 4))
        vow_loop_trim(c->w.loop);
}

/* What the loop runs may not run it. Destructors of values that are refused at
 * the top may: then what is ready runs here, as if from the top. */
static void run_loop_here(struct chaos *c)
{
    vow_loop *loop = c->w.loop;
    const int depth = c->depth;
    if (c->running > 0) {
        CHECK_INT_EQ(vow_loop_turn(loop), VOW_EBUSY); /* C6 */
        CHECK_INT_EQ(vow_loop_run(loop), VOW_EBUSY);
        CHECK_INT_EQ(vow_loop_close(loop), VOW_EBUSY);
        return;
    }
    c->depth = 0;
    c->running++;
    const int rc = vow_loop_turn(loop);
    c->running--;
    c->depth = depth;
    CHECK(rc == 0 || rc == VOW_EBUSY);
}

/* ---- threads ------------------------------------------------------------ */

static vow_next work_on_pool(vow_job *job, void *arg)
{
    struct chaos_token *t = arg;
    vow_loop *loop = vow_job_loop(job);
    vow_bytes *b;
    const uint32_t runs = ++t->runs;
    CHECK_UINT_EQ(runs, 1);
    (void)vow_job_notify(job, vow_int(1));
    if (t->slot == 0 && vow_bytes_new(loop, "chaotic", 8, &b) == 0)
        (void)vow_job_notify(job, vow_bytes_value(b));
    if (!vow_job_canceled(job))
        sched_yield();
    if (t->slot == 1) {
        vow_value_drop(chaos_value_of(t));
        return vow_fail(vow_error_new(loop, VOW_EIO, "on the pool"));
    }
    return vow_ok(chaos_value_of(t));
}

static void work(struct chaos *c)
{
    struct chaos_token *t = chaos_token(c);
    t->drops_if_run = true;
    t->slot = chaos_below(c, 3);
    chaos_put(c, vow_work(c->w.loop, work_on_pool, t));
}

/* What a thread of ours has. All is made on the loop's thread, so that it may
 * outlive the loop. */
struct errand {
    vow_remote *remote;
    struct chaos_token *news;
    struct chaos_token *result; /* NULL: the remote is dropped unsettled */
    vow_error *error;           /* instead of it, or NULL */
    struct chaos_token *post;   /* or NULL */
    uint32_t yields;
};

static void *settle_from_afar(void *arg)
{
    struct errand *e = arg;
    vow_remote *r = e->remote;
    if (e->post != NULL)
        e->post->sure =
            vow_loop_post(vow_remote_loop(r), chaos_post, e->post) == 0;
    for (uint32_t i = 0; i < e->yields; i++)
        sched_yield();
    (void)vow_notify_any(r, chaos_value_of(e->news));
    if (e->error != NULL)
        (void)vow_reject_any(r, e->error);
    else if (e->result != NULL && vow_resolve_any(r, chaos_value_of(e->result)))
        CHECK(!vow_resolve_any(r, vow_nothing()));
    vow_remote_unref(r);
    free(e);
    return NULL;
}

static struct errand *new_errand(struct chaos *c, vow_remote *r)
{
    struct errand *e = calloc(1, sizeof(*e));
    CHECK(e != NULL);
    e->remote = r;
    e->news = chaos_token(c);
    e->yields = chaos_below(c, 8);
    if (chaos_one_in(c, 4)) /* without a cause, which would stay with us */
        e->error = vow_error_new(c->w.loop, VOW_EIO, "error %d", 8);
    else if (!chaos_one_in(c, 3))
        e->result = chaos_token(c);
    if (!c->plan->close_first && chaos_one_in(c, 2)) {
        e->post = chaos_token(c);
        e->post->once = true;
    }
    return e;
}

static void start_thread(struct chaos *c)
{
    vow_remote *r;
    if (c->n_threads == CHAOS_THREADS)
        return;
    vow_future *f = vow_promise_remote(c->w.loop, &r);
    if (r != NULL)
        CHECK_INT_EQ(pthread_create(&c->threads[c->n_threads++], NULL,
                                    settle_from_afar, new_errand(c, r)),
                     0);
    chaos_put(c, f);
}

/* ---- the table ---------------------------------------------------------- */

const struct chaos_action chaos_actions[] = {
    {"make_promise", make_promise, 6, false},
    {"make_settled", make_settled, 1, false},
    {"settle", settle, 3, false},
    {"settle_and_drop", settle_and_drop, 1, false},
    {"notify", notify, 4, false},
    {"ask_when_canceled", ask_when_canceled, 1, false},
    {"drop_end", drop_end, 1, false},
    {"drop_future", drop_future, 2, false},
    {"cancel", cancel, 3, false},
    {"look_at_error", look_at_error, 1, false},
    {"attach_then", attach_then, 3, false},
    {"attach_last", attach_last, 1, false},
    {"attach_chain", attach_chain, 1, false},
    {"attach_finally", attach_finally, 1, false},
    {"attach_listener", attach_listener, 2, false},
    {"combine", combine, 1, false},
    {"delay", delay, 1, false},
    {"limit_time", limit_time, 1, false},
    {"retry", retry, 1, false},
    {"make_or_drop_scope", make_or_drop_scope, 1, false},
    {"join_scope", join_scope, 2, false},
    {"cancel_scope", cancel_scope, 1, false},
    {"wait_for_scope", wait_for_scope, 1, false},
    {"add_or_remove_hook", add_or_remove_hook, 1, false},
    {"start_fiber", start_fiber, 1, false},
    {"wait_here", wait_here, 1, false},
    {"post", post, 1, false},
    {"make_remote", make_remote, 1, false},
    {"settle_remote", settle_remote, 1, false},
    {"count", count, 1, false},
    {"run_loop_here", run_loop_here, 1, false},
    {"work", work, 2, true},
    {"start_thread", start_thread, 2, true},
};
const uint32_t chaos_action_count =
    sizeof(chaos_actions) / sizeof(chaos_actions[0]);
