/* SPDX-License-Identifier: MIT */
/* record_read.c - reads the finished jobs of a log or a joblog, for --resume.
 *
 * WHY   A log of a million jobs is read before the first job starts: reading
 *       may take a second and some megabytes, not minutes and gigabytes.
 * HOW   Lines are read through one buffer and scanned once. All of a JSON line
 *       is checked to be JSON, but only the fields hash, exit, timeout, again
 *       and stopped are kept. The numbers of copies per hash are in a table
 *       with open addressing; the hash gives the position. A joblog has no
 *       hash: there, the hash is computed from the command.
 *
 *           lines_next() -> read_log_line() or read_joblog_line() -> done_add()
 *
 * INVARIANTS
 *   D1  at least a quarter of the table is free, so every search ends.
 *   D2  every line returned by lines_next() has a newline behind the line: no
 *       scanner steps over a newline, so none can run past the end.
 * LIMITS  24 bytes per slot of the table, 32 to 64 per different command. A
 *         line of more than 64 MiB is refused: six bytes of JSON for each byte
 *         of the longest command line that the kernel takes are less.
 */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HASH = 16,
    FIRST_ROOM = 1024, /* slots of the table; always a power of two */
    FIRST_BUFFER = 256 * 1024,
    LONGEST_LINE = 64 * 1024 * 1024,
    DEEPEST = 16,       /* depth of nested values that are skipped */
    JOBLOG_COLUMNS = 8, /* columns before the command */
    SEQ = 0,
    EXITVAL = 6,
    SIGNAL = 7
};

struct copies {
    unsigned char hash[HASH];
    uint32_t well;          /* successful copies not yet taken */
    uint32_t failed_plus_1; /* failed copies not taken, plus 1; 0: free */
};

struct done {
    struct copies *slots;
    size_t room;
    size_t n;
};

struct lines {
    int fd;
    char *buffer;
    size_t room;
    size_t from;   /* begin of the next line */
    size_t seen;   /* no newline between `from` and here */
    size_t to;     /* end of the bytes read */
    size_t number; /* number of the last line returned, from 1 */
};

/* The facts kept of a line. */
struct fact {
    unsigned char hash[HASH];
    bool has_hash, has_exit, has_timeout;
    bool again, stopped;
    bool zero; /* exited with 0 */
    bool timed_out;
};

enum got { GOT_LINE, GOT_END, GOT_ERROR };

typedef bool read_fn(struct span line, struct fact *ret_fact);

static struct done *done_read_file(const char *path, read_fn *read_line,
                                   char **ret_error);
static enum got done_read_lines(struct lines *l, read_fn *read_line,
                                struct done *d);
static enum got lines_next(struct lines *l, struct span *ret_line);
static enum got lines_fill(struct lines *l);
static void done_add(struct done *d, const struct fact *f);
static struct copies *done_find(const struct done *d,
                                const unsigned char hash[HASH]);
static void done_grow(struct done *d);
static bool copies_take(struct copies *c, bool failed_too);

static bool read_log_line(struct span line, struct fact *ret_fact);
static bool read_field(const char **at, struct fact *f);
static bool read_hash(struct span value, unsigned char *ret_hash);
static const char *json_skip_blanks(const char *at);
static bool json_skip_value(const char **at, unsigned depth);
static bool json_skip_container(const char **at, unsigned depth);
static bool json_skip_name(const char **at, struct span *ret_name);
static bool json_skip_string(const char **at);
static bool json_skip_number(const char **at);
static const char *json_skip_digits(const char *at);
static bool json_skip_word(const char **at, const char *word);
static int hex_digit(char c);

static bool read_joblog_line(struct span line, struct fact *ret_fact);
static bool is_integer(struct span s, int *ret_value);
static void hash_column(struct span column, unsigned char ret_hash[HASH]);
static void hash_bytes(struct span s, unsigned char ret_hash[HASH]);

/* ---- what was done ------------------------------------------------------- */

struct done *done_read(const char *path, char **ret_error)
{
    return done_read_file(path, read_log_line, ret_error);
}

struct done *done_read_joblog(const char *path, char **ret_error)
{
    return done_read_file(path, read_joblog_line, ret_error);
}

bool done_take(struct done *d, const unsigned char hash[16], bool failed_too)
{
    return copies_take(done_find(d, hash), failed_too);
}

bool done_take_failed(struct done *d, const unsigned char hash[16])
{
    struct copies *c = done_find(d, hash);
    return c->failed_plus_1 > 1 && c->failed_plus_1-- > 1;
}

bool done_take_command(struct done *d, struct span command, bool failed_too)
{
    unsigned char hash[HASH];
    hash_bytes(command, hash);
    return copies_take(done_find(d, hash), failed_too);
}

