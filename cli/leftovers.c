/* SPDX-License-Identifier: MIT */
/* leftovers.c - see leftovers.h.
 *
 * HOW   Older versions used $XDG_RUNTIME_DIR/vow, else $TMPDIR/vow-UID. The
 *       other process may have had other values of these variables: so the
 *       usual values are tried too. A process that uses a store holds a lock
 *       on a file in the folder live/ of the store.
 */
#include "leftovers.h"
#include "text.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PLACES_MAX = 16, TEMPORARY_MAX = 10 };

struct search {
    leftover_fn fn;
    void *user;
    size_t n; /* folders in `seen` */
    struct stat seen[PLACES_MAX];
};

static void search_below(struct search *s, const char *above, const char *name);
static void search_folder(struct search *s, const char *folder);
static bool folder_is_new(struct search *s, const char *folder);
static long folder_user_pid(const char *folder);

void leftovers_find(const char *used, leftover_fn fn, void *user)
{
    struct search s = {.fn = fn, .user = user};
    struct text name = {0}, run = {0};
    text_addf(&name, "vow-%lu", (unsigned long)geteuid());
    text_addf(&run, "/run/user/%lu", (unsigned long)geteuid());
    (void)folder_is_new(&s, used);
    search_below(&s, getenv("XDG_RUNTIME_DIR"), "vow");
    search_below(&s, run.at, "vow");
    search_below(&s, getenv("TMPDIR"), name.at);
    search_below(&s, "/tmp", name.at);
    search_below(&s, "/var/tmp", name.at);
    for (unsigned i = 1; i < TEMPORARY_MAX; i++) {
        struct text numbered = {0};
        text_addf(&numbered, "%s-%u", name.at, i);
        search_below(&s, "/var/tmp", numbered.at);
        text_free(&numbered);
    }
    text_free(&name);
    text_free(&run);
}

static void search_below(struct search *s, const char *above, const char *name)
{
    struct text folder = {0};
    if (above == NULL || above[0] != '/')
        return;
    text_addf(&folder, "%s/%s", above, name);
    if (folder_is_new(s, folder.at))
        search_folder(s, folder.at);
    text_free(&folder);
}

/* Returns whether the folder belongs to this user and was not seen before. */
static bool folder_is_new(struct search *s, const char *folder)
{
    struct stat st;
    if (s->n == PLACES_MAX || lstat(folder, &st) != 0 || !S_ISDIR(st.st_mode) ||
        st.st_uid != geteuid())
        return false;
    for (size_t i = 0; i < s->n; i++)
        if (s->seen[i].st_ino == st.st_ino && s->seen[i].st_dev == st.st_dev)
            return false;
    s->seen[s->n++] = st;
    return true;
}

static void search_folder(struct search *s, const char *folder)
{
    struct text live = {0};
    struct stat st;
    text_addf(&live, "%s/live", folder);
    if (lstat(live.at, &st) == 0 && S_ISDIR(st.st_mode))
        s->fn(folder, folder_user_pid(live.at), s->user);
    text_free(&live);
}

static long folder_user_pid(const char *folder)
{
    DIR *dir = opendir(folder);
    struct dirent *e;
    long pid = 0;
    while (dir != NULL && pid == 0 && (e = readdir(dir)) != NULL) {
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = openat(dirfd(dir), e->d_name,
                        O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd >= 0 && e->d_name[0] != '.' && fcntl(fd, F_GETLK, &l) == 0 &&
            l.l_type != F_UNLCK)
            pid = l.l_pid > 0 ? l.l_pid : 1; /* or in another namespace */
        if (fd >= 0)
            (void)close(fd);
    }
    if (dir != NULL)
        (void)closedir(dir);
    return pid;
}
