/* SPDX-License-Identifier: MIT */
/* etcd_members.h - members of etcd that say what a test wants, on the test's
 * own thread: they serve while the test waits, so nothing depends on time; and
 * a store that asks them, in a world of virtual time.
 *
 *     static struct members m;
 *     members_open(&m, 2, my_answer, NULL);
 *     vow__etcd_await(m.etcd, "kv/range", ...); on a fiber
 *     MEMBERS_UNTIL(&m, told);
 *     members_close(&m);
 */
#ifndef TEST_ETCD_MEMBERS_H
#define TEST_ETCD_MEMBERS_H

#include "fault.h"
#include "vow/store_etcd.h"

enum { MEMBERS = 3, MEMBER_TALKS = 12, MEMBER_BYTES = 64 * 1024 };

struct vow__etcd;
struct members;

/* A connection to a member. */
struct talk {
    int fd; /* -1: none */
    char in[MEMBER_BYTES];
    size_t in_n;
    char *out; /* not yet sent */
    size_t out_n;
    bool streams;
};

/* "200 {}": a status and a body. "200+line": the beginning of a stream, which
 * stays open. "": silence. "hang up". Borrowed. */
typedef const char *(*members_fn)(struct members *m, size_t member,
                                  const char *path, const char *body);

struct members {
    struct world *w;
    size_t n;
    struct {
        int fd; /* -1: connections are refused */
        uint16_t port;
        struct talk talks[MEMBER_TALKS];
    } at[MEMBERS];
    members_fn answer;
    void *user;
    unsigned asked;   /* requests so far */
    size_t cut;       /* bytes that are sent at once; 0: all */
    char log[4096];   /* "0:kv/range 1:kv/txn " */
    char who[256];    /* the token of the last request; "" without one */
    char body[4096];  /* of the last request */
    char url[128];    /* etcd://127.0.0.1:PORT,... */
    vow_store *store; /* NULL: no memory for one */
    struct vow__etcd *etcd;
};

/* With a store, on a world of its own. `opts` may be NULL: a timeout of 2 s. */
void members_open(struct members *m, size_t n, members_fn says,
                  const vow_etcd_opts *opts);
void members_close(struct members *m);
/* The same in a world that is open, as in a sweep. */
void members_begin(struct members *m, struct world *w, size_t n,
                   members_fn says);
/* Open the store; it may be NULL then, without memory. */
void members_store(struct members *m, const vow_etcd_opts *opts);
void members_end(struct members *m);

/* Connections are refused from now on, and those that are there end; are taken
 * again, at the same port. */
void member_deaf(struct members *m, size_t member);
void member_again(struct members *m, size_t member);
/* Say more to a stream of this member, or end it. */
void member_say(struct members *m, size_t member, const char *text, size_t n);
void member_hang_up(struct members *m, size_t member);
/* It has a stream open. */
bool member_streams(struct members *m, size_t member);

/* Serve and turn once; for as long as something is going on. */
void members_step(struct members *m);
void members_settle(struct members *m);
/* Let time pass, in steps, and serve. */
void members_pass(struct members *m, uint64_t ms);
/* Serve and turn until this holds; the test's own time limit ends it. */
#define MEMBERS_UNTIL(m, cond)                                                 \
    do {                                                                       \
        while (!(cond))                                                        \
            members_step(m);                                                   \
    } while (0)

#endif
