/* SPDX-License-Identifier: MIT */
/* redis_internal.h - the parts of the store on Redis, and who knows whom.
 *
 *   redis.c         the store itself: its ops, opening and closing
 *   redis_names.c, redis_answer.c   claim, pulse, commit and the other steps
 *                   on names, and records from what a server says
 *   redis_chunks.c  reads what an owner writes for followers
 *   redis_pools.c   places; redis_limit.c their limits
 *   redis_look.c    lists of all names and pools
 *   redis_fiber.c   steps of several requests, as fibers
 *   redis_examine.c what a doctor asks; redis_verdict.c what he makes of it
 *   redis_events.c  messages that come by themselves
 *   redis_seal.c    results that only those with the key can read
 *        |  calls of scripts (vow__call)
 *   redis_call.c, redis_route.c   which server gets it: the one, the master
 *                   that Sentinels name, or the node of a cluster
 *   redis_sentinel.c, redis_cluster.c   how these two find it
 *   redis_node.c    a server that is connected to, and again
 *   redis_link.c, redis_greet.c   one connection: commands, answers, silence
 *   redis_url.c, redis_where.c    the address and its options
 *   resp.c, net/    bytes
 *
 * Each knows only those below it. The scripts are in lua/.
 */
#ifndef VOW_STORE_REDIS_INTERNAL_H
#define VOW_STORE_REDIS_INTERNAL_H

#include "base/list.h"
#include "store/net/stream.h"
#include "store/redis/resp.h"
#include "vow/call.h"
#include "vow/store_redis.h"

struct vow__redis;

/* ---- redis_url.c: the address ------------------------------------------- */

enum {
    VOW__REDIS_HOSTS = 16,
    VOW__REDIS_PORT = 6379,
    VOW__SENTINEL_PORT = 26379,
    VOW__REDIS_WHY = 512,  /* bytes of a sentence */
    VOW__REDIS_WORDS = 160 /* of what a server said in it */
};

struct vow__redis_host {
    char *host; /* NULL: `path` */
    uint16_t port;
};

/* All that an address and the options say; texts are owned, passwords are
 * cleared before they are freed. */
struct vow__redis_where {
    struct vow_alloc alloc;
    struct vow__redis_host hosts[VOW__REDIS_HOSTS];
    size_t n_hosts;
    char *path; /* of a socket; NULL: hosts */
    bool tls;
    char *master; /* the name that Sentinels know it by; NULL: no Sentinels */
    uint32_t db;
    char *user; /* NULL: none */
    char *password;
    char *sentinel_user;
    char *sentinel_password;
    char *prefix;
    char *server_name;
    char *ca_file;
    char *cert_file;
    char *key_file;
    bool sealed;
    unsigned char seal[32];
    uint64_t timeout_ms;
    uint64_t recheck_ms;
    size_t value_max;
    size_t inline_max;
    char shown[256]; /* the address without passwords, for people */
};

/* Read address, options and the files they name. VOW_EINVAL with a sentence in
 * `why` that never has a password in it; VOW_ENOMEM. */
int vow__redis_where(const char *url, const vow_redis_opts *opts,
                     const struct vow_alloc *alloc,
                     struct vow__redis_where *ret_where, char *why,
                     size_t why_size);
void vow__redis_where_fini(struct vow__redis_where *w);

/* ---- scripts ------------------------------------------------------------ */

/* In the order of vow__redis_scripts[]; the texts are lua/NAME.lua, put into
 * redis_lua.c by the build, with the names that servers know them by. */
enum vow__script {
    VOW__LUA_CLAIM,
    VOW__LUA_PULSE,
    VOW__LUA_COMMIT,
    VOW__LUA_PEEK,
    VOW__LUA_FORGET,
    VOW__LUA_CANCEL,
    VOW__LUA_WRITE,
    VOW__LUA_READ,
    VOW__LUA_ACQUIRE,
    VOW__LUA_RELEASE,
    VOW__LUA_RENEW,
    VOW__LUA_LIMIT,
    VOW__LUA_POOL, /* tells of one pool */
    VOW__LUA_N
};
struct vow__redis_script {
    const char *name; /* "claim" */
    const char *text;
    const char *sha; /* SHA1 of the text, 40 digits */
};
extern const struct vow__redis_script vow__redis_scripts[VOW__LUA_N];

