/* SPDX-License-Identifier: MIT */
/* etcd_seat.c - keys and values of pools.
 *
 * HOW   All of a pool is one tree, and the trees of all pools that have the
 *       limits of one are in its tree, so one read finds whom they concern:
 *
 *           s/LAW/l               limits
 *           s/LAW/POOL/q/TOKEN    a seat: a place that is held or queued for
 *           s/LAW/POOL/t/ID       a toll: weight that was granted under a rate
 *           s/LAW/POOL/o          a bell: some may have had a lease of 0
 *
 *       A value is lines of `word value` (etcd_line.c). What is not known is
 *       passed over, so that later versions can say more.
 * LIMITS  A value that is none of ours is passed over: it counts for nothing.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_pools.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { NAME = VOW_NAME_TEXT - 1, ID = 16, TOKEN = 2 * sizeof(vow_token) };

static const char *name_in(const char *text, vow_name *ret_name);
static bool token_in(const char *text, vow_token *ret_token);
static bool id_in(const char *text, uint64_t *ret_id);
static bool find(const struct vow__kv *kv, const char *word,
                 struct vow__line *ret_line);
static uint64_t number(const struct vow__kv *kv, const char *word);
static void text(const struct vow__kv *kv, const char *word,
                 char to[VOW_LABEL_MAX + 1]);
static bool each_key(const struct vow__kv *kv, void *user);
static bool each_offset(const struct vow__kv *kv, void *user);

/* ---- keys ---------------------------------------------------------------- */

struct vow__key vow__limits_key(const vow_name *law)
{
    return vow__key("s", law, "/l");
}

struct vow__key vow__hall_tree(const struct vow__hall_name *hall)
{
    char rest[NAME + 3] = "/";
    (void)vow_name_text(&hall->pool, rest + 1);
    rest[NAME + 1] = '/';
    rest[NAME + 2] = 0;
    return vow__key("s", &hall->law, rest);
}

static struct vow__key below(const struct vow__hall_name *hall, char kind,
                             const char *rest)
{
    struct vow__key key = vow__hall_tree(hall);
    size_t n = strlen(key.text);
    (void)snprintf(key.text + n, sizeof(key.text) - n, "%c/%s", kind, rest);
    return key;
}

struct vow__key vow__seat_key(const struct vow__hall_name *hall,
                              const vow_token *token)
{
    char hex[TOKEN + 1];
    (void)sodium_bin2hex(hex, sizeof(hex), token->bytes, sizeof(token->bytes));
    return below(hall, 'q', hex);
}

struct vow__key vow__toll_key(const struct vow__hall_name *hall, uint64_t id)
{
    char hex[ID + 1];
    (void)snprintf(hex, sizeof(hex), "%016" PRIx64, id);
    return below(hall, 't', hex);
}

struct vow__key vow__over_key(const struct vow__hall_name *hall)
{
    struct vow__key key = vow__hall_tree(hall);
    size_t n = strlen(key.text);
    (void)snprintf(key.text + n, sizeof(key.text) - n, "o");
    return key;
}

bool vow__hall_parse(const char *key, struct vow__hall_key *ret_key)
{
    struct vow__hall_key k = {.kind = VOW__KEY_LIMITS};
    if (strncmp(key, "s/", 2) != 0)
        return false;
    const char *at = name_in(key + 2, &k.hall.law);
    if (at == NULL)
        return false;
    const char *rest = name_in(at, &k.hall.pool);
    bool good = strcmp(at, "l") == 0;
    if (rest != NULL && strncmp(rest, "q/", 2) == 0) {
        k.kind = VOW__KEY_SEAT;
        good = token_in(rest + 2, &k.token);
    } else if (rest != NULL && strncmp(rest, "t/", 2) == 0) {
        k.kind = VOW__KEY_TOLL;
        good = id_in(rest + 2, &k.id);
    }
    if (good)
        *ret_key = k;
    return good;
}

/* What is behind a name and its slash; NULL: there is no name. */
static const char *name_in(const char *text, vow_name *ret_name)
{
    char name[VOW_NAME_TEXT];
    if (strnlen(text, NAME + 1) <= NAME || text[NAME] != '/')
        return NULL;
    memcpy(name, text, NAME);
    name[NAME] = 0;
    return vow_name_parse(name, ret_name) ? text + NAME + 1 : NULL;
}

static bool token_in(const char *text, vow_token *ret_token)
{
    size_t n;
    const char *end;
    return strlen(text) == TOKEN &&
           sodium_hex2bin(ret_token->bytes, sizeof(ret_token->bytes), text,
                          TOKEN, NULL, &n, &end) == 0 &&
           n == sizeof(ret_token->bytes);
}

