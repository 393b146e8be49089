/* SPDX-License-Identifier: MIT */
/* record.h - what is written of jobs: --log (JSON lines), --joblog (the nine
 * columns of GNU parallel), and reading a log again for --resume.
 *
 * WHY   A log is what tomorrow's run goes by: one line per job in one write, so
 *       that a crash tears at most the last one; a torn last line is cut off; a
 *       second run on the same log is refused; a full disk is told.
 * HOW   The log is locked (flock) for the run. Resuming reads it once into a
 *       table from the hash of a job's command to how many of its copies ended
 *       well and how many failed: 24 bytes or so per different command.
 */
#ifndef VOW_CLI_RECORD_H
#define VOW_CLI_RECORD_H

#include "text.h"

#include <stdio.h>
#include <sys/resource.h>

enum end_kind {
    END_EXIT,    /* by itself: `code` */
    END_SIGNAL,  /* by a signal: `code` is its number */
    END_TIMEOUT, /* by --timeout or --deadline; `code` as for END_SIGNAL, or
                     its exit code with `exited` */
    END_NOT_RUN  /* never started: `code` is 126 or 127 or 125 */
};

struct end {
    enum end_kind kind;
    int code;
    bool exited; /* it ended by itself with `code` after it was told to stop */
};

/* What is known of a job when it has ended for good. */
struct record {
    uint64_t seq;
    uint32_t slot;
    uint32_t tries;
    uint64_t start_us; /* of the last try, since 1970 */
    uint64_t wall_us;  /* how long that took */
    struct end end;
    uint64_t out_bytes; /* it wrote to stdout */
    uint64_t err_bytes;
    struct rusage usage;
    unsigned char hash[16];
    bool stopped; /* the run was ended: it does not count as done */
    bool again;   /* it takes the place of one that failed in an earlier run */
    struct span command; /* as template_show() gives it */
};

/* ---- writing ------------------------------------------------------------- */

struct log;

/* Open or make a JSON log: locked, a torn last line cut off. `resume`: keep
 * what is there; else a log that is not empty is refused. NULL and a sentence
 * (owned by the caller): "run.jsonl is in use by another run (pid 123)",
 * "run.jsonl is not empty; add --resume to go on with it, or remove it". */
struct log *log_open(const char *path, bool resume, char **ret_error);
/* One line; 0 or an errno: then the log is as it was before. */
int log_write(struct log *l, const struct record *r);
/* Returns what close said: 0 or an errno. */
int log_close(struct log *l);

/* The joblog: a header line if the file is empty, then tab-separated lines
 * Seq Host Starttime JobRuntime Send Receive Exitval Signal Command. The host
 * is ":". Exitval is the exit code, 128+n with Signal n for a killed job, and
 * never 0 for one that timed out. A command with newlines or tabs is written
 * as $'...'. */
FILE *joblog_open(const char *path, bool append, char **ret_error);
int joblog_write(FILE *f, const struct record *r);
/* What it put between $' and '; false: it did not. */
bool joblog_decode(struct text *t, struct span s);

/* ---- resuming ------------------------------------------------------------ */

struct done;

/* What a log says was done. Lines that are not ours are an error with their
 * line number; the torn last one is not. */
struct done *done_read(const char *path, char **ret_error);
/* The same for a joblog of ours or of GNU parallel's, by its Command column:
 * then jobs are asked by done_take_command(). */
struct done *done_read_joblog(const char *path, char **ret_error);
/* The next copy of a job with this hash: has it been done? Each call takes one
 * copy. `failed_too`: failed ones count as done as well (--resume); else only
 * those that ended well (--resume-failed runs the failed ones again). */
bool done_take(struct done *d, const unsigned char hash[16], bool failed_too);
/* Take one copy that failed, if there is: for --resume-failed, so that what
 * runs again is recorded as such. */
bool done_take_failed(struct done *d, const unsigned char hash[16]);
bool done_take_command(struct done *d, struct span command, bool failed_too);
void done_free(struct done *d);

#endif
