/* SPDX-License-Identifier: MIT */
/* Bodies for etcd, letter by letter; and answers, also those that are none. */
#include "etcd_kit.h"
#include "fault.h"
#include "store/etcd/etcd_internal.h"
#include "vow/store_etcd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vow_alloc plain; /* malloc */

/* ---- text ---------------------------------------------------------------- */

static void check_buffer(struct vow__buf *body, const char *want)
{
    CHECK(body->code == 0);
    CHECK_UINT_EQ(body->n, strlen(want));
    CHECK_MEM_EQ(body->bytes, want, body->n);
    vow__buf_fini(body);
    CHECK(body->bytes == NULL && body->n == 0 && body->code == 0);
}

TEST(etcd_body, text_grows)
{
    struct vow__buf body;
    static char want[20000];
    vow__etcd_buf_init(&body, &plain);
    vow__buf_text(&body, "");
    vow__buf_add(&body, NULL, 0);
    vow__etcd_buf_base64(&body, NULL, 0);
    CHECK(body.bytes == NULL && body.code == 0);
    for (int i = 0; i < 2000; i++) {
        vow__buf_print(&body, "%d,", i % 100);
        vow__buf_text(&body, "x");
        snprintf(want + strlen(want), 8, "%d,x", i % 100);
    }
    check_buffer(&body, want);
}

TEST(etcd_body, bytes_become_base64)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *text;
    } all[] = {{"", 0, ""},
               {"v", 1, "dg=="},
               {"vo", 2, "dm8="},
               {"vow", 3, "dm93"},
               {"\0\xff\xfb", 3, "AP/7"}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct vow__buf body;
        vow__etcd_buf_init(&body, &plain);
        vow__buf_text(&body, "<");
        vow__etcd_buf_base64(&body, all[i].bytes, all[i].n);
        vow__buf_text(&body, ">");
        char want[16];
        snprintf(want, sizeof(want), "<%s>", all[i].text);
        check_buffer(&body, want);
    }
}

TEST(etcd_body, what_cannot_grow_stays_bad_until_it_is_emptied)
{
    struct test_alloc ta;
    struct vow__buf body;
    test_alloc_init(&ta);
    struct vow_alloc hook = test_alloc_hook(&ta);
    vow__etcd_buf_init(&body, &hook);
    vow__buf_text(&body, "before");
    ta.fail_at = ta.allocs + 1;
    static char many[4096];
    vow__buf_add(&body, many, sizeof(many));
    CHECK(body.code != 0);
    vow__buf_text(&body, "x"); /* there would be room */
    vow__buf_print(&body, "%d", 1);
    vow__etcd_buf_base64(&body, "x", 1);
    CHECK_UINT_EQ(body.n, 6);
    vow__buf_fini(&body);
    vow__buf_text(&body, "again");
    check_buffer(&body, "again");
    test_alloc_fini(TEST_HERE, &ta);
}

/* ---- transactions -------------------------------------------------------- */

static struct vow__key key(const char *text)
{
    return vow__key(text, NULL, "");
}

static void check_body(struct vow__txn *t, const char *want)
{
    struct vow__buf body;
    vow__txn_body(t, &body);
    CHECK(t->compare.n == 0 && t->success.n == 0 && t->failure.n == 0);
    check_buffer(&body, want);
    vow__txn_fini(t);
}

TEST(etcd_body, keys_have_a_kind_a_name_and_a_rest)
{
    vow_name name;
    char want[64], text[VOW_NAME_TEXT];
    memset(&name, 0xab, sizeof(name));
    snprintf(want, sizeof(want), "n/%s/r", vow_name_text(&name, text));
    CHECK_STR_EQ(vow__key("n", &name, "/r").text, want);
    CHECK_STR_EQ(vow__key("n", NULL, "/").text, "n/");
    CHECK_STR_EQ(vow__key("e", NULL, "").text, "e");
}

