/* SPDX-License-Identifier: MIT */
/* slab_test.c - slabs: how they are carved, which list they are in, when they
 * go back, how they are walked; and a model with random operations that looks
 * at every slab after each. */
#include "base/slab.h"
#include "trap.h"
#include "world.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL = 64, BIG = 4096, CARVE = 16, MANY = 2000 };

struct fixture {
    struct test_alloc alloc;
    struct vow_alloc hook;
    struct vow__slab_cache cache;
    int owner;
};

static void open_cache(struct fixture *x, size_t object_size, bool share_slabs)
{
    test_alloc_init(&x->alloc);
    x->hook = test_alloc_hook(&x->alloc);
    vow__slab_init(&x->cache, &x->hook, &x->owner, object_size, share_slabs);
}

static void close_cache(struct fixture *x)
{
    vow__slab_fini(&x->cache);
    test_alloc_fini(TEST_HERE, &x->alloc);
}

struct held {
    void *object;
    struct vow__slab *slab;
};

static struct held take(struct fixture *x)
{
    struct held h = {NULL, NULL};
    h.object = vow__slab_take(&x->cache, &h.slab);
    return h;
}

static void give(struct held h)
{
    vow__slab_give(h.slab, h.object);
}

static size_t take_many(struct fixture *x, struct held *held, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        held[i] = take(x);
        CHECK(held[i].object != NULL);
    }
    return n;
}

static void give_many(struct held *held, size_t n)
{
    for (size_t i = 0; i < n; i++)
        give(held[i]);
}

static size_t length(const vow_link *l)
{
    size_t n = 0;
    for (; l != NULL; l = l->next)
        n++;
    return n;
}

/* Fills so many slabs of BIG objects to the last place, one more not begun. */
static size_t fill_slabs(struct fixture *x, struct held *held, size_t slabs)
{
    return take_many(x, held, slabs * x->cache.per_slab);
}

/* ---- making and carving ------------------------------------------------- */

TEST(slab, is_empty_and_has_no_memory_at_first)
{
    struct fixture x;
    open_cache(&x, SMALL, true);
    CHECK(vow__slab_unused(&x.cache));
    CHECK_UINT_EQ(x.cache.slabs, 0);
    CHECK_UINT_EQ(x.alloc.allocs, 0);
    close_cache(&x);
}

TEST(slab, slab_is_one_block_of_at_most_32_kib)
{
    struct fixture x;
    open_cache(&x, SMALL, true);
    struct held h = take(&x);
    CHECK_UINT_EQ(x.alloc.live_blocks, 1);
    CHECK_UINT_EQ(x.alloc.live_bytes, vow__slab_bytes(&x.cache));
    CHECK(vow__slab_bytes(&x.cache) <= 32768);
    CHECK(vow__slab_bytes(&x.cache) > 32768 - SMALL);
    give(h);
    close_cache(&x);
}

TEST(slab, slab_knows_its_cache_and_its_owner)
{
    struct fixture x;
    open_cache(&x, SMALL, true);
    struct held h = take(&x);
    CHECK_PTR_EQ(h.slab->owner, &x.owner);
    CHECK_PTR_EQ(h.slab->cache, &x.cache);
    CHECK_PTR_EQ(h.slab, x.cache.current);
    CHECK_INT_EQ(h.slab->place, VOW__CURRENT);
    give(h);
    close_cache(&x);
}

TEST(slab, objects_are_carved_some_at_a_time_in_the_order_of_addresses)
{
    struct fixture x;
    struct held held[2 * CARVE + 1];
    open_cache(&x, SMALL, true);
    take_many(&x, held, 1);
    CHECK_UINT_EQ(held[0].slab->fresh, CARVE);
    take_many(&x, held + 1, CARVE - 1);
    CHECK_UINT_EQ(held[0].slab->fresh, CARVE);
    take_many(&x, held + CARVE, 1);
    CHECK_UINT_EQ(held[0].slab->fresh, 2 * CARVE);
    take_many(&x, held + CARVE + 1, CARVE);
    for (size_t i = 1; i < 2 * CARVE + 1; i++)
        CHECK_PTR_EQ(held[i].object, (char *)held[0].object + i * SMALL);
    give_many(held, 2 * CARVE + 1);
    close_cache(&x);
}

