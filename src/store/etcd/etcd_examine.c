/* SPDX-License-Identifier: MIT */
/* etcd_examine.c - looking at etcd as a doctor would: what is asked.
 *
 * HOW   All members of the address how they are, at once; without asking for a
 *       leader, so that one without tells. Then one question after the other:
 *       who belongs to the cluster and what alarms there are, how short a lease
 *       can be, whether we may write and read where we want to, and how long an
 *       answer takes. What the user may not ask is a finding too.
 * INVARIANTS
 *   E1  nothing is written without a lease: all of it goes with that
 *   E2  after a question without an answer there is no other, so that it takes
 *       the time of two at most
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_examine.h"

#include "base/clock.h"
#include "store/etcd/etcd_call.h"

#include <stdio.h>
#include <string.h>

enum { ANSWER_MAX = 64 * 1024 };

struct question {
    const char *path;
    void (*body)(struct vow__check *c, struct vow__jot *body);
    void (*take)(struct vow__check *c, int code, const json_t *root);
};

static bool ask_member(struct vow__check *c, size_t i);
static void on_member(const struct vow__http_answer *answer, void *user);
static void one_less(struct vow__check *c);
static void begin_with_one(const struct vow__check *c);
static bool any_answers(const struct vow__check *c);
static void take_status(struct vow__check_member *m,
                        const struct vow__http_answer *answer);
static void take_fields(struct vow__check_member *m, const json_t *root);
static void ask(struct vow__check *c);
static void on_answer(struct vow__etcd *e, int code, const json_t *root,
                      void *user);
static size_t next_question(const struct vow__check *c);
static void nothing(struct vow__check *c, struct vow__jot *body);
static void read_alarms(struct vow__check *c, struct vow__jot *body);
static void short_lease(struct vow__check *c, struct vow__jot *body);
static void write_key(struct vow__check *c, struct vow__jot *body);
static void read_key(struct vow__check *c, struct vow__jot *body);
static void that_lease(struct vow__check *c, struct vow__jot *body);
static void take_alarms(struct vow__check *c, int code, const json_t *root);
static void take_list(struct vow__check *c, int code, const json_t *root);
static void take_lease(struct vow__check *c, int code, const json_t *root);
static void take_right(struct vow__check *c, int code, const json_t *root);
static void take_time(struct vow__check *c, int code, const json_t *root);
static void take_nothing(struct vow__check *c, int code, const json_t *root);
static void take_refusal(struct vow__check *c);
static void end(struct vow__check *c, int code);

static const struct question questions[] = {
    {"lease/grant", short_lease, take_lease},
    {"maintenance/alarm", read_alarms, take_alarms},
    {"cluster/member/list", nothing, take_list},
    {"kv/txn", write_key, take_right},
    {"kv/txn", read_key, take_time},
    {"kv/txn", read_key, take_time},
    {"kv/txn", read_key, take_time},
    {"kv/txn", read_key, take_time},
    {"kv/txn", read_key, take_time},
    {"lease/revoke", that_lease, take_nothing},
};
enum { QUESTIONS = sizeof(questions) / sizeof(questions[0]), OF_ANYBODY = 3 };

void vow__etcd_examine(vow_store *s, vow_findings_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(s);
    int rc = vow__etcd_usable(e);
    struct vow__check *c =
        rc < 0 ? NULL : vow__mem_zero(vow__etcd_alloc(e), sizeof(*c));
    if (c == NULL) {
        done(rc < 0 ? rc : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    c->etcd = e;
    c->alloc = *vow__etcd_alloc(e);
    c->done = done;
    c->user = user;
    c->pending = 1; /* until all are asked */
    for (size_t i = 0; i < vow__etcd_where_of(e)->n_hosts; i++) {
        if (ask_member(c, i))
            c->pending++;
        else
            c->code = VOW_ENOMEM;
    }
    one_less(c);
}

/* ---- each member --------------------------------------------------------- */

static bool ask_member(struct vow__check *c, size_t i)
{
    const struct vow__etcd_where *w = vow__etcd_where_of(c->etcd);
    struct vow__etcd_calls *calls = vow__etcd_calls(c->etcd);
    const char *header[3] = {"Content-Type: application/json"};
    if (calls->header.n > 0)
        header[1] = calls->header.text;
    c->members[i].check = c;
    const struct vow__http_ask status = {.server = &w->hosts[i],
                                         .path = "/v3/maintenance/status",
                                         .header = header,
                                         .body = "{}",
                                         .body_size = 2,
                                         .timeout_ms = w->timeout_ms,
                                         .answer_max = ANSWER_MAX};
    return vow__http_post(calls->http, &status, on_member, &c->members[i]) !=
           NULL;
}

