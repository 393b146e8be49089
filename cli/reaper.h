/* SPDX-License-Identifier: MIT */
/* reaper.h - kills processes that jobs leave behind.
 *
 * WHY   A killed command must not leave grandchildren that go on working. The
 *       kernel kills the children of vow when vow dies, but not the
 *       grandchildren.
 * HOW   Every job has VOW_RUN in the environment, with a mark of this job
 *       alone; processes that the job starts inherit the mark, whatever group
 *       or session they move to. reaper_kill_marked() kills all processes with
 *       the mark, until none is left.
 *       A small process, the reaper process, waits for the end of vow. If vow
 *       dies without reaper_end(), as by SIGKILL, the reaper process kills the
 *       running groups and all marked processes.
 *       A process that leaves its group and clears its environment escapes the
 *       reaper process, but not reaper_kill_children(), when a signal that vow
 *       can catch ends the run: orphans become children of vow, and all
 *       children are killed. But if vow had children at its start, as after
 *       exec by a shell, an orphan may belong to these: then only marked
 *       processes are killed.
 */
#ifndef VOW_CLI_REAPER_H
#define VOW_CLI_REAPER_H

#include "text.h"

#include <sys/types.h>

/* Writes "VOW_RUN=..." for the environment of a job. In a job of another run,
 * the mark is added to the marks of the outer run: so the outer run finds the
 * processes too. */
void reaper_mark(struct text *ret_word, uint64_t seq);

/* Starts the reaper process, once, before the first job. */
void reaper_start(void);
/* Adds and removes the process group of a running job. */
void reaper_add_group(pid_t group);
void reaper_remove_group(pid_t group);
/* Forgets the reaper process if `pid` is the reaper process: the process has
 * ended and was waited for. */
void reaper_forget(pid_t pid);
/* Ends the reaper process without killing any other process. */
void reaper_end(void);

/* Kills the processes with the mark of this run; with `seq`, only of this job.
 * Returns how many. */
int reaper_kill_marked(uint64_t seq);
/* Kills all children of vow, started and adopted, until none is left; does
 * nothing if vow had children at its start. */
void reaper_kill_children(void);

#endif
