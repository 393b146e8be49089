/* SPDX-License-Identifier: MIT */
/* etcd_kit.c - starting and asking members of etcd. See etcd_kit.h.
 *
 * HOW   A member is a child that dies with us. A free port is one that the
 *       kernel gave and that is closed again: if somebody else got it since,
 *       the member ends at once and all are started again with other ports.
 *       Requests are HTTP/1.0: their answers end with the connection.
 *       A test that fails ends at once, and its members have 128 MB each: a
 *       process that does nothing else removes the folder then.
 */
#include "etcd_kit.h"
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TRIES = 5,
    PATIENCE_MS = 90000,
    ANSWER_S = 60,
    TEXT = 8192,
    KEY_TEXT = 1024
};
#define ROOT "{\"name\":\"root\",\"password\":\"root\"}"

/* ---- processes ----------------------------------------------------------- */

static void nap_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

static uint16_t free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)&a, sizeof(a)) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* Arguments of one member; the texts are kept here. */
struct args {
    const char *words[ETCD_ARGS];
    size_t n;
    char text[TEXT];
    size_t used;
};

static void add(struct args *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add(struct args *a, const char *format, ...)
{
    va_list list;
    CHECK(a->n + 1 < ETCD_ARGS);
    a->words[a->n++] = a->text + a->used;
    va_start(list, format);
    a->used +=
        1 + (size_t)vsnprintf(a->text + a->used, TEXT - a->used, format, list);
    va_end(list);
    CHECK(a->used < TEXT);
}

static void add_urls(struct args *a, const struct etcd_kit *k,
                     const struct etcd_member *m)
{
    const struct etcd_kit_opts *o = &k->opts;
    size_t n = 0;
    char cluster[256];
    const char *s = o->cert_file != NULL ? "s" : "";
    add(a, "--advertise-client-urls=http%s://127.0.0.1:%u", s, m->port);
    if (o->cert_file != NULL) {
        add(a, "--listen-client-urls=https://127.0.0.1:%u,http://127.0.0.1:%u",
            m->port, m->plain);
        add(a, "--cert-file=%s", o->cert_file);
        add(a, "--key-file=%s", o->key_file);
    } else {
        add(a, "--listen-client-urls=http://127.0.0.1:%u", m->port);
    }
    if (o->ca_file != NULL) {
        add(a, "--trusted-ca-file=%s", o->ca_file);
        add(a, "--client-cert-auth");
    }
    add(a, "--listen-peer-urls=http://127.0.0.1:%u", m->peer);
    add(a, "--initial-advertise-peer-urls=http://127.0.0.1:%u", m->peer);
    for (size_t i = 0; i < k->n; i++)
        n += (size_t)snprintf(cluster + n, sizeof(cluster) - n,
                              "%sm%zu=http://127.0.0.1:%u", i > 0 ? "," : "", i,
                              k->at[i].peer);
    add(a, "--initial-cluster=%s", cluster);
}

static void run_member(const struct etcd_kit *k, size_t i)
{
    static struct args a;
    const struct etcd_kit_opts *o = &k->opts;
    unsigned beat = o->beat_ms != 0 ? o->beat_ms : k->n > 1 ? 100 : 20;
    unsigned beats = k->n > 1 ? 30 : 10; /* until a leader is elected */
    char log[FOLDER_MAX + 16];
    a.words[a.n++] = "etcd";
    add(&a, "--name=m%zu", i);
    add(&a, "--data-dir=%s/%zu", k->folder.path, i);
    add(&a, "--heartbeat-interval=%u", beat);
    add(&a, "--election-timeout=%u",
        o->elect_ms != 0 ? o->elect_ms : beats * beat);
    add(&a, "--unsafe-no-fsync");
    add(&a, "--bcrypt-cost=4");
    add_urls(&a, k, &k->at[i]);
    for (size_t j = 0; o->extra != NULL && o->extra[j] != NULL; j++)
        add(&a, "%s", o->extra[j]);
    snprintf(log, sizeof(log), "%s/log%zu", k->folder.path, i);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    (void)dup2(null, 0);
    (void)dup2(out, 1);
    (void)dup2(out, 2);
    (void)execvp(a.words[0], (char *const *)a.words);
    _exit(127);
}

static void launch(struct etcd_kit *k, size_t i)
{
    struct etcd_member *m = &k->at[i];
    m->pid = fork();
    CHECK(m->pid >= 0);
    m->frozen = false;
    if (m->pid == 0)
        run_member(k, i);
}

/* It has not ended by itself. */
static bool runs(struct etcd_member *m)
{
    int status;
    if (m->pid == 0 || waitpid(m->pid, &status, WNOHANG) != m->pid)
        return m->pid != 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        SKIP("there is no etcd");
    m->pid = 0;
    return false;
}

/* Ends the test with the last words of a member. */
static _Noreturn void blame(const struct etcd_kit *k, size_t i)
{
    char log[FOLDER_MAX + 16], words[512] = "";
    snprintf(log, sizeof(log), "%s/log%zu", k->folder.path, i);
    FILE *f = fopen(log, "r");
    if (f != NULL) {
        (void)fseek(f, -(long)sizeof(words) + 1, SEEK_END);
        words[fread(words, 1, sizeof(words) - 1, f)] = 0;
        (void)fclose(f);
    }
    FAIL("member %zu did not answer: %s", i, words);
}

/* It writes: there is a leader, and it can be reached. False: it has ended. */
static bool answers(struct etcd_kit *k, size_t i)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 5) {
        if (!runs(&k->at[i]))
            return false;
        if (strstr(k->locked
                       ? etcd_ask(k, i, "auth/authenticate", ROOT)
                       : etcd_ask(k, i, "kv/deleterange", "{\"key\":\"AA==\"}"),
                   "\"header\"") != NULL)
            return true;
        nap_ms(5);
    }
    blame(k, i);
}

