/* SPDX-License-Identifier: MIT */
/* etcd_name.c - what is known of a name: from keys, and to keys.
 *
 * WHY   A record in etcd is read by people with etcdctl, by other versions of
 *       this library, and by all who share the prefix: nothing in it is taken
 *       for granted.
 * HOW   Lines of "word value" (etcd_line.c). A word that is not known is passed
 *       over. Behind an empty line come the bytes of a result.
 *       The epoch of a claim is the revision that wrote it and what the key `e`
 *       said then, which the record says as `plus`: the writer cannot know the
 *       revision. Whoever writes the record again says the epoch.
 * INVARIANTS
 *   N1  what is read has a state, a mode that there is, an epoch and a token
 *   N2  a name that gave up has the failure as its value
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_internal.h"

#include "base/bytes.h"
#include "base/failure.h"

#include <inttypes.h>
#include <sodium.h>
#include <string.h>

enum {
    LETTERS = VOW_NAME_TEXT - 1, /* of a name */
    KEY_LENGTH = 2 + LETTERS + 2 /* of "n/H/r" */
};

static const char *const states[] = {
    [VOW__ER_RUNS] = "runs",
    [VOW__ER_DONE] = "done",
    [VOW__ER_FAILED] = "failed",
    [VOW__ER_GAVE_UP] = "gave-up",
};
static const char *const modes[] = {
    [VOW_SHARED] = "shared",
    [VOW_FENCED] = "fenced",
    [VOW_ONCE] = "once",
};
enum { STATES = VOW__ER_GAVE_UP + 1, MODES = VOW_ONCE + 1 };

struct reading {
    struct vow__etcd *etcd;
    struct vow__er *er;
    int code;
};

static bool on_key(const struct vow__kv *kv, void *reading);
static bool on_offset(const struct vow__kv *kv, void *reading);
static int read_record(struct vow__etcd *e, const struct vow__kv *kv,
                       struct vow__er *er);
static bool read_words(struct vow__lines *r, struct vow__er *er);
static bool read_word(const struct vow__line *l, struct vow__er *er);
static bool read_flag(const struct vow__line *l, struct vow__er *er);
static int read_value(struct vow__etcd *e, const struct vow__lines *r,
                      struct vow__er *er);
static bool read_alive(const struct vow__kv *kv, struct vow__er *er);
static bool read_bell(const struct vow__kv *kv, struct vow__er *er);
static bool choice_of(const struct vow__line *l, const char *const *words,
                      size_t n, size_t *ret_choice);
static bool token_of(const struct vow__line *l, vow_token *ret_token);
static void write_token(const vow_token *token, struct vow__jot *value);
static void write_number(const char *word, uint64_t number,
                         struct vow__jot *value);

void vow__er_fini(struct vow__er *r)
{
    vow_bytes_unref(r->value);
    *r = (struct vow__er){.mod = 0};
}

/* ---- from keys ----------------------------------------------------------- */

void vow__er_ask(struct vow__txn *t, enum vow__branch b, const vow_name *name)
{
    const struct vow__key keys[VOW__ER_RANGES] = {vow__key("n", name, "/"),
                                                  vow__key("w", name, "/"),
                                                  vow__key("e", NULL, "")};
    vow__txn_range(t, b, &keys[0], VOW__TREE);
    vow__txn_range(t, b, &keys[1], VOW__TREE | VOW__COUNT_ONLY);
    vow__txn_range(t, b, &keys[2], 0);
}

int vow__er_read(struct vow__etcd *e, const json_t *txn, size_t first,
                 const vow_name *name, struct vow__er *ret_er)
{
    struct vow__er er = {.name = *name, .revision = vow__json_revision(txn)};
    struct reading r = {.etcd = e, .er = &er};
    const json_t *keys = vow__json_response(txn, first);
    const json_t *waits = vow__json_response(txn, first + 1);
    const json_t *offset = vow__json_response(txn, first + 2);
    if (er.revision == 0 || waits == NULL ||
        !vow__json_each(e, keys, on_key, &r) ||
        (r.code == 0 && !vow__json_each(e, offset, on_offset, &r))) {
        vow__etcd_trouble(e, "etcd gave an answer that is none");
        r.code = VOW_EIO;
    }
    if (r.code < 0) {
        vow__er_fini(&er);
        return r.code;
    }
    vow__er_expire(&er);
    uint64_t waiters = vow__json_uint(waits, "count");
    er.waiters = waiters < UINT32_MAX ? (uint32_t)waiters : UINT32_MAX;
    *ret_er = er;
    return 0;
}

