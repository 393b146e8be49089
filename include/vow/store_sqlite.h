/* SPDX-License-Identifier: MIT */
/* vow/store_sqlite.h - a store for the processes of one machine, in a folder.
 *
 * Its steps block for the time of a transaction, and while others write: put
 * the authority on a thread of its own, which is the default.
 */
#ifndef VOW_STORE_SQLITE_H
#define VOW_STORE_SQLITE_H

#include "vow/store.h"

VOW_BEGIN_DECLS

typedef struct vow_sqlite_opts {
    size_t size;         /* set by VOW_SQLITE_OPTS */
    uint64_t request_ms; /* longest wait for others that write; 0: 1000 */
    size_t value_max;    /* of a result; 0: 1 GiB */
    /* A damaged file was set aside under this name; borrowed. May be NULL. */
    void (*on_damage)(const char *moved_to, void *user);
    void *on_damage_user;
} vow_sqlite_opts;
#define VOW_SQLITE_OPTS(...)                                                   \
    (&(const vow_sqlite_opts){.size = sizeof(vow_sqlite_opts), __VA_ARGS__})

/* Open the store in a folder, which is made with mode 0700 if it is not there
 * (its parent must be). The future has a vow_store as vow_ptr(). Rejected, each
 * with a sentence that says what to do: VOW_EINVAL (a symbolic link, a folder
 * that others may write to or that is another's, a network file system, another
 * boot's or container's clock in use), VOW_ESTORE (cannot be opened). Since
 * 0.1. */
#define vow_store_sqlite_open(loop, folder, opts)                              \
    vow_store_sqlite_open_at(VOW_HERE, (loop), (folder), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_store_sqlite_open_at(const char *site, vow_loop *loop,
                                     const char *folder,
                                     const vow_sqlite_opts *opts);

/* The folder that the command uses by default: one for each user, whatever the
 * environment is. It is .local/state/vow in the home folder of the user's entry
 * in passwd, if that is the user's and on a file system of this machine; else
 * vow-UID in /var/tmp, or vow-UID-1 and so on, the first that is the user's.
 * What is not there is made, with mode 0700. Returns 0, VOW_EIO (the entry
 * cannot be read), VOW_E2BIG (`size` is too small), or VOW_EBUSY (in /var/tmp
 * all of them belong to others). Blocks. Since 0.1. */
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(1)
int vow_store_sqlite_default_folder(char *ret_folder, size_t size);

VOW_END_DECLS

#endif
