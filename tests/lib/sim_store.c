/* SPDX-License-Identifier: MIT */
/* sim_store.c - the store of a simulated process: what it is asked becomes a
 * message (sim_net.c). */
#include "sim_step.h"

#include <stdio.h>
#include <string.h>

static void *copy(const void *from, size_t n, size_t size)
{
    void *p = sim_zeroed(n, size);
    memcpy(p, from, n * size);
    return p;
}

static struct sim_step *begin(vow_store *s, enum sim_kind kind,
                              union sim_done done, void *user)
{
    struct sim_step *t = sim_zeroed(1, sizeof(*t));
    t->node = (struct sim_node *)(void *)s;
    t->kind = kind;
    t->done = done;
    t->user = user;
    t->refs = 1;
    vow__list_push(&t->node->steps, &t->link);
    SIM_CHECK(t->node->sim, !t->node->closed);
    return t;
}

/* ---- the operations ----------------------------------------------------- */

#define RECORDS(fn) ((union sim_done){.records = (fn)})
#define PLACES(fn) ((union sim_done){.places = (fn)})

static void take_text(char to[64], const char **text)
{
    if (*text == NULL)
        return;
    snprintf(to, 64, "%s", *text);
    *text = to;
}

static void op_listen(vow_store *s, const vow_store_events *events)
{
    ((struct sim_node *)(void *)s)->events = *events;
}

static void op_claim(vow_store *s, const vow_claim_request *ask,
                     vow_records_fn done, void *user)
{
    struct sim_step *t = begin(s, CLAIM, RECORDS(done), user);
    t->claim = *ask;
    take_text(t->label, &t->claim.label);
    take_text(t->runner, &t->claim.runner);
    sim_send(t);
}

static void op_peek(vow_store *s, const vow_name *names, size_t n,
                    vow_records_fn done, void *user)
{
    struct sim_step *t = begin(s, PEEK, RECORDS(done), user);
    t->names = copy(names, n, sizeof(*names));
    t->n = n;
    sim_send(t);
}

static void op_pulse(vow_store *s, const vow_hold *holds, size_t n,
                     uint64_t lease_ms, vow_records_fn done, void *user)
{
    struct sim_step *t = begin(s, PULSE, RECORDS(done), user);
    t->holds = copy(holds, n, sizeof(*holds));
    t->n = n;
    t->number = lease_ms;
    sim_send(t);
}

static void op_commit(vow_store *s, const vow_commit_request *ask,
                      vow_records_fn done, void *user)
{
    struct sim_step *t = begin(s, COMMIT, RECORDS(done), user);
    t->commit = *ask;
    t->commit.value = vow_bytes_ref(ask->value);
    take_text(t->label, &t->commit.label);
    sim_send(t);
}

static void op_forget(vow_store *s, const vow_name *name, uint64_t epoch,
                      vow_records_fn done, void *user)
{
    struct sim_step *t = begin(s, FORGET, RECORDS(done), user);
    t->name = *name;
    t->number = epoch;
    sim_send(t);
}

static void op_cancel(vow_store *s, const vow_name *name, vow_records_fn done,
                      void *user)
{
    struct sim_step *t = begin(s, CANCEL, RECORDS(done), user);
    t->name = *name;
    sim_send(t);
}

static void op_list(vow_store *s, vow_records_fn done, void *user)
{
    sim_send(begin(s, LIST, RECORDS(done), user));
}

static void op_write(vow_store *s, const vow_hold *hold, uint64_t number,
                     vow_bytes *chunk, vow_records_fn done, void *user)
{
    struct sim_step *t = begin(s, WRITE, RECORDS(done), user);
    t->hold = *hold;
    t->from = number;
    t->chunk = vow_bytes_ref(chunk);
    sim_send(t);
}

static void op_read(vow_store *s, const vow_name *name, uint64_t epoch,
                    uint64_t from, vow_chunks_fn done, void *user)
{
    struct sim_step *t = begin(s, READ, (union sim_done){.chunks = done}, user);
    t->name = *name;
    t->number = epoch;
    t->from = from;
    sim_send(t);
}

static void op_acquire(vow_store *s, const vow_permit_request *ask,
                       vow_permits_fn done, void *user)
{
    struct sim_step *t = begin(s, ACQUIRE, PLACES(done), user);
    t->place = *ask;
    take_text(t->label, &t->place.label);
    take_text(t->runner, &t->place.runner);
    sim_send(t);
}

static void op_release(vow_store *s, const vow_permit_hold *hold,
                       vow_permits_fn done, void *user)
{
    struct sim_step *t = begin(s, RELEASE, PLACES(done), user);
    t->places = copy(hold, 1, sizeof(*hold));
    sim_send(t);
}

static void op_renew(vow_store *s, const vow_permit_hold *holds, size_t n,
                     uint64_t lease_ms, vow_permits_fn done, void *user)
{
    struct sim_step *t = begin(s, RENEW, PLACES(done), user);
    t->places = copy(holds, n, sizeof(*holds));
    t->n = n;
    t->number = lease_ms;
    sim_send(t);
}

static void op_limit(vow_store *s, const vow_name *pool,
                     const vow_pool_limits *limits, const char *label,
                     vow_pools_fn done, void *user)
{
    struct sim_step *t = begin(s, LIMIT, (union sim_done){.pools = done}, user);
    t->name = *pool;
    t->set = limits != NULL;
    if (limits != NULL)
        t->limits = *limits;
    take_text(t->label, &label);
    sim_send(t);
}

static void op_pools(vow_store *s, vow_pools_fn done, void *user)
{
    sim_send(begin(s, POOLS, (union sim_done){.pools = done}, user));
}

static const char *op_explain(vow_store *s)
{
    (void)s;
    return "";
}

static vow_future *op_close(vow_store *s)
{
    struct sim_node *n = (struct sim_node *)(void *)s;
    n->closed = true;
    sim_store_end(n, VOW_ECLOSED);
    sim_store_leave(n, false);
    return vow_resolved(n->loop, vow_nothing());
}

static const vow_store_ops OPS = {
    .version = VOW_STORE_VERSION,
    .modes = 1 << VOW_SHARED | 1 << VOW_FENCED | 1 << VOW_ONCE,
    .recheck_ms = 500,
    .value_max = 1 << 20,
    .kind = "sim",
    .listen = op_listen,
    .claim = op_claim,
    .peek = op_peek,
    .pulse = op_pulse,
    .commit = op_commit,
    .forget = op_forget,
    .cancel = op_cancel,
    .list = op_list,
    .write = op_write,
    .read = op_read,
    .acquire = op_acquire,
    .release = op_release,
    .renew = op_renew,
    .limit = op_limit,
    .pools = op_pools,
    .explain = op_explain,
    .close = op_close,
};

const vow_store_ops *sim_store_ops(void)
{
    return &OPS;
}
