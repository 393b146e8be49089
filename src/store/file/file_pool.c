/* SPDX-License-Identifier: MIT */
/* file_pool.c - asking for places, giving them back, and limits.
 *
 * HOW   The limits of a pool are its own, or those of another, its law, which
 *       has one pool for each key. Who asks first sets them; vow__file_limit()
 *       changes them for all.
 *       Who looks again and finds nothing changed does not write. Before it
 *       waits, it looks whether all that are before it live: that is done
 *       while it only reads, so that no writer waits for it.
 * LIMITS  NEIGHBOURS instances are looked at by one step.
 * THREADS  loop thread only.
 */
#include "store/file/file_pool.h"

#include <string.h>

enum { NEIGHBOURS = 64 };

/* Who is in a pool. */
struct crowd {
    size_t n_alive, n_dead;
    unsigned char alive[NEIGHBOURS][FILE_ID];
    unsigned char dead[NEIGHBOURS][FILE_ID];
};

struct acquire {
    const vow_permit_request *ask;
    struct vow__file_pool pool;
    struct vow__file_place at;
    vow_pool_permit out;
    bool fresh;  /* it came with this step */
    bool looked; /* at the crowd */
    struct crowd crowd;
};

struct holds {
    const vow_permit_hold *at;
    size_t n;
    uint64_t lease_ms;
    vow_pool_permit *out;
};

struct limit {
    const vow_name *id;
    const vow_pool_limits *limits;
    const char *label;
    struct vow__file_pool pool;
    uint64_t used;
};

struct pools {
    struct vow__file_pile infos; /* struct pool_row */
};
struct pool_row {
    vow_pool_info info;
    char label[VOW_LABEL_MAX + 1];
};

static int acquire_step(struct vow__file *s, void *arg);
static int find_or_make(struct vow__file *s, struct acquire *a);
static int look_around(struct vow__file *s, struct acquire *a);
static int waits_on(struct vow__file *s, struct acquire *a, bool *ret_waits);
static int see_crowd(struct vow__file *s, const struct vow__file_pool *p,
                     struct crowd *c);
static int reap_all(struct vow__file *s, struct acquire *a);
static int reap_crowd(struct vow__file *s, struct vow__file_pool *p,
                      const struct crowd *c);
static int ask_again(struct vow__file *s, struct acquire *a);
static int ask_anew(struct vow__file *s, struct acquire *a);
static int answer(struct vow__file *s, struct acquire *a);
static int ahead_of(struct vow__file *s, const struct vow__file_pool *p,
                    const struct vow__file_place *at, uint64_t *ret_n,
                    uint64_t *ret_weight);
static int fill(struct vow__file *s, struct vow__file_pool *p,
                struct vow__file_place *at, vow_pool_permit *out);
static int release_step(struct vow__file *s, void *arg);
static int renew_step(struct vow__file *s, void *arg);
static int renew_one(struct vow__file *s, const vow_permit_hold *hold,
                     uint64_t lease_ms, vow_pool_permit *out);
static int limit_step(struct vow__file *s, void *arg);
static int set_limits(struct vow__file *s, struct limit *l);
static int grant_keys(struct vow__file *s, const vow_name *law);
static int brush_up(struct vow__file *s, struct vow__file_pool *p);
static vow_pool_info info_of(const struct vow__file_pool *p, uint64_t used);
static int pools_step(struct vow__file *s, void *arg);

/* ---- acquire ------------------------------------------------------------ */

void vow__file_acquire(vow_store *store, const vow_permit_request *ask,
                       vow_permits_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct acquire a = {.ask = ask};
    int code = ask->weight == 0 || ask->lease_ms == 0 ? VOW_EINVAL : 0;
    if (code == 0)
        code = vow__file_step(s, VOW__FILE_READ, acquire_step, &a);
    for (size_t i = 0;
         i < a.crowd.n_alive && a.out.status == VOW_STATUS_WAITING; i++)
        vow__file_watch(s, a.crowd.alive[i]);
    done(code, code == 0 ? &a.out : NULL, code == 0, user);
}