/* ---- redis_link.c: one connection --------------------------------------- */

struct vow__link;

/* code 0: the answer, borrowed; it may be a VOW__RESP_ERROR. VOW_EUNSURE: it
 * was sent and no answer came. VOW_ESTORE, VOW_ENOMEM: it was not sent.
 * VOW_ECLOSED. */
typedef void (*vow__link_fn)(int code, const struct vow__resp *reply,
                             void *user);

struct vow__link_opts {
    const struct vow__redis_script *scripts; /* vow__redis_scripts */
    struct vow__stream_opts to;
    struct vow__resp_limits limits; /* of what it answers */
    const char *user;
    const char *password;
    uint32_t db;
    const char *prefix;   /* of all keys; stays while the link is open */
    const char *channel;  /* subscribed to before it is ready; NULL: none */
    bool bare;            /* of a Sentinel: no role, script, database */
    uint64_t timeout_ms;  /* an answer that takes longer ends the link */
    uint64_t ask_role_ms; /* how often ROLE is asked, which is the pulse of the
                             link too */
};

/* What a server says of itself. */
struct vow__greeting {
    char version[32];
    bool cluster;
    bool sentinel;
    bool master; /* else it is a replica, of a cluster */
};

struct vow__link_events {
    /* It can be used: greeted, subscribed. */
    void (*on_ready)(const struct vow__greeting *g, void *user);
    /* A message on the channel, or another push: its items, borrowed. */
    void (*on_push)(const struct vow__resp *push, void *user);
    /* It is over; all that was sent has been answered before. `why` is a
     * sentence that names the server. `for_good`: trying again will not help
     * before somebody mends something (password, version, rights). */
    void (*on_end)(bool for_good, const char *why, void *user);
    void *user;
};

int vow__link_open(vow_loop *loop, const struct vow__link_opts *opts,
                   const struct vow__link_events *events,
                   struct vow__link **ret_link);
/* Send a command that is whole (copied). Answers come in order. */
void vow__link_send(struct vow__link *l, const struct vow__command *c,
                    vow__link_fn done, void *user);
/* Send EVALSHA of a script, whose keys and arguments come in `tail` as encoded
 * words, the number of keys first; it stays where it is until it is answered.
 * A server that does not know it (NOSCRIPT) is sent the text by itself. */
void vow__link_eval(struct vow__link *l, enum vow__script script,
                    const struct vow__command *tail, size_t tail_words,
                    vow__link_fn done, void *user);
/* Send ASKING before the next of these. */
void vow__link_asking(struct vow__link *l);
/* Bytes that wait for an answer. */
size_t vow__link_busy(const struct vow__link *l);
/* Why it ended, while what was sent is being answered. */
const char *vow__link_why(const struct vow__link *l);
/* "HOST:PORT", "[IPV6]:PORT", or the path of a socket. */
void vow__link_name(const struct vow__stream_opts *to, char *name, size_t size);
/* All that waits is answered with `code`; then nothing is called any more. */
void vow__link_close(struct vow__link *l, int code);

/* Does an error begin so? What it says, as a line for people. */
bool vow__error_is(const struct vow__resp *error, const char *begins);
void vow__error_words(const struct vow__resp *error, char *words, size_t size);

/* ---- redis_route.c: which server ---------------------------------------- */

/* A call of a script, as a step makes it: new, keys, arguments, send. It frees
 * itself when it was answered. */
struct vow__call;

/* code 0: the answer, borrowed, never an error. VOW_ESTORE, VOW_EUNSURE,
 * VOW_EAGAIN, VOW_ECLOSED, VOW_ENOMEM: see vow/store.h; for the first three
 * vow__redis_explain() tells why. Exactly once, perhaps before vow__call_send
 * returns. */
typedef void (*vow__reply_fn)(struct vow__redis *r, int code,
                              const struct vow__resp *reply, void *user);

/* NULL: VOW_ENOMEM. All keys of a call have the same `tag`, which decides the
 * slot in a cluster. */
struct vow__call *vow__call_new(struct vow__redis *r, enum vow__script script);
/* The key PREFIX KIND {TAG} REST: vow__call_key(c, "p:", "Zm9v", ":w"). First
 * all keys, then all arguments. */
