/* SPDX-License-Identifier: MIT */
/* cas_pulse.c - the leases of many names, renewed by one request.
 *
 * HOW   All names of a pulse share a lease of the service. With a watch, the
 *       cache knows every change of a name: a name whose mark hangs on the
 *       living lease needs no request of its own. Names that the cache does not
 *       know, or not as of the token, are read, all together: that a name is
 *       lost is no guess. Without a watch, the keepalive reads all
 *       names. Then the rules decide for each name; most decisions change
 *       nothing at the service, and the others are written one by one.
 * LIMITS  After a lease has ended, each name costs a write, one after another.
 *         A pulse takes about 3 KiB for each name while under way.
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_internal.h"

struct cas_pulse {
    struct cas_step step;
    size_t n;
    vow_hold *holds;
    struct cas_name **names;
    struct cas_found *found;
    struct cas_change *changes;
    vow_record *records;
    size_t block; /* bytes of the five arrays */
    uint64_t lease_ms;
};

static struct cas_pulse *pulse_of(struct cas_step *step)
{
    return VOW__OUTER(step, struct cas_pulse, step);
}

static struct decision decide_pulse(const struct cas_change *c,
                                    const struct rules_record *r,
                                    const struct rules_record *left,
                                    struct rules_now now)
{
    const vow_hold *hold = c->request;
    (void)left;
    return vow__rules_pulse(r, hold, hold->mode, c->lease_ms, now);
}

/* ---- reading ------------------------------------------------------------- */

/* With a watch: takes the names from the cache, and reads the others. */
static int pulse_watch(struct cas_pulse *p)
{
    struct cas *s = p->step.cas;
    struct cas_service *service = s->service;
    vow_name *names = vow__mem_new(&s->alloc, p->n * sizeof(names[0]));
    size_t n = 0;
    int rc = 0;
    if (names == NULL)
        return VOW_ENOMEM;
    for (size_t i = 0; i < p->n; i++)
        if (!p->names[i]->fresh ||
            vow__cas_mark(&p->names[i]->found, &p->holds[i].token) == NULL)
            names[n++] = p->holds[i].name;
    const struct cas_read read = {
        .names = names, .n = n, .due_ns = p->step.due_ns};
    if (n > 0)
        rc = service->ops->read(service, &read, p->found);
    for (size_t i = n; rc == 0 && i-- > 0;) {
        struct cas_name *name = vow__cas_name_find(s, &names[i]);
        vow__cas_clock_set(s, p->found[i].now_us);
        vow__cas_name_note(name, &p->found[i]);
    }
    vow__mem_free(&s->alloc, names, p->n * sizeof(names[0]));
    for (size_t i = 0; i < p->n; i++) {
        p->found[i] = p->names[i]->known
                          ? p->names[i]->found
                          : (struct cas_found){.name = p->holds[i].name};
        p->found[i].value = NULL;
        p->found[i].valued = false;
        p->found[i].now_us = vow__cas_clock_us(s);
    }
    return rc;
}

/* Without a watch: the keepalive reads the names. */
static int pulse_read(struct cas_pulse *p)
{
    struct cas *s = p->step.cas;
    struct cas_service *service = s->service;
    struct cas_lease lease;
    vow_name *names = vow__mem_new(&s->alloc, p->n * sizeof(names[0]));
    int rc = VOW_ENOMEM;
    if (names == NULL)
        return rc;
    for (size_t i = 0; i < p->n; i++)
        names[i] = p->holds[i].name;
    const struct cas_read read = {
        .names = names, .n = p->n, .due_ns = p->step.due_ns};
    if (p->lease_ms > 0)
        rc = vow__cas_lease_read(s, p->lease_ms, &read, p->found, &lease);
    else
        rc = service->ops->read(service, &read, p->found);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        vow__cas_clock_set(s, p->found[i].now_us);
        vow__cas_name_note(p->names[i], &p->found[i]);
    }
    vow__mem_free(&s->alloc, names, p->n * sizeof(names[0]));
    return rc;
}

/* ---- deciding ------------------------------------------------------------ */

/* The lease of a name counts from the answer on, or without an answer from the
 * end of the last try: later than the owner believes. */
