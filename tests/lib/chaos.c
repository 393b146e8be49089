/* SPDX-License-Identifier: MIT */
/* chaos.c - the handles of a schedule, and the functions that the library
 * calls. Each of these checks what was promised to it, and acts in turn. */
#define _GNU_SOURCE 1
#include "chaos.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEPTH = 3, /* of actions in what actions call */
    TRIES = 4, /* to find a future */
    BYTES = 8  /* in a buffer */
};

const char *const chaos_place_names[] = {
#define PLACE_NAME(name) #name,
    CHAOS_PLACES(PLACE_NAME)
#undef PLACE_NAME
};

/* ---- chance ------------------------------------------------------------- */

uint32_t chaos_below(struct chaos *c, uint32_t n)
{
    return (uint32_t)((test_random(&c->random) >> 32) * n >> 32);
}

uint64_t chaos_ms(struct chaos *c)
{
    return chaos_below(c, c->plan->threads ? 4 : 50);
}

bool chaos_one_in(struct chaos *c, uint32_t n)
{
    return chaos_below(c, n) == 0;
}

/* The next allocation that fails; sometimes all behind it, until the next
 * action. */
static void plan_fault(struct chaos *c)
{
    struct test_alloc *a = &c->w.alloc;
    const uint32_t one_in = c->plan->fault_one_in;
    if (one_in == 0 || a->allocs < a->fail_at)
        return;
    a->fail_at = a->allocs + 1 + chaos_below(c, 2 * one_in - 1);
    a->fail_forever = chaos_one_in(c, 8);
}

static uint32_t weight(const struct chaos *c, uint32_t action)
{
    const struct chaos_action *a = &chaos_actions[action];
    return a->threads && !c->plan->threads ? 0 : a->weight;
}

static uint32_t draw_action(struct chaos *c)
{
    uint32_t sum = 0, i = 0;
    for (uint32_t k = 0; k < chaos_action_count; k++)
        sum += weight(c, k);
    for (uint32_t at = chaos_below(c, sum); at >= weight(c, i); i++)
        at -= weight(c, i);
    return i;
}

static void act_once(struct chaos *c, enum chaos_place place)
{
    const uint32_t i = draw_action(c);
    if (c->trace)
        fprintf(stderr, "%*s%s: %s\n", 2 * c->depth, "",
                chaos_place_names[place], chaos_actions[i].name);
    c->tally->actions[i]++;
    c->tally->places[place]++;
    c->left--;
    c->action = chaos_actions[i].name;
    plan_fault(c);
    c->depth++;
    chaos_actions[i].fn(c);
    c->depth--;
}

void chaos_act(struct chaos *c, enum chaos_place place)
{
    if (c->depth >= DEPTH || (place != CHAOS_TOP && !chaos_one_in(c, 2)))
        return;
    uint32_t n = place == CHAOS_TOP ? 1 : 1 + chaos_below(c, 3);
    for (; n > 0 && c->left > 0; n--)
        act_once(c, place);
}

/* ---- tokens ------------------------------------------------------------- */

struct chaos_token *chaos_token(struct chaos *c)
{
    struct chaos_token *t = calloc(1, sizeof(*t));
    CHECK(t != NULL);
    t->chaos = c;
    t->what = c->action;
    t->next = c->tokens;
    c->tokens = t;
    return t;
}

/* Its function runs, from the queue. */
static struct chaos *ran(struct chaos_token *t, enum chaos_place place)
{
    struct chaos *c = t->chaos;
    const uint32_t runs = ++t->runs;
    if (t->once && runs > 1)
        FAIL("the function of %s runs again", t->what);
    if (t->drops > 0)
        FAIL("the function of %s runs after its drop", t->what);
    CHECK(pthread_equal(pthread_self(), c->thread));
    CHECK(c->running > 0);
    CHECK_INT_EQ(c->depth, 0); /* C1 */
    chaos_act(c, place);
    return c;
}

