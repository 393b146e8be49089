/* SPDX-License-Identifier: MIT */
/* cases.h - what a switch between stacks must keep, as functions that return
 * NULL, or what was wrong. They need core/switch.c and libc only, so that the
 * same cases run in the unit tests and alone, on other machines.
 *
 * Each case runs other stacks from the stack it was called on (`base`) and has
 * left them all for the last time when it returns.
 */
#ifndef TEST_SWITCH_CASES_H
#define TEST_SWITCH_CASES_H

#include "core/switch.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CASE_STRING_(x) #x
#define CASE_STRING(x) CASE_STRING_(x)
/* Remember the first thing that is wrong; also from another stack. */
#define EXPECT(fact)                                                           \
    do {                                                                       \
        if (!(fact) && case_wrong == NULL)                                     \
            case_wrong = "line " CASE_STRING(__LINE__) ": " #fact;             \
    } while (0)

enum { STACK_BYTES = 256 * 1024, ROUNDS = 100000, RING = 50 };

static const char *case_wrong;
static struct vow__core_context base;

/* One stack with what runs on it. */
struct side {
    struct vow__core_context context;
    char *stack;
    uint64_t count;
    struct side *next;
};

static void side_open(struct side *s, void (*entry)(void *arg))
{
    s->stack = malloc(STACK_BYTES);
    if (s->stack == NULL)
        abort();
    s->count = 0;
    vow__core_context_make(&s->context, s->stack, STACK_BYTES, entry, s);
}

static void side_close(struct side *s)
{
    vow__core_context_end(&s->context);
    free(s->stack);
}

static void go(struct side *s)
{
    vow__core_switch(&base, &s->context);
}

static void back(struct side *s)
{
    vow__core_switch(&s->context, &base);
}

static void back_for_ever(struct side *s)
{
    vow__core_switch_last(&s->context, &base);
}

static const char *begin(void)
{
    case_wrong = NULL;
    vow__core_context_here(&base);
    return NULL;
}

/* ---- there and back ----------------------------------------------------- */

static void count_rounds(void *arg)
{
    struct side *s = arg;
    for (uint64_t mine = 1; mine <= ROUNDS; mine++) {
        s->count++;
        EXPECT(s->count == mine);
        back(s);
    }
    back_for_ever(s);
}

static const char *two_stacks_take_turns(void)
{
    struct side s;
    (void)begin();
    side_open(&s, count_rounds);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        go(&s);
        EXPECT(s.count == i);
    }
    go(&s);
    side_close(&s);
    return case_wrong;
}

/* Hands on to the next without going by the base. */
static void hand_on(void *arg)
{
    struct side *s = arg;
    char mine[1000];
    memset(mine, (int)(intptr_t)s->stack & 0x7F, sizeof(mine));
    for (int i = 0; i < 100; i++) {
        s->count++;
        vow__core_switch(&s->context,
                         s->next == NULL ? &base : &s->next->context);
        for (size_t k = 0; k < sizeof(mine); k++)
            EXPECT(mine[k] == ((int)(intptr_t)s->stack & 0x7F));
    }
    back_for_ever(s);
}

static const char *ring_of_stacks_keeps_all_locals(void)
{
    static struct side ring[RING];
    (void)begin();
    for (int i = 0; i < RING; i++) {
        side_open(&ring[i], hand_on);
        ring[i].next = i + 1 < RING ? &ring[i + 1] : NULL;
    }
    for (int i = 0; i < 100; i++)
        go(&ring[0]); /* comes back from the last one */
    for (int i = 0; i < RING; i++) {
        EXPECT(ring[i].count == 100);
        go(&ring[i]);
        side_close(&ring[i]);
    }
    return case_wrong;
}

static void end_at_once(void *arg)
{
    struct side *s = arg;
    s->count++;
    back_for_ever(s);
}

static const char *stack_can_be_used_again_when_its_work_has_ended(void)
{
    struct side s;
    (void)begin();
    side_open(&s, end_at_once);
    for (uint64_t i = 1; i <= 10000; i++) {
        go(&s);
        EXPECT(s.count == i);
        vow__core_context_end(&s.context);
        vow__core_context_make(&s.context, s.stack, STACK_BYTES, end_at_once,
                               &s);
    }
    side_close(&s);
    return case_wrong;
}

