/* SPDX-License-Identifier: MIT */
/* stream_connect.c - finding a server and connecting to it.
 *
 * WHY   A name may have many addresses, of which some lead nowhere.
 * HOW   The addresses of a name are tried in turn. Each gets an equal share of
 *       the time that is left, the last all of it, so that one that does not
 *       answer cannot use up the time of the others. A handle that is closed is
 *       used again when libuv has let go of it. Of all reasons that addresses
 *       give, a refusal is told first: there the machine was reached.
 *       Who does not run for a while finds the time over and the answer there:
 *       then the answer counts, and time begins anew.
 * LIMITS  a lookup that libuv's threads have begun cannot be called off: the
 *       stream then ends in time, and its memory stays until the lookup does.
 * THREADS  loop thread only.
 */
#include "store/net/stream_internal.h"

#include "base/clock.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    KEEPALIVE_S = 15,
    KEEPALIVE_STEP_S = 5,
    KEEPALIVE_TRIES = 3,
    STALLED_MS = 250
};

static bool literal(struct vow__stream *s);
static bool local(struct vow__stream *s);
static void look_up(struct vow__stream *s);
static void on_found(uv_getaddrinfo_t *lookup, int status,
                     struct addrinfo *found);
static void try_next(struct vow__stream *s);
static int try_one(struct vow__stream *s, const struct addrinfo *a);
static uint64_t share_ends_ns(const struct vow__stream *s);
static void on_late(void *user);
static bool has_answered(const struct vow__stream *s);
static void too_late(struct vow__stream *s);
static void address_failed(struct vow__stream *s, int code);
static void note(struct vow__stream *s, int code);
static void on_tried(uv_poll_t *poll, int status, int events);
static void options_set(const struct vow__stream *s, int family);
static void socket_close(struct vow__stream *s);
static void on_closed(uv_handle_t *handle);
static const char *lookup_text(int code);

void vow__stream_begin(struct vow__stream *s)
{
    vow_call_at(&s->late, s->loop, s->deadline_ns, on_late, s);
    if (s->host == NULL ? local(s) : literal(s)) {
        s->next = &s->single;
        vow__stream_move(s, VOW__STREAM_CONNECTS);
        try_next(s);
    } else if (s->host == NULL) {
        vow__stream_end(s, VOW_EINVAL,
                        "%s: the path of a socket has 1 to %zu bytes", s->shown,
                        sizeof(s->own.local.sun_path) - 1);
    } else {
        look_up(s);
    }
}

static bool literal(struct vow__stream *s)
{
    s->single = (struct addrinfo){.ai_addr = &s->own.any};
    if (uv_ip4_addr(s->host, s->port, &s->own.v4) == 0) {
        s->single.ai_family = AF_INET;
        s->single.ai_addrlen = sizeof(s->own.v4);
        return true;
    }
    s->single.ai_family = AF_INET6;
    s->single.ai_addrlen = sizeof(s->own.v6);
    return uv_ip6_addr(s->host, s->port, &s->own.v6) == 0;
}

static bool local(struct vow__stream *s)
{
    size_t n = s->path == NULL ? 0 : strlen(s->path);
    if (n == 0 || n >= sizeof(s->own.local.sun_path))
        return false;
    s->own.local = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(s->own.local.sun_path, s->path, n);
    s->single = (struct addrinfo){.ai_family = AF_UNIX,
                                  .ai_addr = &s->own.any,
                                  .ai_addrlen = sizeof(s->own.local)};
    return true;
}

/* ---- the name ----------------------------------------------------------- */

static void look_up(struct vow__stream *s)
{
    char port[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_protocol = IPPROTO_TCP,
                             .ai_flags = AI_NUMERICSERV};
    (void)snprintf(port, sizeof(port), "%u", (unsigned)s->port);
    vow__stream_move(s, VOW__STREAM_LOOKS_UP);
    s->lookup.data = s;
    sigset_t all; /* the thread that looks it up takes no signals of ours */
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = uv_getaddrinfo(vow_loop_uv(s->loop), &s->lookup, on_found, s->host,
                            port, &hints);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc < 0) {
        vow__stream_end(s, rc, NULL);
        return;
    }
    s->looking = true;
    vow__stream_hold(s);
}

