/* SPDX-License-Identifier: MIT */
/* memory_records.c - carries out decisions: slots, results left, registrations.
 *
 * HOW   vow__memory_apply() is the only writer of records: first everything is
 *       allocated, then nothing can fail. A result left for waiters stays in
 *       the slot of its name until the name is claimed again: then the result
 *       is set aside, under (name, first). A woken waiter reads the result with
 *       the event; in an exact store the last event deletes the result.
 *       The place of a slot in `ends` is corrected when the place is reached: a
 *       pulse moves nothing.
 * INVARIANTS  S1 to S6 in memory_slots.h
 */
#include "store/memory/memory_slots.h"

#include "base/failure.h"
#include <string.h>

enum { CHUNKS_ROOM_MIN = 8 };

/* All that a write needs, allocated before anything changes. */
struct parts {
    struct vow__memory_slot *fresh; /* the slot of the name, if there is none */
    struct vow__memory_slot *aside; /* gets the result left in the slot */
    struct vow__memory_text *label;
    vow_bytes *failure; /* VOW_EGAVEUP */
};

static int write_decision(const struct vow__memory_step *s,
                          const vow_name *name, const struct decision *d,
                          const struct vow__memory_input *input, bool unwait,
                          struct vow__memory_slot **slot);
static int parts_make(struct vow__memory_state *m, const vow_name *name,
                      const struct decision *d,
                      const struct vow__memory_input *input,
                      struct vow__memory_slot *slot, struct parts *p);
static void parts_free(struct vow__memory_state *m, struct parts *p);
static void write_slot(const struct vow__memory_step *s,
                       const struct decision *d,
                       const struct vow__memory_input *input,
                       const struct parts *p, struct vow__memory_slot **slot);
static void wake_waiters(struct vow__memory_slot *slot,
                         enum vow__memory_event_kind kind);

/* ---- slots -------------------------------------------------------------- */

void vow__memory_slot_check(const struct vow__memory_slot *slot)
{
    const struct rules_record *r = &slot->record;
    vow__rules_check(r);
    VOW__ASSERT(r->state != RULES_NONE);
    VOW__ASSERT(!slot->aside || r->spent);                       /* S1 */
    VOW__ASSERT(!r->spent || slot->kept || slot->waits != NULL); /* S2 */
    VOW__ASSERT(slot->owner == NULL || r->state == RULES_RUNNING ||
                r->refresh.epoch != 0);                               /* S3 */
    VOW__ASSERT(!slot->ends || slot->by_end.key <= slot->expires_us); /* S6 */
}

static struct vow__memory_slot *find_in_table(struct vow__memory_state *m,
                                              const struct vow__table *t,
                                              const void *key, size_t length)
{
    struct vow__table_node *n = vow__table_find(t, key, length);
    if (n == NULL)
        return NULL;
    struct vow__memory_slot *slot =
        VOW__OUTER(n, struct vow__memory_slot, node);
    if (VOW__LIKELY(slot->expires_us > m->now_us))
        return slot;
    vow__memory_slot_free(m, slot);
    return NULL;
}

struct vow__memory_slot *vow__memory_slot_find(struct vow__memory_state *m,
                                               const vow_name *name)
{
    return find_in_table(m, &m->names, name->hash, sizeof(name->hash));
}

struct vow__memory_slot *
vow__memory_slot_find_left(struct vow__memory_state *m,
                           struct vow__memory_slot *slot, const vow_name *name,
                           uint64_t waited)
{
    struct vow__memory_slot key;
    if (slot != NULL && slot->record.spent && slot->record.first == waited)
        return slot;
    if (m->left.count == 0)
        return NULL;
    key.key.name = *name;
    key.key.first = waited;
    return find_in_table(m, &m->left, &key.key, sizeof(key.key));
}

