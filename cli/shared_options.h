/* SPDX-License-Identifier: MIT */
/* shared_options.h - the values of the options of `share` and `pipe`. */
#ifndef VOW_CLI_SHARED_OPTIONS_H
#define VOW_CLI_SHARED_OPTIONS_H

#include "cmd.h"
#include "options.h"
#include "store_open.h"
#include "units.h"

/* A further part of a name: --env VAR, --file F, --cwd. */
struct depends {
    const char *kind; /* "cwd", "env", "file" */
    const char *key;  /* the variable, or the path of the file */
    bool set;         /* false: the variable is not set */
    vow_field value;  /* the value, the hash of the file, or the folder */
};

/* -s NAME=CMD */
struct step_words {
    const char *label;
    const char *script;
};

struct shared {
    struct store_opts store;

    /* the name */
    const char *name;        /* NULL: the command line */
    bool name_by_place;      /* the name stands before a command without -- */
    bool by_argv;            /* --argv */
    struct depends *depends; /* sorted: the order of options does not count */
    size_t n_depends;

    /* the result */
    uint64_t ttl_ms;
    uint64_t fail_ttl_ms;
    uint64_t stale_ms;
    uint64_t max_output; /* bytes */
    uint32_t mode;       /* enum vow_mode */
    bool peek;
    bool force;
    bool follow;
    bool stream;  /* pipe: a step reads while the step before writes */
    bool refresh; /* internal: refresh a stale result in the background */

    /* the run */
    uint32_t takeovers; /* 0: the default */
    bool keep_lost;     /* the command goes on when the lease is lost */
    uint64_t timeout_ms;
    struct kill_seq kill;

    /* show */
    bool verbose;
    int role_fd; /* descriptor; -1: none */

    char **command; /* ends with NULL; NULL: not given */
    size_t n_command;
    struct step_words *steps;
    size_t n_steps;
};

/* Reads the config files and the command line of `share` or `pipe`. Wrong usage
 * ends the program. */
void shared_read(struct shared *s, const struct verb_def *verb, int argc,
                 char **argv);

/* Makes the name from NAME or the command line, and --env, --file, --cwd. */
vow_name shared_name(const struct shared *s);
/* Makes the fields of --env, --file and --cwd, owned by the caller. Returns the
 * number of fields. */
size_t shared_source(const struct shared *s, vow_field **ret_fields);

#endif
