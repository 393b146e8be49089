/* SPDX-License-Identifier: MIT */
/* jobserver.c - see jobserver.h.
 *
 * --jobserver-auth=R,W or --jobserver-fds=R,W are descriptors of a pipe,
 * --jobserver-auth=fifo:PATH is a named pipe. A token is one byte; the same
 * byte is given back.
 */
#include "jobserver.h"
#include "poller.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct {
    int in, out;
    bool open;
    struct poller poller;
    struct text tokens; /* tokens that vow holds, a byte each */
    jobserver_fn changed;
    uint64_t running, waiting;
    vow_loop *loop;
    bool fresh;     /* a token was taken, and no job has started since */
    vow_call stale; /* gives the token back if no job has started by then */
} server;

enum { FRESH_MS = 50 };

static bool server_find(char *ret_path, size_t room, int *ret_in, int *ret_out);
static int server_reopen(int fd, int flags);
static void tokens_balance(void *user);
static void on_token_readable(struct poller *poller, uint32_t events);
static void token_give_back(void);

bool jobserver_open(vow_loop *loop, jobserver_fn changed)
{
    char path[PATH_MAX];
    int in = -1, out = -1;
    if (!server_find(path, sizeof(path), &in, &out))
        return false;
    if (in < 0) {
        server.in = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        server.out = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    } else {
        server.in = server_reopen(in, O_RDONLY);
        server.out = server_reopen(out, O_WRONLY);
    }
    if (server.in < 0 || server.out < 0)
        return false; /* no + before the recipe: not for vow */
    server.loop = loop;
    server.changed = changed;
    server.open = true;
    return true;
}

static bool server_find(char *ret_path, size_t room, int *ret_in, int *ret_out)
{
    const char *flags = getenv("MAKEFLAGS");
    const char *last = NULL;
    static const char *const names[] = {"--jobserver-auth=",
                                        "--jobserver-fds="};
    for (size_t i = 0; flags != NULL && i < 2; i++)
        for (const char *at = flags; (at = strstr(at, names[i])) != NULL;) {
            at += strlen(names[i]);
            last = at;
        }
    if (last == NULL)
        return false;
    if (strncmp(last, "fifo:", 5) == 0) {
        size_t n = strcspn(last + 5, " ");
        if (n == 0 || n >= room)
            return false;
        memcpy(ret_path, last + 5, n);
        ret_path[n] = '\0';
        return true;
    }
    char *end;
    *ret_in = (int)strtol(last, &end, 10);
    if (end == last || *end != ',')
        return false;
    *ret_out = (int)strtol(end + 1, &end, 10);
    return *ret_in >= 0 && *ret_out >= 0;
}

static int server_reopen(int fd, int flags)
{
    struct stat st;
    char path[32];
    int own = fcntl(fd, F_GETFD);
    if (own < 0 || (own & FD_CLOEXEC) != 0 || fstat(fd, &st) < 0 ||
        !S_ISFIFO(st.st_mode))
        return -1; /* not a pipe inherited from make */
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, flags | O_NONBLOCK | O_CLOEXEC);
}

void jobserver_want(uint64_t running, uint64_t waiting)
{
    if (!server.open)
        return;
    server.running = running;
    server.waiting = waiting;
    server.fresh = server.fresh && running < server.tokens.n + 1;
    tokens_balance(NULL);
}

/* Takes and gives back tokens. One job needs no token. A token just taken is
 * kept for FRESH_MS: the job for the token is about to start. */
static void tokens_balance(void *user)
{
    uint64_t places = server.tokens.n + 1;
    if (user != NULL)
        server.fresh = false;
    while (!server.fresh && places > server.running && server.tokens.n > 0) {
        token_give_back();
        places--;
    }
    bool want = server.waiting > 0 && server.running >= places;
    if (want)
        (void)poller_watch(&server.poller, server.in, EPOLLIN,
                           on_token_readable);
    else if (server.poller.events != 0)
        (void)poller_watch(&server.poller, server.in, 0, on_token_readable);
}

static void on_token_readable(struct poller *poller, uint32_t events)
{
    char token;
    (void)events;
    if (read(poller->fd, &token, 1) != 1)
        return; /* another child of make took the token */
    text_add(&server.tokens, &token, 1);
    server.fresh = true;
    vow_call_at(&server.stale, server.loop,
                vow_loop_due_ns(server.loop, FRESH_MS), tokens_balance,
                &server);
    (void)poller_watch(poller, poller->fd, 0, on_token_readable);
    server.changed((uint32_t)server.tokens.n + 1);
}

static void token_give_back(void)
{
    char token = server.tokens.at[--server.tokens.n];
    while (write(server.out, &token, 1) < 0 && errno == EINTR)
        ;
    if (server.open)
        server.changed((uint32_t)server.tokens.n + 1);
}

void jobserver_close(void)
{
    if (!server.open)
        return;
    server.open = false;
    (void)vow_call_stop(&server.stale);
    while (server.tokens.n > 0)
        token_give_back();
    poller_close(&server.poller);
}
