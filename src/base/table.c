/* SPDX-License-Identifier: MIT */
/* table.c - an intrusive hash table of names.
 *
 * WHY   Names come from users, perhaps from the network: the choice of
 *       names must not decide how long a look-up takes.
 * HOW   Chains in a power of two of slots, doubled when there are more names
 *       than slots; SipHash with a random key, but for names that are hashes.
 *       When there is no memory to grow, the chains get longer and nothing
 *       fails.
 * THREADS  the owner's.
 */
#include "base/table.h"
#include "base/assert.h"

#include <sodium.h>
#include <string.h>

enum { TABLE_FIRST_ROOM = 16 };

_Static_assert(crypto_shorthash_KEYBYTES == 16, "the seed is the key");
_Static_assert(crypto_shorthash_BYTES == 8, "a hash is a word");

static uint64_t hash_of(const struct vow__table *t, const char *name,
                        size_t length);
static void table_grow(struct vow__table *t, size_t room);

void vow__table_init(struct vow__table *t, const struct vow_alloc *alloc,
                     uint64_t seed)
{
    *t = (struct vow__table){.alloc = alloc, .seed = {seed, ~seed}};
}

void vow__table_init_hashed(struct vow__table *t, const struct vow_alloc *alloc,
                            uint64_t seed)
{
    vow__table_init(t, alloc, seed);
    t->hashed = true;
}

void vow__table_fini(struct vow__table *t)
{
    vow__mem_free(t->alloc, t->slots, t->room * sizeof(t->slots[0]));
    t->slots = NULL;
}

struct vow__table_node *vow__table_find(const struct vow__table *t,
                                        const char *name, size_t length)
{
    if (t->count == 0)
        return NULL;
    uint64_t hash = hash_of(t, name, length);
    struct vow__table_node *n = t->slots[hash & (t->room - 1)];
    while (n != NULL && (n->hash != hash || n->length != length ||
                         memcmp(n->name, name, length) != 0))
        n = n->next;
    return n;
}

int vow__table_add(struct vow__table *t, struct vow__table_node *n)
{
    if (t->count >= t->room)
        table_grow(t, t->room == 0 ? TABLE_FIRST_ROOM : 2 * t->room);
    if (t->room == 0)
        return VOW_ENOMEM;
    n->hash = hash_of(t, n->name, n->length);
    struct vow__table_node **slot = &t->slots[n->hash & (t->room - 1)];
    n->next = *slot;
    *slot = n;
    t->count++;
    return 0;
}

void vow__table_remove(struct vow__table *t, struct vow__table_node *n)
{
    struct vow__table_node **at = &t->slots[n->hash & (t->room - 1)];
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    t->count--;
}

struct vow__table_node *vow__table_next(const struct vow__table *t,
                                        const struct vow__table_node *n)
{
    if (n != NULL && n->next != NULL)
        return n->next;
    size_t i = n == NULL ? 0 : (n->hash & (t->room - 1)) + 1;
    while (i < t->room && t->slots[i] == NULL)
        i++;
    return i < t->room ? t->slots[i] : NULL;
}

static uint64_t hash_of(const struct vow__table *t, const char *name,
                        size_t length)
{
    uint64_t hash;
    if (t->hashed) {
        memcpy(&hash, name, sizeof(hash));
        return hash ^ t->seed[0];
    }
    (void)crypto_shorthash((unsigned char *)&hash, (const unsigned char *)name,
                           length, (const unsigned char *)t->seed);
    return hash;
}

static void table_grow(struct vow__table *t, size_t room)
{
    struct vow__table_node **slots =
        vow__mem_zero(t->alloc, room * sizeof(slots[0]));
    if (slots == NULL)
        return;
    struct vow__table_node *n = vow__table_next(t, NULL);
    while (n != NULL) {
        struct vow__table_node *next = vow__table_next(t, n);
        n->next = slots[n->hash & (room - 1)];
        slots[n->hash & (room - 1)] = n;
        n = next;
    }
    vow__mem_free(t->alloc, t->slots, t->room * sizeof(t->slots[0]));
    t->slots = slots;
    t->room = room;
}
