/* SPDX-License-Identifier: MIT */
/* etcd_auth.c - the token of a user with a password.
 *
 * HOW   The first request that needs a token asks for one on its own fiber; all
 *       others wait meanwhile. When that fails, the next of them asks, if there
 *       is time. Etcd forgets tokens, when a member starts again or after some
 *       minutes: a request that is refused for that asks for the next token,
 *       once. A password that is wrong is not tried again for a second: to check
 *       a password costs the members much.
 *       A cluster without users takes us as we are. When the cluster gets users,
 *       it refuses the next request, and that request asks for a token.
 * INVARIANTS
 *   A1  while `asking`, one fiber asks, and wakes all that wait in the end
 *   A2  a token is in one place, and cleared before that is freed
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_call.h"

#include <string.h>

enum { DENIED_MS = 1000, TOKEN_MAX = 8192 };

static void denial_tell(struct vow__etcd_calls *c)
{
    vow__etcd_trouble(c->etcd,
                      "%s does not let %s in: the user or the password is "
                      "wrong",
                      c->where->shown, c->where->user);
}

static void string_put(struct vow__buf *body, const char *text)
{
    vow__buf_text(body, "\"");
    for (; *text != 0; text++)
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
            vow__buf_print(body, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            vow__buf_add(body, text, 1);
    vow__buf_text(body, "\"");
}

/* What is no visible ASCII would be another line of the header. */
static int token_take(struct vow__etcd_calls *c, const struct vow__query *q,
                      const json_t *root)
{
    const char *token = json_string_value(json_object_get(root, "token"));
    size_t n = token == NULL ? 0 : strlen(token);
    bool good = n > 0 && n <= TOKEN_MAX;
    for (size_t i = 0; good && i < n; i++)
        good = token[i] > ' ' && token[i] <= '~';
    if (!good) {
        vow__etcd_trouble(c->etcd, "%s gave no token for %s",
                          vow__query_member(q), c->where->user);
        return VOW_ESTORE;
    }
    vow__buf_text(&c->header, "Authorization: ");
    vow__buf_add(&c->header, token, n + 1);
    c->token++;
    if (c->header.code == 0)
        return 0;
    vow__buf_fini(&c->header);
    return VOW_ENOMEM;
}

/* A request within a request: both end by the same deadline. */
static int token_ask(struct vow__query *for_q)
{
    struct vow__etcd_calls *c = for_q->calls;
    struct vow__buf body;
    json_t *root = NULL;
    struct vow__query q = {.path = "auth/authenticate",
                           .body = &body,
                           .safe = true,
                           .anonymous = true,
                           .due_ns = for_q->due_ns};
    vow__etcd_buf_init(&body, &c->alloc);
    vow__buf_text(&body, "{\"name\":");
    string_put(&body, c->where->user);
    vow__buf_text(&body, ",\"password\":");
    string_put(&body, c->where->password);
    vow__buf_text(&body, "}");
    c->asking = true;
    int rc = vow__query_run(c, &q, &root);
    c->asking = false;
    vow__buf_fini(&body);
    if (rc == 0 && !c->open)
        rc = token_take(c, &q, root);
    json_decref(root);
    for (vow_link *l = c->queries; l != NULL; l = l->next) { /* keeps A1 */
        struct vow__query *waits = VOW__OUTER(l, struct vow__query, link);
        if (waits->waits)
            vow__query_wake(waits);
    }
    return for_q->end != 0 ? for_q->end : rc;
}

int vow__auth_wait(struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    int rc = 0;
    while (rc == 0 && !q->anonymous && c->where->password != NULL && !c->open &&
           c->header.n == 0) {
        if (vow_loop_now_ns(c->loop) < c->denied_until_ns) {
            denial_tell(c);
            return VOW_ESTORE;
        }
        if (vow_loop_now_ns(c->loop) >= q->due_ns)
            return VOW_ESTORE;
        if (!c->asking) {
            rc = token_ask(q);
        } else {
            q->waits = true;
            rc = vow__query_wait(q, q->due_ns);
            q->waits = false;
        }
    }
    return rc;
}

/* Once. The token may be another already. */
static bool token_renew(struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    if (c->where->password == NULL || q->renewed)
        return false;
    if (q->token == c->token) {
        vow__buf_fini(&c->header);
        c->open = false;
    }
    if (q->once)
        return false;
    q->renewed = true;
    q->tried = 0;
    return true;
}

bool vow__auth_refused(struct vow__query *q, const struct vow__refusal *refusal,
                       int *ret_code)
{
    struct vow__etcd_calls *c = q->calls;
    if (!q->anonymous) {
        bool again = refusal->kind == VOW__REFUSAL_TOKEN && token_renew(q);
        *ret_code = again ? VOW__QUERY_AGAIN : *ret_code;
        return again;
    }
    if (refusal->kind == VOW__REFUSAL_OPEN) {
        vow__etcd_trouble(c->etcd,
                          "%s lets everybody in: authentication is not "
                          "enabled, and the password is not used",
                          vow__query_member(q));
        c->open = true;
        *ret_code = 0;
        return true;
    }
    if (refusal->kind != VOW__REFUSAL_WRONG)
        return false;
    denial_tell(c);
    c->denied_until_ns = vow_loop_due_ns(c->loop, DENIED_MS);
    *ret_code = VOW_ESTORE;
    return true;
}
