/* SPDX-License-Identifier: MIT */
/* list.h - intrusive lists with a one-word head.
 *
 *     head -> first -> second -> last -> NULL
 *     first->prev == last, every other prev is the neighbour
 *
 * Push at the end, take from the front, remove and splice are O(1), and an
 * empty list is a NULL pointer: a promise pays eight bytes for its waiters.
 */
#ifndef VOW_BASE_LIST_H
#define VOW_BASE_LIST_H

#include "base/assert.h"
#include "vow/common.h"

/* The object around an embedded link or node. */
#define VOW__OUTER(ptr, type, member)                                          \
    ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

static inline void vow__list_push(vow_link **head, vow_link *l)
{
    vow_link *first = *head;
    l->next = NULL;
    if (first == NULL) {
        l->prev = l;
        *head = l;
        return;
    }
    l->prev = first->prev;
    first->prev->next = l;
    first->prev = l;
}

/* Before `next`, which is in the list; NULL: at the end. */
static inline void vow__list_insert(vow_link **head, vow_link *next,
                                    vow_link *l)
{
    if (next == NULL) {
        vow__list_push(head, l);
        return;
    }
    vow_link *before = next->prev;
    VOW__ASSERT(before != NULL);
    l->next = next;
    l->prev = before;
    next->prev = l;
    if (*head == next)
        *head = l;
    else
        before->next = l;
}

static inline void vow__list_remove(vow_link **head, vow_link *l)
{
    vow_link *first = *head;
    VOW__ASSERT(first != NULL);
    if (l->next != NULL)
        l->next->prev = l->prev;
    else
        first->prev = l->prev;
    if (first == l)
        *head = l->next;
    else
        l->prev->next = l->next;
    l->next = NULL;
    l->prev = NULL;
}

static inline vow_link *vow__list_take(vow_link **head)
{
    vow_link *l = *head;
    if (l == NULL)
        return NULL;
    *head = l->next;
    if (l->next != NULL)
        l->next->prev = l->prev;
    return l;
}

/* Move all of `from` behind `head`; order is kept. */
static inline void vow__list_splice(vow_link **head, vow_link **from)
{
    vow_link *first = *head;
    vow_link *moved = *from;
    if (moved == NULL)
        return;
    *from = NULL;
    if (first == NULL) {
        *head = moved;
        return;
    }
    vow_link *last = moved->prev;
    first->prev->next = moved;
    moved->prev = first->prev;
    first->prev = last;
}

#endif