static bool id_in(const char *text, uint64_t *ret_id)
{
    unsigned char bytes[ID / 2];
    size_t n;
    if (strlen(text) != ID ||
        sodium_hex2bin(bytes, sizeof(bytes), text, ID, NULL, &n, NULL) != 0 ||
        n != sizeof(bytes))
        return false;
    *ret_id = 0;
    for (size_t i = 0; i < n; i++)
        *ret_id = *ret_id << 8 | bytes[i];
    return true;
}

/* ---- reading values ------------------------------------------------------ */

static bool find(const struct vow__kv *kv, const char *word,
                 struct vow__line *ret_line)
{
    struct vow__lines rest = {kv->value, kv->size};
    while (vow__line_take(&rest, ret_line))
        if (vow__line_is(ret_line, word))
            return true;
    return false;
}

/* 0: there is none. */
static uint64_t number(const struct vow__kv *kv, const char *word)
{
    struct vow__line l;
    uint64_t n;
    return find(kv, word, &l) && vow__line_number(&l, &n) ? n : 0;
}

static void text(const struct vow__kv *kv, const char *word,
                 char to[VOW_LABEL_MAX + 1])
{
    struct vow__line l;
    to[0] = 0;
    if (find(kv, word, &l))
        vow__line_text(&l, to);
}

static uint32_t small(uint64_t n)
{
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

bool vow__limits_read(const struct vow__kv *kv, vow_pool_limits *limits,
                      char label[VOW_LABEL_MAX + 1])
{
    struct vow__line l;
    if (!find(kv, "concurrent", &l))
        return false;
    *limits = (vow_pool_limits){.concurrent = small(number(kv, "concurrent")),
                                .rate = small(number(kv, "rate")),
                                .window_us = number(kv, "window")};
    if (label != NULL)
        text(kv, "label", label);
    return true;
}

bool vow__seat_read(const struct vow__kv *kv, const vow_token *token,
                    struct vow__seat *ret_seat)
{
    struct vow__line l;
    uint32_t weight = small(number(kv, "weight"));
    if (weight == 0 || !find(kv, "lease", &l))
        return false;
    *ret_seat = (struct vow__seat){.token = *token,
                                   .create = kv->create,
                                   .mod = kv->mod,
                                   .lease = kv->lease,
                                   .lease_ms = number(kv, "lease"),
                                   .weight = weight,
                                   .marked = number(kv, "held") != 0};
    return true;
}

/* Another machine has another clock: what it wrote is as old as we have known
 * it. What we have not known before is from now. */
bool vow__toll_read(const struct vow__kv *kv, uint64_t id,
                    const struct vow__instant *now, struct vow__toll *ret_toll)
{
    char boot[VOW_LABEL_MAX + 1];
    uint64_t since = now->loop_us;
    uint64_t at = number(kv, "at");
    uint32_t weight = small(number(kv, "weight"));
    text(kv, "boot", boot);
    if (weight == 0)
        return false;
    if (boot[0] != 0 && strcmp(boot, now->boot) == 0 && at < now->boot_us) {
        uint64_t age = now->boot_us - at - 1;
        since = age < since ? since - age : 0;
    }
    *ret_toll = (struct vow__toll){.id = id,
                                   .mod = kv->mod,
                                   .lease = kv->lease,
                                   .weight = weight,
                                   .open = small(number(kv, "open")),
                                   .since_us = since};
    return true;
}

/* ---- writing them -------------------------------------------------------- */

void vow__limits_write(struct vow__jot *value, const vow_pool_limits *limits,
                       const char *label)
{
    vow__jot_print(
        value, "concurrent %" PRIu32 "\nrate %" PRIu32 "\nwindow %" PRIu64 "\n",
        limits->concurrent, limits->rate, limits->window_us);
    vow__line_write(value, "label", label);
}

void vow__seat_write(struct vow__jot *value, const vow_permit_request *ask)
{
    vow__jot_print(value,
                   "weight %" PRIu32 "\nlease %" PRIu64 "\nsince %" PRIu64 "\n",
                   ask->weight, ask->lease_ms, vow__etcd_wall_us());
    vow__line_write(value, "runner", ask->runner);
    if (!vow_name_equal(&ask->pool, &ask->limits_of))
        vow__line_write(value, "label", ask->label);
}

/* All that it said, but for what has changed. */
void vow__seat_rewrite(struct vow__jot *value, const struct vow__crowd *c,
                       const struct vow__seat *seat)
{
    static const char *const kept[] = {"since", "runner", "label"};
    const struct vow__kv old = {
        .value = seat->text_size == 0 ? "" : c->texts + seat->text,
        .size = seat->text_size};
    char had[VOW_LABEL_MAX + 1];
    vow__jot_print(value, "weight %" PRIu32 "\nlease %" PRIu64 "\n",
                   seat->weight, seat->lease_ms);
    if (seat->marked)
        vow__jot_text(value, "held 1\n");
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        text(&old, kept[i], had);
        vow__line_write(value, kept[i], had);
    }
}

