/* SPDX-License-Identifier: MIT */
/* vow/name.h - names of work.
 *
 * A name is a hash of everything the work depends on, so callers with the same
 * work request the same name. Hash everything that changes the result: the
 * input, the version of the code, the user the work is done for. Every field is
 * hashed with its length, so "a","bc" and "ab","c" are two names.
 *
 * Owner: a plain value of 32 bytes.
 * Threads: any.
 */
#ifndef VOW_NAME_H
#define VOW_NAME_H

#include "vow/common.h"

VOW_BEGIN_DECLS

typedef struct vow_name {
    unsigned char hash[32]; /* keyed BLAKE2b-256 */
} vow_name;

/* A secret key of 16 to 64 bytes. Without the key, other programs cannot guess
 * or make the names. NULL: every program can make the names. */
typedef struct vow_name_key {
    size_t size; /* of the key, in bytes */
    unsigned char bytes[64];
} vow_name_key;

typedef struct vow_field {
    const void *data;
    size_t size;
} vow_field;

/* Returns a field of the text, without the final NUL; borrowed. */
VOW_API VOW_ANY_THREAD vow_field vow_field_text(const char *text);

/* Return the name of a text, and of fields in order. A key with an invalid size
 * counts as NULL. Since 0.1. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
vow_name vow_name_of(const char *text);
VOW_API VOW_ANY_THREAD vow_name vow_name_make(const vow_name_key *key,
                                              const vow_field *fields,
                                              size_t n);

/* Returns the name of a step on the result of `parent`. Pipelines with the same
 * first steps have the same names for these steps. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(2)
vow_name vow_name_step(const vow_name_key *key, const vow_name *parent,
                       const vow_field *fields, size_t n);

VOW_API VOW_ANY_THREAD VOW_NONNULL(1, 2)
bool vow_name_equal(const vow_name *a, const vow_name *b);

/* Write and read the printed form: 43 letters, digits, - and _ (base64url),
 * perhaps with a dash first. vow_name_text() returns `text`. vow_name_parse()
 * returns false for any text not written by vow_name_text(). */
enum { VOW_NAME_TEXT = 44 };
VOW_API VOW_ANY_THREAD VOW_NONNULL(1, 2)
char *vow_name_text(const vow_name *n, char text[VOW_NAME_TEXT]);
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(1, 2)
bool vow_name_parse(const char *text, vow_name *ret_name);

VOW_END_DECLS

#endif