TEST(slab, carved_objects_are_zero_behind_the_first_word)
{
    const unsigned char zeros[SMALL] = {0};
    struct fixture x;
    open_cache(&x, SMALL, true);
    struct held h = take(&x);
    for (size_t i = 0; i < CARVE; i++)
        CHECK_MEM_EQ((char *)h.object + i * SMALL + sizeof(void *), zeros,
                     SMALL - sizeof(void *));
    give(h);
    close_cache(&x);
}

TEST(slab, last_carve_ends_with_the_slab)
{
    struct fixture x;
    struct held held[600];
    open_cache(&x, SMALL, true);
    size_t n = x.cache.per_slab;
    CHECK(n % CARVE != 0);
    take_many(&x, held, n);
    CHECK_UINT_EQ(held[0].slab->fresh, n);
    CHECK_UINT_EQ(x.cache.slabs, 1);
    take_many(&x, held + n, 1);
    CHECK_UINT_EQ(x.cache.slabs, 2);
    give_many(held, n + 1);
    close_cache(&x);
}

TEST_TRAPS(slab, objects_that_cannot_be_chained_are_refused)
{
    struct fixture x;
    open_cache(&x, SMALL + 1, true);
}

TEST_TRAPS(slab, closing_with_an_object_alive_dies)
{
    struct fixture x;
    open_cache(&x, SMALL, true);
    (void)take(&x);
    vow__slab_fini(&x.cache);
}

/* ---- free lists of slabs ------------------------------------------------ */

TEST(slab, object_given_back_last_is_handed_out_first)
{
    struct fixture x;
    struct held held[3];
    open_cache(&x, SMALL, true);
    take_many(&x, held, 3);
    give(held[0]);
    give(held[1]);
    CHECK_PTR_EQ(take(&x).object, held[1].object);
    CHECK_PTR_EQ(take(&x).object, held[0].object);
    give_many(held, 3);
    close_cache(&x);
}

TEST(slab, full_slab_is_in_no_list_and_comes_back_with_its_first_object)
{
    struct fixture x;
    struct held held[32];
    open_cache(&x, BIG, true);
    size_t n = fill_slabs(&x, held, 1);
    n += take_many(&x, held + n, 1);
    struct vow__slab *first = held[0].slab;
    CHECK_INT_EQ(first->place, VOW__FULL);
    CHECK_UINT_EQ(length(x.cache.usable), 0);
    give(held[0]);
    CHECK_INT_EQ(first->place, VOW__USABLE);
    CHECK_PTR_EQ(x.cache.usable, &first->in_room);
    give(held[1]); /* it moves once */
    CHECK_UINT_EQ(length(x.cache.usable), 1);
    give_many(held + 2, n - 2);
    close_cache(&x);
}

TEST(slab, object_goes_back_to_its_own_slab_not_to_the_current_one)
{
    struct fixture x;
    struct held held[32];
    open_cache(&x, BIG, true);
    size_t n = fill_slabs(&x, held, 1);
    n += take_many(&x, held + n, 1);
    struct vow__slab *first = held[0].slab;
    struct vow__slab *second = held[n - 1].slab;
    CHECK(first != second);
    give(held[0]);
    CHECK_PTR_EQ(first->free, held[0].object);
    CHECK_PTR_EQ(x.cache.current, second);
    held[0] = take(&x);
    CHECK_PTR_EQ(held[0].slab, second); /* until that one has no more */
    give_many(held, n);
    close_cache(&x);
}

TEST(slab, slab_whose_last_object_goes_is_empty)
{
    struct fixture x;
    struct held held[32];
    open_cache(&x, BIG, true);
    size_t n = fill_slabs(&x, held, 1);
    size_t more = take_many(&x, held + n, 1);
    struct vow__slab *first = held[0].slab;
    give_many(held, n);
    CHECK_INT_EQ(first->place, VOW__EMPTY);
    CHECK_UINT_EQ(x.cache.empties, 1);
    CHECK_PTR_EQ(x.cache.empty, &first->in_room);
    CHECK_PTR_EQ(x.cache.usable, NULL);
    CHECK(!vow__slab_unused(&x.cache));
    give_many(held + n, more);
    CHECK(vow__slab_unused(&x.cache));
    close_cache(&x);
}

