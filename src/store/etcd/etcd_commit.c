/* SPDX-License-Identifier: MIT */
/* etcd_commit.c - how work ends: with a result, a failure, or given back.
 *
 * HOW   The owner that is known to be one writes at once, and compares that the
 *       record is still of the revision it knows; everybody else reads first.
 *       One transaction settles the record and takes away all that belonged to
 *       the run: being alive, chunks, and the seats of those who wait, who see
 *       it by their watch.
 *       A value lies within the record if it is small, in v/H/EPOCH if it is
 *       not, and above value_max in another store, put there first.
 *       A hidden result (ttl 0) is put into v/H/g/EPOCH as well if there is a
 *       seat: there it stays for those who waited when the name is claimed
 *       anew. A commit without an answer finds it there: it took effect, even
 *       if the name is another's by now.
 * INVARIANTS
 *   K1  the record is put before anything is deleted: who watches sees the
 *       result, not the end of its owner
 *   K2  an epoch that was committed is not above the next one of a claim
 * LIMITS  A result lives up to two seconds longer than its ttl if the process
 *         that committed it is gone.
 * THREADS  loop thread only.
 */
#include "store/etcd/etcd_names.h"

enum { EXACT_MS = 60000 /* a shorter ttl is ended by this process */ };

struct commit {
    struct vow__step_lane lane;
    struct vow__trip trip;
    vow_commit_request ask;
    vow_bytes *value;  /* counted */
    vow_bytes *ticket; /* counted; the value is elsewhere */
    vow_records_fn done;
    void *user;
    uint32_t status;
    bool supposes; /* that it owns, and has not settled it before */
    bool looks;    /* for its hidden result, */
    bool given;    /* which is there for those who waited */
    char label[VOW_LABEL_MAX + 1];
};

static int check(struct vow__etcd *e, const vow_commit_request *ask);
static void begin(struct vow__step_lane *lane);
static void refuse(struct vow__step_lane *lane, int code);
static void on_put_elsewhere(struct vow__etcd *e, int code, vow_bytes *ticket,
                             void *commit);
static void first_try(struct commit *c);
static void ask_gift(struct vow__trip *t, struct vow__txn *txn,
                     enum vow__branch b);
static int found_gift(struct vow__trip *t, const json_t *root, size_t first);
static bool on_gift(const struct vow__kv *kv, void *trip);
static void judge(struct vow__trip *t);
static bool runs(const struct commit *c);
static void settle(struct commit *c);
static void write_result(struct vow__trip *t);
static void put_result(struct commit *c, struct vow__txn *txn);
static void put_gift(struct commit *c, struct vow__txn *txn,
                     const struct vow__jot *value);
static void end_run(struct commit *c, struct vow__txn *txn);
static void write_abandoned(struct commit *c);
static void compare(struct commit *c, struct vow__txn *txn);
static void wrote(struct vow__trip *t, const json_t *root);
static void standing(struct vow__trip *t);
static void answer(struct vow__trip *t, int code);

static const struct vow__trip_ops operations = {.judge = judge,
                                                .wrote = wrote,
                                                .answer = answer,
                                                .ask = ask_gift,
                                                .found = found_gift};

static struct commit *commit_of(struct vow__trip *t)
{
    return VOW__OUTER(t, struct commit, trip);
}

void vow__etcd_commit(vow_store *s, const vow_commit_request *ask,
                      vow_records_fn done, void *user)
{
    struct vow__etcd *e = vow__etcd_of(s);
    struct commit *c = NULL;
    int rc = check(e, ask);
    if (rc == 0 && (c = vow__mem_zero(vow__etcd_alloc(e), sizeof(*c))) == NULL)
        rc = VOW_ENOMEM;
    if (c == NULL) {
        done(rc, NULL, 0, user);
        return;
    }
    const vow_name *name = &ask->hold.name;
    c->lane = (struct vow__step_lane){
        .lane = *name, .begin = begin, .refuse = refuse};
    c->trip = (struct vow__trip){
        .ops = &operations, .etcd = e, .lane = &c->lane, .name = *name};
    c->trip.begun_ns = vow_loop_now_ns(vow__etcd_loop(e));
    c->ask = *ask;
    c->done = done;
    c->user = user;
    if (ask->outcome != VOW_OUTCOME_ABANDONED && ask->value != NULL)
        c->value = vow_bytes_ref(ask->value);
    c->ask.value = c->value;
    vow__er_text(c->label, ask->label);
    vow__step_begin(e, &c->lane);
}

