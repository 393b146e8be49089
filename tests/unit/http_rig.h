/* SPDX-License-Identifier: MIT */
/* http_rig.h - a small server that speaks HTTP by plain sockets, a thread for
 * each connection, and requests to it in a world of virtual time. What the
 * server does with a request is its path.
 */
#ifndef TEST_HTTP_RIG_H
#define TEST_HTTP_RIG_H

#include "store/net/http.h"
#include "vow/uv.h"
#include "world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the server --------------------------------------------------------- */

enum { WEB_CONNECTIONS = 256, WEB_REQUEST = 4 << 20 };

struct web {
    int fd;
    uint16_t port;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t change;
    int open[WEB_CONNECTIONS]; /* descriptors; -1: closed */
    pthread_t talks[WEB_CONNECTIONS];
    size_t n;         /* connections ever */
    size_t requests;  /* heard */
    size_t said;      /* by /later */
    size_t now, most; /* being answered at once */
    size_t tickets;   /* how often /wait may answer, and /later say more */
    char say[256];    /* for /stream: what is said next */
    bool enough;      /* for /stream: end it */
    bool leave;       /* all that wait give up */
    char head[4096];  /* of the last request */
};

struct web_talk {
    struct web *web;
    int fd;
    char *in; /* a request, and what has come of the next */
    size_t n;
    char path[64];
    char *body;
    size_t body_size;
};

static inline bool web_send(struct web_talk *t, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t m = send(t->fd, bytes, n, MSG_NOSIGNAL);
        if (m <= 0)
            return false;
        bytes += m;
        n -= (size_t)m;
    }
    return true;
}

static inline bool web_say(struct web_talk *t, const char *text)
{
    return web_send(t, text, strlen(text));
}

static inline bool web_answer(struct web_talk *t, int status, const char *body,
                              size_t n)
{
    char head[128];
    (void)snprintf(head, sizeof(head),
                   "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", status, n);
    return web_say(t, head) && web_send(t, body, n);
}

/* Reads one request. False: the other has closed. */
static inline bool web_hear(struct web_talk *t)
{
    char *end = NULL;
    for (;;) {
        t->in[t->n] = '\0';
        if (end == NULL && (end = strstr(t->in, "\r\n\r\n")) != NULL) {
            const char *size = strstr(t->in, "Content-Length: ");
            CHECK(size != NULL && sscanf(t->in, "POST %63s", t->path) == 1);
            t->body = end + 4;
            t->body_size = strtoul(size + 16, NULL, 10);
            CHECK(t->body_size < WEB_REQUEST / 2);
        }
        if (end != NULL && t->n >= (size_t)(t->body - t->in) + t->body_size)
            return true;
        ssize_t m = recv(t->fd, t->in + t->n, WEB_REQUEST - 1 - t->n, 0);
        if (m <= 0)
            return false;
        t->n += (size_t)m;
    }
}

/* Chunks that the test gives one by one. */
static inline bool web_stream(struct web_talk *t)
{
    struct web *w = t->web;
    char chunk[320];
    bool ok =
        web_say(t, "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n");
    (void)pthread_mutex_lock(&w->lock);
    while (ok && !w->leave) {
        if (w->say[0] != '\0') {
            (void)snprintf(chunk, sizeof(chunk), "%zx\r\n%s\r\n",
                           strlen(w->say), w->say);
            w->say[0] = '\0';
            ok = web_say(t, chunk);
        } else if (w->enough) {
            break;
        } else {
            (void)pthread_cond_wait(&w->change, &w->lock);
        }
    }
    ok = ok && !w->leave;
    (void)pthread_mutex_unlock(&w->lock);
    return ok && web_say(t, "0\r\n\r\n");
}

static inline bool web_wait(struct web_talk *t)
{
    struct web *w = t->web;
    (void)pthread_mutex_lock(&w->lock);
    w->now++;
    w->most = w->now > w->most ? w->now : w->most;
    (void)pthread_cond_broadcast(&w->change);
    while (!w->leave && w->tickets == 0)
        (void)pthread_cond_wait(&w->change, &w->lock);
    bool ok = !w->leave;
    w->tickets -= ok ? 1 : 0;
    w->now--;
    (void)pthread_mutex_unlock(&w->lock);
    return ok && web_answer(t, 200, t->body, t->body_size);
}

static inline bool web_big(struct web_talk *t, size_t n)
{
    char *big = malloc(n);
    CHECK(big != NULL);
    for (size_t i = 0; i < n; i++)
        big[i] = (char)('a' + i % 23);
    bool ok = web_answer(t, 200, big, n);
    free(big);
    return ok;
}

