/* SPDX-License-Identifier: MIT */
/* record.c - writes a line per ended job to the log and to the joblog.
 *
 * WHY   A log outlives crashes, full disks and interrupted runs. A later reader
 *       must find whole lines only.
 * HOW   A line is made in memory and appended by one write. The rest of a
 *       failed write is cut off at once; the rest of a crash is cut off when
 *       the log is opened again, but only if the last line looks like a line
 *       of vow: a wrong file name must not cost the user the end of a file.
 * INVARIANTS
 *   L1  after log_open() and every log_write() a log ends with a newline, or is
 *       empty; else nothing more is ever written to the log.
 * LIMITS  The lock is advisory (flock): other runs respect the lock, editors do
 *       not.
 */
#include "record.h"
#include "say.h"

#include "units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { US_PER_S = 1000000, US_PER_MS = 1000, TAIL_CHUNK = 64 * 1024 };

struct log {
    int fd;
    int broken;       /* errno: a torn line could not be cut off (L1); 0: no */
    struct text host; /* name of the host as JSON */
    struct text line; /* memory for the next line */
};

static const char LINE_BEGIN[] = "{\"seq\":";
static const char JOBLOG_HEAD[] = "Seq\tHost\tStarttime\tJobRuntime\tSend\t"
                                  "Receive\tExitval\tSignal\tCommand\n";

static char *message_join(const char *first, ...) __attribute__((sentinel));
static int open_to_append(const char *path, int how);
static bool path_is_stream(const char *path);
static char *log_prepare(int fd, const char *path, bool resume);
static char *lock_describe_holder(int fd, const char *path);
static pid_t lock_find_holder(int fd);
static char *log_cut_torn_line(int fd, const char *path, off_t size);
static char *joblog_prepare(int fd, const char *path);
static off_t file_find_last_line_end(int fd, off_t size);
static int line_append(int fd, const struct text *line);
static void line_add_record(struct text *t, const struct log *l,
                            const struct record *r);
static void line_add_seconds(struct text *t, const char *name, uint64_t us);
static uint64_t timeval_us(struct timeval tv);
static bool end_is_by_signal(struct end e);
static void line_add_command(struct text *t, struct span command);

/* ---- the log ------------------------------------------------------------- */

struct log *log_open(const char *path, bool resume, char **ret_error)
{
    char host[256] = "";
    int fd = open_to_append(path, 0);
    if (fd < 0) {
        *ret_error = message_join("cannot open ", path, ": ", strerror(errno),
                                  (char *)NULL);
        return NULL;
    }
    char *error = log_prepare(fd, path, resume);
    if (error != NULL) {
        close(fd);
        *ret_error = error;
        return NULL;
    }
    struct log *l = mem_new(sizeof(*l));
    l->fd = fd;
    if (gethostname(host, sizeof(host) - 1) != 0)
        host[0] = '\0';
    text_add_json(&l->host, span_of(host));
    return l;
}

int log_write(struct log *l, const struct record *r)
{
    if (l->broken != 0)
        return l->broken;
    text_clear(&l->line);
    line_add_record(&l->line, l, r);
    int rc = line_append(l->fd, &l->line);
    if (rc < 0)
        l->broken = -rc; /* keeps L1 */
    return abs(rc);
}

int log_close(struct log *l)
{
    if (l == NULL)
        return 0;
    int rc = close(l->fd) == 0 ? 0 : errno;
    text_free(&l->host);
    text_free(&l->line);
    free(l);
    return rc;
}

/* Joins strings, up to NULL. The result is owned by the caller. */
static char *message_join(const char *first, ...)
{
    struct text t = {0};
    va_list more;
    va_start(more, first);
    for (const char *s = first; s != NULL; s = va_arg(more, const char *))
        text_add_str(&t, s);
    va_end(more);
    return t.at;
}

/* Opens a file for appending. A regular file is opened for reading too, to look
 * at the end. A pipe is not: if vow could read the pipe, a missing reader would
 * not be noticed. */
