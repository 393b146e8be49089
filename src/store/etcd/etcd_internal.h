/* SPDX-License-Identifier: MIT */
/* etcd_internal.h - the parts of the store on etcd, and who knows whom. The
 * protocol is in docs/design/010-etcd.md.
 *
 *   etcd.c          the store itself: its ops, opening and closing
 *   etcd_names.c    names and pools, by the engine in store/cas: etcd_service.h
 *   etcd_results.c  long results, in another store
 *   etcd_examine.c  what a doctor asks
 *        |
 *   etcd_line.c     lines that values are made of
 *   etcd_watch.c    the stream of changes
 *        |
 *   etcd_call.c     a request on a fiber: which member; with etcd_auth.c (who we
 *                   are), etcd_refusal.c (what went wrong), etcd_stream.c
 *   etcd_body.c     bodies of requests; keys and values of answers
 *   etcd_where.c    the address and its options
 *   net/http.c      bytes
 *
 * Each knows only those below it.
 */
#ifndef VOW_STORE_ETCD_INTERNAL_H
#define VOW_STORE_ETCD_INTERNAL_H

#include "base/buf.h"
#include "base/list.h"
#include "store/net/http.h"
#include "store/net/jansson.h"
#include "vow/call.h"
#include "vow/store_etcd.h"

struct vow__etcd;

/* ---- etcd_where.c: the address ------------------------------------------ */

enum {
    VOW__ETCD_HOSTS = 16,
    VOW__ETCD_PORT = 2379,
    VOW__ETCD_PREFIX_MAX = 128,              /* bytes */
    VOW__ETCD_WHY = 512,                     /* bytes of a sentence */
    VOW__ETCD_RESULTS_MAX = 64 * 1024 * 1024 /* of a value elsewhere */
};

/* All that an address and the options say; texts are owned, passwords are
 * cleared before they are freed. */
struct vow__etcd_where {
    struct vow_alloc alloc;
    struct vow__http_server hosts[VOW__ETCD_HOSTS];
    size_t n_hosts;
    bool tls;
    char *user; /* NULL: none */
    char *password;
    char *prefix;
    char *ca_file;
    char *cert_file;
    char *key_file;
    char *results;
    uint64_t timeout_ms;
    uint64_t recheck_ms;
    size_t value_max;
    size_t connections;
    char shown[256]; /* the address without passwords, for people */
};

/* VOW_EINVAL with a sentence in `why` that never has a password in it;
 * VOW_ENOMEM. */
int vow__etcd_where(const char *url, const vow_etcd_opts *opts,
                    const struct vow_alloc *alloc,
                    struct vow__etcd_where *ret_where, char *why,
                    size_t why_size);
void vow__etcd_where_fini(struct vow__etcd_where *w);

/* ---- etcd_body.c: bodies and answers ------------------------------------ */

/* Buffers for bodies, values and answers: secret, of at most 1 GiB. */
void vow__etcd_buf_init(struct vow__buf *body, const struct vow_alloc *alloc);
void vow__etcd_buf_base64(struct vow__buf *body, const void *bytes, size_t n);

/* A key without the prefix: "n/ZmFi.../r". Made by vow__key(). */
struct vow__key {
    char text[192];
};
/* vow__key("n", &name, "/r"); name NULL: only "n" and the rest. */
struct vow__key vow__key(const char *kind, const vow_name *name,
                         const char *rest);
/* The key right behind a key. Of a key that is longer than ours: behind all that
 * begin alike. */
struct vow__key vow__key_behind(const char *key);

/* A transaction that is being made: {"compare":[],"success":[],"failure":[]}.
 * Its keys get the prefix. */
struct vow__txn {
    const char *prefix;
    uint64_t due_ns; /* when its answer must be there; 0: after the timeout */
    bool writes;     /* it may put or delete something */
    struct vow__buf compare, success, failure;
};
enum vow__branch { VOW__THEN, VOW__ELSE };
enum { VOW__SAME_LEASE = -1 }; /* a put keeps the lease of the key */
enum { VOW__TREE = 1, VOW__COUNT_ONLY = 2, VOW__KEYS_ONLY = 4 };
void vow__txn_init(struct vow__txn *t, const struct vow_alloc *alloc,
                   const char *prefix);
