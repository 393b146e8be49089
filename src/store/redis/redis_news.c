/* SPDX-License-Identifier: MIT */
/* redis_news.c - messages that come by themselves.
 *
 * WHY   Who waits is woken by a message on the channel of its instance, which
 *       the scripts send. A small result comes with it, so that no second
 *       round trip is needed.
 * HOW   A letter, the name, and what follows: see lua/claim.lua and
 *       lua/commit.lua. A result that cannot be read, opened or remembered is
 *       told as a change: who waits asks again. Anything else that makes no
 *       sense is left alone.
 *       A result of ttl 0 stays with the server for those who waited. That it
 *       came by a message is remembered until it is gone there, and said with
 *       the next claim, so that a new claim does not get an old result.
 * INVARIANTS
 *   T1  a result in the table is in the list, and both have TOLD_MAX at most
 * LIMITS  Of more results than TOLD_MAX the oldest are forgotten: they may be
 *       given once more.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_names.h"

#include <string.h>

enum { TOLD_MAX = 4096, NAME_CHARS = VOW_NAME_TEXT - 1 };

/* A hidden result that came whole. */
struct told {
    struct vow__table_node named;
    vow_link link;
    vow_name name;
    uint64_t epoch;
    uint64_t over_ns; /* when it is gone at the server, by our clock */
};

/* What is left of a message. */
struct rest {
    const char *at;
    size_t n;
};

/* A record as a message has it. */
struct letter {
    vow_record record;
    int state;
    bool hidden;
    uint64_t left_us;
    struct vow__redis_texts texts;
    struct vow__resp value;
};

static void read_message(struct vow__redis *r, struct rest m);
static bool take_name(struct rest *m, vow_name *ret_name);
static bool take_number(struct rest *m, uint64_t *ret_number);
static bool take_text(struct rest *m, size_t n, char *to);
static bool read_letter(struct rest m, struct letter *l);
static void tell_place(const vow_store_events *e, struct rest m);
static void tell_record(struct vow__redis *r, const vow_name *name,
                        struct rest m);
static int remember(struct vow__redis *r, const struct letter *l);
static void forget(struct vow__redis_told *t, struct told *x);

/* ---- what comes --------------------------------------------------------- */

void vow__redis_listening(struct vow__redis *r)
{
    struct vow__redis_told *t = vow__redis_told(r);
    const vow_store_events *e = vow__redis_events(r);
    bool again = t->heard;
    t->heard = true;
    if (again)
        e->on_doubt(e->user);
}

void vow__redis_push(struct vow__redis *r, const struct vow__resp *push)
{
    const struct vow__resp *text = vow__resp_at(push, 2);
    if (text->kind != VOW__RESP_TEXT ||
        !vow__resp_is(vow__resp_at(push, 0), "message") ||
        !vow__resp_is(vow__resp_at(push, 1), vow__redis_channel(r)))
        return;
    read_message(r, (struct rest){text->text, text->n});
}

static void read_message(struct vow__redis *r, struct rest m)
{
    const vow_store_events *e = vow__redis_events(r);
    vow_name name;
    if (m.n == 0)
        return;
    char letter = m.at[0];
    m.at++;
    m.n--;
    if (letter == 'G') {
        tell_place(e, m);
        return;
    }
    if (!take_name(&m, &name) || (m.n > 0 && letter != 'S'))
        return;
    if (letter == 'S' || letter == 'A')
        tell_record(r, &name, m);
    else if (letter == 'C')
        e->on_chunks(&name, e->user);
    else if (letter == 'X')
        e->on_cancel(&name, e->user);
}

static void tell_place(const vow_store_events *e, struct rest m)
{
    vow_token token;
    if (m.n != sizeof(token.bytes))
        return;
    memcpy(token.bytes, m.at, sizeof(token.bytes));
    e->on_permit(&token, e->user);
}

/* Without a rest: ask again. */
static void tell_record(struct vow__redis *r, const vow_name *name,
                        struct rest m)
{
    const vow_store_events *e = vow__redis_events(r);
    struct letter l;
    const vow_record changed = {.name = *name, .label = "", .runner = ""};
    bool whole = read_letter(m, &l);
    l.record.name = *name;
    if (whole &&
        vow__redis_value(r, &l.record, l.state, &l.value, &l.record.value) != 0)
        whole = false;
    else if (whole && l.hidden && remember(r, &l) < 0)
        whole = false;
    vow_bytes *value = l.record.value;
    e->on_record(whole ? &l.record : &changed, e->user);
    vow_bytes_unref(value);
}

/* ---- reading ------------------------------------------------------------ */

static bool take_name(struct rest *m, vow_name *ret_name)
{
    char text[VOW_NAME_TEXT];
    return take_text(m, NAME_CHARS, text) && vow_name_parse(text, ret_name);
}

/* So many bytes with a NUL behind them, which fit. */
static bool take_text(struct rest *m, size_t n, char *to)
{
    if (m->n < n)
        return false;
    memcpy(to, m->at, n);
    to[n] = 0;
    m->at += n;
    m->n -= n;
    return true;
}

/* A blank and digits, at most VOW__REDIS_NUMBER_MAX. */
static bool take_number(struct rest *m, uint64_t *ret_number)
{
    uint64_t number = 0;
    size_t i = 1;
    if (m->n == 0 || m->at[0] != ' ')
        return false;
    while (i < m->n && m->at[i] >= '0' && m->at[i] <= '9' &&
           number <= VOW__REDIS_NUMBER_MAX / 10)
        number = 10 * number + (uint64_t)(m->at[i++] - '0');
    m->at += i;
    m->n -= i;
    *ret_number = number;
    return i > 1 && number <= VOW__REDIS_NUMBER_MAX;
}

