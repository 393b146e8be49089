/* SPDX-License-Identifier: MIT */
/* redis_seal.c - results that only those with the key can read.
 *
 * WHY   Who runs the server, or has broken into it, can read every result, and
 *       give one for another. With a key that only the workers have, they can
 *       do neither: at worst a result is missing.
 * HOW   XChaCha20-Poly1305 with a random nonce:
 *           version (1)  nonce  what was sealed  tag
 *       What it belongs to (version, name, epoch, part) is authenticated with
 *       it, so that nothing opens in another's place.
 * LIMITS  The server still sees names, sizes and times, and who works.
 * THREADS  loop thread only.
 */
#include "base/bytes.h"
#include "store/redis/redis_internal.h"

#include <sodium.h>
#include <string.h>

enum {
    VERSION = 1,
    NONCE = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
    TAG = crypto_aead_xchacha20poly1305_ietf_ABYTES,
    HEAD = 1 + NONCE,
    ABOUT = 1 + 32 + 8 + 8
};
_Static_assert(HEAD + TAG == VOW__SEAL_MORE, "as the header says");
_Static_assert(sizeof(((struct vow__redis_where *)0)->seal) ==
                   crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
               "a key of the cipher");

static void write_number(unsigned char *to, uint64_t number);
static void write_about(unsigned char to[ABOUT], const struct vow__seal_of *of);

int vow__redis_seal(struct vow__redis *r, const struct vow__seal_of *of,
                    vow_bytes *plain, vow_bytes **ret_sealed)
{
    const struct vow__redis_where *w = vow__redis_where_of(r);
    unsigned char about[ABOUT];
    size_t n = vow_bytes_size(plain);
    vow_bytes *sealed;
    if (!w->sealed) {
        *ret_sealed = vow_bytes_ref(plain);
        return 0;
    }
    if (sodium_init() < 0 || n > SIZE_MAX - VOW__SEAL_MORE)
        return VOW_ENOMEM;
    int rc = vow__bytes_room(vow__redis_alloc(r), n + VOW__SEAL_MORE, &sealed);
    if (rc < 0)
        return rc;
    unsigned char *to = vow_bytes_data(sealed);
    to[0] = VERSION;
    randombytes_buf(to + 1, NONCE);
    write_about(about, of);
    (void)crypto_aead_xchacha20poly1305_ietf_encrypt(
        to + HEAD, NULL, vow_bytes_data(plain), n, about, sizeof(about), NULL,
        to + 1, w->seal);
    *ret_sealed = sealed;
    return 0;
}

int vow__redis_unseal(struct vow__redis *r, const struct vow__seal_of *of,
                      const char *bytes, size_t n, vow_bytes **ret_plain)
{
    const struct vow__redis_where *w = vow__redis_where_of(r);
    const unsigned char *from = (const unsigned char *)bytes;
    unsigned char about[ABOUT];
    vow_bytes *plain;
    if (!w->sealed)
        return vow__bytes_make(vow__redis_alloc(r), bytes, n, ret_plain);
    if (n < VOW__SEAL_MORE || from[0] != VERSION)
        return VOW_EIO;
    if (sodium_init() < 0)
        return VOW_ENOMEM;
    int rc = vow__bytes_room(vow__redis_alloc(r), n - VOW__SEAL_MORE, &plain);
    if (rc < 0)
        return rc;
    write_about(about, of);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(
            vow_bytes_data(plain), NULL, NULL, from + HEAD, n - HEAD, about,
            sizeof(about), from + 1, w->seal) != 0) {
        vow_bytes_unref(plain);
        return VOW_EIO;
    }
    *ret_plain = plain;
    return 0;
}

static void write_about(unsigned char to[ABOUT], const struct vow__seal_of *of)
{
    to[0] = VERSION;
    memcpy(to + 1, of->name->hash, sizeof(of->name->hash));
    write_number(to + 33, of->epoch);
    write_number(to + 41, of->part);
}

static void write_number(unsigned char *to, uint64_t number)
{
    for (int i = 7; i >= 0; i--) {
        to[i] = (unsigned char)number;
        number >>= 8;
    }
}
