/* SPDX-License-Identifier: MIT */
/* file_pool.c - steps on pools: find the pool, call a rule, write the row.
 *
 * HOW   A step reads the row of the pool, lets a rule of store/rules/pool.h
 *       decide on the permits of the pool, and writes the row. A request, and
 *       somebody who looks at a pool, begin by reading, so that many that ask
 *       again do not get in the way of processes that work. If the rule has to
 *       write, it is called again, from the start and by the time of then.
 *       The limits are those of the pool, or those of its law: the pool that
 *       has a pool for each key. The first request sets them.
 *       Before a request waits, it looks whether the processes with permits
 *       live: while it only reads, so that no writer waits for it.
 * THREADS  loop thread only.
 */
#include "store/file/file_pool.h"

#include <string.h>

/* A rule, with its arguments and answer. */
struct pool_step {
    enum pool_rule { ACQUIRE, RELEASE, RENEW, LIMIT } rule;
    const vow_permit_request *request;
    const vow_permit_hold *holds; /* n */
    size_t n;
    size_t i; /* of them */
    uint64_t lease_ms;
    const vow_name *id; /* LIMIT: all below */
    const vow_pool_limits *limits;
    const char *label;

    vow_pool_permit *out; /* n, or one */
    int code;             /* of the rule: 0 or VOW_EINVAL */
    struct vow__file_pool pool;
    struct vow__file_pool_use use;
    struct vow__file_crowd crowd;
    bool looked; /* at the crowd */
};

struct pool_list {
    struct pool_step step;
    struct vow__buf rows; /* struct pool_row */
};
struct pool_row {
    vow_pool_info info;
    char label[VOW_LABEL_MAX + 1];
};

/* ---- a rule ------------------------------------------------------------- */

static int rule_call(struct vow__file *s, struct pool_step *x)
{
    struct rules_pool *p = &x->pool.rule;
    const struct rules_storage *t = &x->use.storage;
    vow_pool_permit *out = x->out == NULL ? NULL : &x->out[x->i];
    struct rules_now now = {.now_us = (uint64_t)s->now_us,
                            .number = vow__file_epoch_number(s)};
    switch (x->rule) {
    case ACQUIRE:
        return vow__rules_acquire(p, t, x->request, now, out);
    case RELEASE:
        return vow__rules_release(p, t, &x->holds[x->i].token, now, out);
    case RENEW:
        return vow__rules_renew(p, t, &x->holds[x->i], x->lease_ms, now, out);
    case LIMIT:
        break;
    }
    return vow__rules_limit(p, t, x->limits, now);
}

/* Goes over to writing, and calls the rule. */
static int rule_write(struct vow__file *s, struct pool_step *x)
{
    uint64_t fence = x->pool.rule.fence;
    int rc = x->rule == ACQUIRE ? vow__file_join(s) : 0;
    if (rc == 0)
        rc = vow__file_write(s);
    if (rc == 0 && (x->rule == ACQUIRE || x->pool.rule.waiting > 0))
        rc = vow__file_epoch_load(s);
    if (rc == 0)
        rc = rule_call(s, x);
    if (rc == VOW_EINVAL) {
        x->code = rc;
        rc = 0;
    }
    if (rc == 0 && x->pool.rule.fence != fence)
        rc = vow__file_epoch_seen(s, x->pool.rule.fence);
    return rc == 0 ? vow__file_pool_put(s, &x->pool) : rc;
}

/* What a rule has changed before it had to write is only the row of the pool:
 * the rate log is changed later. */
static int rule_run(struct vow__file *s, struct pool_step *x)
{
    if (s->phase == FILE_WRITES)
        return rule_write(s, x);
    struct rules_pool was = x->pool.rule;
    int rc = rule_call(s, x);
    if (rc == VOW_EINVAL)
        x->code = rc;
    if (rc != FILE_MUST_WRITE)
        return rc == VOW_EINVAL ? 0 : rc;
    x->pool.rule = was;
    return x->rule == LIMIT && sqlite3_db_readonly(s->db, "main") == 1
               ? 0
               : rule_write(s, x);
}

/* ---- acquire ------------------------------------------------------------ */

/* The pool of a request that is the first. */
static int pool_begin(struct vow__file *s, struct pool_step *x)
{
    const vow_permit_request *ask = x->request;
    struct vow__file_pool *p = &x->pool;
    bool own = vow_name_equal(&ask->pool, &ask->limits_of);
    vow_name law;
    int rc = vow__file_join(s);
    if (rc == 0)
        rc = vow__file_write(s);
    if (rc == 0 && !own)
        rc = vow__file_pool_find(s, &ask->limits_of, p);
    if (rc == 0 && !own && !p->there)
        rc = vow__file_pool_make(s, &ask->limits_of, NULL, &ask->limits,
                                 ask->limits_label, p);
    law = p->law;
    if (rc == 0)
        rc = vow__file_pool_make(s, &ask->pool, own ? NULL : &law, &ask->limits,
                                 ask->label, p);
    return rc;
}

