/* SPDX-License-Identifier: MIT */
/* http.h - requests by HTTP on our loop, many at once. See http.c. */
#ifndef VOW_STORE_NET_HTTP_H
#define VOW_STORE_NET_HTTP_H

#include "base/alloc.h"
#include "vow/loop.h"

struct vow__http;
struct vow__http_request;

struct vow__http_opts {
    bool tls;            /* all connections use TLS */
    const char *ca_file; /* NULL: the system's */
    const char *cert_file;
    const char *key_file;
    size_t connections;  /* at once, streams apart */
    uint64_t connect_ms; /* at most, for a connection */
};

/* VOW_ENOTSUP (no OpenSSL), VOW_ENOMEM, VOW_EINVAL: with a sentence. */
int vow__http_open(vow_loop *loop, const struct vow__http_opts *opts,
                   struct vow__http **ret_http, char *why, size_t why_size);
/* What runs is answered with VOW_ECLOSED, at once. `done` later; then it is
 * freed. */
void vow__http_close(struct vow__http *h, void (*done)(void *user), void *user);

struct vow__http_server {
    char host[256]; /* a name or address, "a" or "::1" */
    uint16_t port;
    char shown[272]; /* "a:2379", "[::1]:2379" */
};
/* VOW_EINVAL: the host is too long. */
int vow__http_server(const char *host, uint16_t port,
                     struct vow__http_server *ret_server);

struct vow__http_ask {
    const struct vow__http_server *server; /* all is copied */
    const char *path;                      /* "/v3/kv/txn" */
    const char *const *header; /* "Authorization: x", NULL behind the last */
    const char *body;          /* it is a POST */
    size_t body_size;
    uint64_t timeout_ms; /* from here to the whole answer; 0: none (a stream) */
    /* From when it has its turn to the whole answer, or to the first bytes of a
     * stream; 0: none. */
    uint64_t part_ms;
    size_t answer_max; /* bytes; more ends it with VOW_E2BIG */
    /* A stream: what has come, as it comes, if the status is 200; the answer
     * has nothing then. NULL: all of it is in the answer. */
    void (*on_bytes)(const char *bytes, size_t n, void *user);
};

struct vow__http_answer {
    int code;  /* 0: there is an answer. VOW_ESTORE: it was never sent, there is
                 no connection. VOW_EUNSURE: it was sent, or perhaps, and there
                 is no answer. VOW_E2BIG, VOW_ECLOSED. VOW_ENOMEM: it was never
                 sent. */
    bool late; /* that is why: its time, or its part of it, was over */
    unsigned status;  /* 200 */
    const char *body; /* borrowed */
    size_t size;
    const char *why; /* a sentence without a full stop, when code is not 0:
                        "a:2379 refused the connection" */
};
typedef void (*vow__http_fn)(const struct vow__http_answer *answer, void *user);

/* `done` once, never before this returns. NULL: VOW_ENOMEM, and no done. */
struct vow__http_request *vow__http_post(struct vow__http *h,
                                         const struct vow__http_ask *ask,
                                         vow__http_fn done, void *user);
/* It is over and `done` is not called. Not from its own `done`. */
void vow__http_cancel(struct vow__http_request *r);

#endif
