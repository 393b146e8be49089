/* SPDX-License-Identifier: MIT */
/* stream_name_test.c - names, their addresses, and the time they take. */
#include "names.h"
#include "stream_rig.h"

#include "store/net/stream_internal.h"

#include <netdb.h>

#define NAMED(...) CLIENT_OPTS(.host = "redis.test", __VA_ARGS__)

/* ---- names -------------------------------------------------------------- */

TEST(stream_name, a_name_is_looked_up)
{
    struct server s;
    struct client c;
    names.addresses[0] = "127.0.0.1";
    server_open(&s, talk_echo);
    client_open(&c, NAMED(.port = s.port));
    client_send(&c, "hello", 5);
    WAIT_UNTIL(&c, c.n == 5);
    client_close(&c);
    server_close(&s);
}

TEST(stream_name, the_name_of_this_machine_is_found)
{
    struct server s;
    struct client c;
    server_open(&s, talk_echo);
    client_open(&c, CLIENT_OPTS(.host = "localhost", .port = s.port));
    WAIT_UNTIL(&c, c.opened == 1);
    client_close(&c);
    server_close(&s);
}

static void check_lookup(int error, int code, const char *why)
{
    struct client c;
    names.error = error;
    client_open(&c, NAMED(.port = 1));
    world_run(c.w);
    CHECK_INT_EQ(c.ended, 1);
    CHECK_INT_EQ(c.code, code);
    CHECK_STR_EQ(c.why, why);
    client_close(&c);
}

TEST(stream_name, a_name_that_is_not_found_is_told)
{
    check_lookup(EAI_NONAME, UV_EAI_NONAME,
                 "the name redis.test was not found");
    check_lookup(EAI_AGAIN, UV_EAI_AGAIN,
                 "the name redis.test cannot be looked up now: no name server "
                 "answers");
    check_lookup(EAI_MEMORY, UV_EAI_MEMORY,
                 "the name redis.test cannot be looked up: out of memory");
    check_lookup(EAI_FAIL, UV_EAI_FAIL,
                 "the name redis.test cannot be looked up");
    check_lookup(0, UV_EAI_NONAME, "the name redis.test was not found");
}

TEST(stream_name, what_cannot_be_a_name_is_told)
{
    struct client c;
    char name[2000];
    memset(name, 'n', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    client_open(&c, CLIENT_OPTS(.host = name, .port = 1));
    world_run(c.w);
    CHECK_INT_EQ(c.ended, 1);
    CHECK(strncmp(c.why, "the name nnnn", 13) == 0);
    client_close(&c);
}

/* ---- addresses ---------------------------------------------------------- */

TEST(stream_name, each_address_is_tried)
{
    struct server s;
    struct client c;
    names.addresses[0] = "127.0.0.2";
    names.addresses[1] = "255.255.255.255"; /* not for streams */
    names.addresses[2] = "127.0.0.3";
    names.addresses[3] = "127.0.0.1";
    server_open(&s, talk_echo); /* on the last one only */
    client_open(&c, NAMED(.port = s.port));
    client_send(&c, "hello", 5);
    WAIT_UNTIL(&c, c.n == 5);
    CHECK_INT_EQ(c.ended, 0);
    client_close(&c);
    server_close(&s);
}

/* There the machine was reached. */
TEST(stream_name, of_all_reasons_a_refusal_is_told)
{
    struct server s = {.fd = -1};
    struct client c;
    server_listen(&s, -1);
    for (int first = 0; first < 2; first++) {
        names.addresses[first] = "127.0.0.1";
        names.addresses[1 - first] = "255.255.255.255";
        client_open(&c, NAMED(.port = s.port));
        world_run(c.w);
        CHECK_INT_EQ(c.code, UV_ECONNREFUSED);
        CHECK_WHY(&c, &s, "redis.test:%u refused the connection");
        client_close(&c);
    }
    names.addresses[0] = "255.255.255.255";
    names.addresses[1] = NULL;
    client_open(&c, NAMED(.port = s.port));
    world_run(c.w);
    CHECK(c.code == UV_ENETUNREACH || c.code == UV_EACCES);
    client_close(&c);
    server_close(&s);
}

/* ---- time --------------------------------------------------------------- */

/* A server whose queue of connections is full answers no more of them. */
struct silent {
    struct server s;
    int filler;
};

static void silent_open(struct silent *x)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    x->s = (struct server){.fd = -1};
    server_listen(&x->s, 0);
    at.sin_port = htons(x->s.port);
    x->filler = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(x->filler >= 0);
    CHECK(connect(x->filler, (struct sockaddr *)&at, sizeof(at)) == 0);
}

static void silent_close(struct silent *x)
{
    (void)close(x->filler);
    server_close(&x->s);
}

/* Until the stream does something that takes long. */
static void begin(struct client *c, enum vow__stream_state state)
{
    WAIT_UNTIL(c, c->s->state == (uint8_t)state);
    world_advance_ms(c->w, 0);
}

