/* SPDX-License-Identifier: MIT */
/* etcd_examine.c - looking at etcd as a doctor would: what is asked.
 *
 * HOW   On a fiber. First all members of the address how they are, at once;
 *       without asking for a leader, so that a member without a leader tells.
 *       Then one question after the other: how short a lease can be, what alarms
 *       there are, which members belong to the cluster, whether we may write and
 *       read where we want to, and how long an answer takes. What the user may
 *       not ask is a finding, too.
 * INVARIANTS
 *   E1  nothing is written without a lease: all of it goes with that
 *   E2  after a question without an answer there is no other, so that it takes
 *       the time of two at most
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_examine.h"

#include "base/clock.h"
#include "store/etcd/etcd_call.h"
#include "vow/fiber.h"

#include <stdio.h>
#include <string.h>

enum { ANSWER_MAX = 64 * 1024 };

/* ---- each member --------------------------------------------------------- */

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

static void on_member(const struct vow__http_answer *answer, void *user)
{
    struct vow__check_member *m = user;
    struct vow__check *c = m->check;
    m->request = NULL;
    if (answer->code == VOW_ECLOSED || answer->code == VOW_ENOMEM)
        c->code = answer->code;
    else
        take_status(m, answer);
    if (--c->pending == 0) {
        vow_deferred *told = c->told;
        c->told = NULL;
        (void)vow_resolve_drop(told, vow_nothing());
    }
}

static void member_ask(struct vow__check *c, size_t i)
{
    const struct vow__etcd_where *w = vow__etcd_where_of(c->etcd);
    struct vow__etcd_calls *calls = vow__etcd_calls(c->etcd);
    struct vow__check_member *m = &c->members[i];
    const char *header[3] = {"Content-Type: application/json"};
    if (calls->header.n > 0)
        header[1] = calls->header.bytes;
    const struct vow__http_ask status = {.server = &w->hosts[i],
                                         .path = "/v3/maintenance/status",
                                         .header = header,
                                         .body = "{}",
                                         .body_size = 2,
                                         .timeout_ms = w->timeout_ms,
                                         .answer_max = ANSWER_MAX};
    m->check = c;
    m->request = vow__http_post(calls->http, &status, on_member, m);
    if (m->request == NULL)
        c->code = VOW_ENOMEM;
    else
        c->pending++;
}

/* The first that answers is asked from now on: what is asked has half of the
 * timeout. */
static int members_judge(const struct vow__check *c)
{
    size_t n = vow__etcd_where_of(c->etcd)->n_hosts;
    size_t *good = &vow__etcd_calls(c->etcd)->good;
    for (size_t i = 0; i < n; i++, *good = (*good + 1) % n)
        if (c->members[*good].answers)
            return 0;
    vow__etcd_trouble(c->etcd, "%s", c->members[0].why);
    return VOW_ESTORE;
}

static int members_ask(struct vow__check *c)
{
    size_t n = vow__etcd_where_of(c->etcd)->n_hosts;
    vow_future *f = vow_promise(vow__etcd_loop(c->etcd), &c->told);
    c->code = vow_deferred_pending(c->told) ? 0 : VOW_ENOMEM;
    for (size_t i = 0; c->code == 0 && i < n; i++)
        member_ask(c, i);
    if (c->pending > 0)
        (void)vow_await(f);
    else
        c->told = vow_deferred_unref(c->told);
    (void)vow_error_of(f);
    vow_future_unref(f);
    if (c->told != NULL) { /* the loop closes */
        c->told = vow_deferred_unref(c->told);
        for (size_t i = 0; i < n; i++)
            vow__http_cancel(c->members[i].request);
        return VOW_ECLOSED;
    }
    return c->code < 0 ? c->code : members_judge(c);
}

/* ---- the cluster --------------------------------------------------------- */

static void take_refusal(struct vow__check *c)
{
    (void)snprintf(c->refused, sizeof(c->refused), "%s",
                   vow__etcd_explain(vow__etcd_store(c->etcd)));
    c->denied = strstr(c->refused, "permission denied") != NULL;
}

/* False: it was not asked. Keeps E2. The body is taken over. */
static bool question_ask(struct vow__check *c, const char *path, bool safe,
                         struct vow__buf *body, int *ret_code,
                         json_t **ret_root)
{
    vow_loop *loop = vow__etcd_loop(c->etcd);
    uint64_t from_ns = vow_loop_now_ns(loop);
    *ret_root = NULL;
    if (c->silent || c->code < 0) {
        vow__buf_fini(body);
        return false;
    }
    int rc = vow__etcd_await(c->etcd, path, body, safe, 0, ret_root);
    uint64_t took_ms = (vow_loop_now_ns(loop) - from_ns) / 1000000;
    if (rc == VOW_ENOMEM || rc == VOW_ECLOSED)
        c->code = rc;
    else if (vow__etcd_closing(c->etcd))
        c->code = VOW_ECLOSED;
    c->silent =
        rc < 0 && took_ms >= vow__etcd_where_of(c->etcd)->timeout_ms / 2;
    if (c->silent && c->refused[0] == 0)
        take_refusal(c);
    *ret_code = rc;
    return true;
}

