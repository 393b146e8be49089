/* SPDX-License-Identifier: MIT */
/* bar.c - the progress of a run, in a line that is drawn over itself.
 *
 * WHY   People watch the bar for hours: the bar must not flicker, not lie, not
 *       spoil the output above, and cost nothing when stderr is no terminal.
 * HOW   A line consists of parts. If the line is too wide, the least important
 *       parts are left out one by one; free columns go to the gauge. The last
 *       column stays free, because terminals differ in how they wrap there.
 *
 *           bar_update() -> bar_draw() -> bar_line()
 *                        -> parts_describe(), then line_compose()
 *
 *       Speed is measured over the last quarter of the run, or over more of
 *       the run until enough jobs have ended. A few samples are kept for the
 *       speed; when the array is full, every second sample is dropped and new
 *       samples are taken half as often: the memory is the same after a minute
 *       and after a year.
 *       The cursor stays at the beginning of the line: when a window gets
 *       narrower, a terminal that wraps the line keeps the cursor at the first
 *       character, and the whole line can be erased.
 */
#include "bar.h"

#include "units.h"

#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    FIRST_MS = 200,     /* a shorter run shows no bar */
    DRAW_MS = 100,      /* shortest time between two drawings */
    TICK_MS = 1000,     /* longest time: the shown time must advance */
    PLAIN_MS = 1000,    /* time before the first plain line */
    PLAIN_MOST = 30000, /* longest time between two plain lines */
    USUAL_COLUMNS = 80, /* columns of a terminal of unknown width */
    PLAIN_COLUMNS = 200,
    FEWEST_CELLS = 8, /* least width of the gauge */
    MOST_CELLS = 32,
    SAMPLES = 64,
    SAMPLE_MS = 250,     /* first time between two samples */
    SPEED_MS = 10000,    /* least time over which speed is measured */
    SPEED_DONE = 20,     /* least jobs over which speed is measured */
    ENOUGH_DONE = 3,     /* jobs done before any speed is shown */
    ENOUGH_MS = 1000,    /* and milliseconds */
    LONGEST_DAYS = 100,  /* no estimate is good enough beyond */
    PART_ROOM = 48,      /* two numbers of 20 digits and a word */
    LINE_ROOM = 16 * 64, /* a whole line with escapes */
    EIGHTHS = 8
};

/* The parts of a line, from left to right. */
enum part {
    NAME, /* "vow:", in a plain line */
    PERCENT,
    GAUGE,
    COUNT,
    FAILED,
    RUNNING,
    RETRYING,
    SKIPPED,
    SPEED,
    TIME,
    NOTE,
    PARTS
};

static const enum part least_important_first[] = {
    NOTE, SKIPPED, RETRYING, RUNNING, SPEED,  GAUGE,
    TIME, FAILED,  COUNT,    NAME,    PERCENT};
_Static_assert(sizeof(least_important_first) / sizeof(enum part) == PARTS,
               "each part can be left out");

struct parts {
    char text[PARTS][PART_ROOM]; /* "": left out; the gauge: any text */
    bool color;
    double share; /* share of all jobs that have ended, 0 to 1 */
};

/* A line that is being composed. */
struct line {
    char *at;
    size_t room;
    size_t n;
    bool full;
};

struct sample {
    uint64_t ms;
    uint64_t done;
};

static struct {
    struct bar_opts opts;
    struct bar_state state; /* the newest numbers */
    unsigned columns;       /* width of the terminal; 0: not known */
    unsigned hidden;        /* calls of bar_hide() without a bar_show() yet */
    bool changed;           /* the numbers differ from the drawn numbers */
    bool drawn;             /* something was drawn at least once */
    bool on_screen;
    uint64_t drawn_ms;
    uint64_t ended_ms;       /* time when the last job ended */
    uint64_t plain_ms;       /* time between the last plain line and the next */
    char picture[LINE_ROOM]; /* the bar as last drawn, for bar_show() */
    size_t picture_n;
    struct sample samples[SAMPLES];
    size_t n_samples;
    uint64_t sample_ms;
} bar;

static const char ERASE[] = "\r\033[K";
static const char ERASE_BELOW[] = "\r\033[J";

static unsigned window_columns(int fd);
static void bar_put_picture(void);
static void bar_write(const char *at, size_t n);
static void bar_draw(void);
static void bar_draw_bar(void);
static void bar_draw_plain(void);
static bool numbers_differ(const struct bar_state *a,
                           const struct bar_state *b);
static void take_sample(const struct bar_state *s);
static double jobs_per_ms(const struct bar_state *s);
static bool is_overdue(const struct bar_state *s, double left_ms);
static void parts_describe(struct parts *p, const struct bar_opts *o,
                           const struct bar_state *s);
static void parts_describe_known(struct parts *p, const struct bar_opts *o,
                                 const struct bar_state *s);