TEST(stream_name, a_server_that_does_not_answer_is_told_in_time)
{
    struct silent x;
    struct client c;
    silent_open(&x);
    client_open(&c, CLIENT_OPTS(.host = "127.0.0.1", .port = x.s.port,
                                .connect_ms = 700));
    begin(&c, VOW__STREAM_CONNECTS);
    world_advance_ms(c.w, 699);
    CHECK_INT_EQ(c.ended, 0);
    world_advance_ms(c.w, 1);
    CHECK_INT_EQ(c.ended, 1);
    CHECK_INT_EQ(c.code, VOW_ETIMEDOUT);
    CHECK_WHY(&c, &x.s, "127.0.0.1:%u did not answer within 700 ms");
    client_close(&c);
    silent_close(&x);
}

TEST(stream_name, who_did_not_run_for_a_while_finds_the_answer)
{
    struct server s;
    struct client c;
    server_open(&s, talk_echo);
    client_open(&c, CLIENT_OPTS(.host = "127.0.0.1", .port = s.port,
                                .connect_ms = 700));
    world_advance_ms(c.w, 700); /* without a look at sockets */
    CHECK_INT_EQ(c.ended, 0);
    CHECK_INT_EQ(c.opened, 1);
    client_close(&c);
    server_close(&s);
}

TEST(stream_name, time_counts_from_the_call)
{
    struct silent x;
    struct client c;
    silent_open(&x);
    client_open(&c, CLIENT_OPTS(.host = "127.0.0.1", .port = x.s.port,
                                .connect_ms = 0));
    world_advance_ms(c.w, 1000);
    CHECK_INT_EQ(c.ended, 1);
    client_close(&c);
    silent_close(&x);
}

/* A server on all addresses of this machine, silent on the first. */
TEST(stream_name, a_silent_address_leaves_time_for_the_others)
{
    struct silent x;
    struct server s = {.fd = -1};
    struct client c;
    struct sockaddr_in at = {.sin_family = AF_INET};
    silent_open(&x);
    at.sin_port = htons(x.s.port);
    CHECK(inet_pton(AF_INET, "127.0.0.2", &at.sin_addr) == 1);
    s.fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(s.fd >= 0);
    CHECK(bind(s.fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    CHECK(listen(s.fd, 16) == 0);
    server_start(&s, talk_echo);
    names.addresses[0] = "127.0.0.1";
    names.addresses[1] = "127.0.0.1";
    names.addresses[2] = "127.0.0.2";
    client_open(&c, NAMED(.port = x.s.port, .connect_ms = 900));
    begin(&c, VOW__STREAM_CONNECTS);
    world_advance_ms(c.w, 299);
    CHECK_PTR_EQ(c.s->next, c.s->found->ai_next);
    world_advance_ms(c.w, 1);
    WAIT_UNTIL(&c, c.s->fd >= 0);
    CHECK_PTR_EQ(c.s->next, c.s->found->ai_next->ai_next);
    world_advance_ms(c.w, 300);
    WAIT_UNTIL(&c, c.opened == 1);
    world_advance_ms(c.w, 10000);
    CHECK_INT_EQ(c.ended, 0);
    client_close(&c);
    server_close(&s);
    silent_close(&x);
}

TEST(stream_name, a_lookup_that_takes_long_is_told_in_time)
{
    struct client c;
    names_block(true);
    client_open(&c, NAMED(.port = 1));
    begin(&c, VOW__STREAM_LOOKS_UP);
    names_wait_until_asked();
    world_advance_ms(c.w, 1000);
    CHECK_INT_EQ(c.ended, 1);
    CHECK_INT_EQ(c.code, VOW_ETIMEDOUT);
    CHECK_STR_EQ(c.why, "the name redis.test was not found within 1000 ms");
    names_block(false); /* it answers after all */
    world_run(c.w);
    client_close(&c);
}

TEST(stream_name, it_may_be_closed_while_its_name_is_looked_up)
{
    struct client c;
    names.addresses[0] = "127.0.0.1";
    names_block(true);
    client_open(&c, NAMED(.port = 1));
    begin(&c, VOW__STREAM_LOOKS_UP);
    names_wait_until_asked();
    client_close_stream(&c);
    CHECK(uv_loop_alive(vow_loop_uv(c.w->loop)) != 0);
    names_block(false);
    client_close(&c);
    CHECK_INT_EQ(c.ended, 0);
}

/* At most four are looked up at once; the others wait. */
TEST(stream_name, a_lookup_that_waits_is_called_off)
{
    enum { MANY = 12, THREADS = 4, BLOCKS = 2 };
    static struct client c[MANY];
    struct client all;
    names_block(true);
    client_open(&all, NAMED(.port = 1));
    for (size_t i = 0; i < MANY; i++) {
        c[i].w = all.w;
        CHECK_INT_EQ(client_try_open(&c[i], NAMED(.port = 1)), 0);
    }
    begin(&all, VOW__STREAM_LOOKS_UP);
    names_wait_until_asked();
    size_t blocks = all.w->alloc.live_blocks;
    for (size_t i = 0; i < MANY; i++)
        client_close_stream(&c[i]);
    WAIT_UNTIL(&all, all.w->alloc.live_blocks <=
                         blocks - BLOCKS * (size_t)(MANY - THREADS));
    names_block(false);
    client_close(&all);
}
