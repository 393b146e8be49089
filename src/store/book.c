/* SPDX-License-Identifier: MIT */
/* book.c - what a store knows, and to whom it has something to tell.
 *
 * WHY   The rules of named work are the same for every store that keeps its
 *       own memory, and for tests that draw the order of steps from a seed. So
 *       they are a state machine: the time is an argument, nothing waits, and
 *       nobody is called but `wake`.
 * HOW   Each step is a function of book_claim.c, book_look.c or book_pool.c
 *       that is atomic under the wrapper's lock. Whom it concerns gets a
 *       letter, which lies inside the object it is about: posting needs no
 *       memory, and two of the same are one.
 *       What is over is thrown away by the steps that come later, a bounded
 *       number by each, and by vow__book_tidy().
 * INVARIANTS  B1 to B4 in book_internal.h
 * LIMITS  O(1) or O(log n) per step and name; wake-ups O(1) per who waits;
 *       counting a place's position anew O(queue), after one left from within.
 * THREADS  one at a time: the wrapper has the lock.
 */
#include "store/book_internal.h"

#include <string.h>

static void reap(struct vow__book *b);
static bool letter_read(const struct vow__step *s, vow_link *l,
                        struct vow__news *out);
static bool wait_read(const struct vow__step *s, struct vow__wait *w,
                      enum vow__news_kind kind, struct vow__news *out);

int vow__book_new(const struct vow__book_opts *opts,
                  struct vow__book **ret_book)
{
    struct vow__book *b = vow__mem_zero(&opts->alloc, sizeof(*b));
    if (b == NULL)
        return VOW_ENOMEM;
    b->alloc = opts->alloc;
    b->sure = opts->sure;
    b->floor_us = 2 * vow__us_of_ms(opts->recheck_ms);
    b->value_max = opts->value_max;
    vow__table_init_hashed(&b->names, &b->alloc, opts->seed);
    vow__table_init(&b->waits, &b->alloc, opts->seed + 1);
    vow__table_init_hashed(&b->pools, &b->alloc, opts->seed + 2);
    vow__table_init_hashed(&b->spots, &b->alloc, opts->seed + 3);
    vow__slab_init(&b->rec_memory, &b->alloc, b, sizeof(struct vow__rec),
                   opts->pooled);
    vow__slab_init(&b->wait_memory, &b->alloc, b, sizeof(struct vow__wait),
                   opts->pooled);
    vow__slab_init(&b->spot_memory, &b->alloc, b, sizeof(struct vow__spot),
                   opts->pooled);
    b->rec_memory.walked = false;
    b->wait_memory.walked = false;
    b->spot_memory.walked = false;
    *ret_book = b;
    return 0;
}

void vow__book_free(struct vow__book *b)
{
    struct vow__table_node *n;
    if (b == NULL)
        return;
    VOW__ASSERT(b->waits.count == 0);
    VOW__ASSERT(b->spots.count == 0);
    for (n = vow__table_next(&b->names, NULL); n != NULL;) {
        struct vow__rec *rec = VOW__OUTER(n, struct vow__rec, named);
        n = vow__table_next(&b->names, n);
        vow__rec_free(b, rec);
    }
    while ((n = vow__table_next(&b->pools, NULL)) != NULL)
        vow__lot_free(b, VOW__OUTER(n, struct vow__lot, named));
    vow__table_fini(&b->names);
    vow__table_fini(&b->waits);
    vow__table_fini(&b->pools);
    vow__table_fini(&b->spots);
    vow__slab_fini(&b->rec_memory);
    vow__slab_fini(&b->wait_memory);
    vow__slab_fini(&b->spot_memory);
    struct vow_alloc alloc = b->alloc;
    vow__mem_free(&alloc, b, sizeof(*b));
}

/* ---- instances ---------------------------------------------------------- */

int vow__book_join(struct vow__book *b, void (*wake)(void *user), void *user,
                   struct vow__inst **ret_inst)
{
    struct vow__inst *inst = vow__mem_zero(&b->alloc, sizeof(*inst));
    if (inst == NULL)
        return VOW_ENOMEM;
    inst->wake = wake;
    inst->user = user;
    *ret_inst = inst;
    return 0;
}

void vow__book_leave(struct vow__book *b, struct vow__inst *inst,
                     uint64_t now_us, bool dead)
{
    vow_link *l;
    vow__book_begin(b, now_us);
    while (inst->waits != NULL)
        vow__wait_free(b, VOW__OUTER(inst->waits, struct vow__wait, in_inst));
    while ((l = vow__list_take(&inst->owned)) != NULL) {
        struct vow__rec *r = VOW__OUTER(l, struct vow__rec, in_owned);
        vow__letter_drop(inst, &r->cancel);
        r->owner = NULL;
        if (dead && r->end_us > b->now_us) {
            r->end_us = b->now_us;
            vow__rec_tell(r, VOW__NEWS_RECORD);
        }
    }
    vow__spots_leave(b, inst);
    VOW__ASSERT(inst->mail == NULL);
    vow__text_drop(b, inst->runner);
    vow__mem_free(&b->alloc, inst, sizeof(*inst));
}

/* ---- time --------------------------------------------------------------- */

void vow__book_begin(struct vow__book *b, uint64_t now_us)
{
    if (now_us > b->now_us)
        b->now_us = now_us;
    if (VOW__UNLIKELY(b->ends != NULL || b->idle != NULL))
        reap(b);
    if (b->running != NULL) {
        struct vow__rec *r =
            VOW__OUTER(b->running, struct vow__rec, in_running);
        if (VOW__UNLIKELY(vow__us_plus(r->end_us, VOW__KEEP_US) <= b->now_us))
            vow__rec_vanish(b, r);
    }
}

