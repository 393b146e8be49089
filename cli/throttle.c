/* SPDX-License-Identifier: MIT */
/* throttle.c - see throttle.h. */
#include "throttle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY_MS = 500, KIB = 1024 };

static bool too_busy(const struct throttle *b);
static uint64_t available(void);
static void on_time(void *throttle);

void throttle_check(struct throttle *b)
{
    if (b->load <= 0 && b->memfree == 0 && b->delay_ms == 0)
        return;
    bool early = vow_loop_now_ns(b->loop) < b->not_before_ns;
    bool holds = early || too_busy(b);
    if (holds && !b->holds)
        vow_gate_pause(b->gate);
    else if (!holds && b->holds)
        vow_gate_resume(b->gate);
    b->holds = holds;
    if (holds)
        vow_call_at(&b->again, b->loop,
                    early ? b->not_before_ns
                          : vow_loop_due_ns(b->loop, EVERY_MS),
                    on_time, b);
}

void throttle_started(struct throttle *b)
{
    if (b->delay_ms > 0)
        b->not_before_ns = vow_loop_due_ns(b->loop, b->delay_ms);
    throttle_check(b);
}

void throttle_end(struct throttle *b)
{
    (void)vow_call_stop(&b->again);
    if (b->holds)
        vow_gate_resume(b->gate);
    b->holds = false;
    b->load = 0;
    b->memfree = 0;
    b->delay_ms = 0;
}

static void on_time(void *throttle)
{
    throttle_check(throttle);
}

static bool too_busy(const struct throttle *b)
{
    double load[1];
    if (b->load > 0 && getloadavg(load, 1) == 1 && load[0] > b->load)
        return true;
    return b->memfree > 0 && available() < b->memfree;
}

/* What can be had without swapping, as the kernel guesses. */
static uint64_t available(void)
{
    static const char name[] = "MemAvailable:";
    char line[128];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/meminfo", "re");
    if (f == NULL)
        return UINT64_MAX;
    while (kib == 0 && fgets(line, sizeof(line), f) != NULL)
        if (strncmp(line, name, sizeof(name) - 1) == 0)
            kib = strtoull(line + sizeof(name) - 1, NULL, 10);
    (void)fclose(f);
    return kib == 0 ? UINT64_MAX : kib * KIB;
}
