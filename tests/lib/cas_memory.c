/* SPDX-License-Identifier: MIT */
/* cas_memory.c - the service of cas_memory.h: a table of names, leases, and an
 * unreliable network before them. */
#include "cas_memory_inside.h"

#include <stdlib.h>
#include <string.h>

enum { MARKS_MAX = 2 };
#define BASE_US UINT64_C(1700000000000000)

struct sim_bytes {
    unsigned char *data;
    size_t size;
};

struct sim_mark {
    bool used;
    vow_token token;
    uint64_t lease;   /* 0: gone */
    uint64_t gone_us; /* since when */
};

struct sim_left {
    struct rules_record record;
    struct sim_bytes value;
};

struct sim_name {
    vow_name name;
    uint64_t version;
    struct rules_record record;
    char label[VOW_LABEL_MAX + 1], runner[VOW_LABEL_MAX + 1];
    struct sim_bytes value;
    struct sim_mark marks[MARKS_MAX];
    uint64_t keep_ms, kept_us; /* from kept_us on */
    struct sim_bytes *chunks;
    size_t n_chunks;
    struct sim_left *lefts;
    size_t n_lefts;
    uint64_t waiters; /* bit of each client */
};

/* A write on its way, or the drop of a mark. */
struct sim_late {
    vow_link link;
    struct cas_world *world;
    struct cas_client *client;
    vow_call due;
    bool drops; /* the mark of `token`, if the version is was.version */
    struct cas_write write;
    struct cas_found was;
    vow_token token;
    char label[VOW_LABEL_MAX + 1], runner[VOW_LABEL_MAX + 1];
};

static const struct cas_service_ops OPS; /* at the end */

/* ---- small things -------------------------------------------------------- */

struct cas_client *cas_sim_client_of(struct cas_service *s)
{
    return VOW__OUTER(s, struct cas_client, service);
}

void *cas_sim_must_alloc(size_t size)
{
    void *p = calloc(1, size == 0 ? 1 : size);
    CHECK(p != NULL);
    return p;
}

uint64_t cas_sim_roll(struct cas_world *w, uint64_t n)
{
    return test_random(&w->random) % n;
}

bool cas_sim_chance(struct cas_world *w, unsigned per_mille)
{
    return per_mille > 0 && cas_sim_roll(w, 1000) < per_mille;
}

uint64_t cas_sim_world_us(const struct cas_world *w)
{
    return BASE_US + vow_loop_now_ns(w->loop) / 1000;
}

uint64_t cas_sim_client_us(const struct cas_client *c)
{
    return cas_sim_world_us(c->world) + (uint64_t)c->skew_us;
}

static void bytes_set(struct sim_bytes *b, vow_bytes *from)
{
    size_t size = vow_bytes_size(from);
    free(b->data);
    b->data = cas_sim_must_alloc(size);
    b->size = size;
    if (size > 0)
        memcpy(b->data, vow_bytes_data(from), size);
}

static void bytes_clear(struct sim_bytes *b)
{
    free(b->data);
    *b = (struct sim_bytes){.size = 0};
}

