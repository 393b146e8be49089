/* SPDX-License-Identifier: MIT */
/* ledger.h - what was granted when, so that no window has too much. See
 * ledger.c. */
#ifndef VOW_STORE_LEDGER_H
#define VOW_STORE_LEDGER_H

#include "base/alloc.h"
#include "vow/pool.h"

struct vow__ledger {
    struct vow__grants *at; /* a ring; NULL: none yet */
    size_t room;            /* a power of two */
    size_t first;           /* the oldest */
    size_t n;
    uint64_t total;    /* units ever granted */
    uint64_t left;     /* of these, out of the window */
    uint64_t began_us; /* when the newest entry was begun */
    uint64_t open;     /* units granted whose start is not known yet */
    size_t n_open;     /* of so many grants */
};

void vow__ledger_fini(struct vow__ledger *l, const struct vow_alloc *alloc);

/* Forget what has left the window; how much is in it. */
void vow__ledger_expire(struct vow__ledger *l, uint64_t window_us,
                        uint64_t now_us);
uint64_t vow__ledger_used(const struct vow__ledger *l);

/* When `weight` may be granted behind `ahead`, at the earliest: not above
 * now_us if it can be now. After vow__ledger_expire(); the rate is not 0. */
uint64_t vow__ledger_when(const struct vow__ledger *l,
                          const vow_pool_limits *limits, uint64_t ahead,
                          uint32_t weight, uint64_t now_us);

/* Make room for a grant (VOW_ENOMEM). It counts as of now until its start is
 * written down, which needs no memory. */
int vow__ledger_reserve(struct vow__ledger *l, const struct vow_alloc *alloc);
void vow__ledger_grant(struct vow__ledger *l, uint32_t weight);
void vow__ledger_start(struct vow__ledger *l, const vow_pool_limits *limits,
                       uint32_t weight, uint64_t now_us);
void vow__ledger_add(struct vow__ledger *l, const vow_pool_limits *limits,
                     uint32_t weight, uint64_t now_us);

/* When all of it will have left the window. */
uint64_t vow__ledger_over_us(const struct vow__ledger *l, uint64_t window_us);

#endif