/* State, mode, epoch, takeovers, what is left (us, -1: no end), cost, hidden,
 * sizes of label and runner, these, the value. */
static bool read_letter(struct rest m, struct letter *l)
{
    enum { MODE, EPOCH, TAKEOVERS, LEFT, COST, HIDDEN, LABEL, RUNNER, NUMBERS };
    uint64_t number[NUMBERS];
    *l = (struct letter){.record = {.label = "", .runner = ""}};
    if (m.n < 2 || m.at[0] != ' ' || (m.at[1] != 'D' && m.at[1] != 'E'))
        return false;
    l->state = m.at[1] == 'D' ? VOW__STATE_DONE : VOW__STATE_FAILED;
    m.at += 2;
    m.n -= 2;
    for (int i = 0; i < NUMBERS; i++) {
        bool endless = i == LEFT && m.n > 3 && memcmp(m.at, " -1 ", 4) == 0;
        number[i] = VOW__REDIS_NUMBER_MAX;
        if (!endless && !take_number(&m, &number[i]))
            return false;
        m.at += endless ? 3 : 0;
        m.n -= endless ? 3 : 0;
    }
    if (number[MODE] > VOW_ONCE || number[EPOCH] == 0 ||
        number[TAKEOVERS] > UINT32_MAX || number[LABEL] > VOW_LABEL_MAX ||
        number[RUNNER] > VOW_LABEL_MAX || m.n == 0 || m.at[0] != '\n')
        return false;
    m.at++;
    m.n--;
    if (!take_text(&m, number[LABEL], l->texts.label) ||
        !take_text(&m, number[RUNNER], l->texts.runner))
        return false;
    bool endless = number[LEFT] == VOW__REDIS_NUMBER_MAX;
    l->hidden = number[HIDDEN] != 0;
    l->left_us = number[LEFT];
    l->value =
        (struct vow__resp){.kind = VOW__RESP_TEXT, .text = m.at, .n = m.n};
    l->record = (vow_record){.status = VOW_STATUS_SETTLED,
                             .mode = (uint32_t)number[MODE],
                             .epoch = number[EPOCH],
                             .takeovers = (uint32_t)number[TAKEOVERS],
                             .failed = l->state == VOW__STATE_FAILED,
                             .left_ms = endless ? UINT64_MAX
                                                : (number[LEFT] + 999) / 1000,
                             .cost_ms = number[COST],
                             .label = l->texts.label,
                             .runner = l->texts.runner};
    return true;
}

/* ---- what was told ------------------------------------------------------ */

int vow__told_open(struct vow__redis *r, struct vow__redis_told **ret_told)
{
    const struct vow_alloc *alloc = vow__redis_alloc(r);
    vow_loop *loop = vow__redis_loop(r);
    struct vow__redis_told *t = vow__mem_zero(alloc, sizeof(*t));
    if (t == NULL)
        return VOW_ENOMEM;
    t->alloc = *alloc;
    vow__table_init(&t->results, &t->alloc, vow_loop_random(loop));
    vow__table_init(&t->writers, &t->alloc, vow_loop_random(loop));
    *ret_told = t;
    return 0;
}

void vow__told_close(struct vow__redis_told *t)
{
    if (t == NULL)
        return;
    while (t->oldest != NULL)
        forget(t, VOW__OUTER(t->oldest, struct told, link));
    vow__writers_close(t);
    vow__table_fini(&t->results);
    vow__table_fini(&t->writers);
    struct vow_alloc alloc = t->alloc;
    vow__mem_free(&alloc, t, sizeof(*t));
}

static struct told *told_find(struct vow__redis_told *t, const vow_name *name)
{
    struct vow__table_node *n = vow__table_find(
        &t->results, (const char *)name->hash, sizeof(name->hash));
    return n == NULL ? NULL : VOW__OUTER(n, struct told, named);
}

static int remember(struct vow__redis *r, const struct letter *l)
{
    struct vow__redis_told *t = vow__redis_told(r);
    uint64_t now = vow_loop_now_ns(vow__redis_loop(r));
    struct told *x = told_find(t, &l->record.name);
    if (x != NULL)
        forget(t, x);
    while (t->oldest != NULL) {
        x = VOW__OUTER(t->oldest, struct told, link);
        if (x->over_ns > now && t->results.count < TOLD_MAX)
            break;
        forget(t, x); /* keeps T1 */
    }
    x = vow__mem_zero(&t->alloc, sizeof(*x));
    if (x == NULL)
        return VOW_ENOMEM;
    x->name = l->record.name;
    x->epoch = l->record.epoch;
    x->over_ns = l->left_us > (UINT64_MAX - now) / 1000
                     ? UINT64_MAX
                     : now + l->left_us * 1000;
    x->named.name = (const char *)x->name.hash;
    x->named.length = sizeof(x->name.hash);
    int rc = vow__table_add(&t->results, &x->named);
    if (rc < 0) {
        vow__mem_free(&t->alloc, x, sizeof(*x));
        return rc;
    }
    vow__list_push(&t->oldest, &x->link);
    return 0;
}

static void forget(struct vow__redis_told *t, struct told *x)
{
    vow__table_remove(&t->results, &x->named);
    vow__list_remove(&t->oldest, &x->link);
    vow__mem_free(&t->alloc, x, sizeof(*x));
}

uint64_t vow__told_epoch(struct vow__redis *r, const vow_name *name)
{
    struct vow__redis_told *t = vow__redis_told(r);
    struct told *x = told_find(t, name);
    if (x == NULL)
        return 0;
    if (x->over_ns > vow_loop_now_ns(vow__redis_loop(r)))
        return x->epoch;
    forget(t, x);
    return 0;
}