void vow__er_expire(struct vow__er *er)
{
    uint64_t now_us = vow__etcd_wall_us();
    bool settled = er->state != VOW__ER_ABSENT && er->state != VOW__ER_RUNS;
    uint64_t age_ms =
        now_us > er->since_us ? (now_us - er->since_us) / 1000 : 0;
    er->hidden |= settled && er->ttl_ms > 0 && age_ms >= er->ttl_ms;
}

static bool on_key(const struct vow__kv *kv, void *reading)
{
    struct reading *r = reading;
    vow_name name;
    char letter = vow__er_key(kv->key, &name);
    if (letter != 0)
        r->code = vow__er_read_key(r->etcd, kv, letter, r->er);
    return r->code == 0;
}

static bool on_offset(const struct vow__kv *kv, void *reading)
{
    struct reading *r = reading;
    struct vow__lines rest = {kv->value, kv->size};
    struct vow__line l;
    r->er->offset_mod = kv->mod;
    while (vow__line_take(&rest, &l))
        if (vow__line_is(&l, "plus") && !vow__line_number(&l, &r->er->offset))
            r->code = VOW_EIO;
    if (r->er->offset > UINT64_MAX / 2)
        r->code = VOW_EIO;
    if (r->code != 0)
        vow__etcd_trouble(r->etcd, "the key %se in etcd is not one of ours",
                          vow__etcd_where_of(r->etcd)->prefix);
    return r->code == 0;
}

char vow__er_key(const char *key, vow_name *ret_name)
{
    char text[VOW_NAME_TEXT];
    if (strlen(key) != KEY_LENGTH || key[0] != 'n' || key[1] != '/' ||
        key[2 + LETTERS] != '/')
        return 0;
    memcpy(text, key + 2, LETTERS);
    text[LETTERS] = 0;
    return vow_name_parse(text, ret_name) ? key[KEY_LENGTH - 1] : 0;
}

int vow__er_read_key(struct vow__etcd *e, const struct vow__kv *kv, char letter,
                     struct vow__er *er)
{
    int rc = 0;
    if (letter == 'r')
        rc = read_record(e, kv, er);
    else if (letter == 'a')
        rc = read_alive(kv, er) ? 0 : VOW_EIO;
    else if (letter == 'c')
        rc = read_bell(kv, er) ? 0 : VOW_EIO;
    else if (letter == 'f')
        er->fence = kv->mod;
    if (rc == VOW_EIO)
        vow__etcd_trouble(e, "the key %s%s in etcd is not one of ours",
                          vow__etcd_where_of(e)->prefix, kv->key);
    return rc;
}

/* The alive key has the last word on the lease. */
static int read_record(struct vow__etcd *e, const struct vow__kv *kv,
                       struct vow__er *er)
{
    struct vow__lines r = {kv->value, kv->size};
    uint64_t lease_ms = er->lease_ms;
    uint64_t plus = er->offset;
    if (er->mod != 0) /* a key comes once */
        return VOW_EIO;
    er->mod = kv->mod;
    er->lease = kv->lease;
    er->offset = 0;
    bool good = read_words(&r, er);
    if (good && er->epoch == 0 && er->offset < UINT64_MAX / 2)
        er->epoch = kv->mod + er->offset;
    er->offset = plus;
    if (er->alive != 0)
        er->lease_ms = lease_ms;
    if (good && er->state != VOW__ER_ABSENT && er->epoch != 0)
        return read_value(e, &r, er);
    er->state = VOW__ER_ABSENT; /* keeps N1 */
    return VOW_EIO;
}

static bool read_words(struct vow__lines *r, struct vow__er *er)
{
    struct vow__line l;
    while (vow__line_take(r, &l))
        if (!read_word(&l, er))
            return false;
    return true;
}

