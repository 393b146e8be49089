/* SPDX-License-Identifier: MIT */
/* input.c - see input.h.
 *
 * HOW   A source gives records: words, or the pieces between delimiters of a
 *       file. A row has one record of each source; a job has `per_job` rows.
 *       A pipe or a terminal is read only when readable, so that jobs go on
 *       meanwhile.
 */
#include "input.h"
#include "poller.h"
#include "say.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER = 64 << 10, RECORD_MAX = 64 << 20 };

enum { GOT = 1, END = 0 };

struct source {
    const char *name; /* name of the file, for messages; NULL: words */
    char *const *words;
    size_t n_words;
    size_t at;  /* index of the next word or record */
    int fd;     /* descriptor of the file; -1: words */
    off_t size; /* bytes of a regular file; 0: not known */
    uint64_t read;
    bool ended;
    struct text buffer; /* bytes read; unused from `used` on */
    size_t used;
    struct poller poller;
    vow_deferred *readable; /* fulfilled when readable; NULL: no waiter */
    bool may_read;          /* the poller has reported the file readable */
    bool tries_first;       /* `fd` does not block: read, then wait. Without a
                               writer, read() of a named pipe reports the end,
                               and epoll does not */
    struct span *records;   /* all records, except for the first source */
    size_t n_records;
};

struct input {
    vow_loop *loop;
    struct input_opts opts;
    struct source *sources;
    size_t n_sources;
    size_t *row_at;    /* per source: index of the record in the row */
    struct span first; /* record of the first source, in `buffer` */
    bool in_row;       /* `first` is valid */
    uint64_t jobs;
    struct items header;
    struct spans names;
    struct items pending; /* items of a job that is not yet complete */
    size_t rows;          /* rows in `pending` */
};

static void source_open(struct source *s, const char *path);
static void source_unblock(struct source *s);
static void source_load(struct input *in, struct source *s);
static int source_read(struct input *in, struct source *s,
                       struct span *ret_record, vow_future **ret_wait);
static int source_cut(const struct input *in, struct source *s,
                      struct span *ret_record);
static int source_fill(struct input *in, struct source *s,
                       vow_future **ret_wait);
static bool source_wait(struct input *in, struct source *s,
                        vow_future **ret_wait);
static void on_source_readable(struct poller *poller, uint32_t events);
static void source_wake(struct source *s);
static int row_next(struct input *in, vow_future **ret_wait);
static bool row_step(struct input *in);
static void items_add_row(struct input *in, struct items *to);
static void items_add(struct items *to, struct span r);
static void spans_add(struct spans *to, struct span s);
static void input_read_header(struct input *in);
static size_t source_columns(const struct input *in, const struct source *s);
static size_t record_columns(const struct input *in, struct span r);
static size_t max_of(size_t a, size_t b);
static uint64_t count_records(const struct input *in, const char *at, size_t n);

/* ---- opening ------------------------------------------------------------- */

struct input *input_new(vow_loop *loop, const struct input_opts *o,
                        char *const *words, size_t n, const char *const *files,
                        size_t n_files)
{
    struct input *in = mem_new(sizeof(*in));
    in->loop = loop;
    in->opts = *o;
    in->sources = mem_new((n + n_files + 1) * sizeof(in->sources[0]));
    for (size_t i = 0; i < n_files; i++)
        source_open(&in->sources[in->n_sources++], files[i]);
    if (n == 0 && n_files == 0)
        source_open(&in->sources[in->n_sources++], "-");
    for (size_t i = 0; i < n;) {
        bool of_files = strcmp(words[i++], "::::") == 0;
        size_t begin = i;
        while (i < n && !input_is_separator(words[i]))
            i++;
        if (!of_files) {
            in->sources[in->n_sources++] = (struct source){
                .words = words + begin, .n_words = i - begin, .fd = -1};
            continue;
        }
        for (; begin < i; begin++)
            source_open(&in->sources[in->n_sources++], words[begin]);
    }
    in->row_at = mem_new((in->n_sources + 1) * sizeof(in->row_at[0]));
    for (size_t i = 1; i < in->n_sources; i++)
        source_load(in, &in->sources[i]);
    if (o->header)
        input_read_header(in);
    return in;
}

