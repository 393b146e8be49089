/* SPDX-License-Identifier: MIT */
/* fcontext.c - Boost.Context's jump, the switch that others build fibers on.
 *
 * Boost declares it for C++ only, but it is two assembly routines with C
 * linkage, so they are declared here. Linked statically, as our own is: a call
 * through the PLT would cost it a nanosecond.
 */
#include "../bench.h"

typedef void *fcontext_t;

typedef struct transfer_t {
    fcontext_t fctx;
    void *data;
} transfer_t;

extern transfer_t jump_fcontext(fcontext_t to, void *data);
extern fcontext_t make_fcontext(void *top, size_t size,
                                void (*entry)(transfer_t));

enum { SWITCH_STACK = 65536 };

static void jump_back(transfer_t t)
{
    for (;;)
        t = jump_fcontext(t.fctx, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 2 || strcmp(argv[1], "switch") != 0)
        return 2;
    char *stack = aligned_alloc(4096, SWITCH_STACK);
    MUST(stack != NULL);
    fcontext_t side =
        make_fcontext(stack + SWITCH_STACK, SWITCH_STACK, jump_back);
    transfer_t t = jump_fcontext(side, NULL);
    double begin = now_ns();
    for (long i = 0; i < SWITCHES; i++)
        t = jump_fcontext(t.fctx, NULL);
    row("switch", "boost", (now_ns() - begin) / (2.0 * SWITCHES), "ns");
    free(stack);
    return 0;
}