static int acquire_step(struct vow__file *s, void *arg)
{
    struct acquire *a = arg;
    bool waits = false;
    int rc = vow__file_pool_find(s, &a->ask->pool, &a->pool);
    a->at.there = false;
    if (rc == 0 && a->pool.there)
        rc = vow__file_place_find(s, &a->pool, &a->ask->token, &a->at);
    if (rc == 0 && !a->looked)
        rc = look_around(s, a);
    if (rc == 0)
        rc = waits_on(s, a, &waits);
    if (rc != 0 || waits)
        return rc;
    rc = vow__file_join(s);
    if (rc == 0)
        rc = vow__file_write(s);
    if (rc == 0)
        rc = find_or_make(s, a);
    if (rc == 0)
        rc = reap_all(s, a);
    if (rc != 0)
        return rc;
    s->waited = true;
    a->fresh = !a->at.there;
    return a->at.there ? ask_again(s, a) : ask_anew(s, a);
}

static int find_or_make(struct vow__file *s, struct acquire *a)
{
    const vow_permit_request *ask = a->ask;
    struct vow__file_pool law;
    if (a->pool.there)
        return 0;
    bool own = vow_name_equal(&ask->pool, &ask->limits_of);
    int rc = 0;
    if (!own) {
        rc = vow__file_pool_find(s, &ask->limits_of, &law);
        if (rc == 0 && !law.there) {
            law.law = ask->limits_of;
            rc = vow__file_pool_make(s, &law.law, NULL, &ask->limits,
                                     ask->limits_label);
        }
    }
    if (rc == 0)
        rc = vow__file_pool_make(s, &ask->pool, own ? NULL : &law.law,
                                 &ask->limits, ask->label);
    return rc == 0 ? vow__file_pool_find(s, &ask->pool, &a->pool) : rc;
}

/* Who holds a place or waits, and may be dead; not needed if there is room. */
static int look_around(struct vow__file *s, struct acquire *a)
{
    const struct vow__file_pool *p = &a->pool;
    bool room =
        p->waiting == 0 && (p->limits.concurrent == 0 ||
                            p->held + a->ask->weight <= p->limits.concurrent);
    if (!p->there || room || (a->at.there && a->at.held))
        return 0;
    a->looked = true;
    return see_crowd(s, p, &a->crowd);
}

static int see_crowd(struct vow__file *s, const struct vow__file_pool *p,
                     struct crowd *c)
{
    int rc;
    sqlite3_stmt *q = vow__file_sql(
        s, "SELECT DISTINCT inst FROM place WHERE pool=?1 LIMIT 64");
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    c->n_alive = 0;
    c->n_dead = 0;
    while (vow__file_row(s, q, &rc)) {
        unsigned char id[FILE_ID];
        vow__file_bytes_read(q, 0, id, FILE_ID);
        if (vow__file_gone(s, id))
            memcpy(c->dead[c->n_dead++], id, FILE_ID);
        else
            memcpy(c->alive[c->n_alive++], id, FILE_ID);
    }
    return rc;
}

/* It is in the queue, and nothing has changed: no need to write. */
static int waits_on(struct vow__file *s, struct acquire *a, bool *ret_waits)
{
    int64_t lease_us = vow__file_us_of_ms(a->ask->lease_ms);
    bool stale;
    *ret_waits = false;
    if (!a->at.there || a->at.held || a->pool.limits.rate > 0 ||
        a->crowd.n_dead > 0 || a->at.end_us > vow__file_after(s, lease_us) ||
        a->at.end_us <= vow__file_after(s, lease_us / 2))
        return 0;
    int rc = vow__file_pool_stale(s, &a->pool, &stale);
    if (rc != 0 || stale)
        return rc;
    *ret_waits = true;
    return fill(s, &a->pool, &a->at, &a->out);
}

