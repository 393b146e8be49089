/* SPDX-License-Identifier: MIT */
/* redis_verdict.c - the findings of the doctor, from the answers of servers.
 *
 * HOW   Each subject is a finding per master, with the port in front if there
 *       are several masters. BAD: a promise breaks sooner or later. WARN: users
 *       should know the setting, and may want the setting. A setting that could
 *       not be read is a WARN.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_examine.h"

#include "base/assert.h"
#include "store/redis/redis_names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    MB = 1024 * 1024,
    FULL_PERCENT = 95,
    FILLING_PERCENT = 80,
    CLOCK_US = 1000 * 1000
};

static void judge_server(struct vow__exam *e, const struct vow__exam_server *s);
static void judge_eviction(struct vow__exam *e,
                           const struct vow__exam_server *s);
static void judge_memory(struct vow__exam *e, const struct vow__exam_server *s);
static void judge_disk(struct vow__exam *e, const struct vow__exam_server *s);
static void judge_replicas(struct vow__exam *e,
                           const struct vow__exam_server *s);
static void judge_clock(struct vow__exam *e, const struct vow__exam_server *s);
static void judge_latency(struct vow__exam *e,
                          const struct vow__exam_server *s);
static void judge_writes(struct vow__exam *e);
static void judge_rights(struct vow__exam *e);
static void judge_way(struct vow__exam *e);
static void judge_password(struct vow__exam *e);
static bool is_here(const struct vow__exam *e);
static void add(struct vow__exam *e, const struct vow__exam_server *s,
                uint32_t level, const char *what, const char *advice);
static void add_text(struct vow__exam *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool field(const char *info, size_t n, const char *key, char *to,
                  size_t size);
static uint64_t number(const char *info, size_t n, const char *key);

void vow__exam_judge(struct vow__exam *e)
{
    for (size_t i = 0; i < e->n_servers; i++)
        judge_server(e, &e->servers[i]);
    for (size_t i = 0; i < e->n_servers; i++) {
        judge_eviction(e, &e->servers[i]);
        judge_memory(e, &e->servers[i]);
        judge_disk(e, &e->servers[i]);
        judge_replicas(e, &e->servers[i]);
    }
    for (size_t i = 0; i < e->n_servers; i++) {
        judge_clock(e, &e->servers[i]);
        judge_latency(e, &e->servers[i]);
    }
    judge_writes(e);
    judge_rights(e);
    judge_way(e);
    judge_password(e);
}

/* ---- findings ------------------------------------------------------------ */

/* Begins a finding; the text follows at once. */
static void add(struct vow__exam *e, const struct vow__exam_server *s,
                uint32_t level, const char *what, const char *advice)
{
    VOW__ASSERT(e->n < VOW__EXAM_FINDINGS);
    char *text = e->texts + e->used;
    e->findings[e->n++] = (vow_finding){
        .level = level, .what = what, .text = text, .advice = advice};
    text[0] = 0;
    if (s != NULL && e->n_servers > 1 && s->port > 0)
        add_text(e, "port %llu: ", (unsigned long long)s->port);
}

/* Adds to the text of the last finding; cuts a text without room. */
static void add_text(struct vow__exam *e, const char *format, ...)
{
    size_t room = sizeof(e->texts) - e->used;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(e->texts + e->used, room, format, args);
    va_end(args);
    if (n > 0)
        e->used += (size_t)n < room ? (size_t)n : room - 1;
}

/* Ends the last finding. */
static void said(struct vow__exam *e)
{
    if (e->used + 1 < sizeof(e->texts))
        e->used++;
}

/* ---- the server ---------------------------------------------------------- */

static void judge_server(struct vow__exam *e, const struct vow__exam_server *s)
{
    const char *version = s->version;
    char greeted[48];
    if (version[0] == 0) {
        (void)snprintf(greeted, sizeof(greeted), "version %s",
                       vow__redis_route(e->fiber.r)->main.server.version);
        version = greeted;
    }
    const char *digits = version + strcspn(version, "0123456789");
    bool old =
        strncmp(version, "Valkey", 6) != 0 &&
        (strncmp(digits, "6.0", 3) == 0 || strncmp(digits, "6.1", 3) == 0);
    add(e, s, old ? VOW_FINDING_WARN : VOW_FINDING_GOOD, "server",
        old ? "It gets no security updates any more: install a newer one."
            : "");
    add_text(e, "%s", version);
    if (s->info_seen)
        add_text(e, ", %s, %s", s->mode, s->role);
    said(e);
}

