/* SPDX-License-Identifier: MIT */
/* sim_net.c - messages between simulated processes and the one book.
 *
 * HOW   A step is a request, which arrives once, twice or never. What the book
 *       answers is a reply, which arrives or not. The first reply ends the
 *       step; if none comes in time it ends with VOW_EUNSURE, by a timer of the
 *       process. Requests of one process keep their order, but for those that
 *       come a second time. Letters of the book go out at once, and may get
 *       lost. What arrives at a stopped process waits for it.
 */
#include "sim_step.h"

#include <stdlib.h>
#include <string.h>

static const char *const KIND[] = {
    "claim", "peek", "pulse",   "commit",  "forget", "cancel", "list",
    "write", "read", "acquire", "release", "renew",  "limit",  "pools"};
static const char *const SAYS[] = {"none",  "OWN",  "wait",   "settled",
                                   "DOUBT", "LOST", "cancel", "busy"};

struct message {
    struct sim_event event;
    struct sim_step *step; /* NULL: a letter */
    struct sim_node *node;
    int code;
    struct vow__memory_answer record;
    vow_record *records;
    vow_pool_permit *places;
    size_t n;
    struct vow__memory_records sheet;
    struct vow__memory_chunks page;
    struct vow__memory_pool_answer pool;
    vow_pool_info *pools;
    size_t pools_size;
    struct vow__memory_event news;
};

static void send_again(struct sim_step *t, uint64_t ns);
static void arrive(struct sim *s, struct sim_event *e);
static void refuse(struct sim *s, struct sim_event *e);
static void execute(struct sim_step *t, struct message *m);
static void execute_record(struct sim_step *t, const struct vow__memory_step *s,
                           struct message *m);
static void execute_many(struct sim_step *t, const struct vow__memory_step *s,
                         struct message *m);
static void execute_place(struct sim_step *t, const struct vow__memory_step *s,
                          struct message *m);
static void say_answer(const struct sim_step *t, const struct message *m);
static void reply(struct sim *s, struct sim_event *e);
static void unsure(void *step);
static void finish(struct sim_step *t, struct message *m);
static void end(struct sim_step *t, struct message *m);
static void answer(struct sim_step *t, const struct message *m);
static void letter(struct sim *s, struct sim_event *e);
static void tell(struct sim_node *n, struct vow__memory_event *news);
static void message_free(struct message *m);
static void step_unref(struct sim_step *t);

void *sim_zeroed(size_t n, size_t size)
{
    void *p = calloc(n == 0 ? 1 : n, size);
    CHECK(p != NULL);
    return p;
}

/* ---- the life of a step ------------------------------------------------- */

void sim_send(struct sim_step *t)
{
    struct sim_node *n = t->node;
    struct sim *s = n->sim;
    const struct sim_faults *f = &s->faults;
    t->sent_ns = s->now_ns;
    if (n->dead)
        return; /* never answered: it ends with the store */
    if (n->instant) {
        struct message *m = sim_zeroed(1, sizeof(*m));
        execute(t, m);
        finish(t, m);
        return;
    }
    if (sim_chance(s, f->refuse) || (n->cut_ns > s->now_ns && sim_draw(s, 2))) {
        struct message *m = sim_zeroed(1, sizeof(*m));
        m->code = VOW_ESTORE;
        m->step = t;
        t->refs++;
        sim_at(s, &m->event, s->now_ns + sim_draw(s, 1000) * SIM_US, refuse);
        return;
    }
    vow_call_at(&t->timeout, n->loop, vow_loop_now_ns(n->loop) + s->timeout_ns,
                unsure, t);
    if (sim_chance(s, f->lose_request)) {
        sim_say(s, n, "%s is lost", KIND[t->kind]);
        return;
    }
    uint64_t ns = s->now_ns + sim_delay(s);
    if (ns <= n->arrival_ns)
        ns = n->arrival_ns + 1;
    n->arrival_ns = ns;
    send_again(t, ns);
    if (!sim_chance(s, f->twice))
        return;
    uint64_t again =
        ns + 1 + sim_draw(s, f->straggle ? 3 * s->timeout_ns : 10 * SIM_MS);
    send_again(t, again);
    if (!f->straggle)
        n->arrival_ns = again;
}

static void send_again(struct sim_step *t, uint64_t ns)
{
    struct message *m = sim_zeroed(1, sizeof(*m));
    m->step = t;
    t->refs++;
    sim_at(t->node->sim, &m->event, ns, arrive);
}

