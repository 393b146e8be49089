/* SPDX-License-Identifier: MIT */
/* table.h - an intrusive hash table of names. See table.c. */
#ifndef VOW_BASE_TABLE_H
#define VOW_BASE_TABLE_H

#include "base/alloc.h"
#include "vow/error.h"

struct vow__table_node {
    struct vow__table_node *next; /* in the slot */
    uint64_t hash;
    const char *name; /* the owner's; valid while in the table */
    size_t length;
};

struct vow__table {
    const struct vow_alloc *alloc;
    struct vow__table_node **slots; /* NULL: none yet */
    size_t room;                    /* slots, a power of two */
    size_t count;
    uint64_t seed[2];
    bool hashed; /* names are hashes or random: their beginning will do */
};

/* The seed keeps attackers from choosing names of the same slot. */
void vow__table_init(struct vow__table *t, const struct vow_alloc *alloc,
                     uint64_t seed);
/* For names that no attacker can choose: hashes, random tokens, of at least
 * eight bytes. */
void vow__table_init_hashed(struct vow__table *t, const struct vow_alloc *alloc,
                            uint64_t seed);
/* The nodes must be gone or never be looked at again. */
void vow__table_fini(struct vow__table *t);

/* NULL: not there. */
struct vow__table_node *vow__table_find(const struct vow__table *t,
                                        const char *name, size_t length);
/* Name and length are set, and not there yet. VOW_ENOMEM. */
int vow__table_add(struct vow__table *t, struct vow__table_node *n);
void vow__table_remove(struct vow__table *t, struct vow__table_node *n);
/* The name after `n`; NULL begins, and NULL is the end. A returned name may be
 * removed only after the call for the next name. */
struct vow__table_node *vow__table_next(const struct vow__table *t,
                                        const struct vow__table_node *n);

#endif
