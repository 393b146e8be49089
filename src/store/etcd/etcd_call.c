/* SPDX-License-Identifier: MIT */
/* etcd_call.c - a request: which member is asked, and what its answer means.
 *
 * WHY   Any member serves any request, as long as it sees a majority. Which one
 *       does is nobody's business above; whether a request may have happened
 *       is, always.
 * HOW   The member that last worked is asked first. One that cannot be reached,
 *       or says that it sees no leader, has done nothing: the next is asked at
 *       once, and when all are through and one of them may be only electing,
 *       all of them again until the time is over. Each has a part of the time:
 *       one that stands still must not cost more than that. A member that was
 *       asked and does not answer may have done it: that is told, and the next
 *       request begins with another. Nothing that may have happened is sent
 *       twice; what only asks is asked of the next member. Streams that a
 *       member has which stands still are ended, to begin again elsewhere.
 *       Every request says that it wants a leader: a member that is cut off
 *       refuses it then, instead of keeping it for seven seconds.
 * INVARIANTS
 *   C1  a query ends exactly once, never before the call that began it returns
 *   C2  VOW_ESTORE, VOW_EAGAIN, VOW_E2BIG, VOW_ENOENT: it did not happen
 *   C3  no sentence has a password or a token in it
 * LIMITS  An answer has at most 64 MiB. Without memory for a query, 64 of them
 *       are answered from the loop's queue as promised; those above at once.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_call.h"

#include "store/net/stream.h"

#include <stdio.h>
#include <string.h>

enum {
    ANSWER_MAX = 64 * 1024 * 1024,
    PAUSE_MS = 50, /* while members elect a leader */
    PART_MS = 500, /* for each member, at least, if there is time for two */
    PATH_SIZE = 40
};

struct call {
    struct vow__query query;
    vow__etcd_fn done;
    void *user;
};

static void start(struct vow__etcd *e, const char *path, struct vow__jot *body,
                  const struct call *like);
static bool is_safe(const char *path);
static struct call *call_new(struct vow__etcd_calls *c);
static void call_end(struct vow__query *q, int code, const json_t *root);
static void refuse_later(struct vow__etcd_calls *c, vow__etcd_fn done,
                         void *user);
static void on_refusing(void *user);
static bool forgive_stall(struct vow__query *q);
static void on_later(void *user);
static size_t next_member(const struct vow__query *q);
static uint64_t left_ms(const struct vow__query *q);
static void post(struct vow__query *q);
static void stands_still(struct vow__query *q);
static uint64_t part_of(const struct vow__etcd_where *w);
static void leave_member(const struct vow__query *q);
static void pass_over(struct vow__query *q, const char *why);
static void take_body(struct vow__query *q,
                      const struct vow__http_answer *answer);
static void tell(const struct vow__query *q, const struct vow__refusal *r);
static void on_http_closed(void *user);
static void on_finishing(void *user);

/* ---- calls --------------------------------------------------------------- */

void vow__etcd_call(struct vow__etcd *e, const char *path,
                    struct vow__jot *body, vow__etcd_fn done, void *user)
{
    start(e, path, body,
          &(const struct call){
              .query = {.safe = is_safe(path)}, .done = done, .user = user});
}

void vow__etcd_txn(struct vow__etcd *e, struct vow__txn *t, vow__etcd_fn done,
                   void *user)
{
    struct vow__jot body;
    vow__txn_body(t, &body);
    start(
        e, "kv/txn", &body,
        &(const struct call){.query = {.safe = !t->writes, .due_ns = t->due_ns},
                             .done = done,
                             .user = user});
}

void vow__etcd_call_with(struct vow__etcd *e,
                         const struct vow__etcd_request *request,
                         struct vow__jot *body, vow__etcd_fn done, void *user)
{
    start(e, request->path, body,
          &(const struct call){
              .query = {.safe = request->safe, .due_ns = request->due_ns},
              .done = done,
              .user = user});
}

static bool is_safe(const char *path)
{
    static const char *const all[] = {"kv/range", "lease/keepalive",
                                      "maintenance/alarm",
                                      "cluster/member/list"};
    bool any = false;
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        any |= strcmp(path, all[i]) == 0;
    return any;
}

