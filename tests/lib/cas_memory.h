/* SPDX-License-Identifier: MIT */
/* cas_memory.h - a simulated compare-and-set service on the time of a loop.
 *
 * A cas_world is the server, without a client. Each cas_memory_client() is a
 * service for a store of its own, as of a process. The faults are drawn from
 * the seed of the world: the same seed on virtual time gives the same history.
 * The contract of store/cas/cas.h is kept under all faults.
 */
#ifndef TEST_CAS_MEMORY_H
#define TEST_CAS_MEMORY_H

#include "store/cas/cas.h"

struct cas_world;
struct cas_client;

struct cas_plan {
    uint32_t flags; /* CAS_WATCHES or CAS_REGISTERS */
    bool clock;     /* the service has a clock; else the wall clock of each
                          client, which is off by at most skew_ms */
    uint64_t seed;
    size_t value_max;
    size_t inline_max; /* longer values are apart */
    uint64_t delay_ms; /* each way of a request and each event: at most */
    uint64_t skew_ms;
    /* chances in 1000 */
    unsigned lost_requests; /* a write without an answer, not done */
    unsigned lost_answers;  /* done */
    unsigned late_writes;   /* done later, at most late_ms */
    unsigned lost_events;   /* with a watch: then on_doubt */
    unsigned doubled_events;
    unsigned lost_leases; /* with each keepalive */
    uint64_t late_ms;
};

struct cas_world *cas_world_new(vow_loop *loop, const struct cas_plan *plan);
void cas_world_free(struct cas_world *w);
/* From now on, the faults are those of the plan. */
void cas_world_set(struct cas_world *w, const struct cas_plan *plan);
/* From now on, there are no faults but delays. */
void cas_world_heal(struct cas_world *w);
/* From now on, new limits mark no rows. */
void cas_world_miss_marks(struct cas_world *w, bool miss);
/* Entries of the rates of all pools. */
size_t cas_world_entries(const struct cas_world *w);
/* How often each fault has happened. */
struct cas_faults {
    uint64_t requests, answers, late, late_done, events, doubled, leases;
};
struct cas_faults cas_world_faults(const struct cas_world *w);
/* Writes that have happened. */
uint64_t cas_world_writes(const struct cas_world *w);
/* Requests of all clients, of any kind. */
uint64_t cas_world_requests(const struct cas_world *w);

struct cas_service *cas_memory_client(struct cas_world *w);
/* The process dies: no request of the client has an effect from now on. */
void cas_memory_kill(struct cas_service *s);
/* The client reaches no server until called again with false. */
void cas_memory_cut(struct cas_service *s, bool cut);

#endif
