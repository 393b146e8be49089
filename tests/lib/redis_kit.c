/* SPDX-License-Identifier: MIT */
/* redis_kit.c - starting and asking servers of Redis. See redis_kit.h.
 *
 * HOW   A server is a child that dies with us. A free port is one that the
 *       kernel gave and that is closed again: if somebody else got it since,
 *       the server ends at once and another port is tried.
 */
#include "redis_kit.h"
#include "harness.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRIES = 5, PATIENCE_MS = 90000, WORDS_MAX = 64, SLOTS = 16384 };

/* ---- processes ----------------------------------------------------------- */

static void nap_ms(int ms)
{
    (void)poll(NULL, 0, ms);
}

uint16_t redis_port(void)
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

static void run_server(const struct redis_server *s)
{
    char port[8], bus[8];
    const char *args[REDIS_ARGS + 32];
    size_t n = 0;
    char config[FOLDER_MAX + 32];
    snprintf(port, sizeof(port), "%u", s->port);
    snprintf(bus, sizeof(bus), "%u", s->bus);
    snprintf(config, sizeof(config), "%s/sentinel.conf", s->folder.path);
    args[n++] = s->sentinel ? "redis-sentinel" : "redis-server";
    if (s->sentinel)
        args[n++] = config;
    const char *const usual[] = {
        "--port",       port,        "--bind", "127.0.0.1",   "--dir",
        s->folder.path, "--logfile", "log",    "--daemonize", "no"};
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        args[n++] = usual[i];
    const char *const data[] = {
        "--save",       "",        "--appendonly",           "no",
        "--unixsocket", s->socket, "--enable-debug-command", "yes"};
    for (size_t i = 0; !s->sentinel && i < sizeof(data) / sizeof(data[0]); i++)
        args[n++] = data[i];
    if (s->bus != 0) {
        args[n++] = "--cluster-enabled";
        args[n++] = "yes";
        args[n++] = "--cluster-port";
        args[n++] = bus;
    }
    for (size_t i = 0; s->extra[i] != NULL; i++)
        args[n++] = s->extra[i];
    args[n] = NULL;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(null, fd);
    (void)execvp(args[0], (char *const *)args);
    _exit(127);
}

static bool socket_answers(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    bool good = connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0;
    close(fd);
    return good;
}

/* False: it has ended by itself. */
static bool answers(struct redis_server *s)
{
    for (int ms = 0; ms < PATIENCE_MS; ms += 5) {
        int status;
        if (waitpid(s->pid, &status, WNOHANG) == s->pid) {
            if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
                SKIP("there is no redis-server");
            s->pid = 0;
            return false;
        }
        int fd = redis_connect(s->port);
        if (fd >= 0)
            close(fd);
        if (fd >= 0 && (s->sentinel || socket_answers(s->socket)))
            return true; /* the socket is made behind the port */
        nap_ms(5);
    }
    FAIL("the server did not answer");
}

static bool launch(struct redis_server *s)
{
    (void)unlink(s->socket); /* of one that was killed */
    s->pid = fork();
    CHECK(s->pid >= 0);
    if (s->pid == 0)
        run_server(s);
    return answers(s);
}

static void prepare(struct redis_server *s, const char *const *extra)
{
    memset(s, 0, offsetof(struct redis_server, said));
    s->fd = -1;
    for (size_t i = 0; extra != NULL && extra[i] != NULL; i++) {
        CHECK(i + 1 < REDIS_ARGS);
        s->extra[i] = extra[i];
    }
    folder_open(&s->folder);
    snprintf(s->socket, sizeof(s->socket), "%s/s", s->folder.path);
}

static void start(struct redis_server *s)
{
    for (int i = 0; i < TRIES; i++) {
        s->port = redis_port();
        if (s->bus != 0)
            s->bus = redis_port();
        if (launch(s)) {
            snprintf(s->url, sizeof(s->url), "redis://127.0.0.1:%u", s->port);
            return;
        }
    }
    FAIL("no server could be started; its log is in %s", s->folder.path);
}

void redis_start(struct redis_server *s, const char *const *extra)
{
    prepare(s, extra);
    start(s);
}

