/* SPDX-License-Identifier: MIT */
/* etcd_kit.h - members of etcd for one test: one, or three that are a cluster.
 * They have free ports of the loopback and a folder, and end with the test at
 * the latest.
 *
 *     static struct etcd_kit k;
 *     etcd_start(&k, NULL);
 *     etcd_put(&k, "a", "1");
 *     CHECK_STR_EQ(etcd_get(&k, "a"), "1");
 *     etcd_stop(&k);
 *
 * A test is skipped where there is no etcd. The shortest lease of these members
 * has one second.
 */
#ifndef TEST_ETCD_KIT_H
#define TEST_ETCD_KIT_H

#include "folder.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { ETCD_MEMBERS = 3, ETCD_ARGS = 48 };

struct etcd_kit_opts {
    size_t members;   /* 0: one */
    unsigned beat_ms; /* of the leader; 0: 20 of one, 100 of three */
    /* Without a beat for so long, a leader is elected; 0: 10 beats of one, 30
     * of three, whose leader then survives a pause of a busy machine. */
    unsigned elect_ms;
    /* Who may read and write all keys with the prefix, and nothing else. NULL:
     * authentication is not enabled. */
    const char *user, *password, *prefix;
    /* TLS. With a CA, clients must show a certificate by it. */
    const char *cert_file, *key_file, *ca_file;
    const char *const *extra; /* more arguments, up to a NULL; they stay */
};
#define ETCD_OPTS(...) (&(const struct etcd_kit_opts){__VA_ARGS__})

struct etcd_member {
    pid_t pid; /* 0: it does not run */
    bool frozen;
    uint16_t port;  /* for clients */
    uint16_t plain; /* the same, or without TLS: for the test itself */
    uint16_t peer;
};

struct etcd_kit {
    struct etcd_kit_opts opts;
    bool locked; /* authentication is enabled */
    size_t n;
    struct etcd_member at[ETCD_MEMBERS];
    struct folder folder; /* on disk: each member takes 128 MB */
    pid_t janitor;        /* removes it, if we cannot any more */
    int pipe;             /* to that: closed when we end */
    char url[128];        /* etcd://127.0.0.1:PORT,...; etcds:// */
    char header[512];     /* of root, who may do everything */
    char said[256 * 1024];
};

/* All answer when this returns, also to a write. */
void etcd_start(struct etcd_kit *k, const struct etcd_kit_opts *opts);
/* Kill all and remove the folder. */
void etcd_stop(struct etcd_kit *k);

/* Kill -9 a member, and start it again with what it has on disk; it answers
 * when that returns, if there is a majority. */
void etcd_kill(struct etcd_kit *k, size_t member);
void etcd_again(struct etcd_kit *k, size_t member);
/* Stop it as if it were far away: it answers nothing from then on; and let it
 * go on. */
void etcd_freeze(struct etcd_kit *k, size_t member);
void etcd_thaw(struct etcd_kit *k, size_t member);
/* The leader. It waits until there is one that all who run agree on. */
size_t etcd_leader(struct etcd_kit *k);

/* Ask by a plain request, "kv/range" and a body in JSON, and wait for the
 * answer as it comes; "" if there is none. Borrowed until the next. The first
 * is asked that runs; or a certain one. With authentication as root. */
const char *etcd_say(struct etcd_kit *k, const char *path, const char *format,
                     ...) __attribute__((format(printf, 3, 4)));
const char *etcd_ask(struct etcd_kit *k, size_t member, const char *path,
                     const char *body);
/* The number behind a word, as in "revision":"12"; 0 without one. */
uint64_t etcd_number(const char *answer, const char *word);

/* Whole keys. etcd_get(): NULL if it is not there. */
void etcd_put(struct etcd_kit *k, const char *key, const char *value);
const char *etcd_get(struct etcd_kit *k, const char *key);
void etcd_delete(struct etcd_kit *k, const char *key);
/* How many keys begin with this. */
uint64_t etcd_count(struct etcd_kit *k, const char *prefix);

uint64_t etcd_revision(struct etcd_kit *k);
/* Forget all that was before this revision. */
void etcd_compact(struct etcd_kit *k);
/* End leases before their time; how many. */
size_t etcd_revoke_all(struct etcd_kit *k);

#endif