static void judge_eviction(struct vow__exam *e,
                           const struct vow__exam_server *s)
{
    static const char what[] = "eviction";
    if (!s->info_seen) {
        add(e, s, VOW_FINDING_WARN, what,
            "It must be noeviction, or the server may throw keys away and "
            "work runs twice: ask who keeps it, or look as a user who may run "
            "INFO.");
        add_text(e, "not allowed to see maxmemory-policy");
    } else if (strcmp(s->policy, "noeviction") == 0) {
        add(e, s, VOW_FINDING_GOOD, what, "");
        add_text(e, "maxmemory-policy is noeviction");
    } else if (s->memory_max == 0) {
        add(e, s, VOW_FINDING_WARN, what,
            "Set maxmemory-policy noeviction, before somebody sets maxmemory.");
        add_text(
            e,
            "maxmemory-policy is %s; as long as maxmemory is 0, nothing is "
            "thrown away",
            s->policy);
    } else {
        add(e, s, VOW_FINDING_BAD, what,
            "When its memory is full, the server throws keys away: work runs "
            "twice, and limits are forgotten. Set maxmemory-policy "
            "noeviction.");
        add_text(e, "maxmemory-policy is %s", s->policy);
    }
    said(e);
}

static void judge_memory(struct vow__exam *e, const struct vow__exam_server *s)
{
    static const char full[] =
        "When it is full, the server refuses all steps. Raise maxmemory, or "
        "let keys go.";
    uint64_t percent =
        s->memory_max == 0 ? 0 : s->memory / (s->memory_max / 100 + 1);
    if (!s->info_seen) {
        add(e, s, VOW_FINDING_WARN, "memory",
            "When it is full, the server refuses all steps: look as a user "
            "who may run INFO.");
        add_text(e, "not allowed to see how much is used");
    } else if (s->memory_max == 0) {
        add(e, s, VOW_FINDING_GOOD, "memory", "");
        add_text(e, "%.1f MB used, and no limit is set",
                 (double)s->memory / MB);
    } else {
        add(e, s,
            percent >= FULL_PERCENT      ? VOW_FINDING_BAD
            : percent >= FILLING_PERCENT ? VOW_FINDING_WARN
                                         : VOW_FINDING_GOOD,
            "memory", percent >= FILLING_PERCENT ? full : "");
        add_text(e, "%.1f MB of %.1f MB used", (double)s->memory / MB,
                 (double)s->memory_max / MB);
    }
    said(e);
}

/* Tells what a restart loses: no loss breaks a promise. */
static void judge_disk(struct vow__exam *e, const struct vow__exam_server *s)
{
    static const char forgets[] =
        "What is lost at a restart: results are made again, limits go back to "
        "what the first who asks says, and work that runs may be begun once "
        "more before its owner's next pulse. Set appendonly yes if that "
        "matters.";
    static const char what[] = "disk";
    if (!s->info_seen) {
        add(e, s, VOW_FINDING_WARN, what, forgets);
        add_text(e, "not allowed to see what is kept on disk");
    } else if (s->saves_fail) {
        add(e, s, VOW_FINDING_BAD, what,
            "The server may refuse all steps until it can write: look at its "
            "log, and whether its disk is full.");
        add_text(e, "the last write to disk failed");
    } else if (s->aof && strcmp(s->fsync, "no") == 0) {
        add(e, s, VOW_FINDING_WARN, what, forgets);
        add_text(e,
                 "appendonly, written when the system likes (appendfsync no)");
    } else if (s->aof) {
        bool always = strcmp(s->fsync, "always") == 0;
        add(e, s, VOW_FINDING_GOOD, what, "");
        add_text(e, always
                        ? "appendonly, on disk before it is answered"
                        : "appendonly: a crash loses the last second or two");
    } else if (s->config_seen && s->save[0] != 0) {
        add(e, s, VOW_FINDING_WARN, what, forgets);
        add_text(
            e,
            "snapshots only (save %s): a crash loses what changed since the "
            "last one",
            s->save);
    } else if (s->config_seen) {
        add(e, s, VOW_FINDING_WARN, what, forgets);
        add_text(e, "nothing is kept: a restart loses all");
    } else {
        add(e, s, VOW_FINDING_WARN, what, forgets);
        add_text(e,
                 "appendonly is off, and not allowed to see whether there are "
                 "snapshots");
    }
    said(e);
}