void vow__toll_write(struct vow__jot *value, const struct vow__crowd *c,
                     const struct vow__toll *toll,
                     const struct vow__instant *now)
{
    vow__jot_print(value,
                   "weight %" PRIu64 "\nopen %" PRIu32 "\nboot %s\nat %" PRIu64
                   "\n",
                   toll->weight, toll->open, now->boot, now->boot_us);
    if (c->keyed)
        vow__line_write(value, "label", c->label);
}

void vow__hall_txn(const struct vow__step_lane *step, struct vow__txn *ret_txn)
{
    struct vow__etcd *e = step->etcd;
    vow__txn_init(ret_txn, vow__etcd_alloc(e), vow__etcd_where_of(e)->prefix);
    ret_txn->due_ns = step->due_ns;
}

/* ---- a whole pool -------------------------------------------------------- */

int vow__crowd_take(struct vow__crowd *c, const struct vow__hall_key *key,
                    const struct vow__kv *kv, const struct vow__instant *now)
{
    struct vow__seat seat;
    struct vow__toll toll;
    if (key->kind == VOW__KEY_LIMITS) {
        c->there = vow__limits_read(kv, &c->limits, c->keyed ? NULL : c->label);
        c->limits_mod = kv->mod;
        return 0;
    }
    if (c->keyed && c->label[0] == 0)
        text(kv, "label", c->label);
    if (key->kind == VOW__KEY_SEAT && vow__seat_read(kv, &key->token, &seat))
        return vow__crowd_add(c, &seat, kv->value, kv->size);
    if (key->kind == VOW__KEY_TOLL && vow__toll_read(kv, key->id, now, &toll))
        return vow__crowd_charge(c, &toll);
    return 0;
}

void vow__hall_ask(struct vow__txn *t, enum vow__branch b,
                   const struct vow__hall_name *hall)
{
    struct vow__key tree = vow__hall_tree(hall);
    struct vow__key limits = vow__limits_key(&hall->law);
    struct vow__key offset = vow__key("e", NULL, "");
    vow__txn_range(t, b, &tree, VOW__TREE);
    vow__txn_range(t, b, &limits, 0);
    vow__txn_range(t, b, &offset, 0);
}

struct reading {
    struct vow__crowd *crowd;
    struct vow__instant now;
    int code;
};

int vow__hall_read(struct vow__etcd *e, const json_t *txn, size_t first,
                   const struct vow__hall_name *hall, struct vow__crowd *c)
{
    struct reading r = {.crowd = c, .now = vow__places_now(e)};
    vow__crowd_fini(c);
    c->keyed = !vow_name_equal(&hall->law, &hall->pool);
    c->revision = vow__json_revision(txn);
    bool good =
        c->revision != 0 &&
        vow__json_each(e, vow__json_response(txn, first), each_key, &r) &&
        vow__json_each(e, vow__json_response(txn, first + 1), each_key, &r) &&
        vow__json_each(e, vow__json_response(txn, first + 2), each_offset, &r);
    if (!good) {
        vow__etcd_trouble(e, "etcd gave an answer that is none");
        r.code = VOW_EIO;
    }
    if (r.code < 0)
        vow__crowd_fini(c);
    return r.code;
}

static bool each_key(const struct vow__kv *kv, void *user)
{
    struct reading *r = user;
    struct vow__hall_key key;
    if (vow__hall_parse(kv->key, &key))
        r->code = vow__crowd_take(r->crowd, &key, kv, &r->now);
    return r->code == 0;
}

static bool each_offset(const struct vow__kv *kv, void *user)
{
    struct reading *r = user;
    uint64_t plus = number(kv, "plus"); /* as etcd_name.c writes it */
    r->crowd->offset = plus < UINT64_MAX / 2 ? plus : 0;
    return true;
}

/* ---- those that are over ------------------------------------------------- */

size_t vow__hall_reap(struct vow__txn *t, const struct vow__hall_name *hall,
                      const struct vow__crowd *c, const vow_token *but)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n && n < VOW__REAP_MAX; i++) {
        const struct vow__seat *s = &c->seats[i];
        if (s->lease_ms > 0 ||
            (but != NULL && memcmp(&s->token, but, sizeof(*but)) == 0))
            continue;
        vow__seat_drop(t, hall, s);
        n++;
    }
    return n;
}

void vow__seat_drop(struct vow__txn *t, const struct vow__hall_name *hall,
                    const struct vow__seat *seat)
{
    struct vow__key key = vow__seat_key(hall, &seat->token);
    struct vow__txn inner;
    vow__txn_init(&inner, &t->compare.alloc, t->prefix);
    vow__txn_if_mod(&inner, &key, seat->mod);
    vow__txn_delete(&inner, VOW__THEN, &key, 0);
    vow__txn_nest(t, VOW__THEN, &inner);
    vow__txn_fini(&inner);
}

void vow__crowd_reap(struct vow__crowd *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (c->seats[i].lease_ms > 0)
            c->seats[n++] = c->seats[i];
    c->n = n;
}
