/* SPDX-License-Identifier: MIT */
/* throttle.h - pauses the gate while the machine is too busy (--load,
 * --memfree), or too soon after the last start (--delay).
 *
 * HOW   The throttle checks before the first start, after each start, and,
 *       while the gate is paused, every half second or at the end of the delay.
 *       --delay is not a rate limit of the gate: a rate limit counts weights.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_THROTTLE_H
#define VOW_CLI_THROTTLE_H

#include <vow.h>

struct throttle {
    vow_loop *loop;
    vow_gate *gate;
    double load;      /* largest load average of one minute; 0: no limit */
    uint64_t memfree; /* least available memory in bytes; 0: no limit */
    uint64_t delay_ms;
    uint64_t not_before_ns; /* earliest next start by the loop's clock */
    vow_call next_check;
    bool paused;
};

/* Checks the machine, and pauses or resumes the gate. */
void throttle_check(struct throttle *t);
/* Begins the delay after a start, and checks. */
void throttle_started(struct throttle *t);
void throttle_end(struct throttle *t);

#endif
