/* SPDX-License-Identifier: MIT */
/* redis_seal_test.c - a result opens where it belongs, and nowhere else. */
#include "fault.h"
#include "redis_alone.h"

#define KEY "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_2 "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

#define OF(name, epoch, part)                                                  \
    (&(const struct vow__seal_of){&(name), (epoch), (part)})

static vow_bytes *bytes_of(struct alone *a, const char *text)
{
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(a->world.loop, text, strlen(text), &b), 0);
    return b;
}

static vow_bytes *sealed(struct alone *a, const char *text)
{
    vow_name name = vow_name_of("a");
    VOW_AUTO(vow_bytes) plain = bytes_of(a, text);
    vow_bytes *s;
    CHECK_INT_EQ(
        vow__redis_seal(a->redis, OF(name, 7, 0), UINT64_MAX, plain, &s), 0);
    return s;
}

static int opens(struct alone *a, vow_bytes *s, vow_name name, uint64_t epoch,
                 uint64_t part)
{
    vow_bytes *plain = NULL;
    int rc = vow__redis_unseal(a->redis, OF(name, epoch, part),
                               (const char *)vow_bytes_data(s),
                               vow_bytes_size(s), &plain);
    CHECK((rc == 0) == (plain != NULL));
    vow_bytes_unref(plain);
    return rc;
}

TEST(redis_seal, what_was_sealed_opens_again)
{
    struct alone a;
    vow_name name = vow_name_of("a");
    alone_open(&a, KEY);
    static const char *const texts[] = {"", "x", "a longer result"};
    for (size_t i = 0; i < 3; i++) {
        VOW_AUTO(vow_bytes) s = sealed(&a, texts[i]);
        VOW_AUTO(vow_bytes) plain = NULL;
        size_t n = strlen(texts[i]);
        CHECK_UINT_EQ(vow_bytes_size(s), n + VOW__SEAL_MORE);
        CHECK(n == 0 ||
              memmem(vow_bytes_data(s), vow_bytes_size(s), texts[i], n) ==
                  NULL ||
              n == 1);
        CHECK_INT_EQ(vow__redis_unseal(a.redis, OF(name, 7, 0),
                                       (const char *)vow_bytes_data(s),
                                       vow_bytes_size(s), &plain),
                     0);
        CHECK_UINT_EQ(vow_bytes_size(plain), n);
        CHECK_MEM_EQ(vow_bytes_data(plain), texts[i], n);
    }
    alone_close(&a);
}

TEST(redis_seal, the_same_result_is_sealed_differently_each_time)
{
    struct alone a;
    alone_open(&a, KEY);
    VOW_AUTO(vow_bytes) one = sealed(&a, "result");
    VOW_AUTO(vow_bytes) two = sealed(&a, "result");
    CHECK(memcmp(vow_bytes_data(one), vow_bytes_data(two),
                 vow_bytes_size(one)) != 0);
    one = vow_bytes_unref(one);
    two = vow_bytes_unref(two);
    alone_close(&a);
}

TEST(redis_seal, it_does_not_open_for_another_name_epoch_or_part)
{
    struct alone a;
    alone_open(&a, KEY);
    VOW_AUTO(vow_bytes) s = sealed(&a, "result");
    CHECK_INT_EQ(opens(&a, s, vow_name_of("a"), 7, 0), 0);
    CHECK_INT_EQ(opens(&a, s, vow_name_of("b"), 7, 0), VOW_EIO);
    CHECK_INT_EQ(opens(&a, s, vow_name_of("a"), 8, 0), VOW_EIO);
    CHECK_INT_EQ(opens(&a, s, vow_name_of("a"), 7, 1), VOW_EIO);
    CHECK_INT_EQ(opens(&a, s, vow_name_of("a"), 7, VOW__PART_FAILED), VOW_EIO);
    s = vow_bytes_unref(s);
    alone_close(&a);
}

TEST(redis_seal, a_changed_bit_or_length_is_noticed)
{
    struct alone a;
    alone_open(&a, KEY);
    VOW_AUTO(vow_bytes) s = sealed(&a, "result");
    for (size_t i = 0; i < 8 * vow_bytes_size(s); i++) {
        unsigned char bit = (unsigned char)(1u << i % 8);
        vow_bytes_data(s)[i / 8] ^= bit;
        CHECK_INT_EQ(opens(&a, s, vow_name_of("a"), 7, 0), VOW_EIO);
        vow_bytes_data(s)[i / 8] ^= bit;
    }
    vow_name name = vow_name_of("a");
    vow_bytes *plain;
    for (size_t n = 0; n < vow_bytes_size(s); n++)
        CHECK_INT_EQ(vow__redis_unseal(a.redis, OF(name, 7, 0),
                                       (const char *)vow_bytes_data(s), n,
                                       &plain),
                     VOW_EIO);
    s = vow_bytes_unref(s);
    alone_close(&a);
}

