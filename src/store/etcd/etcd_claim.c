/* SPDX-License-Identifier: MIT */
/* etcd_claim.c - who does the work: claim.
 *
 * HOW   The first try supposes that there is nothing, and writes the record.
 *       If there is something, the same transaction has read it and, if its
 *       owner is alive, has registered this instance as waiting: w/H/INST, its
 *       seat. So a claim is one round trip when the name is free, and one when
 *       it is taken. What else may be found is judged and done by another
 *       transaction (etcd_trip.c).
 *       A claim of an instance that waits also reads the first hidden result
 *       that came since it began to, wherever the name is now. It takes no seat
 *       then.
 * INVARIANTS
 *   C1  who is not answered WAIT has no seat any more
 * THREADS  loop thread only.
 */
#include "base/failure.h"
#include "store/etcd/etcd_names.h"

struct claim {
    struct vow__step_lane lane;
    struct vow__trip trip;
    vow_claim_request ask;
    vow_records_fn done;
    void *user;
    uint64_t since; /* hidden results behind this revision are for it */
    uint64_t seat;  /* that was taken at this revision; 0: none */
    bool seated;    /* there may be one, */
    bool sits;      /* there is */
    bool gifted;    /* trip.next is a hidden result for it */
    bool under_way; /* a record is being written */
    enum vow__act act;
    uint32_t status;
    uint32_t takeovers; /* as they were written last, */
    uint64_t offset;    /* and this */
    uint64_t made_us;   /* wall clock, in every record of it */
    char label[VOW_LABEL_MAX + 1];
    char runner[VOW_LABEL_MAX + 1];
};

static void begin(struct vow__step_lane *lane);
static void refuse(struct vow__step_lane *lane, int code);
static void first_try(struct vow__trip *t);
static void suppose_nothing(struct claim *c);
static void take_seat_else(struct claim *c, struct vow__txn *txn);
static void ask_more(struct vow__trip *t, struct vow__txn *txn,
                     enum vow__branch b);
static int found_more(struct vow__trip *t, const json_t *root, size_t first);
static bool on_gift(const struct vow__kv *kv, void *trip);
static void judge(struct vow__trip *t);
static void write_own(struct claim *c, uint32_t takeovers);
static struct vow__er record_of(const struct claim *c);
static void write_renewal(struct claim *c);
static void write_given_up(struct vow__trip *t);
static void write_seat(struct claim *c);
static void write_no_seat(struct claim *c);
static void put_seat(struct claim *c, struct vow__txn *txn);
static void wrote(struct vow__trip *t, const json_t *root);
static void settled(struct vow__trip *t);
static void finish(struct claim *c, uint32_t status);
static void answer(struct vow__trip *t, int code);

static const struct vow__trip_ops operations = {.judge = judge,
                                                .wrote = wrote,
                                                .answer = answer,
                                                .ask = ask_more,
                                                .found = found_more};

static struct claim *claim_of(struct vow__trip *t)
{
    return VOW__OUTER(t, struct claim, trip);
}

static bool waits(const struct claim *c)
{
    return (c->ask.flags & VOW_CLAIM_NOWAIT) == 0;
}

void vow__etcd_claim(vow_store *s, const vow_claim_request *ask,
                     vow_records_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(s);
    struct claim *c = NULL;
    int rc = vow__etcd_usable(e);
    if (rc == 0 && (ask->floor > VOW__EPOCH_MAX || ask->mode > VOW_ONCE))
        rc = VOW_EINVAL;
    if (rc == 0 && (c = vow__mem_zero(vow__etcd_alloc(e), sizeof(*c))) == NULL)
        rc = VOW_ENOMEM;
    if (c == NULL) {
        done(rc, NULL, 0, user);
        return;
    }
    c->lane = (struct vow__step_lane){
        .lane = ask->name, .begin = begin, .refuse = refuse};
    c->trip = (struct vow__trip){
        .ops = &operations, .etcd = e, .lane = &c->lane, .name = ask->name};
    c->trip.begun_ns = vow_loop_now_ns(vow__etcd_loop(e));
    c->ask = *ask;
    c->done = done;
    c->user = user;
    vow__er_text(c->label, ask->label);
    vow__er_text(c->runner, ask->runner);
    if (c->ask.lease_ms > VOW__LEASE_MS_MAX)
        c->ask.lease_ms = VOW__LEASE_MS_MAX;
    vow__step_begin(e, &c->lane);
}