static int check(struct vow__etcd *e, const vow_commit_request *ask)
{
    int rc = vow__etcd_usable(e);
    bool none = ask->hold.epoch == 0 && (ask->flags & VOW_COMMIT_RESOLVE) == 0;
    if (rc == 0 && (ask->outcome < VOW_OUTCOME_DONE ||
                    ask->outcome > VOW_OUTCOME_ABANDONED ||
                    ask->hold.epoch > VOW__EPOCH_MAX || none))
        rc = VOW_EINVAL;
    return rc;
}

static void begin(struct vow__step_lane *lane)
{
    struct commit *c = VOW__OUTER(lane, struct commit, lane);
    struct vow__trip *t = &c->trip;
    if (!vow__trip_begin(t))
        return;
    if (vow_bytes_size(c->value) > vow__etcd_where_of(t->etcd)->value_max)
        vow__results_put(t->etcd, &c->ask, on_put_elsewhere, c);
    else
        first_try(c);
}

static void refuse(struct vow__step_lane *lane, int code)
{
    answer(&VOW__OUTER(lane, struct commit, lane)->trip, code);
}

/* That has no effect until the record says so. */
static void on_put_elsewhere(struct vow__etcd *e, int code, vow_bytes *ticket,
                             void *commit)
{
    struct commit *c = commit;
    (void)e;
    if (code < 0) {
        vow__trip_end(&c->trip, code == VOW_EUNSURE ? VOW_ESTORE : code);
        return;
    }
    c->ticket = vow_bytes_ref(ticket);
    vow__step_renew(&c->lane);
    first_try(c);
}

static void first_try(struct commit *c)
{
    struct vow__trip *t = &c->trip;
    const struct vow__near *near = t->near;
    const uint32_t others = VOW_COMMIT_PUT | VOW_COMMIT_RESOLVE;
    if (near->own == NULL || !near->sure || (c->ask.flags & others) != 0 ||
        !vow__er_held(near->own, &c->ask.hold)) {
        vow__trip_read(t);
        return;
    }
    t->er = *near->own;
    c->supposes = true;
    judge(t);
}

static bool hides(const struct commit *c)
{
    return c->ask.outcome != VOW_OUTCOME_ABANDONED && c->ask.ttl_ms == 0;
}

static void ask_gift(struct vow__trip *t, struct vow__txn *txn,
                     enum vow__branch b)
{
    struct commit *c = commit_of(t);
    struct vow__key gift = vow__key_gift(&t->name, c->ask.hold.epoch);
    c->looks = hides(c) && !c->supposes;
    c->supposes = false;
    if (c->looks)
        vow__txn_range(txn, b, &gift, 0);
}

static int found_gift(struct vow__trip *t, const json_t *root, size_t first)
{
    if (commit_of(t)->looks &&
        !vow__json_each(t->etcd, vow__json_response(root, first), on_gift, t))
        return VOW_EIO;
    return 0;
}

static bool on_gift(const struct vow__kv *kv, void *trip)
{
    struct vow__trip *t = trip;
    struct commit *c = commit_of(t);
    struct vow__er er = {.name = t->name};
    if (vow__er_read_key(t->etcd, kv, 'r', &er) == 0)
        c->given = vow__er_held(&er, &c->ask.hold);
    vow__er_fini(&er);
    return true;
}

static void judge(struct vow__trip *t)
{
    struct commit *c = commit_of(t);
    struct vow__verdict v = vow__judge_commit(&t->er, &c->ask);
    bool abandons = c->ask.outcome == VOW_OUTCOME_ABANDONED;
    bool resolves = (c->ask.flags & VOW_COMMIT_RESOLVE) != 0;
    c->status = v.status;
    if (t->unsure && abandons && resolves && v.status == VOW_STATUS_NONE)
        c->status = VOW_STATUS_OWNED; /* the write without an answer did it */
    if (c->given) { /* so has this one, before the name was another's */
        c->status = VOW_STATUS_OWNED;
        standing(t);
        return;
    }
    if (v.effect && !abandons)
        settle(c);
    else if (v.effect && runs(c))
        write_abandoned(c);
    else if (v.status == VOW_STATUS_SETTLED)
        vow__trip_value(t, &t->er, standing);
    else
        standing(t);
}

