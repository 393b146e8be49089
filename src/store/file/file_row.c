/* SPDX-License-Identifier: MIT */
/* file_row.c - a record as a row.
 *
 * HOW   One statement reads a record, one writes it, and rows are small: the
 *       fewer pages, the fewer are written. What no statement looks for is one
 *       column, `body`: the token, numbers of one to ten bytes each, the texts
 *       and, beside a result, the refresher. A body may hold anything, as a
 *       damaged file does: only a body that keeps the invariants of rules.h
 *       becomes a record.
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <string.h>

enum { /* bits of FLAGS */
       ROW_CANCELED = 1,
       ROW_SPENT = 2,
       ROW_REFRESH = 4, /* a refresher follows the texts: token, REFRESH_...
                           and the runner */
       ROW_REFRESH_FAILED = 8,
       ROW_REFRESH_CANCELED = 16,
       ROW_LEFT = 32 /* see struct vow__file_row */
};
enum {
    STATE,
    FLAGS,
    MODE,
    TAKEOVERS,
    EPOCH,
    AGE, /* epoch less first */
    SINCE,
    END,
    LEASE,
    COST,
    CHUNKS,
    BYTES,
    LABEL,  /* bytes of the text */
    RUNNER, /* the same */
    NUMBERS
};
enum {
    REFRESH_EPOCH,
    REFRESH_SINCE,
    REFRESH_END,
    REFRESH_LEASE,
    REFRESH_RUNNER, /* bytes of the text */
    REFRESH_NUMBERS
};
enum { NUMBER_MAX = 10 };
enum {
    BODY_MAX = 2 * sizeof(vow_token) +
               (NUMBERS + REFRESH_NUMBERS) * NUMBER_MAX + 3 * VOW_LABEL_MAX
};

static void body_read_row(struct vow__file_body *b, struct vow__file_row *row);
static void body_read_refresh(struct vow__file_body *b, uint64_t flags,
                              struct vow__file_row *row);
static bool refresh_sound(const struct rules_record *r);
static size_t body_write_row(const struct vow__file_row *row,
                             unsigned char to[BODY_MAX]);

/* ---- bodies ------------------------------------------------------------- */

void vow__file_body_bytes(struct vow__file_body *b, void *to, size_t size)
{
    b->sound = b->sound && (size_t)(b->end - b->at) >= size;
    if (!b->sound)
        return;
    memcpy(to, b->at, size);
    b->at += size;
}

/* Seven bits to a byte, and the eighth where more follow. */
void vow__file_body_numbers(struct vow__file_body *b, uint64_t *n, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned shift = 0;
        unsigned char part = 128;
        n[i] = 0;
        for (; b->sound && part > 127; shift += 7) {
            b->sound = b->at < b->end && shift < 7 * NUMBER_MAX;
            if (!b->sound)
                return;
            part = *b->at++;
            n[i] |= (uint64_t)(part & 127) << shift;
        }
    }
}

void vow__file_body_text(struct vow__file_body *b, char *to, uint64_t size)
{
    b->sound = b->sound && size <= VOW_LABEL_MAX;
    if (!b->sound)
        return;
    vow__file_body_bytes(b, to, size);
    to[b->sound ? size : 0] = '\0';
}

int vow__file_row_read(sqlite3_stmt *q, int at, struct vow__file_row *row)
{
    const unsigned char *from = sqlite3_column_blob(q, at + 2);
    size_t size = (size_t)sqlite3_column_bytes(q, at + 2);
    row->record.state = RULES_NONE;
    if (from == NULL)
        return SQLITE_CORRUPT;
    struct vow__file_body b = {.at = from, .end = from + size, .sound = true};
    body_read_row(&b, row);
    if (!b.sound || b.at != b.end || !vow__file_record_sound(&row->record))
        return SQLITE_CORRUPT;
    row->owned = sqlite3_column_bytes(q, at) == FILE_ID;
    vow__file_bytes_read(q, at, row->inst, FILE_ID);
    vow__file_text_read(q, at + 1, row->file, sizeof(row->file));
    return 0;
}

