/* SPDX-License-Identifier: MIT */
/* http.c - requests by HTTP/1.1 over streams, many at once.
 *
 *     request: WAITS -> has a connection -> told, freed
 *     connection: opens -> has a request <-> idle -> closed
 *
 * WHY   A store speaks to a server by many small requests at once, and needs to
 *       know of each that has no answer whether it may have been heard.
 * HOW   A connection has one request at a time, and is kept for the next one of
 *       the same server if the response ended where it said. Before an idle
 *       connection is used again, what has arrived on it is read: a connection
 *       that the server has closed is not used. At most `connections` requests
 *       have one, others wait here, where nothing of them can have been sent;
 *       streams are not counted. Nothing is ever sent twice. No proxy is used,
 *       and no redirect is followed: a request goes to the server it is for.
 *       A process that was stopped does not take that for the server's fault.
 * INVARIANTS
 *   H1  done is called once, or the request was canceled
 *   H2  a request is in the list of those that wait, or of those that run
 *   H3  a connection that is closed while its bytes are read is freed behind
 * LIMITS  requests that wait are not counted: each has a time limit. Open
 *       streams and idle connections do not keep the loop running; requests
 *       with a time limit do, and under virtual time it stands for them. What
 *       was given to an open connection counts as sent.
 * THREADS  loop thread only.
 */
#include "store/net/http.h"

#include "base/assert.h"
#include "base/list.h"
#include "store/net/http_parse.h"
#include "store/net/stream.h"
#include "vow/call.h"
#include "vow/uv.h"

#include <stdio.h>
#include <string.h>

enum {
    WHY_SIZE = 512,
    BODY_MIN = 2 * 1024 /* bytes of a buffer */
};

struct vow__http {
    vow_loop *loop;
    struct vow_alloc alloc;
    struct vow__tls *tls; /* NULL: none */
    size_t connections;
    uint64_t connect_ms;
    vow_link *waiting; /* requests */
    vow_link *running;
    size_t busy;     /* of `connections` */
    vow_link *conns; /* the idle ones in the order of their last use */
    size_t idle;
    bool closing;
    vow_call last;
    void (*on_closed)(void *user);
    void *on_closed_user;
};

struct http_conn {
    vow_link link;
    struct vow__http *http;
    struct vow__http_request *request; /* NULL: idle */
    struct vow__stream *stream;
    bool open;
    bool inside; /* bytes are being read */
    bool gone;   /* and the connection was closed meanwhile */
    struct vow__http_server server;
    struct vow__http_parser parser;
};

struct vow__http_request {
    vow_link link;
    struct vow__http *http;
    struct http_conn *conn; /* NULL: none */
    bool runs;              /* has its turn */
    bool stream;            /* of bytes as they come */
    bool sent;              /* or perhaps */
    bool held;              /* keeps the loop running */
    bool forgiven;          /* the time began anew once */
    int code;               /* ends with this code in the next turn */
    char *text;             /* to be sent; NULL: was sent */
    size_t text_n, text_room;
    char *body; /* of the response */
    size_t body_n, body_room;
    size_t answer_max;
    uint64_t timeout_ms;  /* 0: none */
    uint64_t part_ms;     /* 0: none */
    uint64_t deadline_ns; /* of both, the earlier */
    uint64_t allowed_ms;  /* until then, for people */
    vow_call late;
    void (*on_bytes)(const char *bytes, size_t n, void *user);
    vow__http_fn done;
    void *user;
    struct vow__http_server server;
};

static void http_destroy(struct vow__http *h);
static void http_last(void *user);
static int request_fill(struct vow__http_request *r,
                        const struct vow__http_ask *ask);
static int request_write(struct vow__http_request *r,
                         const struct vow__http_ask *ask);
static void request_begin(struct vow__http_request *r);
static int request_send(struct vow__http_request *r);
static void request_time(struct vow__http_request *r);
static void request_unhold(struct vow__http_request *r);
static void request_late(void *user);
static void request_end(struct vow__http_request *r,
                        const struct vow__http_answer *answer);
static void request_fail(struct vow__http_request *r, int code,
                         const char *why);
static void request_detach(struct vow__http_request *r);
static void request_free(struct vow__http_request *r);
static struct http_conn *conn_find(const struct vow__http *h,
                                   const struct vow__http_server *server);
static struct http_conn *conn_reuse(struct vow__http *h,
                                    const struct vow__http_server *server);
static int http_conn_open(struct vow__http *h,
                          const struct vow__http_server *server,
                          struct http_conn **ret_conn);
