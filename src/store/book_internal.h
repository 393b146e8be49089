/* SPDX-License-Identifier: MIT */
/* book_internal.h - the inside of a book.
 *
 *   names (hash) -> rec  RUNNING: owner, lease, chunks      } waits: who is
 *                        SETTLED: value, until when         } to be told
 *   pools (hash) -> lot  queue of places, ends (heap), ledger of the rate
 *   inst                 mail: letters, each inside what it is about
 *
 * INVARIANTS
 *   B1  a rec that can be found by its name is RUNNING, or SETTLED
 *   B2  `hidden` (a result with ttl 0): nobody but its waits may see it. It can
 *       be found by its name until that is claimed anew, and lives until its
 *       end_us, or until nobody can want it any more.
 *   B3  a wait is of one instance and one name. With a rec: it is in rec->waits
 *       and that is RUNNING or hidden; without: its letter is under way.
 *   B4  epochs and fences come from one counter
 */
#ifndef VOW_STORE_BOOK_INTERNAL_H
#define VOW_STORE_BOOK_INTERNAL_H

#include "base/heap.h"
#include "base/list.h"
#include "base/slab.h"
#include "base/table.h"
#include "store/book.h"
#include "store/ledger.h"

enum {
    VOW__REAP_MAX = 64,             /* thrown away by one step */
    VOW__GAVE_UP_US = 60 * 1000000, /* how long that is remembered */
    VOW__ACCEPT_US = 2 * 1000000    /* to fetch a place that was granted */
};
/* A lapsed lease that nobody asks for is remembered so long. */
#define VOW__KEEP_US (UINT64_C(24) * 3600 * 1000000)
/* A larger one is not believed: it would use up the numbers. */
#define VOW__EPOCH_MAX (UINT64_MAX / 4)

struct vow__text {
    uint32_t refs;
    uint32_t length;
    char chars[];
};

struct vow__letter {
    vow_link link;
    uint8_t kind; /* enum vow__news_kind; NONE: it is not in the mail */
};

struct vow__inst {
    void (*wake)(void *user);
    void *user;
    struct vow__text *runner; /* of its last claim: most are the same */
    vow_link *mail;
    vow_link *waits;
    vow_link *owned;  /* recs that run */
    vow_link *places; /* held and queued */
};

enum vow__rec_state { VOW__REC_RUNNING = 0, VOW__REC_SETTLED };

struct vow__chunks {
    vow_bytes **at;
    size_t n;
    size_t room;
    size_t bytes;
};

struct vow__rec {
    struct vow__slab *slab;
    struct vow__table_node named;
    vow_name name;
    vow_token token; /* of the owner, or of who settled it */
    uint64_t epoch;
    uint64_t since_us; /* when it was claimed, or settled */
    uint64_t pulse_us;
    uint64_t end_us; /* of the lease, or of the result */
    uint64_t lease_us;
    uint64_t cost_ms;
    uint8_t state; /* enum vow__rec_state */
    uint8_t mode;
    bool failed;
    bool hidden;
    bool canceled; /* somebody asked to stop it */
    bool late;     /* an owner that was lost may still come with a result */
    bool found;    /* by its name */
    bool ends;     /* it is in book->ends */
    uint32_t takeovers;
    uint32_t n_waits;
    vow_link *waits;
    struct vow__inst *owner; /* NULL: it has left */
    vow_link in_owned;
    vow_link in_running; /* unless VOW_ONCE */
    struct vow__heap_node by_end;
    vow_bytes *value;
    struct vow__text *label;
    struct vow__text *runner;
    struct vow__chunks chunks;
    struct vow__letter cancel;
};

struct vow__wait {
    struct vow__slab *slab;
    struct vow__table_node named;
    struct {
        vow_name name;
        struct vow__inst *inst;
    } key;
    vow_token token; /* that waits, or that read the hidden result */
    bool read;       /* it was, or a letter brought it */
    struct vow__rec *rec;
    vow_link in_rec;
    vow_link in_inst;
    struct vow__letter letter;
};

enum vow__spot_state { VOW__SPOT_QUEUED = 0, VOW__SPOT_HELD, VOW__SPOT_OUT };

/* A place. OUT: limits do not allow it any more, and its letter says so. */
struct vow__spot {
    struct vow__slab *slab;
    struct vow__table_node named;
    struct {
        vow_token token;
        struct vow__lot *lot;
    } key;
    struct vow__inst *inst;
    uint32_t weight;
    uint8_t state; /* enum vow__spot_state */
    bool open;     /* HELD, and its start is not in the ledger */
    uint64_t fence;
    uint64_t again_us; /* when it was told to ask again */
    uint64_t before;   /* how many had come before it, and their weight */
    uint64_t before_weight;
    vow_link in_queue;
    vow_link in_inst;
    struct vow__heap_node by_end;
    struct vow__letter letter;
};

/* A pool. Its limits are those of `law`, which is itself, or the pool that has
 * one lot for each key. */
