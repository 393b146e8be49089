/* SPDX-License-Identifier: MIT */
/* etcd_verdict.c - looking at etcd as a doctor would: what it means.
 *
 * HOW   BAD is what breaks a promise sooner or later, WARN what people should
 *       know and may want. What could not be seen is a WARN: it is not good,
 *       and may be. If nothing is written and no reason was seen, that is all
 *       there is to say: a sentence.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_examine.h"

#include "base/assert.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MB = 1024 * 1024, FRAGMENTS_MB = 256, SLOW_US = 100 * 1000 };

static bool is_explained(const struct vow__check *c);
static void judge_member(struct vow__check *c, size_t i);
static void judge_cluster(struct vow__check *c);
static void judge_space(struct vow__check *c);
static void judge_writes(struct vow__check *c);
static void judge_latency(struct vow__check *c);
static void judge_leases(struct vow__check *c);
static void judge_way(struct vow__check *c);
static void judge_password(struct vow__check *c);
static bool is_here(const struct vow__check *c);
static void add(struct vow__check *c, uint32_t level, const char *what,
                const char *advice);
static void text(struct vow__check *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

int vow__check_judge(struct vow__check *c)
{
    if (!c->writes && !is_explained(c))
        return VOW_ESTORE;
    for (size_t i = 0; i < vow__etcd_where_of(c->etcd)->n_hosts; i++)
        judge_member(c, i);
    judge_cluster(c);
    judge_space(c);
    judge_writes(c);
    judge_latency(c);
    judge_leases(c);
    judge_way(c);
    judge_password(c);
    return 0;
}

/* Why nothing is written can be seen, by who looks at the findings. */
static bool is_explained(const struct vow__check *c)
{
    bool all_well = true;
    for (size_t i = 0; i < vow__etcd_where_of(c->etcd)->n_hosts; i++)
        all_well = all_well && c->members[i].answers &&
                   (c->members[i].version[0] == 0 || c->members[i].leader != 0);
    return c->denied || c->no_space || c->corrupt || c->silent || !all_well;
}

/* ---- findings ------------------------------------------------------------ */

/* says() follows, once. */
static void add(struct vow__check *c, uint32_t level, const char *what,
                const char *advice)
{
    VOW__ASSERT(c->n < VOW__CHECK_FINDINGS);
    c->findings[c->n++] = (vow_finding){.level = level,
                                        .what = what,
                                        .text = c->texts + c->room_used,
                                        .advice = advice};
}

static void text(struct vow__check *c, const char *format, ...)
{
    size_t room = sizeof(c->texts) - c->room_used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(c->texts + c->room_used, room, format, args);
    va_end(args);
    if (n >= 0)
        c->room_used += (size_t)n + 1 < room ? (size_t)n + 1 : room - 1;
}

/* ---- members ------------------------------------------------------------- */

static void judge_member(struct vow__check *c, size_t i)
{
    const struct vow__check_member *m = &c->members[i];
    const char *at = vow__etcd_where_of(c->etcd)->hosts[i].shown;
    if (!m->answers) {
        add(c, c->writes ? VOW_FINDING_WARN : VOW_FINDING_BAD, "member",
            c->writes
                ? "The others are asked instead. Start it, or take it out "
                  "of the address."
                : "Start it: a majority of the members is needed.");
        text(c, "%s", m->why);
    } else if (m->version[0] == 0) {
        add(c, VOW_FINDING_WARN, "member",
            "This needs a user with the role root: etcdctl endpoint status.");
        text(c, "%s answers; not allowed to see more of it", at);
    } else if (m->leader == 0) {
        add(c, VOW_FINDING_BAD, "member",
            "Without a leader nothing can be written: see whether a majority "
            "of the members runs and they reach each other.");
        text(c, "%s: etcd %s, without a leader", at, m->version);
    } else {
        add(c, VOW_FINDING_GOOD, "member", "");
        text(c, "%s: etcd %s%s", at, m->version,
             m->leader == m->id ? ", the leader" : "");
    }
}

static void judge_cluster(struct vow__check *c)
{
    static const char what[] = "cluster";
    size_t named = vow__etcd_where_of(c->etcd)->n_hosts;
    if (c->corrupt) {
        add(c, VOW_FINDING_BAD, "alarm",
            "Members disagree about what was written. Do not use it: replace "
            "the member that is wrong.");
        text(c, "CORRUPT");
    }
    if (!c->list_seen && c->silent)
        return;
    if (!c->list_seen) {
        add(c, VOW_FINDING_WARN, what,
            "This needs a user with the role root: etcdctl member list.");
        text(c, "not allowed to see its members");
    } else if (c->size < 3) {
        add(c, VOW_FINDING_WARN, what,
            "When one is down, nothing can be written and nothing runs. Three "
            "members survive the loss of one.");
        text(c, "%zu member%s", c->size, c->size == 1 ? "" : "s");
    } else {
        bool all = named >= c->size, odd = c->size % 2 == 1;
        char only[48] = "";
        if (!all)
            (void)snprintf(only, sizeof(only), "; the address names %zu",
                           named);
        add(c, all && odd ? VOW_FINDING_GOOD : VOW_FINDING_WARN, what,
            !all   ? "Name all of them: nobody else is asked when those that "
                     "are named are down."
            : !odd ? "An even number survives no more losses than one member "
                     "less."
                   : "");
        text(c, "%zu members, which survive the loss of %zu%s", c->size,
             (c->size - 1) / 2, only);
    }
}