static void on_found(uv_getaddrinfo_t *lookup, int status,
                     struct addrinfo *found)
{
    struct vow__stream *s = lookup->data;
    s->looking = false;
    s->found = found;
    s->next = found;
    if (s->state == VOW__STREAM_LOOKS_UP && (status < 0 || found == NULL)) {
        vow__stream_end(s, status < 0 ? status : UV_EAI_NONAME, NULL);
    } else if (s->state == VOW__STREAM_LOOKS_UP) {
        vow__stream_move(s, VOW__STREAM_CONNECTS);
        try_next(s);
    }
    vow__stream_let_go(s);
}

/* ---- the addresses ------------------------------------------------------ */

static void try_next(struct vow__stream *s)
{
    while (s->next != NULL) {
        uint64_t due = share_ends_ns(s);
        const struct addrinfo *a = s->next;
        s->next = a->ai_next;
        int rc = try_one(s, a);
        if (rc == 0) {
            vow_call_at(&s->late, s->loop, due, on_late, s);
            return;
        }
        note(s, rc);
    }
    vow__stream_end(s, s->refused, NULL);
}

static int try_one(struct vow__stream *s, const struct addrinfo *a)
{
    int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    int fd = socket(a->ai_family, type, 0);
    if (fd < 0)
        return -errno;
    int rc = connect(fd, a->ai_addr, a->ai_addrlen);
    rc = rc < 0 && errno != EINPROGRESS && errno != EINTR ? -errno : 0;
    if (rc == 0)
        rc = uv_poll_init(vow_loop_uv(s->loop), &s->poll, fd);
    if (rc < 0) {
        (void)close(fd);
        return rc;
    }
    s->fd = fd;
    s->poll.data = s;
    vow__stream_hold(s);
    options_set(s, a->ai_family);
    (void)uv_poll_start(&s->poll, UV_WRITABLE, on_tried);
    return 0;
}

static uint64_t share_ends_ns(const struct vow__stream *s)
{
    uint64_t left = 0;
    uint64_t now = vow_loop_now_ns(s->loop);
    for (const struct addrinfo *a = s->next; a != NULL; a = a->ai_next)
        left++;
    if (left <= 1 || now >= s->deadline_ns)
        return s->deadline_ns;
    return now + (s->deadline_ns - now) / left;
}

static void on_late(void *user)
{
    struct vow__stream *s = user;
    vow__stream_hold(s);
    bool answered = s->state == VOW__STREAM_CONNECTS && has_answered(s);
    if (!answered)
        vow__stream_look(s);
    bool forgiven = s->state < VOW__STREAM_OPEN &&
                    vow__stream_forgive(s->loop, s->deadline_ns, &s->forgiven);
    if (answered || forgiven)
        s->deadline_ns = vow_loop_due_ns(s->loop, s->connect_ms);
    if (answered)
        on_tried(&s->poll, 0, UV_WRITABLE);
    else if (forgiven)
        vow_call_at(&s->late, s->loop, s->deadline_ns, on_late, s);
    else if (s->state < VOW__STREAM_OPEN)
        too_late(s);
    vow__stream_let_go(s);
}

bool vow__stream_forgive(const vow_loop *loop, uint64_t due_ns, bool *forgiven)
{
    uint64_t now = vow_loop_now_ns(loop);
    bool stalled =
        now >= due_ns && (now - due_ns) / VOW__NS_PER_MS >= STALLED_MS;
    bool first = stalled && !*forgiven;
    *forgiven |= stalled;
    return first;
}

/* It is connected, or was refused, and we have not heard of it yet. */
static bool has_answered(const struct vow__stream *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    return s->fd >= 0 && poll(&p, 1, 0) == 1;
}

static void too_late(struct vow__stream *s)
{
    if (s->state == VOW__STREAM_CONNECTS && s->next != NULL)
        address_failed(s, UV_ETIMEDOUT);
    else if (s->state == VOW__STREAM_LOOKS_UP)
        vow__stream_end(s, VOW_ETIMEDOUT,
                        "the name %s was not found within %llu ms", s->host,
                        (unsigned long long)s->connect_ms);
    else if (s->state == VOW__STREAM_GREETS)
        vow__stream_end(s, VOW_ETIMEDOUT,
                        "%s did not agree on TLS within %llu ms; perhaps it "
                        "speaks none",
                        s->shown, (unsigned long long)s->connect_ms);
    else
        vow__stream_end(s, VOW_ETIMEDOUT, "%s did not answer within %llu ms",
                        s->shown, (unsigned long long)s->connect_ms);
}

