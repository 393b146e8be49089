/* SPDX-License-Identifier: MIT */
/* book_pool.c - pools, and their limits.
 *
 * HOW   The limits of a pool are its own, or those of another, which has one
 *       pool for each key. Who asks first sets them; vow__book_limit() changes
 *       them for all.
 * LIMITS  A pool of one key goes when nobody uses it and its window has passed;
 *       limits that were set stay as long as the book.
 */
#include "store/book_internal.h"

#include <string.h>

static struct vow__lot *lot_new(struct vow__book *b, const vow_name *name,
                                struct vow__lot *law, const char *label);
static void lot_wake(struct vow__book *b, struct vow__lot *lot);
static int set_limits(struct vow__book *b, struct vow__lot *lot,
                      const vow_pool_limits *limits, const char *label);
static void info_fill(struct vow__book *b, struct vow__lot *lot,
                      vow_pool_info *out);

struct vow__lot *vow__lot_find(struct vow__book *b, const vow_name *name)
{
    struct vow__table_node *n = vow__table_find(
        &b->pools, (const char *)name->hash, sizeof(name->hash));
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__lot, named);
}

struct vow__lot *vow__lot_for(struct vow__book *b,
                              const vow_permit_request *ask)
{
    struct vow__lot *law = NULL;
    struct vow__lot *lot = vow__lot_find(b, &ask->pool);
    if (lot != NULL) {
        lot_wake(b, lot);
        return lot;
    }
    if (!vow_name_equal(&ask->pool, &ask->limits_of)) {
        law = vow__lot_find(b, &ask->limits_of);
        if (law == NULL) {
            law = lot_new(b, &ask->limits_of, NULL, ask->limits_label);
            if (law == NULL)
                return NULL;
            law->limits = ask->limits;
        }
        law = law->law;
    }
    lot = lot_new(b, &ask->pool, law, ask->label);
    if (lot != NULL && law == NULL)
        lot->limits = ask->limits;
    return lot;
}

/* `law` NULL: its own. */
static struct vow__lot *lot_new(struct vow__book *b, const vow_name *name,
                                struct vow__lot *law, const char *label)
{
    struct vow__lot *lot = vow__mem_zero(&b->alloc, sizeof(*lot));
    if (lot == NULL)
        return NULL;
    lot->name = *name;
    lot->named.name = (const char *)lot->name.hash;
    lot->named.length = sizeof(lot->name.hash);
    lot->by_idle.seq = ++b->seq;
    if (vow__text_make(b, label, NULL, &lot->label) < 0 ||
        vow__table_add(&b->pools, &lot->named) < 0) {
        vow__text_drop(b, lot->label);
        vow__mem_free(&b->alloc, lot, sizeof(*lot));
        return NULL;
    }
    lot->law = law == NULL ? lot : law;
    if (law != NULL)
        vow__list_push(&law->keys, &lot->in_law);
    return lot;
}

void vow__lot_free(struct vow__book *b, struct vow__lot *lot)
{
    VOW__ASSERT(lot->ends == NULL);
    lot_wake(b, lot);
    if (lot->law != lot)
        vow__list_remove(&lot->law->keys, &lot->in_law);
    for (vow_link *l = lot->keys; l != NULL; l = lot->keys) {
        struct vow__lot *key = VOW__OUTER(l, struct vow__lot, in_law);
        vow__list_remove(&lot->keys, l);
        key->law = key;
    }
    vow__table_remove(&b->pools, &lot->named);
    vow__ledger_fini(&lot->ledger, &b->alloc);
    vow__text_drop(b, lot->label);
    vow__mem_free(&b->alloc, lot, sizeof(*lot));
}

/* Those whose lease is over go, some of them in one step. */
void vow__lot_reap(struct vow__book *b, struct vow__lot *lot)
{
    for (int i = 0; i < VOW__REAP_MAX; i++) {
        if (lot->ends == NULL || lot->ends->key > b->now_us)
            return;
        vow__spot_free(b, VOW__OUTER(lot->ends, struct vow__spot, by_end));
    }
}

