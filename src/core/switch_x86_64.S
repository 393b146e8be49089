/* SPDX-License-Identifier: MIT */
/* switch_x86_64.S - the System V ABI's callee-saved state, pushed and popped.
 *
 * void vow__core_switch_raw(void **save_sp, void *load_sp)
 *
 * Kept: rbp rbx r12-r15, and the control words of SSE and x87 (rounding and
 * exception masks are callee-saved too). Control words are loaded only if they
 * differ: loading is slow, comparing is fast. The function leaves by a jump:
 * the processor would predict ret to return to the caller. */
#if defined(__x86_64__)
    .text
    .globl  vow__core_switch_raw
    .hidden vow__core_switch_raw
    .type   vow__core_switch_raw, @function
    .p2align 4
vow__core_switch_raw:
    .cfi_startproc
    pushq   %rbp
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbp, 0
    pushq   %rbx
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset rbx, 0
    pushq   %r12
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r12, 0
    pushq   %r13
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r13, 0
    pushq   %r14
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r14, 0
    pushq   %r15
    .cfi_adjust_cfa_offset 8
    .cfi_rel_offset r15, 0
    subq    $8, %rsp
    .cfi_adjust_cfa_offset 8
    stmxcsr (%rsp)
    fnstcw  4(%rsp)
    movl    (%rsp), %eax
    movzwl  4(%rsp), %ecx
    movq    %rsp, (%rdi)
    movq    %rsi, %rsp
    cmpl    (%rsp), %eax
    je      1f
    ldmxcsr (%rsp)
1:  cmpw    4(%rsp), %cx
    je      2f
    fldcw   4(%rsp)
2:  addq    $8, %rsp
    .cfi_adjust_cfa_offset -8
    popq    %r15
    .cfi_adjust_cfa_offset -8
    .cfi_restore r15
    popq    %r14
    .cfi_adjust_cfa_offset -8
    .cfi_restore r14
    popq    %r13
    .cfi_adjust_cfa_offset -8
    .cfi_restore r13
    popq    %r12
    .cfi_adjust_cfa_offset -8
    .cfi_restore r12
    popq    %rbx
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbx
    popq    %rbp
    .cfi_adjust_cfa_offset -8
    .cfi_restore rbp
    popq    %rcx
    .cfi_adjust_cfa_offset -8
    .cfi_register rip, rcx
    jmp     *%rcx
    .cfi_endproc
    .size   vow__core_switch_raw, . - vow__core_switch_raw

/* Runs first on a new stack: r12 holds the context. Backtraces end here. */
    .globl  vow__core_switch_start
    .hidden vow__core_switch_start
    .type   vow__core_switch_start, @function
    .p2align 4
vow__core_switch_start:
    .cfi_startproc
    .cfi_undefined rip
    movq    %r12, %rdi
    call    vow__core_switch_enter
    ud2
    .cfi_endproc
    .size   vow__core_switch_start, . - vow__core_switch_start
    .section .note.GNU-stack, "", @progbits
#endif
