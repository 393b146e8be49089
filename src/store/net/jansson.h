/* SPDX-License-Identifier: MIT */
/* jansson.h - jansson's functions, loaded when the first one is needed.
 *
 * WHY   As OpenSSL: see library.c.
 * HOW   A table that is filled by dlsym(), and macros that send calls there,
 *       also those that jansson's own macros make (json_array_foreach and kin).
 *       json_decref() is inline in jansson's header and calls json_delete();
 *       that name is a function of ours, so both may be used as ever. What is
 *       not in the table does not link. Whoever includes this calls
 *       vow__jansson_load() first.
 * LIMITS  what it allocates does not come through our allocator: to change that
 *       would change it for the whole program.
 */
#ifndef VOW_STORE_NET_JANSSON_H
#define VOW_STORE_NET_JANSSON_H

#define json_delete vow__jansson_delete
#include <jansson.h>
#include <stddef.h>

#define VOW__JANSSON(X)                                                        \
    X(json_array_get)                                                          \
    X(json_array_size)                                                         \
    X(json_delete)                                                             \
    X(json_integer_value)                                                      \
    X(json_loadb)                                                              \
    X(json_object_get)                                                         \
    X(json_object_iter)                                                        \
    X(json_object_iter_key)                                                    \
    X(json_object_iter_next)                                                   \
    X(json_object_iter_value)                                                  \
    X(json_object_key_to_iter)                                                 \
    X(json_object_size)                                                        \
    X(json_real_value)                                                         \
    X(json_string_length)                                                      \
    X(json_string_value)

struct vow__jansson {
#define VOW__POINTER(name) __typeof__(name) *name;
    VOW__JANSSON(VOW__POINTER)
#undef VOW__POINTER
};
extern struct vow__jansson vow__jansson;

/* From any thread, any number of times. VOW_ENOTSUP with a sentence in `why`:
 * it is not installed. */
int vow__jansson_load(char *why, size_t why_size);

#ifndef VOW__JANSSON_TABLE
#define json_array_get vow__jansson.json_array_get
#define json_array_size vow__jansson.json_array_size
#define json_integer_value vow__jansson.json_integer_value
#define json_loadb vow__jansson.json_loadb
#define json_object_get vow__jansson.json_object_get
#define json_object_iter vow__jansson.json_object_iter
#define json_object_iter_key vow__jansson.json_object_iter_key
#define json_object_iter_next vow__jansson.json_object_iter_next
#define json_object_iter_value vow__jansson.json_object_iter_value
#define json_object_key_to_iter vow__jansson.json_object_key_to_iter
#define json_object_size vow__jansson.json_object_size
#define json_real_value vow__jansson.json_real_value
#define json_string_length vow__jansson.json_string_length
#define json_string_value vow__jansson.json_string_value
#endif

#endif
