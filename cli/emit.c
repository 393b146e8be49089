/* SPDX-License-Identifier: MIT */
/* emit.c - see emit.h.
 *
 * INVARIANTS
 *   M1  if pieces wait, a poller watches the target of the first piece, or a
 *       call of emit_pump() is scheduled
 *   M2  the progress bar is hidden while bytes are written
 */
#include "emit.h"
#include "bar.h"
#include "poller.h"
#include "say.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    CHUNK = 1 << 20,
    COPY = 64 << 10,
    TURNS = 16,
    BEHIND_BYTES = 1 << 20,
    BEHIND_PIECES = 64
};

/* How bytes are written to a target. */
enum way { WAY_PLAIN, WAY_PIPE, WAY_SOCKET };

struct target {
    int fd;  /* 1 or 2 */
    int own; /* a non-blocking descriptor of the same file; or `fd` */
    enum way way;
    bool wide;    /* the pipe was enlarged as far as allowed */
    bool careful; /* `own` blocks: poll(), then write few bytes */
    int error;
    struct poller poller;
};

struct piece {
    struct piece *next;
    struct target *to;
    struct text text;
    size_t at; /* bytes of `text` that were written */
    int file;  /* file to copy; -1: the piece is a text */
    uint64_t left;
    bool by_hand;      /* splice or copy_file_range has failed */
    vow_deferred *end; /* fulfilled in order, without bytes; or NULL */
};

static struct {
    vow_loop *loop;
    emit_fail_fn failed;
    void (*room)(void);
    bool do_not_wait;
    struct target out, err;
    struct piece *first;
    struct piece **last;
    struct piece *tail; /* last piece; NULL: the queue is empty */
    size_t waiting;     /* bytes of texts in the queue */
    size_t pieces;
    vow_call pump_call;
} emit;

static void target_open(struct target *t, int fd);
static struct piece *queue_push(void);
static void emit_pump(void *user);
static bool piece_write(struct piece *p);
static ssize_t piece_write_text(struct piece *p);
static ssize_t piece_write_file(struct piece *p);
static ssize_t piece_copy(struct piece *p);
static ssize_t target_write(const struct target *t, const void *at, size_t n);
static void target_give_up(struct piece *p, int error);
static void queue_pop(void);
static void on_target_writable(struct poller *poller, uint32_t events);

void emit_open(vow_loop *loop, emit_fail_fn failed, void (*room)(void))
{
    emit.loop = loop;
    emit.failed = failed;
    emit.room = room;
    emit.last = &emit.first;
    target_open(&emit.out, STDOUT_FILENO);
    target_open(&emit.err, STDERR_FILENO);
}

static void target_open(struct target *t, int fd)
{
    struct stat st;
    char path[32];
    *t = (struct target){.fd = fd, .own = fd};
    if (fstat(fd, &st) < 0)
        return;
    bool tty = S_ISCHR(st.st_mode) && isatty(fd);
    if (S_ISSOCK(st.st_mode))
        t->way = WAY_SOCKET;
    if (!S_ISFIFO(st.st_mode) && !tty)
        return;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    t->careful = own < 0; /* the pipe or terminal belongs to another user */
    if (own < 0)
        return;
    t->own = own;
    t->way = tty ? WAY_PLAIN : WAY_PIPE;
}

/* ---- the queue ----------------------------------------------------------- */

void emit_text(int fd, struct text *moved)
{
    struct target *to = fd == STDERR_FILENO ? &emit.err : &emit.out;
    if (moved->n == 0 || to->error != 0) {
        text_free(moved);
        return;
    }
    struct piece *tail = emit.tail;
    if (tail != NULL && tail->to == to && tail->file < 0 &&
        tail->text.n + moved->n <= COPY) {
        emit.waiting += moved->n;
        text_add(&tail->text, moved->at, moved->n);
        text_free(moved);
        return;
    }
    struct piece *p = queue_push();
    p->to = to;
    p->text = *moved;
    *moved = (struct text){0};
    emit.waiting += p->text.n;
}

void emit_file(int fd, int file, uint64_t n)
{
    struct target *to = fd == STDERR_FILENO ? &emit.err : &emit.out;
    if (n == 0 || to->error != 0) {
        (void)close(file);
        return;
    }
    struct piece *p = queue_push();
    p->to = to;
    p->file = file;
    p->left = n;
    (void)lseek(file, 0, SEEK_SET);
}

static struct piece *queue_push(void)
{
    struct piece *p = mem_new(sizeof(*p));
    p->file = -1;
    if (emit.first == NULL)
        vow_call_soon(&emit.pump_call, emit.loop, emit_pump,
                      NULL); /* keeps M1 */
    emit.pieces++;
    *emit.last = p;
    emit.last = &p->next;
    emit.tail = p;
    return p;
}

ssize_t emit_through(int fd, int pipe)
{
    struct target *t = fd == STDERR_FILENO ? &emit.err : &emit.out;
    ssize_t n = -1;
    errno = ENOSYS;
    if (t->way != WAY_PIPE || t->error != 0)
        return n;
    if (!t->wide)
        (void)fcntl(t->own, F_SETPIPE_SZ, CHUNK); /* if the limits allow */
    t->wide = true;
    errno = EBUSY;
    if (emit.first == NULL)
        n = splice(pipe, NULL, t->own, NULL, CHUNK, SPLICE_F_NONBLOCK);
    struct pollfd ready = {.fd = pipe, .events = POLLIN};
    if (n < 0 && errno == EAGAIN && poll(&ready, 1, 0) == 1) {
        (void)poller_watch(&t->poller, t->own, EPOLLOUT, on_target_writable);
        errno = EBUSY;
    } else if (n < 0 && errno == EPIPE) {
        t->error = EPIPE;
        emit.failed(t->fd, EPIPE);
        errno = ENOSYS;
    }
    return n;
}

