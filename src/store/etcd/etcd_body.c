/* SPDX-License-Identifier: MIT */
/* etcd_body.c - bodies of requests, and what answers have in them.
 *
 * WHY   Etcd speaks protocol buffers; its gateway writes them as JSON. There
 *       keys and values are base64, whole numbers are strings, and what is zero
 *       is left out. This is the only place that knows.
 * HOW   A body is written into a buffer, whose failure is looked at when the
 *       body is sent. A transaction is three buffers, whose operations are
 *       divided by commas.
 *       What an answer has is asked for by word. A word that is missing, or of
 *       another type than etcd gives, is zero.
 * INVARIANTS
 *   B1  buffers are secret: a body may have a password in it
 * LIMITS  A key of ours has at most 191 bytes behind the prefix.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_internal.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum {
    BUFFER_MAX = 1 << 30, /* bytes of a body, and of what an answer has */
    BASE64 = sodium_base64_VARIANT_ORIGINAL,
    KEY_MAX = VOW__ETCD_PREFIX_MAX + sizeof(struct vow__key)
};

static struct vow__buf *branch_of(struct vow__txn *t, enum vow__branch b);
static void begin(struct vow__buf *body, const char *text);
static void put_key(const struct vow__txn *t, struct vow__buf *body,
                    const struct vow__key *key);
static void put_tree(const struct vow__txn *t, struct vow__buf *body,
                     const struct vow__key *key);
static void put_end(const struct vow__txn *t, struct vow__buf *body,
                    const struct vow__key *key);
static void put_value(struct vow__buf *body, const struct vow__buf *value);
static size_t whole_key(const struct vow__txn *t, const struct vow__key *key,
                        char whole[KEY_MAX]);
static void compare(struct vow__txn *t, const struct vow__key *key,
                    const char *target, const char *relation, uint64_t number);
static void put_parts(struct vow__txn *t, struct vow__buf *to);
static char *decode(const json_t *pair, const char *word,
                    struct vow__buf *memory, size_t *ret_n);

/* ---- buffers ------------------------------------------------------------- */

void vow__etcd_buf_init(struct vow__buf *body, const struct vow_alloc *alloc)
{
    vow__buf_init(body, alloc, BUFFER_MAX);
    body->secret = true; /* keeps B1 */
}

void vow__etcd_buf_base64(struct vow__buf *body, const void *bytes, size_t n)
{
    size_t size = n < BUFFER_MAX ? sodium_base64_encoded_len(n, BASE64) : n;
    char *to = n == 0 ? NULL : vow__buf_extend(body, size);
    if (to == NULL)
        return;
    (void)sodium_bin2base64(to, size, bytes, n, BASE64);
    body->n += size - 1; /* without the NUL */
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
    vow__etcd_buf_init(&t->compare, alloc);
    vow__etcd_buf_init(&t->success, alloc);
    vow__etcd_buf_init(&t->failure, alloc);
}

void vow__txn_fini(struct vow__txn *t)
{
    vow__buf_fini(&t->compare);
    vow__buf_fini(&t->success);
    vow__buf_fini(&t->failure);
}

static struct vow__buf *branch_of(struct vow__txn *t, enum vow__branch b)
{
    return b == VOW__THEN ? &t->success : &t->failure;
}

/* One more of those that are divided by commas. */
static void begin(struct vow__buf *body, const char *text)
{
    if (body->n > 0)
        vow__buf_add(body, ",", 1);
    vow__buf_text(body, text);
}

static void put_key(const struct vow__txn *t, struct vow__buf *body,
                    const struct vow__key *key)
{
    char whole[KEY_MAX];
    size_t n = whole_key(t, key, whole);
    vow__buf_text(body, "\"key\":\"");
    vow__etcd_buf_base64(body, whole, n);
    vow__buf_text(body, "\"");
}

/* All that begins with the key: up to the first that does not, whose last byte
 * is one more. Our keys have no byte 255. */
static void put_tree(const struct vow__txn *t, struct vow__buf *body,
                     const struct vow__key *key)
{
    put_key(t, body, key);
    put_end(t, body, key);
}

static void put_end(const struct vow__txn *t, struct vow__buf *body,
                    const struct vow__key *key)
{
    char end[KEY_MAX];
    size_t n = whole_key(t, key, end);
    VOW__ASSERT(n > 0);
    end[n - 1]++;
    vow__buf_text(body, ",\"range_end\":\"");
    vow__etcd_buf_base64(body, end, n);
    vow__buf_text(body, "\"");
}

