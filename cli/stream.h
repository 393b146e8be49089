/* SPDX-License-Identifier: MIT */
/* stream.h - the output of a job on one descriptor, from the pipe to vow's
 * output.
 *
 * HOW   Kept (group output): up to SPILL bytes in memory, then in an unlinked
 *       file, so that only the disk limits the output of a job. By lines: whole
 *       lines go out as they arrive, with a tag in front; a slow reader stops
 *       the job, not vow. The output of a job that has written much may flow:
 *       the bytes are passed on as they arrive; meanwhile other jobs with much
 *       output wait, because vow's own output is the bottleneck. Reading stops
 *       when the job has ended and the pipe is empty: later output of a daemon
 *       that the job left behind is not output of the job.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_STREAM_H
#define VOW_CLI_STREAM_H

#include "poller.h"
#include "text.h"

struct stream {
    struct poller poller; /* vow's end of the pipe */
    int target;           /* 1 or 2 */
    bool by_lines;
    bool by_hand;     /* splice to the file has failed */
    bool flows;       /* new bytes are passed on at once */
    struct text tag;  /* text before each line; empty: none */
    struct text text; /* kept bytes, or the beginning of a line */
    int file;         /* file of kept bytes; -1: all are in `text` */
    uint64_t in_file;
    uint64_t bytes;  /* bytes written by the job so far */
    bool in_line;    /* a line without its end was written */
    uint64_t number; /* unique number of the stream */
    int error;       /* errno of the file: later bytes are lost; 0: none */
    struct stream *next_stopped;
};

/* Sets the loop. `may_flow` is called repeatedly for a stream with many kept
 * bytes. */
void streams_open(vow_loop *loop, bool (*may_flow)(const struct stream *s));
/* Returns the flowing stream; NULL: none. */
const struct stream *streams_flowing(void);

/* Returns a stream without a pipe, for bytes that are only kept and emitted. */
struct stream stream_of(int target);
/* Opens a pipe. Returns the job's end, which the caller closes after the start,
 * or -1 and errno. */
int stream_open(struct stream *s, int target);
/* Keeps all bytes in this file from the start (--results). The file is
 * moved. */
void stream_keep_in(struct stream *s, int file);
/* Keeps bytes behind the others; an errno is then in `error`. */
void stream_keep(struct stream *s, const char *at, size_t n);
/* Reads the rest after the end of the job, and closes the pipe. */
void stream_end(struct stream *s);
/* Frees the kept bytes. */
void stream_drop(struct stream *s);
/* Passes the kept bytes to emit_text() or emit_file(); with a tag, line by
 * line. */
void stream_emit(struct stream *s);
/* Moves the kept bytes from memory to a file. */
void stream_spill(struct stream *s);
/* Returns the number of open files with kept bytes. */
size_t streams_in_files(void);
/* Resumes stopped streams when few bytes wait to be written. */
void streams_go_on(void);

/* Returns the kept bytes chunk by chunk, for --json; NULL at the end. */
const char *stream_chunk(struct stream *s, uint64_t *at, size_t *ret_n);

/* Returns an unlinked file in TMPDIR; -1 and errno. */
int temp_file(void);

#endif
