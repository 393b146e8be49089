/* SPDX-License-Identifier: MIT */
/* http_test.c - answers, streams, connections, and what is asked without an
 * answer.
 */
#include "fault.h"
#include "http_rig.h"
#include "names.h"

#include <netdb.h>

/* ---- answers ------------------------------------------------------------ */

TEST(http, a_body_is_sent_and_the_answer_comes)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_get(&p, &b, &w, "/echo");
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(p.status, 200);
    CHECK_STR_EQ(p.body, "hello");
    CHECK(strncmp(w.head, "POST /echo HTTP/1.1\r\n", 21) == 0);
    CHECK(strstr(w.head, "Expect") == NULL);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http, headers_are_sent_and_those_of_the_last_one_are_not)
{
    struct web w;
    struct browser b;
    const char *const some[] = {"Authorization: secret", "X-One: 1", NULL};
    const char *const other[] = {"Authorization: secret", NULL};
    struct reply p[4] = {{.told = 0}};
    web_open(&w);
    browser_open_with(&b, HTTP_OPTS(.connections = 1));
    for (int i = 0; i < 2; i++) {
        CHECK(reply_ask(&p[i], &b, web_url(&w, "/echo"), ASK(.header = some)));
        WAIT_FOR(&b, p[i].told == 1);
        CHECK(strstr(w.head, "Authorization: secret\r\n") != NULL);
        CHECK(strstr(w.head, "X-One: 1\r\n") != NULL);
    }
    CHECK(reply_ask(&p[2], &b, web_url(&w, "/echo"), ASK(.header = other)));
    WAIT_FOR(&b, p[2].told == 1);
    CHECK(strstr(w.head, "Authorization: secret\r\n") != NULL);
    CHECK(strstr(w.head, "X-One") == NULL);
    reply_post(&p[3], &b, &w, "/echo");
    WAIT_FOR(&b, p[3].told == 1);
    CHECK(strstr(w.head, "Authorization") == NULL);
    for (int i = 0; i < 4; i++)
        reply_free(&p[i]);
    browser_close(&b);
    web_close(&w);
}

TEST(http, what_is_asked_with_is_copied)
{
    struct web w;
    struct browser b;
    char url[128];
    char line[] = "X-Mine: yes";
    char body[] = "bytes";
    const char *header[] = {line, NULL};
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    (void)snprintf(url, sizeof(url), "%s", web_url(&w, "/echo"));
    CHECK(reply_ask(&p, &b, url,
                    ASK(.header = header, .body = body, .body_size = 5)));
    memset(url, 'x', sizeof(url) - 1);
    memset(line, 'x', sizeof(line) - 1);
    memset(body, 'x', sizeof(body) - 1);
    header[0] = NULL;
    WAIT_FOR(&b, p.told == 1);
    CHECK_STR_EQ(p.body, "bytes");
    CHECK(strstr(w.head, "X-Mine: yes\r\n") != NULL);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http, an_empty_body_is_sent_and_comes_back)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    CHECK(reply_ask(&p, &b, web_url(&w, "/echo"), ASK(.body = "")));
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(p.n, 0);
    browser_close(&b);
    web_close(&w);
}

TEST(http, long_bodies_go_and_come_whole)
{
    const size_t n = 1500000;
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    uint64_t random = 1;
    char *bytes = malloc(n);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)test_random(&random);
    web_open(&w);
    browser_open(&b);
    CHECK(reply_ask(&p, &b, web_url(&w, "/echo"),
                    ASK(.body = bytes, .body_size = n)));
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(p.n, n);
    CHECK_MEM_EQ(p.body, bytes, n);
    reply_get(&p, &b, &w, "/big/20000000");
    CHECK_UINT_EQ(p.n, 20000000);
    for (size_t i = 0; i < p.n; i++)
        if (p.body[i] != (char)('a' + i % 23))
            FAIL("byte %zu is wrong", i);
    reply_free(&p);
    free(bytes);
    browser_close(&b);
    web_close(&w);
}

