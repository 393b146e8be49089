/* SPDX-License-Identifier: MIT */
/* input.h - reads the items of jobs.
 *
 * Items are words behind :::, lines of files (::::, -a), or lines of stdin. The
 * first source is read on demand and never further than a buffer; if there are
 * several sources, each item of the first source is combined with all items of
 * the others, which are kept in memory; the last source varies fastest.
 * THREADS  loop thread only.
 */
#ifndef VOW_CLI_INPUT_H
#define VOW_CLI_INPUT_H

#include "text.h"

#include <vow.h>

struct input_opts {
    char delimiter;      /* byte behind each item; usually a newline */
    const char *columns; /* -C: separator of columns; NULL: no columns */
    bool header;         /* the first item of each source names the columns */
    size_t per_job;      /* -n: items per job, at most */
};

/* The items of one job, each with a NUL behind the item. Many jobs may wait, so
 * the items take as few bytes as possible. */
struct items {
    struct text bytes;
    size_t n;
};

/* The positions of the items and of the fields. The fields are the columns of
 * all items, or the items themselves. The memory is used again for each job. */
struct spans {
    struct span *items;
    size_t n_items;
    struct span *fields;
    size_t n_fields;
    struct span *all; /* memory of `items` and `fields` */
    size_t n;
    size_t room;
};
void spans_of(const struct items *i, const char *columns, struct spans *ret);

struct input;

/* Opens the sources. `words` begin with ::: or ::::, or are empty; `files` are
 * the files of -a. Exits with a message when a file cannot be read. */
struct input *input_new(vow_loop *loop, const struct input_opts *o,
                        char *const *words, size_t n, const char *const *files,
                        size_t n_files);
/* Returns the names of the header, which was read by input_new(); input_new()
 * exits if there is no first line. The names live as long as the input. */
const struct span *input_names(struct input *in, size_t *ret_n);

/* Returns the most fields that a job can have; 0: not known before all was
 * read. */
size_t input_fields_most(const struct input *in);

/* Returns whether the word begins a list of items: ::: or ::::. */
bool input_is_separator(const char *word);

/* Reads the items of the next job. Returns 1; 0 at the end; VOW_EAGAIN with a
 * future to wait for; or another code: then the error message was written, and
 * there are no more jobs. */
int input_next(struct input *in, struct items *ret_items,
               vow_future **ret_wait);

/* Fulfils the future of input_next(), so that the waiter does not wait for
 * input any longer. */
void input_wake(struct input *in);

/* Returns the number of jobs in all, 0: not known. *ret_open: the number is an
 * estimate from the part of the file that was read. */
uint64_t input_total(const struct input *in, bool *ret_open);

#endif
