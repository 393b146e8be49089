/* SPDX-License-Identifier: MIT */
/* cas_limit.c - the limits of a pool, and the list of all pools.
 *
 * HOW   Limits are set if they are still those that were read: a write without
 *       an answer can be repeated, and a late write does not replace newer
 *       limits. Which permits are marked and which requests leave is decided by
 *       vow__rules_order_limit(), at the service.
 * LIMITS  Pools of keys keep unmarked holders that the service has missed,
 *         until the processes of these holders look.
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_pools.h"

#include <stdio.h>
#include <string.h>

struct pools_step {
    struct cas_step step;
    vow_name pool; /* of limit */
    bool sets;
    vow_pool_limits limits;
    char label[VOW_LABEL_MAX + 1];
    struct cas_pools_found found; /* all, or a single pool */
    vow_pool_info *infos;
};

static struct pools_step *pools_of(struct cas_step *step)
{
    return VOW__OUTER(step, struct pools_step, step);
}

/* ---- answers ------------------------------------------------------------- */

static vow_pool_info pool_found_info(const struct cas *s,
                                     struct cas_pool_found *found)
{
    vow__cas_entries_age(s, vow__cas_pool_find(s, &found->name), found);
    const struct rules_pool tally = vow__cas_pool_tally(found);
    return (vow_pool_info){
        .pool = found->name.pool,
        .label = found->label,
        .limits = found->limits,
        .held = found->sums.held,
        .holders = found->sums.holders,
        .waiting = found->sums.waiting,
        .rate_used = vow__rules_pool_used(&tally, vow__cas_loop_us(s))};
}

static void pools_answer(struct cas_step *step, int code)
{
    const struct pools_step *k = pools_of(step);
    step->done.pools(code, code == 0 ? k->infos : NULL,
                     code == 0 ? k->found.n : 0, step->user);
}

static void pools_fini(struct cas_step *step)
{
    struct pools_step *k = pools_of(step);
    struct cas_pools_found *f = &k->found;
    for (size_t i = 0; i < f->n; i++)
        vow__cas_pool_found_fini(&f->pools[i]);
    vow__mem_free(f->alloc, k->infos, f->n * sizeof(k->infos[0]));
    vow__mem_free(f->alloc, f->pools, f->room * sizeof(f->pools[0]));
}

int vow__cas_pools_add(struct cas_pools_found *list,
                       struct cas_pool_found *found)
{
    if (list->n == list->room) {
        size_t room = list->room == 0 ? 1 : 2 * list->room;
        struct cas_pool_found *more =
            vow__mem_new(list->alloc, room * sizeof(more[0]));
        if (more == NULL) {
            vow__cas_pool_found_fini(found);
            return VOW_ENOMEM;
        }
        if (list->n > 0)
            memcpy(more, list->pools, list->n * sizeof(more[0]));
        vow__mem_free(list->alloc, list->pools, list->room * sizeof(more[0]));
        list->pools = more;
        list->room = room;
    }
    list->pools[list->n++] = *found;
    found->entries = NULL;
    found->n = found->room = 0;
    return 0;
}

/* Makes the answers of all pools that were found. */
static int pools_tell(struct pools_step *k)
{
    struct cas_pools_found *f = &k->found;
    k->infos = vow__mem_new(f->alloc, f->n * sizeof(k->infos[0]));
    if (k->infos == NULL && f->n > 0)
        return VOW_ENOMEM;
    for (size_t i = 0; i < f->n; i++)
        k->infos[i] = pool_found_info(k->step.cas, &f->pools[i]);
    return 0;
}

static struct pools_step *pools_new(struct cas *s,
                                    const struct cas_step_ops *ops,
                                    vow_pools_fn done, void *user)
{
    struct cas_step *step = NULL;
    if (!s->closing)
        step = vow__cas_step_new(s, ops, CAS_ASK, NULL);
    if (step == NULL) {
        done(s->closing ? VOW_ECLOSED : VOW_ENOMEM, NULL, 0, user);
        return NULL;
    }
    step->done.pools = done;
    step->user = user;
    pools_of(step)->found.alloc = &s->alloc;
    return pools_of(step);
}