static void start(struct vow__etcd *e, const char *path, struct vow__jot *body,
                  const struct call *like)
{
    struct vow__etcd_calls *c = vow__etcd_calls(e);
    struct call *k = call_new(c);
    if (k == NULL) {
        vow__jot_fini(body);
        refuse_later(c, like->done, like->user);
        return;
    }
    k->done = like->done;
    k->user = like->user;
    k->query.safe = like->query.safe;
    k->query.due_ns = like->query.due_ns;
    vow__query_start(c, &k->query, path, body);
}

static struct call *call_new(struct vow__etcd_calls *c)
{
    struct call *k = vow__mem_zero(&c->alloc, sizeof(*k));
    if (k == NULL)
        return NULL;
    k->query.end = call_end;
    k->query.on_answer = vow__query_answer;
    return k;
}

static void call_end(struct vow__query *q, int code, const json_t *root)
{
    struct call *k = VOW__OUTER(q, struct call, query);
    struct vow__etcd_calls *c = q->calls;
    vow__etcd_fn done = k->done;
    void *user = k->user;
    vow__mem_free(&c->alloc, k, sizeof(*k));
    done(c->etcd, code, root, user);
}

static void refuse_later(struct vow__etcd_calls *c, vow__etcd_fn done,
                         void *user)
{
    if (c->n_refused == sizeof(c->refused) / sizeof(*c->refused)) {
        done(c->etcd, VOW_ENOMEM, NULL, user);
        return;
    }
    c->refused[c->n_refused].done = done;
    c->refused[c->n_refused++].user = user;
    if (!vow_call_pending(&c->refusing))
        vow_call_soon(&c->refusing, c->loop, on_refusing, c);
}

/* One at a time: each may bring others. */
static void on_refusing(void *user)
{
    struct vow__etcd_calls *c = user;
    vow__etcd_fn done = c->refused[0].done;
    void *whom = c->refused[0].user;
    memmove(&c->refused[0], &c->refused[1],
            --c->n_refused * sizeof(*c->refused));
    if (c->n_refused > 0)
        vow_call_soon(&c->refusing, c->loop, on_refusing, c);
    done(c->etcd, VOW_ENOMEM, NULL, whom);
    vow__calls_finish(c);
}

/* ---- the way of a query -------------------------------------------------- */

void vow__query_start(struct vow__etcd_calls *c, struct vow__query *q,
                      const char *path, struct vow__jot *body)
{
    int n = snprintf(q->path, sizeof(q->path), "%s", path);
    VOW__ASSERT(n > 0 && (size_t)n < sizeof(q->path));
    q->calls = c;
    q->wave = c->wave;
    q->body = *body;
    vow__jot_init(body, &c->alloc);
    if (q->due_ns == 0)
        q->due_ns = vow_loop_due_ns(c->loop, c->where->timeout_ms);
    (void)forgive_stall(q);
    vow__list_push(&c->queries, &q->link);
    if (c->closing || q->body.bad) {
        vow__query_end_later(q, c->closing ? VOW_ECLOSED : VOW_ENOMEM);
    } else if (vow_loop_now_ns(c->loop) >= q->due_ns) {
        vow__etcd_late(c->etcd);
        vow__query_end_later(q, VOW_ESTORE);
    } else if (!vow__auth_waits(q)) {
        vow__query_send(q);
    }
}

void vow__query_stop(struct vow__query *q)
{
    if (q->request != NULL)
        vow__http_cancel(q->request);
    q->request = NULL;
    (void)vow_call_stop(&q->later);
    vow__list_remove(&q->calls->queries, &q->link);
    vow__jot_fini(&q->body);
}

void vow__query_end(struct vow__query *q, int code, const json_t *root)
{
    struct vow__etcd_calls *c = q->calls;
    vow__query_stop(q);
    q->end(q, code, root);
    vow__calls_finish(c);
}

void vow__query_end_later(struct vow__query *q, int code)
{
    q->code = code;
    q->waits = false;
    vow_call_soon(&q->later, q->calls->loop, on_later, q);
}

void vow__query_end_at(struct vow__query *q, int code, uint64_t due_ns)
{
    q->code = code;
    vow_call_at(&q->later, q->calls->loop, due_ns, on_later, q);
}

/* It was not the members who let the time pass. */
static bool forgive_stall(struct vow__query *q)
{
    const struct vow__etcd_calls *c = q->calls;
    if (!vow__stream_forgive(c->loop, q->due_ns, &q->forgiven))
        return false;
    q->due_ns = vow_loop_due_ns(c->loop, c->where->timeout_ms);
    return true;
}

