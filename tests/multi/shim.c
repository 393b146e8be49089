/* SPDX-License-Identifier: MIT */
/* shim.c - a slow disk, and a clock that is set, for one process: preloaded.
 *
 * VOW_SLOW_MS=N  writes and syncs take up to N ms longer
 * VOW_CLOCK=1    the date jumps an hour back or forth every second
 * VOW_CLOCK_FILE=FILE  the date is off by the microseconds in it, a number of
 *                eight bytes, which may change at any time */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum { HOUR = 3600, MS_NS = 1000000, US_NS = 1000, S_NS = 1000000000 };

static const volatile int64_t *off_us;

/* Under names of our own: the headers have theirs. */
int shim_clock(clockid_t id, struct timespec *t) __asm__("clock_gettime");
int shim_day(struct timeval *t, void *zone) __asm__("gettimeofday");
ssize_t shim_write(int fd, const void *buffer, size_t size,
                   off64_t at) __asm__("pwrite64");
int shim_sync(int fd) __asm__("fdatasync");

static int real_clock(clockid_t id, struct timespec *t)
{
    static int (*next)(clockid_t, struct timespec *);
    if (next == NULL)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT,
                                                            "clock_gettime");
    return next(id, t);
}

static void slow(void)
{
    const char *ms = getenv("VOW_SLOW_MS");
    struct timespec t;
    if (ms == NULL)
        return;
    (void)real_clock(CLOCK_MONOTONIC, &t);
    long most = strtol(ms, NULL, 10);
    struct timespec wait = {.tv_nsec = t.tv_nsec / 1000 % (most + 1) * MS_NS};
    (void)nanosleep(&wait, NULL);
}

__attribute__((constructor)) static void map_clock(void)
{
    const char *name = getenv("VOW_CLOCK_FILE");
    int fd = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    void *p = mmap(NULL, sizeof(*off_us), PROT_READ, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED)
        off_us = p;
    (void)close(fd);
}

static void set_off(struct timespec *t)
{
    int64_t us = off_us == NULL ? 0 : *off_us;
    int64_t ns = (int64_t)t->tv_sec * S_NS + t->tv_nsec + us * US_NS;
    t->tv_sec = (time_t)(ns / S_NS);
    t->tv_nsec = (long)(ns % S_NS);
}

int shim_clock(clockid_t id, struct timespec *t)
{
    int rc = real_clock(id, t);
    if (id != CLOCK_REALTIME)
        return rc;
    if (getenv("VOW_CLOCK") != NULL)
        t->tv_sec += t->tv_sec % 2 != 0 ? HOUR : -HOUR;
    set_off(t);
    return rc;
}

int shim_day(struct timeval *t, void *zone)
{
    struct timespec now;
    (void)zone;
    int rc = shim_clock(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return rc;
}

ssize_t shim_write(int fd, const void *buffer, size_t size, off64_t at)
{
    static ssize_t (*next)(int, const void *, size_t, off64_t);
    if (next == NULL)
        next = (ssize_t(*)(int, const void *, size_t, off64_t))dlsym(
            RTLD_NEXT, "pwrite64");
    slow();
    return next(fd, buffer, size, at);
}

int shim_sync(int fd)
{
    static int (*next)(int);
    if (next == NULL)
        next = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    slow();
    return next(fd);
}