static void on_member(const struct vow__http_answer *answer, void *user)
{
    struct vow__check_member *m = user;
    if (answer->code == VOW_ECLOSED || answer->code == VOW_ENOMEM)
        m->check->code = answer->code;
    else
        take_status(m, answer);
    one_less(m->check);
}

static void one_less(struct vow__check *c)
{
    if (--c->pending > 0)
        return;
    if (c->code < 0) {
        end(c, c->code);
    } else if (any_answers(c)) {
        begin_with_one(c);
        ask(c);
    } else {
        vow__etcd_trouble(c->etcd, "%s", c->members[0].why);
        end(c, VOW_ESTORE);
    }
}

/* That answers: what is asked has half of the timeout. */
static void begin_with_one(const struct vow__check *c)
{
    size_t n = vow__etcd_where_of(c->etcd)->n_hosts;
    size_t *good = &vow__etcd_calls(c->etcd)->good;
    for (size_t i = 0; i < n && !c->members[*good].answers; i++)
        *good = (*good + 1) % n;
}

static bool any_answers(const struct vow__check *c)
{
    bool any = false;
    for (size_t i = 0; i < vow__etcd_where_of(c->etcd)->n_hosts; i++)
        any |= c->members[i].answers;
    return any;
}

static void take_status(struct vow__check_member *m,
                        const struct vow__http_answer *answer)
{
    struct vow__refusal refusal;
    if (answer->code != 0) {
        (void)snprintf(m->why, sizeof(m->why), "%s", answer->why);
        return;
    }
    json_t *root = json_loadb(answer->body == NULL ? "" : answer->body,
                              answer->size, 0, NULL);
    m->answers = json_is_object(root);
    if (m->answers && !vow__refusal_read(answer->status, root, &refusal))
        take_fields(m, root);
    json_decref(root);
    if (!m->answers) {
        const struct vow__etcd_where *w = vow__etcd_where_of(m->check->etcd);
        (void)snprintf(m->why, sizeof(m->why), "%s is no etcd server",
                       w->hosts[m - m->check->members].shown);
    }
}

static void take_fields(struct vow__check_member *m, const json_t *root)
{
    const char *version = json_string_value(json_object_get(root, "version"));
    m->id = vow__json_uint(json_object_get(root, "header"), "member_id");
    m->leader = vow__json_uint(root, "leader");
    m->size = vow__json_uint(root, "dbSize");
    m->used = vow__json_uint(root, "dbSizeInUse");
    m->answers = version != NULL && m->id != 0;
    if (m->answers)
        (void)snprintf(m->version, sizeof(m->version), "%s", version);
}

/* ---- the cluster --------------------------------------------------------- */

static void ask(struct vow__check *c)
{
    struct vow__jot body;
    const struct question *q = &questions[c->question];
    vow__jot_init(&body, &c->alloc);
    q->body(c, &body);
    c->asked_ns = vow_loop_now_ns(vow__etcd_loop(c->etcd));
    c->sent_ns = vow__clock_boot_ns();
    vow__etcd_call(c->etcd, q->path, &body, on_answer, c);
}

static void on_answer(struct vow__etcd *e, int code, const json_t *root,
                      void *user)
{
    struct vow__check *c = user;
    uint64_t now_ns = vow_loop_now_ns(vow__etcd_loop(e));
    uint64_t took_ms = (now_ns - c->asked_ns) / 1000000;
    if (code == VOW_ECLOSED || code == VOW_ENOMEM) {
        end(c, code);
        return;
    }
    c->silent = code < 0 && took_ms >= vow__etcd_where_of(e)->timeout_ms / 2;
    if (c->silent && c->refused[0] == 0)
        take_refusal(c);
    questions[c->question].take(c, code, root);
    c->question = next_question(c);
    if (c->question < QUESTIONS && !c->silent) { /* keeps E2 */
        ask(c);
        return;
    }
    c->open = vow__etcd_calls(e)->open;
    code = vow__check_judge(c);
    if (code < 0)
        vow__etcd_trouble(e, "%s", c->refused);
    end(c, code);
}

/* Without a lease nothing is written, and without that nothing read: keeps E1.
 */