/* Returns NULL without memory. The slot is in no table. */
static struct vow__memory_slot *make_slot(struct vow__memory_state *m,
                                          const vow_name *name)
{
    struct vow__slab *slab;
    struct vow__memory_slot *slot = vow__slab_take(&m->slot_memory, &slab);
    if (slot == NULL)
        return NULL;
    slot->slab = slab; /* each by itself: quicker than zeros before */
    slot->key.name = *name;
    slot->node.name = (const char *)&slot->key;
    slot->node.length = sizeof(slot->key.name);
    slot->record.state = RULES_NONE;
    slot->record.spent = false;
    slot->record.refresh.epoch = 0;
    slot->record.refresh.failed = false;
    slot->aside = false;
    slot->kept = false;
    slot->ends = false;
    slot->n_waits = 0;
    slot->waits = NULL;
    slot->owner = NULL;
    slot->by_end.seq = ++m->seq;
    slot->value = NULL;
    slot->label = NULL;
    slot->runner = NULL;
    slot->refresher = NULL;
    slot->chunks = NULL;
    slot->n_chunks = 0;
    slot->chunks_room = 0;
    slot->cancel.kind = VOW__MEMORY_NO_EVENT;
    return slot;
}

static void clear_contents(struct vow__memory_state *m,
                           struct vow__memory_slot *slot)
{
    vow_bytes_unref(slot->value);
    slot->value = NULL;
    if (slot->chunks == NULL)
        return;
    for (uint32_t i = 0; i < slot->n_chunks; i++)
        vow_bytes_unref(slot->chunks[i]);
    vow__mem_free(&m->alloc, slot->chunks,
                  slot->chunks_room * sizeof(slot->chunks[0]));
    slot->chunks = NULL;
    slot->n_chunks = 0;
    slot->chunks_room = 0;
}

/* `owner` NULL: the run is over, or the owner has left. */
static void set_owner(struct vow__memory_slot *slot,
                      struct vow__memory_instance *owner)
{
    if (slot->owner == owner)
        return;
    if (slot->owner != NULL) {
        vow__memory_unsend(slot->owner, &slot->cancel);
        vow__list_remove(&slot->owner->owned, &slot->in_owned);
    }
    slot->owner = owner;
    if (owner != NULL)
        vow__list_push(&owner->owned, &slot->in_owned);
}

/* The place in `ends` is left as is if early enough; else the place is `look_us`,
 * not after the expiry. */
static void set_expiry(struct vow__memory_state *m,
                       struct vow__memory_slot *slot, uint64_t us,
                       uint64_t look_us)
{
    slot->expires_us = us;
    if (slot->ends && slot->by_end.key <= us)
        return;
    if (slot->ends)
        vow__heap_remove(&m->ends, &slot->by_end);
    slot->ends = us != RULES_NEVER;
    slot->by_end.key = look_us;
    if (slot->ends)
        vow__heap_insert(&m->ends, &slot->by_end);
}

void vow__memory_slot_reap(struct vow__memory_state *m,
                           struct vow__memory_slot *slot)
{
    if (slot->expires_us <= m->now_us) {
        vow__memory_slot_free(m, slot);
        return;
    }
    vow__heap_remove(&m->ends, &slot->by_end);
    slot->ends = false;
    set_expiry(m, slot, slot->expires_us, slot->expires_us);
}

static void detach_wait(struct vow__memory_wait *w)
{
    vow__list_remove(&w->slot->waits, &w->in_slot);
    w->slot->n_waits--;
    w->slot = NULL;
}

static void attach_wait(struct vow__memory_wait *w,
                        struct vow__memory_slot *slot)
{
    w->slot = slot;
    vow__list_push(&slot->waits, &w->in_slot);
    slot->n_waits++;
}

void vow__memory_slot_free(struct vow__memory_state *m,
                           struct vow__memory_slot *slot)
{
    wake_waiters(slot, VOW__MEMORY_RECORD);
    while (slot->waits != NULL)
        detach_wait(VOW__OUTER(slot->waits, struct vow__memory_wait, in_slot));
    set_owner(slot, NULL);
    if (slot->ends)
        vow__heap_remove(&m->ends, &slot->by_end);
    vow__table_remove(slot->aside ? &m->left : &m->names, &slot->node);
    clear_contents(m, slot);
    vow__memory_text_unref(m, slot->label);
    vow__memory_text_unref(m, slot->runner);
    vow__memory_text_unref(m, slot->refresher);
    vow__slab_give(slot->slab, slot);
}

