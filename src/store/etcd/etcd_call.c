/* SPDX-License-Identifier: MIT */
/* etcd_call.c - a request on a fiber: which member is asked, and what the answer
 * means.
 *
 * WHY   Any member serves any request, as long as the member sees a majority.
 *       Which member does is of no interest above; whether a request may have
 *       happened is, always.
 * HOW   The member that last worked is asked first. A member that cannot be
 *       reached, or says that there is no leader, has done nothing: the next
 *       member is asked at once, and when all are through and one of them may be
 *       only electing, all of them again until the time is over. Each member has
 *       a part of the time: one that stands still must not cost more. A member
 *       that was asked and does not answer may have done it: that is told, and
 *       the next request begins with another member. Nothing that may have
 *       happened is sent twice; a request that changes nothing goes on to the
 *       next member. Streams at a member that stands still are ended, to begin
 *       again elsewhere. Every request says that it wants a leader: a member
 *       that is cut off refuses it then, instead of keeping it for seven
 *       seconds.
 *       A request lies on the stack of its fiber. Whoever ends it early, the
 *       store that closes or a closing loop, wakes the fiber, which takes the
 *       request back.
 * INVARIANTS
 *   C1  a fiber that waits is woken by an answer, by the time, or by an end
 *   C2  VOW_ESTORE, VOW_EAGAIN, VOW_E2BIG, VOW_ENOENT: it did not happen
 *   C3  no sentence has a password or a token in it
 * LIMITS  An answer has at most 64 MiB.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_call.h"

#include "store/net/stream.h"
#include "vow/fiber.h"

#include <stdio.h>
#include <string.h>

enum {
    ANSWER_MAX = 64 * 1024 * 1024,
    PAUSE_MS = 50, /* while members elect a leader, or are busy */
    PART_MS = 500, /* for each member, at least, if there is time for two */
    PATH_SIZE = 40
};

static void calls_finish(struct vow__etcd_calls *c);

/* ---- waiting -------------------------------------------------------------- */

static void query_on_time(void *user)
{
    vow__query_wake(user);
}

void vow__query_wake(struct vow__query *q)
{
    vow_deferred *wake = q->wake;
    q->wake = NULL;
    if (wake != NULL)
        (void)vow_resolve_drop(wake, vow_nothing());
}

void vow__query_stop(struct vow__query *q, int code)
{
    if (q->request != NULL)
        vow__http_cancel(q->request);
    q->request = NULL;
    q->end = code;
    vow__query_wake(q);
}

int vow__query_wait(struct vow__query *q, uint64_t due_ns)
{
    if (q->end != 0)
        return q->end;
    vow_future *f = vow_promise(q->calls->loop, &q->wake);
    bool pending = vow_deferred_pending(q->wake);
    if (pending && due_ns != UINT64_MAX)
        vow_call_at(&q->later, q->calls->loop, due_ns, query_on_time, q);
    int rc = vow_await(f);
    vow_future_unref(f);
    (void)vow_call_stop(&q->later);
    if (q->wake != NULL) { /* without memory, or the loop closes */
        q->wake = vow_deferred_unref(q->wake);
        return !pending && rc == VOW_ENOMEM ? rc : VOW_ECLOSED;
    }
    return q->end;
}

/* ---- members -------------------------------------------------------------- */

const char *vow__query_member(const struct vow__query *q)
{
    return q->calls->where->hosts[q->member].shown;
}

void vow__query_heard(const struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    c->heard_ns[q->member] = vow_loop_now_ns(c->loop);
}

/* The first from the good one on that was not tried. */
static size_t next_member(const struct vow__query *q)
{
    const struct vow__etcd_calls *c = q->calls;
    size_t i = c->good;
    while ((q->tried >> i & 1) != 0)
        i = (i + 1) % c->where->n_hosts;
    return i;
}

/* Other requests may have left the member before. */
static void leave_member(const struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    if (c->good == q->member)
        c->good = (c->good + 1) % c->where->n_hosts;
}

/* The member, or only this request: others may have been answered meanwhile. */
static void member_stands(struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    q->still |= UINT32_C(1) << q->member;
    if (c->heard_ns[q->member] >= q->sent_ns)
        return;
    for (vow_link *l = c->queries; l != NULL; l = l->next) {
        struct vow__query *s = VOW__OUTER(l, struct vow__query, link);
        if (s->once && s->request != NULL && s->member == q->member)
            vow__query_stop(s, VOW_EUNSURE);
    }
}

