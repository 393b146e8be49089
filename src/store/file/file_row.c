/* SPDX-License-Identifier: MIT */
/* file_row.c - a record as a row, who waits for it, and its numbers.
 *
 * HOW   One statement reads a record, one writes it, and rows are small: the
 *       fewer pages, the fewer are written.
 *       Epochs are the time since the boot, plus a base that was chosen when
 *       the file was made or first used after a boot, above all before: so
 *       they rise without a counter that every claim would have to write. For
 *       the next boot, the file holds a number that none has reached; it is
 *       moved on once in ten minutes. What was given elsewhere, and may be
 *       higher, moves the base.
 * INVARIANTS
 *   R1  an epoch is above all that the file has ever given for the name
 *   R2  a row of `wait` has epoch 0 only while the record runs
 *   R3  and then waited is set in the record
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

#include <string.h>

/* Numbers that are set aside for the time to come: ten minutes of them. */
#define RESERVE_US (INT64_C(600) * 1000 * 1000)

/* No epoch is above: there is room behind the largest that is believed. */
#define EPOCH_LIMIT ((int64_t)(FILE_EPOCH_MAX + FILE_EPOCH_MAX / 2))

/* What no statement looks for is one column, which costs less time and room:
 * the token, numbers of one to ten bytes each, and the texts behind them. */
enum { HIDDEN = 1, CANCELED = 2, WAITED = 4 }; /* flags */
enum {
    STATE,
    FLAGS,
    MODE,
    TAKEOVERS,
    EPOCH,
    SINCE,
    PULSE, /* after SINCE */
    LEASE,
    COST,
    CHUNKS,
    BYTES,
    LABEL,  /* bytes of the text */
    RUNNER, /* the same */
    NUMBERS
};
enum { NUMBER_MAX = 10 };
enum {
    BODY_MAX = sizeof(vow_token) + NUMBERS * NUMBER_MAX + 2 * VOW_LABEL_MAX
};

static int find_wait(struct vow__file *s, struct vow__file_rec *r);
static bool owner_died(struct vow__file *s, const unsigned char *id);
static int numbers(struct vow__file *s);
static bool numbers_sound(const uint64_t n[NUMBERS]);
static const unsigned char *numbers_read(const unsigned char *at,
                                         const unsigned char *end,
                                         uint64_t n[NUMBERS]);
static size_t pack(const struct vow__file_rec *r, unsigned char to[BODY_MAX]);

int vow__file_rec_find(struct vow__file *s, const vow_name *name,
                       struct vow__file_rec *r)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT " FILE_REC_COLUMNS " FROM rec r WHERE h=?1");
    int rc;
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    r->name = *name;
    r->there = false;
    r->waits = false;
    r->waiters = 0;
    if (vow__file_row(s, q, &rc)) {
        rc = vow__file_rec_read(q, 0, r);
        (void)sqlite3_reset(q);
    }
    return rc == 0 && s->waited ? find_wait(s, r) : rc;
}

static int find_wait(struct vow__file *s, struct vow__file_rec *r)
{
    sqlite3_stmt *q = vow__file_sql(s, "SELECT tok,epoch,read FROM wait"
                                       " WHERE h=?1 AND inst=?2");
    int rc;
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    vow__file_bind(q, 2, s->id, FILE_ID);
    if (!vow__file_row(s, q, &rc))
        return rc;
    r->waits = true;
    vow__file_bytes_read(q, 0, &r->wait_token, sizeof(r->wait_token));
    r->wait_epoch = sqlite3_column_int64(q, 1);
    r->wait_read = sqlite3_column_int(q, 2) != 0;
    (void)sqlite3_reset(q);
    return 0;
}