/* S2: nobody can read the result any more. */
static void free_if_read(struct vow__memory_state *m,
                         struct vow__memory_slot *slot)
{
    if (slot->record.spent && !slot->kept && slot->waits == NULL)
        vow__memory_slot_free(m, slot);
}

void vow__memory_slot_lapse(struct vow__memory_state *m,
                            struct vow__memory_slot *slot)
{
    struct rules_record *r = &slot->record;
    uint64_t *end_us =
        r->state == RULES_RUNNING ? &r->end_us : &r->refresh.end_us;
    if (*end_us <= m->now_us)
        return;
    *end_us = m->now_us;
    wake_waiters(slot, VOW__MEMORY_RECORD);
}

/* The result left makes room for another record of the name. */
VOW__COLD static void set_slot_aside(struct vow__memory_state *m,
                                     struct vow__memory_slot *slot,
                                     struct vow__memory_slot *aside)
{
    vow_link *l;
    aside->record = slot->record;
    aside->kept = slot->kept;
    aside->value = slot->value;
    aside->label = slot->label;
    aside->runner = slot->runner;
    slot->value = NULL;
    slot->label = NULL;
    slot->runner = NULL;
    slot->kept = false;
    while ((l = slot->waits) != NULL) {
        struct vow__memory_wait *w =
            VOW__OUTER(l, struct vow__memory_wait, in_slot);
        detach_wait(w);
        attach_wait(w, aside);
    }
    set_expiry(m, aside, slot->expires_us, slot->expires_us);
    VOW__DEBUG_ASSERT((vow__memory_slot_check(aside), true));
}

/* ---- registrations ------------------------------------------------------ */

static struct vow__memory_wait *
find_instance_wait(struct vow__memory_state *m,
                   struct vow__memory_instance *instance, const vow_name *name)
{
    struct vow__memory_wait key;
    key.key.name = *name;
    key.key.instance = instance;
    struct vow__table_node *n =
        vow__table_find(&m->waits, (const char *)&key.key, sizeof(key.key));
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__memory_wait, node);
}

/* Returns NULL without memory. */
static struct vow__memory_wait *
make_instance_wait(struct vow__memory_state *m,
                   struct vow__memory_instance *instance, const vow_name *name)
{
    struct vow__slab *slab;
    struct vow__memory_wait *w = vow__slab_take(&m->wait_memory, &slab);
    if (w == NULL)
        return NULL;
    *w = (struct vow__memory_wait){.slab = slab};
    w->key.name = *name;
    w->key.instance = instance;
    w->node.name = (const char *)&w->key;
    w->node.length = sizeof(w->key);
    if (vow__table_add(&m->waits, &w->node) < 0) {
        vow__slab_give(slab, w);
        return NULL;
    }
    vow__list_push(&instance->waits, &w->in_instance);
    return w;
}

void vow__memory_wait_free(struct vow__memory_state *m,
                           struct vow__memory_wait *w)
{
    struct vow__memory_slot *slot = w->slot;
    vow__memory_unsend(w->key.instance, &w->sent);
    vow__list_remove(&w->key.instance->waits, &w->in_instance);
    vow__table_remove(&m->waits, &w->node);
    if (slot != NULL)
        detach_wait(w);
    vow__slab_give(w->slab, w);
    if (slot != NULL)
        free_if_read(m, slot);
}

/* The instance waits for the run in `slot`. A result that another run has left,
 * and whose event has not come, stays to be claimed. */
static int register_wait(struct vow__memory_state *m,
                         struct vow__memory_instance *instance,
                         const vow_name *name, struct vow__memory_slot *slot)
{
    struct vow__memory_wait *w = find_instance_wait(m, instance, name);
    if (w == NULL && (w = make_instance_wait(m, instance, name)) == NULL)
        return VOW_ENOMEM;
    if (w->sent.kind == VOW__MEMORY_RECORD)
        vow__memory_unsend(instance, &w->sent);
    if (w->slot == slot)
        return 0;
    if (w->slot != NULL) {
        w->slot->kept = w->slot->record.spent;
        detach_wait(w);
    }
    attach_wait(w, slot);
    return 0;
}

