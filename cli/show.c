/* SPDX-License-Identifier: MIT */
/* show.c - see show.h.
 *
 * INVARIANTS
 *   W1  what is held of a descriptor is what its reader has seen of the attempt
 *       that is shown, as long as `seen` is not behind its end
 */
#include "show.h"
#include "emit.h"
#include "say.h"

#include <string.h>
#include <unistd.h>

struct shown {
    uint64_t most; /* 0: nothing is held */
    struct text held;
    size_t seen; /* of the attempt, so far */
};

static struct shown out, err;
static bool told; /* that attempts differ */

static struct shown *shown_of(int fd);

static size_t same(const struct shown *s, const char *at, size_t n);
static void differs(struct shown *s);

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
        size_t skip = same(s, at, n);
        s->seen += skip;
        at += skip;
        n -= skip;
        if (n > 0 && s->seen < s->held.n)
            differs(s);
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

/* How many of these were shown already. */
static size_t same(const struct shown *s, const char *at, size_t n)
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

static void differs(struct shown *s)
{
    if (!told)
        say("the runner was lost, and the next one writes something else: what "
            "follows is from there on");
    told = true;
    s->held.n = s->seen;
}
