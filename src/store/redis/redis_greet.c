/* SPDX-License-Identifier: MIT */
/* redis_greet.c - the first commands on a connection, and the answers.
 *
 * WHY   Most mistakes of users show here: a wrong password, a missing right, an
 *       old server, a server that is no master. Each mistake gets a sentence
 *       that says what to do.
 * HOW   All commands leave at once, so that the answers are taken one by one,
 *       in order. The first wrong answer ends the connection. The words of a
 *       server are shown, but not the words after HELLO: old servers repeat the
 *       password.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_link.h"

#include <stdio.h>
#include <string.h>

/* The version of the keys that this client reads and writes, see lua/claim.lua.
 * A version that cannot share a prefix with this one sets PREFIXversion to a
 * larger number; without the key the version is 1. */
enum { LAYOUT = 1, LATER = 1000000, VERSION_KEY = 512 };

/* A user without the right to GET is refused by the steps, not here. */
static const char VERSION_SCRIPT[] =
    "local v = redis.pcall('GET', KEYS[1]) "
    "if type(v) == 'table' then "
    "return string.find(v.err, 'WRONGTYPE') and 1000000 or 1 end "
    "return tonumber(v or 1) or 1000000";

static void next(struct vow__link *l);
static bool asked(const struct vow__link *l, enum vow__greet g);
static void take_hello(struct vow__link *l, const struct vow__resp *v);
static void refuse_hello(struct vow__link *l, const struct vow__resp *error);
static void take_select(struct vow__link *l, const struct vow__resp *v);
static void take_role(struct vow__link *l, const struct vow__resp *v);
static void take_evaluated(struct vow__link *l, const struct vow__resp *v);
static void take_subscribed(struct vow__link *l, const struct vow__resp *v);
static void refuse(struct vow__link *l, const struct vow__resp *error);
static void copy(char *to, size_t size, const struct vow__resp *v);

int vow__greet_make(struct vow__link *l, const struct vow__link_opts *opts)
{
    struct vow__buf *c = &l->greeting;
    const char *user = opts->user != NULL ? opts->user : "default";
    l->has_password = opts->user != NULL || opts->password != NULL;
    l->selects = opts->db != 0 && !opts->bare;
    l->subscribes = opts->channel != NULL;
    (void)snprintf(l->user, sizeof(l->user), "%s", user);
    vow__command_begin(c, l->has_password ? 5 : 2);
    vow__command_text(c, "HELLO");
    vow__command_text(c, "3");
    if (l->has_password) {
        vow__command_text(c, "AUTH");
        vow__command_text(c, user);
        vow__command_text(c, opts->password != NULL ? opts->password : "");
    }
    if (l->selects) {
        vow__command_begin(c, 2);
        vow__command_text(c, "SELECT");
        vow__command_uint(c, opts->db);
    }
    if (!opts->bare) {
        vow__command_begin(c, 1);
        vow__command_text(c, "ROLE");
        char key[VERSION_KEY];
        l->prefix = opts->prefix == NULL ? "" : opts->prefix;
        (void)snprintf(key, sizeof(key), "%sversion", l->prefix);
        vow__command_begin(c, 4);
        vow__command_text(c, "EVAL");
        vow__command_text(c, VERSION_SCRIPT);
        vow__command_text(c, "1");
        vow__command_text(c, key);
    }
    if (l->subscribes) {
        vow__command_begin(c, 2);
        vow__command_text(c, "SUBSCRIBE");
        vow__command_text(c, opts->channel);
    }
    return c->code;
}

void vow__greet_take(struct vow__link *l, const struct vow__resp *v)
{
    static void (*const takes[])(struct vow__link *,
                                 const struct vow__resp *) = {
        [VOW__GREET_HELLO] = take_hello,
        [VOW__GREET_SELECT] = take_select,
        [VOW__GREET_ROLE] = take_role,
        [VOW__GREET_EVAL] = take_evaluated,
        [VOW__GREET_SUBSCRIBE] = take_subscribed,
    };
    if (v->kind == VOW__RESP_PUSH &&
        (l->greet != VOW__GREET_SUBSCRIBE ||
         !vow__resp_is(vow__resp_at(v, 0), "subscribe")))
        return; /* it is not for us */
    l->moved = true;
    takes[l->greet](l, v);
}

static void next(struct vow__link *l)
{
    do
        l->greet++;
    while (l->greet < VOW__GREET_DONE && !asked(l, l->greet));
    if (l->greet == VOW__GREET_DONE)
        vow__link_greeted(l);
}

static bool asked(const struct vow__link *l, enum vow__greet g)
{
    switch (g) {
    case VOW__GREET_SELECT:
        return l->selects;
    case VOW__GREET_ROLE:
    case VOW__GREET_EVAL:
        return !l->bare;
    case VOW__GREET_SUBSCRIBE:
        return l->subscribes;
    default:
        return true;
    }
}

/* ---- the answers -------------------------------------------------------- */

static void take_hello(struct vow__link *l, const struct vow__resp *v)
{
    if (v->kind == VOW__RESP_ERROR) {
        refuse_hello(l, v);
        return;
    }
    const struct vow__resp *mode = vow__resp_of(v, "mode");
    copy(l->server.version, sizeof(l->server.version),
         vow__resp_of(v, "version"));
    l->server.cluster = vow__resp_is(mode, "cluster");
    l->server.sentinel = vow__resp_is(mode, "sentinel");
    if (vow__resp_uint(vow__resp_of(v, "proto"), 0) != 3)
        vow__link_fail(l, true, "%s does not answer as a Redis does", l->name);
    else if (l->server.sentinel && !l->bare)
        vow__link_fail(l, true,
                       "%s is a Sentinel, which knows where the data are: its "
                       "address is redis-sentinel://%s/MASTER",
                       l->name, l->name);
    else if (!l->server.sentinel && l->bare)
        vow__link_fail(l, true,
                       "%s is no Sentinel: the address of a server itself "
                       "begins with redis://",
                       l->name);
    else
        next(l);
}

