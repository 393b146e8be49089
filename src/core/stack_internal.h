/* SPDX-License-Identifier: MIT */
/* stack_internal.h - stacks for fibers, guarded and reused. See stack.c. */
#ifndef VOW_CORE_STACK_INTERNAL_H
#define VOW_CORE_STACK_INTERNAL_H

#include "base/alloc.h"
#include "base/list.h"

enum {
    VOW__STACK_CLASSES = 17, /* 16 KiB to 1 GiB by powers of two */
    VOW__STACK_SHIFT = 14
};

struct vow__core_stack {
    struct vow__core_stack *next_free;
    struct vow__core_stack_slab *slab;
    char *low;         /* lowest usable address; the guard lies below */
    vow_link in_armed; /* in `armed` of the stacks, if rotating */
    bool guarded;
    bool in_use;
    bool touched; /* was used since its pages were given back */
    bool idle;    /* was free at the last trim already */
};

struct vow__core_stacks {
    struct vow_alloc alloc;
    struct vow__core_stack *free[VOW__STACK_CLASSES];
    vow_link *slabs; /* of every class */
    size_t mapped;   /* stacks, in use or free */
    bool rotating;   /* guards by mprotect(), at most guards_max at a time */
    uint32_t guards_max;
    uint32_t guards; /* armed guards, if rotating */
    size_t missing;  /* how often a guard could not be armed */
    vow_link *armed; /* stacks with an armed guard, oldest first, if rotating */
};

/* With `rotate`, guards are set by mprotect(), as on kernels before 6.13. */
void vow__core_stacks_init(struct vow__core_stacks *s,
                           const struct vow_alloc *alloc, uint32_t guards_max,
                           bool rotate);
/* Unmaps everything. */
void vow__core_stacks_fini(struct vow__core_stacks *s);

/* Returns the smallest class with `size` bytes; -1: there is none. */
int vow__core_stack_class(size_t size);
size_t vow__core_stack_size(const struct vow__core_stack *stack);

/* Returns a stack of the class, or NULL without memory. */
struct vow__core_stack *vow__core_stack_take(struct vow__core_stacks *s,
                                             int class_index);
void vow__core_stack_give(struct vow__core_stacks *s,
                          struct vow__core_stack *stack);

/* Arm the guard page of a stack; to be called before a switch to the stack. */
void vow__core_stack_arm(struct vow__core_stacks *s,
                         struct vow__core_stack *stack);
static inline void vow__core_stack_guard(struct vow__core_stacks *s,
                                         struct vow__core_stack *stack)
{
    if (!stack->guarded)
        vow__core_stack_arm(s, stack);
}

/* Gives the memory of free stacks back: of all, or of stacks that were free at
 * the last call already. Returns whether memory is left for the next call. */
bool vow__core_stacks_trim(struct vow__core_stacks *s, bool all);

#endif
