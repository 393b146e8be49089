/* SPDX-License-Identifier: MIT */
/* etcd_stream.c - a request whose answer does not end: lines of JSON.
 *
 * HOW   A fiber of its own asks, as every request does, and waits for bytes,
 *       which are collected as they come. Lines are told on that fiber: whoever
 *       is told may do anything, also close the store.
 *       Before the first line a stream goes to another member if need be. From
 *       then on it ends, and the owner begins again.
 * INVARIANTS
 *   S1  nothing is told of a stream that was closed, or has ended
 *   S2  the fiber frees the stream
 * LIMITS  A line has at most 8 MiB; what came and was not read yet, four times
 *       as much.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_call.h"
#include "vow/fiber.h"

#include <string.h>

enum { LINE_MAX_BYTES = 8 * 1024 * 1024, UNREAD_MAX = 4 * LINE_MAX_BYTES };

struct vow__etcd_stream {
    struct vow__query query;
    struct vow__etcd_calls *calls;
    struct vow__etcd_stream_events events;
    struct vow__buf body;
    struct vow__buf text; /* what has come and was not told */
    size_t seen;          /* of it, without an end of line */
    bool too_much;
    bool closed;
};

/* ---- lines --------------------------------------------------------------- */

/* Within http.c: only kept. */
static void stream_on_bytes(const char *bytes, size_t n, void *user)
{
    struct vow__etcd_stream *s =
        VOW__OUTER(user, struct vow__etcd_stream, query);
    vow__query_heard(&s->query);
    if (n > UNREAD_MAX - s->text.n)
        s->too_much = true;
    else
        vow__buf_add(&s->text, bytes, n);
    vow__query_wake(&s->query);
}

static bool line_is_blank(const char *line, size_t n)
{
    while (n > 0 && strchr(" \r\t", line[n - 1]) != NULL)
        n--;
    return n == 0;
}

/* 0; or what becomes of the stream. */
static int line_tell(struct vow__etcd_stream *s, const char *line, size_t n)
{
    struct vow__query *q = &s->query;
    struct vow__refusal refusal;
    json_error_t error;
    if (line_is_blank(line, n))
        return 0;
    int rc = 0;
    json_t *root = json_loadb(line, n, 0, &error);
    if (!json_is_object(root)) {
        rc = vow__query_nonsense(q, VOW_EUNSURE, "a line is no JSON");
    } else if (vow__refusal_read(200, root, &refusal)) {
        if (q->request != NULL)
            vow__http_cancel(q->request);
        q->request = NULL;
        rc = vow__query_refuse(q, &refusal);
    } else {
        q->once = true;
        s->events.on_line(root, s->events.user);
        rc = q->end;
    }
    json_decref(root);
    return rc;
}

/* What stands behind the last end of line is a line, too. */
static int stream_read(struct vow__query *q, bool ended)
{
    struct vow__etcd_stream *s = VOW__OUTER(q, struct vow__etcd_stream, query);
    struct vow__buf *text = &s->text;
    const bool whole = ended && q->code == 0 && q->status == 200;
    size_t from = 0;
    int rc = 0;
    if (whole)
        vow__buf_add(text, "\n", 1);
    for (size_t at = s->seen; rc == 0 && at < text->n; at++) {
        const char *end = memchr(text->bytes + at, '\n', text->n - at);
        if (end == NULL)
            break;
        at = (size_t)(end - text->bytes);
        rc = line_tell(s, text->bytes + from, at - from);
        from = at + 1;
    }
    vow__buf_take(text, rc == 0 ? from : text->n);
    s->seen = text->n;
    if (rc != 0)
        return rc;
    if (text->code != 0)
        return VOW_ENOMEM;
    if (s->too_much || text->n > LINE_MAX_BYTES)
        return vow__query_nonsense(q, VOW_E2BIG, "a line has no end");
    if (!whole)
        return 0;
    vow__etcd_trouble(s->calls->etcd, "%s has ended a stream",
                      vow__query_member(q));
    return VOW_EUNSURE;
}

/* ---- beginning and end --------------------------------------------------- */

static void stream_free(struct vow__etcd_stream *s)
{
    const struct vow_alloc alloc = s->calls->alloc;
    vow__buf_fini(&s->body);
    vow__buf_fini(&s->text);
    vow__mem_free(&alloc, s, sizeof(*s));
}

static vow_next stream_main(void *arg)
{
    struct vow__etcd_stream *s = arg;
    int rc = vow__query_run(s->calls, &s->query, NULL);
    if (!s->closed) /* keeps S1 */
        s->events.on_end(rc, s->events.user);
    stream_free(s); /* keeps S2 */
    return vow_ok(vow_nothing());
}

struct vow__etcd_stream *
vow__etcd_stream(struct vow__etcd *e, const char *path, struct vow__buf *body,
                 const struct vow__etcd_stream_events *events)
{
    struct vow__etcd_calls *c = vow__etcd_calls(e);
    struct vow__etcd_stream *s = vow__mem_zero(&c->alloc, sizeof(*s));
    if (s == NULL) {
        vow__buf_fini(body);
        return NULL;
    }
    s->calls = c;
    s->events = *events;
    s->body = *body;
    s->query = (struct vow__query){.path = path,
                                   .body = &s->body,
                                   .safe = true,
                                   .on_bytes = stream_on_bytes,
                                   .read = stream_read};
    vow__etcd_buf_init(body, &c->alloc);
    vow__etcd_buf_init(&s->text, &c->alloc);
    VOW_AUTO(vow_future) fiber = vow_async(c->loop, stream_main, s);
    if (vow_state_of(fiber) != VOW_REJECTED)
        return s;
    (void)vow_error_of(fiber);
    stream_free(s);
    return NULL;
}

void vow__etcd_stream_close(struct vow__etcd_stream *s)
{
    VOW__ASSERT(!s->closed);
    s->closed = true;
    vow__query_stop(&s->query, VOW_ECLOSED);
}