/* A result left can be claimed until its event has come. */
static void unregister_wait(struct vow__memory_state *m,
                            struct vow__memory_instance *instance,
                            const vow_name *name)
{
    struct vow__memory_wait *w = find_instance_wait(m, instance, name);
    if (w != NULL && (w->slot == NULL || !w->slot->record.spent))
        vow__memory_wait_free(m, w);
}

static void wake_waiters(struct vow__memory_slot *slot,
                         enum vow__memory_event_kind kind)
{
    for (vow_link *l = slot->waits; l != NULL; l = l->next) {
        struct vow__memory_wait *w =
            VOW__OUTER(l, struct vow__memory_wait, in_slot);
        if (kind == VOW__MEMORY_RECORD || w->sent.kind == VOW__MEMORY_NO_EVENT)
            vow__memory_send(w->key.instance, &w->sent, kind);
    }
}

/* ---- decisions ---------------------------------------------------------- */

int vow__memory_apply(const struct vow__memory_step *s, const vow_name *name,
                      const struct decision *d,
                      const struct vow__memory_input *input,
                      struct vow__memory_slot **slot)
{
    bool unwait =
        (d->effects & EFFECT_UNWAIT) != 0 && s->instance->waits != NULL;
    if ((d->effects & EFFECT_WAIT) != 0) /* and nothing else */
        return register_wait(s->state, s->instance, name, *slot);
    if ((d->effects & EFFECT_WRITE) != 0)
        return write_decision(s, name, d, input, unwait, slot);
    if (unwait)
        unregister_wait(s->state, s->instance, name);
    return 0;
}

static int write_decision(const struct vow__memory_step *s,
                          const vow_name *name, const struct decision *d,
                          const struct vow__memory_input *input, bool unwait,
                          struct vow__memory_slot **slot)
{
    struct parts p;
    int rc = parts_make(s->state, name, d, input, *slot, &p);
    if (rc < 0) {
        parts_free(s->state, &p);
        return rc;
    }
    if (unwait)
        unregister_wait(s->state, s->instance, name);
    write_slot(s, d, input, &p, slot);
    return 0;
}

/* A chunk needs room in the list. */
static int grow_chunks(struct vow__memory_state *m,
                       struct vow__memory_slot *slot)
{
    if (slot->n_chunks < slot->chunks_room)
        return 0;
    uint32_t room =
        slot->chunks_room == 0 ? CHUNKS_ROOM_MIN : 2 * slot->chunks_room;
    vow_bytes **chunks = vow__mem_new(&m->alloc, room * sizeof(chunks[0]));
    if (chunks == NULL)
        return VOW_ENOMEM;
    if (slot->n_chunks > 0)
        memcpy(chunks, slot->chunks, slot->n_chunks * sizeof(chunks[0]));
    vow__mem_free(&m->alloc, slot->chunks,
                  slot->chunks_room * sizeof(chunks[0]));
    slot->chunks = chunks;
    slot->chunks_room = room;
    return 0;
}

/* Keeps S1: the slot for the name, and the slot for the result in its way. */
static int make_slots(struct vow__memory_state *m, const vow_name *name,
                      const struct decision *d, struct vow__memory_slot *slot,
                      struct parts *p)
{
    if (slot == NULL && d->next.state != RULES_NONE) {
        p->fresh = make_slot(m, name);
        if (p->fresh == NULL)
            return VOW_ENOMEM;
        return vow__table_add(&m->names, &p->fresh->node);
    }
    if (slot == NULL || !slot->record.spent)
        return 0;
    p->aside = make_slot(m, name);
    if (p->aside == NULL)
        return VOW_ENOMEM;
    p->aside->aside = true;
    p->aside->key.first = slot->record.first;
    p->aside->node.length = sizeof(p->aside->key);
    return vow__table_add(&m->left, &p->aside->node);
}

