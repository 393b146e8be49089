/* SPDX-License-Identifier: MIT */
/* role.h - report how a result came about: -v and --role-fd. */
#ifndef VOW_CLI_ROLE_H
#define VOW_CLI_ROLE_H

#include "shared_options.h"

/* Returns "host:pid" of this process. */
const char *role_us(void);

/* Prints the role of the caller with -v, and writes JSON to the descriptor of
 * --role-fd. `label` names the work for -v; `step` is the step of a pipeline,
 * or NULL. */
void role_tell(const struct shared *s, const char *label, const char *step,
               const vow_share_info *info);

#endif
