/* SPDX-License-Identifier: MIT */
/* store/rules/order.h - ordered permits: a pool as rows in order of creation.
 *
 * WHY   A remote service may run no code of ours: then no step can grant a
 *       permit to another process, and a single record for a pool would be
 *       contended by all processes. Each process must decide from the rows, and
 *       all processes must decide alike.
 * HOW   A row is a permit or a waiting request, in the order in which the
 *       service created the rows. A marked row is held. Without a rate, an
 *       unmarked row is held as well if all marked rows, all unmarked rows
 *       before, and the row itself fit into the concurrency limit: nobody needs
 *       to write the grant. Under a rate, an unmarked row that fits may be
 *       marked by the process of the row, together with an entry for the rate.
 *       vow__rules_rank() decides, by the sums that are computed here.
 * INVARIANTS  by design, while the limits stay as they are
 *   O1  a held row stays held until the row goes: later rows never count, a row
 *       that goes makes sums smaller, and a mark moves a weight that all later
 *       rows have counted already
 *   O2  the weight held is at most the concurrency limit: the last unmarked row
 *       that is held has counted all marked rows, all unmarked rows that are
 *       held, and the row itself
 *   O3  the weight started in any window is at most the rate: of the rows that
 *       were granted in a window, the last row in the order has counted every
 *       other row when the last row was marked: as an entry of the rate, or as
 *       an unmarked row before
 *       So a mark needs to compare nothing but the row and the limits, and sums
 *       of an older view are never too small for an unmarked row.
 *   Lower limits break O1, and requests that can never fit would block the
 *   queue. So a change of limits marks the held rows and removes the impossible
 *   requests: vow__rules_order_limit().
 * LIMITS  O(rows).
 * THREADS  any.
 */
#ifndef VOW_STORE_RULES_ORDER_H
#define VOW_STORE_RULES_ORDER_H

#include "store/rules/pool.h"

enum rules_plan {
    RULES_PLAN_STAY,
    RULES_PLAN_MARK, /* held under the old limits */
    RULES_PLAN_DROP  /* waiting, and can never be granted */
};

struct rules_row {
    vow_token token;
    uint64_t order;    /* rises from row to row */
    uint64_t lease_ms; /* as the requester asked for */
    uint32_t weight;
    bool marked;
    uint8_t plan; /* enum rules_plan, by vow__rules_order_limit() */
};

/* Sums over all rows. */
struct rules_order {
    uint64_t marked;   /* weight of the marked rows */
    uint64_t held;     /* weight of the held rows, marked or not */
    uint64_t holders;  /* number of the held rows */
    uint64_t waiting;  /* number of the other rows */
    uint64_t lease_ms; /* the shortest lease; UINT64_MAX: no row */
};

struct rules_order vow__rules_order_sum(const vow_pool_limits *limits,
                                        const struct rules_row *rows, size_t n);

/* Returns the row of a token, or NULL. *ret_before: weight of the unmarked rows
 * before. *ret_ahead: how many of these are waiting. */
const struct rules_row *vow__rules_order_find(const vow_pool_limits *limits,
                                              const struct rules_row *rows,
                                              size_t n, const vow_token *token,
                                              uint64_t *ret_before,
                                              uint64_t *ret_ahead);

/* Plans a change of the limits: sets `plan` of each row. */
void vow__rules_order_limit(const vow_pool_limits *from,
                            const vow_pool_limits *to, struct rules_row *rows,
                            size_t n);

#endif
