/* SPDX-License-Identifier: MIT */
/* file_wake.c - telling other instances at once, by datagrams.
 *
 * HOW   Each instance has a socket, sock/ID. What is to be told is gathered
 *       while a step runs and sent when it is committed. Nothing depends on a
 *       datagram: who gets one asks the store, and who gets none asks after
 *       recheck_ms. The kernel lets only some lie there, often ten; what it
 *       refuses is sent again, until that would be too late to be of use.
 *       The kernel says who sent it: nobody but our own user and root is heard.
 *       A path of a socket is short, and a folder may be deep: the socket is
 *       named through the descriptor of the folder.
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    LETTERS_MAX = 4096, /* of one step; the rest looks by itself */
    READ_MAX = 64,      /* in one turn of the loop */
    RESEND_MS = 1,
    RELIEVE_MS = 2,
    LETTER = 1 + 32 /* bytes on the way */
};

static void address(const struct vow__file *s, const char *hex,
                    struct sockaddr_un *at);
static void on_messages(uv_poll_t *poll, int status, int events);
static bool message_read(struct vow__file *s, void *message);
static bool trusted(struct msghdr *m);
static void message_tell(struct vow__file *s, const unsigned char *message);
static void on_poll_closed(uv_handle_t *handle);
static void send_pile(struct vow__file *s, struct vow__file_pile *p);
static bool send_one(struct vow__file *s, int fd,
                     const struct vow__file_message *l);
static void message_add(struct vow__file *s, struct vow__file_pile *p,
                        const struct vow__file_message *l);
static void soon(struct vow__file *s, uint64_t ms);
static void on_later(uv_timer_t *timer);

/* ---- receiving ---------------------------------------------------------- */

int vow__file_socket_open(struct vow__file *s)
{
    const int on = 1;
    struct sockaddr_un at;
    int flags = SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    s->poll = vow__mem_zero(&s->alloc, sizeof(*s->poll));
    s->sock = s->poll == NULL ? -1 : socket(AF_UNIX, flags, 0);
    if (s->poll == NULL)
        return VOW_ENOMEM;
    address(s, s->hex, &at);
    if (s->sock < 0 ||
        setsockopt(s->sock, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) != 0 ||
        bind(s->sock, (const struct sockaddr *)&at, sizeof(at)) != 0)
        goto fail;
    int rc = uv_poll_init(vow_loop_uv(s->loop), s->poll, s->sock);
    if (rc < 0) {
        errno = -rc;
        goto fail;
    }
    s->poll->data = s;
    (void)uv_poll_start(s->poll, UV_READABLE, on_messages);
    uv_unref((uv_handle_t *)s->poll);
    s->handles++;
    return 0;

fail:
    rc = vow__file_fail_errno(s, "sock", errno);
    vow__mem_free(&s->alloc, s->poll, sizeof(*s->poll));
    s->poll = NULL;
    return rc;
}

void vow__file_socket_close(struct vow__file *s)
{
    struct sockaddr_un at;
    if (s->poll != NULL) {
        (void)uv_poll_stop(s->poll);
        uv_close((uv_handle_t *)s->poll, on_poll_closed);
        s->poll = NULL;
    }
    if (s->sock >= 0) {
        address(s, s->hex, &at);
        (void)unlink(at.sun_path);
        (void)close(s->sock);
    }
    s->sock = -1;
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct vow__file *s = handle->data;
    vow__mem_free(&s->alloc, handle, sizeof(uv_poll_t));
    vow__file_handle_closed(s);
}

static void address(const struct vow__file *s, const char *hex,
                    struct sockaddr_un *at)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(at->sun_path, sizeof(at->sun_path),
                   "/proc/self/fd/%d/sock/%s", s->dir, hex);
}

static void on_messages(uv_poll_t *poll, int status, int events)
{
    struct vow__file *s = poll->data;
    unsigned char message[LETTER];
    (void)status;
    (void)events;
    for (int n = 0; n < READ_MAX; n++) {
        if (s->sock < 0 || !message_read(s, message))
            break;
        message_tell(s, message);
    }
}

/* The next one that counts; false when there is none. */
static bool message_read(struct vow__file *s, void *message)
{
    for (int i = 0; i < READ_MAX; i++) {
        union {
            struct cmsghdr head;
            char room[CMSG_SPACE(sizeof(struct ucred))];
        } control;
        struct iovec part = {.iov_base = message, .iov_len = LETTER};
        struct msghdr m = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof(control)};
        ssize_t size = recvmsg(s->sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (size < 0)
            return false;
        if (size == LETTER && (m.msg_flags & MSG_TRUNC) == 0 && trusted(&m))
            return true;
    }
    return false;
}

static bool trusted(struct msghdr *m)
{
    struct ucred who;
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (c == NULL || c->cmsg_level != SOL_SOCKET ||
        c->cmsg_type != SCM_CREDENTIALS || c->cmsg_len < CMSG_LEN(sizeof(who)))
        return false;
    memcpy(&who, CMSG_DATA(c), sizeof(who));
    return who.uid == geteuid() || who.uid == 0;
}

