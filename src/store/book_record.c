/* SPDX-License-Identifier: MIT */
/* book_record.c - the life of a record and of those who wait for it.
 *
 * HOW   A record is made by a claim, changed in place by takeovers and pulses,
 *       settled, and freed when its time is over or it is claimed anew. Who
 *       waits hangs on the record that runs. When it is settled for good, all
 *       that is left of a wait is its letter; when it is settled with ttl 0,
 *       the result is hidden behind its waits, for each to read.
 * INVARIANTS  B1 to B3 in book_internal.h
 */
#include "store/book_internal.h"

#include <string.h>

static uint32_t waiters(const struct vow__rec *r);
static uint64_t ms_since(const struct vow__book *b, uint64_t then_us);
static uint64_t ms_until(const struct vow__book *b, uint64_t then_us);
static const char *text_copy(const struct vow__text *t, char *chars);
static void leave_rec(struct vow__book *b, struct vow__wait *w);
static bool unwanted(const struct vow__book *b, const struct vow__rec *r);
static void wait_detach(struct vow__book *b, struct vow__wait *w);

struct vow__rec *vow__rec_find(struct vow__book *b, const vow_name *name)
{
    struct vow__table_node *n = vow__table_find(
        &b->names, (const char *)name->hash, sizeof(name->hash));
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__rec, named);
}

/* On failure it is freed. */
int vow__rec_add(struct vow__book *b, struct vow__rec *r)
{
    int rc = vow__table_add(&b->names, &r->named);
    r->found = rc == 0;
    if (rc < 0)
        vow__rec_free(b, r);
    return rc;
}

/* NULL without memory. RUNNING, of nobody, and not in the table. */
struct vow__rec *vow__rec_new(struct vow__book *b, const vow_name *name)
{
    struct vow__slab *slab;
    struct vow__rec *r = vow__slab_take(&b->rec_memory, &slab);
    if (r == NULL)
        return NULL;
    memset(r, 0, b->rec_memory.object_size);
    r->slab = slab;
    r->name = *name;
    r->named.name = (const char *)r->name.hash;
    r->named.length = sizeof(r->name.hash);
    r->by_end.seq = ++b->seq;
    return r;
}

/* Who waits for it is told at last, unless that was done. */
void vow__rec_free(struct vow__book *b, struct vow__rec *r)
{
    while (r->waits != NULL)
        wait_detach(b, VOW__OUTER(r->waits, struct vow__wait, in_rec));
    vow__rec_disown(b, r);
    if (r->ends)
        vow__heap_remove(&b->ends, &r->by_end);
    vow__rec_lose(b, r);
    vow_bytes_unref(r->value);
    vow__text_drop(b, r->label);
    vow__text_drop(b, r->runner);
    vow__slab_give(r->slab, r);
}

/* It is not found by its name any more. */
void vow__rec_lose(struct vow__book *b, struct vow__rec *r)
{
    if (!r->found)
        return;
    vow__table_remove(&b->names, &r->named);
    r->found = false;
}

/* It stops running, or another will run it: all that is of its owner goes. */
void vow__rec_disown(struct vow__book *b, struct vow__rec *r)
{
    struct vow__chunks *c = &r->chunks;
    if (r->state != VOW__REC_RUNNING)
        return;
    if (r->owner != NULL) {
        vow__letter_drop(r->owner, &r->cancel);
        vow__list_remove(&r->owner->owned, &r->in_owned);
        r->owner = NULL;
    }
    if (r->in_running.prev != NULL)
        vow__list_remove(&b->running, &r->in_running);
    for (size_t i = 0; i < c->n; i++)
        vow_bytes_unref(c->at[i]);
    vow__mem_free(&b->alloc, c->at, c->room * sizeof(c->at[0]));
    *c = (struct vow__chunks){.n = 0};
    r->canceled = false;
}