void vow__txn_fini(struct vow__txn *t);
void vow__txn_if_absent(struct vow__txn *t, const struct vow__key *key);
void vow__txn_if_there(struct vow__txn *t, const struct vow__key *key);
/* It is as of this revision; 0: absent. */
void vow__txn_if_mod(struct vow__txn *t, const struct vow__key *key,
                     uint64_t mod);
void vow__txn_if_created(struct vow__txn *t, const struct vow__key *key,
                         uint64_t create);
void vow__txn_put(struct vow__txn *t, enum vow__branch b,
                  const struct vow__key *key, const struct vow__buf *value,
                  int64_t lease);
void vow__txn_delete(struct vow__txn *t, enum vow__branch b,
                     const struct vow__key *key, unsigned flags);
void vow__txn_range(struct vow__txn *t, enum vow__branch b,
                    const struct vow__key *key, unsigned flags);
/* Some of a tree, in the order of keys. The range of the answer has "more" if
 * there is more. */
struct vow__some {
    const struct vow__key *from; /* from this key on; NULL: all */
    bool keys_only;
    bool by_creation; /* in the order of creation instead */
    uint64_t since;   /* only keys that were created at or behind this */
    unsigned limit;
};
void vow__txn_some(struct vow__txn *t, enum vow__branch b,
                   const struct vow__key *tree, const struct vow__some *some);
/* `inner` as one operation of a branch; it is emptied. It compares what was
 * there before the whole transaction. */
void vow__txn_nest(struct vow__txn *t, enum vow__branch b,
                   struct vow__txn *inner);
/* The body, moved out; the transaction is empty then. */
void vow__txn_body(struct vow__txn *t, struct vow__buf *ret_body);

/* What a key has. The value is decoded, in memory of the reader. */
struct vow__kv {
    const char *key; /* without the prefix, NUL behind it */
    const char *value;
    size_t size;
    uint64_t create, mod;
    int64_t lease;
};
/* Answers are read by these: all numbers are strings in JSON, what is missing
 * is zero. */
uint64_t vow__json_uint(const json_t *object, const char *word);
uint64_t vow__json_revision(const json_t *root); /* of its header */
bool vow__json_succeeded(const json_t *txn);
/* Number i of responses: its response_range, response_txn, or NULL. */
const json_t *vow__json_response(const json_t *txn, size_t i);
/* Calls for each pair of a range; false: it is not what etcd answers, or there
 * is no memory. `each` returns false to end it: that is true then. */
bool vow__json_each(const struct vow__etcd *e, const json_t *range,
                    bool (*each)(const struct vow__kv *kv, void *user),
                    void *user);
/* Reads one pair, as an event of a watch has it; key and value are in `memory`.
 * The key is NULL if there is a zero byte in it: it is not ours then, and would
 * look like another key. False: as above. */
bool vow__json_pair(const struct vow__etcd *e, const json_t *pair,
                    struct vow__buf *memory, struct vow__kv *ret_kv);

/* ---- etcd_call.c: requests on a fiber ------------------------------------ */

/* Sends a request and waits for the answer, until `due_ns`; 0: for the timeout.
 * The body is taken over, also if it is bad (VOW_ENOMEM); the answer belongs to
 * the caller, as it came (that of a keepalive is in "result", as in a line of a
 * stream). VOW_ENOENT: there is no such lease. VOW_ESTORE, VOW_EUNSURE,
 * VOW_ECLOSED, VOW_ENOMEM: see vow/store.h; vow__etcd_explain() tells why.
 * VOW_E2BIG: etcd takes no request so long. A member that cannot be reached is
 * passed over; so is one that does not answer within its part of the time, if
 * the request is `safe`, that is changes nothing: else that is VOW_EUNSURE, as
 * is a request that was under way when the store was closed. A request that
 * etcd refuses because it is busy is sent again until `due_ns`. */
