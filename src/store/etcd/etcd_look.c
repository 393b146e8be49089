/* SPDX-License-Identifier: MIT */
/* etcd_look.c - peek, forget and cancel: by whoever, of whatever is there.
 *
 * HOW   Forget and cancel read, judge and write (etcd_trip.c). A wish to stop
 *       is a word in the record, which its owner sees by its watch and its
 *       pulses are answered with.
 *       Peek reads NAMES names in each request, all requests at once, behind
 *       the steps on these names that were begun before.
 * INVARIANTS
 *   L1  `left` counts what peek waits for, and one while it is being asked
 * LIMITS  Names of one peek may be read at different revisions.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

enum { NAMES = 40 /* a transaction has 128 operations at most */ };

/* Forget, or cancel. */
struct manage {
    struct vow__step_lane lane;
    struct vow__trip trip;
    bool forgets;
    uint64_t epoch; /* to forget; 0: whichever */
    vow_records_fn done;
    void *user;
    uint32_t status;
};

struct glance {
    struct vow__step_lane lane;
    struct peek *peek;
};

/* The names of one request. */
struct part {
    struct peek *peek;
    size_t first;
    size_t n;
};

struct peek {
    struct vow__etcd *etcd;
    struct vow_alloc alloc;
    size_t size; /* of this block */
    vow_records_fn done;
    void *user;
    size_t n;
    size_t left;
    bool asked;
    int code;
    vow_record *records;
    struct vow__er *ers;
    struct glance *glances;
    struct part *parts;
};

static void manage(vow_store *s, const vow_name *name,
                   const struct manage *like);
static void begin(struct vow__step_lane *lane);
static void refuse(struct vow__step_lane *lane, int code);
static void judge(struct vow__trip *t);
static void write_nothing(struct manage *m);
static void write_wish(struct manage *m);
static void wrote(struct vow__trip *t, const json_t *root);
static void answer(struct vow__trip *t, int code);
static struct peek *peek_new(struct vow__etcd *e, const vow_name *names,
                             size_t n);
static void on_glance(struct vow__step_lane *lane);
static void refuse_glance(struct vow__step_lane *lane, int code);
static void ask_part(struct part *p);
static void on_part(struct vow__etcd *e, int code, const json_t *root,
                    void *part);
static void join(struct peek *p, int code);
static void peek_end(struct peek *p);

static const struct vow__trip_ops operations = {
    .judge = judge, .wrote = wrote, .answer = answer};

static struct manage *manage_of(struct vow__trip *t)
{
    return VOW__OUTER(t, struct manage, trip);
}

/* ---- forget, cancel ------------------------------------------------------ */

void vow__etcd_forget(vow_store *s, const vow_name *name, uint64_t epoch,
                      vow_records_fn done, void *user)
{
    manage(s, name,
           &(const struct manage){
               .forgets = true, .epoch = epoch, .done = done, .user = user});
}

void vow__etcd_cancel(vow_store *s, const vow_name *name, vow_records_fn done,
                      void *user)
{
    manage(s, name, &(const struct manage){.done = done, .user = user});
}

static void manage(vow_store *s, const vow_name *name,
                   const struct manage *like)
{
    struct vow__etcd *e = vow__etcd_of(s);
    struct manage *m = NULL;
    int rc = vow__etcd_usable(e);
    if (rc == 0 && (m = vow__mem_new(vow__etcd_alloc(e), sizeof(*m))) == NULL)
        rc = VOW_ENOMEM;
    if (m == NULL) {
        like->done(rc, NULL, 0, like->user);
        return;
    }
    *m = *like;
    m->lane = (struct vow__step_lane){
        .lane = *name, .begin = begin, .refuse = refuse};
    m->trip = (struct vow__trip){
        .ops = &operations, .etcd = e, .lane = &m->lane, .name = *name};
    vow__step_begin(e, &m->lane);
}

static void begin(struct vow__step_lane *lane)
{
    struct vow__trip *t = &VOW__OUTER(lane, struct manage, lane)->trip;
    if (vow__trip_begin(t))
        vow__trip_read(t);
}

