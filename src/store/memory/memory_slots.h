/* SPDX-License-Identifier: MIT */
/* memory_slots.h - records, the results left for waiters, and registrations.
 *
 * INVARIANTS  vow__memory_slot_check() runs S1, S2, S3 and S6 in debug builds
 *   S1  a slot is in `names`, or is `aside` and in `left`; only a spent slot is
 *       aside
 *   S2  a spent slot has a reader with an event on the way, or is `kept`
 *   S3  a slot with an owner runs or refreshes
 *   S4  a wait with a slot is in the list of the slot. Without a slot, or if
 *       the slot is spent, an event is on the way; else the wait is registered
 *   S5  epochs and fences come from one counter
 *   S6  the place of a slot in `ends` is not after the expiry of the slot
 */
#ifndef VOW_STORE_MEMORY_SLOTS_H
#define VOW_STORE_MEMORY_SLOTS_H

#include "store/memory/memory_internal.h"
#include "store/rules/rules.h"

struct vow__memory_slot {
    struct vow__slab *slab;
    struct vow__table_node node;
    struct {
        vow_name name;
        uint64_t first; /* of a result aside */
    } key;
    struct rules_record record;
    uint64_t expires_us;
    bool aside; /* a result left; the name has another record */
    bool kept;  /* spent: stays until the expiry, also without readers */
    bool ends;  /* in state->ends */
    uint32_t n_waits;
    vow_link *waits;
    struct vow__memory_instance *owner; /* or refresher; NULL: has left */
    vow_link in_owned;
    struct vow__heap_node by_end;
    vow_bytes *value;
    struct vow__memory_text *label;
    struct vow__memory_text *runner;
    struct vow__memory_text *refresher; /* runner of record.refresh */
    vow_bytes **chunks;                 /* n_chunks of them */
    uint32_t n_chunks;
    uint32_t chunks_room;
    struct vow__memory_sent cancel;
};

struct vow__memory_wait {
    struct vow__slab *slab;
    struct vow__table_node node;
    struct {
        vow_name name;
        struct vow__memory_instance *instance;
    } key;
    struct vow__memory_slot *slot; /* NULL: woken, claim again */
    vow_link in_slot;
    vow_link in_instance;
    struct vow__memory_sent sent;
};

/* The runner of what a step sees: `r` is the record as of now, or the run of
 * the refresher. */
static inline struct vow__memory_text *
vow__memory_runner_of(const struct vow__memory_slot *slot,
                      const struct rules_record *r)
{
    return r->state == RULES_RUNNING && slot->record.state == RULES_DONE
               ? slot->refresher
               : slot->runner;
}

void vow__memory_slot_check(const struct vow__memory_slot *slot);

/* The slot of a name, or of a result left for the claims that waited for the
 * run `waited`; NULL: none. Deletes a slot that has expired. */
struct vow__memory_slot *vow__memory_slot_find(struct vow__memory_state *m,
                                               const vow_name *name);
struct vow__memory_slot *
vow__memory_slot_find_left(struct vow__memory_state *m,
                           struct vow__memory_slot *slot, const vow_name *name,
                           uint64_t waited);

/* What a request brings to a record. */
struct vow__memory_input {
    bool claim;
    const char *label;
    const char *runner; /* of a claim; the text is in the instance */
    vow_bytes *bytes;   /* the value, or the chunk */
};
/* Carries out a decision about the name, whose slot is *slot or NULL; the only
 * writer of records. *slot is the slot of the name afterwards. VOW_ENOMEM:
 * nothing has changed. */
int vow__memory_apply(const struct vow__memory_step *s, const vow_name *name,
                      const struct decision *d,
                      const struct vow__memory_input *input,
                      struct vow__memory_slot **slot);
/* Deletes a slot, or corrects the place of the slot in `ends`. */
void vow__memory_slot_reap(struct vow__memory_state *m,
                           struct vow__memory_slot *slot);
/* Deletes a slot: the waiters are told to claim again. */
void vow__memory_slot_free(struct vow__memory_state *m,
                           struct vow__memory_slot *slot);
/* The lease of the owner ends now; the waiters are told. */
void vow__memory_slot_lapse(struct vow__memory_state *m,
                            struct vow__memory_slot *slot);

void vow__memory_wait_free(struct vow__memory_state *m,
                           struct vow__memory_wait *w);
/* Fills an event of a wait; the wait ends if it was woken. */
void vow__memory_wait_read(struct vow__memory_state *m,
                           struct vow__memory_wait *w,
                           enum vow__memory_event_kind kind,
                           struct vow__memory_answer *out);

/* Fills the answer of a step: the record of `d`, or the result left in
 * `slot`; and without texts and value. `slot` may be NULL. */
void vow__memory_answer_fill(const struct vow__memory_state *m,
                             const struct vow__memory_slot *slot,
                             const struct decision *d, const vow_name *name,
                             struct vow__memory_answer *out);
void vow__memory_decided_fill(const struct vow__memory_state *m,
                              const struct vow__memory_slot *slot,
                              const struct decision *d, const vow_name *name,
                              vow_record *out);
/* Fills a record without status, texts and value; `r` NULL: only the name. */
void vow__memory_record_fill(const struct vow__memory_state *m,
                             const struct rules_record *r, const vow_name *name,
                             vow_record *out);

#endif