void done_free(struct done *d)
{
    if (d == NULL)
        return;
    free(d->slots);
    free(d);
}

/* Reads a log or a joblog. Without a file, nothing was done. */
static struct done *done_read_file(const char *path, read_fn *read_line,
                                   char **ret_error)
{
    struct text error = {0};
    struct lines l = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY)};
    struct done *d = mem_new(sizeof(*d));
    d->room = FIRST_ROOM;
    d->slots = mem_new(d->room * sizeof(*d->slots));
    if (l.fd < 0 && errno == ENOENT)
        return d;
    errno = l.fd < 0 ? errno : 0;
    if (l.fd < 0 || done_read_lines(&l, read_line, d) == GOT_ERROR) {
        if (errno != 0)
            text_addf(&error, "cannot read %s: %m", path);
        else
            text_addf(&error, "%s: line %zu is damaged or not from a %s", path,
                      l.number,
                      read_line == read_log_line ? "log of vow" : "joblog");
    }
    if (l.fd >= 0)
        close(l.fd);
    free(l.buffer);
    if (error.at == NULL)
        return d;
    done_free(d);
    *ret_error = error.at;
    return NULL;
}

/* Reads all lines. Returns GOT_END, or GOT_ERROR with errno; errno 0: the line
 * is damaged. */
static enum got done_read_lines(struct lines *l, read_fn *read_line,
                                struct done *d)
{
    struct span line;
    enum got got;
    while ((got = lines_next(l, &line)) == GOT_LINE) {
        struct fact f = {.has_hash = false};
        if (!read_line(line, &f)) {
            errno = 0;
            return GOT_ERROR;
        }
        if (f.has_hash)
            done_add(d, &f);
    }
    return got;
}

/* ---- lines --------------------------------------------------------------- */

/* Returns the next line without the newline, which stays in the buffer behind
 * the line (D2). A last line without a newline is torn, and not returned. */
static enum got lines_next(struct lines *l, struct span *ret_line)
{
    const char *newline;
    while (l->to == l->seen || (newline = memchr(l->buffer + l->seen, '\n',
                                                 l->to - l->seen)) == NULL) {
        l->seen = l->to;
        enum got got = lines_fill(l);
        if (got != GOT_LINE)
            return got;
    }
    ret_line->at = l->buffer + l->from;
    ret_line->n = (size_t)(newline - ret_line->at);
    l->from += ret_line->n + 1;
    l->seen = l->from;
    l->number++;
    return GOT_LINE;
}

/* Reads more bytes into the buffer. Returns GOT_LINE if there are more
 * bytes. */
static enum got lines_fill(struct lines *l)
{
    size_t begun = l->to - l->from;
    ssize_t n;
    if (begun > 0 && l->from > 0)
        memmove(l->buffer, l->buffer + l->from, begun);
    l->from = 0;
    l->seen = l->to = begun;
    if (begun > LONGEST_LINE) {
        l->number++;
        errno = 0;
        return GOT_ERROR;
    }
    if (begun == l->room) {
        l->room = l->room > 0 ? l->room * 2 : FIRST_BUFFER;
        l->buffer = mem_resize(l->buffer, l->room);
    }
    do
        n = read(l->fd, l->buffer + begun, l->room - begun);
    while (n < 0 && errno == EINTR);
    l->to += n > 0 ? (size_t)n : 0;
    return n > 0 ? GOT_LINE : n == 0 ? GOT_END : GOT_ERROR;
}

/* ---- the table ----------------------------------------------------------- */

/* Adds the facts of a line to the table. A job that exited with 0 after a
 * timeout has not succeeded. */
static void done_add(struct done *d, const struct fact *f)
{
    struct copies *c = done_find(d, f->hash);
    if (f->stopped)
        return;
    if (c->failed_plus_1 == 0) {
        memcpy(c->hash, f->hash, HASH);
        c->failed_plus_1 = 1;
        d->n++;
    }
    bool well = f->zero && !f->timed_out;
    bool instead = f->again && c->failed_plus_1 > 1; /* of a failed copy */
    c->failed_plus_1 -= instead;
    if (well)
        c->well++;
    else
        c->failed_plus_1++;
    if (d->n > d->room / 4 * 3)
        done_grow(d); /* keeps D1 */
}

/* Returns the slot of the hash, or the free slot for the hash. */
static struct copies *done_find(const struct done *d,
                                const unsigned char hash[HASH])
{
    uint64_t at;
    memcpy(&at, hash, sizeof(at));
    for (;; at++) {
        struct copies *c = &d->slots[at & (d->room - 1)];
        if (c->failed_plus_1 == 0 || memcmp(c->hash, hash, HASH) == 0)
            return c;
    }
}

