/* SPDX-License-Identifier: MIT */
/* memory_names.c - the steps on one name: claim, pulse, commit, and managing.
 *
 * HOW   Each step finds the record, asks the rules of store/rules, and carries
 *       out the decision (memory_records.c). An error has changed nothing.
 */
#include "store/memory/memory_slots.h"

static const struct vow__memory_input NO_INPUT;

static const struct rules_record *
slot_record(const struct vow__memory_slot *slot)
{
    return slot == NULL ? NULL : &slot->record;
}

/* The waiters of a spent slot are not registered. */
static struct rules_now rules_now_of(const struct vow__memory_state *m,
                                     const struct vow__memory_slot *slot)
{
    bool registered =
        slot != NULL && slot->waits != NULL && !slot->record.spent;
    return (struct rules_now){.now_us = m->now_us,
                              .number = m->counter + 1,
                              .recheck_ms = m->recheck_ms,
                              .exact = m->exact && !registered};
}

/* Carries out a decision, and answers. */
static int finish_decision(const struct vow__memory_step *s,
                           const vow_name *name, const struct decision *d,
                           const struct vow__memory_input *input,
                           struct vow__memory_slot *slot,
                           struct vow__memory_answer *out)
{
    int rc = d->code;
    if (rc == 0)
        rc = vow__memory_apply(s, name, d, input, &slot);
    if (rc == 0)
        vow__memory_answer_fill(s->state, slot, d, name, out);
    return rc;
}

/* The runner of an instance is mostly the same. */
static int remember_runner(const struct vow__memory_step *s, const char *runner)
{
    struct vow__memory_instance *instance = s->instance;
    struct vow__memory_text *t;
    if (runner == NULL || runner[0] == 0 ||
        vow__memory_text_is(instance->runner, runner))
        return 0;
    int rc = vow__memory_text_make(s->state, runner, &t);
    if (rc < 0)
        return rc;
    vow__memory_text_unref(s->state, instance->runner);
    instance->runner = t;
    return 0;
}

int vow__memory_claim(const struct vow__memory_step *s,
                      const vow_claim_request *request,
                      struct vow__memory_answer *out)
{
    struct vow__memory_state *m = s->state;
    const vow_name *name = &request->name;
    int rc = remember_runner(s, request->runner);
    if (rc < 0)
        return rc;
    vow__memory_begin(m, s->now_us);
    struct vow__memory_slot *slot = vow__memory_slot_find(m, name);
    struct vow__memory_slot *left = NULL;
    if (request->waited != 0)
        left = vow__memory_slot_find_left(m, slot, name, request->waited);
    const struct decision d = vow__rules_claim(
        slot_record(slot), slot_record(left), request, rules_now_of(m, slot));
    return finish_decision(
        s, name, &d,
        &(const struct vow__memory_input){
            .claim = true, .label = request->label, .runner = request->runner},
        d.left ? left : slot, out);
}

int vow__memory_commit(const struct vow__memory_step *s,
                       const vow_commit_request *request,
                       struct vow__memory_answer *out)
{
    struct vow__memory_state *m = s->state;
    const vow_name *name = &request->hold.name;
    if (vow_bytes_size(request->value) > m->value_max)
        return VOW_E2BIG;
    vow__memory_begin(m, s->now_us);
    struct vow__memory_slot *slot = vow__memory_slot_find(m, name);
    const struct decision d =
        vow__rules_commit(slot_record(slot), request, rules_now_of(m, slot));
    int rc =
        finish_decision(s, name, &d,
                        &(const struct vow__memory_input){
                            .label = request->label, .bytes = request->value},
                        slot, out);
    if (rc == 0 && d.status == VOW_STATUS_OWNED && d.epoch > m->counter)
        m->counter = d.epoch; /* also if no record stays: keeps S5 */
    return rc;
}

int vow__memory_pulse(const struct vow__memory_step *s, const vow_hold *holds,
                      size_t n, uint64_t lease_ms, vow_record *out)
{
    struct vow__memory_state *m = s->state;
    vow__memory_begin(m, s->now_us);
    for (size_t i = 0; i < n; i++) {
        const vow_name *name = &holds[i].name;
        struct vow__memory_slot *slot = vow__memory_slot_find(m, name);
        const struct decision d =
            vow__rules_pulse(slot_record(slot), &holds[i], holds[i].mode,
                             lease_ms, rules_now_of(m, slot));
        int rc = d.code;
        if (rc == 0)
            rc = vow__memory_apply(s, name, &d, &NO_INPUT, &slot);
        if (rc < 0)
            return rc;
        vow__memory_decided_fill(m, slot, &d, name, &out[i]);
    }
    return 0;
}

int vow__memory_forget(const struct vow__memory_step *s, const vow_name *name,
                       uint64_t epoch, struct vow__memory_answer *out)
{
    struct vow__memory_state *m = s->state;
    vow__memory_begin(m, s->now_us);
    struct vow__memory_slot *slot = vow__memory_slot_find(m, name);
    const struct decision d =
        vow__rules_forget(slot_record(slot), epoch, rules_now_of(m, slot));
    return finish_decision(s, name, &d, &NO_INPUT, slot, out);
}

int vow__memory_cancel(const struct vow__memory_step *s, const vow_name *name,
                       struct vow__memory_answer *out)
{
    struct vow__memory_state *m = s->state;
    vow__memory_begin(m, s->now_us);
    struct vow__memory_slot *slot = vow__memory_slot_find(m, name);
    const struct decision d =
        vow__rules_cancel(slot_record(slot), rules_now_of(m, slot));
    return finish_decision(s, name, &d, &NO_INPUT, slot, out);
}

int vow__memory_write(const struct vow__memory_step *s, const vow_hold *hold,
                      uint64_t number, vow_bytes *chunk,
                      struct vow__memory_answer *out)
{
    struct vow__memory_state *m = s->state;
    vow__memory_begin(m, s->now_us);
    struct vow__memory_slot *slot = vow__memory_slot_find(m, &hold->name);
    const struct decision d =
        vow__rules_chunk(slot_record(slot), hold, number, vow_bytes_size(chunk),
                         m->value_max, rules_now_of(m, slot));
    return finish_decision(s, &hold->name, &d,
                           &(const struct vow__memory_input){.bytes = chunk},
                           slot, out);
}
