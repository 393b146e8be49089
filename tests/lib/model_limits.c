/* SPDX-License-Identifier: MIT */
/* model_limits.c - when the limits let a job start, and which job of a key is
 * next.
 *
 * HOW   Nothing is kept up to date: each question is answered from the list of
 *       all jobs and the list of all starts. While nothing happens, limits only
 *       become looser with time, so "when" is one instant.
 */
#include "model.h"
#include "vow/gate.h"

enum { LOOK_AHEAD = 64 }; /* jobs behind one that waits */

static uint64_t gate_pace_time(const struct model *m,
                               const struct model_job *j);
static uint64_t key_pace_time(const struct model *m, const struct model_job *j);
static uint64_t rate_time(const struct model *m, const struct model_job *j,
                          bool of_key);
static uint64_t even_time(const struct model *m);
static bool comes_before(const struct model *m, const struct model_job *a,
                         const struct model_job *b);
static bool may_pass(const struct model *m, const struct model_job *j,
                     uint64_t at_ns);

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- limits ------------------------------------------------------------- */

static uint64_t weight_running(const struct model *m, uint32_t key, bool any)
{
    uint64_t weight = 0;
    for (uint32_t i = 0; i < m->n_jobs; i++) {
        const struct model_job *j = &m->jobs[i];
        if ((j->state == MODEL_RUNS || j->state == MODEL_LET_IN) &&
            (any || j->key == key))
            weight += j->weight;
    }
    return weight;
}

uint64_t model_gate_time(const struct model *m, const struct model_job *j)
{
    const struct model_limits *l = &m->limits;
    if (m->paused)
        return MODEL_NEVER;
    if (l->concurrent > 0 &&
        weight_running(m, 0, true) + j->weight > l->concurrent)
        return MODEL_NEVER;
    return gate_pace_time(m, j);
}

/* The rate and the end of a pause, without the places. */
static uint64_t gate_pace_time(const struct model *m, const struct model_job *j)
{
    uint64_t at = later(m->now_ns, m->paused_until_ns);
    if (m->limits.rate > 0)
        at = later(at, rate_time(m, j, false));
    return later(at, even_time(m));
}

uint64_t model_key_time(const struct model *m, const struct model_job *j)
{
    const struct model_limits *l = &m->limits;
    if (j->key == 0)
        return m->now_ns;
    if (l->key_concurrent > 0 &&
        weight_running(m, j->key, false) + j->weight > l->key_concurrent)
        return MODEL_NEVER;
    return key_pace_time(m, j);
}

static uint64_t key_pace_time(const struct model *m, const struct model_job *j)
{
    uint64_t at = later(m->now_ns, m->key_paused_until_ns[j->key]);
    if (j->key == 0 || m->limits.key_rate == 0)
        return at;
    return later(at, rate_time(m, j, true));
}

uint64_t model_earliest(const struct model *m, const struct model_job *j)
{
    return later(gate_pace_time(m, j), key_pace_time(m, j));
}

/* The first start, from the newest back, that must have left the window, whose
 * both ends belong to it. */
static uint64_t rate_time(const struct model *m, const struct model_job *j,
                          bool of_key)
{
    const struct model_limits *l = &m->limits;
    uint64_t weight = j->weight;
    for (uint32_t i = m->n_starts; i-- > 0;) {
        const struct model_start *s = &m->starts[i];
        if (of_key && s->key != j->key)
            continue;
        weight += of_key ? s->key_known : s->known;
        if (weight > (of_key ? l->key_rate : l->rate))
            return s->at_ns + (of_key ? l->key_window_ns : l->window_ns) + 1;
    }
    return 0;
}

/* The last start that is remembered has used up its share of the window. */
static uint64_t even_time(const struct model *m)
{
    const struct model_limits *l = &m->limits;
    for (uint32_t i = m->n_starts; l->even && l->rate > 0 && i-- > 0;) {
        const struct model_start *s = &m->starts[i];
        if (s->known > 0)
            return s->at_ns +
                   (l->window_ns * s->weight + l->rate - 1) / l->rate;
    }
    return 0;
}

bool model_fits_ever(const struct model *m, const struct model_job *j)
{
    const struct model_limits *l = &m->limits;
    if ((l->concurrent > 0 && j->weight > l->concurrent) ||
        (l->rate > 0 && j->weight > l->rate))
        return false;
    return j->key == 0 ||
           !((l->key_concurrent > 0 && j->weight > l->key_concurrent) ||
             (l->key_rate > 0 && j->weight > l->key_rate));
}