static void arrive(struct sim *s, struct sim_event *e)
{
    struct message *m = VOW__OUTER(e, struct message, event);
    struct sim_step *t = m->step;
    struct sim_node *n = t->node;
    if (n->inst == NULL || n->cut_ns > s->now_ns) {
        sim_say(s, n, "%s never arrives", KIND[t->kind]);
        message_free(m);
        return;
    }
    execute(t, m);
    if (sim_chance(s, s->faults.lose_reply)) {
        sim_say(s, n, "the answer to %s is lost", KIND[t->kind]);
        message_free(m);
        return;
    }
    sim_at(s, &m->event, s->now_ns + sim_delay(s), reply);
}

/* It could not be sent: that is known, and nothing has happened. */
static void refuse(struct sim *s, struct sim_event *e)
{
    reply(s, e);
}

static void reply(struct sim *s, struct sim_event *e)
{
    struct message *m = VOW__OUTER(e, struct message, event);
    struct sim_step *t = m->step;
    struct sim_node *n = t->node;
    bool cut = n->cut_ns > s->now_ns && m->code != VOW_ESTORE;
    if (n->dead || t->over || cut) {
        message_free(m);
        return;
    }
    if (n->stopped_ns > s->now_ns) { /* before its timers, or behind them */
        sim_at(s, e, n->stopped_ns + sim_draw(s, 2), reply);
        return;
    }
    sim_node_clock(n);
    finish(t, m);
    sim_node_run(n);
}

static void unsure(void *step)
{
    struct sim_step *t = step;
    struct message *m = sim_zeroed(1, sizeof(*m));
    m->code = VOW_EUNSURE;
    sim_say(t->node->sim, t->node, "%s: no answer", KIND[t->kind]);
    finish(t, m);
}

/* From now on the process can say for which run it waits. */
static void hear(struct sim_node *n, const vow_record *r)
{
    struct sim_name *x = sim_name_of(n->sim, &r->name);
    if (x->heard[n->number] == r->first)
        return;
    x->heard[n->number] = r->first;
    x->heard_ns[n->number] = n->sim->now_ns;
}

static void finish(struct sim_step *t, struct message *m)
{
    const vow_record *r = &m->record.record;
    vow__list_remove(&t->node->steps, &t->link);
    if (t->kind == CLAIM && m->code == 0 && r->status == VOW_STATUS_WAITING &&
        (t->claim.flags & VOW_CLAIM_NOWAIT) == 0)
        hear(t->node, r);
    end(t, m);
}

/* The reference of the process goes with the message. */
static void end(struct sim_step *t, struct message *m)
{
    t->over = true;
    (void)vow_call_stop(&t->timeout);
    if (m->step != NULL)
        t->refs--;
    m->step = t;
    answer(t, m);
    message_free(m);
}

void sim_store_end(struct sim_node *n, int code)
{
    vow_link *l;
    while ((l = vow__list_take(&n->steps)) != NULL) {
        struct message *m = sim_zeroed(1, sizeof(*m));
        m->code = code;
        end(VOW__OUTER(l, struct sim_step, link), m);
    }
}

static void step_unref(struct sim_step *t)
{
    if (--t->refs > 0)
        return;
    vow_bytes_unref(t->commit.value);
    vow_bytes_unref(t->chunk);
    free(t->names);
    free(t->holds);
    free(t->places);
    free(t);
}

static void message_free(struct message *m)
{
    struct sim_step *t = m->step;
    vow__memory_answer_fini(&m->record);
    vow__memory_answer_fini(&m->news.answer);
    vow__memory_chunks_fini(&m->page);
    free(m->records);
    free(m->places);
    if (t != NULL) {
        struct vow__memory_state *b = t->node->sim->book;
        vow__mem_free(&b->alloc, m->sheet.records, m->sheet.size);
        vow__mem_free(&b->alloc, m->pools, m->pools_size);
        step_unref(t);
    }
    free(m);
}

/* ---- at the book -------------------------------------------------------- */

static void execute(struct sim_step *t, struct message *m)
{
    struct sim_node *n = t->node;
    const struct vow__memory_step s = {.state = n->sim->book,
                                       .instance = n->inst,
                                       .now_us = sim_now_us(n->sim)};
    if (m->step == NULL) {
        m->step = t;
        t->refs++;
    }
    m->n = 1;
    switch (t->kind) {
    case PEEK:
    case PULSE:
    case LIST:
    case READ:
    case POOLS:
        execute_many(t, &s, m);
        break;
    case ACQUIRE:
    case RELEASE:
    case RENEW:
    case LIMIT:
        execute_place(t, &s, m);
        break;
    default:
        execute_record(t, &s, m);
    }
    say_answer(t, m);
    sim_mail(n->sim);
}

