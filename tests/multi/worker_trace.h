/* SPDX-License-Identifier: MIT */
/* worker_trace.h - a store that is listened to: the part of worker.c that
 * writes down what was asked of the store, and what it said.
 *
 *   ask NUMBER STEP NAME TOKEN EPOCH MS MODE FLAGS TAKEOVERS FLOOR WAITED
 *                                          when it is asked
 *   say NUMBER CODE SAYS EPOCH MORE FIRST  when it answers
 *
 * STEP is claim, pulse, done, failed, back (given back), acquire, renew or
 * release; or, of a name in doubt, resolve with a result, or retry: let it be
 * done again. NAME is a label, or - in a pool. TOKEN are the first bytes of it.
 * EPOCH is the fence or, when a place is asked for, its weight. MS is the
 * lease, or how long a result stays. The words behind MS are those of the
 * request. MORE is how many owners were lost before.
 * What was asked and never answered may have happened: that is why both are
 * written. */
#ifndef WORKER_TRACE_H
#define WORKER_TRACE_H

static vow_store_ops traced;
static const vow_store_ops *silent_ops;

/* A step until its answer: several in one, with numbers in a row. */
struct question {
    vow_records_fn records;
    vow_permits_fn places;
    void *user;
    uint64_t first;
    size_t n;
};

struct asked {
    const char *step;
    const vow_name *name; /* NULL: a pool */
    const vow_token *token;
    uint64_t epoch;
    uint64_t ms;
    uint32_t mode, flags, takeovers;
    uint64_t floor, waited;
};

/* Labels of all names so far, which not every step is told. The last ones are
 * asked for most. */
static struct labeled {
    vow_name name;
    char label[LABEL];
} * known;
static size_t n_known, known_room;

static const char *label_of(const vow_name *name)
{
    for (size_t i = name == NULL ? 0 : n_known; i > 0; i--)
        if (vow_name_equal(&known[i - 1].name, name))
            return known[i - 1].label;
    return "-";
}

static void remember(const vow_name *name, const char *label)
{
    if (!me.trace || label_of(name)[0] != '-')
        return;
    if (n_known == known_room) {
        known_room = 2 * known_room + HOT;
        known = realloc(known, known_room * sizeof(*known));
        if (known == NULL)
            abort();
    }
    known[n_known].name = *name;
    (void)snprintf(known[n_known++].label, LABEL, "%s", label);
}

static struct question *question(size_t n, void *user)
{
    static uint64_t number;
    struct question *q = calloc(1, sizeof(*q));
    if (q == NULL)
        abort();
    q->user = user;
    q->first = number;
    q->n = n;
    number += n;
    return q;
}

static void note_ask(uint64_t number, const struct asked *a)
{
    uint64_t token;
    memcpy(&token, a->token, sizeof(token));
    note("ask %" PRIu64 " %s %s %" PRIx64 " %" PRIu64 " %" PRIu64
         " %u %u %u %" PRIu64 " %" PRIu64,
         number, a->step, label_of(a->name), token, a->epoch, a->ms, a->mode,
         a->flags, a->takeovers, a->floor, a->waited);
}

static void note_say(uint64_t number, int code, const uint64_t *words)
{
    me.unanswered = me.unanswered || code < 0;
    note("say %" PRIu64 " %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
         number, code < 0 ? vow_error_name(code) : "ok", words[0], words[1],
         words[2], words[3]);
}

static void on_records(int code, const vow_record *records, size_t n,
                       void *user)
{
    struct question *q = user;
    static const uint64_t nothing[4];
    for (size_t i = 0; code == 0 && i < n; i++)
        note_say(q->first + i, 0,
                 (const uint64_t[]){records[i].status, records[i].epoch,
                                    records[i].takeovers, records[i].first});
    for (size_t i = code < 0 ? 0 : n; i < q->n; i++)
        note_say(q->first + i, code, nothing);
    q->records(code, records, n, q->user);
    free(q);
}