static bool tokens_match(const vow_token *a, const vow_token *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* ---- leases and marks ---------------------------------------------------- */

struct sim_lease *cas_sim_lease_find(struct cas_world *w, uint64_t id)
{
    struct sim_lease *l = w->leases;
    while (l != NULL && l->id != id)
        l = l->next;
    return l == NULL || l->ended ? NULL : l;
}

static struct sim_mark *mark_find(struct sim_name *n, const vow_token *token)
{
    for (int i = 0; i < MARKS_MAX; i++)
        if (n->marks[i].used && tokens_match(&n->marks[i].token, token))
            return &n->marks[i];
    return NULL;
}

static bool mark_lives(struct cas_world *w, const struct sim_mark *m)
{
    const struct sim_lease *l =
        m->used ? cas_sim_lease_find(w, m->lease) : NULL;
    return l != NULL && l->end_us > cas_sim_world_us(w);
}

static bool has_marks(struct cas_world *w, const struct sim_name *n)
{
    bool any = false;
    for (int i = 0; i < MARKS_MAX; i++)
        any = any || mark_lives(w, &n->marks[i]);
    return any;
}

static bool refreshes(const struct rules_record *r)
{
    return r->refresh.epoch != 0 && !r->refresh.failed;
}

/* Marks of tokens that the record does not name are gone. */
static void marks_tidy(struct sim_name *n)
{
    const struct rules_record *r = &n->record;
    for (int i = 0; i < MARKS_MAX; i++) {
        struct sim_mark *m = &n->marks[i];
        bool owner =
            r->state == RULES_RUNNING && tokens_match(&r->token, &m->token);
        bool next = refreshes(r) && tokens_match(&r->refresh.token, &m->token);
        if (m->used && !owner && !next)
            m->used = false;
    }
}

static void mark_set(struct cas_world *w, struct sim_name *n,
                     const vow_token *token, uint64_t lease)
{
    struct sim_mark *m = mark_find(n, token);
    for (int i = 0; m == NULL && i < MARKS_MAX; i++)
        if (!n->marks[i].used)
            m = &n->marks[i];
    CHECK(m != NULL);
    *m = (struct sim_mark){.used = true,
                           .token = *token,
                           .lease = lease,
                           .gone_us = cas_sim_world_us(w)};
}

static struct cas_mark mark_seen(struct cas_world *w, struct sim_name *n,
                                 const vow_token *token, uint64_t since_us)
{
    const struct sim_mark *m = mark_find(n, token);
    const struct sim_lease *l =
        m == NULL ? NULL : cas_sim_lease_find(w, m->lease);
    uint64_t now_us = cas_sim_world_us(w);
    uint64_t gone_us = m == NULL ? since_us : m->gone_us;
    CHECK(m == NULL || m->lease == 0 || l != NULL);
    if (l != NULL && l->end_us > now_us)
        return (struct cas_mark){.lease = m->lease,
                                 .left_us = l->end_us - now_us};
    if (l != NULL) /* over, and not ended yet */
        gone_us = l->end_us;
    return (struct cas_mark){.gone_us =
                                 now_us > gone_us ? now_us - gone_us : 0};
}

/* ---- names --------------------------------------------------------------- */

static void lefts_expire(struct cas_world *w, struct sim_name *n)
{
    uint64_t now_us = cas_sim_world_us(w);
    for (size_t i = 0; i < n->n_lefts;) {
        if (n->lefts[i].record.end_us > now_us) {
            i++;
            continue;
        }
        bytes_clear(&n->lefts[i].value);
        n->lefts[i] = n->lefts[--n->n_lefts];
    }
}

static void chunks_clear(struct sim_name *n)
{
    for (size_t i = 0; i < n->n_chunks; i++)
        bytes_clear(&n->chunks[i]);
    n->n_chunks = 0;
}

/* Drops what has expired. */
static void name_expire(struct cas_world *w, struct sim_name *n)
{
    lefts_expire(w, n);
    if (n->version == 0 || has_marks(w, n) || n->keep_ms == UINT64_MAX ||
        cas_sim_world_us(w) < n->kept_us + n->keep_ms * 1000)
        return;
    n->version = 0;
    n->record = (struct rules_record){.state = RULES_NONE};
    n->label[0] = n->runner[0] = 0;
    bytes_clear(&n->value);
    chunks_clear(n);
    marks_tidy(n);
}

static struct sim_name *name_find(struct cas_world *w, const vow_name *name)
{
    size_t i = 0;
    while (i < w->n_names &&
           memcmp(&w->names[i]->name, name, sizeof(*name)) < 0)
        i++;
    if (i == w->n_names || !vow_name_equal(&w->names[i]->name, name)) {
        w->names = realloc(w->names, (w->n_names + 1) * sizeof(w->names[0]));
        CHECK(w->names != NULL);
        memmove(w->names + i + 1, w->names + i,
                (w->n_names - i) * sizeof(w->names[0]));
        w->names[i] = cas_sim_must_alloc(sizeof(*w->names[i]));
        w->names[i]->name = *name;
        w->n_names++;
    }
    name_expire(w, w->names[i]);
    return w->names[i];
}

static struct sim_left *left_find(struct sim_name *n, uint64_t first)
{
    for (size_t i = 0; first != 0 && i < n->n_lefts; i++)
        if (n->lefts[i].record.first == first)
            return &n->lefts[i];
    return NULL;
}

/* Gives the value as of the loop; apart if long, or without memory. */
static void value_seen(struct cas_world *w, const struct sim_bytes *b,
                       struct cas_found *f)
{
    f->valued = b->size <= w->plan.inline_max &&
                (b->size == 0 ||
                 vow_bytes_new(w->loop, b->data, b->size, &f->value) == 0);
}

static void name_seen(struct cas_client *c, struct sim_name *n, uint64_t waited,
                      bool values, struct cas_found *f)
{
    struct cas_world *w = c->world;
    const struct sim_left *left = left_find(n, waited);
    const struct rules_record *r = &n->record;
    *f = (struct cas_found){.name = n->name,
                            .version = n->version,
                            .now_us = cas_sim_client_us(c),
                            .record = *r,
                            .waiters = CAS_WAITERS_UNKNOWN};
    if (r->state == RULES_RUNNING)
        f->owner = mark_seen(w, n, &r->token, r->since_us);
    if (refreshes(r))
        f->refresher = mark_seen(w, n, &r->refresh.token, r->refresh.since_us);
    if ((w->plan.flags & CAS_REGISTERS) != 0) {
        f->waiters = 0;
        for (int i = 0; i < w->n_clients; i++)
            f->waiters += (n->waiters >> i) & 1;
        f->registered = ((n->waiters >> c->index) & 1) != 0;
    }
    memcpy(f->label, n->label, sizeof(f->label));
    memcpy(f->runner, n->runner, sizeof(f->runner));
    f->has_left = left != NULL;
    if (left != NULL)
        f->left = left->record;
    if (values)
        value_seen(w, left != NULL ? &left->value : &n->value, f);
}

/* ---- events -------------------------------------------------------------- */

static void event_free(struct sim_event *e)
{
    (void)vow_call_stop(&e->due);
    vow__list_remove(&e->client->pending, &e->link);
    vow__cas_found_fini(&e->found);
    free(e);
}

static void on_event(void *user)
{
    struct sim_event *e = user;
    struct cas_client *c = e->client;
    struct cas_events events = c->events;
    if (e->kind == SIM_DOUBT)
        c->broken = false;
    if (c->killed) {
        event_free(e);
        return;
    }
    if (e->kind == SIM_DOUBT)
        events.on_doubt(events.user);
    else if (e->kind == SIM_RECORD)
        events.on_record(&e->name, &e->found, events.user);
    else
        events.on_look(&e->pool, &e->token, events.user);
    event_free(e);
}

struct sim_event *cas_sim_event_new(struct cas_client *c)
{
    struct cas_world *w = c->world;
    struct sim_event *e = cas_sim_must_alloc(sizeof(*e));
    uint64_t due_ns = vow_loop_due_ns(
        w->loop, w->plan.delay_ms == 0 ? 0 : cas_sim_roll(w, w->plan.delay_ms));
    e->client = c;
    if ((w->plan.flags & CAS_WATCHES) != 0) { /* in order */
        if (due_ns < c->stream_ns)
            due_ns = c->stream_ns;
        c->stream_ns = due_ns;
    }
    vow__list_push(&c->pending, &e->link);
    if (w->plan.delay_ms == 0)
        vow_call_soon(&e->due, w->loop, on_event, e);
    else
        vow_call_at(&e->due, w->loop, due_ns, on_event, e);
    return e;
}

bool cas_sim_event_lost(struct cas_client *c)
{
    struct cas_world *w = c->world;
    bool watch = (w->plan.flags & CAS_WATCHES) != 0;
    if (c->events.on_record == NULL || c->killed || c->broken)
        return true;
    if (!cas_sim_chance(w, w->plan.lost_events))
        return false;
    w->faults.events++;
    c->broken = watch; /* until the client is told of the doubt */
    if (watch)
        cas_sim_event_new(c)->kind = SIM_DOUBT;
    return true;
}

static void event_send(struct cas_client *c, struct sim_name *n)
{
    struct cas_world *w = c->world;
    if (cas_sim_event_lost(c))
        return;
    int times = 1 + cas_sim_chance(w, w->plan.doubled_events);
    w->faults.doubled += times > 1;
    for (int i = 0; i < times; i++) {
        struct sim_event *e = cas_sim_event_new(c);
        e->name = n->name;
        name_seen(c, n, n->record.spent ? n->record.first : 0,
                  cas_sim_roll(w, 2) == 0, &e->found);
    }
}

/* Tells of a change: with a watch all, else those who are addressed. */
static void name_tell(struct cas_world *w, struct sim_name *n, uint32_t effects,
                      const struct sim_mark *marks)
{
    uint64_t to = 0;
    if ((w->plan.flags & CAS_WATCHES) != 0)
        to = UINT64_MAX;
    if ((effects & (EFFECT_WAKE | EFFECT_CHUNK)) != 0)
        to |= n->waiters;
    if ((effects & EFFECT_WAKE) != 0)
        n->waiters = 0;
    for (int i = 0; (effects & EFFECT_TELL_OWNER) != 0 && i < MARKS_MAX; i++) {
        const struct sim_lease *l =
            marks[i].used ? cas_sim_lease_find(w, marks[i].lease) : NULL;
        if (l != NULL)
            to |= UINT64_C(1) << l->client;
    }
    for (int i = 0; i < w->n_clients; i++)
        if (w->clients[i] != NULL && ((to >> i) & 1) != 0)
            event_send(w->clients[i], n);
}

/* ---- the end of leases --------------------------------------------------- */

void cas_sim_lease_end(struct sim_lease *l)
{
    struct cas_world *w = l->world;
    (void)vow_call_stop(&l->end);
    l->ended = true;
    for (size_t i = 0; i < w->n_names; i++) {
        struct sim_name *n = w->names[i];
        bool changed = false;
        for (int k = 0; k < MARKS_MAX; k++) {
            struct sim_mark *m = &n->marks[k];
            if (!m->used || m->lease != l->id)
                continue;
            m->lease = 0;
            m->gone_us = cas_sim_world_us(w);
            n->kept_us = cas_sim_world_us(w);
            changed = true;
        }
        if (changed)
            name_tell(w, n, 0, n->marks);
    }
    cas_sim_pools_lease_end(w->pools, l->id);
}

/* A service with a watch ends leases by itself; else, a lease that is over can
 * be renewed until a write ends it. */
static void on_lease_end(void *user)
{
    struct sim_lease *l = user;
    if (cas_sim_world_us(l->world) >= l->end_us &&
        (l->world->plan.flags & CAS_WATCHES) != 0)
        cas_sim_lease_end(l);
}

/* Ends the leases of marks that a writer relies on to be absent. */
static void bury_leases(struct cas_world *w, struct sim_name *n)
{
    for (int i = 0; i < MARKS_MAX; i++) {
        struct sim_lease *l =
            n->marks[i].used ? cas_sim_lease_find(w, n->marks[i].lease) : NULL;
        if (l != NULL && l->end_us <= cas_sim_world_us(w))
            cas_sim_lease_end(l);
    }
}

static void lease_extend(struct sim_lease *l)
{
    struct cas_world *w = l->world;
    l->end_us = cas_sim_world_us(w) + l->ttl_us;
    vow_call_weakly_at(&l->end, w->loop,
                       vow_loop_now_ns(w->loop) + l->ttl_us * 1000,
                       on_lease_end, l);
}

/* ---- writing ------------------------------------------------------------- */

/* Returns whether the marks are not as the writer has seen them. */
static bool marks_differ(struct cas_world *w, struct sim_name *n,
                         const struct cas_found *was)
{
    struct cas_mark owner = {.lease = 0};
    struct cas_mark refresher = {.lease = 0};
    if (n->record.state == RULES_RUNNING)
        owner = mark_seen(w, n, &n->record.token, 0);
    if (refreshes(&n->record))
        refresher = mark_seen(w, n, &n->record.refresh.token, 0);
    return (was->owner.lease == 0) != (owner.lease == 0) ||
           (was->refresher.lease == 0) != (refresher.lease == 0);
}

static void store_value(struct sim_name *n, const struct cas_write *w)
{
    if ((w->effects & EFFECT_VALUE) != 0 && (w->effects & EFFECT_LEAVE) == 0)
        bytes_set(&n->value, w->value);
    if ((w->effects & EFFECT_LEAVE) != 0) {
        struct sim_left *left = left_find(n, n->record.first);
        if (left == NULL) {
            n->lefts =
                realloc(n->lefts, (n->n_lefts + 1) * sizeof(n->lefts[0]));
            CHECK(n->lefts != NULL);
            left = &n->lefts[n->n_lefts++];
            *left = (struct sim_left){.value.size = 0};
        }
        left->record = n->record;
        bytes_set(&left->value, w->value);
    }
    if ((w->effects & EFFECT_CHUNK) != 0) {
        CHECK(n->n_chunks + 1 == n->record.chunks);
        n->chunks =
            realloc(n->chunks, (n->n_chunks + 1) * sizeof(n->chunks[0]));
        CHECK(n->chunks != NULL);
        n->chunks[n->n_chunks] = (struct sim_bytes){.size = 0};
        bytes_set(&n->chunks[n->n_chunks++], w->value);
    }
}

static void store_record(struct cas_client *c, struct sim_name *n,
                         const struct cas_write *w)
{
    struct cas_world *world = c->world;
    n->version = ++world->counter;
    n->record = vow__cas_write_record(w, cas_sim_client_us(c), n->version);
    vow__rules_check(&n->record);
    if (n->record.epoch > world->counter)
        world->counter = n->record.epoch;
    if (n->record.refresh.epoch > world->counter)
        world->counter = n->record.refresh.epoch;
    (void)strncpy(n->label, w->label, VOW_LABEL_MAX);
    (void)strncpy(n->runner, w->runner, VOW_LABEL_MAX);
    n->keep_ms = w->keep_ms;
    n->kept_us = cas_sim_world_us(world);
    if ((w->effects & EFFECT_CLEAR) != 0) {
        bytes_clear(&n->value);
        chunks_clear(n);
    }
    if (w->token != NULL)
        mark_set(world, n, w->token, w->lease.id);
    marks_tidy(n);
    store_value(n, w);
}

/* One write, atomic. */
static int server_write(struct cas_client *c, const struct cas_write *w,
                        struct cas_found *ret)
{
    struct cas_world *world = c->world;
    struct sim_name *n = name_find(world, &w->name);
    uint64_t me = UINT64_C(1) << c->index;
    bool conflict = n->version != w->was->version ||
                    left_find(n, w->waited) != NULL ||
                    (w->marks && marks_differ(world, n, w->was));
    if (!conflict && w->lease.id != 0 &&
        cas_sim_lease_find(world, w->lease.id) == NULL)
        return VOW_ENOENT;
    if (conflict) {
        if (w->wait && has_marks(world, n) &&
            (world->plan.flags & CAS_REGISTERS) != 0)
            n->waiters |= me;
        name_seen(c, n, w->waited, true, ret);
        return VOW_EAGAIN;
    }
    world->writes++;
    if (w->marks)
        bury_leases(world, n);
    struct sim_mark marks[MARKS_MAX];
    memcpy(marks, n->marks, sizeof(marks));
    if ((w->effects & EFFECT_WRITE) != 0)
        store_record(c, n, w);
    if ((w->effects & EFFECT_UNWAIT) != 0)
        n->waiters &= ~me;
    if ((w->effects & EFFECT_WAIT) != 0 &&
        (world->plan.flags & CAS_REGISTERS) != 0)
        n->waiters |= me;
    if ((w->effects & EFFECT_WRITE) != 0)
        name_tell(world, n, w->effects, marks);
    name_seen(c, n, 0, false, ret);
    return 0;
}

/* Drops a mark, atomic. */
static int server_drop(struct cas_world *w, const vow_name *name,
                       const vow_token *token, uint64_t version)
{
    struct sim_name *n = name_find(w, name);
    struct sim_mark *m = mark_find(n, token);
    if (n->version != version)
        return VOW_EAGAIN;
    if (m != NULL && m->lease != 0) {
        m->lease = 0;
        m->gone_us = n->kept_us = cas_sim_world_us(w);
        name_tell(w, n, 0, n->marks);
    }
    return 0;
}

/* ---- the network --------------------------------------------------------- */

/* A way of a request. */
int cas_sim_travel(struct cas_client *c, uint64_t due_ns)
{
    struct cas_world *w = c->world;
    int rc = w->plan.delay_ms == 0
                 ? vow_yield(w->loop)
                 : vow_sleep(w->loop, cas_sim_roll(w, w->plan.delay_ms));
    while (rc == 0 && c->cut && !c->killed) {
        if (vow_loop_now_ns(w->loop) >= due_ns)
            return VOW_ESTORE;
        rc = vow_sleep(w->loop, PART_MS);
    }
    if (rc == 0 && c->killed)
        return VOW_ECLOSED;
    if (rc < 0)
        return VOW_ECLOSED;
    return vow_loop_now_ns(w->loop) >= due_ns ? VOW_ESTORE : 0;
}

/* To the server, counted. */
int cas_sim_travel_there(struct cas_client *c, uint64_t due_ns)
{
    c->world->requests++;
    return cas_sim_travel(c, due_ns);
}

int cas_sim_give_up(struct cas_client *c)
{
    (void)vow_sleep(c->world->loop, PART_MS);
    return VOW_EUNSURE;
}

static void late_free(struct sim_late *l)
{
    (void)vow_call_stop(&l->due);
    vow__list_remove(&l->world->late, &l->link);
    vow_bytes_unref(l->write.value);
    free(l);
}

static void on_late(void *user)
{
    struct sim_late *l = user;
    struct cas_found ret = {.version = 0};
    int rc = VOW_ECLOSED;
    if (l->client != NULL && l->drops)
        rc = server_drop(l->world, &l->write.name, &l->token, l->was.version);
    else if (l->client != NULL)
        rc = server_write(l->client, &l->write, &ret);
    l->world->faults.late_done += rc == 0;
    vow__cas_found_fini(&ret);
    late_free(l);
}

/* Keeps a write on its way. */
static struct sim_late *keep_late(struct cas_client *c,
                                  const struct cas_write *w)
{
    struct cas_world *world = c->world;
    struct sim_late *l = cas_sim_must_alloc(sizeof(*l));
    l->world = world;
    l->client = c;
    l->write = *w;
    l->was = *w->was;
    l->write.was = &l->was;
    (void)strncpy(l->label, w->label, VOW_LABEL_MAX);
    (void)strncpy(l->runner, w->runner, VOW_LABEL_MAX);
    l->write.label = l->label;
    l->write.runner = l->runner;
    l->write.wait = false;
    vow_bytes_ref(w->value);
    if (w->token != NULL) {
        l->token = *w->token;
        l->write.token = &l->token;
    }
    vow__list_push(&world->late, &l->link);
    vow_call_at(&l->due, world->loop,
                vow_loop_due_ns(world->loop,
                                1 + cas_sim_roll(world, world->plan.late_ms)),
                on_late, l);
    return l;
}

static int client_write(struct cas_service *s, const struct cas_write *w,
                        struct cas_found *ret)
{
    struct cas_client *c = cas_sim_client_of(s);
    struct cas_world *world = c->world;
    if (vow_bytes_size(w->value) > world->plan.value_max)
        return VOW_E2BIG;
    int rc = cas_sim_travel_there(c, w->due_ns);
    if (rc < 0)
        return rc;
    if (cas_sim_chance(world, world->plan.lost_requests)) {
        world->faults.requests++;
        return cas_sim_give_up(c);
    }
    if (cas_sim_chance(world, world->plan.late_writes)) {
        world->faults.late++;
        (void)keep_late(c, w);
        return cas_sim_give_up(c);
    }
    rc = server_write(c, w, ret);
    if (cas_sim_chance(world, world->plan.lost_answers) ||
        cas_sim_travel(c, w->due_ns) < 0) {
        world->faults.answers++;
        vow__cas_found_fini(ret);
        *ret = (struct cas_found){.version = 0};
        return cas_sim_give_up(c);
    }
    return rc;
}

/* ---- the other requests -------------------------------------------------- */

static int client_read(struct cas_service *s, const struct cas_read *read,
                       struct cas_found *ret)
{
    struct cas_client *c = cas_sim_client_of(s);
    int rc = cas_sim_travel_there(c, read->due_ns);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < read->n; i++)
        name_seen(c, name_find(c->world, &read->names[i]), read->waited,
                  read->values, &ret[i]);
    rc = cas_sim_travel(c, read->due_ns);
    for (size_t i = 0; rc < 0 && i < read->n; i++)
        vow__cas_found_fini(&ret[i]);
    return rc;
}