static int reap_all(struct vow__file *s, struct acquire *a)
{
    int rc = reap_crowd(s, &a->pool, &a->crowd);
    if (a->at.there && a->at.end_us <= s->now_us)
        a->at.there = false;
    return rc;
}

static int reap_crowd(struct vow__file *s, struct vow__file_pool *p,
                      const struct crowd *c)
{
    int rc = vow__file_reap(s, p);
    for (size_t i = 0; i < c->n_dead && rc == 0; i++)
        rc = vow__file_reap_inst(s, p, c->dead[i]);
    return rc;
}

static int ask_again(struct vow__file *s, struct acquire *a)
{
    memcpy(a->at.inst, s->id, FILE_ID);
    a->at.end_us = vow__file_after(s, vow__file_us_of_ms(a->ask->lease_ms));
    int rc = vow__file_place_put(s, &a->pool, &a->at);
    if (rc == 0)
        rc = vow__file_grant(s, &a->pool, &a->ask->token);
    return rc == 0 ? answer(s, a) : rc;
}

static int ask_anew(struct vow__file *s, struct acquire *a)
{
    const vow_permit_request *ask = a->ask;
    struct vow__file_pool *p = &a->pool;
    bool only_try = (ask->flags & VOW_PERMIT_TRY) != 0;
    if (!vow__file_pool_allows(p, ask->weight))
        return VOW_EINVAL;
    int rc = vow__file_grant(s, p, NULL); /* to those who were reaped for */
    if (rc == 0 && !(only_try && p->waiting > 0)) {
        a->at = (struct vow__file_place){.there = true,
                                         .token = ask->token,
                                         .seq = ++p->seq,
                                         .weight = ask->weight,
                                         .again_us = FILE_FOREVER};
        memcpy(a->at.inst, s->id, FILE_ID);
        a->at.end_us = vow__file_after(s, vow__file_us_of_ms(ask->lease_ms));
        p->waiting++;
        rc = vow__file_place_put(s, p, &a->at);
        if (rc == 0)
            rc = vow__file_grant(s, p, &ask->token);
    }
    return rc == 0 ? answer(s, a) : rc;
}

static int answer(struct vow__file *s, struct acquire *a)
{
    struct vow__file_pool *p = &a->pool;
    int rc = vow__file_place_find(s, p, &a->ask->token, &a->at);
    if (rc != 0)
        return rc;
    bool waits = a->at.there && !a->at.held;
    if (waits && a->fresh && (a->ask->flags & VOW_PERMIT_TRY) != 0) {
        rc = vow__file_place_delete(s, p, &a->at);
        a->at.there = false;
    }
    a->out = (vow_pool_permit){.status = VOW_STATUS_BUSY, .limits = p->limits};
    if (rc == 0 && a->at.there) {
        rc = fill(s, p, &a->at, &a->out);
        if (rc == 0 && waits)
            rc = vow__file_place_put(s, p, &a->at); /* when it asks again */
    }
    return rc == 0 ? vow__file_pool_put(s, p) : rc;
}

static int fill(struct vow__file *s, struct vow__file_pool *p,
                struct vow__file_place *at, vow_pool_permit *out)
{
    uint64_t weight;
    *out = (vow_pool_permit){.status = VOW_STATUS_OWNED,
                             .fence = (uint64_t)at->fence,
                             .limits = p->limits};
    if (at->held)
        return 0;
    out->status = VOW_STATUS_WAITING;
    out->fence = 0;
    int rc = ahead_of(s, p, at, &out->ahead, &weight);
    int64_t when = s->now_us;
    if (rc == 0 && p->limits.rate > 0)
        rc = vow__file_rate_when(s, p, weight, at->weight, &when);
    if (when <= s->now_us) { /* a lease must end, and wake-ups come */
        when = p->next_us > s->now_us ? p->next_us : s->now_us;
        if (at->end_us <= when) /* its own: before it is over */
            when = s->now_us + (at->end_us - s->now_us) / 2;
        when += when < FILE_FOREVER;
    }
    at->again_us = when;
    out->again_us = (uint64_t)(when - s->now_us);
    return rc;
}

