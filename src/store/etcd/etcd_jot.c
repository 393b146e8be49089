/* SPDX-License-Identifier: MIT */
/* etcd_jot.c - bodies of requests, and what answers have in them.
 *
 * WHY   Etcd speaks protocol buffers; its gateway writes them as JSON. There
 *       keys and values are base64, whole numbers are strings, and what is zero
 *       is left out. This is the only place that knows.
 * HOW   A request is text that grows. No step looks whether it could grow: it
 *       is remembered, and whoever sends it looks once. A transaction is three
 *       such texts, whose operations are divided by commas.
 *       What an answer has is asked for by word. A word that is missing, or of
 *       another type than etcd gives, is zero.
 * INVARIANTS
 *   J1  a jot that is bad stays bad until it is emptied
 *   J2  text is cleared before it is freed: a body may have a password in it
 * LIMITS  A key of ours has at most 191 bytes behind the prefix.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_internal.h"

#include <sodium.h>
#include <stdarg.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    USUAL = 512, /* bytes that most texts need not grow beyond */
    KEY_MAX = VOW__ETCD_PREFIX_MAX + sizeof(struct vow__key)
};

static bool room_for(struct vow__jot *j, size_t more);
static struct vow__jot *branch_of(struct vow__txn *t, enum vow__branch b);
static void begin(struct vow__jot *j, const char *text);
static void put_key(const struct vow__txn *t, struct vow__jot *j,
                    const struct vow__key *key);
static void put_tree(const struct vow__txn *t, struct vow__jot *j,
                     const struct vow__key *key);
static void put_end(const struct vow__txn *t, struct vow__jot *j,
                    const struct vow__key *key);
static void put_value(struct vow__jot *j, const struct vow__jot *value);
static size_t whole_key(const struct vow__txn *t, const struct vow__key *key,
                        char whole[KEY_MAX]);
static void compare(struct vow__txn *t, const struct vow__key *key,
                    const char *target, const char *relation, uint64_t number);
static void put_parts(struct vow__txn *t, struct vow__jot *to);
static char *decode(const json_t *pair, const char *word,
                    struct vow__jot *memory, size_t *ret_n);

/* ---- text that grows ----------------------------------------------------- */

void vow__jot_init(struct vow__jot *j, const struct vow_alloc *alloc)
{
    *j = (struct vow__jot){.alloc = *alloc};
}

void vow__jot_fini(struct vow__jot *j)
{
    if (j->text != NULL)
        sodium_memzero(j->text, j->room); /* keeps J2 */
    vow__mem_free(&j->alloc, j->text, j->room);
    vow__jot_init(j, &j->alloc);
}

static bool room_for(struct vow__jot *j, size_t more)
{
    if (j->bad)
        return false;
    if (more <= j->room - j->n)
        return true;
    size_t room = j->room < USUAL ? USUAL : j->room;
    while (room - j->n < more && room <= SIZE_MAX / 2)
        room *= 2;
    char *text = room - j->n < more ? NULL : vow__mem_new(&j->alloc, room);
    if (text == NULL) {
        j->bad = true;
        return false;
    }
    size_t n = j->n;
    if (n > 0)
        memcpy(text, j->text, n);
    vow__jot_fini(j);
    j->text = text;
    j->n = n;
    j->room = room;
    return true;
}

void vow__jot_bytes(struct vow__jot *j, const void *bytes, size_t n)
{
    if (n == 0 || !room_for(j, n))
        return;
    memcpy(j->text + j->n, bytes, n);
    j->n += n;
}

void vow__jot_text(struct vow__jot *j, const char *text)
{
    vow__jot_bytes(j, text, strlen(text));
}

void vow__jot_print(struct vow__jot *j, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !room_for(j, (size_t)n + 1)) {
        j->bad = true;
        return;
    }
    va_start(args, format);
    (void)vsnprintf(j->text + j->n, (size_t)n + 1, format, args);
    va_end(args);
    j->n += (size_t)n;
}

