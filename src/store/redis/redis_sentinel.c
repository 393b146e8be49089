/* SPDX-License-Identifier: MIT */
/* redis_sentinel.c - asks the Sentinels for the address of the master.
 *
 * WHY   A master dies and another server takes over. Sentinels agree on the new
 *       master; the address of a store names the Sentinels.
 * HOW   One Sentinel at a time, over a connection that stays and listens for
 *       "+switch-master", so that the old master is left at once. Each try to
 *       connect asks again; the named server is believed only when the server
 *       itself says by ROLE: master. The next Sentinel is asked if a Sentinel
 *       is down, does not know the master, or named a server that could not be
 *       used. When all Sentinels were asked in vain, the node is told.
 * INVARIANTS
 *   T1  while seeking, there is a connection, or a try is pending
 * THREADS  loop thread only.
 */
#include "base/clock.h"
#include "store/redis/redis_route.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOST_MAX = 256, RETRY_MS = 1000 };

struct vow__sentinel {
    struct vow__redis_route *route;
    struct vow__link *link; /* NULL: none */
    bool ready;
    bool seeks;
    bool asked;    /* an answer is on its way */
    size_t at;     /* which one, of the hosts */
    size_t left;   /* to be asked before it is given up */
    bool for_good; /* all so far */
    vow_call again;
    char name[280];
    char why[VOW__REDIS_WHY];
};

static void connect_next(struct vow__sentinel *s);
static void ask(struct vow__sentinel *s);
static void on_ready(const struct vow__greeting *g, void *user);
static void on_push(const struct vow__resp *push, void *user);
static void on_end(bool for_good, const char *why, void *user);
static void on_address(int code, const struct vow__resp *reply, void *user);
static void leave(struct vow__sentinel *s);
static void in_vain(struct vow__sentinel *s, bool for_good, const char *why);
static void on_again(void *user);
static bool read_switch(const struct vow__resp *text, const char *master,
                        char *host, unsigned *ret_port);
static bool copy_host(const struct vow__resp *v, char *host);

int vow__sentinel_open(struct vow__redis_route *route,
                       struct vow__sentinel **ret_sentinel)
{
    struct vow__sentinel *s = vow__mem_zero(&route->alloc, sizeof(*s));
    if (s == NULL)
        return VOW_ENOMEM;
    s->route = route;
    *ret_sentinel = s;
    return 0;
}

void vow__sentinel_close(struct vow__sentinel *s)
{
    s->seeks = false;
    leave(s);
    (void)vow_call_stop(&s->again);
}

void vow__sentinel_free(struct vow__sentinel *s)
{
    vow__mem_free(&s->route->alloc, s, sizeof(*s));
}

/* ---- seeking ------------------------------------------------------------- */

void vow__sentinel_seek(struct vow__sentinel *s, bool other)
{
    s->seeks = true;
    s->for_good = true;
    s->left = s->route->where->n_hosts;
    if (other && s->left > 1)
        leave(s);
    if (s->link == NULL)
        vow_call_soon(&s->again, s->route->loop, on_again, s);
    else if (s->ready)
        ask(s);
}

static void connect_next(struct vow__sentinel *s)
{
    struct vow__redis_route *route = s->route;
    const struct vow__redis_where *w = route->where;
    const struct vow__redis_host *host = &w->hosts[s->at++ % w->n_hosts];
    struct vow__link_opts o;
    vow__route_to(route, host->host, host->port, &o);
    o.user = w->sentinel_user;
    o.password = w->sentinel_password;
    o.bare = true;
    o.channel = "+switch-master";
    vow__link_name(&o.to, s->name, sizeof(s->name));
    int rc = vow__link_open(route->loop, &o,
                            &(const struct vow__link_events){
                                .on_ready = on_ready,
                                .on_push = on_push,
                                .on_end = on_end,
                                .user = s,
                            },
                            &s->link);
    if (rc < 0)
        in_vain(s, false, "out of memory");
}

static void on_again(void *user)
{
    struct vow__sentinel *s = user;
    if (s->link == NULL)
        connect_next(s);
}

static void on_ready(const struct vow__greeting *g, void *user)
{
    struct vow__sentinel *s = user;
    (void)g;
    s->ready = true;
    if (s->seeks)
        ask(s);
}

static void ask(struct vow__sentinel *s)
{
    struct vow__buf c;
    if (s->asked)
        return;
    s->asked = true;
    vow__command_init(&c, &s->route->alloc);
    vow__command_begin(&c, 3);
    vow__command_text(&c, "SENTINEL");
    vow__command_text(&c, "GET-MASTER-ADDR-BY-NAME");
    vow__command_text(&c, s->route->where->master);
    vow__link_send(s->link, &c, on_address, s);
    vow__buf_fini(&c);
}