static void body_read_row(struct vow__file_body *b, struct vow__file_row *row)
{
    struct rules_record *r = &row->record;
    uint64_t n[NUMBERS] = {0};
    vow__file_body_bytes(b, &r->token, sizeof(r->token));
    vow__file_body_numbers(b, n, NUMBERS);
    vow__file_body_text(b, row->label, n[LABEL]);
    vow__file_body_text(b, row->runner, n[RUNNER]);
    b->sound = b->sound && n[STATE] <= RULES_GAVE_UP && n[MODE] <= VOW_ONCE &&
               n[TAKEOVERS] <= UINT32_MAX && n[CHUNKS] <= UINT32_MAX &&
               n[AGE] <= n[EPOCH];
    r->state = (uint8_t)n[STATE];
    r->mode = (uint8_t)n[MODE];
    r->canceled = (n[FLAGS] & ROW_CANCELED) != 0;
    r->spent = (n[FLAGS] & ROW_SPENT) != 0;
    row->left = r->spent && (n[FLAGS] & ROW_LEFT) != 0;
    r->takeovers = (uint32_t)n[TAKEOVERS];
    r->chunks = (uint32_t)n[CHUNKS];
    r->epoch = n[EPOCH];
    r->first = n[EPOCH] - n[AGE];
    r->since_us = n[SINCE];
    r->end_us = n[END];
    r->lease_us = n[LEASE];
    r->cost_ms = n[COST];
    r->chunk_bytes = n[BYTES];
    r->refresh = (struct rules_refresh){.epoch = 0};
    row->refresher[0] = '\0';
    if (b->sound && (n[FLAGS] & ROW_REFRESH) != 0)
        body_read_refresh(b, n[FLAGS], row);
}

static void body_read_refresh(struct vow__file_body *b, uint64_t flags,
                              struct vow__file_row *row)
{
    struct rules_refresh *f = &row->record.refresh;
    uint64_t n[REFRESH_NUMBERS] = {0};
    vow__file_body_bytes(b, &f->token, sizeof(f->token));
    vow__file_body_numbers(b, n, REFRESH_NUMBERS);
    vow__file_body_text(b, row->refresher, n[REFRESH_RUNNER]);
    b->sound = b->sound && n[REFRESH_EPOCH] != 0;
    f->epoch = n[REFRESH_EPOCH];
    f->since_us = n[REFRESH_SINCE];
    f->end_us = n[REFRESH_END];
    f->lease_us = n[REFRESH_LEASE];
    f->failed = (flags & ROW_REFRESH_FAILED) != 0;
    f->canceled = (flags & ROW_REFRESH_CANCELED) != 0;
}

static bool token_given(const vow_token *token)
{
    static const vow_token none;
    return memcmp(token, &none, sizeof(none)) != 0;
}

/* R1 to R5 of rules.h. A time before which a difference is taken has room. */
bool vow__file_record_sound(const struct rules_record *r)
{
    bool runs = r->state == RULES_RUNNING;
    bool gave_up = r->state == RULES_GAVE_UP;
    if (r->state == RULES_NONE || r->epoch > RULES_EPOCH_MAX ||
        r->since_us > RULES_EPOCH_MAX)
        return false;
    if (runs ? !token_given(&r->token) || r->spent
             : r->canceled || r->chunks != 0 || r->chunk_bytes != 0)
        return false;
    if (gave_up && (token_given(&r->token) || r->spent))
        return false;
    return r->refresh.epoch == 0 || refresh_sound(r);
}

static bool refresh_sound(const struct rules_record *r)
{
    const struct rules_refresh *f = &r->refresh;
    return r->state == RULES_DONE && !r->spent && r->mode != VOW_ONCE &&
           f->epoch > r->epoch && f->epoch <= RULES_EPOCH_MAX &&
           f->since_us <= RULES_EPOCH_MAX && token_given(&f->token);
}

static unsigned char *put_bytes(unsigned char *at, const void *from,
                                size_t size)
{
    memcpy(at, from, size);
    return at + size;
}

unsigned char *vow__file_body_put(unsigned char *at, const uint64_t *n,
                                  size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t rest = n[i];
        for (; rest > 127; rest >>= 7)
            *at++ = (unsigned char)(rest | 128);
        *at++ = (unsigned char)rest;
    }
    return at;
}

