/* SPDX-License-Identifier: MIT */
/* http_end_test.c - requests that are late, canceled or closed, at each stage
 * that they can be in.
 */
#include "http_rig.h"

#include "base/clock.h"
#include "names.h"
#include "store/net/stream.h"

#include <poll.h>

/* ---- time --------------------------------------------------------------- */

TEST(http_end, an_answer_that_does_not_come_is_told_in_time)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_post(&p, &b, &w, "/wait");
    reply_heard(&p, &w, 1);
    world_advance_ms(b.w, 999);
    CHECK_INT_EQ(p.told, 0);
    world_advance_ms(b.w, 1);
    CHECK_INT_EQ(p.told, 1);
    CHECK_INT_EQ(p.code, VOW_EUNSURE);
    CHECK_SAYS(&p, &w, "127.0.0.1:%u did not answer within 1000 ms");
    browser_close(&b);
    web_close(&w);
}

/* What is late because this process did not run gets its time again, once: on a
 * machine where every timer is late it still ends. */
TEST(http_end, a_time_begins_anew_once_if_the_process_did_not_run)
{
    struct world w;
    bool forgiven = false;
    world_open(&w);
    world_advance_ms(&w, 1000);
    CHECK(!vow__stream_forgive(w.loop, UINT64_MAX, &forgiven));
    CHECK(!vow__stream_forgive(w.loop, 900 * VOW__NS_PER_MS, &forgiven));
    CHECK(vow__stream_forgive(w.loop, 700 * VOW__NS_PER_MS, &forgiven));
    CHECK(!vow__stream_forgive(w.loop, 700 * VOW__NS_PER_MS, &forgiven));
    world_close(&w);
}

TEST(http_end, time_counts_from_the_call)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_post(&p, &b, &w, "/echo");
    world_advance_ms(b.w, 1000); /* no socket was looked at yet */
    CHECK_INT_EQ(p.told, 1);
    CHECK_INT_EQ(p.code, VOW_ESTORE);
    browser_close(&b);
    web_close(&w);
}

TEST(http_end, one_that_had_to_wait_for_others_was_never_sent)
{
    struct web w;
    struct browser b;
    struct reply first = {.told = 0};
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open_with(&b, HTTP_OPTS(.connections = 1));
    CHECK(reply_ask(&first, &b, web_url(&w, "/wait"),
                    ASK(.timeout_ms = 9000)) != NULL);
    reply_post(&p, &b, &w, "/echo");
    reply_heard(&first, &w, 1);
    world_advance_ms(b.w, 1000);
    CHECK_INT_EQ(p.told, 1);
    CHECK_INT_EQ(p.code, VOW_ESTORE);
    CHECK_SAYS(&p, &w, "no connection to 127.0.0.1:%u was free within 1000 ms");
    web_let(&w, 1, NULL);
    WAIT_FOR(&b, first.told == 1);
    CHECK_STR_EQ(first.body, "hello");
    CHECK_UINT_EQ(web_read(&w, &w.requests), 1);
    reply_free(&first);
    browser_close(&b);
    web_close(&w);
}

/* It is the server's: waiting for others is not counted. */
TEST(http_end, a_part_of_the_time_counts_from_its_turn)
{
    struct web w;
    struct browser b;
    struct reply first = {.told = 0}, p = {.told = 0};
    web_open(&w);
    browser_open_with(&b, HTTP_OPTS(.connections = 1));
    CHECK(reply_ask(&first, &b, web_url(&w, "/wait"),
                    ASK(.timeout_ms = 90000)) != NULL);
    CHECK(reply_ask(&p, &b, web_url(&w, "/wait"),
                    ASK(.timeout_ms = 90000, .part_ms = 1000)) != NULL);
    reply_heard(&first, &w, 1);
    world_advance_ms(b.w, 50000);
    CHECK_INT_EQ(p.told, 0);
    web_let(&w, 1, NULL);
    WAIT_FOR(&b, first.told == 1);
    reply_heard(&p, &w, 2);
    world_advance_ms(b.w, 999);
    CHECK_INT_EQ(p.told, 0);
    world_advance_ms(b.w, 1);
    CHECK_INT_EQ(p.told, 1);
    CHECK_INT_EQ(p.code, VOW_EUNSURE);
    CHECK_SAYS(&p, &w, "127.0.0.1:%u did not answer within 1000 ms");
    reply_free(&first);
    browser_close(&b);
    web_close(&w);
}

