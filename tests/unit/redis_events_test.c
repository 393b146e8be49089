/* SPDX-License-Identifier: MIT */
/* redis_events_test.c - messages on the channel: sound messages, and messages that
 * make no sense. */
#include "redis_alone.h"

struct heard {
    unsigned records, cancels, chunks, places, doubts;
    uint32_t status;
    vow_name name;
    vow_token token;
    uint64_t epoch, left_ms, cost_ms;
    uint32_t mode, takeovers;
    bool failed;
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
    char value[64];
    size_t size;
};

static void on_record(const vow_record *r, void *user)
{
    struct heard *h = user;
    h->records++;
    h->status = r->status;
    h->name = r->name;
    h->epoch = r->epoch;
    h->left_ms = r->left_ms;
    h->cost_ms = r->cost_ms;
    h->mode = r->mode;
    h->takeovers = r->takeovers;
    h->failed = r->failed;
    snprintf(h->label, sizeof(h->label), "%s", r->label);
    snprintf(h->runner, sizeof(h->runner), "%s", r->runner);
    h->size = vow_bytes_size(r->value);
    if (h->size > 0 && h->size <= sizeof(h->value))
        memcpy(h->value, vow_bytes_data(r->value), h->size);
}

static void on_cancel(const vow_name *name, void *user)
{
    struct heard *h = user;
    h->cancels++;
    h->name = *name;
}

static void on_chunks(const vow_name *name, void *user)
{
    struct heard *h = user;
    h->chunks++;
    h->name = *name;
}

static void on_permit(const vow_token *token, void *user)
{
    struct heard *h = user;
    h->places++;
    h->token = *token;
}

static void on_doubt(void *user)
{
    struct heard *h = user;
    h->doubts++;
}

static void listen_open(struct alone *a, struct heard *h, const char *key)
{
    *h = (struct heard){.records = 0};
    alone_open(a, key);
    a->store->ops->listen(a->store,
                          &(const vow_store_events){.on_record = on_record,
                                                    .on_cancel = on_cancel,
                                                    .on_chunks = on_chunks,
                                                    .on_permit = on_permit,
                                                    .on_doubt = on_doubt,
                                                    .user = h});
}

static struct vow__resp text_of(const char *text, size_t n)
{
    return (struct vow__resp){.kind = VOW__RESP_TEXT, .text = text, .n = n};
}

static void push(struct alone *a, const char *text, size_t n)
{
    const char *channel = vow__redis_channel(a->redis);
    struct vow__resp items[] = {text_of("message", 7),
                                text_of(channel, strlen(channel)),
                                text_of(text, n)};
    vow__redis_push(
        a->redis,
        &(struct vow__resp){.kind = VOW__RESP_PUSH, .n = 3, .items = items});
}

/* A message of the letter, the name of "a", and the text. */
static size_t message(char to[8192], char letter, const char *rest)
{
    char name[VOW_NAME_TEXT];
    vow_name a = vow_name_of("a");
    int n = snprintf(to, 8192, "%c%s%s", letter, vow_name_text(&a, name), rest);
    CHECK(n > 0 && n < 8192);
    return (size_t)n;
}

static void send(struct alone *a, char letter, const char *rest)
{
    char text[8192];
    push(a, text, message(text, letter, rest));
}

static unsigned all(const struct heard *h)
{
    return h->records + h->cancels + h->chunks + h->places + h->doubts;
}

/* ---- what makes sense ---------------------------------------------------- */

TEST(redis_events, a_result_comes_whole)
{
    struct alone a;
    struct heard h;
    vow_name name = vow_name_of("a");
    listen_open(&a, &h, NULL);
    send(&a, 'S', " D 1 77 2 5000 12 0 5 6\nlabelhost:1value");
    CHECK_UINT_EQ(h.records, 1);
    CHECK_UINT_EQ(h.status, VOW_STATUS_SETTLED);
    CHECK(vow_name_equal(&h.name, &name));
    CHECK_UINT_EQ(h.mode, VOW_FENCED);
    CHECK_UINT_EQ(h.epoch, 77);
    CHECK_UINT_EQ(h.takeovers, 2);
    CHECK_UINT_EQ(h.left_ms, 5);
    CHECK_UINT_EQ(h.cost_ms, 12);
    CHECK(!h.failed);
    CHECK_STR_EQ(h.label, "label");
    CHECK_STR_EQ(h.runner, "host:1");
    CHECK_UINT_EQ(h.size, 5);
    CHECK_MEM_EQ(h.value, "value", 5);
    send(&a, 'S', " E 0 78 0 -1 0 0 0 0\n");
    CHECK(h.failed);
    CHECK_UINT_EQ(h.status, VOW_STATUS_SETTLED);
    CHECK_UINT_EQ(h.left_ms, UINT64_MAX);
    CHECK_UINT_EQ(h.size, 0);
    CHECK_UINT_EQ(all(&h), 2);
    alone_close(&a);
}