int vow__etcd_await(struct vow__etcd *e, const char *path,
                    struct vow__buf *body, bool safe, uint64_t due_ns,
                    json_t **ret_root);
/* The same for a transaction, which is emptied. */
int vow__etcd_await_txn(struct vow__etcd *e, struct vow__txn *t,
                        json_t **ret_root);

/* A stream: each line as JSON, {"result":{}}. Ends by on_end (code as above),
 * once, unless it was let go; on_end may come for a stream that never began.
 * Either may let it go, and neither is called before this returns. */
struct vow__etcd_stream;
struct vow__etcd_stream_events {
    void (*on_line)(const json_t *root, void *user);
    void (*on_end)(int code, void *user);
    void *user;
};
struct vow__etcd_stream *
vow__etcd_stream(struct vow__etcd *e, const char *path, struct vow__buf *body,
                 const struct vow__etcd_stream_events *events); /* or NULL */
void vow__etcd_stream_close(struct vow__etcd_stream *s);

struct vow__etcd_calls;
int vow__calls_open(struct vow__etcd *e, struct vow__etcd_calls **ret_calls,
                    char *why, size_t why_size);
/* All that runs ends with VOW_ECLOSED. Requests from now on are sent: places and
 * names that are given back. */
void vow__calls_leave(struct vow__etcd_calls *c);
/* The same once more; then `done`, later, and it is freed. */
void vow__calls_close(struct vow__etcd_calls *c,
                      void (*done)(struct vow__etcd *e));

/* ---- etcd_watch.c: the stream of changes -------------------------------- */

/* Watch a tree from behind this revision on; several may watch different trees:
 * "n/" for names, "i/" for turns. Begins again by itself. */
struct vow__watch;
struct vow__watch_events {
    /* It was put (value may be NULL without one), or deleted: then only key and
     * mod are set. In their order. */
    void (*on_put)(const struct vow__kv *kv, void *user);
    void (*on_delete)(const struct vow__kv *kv, void *user);
    /* Some may have been lost: look again at all. */
    void (*on_doubt)(void *user);
    void *user;
};
int vow__watch_open(struct vow__etcd *e, const struct vow__key *tree,
                    uint64_t revision, const struct vow__watch_events *events,
                    struct vow__watch **ret_watch);
void vow__watch_close(struct vow__watch *w);

/* ---- etcd_line.c: lines of a value --------------------------------------- */

struct vow__line {
    const char *word;
    size_t word_n;
    const char *text; /* behind the word and a blank */
    size_t n;
};
/* What is left of a value. */
struct vow__lines {
    const char *at;
    size_t n;
};
/* False at the end, and at an empty line, which is taken. */
bool vow__line_take(struct vow__lines *r, struct vow__line *ret_line);
bool vow__line_is(const struct vow__line *l, const char *word);
/* False: it is none. "never" is the largest. */
bool vow__line_number(const struct vow__line *l, uint64_t *ret_number);
void vow__line_text(const struct vow__line *l, char to[VOW_LABEL_MAX + 1]);
/* No line for NULL and for nothing; at most VOW_LABEL_MAX bytes of it. */
void vow__line_write(struct vow__buf *value, const char *word,
                     const char *text);

/* ---- etcd_results.c: long results, elsewhere ----------------------------- */

/* On a fiber: puts a value into the store of results, for as long as the request
 * says, and gives a ticket, which is kept in the record instead of the value
 * (`elsewhere`). VOW_E2BIG with a sentence: there is no such store, or the value
 * is too long for that, too. */
int vow__results_put(struct vow__etcd *e, const vow_commit_request *put,
                     vow_bytes **ret_ticket);
/* Reads the value of a ticket. VOW_EIO with a sentence: it is gone, or is not
 * what was put there. */
