/* SPDX-License-Identifier: MIT */
/* feed.h - bytes into the stdin of a command, as fast as it reads them.
 *
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_FEED_H
#define VOW_CLI_FEED_H

#include "poller.h"
#include "text.h"

struct feed;
typedef void (*feed_fn)(struct feed *f);

/* In the caller's memory. */
struct feed {
    struct poller poller; /* of our end; closed when nobody reads it any more */
    struct text text;
    size_t at;      /* what was written of it */
    bool ends;      /* nothing comes behind it */
    feed_fn hungry; /* all was written; may be NULL */
};

/* Returns the command's end, for the caller to close; -1 and errno. */
int feed_open(struct feed *f, feed_fn hungry);
void feed_bytes(struct feed *f, const char *at, size_t n);
/* It has read all there is when it has read what waits. */
void feed_end(struct feed *f);

#endif
