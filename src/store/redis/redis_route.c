/* SPDX-License-Identifier: MIT */
/* redis_route.c - finds the server of a call, and handles errors of servers.
 *
 * WHY   The end of a step must tell the cases apart: the step happened, did not
 *       happen, or nobody knows. A server that is replaced, loads data or moves
 *       keys should cost a moment, and no step more than the timeout.
 * HOW   A call goes to the node if the node is ready. Else the call waits, in
 *       one list for all calls, at most timeout_ms, and not at all for a node
 *       that is down. The table `errors` says what an error of the server
 *       means: leave the server, ask again in a moment, go to another node, or
 *       fail. A call that lost the connection and may be repeated waits again,
 *       until the same deadline.
 * INVARIANTS
 *   R1  a waiting call was not sent, and ends with VOW_ESTORE, never
 *       VOW_EUNSURE; a call that is repeated ends with VOW_EUNSURE, never
 *       VOW_ESTORE
 *   R2  `late` is armed while a call waits, not later than the next look at
 *       the call
 *   R3  calls to a node that becomes ready go in the order in which they came
 * LIMITS  Calls that wait, or are unanswered at one node: two results of the
 *       largest size and 64 MiB; beyond VOW_EAGAIN.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_route.h"

#include <stdio.h>
#include <string.h>

enum {
    BUSY_BYTES = 64 * 1024 * 1024,
    REPLY_ITEMS = 1024 * 1024,
    REPLY_BYTES = 1024 * 1024 /* beside a result */
};

static struct vow__node *node_of(struct vow__call *c, bool *ret_none);
static void launch(struct vow__call *c, struct vow__node *n);
static void wait_here(struct vow__call *c, uint64_t due_ns);
static void on_answer(int code, const struct vow__resp *reply, void *user);
static bool may_repeat(const struct vow__call *c);
static void on_error(struct vow__call *c, const struct vow__resp *error);
static void on_late(void *user);
static void on_soon(void *user);
static uint64_t look_at(struct vow__call *c, uint64_t now_ns);
static void arm(struct vow__redis_route *route, uint64_t due_ns);
static void close_waiting(vow_link **calls);

/* ---- opening and closing ------------------------------------------------- */

int vow__route_open(struct vow__redis *r, struct vow__redis_route **ret_route)
{
    const struct vow_alloc *alloc = vow__redis_alloc(r);
    const struct vow__redis_where *w = vow__redis_where_of(r);
    struct vow__redis_route *route = vow__mem_zero(alloc, sizeof(*route));
    if (route == NULL)
        return VOW_ENOMEM;
    char why[VOW__REDIS_WHY] = "";
    int rc = 0;
    route->r = r;
    route->loop = vow__redis_loop(r);
    route->alloc = *alloc;
    route->where = w;
    route->scripts = vow__redis_scripts;
    route->bytes_max = 2 * w->value_max + BUSY_BYTES;
    vow__node_init(&route->main, route);
    route->main.is_main = true;
    if (w->tls)
        rc = vow__tls_new(route->loop,
                          &(const struct vow__tls_opts){
                              .ca_file = w->ca_file,
                              .cert_file = w->cert_file,
                              .key_file = w->key_file,
                          },
                          &route->tls, why, sizeof(why));
    if (rc == 0 && w->master != NULL)
        rc = vow__sentinel_open(route, &route->sentinel);
    if (rc < 0) {
        vow__redis_trouble(r, "%s", why);
        vow__route_free(route);
        return rc;
    }
    *ret_route = route;
    return 0;
}

void vow__route_start(struct vow__redis_route *route)
{
    vow__node_want(&route->main);
}

/* What was sent may still be answered, but nobody hears of it. */
void vow__route_leave(struct vow__redis_route *route)
{
    vow_link *first;
    route->leaving = true;
    (void)vow_call_stop(&route->late);
    close_waiting(&route->waiting);
    route->waiting_bytes = 0;
    for (first = route->sent; first != NULL; first = first->next)
        vow__call_orphan(VOW__OUTER(first, struct vow__call, link));
}