void vow__jot_base64(struct vow__jot *j, const void *bytes, size_t n)
{
    if (n > SIZE_MAX / 2)
        j->bad = true;
    size_t room = sodium_base64_encoded_len(j->bad ? 0 : n,
                                            sodium_base64_VARIANT_ORIGINAL);
    if (n == 0 || !room_for(j, room))
        return;
    (void)sodium_bin2base64(j->text + j->n, room, bytes, n,
                            sodium_base64_VARIANT_ORIGINAL);
    j->n += room - 1; /* without the NUL */
}

/* ---- keys ---------------------------------------------------------------- */

struct vow__key vow__key(const char *kind, const vow_name *name,
                         const char *rest)
{
    struct vow__key key;
    char text[VOW_NAME_TEXT] = "";
    if (name != NULL)
        (void)vow_name_text(name, text);
    int n = snprintf(key.text, sizeof(key.text), "%s%s%s%s", kind,
                     name != NULL ? "/" : "", text, rest);
    VOW__ASSERT(n >= 0 && (size_t)n < sizeof(key.text));
    return key;
}

struct vow__key vow__key_behind(const char *key)
{
    struct vow__key behind;
    size_t room = sizeof(behind.text) - 2;
    size_t n = strnlen(key, room + 1);
    (void)snprintf(behind.text, sizeof(behind.text), "%.*s%s", (int)room, key,
                   n > room ? "" : "\x01");
    if (n > room)
        behind.text[room - 1]++;
    return behind;
}

/* ---- a transaction ------------------------------------------------------- */

void vow__txn_init(struct vow__txn *t, const struct vow_alloc *alloc,
                   const char *prefix)
{
    t->prefix = prefix;
    t->due_ns = 0;
    t->writes = false;
    vow__jot_init(&t->compare, alloc);
    vow__jot_init(&t->success, alloc);
    vow__jot_init(&t->failure, alloc);
}

void vow__txn_fini(struct vow__txn *t)
{
    vow__jot_fini(&t->compare);
    vow__jot_fini(&t->success);
    vow__jot_fini(&t->failure);
}

static struct vow__jot *branch_of(struct vow__txn *t, enum vow__branch b)
{
    return b == VOW__THEN ? &t->success : &t->failure;
}

/* One more of those that are divided by commas. */
static void begin(struct vow__jot *j, const char *text)
{
    if (j->n > 0)
        vow__jot_bytes(j, ",", 1);
    vow__jot_text(j, text);
}

static void put_key(const struct vow__txn *t, struct vow__jot *j,
                    const struct vow__key *key)
{
    char whole[KEY_MAX];
    size_t n = whole_key(t, key, whole);
    vow__jot_text(j, "\"key\":\"");
    vow__jot_base64(j, whole, n);
    vow__jot_text(j, "\"");
}

/* All that begins with the key: up to the first that does not, whose last byte
 * is one more. Our keys have no byte 255. */
static void put_tree(const struct vow__txn *t, struct vow__jot *j,
                     const struct vow__key *key)
{
    put_key(t, j, key);
    put_end(t, j, key);
}

static void put_end(const struct vow__txn *t, struct vow__jot *j,
                    const struct vow__key *key)
{
    char end[KEY_MAX];
    size_t n = whole_key(t, key, end);
    VOW__ASSERT(n > 0);
    end[n - 1]++;
    vow__jot_text(j, ",\"range_end\":\"");
    vow__jot_base64(j, end, n);
    vow__jot_text(j, "\"");
}

static void put_value(struct vow__jot *j, const struct vow__jot *value)
{
    j->bad |= value->bad;
    vow__jot_text(j, ",\"value\":\"");
    vow__jot_base64(j, value->text, value->n);
    vow__jot_text(j, "\"");
}

static size_t whole_key(const struct vow__txn *t, const struct vow__key *key,
                        char whole[KEY_MAX])
{
    int n = snprintf(whole, KEY_MAX, "%s%s", t->prefix, key->text);
    VOW__ASSERT(n >= 0 && n < KEY_MAX);
    return (size_t)n;
}

static void compare(struct vow__txn *t, const struct vow__key *key,
                    const char *target, const char *relation, uint64_t number)
{
    struct vow__jot *j = &t->compare;
    begin(j, "{");
    put_key(t, j, key);
    vow__jot_print(j,
                   ",\"target\":\"%s\",\"%s_revision\":\"%llu\","
                   "\"result\":\"%s\"}",
                   target, target[0] == 'M' ? "mod" : "create",
                   (unsigned long long)number, relation);
}

