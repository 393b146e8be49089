/* SPDX-License-Identifier: MIT */
/* replay.c - the search for an order of the steps on a name; see replay.h.
 *
 * HOW   `ways` are all records that the answers so far allow, each with the
 *       steps under way that have happened there. When an answer comes, each
 *       way is followed by the steps under way, in all orders, until the
 *       answered step has happened. A step that changes nothing happens as soon
 *       as its answer fits. Steps that may have happened, or may happen once
 *       more, are tried only if an answer cannot be explained without them; and
 *       if there is still no order, all over again and at any time.
 */
#include "replay.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64, WAYS_MAX = 20000, EFFORT = 4000000, BUCKETS = 1 << 12 };
enum { BOUNDS = offsetof(struct replay_way, happened) };

/* Ways, without those that another way covers. */
struct way_set {
    struct replay_way *ways;
    uint32_t *next; /* in the bucket; UINT32_MAX: the last */
    size_t n, room;
    uint32_t buckets[BUCKETS];
    bool hashed;
};

/* A step that may happen without an answer, or beside the answer. */
struct loose {
    size_t step;
    uint64_t until_us;
    uint64_t below; /* the epoch of a grant: steps later got larger ones */
    int slot;       /* below 0: as often as needed */
    bool undo;
};

struct moment_of_step {
    uint64_t at_us;
    size_t step;
    bool answer;
};

struct search {
    const struct replay_step *steps;
    size_t n;
    const struct replay_opts *opts;
    struct moment_of_step *moments;
    uint64_t *waited, *grants; /* asked for; told of nobody's grant */
    uint64_t *spent;           /* epochs of results without a time */
    size_t n_waited, n_grants, n_spent;
    struct way_set *ways, *after, *seen, *changed;
    size_t slots[SLOTS];    /* steps under way */
    uint64_t used, answers; /* slots; slots of steps with an answer */
    struct loose *loose;
    size_t n_loose;
    bool eager; /* steps without an answer happen at any time */
    size_t effort, effort_max;
    bool wide;
};

/* ---- sets ---------------------------------------------------------------- */

static size_t way_size(const struct replay_way *w)
{
    return offsetof(struct replay_way, left) + w->n_left * sizeof(w->left[0]);
}

static uint32_t way_bucket(const struct replay_way *w)
{
    const uint64_t *words = (const uint64_t *)(const void *)w;
    uint64_t h = 0;
    for (size_t i = BOUNDS / sizeof(*words); i < way_size(w) / sizeof(*words);
         i++)
        h = (h ^ words[i]) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(h >> 40) % BUCKETS;
}

static bool ways_equal(const struct replay_way *a, const struct replay_way *b)
{
    return a->n_left == b->n_left && memcmp(a, b, way_size(a)) == 0;
}

/* Returns whether `a` explains all that `b` explains. */
static bool way_covers(const struct replay_way *a, const struct replay_way *b)
{
    return a->n_left == b->n_left && a->top <= b->top &&
           a->time_us <= b->time_us && a->end.lo <= b->end.lo &&
           a->end.hi >= b->end.hi && a->refresh_end.lo <= b->refresh_end.lo &&
           a->refresh_end.hi >= b->refresh_end.hi &&
           memcmp(&a->happened, &b->happened, way_size(a) - BOUNDS) == 0;
}

static void set_clear(struct way_set *s)
{
    s->n = 0;
    s->hashed = false;
}

static void set_link(struct way_set *s, size_t i)
{
    uint32_t bucket = way_bucket(&s->ways[i]);
    s->next[i] = s->buckets[bucket];
    s->buckets[bucket] = (uint32_t)i;
}

static bool set_has(struct way_set *s, const struct replay_way *w)
{
    if (s->n < 16) {
        for (size_t i = 0; i < s->n; i++)
            if (way_covers(&s->ways[i], w))
                return true;
        return false;
    }
    if (!s->hashed) {
        memset(s->buckets, 0xff, sizeof(s->buckets));
        for (size_t i = 0; i < s->n; i++)
            set_link(s, i);
        s->hashed = true;
    }
    for (uint32_t i = s->buckets[way_bucket(w)]; i != UINT32_MAX;
         i = s->next[i])
        if (way_covers(&s->ways[i], w))
            return true;
    return false;
}

static void set_add(struct way_set *s, const struct replay_way *w)
{
    if (set_has(s, w))
        return;
    if (s->n == s->room) {
        s->room = s->room * 2 + 64;
        s->ways = realloc(s->ways, s->room * sizeof(*s->ways));
        s->next = realloc(s->next, s->room * sizeof(*s->next));
        VOW__ASSERT(s->ways != NULL && s->next != NULL);
    }
    s->ways[s->n++] = *w;
    if (s->hashed)
        set_link(s, s->n - 1);
}