static void put_value(struct vow__buf *body, const struct vow__buf *value)
{
    if (body->code == 0)
        body->code = value->code;
    vow__buf_text(body, ",\"value\":\"");
    vow__etcd_buf_base64(body, value->bytes, value->n);
    vow__buf_text(body, "\"");
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
    struct vow__buf *body = &t->compare;
    begin(body, "{");
    put_key(t, body, key);
    vow__buf_print(body,
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
                  const struct vow__key *key, const struct vow__buf *value,
                  int64_t lease)
{
    struct vow__buf *body = branch_of(t, b);
    t->writes = true;
    begin(body, "{\"request_put\":{");
    put_key(t, body, key);
    if (value != NULL)
        put_value(body, value);
    if (lease == VOW__SAME_LEASE)
        vow__buf_text(body, ",\"ignore_lease\":true");
    else if (lease != 0)
        vow__buf_print(body, ",\"lease\":\"%lld\"", (long long)lease);
    vow__buf_text(body, "}}");
}

void vow__txn_delete(struct vow__txn *t, enum vow__branch b,
                     const struct vow__key *key, unsigned flags)
{
    struct vow__buf *body = branch_of(t, b);
    t->writes = true;
    begin(body, "{\"request_delete_range\":{");
    if ((flags & VOW__TREE) != 0)
        put_tree(t, body, key);
    else
        put_key(t, body, key);
    vow__buf_text(body, "}}");
}

void vow__txn_range(struct vow__txn *t, enum vow__branch b,
                    const struct vow__key *key, unsigned flags)
{
    struct vow__buf *body = branch_of(t, b);
    begin(body, "{\"request_range\":{");
    if ((flags & VOW__TREE) != 0)
        put_tree(t, body, key);
    else
        put_key(t, body, key);
    if ((flags & VOW__COUNT_ONLY) != 0)
        vow__buf_text(body, ",\"count_only\":true");
    if ((flags & VOW__KEYS_ONLY) != 0)
        vow__buf_text(body, ",\"keys_only\":true");
    vow__buf_text(body, "}}");
}

void vow__txn_some(struct vow__txn *t, enum vow__branch b,
                   const struct vow__key *tree, const struct vow__some *some)
{
    struct vow__buf *body = branch_of(t, b);
    begin(body, "{\"request_range\":{");
    if (some->from != NULL) {
        put_key(t, body, some->from);
        put_end(t, body, tree);
    } else {
        put_tree(t, body, tree);
    }
    if (some->keys_only)
        vow__buf_text(body, ",\"keys_only\":true");
    if (some->limit > 0)
        vow__buf_print(body, ",\"limit\":\"%u\"", some->limit);
    if (some->by_creation)
        vow__buf_text(body, ",\"sort_order\":\"ASCEND\""
                            ",\"sort_target\":\"CREATE\"");
    if (some->since > 0)
        vow__buf_print(body, ",\"min_create_revision\":\"%" PRIu64 "\"",
                       some->since);
    vow__buf_text(body, "}}");
}

/* {"compare":[...],"success":[...],"failure":[...]}; it is emptied. */
static void put_parts(struct vow__txn *t, struct vow__buf *to)
{
    static const char *const words[] = {"{\"compare\":[", "],\"success\":[",
                                        "],\"failure\":["};
    struct vow__buf *const parts[] = {&t->compare, &t->success, &t->failure};
    for (size_t i = 0; i < 3; i++) {
        if (to->code == 0)
            to->code = parts[i]->code;
        vow__buf_text(to, words[i]);
        vow__buf_add(to, parts[i]->bytes, parts[i]->n);
        vow__buf_fini(parts[i]);
    }
    vow__buf_text(to, "]}");
}

void vow__txn_nest(struct vow__txn *t, enum vow__branch b,
                   struct vow__txn *inner)
{
    struct vow__buf *body = branch_of(t, b);
    t->writes |= inner->writes;
    begin(body, "{\"request_txn\":");
    put_parts(inner, body);
    vow__buf_text(body, "}");
}

void vow__txn_body(struct vow__txn *t, struct vow__buf *ret_body)
{
    vow__etcd_buf_init(ret_body, &t->compare.alloc);
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
    struct vow__buf memory;
    struct vow__kv kv;
    bool good =
        json_is_object(range) && (pairs == NULL || json_is_array(pairs));
    vow__etcd_buf_init(&memory, vow__etcd_alloc(e));
    for (size_t i = 0; good && i < json_array_size(pairs); i++) {
        good = vow__json_pair(e, json_array_get(pairs, i), &memory, &kv);
        if (good && kv.key != NULL && !each(&kv, user))
            break;
    }
    vow__buf_fini(&memory);
    return good;
}

bool vow__json_pair(const struct vow__etcd *e, const json_t *pair,
                    struct vow__buf *memory, struct vow__kv *ret_kv)
{
    const char *prefix = vow__etcd_where_of(e)->prefix;
    size_t skip = strlen(prefix);
    size_t key_n, value_n;
    size_t room = json_string_length(json_object_get(pair, "key")) +
                  json_string_length(json_object_get(pair, "value")) + 2;
    vow__buf_clear(memory);
    if (!json_is_object(pair) || vow__buf_reserve(memory, room) < 0)
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
                    struct vow__buf *memory, size_t *ret_n)
{
    const json_t *v = json_object_get(pair, word);
    const char *text = v == NULL ? "" : json_string_value(v);
    *ret_n = 0;
    if (text == NULL || memory->bytes == NULL)
        return NULL;
    char *to = memory->bytes + memory->n;
    if (sodium_base642bin((unsigned char *)to, memory->room - memory->n - 1,
                          text, strlen(text), NULL, ret_n, NULL,
                          sodium_base64_VARIANT_ORIGINAL) != 0)
        return NULL;
    to[*ret_n] = 0;
    memory->n += *ret_n + 1;
    return to;
}