static size_t next_question(const struct vow__check *c)
{
    size_t next = c->question + 1;
    if (next < OF_ANYBODY || next == QUESTIONS || c->writes)
        return next;
    if (next == OF_ANYBODY && c->lease != 0)
        return next;
    return c->lease != 0 && next < QUESTIONS - 1 ? QUESTIONS - 1 : QUESTIONS;
}

static void nothing(struct vow__check *c, struct vow__jot *body)
{
    (void)c;
    vow__jot_text(body, "{}");
}

static void short_lease(struct vow__check *c, struct vow__jot *body)
{
    (void)c;
    vow__jot_text(body, "{\"TTL\":\"1\"}");
}

static void take_lease(struct vow__check *c, int code, const json_t *root)
{
    if (code < 0) {
        take_refusal(c);
        return;
    }
    c->lease = (int64_t)vow__json_uint(root, "ID");
    c->lease_s = vow__json_uint(root, "TTL");
    if (c->lease == 0)
        (void)snprintf(c->refused, sizeof(c->refused),
                       "%s cannot be used: it gives no lease",
                       vow__etcd_where_of(c->etcd)->shown);
}

static void read_alarms(struct vow__check *c, struct vow__jot *body)
{
    (void)c;
    vow__jot_text(body, "{\"action\":\"GET\"}");
}

static void take_alarms(struct vow__check *c, int code, const json_t *root)
{
    size_t i;
    json_t *one;
    if (code < 0)
        return;
    c->alarms_seen = true;
    json_array_foreach(json_object_get(root, "alarms"), i, one)
    {
        const char *kind = json_string_value(json_object_get(one, "alarm"));
        c->no_space |= kind != NULL && strcmp(kind, "NOSPACE") == 0;
        c->corrupt |= kind != NULL && strcmp(kind, "CORRUPT") == 0;
    }
}

static void take_list(struct vow__check *c, int code, const json_t *root)
{
    c->list_seen = code == 0;
    if (code == 0)
        c->size = json_array_size(json_object_get(root, "members"));
}

static void that_lease(struct vow__check *c, struct vow__jot *body)
{
    vow__jot_print(body, "{\"ID\":\"%lld\"}", (long long)c->lease);
}

static void take_nothing(struct vow__check *c, int code, const json_t *root)
{
    (void)c;
    (void)code;
    (void)root;
}

/* A key of our own, which goes with the lease. */
static void write_key(struct vow__check *c, struct vow__jot *body)
{
    struct vow__txn t;
    struct vow__jot value;
    struct vow__key key = vow__key("doctor/", NULL, vow__etcd_inst(c->etcd));
    vow__txn_init(&t, &c->alloc, vow__etcd_where_of(c->etcd)->prefix);
    vow__jot_init(&value, &c->alloc);
    vow__jot_text(&value, "here\n");
    vow__txn_put(&t, VOW__THEN, &key, &value, c->lease);
    vow__txn_range(&t, VOW__THEN, &key, 0);
    vow__jot_fini(&value);
    vow__txn_body(&t, body);
    vow__txn_fini(&t);
}

static void take_right(struct vow__check *c, int code, const json_t *root)
{
    (void)root;
    c->writes = code == 0;
    if (code < 0)
        take_refusal(c);
}

static void take_refusal(struct vow__check *c)
{
    (void)snprintf(c->refused, sizeof(c->refused), "%s",
                   vow__etcd_explain(vow__etcd_store(c->etcd)));
    c->denied = strstr(c->refused, "permission denied") != NULL;
}

static void read_key(struct vow__check *c, struct vow__jot *body)
{
    struct vow__txn t;
    struct vow__key key = vow__key("doctor/", NULL, vow__etcd_inst(c->etcd));
    vow__txn_init(&t, &c->alloc, vow__etcd_where_of(c->etcd)->prefix);
    vow__txn_range(&t, VOW__THEN, &key, 0);
    vow__txn_body(&t, body);
    vow__txn_fini(&t);
}

static void take_time(struct vow__check *c, int code, const json_t *root)
{
    uint64_t us = (vow__clock_boot_ns() - c->sent_ns) / 1000;
    size_t i = c->rounds;
    (void)root;
    if (code < 0)
        return;
    for (c->rounds++; i > 0 && c->took_us[i - 1] > us; i--)
        c->took_us[i] = c->took_us[i - 1];
    c->took_us[i] = us;
}

static void end(struct vow__check *c, int code)
{
    struct vow_alloc alloc = c->alloc;
    c->done(code, c->findings, code < 0 ? 0 : c->n, c->user);
    vow__mem_free(&alloc, c, sizeof(*c));
}