static void done_grow(struct done *d)
{
    struct done bigger = {.room = d->room * 2, .n = d->n};
    bigger.slots = mem_new(bigger.room * sizeof(*bigger.slots));
    for (size_t i = 0; i < d->room; i++)
        if (d->slots[i].failed_plus_1 != 0)
            *done_find(&bigger, d->slots[i].hash) = d->slots[i];
    free(d->slots);
    *d = bigger;
}

static bool copies_take(struct copies *c, bool failed_too)
{
    if (c->well > 0) {
        c->well--;
        return true;
    }
    if (!failed_too || c->failed_plus_1 <= 1)
        return false;
    c->failed_plus_1--;
    return true;
}

/* ---- JSON lines ---------------------------------------------------------- */

static bool read_log_line(struct span line, struct fact *ret_fact)
{
    const char *at = json_skip_blanks(line.at);
    if (*at != '{')
        return false;
    do {
        at = json_skip_blanks(at + 1);
        if (!read_field(&at, ret_fact))
            return false;
        at = json_skip_blanks(at);
    } while (*at == ',');
    return *at == '}' && json_skip_blanks(at + 1) == line.at + line.n &&
           ret_fact->has_hash && ret_fact->has_exit;
}

/* Reads "name": value. The same kept field twice is damage. */
static bool read_field(const char **at, struct fact *f)
{
    struct span name, value = {0};
    if (!json_skip_name(at, &name))
        return false;
    value.at = *at;
    if (!json_skip_value(at, DEEPEST))
        return false;
    value.n = (size_t)(*at - value.at);
    bool *seen = NULL;
    bool good = true;
    if (span_is(name, "\"hash\"")) {
        seen = &f->has_hash;
        good = read_hash(value, f->hash);
    } else if (span_is(name, "\"exit\"")) {
        int code = -1;
        seen = &f->has_exit;
        good =
            span_is(value, "null") || (is_integer(value, &code) && code >= 0);
        f->zero = code == 0;
    } else if (span_is(name, "\"timeout\"")) {
        seen = &f->has_timeout;
        f->timed_out = span_is(value, "true");
        good = f->timed_out || span_is(value, "false");
    } else if (span_is(name, "\"again\"")) {
        f->again = span_is(value, "true");
    } else if (span_is(name, "\"stopped\"")) {
        f->stopped = span_is(value, "true");
    }
    if (seen == NULL)
        return true;
    good = good && !*seen;
    *seen = true;
    return good;
}

static bool read_hash(struct span value, unsigned char *ret_hash)
{
    if (value.n != 2 * HASH + 2 || value.at[0] != '"')
        return false;
    for (size_t i = 0; i < HASH; i++) {
        int high = hex_digit(value.at[1 + 2 * i]);
        int low = hex_digit(value.at[2 + 2 * i]);
        if (high < 0 || low < 0)
            return false;
        ret_hash[i] = (unsigned char)(high * 16 + low);
    }
    return true;
}

/* Skips blanks and CR, so that lines of an editor that adds CR are accepted. */
static const char *json_skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\r')
        at++;
    return at;
}

static bool json_skip_value(const char **at, unsigned depth)
{
    switch (**at) {
    case '"':
        return json_skip_string(at);
    case '{':
    case '[':
        return depth > 0 && json_skip_container(at, depth - 1);
    case 't':
        return json_skip_word(at, "true");
    case 'f':
        return json_skip_word(at, "false");
    case 'n':
        return json_skip_word(at, "null");
    default:
        return json_skip_number(at);
    }
}

static bool json_skip_container(const char **at, unsigned depth)
{
    const bool object = **at == '{';
    const char end = object ? '}' : ']';
    struct span name;
    *at = json_skip_blanks(*at + 1);
    bool more = **at != end;
    while (more) {
        if (object && !json_skip_name(at, &name))
            return false;
        if (!json_skip_value(at, depth))
            return false;
        *at = json_skip_blanks(*at);
        more = **at == ',';
        if (more)
            *at = json_skip_blanks(*at + 1);
    }
    if (**at != end)
        return false;
    ++*at;
    return true;
}

/* Skips "name": up to the value. The returned name has the quotes. */
static bool json_skip_name(const char **at, struct span *ret_name)
{
    ret_name->at = *at;
    if (**at != '"' || !json_skip_string(at))
        return false;
    ret_name->n = (size_t)(*at - ret_name->at);
    *at = json_skip_blanks(*at);
    if (**at != ':')
        return false;
    *at = json_skip_blanks(*at + 1);
    return true;
}

