/* SPDX-License-Identifier: MIT */
/* stream_rig.h - a server of plain sockets on a thread of its own, and a stream
 * to it in a world of virtual time: what should take long is let pass by hand,
 * and sockets are waited for.
 */
#ifndef TEST_STREAM_RIG_H
#define TEST_STREAM_RIG_H

#include "folder.h"
#include "store/net/stream.h"
#include "vow/uv.h"
#include "world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- the server --------------------------------------------------------- */

struct server {
    int fd; /* listening */
    uint16_t port;
    struct folder folder; /* of a local socket; "": none */
    char path[108];
    pthread_t thread;
    /* Called for each connection in turn, which is closed afterwards. */
    void (*talk)(struct server *s, int fd);
    void *user;
};

static inline void *server_run(void *arg)
{
    struct server *s = arg;
    for (;;) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0)
            return NULL; /* shut down */
        s->talk(s, fd);
        (void)close(fd);
    }
}

static inline void server_listen(struct server *s, int backlog)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(at);
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(s->fd >= 0);
    CHECK(bind(s->fd, (struct sockaddr *)&at, size) == 0);
    CHECK(getsockname(s->fd, (struct sockaddr *)&at, &size) == 0);
    CHECK(backlog < 0 || listen(s->fd, backlog) == 0);
    s->port = ntohs(at.sin_port);
}

static inline void server_listen_local(struct server *s)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    folder_open(&s->folder);
    (void)snprintf(s->path, sizeof(s->path), "%s/socket", s->folder.path);
    memcpy(at.sun_path, s->path, sizeof(at.sun_path));
    s->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(s->fd >= 0);
    CHECK(bind(s->fd, (struct sockaddr *)&at, sizeof(at)) == 0);
    CHECK(listen(s->fd, 16) == 0);
}

static inline void server_start(struct server *s,
                                void (*talk)(struct server *s, int fd))
{
    s->talk = talk;
    CHECK(pthread_create(&s->thread, NULL, server_run, s) == 0);
}

/* On TCP of this machine. */
static inline void server_open(struct server *s,
                               void (*talk)(struct server *s, int fd))
{
    *s = (struct server){.fd = -1};
    server_listen(s, 16);
    server_start(s, talk);
}

static inline void server_open_local(struct server *s,
                                     void (*talk)(struct server *s, int fd))
{
    *s = (struct server){.fd = -1};
    server_listen_local(s);
    server_start(s, talk);
}

/* Waits for who is being talked to. */
static inline void server_close(struct server *s)
{
    (void)shutdown(s->fd, SHUT_RDWR);
    if (s->talk != NULL)
        CHECK(pthread_join(s->thread, NULL) == 0);
    (void)close(s->fd);
    if (s->folder.path[0] != '\0')
        folder_close(&s->folder);
}

/* Says again what it hears, until the other closes. */
static inline void talk_echo(struct server *s, int fd)
{
    char bytes[65536];
    ssize_t n;
    (void)s;
    while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
        for (ssize_t at = 0; at < n;) {
            ssize_t m = send(fd, bytes + at, (size_t)(n - at), MSG_NOSIGNAL);
            if (m < 0)
                return;
            at += m;
        }
}

/* Reads until the other closes. */
static inline void talk_listen(struct server *s, int fd)
{
    char bytes[65536];
    (void)s;
    while (recv(fd, bytes, sizeof(bytes), 0) > 0)
        continue;
}

/* Says goodbye. */
static inline void talk_bye(struct server *s, int fd)
{
    (void)s;
    (void)send(fd, "bye", 3, MSG_NOSIGNAL);
}

/* ---- the client --------------------------------------------------------- */

struct client {
    struct world own;
    struct world *w; /* own, or that of a sweep */
    struct vow__stream *s;
    bool inside; /* a call of the stream's */
    int opened;
    int ended;
    int code;
    char why[512];
    char *got; /* all bytes that came */
    size_t n;
    void (*hook)(struct client *c); /* called with each bytes */
    bool close_in_open;
    bool close_in_bytes;
    bool close_in_end;
};

