/* SPDX-License-Identifier: MIT */
/* book_look.c - looking at records, managing them, and the chunks that a
 * running one has written.
 *
 * HOW   Many records are answered in one block, with their texts behind them:
 *       it is counted first and filled then.
 * INVARIANTS  an error has changed nothing
 */
#include "store/book_internal.h"

#include <string.h>

enum { CHUNKS_FIRST = 8 };

static size_t size_of(const struct vow__rec *r);
static int sheet_new(const struct vow__book *b, size_t size,
                     struct vow__sheet *out);
static char *sheet_add(const struct vow__book *b, struct vow__sheet *sheet,
                       const struct vow__rec *r, const vow_name *name,
                       char *texts);
static const char *text_into(const struct vow__text *t, char **texts);
static bool listed(const struct vow__book *b, const struct vow__rec *r);
static int chunks_grow(struct vow__book *b, struct vow__chunks *c);

/* ---- many --------------------------------------------------------------- */

int vow__book_peek(const struct vow__step *s, const vow_name *names, size_t n,
                   struct vow__sheet *out)
{
    struct vow__book *b = s->book;
    vow__book_begin(b, s->now_us);
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += size_of(vow__rec_find(b, &names[i]));
    int rc = sheet_new(b, size, out);
    if (rc < 0)
        return rc;
    char *texts = (char *)(out->records + n);
    for (size_t i = 0; i < n; i++)
        texts =
            sheet_add(b, out, vow__rec_find(b, &names[i]), &names[i], texts);
    return 0;
}

int vow__book_list(const struct vow__step *s, struct vow__sheet *out)
{
    struct vow__book *b = s->book;
    struct vow__table_node *at = NULL;
    vow__book_begin(b, s->now_us);
    size_t size = 0;
    size_t n = 0;
    while ((at = vow__table_next(&b->names, at)) != NULL) {
        struct vow__rec *r = VOW__OUTER(at, struct vow__rec, named);
        if (listed(b, r)) {
            size += size_of(r);
            n++;
        }
    }
    int rc = sheet_new(b, size, out);
    if (rc < 0)
        return rc;
    char *texts = (char *)(out->records + n);
    while ((at = vow__table_next(&b->names, at)) != NULL) {
        struct vow__rec *r = VOW__OUTER(at, struct vow__rec, named);
        if (listed(b, r))
            texts = sheet_add(b, out, r, &r->name, texts);
    }
    return 0;
}

/* A result that is over or hidden is none; a lapsed lease is shown. */
static bool listed(const struct vow__book *b, const struct vow__rec *r)
{
    return r->state == VOW__REC_RUNNING ||
           vow__rec_says(b, r) == VOW_STATUS_SETTLED;
}

static size_t size_of(const struct vow__rec *r)
{
    size_t size = sizeof(vow_record);
    if (r != NULL && r->label != NULL)
        size += r->label->length + 1;
    if (r != NULL && r->runner != NULL)
        size += r->runner->length + 1;
    return size;
}

static int sheet_new(const struct vow__book *b, size_t size,
                     struct vow__sheet *out)
{
    vow_record *records = NULL;
    if (size > 0 && (records = vow__mem_new(&b->alloc, size)) == NULL)
        return VOW_ENOMEM;
    *out = (struct vow__sheet){.records = records, .size = size};
    return 0;
}

static char *sheet_add(const struct vow__book *b, struct vow__sheet *sheet,
                       const struct vow__rec *r, const vow_name *name,
                       char *texts)
{
    vow_record *out = &sheet->records[sheet->n++];
    uint32_t status = r == NULL ? VOW_STATUS_NONE : vow__rec_says(b, r);
    bool gone =
        r != NULL && r->state == VOW__REC_SETTLED && status == VOW_STATUS_NONE;
    vow__record_fill(b, gone ? NULL : r, status, name, out);
    if (r == NULL || gone)
        return texts;
    out->label = text_into(r->label, &texts);
    out->runner = text_into(r->runner, &texts);
    return texts;
}

static const char *text_into(const struct vow__text *t, char **texts)
{
    if (t == NULL)
        return "";
    char *at = *texts;
    memcpy(at, t->chars, t->length + 1);
    *texts += t->length + 1;
    return at;
}