/* It is destroyed: on the loop's thread, else where nothing else is allowed. */
static void dropped(struct chaos_token *t, enum chaos_place place)
{
    if (++t->drops > 1)
        FAIL("what %s gave away is dropped again", t->what);
    if (pthread_equal(pthread_self(), t->chaos->thread))
        chaos_act(t->chaos, place);
}

void chaos_drop(void *user)
{
    dropped(user, CHAOS_DROP);
}

static void destroy_value(void *user)
{
    dropped(user, CHAOS_VALUE);
}

void chaos_check_token(const struct chaos_token *t)
{
    const uint32_t want = t->drops_if_run ? t->runs : t->drops_want;
    if (t->drops != want)
        FAIL("what %s gave away was dropped %u times, want %u", t->what,
             t->drops, want);
    if (t->sure && t->runs != 1)
        FAIL("the function of %s ran %u times, want 1", t->what, t->runs);
}

/* The link is let go. What did not run although it has a handler for every
 * outcome was canceled, or refused for lack of memory. */
void chaos_check_link(struct chaos_token *t)
{
    vow_future *link = t->link;
    t->link = NULL;
    const enum vow_state state = vow_state_of(link);
    const int code = vow_error_code(vow_error_of(link));
    if (state != VOW_PENDING && t->unless_canceled && t->runs == 0 &&
        code != VOW_ECANCELED &&
        (code != VOW_ENOMEM || t->chaos->w.alloc.fails == 0))
        FAIL("the function of %s did not run, its link has state %d, code %d",
             t->what, state, code);
    vow_future_unref(link);
}

/* ---- handles ------------------------------------------------------------ */

vow_future *chaos_pick(struct chaos *c)
{
    uint32_t i = chaos_below(c, CHAOS_FUTURES);
    for (int n = 0; n < TRIES && c->futures[i].future == NULL; n++)
        i = chaos_below(c, CHAOS_FUTURES);
    vow_future *f = c->futures[i].future;
    if (f == NULL)
        return NULL;
    const enum vow_state now = vow_state_of(f);
    const vow_value value = vow_get(f);
    if (c->futures[i].seen != VOW_PENDING) { /* C4 */
        CHECK_INT_EQ(now, c->futures[i].seen);
        CHECK_PTR_EQ(value.as.ptr, c->futures[i].value.as.ptr);
        CHECK_UINT_EQ(value.tag, c->futures[i].value.tag);
    }
    c->futures[i].seen = now;
    c->futures[i].value = value;
    chaos_check_value(value);
    return vow_future_ref(f);
}

/* The old one goes last: its destructors find the new one in place. */
void chaos_put(struct chaos *c, vow_future *f)
{
    const uint32_t i = chaos_below(c, CHAOS_FUTURES);
    vow_future *old = f;
    CHECK(f != NULL);
    if (!chaos_one_in(c, 3)) {
        old = c->futures[i].future;
        c->futures[i].future = f;
        c->futures[i].seen = VOW_PENDING;
    }
    vow_future_unref(old);
}

void chaos_put_link(struct chaos *c, vow_future *f, struct chaos_token *t)
{
    if (chaos_one_in(c, 4))
        t->link = vow_future_ref(f);
    chaos_put(c, f);
}

void chaos_drop_future(struct chaos *c, uint32_t slot)
{
    vow_future *f = c->futures[slot].future;
    c->futures[slot].future = NULL;
    vow_future_unref(f);
}

void chaos_drop_end(struct chaos *c, uint32_t slot)
{
    vow_deferred *d = c->ends[slot];
    c->ends[slot] = NULL;
    vow_deferred_unref(d);
}

void chaos_drop_scope(struct chaos *c, uint32_t slot)
{
    vow_scope *s = c->scopes[slot];
    c->scopes[slot] = NULL;
    vow_scope_unref(s);
}