TEST(etcd_body, a_transaction_says_what_it_compares)
{
    struct vow__txn t;
    struct vow__key k = key("k");
    vow__txn_init(&t, &plain, "p/");
    check_body(&t, "{\"compare\":[],\"success\":[],\"failure\":[]}");
    vow__txn_if_absent(&t, &k);
    vow__txn_if_there(&t, &k);
    vow__txn_if_mod(&t, &k, UINT64_MAX);
    vow__txn_if_created(&t, &k, 12);
#define KEY "{\"key\":\"cC9r\","
    check_body(&t,
               "{\"compare\":[" KEY
               "\"target\":\"CREATE\",\"create_revision\":\"0\","
               "\"result\":\"EQUAL\"}," KEY
               "\"target\":\"CREATE\",\"create_revision\":\"0\","
               "\"result\":\"GREATER\"}," KEY
               "\"target\":\"MOD\",\"mod_revision\":\"18446744073709551615\","
               "\"result\":\"EQUAL\"}," KEY
               "\"target\":\"CREATE\",\"create_revision\":\"12\","
               "\"result\":\"EQUAL\"}"
               "],\"success\":[],\"failure\":[]}");
}

TEST(etcd_body, a_transaction_says_what_it_does)
{
    struct vow__txn t, inner;
    struct vow__buf value;
    struct vow__key k = key("k");
    vow__txn_init(&t, &plain, "p/");
    vow__txn_init(&inner, &plain, "q/");
    vow__etcd_buf_init(&value, &plain);
    vow__buf_text(&value, "foo");
    vow__txn_put(&t, VOW__THEN, &k, &value, 5);
    vow__txn_put(&t, VOW__THEN, &k, NULL, 0);
    vow__txn_put(&t, VOW__THEN, &k, NULL, VOW__SAME_LEASE);
    vow__txn_delete(&t, VOW__THEN, &k, 0);
    vow__txn_delete(&inner, VOW__ELSE, &k, VOW__TREE);
    vow__txn_range(&t, VOW__ELSE, &k, 0);
    vow__txn_range(&t, VOW__ELSE, &k,
                   VOW__TREE | VOW__COUNT_ONLY | VOW__KEYS_ONLY);
    vow__txn_nest(&t, VOW__ELSE, &inner);
    check_body(
        &t,
        "{\"compare\":[],\"success\":["
        "{\"request_put\":{\"key\":\"cC9r\",\"value\":\"Zm9v\","
        "\"lease\":\"5\"}},{\"request_put\":{\"key\":\"cC9r\"}},"
        "{\"request_put\":{\"key\":\"cC9r\",\"ignore_lease\":true}},"
        "{\"request_delete_range\":{\"key\":\"cC9r\"}}],\"failure\":["
        "{\"request_range\":{\"key\":\"cC9r\"}},"
        "{\"request_range\":{\"key\":\"cC9r\",\"range_end\":\"cC9s\","
        "\"count_only\":true,\"keys_only\":true}},"
        "{\"request_txn\":{\"compare\":[],\"success\":[],\"failure\":["
        "{\"request_delete_range\":{\"key\":\"cS9r\",\"range_end\":\"cS9s\"}}"
        "]}}]}");
    vow__txn_fini(&inner);
    vow__buf_fini(&value);
}

FAULT_SWEEP(etcd_body, a_body_without_memory_is_bad, FAULT_ALLOC)
{
    struct vow__txn t, inner;
    struct vow__buf value, body;
    struct vow__key k = key("k");
    const struct vow_alloc *alloc = vow_loop_alloc(w->loop);
    static const char many[3000];
    bool before = fault_fired(w);
    vow__txn_init(&t, alloc, "p/");
    vow__txn_init(&inner, alloc, "p/");
    vow__etcd_buf_init(&value, alloc);
    vow__buf_add(&value, many, sizeof(many));
    vow__txn_if_absent(&inner, &k);
    vow__txn_put(&inner, VOW__THEN, &k, &value, 0);
    vow__txn_nest(&t, VOW__ELSE, &inner);
    vow__txn_body(&t, &body);
    CHECK((body.code != 0) == (fault_fired(w) && !before));
    vow__buf_fini(&body);
    vow__buf_fini(&value);
    vow__txn_fini(&inner);
    vow__txn_fini(&t);
}

