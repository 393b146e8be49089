/* SPDX-License-Identifier: MIT */
/* list_test.c - intrusive lists: order and the shape of list.h after every
 * operation, and a model that does the same with an array. */
#include "base/list.h"
#include "harness.h"

#include <string.h>

enum { MANY = 64 };

struct item {
    int before; /* so that the link is not the first member */
    vow_link link;
    int id;
};

static int id_of(vow_link *l)
{
    return VOW__OUTER(l, struct item, link)->id;
}

/* The list has these ids, and its links are as drawn in list.h. */
static void check_list(vow_link *head, const int *ids, size_t n)
{
    size_t i = 0;
    if (n == 0)
        CHECK_PTR_EQ(head, NULL);
    for (vow_link *l = head; l != NULL; l = l->next, i++) {
        CHECK(i < n);
        CHECK_INT_EQ(id_of(l), ids[i]);
        if (l->next != NULL)
            CHECK_PTR_EQ(l->next->prev, l);
        else
            CHECK_PTR_EQ(head->prev, l);
    }
    CHECK_UINT_EQ(i, n);
}

/* Items 0 to n-1 in their order. */
static vow_link *make(struct item *items, int n)
{
    vow_link *head = NULL;
    for (int i = 0; i < n; i++) {
        items[i] = (struct item){.id = i};
        vow__list_push(&head, &items[i].link);
    }
    return head;
}

static void check_blank(const vow_link *l)
{
    CHECK_PTR_EQ(l->next, NULL);
    CHECK_PTR_EQ(l->prev, NULL);
}

TEST(list, outer_finds_the_object_around_a_link)
{
    struct item item = {.id = 7};
    CHECK_PTR_EQ(VOW__OUTER(&item.link, struct item, link), &item);
}

TEST(list, push_keeps_the_order_of_arrival)
{
    struct item items[4];
    vow_link *head = make(items, 4);
    check_list(head, (int[]){0, 1, 2, 3}, 4);
}

TEST(list, of_one_points_to_itself_backwards)
{
    struct item items[1];
    vow_link *head = make(items, 1);
    CHECK_PTR_EQ(head, &items[0].link);
    CHECK_PTR_EQ(head->prev, head);
    CHECK_PTR_EQ(head->next, NULL);
}

TEST(list, push_heeds_nothing_that_was_in_the_link)
{
    struct item junk = {.id = 1};
    struct item item = {.id = 0, .link = {&junk.link, &junk.link}};
    vow_link *head = NULL;
    vow__list_push(&head, &item.link);
    check_list(head, (int[]){0}, 1);
}

TEST(list, take_gives_the_first_until_there_is_none)
{
    struct item items[3];
    vow_link *head = make(items, 3);
    for (int i = 0; i < 3; i++) {
        vow_link *l = vow__list_take(&head);
        CHECK_PTR_EQ(l, &items[i].link);
        check_list(head, (int[]){i + 1, i + 2}, (size_t)(2 - i));
    }
    CHECK_PTR_EQ(vow__list_take(&head), NULL);
    CHECK_PTR_EQ(head, NULL);
}

TEST(list, any_can_be_removed_wherever_it_stands)
{
    const int rest[4][3] = {{1, 2, 3}, {0, 2, 3}, {0, 1, 3}, {0, 1, 2}};
    for (int gone = 0; gone < 4; gone++) {
        struct item items[4];
        vow_link *head = make(items, 4);
        vow__list_remove(&head, &items[gone].link);
        check_blank(&items[gone].link);
        check_list(head, rest[gone], 3);
        vow__list_push(&head, &items[gone].link); /* the end is still known */
        CHECK_PTR_EQ(head->prev, &items[gone].link);
    }
}

TEST(list, removing_the_only_one_leaves_an_empty_list)
{
    struct item items[1];
    vow_link *head = make(items, 1);
    vow__list_remove(&head, &items[0].link);
    check_blank(&items[0].link);
    check_list(head, NULL, 0);
}

TEST(list, insert_puts_it_before_any_other_or_at_the_end)
{
    const int order[4][4] = {
        {9, 0, 1, 2}, {0, 9, 1, 2}, {0, 1, 9, 2}, {0, 1, 2, 9}};
    for (int at = 0; at < 4; at++) {
        struct item items[3];
        struct item late = {.id = 9};
        struct item last = {.id = 10};
        vow_link *head = make(items, 3);
        vow__list_insert(&head, at < 3 ? &items[at].link : NULL, &late.link);
        check_list(head, order[at], 4);
        vow__list_push(&head, &last.link); /* the end is still known */
        CHECK_PTR_EQ(head->prev, &last.link);
        vow__list_remove(&head, &last.link);
        vow__list_remove(&head, &late.link);
        check_list(head, (int[]){0, 1, 2}, 3);
    }
}

