/* SPDX-License-Identifier: MIT */
/* redis_internal.h - the parts of the store on Redis. A part knows only the
 * parts below.
 *
 *   redis.c         the store: operations, opening, closing
 *   redis_names.c, redis_answer.c   steps on names; records from answers
 *   redis_chunks.c  reads chunks for followers
 *   redis_pools.c   pool permits; redis_limit.c limits of pools
 *   redis_look.c    lists of all names and pools
 *   redis_examine.c questions of the doctor; redis_verdict.c findings
 *   redis_fiber.c   steps of several requests, as fibers
 *   redis_events.c  messages without a request
 *   redis_seal.c    results encrypted with the key of the users
 *        |  calls of scripts (vow__call)
 *   redis_call.c, redis_route.c   the server of a call: the only server, the
 *                   master of the Sentinels, or a node of a cluster
 *   redis_sentinel.c, redis_cluster.c   how to find the server
 *   redis_node.c    a server: connecting, and connecting again
 *   redis_link.c, redis_greet.c   a connection: commands, answers, silence
 *   redis_url.c, redis_where.c    address and options
 *   resp.c, net/    bytes
 *
 * The scripts are in lua/.
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
    VOW__REDIS_WORDS = 160 /* bytes of a server's words in the sentence */
};

struct vow__redis_host {
    char *host; /* NULL: `path` */
    uint16_t port;
};

/* Address and options. Texts are owned; passwords are cleared before the
 * free. */