static void on_address(int code, const struct vow__resp *reply, void *user)
{
    struct vow__sentinel *s = user;
    char host[HOST_MAX];
    char words[VOW__REDIS_WORDS];
    char why[VOW__REDIS_WHY];
    s->asked = false;
    if (!s->seeks || code == VOW_EUNSURE || code == VOW_ECLOSED)
        return; /* it was left, or on_end tells */
    if (code < 0) {
        leave(s);
        in_vain(s, false, "out of memory");
        return;
    }
    uint64_t port = vow__resp_uint(vow__resp_at(reply, 1), 0);
    if (reply->kind == VOW__RESP_LIST && port > 0 && port <= UINT16_MAX &&
        copy_host(vow__resp_at(reply, 0), host)) {
        s->seeks = false;
        vow__node_found(&s->route->main, host, (uint16_t)port);
        return;
    }
    vow__error_words(reply, words, sizeof(words));
    if (reply->kind == VOW__RESP_ERROR)
        (void)snprintf(why, sizeof(why), "the Sentinel %s: %s", s->name, words);
    else
        (void)snprintf(why, sizeof(why),
                       "the Sentinel %s knows no master named %.100s", s->name,
                       s->route->where->master);
    leave(s);
    in_vain(s, true, why);
}

/* ---- its link ------------------------------------------------------------ */

static void leave(struct vow__sentinel *s)
{
    struct vow__link *l = s->link;
    s->link = NULL;
    s->ready = false;
    if (l != NULL)
        vow__link_close(l, VOW_ECLOSED);
}

static void on_end(bool for_good, const char *why, void *user)
{
    struct vow__sentinel *s = user;
    char copy[VOW__REDIS_WHY];
    (void)snprintf(copy, sizeof(copy), "%s", why);
    leave(s);
    in_vain(s, for_good, copy);
}

/* The next, or the end of it. Without somebody who seeks the link is made again
 * for what it listens to. */
static void in_vain(struct vow__sentinel *s, bool for_good, const char *why)
{
    vow_loop *loop = s->route->loop;
    s->for_good = s->for_good && for_good;
    if (s->seeks && --s->left > 0) { /* keeps T1 */
        vow_call_soon(&s->again, loop, on_again, s);
        return;
    }
    uint64_t ns = (uint64_t)RETRY_MS * VOW__NS_PER_MS / 2;
    ns += vow_loop_random(loop) % (ns + 1);
    if (!s->seeks) {
        vow_call_weakly_at(&s->again, loop, vow_loop_now_ns(loop) + ns,
                           on_again, s);
        return;
    }
    s->seeks = false;
    vow__node_lost(&s->route->main, s->for_good, why);
}

/* "NAME OLDHOST OLDPORT HOST PORT" */
static void on_push(const struct vow__resp *push, void *user)
{
    struct vow__sentinel *s = user;
    struct vow__node *main = &s->route->main;
    char host[HOST_MAX];
    char why[VOW__REDIS_WHY];
    unsigned port;
    if (!vow__resp_is(vow__resp_at(push, 0), "message") ||
        !vow__resp_is(vow__resp_at(push, 1), "+switch-master") ||
        !read_switch(vow__resp_at(push, 2), s->route->where->master, host,
                     &port))
        return;
    if (main->host != NULL && strcmp(main->host, host) == 0 &&
        main->port == port)
        return;
    (void)snprintf(why, sizeof(why), "%s was replaced by %.200s:%u", main->name,
                   host, port);
    vow__node_drop(main, why);
}

static bool read_switch(const struct vow__resp *text, const char *master,
                        char *host, unsigned *ret_port)
{
    char copy[4 * HOST_MAX];
    char *rest = copy;
    char *words[5];
    if (text->kind != VOW__RESP_TEXT || text->n >= sizeof(copy))
        return false;
    memcpy(copy, text->text, text->n);
    copy[text->n] = 0;
    for (size_t i = 0; i < 5; i++)
        if ((words[i] = strsep(&rest, " ")) == NULL)
            return false;
    unsigned long port = strtoul(words[4], NULL, 10);
    if (strcmp(words[0], master) != 0 || strlen(words[3]) >= HOST_MAX ||
        port == 0 || port > UINT16_MAX)
        return false;
    memcpy(host, words[3], strlen(words[3]) + 1);
    *ret_port = (unsigned)port;
    return true;
}

static bool copy_host(const struct vow__resp *v, char *host)
{
    if (v->kind != VOW__RESP_TEXT || v->n == 0 || v->n >= HOST_MAX ||
        memchr(v->text, 0, v->n) != NULL)
        return false;
    memcpy(host, v->text, v->n);
    host[v->n] = 0;
    return true;
}
