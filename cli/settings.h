/* SPDX-License-Identifier: MIT */
/* settings.h - the values of the options of `map` and `run`. */
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
    const char **files; /* of every -a, in their order */
    size_t n_files;

    /* command */
    const char *replace;
    const char *shell;
    bool exec;
    bool tty; /* a job has the terminal: -j 1 and --output live */

    /* limits */
    uint32_t jobs; /* 0: not given */
    struct rate rate;
    bool even;
    const char *weight; /* N or {N}; NULL: 1 */
    uint64_t delay_ms;
    double load;      /* 0: any */
    uint64_t memfree; /* bytes; 0: any */
    uint64_t queue;   /* items; 0: not given */
    const char *pool; /* NAME or NAME:KEY; NULL: limits of this run only */
    struct store_opts store;

    /* retries and timeouts */
    uint32_t retries;
    struct backoff backoff;
    struct retry_on retry_on;
    bool retry_on_said; /* --retry-on was given on the command line */
    uint64_t timeout_ms;
    uint64_t deadline_ms;
    uint64_t stop_after_ms;
    struct kill_seq kill;

    /* failures */
    struct halt halt;
    enum exit_style exit_style;

    /* output */
    enum output output;
    bool output_said; /* --output was given on the command line */
    bool keep_order;
    bool tag;
    const char *results; /* folder; NULL: none */
    bool json;

    /* state */
    const char *log;
    const char *joblog;
    bool resume;
    bool resume_failed;
    bool dry_run;

    /* show */
    bool bar;
    const char *progress; /* NULL: not given */
    const char *color;    /* NULL: not given */
    bool verbose;
};

extern const struct verb_def map_verb;
extern const struct verb_def run_verb;

/* Reads the config files and the options of `verb`. Returns the index of the
 * first other word. */
int settings_read(struct settings *s, const struct verb_def *verb, int argc,
                  char **argv);

#endif
