/* SPDX-License-Identifier: MIT */
/* sim_step.h - a step of a simulated process, between the operations of its
 * store (sim_store.c) and the network to the book (sim_net.c). */
#ifndef TEST_SIM_STEP_H
#define TEST_SIM_STEP_H

#include "sim.h"

enum sim_kind {
    CLAIM,
    PEEK,
    PULSE,
    COMMIT,
    FORGET,
    CANCEL,
    LIST,
    WRITE,
    READ,
    ACQUIRE,
    RELEASE,
    RENEW,
    LIMIT,
    POOLS
};
union sim_done {
    vow_records_fn records;
    vow_permits_fn places;
    vow_chunks_fn chunks;
    vow_pools_fn pools;
};

struct sim_step {
    enum sim_kind kind;
    struct sim_node *node;
    uint32_t refs; /* the process's, and one for each message */
    bool over;     /* answered */
    uint64_t sent_ns;
    vow_link link; /* of node->steps, until it is over */
    vow_call timeout;
    union sim_done done;
    void *user;
    vow_claim_request claim;
    vow_commit_request commit;
    vow_permit_request place;
    vow_hold hold;
    vow_bytes *chunk;
    vow_name name;
    uint64_t number; /* an epoch, a lease, or from where to read */
    uint64_t from;
    bool set;
    vow_pool_limits limits;
    char label[64], runner[64];
    size_t n;
    vow_name *names;
    vow_hold *holds;
    vow_permit_hold *places;
};

/* The step goes out; it is answered later, or before this returns. */
void sim_send(struct sim_step *t);
/* Zeroed memory that is there. */
void *sim_zeroed(size_t n, size_t size);

#endif