int vow__file_rec_read(sqlite3_stmt *q, int at, struct vow__file_rec *r)
{
    uint64_t n[NUMBERS];
    const unsigned char *from = sqlite3_column_blob(q, at + 3);
    size_t size = (size_t)sqlite3_column_bytes(q, at + 3);
    if (from == NULL || size < sizeof(r->token))
        return SQLITE_CORRUPT;
    const unsigned char *end = from + size;
    memcpy(&r->token, from, sizeof(r->token));
    from = numbers_read(from + sizeof(r->token), end, n);
    if (from == NULL || n[LABEL] > VOW_LABEL_MAX || n[RUNNER] > VOW_LABEL_MAX ||
        (uint64_t)(end - from) != n[LABEL] + n[RUNNER] || !numbers_sound(n))
        return SQLITE_CORRUPT;
    r->there = true;
    r->end_us = sqlite3_column_int64(q, at);
    r->owned = sqlite3_column_bytes(q, at + 1) == FILE_ID;
    vow__file_bytes_read(q, at + 1, r->inst, FILE_ID);
    vow__file_text_read(q, at + 2, r->file, sizeof(r->file));
    r->state = (uint8_t)n[STATE];
    r->hidden = (n[FLAGS] & HIDDEN) != 0;
    r->canceled = (n[FLAGS] & CANCELED) != 0;
    r->waited = (n[FLAGS] & WAITED) != 0;
    r->mode = (uint32_t)n[MODE];
    r->takeovers = (uint32_t)n[TAKEOVERS];
    r->epoch = (int64_t)n[EPOCH];
    r->since_us = (int64_t)n[SINCE];
    r->pulse_us = (int64_t)(n[SINCE] + n[PULSE]);
    r->lease_us = (int64_t)n[LEASE];
    r->cost_ms = (int64_t)n[COST];
    r->chunks = (int64_t)n[CHUNKS];
    r->bytes = (int64_t)n[BYTES];
    r->waiters = 0;
    memcpy(r->label, from, n[LABEL]);
    r->label[n[LABEL]] = '\0';
    memcpy(r->runner, from + n[LABEL], n[RUNNER]);
    r->runner[n[RUNNER]] = '\0';
    return 0;
}

/* Sums and differences of them have room. */
static bool numbers_sound(const uint64_t n[NUMBERS])
{
    bool sound = n[STATE] <= FILE_FAILED && n[EPOCH] <= (uint64_t)EPOCH_LIMIT &&
                 n[LEASE] <= (uint64_t)FILE_FOREVER;
    for (int i = SINCE; i <= BYTES; i++)
        sound = sound && (i == LEASE || n[i] <= FILE_EPOCH_MAX / 2);
    return sound;
}

/* Seven bits to a byte, and the eighth where more follow. NULL: no such
 * numbers. */
static const unsigned char *numbers_read(const unsigned char *at,
                                         const unsigned char *end,
                                         uint64_t n[NUMBERS])
{
    for (int i = 0; i < NUMBERS; i++) {
        unsigned shift = 0;
        n[i] = 0;
        do {
            if (at == end || shift >= 7 * NUMBER_MAX)
                return NULL;
            n[i] |= (uint64_t)(*at & 127) << (shift & 63);
            shift += 7;
        } while ((*at++ & 128) != 0);
    }
    return at;
}

/* Returns the size. */
static size_t pack(const struct vow__file_rec *r, unsigned char to[BODY_MAX])
{
    const uint64_t n[NUMBERS] = {
        [STATE] = r->state,
        [FLAGS] = (uint64_t)(r->hidden * HIDDEN | r->canceled * CANCELED |
                             r->waited * WAITED),
        [MODE] = r->mode,
        [TAKEOVERS] = r->takeovers,
        [EPOCH] = (uint64_t)r->epoch,
        [SINCE] = (uint64_t)r->since_us,
        [PULSE] = (uint64_t)(r->pulse_us - r->since_us),
        [LEASE] = (uint64_t)r->lease_us,
        [COST] = (uint64_t)r->cost_ms,
        [CHUNKS] = (uint64_t)r->chunks,
        [BYTES] = (uint64_t)r->bytes,
        [LABEL] = strlen(r->label),
        [RUNNER] = strlen(r->runner),
    };
    unsigned char *at = to + sizeof(r->token);
    memcpy(to, &r->token, sizeof(r->token));
    for (int i = 0; i < NUMBERS; i++) {
        uint64_t rest = n[i];
        for (; rest > 127; rest >>= 7)
            *at++ = (unsigned char)(rest | 128);
        *at++ = (unsigned char)rest;
    }
    memcpy(at, r->label, n[LABEL]);
    memcpy(at + n[LABEL], r->runner, n[RUNNER]);
    return (size_t)(at - to) + n[LABEL] + n[RUNNER];
}

int vow__file_rec_put(struct vow__file *s, const struct vow__file_rec *r,
                      const struct vow__file_value *value)
{
    unsigned char body[BODY_MAX];
    size_t size = pack(r, body);
    int st = r->state != FILE_RUNS ? 2 : r->mode == VOW_ONCE;
    sqlite3_stmt *q = vow__file_sql(s, "INSERT OR REPLACE INTO rec VALUES"
                                       "(?1,?2,?3,?4,?5,?6,?7)");
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    vow__file_bind_int(q, 2, st);
    vow__file_bind_int(q, 3, r->end_us);
    vow__file_bind(q, 4, r->inst, r->owned ? FILE_ID : 0);
    vow__file_bind_text(q, 5, value == NULL ? "" : value->file);
    vow__file_bind(q, 6, body, size);
    vow__file_value_bind(q, 7, value);
    return vow__file_do(s, q);
}

