/* SPDX-License-Identifier: MIT */
/* redis_fake.c - see redis_fake.h. */
#include "redis_fake.h"
#include "vow/uv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { QUIET_TURNS = 30 };

/* ---- opening and closing ------------------------------------------------- */

static void take_port(struct fake *f, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int on = 1;
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(f->fd >= 0);
    CHECK(setsockopt(f->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
    CHECK(bind(f->fd, (struct sockaddr *)&a, sizeof(a)) == 0);
    CHECK(getsockname(f->fd, (struct sockaddr *)&a, &n) == 0);
    CHECK(listen(f->fd, FAKE_CONNS) == 0);
    f->port = ntohs(a.sin_port);
}

void fake_open(struct fake *f)
{
    *f = (struct fake){.fd = -1};
    for (size_t i = 0; i < FAKE_CONNS; i++)
        f->conns[i].fd = -1;
    take_port(f, 0);
}

void fake_deaf(struct fake *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

void fake_again(struct fake *f)
{
    CHECK(f->fd < 0);
    take_port(f, f->port);
}

static void conn_close(struct fake_conn *c)
{
    if (c->fd < 0)
        return;
    close(c->fd);
    free(c->in);
    free(c->out);
    *c = (struct fake_conn){.fd = -1};
}

void fake_hang_up(struct fake *f)
{
    for (size_t i = 0; i < FAKE_CONNS; i++)
        conn_close(&f->conns[i]);
}

void fake_close(struct fake *f)
{
    fake_hang_up(f);
    fake_deaf(f);
}

struct fake_conn *fake_last(struct fake *f)
{
    for (size_t i = 0; i < FAKE_CONNS; i++) {
        struct fake_conn *c =
            &f->conns[(f->accepted + FAKE_CONNS - 1 - i) % FAKE_CONNS];
        if (c->fd >= 0)
            return c;
    }
    return NULL;
}

/* ---- serving ------------------------------------------------------------- */

void fake_say(struct fake_conn *c, const char *resp)
{
    size_t n = strlen(resp);
    CHECK(c->out_n + n <= FAKE_BYTES);
    memcpy(c->out + c->out_n, resp, n);
    c->out_n += n;
}

/* The number behind a sign, and what follows its line; NULL: not yet whole. */
static char *number(char *at, const char *end, char sign, size_t *ret_number)
{
    char *stop = memchr(at, '\n', (size_t)(end - at));
    if (stop == NULL)
        return NULL;
    CHECK(*at == sign);
    *ret_number = (size_t)strtoul(at + 1, NULL, 10);
    return stop + 1;
}

/* The words of the next command, each with a NUL; 0: it is not yet whole. */
static size_t next_command(struct fake_conn *c, char **words, size_t *ret_size)
{
    char *end = c->in + c->in_n;
    size_t n, size;
    char *at = c->in_n == 0 ? NULL : number(c->in, end, '*', &n);
    if (at == NULL)
        return 0;
    CHECK(n <= FAKE_WORDS);
    for (size_t i = 0; i < n; i++) {
        at = at == end ? NULL : number(at, end, '$', &size);
        if (at == NULL || (size_t)(end - at) < size + 2)
            return 0;
        words[i] = at;
        at += size + 2;
    }
    for (size_t i = 0; i < n; i++) {
        CHECK(i + 1 == n || words[i] < words[i + 1]);
        char *stop = strstr(words[i], "\r\n");
        if (stop != NULL)
            *stop = 0;
    }
    *ret_size = (size_t)(at - c->in);
    return n;
}

static const char *greet(struct fake_conn *c, char **words, size_t n)
{
    static char text[512];
    struct fake *f = c->fake;
    if (strcmp(words[0], "HELLO") == 0) {
        const char *mode = f->mode == NULL ? "standalone" : f->mode;
        snprintf(text, sizeof(text),
                 "%%4\r\n$6\r\nserver\r\n$5\r\nredis\r\n"
                 "$7\r\nversion\r\n$6\r\n7.0.15\r\n"
                 "$5\r\nproto\r\n:3\r\n$4\r\nmode\r\n$%zu\r\n%s\r\n",
                 strlen(mode), mode);
    } else if (strcmp(words[0], "ROLE") == 0) {
        return f->role != NULL ? f->role : "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n";
    } else if (strcmp(words[0], "EVAL") == 0) {
        return ":1\r\n";
    } else if (strcmp(words[0], "SUBSCRIBE") == 0 && n == 2) {
        f->served++;
        snprintf(text, sizeof(text),
                 ">3\r\n$9\r\nsubscribe\r\n$%zu\r\n%s\r\n:1\r\n",
                 strlen(words[1]), words[1]);
    } else {
        c->commands++;
        return "+OK\r\n";
    }
    return text;
}

static void take_commands(struct fake_conn *c)
{
    char *words[FAKE_WORDS];
    size_t n, size;
    struct fake *f = c->fake;
    while (c->fd >= 0 && (n = next_command(c, words, &size)) > 0) {
        size_t used = strlen(f->log);
        snprintf(f->log + used, sizeof(f->log) - used, "%s ", words[0]);
        const char *says = f->answer == NULL ? NULL : f->answer(c, words, n);
        if (says == NULL)
            says = greet(c, words, n);
        if (c->fd < 0)
            return;
        fake_say(c, says);
        memmove(c->in, c->in + size, c->in_n - size);
        c->in_n -= size;
    }
}

static bool serve_one(struct fake_conn *c)
{
    ssize_t n =
        recv(c->fd, c->in + c->in_n, FAKE_BYTES - c->in_n, MSG_DONTWAIT);
    bool did = n > 0;
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        conn_close(c);
        return true;
    }
    if (n > 0) {
        c->in_n += (size_t)n;
        take_commands(c);
    }
    if (c->fd < 0 || c->out_n == 0) {
        if (c->fd >= 0 && c->ends)
            conn_close(c);
        return did;
    }
    size_t cut = c->fake->cut == 0 ? c->out_n : c->fake->cut;
    n = send(c->fd, c->out, cut < c->out_n ? cut : c->out_n,
             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
        memmove(c->out, c->out + n, c->out_n - (size_t)n);
        c->out_n -= (size_t)n;
    }
    return true;
}

bool fake_serve(struct fake *f)
{
    bool did = false;
    int fd;
    while (f->fd >= 0 && (fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct fake_conn *c = &f->conns[f->accepted++ % FAKE_CONNS];
        int on = 1;
        CHECK(c->fd < 0);
        CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
        *c = (struct fake_conn){.fake = f,
                                .fd = fd,
                                .in = malloc(FAKE_BYTES + 1),
                                .out = malloc(FAKE_BYTES)};
        CHECK(c->in != NULL && c->out != NULL);
        memset(c->in, 0, FAKE_BYTES + 1);
        did = true;
    }
    for (size_t i = 0; i < FAKE_CONNS; i++)
        if (f->conns[i].fd >= 0)
            did |= serve_one(&f->conns[i]);
    return did;
}

/* ---- turning ------------------------------------------------------------- */

void fake_turn(struct world *w)
{
    vow_loop_hold(w->loop);
    (void)uv_run(vow_loop_uv(w->loop), UV_RUN_NOWAIT);
    vow_loop_release(w->loop);
}

void fake_step(struct world *w, struct fake *f)
{
    bool did = fake_serve(f);
    fake_turn(w);
    if (!did)
        (void)poll(NULL, 0, 1);
}

void fake_settle(struct world *w, struct fake *f)
{
    for (int quiet = 0; quiet < QUIET_TURNS; quiet++) {
        if (fake_serve(f))
            quiet = 0;
        fake_turn(w);
    }
}