TEST(slab, current_slab_stays_current_without_objects)
{
    struct fixture x;
    open_cache(&x, BIG, true);
    for (int i = 0; i < 3; i++) {
        struct held h = take(&x);
        struct vow__slab *only = h.slab;
        give(h);
        CHECK_PTR_EQ(x.cache.current, only);
        CHECK_INT_EQ(only->place, VOW__CURRENT);
        CHECK_UINT_EQ(x.cache.empties, 0);
    }
    CHECK_UINT_EQ(x.alloc.allocs, 1);
    close_cache(&x);
}

TEST(slab, usable_slab_is_taken_before_an_empty_one_and_that_before_a_new_one)
{
    struct fixture x;
    struct held held[64];
    open_cache(&x, BIG, true);
    size_t per = x.cache.per_slab;
    size_t n = fill_slabs(&x, held, 3); /* the third is full and current */
    struct vow__slab *usable = held[0].slab;
    struct vow__slab *empty = held[per].slab;
    give(held[0]);
    give_many(held + per, per);
    CHECK_INT_EQ(usable->place, VOW__USABLE);
    CHECK_INT_EQ(empty->place, VOW__EMPTY);
    held[0] = take(&x);
    CHECK_PTR_EQ(held[0].slab, usable);
    take_many(&x, held + per, per);
    for (size_t i = per; i < 2 * per; i++)
        CHECK_PTR_EQ(held[i].slab, empty);
    CHECK_UINT_EQ(x.cache.slabs, 3);
    n += take_many(&x, held + n, 1);
    CHECK_UINT_EQ(x.cache.slabs, 4);
    give_many(held, n);
    close_cache(&x);
}

TEST(slab, without_memory_gives_null_and_goes_on_when_there_is_some)
{
    struct fixture x;
    struct held held[32];
    open_cache(&x, BIG, true);
    size_t n = fill_slabs(&x, held, 1);
    x.alloc.fail_at = 2;
    for (int i = 0; i < 2; i++) {
        x.alloc.fail_at = x.alloc.allocs + 1;
        CHECK_PTR_EQ(take(&x).object, NULL);
    }
    CHECK_INT_EQ(held[0].slab->place, VOW__FULL);
    CHECK_PTR_EQ(x.cache.current, NULL);
    give(held[0]);
    held[0] = take(&x); /* needs none */
    CHECK(held[0].object != NULL);
    n += take_many(&x, held + n, 1);
    give_many(held, n);
    close_cache(&x);
}

/* ---- giving slabs back -------------------------------------------------- */

TEST(slab, trim_frees_every_slab_without_objects_and_no_other)
{
    struct fixture x;
    struct held held[64];
    open_cache(&x, BIG, true);
    size_t per = x.cache.per_slab;
    fill_slabs(&x, held, 4);
    give_many(held, 2 * per);           /* two are empty */
    give_many(held + 2 * per, per - 1); /* one is usable */
    CHECK_UINT_EQ(x.cache.empties, 2);
    vow__slab_trim(&x.cache);
    CHECK_UINT_EQ(x.cache.empties, 0);
    CHECK_UINT_EQ(x.cache.slabs, 2);
    CHECK_UINT_EQ(x.alloc.live_blocks, 2);
    give_many(held + 3 * per - 1, per + 1);
    vow__slab_trim(&x.cache); /* the current one too */
    CHECK_UINT_EQ(x.alloc.live_blocks, 0);
    CHECK_PTR_EQ(x.cache.current, NULL);
    close_cache(&x);
}

TEST(slab, trimmed_cache_works_as_before)
{
    struct fixture x;
    open_cache(&x, BIG, true);
    vow__slab_trim(&x.cache);
    for (int i = 0; i < 3; i++) {
        give(take(&x));
        vow__slab_trim(&x.cache);
        CHECK_UINT_EQ(x.alloc.live_blocks, 0);
    }
    close_cache(&x);
}

TEST(slab, decay_leaves_what_became_empty_since_the_last_one)
{
    struct fixture x;
    struct held held[64];
    open_cache(&x, BIG, true);
    size_t n = fill_slabs(&x, held, 5);
    give_many(held, n); /* four empty, one current */
    CHECK_UINT_EQ(x.cache.empties, 4);
    CHECK(vow__slab_decay(&x.cache));
    CHECK_UINT_EQ(x.cache.empties, 4);
    close_cache(&x);
}

