/* SPDX-License-Identifier: MIT */
/* file_wake.c - wake-ups for other instances, as datagrams.
 *
 * HOW   Each instance has a socket, sock/ID. The messages of a step are
 *       gathered while the step runs, and sent after the commit. Nothing
 *       depends on a message: the receiver asks the store, and an instance that
 *       receives nothing asks after recheck_ms. The kernel queues few messages
 *       per socket, often ten; a message that the kernel refuses is sent again,
 *       until the receiver has asked by itself.
 *       A message about a settled name carries the record and the result, if
 *       the result is small: the waiter has the result without asking. A
 *       message that is sent again does not carry the result.
 *       The folder is of mode 0700, and the kernel tells the sender: a message
 *       counts only from a process of the same user or of root. A message with
 *       another size than its fields say does not count.
 *       The address of a socket is short, and the path of a folder may be long
 *       or change: then the address goes through the descriptor of the folder.
 *       By the path of the folder the kernel finds a socket sooner.
 * THREADS  loop thread only.
 */
#include "base/bytes.h"
#include "store/file/file_rows.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    MESSAGES_MAX = 4096,   /* of a step; other waiters ask by themselves */
    READ_MAX = 64,         /* in one turn of the loop */
    VALUE_SENT_MAX = 8192, /* bytes of a result in a message */
    RESEND_MS = 1,
    RELIEVE_MS = 2,
    BARE = 1 + 32 /* bytes of a message without a result: kind and name */
};

/* Follows the name in a message with a result; label, runner and value follow,
 * without NUL. The fields have the names of vow_record. */
struct result_head {
    int64_t sent_us; /* the clock of the store, at age_ms and left_ms */
    uint64_t epoch, first, age_ms, left_ms, cost_ms;
    uint32_t mode, takeovers;
    uint32_t value_size;
    uint16_t label_size, runner_size;
    uint32_t failed;
    uint32_t zero; /* no padding: all bytes are sent */
};

enum {
    RESULT_MAX = sizeof(struct result_head) + 2 * VOW_LABEL_MAX + VALUE_SENT_MAX
};

static void socket_address(const struct vow__file *s, const char *hex,
                           struct sockaddr_un *at);
static bool socket_path(const struct vow__file *s, const char *hex,
                        struct sockaddr_un *at);
static void on_messages(uv_poll_t *poll, int status, int events);
static size_t message_receive(struct vow__file *s, void *to, size_t room);
static bool message_is_trusted(struct msghdr *m);
static void message_handle(struct vow__file *s, const unsigned char *message,
                           size_t size);
static void record_handle(struct vow__file *s, const vow_name *name,
                          const unsigned char *result, size_t size);
static bool result_read(struct vow__file *s, const unsigned char *result,
                        size_t size, vow_record *r, char *label, char *runner);
static void on_poll_closed(uv_handle_t *handle);
static void messages_send(struct vow__file *s, struct vow__buf *p);
static bool message_send(struct vow__file *s, int fd,
                         const struct vow__file_message *m);
static void message_add(struct vow__buf *p, const struct vow__file_message *m);
static void later_start(struct vow__file *s, uint64_t ms);
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
    socket_address(s, s->hex, &at);
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
        socket_address(s, s->hex, &at);
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

static void socket_address(const struct vow__file *s, const char *hex,
                           struct sockaddr_un *at)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    (void)snprintf(at->sun_path, sizeof(at->sun_path),
                   "/proc/self/fd/%d/sock/%s", s->dir, hex);
}

/* Addresses a socket by the path of the folder; false: the path is too long. */
static bool socket_path(const struct vow__file *s, const char *hex,
                        struct sockaddr_un *at)
{
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(at->sun_path, sizeof(at->sun_path), "%s/sock/%s",
                     s->folder, hex);
    return n > 0 && (size_t)n < sizeof(at->sun_path);
}

static void on_messages(uv_poll_t *poll, int status, int events)
{
    struct vow__file *s = poll->data;
    unsigned char message[BARE + RESULT_MAX];
    (void)status;
    (void)events;
    for (int n = 0; n < READ_MAX && s->sock >= 0; n++) {
        size_t size = message_receive(s, message, sizeof(message));
        if (size == 0)
            break;
        message_handle(s, message, size);
    }
}

/* Receives the next message that counts; returns 0 if there is none. */
static size_t message_receive(struct vow__file *s, void *to, size_t room)
{
    for (int i = 0; i < READ_MAX; i++) {
        union {
            struct cmsghdr head;
            char room[CMSG_SPACE(sizeof(struct ucred))];
        } control;
        struct iovec part = {.iov_base = to, .iov_len = room};
        struct msghdr m = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = &control,
                           .msg_controllen = sizeof(control)};
        ssize_t size = recvmsg(s->sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (size < 0)
            return 0;
        if (size >= BARE && (m.msg_flags & MSG_TRUNC) == 0 &&
            message_is_trusted(&m))
            return (size_t)size;
    }
    return 0;
}

