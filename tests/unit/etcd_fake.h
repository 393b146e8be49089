/* SPDX-License-Identifier: MIT */
/* etcd_fake.h - a gateway of etcd that says what a test wants, on the test's
 * own thread: it serves while the test waits, so nothing depends on time; and a
 * store that asks it, in a world of virtual time.
 *
 *     struct fake_etcd f;
 *     fake_etcd_open(&f, my_answer, NULL);
 *     vow__lease_use(f.etcd, 1000, 0, on_lease, ...);
 *     FAKE_ETCD_UNTIL(&f, told);
 *     fake_etcd_close(&f);
 */
#ifndef TEST_ETCD_FAKE_H
#define TEST_ETCD_FAKE_H

#include "fault.h"
#include "store/etcd/etcd_internal.h"
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

enum { FAKE_TALKS = 16, FAKE_ROOM = 64 * 1024, FAKE_QUIET = 30 };

#define FAKE_SILENCE ""
#define FAKE_HANG_UP "hang up"

struct fake_etcd;
struct fake_talk {
    int fd; /* -1: none */
    char in[FAKE_ROOM];
    size_t n;
    bool streams;
};

/* The body that is answered, FAKE_SILENCE or FAKE_HANG_UP; of "watch" the first
 * line. Borrowed. */
typedef const char *(*fake_etcd_fn)(struct fake_etcd *f, const char *path,
                                    const char *body);

struct fake_etcd {
    struct world *w;
    vow_store *store; /* NULL: no memory for one */
    struct vow__etcd *etcd;
    int fd;
    uint16_t port;
    struct fake_talk talks[FAKE_TALKS];
    struct fake_talk *last; /* who asked last */
    fake_etcd_fn answer;
    void *user;
    unsigned asked;       /* requests so far */
    char body[FAKE_ROOM]; /* of the last */
    char said[FAKE_ROOM]; /* for answers that are printed */
    char log[8 * 1024];   /* the paths, each with a blank behind it */
};

static inline void fake_etcd_listen(struct fake_etcd *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    for (size_t i = 0; i < FAKE_TALKS; i++)
        f->talks[i].fd = -1;
    f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(f->fd >= 0);
    CHECK(bind(f->fd, (struct sockaddr *)&a, sizeof(a)) == 0);
    CHECK(getsockname(f->fd, (struct sockaddr *)&a, &n) == 0);
    CHECK(listen(f->fd, FAKE_TALKS) == 0);
    f->port = ntohs(a.sin_port);
}