static int parts_make(struct vow__memory_state *m, const vow_name *name,
                      const struct decision *d,
                      const struct vow__memory_input *input,
                      struct vow__memory_slot *slot, struct parts *p)
{
    int rc = 0;
    *p = (struct parts){.fresh = NULL};
    if ((d->effects & EFFECT_CHUNK) != 0)
        rc = grow_chunks(m, slot);
    if ((d->effects & EFFECT_TEXTS) != 0)
        rc = vow__memory_text_make(m, input->label, &p->label);
    if (rc == 0 && d->next.state == RULES_GAVE_UP)
        rc = vow__failure_make(&m->alloc, VOW_EGAVEUP, NULL, &p->failure);
    if (rc == 0)
        rc = make_slots(m, name, d, slot, p); /* last: a slot is in a table */
    return rc;
}

/* After an error of parts_make(): a slot is in no table. */
static void parts_free(struct vow__memory_state *m, struct parts *p)
{
    if (p->fresh != NULL)
        vow__slab_give(p->fresh->slab, p->fresh);
    if (p->aside != NULL)
        vow__slab_give(p->aside->slab, p->aside);
    vow__memory_text_unref(m, p->label);
    vow_bytes_unref(p->failure);
}

/* Returns the epoch of the owner or refresher; 0: nobody is at work. */
static uint64_t epoch_at_work(const struct rules_record *r)
{
    if (r->state == RULES_RUNNING)
        return r->epoch;
    return r->refresh.failed ? 0 : r->refresh.epoch;
}

/* A claim or pulse that is answered OWNED makes the caller the owner or
 * refresher. */
static void write_owner(const struct vow__memory_step *s,
                        struct vow__memory_slot *slot, const struct decision *d)
{
    uint64_t epoch = epoch_at_work(&d->next);
    bool caller =
        (d->status == VOW_STATUS_OWNED || d->status == VOW_STATUS_CANCELED) &&
        (d->effects & EFFECT_CHUNK) == 0;
    if (epoch != 0 && caller)
        set_owner(slot, s->instance);
    else if (epoch != epoch_at_work(&slot->record))
        set_owner(slot, NULL);
}

static void set_text(struct vow__memory_state *m, struct vow__memory_text **to,
                     struct vow__memory_text *t)
{
    if (*to != NULL)
        vow__memory_text_unref(m, *to);
    *to = t;
}

/* A claim brings both texts, and a claimed refresh the runner. A refresher that
 * has become the owner brings its runner. A result or revived record without a
 * run has the runner of the caller; else a commit only adds a label. */
static void write_texts(const struct vow__memory_step *s,
                        struct vow__memory_slot *slot, const struct decision *d,
                        const struct vow__memory_input *input,
                        const struct parts *p)
{
    bool texts = (d->effects & EFFECT_TEXTS) != 0;
    const struct rules_record now =
        vow__rules_current(&slot->record, s->state->now_us);
    bool ran = now.state == RULES_RUNNING;
    bool fresh = texts ? input->claim || !ran : p->fresh != NULL;
    struct vow__memory_text *runner = s->instance->runner;
    if (input->claim && (input->runner == NULL || input->runner[0] == 0))
        runner = NULL;
    if (slot->record.state == RULES_DONE &&
        (ran || (d->next.state == RULES_RUNNING && !texts))) {
        set_text(s->state, &slot->runner, slot->refresher);
        slot->refresher = NULL;
    }
    if (fresh || p->label != NULL)
        set_text(s->state, &slot->label, p->label);
    bool refreshes = d->next.refresh.epoch != slot->record.refresh.epoch &&
                     d->next.refresh.epoch != 0;
    if (!fresh && !refreshes)
        return;
    if (runner != NULL)
        runner->refs++;
    set_text(s->state, fresh ? &slot->runner : &slot->refresher, runner);
}

static void write_contents(struct vow__memory_state *m,
                           struct vow__memory_slot *slot,
                           const struct decision *d,
                           const struct vow__memory_input *input,
                           const struct parts *p)
{
    if ((d->effects & (EFFECT_CLEAR | EFFECT_CHUNK)) ==
        (EFFECT_CLEAR | EFFECT_CHUNK)) /* the first chunk has room already */
        slot->value = vow_bytes_unref(slot->value);
    else if ((d->effects & EFFECT_CLEAR) != 0 &&
             (slot->value != NULL || slot->chunks != NULL))
        clear_contents(m, slot);
    if ((d->effects & EFFECT_VALUE) != 0)
        slot->value = vow_bytes_ref(input->bytes);
    if (p->failure != NULL)
        slot->value = p->failure;
    if ((d->effects & EFFECT_CHUNK) != 0)
        slot->chunks[slot->n_chunks++] = vow_bytes_ref(input->bytes);
}