static bool message_is_trusted(struct msghdr *m)
{
    struct ucred sender;
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (c == NULL || c->cmsg_level != SOL_SOCKET ||
        c->cmsg_type != SCM_CREDENTIALS ||
        c->cmsg_len < CMSG_LEN(sizeof(sender)))
        return false;
    memcpy(&sender, CMSG_DATA(c), sizeof(sender));
    return sender.uid == geteuid() || sender.uid == 0;
}

static void message_handle(struct vow__file *s, const unsigned char *message,
                           size_t size)
{
    const vow_store_events *e = &s->events;
    vow_name name;
    vow_token token;
    memcpy(&name, message + 1, sizeof(name));
    memcpy(&token, message + 1, sizeof(token));
    if (message[0] == FILE_RECORD)
        record_handle(s, &name, message + BARE, size - BARE);
    else if (size != BARE)
        return;
    else if (message[0] == FILE_CANCEL && e->on_cancel != NULL)
        e->on_cancel(&name, e->user);
    else if (message[0] == FILE_CHUNKS && e->on_chunks != NULL)
        e->on_chunks(&name, e->user);
    else if (message[0] == FILE_PLACE && e->on_permit != NULL)
        e->on_permit(&token, e->user);
}

static void record_handle(struct vow__file *s, const vow_name *name,
                          const unsigned char *result, size_t size)
{
    char label[VOW_LABEL_MAX + 1] = "";
    char runner[VOW_LABEL_MAX + 1] = "";
    vow_record r = {.name = *name, .label = label, .runner = runner};
    if (size > 0 && !result_read(s, result, size, &r, label, runner))
        return;
    if (s->events.on_record != NULL)
        s->events.on_record(&r, s->events.user);
    vow_bytes_unref(r.value);
}

/* Returns false if the message makes no sense. Without memory for the value the
 * status stays NONE: the waiter asks the store. */
static bool result_read(struct vow__file *s, const unsigned char *result,
                        size_t size, vow_record *r, char *label, char *runner)
{
    struct result_head h;
    if (size < sizeof(h))
        return false;
    memcpy(&h, result, sizeof(h));
    const unsigned char *texts = result + sizeof(h);
    if (h.label_size > VOW_LABEL_MAX || h.runner_size > VOW_LABEL_MAX ||
        h.value_size > VALUE_SENT_MAX ||
        size - sizeof(h) != (size_t)h.label_size + h.runner_size + h.value_size)
        return false;
    const unsigned char *value = texts + h.label_size + h.runner_size;
    if (h.value_size > 0 &&
        vow__bytes_make(&s->alloc, value, h.value_size, &r->value) < 0)
        return true;
    int64_t now_us = vow__file_clock_us();
    uint64_t late_ms = now_us > h.sent_us
                           ? (uint64_t)(now_us - h.sent_us) / FILE_US_PER_MS
                           : 0;
    memcpy(label, texts, h.label_size);
    memcpy(runner, texts + h.label_size, h.runner_size);
    r->status = VOW_STATUS_SETTLED;
    r->mode = h.mode;
    r->epoch = h.epoch;
    r->first = h.first;
    r->takeovers = h.takeovers;
    r->failed = h.failed != 0;
    r->age_ms = h.age_ms + late_ms;
    r->pulse_ms = r->age_ms;
    r->left_ms = h.left_ms;
    if (h.left_ms != UINT64_MAX)
        r->left_ms = h.left_ms > late_ms ? h.left_ms - late_ms : 0;
    r->cost_ms = h.cost_ms;
    return true;
}

/* ---- sending ------------------------------------------------------------ */

void vow__file_tell(struct vow__file *s, const void *to,
                    enum vow__file_message_kind kind, const void *what,
                    size_t size)
{
    struct vow__file_message m = {.kind = (unsigned char)kind};
    memcpy(m.to, to, FILE_ID);
    memcpy(m.what, what, size);
    message_add(&s->messages, &m);
}

