/* SPDX-License-Identifier: MIT */
/* record_kit.h - files for the tests of logs and joblogs: each test has a
 * folder of its own that goes away behind it.
 */
#ifndef TEST_RECORD_KIT_H
#define TEST_RECORD_KIT_H

#include "harness.h"
#include "record.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static inline const char *file(const char *name)
{
    static char path[512];
    if (folder[0] == '\0') {
        snprintf(folder, sizeof(folder), "/tmp/vow-record-XXXXXX");
        CHECK(mkdtemp(folder) != NULL);
        CHECK_INT_EQ(chmod(folder, 0755), 0);
    }
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static inline void clean_up(void)
{
    DIR *d = opendir(folder);
    CHECK(d != NULL);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            CHECK_INT_EQ(remove(file(e->d_name)), 0);
    closedir(d);
    CHECK_INT_EQ(rmdir(folder), 0);
}

static inline const char *put_bytes(const char *name, const void *at, size_t n)
{
    const char *path = file(name);
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    CHECK_UINT_EQ(fwrite(at, 1, n, f), n);
    CHECK_INT_EQ(fclose(f), 0);
    return path;
}

static inline const char *put(const char *name, const char *text)
{
    return put_bytes(name, text, strlen(text));
}

static inline struct text get(const char *path)
{
    struct text t = {0};
    char chunk[4096];
    size_t n;
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    text_add(&t, "", 0);
    while ((n = fread(chunk, 1, sizeof(chunk), f)) > 0)
        text_add(&t, chunk, n);
    fclose(f);
    return t;
}

static inline void check_content(const char *path, const char *want)
{
    struct text t = get(path);
    CHECK_STR_EQ(t.at, want);
    text_free(&t);
}

static inline struct record job(uint64_t seq, const char *command, int code)
{
    struct record r = {
        .seq = seq, .slot = 2, .tries = 1, .command = span_of(command)};
    r.end.code = code;
    memset(r.hash, (int)seq, sizeof(r.hash));
    return r;
}

static inline struct log *open_log(const char *path, bool resume)
{
    char *error = NULL;
    struct log *l = log_open(path, resume, &error);
    CHECK_STR_EQ(error, NULL);
    CHECK(l != NULL);
    return l;
}

static inline struct done *read_done(const char *path)
{
    char *error = NULL;
    struct done *d = done_read(path, &error);
    CHECK_STR_EQ(error, NULL);
    CHECK(d != NULL);
    return d;
}

static inline bool takes(struct done *d, int byte, bool failed_too)
{
    unsigned char hash[16];
    memset(hash, byte, sizeof(hash));
    return done_take(d, hash, failed_too);
}

static inline bool takes_command(struct done *d, const char *command,
                                 bool failed_too)
{
    return done_take_command(d, span_of(command), failed_too);
}

/* Bytes that a file may grow to; 0: any. */
static inline void allow_bytes(size_t n)
{
    struct rlimit limit;
    CHECK_INT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = n > 0 ? n : limit.rlim_max;
    CHECK_INT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

#endif