size_t emit_waiting(void)
{
    return emit.waiting;
}

bool emit_behind(void)
{
    return emit.waiting > BEHIND_BYTES || emit.pieces > BEHIND_PIECES;
}

vow_future *emit_drained(void)
{
    if (emit.first == NULL)
        return NULL;
    struct piece *p = queue_push();
    vow_future *f = vow_promise(emit.loop, &p->end);
    if (!vow_deferred_pending(p->end))
        die(EXIT_BROKEN, "out of memory");
    return f;
}

void emit_drain(void)
{
    vow_future *written = emit_drained();
    if (written != NULL)
        (void)vow_loop_run_until(emit.loop, written);
    vow_future_unref(written);
}

static void queue_pop(void)
{
    struct piece *p = emit.first;
    vow_deferred *end = p->end;
    emit.first = p->next;
    if (emit.first == NULL) {
        emit.last = &emit.first;
        emit.tail = NULL;
    }
    emit.waiting -= p->text.n;
    emit.pieces--;
    if (p->file >= 0)
        (void)close(p->file);
    text_free(&p->text);
    free(p);
    if (end != NULL)
        (void)vow_resolve_drop(end, vow_nothing());
}

/* ---- writing ------------------------------------------------------------- */

static void emit_pump(void *user)
{
    (void)user;
    bar_hide(); /* keeps M2 */
    int turns = TURNS;
    while (emit.first != NULL && turns-- > 0) {
        struct piece *p = emit.first;
        if (p->to == NULL || p->to->error != 0)
            queue_pop();
        else if (!piece_write(p))
            break; /* the poller watches the target (M1) */
    }
    bar_show();
    if (emit.waiting < BEHIND_BYTES / 2 && emit.room != NULL)
        emit.room();
    if (turns < 0)
        vow_call_soon(&emit.pump_call, emit.loop, emit_pump, NULL);
}

/* Writes a part of the piece. Returns whether the pump can go on: false, the
 * target would block. */
static bool piece_write(struct piece *p)
{
    ssize_t n = p->file >= 0 ? piece_write_file(p) : piece_write_text(p);
    if (n < 0 && errno == EAGAIN && emit.do_not_wait) {
        p->left = 0;
        p->at = p->text.n;
    } else if (n < 0 && errno == EAGAIN) {
        struct target *t = p->to;
        if (poller_watch(&t->poller, t->own, EPOLLOUT, on_target_writable))
            return false;
        (void)poll(&(struct pollfd){.fd = t->own, .events = POLLOUT}, 1, -1);
    } else if (n < 0 && errno != EINTR) {
        target_give_up(p, errno);
    } else if (n == 0 && p->file >= 0) {
        p->left = 0; /* the file was shortened meanwhile */
    }
    if (p->file >= 0 ? p->left == 0 : p->at == p->text.n)
        queue_pop();
    return true;
}

static void on_target_writable(struct poller *poller, uint32_t events)
{
    (void)events;
    (void)poller_watch(poller, poller->fd, 0, on_target_writable);
    emit_pump(NULL);
}

static ssize_t piece_write_text(struct piece *p)
{
    ssize_t n = target_write(p->to, p->text.at + p->at, p->text.n - p->at);
    if (n > 0)
        p->at += (size_t)n;
    return n;
}

static ssize_t target_write(const struct target *t, const void *at, size_t n)
{
    if (t->way == WAY_SOCKET)
        return send(t->own, at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    struct pollfd ready = {.fd = t->own, .events = POLLOUT};
    if (t->careful && poll(&ready, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    if (t->careful && n > PIPE_BUF)
        n = PIPE_BUF;
    return write(t->own, at, n);
}

static ssize_t piece_write_file(struct piece *p)
{
    ssize_t n = -1;
    size_t most = p->left < CHUNK ? (size_t)p->left : CHUNK;
    errno = EINVAL;
    if (!p->by_hand && p->to->way == WAY_PIPE)
        n = splice(p->file, NULL, p->to->own, NULL, most, SPLICE_F_NONBLOCK);
    else if (!p->by_hand && p->to->way == WAY_PLAIN && !p->to->careful)
        n = copy_file_range(p->file, NULL, p->to->own, NULL, most, 0);
    if (n > 0)
        p->left -= (uint64_t)n;
    if (n < 0 && (errno == EINVAL || errno == EXDEV || errno == EBADF ||
                  errno == EOPNOTSUPP || errno == ENOSYS || errno == EPERM)) {
        p->by_hand = true;
        n = piece_copy(p);
    }
    return n;
}

/* Copies by read and write. Bytes that were read and not written are read again
 * later. */
static ssize_t piece_copy(struct piece *p)
{
    static char buffer[COPY];
    size_t most = p->left < COPY ? (size_t)p->left : COPY;
    ssize_t got = read(p->file, buffer, most);
    if (got <= 0)
        return got;
    ssize_t n = target_write(p->to, buffer, (size_t)got);
    int error = errno;
    if (n < got)
        (void)lseek(p->file, (n < 0 ? 0 : n) - got, SEEK_CUR);
    if (n > 0)
        p->left -= (uint64_t)n;
    errno = error;
    return n;
}

static void target_give_up(struct piece *p, int error)
{
    struct target *t = p->to;
    t->error = error;
    p->left = 0;
    p->at = p->text.n;
    emit.failed(t->fd, error);
}

void emit_do_not_wait(void)
{
    emit.do_not_wait = true;
    if (emit.first != NULL)
        vow_call_soon(&emit.pump_call, emit.loop, emit_pump, NULL);
}
