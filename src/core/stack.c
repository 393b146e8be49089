/* SPDX-License-Identifier: MIT */
/* stack.c - stacks for fibers: mapped in slabs, guarded, reused, given back.
 *
 * WHY   A hundred thousand fibers must wait at once on a machine that allows
 *       65,530 mappings to a process, and an overflow must still hit a guard
 *       page. A mapping with a guard for each stack would need 200,000.
 * HOW   A slab is a mapping of many stacks:
 *
 *           | guard | stack 0 | guard | stack 1 | ...      growth: to the left
 *
 *       Linux 6.13 and later put a guard inside a mapping without splitting the
 *       mapping (MADV_GUARD_INSTALL): done once. On older kernels mprotect()
 *       splits the mapping, so guards rotate: only a running stack can
 *       overflow, and only one stack runs at a time. vow__core_stack_guard()
 *       arms the guard before each run. When guards_max are armed, the oldest
 *       guard is disarmed, and its mapping merges with the neighbours again.
 *       Below guards_max fibers, the cost is one mprotect() per stack and life.
 * INVARIANTS
 *   K1  the running stack is guarded, or `missing` was counted up
 *   K2  rotating: guards == length of armed <= guards_max
 * LIMITS  a frame larger than the guard (64 KiB) can jump over the guard.
 * THREADS  the loop's.
 */
#include "base/assert.h"
#include "core/stack_internal.h"
#include "core/switch.h"

#include <sys/mman.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum {
    GUARD_BYTES = 64 * 1024,
    STACK_SLAB_BYTES = 16 * 1024 * 1024,
    SLAB_STACKS = 64
};

struct vow__core_stack_slab {
    vow_link link;
    char *base;
    size_t bytes;
    uint32_t n;
    uint32_t used;
    int class_index;
    struct vow__core_stack stacks[];
};

static struct vow__core_stack_slab *stack_slab_new(struct vow__core_stacks *s,
                                                   int class_index);
static void stack_slab_free(struct vow__core_stacks *s,
                            struct vow__core_stack_slab *slab);
static void guards_install(struct vow__core_stacks *s,
                           struct vow__core_stack_slab *slab);
static void guard_disarm(struct vow__core_stacks *s,
                         struct vow__core_stack *stack);
static bool stack_slab_trim(struct vow__core_stack_slab *slab, bool all);
static void free_list_rebuild(struct vow__core_stacks *s);
static size_t stack_slab_size(uint32_t n);

void vow__core_stacks_init(struct vow__core_stacks *s,
                           const struct vow_alloc *alloc, uint32_t guards_max,
                           bool rotate)
{
    VOW__ASSERT(guards_max > 0);
    *s = (struct vow__core_stacks){
        .alloc = *alloc, .guards_max = guards_max, .rotating = rotate};
}

void vow__core_stacks_fini(struct vow__core_stacks *s)
{
    while (s->slabs != NULL)
        stack_slab_free(
            s, VOW__OUTER(s->slabs, struct vow__core_stack_slab, link));
}

int vow__core_stack_class(size_t size)
{
    for (int i = 0; i < VOW__STACK_CLASSES; i++)
        if (size <= (size_t)1 << (VOW__STACK_SHIFT + i))
            return i;
    return -1;
}

size_t vow__core_stack_size(const struct vow__core_stack *stack)
{
    return (size_t)1 << (VOW__STACK_SHIFT + stack->slab->class_index);
}

struct vow__core_stack *vow__core_stack_take(struct vow__core_stacks *s,
                                             int class_index)
{
    if (s->free[class_index] == NULL && stack_slab_new(s, class_index) == NULL)
        return NULL;
    struct vow__core_stack *stack = s->free[class_index];
    s->free[class_index] = stack->next_free;
    stack->in_use = true;
    stack->touched = true;
    stack->slab->used++;
    return stack;
}

void vow__core_stack_give(struct vow__core_stacks *s,
                          struct vow__core_stack *stack)
{
    int class_index = stack->slab->class_index;
    stack->in_use = false;
    stack->idle = false;
    stack->slab->used--;
    stack->next_free = s->free[class_index];
    s->free[class_index] = stack;
}

/* ---- guards -------------------------------------------------------------- */

void vow__core_stack_arm(struct vow__core_stacks *s,
                         struct vow__core_stack *stack)
{
    char *guard = stack->low - GUARD_BYTES;
    if (s->guards >= s->guards_max) /* keeps K2 */
        guard_disarm(s, VOW__OUTER(s->armed, struct vow__core_stack, in_armed));
    while (mprotect(guard, GUARD_BYTES, PROT_NONE) < 0) {
        if (s->armed == NULL) {
            s->missing++; /* K1 */
            return;
        }
        guard_disarm(s, VOW__OUTER(s->armed, struct vow__core_stack, in_armed));
    }
    stack->guarded = true;
    vow__list_push(&s->armed, &stack->in_armed);
    s->guards++;
}