static void refuse(struct vow__step_lane *lane, int code)
{
    answer(&VOW__OUTER(lane, struct manage, lane)->trip, code);
}

static void judge(struct vow__trip *t)
{
    struct manage *m = manage_of(t);
    m->status = vow__er_says(&t->er);
    bool over =
        m->status == VOW_STATUS_SETTLED || m->status == VOW_STATUS_DOUBT;
    if (m->forgets && over && (m->epoch == 0 || m->epoch == t->er.epoch))
        write_nothing(m);
    else if (!m->forgets && m->status == VOW_STATUS_WAITING && !t->er.canceled)
        write_wish(m);
    else
        vow__trip_end(t, 0);
}

static void write_nothing(struct manage *m)
{
    struct vow__trip *t = &m->trip;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__key bell = vow__key("n", &t->name, "/c");
    struct vow__key value = vow__key_value(&t->name, t->er.epoch);
    struct vow__key chunks = vow__key("c", &t->name, "/");
    struct vow__key seats = vow__key("w", &t->name, "/");
    struct vow__txn txn;
    m->status = VOW_STATUS_NONE;
    vow__trip_txn(t, &txn);
    vow__txn_if_mod(&txn, &record, t->er.mod);
    vow__txn_if_absent(&txn, &alive); /* it is in doubt still */
    vow__txn_delete(&txn, VOW__THEN, &record, 0);
    vow__txn_delete(&txn, VOW__THEN, &bell, 0);
    vow__txn_delete(&txn, VOW__THEN, &value, 0);
    vow__txn_delete(&txn, VOW__THEN, &chunks, VOW__TREE);
    vow__txn_delete(&txn, VOW__THEN, &seats, VOW__TREE);
    vow__trip_write(t, &txn);
}

/* The record hangs on the lease of its owner, and stays there. */
static void write_wish(struct manage *m)
{
    struct vow__trip *t = &m->trip;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__jot value;
    struct vow__txn txn;
    vow__trip_txn(t, &txn);
    vow__jot_init(&value, vow__etcd_alloc(t->etcd));
    t->er.canceled = true;
    vow__er_write(&t->er, true, &value);
    vow__txn_if_mod(&txn, &record, t->er.mod);
    vow__txn_if_mod(&txn, &alive, t->er.alive);
    vow__txn_put(&txn, VOW__THEN, &record, &value, t->er.lease);
    vow__jot_fini(&value);
    vow__trip_write(t, &txn);
}

static void wrote(struct vow__trip *t, const json_t *root)
{
    (void)root;
    vow__trip_end(t, 0);
}

static void answer(struct vow__trip *t, int code)
{
    struct manage *m = manage_of(t);
    const struct vow_alloc alloc = *vow__etcd_alloc(t->etcd);
    vow_record r = {
        .name = t->name, .status = m->status, .label = "", .runner = ""};
    if (m->status != VOW_STATUS_NONE)
        r = vow__er_record(&t->er, m->status);
    r.value = NULL;
    m->done(code, code == 0 ? &r : NULL, code == 0, m->user);
    vow__trip_fini(t);
    vow__mem_free(&alloc, m, sizeof(*m));
}

/* ---- peek ---------------------------------------------------------------- */

void vow__etcd_peek(vow_store *s, const vow_name *names, size_t n,
                    vow_records_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(s);
    struct peek *p = NULL;
    int rc = vow__etcd_usable(e);
    if (rc == 0 && n > 0 && (p = peek_new(e, names, n)) == NULL)
        rc = VOW_ENOMEM;
    if (p == NULL) {
        done(rc, NULL, 0, user);
        return;
    }
    p->done = done;
    p->user = user;
    p->left = n + 1;
    for (size_t i = 0; i < n; i++)
        vow__step_begin(e, &p->glances[i].lane);
    join(p, 0);
}

