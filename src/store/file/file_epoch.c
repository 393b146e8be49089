/* SPDX-License-Identifier: MIT */
/* file_epoch.c - the numbers of claims and grants.
 *
 * HOW   Epochs are the time since the boot, plus a base that was chosen when
 *       the file was made or first used after a boot, above all epochs before:
 *       so epochs rise without a counter that every claim would have to write.
 *       For the next boot the file holds `high`, a number that no epoch has
 *       reached; `high` is raised once in ten minutes, and is then on the disk
 *       before the step is answered. An epoch that was granted elsewhere, and
 *       may be larger, raises the base.
 * INVARIANTS
 *   E1  an epoch is above all epochs that the file has granted for the name
 *   E2  no epoch is above `high`
 * THREADS  loop thread only.
 */
#include "store/file/file_rows.h"

/* No epoch is above: there is room behind the largest that the rules grant. */
#define EPOCH_LIMIT ((int64_t)(RULES_EPOCH_MAX + RULES_EPOCH_MAX / 2))

int vow__file_epoch_load(struct vow__file *s)
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

uint64_t vow__file_epoch_number(const struct vow__file *s)
{
    int64_t number = s->base + s->now_us;
    return number > 0 ? (uint64_t)number : 0;
}

/* The numbers that were read before may be too small by now, and are never too
 * large: that is good enough to see that nothing has to be done. */
int vow__file_epoch_seen(struct vow__file *s, uint64_t seen)
{
    int64_t epoch = (int64_t)seen;
    if (epoch < 0 || epoch > EPOCH_LIMIT)
        return SQLITE_CORRUPT;
    if (epoch <= s->base + s->now_us && epoch <= s->high)
        return 0;
    int rc = vow__file_epoch_load(s);
    if (rc != 0 || (epoch <= s->base + s->now_us && epoch <= s->high))
        return rc;
    if (epoch > s->base + s->now_us)
        s->base = epoch - s->now_us; /* keeps E1 */
    if (epoch > s->high) {
        s->high = epoch + FILE_EPOCHS_AHEAD; /* keeps E2 */
        s->firm = true;
    }
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
