/* SPDX-License-Identifier: MIT */
/* poller.c - see poller.h.
 *
 * INVARIANTS
 *   E1  an event of a batch is delivered only if the poller is still watched:
 *       a poller that is closed meanwhile is removed from the rest of the batch
 */
#include "poller.h"
#include "say.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <vow/uv.h>

enum { AT_ONCE = 64 };

static struct {
    int fd;
    uv_poll_t poll;
    struct epoll_event batch[AT_ONCE];
    int at, n; /* next event and number of events, while a batch is delivered */
} pollers = {.fd = -1};

static void on_pollers_ready(uv_poll_t *poll, int status, int events);
static void batch_remove(const struct poller *p);

void poller_open(vow_loop *loop)
{
    pollers.fd = epoll_create1(EPOLL_CLOEXEC);
    if (pollers.fd < 0)
        die(EXIT_BROKEN, "cannot listen for events: %s", strerror(errno));
    (void)uv_poll_init(vow_loop_uv(loop), &pollers.poll, pollers.fd);
    (void)uv_poll_start(&pollers.poll, UV_READABLE, on_pollers_ready);
}

bool poller_watch(struct poller *p, int fd, uint32_t events, poller_fn fn)
{
    struct epoll_event event = {.events = events, .data.ptr = p};
    int what = p->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (events == p->events && fd == p->fd && fn == p->fn)
        return true;
    if (events == 0) {
        batch_remove(p);
        what = EPOLL_CTL_DEL;
    }
    if (epoll_ctl(pollers.fd, what, fd, &event) < 0)
        return false;
    *p = (struct poller){.fd = fd, .fn = fn, .events = events};
    return true;
}

/* Stops watching, and closes the descriptor. EPOLL_CTL_DEL is needed: a child
 * that has not yet called exec may still have the descriptor open, and then
 * close() alone does not remove the descriptor from the epoll set. */
void poller_close(struct poller *p)
{
    batch_remove(p);
    if (p->events != 0)
        (void)epoll_ctl(pollers.fd, EPOLL_CTL_DEL, p->fd, NULL);
    if (p->fd >= 0 && p->fn != NULL)
        (void)close(p->fd);
    *p = (struct poller){.fd = -1};
}

/* Keeps E1. */
static void batch_remove(const struct poller *p)
{
    for (int i = pollers.at; i < pollers.n; i++)
        if (pollers.batch[i].data.ptr == p)
            pollers.batch[i].data.ptr = NULL;
}

static void on_pollers_ready(uv_poll_t *poll, int status, int events)
{
    (void)poll;
    (void)status;
    (void)events;
    pollers.n = epoll_wait(pollers.fd, pollers.batch, AT_ONCE, 0);
    for (pollers.at = 0; pollers.at < pollers.n;) {
        const struct epoll_event *now = &pollers.batch[pollers.at++];
        struct poller *p = now->data.ptr;
        if (p != NULL)
            p->fn(p, now->events);
    }
    pollers.n = 0;
}
