/* SPDX-License-Identifier: MIT */
/* resp_fuzz.c - any bytes to the reader of RESP, whole and cut.
 *
 * The first byte chooses the limits and how it is cut. Both ways must tell the
 * same values and end with the same sentence; memory stays within what the
 * limits allow. Built with -fsanitize=fuzzer it is a fuzzer; with
 * -DVOW_FUZZ_ALONE a program that runs the files it is given, or without any a
 * seeded walk from seeds of its own:
 *
 *     clang -g -O1 -Isrc -Iinclude -D_GNU_SOURCE -fsanitize=fuzzer,address
 *         tests/fuzz/resp_fuzz.c src/store/redis/resp.c src/base/{alloc,buf}.c
 */
#include "store/redis/resp.h"

#include "vow/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES_MAX = 4096, ITEMS_MAX = 256, OVERHEAD = 64 * 1024 };

struct memory {
    size_t live;
    size_t most;
};

/* What was read, as a number. */
struct digest {
    uint64_t sum;
    size_t values;
};

static void *count(void *ctx, void *ptr, size_t old_size, size_t new_size)
{
    struct memory *m = ctx;
    m->live += new_size - old_size;
    if (m->live > m->most)
        abort();
    if (new_size == 0) {
        free(ptr);
        return NULL;
    }
    return realloc(ptr, new_size);
}

static void add(struct digest *d, const void *bytes, size_t n)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < n; i++)
        d->sum = (d->sum ^ at[i]) * UINT64_C(0x100000001b3);
}

static void add_value(struct digest *d, const struct vow__resp *v)
{
    uint64_t seen = vow__resp_uint(v, 1) + vow__resp_is(v, "OK") +
                    (uint64_t)vow__resp_of(v, "a")->kind;
    add(d, &v->kind, sizeof(v->kind));
    add(d, &v->number, sizeof(v->number));
    add(d, &v->n, sizeof(v->n));
    add(d, &seen, sizeof(seen));
    if (v->kind == VOW__RESP_TEXT || v->kind == VOW__RESP_ERROR)
        add(d, v->text, v->n);
    if (v->kind == VOW__RESP_LIST || v->kind == VOW__RESP_PUSH)
        for (size_t i = 0; i < v->n; i++) /* at most VOW__RESP_DEPTH deep */
            add_value(d, vow__resp_at(v, i));
}

/* In parts of `part` bytes, which becomes more; 0: whole. */
static void read_all(struct vow__parser *p, const uint8_t *data, size_t size,
                     size_t part, struct digest *d)
{
    const struct vow__resp *v = NULL;
    int rc = 0;
    for (size_t at = 0; at < size && rc == 0;) {
        size_t n = part == 0 || part > size - at ? size - at : part;
        if (vow__parser_feed(p, (const char *)data + at, n) != 0)
            abort();
        at += n;
        while ((rc = vow__parser_next(p, &v)) == 1) {
            add_value(d, v);
            d->values++;
        }
    }
    if (rc < 0)
        add(d, vow__parser_why(p), strlen(vow__parser_why(p)));
    if (rc < 0 && (rc != VOW_EIO || *vow__parser_why(p) == '\0'))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    size_t part = data[0] % 16;
    bool small = (data[0] & 128) != 0;
    struct vow__resp_limits limits = {.bytes = small ? 64 : BYTES_MAX,
                                      .items = small ? 8 : ITEMS_MAX};
    struct memory m = {.most = OVERHEAD + 4 * size + 4 * limits.bytes +
                               3 * limits.items * sizeof(struct vow__resp)};
    struct vow_alloc alloc = {.fn = count, .ctx = &m};
    struct digest whole = {.sum = 1};
    struct digest cut = {.sum = 1};
    struct vow__parser *p = NULL;
    if (vow__parser_new(&alloc, &limits, &p) != 0)
        abort();
    read_all(p, data + 1, size - 1, 0, &whole);
    vow__parser_free(p);
    if (vow__parser_new(&alloc, &limits, &p) != 0)
        abort();
    read_all(p, data + 1, size - 1, part + 1, &cut);
    vow__parser_free(p);
    if (whole.sum != cut.sum || whole.values != cut.values || m.live != 0)
        abort();
    return 0;
}

#ifdef VOW_FUZZ_ALONE

enum { WALKS = 200000, LONGEST = 8192 };

static const char *const seeds[] = {
    "0+OK\r\n-ERR no\r\n:12\r\n_\r\n#t\r\n,1.5\r\n(99\r\n",
    "1$5\r\nhello\r\n$-1\r\n*-1\r\n=7\r\ntxt:abc\r\n!3\r\nERR\r\n",
    "2*2\r\n*1\r\n:1\r\n%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n",
    "3>3\r\n+message\r\n+c\r\n$2\r\nhi\r\n|1\r\n+a\r\n+b\r\n:1\r\n",
    "\x84*8\r\n:1\r\n$60\r\n*?\r\n$?\r\n;1\r\n.\r\n",
};

static uint64_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return *state >> 33;
}

static size_t change(uint8_t *bytes, size_t n, uint64_t *random)
{
    static const char likely[] = "$*%|>~:+-_#=!,(0129?\r\n";
    size_t at = n == 0 ? 0 : (size_t)(next(random) % n);
    switch (next(random) % 3) {
    case 0:
        if (n > 0)
            bytes[at] = (uint8_t)next(random);
        return n;
    case 1:
        if (n < 2)
            return n;
        memmove(bytes + at, bytes + at + 1, n - at - 1);
        return n - 1;
    default:
        if (n == LONGEST)
            return n / 2;
        memmove(bytes + at + 1, bytes + at, n - at);
        bytes[at] = (uint8_t)likely[next(random) % (sizeof(likely) - 1)];
        return n + 1;
    }
}

static void walk(void)
{
    uint64_t random = 1;
    uint8_t bytes[LONGEST];
    for (int i = 0; i < WALKS; i++) {
        const char *seed =
            seeds[next(&random) % (sizeof(seeds) / sizeof(seeds[0]))];
        size_t n = strlen(seed);
        memcpy(bytes, seed, n);
        for (uint64_t j = next(&random) % 8; j > 0; j--)
            n = change(bytes, n, &random);
        (void)LLVMFuzzerTestOneInput(bytes, n);
    }
}

int main(int argc, char **argv)
{
    static uint8_t bytes[1 << 20];
    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (f == NULL) {
            perror(argv[i]);
            return 1;
        }
        size_t n = fread(bytes, 1, sizeof(bytes), f);
        (void)fclose(f);
        (void)LLVMFuzzerTestOneInput(bytes, n);
    }
    if (argc == 1)
        walk();
    return 0;
}

#endif