static int client_grant(struct cas_service *s, uint64_t ttl_ms, bool marks,
                        uint64_t due_ns, struct cas_lease *ret)
{
    (void)marks;
    struct cas_client *c = cas_sim_client_of(s);
    struct cas_world *w = c->world;
    uint64_t sent_ns = vow_loop_now_ns(w->loop);
    int rc = cas_sim_travel_there(c, due_ns);
    if (rc < 0)
        return rc;
    struct sim_lease *l = cas_sim_must_alloc(sizeof(*l));
    l->id = ++w->counter;
    l->ttl_us = ttl_ms * 1000;
    l->client = c->index;
    l->world = w;
    l->next = w->leases;
    w->leases = l;
    lease_extend(l);
    *ret =
        (struct cas_lease){.id = l->id, .ttl_ms = ttl_ms, .sent_ns = sent_ns};
    return cas_sim_travel(c, due_ns) < 0 ? VOW_EUNSURE : 0;
}

static int client_keep(struct cas_service *s, struct cas_lease *lease,
                       const vow_name *names, size_t n, uint64_t due_ns,
                       struct cas_found *ret)
{
    struct cas_client *c = cas_sim_client_of(s);
    struct cas_world *w = c->world;
    uint64_t sent_ns = vow_loop_now_ns(w->loop);
    int rc = cas_sim_travel_there(c, due_ns);
    if (rc < 0)
        return rc;
    struct sim_lease *l = cas_sim_lease_find(w, lease->id);
    if (l != NULL && cas_sim_chance(w, w->plan.lost_leases)) {
        w->faults.leases++;
        cas_sim_lease_end(l);
        l = NULL;
    }
    if (l != NULL)
        lease_extend(l);
    for (size_t i = 0; l != NULL && i < n; i++)
        name_seen(c, name_find(w, &names[i]), 0, false, &ret[i]);
    rc = cas_sim_travel(c, due_ns);
    if (rc < 0)
        return rc == VOW_ECLOSED ? rc : VOW_EUNSURE;
    if (l == NULL)
        return VOW_ENOENT;
    lease->sent_ns = sent_ns;
    return 0;
}

