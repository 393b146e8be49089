/* SPDX-License-Identifier: MIT */
/* cas_memory_inside.h - what the parts of the simulated service share: names
 * and leases (cas_memory.c), and pools (cas_memory_pools.c). */
#ifndef TEST_CAS_MEMORY_INSIDE_H
#define TEST_CAS_MEMORY_INSIDE_H

#include "cas_memory.h"

#include "base/list.h"
#include "harness.h"
#include "vow/call.h"
#include "vow/fiber.h"

enum { CLIENTS_MAX = 64, RECHECK_MS = 1000, PART_MS = 40 };

struct sim_name;
struct sim_pools;

struct sim_lease {
    uint64_t id, ttl_us, end_us;
    int client;
    bool ended;
    vow_call end;
    struct cas_world *world;
    struct sim_lease *next;
};

enum sim_kind { SIM_RECORD, SIM_DOUBT, SIM_LOOK };

struct sim_event {
    vow_link link;
    struct cas_client *client;
    vow_call due;
    vow_name name;
    enum sim_kind kind;
    struct cas_found found;
    struct cas_pool_name pool; /* of SIM_LOOK */
    vow_token token;
};

struct cas_client {
    struct cas_service service;
    struct cas_world *world;
    int index;
    int64_t skew_us;
    struct cas_events events;
    bool killed, cut, broken; /* broken: the watch tells nothing */
    uint64_t stream_ns;       /* when the last event of the watch arrives */
    vow_link *pending;        /* events */
    vow_call end;
    void (*closed)(void *user);
    void *user;
};

struct cas_world {
    vow_loop *loop;
    struct cas_plan plan;
    uint64_t random;
    uint64_t counter; /* above every version and epoch */
    uint64_t writes, requests;
    struct sim_name **names; /* in the order of names */
    size_t n_names;
    struct sim_lease *leases;
    struct cas_client *clients[CLIENTS_MAX];
    int n_clients;
    vow_link *late;
    vow_link *late_ops;      /* the same of cas_memory_permits.c */
    struct sim_pools *pools; /* cas_memory_pools.c */
    bool misses_marks;
    struct cas_faults faults;
};

struct cas_client *cas_sim_client_of(struct cas_service *s);
void *cas_sim_must_alloc(size_t size);
uint64_t cas_sim_roll(struct cas_world *w, uint64_t n);
bool cas_sim_chance(struct cas_world *w, unsigned per_mille);
uint64_t cas_sim_world_us(const struct cas_world *w);
uint64_t cas_sim_client_us(const struct cas_client *c); /* the client's clock */
/* NULL: there is no such lease, or the lease has ended. */
struct sim_lease *cas_sim_lease_find(struct cas_world *w, uint64_t id);
void cas_sim_lease_end(struct sim_lease *l);
/* Makes an event on its way to a client. */
struct sim_event *cas_sim_event_new(struct cas_client *c);
/* Draws whether an event is lost: then nothing is to be sent. */
bool cas_sim_event_lost(struct cas_client *c);
/* Ways of a request: a code. */
int cas_sim_travel(struct cas_client *c, uint64_t due_ns);
int cas_sim_travel_there(struct cas_client *c, uint64_t due_ns);
int cas_sim_give_up(struct cas_client *c); /* VOW_EUNSURE */

/* ---- pools (cas_memory_pools.c) ------------------------------------------ */

struct sim_pools *cas_sim_pools_new(struct cas_world *w);
void cas_sim_pools_free(struct sim_pools *ps);
/* All rows of a lease go. */
void cas_sim_pools_lease_end(struct sim_pools *ps, uint64_t lease);
/* The functions on pools. */
void cas_sim_pools_ops(struct cas_service_ops *ops);

enum sim_op_kind { SIM_JOIN, SIM_WRITE, SIM_LEAVE, SIM_LIMIT };

/* A request that changes a pool. */
struct sim_op {
    enum sim_op_kind kind;
    struct cas_pool_name name;
    vow_permit_request request;
    struct cas_lease lease;
    vow_token token;
    uint64_t order;
    bool has_entry, sets;
    struct cas_entry entry;
    vow_pool_limits limits;
    uint64_t version;
    const char *label;
    const struct cas_pool_write *write;
};

int cas_sim_pools_do(struct cas_client *c, const struct sim_op *op,
                     struct cas_pool_found *ret, struct cas_row *row,
                     uint64_t *ret_version);

/* ---- requests on pools (cas_memory_permits.c) ---------------------------- */

void cas_sim_permits_ops(struct cas_service_ops *ops);
void cas_sim_late_free(struct cas_world *w);
/* Requests of the client that are on their way have no effect. */
void cas_sim_late_orphan(struct cas_client *c);

#endif
