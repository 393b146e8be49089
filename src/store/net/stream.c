/* SPDX-License-Identifier: MIT */
/* stream.c - the life of a stream to a server.
 *
 *     NEW -> LOOKS_UP -> CONNECTS -> GREETS -> OPEN -> ENDED
 *         \_____________/         \___________/
 *          a literal address,      no TLS; and to ENDED from each
 *          a local socket
 *
 * WHY   Who speaks to a server wants bytes, one word that it is open and one
 *       sentence why it is not, and never a signal: a socket that the server
 *       has closed kills who writes to it by libuv's streams and has not
 *       thought of SIGPIPE. A library cannot ask that of a program.
 * HOW   A socket of our own, watched by a uv_poll_t; TCP and local sockets are
 *       the same from there on. All begins in the next turn of the loop, so
 *       that nothing is called inside a call of ours. What is sent in one turn
 *       is gathered until nobody has more.
 * INVARIANTS
 *   S1  on_end is called at most once, and on_open at most once before it
 *   S2  after vow__stream_close() nothing is called
 *   S3  the memory goes when the stream is closed and nobody holds it
 * LIMITS  64 KiB to read into and unsent_max; with TLS 48 KiB more and what
 *       OpenSSL takes, which does not come through the allocator. An open
 *       stream does not keep the loop running: who waits for an answer does.
 * THREADS  loop thread only; names are looked up on libuv's threads.
 */
#include "store/net/stream_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LOOKS_MAX = 8, SEND_AT = 64 * 1024 };

static int copy(struct vow__stream *s, const struct vow__stream_opts *o);
static int copy_text(struct vow__stream *s, const char *text, char **ret_copy);
static void show(struct vow__stream *s);
static void on_turn(void *user);
static void destroy(struct vow__stream *s);
static void text_free(struct vow__stream *s, char *text);

int vow__stream_open(vow_loop *loop, const struct vow__stream_opts *opts,
                     const struct vow__stream_events *events,
                     struct vow__stream **ret_stream)
{
    const struct vow_alloc *alloc = vow_loop_alloc(loop);
    struct vow__stream *s = vow__mem_new(alloc, sizeof(*s));
    if (s == NULL)
        return VOW_ENOMEM;
    memset(s, 0, offsetof(struct vow__stream, in));
    s->loop = loop;
    s->alloc = *alloc;
    s->events = *events;
    s->fd = -1;
    if (copy(s, opts) < 0) {
        destroy(s);
        return VOW_ENOMEM;
    }
    show(s);
    vow_call_soon(&s->turn, loop, on_turn, s);
    *ret_stream = s;
    return 0;
}

static int copy(struct vow__stream *s, const struct vow__stream_opts *o)
{
    s->port = o->port;
    s->connect_ms = o->connect_ms;
    s->deadline_ns = vow_loop_due_ns(s->loop, o->connect_ms);
    vow__buf_init(&s->out, &s->alloc, o->unsent_max);
    if (copy_text(s, o->host, &s->host) < 0 ||
        copy_text(s, o->path, &s->path) < 0 ||
        copy_text(s, o->server_name, &s->server_name) < 0)
        return VOW_ENOMEM;
    if (o->tls == NULL)
        return 0;
    s->tls = vow__tls_ref(o->tls);
    s->secure = vow__mem_new(&s->alloc, sizeof(*s->secure));
    if (s->secure == NULL)
        return VOW_ENOMEM;
    s->secure->session = NULL;
    s->secure->head = 0;
    s->secure->n = 0;
    return 0;
}

static int copy_text(struct vow__stream *s, const char *text, char **ret_copy)
{
    if (text == NULL)
        return 0;
    size_t size = strlen(text) + 1;
    *ret_copy = vow__mem_new(&s->alloc, size);
    if (*ret_copy == NULL)
        return VOW_ENOMEM;
    memcpy(*ret_copy, text, size);
    return 0;
}

static void show(struct vow__stream *s)
{
    if (s->host == NULL)
        (void)snprintf(s->shown, sizeof(s->shown), "%s",
                       s->path == NULL ? "" : s->path);
    else if (strchr(s->host, ':') != NULL)
        (void)snprintf(s->shown, sizeof(s->shown), "[%s]:%u", s->host,
                       (unsigned)s->port);
    else
        (void)snprintf(s->shown, sizeof(s->shown), "%s:%u", s->host,
                       (unsigned)s->port);
}