/* The member has done nothing, and will not. */
static int pass_over(struct vow__query *q, const char *why)
{
    struct vow__etcd_calls *c = q->calls;
    const uint32_t each = (UINT32_C(1) << c->where->n_hosts) - 1;
    bool late = vow_loop_now_ns(c->loop) >= q->due_ns;
    leave_member(q);
    q->tried |= UINT32_C(1) << q->member;
    bool all = q->tried == each;
    vow__etcd_trouble(c->etcd, "%s cannot be used: %s", c->where->shown, why);
    if (late || q->once || (all && !q->not_ready) || q->still == each)
        return VOW_ESTORE;
    if (!all)
        return VOW__QUERY_AGAIN;
    q->tried = q->still;
    q->not_ready = false;
    int rc = vow__query_wait(q, vow_loop_due_ns(c->loop, PAUSE_MS));
    return rc < 0 ? rc : VOW__QUERY_AGAIN;
}

/* ---- answers -------------------------------------------------------------- */

/* Keeps C3: a server may say anything. */
static void refusal_tell(const struct vow__query *q,
                         const struct vow__refusal *r)
{
    const struct vow__etcd_where *w = q->calls->where;
    const char *member = vow__query_member(q);
    const char *token =
        q->calls->header.n > 0 ? strchr(q->calls->header.bytes, ' ') + 1 : NULL;
    const char *words = r->words;
    if ((token != NULL && strstr(words, token) != NULL) ||
        (w->password != NULL && strstr(words, w->password) != NULL))
        words = "it refuses, in words that are not shown";
    if (r->kind == VOW__REFUSAL_RIGHT)
        vow__etcd_trouble(q->calls->etcd,
                          "%s: %s: a role of %s needs the right readwrite on "
                          "all keys with the prefix %s",
                          member, words, w->user != NULL ? w->user : "the user",
                          w->prefix);
    else if (r->kind == VOW__REFUSAL_TOKEN && w->password == NULL)
        vow__etcd_trouble(q->calls->etcd,
                          "%s wants to know who we are: give a user, and a "
                          "password-file",
                          member);
    else
        vow__etcd_trouble(q->calls->etcd, "%s: %s%s%s", member, words,
                          r->advice[0] != 0 ? ": " : "", r->advice);
}

int vow__query_refuse(struct vow__query *q, const struct vow__refusal *refusal)
{
    int code = refusal->code;
    if (vow__auth_refused(q, refusal, &code))
        return code;
    if (refusal->kind == VOW__REFUSAL_HERE ||
        (code == VOW_EUNSURE && q->safe && !q->once)) {
        (void)snprintf(q->why, sizeof(q->why), "%s: %s%s%s",
                       vow__query_member(q), refusal->words,
                       refusal->advice[0] != 0 ? ": " : "", refusal->advice);
        q->not_ready = true;
        return pass_over(q, q->why);
    }
    if (code == VOW_EUNSURE)
        leave_member(q);
    if (code != VOW_ENOENT)
        refusal_tell(q, refusal);
    return code;
}

int vow__query_nonsense(struct vow__query *q, int code, const char *what)
{
    leave_member(q);
    vow__etcd_trouble(q->calls->etcd, "%s is no etcd server: %s",
                      vow__query_member(q), what);
    return code;
}

static int root_take(struct vow__query *q, json_t **ret_root)
{
    struct vow__refusal refusal;
    if (!json_is_object(q->root)) {
        bool sure = q->status >= 300 && q->status < 500;
        char what[64];
        (void)snprintf(what, sizeof(what), "its answer %u is no JSON",
                       q->status);
        return vow__query_nonsense(q, sure ? VOW_ESTORE : VOW_EUNSURE, what);
    }
    if (vow__refusal_read(q->status, q->root, &refusal))
        return vow__query_refuse(q, &refusal);
    if (ret_root != NULL) {
        *ret_root = q->root;
        q->root = NULL;
    }
    return 0;
}

/* Begins the time anew if this process was stopped: no member is to blame. */
static void forgive_stall(struct vow__query *q)
{
    const struct vow__etcd_calls *c = q->calls;
    if (vow__stream_forgive(c->loop, q->due_ns, &q->forgiven))
        q->due_ns = vow_loop_due_ns(c->loop, c->where->timeout_ms);
}

