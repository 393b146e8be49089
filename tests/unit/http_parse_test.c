/* SPDX-License-Identifier: MIT */
/* http_parse_test.c - responses that are whole, in pieces, and malformed. */
#include "harness.h"
#include "store/net/http_parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct parsed {
    struct vow__http_parser p;
    enum vow__http_event event;
    char body[256];
    size_t body_n;
    size_t rest; /* bytes behind the response */
};

/* As a connection does, with pieces of up to `step` bytes. */
static void parse(struct parsed *r, const char *text, size_t size, size_t first,
                  size_t step)
{
    memset(r, 0, sizeof(*r));
    size_t at = 0;
    do {
        size_t n = at == 0 ? first : step;
        n = n < size - at ? n : size - at;
        char *piece = malloc(n == 0 ? 1 : n); /* what reads beyond is seen */
        CHECK(piece != NULL);
        memcpy(piece, text + at, n);
        const char *bytes = piece;
        const char *body;
        size_t body_n;
        at += n;
        while ((r->event = vow__http_parse(&r->p, &bytes, &n, &body,
                                           &body_n)) == VOW__HTTP_BODY) {
            CHECK(body_n > 0 && r->body_n + body_n < sizeof(r->body));
            memcpy(r->body + r->body_n, body, body_n);
            r->body_n += body_n;
        }
        r->rest = n + size - at;
        free(piece);
    } while (r->event == VOW__HTTP_MORE && at < size);
}

struct good {
    const char *text;
    unsigned status;
    const char *body;
    bool closes;
    bool by_close; /* it ends with the connection */
    size_t rest;
};

static const struct good goods[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", false,
     false, 0},
    {"HTTP/1.1 200\r\ncontent-length:5  \r\n\r\nhello", 200, "hello", false,
     false, 0},
    {"HTTP/1.1 200 \r\nContent-Length: \t5\r\nContent-Length: 5\r\n\r\nhello",
     200, "hello", false, false, 0},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", false, false, 0},
    {"HTTP/1.1 500 X\r\nContent-Length: 2\r\nConnection: keep-alive, "
     "Close\r\n\r\nno",
     500, "no", true, false, 0},
    {"HTTP/1.1 204 X\r\n\r\n", 204, "", false, false, 0},
    {"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n", 304, "", false, false, 0},
    {"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n"
     "5\r\nhello\r\n6;a=\"b\"\r\n world\r\n00\r\n\r\n",
     200, "hello world", false, false, 0},
    {"HTTP/1.1 200 X\r\ntransfer-encoding: Chunked\r\n\r\n"
     "A\r\n0123456789\r\n00b\r\n01234567890\r\n0\r\nTrailer: x\r\n\r\n",
     200, "012345678901234567890", false, false, 0},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 X\r\nA: b\r\n\r\n"
     "HTTP/1.1 200 X\r\nContent-Length: 1\r\n\r\na",
     200, "a", false, false, 0},
    {"HTTP/1.1 200 X\r\n\r\nuntil the end", 200, "until the end", true, true,
     0},
    {"HTTP/1.0 200 X\r\n\r\nold", 200, "old", true, true, 0},
    {"HTTP/1.0 200 X\r\nContent-Length: 3\r\n\r\nold", 200, "old", true, false,
     0},
    {"HTTP/1.1 200 X\r\nContent-Length: 1\r\n\r\naHTTP/1.1 200", 200, "a",
     false, false, 12},
    {"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nab", 200, "",
     false, false, 2},
};

TEST(http_parse, responses_are_read_however_they_are_cut)
{
    for (size_t i = 0; i < sizeof(goods) / sizeof(goods[0]); i++) {
        const struct good *g = &goods[i];
        size_t size = strlen(g->text);
        for (size_t first = 1; first <= size; first++)
            for (size_t step = 1; step <= size; step += size - 1) {
                struct parsed r;
                parse(&r, g->text, size, first, step);
                bool whole = g->by_close ? r.event == VOW__HTTP_MORE &&
                                               vow__http_parse_close(&r.p)
                                         : r.event == VOW__HTTP_END;
                if (!whole || r.p.status != g->status ||
                    r.p.closes != g->closes || r.rest != g->rest ||
                    r.body_n != strlen(g->body) ||
                    memcmp(r.body, g->body, r.body_n) != 0)
                    FAIL("response %zu, cut at %zu: event %d", i, first,
                         (int)r.event);
            }
    }
}

TEST(http_parse, a_response_that_is_not_whole_is_not_ended_by_the_connection)
{
    for (size_t i = 0; i < sizeof(goods) / sizeof(goods[0]); i++) {
        const struct good *g = &goods[i];
        const size_t size = strlen(g->text) - g->rest;
        for (size_t n = 0; !g->by_close && n < size; n++) {
            struct parsed r;
            parse(&r, g->text, n, n, n);
            if (r.event != VOW__HTTP_MORE || vow__http_parse_close(&r.p))
                FAIL("response %zu, %zu bytes: event %d", i, n, (int)r.event);
        }
    }
}

#define HEAD "HTTP/1.1 200 X\r\n"
#define CHUNKED HEAD "Transfer-Encoding: chunked\r\n\r\n"

