/* SPDX-License-Identifier: MIT */
/* stream_bytes.c - reading and writing of an open stream, with TLS or without.
 *
 * HOW   What is to be sent waits in one buffer. Without TLS the socket takes it
 *       from there. With TLS it becomes records a part at a time, so that not
 *       more than one part is there twice:
 *
 *         send -> out -> (session -> wire) -> socket
 *         on_bytes <- (clear <- session) <- in <- socket
 *
 *       A server that closes often says before why: when it takes no more, what
 *       it has sent is still read to the end.
 * THREADS  loop thread only.
 */
#include "store/net/stream_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    READS_MAX = 16,  /* of a socket before others have a turn */
    PART = 16 * 1024 /* made into a record at once */
};

static void opened(struct vow__stream *s);
static void greet(struct vow__stream *s);
static void read_some(struct vow__stream *s, bool broken);
static void take(struct vow__stream *s, size_t n);
static void take_secure(struct vow__stream *s, size_t n);
static void read_clear(struct vow__stream *s);
static void secure_ended(struct vow__stream *s, int code);
static void read_ended(struct vow__stream *s, int code);
static int send_once(struct vow__stream *s);
static int encrypt(struct vow__stream *s);
static void write_failed(struct vow__stream *s, int code);
static void watch(struct vow__stream *s, int events);
static bool alive(const struct vow__stream *s);

/* ---- opening ------------------------------------------------------------ */

void vow__stream_connected(struct vow__stream *s)
{
    if (s->secure == NULL) {
        opened(s);
        return;
    }
    const char *name = s->server_name != NULL ? s->server_name : s->host;
    int rc = vow__session_new(s->tls, name == NULL ? "" : name, s->shown,
                              &s->secure->session);
    if (rc == VOW_EINVAL) {
        vow__stream_end(s, rc, "%s: its name in the certificate is not known",
                        s->shown);
    } else if (rc < 0) {
        vow__stream_end(s, rc, NULL);
    } else {
        vow__stream_move(s, VOW__STREAM_GREETS);
        greet(s);
    }
}

static void greet(struct vow__stream *s)
{
    int rc = vow__session_greet(s->secure->session);
    if (rc < 0)
        secure_ended(s, rc);
    else if (rc == 0)
        vow__stream_flush(s);
    else
        opened(s);
}

static void opened(struct vow__stream *s)
{
    (void)vow_call_stop(&s->late);
    vow__stream_move(s, VOW__STREAM_OPEN);
    uv_unref((uv_handle_t *)&s->poll);
    s->events.on_open(s->events.user);
    if (alive(s))
        vow__stream_flush(s); /* what has waited, and the end of a greeting */
}

static bool alive(const struct vow__stream *s)
{
    return s->state != VOW__STREAM_ENDED;
}

/* ---- reading ------------------------------------------------------------ */

/* On an error of the socket libuv stops the handle: what was received before is
 * read, then the error. */
void vow__stream_on_socket(uv_poll_t *poll, int status, int events)
{
    struct vow__stream *s = poll->data;
    vow__stream_hold(s);
    if (status < 0)
        s->watched = 0;
    if (status == 0 && (events & UV_WRITABLE) != 0)
        vow__stream_flush(s);
    if (alive(s) && (status < 0 || (events & UV_READABLE) != 0))
        read_some(s, status < 0);
    if (alive(s) && s->watched == 0)
        watch(s, UV_READABLE);
    vow__stream_let_go(s);
}

void vow__stream_look(struct vow__stream *s)
{
    vow__stream_hold(s);
    if (s->state == VOW__STREAM_OPEN || s->state == VOW__STREAM_GREETS)
        read_some(s, false);
    vow__stream_let_go(s);
}

bool vow__stream_refused(const struct vow__stream *s)
{
    return s->secure != NULL && s->secure->session != NULL &&
           vow__session_refused(s->secure->session);
}

static void read_some(struct vow__stream *s, bool broken)
{
    for (int i = 0; i < READS_MAX && alive(s); i++) {
        ssize_t n = recv(s->fd, s->in, sizeof(s->in), 0);
        if (n > 0) {
            take(s, (size_t)n);
            if (n < (ssize_t)sizeof(s->in) && !broken)
                return;
        } else if (n == 0) {
            read_ended(s, UV_EOF);
        } else if (errno != EAGAIN && errno != EINTR) {
            read_ended(s, -errno);
        } else if (errno == EAGAIN && !broken) {
            return;
        } else if (errno == EAGAIN) {
            read_ended(s, UV_ECONNRESET);
        }
    }
}

static void take(struct vow__stream *s, size_t n)
{
    if (s->secure == NULL)
        s->events.on_bytes(s->in, n, s->events.user);
    else
        take_secure(s, n);
}

