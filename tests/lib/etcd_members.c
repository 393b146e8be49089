/* SPDX-License-Identifier: MIT */
/* etcd_members.c - see etcd_members.h. */
#include "etcd_members.h"
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

enum { QUIET_TURNS = 30, STEP_MS = 10 };

/* ---- listening ----------------------------------------------------------- */

static void listen_at(struct members *m, size_t member)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(m->at[member].port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int on = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    CHECK(fd >= 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    CHECK(listen(fd, MEMBER_TALKS) == 0);
    m->at[member].fd = fd;
    m->at[member].port = ntohs(a.sin_port);
}

static void talk_end(struct talk *t)
{
    if (t->fd >= 0)
        close(t->fd);
    free(t->out);
    t->fd = -1;
    t->out = NULL;
    t->in_n = t->out_n = 0;
    t->streams = false;
}

void member_hang_up(struct members *m, size_t member)
{
    for (size_t i = 0; i < MEMBER_TALKS; i++)
        talk_end(&m->at[member].talks[i]);
}

void member_deaf(struct members *m, size_t member)
{
    if (m->at[member].fd >= 0)
        close(m->at[member].fd);
    m->at[member].fd = -1;
    member_hang_up(m, member);
}

void member_again(struct members *m, size_t member)
{
    CHECK(m->at[member].fd < 0);
    listen_at(m, member);
}

/* ---- talking ------------------------------------------------------------- */

static void say(struct talk *t, const char *text, size_t n)
{
    t->out = realloc(t->out, t->out_n + n);
    CHECK(t->out != NULL || n == 0);
    memcpy(t->out + t->out_n, text, n);
    t->out_n += n;
}

static struct talk *stream_of(struct members *m, size_t member)
{
    for (size_t i = 0; i < MEMBER_TALKS; i++)
        if (m->at[member].talks[i].fd >= 0 && m->at[member].talks[i].streams)
            return &m->at[member].talks[i];
    return NULL;
}

bool member_streams(struct members *m, size_t member)
{
    return stream_of(m, member) != NULL;
}

void member_say(struct members *m, size_t member, const char *text, size_t n)
{
    struct talk *t = stream_of(m, member);
    CHECK(t != NULL);
    say(t, text, n);
}

static void answer(struct talk *t, const char *says)
{
    char head[128];
    int status = (int)strtol(says, NULL, 10);
    if (strcmp(says, "hang up") == 0) {
        talk_end(t);
        return;
    }
    if (says[0] == 0)
        return;
    t->streams = says[3] == '+';
    says += 4;
    if (t->streams)
        snprintf(head, sizeof(head),
                 "HTTP/1.1 %d X\r\nConnection: close\r\n\r\n", status);
    else
        snprintf(head, sizeof(head),
                 "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", status,
                 strlen(says));
    say(t, head, strlen(head));
    say(t, says, strlen(says));
}

/* A whole request, if it is there. */
static bool hear(struct members *m, size_t member, struct talk *t)
{
    char path[64];
    t->in[t->in_n] = 0;
    char *end = strstr(t->in, "\r\n\r\n");
    if (t->fd < 0 || end == NULL)
        return false;
    const char *size = strstr(t->in, "Content-Length: ");
    CHECK(size != NULL && size < end);
    CHECK(sscanf(t->in, "POST /v3/%63s HTTP/1.1\r\n", path) == 1);
    CHECK(strstr(t->in, "\r\nContent-Type: application/json\r\n") != NULL);
    /* Only a doctor asks who has none. */
    CHECK((strstr(t->in, "\r\nGrpc-Metadata-hasleader: true\r\n") == NULL) ==
          (strcmp(path, "maintenance/status") == 0));
    char *body = end + 4;
    size_t whole = (size_t)(body - t->in) + strtoul(size + 16, NULL, 10);
    if (t->in_n < whole)
        return false;
    const char *who = strstr(t->in, "\r\nAuthorization: ");
    m->who[0] = 0;
    if (who != NULL && who < end)
        CHECK(sscanf(who, "\r\nAuthorization: %255[^\r]", m->who) == 1);
    snprintf(m->body, sizeof(m->body), "%.*s",
             (int)(whole - (size_t)(body - t->in)), body);
    size_t used = strlen(m->log);
    snprintf(m->log + used, sizeof(m->log) - used, "%zu:%s ", member, path);
    m->asked++;
    memmove(t->in, t->in + whole, t->in_n - whole);
    t->in_n -= whole;
    answer(t, m->answer(m, member, path, m->body));
    return true;
}

static bool serve_talk(struct members *m, size_t member, struct talk *t)
{
    bool did = false;
    ssize_t n =
        recv(t->fd, t->in + t->in_n, MEMBER_BYTES - 1 - t->in_n, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        talk_end(t);
        return true;
    }
    if (n > 0) {
        t->in_n += (size_t)n;
        did = true;
        while (hear(m, member, t))
            ;
    }
    if (t->fd < 0 || t->out_n == 0)
        return did;
    size_t most = m->cut != 0 && m->cut < t->out_n ? m->cut : t->out_n;
    n = send(t->fd, t->out, most, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
        t->out_n -= (size_t)n;
        memmove(t->out, t->out + n, t->out_n);
    }
    return true;
}

static bool serve(struct members *m, size_t member)
{
    bool did = false;
    int fd, on = 1;
    struct talk *talks = m->at[member].talks;
    while (m->at[member].fd >= 0 &&
           (fd = accept4(m->at[member].fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        size_t i = 0;
        while (i < MEMBER_TALKS && talks[i].fd >= 0)
            i++;
        CHECK(i < MEMBER_TALKS);
        CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
        talks[i].fd = fd;
        did = true;
    }
    for (size_t i = 0; i < MEMBER_TALKS; i++)
        if (talks[i].fd >= 0)
            did |= serve_talk(m, member, &talks[i]);
    return did;
}

static bool serve_all(struct members *m)
{
    bool did = false;
    for (size_t i = 0; i < m->n; i++)
        did |= serve(m, i);
    vow_loop_hold(m->w->loop);
    (void)uv_run(vow_loop_uv(m->w->loop), UV_RUN_NOWAIT);
    vow_loop_release(m->w->loop);
    return did;
}

void members_step(struct members *m)
{
    if (!serve_all(m))
        (void)poll(NULL, 0, 1);
}

void members_settle(struct members *m)
{
    for (int quiet = 0; quiet < QUIET_TURNS; quiet++)
        if (serve_all(m))
            quiet = 0;
}

void members_pass(struct members *m, uint64_t ms)
{
    while (ms > 0) {
        uint64_t step = ms < STEP_MS ? ms : STEP_MS;
        members_settle(m);
        world_advance_ms(m->w, step);
        ms -= step;
    }
    members_settle(m);
}

/* ---- opening and closing ------------------------------------------------- */

void members_begin(struct members *m, struct world *w, size_t n,
                   members_fn says)
{
    memset(m, 0, sizeof(*m));
    m->w = w;
    m->n = n;
    m->answer = says;
    CHECK(n <= MEMBERS);
    size_t used = (size_t)snprintf(m->url, sizeof(m->url), "etcd://");
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < MEMBER_TALKS; j++)
            m->at[i].talks[j].fd = -1;
        listen_at(m, i);
        used +=
            (size_t)snprintf(m->url + used, sizeof(m->url) - used,
                             "%s127.0.0.1:%u", i > 0 ? "," : "", m->at[i].port);
    }
}

void members_store(struct members *m, const vow_etcd_opts *opts)
{
    VOW_AUTO(vow_future)
    opened = vow_store_etcd_open(m->w->loop, m->url, opts);
    (void)vow_loop_run_until(m->w->loop, opened);
    if (vow_state_of(opened) == VOW_FULFILLED) {
        m->store = vow_as_ptr(vow_get(opened));
        m->etcd = vow__etcd_of(m->store);
    } else if (!fault_explains(m->w, vow_error_code(vow_error_of(opened)))) {
        FAIL("%s", vow_error_message(vow_error_of(opened)));
    }
}

void members_open(struct members *m, size_t n, members_fn says,
                  const vow_etcd_opts *opts)
{
    static struct world w;
    world_open(&w);
    members_begin(m, &w, n, says);
    members_store(m, opts);
}

void members_end(struct members *m)
{
    if (m->store != NULL) {
        VOW_AUTO(vow_future) closed = m->store->ops->close(m->store);
        MEMBERS_UNTIL(m, vow_state_of(closed) != VOW_PENDING);
        (void)vow_error_of(closed);
    }
    m->store = NULL;
    for (size_t i = 0; i < m->n; i++)
        member_deaf(m, i);
}

void members_close(struct members *m)
{
    members_end(m);
    world_run(m->w);
    world_close(m->w);
}
