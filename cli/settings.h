/* SPDX-License-Identifier: MIT */
/* settings.h - what the options of `map` and `run` say.
 */
#ifndef VOW_CLI_SETTINGS_H
#define VOW_CLI_SETTINGS_H

#include "bar.h"
#include "input.h"
#include "options.h"
#include "store_open.h"
#include "units.h"

enum output { OUTPUT_GROUP, OUTPUT_LINE, OUTPUT_LIVE, OUTPUT_NONE };
enum exit_style { EXIT_PLAIN, EXIT_COUNT, EXIT_XARGS };

struct settings {
    /* input */
    struct input_opts input;
    const char **files; /* of every -a */
    size_t n_files;

    /* command */
    const char *replace;
    const char *shell;
    bool exec;
    bool tty; /* a job has the terminal; then one runs at a time, and live */

    /* limits */
    uint32_t jobs; /* 0: not said */
    struct rate rate;
    bool even;
    const char *weight; /* N or {N}; NULL: 1 */
    uint64_t delay_ms;
    double load; /* 0: any */
    uint64_t memfree;
    uint64_t queue;   /* 0: not said */
    const char *pool; /* NAME or NAME:KEY; NULL: limits are our own */
    struct store_opts store;

    /* trying again, and time */
    uint32_t retries;
    struct backoff backoff;
    struct retry_on retry_on;
    bool retry_on_said;
    uint64_t timeout_ms;
    uint64_t deadline_ms;
    uint64_t stop_after_ms;
    struct kill_seq kill;

    /* failures */
    struct halt halt;
    enum exit_style exit_style;

    /* output */
    enum output output;
    bool output_said;
    bool keep_order;
    bool tag;
    const char *results;
    bool json;

    /* state */
    const char *log;
    const char *joblog;
    bool resume;
    bool resume_failed;
    bool dry_run;

    /* show */
    bool bar;
    const char *progress; /* NULL: not said */
    const char *color;
    bool verbose;
};

extern const struct verb_def map_verb;
extern const struct verb_def run_verb;

/* Read the options of `verb`; returns the index of the first other word. */
int settings_read(struct settings *s, const struct verb_def *verb, int argc,
                  char **argv);

#endif