/* ---- one ---------------------------------------------------------------- */

void vow__book_forget(const struct vow__step *s, const vow_name *name,
                      uint64_t epoch, struct vow__answer *out)
{
    struct vow__book *b = s->book;
    vow__book_begin(b, s->now_us);
    struct vow__rec *r = vow__rec_find(b, name);
    uint32_t status = r == NULL ? VOW_STATUS_NONE : vow__rec_says(b, r);
    bool over = status == VOW_STATUS_SETTLED || status == VOW_STATUS_DOUBT;
    if (over && (epoch == 0 || epoch == r->epoch)) {
        vow__rec_vanish(b, r);
        status = VOW_STATUS_NONE;
    }
    if (status == VOW_STATUS_NONE)
        r = NULL;
    vow__answer_fill(b, r, status, name, out);
}

void vow__book_cancel(const struct vow__step *s, const vow_name *name,
                      struct vow__answer *out)
{
    struct vow__book *b = s->book;
    vow__book_begin(b, s->now_us);
    struct vow__rec *r = vow__rec_find(b, name);
    uint32_t status = r == NULL ? VOW_STATUS_NONE : vow__rec_says(b, r);
    if (status == VOW_STATUS_WAITING) {
        r->canceled = true;
        if (r->owner != NULL)
            vow__letter_post(r->owner, &r->cancel, VOW__NEWS_CANCEL);
    }
    if (status == VOW_STATUS_NONE)
        r = NULL;
    vow__answer_fill(b, r, status, name, out);
}

/* ---- chunks ------------------------------------------------------------- */

int vow__book_write(const struct vow__step *s, const vow_hold *hold,
                    vow_bytes *chunk, struct vow__answer *out)
{
    struct vow__book *b = s->book;
    vow__book_begin(b, s->now_us);
    struct vow__rec *r = vow__rec_find(b, &hold->name);
    if (r == NULL || r->state != VOW__REC_RUNNING || r->epoch != hold->epoch ||
        !vow__token_same(&r->token, &hold->token)) {
        vow__answer_fill(b, NULL, VOW_STATUS_LOST, &hold->name, out);
        return 0;
    }
    struct vow__chunks *c = &r->chunks;
    if (vow_bytes_size(chunk) > b->value_max - c->bytes)
        return VOW_E2BIG;
    int rc = c->n < c->room ? 0 : chunks_grow(b, c);
    if (rc < 0)
        return rc;
    c->at[c->n++] = vow_bytes_ref(chunk);
    c->bytes += vow_bytes_size(chunk);
    vow__rec_tell(r, VOW__NEWS_CHUNKS);
    vow__answer_fill(b, NULL, VOW_STATUS_OWNED, &hold->name, out);
    out->record.epoch = r->epoch;
    return 0;
}

static int chunks_grow(struct vow__book *b, struct vow__chunks *c)
{
    size_t room = c->room == 0 ? CHUNKS_FIRST : 2 * c->room;
    vow_bytes **at = vow__mem_new(&b->alloc, room * sizeof(at[0]));
    if (at == NULL)
        return VOW_ENOMEM;
    if (c->n > 0)
        memcpy(at, c->at, c->n * sizeof(at[0]));
    vow__mem_free(&b->alloc, c->at, c->room * sizeof(at[0]));
    c->at = at;
    c->room = room;
    return 0;
}

int vow__book_read(const struct vow__step *s, const vow_name *name,
                   uint64_t epoch, uint64_t from, struct vow__page *out)
{
    vow__book_begin(s->book, s->now_us);
    struct vow__rec *r = vow__rec_find(s->book, name);
    if (r == NULL || r->state != VOW__REC_RUNNING || r->epoch != epoch)
        return VOW_ENOENT;
    out->n = 0;
    while (from < r->chunks.n && out->n < VOW__PAGE_MAX)
        out->chunks[out->n++] = vow_bytes_ref(r->chunks.at[from++]);
    out->next = from;
    return 0;
}

void vow__page_fini(struct vow__page *page)
{
    for (size_t i = 0; i < page->n; i++)
        vow_bytes_unref(page->chunks[i]);
    page->n = 0;
}