/* ---- where the stack is ------------------------------------------------- */

static void look_at_stack(void *arg)
{
    struct side *s = arg;
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    char text[64];
    EXPECT(frame % 16 == 0);
    EXPECT(frame > (uintptr_t)s->stack);
    EXPECT(frame < (uintptr_t)s->stack + STACK_BYTES);
    EXPECT(frame > (uintptr_t)s->stack + STACK_BYTES - 2048); /* at its top */
    /* Doubles in a variable list are stored by aligned moves. */
    snprintf(text, sizeof(text), "%.2f %.1Lf", 1.25, 2.5L);
    EXPECT(strcmp(text, "1.25 2.5") == 0);
    back_for_ever(s);
}

static const char *stack_is_aligned_to_16_at_entry(void)
{
    (void)begin();
    for (size_t odd = 0; odd < 32; odd++) { /* whatever its end is */
        struct side s;
        side_open(&s, look_at_stack);
        vow__core_context_end(&s.context);
        vow__core_context_make(&s.context, s.stack, STACK_BYTES - odd,
                               look_at_stack, &s);
        go(&s);
        side_close(&s);
    }
    return case_wrong;
}

static uint64_t climb(struct side *s, unsigned depth)
{
    volatile uint64_t mine = depth * UINT64_C(0x9E3779B97F4A7C15);
    uint64_t above = 0;
    if (depth % 7 == 0)
        back(s);
    if (depth > 0)
        above = climb(s, depth - 1);
    if (depth % 5 == 0)
        back(s);
    EXPECT(mine == depth * UINT64_C(0x9E3779B97F4A7C15));
    return above + depth;
}

static void climb_and_return(void *arg)
{
    struct side *s = arg;
    s->count = climb(s, 400);
    back_for_ever(s);
}

static const char *deep_calls_may_leave_and_return_at_any_depth(void)
{
    struct side a;
    struct side b;
    (void)begin();
    side_open(&a, climb_and_return);
    side_open(&b, climb_and_return);
    for (int i = 0; i < 400 / 7 + 1 + 400 / 5 + 1; i++) {
        go(&a);
        go(&b);
    }
    go(&a);
    go(&b);
    EXPECT(a.count == 400 * 401 / 2);
    EXPECT(b.count == 400 * 401 / 2);
    side_close(&a);
    side_close(&b);
    return case_wrong;
}

/* ---- registers ---------------------------------------------------------- */

/* vow_test_switch_with() fills all registers that a function must keep from
 * `in`, switches, and stores in `out` what they are afterwards. */
enum { KEPT = 18 };
void vow_test_switch(struct vow__core_context *from,
                     struct vow__core_context *to);
void vow_test_switch_with(struct vow__core_context *from,
                          struct vow__core_context *to, const uint64_t *in,
                          uint64_t *out);

/* For the assembly, to which an inline function is unknown. */
__attribute__((noinline, used)) void
vow_test_switch(struct vow__core_context *from, struct vow__core_context *to)
{
    vow__core_switch(from, to);
}

/* clang-format off */
#if defined(__x86_64__)
enum { KEPT_HERE = 6 };
__asm__(
    ".text\n"
    ".globl vow_test_switch_with\n"
    ".hidden vow_test_switch_with\n"
    ".type vow_test_switch_with, @function\n"
    "vow_test_switch_with:\n"
    "    pushq %rbx\n    pushq %rbp\n    pushq %r12\n"
    "    pushq %r13\n    pushq %r14\n    pushq %r15\n"
    "    pushq %rcx\n"
    "    movq 0(%rdx), %rbx\n    movq 8(%rdx), %rbp\n"
    "    movq 16(%rdx), %r12\n   movq 24(%rdx), %r13\n"
    "    movq 32(%rdx), %r14\n   movq 40(%rdx), %r15\n"
    "    call vow_test_switch\n"
    "    popq %rcx\n"
    "    movq %rbx, 0(%rcx)\n    movq %rbp, 8(%rcx)\n"
    "    movq %r12, 16(%rcx)\n   movq %r13, 24(%rcx)\n"
    "    movq %r14, 32(%rcx)\n   movq %r15, 40(%rcx)\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n"
    "    popq %r12\n    popq %rbp\n    popq %rbx\n"
    "    ret\n"
    ".size vow_test_switch_with, . - vow_test_switch_with\n");
