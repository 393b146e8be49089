/* SPDX-License-Identifier: MIT */
/* switch.h - leaving one stack for another. See switch.c. */
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

/* Where a stack was left. The first word is all that the assembly knows. */
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
    unsigned valgrind;              /* its id of the stack */
    struct vow__core_context *from; /* who switched here, while arriving */
};

/* For the stack of whoever calls vow__core_switch() with it first. */
void vow__core_context_here(struct vow__core_context *c);

/* For a new stack of `size` bytes at `stack`: the first switch to it calls
 * entry(arg), which must not return. */
void vow__core_context_make(struct vow__core_context *c, void *stack,
                            size_t size, void (*entry)(void *arg), void *arg);
/* The stack is not used any more; it was left by a last switch. */
void vow__core_context_end(struct vow__core_context *c);

/* This memory will be something else than stacks. */
void vow__core_stack_unmapped(void *low, size_t size);

/* Leave `from`, go on where `to` was left. Inline where nobody has to be told:
 * each return on another stack than its call costs a wrong prediction. */
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
/* The same, and `from` is never come back to. */
void vow__core_switch_last(struct vow__core_context *from,
                           struct vow__core_context *to);

#endif
