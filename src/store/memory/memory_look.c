/* SPDX-License-Identifier: MIT */
/* memory_look.c - the steps that only read: peek, list, read.
 *
 * HOW   Records are answered in one block, with the texts behind the records:
 *       the first pass counts bytes, the second fills.
 */
#include "store/memory/memory_slots.h"

#include <string.h>

static size_t size_of_record(const struct vow__memory_slot *slot)
{
    size_t size = sizeof(vow_record);
    if (slot != NULL && slot->label != NULL)
        size += slot->label->length + 1;
    if (slot != NULL && slot->runner != NULL)
        size += slot->runner->length + 1;
    if (slot != NULL && slot->refresher != NULL)
        size += slot->refresher->length + 1;
    return size;
}

static int make_records(const struct vow__memory_state *m, size_t size,
                        struct vow__memory_records *out)
{
    vow_record *records = NULL;
    if (size > 0 && (records = vow__mem_new(&m->alloc, size)) == NULL)
        return VOW_ENOMEM;
    *out = (struct vow__memory_records){.records = records, .size = size};
    return 0;
}

static const char *pack_text(const struct vow__memory_text *t, char **texts)
{
    if (t == NULL)
        return "";
    char *at = *texts;
    memcpy(at, t->chars, t->length + 1);
    *texts += t->length + 1;
    return at;
}

/* Returns whether a stranger may see the record: also a lapsed lease, with the
 * status NONE. */
static bool is_visible(const struct vow__memory_state *m,
                       const struct vow__memory_slot *slot)
{
    enum rules_view view = vow__rules_view(&slot->record, m->now_us);
    return view != RULES_VIEW_NONE && view != RULES_VIEW_SPENT;
}

static void add_record(const struct vow__memory_state *m,
                       struct vow__memory_records *out,
                       const struct vow__memory_slot *slot,
                       const vow_name *name, char **texts)
{
    vow_record *r = &out->records[out->n++];
    if (slot == NULL || !is_visible(m, slot)) {
        vow__memory_record_fill(m, NULL, name, r);
        return;
    }
    const struct rules_record now =
        vow__rules_current(&slot->record, m->now_us);
    vow__memory_record_fill(m, &now, name, r);
    r->status = vow__rules_peek(&now, m->now_us);
    r->waiters = now.state == RULES_RUNNING ? slot->n_waits : 0;
    r->label = pack_text(slot->label, texts);
    r->runner = pack_text(vow__memory_runner_of(slot, &now), texts);
}

int vow__memory_peek(const struct vow__memory_step *s, const vow_name *names,
                     size_t n, struct vow__memory_records *out)
{
    struct vow__memory_state *m = s->state;
    size_t size = 0;
    vow__memory_begin(m, s->now_us);
    for (size_t i = 0; i < n; i++)
        size += size_of_record(vow__memory_slot_find(m, &names[i]));
    int rc = make_records(m, size, out);
    if (rc < 0)
        return rc;
    char *texts = (char *)(out->records + n);
    for (size_t i = 0; i < n; i++)
        add_record(m, out, vow__memory_slot_find(m, &names[i]), &names[i],
                   &texts);
    return 0;
}

int vow__memory_list(const struct vow__memory_step *s,
                     struct vow__memory_records *out)
{
    struct vow__memory_state *m = s->state;
    struct vow__table_node *at = NULL;
    size_t size = 0;
    size_t n = 0;
    vow__memory_begin(m, s->now_us);
    while ((at = vow__table_next(&m->names, at)) != NULL) {
        struct vow__memory_slot *slot =
            VOW__OUTER(at, struct vow__memory_slot, node);
        if (is_visible(m, slot)) {
            size += size_of_record(slot);
            n++;
        }
    }
    int rc = make_records(m, size, out);
    if (rc < 0)
        return rc;
    char *texts = (char *)(out->records + n);
    while ((at = vow__table_next(&m->names, at)) != NULL) {
        struct vow__memory_slot *slot =
            VOW__OUTER(at, struct vow__memory_slot, node);
        if (is_visible(m, slot))
            add_record(m, out, slot, &slot->key.name, &texts);
    }
    return 0;
}

/* ---- chunks ------------------------------------------------------------- */

int vow__memory_read(const struct vow__memory_step *s, const vow_name *name,
                     uint64_t epoch, uint64_t from,
                     struct vow__memory_chunks *out)
{
    vow__memory_begin(s->state, s->now_us);
    struct vow__memory_slot *slot = vow__memory_slot_find(s->state, name);
    if (slot == NULL || slot->record.state != RULES_RUNNING ||
        slot->record.epoch != epoch)
        return VOW_ENOENT;
    out->n = 0;
    while (from < slot->n_chunks && out->n < VOW__MEMORY_CHUNKS_MAX)
        out->chunks[out->n++] = vow_bytes_ref(slot->chunks[from++]);
    out->next = from;
    return 0;
}

void vow__memory_chunks_fini(struct vow__memory_chunks *c)
{
    for (size_t i = 0; i < c->n; i++)
        vow_bytes_unref(c->chunks[i]);
    c->n = 0;
}