static void parts_describe_open(struct parts *p, const struct bar_state *s);
static void describe_number(char *into, uint64_t n, const char *what);
static void describe_speed(char *into, double per_ms);
static void describe_time(char *into, double ms, const char *behind);
static bool line_compose(const struct parts *p, unsigned columns,
                         struct line *line);
static unsigned gap_before(const struct parts *p, enum part part);
static void line_add(struct line *line, const char *s);
static void line_add_gauge(struct line *line, double share, unsigned cells);

/* ---- on the screen ------------------------------------------------------- */

enum bar_style bar_choose(const char *asked, int fd)
{
    const char *term = getenv("TERM");
    if (asked != NULL && strcmp(asked, "none") == 0)
        return BAR_NONE;
    if (asked != NULL && strcmp(asked, "plain") == 0)
        return BAR_PLAIN;
    return isatty(fd) && term != NULL && term[0] != '\0' &&
                   strcmp(term, "dumb") != 0
               ? BAR_BAR
               : BAR_NONE;
}

void bar_open(const struct bar_opts *o)
{
    memset(&bar, 0, sizeof(bar));
    bar.opts = *o;
    bar.sample_ms = SAMPLE_MS;
    bar.plain_ms = PLAIN_MS;
    if (o->style != BAR_BAR)
        return;
    setlocale(LC_CTYPE, ""); /* the character set decides how the gauge looks */
    bar.columns = window_columns(o->fd);
}

void bar_update(const struct bar_state *s)
{
    if (bar.opts.style == BAR_NONE)
        return;
    bar.changed = bar.changed || numbers_differ(s, &bar.state);
    if (s->done != bar.state.done)
        bar.ended_ms = s->now_ms;
    bar.state = *s;
    take_sample(s);
    if (s->now_ms >= bar_next_ms())
        bar_draw();
}

uint64_t bar_next_ms(void)
{
    switch (bar.opts.style) {
    case BAR_PLAIN:
        return bar.drawn_ms + bar.plain_ms;
    case BAR_BAR:
        if (!bar.drawn)
            return FIRST_MS;
        return bar.drawn_ms + (bar.changed ? DRAW_MS : TICK_MS);
    default:
        return UINT64_MAX;
    }
}

void bar_hide(void)
{
    if (bar.hidden++ == 0 && bar.on_screen)
        bar_write(ERASE, sizeof(ERASE) - 1);
    bar.on_screen = false;
}

void bar_show(void)
{
    if (bar.hidden > 0 && --bar.hidden == 0 && bar.picture_n > 0)
        bar_put_picture();
}

void bar_close(void)
{
    if (bar.opts.style == BAR_PLAIN && bar.changed)
        bar_draw();
    bar_hide();
    memset(&bar, 0, sizeof(bar));
}

/* The terminal may have wrapped the line. The cursor is at the beginning of the
 * line, so ERASE_BELOW erases all of the line. */
void bar_resized(void)
{
    if (bar.opts.style != BAR_BAR)
        return;
    bar.columns = window_columns(bar.opts.fd);
    if (!bar.drawn)
        return;
    if (bar.on_screen)
        bar_write(ERASE_BELOW, sizeof(ERASE_BELOW) - 1);
    bar_draw();
}

static unsigned window_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

static void bar_put_picture(void)
{
    bar_write(bar.picture, bar.picture_n);
    bar.on_screen = true;
}

/* Writes with one write(), so that no other output comes between. A terminal
 * that does not take the bytes misses a drawing. In the background, the
 * terminal belongs to another process group, and nothing is written. */
static void bar_write(const char *at, size_t n)
{
    pid_t front = bar.opts.style == BAR_BAR ? tcgetpgrp(bar.opts.fd) : -1;
    if (front >= 0 && front != getpgrp())
        return;
    ssize_t done = write(bar.opts.fd, at, n);
    (void)done;
}

static void bar_draw(void)
{
    if (bar.opts.style == BAR_PLAIN)
        bar_draw_plain();
    else
        bar_draw_bar();
    bar.drawn = true;
    bar.drawn_ms = bar.state.now_ms;
    bar.changed = false;
}

static void bar_draw_bar(void)
{
    char line[LINE_ROOM - 8];
    bar_line(line, sizeof(line), bar.columns, &bar.opts, &bar.state);
    bar.picture_n = (size_t)snprintf(bar.picture, sizeof(bar.picture),
                                     "\r%s\033[K\r", line);
    if (bar.hidden == 0)
        bar_put_picture();
}

static void bar_draw_plain(void)
{
    char line[LINE_ROOM];
    bar_line(line, sizeof(line) - 1, PLAIN_COLUMNS, &bar.opts, &bar.state);
    size_t n = strlen(line);
    line[n] = '\n';
    bar_write(line, n + 1);
    bar.plain_ms *= 2;
    if (bar.plain_ms > PLAIN_MOST)
        bar.plain_ms = PLAIN_MOST;
}