int vow__file_once_put(struct vow__file *s, const struct vow__file_rec *r,
                       const struct vow__file_value *value)
{
    unsigned char body[BODY_MAX];
    size_t size = pack(r, body);
    sqlite3_stmt *q = vow__file_sql(s, "INSERT OR REPLACE INTO once VALUES"
                                       "(?1,?2,?3,x'',?4,?5,?6)");
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    vow__file_bind_int(q, 2, r->epoch);
    vow__file_bind_int(q, 3, r->end_us);
    vow__file_bind_text(q, 4, value->file);
    vow__file_bind(q, 5, body, size);
    vow__file_value_bind(q, 6, value);
    return vow__file_do(s, q);
}

int vow__file_rec_renew(struct vow__file *s, struct vow__file_rec *r,
                        uint64_t lease_ms)
{
    r->pulse_us = s->now_us;
    r->lease_us = vow__file_us_of_ms(lease_ms);
    r->end_us = vow__file_after(s, r->lease_us);
    r->owned = true;
    memcpy(r->inst, s->id, FILE_ID);
    return vow__file_rec_put(s, r, NULL);
}

int vow__file_rec_clear(struct vow__file *s, const struct vow__file_rec *r)
{
    int rc = 0;
    if (r->there && r->file[0] != '\0')
        rc = vow__file_litter(s, r->file);
    if (rc != 0 || !r->there || r->chunks == 0)
        return rc;
    sqlite3_stmt *q = vow__file_sql(s, "DELETE FROM chunk WHERE h=?1");
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    return vow__file_do(s, q);
}

int vow__file_rec_delete(struct vow__file *s, const struct vow__file_rec *r)
{
    int rc = vow__file_rec_clear(s, r);
    if (rc != 0)
        return rc;
    sqlite3_stmt *q = vow__file_sql(s, "DELETE FROM rec WHERE h=?1");
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    return vow__file_do(s, q);
}

int vow__file_rec_count(struct vow__file *s, struct vow__file_rec *r)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT count(*) FROM wait WHERE h=?1 AND epoch=0");
    int rc;
    vow__file_bind(q, 1, r->name.hash, sizeof(r->name.hash));
    r->waiters = 0;
    if (!r->waited)
        return 0;
    if (vow__file_row(s, q, &rc)) {
        r->waiters = (uint32_t)sqlite3_column_int64(q, 0);
        (void)sqlite3_reset(q);
    }
    return rc;
}

uint32_t vow__file_rec_says(struct vow__file *s, const struct vow__file_rec *r)
{
    if (!r->there)
        return VOW_STATUS_NONE;
    bool over = r->end_us != FILE_FOREVER && r->end_us <= s->now_us;
    if (r->state != FILE_RUNS)
        return r->hidden || over ? VOW_STATUS_NONE : VOW_STATUS_SETTLED;
    if (!over && !(r->owned && owner_died(s, r->inst)))
        return VOW_STATUS_WAITING;
    return r->mode == VOW_ONCE ? VOW_STATUS_DOUBT : VOW_STATUS_NONE;
}

/* An owner commits before it ends. So a record that was read before its owner
 * was found dead may lack the owner's last commit: the owner counts as alive,
 * and the step reads the record again. Nobody commits while we write. */
static bool owner_died(struct vow__file *s, const unsigned char *id)
{
    if (!vow__file_gone(s, id))
        return false;
    bool known = s->phase == FILE_WRITES;
    for (size_t at = 0; at < s->dead.size && !known; at += FILE_ID)
        known = memcmp(s->dead.at + at, id, FILE_ID) == 0;
    if (known)
        return true;
    void *at = vow__file_pile_add(s, &s->dead, FILE_ID);
    if (at == NULL)
        return false; /* until the next look */
    memcpy(at, id, FILE_ID);
    s->reread = true;
    return false;
}

