/* SPDX-License-Identifier: MIT */
/* file_live.c - who is alive: a locked file for each instance.
 *
 * WHY   Who waits for the work of a process that died should not wait for a
 *       lease to end, and who lives must never be taken for dead.
 * HOW   An instance has a file, live/ID, with a POSIX record lock of the
 *       process. The kernel gives the lock up when the process ends, however
 *       that happens; a child by fork() does not have it, where locks of the
 *       open file would be held on by it. Who wants to know asks F_GETLK.
 *       Such a lock is lost when the process closes any descriptor of that
 *       file, and never stands in the way of the process itself. So nobody
 *       opens a live file of its own process: the ids of all instances of a
 *       process begin alike, and of those it is enough that the file exists.
 *       The file says in words whose it is: process, when it was started, and
 *       on which host.
 * INVARIANTS
 *   V1  no row names an instance whose file was not locked before
 *   V2  a live file of the own process is opened once, and not closed until
 *       it is removed
 * THREADS  loop thread only.
 */
#include "base/clock.h"
#include "store/file/file_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { PATH_MAX_ = 64, TRIES = 8 };

static int join(struct vow__file *s);
static int live_open(struct vow__file *s);
static void describe(struct vow__file *s);
static uint64_t process(struct vow__file *s);
static uint64_t process_of(void);
static uint64_t started(void);
static uint64_t mix(uint64_t h, uint64_t x);
static void live_path(const unsigned char *id, char path[PATH_MAX_]);

/* ---- our own ------------------------------------------------------------ */

int vow__file_join(struct vow__file *s)
{
    if (s->joined)
        return 0;
    int rc = join(s);
    if (rc == VOW_ESTORE && vow__file_make_folders(s) == 0)
        rc = join(s); /* somebody has removed one */
    if (rc < 0)
        return rc;
    describe(s);
    s->joined = true;
    return 0;
}

static int join(struct vow__file *s)
{
    int rc = live_open(s);
    if (rc == 0)
        rc = vow__file_socket_open(s);
    if (rc < 0)
        vow__file_leave(s);
    return rc;
}

/* Somebody who sweeps may find the file before it is locked, and remove it. */
static int live_open(struct vow__file *s)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    char path[PATH_MAX_];
    for (int i = 0; i < TRIES; i++) {
        uint64_t ids[2] = {process(s), vow__clock_entropy()};
        memcpy(s->id, ids, sizeof(ids));
        vow__file_hex(s->id, s->hex);
        live_path(s->id, path);
        s->live = openat(s->dir, path, flags, 0600);
        if (s->live < 0)
            return vow__file_fail_errno(s, path, errno);
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        struct stat st;
        if (fcntl(s->live, F_SETLK, &l) == 0 && fstat(s->live, &st) == 0 &&
            st.st_nlink > 0)
            return 0; /* keeps V1 */
        (void)unlinkat(s->dir, path, 0);
        (void)close(s->live);
        s->live = -1;
    }
    return vow__file_fail(s, VOW_ESTORE,
                          "%s/live: files cannot be locked there", s->folder);
}

/* For people, and what others are told when no runner was given. */
static void describe(struct vow__file *s)
{
    char host[128];
    char text[256];
    if (gethostname(host, sizeof(host)) != 0)
        host[0] = '\0';
    host[sizeof(host) - 1] = '\0';
    (void)snprintf(s->runner, sizeof(s->runner), "%s:%ld", host, (long)s->pid);
    int n = snprintf(text, sizeof(text), "pid %ld started %llu host %s\n",
                     (long)s->pid, (unsigned long long)started(), host);
    if (write(s->live, text, (size_t)n) < 0)
        return; /* a full disk; nothing depends on it */
}

/* Somebody has removed our files: we count as dead, or cannot be woken. */
bool vow__file_erased(struct vow__file *s)
{
    char live[PATH_MAX_];
    char sock[PATH_MAX_];
    live_path(s->id, live);
    (void)snprintf(sock, sizeof(sock), "sock/%s", s->hex);
    return s->joined &&
           (faccessat(s->dir, live, F_OK, AT_SYMLINK_NOFOLLOW) != 0 ||
            faccessat(s->dir, sock, F_OK, AT_SYMLINK_NOFOLLOW) != 0);
}

