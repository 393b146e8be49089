/* SPDX-License-Identifier: MIT */
/* etcd_name_test.c - records to text and back, and what is no record. */
#include "etcd_names_kit.h"

/* A store that is never asked for anything: for its memory and its words. */
static struct vow__etcd *lone_open(struct world *w)
{
    world_open(w);
    VOW_AUTO(vow_future)
    opened = vow_store_etcd_open(w->loop, "etcd://127.0.0.1:1", NULL);
    CHECK_INT_EQ(vow_loop_run_until(w->loop, opened), 0);
    return vow__etcd_of(vow_as_ptr(vow_get(opened)));
}

static void lone_close(struct world *w, struct vow__etcd *e)
{
    vow_store *s = (vow_store *)(void *)e;
    CHECK(vow__etcd_of(s) == e);
    VOW_AUTO(vow_future) closed = s->ops->close(s);
    CHECK_INT_EQ(vow_loop_run_until(w->loop, closed), 0);
    closed = vow_future_unref(closed);
    world_run(w);
    world_close(w);
}

static int read_text_of(struct vow__etcd *e, const char *text, size_t n,
                        struct vow__er *er)
{
    char copy[4096];
    memcpy(copy, text, n);
    copy[n] = 0;
    struct vow__kv kv = {
        .key = "n/x/r", .value = copy, .size = n, .mod = 7, .lease = 9};
    *er = (struct vow__er){.mod = 0};
    return vow__er_read_key(e, &kv, 'r', er);
}

static struct vow__er some_er(struct vow__etcd *e)
{
    struct vow__er er = {.state = VOW__ER_FAILED,
                         .mode = VOW_FENCED,
                         .hidden = true,
                         .takeovers = 3,
                         .epoch = 12345,
                         .token = token_of(6),
                         .lease_ms = 10000,
                         .ttl_ms = UINT64_MAX,
                         .since_us = 1700000000000000,
                         .cost_ms = 44,
                         .offset = 1000};
    vow__er_text(er.label, "two\nlines, a \\ and an \\n");
    vow__er_text(er.runner, "host:1");
    CHECK_INT_EQ(
        vow_bytes_new(vow__etcd_loop(e), "\n\0state runs\n", 13, &er.value), 0);
    return er;
}

static void check_same(const struct vow__er *a, const struct vow__er *b)
{
    CHECK_UINT_EQ(a->state, b->state);
    CHECK_UINT_EQ(a->mode, b->mode);
    CHECK_UINT_EQ(a->hidden, b->hidden);
    CHECK_UINT_EQ(a->canceled, b->canceled);
    CHECK_UINT_EQ(a->apart, b->apart);
    CHECK_UINT_EQ(a->elsewhere, b->elsewhere);
    CHECK_UINT_EQ(a->takeovers, b->takeovers);
    CHECK_UINT_EQ(a->lease_ms, b->lease_ms);
    CHECK_UINT_EQ(a->ttl_ms, b->ttl_ms);
    CHECK_UINT_EQ(a->since_us, b->since_us);
    CHECK_UINT_EQ(a->cost_ms, b->cost_ms);
    CHECK_MEM_EQ(a->token.bytes, b->token.bytes, 16);
    CHECK_STR_EQ(a->label, b->label);
    CHECK_STR_EQ(a->runner, b->runner);
    CHECK_UINT_EQ(vow_bytes_size(a->value), vow_bytes_size(b->value));
    if (vow_bytes_size(a->value) > 0)
        CHECK_MEM_EQ(vow_bytes_data(a->value), vow_bytes_data(b->value),
                     vow_bytes_size(a->value));
}

TEST(etcd_name, a_record_comes_back_as_it_was)
{
    struct world w;
    struct vow__etcd *e = lone_open(&w);
    struct vow__er er = some_er(e), back;
    struct vow__jot text;
    vow__jot_init(&text, vow__etcd_alloc(e));
    vow__er_write(&er, true, &text);
    CHECK_INT_EQ(read_text_of(e, text.text, text.n, &back), 0);
    check_same(&er, &back);
    CHECK_UINT_EQ(back.epoch, 12345);
    CHECK_UINT_EQ(back.mod, 7);
    CHECK_INT_EQ(back.lease, 9);
    vow__er_fini(&back);
    vow__er_fini(&er);
    vow__jot_fini(&text);
    lone_close(&w, e);
}

TEST(etcd_name, a_claim_has_the_epoch_of_its_revision_and_what_is_added)
{
    struct world w;
    struct vow__etcd *e = lone_open(&w);
    struct vow__er er = {.state = VOW__ER_RUNS, .offset = 1000}, back;
    struct vow__jot text;
    vow__jot_init(&text, vow__etcd_alloc(e));
    vow__er_write(&er, false, &text);
    CHECK_INT_EQ(read_text_of(e, text.text, text.n, &back), 0);
    CHECK_UINT_EQ(back.epoch, 1007);
    CHECK_UINT_EQ(back.offset, 0); /* that of the key is not known by this */
    CHECK_STR_EQ(back.label, "");
    vow__jot_fini(&text);
    lone_close(&w, e);
}

