/* SPDX-License-Identifier: MIT */
/* file_folder.c - a folder that can be trusted, or a sentence that says why
 * it cannot.
 *
 * WHY   Whoever can write to the folder can give out false results, and locks
 *       that are not held by one kernel hold nothing.
 * HOW   It must be a folder and no link, ours, closed to others, below no
 *       folder in which others may replace it, and on a file system of this
 *       machine; and what is in it must be ours. From then on all is opened
 *       relative to its descriptor, also by SQLite: see folder_path() in
 *       file_open.c.
 * THREADS  loop thread only.
 */
#include "store/file/file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { GIVEN_MAX = 4096, DEPTH_MAX = 128, TEXT_MAX = 16384 };

/* Where several machines, or a machine and its guest, write. */
static const struct {
    uint32_t type;
    const char *name;
} shared_systems[] = {
    {0x6969, "NFS"},          {0x517b, "SMB"},
    {0xfe534d42, "SMB"},      {0xff534d42, "CIFS"},
    {0x01021997, "9p"},       {0x65735546, "FUSE (sshfs and others)"},
    {0x5346414f, "AFS"},      {0x6b414653, "AFS"},
    {0x73757245, "Coda"},     {0x564c, "NCP"},
    {0x0bd00bd0, "Lustre"},   {0x47504653, "GPFS"},
    {0x00c36400, "Ceph"},     {0x01161970, "GFS2"},
    {0x7461636f, "OCFS2"},    {0x19830326, "BeeGFS"},
    {0x20030528, "OrangeFS"}, {0xaad7aaea, "PanFS"},
    {0x61636673, "ACFS"},     {0xbeefdead, "StorNext"},
    {0x786f4256, "vboxsf"},   {0xbacbacbc, "HGFS"},
    {0x7c7c6673, "prl_fs"},
};

static int folder_find(struct vow__file *s, const char *path);
static int folder_refused(struct vow__file *s, const char *path, int error);
static int check_owner(struct vow__file *s, const char *path);
static int check_system(struct vow__file *s, const char *path);
static int check_parents(struct vow__file *s, const char *path);
static int check_parent(struct vow__file *s, const char *path,
                        const struct stat *st);
static bool is_private_group(gid_t gid);
static int check_inside(struct vow__file *s, const char *path);
static int real_path(struct vow__file *s, const char *path);

int vow__file_folder_open(struct vow__file *s, const char *given)
{
    char path[GIVEN_MAX];
    size_t size = strlen(given);
    while (size > 1 && given[size - 1] == '/') /* it would follow a link */
        size--;
    if (size == 0)
        return vow__file_fail(s, VOW_EINVAL, "no folder was given");
    if (size >= sizeof(path))
        return vow__file_fail(s, VOW_EINVAL,
                              "the path of the folder is longer "
                              "than %d bytes",
                              FILE_PATH_MAX);
    memcpy(path, given, size);
    path[size] = '\0';
    int rc = folder_find(s, path);
    if (rc == 0)
        rc = check_owner(s, path);
    if (rc == 0)
        rc = check_system(s, path);
    if (rc == 0)
        rc = check_parents(s, path);
    if (rc == 0)
        rc = check_inside(s, path);
    if (rc == 0)
        rc = real_path(s, path);
    if (rc < 0 && s->dir >= 0) {
        (void)close(s->dir);
        s->dir = -1;
    }
    return rc;
}

static int folder_find(struct vow__file *s, const char *path)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    s->dir = open(path, flags);
    if (s->dir >= 0)
        return 0;
    if (errno != ENOENT)
        return folder_refused(s, path, errno);
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return folder_refused(s, path, errno);
    s->dir = open(path, flags);
    return s->dir >= 0 ? 0 : folder_refused(s, path, errno);
}

static int folder_refused(struct vow__file *s, const char *path, int error)
{
    struct stat st;
    bool seen = lstat(path, &st) == 0;
    if (seen && S_ISLNK(st.st_mode))
        return vow__file_fail(s, VOW_EINVAL,
                              "%s is a symbolic link: give the folder itself",
                              path);
    if (seen && !S_ISDIR(st.st_mode))
        return vow__file_fail(s, VOW_EINVAL, "%s is not a folder", path);
    if (seen && st.st_uid != geteuid())
        return vow__file_fail(
            s, VOW_EINVAL, "%s belongs to user %ld: use a folder of your own",
            path, (long)st.st_uid);
    if (error == ENOENT)
        return vow__file_fail(s, VOW_ESTORE,
                              "%s: the folder it should be in does not exist",
                              path);
    return vow__file_fail(s, VOW_ESTORE, "%s: %s", path, strerror(error));
}