/* Looks who holds a permit or waits, and may be dead: not if there is room, or
 * if the permit is held. */
static int look_around(struct vow__file *s, struct pool_step *x)
{
    const struct rules_pool *p = &x->pool.rule;
    uint64_t most = p->limits.concurrent;
    if (x->looked || (p->waiting == 0 &&
                      (most == 0 || p->held + x->request->weight <= most)))
        return 0;
    int rc = vow__file_permit_find(&x->use, &x->request->token);
    if (rc == 0 && x->use.mine.rule.held)
        return 0;
    if (rc == 0 || rc == VOW_ENOENT)
        rc = vow__file_crowd_see(s, &x->pool.id, &x->crowd);
    x->looked = rc == 0;
    return rc;
}

static int acquire_step(struct vow__file *s, void *arg)
{
    struct pool_step *x = arg;
    x->code = 0;
    int rc = vow__file_pool_find(s, &x->request->pool, &x->pool);
    if (rc == 0 && !x->pool.there)
        rc = pool_begin(s, x);
    vow__file_pool_use(&x->use, s, &x->pool, &x->crowd);
    if (rc == 0)
        rc = look_around(s, x);
    if (rc == 0)
        rc = rule_run(s, x);
    s->waited = s->waited || s->phase == FILE_WRITES;
    return rc;
}

void vow__file_acquire(vow_store *store, const vow_permit_request *ask,
                       vow_permits_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    vow_pool_permit out = {.status = VOW_STATUS_NONE};
    struct pool_step x = {.rule = ACQUIRE, .request = ask, .out = &out};
    int code = ask->weight == 0 || ask->lease_ms == 0 ? VOW_EINVAL : 0;
    if (code == 0)
        code = vow__file_step(s, VOW__FILE_READ, acquire_step, &x);
    if (code == 0)
        code = x.code;
    for (size_t i = 0;
         code == 0 && i < x.crowd.n_alive && out.status == VOW_STATUS_WAITING;
         i++)
        vow__file_watch(s, x.crowd.alive[i]);
    done(code, code == 0 ? &out : NULL, code == 0, user);
}

/* ---- release and renew -------------------------------------------------- */

static int holds_step(struct vow__file *s, void *arg)
{
    struct pool_step *x = arg;
    int rc = x->rule == RENEW ? vow__file_join(s) : 0;
    for (x->i = 0; x->i < x->n && rc == 0; x->i++) {
        x->out[x->i] = (vow_pool_permit){.status = VOW_STATUS_NONE};
        rc = vow__file_pool_find(s, &x->holds[x->i].pool, &x->pool);
        if (rc != 0 || !x->pool.there)
            continue;
        vow__file_pool_use(&x->use, s, &x->pool, NULL);
        rc = rule_run(s, x);
    }
    return rc;
}

void vow__file_release(vow_store *store, const vow_permit_hold *hold,
                       vow_permits_fn done, void *user)
{
    vow_pool_permit out;
    struct pool_step x = {.rule = RELEASE, .holds = hold, .n = 1, .out = &out};
    int code =
        vow__file_step(vow__file_of(store), VOW__FILE_WRITE, holds_step, &x);
    done(code, code == 0 ? &out : NULL, code == 0, user);
}

void vow__file_renew(vow_store *store, const vow_permit_hold *holds, size_t n,
                     uint64_t lease_ms, vow_permits_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct pool_step x = {
        .rule = RENEW, .holds = holds, .n = n, .lease_ms = lease_ms};
    if (n == 0 || lease_ms == 0) {
        done(lease_ms == 0 ? VOW_EINVAL : 0, NULL, 0, user);
        return;
    }
    x.out = vow__mem_new(&s->alloc, n * sizeof(x.out[0]));
    int code = VOW_ENOMEM;
    if (x.out != NULL)
        code = vow__file_step(s, VOW__FILE_WRITE, holds_step, &x);
    done(code, code == 0 ? x.out : NULL, code == 0 ? n : 0, user);
    vow__mem_free(&s->alloc, x.out, n * sizeof(x.out[0]));
}

static uint64_t pool_permits(const struct vow__file_pool *p)
{
    return p->rule.holders + p->rule.waiting;
}

/* Drops RULES_REAP_MAX permits of a pool; none at all is damage. */
static int drop_some(struct vow__file *s, struct pool_step *x)
{
    uint64_t before = pool_permits(&x->pool);
    int rc = x->pool.there ? rule_run(s, x) : SQLITE_CORRUPT;
    return rc == 0 && pool_permits(&x->pool) >= before ? SQLITE_CORRUPT : rc;
}