static void guard_disarm(struct vow__core_stacks *s,
                         struct vow__core_stack *stack)
{
    (void)mprotect(stack->low - GUARD_BYTES, GUARD_BYTES,
                   PROT_READ | PROT_WRITE);
    stack->guarded = false;
    vow__list_remove(&s->armed, &stack->in_armed);
    s->guards--;
}

/* Installs guards inside the mapping, or sets `rotating` if the kernel has
 * none. */
static void guards_install(struct vow__core_stacks *s,
                           struct vow__core_stack_slab *slab)
{
    for (uint32_t i = 0; i < slab->n && !s->rotating; i++) {
        struct vow__core_stack *stack = &slab->stacks[i];
        if (madvise(stack->low - GUARD_BYTES, GUARD_BYTES,
                    MADV_GUARD_INSTALL) == 0)
            stack->guarded = true;
        else
            s->rotating = true;
    }
}

/* ---- slabs --------------------------------------------------------------- */

static struct vow__core_stack_slab *stack_slab_new(struct vow__core_stacks *s,
                                                   int class_index)
{
    size_t size = (size_t)1 << (VOW__STACK_SHIFT + class_index);
    size_t stride = size + GUARD_BYTES;
    uint32_t n = (uint32_t)(STACK_SLAB_BYTES / stride);
    n = n == 0 ? 1 : n > SLAB_STACKS ? SLAB_STACKS : n;
    struct vow__core_stack_slab *slab =
        vow__mem_zero(&s->alloc, stack_slab_size(n));
    if (slab == NULL)
        return NULL;
    slab->bytes = n * stride;
    slab->base = mmap(NULL, slab->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slab->base == MAP_FAILED) {
        vow__mem_free(&s->alloc, slab, stack_slab_size(n));
        return NULL;
    }
    /* Huge pages would cost 2 MiB for each stack. */
    (void)madvise(slab->base, slab->bytes, MADV_NOHUGEPAGE);
    slab->n = n;
    slab->class_index = class_index;
    for (uint32_t i = n; i-- > 0;) {
        struct vow__core_stack *stack = &slab->stacks[i];
        stack->slab = slab;
        stack->low = slab->base + i * stride + GUARD_BYTES;
        stack->next_free = s->free[class_index];
        s->free[class_index] = stack;
    }
    guards_install(s, slab);
    vow__list_push(&s->slabs, &slab->link);
    s->mapped += n;
    return slab;
}

static void stack_slab_free(struct vow__core_stacks *s,
                            struct vow__core_stack_slab *slab)
{
    for (uint32_t i = 0; i < slab->n; i++) {
        if (s->rotating && slab->stacks[i].guarded &&
            slab->stacks[i].in_armed.prev != NULL) {
            vow__list_remove(&s->armed, &slab->stacks[i].in_armed);
            s->guards--;
        }
    }
    vow__core_stack_unmapped(slab->base, slab->bytes);
    (void)munmap(slab->base, slab->bytes);
    vow__list_remove(&s->slabs, &slab->link);
    s->mapped -= slab->n;
    vow__mem_free(&s->alloc, slab, stack_slab_size(slab->n));
}

bool vow__core_stacks_trim(struct vow__core_stacks *s, bool all)
{
    bool more = false;
    bool unmapped = false;
    vow_link *l = s->slabs;
    while (l != NULL) {
        struct vow__core_stack_slab *slab =
            VOW__OUTER(l, struct vow__core_stack_slab, link);
        l = l->next;
        bool left = stack_slab_trim(slab, all);
        more |= left;
        if (slab->used == 0 && !left) {
            stack_slab_free(s, slab);
            unmapped = true;
        }
    }
    if (unmapped)
        free_list_rebuild(s);
    return more;
}

/* Gives the pages of free stacks back. Returns whether pages are left for the
 * next call. */
static bool stack_slab_trim(struct vow__core_stack_slab *slab, bool all)
{
    bool more = false;
    for (uint32_t i = 0; i < slab->n; i++) {
        struct vow__core_stack *stack = &slab->stacks[i];
        if (stack->in_use)
            continue;
        if (stack->touched && (all || stack->idle)) {
            (void)madvise(stack->low, vow__core_stack_size(stack),
                          MADV_DONTNEED);
            stack->touched = false;
        }
        more |= stack->touched;
        stack->idle = true;
    }
    return more;
}

static void free_list_rebuild(struct vow__core_stacks *s)
{
    for (int i = 0; i < VOW__STACK_CLASSES; i++)
        s->free[i] = NULL;
    for (vow_link *l = s->slabs; l != NULL; l = l->next) {
        struct vow__core_stack_slab *slab =
            VOW__OUTER(l, struct vow__core_stack_slab, link);
        for (uint32_t i = slab->n; i-- > 0;) {
            if (slab->stacks[i].in_use)
                continue;
            slab->stacks[i].next_free = s->free[slab->class_index];
            s->free[slab->class_index] = &slab->stacks[i];
        }
    }
}

static size_t stack_slab_size(uint32_t n)
{
    return sizeof(struct vow__core_stack_slab) +
           n * sizeof(struct vow__core_stack);
}