static void conn_rest(struct http_conn *c);
static void http_conn_close(struct http_conn *c);
static void conn_on_open(void *user);
static void conn_on_bytes(const char *bytes, size_t n, void *user);
static void conn_on_end(int code, const char *why, void *user);
static void conn_fail(struct http_conn *c, int code, const char *is);
static void response_take(struct http_conn *c, const char *bytes, size_t n);
static bool body_gather(struct vow__http_request *r, const char *bytes,
                        size_t n);
static void response_end(struct http_conn *c, bool keep);

/* ---- opening and closing ------------------------------------------------ */

int vow__http_open(vow_loop *loop, const struct vow__http_opts *opts,
                   struct vow__http **ret_http, char *why, size_t why_size)
{
    const struct vow__tls_opts files = {.ca_file = opts->ca_file,
                                        .cert_file = opts->cert_file,
                                        .key_file = opts->key_file};
    struct vow__tls *tls = NULL;
    int rc = 0;
    if (opts->tls)
        rc = vow__tls_new(loop, &files, &tls, why, why_size);
    if (rc < 0 && rc != VOW_ENOMEM)
        return rc;
    struct vow__http *h =
        rc < 0 ? NULL : vow__mem_zero(vow_loop_alloc(loop), sizeof(*h));
    if (h == NULL) {
        (void)snprintf(why, why_size, "%s", vow_error_text(VOW_ENOMEM));
        (void)vow__tls_unref(tls);
        return VOW_ENOMEM;
    }
    h->loop = loop;
    h->alloc = *vow_loop_alloc(loop);
    h->tls = tls;
    h->connections = opts->connections == 0 ? 1 : opts->connections;
    h->connect_ms = opts->connect_ms;
    *ret_http = h;
    return 0;
}

void vow__http_close(struct vow__http *h, void (*done)(void *user), void *user)
{
    if (h == NULL)
        return;
    VOW__ASSERT(!h->closing);
    h->closing = true;
    h->on_closed = done;
    h->on_closed_user = user;
    const struct vow__http_answer closed = {.code = VOW_ECLOSED,
                                            .why = vow_error_text(VOW_ECLOSED)};
    vow_link **lists[] = {&h->running, &h->waiting};
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        while (*lists[i] != NULL)
            request_end(VOW__OUTER(*lists[i], struct vow__http_request, link),
                        &closed);
    while (h->conns != NULL)
        http_conn_close(VOW__OUTER(h->conns, struct http_conn, link));
    vow_call_soon(&h->last, h->loop, http_last, h);
}

static void http_last(void *user)
{
    struct vow__http *h = user;
    void (*done)(void *user) = h->on_closed;
    void *done_user = h->on_closed_user;
    http_destroy(h);
    done(done_user);
}

static void http_destroy(struct vow__http *h)
{
    struct vow_alloc alloc = h->alloc;
    (void)vow__tls_unref(h->tls);
    vow__mem_free(&alloc, h, sizeof(*h));
}

/* ---- a request ---------------------------------------------------------- */

int vow__http_server(const char *host, uint16_t port,
                     struct vow__http_server *ret_server)
{
    struct vow__http_server *s = ret_server;
    if (strlen(host) >= sizeof(s->host))
        return VOW_EINVAL;
    (void)snprintf(s->host, sizeof(s->host), "%s", host);
    bool v6 = strchr(host, ':') != NULL;
    (void)snprintf(s->shown, sizeof(s->shown), "%s%s%s:%u", v6 ? "[" : "", host,
                   v6 ? "]" : "", (unsigned)port);
    s->port = port;
    return 0;
}

struct vow__http_request *vow__http_post(struct vow__http *h,
                                         const struct vow__http_ask *ask,
                                         vow__http_fn done, void *user)
{
    struct vow__http_request *r =
        h->closing ? NULL : vow__mem_zero(&h->alloc, sizeof(*r));
    if (r == NULL)
        return NULL;
    r->http = h;
    r->done = done;
    r->user = user;
    if (request_fill(r, ask) < 0) {
        request_free(r);
        return NULL;
    }
    if (r->timeout_ms > 0 || r->part_ms > 0) {
        r->held = true;
        vow_loop_hold(h->loop);
    }
    r->runs = r->stream || h->busy < h->connections;
    vow__list_push(r->runs ? &h->running : &h->waiting, &r->link);
    if (!r->runs) {
        request_time(r);
        return r;
    }
    h->busy += r->stream ? 0 : 1;
    request_begin(r);
    return r;
}

