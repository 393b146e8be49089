/* SPDX-License-Identifier: MIT */
/* 06_unicode_mapper.c - map Japanese words to their code points by promises.
 *
 * A pretend service answers each word with its code points, some time later.
 * vow_map() asks for three words at a time and gives the results in the order
 * of the words, whichever answer came first. One word is damaged: the first map
 * collects an outcome for each word, the second ends with that error and begins
 * nothing more. Time is virtual, so every run prints the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vow.h>

enum { AT_ONCE = 3, TEXT_MAX = 80 };

struct entry {
    const char *word;
    const char *expected; /* NULL: the word is damaged */
};

static const struct entry entries[] = {
    {"さくら", "U+3055 U+304F U+3089"},
    {"ラーメン", "U+30E9 U+30FC U+30E1 U+30F3"},
    {"猫", "U+732B"},
    {"𠮷野家", "U+20BB7 U+91CE U+5BB6"}, /* beyond 16 bits */
    {"\xe6\x9d", NULL},                  /* the third byte is missing */
    {"日本語", "U+65E5 U+672C U+8A9E"},
    {"東京", "U+6771 U+4EAC"},
};
enum { WORDS = sizeof(entries) / sizeof(entries[0]) };

struct service {
    vow_loop *loop;
    vow_span words; /* of the map, which goes through them */
    int asked, answered;
    int running, most_running;
};

struct request {
    struct service *service;
    const char *word;
    int place; /* first, second, ... of the answers */
};

/* How many bytes a character has, by its first one; 0: it cannot be one. */
static size_t length_of(unsigned char first)
{
    if (first < 0x80)
        return 1;
    return first >> 5 == 6    ? 2
           : first >> 4 == 14 ? 3
           : first >> 3 == 30 ? 4
                              : 0;
}

/* Reads a character of UTF-8 and moves on; -1: it is none. */
static long code_point(const char **at)
{
    static const long least[] = {0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)*at;
    size_t n = length_of(s[0]);
    if (n == 0)
        return -1;
    long point = n == 1 ? s[0] : s[0] & (0x7f >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return -1;
        point = point << 6 | (s[i] & 0x3f);
    }
    *at += n;
    bool surrogate = point >= 0xd800 && point < 0xe000;
    return point < least[n - 1] || point > 0x10ffff || surrogate ? -1 : point;
}

/* ---- the pretend service ------------------------------------------------- */

static vow_next answer(vow_value v, void *user)
{
    struct request *r = user;
    struct service *s = r->service;
    (void)v;
    s->running--;
    r->place = ++s->answered;
    char *text = calloc(1, TEXT_MAX);
    if (text == NULL)
        return vow_fail_code(VOW_ENOMEM, NULL);
    for (const char *at = r->word; *at != '\0';) {
        long point = code_point(&at);
        if (point < 0) {
            free(text);
            return vow_fail(vow_error_new(s->loop, VOW_EINVAL,
                                          "byte %d is not UTF-8",
                                          (int)(at - r->word)));
        }
        size_t used = strlen(text);
        snprintf(text + used, TEXT_MAX - used, "%sU+%04lX", used > 0 ? " " : "",
                 (unsigned long)point);
    }
    return vow_ok(vow_own(text, free)); /* the promise frees it */
}

/* What vow_map() calls for each item: it starts, and returns a future. */
static vow_future *ask(vow_loop *loop, vow_value item, size_t index, void *user)
{
    struct request *r = (struct request *)user + index;
    struct service *s = r->service;
    r->word = ((const struct entry *)vow_as_ptr(item))->word;
    s->asked++;
    if (++s->running > s->most_running)
        s->most_running = s->running;
    uint64_t takes_ms = 10 * strlen(r->word);
    return vow_then_drop(vow_delay(loop, takes_ms), answer, NULL, r);
}

/* ---- two maps ------------------------------------------------------------ */

static vow_future *map_all(struct service *s, struct request *requests,
                           uint32_t fail)
{
    vow_source source =
        vow_source_array(&s->words, entries, WORDS, sizeof(entries[0]));
    return vow_map(s->loop, source, ask, requests,
                   VOW_MAP(.concurrent = AT_ONCE, .fail = fail));
}

static bool show(const struct request *r, const struct entry *e,
                 vow_future *outcome)
{
    vow_error *error = vow_error_of(outcome);
    if (error != NULL) {
        printf("%d. (a damaged word): %s\n", r->place,
               vow_error_message(error));
        return e->expected == NULL;
    }
    const char *text = vow_as_ptr(vow_get(outcome));
    printf("%d. %s: %s\n", r->place, e->word, text);
    return e->expected != NULL && strcmp(text, e->expected) == 0;
}

static bool collect(struct service *s, struct request *requests)
{
    VOW_AUTO(vow_future) f = map_all(s, requests, VOW_FAIL_COLLECT);
    if (vow_loop_run_until(s->loop, f) < 0)
        return false;
    printf("the words in their order, with the place their answer came in:\n");
    vow_value list = vow_get(f);
    bool good = vow_list_size(list) == WORDS;
    for (size_t i = 0; i < vow_list_size(list); i++)
        good = show(&requests[i], &entries[i], vow_list_at(list, i)) && good;
    printf("%d of them were asked for at a time\n", s->most_running);
    return good && s->most_running == AT_ONCE;
}

static bool fail_now(struct service *s, struct request *requests)
{
    s->asked = 0;
    VOW_AUTO(vow_future) f = map_all(s, requests, VOW_FAIL_NOW);
    int rc = vow_loop_run_until(s->loop, f);
    printf("without collect: %s, after %d of %d were asked for\n",
           vow_error_message(vow_error_of(f)), s->asked, (int)WORDS);
    return rc == VOW_EINVAL && s->asked < WORDS;
}

int main(void)
{
    struct service s = {0};
    struct request requests[WORDS] = {{0}};
    if (vow_loop_new(VOW_LOOP_OPTS(.flags = VOW_LOOP_VIRTUAL_TIME), &s.loop) <
        0)
        return 1;
    for (size_t i = 0; i < WORDS; i++)
        requests[i].service = &s;
    bool good = collect(&s, requests) && fail_now(&s, requests);
    vow_loop_close(s.loop);
    return good ? 0 : 1;
}