static int answer_take(struct vow__query *q, json_t **ret_root)
{
    forgive_stall(q);
    if (q->late)
        member_stands(q);
    if (q->code == 0)
        return root_take(q, ret_root);
    if (q->code == VOW_ESTORE ||
        (q->code == VOW_EUNSURE && q->safe && !q->once))
        return pass_over(q, q->why);
    if (q->code == VOW_ECLOSED || q->code == VOW_ENOMEM)
        return q->code;
    leave_member(q); /* also when an answer is too long: keeps C2 */
    vow__etcd_trouble(q->calls->etcd, "%s", q->why);
    return VOW_EUNSURE;
}

/* ---- the way of a request ------------------------------------------------- */

static void query_on_answer(const struct vow__http_answer *answer, void *user)
{
    struct vow__query *q = user;
    json_error_t error;
    q->request = NULL;
    q->code = answer->code;
    q->late = answer->late;
    q->status = answer->status;
    if (answer->code == 0) {
        vow__query_heard(q);
        q->root = json_loadb(answer->body == NULL ? "" : answer->body,
                             answer->size, 0, &error);
    } else {
        (void)snprintf(q->why, sizeof(q->why), "%s", answer->why);
    }
    vow__query_wake(q); /* keeps C1 */
}

/* Rounded up: when the request is late, the time of the step is over, too. */
static uint64_t left_ms(const struct vow__query *q)
{
    uint64_t now = vow_loop_now_ns(q->calls->loop);
    return now < q->due_ns ? (q->due_ns - now + 999999) / 1000000 : 1;
}

static int query_post(struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    char path[PATH_SIZE];
    const char *header[4] = {"Content-Type: application/json",
                             "Grpc-Metadata-hasleader: true"};
    q->member = next_member(q);
    q->token = c->token;
    q->sent_ns = vow_loop_now_ns(c->loop);
    (void)snprintf(path, sizeof(path), "/v3/%s", q->path);
    if (c->header.n > 0 && !q->anonymous)
        header[2] = c->header.bytes;
    const struct vow__http_ask ask = {.server = &c->where->hosts[q->member],
                                      .path = path,
                                      .header = header,
                                      .body = q->body->bytes,
                                      .body_size = q->body->n,
                                      .timeout_ms =
                                          q->on_bytes != NULL ? 0 : left_ms(q),
                                      .part_ms = c->part_ms,
                                      .answer_max = ANSWER_MAX,
                                      .on_bytes = q->on_bytes};
    q->request = vow__http_post(c->http, &ask, query_on_answer, q);
    return q->request == NULL ? VOW_ENOMEM : 0;
}

/* Asks one member. */
static int query_ask(struct vow__query *q, json_t **ret_root)
{
    int rc = query_post(q);
    while (rc == 0) {
        rc = vow__query_wait(q, UINT64_MAX);
        bool ended = q->request == NULL;
        if (rc == 0 && q->read != NULL)
            rc = q->read(q, ended);
        if (rc == 0 && ended)
            rc = q->end != 0 ? q->end : answer_take(q, ret_root);
        if (ended)
            break;
    }
    if (q->request != NULL)
        vow__http_cancel(q->request);
    q->request = NULL;
    json_decref(q->root);
    q->root = NULL;
    return rc;
}

int vow__query_run(struct vow__etcd_calls *c, struct vow__query *q,
                   json_t **ret_root)
{
    int rc = VOW__QUERY_AGAIN;
    q->calls = c;
    if (q->due_ns == 0)
        q->due_ns = vow_loop_due_ns(c->loop, c->where->timeout_ms);
    forgive_stall(q);
    vow__list_push(&c->queries, &q->link);
    if (c->closing || q->end != 0) {
        rc = VOW_ECLOSED;
    } else if (q->body->code != 0) {
        rc = VOW_ENOMEM;
    } else if (vow_loop_now_ns(c->loop) >= q->due_ns) {
        vow__etcd_late(c->etcd);
        rc = VOW_ESTORE;
    }
    while (rc == VOW__QUERY_AGAIN) {
        rc = vow__auth_wait(q);
        if (rc == 0)
            rc = query_ask(q, ret_root);
    }
    vow__list_remove(&c->queries, &q->link);
    calls_finish(c);
    return rc;
}