TEST(redis_events, a_change_chunks_a_cancel_and_a_place)
{
    struct alone a;
    struct heard h;
    listen_open(&a, &h, NULL);
    send(&a, 'A', "");
    CHECK_UINT_EQ(h.records, 1);
    CHECK_UINT_EQ(h.status, 0);
    send(&a, 'C', "");
    CHECK_UINT_EQ(h.chunks, 1);
    send(&a, 'X', "");
    CHECK_UINT_EQ(h.cancels, 1);
    push(&a, "G0123456789abcdef", 17);
    CHECK_UINT_EQ(h.places, 1);
    CHECK_MEM_EQ(h.token.bytes, "0123456789abcdef", 16);
    CHECK_UINT_EQ(all(&h), 4);
    alone_close(&a);
}

TEST(redis_events, listening_again_is_doubt)
{
    struct alone a;
    struct heard h;
    listen_open(&a, &h, NULL);
    vow__redis_listening(a.redis);
    CHECK_UINT_EQ(h.doubts, 0);
    vow__redis_listening(a.redis);
    CHECK_UINT_EQ(h.doubts, 1);
    alone_close(&a);
}

TEST(redis_events, a_value_without_memory_is_claimed_again)
{
    struct alone a;
    struct heard h;
    listen_open(&a, &h, NULL);
    for (unsigned i = 1;; i++) {
        a.world.alloc.fail_at = a.world.alloc.allocs + i;
        uint64_t fails = a.world.alloc.fails;
        send(&a, 'S', " D 0 77 0 50000 1 1 0 0\nx");
        a.world.alloc.fail_at = 0;
        CHECK_UINT_EQ(h.records, i);
        bool failed = a.world.alloc.fails > fails;
        CHECK_UINT_EQ(h.status, failed ? 0 : VOW_STATUS_SETTLED);
        if (!failed)
            break;
        CHECK(i < 10);
    }
    CHECK(h.records > 1);
    alone_close(&a);
}

/* ---- sealed -------------------------------------------------------------- */

TEST(redis_events, a_value_that_does_not_open_is_asked_for_again)
{
    static const char key[] =
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    struct alone a;
    struct heard h;
    vow_name name = vow_name_of("a");
    char text[256];
    VOW_AUTO(vow_bytes) plain = NULL;
    VOW_AUTO(vow_bytes) sealed = NULL;
    listen_open(&a, &h, key);
    CHECK_INT_EQ(vow_bytes_new(a.world.loop, "result", 6, &plain), 0);
    CHECK_INT_EQ(vow__redis_seal(a.redis, &(struct vow__seal_of){&name, 77, 0},
                                 60000, plain, &sealed),
                 0);
    static const struct {
        const char *head;
        uint32_t status;
    } cases[] = {{" D 0 77 0 5 1 0 0 0\n", VOW_STATUS_SETTLED},
                 {" E 0 77 0 5 1 0 0 0\n", 0}, /* no failure was sealed */
                 {" D 0 78 0 5 1 0 0 0\n", 0}};
    for (size_t i = 0; i < 3; i++) {
        char whole[8192];
        size_t n = message(whole, 'S', cases[i].head);
        memcpy(whole + n, vow_bytes_data(sealed), vow_bytes_size(sealed));
        push(&a, whole, n + vow_bytes_size(sealed));
        CHECK_UINT_EQ(h.records, i + 1);
        CHECK_UINT_EQ(h.status, cases[i].status);
        if (h.status != 0)
            CHECK_MEM_EQ(h.value, "result", 6);
    }
    snprintf(text, sizeof(text), " D 0 77 0 5 1 0 0 0\nnot sealed at all");
    send(&a, 'S', text);
    CHECK_UINT_EQ(h.status, 0);
    plain = vow_bytes_unref(plain);
    sealed = vow_bytes_unref(sealed);
    alone_close(&a);
}

/* ---- what somebody made up ----------------------------------------------- */

TEST(redis_events, a_result_that_cannot_be_read_is_a_change)
{
    static const char *const rests[] = {
        " ",
        " D",
        " D 0",
        " R 0 77 0 5 1 0 0 0\n",
        " G 0 77 0 5 1 0 0 0\n",
        "  D 0 77 0 5 1 0 0 0\n",
        " D 3 77 0 5 1 0 0 0\n",
        " D -1 77 0 5 1 0 0 0\n",
        " D 0 0 0 5 1 0 0 0\n",
        " D 0 99999999999999999999 0 5 1 0 0 0\n",
        " D 0 9007199254740993 0 5 1 0 0 0\n",
        " D 0 77 4294967296 5 1 0 0 0\n",
        " D 0 77 0 -2 1 0 0 0\n",
        " D 0 77 0 -1\n",
        " D 0 77 0 5 1 0 0 0",
        " D 0 77 0 5 1 0 0 0 ",
        " D 0 77 0 5 1 0 0 0 0\n",
        " D 0 77 0 5 1 0 256 0\n",
        " D 0 77 0 5 1 0 0 256\n",
        " D 0 77 0 5 1 0 10 0\nlabel",
        " D 0 77 0 5 1 0 5 10\nlabelrunner",
        " D 0 77 0 5 1 0 9007199254740992 0\nlabel",
        " D  0 77 0 5 1 0 0 0\n",
        " D 0x1 77 0 5 1 0 0 0\n",
        " D 0 77 0 5 1 0 0 \n"};
    struct alone a;
    struct heard h;
    listen_open(&a, &h, NULL);
    for (unsigned i = 0; i < sizeof(rests) / sizeof(rests[0]); i++) {
        h.status = 9;
        send(&a, 'S', rests[i]);
        CHECK_UINT_EQ(h.records, i + 1);
        if (h.status != 0)
            FAIL("it was taken: \"%s\"", rests[i]);
    }
    CHECK_UINT_EQ(all(&h), h.records);
    alone_close(&a);
}