int vow__stream_send(struct vow__stream *s, const char *bytes, size_t n)
{
    VOW__ASSERT(!s->closed);
    if (s->state == VOW__STREAM_ENDED || s->overflow || n == 0)
        return 0;
    size_t wire = s->secure == NULL ? 0 : s->secure->n;
    s->overflow =
        s->out.n + wire > s->out.max || n > s->out.max - s->out.n - wire;
    if (!s->overflow) {
        int rc = vow__stream_gather(s, bytes, n);
        if (rc < 0)
            return rc;
    }
    if (!vow_call_pending(&s->turn))
        vow_call_soon(&s->turn, s->loop, on_turn, s);
    return 0;
}

/* Those that were ready before us may have had more to send, and what they have
 * made ready too: look again while there comes more. */
static void on_turn(void *user)
{
    struct vow__stream *s = user;
    if (s->state == VOW__STREAM_NEW && !s->overflow) {
        vow__stream_begin(s);
        return;
    }
    if (s->overflow) {
        vow__stream_end(s, VOW_EQUEUEFULL,
                        "%s takes too little: more than %zu bytes would wait "
                        "to be sent",
                        s->shown, s->out.max);
        return;
    }
    if (s->state != VOW__STREAM_OPEN)
        return;
    if (s->out.n > s->looked && s->out.n < SEND_AT && s->looks < LOOKS_MAX) {
        s->looked = s->out.n;
        s->looks++;
        vow_call_soon(&s->turn, s->loop, on_turn, s);
        return;
    }
    s->looked = 0;
    s->looks = 0;
    vow__stream_hold(s);
    vow__stream_flush(s);
    vow__stream_let_go(s);
}

/* ---- the end ------------------------------------------------------------ */

void vow__stream_move(struct vow__stream *s, enum vow__stream_state to)
{
    static const uint8_t allowed[] = {
        [VOW__STREAM_NEW] = VOW__TO(VOW__STREAM_LOOKS_UP) |
                            VOW__TO(VOW__STREAM_CONNECTS) |
                            VOW__TO(VOW__STREAM_ENDED),
        [VOW__STREAM_LOOKS_UP] =
            VOW__TO(VOW__STREAM_CONNECTS) | VOW__TO(VOW__STREAM_ENDED),
        [VOW__STREAM_CONNECTS] = VOW__TO(VOW__STREAM_GREETS) |
                                 VOW__TO(VOW__STREAM_OPEN) |
                                 VOW__TO(VOW__STREAM_ENDED),
        [VOW__STREAM_GREETS] =
            VOW__TO(VOW__STREAM_OPEN) | VOW__TO(VOW__STREAM_ENDED),
        [VOW__STREAM_OPEN] = VOW__TO(VOW__STREAM_ENDED),
        [VOW__STREAM_ENDED] = 0,
    };
    vow__sm_move(&s->state, (uint8_t)to, allowed);
}

void vow__stream_end(struct vow__stream *s, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (format == NULL)
        vow__stream_explain(s, code, s->why, sizeof(s->why));
    else
        (void)vsnprintf(s->why, sizeof(s->why), format, args);
    va_end(args);
    vow__stream_move(s, VOW__STREAM_ENDED); /* keeps S1 */
    vow__stream_hold(s);
    vow__stream_shut(s);
    s->events.on_end(code, s->why, s->events.user);
    vow__stream_let_go(s);
}

void vow__stream_close(struct vow__stream *s)
{
    if (s == NULL)
        return;
    VOW__ASSERT(!s->closed);
    s->closed = true;
    vow__stream_hold(s);
    if (s->state == VOW__STREAM_OPEN)
        vow__stream_bye(s);
    if (s->state != VOW__STREAM_ENDED)
        vow__stream_move(s, VOW__STREAM_ENDED); /* keeps S2 */
    vow__stream_shut(s);
    vow__stream_let_go(s);
}

void vow__stream_hold(struct vow__stream *s)
{
    s->held++;
}

void vow__stream_let_go(struct vow__stream *s)
{
    VOW__ASSERT(s->held > 0);
    if (--s->held == 0 && s->closed)
        destroy(s); /* keeps S3 */
}

static void destroy(struct vow__stream *s)
{
    struct vow_alloc alloc = s->alloc;
    if (s->secure != NULL)
        vow__session_free(s->secure->session);
    vow__mem_free(&alloc, s->secure, sizeof(*s->secure));
    (void)vow__tls_unref(s->tls);
    if (s->found != NULL)
        uv_freeaddrinfo(s->found);
    vow__buf_fini(&s->out);
    text_free(s, s->host);
    text_free(s, s->path);
    text_free(s, s->server_name);
    vow__mem_free(&alloc, s, sizeof(*s));
}

static void text_free(struct vow__stream *s, char *text)
{
    if (text != NULL)
        vow__mem_free(&s->alloc, text, strlen(text) + 1);
}