struct vow__lot {
    struct vow__table_node named;
    vow_name name;
    struct vow__lot *law;
    vow_link in_law;
    vow_link *keys; /* lots whose law it is, but itself */
    vow_pool_limits limits;
    struct vow__text *label;
    vow_link *queue;
    struct vow__heap_node *ends; /* of those that hold and those that queue */
    uint64_t held;
    uint64_t holders;
    uint64_t waiting;
    uint64_t came, came_weight; /* ever, into the queue */
    uint64_t went, went_weight; /* ever, from its front */
    bool recount;               /* some went from the middle */
    struct vow__ledger ledger;
    bool idle; /* it is in book->idle */
    struct vow__heap_node by_idle;
};

struct vow__book {
    struct vow_alloc alloc;
    bool sure;
    uint64_t now_us;   /* never falls */
    uint64_t floor_us; /* a result is kept so long, and the lease */
    size_t value_max;
    uint64_t counter; /* the last epoch or fence */
    uint64_t seq;     /* of heaps */
    struct vow__table names;
    struct vow__table waits;
    struct vow__table pools;
    struct vow__table spots;
    struct vow__slab_cache rec_memory;
    struct vow__slab_cache wait_memory;
    struct vow__slab_cache spot_memory;
    struct vow__heap_node *ends; /* of results */
    struct vow__heap_node *idle; /* lots nobody uses, by their last grant */
    vow_link *running;           /* the one whose pulse is oldest first */
};

static inline uint64_t vow__us_plus(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static inline uint64_t vow__us_of_ms(uint64_t ms)
{
    return ms > UINT64_MAX / 1000 ? UINT64_MAX : ms * 1000;
}

static inline bool vow__token_same(const vow_token *a, const vow_token *b)
{
    return __builtin_memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- book.c ------------------------------------------------------------- */

/* The beginning of every step. */
void vow__book_begin(struct vow__book *b, uint64_t now_us);

/* A text, cut; *ret NULL if there is none. VOW_ENOMEM. `last` (may be NULL) is
 * where an equal one may be, and the new one goes. */
int vow__text_make(struct vow__book *b, const char *chars,
                   struct vow__text **last, struct vow__text **ret_text);
void vow__text_drop(struct vow__book *b, struct vow__text *t);

void vow__letter_post(struct vow__inst *inst, struct vow__letter *l,
                      enum vow__news_kind kind);
void vow__letter_drop(struct vow__inst *inst, struct vow__letter *l);

/* ---- book_record.c ------------------------------------------------------ */

struct vow__rec *vow__rec_find(struct vow__book *b, const vow_name *name);
struct vow__rec *vow__rec_new(struct vow__book *b, const vow_name *name);
int vow__rec_add(struct vow__book *b, struct vow__rec *r);
void vow__rec_free(struct vow__book *b, struct vow__rec *r);
void vow__rec_lose(struct vow__book *b, struct vow__rec *r);
void vow__rec_disown(struct vow__book *b, struct vow__rec *r);
void vow__rec_renew(struct vow__book *b, struct vow__rec *r,
                    struct vow__inst *owner, uint64_t lease_ms);
/* The record may be gone when this returns. */
void vow__rec_settle(struct vow__book *b, struct vow__rec *r, vow_bytes *value,
                     bool failed, uint64_t ttl_us);
/* Wake all that wait, by a letter of this kind. */
void vow__rec_tell(struct vow__rec *r, enum vow__news_kind kind);
/* The record goes; who waits may claim it. */
void vow__rec_vanish(struct vow__book *b, struct vow__rec *r);
/* What a claim of a stranger would find. */
uint32_t vow__rec_says(const struct vow__book *b, const struct vow__rec *r);

struct vow__wait *vow__wait_find(struct vow__book *b, struct vow__inst *inst,
                                 const vow_name *name);
int vow__wait_add(struct vow__book *b, struct vow__inst *inst,
                  struct vow__rec *r, const vow_token *token);
void vow__wait_again(struct vow__book *b, struct vow__wait *w,
                     struct vow__rec *r, const vow_token *token);
void vow__wait_free(struct vow__book *b, struct vow__wait *w);

/* The record, or of NULL only its name, with texts and a counted value; and
 * without what it points to. */
void vow__answer_fill(const struct vow__book *b, const struct vow__rec *r,
                      uint32_t status, const vow_name *name,
                      struct vow__answer *out);
void vow__record_fill(const struct vow__book *b, const struct vow__rec *r,
                      uint32_t status, const vow_name *name, vow_record *out);

/* ---- book_pool.c -------------------------------------------------------- */

struct vow__lot *vow__lot_find(struct vow__book *b, const vow_name *name);
/* Finds it or makes it. NULL without memory. */
struct vow__lot *vow__lot_for(struct vow__book *b,
                              const vow_permit_request *ask);
void vow__lot_free(struct vow__book *b, struct vow__lot *lot);
/* Before a step on it, and behind: then it may be gone. */
void vow__lot_reap(struct vow__book *b, struct vow__lot *lot);
void vow__lot_rest(struct vow__book *b, struct vow__lot *lot);

/* ---- book_place.c ------------------------------------------------------- */

int vow__lot_grant(struct vow__book *b, struct vow__lot *lot,
                   const struct vow__spot *me);
void vow__spot_free(struct vow__book *b, struct vow__spot *p);
/* An instance leaves: its places go. */
void vow__spots_leave(struct vow__book *b, struct vow__inst *inst);

#endif
