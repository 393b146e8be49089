/* SPDX-License-Identifier: MIT */
/* switch.h - leaving one stack for another. See switch.c. */
#ifndef VOW_CORE_SWITCH_H
#define VOW_CORE_SWITCH_H

#include <stddef.h>
#ifdef VOW_SWITCH_UCONTEXT
#include <ucontext.h>
#endif

/* Where a stack was left. The first word is all that the assembly knows. */
struct vow__context {
    void *sp;
#ifdef VOW_SWITCH_UCONTEXT
    ucontext_t uc;
#endif
    void (*entry)(void *arg);
    void *arg;
    const void *stack; /* lowest address; NULL: a thread's own stack */
    size_t size;
    void *fake_stack;          /* ASan's */
    void *tsan;                /* TSan's */
    unsigned valgrind;         /* its id of the stack */
    struct vow__context *from; /* who switched here, while arriving */
};

/* For the stack the thread is on now. */
void vow__context_here(struct vow__context *c);
void vow__context_leave(struct vow__context *c);

/* For a new stack of `size` bytes at `stack`: the first switch to it calls
 * entry(arg), which must not return. */
void vow__context_make(struct vow__context *c, void *stack, size_t size,
                       void (*entry)(void *arg), void *arg);
/* The stack is not used any more; it was left by a last switch. */
void vow__context_end(struct vow__context *c);

/* Leave `from`, go on where `to` was left. */
void vow__switch(struct vow__context *from, struct vow__context *to);
/* The same, and `from` is never come back to. */
void vow__switch_last(struct vow__context *from, struct vow__context *to);

#endif