static int client_drop(struct cas_service *s, const vow_name *name,
                       const vow_token *token, uint64_t version,
                       uint64_t due_ns)
{
    struct cas_client *c = cas_sim_client_of(s);
    struct cas_world *w = c->world;
    const struct cas_found was = {.version = version};
    const struct cas_write write = {
        .name = *name, .was = &was, .token = token, .label = "", .runner = ""};
    int rc = cas_sim_travel_there(c, due_ns);
    if (rc < 0)
        return rc;
    if (cas_sim_chance(w, w->plan.late_writes)) {
        w->faults.late++;
        keep_late(c, &write)->drops = true;
        return cas_sim_give_up(c);
    }
    rc = server_drop(w, name, token, version);
    if (cas_sim_chance(w, w->plan.lost_answers) ||
        cas_sim_travel(c, due_ns) < 0)
        return cas_sim_give_up(c);
    return rc;
}

static int client_value(struct cas_service *s, const vow_name *name,
                        uint64_t epoch, uint64_t first, uint64_t due_ns,
                        vow_bytes **ret)
{
    struct cas_client *c = cas_sim_client_of(s);
    int rc = cas_sim_travel_there(c, due_ns);
    if (rc < 0)
        return rc;
    struct sim_name *n = name_find(c->world, name);
    const struct sim_left *left = left_find(n, first);
    const struct sim_bytes *b = &n->value;
    bool there = n->record.epoch == epoch && n->record.state != RULES_RUNNING &&
                 !n->record.spent;
    if (first != 0) {
        there = left != NULL && left->record.epoch == epoch;
        b = left != NULL ? &left->value : b;
    }
    rc = there ? 0 : VOW_ENOENT;
    if (rc == 0 && b->size > 0)
        rc = vow_bytes_new(c->world->loop, b->data, b->size, ret);
    int back = cas_sim_travel(c, due_ns);
    if (back < 0 && rc == 0) {
        vow_bytes_unref(*ret);
        *ret = NULL;
    }
    return back < 0 ? back : rc;
}

