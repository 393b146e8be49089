/* SPDX-License-Identifier: MIT */
/* redis_examine.h - the state of an examination. redis_examine.c asks,
 * redis_verdict.c judges. */
#ifndef VOW_STORE_REDIS_EXAMINE_H
#define VOW_STORE_REDIS_EXAMINE_H

#include "store/redis/redis_route.h"

enum {
    VOW__EXAM_SERVERS = 32, /* masters in an examination */
    VOW__EXAM_FINDINGS = 10 * VOW__EXAM_SERVERS,
    VOW__EXAM_ROUNDS = 5 /* round trips */
};

/* A master. */
struct vow__exam_server {
    size_t node;
    bool config_seen, info_seen;
    char save[128];   /* CONFIG GET save */
    char fsync[32];   /* CONFIG GET appendfsync */
    char version[64]; /* "Redis 7.0.15" */
    char mode[16];    /* of INFO, as all fields below */
    char role[16];
    char policy[32];
    uint64_t port;
    uint64_t memory, memory_max; /* bytes; 0: no limit */
    uint64_t replicas;
    bool replicas_needed; /* min-replicas-to-write is set */
    bool aof;
    bool saves_fail;
    uint64_t took_us[VOW__EXAM_ROUNDS]; /* sorted */
    size_t rounds;
    int64_t ahead_us; /* of our clock, by the fastest round trip */
};

struct vow__exam {
    struct vow__redis_fiber fiber;
    vow_findings_fn done;
    void *user;
    size_t question; /* under way */
    uint64_t sent_ns;
    char scratch[64];
    char refused[512]; /* commands, with commas */
    bool scan_refused;
    char unwritten[128]; /* why the server takes no writes */
    size_t n_servers;
    struct vow__exam_server servers[VOW__EXAM_SERVERS];
    size_t n;
    vow_finding findings[VOW__EXAM_FINDINGS];
    size_t used;
    char texts[32 * 1024];
};

/* Makes all findings from the answers. */
void vow__exam_judge(struct vow__exam *e);
/* Reads the answer to INFO. */
void vow__exam_info(struct vow__exam_server *s, const char *text, size_t n);

#endif
