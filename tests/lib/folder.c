/* SPDX-License-Identifier: MIT */
/* folder.c - a folder for one test. See folder.h. */
#include "folder.h"
#include "harness.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void folder_open(struct folder *f)
{
    (void)umask(077); /* secrets of tests are closed, as they must be */
    const char *above = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(f->path, sizeof(f->path), "%s/vow-test-XXXXXX", above);
    CHECK(mkdtemp(f->path) != NULL);
}

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    (void)remove(path);
    return 0;
}

void folder_remove(const char *path)
{
    (void)nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void folder_close(struct folder *f)
{
    folder_remove(f->path);
}