void vow__route_close(struct vow__redis_route *route)
{
    route->closed = true;
    (void)vow_call_stop(&route->late);
    (void)vow_call_stop(&route->soon);
    if (route->sentinel != NULL)
        vow__sentinel_close(route->sentinel);
    if (route->cluster != NULL)
        vow__cluster_close(route->cluster);
    vow__node_close(&route->main, VOW_ECLOSED);
    close_waiting(&route->waiting);
}

void vow__route_free(struct vow__redis_route *route)
{
    struct vow_alloc alloc = route->alloc;
    if (route->sentinel != NULL)
        vow__sentinel_free(route->sentinel);
    if (route->cluster != NULL)
        vow__cluster_free(route->cluster);
    vow__node_fini(&route->main);
    if (route->tls != NULL)
        (void)vow__tls_unref(route->tls);
    vow__mem_free(&alloc, route, sizeof(*route));
}

void vow__route_to(const struct vow__redis_route *route, const char *host,
                   uint16_t port, struct vow__link_opts *ret_opts)
{
    const struct vow__redis_where *w = route->where;
    *ret_opts = (struct vow__link_opts){
        .scripts = route->scripts,
        .to = {.host = host,
               .port = port,
               .path = host == NULL ? w->path : NULL,
               .tls = route->tls,
               .server_name = w->server_name,
               .connect_ms = w->timeout_ms,
               .unsent_max = route->bytes_max + w->value_max + BUSY_BYTES},
        .limits = {.bytes = w->value_max + REPLY_BYTES,
                   .items = REPLY_ITEMS,
                   .push = w->inline_max + REPLY_BYTES},
        .user = w->user,
        .password = w->password,
        .db = w->db,
        .prefix = w->prefix,
        .timeout_ms = w->timeout_ms,
        .ask_role_ms = w->timeout_ms > 1000 ? w->timeout_ms : 1000,
    };
}

bool vow__redis_one_slot(const struct vow__redis *r)
{
    const struct vow__redis_route *route =
        vow__redis_route((struct vow__redis *)r);
    return route->known && route->cluster == NULL;
}

/* ---- going --------------------------------------------------------------- */

void vow__route_go(struct vow__call *c)
{
    struct vow__redis_route *route = c->route;
    bool none = false;
    if (!vow__redis_is_ours(route->r)) {
        vow__call_end(c, VOW_ESTORE, NULL);
        return;
    }
    if (route->closed || (route->leaving && (c->kind != VOW__CALL_SCRIPT ||
                                             c->script != VOW__LUA_RELEASE))) {
        vow__call_end(c, VOW_ECLOSED, NULL);
        return;
    }
    struct vow__node *n = node_of(c, &none);
    if (none) {
        vow__call_fail(c, VOW_ESTORE, "the cluster has no such server");
        return;
    }
    if (n == NULL) {
        wait_here(c, vow_loop_due_ns(route->loop, VOW__AGAIN_MS));
        return;
    }
    if (n->state == VOW__NODE_READY) {
        launch(c, n);
        return;
    }
    vow__node_want(n);
    if (vow__node_is_down(n))
        vow__call_fail(c, VOW_ESTORE, "%s", n->why);
    else
        wait_here(c, n->failed ? n->patient_ns : UINT64_MAX);
}

/* NULL: nobody has it at the moment. A node that has not told yet what it is,
 * or a map that was not seen, is waited for at main. */
static struct vow__node *node_of(struct vow__call *c, bool *ret_none)
{
    struct vow__redis_route *route = c->route;
    struct vow__cluster *cluster = route->cluster;
    if (cluster == NULL)
        return &route->main;
    if (c->node != NULL && c->asking)
        return c->node;
    if (!vow__cluster_is_known(cluster)) {
        vow__cluster_refresh(cluster);
        return route->main.state == VOW__NODE_READY ? NULL : &route->main;
    }
    if (c->kind == VOW__CALL_EACH)
        return &route->main;
    struct vow__node *n = c->kind == VOW__CALL_PLAIN
                              ? vow__cluster_at(cluster, c->number)
                              : vow__cluster_of(cluster, c->slot);
    *ret_none = c->kind == VOW__CALL_PLAIN && (n == NULL || n->gone);
    if (n == NULL)
        vow__cluster_refresh(cluster);
    return n;
}