TEST(etcd_name, a_value_that_is_apart_is_not_written)
{
    struct world w;
    struct vow__etcd *e = lone_open(&w);
    struct vow__er er = some_er(e), back;
    struct vow__jot text;
    vow__jot_init(&text, vow__etcd_alloc(e));
    er.apart = true;
    vow__er_write(&er, true, &text);
    CHECK_INT_EQ(read_text_of(e, text.text, text.n, &back), 0);
    CHECK(back.apart);
    CHECK(back.value == NULL);
    vow__er_fini(&er);
    vow__jot_fini(&text);
    lone_close(&w, e);
}

TEST(etcd_name, what_gave_up_has_a_failure_for_its_value)
{
    struct world w;
    struct vow__etcd *e = lone_open(&w);
    struct vow__er back;
    const char *text = "state gave-up\nepoch 3\nttl 60000\n";
    CHECK_INT_EQ(read_text_of(e, text, strlen(text), &back), 0);
    CHECK_MEM_EQ(vow_bytes_data(back.value), "-6014\n", 6);
    CHECK(vow__er_record(&back, VOW_STATUS_SETTLED).failed);
    vow__er_fini(&back);
    lone_close(&w, e);
}

TEST(etcd_name, words_that_are_not_known_are_passed_over)
{
    struct world w;
    struct vow__etcd *e = lone_open(&w);
    struct vow__er back;
    const char *text = "new word\nstate runs\nalone\nmode once\n\n";
    CHECK_INT_EQ(read_text_of(e, text, strlen(text), &back), 0);
    CHECK_UINT_EQ(back.mode, VOW_ONCE);
    CHECK_UINT_EQ(back.state, VOW__ER_RUNS);
    CHECK(back.value == NULL);
    lone_close(&w, e);
}

TEST(etcd_name, what_is_no_record_is_refused_with_a_sentence)
{
    static const char *const bad[] = {
        "",
        "hello",
        "state\n",
        "state walks\n",
        "state runs\nmode fast\n",
        "state runs\nmode \n",
        "state runs\ntoken 12\n",
        "state runs\ntoken zz000000000000000000000000000000\n",
        "state runs\nlease x\n",
        "state runs\nlease\n",
        "state runs\nlease 18446744073709551616\n",
        "state runs\ntakeovers 4294967295\n",
        "state runs\nplus 18446744073709551615\n",
        "\nstate runs\n",
        "mode once\n",
    };
    struct world w;
    struct vow__etcd *e = lone_open(&w);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct vow__er back;
        vow__etcd_trouble(e, "%s", "");
        if (read_text_of(e, bad[i], strlen(bad[i]), &back) != VOW_EIO)
            FAIL("'%s' was read", bad[i]);
        CHECK_UINT_EQ(back.state, VOW__ER_ABSENT);
        CHECK_STR_EQ(vow__etcd_explain((vow_store *)(void *)e),
                     "the key vow/n/x/r in etcd is not one of ours");
    }
    lone_close(&w, e);
}

TEST(etcd_name, any_bytes_are_a_record_or_are_refused)
{
    struct world w;
    struct vow__etcd *e = lone_open(&w);
    struct vow__er er = some_er(e), back;
    uint64_t seed = test_seed();
    struct vow__jot text;
    vow__jot_init(&text, vow__etcd_alloc(e));
    vow__er_write(&er, true, &text);
    for (int i = 0; i < 5000; i++) {
        char copy[1024];
        size_t n = text.n - test_random(&seed) % (i % 2 == 0 ? 1 : text.n);
        memcpy(copy, text.text, n);
        for (uint64_t k = test_random(&seed) % 4; k > 0; k--)
            copy[test_random(&seed) % n] = (char)test_random(&seed);
        int rc = read_text_of(e, copy, n, &back);
        CHECK(rc == 0 || rc == VOW_EIO);
        CHECK(rc < 0 || (back.epoch != 0 && back.state != VOW__ER_ABSENT &&
                         back.mode <= VOW_ONCE));
        CHECK(memchr(back.label, 0, sizeof(back.label)) != NULL);
        vow__er_fini(&back);
    }
    vow__er_fini(&er);
    vow__jot_fini(&text);
    lone_close(&w, e);
}

TEST(etcd_name, keys_of_names_are_known_and_others_are_not)
{
    vow_name name = vow_name_of("a"), back;
    struct vow__key key = vow__key("n", &name, "/r");
    CHECK_INT_EQ(vow__er_key(key.text, &back), 'r');
    CHECK(vow_name_equal(&name, &back));
    CHECK_INT_EQ(vow__er_key(vow__key("n", &name, "/a").text, &back), 'a');
    CHECK_INT_EQ(vow__er_key(vow__key("w", &name, "/r").text, &back), 0);
    CHECK_INT_EQ(vow__er_key(vow__key("n", &name, "/rr").text, &back), 0);
    CHECK_INT_EQ(vow__er_key(vow__key("n", &name, "").text, &back), 0);
    CHECK_INT_EQ(vow__er_key("n//r", &back), 0);
    CHECK_INT_EQ(vow__er_key("", &back), 0);
    key.text[5] = '!';
    CHECK_INT_EQ(vow__er_key(key.text, &back), 0);
}

