/* SPDX-License-Identifier: MIT */
/* brake.h - start nothing while the machine is too busy (--load, --memfree), or
 * too soon after the last start (--delay).
 *
 * HOW   Looked at before the first start, after each one, and then every half
 *       second, or at the end of the delay, while it holds the gate. A delay is
 *       no rate of the gate: that counts weights.
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
    uint64_t delay_ms;
    uint64_t not_before_ns; /* of the loop's clock */
    vow_call again;
    bool holds;
};

/* Look, and hold or let go. */
void brake_look(struct brake *b);
/* The same; something was started. */
void brake_started(struct brake *b);
void brake_end(struct brake *b);

#endif