static bool read_word(const struct vow__line *l, struct vow__er *er)
{
    const struct {
        const char *word;
        uint64_t *number;
    } numbers[] = {{"epoch", &er->epoch},    {"plus", &er->offset},
                   {"lease", &er->lease_ms}, {"ttl", &er->ttl_ms},
                   {"since", &er->since_us}, {"cost", &er->cost_ms}};
    size_t choice;
    uint64_t number;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (vow__line_is(l, numbers[i].word))
            return vow__line_number(l, numbers[i].number);
    if (vow__line_is(l, "state")) {
        bool good = choice_of(l, states, STATES, &choice);
        er->state = good ? (uint8_t)choice : VOW__ER_ABSENT;
        return good;
    }
    if (vow__line_is(l, "mode")) {
        bool good = choice_of(l, modes, MODES, &choice);
        er->mode = good ? (uint32_t)choice : VOW_SHARED;
        return good;
    }
    if (vow__line_is(l, "takeovers")) {
        bool good = vow__line_number(l, &number) && number < UINT32_MAX;
        er->takeovers = good ? (uint32_t)number : 0;
        return good;
    }
    if (vow__line_is(l, "token"))
        return token_of(l, &er->token);
    if (vow__line_is(l, "label"))
        vow__line_text(l, er->label);
    else if (vow__line_is(l, "runner"))
        vow__line_text(l, er->runner);
    return read_flag(l, er);
}

static bool read_flag(const struct vow__line *l, struct vow__er *er)
{
    er->hidden |= vow__line_is(l, "hidden");
    er->canceled |= vow__line_is(l, "canceled");
    er->apart |= vow__line_is(l, "apart");
    er->elsewhere |= vow__line_is(l, "elsewhere");
    return true;
}

static int read_value(struct vow__etcd *e, const struct vow__lines *r,
                      struct vow__er *er)
{
    const struct vow_alloc *alloc = vow__etcd_alloc(e);
    if (er->state == VOW__ER_GAVE_UP) /* keeps N2 */
        return vow__failure_make(alloc, VOW_EGAVEUP, NULL, &er->value);
    if (r->n == 0)
        return 0;
    return vow__bytes_make(alloc, r->at, r->n, &er->value);
}

static bool read_alive(const struct vow__kv *kv, struct vow__er *er)
{
    struct vow__lines r = {kv->value, kv->size};
    struct vow__line l;
    er->alive = kv->mod;
    er->alive_lease = kv->lease;
    while (vow__line_take(&r, &l))
        if (vow__line_is(&l, "lease") && !vow__line_number(&l, &er->lease_ms))
            return false;
    return true;
}

static bool read_bell(const struct vow__kv *kv, struct vow__er *er)
{
    struct vow__lines r = {kv->value, kv->size};
    struct vow__line l;
    er->bell = kv->mod;
    while (vow__line_take(&r, &l)) {
        if (vow__line_is(&l, "chunks") && !vow__line_number(&l, &er->chunks))
            return false;
        if (vow__line_is(&l, "bytes") &&
            !vow__line_number(&l, &er->chunk_bytes))
            return false;
    }
    return true;
}

/* ---- words of lines ------------------------------------------------------ */

static bool choice_of(const struct vow__line *l, const char *const *words,
                      size_t n, size_t *ret_choice)
{
    for (size_t i = 0; i < n; i++) {
        if (words[i] == NULL || strlen(words[i]) != l->n ||
            memcmp(words[i], l->text, l->n) != 0)
            continue;
        *ret_choice = i;
        return true;
    }
    return false;
}

static bool token_of(const struct vow__line *l, vow_token *ret_token)
{
    size_t n;
    return sodium_hex2bin(ret_token->bytes, sizeof(ret_token->bytes), l->text,
                          l->n, NULL, &n, NULL) == 0 &&
           n == sizeof(ret_token->bytes);
}

/* ---- to keys ------------------------------------------------------------- */