static void refuse_hello(struct vow__link *l, const struct vow__resp *error)
{
    if (vow__error_is(error, "NOPROTO") || vow__error_is(error, "ERR unknown"))
        vow__link_fail(l, true,
                       "%s is an older Redis: version 6.0 or newer is needed",
                       l->name);
    else if (vow__error_is(error, "WRONGPASS"))
        vow__link_fail(l, true,
                       "%s does not know user %s with this password: look at "
                       "the user in the address and at the password file",
                       l->name, l->user);
    else if (vow__error_is(error, "DENIED"))
        vow__link_fail(l, true,
                       "%s is in protected mode: it has no password, and so "
                       "serves its own machine only",
                       l->name);
    else if (!l->has_password)
        refuse(l, error);
    else
        vow__link_fail(l, false, "%s does not greet user %s", l->name, l->user);
}

static void take_select(struct vow__link *l, const struct vow__resp *v)
{
    if (v->kind != VOW__RESP_ERROR)
        next(l);
    else if (l->server.cluster)
        vow__link_fail(l, true,
                       "%s belongs to a cluster, which has database 0 only",
                       l->name);
    else if (vow__error_is(v, "ERR DB index"))
        vow__link_fail(l, true, "%s has fewer databases than that", l->name);
    else
        refuse(l, v);
}

/* In a cluster a replica knows where all the others are. */
static void take_role(struct vow__link *l, const struct vow__resp *v)
{
    char host[256];
    if (v->kind == VOW__RESP_ERROR) {
        refuse(l, v);
        return;
    }
    l->server.master = vow__resp_is(vow__resp_at(v, 0), "master");
    if (l->server.master || l->server.cluster) {
        next(l);
        return;
    }
    copy(host, sizeof(host), vow__resp_at(v, 1));
    vow__link_fail(l, false, "%s is a replica; its master is %s:%u", l->name,
                   host, (unsigned)vow__resp_uint(vow__resp_at(v, 2), 0));
}

/* The key is at another node of the cluster, or the cluster is down. */
static bool is_elsewhere(const struct vow__link *l, const struct vow__resp *v)
{
    static const char *const errors[] = {"MOVED", "ASK", "CLUSTERDOWN",
                                         "TRYAGAIN"};
    bool found = false;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        found = found || vow__error_is(v, errors[i]);
    return l->server.cluster && found;
}

/* The version of the keys. A server that is loading its data answers all the
 * rest, and no script. */
static void take_evaluated(struct vow__link *l, const struct vow__resp *v)
{
    if (v->kind == VOW__RESP_ERROR && is_elsewhere(l, v))
        next(l);
    else if (v->kind == VOW__RESP_ERROR)
        refuse(l, v);
    else if (v->kind == VOW__RESP_NUMBER && vow__resp_uint(v, LATER) > LAYOUT)
        vow__link_fail(l, true,
                       "%s: a later version of vow has changed the keys with "
                       "the prefix %s; update vow, or use another prefix",
                       l->name, l->prefix);
    else if (v->kind != VOW__RESP_NUMBER)
        vow__link_fail(l, true, "%s does not answer as a Redis does", l->name);
    else
        next(l);
}

static void take_subscribed(struct vow__link *l, const struct vow__resp *v)
{
    if (v->kind == VOW__RESP_ERROR)
        refuse(l, v);
    else if (v->kind != VOW__RESP_PUSH)
        vow__link_fail(l, true, "%s does not answer as a Redis does", l->name);
    else
        next(l);
}

/* ---- errors ------------------------------------------------------------- */

static void refuse(struct vow__link *l, const struct vow__resp *error)
{
    char words[VOW__REDIS_WORDS];
    vow__error_words(error, words, sizeof(words));
    if (vow__error_is(error, "NOAUTH"))
        vow__link_fail(l, true,
                       "%s wants a password: name a user in the address "
                       "(USER@HOST), and a password-file",
                       l->name);
    else if (vow__error_is(error, "NOPERM"))
        vow__link_fail(l, true,
                       "%s: user %s needs more rights; vow-store(7) lists "
                       "them: %s",
                       l->name, l->user, words);
    else
        vow__link_fail(l, false, "%s: %s", l->name, words);
}

bool vow__error_is(const struct vow__resp *error, const char *begins)
{
    size_t n = strlen(begins);
    return error->kind == VOW__RESP_ERROR && error->n >= n &&
           memcmp(error->text, begins, n) == 0;
}

void vow__error_words(const struct vow__resp *error, char *words, size_t size)
{
    copy(words, size, error);
}

/* Text for people: one line without signs that a terminal would obey. */
static void copy(char *to, size_t size, const struct vow__resp *v)
{
    size_t n = 0;
    bool is_text = v->kind == VOW__RESP_TEXT || v->kind == VOW__RESP_ERROR;
    for (size_t i = 0; is_text && i < v->n && n + 1 < size; i++) {
        char c = v->text[i];
        if (c == '\r' || c == '\n')
            break;
        to[n++] = c >= ' ' && c <= '~' ? c : '?';
    }
    to[n] = 0;
}
