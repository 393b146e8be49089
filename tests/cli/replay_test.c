/* SPDX-License-Identifier: MIT */
/* replay_test.c - what a command wrote comes back to the byte, in its order;
 * and whatever else is given for a recording is refused, wherever it is cut.
 */
#include "child_kit.h"
#include "harness.h"
#include "replay.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

enum { ROOM = 65536 };

/* What came out of a replay: a letter for the descriptor before each piece. */
struct seen {
    char at[ROOM];
    size_t n;
};

static void note(int fd, const char *at, size_t n, void *user);
static void sample(struct recording *r);
static void write_and_exit(void *recording);
static void random_recording(struct recording *r, struct text *both,
                             uint64_t *random);

TEST(replay, gives_back_bytes_order_and_code)
{
    struct recording r = {0};
    struct replay p = {0};
    struct seen seen = {0};
    sample(&r);
    CHECK(replay_feed(&p, r.bytes.at, r.bytes.n, note, &seen) == NULL);
    CHECK(replay_over(&p));
    CHECK_INT_EQ(p.end.number, 3);
    CHECK(!p.end.by_signal);
    CHECK_UINT_EQ(seen.n, 14);
    CHECK_MEM_EQ(seen.at,
                 "1a\0b2oh\n1c\xff"
                 "2!\n",
                 14);
    text_free(&r.bytes);
}

TEST(replay, of_nothing_but_an_end)
{
    struct recording r = {0};
    struct ending e;
    recording_end(&r, (struct ending){.by_signal = true, .number = 9});
    CHECK(replay_check(r.bytes.at, r.bytes.n, &e) == NULL);
    CHECK_INT_EQ(ending_code(e), 137);
    CHECK_UINT_EQ(r.kept, 0);
    text_free(&r.bytes);
}

TEST(replay, joins_what_follows_on_the_same_descriptor)
{
    struct recording r = {0};
    struct seen seen = {0};
    struct replay p = {0};
    recording_add(&r, 1, "ab", 2);
    recording_add(&r, 1, "cd", 2);
    CHECK_UINT_EQ(r.bytes.n, 5 + 5 + 4);
    recording_cut(&r);
    recording_add(&r, 1, "ef", 2);
    CHECK_UINT_EQ(r.bytes.n, 5 + 5 + 4 + 5 + 2);
    CHECK_UINT_EQ(r.kept, 6);
    CHECK(replay_feed(&p, r.bytes.at, r.bytes.n, note, &seen) == NULL);
    CHECK(!replay_over(&p));
    CHECK_MEM_EQ(seen.at, "1abcd1ef", 8);
    text_free(&r.bytes);
}

TEST(replay, does_not_care_where_its_input_is_cut)
{
    struct recording r = {0};
    sample(&r);
    for (size_t step = 1; step <= r.bytes.n; step++) {
        struct replay p = {0};
        struct text out = {0}, err = {0};
        struct text *both[3] = {NULL, &out, &err};
        for (size_t at = 0; at < r.bytes.n; at += step) {
            size_t n = r.bytes.n - at < step ? r.bytes.n - at : step;
            struct seen seen = {0};
            CHECK(replay_feed(&p, r.bytes.at + at, n, note, &seen) == NULL);
            for (size_t i = 0, fd = 0; i < seen.n; i++)
                if (seen.at[i] == '1' || seen.at[i] == '2')
                    fd = (size_t)(seen.at[i] - '0');
                else
                    text_add(both[fd], &seen.at[i], 1);
        }
        CHECK(replay_over(&p));
        CHECK_UINT_EQ(out.n, 5);
        CHECK_MEM_EQ(out.at, "a\0bc\xff", 5);
        CHECK_STR_EQ(err.at, "oh\n!\n");
        text_free(&out);
        text_free(&err);
    }
    text_free(&r.bytes);
}

TEST(replay, refuses_every_beginning_of_a_recording)
{
    struct recording r = {0};
    struct ending e;
    sample(&r);
    for (size_t n = 0; n < r.bytes.n; n++)
        CHECK_STR_EQ(replay_check(r.bytes.at, n, &e), "its end is missing");
    CHECK(replay_check(r.bytes.at, r.bytes.n, &e) == NULL);
    text_add(&r.bytes, "o", 1);
    CHECK_STR_EQ(replay_check(r.bytes.at, r.bytes.n, &e),
                 "there is more behind its end");
    text_free(&r.bytes);
}