static int open_to_append(const char *path, int how)
{
    how |= path_is_stream(path) ? O_WRONLY : O_RDWR | O_CREAT;
    return open(path, how | O_APPEND | O_CLOEXEC | O_NOCTTY, 0666);
}

static bool path_is_stream(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

/* Locks the log and cuts off a torn line. Returns an error, or NULL: the log
 * ends with a whole line. */
static char *log_prepare(int fd, const char *path, bool resume)
{
    struct stat st = {0};
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode))
        return resume ? message_join(path, " is not a file to --resume from",
                                     (char *)NULL)
                      : NULL;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK
                   ? lock_describe_holder(fd, path)
                   : message_join("cannot lock ", path, ": ", strerror(errno),
                                  (char *)NULL);
    if (fstat(fd, &st) != 0)
        return message_join("cannot read ", path, ": ", strerror(errno),
                            (char *)NULL);
    if (st.st_size > 0 && !resume)
        return message_join(path,
                            " is not empty; add --resume to go on with it, "
                            "or remove it",
                            (char *)NULL);
    return log_cut_torn_line(fd, path, st.st_size);
}

static char *lock_describe_holder(int fd, const char *path)
{
    struct text t = {0};
    pid_t pid = lock_find_holder(fd);
    text_addf(&t, "%s is in use by another run", path);
    if (pid > 0)
        text_addf(&t, " (pid %d)", (int)pid);
    return t.at;
}

/* Returns the process that holds the lock, from the kernel's list: "7: FLOCK
 * ADVISORY  WRITE 123 fe:01:4711 0 EOF", with device numbers in hexadecimal.
 * Some file systems show another device there than in stat(), and processes of
 * other namespaces have no number: then 0. */
static pid_t lock_find_holder(int fd)
{
    struct stat st;
    char line[256], want[64];
    pid_t found = 0;
    FILE *locks = fopen("/proc/locks", "re");
    if (locks == NULL)
        return 0;
    if (fstat(fd, &st) != 0)
        st.st_ino = 0;
    snprintf(want, sizeof(want), "%02x:%02x:%ju", major(st.st_dev),
             minor(st.st_dev), (uintmax_t)st.st_ino);
    while (found == 0 && fgets(line, sizeof(line), locks) != NULL) {
        char pid[32], file[64];
        if (sscanf(line, "%*s FLOCK %*s %*s %31s %63s", pid, file) == 2 &&
            strcmp(file, want) == 0)
            found = (pid_t)strtol(pid, NULL, 10);
    }
    fclose(locks);
    return found > 0 && (kill(found, 0) == 0 || errno == EPERM) ? found : 0;
}

/* Cuts off a torn last line, or NULs: after a crash of the machine, the end may
 * be NULs. Returns an error, or NULL. */
static char *log_cut_torn_line(int fd, const char *path, off_t size)
{
    char begin[sizeof(LINE_BEGIN)] = "";
    off_t end = file_find_last_line_end(fd, size);
    ssize_t n = end < 0 ? -1 : pread(fd, begin, sizeof(begin) - 1, 0);
    bool ours = end <= 0 || memcmp(begin, LINE_BEGIN, (size_t)n) == 0;
    if (n >= 0 && ours) {
        memset(begin, 0, sizeof(begin));
        n = pread(fd, begin, sizeof(begin) - 1, end);
    }
    if (n < 0)
        return message_join("cannot read ", path, ": ", strerror(errno),
                            (char *)NULL);
    if (!ours ||
        (begin[0] != '\0' && memcmp(begin, LINE_BEGIN, (size_t)n) != 0))
        return message_join(path, " is not a log of vow; it was left as it is",
                            (char *)NULL);
    if (end == size)
        return NULL;
    if (ftruncate(fd, end) != 0)
        return message_join("cannot cut off the torn last line of ", path, ": ",
                            strerror(errno), (char *)NULL);
    return NULL;
}

/* ---- the joblog ---------------------------------------------------------- */

