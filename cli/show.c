/* SPDX-License-Identifier: MIT */
/* show.c - see show.h.
 *
 * INVARIANTS
 *   W1  `held` has the bytes of the present attempt that the reader has seen,
 *       as long as `seen` is not beyond the end of `held`
 */
#include "show.h"
#include "emit.h"
#include "say.h"

#include <string.h>
#include <unistd.h>

struct shown {
    uint64_t most;    /* bytes in `held`; 0: nothing is held */
    struct text held; /* bytes that were shown */
    size_t seen;      /* bytes of the present attempt so far */
};

static struct shown out, err;
static bool difference_reported;

static struct shown *shown_of(int fd);

static size_t count_same_bytes(const struct shown *s, const char *at, size_t n);
static void report_difference(struct shown *s);

void show_hold(int fd, uint64_t most)
{
    shown_of(fd)->most = most;
}

void show_from_start(int fd)
{
    shown_of(fd)->seen = 0;
}

static struct shown *shown_of(int fd)
{
    return fd == STDERR_FILENO ? &err : &out;
}

void show_bytes(int fd, const char *at, size_t n, void *unused)
{
    struct shown *s = shown_of(fd);
    struct text t = {0};
    (void)unused;
    if (s->most > 0) {
        size_t skip = count_same_bytes(s, at, n);
        s->seen += skip;
        at += skip;
        n -= skip;
        if (n > 0 && s->seen < s->held.n)
            report_difference(s);
        text_add(&s->held, at, n); /* keeps W1 */
        s->seen += n;
        if (s->held.n > s->most)
            die(EXIT_BROKEN,
                "more than %llu bytes cannot be followed: give a larger "
                "--max-output",
                (unsigned long long)s->most);
    }
    text_add(&t, at, n);
    emit_text(fd, &t);
}

/* Returns how many of the first bytes were shown before. */
static size_t count_same_bytes(const struct shown *s, const char *at, size_t n)
{
    size_t there = s->held.n - s->seen;
    size_t most = n < there ? n : there;
    const char *was = s->held.at + s->seen;
    size_t i = 0;
    if (most > 0 && memcmp(was, at, most) == 0)
        return most;
    while (i < most && was[i] == at[i])
        i++;
    return i;
}

static void report_difference(struct shown *s)
{
    if (!difference_reported)
        say("the runner was lost, and the output of the next runner differs: "
            "it is shown from the first difference on");
    difference_reported = true;
    s->held.n = s->seen;
}