/* The next one is tried in on_closed(), or here if there is none. */
static void address_failed(struct vow__stream *s, int code)
{
    note(s, code);
    if (s->next == NULL) {
        vow__stream_end(s, s->refused, NULL);
        return;
    }
    (void)vow_call_stop(&s->late);
    socket_close(s);
}

static void note(struct vow__stream *s, int code)
{
    if (s->refused != UV_ECONNREFUSED)
        s->refused = code;
}

static void on_tried(uv_poll_t *poll, int status, int events)
{
    struct vow__stream *s = poll->data;
    int error = 0;
    socklen_t size = sizeof(error);
    (void)status; /* the socket knows better */
    (void)events;
    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    vow__stream_hold(s);
    if (error != 0) {
        address_failed(s, -error);
    } else {
        vow_call_at(&s->late, s->loop, s->deadline_ns, on_late, s);
        vow__stream_connected(s);
    }
    vow__stream_let_go(s);
}

/* A server that is gone without a word is noticed, and small commands are not
 * held back. What is refused here is no reason to fail. */
static void options_set(const struct vow__stream *s, int family)
{
    const int set[][3] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_STEP_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TRIES},
    };
    if (family == AF_UNIX)
        return;
    for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++)
        (void)setsockopt(s->fd, set[i][0], set[i][1], &set[i][2],
                         sizeof(set[i][2]));
}

/* ---- the end ------------------------------------------------------------ */

void vow__stream_shut(struct vow__stream *s)
{
    (void)vow_call_stop(&s->turn);
    (void)vow_call_stop(&s->late);
    if (s->looking)
        (void)uv_cancel((uv_req_t *)&s->lookup);
    socket_close(s);
}

static void socket_close(struct vow__stream *s)
{
    if (s->fd < 0)
        return;
    (void)uv_poll_stop(&s->poll);
    uv_close((uv_handle_t *)&s->poll, on_closed);
    (void)close(s->fd);
    s->fd = -1;
}

static void on_closed(uv_handle_t *handle)
{
    struct vow__stream *s = handle->data;
    if (s->state == VOW__STREAM_CONNECTS)
        try_next(s);
    vow__stream_let_go(s);
}

/* ---- sentences ---------------------------------------------------------- */

void vow__stream_explain(const struct vow__stream *s, int code, char *why,
                         size_t why_size)
{
    char text[128];
    const char *is = NULL;
    if (s->state <= VOW__STREAM_LOOKS_UP) {
        (void)snprintf(why, why_size, "the name %s %s", s->host,
                       lookup_text(code));
        return;
    }
    switch (code) {
    case UV_ECONNREFUSED:
        is = "refused the connection";
        break;
    case UV_EOF:
        is = "closed the connection";
        break;
    case UV_ECONNRESET:
    case UV_EPIPE:
        is = "broke the connection off";
        break;
    case UV_ETIMEDOUT:
        is = "does not answer any more";
        break;
    case UV_EHOSTUNREACH:
    case UV_ENETUNREACH:
    case UV_ENETDOWN:
        is = "cannot be reached: there is no way to it";
        break;
    case UV_ENOENT:
        is = "is not there";
        break;
    case UV_EACCES:
    case UV_EPERM:
        is = "cannot be connected to: this is not allowed";
        break;
    case UV_EAGAIN:
        is = "has too many connections that wait";
        break;
    default:
        break;
    }
    if (is != NULL)
        (void)snprintf(why, why_size, "%s %s", s->shown, is);
    else
        (void)snprintf(why, why_size, "%s: %s", s->shown,
                       uv_strerror_r(code, text, sizeof(text)));
}

static const char *lookup_text(int code)
{
    switch (code) {
    case UV_EAI_NONAME:
    case UV_EAI_NODATA:
    case UV_EAI_ADDRFAMILY:
        return "was not found";
    case UV_EAI_AGAIN:
        return "cannot be looked up now: no name server answers";
    case UV_ENOMEM:
    case UV_EAI_MEMORY:
        return "cannot be looked up: out of memory";
    case UV_EINVAL:
    case UV_ENAMETOOLONG:
    case UV_E2BIG:
        return "is none of a host";
    default:
        return "cannot be looked up";
    }
}
