/* SPDX-License-Identifier: MIT */
/* results.h - a job's output for other programs: --results DIR and --json.
 *
 *   DIR/SEQ/stdout  stderr   what it wrote (of the last try; of all tries)
 *   DIR/SEQ/command exit     its command line, and how it ended: a number
 */
#ifndef VOW_CLI_RESULTS_H
#define VOW_CLI_RESULTS_H

#include "job.h"

/* Make the folder; ends the program with a sentence if that fails. */
void results_open(const char *dir);
/* Before a try: its streams go to files. */
void results_begin(struct job *j, const char *dir);
/* Its command and exit: 0, or an errno. */
int results_end(struct job *j, const char *dir, struct span command);

/* One line of JSON on stdout, with stdout and stderr as strings: 0, or the errno
 * of the file in which it waits; then nothing of it is written. */
int results_json(struct job *j, const struct record *r);

#endif