/* Returns the size. */
static size_t body_write_row(const struct vow__file_row *row,
                             unsigned char to[BODY_MAX])
{
    const struct rules_record *r = &row->record;
    const struct rules_refresh *f = &r->refresh;
    unsigned flags = (r->canceled ? ROW_CANCELED : 0u) |
                     (r->spent ? ROW_SPENT : 0u) | (row->left ? ROW_LEFT : 0u) |
                     (f->epoch != 0 ? ROW_REFRESH : 0u) |
                     (f->failed ? ROW_REFRESH_FAILED : 0u) |
                     (f->canceled ? ROW_REFRESH_CANCELED : 0u);
    const uint64_t n[NUMBERS] = {
        [STATE] = r->state,
        [FLAGS] = flags,
        [MODE] = r->mode,
        [TAKEOVERS] = r->takeovers,
        [EPOCH] = r->epoch,
        [AGE] = r->epoch - r->first,
        [SINCE] = r->since_us,
        [END] = r->end_us,
        [LEASE] = r->lease_us,
        [COST] = r->cost_ms,
        [CHUNKS] = r->chunks,
        [BYTES] = r->chunk_bytes,
        [LABEL] = strlen(row->label),
        [RUNNER] = strlen(row->runner),
    };
    const uint64_t more[REFRESH_NUMBERS] = {[REFRESH_EPOCH] = f->epoch,
                                            [REFRESH_SINCE] = f->since_us,
                                            [REFRESH_END] = f->end_us,
                                            [REFRESH_LEASE] = f->lease_us,
                                            [REFRESH_RUNNER] =
                                                strlen(row->refresher)};
    unsigned char *at = put_bytes(to, &r->token, sizeof(r->token));
    at = vow__file_body_put(at, n, NUMBERS);
    at = put_bytes(at, row->label, n[LABEL]);
    at = put_bytes(at, row->runner, n[RUNNER]);
    if (f->epoch != 0) {
        at = put_bytes(at, &f->token, sizeof(f->token));
        at = vow__file_body_put(at, more, REFRESH_NUMBERS);
        at = put_bytes(at, row->refresher, more[REFRESH_RUNNER]);
    }
    return (size_t)(at - to);
}

/* ---- rows --------------------------------------------------------------- */

/* Reads the one row that the statement finds. */
static int row_select(struct vow__file *s, sqlite3_stmt *q,
                      const vow_name *name, struct vow__file_row *row)
{
    int rc;
    row->name = *name;
    row->record = (struct rules_record){.state = RULES_NONE};
    row->owned = false;
    row->left = false;
    row->label[0] = '\0';
    row->runner[0] = '\0';
    row->refresher[0] = '\0';
    row->file[0] = '\0';
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    if (vow__file_row(s, q, &rc)) {
        rc = vow__file_row_read(q, 0, row);
        (void)sqlite3_reset(q);
    }
    return rc;
}

int vow__file_row_find(struct vow__file *s, const vow_name *name,
                       struct vow__file_row *row)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT " FILE_ROW_COLUMNS " FROM rec WHERE h=?1");
    return row_select(s, q, name, row);
}

int vow__file_left_find(struct vow__file *s, const struct vow__file_row *of,
                        uint64_t first, struct vow__file_row *row)
{
    int rc = 0;
    if (of->left && of->record.first == first) {
        *row = *of;
    } else {
        sqlite3_stmt *q =
            vow__file_sql(s, "SELECT " FILE_ROW_COLUMNS
                             " FROM left_value WHERE h=?1 AND first=?2");
        vow__file_bind_int(q, 2, (int64_t)(first & INT64_MAX));
        rc = row_select(s, q, &of->name, row);
    }
    if (rc == 0 && row->record.end_us <= (uint64_t)s->now_us)
        row->record = (struct rules_record){.state = RULES_NONE};
    return rc;
}

static int64_t column_of_us(uint64_t us)
{
    return us > INT64_MAX ? FILE_FOREVER : (int64_t)us;
}