static void execute_record(struct sim_step *t, const struct vow__memory_step *s,
                           struct message *m)
{
    struct sim_node *n = t->node;
    const vow_record *r = &m->record.record;
    switch (t->kind) {
    case CLAIM:
        m->code = vow__memory_claim(s, &t->claim, &m->record);
        SIM_CHECK(n->sim, m->code == 0);
        n->sent_ns = t->sent_ns;
        sim_saw_claim(n, &t->claim, r);
        break;
    case COMMIT:
        m->code = vow__memory_commit(s, &t->commit, &m->record);
        SIM_CHECK(n->sim, m->code == 0);
        sim_saw_commit(n, &t->commit, r);
        break;
    case FORGET:
        m->code = vow__memory_forget(s, &t->name, t->number, &m->record);
        sim_saw_forget(n, &t->name, t->number, r);
        break;
    case CANCEL:
        m->code = vow__memory_cancel(s, &t->name, &m->record);
        sim_saw_cancel(n, &t->name, r);
        break;
    default:
        m->code = vow__memory_write(s, &t->hold, t->from, t->chunk, &m->record);
    }
}

static void execute_many(struct sim_step *t, const struct vow__memory_step *s,
                         struct message *m)
{
    struct sim_node *n = t->node;
    switch (t->kind) {
    case PEEK:
        m->code = vow__memory_peek(s, t->names, t->n, &m->sheet);
        for (size_t i = 0; i < t->n; i++)
            sim_saw_peek(n, &t->names[i], &m->sheet.records[i]);
        break;
    case PULSE:
        m->n = t->n;
        m->records = sim_zeroed(t->n, sizeof(*m->records));
        m->code = vow__memory_pulse(s, t->holds, t->n, t->number, m->records);
        for (size_t i = 0; i < t->n; i++)
            sim_saw_pulse(n, &t->holds[i], t->number, &m->records[i]);
        break;
    case LIST:
        m->code = vow__memory_list(s, &m->sheet);
        break;
    case READ:
        m->code = vow__memory_read(s, &t->name, t->number, t->from, &m->page);
        break;
    default:
        m->code = vow__memory_pools(s, &m->pools, &m->n, &m->pools_size);
    }
    SIM_CHECK(n->sim, m->code == 0 || m->code == VOW_ENOENT);
}

static void execute_place(struct sim_step *t, const struct vow__memory_step *s,
                          struct message *m)
{
    struct sim_node *n = t->node;
    m->places = sim_zeroed(t->n + 1, sizeof(*m->places));
    if (t->kind == ACQUIRE) {
        m->code = vow__memory_acquire(s, &t->place, m->places);
        sim_saw_places(n->sim, &t->place.token);
        if (m->code == 0)
            sim_saw_place(n, &t->place.token, m->places);
    } else if (t->kind == RELEASE) {
        vow__memory_release(s, &t->places[0], m->places);
        sim_saw_places(n->sim, &t->places[0].token);
    } else if (t->kind == RENEW) {
        m->n = t->n;
        vow__memory_renew(s, t->places, t->n, t->number, m->places);
        sim_saw_places(n->sim, NULL);
        for (size_t i = 0; i < t->n; i++)
            sim_saw_place(n, &t->places[i].token, &m->places[i]);
    } else {
        m->code = vow__memory_limit(s, &t->name, t->set ? &t->limits : NULL,
                                    t->label, &m->pool);
        sim_saw_places(n->sim, NULL);
    }
}

static void say_answer(const struct sim_step *t, const struct message *m)
{
    const struct sim_node *n = t->node;
    const struct sim *s = n->sim;
    const vow_record *r = &m->record.record;
    const char *kind = KIND[t->kind];
    if (!s->tell)
        return;
    if (m->code != 0)
        sim_say(s, n, "%s -> %s", kind, vow_error_name(m->code));
    else if (m->places != NULL)
        for (size_t i = 0; i < m->n; i++)
            sim_say(s, n, "%s of %02x -> %s, fence %llu, again %llu us", kind,
                    t->places == NULL ? t->place.token.bytes[0]
                                      : t->places[i].token.bytes[0],
                    SAYS[m->places[i].status],
                    (unsigned long long)m->places[i].fence,
                    (unsigned long long)m->places[i].again_us);
    else if (m->records != NULL)
        for (size_t i = 0; i < m->n; i++)
            sim_say(s, n, "%s of %02x by %02x -> %s, epoch %llu", kind,
                    t->holds[i].name.hash[0], t->holds[i].token.bytes[0],
                    SAYS[m->records[i].status],
                    (unsigned long long)m->records[i].epoch);
    else
        sim_say(s, n, "%s of %02x by %02x -> %s, epoch %llu, left %llu ms",
                kind, r->name.hash[0],
                t->kind == CLAIM ? t->claim.token.bytes[0]
                                 : t->commit.hold.token.bytes[0],
                SAYS[r->status], (unsigned long long)r->epoch,
                (unsigned long long)r->left_ms);
}