#elif defined(__aarch64__)
enum { KEPT_HERE = 18 };
__asm__(
    ".text\n"
    ".globl vow_test_switch_with\n"
    ".hidden vow_test_switch_with\n"
    ".type vow_test_switch_with, %function\n"
    "vow_test_switch_with:\n"
    "    stp x29, x30, [sp, #-176]!\n"
    "    stp x19, x20, [sp, #16]\n    stp x21, x22, [sp, #32]\n"
    "    stp x23, x24, [sp, #48]\n    stp x25, x26, [sp, #64]\n"
    "    stp x27, x28, [sp, #80]\n    stp d8, d9, [sp, #96]\n"
    "    stp d10, d11, [sp, #112]\n   stp d12, d13, [sp, #128]\n"
    "    stp d14, d15, [sp, #144]\n   str x3, [sp, #160]\n"
    "    ldp x19, x20, [x2, #0]\n     ldp x21, x22, [x2, #16]\n"
    "    ldp x23, x24, [x2, #32]\n    ldp x25, x26, [x2, #48]\n"
    "    ldp x27, x28, [x2, #64]\n    ldp d8, d9, [x2, #80]\n"
    "    ldp d10, d11, [x2, #96]\n    ldp d12, d13, [x2, #112]\n"
    "    ldp d14, d15, [x2, #128]\n"
    "    bl vow_test_switch\n"
    "    ldr x3, [sp, #160]\n"
    "    stp x19, x20, [x3, #0]\n     stp x21, x22, [x3, #16]\n"
    "    stp x23, x24, [x3, #32]\n    stp x25, x26, [x3, #48]\n"
    "    stp x27, x28, [x3, #64]\n    stp d8, d9, [x3, #80]\n"
    "    stp d10, d11, [x3, #96]\n    stp d12, d13, [x3, #112]\n"
    "    stp d14, d15, [x3, #128]\n"
    "    ldp x19, x20, [sp, #16]\n    ldp x21, x22, [sp, #32]\n"
    "    ldp x23, x24, [sp, #48]\n    ldp x25, x26, [sp, #64]\n"
    "    ldp x27, x28, [sp, #80]\n    ldp d8, d9, [sp, #96]\n"
    "    ldp d10, d11, [sp, #112]\n   ldp d12, d13, [sp, #128]\n"
    "    ldp d14, d15, [sp, #144]\n"
    "    ldp x29, x30, [sp], #176\n"
    "    ret\n"
    ".size vow_test_switch_with, . - vow_test_switch_with\n");
#else
enum { KEPT_HERE = 0 };
void vow_test_switch_with(struct vow__core_context *from, struct vow__core_context *to,
                          const uint64_t *in, uint64_t *out)
{
    (void)in;
    (void)out;
    vow__core_switch(from, to);
}
#endif
/* clang-format on */

static void fill(uint64_t *in, uint64_t with)
{
    for (uint64_t i = 0; i < KEPT; i++)
        in[i] = (with + i) * UINT64_C(0xD1342543DE82EF95);
}

static void fill_and_switch(void *arg)
{
    struct side *s = arg;
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t in[KEPT];
        uint64_t out[KEPT] = {0};
        fill(in, UINT64_C(1) << 40 | i);
        vow_test_switch_with(&s->context, &base, in, out);
        EXPECT(memcmp(in, out, KEPT_HERE * sizeof(in[0])) == 0);
    }
    back_for_ever(s);
}

static const char *registers_of_the_callee_survive(void)
{
    struct side s;
    (void)begin();
    side_open(&s, fill_and_switch);
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t in[KEPT];
        uint64_t out[KEPT] = {0};
        fill(in, i);
        vow_test_switch_with(&base, &s.context, in, out);
        EXPECT(memcmp(in, out, KEPT_HERE * sizeof(in[0])) == 0);
    }
    go(&s);
    side_close(&s);
    return case_wrong;
}