static bool json_skip_string(const char **at)
{
    const char *s = *at + 1;
    while (*s != '"') {
        if ((unsigned char)*s < ' ')
            return false; /* also at the newline (D2) */
        if (*s++ != '\\')
            continue;
        if (*s == 'u') {
            for (int i = 1; i <= 4; i++)
                if (hex_digit(s[i]) < 0)
                    return false;
            s += 5;
        } else if (*s != '\0' && strchr("\"\\/bfnrt", *s) != NULL) {
            s++;
        } else {
            return false;
        }
    }
    *at = s + 1;
    return true;
}

static bool json_skip_number(const char **at)
{
    const char *s = *at + (**at == '-');
    const char *from = s;
    s = json_skip_digits(s);
    if (s == from || (*from == '0' && s > from + 1))
        return false;
    if (*s == '.') {
        from = s + 1;
        s = json_skip_digits(from);
        if (s == from)
            return false;
    }
    if (*s == 'e' || *s == 'E') {
        from = s + 1 + (s[1] == '+' || s[1] == '-');
        s = json_skip_digits(from);
        if (s == from)
            return false;
    }
    *at = s;
    return true;
}

static const char *json_skip_digits(const char *at)
{
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

static bool json_skip_word(const char **at, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0)
        return false;
    *at += n;
    return true;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* ---- joblogs ------------------------------------------------------------- */

/* Reads a line: Seq Host Starttime JobRuntime Send Receive Exitval Signal
 * Command. The command may contain tabs. */
static bool read_joblog_line(struct span line, struct fact *ret_fact)
{
    struct span column[JOBLOG_COLUMNS];
    int seq = 0, code = 0, signal_number = 0;
    if (line.n >= 4 && memcmp(line.at, "Seq\t", 4) == 0)
        return true; /* the header */
    if (line.n > 0 && line.at[line.n - 1] == '\r')
        line.n--; /* from an editor: a CR of a command is quoted */
    for (size_t i = 0; i < JOBLOG_COLUMNS; i++) {
        const char *tab = memchr(line.at, '\t', line.n);
        if (tab == NULL)
            return false;
        column[i] = (struct span){line.at, (size_t)(tab - line.at)};
        line.n -= column[i].n + 1;
        line.at = tab + 1;
    }
    if (!is_integer(column[SEQ], &seq) || !is_integer(column[EXITVAL], &code) ||
        !is_integer(column[SIGNAL], &signal_number))
        return false;
    ret_fact->zero = code == 0 && signal_number == 0;
    ret_fact->has_hash = true;
    hash_column(line, ret_fact->hash);
    return true;
}

static bool is_integer(struct span s, int *ret_value)
{
    const size_t sign = s.n > 0 && s.at[0] == '-';
    int value = 0;
    if (s.n == sign || s.n > sign + 9)
        return false;
    for (size_t i = sign; i < s.n; i++) {
        if (s.at[i] < '0' || s.at[i] > '9')
            return false;
        value = value * 10 + (s.at[i] - '0');
    }
    *ret_value = sign != 0 ? -value : value;
    return true;
}

/* Computes the hash of the command in a column. */
static void hash_column(struct span column, unsigned char ret_hash[HASH])
{
    const bool ours = column.n >= 3 && memcmp(column.at, "$'", 2) == 0 &&
                      column.at[column.n - 1] == '\'';
    struct text t = {0};
    if (ours && joblog_decode(&t, (struct span){column.at + 2, column.n - 3})) {
        hash_bytes(text_span(&t), ret_hash);
    } else if (memchr(column.at, '\0', column.n) != NULL) {
        text_clear(&t);
        text_add(&t, column.at, column.n);
        for (size_t i = 0; i < t.n; i++)
            if (t.at[i] == '\0')
                t.at[i] = '\n'; /* GNU parallel writes a newline as NUL */
        hash_bytes(text_span(&t), ret_hash);
    } else {
        hash_bytes(column, ret_hash);
    }
    text_free(&t);
}

/* Computes a hash. No attacker is expected: equal commands get equal hashes,
 * and among a billion different commands no two do. */
static void hash_bytes(struct span s, unsigned char ret_hash[HASH])
{
    uint64_t lane[2] = {UINT64_C(0x9e3779b97f4a7c15) ^ s.n,
                        UINT64_C(0xc2b2ae3d27d4eb4f) + s.n};
    for (size_t i = 0; i < s.n + 8; i += 8) {
        uint64_t word = 0;
        if (i < s.n)
            memcpy(&word, s.at + i, s.n - i < 8 ? s.n - i : 8);
        lane[0] = (lane[0] ^ word) * UINT64_C(0xff51afd7ed558ccd);
        lane[0] ^= lane[0] >> 32;
        lane[1] = (lane[1] + word) * UINT64_C(0xc4ceb9fe1a85ec53);
        lane[1] ^= lane[1] >> 29;
    }
    memcpy(ret_hash, lane, HASH);
}