TEST(http, an_answer_that_is_too_long_ends_it)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    CHECK(reply_ask(&p, &b, web_url(&w, "/big/1000"), ASK(.answer_max = 999)));
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, VOW_E2BIG);
    CHECK_UINT_EQ(p.n, 0);
    CHECK_SAYS(&p, &w, "the answer of 127.0.0.1:%u is longer than 999 bytes");
    reply_free(&p);
    CHECK(reply_ask(&p, &b, web_url(&w, "/big/999"), ASK(.answer_max = 999)));
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(p.n, 999);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http, other_answers_are_answers_too)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_get(&p, &b, &w, "/status/503");
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(p.status, 503);
    CHECK_STR_EQ(p.body, "no");
    reply_get(&p, &b, &w, "/status/401");
    CHECK_UINT_EQ(p.status, 401);
    CHECK_STR_EQ(p.body, "no");
    reply_get(&p, &b, &w, "/redirect"); /* it is not followed */
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(p.status, 307);
    CHECK_UINT_EQ(web_read(&w, &w.requests), 3);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http, the_environment_does_not_send_it_to_others)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    CHECK(setenv("http_proxy", "http://127.0.0.1:1", 1) == 0);
    CHECK(setenv("all_proxy", "http://127.0.0.1:1", 1) == 0);
    browser_open(&b);
    reply_get(&p, &b, &w, "/echo");
    CHECK_STR_EQ(p.why, "");
    CHECK_STR_EQ(p.body, "hello");
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

/* ---- streams ------------------------------------------------------------ */

TEST(http, a_stream_is_handed_on_as_it_comes)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_stream(&p, &b, &w, "/stream");
    web_let(&w, 0, "one ");
    WAIT_FOR(&b, p.n == 4);
    CHECK_INT_EQ(p.told, 0);
    world_advance_ms(b.w, 1000000); /* it may take as long as it likes */
    web_let(&w, 0, "two");
    WAIT_FOR(&b, p.n == 7);
    CHECK_STR_EQ(p.body, "one two");
    CHECK_INT_EQ(p.told, 0);
    web_end_stream(&w);
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(p.status, 200);
    CHECK_UINT_EQ(p.n, 7); /* nothing is told twice */
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http, a_stream_that_is_refused_has_an_answer)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_stream(&p, &b, &w, "/status/404");
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, 0);
    CHECK_UINT_EQ(p.status, 404);
    CHECK_STR_EQ(p.body, "no");
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http, streams_take_no_place_of_requests)
{
    struct web w;
    struct browser b;
    struct reply s[6] = {{.told = 0}};
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open_with(&b, HTTP_OPTS(.connections = 1));
    for (size_t i = 0; i < 6; i++) {
        reply_stream(&s[i], &b, &w, "/stream");
        reply_heard(&s[i], &w, i + 1);
    }
    for (int i = 0; i < 3; i++) {
        reply_get(&p, &b, &w, "/echo");
        CHECK_STR_EQ(p.body, "hello");
    }
    CHECK_UINT_EQ(web_read(&w, &w.n), 7);
    for (size_t i = 0; i < 6; i++)
        CHECK_INT_EQ(s[i].told, 0);
    browser_shut(&b);
    for (size_t i = 0; i < 6; i++)
        CHECK_INT_EQ(s[i].code, VOW_ECLOSED);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http, an_open_stream_does_not_keep_the_loop_running)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_stream(&p, &b, &w, "/stream");
    reply_heard(&p, &w, 1);
    world_run(b.w);
    CHECK_INT_EQ(p.told, 0);
    reply_cancel(&p);
    browser_close(&b);
    web_close(&w);
}

/* ---- connections -------------------------------------------------------- */

