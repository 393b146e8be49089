/* SPDX-License-Identifier: MIT */
/* poller.c - see poller.h.
 *
 * INVARIANTS
 *   E1  an event of a batch is told only if its poller still listens: an poller that
 *       is closed meanwhile is struck from the rest of the batch
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
    int at, n; /* of the batch, while it is told */
} ears = {.fd = -1};

static void on_ready(uv_poll_t *poll, int status, int events);
static void strike(const struct poller *e);

void poller_open(vow_loop *loop)
{
    ears.fd = epoll_create1(EPOLL_CLOEXEC);
    if (ears.fd < 0)
        die(EXIT_BROKEN, "cannot listen for events: %s", strerror(errno));
    (void)uv_poll_init(vow_loop_uv(loop), &ears.poll, ears.fd);
    (void)uv_poll_start(&ears.poll, UV_READABLE, on_ready);
}

bool poller_watch(struct poller *e, int fd, uint32_t events, poller_fn fn)
{
    struct epoll_event event = {.events = events, .data.ptr = e};
    int what = e->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (events == e->events && fd == e->fd && fn == e->fn)
        return true;
    if (events == 0) {
        strike(e);
        what = EPOLL_CTL_DEL;
    }
    if (epoll_ctl(ears.fd, what, fd, &event) < 0)
        return false;
    *e = (struct poller){.fd = fd, .fn = fn, .events = events};
    return true;
}

/* A child that is about to call exec may have it open for a moment longer: so
 * closing alone would not always take it out. */
void poller_close(struct poller *e)
{
    strike(e);
    if (e->events != 0)
        (void)epoll_ctl(ears.fd, EPOLL_CTL_DEL, e->fd, NULL);
    if (e->fd >= 0 && e->fn != NULL)
        (void)close(e->fd);
    *e = (struct poller){.fd = -1};
}

/* Keeps E1. */
static void strike(const struct poller *e)
{
    for (int i = ears.at; i < ears.n; i++)
        if (ears.batch[i].data.ptr == e)
            ears.batch[i].data.ptr = NULL;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    (void)poll;
    (void)status;
    (void)events;
    ears.n = epoll_wait(ears.fd, ears.batch, AT_ONCE, 0);
    for (ears.at = 0; ears.at < ears.n;) {
        const struct epoll_event *now = &ears.batch[ears.at++];
        struct poller *e = now->data.ptr;
        if (e != NULL)
            e->fn(e, now->events);
    }
    ears.n = 0;
}