static int request_fill(struct vow__http_request *r,
                        const struct vow__http_ask *ask)
{
    r->server = *ask->server;
    r->stream = ask->on_bytes != NULL;
    r->on_bytes = ask->on_bytes;
    r->timeout_ms = ask->timeout_ms;
    r->part_ms = ask->part_ms;
    r->answer_max = ask->answer_max;
    r->allowed_ms = r->timeout_ms;
    r->deadline_ns = r->timeout_ms == 0
                         ? UINT64_MAX
                         : vow_loop_due_ns(r->http->loop, r->timeout_ms);
    return request_write(r, ask);
}

/* A zone of IPv6 has a meaning on this machine only. */
static int request_write(struct vow__http_request *r,
                         const struct vow__http_ask *ask)
{
    static const char *const none[] = {NULL};
    const char *const *header = ask->header == NULL ? none : ask->header;
    const char *host = ask->server->host;
    bool v6 = strchr(host, ':') != NULL;
    size_t room = 128 + strlen(ask->path) + strlen(host) + ask->body_size;
    for (size_t i = 0; header[i] != NULL; i++)
        room += strlen(header[i]) + 2;
    r->text = vow__mem_new(&r->http->alloc, room);
    r->text_room = room;
    if (r->text == NULL)
        return VOW_ENOMEM;
    size_t n = (size_t)snprintf(r->text, room,
                                "POST %s HTTP/1.1\r\nHost: %s%.*s%s:%u\r\n"
                                "Content-Length: %zu\r\n",
                                ask->path, v6 ? "[" : "",
                                (int)strcspn(host, "%"), host, v6 ? "]" : "",
                                (unsigned)ask->server->port, ask->body_size);
    for (size_t i = 0; header[i] != NULL; i++)
        n += (size_t)snprintf(r->text + n, room - n, "%s\r\n", header[i]);
    n += (size_t)snprintf(r->text + n, room - n, "\r\n");
    VOW__ASSERT(n + ask->body_size <= room);
    if (ask->body_size > 0)
        memcpy(r->text + n, ask->body, ask->body_size);
    r->text_n = n + ask->body_size;
    return 0;
}

static void request_begin(struct vow__http_request *r)
{
    struct vow__http *h = r->http;
    uint64_t part_ns = vow_loop_due_ns(h->loop, r->part_ms);
    if (r->part_ms > 0 && part_ns < r->deadline_ns) {
        r->deadline_ns = part_ns;
        r->allowed_ms = r->part_ms;
    }
    request_time(r);
    struct http_conn *c = conn_reuse(h, &r->server);
    int rc = c != NULL ? 0 : http_conn_open(h, &r->server, &c);
    if (rc == 0) {
        c->request = r;
        r->conn = c;
        memset(&c->parser, 0, offsetof(struct vow__http_parser, line));
        rc = request_send(r);
    }
    if (rc < 0) {
        r->code = rc;
        vow_call_soon(&r->late, h->loop, request_late, r);
    }
}

/* A connection that is not open yet keeps the bytes until then. */
static int request_send(struct vow__http_request *r)
{
    int rc = vow__stream_send(r->conn->stream, r->text, r->text_n);
    vow__mem_free(&r->http->alloc, r->text, r->text_room);
    r->text = NULL;
    r->sent = rc == 0 && r->conn->open;
    return rc;
}

void vow__http_cancel(struct vow__http_request *r)
{
    if (r == NULL)
        return;
    request_detach(r);
    request_free(r);
}

/* ---- time --------------------------------------------------------------- */

static void request_time(struct vow__http_request *r)
{
    if (r->deadline_ns != UINT64_MAX)
        vow_call_at(&r->late, r->http->loop, r->deadline_ns, request_late, r);
}

static void request_unhold(struct vow__http_request *r)
{
    if (r->held)
        vow_loop_release(r->http->loop);
    r->held = false;
}

static void request_late(void *user)
{
    struct vow__http_request *r = user;
    struct vow__http *h = r->http;
    char why[WHY_SIZE];
    if (r->code != 0) {
        request_fail(r, r->code, NULL);
        return;
    }
    if (vow__stream_forgive(h->loop, r->deadline_ns, &r->forgiven)) {
        r->deadline_ns = vow_loop_due_ns(h->loop, r->allowed_ms);
        request_time(r); /* the answer may have come, and not been read */
        return;
    }
    (void)snprintf(why, sizeof(why),
                   r->runs ? "%s did not answer within %llu ms"
                           : "no connection to %s was free within %llu ms",
                   r->server.shown, (unsigned long long)r->allowed_ms);
    request_fail(r, VOW_ETIMEDOUT, why);
}

/* ---- the end ------------------------------------------------------------ */

