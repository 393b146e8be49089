/* SPDX-License-Identifier: MIT */
/* book.h - what a store knows, as a state machine without clock, thread and
 * descriptor: records of names, and pools of places. See book.c, book_claim.c,
 * book_look.c and book_pool.c.
 *
 * A wrapper gives it the time, a lock if there are threads, and takes the
 * letters: what the book has to tell an instance. An instance is one who takes
 * part, as a process does.
 */
#ifndef VOW_STORE_BOOK_H
#define VOW_STORE_BOOK_H

#include "base/alloc.h"
#include "vow/store.h"

struct vow__book;
struct vow__inst;

struct vow__book_opts {
    struct vow_alloc alloc;
    bool pooled; /* false: every object by the allocator */
    bool sure;   /* a letter that was taken arrives, and no step comes twice:
                    nothing is kept for a second look */
    uint64_t seed;
    uint64_t recheck_ms;
    size_t value_max;
};

/* VOW_ENOMEM. The instances must have left before it is freed. */
int vow__book_new(const struct vow__book_opts *opts,
                  struct vow__book **ret_book);
void vow__book_free(struct vow__book *b);

/* Somebody takes part. wake(user) is called inside a step for each letter that
 * is put down for it; it must not begin a step. VOW_ENOMEM. */
int vow__book_join(struct vow__book *b, void (*wake)(void *user), void *user,
                   struct vow__inst **ret_inst);
/* It goes: what it waits for is forgotten, its places are given back. What it
 * owns stays until the lease ends; `dead`: that is now. */
void vow__book_leave(struct vow__book *b, struct vow__inst *inst,
                     uint64_t now_us, bool dead);

/* Throw away some of what is over, as every step does, and memory that was not
 * used since the last time. When there will be more of it; UINT64_MAX: never.
 * Untidy: some may be there now or later. */
uint64_t vow__book_tidy(struct vow__book *b, uint64_t now_us);
bool vow__book_untidy(const struct vow__book *b);

/* ---- steps -------------------------------------------------------------- */

/* Who asks, and when. Time that falls counts as standing. */
struct vow__step {
    struct vow__book *book;
    struct vow__inst *inst;
    uint64_t now_us;
};

/* A record with all that it points to; the value is counted. */
struct vow__answer {
    vow_record record;
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
};
void vow__answer_fini(struct vow__answer *a);

/* Many records in one block, which the caller frees by the book's allocator;
 * NULL if there are none. */
struct vow__sheet {
    vow_record *records;
    size_t n;
    size_t size; /* of the block */
};

/* As the ops of the same name in vow/store.h. On an error `out` is not written
 * and nothing has changed: VOW_ENOMEM, VOW_EINVAL, VOW_E2BIG, VOW_ENOENT. */
int vow__book_claim(const struct vow__step *s, const vow_claim_request *ask,
                    struct vow__answer *out);
int vow__book_commit(const struct vow__step *s, const vow_commit_request *ask,
                     struct vow__answer *out);
/* `out` has room for n; the records have no texts. Without memory, some may
 * have been renewed. */
int vow__book_pulse(const struct vow__step *s, const vow_hold *holds, size_t n,
                    uint64_t lease_ms, vow_record *out);
int vow__book_peek(const struct vow__step *s, const vow_name *names, size_t n,
                   struct vow__sheet *out);
int vow__book_list(const struct vow__step *s, struct vow__sheet *out);
void vow__book_forget(const struct vow__step *s, const vow_name *name,
                      uint64_t epoch, struct vow__answer *out);
void vow__book_cancel(const struct vow__step *s, const vow_name *name,
                      struct vow__answer *out);

int vow__book_write(const struct vow__step *s, const vow_hold *hold,
                    vow_bytes *chunk, struct vow__answer *out);
/* Some chunks, counted: the rest comes with the next read. */
enum { VOW__PAGE_MAX = 64 };
struct vow__page {
    size_t n;
    uint64_t next;
    vow_bytes *chunks[VOW__PAGE_MAX];
};
int vow__book_read(const struct vow__step *s, const vow_name *name,
                   uint64_t epoch, uint64_t from, struct vow__page *out);
void vow__page_fini(struct vow__page *page);

int vow__book_acquire(const struct vow__step *s, const vow_permit_request *ask,
                      vow_pool_permit *out);
void vow__book_release(const struct vow__step *s, const vow_permit_hold *hold,
                       vow_pool_permit *out);
void vow__book_renew(const struct vow__step *s, const vow_permit_hold *holds,
                     size_t n, uint64_t lease_ms, vow_pool_permit *out);

struct vow__pool_answer {
    vow_pool_info info;
    char label[VOW_LABEL_MAX + 1];
};
int vow__book_limit(const struct vow__step *s, const vow_name *pool,
                    const vow_pool_limits *limits, const char *label,
                    struct vow__pool_answer *out);
/* One block of *ret_size bytes, as of a sheet. */
int vow__book_pools(const struct vow__step *s, vow_pool_info **ret_infos,
                    size_t *ret_n, size_t *ret_size);

/* ---- letters ------------------------------------------------------------ */

enum vow__news_kind {
    VOW__NEWS_NONE = 0,
    VOW__NEWS_RECORD, /* vow_store_events.on_record and so on */
    VOW__NEWS_CHUNKS,
    VOW__NEWS_CANCEL,
    VOW__NEWS_PLACE
};
struct vow__news {
    enum vow__news_kind kind;
    struct vow__answer answer; /* of a record; else only its name is set */
    vow_token token;           /* of a place */
};

/* The next letter for s->inst; false when there is none. */
bool vow__book_mail(const struct vow__step *s, struct vow__news *out);

#endif