static int pulse_hold(struct cas_pulse *p, size_t i)
{
    struct cas_change *c = &p->changes[i];
    struct cas_name *n = p->names[i];
    *c = (struct cas_change){.cas = p->step.cas,
                             .name = n,
                             .decide = decide_pulse,
                             .request = &p->holds[i],
                             .token = &p->holds[i].token,
                             .lease_ms = p->lease_ms,
                             .leases = true,
                             .due_ns = p->step.due_ns,
                             .found = p->found[i],
                             .seen = true,
                             .now_us = p->found[i].now_us};
    int rc = vow__cas_change_run(c);
    bool owns = rc == 0 && (c->d.status == VOW_STATUS_OWNED ||
                            c->d.status == VOW_STATUS_CANCELED);
    if (owns || c->unsure)
        vow__cas_name_own(n, c->token, p->lease_ms);
    else if (rc == 0 && vow__cas_name_owned(n, c->token))
        vow__cas_name_disown(n);
    if (c->unsure)
        n->remark = true;
    return rc;
}

static int pulse_run(struct cas_step *step)
{
    struct cas_pulse *p = pulse_of(step);
    struct cas *s = step->cas;
    int rc = 0;
    if (p->n == 0)
        return 0;
    for (size_t i = 0; i < p->n; i++)
        p->names[i]->renewals++;
    if ((s->flags & CAS_WATCHES) != 0)
        rc = pulse_watch(p);
    else
        rc = pulse_read(p);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        rc = pulse_hold(p, i);
        if (rc == 0)
            p->records[i] = vow__cas_change_answer(&p->changes[i]);
    }
    for (size_t i = 0; i < p->n; i++)
        p->names[i]->renewals--;
    return rc;
}

static void pulse_answer(struct cas_step *step, int code)
{
    const struct cas_pulse *p = pulse_of(step);
    step->done.records(code, code == 0 ? p->records : NULL,
                       code == 0 ? p->n : 0, step->user);
}

/* ---- the step ------------------------------------------------------------ */

static void pulse_fini(struct cas_step *step)
{
    struct cas_pulse *p = pulse_of(step);
    for (size_t i = 0; i < p->n; i++) {
        vow__cas_change_fini(&p->changes[i]);
        vow__cas_name_drop(p->names[i]);
    }
    vow__mem_free(&step->cas->alloc, p->changes, p->block);
}

/* The arrays lie in one block, the largest alignment first. */
static int pulse_arrays(struct cas_pulse *p, size_t n)
{
    struct cas *s = p->step.cas;
    size_t each = sizeof(*p->changes) + sizeof(*p->found) +
                  sizeof(*p->records) + sizeof(p->names[0]) + sizeof(*p->holds);
    p->block = n * each;
    p->changes = n == 0 ? NULL : vow__mem_zero(&s->alloc, p->block);
    if (n > 0 && p->changes == NULL)
        return VOW_ENOMEM;
    p->found = (struct cas_found *)(void *)(p->changes + n);
    p->records = (vow_record *)(void *)(p->found + n);
    p->names = (struct cas_name **)(void *)(p->records + n);
    p->holds = (vow_hold *)(void *)(p->names + n);
    return 0;
}

static int pulse_fill(struct cas_pulse *p, const vow_hold *holds, size_t n)
{
    int rc = pulse_arrays(p, n);
    for (; rc == 0 && p->n < n; p->n++) {
        p->holds[p->n] = holds[p->n];
        p->names[p->n] = vow__cas_name_use(p->step.cas, &holds[p->n].name);
        if (p->names[p->n] == NULL)
            return VOW_ENOMEM;
    }
    return rc;
}

static const struct cas_step_ops pulse_ops = {.size = sizeof(struct cas_pulse),
                                              .run = pulse_run,
                                              .answer = pulse_answer,
                                              .fini = pulse_fini};

void vow__cas_pulse(vow_store *store, const vow_hold *holds, size_t n,
                    uint64_t lease_ms, vow_records_fn done, void *user)
{
    struct cas *s = vow__cas_of(store);
    struct cas_step *step = NULL;
    if (!s->closing)
        step = vow__cas_step_new(s, &pulse_ops, CAS_OWN, NULL);
    if (step == NULL) {
        done(s->closing ? VOW_ECLOSED : VOW_ENOMEM, NULL, 0, user);
        return;
    }
    struct cas_pulse *p = pulse_of(step);
    step->done.records = done;
    step->user = user;
    p->lease_ms = lease_ms;
    vow__cas_step_start_with(step, pulse_fill(p, holds, n));
}
