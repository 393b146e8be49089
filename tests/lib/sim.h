/* SPDX-License-Identifier: MIT */
/* sim.h - processes that meet at a store, on one thread and in virtual time.
 *
 *     struct sim s;
 *     sim_open(&s, seed);
 *     struct sim_node *n = sim_node_new(&s);   a process: loop, clock, store
 *     ... use n->store on n->loop ...
 *     sim_crash(n, false);                     kill -9, and nobody notices
 *     sim_run(&s, s.now_ns + 5 * SIM_S);
 *     sim_close(&s);                           fails on whatever was lost
 *
 * Every process has a loop and a clock of its own, which may be a bit fast or
 * slow. Between it and the store is a network that delays, loses, doubles and
 * refuses, as its faults say and the seed decides. A process can be cut off,
 * stopped and go on later, or die. The store is the state of a memory store
 * (src/store/memory); every step that it does is compared with what vow/store.h
 * promises (sim_names.c, sim_places.c).
 *
 * The same seed gives the same schedule: many of them by sim_many().
 */
#ifndef TEST_SIM_H
#define TEST_SIM_H

#include "base/heap.h"
#include "base/list.h"
#include "store/memory/memory_pools.h"
#include "store/memory/memory_slots.h"
#include "world.h"

enum {
    SIM_NODES = 10, /* also those that died */
    SIM_NAMES = 6,  /* with those of refreshes */
    SIM_GRANTS = 256,
    SIM_LEFT = 64,
    SIM_EPOCHS = 128
};
#define SIM_US UINT64_C(1000)
#define SIM_MS UINT64_C(1000000)
#define SIM_S UINT64_C(1000000000)

struct sim;
struct sim_node;
struct sim_step;

/* Something that happens at its time. */
struct sim_event {
    struct vow__heap_node node;
    void (*fn)(struct sim *s, struct sim_event *e);
};

/* Of 1000 messages; zero: none. */
struct sim_faults {
    uint32_t lose_request;
    uint32_t lose_reply;
    uint32_t lose_wake;
    uint32_t twice;  /* the same request arrives again */
    bool straggle;   /* long after, behind others of its process */
    uint32_t refuse; /* VOW_ESTORE, at once */
    uint32_t slow;   /* takes up to twice the timeout */
    uint32_t delay_us;
};

/* A process. */
struct sim_node {
    vow_store store; /* first: this is the vow_store */
    struct sim *sim;
    uint32_t number;
    vow_loop *loop;
    struct vow__memory_instance *inst; /* NULL: the store knows it no more */
    vow_store_events events;
    int64_t drift_ppm;
    uint64_t born_ns;
    uint64_t stopped_ns; /* until then it does not run */
    uint64_t cut_ns;     /* until then no message gets through */
    uint64_t sent_ns;    /* when the claim was sent that is executed */
    uint64_t arrival_ns; /* of its last request: they keep their order */
    uint64_t awake_ns;   /* what the next stop may not be before */
    bool instant;        /* every step answers before it returns */
    bool dead;
    bool closed; /* its store is */
    bool mail;   /* a letter lies there */
    vow_link *steps;
    void *user; /* of the test */
};

/* A result with a time to live of 0, left for the claims that waited. */
struct sim_left {
    uint64_t first; /* of the run; 0: none */
    uint64_t until_us;
    uint64_t epoch;
    vow_bytes *value;
};
/* What vow/store.h promises of one name, and what follows from the steps. */
struct sim_name {
    vow_name name;
    uint32_t state; /* enum in sim_names.c */
    uint32_t owner; /* a node's number */
    vow_token token;
    uint64_t epoch;
    uint64_t first;
    uint64_t epoch_max;
    uint64_t end_us, lease_us;
    uint32_t takeovers;
    uint32_t mode;
    bool canceled, failed, hidden;
    vow_bytes *value;
    uint32_t waits;                     /* nodes that are registered, as bits */
    uint64_t waits_since_ns[SIM_NODES]; /* the last time it was told so */
    uint64_t heard[SIM_NODES]; /* `first` of the last WAITING that arrived */
    uint64_t heard_ns[SIM_NODES];
    uint64_t owned_ns;              /* when the claim was sent that owns it */
    struct sim_left left[SIM_LEFT]; /* a ring */
    uint32_t n_left;
    uint64_t accepted[SIM_EPOCHS]; /* whose results were */
    uint32_t n_accepted;
    uint32_t owns;    /* how often it was given to somebody */
    uint64_t heir_us; /* its owner died: by then another has it; 0: no matter */
};

/* What is known of a place; see sim_places.c. */
enum { SIM_PLACES = 64 };
struct sim_place {
    vow_token token;
    const struct vow__memory_pool *pool;
    const struct vow__memory_pool *law; /* with the limits */
    uint64_t arrival;
    uint64_t end_us;
    uint64_t fence;
    uint32_t weight;
    bool held;
    bool seen;
};
struct sim_grant {
    const struct vow__memory_pool *pool;
    uint64_t us;
    uint32_t weight;
};