TEST(list, insert_into_an_empty_list_makes_one_of_one)
{
    struct item junk = {.id = 1};
    struct item item = {.id = 0, .link = {&junk.link, &junk.link}};
    vow_link *head = NULL;
    vow__list_insert(&head, NULL, &item.link);
    check_list(head, (int[]){0}, 1);
    vow__list_insert(&head, &item.link, &junk.link); /* before the only one */
    check_list(head, (int[]){1, 0}, 2);
}

TEST(list, splice_moves_all_behind_the_others)
{
    struct item a[2];
    struct item b[3];
    vow_link *to = make(a, 2);
    vow_link *from = make(b, 3);
    vow__list_splice(&to, &from);
    check_list(from, NULL, 0);
    check_list(to, (int[]){0, 1, 0, 1, 2}, 5);
    CHECK_PTR_EQ(to->prev, &b[2].link);
}

TEST(list, splice_onto_an_empty_list_is_the_other)
{
    struct item a[2];
    vow_link *to = NULL;
    vow_link *from = make(a, 2);
    vow__list_splice(&to, &from);
    check_list(from, NULL, 0);
    check_list(to, (int[]){0, 1}, 2);
}

TEST(list, splice_of_an_empty_list_changes_nothing)
{
    struct item a[2];
    vow_link *to = make(a, 2);
    vow_link *from = NULL;
    vow__list_splice(&to, &from);
    check_list(to, (int[]){0, 1}, 2);
    to = NULL;
    vow__list_splice(&to, &from);
    check_list(to, NULL, 0);
}

/* ---- against a model ---------------------------------------------------- */

struct model {
    struct item items[MANY];
    bool used[MANY];
    vow_link *head[2];
    int ids[2][MANY];
    size_t n[2];
};

static void model_push(struct model *m, int which, int id)
{
    if (m->used[id])
        return;
    m->used[id] = true;
    m->ids[which][m->n[which]++] = id;
    vow__list_push(&m->head[which], &m->items[id].link);
}

/* Before the one that stands there; at the end if none does. */
static void model_insert(struct model *m, int which, size_t at, int id)
{
    int *ids = m->ids[which];
    size_t n = m->n[which];
    if (m->used[id])
        return;
    m->used[id] = true;
    vow__list_insert(&m->head[which], at < n ? &m->items[ids[at]].link : NULL,
                     &m->items[id].link);
    memmove(ids + at + 1, ids + at, (n - at) * sizeof(*ids));
    ids[at] = id;
    m->n[which]++;
}

static void model_remove(struct model *m, int which, size_t at, bool take)
{
    if (at >= m->n[which])
        return;
    int *ids = m->ids[which];
    int id = ids[at];
    if (take)
        CHECK_PTR_EQ(vow__list_take(&m->head[which]), &m->items[id].link);
    else
        vow__list_remove(&m->head[which], &m->items[id].link);
    m->used[id] = false;
    memmove(ids + at, ids + at + 1, (--m->n[which] - at) * sizeof(*ids));
}

static void model_splice(struct model *m, int to)
{
    int from = 1 - to;
    vow__list_splice(&m->head[to], &m->head[from]);
    memcpy(m->ids[to] + m->n[to], m->ids[from], m->n[from] * sizeof(int));
    m->n[to] += m->n[from];
    m->n[from] = 0;
}

TEST(list, does_what_an_array_does_in_random_operations)
{
    static struct model m;
    uint64_t random = test_seed();
    for (int i = 0; i < MANY; i++)
        m.items[i].id = i;
    for (int round = 0; round < 20000; round++) {
        uint64_t r = test_random(&random);
        int which = (int)(r & 1);
        size_t at = m.n[which] == 0 ? 0 : (r >> 8) % m.n[which];
        switch ((r >> 1) % 8) {
        case 0:
            model_remove(&m, which, 0, true);
            break;
        case 1:
        case 2:
            model_remove(&m, which, at, false);
            break;
        case 3:
            model_splice(&m, which);
            break;
        case 4:
            at = (r >> 8) % (m.n[which] + 1);
            model_insert(&m, which, at, (int)((r >> 32) % MANY));
            break;
        default:
            model_push(&m, which, (int)((r >> 8) % MANY));
            break;
        }
        check_list(m.head[0], m.ids[0], m.n[0]);
        check_list(m.head[1], m.ids[1], m.n[1]);
    }
}
