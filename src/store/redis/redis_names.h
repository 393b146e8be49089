/* SPDX-License-Identifier: MIT */
/* redis_names.h - records from the answers of a server, for the steps on names
 * and for events. See redis_answer.c.
 */
#ifndef VOW_STORE_REDIS_NAMES_H
#define VOW_STORE_REDIS_NAMES_H

#include "store/redis/redis_internal.h"

/* Numbers in scripts are exact up to here; an end that is larger is none. */
#define VOW__REDIS_NUMBER_MAX (UINT64_C(1) << 53)
/* A hundred years: a lease or a result that is to last longer lasts so long,
 * or has no end. */
#define VOW__REDIS_MS_MAX (UINT64_C(100) * 366 * 24 * 3600 * 1000)
/* Values of one name and epoch: a failure cannot be passed off as a result. */
#define VOW__PART_DONE UINT64_C(0)
#define VOW__PART_FAILED UINT64_MAX

/* ---- redis_answer.c: records from what a server says --------------------- */

struct vow__redis_texts {
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
};

/* The state of a record, as the scripts write it. */
enum {
    VOW__STATE_RUNS = 'R',
    VOW__STATE_DONE = 'D',
    VOW__STATE_FAILED = 'E',
    VOW__STATE_GAVE_UP = 'G'
};

/* Reads a row of a record into `out`: all but name, status, waiters and value.
 * `texts` NULL: without label and runner. Returns the state, or VOW_EIO: the
 * row makes no sense. */
int vow__redis_row(const struct vow__resp *row, uint64_t now_us,
                   struct vow__redis_texts *texts, vow_record *out);
/* The value of a settled record in this state, counted. VOW_ENOMEM; VOW_ESTORE
 * with the trouble told: it is too large, or does not open; VOW_ENOENT: it is
 * sealed, and over. */
int vow__redis_value(struct vow__redis *r, const vow_record *of, int state,
                     const struct vow__resp *value, vow_bytes **ret_value);
/* A text that may be any bytes, cut at a NUL and at `room`. */
void vow__redis_text_copy(char *to, size_t room, const char *from, size_t n);
/* Bytes of a text that is cut at VOW_LABEL_MAX, not within a character. */
size_t vow__redis_text_size(const char *text);

#endif
