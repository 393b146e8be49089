/* SPDX-License-Identifier: MIT */
/* etcd_record.c - the keys of a name, and the texts of their values.
 *
 * WHY   People read the values with etcdctl, processes of other versions read
 *       and write them, and other programs may write below the prefix: no text
 *       is trusted.
 * HOW   Lines of "word value"; an unknown word is passed over. Behind an empty
 *       line come the bytes of a result. The epoch of a claim is the revision of
 *       the write plus the offset in `e` (`plus`), because the writer cannot
 *       know the revision; each later write says the epoch.
 *       Earlier versions know no tombstones: a tombstone reads as a result with a
 *       time to live of 0 that is over. The words `first`, `least`, `mark`,
 *       `chunks`, `bytes`, `vacant` and `refresh-...` are new since.
 * INVARIANTS
 *   N1  a record that was read keeps R1 to R6 of rules.h
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_service.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum {
    LETTERS = VOW_NAME_TEXT - 1, /* of a name */
    KEY_LENGTH = 2 + LETTERS + 2 /* of "n/H/r" */
};
#define US_PER_MS UINT64_C(1000)

static const char *const STATES[] = {[RULES_NONE] = NULL,
                                     [RULES_RUNNING] = "runs",
                                     [RULES_DONE] = "done",
                                     [RULES_FAILED] = "failed",
                                     [RULES_GAVE_UP] = "gave-up"};
static const char *const MODES[] = {
    [VOW_SHARED] = "shared", [VOW_FENCED] = "fenced", [VOW_ONCE] = "once"};

/* All words of a record. Missing words are zeros. */
struct words {
    size_t state, mode;
    vow_token token, refresh_token;
    uint64_t epoch, plus, least, first, takeovers, lease_ms, ttl_ms, since_us,
        cost_ms, chunks, bytes, mark;
    uint64_t refresh_epoch, refresh_plus, refresh_least, refresh_since_us,
        refresh_lease_ms, refresh_until_us, refresh_mark;
    bool hidden, canceled, apart, elsewhere, vacant, refresh_canceled;
};

/* ---- keys ---------------------------------------------------------------- */

char vow__etcd_name_key(const char *key, vow_name *ret_name)
{
    char text[VOW_NAME_TEXT];
    if (strlen(key) != KEY_LENGTH || key[0] != 'n' || key[1] != '/' ||
        key[2 + LETTERS] != '/')
        return 0;
    memcpy(text, key + 2, LETTERS);
    text[LETTERS] = 0;
    return vow_name_parse(text, ret_name) ? key[KEY_LENGTH - 1] : 0;
}

static struct vow__key key_print(const char *kind, const vow_name *name,
                                 const char *before, uint64_t number,
                                 const char *behind)
{
    char rest[48];
    (void)snprintf(rest, sizeof(rest), "%s%" PRIu64 "%s", before, number,
                   behind);
    return vow__key(kind, name, rest);
}

struct vow__key vow__etcd_value_key(const vow_name *name, uint64_t epoch)
{
    return key_print("v", name, "/", epoch, "");
}

struct vow__key vow__etcd_left_key(const vow_name *name, uint64_t first)
{
    return key_print("v", name, "/g/", first, "");
}

struct vow__key vow__etcd_chunks_key(const vow_name *name, uint64_t epoch)
{
    return key_print("c", name, "/", epoch, "/");
}

struct vow__key vow__etcd_chunk_key(const vow_name *name, uint64_t epoch,
                                    uint64_t number)
{
    char rest[64];
    (void)snprintf(rest, sizeof(rest), "/%" PRIu64 "/%016" PRIx64, epoch,
                   number);
    return vow__key("c", name, rest);
}

/* ---- reading words ------------------------------------------------------- */

static bool choice_read(const struct vow__line *l, const char *const *choices,
                        size_t n, size_t *ret_choice)
{
    for (size_t i = 0; i < n; i++) {
        if (choices[i] == NULL || strlen(choices[i]) != l->n ||
            memcmp(choices[i], l->text, l->n) != 0)
            continue;
        *ret_choice = i;
        return true;
    }
    return false;
}

static bool token_read(const struct vow__line *l, vow_token *ret_token)
{
    size_t n;
    return sodium_hex2bin(ret_token->bytes, sizeof(ret_token->bytes), l->text,
                          l->n, NULL, &n, NULL) == 0 &&
           n == sizeof(ret_token->bytes);
}

