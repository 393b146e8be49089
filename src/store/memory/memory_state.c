/* SPDX-License-Identifier: MIT */
/* memory_state.c - the state of a memory store: instances, expiry, events.
 *
 * HOW   The time is an argument and nothing waits, so that the simulator of the
 *       tests can draw the order of steps from a seed. A step is atomic under
 *       the lock of the caller. Expired records are deleted by later steps, a
 *       bounded number by each, and by vow__memory_tidy().
 * LIMITS  A step is O(1) or O(log n) per name, a wake-up O(1) per waiter.
 * THREADS one at a time: the caller has the lock.
 */
#include "store/memory/memory_pools.h"
#include "store/memory/memory_slots.h"

#include <string.h>

static void reap_slots(struct vow__memory_state *m);
static void reap_pools(struct vow__memory_state *m);
static void free_slots(struct vow__memory_state *m, struct vow__table *t);
static void leave_names(struct vow__memory_state *m,
                        struct vow__memory_instance *instance, bool dead);
static void read_event(const struct vow__memory_step *s,
                       struct vow__memory_sent *e,
                       struct vow__memory_event *out);

int vow__memory_state_new(const struct vow__memory_opts *opts,
                          struct vow__memory_state **ret_state)
{
    struct vow__memory_state *m = vow__mem_zero(&opts->alloc, sizeof(*m));
    if (m == NULL)
        return VOW_ENOMEM;
    m->alloc = opts->alloc;
    m->exact = opts->exact;
    m->recheck_ms = opts->recheck_ms;
    m->value_max = opts->value_max;
    vow__table_init_hashed(&m->names, &m->alloc, opts->seed);
    vow__table_init_hashed(&m->left, &m->alloc, opts->seed + 4);
    vow__table_init(&m->waits, &m->alloc, opts->seed + 1);
    vow__table_init_hashed(&m->pools.by_name, &m->alloc, opts->seed + 2);
    vow__table_init_hashed(&m->pools.permits, &m->alloc, opts->seed + 3);
    vow__slab_init(&m->slot_memory, &m->alloc, m,
                   sizeof(struct vow__memory_slot), opts->pooled);
    vow__slab_init(&m->wait_memory, &m->alloc, m,
                   sizeof(struct vow__memory_wait), opts->pooled);
    vow__slab_init(&m->pools.permit_memory, &m->alloc, m,
                   sizeof(struct vow__memory_permit), opts->pooled);
    vow__memory_pools_init(m);
    m->slot_memory.walked = false;
    m->wait_memory.walked = false;
    m->pools.permit_memory.walked = false;
    *ret_state = m;
    return 0;
}

void vow__memory_state_free(struct vow__memory_state *m)
{
    struct vow__table_node *n;
    if (m == NULL)
        return;
    VOW__ASSERT(m->waits.count == 0);
    VOW__ASSERT(m->pools.permits.count == 0);
    m->ends = NULL; /* quicker than slot by slot */
    free_slots(m, &m->names);
    free_slots(m, &m->left);
    while ((n = vow__table_next(&m->pools.by_name, NULL)) != NULL)
        vow__memory_pool_free(m, VOW__OUTER(n, struct vow__memory_pool, node));
    vow__table_fini(&m->names);
    vow__table_fini(&m->left);
    vow__table_fini(&m->waits);
    vow__table_fini(&m->pools.by_name);
    vow__table_fini(&m->pools.permits);
    vow__slab_fini(&m->slot_memory);
    vow__slab_fini(&m->wait_memory);
    vow__slab_fini(&m->pools.permit_memory);
    struct vow_alloc alloc = m->alloc;
    vow__mem_free(&alloc, m, sizeof(*m));
}

static void free_slots(struct vow__memory_state *m, struct vow__table *t)
{
    for (struct vow__table_node *n = vow__table_next(t, NULL); n != NULL;) {
        struct vow__memory_slot *slot =
            VOW__OUTER(n, struct vow__memory_slot, node);
        n = vow__table_next(t, n);
        slot->ends = false;
        vow__memory_slot_free(m, slot);
    }
}

/* ---- instances ---------------------------------------------------------- */

int vow__memory_join(struct vow__memory_state *m, void (*wake)(void *user),
                     void *user, struct vow__memory_instance **ret_instance)
{
    struct vow__memory_instance *instance =
        vow__mem_zero(&m->alloc, sizeof(*instance));
    if (instance == NULL)
        return VOW_ENOMEM;
    instance->wake = wake;
    instance->user = user;
    *ret_instance = instance;
    return 0;
}

void vow__memory_leave(struct vow__memory_state *m,
                       struct vow__memory_instance *instance, uint64_t now_us,
                       bool dead)
{
    vow__memory_begin(m, now_us);
    leave_names(m, instance, dead);
    vow__memory_permits_leave(m, instance);
    VOW__ASSERT(instance->events == NULL);
    vow__memory_text_unref(m, instance->runner);
    vow__mem_free(&m->alloc, instance, sizeof(*instance));
}

static void leave_names(struct vow__memory_state *m,
                        struct vow__memory_instance *instance, bool dead)
{
    vow_link *l;
    while (instance->waits != NULL)
        vow__memory_wait_free(
            m,
            VOW__OUTER(instance->waits, struct vow__memory_wait, in_instance));
    while ((l = vow__list_take(&instance->owned)) != NULL) {
        struct vow__memory_slot *slot =
            VOW__OUTER(l, struct vow__memory_slot, in_owned);
        vow__memory_unsend(instance, &slot->cancel);
        slot->owner = NULL;
        if (dead)
            vow__memory_slot_lapse(m, slot);
    }
}