TEST(http, many_requests_share_a_few_connections)
{
    enum { MANY = 50 };
    struct web w;
    struct browser b;
    struct reply p[MANY] = {{.told = 0}};
    web_open(&w);
    browser_open_with(&b, HTTP_OPTS(.connections = 4));
    for (int i = 0; i < MANY; i++)
        CHECK(reply_ask(&p[i], &b, web_url(&w, "/wait"),
                        ASK(.timeout_ms = 100000)) != NULL);
    WAIT_BUSY(&b, web_read(&w, &w.now) == 4);
    CHECK_INT_EQ(p[0].told, 0);
    web_let(&w, MANY, NULL);
    for (int i = 0; i < MANY; i++) {
        WAIT_FOR(&b, p[i].told == 1);
        CHECK_INT_EQ(p[i].code, 0);
        CHECK_STR_EQ(p[i].body, "hello");
        reply_free(&p[i]);
    }
    CHECK_UINT_EQ(w.n, 4);
    CHECK_UINT_EQ(w.most, 4);
    CHECK_UINT_EQ(w.requests, MANY);
    browser_close(&b);
    web_close(&w);
}

TEST(http, a_connection_is_used_again)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    for (int i = 0; i < 100; i++) {
        reply_get(&p, &b, &w, "/echo");
        CHECK_STR_EQ(p.body, "hello");
    }
    CHECK_UINT_EQ(web_read(&w, &w.n), 1);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http, a_connection_that_was_closed_meanwhile_is_not_used)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    for (size_t i = 0; i < 20; i++) {
        reply_get(&p, &b, &w, "/close");
        CHECK_STR_EQ(p.why, "");
        CHECK(pthread_join(w.talks[i], NULL) == 0); /* it is closed */
    }
    CHECK_UINT_EQ(web_read(&w, &w.n), 20);
    w.n = 0; /* they were joined */
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

/* What a server says without being asked is the answer to nothing. */
TEST(http, a_connection_that_says_too_much_is_not_used_again)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    for (size_t i = 0; i < 5; i++) {
        reply_get(&p, &b, &w, "/more");
        CHECK_STR_EQ(p.why, "");
        CHECK_STR_EQ(p.body, "hello");
        reply_get(&p, &b, &w, "/later");
        CHECK_STR_EQ(p.body, "hello");
        web_let(&w, 1, NULL);
        WAIT_BUSY(&b, web_read(&w, &w.said) == i + 1);
    }
    reply_get(&p, &b, &w, "/echo");
    CHECK_STR_EQ(p.body, "hello");
    CHECK_UINT_EQ(web_read(&w, &w.n), 11);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

/* So many that are idle are kept, and those that were used last. */
TEST(http, idle_connections_have_a_limit)
{
    enum { SERVERS = 5 };
    struct web w[SERVERS];
    struct browser b;
    struct reply p = {.told = 0};
    browser_open_with(&b, HTTP_OPTS(.connections = 1));
    for (size_t i = 0; i < SERVERS; i++)
        web_open(&w[i]);
    for (size_t i = 0; i < SERVERS; i++)
        reply_get(&p, &b, &w[i], "/echo");
    for (size_t i = SERVERS; i > 0; i--) {
        reply_get(&p, &b, &w[i - 1], "/echo");
        CHECK_STR_EQ(p.body, "hello");
    }
    CHECK_UINT_EQ(web_read(&w[4], &w[4].n), 1);
    CHECK_UINT_EQ(web_read(&w[3], &w[3].n), 1);
    for (size_t i = 0; i < 3; i++)
        CHECK_UINT_EQ(web_read(&w[i], &w[i].n), 2);
    reply_free(&p);
    browser_close(&b);
    for (size_t i = 0; i < SERVERS; i++)
        web_close(&w[i]);
}

/* ---- without an answer -------------------------------------------------- */

TEST(http, who_is_not_there_was_never_asked)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    web_close(&w); /* nobody has the port now */
    browser_open(&b);
    reply_get(&p, &b, &w, "/echo");
    CHECK_INT_EQ(p.code, VOW_ESTORE);
    CHECK_SAYS(&p, &w, "127.0.0.1:%u refused the connection");
    reply_get(&p, &b, &w, "/echo"); /* and again, by the same handle */
    CHECK_INT_EQ(p.code, VOW_ESTORE);
    browser_close(&b);
}

