/* SPDX-License-Identifier: MIT */
/* down.c - a name that has to wait: for the end of a run, or for the store.
 *
 * HOW   Those who do not want the run that is there are put off until it is
 *       over. When the store cannot be used, each asker's policy counts: work
 *       uncoordinated, wait, or fail. Pauses grow, and are random within a
 *       bound, so that many processes do not come back at once.
 * THREADS  the home's loop.
 */
#include "named/hub_internal.h"

enum { PAUSE_FIRST_MS = 20, PAUSE_MOST_MS = 1000, HOLD_OFF_MS = 2 };

void vow__entry_look_again(void *entry)
{
    vow__entry_again(entry);
}

/* It asks again when this run is over. */
void vow__ask_put_off(struct vow__ask *a)
{
    struct vow__entry *e = a->entry;
    vow__list_remove(&e->asks, &a->link);
    e->n_asks--;
    a->later = true;
    vow__list_push(&e->later, &a->link);
    if (e->n_asks == 0)
        vow__entry_look(e);
}

void vow__entry_down(struct vow__entry *e)
{
    bool alone = false;
    struct vow__hub *h = vow__hub_of(e);
    const char *why = vow__store_trouble(h);
    vow__store_is(h, true, VOW_ESTORE); /* also one that was busy too long */
    vow_link *next;
    for (vow_link *l = e->asks; l != NULL; l = next) {
        struct vow__ask *a = vow__ask_of(l);
        uint32_t policy = vow__ask_policy(a);
        next = l->next;
        alone = alone || policy == VOW_DOWN_RUN;
        if (policy == VOW_DOWN_FAIL)
            vow__ask_refuse(a, VOW_ESTORE, why);
    }
    for (vow_link *l = alone ? e->asks : NULL; l != NULL; l = next) {
        next = l->next; /* who waits for the store waits for that too */
        if (vow__ask_policy(vow__ask_of(l)) != VOW_DOWN_RUN)
            vow__ask_put_off(vow__ask_of(l));
    }
    if (alone)
        vow__lease_begin(e, true);
    else if (e->n_asks > 0)
        (void)vow__entry_pause(e, UINT64_MAX);
    else
        vow__entry_again(e);
}

uint32_t vow__ask_policy(const struct vow__ask *a)
{
    if (a->opts->store_down != VOW_DOWN_DEFAULT)
        return a->opts->store_down;
    bool works = a->opts->mode == VOW_SHARED && !a->refresh &&
                 (a->opts->flags & VOW_SHARE_PEEK) == 0;
    return works ? VOW_DOWN_RUN : VOW_DOWN_FAIL;
}

void vow__entry_hold_off(struct vow__entry *e)
{
    struct vow__hub *h = vow__hub_of(e);
    uint64_t most = vow__ask_lease_ms(vow__ask_of(e->asks)) / 4 + 1;
    uint64_t ms = e->held_off == 0 ? 0 : HOLD_OFF_MS;
    for (uint32_t k = 1; k < e->held_off && ms < most; k++)
        ms *= 2;
    if (ms > most)
        ms = most;
    e->held_off++;
    e->hold_off = false;
    e->committed = false;
    vow__entry_move(e, ENTRY_NEW);
    vow__entry_move(e, ENTRY_PAUSING);
    if (ms == 0) /* behind those who have been told */
        vow_call_soon(&e->timer, h->loop, vow__entry_look_again, e);
    else
        vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                    vow__entry_look_again, e);
}

bool vow__entry_pause(struct vow__entry *e, uint64_t at_most_ms)
{
    struct vow__hub *h = vow__hub_of(e);
    uint64_t ms = PAUSE_FIRST_MS;
    for (uint32_t k = 0; k < e->pauses && ms < PAUSE_MOST_MS; k++)
        ms *= 2;
    ms = ms / 2 + vow_loop_random(h->loop) % ms;
    if (ms > at_most_ms)
        return false;
    e->pauses++;
    e->committed = e->state == ENTRY_COMMITTING;
    vow__entry_move(e, ENTRY_PAUSING);
    vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                vow__entry_look_again, e);
    h->refused += e->committed;
    if (e->committed)
        vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                    vow__lease_commit_again, e);
    return true;
}

/* The store can be used again: who pauses need not to the end. */
void vow__entries_hurry(struct vow__hub *h)
{
    struct vow__table_node *n = NULL;
    while ((n = vow__table_next(&h->names, n)) != NULL) {
        struct vow__entry *e = VOW__OUTER(n, struct vow__entry, node);
        uint64_t ms = vow_loop_random(h->loop) % PAUSE_FIRST_MS;
        if (e->state == ENTRY_PAUSING)
            vow_call_at(&e->timer, h->loop, vow_loop_due_ns(h->loop, ms),
                        e->committed ? vow__lease_commit_again
                                     : vow__entry_look_again,
                        e);
    }
}