static int check_owner(struct vow__file *s, const char *path)
{
    struct stat st;
    if (fstat(s->dir, &st) != 0)
        return vow__file_fail(s, VOW_ESTORE, "%s: %s", path, strerror(errno));
    if (st.st_uid != geteuid())
        return vow__file_fail(
            s, VOW_EINVAL, "%s belongs to user %ld: use a folder of your own",
            path, (long)st.st_uid);
    unsigned mode = st.st_mode & 07777;
    if ((mode & (S_IWGRP | S_IWOTH)) != 0 &&
        faccessat(s->dir, "vow.db", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return vow__file_fail(s, VOW_EINVAL,
                              "%s was open to others (mode %04o), who may have "
                              "changed what is in it: remove it",
                              path, mode);
    if ((mode & 077) != 0)
        return vow__file_fail(s, VOW_EINVAL,
                              "%s is open to others (mode %04o): chmod 700 it",
                              path, mode);
    return 0;
}

static int check_system(struct vow__file *s, const char *path)
{
    const char *name = vow__file_shared_system(s->dir);
    if (name == NULL)
        return 0;
    return vow__file_fail(s, VOW_EINVAL,
                          "%s is on %s, where locks cannot be relied on: use a "
                          "folder of this machine, such as one in /var/tmp",
                          path, name);
}

const char *vow__file_shared_system(int fd)
{
    struct statfs fs;
    if (fstatfs(fd, &fs) != 0)
        return strerror(errno);
    for (size_t i = 0; i < sizeof(shared_systems) / sizeof(shared_systems[0]);
         i++)
        if ((uint32_t)fs.f_type == shared_systems[i].type)
            return shared_systems[i].name;
    return NULL;
}

/* From the folder to the root: nobody else may rename what leads to it. */
static int check_parents(struct vow__file *s, const char *path)
{
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    struct stat below = {.st_ino = 0};
    struct stat st;
    int rc = 0;
    int at = openat(s->dir, "..", flags);
    if (at < 0 || fstat(s->dir, &below) != 0)
        rc = vow__file_fail(s, VOW_ESTORE, "%s: %s", path, strerror(errno));
    for (int i = 0; i < DEPTH_MAX && rc == 0; i++) {
        if (fstat(at, &st) != 0 ||
            (st.st_dev == below.st_dev && st.st_ino == below.st_ino))
            break;
        rc = check_parent(s, path, &st);
        below = st;
        int up = openat(at, "..", flags);
        (void)close(at);
        at = up;
        if (at < 0)
            break; /* we may not look further, and so not be told */
    }
    if (at >= 0)
        (void)close(at);
    return rc;
}

/* The owner of / counts as root: in a user namespace root may have no number,
 * and the owner of / can replace everything anyway. */
static int check_parent(struct vow__file *s, const char *path,
                        const struct stat *st)
{
    struct stat root;
    bool trusted = st->st_uid == 0 || st->st_uid == geteuid() ||
                   (stat("/", &root) == 0 && root.st_uid == st->st_uid);
    if (!trusted)
        return vow__file_fail(
            s, VOW_EINVAL,
            "%s lies in a folder of user %ld, who could replace "
            "it: use a folder of your own",
            path, (long)st->st_uid);
    if ((st->st_mode & S_ISVTX) != 0)
        return 0;
    if ((st->st_mode & S_IWOTH) != 0)
        return vow__file_fail(s, VOW_EINVAL,
                              "%s lies in a folder that everybody may change: "
                              "use another, or chmod +t that one",
                              path);
    if ((st->st_mode & S_IWGRP) != 0 && !is_private_group(st->st_gid))
        return vow__file_fail(s, VOW_EINVAL,
                              "%s lies in a folder that group %ld may change: "
                              "use another, or chmod g-w that one",
                              path, (long)st->st_gid);
    return 0;
}

/* Many systems give each user a group of the same name, and let it write. */
static bool is_private_group(gid_t gid)
{
    char user_text[TEXT_MAX];
    char group_text[TEXT_MAX];
    struct passwd user;
    struct passwd *own = NULL;
    struct group group;
    struct group *found = NULL;
    if (getpwuid_r(geteuid(), &user, user_text, sizeof(user_text), &own) != 0 ||
        own == NULL || own->pw_gid != gid ||
        getgrgid_r(gid, &group, group_text, sizeof(group_text), &found) != 0 ||
        found == NULL || strcmp(found->gr_name, own->pw_name) != 0)
        return false;
    for (char **member = found->gr_mem; *member != NULL; member++)
        if (strcmp(*member, own->pw_name) != 0)
            return false;
    return true;
}

/* What others have left in the folder while it was open to them stays theirs:
 * they can change it still. */
static int check_inside(struct vow__file *s, const char *path)
{
    static const char *const names[] = {
        "vow.db", "vow.db-wal", "vow.db-shm", "mark", "lock", "cache",
        "line",   "lost",       "live",       "sock", "val"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct stat st;
        if (fstatat(s->dir, names[i], &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (st.st_uid != geteuid())
            return vow__file_fail(
                s, VOW_EINVAL,
                "%s/%s belongs to user %ld: somebody else has "
                "written to the folder; remove it",
                path, names[i], (long)st.st_uid);
        if (!S_ISLNK(st.st_mode) && (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
            return vow__file_fail(s, VOW_EINVAL,
                                  "%s/%s can be written to by others (mode "
                                  "%04o): remove the folder",
                                  path, names[i],
                                  (unsigned)(st.st_mode & 07777));
    }
    return 0;
}

/* SQLite wants a path, and refuses one with links. */
static int real_path(struct vow__file *s, const char *path)
{
    char link[64];
    char real[GIVEN_MAX];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", s->dir);
    ssize_t n = readlink(link, real, sizeof(real));
    if (n < 0)
        return vow__file_fail(s, VOW_ESTORE, "%s: %s (is /proc there?)", link,
                              strerror(errno));
    if (n > FILE_PATH_MAX)
        return vow__file_fail(s, VOW_EINVAL,
                              "%.64s...: a path longer than %d bytes", path,
                              FILE_PATH_MAX);
    memcpy(s->folder, real, (size_t)n);
    s->folder[n] = '\0';
    struct stat ours;
    struct stat there;
    if (fstat(s->dir, &ours) != 0 || lstat(s->folder, &there) != 0 ||
        ours.st_dev != there.st_dev || ours.st_ino != there.st_ino)
        return vow__file_fail(
            s, VOW_ESTORE, "%s: somebody removed it while it was opened", path);
    if (s->home[0] == '\0')
        memcpy(s->home, s->folder, sizeof(s->home));
    return 0;
}