TEST(redis_events, a_result_that_is_too_large_is_a_change)
{
    struct alone a;
    struct heard h;
    char text[8192];
    listen_open(&a, &h, NULL);
    size_t n = message(text, 'S', " D 0 77 0 5 1 0 0 0\n");
    memset(text + n, 'x', 4097);
    push(&a, text, n + 4096);
    CHECK_UINT_EQ(h.status, VOW_STATUS_SETTLED);
    push(&a, text, n + 4097);
    CHECK_UINT_EQ(h.status, 0);
    alone_close(&a);
}

TEST(redis_events, texts_end_at_a_zero)
{
    struct alone a;
    struct heard h;
    char text[8192];
    listen_open(&a, &h, NULL);
    size_t n = message(text, 'S', " D 0 77 0 5 1 0 5 6\nla?elrun?ervalue");
    *(char *)memchr(text, '?', n) = 0;
    *(char *)memchr(text, '?', n) = 0;
    push(&a, text, n);
    CHECK_UINT_EQ(h.status, VOW_STATUS_SETTLED);
    CHECK_STR_EQ(h.label, "la");
    CHECK_STR_EQ(h.runner, "run");
    CHECK_UINT_EQ(h.size, 5);
    alone_close(&a);
}

TEST(redis_events, what_is_no_message_is_left_alone)
{
    struct alone a;
    struct heard h;
    char text[8192];
    listen_open(&a, &h, NULL);
    push(&a, "", 0);
    push(&a, "A", 1);
    push(&a, "G", 1);
    push(&a, "G0123456789abcde", 16);
    push(&a, "G0123456789abcdefg", 18);
    size_t n = message(text, 'A', "more");
    push(&a, text, n);
    push(&a, text, n - 5);
    text[3] = '!';
    push(&a, text, n - 4);
    n = message(text, 'Z', "");
    push(&a, text, n);
    send(&a, 'C', "x");
    send(&a, 'X', "x");
    send(&a, 'a', "");
    CHECK_UINT_EQ(all(&h), 0);
    alone_close(&a);
}

TEST(redis_events, other_pushes_and_channels_are_left_alone)
{
    struct alone a;
    struct heard h;
    char text[8192];
    listen_open(&a, &h, NULL);
    size_t n = message(text, 'A', "");
    const char *channel = vow__redis_channel(a.redis);
    struct vow__resp good[] = {text_of("message", 7),
                               text_of(channel, strlen(channel)),
                               text_of(text, n)};
    struct vow__resp items[3];
    for (int i = 0; i < 6; i++) {
        memcpy(items, good, sizeof(good));
        struct vow__resp p = {.kind = VOW__RESP_PUSH, .n = 3, .items = items};
        if (i == 1)
            items[0] = text_of("subscribe", 9);
        if (i == 2)
            items[1].n--;
        if (i == 3)
            items[2] = (struct vow__resp){.kind = VOW__RESP_NUMBER};
        if (i == 4)
            p.n = 2;
        if (i == 5)
            p = (struct vow__resp){.kind = VOW__RESP_NIL};
        vow__redis_push(a.redis, &p);
        CHECK_UINT_EQ(all(&h), 1);
    }
    alone_close(&a);
}

TEST(redis_events, random_bytes_and_changed_messages_do_no_harm)
{
    static const char letters[] = "SACXGZ";
    struct alone a;
    struct heard h;
    uint64_t seed = test_seed();
    listen_open(&a, &h, NULL);
    for (int i = 0; i < 20000; i++) {
        char text[8192];
        size_t n = message(text, letters[test_random(&seed) % 6],
                           " D 1 77 2 5000 12 1 5 6\nlabelhost:1value");
        if (i % 3 == 0)
            for (size_t k = 1; k < n; k++)
                text[k] = (char)test_random(&seed);
        for (uint64_t k = test_random(&seed) % 4; k > 0; k--)
            text[44 + test_random(&seed) % (n - 44)] =
                " 0123456789-\n"[test_random(&seed) % 13];
        push(&a, text, test_random(&seed) % (n + 1));
    }
    alone_close(&a);
}
