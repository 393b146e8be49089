/* SPDX-License-Identifier: MIT */
/* 08_timeline.c - what concurrency, rate, and both do to the same jobs.
 *
 * Eight jobs, two of them long, are handed to three gates at once. The first
 * allows two jobs at a time, the second three starts in any 400 ms, the third
 * is as strict as both. Each job notes when it began and ended, in real time;
 * from that the program draws one row per job, a dash for every 20 ms that it
 * ran. Neither limit does the work of the other: the first gate starts far more
 * than three jobs within 400 ms, the second runs three jobs at once. */
#include <stdio.h>
#include <vow.h>

enum { JOBS = 8, COLUMN_MS = 20, WINDOW_MS = 400, NS_PER_MS = 1000000 };

static const uint64_t takes_ms[JOBS] = {320, 120, 120, 120, 320, 120, 120, 120};

struct job {
    vow_loop *loop;
    uint64_t takes_ms;
    uint64_t began_ns, ended_ns;
};

struct picture {
    const char *title;
    uint32_t concurrent, rate; /* 0: any */
    vow_gate *gate;
    struct job jobs[JOBS];
};

static vow_next end(vow_value v, void *user)
{
    struct job *j = user;
    (void)v;
    j->ended_ns = vow_loop_now_ns(j->loop);
    return vow_ok(vow_nothing());
}

static vow_future *begin(vow_loop *loop, uint32_t attempt, void *arg)
{
    struct job *j = arg;
    (void)attempt;
    j->began_ns = vow_loop_now_ns(loop);
    return vow_then_drop(vow_delay(loop, j->takes_ms), end, NULL, j);
}

static int run(struct picture *p, vow_loop *loop)
{
    int rc = vow_gate_new(loop,
                          VOW_GATE(.concurrent = p->concurrent, .rate = p->rate,
                                   .window_ms = WINDOW_MS),
                          &p->gate);
    for (int i = 0; i < JOBS && rc == 0; i++) {
        p->jobs[i] = (struct job){.loop = loop, .takes_ms = takes_ms[i]};
        vow_future_unref(vow_gate_run(p->gate, begin, &p->jobs[i], NULL));
    }
    return rc;
}

/* How many ran when job i began, itself included. */
static unsigned at_once(const struct job *jobs, int i)
{
    unsigned n = 0;
    for (int k = 0; k < JOBS; k++)
        n += jobs[k].began_ns <= jobs[i].began_ns &&
             jobs[i].began_ns < jobs[k].ended_ns;
    return n;
}

/* How many began in the window that ends with the begin of job i. */
static unsigned in_window(const struct job *jobs, int i)
{
    unsigned n = 0;
    for (int k = 0; k < JOBS; k++)
        n += jobs[k].began_ns <= jobs[i].began_ns &&
             jobs[i].began_ns - jobs[k].began_ns <=
                 (uint64_t)WINDOW_MS * NS_PER_MS;
    return n;
}

static void draw_row(const struct job *j, int number, uint64_t zero_ns)
{
    uint64_t column_ns = (uint64_t)COLUMN_MS * NS_PER_MS;
    int from = (int)((j->began_ns - zero_ns) / column_ns);
    int to = (int)((j->ended_ns - zero_ns) / column_ns);
    printf("job %d  %*s", number, from, "");
    for (int column = from; column < to; column++)
        putchar('-');
    putchar('\n');
}

/* Draws it; whether all jobs ran and no limit was broken. */
static bool draw(const struct picture *p, uint64_t zero_ns)
{
    unsigned most_at_once = 0, most_in_window = 0;
    bool all_ran = true;
    printf("%s\n\n       0         200       400       600       800 ms\n",
           p->title);
    for (int i = 0; i < JOBS; i++) {
        unsigned n = at_once(p->jobs, i), m = in_window(p->jobs, i);
        all_ran = all_ran && p->jobs[i].ended_ns > 0;
        most_at_once = n > most_at_once ? n : most_at_once;
        most_in_window = m > most_in_window ? m : most_in_window;
        if (p->jobs[i].ended_ns > 0)
            draw_row(&p->jobs[i], i + 1, zero_ns);
    }
    printf("\nat most %u at once, at most %u started within %d ms\n",
           most_at_once, most_in_window, WINDOW_MS);
    return all_ran && (p->concurrent == 0 || most_at_once <= p->concurrent) &&
           (p->rate == 0 || most_in_window <= p->rate);
}

int main(void)
{
    static struct picture pictures[] = {
        {.title = "Concurrency: 2 at once", .concurrent = 2},
        {.title = "Rate: 3 in any 400 ms", .rate = 3},
        {.title = "Both: 2 at once, 3 in any 400 ms",
         .concurrent = 2,
         .rate = 3},
    };
    enum { PICTURES = sizeof(pictures) / sizeof(pictures[0]) };
    vow_loop *loop;
    bool good = true;
    if (vow_loop_new(NULL, &loop) < 0)
        return 1;
    uint64_t zero_ns = vow_loop_now_ns(loop);
    for (int i = 0; i < PICTURES; i++)
        good = run(&pictures[i], loop) == 0 && good;
    vow_loop_run(loop);
    for (int i = 0; i < PICTURES; i++) {
        fputs(i > 0 ? "\n" : "", stdout);
        good = draw(&pictures[i], zero_ns) && good;
        vow_gate_unref(pictures[i].gate);
    }
    vow_loop_close(loop);
    return good ? 0 : 1;
}