static void judge_replicas(struct vow__exam *e,
                           const struct vow__exam_server *s)
{
    static const char what[] = "replicas";
    if (!s->info_seen) {
        add(e, s, VOW_FINDING_WARN, what,
            "If there are some, min-replicas-to-write should be 1: look as a "
            "user who may run INFO.");
        add_text(e, "not allowed to see");
    } else if (s->replicas == 0) {
        add(e, s, VOW_FINDING_GOOD, what, "");
        add_text(e, "none: while the server is down, so is the store");
    } else if (s->replicas_needed) {
        add(e, s, VOW_FINDING_GOOD, what, "");
        add_text(e, "%llu, and nothing is written without them",
                 (unsigned long long)s->replicas);
    } else {
        add(e, s, VOW_FINDING_WARN, what,
            "A master that is cut off goes on giving work away while another "
            "takes its place: then it runs twice. Set min-replicas-to-write 1 "
            "and min-replicas-max-lag 10.");
        add_text(e, "%llu, and min-replicas-to-write is 0",
                 (unsigned long long)s->replicas);
    }
    said(e);
}

/* ---- time ---------------------------------------------------------------- */

static void judge_clock(struct vow__exam *e, const struct vow__exam_server *s)
{
    uint64_t us =
        s->ahead_us < 0 ? 0 - (uint64_t)s->ahead_us : (uint64_t)s->ahead_us;
    bool far = us > CLOCK_US;
    if (s->rounds == 0)
        return;
    add(e, s, far ? VOW_FINDING_WARN : VOW_FINDING_GOOD, "clock",
        far ? "Leases, limits and ages go by the server's clock alone, and "
              "hold. Dates in logs do not match. A replica whose clock is "
              "behind gives smaller fences to work that it never heard of: "
              "let NTP keep all clocks."
            : "");
    add_text(e, "%.3f s %s ours", (double)us / 1e6,
             s->ahead_us < 0 ? "behind" : "ahead of");
    said(e);
}

static void judge_latency(struct vow__exam *e, const struct vow__exam_server *s)
{
    uint64_t timeout_ms = vow__redis_where_of(e->fiber.r)->timeout_ms;
    if (s->rounds == 0)
        return;
    uint64_t most = s->took_us[s->rounds - 1];
    uint64_t middle = s->took_us[s->rounds / 2];
    bool slow = most / 1000 > timeout_ms / 4;
    add(e, s, slow ? VOW_FINDING_WARN : VOW_FINDING_GOOD, "latency",
        slow ? "An answer that takes longer than the timeout counts as lost. "
               "Add ?timeout=MS to the address, and keep leases longer than "
               "ten times that."
             : "");
    add_text(e, "%.2f ms, %.2f ms at most of %zu; the timeout is %llu ms",
             (double)middle / 1000, (double)most / 1000, s->rounds,
             (unsigned long long)timeout_ms);
    said(e);
}

/* ---- rights -------------------------------------------------------------- */

/* A finding only for a server that refuses writes. */
static void judge_writes(struct vow__exam *e)
{
    if (e->unwritten[0] == 0)
        return;
    add(e, NULL, VOW_FINDING_BAD, "writes",
        "No step will succeed before that is mended: memory, disk and "
        "replicas are above.");
    add_text(e, "refused: %s", e->unwritten);
    said(e);
}

static void judge_rights(struct vow__exam *e)
{
    if (e->refused[0] != 0) {
        add(e, NULL, VOW_FINDING_BAD, "rights",
            "Give them to the user: vow-doctor(1) has the line.");
        add_text(e, "refused: %s", e->refused);
    } else if (e->scan_refused) {
        add(e, NULL, VOW_FINDING_WARN, "rights",
            "Without it nothing can be listed, as vow status does: add +scan "
            "to the user.");
        add_text(e, "refused: SCAN");
    } else {
        add(e, NULL, VOW_FINDING_GOOD, "rights", "");
        add_text(e, "all that is needed");
    }
    said(e);
}

/* Returns whether the data stay on this machine. The host of the server counts,
 * which Sentinels or a cluster may have named. */