/* It runs, from now on and for so long. */
void vow__rec_renew(struct vow__book *b, struct vow__rec *r,
                    struct vow__inst *owner, uint64_t lease_ms)
{
    r->lease_us = vow__us_of_ms(lease_ms);
    r->pulse_us = b->now_us;
    r->end_us = vow__us_plus(b->now_us, r->lease_us);
    if (r->owner != owner) {
        VOW__ASSERT(r->cancel.kind == VOW__NEWS_NONE || r->owner != NULL);
        if (r->owner != NULL) {
            vow__letter_drop(r->owner, &r->cancel);
            vow__list_remove(&r->owner->owned, &r->in_owned);
        }
        r->owner = owner;
        vow__list_push(&owner->owned, &r->in_owned);
    }
    if (r->mode == VOW_ONCE)
        return; /* it never goes by itself */
    if (r->in_running.prev != NULL)
        vow__list_remove(&b->running, &r->in_running);
    vow__list_push(&b->running, &r->in_running);
}

uint32_t vow__rec_says(const struct vow__book *b, const struct vow__rec *r)
{
    if (r->state == VOW__REC_SETTLED)
        return r->hidden || r->end_us <= b->now_us ? VOW_STATUS_NONE
                                                   : VOW_STATUS_SETTLED;
    if (r->end_us > b->now_us)
        return VOW_STATUS_WAITING;
    return r->mode == VOW_ONCE ? VOW_STATUS_DOUBT : VOW_STATUS_NONE;
}

void vow__rec_tell(struct vow__rec *r, enum vow__news_kind kind)
{
    for (vow_link *l = r->waits; l != NULL; l = l->next) {
        struct vow__wait *w = VOW__OUTER(l, struct vow__wait, in_rec);
        if (kind == VOW__NEWS_RECORD || w->letter.kind == VOW__NEWS_NONE)
            vow__letter_post(w->key.inst, &w->letter, kind);
    }
}

void vow__rec_vanish(struct vow__book *b, struct vow__rec *r)
{
    vow__rec_tell(r, VOW__NEWS_RECORD);
    vow__rec_free(b, r);
}

/* ---- settling ----------------------------------------------------------- */

void vow__rec_settle(struct vow__book *b, struct vow__rec *r, vow_bytes *value,
                     bool failed, uint64_t ttl_us)
{
    vow__rec_disown(b, r);
    r->state = VOW__REC_SETTLED;
    r->failed = failed;
    r->value = vow_bytes_ref(value);
    r->since_us = b->now_us;
    r->pulse_us = b->now_us;
    r->hidden = ttl_us == 0;
    if (unwanted(b, r)) {
        vow__rec_free(b, r);
        return;
    }
    r->end_us = vow__us_plus(
        b->now_us, r->hidden ? vow__us_plus(b->floor_us, r->lease_us) : ttl_us);
    if (r->end_us != UINT64_MAX) {
        r->by_end.key = r->end_us;
        r->ends = true;
        vow__heap_insert(&b->ends, &r->by_end);
    }
    vow__rec_tell(r, VOW__NEWS_RECORD);
    while (!r->hidden && r->waits != NULL) /* keeps B3 */
        wait_detach(b, VOW__OUTER(r->waits, struct vow__wait, in_rec));
}

/* ---- who waits ---------------------------------------------------------- */

struct vow__wait *vow__wait_find(struct vow__book *b, struct vow__inst *inst,
                                 const vow_name *name)
{
    if (inst->waits == NULL)
        return NULL;
    struct vow__wait key;
    key.key.name = *name;
    key.key.inst = inst;
    struct vow__table_node *n =
        vow__table_find(&b->waits, (const char *)&key.key, sizeof(key.key));
    return n == NULL ? NULL : VOW__OUTER(n, struct vow__wait, named);
}

int vow__wait_add(struct vow__book *b, struct vow__inst *inst,
                  struct vow__rec *r, const vow_token *token)
{
    struct vow__slab *slab;
    struct vow__wait *w = vow__slab_take(&b->wait_memory, &slab);
    if (w == NULL)
        return VOW_ENOMEM;
    *w = (struct vow__wait){.slab = slab, .token = *token, .rec = r};
    w->key.name = r->name;
    w->key.inst = inst;
    w->named.name = (const char *)&w->key;
    w->named.length = sizeof(w->key);
    int rc = vow__table_add(&b->waits, &w->named);
    if (rc < 0) {
        vow__slab_give(slab, w);
        return rc;
    }
    vow__list_push(&inst->waits, &w->in_inst);
    vow__list_push(&r->waits, &w->in_rec);
    r->n_waits++;
    return 0;
}

