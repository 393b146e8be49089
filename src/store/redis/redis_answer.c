/* SPDX-License-Identifier: MIT */
/* redis_answer.c - records from the answers of a server.
 *
 * WHY   No text of a server is trusted: the text may come from another version,
 *       another program, or an attacker.
 * HOW   A record comes as a row of texts and numbers, see lua/claim.lua, with
 *       times of the server's clock and the server's time of the answer: the
 *       records made here have spans. A field of an unexpected kind or size is
 *       refused; texts for people are cut.
 * LIMITS  no allocation but for a value, after a check of the size.
 * THREADS  loop thread only.
 */
#include "base/bytes.h"
#include "base/failure.h"
#include "store/redis/redis_names.h"

#include <string.h>

/* Where a field is in a row. */
enum {
    ROW_STATE,
    ROW_MODE,
    ROW_EPOCH,
    ROW_FIRST,
    ROW_TAKEOVERS,
    ROW_SINCE,
    ROW_END,
    ROW_COST,
    ROW_LABEL,
    ROW_RUNNER,
    ROW_LEASE
};

static int state_of(const struct vow__resp *v);
static uint64_t ms_since(uint64_t now_us, uint64_t then_us);
static uint64_t ms_until(uint64_t now_us, uint64_t then_us);
static const char *text_of(const struct vow__resp *v, char *to);

int vow__redis_row(const struct vow__resp *row, uint64_t now_us,
                   struct vow__redis_texts *texts, vow_record *out)
{
    int state = state_of(vow__resp_at(row, ROW_STATE));
    uint64_t mode = vow__resp_uint(vow__resp_at(row, ROW_MODE), 0);
    uint64_t epoch = vow__resp_uint(vow__resp_at(row, ROW_EPOCH), 0);
    uint64_t takeovers = vow__resp_uint(vow__resp_at(row, ROW_TAKEOVERS), 0);
    uint64_t ends = vow__resp_uint(vow__resp_at(row, ROW_END), 0);
    uint64_t cost = vow__resp_uint(vow__resp_at(row, ROW_COST), 0);
    uint64_t first = vow__resp_uint(vow__resp_at(row, ROW_FIRST), epoch);
    uint64_t since = vow__resp_uint(vow__resp_at(row, ROW_SINCE), now_us);
    uint64_t lease = vow__resp_uint(vow__resp_at(row, ROW_LEASE), 0);
    if (state < 0 || epoch == 0 || epoch > VOW__REDIS_NUMBER_MAX ||
        mode > VOW_ONCE || takeovers > UINT32_MAX || lease > VOW__REDIS_MS_MAX)
        return VOW_EIO;
    bool runs = state == VOW__STATE_RUNS;
    out->mode = (uint32_t)mode;
    out->epoch = epoch;
    out->first = first;
    out->takeovers = (uint32_t)takeovers;
    out->failed = state == VOW__STATE_FAILED || state == VOW__STATE_GAVE_UP;
    out->age_ms = ms_since(now_us, since);
    out->pulse_ms = runs && ends >= lease * 1000
                        ? ms_since(now_us, ends - lease * 1000)
                        : out->age_ms;
    out->left_ms = ms_until(now_us, ends);
    if (runs && out->left_ms > lease) /* the clock was set back */
        out->left_ms = lease;
    out->cost_ms = cost;
    out->label = "";
    out->runner = "";
    if (texts == NULL)
        return state;
    out->label = text_of(vow__resp_at(row, ROW_LABEL), texts->label);
    out->runner = text_of(vow__resp_at(row, ROW_RUNNER), texts->runner);
    return state;
}

static int state_of(const struct vow__resp *v)
{
    if (v->kind != VOW__RESP_TEXT || v->n != 1 ||
        memchr("RDEG", v->text[0], 4) == NULL)
        return VOW_EIO;
    return v->text[0];
}

static uint64_t ms_since(uint64_t now_us, uint64_t then_us)
{
    return then_us < now_us ? (now_us - then_us) / 1000 : 0;
}

/* Not too short: who looks again after that finds it over. */
static uint64_t ms_until(uint64_t now_us, uint64_t then_us)
{
    if (then_us >= VOW__REDIS_NUMBER_MAX)
        return UINT64_MAX;
    return then_us > now_us ? (then_us - now_us + 999) / 1000 : 0;
}

/* ---- texts -------------------------------------------------------------- */

static const char *text_of(const struct vow__resp *v, char *to)
{
    if (v->kind != VOW__RESP_TEXT)
        return "";
    vow__redis_text_copy(to, VOW_LABEL_MAX + 1, v->text, v->n);
    return to;
}

void vow__redis_text_copy(char *to, size_t room, const char *from, size_t n)
{
    size_t length = strnlen(from, n < room ? n : room - 1);
    memcpy(to, from, length);
    to[length] = 0;
}

size_t vow__redis_text_size(const char *text)
{
    size_t n = text == NULL ? 0 : strnlen(text, VOW_LABEL_MAX + 1);
    if (n <= VOW_LABEL_MAX)
        return n;
    for (n = VOW_LABEL_MAX; n > 0; n--)
        if (((unsigned char)text[n] & 0xC0) != 0x80)
            break;
    return n;
}

/* ---- values ------------------------------------------------------------- */

int vow__redis_value(struct vow__redis *r, const vow_record *of, int state,
                     const struct vow__resp *value, vow_bytes **ret_value)
{
    const struct vow__redis_where *w = vow__redis_where_of(r);
    char name[VOW_NAME_TEXT];
    if (state == VOW__STATE_GAVE_UP)
        return vow__failure_make(vow__redis_alloc(r), VOW_EGAVEUP, NULL,
                                 ret_value);
    size_t most = w->value_max + (w->sealed ? VOW__SEAL_MORE : 0);
    if (value->kind != VOW__RESP_TEXT || value->n > most) {
        vow__redis_trouble(
            r,
            "the result of %s in the store is missing, or larger "
            "than what is taken",
            vow_name_text(&of->name, name));
        return VOW_ESTORE;
    }
    const struct vow__seal_of what = {
        &of->name, of->epoch, of->failed ? VOW__PART_FAILED : VOW__PART_DONE};
    int rc = vow__redis_unseal(r, &what, value->text, value->n, ret_value);
    if (rc != VOW_EIO && rc != VOW_ENOENT)
        return rc;
    vow__redis_trouble(
        r, "the result of %s in the store %s", vow_name_text(&of->name, name),
        rc == VOW_EIO
            ? "cannot be opened: it was sealed with another key, or changed"
            : "is over: it was sealed longer ago than its time to live, or by "
              "an older version");
    return rc == VOW_EIO ? VOW_ESTORE : rc;
}