void redis_kill(struct redis_server *s)
{
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    if (s->pid == 0)
        return;
    CHECK(kill(s->pid, SIGKILL) == 0);
    while (waitpid(s->pid, NULL, 0) < 0)
        CHECK(errno == EINTR);
    s->pid = 0;
}

void redis_again(struct redis_server *s)
{
    redis_kill(s);
    CHECK(launch(s));
}

void redis_stop(struct redis_server *s)
{
    redis_kill(s);
    folder_close(&s->folder);
}

/* ---- asking -------------------------------------------------------------- */

int redis_connect(uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons(port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
        return fd;
    close(fd);
    return -1;
}

static void read_exactly(int fd, char *to, size_t n)
{
    while (n > 0) {
        ssize_t got = recv(fd, to, n, 0);
        if (got <= 0)
            FAIL("the server ended, or did not answer");
        to += got;
        n -= (size_t)got;
    }
}

static void read_line(int fd, char *line, size_t size)
{
    for (size_t n = 0; n < size; n++) {
        read_exactly(fd, line + n, 1);
        if (line[n] == '\n') {
            line[n > 0 && line[n - 1] == '\r' ? n - 1 : n] = 0;
            return;
        }
    }
    FAIL("a line that does not end");
}

/* Behind what was said already; returns its new end. */
static size_t read_answer(struct redis_server *s, size_t at)
{
    char line[4096];
    size_t room = sizeof(s->said) - at;
    read_line(s->fd, line, sizeof(line));
    long n = strtol(line + 1, NULL, 10);
    switch (line[0]) {
    case '+':
    case ':':
        return at + (size_t)snprintf(s->said + at, room, "%s", line + 1);
    case '-':
        return at + (size_t)snprintf(s->said + at, room, "%s", line);
    case '$':
        if (n < 0)
            return at + (size_t)snprintf(s->said + at, room, "(nil)");
        CHECK((size_t)n + 2 < room);
        read_exactly(s->fd, s->said + at, (size_t)n + 2);
        s->said[at + (size_t)n] = 0;
        return at + (size_t)n;
    case '*':
        for (long i = 0; i < n; i++) {
            if (i > 0)
                s->said[at++] = '\n';
            at = read_answer(s, at);
        }
        s->said[at] = 0;
        return at;
    default:
        FAIL("an answer that begins with %c", line[0]);
    }
}

static const char *say(struct redis_server *s, const char *const *words)
{
    char command[8192];
    size_t n = 0;
    while (words[n] != NULL)
        n++;
    size_t size = (size_t)snprintf(command, sizeof(command), "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++) {
        size += (size_t)snprintf(command + size, sizeof(command) - size,
                                 "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
        CHECK(size < sizeof(command));
    }
    char byte;
    if (s->fd >= 0 && recv(s->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        close(s->fd); /* it hung up, as a new master does */
        s->fd = -1;
    }
    if (s->fd < 0)
        s->fd = redis_connect(s->port);
    CHECK(s->fd >= 0);
    CHECK(send(s->fd, command, size, MSG_NOSIGNAL) == (ssize_t)size);
    (void)read_answer(s, 0);
    return s->said;
}

const char *redis_say(struct redis_server *s, ...)
{
    const char *words[WORDS_MAX];
    size_t n = 0;
    va_list args;
    va_start(args, s);
    while ((words[n] = va_arg(args, const char *)) != NULL)
        CHECK(++n < WORDS_MAX);
    va_end(args);
    return say(s, words);
}

void redis_until(struct redis_server *s, const char *text, const char *word,
                 const char *word2, const char *word3)
{
    const char *const words[] = {word, word2, word3, NULL};
    for (int ms = 0; ms < PATIENCE_MS; ms += 10) {
        if (strstr(say(s, words), text) != NULL)
            return;
        nap_ms(10);
    }
    FAIL("%s: no \"%s\" in \"%s\"", word, text, s->said);
}

/* ---- Sentinels ----------------------------------------------------------- */

static void write_sentinel(const struct redis_server *s, uint16_t port)
{
    char path[FOLDER_MAX + 32];
    snprintf(path, sizeof(path), "%s/sentinel.conf", s->folder.path);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    fprintf(f,
            "sentinel monitor main 127.0.0.1 %u 2\n"
            "sentinel down-after-milliseconds main 5000\n"
            "sentinel failover-timeout main 3000\n",
            port);
    CHECK(fclose(f) == 0);
}

void redis_watched_start(struct redis_watched *w, const char *const *extra)
{
    char port[8];
    redis_start(&w->master, extra);
    redis_start(&w->replica, extra);
    snprintf(port, sizeof(port), "%u", w->master.port);
    CHECK_STR_EQ(redis_say(&w->replica, "REPLICAOF", "127.0.0.1", port, NULL),
                 "OK");
    redis_until(&w->replica, "master_link_status:up", "INFO", "replication",
                NULL);
    size_t n = (size_t)snprintf(w->url, sizeof(w->url), "redis-sentinel://");
    for (size_t i = 0; i < REDIS_SENTINELS; i++) {
        struct redis_server *s = &w->sentinels[i];
        prepare(s, NULL);
        s->sentinel = true;
        write_sentinel(s, w->master.port);
        start(s);
        n += (size_t)snprintf(w->url + n, sizeof(w->url) - n, "%s127.0.0.1:%u",
                              i > 0 ? "," : "", s->port);
    }
    snprintf(w->url + n, sizeof(w->url) - n, "/main");
    for (size_t i = 0; i < REDIS_SENTINELS; i++)
        redis_until(&w->sentinels[i], "slaves=1,sentinels=3", "INFO",
                    "sentinel", NULL);
}

void redis_watched_stop(struct redis_watched *w)
{
    for (size_t i = 0; i < REDIS_SENTINELS; i++)
        redis_stop(&w->sentinels[i]);
    redis_stop(&w->replica);
    redis_stop(&w->master);
}

/* ---- cluster ------------------------------------------------------------- */

static void give_slots(struct redis_cluster *c, size_t i)
{
    char from[8], to[8];
    size_t each = SLOTS / REDIS_NODES;
    snprintf(from, sizeof(from), "%zu", i * each);
    snprintf(to, sizeof(to), "%zu",
             i + 1 == REDIS_NODES ? SLOTS - 1 : (i + 1) * each - 1);
    CHECK_STR_EQ(
        redis_say(&c->nodes[i], "CLUSTER", "ADDSLOTSRANGE", from, to, NULL),
        "OK");
}

void redis_cluster_start(struct redis_cluster *c, const char *const *extra)
{
    for (size_t i = 0; i < REDIS_NODES; i++) {
        prepare(&c->nodes[i], extra);
        c->nodes[i].bus = 1;
        start(&c->nodes[i]);
        give_slots(c, i);
        snprintf(c->ids[i], sizeof(c->ids[i]), "%s",
                 redis_say(&c->nodes[i], "CLUSTER", "MYID", NULL));
    }
    for (size_t i = 1; i < REDIS_NODES; i++) {
        char port[8], bus[8];
        snprintf(port, sizeof(port), "%u", c->nodes[0].port);
        snprintf(bus, sizeof(bus), "%u", c->nodes[0].bus);
        CHECK_STR_EQ(redis_say(&c->nodes[i], "CLUSTER", "MEET", "127.0.0.1",
                               port, bus, NULL),
                     "OK");
    }
    for (size_t i = 0; i < REDIS_NODES; i++) {
        redis_until(&c->nodes[i], "cluster_known_nodes:3", "CLUSTER", "INFO",
                    NULL);
        redis_until(&c->nodes[i], "cluster_state:ok", "CLUSTER", "INFO", NULL);
        /* Without full coverage a node is content before it knows all slots. */
        redis_until(&c->nodes[i], "cluster_slots_assigned:16384", "CLUSTER",
                    "INFO", NULL);
    }
    snprintf(c->url, sizeof(c->url), "%s", c->nodes[0].url);
}

void redis_cluster_stop(struct redis_cluster *c)
{
    for (size_t i = 0; i < REDIS_NODES; i++)
        redis_stop(&c->nodes[i]);
}
