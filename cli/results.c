/* SPDX-License-Identifier: MIT */
/* results.c - see results.h. */
#include "results.h"
#include "emit.h"
#include "say.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int results_open_file(const struct job *j, const char *dir,
                             const char *name);
static int results_write_file(const struct job *j, const char *dir,
                              const char *name, struct span s);
static void json_add_stream(struct stream *json, const char *name,
                            struct stream *s);
static size_t whole_characters(const struct text *t);

void results_open(const char *dir)
{
    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        die(EXIT_USAGE, "--results: cannot create the folder %s: %s", dir,
            strerror(errno));
}

void results_begin(struct job *j, const char *dir)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/%llu", dir,
                   (unsigned long long)j->seq);
    if (mkdir(path, 0777) < 0 && errno != EEXIST) {
        j->out.error = errno;
        return;
    }
    stream_keep_in(&j->out, results_open_file(j, dir, "stdout"));
    if (j->out.file < 0)
        j->out.error = errno; /* reported when the job has ended */
    if (j->err.file >= 0)
        return;
    stream_keep_in(&j->err, results_open_file(j, dir, "stderr"));
    if (j->err.file < 0)
        j->err.error = errno;
}

/* Opens a file of the job. Other users may write to DIR, too: a symbolic link
 * or a folder of another user is refused. */
static int results_open_file(const struct job *j, const char *dir,
                             const char *name)
{
    const int flags = O_CLOEXEC | O_NOFOLLOW;
    char path[PATH_MAX];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/%llu", dir,
                   (unsigned long long)j->seq);
    int folder = open(path, O_PATH | O_DIRECTORY | flags);
    if (folder < 0)
        return -1;
    int fd = -1;
    if (fstat(folder, &st) == 0 && st.st_uid != geteuid())
        errno = EPERM;
    else
        fd = openat(folder, name, O_RDWR | O_CREAT | O_TRUNC | flags, 0666);
    int error = errno;
    (void)close(folder);
    errno = error;
    return fd;
}

int results_end(struct job *j, const char *dir, struct span command)
{
    char code[16];
    int n = snprintf(code, sizeof(code), "%d\n", job_exit_code(j));
    int error = results_write_file(j, dir, "command", command);
    if (error == 0)
        error = results_write_file(j, dir, "exit",
                                   (struct span){.at = code, .n = (size_t)n});
    return error;
}

static int results_write_file(const struct job *j, const char *dir,
                              const char *name, struct span s)
{
    int fd = results_open_file(j, dir, name);
    if (fd < 0)
        return errno;
    ssize_t n = write(fd, s.at, s.n);
    int error = n < 0 ? errno : n < (ssize_t)s.n ? ENOSPC : 0;
    (void)close(fd);
    return error;
}

int results_json(struct job *j, const struct record *r)
{
    struct stream json = stream_of(STDOUT_FILENO);
    struct text t = {0};
    char name[16];
    text_addf(&t, "{\"seq\":%llu,\"command\":", (unsigned long long)r->seq);
    text_add_json(&t, r->command);
    bool exited =
        r->end.kind == END_EXIT || r->end.exited || r->end.kind == END_NOT_RUN;
    if (exited)
        text_addf(&t, ",\"exit\":%d,\"signal\":null", r->end.code);
    else
        text_addf(&t, ",\"exit\":null,\"signal\":\"%s\"",
                  units_signal_name(r->end.code, name));
    text_addf(&t, ",\"timeout\":%s,\"tries\":%u,\"start\":%.6f,\"wall\":%.6f",
              r->end.kind == END_TIMEOUT ? "true" : "false", r->tries,
              (double)r->start_us / 1e6, (double)r->wall_us / 1e6);
    stream_keep(&json, t.at, t.n);
    text_free(&t);
    json_add_stream(&json, "stdout", &j->out);
    json_add_stream(&json, "stderr", &j->err);
    stream_keep(&json, "}\n", 2);
    if (json.error == 0)
        stream_emit(&json);
    stream_drop(&json);
    return json.error;
}

/* Adds a stream in chunks: the output of a job may be larger than memory. */
static void json_add_stream(struct stream *json, const char *name,
                            struct stream *s)
{
    struct text left = {0}, made = {0};
    uint64_t at = 0;
    size_t n;
    const char *chunk;
    text_addf(&made, ",\"%s\":\"", name);
    while ((chunk = stream_chunk(s, &at, &n)) != NULL) {
        text_add(&left, chunk, n);
        size_t whole = whole_characters(&left);
        text_add_json_part(&made, (struct span){.at = left.at, .n = whole});
        memmove(left.at, left.at + whole, left.n - whole);
        left.n -= whole;
        stream_keep(json, made.at, made.n);
        text_clear(&made);
    }
    text_add_json_part(&made, text_span(&left));
    text_add_str(&made, "\"");
    stream_keep(json, made.at, made.n);
    text_free(&left);
    text_free(&made);
}

/* Returns the number of bytes without a possibly incomplete last character. */
static size_t whole_characters(const struct text *t)
{
    for (size_t i = 1; i < 4 && i <= t->n; i++)
        if ((unsigned char)t->at[t->n - i] >= 0xc0)
            return t->n - i;
    return t->n;
}