static int ahead_of(struct vow__file *s, const struct vow__file_pool *p,
                    const struct vow__file_place *at, uint64_t *ret_n,
                    uint64_t *ret_weight)
{
    sqlite3_stmt *q = vow__file_sql(
        s, "SELECT count(*),sum(weight) FROM place INDEXED BY place_line"
           " WHERE pool=?1 AND held=0 AND seq<?2");
    int rc;
    vow__file_bind(q, 1, p->id.hash, sizeof(p->id.hash));
    vow__file_bind_int(q, 2, at->seq);
    *ret_n = 0;
    *ret_weight = 0;
    if (vow__file_row(s, q, &rc)) {
        *ret_n = (uint64_t)sqlite3_column_int64(q, 0);
        *ret_weight = (uint64_t)sqlite3_column_int64(q, 1);
        (void)sqlite3_reset(q);
    }
    return rc;
}

/* ---- release and renew -------------------------------------------------- */

void vow__file_release(vow_store *store, const vow_permit_hold *hold,
                       vow_permits_fn done, void *user)
{
    vow_pool_permit out = {.status = VOW_STATUS_NONE};
    struct holds h = {.at = hold, .n = 1, .out = &out};
    int code =
        vow__file_step(vow__file_of(store), VOW__FILE_WRITE, release_step, &h);
    done(code, code == 0 ? &out : NULL, code == 0, user);
}

static int release_step(struct vow__file *s, void *arg)
{
    struct holds *h = arg;
    struct vow__file_pool p;
    struct vow__file_place at = {.there = false};
    *h->out = (vow_pool_permit){.status = VOW_STATUS_NONE};
    int rc = vow__file_pool_find(s, &h->at->pool, &p);
    if (rc != 0 || !p.there)
        return rc;
    rc = vow__file_reap(s, &p);
    if (rc == 0)
        rc = vow__file_place_find(s, &p, &h->at->token, &at);
    h->out->limits = p.limits;
    if (rc == 0 && at.there) {
        h->out->status = at.held ? VOW_STATUS_OWNED : VOW_STATUS_WAITING;
        h->out->fence = (uint64_t)at.fence;
        rc = vow__file_place_delete(s, &p, &at);
    }
    if (rc == 0)
        rc = vow__file_grant(s, &p, NULL);
    return rc == 0 ? vow__file_pool_put(s, &p) : rc;
}

void vow__file_renew(vow_store *store, const vow_permit_hold *holds, size_t n,
                     uint64_t lease_ms, vow_permits_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct holds h = {.at = holds, .n = n, .lease_ms = lease_ms};
    if (n == 0 || lease_ms == 0) {
        done(lease_ms == 0 ? VOW_EINVAL : 0, NULL, 0, user);
        return;
    }
    h.out = vow__mem_new(&s->alloc, n * sizeof(h.out[0]));
    int code = VOW_ENOMEM;
    if (h.out != NULL)
        code = vow__file_step(s, VOW__FILE_WRITE, renew_step, &h);
    done(code, code == 0 ? h.out : NULL, code == 0 ? n : 0, user);
    vow__mem_free(&s->alloc, h.out, n * sizeof(h.out[0]));
}

static int renew_step(struct vow__file *s, void *arg)
{
    struct holds *h = arg;
    int rc = vow__file_join(s);
    for (size_t i = 0; i < h->n && rc == 0; i++)
        rc = renew_one(s, &h->at[i], h->lease_ms, &h->out[i]);
    return rc;
}