static void request_fail(struct vow__http_request *r, int code, const char *why)
{
    struct vow__http_answer a = {.code = r->sent ? VOW_EUNSURE : VOW_ESTORE,
                                 .late = code == VOW_ETIMEDOUT,
                                 .why = why};
    if (code == VOW_ENOMEM) {
        a.code = r->sent ? VOW_EUNSURE : VOW_ENOMEM;
        a.why = vow_error_text(VOW_ENOMEM);
    } else if (code == VOW_E2BIG) {
        a.code = VOW_E2BIG;
    }
    request_end(r, &a);
}

static void request_end(struct vow__http_request *r,
                        const struct vow__http_answer *answer)
{
    request_detach(r);
    r->done(answer, r->user); /* keeps H1 */
    request_free(r);
}

/* Takes connection, place and time from the request; another one begins. Keeps
 * H2. */
static void request_detach(struct vow__http_request *r)
{
    struct vow__http *h = r->http;
    if (r->conn != NULL)
        http_conn_close(r->conn);
    vow__list_remove(r->runs ? &h->running : &h->waiting, &r->link);
    (void)vow_call_stop(&r->late);
    request_unhold(r);
    if (r->stream || !r->runs)
        return;
    if (h->waiting == NULL || h->closing) {
        h->busy--;
        return;
    }
    struct vow__http_request *next =
        VOW__OUTER(vow__list_take(&h->waiting), struct vow__http_request, link);
    next->runs = true;
    vow__list_push(&h->running, &next->link);
    request_begin(next);
}

static void request_free(struct vow__http_request *r)
{
    struct vow_alloc alloc = r->http->alloc;
    vow__mem_free(&alloc, r->text, r->text_room);
    vow__mem_free(&alloc, r->body, r->body_room);
    vow__mem_free(&alloc, r, sizeof(*r));
}

/* ---- connections -------------------------------------------------------- */

/* Returns the idle connection that was used last, or NULL. */
static struct http_conn *conn_find(const struct vow__http *h,
                                   const struct vow__http_server *server)
{
    struct http_conn *found = NULL;
    for (vow_link *l = h->conns; l != NULL; l = l->next) {
        struct http_conn *c = VOW__OUTER(l, struct http_conn, link);
        if (c->request == NULL && c->server.port == server->port &&
            strcmp(c->server.host, server->host) == 0)
            found = c;
    }
    return found;
}

/* Takes an idle connection, or NULL. Reads what has arrived first: perhaps the
 * end. */
static struct http_conn *conn_reuse(struct vow__http *h,
                                    const struct vow__http_server *server)
{
    struct http_conn *c;
    while ((c = conn_find(h, server)) != NULL && !c->inside) {
        c->inside = true;
        vow__stream_look(c->stream);
        c->inside = false;
        if (!c->gone)
            break;
        vow__mem_free(&h->alloc, c, sizeof(*c));
    }
    h->idle -= c == NULL ? 0 : 1;
    return c;
}

static int http_conn_open(struct vow__http *h,
                          const struct vow__http_server *server,
                          struct http_conn **ret_conn)
{
    struct http_conn *c = vow__mem_zero(&h->alloc, sizeof(*c));
    if (c == NULL)
        return VOW_ENOMEM;
    c->http = h;
    c->server = *server;
    const struct vow__stream_opts opts = {.host = c->server.host,
                                          .port = server->port,
                                          .tls = h->tls,
                                          .connect_ms = h->connect_ms,
                                          .unsent_max = SIZE_MAX / 4};
    const struct vow__stream_events events = {.on_open = conn_on_open,
                                              .on_bytes = conn_on_bytes,
                                              .on_end = conn_on_end,
                                              .user = c};
    int rc = vow__stream_open(h->loop, &opts, &events, &c->stream);
    if (rc < 0) {
        vow__mem_free(&h->alloc, c, sizeof(*c));
        return rc;
    }
    vow__list_push(&h->conns, &c->link);
    *ret_conn = c;
    return 0;
}

/* Keeps the connection for another request, and closes the oldest idle one of
 * too many. */
static void conn_rest(struct http_conn *c)
{
    struct vow__http *h = c->http;
    c->request = NULL;
    vow__list_remove(&h->conns, &c->link);
    vow__list_push(&h->conns, &c->link);
    if (++h->idle <= 2 * h->connections)
        return;
    for (vow_link *l = h->conns; l != NULL; l = l->next) {
        struct http_conn *oldest = VOW__OUTER(l, struct http_conn, link);
        if (oldest->request == NULL) {
            http_conn_close(oldest);
            return;
        }
    }
}

