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

struct look {
    const vow_name *names; /* of peek */
    size_t n;
    struct vow__file_pile records; /* vow_record; texts are places in: */
    struct vow__file_pile texts;
};

static void answer(struct vow__file *s, vow__file_fn fn, struct look *l,
                   vow_records_fn done, void *user);
static int peek_step(struct vow__file *s, void *arg);
static int list_step(struct vow__file *s, void *arg);
static int count_living(struct vow__file *s, struct vow__file_rec *r);
static int add(struct vow__file *s, struct look *l,
               const struct vow__file_rec *r, uint32_t status);
static int add_text(struct vow__file *s, struct look *l, const char *text,
                    const char **ret_text);
static const char *found(const struct look *l, const char *place);

void vow__file_peek(vow_store *store, const vow_name *names, size_t n,
                    vow_records_fn done, void *user)
{
    struct look l = {.names = names, .n = n};
    answer(vow__file_of(store), peek_step, &l, done, user);
}

void vow__file_list(vow_store *store, vow_records_fn done, void *user)
{
    struct look l = {.n = 0};
    answer(vow__file_of(store), list_step, &l, done, user);
}

static void answer(struct vow__file *s, vow__file_fn fn, struct look *l,
                   vow_records_fn done, void *user)
{
    int code = vow__file_step(s, VOW__FILE_READ, fn, l);
    vow_record *at = (vow_record *)(void *)l->records.at;
    size_t n = l->records.size / sizeof(*at);
    for (size_t i = 0; i < n; i++) {
        at[i].label = found(l, at[i].label);
        at[i].runner = found(l, at[i].runner);
    }
    done(code, code == 0 ? at : NULL, code == 0 ? n : 0, user);
    vow__file_pile_free(s, &l->records);
    vow__file_pile_free(s, &l->texts);
}

static int peek_step(struct vow__file *s, void *arg)
{
    struct look *l = arg;
    struct vow__file_rec r;
    int rc = 0;
    l->records.size = 0;
    l->texts.size = 0;
    for (size_t i = 0; i < l->n && rc == 0; i++) {
        rc = vow__file_rec_find(s, &l->names[i], &r);
        if (rc != 0)
            break;
        uint32_t status = vow__file_rec_says(s, &r);
        if (r.state != FILE_RUNS && status == VOW_STATUS_NONE)
            r.there = false;
        if (r.there && r.state == FILE_RUNS)
            rc = vow__file_rec_count(s, &r);
        if (rc == 0)
            rc = add(s, l, &r, status);
    }
    return rc;
}

/* A result that is over or hidden is none; a lapsed lease is shown. */
static int list_step(struct vow__file *s, void *arg)
{
    struct look *l = arg;
    struct vow__file_rec r = {.waits = false};
    int rc;
    sqlite3_stmt *q = vow__file_sql(s, "SELECT r.h," FILE_REC_COLUMNS
                                       " FROM rec r ORDER BY r.h");
    l->records.size = 0;
    l->texts.size = 0;
    while (vow__file_row(s, q, &rc)) {
        vow__file_bytes_read(q, 0, r.name.hash, sizeof(r.name.hash));
        rc = vow__file_rec_read(q, 1, &r);
        uint32_t status = rc == 0 ? vow__file_rec_says(s, &r) : VOW_STATUS_NONE;
        if (rc == 0 && r.state != FILE_RUNS && status == VOW_STATUS_NONE)
            continue;
        if (rc == 0 && r.state == FILE_RUNS)
            rc = count_living(s, &r);
        if (rc == 0)
            rc = add(s, l, &r, status);
        if (rc != 0) {
            (void)sqlite3_reset(q);
            return rc;
        }
    }
    return rc;
}

/* A claim is told all who are registered; people, those who live. */
static int count_living(struct vow__file *s, struct vow__file_rec *r)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT inst FROM wait WHERE h=?1 AND epoch=0");
    int rc;
    r->waiters = 0;
    if (!r->waited)
        return 0;
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    while (vow__file_row(s, q, &rc)) {
        unsigned char id[FILE_ID];
        vow__file_bytes_read(q, 0, id, FILE_ID);
        r->waiters += !vow__file_gone(s, id);
    }
    return rc;
}

static int add(struct vow__file *s, struct look *l,
               const struct vow__file_rec *r, uint32_t status)
{
    vow_record out = vow__file_record(s, r, status);
    int rc = add_text(s, l, out.label, &out.label);
    if (rc == 0)
        rc = add_text(s, l, out.runner, &out.runner);
    if (rc < 0)
        return rc;
    void *at = vow__file_pile_add(s, &l->records, sizeof(out));
    if (at == NULL)
        return VOW_ENOMEM;
    memcpy(at, &out, sizeof(out));
    return 0;
}

/* As long as the pile may move, a text is its place there, from 1 on. */
static int add_text(struct vow__file *s, struct look *l, const char *text,
                    const char **ret_text)
{
    size_t size = strlen(text) + 1;
    *ret_text = NULL;
    if (size == 1)
        return 0;
    char *at = vow__file_pile_add(s, &l->texts, size);
    if (at == NULL)
        return VOW_ENOMEM;
    memcpy(at, text, size);
    *ret_text = (const char *)(uintptr_t)(at - l->texts.at + 1);
    return 0;
}

static const char *found(const struct look *l, const char *place)
{
    return place == NULL ? "" : l->texts.at + (uintptr_t)place - 1;
}