TEST(http, a_name_that_nobody_has_was_never_asked)
{
    struct browser b;
    struct reply p = {.told = 0};
    names.error = EAI_NONAME;
    browser_open(&b);
    CHECK(reply_ask(&p, &b, "http://none.test:2379/v3/kv/txn",
                    ASK(.timeout_ms = 100000)) != NULL);
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, VOW_ESTORE);
    CHECK_STR_EQ(p.why, "the name none.test was not found");
    browser_close(&b);
}

static void check_unsure(const char *path, const char *why)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    char want[256];
    web_open(&w);
    browser_open(&b);
    for (int i = 0; i < 2; i++) { /* the second by a connection that was used */
        reply_get(&p, &b, &w, path);
        CHECK_INT_EQ(p.code, VOW_EUNSURE);
        (void)snprintf(want, sizeof(want), "127.0.0.1:%u %s", (unsigned)w.port,
                       why);
        CHECK_STR_EQ(p.why, want);
        CHECK_UINT_EQ(p.n, 0);
        reply_get(&p, &b, &w, "/echo");
        CHECK_STR_EQ(p.body, "hello");
    }
    CHECK_UINT_EQ(web_read(&w, &w.requests), 4); /* none was sent twice */
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

TEST(http, one_that_closes_instead_of_answering_may_have_heard_it)
{
    check_unsure("/nothing", "closed the connection without an answer");
}

TEST(http, one_that_closes_in_mid_answer_has_heard_it)
{
    check_unsure("/half", "closed the connection before its answer was whole");
}

TEST(http, one_that_closes_in_mid_chunk_has_heard_it)
{
    check_unsure("/halfchunk",
                 "closed the connection before its answer was whole");
}

TEST(http, one_that_speaks_no_http_may_have_heard_it)
{
    check_unsure("/garbage", "does not answer by HTTP");
}

TEST(http, a_stream_that_breaks_off_ends)
{
    struct web w;
    struct browser b;
    struct reply p = {.told = 0};
    web_open(&w);
    browser_open(&b);
    reply_stream(&p, &b, &w, "/stream");
    web_let(&w, 0, "some");
    WAIT_FOR(&b, p.n == 4);
    web_cut(&w);
    WAIT_FOR(&b, p.told == 1);
    CHECK_INT_EQ(p.code, VOW_EUNSURE);
    CHECK_UINT_EQ(p.n, 4);
    reply_free(&p);
    browser_close(&b);
    web_close(&w);
}

/* ---- memory ------------------------------------------------------------- */

static void try_all(struct world *world, const struct web *w)
{
    static const char *const paths[] = {"/echo", "/big/100000", "/status/404"};
    char why[256] = "";
    struct browser b = {.w = world};
    int rc =
        browser_try_open(&b, HTTP_OPTS(.connections = 2), why, sizeof(why));
    if (rc != 0) {
        CHECK(fault_explains(world, rc));
        return;
    }
    struct reply p[6] = {{.told = 0}};
    for (size_t i = 0; i < 6; i++) {
        bool stream = i % 2 == 1;
        if (reply_ask(&p[i], &b, web_url(w, paths[i / 2]),
                      ASK(.on_bytes = stream ? reply_on_bytes : NULL)) == NULL)
            CHECK(fault_fired(world));
    }
    for (size_t i = 0; i < 6; i++) {
        WAIT_FOR(&b, p[i].r == NULL);
        CHECK(p[i].code == 0 || fault_fired(world));
        CHECK(p[i].code == 0 || p[i].code == VOW_ENOMEM ||
              p[i].code == VOW_EUNSURE);
        reply_free(&p[i]);
    }
    browser_shut(&b);
    world_run(world);
    CHECK(b.closed);
}

FAULT_SWEEP(http, all_ends_well_without_memory, FAULT_ALLOC)
{
    struct web web;
    web_open(&web);
    try_all(w, &web);
    web_close(&web);
}