static bool numbers_differ(const struct bar_state *a, const struct bar_state *b)
{
    return a->done != b->done || a->failed != b->failed ||
           a->skipped != b->skipped || a->running != b->running ||
           a->retrying != b->retrying || a->total != b->total ||
           a->open != b->open;
}

/* ---- speed --------------------------------------------------------------- */

static void take_sample(const struct bar_state *s)
{
    const uint64_t last =
        bar.n_samples > 0 ? bar.samples[bar.n_samples - 1].ms : 0;
    if (s->now_ms < last + bar.sample_ms)
        return;
    if (bar.n_samples == SAMPLES) {
        bar.n_samples = SAMPLES / 2;
        bar.sample_ms *= 2;
        for (size_t i = 0; i < bar.n_samples; i++)
            bar.samples[i] = bar.samples[2 * i + 1];
    }
    bar.samples[bar.n_samples++] = (struct sample){s->now_ms, s->done};
}

/* Returns the recent speed of this run; 0: too few jobs have ended. Before as
 * many jobs have ended as run, only the fastest jobs have ended, and they say
 * nothing about the speed of the others. */
static double jobs_per_ms(const struct bar_state *s)
{
    struct sample from = {0};
    const uint64_t span =
        s->now_ms / 4 > SPEED_MS ? s->now_ms / 4 : (uint64_t)SPEED_MS;
    const uint64_t jobs =
        2 * s->running > SPEED_DONE ? 2 * s->running : (uint64_t)SPEED_DONE;
    if (s->now_ms < ENOUGH_MS || s->done < ENOUGH_DONE || s->done < s->running)
        return 0;
    for (size_t i = bar.n_samples; i > 0; i--) {
        const struct sample *old = &bar.samples[i - 1];
        if (old->ms + span <= s->now_ms && old->done + jobs <= s->done) {
            from = *old;
            break;
        }
    }
    return (double)(s->done - from.done) / (double)(s->now_ms - from.ms);
}

/* Returns whether no job has ended for longer than all remaining jobs should
 * take. Then the last jobs are slower than the others, and no estimate is
 * possible. */
static bool is_overdue(const struct bar_state *s, double left_ms)
{
    return bar.n_samples > 0 &&
           (double)(s->now_ms - bar.ended_ms) > left_ms + ENOUGH_MS;
}

/* ---- a line -------------------------------------------------------------- */

void bar_line(char *into, size_t room, unsigned columns,
              const struct bar_opts *o, const struct bar_state *s)
{
    struct parts p;
    struct line line = {.at = into, .room = room};
    if (room == 0)
        return;
    into[0] = '\0';
    parts_describe(&p, o, s);
    for (size_t i = 0; !line_compose(&p, columns, &line); i++)
        p.text[least_important_first[i]][0] = '\0'; /* an empty line fits */
}

static void parts_describe(struct parts *p, const struct bar_opts *o,
                           const struct bar_state *s)
{
    memset(p, 0, sizeof(*p));
    p->color = o->color && o->style == BAR_BAR;
    if (o->style == BAR_PLAIN)
        snprintf(p->text[NAME], PART_ROOM, "vow:");
    if (s->total > 0 && s->done + s->skipped <= s->total)
        parts_describe_known(p, o, s);
    else
        parts_describe_open(p, s);
    if (s->failed > 0)
        describe_number(p->text[FAILED], s->failed, "failed");
    if (s->running > 0)
        describe_number(p->text[RUNNING], s->running, "running");
    if (s->retrying > 0)
        describe_number(p->text[RETRYING], s->retrying, "retrying");
    if (s->skipped > 0)
        describe_number(p->text[SKIPPED], s->skipped, "skipped");
}

/* Describes a run with a known total. A total that may still grow is an
 * estimate: the line shows ~ before the total, and never 100 %. */
static void parts_describe_known(struct parts *p, const struct bar_opts *o,
                                 const struct bar_state *s)
{
    const uint64_t past = s->done + s->skipped;
    const uint64_t left = s->total - past;
    const double speed = jobs_per_ms(s);
    const double left_ms = speed > 0 ? (double)left / speed : 0;
    p->share = (double)past / (double)s->total;
    unsigned percent = (unsigned)(100.0 * (double)past / (double)s->total);
    if (percent > 99 && (left > 0 || s->open))
        percent = 99;
    snprintf(p->text[PERCENT], PART_ROOM,
             o->style == BAR_PLAIN ? "%u%%" : "%3u%%", percent);
    snprintf(p->text[COUNT], PART_ROOM, "%" PRIu64 "/%s%" PRIu64, past,
             s->open ? "~" : "", s->total);
    if (o->style != BAR_PLAIN)
        p->text[GAUGE][0] = '-';
    if (o->eta && left_ms > 0 && !is_overdue(s, left_ms))
        describe_time(p->text[TIME], left_ms, " left");
}

