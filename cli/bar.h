/* SPDX-License-Identifier: MIT */
/* bar.h - progress of a run: a bar below the output on a terminal, or a plain
 * line now and then.
 *
 * The caller reports the numbers whenever they change, as often as the caller
 * likes, and calls again when time has passed. bar.c decides when to draw (at
 * most ten times a second) and how wide. With BAR_NONE nothing is written.
 */
#ifndef VOW_CLI_BAR_H
#define VOW_CLI_BAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bar_style { BAR_NONE, BAR_PLAIN, BAR_BAR };

struct bar_opts {
    enum bar_style style;
    int fd;     /* descriptor to write to: stderr */
    bool color; /* use colors, not only shapes */
    bool eta;   /* show the time left, if there is an estimate */
};

struct bar_state {
    uint64_t done;    /* jobs that have ended for good, failed jobs included */
    uint64_t failed;  /* failed jobs among `done` */
    uint64_t skipped; /* jobs skipped by --resume: not counted in `done` */
    uint64_t running;
    uint64_t retrying; /* jobs that wait for another attempt */
    uint64_t total;    /* jobs in all; 0: not known */
    bool open;         /* the input may bring more jobs: `total` counts the
                          known jobs, or is an estimate from the size of the
                          file */
    uint64_t now_ms;   /* milliseconds since the run began */
};

/* Returns the style for the value of --progress (auto, bar, plain, none). auto
 * is BAR_BAR on a terminal that is not dumb, else BAR_NONE. */
enum bar_style bar_choose(const char *asked, int fd);

void bar_open(const struct bar_opts *o);
/* Stores the numbers, and draws if a drawing is due. */
void bar_update(const struct bar_state *s);
/* Returns when bar_update() should be called at the latest; UINT64_MAX:
 * never. */
uint64_t bar_next_ms(void);
/* Hides the bar while a line is written to the terminal, and shows the bar
 * again. */
void bar_hide(void);
void bar_show(void);
/* Draws a last plain line, or removes the bar. */
void bar_close(void);
/* Reads the new size of the window, and draws again. */
void bar_resized(void);

/* Writes a line of at most `columns` columns into the `room` bytes at `into`,
 * without escapes if !color. Not static for the tests. */
void bar_line(char *into, size_t room, unsigned columns,
              const struct bar_opts *o, const struct bar_state *s);

#endif
