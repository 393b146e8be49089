/* SPDX-License-Identifier: MIT */
/* clock.c - the only file that asks the system for time and for entropy.
 *
 * WHY   Tests move time by hand and never sleep; limits must not be early, so
 *       real time is read when needed, never cached.
 * THREADS  any for real time, the loop's for virtual time.
 */
#include "base/clock.h"

#include <time.h>
#include <uv.h>
#if __has_include(<sys/platform/x86.h>)
#include <sys/platform/x86.h>
#endif

uint64_t vow__clock_now_ns(const struct vow__clock *c)
{
    return c->is_virtual ? c->virtual_ns : uv_hrtime();
}

uint64_t vow__clock_due_ns(const struct vow__clock *c, uint64_t ms)
{
    uint64_t now = vow__clock_now_ns(c);
    if (ms > (UINT64_MAX - now) / VOW__NS_PER_MS)
        return UINT64_MAX;
    return now + ms * VOW__NS_PER_MS;
}

uint64_t vow__clock_boot_ns(void)
{
    enum { NS_PER_S = 1000000000 };
    struct timespec t;
    if (clock_gettime(CLOCK_BOOTTIME, &t) != 0)
        return uv_hrtime();
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

uint64_t vow__clock_date_us(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_REALTIME, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* What libc has asked the processor at the start. In a virtual machine, to ask
 * again takes as long as ten system calls. */
bool vow__clock_has_cycles(void)
{
#if defined(__x86_64__) && defined(CPU_FEATURE_PRESENT)
    return CPU_FEATURE_PRESENT(INVARIANT_TSC);
#else
    return false;
#endif
}

uint64_t vow__clock_entropy(void)
{
    uint64_t seed;
    if (uv_random(NULL, NULL, &seed, sizeof(seed), 0, NULL) < 0)
        seed = uv_hrtime();
    return seed;
}
