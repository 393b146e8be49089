/* SPDX-License-Identifier: MIT */
/* jobserver.c - see jobserver.h.
 *
 * --jobserver-auth=R,W or --jobserver-fds=R,W are descriptors of a pipe,
 * --jobserver-auth=fifo:PATH is a named one. A token is one byte, which goes
 * back as it came.
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
    struct text tokens; /* those we have */
    jobserver_fn changed;
    uint64_t running, waiting;
    vow_loop *loop;
    bool fresh;     /* a token was taken, and no job has begun since */
    vow_call stale; /* it goes back unless one has begun by then */
} server;

enum { FRESH_MS = 50 };

static bool find(char *ret_path, size_t room, int *ret_in, int *ret_out);
static int again(int fd, int flags);
static void balance(void *user);
static void on_token(struct poller *e, uint32_t events);
static void give_back(void);

bool jobserver_open(vow_loop *loop, jobserver_fn changed)
{
    char path[PATH_MAX];
    int in = -1, out = -1;
    if (!find(path, sizeof(path), &in, &out))
        return false;
    if (in < 0) {
        server.in = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        server.out = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    } else {
        server.in = again(in, O_RDONLY);
        server.out = again(out, O_WRONLY);
    }
    if (server.in < 0 || server.out < 0)
        return false; /* make did not mean us: no + before the recipe */
    server.loop = loop;
    server.changed = changed;
    server.open = true;
    return true;
}

static bool find(char *ret_path, size_t room, int *ret_in, int *ret_out)
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

static int again(int fd, int flags)
{
    struct stat st;
    char path[32];
    int own = fcntl(fd, F_GETFD);
    if (own < 0 || (own & FD_CLOEXEC) != 0 || fstat(fd, &st) < 0 ||
        !S_ISFIFO(st.st_mode))
        return -1; /* not what make has given us */
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
    balance(NULL);
}

/* One place is ours without a token. A token just taken is kept for a moment:
 * the job that is to use it is on its way. */
static void balance(void *user)
{
    uint64_t places = server.tokens.n + 1;
    if (user != NULL)
        server.fresh = false;
    while (!server.fresh && places > server.running && server.tokens.n > 0) {
        give_back();
        places--;
    }
    bool want = server.waiting > 0 && server.running >= places;
    if (want)
        (void)poller_watch(&server.poller, server.in, EPOLLIN, on_token);
    else if (server.poller.events != 0)
        (void)poller_watch(&server.poller, server.in, 0, on_token);
}

static void on_token(struct poller *e, uint32_t events)
{
    char token;
    (void)events;
    if (read(e->fd, &token, 1) != 1)
        return; /* another make was faster */
    text_add(&server.tokens, &token, 1);
    server.fresh = true;
    vow_call_at(&server.stale, server.loop,
                vow_loop_due_ns(server.loop, FRESH_MS), balance, &server);
    (void)poller_watch(e, e->fd, 0, on_token);
    server.changed((uint32_t)server.tokens.n + 1);
}

static void give_back(void)
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
        give_back();
    poller_close(&server.poller);
}
