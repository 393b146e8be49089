/* SPDX-License-Identifier: MIT */
/* file_default.c - the folder of a user's store, if no address is given.
 *
 * WHY   A command from cron, from a service and by hand must meet, and they
 *       have different environments. So no variable counts, and nothing that
 *       goes away when the user logs out.
 * HOW   The home folder of the passwd entry is asked for, if the kernel of this
 *       machine alone keeps its locks. Else it is /var/tmp, where anybody can
 *       make a folder of that name: those of others are passed over. One that
 *       is ours is looked for first, so that the place stays the same when
 *       others remove theirs.
 * THREADS  any.
 */
#include "store/file/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 16384, TEMPORARY_MAX = 10 };

static int home_place(char *ret_folder, size_t size);
static int open_own(int above, const char *name);
static bool is_own_folder(int above, const char *path);
static int temporary_place(char *ret_folder, size_t size);
static int temporary_name(char *ret_folder, size_t size, unsigned number);

int vow_store_sqlite_default_folder(char *ret_folder, size_t size)
{
    char folder[TEXT_MAX];
    int rc = home_place(folder, sizeof(folder));
    if (rc == VOW_ENOENT)
        rc = temporary_place(folder, sizeof(folder));
    if (rc == 0 && strlen(folder) >= size)
        rc = VOW_E2BIG;
    if (rc == 0)
        memcpy(ret_folder, folder, strlen(folder) + 1);
    return rc;
}

/* VOW_ENOENT: it cannot be there. What is wrong for a while only, as a disk that
 * is full, is found by who uses the folder: the place does not change. */
static int home_place(char *ret_folder, size_t size)
{
    char text[TEXT_MAX];
    struct passwd entry;
    struct passwd *own = NULL;
    int rc = getpwuid_r(geteuid(), &entry, text, sizeof(text), &own);
    bool no_entry = rc == ENOENT || rc == ESRCH || rc == EBADF || rc == EPERM;
    if (rc != 0 && !no_entry) /* some systems say so for a user without one */
        return VOW_EIO;
    if (own == NULL || own->pw_dir == NULL || own->pw_dir[0] != '/')
        return VOW_ENOENT;
    int n = snprintf(ret_folder, size, "%s/.local/state/vow", own->pw_dir);
    if (n < 0 || (size_t)n >= size)
        return VOW_E2BIG;
    int home = open_own(AT_FDCWD, own->pw_dir);
    int local = home < 0 ? -1 : open_own(home, ".local");
    int state = local < 0 ? -1 : open_own(local, "state");
    bool there = state >= 0 && is_own_folder(state, "vow");
    if (state >= 0 && !there)
        there = mkdirat(state, "vow", 0700) == 0 || errno == ENOSPC ||
                errno == EDQUOT || is_own_folder(state, "vow");
    const int all[] = {home, local, state};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i] >= 0)
            (void)close(all[i]);
    return there ? 0 : VOW_ENOENT;
}

/* A folder of ours on a file system of this machine, which is made if it is not
 * there, unless it is the first; else -1. */
static int open_own(int above, const char *name)
{
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    struct stat st;
    if (above != AT_FDCWD)
        (void)mkdirat(above, name, 0700);
    int fd = openat(above, name, flags);
    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
        vow__file_shared_system(fd) == NULL)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

static bool is_own_folder(int above, const char *path)
{
    struct stat st;
    return fstatat(above, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode) && st.st_uid == geteuid();
}

static int temporary_place(char *ret_folder, size_t size)
{
    int rc = 0;
    for (unsigned i = 0; i < TEMPORARY_MAX && rc == 0; i++) {
        rc = temporary_name(ret_folder, size, i);
        if (rc == 0 && is_own_folder(AT_FDCWD, ret_folder))
            return 0;
    }
    for (unsigned i = 0; i < TEMPORARY_MAX && rc == 0; i++) {
        rc = temporary_name(ret_folder, size, i);
        if (rc != 0 || mkdir(ret_folder, 0700) == 0 || errno != EEXIST ||
            is_own_folder(AT_FDCWD, ret_folder))
            return rc;
    }
    return rc == 0 ? VOW_EBUSY : rc;
}

static int temporary_name(char *ret_folder, size_t size, unsigned number)
{
    char end[16] = "";
    if (number > 0)
        (void)snprintf(end, sizeof(end), "-%u", number);
    int n = snprintf(ret_folder, size, "/var/tmp/vow-%lu%s",
                     (unsigned long)geteuid(), end);
    return n < 0 || (size_t)n >= size ? VOW_E2BIG : 0;
}
