/* SPDX-License-Identifier: MIT */
/* switch_x86_64.S - the System V ABI's callee-saved state, pushed and popped.
 *
 * void vow__switch_raw(void **save_sp, void *load_sp)
 *
 * Kept: rbp rbx r12-r15, and the control words of SSE and x87 (rounding and
 * exception masks belong to the callee too). They are loaded only when they
 * differ: loading is dear, comparing is not. It leaves by a jump and not by ret,
 * which the processor would predict to go back to where it came from. */
#if defined(__x86_64__)
    .text
    .globl  vow__switch_raw
    .hidden vow__switch_raw
    .type   vow__switch_raw, @function
    .p2align 4
vow__switch_raw:
    .cfi_startproc
    pushq   %rbp
    pushq   %rbx
    pushq   %r12
    pushq   %r13
    pushq   %r14
    pushq   %r15
    subq    $8, %rsp
    stmxcsr (%rsp)
    fnstcw  4(%rsp)
    movl    (%rsp), %eax
    movzwl  4(%rsp), %ecx
    movq    %rsp, (%rdi)
    movq    %rsi, %rsp
    cmpl    (%rsp), %eax
    jne     1f
2:  cmpw    4(%rsp), %cx
    jne     3f
4:  addq    $8, %rsp
    popq    %r15
    popq    %r14
    popq    %r13
    popq    %r12
    popq    %rbx
    popq    %rbp
    popq    %rcx
    jmp     *%rcx
1:  ldmxcsr (%rsp)
    jmp     2b
3:  fldcw   4(%rsp)
    jmp     4b
    .cfi_endproc
    .size   vow__switch_raw, . - vow__switch_raw

/* First on a new stack: r12 holds the context; debuggers end here. */
    .globl  vow__switch_start
    .hidden vow__switch_start
    .type   vow__switch_start, @function
    .p2align 4
vow__switch_start:
    .cfi_startproc
    .cfi_undefined rip
    movq    %r12, %rdi
    call    vow__switch_enter
    ud2
    .cfi_endproc
    .size   vow__switch_start, . - vow__switch_start
    .section .note.GNU-stack, "", @progbits
#endif
