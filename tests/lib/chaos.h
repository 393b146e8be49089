/* SPDX-License-Identifier: MIT */
/* chaos.h - random calls of the library, from wherever it calls out.
 *
 * A schedule is one loop and some hundred actions that are drawn from a seed:
 * from the top, and from every kind of function the library calls. Here are the
 * handles that actions work on, the functions they give to the library, and
 * what must be true in these and at the end:
 *
 *   C1  what runs from the queue never runs inside another call of ours
 *   C2  a function runs as often as it was promised to, not after its drop
 *   C3  a value is alive while it can be read, and is destroyed once
 *   C4  what is settled stays as it is, and settling it again is refused
 *   C5  a loop that was closed leaves nothing pending
 *   C6  the loop cannot be run or closed by what it runs
 *
 * Everything given to the library is a token, kept to the end of the schedule:
 * so a second call or a late one is seen, and is no crash somewhere else.
 * VOW_CHAOS_TRACE=1 tells each action on stderr, indented by how deep it is.
 */
#ifndef TEST_CHAOS_H
#define TEST_CHAOS_H

#include "world.h"
#include <stdatomic.h>

enum {
    CHAOS_FUTURES = 24,
    CHAOS_ENDS = 12,
    CHAOS_SCOPES = 5,
    CHAOS_HOOKS = 6,
    CHAOS_REMOTES = 4,
    CHAOS_THREADS = 8,
    CHAOS_ACTIONS = 64 /* at most */
};

#define CHAOS_PLACES(X)                                                        \
    X(TOP) /* no function of the library is running */                         \
    X(HANDLER)                                                                 \
    X(FINALLY)                                                                 \
    X(PROGRESS)                                                                \
    X(CANCEL) /* vow_on_cancel() */                                            \
    X(HOOK)   /* of a scope */                                                 \
    X(START)  /* of a retry, and whether it is worth it */                     \
    X(FIBER)                                                                   \
    X(POST)                                                                    \
    X(VALUE) /* its destructor */                                              \
    X(DROP)  /* of a step */                                                   \
    X(UNHANDLED)

#define CHAOS_PLACE_ENUM(name) CHAOS_##name,
enum chaos_place { CHAOS_PLACES(CHAOS_PLACE_ENUM) CHAOS_PLACE_COUNT };
#undef CHAOS_PLACE_ENUM
extern const char *const chaos_place_names[];

struct chaos;

struct chaos_action {
    const char *name;
    void (*fn)(struct chaos *c);
    uint32_t weight;
    bool threads; /* only in plans with threads */
};

extern const struct chaos_action chaos_actions[];
extern const uint32_t chaos_action_count;

struct chaos_plan {
    uint32_t fault_one_in; /* so many allocations, one fails; 0: none */
    bool close_first;      /* the handles outlive the loop */
    bool threads;          /* real time, the thread pool, threads of ours */
};

/* How often each was done, over many schedules. */
struct chaos_tally {
    uint64_t actions[CHAOS_ACTIONS];
    uint64_t places[CHAOS_PLACE_COUNT];
};

struct chaos_token {
    struct chaos *chaos;
    struct chaos_token *next;
    const char *what;       /* the action that made it */
    _Atomic uint32_t runs;  /* of its function */
    _Atomic uint32_t drops; /* of itself */
    uint32_t drops_want;    /* when all is over */
    bool drops_if_run;      /* then as often as it ran */
    bool once;              /* runs at most once, */
    bool sure;              /* exactly once, */
    bool unless_canceled;   /* or not when its link was canceled */
    vow_future *link;       /* kept to see how it ended; may be NULL */
    uint32_t slot;          /* an end's, a hook's; or the way a job goes */
};

struct chaos {
    struct world w;
    const struct chaos_plan *plan;
    struct chaos_tally *tally;
    uint64_t random;
    pthread_t thread;   /* the loop's */
    const char *action; /* the last that was begun */
    int depth;          /* actions that are under way on this stack */
    int running;        /* calls that run the loop */
    int left;           /* actions that may still be done */
    int fibers;         /* begun and not ended */
    bool waits;         /* in vow_loop_run(): it must come to an end */
    bool closing;
    bool trace;
    struct {
        vow_future *future;
        enum vow_state seen; /* when it was last picked */
        vow_value value;     /* then */
    } futures[CHAOS_FUTURES];
    vow_deferred *ends[CHAOS_ENDS];
    vow_scope *scopes[CHAOS_SCOPES];
    struct {
        vow_hook hook;
        bool added;
    } hooks[CHAOS_HOOKS];
    struct {
        vow_remote *remote;
        bool settled;
    } remotes[CHAOS_REMOTES];
    pthread_t threads[CHAOS_THREADS];
    uint32_t n_threads;
    struct chaos_token *tokens;
};

/* Up to three actions, unless it is deep or there have been enough; one from
 * the top. */
void chaos_act(struct chaos *c, enum chaos_place place);

/* ---- for actions -------------------------------------------------------- */

uint32_t chaos_below(struct chaos *c, uint32_t n);
bool chaos_one_in(struct chaos *c, uint32_t n);
uint64_t chaos_ms(struct chaos *c); /* a short time, shorter if it is real */

/* One of the futures, referenced, or NULL; and give one away. */
vow_future *chaos_pick(struct chaos *c);
void chaos_put(struct chaos *c, vow_future *f);
/* Give one away, and sometimes remember how its token's link ends. */
void chaos_put_link(struct chaos *c, vow_future *f, struct chaos_token *t);
void chaos_drop_future(struct chaos *c, uint32_t slot);
void chaos_drop_end(struct chaos *c, uint32_t slot);
void chaos_drop_scope(struct chaos *c, uint32_t slot);
void chaos_drop_hook(struct chaos *c, uint32_t slot);
void chaos_drop_remote(struct chaos *c, uint32_t slot);
/* In a fiber, wait for something; elsewhere, be refused. */
void chaos_wait(struct chaos *c);

struct chaos_token *chaos_token(struct chaos *c);
vow_value chaos_value(struct chaos *c);
vow_value chaos_value_of(struct chaos_token *t);
void chaos_check_value(vow_value v);
vow_error *chaos_error(struct chaos *c);
void chaos_check_error(vow_error *e);
vow_next chaos_next(struct chaos *c);

/* At the end: was it called and dropped as often as it should be? How did its
 * link end? That is let go. */
void chaos_check_token(const struct chaos_token *t);
void chaos_check_link(struct chaos_token *t);

/* What the library is given; `user` is a token. */
vow_next chaos_on_ok(vow_value v, void *user);
vow_next chaos_on_fail(vow_error *e, void *user);
vow_next chaos_on_finally(void *user);
void chaos_on_progress(vow_value v, void *user);
void chaos_on_cancel(vow_error *why, void *user);
void chaos_on_hook(vow_error *why, void *user);
vow_future *chaos_start(vow_loop *loop, uint32_t attempt, void *user);
bool chaos_retry_if(vow_error *e, void *user);
vow_next chaos_fiber(void *user);
void chaos_post(void *user);
void chaos_drop(void *user);
void chaos_on_unhandled(vow_error *e, const char *site, void *user);

#endif