int vow__file_row_put(struct vow__file *s, const struct vow__file_row *row,
                      uint64_t keep_until_us,
                      const struct vow__file_value *value)
{
    unsigned char body[BODY_MAX];
    size_t size = body_write_row(row, body);
    sqlite3_stmt *q;
    if (value == NULL) {
        q = vow__file_sql(s, "UPDATE rec SET ends=?2,inst=?3,body=?4"
                             " WHERE h=?1");
    } else {
        q = vow__file_sql(s, "INSERT OR REPLACE INTO"
                             " rec(h,ends,inst,body,file,val)"
                             " VALUES(?1,?2,?3,?4,?5,?6)");
        vow__file_bind_text(q, 5, value->file);
        vow__file_value_bind(q, 6, value);
    }
    vow__file_bind(q, 1, row->name.hash, sizeof(row->name.hash));
    vow__file_bind_int(q, 2, column_of_us(keep_until_us));
    vow__file_bind(q, 3, row->inst, row->owned ? FILE_ID : 0);
    vow__file_bind(q, 4, body, size);
    return vow__file_do(s, q);
}

int vow__file_row_copy(struct vow__file *s, sqlite3_stmt *q,
                       const struct vow__file_row *row, uint64_t keep_until_us)
{
    unsigned char body[BODY_MAX];
    size_t size = body_write_row(row, body);
    vow__file_bind(q, 1, row->name.hash, sizeof(row->name.hash));
    vow__file_bind_int(q, 2, column_of_us(keep_until_us));
    vow__file_bind(q, 3, body, size);
    return vow__file_do(s, q);
}

int vow__file_row_delete(struct vow__file *s, const vow_name *name)
{
    sqlite3_stmt *q = vow__file_sql(s, "DELETE FROM rec WHERE h=?1");
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    return vow__file_do(s, q);
}

int vow__file_left_keep(struct vow__file *s, const struct vow__file_row *row)
{
    struct vow__file_row moved = *row;
    sqlite3_stmt *q =
        vow__file_sql(s, "INSERT OR REPLACE INTO"
                         " left_value(h,first,ends,inst,body,file,val)"
                         " SELECT h,?4,?2,x'',?3,file,val FROM rec WHERE h=?1");
    moved.left = false;
    vow__file_bind_int(q, 4, (int64_t)row->record.first);
    return vow__file_row_copy(s, q, &moved, row->record.end_us);
}

/* ---- the dead ----------------------------------------------------------- */

/* An instance that has left in order keeps its names for their leases. */
static bool left_in_order(struct vow__file *s, const unsigned char *id)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT 1 FROM parted WHERE inst=?1 AND ends>?2");
    int rc;
    vow__file_bind(q, 1, id, FILE_ID);
    vow__file_bind_int(q, 2, s->now_us);
    bool found = vow__file_row(s, q, &rc);
    if (found)
        (void)sqlite3_reset(q);
    return found;
}

/* An owner commits before it ends. So a record that was read before its owner
 * was found dead may lack the owner's last commit: the owner counts as alive,
 * and the step reads the record again. Nobody commits while we write. */
static bool owner_died(struct vow__file *s, const unsigned char *id)
{
    if (!vow__file_gone(s, id) || left_in_order(s, id))
        return false;
    bool known = s->phase == FILE_WRITES;
    for (size_t at = 0; at < s->dead.n && !known; at += FILE_ID)
        known = memcmp(s->dead.bytes + at, id, FILE_ID) == 0;
    if (known)
        return true;
    vow__buf_add(&s->dead, id, FILE_ID);
    s->reread |= s->dead.code == 0; /* else until the next look */
    return false;
}

void vow__file_row_bury(struct vow__file *s, struct vow__file_row *row,
                        const vow_token *token)
{
    struct rules_record *r = &row->record;
    const uint64_t now_us = (uint64_t)s->now_us;
    bool runs = r->state == RULES_RUNNING;
    bool refreshes = r->refresh.epoch != 0 && !r->refresh.failed;
    uint64_t *end_us = runs ? &r->end_us : &r->refresh.end_us;
    const vow_token *owner = runs ? &r->token : &r->refresh.token;
    if (!row->owned || !(runs || refreshes) || *end_us <= now_us ||
        (token != NULL && memcmp(owner, token, sizeof(*token)) == 0) ||
        !owner_died(s, row->inst))
        return;
    *end_us = now_us;
}