/* NOLINTNEXTLINE(readability-function-size): the type is of the service table */
static int client_chunks(struct cas_service *s, const vow_name *name,
                         uint64_t epoch, uint64_t from, uint64_t due_ns,
                         struct cas_found *found, vow_bytes **ret, size_t room,
                         size_t *ret_n)
{
    struct cas_client *c = cas_sim_client_of(s);
    (void)epoch; /* there are chunks of one epoch */
    int rc = cas_sim_travel_there(c, due_ns);
    size_t got = 0;
    if (rc < 0)
        return rc;
    struct sim_name *n = name_find(c->world, name);
    name_seen(c, n, 0, false, found);
    for (; rc == 0 && got < room && from + got < n->n_chunks; got++) {
        const struct sim_bytes *b = &n->chunks[from + got];
        rc = vow_bytes_new(c->world->loop, b->data, b->size, &ret[got]);
        if (rc < 0)
            break;
    }
    *ret_n = got;
    if (rc == 0)
        rc = cas_sim_travel(c, due_ns);
    return rc;
}

static int client_list(struct cas_service *s, const vow_name *after,
                       uint64_t due_ns, struct cas_found *ret, size_t room,
                       size_t *ret_n)
{
    struct cas_client *c = cas_sim_client_of(s);
    struct cas_world *w = c->world;
    int rc = cas_sim_travel_there(c, due_ns);
    size_t n = 0;
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < w->n_names && n < room; i++) {
        if (memcmp(&w->names[i]->name, after, sizeof(*after)) <= 0)
            continue;
        name_expire(w, w->names[i]);
        if (w->names[i]->version != 0)
            name_seen(c, w->names[i], 0, false, &ret[n++]);
    }
    *ret_n = n;
    return cas_sim_travel(c, due_ns);
}

