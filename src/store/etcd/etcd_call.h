/* SPDX-License-Identifier: MIT */
/* etcd_call.h - a request to etcd on the fiber of the caller, with an answer or
 * with a stream of lines:
 *
 *   etcd_call.c     requests: which member is asked, and when again
 *   etcd_auth.c     the token of the user, which all requests wait for
 *   etcd_stream.c   lines of a stream
 *   etcd_refusal.c  what an error of etcd means
 */
#ifndef VOW_STORE_ETCD_CALL_H
#define VOW_STORE_ETCD_CALL_H

#include "store/etcd/etcd_internal.h"

/* ---- etcd_refusal.c: what an error means --------------------------------- */

enum { VOW__ETCD_WORDS = 200 /* bytes of what a server said in a sentence */ };

enum vow__refusal_kind {
    VOW__REFUSAL_LAST,  /* the request ends with `code` */
    VOW__REFUSAL_RIGHT, /* the same: the user may not do that */
    VOW__REFUSAL_HERE,  /* nothing happened: ask another member, or later */
    VOW__REFUSAL_TOKEN, /* nothing happened: the member does not know the user */
    VOW__REFUSAL_WRONG, /* the user or the password is wrong */
    VOW__REFUSAL_OPEN   /* the cluster has no users */
};
struct vow__refusal {
    enum vow__refusal_kind kind;
    int code; /* if it is the last word */
    const char *advice;
    char words[VOW__ETCD_WORDS]; /* of the server, without control bytes */
};
/* False: it is no error. */
bool vow__refusal_read(unsigned status, const json_t *root,
                       struct vow__refusal *ret_refusal);

/* ---- etcd_call.c: requests ------------------------------------------------ */

enum { VOW__QUERY_AGAIN = 1 /* send the request once more */ };

/* In the memory of its fiber. The caller sets the first fields, and zeroes the
 * others. */
struct vow__query {
    const char *path;
    struct vow__buf *body;
    bool safe;       /* changes nothing: may be sent twice */
    bool anonymous;  /* asks for a token */
    uint64_t due_ns; /* when it is given up; 0: after the timeout */
    /* Of a stream: bytes arrived (kept by the caller, who wakes the fiber); and
     * on the fiber: read them. `read` returns 0, or what ends the stream or
     * sends the request again. */
    void (*on_bytes)(const char *bytes, size_t n, void *user);
    int (*read)(struct vow__query *q, bool ended);

    vow_link link; /* of calls->queries */
    struct vow__etcd_calls *calls;
    struct vow__http_request *request; /* NULL: none runs */
    vow_deferred *wake;                /* NULL: the fiber runs */
    vow_call later;                    /* wakes the fiber, too */
    int end;          /* why others have ended it; 0: they have not */
    uint64_t sent_ns; /* to the member */
    size_t member;    /* that was asked last */
    uint32_t tried;   /* bits: members that could not be asked */
    uint32_t still;   /* and that stand still */
    unsigned token;   /* number of the token it was sent with */
    bool waits;       /* for a token */
    bool renewed;     /* it was sent with another token already */
    bool not_ready;   /* a member may take it a little later */
    bool once;        /* what a stream has told cannot be taken back */
    bool forgiven;    /* its time began anew once */

    int code; /* of the answer, as in vow__http_answer */
    bool late;
    unsigned status;
    json_t *root; /* NULL: it was no JSON */
    char why[VOW__ETCD_WHY];
};

struct vow__etcd_calls {
    struct vow__etcd *etcd;
    struct vow_alloc alloc;
    vow_loop *loop;
    const struct vow__etcd_where *where;
    struct vow__http *http;
    vow_link *queries; /* all, in the order they were started */
    size_t good;       /* the member that is asked first */
    uint64_t part_ms;  /* of the timeout, for each member */
    uint64_t heard_ns[VOW__ETCD_HOSTS]; /* when it last said something */
    bool asking;                        /* a fiber asks for a token */
    bool open;                          /* the cluster has no users */
    struct vow__buf header;   /* "Authorization: TOKEN", NUL behind it */
    unsigned token;           /* its number; each gets another */
    uint64_t denied_until_ns; /* a password was wrong */
    bool closing;
    bool http_closed;
    vow_call finishing;
    void (*closed)(struct vow__etcd *e);
};

/* Asks until there is an answer. 0: *ret_root, counted, unless it is NULL; or a
 * code of vow__etcd_await(), or VOW_EAGAIN: etcd was busy, and did nothing. */
int vow__query_run(struct vow__etcd_calls *c, struct vow__query *q,
                   json_t **ret_root);
/* Waits until it is woken, or for the time; UINT64_MAX: none. 0, or the code it
 * ends with: VOW_ECLOSED, VOW_ENOMEM. */
int vow__query_wait(struct vow__query *q, uint64_t due_ns);
void vow__query_wake(struct vow__query *q);
/* Its fiber ends it with this code. */
void vow__query_stop(struct vow__query *q, int code);
/* The member it was sent to has said something. */
void vow__query_heard(const struct vow__query *q);
/* What the server said is an error: what the request ends with, or again. */
int vow__query_refuse(struct vow__query *q, const struct vow__refusal *refusal);
/* The server said what makes no sense: the code. */
int vow__query_nonsense(struct vow__query *q, int code, const char *what);
/* "a:2379", that was asked last. */
const char *vow__query_member(const struct vow__query *q);

/* ---- etcd_auth.c: the token ---------------------------------------------- */

/* Waits until there is a token, or none is needed; or a code. */
int vow__auth_wait(struct vow__query *q);
/* A refusal that has to do with who we are. True: *ret_code is what becomes of
 * the request. */
bool vow__auth_refused(struct vow__query *q, const struct vow__refusal *refusal,
                       int *ret_code);

#endif
