/* SPDX-License-Identifier: MIT */
/* etcd_names.h - what the steps on names share. */
#ifndef VOW_STORE_ETCD_NAMES_H
#define VOW_STORE_ETCD_NAMES_H

#include "base/table.h"
#include "store/etcd/etcd_internal.h"

enum {
    VOW__ETCD_INLINE_MAX = 16 * 1024, /* of a value within the record */
    VOW__GAVE_UP_MS = 60000           /* how long that is remembered */
};
/* A larger one is not believed: it would use up the numbers. */
#define VOW__EPOCH_MAX (UINT64_MAX / 4)
/* A longer lease is this one: a hundred years. */
#define VOW__LEASE_MS_MAX (UINT64_C(100) * 366 * 24 * 3600 * 1000)

/* ---- etcd_judge.c: what becomes of it ------------------------------------ */

enum vow__act {
    VOW__ACT_OWN,     /* there is nothing, or nothing that counts */
    VOW__ACT_RENEW,   /* it is the asker's */
    VOW__ACT_REPLACE, /* its owner is lost */
    VOW__ACT_GIVE_UP, /* too many were */
    VOW__ACT_WAIT,
    VOW__ACT_SETTLED,
    VOW__ACT_DOUBT,
    VOW__ACT_LOST
};
enum vow__act vow__judge_claim(const struct vow__er *er,
                               const vow_claim_request *ask);
enum vow__act vow__judge_pulse(const struct vow__er *er,
                               const vow_token *token);

struct vow__verdict {
    uint32_t status;
    bool effect; /* it takes effect now */
};
struct vow__verdict vow__judge_commit(const struct vow__er *er,
                                      const vow_commit_request *ask);
bool vow__er_held(const struct vow__er *er, const vow_hold *hold);
bool vow__er_of(const struct vow__er *er, const vow_token *token);

/* ---- etcd_near.c: names that this instance has to do with ---------------- */

struct vow__near {
    struct vow__table_node named;
    vow_link link; /* of all, the longest untouched first */
    vow_name name;
    struct vow__etcd_news *news;
    uint64_t touched_ns;
    unsigned pins;   /* by the step that runs */
    uint64_t missed; /* revision of a change that came meanwhile; 0: none */

    /* It waits: changes after this revision are told, and a hidden result that
     * came after it may be read. 0: it does not. */
    uint64_t since;
    uint64_t heard;   /* changes up to this revision are known */
    vow_token waiter; /* who waits, or has read the hidden result */
    bool gift;        /* there is a hidden result for it */
    bool read;        /* which was given to `waiter` */
    uint64_t seat;    /* mod of w/H/INST; 0: it is not there */
    vow_link soon;    /* to be told to ask again, if `telling` */
    bool telling;

    /* It owns. NULL: it does not, or did. */
    struct vow__er *own;
    bool sure;             /* as far as the watch has told */
    uint64_t due_ns;       /* when this process ends n/H/a */
    uint64_t confirmed_ns; /* when etcd last said so */

    vow_link *ghosts; /* it is not freed while there is one */
};

struct vow__etcd_news {
    struct vow__etcd *etcd;
    struct vow_alloc alloc;
    struct vow__table nears;
    vow_link *all;
    struct vow__watch *watch; /* NULL: not yet */
    uint64_t watched;         /* from behind this revision on */
    vow_link *soon;
    vow_call tell;
    /* As of the last answers: */
    uint64_t revision;
    uint64_t offset, offset_mod;
    char runner[VOW_LABEL_MAX + 1]; /* of the last claim */
    void (*left)(struct vow__etcd *e);
    vow_link *ghosts;
    void (*ghosts_left)(void *news);
    bool littered; /* something may hang on leases that is not known */
    /* Leases that are used for longer than they are asked for: */
    struct vow__hook {
        uint64_t ms;
        int64_t lease;
        uint64_t used_ns;
    } keep, wait;
};

struct vow__near *vow__near_find(struct vow__etcd_news *n,
                                 const vow_name *name);
/* For a step: what the watch tells of it meanwhile is put aside. NULL without
 * memory. */
struct vow__near *vow__near_pin(struct vow__etcd_news *n, const vow_name *name);
/* It may be gone then. */
void vow__near_unpin(struct vow__near *near);
/* It waits as of this revision; w/H/INST is of `seat`. */
void vow__near_wait(struct vow__near *near, const vow_token *token,
                    uint64_t revision, uint64_t seat);
void vow__near_leave(struct vow__near *near);
/* It owns what `er` says, asked for at this time. */
void vow__near_own(struct vow__near *near, const struct vow__er *er,
                   uint64_t begun_ns);
/* It has pulsed: n/H/a is to live for its lease from then on. */
void vow__near_renew(struct vow__near *near, uint64_t begun_ns);
void vow__near_disown(struct vow__near *near);
/* Since which revision a claim of this token may read hidden results. */
uint64_t vow__near_since(const struct vow__near *near,
                         const vow_claim_request *ask);
