/* SPDX-License-Identifier: MIT */
/* sm.h - states that move only along a table of allowed moves.
 *
 * The table has an entry per state: a bit for each state that may follow. A
 * move outside the table is a bug of the library and traps. */
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
