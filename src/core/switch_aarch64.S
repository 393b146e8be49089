/* SPDX-License-Identifier: MIT */
/* switch_aarch64.S - the AAPCS64's callee-saved state, stored and loaded.
 *
 * void vow__core_switch_raw(void **save_sp, void *load_sp)
 *
 * Kept: x19-x28, fp, lr, d8-d15, and fpcr (rounding mode). The function leaves
 * by a plain branch: ret would be predicted to return to the caller. */
#if defined(__aarch64__)
    .text
    .globl  vow__core_switch_raw
    .hidden vow__core_switch_raw
    .type   vow__core_switch_raw, %function
    .p2align 4
vow__core_switch_raw:
    .cfi_startproc
    sub     sp, sp, #176
    .cfi_def_cfa_offset 176
    stp     d8, d9, [sp, #0]
    .cfi_rel_offset d8, 0
    .cfi_rel_offset d9, 8
    stp     d10, d11, [sp, #16]
    .cfi_rel_offset d10, 16
    .cfi_rel_offset d11, 24
    stp     d12, d13, [sp, #32]
    .cfi_rel_offset d12, 32
    .cfi_rel_offset d13, 40
    stp     d14, d15, [sp, #48]
    .cfi_rel_offset d14, 48
    .cfi_rel_offset d15, 56
    stp     x19, x20, [sp, #64]
    .cfi_rel_offset x19, 64
    .cfi_rel_offset x20, 72
    stp     x21, x22, [sp, #80]
    .cfi_rel_offset x21, 80
    .cfi_rel_offset x22, 88
    stp     x23, x24, [sp, #96]
    .cfi_rel_offset x23, 96
    .cfi_rel_offset x24, 104
    stp     x25, x26, [sp, #112]
    .cfi_rel_offset x25, 112
    .cfi_rel_offset x26, 120
    stp     x27, x28, [sp, #128]
    .cfi_rel_offset x27, 128
    .cfi_rel_offset x28, 136
    stp     x29, x30, [sp, #144]
    .cfi_rel_offset x29, 144
    .cfi_rel_offset x30, 152
    mrs     x9, fpcr
    str     x9, [sp, #160]
    mov     x10, sp
    str     x10, [x0]
    mov     sp, x1
    ldr     x11, [sp, #160]
    cmp     x9, x11
    b.eq    1f
    msr     fpcr, x11
1:  ldp     d8, d9, [sp, #0]
    ldp     d10, d11, [sp, #16]
    ldp     d12, d13, [sp, #32]
    ldp     d14, d15, [sp, #48]
    ldp     x19, x20, [sp, #64]
    ldp     x21, x22, [sp, #80]
    ldp     x23, x24, [sp, #96]
    ldp     x25, x26, [sp, #112]
    ldp     x27, x28, [sp, #128]
    ldp     x29, x30, [sp, #144]
    add     sp, sp, #176
    .cfi_def_cfa_offset 0
    br      x30
    .cfi_endproc
    .size   vow__core_switch_raw, . - vow__core_switch_raw

/* Runs first on a new stack: x19 holds the context. Backtraces end here. */
    .globl  vow__core_switch_start
    .hidden vow__core_switch_start
    .type   vow__core_switch_start, %function
    .p2align 4
vow__core_switch_start:
    .cfi_startproc
    .cfi_undefined x30
    mov     x0, x19
    bl      vow__core_switch_enter
    brk     #1
    .cfi_endproc
    .size   vow__core_switch_start, . - vow__core_switch_start
    .section .note.GNU-stack, "", %progbits
#endif
