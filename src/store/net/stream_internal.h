/* SPDX-License-Identifier: MIT */
/* stream_internal.h - the inside of a stream, between stream.c, which opens,
 * ends and closes it, stream_connect.c, which finds and connects the server,
 * and stream_bytes.c, which reads and writes.
 */
#ifndef VOW_STORE_NET_STREAM_INTERNAL_H
#define VOW_STORE_NET_STREAM_INTERNAL_H

#include "base/buf.h"
#include "base/sm.h"
#include "store/net/stream.h"
#include "store/net/tls.h"
#include "vow/call.h"
#include "vow/uv.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

enum {
    VOW__STREAM_READ = 64 * 1024, /* bytes at once */
    VOW__STREAM_CLEAR = 16 * 1024,
    VOW__STREAM_WIRE = 32 * 1024,
    VOW__STREAM_SHOWN = 288,
    VOW__STREAM_WHY = 512
};

enum vow__stream_state {
    VOW__STREAM_NEW,      /* it begins in the next turn */
    VOW__STREAM_LOOKS_UP, /* the name */
    VOW__STREAM_CONNECTS, /* one address after the other */
    VOW__STREAM_GREETS,   /* TLS */
    VOW__STREAM_OPEN,
    VOW__STREAM_ENDED /* told by on_end, or closed */
};

/* What only TLS needs. */
struct vow__secure {
    struct vow__session *session;
    char clear[VOW__STREAM_CLEAR]; /* read */
    char wire[VOW__STREAM_WIRE];   /* to be sent */
    size_t head;
    size_t n; /* of the wire, behind head */
};

struct vow__stream {
    vow_loop *loop;
    struct vow_alloc alloc;
    struct vow__stream_events events;
    uint8_t state;
    bool closed;   /* by the caller, who is told nothing more */
    uint32_t held; /* reasons to stay: the lookup, the handle, a call */

    char *host; /* owned texts; NULL: none */
    char *path;
    char *server_name;
    uint16_t port;
    uint64_t connect_ms;
    uint64_t deadline_ns; /* to be open */
    bool forgiven;        /* that began anew once */
    vow_call turn;        /* begin, or send what was gathered */
    vow_call late;        /* the deadline, or an address took too long */

    uv_getaddrinfo_t lookup;
    bool looking;
    struct addrinfo *found; /* owned; NULL: none */
    struct addrinfo single; /* a path or a literal address, not looked up */
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
    } own;                       /* address of that */
    const struct addrinfo *next; /* to be tried */
    int refused;                 /* why an address could not be connected */

    uv_poll_t poll; /* of fd */
    int fd;         /* -1: none; then the handle may still be closing */
    int watched;    /* what the handle waits for */

    struct vow__tls *tls;
    struct vow__secure *secure; /* NULL: no TLS */
    struct vow__buf out;        /* clear; its maximum is unsent_max */
    size_t looked;              /* out.n when the turn was last looked at */
    uint32_t looks;             /* how often in this turn */
    bool overflow;              /* more than unsent_max */
    bool write_ended; /* the server takes no more; it may have said why */

    char shown[VOW__STREAM_SHOWN]; /* the server, for people */
    char why[VOW__STREAM_WHY];
    char in[VOW__STREAM_READ];
};

/* ---- stream.c ----------------------------------------------------------- */

void vow__stream_move(struct vow__stream *s, enum vow__stream_state to);
/* It is over: the caller is told, and may close it. `format` NULL: the sentence
 * for the code. */
void vow__stream_end(struct vow__stream *s, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Around whatever may end or close it: it stays until the last has let go. */
void vow__stream_hold(struct vow__stream *s);
void vow__stream_let_go(struct vow__stream *s);

/* ---- stream_connect.c --------------------------------------------------- */

void vow__stream_begin(struct vow__stream *s);
/* The server cannot be connected to: a sentence. */
void vow__stream_explain(const struct vow__stream *s, int code, char *why,
                         size_t why_size);
/* The handle and the socket go, the lookup is called off. */
void vow__stream_shut(struct vow__stream *s);

/* ---- stream_bytes.c ----------------------------------------------------- */

/* The socket is connected: TLS, or open. */
void vow__stream_connected(struct vow__stream *s);
void vow__stream_on_socket(uv_poll_t *poll, int status, int events);
int vow__stream_gather(struct vow__stream *s, const char *bytes, size_t n);
/* Send what was gathered, as far as the socket takes it. */
void vow__stream_flush(struct vow__stream *s);
/* Say goodbye by TLS, if the socket takes it. */
void vow__stream_bye(struct vow__stream *s);

#endif