/* Finds the number of a word. */
static uint64_t *number_of(struct words *w, const struct vow__line *l)
{
    const struct {
        const char *word;
        uint64_t *number;
    } numbers[] = {{"epoch", &w->epoch},
                   {"plus", &w->plus},
                   {"least", &w->least},
                   {"first", &w->first},
                   {"takeovers", &w->takeovers},
                   {"lease", &w->lease_ms},
                   {"ttl", &w->ttl_ms},
                   {"since", &w->since_us},
                   {"cost", &w->cost_ms},
                   {"chunks", &w->chunks},
                   {"bytes", &w->bytes},
                   {"mark", &w->mark},
                   {"refresh-epoch", &w->refresh_epoch},
                   {"refresh-plus", &w->refresh_plus},
                   {"refresh-least", &w->refresh_least},
                   {"refresh-since", &w->refresh_since_us},
                   {"refresh-lease", &w->refresh_lease_ms},
                   {"refresh-until", &w->refresh_until_us},
                   {"refresh-mark", &w->refresh_mark}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (vow__line_is(l, numbers[i].word))
            return numbers[i].number;
    return NULL;
}

static bool *flag_of(struct words *w, const struct vow__line *l)
{
    const struct {
        const char *word;
        bool *flag;
    } flags[] = {
        {"hidden", &w->hidden}, {"canceled", &w->canceled},
        {"apart", &w->apart},   {"elsewhere", &w->elsewhere},
        {"vacant", &w->vacant}, {"refresh-canceled", &w->refresh_canceled}};
    for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
        if (vow__line_is(l, flags[i].word))
            return flags[i].flag;
    return NULL;
}

static bool word_read(const struct vow__line *l, struct words *w,
                      struct vow__etcd_record *r)
{
    uint64_t *number = number_of(w, l);
    bool *flag = flag_of(w, l);
    if (number != NULL)
        return vow__line_number(l, number);
    if (flag != NULL)
        *flag = true;
    else if (vow__line_is(l, "state"))
        return choice_read(l, STATES, sizeof(STATES) / sizeof(STATES[0]),
                           &w->state);
    else if (vow__line_is(l, "mode"))
        return choice_read(l, MODES, sizeof(MODES) / sizeof(MODES[0]),
                           &w->mode);
    else if (vow__line_is(l, "token"))
        return token_read(l, &w->token);
    else if (vow__line_is(l, "refresh-token"))
        return token_read(l, &w->refresh_token);
    else if (vow__line_is(l, "label"))
        vow__line_text(l, r->label);
    else if (vow__line_is(l, "runner"))
        vow__line_text(l, r->runner);
    return true;
}

/* ---- from words to a record ---------------------------------------------- */

static uint64_t us_of(uint64_t ms)
{
    return ms > RULES_NEVER / US_PER_MS ? RULES_NEVER : ms * US_PER_MS;
}

static uint64_t sum_of(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static uint64_t epoch_of(uint64_t epoch, uint64_t mod, uint64_t plus,
                         uint64_t least)
{
    uint64_t number = epoch != 0 ? epoch : sum_of(mod, plus);
    if (epoch == 0 && number > RULES_EPOCH_MAX)
        number = RULES_EPOCH_MAX;
    return number > least ? number : least;
}

static bool is_zero_token(const vow_token *token)
{
    return sodium_is_zero(token->bytes, sizeof(token->bytes)) != 0;
}

static void refresh_take(const struct words *w, uint64_t mod,
                         struct rules_record *r)
{
    if (r->state != RULES_DONE || r->spent || r->mode == VOW_ONCE ||
        is_zero_token(&w->refresh_token))
        return;
    r->refresh = (struct rules_refresh){
        .token = w->refresh_token,
        .epoch =
            epoch_of(w->refresh_epoch, mod, w->refresh_plus, w->refresh_least),
        .since_us = w->refresh_since_us,
        .end_us = w->refresh_until_us,
        .lease_us = us_of(w->refresh_lease_ms),
        .failed = w->refresh_until_us != 0,
        .canceled = w->refresh_canceled};
    if (r->refresh.epoch <= r->epoch || r->refresh.epoch > RULES_EPOCH_MAX)
        r->refresh = (struct rules_refresh){.epoch = 0};
}

/* Keeps N1. Returns false for a record that cannot be. */
static bool words_take(const struct words *w, uint64_t mod,
                       struct rules_record *r)
{
    bool runs = w->state == RULES_RUNNING;
    *r = (struct rules_record){.state = RULES_NONE};
    if (w->vacant)
        return true;
    r->state = (uint8_t)w->state;
    r->mode = (uint8_t)w->mode;
    r->takeovers = (uint32_t)w->takeovers;
    r->token = w->token;
    r->epoch = epoch_of(w->epoch, mod, w->plus, w->least);
    r->first = w->first != 0 ? w->first : r->epoch;
    r->since_us = w->since_us;
    r->lease_us = us_of(w->lease_ms);
    r->cost_ms = w->cost_ms;
    r->canceled = runs && w->canceled;
    r->spent = !runs && w->state != RULES_GAVE_UP && w->hidden;
    if (!runs)
        r->end_us = sum_of(w->since_us, us_of(w->ttl_ms));
    if (runs) {
        r->chunks = (uint32_t)w->chunks;
        r->chunk_bytes = w->bytes;
    }
    if (w->state == RULES_GAVE_UP)
        r->token = (vow_token){.bytes = {0}};
    refresh_take(w, mod, r);
    return r->state != RULES_NONE && r->epoch != 0 &&
           r->epoch <= RULES_EPOCH_MAX && r->first <= r->epoch &&
           (w->takeovers | w->chunks) < UINT32_MAX &&
           (!runs || !is_zero_token(&r->token));
}

int vow__etcd_record_read(struct vow__etcd *e, const struct vow__kv *kv,
                          struct vow__etcd_record *ret_record)
{
    struct vow__lines rest = {kv->value, kv->size};
    struct words w = {.mark = 1, .refresh_mark = 1};
    struct vow__etcd_record r = {.apart = false};
    struct vow__line l;
    bool good = true;
    while (good && vow__line_take(&rest, &l))
        good = word_read(&l, &w, &r);
    good = good && words_take(&w, kv->mod, &r.record);
    if (!good) {
        vow__etcd_trouble(e, "the key %s%s in etcd is not one of ours",
                          vow__etcd_where_of(e)->prefix, kv->key);
        return VOW_EIO;
    }
    bool settled =
        r.record.state == RULES_DONE || r.record.state == RULES_FAILED;
    r.apart = settled && w.apart;
    r.elsewhere = settled && w.elsewhere;
    r.mark = r.record.state == RULES_RUNNING ? w.mark : 0;
    r.refresh_mark = r.record.refresh.epoch != 0 && !r.record.refresh.failed
                         ? w.refresh_mark
                         : 0;
    r.value = rest.at;
    r.size = settled && !r.apart ? rest.n : 0;
    *ret_record = r;
    return 0;
}

/* ---- writing ------------------------------------------------------------- */

static void token_write(const char *word, const vow_token *token,
                        struct vow__buf *value)
{
    char hex[2 * sizeof(token->bytes) + 1];
    (void)sodium_bin2hex(hex, sizeof(hex), token->bytes, sizeof(token->bytes));
    vow__buf_print(value, "%s %s\n", word, hex);
}

static void number_write(const char *word, uint64_t number,
                         struct vow__buf *value)
{
    if (number == UINT64_MAX)
        vow__buf_print(value, "%s never\n", word);
    else
        vow__buf_print(value, "%s %" PRIu64 "\n", word, number);
}

static void number_write_if(const char *word, uint64_t number,
                            struct vow__buf *value)
{
    if (number != 0)
        number_write(word, number, value);
}

static void flag_write(const char *word, bool flag, struct vow__buf *value)
{
    if (flag)
        vow__buf_print(value, "%s yes\n", word);
}

static uint64_t ms_of(uint64_t us)
{
    return us == RULES_NEVER ? UINT64_MAX : us / US_PER_MS;
}

/* As a result that is over, for readers of earlier versions. */
static void vacant_write(uint64_t now_us, struct vow__buf *value)
{
    const vow_token none = {.bytes = {0}};
    vow__buf_text(value, "state done\nmode shared\n");
    token_write("token", &none, value);
    vow__buf_print(value,
                   "epoch 1\ntakeovers 0\nlease 0\nsince %" PRIu64
                   "\nttl 1\ncost 0\nhidden yes\napart yes\nvacant yes\n",
                   now_us);
}

static void refresh_write(const struct vow__etcd_record *e, bool numbered,
                          uint64_t plus, struct vow__buf *value)
{
    const struct rules_refresh *f = &e->record.refresh;
    if (f->epoch == 0)
        return;
    token_write("refresh-token", &f->token, value);
    number_write(numbered ? "refresh-least" : "refresh-epoch", f->epoch, value);
    if (numbered)
        number_write_if("refresh-plus", plus, value);
    number_write("refresh-since", f->since_us, value);
    number_write("refresh-lease", ms_of(f->lease_us), value);
    if (f->failed)
        number_write("refresh-until", f->end_us, value);
    else
        number_write("refresh-mark", e->refresh_mark, value);
    flag_write("refresh-canceled", f->canceled, value);
}

static void epoch_write(const struct rules_record *r, bool numbered,
                        uint64_t plus, struct vow__buf *value)
{
    if (!numbered) {
        number_write("epoch", r->epoch, value);
    } else {
        number_write_if("plus", plus, value);
        number_write("least", r->epoch, value);
    }
    if (r->first != r->epoch)
        number_write("first", r->first, value);
}

void vow__etcd_record_write(const struct vow__etcd_record *e,
                            enum cas_number numbered, uint64_t plus,
                            struct vow__buf *value)
{
    const struct rules_record *r = &e->record;
    bool runs = r->state == RULES_RUNNING;
    if (r->state == RULES_NONE) {
        vacant_write(vow__etcd_wall_us(), value);
        return;
    }
    vow__buf_print(value, "state %s\nmode %s\n", STATES[r->state],
                   MODES[r->mode]);
    token_write("token", &r->token, value);
    epoch_write(r, numbered == CAS_NUMBER_OWNER, plus, value);
    number_write("takeovers", r->takeovers, value);
    number_write("lease", ms_of(r->lease_us), value);
    number_write("since", r->since_us, value);
    if (runs) {
        number_write("mark", e->mark, value);
        number_write_if("chunks", r->chunks, value);
        number_write_if("bytes", r->chunk_bytes, value);
    } else {
        number_write("ttl",
                     r->end_us == RULES_NEVER ? UINT64_MAX
                     : r->end_us <= r->since_us
                         ? 0
                         : ms_of(r->end_us - r->since_us),
                     value);
        number_write("cost", r->cost_ms, value);
    }
    vow__line_write(value, "label", e->label);
    vow__line_write(value, "runner", e->runner);
    flag_write("hidden", r->spent, value);
    flag_write("canceled", r->canceled, value);
    flag_write("apart", e->apart, value);
    flag_write("elsewhere", e->elsewhere, value);
    refresh_write(e, numbered == CAS_NUMBER_REFRESHER, plus, value);
    if (e->apart || e->size == 0)
        return;
    vow__buf_text(value, "\n");
    vow__buf_add(value, e->value, e->size);
}

/* ---- marks, chunks, the offset ------------------------------------------- */

bool vow__etcd_mark_read(const struct vow__kv *kv,
                         struct vow__etcd_mark *ret_mark)
{
    struct vow__lines rest = {kv->value, kv->size};
    struct vow__line l;
    bool good = true;
    *ret_mark = (struct vow__etcd_mark){.lease_ms = 0};
    while (good && vow__line_take(&rest, &l)) {
        if (vow__line_is(&l, "token"))
            good = token_read(&l, &ret_mark->token);
        else if (vow__line_is(&l, "lease"))
            good = vow__line_number(&l, &ret_mark->lease_ms);
    }
    return good;
}

void vow__etcd_mark_write(const struct vow__etcd_mark *m,
                          struct vow__buf *value)
{
    token_write("token", &m->token, value);
    number_write("lease", m->lease_ms, value);
}

bool vow__etcd_count_read(const struct vow__kv *kv, uint64_t *ret_chunks,
                          uint64_t *ret_bytes)
{
    struct vow__lines rest = {kv->value, kv->size};
    struct vow__line l;
    bool good = true;
    *ret_chunks = *ret_bytes = 0;
    while (good && vow__line_take(&rest, &l)) {
        if (vow__line_is(&l, "chunks"))
            good = vow__line_number(&l, ret_chunks);
        else if (vow__line_is(&l, "bytes"))
            good = vow__line_number(&l, ret_bytes);
    }
    return good && *ret_chunks < UINT32_MAX;
}

void vow__etcd_count_write(const struct rules_record *r, struct vow__buf *value)
{
    number_write("chunks", r->chunks, value);
    number_write("bytes", r->chunk_bytes, value);
}

bool vow__etcd_offset_read(const struct vow__kv *kv, uint64_t *ret_offset)
{
    struct vow__lines rest = {kv->value, kv->size};
    struct vow__line l;
    bool good = true;
    *ret_offset = 0;
    while (good && vow__line_take(&rest, &l))
        if (vow__line_is(&l, "plus"))
            good = vow__line_number(&l, ret_offset);
    return good && *ret_offset <= RULES_EPOCH_MAX;
}

void vow__etcd_offset_write(uint64_t offset, struct vow__buf *value)
{
    number_write("plus", offset, value);
}