void vow__file_tell_result(struct vow__file *s, const vow_record *r)
{
    size_t size = vow_bytes_size(r->value);
    size_t label = strlen(r->label);
    size_t runner = strlen(r->runner);
    if (size > VALUE_SENT_MAX || label > VOW_LABEL_MAX ||
        runner > VOW_LABEL_MAX)
        return;
    const struct result_head h = {.sent_us = s->now_us,
                                  .epoch = r->epoch,
                                  .first = r->first,
                                  .age_ms = r->age_ms,
                                  .left_ms = r->left_ms,
                                  .cost_ms = r->cost_ms,
                                  .mode = r->mode,
                                  .takeovers = r->takeovers,
                                  .value_size = (uint32_t)size,
                                  .label_size = (uint16_t)label,
                                  .runner_size = (uint16_t)runner,
                                  .failed = r->failed};
    vow__buf_clear(&s->result);
    vow__buf_add(&s->result, &r->name, sizeof(r->name));
    vow__buf_add(&s->result, &h, sizeof(h));
    vow__buf_add(&s->result, r->label, label);
    vow__buf_add(&s->result, r->runner, runner);
    if (size > 0)
        vow__buf_add(&s->result, vow_bytes_data(r->value), size);
    if (s->result.code != 0)
        vow__buf_clear(&s->result);
}

void vow__file_messages_drop(struct vow__file *s)
{
    vow__buf_clear(&s->messages);
    vow__buf_clear(&s->result);
}

void vow__file_messages_send(struct vow__file *s)
{
    if (s->messages.n > 0) {
        if (s->unsent.n == 0)
            s->unsent_us = s->now_us;
        messages_send(s, &s->messages);
        if (s->unsent.n > 0)
            later_start(s, RESEND_MS);
    }
    vow__file_messages_drop(s);
}

/* An instance without a socket of its own sends too. Messages that the kernel
 * refuses go to s->unsent, which may be `p`. */
static void messages_send(struct vow__file *s, struct vow__buf *p)
{
    size_t n = p->n / sizeof(struct vow__file_message);
    int fd = s->sock;
    if (fd < 0)
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    for (size_t i = 0; i < n && fd >= 0; i++) {
        struct vow__file_message m;
        memcpy(&m, p->bytes, sizeof(m));
        vow__buf_take(p, sizeof(m));
        if (!message_send(s, fd, &m))
            message_add(&s->unsent, &m);
    }
    if (fd >= 0 && fd != s->sock)
        (void)close(fd);
}

/* Returns false if the kernel may take the message later. */
static bool message_send(struct vow__file *s, int fd,
                         const struct vow__file_message *m)
{
    struct sockaddr_un at;
    char hex[FILE_HEX];
    struct vow__file_message bare = *m;
    struct iovec parts[2] = {{.iov_base = &bare.kind, .iov_len = BARE}};
    struct msghdr h = {.msg_name = &at,
                       .msg_namelen = sizeof(at),
                       .msg_iov = parts,
                       .msg_iovlen = 1};
    if (m->kind == FILE_RECORD && s->result.n > 0 &&
        memcmp(m->what, s->result.bytes, sizeof(vow_name)) == 0) {
        parts[1].iov_base = s->result.bytes + sizeof(vow_name);
        parts[1].iov_len = s->result.n - sizeof(vow_name);
        h.msg_iovlen = 2;
    }
    vow__file_hex(m->to, hex);
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    ssize_t sent = -1;
    errno = ENAMETOOLONG;
    if (socket_path(s, hex, &at))
        sent = sendmsg(fd, &h, flags);
    if (sent < 0 && errno != EAGAIN && errno != ENOBUFS) {
        socket_address(s, hex, &at); /* the folder may have another path now */
        sent = sendmsg(fd, &h, flags);
    }
    return sent >= 0 || (errno != EAGAIN && errno != ENOBUFS);
}

static void message_add(struct vow__buf *p, const struct vow__file_message *m)
{
    void *at = NULL;
    if (p->n < MESSAGES_MAX * sizeof(*m))
        at = vow__buf_push(p, sizeof(*m));
    if (at != NULL)
        memcpy(at, m, sizeof(*m));
}

/* ---- later -------------------------------------------------------------- */

/* Starts the timer, unless it fires earlier: on_later() does all that is due
 * and all that is not. */
static void later_start(struct vow__file *s, uint64_t ms)
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
    later_start(s, 0);
}

void vow__file_relieve_soon(struct vow__file *s)
{
    later_start(s, RELIEVE_MS);
}

static void on_later(uv_timer_t *timer)
{
    struct vow__file *s = timer->data;
    int64_t late_us = s->unsent_us + FILE_RECHECK_MS * FILE_US_PER_MS;
    if (vow__file_clock_us() > late_us || s->dir < 0)
        vow__buf_clear(&s->unsent); /* the receivers have asked by themselves */
    if (s->unsent.n > 0)
        messages_send(s, &s->unsent);
    if (s->unsent.n > 0)
        later_start(s, RESEND_MS);
    vow__file_relieve(s);
    bool doubts = s->doubts;
    s->doubts = false;
    if (doubts && s->events.on_doubt != NULL)
        s->events.on_doubt(s->events.user);
}
