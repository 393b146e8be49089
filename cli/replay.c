/* SPDX-License-Identifier: MIT */
/* replay.c - see replay.h.
 *
 * INVARIANTS
 *   R1  a recording in progress is whole but for the end: each piece has the
 *       length given in the head of the piece
 *   R2  n_head bytes of a head are read, and never more than the head has
 */
#include "replay.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

enum { HEAD = 5, PIECE_HEAD = 5, END_HEAD = 1, PIECE_MAX = 1 << 30 };
enum { SIGNAL_OFFSET = 128, SIGNAL_MAX = 127, WAIT_MS = 1000 };

static const unsigned char magic[HEAD] = {'v', 'o', 'w', 'r', 1};

struct writing {
    int error;
};

static void length_write(char *at, uint32_t n);
static uint32_t length_read(const unsigned char *at);
static size_t replay_head_size(const struct replay *p);
static const char *replay_end_head(struct replay *p);
static const char *replay_begin_piece(struct replay *p);
static void on_replay_bytes(int fd, const char *at, size_t n, void *user);

int ending_code(struct ending e)
{
    return e.by_signal ? SIGNAL_OFFSET + e.number : e.number;
}

/* ---- recording ----------------------------------------------------------- */

void recording_add(struct recording *r, int fd, const char *at, size_t n)
{
    char kind = fd == STDERR_FILENO ? 'e' : 'o';
    if (n == 0)
        return;
    if (r->bytes.n == 0)
        text_add(&r->bytes, magic, HEAD);
    char *head = r->bytes.at + r->piece;
    uint32_t has = r->piece == 0 ? 0 : length_read((unsigned char *)head + 1);
    if (r->piece == 0 || head[0] != kind || n > PIECE_MAX - has) {
        r->piece = r->bytes.n;
        has = 0;
        text_add(&r->bytes, (char[PIECE_HEAD]){kind}, PIECE_HEAD);
    }
    text_add(&r->bytes, at, n);
    length_write(r->bytes.at + r->piece + 1, has + (uint32_t)n); /* keeps R1 */
    r->kept += n;
}

void recording_cut(struct recording *r)
{
    r->piece = 0;
}

void recording_end(struct recording *r, struct ending e)
{
    if (r->bytes.n == 0)
        text_add(&r->bytes, magic, HEAD);
    text_add(&r->bytes,
             (char[]){e.by_signal ? 's' : 'x', (char)(unsigned char)e.number},
             2);
    r->piece = 0;
}

static void length_write(char *at, uint32_t n)
{
    for (int i = 0; i < 4; i++)
        at[i] = (char)(unsigned char)(n >> (8 * i));
}

static uint32_t length_read(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}

/* ---- replaying ----------------------------------------------------------- */

const char *replay_feed(struct replay *p, const void *at, size_t n,
                        replay_fn fn, void *user)
{
    const char *from = at;
    const char *end = from + n;
    const char *wrong = NULL;
    while (from < end && wrong == NULL) {
        size_t there = (size_t)(end - from);
        if (p->state == REPLAY_OVER)
            return "there is more behind its end";
        if (p->state == REPLAY_BYTES) {
            size_t some = p->left < there ? p->left : there;
            if (fn != NULL)
                fn(p->fd, from, some, user);
            from += some;
            p->left -= (uint32_t)some;
            if (p->left == 0)
                p->state = REPLAY_PIECE;
            continue;
        }
        p->head[p->n_head++] = (unsigned char)*from++;
        if (p->n_head == 1 && p->state == REPLAY_PIECE)
            wrong = replay_begin_piece(p);
        if (wrong == NULL && p->n_head == replay_head_size(p))
            wrong = replay_end_head(p);
    }
    return wrong;
}

/* Keeps R2. */
static size_t replay_head_size(const struct replay *p)
{
    return p->state == REPLAY_HEAD  ? HEAD
           : p->state == REPLAY_END ? 1 + END_HEAD
                                    : PIECE_HEAD;
}

static const char *replay_begin_piece(struct replay *p)
{
    unsigned char kind = p->head[0];
    if (kind == 'x' || kind == 's')
        p->state = REPLAY_END;
    else if (kind != 'o' && kind != 'e')
        return "it has a piece of an unknown kind";
    return NULL;
}

static const char *replay_end_head(struct replay *p)
{
    unsigned char kind = p->head[0];
    p->n_head = 0;
    if (p->state == REPLAY_HEAD) {
        if (memcmp(p->head, magic, HEAD - 1) != 0)
            return "it is not the result of a command";
        if (p->head[HEAD - 1] != magic[HEAD - 1])
            return "it was written by another version of vow";
        p->state = REPLAY_PIECE;
    } else if (p->state == REPLAY_PIECE) {
        p->fd = kind == 'e' ? STDERR_FILENO : STDOUT_FILENO;
        p->left = length_read(p->head + 1);
        if (p->left == 0 || p->left > PIECE_MAX)
            return "a piece has a length that is not allowed";
        p->state = REPLAY_BYTES;
    } else {
        p->end =
            (struct ending){.by_signal = kind == 's', .number = p->head[1]};
        if (p->end.by_signal &&
            (p->end.number == 0 || p->end.number > SIGNAL_MAX))
            return "it ended by a signal that does not exist";
        p->state = REPLAY_OVER;
    }
    return NULL;
}

bool replay_over(const struct replay *p)
{
    return p->state == REPLAY_OVER;
}

const char *replay_check(const void *at, size_t n, struct ending *ret_end)
{
    struct replay p = {0};
    const char *wrong = replay_feed(&p, at, n, NULL, NULL);
    if (wrong == NULL && !replay_over(&p))
        wrong = "its end is missing";
    if (wrong == NULL)
        *ret_end = p.end;
    return wrong;
}

int replay_write(const void *at, size_t n)
{
    struct replay p = {0};
    struct writing w = {0};
    (void)replay_feed(&p, at, n, on_replay_bytes, &w);
    return w.error;
}

static void on_replay_bytes(int fd, const char *at, size_t n, void *user)
{
    struct writing *w = user;
    if (w->error == 0)
        w->error = write_whole(fd, at, n);
}

int write_whole(int fd, const char *at, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done >= 0) {
            at += done;
            n -= (size_t)done;
        } else if (errno == EAGAIN) { /* fd is non-blocking */
            struct pollfd ready = {.fd = fd, .events = POLLOUT};
            (void)poll(&ready, 1, WAIT_MS);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}