/* ---- at the process ----------------------------------------------------- */

static void answer(struct sim_step *t, const struct message *m)
{
    size_t n = m->code == 0 ? m->n : 0;
    switch (t->kind) {
    case PEEK:
    case LIST:
        t->done.records(m->code, m->sheet.records, m->sheet.n, t->user);
        break;
    case PULSE:
        t->done.records(m->code, m->records, n, t->user);
        break;
    case READ:
        t->done.chunks(m->code, m->page.chunks, m->page.n, m->page.next,
                       t->user);
        break;
    case ACQUIRE:
    case RELEASE:
    case RENEW:
        t->done.places(m->code, m->places, n, t->user);
        break;
    case LIMIT:
        t->done.pools(m->code, &m->pool.info, n, t->user);
        break;
    case POOLS:
        t->done.pools(m->code, m->pools, n, t->user);
        break;
    default:
        t->done.records(m->code, &m->record.record, n, t->user);
    }
}

/* ---- letters ------------------------------------------------------------ */

static void wake(void *node)
{
    struct sim_node *n = node;
    n->mail = true;
}

void sim_mail(struct sim *s)
{
    struct vow__memory_event news;
    for (uint32_t i = 0; i < s->n_nodes; i++) {
        struct sim_node *n = &s->nodes[i];
        const struct vow__memory_step at = {
            .state = s->book, .instance = n->inst, .now_us = sim_now_us(s)};
        while (n->mail && n->inst != NULL) {
            memset(&news, 0, sizeof(news));
            n->mail = vow__memory_event_take(&at, &news);
            if (!n->mail)
                break;
            struct message *m = sim_zeroed(1, sizeof(*m));
            m->node = n;
            m->news = news;
            if (news.answer.record.label == news.answer.label)
                m->news.answer.record.label = m->news.answer.label;
            if (news.answer.record.runner == news.answer.runner)
                m->news.answer.record.runner = m->news.answer.runner;
            if (sim_chance(s, s->faults.lose_wake)) {
                sim_say(s, n, "a wake-up of kind %d is lost", news.kind);
                message_free(m);
            } else {
                sim_at(s, &m->event, s->now_ns + sim_delay(s), letter);
            }
        }
        n->mail = false;
    }
}

static void letter(struct sim *s, struct sim_event *e)
{
    struct message *m = VOW__OUTER(e, struct message, event);
    struct sim_node *n = m->node;
    if (!n->dead && !n->closed && n->stopped_ns > s->now_ns) {
        sim_at(s, e, n->stopped_ns + sim_draw(s, 2), letter);
        return;
    }
    if (!n->dead && !n->closed && n->cut_ns <= s->now_ns) {
        sim_say(s, n, "is woken, kind %d, says %u", m->news.kind,
                m->news.answer.record.status);
        sim_node_clock(n);
        tell(n, &m->news);
        sim_node_run(n);
    }
    message_free(m);
}

static void tell(struct sim_node *n, struct vow__memory_event *news)
{
    const vow_store_events *to = &n->events;
    const vow_record *r = &news->answer.record;
    if (news->kind == VOW__MEMORY_RECORD)
        to->on_record(r, to->user);
    else if (news->kind == VOW__MEMORY_CANCEL)
        to->on_cancel(&r->name, to->user);
    else if (news->kind == VOW__MEMORY_CHUNKS)
        to->on_chunks(&r->name, to->user);
    else
        to->on_permit(&news->token, to->user);
}

/* ---- coming and going --------------------------------------------------- */

void sim_store_init(struct sim_node *n)
{
    n->store.ops = sim_store_ops();
    CHECK_INT_EQ(vow__memory_join(n->sim->book, wake, n, &n->inst), 0);
}

void sim_store_leave(struct sim_node *n, bool dead)
{
    if (n->inst == NULL)
        return;
    struct vow__memory_instance *inst = n->inst;
    n->inst = NULL;
    n->mail = false;
    vow__memory_leave(n->sim->book, inst, sim_now_us(n->sim), dead);
    sim_saw_leave(n, dead);
    sim_saw_places(n->sim, NULL);
    sim_mail(n->sim);
}