int vow__results_get(struct vow__etcd *e, const vow_name *name, uint64_t epoch,
                     vow_bytes *ticket, vow_bytes **ret_value);

struct vow__etcd_results;
int vow__results_open(struct vow__etcd *e,
                      struct vow__etcd_results **ret_results);
/* Those that have not begun end with VOW_ECLOSED. */
void vow__results_leave(struct vow__etcd_results *r);
/* Those in flight end with VOW_ECLOSED; then `done`, and it is freed. */
void vow__results_close(struct vow__etcd_results *r,
                        void (*done)(struct vow__etcd *e));

/* ---- etcd.c: what the parts share --------------------------------------- */

const struct vow_alloc *vow__etcd_alloc(const struct vow__etcd *e);
vow_loop *vow__etcd_loop(const struct vow__etcd *e);
const struct vow__etcd_where *vow__etcd_where_of(const struct vow__etcd *e);
/* 32 hex digits, new for each that is opened. */
const char *vow__etcd_inst(const struct vow__etcd *e);
/* Wall clock, us. */
uint64_t vow__etcd_wall_us(void);
/* Say why a step failed or etcd cannot be used: kept for ops->explain. */
void vow__etcd_trouble(struct vow__etcd *e, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same: the time of a step was over before there was an answer. */
void vow__etcd_late(struct vow__etcd *e);
struct vow__etcd *vow__etcd_of(vow_store *s);
vow_store *vow__etcd_store(struct vow__etcd *e);
bool vow__etcd_closing(const struct vow__etcd *e);
/* 0; VOW_ECLOSED; VOW_ESTORE in a child by fork(), told by trouble. Every op
 * begins so, and answers `done` with it. */
int vow__etcd_usable(struct vow__etcd *e);

struct vow__etcd_calls *vow__etcd_calls(struct vow__etcd *e);
vow_store *vow__etcd_names(struct vow__etcd *e);
struct vow__etcd_results *vow__etcd_results(struct vow__etcd *e);

/* ---- the steps, as in vow_store_ops -------------------------------------- */

void vow__etcd_claim(vow_store *s, const vow_claim_request *request,
                     vow_records_fn done, void *user);
void vow__etcd_peek(vow_store *s, const vow_name *names, size_t n,
                    vow_records_fn done, void *user);
void vow__etcd_pulse(vow_store *s, const vow_hold *holds, size_t n,
                     uint64_t lease_ms, vow_records_fn done, void *user);
void vow__etcd_commit(vow_store *s, const vow_commit_request *request,
                      vow_records_fn done, void *user);
void vow__etcd_forget(vow_store *s, const vow_name *name, uint64_t epoch,
                      vow_records_fn done, void *user);
void vow__etcd_cancel(vow_store *s, const vow_name *name, vow_records_fn done,
                      void *user);
void vow__etcd_list(vow_store *s, vow_records_fn done, void *user);
void vow__etcd_write(vow_store *s, const vow_hold *hold, uint64_t number,
                     vow_bytes *chunk, vow_records_fn done, void *user);
void vow__etcd_read(vow_store *s, const vow_name *name, uint64_t epoch,
                    uint64_t from, vow_chunks_fn done, void *user);
void vow__etcd_acquire(vow_store *s, const vow_permit_request *request,
                       vow_permits_fn done, void *user);
void vow__etcd_release(vow_store *s, const vow_permit_hold *hold,
                       vow_permits_fn done, void *user);
void vow__etcd_renew(vow_store *s, const vow_permit_hold *holds, size_t n,
                     uint64_t lease_ms, vow_permits_fn done, void *user);
void vow__etcd_limit(vow_store *s, const vow_name *pool,
                     const vow_pool_limits *limits, const char *label,
                     vow_pools_fn done, void *user);
void vow__etcd_pools(vow_store *s, vow_pools_fn done, void *user);
void vow__etcd_examine(vow_store *s, vow_findings_fn done, void *user);
const char *vow__etcd_explain(vow_store *s);

#endif