void vow__txn_if_absent(struct vow__txn *t, const struct vow__key *key)
{
    compare(t, key, "CREATE", "EQUAL", 0);
}

void vow__txn_if_there(struct vow__txn *t, const struct vow__key *key)
{
    compare(t, key, "CREATE", "GREATER", 0);
}

/* What is absent has revision 0. */
void vow__txn_if_mod(struct vow__txn *t, const struct vow__key *key,
                     uint64_t mod)
{
    compare(t, key, "MOD", "EQUAL", mod);
}

void vow__txn_if_created(struct vow__txn *t, const struct vow__key *key,
                         uint64_t create)
{
    compare(t, key, "CREATE", "EQUAL", create);
}

void vow__txn_put(struct vow__txn *t, enum vow__branch b,
                  const struct vow__key *key, const struct vow__jot *value,
                  int64_t lease)
{
    struct vow__jot *j = branch_of(t, b);
    t->writes = true;
    begin(j, "{\"request_put\":{");
    put_key(t, j, key);
    if (value != NULL)
        put_value(j, value);
    if (lease == VOW__SAME_LEASE)
        vow__jot_text(j, ",\"ignore_lease\":true");
    else if (lease != 0)
        vow__jot_print(j, ",\"lease\":\"%lld\"", (long long)lease);
    vow__jot_text(j, "}}");
}

void vow__txn_delete(struct vow__txn *t, enum vow__branch b,
                     const struct vow__key *key, unsigned flags)
{
    struct vow__jot *j = branch_of(t, b);
    t->writes = true;
    begin(j, "{\"request_delete_range\":{");
    if ((flags & VOW__TREE) != 0)
        put_tree(t, j, key);
    else
        put_key(t, j, key);
    vow__jot_text(j, "}}");
}

void vow__txn_range(struct vow__txn *t, enum vow__branch b,
                    const struct vow__key *key, unsigned flags)
{
    struct vow__jot *j = branch_of(t, b);
    begin(j, "{\"request_range\":{");
    if ((flags & VOW__TREE) != 0)
        put_tree(t, j, key);
    else
        put_key(t, j, key);
    if ((flags & VOW__COUNT_ONLY) != 0)
        vow__jot_text(j, ",\"count_only\":true");
    if ((flags & VOW__KEYS_ONLY) != 0)
        vow__jot_text(j, ",\"keys_only\":true");
    vow__jot_text(j, "}}");
}

void vow__txn_some(struct vow__txn *t, enum vow__branch b,
                   const struct vow__key *tree, const struct vow__some *some)
{
    struct vow__jot *j = branch_of(t, b);
    begin(j, "{\"request_range\":{");
    if (some->from != NULL) {
        put_key(t, j, some->from);
        put_end(t, j, tree);
    } else {
        put_tree(t, j, tree);
    }
    if (some->keys_only)
        vow__jot_text(j, ",\"keys_only\":true");
    if (some->limit > 0)
        vow__jot_print(j, ",\"limit\":\"%u\"", some->limit);
    if (some->by_creation)
        vow__jot_text(j, ",\"sort_order\":\"ASCEND\""
                         ",\"sort_target\":\"CREATE\"");
    if (some->since > 0)
        vow__jot_print(j, ",\"min_create_revision\":\"%" PRIu64 "\"",
                       some->since);
    vow__jot_text(j, "}}");
}

/* {"compare":[...],"success":[...],"failure":[...]}; it is emptied. */
static void put_parts(struct vow__txn *t, struct vow__jot *to)
{
    static const char *const words[] = {"{\"compare\":[", "],\"success\":[",
                                        "],\"failure\":["};
    struct vow__jot *const parts[] = {&t->compare, &t->success, &t->failure};
    for (size_t i = 0; i < 3; i++) {
        to->bad |= parts[i]->bad;
        vow__jot_text(to, words[i]);
        vow__jot_bytes(to, parts[i]->text, parts[i]->n);
        vow__jot_fini(parts[i]);
    }
    vow__jot_text(to, "]}");
}

