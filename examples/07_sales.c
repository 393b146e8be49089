/* SPDX-License-Identifier: MIT */
/* 07_sales.c - the total of sales from several sources by await.
 *
 * Three fibers share one list of sources. Each takes the next source, awaits
 * its figure, adds it and comes back for more, until the list is empty: so
 * three sources are asked at a time, and a slow one holds up nobody else.
 * Nothing is locked, because between two awaits a fiber has the loop for
 * itself. Time is virtual, so every run prints the same. */
#include <stdio.h>
#include <vow.h>

enum { EXECUTORS = 3, ATTEMPTS = 3 };

struct source {
    const char *name;
    uint64_t takes_ms; /* to answer */
    int failures;      /* so many times it fails before it answers */
    int64_t cents;
};

static struct source sources[] = {
    {"shop in Brno", 120, 0, 1250000}, {"shop in Olomouc", 40, 0, 830050},
    {"web", 300, 0, 4815175},          {"market stall", 60, 2, 99000},
    {"telephone", 80, 0, 310025},      {"post", 50, 1, 45500},
    {"wholesale", 200, 0, 7200000},    {"vending machine", 20, 0, 12345},
};
enum { SOURCES = sizeof(sources) / sizeof(sources[0]) };

struct company {
    vow_loop *loop;
    size_t next; /* the first source nobody has taken */
    int64_t cents;
    int asking, most_asking;
};

struct executor {
    struct company *company;
    char name;
    int taken;
};

static int now_ms(const struct company *c)
{
    return (int)(vow_loop_now_ns(c->loop) / 1000000);
}

static vow_next answer(vow_value v, void *user)
{
    struct source *s = user;
    (void)v;
    if (s->failures-- > 0)
        return vow_fail_code(VOW_EIO, "the line was cut");
    return vow_ok(vow_int(s->cents));
}

/* Pretends to ask a source for its sales. */
static vow_future *sales_of(vow_loop *loop, struct source *s)
{
    return vow_then_drop(vow_delay(loop, s->takes_ms), answer, NULL, s);
}

/* Ask one source, and again when the line was cut. */
static int await_sales(struct executor *x, struct source *s, int64_t *ret_cents)
{
    struct company *c = x->company;
    int rc = VOW_EIO;
    for (int attempt = 1; attempt <= ATTEMPTS && rc == VOW_EIO; attempt++) {
        VOW_AUTO(vow_future) sales = sales_of(c->loop, s);
        if (++c->asking > c->most_asking)
            c->most_asking = c->asking;
        rc = vow_await(sales);
        c->asking--;
        if (rc == VOW_EIO)
            printf("%3d ms  %c  %s: %s\n", now_ms(c), x->name, s->name,
                   vow_error_message(vow_error_of(sales)));
        *ret_cents = vow_as_int(vow_get(sales));
    }
    return rc;
}

/* The body of a fiber. */
static vow_next execute(void *arg)
{
    struct executor *x = arg;
    struct company *c = x->company;
    while (c->next < SOURCES) {
        struct source *s = &sources[c->next++];
        int64_t cents;
        int rc = await_sales(x, s, &cents);
        if (rc < 0)
            return vow_fail_code(rc, "a source does not answer");
        c->cents += cents;
        x->taken++;
        printf("%3d ms  %c  %s: %d.%02d\n", now_ms(c), x->name, s->name,
               (int)(cents / 100), (int)(cents % 100));
    }
    return vow_ok(vow_int(x->taken));
}

int main(void)
{
    struct company c = {0};
    struct executor executors[EXECUTORS];
    vow_future *fibers[EXECUTORS];
    if (vow_loop_new(VOW_LOOP_OPTS(.flags = VOW_LOOP_VIRTUAL_TIME), &c.loop) <
        0)
        return 1;

    for (int i = 0; i < EXECUTORS; i++) {
        executors[i] = (struct executor){&c, (char)('a' + i), 0};
        fibers[i] = vow_async(c.loop, execute, &executors[i]);
    }
    vow_future *all = vow_all(c.loop, fibers, EXECUTORS);
    int rc = vow_loop_run_until(c.loop, all);

    int64_t expected = 0;
    int taken = 0;
    for (size_t i = 0; i < SOURCES; i++)
        expected += sources[i].cents;
    for (size_t i = 0; i < EXECUTORS && rc == 0; i++)
        taken += (int)vow_as_int(vow_list_get(vow_get(all), i));
    printf("total %d.%02d from %d sources, %d asked at a time\n",
           (int)(c.cents / 100), (int)(c.cents % 100), taken, c.most_asking);

    for (int i = 0; i < EXECUTORS; i++)
        vow_future_unref(fibers[i]);
    vow_future_unref(all);
    vow_loop_close(c.loop);
    return rc == 0 && c.cents == expected && taken == SOURCES &&
                   c.most_asking == EXECUTORS
               ? 0
               : 1;
}
