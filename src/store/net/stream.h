/* SPDX-License-Identifier: MIT */
/* stream.h - bytes to and from a server: TCP or a local socket, with TLS or
 * without. See stream.c and tls.c.
 *
 * A stream connects once and ends once. Nothing is called inside a call of
 * ours, and nothing after vow__stream_close(). While it connects it keeps the
 * loop running; an open one does not, so that a store without work lets the
 * program end: who waits for an answer has a timer or a hold.
 */
#ifndef VOW_STORE_NET_STREAM_H
#define VOW_STORE_NET_STREAM_H

#include "vow/loop.h"

#include <stdbool.h>
#include <stddef.h>

struct vow__stream;

/* Whom to trust and who we are, read from files once; counted. */
struct vow__tls;
struct vow__tls_opts {
    const char *ca_file;   /* NULL: the system's */
    const char *cert_file; /* NULL: none */
    const char *key_file;  /* NULL: in cert_file */
};
/* VOW_EINVAL with a sentence in `why` (a file that cannot be read, is none, a
 * key that is not the certificate's), VOW_ENOMEM. */
int vow__tls_new(vow_loop *loop, const struct vow__tls_opts *opts,
                 struct vow__tls **ret_tls, char *why, size_t why_size);
struct vow__tls *vow__tls_ref(struct vow__tls *t);
struct vow__tls *vow__tls_unref(struct vow__tls *t); /* NULL */

struct vow__stream_opts {
    const char *host; /* a name or address; NULL: `path` */
    uint16_t port;
    const char *path;        /* of a local socket */
    struct vow__tls *tls;    /* NULL: none; counted by the stream */
    const char *server_name; /* in the certificate; NULL: `host` */
    uint64_t connect_ms;     /* for all until it is open: name, TCP, TLS */
    size_t unsent_max;       /* bytes that wait to be sent; beyond: it ends */
};

struct vow__stream_events {
    void (*on_open)(void *user);
    /* Some bytes, borrowed. */
    void (*on_bytes)(const char *bytes, size_t n, void *user);
    /* It ended by itself, opened or not. `why` is a sentence without a point
     * that names the server: "127.0.0.1:6379 refused the connection". `code`:
     * VOW_ETIMEDOUT, VOW_EQUEUEFULL (unsent_max), VOW_ENOMEM, VOW_EINVAL (no
     * such path or name can be), UV_EPROTO (TLS: certificates, or it speaks
     * none), UV_EOF (it closed), or libuv's. Close it then or later. */
    void (*on_end)(int code, const char *why, void *user);
    void *user;
};

/* All texts are copied. VOW_ENOMEM; everything else comes by on_end. */
int vow__stream_open(vow_loop *loop, const struct vow__stream_opts *opts,
                     const struct vow__stream_events *events,
                     struct vow__stream **ret_stream);

/* Send bytes (copied), in order; those of one turn of the loop leave together.
 * Before on_open they wait. VOW_ENOMEM: nothing of them will be sent; once it
 * has ended they are dropped. */
int vow__stream_send(struct vow__stream *s, const char *bytes, size_t n);

/* Take what has come and was not read yet, before somebody is called silent. It
 * may end, or be closed, inside. */
void vow__stream_look(struct vow__stream *s);

/* True once if this process did not run when a time was due: a timer so late was
 * stopped with the process, and the caller lets the time begin anew. Only once:
 * where every timer is late, no wait may go on for ever. */
bool vow__stream_forgive(const vow_loop *loop, uint64_t due_ns, bool *forgiven);

/* In on_end: the server has refused the certificate we have shown, or the lack
 * of one, and has read nothing of what was sent. */
bool vow__stream_refused(const struct vow__stream *s);

/* Close and forget it: its memory goes when libuv has let go. What was not sent
 * is dropped. The loop is kept alive until then. */
void vow__stream_close(struct vow__stream *s);

#endif
