/* SPDX-License-Identifier: MIT */
/* etcd_stream.c - a request whose answer does not end: lines of JSON.
 *
 * HOW   Bytes are collected as they come and read from the loop's queue: who is
 *       told of a line may do what it likes, also close the store.
 *       Before the first line a stream is as any query, and goes to another
 *       member if need be. From then on it ends, and who has it begins again.
 * INVARIANTS
 *   S1  nothing is told of a stream that was let go, or has ended
 *   S2  what is being read is freed when the reading is over
 * LIMITS  A line has at most 8 MiB; what came and was not read yet, four times
 *       as much.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_call.h"

#include <string.h>

enum { LINE_MAX_BYTES = 8 * 1024 * 1024, UNREAD_MAX = 4 * LINE_MAX_BYTES };

struct vow__etcd_stream {
    struct vow__query query;
    struct vow__etcd_stream_events events;
    struct vow__jot text; /* what has come and was not told */
    size_t seen;          /* of it, without an end of line */
    vow_call reading;
    bool too_much;
    bool inside; /* it is being read */
    bool over;   /* let go, or ended */
};

static void on_bytes(const char *bytes, size_t n, void *user);
static void on_reading(void *user);
static bool read_lines(struct vow__etcd_stream *s);
static bool take_line(struct vow__etcd_stream *s, const char *line, size_t n);
static bool is_blank(const char *line, size_t n);
static void refuse(struct vow__etcd_stream *s,
                   const struct vow__refusal *refusal);
static void on_answer(const struct vow__http_answer *answer, void *user);
static void on_end(struct vow__query *q, int code, const json_t *root);
static void release(struct vow__etcd_stream *s);

struct vow__etcd_stream *
vow__etcd_stream(struct vow__etcd *e, const char *path, struct vow__jot *body,
                 const struct vow__etcd_stream_events *events)
{
    struct vow__etcd_calls *c = vow__etcd_calls(e);
    struct vow__etcd_stream *s = vow__mem_zero(&c->alloc, sizeof(*s));
    if (s == NULL) {
        vow__jot_fini(body);
        return NULL;
    }
    s->events = *events;
    s->query.on_bytes = on_bytes;
    s->query.on_answer = on_answer;
    s->query.end = on_end;
    s->query.safe = true;
    vow__jot_init(&s->text, &c->alloc);
    vow__query_start(c, &s->query, path, body);
    return s;
}

void vow__etcd_stream_close(struct vow__etcd_stream *s)
{
    struct vow__etcd_calls *c = s->query.calls;
    VOW__ASSERT(!s->over);
    vow__query_stop(&s->query);
    release(s);
    vow__calls_finish(c);
}

static void on_end(struct vow__query *q, int code, const json_t *root)
{
    struct vow__etcd_stream *s = VOW__OUTER(q, struct vow__etcd_stream, query);
    struct vow__etcd_stream_events events = s->events;
    (void)root;
    release(s);
    events.on_end(code, events.user);
}

/* Keeps S2. */
static void release(struct vow__etcd_stream *s)
{
    const struct vow_alloc alloc = s->query.calls->alloc;
    s->over = true;
    (void)vow_call_stop(&s->reading);
    if (s->inside)
        return;
    vow__jot_fini(&s->text);
    vow__mem_free(&alloc, s, sizeof(*s));
}

/* ---- lines --------------------------------------------------------------- */

/* Within http.c: only kept. */
static void on_bytes(const char *bytes, size_t n, void *user)
{
    struct vow__etcd_stream *s =
        VOW__OUTER(user, struct vow__etcd_stream, query);
    vow__query_heard(&s->query);
    if (n > UNREAD_MAX - s->text.n)
        s->too_much = true;
    else
        vow__jot_bytes(&s->text, bytes, n);
    if (!vow_call_pending(&s->reading))
        vow_call_soon(&s->reading, s->query.calls->loop, on_reading, s);
}

static void on_reading(void *user)
{
    (void)read_lines(user);
}

/* False: it is over, or begins again. */
static bool read_lines(struct vow__etcd_stream *s)
{
    const char *text = s->text.text;
    size_t from = 0;
    bool good = true;
    s->inside = true;
    for (size_t at = s->seen; good && at < s->text.n; at++) {
        const char *end = memchr(text + at, '\n', s->text.n - at);
        if (end == NULL)
            break;
        at = (size_t)(end - text);
        good = take_line(s, text + from, at - from);
        from = at + 1;
    }
    s->inside = false;
    if (s->over) {
        release(s);
        return false;
    }
    if (!good) {
        s->text.n = 0;
        s->seen = 0;
        return false;
    }
    s->text.n -= from;
    s->seen = s->text.n;
    if (from > 0 && s->text.n > 0)
        memmove(s->text.text, s->text.text + from, s->text.n);
    if (s->text.bad) {
        vow__query_end(&s->query, VOW_ENOMEM, NULL);
        return false;
    }
    if (s->too_much || s->text.n > LINE_MAX_BYTES) {
        vow__query_nonsense(&s->query, VOW_E2BIG, "a line has no end");
        return false;
    }
    return true;
}

static bool take_line(struct vow__etcd_stream *s, const char *line, size_t n)
{
    struct vow__refusal refusal;
    json_error_t error;
    if (is_blank(line, n))
        return true;
    json_t *root = json_loadb(line, n, 0, &error);
    bool good = json_is_object(root);
    if (!good) {
        vow__query_nonsense(&s->query, VOW_EUNSURE, "a line is no JSON");
    } else if (vow__refusal_read(200, root, &refusal)) {
        good = false;
        refuse(s, &refusal);
    } else {
        s->query.once = true;
        s->events.on_line(root, s->events.user);
        good = !s->over;
    }
    json_decref(root);
    return good;
}

static bool is_blank(const char *line, size_t n)
{
    while (n > 0 && strchr(" \r\t", line[n - 1]) != NULL)
        n--;
    return n == 0;
}

/* It may be sent again: what runs is let go first. */
static void refuse(struct vow__etcd_stream *s,
                   const struct vow__refusal *refusal)
{
    if (s->query.request != NULL)
        vow__http_cancel(s->query.request);
    s->query.request = NULL;
    vow__query_refuse(&s->query, refusal);
}

/* What stands behind the last end of line is one, too. */
static void on_answer(const struct vow__http_answer *answer, void *user)
{
    struct vow__etcd_stream *s =
        VOW__OUTER(user, struct vow__etcd_stream, query);
    bool ended = answer->code == 0 && answer->status == 200;
    s->query.request = NULL;
    if (ended)
        vow__jot_bytes(&s->text, "\n", 1);
    (void)vow_call_stop(&s->reading);
    if (!read_lines(s))
        return;
    if (!ended) {
        vow__query_answer(answer, user);
        return;
    }
    vow__etcd_trouble(s->query.calls->etcd, "%s has ended a stream",
                      vow__query_member(&s->query));
    vow__query_end(&s->query, VOW_EUNSURE, NULL);
}
