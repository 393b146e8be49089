/* SPDX-License-Identifier: MIT */
/* sm_test.c - states move along the table, and any other move stops the
 * program. */
#include "base/sm.h"
#include "trap.h"

enum { OPEN, BUSY, LAST = 7 };

static const uint8_t table[8] = {
    [OPEN] = VOW__TO(BUSY) | VOW__TO(LAST),
    [BUSY] = VOW__TO(OPEN) | VOW__TO(BUSY),
    [LAST] = 0,
};

TEST(sm, moves_along_the_table)
{
    uint8_t state = OPEN;
    vow__sm_move(&state, BUSY, table);
    CHECK_UINT_EQ(state, BUSY);
    vow__sm_move(&state, OPEN, table);
    CHECK_UINT_EQ(state, OPEN);
}

TEST(sm, eighth_state_has_a_bit_too)
{
    uint8_t state = OPEN;
    vow__sm_move(&state, LAST, table);
    CHECK_UINT_EQ(state, LAST);
}

TEST(sm, stays_where_it_is_if_the_table_says_so)
{
    uint8_t state = BUSY;
    vow__sm_move(&state, BUSY, table);
    CHECK_UINT_EQ(state, BUSY);
}

TEST_TRAPS(sm, forbidden_move_dies)
{
    uint8_t state = BUSY;
    vow__sm_move(&state, LAST, table);
}

TEST_TRAPS(sm, move_to_the_same_state_dies_unless_it_is_in_the_table)
{
    uint8_t state = OPEN;
    vow__sm_move(&state, OPEN, table);
}

TEST_TRAPS(sm, any_move_from_the_last_state_dies)
{
    uint8_t state = LAST;
    vow__sm_move(&state, OPEN, table);
}