static int renew_one(struct vow__file *s, const vow_permit_hold *hold,
                     uint64_t lease_ms, vow_pool_permit *out)
{
    struct vow__file_pool p;
    struct vow__file_place at = {.there = false};
    *out = (vow_pool_permit){.status = VOW_STATUS_NONE};
    int rc = vow__file_pool_find(s, &hold->pool, &p);
    if (rc != 0 || !p.there)
        return rc;
    rc = vow__file_reap(s, &p);
    if (rc == 0)
        rc = vow__file_place_find(s, &p, &hold->token, &at);
    if (rc == 0 && at.there) {
        memcpy(at.inst, s->id, FILE_ID);
        at.end_us = vow__file_after(s, vow__file_us_of_ms(lease_ms));
        if (hold->started)
            rc = vow__file_place_start(s, &p, &at);
        if (rc == 0)
            rc = vow__file_place_put(s, &p, &at);
    }
    if (rc == 0)
        rc = vow__file_grant(s, &p, NULL);
    if (rc == 0 && at.there)
        rc = vow__file_place_find(s, &p, &hold->token, &at);
    if (rc == 0 && at.there)
        rc = fill(s, &p, &at, out);
    return rc == 0 ? vow__file_pool_put(s, &p) : rc;
}

/* ---- limits ------------------------------------------------------------- */

void vow__file_limit(vow_store *store, const vow_name *pool,
                     const vow_pool_limits *limits, const char *label,
                     vow_pools_fn done, void *user)
{
    struct limit l = {.id = pool, .limits = limits, .label = label};
    enum vow__file_how how = limits == NULL ? VOW__FILE_READ : VOW__FILE_WRITE;
    int code = vow__file_step(vow__file_of(store), how, limit_step, &l);
    if (code == 0) {
        vow_pool_info info = info_of(&l.pool, l.used);
        done(0, &info, 1, user);
    } else {
        done(code, NULL, 0, user);
    }
}

static int limit_step(struct vow__file *s, void *arg)
{
    struct limit *l = arg;
    struct vow__file_pool *p = &l->pool;
    int rc = vow__file_pool_find(s, l->id, p);
    if (rc == 0 && !p->there && l->limits == NULL)
        return VOW_ENOENT;
    if (rc == 0 && l->limits != NULL)
        rc = set_limits(s, l);
    if (rc == 0)
        rc = brush_up(s, p);
    return rc == 0 ? vow__file_rate_used(s, p, &l->used) : rc;
}

/* A pool of one key has its own from now on. */
static int set_limits(struct vow__file *s, struct limit *l)
{
    char text[VOW_LABEL_MAX + 1];
    int rc = 0;
    s->firm = true; /* limits survive a reboot */
    if (!l->pool.there)
        rc = vow__file_pool_make(s, l->id, NULL, l->limits, l->label);
    sqlite3_stmt *q = vow__file_sql(
        s, "UPDATE pool SET law=id,concurrent=?2,rate=?3,span=?4,"
           "label=CASE ?5 WHEN '' THEN label ELSE ?5 END WHERE id=?1");
    vow__file_text_cut(text, l->label);
    vow__file_bind(q, 1, l->id->hash, sizeof(l->id->hash));
    vow__file_bind_int(q, 2, l->limits->concurrent);
    vow__file_bind_int(q, 3, l->limits->rate);
    vow__file_bind_int(q, 4, (int64_t)(l->limits->window_us & INT64_MAX));
    vow__file_bind_text(q, 5, text);
    if (rc == 0)
        rc = vow__file_do(s, q);
    if (rc == 0)
        rc = vow__file_pool_find(s, l->id, &l->pool);
    return rc == 0 ? grant_keys(s, l->id) : rc;
}

