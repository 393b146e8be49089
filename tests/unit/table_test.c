/* SPDX-License-Identifier: MIT */
/* table_test.c - the hash table of names: found by every byte, removed from
 * anywhere in a chain, walked, grown, and of use when there is no memory. */
#include "base/table.h"
#include "world.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_ROOM = 16, MANY = 500, NAME = 16 };

struct entry {
    int before; /* so that the node is not the first member */
    struct vow__table_node named;
    char name[NAME];
    bool in;
    int met;
};

struct fixture {
    struct test_alloc alloc;
    struct vow_alloc hook;
    struct vow__table table;
    struct entry entries[MANY];
};

static void open_seeded(struct fixture *x, uint64_t seed)
{
    memset(x, 0, sizeof(*x));
    test_alloc_init(&x->alloc);
    x->hook = test_alloc_hook(&x->alloc);
    vow__table_init(&x->table, &x->hook, seed);
    for (int i = 0; i < MANY; i++) {
        struct entry *e = &x->entries[i];
        e->named.name = e->name;
        e->named.length = (size_t)snprintf(e->name, NAME, "name %d", i);
    }
}

static void open_table(struct fixture *x)
{
    open_seeded(x, test_seed());
}

static void close_table(struct fixture *x)
{
    vow__table_fini(&x->table);
    test_alloc_fini(TEST_HERE, &x->alloc);
}

static void add(struct fixture *x, int i)
{
    CHECK_INT_EQ(vow__table_add(&x->table, &x->entries[i].named), 0);
    x->entries[i].in = true;
}

static void add_many(struct fixture *x, int n)
{
    for (int i = 0; i < n; i++)
        add(x, i);
}

static void take_out(struct fixture *x, int i)
{
    vow__table_remove(&x->table, &x->entries[i].named);
    x->entries[i].in = false;
}

static struct vow__table_node *find(const struct fixture *x, const char *name)
{
    return vow__table_find(&x->table, name, strlen(name));
}

static struct entry *entry_of(struct vow__table_node *n)
{
    return (struct entry *)(void *)((char *)n - offsetof(struct entry, named));
}

/* Found are those that are in, and a walk meets each of them once. */
static void check_table(struct fixture *x)
{
    struct vow__table_node *n = NULL;
    size_t count = 0;
    for (int i = 0; i < MANY; i++) {
        struct entry *e = &x->entries[i];
        CHECK_PTR_EQ(find(x, e->name), e->in ? &e->named : NULL);
        count += e->in;
        e->met = 0;
    }
    CHECK_UINT_EQ(x->table.count, count);
    while ((n = vow__table_next(&x->table, n)) != NULL)
        CHECK_INT_EQ(++entry_of(n)->met, 1);
    for (int i = 0; i < MANY; i++)
        CHECK_INT_EQ(x->entries[i].met, x->entries[i].in);
}

/* ---- finding ------------------------------------------------------------ */

TEST(table, an_empty_one_has_nothing_and_no_memory)
{
    struct fixture x;
    open_table(&x);
    CHECK_PTR_EQ(find(&x, "name 0"), NULL);
    CHECK_PTR_EQ(vow__table_next(&x.table, NULL), NULL);
    CHECK_UINT_EQ(x.alloc.allocs, 0);
    close_table(&x);
}

TEST(table, finds_what_was_added_and_nothing_else)
{
    struct fixture x;
    open_table(&x);
    add_many(&x, MANY / 2);
    check_table(&x);
    close_table(&x);
}

/* The name looked for is a part of a text, and a name may hold any byte. */
TEST(table, tells_names_by_length_and_every_byte)
{
    static const struct {
        const char *bytes;
        size_t length;
    } names[] = {{"", 0},     {"a", 1},    {"ab", 2},   {"abc", 3},
                 {"\0", 1},   {"\0\0", 2}, {"a\0b", 3}, {"a\0c", 3},
                 {"b\0b", 3}, {"\xff", 1}};
    enum { N = sizeof(names) / sizeof(names[0]) };
    struct fixture x;
    open_table(&x);
    for (int i = 0; i < N; i++) {
        x.entries[i].named.name = names[i].bytes;
        x.entries[i].named.length = names[i].length;
        add(&x, i);
    }
    for (int i = 0; i < N; i++) {
        char text[8] = "xxxxxxx";
        memcpy(text, names[i].bytes, names[i].length);
        CHECK_PTR_EQ(vow__table_find(&x.table, text, names[i].length),
                     &x.entries[i].named);
    }
    CHECK_PTR_EQ(find(&x, "b"), NULL);
    CHECK_PTR_EQ(find(&x, "abcd"), NULL);
    close_table(&x);
}

TEST(table, where_a_name_falls_depends_on_the_seed)
{
    struct fixture x;
    uint64_t hash[2];
    for (uint64_t seed = 0; seed < 2; seed++) {
        open_seeded(&x, seed);
        add(&x, 0);
        hash[seed] = x.entries[0].named.hash;
        close_table(&x);
    }
    CHECK(hash[0] != hash[1]);
}