int vow__file_permits_drop(struct vow__file *s, const unsigned char *id)
{
    struct pool_step x = {.rule = LIMIT, .crowd = {.n_dead = 1}};
    vow_name pool = {.hash = {0}};
    bool there;
    memcpy(x.crowd.dead[0], id, FILE_ID);
    int rc = vow__file_permits_find(s, id, &pool, &there);
    while (rc == 0 && there) {
        rc = vow__file_pool_find(s, &pool, &x.pool);
        vow__file_pool_use(&x.use, s, &x.pool, &x.crowd);
        if (rc == 0)
            rc = drop_some(s, &x);
        if (rc == 0)
            rc = vow__file_permits_find(s, id, &pool, &there);
    }
    return rc;
}

/* ---- limits ------------------------------------------------------------- */

/* Does what a step on the pool would find to do. */
static int pool_refresh(struct vow__file *s, struct pool_step *x)
{
    int rc = vow__file_crowd_see(s, &x->pool.id, &x->crowd);
    vow__file_pool_use(&x->use, s, &x->pool, &x->crowd);
    return rc == 0 ? rule_run(s, x) : rc;
}

static int limit_step(struct vow__file *s, void *arg)
{
    struct pool_step *x = arg;
    struct vow__file_pool *p = &x->pool;
    int rc = vow__file_pool_find(s, x->id, p);
    if (rc == 0 && !p->there && x->limits == NULL)
        return VOW_ENOENT;
    if (rc == 0 && x->limits != NULL) {
        s->firm = true; /* limits survive a reboot */
        if (!p->there)
            rc = vow__file_pool_make(s, x->id, NULL, x->limits, x->label, p);
        else if (!vow_name_equal(&p->id, &p->law))
            rc = VOW_EINVAL; /* a key has no limits of its own */
        else
            rc = vow__file_pool_limits(s, x->id, x->limits, x->label);
        if (rc == 0)
            rc = vow__file_pool_find(s, x->id, p); /* the label */
    }
    return rc == 0 ? pool_refresh(s, x) : rc;
}

static vow_pool_info pool_info(const struct vow__file *s,
                               const struct vow__file_pool *p)
{
    return (vow_pool_info){
        .pool = p->id,
        .label = p->label,
        .limits = p->rule.limits,
        .held = p->rule.held,
        .holders = p->rule.holders,
        .waiting = p->rule.waiting,
        .rate_used = vow__rules_pool_used(&p->rule, (uint64_t)s->now_us)};
}

void vow__file_limit(vow_store *store, const vow_name *pool,
                     const vow_pool_limits *limits, const char *label,
                     vow_pools_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct pool_step x = {
        .rule = LIMIT, .id = pool, .limits = limits, .label = label};
    enum vow__file_how how = limits == NULL ? VOW__FILE_READ : VOW__FILE_WRITE;
    int code = vow__file_step(s, how, limit_step, &x);
    vow_pool_info info = pool_info(s, &x.pool);
    done(code, code == 0 ? &info : NULL, code == 0, user);
}

static int pools_step(struct vow__file *s, void *arg)
{
    struct pool_list *all = arg;
    struct vow__file_pool *p = &all->step.pool;
    vow__buf_clear(&all->rows);
    int rc = vow__file_pool_next(s, NULL, p);
    while (rc == 0 && p->there) {
        rc = pool_refresh(s, &all->step);
        struct pool_row *row = vow__buf_push(&all->rows, sizeof(*row));
        if (rc != 0 || row == NULL)
            return rc != 0 ? rc : VOW_ENOMEM;
        row->info = pool_info(s, p);
        memcpy(row->label, p->label, sizeof(row->label));
        rc = vow__file_pool_next(s, &p->id, p);
    }
    return rc;
}

void vow__file_pools(vow_store *store, vow_pools_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct pool_list all = {.step = {.rule = LIMIT}};
    struct vow__buf out;
    vow__buf_init(&out, &s->alloc, FILE_BUF_MAX);
    vow__buf_init(&all.rows, &s->alloc, FILE_BUF_MAX);
    int code = vow__file_step(s, VOW__FILE_READ, pools_step, &all);
    const struct pool_row *rows = (const void *)all.rows.bytes;
    size_t n = code == 0 ? all.rows.n / sizeof(*rows) : 0;
    vow_pool_info *infos =
        n == 0 ? NULL : vow__buf_push(&out, n * sizeof(*infos));
    if (infos == NULL && code == 0 && n > 0)
        code = VOW_ENOMEM;
    for (size_t i = 0; i < n && infos != NULL; i++) {
        infos[i] = rows[i].info;
        infos[i].label = rows[i].label;
    }
    done(code, code == 0 ? infos : NULL, code == 0 ? n : 0, user);
    vow__buf_fini(&out);
    vow__buf_fini(&all.rows);
}