/* ---- answers ------------------------------------------------------------- */

/* A store that asks nobody. */
struct reader {
    struct world w;
    vow_store *store;
    struct vow__etcd *etcd;
    unsigned pairs;
    char seen[256];
    bool enough; /* after the first */
};

static void reader_open(struct reader *r)
{
    memset(r, 0, sizeof(*r));
    world_open(&r->w);
    VOW_AUTO(vow_future)
    opened = vow_store_etcd_open(r->w.loop, "etcd://h",
                                 VOW_ETCD_OPTS(.prefix = "p/"));
    CHECK_INT_EQ(vow_loop_run_until(r->w.loop, opened), 0);
    r->store = vow_as_ptr(vow_get(opened));
    r->etcd = vow__etcd_of(r->store);
}

static void reader_close(struct reader *r)
{
    VOW_AUTO(vow_future) closed = r->store->ops->close(r->store);
    CHECK_INT_EQ(vow_loop_run_until(r->w.loop, closed), 0);
    closed = vow_future_unref(closed);
    world_run(&r->w);
    world_close(&r->w);
}

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *root = json_loadb(text, strlen(text), 0, &error);
    if (root == NULL)
        FAIL("%s: %s", text, error.text);
    return root;
}

static bool note(const struct vow__kv *kv, void *user)
{
    struct reader *r = user;
    size_t n = strlen(r->seen);
    CHECK(kv->value[kv->size] == 0);
    snprintf(r->seen + n, sizeof(r->seen) - n, "%s=%s,%llu,%llu,%lld ", kv->key,
             kv->value, (unsigned long long)kv->create,
             (unsigned long long)kv->mod, (long long)kv->lease);
    r->pairs++;
    return !r->enough;
}

static bool pair_note(struct reader *r, const json_t *pair)
{
    struct vow__buf memory;
    struct vow__kv kv;
    vow__etcd_buf_init(&memory, vow__etcd_alloc(r->etcd));
    bool good = vow__json_pair(r->etcd, pair, &memory, &kv);
    if (good)
        (void)note(&kv, r);
    vow__buf_fini(&memory);
    return good;
}

TEST(etcd_body, numbers_are_strings_and_what_is_missing_is_zero)
{
    static const struct {
        const char *text;
        uint64_t want;
    } all[] = {
        {"{}", 0},
        {"{\"n\":\"17\"}", 17},
        {"{\"n\":17}", 17},
        {"{\"n\":\"18446744073709551615\"}", UINT64_MAX},
        {"{\"n\":\"18446744073709551616\"}", 0},
        {"{\"n\":\"99999999999999999999999\"}", 0},
        {"{\"n\":\"-1\"}", 0},
        {"{\"n\":-1}", 0},
        {"{\"n\":\"\"}", 0},
        {"{\"n\":\"1x\"}", 0},
        {"{\"n\":\" 1\"}", 0},
        {"{\"n\":1.5}", 0},
        {"{\"n\":true}", 0},
        {"{\"n\":null}", 0},
        {"{\"n\":[\"1\"]}", 0},
        {"[\"n\"]", 0},
    };
    struct reader r;
    reader_open(&r);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        json_t *root = parse(all[i].text);
        CHECK_UINT_EQ(vow__json_uint(root, "n"), all[i].want);
        json_decref(root);
    }
    CHECK_UINT_EQ(vow__json_uint(NULL, "n"), 0);
    json_t *root = parse("{\"header\":{\"revision\":\"9\"},\"succeeded\":true,"
                         "\"responses\":[{\"response_range\":{\"count\":\"3\"}}"
                         ",{\"response_put\":{}},{\"response_txn\":{}},{},1]}");
    CHECK_UINT_EQ(vow__json_revision(root), 9);
    CHECK(vow__json_succeeded(root));
    CHECK_UINT_EQ(vow__json_uint(vow__json_response(root, 0), "count"), 3);
    CHECK(vow__json_response(root, 1) == NULL);
    CHECK(vow__json_response(root, 2) != NULL);
    for (size_t i = 3; i < 7; i++)
        CHECK(vow__json_response(root, i) == NULL);
    CHECK(!vow__json_succeeded(NULL));
    CHECK(vow__json_response(NULL, 0) == NULL);
    json_decref(root);
    reader_close(&r);
}