static void set_free(struct way_set *s)
{
    free(s->ways);
    free(s->next);
    free(s);
}

/* ---- what the history tells ---------------------------------------------- */

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static size_t sort_unique(uint64_t *numbers, size_t n)
{
    size_t kept = 0;
    qsort(numbers, n, sizeof(*numbers), compare_numbers);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    return kept;
}

static bool tells_grant(const struct replay_step *s)
{
    return s->kind == REPLAY_CLAIM && s->answered && s->code == 0 &&
           s->status == VOW_STATUS_OWNED;
}

/* The claim is repeated with the token, and may have been granted before. */
static bool is_repeated(const struct search *f, uint64_t token)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct replay_step *s = &f->steps[i];
        if (s->kind == REPLAY_CLAIM && s->token == token &&
            (!s->answered || s->again_us != 0))
            return true;
    }
    return false;
}

/* Epochs that a claim without an answer may have been granted. */
static void list_grants(struct search *f)
{
    uint64_t *granted = calloc(f->n + 1, sizeof(*granted));
    size_t n_granted = 0, n = 0;
    VOW__ASSERT(granted != NULL);
    for (size_t i = 0; i < f->n; i++)
        if (tells_grant(&f->steps[i]) && !is_repeated(f, f->steps[i].token))
            granted[n_granted++] = f->steps[i].told_epoch;
    n_granted = sort_unique(granted, n_granted);
    for (size_t i = 0; i < 2 * f->n; i++) {
        const struct replay_step *s = &f->steps[i / 2];
        uint64_t told = i % 2 == 0 ? s->told_epoch : s->told_first;
        if (s->answered && s->code == 0 && told != 0 &&
            bsearch(&told, granted, n_granted, sizeof(told), compare_numbers) ==
                NULL)
            f->grants[n++] = told;
    }
    f->n_grants = sort_unique(f->grants, n);
    free(granted);
}

static int compare_moments(const void *a, const void *b)
{
    const struct moment_of_step *x = a, *y = b;
    if (x->at_us != y->at_us)
        return x->at_us < y->at_us ? -1 : 1;
    return x->answer - y->answer;
}

static size_t list_events(struct search *f)
{
    size_t n = 0;
    f->n_waited = f->n_spent = 0;
    for (size_t i = 0; i < f->n; i++) {
        const struct replay_step *s = &f->steps[i];
        f->moments[n++] = (struct moment_of_step){s->sent_us, i, false};
        if (s->answered)
            f->moments[n++] = (struct moment_of_step){s->done_us, i, true};
        if (s->waited != 0)
            f->waited[f->n_waited++] = s->waited;
        if (s->kind == REPLAY_COMMIT && s->ms == 0)
            f->spent[f->n_spent++] = s->epoch;
    }
    f->n_waited = sort_unique(f->waited, f->n_waited);
    f->n_spent = sort_unique(f->spent, f->n_spent);
    qsort(f->moments, n, sizeof(*f->moments), compare_moments);
    return n;
}

/* ---- steps under way ----------------------------------------------------- */

static int take_slot(struct search *f, size_t step)
{
    for (int i = 0; i < SLOTS; i++)
        if ((f->used & UINT64_C(1) << i) == 0) {
            f->used |= UINT64_C(1) << i;
            f->slots[i] = step;
            return i;
        }
    return -1;
}

static void add_loose(struct search *f, size_t step, uint64_t until_us,
                      bool undo, int slot)
{
    struct loose *l = &f->loose[f->n_loose++];
    *l = (struct loose){step, until_us, UINT64_MAX, slot, undo};
    for (size_t i = 0; i < f->n; i++) {
        const struct replay_step *s = &f->steps[i];
        if (tells_grant(s) && s->sent_us > until_us &&
            s->token != f->steps[step].token && s->told_epoch < l->below)
            l->below = s->told_epoch;
    }
}

static void step_sent(struct search *f, size_t i)
{
    const struct replay_step *s = &f->steps[i];
    int slot = s->again_us == 0 || s->answered ? take_slot(f, i) : -1;
    if (s->answered && slot < 0)
        f->wide = true;
    else if (s->answered)
        f->answers |= UINT64_C(1) << slot;
    else
        add_loose(f, i, s->again_us != 0 ? s->again_us : s->done_us, false,
                  slot);
    if (s->answered && s->again_us != 0)
        add_loose(f, i, s->again_us, false, -1);
    if (s->undone_us != 0)
        add_loose(f, i, s->undone_us, true, -1);
}

static void clear_slots(struct search *f, uint64_t bits)
{
    if (bits == 0)
        return;
    f->used &= ~bits;
    f->answers &= ~bits;
    set_clear(f->seen);
    for (size_t i = 0; i < f->ways->n; i++) {
        f->ways->ways[i].happened &= ~bits;
        set_add(f->seen, &f->ways->ways[i]);
    }
    struct way_set *was = f->ways;
    f->ways = f->seen;
    f->seen = was;
}

