/* SPDX-License-Identifier: MIT */
/* file_pool.h - pools and places as rows. See file_grant.c for how places
 * are granted, file_rate.c for the log of grants. */
#ifndef VOW_STORE_FILE_POOL_H
#define VOW_STORE_FILE_POOL_H

#include "store/file/file_rows.h"

struct vow__file_pool {
    vow_name id;
    bool there;
    vow_name law; /* whose limits; itself, or the pool of many keys */
    char label[VOW_LABEL_MAX + 1];
    vow_pool_limits limits; /* the law's */
    uint64_t held;          /* weight */
    uint64_t holders;
    uint64_t waiting;
    int64_t seq;     /* of the last who came into the queue */
    int64_t fence;   /* of the last grant */
    uint64_t spent;  /* weight in the log */
    uint64_t open;   /* weight of places that are FILE_OPEN, */
    bool open_known; /* if it was asked for */
    int64_t next_us; /* no lease ends before; 0: not known */
};

struct vow__file_place {
    bool there;
    vow_token token;
    unsigned char inst[FILE_ID];
    bool held;
    int64_t seq;
    uint32_t weight;
    int64_t end_us;
    int64_t fence;
    int64_t
        again_us; /* when it was told to ask again; FILE_OPEN: it is held, and
                         its start is not in the log */
};
#define FILE_OPEN INT64_C(-1)

/* ---- file_grant.c ----------------------------------------------------- */

int vow__file_pool_find(struct vow__file *s, const vow_name *id,
                        struct vow__file_pool *p);
/* A new one; `law` NULL: its own, with these limits. */
int vow__file_pool_make(struct vow__file *s, const vow_name *id,
                        const vow_name *law, const vow_pool_limits *limits,
                        const char *label);
/* Write the counts of a pool back, or remove one that nobody needs. */
int vow__file_pool_put(struct vow__file *s, const struct vow__file_pool *p);
/* Will a weight ever fit? */
bool vow__file_pool_allows(const struct vow__file_pool *p, uint64_t weight);

int vow__file_place_find(struct vow__file *s, const struct vow__file_pool *p,
                         const vow_token *token, struct vow__file_place *at);
int vow__file_place_put(struct vow__file *s, struct vow__file_pool *p,
                        const struct vow__file_place *at);
int vow__file_place_delete(struct vow__file *s, struct vow__file_pool *p,
                           const struct vow__file_place *at);
int vow__file_place_head(struct vow__file *s, const struct vow__file_pool *p,
                         struct vow__file_place *at);

/* Remove whose lease is over. Then grant as many heads as fit; `me` (may be
 * NULL) is who asks, all others are told. */
int vow__file_reap(struct vow__file *s, struct vow__file_pool *p);
int vow__file_grant(struct vow__file *s, struct vow__file_pool *p,
                    const vow_token *me);
/* Remove all places of an instance in this pool. */
int vow__file_reap_inst(struct vow__file *s, struct vow__file_pool *p,
                        const unsigned char *id);
/* Is there something that a step which writes would change? */
int vow__file_pool_stale(struct vow__file *s, struct vow__file_pool *p,
                         bool *ret_stale);

/* ---- file_rate.c ------------------------------------------------------ */

/* Forget what has left the window. */
int vow__file_rate_expire(struct vow__file *s, struct vow__file_pool *p);
/* So much starts now. */
int vow__file_rate_add(struct vow__file *s, struct vow__file_pool *p,
                       uint64_t weight);
/* How much is granted whose start is not known: p->open. */
int vow__file_rate_open(struct vow__file *s, struct vow__file_pool *p);
/* A place that is held has started. */
int vow__file_place_start(struct vow__file *s, struct vow__file_pool *p,
                          struct vow__file_place *at);
/* When `weight` may be granted behind `ahead`; not above now if it can be. */
int vow__file_rate_when(struct vow__file *s, struct vow__file_pool *p,
                        uint64_t ahead, uint32_t weight, int64_t *ret_us);
/* What is in the window, without changing it. */
int vow__file_rate_used(struct vow__file *s, struct vow__file_pool *p,
                        uint64_t *ret_used);

#endif