int vow__file_rec_wake(struct vow__file *s, const struct vow__file_rec *r,
                       int64_t epoch, size_t *ret_n)
{
    const vow_name *name = &r->name;
    int rc;
    *ret_n = 0;
    if (!r->waited) /* keeps R3 */
        return 0;
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT inst FROM wait WHERE h=?1 AND epoch=0");
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    while (vow__file_row(s, q, &rc)) {
        unsigned char id[FILE_ID];
        vow__file_bytes_read(q, 0, id, FILE_ID);
        vow__file_tell(s, id, FILE_RECORD, name->hash, sizeof(name->hash));
        ++*ret_n;
    }
    if (rc != 0 || *ret_n == 0)
        return rc;
    if (epoch == 0)
        q = vow__file_sql(s, "DELETE FROM wait WHERE h=?1 AND epoch=0");
    else
        q = vow__file_sql(s, "UPDATE wait SET epoch=?2 WHERE h=?1 AND epoch=0");
    vow__file_bind(q, 1, name->hash, sizeof(name->hash));
    if (epoch != 0)
        vow__file_bind_int(q, 2, epoch);
    return vow__file_do(s, q); /* keeps R2 */
}

/* ---- numbers ------------------------------------------------------------ */

int vow__file_epoch(struct vow__file *s, int64_t above, int64_t *ret_epoch)
{
    int rc = numbers(s);
    if (rc != 0)
        return rc;
    int64_t epoch = s->base + s->now_us;
    if (epoch <= above)
        epoch = above + 1; /* keeps R1 */
    *ret_epoch = epoch;
    return vow__file_epoch_seen(s, epoch);
}

/* What was read before may be too small by now, and never too large: that is
 * good enough to see that nothing has to be done. */
int vow__file_epoch_seen(struct vow__file *s, int64_t epoch)
{
    if (epoch <= s->base + s->now_us && epoch <= s->high)
        return 0;
    int rc = numbers(s);
    if (rc != 0 || (epoch <= s->base + s->now_us && epoch <= s->high))
        return rc;
    if (epoch > s->base + s->now_us)
        s->base = epoch - s->now_us;
    if (epoch + RESERVE_US > s->high)
        s->high = epoch + RESERVE_US;
    sqlite3_stmt *q = vow__file_sql(s, "UPDATE meta SET base=?1,high=?2");
    vow__file_bind_int(q, 1, s->base);
    vow__file_bind_int(q, 2, s->high);
    return vow__file_do(s, q);
}

int vow__file_epoch_count(struct vow__file *s)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "UPDATE meta SET high=high+1 RETURNING high");
    int rc;
    while (vow__file_row(s, q, &rc))
        s->high = sqlite3_column_int64(q, 0);
    return rc;
}

static int numbers(struct vow__file *s)
{
    sqlite3_stmt *q = vow__file_sql(s, "SELECT base,high FROM meta");
    int rc;
    if (!vow__file_row(s, q, &rc))
        return rc == 0 ? SQLITE_CORRUPT : rc;
    int64_t base = sqlite3_column_int64(q, 0);
    int64_t high = sqlite3_column_int64(q, 1);
    (void)sqlite3_reset(q);
    if (base < -EPOCH_LIMIT || base > EPOCH_LIMIT || high < 0 ||
        high > EPOCH_LIMIT)
        return SQLITE_CORRUPT;
    s->base = base;
    s->high = high;
    return 0;
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

vow_record vow__file_record(const struct vow__file *s,
                            const struct vow__file_rec *r, uint32_t status)
{
    vow_record out = {
        .name = r->name, .status = status, .label = "", .runner = ""};
    if (!r->there)
        return out;
    out.mode = r->mode;
    out.epoch = (uint64_t)r->epoch;
    out.takeovers = r->takeovers;
    out.waiters = r->waiters;
    out.failed = r->state == FILE_FAILED;
    out.age_ms = vow__file_ms_since(s, r->since_us);
    out.pulse_ms = vow__file_ms_since(s, r->pulse_us);
    out.left_ms = vow__file_ms_until(s, r->end_us);
    out.cost_ms = (uint64_t)r->cost_ms;
    out.label = r->label;
    out.runner = r->runner;
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

/* Not too short: who looks again after that finds it over. */
uint64_t vow__file_ms_until(const struct vow__file *s, int64_t then_us)
{
    if (then_us == FILE_FOREVER)
        return UINT64_MAX;
    int64_t us = then_us > s->now_us ? then_us - s->now_us : 0;
    return (uint64_t)((us + FILE_US_PER_MS - 1) / FILE_US_PER_MS);
}

uint64_t vow__file_ms_since(const struct vow__file *s, int64_t then_us)
{
    int64_t us = s->now_us > then_us ? s->now_us - then_us : 0;
    return (uint64_t)(us / FILE_US_PER_MS);
}