/* An answer, and something else when the test says so. */
static inline bool web_later(struct web_talk *t)
{
    struct web *w = t->web;
    bool ok = web_answer(t, 200, t->body, t->body_size);
    (void)pthread_mutex_lock(&w->lock);
    while (!w->leave && w->tickets == 0)
        (void)pthread_cond_wait(&w->change, &w->lock);
    ok = ok && !w->leave;
    w->tickets -= ok ? 1 : 0;
    (void)pthread_mutex_unlock(&w->lock);
    ok = ok && web_say(t, "HTTP/1.1 200 X\r\nContent-Length: 1\r\n\r\nx");
    (void)pthread_mutex_lock(&w->lock);
    w->said++;
    (void)pthread_mutex_unlock(&w->lock);
    return ok;
}

/* False: the connection is closed. */
static inline bool web_serve(struct web_talk *t)
{
    const char *p = t->path;
    if (strcmp(p, "/echo") == 0)
        return web_answer(t, 200, t->body, t->body_size);
    if (strcmp(p, "/close") == 0) {
        (void)web_answer(t, 200, t->body, t->body_size);
        return false;
    }
    if (strcmp(p, "/more") == 0)
        return web_say(t, "HTTP/1.1 200 X\r\nContent-Length: 5\r\n\r\n"
                          "hello and more");
    if (strcmp(p, "/later") == 0)
        return web_later(t);
    if (strncmp(p, "/status/", 8) == 0)
        return web_answer(t, atoi(p + 8), "no", 2);
    if (strncmp(p, "/big/", 5) == 0)
        return web_big(t, strtoul(p + 5, NULL, 10));
    if (strcmp(p, "/stream") == 0)
        return web_stream(t);
    if (strcmp(p, "/wait") == 0)
        return web_wait(t);
    if (strcmp(p, "/half") == 0)
        (void)web_say(t, "HTTP/1.1 200 X\r\nContent-Length: 99\r\n\r\nhalf");
    else if (strcmp(p, "/halfchunk") == 0)
        (void)web_say(t, "HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
                         "ff\r\nhalf");
    else if (strcmp(p, "/halfhead") == 0)
        (void)web_say(t, "HTTP/1.1 200 X\r\nContent-Le");
    else if (strcmp(p, "/garbage") == 0)
        (void)web_say(t, "what do you want?\r\n");
    else if (strcmp(p, "/redirect") == 0)
        return web_say(t, "HTTP/1.1 307 X\r\nLocation: /echo\r\n"
                          "Content-Length: 0\r\n\r\n");
    else
        CHECK_STR_EQ(p, "/nothing"); /* it just closes */
    return false;
}

static inline void *web_talk(void *arg)
{
    struct web_talk *t = arg;
    struct web *w = t->web;
    bool more = true;
    while (more && web_hear(t)) {
        size_t used = (size_t)(t->body - t->in) + t->body_size;
        (void)pthread_mutex_lock(&w->lock);
        w->requests++;
        (void)snprintf(w->head, sizeof(w->head), "%.*s", (int)(t->body - t->in),
                       t->in);
        (void)pthread_cond_broadcast(&w->change);
        (void)pthread_mutex_unlock(&w->lock);
        more = web_serve(t);
        memmove(t->in, t->in + used, t->n - used);
        t->n -= used;
    }
    (void)pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < w->n; i++)
        if (w->open[i] == t->fd)
            w->open[i] = -1;
    (void)close(t->fd);
    (void)pthread_mutex_unlock(&w->lock);
    free(t->in);
    free(t);
    return NULL;
}

static inline void *web_run(void *arg)
{
    struct web *w = arg;
    int on = 1;
    for (;;) {
        int fd = accept(w->fd, NULL, NULL);
        if (fd < 0)
            return NULL; /* shut down */
        struct web_talk *t = calloc(1, sizeof(*t));
        CHECK(t != NULL);
        *t = (struct web_talk){.web = w, .fd = fd, .in = malloc(WEB_REQUEST)};
        CHECK(t->in != NULL);
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        (void)pthread_mutex_lock(&w->lock);
        CHECK(w->n < WEB_CONNECTIONS);
        w->open[w->n] = fd;
        CHECK(pthread_create(&w->talks[w->n++], NULL, web_talk, t) == 0);
        (void)pthread_mutex_unlock(&w->lock);
    }
}

static inline void web_open_at(struct web *w, const char *address,
                               uint16_t port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    socklen_t size = sizeof(at);
    memset(w, 0, sizeof(*w));
    CHECK(inet_pton(AF_INET, address, &at.sin_addr) == 1);
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_cond_init(&w->change, NULL);
    w->fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(w->fd >= 0);
    CHECK(bind(w->fd, (struct sockaddr *)&at, size) == 0);
    CHECK(getsockname(w->fd, (struct sockaddr *)&at, &size) == 0);
    CHECK(listen(w->fd, 64) == 0);
    w->port = ntohs(at.sin_port);
    CHECK(pthread_create(&w->thread, NULL, web_run, w) == 0);
}