struct vow__redis_where {
    struct vow_alloc alloc;
    struct vow__redis_host hosts[VOW__REDIS_HOSTS];
    size_t n_hosts;
    char *path; /* of a socket; NULL: hosts */
    bool tls;
    char *master; /* name of the master at the Sentinels; NULL: none */
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

/* Reads the address, the options and the files named there. Returns VOW_ENOMEM,
 * or VOW_EINVAL with a sentence in `why`, always without passwords. */
int vow__redis_where(const char *url, const vow_redis_opts *opts,
                     const struct vow_alloc *alloc,
                     struct vow__redis_where *ret_where, char *why,
                     size_t why_size);
void vow__redis_where_fini(struct vow__redis_where *w);

/* ---- scripts ------------------------------------------------------------ */

/* In the order of vow__redis_scripts[]. The build puts the texts lua/NAME.lua
 * with the SHA1 of each into redis_lua.c. */
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
    VOW__LUA_POOL, /* reads one pool */
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

/* code 0: the answer, borrowed, perhaps a VOW__RESP_ERROR. VOW_EUNSURE: the
 * command was sent, and no answer came. VOW_ESTORE, VOW_ENOMEM: the command was
 * not sent. VOW_ECLOSED. */
typedef void (*vow__link_fn)(int code, const struct vow__resp *reply,
                             void *user);

struct vow__link_opts {
    const struct vow__redis_script *scripts; /* vow__redis_scripts */
    struct vow__stream_opts to;
    struct vow__resp_limits limits; /* of answers */
    const char *user;
    const char *password;
    uint32_t db;
    const char *prefix;   /* of all keys; stays while the link is open */
    const char *channel;  /* subscribed to in the greeting; NULL: none */
    bool bare;            /* of a Sentinel: no role, script, database */
    uint64_t timeout_ms;  /* silence for longer ends the connection */
    uint64_t ask_role_ms; /* between questions for ROLE, the pulse of the
                             connection */
};

/* A server, by the answers to the greeting. */
struct vow__greeting {
    char version[32];
    bool cluster;
    bool sentinel;
    bool master; /* else a replica, of a cluster */
};

struct vow__link_events {
    /* The connection is ready: greeted, subscribed. */
    void (*on_ready)(const struct vow__greeting *g, void *user);
    /* A message on the channel, or another push: its items, borrowed. */
    void (*on_push)(const struct vow__resp *push, void *user);
    /* The connection has ended; all commands were answered before. `why` is a
     * sentence that names the server. `for_good`: another try is of no use
     * before a user has changed password, version or rights. */
    void (*on_end)(bool for_good, const char *why, void *user);
    void *user;
};

int vow__link_open(vow_loop *loop, const struct vow__link_opts *opts,
                   const struct vow__link_events *events,
                   struct vow__link **ret_link);
/* Sends a complete command (copied). Answers come in order. */
void vow__link_send(struct vow__link *l, const struct vow__buf *c,
                    vow__link_fn done, void *user);
/* Sends EVALSHA of a script. `tail` has the number of keys, the keys and the
 * arguments as encoded words, and must not move before the answer. If the
 * server does not know the script (NOSCRIPT), the text is sent, too. */
void vow__link_eval(struct vow__link *l, enum vow__script script,
                    const struct vow__buf *tail, size_t tail_words,
                    vow__link_fn done, void *user);
/* Sends ASKING before the next script. */
void vow__link_asking(struct vow__link *l);
/* Returns the bytes of commands without an answer. */
size_t vow__link_busy(const struct vow__link *l);
/* Returns why the connection ended, while the commands are answered. */
const char *vow__link_why(const struct vow__link *l);
/* "HOST:PORT", "[IPV6]:PORT", or the path of a socket. */
void vow__link_name(const struct vow__stream_opts *to, char *name, size_t size);
/* Answers all commands with `code`; later, no function is called any more. */
void vow__link_close(struct vow__link *l, int code);

/* Returns whether an error begins with `begins`; copies an error as a line for
 * people. */
bool vow__error_is(const struct vow__resp *error, const char *begins);
void vow__error_words(const struct vow__resp *error, char *words, size_t size);

/* ---- redis_route.c: the server of a call --------------------------------- */

/* A call of a script, made by a step: new, keys, arguments, send. The call is
 * freed behind the answer. */
struct vow__call;

/* code 0: the answer, borrowed, never an error. VOW_ESTORE, VOW_EUNSURE,
 * VOW_EAGAIN, VOW_ECLOSED, VOW_ENOMEM: see vow/store.h; vow__redis_explain()
 * has the reason of the first three. Called exactly once, perhaps before
 * vow__call_send returns. */
typedef void (*vow__reply_fn)(struct vow__redis *r, int code,
                              const struct vow__resp *reply, void *user);

/* Returns NULL without memory. All keys of a call have the same `tag`: the tag
 * decides the slot in a cluster. */
struct vow__call *vow__call_new(struct vow__redis *r, enum vow__script script);
/* Adds the key PREFIX KIND {TAG} REST: vow__call_key(c, "p:", "Zm9v", ":w").
 * First all keys, then all arguments. */
void vow__call_key(struct vow__call *c, const char *kind, const char *tag,
                   const char *rest);
/* Adds the key of the highest epoch, as the last key. Without a cluster, all
 * names share the key, whatever the tag. */
void vow__call_highest(struct vow__call *c, const char *tag);
void vow__call_arg(struct vow__call *c, const void *bytes, size_t n);
void vow__call_text(struct vow__call *c, const char *text);
void vow__call_uint(struct vow__call *c, uint64_t number);
void vow__call_send(struct vow__call *c, vow__reply_fn done, void *user);

/* Sends a plain command (copied) to every master, for lists and examinations.
 * `done` is called for each answer, with `last` for the last answer. An answer
 * may be an error of the server. */
typedef void (*vow__each_fn)(struct vow__redis *r, int code,
                             const struct vow__resp *reply, size_t node,
                             bool last, void *user);
void vow__redis_each(struct vow__redis *r, const struct vow__buf *c,
                     vow__each_fn done, void *user);
/* Sends a plain command to one master, by the number in the answers above. */
void vow__redis_one(struct vow__redis *r, size_t node, const struct vow__buf *c,
                    vow__reply_fn done, void *user);

/* Returns whether keys of different tags may be in one call: no cluster. */
bool vow__redis_one_slot(const struct vow__redis *r);

/* ---- redis.c: shared by the parts ---------------------------------------- */

const struct vow_alloc *vow__redis_alloc(const struct vow__redis *r);
vow_loop *vow__redis_loop(const struct vow__redis *r);
const struct vow__redis_where *vow__redis_where_of(const struct vow__redis *r);
/* The channel of this instance: PREFIX "i:" and 32 hex digits. */
const char *vow__redis_channel(const struct vow__redis *r);
const vow_store_events *vow__redis_events(const struct vow__redis *r);
/* Keeps the reason of a failure for ops->explain. */
void vow__redis_trouble(struct vow__redis *r, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct vow__redis *vow__redis_of(vow_store *s);

/* State of the parts, in the store. */
struct vow__redis_route *vow__redis_route(struct vow__redis *r);
/* The runner of the last claim, of VOW_LABEL_MAX + 1 bytes: the runner of
 * results and revived records without a run. */
char *vow__redis_runner(struct vow__redis *r);
struct vow__redis_places *vow__redis_places(struct vow__redis *r);

/* Opened and closed by redis.c. VOW_EINVAL: the reason was given to
 * vow__redis_trouble(). */
int vow__route_open(struct vow__redis *r, struct vow__redis_route **ret_route);
/* Connects, and stays connected. */
void vow__route_start(struct vow__redis_route *route);
/* Ends all calls with VOW_ECLOSED, and takes only releases of permits; then
 * takes no calls at all; then frees the route, when no function of the route is
 * on the stack. */
void vow__route_leave(struct vow__redis_route *route);
void vow__route_close(struct vow__redis_route *route);
void vow__route_free(struct vow__redis_route *route);

/* redis_pools.c: permits and waiting requests of this instance. Leaving
 * releases all permits and calls `done` once, also after failures; only then
 * the route is closed. */
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

/* Takes a push: "message", channel, text. */
void vow__redis_push(struct vow__redis *r, const struct vow__resp *push);
/* Notes a subscription, perhaps a new one: messages before are lost. */
void vow__redis_listening(struct vow__redis *r);

/* ---- redis_seal.c ------------------------------------------------------- */

enum { VOW__SEAL_MORE = 57 }; /* bytes by which a sealed value is longer */
/* The owner of a value, beside the prefix of the store. `part` tells values of
 * one name and epoch apart: 0 for the result, 1 and on for chunks, UINT64_MAX
 * for a failure. */
struct vow__seal_of {
    const vow_name *name;
    uint64_t epoch;
    uint64_t part;
};
/* Gives a new value, or without a key the same value, counted. VOW_ENOMEM;
 * opening: VOW_EIO (the value was not sealed for this owner), VOW_ENOENT (the
 * value is older than `ttl_ms` by the clocks of both machines, or of an older
 * version). */
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
