/* SPDX-License-Identifier: MIT */
/* input.h - where the items of jobs come from.
 *
 * Words behind :::, lines of files (::::, -a), or lines of stdin. The first
 * source is read as it is needed and never further than a buffer; if there are
 * several, each item of the first is combined with all of the others, which are
 * kept in memory, the last one varying fastest.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_INPUT_H
#define VOW_CLI_INPUT_H

#include "text.h"

#include <vow.h>

struct input_opts {
    char delimiter;      /* of items: newline */
    const char *columns; /* -C: what separates columns; NULL: none */
    bool header;         /* the first item of each source names its columns */
    size_t per_job;      /* -n: items */
};

/* The items of one job, each with a NUL behind it: so many may wait that they
 * are kept as small as can be. */
struct items {
    struct text bytes;
    size_t n;
};

/* Where the items are, and their fields: the columns of all of them, or the
 * items again. Made again and again in the same memory. */
struct spans {
    struct span *items;
    size_t n_items;
    struct span *fields;
    size_t n_fields;
    struct span *all; /* of both */
    size_t n;
    size_t room;
};
void spans_of(const struct items *i, const char *columns, struct spans *ret);

struct input;

/* `words` begin with ::: or :::: or are empty; `files` are those of -a. Ends the
 * program with a sentence when a file cannot be read. */
struct input *input_new(vow_loop *loop, const struct input_opts *o,
                        char *const *words, size_t n, const char *const *files,
                        size_t n_files);
/* The names of the header, once it was read; the program ends if there is no
 * first line. They live as long as the input. */
const struct span *input_names(struct input *in, size_t *ret_n);

/* The most fields that a job can have; 0: not known before all was read. */
size_t input_fields_most(const struct input *in);

/* Does a list of items begin here: ::: or ::::? */
bool input_is_separator(const char *word);

/* The items of the next job: 1, 0 at the end, VOW_EAGAIN and a future to wait
 * for, or another code: what was wrong has been told, and nothing more comes.
 */
int input_next(struct input *in, struct items *ret_items,
               vow_future **ret_wait);

/* Who waits for input need not any longer. */
void input_wake(struct input *in);

/* How many jobs there will be, 0: not known; *ret_open: it is a guess from the
 * part of the file that was read. */
uint64_t input_total(const struct input *in, bool *ret_open);

#endif
