/* SPDX-License-Identifier: MIT */
/* name.c - names of work: keyed BLAKE2b-256 over fields with their lengths.
 *
 * HOW   One hash state per name: first a byte that separates plain names from
 *       steps, for a step the name of the parent, then every field after its
 *       length in eight bytes, little-endian. Without a key of the caller, the
 *       key of the library separates these names from hashes that other
 *       programs make of the same bytes.
 */
#include "vow/name.h"

#include <sodium.h>
#include <string.h>

enum { LENGTH_BYTES = 8, KIND_NAME = 'n', KIND_STEP = 's' };

static const unsigned char public_key[] = "vow: a name of work, version 1";

_Static_assert(sizeof(((vow_name *)0)->hash) == crypto_generichash_BYTES,
               "a name is one hash");

static void name_begin(crypto_generichash_state *s, const vow_name_key *key,
                       unsigned char kind);
static vow_name name_finish(crypto_generichash_state *s,
                            const vow_field *fields, size_t n);

vow_field vow_field_text(const char *text)
{
    vow_field f = {.data = text, .size = text == NULL ? 0 : strlen(text)};
    return f;
}

vow_name vow_name_of(const char *text)
{
    vow_field field = vow_field_text(text);
    return vow_name_make(NULL, &field, 1);
}

vow_name vow_name_make(const vow_name_key *key, const vow_field *fields,
                       size_t n)
{
    crypto_generichash_state s;
    name_begin(&s, key, KIND_NAME);
    return name_finish(&s, fields, n);
}

vow_name vow_name_step(const vow_name_key *key, const vow_name *parent,
                       const vow_field *fields, size_t n)
{
    crypto_generichash_state s;
    name_begin(&s, key, KIND_STEP);
    (void)crypto_generichash_update(&s, parent->hash, sizeof(parent->hash));
    return name_finish(&s, fields, n);
}

static void name_begin(crypto_generichash_state *s, const vow_name_key *key,
                       unsigned char kind)
{
    const unsigned char *bytes = public_key;
    size_t size = sizeof(public_key) - 1;
    if (key != NULL && key->size >= crypto_generichash_KEYBYTES_MIN &&
        key->size <= sizeof(key->bytes)) {
        bytes = key->bytes;
        size = key->size;
    }
    (void)crypto_generichash_init(s, bytes, size, crypto_generichash_BYTES);
    (void)crypto_generichash_update(s, &kind, 1);
}

static vow_name name_finish(crypto_generichash_state *s,
                            const vow_field *fields, size_t n)
{
    vow_name name;
    for (size_t i = 0; i < n; i++) {
        unsigned char length[LENGTH_BYTES];
        for (int k = 0; k < LENGTH_BYTES; k++)
            length[k] = (unsigned char)((uint64_t)fields[i].size >> (8 * k));
        (void)crypto_generichash_update(s, length, sizeof(length));
        if (fields[i].size > 0)
            (void)crypto_generichash_update(s, fields[i].data, fields[i].size);
    }
    (void)crypto_generichash_final(s, name.hash, sizeof(name.hash));
    return name;
}

bool vow_name_equal(const vow_name *a, const vow_name *b)
{
    return memcmp(a->hash, b->hash, sizeof(a->hash)) == 0;
}

_Static_assert(sodium_base64_ENCODED_LEN(
                   crypto_generichash_BYTES,
                   sodium_base64_VARIANT_URLSAFE_NO_PADDING) == VOW_NAME_TEXT,
               "the printed form and its end");

char *vow_name_text(const vow_name *n, char text[VOW_NAME_TEXT])
{
    return sodium_bin2base64(text, VOW_NAME_TEXT, n->hash, sizeof(n->hash),
                             sodium_base64_VARIANT_URLSAFE_NO_PADDING);
}

bool vow_name_parse(const char *text, vow_name *ret_name)
{
    vow_name n;
    size_t size = 0;
    if (strlen(text) != VOW_NAME_TEXT - 1 ||
        sodium_base642bin(n.hash, sizeof(n.hash), text, VOW_NAME_TEXT - 1, NULL,
                          &size, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0 ||
        size != sizeof(n.hash))
        return false;
    *ret_name = n;
    return true;
}