static void tell_waiters_and_owner(struct vow__memory_slot *slot,
                                   uint32_t effects)
{
    if ((effects & EFFECT_TELL_OWNER) != 0 && slot->owner != NULL)
        vow__memory_send(slot->owner, &slot->cancel, VOW__MEMORY_CANCEL);
    if ((effects & EFFECT_CHUNK) != 0)
        wake_waiters(slot, VOW__MEMORY_CHUNKS);
    if ((effects & EFFECT_WAKE) == 0)
        return;
    wake_waiters(slot, VOW__MEMORY_RECORD);
    while (slot->waits != NULL && !slot->record.spent) /* keeps S4 */
        detach_wait(VOW__OUTER(slot->waits, struct vow__memory_wait, in_slot));
}

/* Nothing here fails. */
static void write_slot(const struct vow__memory_step *s,
                       const struct decision *d,
                       const struct vow__memory_input *input,
                       const struct parts *p, struct vow__memory_slot **slot)
{
    struct vow__memory_state *m = s->state;
    struct vow__memory_slot *l = p->fresh != NULL ? p->fresh : *slot;
    *slot = l;
    if (l == NULL) /* deletes a record that is not there */
        return;
    if (p->aside != NULL)
        set_slot_aside(m, l, p->aside);
    if (d->next.state == RULES_NONE) { /* waiters are told */
        vow__memory_slot_free(m, l);
        *slot = NULL;
        return;
    }
    write_texts(s, l, d, input, p);
    write_owner(s, l, d);
    write_contents(m, l, d, input, p);
    l->record = d->next;
    l->kept = d->next.spent && (!m->exact || d->next.first != d->next.epoch);
    if (m->counter < d->next.epoch) /* keeps S5 */
        m->counter = d->next.epoch;
    if (m->counter < d->next.refresh.epoch)
        m->counter = d->next.refresh.epoch;
    if ((d->effects & EFFECT_LEAVE) != 0) { /* instead of an older result */
        struct vow__memory_slot *left =
            vow__memory_slot_find_left(m, NULL, &l->key.name, d->next.first);
        if (left != NULL)
            vow__memory_slot_free(m, left);
    }
    tell_waiters_and_owner(l, d->effects);
    /* From the end of the lease: a result soon needs an early place. */
    set_expiry(m, l, d->keep_until_us, d->next.end_us);
    VOW__DEBUG_ASSERT((vow__memory_slot_check(l), true));
}

/* ---- answers ------------------------------------------------------------ */

static uint64_t ms_since_us(const struct vow__memory_state *m, uint64_t then_us)
{
    return then_us > m->now_us ? 0 : (m->now_us - then_us) / 1000;
}

/* Rounded up: after so long the time has passed. */
static uint64_t ms_until_us(const struct vow__memory_state *m, uint64_t then_us)
{
    if (then_us == RULES_NEVER)
        return UINT64_MAX;
    uint64_t us = then_us > m->now_us ? then_us - m->now_us : 0;
    return us == 0 ? 0 : (us - 1) / 1000 + 1;
}

static inline void fill_record(const struct vow__memory_state *m,
                               const struct rules_record *r,
                               const vow_name *name, vow_record *out)
{
    bool there = r->state != RULES_NONE;
    out->name = *name; /* each by itself: quicker than zeros before */
    out->status = VOW_STATUS_NONE;
    out->mode = r->mode;
    out->epoch = r->epoch;
    out->first = r->first;
    out->takeovers = r->takeovers;
    out->waiters = 0;
    out->failed = r->state == RULES_FAILED || r->state == RULES_GAVE_UP;
    out->value = NULL;
    out->age_ms = there ? ms_since_us(m, r->since_us) : 0;
    out->pulse_ms = r->state == RULES_RUNNING && r->end_us != RULES_NEVER
                        ? ms_since_us(m, r->end_us - r->lease_us)
                        : out->age_ms; /* the lease began with the last pulse */
    out->left_ms = ms_until_us(m, r->end_us);
    out->cost_ms = r->cost_ms;
    out->label = "";
    out->runner = "";
}

