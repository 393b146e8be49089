/* SPDX-License-Identifier: MIT */
/* switch_test.c - core/switch.c: the cases that also run alone, and the two
 * mistakes that stop the program. */
#include "../switch/cases.h"
#include "trap.h"

#define UNIT(name)                                                             \
    TEST(switch, name)                                                         \
    {                                                                          \
        const char *wrong = name();                                            \
        if (wrong != NULL)                                                     \
            FAIL("%s", wrong);                                                 \
    }
SWITCH_CASES(UNIT)

static void return_from_entry(void *arg)
{
    (void)arg;
}

TEST_TRAPS(switch, entry_that_returns_dies)
{
    struct side s;
    (void)begin();
    side_open(&s, return_from_entry);
    go(&s);
}

TEST_TRAPS(switch, going_to_a_stack_that_has_ended_dies)
{
    struct side s;
    (void)begin();
    side_open(&s, end_at_once);
    go(&s);
    go(&s);
}
