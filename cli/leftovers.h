/* SPDX-License-Identifier: MIT */
/* leftovers.h - finds stores of this user in the default folders of earlier
 * versions, or of other settings of the environment.
 *
 * WHY   A lock in one of these stores does not exclude a lock in the
 *       present store.
 */
#ifndef VOW_CLI_LEFTOVERS_H
#define VOW_CLI_LEFTOVERS_H

/* `pid` is a process that uses the store in the folder; 0: no process does. */
typedef void (*leftover_fn)(const char *folder, long pid, void *user);

/* Calls `fn` for each such store, except for the folder `used`. */
void leftovers_find(const char *used, leftover_fn fn, void *user);

#endif
