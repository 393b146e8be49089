/* SPDX-License-Identifier: MIT */
/* cas_list.c - peek, list and the chunks of a run: reads that change nothing.
 * THREADS  the thread of the loop. */
#include "store/cas/cas_internal.h"

enum { LIST_PAGE = 64, CHUNKS_PAGE = 64 };

struct cas_look {
    struct cas_step step;
    vow_name *names; /* of peek; NULL: list */
    size_t n;
    struct cas_found *found;
    vow_record *records;
    size_t room; /* of `found` and `records` */
};

static struct cas_look *look_of(struct cas_step *step)
{
    return VOW__OUTER(step, struct cas_look, step);
}

/* ---- peek and list ------------------------------------------------------- */

static int look_grow(struct cas_look *k, size_t room)
{
    const struct vow_alloc *a = &k->step.cas->alloc;
    struct cas_found *found = vow__mem_zero(a, room * sizeof(found[0]));
    vow_record *records = vow__mem_zero(a, room * sizeof(records[0]));
    if (found == NULL || records == NULL) {
        vow__mem_free(a, found, room * sizeof(found[0]));
        vow__mem_free(a, records, room * sizeof(records[0]));
        return VOW_ENOMEM;
    }
    for (size_t i = 0; i < k->n; i++)
        found[i] = k->found[i];
    vow__mem_free(a, k->found, k->room * sizeof(found[0]));
    vow__mem_free(a, k->records, k->room * sizeof(records[0]));
    k->found = found;
    k->records = records;
    k->room = room;
    return 0;
}

static int peek_run(struct cas_step *step)
{
    struct cas_look *k = look_of(step);
    struct cas_service *service = step->cas->service;
    const struct cas_read read = {
        .names = k->names, .n = k->n, .due_ns = step->due_ns};
    int rc = k->n == 0 ? 0 : service->ops->read(service, &read, k->found);
    for (size_t i = 0; rc == 0 && i < k->n; i++)
        k->records[i] = vow__cas_found_answer(&k->found[i]);
    return rc;
}

static int list_run(struct cas_step *step)
{
    struct cas_look *k = look_of(step);
    struct cas_service *service = step->cas->service;
    vow_name after = {.hash = {0}};
    size_t got = LIST_PAGE;
    size_t kept = 0;
    int rc = 0;
    while (rc == 0 && got == LIST_PAGE) {
        if (k->room - k->n < LIST_PAGE)
            rc = look_grow(k, 2 * k->room + LIST_PAGE);
        if (rc == 0)
            rc = service->ops->list(service, &after, step->due_ns,
                                    k->found + k->n, LIST_PAGE, &got);
        if (rc == 0 && got > 0)
            after = k->found[k->n + got - 1].name;
        k->n += rc == 0 ? got : 0;
    }
    for (size_t i = 0; rc == 0 && i < k->n; i++) {
        k->records[kept] = vow__cas_found_answer(&k->found[i]);
        kept += k->records[kept].status != VOW_STATUS_NONE;
    }
    k->n = kept;
    return rc;
}

static void look_answer(struct cas_step *step, int code)
{
    const struct cas_look *k = look_of(step);
    step->done.records(code, code == 0 ? k->records : NULL,
                       code == 0 ? k->n : 0, step->user);
}

static void look_fini(struct cas_step *step)
{
    struct cas_look *k = look_of(step);
    const struct vow_alloc *a = &step->cas->alloc;
    vow__mem_free(a, k->found, k->room * sizeof(k->found[0]));
    vow__mem_free(a, k->records, k->room * sizeof(k->records[0]));
    vow__mem_free(a, k->names, k->room * sizeof(k->names[0]));
}

static const struct cas_step_ops peek_ops = {.size = sizeof(struct cas_look),
                                             .run = peek_run,
                                             .answer = look_answer,
                                             .fini = look_fini};
static const struct cas_step_ops list_ops = {.size = sizeof(struct cas_look),
                                             .run = list_run,
                                             .answer = look_answer,
                                             .fini = look_fini};