static void on_later(void *user)
{
    struct vow__query *q = user;
    if (q->waits && forgive_stall(q))
        vow__query_end_at(q, q->code, q->due_ns);
    else if (q->code != 0)
        vow__query_end(q, q->code, NULL);
    else
        vow__query_send(q);
}

void vow__query_send(struct vow__query *q)
{
    q->waits = false;
    q->code = 0;
    (void)vow_call_stop(&q->later);
    q->member = next_member(q);
    q->token = q->calls->token;
    q->sent_ns = vow_loop_now_ns(q->calls->loop);
    post(q);
}

/* The first from the good one on that was not tried. */
static size_t next_member(const struct vow__query *q)
{
    size_t n = q->calls->where->n_hosts;
    size_t at = q->calls->good;
    for (size_t i = 0; i < n && (q->tried >> at & 1) != 0; i++)
        at = (at + 1) % n;
    return at;
}

/* At least one. */
static uint64_t left_ms(const struct vow__query *q)
{
    uint64_t now = vow_loop_now_ns(q->calls->loop);
    return now >= q->due_ns ? 1 : (q->due_ns - now) / 1000000 + 1;
}

static void post(struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    bool stream = q->on_bytes != NULL;
    char path[PATH_SIZE];
    const char *header[4] = {"Content-Type: application/json",
                             "Grpc-Metadata-hasleader: true"};
    (void)snprintf(path, sizeof(path), "/v3/%s", q->path);
    if (c->header.n > 0 && q != &c->query_token)
        header[2] = c->header.text;
    const struct vow__http_ask ask = {.server = &c->where->hosts[q->member],
                                      .path = path,
                                      .header = header,
                                      .body = q->body.text,
                                      .body_size = q->body.n,
                                      .timeout_ms = stream ? 0 : left_ms(q),
                                      .part_ms = c->part_ms,
                                      .answer_max = ANSWER_MAX,
                                      .on_bytes = q->on_bytes};
    q->request = vow__http_post(c->http, &ask, q->on_answer, q);
    if (q->request == NULL)
        vow__query_end_later(q, VOW_ENOMEM);
}

/* ---- what comes back ----------------------------------------------------- */

void vow__query_answer(const struct vow__http_answer *answer, void *user)
{
    struct vow__query *q = user;
    bool again = answer->code == VOW_ESTORE ||
                 (answer->code == VOW_EUNSURE && q->safe && !q->once);
    q->request = NULL;
    (void)forgive_stall(q);
    if (answer->late)
        stands_still(q);
    if (answer->code == 0) {
        vow__query_heard(q);
        take_body(q, answer);
    } else if (again) {
        pass_over(q, answer->why);
    } else if (answer->code == VOW_ECLOSED || answer->code == VOW_ENOMEM) {
        vow__query_end(q, answer->code, NULL);
    } else { /* also an answer that is too long: keeps C2 */
        leave_member(q);
        vow__etcd_trouble(q->calls->etcd, "%s", answer->why);
        vow__query_end(q, VOW_EUNSURE, NULL);
    }
}

void vow__query_heard(const struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    c->heard_ns[q->member] = vow_loop_now_ns(c->loop);
}

/* It, or only this request: others may have been answered meanwhile. */
static void stands_still(struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    q->still |= UINT32_C(1) << q->member;
    if (c->heard_ns[q->member] >= q->sent_ns)
        return;
    for (vow_link *l = c->queries; l != NULL; l = l->next) {
        struct vow__query *s = VOW__OUTER(l, struct vow__query, link);
        if (!s->once || s->request == NULL || s->member != q->member)
            continue;
        vow__http_cancel(s->request);
        s->request = NULL;
        vow__query_end_later(s, VOW_EUNSURE);
    }
}

static void take_body(struct vow__query *q,
                      const struct vow__http_answer *answer)
{
    struct vow__refusal refusal;
    json_error_t error;
    json_t *root = json_loadb(answer->body == NULL ? "" : answer->body,
                              answer->size, 0, &error);
    if (!json_is_object(root)) {
        bool sure = answer->status >= 300 && answer->status < 500;
        char what[64];
        (void)snprintf(what, sizeof(what), "its answer %u is no JSON",
                       answer->status);
        vow__query_nonsense(q, sure ? VOW_ESTORE : VOW_EUNSURE, what);
    } else if (vow__refusal_read(answer->status, root, &refusal)) {
        vow__query_refuse(q, &refusal);
    } else {
        vow__query_end(q, 0, root);
    }
    json_decref(root);
}

