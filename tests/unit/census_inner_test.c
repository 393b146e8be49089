/* SPDX-License-Identifier: MIT */
/* census_inner_test.c - core/census.c: the order of lines, many sites, lack of
 * memory, and what is not counted. */
#include "core/promise_internal.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

enum { SITES = 200, MOST = 1000 };

struct found {
    vow_census lines[SITES];
    size_t n;
};

static void note(const vow_census *line, void *user)
{
    struct found *f = user;
    CHECK(f->n < SITES);
    f->lines[f->n++] = *line;
}

static const struct found *census(struct world *w)
{
    static struct found f;
    f.n = 0;
    CHECK_INT_EQ(vow_loop_census(w->loop, note, &f), 0);
    return &f;
}

/* What the tests make, to be dropped at their end. */
static vow_future *made[MOST];
static size_t n_made;

static void make(struct world *w, const char *site, size_t pending,
                 size_t settled)
{
    for (size_t i = 0; i < pending; i++) /* of none: pending for ever */
        made[n_made++] = vow_race_at(site, w->loop, NULL, 0);
    for (size_t i = 0; i < settled; i++)
        made[n_made++] = vow_resolved_at(site, w->loop, vow_nothing());
    CHECK(n_made <= MOST);
}

static void drop_all(void)
{
    while (n_made > 0)
        vow_future_unref(made[--n_made]);
}

static void check_line(const vow_census *l, const char *site, size_t pending,
                       size_t settled)
{
    CHECK_STR_EQ(l->site, site);
    CHECK_UINT_EQ(l->pending, pending);
    CHECK_UINT_EQ(l->settled, settled);
}

TEST(census, of_nothing_has_no_line_and_needs_no_memory)
{
    struct world w;
    world_open(&w);
    uint64_t before = w.alloc.allocs;
    CHECK_UINT_EQ(census(&w)->n, 0);
    CHECK_UINT_EQ(w.alloc.allocs, before);
    world_close(&w);
}

TEST(census, most_frequent_come_first_whatever_their_state)
{
    struct world w;
    world_open(&w);
    make(&w, "a.c:1", 1, 1);
    make(&w, "b.c:2", 0, 4);
    make(&w, "c.c:3", 3, 0);
    const struct found *f = census(&w);
    CHECK_UINT_EQ(f->n, 3);
    check_line(&f->lines[0], "b.c:2", 0, 4);
    check_line(&f->lines[1], "c.c:3", 3, 0);
    check_line(&f->lines[2], "a.c:1", 1, 1);
    drop_all();
    world_close(&w);
}

TEST(census, equally_frequent_come_by_their_text)
{
    const char *sites[] = {"m.c:5", "a.c:9", "z.c:1", "a.c:10", "m.c:4"};
    const char *sorted[] = {"a.c:10", "a.c:9", "m.c:4", "m.c:5", "z.c:1"};
    struct world w;
    world_open(&w);
    for (size_t i = 0; i < 5; i++)
        make(&w, sites[i], i % 2, 1 - i % 2);
    const struct found *f = census(&w);
    CHECK_UINT_EQ(f->n, 5);
    for (size_t i = 0; i < 5; i++)
        CHECK_STR_EQ(f->lines[i].site, sorted[i]);
    drop_all();
    world_close(&w);
}

TEST(census, same_text_at_two_addresses_is_one_site)
{
    static char one[] = "same.c:7";
    static char two[] = "same.c:7";
    struct world w;
    world_open(&w);
    make(&w, one, 1, 0);
    make(&w, two, 1, 0);
    const struct found *f = census(&w);
    CHECK_UINT_EQ(f->n, 1);
    check_line(&f->lines[0], "same.c:7", 2, 0);
    drop_all();
    world_close(&w);
}

TEST(census, without_a_site_is_an_empty_text)
{
    struct world w;
    world_open(&w);
    make(&w, NULL, 1, 0);
    make(&w, "", 0, 1);
    const struct found *f = census(&w);
    CHECK_UINT_EQ(f->n, 1);
    check_line(&f->lines[0], "", 1, 1);
    drop_all();
    world_close(&w);
}

TEST(census, counts_neither_the_dropped_nor_the_loops_own)
{
    struct world w;
    world_open(&w);
    CHECK(w.loop->no_memory != NULL);
    make(&w, "gone.c:1", 40, 40);
    drop_all();
    make(&w, "here.c:1", 1, 0);
    const struct found *f = census(&w);
    CHECK_UINT_EQ(f->n, 1);
    check_line(&f->lines[0], "here.c:1", 1, 0);
    drop_all();
    world_close(&w);
}

/* Site i is met i % 7 + 1 times, in an order that is not that of the text. */
static void make_many(struct world *w)
{
    static char names[SITES][16];
    for (size_t i = 0; i < SITES; i++) {
        size_t at = i * 77 % SITES;
        snprintf(names[at], sizeof(names[at]), "s%03zu.c:1", at);
        make(w, names[at], at % 7 / 2, at % 7 + 1 - at % 7 / 2);
    }
}

static size_t total(const vow_census *l)
{
    return l->pending + l->settled;
}

TEST(census, many_sites_are_all_found_and_sorted)
{
    struct world w;
    bool met[SITES] = {false};
    world_open(&w);
    make_many(&w);
    const struct found *f = census(&w);
    CHECK_UINT_EQ(f->n, SITES);
    for (size_t i = 0; i < SITES; i++) {
        unsigned at = SITES;
        const vow_census *l = &f->lines[i];
        CHECK_INT_EQ(sscanf(l->site, "s%3u", &at), 1);
        CHECK(at < SITES && !met[at]);
        met[at] = true;
        CHECK_UINT_EQ(l->pending, at % 7 / 2);
        CHECK_UINT_EQ(total(l), at % 7 + 1);
        if (i == 0)
            continue;
        CHECK(total(l - 1) >= total(l));
        if (total(l - 1) == total(l))
            CHECK(strcmp((l - 1)->site, l->site) < 0);
    }
    drop_all();
    world_close(&w);
}

TEST(census, without_memory_says_so_calls_nobody_and_loses_nothing)
{
    struct world w;
    world_open(&w);
    make_many(&w);
    for (uint64_t nth = 1;; nth++) {
        struct found f = {.n = 0};
        size_t before = w.alloc.live_blocks;
        uint64_t fails = w.alloc.fails;
        w.alloc.fail_at = w.alloc.allocs + nth;
        int rc = vow_loop_census(w.loop, note, &f);
        CHECK_UINT_EQ(w.alloc.live_blocks, before);
        if (w.alloc.fails == fails) {
            CHECK_INT_EQ(rc, 0);
            CHECK_UINT_EQ(f.n, SITES);
            CHECK(nth > 4); /* it grew */
            break;
        }
        CHECK_INT_EQ(rc, VOW_ENOMEM);
        CHECK_UINT_EQ(f.n, 0);
    }
    w.alloc.fail_at = 0;
    drop_all();
    world_close(&w);
}

static void note_and_make(const vow_census *line, void *user)
{
    struct world *w = user;
    (void)line;
    make(w, "new.c:1", 1, 0);
    if (n_made > 10)
        drop_all();
}

TEST(census, callback_may_make_and_drop_promises)
{
    struct world w;
    world_open(&w);
    make(&w, "a.c:1", 1, 0);
    make(&w, "b.c:1", 1, 0);
    for (int i = 0; i < 10; i++)
        CHECK_INT_EQ(vow_loop_census(w.loop, note_and_make, &w), 0);
    drop_all();
    world_close(&w);
}