static inline void web_open(struct web *w)
{
    web_open_at(w, "127.0.0.1", 0);
}

/* Ends all connections, whoever is on them. */
static inline void web_cut(struct web *w)
{
    (void)pthread_mutex_lock(&w->lock);
    w->leave = true;
    for (size_t i = 0; i < w->n; i++)
        if (w->open[i] >= 0)
            (void)shutdown(w->open[i], SHUT_RDWR);
    (void)pthread_cond_broadcast(&w->change);
    (void)pthread_mutex_unlock(&w->lock);
}

static inline void web_close(struct web *w)
{
    (void)shutdown(w->fd, SHUT_RDWR);
    CHECK(pthread_join(w->thread, NULL) == 0);
    web_cut(w);
    for (size_t i = 0; i < w->n; i++)
        CHECK(pthread_join(w->talks[i], NULL) == 0);
    (void)close(w->fd);
}

static inline size_t web_read(struct web *w, const size_t *number)
{
    (void)pthread_mutex_lock(&w->lock);
    size_t n = *number;
    (void)pthread_mutex_unlock(&w->lock);
    return n;
}

/* Waits until so many are there. */
static inline void web_await(struct web *w, const size_t *number, size_t n)
{
    (void)pthread_mutex_lock(&w->lock);
    while (*number < n)
        (void)pthread_cond_wait(&w->change, &w->lock);
    (void)pthread_mutex_unlock(&w->lock);
}

/* So many more of /wait may be answered; this is said by /stream, or all. */
static inline void web_let(struct web *w, size_t tickets, const char *say)
{
    (void)pthread_mutex_lock(&w->lock);
    w->tickets += tickets;
    if (say != NULL)
        (void)snprintf(w->say, sizeof(w->say), "%s", say);
    (void)pthread_cond_broadcast(&w->change);
    (void)pthread_mutex_unlock(&w->lock);
}

static inline void web_end_stream(struct web *w)
{
    (void)pthread_mutex_lock(&w->lock);
    w->enough = true;
    (void)pthread_cond_broadcast(&w->change);
    (void)pthread_mutex_unlock(&w->lock);
}

/* ---- the client --------------------------------------------------------- */

struct browser {
    struct world own;
    struct world *w; /* own, or that of a sweep */
    struct vow__http *h;
    bool inside; /* a call of ours */
    bool closed;
};

struct reply {
    struct browser *b;
    struct vow__http_request *r; /* NULL: told, or canceled */
    int told;
    int code;
    unsigned status;
    char why[512];
    char *body; /* of the answer, or the stream */
    size_t n;
    /* Called when it is told, and with each bytes of a stream. */
    void (*on_told)(struct reply *p);
    void (*on_some)(struct reply *p);
    void *user;
};

static inline int browser_try_open(struct browser *b,
                                   const struct vow__http_opts *opts, char *why,
                                   size_t why_size)
{
    struct vow__http_opts o = *opts;
    o.tls |= o.ca_file != NULL || o.cert_file != NULL;
    o.connections = o.connections == 0 ? 4 : o.connections;
    o.connect_ms = o.connect_ms == 0 ? 60000 : o.connect_ms;
    return vow__http_open(b->w->loop, &o, &b->h, why, why_size);
}

#define HTTP_OPTS(...) (&(const struct vow__http_opts){__VA_ARGS__})

static inline void browser_open_with(struct browser *b,
                                     const struct vow__http_opts *opts)
{
    char why[512] = "";
    memset(b, 0, sizeof(*b));
    b->w = &b->own;
    world_open(b->w);
    if (browser_try_open(b, opts, why, sizeof(why)) != 0)
        FAIL("vow__http_open: %s", why);
}

static inline void browser_open(struct browser *b)
{
    browser_open_with(b, HTTP_OPTS(.connections = 4));
}

static inline void browser_on_closed(void *user)
{
    struct browser *b = user;
    CHECK(!b->inside && !b->closed);
    b->closed = true;
}

/* One turn of the loop, which waits for sockets. */
static inline void browser_turn(struct browser *b)
{
    vow_loop_hold(b->w->loop);
    (void)uv_run(vow_loop_uv(b->w->loop), UV_RUN_ONCE);
    vow_loop_release(b->w->loop);
}
static inline void browser_turn_now(struct browser *b)
{
    (void)uv_run(vow_loop_uv(b->w->loop), UV_RUN_NOWAIT);
}
#define WAIT_FOR(b, cond)                                                      \
    do {                                                                       \
        while (!(cond))                                                        \
            browser_turn(b);                                                   \
    } while (0)

/* The same for what another thread does, which wakes no loop. */
#define WAIT_BUSY(b, cond)                                                     \
    do {                                                                       \
        while (!(cond))                                                        \
            browser_turn_now(b);                                               \
    } while (0)