static bool is_here(const struct vow__exam *e)
{
    const struct vow__redis_where *w = vow__redis_where_of(e->fiber.r);
    const char *host = vow__redis_route(e->fiber.r)->main.host;
    if (host == NULL && w->n_hosts > 0)
        host = w->hosts[0].host;
    return w->path != NULL ||
           (host != NULL &&
            (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
             strcmp(host, "localhost") == 0));
}

static void judge_way(struct vow__exam *e)
{
    const struct vow__redis_where *w = vow__redis_where_of(e->fiber.r);
    bool bare = !w->tls && !is_here(e);
    add(e, NULL, bare ? VOW_FINDING_WARN : VOW_FINDING_GOOD, "encryption",
        bare ? "Who is on the way reads names, results and the password, and "
               "can change them. Use rediss://, and a seal-file for results "
               "that the server should not read."
             : "");
    add_text(e, "%s",
             w->path != NULL ? "none is needed: a socket of this machine"
             : w->tls        ? "TLS, and its certificate is checked"
             : bare          ? "none, to a server on another machine"
                             : "none is needed: the server is on this machine");
    said(e);
}

static void judge_password(struct vow__exam *e)
{
    const struct vow__redis_where *w = vow__redis_where_of(e->fiber.r);
    bool given = w->password != NULL;
    uint32_t level = given || w->path != NULL ? VOW_FINDING_GOOD
                     : is_here(e)             ? VOW_FINDING_WARN
                                              : VOW_FINDING_BAD;
    add(e, NULL, level, "password",
        level == VOW_FINDING_GOOD
            ? ""
            : "Who reaches the server can read and change all. Make a user "
              "with a password: vow-doctor(1) has the line.");
    if (given)
        add_text(e, "user %s has one", w->user != NULL ? w->user : "default");
    else
        add_text(e, "%s",
                 w->path != NULL ? "none: the rights of the socket decide"
                                 : "none is asked for");
    said(e);
}

/* ---- INFO ---------------------------------------------------------------- */

void vow__exam_info(struct vow__exam_server *s, const char *text, size_t n)
{
    char value[32] = "";
    if (field(text, n, "valkey_version", value, sizeof(value)))
        (void)snprintf(s->version, sizeof(s->version), "Valkey %s", value);
    else if (field(text, n, "redis_version", value, sizeof(value)))
        (void)snprintf(s->version, sizeof(s->version), "Redis %s", value);
    if (!field(text, n, "redis_mode", s->mode, sizeof(s->mode)))
        (void)field(text, n, "server_mode", s->mode, sizeof(s->mode));
    (void)field(text, n, "role", s->role, sizeof(s->role));
    (void)field(text, n, "maxmemory_policy", s->policy, sizeof(s->policy));
    s->port = number(text, n, "tcp_port");
    s->memory = number(text, n, "used_memory");
    s->memory_max = number(text, n, "maxmemory");
    s->replicas = number(text, n, "connected_slaves");
    s->replicas_needed =
        field(text, n, "min_slaves_good_slaves", value, sizeof(value));
    s->aof = number(text, n, "aof_enabled") == 1;
    bool rdb = field(text, n, "rdb_last_bgsave_status", value, sizeof(value)) &&
               strcmp(value, "ok") != 0;
    bool aof = field(text, n, "aof_last_write_status", value, sizeof(value)) &&
               strcmp(value, "ok") != 0;
    s->saves_fail = rdb || (s->aof && aof);
}

/* Reads a line "KEY:VALUE", and replaces signs that a terminal would obey. */
static bool field(const char *info, size_t n, const char *key, char *to,
                  size_t size)
{
    size_t length = strlen(key);
    size_t used = 0;
    const char *end = info + n;
    for (const char *at = info; at < end;) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        line = line == NULL ? end : line;
        if ((size_t)(line - at) > length && at[length] == ':' &&
            memcmp(at, key, length) == 0) {
            for (at += length + 1; at < line && used + 1 < size; at++)
                if (*at >= ' ' && *at <= '~')
                    to[used++] = *at;
            to[used] = 0;
            return true;
        }
        at = line + 1;
    }
    return false;
}

static uint64_t number(const char *info, size_t n, const char *key)
{
    char text[32];
    if (!field(info, n, key, text, sizeof(text)))
        return 0;
    return vow__resp_uint(&(struct vow__resp){.kind = VOW__RESP_TEXT,
                                              .text = text,
                                              .n = strlen(text)},
                          0);
}
