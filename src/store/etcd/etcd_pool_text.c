/* SPDX-License-Identifier: MIT */
/* etcd_pool_text.c - the keys of a pool, and the texts of their values.
 *
 * HOW   All keys of a pool are one tree, and the trees of all pools with the
 *       limits of L are in the tree of L: one range reads a pool, another range
 *       all pools that limits concern.
 *
 *           s/L/l            limits
 *           s/L/H/q/TOKEN    a row: a permit or a waiting request of pool H
 *           s/L/H/t/ID       an entry of the rate
 *
 *       A value is lines of `word value` (etcd_line.c). Unknown words are passed
 *       over, so that later versions can say more. Other machines have another
 *       clock: an entry tells the start of the machine, and the age is known
 *       only to processes with the same start.
 * LIMITS  A value that is not one of ours is passed over and counts for nothing.
 * THREADS  loop thread only.
 */
#include "base/clock.h"
#include "store/etcd/etcd_service.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LETTERS = VOW_NAME_TEXT - 1, /* of a name */
    ID_LETTERS = 16,
    TOKEN_LETTERS = 2 * sizeof(vow_token),
    BOOT_LETTERS = 36
};

/* ---- keys ---------------------------------------------------------------- */

struct vow__key vow__etcd_limits_key(const vow_name *limits_of)
{
    return vow__key("s", limits_of, "/l");
}

struct vow__key vow__etcd_pool_key(const struct cas_pool_name *name)
{
    char rest[LETTERS + 3] = "/";
    (void)vow_name_text(&name->pool, rest + 1);
    rest[LETTERS + 1] = '/';
    rest[LETTERS + 2] = 0;
    return vow__key("s", &name->limits_of, rest);
}

static struct vow__key key_below(const struct cas_pool_name *name, char kind,
                                 const char *rest)
{
    struct vow__key key = vow__etcd_pool_key(name);
    size_t n = strlen(key.text);
    (void)snprintf(key.text + n, sizeof(key.text) - n, "%c/%s", kind, rest);
    return key;
}

struct vow__key vow__etcd_row_key(const struct cas_pool_name *name,
                                  const vow_token *token)
{
    char hex[TOKEN_LETTERS + 1];
    (void)sodium_bin2hex(hex, sizeof(hex), token->bytes, sizeof(token->bytes));
    return key_below(name, 'q', hex);
}

struct vow__key vow__etcd_rows_key(const struct cas_pool_name *name)
{
    return key_below(name, 'q', "");
}

struct vow__key vow__etcd_entry_key(const struct cas_pool_name *name,
                                    uint64_t id)
{
    char hex[ID_LETTERS + 1];
    (void)snprintf(hex, sizeof(hex), "%016" PRIx64, id);
    return key_below(name, 't', hex);
}

/* Returns the text behind a name and its slash; NULL: there is no name. */
static const char *key_name(const char *text, vow_name *ret_name)
{
    char name[VOW_NAME_TEXT];
    if (strnlen(text, LETTERS + 1) <= LETTERS || text[LETTERS] != '/')
        return NULL;
    memcpy(name, text, LETTERS);
    name[LETTERS] = 0;
    return vow_name_parse(name, ret_name) ? text + LETTERS + 1 : NULL;
}

/* Reads as many bytes in hex as there is room for, and no more. */
static bool key_hex(const char *text, unsigned char *to, size_t size)
{
    size_t n;
    return strlen(text) == 2 * size &&
           sodium_hex2bin(to, size, text, 2 * size, NULL, &n, NULL) == 0 &&
           n == size;
}

static bool key_id(const char *text, uint64_t *ret_id)
{
    unsigned char bytes[ID_LETTERS / 2];
    if (!key_hex(text, bytes, sizeof(bytes)))
        return false;
    *ret_id = 0;
    for (size_t i = 0; i < sizeof(bytes); i++)
        *ret_id = *ret_id << 8 | bytes[i];
    return true;
}

bool vow__etcd_pool_key_read(const char *key,
                             struct vow__etcd_pool_key *ret_key)
{
    struct vow__etcd_pool_key k = {.kind = VOW__ETCD_KEY_LIMITS};
    if (strncmp(key, "s/", 2) != 0)
        return false;
    const char *at = key_name(key + 2, &k.name.limits_of);
    if (at == NULL)
        return false;
    const char *rest = key_name(at, &k.name.pool);
    bool good = strcmp(at, "l") == 0;
    if (good) {
        k.name.pool = k.name.limits_of;
    } else if (rest != NULL && strncmp(rest, "q/", 2) == 0) {
        k.kind = VOW__ETCD_KEY_ROW;
        good = key_hex(rest + 2, k.token.bytes, sizeof(k.token.bytes));
    } else if (rest != NULL && strncmp(rest, "t/", 2) == 0) {
        k.kind = VOW__ETCD_KEY_ENTRY;
        good = key_id(rest + 2, &k.id);
    }
    if (good)
        *ret_key = k;
    return good;
}

/* ---- reading values ------------------------------------------------------ */

static bool word_find(const struct vow__kv *kv, const char *word,
                      struct vow__line *ret_line)
{
    struct vow__lines rest = {kv->value, kv->size};
    while (vow__line_take(&rest, ret_line))
        if (vow__line_is(ret_line, word))
            return true;
    return false;
}