/* It waits for this one now, or still: what it was told before is over. */
void vow__wait_again(struct vow__book *b, struct vow__wait *w,
                     struct vow__rec *r, const vow_token *token)
{
    w->token = *token;
    if (w->letter.kind == VOW__NEWS_RECORD)
        vow__letter_drop(w->key.inst, &w->letter);
    if (w->rec == r)
        return;
    w->read = false;
    leave_rec(b, w);
    w->rec = r;
    vow__list_push(&r->waits, &w->in_rec);
    r->n_waits++;
}

void vow__wait_free(struct vow__book *b, struct vow__wait *w)
{
    vow__letter_drop(w->key.inst, &w->letter);
    vow__list_remove(&w->key.inst->waits, &w->in_inst);
    vow__table_remove(&b->waits, &w->named);
    leave_rec(b, w);
    vow__slab_give(w->slab, w);
}

static void leave_rec(struct vow__book *b, struct vow__wait *w)
{
    struct vow__rec *r = w->rec;
    if (r == NULL)
        return;
    w->rec = NULL;
    vow__list_remove(&r->waits, &w->in_rec);
    r->n_waits--;
    if (unwanted(b, r))
        vow__rec_free(b, r);
}

/* A hidden result that nobody will ask for: it is not kept for an owner that
 * was lost and may come late, nor for steps that may come twice. */
static bool unwanted(const struct vow__book *b, const struct vow__rec *r)
{
    return r->hidden && r->waits == NULL &&
           (!r->found || (b->sure && !r->late));
}

/* Its record goes, or can be found by everybody: the letter is all that is
 * left of it. */
static void wait_detach(struct vow__book *b, struct vow__wait *w)
{
    struct vow__rec *r = w->rec;
    VOW__ASSERT(r != NULL);
    vow__list_remove(&r->waits, &w->in_rec);
    r->n_waits--;
    w->rec = NULL;
    if (w->letter.kind == VOW__NEWS_NONE)
        vow__wait_free(b, w);
}

/* ---- answers ------------------------------------------------------------ */

void vow__record_fill(const struct vow__book *b, const struct vow__rec *r,
                      uint32_t status, const vow_name *name, vow_record *out)
{
    out->name = *name; /* each by itself: quicker than zeros before */
    out->status = status;
    out->value = NULL;
    out->label = "";
    out->runner = "";
    out->mode = r == NULL ? VOW_SHARED : r->mode;
    out->epoch = r == NULL ? 0 : r->epoch;
    out->takeovers = r == NULL ? 0 : r->takeovers;
    out->waiters = r == NULL ? 0 : waiters(r);
    out->failed = r != NULL && r->failed;
    out->age_ms = r == NULL ? 0 : ms_since(b, r->since_us);
    out->pulse_ms = r == NULL ? 0 : ms_since(b, r->pulse_us);
    out->left_ms = r == NULL ? 0 : ms_until(b, r->end_us);
    out->cost_ms = r == NULL ? 0 : r->cost_ms;
}

static uint32_t waiters(const struct vow__rec *r)
{
    return r->state == VOW__REC_RUNNING ? r->n_waits : 0;
}

void vow__answer_fill(const struct vow__book *b, const struct vow__rec *r,
                      uint32_t status, const vow_name *name,
                      struct vow__answer *out)
{
    vow__record_fill(b, r, status, name, &out->record);
    if (r == NULL)
        return;
    out->record.label = text_copy(r->label, out->label);
    out->record.runner = text_copy(r->runner, out->runner);
    if (status == VOW_STATUS_SETTLED)
        out->record.value = vow_bytes_ref(r->value);
}

void vow__answer_fini(struct vow__answer *a)
{
    vow_bytes_unref(a->record.value);
    a->record.value = NULL;
}

static const char *text_copy(const struct vow__text *t, char *chars)
{
    if (t == NULL)
        return "";
    memcpy(chars, t->chars, t->length + 1);
    return chars;
}

static uint64_t ms_since(const struct vow__book *b, uint64_t then_us)
{
    return (b->now_us - then_us) / 1000;
}

/* Not too short: who looks again after that finds it over. */
static uint64_t ms_until(const struct vow__book *b, uint64_t then_us)
{
    if (then_us == UINT64_MAX)
        return UINT64_MAX;
    uint64_t us = then_us > b->now_us ? then_us - b->now_us : 0;
    return us / 1000 + (us % 1000 != 0);
}