void vow__file_leave(struct vow__file *s)
{
    char path[PATH_MAX_];
    vow__file_socket_close(s);
    if (s->live >= 0) {
        live_path(s->id, path);
        (void)unlinkat(s->dir, path, 0);
        (void)close(s->live); /* keeps V2 */
    }
    s->live = -1;
    s->joined = false;
}

bool vow__file_ours(struct vow__file *s, const unsigned char *id)
{
    uint64_t own = process(s);
    return memcmp(id, &own, sizeof(own)) == 0;
}

static uint64_t process(struct vow__file *s)
{
    if (s->process == 0)
        s->process = process_of();
    return s->process;
}

/* The same for all instances of a process, and no other process on this
 * machine has it, whichever namespace it sees the machine from. */
static uint64_t process_of(void)
{
    struct stat st = {.st_ino = 0};
    uint64_t h = 0;
    uint64_t exec[2] = {0, 0};
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random != NULL)
        memcpy(exec, random, sizeof(exec));
    (void)stat("/proc/self/ns/pid", &st);
    h = mix(h, exec[0]);
    h = mix(h, exec[1]);
    h = mix(h, (uint64_t)getpid());
    h = mix(h, started());
    h = mix(h, st.st_ino);
    return h == 0 ? 1 : h;
}

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

/* When the process was started, in ticks since the boot; the 22nd field, the
 * 20th behind the name, which may hold anything. */
static uint64_t started(void)
{
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        (void)close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    for (int i = 0; i < 20 && at != NULL; i++)
        at = strchr(at + 1, ' ');
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

/* ---- others ------------------------------------------------------------- */

bool vow__file_gone(struct vow__file *s, const unsigned char *id)
{
    return vow__file_gone_pid(s, id, NULL);
}

/* What cannot be looked at counts as alive: then the lease decides. */
bool vow__file_gone_pid(struct vow__file *s, const unsigned char *id,
                        pid_t *ret_pid)
{
    char path[PATH_MAX_];
    if (s->joined && memcmp(id, s->id, FILE_ID) == 0)
        return false;
    live_path(id, path);
    if (vow__file_ours(s, id)) /* keeps V2 */
        return faccessat(s->dir, path, F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
               errno == ENOENT;
    int fd = openat(s->dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT;
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool known = fcntl(fd, F_GETLK, &l) == 0;
    (void)close(fd);
    if (known && l.l_type != F_UNLCK && ret_pid != NULL)
        *ret_pid = l.l_pid;
    return known && l.l_type == F_UNLCK;
}

bool vow__file_anybody_lives(struct vow__file *s)
{
    unsigned char id[FILE_ID];
    int fd = openat(s->dir, "live", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    bool some = false;
    struct dirent *e;
    while (dir != NULL && !some && (e = readdir(dir)) != NULL)
        some = vow__file_unhex(e->d_name, id) && !vow__file_gone(s, id);
    if (dir != NULL)
        (void)closedir(dir);
    else if (fd >= 0)
        (void)close(fd);
    return some;
}

static void live_path(const unsigned char *id, char path[PATH_MAX_])
{
    char hex[FILE_HEX];
    vow__file_hex(id, hex);
    (void)snprintf(path, PATH_MAX_, "live/%s", hex);
}

void vow__file_hex(const unsigned char *id, char hex[FILE_HEX])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < FILE_ID; i++) {
        hex[2 * i] = digits[id[i] >> 4];
        hex[2 * i + 1] = digits[id[i] & 15];
    }
    hex[2 * FILE_ID] = '\0';
}

bool vow__file_unhex(const char *hex, unsigned char *id)
{
    static const char digits[] = "0123456789abcdef";
    if (strlen(hex) < (size_t)2 * FILE_ID)
        return false;
    for (size_t i = 0; i < FILE_ID; i++) {
        const char *high = strchr(digits, hex[2 * i]);
        const char *low = strchr(digits, hex[2 * i + 1]);
        if (high == NULL || low == NULL)
            return false;
        id[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return true;
}