void etcd_kill(struct etcd_kit *k, size_t member)
{
    struct etcd_member *m = &k->at[member];
    if (m->pid == 0)
        return;
    CHECK(kill(m->pid, SIGKILL) == 0);
    while (waitpid(m->pid, NULL, 0) < 0)
        CHECK(errno == EINTR);
    m->pid = 0;
    m->frozen = false;
}

void etcd_again(struct etcd_kit *k, size_t member)
{
    size_t running = 0;
    etcd_kill(k, member);
    launch(k, member);
    for (size_t i = 0; i < k->n; i++)
        running += k->at[i].pid != 0 && !k->at[i].frozen;
    if (2 * running > k->n)
        CHECK(answers(k, member));
}

/* Until one of its threads has seen the signal the others go on; its parent is
 * told when all of them stand still. */
void etcd_freeze(struct etcd_kit *k, size_t member)
{
    struct etcd_member *m = &k->at[member];
    int status = 0;
    CHECK(!m->frozen);
    CHECK(kill(m->pid, SIGSTOP) == 0);
    while (waitpid(m->pid, &status, WUNTRACED) < 0)
        CHECK(errno == EINTR);
    CHECK(WIFSTOPPED(status));
    m->frozen = true;
}

void etcd_thaw(struct etcd_kit *k, size_t member)
{
    CHECK(kill(k->at[member].pid, SIGCONT) == 0);
    k->at[member].frozen = false;
}

/* ---- all of them --------------------------------------------------------- */

static void kill_all(struct etcd_kit *k)
{
    for (size_t i = 0; i < k->n; i++)
        etcd_kill(k, i);
}

/* The pipe ends with us. It has nothing else of ours. */
static void hire_janitor(struct etcd_kit *k)
{
    int fds[2];
    char byte;
    CHECK(pipe2(fds, O_CLOEXEC) == 0);
    k->janitor = fork();
    CHECK(k->janitor >= 0);
    if (k->janitor > 0) {
        close(fds[0]);
        k->pipe = fds[1];
        return;
    }
    (void)setsid();
    (void)dup2(fds[0], 0);
    (void)close_range(1, ~0u, 0);
    while (read(0, &byte, 1) < 0 && errno == EINTR)
        ;
    for (int i = 0; i < 20 && access(k->folder.path, F_OK) == 0; i++) {
        folder_close(&k->folder);
        nap_ms(50); /* a member may be dying only */
    }
    _exit(0);
}

static void dismiss_janitor(struct etcd_kit *k)
{
    folder_close(&k->folder);
    close(k->pipe);
    while (waitpid(k->janitor, NULL, 0) < 0)
        CHECK(errno == EINTR);
}

static bool try_start(struct etcd_kit *k)
{
    bool good = true;
    snprintf(k->folder.path, sizeof(k->folder.path), "/tmp/vow-test-XXXXXX");
    CHECK(mkdtemp(k->folder.path) != NULL);
    hire_janitor(k);
    for (size_t i = 0; i < k->n; i++) {
        struct etcd_member *m = &k->at[i];
        m->port = free_port();
        m->peer = free_port();
        m->plain = k->opts.cert_file != NULL ? free_port() : m->port;
    }
    for (size_t i = 0; i < k->n; i++)
        launch(k, i);
    for (size_t i = 0; good && i < k->n; i++)
        good = answers(k, i);
    if (!good) {
        kill_all(k);
        dismiss_janitor(k);
    }
    return good;
}

