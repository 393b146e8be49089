/* SPDX-License-Identifier: MIT */
/* 05_stop_words.c - count stop words by callbacks, four at a time.
 *
 * Is a word a stop word ("the", "of")? A dictionary knows, and answers by a
 * callback: on the spot if it was asked for that word before, otherwise some
 * time later. vow_parallel() asks for all words, at most four at a time, and
 * calls back exactly once: with all answers in the order of the words, or with
 * the first error. Time is virtual, so every run prints the same. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <vow.h>

enum { WORDS_MAX = 64, AT_ONCE = 4 };

static const char text[] =
    "It was the best of times it was the worst of times it was the age of "
    "wisdom it was the age of foolishness it was the season of Light it was "
    "the season of Darkness";

static const char *const stop_words[] = {"a",  "and", "at", "in",  "is",
                                         "it", "of",  "or", "the", "was"};

struct dictionary {
    vow_loop *loop;
    int asked, on_the_spot;
    int running, most_running;
    const char *known[WORDS_MAX]; /* words it was asked for before */
    int known_count;
};

struct question {
    struct dictionary *dictionary;
    char word[32];
    vow_slot *slot; /* where the answer goes */
    vow_call later;
};

struct report {
    const struct question *questions;
    int calls;     /* of done() */
    int64_t found; /* stop words, -1: an error came instead */
};

static bool is_stop_word(const char *word)
{
    char lower[32] = "";
    for (size_t i = 0; word[i] != '\0' && i < sizeof(lower) - 1; i++)
        lower[i] = (char)tolower((unsigned char)word[i]);
    for (size_t i = 0; i < sizeof(stop_words) / sizeof(stop_words[0]); i++)
        if (strcmp(lower, stop_words[i]) == 0)
            return true;
    return false;
}

static bool knows(const struct dictionary *d, const char *word)
{
    for (int i = 0; i < d->known_count; i++)
        if (strcmp(d->known[i], word) == 0)
            return true;
    return false;
}

static void answer(void *user)
{
    struct question *q = user;
    q->dictionary->running--;
    if (q->word[0] == '\0')
        vow_slot_fail(q->slot, vow_error_new(vow_slot_loop(q->slot), VOW_EINVAL,
                                             "an empty word"));
    else
        vow_slot_ok(q->slot, vow_int(is_stop_word(q->word)));
}

/* A task: it must report to its slot once, inside this call or later. */
static void look_up(vow_slot *slot, void *arg)
{
    struct question *q = arg;
    struct dictionary *d = q->dictionary;
    q->slot = slot;
    d->asked++;
    if (++d->running > d->most_running)
        d->most_running = d->running;
    if (knows(d, q->word)) {
        d->on_the_spot++;
        answer(q);
        return;
    }
    if (d->known_count < WORDS_MAX)
        d->known[d->known_count++] = q->word;
    uint64_t takes_ns = (5 + strlen(q->word) * 3) * 1000000;
    vow_call_at(&q->later, d->loop, vow_loop_now_ns(d->loop) + takes_ns, answer,
                q);
}

static void done(vow_error *error, const vow_value *results, size_t n,
                 void *user)
{
    struct report *r = user;
    r->calls++;
    r->found = -1;
    if (error != NULL) {
        printf("no answer: %s\n", vow_error_message(error));
        return;
    }
    r->found = 0;
    for (size_t i = 0; i < n; i++) {
        bool stop = vow_as_int(results[i]) != 0;
        r->found += stop;
        printf(stop ? "(%s)%c" : "%s%c", r->questions[i].word,
               i % 12 == 11 || i == n - 1 ? '\n' : ' ');
    }
}

/* Ask for all words; the result is what done() was told. */
static struct report ask_for(struct dictionary *d, struct question *questions,
                             size_t n)
{
    struct report r = {.questions = questions};
    vow_task tasks[WORDS_MAX];
    for (size_t i = 0; i < n; i++) {
        questions[i].dictionary = d;
        tasks[i] = (vow_task){look_up, &questions[i]};
    }
    if (vow_parallel(d->loop, tasks, n, AT_ONCE, done, &r) == 0)
        vow_loop_run(d->loop);
    return r;
}

static size_t split(struct question *questions)
{
    size_t n = 0;
    for (const char *at = text; *at != '\0' && n < WORDS_MAX; n++) {
        size_t length = strcspn(at, " ");
        memcpy(questions[n].word, at, length);
        at += length + strspn(at + length, " ");
    }
    return n;
}

int main(void)
{
    static struct question questions[WORDS_MAX];
    struct dictionary d = {0};
    if (vow_loop_new(VOW_LOOP_OPTS(.flags = VOW_LOOP_VIRTUAL_TIME), &d.loop) <
        0)
        return 1;

    size_t n = split(questions);
    int64_t expected = 0;
    for (size_t i = 0; i < n; i++)
        expected += is_stop_word(questions[i].word);

    struct report first = ask_for(&d, questions, n);
    printf("%d of %zu words are stop words; at most %d questions at a time, "
           "%d answered on the spot\n",
           (int)first.found, n, d.most_running, d.on_the_spot);

    questions[9].word[0] = '\0'; /* a hole in the list */
    d.asked = d.known_count = 0;
    struct report second = ask_for(&d, questions, n);
    printf("with a hole in the list, %d of %zu were asked for\n", d.asked, n);

    vow_loop_close(d.loop);
    return first.calls == 1 && first.found == expected &&
                   d.most_running == AT_ONCE && second.calls == 1 &&
                   second.found == -1 && d.asked < (int)n
               ? 0
               : 1;
}
