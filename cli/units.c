/* SPDX-License-Identifier: MIT */
/* units.c - reads numbers with units strictly, and shows times shortly.
 *
 * WHY   strtod() takes blanks, signs, hexadecimal, "inf" and, by locale, other
 *       decimal points; "1e9" or "0x10" behind an option is more often a typing
 *       error than meant. Only digits with at most one point are accepted.
 * HOW   The part before the point is exact; the part behind the point keeps
 *       nine digits. A value above 0 never becomes 0 by rounding.
 */
#include "units.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { MOST_JOBS = 1000000, MOST_RATE = 1 << 24 };

#define MOST_MS (10000 * UINT64_C(86400000))
#define MOST_BYTES (UINT64_C(8388607) << 40)

struct number {
    uint64_t whole; /* UINT64_MAX for any larger number */
    double fraction;
    bool has_point;
    const char *unit; /* text behind the number */
};

static bool number_read(const char *s, struct number *ret_n);
static bool number_times(struct number n, uint64_t unit, uint64_t *ret_value);
static uint64_t time_unit(const char *unit);
static uint64_t size_unit(const char *unit);

const char *units_duration(const char *s, uint64_t *ret_ms)
{
    struct number n;
    uint64_t ms;
    if (!number_read(s, &n))
        return "a time is a number and ms, s, m, h or d: 30s, 1.5m or 500ms";
    uint64_t unit = n.unit[0] == '\0' ? 1000 : time_unit(n.unit);
    if (unit == 0)
        return "the unit of a time is ms, s, m, h or d: 30s, 1.5m or 500ms";
    if (!number_times(n, unit, &ms) || ms > MOST_MS)
        return "this time is too long: 10000d is the most";
    *ret_ms = ms;
    return NULL;
}

