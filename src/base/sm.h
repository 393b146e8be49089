/* SPDX-License-Identifier: MIT */
/* sm.h - states that move only along a table of allowed moves.
 *
 * The table has one entry per state: the bits of the states it may move to. A
 * move that is not in it is our bug and stops the program at the spot. */
#ifndef VOW_BASE_SM_H
#define VOW_BASE_SM_H

#include "base/assert.h"
#include "vow/common.h"

#define VOW__TO(state) (1u << (state))

static inline void vow__sm_move(uint8_t *state, uint8_t to,
                                const uint8_t *allowed)
{
    VOW__ASSERT((allowed[*state] & VOW__TO(to)) != 0);
    *state = to;
}

#endif