static void begin(struct vow__step_lane *lane)
{
    struct claim *c = VOW__OUTER(lane, struct claim, lane);
    struct vow__trip *t = &c->trip;
    if (!vow__trip_begin(t))
        return;
    if (c->runner[0] != 0)
        vow__er_text(vow__etcd_news(t->etcd)->runner, c->runner);
    c->made_us = vow__etcd_wall_us();
    c->since = vow__near_since(t->near, &c->ask);
    c->seated = t->near->seat != 0;
    t->hang = (struct vow__hang){.alive_ms = c->ask.lease_ms,
                                 .keep = true,
                                 .keep_ms = c->ask.lease_ms,
                                 .wait = waits(c)};
    vow__trip_hang(t, first_try);
}

static void refuse(struct vow__step_lane *lane, int code)
{
    answer(&VOW__OUTER(lane, struct claim, lane)->trip, code);
}

/* ---- the first try ------------------------------------------------------- */

/* Unless it is known that there is something, or the next epoch is not known
 * to be above the floor. */
static void first_try(struct vow__trip *t)
{
    struct claim *c = claim_of(t);
    const struct vow__etcd_news *n = vow__etcd_news(t->etcd);
    const struct vow__er *own = t->near->own;
    bool owns = own != NULL && vow__er_of(own, &c->ask.token);
    if (owns || n->revision + n->offset < c->ask.floor)
        vow__trip_read(t);
    else
        suppose_nothing(c);
}

static void suppose_nothing(struct claim *c)
{
    struct vow__trip *t = &c->trip;
    const struct vow__etcd_news *n = vow__etcd_news(t->etcd);
    t->er = (struct vow__er){.name = t->name,
                             .revision = n->revision,
                             .offset = n->offset,
                             .offset_mod = n->offset_mod};
    write_own(c, 0);
}

/* If its owner is alive, and there is nothing else for it. One that is known to
 * be there hangs on the same lease. */
static void take_seat_else(struct claim *c, struct vow__txn *txn)
{
    struct vow__trip *t = &c->trip;
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__key seat = vow__key_seat(t->etcd, &t->name);
    struct vow__key gifts = vow__key("v", &t->name, "/g/");
    struct vow__txn inner;
    vow__trip_txn(t, &inner);
    vow__txn_if_there(&inner, &alive);
    if (t->near->seat != 0)
        vow__txn_if_absent(&inner, &seat);
    if (c->since != 0)
        vow__txn_if_quiet(&inner, &gifts, c->since);
    put_seat(c, &inner);
    vow__txn_nest(txn, VOW__ELSE, &inner);
    vow__txn_fini(&inner);
    t->first = 1;
}

static void put_seat(struct claim *c, struct vow__txn *txn)
{
    struct vow__key seat = vow__key_seat(c->trip.etcd, &c->trip.name);
    vow__txn_put(txn, VOW__THEN, &seat, NULL, c->trip.wait);
}

/* ---- what was found ------------------------------------------------------ */

static void ask_more(struct vow__trip *t, struct vow__txn *txn,
                     enum vow__branch b)
{
    struct claim *c = claim_of(t);
    struct vow__key gifts = vow__key("v", &t->name, "/g/");
    const struct vow__some some = {
        .newer = c->since, .by_age = true, .limit = 1};
    if (c->since != 0)
        vow__txn_some(txn, b, &gifts, &some);
}

static int found_more(struct vow__trip *t, const json_t *root, size_t first)
{
    struct claim *c = claim_of(t);
    const json_t *seat = t->first > 0 ? vow__json_response(root, 0) : NULL;
    if (seat != NULL && vow__json_succeeded(seat))
        c->seat = t->er.revision;
    c->gifted = false;
    if (c->since != 0 &&
        !vow__json_each(t->etcd, vow__json_response(root, first), on_gift, t))
        return VOW_EIO;
    c->sits = seat != NULL && t->er.alive != 0 && !c->gifted;
    c->seated |= c->seat != 0;
    return 0;
}

static bool on_gift(const struct vow__kv *kv, void *trip)
{
    struct vow__trip *t = trip;
    vow__er_fini(&t->next);
    t->next.name = t->name;
    claim_of(t)->gifted = vow__er_read_key(t->etcd, kv, 'r', &t->next) == 0;
    return true;
}