TEST(http_end, a_stream_has_its_part_until_it_says_something)
{
    struct web w;
    struct browser b;
    struct reply p[2] = {{.told = 0}};
    web_open(&w);
    browser_open(&b);
    for (int i = 0; i < 2; i++) {
        CHECK(reply_ask(&p[i], &b, web_url(&w, "/stream"),
                        ASK(.on_bytes = reply_on_bytes, .part_ms = 1000)) !=
              NULL);
        reply_heard(&p[i], &w, (size_t)i + 1);
        if (i == 0) {
            web_let(&w, 0, "some");
            WAIT_FOR(&b, p[0].n == 4);
        }
    }
    world_advance_ms(b.w, 999);
    CHECK_INT_EQ(p[1].told, 0);
    world_advance_ms(b.w, 1);
    CHECK_INT_EQ(p[1].told, 1);
    CHECK_INT_EQ(p[1].code, VOW_EUNSURE);
    world_advance_ms(b.w, 100000);
    CHECK_INT_EQ(p[0].told, 0);
    reply_cancel(&p[0]);
    reply_free(&p[0]);
    browser_close(&b);
    web_close(&w);
}

/* A server whose queue of connections is full answers no more of them. */
struct silent {
    int fd, filler;
    uint16_t port;
};

static void silent_open(struct silent *x)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    x->fd = socket(AF_INET, SOCK_STREAM, 0);
    x->filler = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(x->fd, (struct sockaddr *)&at, size) == 0);
    CHECK(listen(x->fd, 0) == 0);
    CHECK(getsockname(x->fd, (struct sockaddr *)&at, &size) == 0);
    CHECK(connect(x->filler, (struct sockaddr *)&at, size) == 0);
    x->port = ntohs(at.sin_port);
}

static void silent_close(struct silent *x)
{
    (void)close(x->fd);
    (void)close(x->filler);
}

static void silent_ask(struct silent *x, struct browser *b, struct reply *p,
                       const struct vow__http_ask *ask)
{
    char url[64];
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", (unsigned)x->port);
    CHECK(reply_ask(p, b, url, ask) != NULL);
    world_advance_ms(b->w, 0);
}

TEST(http_end, a_connection_that_does_not_come_is_told_in_time)
{
    struct silent x;
    struct browser b;
    struct reply p[2] = {{.told = 0}};
    silent_open(&x);
    browser_open_with(&b, HTTP_OPTS(.connect_ms = 50000));
    silent_ask(&x, &b, &p[0], ASK(.timeout_ms = 90000));
    silent_ask(&x, &b, &p[1], ASK(.on_bytes = reply_on_bytes));
    world_advance_ms(b.w, 49999);
    CHECK_INT_EQ(p[0].told + p[1].told, 0);
    world_advance_ms(b.w, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_INT_EQ(p[i].told, 1);
        CHECK_INT_EQ(p[i].code, VOW_ESTORE);
        CHECK_SAYS(&p[i], &x, "127.0.0.1:%u did not answer within 50000 ms");
    }
    browser_close(&b);
    silent_close(&x);
}

TEST(http_end, the_time_to_connect_is_not_the_time_to_answer)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open_with(&b, HTTP_OPTS(.connect_ms = 20000));
    CHECK(reply_ask(&p, &b, web_url(&w, "/wait"), ASK(.timeout_ms = 90000)) !=
          NULL);
    reply_heard(&p, &w, 1);
    world_advance_ms(b.w, 89999);
    CHECK_INT_EQ(p.told, 0);
    web_let(&w, 1, NULL);
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, 0);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http_end, virtual_time_waits_for_an_answer)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_post(&p, &b, &w, "/echo");
    world_run(b.w);
    CHECK_INT_EQ(p.told, 1);
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(vow_loop_now_ns(b.w->loop), 0);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

