/* SPDX-License-Identifier: MIT */
/* role.h - telling how a result came about: -v and --role-fd. */
#ifndef VOW_CLI_ROLE_H
#define VOW_CLI_ROLE_H

#include "shared_options.h"

/* "host:pid" of ourselves. */
const char *role_us(void);

/* `label`: what it was; `step`: of a pipeline, or NULL. */
void role_tell(const struct shared *s, const char *label, const char *step,
               const vow_share_info *info);

#endif
