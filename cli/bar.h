/* SPDX-License-Identifier: MIT */
/* bar.h - how far it is: a bar under the output on a terminal, or a plain line
 * now and then.
 *
 * The caller tells numbers whenever they change, as often as it likes, and says
 * when time has passed; this decides when to draw (at most ten times a second)
 * and how wide. It never writes unless it was opened with a style that does.
 */
#ifndef VOW_CLI_BAR_H
#define VOW_CLI_BAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bar_style { BAR_NONE, BAR_PLAIN, BAR_BAR };

struct bar_opts {
    enum bar_style style;
    int fd;     /* where: stderr */
    bool color; /* colors and not only shape */
    bool eta;   /* tell the time that is left, if it can be told */
};

struct bar_state {
    uint64_t done;    /* ended for good, all kinds */
    uint64_t failed;  /* of these */
    uint64_t skipped; /* by --resume: not counted in done */
    uint64_t running;
    uint64_t retrying; /* wait to be tried again */
    uint64_t total;    /* 0: not known */
    bool open;         /* the input may still bring more: total is what is known
                          so far, or from the size of the file */
    uint64_t now_ms;   /* since the run began */
};

/* What people asked for (auto, bar, plain, none) and what is there: auto is
 * BAR_BAR on a terminal that is not dumb, else BAR_NONE. */
enum bar_style bar_choose(const char *asked, int fd);

void bar_open(const struct bar_opts *o);
/* Draws if it is time to. */
void bar_update(const struct bar_state *s);
/* When bar_update() should be called at the latest; UINT64_MAX: no need. */
uint64_t bar_next_ms(void);
/* Out of the way of a line that is to be written to the terminal, and back. */
void bar_hide(void);
void bar_show(void);
/* The last picture; with a bar, it goes away. */
void bar_close(void);
/* The window has another size. */
void bar_resized(void);

/* One line of at most `columns` columns, without escapes if !color, for tests:
 * into `into` of so many bytes. */
void bar_line(char *into, size_t room, unsigned columns,
              const struct bar_opts *o, const struct bar_state *s);

#endif