/* ---- removing ----------------------------------------------------------- */

TEST(table, removed_it_is_not_found_and_can_be_added_again)
{
    struct fixture x;
    open_table(&x);
    add_many(&x, 40);
    for (int i = 0; i < 40; i += 3)
        take_out(&x, i);
    check_table(&x);
    for (int i = 0; i < 40; i += 3)
        add(&x, i);
    check_table(&x);
    for (int i = 39; i >= 0; i--)
        take_out(&x, i);
    check_table(&x);
    close_table(&x);
}

/* Nothing grows here, so that many share a slot. */
TEST(table, removed_from_anywhere_in_a_long_chain_the_others_stay)
{
    struct fixture x;
    uint64_t random = test_seed();
    open_table(&x);
    add(&x, 0);
    x.alloc.fail_at = x.alloc.allocs + 1;
    x.alloc.fail_forever = true;
    for (int i = 1; i < 200; i++)
        add(&x, i);
    CHECK_UINT_EQ(x.table.room, FIRST_ROOM);
    check_table(&x);
    for (int left = 200; left > 0; left--) {
        int i = (int)(test_random(&random) % 200);
        while (!x.entries[i].in)
            i = (i + 1) % 200;
        take_out(&x, i);
        if (left % 20 == 0)
            check_table(&x);
    }
    check_table(&x);
    close_table(&x);
}

/* ---- walking ------------------------------------------------------------ */

TEST(table, a_walk_may_remove_what_it_has_left_behind)
{
    struct fixture x;
    open_table(&x);
    add_many(&x, 100);
    struct vow__table_node *n = vow__table_next(&x.table, NULL);
    while (n != NULL) {
        struct vow__table_node *next = vow__table_next(&x.table, n);
        take_out(&x, (int)(entry_of(n) - x.entries));
        n = next;
    }
    CHECK_UINT_EQ(x.table.count, 0);
    check_table(&x);
    close_table(&x);
}

/* ---- growing ------------------------------------------------------------ */

TEST(table, doubles_when_there_are_more_names_than_slots)
{
    struct fixture x;
    open_table(&x);
    size_t room = FIRST_ROOM;
    for (int i = 0; i < MANY; i++) {
        if ((size_t)i == room)
            room *= 2;
        add(&x, i);
        CHECK_UINT_EQ(x.table.room, room);
    }
    check_table(&x);
    CHECK_UINT_EQ(x.alloc.live_blocks, 1);
    for (int i = 0; i < MANY; i++)
        take_out(&x, i);
    CHECK_UINT_EQ(x.table.room, room); /* it does not shrink */
    close_table(&x);
}

TEST(table, without_memory_for_the_first_slots_nothing_is_added)
{
    struct fixture x;
    open_table(&x);
    x.alloc.fail_at = 1;
    CHECK_INT_EQ(vow__table_add(&x.table, &x.entries[0].named), VOW_ENOMEM);
    CHECK_UINT_EQ(x.table.count, 0);
    check_table(&x);
    add(&x, 0); /* there is memory again */
    check_table(&x);
    close_table(&x);
}

TEST(table, without_memory_to_grow_it_goes_on_and_grows_later)
{
    struct fixture x;
    open_table(&x);
    add_many(&x, FIRST_ROOM);
    x.alloc.fail_at = x.alloc.allocs + 1;
    x.alloc.fail_forever = true;
    for (int i = FIRST_ROOM; i < 3 * FIRST_ROOM; i++)
        add(&x, i);
    CHECK_UINT_EQ(x.table.room, FIRST_ROOM);
    check_table(&x);
    x.alloc.fail_at = 0;
    x.alloc.fail_forever = false;
    add(&x, 3 * FIRST_ROOM);
    CHECK_UINT_EQ(x.table.room, 2 * FIRST_ROOM);
    check_table(&x);
    close_table(&x);
}

TEST(table, ended_twice_it_frees_once)
{
    struct fixture x;
    open_table(&x);
    add(&x, 0);
    vow__table_fini(&x.table);
    close_table(&x);
}

/* ---- against a model ---------------------------------------------------- */

TEST(table, does_what_a_set_does_in_random_operations)
{
    static struct fixture x;
    uint64_t random = test_seed();
    open_table(&x);
    for (int round = 0; round < 20000; round++) {
        uint64_t r = test_random(&random);
        int i = (int)((r >> 8) % MANY);
        x.alloc.fail_at = (r >> 32) % 4 == 0 ? x.alloc.allocs + 1 : 0;
        if (x.entries[i].in)
            take_out(&x, i);
        else if (vow__table_add(&x.table, &x.entries[i].named) == 0)
            x.entries[i].in = true;
        else
            CHECK(x.table.room == 0);
        if (round % 200 == 0)
            check_table(&x);
    }
    check_table(&x);
    close_table(&x);
}