/* A pool of one key that nobody uses goes, when the rate has forgotten it. */
void vow__lot_rest(struct vow__book *b, struct vow__lot *lot)
{
    if (lot->ends != NULL || lot->law == lot || lot->idle)
        return;
    lot->by_idle.key =
        vow__ledger_over_us(&lot->ledger, lot->law->limits.window_us);
    if (lot->by_idle.key <= b->now_us) {
        vow__lot_free(b, lot);
        return;
    }
    lot->idle = true;
    vow__heap_insert(&b->idle, &lot->by_idle);
}

static void lot_wake(struct vow__book *b, struct vow__lot *lot)
{
    if (lot->idle)
        vow__heap_remove(&b->idle, &lot->by_idle);
    lot->idle = false;
}

/* ---- limits ------------------------------------------------------------- */

int vow__book_limit(const struct vow__step *s, const vow_name *pool,
                    const vow_pool_limits *limits, const char *label,
                    struct vow__pool_answer *out)
{
    struct vow__book *b = s->book;
    vow__book_begin(b, s->now_us);
    struct vow__lot *lot = vow__lot_find(b, pool);
    if (lot == NULL && limits == NULL)
        return VOW_ENOENT;
    if (lot == NULL && (lot = lot_new(b, pool, NULL, label)) == NULL)
        return VOW_ENOMEM;
    if (limits != NULL) {
        int rc = set_limits(b, lot, limits, label);
        if (rc < 0)
            return rc;
    }
    info_fill(b, lot, &out->info);
    if (lot->label != NULL) {
        memcpy(out->label, lot->label->chars, lot->label->length + 1);
        out->info.label = out->label;
    }
    return 0;
}

static int set_limits(struct vow__book *b, struct vow__lot *lot,
                      const vow_pool_limits *limits, const char *label)
{
    struct vow__text *text;
    int rc = vow__text_make(b, label, NULL, &text);
    if (rc < 0)
        return rc;
    if (text != NULL) {
        vow__text_drop(b, lot->label);
        lot->label = text;
    }
    if (lot->law != lot) { /* from now on this key has its own */
        vow__list_remove(&lot->law->keys, &lot->in_law);
        lot->law = lot;
        lot_wake(b, lot);
    }
    lot->limits = *limits;
    for (vow_link *l = lot->keys; l != NULL; l = l->next) {
        struct vow__lot *key = VOW__OUTER(l, struct vow__lot, in_law);
        vow__lot_reap(b, key);
        (void)vow__lot_grant(b, key, NULL);
    }
    return 0;
}

static void info_fill(struct vow__book *b, struct vow__lot *lot,
                      vow_pool_info *out)
{
    const vow_pool_limits *limits = &lot->law->limits;
    VOW__ASSERT(out != NULL);
    vow__lot_reap(b, lot);
    (void)vow__lot_grant(b, lot, NULL);
    vow__ledger_expire(&lot->ledger, limits->window_us, b->now_us);
    *out = (vow_pool_info){.pool = lot->name,
                           .label = "",
                           .limits = *limits,
                           .held = lot->held,
                           .holders = lot->holders,
                           .waiting = lot->waiting,
                           .rate_used = vow__ledger_used(&lot->ledger)};
}

int vow__book_pools(const struct vow__step *s, vow_pool_info **ret_infos,
                    size_t *ret_n, size_t *ret_size)
{
    struct vow__book *b = s->book;
    struct vow__table_node *at = NULL;
    vow__book_begin(b, s->now_us);
    size_t n = 0;
    size_t size = b->pools.count * sizeof(vow_pool_info);
    while ((at = vow__table_next(&b->pools, at)) != NULL) {
        struct vow__lot *lot = VOW__OUTER(at, struct vow__lot, named);
        size += lot->label == NULL ? 0 : lot->label->length + 1;
    }
    vow_pool_info *infos = size == 0 ? NULL : vow__mem_new(&b->alloc, size);
    if (infos == NULL && size > 0)
        return VOW_ENOMEM;
    char *texts = (char *)(infos + b->pools.count);
    while ((at = vow__table_next(&b->pools, at)) != NULL) {
        struct vow__lot *lot = VOW__OUTER(at, struct vow__lot, named);
        info_fill(b, lot, &infos[n]);
        if (lot->label != NULL) {
            memcpy(texts, lot->label->chars, lot->label->length + 1);
            infos[n].label = texts;
            texts += lot->label->length + 1;
        }
        n++;
    }
    *ret_infos = infos;
    *ret_n = n;
    *ret_size = size;
    return 0;
}
