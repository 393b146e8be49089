/* SPDX-License-Identifier: MIT */
/* record.h - records of jobs: --log (JSON lines), --joblog (the nine columns of
 * GNU parallel), and reading a log for --resume.
 *
 * WHY   A later run depends on the log. So a line is written per job by one
 *       write, and a crash tears at most the last line; a torn last line is cut
 *       off; a second run on the same log is refused; a full disk is reported.
 * HOW   The log is locked (flock) during the run. --resume reads the log once
 *       into a table from the hash of a command to the numbers of copies of the
 *       job that succeeded and failed: 32 to 64 bytes per different command.
 */
#ifndef VOW_CLI_RECORD_H
#define VOW_CLI_RECORD_H

#include "text.h"

#include <stdio.h>
#include <sys/resource.h>

enum end_kind {
    END_EXIT,    /* exited with `code` */
    END_SIGNAL,  /* killed by signal `code` */
    END_TIMEOUT, /* timed out: `code` is a signal, or an exit code if
                    `exited` */
    END_NOT_RUN  /* never started: `code` is 125, 126 or 127 */
};

struct end {
    enum end_kind kind;
    int code;
    bool exited; /* the job exited with `code` after a signal to stop */
};

/* The record of a job that has ended for good. */
struct record {
    uint64_t seq;
    uint32_t slot;
    uint32_t tries;
    uint64_t start_us; /* start of the last attempt, microseconds since 1970 */
    uint64_t wall_us;  /* duration of the last attempt */
    struct end end;
    uint64_t out_bytes; /* bytes written to stdout */
    uint64_t err_bytes;
    struct rusage usage;
    unsigned char hash[16];
    bool stopped;        /* the run was ended: does not count as done */
    bool again;          /* replaces a failed job of an earlier run */
    struct span command; /* text of template_show() */
};

/* ---- writing ------------------------------------------------------------- */

struct log;

/* Opens or creates a JSON log, locks the log, and cuts off a torn last line.
 * With `resume` the lines are kept; without, a log with lines is refused. On
 * failure returns NULL and an error (owned by the caller): "run.jsonl is in use
 * by another run (pid 123)", "run.jsonl is not empty; add --resume to go on
 * with it, or remove it". */
struct log *log_open(const char *path, bool resume, char **ret_error);
/* Writes a line. Returns 0 or an errno: then the log is unchanged, or has a
 * torn line and takes no more lines. */
int log_write(struct log *l, const struct record *r);
/* Returns 0 or the errno of close(). */
int log_close(struct log *l);

/* Opens the joblog: a header line if the file is empty, then tab-separated
 * lines Seq Host Starttime JobRuntime Send Receive Exitval Signal Command. The
 * host is ":". Exitval is the exit code, 128+n with Signal n for a killed job,
 * and never 0 for a job that timed out. A command with newlines or tabs is
 * written as $'...'. */
FILE *joblog_open(const char *path, bool append, char **ret_error);
int joblog_write(FILE *f, const struct record *r);
/* Decodes the text that joblog_write() put between $' and '. Returns false if
 * the text is not from joblog_write(). */
bool joblog_decode(struct text *t, struct span s);

/* ---- resuming ------------------------------------------------------------ */

struct done;

/* Reads the finished jobs of a log. A line that vow did not write is an error
 * with the line number; a torn last line is not. */
struct done *done_read(const char *path, char **ret_error);
/* Reads the finished jobs of a joblog of vow or GNU parallel, by the Command
 * column; look up jobs with done_take_command(). */
struct done *done_read_joblog(const char *path, char **ret_error);
/* Returns whether a copy of the job with this hash was done, and takes the
 * copy: each call takes one. `failed_too`: a failed copy counts as done
 * (--resume); else only a successful copy (--resume-failed runs failed jobs
 * again). */
bool done_take(struct done *d, const unsigned char hash[16], bool failed_too);
/* Takes a failed copy, if there is any. For --resume-failed, so that the new
 * run of the job is recorded as a repetition. */
bool done_take_failed(struct done *d, const unsigned char hash[16]);
bool done_take_command(struct done *d, struct span command, bool failed_too);
void done_free(struct done *d);

#endif
