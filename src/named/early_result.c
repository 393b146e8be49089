/* SPDX-License-Identifier: MIT */
/* early_result.c - keeps a result that comes before the answer to a claim.
 *
 * WHY   While a claim is in flight, perhaps only a recheck, the name may be
 *       settled. The store sends the result at once, and only once. Without the
 *       result the work would run again.
 * HOW   The result is kept until the answer has come, and then goes to the
 *       waiters that waited.
 * THREADS  the hub's loop.
 */
#include "base/alloc.h"
#include "named/named_internal.h"

#include <stdio.h>

static void early_result_free(struct vow__named_hub *h,
                              struct vow__named_early_result *n);

/* Keeps a copy, because the store may not send the result again. Without memory
 * the work runs again. */
void vow__named_early_result_keep(struct vow__named_entry *e,
                                  const vow_record *r)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    vow__named_early_result_drop(e);
    e->early_result = vow__mem_new(&h->alloc, sizeof(*e->early_result));
    if (e->early_result == NULL)
        return;
    e->early_result->record = *r;
    e->early_result->record.value = vow_bytes_ref(r->value);
    (void)snprintf(e->early_result->runner, sizeof(e->early_result->runner),
                   "%s", r->runner == NULL ? "" : r->runner);
    e->early_result->record.runner = e->early_result->runner;
    e->early_result->record.label = "";
}

void vow__named_early_result_drop(struct vow__named_entry *e)
{
    early_result_free(vow__named_entry_hub(e), e->early_result);
    e->early_result = NULL;
}

static void early_result_free(struct vow__named_hub *h,
                              struct vow__named_early_result *n)
{
    if (n != NULL)
        vow_bytes_unref(n->record.value);
    vow__mem_free(&h->alloc, n, sizeof(*n));
}

/* The answer `r` shows the name before or after the result. Waiters that have
 * waited get the result; the other waiters go by the answer. */
bool vow__named_early_result_settle(struct vow__named_entry *e,
                                    const vow_record *r)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    struct vow__named_early_result *n = e->early_result;
    bool before =
        r->status == VOW_STATUS_WAITING && r->epoch <= n->record.epoch;
    bool owned = r->status == VOW_STATUS_OWNED;
    bool any = before;
    vow_link *next;
    for (vow_link *l = e->waiters; l != NULL; l = l->next)
        any = any || vow__named_waiter_of(l)->waited;
    if (!any || (!before && !owned && r->status != VOW_STATUS_WAITING))
        return false;
    for (vow_link *l = e->waiters; l != NULL && !before; l = next) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        next = l->next;
        if (!w->waited)
            vow__named_waiter_postpone(w);
    }
    e->early_result = NULL;
    e->steps++; /* keeps the entry */
    vow__named_entry_settle_record(e, &n->record);
    e->steps--;
    early_result_free(h, n);
    if (owned && e->state == ENTRY_NEW) {
        e->token_unused = false;
        vow__named_entry_move(e, ENTRY_CLAIMING); /* as if just granted */
        vow__named_lease_give_back(e);
    } else if (e->state == ENTRY_NEW && e->steps == 0 && e->n_waiters == 0) {
        vow__named_entry_free(e);
    }
    return true;
}