static const char *client_explain(struct cas_service *s)
{
    (void)s;
    return "";
}

static void client_listen(struct cas_service *s,
                          const struct cas_events *events)
{
    cas_sim_client_of(s)->events = *events;
}

/* ---- worlds and clients -------------------------------------------------- */

struct cas_world *cas_world_new(vow_loop *loop, const struct cas_plan *plan)
{
    struct cas_world *w = cas_sim_must_alloc(sizeof(*w));
    w->loop = loop;
    w->plan = *plan;
    w->random = plan->seed;
    w->counter = 1;
    w->pools = cas_sim_pools_new(w);
    return w;
}

void cas_world_free(struct cas_world *w)
{
    for (int i = 0; i < w->n_clients; i++)
        CHECK(w->clients[i] == NULL);
    while (w->late != NULL)
        late_free(VOW__OUTER(w->late, struct sim_late, link));
    while (w->leases != NULL) {
        struct sim_lease *l = w->leases;
        w->leases = l->next;
        (void)vow_call_stop(&l->end);
        free(l);
    }
    for (size_t i = 0; i < w->n_names; i++) {
        struct sim_name *n = w->names[i];
        for (size_t k = 0; k < n->n_lefts; k++)
            bytes_clear(&n->lefts[k].value);
        chunks_clear(n);
        bytes_clear(&n->value);
        free(n->lefts);
        free(n->chunks);
        free(n);
    }
    cas_sim_pools_free(w->pools);
    free(w->names);
    free(w);
}

