/* SPDX-License-Identifier: MIT */
/* stream.c - see stream.h.
 *
 * INVARIANTS
 *   S1  kept bytes are the bytes in `file`, then the bytes in `text`
 *   S2  a stopped stream is in the list `stopped`, and the poller does not
 *       watch the pipe
 */
#include "stream.h"
#include "emit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SPILL = 64 << 10, /* bytes kept in memory */
    CHUNK = 64 << 10,
    BIG_PIPE = 1 << 20,
    TURNS = 16,       /* chunks read before other events are handled */
    PIPE_CHUNKS = 17, /* most chunks in a pipe */
    IN_MEMORY_MAX = 64 << 20,
    BULK = 8 << 20,         /* bytes in the file before the stream may flow */
    FLOW_NS = 50000000,     /* silence after which others may go on */
    WAITING_MANY = 1 << 20, /* waiting bytes, beyond which reading stops */
    LONG_LINE = 1 << 20     /* bytes of a line written without the end */
};

static struct stream *stopped;
static uint64_t open_line[3]; /* by target: stream with a line open, or 0 */
static size_t files;          /* open files with kept bytes */
static char buffer[CHUNK];

static struct {
    vow_loop *loop;
    bool (*may)(const struct stream *s);
    struct stream *stream; /* flowing stream; NULL: none */
    uint64_t last_ns;      /* time of the last bytes */
    vow_call again;        /* resumes stopped streams */
} flow;

static void on_stream_readable(struct poller *poller, uint32_t events);
static bool stream_is_bulk(const struct stream *s);
static void stream_begin_flow(struct stream *s);
static bool stream_pass_on(struct stream *s);
static bool stream_pass_on_by_copy(struct stream *s);
static bool stream_must_wait(const struct stream *s);
static void stream_end_flow(const struct stream *s);
static void on_flow_check(void *user);
static bool stream_read_chunk(struct stream *s);
static ssize_t stream_splice(struct stream *s);
static void stream_set_error(struct stream *s, int error);
static void stream_write_lines(struct stream *s, const char *at, size_t n);
static void stream_end_other_line(const struct stream *s, struct text *out);
static void stream_add_lines(struct text *out, struct stream *s, const char *at,
                             size_t n);
static void stream_add_tags(struct stream *s);
static int file_write_all(int fd, const char *at, size_t n);
static void stream_stop(struct stream *s);
static void stream_forget_stopped(struct stream *s);
static void stream_close_file(struct stream *s);

struct stream stream_of(int target)
{
    return (struct stream){.target = target, .file = -1, .poller.fd = -1};
}

int stream_open(struct stream *s, int target)
{
    int ends[2];
    static uint64_t numbers;
    *s = stream_of(target);
    s->number = ++numbers;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    (void)fcntl(ends[1], F_SETFL, 0); /* the job's end blocks */
    if (!poller_watch(&s->poller, ends[0], EPOLLIN, on_stream_readable)) {
        (void)close(ends[0]);
        (void)close(ends[1]);
        return -1;
    }
    return ends[1];
}

void stream_keep_in(struct stream *s, int file)
{
    s->file = file;
    files += file >= 0;
}

/* ---- reading ------------------------------------------------------------- */

void streams_open(vow_loop *loop, bool (*may_flow)(const struct stream *s))
{
    flow.loop = loop;
    flow.may = may_flow;
}

const struct stream *streams_flowing(void)
{
    return flow.stream;
}

static void on_stream_readable(struct poller *poller, uint32_t events)
{
    struct stream *s = (struct stream *)(void *)poller; /* first member */
    (void)events;
    int turns = TURNS;
    if (stream_is_bulk(s) && flow.stream == NULL && flow.may != NULL &&
        flow.may(s))
        stream_begin_flow(s);
    else if (stream_must_wait(s)) {
        stream_stop(s);
        return;
    }
    while (s->poller.events != 0 && turns-- > 0 && stream_read_chunk(s))
        ;
}

/* Reads a chunk. Returns false if there are no more bytes now, or ever. */
static bool stream_read_chunk(struct stream *s)
{
    ssize_t n = -1;
    bool splices =
        !s->by_lines && s->in_file >= CHUNK && s->error == 0 && !s->by_hand;
    if (s->flows)
        return stream_pass_on(s);
    if (splices)
        n = stream_splice(s);
    else
        n = read(s->poller.fd, buffer, CHUNK);
    if (n < 0)
        return errno == EINTR;
    if (n == 0) {
        poller_close(&s->poller);
        return false;
    }
    s->bytes += (uint64_t)n;
    if (s->by_lines)
        stream_write_lines(s, buffer, (size_t)n);
    else if (!splices || s->by_hand || s->error != 0)
        stream_keep(s, buffer, (size_t)n);
    return true;
}

/* ---- flowing ------------------------------------------------------------- */

static bool stream_is_bulk(const struct stream *s)
{
    return !s->by_lines && !s->flows && s->in_file > BULK;
}