static void reap(struct vow__book *b)
{
    for (int i = 0; i < VOW__REAP_MAX; i++) {
        if (b->ends == NULL || b->ends->key > b->now_us)
            break;
        vow__rec_free(b, VOW__OUTER(b->ends, struct vow__rec, by_end));
    }
    for (int i = 0; i < VOW__REAP_MAX; i++) {
        if (b->idle == NULL || b->idle->key > b->now_us)
            break;
        vow__lot_free(b, VOW__OUTER(b->idle, struct vow__lot, by_idle));
    }
}

uint64_t vow__book_tidy(struct vow__book *b, uint64_t now_us)
{
    vow__book_begin(b, now_us);
    bool soon = vow__slab_decay(&b->rec_memory);
    soon |= vow__slab_decay(&b->wait_memory);
    soon |= vow__slab_decay(&b->spot_memory);
    uint64_t next = soon ? b->now_us : UINT64_MAX;
    if (b->ends != NULL && b->ends->key < next)
        next = b->ends->key;
    if (b->idle != NULL && b->idle->key < next)
        next = b->idle->key;
    return next;
}

bool vow__book_untidy(const struct vow__book *b)
{
    return b->ends != NULL || b->idle != NULL || b->rec_memory.empties > 0 ||
           b->wait_memory.empties > 0 || b->spot_memory.empties > 0;
}

/* ---- texts -------------------------------------------------------------- */

int vow__text_make(struct vow__book *b, const char *chars,
                   struct vow__text **last, struct vow__text **ret_text)
{
    *ret_text = NULL;
    size_t length = chars == NULL ? 0 : strnlen(chars, VOW_LABEL_MAX + 1);
    if (length == 0)
        return 0;
    if (length > VOW_LABEL_MAX) { /* not within a character of UTF-8 */
        length = VOW_LABEL_MAX;
        while (length > 0 && ((unsigned char)chars[length] & 0xC0) == 0x80)
            length--;
    }
    struct vow__text *t = last == NULL ? NULL : *last;
    if (t == NULL || t->length != length ||
        memcmp(t->chars, chars, length) != 0) {
        t = vow__mem_new(&b->alloc, sizeof(*t) + length + 1);
        if (t == NULL)
            return VOW_ENOMEM;
        t->refs = 0;
        t->length = (uint32_t)length;
        memcpy(t->chars, chars, length);
        t->chars[length] = 0;
        if (last != NULL) {
            vow__text_drop(b, *last);
            *last = t;
            t->refs++;
        }
    }
    t->refs++;
    *ret_text = t;
    return 0;
}

void vow__text_drop(struct vow__book *b, struct vow__text *t)
{
    if (t == NULL || --t->refs > 0)
        return;
    vow__mem_free(&b->alloc, t, sizeof(*t) + t->length + 1);
}

/* ---- letters ------------------------------------------------------------ */

void vow__letter_post(struct vow__inst *inst, struct vow__letter *l,
                      enum vow__news_kind kind)
{
    bool posted = l->kind != VOW__NEWS_NONE;
    l->kind = (uint8_t)kind;
    if (posted)
        return;
    vow__list_push(&inst->mail, &l->link);
    inst->wake(inst->user);
}

void vow__letter_drop(struct vow__inst *inst, struct vow__letter *l)
{
    if (l->kind == VOW__NEWS_NONE)
        return;
    vow__list_remove(&inst->mail, &l->link);
    l->kind = VOW__NEWS_NONE;
}

bool vow__book_mail(const struct vow__step *s, struct vow__news *out)
{
    vow_link *l;
    vow__book_begin(s->book, s->now_us);
    while ((l = vow__list_take(&s->inst->mail)) != NULL)
        if (letter_read(s, l, out))
            return true;
    return false;
}

/* False: it has nothing to say any more. */
static bool letter_read(const struct vow__step *s, vow_link *l,
                        struct vow__news *out)
{
    struct vow__letter *letter = VOW__OUTER(l, struct vow__letter, link);
    enum vow__news_kind kind = letter->kind;
    letter->kind = VOW__NEWS_NONE;
    out->kind = kind;
    if (kind == VOW__NEWS_CANCEL) {
        struct vow__rec *r = VOW__OUTER(letter, struct vow__rec, cancel);
        vow__answer_fill(s->book, NULL, 0, &r->name, &out->answer);
        return true;
    }
    if (kind != VOW__NEWS_PLACE)
        return wait_read(s, VOW__OUTER(letter, struct vow__wait, letter), kind,
                         out);
    struct vow__spot *p = VOW__OUTER(letter, struct vow__spot, letter);
    out->token = p->key.token;
    if (p->state == VOW__SPOT_OUT)
        vow__spot_free(s->book, p);
    return true;
}

static bool wait_read(const struct vow__step *s, struct vow__wait *w,
                      enum vow__news_kind kind, struct vow__news *out)
{
    struct vow__book *b = s->book;
    struct vow__rec *r = w->rec;
    bool hidden = r != NULL && r->hidden;
    bool tell = !hidden || !w->read;
    if (r == NULL)
        r = vow__rec_find(b, &w->key.name);
    uint32_t status = hidden      ? VOW_STATUS_SETTLED
                      : r == NULL ? 0
                                  : vow__rec_says(b, r);
    if (status != VOW_STATUS_SETTLED || kind == VOW__NEWS_CHUNKS)
        vow__answer_fill(b, NULL, 0, &w->key.name, &out->answer);
    else if (tell)
        vow__answer_fill(b, r, status, &w->key.name, &out->answer);
    w->read |= hidden;
    if (w->rec == NULL || (hidden && b->sure))
        vow__wait_free(b, w);
    return tell;
}