/* ---- stages ------------------------------------------------------------- */

enum stage {
    JUST_ASKED,
    CONNECTS,
    HEARD,
    IN_MID_STREAM,
    WAITS_FOR_OTHERS,
    LOOKS_UP,
    STAGES
};

struct scene {
    struct web w;
    struct silent x;
    struct browser b;
    struct reply p;
    struct reply other; /* that has the only connection */
};

static void scene_open(struct scene *s, enum stage stage)
{
    memset(s, 0, sizeof(*s));
    web_open(&s->w);
    silent_open(&s->x);
    browser_open_with(&s->b, HTTP_OPTS(.connections = 1));
    if (stage == WAITS_FOR_OTHERS) {
        reply_post(&s->other, &s->b, &s->w, "/wait");
        reply_heard(&s->other, &s->w, 1);
    }
    if (stage == CONNECTS) {
        silent_ask(&s->x, &s->b, &s->p, ASK(.body = NULL));
    } else if (stage == IN_MID_STREAM) {
        reply_stream(&s->p, &s->b, &s->w, "/stream");
        web_let(&s->w, 0, "some");
        WAIT_FOR(&s->b, s->p.n == 4);
    } else if (stage == LOOKS_UP) {
        names.addresses[0] = "127.0.0.1";
        names_block(true);
        CHECK(reply_ask(&s->p, &s->b, "http://etcd.test:1/",
                        ASK(.body = NULL)) != NULL);
        world_advance_ms(s->b.w, 0);
        names_wait_until_asked();
    } else {
        reply_post(&s->p, &s->b, &s->w, "/wait");
    }
    if (stage == HEARD)
        reply_heard(&s->p, &s->w, 1);
}

static void scene_close(struct scene *s)
{
    names_block(false);
    browser_close(&s->b);
    silent_close(&s->x);
    web_close(&s->w);
    reply_free(&s->p);
    reply_free(&s->other);
}

TEST(http_end, one_that_is_canceled_is_never_told)
{
    for (int stage = 0; stage < STAGES; stage++) {
        struct scene s;
        scene_open(&s, (enum stage)stage);
        reply_cancel(&s.p);
        if (stage == WAITS_FOR_OTHERS)
            web_let(&s.w, 1, NULL);
        world_advance_ms(s.b.w, 0);
        struct reply next = {.told = 0}; /* it has the place */
        reply_post(&next, &s.b, &s.w, "/echo");
        WAIT_FOR(&s.b, next.told == 1);
        CHECK_INT_EQ(next.code, 0);
        CHECK_STR_EQ(next.body, "hello");
        world_advance_ms(s.b.w, 100000);
        CHECK_INT_EQ(s.p.told, 0);
        reply_free(&next);
        scene_close(&s);
    }
}

TEST(http_end, closing_tells_what_runs_at_once)
{
    for (int stage = 0; stage < STAGES; stage++) {
        struct scene s;
        scene_open(&s, (enum stage)stage);
        browser_shut(&s.b);
        CHECK_INT_EQ(s.p.told, 1);
        CHECK_INT_EQ(s.p.code, VOW_ECLOSED);
        CHECK_STR_EQ(s.p.why, "closed");
        scene_close(&s);
    }
}

TEST(http_end, one_is_late_at_each_stage)
{
    for (int stage = 0; stage < STAGES; stage++) {
        struct scene s;
        if (stage == IN_MID_STREAM)
            continue; /* has no end */
        scene_open(&s, (enum stage)stage);
        world_advance_ms(s.b.w, 1000);
        CHECK_INT_EQ(s.p.told, 1);
        CHECK_INT_EQ(s.p.code, stage == HEARD ? VOW_EUNSURE : VOW_ESTORE);
        scene_close(&s);
    }
}