/* Forgets steps that can happen no more since an answer at `last_us`. */
static void drop_loose(struct search *f, uint64_t last_us)
{
    size_t n = 0;
    uint64_t bits = 0;
    for (size_t i = 0; i < f->n_loose; i++) {
        const struct loose *l = &f->loose[i];
        if (l->until_us >= last_us)
            f->loose[n++] = *l;
        else if (l->slot >= 0)
            bits |= UINT64_C(1) << l->slot;
    }
    f->n_loose = n;
    clear_slots(f, bits);
}

/* ---- the search ---------------------------------------------------------- */

static bool same_but_happened(const struct replay_way *a,
                              const struct replay_way *b)
{
    struct replay_way c = *a;
    c.happened = b->happened;
    return ways_equal(&c, b);
}

static struct replay_case make_case(const struct search *f, size_t step,
                                    uint64_t now_us)
{
    return (struct replay_case){.step = &f->steps[step],
                                .opts = f->opts,
                                .now_us = now_us,
                                .grants = f->grants,
                                .n_grants = f->n_grants,
                                .waited = f->waited,
                                .n_waited = f->n_waited,
                                .spent = f->spent,
                                .n_spent = f->n_spent};
}

/* No answer told the caller of the claim about this grant. */
static bool is_untold(const struct search *f, const struct replay_way *w,
                      const struct replay_step *claim)
{
    bool owns = w->state == RULES_RUNNING && w->token == claim->token;
    bool refreshes = w->refresh_epoch != 0 && w->refresh_failed == 0 &&
                     w->refresh_token == claim->token;
    uint64_t epoch = refreshes ? w->refresh_epoch : w->epoch;
    if (!owns && !refreshes)
        return false;
    for (size_t i = 0; i < f->n; i++)
        if (tells_grant(&f->steps[i]) && f->steps[i].token == claim->token &&
            f->steps[i].told_epoch << REPLAY_EPOCH_SHIFT == epoch)
            return false;
    return true;
}

static size_t decide_step(struct search *f, const struct replay_case *c,
                          const struct replay_way *w, struct replay_way *out)
{
    size_t n = replay_decide(c, w, out);
    f->effort++;
    if (n <= REPLAY_OUTCOMES)
        return n;
    f->wide = true;
    return 0;
}

static void follow_loose(struct search *f, const struct replay_way *w,
                         uint64_t now_us)
{
    struct replay_way out[REPLAY_OUTCOMES];
    for (size_t k = 0; k < f->n_loose; k++) {
        const struct loose *l = &f->loose[k];
        struct replay_case c = make_case(f, l->step, now_us);
        uint64_t bit = l->slot < 0 ? 0 : UINT64_C(1) << l->slot;
        c.unsure = true;
        c.undo = l->undo;
        c.below = l->below;
        if (c.now_us > l->until_us)
            c.now_us = l->until_us;
        if ((w->happened & bit) != 0 || (l->undo && !is_untold(f, w, c.step)))
            continue;
        size_t n = decide_step(f, &c, w, out);
        for (size_t i = 0; i < n; i++) {
            if (same_but_happened(&out[i], w))
                continue;
            out[i].happened |= bit;
            set_add(f->seen, &out[i]);
        }
    }
}

/* Returns whether a step with this answer never changes the record: the step
 * may then happen as soon as the answer fits. */
static bool reads_only(const struct replay_step *s)
{
    if (s->code != 0 || s->kind == REPLAY_PEEK)
        return true;
    if (s->kind == REPLAY_FORGET || s->kind == REPLAY_CANCEL)
        return false;
    if (s->status == VOW_STATUS_OWNED || s->status == VOW_STATUS_CANCELED)
        return false;
    bool gives_up = s->kind == REPLAY_CLAIM &&
                    s->status == VOW_STATUS_SETTLED && s->told_failed;
    return !gives_up;
}

/* Follows one way by each step under way. Returns whether the step in `goal`
 * has happened there. */
