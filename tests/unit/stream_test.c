/* SPDX-License-Identifier: MIT */
/* stream_test.c - bytes to and from a server, those that wait to be sent, and
 * closing.
 */
#include "fault.h"
#include "stream_rig.h"

#include "store/net/stream_internal.h"

#include <netinet/tcp.h>

enum { MEGABYTE = 1 << 20 };

/* ---- bytes -------------------------------------------------------------- */

static void check_echo(struct server *s)
{
    struct client c;
    client_open_to(&c, s);
    client_send(&c, "one ", 4); /* before it is open */
    WAIT_UNTIL(&c, c.opened == 1);
    client_send(&c, "two ", 4);
    client_send(&c, "", 0);
    client_send(&c, "three", 5);
    WAIT_UNTIL(&c, c.n == 13);
    CHECK_MEM_EQ(c.got, "one two three", 13);
    CHECK_INT_EQ(c.ended, 0);
    client_close(&c);
    server_close(s);
}

TEST(stream, bytes_go_and_come_by_tcp)
{
    struct server s;
    server_open(&s, talk_echo);
    check_echo(&s);
}

TEST(stream, bytes_go_and_come_by_a_local_socket)
{
    struct server s;
    server_open_local(&s, talk_echo);
    check_echo(&s);
}

TEST(stream, many_bytes_arrive_whole_and_in_order)
{
    const size_t n = 16 * (size_t)MEGABYTE;
    struct server s;
    struct client c;
    uint64_t random = 1;
    char *bytes = malloc(n);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < n; i += 8) {
        uint64_t x = test_random(&random);
        memcpy(bytes + i, &x, 8);
    }
    server_open(&s, talk_echo);
    client_open_to(&c, &s);
    for (size_t at = 0, part = 1; at < n; at += part) {
        part = part * 3 % 1000003;
        part = part < n - at ? part : n - at;
        client_send(&c, bytes + at, part);
        if (part % 7 == 0)
            client_turn(&c);
    }
    WAIT_UNTIL(&c, c.n == n);
    CHECK_MEM_EQ(c.got, bytes, n);
    free(bytes);
    client_close(&c);
    server_close(&s);
}

/* How much came in the first moment. */
static void talk_first(struct server *s, int fd)
{
    char bytes[4096];
    ssize_t n = recv(fd, bytes, sizeof(bytes), 0);
    *(ssize_t *)s->user = n;
    (void)send(fd, "x", 1, MSG_NOSIGNAL);
    talk_listen(s, fd);
}

struct chain {
    struct client *c;
    vow_call call;
    int left;
};

static void send_and_go_on(void *user)
{
    struct chain *x = user;
    client_send(x->c, "0123456789", 10);
    if (x->left == 1)
        CHECK_UINT_EQ(x->c->s->out.n, 550); /* nothing has left before */
    if (--x->left > 0)
        vow_call_soon(&x->call, x->c->w->loop, send_and_go_on, x);
}

/* Also of those whom others in this turn have made ready. */
TEST(stream, bytes_of_one_turn_leave_together)
{
    struct server s;
    struct client c;
    struct chain x = {.c = &c, .left = 5};
    ssize_t first = 0;
    server_open_local(&s, talk_first);
    s.user = &first;
    client_open_to(&c, &s);
    WAIT_UNTIL(&c, c.opened == 1);
    for (int i = 0; i < 50; i++)
        client_send(&c, "0123456789", 10);
    send_and_go_on(&x);
    WAIT_UNTIL(&c, c.n == 1);
    client_close(&c);
    server_close(&s);
    CHECK_INT_EQ(first, 550);
}

TEST(stream, small_commands_are_not_held_back_and_silence_is_noticed)
{
    static const int want[][3] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                                  {SOL_SOCKET, SO_KEEPALIVE, 1},
                                  {IPPROTO_TCP, TCP_KEEPIDLE, 15}};
    struct server s;
    struct client c;
    server_open(&s, talk_listen);
    client_open_to(&c, &s);
    WAIT_UNTIL(&c, c.opened == 1);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        int got = -1;
        socklen_t size = sizeof(got);
        CHECK(getsockopt(c.s->fd, want[i][0], want[i][1], &got, &size) == 0);
        CHECK_INT_EQ(got, want[i][2]);
    }
    client_close(&c);
    server_close(&s);
}

TEST(stream, an_open_stream_lets_the_loop_end)
{
    struct server s;
    struct client c;
    server_open(&s, talk_listen);
    client_open_to(&c, &s);
    world_run(c.w); /* until it is open, and no longer */
    CHECK_INT_EQ(c.opened, 1);
    CHECK_INT_EQ(c.ended, 0);
    client_close(&c);
    server_close(&s);
}

/* ---- what waits to be sent ---------------------------------------------- */

static void talk_deaf(struct server *s, int fd)
{
    char byte;
    (void)fd; /* until the test says so */
    (void)read(*(int *)s->user, &byte, 1);
}

TEST(stream, a_server_that_takes_nothing_does_not_fill_the_memory)
{
    int go[2];
    struct server s;
    struct client c;
    char *much = calloc(1, MEGABYTE);
    CHECK(much != NULL && pipe(go) == 0);
    server_open(&s, talk_deaf);
    s.user = &go[0];
    client_open(&c, CLIENT_OPTS(.host = "127.0.0.1", .port = s.port,
                                .unsent_max = MEGABYTE));
    for (int i = 0; i < 100 && c.ended == 0; i++) {
        client_send(&c, much, MEGABYTE);
        CHECK(c.w->alloc.live_bytes < 4 * MEGABYTE);
        client_turn(&c);
    }
    CHECK_INT_EQ(c.ended, 1);
    CHECK_INT_EQ(c.code, VOW_EQUEUEFULL);
    CHECK_WHY(&c, &s,
              "127.0.0.1:%u takes too little: more than 1048576 bytes would "
              "wait to be sent");
    client_send(&c, much, MEGABYTE);
    client_close(&c);
    CHECK(write(go[1], "x", 1) == 1);
    server_close(&s);
    (void)close(go[0]);
    (void)close(go[1]);
    free(much);
}