void vow__call_key(struct vow__call *c, const char *kind, const char *tag,
                   const char *rest);
/* The key of the highest epoch there was: the last key. Without a cluster it is
 * one for all names, whatever the tag. */
void vow__call_highest(struct vow__call *c, const char *tag);
void vow__call_arg(struct vow__call *c, const void *bytes, size_t n);
void vow__call_text(struct vow__call *c, const char *text);
void vow__call_uint(struct vow__call *c, uint64_t number);
void vow__call_send(struct vow__call *c, vow__reply_fn done, void *user);

/* A plain command to every master there is, one after the other or at once:
 * done for each answer, with `last` for the last; used to list and to examine.
 * The command is copied. An answer may be an error: what the server refuses. */
typedef void (*vow__each_fn)(struct vow__redis *r, int code,
                             const struct vow__resp *reply, size_t node,
                             bool last, void *user);
void vow__redis_each(struct vow__redis *r, const struct vow__command *c,
                     vow__each_fn done, void *user);
/* The same to one of them, by its number in the answers above. */
void vow__redis_one(struct vow__redis *r, size_t node,
                    const struct vow__command *c, vow__reply_fn done,
                    void *user);

/* Keys of different tags may be in one call: no cluster. */
bool vow__redis_one_slot(const struct vow__redis *r);

/* ---- redis.c: what the parts share -------------------------------------- */

