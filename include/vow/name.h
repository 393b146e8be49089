/* SPDX-License-Identifier: MIT */
/* vow/name.h - agreed-upon names of work.
 *
 * A name is a hash of what the work depends on, so that everybody who would do
 * the same work asks for the same name. Put everything into it that changes the
 * result: the input, the version of the code, on whose behalf it is done. Each
 * field goes in with its length, so that "a","bc" and "ab","c" are two names.
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

/* A secret of those who share work: names that were made with it cannot be
 * guessed or met by others. 16 to 64 bytes; NULL: names everybody can make. */
typedef struct vow_name_key {
    size_t size;
    unsigned char bytes[64];
} vow_name_key;

typedef struct vow_field {
    const void *data;
    size_t size;
} vow_field;

/* A field of a text without its final NUL. */
VOW_API VOW_ANY_THREAD vow_field vow_field_text(const char *text);

/* The name of a text; of fields, in their order. A key of a size that is not
 * allowed counts as NULL. Since 0.1. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
vow_name vow_name_of(const char *text);
VOW_API VOW_ANY_THREAD vow_name vow_name_make(const vow_name_key *key,
                                              const vow_field *fields,
                                              size_t n);

/* The name of a step done on the result of `parent`: all pipelines that begin
 * with the same steps have the same names for them. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(2)
vow_name vow_name_step(const vow_name_key *key, const vow_name *parent,
                       const vow_field *fields, size_t n);

VOW_API VOW_ANY_THREAD VOW_NONNULL(1, 2)
bool vow_name_equal(const vow_name *a, const vow_name *b);

/* The printed form: 43 letters, digits, - and _ (base64url), which may begin
 * with a dash. vow_name_text() returns `text`. vow_name_parse(): false for
 * anything else than what vow_name_text() writes. */
enum { VOW_NAME_TEXT = 44 };
VOW_API VOW_ANY_THREAD VOW_NONNULL(1, 2)
char *vow_name_text(const vow_name *n, char text[VOW_NAME_TEXT]);
VOW_API VOW_ANY_THREAD VOW_MUST_USE VOW_NONNULL(1, 2)
bool vow_name_parse(const char *text, vow_name *ret_name);

VOW_END_DECLS

#endif