/* ---- expiry ------------------------------------------------------------- */

void vow__memory_begin(struct vow__memory_state *m, uint64_t now_us)
{
    if (now_us > m->now_us)
        m->now_us = now_us;
    if (VOW__UNLIKELY(m->ends != NULL && m->ends->key <= m->now_us))
        reap_slots(m);
    if (VOW__UNLIKELY(m->pools.idle != NULL && m->pools.idle->key <= m->now_us))
        reap_pools(m);
}

static void reap_slots(struct vow__memory_state *m)
{
    for (int i = 0; i < VOW__MEMORY_REAP_MAX; i++) {
        if (m->ends == NULL || m->ends->key > m->now_us)
            return;
        vow__memory_slot_reap(
            m, VOW__OUTER(m->ends, struct vow__memory_slot, by_end));
    }
}

static void reap_pools(struct vow__memory_state *m)
{
    for (int i = 0; i < VOW__MEMORY_REAP_MAX; i++) {
        struct vow__heap_node *first = m->pools.idle;
        if (first == NULL || first->key > m->now_us)
            return;
        vow__memory_pool_free(
            m, VOW__OUTER(first, struct vow__memory_pool, by_idle));
    }
}

uint64_t vow__memory_tidy(struct vow__memory_state *m, uint64_t now_us)
{
    vow__memory_begin(m, now_us);
    bool soon = vow__slab_decay(&m->slot_memory);
    soon |= vow__slab_decay(&m->wait_memory);
    soon |= vow__slab_decay(&m->pools.permit_memory);
    uint64_t next = soon ? m->now_us : UINT64_MAX;
    if (m->ends != NULL && m->ends->key < next)
        next = m->ends->key;
    if (m->pools.idle != NULL && m->pools.idle->key < next)
        next = m->pools.idle->key;
    return next;
}

bool vow__memory_untidy(const struct vow__memory_state *m)
{
    return m->ends != NULL || m->pools.idle != NULL ||
           m->slot_memory.empties > 0 || m->wait_memory.empties > 0 ||
           m->pools.permit_memory.empties > 0;
}

/* ---- texts -------------------------------------------------------------- */

/* Returns the length of a text, cut before a character of UTF-8. */
static size_t text_length(const char *chars)
{
    size_t length = strnlen(chars, VOW_LABEL_MAX + 1);
    if (length <= VOW_LABEL_MAX)
        return length;
    length = VOW_LABEL_MAX;
    while (length > 0 && ((unsigned char)chars[length] & 0xC0) == 0x80)
        length--;
    return length;
}

/* A text that was cut is never the same. */
bool vow__memory_text_is(const struct vow__memory_text *t, const char *chars)
{
    return t != NULL && strcmp(t->chars, chars) == 0;
}

int vow__memory_text_make(struct vow__memory_state *m, const char *chars,
                          struct vow__memory_text **ret_text)
{
    *ret_text = NULL;
    if (chars == NULL || chars[0] == 0)
        return 0;
    size_t length = text_length(chars);
    struct vow__memory_text *t =
        vow__mem_new(&m->alloc, sizeof(*t) + length + 1);
    if (t == NULL)
        return VOW_ENOMEM;
    t->refs = 1;
    t->length = (uint32_t)length;
    memcpy(t->chars, chars, length);
    t->chars[length] = 0;
    *ret_text = t;
    return 0;
}

void vow__memory_text_unref(struct vow__memory_state *m,
                            struct vow__memory_text *t)
{
    if (t == NULL || --t->refs > 0)
        return;
    vow__mem_free(&m->alloc, t, sizeof(*t) + t->length + 1);
}

/* ---- events ------------------------------------------------------------- */

void vow__memory_send(struct vow__memory_instance *instance,
                      struct vow__memory_sent *e,
                      enum vow__memory_event_kind kind)
{
    bool on_the_way = e->kind != VOW__MEMORY_NO_EVENT;
    e->kind = (uint8_t)kind;
    if (on_the_way)
        return;
    vow__list_push(&instance->events, &e->link);
    instance->wake(instance->user);
}

void vow__memory_unsend(struct vow__memory_instance *instance,
                        struct vow__memory_sent *e)
{
    if (e->kind == VOW__MEMORY_NO_EVENT)
        return;
    vow__list_remove(&instance->events, &e->link);
    e->kind = VOW__MEMORY_NO_EVENT;
}

bool vow__memory_event_take(const struct vow__memory_step *s,
                            struct vow__memory_event *out)
{
    vow__memory_begin(s->state, s->now_us);
    vow_link *l = vow__list_take(&s->instance->events);
    if (l == NULL)
        return false;
    read_event(s, VOW__OUTER(l, struct vow__memory_sent, link), out);
    return true;
}

static void read_event(const struct vow__memory_step *s,
                       struct vow__memory_sent *e,
                       struct vow__memory_event *out)
{
    struct vow__memory_state *m = s->state;
    out->kind = e->kind;
    e->kind = VOW__MEMORY_NO_EVENT;
    if (out->kind == VOW__MEMORY_CANCEL) {
        const struct vow__memory_slot *slot =
            VOW__OUTER(e, struct vow__memory_slot, cancel);
        vow__memory_record_fill(m, NULL, &slot->key.name, &out->answer.record);
    } else if (out->kind == VOW__MEMORY_PERMIT) {
        struct vow__memory_permit *p =
            VOW__OUTER(e, struct vow__memory_permit, sent);
        out->token = p->key.token;
        if (p->gone)
            vow__memory_permit_free(m, p);
    } else {
        vow__memory_wait_read(m, VOW__OUTER(e, struct vow__memory_wait, sent),
                              out->kind, &out->answer);
    }
}