static void http_conn_close(struct http_conn *c)
{
    struct vow__http *h = c->http;
    if (c->request == NULL)
        h->idle--;
    else
        c->request->conn = NULL;
    vow__list_remove(&h->conns, &c->link);
    vow__stream_close(c->stream);
    c->gone = true;
    if (!c->inside) /* keeps H3 */
        vow__mem_free(&h->alloc, c, sizeof(*c));
}

static void conn_on_open(void *user)
{
    struct http_conn *c = user;
    c->open = true;
    c->request->sent = true;
}

/* Whoever is told of bytes may cancel the request, or close everything. */
static void conn_on_bytes(const char *bytes, size_t n, void *user)
{
    struct http_conn *c = user;
    const struct vow_alloc alloc = c->http->alloc;
    const bool inside = c->inside;
    const char *body;
    size_t body_n;
    enum vow__http_event event = VOW__HTTP_BODY;
    c->inside = true;
    while (event == VOW__HTTP_BODY && !c->gone && c->request != NULL) {
        event = vow__http_parse(&c->parser, &bytes, &n, &body, &body_n);
        if (event == VOW__HTTP_BODY)
            response_take(c, body, body_n);
        else if (event == VOW__HTTP_END)
            response_end(c, n == 0 && !c->parser.closes);
        else if (event == VOW__HTTP_BAD)
            conn_fail(c, UV_EPROTO, "does not answer by HTTP");
    }
    if (event == VOW__HTTP_BODY && !c->gone)
        http_conn_close(c); /* no request has asked for these */
    c->inside = inside;
    if (c->gone && !inside)
        vow__mem_free(&alloc, c, sizeof(*c));
}

/* A server that refuses our certificate has read nothing of what was sent
 * behind it, as TLS 1.3 allows. */
static void conn_on_end(int code, const char *why, void *user)
{
    struct http_conn *c = user;
    if (c->request != NULL && vow__stream_refused(c->stream))
        c->request->sent = false;
    if (c->request == NULL)
        http_conn_close(c);
    else if (code == UV_EOF && vow__http_parse_close(&c->parser))
        response_end(c, false);
    else if (code == UV_EOF && c->request->sent)
        conn_fail(c, code,
                  c->parser.head == 0 && c->parser.status == 0
                      ? "closed the connection without an answer"
                      : "closed the connection before its answer was whole");
    else
        request_fail(c->request, code, why);
}

static void conn_fail(struct http_conn *c, int code, const char *is)
{
    char why[WHY_SIZE];
    (void)snprintf(why, sizeof(why), "%s %s", c->server.shown, is);
    request_fail(c->request, code, why);
}

/* ---- a response --------------------------------------------------------- */

static void response_take(struct http_conn *c, const char *bytes, size_t n)
{
    struct vow__http_request *r = c->request;
    char is[WHY_SIZE];
    if (r->stream && r->timeout_ms == 0) { /* the first bytes */
        r->deadline_ns = UINT64_MAX;
        (void)vow_call_stop(&r->late);
        request_unhold(r);
    }
    if (r->stream && c->parser.status == 200) {
        r->on_bytes(bytes, n, r->user);
        return;
    }
    if (n > r->answer_max - r->body_n) {
        (void)snprintf(is, sizeof(is),
                       "the answer of %s is longer than %zu bytes",
                       r->server.shown, r->answer_max);
        request_fail(r, VOW_E2BIG, is);
    } else if (!body_gather(r, bytes, n)) {
        request_fail(r, VOW_ENOMEM, NULL);
    }
}

/* Content-Length is the size of the buffer at once; else the buffer doubles. */
static bool body_gather(struct vow__http_request *r, const char *bytes,
                        size_t n)
{
    const struct vow__http_parser *p = &r->conn->parser;
    const size_t want = r->body_n + n;
    size_t room = r->body_room;
    if (want > room && p->sized && p->left <= r->answer_max - want)
        room = want + (size_t)p->left;
    while (want > room)
        room = room == 0 ? BODY_MIN : 2 * room;
    if (room > r->body_room) {
        char *body = vow__mem_new(&r->http->alloc, room);
        if (body == NULL)
            return false;
        if (r->body_n > 0)
            memcpy(body, r->body, r->body_n);
        vow__mem_free(&r->http->alloc, r->body, r->body_room);
        r->body = body;
        r->body_room = room;
    }
    memcpy(r->body + r->body_n, bytes, n);
    r->body_n = want;
    return true;
}

static void response_end(struct http_conn *c, bool keep)
{
    struct vow__http_request *r = c->request;
    const struct vow__http_answer a = {
        .status = c->parser.status, .body = r->body, .size = r->body_n};
    if (keep) {
        r->conn = NULL;
        conn_rest(c);
    }
    request_end(r, &a);
}
