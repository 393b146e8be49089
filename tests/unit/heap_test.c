/* SPDX-License-Identifier: MIT */
/* heap_test.c - the pairing heap: its order, its shape, and a model that looks
 * through everything for the smallest. */
#include "base/heap.h"
#include "base/list.h"
#include "harness.h"

#include <stdlib.h>

enum { MANY = 256 };

struct item {
    int before;
    struct vow__heap_node node;
    bool in;
};

static void insert(struct vow__heap_node **root, struct item *i, uint64_t key,
                   uint64_t seq)
{
    i->node.key = key;
    i->node.seq = seq;
    i->in = true;
    vow__heap_insert(root, &i->node);
}

static struct item *item_of(struct vow__heap_node *n)
{
    return n == NULL ? NULL : VOW__OUTER(n, struct item, node);
}

static struct item *take(struct vow__heap_node **root)
{
    struct item *first = item_of(*root);
    if (first == NULL)
        return NULL;
    vow__heap_remove(root, &first->node);
    first->in = false;
    return first;
}

static void check_blank(const struct item *i)
{
    CHECK_PTR_EQ(i->node.child, NULL);
    CHECK_PTR_EQ(i->node.next, NULL);
    CHECK_PTR_EQ(i->node.prev, NULL);
}

/* Walks the whole tree: no child before its parent, each prev where heap.h says
 * it is. Returns how many there are. */
static size_t check_shape(const struct vow__heap_node *root)
{
    const struct vow__heap_node *stack[MANY];
    size_t depth = 0;
    size_t n = 0;
    if (root == NULL)
        return 0;
    CHECK_PTR_EQ(root->next, NULL);
    CHECK_PTR_EQ(root->prev, NULL);
    stack[depth++] = root;
    while (depth > 0) {
        const struct vow__heap_node *parent = stack[--depth];
        const struct vow__heap_node *prev = parent;
        n++;
        for (const struct vow__heap_node *c = parent->child; c != NULL;
             c = c->next) {
            CHECK_PTR_EQ(c->prev, prev);
            CHECK(!vow__heap_before(c, parent));
            prev = c;
            CHECK(depth < MANY);
            stack[depth++] = c;
        }
    }
    return n;
}

TEST(heap, orders_by_key_then_by_sequence)
{
    struct vow__heap_node a = {.key = 1, .seq = 9};
    struct vow__heap_node b = {.key = 2, .seq = 0};
    struct vow__heap_node c = {.key = 2, .seq = 1};
    CHECK(vow__heap_before(&a, &b));
    CHECK(!vow__heap_before(&b, &a));
    CHECK(vow__heap_before(&b, &c));
    CHECK(!vow__heap_before(&c, &b));
    CHECK(!vow__heap_before(&b, &b));
}

TEST(heap, of_none_is_null_and_of_one_is_that)
{
    struct vow__heap_node *root = NULL;
    struct item one;
    insert(&root, &one, 5, 0);
    CHECK_PTR_EQ(root, &one.node);
    CHECK_PTR_EQ(take(&root), &one);
    CHECK_PTR_EQ(root, NULL);
    check_blank(&one);
}

TEST(heap, gives_the_smallest_first)
{
    const uint64_t keys[] = {5, 3, 8, 1, 9, 2, 7, UINT64_MAX, 0};
    enum { N = sizeof(keys) / sizeof(keys[0]) };
    struct vow__heap_node *root = NULL;
    struct item items[N];
    uint64_t last = 0;
    for (size_t i = 0; i < N; i++)
        insert(&root, &items[i], keys[i], i);
    for (size_t i = 0; i < N; i++) {
        CHECK_UINT_EQ(check_shape(root), N - i);
        struct item *first = take(&root);
        CHECK(first->node.key >= last);
        last = first->node.key;
        check_blank(first);
    }
    CHECK_UINT_EQ(last, UINT64_MAX);
    CHECK_PTR_EQ(root, NULL);
}

