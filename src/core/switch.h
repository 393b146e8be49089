/* SPDX-License-Identifier: MIT */
/* switch.h - switching from a stack to another stack. See switch.c. */
#ifndef VOW_CORE_SWITCH_H
#define VOW_CORE_SWITCH_H

#include <stddef.h>
#if defined(__SANITIZE_ADDRESS__)
#define VOW__ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define VOW__TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VOW__ASAN 1
#elif __has_feature(thread_sanitizer)
#define VOW__TSAN 1
#endif
#endif

#if defined(VOW_SWITCH_UCONTEXT)
#include <ucontext.h>
#elif !defined(VOW__ASAN) && !defined(VOW__TSAN)
#define VOW__SWITCH_INLINE 1
#endif

/* The state of a stack not running. The assembly knows only the first word. */
struct vow__core_context {
    void *sp;
#ifdef VOW_SWITCH_UCONTEXT
    ucontext_t uc;
#endif
    void (*entry)(void *arg);
    void *arg;
    const void *stack; /* lowest address; NULL: a thread's own stack */
    size_t size;
    void *fake_stack;               /* ASan's */
    void *tsan;                     /* TSan's */
    unsigned valgrind;              /* Valgrind's id of the stack */
    struct vow__core_context *from; /* the context that switched to this */
};

/* Prepares the context of the running stack, which the first
 * vow__core_switch() from `c` leaves. */
void vow__core_context_here(struct vow__core_context *c);

/* Prepares a new stack of `size` bytes at `stack`. The first switch to `c`
 * calls entry(arg), which must not return. */
void vow__core_context_make(struct vow__core_context *c, void *stack,
                            size_t size, void (*entry)(void *arg), void *arg);
/* Unregisters a stack, left by vow__core_switch_last(), from TSan and
 * Valgrind. */
void vow__core_context_end(struct vow__core_context *c);

/* Tells ASan that the memory will no longer hold stacks. */
void vow__core_stack_unmapped(void *low, size_t size);

/* Leaves `from` and goes on where `to` was left. Inline if no sanitizer must be
 * told: each return on another stack than its call is mispredicted. */
#ifdef VOW__SWITCH_INLINE
void vow__core_switch_raw(void **save_sp, void *load_sp);
static inline void vow__core_switch(struct vow__core_context *from,
                                    struct vow__core_context *to)
{
    vow__core_switch_raw(&from->sp, to->sp);
}
#else
void vow__core_switch(struct vow__core_context *from,
                      struct vow__core_context *to);
#endif
/* Does the same for the last time: no switch goes back to `from`. */
void vow__core_switch_last(struct vow__core_context *from,
                           struct vow__core_context *to);

#endif