static inline void client_close_stream(struct client *c)
{
    struct vow__stream *s = c->s;
    c->s = NULL;
    c->inside = true;
    vow__stream_close(s);
    c->inside = false;
}

static inline void client_on_open(void *user)
{
    struct client *c = user;
    CHECK(!c->inside && c->s != NULL);
    CHECK_INT_EQ(c->ended, 0);
    CHECK_INT_EQ(c->opened++, 0);
    if (c->close_in_open)
        client_close_stream(c);
}

static inline void client_on_bytes(const char *bytes, size_t n, void *user)
{
    struct client *c = user;
    CHECK(!c->inside && c->s != NULL && n > 0);
    CHECK_INT_EQ(c->opened, 1);
    CHECK_INT_EQ(c->ended, 0);
    c->got = realloc(c->got, c->n + n);
    CHECK(c->got != NULL);
    memcpy(c->got + c->n, bytes, n);
    c->n += n;
    if (c->hook != NULL)
        c->hook(c);
    if (c->close_in_bytes)
        client_close_stream(c);
}

static inline void client_on_end(int code, const char *why, void *user)
{
    struct client *c = user;
    CHECK(!c->inside && c->s != NULL);
    CHECK_INT_EQ(c->ended++, 0);
    c->code = code;
    (void)snprintf(c->why, sizeof(c->why), "%s", why);
    if (c->close_in_end)
        client_close_stream(c);
}

static inline int client_try_open(struct client *c,
                                  const struct vow__stream_opts *opts)
{
    struct vow__stream_events events = {.on_open = client_on_open,
                                        .on_bytes = client_on_bytes,
                                        .on_end = client_on_end,
                                        .user = c};
    struct vow__stream_opts o = *opts;
    o.connect_ms = o.connect_ms == 0 ? 1000 : o.connect_ms;
    o.unsent_max = o.unsent_max == 0 ? 64 << 20 : o.unsent_max;
    c->inside = true;
    int rc = vow__stream_open(c->w->loop, &o, &events, &c->s);
    c->inside = false;
    return rc;
}

#define CLIENT_OPTS(...) (&(const struct vow__stream_opts){__VA_ARGS__})

static inline void client_open(struct client *c,
                               const struct vow__stream_opts *opts)
{
    memset(c, 0, sizeof(*c));
    c->w = &c->own;
    world_open(c->w);
    CHECK_INT_EQ(client_try_open(c, opts), 0);
}

static inline void client_open_to(struct client *c, const struct server *s)
{
    if (s->folder.path[0] != '\0')
        client_open(c, CLIENT_OPTS(.path = s->path));
    else
        client_open(c, CLIENT_OPTS(.host = "127.0.0.1", .port = s->port));
}

/* The stream may be closed already. */
static inline void client_close(struct client *c)
{
    if (c->s != NULL)
        client_close_stream(c);
    world_run(c->w);
    world_close(c->w);
    free(c->got);
}

static inline void client_send(struct client *c, const char *bytes, size_t n)
{
    c->inside = true;
    CHECK_INT_EQ(vow__stream_send(c->s, bytes, n), 0);
    c->inside = false;
}

/* One turn of the loop, which waits for sockets. */
static inline void client_turn(struct client *c)
{
    vow_loop_hold(c->w->loop);
    (void)uv_run(vow_loop_uv(c->w->loop), UV_RUN_ONCE);
    vow_loop_release(c->w->loop);
}
#define WAIT_UNTIL(c, cond)                                                    \
    do {                                                                       \
        while (!(cond))                                                        \
            client_turn(c);                                                    \
    } while (0)

/* What it said when it ended: a format with the port of the server. */
#define CHECK_WHY(c, server, format)                                           \
    do {                                                                       \
        char want_[512];                                                       \
        (void)snprintf(want_, sizeof(want_), format,                           \
                       (unsigned)(server)->port);                              \
        CHECK_STR_EQ((c)->why, want_);                                         \
    } while (0)

#endif