TEST(etcd_body, pairs_are_told_without_the_prefix)
{
    struct reader r;
    reader_open(&r);
    json_t *root = parse("{\"kvs\":[{\"key\":\"cC9h\",\"value\":\"Zm9v\","
                         "\"create_revision\":\"3\",\"mod_revision\":\"4\","
                         "\"lease\":\"7587869\"},{\"key\":\"cC9i\"},"
                         "{\"key\":\"cC9hAGI=\",\"value\":\"eA==\"}]}");
    CHECK(vow__json_each(r.etcd, root, note, &r));
    CHECK_STR_EQ(r.seen, "a=foo,3,4,7587869 b=,0,0,0 "); /* and not "a\0b" */
    r.seen[0] = 0;
    r.enough = true;
    CHECK(vow__json_each(r.etcd, root, note, &r));
    CHECK_STR_EQ(r.seen, "a=foo,3,4,7587869 ");
    r.seen[0] = 0;
    const json_t *pairs = json_object_get(root, "kvs");
    CHECK(pair_note(&r, json_array_get(pairs, 0)));
    CHECK_STR_EQ(r.seen, "a=foo,3,4,7587869 ");
    json_decref(root);
    reader_close(&r);
}

TEST(etcd_body, what_etcd_would_not_answer_is_none)
{
    static const char *const all[] = {
        "{\"kvs\":{}}",
        "{\"kvs\":\"x\"}",
        "{\"kvs\":[1]}",
        "{\"kvs\":[{}]}",
        "{\"kvs\":[{\"key\":1}]}",
        "{\"kvs\":[{\"key\":\"cC9h\",\"value\":1}]}",
        "{\"kvs\":[{\"key\":\"cC9h\",\"value\":null}]}",
        "{\"kvs\":[{\"key\":\"cS9h\"}]}",  /* another prefix */
        "{\"kvs\":[{\"key\":\"cA==\"}]}",  /* shorter than it */
        "{\"kvs\":[{\"key\":\"cC9h!\"}]}", /* no base64 */
        "{\"kvs\":[{\"key\":\"cC9\"}]}",
        "{\"kvs\":[{\"key\":\"cC9h\",\"value\":\"Zg=\"}]}",
        "[]",
    };
    struct reader r;
    reader_open(&r);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        json_t *root = parse(all[i]);
        if (vow__json_each(r.etcd, root, note, &r))
            FAIL("%s", all[i]);
        json_decref(root);
    }
    CHECK_UINT_EQ(r.pairs, 0);
    CHECK(!vow__json_each(r.etcd, NULL, note, &r));
    CHECK(!pair_note(&r, NULL));
    json_t *root = parse("{\"count\":\"0\"}");
    CHECK(vow__json_each(r.etcd, root, note, &r));
    r.w.alloc.fail_at = r.w.alloc.allocs + 1;
    json_t *one = parse("{\"kvs\":[{\"key\":\"cC9h\"}]}");
    CHECK(!vow__json_each(r.etcd, one, note, &r)); /* no memory */
    CHECK_UINT_EQ(r.pairs, 0);
    json_decref(root);
    json_decref(one);
    reader_close(&r);
}

static bool touch(const struct vow__kv *kv, void *user)
{
    uint64_t *sum = user;
    *sum += strlen(kv->key) + kv->create + kv->mod + (uint64_t)kv->lease;
    for (size_t i = 0; i <= kv->size; i++)
        *sum += (unsigned char)kv->value[i];
    return true;
}