TEST(http_parse, what_is_malformed_is_refused)
{
    static const char *const all[] = {
        "what do you want?\r\n",
        "\r\n",
        " HTTP/1.1 200 X\r\n",
        "http/1.1 200 X\r\n",
        "HTTP/2.0 200 X\r\n",
        "HTTP/1.2 200 X\r\n",
        "HTTP/1.1  200 X\r\n",
        "HTTP/1.1 20 X\r\n",
        "HTTP/1.1 2000 X\r\n",
        "HTTP/1.1 20x X\r\n",
        "HTTP/1.1 200X\r\n",
        "HTTP/1.1 099 X\r\n",
        "HTTP/1.1 -20 X\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n",
        "HTTP/1.1 200 X\n",
        "HTTP/1.1 200 X\r\r\n",
        "HTTP/1.1 200 X\ra\r\n",
        "HTTP/1.1 200 \x01\r\n",
        "HTTP/1.1 200 \x7f\r\n",
        HEAD "Content-Length: 5\n",
        HEAD "Content-Length\r\n",
        HEAD "Content-Length : 5\r\n",
        HEAD ": 5\r\n",
        HEAD " Content-Length: 5\r\n",
        HEAD "A: b\r\n c: folded\r\n",
        HEAD "Content-Length:\r\n",
        HEAD "Content-Length: -1\r\n",
        HEAD "Content-Length: +1\r\n",
        HEAD "Content-Length: 0x1\r\n",
        HEAD "Content-Length: a\r\n",
        HEAD "Content-Length: 1 1\r\n",
        HEAD "Content-Length: 1, 1\r\n",
        HEAD "Content-Length: 1000000000000000000\r\n",
        HEAD "Content-Length: 18446744073709551617\r\n",
        HEAD "Content-Length: 1\r\nContent-Length: 2\r\n",
        HEAD "Transfer-Encoding: gzip\r\n",
        HEAD "Transfer-Encoding: gzip, chunked\r\n",
        HEAD "Transfer-Encoding: identity\r\n",
        HEAD "Transfer-Encoding:\r\n",
        HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        HEAD "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
        HEAD "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.0 200 X\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKED "\r\n",
        CHUNKED "g\r\n",
        CHUNKED "-1\r\n",
        CHUNKED "0x1\r\n",
        CHUNKED " 1\r\n",
        CHUNKED "1\n",
        CHUNKED "1000000000000000\r\n",
        CHUNKED "1\r\nab\r\n",
        CHUNKED "1\r\na\n",
        CHUNKED "1\r\na1\r\n",
        CHUNKED "0\r\n\n",
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (size_t first = 1; first <= strlen(all[i]); first++) {
            struct parsed r;
            parse(&r, all[i], strlen(all[i]), first, 1);
            if (r.event != VOW__HTTP_BAD)
                FAIL("\"%s\" is taken", all[i]);
        }
    struct parsed r;
    static const char zero[] = "HTTP/1.1 200 \0\r\n";
    parse(&r, zero, sizeof(zero) - 1, 1, 1);
    CHECK_INT_EQ(r.event, VOW__HTTP_BAD);
}

/* The lines of a head, and of a trailer. */
static enum vow__http_event parse_long(const char *before, size_t line,
                                       size_t lines)
{
    static struct parsed r;
    const size_t n = strlen(before), size = n + lines * (line + 2);
    char *text = malloc(size);
    CHECK(text != NULL);
    memcpy(text, before, n);
    for (size_t i = 0; i < lines; i++) {
        char *at = text + n + i * (line + 2);
        memset(at, 'a', line);
        at[1] = ':';
        memcpy(at + line, "\r\n", 2);
    }
    parse(&r, text, size, size, size);
    free(text);
    return r.event;
}

TEST(http_parse, lines_and_heads_have_a_limit)
{
    CHECK_INT_EQ(parse_long(HEAD, VOW__HTTP_LINE - 2, 1), VOW__HTTP_MORE);
    CHECK_INT_EQ(parse_long(HEAD, VOW__HTTP_LINE - 1, 1), VOW__HTTP_BAD);
    CHECK_INT_EQ(parse_long(HEAD, 98, 655), VOW__HTTP_MORE);
    CHECK_INT_EQ(parse_long(HEAD, 98, 656), VOW__HTTP_BAD);
    CHECK_INT_EQ(parse_long(CHUNKED "0\r\n", 98, 655), VOW__HTTP_MORE);
    CHECK_INT_EQ(parse_long(CHUNKED "0\r\n", 98, 656), VOW__HTTP_BAD);
}

TEST(http_parse, chunks_have_no_limit)
{
    struct vow__http_parser p = {.state = 0};
    static const char chunk[] = "1\r\na\r\n";
    const char *bytes = CHUNKED, *body;
    size_t n = strlen(bytes), body_n;
    CHECK_INT_EQ(vow__http_parse(&p, &bytes, &n, &body, &body_n),
                 VOW__HTTP_MORE);
    for (int i = 0; i < 50000; i++) {
        bytes = chunk;
        n = sizeof(chunk) - 1;
        CHECK_INT_EQ(vow__http_parse(&p, &bytes, &n, &body, &body_n),
                     VOW__HTTP_BODY);
        CHECK_INT_EQ(vow__http_parse(&p, &bytes, &n, &body, &body_n),
                     VOW__HTTP_MORE);
    }
}

/* Nothing that is made up ends it wrongly, or reads beyond. */
TEST(http_parse, anything_at_all_is_taken_or_refused)
{
    uint64_t random = test_seed();
    static const char signs[] = "0123456789abc\r\n\r\n: ;,";
    for (int i = 0; i < 20000; i++) {
        char text[256];
        struct parsed r;
        const struct good *g =
            &goods[test_random(&random) % (sizeof(goods) / sizeof(goods[0]))];
        size_t n = strlen(g->text);
        memcpy(text, g->text, n);
        for (uint64_t j = test_random(&random) % 4; j > 0; j--)
            text[test_random(&random) % n] =
                signs[test_random(&random) % (sizeof(signs) - 1)];
        parse(&r, text, n, 1 + test_random(&random) % n,
              1 + test_random(&random) % n);
        CHECK(r.event == VOW__HTTP_BAD || r.event == VOW__HTTP_END ||
              r.event == VOW__HTTP_MORE);
        CHECK(r.body_n <= n);
    }
}