static void lock(struct etcd_kit *k);

void etcd_start(struct etcd_kit *k, const struct etcd_kit_opts *opts)
{
    memset(k, 0, sizeof(*k));
    if (opts != NULL)
        k->opts = *opts;
    k->n = k->opts.members == 0 ? 1 : k->opts.members;
    CHECK(k->n <= ETCD_MEMBERS);
    int tries = 0;
    while (!try_start(k))
        if (++tries == TRIES)
            FAIL("no etcd could be started");
    size_t n = (size_t)snprintf(k->url, sizeof(k->url), "etcd%s://",
                                k->opts.cert_file != NULL ? "s" : "");
    for (size_t i = 0; i < k->n; i++)
        n += (size_t)snprintf(k->url + n, sizeof(k->url) - n, "%s127.0.0.1:%u",
                              i > 0 ? "," : "", k->at[i].port);
    if (k->opts.user != NULL)
        lock(k);
}

void etcd_stop(struct etcd_kit *k)
{
    kill_all(k);
    dismiss_janitor(k);
}

size_t etcd_leader(struct etcd_kit *k)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
        uint64_t leader = 0;
        size_t found = ETCD_MEMBERS;
        bool agree = true;
        for (size_t i = 0; i < k->n; i++) {
            if (k->at[i].pid == 0 || k->at[i].frozen)
                continue;
            const char *says = etcd_ask(k, i, "maintenance/status", "{}");
            uint64_t its = etcd_number(says, "leader");
            agree &= its != 0 && (leader == 0 || leader == its);
            leader = its;
            if (etcd_number(says, "member_id") == leader)
                found = i;
        }
        if (agree && found < ETCD_MEMBERS)
            return found;
        nap_ms(10);
    }
    FAIL("they did not agree on a leader");
}

/* ---- asking -------------------------------------------------------------- */

static int connect_to(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = ANSWER_S};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        return fd;
    close(fd);
    return -1;
}

const char *etcd_ask(struct etcd_kit *k, size_t member, const char *path,
                     const char *body)
{
    static char request[64 * 1024];
    size_t n = 0;
    size_t size = (size_t)snprintf(
        request, sizeof(request),
        "POST /v3/%s HTTP/1.0\r\n%sContent-Length: %zu\r\n\r\n%s", path,
        k->header, strlen(body), body);
    CHECK(size < sizeof(request));
    k->said[0] = 0;
    int fd = connect_to(k->at[member].plain);
    if (fd < 0)
        return k->said;
    if (send(fd, request, size, MSG_NOSIGNAL) == (ssize_t)size) {
        ssize_t got;
        while (n + 1 < sizeof(k->said) &&
               (got = recv(fd, k->said + n, sizeof(k->said) - n - 1, 0)) > 0)
            n += (size_t)got;
    }
    close(fd);
    k->said[n] = 0;
    const char *end = strstr(k->said, "\r\n\r\n");
    return end == NULL ? "" : end + 4;
}

static size_t first_running(const struct etcd_kit *k)
{
    for (size_t i = 0; i < k->n; i++)
        if (k->at[i].pid != 0 && !k->at[i].frozen)
            return i;
    FAIL("no member runs");
}

const char *etcd_say(struct etcd_kit *k, const char *path, const char *format,
                     ...)
{
    char body[TEXT];
    va_list args;
    va_start(args, format);
    CHECK(vsnprintf(body, sizeof(body), format, args) < TEXT);
    va_end(args);
    return etcd_ask(k, first_running(k), path, body);
}

uint64_t etcd_number(const char *answer, const char *word)
{
    char begin[64];
    snprintf(begin, sizeof(begin), "\"%s\":\"", word);
    const char *at = strstr(answer, begin);
    return at == NULL ? 0 : strtoull(at + strlen(begin), NULL, 10);
}

/* ---- users --------------------------------------------------------------- */

/* Tokens are forgotten by members that start again: a new one each time. */
static void be_root(struct etcd_kit *k)
{
    if (!k->locked)
        return;
    k->header[0] = 0;
    const char *says = etcd_say(k, "auth/authenticate", "%s", ROOT);
    const char *token = strstr(says, "\"token\":\"");
    CHECK(token != NULL);
    token += strlen("\"token\":\"");
    snprintf(k->header, sizeof(k->header), "Authorization: %.*s\r\n",
             (int)strcspn(token, "\""), token);
}