TEST(slab, decay_frees_half_each_time_rounded_up_until_none_is_left)
{
    const size_t left[] = {7, 3, 1, 0};
    struct fixture x;
    struct held held[64];
    open_cache(&x, BIG, true);
    size_t n = fill_slabs(&x, held, 8);
    give_many(held, n);
    for (size_t i = 0; i < 4; i++) {
        CHECK_INT_EQ(vow__slab_decay(&x.cache), left[i] > 0);
        CHECK_UINT_EQ(x.cache.empties, left[i]);
        CHECK_UINT_EQ(x.cache.slabs, left[i] + 1); /* and the current one */
    }
    CHECK(!vow__slab_decay(&x.cache));
    close_cache(&x);
}

TEST(slab, decay_spares_slabs_that_were_needed_in_between)
{
    struct fixture x;
    struct held held[64];
    open_cache(&x, BIG, true);
    size_t per = x.cache.per_slab;
    size_t n = fill_slabs(&x, held, 9);
    give_many(held, n);
    (void)vow__slab_decay(&x.cache);
    CHECK_UINT_EQ(x.cache.empties, 8);
    fill_slabs(&x, held, 7); /* the current one and six of these */
    give_many(held, 7 * per);
    CHECK_UINT_EQ(x.cache.empties, 8);
    CHECK_UINT_EQ(x.cache.idle_low, 2);
    CHECK(vow__slab_decay(&x.cache));
    CHECK_UINT_EQ(x.cache.empties, 7);
    close_cache(&x);
}

/* ---- walking ------------------------------------------------------------ */

TEST(slab, cursor_of_an_empty_cache_is_at_its_end)
{
    struct fixture x;
    struct vow__slab_cursor at = {0};
    open_cache(&x, SMALL, true);
    CHECK_PTR_EQ(vow__slab_next(&x.cache, &at), NULL);
    CHECK_PTR_EQ(vow__slab_next(&x.cache, &at), NULL);
    close_cache(&x);
}

/* The second word says whose it is; carved ones have zero there. */
TEST(slab, cursor_meets_each_object_once_and_those_never_handed_out_as_zero)
{
    static struct held held[MANY];
    static int met[MANY];
    struct fixture x;
    struct vow__slab_cursor at = {0};
    uintptr_t *words;
    size_t blank = 0;
    size_t fresh = 0;
    open_cache(&x, SMALL, true);
    take_many(&x, held, MANY);
    for (size_t i = 0; i < MANY; i++)
        ((uintptr_t *)held[i].object)[1] = i + 1;
    while ((words = vow__slab_next(&x.cache, &at)) != NULL) {
        if (words[1] == 0) {
            blank++;
            continue;
        }
        CHECK_PTR_EQ(held[words[1] - 1].object, words);
        met[words[1] - 1]++;
    }
    for (size_t i = 0; i < MANY; i++)
        CHECK_INT_EQ(met[i], 1);
    for (vow_link *l = x.cache.all; l != NULL; l = l->next)
        fresh += VOW__OUTER(l, struct vow__slab, in_all)->fresh;
    CHECK_UINT_EQ(blank, fresh - MANY);
    CHECK_PTR_EQ(vow__slab_next(&x.cache, &at), NULL);
    give_many(held, MANY);
    close_cache(&x);
}

/* ---- without shared slabs ------------------------------------------------ */

TEST(slab, unshared_objects_have_slabs_of_their_own_and_go_back_at_once)
{
    struct fixture x;
    struct held held[5];
    open_cache(&x, SMALL, false);
    CHECK_UINT_EQ(x.cache.per_slab, 1);
    take_many(&x, held, 5);
    CHECK_UINT_EQ(x.alloc.live_blocks, 5);
    CHECK_UINT_EQ(x.cache.slabs, 5);
    const size_t order[] = {4, 0, 2, 1, 3}; /* the current one first */
    for (size_t i = 0; i < 5; i++) {
        give(held[order[i]]);
        CHECK_UINT_EQ(x.alloc.live_blocks, 4 - i);
    }
    CHECK_PTR_EQ(x.cache.current, NULL);
    CHECK(vow__slab_unused(&x.cache));
    CHECK(!vow__slab_decay(&x.cache));
    close_cache(&x);
}

