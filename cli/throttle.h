/* SPDX-License-Identifier: MIT */
/* throttle.h - start nothing while the machine is too busy (--load, --memfree), or
 * too soon after the last start (--delay).
 *
 * HOW   Looked at before the first start, after each one, and then every half
 *       second, or at the end of the delay, while it holds the gate. A delay is
 *       no rate of the gate: that counts weights.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_THROTTLE_H
#define VOW_CLI_THROTTLE_H

#include <vow.h>

struct throttle {
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
void throttle_check(struct throttle *b);
/* The same; something was started. */
void throttle_started(struct throttle *b);
void throttle_end(struct throttle *b);

#endif