/* ---- inside calls ------------------------------------------------------- */

static void cancel_own(struct reply *p)
{
    if (p->r != NULL)
        reply_cancel(p);
}

static void cancel_others(struct reply *p)
{
    struct reply *others = p->user;
    for (int i = 0; i < 4; i++)
        if (&others[i] != p && others[i].r != NULL)
            reply_cancel(&others[i]);
}

static void close_all(struct reply *p)
{
    if (p->b->h != NULL)
        browser_shut(p->b);
}

static void ask_more(struct reply *p)
{
    struct reply *more = p->user;
    if (more->r == NULL && more->told == 0)
        CHECK(reply_ask(more, p->b, more->user, ASK(.body = NULL)) != NULL);
}

TEST(http_end, a_stream_may_be_canceled_by_what_it_says)
{
    struct web w;
    struct browser b;
    struct reply p = {.on_some = cancel_own};
    web_open(&w);
    browser_open(&b);
    reply_stream(&p, &b, &w, "/stream");
    web_let(&w, 0, "enough");
    WAIT_FOR(&b, p.r == NULL);
    struct reply next = {.told = 0};
    reply_get(&next, &b, &w, "/echo");
    CHECK_STR_EQ(next.body, "hello");
    CHECK_INT_EQ(p.told, 0);
    CHECK_STR_EQ(p.body, "enough");
    reply_free(&p);
    reply_free(&next);
    browser_close(&b);
    web_close(&w);
}

TEST(http_end, all_may_be_closed_by_what_a_stream_says)
{
    struct web w;
    struct browser b;
    struct reply p = {.on_some = close_all};
    struct reply other = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_stream(&p, &b, &w, "/stream");
    reply_post(&other, &b, &w, "/wait");
    web_let(&w, 0, "enough");
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, VOW_ECLOSED);
    CHECK_INT_EQ(other.code, VOW_ECLOSED);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http_end, more_may_be_asked_by_what_a_stream_says)
{
    struct web w;
    struct browser b;
    struct reply more = {.told = 0};
    struct reply p = {.on_some = ask_more, .user = &more};
    web_open(&w);
    browser_open(&b);
    reply_stream(&p, &b, &w, "/stream");
    char url[128];
    (void)snprintf(url, sizeof(url), "%s", web_url(&w, "/echo"));
    more.user = url;
    web_let(&w, 0, "ask");
    WAIT_FOR(&b, more.told == 1);
    CHECK_STR_EQ(more.body, "hello");
    reply_cancel(&p);
    reply_free(&p);
    reply_free(&more);
    browser_close(&b);
    web_close(&w);
}

TEST(http_end, an_answer_may_cancel_all_others)
{
    struct web w;
    struct browser b;
    struct reply p[4] = {{.told = 0}};
    web_open(&w);
    browser_open_with(&b, HTTP_OPTS(.connections = 2));
    for (int i = 0; i < 4; i++) { /* two of them wait */
        p[i].on_told = cancel_others;
        p[i].user = p;
        reply_post(&p[i], &b, &w, "/wait");
    }
    WAIT_BUSY(&b, web_read(&w, &w.now) == 2);
    web_let(&w, 4, NULL);
    WAIT_FOR(&b, p[0].told + p[1].told > 0);
    world_run(b.w);
    CHECK_INT_EQ(p[0].told + p[1].told + p[2].told + p[3].told, 1);
    for (int i = 0; i < 4; i++)
        reply_free(&p[i]);
    browser_close(&b);
    web_close(&w);
}

TEST(http_end, an_answer_may_close_all)
{
    struct web w;
    struct browser b;
    struct reply p[4] = {{.told = 0}};
    web_open(&w);
    browser_open_with(&b, HTTP_OPTS(.connections = 2));
    for (int i = 0; i < 4; i++) {
        p[i].on_told = close_all;
        reply_post(&p[i], &b, &w, "/echo");
    }
    world_run(b.w);
    int good = 0;
    for (int i = 0; i < 4; i++) {
        CHECK_INT_EQ(p[i].told, 1);
        CHECK(p[i].code == 0 || p[i].code == VOW_ECLOSED);
        good += p[i].code == 0 ? 1 : 0;
        reply_free(&p[i]);
    }
    CHECK_INT_EQ(good, 1);
    browser_close(&b);
    web_close(&w);
}

