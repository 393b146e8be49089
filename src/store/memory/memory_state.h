/* SPDX-License-Identifier: MIT */
/* memory_state.h - the records and pools of a memory store, as a state machine
 * without clock, thread and descriptor.
 *
 * memory.c gives the time and the lock, and delivers the events. The simulator
 * of the tests does the same on a virtual clock.
 */
#ifndef VOW_STORE_MEMORY_STATE_H
#define VOW_STORE_MEMORY_STATE_H

#include "base/alloc.h"
#include "vow/store.h"

struct vow__memory_state;
struct vow__memory_instance;

struct vow__memory_opts {
    struct vow_alloc alloc;
    bool pooled; /* false: every object by the allocator */
    bool exact;  /* no step comes twice and no event is lost: nothing is kept
                    for a repeat */
    uint64_t seed;
    uint64_t recheck_ms;
    size_t value_max;
};

/* VOW_ENOMEM. All instances must leave before the state is freed. */
int vow__memory_state_new(const struct vow__memory_opts *opts,
                          struct vow__memory_state **ret_state);
void vow__memory_state_free(struct vow__memory_state *m);

/* Adds an instance. wake(user) is called inside a step for each event of the
 * instance; wake must not begin a step. VOW_ENOMEM. */
int vow__memory_join(struct vow__memory_state *m, void (*wake)(void *user),
                     void *user, struct vow__memory_instance **ret_instance);
/* Removes an instance: registrations end, permits are released, owned names
 * stay owned until the lease ends; with `dead`, the leases end now. */
void vow__memory_leave(struct vow__memory_state *m,
                       struct vow__memory_instance *instance, uint64_t now_us,
                       bool dead);

/* Deletes some expired records, as every step does, and gives unused memory
 * back. Returns the time of the next expiry; UINT64_MAX: none. */
uint64_t vow__memory_tidy(struct vow__memory_state *m, uint64_t now_us);
/* Returns whether there is something to tidy, now or later. */
bool vow__memory_untidy(const struct vow__memory_state *m);

/* ---- steps -------------------------------------------------------------- */

/* The caller and the time. A time before the last one counts as the last. */
struct vow__memory_step {
    struct vow__memory_state *state;
    struct vow__memory_instance *instance;
    uint64_t now_us;
};

/* A record with its texts; the value is counted. */
struct vow__memory_answer {
    vow_record record;
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
};
void vow__memory_answer_fini(struct vow__memory_answer *a);

/* Records in one block, which the caller frees by the allocator of the state;
 * NULL: no records. */
struct vow__memory_records {
    vow_record *records;
    size_t n;
    size_t size; /* of the block */
};

/* As the steps of vow_store_ops. After an error nothing has changed, and *out
 * is not written: VOW_ENOMEM, VOW_EINVAL, VOW_E2BIG, VOW_ENOENT. */
int vow__memory_claim(const struct vow__memory_step *s,
                      const vow_claim_request *request,
                      struct vow__memory_answer *out);
int vow__memory_commit(const struct vow__memory_step *s,
                       const vow_commit_request *request,
                       struct vow__memory_answer *out);
/* `out` has room for n records, which get no texts. After VOW_ENOMEM some
 * leases may be renewed. */
int vow__memory_pulse(const struct vow__memory_step *s, const vow_hold *holds,
                      size_t n, uint64_t lease_ms, vow_record *out);
int vow__memory_forget(const struct vow__memory_step *s, const vow_name *name,
                       uint64_t epoch, struct vow__memory_answer *out);
int vow__memory_cancel(const struct vow__memory_step *s, const vow_name *name,
                       struct vow__memory_answer *out);
int vow__memory_write(const struct vow__memory_step *s, const vow_hold *hold,
                      uint64_t number, vow_bytes *chunk,
                      struct vow__memory_answer *out);
int vow__memory_peek(const struct vow__memory_step *s, const vow_name *names,
                     size_t n, struct vow__memory_records *out);
int vow__memory_list(const struct vow__memory_step *s,
                     struct vow__memory_records *out);

/* Some chunks, counted; the next read gets the rest. */
enum { VOW__MEMORY_CHUNKS_MAX = 64 };
struct vow__memory_chunks {
    size_t n;
    uint64_t next;
    vow_bytes *chunks[VOW__MEMORY_CHUNKS_MAX];
};
int vow__memory_read(const struct vow__memory_step *s, const vow_name *name,
                     uint64_t epoch, uint64_t from,
                     struct vow__memory_chunks *out);
void vow__memory_chunks_fini(struct vow__memory_chunks *c);

/* ---- events ------------------------------------------------------------- */

enum vow__memory_event_kind {
    VOW__MEMORY_NO_EVENT = 0,
    VOW__MEMORY_RECORD, /* vow_store_events.on_record, and so on */
    VOW__MEMORY_CHUNKS,
    VOW__MEMORY_CANCEL,
    VOW__MEMORY_PERMIT
};
struct vow__memory_event {
    enum vow__memory_event_kind kind;
    struct vow__memory_answer answer; /* RECORD; else only the name is set */
    vow_token token;                  /* PERMIT */
};

/* Takes the next event of s->instance; false: none. */
bool vow__memory_event_take(const struct vow__memory_step *s,
                            struct vow__memory_event *out);

/* ---- pools -------------------------------------------------------------- */

int vow__memory_acquire(const struct vow__memory_step *s,
                        const vow_permit_request *request,
                        vow_pool_permit *out);
void vow__memory_release(const struct vow__memory_step *s,
                         const vow_permit_hold *hold, vow_pool_permit *out);
/* `out` has room for n permits. */
int vow__memory_renew(const struct vow__memory_step *s,
                      const vow_permit_hold *holds, size_t n, uint64_t lease_ms,
                      vow_pool_permit *out);

struct vow__memory_pool_answer {
    vow_pool_info info;
    char label[VOW_LABEL_MAX + 1];
};
int vow__memory_limit(const struct vow__memory_step *s, const vow_name *name,
                      const vow_pool_limits *limits, const char *label,
                      struct vow__memory_pool_answer *out);
/* One block of *ret_size bytes, as of records. */
int vow__memory_pools(const struct vow__memory_step *s,
                      vow_pool_info **ret_infos, size_t *ret_n,
                      size_t *ret_size);

#endif