TEST(stream, what_may_wait_may_wait_before_it_is_open)
{
    struct server s;
    struct client c;
    server_open(&s, talk_echo);
    client_open(
        &c, CLIENT_OPTS(.host = "127.0.0.1", .port = s.port, .unsent_max = 10));
    client_send(&c, "01234", 5);
    client_send(&c, "56789", 5);
    WAIT_UNTIL(&c, c.n == 10);
    client_send(&c, "0123456789", 10);
    WAIT_UNTIL(&c, c.n == 20);
    client_send(&c, "0123456789x", 11);
    CHECK_INT_EQ(c.ended, 0);
    WAIT_UNTIL(&c, c.ended == 1);
    CHECK_INT_EQ(c.code, VOW_EQUEUEFULL);
    client_close(&c);
    client_open(
        &c, CLIENT_OPTS(.host = "127.0.0.1", .port = s.port, .unsent_max = 10));
    client_send(&c, "0123456789x", 11);
    WAIT_UNTIL(&c, c.ended == 1);
    CHECK_INT_EQ(c.opened, 0);
    CHECK_INT_EQ(c.code, VOW_EQUEUEFULL);
    client_close(&c);
    server_close(&s);
}

/* ---- closing ------------------------------------------------------------ */

TEST(stream, it_may_be_closed_at_once)
{
    struct server s;
    struct client c;
    server_open(&s, talk_listen);
    client_open_to(&c, &s);
    client_close(&c); /* nothing was called */
    CHECK_INT_EQ(c.opened + c.ended, 0);
    client_open_to(&c, &s);
    client_send(&c, "x", 1);
    (void)vow_loop_turn(c.w->loop); /* it connects */
    client_close(&c);
    CHECK_INT_EQ(c.opened + c.ended, 0);
    server_close(&s);
}

TEST(stream, it_may_be_closed_in_each_of_its_calls)
{
    struct server s;
    struct client c;
    server_open(&s, talk_bye);
    for (int i = 0; i < 3; i++) {
        client_open_to(&c, &s);
        c.close_in_open = i == 0;
        c.close_in_bytes = i == 1;
        c.close_in_end = i == 2;
        WAIT_UNTIL(&c, c.s == NULL);
        CHECK_INT_EQ(c.opened, 1);
        CHECK_UINT_EQ(c.n, i == 0 ? 0 : 3);
        CHECK_INT_EQ(c.ended, i == 2);
        client_close(&c);
    }
    server_close(&s);
    client_open(&c, CLIENT_OPTS(.path = "/"));
    c.close_in_end = true;
    world_run(c.w);
    CHECK_INT_EQ(c.ended, 1);
    client_close(&c);
}

TEST(stream, what_was_not_sent_is_dropped_with_it)
{
    int go[2];
    struct server s;
    struct client c;
    size_t n = 32 * (size_t)MEGABYTE;
    char *much = calloc(1, n);
    CHECK(much != NULL && pipe(go) == 0);
    server_open(&s, talk_deaf);
    s.user = &go[0];
    client_open_to(&c, &s);
    client_send(&c, much, n);
    WAIT_UNTIL(&c, c.opened == 1);
    for (int i = 0; i < 10; i++)
        (void)vow_loop_turn(c.w->loop);
    client_close(&c);
    CHECK_INT_EQ(c.ended, 0);
    CHECK(write(go[1], "x", 1) == 1);
    server_close(&s);
    (void)close(go[0]);
    (void)close(go[1]);
    free(much);
}

TEST(stream, a_loop_may_be_closed_right_behind_it)
{
    struct server s;
    struct client c;
    server_open(&s, talk_listen);
    client_open_to(&c, &s);
    WAIT_UNTIL(&c, c.opened == 1);
    client_close_stream(&c);
    world_close(c.w);
    server_close(&s);
}

/* ---- without memory ----------------------------------------------------- */

static struct server fault_server;

static void one_echo(struct client *c)
{
    char big[10000];
    memset(big, 'b', sizeof(big));
    int rc = client_try_open(c, CLIENT_OPTS(.host = "127.0.0.1",
                                            .port = fault_server.port,
                                            .server_name = "x"));
    CHECK(rc == 0 || fault_explains(c->w, rc));
    if (rc < 0)
        return;
    size_t want = 0;
    static const size_t sizes[] = {1, 5000, 10000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        rc = vow__stream_send(c->s, big, sizes[i]);
        CHECK(rc == 0 || fault_explains(c->w, rc));
        want += rc == 0 ? sizes[i] : 0;
        WAIT_UNTIL(c, c->opened == 1 && c->n >= want);
    }
    CHECK_UINT_EQ(c->n, want);
    CHECK_INT_EQ(c->ended, 0);
    client_close_stream(c);
}

FAULT_SWEEP(stream, an_echo_survives_every_fault, FAULT_ALLOC)
{
    struct client c;
    memset(&c, 0, sizeof(c));
    server_open(&fault_server, talk_echo);
    c.w = w;
    one_echo(&c);
    world_run(c.w);
    server_close(&fault_server);
    free(c.got);
}