static inline void fake_talk_end(struct fake_talk *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

/* The store may have closed the connection meanwhile. */
static inline void fake_talk_say(struct fake_talk *t, const char *text)
{
    size_t n = strlen(text);
    if (t->fd < 0 || send(t->fd, text, n, MSG_NOSIGNAL) == (ssize_t)n)
        return;
    CHECK(errno == EPIPE || errno == ECONNRESET);
    fake_talk_end(t);
}

static inline void fake_talk_answer(struct fake_talk *t, const char *body)
{
    char head[128];
    snprintf(head, sizeof(head),
             "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", strlen(body));
    fake_talk_say(t, head);
    fake_talk_say(t, body);
}

/* The stream that was begun last, if it is open. */
static inline struct fake_talk *fake_stream(struct fake_etcd *f)
{
    for (size_t i = 0; i < FAKE_TALKS; i++)
        if (f->talks[i].fd >= 0 && f->talks[i].streams)
            return &f->talks[i];
    return NULL;
}

static inline void fake_line(struct fake_etcd *f, const char *line)
{
    struct fake_talk *t = fake_stream(f);
    CHECK(t != NULL);
    fake_talk_say(t, line);
    fake_talk_say(t, "\n");
}

static inline void fake_answer(struct fake_etcd *f, struct fake_talk *t,
                               const char *path, const char *body)
{
    size_t used = strlen(f->log);
    f->asked++;
    f->last = t;
    snprintf(f->log + used, sizeof(f->log) - used, "%s ", path);
    snprintf(f->body, sizeof(f->body), "%s", body);
    const char *says = f->answer(f, path, body);
    if (strcmp(says, FAKE_HANG_UP) == 0) {
        fake_talk_end(t);
    } else if (strcmp(path, "watch") == 0) {
        t->streams = true;
        fake_talk_say(t, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        fake_talk_say(t, says);
        fake_talk_say(t, "\n");
    } else if (says[0] != 0) {
        fake_talk_answer(t, says);
    }
}

/* A whole request, if it is there. */
static inline bool fake_hear(struct fake_etcd *f, struct fake_talk *t)
{
    char path[64];
    t->in[t->n] = 0;
    char *end = strstr(t->in, "\r\n\r\n");
    char *size = strstr(t->in, "Content-Length: ");
    if (end == NULL)
        return false;
    CHECK(size != NULL && size < end);
    CHECK(strstr(t->in, "Grpc-Metadata-hasleader: true\r\n") != NULL);
    CHECK(sscanf(t->in, "POST /v3/%63s", path) == 1);
    size_t whole = (size_t)(end + 4 - t->in) + strtoul(size + 16, NULL, 10);
    if (t->n < whole)
        return false;
    char after = t->in[whole];
    t->in[whole] = 0;
    fake_answer(f, t, path, end + 4);
    t->in[whole] = after;
    memmove(t->in, t->in + whole, t->n - whole);
    t->n -= whole;
    return t->fd >= 0;
}

static inline bool fake_talk_serve(struct fake_etcd *f, struct fake_talk *t)
{
    ssize_t n = recv(t->fd, t->in + t->n, FAKE_ROOM - 1 - t->n, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        fake_talk_end(t);
        return true;
    }
    t->n += (size_t)n;
    while (fake_hear(f, t))
        ;
    return true;
}

/* Take and answer what is there. False: there was nothing. */
static inline bool fake_etcd_serve(struct fake_etcd *f)
{
    bool did = false;
    int fd, on = 1;
    while ((fd = accept4(f->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        size_t i = 0;
        while (i < FAKE_TALKS && f->talks[i].fd >= 0)
            i++;
        CHECK(i < FAKE_TALKS);
        CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
        f->talks[i].fd = fd;
        f->talks[i].n = 0;
        f->talks[i].streams = false;
        did = true;
    }
    for (size_t i = 0; i < FAKE_TALKS; i++)
        if (f->talks[i].fd >= 0)
            did |= fake_talk_serve(f, &f->talks[i]);
    return did;
}

static inline void fake_etcd_step(struct fake_etcd *f)
{
    bool did = fake_etcd_serve(f);
    vow_loop_hold(f->w->loop);
    (void)uv_run(vow_loop_uv(f->w->loop), UV_RUN_NOWAIT);
    vow_loop_release(f->w->loop);
    world_advance_ms(f->w, 0); /* what has become due meanwhile */
    if (!did)
        (void)poll(NULL, 0, 1);
}

/* Serve until this holds; the test's own time limit ends it. */
#define FAKE_ETCD_UNTIL(f, cond)                                               \
    do {                                                                       \
        while (!(cond))                                                        \
            fake_etcd_step(f);                                                 \
    } while (0)

/* Serve for as long as something is going on. */
static inline void fake_etcd_settle(struct fake_etcd *f)
{
    for (int quiet = 0; quiet < FAKE_QUIET; quiet++) {
        if (fake_etcd_serve(f))
            quiet = 0;
        fake_etcd_step(f);
    }
}

/* Time passes, in steps of at most 10 ms, and what comes of it is served. */
static inline void fake_etcd_pass(struct fake_etcd *f, uint64_t ms)
{
    while (ms > 0) {
        uint64_t step = ms < 10 ? ms : 10;
        world_advance_ms(f->w, step);
        fake_etcd_step(f);
        ms -= step;
    }
    fake_etcd_settle(f);
}

/* In a world that is open: of a sweep. The store may be NULL then. */
static inline void fake_etcd_begin(struct fake_etcd *f, struct world *w,
                                   fake_etcd_fn answer)
{
    char url[64];
    memset(f, 0, sizeof(*f));
    f->w = w;
    f->answer = answer;
    fake_etcd_listen(f);
    snprintf(url, sizeof(url), "etcd://127.0.0.1:%u", f->port);
    VOW_AUTO(vow_future)
    opened = vow_store_etcd_open(
        w->loop, url, VOW_ETCD_OPTS(.timeout_ms = 3000, .recheck_ms = 1000));
    (void)vow_loop_run_until(w->loop, opened);
    if (vow_state_of(opened) == VOW_FULFILLED) {
        f->store = vow_as_ptr(vow_get(opened));
        f->etcd = vow__etcd_of(f->store);
    } else if (!fault_explains(w, vow_error_code(vow_error_of(opened)))) {
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    }
}

static inline void fake_etcd_open(struct fake_etcd *f, fake_etcd_fn answer)
{
    static struct world w;
    world_open(&w);
    fake_etcd_begin(f, &w, answer);
}

/* The store is closed; the world is not. */
static inline void fake_etcd_end(struct fake_etcd *f)
{
    if (f->store != NULL) {
        VOW_AUTO(vow_future) closed = f->store->ops->close(f->store);
        FAKE_ETCD_UNTIL(f, vow_state_of(closed) != VOW_PENDING);
        (void)vow_error_of(closed);
    }
    f->store = NULL;
    for (size_t i = 0; i < FAKE_TALKS; i++)
        fake_talk_end(&f->talks[i]);
    close(f->fd);
}

static inline void fake_etcd_close(struct fake_etcd *f)
{
    fake_etcd_end(f);
    world_run(f->w);
    world_close(f->w);
}

#endif