void chaos_drop_hook(struct chaos *c, uint32_t slot)
{
    const bool added = c->hooks[slot].added;
    c->hooks[slot].added = false;
    CHECK_INT_EQ(vow_hook_remove(&c->hooks[slot].hook), added);
}

void chaos_drop_remote(struct chaos *c, uint32_t slot)
{
    vow_remote *r = c->remotes[slot].remote;
    c->remotes[slot].remote = NULL;
    vow_remote_unref(r);
}

/* ---- values, errors, outcomes ------------------------------------------- */

vow_value chaos_value_of(struct chaos_token *t)
{
    t->drops_want = 1;
    return vow_own(t, destroy_value);
}

vow_value chaos_value(struct chaos *c)
{
    vow_bytes *b;
    switch (chaos_below(c, 6)) {
    case 0:
        return vow_nothing();
    case 1:
        return vow_int(4);
    case 2:
        if (vow_bytes_new(c->w.loop, "chaotic", BYTES, &b) < 0)
            return vow_real(0.5);
        return vow_bytes_value(b);
    default:
        return chaos_value_of(chaos_token(c));
    }
}

static void check_leaf(vow_value v)
{
    vow_bytes *b = vow_as_bytes(v);
    if (b != NULL) {
        CHECK_UINT_EQ(vow_bytes_size(b), BYTES);
        CHECK_MEM_EQ(vow_bytes_data(b), "chaotic", BYTES);
    } else if (vow_kind_of(v) == VOW_OWNED) {
        const struct chaos_token *t = vow_as_ptr(v);
        if (t->drops > 0) /* C3 */
            FAIL("a value of %s is read after it was destroyed", t->what);
    }
}

void chaos_check_value(vow_value v)
{
    check_leaf(v);
    for (size_t i = 0; i < vow_list_size(v); i++) {
        CHECK(vow_state_of(vow_list_at(v, i)) != VOW_PENDING);
        check_leaf(vow_list_get(v, i));
    }
}

vow_error *chaos_error(struct chaos *c)
{
    vow_future *f = chaos_one_in(c, 3) ? chaos_pick(c) : NULL;
    vow_error *cause = f == NULL ? NULL : vow_error_of(f);
    vow_error *e = vow_error_wrap(c->w.loop, VOW_EIO, cause, "error %d", 7);
    vow_future_unref(f);
    if (chaos_one_in(c, 4))
        vow_error_set_retry_after_ms(e, chaos_ms(c));
    return e;
}

void chaos_check_error(vow_error *e)
{
    char text[80];
    CHECK(vow_error_code(e) < 0);
    CHECK(vow_error_code(vow_error_root(e)) < 0);
    CHECK(vow_error_describe(e, text, sizeof(text)) > 0);
    for (size_t i = 0; i < vow_error_count(e); i++)
        CHECK(vow_error_code(vow_error_at(e, i)) < 0);
}

vow_next chaos_next(struct chaos *c)
{
    vow_future *f;
    switch (chaos_below(c, 7)) {
    case 0:
        return vow_fail(chaos_error(c));
    case 1:
        return vow_fail_code(VOW_EAGAIN, NULL);
    case 2:
        return vow_pass();
    case 3:
    case 4:
        f = chaos_pick(c);
        return f == NULL ? vow_pass() : vow_follow(f);
    default:
        return vow_ok(chaos_value(c));
    }
}

/* ---- what the library calls --------------------------------------------- */

vow_next chaos_on_ok(vow_value v, void *user)
{
    chaos_check_value(v);
    struct chaos *c = ran(user, CHAOS_HANDLER);
    chaos_check_value(v);
    return chaos_next(c);
}

vow_next chaos_on_fail(vow_error *e, void *user)
{
    chaos_check_error(e);
    struct chaos *c = ran(user, CHAOS_HANDLER);
    chaos_check_error(e);
    return chaos_next(c);
}

vow_next chaos_on_finally(void *user)
{
    return chaos_next(ran(user, CHAOS_FINALLY));
}