/* Returns the number of a word, or 0. */
static uint64_t word_number(const struct vow__kv *kv, const char *word)
{
    struct vow__line l;
    uint64_t n;
    return word_find(kv, word, &l) && vow__line_number(&l, &n) ? n : 0;
}

static uint32_t word_small(const struct vow__kv *kv, const char *word)
{
    uint64_t n = word_number(kv, word);
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

static void word_text(const struct vow__kv *kv, const char *word,
                      char to[VOW_LABEL_MAX + 1])
{
    struct vow__line l;
    to[0] = 0;
    if (word_find(kv, word, &l))
        vow__line_text(&l, to);
}

bool vow__etcd_limits_read(const struct vow__kv *kv,
                           vow_pool_limits *ret_limits)
{
    struct vow__line l;
    if (!word_find(kv, "concurrent", &l))
        return false;
    *ret_limits = (vow_pool_limits){.concurrent = word_small(kv, "concurrent"),
                                    .rate = word_small(kv, "rate"),
                                    .window_us = word_number(kv, "window")};
    return true;
}

void vow__etcd_label_read(const struct vow__kv *kv, char to[VOW_LABEL_MAX + 1])
{
    word_text(kv, "label", to);
}

bool vow__etcd_row_read(const struct vow__kv *kv, const vow_token *token,
                        struct rules_row *ret_row)
{
    struct vow__line l;
    uint32_t weight = word_small(kv, "weight");
    if (weight == 0 || !word_find(kv, "lease", &l))
        return false;
    *ret_row = (struct rules_row){.token = *token,
                                  .order = kv->create,
                                  .lease_ms = word_number(kv, "lease"),
                                  .weight = weight,
                                  .marked = word_number(kv, "held") != 0};
    return true;
}

void vow__etcd_row_texts(const struct vow__kv *kv, struct cas_row *row)
{
    row->since_us = word_number(kv, "since");
    word_text(kv, "runner", row->runner);
}

void vow__etcd_row_inst(const struct vow__kv *kv, char to[VOW__ETCD_INST + 1])
{
    char text[VOW_LABEL_MAX + 1];
    word_text(kv, "inst", text);
    size_t n = strspn(text, "0123456789abcdef");
    if (n != VOW__ETCD_INST || text[n] != 0)
        n = 0;
    memcpy(to, text, n);
    to[n] = 0;
}

/* The age is a little less than the time since the write. */
bool vow__etcd_entry_read(const struct vow__etcd_service *s,
                          const struct vow__kv *kv, uint64_t id,
                          struct cas_entry *ret_entry)
{
    char boot[VOW_LABEL_MAX + 1];
    uint64_t now_us = vow__clock_boot_ns() / 1000;
    uint64_t at_us = word_number(kv, "at");
    struct cas_entry e = {.id = id,
                          .version = kv->mod + s->shift,
                          .weight = word_number(kv, "weight"),
                          .open = word_small(kv, "open"),
                          .age_us = RULES_NEVER};
    word_text(kv, "boot", boot);
    if (e.weight == 0 || e.weight > UINT32_MAX)
        return false;
    if (boot[0] != 0 && strcmp(boot, s->boot) == 0 && at_us < now_us)
        e.age_us = now_us - at_us - 1;
    *ret_entry = e;
    return true;
}

/* ---- writing values ------------------------------------------------------ */

void vow__etcd_limits_write(const vow_pool_limits *limits, const char *label,
                            struct vow__buf *value)
{
    vow__buf_print(
        value, "concurrent %" PRIu32 "\nrate %" PRIu32 "\nwindow %" PRIu64 "\n",
        limits->concurrent, limits->rate, limits->window_us);
    vow__line_write(value, "label", label);
}

void vow__etcd_row_write(const struct cas_row *row, const char *label,
                         const char *inst, struct vow__buf *value)
{
    vow__buf_print(value, "weight %" PRIu32 "\nlease %" PRIu64 "\n",
                   row->weight, row->lease_ms);
    if (row->marked)
        vow__buf_text(value, "held 1\n");
    vow__buf_print(value, "since %" PRIu64 "\n", row->since_us);
    vow__line_write(value, "runner", row->runner);
    vow__line_write(value, "inst", inst);
    vow__line_write(value, "label", label);
}

void vow__etcd_entry_write(const struct vow__etcd_service *s,
                           const struct cas_entry *e, const char *label,
                           struct vow__buf *value)
{
    vow__buf_print(value,
                   "weight %" PRIu64 "\nopen %" PRIu32 "\nboot %s\nat %" PRIu64
                   "\n",
                   e->weight, e->open, s->boot, vow__clock_boot_ns() / 1000);
    vow__line_write(value, "label", label);
}

/* Processes with the same text have the same clock since the start of the
 * machine; the clock of a container may be set apart. "": no other process. */
void vow__etcd_boot_read(char *boot, size_t size)
{
    char id[BOOT_LETTERS + 1] = "";
    struct stat clock;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, id, BOOT_LETTERS);
    if (fd >= 0)
        (void)close(fd);
    bool good = n == BOOT_LETTERS && strlen(id) == BOOT_LETTERS &&
                stat("/proc/self/ns/time", &clock) == 0;
    boot[0] = 0;
    if (good)
        (void)snprintf(boot, size, "%s.%lu", id, (unsigned long)clock.st_ino);
}