static void launch(struct vow__call *c, struct vow__node *n)
{
    if (c->kind == VOW__CALL_EACH) {
        vow__call_end(c, 0, NULL);
        return;
    }
    if (vow__link_busy(n->link) > c->route->bytes_max) {
        vow__call_fail(c, VOW_EAGAIN, "%s: too much waits for its answers",
                       n->name);
        return;
    }
    c->node = n;
    vow__list_push(&c->route->sent, &c->link);
    if (c->kind == VOW__CALL_PLAIN) {
        vow__link_send(n->link, &c->body, on_answer, c);
        return;
    }
    if (c->asking)
        vow__link_asking(n->link);
    c->asking = false;
    if (c->route->cluster == NULL)
        vow__call_alone(c);
    vow__link_eval(n->link, (enum vow__script)c->script, &c->body, c->words,
                   on_answer, c);
}

/* ---- waiting ------------------------------------------------------------- */

void vow__route_pause(struct vow__call *c, uint64_t ms)
{
    c->not_before_ns = vow_loop_due_ns(c->route->loop, ms);
    wait_here(c, c->not_before_ns);
}

/* It is looked at then, at the latest. */
static void wait_here(struct vow__call *c, uint64_t due_ns)
{
    struct vow__redis_route *route = c->route;
    if (route->closed || route->leaving) {
        vow__call_end(c, VOW_ECLOSED, NULL);
        return;
    }
    if (route->waiting_bytes + c->body.n > route->bytes_max) {
        vow__call_fail(c, VOW_EAGAIN, "%s: too much waits for it",
                       route->where->shown);
        return;
    }
    route->waiting_bytes += c->body.n;
    vow__list_push(&route->waiting, &c->link);
    if (c->deadline_ns < due_ns)
        due_ns = c->deadline_ns;
    if (!vow_call_pending(&route->late) || due_ns < route->late_ns)
        arm(route, due_ns); /* keeps R2 */
}

static void arm(struct vow__redis_route *route, uint64_t due_ns)
{
    route->late_ns = due_ns;
    vow_call_at(&route->late, route->loop, due_ns, on_late, route);
}

static void on_late(void *user)
{
    vow__route_review(user);
}

void vow__route_review_soon(struct vow__redis_route *route)
{
    if (!route->closed)
        vow_call_soon(&route->soon, route->loop, on_soon, route);
}

static void on_soon(void *user)
{
    vow__route_review(user);
}

/* Those that go on waiting stay before those that come meanwhile (R3). */
void vow__route_review(struct vow__redis_route *route)
{
    uint64_t now_ns = vow_loop_now_ns(route->loop);
    vow_link *all = route->waiting;
    vow_link *kept = NULL;
    vow_link *first;
    route->waiting = NULL;
    route->waiting_bytes = 0;
    size_t kept_bytes = 0;
    uint64_t due_ns = UINT64_MAX;
    while (!route->closed && (first = vow__list_take(&all)) != NULL) {
        struct vow__call *c = VOW__OUTER(first, struct vow__call, link);
        size_t bytes = c->body.n;
        uint64_t look_ns = look_at(c, now_ns);
        if (look_ns == 0)
            continue;
        vow__list_push(&kept, first);
        kept_bytes += bytes;
        due_ns = look_ns < due_ns ? look_ns : due_ns;
    }
    vow__list_splice(&kept, &all);
    if (route->closed) {
        close_waiting(&kept);
        return;
    }
    vow__list_splice(&kept, &route->waiting);
    route->waiting = kept;
    route->waiting_bytes += kept_bytes;
    if (kept == NULL)
        (void)vow_call_stop(&route->late);
    else if (due_ns != UINT64_MAX &&
             (!vow_call_pending(&route->late) || due_ns < route->late_ns ||
              route->late_ns <= now_ns))
        arm(route, due_ns);
}