static bool follow_way(struct search *f, struct replay_way *w, uint64_t goal,
                       uint64_t now_us, bool loose)
{
    struct replay_way out[REPLAY_OUTCOMES];
    set_clear(f->changed);
    for (uint64_t left = f->answers & ~w->happened;
         left != 0 && (w->happened & goal) == 0; left &= left - 1) {
        int slot = __builtin_ctzll(left);
        const struct replay_case c = make_case(f, f->slots[slot], now_us);
        size_t n = decide_step(f, &c, w, out);
        bool fits = false, reads = reads_only(c.step);
        for (size_t i = 0; i < n && reads && !fits; i++)
            fits = same_but_happened(&out[i], w);
        if (fits)
            w->happened |= UINT64_C(1) << slot;
        for (size_t i = 0; i < n && !fits; i++) {
            out[i].happened = UINT64_C(1) << slot;
            set_add(f->changed, &out[i]);
        }
    }
    if ((w->happened & goal) != 0) {
        if (f->eager)
            follow_loose(f, w, now_us);
        return true;
    }
    for (size_t i = 0; i < f->changed->n; i++) {
        f->changed->ways[i].happened |= w->happened;
        set_add(f->seen, &f->changed->ways[i]);
    }
    if (loose)
        follow_loose(f, w, now_us);
    return false;
}

/* Finds the ways on which the step in `goal` has happened by now. */
static bool find_ways(struct search *f, uint64_t goal, uint64_t now_us,
                      bool loose)
{
    set_clear(f->seen);
    set_clear(f->after);
    for (size_t i = 0; i < f->ways->n; i++)
        set_add(f->seen, &f->ways->ways[i]);
    for (size_t i = 0; i < f->seen->n; i++) {
        struct replay_way w = f->seen->ways[i];
        if (follow_way(f, &w, goal, now_us, loose)) {
            w.happened &= ~goal;
            set_add(f->after, &w);
        }
        f->wide = f->wide || f->seen->n > WAYS_MAX || f->effort > f->effort_max;
        if (f->wide)
            return true;
    }
    return f->after->n > 0;
}

static bool step_answered(struct search *f, size_t step, uint64_t now_us)
{
    uint64_t goal = 0;
    for (int i = 0; i < SLOTS; i++)
        if ((f->answers & UINT64_C(1) << i) != 0 && f->slots[i] == step)
            goal = UINT64_C(1) << i;
    if ((f->eager || !find_ways(f, goal, now_us, false)) &&
        !find_ways(f, goal, now_us, true))
        return false;
    struct way_set *was = f->ways;
    f->ways = f->after;
    f->after = was;
    f->used &= ~goal;
    f->answers &= ~goal;
    return true;
}

/* Returns the first step that no order explains, or `n`. */
static size_t search_order(struct search *f, size_t n_moments)
{
    struct replay_way first;
    memset(&first, 0, sizeof(first));
    first.unknown = (f->opts->allows & REPLAY_FORGOT) != 0;
    f->used = f->answers = 0;
    f->n_loose = 0;
    set_clear(f->ways);
    set_add(f->ways, &first);
    uint64_t last_us = 0;
    for (size_t i = 0; i < n_moments && !f->wide; i++) {
        const struct moment_of_step *m = &f->moments[i];
        if (!m->answer) {
            step_sent(f, m->step);
            continue;
        }
        drop_loose(f, last_us);
        if (!step_answered(f, m->step, m->at_us))
            return m->step;
        last_us = m->at_us;
    }
    return f->n;
}

struct replay_result replay_run(const struct replay_step *steps, size_t n,
                                const struct replay_opts *opts)
{
    struct search f = {.steps = steps, .n = n, .opts = opts};
    f.effort_max = opts->effort == 0 ? EFFORT : opts->effort;
    f.moments = calloc(2 * n + 1, sizeof(*f.moments));
    f.waited = calloc(n + 1, sizeof(*f.waited));
    f.spent = calloc(n + 1, sizeof(*f.spent));
    f.grants = calloc(2 * n + 1, sizeof(*f.grants));
    f.loose = calloc(2 * n + 1, sizeof(*f.loose));
    f.ways = calloc(1, sizeof(*f.ways));
    f.after = calloc(1, sizeof(*f.after));
    f.seen = calloc(1, sizeof(*f.seen));
    f.changed = calloc(1, sizeof(*f.changed));
    VOW__ASSERT(f.moments != NULL && f.waited != NULL && f.grants != NULL);
    VOW__ASSERT(f.spent != NULL);
    VOW__ASSERT(f.loose != NULL && f.ways != NULL && f.after != NULL);
    VOW__ASSERT(f.seen != NULL && f.changed != NULL);
    size_t n_moments = list_events(&f);
    list_grants(&f);
    size_t step = search_order(&f, n_moments);
    if (step < n && !f.wide) {
        f.eager = true;
        step = search_order(&f, n_moments);
    }
    free(f.moments);
    free(f.waited);
    free(f.spent);
    free(f.grants);
    free(f.loose);
    set_free(f.ways);
    set_free(f.after);
    set_free(f.seen);
    set_free(f.changed);
    return (struct replay_result){.verdict = f.wide     ? REPLAY_WIDE
                                             : step < n ? REPLAY_REFUSED
                                                        : REPLAY_EXPLAINED,
                                  .step = step,
                                  .effort = f.effort};
}