TEST(etcd_name, what_strangers_find)
{
    struct vow__er er = {.state = VOW__ER_ABSENT};
    CHECK_UINT_EQ(vow__er_says(&er), VOW_STATUS_NONE);
    er.state = VOW__ER_RUNS;
    CHECK_UINT_EQ(vow__er_says(&er), VOW_STATUS_NONE);
    er.mode = VOW_ONCE;
    CHECK_UINT_EQ(vow__er_says(&er), VOW_STATUS_DOUBT);
    er.alive = 1;
    CHECK_UINT_EQ(vow__er_says(&er), VOW_STATUS_WAITING);
    er.state = VOW__ER_DONE;
    CHECK_UINT_EQ(vow__er_says(&er), VOW_STATUS_SETTLED);
    er.hidden = true;
    CHECK_UINT_EQ(vow__er_says(&er), VOW_STATUS_NONE);
}

TEST(etcd_name, what_is_there_has_time_left_whatever_clocks_say)
{
    struct vow__er er = {.state = VOW__ER_DONE, .ttl_ms = 50, .since_us = 1};
    CHECK_UINT_EQ(vow__er_record(&er, VOW_STATUS_SETTLED).left_ms, 1);
    er.since_us = UINT64_MAX; /* by a clock that is ahead */
    CHECK_UINT_EQ(vow__er_record(&er, VOW_STATUS_SETTLED).left_ms, 50);
    CHECK_UINT_EQ(vow__er_record(&er, VOW_STATUS_SETTLED).age_ms, 0);
    er.ttl_ms = UINT64_MAX;
    CHECK_UINT_EQ(vow__er_record(&er, VOW_STATUS_SETTLED).left_ms, UINT64_MAX);
}

/* What etcd would answer to the reading of a name, with this record so often. */
static json_t *answer_with(struct vow__etcd *e, const vow_name *name,
                           const char *record, int times)
{
    struct vow__key key = vow__key("vow/n", name, "/r");
    struct vow__jot j;
    json_error_t error;
    vow__jot_init(&j, vow__etcd_alloc(e));
    vow__jot_text(&j, "{\"header\":{\"revision\":\"9\"},\"responses\":["
                      "{\"response_range\":{\"kvs\":[");
    for (int i = 0; i < times; i++) {
        vow__jot_text(&j, i > 0 ? ",{\"key\":\"" : "{\"key\":\"");
        vow__jot_base64(&j, key.text, strlen(key.text));
        vow__jot_text(&j, "\",\"mod_revision\":\"7\",\"value\":\"");
        vow__jot_base64(&j, record, strlen(record));
        vow__jot_text(&j, "\"}");
    }
    vow__jot_text(&j, "]}},{\"response_range\":{}},{\"response_range\":{}}]}");
    json_t *root = json_loadb(j.text, j.n, 0, &error);
    CHECK(root != NULL);
    vow__jot_fini(&j);
    return root;
}

TEST(etcd_name, a_record_that_comes_twice_is_none)
{
    struct world w;
    struct vow__etcd *e = lone_open(&w);
    const vow_name name = vow_name_of("twice");
    const char *record = "state done\nepoch 3\nttl never\n\nvalue";
    for (int times = 1; times <= 3; times++) {
        struct vow__er er;
        json_t *root = answer_with(e, &name, record, times);
        int rc = vow__er_read(e, root, 0, &name, &er);
        CHECK_INT_EQ(rc, times == 1 ? 0 : VOW_EIO);
        if (rc == 0)
            vow__er_fini(&er);
        json_decref(root);
    }
    lone_close(&w, e);
}

/* By the clocks of who wrote and who reads: its lease may last longer. */
TEST(etcd_name, a_result_above_its_age_is_none)
{
    struct world w;
    struct vow__etcd *e = lone_open(&w);
    const vow_name name = vow_name_of("old");
    static const struct {
        const char *ttl;
        uint64_t age_s;
        bool there;
    } all[] = {{"60000", 59, true},     {"60000", 61, false},
               {"60000", 7200, false},  {"never", 7200, true},
               {"60000", 0, true},      {"1", 1, false},
               {"7200000", 7000, true}, {"7200000", 7201, false}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        struct vow__er er;
        char record[128];
        uint64_t since_us = vow__etcd_wall_us() - all[i].age_s * 1000000;
        snprintf(record, sizeof(record),
                 "state done\nepoch 3\nttl %s\nsince %llu\n\nvalue", all[i].ttl,
                 (unsigned long long)since_us);
        json_t *root = answer_with(e, &name, record, 1);
        CHECK_INT_EQ(vow__er_read(e, root, 0, &name, &er), 0);
        CHECK_UINT_EQ(vow__er_says(&er),
                      all[i].there ? VOW_STATUS_SETTLED : VOW_STATUS_NONE);
        vow__er_fini(&er);
        json_decref(root);
    }
    lone_close(&w, e);
}