static void message_tell(struct vow__file *s, const unsigned char *message)
{
    const vow_store_events *e = &s->events;
    vow_record r = {.status = 0, .label = "", .runner = ""};
    vow_token token;
    memcpy(&r.name, message + 1, sizeof(r.name));
    memcpy(&token, message + 1, sizeof(token));
    switch (message[0]) {
    case FILE_RECORD:
        if (e->on_record != NULL)
            e->on_record(&r, e->user);
        break;
    case FILE_CANCEL:
        if (e->on_cancel != NULL)
            e->on_cancel(&r.name, e->user);
        break;
    case FILE_CHUNKS:
        if (e->on_chunks != NULL)
            e->on_chunks(&r.name, e->user);
        break;
    case FILE_PLACE:
        if (e->on_permit != NULL)
            e->on_permit(&token, e->user);
        break;
    default:
        break;
    }
}

/* ---- sending ------------------------------------------------------------ */

void vow__file_tell(struct vow__file *s, const void *to,
                    enum vow__file_message_kind kind, const void *what,
                    size_t size)
{
    struct vow__file_message l = {.kind = (unsigned char)kind};
    memcpy(l.to, to, FILE_ID);
    memcpy(l.what, what, size);
    message_add(s, &s->messages, &l);
}

void vow__file_messages_send(struct vow__file *s)
{
    if (s->messages.size == 0)
        return;
    if (s->unsent.size == 0)
        s->unsent_us = s->now_us;
    send_pile(s, &s->messages);
    s->messages.size = 0;
    if (s->unsent.size > 0)
        soon(s, RESEND_MS);
}

/* Without a socket of its own an instance can tell too. What is refused
 * goes to s->unsent, which may be `p`: then it is already gathered there. */
static void send_pile(struct vow__file *s, struct vow__file_pile *p)
{
    size_t n = p->size / sizeof(struct vow__file_message);
    int fd = s->sock;
    if (fd < 0)
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (p == &s->unsent)
        p->size = 0;
    for (size_t i = 0; i < n && fd >= 0; i++) {
        struct vow__file_message l;
        memcpy(&l, p->at + i * sizeof(l), sizeof(l));
        if (!send_one(s, fd, &l))
            message_add(s, &s->unsent, &l);
    }
    if (fd >= 0 && fd != s->sock)
        (void)close(fd);
}

/* False: it may be taken later. */
static bool send_one(struct vow__file *s, int fd,
                     const struct vow__file_message *l)
{
    struct sockaddr_un at;
    char hex[FILE_HEX];
    vow__file_hex(l->to, hex);
    address(s, hex, &at);
    const char *from =
        (const char *)l + offsetof(struct vow__file_message, kind);
    return sendto(fd, from, LETTER, MSG_DONTWAIT | MSG_NOSIGNAL,
                  (const struct sockaddr *)&at, sizeof(at)) >= 0 ||
           (errno != EAGAIN && errno != ENOBUFS);
}

static void message_add(struct vow__file *s, struct vow__file_pile *p,
                        const struct vow__file_message *l)
{
    void *at = NULL;
    if (p->size < LETTERS_MAX * sizeof(*l))
        at = vow__file_pile_add(s, p, sizeof(*l));
    if (at != NULL)
        memcpy(at, l, sizeof(*l));
}

/* ---- later -------------------------------------------------------------- */

/* Whatever comes first: all that there is to do is done then. */
static void soon(struct vow__file *s, uint64_t ms)
{
    uv_handle_t *timer = (uv_handle_t *)&s->later;
    if (s->closing != NULL ||
        (uv_is_active(timer) != 0 && uv_timer_get_due_in(&s->later) <= ms))
        return;
    (void)uv_timer_start(&s->later, on_later, ms, 0);
    uv_unref(timer);
}

void vow__file_doubt(struct vow__file *s)
{
    s->doubts = s->closing == NULL;
    soon(s, 0);
}

void vow__file_relieve_soon(struct vow__file *s)
{
    soon(s, RELIEVE_MS);
}

static void on_later(uv_timer_t *timer)
{
    struct vow__file *s = timer->data;
    int64_t late_us = s->unsent_us + FILE_RECHECK_MS * FILE_US_PER_MS;
    if (vow__file_clock_us() > late_us || s->dir < 0)
        s->unsent.size = 0; /* they have looked by themselves */
    if (s->unsent.size > 0)
        send_pile(s, &s->unsent);
    if (s->unsent.size > 0)
        soon(s, RESEND_MS);
    vow__file_relieve(s);
    bool doubts = s->doubts;
    s->doubts = false;
    if (doubts && s->events.on_doubt != NULL)
        s->events.on_doubt(s->events.user);
}
