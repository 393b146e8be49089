/* SPDX-License-Identifier: MIT */
/* feed.h - writes bytes to the stdin of a command, as fast as the command
 * reads.
 *
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_FEED_H
#define VOW_CLI_FEED_H

#include "poller.h"
#include "text.h"

struct feed;
typedef void (*feed_fn)(struct feed *f);

/* A feed lives in the caller's memory. */
struct feed {
    struct poller poller; /* vow's end; closed when stdin is closed */
    struct text text;
    size_t at;      /* bytes of `text` that were written */
    bool ends;      /* no bytes follow `text` */
    feed_fn hungry; /* called when all bytes were written; may be NULL */
};

/* Opens the pipe. Returns the command's end, which the caller closes, or -1 and
 * errno. */
int feed_open(struct feed *f, feed_fn hungry);
void feed_bytes(struct feed *f, const char *at, size_t n);
/* Marks the end: the command sees the end of the file behind the waiting
 * bytes. */
void feed_end(struct feed *f);

#endif