static void judge(struct vow__trip *t)
{
    struct claim *c = claim_of(t);
    c->under_way = false;
    if (c->gifted) {
        vow__trip_value(t, &t->next, settled);
        return;
    }
    c->act = vow__judge_claim(&t->er, &c->ask);
    if (c->act != VOW__ACT_RENEW && vow__ghost_has(t->near, &t->er)) {
        write_own(c, t->er.takeovers); /* it is nobody's */
        return;
    }
    switch (c->act) {
    case VOW__ACT_OWN:
        write_own(c, 0);
        break;
    case VOW__ACT_REPLACE:
        write_own(c, t->er.takeovers + 1);
        break;
    case VOW__ACT_RENEW:
        write_renewal(c);
        break;
    case VOW__ACT_GIVE_UP:
        t->hang.once_ms = VOW__GAVE_UP_MS;
        vow__trip_hang(t, write_given_up);
        break;
    case VOW__ACT_WAIT:
        if (waits(c) && !c->sits)
            write_seat(c);
        else
            finish(c, VOW_STATUS_WAITING);
        break;
    case VOW__ACT_DOUBT:
        if (c->seated)
            write_no_seat(c);
        else
            finish(c, VOW_STATUS_DOUBT);
        break;
    default:
        vow__trip_value(t, &t->er, settled);
        break;
    }
}

/* ---- what is done -------------------------------------------------------- */

/* Nobody was judged yet at the first try: then it may fail. */
static void write_own(struct claim *c, uint32_t takeovers)
{
    struct vow__trip *t = &c->trip;
    struct vow__key gifts = vow__key("v", &t->name, "/g/");
    struct vow__txn txn;
    bool first = t->tries == 0;
    c->act = VOW__ACT_OWN;
    c->takeovers = takeovers;
    vow__er_fini(&t->next);
    t->next = record_of(c);
    vow__trip_txn(t, &txn);
    if (c->since != 0)
        vow__txn_if_quiet(&txn, &gifts, c->since);
    vow__own_write(t, &txn, c->ask.floor, c->seated); /* keeps C1 */
    t->first = 0;
    if (first && waits(c))
        take_seat_else(c, &txn);
    c->offset = t->next.offset;
    c->under_way = true;
    vow__trip_write(t, &txn);
}

static struct vow__er record_of(const struct claim *c)
{
    struct vow__er er = {.name = c->ask.name,
                         .state = VOW__ER_RUNS,
                         .mode = c->ask.mode,
                         .takeovers = c->takeovers,
                         .token = c->ask.token,
                         .lease_ms = c->ask.lease_ms,
                         .since_us = c->made_us,
                         .offset = c->offset};
    vow__er_text(er.label, c->label);
    vow__er_text(er.runner, c->runner);
    return er;
}

static void write_renewal(struct claim *c)
{
    struct vow__trip *t = &c->trip;
    struct vow__txn txn;
    vow__trip_txn(t, &txn);
    vow__renew_write(t, &txn, c->ask.lease_ms, c->seated); /* keeps C1 */
    t->first = 0;
    vow__trip_write(t, &txn);
}

/* It is nobody's, and all who wait are told. */
static void write_given_up(struct vow__trip *t)
{
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__key bell = vow__key("n", &t->name, "/c");
    struct vow__key chunks = vow__key("c", &t->name, "/");
    struct vow__key seats = vow__key("w", &t->name, "/");
    struct vow__jot value;
    struct vow__txn txn;
    vow__er_fini(&t->next);
    t->next = t->er;
    t->next.value = NULL;
    int rc = vow__failure_make(vow__etcd_alloc(t->etcd), VOW_EGAVEUP, NULL,
                               &t->next.value);
    if (rc < 0) {
        vow__trip_end(t, rc);
        return;
    }
    t->next.state = VOW__ER_GAVE_UP;
    t->next.token = (vow_token){.bytes = {0}};
    t->next.ttl_ms = VOW__GAVE_UP_MS;
    t->next.since_us = vow__etcd_wall_us();
    t->next.canceled = false;
    vow__trip_txn(t, &txn);
    vow__jot_init(&value, vow__etcd_alloc(t->etcd));
    vow__er_write(&t->next, true, &value);
    vow__txn_if_mod(&txn, &record, t->er.mod);
    vow__txn_if_absent(&txn, &alive);
    vow__txn_put(&txn, VOW__THEN, &record, &value, t->once);
    vow__txn_delete(&txn, VOW__THEN, &bell, 0);
    vow__txn_delete(&txn, VOW__THEN, &chunks, VOW__TREE);
    vow__txn_delete(&txn, VOW__THEN, &seats, VOW__TREE);
    vow__jot_fini(&value);
    t->first = 0;
    vow__trip_write(t, &txn);
}