/* Let it ask again, later. */
void vow__near_tell_soon(struct vow__near *near);
void vow__near_free(struct vow__near *near);
void vow__near_free_idle(struct vow__near *near);
/* w/H/INST */
struct vow__key vow__key_seat(struct vow__etcd *e, const vow_name *name);
/* v/H/EPOCH */
struct vow__key vow__key_value(const vow_name *name, uint64_t epoch);
/* v/H/g/EPOCH */
struct vow__key vow__key_gift(const vow_name *name, uint64_t epoch);

/* ---- etcd_ghost.c: what had no answer and was not repeated --------------- */

/* A claim that wrote this had no answer. What was made by it is nobody's, if
 * its epoch is above `told`. */
void vow__ghost_claim(struct vow__etcd *e, const struct vow__er *made,
                      uint64_t told);
/* So had the pulse of an owner. */
void vow__ghost_pulse(struct vow__etcd *e, const vow_hold *hold,
                      uint64_t lease_ms);
/* Is this record that of a ghost? Then it is nobody's. */
bool vow__ghost_has(const struct vow__near *near, const struct vow__er *er);
/* Somebody is told that it owns this. */
void vow__ghost_owned(struct vow__near *near, const struct vow__er *er);
/* The store is closed: give back what can be, then go on. */
void vow__ghosts_leave(struct vow__etcd_news *n, void (*then)(void *news));
void vow__ghosts_close(struct vow__etcd_news *n);

/* ---- etcd_news.c --------------------------------------------------------- */

/* An answer that somebody will rely on was of this revision. */
void vow__news_watch(struct vow__etcd_news *n, uint64_t revision);
void vow__news_tell(void *news);

/* ---- etcd_trip.c: read, judge, write ------------------------------------- */

struct vow__trip;
struct vow__trip_ops {
    /* trip->er is known: end it, or write. */
    void (*judge)(struct vow__trip *t);
    /* What was written has taken effect. */
    void (*wrote)(struct vow__trip *t, const json_t *root);
    /* Its lane has ended: answer, and free. */
    void (*answer)(struct vow__trip *t, int code);
    /* More to read with the name, and what it was: may be NULL. */
    void (*ask)(struct vow__trip *t, struct vow__txn *txn, enum vow__branch b);
    int (*found)(struct vow__trip *t, const json_t *root, size_t first);
};

/* What is needed to hang keys on. */
struct vow__hang {
    uint64_t alive_ms; /* 0: none */
    bool keep;         /* the record of an owner */
    uint64_t keep_ms;  /* of its lease */
    bool wait;         /* w/H/INST */
    uint64_t once_ms;  /* of a result; 0: none */
};

struct vow__trip {
    const struct vow__trip_ops *ops;
    struct vow__etcd *etcd;
    struct vow__step_lane *lane; /* that it runs in */
    vow_name name;
    struct vow__near *near;
    struct vow__er er;   /* as it was found */
    struct vow__er next; /* as it is to be */
    uint64_t begun_ns;   /* when it was asked for */
    uint64_t sent_ns;    /* the last transaction */
    unsigned tries;
    bool unsure;  /* something was written and has no answer */
    size_t first; /* operations before what is read, if writing fails */
    struct vow__hang hang;
    int64_t alive, keep, wait, once; /* leases */
    size_t hanging;
    int hang_code;
    void (*hung)(struct vow__trip *t);
    struct vow__er *valued; /* whose value is being fetched */
    void (*got)(struct vow__trip *t);
};
/* `er` and the others are zero. False: it has ended for want of memory. */
bool vow__trip_begin(struct vow__trip *t);
void vow__trip_read(struct vow__trip *t);
/* The transaction is emptied; its else branch gets what reads the name. */
void vow__trip_write(struct vow__trip *t, struct vow__txn *txn);
void vow__trip_txn(struct vow__trip *t, struct vow__txn *ret_txn);
/* Have the leases of t->hang, then go on. */
void vow__trip_hang(struct vow__trip *t, void (*then)(struct vow__trip *t));
/* The value of a record that is kept elsewhere, then go on. */
void vow__trip_value(struct vow__trip *t, struct vow__er *er,
                     void (*then)(struct vow__trip *t));
void vow__trip_end(struct vow__trip *t, int code);
/* Frees what the trip has. */
void vow__trip_fini(struct vow__trip *t);

/* ---- etcd_own.c: becoming the owner, and staying it ---------------------- */

/* Make t->next the record, above this floor. `leaves`: w/H/INST goes. */
void vow__own_write(struct vow__trip *t, struct vow__txn *txn, uint64_t floor,
                    bool leaves);
/* It was written: t->er is what it is now. False: its epoch is not above the
 * floor, because etcd has begun anew; write it once more. */
bool vow__own_wrote(struct vow__trip *t, const json_t *root, uint64_t floor);
void vow__renew_write(struct vow__trip *t, struct vow__txn *txn,
                      uint64_t lease_ms, bool leaves);
void vow__renew_wrote(struct vow__trip *t, const json_t *root);
/* The next revision must be above this, with what is added to it. */
void vow__own_raise(struct vow__trip *t, struct vow__txn *txn, uint64_t above);

#endif
