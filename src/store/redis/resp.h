/* SPDX-License-Identifier: MIT */
/* resp.h - the words of Redis: RESP3 values from bytes, commands to bytes. See
 * resp.c. No input or output, no clock.
 */
#ifndef VOW_STORE_REDIS_RESP_H
#define VOW_STORE_REDIS_RESP_H

#include "base/buf.h"

#include <stdint.h>

/* ---- values from bytes -------------------------------------------------- */

enum vow__resp_kind {
    VOW__RESP_NIL,    /* _ and the old $-1 and *-1 */
    VOW__RESP_TEXT,   /* + $ = , ( : text; of = without its three letters */
    VOW__RESP_NUMBER, /* : and # (1 or 0) */
    VOW__RESP_ERROR,  /* - ! */
    VOW__RESP_LIST,   /* * ~ and % (keys and values in turn) */
    VOW__RESP_PUSH    /* > only outermost */
};

struct vow__resp {
    enum vow__resp_kind kind;
    int64_t number;
    const char *text; /* TEXT, ERROR: `n` bytes, no zero behind them */
    size_t n;         /* of the text, or of the list */
    const struct vow__resp *items;
};

enum { VOW__RESP_DEPTH = 8 }; /* of lists in lists */

struct vow__resp_limits {
    size_t bytes; /* of one value with all it has */
    size_t items; /* in one value, all levels together */
    size_t push;  /* bytes of a push; 0: as of any value */
};

struct vow__parser;
int vow__parser_new(const struct vow_alloc *alloc,
                    const struct vow__resp_limits *limits,
                    struct vow__parser **ret_parser);
void vow__parser_free(struct vow__parser *p);
/* More bytes have come (copied). VOW_ENOMEM. */
int vow__parser_feed(struct vow__parser *p, const char *bytes, size_t n);
/* The next whole value, borrowed until the next call: 1. 0: more bytes are
 * needed. VOW_EIO: this is not RESP, or above a limit; `vow__parser_why` tells,
 * and the parser is of no more use. VOW_ENOMEM. The work is linear in the bytes
 * however they are cut. Attributes (|) are read and left out. */
int vow__parser_next(struct vow__parser *p, const struct vow__resp **ret_value);
const char *vow__parser_why(const struct vow__parser *p);
/* Limit the bytes of values that begin from now on and are no pushes. */
void vow__parser_expect(struct vow__parser *p, size_t bytes);
/* The bytes that have come of a value which is not whole; 0 for a push, and for
 * what has attributes, since it may be one. */
size_t vow__parser_partial(const struct vow__parser *p);

/* Words of a value that may be of any kind; is it this text? */
bool vow__resp_is(const struct vow__resp *v, const char *text);
/* Item `i` of a list, or a NIL. */
const struct vow__resp *vow__resp_at(const struct vow__resp *v, size_t i);
/* The value behind a key in a list of keys and values, or a NIL. */
const struct vow__resp *vow__resp_of(const struct vow__resp *v,
                                     const char *key);
/* A number, or a text that is one, not negative and at most INT64_MAX; else
 * `otherwise`. */
uint64_t vow__resp_uint(const struct vow__resp *v, uint64_t otherwise);

/* ---- commands to bytes -------------------------------------------------- */

/* A command is a writer of base/buf.h, with a password perhaps: freed by
 * vow__buf_fini(). */
void vow__command_init(struct vow__buf *c, const struct vow_alloc *alloc);
/* A command of so many words, then its words. */
void vow__command_begin(struct vow__buf *c, size_t words);
void vow__command_add(struct vow__buf *c, const void *bytes, size_t n);
void vow__command_text(struct vow__buf *c, const char *text);
void vow__command_uint(struct vow__buf *c, uint64_t number);

#endif
