/* SPDX-License-Identifier: MIT */
/* vow/store_sqlite.h - a store for the processes of a machine, in a folder.
 *
 * A step blocks the loop for the time of a transaction, and while other
 * processes write. So the authority should have a thread of its own, which is
 * the default.
 */
#ifndef VOW_STORE_SQLITE_H
#define VOW_STORE_SQLITE_H

#include "vow/store.h"

VOW_BEGIN_DECLS

typedef struct vow_sqlite_opts {
    size_t size;         /* set by VOW_SQLITE_OPTS */
    uint64_t request_ms; /* longest wait for other writers; 0: 1000 */
    size_t value_max;    /* bytes of a result; 0: 1 GiB */
    /* Reports a damaged file, set aside under the name `moved_to`, borrowed.
     * May be NULL. */
    void (*on_damage)(const char *moved_to, void *user);
    void *on_damage_user;
} vow_sqlite_opts;
#define VOW_SQLITE_OPTS(...)                                                   \
    (&(const vow_sqlite_opts){.size = sizeof(vow_sqlite_opts), __VA_ARGS__})

/* Opens the store in a folder. A missing folder is made with mode 0700, but not
 * the parent. The future has a vow_store as vow_ptr(). Rejected, with a message
 * that says what to do: VOW_EINVAL (a symbolic link, a folder open to or owned
 * by another user, a network file system, a store in use with the clock of
 * another boot or container), VOW_ESTORE (the folder or file cannot be opened),
 * VOW_ENOMEM. Since 0.1. */
#define vow_store_sqlite_open(loop, folder, opts)                              \
    vow_store_sqlite_open_at(VOW_HERE, (loop), (folder), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2, 3)
vow_future *vow_store_sqlite_open_at(const char *site, vow_loop *loop,
                                     const char *folder,
                                     const vow_sqlite_opts *opts);

/* Writes the default folder of the command `vow`: a folder per user,
 * independent of the environment. The folder is .local/state/vow in the home
 * folder from the user's passwd entry, if the user owns the home folder and the
 * file system is local; else /var/tmp/vow-UID, or vow-UID-1 and so on, the
 * first folder owned by the user. Missing folders are made with mode 0700.
 * Returns 0, VOW_EIO (the passwd entry cannot be read), VOW_E2BIG (`size` is
 * too small), or VOW_EBUSY (all these folders in /var/tmp belong to other
 * users). Blocks. Since 0.1. */
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(1)
int vow_store_sqlite_default_folder(char *ret_folder, size_t size);

VOW_END_DECLS

#endif