/* 0: it does not wait any more. Else when to look at it again. */
static uint64_t look_at(struct vow__call *c, uint64_t now_ns)
{
    bool none = false;
    if (c->not_before_ns > now_ns && c->deadline_ns > now_ns)
        return c->not_before_ns < c->deadline_ns ? c->not_before_ns
                                                 : c->deadline_ns;
    struct vow__node *n = node_of(c, &none);
    if (none) {
        vow__call_fail(c, VOW_ESTORE, "the cluster has no such server");
        return 0;
    }
    if (n != NULL && n->state == VOW__NODE_READY) {
        launch(c, n);
        return 0;
    }
    if (n != NULL)
        vow__node_want(n);
    if (c->deadline_ns <= now_ns || (n != NULL && vow__node_is_down(n))) {
        if (n == NULL)
            vow__call_fail(c, VOW_ESTORE, "%s: nobody in the cluster has it",
                           c->route->where->shown);
        else if (n->why[0] == 0)
            vow__call_fail(c, VOW_ESTORE, "%s could not be reached for %llu ms",
                           n->name,
                           (unsigned long long)c->route->where->timeout_ms);
        else
            vow__call_fail(c, VOW_ESTORE, "%s", n->why);
        return 0;
    }
    uint64_t due_ns = c->deadline_ns;
    if (n == NULL)
        due_ns = vow_loop_due_ns(c->route->loop, VOW__AGAIN_MS);
    else if (n->failed)
        due_ns = n->patient_ns;
    return due_ns < c->deadline_ns ? due_ns : c->deadline_ns;
}

static void close_waiting(vow_link **calls)
{
    vow_link *first;
    while ((first = vow__list_take(calls)) != NULL)
        vow__call_end(VOW__OUTER(first, struct vow__call, link), VOW_ECLOSED,
                      NULL);
}

void vow__route_ready(struct vow__redis_route *route, struct vow__node *n)
{
    if (n->is_main) {
        route->known = true;
        if (n->server.cluster && route->cluster == NULL &&
            vow__cluster_open(route, &route->cluster) < 0) {
            route->known = false;
            vow__node_drop(n, "out of memory");
            return;
        }
        if (route->cluster != NULL)
            vow__cluster_refresh(route->cluster);
    }
    vow__route_review(route);
    if (n->is_main && !route->closed)
        vow__redis_listening(route->r);
}

/* ---- answers ------------------------------------------------------------- */

static void on_answer(int code, const struct vow__resp *reply, void *user)
{
    struct vow__call *c = user;
    struct vow__node *n = c->node;
    vow__list_remove(&c->route->sent, &c->link);
    if (c->orphan)
        vow__call_end(c, VOW_ECLOSED, NULL);
    else if (code == 0 && reply->kind == VOW__RESP_ERROR)
        on_error(c, reply);
    else if (code == VOW_EUNSURE && may_repeat(c)) {
        c->unsure = true;
        wait_here(c, UINT64_MAX); /* the link is just ending */
    } else if (code == VOW_EUNSURE)
        vow__call_fail(c, code, "%s",
                       n->link != NULL ? vow__link_why(n->link) : n->why);
    else if (code == VOW_ESTORE)
        wait_here(c, UINT64_MAX); /* the link is just ending */
    else
        vow__call_end(c, code, reply);
    if (n->gone)
        vow__node_sleep(n);
}

/* What only reads, and what has its effect once however often it comes and is
 * not repeated by its caller. */