const struct vow_alloc *vow__redis_alloc(const struct vow__redis *r);
vow_loop *vow__redis_loop(const struct vow__redis *r);
const struct vow__redis_where *vow__redis_where_of(const struct vow__redis *r);
/* The channel of this instance: PREFIX "i:" and 32 hex digits. */
const char *vow__redis_channel(const struct vow__redis *r);
const vow_store_events *vow__redis_events(const struct vow__redis *r);
/* Say why a step failed or the server cannot be used: kept for ops->explain. */
void vow__redis_trouble(struct vow__redis *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct vow__redis *vow__redis_of(vow_store *s);

/* State of the parts, in the store. */
struct vow__redis_route *vow__redis_route(struct vow__redis *r);
/* The runner of the last claim, of VOW_LABEL_MAX + 1 bytes: the runner of
 * results and revived records without a run. */
char *vow__redis_runner(struct vow__redis *r);
struct vow__redis_places *vow__redis_places(struct vow__redis *r);

/* Set up and taken down by redis.c, in the order of the folder's story.
 * VOW_EINVAL: told by vow__redis_trouble(). */
int vow__route_open(struct vow__redis *r, struct vow__redis_route **ret_route);
/* Connect, and stay connected. */
void vow__route_start(struct vow__redis_route *route);
/* No more calls, but for places that are given back: those in flight end with
 * VOW_ECLOSED. Then no calls at all. Then free it, when nothing of it is on the
 * stack. */
void vow__route_leave(struct vow__redis_route *route);
void vow__route_close(struct vow__redis_route *route);
void vow__route_free(struct vow__redis_route *route);

/* Places that this instance has or queues for: redis.c opens it, and when it is
 * closed first has them given back, `done` once, before the route is closed;
 * VOW_ESTORE and the like end it too. redis_pools.c. */
int vow__redis_places_open(struct vow__redis *r,
                           struct vow__redis_places **ret_places);
void vow__redis_places_leave(struct vow__redis *r,
                             void (*done)(struct vow__redis *r));
void vow__redis_places_close(struct vow__redis_places *places);

/* Keeps a closing store until the drop. VOW_ESTORE: the process was forked;
 * VOW_ECLOSED. */
int vow__redis_hold(struct vow__redis *r);
void vow__redis_drop(struct vow__redis *r);

/* ---- redis_fiber.c: steps of several requests ---------------------------- */

/* A step that runs on a fiber; lies in the state of the step. */
struct vow__redis_fiber {
    struct vow__redis *r;
    int (*run)(struct vow__redis_fiber *f);
    void (*end)(struct vow__redis_fiber *f, int code);
    int code;           /* of the first failure */
    bool over;          /* `run` has returned */
    size_t requests;    /* under way */
    size_t most;        /* the fiber sleeps until so few are under way */
    vow_deferred *wake; /* NULL: the fiber does not sleep */
    vow_call last;
};

/* Starts a fiber. `run` does the work of the step on the fiber, and returns a
 * code. `end` gives the answer and frees the step: once, not on the fiber,
 * perhaps before the return. */
void vow__redis_fiber_start(struct vow__redis_fiber *f, struct vow__redis *r,
                            int (*run)(struct vow__redis_fiber *f),
                            void (*end)(struct vow__redis_fiber *f, int code));
/* Counts a request that begins, and the answer to a request. */
void vow__redis_fiber_begin(struct vow__redis_fiber *f);
void vow__redis_fiber_answered(struct vow__redis_fiber *f, int code);
/* Lets the fiber sleep until at most so many requests are under way. Returns
 * the code of the first failure. */
int vow__redis_fiber_wait(struct vow__redis_fiber *f, size_t most);

/* ---- redis_events.c ----------------------------------------------------- */

/* A push has come (its items: "message", channel, text). */
void vow__redis_push(struct vow__redis *r, const struct vow__resp *push);
/* Subscribed, perhaps again: what was told in between is lost. */
void vow__redis_listening(struct vow__redis *r);

/* ---- redis_seal.c ------------------------------------------------------- */

enum { VOW__SEAL_MORE = 57 }; /* bytes by which a sealed value is longer */
/* What a value belongs to, beside the prefix of the store. `part` tells values
 * of one name and epoch apart: 0 for the result, 1 and on for chunks,
 * UINT64_MAX for a failure. */
struct vow__seal_of {
    const vow_name *name;
    uint64_t epoch;
    uint64_t part;
};
/* A new value, counted; without a key the same, counted. VOW_ENOMEM; opening:
 * VOW_EIO (it is not what was sealed for this), VOW_ENOENT (it is over: older
 * than `ttl_ms` by the clocks of both machines, or of an older version). */
int vow__redis_seal(struct vow__redis *r, const struct vow__seal_of *of,
                    uint64_t ttl_ms, vow_bytes *plain, vow_bytes **ret_sealed);
int vow__redis_unseal(struct vow__redis *r, const struct vow__seal_of *of,
                      const char *bytes, size_t n, vow_bytes **ret_plain);

/* ---- the steps, as in vow_store_ops -------------------------------------- */

void vow__redis_claim(vow_store *s, const vow_claim_request *ask,
                      vow_records_fn done, void *user);
void vow__redis_peek(vow_store *s, const vow_name *names, size_t n,
                     vow_records_fn done, void *user);
void vow__redis_pulse(vow_store *s, const vow_hold *holds, size_t n,
                      uint64_t lease_ms, vow_records_fn done, void *user);
void vow__redis_commit(vow_store *s, const vow_commit_request *ask,
                       vow_records_fn done, void *user);
void vow__redis_forget(vow_store *s, const vow_name *name, uint64_t epoch,
                       vow_records_fn done, void *user);
void vow__redis_cancel(vow_store *s, const vow_name *name, vow_records_fn done,
                       void *user);
void vow__redis_list(vow_store *s, vow_records_fn done, void *user);
void vow__redis_write(vow_store *s, const vow_hold *hold, uint64_t number,
                      vow_bytes *chunk, vow_records_fn done, void *user);
void vow__redis_read(vow_store *s, const vow_name *name, uint64_t epoch,
                     uint64_t from, vow_chunks_fn done, void *user);
void vow__redis_acquire(vow_store *s, const vow_permit_request *ask,
                        vow_permits_fn done, void *user);
void vow__redis_release(vow_store *s, const vow_permit_hold *hold,
                        vow_permits_fn done, void *user);
void vow__redis_renew(vow_store *s, const vow_permit_hold *holds, size_t n,
                      uint64_t lease_ms, vow_permits_fn done, void *user);
void vow__redis_limit(vow_store *s, const vow_name *pool,
                      const vow_pool_limits *limits, const char *label,
                      vow_pools_fn done, void *user);
void vow__redis_pools(vow_store *s, vow_pools_fn done, void *user);
void vow__redis_examine(vow_store *s, vow_findings_fn done, void *user);
const char *vow__redis_explain(vow_store *s);

#endif
