/* SPDX-License-Identifier: MIT */
/* leftovers.h - stores of this user in places where vow kept them by default
 * before, or would keep them in other circumstances.
 *
 * WHY   A lock that is held in one of them does not exclude one here.
 */
#ifndef VOW_CLI_LEFTOVERS_H
#define VOW_CLI_LEFTOVERS_H

/* `pid` is a process that uses the store in the folder; 0: nobody does. */
typedef void (*leftover_fn)(const char *folder, long pid, void *user);

/* Tell of each but the one that is used. */
void leftovers_find(const char *used, leftover_fn fn, void *user);

#endif