void vow__er_write(const struct vow__er *er, bool with_epoch,
                   struct vow__jot *value)
{
    bool settled = er->state != VOW__ER_RUNS;
    vow__jot_print(value, "state %s\nmode %s\n", states[er->state],
                   modes[er->mode]);
    write_token(&er->token, value);
    if (with_epoch)
        write_number("epoch", er->epoch, value);
    else if (er->offset > 0)
        write_number("plus", er->offset, value);
    write_number("takeovers", er->takeovers, value);
    write_number("lease", er->lease_ms, value);
    write_number("since", er->since_us, value);
    if (settled) {
        write_number("ttl", er->ttl_ms, value);
        write_number("cost", er->cost_ms, value);
    }
    vow__line_write(value, "label", er->label);
    vow__line_write(value, "runner", er->runner);
    vow__jot_text(value, er->hidden ? "hidden yes\n" : "");
    vow__jot_text(value, er->canceled ? "canceled yes\n" : "");
    vow__jot_text(value, er->apart ? "apart yes\n" : "");
    vow__jot_text(value, er->elsewhere ? "elsewhere yes\n" : "");
    if (!settled || er->apart || vow_bytes_size(er->value) == 0)
        return;
    vow__jot_text(value, "\n");
    vow__jot_bytes(value, vow_bytes_data(er->value), vow_bytes_size(er->value));
}

void vow__er_write_alive(const struct vow__er *er, struct vow__jot *value)
{
    write_token(&er->token, value);
    write_number("lease", er->lease_ms, value);
}

void vow__er_write_bell(const struct vow__er *er, struct vow__jot *value)
{
    write_number("chunks", er->chunks, value);
    write_number("bytes", er->chunk_bytes, value);
}

void vow__er_write_offset(uint64_t offset, struct vow__jot *value)
{
    write_number("plus", offset, value);
}

static void write_token(const vow_token *token, struct vow__jot *value)
{
    char hex[2 * sizeof(token->bytes) + 1];
    (void)sodium_bin2hex(hex, sizeof(hex), token->bytes, sizeof(token->bytes));
    vow__jot_print(value, "token %s\n", hex);
}

static void write_number(const char *word, uint64_t number,
                         struct vow__jot *value)
{
    if (number == UINT64_MAX)
        vow__jot_print(value, "%s never\n", word);
    else
        vow__jot_print(value, "%s %" PRIu64 "\n", word, number);
}

void vow__er_text(char to[VOW_LABEL_MAX + 1], const char *from)
{
    size_t n = from == NULL ? 0 : strnlen(from, VOW_LABEL_MAX);
    if (n > 0)
        memcpy(to, from, n);
    to[n] = 0;
}

/* ---- for callers --------------------------------------------------------- */

uint32_t vow__er_says(const struct vow__er *er)
{
    if (er->state == VOW__ER_ABSENT)
        return VOW_STATUS_NONE;
    if (er->state != VOW__ER_RUNS)
        return er->hidden ? VOW_STATUS_NONE : VOW_STATUS_SETTLED;
    if (er->alive != 0)
        return VOW_STATUS_WAITING;
    return er->mode == VOW_ONCE ? VOW_STATUS_DOUBT : VOW_STATUS_NONE;
}

/* Etcd tells no times: what is there is not over, and an owner that is alive
 * has pulsed. */
vow_record vow__er_record(const struct vow__er *er, uint32_t status)
{
    vow_record r = {
        .name = er->name, .status = status, .label = "", .runner = ""};
    uint64_t now_us = vow__etcd_wall_us();
    if (er->state == VOW__ER_ABSENT)
        return r;
    bool runs = er->state == VOW__ER_RUNS;
    r.mode = er->mode;
    r.epoch = er->epoch;
    r.takeovers = er->takeovers;
    r.waiters = runs ? er->waiters : 0;
    r.failed = er->state == VOW__ER_FAILED || er->state == VOW__ER_GAVE_UP;
    r.value = status == VOW_STATUS_SETTLED ? er->value : NULL;
    r.age_ms = now_us > er->since_us ? (now_us - er->since_us) / 1000 : 0;
    r.pulse_ms = runs && er->alive != 0 ? 0 : r.age_ms;
    r.cost_ms = er->cost_ms;
    r.label = er->label;
    r.runner = er->runner;
    if (runs)
        r.left_ms = er->alive != 0 ? er->lease_ms : 0;
    else if (er->ttl_ms == UINT64_MAX)
        r.left_ms = UINT64_MAX;
    else
        r.left_ms = er->ttl_ms > r.age_ms ? er->ttl_ms - r.age_ms : 1;
    return r;
}