void vow__query_nonsense(struct vow__query *q, int code, const char *what)
{
    leave_member(q);
    vow__etcd_trouble(q->calls->etcd, "%s is no etcd server: %s",
                      vow__query_member(q), what);
    vow__query_end(q, code, NULL);
}

void vow__query_refuse(struct vow__query *q, const struct vow__refusal *refusal)
{
    int code = refusal->code;
    if (vow__auth_refused(q, refusal))
        return;
    if (refusal->kind == VOW__REFUSAL_HERE ||
        (code == VOW_EUNSURE && q->safe && !q->once)) {
        char why[VOW__ETCD_WHY];
        (void)snprintf(why, sizeof(why), "%s: %s%s%s", vow__query_member(q),
                       refusal->words, refusal->advice[0] != 0 ? ": " : "",
                       refusal->advice);
        q->not_ready = true;
        pass_over(q, why);
        return;
    }
    if (code == VOW_EUNSURE)
        leave_member(q);
    if (code != VOW_ENOENT)
        tell(q, refusal);
    vow__query_end(q, code, NULL);
}

/* Keeps C3: a server may say anything. */
static void tell(const struct vow__query *q, const struct vow__refusal *r)
{
    const struct vow__etcd_where *w = q->calls->where;
    const char *member = vow__query_member(q);
    const char *token =
        q->calls->header.n > 0 ? strchr(q->calls->header.text, ' ') + 1 : NULL;
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

/* Others may have left it before. */
static void leave_member(const struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    if (c->good == q->member)
        c->good = (c->good + 1) % c->where->n_hosts;
}

/* This member has done nothing, and will not. */
static void pass_over(struct vow__query *q, const char *why)
{
    struct vow__etcd_calls *c = q->calls;
    bool late = vow_loop_now_ns(c->loop) >= q->due_ns;
    leave_member(q);
    q->tried |= UINT32_C(1) << q->member;
    uint32_t each = (UINT32_C(1) << c->where->n_hosts) - 1;
    bool all = q->tried == each;
    vow__etcd_trouble(c->etcd, "%s cannot be used: %s", c->where->shown, why);
    if (late || q->once || (all && !q->not_ready) || q->still == each) {
        vow__query_end(q, VOW_ESTORE, NULL);
    } else if (!all) {
        vow__query_send(q);
    } else {
        q->tried = q->still;
        q->not_ready = false;
        vow_call_at(&q->later, c->loop, vow_loop_due_ns(c->loop, PAUSE_MS),
                    on_later, q);
    }
}

const char *vow__query_member(const struct vow__query *q)
{
    return q->calls->where->hosts[q->member].shown;
}

/* ---- opening and closing ------------------------------------------------- */

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
    vow__jot_init(&c->header, &c->alloc);
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

/* One member that stands still leaves time for another. */
static uint64_t part_of(const struct vow__etcd_where *w)
{
    uint64_t half = (w->timeout_ms + 1) / 2;
    uint64_t least = half < PART_MS ? half : PART_MS;
    uint64_t part = w->timeout_ms / w->n_hosts;
    return part < least ? least : part;
}

/* What its end brings is of a new wave, and stands behind. */
void vow__calls_leave(struct vow__etcd_calls *c)
{
    c->wave++;
    while (c->queries != NULL) {
        struct vow__query *q = VOW__OUTER(c->queries, struct vow__query, link);
        if (q->wave == c->wave)
            return;
        vow__query_end(q, VOW_ECLOSED, NULL);
    }
}

void vow__calls_close(struct vow__etcd_calls *c,
                      void (*done)(struct vow__etcd *e))
{
    c->closed = done;
    c->closing = true;
    vow__calls_leave(c);
    vow__http_close(c->http, on_http_closed, c);
}

static void on_http_closed(void *user)
{
    struct vow__etcd_calls *c = user;
    c->http_closed = true;
    vow__calls_finish(c);
}

void vow__calls_finish(struct vow__etcd_calls *c)
{
    if (c->http_closed && c->queries == NULL && c->n_refused == 0)
        vow_call_soon(&c->finishing, c->loop, on_finishing, c);
}

static void on_finishing(void *user)
{
    struct vow__etcd_calls *c = user;
    struct vow__etcd *e = c->etcd;
    void (*closed)(struct vow__etcd *) = c->closed;
    if (c->queries != NULL || c->n_refused > 0)
        return; /* it comes again */
    vow__auth_fini(c);
    vow__mem_free(&c->alloc, c, sizeof(*c));
    closed(e);
}