TEST(etcd_body, anything_at_all_is_read_or_refused)
{
    static const char seed[] =
        "{\"header\":{\"revision\":\"9\"},\"succeeded\":true,\"responses\":["
        "{\"response_range\":{\"kvs\":[{\"key\":\"cC9h\",\"value\":\"Zm9v\","
        "\"create_revision\":\"3\",\"mod_revision\":\"4\",\"lease\":\"5\"},"
        "{\"key\":\"cC9hYg==\"}]}},{\"response_txn\":{\"responses\":[]}}]}";
    static const char signs[] = "{}[]\":,0129aZ=+/\\-.eu\n";
    uint64_t state = test_seed();
    uint64_t sum = 0;
    unsigned whole = 0;
    struct reader r;
    reader_open(&r);
    for (int i = 0; i < 100000; i++) {
        char text[sizeof(seed)];
        json_error_t error;
        memcpy(text, seed, sizeof(seed));
        for (uint64_t body = test_random(&state) % 4; body > 0; body--)
            text[test_random(&state) % (sizeof(seed) - 1)] =
                signs[test_random(&state) % (sizeof(signs) - 1)];
        json_t *root = json_loadb(text, sizeof(seed) - 1, 0, &error);
        for (size_t body = 0; root != NULL && body < 3; body++) {
            const json_t *one = vow__json_response(root, body);
            sum += vow__json_revision(one) + vow__json_succeeded(one);
            whole += vow__json_each(r.etcd, one, touch, &sum);
        }
        json_decref(root);
    }
    CHECK(whole > 1000);
    reader_close(&r);
}

/* ---- a server ------------------------------------------------------------ */

static void send_body(struct etcd_kit *k, struct vow__txn *t)
{
    struct vow__buf body;
    vow__txn_body(t, &body);
    vow__buf_add(&body, "", 1);
    CHECK(body.code == 0);
    (void)etcd_say(k, "kv/txn", "%s", body.bytes);
    vow__buf_fini(&body);
}

TEST(etcd_body, a_server_does_what_the_body_says)
{
    static struct etcd_kit k;
    static char bytes[256];
    struct vow__txn t, inner;
    struct vow__buf value;
    struct vow__key one = key("a/1"), two = key("a/2"), tree = key("a/");
    struct vow__key other = key("b");
    etcd_start(&k, NULL);
    vow__txn_init(&t, &plain, "p/");
    vow__txn_init(&inner, &plain, "p/");
    vow__etcd_buf_init(&value, &plain);
    vow__buf_text(&value, "first");
    vow__txn_if_absent(&t, &one);
    vow__txn_put(&t, VOW__THEN, &one, &value, 0);
    /* It compares what was there before all of it. */
    vow__txn_if_absent(&inner, &one);
    vow__txn_put(&inner, VOW__THEN, &two, &value, 0);
    vow__txn_nest(&t, VOW__THEN, &inner);
    vow__txn_range(&t, VOW__THEN, &tree, VOW__TREE | VOW__COUNT_ONLY);
    send_body(&k, &t);
    CHECK_STR_EQ(etcd_get(&k, "p/a/1"), "first");
    CHECK_STR_EQ(etcd_get(&k, "p/a/2"), "first");
    /* Another time it is not absent. */
    vow__txn_if_absent(&t, &one);
    vow__txn_put(&t, VOW__ELSE, &other, NULL, 0);
    vow__txn_delete(&t, VOW__ELSE, &tree, VOW__TREE);
    send_body(&k, &t);
    CHECK_UINT_EQ(etcd_count(&k, "p/a/"), 0);
    CHECK_STR_EQ(etcd_get(&k, "p/b"), "");
    vow__txn_if_mod(&t, &one, 0);
    vow__txn_if_created(&t, &other, etcd_revision(&k));
    vow__txn_if_mod(&t, &other, etcd_revision(&k));
    vow__txn_delete(&t, VOW__THEN, &other, 0);
    send_body(&k, &t);
    CHECK(etcd_get(&k, "p/b") == NULL);
    /* Every byte comes back. */
    vow__buf_fini(&value);
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(255 - i); /* NUL at the end */
    vow__buf_add(&value, bytes, sizeof(bytes));
    vow__txn_put(&t, VOW__THEN, &one, &value, 0);
    send_body(&k, &t);
    CHECK_MEM_EQ(etcd_get(&k, "p/a/1"), bytes, sizeof(bytes));
    vow__buf_fini(&value);
    vow__txn_fini(&inner);
    vow__txn_fini(&t);
    etcd_stop(&k);
}
