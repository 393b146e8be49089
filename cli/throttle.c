/* SPDX-License-Identifier: MIT */
/* throttle.c - see throttle.h. */
#include "throttle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY_MS = 500, KIB = 1024 };

static bool machine_is_busy(const struct throttle *t);
static uint64_t memory_available(void);
static void on_throttle_due(void *throttle);

void throttle_check(struct throttle *t)
{
    if (t->load <= 0 && t->memfree == 0 && t->delay_ms == 0)
        return;
    bool early = vow_loop_now_ns(t->loop) < t->not_before_ns;
    bool holds = early || machine_is_busy(t);
    if (holds && !t->paused)
        vow_gate_pause(t->gate);
    else if (!holds && t->paused)
        vow_gate_resume(t->gate);
    t->paused = holds;
    if (holds)
        vow_call_at(&t->next_check, t->loop,
                    early ? t->not_before_ns
                          : vow_loop_due_ns(t->loop, EVERY_MS),
                    on_throttle_due, t);
}

void throttle_started(struct throttle *t)
{
    if (t->delay_ms > 0)
        t->not_before_ns = vow_loop_due_ns(t->loop, t->delay_ms);
    throttle_check(t);
}

void throttle_end(struct throttle *t)
{
    (void)vow_call_stop(&t->next_check);
    if (t->paused)
        vow_gate_resume(t->gate);
    t->paused = false;
    t->load = 0;
    t->memfree = 0;
    t->delay_ms = 0;
}

static void on_throttle_due(void *throttle)
{
    throttle_check(throttle);
}

static bool machine_is_busy(const struct throttle *t)
{
    double load[1];
    if (t->load > 0 && getloadavg(load, 1) == 1 && load[0] > t->load)
        return true;
    return t->memfree > 0 && memory_available() < t->memfree;
}

/* Returns the bytes of memory available without swapping, as the kernel
 * estimates; UINT64_MAX: not known. */
static uint64_t memory_available(void)
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
