/* SPDX-License-Identifier: MIT */
/* store_down.c - pauses of a name: for the end of a run, or for the store.
 *
 * HOW   Waiters that refuse the current run are postponed until the run is
 *       over. When the store cannot be used, the policy of each waiter counts:
 *       work without the store, wait, or fail. Pauses grow and are random
 *       within a bound, so that many processes do not come back at once.
 * THREADS  the hub's loop.
 */
#include "named/named_internal.h"

enum { DOWN_PAUSE_FIRST_MS = 20, DOWN_PAUSE_MOST_MS = 1000, HOLD_OFF_MS = 2 };

void vow__named_entry_recheck(void *entry)
{
    vow__named_entry_claim_again(entry);
}

void vow__named_waiter_postpone(struct vow__named_waiter *w)
{
    struct vow__named_entry *e = w->entry;
    vow__list_remove(&e->waiters, &w->link);
    e->n_waiters--;
    w->postponed = true;
    vow__list_push(&e->postponed, &w->link);
    if (e->n_waiters == 0)
        vow__named_entry_check_idle(e);
}

void vow__named_entry_down(struct vow__named_entry *e)
{
    bool alone = false;
    struct vow__named_hub *h = vow__named_entry_hub(e);
    const char *why = vow__named_store_trouble(h);
    vow__named_store_set_down(h, true, VOW_ESTORE); /* also if busy too long */
    vow_link *next;
    for (vow_link *l = e->waiters; l != NULL; l = next) {
        struct vow__named_waiter *w = vow__named_waiter_of(l);
        uint32_t policy = vow__named_waiter_down_policy(w);
        next = l->next;
        alone = alone || policy == VOW_DOWN_RUN;
        if (policy == VOW_DOWN_FAIL)
            vow__named_waiter_refuse(w, VOW_ESTORE, why);
    }
    for (vow_link *l = alone ? e->waiters : NULL; l != NULL; l = next) {
        next = l->next; /* waiters that wait for the store */
        if (vow__named_waiter_down_policy(vow__named_waiter_of(l)) !=
            VOW_DOWN_RUN)
            vow__named_waiter_postpone(vow__named_waiter_of(l));
    }
    if (alone)
        vow__named_lease_begin(e, true);
    else if (e->n_waiters > 0)
        (void)vow__named_entry_pause(e, UINT64_MAX);
    else
        vow__named_entry_claim_again(e);
}

uint32_t vow__named_waiter_down_policy(const struct vow__named_waiter *w)
{
    if (w->opts->store_down != VOW_DOWN_DEFAULT)
        return w->opts->store_down;
    bool works = w->opts->mode == VOW_SHARED && !w->refresh &&
                 (w->opts->flags & VOW_SHARE_PEEK) == 0;
    return works ? VOW_DOWN_RUN : VOW_DOWN_FAIL;
}

void vow__named_entry_hold_off(struct vow__named_entry *e)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    uint64_t most =
        vow__named_waiter_lease_ms(vow__named_waiter_of(e->waiters)) / 4 + 1;
    uint64_t ms = e->hold_offs == 0 ? 0 : HOLD_OFF_MS;
    for (uint32_t k = 1; k < e->hold_offs && ms < most; k++)
        ms *= 2;
    if (ms > most)
        ms = most;
    e->hold_offs++;
    e->hold_off = false;
    e->commit_again = false;
    vow__named_entry_move(e, ENTRY_NEW);
    vow__named_entry_move(e, ENTRY_PAUSING);
    if (ms == 0) /* after the calls that are queued now */
        vow_call_soon(&e->timer, h->loop, vow__named_entry_recheck, e);
    else
        vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                    vow__named_entry_recheck, e);
}

bool vow__named_entry_pause(struct vow__named_entry *e, uint64_t at_most_ms)
{
    struct vow__named_hub *h = vow__named_entry_hub(e);
    uint64_t ms = DOWN_PAUSE_FIRST_MS;
    for (uint32_t k = 0; k < e->pauses && ms < DOWN_PAUSE_MOST_MS; k++)
        ms *= 2;
    ms = ms / 2 + vow_loop_random(h->loop) % ms;
    if (ms > at_most_ms)
        return false;
    e->pauses++;
    e->commit_again = e->state == ENTRY_COMMITTING;
    vow__named_entry_move(e, ENTRY_PAUSING);
    vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                vow__named_entry_recheck, e);
    h->repeated_commits += e->commit_again;
    if (e->commit_again)
        vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                    vow__named_lease_commit_again, e);
    return true;
}

/* Shortens all pauses when the store can be used again. */
void vow__named_entries_hurry(struct vow__named_hub *h)
{
    struct vow__table_node *n = NULL;
    while ((n = vow__table_next(&h->names, n)) != NULL) {
        struct vow__named_entry *e =
            VOW__OUTER(n, struct vow__named_entry, node);
        uint64_t ms = vow_loop_random(h->loop) % DOWN_PAUSE_FIRST_MS;
        if (e->state == ENTRY_PAUSING)
            vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                        e->commit_again ? vow__named_lease_commit_again
                                        : vow__named_entry_recheck,
                        e);
    }
}