void chaos_on_progress(vow_value v, void *user)
{
    const struct chaos_token *t = user;
    if (t->link != NULL)
        CHECK_INT_EQ(vow_state_of(t->link), VOW_PENDING);
    chaos_check_value(v);
    ran(user, CHAOS_PROGRESS);
    chaos_check_value(v);
}

void chaos_on_cancel(vow_error *why, void *user)
{
    const struct chaos_token *t = user;
    CHECK_INT_EQ(vow_error_code(why), VOW_ECANCELED);
    struct chaos *c = ran(user, CHAOS_CANCEL);
    chaos_check_error(why);
    if (c->ends[t->slot] != NULL && chaos_one_in(c, 2))
        (void)vow_reject(c->ends[t->slot], vow_error_ref(why));
}

void chaos_on_hook(vow_error *why, void *user)
{
    const struct chaos_token *t = user;
    CHECK_INT_EQ(vow_error_code(why), VOW_ECANCELED);
    CHECK(t->chaos->hooks[t->slot].added);
    t->chaos->hooks[t->slot].added = false;
    ran(user, CHAOS_HOOK);
    chaos_check_error(why);
}

vow_future *chaos_start(vow_loop *loop, uint32_t attempt, void *user)
{
    struct chaos *c = ran(user, CHAOS_START);
    CHECK_UINT_EQ(attempt, ((struct chaos_token *)user)->runs);
    vow_future *f = chaos_one_in(c, 2) ? chaos_pick(c) : NULL;
    if (f != NULL)
        return f;
    switch (chaos_below(c, 4)) {
    case 0:
        return NULL; /* refused */
    case 1:
        return vow_delay(loop, chaos_ms(c));
    case 2:
        return vow_resolved(loop, chaos_value(c));
    default:
        return vow_rejected(loop, chaos_error(c));
    }
}

bool chaos_retry_if(vow_error *e, void *user)
{
    struct chaos *c = user;
    chaos_check_error(e);
    CHECK_INT_EQ(c->depth, 0);
    chaos_act(c, CHAOS_START);
    return !chaos_one_in(c, 4);
}

vow_next chaos_fiber(void *user)
{
    struct chaos_token *t = user;
    struct chaos *c = ran(t, CHAOS_FIBER);
    c->fibers++;
    for (uint32_t n = chaos_below(c, 4); n > 0; n--) {
        CHECK(vow_in_fiber(c->w.loop));
        chaos_wait(c);
        CHECK_INT_EQ(c->depth, 0);
        chaos_act(c, CHAOS_FIBER);
    }
    c->fibers--;
    return chaos_next(c);
}

/* Others act while this stack waits: what is counted is this stack's. */
void chaos_wait(struct chaos *c)
{
    vow_future *f = chaos_pick(c);
    const bool able = vow_in_fiber(c->w.loop);
    const int depth = c->depth;
    int rc;
    c->depth = 0;
    if (f == NULL)
        rc = vow_yield(c->w.loop);
    else if (chaos_one_in(c, 3))
        rc = vow_sleep(c->w.loop, chaos_ms(c));
    else if ((rc = vow_await(f)) == 0)
        CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    c->depth = depth;
    CHECK(rc <= 0);
    CHECK_INT_EQ(rc != VOW_ENOFIBER, able);
    if (f != NULL)
        chaos_check_value(vow_get(f));
    c->depth++;
    vow_future_unref(f);
    c->depth--;
}

void chaos_post(void *user)
{
    ran(user, CHAOS_POST);
}

void chaos_on_unhandled(vow_error *e, const char *site, void *user)
{
    struct chaos *c = user;
    const int code = vow_error_code(e);
    CHECK(code != VOW_ECANCELED && code != VOW_ECLOSED);
    CHECK(strstr(site, "chaos") != NULL || site[0] == '\0');
    chaos_check_error(e);
    chaos_act(c, CHAOS_UNHANDLED);
    chaos_check_error(e);
}