TEST(slab, unshared_objects_are_walked_too)
{
    struct fixture x;
    struct held held[3];
    struct vow__slab_cursor at = {0};
    open_cache(&x, SMALL, false);
    take_many(&x, held, 3);
    for (size_t i = 0; i < 3; i++)
        CHECK_PTR_EQ(vow__slab_next(&x.cache, &at), held[i].object);
    CHECK_PTR_EQ(vow__slab_next(&x.cache, &at), NULL);
    give_many(held, 3);
    close_cache(&x);
}

/* ---- against a model ---------------------------------------------------- */

static size_t free_length(const struct vow__slab *s)
{
    size_t n = 0;
    for (void *o = s->free; o != NULL; o = *(void **)o)
        n++;
    return n;
}

/* P1 and P2 of slab.c for every slab, and the counts. */
static void check_cache(const struct vow__slab_cache *cache, size_t alive)
{
    size_t used = 0;
    size_t usable = 0;
    size_t empty = 0;
    for (vow_link *l = cache->all; l != NULL; l = l->next) {
        const struct vow__slab *s = VOW__OUTER(l, struct vow__slab, in_all);
        used += s->used;
        usable += s->place == VOW__USABLE;
        empty += s->place == VOW__EMPTY;
        CHECK_UINT_EQ(s->used + free_length(s), s->fresh);
        CHECK(s->fresh <= cache->per_slab);
        CHECK_INT_EQ(s->place == VOW__CURRENT, s == cache->current);
        if (s->place == VOW__FULL)
            CHECK_PTR_EQ(s->free, NULL);
        else if (s->place != VOW__CURRENT)
            CHECK_INT_EQ(s->used == 0, s->place == VOW__EMPTY);
    }
    CHECK_UINT_EQ(used, alive);
    CHECK_UINT_EQ(length(cache->all), cache->slabs);
    CHECK_UINT_EQ(length(cache->empty), cache->empties);
    CHECK_UINT_EQ(empty, cache->empties);
    CHECK_UINT_EQ(usable, length(cache->usable));
    CHECK(cache->idle_low <= cache->empties);
    CHECK_INT_EQ(vow__slab_unused(cache), alive == 0);
}

static void stamp(const struct held *h, size_t size, uint64_t with)
{
    memset(h->object, (int)(with & 0xFF), size);
}

static void check_stamp(const struct held *h, size_t size, uint64_t with)
{
    const unsigned char *bytes = h->object;
    for (size_t i = 0; i < size; i++)
        CHECK_UINT_EQ(bytes[i], with & 0xFF);
}

static void random_rounds(size_t object_size, bool share_slabs)
{
    static struct held held[MANY];
    struct fixture x;
    uint64_t random = test_seed();
    size_t n = 0;
    open_cache(&x, object_size, share_slabs);
    for (int round = 0; round < 3000; round++) {
        uint64_t r = test_random(&random);
        bool filling = (round / 300) % 2 == 0;
        if (r % 64 == 0) {
            vow__slab_trim(&x.cache);
        } else if (r % 64 == 1) {
            (void)vow__slab_decay(&x.cache);
        } else if (n > 0 && r % 4 < (filling ? 1 : 3)) {
            size_t at = (r >> 8) % n;
            check_stamp(&held[at], object_size,
                        (uintptr_t)held[at].object >> 4);
            give(held[at]);
            held[at] = held[--n];
        } else if (n < MANY) {
            x.alloc.fail_at = r % 16 == 3 ? x.alloc.allocs + 1 : 0;
            held[n] = take(&x);
            if (held[n].object != NULL) {
                stamp(&held[n], object_size, (uintptr_t)held[n].object >> 4);
                n++;
            }
        }
        check_cache(&x.cache, n);
    }
    give_many(held, n);
    check_cache(&x.cache, 0);
    close_cache(&x);
}

TEST(slab, keeps_its_invariants_in_random_operations_on_small_objects)
{
    random_rounds(SMALL, true);
}

TEST(slab, keeps_its_invariants_in_random_operations_on_big_objects)
{
    random_rounds(BIG, true);
}

TEST(slab, keeps_its_invariants_in_random_operations_without_shared_slabs)
{
    random_rounds(SMALL, false);
}
