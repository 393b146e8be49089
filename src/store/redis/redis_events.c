/* SPDX-License-Identifier: MIT */
/* redis_events.c - messages of the server on the channel of this instance.
 *
 * WHY   A waiter is woken by a message on the channel of the instance, which
 *       the scripts send. A small result comes with the message, so that no
 *       second round trip is needed.
 * HOW   A letter, the name, and what follows: see lua/claim.lua and
 *       lua/commit.lua. A result that cannot be read or opened is told as a
 *       change: the waiter claims again. Any other message is ignored.
 * LIMITS  no allocation but for a value.
 * THREADS  loop thread only.
 */
#include "store/redis/redis_names.h"
#include "store/redis/redis_route.h"

#include <string.h>

enum { NAME_CHARS = VOW_NAME_TEXT - 1 };

/* What is left of a message. */
struct event_rest {
    const char *at;
    size_t n;
};

/* A record as a message has it. */
struct event_record {
    vow_record record;
    int state;
    struct vow__redis_texts texts;
    struct vow__resp value;
};

static void event_read(struct vow__redis *r, struct event_rest m);
static bool event_take_name(struct event_rest *m, vow_name *ret_name);
static bool event_take_number(struct event_rest *m, uint64_t *ret_number);
static bool event_take_text(struct event_rest *m, size_t n, char *to);
static bool event_read_record(struct event_rest m, struct event_record *l);
static void event_tell_permit(const vow_store_events *e, struct event_rest m);
static void event_tell_record(struct vow__redis *r, const vow_name *name,
                              struct event_rest m);

/* ---- what comes --------------------------------------------------------- */

void vow__redis_listening(struct vow__redis *r)
{
    struct vow__redis_route *route = vow__redis_route(r);
    const vow_store_events *e = vow__redis_events(r);
    bool again = route->heard;
    route->heard = true;
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
    event_read(r, (struct event_rest){text->text, text->n});
}

static void event_read(struct vow__redis *r, struct event_rest m)
{
    const vow_store_events *e = vow__redis_events(r);
    vow_name name;
    if (m.n == 0)
        return;
    char letter = m.at[0];
    m.at++;
    m.n--;
    if (letter == 'G') {
        event_tell_permit(e, m);
        return;
    }
    if (!event_take_name(&m, &name) || (m.n > 0 && letter != 'S'))
        return;
    if (letter == 'S' || letter == 'A')
        event_tell_record(r, &name, m);
    else if (letter == 'C')
        e->on_chunks(&name, e->user);
    else if (letter == 'X')
        e->on_cancel(&name, e->user);
}

static void event_tell_permit(const vow_store_events *e, struct event_rest m)
{
    vow_token token;
    if (m.n != sizeof(token.bytes))
        return;
    memcpy(token.bytes, m.at, sizeof(token.bytes));
    e->on_permit(&token, e->user);
}

/* Without a rest: ask again. */
static void event_tell_record(struct vow__redis *r, const vow_name *name,
                              struct event_rest m)
{
    const vow_store_events *e = vow__redis_events(r);
    struct event_record l;
    const vow_record changed = {.name = *name, .label = "", .runner = ""};
    bool whole = event_read_record(m, &l);
    l.record.name = *name;
    if (whole &&
        vow__redis_value(r, &l.record, l.state, &l.value, &l.record.value) != 0)
        whole = false;
    vow_bytes *value = l.record.value;
    e->on_record(whole ? &l.record : &changed, e->user);
    vow_bytes_unref(value);
}

/* ---- reading ------------------------------------------------------------ */

static bool event_take_name(struct event_rest *m, vow_name *ret_name)
{
    char text[VOW_NAME_TEXT];
    return event_take_text(m, NAME_CHARS, text) &&
           vow_name_parse(text, ret_name);
}

/* So many bytes with a NUL behind them, which fit. */
static bool event_take_text(struct event_rest *m, size_t n, char *to)
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
static bool event_take_number(struct event_rest *m, uint64_t *ret_number)
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

/* State, mode, epoch, takeovers, what is left (us, -1: no end), cost, spent,
 * sizes of label and runner, these, the value. */
static bool event_read_record(struct event_rest m, struct event_record *l)
{
    enum { MODE, EPOCH, TAKEOVERS, LEFT, COST, SPENT, LABEL, RUNNER, NUMBERS };
    uint64_t number[NUMBERS];
    *l = (struct event_record){.record = {.label = "", .runner = ""}};
    if (m.n < 2 || m.at[0] != ' ' || (m.at[1] != 'D' && m.at[1] != 'E'))
        return false;
    l->state = m.at[1] == 'D' ? VOW__STATE_DONE : VOW__STATE_FAILED;
    m.at += 2;
    m.n -= 2;
    for (int i = 0; i < NUMBERS; i++) {
        bool endless = i == LEFT && m.n > 3 && memcmp(m.at, " -1 ", 4) == 0;
        number[i] = VOW__REDIS_NUMBER_MAX;
        if (!endless && !event_take_number(&m, &number[i]))
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
    if (!event_take_text(&m, number[LABEL], l->texts.label) ||
        !event_take_text(&m, number[RUNNER], l->texts.runner))
        return false;
    bool endless = number[LEFT] == VOW__REDIS_NUMBER_MAX;
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