void model_remember(struct model *m)
{
    uint32_t left = m->memory, of_key[MODEL_KEYS];
    for (uint32_t k = 0; k < MODEL_KEYS; k++)
        of_key[k] = m->key_memory[k];
    for (uint32_t i = m->n_starts; i-- > 0;) {
        struct model_start *s = &m->starts[i];
        s->known = s->known < left ? s->known : left;
        left -= s->known;
        if (s->key_known > of_key[s->key])
            s->key_known = of_key[s->key];
        of_key[s->key] -= s->key_known;
    }
}

/* "What has started under a rate counts on, as far back as that rate had to
 * look": all that is known and lies within the new window, and at least as much
 * as the new rate. */
void model_change_memory(struct model *m, const struct model_limits *next)
{
    m->memory = 0;
    for (uint32_t k = 0; k < MODEL_KEYS; k++)
        m->key_memory[k] = 0;
    for (uint32_t i = 0; i < m->n_starts; i++) {
        const struct model_start *s = &m->starts[i];
        if (m->now_ns - s->at_ns <= next->window_ns)
            m->memory += s->known;
        if (m->now_ns - s->at_ns <= next->key_window_ns)
            m->key_memory[s->key] += s->key_known;
    }
    if (m->memory < next->rate)
        m->memory = next->rate;
    for (uint32_t k = 0; k < MODEL_KEYS; k++)
        if (m->key_memory[k] < next->key_rate)
            m->key_memory[k] = next->key_rate;
    model_remember(m);
}

/* ---- order -------------------------------------------------------------- */

int model_head(const struct model *m, uint32_t key)
{
    int head = -1;
    for (uint32_t i = 0; i < m->n_jobs; i++) {
        const struct model_job *j = &m->jobs[i];
        if (j->state == MODEL_WAITS && j->key == key &&
            (head < 0 || comes_before(m, j, &m->jobs[head])))
            head = (int)i;
    }
    return head;
}

/* Ageing: each level is worth so much waiting. Of two who came at the same
 * time with the same priority the one found first stays. */
static bool comes_before(const struct model *m, const struct model_job *a,
                         const struct model_job *b)
{
    int64_t age = (int64_t)m->limits.age_ns;
    int64_t of_a = (int64_t)a->came_ns - a->priority * age;
    int64_t of_b = (int64_t)b->came_ns - b->priority * age;
    return of_a != of_b ? of_a < of_b : a->priority > b->priority;
}

static bool may_pass(const struct model *m, const struct model_job *j,
                     uint64_t at_ns)
{
    const struct model_limits *l = &m->limits;
    if (l->bypass_count == 0 && l->bypass_ns == 0)
        return false;
    return (l->bypass_count == 0 || j->passed < l->bypass_count) &&
           (l->bypass_ns == 0 || at_ns - j->came_ns < l->bypass_ns);
}

/* The head, as soon as it may; before that, one behind it that may pass all
 * who stand between. Only for places: nobody passes one that waits for the rate
 * alone. */
uint64_t model_next_of(const struct model *m, uint32_t key, int *ret_number)
{
    int head = model_head(m, key);
    uint64_t best = model_gate_time(m, &m->jobs[head]);
    *ret_number = head;
    if (best != MODEL_NEVER)
        return best;
    for (int i = head + 1, looked = 0; i < (int)m->n_jobs; i++) {
        const struct model_job *j = &m->jobs[i];
        if (j->state != MODEL_WAITS || j->key != key ||
            j->priority != m->jobs[head].priority)
            continue;
        if (++looked > LOOK_AHEAD)
            break;
        uint64_t at = later(model_gate_time(m, j), model_key_time(m, j));
        bool passes = at != MODEL_NEVER;
        for (int k = head; k < i; k++) {
            const struct model_job *ahead = &m->jobs[k];
            if (ahead->state == MODEL_WAITS && ahead->key == key &&
                ahead->priority == j->priority)
                passes = passes && may_pass(m, ahead, at);
        }
        if (passes && at < best) {
            best = at;
            *ret_number = i;
        }
        if (best <= m->now_ns)
            break;
    }
    return best;
}
