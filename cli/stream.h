/* SPDX-License-Identifier: MIT */
/* stream.h - what a job writes to one descriptor, from the pipe to our output.
 *
 * HOW   Kept (group output): up to SPILL bytes in memory, then in an unlinked
 *       file, so that a job is limited by the disk alone. By lines: whole lines
 *       go out as they come, with a tag in front; a reader that is slow stops
 *       the job, not us. A job that has written a lot may flow: it is passed on
 *       as it comes, and while it does, others that write a lot wait, because
 *       our own output is what there is not enough of. Nothing of a job's is
 *       read once it has ended and its pipe is empty: what a daemon it left
 *       writes later is not its output.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_STREAM_H
#define VOW_CLI_STREAM_H

#include "poller.h"
#include "text.h"

struct stream {
    struct poller poller; /* of our end of the pipe */
    int target;           /* 1 or 2 */
    bool by_lines;
    bool by_hand;     /* the file takes no splice */
    bool flows;       /* what was kept is out, the rest goes out as it comes */
    struct text tag;  /* in front of each line; empty: none */
    struct text text; /* kept, or the beginning of a line */
    int file;         /* -1: it all fits in `text` */
    uint64_t in_file;
    uint64_t bytes;  /* written by the job so far */
    bool in_line;    /* part of a line went out without its end */
    uint64_t number; /* of its own */
    int error;       /* of the file: what came later is lost */
    struct stream *next_stopped;
};

/* `may_flow` is asked, again and again, of a stream that has kept a lot. */
void streams_open(vow_loop *loop, bool (*may_flow)(const struct stream *s));
/* The one that flows; NULL: none. */
const struct stream *streams_flowing(void);

/* One of our own, for bytes that are only kept and emitted. */
struct stream stream_of(int target);
/* A pipe; returns the job's end, for the caller to close when it has started,
 * or -1 and errno. */
int stream_open(struct stream *s, int target);
/* Everything goes to this file from the start (--results); moved. */
void stream_keep_in(struct stream *s, int file);
/* Keep these bytes behind the others; what is wrong is then in `error`. */
void stream_keep(struct stream *s, const char *at, size_t n);
/* The job has ended: read what is left, close the pipe. */
void stream_end(struct stream *s);
/* Forget what was kept. */
void stream_drop(struct stream *s);
/* Hand what was kept to emit_text() or emit_file(); with a tag, by lines. */
void stream_emit(struct stream *s);
/* Into memory that is bounded: put what is kept into a file. */
void stream_spill(struct stream *s);
/* Files that are open for what is kept. */
size_t streams_in_files(void);
/* All streams by lines may go on when little waits to be written. */
void streams_go_on(void);

/* The kept bytes one chunk after the other, for --json: NULL at the end. */
const char *stream_chunk(struct stream *s, uint64_t *at, size_t *ret_n);

/* An unlinked file in TMPDIR; -1 and errno. */
int temp_file(void);

#endif
