/* SPDX-License-Identifier: MIT */
/* reaper.h - nothing of ours stays behind.
 *
 * WHY   A killed command must not leave grandchildren that work on. The kernel
 *       ends our children with us, but not theirs.
 * HOW   Every job has VOW_RUN in its environment, a word of this job alone, and
 *       what it starts inherits that, whatever group or session it goes to. To
 *       hunt is to kill all processes that have the word, until there are none.
 *       A small process of ours waits for our end: if we go without a farewell,
 *       as by SIGKILL, it kills the groups that run, and hunts. What leaves its
 *       group and clears its environment escapes the hunt. It does not escape
 *       the end by a signal we can catch: orphans become our children, and all
 *       of these are killed then. But if we had children when we began, as a
 *       shell has that called exec, an orphan may be one of theirs: then only
 *       what has the word is killed.
 */
#ifndef VOW_CLI_REAPER_H
#define VOW_CLI_REAPER_H

#include "text.h"

#include <sys/types.h>

/* Write "VOW_RUN=..." for the environment of a job. A run inside a job of
 * another run adds to what is there: so the outer one finds its jobs too. */
void reaper_mark(struct text *ret_word, uint64_t seq);

/* Start the guardian, once, before the first job. */
void reaper_start(void);
/* The group of a job, while it runs. */
void reaper_add_group(pid_t group);
void reaper_remove_group(pid_t group);
/* That process has ended and was waited for. */
void reaper_forget(pid_t pid);
/* Farewell: it goes without hunting. */
void reaper_end(void);

/* Kill what has the word; with `seq`, only of that job. Returns how many. */
int reaper_kill_marked(uint64_t seq);
/* Kill all children that are left, started and adopted, until none is; nothing
 * if we had children before. */
void reaper_kill_children(void);

#endif