static bool runs(const struct commit *c)
{
    return c->trip.er.state == VOW__ER_RUNS;
}

/* ---- a result ------------------------------------------------------------ */

/* What never ran has no lease, nor anything else of a run. */
static void settle(struct commit *c)
{
    struct vow__trip *t = &c->trip;
    struct vow__er *next = &t->next;
    uint64_t recheck_ms = vow__etcd_where_of(t->etcd)->recheck_ms;
    vow_bytes *value = c->ticket != NULL ? c->ticket : c->value;
    vow__er_fini(next);
    if (runs(c))
        *next = t->er;
    else
        vow__er_text(next->runner, vow__etcd_news(t->etcd)->runner);
    next->name = t->name;
    next->state =
        c->ask.outcome == VOW_OUTCOME_DONE ? VOW__ER_DONE : VOW__ER_FAILED;
    next->token = c->ask.hold.token;
    next->epoch = c->ask.hold.epoch;
    next->cost_ms = c->ask.cost_ms;
    next->since_us = vow__etcd_wall_us();
    next->canceled = false;
    next->hidden = c->ask.ttl_ms == 0;
    next->ttl_ms =
        next->hidden ? 2 * recheck_ms + next->lease_ms : c->ask.ttl_ms;
    next->elsewhere = c->ticket != NULL;
    next->apart = vow_bytes_size(value) > VOW__ETCD_INLINE_MAX;
    next->value = value == NULL ? NULL : vow_bytes_ref(value);
    if (c->label[0] != 0)
        vow__er_text(next->label, c->label);
    t->hang = (struct vow__hang){.once_ms = next->ttl_ms};
    vow__trip_hang(t, write_result);
}

static void write_result(struct vow__trip *t)
{
    struct commit *c = commit_of(t);
    struct vow__txn txn;
    vow__trip_txn(t, &txn);
    compare(c, &txn);
    if (t->er.revision + t->er.offset < c->ask.hold.epoch) {
        struct vow__key offset = vow__key("e", NULL, "");
        vow__txn_if_mod(&txn, &offset, t->er.offset_mod);
        vow__own_raise(t, &txn, c->ask.hold.epoch); /* keeps K2 */
    }
    put_result(c, &txn); /* keeps K1 */
    end_run(c, &txn);
    vow__trip_write(t, &txn);
}

static void put_result(struct commit *c, struct vow__txn *txn)
{
    struct vow__trip *t = &c->trip;
    struct vow__er *next = &t->next;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key was = vow__key_value(&t->name, t->er.epoch);
    struct vow__key apart = vow__key_value(&t->name, next->epoch);
    struct vow__jot value, whole;
    bool is_apart = next->apart;
    vow__jot_init(&value, vow__etcd_alloc(t->etcd));
    vow__jot_init(&whole, vow__etcd_alloc(t->etcd));
    vow__er_write(next, true, &value);
    next->apart = false;
    if (is_apart || next->hidden)
        vow__er_write(next, true, &whole);
    next->apart = is_apart;
    vow__txn_put(txn, VOW__THEN, &record, &value, t->once);
    if (is_apart)
        vow__txn_put(txn, VOW__THEN, &apart, &whole, t->once);
    if (next->hidden)
        put_gift(c, txn, &whole);
    if (t->er.apart && t->er.epoch != next->epoch)
        vow__txn_delete(txn, VOW__THEN, &was, 0);
    vow__jot_fini(&value);
    vow__jot_fini(&whole);
}

/* If there is no seat nobody will read it. */
static void put_gift(struct commit *c, struct vow__txn *txn,
                     const struct vow__jot *value)
{
    struct vow__trip *t = &c->trip;
    struct vow__key seats = vow__key("w", &t->name, "/");
    struct vow__key gift = vow__key_gift(&t->name, t->next.epoch);
    struct vow__txn inner;
    vow__trip_txn(t, &inner);
    vow__txn_if_quiet(&inner, &seats, 0);
    vow__txn_put(&inner, VOW__ELSE, &gift, value, t->once);
    vow__txn_nest(txn, VOW__THEN, &inner);
    vow__txn_fini(&inner);
}