void vow__txn_nest(struct vow__txn *t, enum vow__branch b,
                   struct vow__txn *inner)
{
    struct vow__jot *j = branch_of(t, b);
    t->writes |= inner->writes;
    begin(j, "{\"request_txn\":");
    put_parts(inner, j);
    vow__jot_text(j, "}");
}

void vow__txn_body(struct vow__txn *t, struct vow__jot *ret_body)
{
    vow__jot_init(ret_body, &t->compare.alloc);
    put_parts(t, ret_body);
}

/* ---- what answers have --------------------------------------------------- */

uint64_t vow__json_uint(const json_t *object, const char *word)
{
    const json_t *v = json_object_get(object, word);
    if (json_is_integer(v))
        return json_integer_value(v) > 0 ? (uint64_t)json_integer_value(v) : 0;
    const char *text = json_string_value(v);
    uint64_t number = 0;
    for (; text != NULL && *text != 0; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        if (*text < '0' || *text > '9' || number > (UINT64_MAX - digit) / 10)
            return 0;
        number = number * 10 + digit;
    }
    return number;
}

uint64_t vow__json_revision(const json_t *root)
{
    return vow__json_uint(json_object_get(root, "header"), "revision");
}

bool vow__json_succeeded(const json_t *txn)
{
    return json_is_true(json_object_get(txn, "succeeded"));
}

const json_t *vow__json_response(const json_t *txn, size_t i)
{
    const json_t *all = json_object_get(txn, "responses");
    const json_t *one = json_array_get(all, i);
    const json_t *range = json_object_get(one, "response_range");
    return range != NULL ? range : json_object_get(one, "response_txn");
}

bool vow__json_each(const struct vow__etcd *e, const json_t *range,
                    bool (*each)(const struct vow__kv *kv, void *user),
                    void *user)
{
    const json_t *pairs = json_object_get(range, "kvs");
    struct vow__jot memory;
    struct vow__kv kv;
    bool good =
        json_is_object(range) && (pairs == NULL || json_is_array(pairs));
    vow__jot_init(&memory, vow__etcd_alloc(e));
    for (size_t i = 0; good && i < json_array_size(pairs); i++) {
        good = vow__json_pair(e, json_array_get(pairs, i), &memory, &kv);
        if (good && kv.key != NULL && !each(&kv, user))
            break;
    }
    vow__jot_fini(&memory);
    return good;
}

bool vow__json_pair(const struct vow__etcd *e, const json_t *pair,
                    struct vow__jot *memory, struct vow__kv *ret_kv)
{
    const char *prefix = vow__etcd_where_of(e)->prefix;
    size_t skip = strlen(prefix);
    size_t key_n, value_n;
    size_t room = json_string_length(json_object_get(pair, "key")) +
                  json_string_length(json_object_get(pair, "value")) + 2;
    memory->n = 0;
    if (!json_is_object(pair) || !room_for(memory, room))
        return false;
    char *key = decode(pair, "key", memory, &key_n);
    char *value = decode(pair, "value", memory, &value_n);
    if (key == NULL || value == NULL || key_n < skip ||
        memcmp(key, prefix, skip) != 0)
        return false;
    *ret_kv = (struct vow__kv){
        .key = memchr(key, 0, key_n) == NULL ? key + skip : NULL,
        .value = value,
        .size = value_n,
        .create = vow__json_uint(pair, "create_revision"),
        .mod = vow__json_uint(pair, "mod_revision"),
        .lease = (int64_t)vow__json_uint(pair, "lease")};
    return true;
}

/* Behind what is there, with a NUL; there is room. NULL: that is no base64. */
static char *decode(const json_t *pair, const char *word,
                    struct vow__jot *memory, size_t *ret_n)
{
    const json_t *v = json_object_get(pair, word);
    const char *text = v == NULL ? "" : json_string_value(v);
    *ret_n = 0;
    if (text == NULL || memory->text == NULL)
        return NULL;
    char *to = memory->text + memory->n;
    if (sodium_base642bin((unsigned char *)to, memory->room - memory->n - 1,
                          text, strlen(text), NULL, ret_n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        return NULL;
    to[*ret_n] = 0;
    memory->n += *ret_n + 1;
    return to;
}