/* Text in base64; one that is the first behind all with a prefix. */
static const char *encode(const char *text, bool end)
{
    static char to[2][2 * KEY_TEXT];
    static unsigned turn;
    char from[KEY_TEXT];
    size_t n = (size_t)snprintf(from, sizeof(from), "%s", text);
    CHECK(n < sizeof(from));
    if (end)
        from[n - 1]++;
    return sodium_bin2base64(to[++turn % 2], sizeof(to[0]),
                             (const unsigned char *)from, n,
                             sodium_base64_VARIANT_ORIGINAL);
}

static void must(struct etcd_kit *k, const char *path, const char *body)
{
    const char *says = etcd_say(k, path, "%s", body);
    if (strstr(says, "header") == NULL)
        FAIL("%s %s: %s", path, body, says);
}

static void lock(struct etcd_kit *k)
{
    const struct etcd_kit_opts *o = &k->opts;
    char body[TEXT];
    must(k, "auth/user/add", ROOT);
    must(k, "auth/role/add", "{\"name\":\"root\"}");
    must(k, "auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    must(k, "auth/role/add", "{\"name\":\"some\"}");
    snprintf(body, sizeof(body),
             "{\"name\":\"some\",\"perm\":{\"permType\":\"READWRITE\","
             "\"key\":\"%s\",\"range_end\":\"%s\"}}",
             encode(o->prefix, false), encode(o->prefix, true));
    must(k, "auth/role/grant", body);
    snprintf(body, sizeof(body), "{\"name\":\"%s\",\"password\":\"%s\"}",
             o->user, o->password);
    must(k, "auth/user/add", body);
    snprintf(body, sizeof(body), "{\"user\":\"%s\",\"role\":\"some\"}",
             o->user);
    must(k, "auth/user/grant", body);
    must(k, "auth/enable", "{}");
    k->locked = true;
}

/* ---- keys and leases ----------------------------------------------------- */

void etcd_put(struct etcd_kit *k, const char *key, const char *value)
{
    char body[4 * KEY_TEXT + 64];
    be_root(k);
    snprintf(body, sizeof(body), "{\"key\":\"%s\",\"value\":\"%s\"}",
             encode(key, false), encode(value, false));
    must(k, "kv/put", body);
}

const char *etcd_get(struct etcd_kit *k, const char *key)
{
    static char value[64 * 1024];
    size_t n = 0;
    be_root(k);
    const char *says =
        etcd_say(k, "kv/range", "{\"key\":\"%s\"}", encode(key, false));
    CHECK(strstr(says, "header") != NULL);
    if (strstr(says, "\"kvs\"") == NULL)
        return NULL;
    const char *at = strstr(says, "\"value\":\"");
    if (at != NULL) {
        at += strlen("\"value\":\"");
        CHECK(sodium_base642bin((unsigned char *)value, sizeof(value) - 1, at,
                                strcspn(at, "\""), NULL, &n, NULL,
                                sodium_base64_VARIANT_ORIGINAL) == 0);
    }
    value[n] = 0;
    return value;
}

void etcd_delete(struct etcd_kit *k, const char *key)
{
    char body[2 * KEY_TEXT + 64];
    be_root(k);
    snprintf(body, sizeof(body), "{\"key\":\"%s\"}", encode(key, false));
    must(k, "kv/deleterange", body);
}

uint64_t etcd_count(struct etcd_kit *k, const char *prefix)
{
    be_root(k);
    return etcd_number(
        etcd_say(k, "kv/range",
                 "{\"key\":\"%s\",\"range_end\":\"%s\",\"count_only\":true}",
                 encode(prefix, false), encode(prefix, true)),
        "count");
}

uint64_t etcd_revision(struct etcd_kit *k)
{
    be_root(k);
    return etcd_number(
        etcd_say(k, "kv/range", "%s", "{\"key\":\"AA==\",\"limit\":\"1\"}"),
        "revision");
}

void etcd_compact(struct etcd_kit *k)
{
    char body[64];
    snprintf(body, sizeof(body), "{\"revision\":\"%llu\",\"physical\":true}",
             (unsigned long long)etcd_revision(k));
    must(k, "kv/compaction", body);
}

size_t etcd_revoke_all(struct etcd_kit *k)
{
    size_t n = 0;
    char body[64];
    uint64_t id;
    be_root(k);
    while ((id = etcd_number(etcd_say(k, "lease/leases", "%s", "{}"), "ID")) !=
           0) {
        snprintf(body, sizeof(body), "{\"ID\":\"%llu\"}",
                 (unsigned long long)id);
        must(k, "lease/revoke", body);
        n++;
    }
    return n;
}
