/* SPDX-License-Identifier: MIT */
/* etcd_auth.c - who we are: a token, for a user and a password.
 *
 * HOW   The first query that needs a token brings another, which asks for it;
 *       all wait meanwhile. Etcd forgets tokens, when a member starts again or
 *       after some minutes: a query that is refused for that brings the next.
 *       A password that is wrong is not tried again for a second: to check one
 *       costs the members much.
 *       A cluster that knows no users takes us as we are. When it learns to, it
 *       refuses the next query, and we ask for a token then.
 * INVARIANTS
 *   A1  who waits is sent, or ended from the loop's queue: never from here
 *   A2  a token is in one place, and cleared before that is freed
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_call.h"

#include <string.h>

enum { DENIED_MS = 1000, TOKEN_MAX = 8192 };

static bool ask_again(struct vow__query *q);
static void ask_for_token(struct vow__etcd_calls *c);
static void put_string(struct vow__jot *j, const char *text);
static void on_token(struct vow__query *q, int code, const json_t *root);
static int take_token(struct vow__etcd_calls *c, const json_t *root);
static void go_on(struct vow__etcd_calls *c, int code);
static void tell_wrong(struct vow__etcd_calls *c);

bool vow__auth_waits(struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    if (q == &c->query_token || c->where->password == NULL || c->open ||
        c->header.n > 0)
        return false;
    if (vow_loop_now_ns(c->loop) < c->denied_until_ns) {
        tell_wrong(c);
        vow__query_end_later(q, VOW_ESTORE);
        return true;
    }
    q->waits = true;
    vow__query_end_at(q, VOW_ESTORE, q->due_ns);
    if (!c->asking)
        ask_for_token(c);
    return true;
}

bool vow__auth_refused(struct vow__query *q, const struct vow__refusal *refusal)
{
    struct vow__etcd_calls *c = q->calls;
    if (q != &c->query_token)
        return refusal->kind == VOW__REFUSAL_TOKEN && ask_again(q);
    if (refusal->kind == VOW__REFUSAL_OPEN) {
        vow__etcd_trouble(c->etcd,
                          "%s lets everybody in: authentication is not "
                          "enabled, and the password is not used",
                          vow__query_member(q));
        c->open = true;
        vow__query_end(q, 0, NULL);
        return true;
    }
    if (refusal->kind != VOW__REFUSAL_WRONG)
        return false;
    tell_wrong(c);
    c->denied_until_ns = vow_loop_due_ns(c->loop, DENIED_MS);
    vow__query_end(q, VOW_ESTORE, NULL);
    return true;
}

/* Once. The token may be another already. */
static bool ask_again(struct vow__query *q)
{
    struct vow__etcd_calls *c = q->calls;
    if (c->where->password == NULL || q->renewed)
        return false;
    if (q->token == c->token) {
        vow__jot_fini(&c->header);
        c->open = false;
    }
    if (q->once)
        return false;
    q->renewed = true;
    q->tried = 0;
    if (!vow__auth_waits(q))
        vow__query_send(q);
    return true;
}

void vow__auth_fini(struct vow__etcd_calls *c)
{
    vow__jot_fini(&c->header); /* keeps A2 */
}

/* ---- asking -------------------------------------------------------------- */

static void ask_for_token(struct vow__etcd_calls *c)
{
    struct vow__jot body;
    vow__jot_init(&body, &c->alloc);
    vow__jot_text(&body, "{\"name\":");
    put_string(&body, c->where->user);
    vow__jot_text(&body, ",\"password\":");
    put_string(&body, c->where->password);
    vow__jot_text(&body, "}");
    c->asking = true;
    c->query_token = (struct vow__query){
        .end = on_token, .on_answer = vow__query_answer, .safe = true};
    vow__query_start(c, &c->query_token, "auth/authenticate", &body);
}

static void put_string(struct vow__jot *j, const char *text)
{
    vow__jot_text(j, "\"");
    for (; *text != 0; text++)
        if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ')
            vow__jot_print(j, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            vow__jot_bytes(j, text, 1);
    vow__jot_text(j, "\"");
}

static void on_token(struct vow__query *q, int code, const json_t *root)
{
    struct vow__etcd_calls *c = q->calls;
    c->asking = false;
    if (code == 0 && !c->open)
        code = take_token(c, root);
    if (code == 0)
        c->token++;
    go_on(c, code);
}

/* What is no visible ASCII would be another line of the header. */
static int take_token(struct vow__etcd_calls *c, const json_t *root)
{
    const char *token = json_string_value(json_object_get(root, "token"));
    size_t n = token == NULL ? 0 : strlen(token);
    bool good = n > 0 && n <= TOKEN_MAX;
    for (size_t i = 0; good && i < n; i++)
        good = token[i] > ' ' && token[i] <= '~';
    if (!good) {
        vow__etcd_trouble(c->etcd, "%s gave no token for %s",
                          vow__query_member(&c->query_token), c->where->user);
        return VOW_ESTORE;
    }
    vow__jot_text(&c->header, "Authorization: ");
    vow__jot_bytes(&c->header, token, n + 1);
    if (!c->header.bad)
        return 0;
    vow__jot_fini(&c->header);
    return VOW_ENOMEM;
}

/* Keeps A1. Who waits behind one that was ended by vow__calls_leave() is of the
 * next wave, or will be ended by it too. */
static void go_on(struct vow__etcd_calls *c, int code)
{
    bool left = code == VOW_ECLOSED && !c->closing;
    bool some = false;
    for (vow_link *l = c->queries; l != NULL; l = l->next) {
        struct vow__query *q = VOW__OUTER(l, struct vow__query, link);
        if (q->waits && code == 0)
            vow__query_send(q);
        else if (q->waits && !left)
            vow__query_end_later(q, code);
        some |= q->waits;
    }
    if (some)
        ask_for_token(c);
}

static void tell_wrong(struct vow__etcd_calls *c)
{
    vow__etcd_trouble(c->etcd,
                      "%s does not let %s in: the user or the password is "
                      "wrong",
                      c->where->shown, c->where->user);
}