static struct peek *peek_new(struct vow__etcd *e, const vow_name *names,
                             size_t n)
{
    const size_t one = sizeof(vow_record) + sizeof(struct vow__er) +
                       sizeof(struct glance) + sizeof(struct part);
    if (n > (SIZE_MAX - sizeof(struct peek)) / one)
        return NULL;
    size_t size = sizeof(struct peek) + n * one;
    struct peek *p = vow__mem_zero(vow__etcd_alloc(e), size);
    if (p == NULL)
        return NULL;
    p->etcd = e;
    p->alloc = *vow__etcd_alloc(e);
    p->size = size;
    p->n = n;
    p->records = (vow_record *)(void *)(p + 1);
    p->ers = (struct vow__er *)(void *)(p->records + n);
    p->glances = (struct glance *)(void *)(p->ers + n);
    p->parts = (struct part *)(void *)(p->glances + n);
    for (size_t i = 0; i < n; i++) {
        p->ers[i].name = names[i];
        p->glances[i] = (struct glance){.peek = p,
                                        .lane = {.lane = names[i],
                                                 .begin = on_glance,
                                                 .refuse = refuse_glance}};
    }
    return p;
}

/* What was begun before has ended; what comes after need not wait. */
static void on_glance(struct vow__step_lane *lane)
{
    struct peek *p = VOW__OUTER(lane, struct glance, lane)->peek;
    vow__step_end(lane);
    join(p, 0);
}

static void refuse_glance(struct vow__step_lane *lane, int code)
{
    join(VOW__OUTER(lane, struct glance, lane)->peek, code);
}

/* One less to wait for: first all lanes, then all requests. */
static void join(struct peek *p, int code)
{
    if (p->code == 0)
        p->code = code;
    if (--p->left > 0)
        return;
    if (p->code == 0 && vow__etcd_closing(p->etcd))
        p->code = VOW_ECLOSED;
    if (p->asked || p->code < 0) {
        peek_end(p);
        return;
    }
    p->asked = true;
    p->left = 1; /* keeps L1 */
    for (size_t i = 0; i < p->n; i += NAMES) {
        struct part *part = &p->parts[i / NAMES];
        *part = (struct part){.peek = p, .first = i, .n = p->n - i};
        if (part->n > NAMES)
            part->n = NAMES;
        p->left++;
        ask_part(part);
    }
    join(p, 0);
}

static void ask_part(struct part *p)
{
    struct vow__etcd *e = p->peek->etcd;
    struct vow__txn txn;
    vow__txn_init(&txn, vow__etcd_alloc(e), vow__etcd_where_of(e)->prefix);
    txn.due_ns = p->peek->glances[0].lane.due_ns;
    for (size_t i = p->first; i < p->first + p->n; i++)
        vow__er_ask(&txn, VOW__THEN, &p->peek->ers[i].name);
    vow__etcd_txn(e, &txn, on_part, p);
    vow__txn_fini(&txn);
}

static void on_part(struct vow__etcd *e, int code, const json_t *root,
                    void *part)
{
    const struct part *p = part;
    for (size_t i = 0; code == 0 && i < p->n; i++) {
        struct vow__er *er = &p->peek->ers[p->first + i];
        vow_name name = er->name;
        code = vow__er_read(e, root, i * VOW__ER_RANGES, &name, er);
    }
    bool broken = code == VOW_EUNSURE || code == VOW_EIO;
    join(p->peek, broken ? VOW_ESTORE : code);
}

/* A result that is hidden is none; a lease that has lapsed is shown. */
static void peek_end(struct peek *p)
{
    const struct vow_alloc alloc = p->alloc;
    int code = p->code;
    for (size_t i = 0; i < p->n; i++) {
        struct vow__er *er = &p->ers[i];
        bool gone = er->hidden && er->state != VOW__ER_RUNS;
        uint32_t status = vow__er_says(er);
        if (gone)
            er->state = VOW__ER_ABSENT;
        p->records[i] = vow__er_record(er, status);
        p->records[i].value = NULL;
    }
    p->done(code, code == 0 ? p->records : NULL, code == 0 ? p->n : 0, p->user);
    for (size_t i = 0; i < p->n; i++)
        vow__er_fini(&p->ers[i]);
    vow__mem_free(&alloc, p, p->size);
}