static void judge_space(struct vow__check *c)
{
    const struct vow__check_member *most = &c->members[0];
    for (size_t i = 1; i < vow__etcd_where_of(c->etcd)->n_hosts; i++)
        if (c->members[i].size > most->size)
            most = &c->members[i];
    double mb = (double)most->size / MB, used = (double)most->used / MB;
    bool fragments = mb > FRAGMENTS_MB && used < mb / 2;
    if (c->no_space) {
        add(c, VOW_FINDING_BAD, "space",
            "All writes are refused. Compact, then etcdctl defrag, then "
            "etcdctl alarm disarm; and set --auto-compaction-retention.");
        text(c, "the database is full: alarm NOSPACE");
    } else if (most->size == 0) {
        add(c, VOW_FINDING_WARN, "space",
            "This needs a user with the role root: etcdctl endpoint status.");
        text(c, "not allowed to see how much is used");
    } else {
        add(c, fragments ? VOW_FINDING_WARN : VOW_FINDING_GOOD, "space",
            fragments ? "Much of it is history: set "
                        "--auto-compaction-retention, and run etcdctl defrag."
                      : "");
        text(c, "%.1f MB on disk, %.1f MB of it in use", mb, used);
    }
}

/* ---- us and them --------------------------------------------------------- */

static void judge_writes(struct vow__check *c)
{
    const char *prefix = vow__etcd_where_of(c->etcd)->prefix;
    if (c->writes) {
        add(c, VOW_FINDING_GOOD, "rights", "");
        text(c, "may read and write below %s", prefix);
    } else if (c->denied) {
        add(c, VOW_FINDING_BAD, "rights",
            "The user needs to read and write all below the prefix: etcdctl "
            "role grant-permission ROLE --prefix=true readwrite PREFIX.");
        text(c, "cannot write below %s: %s", prefix, c->refused);
    } else {
        add(c, VOW_FINDING_BAD, "writes",
            "No step succeeds. See the members, and what else is bad.");
        text(c, "%s", c->refused);
    }
}

static void judge_latency(struct vow__check *c)
{
    if (c->rounds == 0)
        return;
    uint64_t us = c->took_us[c->rounds / 2];
    add(c, us > SLOW_US ? VOW_FINDING_WARN : VOW_FINDING_GOOD, "round trip",
        us > SLOW_US ? "Leases should be many times longer than that." : "");
    text(c, "%.1f ms, the slowest %.1f ms", (double)us / 1000,
         (double)c->took_us[c->rounds - 1] / 1000);
}

static void judge_leases(struct vow__check *c)
{
    if (c->lease_s == 0)
        return;
    add(c, VOW_FINDING_GOOD, "leases", "");
    text(c, "last %llu s at least, and as long again when the leader changes",
         (unsigned long long)c->lease_s);
}

static bool is_here(const struct vow__check *c)
{
    const struct vow__etcd_where *w = vow__etcd_where_of(c->etcd);
    for (size_t i = 0; i < w->n_hosts; i++) {
        const char *at = w->hosts[i].shown;
        if (strncmp(at, "127.", 4) != 0 && strncmp(at, "localhost:", 10) != 0 &&
            strncmp(at, "[::1]:", 6) != 0)
            return false;
    }
    return true;
}

static void judge_way(struct vow__check *c)
{
    bool tls = vow__etcd_where_of(c->etcd)->tls;
    bool bare = !tls && !is_here(c);
    add(c, bare ? VOW_FINDING_WARN : VOW_FINDING_GOOD, "encryption",
        bare ? "Who is on the way reads names, results and the password, and "
               "can change them. Use etcds://."
             : "");
    text(c, "%s",
         tls    ? "TLS, and its certificate is checked"
         : bare ? "none, to a server on another machine"
                : "none is needed: the server is on this machine");
}

static void judge_password(struct vow__check *c)
{
    static const char what[] = "password";
    const struct vow__etcd_where *w = vow__etcd_where_of(c->etcd);
    bool asked = w->user != NULL && !c->open;
    if (asked) {
        add(c, VOW_FINDING_GOOD, what, "");
        text(c, "user %s has one", w->user);
    } else if (w->cert_file != NULL) {
        add(c, VOW_FINDING_GOOD, what, "");
        text(c, "none; our certificate tells who we are");
    } else {
        add(c, is_here(c) ? VOW_FINDING_WARN : VOW_FINDING_BAD, what,
            "Who reaches a member can read and change all. Make a user with a "
            "role for the prefix, and etcdctl auth enable.");
        text(c, "none is asked for%s",
             c->open ? ": authentication is not enabled" : "");
    }
}
