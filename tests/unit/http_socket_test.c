/* SPDX-License-Identifier: MIT */
/* http_socket_test.c - a descriptor that libcurl has closed without a word is
 * waited for no more, whatever it was opened for. */
#include "http_rig.h"

#include <errno.h>

/* A server on the test's own thread: one connection, and no room for more. */
struct booth {
    int fd, talk, filler;
    uint16_t port;
    char url[64];
};

static int dial(uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons(port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    return fd;
}

static void booth_open(struct booth *x)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    x->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(bind(x->fd, (struct sockaddr *)&at, size) == 0);
    CHECK(listen(x->fd, 0) == 0);
    CHECK(getsockname(x->fd, (struct sockaddr *)&at, &size) == 0);
    x->port = ntohs(at.sin_port);
    (void)snprintf(x->url, sizeof(x->url), "http://127.0.0.1:%u/",
                   (unsigned)x->port);
}

static void booth_close(struct booth *x)
{
    (void)close(x->fd);
    (void)close(x->filler);
}

/* The next request; all of it comes at once. */
static void booth_hear(struct booth *x, struct browser *b)
{
    char head[4096];
    ssize_t n;
    while ((n = recv(x->talk, head, sizeof(head), MSG_DONTWAIT)) < 0) {
        CHECK(errno == EAGAIN);
        browser_turn_now(b);
    }
    CHECK(n > 0);
}

/* What it waits for is a connection: it has been told so, and has not yet told
 * the system. */
static bool connects(const struct browser *b)
{
    bool any = false;
    for (vow_link *l = b->h->watchers; l != NULL; l = l->next)
        any |= (VOW__OUTER(l, struct vow__http_watcher, link)->wanted &
                UV_WRITABLE) != 0;
    return any;
}

/* One request is answered. The next has been heard when the connection ends,
 * and libcurl connects again, which does not come about. */
static void lose_connection(struct booth *x, struct browser *b, struct reply *p)
{
    static const char yes[] = "HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n";
    CHECK(reply_ask(p, b, x->url, ASK(.timeout_ms = 90000)) != NULL);
    while ((x->talk = accept4(x->fd, NULL, NULL, SOCK_CLOEXEC)) < 0)
        browser_turn_now(b);
    booth_hear(x, b);
    CHECK(send(x->talk, yes, sizeof(yes) - 1, 0) == (ssize_t)sizeof(yes) - 1);
    WAIT_FOR(b, p->told == 1);
    CHECK_INT_EQ(p->code, 0);
    x->filler = dial(x->port);
    reply_free(p);
    CHECK(reply_ask(p, b, x->url, ASK(.timeout_ms = 90000)) != NULL);
    booth_hear(x, b);
    (void)close(x->talk);
    while (!connects(b))
        browser_turn_now(b);
    CHECK_INT_EQ(p->told, 0);
}

TEST(http_socket, one_that_is_connected_anew_and_canceled_is_not_waited_for)
{
    struct booth x;
    struct browser b;
    struct reply p = {.told = 0};
    booth_open(&x);
    browser_open(&b);
    lose_connection(&x, &b, &p);
    reply_cancel(&p);
    browser_turn_now(&b); /* libuv would abort here */
    browser_turn_now(&b);
    CHECK(b.h->watchers == NULL);
    browser_close(&b);
    booth_close(&x);
}

static void on_closed(void *user)
{
    (void)user;
}

/* The number of its descriptor is free for others. */
TEST(http_socket, one_that_is_connected_anew_in_vain_leaves_its_number)
{
    struct booth x;
    struct web w;
    struct browser b;
    struct reply p = {.told = 0}, other = {.told = 0};
    struct vow__http *second;
    char why[512];
    web_open(&w);
    booth_open(&x);
    browser_open(&b);
    struct vow__http *first = b.h;
    CHECK_INT_EQ(
        browser_try_open(&b, HTTP_OPTS(.connections = 4), why, sizeof(why)), 0);
    second = b.h;
    b.h = first;
    lose_connection(&x, &b, &p);
    browser_turn_now(&b); /* the system is told */
    reply_cancel(&p);
    browser_turn_now(&b);
    browser_turn_now(&b);
    b.h = second;
    reply_get(&other, &b, &w, "/echo");
    CHECK_STR_EQ(other.why, "");
    CHECK_STR_EQ(other.body, "hello");
    reply_free(&other);
    vow__http_close(second, on_closed, NULL);
    b.h = first;
    browser_close(&b);
    booth_close(&x);
    web_close(&w);
}
