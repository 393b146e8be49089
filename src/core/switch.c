/* SPDX-License-Identifier: MIT */
/* switch.c - switching stacks: the only C file that knows stack pointers, and
 * the only file that tells ASan, TSan and Valgrind about stacks.
 *
 * HOW   vow__core_switch_raw() (switch_x86_64.S, switch_aarch64.S) pushes the
 *       callee-saved registers of the ABI, stores the stack pointer, loads the
 *       other stack pointer and pops. A new stack is laid out as if left by
 *       vow__core_switch_raw(), with vow__core_switch_start() as the return
 *       address. On other machines, or with VOW_SWITCH_UCONTEXT, swapcontext()
 *       does the same, with a system call for the signal mask.
 * THREADS  the loop's thread runs all stacks of the loop.
 */
#include "core/switch.h"
#include "base/assert.h"

#include <stdint.h>
#include <string.h>

#ifdef VOW__ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef VOW__TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef VALGRIND_STACK_REGISTER
#define VALGRIND_STACK_REGISTER(start, end) 0u
#define VALGRIND_STACK_DEREGISTER(id) ((void)(id))
#endif

static void switch_leave(struct vow__core_context *from,
                         struct vow__core_context *to, int last);
static void switch_arrive(struct vow__core_context *c);
void vow__core_switch_enter(struct vow__core_context *c);

#ifndef VOW_SWITCH_UCONTEXT
#ifndef VOW__SWITCH_INLINE
void vow__core_switch_raw(void **save_sp, void *load_sp);
#endif
void vow__core_switch_start(void);
#endif

void vow__core_context_here(struct vow__core_context *c)
{
    memset(c, 0, sizeof(*c));
}

/* ---- making a stack ready ------------------------------------------------ */

#if defined(VOW_SWITCH_UCONTEXT)

/* makecontext() passes ints only: the pointer goes in two halves. */
static void ucontext_start(unsigned high, unsigned low)
{
    uintptr_t bits = ((uintptr_t)high << 16 << 16) | low;
    vow__core_switch_enter((struct vow__core_context *)bits);
}

static void stack_lay_out(struct vow__core_context *c, void *stack, size_t size)
{
    uintptr_t bits = (uintptr_t)c;
    (void)getcontext(&c->uc);
    c->uc.uc_stack.ss_sp = stack;
    c->uc.uc_stack.ss_size = size;
    c->uc.uc_link = NULL;
    makecontext(&c->uc, (void (*)(void))ucontext_start, 2,
                (unsigned)(bits >> 16 >> 16), (unsigned)bits);
}

static void switch_raw(struct vow__core_context *from,
                       struct vow__core_context *to)
{
    (void)swapcontext(&from->uc, &to->uc);
}

#elif defined(__x86_64__)

/* Lays the stack out as vow__core_switch_raw() does: control words, r15 r14 r13
 * r12 rbx rbp, return address. r12 carries the context to
 * vow__core_switch_start(). */
static void stack_lay_out(struct vow__core_context *c, void *stack, size_t size)
{
    uintptr_t top = ((uintptr_t)stack + size) & ~(uintptr_t)15;
    uint64_t *sp = (uint64_t *)top - 10;
    uint32_t mxcsr;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(x87));
    memset(sp, 0, 10 * sizeof(*sp));
    sp[0] = mxcsr | (uint64_t)x87 << 32;
    sp[4] = (uint64_t)(uintptr_t)c;
    sp[7] = (uint64_t)(uintptr_t)vow__core_switch_start;
    c->sp = sp;
}

#elif defined(__aarch64__)

/* Lays the stack out as vow__core_switch_raw() does: d8-d15, x19-x28, fp, lr,
 * fpcr. x19 carries the context to vow__core_switch_start(). */
static void stack_lay_out(struct vow__core_context *c, void *stack, size_t size)
{
    uintptr_t top = ((uintptr_t)stack + size) & ~(uintptr_t)15;
    uint64_t *sp = (uint64_t *)top - 22;
    memset(sp, 0, 22 * sizeof(*sp));
    __asm__ volatile("mrs %0, fpcr" : "=r"(sp[20]));
    sp[8] = (uint64_t)(uintptr_t)c;
    sp[19] = (uint64_t)(uintptr_t)vow__core_switch_start;
    c->sp = sp;
}

#else
#error "no stack switch for this machine: configure with VOW_SWITCH=ucontext"
#endif

#ifndef VOW_SWITCH_UCONTEXT
static inline void switch_raw(struct vow__core_context *from,
                              struct vow__core_context *to)
{
    vow__core_switch_raw(&from->sp, to->sp);
}
#endif

void vow__core_context_make(struct vow__core_context *c, void *stack,
                            size_t size, void (*entry)(void *arg), void *arg)
{
    c->entry = entry;
    c->arg = arg;
    c->stack = stack;
    c->size = size;
    c->fake_stack = NULL;
#ifdef VOW__ASAN
    __asan_unpoison_memory_region(stack, size);
#endif
#ifdef VOW__TSAN
    c->tsan = __tsan_create_fiber(0);
#endif
    c->valgrind = VALGRIND_STACK_REGISTER((char *)stack, (char *)stack + size);
    stack_lay_out(c, stack, size);
}

void vow__core_context_end(struct vow__core_context *c)
{
#ifdef VOW__TSAN
    __tsan_destroy_fiber(c->tsan);
#endif
    VALGRIND_STACK_DEREGISTER(c->valgrind);
    (void)c;
}

void vow__core_stack_unmapped(void *low, size_t size)
{
#ifdef VOW__ASAN
    __asan_unpoison_memory_region(low, size);
#endif
    (void)low;
    (void)size;
}

/* ---- switching ----------------------------------------------------------- */

#ifndef VOW__SWITCH_INLINE
void vow__core_switch(struct vow__core_context *from,
                      struct vow__core_context *to)
{
    switch_leave(from, to, 0);
    switch_raw(from, to);
    switch_arrive(from);
}
#endif

void vow__core_switch_last(struct vow__core_context *from,
                           struct vow__core_context *to)
{
    switch_leave(from, to, 1);
    switch_raw(from, to);
    VOW__ASSERT(!"a switch went back to an ended stack");
}

/* Runs first on a new stack, called by the assembly. */
void vow__core_switch_enter(struct vow__core_context *c)
{
    switch_arrive(c);
    c->entry(c->arg);
    VOW__ASSERT(!"the entry of a stack returned");
}

static inline void switch_leave(struct vow__core_context *from,
                                struct vow__core_context *to, int last)
{
#ifdef VOW__ASAN
    to->from = from;
    __sanitizer_start_switch_fiber(last ? NULL : &from->fake_stack, to->stack,
                                   to->size);
#endif
#ifdef VOW__TSAN
    from->tsan = __tsan_get_current_fiber(); /* a loop may change its thread */
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
    (void)from;
    (void)to;
    (void)last;
}

static inline void switch_arrive(struct vow__core_context *c)
{
#ifdef VOW__ASAN
    /* ASan returns the thread's own stack, which the switch back needs. */
    const void *stack;
    size_t size;
    __sanitizer_finish_switch_fiber(c->fake_stack, &stack, &size);
    if (c->from->entry == NULL) { /* a loop may change its thread */
        c->from->stack = stack;
        c->from->size = size;
    }
#endif
    (void)c;
}
