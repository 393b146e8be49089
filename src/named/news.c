/* SPDX-License-Identifier: MIT */
/* news.c - a result that comes before the answer to a claim.
 *
 * WHY   A claim is on its way, perhaps only to look again, and the name is
 *       settled meanwhile: the store tells of that at once, and tells it once.
 *       To forget it would mean to do the work again.
 * HOW   It is kept until the answer is there, and goes to those who waited.
 * THREADS  the home's loop.
 */
#include "base/alloc.h"
#include "named/hub_internal.h"

#include <stdio.h>

static void news_free(struct vow__hub *h, struct vow__news_of *n);

/* The store may not tell of it again. Without memory the work is done anew. */
void vow__news_keep(struct vow__entry *e, const vow_record *r)
{
    struct vow__hub *h = vow__hub_of(e);
    vow__news_drop(e);
    e->news = vow__mem_new(&h->alloc, sizeof(*e->news));
    if (e->news == NULL)
        return;
    e->news->record = *r;
    e->news->record.value = vow_bytes_ref(r->value);
    (void)snprintf(e->news->runner, sizeof(e->news->runner), "%s",
                   r->runner == NULL ? "" : r->runner);
    e->news->record.runner = e->news->runner;
    e->news->record.label = "";
}

void vow__news_drop(struct vow__entry *e)
{
    news_free(vow__hub_of(e), e->news);
    e->news = NULL;
}

static void news_free(struct vow__hub *h, struct vow__news_of *n)
{
    if (n != NULL)
        vow_bytes_unref(n->record.value);
    vow__mem_free(&h->alloc, n, sizeof(*n));
}

/* The answer says what the name was, before or after: who waited for the result
 * has it, and who did not goes by the answer. True: nobody is left to. */
bool vow__news_settle(struct vow__entry *e, const vow_record *r)
{
    struct vow__hub *h = vow__hub_of(e);
    struct vow__news_of *n = e->news;
    bool before =
        r->status == VOW_STATUS_WAITING && r->epoch <= n->record.epoch;
    bool owned = r->status == VOW_STATUS_OWNED;
    bool any = before;
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = l->next)
        any = any || vow__ask_of(l)->waited;
    if (!any || (!before && !owned && r->status != VOW_STATUS_WAITING))
        return false;
    for (vow_link *l = e->asks; l != NULL && !before; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        next = l->next;
        if (!a->waited)
            vow__ask_put_off(a);
    }
    e->news = NULL;
    e->steps++; /* the entry stays */
    vow__entry_settle_record(e, &n->record);
    e->steps--;
    news_free(h, n);
    if (owned && e->state == ENTRY_NEW) {
        e->unspent = false;
        vow__entry_move(e, ENTRY_CLAIMING); /* as if it had just been granted */
        vow__lease_give_back(e);
    } else if (e->state == ENTRY_NEW && e->steps == 0 && e->n_asks == 0) {
        vow__entry_free(e);
    }
    return true;
}