TEST(replay, says_what_is_wrong)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *sentence;
    } all[] = {
        {"hello", 5, "it is not the result of a command"},
        {"vowr\2x\0", 7, "it was written by another version of vow"},
        {"vowr\1?", 6, "it has a piece of an unknown kind"},
        {"vowr\1o\0\0\0\0", 10, "a piece has a length that is not allowed"},
        {"vowr\1o\1\0\0\x40", 10, "a piece has a length that is not allowed"},
        {"vowr\1e\xff\xff\xff\xff", 10,
         "a piece has a length that is not allowed"},
        {"vowr\1s\0", 7, "it ended by a signal that does not exist"},
        {"vowr\1s\x80", 7, "it ended by a signal that does not exist"},
        {"vowr\1o\5\0\0\0abc", 13, "its end is missing"}};
    struct ending e;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        CHECK_STR_EQ(replay_check(all[i].bytes, all[i].n, &e), all[i].sentence);
}

TEST(replay, survives_every_changed_byte)
{
    struct recording r = {0};
    struct ending e;
    sample(&r);
    for (size_t i = 0; i < r.bytes.n; i++)
        for (int c = 0; c < 256; c++) {
            char was = r.bytes.at[i];
            r.bytes.at[i] = (char)c;
            const char *wrong = replay_check(r.bytes.at, r.bytes.n, &e);
            CHECK(wrong == NULL || strlen(wrong) > 10);
            r.bytes.at[i] = was;
        }
    CHECK(replay_check(r.bytes.at, r.bytes.n, &e) == NULL);
    text_free(&r.bytes);
}

TEST(replay, writes_both_in_their_order)
{
    struct recording r = {0};
    char text[ROOM];
    sample(&r);
    CHECK_INT_EQ(run_in_child(write_and_exit, &r, text, sizeof(text)), 3);
    CHECK_MEM_EQ(text, "a\0boh\nc\xff!\n", 11);
    text_free(&r.bytes);
}

TEST(replay, tells_that_it_cannot_write)
{
    struct recording r = {0};
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    CHECK(full >= 0);
    sample(&r);
    CHECK(dup2(full, STDOUT_FILENO) == STDOUT_FILENO);
    CHECK_INT_EQ(replay_write(r.bytes.at, r.bytes.n), ENOSPC);
    text_free(&r.bytes);
    close(full);
}

TEST(replay, is_exact_for_random_output)
{
    uint64_t random = test_seed();
    for (int i = 0; i < 200; i++) {
        struct recording r = {0};
        struct text both = {0};
        struct seen seen = {0};
        struct replay p = {0};
        random_recording(&r, &both, &random);
        for (size_t at = 0; at < r.bytes.n;) {
            size_t n = 1 + test_random(&random) % 40;
            n = n < r.bytes.n - at ? n : r.bytes.n - at;
            CHECK(replay_feed(&p, r.bytes.at + at, n, note, &seen) == NULL);
            at += n;
        }
        CHECK(replay_over(&p));
        CHECK_INT_EQ(ending_code(p.end), i % 256);
        size_t k = 0;
        for (size_t j = 0; j < seen.n; j++) /* '1' and '2' are not in it */
            if (seen.at[j] != '1' && seen.at[j] != '2')
                CHECK_INT_EQ(seen.at[j], both.at[k++]);
        CHECK_UINT_EQ(k, both.n);
        text_free(&both);
        text_free(&r.bytes);
    }
}

static void sample(struct recording *r)
{
    recording_add(r, 1, "a\0b", 3);
    recording_add(r, 2, "oh\n", 3);
    recording_add(r, 1, "c", 1);
    recording_add(r, 1, "\xff", 1);
    recording_add(r, 2, "", 0);
    recording_add(r, 2, "!\n", 2);
    recording_end(r, (struct ending){.number = 3});
}

static void note(int fd, const char *at, size_t n, void *user)
{
    struct seen *s = user;
    CHECK(n > 0);
    CHECK(s->n + n + 1 < sizeof(s->at));
    s->at[s->n++] = (char)('0' + fd);
    memcpy(s->at + s->n, at, n);
    s->n += n;
}

static void random_recording(struct recording *r, struct text *both,
                             uint64_t *random)
{
    static int number;
    char bytes[100];
    for (size_t i = test_random(random) % 20; i > 0; i--) {
        size_t n = test_random(random) % sizeof(bytes);
        for (size_t k = 0; k < n; k++)
            bytes[k] = (char)('a' + test_random(random) % 26);
        recording_add(r, 1 + (int)(test_random(random) % 2), bytes, n);
        text_add(both, bytes, n);
        if (test_random(random) % 4 == 0)
            recording_cut(r);
    }
    recording_end(r, (struct ending){.number = number++ % 256});
}

static void write_and_exit(void *recording)
{
    struct recording *r = recording;
    struct ending e;
    CHECK(replay_check(r->bytes.at, r->bytes.n, &e) == NULL);
    CHECK_INT_EQ(replay_write(r->bytes.at, r->bytes.n), 0);
    _exit(ending_code(e));
}