FILE *joblog_open(const char *path, bool line_append, char **ret_error)
{
    int fd = open_to_append(path, line_append ? 0 : O_TRUNC);
    if (fd < 0) {
        *ret_error = message_join("cannot open ", path, ": ", strerror(errno),
                                  (char *)NULL);
        return NULL;
    }
    char *error = joblog_prepare(fd, path);
    FILE *f = error == NULL ? fdopen(fd, "a") : NULL;
    if (f != NULL)
        return f;
    if (error == NULL)
        error = message_join("cannot open ", path, ": ", strerror(errno),
                             (char *)NULL);
    close(fd);
    *ret_error = error;
    return NULL;
}

/* Writes the columns as GNU parallel does, but no failed job has Exitval 0: a
 * killed job has 128 plus the signal; a job that exited with 0 after a timeout
 * has the code of a timeout. */
int joblog_write(FILE *f, const struct record *r)
{
    struct text t = {0};
    const bool killed = end_is_by_signal(r->end);
    const bool timed_out = r->end.kind == END_TIMEOUT;
    int code = killed ? EXIT_SIGNAL + r->end.code : r->end.code;
    if (timed_out && code == 0)
        code = EXIT_TIMEOUT;
    text_addf(&t, "%" PRIu64 "\t:\t%" PRIu64 ".%03" PRIu64 "\t%10.3f\t", r->seq,
              r->start_us / US_PER_S, r->start_us % US_PER_S / US_PER_MS,
              (double)r->wall_us / US_PER_S);
    text_addf(&t, "0\t%" PRIu64 "\t%d\t%d\t", r->out_bytes, code,
              killed ? r->end.code : 0);
    line_add_command(&t, r->command);
    text_add(&t, "\n", 1);
    int rc = line_append(fileno(f), &t);
    text_free(&t);
    return abs(rc);
}

/* Checks a joblog, cuts off a torn line, and writes the header if the file is
 * empty. Returns an error, or NULL. */
static char *joblog_prepare(int fd, const char *path)
{
    char begin[sizeof(JOBLOG_HEAD)];
    const size_t name_n = sizeof(JOBLOG_HEAD) - 2; /* a CR may follow */
    struct stat st = {0};
    off_t end = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        ssize_t n = pread(fd, begin, name_n, 0);
        if (n <= 0 || memcmp(begin, JOBLOG_HEAD, (size_t)n) != 0)
            return message_join(path, " is not a joblog; it was left as it is",
                                (char *)NULL);
        end = file_find_last_line_end(fd, st.st_size);
        if (end < 0 || (end < st.st_size && ftruncate(fd, end) != 0))
            return message_join("cannot cut off the torn last line of ", path,
                                ": ", strerror(errno), (char *)NULL);
    }
    if (end > 0)
        return NULL;
    struct text head = {0};
    text_add_str(&head, JOBLOG_HEAD);
    int rc = line_append(fd, &head);
    text_free(&head);
    return rc == 0 ? NULL
                   : message_join("cannot write to ", path, ": ",
                                  strerror(abs(rc)), (char *)NULL);
}

/* ---- files --------------------------------------------------------------- */

/* Returns the offset behind the last whole line; -1: read error. */
static off_t file_find_last_line_end(int fd, off_t size)
{
    char chunk[TAIL_CHUNK];
    while (size > 0) {
        size_t want = size < TAIL_CHUNK ? (size_t)size : TAIL_CHUNK;
        ssize_t n = pread(fd, chunk, want, size - (off_t)want);
        if (n != (ssize_t)want) {
            errno = n < 0 ? errno : EIO;
            return -1;
        }
        const char *newline = memrchr(chunk, '\n', want);
        size -= (off_t)want;
        if (newline != NULL)
            return size + (newline - chunk) + 1;
    }
    return 0;
}

/* Appends by one write; after a short write, the rest is written to find out
 * the errno. Returns 0; an errno: nothing was appended; or -errno: a torn line
 * is left. */
static int line_append(int fd, const struct text *line)
{
    struct stat st = {0};
    size_t done = 0;
    if (fstat(fd, &st) != 0)
        return errno;
    while (done < line->n) {
        ssize_t n = write(fd, line->at + done, line->n - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            int rc = n == 0 ? EIO : errno;
            return done == 0 || ftruncate(fd, st.st_size) == 0 ? rc : -rc;
        }
    }
    return 0;
}