/* ---- requests for all other parts ----------------------------------------- */

int vow__etcd_await(struct vow__etcd *e, const char *path,
                    struct vow__buf *body, bool safe, uint64_t due_ns,
                    json_t **ret_root)
{
    vow_loop *loop = vow__etcd_loop(e);
    int rc;
    do {
        struct vow__query q = {
            .path = path, .body = body, .safe = safe, .due_ns = due_ns};
        rc = vow__query_run(vow__etcd_calls(e), &q, ret_root);
    } while (rc == VOW_EAGAIN && vow_loop_now_ns(loop) < due_ns &&
             vow_sleep(loop, PAUSE_MS) == 0);
    vow__buf_fini(body);
    if (rc == VOW_ESTORE && due_ns != 0 && vow_loop_now_ns(loop) >= due_ns)
        vow__etcd_late(e);
    if (rc == VOW_ECLOSED && !safe)
        return VOW_EUNSURE;
    return rc == VOW_EAGAIN ? VOW_ESTORE : rc;
}

int vow__etcd_await_txn(struct vow__etcd *e, struct vow__txn *t,
                        json_t **ret_root)
{
    struct vow__buf body;
    vow__txn_body(t, &body);
    return vow__etcd_await(e, "kv/txn", &body, !t->writes, t->due_ns, ret_root);
}

/* ---- opening and closing -------------------------------------------------- */

/* One member that stands still leaves time for another. */
static uint64_t part_of(const struct vow__etcd_where *w)
{
    uint64_t half = (w->timeout_ms + 1) / 2;
    uint64_t least = half < PART_MS ? half : PART_MS;
    uint64_t part = w->timeout_ms / w->n_hosts;
    return part < least ? least : part;
}

int vow__calls_open(struct vow__etcd *e, struct vow__etcd_calls **ret_calls,
                    char *why, size_t why_size)
{
    const struct vow__etcd_where *w = vow__etcd_where_of(e);
    const struct vow__http_opts opts = {.tls = w->tls,
                                        .ca_file = w->ca_file,
                                        .cert_file = w->cert_file,
                                        .key_file = w->key_file,
                                        .connections = w->connections,
                                        .connect_ms = part_of(w)};
    int rc = vow__jansson_load(why, why_size);
    if (rc < 0)
        return rc;
    struct vow__etcd_calls *c = vow__mem_zero(vow__etcd_alloc(e), sizeof(*c));
    if (c == NULL)
        return VOW_ENOMEM;
    c->etcd = e;
    c->alloc = *vow__etcd_alloc(e);
    c->loop = vow__etcd_loop(e);
    c->where = w;
    c->part_ms = part_of(w);
    vow__etcd_buf_init(&c->header, &c->alloc);
    rc = vow__http_open(c->loop, &opts, &c->http, why, why_size);
    if (rc < 0) {
        vow__mem_free(&c->alloc, c, sizeof(*c));
        return rc;
    }
    if (why_size > 0)
        why[0] = 0;
    *ret_calls = c;
    return 0;
}

void vow__calls_leave(struct vow__etcd_calls *c)
{
    for (vow_link *l = c->queries; l != NULL; l = l->next)
        vow__query_stop(VOW__OUTER(l, struct vow__query, link), VOW_ECLOSED);
}

static void on_http_closed(void *user)
{
    struct vow__etcd_calls *c = user;
    c->http_closed = true;
    calls_finish(c);
}

void vow__calls_close(struct vow__etcd_calls *c,
                      void (*done)(struct vow__etcd *e))
{
    c->closed = done;
    c->closing = true;
    vow__calls_leave(c);
    vow__http_close(c->http, on_http_closed, c);
}

static void on_finishing(void *user)
{
    struct vow__etcd_calls *c = user;
    struct vow__etcd *e = c->etcd;
    void (*closed)(struct vow__etcd *) = c->closed;
    if (c->queries != NULL)
        return;                /* it comes again */
    vow__buf_fini(&c->header); /* which clears the token */
    vow__mem_free(&c->alloc, c, sizeof(*c));
    closed(e);
}

static void calls_finish(struct vow__etcd_calls *c)
{
    if (c->http_closed && c->queries == NULL)
        vow_call_soon(&c->finishing, c->loop, on_finishing, c);
}