static void on_places(int code, const vow_pool_permit *places, size_t n,
                      void *user)
{
    struct question *q = user;
    static const uint64_t nothing[4];
    for (size_t i = 0; code == 0 && i < n; i++)
        note_say(q->first + i, 0,
                 (const uint64_t[]){places[i].status, places[i].fence,
                                    places[i].ahead, 0});
    for (size_t i = code < 0 ? 0 : n; i < q->n; i++)
        note_say(q->first + i, code, nothing);
    q->places(code, places, n, q->user);
    free(q);
}

static struct question *ask_records(const struct asked *a, vow_records_fn done,
                                    void *user)
{
    struct question *q = question(1, user);
    q->records = done;
    note_ask(q->first, a);
    return q;
}

static struct question *ask_places(const struct asked *a, vow_permits_fn done,
                                   void *user)
{
    struct question *q = question(1, user);
    q->places = done;
    note_ask(q->first, a);
    return q;
}

static void t_claim(vow_store *s, const vow_claim_request *a,
                    vow_records_fn done, void *user)
{
    struct asked what = {.step = "claim",
                         .name = &a->name,
                         .token = &a->token,
                         .ms = a->lease_ms,
                         .mode = a->mode,
                         .flags = a->flags,
                         .takeovers = a->takeovers,
                         .floor = a->floor,
                         .waited = a->waited};
    silent_ops->claim(s, a, on_records, ask_records(&what, done, user));
}

static void t_pulse(vow_store *s, const vow_hold *h, size_t n, uint64_t lease,
                    vow_records_fn done, void *user)
{
    struct question *q = question(n, user);
    q->records = done;
    for (size_t i = 0; i < n; i++) {
        struct asked what = {.step = "pulse",
                             .name = &h[i].name,
                             .token = &h[i].token,
                             .epoch = h[i].epoch,
                             .ms = lease,
                             .mode = h[i].mode};
        note_ask(q->first + i, &what);
    }
    silent_ops->pulse(s, h, n, lease, on_records, q);
}

static void t_commit(vow_store *s, const vow_commit_request *a,
                     vow_records_fn done, void *user)
{
    const char *step = a->outcome == VOW_OUTCOME_DONE     ? "done"
                       : a->outcome == VOW_OUTCOME_FAILED ? "failed"
                                                          : "back";
    if ((a->flags & VOW_COMMIT_RESOLVE) != 0)
        step = a->outcome == VOW_OUTCOME_ABANDONED ? "retry" : "resolve";
    struct asked what = {.step = step,
                         .name = &a->hold.name,
                         .token = &a->hold.token,
                         .epoch = a->hold.epoch,
                         .ms = a->ttl_ms,
                         .mode = a->hold.mode,
                         .flags = a->flags};
    silent_ops->commit(s, a, on_records, ask_records(&what, done, user));
}

static void t_acquire(vow_store *s, const vow_permit_request *a,
                      vow_permits_fn done, void *user)
{
    struct asked what = {.step = "acquire",
                         .token = &a->token,
                         .epoch = a->weight,
                         .ms = a->lease_ms};
    silent_ops->acquire(s, a, on_places, ask_places(&what, done, user));
}

static void t_release(vow_store *s, const vow_permit_hold *h,
                      vow_permits_fn done, void *user)
{
    struct asked what = {.step = "release", .token = &h->token};
    silent_ops->release(s, h, on_places, ask_places(&what, done, user));
}

static void t_renew(vow_store *s, const vow_permit_hold *h, size_t n,
                    uint64_t lease, vow_permits_fn done, void *user)
{
    struct question *q = question(n, user);
    q->places = done;
    for (size_t i = 0; i < n; i++) {
        struct asked what = {
            .step = "renew", .token = &h[i].token, .ms = lease};
        note_ask(q->first + i, &what);
    }
    silent_ops->renew(s, h, n, lease, on_places, q);
}

static void listen_to(vow_store *s)
{
    silent_ops = s->ops;
    traced = *s->ops;
    traced.claim = t_claim;
    traced.pulse = t_pulse;
    traced.commit = t_commit;
    traced.acquire = t_acquire;
    traced.release = t_release;
    traced.renew = t_renew;
    s->ops = &traced;
}

#endif