static void end_run(struct commit *c, struct vow__txn *txn)
{
    struct vow__trip *t = &c->trip;
    struct vow__key alive = vow__key("n", &t->name, "/a");
    struct vow__key bell = vow__key("n", &t->name, "/c");
    struct vow__key chunks = vow__key("c", &t->name, "/");
    struct vow__key seats = vow__key("w", &t->name, "/");
    vow__txn_delete(txn, VOW__THEN, &alive, 0);
    vow__txn_delete(txn, VOW__THEN, &bell, 0);
    vow__txn_delete(txn, VOW__THEN, &chunks, VOW__TREE);
    vow__txn_delete(txn, VOW__THEN, &seats, VOW__TREE);
}

static void write_abandoned(struct commit *c)
{
    struct vow__trip *t = &c->trip;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__txn txn;
    vow__trip_txn(t, &txn);
    compare(c, &txn);
    vow__txn_delete(&txn, VOW__THEN, &record, 0);
    end_run(c, &txn);
    vow__trip_write(t, &txn);
}

/* Who resolves a doubt has seen that nobody is alive; an owner that comes late
 * is as good as any. */
static void compare(struct commit *c, struct vow__txn *txn)
{
    struct vow__trip *t = &c->trip;
    struct vow__key record = vow__key("n", &t->name, "/r");
    struct vow__key alive = vow__key("n", &t->name, "/a");
    vow__txn_if_mod(txn, &record, t->er.mod);
    if ((c->ask.flags & VOW_COMMIT_RESOLVE) != 0)
        vow__txn_if_absent(txn, &alive);
    t->first = 0;
}

/* ---- the end ------------------------------------------------------------- */

static void wrote(struct vow__trip *t, const json_t *root)
{
    struct commit *c = commit_of(t);
    struct vow__key record = vow__key("n", &t->name, "/r");
    uint64_t ttl_ms = c->ask.ttl_ms;
    uint64_t now_ns = vow_loop_now_ns(vow__etcd_loop(t->etcd));
    uint64_t passed_ms = (now_ns - t->sent_ns) / 1000000;
    bool settles = c->ask.outcome != VOW_OUTCOME_ABANDONED;
    vow__near_disown(t->near);
    if (settles && ttl_ms > 0 && ttl_ms < EXACT_MS) /* or its lease will do */
        (void)vow__end_key(t->etcd, &record, vow__json_revision(root),
                           ttl_ms > passed_ms ? ttl_ms - passed_ms : 0);
    vow__trip_end(t, 0);
}

/* A commit that resolves a doubt, and finds a run, changes nothing: if the run
 * was ours, its key is still to end in time. */
static void standing(struct vow__trip *t)
{
    struct vow__near *near = t->near;
    const struct commit *c = commit_of(t);
    bool resolves = (c->ask.flags & VOW_COMMIT_RESOLVE) != 0;
    if (near->own != NULL && vow__er_held(near->own, &c->ask.hold) &&
        !(resolves && runs(c)))
        vow__near_disown(near);
    vow__trip_end(t, 0);
}

static void answer(struct vow__trip *t, int code)
{
    struct commit *c = commit_of(t);
    const struct vow_alloc alloc = *vow__etcd_alloc(t->etcd);
    bool mine = c->status == VOW_STATUS_OWNED || c->status == VOW_STATUS_NONE;
    vow_record r = {.name = t->name,
                    .status = c->status,
                    .epoch =
                        c->status == VOW_STATUS_OWNED ? c->ask.hold.epoch : 0,
                    .label = "",
                    .runner = ""};
    if (!mine)
        r = vow__er_record(&t->er, c->status);
    c->done(code, code == 0 ? &r : NULL, code == 0, c->user);
    vow_bytes_unref(c->value);
    vow_bytes_unref(c->ticket);
    vow__trip_fini(t);
    vow__mem_free(&alloc, c, sizeof(*c));
}