static void take_secure(struct vow__stream *s, size_t n)
{
    int rc = vow__session_take(s->secure->session, s->in, n);
    if (rc < 0) {
        vow__stream_end(s, rc, NULL);
        return;
    }
    if (s->state == VOW__STREAM_GREETS)
        greet(s);
    if (s->state == VOW__STREAM_OPEN)
        read_clear(s);
}

static void read_clear(struct vow__stream *s)
{
    struct vow__secure *x = s->secure;
    int n = 1;
    while (alive(s) && n > 0) {
        n = vow__session_read(x->session, x->clear, sizeof(x->clear));
        if (n > 0)
            s->events.on_bytes(x->clear, (size_t)n, s->events.user);
        else if (n < 0)
            secure_ended(s, n);
    }
    if (alive(s))
        vow__stream_flush(s); /* what TLS itself has to say */
}

/* The server is told, too, if there is room for a word. */
static void secure_ended(struct vow__stream *s, int code)
{
    char why[VOW__STREAM_WHY];
    if (code == VOW_ECLOSED) {
        vow__stream_end(s, UV_EOF, NULL);
        return;
    }
    (void)snprintf(why, sizeof(why), "%s",
                   vow__session_why(s->secure->session));
    if (s->secure->n == 0)
        (void)send_once(s);
    vow__stream_end(s, code, "%s", why);
}

static void read_ended(struct vow__stream *s, int code)
{
    if (s->state != VOW__STREAM_GREETS)
        vow__stream_end(s, code, NULL);
    else
        vow__stream_end(s, code,
                        "%s ended the connection before TLS was agreed on; "
                        "perhaps it speaks none",
                        s->shown);
}

/* ---- writing ------------------------------------------------------------ */

int vow__stream_gather(struct vow__stream *s, const char *bytes, size_t n)
{
    int rc = vow__buf_reserve(&s->out, n);
    if (rc < 0)
        return rc;
    memcpy(s->out.bytes + s->out.n, bytes, n);
    s->out.n += n;
    return 0;
}

void vow__stream_flush(struct vow__stream *s)
{
    int rc = 1;
    while (rc > 0)
        rc = send_once(s);
    if (rc < 0 && rc != UV_EAGAIN)
        write_failed(s, rc);
    else
        watch(s, UV_READABLE | (rc == UV_EAGAIN ? UV_WRITABLE : 0));
}

/* 1: some went. 0: there is nothing. A negative code, UV_EAGAIN: no room. */
static int send_once(struct vow__stream *s)
{
    struct vow__secure *x = s->secure;
    int rc = x == NULL || x->n > 0 || s->write_ended ? 0 : encrypt(s);
    size_t n = x == NULL ? s->out.n : x->n;
    if (rc < 0 || n == 0 || s->write_ended)
        return rc;
    const char *from = x == NULL ? s->out.bytes : x->wire + x->head;
    ssize_t size = send(s->fd, from, n, MSG_NOSIGNAL);
    if (size < 0)
        return errno == EINTR ? 1 : -errno;
    if (x == NULL) {
        vow__buf_take(&s->out, (size_t)size);
    } else {
        x->head += (size_t)size;
        x->n -= (size_t)size;
    }
    return 1;
}

/* The next bytes for the wire: what TLS has, else a part of what waits. */
static int encrypt(struct vow__stream *s)
{
    struct vow__secure *x = s->secure;
    x->head = 0;
    x->n = vow__session_give(x->session, x->wire, sizeof(x->wire));
    if (x->n > 0 || s->state != VOW__STREAM_OPEN || s->out.n == 0)
        return 0;
    int rc = vow__session_write(x->session, s->out.bytes,
                                s->out.n < PART ? s->out.n : PART);
    if (rc < 0)
        return rc;
    vow__buf_take(&s->out, (size_t)rc);
    x->n = vow__session_give(x->session, x->wire, sizeof(x->wire));
    return 0;
}

static void write_failed(struct vow__stream *s, int code)
{
    if (code == UV_EPIPE || code == UV_ECONNRESET) {
        s->write_ended = true;
        vow__buf_take(&s->out, s->out.n);
        watch(s, UV_READABLE); /* until the end, which is near */
    } else if (s->secure != NULL && *vow__session_why(s->secure->session)) {
        vow__stream_end(s, code, "%s", vow__session_why(s->secure->session));
    } else {
        vow__stream_end(s, code, NULL);
    }
}

void vow__stream_bye(struct vow__stream *s)
{
    if (s->secure == NULL || s->secure->n > 0)
        return;
    vow__session_bye(s->secure->session);
    (void)send_once(s);
}

static void watch(struct vow__stream *s, int events)
{
    if (events == s->watched)
        return;
    s->watched = events;
    (void)uv_poll_start(&s->poll, events, vow__stream_on_socket);
}
