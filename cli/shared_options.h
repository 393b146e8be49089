/* SPDX-License-Identifier: MIT */
/* shared_options.h - what the options of `share` and `pipe` say.
 */
#ifndef VOW_CLI_SHARED_OPTIONS_H
#define VOW_CLI_SHARED_OPTIONS_H

#include "cmd.h"
#include "options.h"
#include "store_open.h"
#include "units.h"

/* What else a name depends on: --env VAR, --file F, --cwd. */
struct depends {
    const char *kind; /* "cwd", "env", "file" */
    const char *key;  /* the variable, the file */
    bool set;         /* the variable is */
    vow_field value;
};

/* -s NAME=CMD */
struct step_words {
    const char *label;
    const char *script;
};

struct shared {
    struct store_opts store;

    /* the name */
    const char *name; /* NULL: the command line */
    bool by_argv;
    struct depends *depends; /* in an order that does not depend on options */
    size_t n_depends;

    /* the result */
    uint64_t ttl_ms;
    uint64_t fail_ttl_ms;
    uint64_t stale_ms;
    uint64_t max_output;
    uint32_t mode; /* enum vow_mode */
    bool peek;
    bool force;
    bool follow;
    bool stream;  /* pipe: steps read while those before them write */
    bool refresh; /* we are to make a result anew, out of sight */

    /* the run */
    uint32_t takeovers; /* 0: the default */
    bool keep_lost;     /* let it run on when its lease is lost */
    uint64_t timeout_ms;
    struct kill_seq kill;

    /* show */
    bool verbose;
    int role_fd; /* -1: none */

    char **command; /* ends with NULL; NULL: none */
    size_t n_command;
    struct step_words *steps;
    size_t n_steps;
};

/* Read the words of such a verb; what is wrong with them ends the program. */
void shared_read(struct shared *s, const struct verb_def *verb, int argc,
                 char **argv);

/* The name that they agree on; the fields of what a pipeline depends on. */
vow_name shared_name(const struct shared *s);
size_t shared_source(const struct shared *s, vow_field **ret_fields);

#endif
