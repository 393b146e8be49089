/* SPDX-License-Identifier: MIT */
/* file_pool.h - pools and permits as rows. See file_pool.c for the steps,
 * file_pool_row.c for the row of a pool, file_permit.c for the storage that the
 * rules of pools call. */
#ifndef VOW_STORE_FILE_POOL_H
#define VOW_STORE_FILE_POOL_H

#include "store/file/file_rows.h"
#include "store/rules/pool.h"

enum { FILE_CROWD_MAX = 64 };

struct vow__file_pool {
    bool there;
    vow_name id;
    vow_name law; /* the pool with the limits: itself, or the pool of keys */
    char label[VOW_LABEL_MAX + 1];
    int64_t next_us;        /* no lease in the pool ends before */
    int64_t uncounted;      /* see file_permit.c */
    struct rules_pool rule; /* limits are the limits of the law */
    struct rules_start starts[RULES_RATE_ENTRIES];
    uint32_t n_read; /* entries of the log in the file, and the newest */
    struct rules_start newest;
};

/* The row of a permit, with what no rule reads. */
struct vow__file_permit {
    struct rules_permit rule;
    unsigned char inst[FILE_ID];
    int64_t due_us; /* in an index, and never after the end of the lease */
};

/* Instances with permits of a pool, that live or have died. */
struct vow__file_crowd {
    size_t n_alive, n_dead;
    unsigned char alive[FILE_CROWD_MAX][FILE_ID];
    unsigned char dead[FILE_CROWD_MAX][FILE_ID];
};

/* A rule at work on a pool. */
struct vow__file_pool_use {
    struct vow__file *s;
    struct vow__file_pool *p;
    const struct vow__file_crowd *crowd; /* the dead are expired; or NULL */
    struct vow__file_permit mine, head, ended; /* rows that were read */
    bool known;       /* `mine` is as in the file; end_us 0: there is no row */
    bool head_known;  /* the same for `head` */
    size_t n_dropped; /* instances of crowd->dead without permits */
    struct rules_storage storage;
};

/* ---- file_permit.c ---------------------------------------------------- */

/* What the storage says of a step that only reads and would have to write. */
#define FILE_MUST_WRITE (1 << 22)

void vow__file_pool_use(struct vow__file_pool_use *u, struct vow__file *s,
                        struct vow__file_pool *p,
                        const struct vow__file_crowd *crowd);
/* Reads a permit into u->mine, for the rule. VOW_ENOENT. */
int vow__file_permit_find(struct vow__file_pool_use *u, const vow_token *token);
/* Looks at the instances with permits, FILE_CROWD_MAX of them. */
int vow__file_crowd_see(struct vow__file *s, const vow_name *pool,
                        struct vow__file_crowd *c);

/* ---- file_pool_row.c -------------------------------------------------- */

int vow__file_pool_find(struct vow__file *s, const vow_name *id,
                        struct vow__file_pool *p);
/* Finds the pool with the next greater id; the smallest with `behind` NULL. */
int vow__file_pool_next(struct vow__file *s, const vow_name *behind,
                        struct vow__file_pool *p);
/* Makes a pool and reads it; `law` NULL: with these limits of its own. */
int vow__file_pool_make(struct vow__file *s, const vow_name *id,
                        const vow_name *law, const vow_pool_limits *limits,
                        const char *label, struct vow__file_pool *p);
/* Writes limits and label of a pool; "" keeps the label. */
int vow__file_pool_limits(struct vow__file *s, const vow_name *id,
                          const vow_pool_limits *limits, const char *label);
/* Writes all else, or removes the pool of a key that nobody needs. */
int vow__file_pool_put(struct vow__file *s, const struct vow__file_pool *p);

#endif