static int grant_keys(struct vow__file *s, const vow_name *law)
{
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT id FROM pool WHERE law=?1 AND id>?2 AND id<>?1"
                         " ORDER BY id LIMIT 1");
    struct vow__file_pool p;
    vow_name at = {.hash = {0}};
    int rc;
    vow__file_bind(q, 1, law->hash, sizeof(law->hash));
    vow__file_bind(q, 2, at.hash, sizeof(at.hash));
    while (vow__file_row(s, q, &rc)) {
        rc = vow__file_name_read(q, 0, &at);
        (void)sqlite3_reset(q);
        if (rc == 0)
            rc = vow__file_pool_find(s, &at, &p);
        if (rc == 0)
            rc = brush_up(s, &p);
        if (rc != 0)
            return rc;
    }
    return rc;
}

/* Do what a step on the pool would find to do. */
static int brush_up(struct vow__file *s, struct vow__file_pool *p)
{
    bool stale;
    struct crowd c;
    int rc = vow__file_pool_stale(s, p, &stale);
    if (rc == 0)
        rc = see_crowd(s, p, &c);
    bool fixed = sqlite3_db_readonly(s->db, "main") == 1;
    if (rc != 0 || (!stale && c.n_dead == 0) || fixed)
        return rc;
    rc = vow__file_write(s);
    if (rc == 0)
        rc = reap_crowd(s, p, &c);
    if (rc == 0)
        rc = vow__file_grant(s, p, NULL);
    return rc == 0 ? vow__file_pool_put(s, p) : rc;
}

static vow_pool_info info_of(const struct vow__file_pool *p, uint64_t used)
{
    return (vow_pool_info){.pool = p->id,
                           .label = p->label,
                           .limits = p->limits,
                           .held = p->held,
                           .holders = p->holders,
                           .waiting = p->waiting,
                           .rate_used = used};
}

/* ---- all of them -------------------------------------------------------- */

void vow__file_pools(vow_store *store, vow_pools_fn done, void *user)
{
    struct vow__file *s = vow__file_of(store);
    struct pools all = {.infos = {.at = NULL}};
    struct vow__file_pile out = {.at = NULL};
    int code = vow__file_step(s, VOW__FILE_READ, pools_step, &all);
    const struct pool_row *rows = (const void *)all.infos.at;
    size_t n = code == 0 ? all.infos.size / sizeof(*rows) : 0;
    vow_pool_info *infos = vow__file_pile_add(s, &out, n * sizeof(*infos));
    if (infos == NULL && code == 0 && n > 0)
        code = VOW_ENOMEM;
    for (size_t i = 0; i < n && infos != NULL; i++) {
        infos[i] = rows[i].info;
        infos[i].label = rows[i].label;
    }
    done(code, code == 0 ? infos : NULL, code == 0 ? n : 0, user);
    vow__file_pile_free(s, &out);
    vow__file_pile_free(s, &all.infos);
}

static int pools_step(struct vow__file *s, void *arg)
{
    struct pools *all = arg;
    sqlite3_stmt *q =
        vow__file_sql(s, "SELECT id FROM pool WHERE id>?1 ORDER BY id LIMIT 1");
    vow_name at = {.hash = {0}};
    int rc;
    all->infos.size = 0;
    vow__file_bind(q, 1, at.hash, sizeof(at.hash));
    while (vow__file_row(s, q, &rc)) {
        struct vow__file_pool p;
        uint64_t used = 0;
        rc = vow__file_name_read(q, 0, &at);
        (void)sqlite3_reset(q);
        if (rc == 0)
            rc = vow__file_pool_find(s, &at, &p);
        if (rc == 0)
            rc = brush_up(s, &p);
        if (rc == 0)
            rc = vow__file_rate_used(s, &p, &used);
        if (rc != 0)
            return rc;
        struct pool_row *row = vow__file_pile_add(s, &all->infos, sizeof(*row));
        if (row == NULL)
            return VOW_ENOMEM;
        row->info = info_of(&p, used);
        memcpy(row->label, p.label, sizeof(row->label));
    }
    return rc;
}