TEST(heap, gives_equal_keys_in_the_order_of_their_sequence)
{
    struct vow__heap_node *root = NULL;
    struct item items[MANY];
    for (size_t i = 0; i < MANY; i++) /* inserted in another order */
        insert(&root, &items[i], 7, (i * 37) % MANY);
    for (size_t i = 0; i < MANY; i++)
        CHECK_UINT_EQ(take(&root)->node.seq, i);
}

/* Root with three children, newest first: 4, 3, 2; then 4 has children too. */
TEST(heap, first_middle_and_last_child_can_be_removed)
{
    for (size_t gone = 1; gone < 4; gone++) {
        struct vow__heap_node *root = NULL;
        struct item items[4];
        for (size_t i = 0; i < 4; i++)
            insert(&root, &items[i], i + 1, i);
        CHECK_PTR_EQ(root->child, &items[3].node);
        vow__heap_remove(&root, &items[gone].node);
        check_blank(&items[gone]);
        CHECK_UINT_EQ(check_shape(root), 3);
        for (size_t i = 0; i < 4; i++)
            if (i != gone)
                CHECK_PTR_EQ(take(&root), &items[i]);
        CHECK_PTR_EQ(root, NULL);
    }
}

TEST(heap, children_of_a_removed_one_stay)
{
    struct vow__heap_node *root = NULL;
    struct item items[8];
    for (size_t i = 0; i < 8; i++)
        insert(&root, &items[i], 10 + i, i);
    (void)take(&root); /* pairs what is left, so that nodes are deep */
    struct vow__heap_node *inner = root->child;
    while (inner != NULL && inner->child == NULL)
        inner = inner->next;
    CHECK(inner != NULL);
    vow__heap_remove(&root, inner);
    CHECK_UINT_EQ(check_shape(root), 6);
}

TEST(heap, removed_one_can_be_inserted_again)
{
    struct vow__heap_node *root = NULL;
    struct item a;
    struct item b;
    insert(&root, &a, 1, 0);
    insert(&root, &b, 2, 1);
    vow__heap_remove(&root, &a.node);
    insert(&root, &a, 3, 2);
    CHECK_PTR_EQ(take(&root), &b);
    CHECK_PTR_EQ(take(&root), &a);
}

/* Rising keys make a flat tree and falling ones a chain: neither recurses. */
TEST(heap, half_a_million_sorted_either_way_need_no_stack)
{
    enum { N = 500000 };
    struct item *items = malloc(N * sizeof(*items));
    CHECK(items != NULL);
    for (int falling = 0; falling < 2; falling++) {
        struct vow__heap_node *root = NULL;
        for (size_t i = 0; i < N; i++)
            insert(&root, &items[i], falling ? N - i : i, i);
        for (size_t i = 0; i < N; i++)
            CHECK_PTR_EQ(take(&root), &items[falling ? N - 1 - i : i]);
        CHECK_PTR_EQ(root, NULL);
    }
    free(items);
}

/* ---- against a model ---------------------------------------------------- */

static struct item *smallest(struct item *items)
{
    struct item *best = NULL;
    for (size_t i = 0; i < MANY; i++)
        if (items[i].in &&
            (best == NULL || vow__heap_before(&items[i].node, &best->node)))
            best = &items[i];
    return best;
}

TEST(heap, agrees_with_looking_through_all_in_random_operations)
{
    static struct item items[MANY];
    struct vow__heap_node *root = NULL;
    uint64_t random = test_seed();
    uint64_t seq = 0;
    size_t n = 0;
    for (int round = 0; round < 20000; round++) {
        uint64_t r = test_random(&random);
        struct item *any = &items[(r >> 8) % MANY];
        bool filling = (round / 2000) % 2 == 0;
        if (any->in && !filling) {
            vow__heap_remove(&root, &any->node);
            any->in = false;
            check_blank(any);
            n--;
        } else if (!any->in && (filling || r % 4 == 0)) {
            insert(&root, any, (r >> 16) % 50, seq++);
            n++;
        } else if (n > 0 && r % 8 == 0) {
            struct item *want = smallest(items);
            CHECK_PTR_EQ(take(&root), want);
            n--;
        }
        CHECK_PTR_EQ(item_of(root), smallest(items));
        if (round % 16 == 0)
            CHECK_UINT_EQ(check_shape(root), n);
    }
}