static void parts_describe_open(struct parts *p, const struct bar_state *s)
{
    describe_number(p->text[COUNT], s->done, "done");
    describe_speed(p->text[SPEED], jobs_per_ms(s));
    const uint64_t seconds = s->now_ms / 1000;
    if (seconds > 0)
        describe_time(p->text[TIME], (double)seconds * 1000, "");
    if (s->open)
        snprintf(p->text[NOTE], PART_ROOM, "(input still open)");
}

static void describe_number(char *into, uint64_t n, const char *what)
{
    snprintf(into, PART_ROOM, "%" PRIu64 " %s", n, what);
}

/* Writes the speed per second, minute or hour: the first unit with a speed of
 * at least 1. */
static void describe_speed(char *into, double per_ms)
{
    static const struct {
        double ms;
        char name;
    } units[] = {{1e3, 's'}, {60e3, 'm'}, {3600e3, 'h'}};
    size_t i = 0;
    if (per_ms <= 0)
        return;
    while (i < 2 && per_ms * units[i].ms < 1)
        i++;
    const double speed = per_ms * units[i].ms;
    snprintf(into, PART_ROOM, speed < 9.95 ? "%.1f/%c" : "%.0f/%c", speed,
             units[i].name);
}

/* Writes the time in whole seconds, rounded up. */
static void describe_time(char *into, double ms, const char *behind)
{
    char shown[32];
    if (ms > LONGEST_DAYS * 86400e3)
        return;
    const uint64_t s = ((uint64_t)ms + 999) / 1000;
    snprintf(into, PART_ROOM, "%s%s", units_show_ms(s * 1000, shown), behind);
}

/* Composes the line. Returns whether the line fits into `columns`. */
static bool line_compose(const struct parts *p, unsigned columns,
                         struct line *line)
{
    static const char green[] = "\033[32m", red[] = "\033[31m";
    static const char usual[] = "\033[m";
    unsigned width = 0;
    columns = columns > 0 ? columns : USUAL_COLUMNS;
    line->n = 0;
    line->full = false;
    for (enum part i = 0; i < PARTS; i++)
        if (p->text[i][0] != '\0')
            width +=
                gap_before(p, i) +
                (i == GAUGE ? FEWEST_CELLS + 2 : (unsigned)strlen(p->text[i]));
    if (width > columns - 1)
        return false;
    unsigned cells = FEWEST_CELLS + (columns - 1 - width);
    line_add(line, "");
    for (enum part i = 0; i < PARTS; i++) {
        const bool colored = p->color && (i == GAUGE || i == FAILED);
        if (p->text[i][0] == '\0')
            continue;
        line_add(line, &"  "[2 - gap_before(p, i)]);
        if (colored)
            line_add(line, i == GAUGE ? green : red);
        if (i == GAUGE)
            line_add_gauge(line, p->share,
                           cells < MOST_CELLS ? cells : MOST_CELLS);
        else
            line_add(line, p->text[i]);
        if (colored)
            line_add(line, usual);
    }
    return !line->full;
}

/* Returns the number of blanks before a part: two between words, one around the
 * gauge and behind the name. */
static unsigned gap_before(const struct parts *p, enum part part)
{
    enum part before = part;
    do {
        if (before == 0)
            return 0;
        before--;
    } while (p->text[before][0] == '\0');
    return part == GAUGE || before == GAUGE || before == NAME ? 1 : 2;
}

static void line_add(struct line *line, const char *s)
{
    const size_t n = strlen(s);
    line->full = line->full || n >= line->room - line->n;
    if (line->full)
        return;
    memcpy(line->at + line->n, s, n + 1);
    line->n += n;
}

/* Adds the gauge: ▕███▌    ▏ or [###>    ]. Unicode lists the blocks of eight
 * to one eighths of a cell in a row, the full block first. */
static void line_add_gauge(struct line *line, double share, unsigned cells)
{
    const bool utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    const unsigned eighths = (unsigned)(share * cells * EIGHTHS);
    line_add(line, utf8 ? "▕" : "[");
    for (unsigned i = 0; i < cells; i++) {
        const unsigned before = i * EIGHTHS;
        unsigned full = eighths > before ? eighths - before : 0;
        char block[] = "\xe2\x96\x90";
        full = full < EIGHTHS ? full : EIGHTHS;
        block[2] = (char)(block[2] - (char)full);
        if (utf8)
            line_add(line, full > 0 ? block : " ");
        else if (full == EIGHTHS)
            line_add(line, "#");
        else
            line_add(line, before <= eighths && share > 0 ? ">" : " ");
    }
    line_add(line, utf8 ? "▏" : "]");
}
