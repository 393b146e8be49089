/* SPDX-License-Identifier: MIT */
/* http_internal.h - the inside of requests by HTTP, between http.c, which has
 * their life, http_easy.c, which tells libcurl what to do and takes what comes,
 * http_socket.c, which waits for descriptors and times, and http_why.c, which
 * finds words.
 */
#ifndef VOW_STORE_NET_HTTP_INTERNAL_H
#define VOW_STORE_NET_HTTP_INTERNAL_H

#include "base/assert.h"
#include "base/list.h"
#include "store/net/curl.h"
#include "store/net/http.h"
#include "vow/call.h"
#include "vow/uv.h"

#include <signal.h>

enum { VOW__HTTP_WHY = 512, VOW__HTTP_SHOWN = 288 };

enum vow__http_state {
    VOW__HTTP_IDLE = 0, /* nobody's: kept for the next one, or being told */
    VOW__HTTP_WAITS,    /* for others to end */
    VOW__HTTP_READY,    /* it begins in the next turn */
    VOW__HTTP_RUNS,     /* libcurl has it */
    VOW__HTTP_DROPPED   /* nobody's, but libcurl still has it */
};

/* Memory that grows, and is used again. */
struct vow__http_bytes {
    char *bytes;
    size_t n, room;
};

struct vow__http_request {
    vow_link link; /* in the list of its state */
    struct vow__http *http;
    uint8_t state;
    bool stream;   /* of bytes as they come; it takes no place of others */
    bool begun;    /* connected: it is sent from here on */
    bool settled;  /* no socket was opened for it since then */
    bool held;     /* the loop runs for it */
    bool forgiven; /* its time began anew once */
    bool repeated; /* libcurl would have sent it a second time */
    int code;      /* why we end it ourselves; 0: we do not */
    CURL *easy;
    struct curl_slist *header;
    struct vow__http_bytes body;
    struct vow__http_bytes answer;
    size_t answer_max;
    uint64_t timeout_ms;  /* 0: none */
    uint64_t part_ms;     /* 0: none */
    uint64_t deadline_ns; /* of both, the earlier */
    uint64_t allowed_ms;  /* until then, for people */
    uint64_t connect_ns;  /* must be begun by then */
    vow_call late;
    void (*on_bytes)(const char *bytes, size_t n, void *user);
    vow__http_fn done;
    void *user;
    char shown[VOW__HTTP_SHOWN]; /* the server, for people: "a:2379" */
    char error[CURL_ERROR_SIZE]; /* what libcurl says */
};

/* A descriptor of libcurl's. */
struct vow__http_watcher {
    vow_link link;
    struct vow__http *http;
    uv_poll_t poll;
    int fd;
    int wanted;  /* by libcurl: UV_READABLE, UV_WRITABLE */
    int started; /* by us: may have more, until that is heard of */
    bool kept;   /* between requests, until the connection is closed */
    bool closed;
};

struct vow__http {
    vow_loop *loop;
    struct vow_alloc alloc;
    CURLM *multi;
    char *ca_file; /* owned texts; NULL: none */
    char *cert_file;
    char *key_file;
    size_t connections;
    uint64_t connect_ms;

    vow_link *waiting; /* lists of requests, by their state */
    vow_link *ready;
    vow_link *running;
    vow_link *dropped;
    vow_link *idle;
    size_t n_idle;
    size_t busy;    /* of `connections`: ready and running, not streams */
    size_t streams; /* ready and running */
    size_t awaited; /* held: with a time limit */

    vow_call turn; /* begin and drop */
    bool kick;     /* in that turn libcurl wants to be called */
    bool nudge;    /* in that turn it must look at all of them */
    uv_timer_t timer;
    vow_link *watchers;
    sigset_t signals; /* as they were before libcurl was called */
    size_t handles;   /* of libuv's that are not gone yet */
    bool closing;
    void (*on_closed)(void *user);
    void *on_closed_user;
};

/* ---- http.c ------------------------------------------------------------- */

void vow__http_turn_soon(struct vow__http *h);
/* What libcurl has finished is told. */
void vow__http_collect(struct vow__http *h);
/* Something of a stream has come: it has no time limit any more. */
void vow__http_heard(struct vow__http_request *r);
/* It cannot go on: told in a turn, so this may be called inside libcurl. */
void vow__http_fail(struct vow__http_request *r, int code);
/* One handle less; the last one frees all. */
void vow__http_handle_gone(struct vow__http *h);

/* ---- http_easy.c -------------------------------------------------------- */

/* One without work, or NULL. */
struct vow__http_request *vow__http_request_new(struct vow__http *h);
void vow__http_request_free(struct vow__http_request *r);
int vow__http_request_fill(struct vow__http_request *r,
                           const struct vow__http_ask *ask);
/* Keep memory only if it is little. */
void vow__http_request_empty(struct vow__http_request *r);
/* Some of it has left, so the server may have all. */
bool vow__http_request_sent(const struct vow__http_request *r);

/* ---- http_socket.c ------------------------------------------------------ */

/* The callbacks of the multi handle, and the timer. */
int vow__http_sockets_open(struct vow__http *h);
void vow__http_sockets_close(struct vow__http *h);
/* What libcurl has to do in this turn. */
void vow__http_work(struct vow__http *h);
curl_socket_t vow__http_socket_open(void *user, curlsocktype purpose,
                                    struct curl_sockaddr *address);
int vow__http_socket_close(void *user, curl_socket_t fd);

/* ---- http_why.c --------------------------------------------------------- */

/* "a:2379" of "https://a:2379/v3/kv/txn". */
void vow__http_show(const char *url, char *shown, size_t size);
/* What a failed request ends with, and a sentence. */
int vow__http_explain(const struct vow__http_request *r, CURLcode result,
                      char *why, size_t why_size);

#endif