/* ---- limits -------------------------------------------------------------- */

static bool limits_equal(const vow_pool_limits *a, const vow_pool_limits *b)
{
    return a->concurrent == b->concurrent && a->rate == b->rate &&
           a->window_us == b->window_us;
}

/* Reads, or writes at a version. */
static int limit_ask(struct pools_step *k, bool sets, uint64_t version,
                     struct cas_pool_found *f)
{
    struct cas_service *service = k->step.cas->service;
    vow__cas_pool_found_fini(f);
    return service->ops->pool_limit(service, &k->pool, sets ? &k->limits : NULL,
                                    k->label, version, k->step.due_ns, f);
}

/* Sets the limits. A write without an answer has happened if the version is
 * another, and the limits are as requested. */
static int limit_set(struct pools_step *k, struct cas_pool_found *f)
{
    bool unsure = false;
    uint64_t version = 0;
    int rc = VOW_EAGAIN;
    for (int tries = 0; tries < CAS_TRIES_MAX; tries++) {
        rc = limit_ask(k, false, 0, f);
        if (rc == 0 && unsure && f->limits_version != version && f->there &&
            limits_equal(&f->limits, &k->limits))
            return 0;
        version = rc == 0 ? f->limits_version : version;
        if (rc == 0)
            rc = limit_ask(k, true, version, f);
        unsure = unsure || rc == VOW_EUNSURE;
        if (rc != VOW_EAGAIN && rc != VOW_EUNSURE)
            break;
    }
    return rc < 0 && unsure ? VOW_EUNSURE : rc;
}

static int limit_run(struct cas_step *step)
{
    struct pools_step *k = pools_of(step);
    struct cas_pool_found f = vow__cas_pool_found(step->cas);
    int rc = k->sets ? limit_set(k, &f) : limit_ask(k, false, 0, &f);
    if (rc == 0 && !f.there)
        rc = VOW_ENOENT;
    if (rc == 0)
        rc = vow__cas_pools_add(&k->found, &f);
    vow__cas_pool_found_fini(&f);
    return rc < 0 ? rc : pools_tell(k);
}

static const struct cas_step_ops limit_ops = {.size = sizeof(struct pools_step),
                                              .run = limit_run,
                                              .answer = pools_answer,
                                              .fini = pools_fini};

void vow__cas_limit(vow_store *store, const vow_name *pool,
                    const vow_pool_limits *limits, const char *label,
                    vow_pools_fn done, void *user)
{
    struct pools_step *k =
        pools_new(vow__cas_of(store), &limit_ops, done, user);
    if (k == NULL)
        return;
    k->pool = *pool;
    k->sets = limits != NULL;
    if (k->sets)
        k->limits = *limits;
    (void)snprintf(k->label, sizeof(k->label), "%s",
                   label == NULL ? "" : label);
    vow__cas_step_start(&k->step);
}

/* ---- all pools ----------------------------------------------------------- */

static int pools_run(struct cas_step *step)
{
    struct pools_step *k = pools_of(step);
    struct cas_service *service = step->cas->service;
    int rc = service->ops->pool_list(service, step->due_ns, &k->found);
    return rc < 0 ? rc : pools_tell(k);
}

static const struct cas_step_ops pools_ops = {.size = sizeof(struct pools_step),
                                              .run = pools_run,
                                              .answer = pools_answer,
                                              .fini = pools_fini};

void vow__cas_pools(vow_store *store, vow_pools_fn done, void *user)
{
    struct pools_step *k =
        pools_new(vow__cas_of(store), &pools_ops, done, user);
    if (k != NULL)
        vow__cas_step_start(&k->step);
}