TEST(redis_seal, another_key_does_not_open_it)
{
    struct alone a;
    alone_open(&a, KEY);
    VOW_AUTO(vow_bytes) s = sealed(&a, "result");
    vow_store *first = a.store;
    a.store = alone_store(&a, KEY_2);
    a.redis = vow__redis_of(a.store);
    CHECK_INT_EQ(opens(&a, s, vow_name_of("a"), 7, 0), VOW_EIO);
    alone_end(&a, first);
    s = vow_bytes_unref(s);
    alone_close(&a);
}

TEST(redis_seal, random_bytes_do_not_open)
{
    struct alone a;
    uint64_t seed = test_seed();
    alone_open(&a, KEY);
    for (int i = 0; i < 2000; i++) {
        char bytes[256];
        size_t n = test_random(&seed) % sizeof(bytes);
        for (size_t k = 0; k < n; k++)
            bytes[k] = (char)test_random(&seed);
        if (n > 0)
            bytes[0] = 2; /* the version */
        vow_name name = vow_name_of("a");
        vow_bytes *plain;
        CHECK_INT_EQ(
            vow__redis_unseal(a.redis, OF(name, 7, 0), bytes, n, &plain),
            VOW_EIO);
    }
    alone_close(&a);
}

TEST(redis_seal, without_a_key_bytes_stay_as_they_are)
{
    struct alone a;
    vow_name name = vow_name_of("a");
    alone_open(&a, NULL);
    VOW_AUTO(vow_bytes) plain = bytes_of(&a, "result");
    VOW_AUTO(vow_bytes) same = NULL;
    VOW_AUTO(vow_bytes) again = NULL;
    CHECK_INT_EQ(vow__redis_seal(a.redis, OF(name, 7, 0), 1, plain, &same), 0);
    CHECK_PTR_EQ(same, plain);
    CHECK_INT_EQ(
        vow__redis_unseal(a.redis, OF(name, 7, 0), "result", 6, &again), 0);
    CHECK_MEM_EQ(vow_bytes_data(again), "result", 6);
    CHECK_INT_EQ(vow__redis_seal(a.redis, OF(name, 7, 0), 1, NULL, &same), 0);
    CHECK(same == NULL);
    vow_bytes_unref(plain); /* which was counted */
    plain = vow_bytes_unref(plain);
    again = vow_bytes_unref(again);
    alone_close(&a);
}

/* A result of the server that cannot be read is trouble with a sentence, which
 * has nothing of the result in it. */
TEST(redis_seal, a_value_that_does_not_open_is_trouble)
{
    struct alone a;
    alone_open(&a, KEY);
    vow_record of = {.name = vow_name_of("a"), .epoch = 7};
    static const char secret[] =
        "\2secret secret secret secret secret secret secret secret secret";
    struct vow__resp v = {
        .kind = VOW__RESP_TEXT, .text = secret, .n = sizeof(secret) - 1};
    vow_bytes *value;
    CHECK_INT_EQ(vow__redis_value(a.redis, &of, 'D', &v, &value), VOW_ESTORE);
    CHECK(strstr(a.store->ops->explain(a.store), "cannot be opened") != NULL);
    CHECK(strstr(a.store->ops->explain(a.store), "secret") == NULL);
    v.text = "\1of an older version";
    v.n = 21;
    CHECK_INT_EQ(vow__redis_value(a.redis, &of, 'D', &v, &value), VOW_ENOENT);
    CHECK(strstr(a.store->ops->explain(a.store), "is over") != NULL);
    v.n = 4096 + VOW__SEAL_MORE + 1; /* looked at before anything else */
    CHECK_INT_EQ(vow__redis_value(a.redis, &of, 'D', &v, &value), VOW_ESTORE);
    CHECK(strstr(a.store->ops->explain(a.store), "larger") != NULL);
    v.kind = VOW__RESP_NIL;
    CHECK_INT_EQ(vow__redis_value(a.redis, &of, 'D', &v, &value), VOW_ESTORE);
    CHECK_INT_EQ(vow__redis_value(a.redis, &of, 'G', &v, &value), 0);
    CHECK_MEM_EQ(vow_bytes_data(value), "-6014\n", 6);
    vow_bytes_unref(value);
    alone_close(&a);
}