static void write_seat(struct claim *c)
{
    struct vow__trip *t = &c->trip;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__key seats = vow__key("w", &t->name, "/");
    struct vow__txn txn;
    vow__trip_txn(t, &txn);
    vow__txn_if_mod(&txn, &record, t->er.mod);
    vow__txn_if_there(&txn, &alive);
    put_seat(c, &txn);
    vow__txn_range(&txn, VOW__THEN, &seats, VOW__TREE | VOW__COUNT_ONLY);
    t->first = 0;
    vow__trip_write(t, &txn);
}

static void write_no_seat(struct claim *c)
{
    struct vow__trip *t = &c->trip;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key seat = vow__key_seat(t->etcd, &t->name);
    struct vow__txn txn;
    vow__trip_txn(t, &txn);
    vow__txn_if_mod(&txn, &record, t->er.mod);
    vow__txn_delete(&txn, VOW__THEN, &seat, 0); /* keeps C1 */
    t->first = 0;
    vow__trip_write(t, &txn);
}

static void wrote(struct vow__trip *t, const json_t *root)
{
    struct claim *c = claim_of(t);
    uint64_t count;
    c->under_way = false;
    switch (c->act) {
    case VOW__ACT_OWN:
        if (vow__own_wrote(t, root, c->ask.floor))
            finish(c, VOW_STATUS_OWNED);
        else
            write_own(c, t->er.takeovers);
        break;
    case VOW__ACT_RENEW:
        vow__renew_wrote(t, root);
        finish(c, VOW_STATUS_OWNED);
        break;
    case VOW__ACT_WAIT:
        count = vow__json_uint(vow__json_response(root, 1), "count");
        t->er.revision = vow__json_revision(root);
        t->er.waiters = (uint32_t)count;
        c->seat = t->er.revision;
        finish(c, VOW_STATUS_WAITING);
        break;
    case VOW__ACT_DOUBT:
        finish(c, VOW_STATUS_DOUBT);
        break;
    default: /* it gave up */
        vow__er_fini(&t->er);
        t->er = t->next;
        t->next.value = NULL;
        finish(c, VOW_STATUS_SETTLED);
        break;
    }
}

/* ---- the end ------------------------------------------------------------- */

static void settled(struct vow__trip *t)
{
    finish(claim_of(t), VOW_STATUS_SETTLED);
}

static void finish(struct claim *c, uint32_t status)
{
    struct vow__trip *t = &c->trip;
    struct vow__near *near = t->near;
    c->status = status;
    if (c->gifted) {
        near->gift = true;
        near->read = true;
        near->waiter = c->ask.token; /* which may be repeated */
    } else if (status != VOW_STATUS_WAITING) {
        vow__near_leave(near);
    } else if (waits(c)) {
        vow__near_wait(near, &c->ask.token, t->er.revision, c->seat);
    }
    if (status == VOW_STATUS_OWNED)
        vow__near_own(near, &t->er, t->begun_ns);
    else if (near->own != NULL && (t->er.state != VOW__ER_RUNS ||
                                   !vow__er_of(&t->er, &near->own->token)))
        vow__near_disown(near);
    vow__trip_end(t, 0);
}

static void answer(struct vow__trip *t, int code)
{
    struct claim *c = claim_of(t);
    const struct vow_alloc alloc = *vow__etcd_alloc(t->etcd);
    const vow_record r =
        vow__er_record(c->gifted ? &t->next : &t->er, c->status);
    bool owns = code == 0 && c->status == VOW_STATUS_OWNED;
    bool cut_off = code == VOW_ECLOSED && c->under_way;
    if (t->unsure || cut_off) { /* it may still come */
        const struct vow__er made = record_of(c);
        vow__ghost_claim(t->etcd, &made, owns ? t->er.epoch : 0);
    }
    c->done(code, code == 0 ? &r : NULL, code == 0, c->user);
    vow__trip_fini(t);
    vow__mem_free(&alloc, c, sizeof(*c));
}