static bool may_repeat(const struct vow__call *c)
{
    static const bool repeatable[VOW__LUA_N] = {
        [VOW__LUA_CLAIM] = true,  [VOW__LUA_PEEK] = true,
        [VOW__LUA_READ] = true,   [VOW__LUA_POOL] = true,
        [VOW__LUA_CANCEL] = true, [VOW__LUA_LIMIT] = true};
    return (c->kind != VOW__CALL_SCRIPT || repeatable[c->script]) &&
           vow_loop_now_ns(c->route->loop) < c->deadline_ns;
}

enum action { TELL, LEAVE, AGAIN };
struct error {
    const char *begins;
    enum action action;
    int code;
    const char *text; /* behind the server's name */
};
static const struct error errors[] = {
    {"READONLY", LEAVE, VOW_ESTORE, "is a replica now, which takes no writes"},
    {"LOADING", LEAVE, VOW_ESTORE, "is loading its data"},
    {"MASTERDOWN", LEAVE, VOW_ESTORE, "is a replica that lost its master"},
    {"NOAUTH", LEAVE, VOW_ESTORE, "wants a password"},
    {"CLUSTERDOWN", AGAIN, VOW_ESTORE,
     "belongs to a cluster that is down: some of its slots have no server"},
    {"TRYAGAIN", AGAIN, VOW_ESTORE, "is moving these keys to another server"},
    {"BUSY", AGAIN, VOW_EAGAIN, "has been busy with somebody's script"},
    {"OOM", TELL, VOW_ESTORE,
     "is full: its maxmemory is reached; raise it, or let keys go"},
    {"NOREPLICAS", TELL, VOW_ESTORE,
     "takes no writes: it has fewer replicas than min-replicas-to-write"},
    {"MISCONF", TELL, VOW_ESTORE,
     "takes no writes: it cannot save its data to disk; its log tells more"},
};

/* Servers before 7.0 put what a command in a script said behind their own
 * words. */
static struct vow__resp inner(const struct vow__resp *error)
{
    struct vow__resp e = *error;
    if (!vow__error_is(error, "ERR Error running script"))
        return e;
    const char *at = memmem(e.text, e.n, ": -", 3);
    if (at != NULL) {
        e.n -= (size_t)(at + 3 - e.text);
        e.text = at + 3;
    }
    return e;
}

static void on_error(struct vow__call *c, const struct vow__resp *error)
{
    struct vow__redis_route *route = c->route;
    struct vow__node *n = c->node;
    struct vow__resp e = inner(error);
    char words[VOW__REDIS_WORDS];
    char why[VOW__REDIS_WHY];
    const struct error *known = NULL;
    bool plain = c->kind == VOW__CALL_PLAIN; /* who looks wants to see it */
    if (route->cluster != NULL && !plain &&
        (vow__error_is(&e, "MOVED ") || vow__error_is(&e, "ASK "))) {
        vow__cluster_redirect(route->cluster, c, &e);
        return;
    }
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (vow__error_is(&e, errors[i].begins))
            known = &errors[i];
    if (plain && (known == NULL || known->action == TELL)) {
        vow__call_end(c, 0, error);
        return;
    }
    vow__error_words(&e, words, sizeof(words));
    if (known != NULL)
        (void)snprintf(why, sizeof(why), "%s %s", n->name, known->text);
    else if (vow__error_is(&e, "NOPERM") ||
             vow__error_is(&e, "ERR The user executing the script"))
        (void)snprintf(why, sizeof(why),
                       "%s: the user needs more rights; vow-store(7) lists "
                       "them: %s",
                       n->name, words);
    else
        (void)snprintf(why, sizeof(why), "%s: %s", n->name, words);
    if (known != NULL && known->action == LEAVE)
        vow__node_drop(n, why);
    if (known != NULL && known->action != TELL &&
        vow_loop_due_ns(route->loop, VOW__AGAIN_MS) < c->deadline_ns) {
        if (route->cluster != NULL && known->action == AGAIN)
            vow__cluster_refresh(route->cluster);
        c->hops = 0;
        vow__route_pause(c, VOW__AGAIN_MS);
        return;
    }
    vow__call_fail(c, known != NULL ? known->code : VOW_ESTORE, "%s", why);
}
