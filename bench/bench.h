/* SPDX-License-Identifier: MIT */
/* bench.h - what every C program of the suite needs: a clock, one result row,
 * the memory of this process, and a check that ends the program.
 *
 * A row is `case<TAB>peer<TAB>value<TAB>unit`, on stdout. Programs check their
 * own results and end with status 1 when one is wrong, so that a row always
 * stands for work that was done.
 */
#ifndef VOW_BENCH_H
#define VOW_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The same counts in every program and every language. */
enum {
    LINKS = 1000000,
    CYCLES = 5000000,
    SWITCHES = 10000000,
    TURNS = 1000000,
    YIELDS = 5000000,
    SPAWNS = 1000000,
    MESSAGES = 1000000,
    WAITERS = 100000
};

struct bench_case {
    const char *name;
    void (*run)(void);
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define MUST(cond) ((cond) ? (void)0 : bench_die(__FILE__, __LINE__, #cond))

static inline void bench_die(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: not true: %s\n", file, line, what);
    exit(1);
}

static inline double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static inline void row(const char *what, const char *peer, double value,
                       const char *unit)
{
    printf("%s\t%s\t%.6g\t%s\n", what, peer, value, unit);
    fflush(stdout);
}

/* A field of /proc/self/status in bytes: "VmRSS:" or "VmPTE:". */
static inline double status_bytes(const char *field)
{
    char line[256];
    double kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    MUST(f != NULL);
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0)
            kib = strtod(line + strlen(field), NULL);
    }
    fclose(f);
    return kib * 1024;
}

/* Runs the one case that the name asks for; the exit status. */
static inline int run_case(const struct bench_case *cases, size_t n,
                           const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(cases[i].name, name) != 0)
            continue;
        cases[i].run();
        return 0;
    }
    fprintf(stderr, "no such case: %s\n", name);
    return 2;
}

static inline int by_value(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

/* The median of five runs: with threads, one run says little. */
static inline double median_of_five(double (*once)(int), int arg)
{
    double ns[5];
    for (int i = 0; i < 5; i++)
        ns[i] = once(arg);
    qsort(ns, 5, sizeof(ns[0]), by_value);
    return ns[2];
}

#endif