/* ---- rounding ----------------------------------------------------------- */

/* The control words, without libm. A mode is 0 nearest, 1 down, 2 up, 3 to
 * zero, as x86 counts; aarch64 has 1 and 2 the other way round. */
#if defined(__x86_64__)
static void set_rounding(unsigned mode)
{
    uint32_t sse;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(sse), "=m"(x87));
    sse = (sse & ~(UINT32_C(3) << 13)) | mode << 13;
    x87 = (uint16_t)((x87 & ~(3u << 10)) | mode << 10);
    __asm__ volatile("ldmxcsr %0; fldcw %1" : : "m"(sse), "m"(x87));
}

static unsigned get_rounding(void)
{
    uint32_t sse;
    uint16_t x87;
    __asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(sse), "=m"(x87));
    EXPECT((sse >> 13 & 3) == (unsigned)(x87 >> 10 & 3));
    return sse >> 13 & 3;
}
#elif defined(__aarch64__)
static void set_rounding(unsigned mode)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    mode = (mode >> 1 | mode << 1) & 3;
    fpcr = (fpcr & ~(UINT64_C(3) << 22)) | (uint64_t)mode << 22;
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr));
}

static unsigned get_rounding(void)
{
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    unsigned mode = fpcr >> 22 & 3;
    return (mode >> 1 | mode << 1) & 3;
}
#else
static unsigned rounding;
static void set_rounding(unsigned mode)
{
    rounding = mode;
}

static unsigned get_rounding(void)
{
    return rounding;
}
#endif

/* -1, 0, 1: how 1/10 - computed now - compares with the nearest to it. */
static int tenth_is(void)
{
    volatile double one = 1.0;
    volatile double ten = 10.0;
    volatile double tenth = one / ten;
    const double nearest = 0.1; /* above one tenth, as it happens */
    return tenth < nearest ? -1 : tenth > nearest;
}

static int tenth_at(unsigned mode)
{
    set_rounding(mode);
    int is = tenth_is();
    set_rounding(0);
    return is;
}

/* -1, unless an emulator computes as it likes. */
static int tenth_rounded_down;

static void round_down(void *arg)
{
    struct side *s = arg;
    s->count = get_rounding(); /* that of whoever made it */
    set_rounding(1);
    for (int i = 0; i < 10; i++) {
        back(s);
        EXPECT(get_rounding() == 1);
        EXPECT(tenth_is() == tenth_rounded_down);
    }
    back_for_ever(s);
}

static const char *rounding_modes_survive(void)
{
    struct side s;
    (void)begin();
    EXPECT(get_rounding() == 0);
    tenth_rounded_down = tenth_at(1);
    side_open(&s, round_down);
    go(&s);
    EXPECT(s.count == 0);
    for (int i = 0; i < 10; i++) {
        unsigned mode = i % 2 == 0 ? 0 : 2;
        set_rounding(mode);
        go(&s);
        EXPECT(get_rounding() == mode);
        EXPECT(tenth_is() == 0);
    }
    set_rounding(0);
    side_close(&s);
    return case_wrong;
}

static const char *new_stack_rounds_as_its_maker_did(void)
{
    struct side s;
    (void)begin();
    tenth_rounded_down = tenth_at(1);
    for (unsigned mode = 0; mode < 4; mode++) {
        set_rounding(mode);
        side_open(&s, round_down);
        set_rounding(0);
        go(&s);
        EXPECT(s.count == mode);
        for (int i = 0; i < 10; i++)
            go(&s);
        EXPECT(get_rounding() == 0);
        side_close(&s);
    }
    return case_wrong;
}

/* ---- all of them -------------------------------------------------------- */

#define SWITCH_CASES(X)                                                        \
    X(two_stacks_take_turns)                                                   \
    X(ring_of_stacks_keeps_all_locals)                                         \
    X(stack_can_be_used_again_when_its_work_has_ended)                         \
    X(stack_is_aligned_to_16_at_entry)                                         \
    X(deep_calls_may_leave_and_return_at_any_depth)                            \
    X(registers_of_the_callee_survive)                                         \
    X(rounding_modes_survive)                                                  \
    X(new_stack_rounds_as_its_maker_did)

#endif