static bool question_text(struct vow__check *c, const char *path, bool safe,
                          const char *text, int *ret_code, json_t **ret_root)
{
    struct vow__buf body;
    vow__etcd_buf_init(&body, &c->alloc);
    vow__buf_text(&body, text);
    return question_ask(c, path, safe, &body, ret_code, ret_root);
}

static void lease_ask(struct vow__check *c)
{
    int code;
    json_t *root;
    if (!question_text(c, "lease/grant", false, "{\"TTL\":\"1\"}", &code,
                       &root))
        return;
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
    json_decref(root);
}

static void lease_drop(struct vow__check *c)
{
    int code;
    json_t *root;
    struct vow__buf body;
    vow__etcd_buf_init(&body, &c->alloc);
    vow__buf_print(&body, "{\"ID\":\"%lld\"}", (long long)c->lease);
    if (question_ask(c, "lease/revoke", false, &body, &code, &root))
        json_decref(root);
}

static void alarms_ask(struct vow__check *c)
{
    int code;
    size_t i;
    json_t *root, *alarm;
    if (!question_text(c, "maintenance/alarm", true, "{\"action\":\"GET\"}",
                       &code, &root))
        return;
    c->alarms_seen = code == 0;
    json_array_foreach(json_object_get(root, "alarms"), i, alarm)
    {
        const char *kind = json_string_value(json_object_get(alarm, "alarm"));
        c->no_space |= kind != NULL && strcmp(kind, "NOSPACE") == 0;
        c->corrupt |= kind != NULL && strcmp(kind, "CORRUPT") == 0;
    }
    json_decref(root);
}

static void list_ask(struct vow__check *c)
{
    int code;
    json_t *root;
    if (!question_text(c, "cluster/member/list", true, "{}", &code, &root))
        return;
    c->list_seen = code == 0;
    if (code == 0)
        c->size = json_array_size(json_object_get(root, "members"));
    json_decref(root);
}

/* A key of our own, which goes with the lease. */
static bool key_ask(struct vow__check *c, bool writes, int *ret_code)
{
    struct vow__txn t;
    struct vow__buf value, body;
    json_t *root;
    struct vow__key key = vow__key("doctor/", NULL, vow__etcd_inst(c->etcd));
    vow__txn_init(&t, &c->alloc, vow__etcd_where_of(c->etcd)->prefix);
    vow__etcd_buf_init(&value, &c->alloc);
    vow__buf_text(&value, "here\n");
    if (writes)
        vow__txn_put(&t, VOW__THEN, &key, &value, c->lease);
    vow__txn_range(&t, VOW__THEN, &key, 0);
    vow__buf_fini(&value);
    vow__txn_body(&t, &body);
    vow__txn_fini(&t);
    bool asked = question_ask(c, "kv/txn", false, &body, ret_code, &root);
    json_decref(root);
    return asked;
}

static void right_ask(struct vow__check *c)
{
    int code;
    if (!key_ask(c, true, &code))
        return;
    c->writes = code == 0;
    if (code < 0)
        take_refusal(c);
}

static void time_ask(struct vow__check *c)
{
    int code;
    uint64_t sent_ns = vow__clock_boot_ns();
    if (!key_ask(c, false, &code) || code < 0)
        return;
    uint64_t us = (vow__clock_boot_ns() - sent_ns) / 1000;
    size_t i = c->rounds;
    for (c->rounds++; i > 0 && c->took_us[i - 1] > us; i--)
        c->took_us[i] = c->took_us[i - 1];
    c->took_us[i] = us;
}

/* Without a lease nothing is written, and without that nothing read: keeps E1.
 */
static int cluster_ask(struct vow__check *c)
{
    lease_ask(c);
    alarms_ask(c);
    list_ask(c);
    if (c->lease != 0) {
        right_ask(c);
        for (int i = 0; c->writes && i < VOW__CHECK_ROUNDS; i++)
            time_ask(c);
        lease_drop(c);
    }
    if (c->code < 0)
        return c->code;
    c->open = vow__etcd_calls(c->etcd)->open;
    int rc = vow__check_judge(c);
    if (rc < 0)
        vow__etcd_trouble(c->etcd, "%s", c->refused);
    return rc;
}

static void check_end(struct vow__check *c, int code)
{
    struct vow_alloc alloc = c->alloc;
    c->done(code, c->findings, code < 0 ? 0 : c->n, c->user);
    vow__mem_free(&alloc, c, sizeof(*c));
}

static vow_next check_main(void *arg)
{
    struct vow__check *c = arg;
    int rc = members_ask(c);
    check_end(c, rc < 0 ? rc : cluster_ask(c));
    return vow_ok(vow_nothing());
}

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
    VOW_AUTO(vow_future) fiber = vow_async(vow__etcd_loop(e), check_main, c);
    if (vow_state_of(fiber) == VOW_REJECTED)
        check_end(c, vow_error_code(vow_error_of(fiber)));
}