struct sim {
    uint64_t seed;
    uint64_t random;
    uint64_t now_ns;
    uint64_t seq;
    uint64_t events_run;
    struct vow__heap_node *events;
    struct test_alloc alloc;
    struct vow__memory_state *book;
    struct sim_faults faults;
    uint64_t recheck_ms;
    uint64_t timeout_ns; /* of a request */
    struct sim_node nodes[SIM_NODES];
    uint32_t n_nodes;
    struct sim_name names[SIM_NAMES];
    uint32_t n_names;
    struct sim_place places[SIM_PLACES];
    uint32_t n_places;
    uint64_t arrivals;
    uint64_t fence_max;
    struct sim_grant grants[SIM_GRANTS];
    uint32_t n_grants;
    bool tell;
    bool prompt;      /* nothing is lost or late: takeovers must be in time */
    uint64_t late_us; /* what a client may add to a lease, for its jitter */
    bool closing;
    bool loop_errors; /* rejections that nobody handles are expected */
    /* The store has given the name to `n`: nobody else may think he has it. */
    void (*on_own)(struct sim *s, struct sim_node *n, const vow_name *name);
    /* A result was accepted; `waits`: the nodes that are registered, bits. */
    void (*on_accept)(struct sim *s, const vow_commit_request *ask,
                      uint32_t waits);
    /* The store has granted a place. */
    void (*on_grant)(struct sim *s);
    void *user; /* of the test */
};

/* Run so many schedules, each from a seed; fewer where each takes long. All
 * tests together have 20,000, or as many as the environment says by
 * VOW_SIM_SCHEDULES. The first seed is that of the test: --seed with what a
 * failure told begins with that schedule, and VOW_SCHEDULE=seed runs it alone
 * and tells the story. */
void sim_many(uint32_t count, void (*schedule)(uint64_t seed));

void sim_open(struct sim *s, uint64_t seed);
/* Free all; the test fails if anything is lost. All nodes must be closed, or
 * dead with nothing on their loop. */
void sim_close(struct sim *s);

/* Below `n`; one in `n`; between. */
uint64_t sim_draw(struct sim *s, uint64_t n);
bool sim_chance(struct sim *s, uint32_t of_1000);
uint64_t sim_between(struct sim *s, uint64_t from, uint64_t to);

struct sim_node *sim_node_new(struct sim *s);
/* It is gone. `noticed`: the store hears of it, as by a lock that is freed. */
void sim_crash(struct sim_node *n, bool noticed);
void sim_stop(struct sim_node *n, uint64_t ns);
void sim_cut(struct sim_node *n, uint64_t ns);
bool sim_up(const struct sim_node *n); /* it lives and runs */
/* No fault from now on; who is stopped or cut comes back. */
void sim_heal(struct sim *s);

/* Something at that time; the event must stay until then. */
void sim_at(struct sim *s, struct sim_event *e, uint64_t ns,
            void (*fn)(struct sim *s, struct sim_event *e));
void sim_run(struct sim *s, uint64_t until_ns);
/* The node's clock is set, and its loop has nothing left to do now. */
void sim_node_clock(struct sim_node *n);
void sim_node_run(struct sim_node *n);
/* It has something to do now, and has not done it yet. */
bool sim_node_late(struct sim_node *n);

_Noreturn void sim_fail(const char *site, const struct sim *s,
                        const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define SIM_CHECK(s, cond)                                                     \
    ((cond) ? (void)0 : sim_fail(TEST_HERE, (s), "%s", #cond))
/* A line of the story, if it is told. `n` may be NULL. */
void sim_say(const struct sim *s, const struct sim_node *n, const char *format,
             ...) __attribute__((format(printf, 3, 4)));

/* ---- between its files -------------------------------------------------- */

uint64_t sim_now_us(const struct sim *s);
uint64_t sim_delay(struct sim *s);
const vow_store_ops *sim_store_ops(void);
void sim_store_init(struct sim_node *n);
/* Steps in flight end with this code; 0: they are never answered. */
void sim_store_end(struct sim_node *n, int code);
/* The store forgets the node. */
void sim_store_leave(struct sim_node *n, bool dead);
/* Letters go out. */
void sim_mail(struct sim *s);

struct sim_name *sim_name_of(struct sim *s, const vow_name *name);
/* Each is called after the book has done the step. */
void sim_saw_claim(struct sim_node *n, const vow_claim_request *ask,
                   const vow_record *r);
void sim_saw_pulse(struct sim_node *n, const vow_hold *hold, uint64_t lease_ms,
                   const vow_record *r);
void sim_saw_commit(struct sim_node *n, const vow_commit_request *ask,
                    const vow_record *r);
void sim_saw_forget(struct sim_node *n, const vow_name *name, uint64_t epoch,
                    const vow_record *r);
void sim_saw_cancel(struct sim_node *n, const vow_name *name,
                    const vow_record *r);
void sim_saw_peek(struct sim_node *n, const vow_name *name,
                  const vow_record *r);
void sim_saw_crash(struct sim_node *n, bool noticed);
void sim_saw_leave(struct sim_node *n, bool dead);
void sim_names_fini(struct sim *s);

/* `by`: the token of who asks for a place, or gives it back; NULL: nobody. */
void sim_saw_places(struct sim *s, const vow_token *by);
void sim_saw_place(struct sim_node *n, const vow_token *token,
                   const vow_pool_permit *p);

#endif
