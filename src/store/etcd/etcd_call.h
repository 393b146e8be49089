/* SPDX-License-Identifier: MIT */
/* etcd_call.h - a question to etcd that is under way, be it a call or a stream:
 *
 *   etcd_call.c     calls; which member is asked, and when it is asked again
 *   etcd_auth.c     who we are: a token, which all wait for
 *   etcd_stream.c   lines of a stream
 *   etcd_refusal.c  what an error of etcd means
 */
#ifndef VOW_STORE_ETCD_CALL_H
#define VOW_STORE_ETCD_CALL_H

#include "store/etcd/etcd_internal.h"

/* ---- etcd_refusal.c: what an error means --------------------------------- */

enum { VOW__ETCD_WORDS = 200 /* bytes of what a server said in a sentence */ };

enum vow__refusal_kind {
    VOW__REFUSAL_LAST,  /* it ends with `code` */
    VOW__REFUSAL_RIGHT, /* the same: the user may not do that */
    VOW__REFUSAL_HERE,  /* nothing happened: ask another member, or later */
    VOW__REFUSAL_TOKEN, /* nothing happened: it does not know who we are */
    VOW__REFUSAL_WRONG, /* the user or the password is */
    VOW__REFUSAL_OPEN   /* it does not want to know who we are */
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

/* ---- etcd_call.c: who asks whom ------------------------------------------ */

struct vow__query {
    vow_link link; /* of calls->queries, from start to stop */
    struct vow__etcd_calls *calls;
    char path[32];
    struct vow__jot body;
    struct vow__http_request *request; /* NULL: none runs */
    vow_call later;                    /* it ends by itself, or is sent again */
    int code;                          /* that it ends with, later */
    uint64_t due_ns;  /* when it is given up; 0: after the timeout */
    uint64_t sent_ns; /* to the member */
    size_t member;    /* that was asked last */
    uint32_t tried;   /* bits: members that could not be asked */
    uint32_t still;   /* and that stand still */
    unsigned wave;    /* of calls, when it was started */
    unsigned token;   /* number of the token it was sent with */
    bool waits;       /* for a token */
    bool renewed;     /* it was sent with another token already */
    bool not_ready;   /* a member may take it a little later */
    bool safe;        /* it may be asked twice: it writes nothing */
    bool once;        /* what it has told cannot be taken back */
    bool forgiven;    /* its time began anew once */
    void (*on_bytes)(const char *bytes, size_t n, void *user); /* or NULL */
    vow__http_fn on_answer;
    /* It was stopped already; it is freed by this. */
    void (*end)(struct vow__query *q, int code, const json_t *root);
};

struct vow__etcd_calls {
    struct vow__etcd *etcd;
    struct vow_alloc alloc;
    vow_loop *loop;
    const struct vow__etcd_where *where;
    struct vow__http *http;
    vow_link *queries; /* all, in the order they were started */
    unsigned wave;     /* those of an older one end with VOW_ECLOSED */
    size_t good;       /* the member that is asked first */
    uint64_t part_ms;  /* of the timeout, for each member */
    uint64_t heard_ns[VOW__ETCD_HOSTS]; /* when it last said something */
    struct vow__query query_token;
    bool asking;              /* all others wait */
    bool open;                /* etcd does not want to know who we are */
    struct vow__jot header;   /* "Authorization: TOKEN", NUL behind it */
    unsigned token;           /* its number; each gets another */
    uint64_t denied_until_ns; /* a password was wrong */
    struct {
        vow__etcd_fn done;
        void *user;
    } refused[64]; /* there was no memory for a query */
    size_t n_refused;
    vow_call refusing;
    bool closing;
    bool http_closed;
    vow_call finishing;
    void (*closed)(struct vow__etcd *e);
};

/* The body is taken over. `q` is zeroed but for what the caller knows: end,
 * on_answer, on_bytes, safe and due_ns. */
void vow__query_start(struct vow__etcd_calls *c, struct vow__query *q,
                      const char *path, struct vow__jot *body);
/* Nothing of it comes any more; then it may be freed. */
void vow__query_stop(struct vow__query *q);
void vow__query_end(struct vow__query *q, int code, const json_t *root);
void vow__query_end_later(struct vow__query *q, int code);
/* It ends so at this time, unless it is sent before. */
void vow__query_end_at(struct vow__query *q, int code, uint64_t due_ns);
void vow__query_send(struct vow__query *q);
/* The member it was sent to has said something. */
void vow__query_heard(const struct vow__query *q);
/* How an answer is taken if the caller has nothing else to do with it. */
void vow__query_answer(const struct vow__http_answer *answer, void *user);
/* What the server said is an error: it is sent again, or ended. */
void vow__query_refuse(struct vow__query *q,
                       const struct vow__refusal *refusal);
/* The server said what makes no sense: it is ended. */
void vow__query_nonsense(struct vow__query *q, int code, const char *what);
/* It is freed when nothing is left of it: look, later. */
void vow__calls_finish(struct vow__etcd_calls *c);
/* "a:2379", that was asked last. */
const char *vow__query_member(const struct vow__query *q);

/* ---- etcd_auth.c: who we are --------------------------------------------- */

/* True: it waits for a token, or ends later, and is not to be sent now. */
bool vow__auth_waits(struct vow__query *q);
/* A refusal that has to do with who we are. True: it is seen to, the query is
 * sent again, waits, or has ended. */
bool vow__auth_refused(struct vow__query *q,
                       const struct vow__refusal *refusal);
void vow__auth_fini(struct vow__etcd_calls *c);

#endif