static void stream_begin_flow(struct stream *s)
{
    stream_emit(s);
    s->flows = true;
    flow.stream = s;
    flow.last_ns = vow_loop_now_ns(flow.loop);
}

static bool stream_pass_on(struct stream *s)
{
    ssize_t n = emit_through(s->target, s->poller.fd);
    if (n < 0 && errno == EBUSY) {
        stream_stop(s);
        return false;
    }
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return stream_pass_on_by_copy(s);
    if (n == 0)
        poller_close(&s->poller);
    if (n > 0) {
        s->bytes += (uint64_t)n;
        flow.last_ns = vow_loop_now_ns(flow.loop);
    }
    return n > 0;
}

static bool stream_pass_on_by_copy(struct stream *s)
{
    struct text t = {0};
    ssize_t n = read(s->poller.fd, buffer, CHUNK);
    if (n == 0)
        poller_close(&s->poller);
    if (n <= 0)
        return n < 0 && errno == EINTR;
    s->bytes += (uint64_t)n;
    flow.last_ns = vow_loop_now_ns(flow.loop);
    text_add(&t, buffer, (size_t)n);
    emit_text(s->target, &t);
    if (emit_waiting() > WAITING_MANY)
        stream_stop(s);
    return true;
}

/* Returns whether the stream must wait for the flowing stream: a flowing stream
 * uses up vow's output, and other streams with much output would only fill the
 * disk. */
static bool stream_must_wait(const struct stream *s)
{
    return stream_is_bulk(s) && flow.stream != NULL &&
           vow_loop_now_ns(flow.loop) - flow.last_ns < FLOW_NS;
}

static void stream_end_flow(const struct stream *s)
{
    if (flow.stream != s)
        return;
    flow.stream = NULL;
    streams_go_on();
}

static void on_flow_check(void *user)
{
    (void)user;
    streams_go_on();
}

/* Moves bytes from the pipe to the file without copying through memory. */
static ssize_t stream_splice(struct stream *s)
{
    ssize_t n = splice(s->poller.fd, NULL, s->file, NULL, BIG_PIPE,
                       SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
    if (n > 0)
        s->in_file += (uint64_t)n;
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        if (errno == EINVAL || errno == ENOSYS)
            s->by_hand = true;
        else
            stream_set_error(s, errno);
        n = read(s->poller.fd, buffer, CHUNK);
    }
    return n;
}

void stream_keep(struct stream *s, const char *at, size_t n)
{
    if (s->error != 0)
        return;
    if (s->file >= 0) {
        int error = file_write_all(s->file, at, n);
        if (error != 0)
            stream_set_error(s, error);
        else
            s->in_file += n;
        return;
    }
    text_add(&s->text, at, n);
    if (s->text.n > SPILL)
        stream_spill(s);
}

/* Without a file, up to IN_MEMORY_MAX bytes stay in memory. */
void stream_spill(struct stream *s)
{
    if (s->text.n == 0 || s->error != 0)
        return;
    if (s->file < 0) {
        s->file = temp_file();
        files += s->file >= 0;
    }
    int error =
        s->file < 0 ? errno : file_write_all(s->file, s->text.at, s->text.n);
    if (error != 0 && s->text.n > IN_MEMORY_MAX)
        stream_set_error(s, error);
    if (error != 0)
        return;
    s->in_file += s->text.n;
    text_free(&s->text);
    if (s->poller.events != 0)
        (void)fcntl(s->poller.fd, F_SETPIPE_SZ, BIG_PIPE); /* expect more */
}

size_t streams_in_files(void)
{
    return files;
}

static void stream_set_error(struct stream *s, int error)
{
    if (s->error == 0)
        s->error = error;
}

