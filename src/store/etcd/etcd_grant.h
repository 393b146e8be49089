/* SPDX-License-Identifier: MIT */
/* etcd_grant.h - who holds a place in a pool, and who waits. See etcd_grant.c.
 */
#ifndef VOW_STORE_ETCD_GRANT_H
#define VOW_STORE_ETCD_GRANT_H

#include "base/alloc.h"
#include "vow/store.h"

enum vow__rank {
    VOW__RANK_HELD, /* it has its place */
    VOW__RANK_TURN, /* there is a rate, which allows it now: it can be marked */
    VOW__RANK_WAITS, /* it queues */
    VOW__RANK_OUT    /* the limits never allow it: it counts for nobody */
};

/* A place, as its key says. */
struct vow__seat {
    vow_token token;
    uint64_t create; /* revision: their order */
    uint64_t mod;
    int64_t lease; /* of etcd */
    uint64_t lease_ms;
    uint32_t weight;
    bool marked;
    size_t text, text_size; /* its value, in the texts of the crowd */
    /* By vow__crowd_rank(): */
    uint8_t rank;
    uint64_t ahead;  /* who waits before it */
    uint64_t before; /* their weight */
    uint8_t plan;    /* of who changes limits */
};

/* What was granted under a rate. It counts for a window from its last start on;
 * while a grant in it is open, that may still come. */
struct vow__toll {
    uint64_t id; /* of its key */
    uint64_t mod;
    int64_t lease; /* of etcd */
    uint64_t weight;
    uint32_t open;     /* grants whose start is not known */
    uint64_t since_us; /* loop time; open and ranked: of the ranking */
};

/* All of one pool. Zeroed but for `alloc` it is empty. */
struct vow__crowd {
    struct vow_alloc alloc;
    uint64_t revision; /* as of which it is known */
    bool keyed;        /* its limits are those of another */
    bool there;        /* it has limits */
    uint64_t limits_mod;
    vow_pool_limits limits;
    uint64_t offset;         /* revisions and this are fences */
    struct vow__seat *seats; /* ranked: by creation */
    size_t n, room;
    struct vow__toll *tolls;
    size_t n_tolls, toll_room;
    char *texts;
    size_t texts_n, texts_room;
    uint64_t least_ms, second_ms; /* the shortest leases, when ranked, */
    size_t least;                 /* and whose is the first */
    char label[VOW_LABEL_MAX + 1];
};

void vow__crowd_init(struct vow__crowd *c, const struct vow_alloc *alloc);
void vow__crowd_fini(struct vow__crowd *c);
/* One that is not in it; one that may be: it is replaced. VOW_ENOMEM. The text
 * may be NULL. */
int vow__crowd_add(struct vow__crowd *c, const struct vow__seat *seat,
                   const char *text, size_t text_size);
int vow__crowd_set(struct vow__crowd *c, const struct vow__seat *seat);
void vow__crowd_remove(struct vow__crowd *c, const vow_token *token);
/* NULL: not there. Valid until the next change or ranking. */
struct vow__seat *vow__crowd_find(const struct vow__crowd *c,
                                  const vow_token *token);
/* A toll that is new, or of another revision; VOW_ENOMEM. */
int vow__crowd_charge(struct vow__crowd *c, const struct vow__toll *toll);
void vow__crowd_forgive(struct vow__crowd *c, uint64_t id);
/* What `old` has seen earlier has been there since; `old` is put in order. */
void vow__crowd_recall(struct vow__crowd *c, struct vow__crowd *old);

/* Will a weight ever fit? */
bool vow__limits_allow(const vow_pool_limits *limits, uint32_t weight);
/* Put all in order and say where each stands. */
void vow__crowd_rank(struct vow__crowd *c, uint64_t now_us);
/* Of a ranked crowd. When one that waits should ask again, from now. */
uint64_t vow__crowd_again_us(const struct vow__crowd *c,
                             const struct vow__seat *seat, uint64_t now_us);
/* held, holders, waiting and rate_used. */
void vow__crowd_count(const struct vow__crowd *c, uint64_t now_us,
                      vow_pool_info *info);
/* Does a toll still count? */
bool vow__toll_counts(const struct vow__crowd *c, const struct vow__toll *toll,
                      uint64_t now_us);

#endif
