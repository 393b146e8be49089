/* SPDX-License-Identifier: MIT */
/* feed.c - see feed.h.
 *
 * INVARIANTS
 *   F1  while bytes wait, the poller watches the pipe
 */
#include "feed.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void on_feed_writable(struct poller *poller, uint32_t events);
static void feed_watch_or_close(struct feed *f);

int feed_open(struct feed *f, feed_fn hungry)
{
    int ends[2];
    *f = (struct feed){.hungry = hungry, .poller.fd = -1};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    (void)fcntl(ends[0], F_SETFL, 0); /* the command's end blocks */
    (void)poller_watch(&f->poller, ends[1], EPOLLOUT, on_feed_writable);
    return ends[0];
}

void feed_bytes(struct feed *f, const char *at, size_t n)
{
    if (f->poller.fd < 0)
        return; /* the command does not read */
    text_add(&f->text, at, n);
    feed_watch_or_close(f);
}

void feed_end(struct feed *f)
{
    f->ends = true;
    feed_watch_or_close(f);
}

/* Keeps F1. */
static void feed_watch_or_close(struct feed *f)
{
    if (f->poller.fd < 0)
        return;
    if (f->at == f->text.n && f->ends)
        poller_close(&f->poller);
    else
        (void)poller_watch(&f->poller, f->poller.fd,
                           f->at < f->text.n ? (uint32_t)EPOLLOUT : 0,
                           on_feed_writable);
}

static void on_feed_writable(struct poller *poller, uint32_t events)
{
    struct feed *f = (struct feed *)(void *)poller; /* first member */
    (void)events;
    size_t left = f->text.n - f->at;
    ssize_t n = left == 0 ? 0 : write(poller->fd, f->text.at + f->at, left);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0)
        poller_close(poller); /* the command has closed its stdin */
    else
        f->at += (size_t)n;
    if (n >= 0 && f->at < f->text.n)
        return;
    text_free(&f->text);
    f->at = 0;
    feed_watch_or_close(f);
    if (f->hungry != NULL && !f->ends)
        f->hungry(f);
}
