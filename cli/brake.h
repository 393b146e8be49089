/* SPDX-License-Identifier: MIT */
/* brake.h - start nothing while the machine is too busy (--load, --memfree).
 *
 * HOW   Looked at before the first start, after each one, and then every half
 *       second while it holds the gate.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_BRAKE_H
#define VOW_CLI_BRAKE_H

#include <vow.h>

struct brake {
    vow_loop *loop;
    vow_gate *gate;
    double load;      /* 0: any */
    uint64_t memfree; /* bytes; 0: any */
    vow_call again;
    bool holds;
};

/* Look, and hold or let go. */
void brake_look(struct brake *b);
void brake_end(struct brake *b);

#endif
