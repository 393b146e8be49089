/* SPDX-License-Identifier: MIT */
/* file_look.c - looking at records, and changing nothing.
 *
 * HOW   One transaction that only reads: it waits for nobody, and nobody waits
 *       for it. Texts are gathered behind one another, and found again by
 *       their place when all of them are there.
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <string.h>

struct file_look {
    const vow_name *names; /* of peek */
    size_t n;
    struct vow__buf records; /* vow_record; texts are places in: */
    struct vow__buf texts;
};

static void answer(struct vow__file *s, vow__file_fn fn, struct file_look *l,
                   vow_records_fn done, void *user);
static int peek_step(struct vow__file *s, void *arg);
static int list_step(struct vow__file *s, void *arg);
static int count_living(struct vow__file *s, const vow_name *name,
                        uint32_t *ret_n);
static int look_add_row(struct vow__file *s, struct file_look *l,
                        struct vow__file_row *row, uint32_t waiters);
static int add_text(struct file_look *l, const char *text,
                    const char **ret_text);
static const char *found(const struct file_look *l, const char *place);

void vow__file_peek(vow_store *store, const vow_name *names, size_t n,
                    vow_records_fn done, void *user)
{
    struct file_look l = {.names = names, .n = n};
    answer(vow__file_of(store), peek_step, &l, done, user);
}

void vow__file_list(vow_store *store, vow_records_fn done, void *user)
{
    struct file_look l = {.n = 0};
    answer(vow__file_of(store), list_step, &l, done, user);
}

static void answer(struct vow__file *s, vow__file_fn fn, struct file_look *l,
                   vow_records_fn done, void *user)
{
    vow__buf_init(&l->records, &s->alloc, FILE_BUF_MAX);
    vow__buf_init(&l->texts, &s->alloc, FILE_BUF_MAX);
    int code = vow__file_step(s, VOW__FILE_READ, fn, l);
    vow_record *at = (vow_record *)(void *)l->records.bytes;
    size_t n = l->records.n / sizeof(*at);
    for (size_t i = 0; i < n; i++) {
        at[i].label = found(l, at[i].label);
        at[i].runner = found(l, at[i].runner);
    }
    done(code, code == 0 ? at : NULL, code == 0 ? n : 0, user);
    vow__buf_fini(&l->records);
    vow__buf_fini(&l->texts);
}

static bool row_runs(const struct vow__file *s, const struct vow__file_row *row)
{
    return vow__rules_current(&row->record, (uint64_t)s->now_us).state ==
           RULES_RUNNING;
}

static int peek_step(struct vow__file *s, void *arg)
{
    struct file_look *l = arg;
    struct vow__file_row row;
    int rc = 0;
    vow__buf_clear(&l->records);
    vow__buf_clear(&l->texts);
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        uint32_t waiters = 0;
        rc = vow__file_row_find(s, &l->names[i], &row);
        if (rc == 0 && row_runs(s, &row))
            rc = vow__file_waiters_count(s, &row.name, &waiters);
        if (rc == 0)
            rc = look_add_row(s, l, &row, waiters);
    }
    return rc;
}

/* A result that is over or spent is none; a lapsed lease is shown. */
static int list_step(struct vow__file *s, void *arg)
{
    struct file_look *l = arg;
    struct vow__file_row row;
    int rc;
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT h," FILE_ROW_COLUMNS " FROM rec ORDER BY h");
    vow__buf_clear(&l->records);
    vow__buf_clear(&l->texts);
    while (vow__file_row(s, q, &rc)) {
        uint32_t waiters = 0;
        vow__file_bytes_read(q, 0, row.name.hash, sizeof(row.name.hash));
        rc = vow__file_row_read(q, 1, &row);
        if (rc == 0 && !row_runs(s, &row) &&
            vow__rules_peek(&row.record, (uint64_t)s->now_us) ==
                VOW_STATUS_NONE)
            continue;
        if (rc == 0 && row_runs(s, &row))
            rc = count_living(s, &row.name, &waiters);
        if (rc == 0)
            rc = look_add_row(s, l, &row, waiters);
        if (rc != 0) {
            (void)sqlite3_reset(q);
            return rc;
        }
    }
    return rc;
}

/* A claim is told all registered instances; people, those that live. */
static int count_living(struct vow__file *s, const vow_name *name,
                        uint32_t *ret_n)
{
    sqlite3_stmt *q = vow__file_sql(s, "SELECT inst FROM wait WHERE h=?1");
    int rc;
    *ret_n = 0;
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    while (vow__file_row(s, q, &rc)) {
        unsigned char id[FILE_ID];
        vow__file_bytes_read(q, 0, id, FILE_ID);
        *ret_n += !vow__file_gone(s, id);
    }
    return rc;
}

/* Adds what a stranger finds. */
static int look_add_row(struct vow__file *s, struct file_look *l,
                        struct vow__file_row *row, uint32_t waiters)
{
    vow__file_row_bury(s, row, NULL);
    (void)vow__file_row_promoted(s, row);
    row->record = vow__rules_current(&row->record, (uint64_t)s->now_us);
    uint32_t status = vow__rules_peek(&row->record, (uint64_t)s->now_us);
    if (row->record.state != RULES_RUNNING && status == VOW_STATUS_NONE)
        row->record.state = RULES_NONE;
    vow_record out = vow__file_record(s, row, status);
    out.waiters = waiters;
    int rc = add_text(l, out.label, &out.label);
    if (rc == 0)
        rc = add_text(l, out.runner, &out.runner);
    if (rc < 0)
        return rc;
    vow__buf_add(&l->records, &out, sizeof(out));
    return l->records.code;
}

/* As long as the buffer may move, a text is its place there, from 1 on. */
static int add_text(struct file_look *l, const char *text,
                    const char **ret_text)
{
    size_t size = strlen(text) + 1;
    *ret_text = NULL;
    if (size == 1)
        return 0;
    *ret_text = (const char *)(uintptr_t)(l->texts.n + 1);
    vow__buf_add(&l->texts, text, size);
    return l->texts.code;
}

static const char *found(const struct file_look *l, const char *place)
{
    return place == NULL ? "" : l->texts.bytes + (uintptr_t)place - 1;
}