bool vow__file_row_promoted(const struct vow__file *s,
                            struct vow__file_row *row)
{
    const struct rules_record now =
        vow__rules_current(&row->record, (uint64_t)s->now_us);
    if (now.state == row->record.state)
        return false;
    memcpy(row->runner, row->refresher, sizeof(row->runner));
    return true;
}

/* ---- reading and telling ------------------------------------------------ */

void vow__file_text_read(sqlite3_stmt *q, int at, char *text, size_t room)
{
    const unsigned char *from = sqlite3_column_text(q, at);
    size_t size = from == NULL ? 0 : (size_t)sqlite3_column_bytes(q, at);
    if (size >= room)
        size = room - 1;
    if (size > 0)
        memcpy(text, from, size);
    text[size] = '\0';
}

/* A row may hold anything: what has not the right size reads as zeros. */
void vow__file_bytes_read(sqlite3_stmt *q, int at, void *bytes, size_t size)
{
    const void *from = sqlite3_column_blob(q, at);
    if (from != NULL && (size_t)sqlite3_column_bytes(q, at) == size)
        memcpy(bytes, from, size);
    else
        memset(bytes, 0, size);
}

int vow__file_name_read(sqlite3_stmt *q, int at, vow_name *name)
{
    if (sqlite3_column_bytes(q, at) != (int)sizeof(name->hash))
        return SQLITE_CORRUPT;
    vow__file_bytes_read(q, at, name->hash, sizeof(name->hash));
    return 0;
}

void vow__file_text_cut(char *to, const char *from)
{
    size_t size = from == NULL ? 0 : strnlen(from, VOW_LABEL_MAX);
    if (size > 0)
        memcpy(to, from, size);
    to[size] = '\0';
}

static uint64_t row_ms_since(const struct vow__file *s, uint64_t then_us)
{
    uint64_t now_us = (uint64_t)s->now_us;
    return now_us > then_us ? (now_us - then_us) / 1000 : 0;
}

vow_record vow__file_record(const struct vow__file *s,
                            const struct vow__file_row *row, uint32_t status)
{
    vow_record out = vow__file_record_of(s, &row->record, status);
    out.name = row->name;
    if (row->record.state != RULES_NONE) {
        out.label = row->label;
        out.runner = row->runner;
    }
    return out;
}

vow_record vow__file_record_of(const struct vow__file *s,
                               const struct rules_record *r, uint32_t status)
{
    const uint64_t now_us = (uint64_t)s->now_us;
    const bool runs = r->state == RULES_RUNNING;
    uint64_t left_us = r->end_us > now_us ? r->end_us - now_us : 0;
    uint64_t renewed_us = r->end_us > r->lease_us ? r->end_us - r->lease_us : 0;
    vow_record out = {.status = status, .label = "", .runner = ""};
    if (r->state == RULES_NONE)
        return out;
    if (runs && left_us > r->lease_us)
        left_us = r->lease_us; /* the clock was set back */
    out.mode = r->mode;
    out.epoch = r->epoch;
    out.first = r->first;
    out.takeovers = r->takeovers;
    out.failed = r->state == RULES_FAILED || r->state == RULES_GAVE_UP;
    out.age_ms = row_ms_since(s, r->since_us);
    out.pulse_ms = row_ms_since(s, runs ? renewed_us : r->since_us);
    /* Not too short: a caller that asks again after that finds the end. */
    out.left_ms =
        r->end_us == RULES_NEVER ? UINT64_MAX : (left_us + 999) / 1000;
    out.cost_ms = r->cost_ms;
    return out;
}

int64_t vow__file_us_of_ms(uint64_t ms)
{
    return ms > (uint64_t)(FILE_FOREVER / FILE_US_PER_MS)
               ? FILE_FOREVER
               : (int64_t)ms * FILE_US_PER_MS;
}

int64_t vow__file_after(const struct vow__file *s, int64_t span_us)
{
    return span_us > FILE_FOREVER - s->now_us ? FILE_FOREVER
                                              : s->now_us + span_us;
}