bool input_is_separator(const char *word)
{
    if (strcmp(word, ":::+") == 0 || strcmp(word, "::::+") == 0)
        die(EXIT_USAGE,
            "vow map: %s is not supported: put the items of both "
            "lists in columns, and split them by -C",
            word);
    return strcmp(word, ":::") == 0 || strcmp(word, "::::") == 0;
}

static void source_open(struct source *s, const char *path)
{
    struct stat st;
    bool is_stdin = strcmp(path, "-") == 0;
    *s = (struct source){.name = is_stdin ? "stdin" : path};
    s->fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0 || fstat(s->fd, &st) < 0)
        die(EXIT_USAGE, "cannot read %s: %s", s->name, strerror(errno));
    if (S_ISDIR(st.st_mode))
        die(EXIT_USAGE, "cannot read %s: it is a folder", s->name);
    if (S_ISREG(st.st_mode))
        s->size = st.st_size;
    if (S_ISFIFO(st.st_mode))
        source_unblock(s);
}

/* Makes reads of a pipe non-blocking, because another reader of the pipe may be
 * faster. stdin is opened once more, so that the flag is set for vow alone. */
static void source_unblock(struct source *s)
{
    char path[32];
    int own = s->fd;
    if (s->fd > STDIN_FILENO) {
        (void)fcntl(s->fd, F_SETFL, O_NONBLOCK);
    } else {
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
        own = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    }
    s->tries_first = own >= 0;
    s->fd = own >= 0 ? own : s->fd;
}

/* Reads all records of a source into memory. */
static void source_load(struct input *in, struct source *s)
{
    struct span r;
    size_t room = 0;
    struct text all = {0};
    int rc;
    while ((rc = source_read(in, s, &r, NULL)) == GOT) {
        if (s->n_records == room) {
            room = room == 0 ? 64 : 2 * room;
            s->records = mem_resize(s->records, room * sizeof(s->records[0]));
        }
        s->records[s->n_records].at = NULL; /* text_add() may move `all` */
        s->records[s->n_records++].n = r.n;
        text_add(&all, r.at, r.n);
    }
    if (rc < 0)
        exit(EXIT_BROKEN);   /* the message was written */
    const char *at = all.at; /* never freed: used until the program ends */
    for (size_t i = 0; i < s->n_records; i++) {
        s->records[i].at = at;
        at += s->records[i].n;
    }
    text_free(&s->buffer);
}

/* ---- records ------------------------------------------------------------- */