static struct cas_step *look_new(struct cas *s, const struct cas_step_ops *ops,
                                 vow_records_fn done, void *user)
{
    struct cas_step *step = NULL;
    if (!s->closing)
        step = vow__cas_step_new(s, ops, CAS_ASK, NULL);
    if (step == NULL) {
        done(s->closing ? VOW_ECLOSED : VOW_ENOMEM, NULL, 0, user);
        return NULL;
    }
    step->done.records = done;
    step->user = user;
    return step;
}

void vow__cas_peek(vow_store *store, const vow_name *names, size_t n,
                   vow_records_fn done, void *user)
{
    struct cas *s = vow__cas_of(store);
    struct cas_step *step = look_new(s, &peek_ops, done, user);
    if (step == NULL)
        return;
    struct cas_look *k = look_of(step);
    int rc = n == 0 ? 0 : look_grow(k, n);
    if (rc == 0 && n > 0) {
        k->names = vow__mem_new(&s->alloc, n * sizeof(names[0]));
        rc = k->names == NULL ? VOW_ENOMEM : 0;
    }
    for (size_t i = 0; rc == 0 && i < n; i++)
        k->names[i] = names[i];
    k->n = n;
    vow__cas_step_start_with(step, rc);
}

void vow__cas_list(vow_store *store, vow_records_fn done, void *user)
{
    struct cas_step *step = look_new(vow__cas_of(store), &list_ops, done, user);
    if (step != NULL)
        vow__cas_step_start(step);
}

/* ---- chunks -------------------------------------------------------------- */

struct cas_chunks {
    struct cas_step step;
    vow_name name;
    uint64_t epoch, from;
    vow_bytes *chunks[CHUNKS_PAGE];
    size_t n;
};

static struct cas_chunks *chunks_of(struct cas_step *step)
{
    return VOW__OUTER(step, struct cas_chunks, step);
}

/* Chunks belong to a run: with the run, they are over. */
static int chunks_run(struct cas_step *step)
{
    struct cas_chunks *k = chunks_of(step);
    struct cas_service *service = step->cas->service;
    struct cas_found found = {.version = 0};
    int rc =
        service->ops->chunks(service, &k->name, k->epoch, k->from, step->due_ns,
                             &found, k->chunks, CHUNKS_PAGE, &k->n);
    const struct rules_record stored = vow__cas_record(&found, found.now_us);
    const struct rules_record r = vow__rules_current(&stored, found.now_us);
    if (rc == 0 && (r.state != RULES_RUNNING || r.epoch != k->epoch))
        rc = VOW_ENOENT;
    return rc;
}

static void chunks_answer(struct cas_step *step, int code)
{
    const struct cas_chunks *k = chunks_of(step);
    if (code < 0)
        step->done.chunks(code, NULL, 0, 0, step->user);
    else
        step->done.chunks(0, k->chunks, k->n, k->from + k->n, step->user);
}

static void chunks_fini(struct cas_step *step)
{
    struct cas_chunks *k = chunks_of(step);
    for (size_t i = 0; i < k->n; i++)
        vow_bytes_unref(k->chunks[i]);
}

static const struct cas_step_ops chunks_ops = {.size =
                                                   sizeof(struct cas_chunks),
                                               .run = chunks_run,
                                               .answer = chunks_answer,
                                               .fini = chunks_fini};

void vow__cas_read(vow_store *store, const vow_name *name, uint64_t epoch,
                   uint64_t from, vow_chunks_fn done, void *user)
{
    struct cas *s = vow__cas_of(store);
    struct cas_step *step = NULL;
    if (!s->closing)
        step = vow__cas_step_new(s, &chunks_ops, CAS_ASK, NULL);
    if (step == NULL) {
        done(s->closing ? VOW_ECLOSED : VOW_ENOMEM, NULL, 0, 0, user);
        return;
    }
    struct cas_chunks *k = chunks_of(step);
    step->done.chunks = done;
    step->user = user;
    k->name = *name;
    k->epoch = epoch;
    k->from = from;
    vow__cas_step_start(step);
}
