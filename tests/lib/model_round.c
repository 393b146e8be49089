/* SPDX-License-Identifier: MIT */
/* model_round.c - whose turn it is, when keys take turns.
 *
 * HOW   A key has a place in the round from the moment that it has somebody who
 *       waits, or that it started one; places are numbers that only grow. While
 *       its own limits block it, a key is skipped. When they let go, it may be
 *       found in its old place, or join at the end, at the latest when the next
 *       job starts: between these two, any order is right. So a place is a pair
 *       of numbers, and a key may be first if none is surely before it.
 */
#include "model.h"

static bool may_be_first(const struct model *m, uint32_t key);

void model_refresh(struct model *m)
{
    bool joined = false;
    for (uint32_t k = 0; k < MODEL_KEYS; k++) {
        struct model_turn *t = &m->round[k];
        int head = model_head(m, k);
        if (head < 0) {
            *t = (struct model_turn){.in = false};
            continue;
        }
        bool able = model_key_time(m, &m->jobs[head]) <= m->now_ns;
        bool is_new = t->from == 0;
        if (is_new)
            t->from = m->last_place + 1;
        if (able && !t->in)
            t->to = is_new ? t->from : MODEL_NEVER;
        t->in = able;
        joined = joined || is_new;
    }
    m->last_place += joined;
}

/* In order of arrival. Whether that is before or after others start at the same
 * instant is left open, and so is the place of a key that comes in so. */
bool model_enter_one(struct model *m)
{
    uint32_t i = 0;
    model_refresh(m);
    while (i < m->n_jobs && m->jobs[i].state != MODEL_OUTSIDE)
        i++;
    if (i == m->n_jobs || !model_has_room(m, m->jobs[i].bytes))
        return false;
    m->jobs[i].state = MODEL_WAITS;
    if (m->round[m->jobs[i].key].from == 0)
        m->round[m->jobs[i].key].from = m->quiet_place + 1;
    model_refresh(m);
    return true;
}

void model_enter(struct model *m)
{
    while (model_enter_one(m)) {
    }
}

void model_turn_taken(struct model *m, uint32_t key)
{
    m->last_place++;
    for (uint32_t k = 0; k < MODEL_KEYS; k++)
        if (m->round[k].in && m->round[k].to == MODEL_NEVER)
            m->round[k].to = m->last_place;
    m->round[key] = (struct model_turn){.in = false};
}

static bool may_be_first(const struct model *m, uint32_t key)
{
    if (!m->round[key].in)
        return false;
    for (uint32_t k = 0; k < MODEL_KEYS; k++)
        if (m->round[k].in && m->round[k].to < m->round[key].from)
            return false;
    return true;
}

bool model_round_is_empty(const struct model *m)
{
    for (uint32_t k = 0; k < MODEL_KEYS; k++)
        if (m->round[k].in)
            return false;
    return true;
}

bool model_may_start(const struct model *m, uint32_t number)
{
    const struct model_job *j = &m->jobs[number];
    int next = -1;
    return j->state == MODEL_WAITS && may_be_first(m, j->key) &&
           model_next_of(m, j->key, &next) <= m->now_ns && next == (int)number;
}

/* Of several keys that may be first any may be: so the next start lies between
 * the earliest and the latest of theirs. Only when the round is empty, the key
 * that its own limits let go first is next. To pass somebody is a right and not
 * a duty, unless something happens just then. */
void model_next(const struct model *m, uint64_t *ret_first, uint64_t *ret_last)
{
    bool is_empty = model_round_is_empty(m);
    uint64_t able = MODEL_NEVER, last = 0;
    for (uint32_t k = 0; k < MODEL_KEYS && is_empty; k++) {
        int head = model_head(m, k);
        uint64_t at =
            head < 0 ? MODEL_NEVER : model_key_time(m, &m->jobs[head]);
        able = at < able ? at : able;
    }
    *ret_first = MODEL_NEVER;
    for (uint32_t k = 0; k < MODEL_KEYS; k++) {
        int head = model_head(m, k), number;
        if (head < 0 || (is_empty ? model_key_time(m, &m->jobs[head]) != able
                                  : !may_be_first(m, k)))
            continue;
        uint64_t at = model_next_of(m, k, &number);
        at = is_empty && at < able ? able : at;
        *ret_first = at < *ret_first ? at : *ret_first;
        if (number != head && (at > m->now_ns || m->event_ns != m->now_ns))
            at = MODEL_NEVER;
        last = at > last ? at : last;
    }
    *ret_last = last == 0 ? *ret_first : last;
}