/* ---- lines --------------------------------------------------------------- */

static void line_add_record(struct text *t, const struct log *l,
                            const struct record *r)
{
    static const char hex[] = "0123456789abcdef";
    char name[32];
    const bool killed = end_is_by_signal(r->end);
    text_addf(t, "%s%" PRIu64 ",\"slot\":%u,\"tries\":%u", LINE_BEGIN, r->seq,
              r->slot, r->tries);
    line_add_seconds(t, "start", r->start_us);
    line_add_seconds(t, "wall", r->wall_us);
    if (killed)
        text_addf(t, ",\"exit\":null,\"signal\":\"%s\"",
                  units_signal_name(r->end.code, name));
    else
        text_addf(t, ",\"exit\":%d,\"signal\":null", r->end.code);
    text_addf(t, ",\"timeout\":%s,\"out\":%" PRIu64 ",\"err\":%" PRIu64,
              r->end.kind == END_TIMEOUT ? "true" : "false", r->out_bytes,
              r->err_bytes);
    line_add_seconds(t, "user", timeval_us(r->usage.ru_utime));
    line_add_seconds(t, "sys", timeval_us(r->usage.ru_stime));
    text_addf(t, ",\"maxrss\":%ld,\"hash\":\"", r->usage.ru_maxrss);
    for (size_t i = 0; i < sizeof(r->hash); i++) {
        text_add(t, &hex[r->hash[i] >> 4], 1);
        text_add(t, &hex[r->hash[i] & 15], 1);
    }
    text_add_str(t, "\"");
    if (r->again)
        text_add_str(t, ",\"again\":true");
    if (r->stopped)
        text_add_str(t, ",\"stopped\":true");
    text_add_str(t, ",\"command\":");
    text_add_json(t, r->command);
    text_add_str(t, ",\"host\":");
    text_add(t, l->host.at, l->host.n);
    text_add_str(t, "}\n");
}

static void line_add_seconds(struct text *t, const char *name, uint64_t us)
{
    text_addf(t, ",\"%s\":%" PRIu64 ".%06" PRIu64, name, us / US_PER_S,
              us % US_PER_S);
}

static uint64_t timeval_us(struct timeval tv)
{
    return (uint64_t)tv.tv_sec * US_PER_S + (uint64_t)tv.tv_usec;
}

static bool end_is_by_signal(struct end e)
{
    return e.kind == END_SIGNAL || (e.kind == END_TIMEOUT && !e.exited);
}

/* Adds a command. A command with newlines or tabs is written as a whole as
 * $'...': one column of one line, and unlike any other command. */
static void line_add_command(struct text *t, struct span command)
{
    static const char escaped[] = "\n\t\r\\'";
    static const char letters[] = "ntr\\'";
    bool plain = command.n < 2 || memcmp(command.at, "$'", 2) != 0;
    for (size_t i = 0; i < command.n && plain; i++)
        plain = memchr("\n\t\r", command.at[i], 3) == NULL;
    if (plain) {
        text_add(t, command.at, command.n);
        return;
    }
    text_add_str(t, "$'");
    for (size_t i = 0; i < command.n; i++) {
        const char *found = memchr(escaped, command.at[i], sizeof(escaped) - 1);
        if (found != NULL)
            text_addf(t, "\\%c", letters[found - escaped]);
        else
            text_add(t, command.at + i, 1);
    }
    text_add(t, "'", 1);
}

bool joblog_decode(struct text *t, struct span s)
{
    static const char letters[] = "ntr\\'";
    static const char meant[] = "\n\t\r\\'";
    for (size_t i = 0; i < s.n; i++) {
        char c = s.at[i];
        if (c == '\\') {
            if (++i == s.n || s.at[i] == '\0')
                return false;
            const char *found = strchr(letters, s.at[i]);
            if (found == NULL)
                return false;
            c = meant[found - letters];
        }
        text_add(t, &c, 1);
    }
    return true;
}
