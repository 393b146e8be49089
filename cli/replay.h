/* SPDX-License-Identifier: MIT */
/* replay.h - what a command wrote and how it ended, as bytes for others.
 *
 * HOW   A recording is a head, then pieces in the order in which they were
 *       read, then the end:
 *
 *           "vowr" 1
 *           'o' or 'e', length in 4 bytes (low byte first), that many bytes
 *           ...
 *           'x', exit code    or    's', number of the signal
 *
 *       It can be read as it comes, in pieces that begin and end anywhere.
 *       Whoever reads it trusts nothing: a recording comes from a store, which
 *       others write to.
 */
#ifndef VOW_CLI_REPLAY_H
#define VOW_CLI_REPLAY_H

#include "text.h"

/* How a command ended. */
struct ending {
    bool by_signal;
    int number; /* exit code, or of the signal */
};
/* As a shell says it: 128+n for a signal. */
int ending_code(struct ending e);

/* ---- recording ----------------------------------------------------------- */

/* Zeroed, it is empty. */
struct recording {
    struct text bytes;
    uint64_t kept; /* of what the command wrote */
    size_t piece;  /* where the last one begins; 0: it is complete */
};

/* `fd` is 1 or 2. */
void recording_add(struct recording *r, int fd, const char *at, size_t n);
/* What is there does not change any more: the next bytes are a new piece. */
void recording_cut(struct recording *r);
/* Nothing comes behind it. */
void recording_end(struct recording *r, struct ending e);

/* ---- replaying ----------------------------------------------------------- */

enum replay_state {
    REPLAY_HEAD,
    REPLAY_PIECE,
    REPLAY_BYTES,
    REPLAY_END,
    REPLAY_OVER
};

/* Zeroed, it is at the beginning. */
struct replay {
    enum replay_state state;
    unsigned char head[8]; /* what is there of the one that is being read */
    size_t n_head;
    int fd;        /* of the piece */
    uint32_t left; /* of the piece */
    struct ending end;
};

typedef void (*replay_fn)(int fd, const char *at, size_t n, void *user);

/* Read on; `fn` (may be NULL) gets what the command wrote. NULL, or a sentence
 * that says what is wrong: then there is nothing to go on with. */
const char *replay_feed(struct replay *p, const void *at, size_t n,
                        replay_fn fn, void *user);
/* It was read to its end, which is in p->end. */
bool replay_over(const struct replay *p);

/* Is that a whole recording? NULL and its end, or a sentence. */
const char *replay_check(const void *at, size_t n, struct ending *ret_end);

/* Write one that was checked to stdout and stderr. 0, or an errno. */
int replay_write(const void *at, size_t n);

/* Write all of it, whoever is slow. 0, or an errno. */
int write_whole(int fd, const char *at, size_t n);

#endif