void cas_world_set(struct cas_world *w, const struct cas_plan *plan)
{
    w->plan = *plan;
}

void cas_world_heal(struct cas_world *w)
{
    struct cas_plan *p = &w->plan;
    p->lost_requests = p->lost_answers = p->late_writes = 0;
    p->lost_events = p->doubled_events = p->lost_leases = 0;
    for (int i = 0; i < w->n_clients; i++)
        if (w->clients[i] != NULL)
            w->clients[i]->cut = false;
}

struct cas_faults cas_world_faults(const struct cas_world *w)
{
    return w->faults;
}

uint64_t cas_world_writes(const struct cas_world *w)
{
    return w->writes;
}

uint64_t cas_world_requests(const struct cas_world *w)
{
    return w->requests;
}

struct cas_service *cas_memory_client(struct cas_world *w)
{
    static const struct cas_service_ops *ops = &OPS;
    struct cas_client *c = cas_sim_must_alloc(sizeof(*c));
    struct cas_service_ops *mine = cas_sim_must_alloc(sizeof(*mine));
    CHECK(w->n_clients < CLIENTS_MAX);
    *mine = *ops;
    cas_sim_pools_ops(mine);
    mine->flags = w->plan.flags;
    mine->value_max = w->plan.value_max;
    c->service.ops = mine;
    c->world = w;
    c->index = w->n_clients;
    if (!w->plan.clock && w->plan.skew_ms > 0)
        c->skew_us = (int64_t)cas_sim_roll(w, 2000 * w->plan.skew_ms) -
                     (int64_t)(1000 * w->plan.skew_ms);
    w->clients[w->n_clients++] = c;
    return &c->service;
}

