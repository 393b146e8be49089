/* SPDX-License-Identifier: MIT */
/* heap.h - an intrusive pairing heap, ordered by (key, seq).
 *
 * WHY   Timers need the earliest first, and removal from anywhere when
 *       something is canceled, without memory: an array heap would allocate.
 * HOW   Each node has its first child, and its siblings in a doubly linked
 *       list; the prev of the first sibling is the parent. Equal keys leave
 *       in the order of their seq, which the caller hands out.
 * LIMITS  insert O(1); take and remove O(log n) amortised; no recursion.
 */
#ifndef VOW_BASE_HEAP_H
#define VOW_BASE_HEAP_H

#include "vow/common.h"

struct vow__heap_node {
    struct vow__heap_node *child, *next, *prev;
    uint64_t key;
    uint64_t seq;
};

static inline bool vow__heap_before(const struct vow__heap_node *a,
                                    const struct vow__heap_node *b)
{
    return a->key < b->key || (a->key == b->key && a->seq < b->seq);
}

/* Both are roots without siblings; either may be NULL. */
static inline struct vow__heap_node *vow__heap_meld(struct vow__heap_node *a,
                                                    struct vow__heap_node *b)
{
    if (a == NULL)
        return b;
    if (b == NULL)
        return a;
    if (vow__heap_before(b, a)) {
        struct vow__heap_node *swap = a;
        a = b;
        b = swap;
    }
    b->prev = a;
    b->next = a->child;
    if (a->child != NULL)
        a->child->prev = b;
    a->child = b;
    return a;
}

static inline void vow__heap_insert(struct vow__heap_node **root,
                                    struct vow__heap_node *n)
{
    n->child = NULL;
    n->next = NULL;
    n->prev = NULL;
    *root = vow__heap_meld(*root, n);
}

/* Meld a list of siblings into one heap: pairs from the left, then all pairs
 * from the right. `done` is chained through prev. */
static inline struct vow__heap_node *
vow__heap_gather(struct vow__heap_node *list)
{
    struct vow__heap_node *done = NULL;
    while (list != NULL) {
        struct vow__heap_node *a = list;
        struct vow__heap_node *b = a->next;
        list = b == NULL ? NULL : b->next;
        a->next = NULL;
        if (b != NULL)
            b->next = NULL;
        a = vow__heap_meld(a, b);
        a->prev = done;
        done = a;
    }
    struct vow__heap_node *root = NULL;
    while (done != NULL) {
        struct vow__heap_node *rest = done->prev;
        done->prev = NULL;
        root = vow__heap_meld(root, done);
        done = rest;
    }
    return root;
}

static inline void vow__heap_remove(struct vow__heap_node **root,
                                    struct vow__heap_node *n)
{
    if (*root == n) {
        *root = vow__heap_gather(n->child);
    } else {
        if (n->prev->child == n)
            n->prev->child = n->next;
        else
            n->prev->next = n->next;
        if (n->next != NULL)
            n->next->prev = n->prev;
        *root = vow__heap_meld(*root, vow__heap_gather(n->child));
    }
    n->child = NULL;
    n->next = NULL;
    n->prev = NULL;
}

#endif
