/* SPDX-License-Identifier: MIT */
/* etcd_examine.h - what a doctor knows of a store. etcd_examine.c asks,
 * etcd_verdict.c judges. */
#ifndef VOW_STORE_ETCD_EXAMINE_H
#define VOW_STORE_ETCD_EXAMINE_H

#include "store/etcd/etcd_internal.h"

enum {
    VOW__CHECK_FINDINGS = VOW__ETCD_HOSTS + 16,
    VOW__CHECK_ROUNDS = 5, /* round trips */
    VOW__CHECK_TEXTS = 16 * 1024
};

struct vow__check;

/* A member of the address. */
struct vow__check_member {
    struct vow__check *check;
    struct vow__http_request *request; /* NULL: none runs */
    bool answers;
    char why[320];    /* if it does not */
    char version[32]; /* "3.4.23"; "": it does not tell us */
    uint64_t id, leader;
    uint64_t size, used; /* bytes of its database, and of what counts */
};

struct vow__check {
    struct vow__etcd *etcd;
    vow_findings_fn done;
    void *user;
    struct vow_alloc alloc;
    size_t pending;     /* members that have not answered yet */
    vow_deferred *told; /* all of them have */
    int code;           /* why it cannot go on */
    struct vow__check_member members[VOW__ETCD_HOSTS];
    bool list_seen, alarms_seen;
    size_t size; /* of the cluster */
    bool no_space, corrupt;
    int64_t lease;
    uint64_t lease_s;            /* the shortest */
    bool writes;                 /* where we want to */
    bool denied;                 /* the user may not */
    char refused[VOW__ETCD_WHY]; /* why it does not write */
    bool silent;                 /* there was no answer in time */
    bool open; /* it does not want to know who we are, though we would tell */
    uint64_t took_us[VOW__CHECK_ROUNDS]; /* sorted */
    size_t rounds;
    size_t n;
    vow_finding findings[VOW__CHECK_FINDINGS];
    size_t room_used;
    char texts[VOW__CHECK_TEXTS];
};

/* All findings, from what was seen: 0; or VOW_ESTORE, as there is nothing that
 * could be said but why it cannot be used. */
int vow__check_judge(struct vow__check *c);

#endif
