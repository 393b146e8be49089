/* SPDX-License-Identifier: MIT */
/* clock.h - the source of time: the system, or a test. */
#ifndef VOW_BASE_CLOCK_H
#define VOW_BASE_CLOCK_H

#include "vow/common.h"

struct vow__clock {
    bool is_virtual;
    uint64_t virtual_ns; /* since the loop was made */
};

enum { VOW__NS_PER_MS = 1000000 };

uint64_t vow__clock_now_ns(const struct vow__clock *c);

/* now + ms without overflow; the end of time means never. */
uint64_t vow__clock_due_ns(const struct vow__clock *c, uint64_t ms);

/* Real time, also while the machine sleeps: the clock of leases. */
uint64_t vow__clock_boot_ns(void);

/* The date, since 1970: only to be compared with dates of other hosts. */
uint64_t vow__clock_date_us(void);

/* The processor's counter, where it runs at a constant rate of at least half a
 * cycle per nanosecond on all of them. Not in order with the
 * instructions around it. */
bool vow__clock_has_cycles(void);
static inline uint64_t vow__clock_cycles(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return 0;
#endif
}

/* Seed of a loop's random numbers. */
uint64_t vow__clock_entropy(void);

#endif