int temp_file(void)
{
    const char *dir = getenv("TMPDIR");
    char path[PATH_MAX];
    dir = dir == NULL || dir[0] == '\0' ? "/tmp" : dir;
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    if (snprintf(path, sizeof(path), "%s/vow-XXXXXX", dir) >=
        (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

static int file_write_all(int fd, const char *at, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return errno;
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

/* ---- by lines ------------------------------------------------------------ */

static void stream_write_lines(struct stream *s, const char *at, size_t n)
{
    struct text out = {0};
    const char *end = memrchr(at, '\n', n);
    if (end == NULL && s->text.n + n < LONG_LINE) {
        text_add(&s->text, at, n);
        return;
    }
    size_t whole = end == NULL ? n : (size_t)(end + 1 - at);
    stream_end_other_line(s, &out);
    if (s->text.n > 0) {
        text_add(&s->text, at, whole);
        stream_add_lines(&out, s, s->text.at, s->text.n);
        text_clear(&s->text);
    } else {
        stream_add_lines(&out, s, at, whole);
    }
    text_add(&s->text, at + whole, n - whole);
    open_line[s->target] = s->in_line ? s->number : 0;
    emit_text(s->target, &out);
    if (emit_waiting() > WAITING_MANY)
        stream_stop(s);
}

/* Ends the unfinished line of another stream, so that this stream does not
 * continue the line. */
static void stream_end_other_line(const struct stream *s, struct text *out)
{
    if (open_line[s->target] != 0 && open_line[s->target] != s->number)
        text_add(out, "\n", 1);
}

/* Adds lines, each with the tag in front. */
static void stream_add_lines(struct text *out, struct stream *s, const char *at,
                             size_t n)
{
    const char *end = at + n;
    if (s->tag.n == 0) {
        text_add(out, at, n);
        s->in_line = n > 0 && end[-1] != '\n';
        return;
    }
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *next = newline == NULL ? end : newline + 1;
        if (!s->in_line)
            text_add(out, s->tag.at, s->tag.n);
        text_add(out, at, (size_t)(next - at));
        s->in_line = newline == NULL;
        at = next;
    }
}

/* Keeps S2. */
static void stream_stop(struct stream *s)
{
    if (s->poller.events == 0)
        return;
    (void)poller_watch(&s->poller, s->poller.fd, 0, on_stream_readable);
    s->next_stopped = stopped;
    stopped = s;
    if (flow.loop != NULL && !vow_call_pending(&flow.again))
        vow_call_at(&flow.again, flow.loop,
                    vow_loop_now_ns(flow.loop) + FLOW_NS, on_flow_check, NULL);
}

static void stream_forget_stopped(struct stream *s)
{
    struct stream **at = &stopped;
    while (*at != NULL && *at != s)
        at = &(*at)->next_stopped;
    if (*at == s)
        *at = s->next_stopped;
}

void streams_go_on(void)
{
    struct stream *all = stopped;
    if (emit_waiting() > WAITING_MANY / 2)
        return;
    stopped = NULL;
    while (all != NULL) {
        struct stream *s = all;
        all = s->next_stopped;
        if (stream_must_wait(s)) {
            s->next_stopped = stopped;
            stopped = s;
        } else {
            (void)poller_watch(&s->poller, s->poller.fd, EPOLLIN,
                               on_stream_readable);
        }
    }
    if (stopped != NULL && !vow_call_pending(&flow.again))
        vow_call_at(&flow.again, flow.loop,
                    vow_loop_now_ns(flow.loop) + FLOW_NS, on_flow_check, NULL);
}

/* ---- the end ------------------------------------------------------------- */

void stream_end(struct stream *s)
{
    for (int left = PIPE_CHUNKS; left > 0 && s->poller.fd >= 0; left--)
        if (!(s->flows ? stream_pass_on_by_copy(s) : stream_read_chunk(s)))
            break;            /* read, not splice: vow's output may be full */
    stream_forget_stopped(s); /* stopped by the last lines, perhaps */
    poller_close(&s->poller);
    stream_end_flow(s);
    if (s->by_lines && s->text.n > 0) {
        struct text out = {0};
        stream_end_other_line(s, &out);
        stream_add_lines(&out, s, s->text.at, s->text.n);
        open_line[s->target] = s->in_line ? s->number : 0;
        emit_text(s->target, &out);
        text_clear(&s->text);
    }
}

void stream_emit(struct stream *s)
{
    if (s->by_lines)
        return;
    if (s->tag.n > 0)
        stream_add_tags(s);
    if (s->in_file > 0) {
        emit_file(s->target, s->file, s->in_file);
        files--;
        s->file = -1;
        s->in_file = 0;
    }
    emit_text(s->target, &s->text);
}

/* Adds the tag to all kept lines. Bytes of a file are copied to another
 * file. */
static void stream_add_tags(struct stream *s)
{
    struct stream tagged = stream_of(s->target);
    uint64_t at = 0;
    size_t n;
    const char *chunk;
    while ((chunk = stream_chunk(s, &at, &n)) != NULL) {
        struct text out = {0};
        stream_add_lines(&out, s, chunk, n);
        stream_keep(&tagged, out.at, out.n);
        text_free(&out);
    }
    stream_close_file(s);
    text_free(&s->text);
    s->text = tagged.text;
    s->file = tagged.file;
    s->in_file = tagged.in_file;
    if (tagged.error != 0)
        stream_set_error(s, tagged.error);
}

const char *stream_chunk(struct stream *s, uint64_t *at, size_t *ret_n)
{
    if (*at < s->in_file) {
        ssize_t n = pread(s->file, buffer, CHUNK, (off_t)*at);
        *ret_n = n > 0 ? (size_t)n : 0;
        *at = n > 0 ? *at + (uint64_t)n : s->in_file;
        return n > 0 ? buffer : stream_chunk(s, at, ret_n);
    }
    *ret_n = s->text.n;
    if (*at >= s->in_file + s->text.n)
        return NULL;
    *at += s->text.n;
    return s->text.at;
}

void stream_drop(struct stream *s)
{
    poller_close(&s->poller);
    stream_close_file(s);
    text_free(&s->text);
    text_free(&s->tag);
    s->in_file = 0;
}

static void stream_close_file(struct stream *s)
{
    if (s->file < 0)
        return;
    (void)close(s->file);
    files--;
    s->file = -1;
}