void cas_memory_kill(struct cas_service *s)
{
    cas_sim_client_of(s)->killed = true;
}

void cas_memory_cut(struct cas_service *s, bool cut)
{
    cas_sim_client_of(s)->cut = cut;
}

static void on_client_end(void *user)
{
    struct cas_client *c = user;
    struct cas_world *w = c->world;
    void (*closed)(void *user) = c->closed;
    void *closed_user = c->user;
    while (c->pending != NULL)
        event_free(VOW__OUTER(c->pending, struct sim_event, link));
    for (vow_link *l = w->late; l != NULL; l = l->next) {
        struct sim_late *late = VOW__OUTER(l, struct sim_late, link);
        if (late->client == c)
            late->client = NULL;
    }
    cas_sim_late_orphan(c);
    w->clients[c->index] = NULL;
    free((void *)(uintptr_t)c->service.ops);
    free(c);
    closed(closed_user);
}

static void client_close(struct cas_service *s, bool owns,
                         void (*closed)(void *user), void *user)
{
    struct cas_client *c = cas_sim_client_of(s);
    struct cas_world *w = c->world;
    c->closed = closed;
    c->user = user;
    for (struct sim_lease *l = w->leases; l != NULL; l = l->next)
        if (!owns && !c->killed && l->client == c->index && !l->ended)
            cas_sim_lease_end(l);
    vow_call_soon(&c->end, w->loop, on_client_end, c);
}

static const struct cas_service_ops OPS = {
    .kind = "cas",
    .modes = 1u << VOW_SHARED | 1u << VOW_FENCED | 1u << VOW_ONCE,
    .recheck_ms = RECHECK_MS,
    .listen = client_listen,
    .lease_grant = client_grant,
    .lease_keep = client_keep,
    .mark_drop = client_drop,
    .read = client_read,
    .write = client_write,
    .value = client_value,
    .chunks = client_chunks,
    .list = client_list,
    .explain = client_explain,
    .close = client_close,
};