/* Returns milliseconds; 0: no such unit. */
static uint64_t time_unit(const char *unit)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } all[] = {
        {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (strcmp(all[i].name, unit) == 0)
            return all[i].ms;
    return 0;
}

const char *units_rate(const char *s, struct rate *ret_rate)
{
    static const char no_unit[] =
        "a rate needs a unit: 50/s, 100/m or 10/500ms";
    struct number n;
    if (!number_read(s, &n))
        return "a rate is a number, a slash and a time: 50/s, 100/m, 10/500ms";
    if (n.unit[0] != '/')
        return no_unit;
    if (n.has_point)
        return "a rate counts whole starts: write 1/2s for 0.5/s";
    if (n.whole == 0)
        return "a rate starts at 1: 1/s, or 1/10m for fewer";
    if (n.whole > MOST_RATE)
        return "this rate is too high: 16777216 starts in a unit are the most";
    const char *unit = n.unit + 1;
    uint64_t window = time_unit(unit);
    if (window == 0) {
        if (unit[strspn(unit, "0123456789.")] == '\0')
            return no_unit;
        const char *wrong = units_duration(unit, &window);
        if (wrong != NULL)
            return wrong;
    }
    if (window == 0)
        return "the unit of a rate is a time above 0: 50/s or 10/500ms";
    *ret_rate = (struct rate){.n = (uint32_t)n.whole, .window_ms = window};
    return NULL;
}

const char *units_size(const char *s, uint64_t *ret_bytes)
{
    struct number n;
    uint64_t bytes;
    uint64_t unit = number_read(s, &n) ? size_unit(n.unit) : 0;
    if (unit == 0 || (unit == 1 && n.has_point))
        return "a size is a number of bytes, or one with K, M, G or T: 64M";
    if (!number_times(n, unit, &bytes) || bytes > MOST_BYTES)
        return "this size is too large: 8388607T is the most";
    *ret_bytes = bytes;
    return NULL;
}

/* Returns bytes; 0: no such unit. */
static uint64_t size_unit(const char *unit)
{
    static const char letters[] = "kmgt";
    if (unit[0] == '\0' || strcasecmp(unit, "b") == 0)
        return 1;
    const char *letter = strchr(letters, unit[0] | ('a' ^ 'A'));
    if (letter == NULL)
        return 0;
    const char *rest = unit + 1;
    if (rest[0] != '\0' && strcasecmp(rest, "b") != 0 &&
        strcasecmp(rest, "ib") != 0)
        return 0;
    return UINT64_C(1) << 10 * (letter - letters + 1);
}

const char *units_jobs(const char *s, uint32_t cpus, uint32_t *ret_jobs)
{
    struct number n;
    bool of_cpus = false;
    uint64_t jobs;
    if (!number_read(s, &n))
        return "a number of jobs is 8, 50% or 2x of the processors";
    if (strcmp(n.unit, "%") == 0 || strcmp(n.unit, "x") == 0)
        of_cpus = true;
    else if (n.unit[0] != '\0' || n.has_point)
        return "a number of jobs is 8, 50% or 2x of the processors";
    if (n.whole == 0 && n.fraction <= 0)
        return "0 jobs do nothing: for as many as possible write a big number, "
               "such as 1000000";
    if (n.whole > MOST_JOBS)
        return "these are too many jobs: 1000000 are the most";
    jobs = n.whole;
    if (of_cpus) {
        double share = (double)n.whole + n.fraction;
        jobs = (uint64_t)(share * cpus / (n.unit[0] == '%' ? 100 : 1));
    }
    if (jobs > MOST_JOBS)
        return "these are too many jobs: 1000000 are the most";
    *ret_jobs = jobs > 0 ? (uint32_t)jobs : 1;
    return NULL;
}

const char *units_count(const char *s, uint64_t *ret_n)
{
    struct number n;
    if (!number_read(s, &n) || n.unit[0] != '\0' || n.has_point)
        return "a whole number is needed, such as 0 or 10";
    if (n.whole == UINT64_MAX)
        return "this number is too large: 18446744073709551614 is the most";
    *ret_n = n.whole;
    return NULL;
}

const char *units_backoff(const char *s, struct backoff *ret_backoff)
{
    static const char shape[] =
        "a backoff is the first and longest wait: 1s..1m, or 5s for always 5s";
    struct backoff b;
    char first[32];
    const char *dots = strstr(s, "..");
    size_t n = dots != NULL ? (size_t)(dots - s) : strlen(s);
    if (n == 0 || n >= sizeof(first) || (dots != NULL && dots[2] == '\0'))
        return shape;
    memcpy(first, s, n);
    first[n] = '\0';
    const char *wrong = units_duration(first, &b.first_ms);
    if (wrong == NULL)
        wrong = units_duration(dots != NULL ? dots + 2 : first, &b.most_ms);
    if (wrong != NULL)
        return wrong;
    if (b.first_ms > b.most_ms)
        return "the first wait is longer than the longest: write 1s..1m";
    *ret_backoff = b;
    return NULL;
}

const char *units_show_ms(uint64_t ms, char *into)
{
    const size_t room = 32;
    uint64_t s = ms / 1000;
    if (ms < 1000)
        snprintf(into, room, "%ums", (unsigned)ms);
    else if (s < 60 && ms % 1000 < 100)
        snprintf(into, room, "%us", (unsigned)s);
    else if (s < 60)
        snprintf(into, room, "%u.%us", (unsigned)s, (unsigned)(ms / 100 % 10));
    else if (s < 3600)
        snprintf(into, room, "%um %02us", (unsigned)(s / 60),
                 (unsigned)(s % 60));
    else if (s < 86400)
        snprintf(into, room, "%uh %02um", (unsigned)(s / 3600),
                 (unsigned)(s / 60 % 60));
    else
        snprintf(into, room, "%llud %02uh", (unsigned long long)(s / 86400),
                 (unsigned)(s / 3600 % 24));
    return into;
}

/* Reads digits, perhaps with a point and more digits. Returns whether there is
 * a number. */
static bool number_read(const char *s, struct number *ret_n)
{
    struct number n = {.whole = 0};
    const char *start = s;
    for (; *s >= '0' && *s <= '9'; s++)
        if (__builtin_mul_overflow(n.whole, 10, &n.whole) ||
            __builtin_add_overflow(n.whole, (uint64_t)(*s - '0'), &n.whole))
            n.whole = UINT64_MAX;
    if (*s == '.') {
        double place = 1;
        const char *digits = ++s;
        n.has_point = true;
        for (; *s >= '0' && *s <= '9'; s++)
            if (s - digits < 9)
                n.fraction += (*s - '0') * (place /= 10);
        if (s == digits)
            return false;
    }
    n.unit = s;
    *ret_n = n;
    return s != start;
}

/* Multiplies by the unit. Returns false if the result is too large. */
static bool number_times(struct number n, uint64_t unit, uint64_t *ret_value)
{
    uint64_t value;
    if (__builtin_mul_overflow(n.whole, unit, &value))
        return false;
    double rest = n.fraction * (double)unit;
    uint64_t more = (uint64_t)(rest + 0.5);
    if (more == 0 && value == 0 && rest > 0)
        more = 1;
    return !__builtin_add_overflow(value, more, ret_value);
}
