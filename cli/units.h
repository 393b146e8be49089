/* SPDX-License-Identifier: MIT */
/* units.h - reads the values of options: times, rates, sizes, counts.
 *
 * Each function returns NULL and the value, or a message (static, without the
 * option's name) with the error and the allowed values: "a rate needs a unit:
 * 50/s, 100/m or 10/500ms". The whole text is read: trailing characters, signs,
 * blanks and overflow are errors.
 */
#ifndef VOW_CLI_UNITS_H
#define VOW_CLI_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KILL_STEPS = 8 };

/* Reads 30s, 1.5m, 500ms, 2h, 1d; a bare number is seconds, as with sleep and
 * timeout. */
const char *units_duration(const char *s, uint64_t *ret_ms);

/* N/U: 50/s, 50/1s, 100/m, 10/500ms, 1000/h, 5/d. N is 1 to 2^24. */
struct rate {
    uint32_t n;
    uint64_t window_ms;
};
const char *units_rate(const char *s, struct rate *ret_rate);

/* Reads 100, 64K, 64M, 1.5G, 1T: powers of 1024; KiB and kB mean the same as
 * K. */
const char *units_size(const char *s, uint64_t *ret_bytes);

/* Reads a number of concurrent jobs: 8, or 50%, 2x of the processors; at least
 * 1. 0 is refused with a message that says how to write "as many as possible"
 * (a big number). */
const char *units_jobs(const char *s, uint32_t cpus, uint32_t *ret_jobs);

const char *units_count(const char *s, uint64_t *ret_n);

/* 1s..1m; 5s alone is 5s..5s, a wait of constant length. */
struct backoff {
    uint64_t first_ms;
    uint64_t most_ms;
};
const char *units_backoff(const char *s, struct backoff *ret_backoff);

/* 1,3-9,signal,timeout,any: exit codes and kinds of failure to retry after. */
struct retry_on {
    uint64_t codes[4]; /* a bit per exit code */
    bool signal;
    bool timeout;
};
const char *units_retry_on(const char *s, struct retry_on *ret_on);

/* TERM,5s,KILL: signals with waits between. Names with or without SIG, or
 * numbers. The last step may be a wait: then nothing follows the wait. */
struct kill_step {
    int signal;       /* 0: wait only */
    uint64_t wait_ms; /* wait after the signal */
};
struct kill_seq {
    size_t n;
    struct kill_step steps[KILL_STEPS];
};
const char *units_kill_seq(const char *s, struct kill_seq *ret_seq);

/* now|soon,fail|success|done=N|N%; "never". */
enum halt_when { HALT_NEVER, HALT_SOON, HALT_NOW };
enum halt_what { HALT_FAIL, HALT_SUCCESS, HALT_DONE };
struct halt {
    enum halt_when when;
    enum halt_what what;
    bool percent;
    uint64_t n;
};
const char *units_halt(const char *s, struct halt *ret_halt);

/* Writes a time for people: "1.5s", "3m 20s", "2h 05m"; into 32 bytes. Returns
 * `into`. */
const char *units_show_ms(uint64_t ms, char *into);
/* Returns "TERM" for 15; "34", in `into`, for a signal without a name. */
const char *units_signal_name(int number, char *into);

#endif
