/* SPDX-License-Identifier: MIT */
/* replay.h - the output and the end of a command, as bytes for other processes.
 *
 * HOW   A recording is a head, then pieces in the order in which they were
 *       read, then the end:
 *
 *           "vowr" 1
 *           'o' or 'e', length in 4 bytes (low byte first), the bytes
 *           ...
 *           'x', exit code    or    's', number of the signal
 *
 *       A recording can be read as the bytes arrive, in parts that begin and
 *       end anywhere. The reader trusts nothing: a recording comes from a
 *       store, and other users may write to the store.
 */
#ifndef VOW_CLI_REPLAY_H
#define VOW_CLI_REPLAY_H

#include "text.h"

/* The end of a command. */
struct ending {
    bool by_signal;
    int number; /* exit code, or number of the signal */
};
/* Returns the exit code of a shell: 128+n for a signal. */
int ending_code(struct ending e);

/* ---- recording ----------------------------------------------------------- */

/* A recording; zeroed: empty. */
struct recording {
    struct text bytes;
    uint64_t kept; /* bytes of output of the command */
    size_t piece;  /* offset of the last piece; 0: the piece is complete */
};

/* Adds output of the command. `fd` is 1 or 2. */
void recording_add(struct recording *r, int fd, const char *at, size_t n);
/* Completes the last piece: the bytes so far do not change any more, and the
 * next bytes begin a new piece. */
void recording_cut(struct recording *r);
/* Adds the end of the command. */
void recording_end(struct recording *r, struct ending e);

/* ---- replaying ----------------------------------------------------------- */

enum replay_state {
    REPLAY_HEAD,
    REPLAY_PIECE,
    REPLAY_BYTES,
    REPLAY_END,
    REPLAY_OVER
};

/* A reader of a recording; zeroed: at the beginning. */
struct replay {
    enum replay_state state;
    unsigned char head[8]; /* bytes of a head read so far */
    size_t n_head;
    int fd;        /* descriptor of the piece */
    uint32_t left; /* bytes of the piece not yet read */
    struct ending end;
};

typedef void (*replay_fn)(int fd, const char *at, size_t n, void *user);

/* Reads more bytes; `fn` (may be NULL) gets the output of the command. Returns
 * NULL, or an error message: then reading cannot go on. */
const char *replay_feed(struct replay *p, const void *at, size_t n,
                        replay_fn fn, void *user);
/* Returns whether the recording was read to the end, which is in p->end. */
bool replay_over(const struct replay *p);

/* Checks for a whole recording. Returns NULL and the end, or an error
 * message. */
const char *replay_check(const void *at, size_t n, struct ending *ret_end);

/* Writes a checked recording to stdout and stderr. Returns 0 or an errno. */
int replay_write(const void *at, size_t n);

/* Writes all bytes, and waits for a slow reader. Returns 0 or an errno. */
int write_whole(int fd, const char *at, size_t n);

#endif