void vow__memory_record_fill(const struct vow__memory_state *m,
                             const struct rules_record *r, const vow_name *name,
                             vow_record *out)
{
    static const struct rules_record none;
    fill_record(m, r == NULL ? &none : r, name, out);
}

/* Fills all but texts and value. */
static inline void fill_decided(const struct vow__memory_state *m,
                                const struct vow__memory_slot *slot,
                                const struct decision *d, const vow_name *name,
                                vow_record *out)
{
    const struct rules_record *r = d->left ? &slot->record : &d->next;
    struct rules_record other;
    if (d->status == VOW_STATUS_NONE || d->refresh) {
        other = (struct rules_record){.state = RULES_NONE};
        if (d->status != VOW_STATUS_NONE)
            other = vow__rules_refresher(&d->next);
        if (other.end_us > vow__memory_us_plus(m->now_us, other.lease_us))
            other.end_us = m->now_us + other.lease_us; /* a pause is longer */
        r = &other;
    }
    fill_record(m, r, name, out);
    if (d->status == VOW_STATUS_NONE)
        return;
    out->status = d->status;
    out->epoch = d->epoch;
    out->first = d->first;
    out->waiters =
        slot != NULL && r->state == RULES_RUNNING ? slot->n_waits : 0;
}

void vow__memory_decided_fill(const struct vow__memory_state *m,
                              const struct vow__memory_slot *slot,
                              const struct decision *d, const vow_name *name,
                              vow_record *out)
{
    fill_decided(m, slot, d, name, out);
}

static const char *copy_slot_text(const struct vow__memory_text *t, char *chars)
{
    memcpy(chars, t->chars, t->length + 1);
    return chars;
}

void vow__memory_answer_fill(const struct vow__memory_state *m,
                             const struct vow__memory_slot *slot,
                             const struct decision *d, const vow_name *name,
                             struct vow__memory_answer *out)
{
    fill_decided(m, slot, d, name, &out->record);
    if (slot == NULL || d->status == VOW_STATUS_NONE)
        return;
    if (slot->label != NULL)
        out->record.label = copy_slot_text(slot->label, out->label);
    const struct rules_record r =
        d->refresh ? vow__rules_refresher(&d->next) : d->next;
    const struct vow__memory_text *runner =
        d->left ? slot->runner : vow__memory_runner_of(slot, &r);
    if (runner != NULL)
        out->record.runner = copy_slot_text(runner, out->runner);
    if ((d->effects & EFFECT_SHOW) != 0)
        out->record.value = vow_bytes_ref(slot->value);
}

void vow__memory_answer_fini(struct vow__memory_answer *a)
{
    vow_bytes_unref(a->record.value);
    a->record.value = NULL;
}

/* The event of a registered waiter has only the name. */
void vow__memory_wait_read(struct vow__memory_state *m,
                           struct vow__memory_wait *w,
                           enum vow__memory_event_kind kind,
                           struct vow__memory_answer *out)
{
    const vow_name *name = &w->key.name;
    struct vow__memory_slot *slot = w->slot;
    struct decision d = {.status = VOW_STATUS_NONE};
    bool left = slot != NULL && slot->record.spent;
    bool woken = slot == NULL || left;
    if (slot == NULL)
        slot = vow__memory_slot_find(m, name);
    if (kind == VOW__MEMORY_RECORD && slot != NULL && woken &&
        (left ||
         vow__rules_peek(&slot->record, m->now_us) == VOW_STATUS_SETTLED)) {
        d.status = VOW_STATUS_SETTLED;
        d.effects = EFFECT_SHOW;
        d.left = true;
        d.epoch = slot->record.epoch;
        d.first = slot->record.first;
    }
    vow__memory_answer_fill(m, slot, &d, name, out);
    if (woken)
        vow__memory_wait_free(m, w);
}
