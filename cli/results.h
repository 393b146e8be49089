/* SPDX-License-Identifier: MIT */
/* results.h - a job's output for other programs: --results DIR and --json.
 *
 *   DIR/SEQ/stdout   output of the last attempt
 *   DIR/SEQ/stderr   output of all attempts
 *   DIR/SEQ/command  the command line
 *   DIR/SEQ/exit     the exit code, a number
 */
#ifndef VOW_CLI_RESULTS_H
#define VOW_CLI_RESULTS_H

#include "job.h"

/* Makes the folder. A failure ends the program with a message. */
void results_open(const char *dir);
/* Begins an attempt: opens the files for stdout and stderr of the job. */
void results_begin(struct job *j, const char *dir);
/* Writes the files `command` and `exit`. Returns 0 or an errno. */
int results_end(struct job *j, const char *dir, struct span command);

/* Writes a line of JSON to stdout, with stdout and stderr of the job as
 * strings. Returns 0, or the errno of the temporary file for the line; then
 * nothing is written. */
int results_json(struct job *j, const struct record *r);

#endif
