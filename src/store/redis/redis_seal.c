/* SPDX-License-Identifier: MIT */
/* redis_seal.c - results encrypted with a key of the users.
 *
 * WHY   The administrator of the server, or an attacker on the server, can read
 *       every result, and answer with the result of another name. With a key
 *       that only the workers have, both are impossible: at worst a result is
 *       missing.
 * HOW   XChaCha20-Poly1305 with a random nonce:
 *           version (2)  nonce  made (ms)  ttl (ms)  sealed value  tag
 *       Version, made, ttl, name, epoch, part and prefix are authenticated with
 *       the value: a value opens only for the same owner, and not after the
 *       ttl.
 * LIMITS  The server still sees names, sizes and times, and the runners. The
 *       server can answer with an earlier result of the name until the ttl has
 *       passed, by the clocks of the host that sealed and the host that opens.
 * THREADS  loop thread only.
 */
#include "base/bytes.h"
#include "base/clock.h"
#include "store/net/address.h"
#include "store/redis/redis_internal.h"

#include <sodium.h>
#include <string.h>

enum {
    VERSION = 2,
    NONCE = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
    TAG = crypto_aead_xchacha20poly1305_ietf_ABYTES,
    MADE = 1 + NONCE, /* where the times are */
    HEAD = MADE + 8 + 8,
    ABOUT = 1 + 8 + 8 + 32 + 8 + 8
};
_Static_assert(HEAD + TAG == VOW__SEAL_MORE, "as the header says");
_Static_assert(sizeof(((struct vow__redis_where *)0)->seal) ==
                   crypto_aead_xchacha20poly1305_ietf_KEYBYTES,
               "a key of the cipher");

/* What is authenticated, the prefix behind the rest. */
struct about {
    unsigned char bytes[ABOUT + VOW__ADDRESS_PREFIX];
    size_t n;
};

static void write_number(unsigned char *to, uint64_t number);
static uint64_t read_number(const unsigned char *from);
static void write_about(struct about *a, const char *prefix,
                        const unsigned char *head,
                        const struct vow__seal_of *of);
static uint64_t date_ms(void);
static bool is_over(const unsigned char *head);

int vow__redis_seal(struct vow__redis *r, const struct vow__seal_of *of,
                    uint64_t ttl_ms, vow_bytes *plain, vow_bytes **ret_sealed)
{
    const struct vow__redis_where *w = vow__redis_where_of(r);
    struct about about;
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
    write_number(to + MADE, date_ms());
    write_number(to + MADE + 8, ttl_ms);
    write_about(&about, w->prefix, to, of);
    (void)crypto_aead_xchacha20poly1305_ietf_encrypt(
        to + HEAD, NULL, vow_bytes_data(plain), n, about.bytes, about.n, NULL,
        to + 1, w->seal);
    *ret_sealed = sealed;
    return 0;
}

int vow__redis_unseal(struct vow__redis *r, const struct vow__seal_of *of,
                      const char *bytes, size_t n, vow_bytes **ret_plain)
{
    const struct vow__redis_where *w = vow__redis_where_of(r);
    const unsigned char *from = (const unsigned char *)bytes;
    struct about about;
    vow_bytes *plain;
    if (!w->sealed)
        return vow__bytes_make(vow__redis_alloc(r), bytes, n, ret_plain);
    if (n > 0 && from[0] == VERSION - 1)
        return VOW_ENOENT;
    if (n < VOW__SEAL_MORE || from[0] != VERSION)
        return VOW_EIO;
    if (sodium_init() < 0)
        return VOW_ENOMEM;
    int rc = vow__bytes_room(vow__redis_alloc(r), n - VOW__SEAL_MORE, &plain);
    if (rc < 0)
        return rc;
    write_about(&about, w->prefix, from, of);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(
            vow_bytes_data(plain), NULL, NULL, from + HEAD, n - HEAD,
            about.bytes, about.n, from + 1, w->seal) != 0)
        rc = VOW_EIO;
    else if (is_over(from))
        rc = VOW_ENOENT;
    if (rc < 0)
        vow_bytes_unref(plain);
    else
        *ret_plain = plain;
    return rc;
}

/* A clock that has gone back, or is behind that of who sealed it, makes it no
 * older. */
static bool is_over(const unsigned char *head)
{
    uint64_t made_ms = read_number(head + MADE);
    uint64_t ttl_ms = read_number(head + MADE + 8);
    uint64_t now_ms = date_ms();
    return now_ms > made_ms && now_ms - made_ms > ttl_ms;
}

static uint64_t date_ms(void)
{
    return vow__clock_date_us() / 1000;
}

static void write_about(struct about *a, const char *prefix,
                        const unsigned char *head,
                        const struct vow__seal_of *of)
{
    size_t n = strlen(prefix);
    a->bytes[0] = VERSION;
    memcpy(a->bytes + 1, head + MADE, 16);
    memcpy(a->bytes + 17, of->name->hash, sizeof(of->name->hash));
    write_number(a->bytes + 49, of->epoch);
    write_number(a->bytes + 57, of->part);
    VOW__ASSERT(n <= sizeof(a->bytes) - ABOUT);
    memcpy(a->bytes + ABOUT, prefix, n);
    a->n = ABOUT + n;
}

static void write_number(unsigned char *to, uint64_t number)
{
    for (int i = 7; i >= 0; i--) {
        to[i] = (unsigned char)number;
        number >>= 8;
    }
}

static uint64_t read_number(const unsigned char *from)
{
    uint64_t number = 0;
    for (int i = 0; i < 8; i++)
        number = number << 8 | from[i];
    return number;
}