static void ask_in_vain(struct reply *p)
{
    CHECK(p->code == VOW_ECLOSED);
    CHECK(vow__http_post(p->user, ASK(.path = "/"), reply_on_told, p) == NULL);
}

TEST(http_end, what_is_closed_takes_no_more)
{
    struct web w;
    struct browser b;
    struct reply p = {.on_told = ask_in_vain};
    web_open(&w);
    browser_open(&b);
    p.user = b.h;
    reply_post(&p, &b, &w, "/echo");
    browser_close(&b);
    CHECK_INT_EQ(p.told, 1);
    web_close(&w);
}

/* ---- names -------------------------------------------------------------- */

TEST(http_end, a_name_is_looked_up_by_a_thread_that_takes_no_signals)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    char url[64];
    sigset_t now;
    names.addresses[0] = "127.0.0.2"; /* nobody is there */
    names.addresses[1] = "127.0.0.1";
    web_open(&w);
    browser_open(&b);
    (void)snprintf(url, sizeof(url), "http://etcd.test:%u/echo",
                   (unsigned)w.port);
    CHECK(reply_ask(&p, &b, url, ASK(.body = NULL)) != NULL);
    WAIT_FOR(&b, p.told == 1);
    CHECK_STR_EQ(p.body, "hello");
    CHECK_INT_EQ(names.masked, 1);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    CHECK_INT_EQ(sigismember(&now, SIGTERM), 0);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http_end, names_are_looked_up_one_after_the_other)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    char url[64];
    names.addresses[0] = "127.0.0.1";
    web_open(&w);
    browser_open(&b);
    for (int i = 0; i < 5; i++) {
        (void)snprintf(url, sizeof(url), "http://etcd%d.test:%u/close", i,
                       (unsigned)w.port);
        reply_free(&p);
        names_block(true);
        CHECK(reply_ask(&p, &b, url, ASK(.body = NULL)) != NULL);
        world_advance_ms(b.w, 0);
        names_wait_until_asked();
        browser_turn_now(&b); /* so that it is waited for */
        names_block(false);
        WAIT_FOR(&b, p.told == 1);
        CHECK_STR_EQ(p.body, "hello");
    }
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http_end, a_silent_address_leaves_time_for_the_others)
{
    struct silent x;
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    char url[64];
    names.addresses[0] = "127.0.0.1";
    names.addresses[1] = "127.0.0.2";
    silent_open(&x);
    web_open_at(&w, "127.0.0.2", x.port);
    browser_open(&b);
    (void)snprintf(url, sizeof(url), "http://etcd.test:%u/echo",
                   (unsigned)w.port);
    CHECK(reply_ask(&p, &b, url, ASK(.timeout_ms = 1000000)) != NULL);
    while (p.told == 0) {
        browser_turn_now(&b);
        world_advance_ms(b.w, 100);
        (void)poll(NULL, 0, 1);
    }
    CHECK_STR_EQ(p.why, "");
    CHECK_STR_EQ(p.body, "hello");
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
    silent_close(&x);
}

static void check_mask(struct reply *p)
{
    sigset_t now;
    (void)p;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
    CHECK_INT_EQ(sigismember(&now, SIGTERM), 0);
}

TEST(http_end, who_is_called_has_the_signals_it_had)
{
    struct web w;
    struct browser b;
    struct reply p = {.on_some = check_mask, .on_told = check_mask};
    web_open(&w);
    browser_open(&b);
    reply_stream(&p, &b, &w, "/stream");
    web_let(&w, 0, "some");
    WAIT_FOR(&b, p.n == 4);
    web_end_stream(&w);
    WAIT_FOR(&b, p.told == 1);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}