/* Reads the next record. Blocks if ret_wait is NULL. */
static int source_read(struct input *in, struct source *s,
                       struct span *ret_record, vow_future **ret_wait)
{
    if (s->name == NULL) {
        if (s->at == s->n_words)
            return END;
        *ret_record = span_of(s->words[s->at++]);
        return GOT;
    }
    int rc;
    while ((rc = source_cut(in, s, ret_record)) == VOW_EAGAIN) {
        rc = source_fill(in, s, ret_wait);
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* Cuts a record from the buffer. Returns VOW_EAGAIN if more bytes must be
 * read. */
static int source_cut(const struct input *in, struct source *s,
                      struct span *ret_record)
{
    const char *at = s->buffer.at + s->used;
    size_t n = s->buffer.n - s->used;
    const char *end = n == 0 ? NULL : memchr(at, in->opts.delimiter, n);
    if (end == NULL && !s->ended)
        return VOW_EAGAIN;
    if (end == NULL && n == 0)
        return END;
    size_t length = end == NULL ? n : (size_t)(end - at);
    if (memchr(at, '\0', length) != NULL) {
        say("item %zu of %s has a NUL byte, which no argument can have; did "
            "you mean -0?",
            s->at + 1, s->name);
        return VOW_EINVAL;
    }
    s->used += length + (end != NULL);
    s->at++;
    *ret_record = (struct span){.at = at, .n = length};
    return GOT;
}

static int source_fill(struct input *in, struct source *s,
                       vow_future **ret_wait)
{
    static char chunk[BUFFER];
    if (s->used > 0) {
        memmove(s->buffer.at, s->buffer.at + s->used, s->buffer.n - s->used);
        s->buffer.n -= s->used;
        s->used = 0;
    }
    if (s->buffer.n > RECORD_MAX) {
        say("item %zu of %s is longer than %d MiB", s->at + 1, s->name,
            RECORD_MAX >> 20);
        return VOW_EINVAL;
    }
    bool waits = ret_wait != NULL && s->size == 0 && !s->may_read;
    if (waits && !s->tries_first && source_wait(in, s, ret_wait))
        return VOW_EAGAIN;
    s->may_read = false; /* before the next read, wait again */
    ssize_t n = read(s->fd, chunk, sizeof(chunk));
    bool empty = n < 0 && errno == EAGAIN;
    if (empty && ret_wait != NULL && source_wait(in, s, ret_wait))
        return VOW_EAGAIN;
    if (empty)
        (void)poll(&(struct pollfd){.fd = s->fd, .events = POLLIN}, 1, -1);
    else if (n < 0 && errno != EINTR) {
        say("cannot read %s: %s", s->name, strerror(errno));
        return VOW_EIO;
    }
    if (n > 0)
        text_add(&s->buffer, chunk, (size_t)n);
    s->read += n > 0 ? (uint64_t)n : 0;
    s->ended = n == 0;
    return GOT;
}

/* Waits until the source is readable. Returns false if epoll cannot wait for
 * the file, as for a regular file. */
static bool source_wait(struct input *in, struct source *s,
                        vow_future **ret_wait)
{
    if (!poller_watch(&s->poller, s->fd, EPOLLIN, on_source_readable))
        return false;
    *ret_wait = vow_promise(in->loop, &s->readable);
    return true;
}

static void on_source_readable(struct poller *poller, uint32_t events)
{
    struct source *s =
        (struct source *)(void *)((char *)poller -
                                  offsetof(struct source, poller));
    (void)events;
    (void)poller_watch(poller, poller->fd, 0, on_source_readable);
    s->may_read = true;
    source_wake(s);
}

static void source_wake(struct source *s)
{
    vow_deferred *readable = s->readable;
    s->readable = NULL;
    if (readable != NULL)
        (void)vow_resolve_drop(readable, vow_nothing());
}

void input_wake(struct input *in)
{
    source_wake(&in->sources[0]);
}

/* ---- rows ---------------------------------------------------------------- */

/* Steps to the next row. Returns GOT, END, VOW_EAGAIN or an error. */
static int row_next(struct input *in, vow_future **ret_wait)
{
    if (in->in_row && row_step(in))
        return GOT;
    in->in_row = false;
    for (size_t i = 1; i < in->n_sources; i++) {
        in->row_at[i] = 0;
        if (in->sources[i].n_records == 0)
            return END;
    }
    int rc = source_read(in, &in->sources[0], &in->first, ret_wait);
    in->in_row = rc == GOT;
    return rc;
}

/* Steps to the next records of all sources but the first; the last source
 * varies fastest. Returns false when all combinations were used. */
static bool row_step(struct input *in)
{
    for (size_t i = in->n_sources - 1; i > 0; i--) {
        if (++in->row_at[i] < in->sources[i].n_records)
            return true;
        in->row_at[i] = 0;
    }
    return false;
}

int input_next(struct input *in, struct items *ret_items, vow_future **ret_wait)
{
    int rc = GOT;
    while (in->rows < in->opts.per_job &&
           (rc = row_next(in, ret_wait)) == GOT) {
        items_add_row(in, &in->pending);
        in->rows++;
    }
    if (rc < 0 || in->rows == 0)
        return rc;
    struct items mine = *ret_items; /* memory for the next job */
    *ret_items = in->pending;
    in->pending = mine;
    in->pending.n = 0;
    text_clear(&in->pending.bytes);
    in->rows = 0;
    in->jobs++;
    return GOT;
}

static void items_add_row(struct input *in, struct items *to)
{
    items_add(to, in->first);
    for (size_t i = 1; i < in->n_sources; i++)
        items_add(to, in->sources[i].records[in->row_at[i]]);
}

static void items_add(struct items *to, struct span r)
{
    text_add(&to->bytes, r.at, r.n);
    text_add(&to->bytes, "", 1);
    to->n++;
}

/* ---- spans --------------------------------------------------------------- */

void spans_of(const struct items *i, const char *columns, struct spans *ret)
{
    const char *at = i->bytes.at;
    ret->n = 0;
    for (size_t k = 0; k < i->n; k++) {
        size_t n = strlen(at);
        spans_add(ret, (struct span){.at = at, .n = n});
        at += n + 1;
    }
    for (size_t k = 0; k < i->n && columns != NULL; k++) {
        struct span left = ret->all[k];
        const char *end;
        while ((end = memmem(left.at, left.n, columns, strlen(columns))) !=
               NULL) {
            size_t n = (size_t)(end - left.at);
            spans_add(ret, (struct span){.at = left.at, .n = n});
            left.at += n + strlen(columns);
            left.n -= n + strlen(columns);
        }
        spans_add(ret, left);
    }
    ret->items = ret->all;
    ret->n_items = i->n;
    ret->fields = columns == NULL ? ret->all : ret->all + i->n;
    ret->n_fields = columns == NULL ? i->n : ret->n - i->n;
}

static void spans_add(struct spans *to, struct span s)
{
    if (to->n == to->room) {
        to->room = to->room == 0 ? 8 : 2 * to->room;
        to->all = mem_resize(to->all, to->room * sizeof(s));
    }
    to->all[to->n++] = s;
}

/* ---- header and totals --------------------------------------------------- */

/* Reads the first record of every source, before any job. */
static void input_read_header(struct input *in)
{
    struct span r;
    for (size_t i = 0; i < in->n_sources; i++) {
        struct source *s = &in->sources[i];
        bool got =
            i == 0 ? source_read(in, s, &r, NULL) == GOT : s->n_records > 0;
        if (!got)
            die(EXIT_USAGE, "--header: there is no first line");
        if (i > 0) {
            r = s->records[0];
            s->records++;
            s->n_records--;
        }
        items_add(&in->header, r);
    }
    spans_of(&in->header, in->opts.columns, &in->names);
}

const struct span *input_names(struct input *in, size_t *ret_n)
{
    *ret_n = in->names.n_fields;
    return in->names.fields;
}

size_t input_fields_most(const struct input *in)
{
    const struct source *first = &in->sources[0];
    size_t fields = source_columns(in, first), rows = in->opts.per_job;
    if (first->name != NULL && in->opts.columns != NULL)
        return 0; /* the columns of a file are not known yet */
    if (first->name == NULL)
        rows = first->n_words - first->at;
    for (size_t i = 1; i < in->n_sources; i++) {
        fields += source_columns(in, &in->sources[i]);
        rows *= in->sources[i].n_records;
    }
    rows = rows < in->opts.per_job ? rows : in->opts.per_job;
    return rows > SIZE_MAX / fields ? 0 : rows * fields;
}

static size_t source_columns(const struct input *in, const struct source *s)
{
    size_t most = 1;
    for (size_t i = s->at; in->opts.columns != NULL && i < s->n_words; i++)
        most = max_of(most, record_columns(in, span_of(s->words[i])));
    for (size_t i = 0; in->opts.columns != NULL && i < s->n_records; i++)
        most = max_of(most, record_columns(in, s->records[i]));
    return most;
}

static size_t record_columns(const struct input *in, struct span r)
{
    const char *end = r.at + r.n, *sep = in->opts.columns;
    size_t n = 1;
    while ((r.at = memmem(r.at, (size_t)(end - r.at), sep, strlen(sep))) !=
           NULL) {
        r.at += strlen(sep);
        n++;
    }
    return n;
}

static size_t max_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Counts the records in these bytes; the last record may have no delimiter. */
static uint64_t count_records(const struct input *in, const char *at, size_t n)
{
    uint64_t records = 0;
    for (const char *end = at + n; at < end; records++) {
        const char *next = memchr(at, in->opts.delimiter, (size_t)(end - at));
        at = next == NULL ? end : next + 1;
    }
    return records;
}

uint64_t input_total(const struct input *in, bool *ret_open)
{
    const struct source *s = &in->sources[0];
    uint64_t rows = s->n_words;
    *ret_open = false;
    if (s->name != NULL) {
        size_t left = s->buffer.n - s->used;
        if (s->size == 0 || s->read == left)
            return 0;
        double each = (double)(s->read - left) / (double)s->at;
        *ret_open = s->read < (uint64_t)s->size;
        rows = *ret_open
                   ? (uint64_t)((double)s->size / each)
                   : s->at + count_records(in, s->buffer.at + s->used, left);
    }
    rows -= in->opts.header && rows > 0;
    for (size_t i = 1; i < in->n_sources; i++)
        rows *= in->sources[i].n_records;
    return (rows + in->opts.per_job - 1) / in->opts.per_job;
}