static inline void browser_shut(struct browser *b)
{
    struct vow__http *h = b->h;
    b->h = NULL;
    b->inside = true;
    vow__http_close(h, browser_on_closed, b);
    b->inside = false;
}

static inline void browser_close(struct browser *b)
{
    if (b->h != NULL)
        browser_shut(b);
    world_run(b->w);
    CHECK(b->closed);
    world_close(b->w);
}

static inline void reply_keep(struct reply *p, const char *bytes, size_t n)
{
    if (n == 0)
        return;
    p->body = realloc(p->body, p->n + n + 1);
    CHECK(p->body != NULL);
    memcpy(p->body + p->n, bytes, n);
    p->n += n;
    p->body[p->n] = '\0';
}

static inline void reply_on_bytes(const char *bytes, size_t n, void *user)
{
    struct reply *p = user;
    CHECK(p->r != NULL && p->told == 0 && n > 0);
    reply_keep(p, bytes, n);
    if (p->on_some != NULL)
        p->on_some(p);
}

static inline void reply_on_told(const struct vow__http_answer *a, void *user)
{
    struct reply *p = user;
    CHECK(p->r != NULL);
    CHECK_INT_EQ(p->told++, 0);
    CHECK((a->code == 0) == (a->why == NULL));
    p->r = NULL;
    p->code = a->code;
    p->status = a->status;
    (void)snprintf(p->why, sizeof(p->why), "%s", a->why == NULL ? "" : a->why);
    reply_keep(p, a->body, a->size);
    if (p->on_told != NULL)
        p->on_told(p);
}

#define ASK(...) (&(const struct vow__http_ask){__VA_ARGS__})

/* "http://a:1/path"; the scheme is for the eye. */
static inline const char *web_split(const char *url, struct vow__http_server *s)
{
    char host[256];
    const char *at = strstr(url, "://") + 3;
    const char *path = strchr(at, '/');
    const char *port = memchr(at, ':', (size_t)(path - at));
    CHECK(port != NULL);
    (void)snprintf(host, sizeof(host), "%.*s", (int)(port - at), at);
    CHECK(vow__http_server(host, (uint16_t)atoi(port + 1), s) == 0);
    return path;
}

/* Only what is not 0 in `ask` is different: an echo of "hello" within 1000 ms.
 * NULL: no memory. */
static inline struct reply *reply_ask(struct reply *p, struct browser *b,
                                      const char *url,
                                      const struct vow__http_ask *ask)
{
    struct vow__http_ask a = *ask;
    struct vow__http_server server;
    a.path = web_split(url, &server);
    a.server = &server;
    a.answer_max = a.answer_max == 0 ? 64 << 20 : a.answer_max;
    if (a.on_bytes == NULL && a.timeout_ms == 0)
        a.timeout_ms = 1000;
    if (a.body == NULL) {
        a.body = "hello";
        a.body_size = 5;
    }
    p->b = b;
    p->r = vow__http_post(b->h, &a, reply_on_told, p);
    CHECK_INT_EQ(p->told, 0);
    return p->r == NULL ? NULL : p;
}

/* The url of a path at the server. */
static inline const char *web_url(const struct web *w, const char *path)
{
    static char url[128];
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", (unsigned)w->port,
                   path);
    return url;
}

static inline void reply_post(struct reply *p, struct browser *b,
                              const struct web *w, const char *path)
{
    CHECK(reply_ask(p, b, web_url(w, path), ASK(.body = NULL)) != NULL);
}

static inline void reply_stream(struct reply *p, struct browser *b,
                                const struct web *w, const char *path)
{
    CHECK(reply_ask(p, b, web_url(w, path), ASK(.on_bytes = reply_on_bytes)) !=
          NULL);
}

static inline void reply_cancel(struct reply *p)
{
    struct vow__http_request *r = p->r;
    p->r = NULL;
    vow__http_cancel(r);
}

static inline void reply_free(struct reply *p)
{
    free(p->body);
    *p = (struct reply){.told = 0};
}

/* Ask, wait for the answer. */
static inline void reply_get(struct reply *p, struct browser *b,
                             const struct web *w, const char *path)
{
    reply_free(p);
    reply_post(p, b, w, path);
    WAIT_FOR(b, p->told == 1);
}

/* The server has heard it, and says nothing yet. */
static inline void reply_heard(struct reply *p, struct web *w, size_t requests)
{
    WAIT_BUSY(p->b, web_read(w, &w->requests) >= requests);
}

/* What it said: a format with the port of the server. */
#define CHECK_SAYS(p, web, format)                                             \
    do {                                                                       \
        char want_[512];                                                       \
        (void)snprintf(want_, sizeof(want_), format, (unsigned)(web)->port);   \
        CHECK_STR_EQ((p)->why, want_);                                         \
    } while (0)

#endif
