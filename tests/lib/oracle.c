/* SPDX-License-Identifier: MIT */
/* oracle.c - a store on src/store/rules, for tests; see oracle.h. */
#include "oracle.h"
#include "harness.h"
#include "vow/error.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

static const char *const STATUS_NAMES[] = {
    "NONE", "OWNED", "WAITING", "SETTLED", "DOUBT", "LOST", "CANCELED", "BUSY"};
void oracle_init(struct oracle *o, const struct oracle_opts *opts)
{
    memset(o, 0, sizeof(*o));
    o->opts = *opts;
}

void oracle_clear(struct oracle *o)
{
    memset(o->n_events, 0, sizeof(o->n_events));
    memset(o->runners, 0, sizeof(o->runners));
    o->n_slots = 0;
    o->highest = 0;
}

/* ---- what is stored ------------------------------------------------------ */

struct oracle_slot *oracle_slot(struct oracle *o, const vow_name *name)
{
    for (size_t i = 0; i < o->n_slots; i++)
        if (vow_name_equal(&o->slots[i].name, name))
            return &o->slots[i];
    CHECK(o->n_slots < ORACLE_NAMES);
    struct oracle_slot *slot = &o->slots[o->n_slots++];
    memset(slot, 0, offsetof(struct oracle_slot, left));
    slot->name = *name;
    return slot;
}

const struct oracle_record *oracle_left(struct oracle *o, const vow_name *name,
                                        uint64_t first)
{
    const struct oracle_slot *slot = oracle_slot(o, name);
    for (size_t i = 0; first != 0 && i < slot->n_left; i++)
        if (slot->left[i].r.first == first &&
            slot->left[i].r.end_us > o->now_us)
            return &slot->left[i];
    return NULL;
}

uint32_t oracle_waiters(const struct oracle_slot *slot)
{
    uint32_t n = 0;
    for (size_t i = 0; i < ORACLE_INSTANCES; i++)
        n += slot->waits[i];
    return n;
}

static const struct rules_record *slot_record(const struct oracle_slot *slot)
{
    return slot->there ? &slot->record.r : NULL;
}

static struct rules_now oracle_now(const struct oracle *o,
                                   const struct oracle_slot *slot)
{
    return (struct rules_now){.now_us = o->now_us,
                              .number = o->number,
                              .recheck_ms = o->opts.recheck_ms,
                              .exact =
                                  o->opts.exact && oracle_waiters(slot) == 0};
}

static void copy_text(char *to, const char *from)
{
    snprintf(to, VOW_LABEL_MAX + 1, "%s", from == NULL ? "" : from);
}

static void copy_value(struct oracle_value *to, vow_bytes *from)
{
    to->n = vow_bytes_size(from);
    CHECK(to->n <= ORACLE_VALUE);
    if (to->n > 0)
        memcpy(to->bytes, vow_bytes_data(from), to->n);
}

/* ---- carrying out a decision --------------------------------------------- */

/* A step: what the decision needs of the request. */
struct oracle_step {
    struct oracle *o;
    struct oracle_slot *slot;
    size_t instance;
    const char *label;
    const char *runner; /* NULL: the step is no claim */
    vow_bytes *value;   /* or the chunk */
};

static void add_event(struct oracle *o, size_t instance,
                      enum oracle_event_kind kind,
                      const struct oracle_slot *slot,
                      const struct oracle_value *value)
{
    CHECK(o->n_events[instance] < ORACLE_EVENTS);
    struct oracle_event *e = &o->events[instance][o->n_events[instance]++];
    e->kind = kind;
    e->name = slot->name;
    e->record = slot->record;
    if (value != NULL)
        e->record.value = *value;
}

static void leave_result(struct oracle_slot *slot,
                         const struct oracle_value *value)
{
    size_t i = 0;
    while (i < slot->n_left && slot->left[i].r.first != slot->record.r.first)
        i++;
    if (i == ORACLE_LEFT) { /* the oldest has expired long ago */
        memmove(slot->left, slot->left + 1,
                (ORACLE_LEFT - 1) * sizeof(slot->left[0]));
        slot->n_left = --i;
    }
    slot->left[i] = slot->record;
    slot->left[i].value = *value;
    slot->n_left += i == slot->n_left;
}

/* Texts of the record that is written over `before`. */
static void write_texts(const struct oracle_step *s, uint8_t before,
                        const struct decision *d)
{
    struct oracle_record *record = &s->slot->record;
    uint32_t effects = d->effects;
    bool texts = (effects & EFFECT_TEXTS) != 0;
    if (s->runner != NULL && texts) {
        copy_text(record->label, s->label);
        copy_text(record->runner, s->runner);
        return;
    }
    if (before == RULES_NONE || (texts && before != RULES_RUNNING)) {
        record->label[0] = 0;
        copy_text(record->runner, s->o->runners[s->instance]);
    }
    if ((effects & EFFECT_TEXTS) != 0 && s->label != NULL && s->label[0] != 0)
        copy_text(record->label, s->label);
}

static void write_record(const struct oracle_step *s, const struct decision *d)
{
    struct oracle_slot *slot = s->slot;
    uint8_t before = s->o->seen.state;
    bool works =
        d->status == VOW_STATUS_OWNED || d->status == VOW_STATUS_CANCELED;
    vow__rules_check(&d->next);
    if (slot->record.r.state == RULES_DONE && slot->there &&
        (before == RULES_RUNNING ||
         (d->next.state == RULES_RUNNING && (d->effects & EFFECT_TEXTS) == 0)))
        memcpy(slot->record.runner, slot->record.refresher,
               sizeof(slot->record.runner));
    slot->there = d->next.state != RULES_NONE;
    if (d->next.state == RULES_RUNNING && d->next.epoch != slot->run.epoch) {
        slot->earlier = slot->run;
        if (d->next.epoch > s->o->highest)
            s->o->highest = d->next.epoch;
        slot->run =
            (struct oracle_run){d->next.token, d->next.epoch, d->next.first};
    }
    if (d->next.refresh.epoch > slot->refresher.epoch) {
        slot->refresher = (struct oracle_run){d->next.refresh.token,
                                              d->next.refresh.epoch, d->epoch};
        if (d->epoch > s->o->highest)
            s->o->highest = d->epoch;
        copy_text(slot->record.refresher, s->runner);
    }
    if (d->keep_until_us != slot->keep_until_us || !slot->there ||
        (d->refresh && works) || d->next.state != slot->record.r.state ||
        d->next.lease_us != slot->record.r.lease_us)
        slot->kept_us = d->keep_until_us == RULES_NEVER
                            ? RULES_NEVER
                            : d->keep_until_us - s->o->now_us;
    slot->record.r = d->next;
    slot->keep_until_us = d->keep_until_us;
    if (slot->there)
        write_texts(s, before, d);
    if (works && (d->next.state == RULES_RUNNING ||
                  (d->refresh && !d->next.refresh.failed)))
        slot->owner = s->instance;
}

static void tell_waiters(const struct oracle_step *s, const struct decision *d,
                         const struct oracle_value *value)
{
    bool settled = (d->effects & EFFECT_VALUE) != 0;
    for (size_t i = 0; i < ORACLE_INSTANCES; i++)
        if (s->slot->waits[i])
            add_event(s->o, i, settled ? ORACLE_SETTLED : ORACLE_CHANGED,
                      s->slot, value);
    memset(s->slot->waits, 0, sizeof(s->slot->waits));
}

static void add_chunk(const struct oracle_step *s)
{
    struct oracle_slot *slot = s->slot;
    uint32_t number = slot->record.r.chunks - 1;
    CHECK(number < ORACLE_CHUNKS);
    copy_value(&slot->chunks[number], s->value);
    for (size_t i = 0; i < ORACLE_INSTANCES; i++)
        if (slot->waits[i])
            add_event(s->o, i, ORACLE_CHUNK, slot, NULL);
}

static void apply_decision(const struct oracle_step *s,
                           const struct decision *d)
{
    struct oracle_slot *slot = s->slot;
    struct oracle_value value = {.n = 0};
    if ((d->effects & EFFECT_VALUE) != 0)
        copy_value(&value, s->value);
    bool leaves = s->o->opts.leaves_all || oracle_waiters(slot) > 0 ||
                  d->next.first != d->next.epoch;
    if ((d->effects & EFFECT_CLEAR) != 0)
        slot->record.value.n = 0;
    if ((d->effects & EFFECT_WRITE) != 0)
        write_record(s, d);
    if ((d->effects & EFFECT_VALUE) != 0 && !d->next.spent)
        slot->record.value = value;
    if ((d->effects & EFFECT_LEAVE) != 0 && leaves)
        leave_result(slot, &value);
    if ((d->effects & EFFECT_UNWAIT) != 0)
        slot->waits[s->instance] = false;
    if ((d->effects & EFFECT_WAIT) != 0)
        slot->waits[s->instance] = true;
    if ((d->effects & EFFECT_WAKE) != 0)
        tell_waiters(s, d, &value);
    if ((d->effects & EFFECT_TELL_OWNER) != 0)
        add_event(s->o, slot->owner, ORACLE_CANCEL, slot, NULL);
    if ((d->effects & EFFECT_CHUNK) != 0)
        add_chunk(s);
}

static void clamp_lease(const struct oracle_step *s)
{
    struct oracle_slot *slot = s->slot;
    struct rules_record *r = &slot->record.r;
    uint64_t end_us = s->o->now_us + r->lease_us;
    if (r->state != RULES_RUNNING || r->end_us <= end_us)
        return;
    if (slot->keep_until_us !=
        RULES_NEVER) /* when the keys go does not change */
        slot->keep_until_us -= r->end_us - end_us;
    r->end_us = end_us;
}

/* Carries out a decision, and makes the answer. */
static void end_step(const struct oracle_step *s, const struct decision *d,
                     const struct oracle_record *left,
                     struct oracle_answer *ret)
{
    *ret = (struct oracle_answer){.code = d->code};
    if (d->code != 0)
        return;
    ret->shows_value = (d->effects & EFFECT_SHOW) != 0;
    ret->status = d->status;
    ret->epoch = d->epoch;
    ret->first = d->first;
    apply_decision(s, d);
    if (s->o->opts.clamps && d->status == VOW_STATUS_WAITING &&
        s->runner != NULL)
        clamp_lease(s);
    ret->record = d->left ? *left : s->slot->record;
    if (!d->left)
        ret->record.r = d->refresh ? vow__rules_refresher(&d->next) : d->next;
    if (!d->left && ret->record.r.state == RULES_RUNNING &&
        s->slot->record.r.state == RULES_DONE)
        memcpy(ret->record.runner, s->slot->record.refresher,
               sizeof(ret->record.runner));
    if (ret->record.r.state == RULES_RUNNING)
        ret->waiters = oracle_waiters(s->slot);
}

/* ---- history and cells --------------------------------------------------- */

/* Notes a step with the answer; the format tells the step. */
__attribute__((format(printf, 4, 5))) static void
note_step(struct oracle *o, const struct oracle_slot *slot,
          const struct oracle_answer *a, const char *format, ...)
{
    char *line = o->lines[o->n_lines++ % ORACLE_LINES];
    va_list args;
    int n = snprintf(line, ORACLE_LINE,
                     "%zu: at %" PRIu64 " name %zu: ", o->n_lines, o->now_us,
                     (size_t)(slot - o->slots));
    va_start(args, format);
    n += vsnprintf(line + n, ORACLE_LINE - (size_t)n, format, args);
    va_end(args);
    if (n < ORACLE_LINE && a->code != 0)
        snprintf(line + n, ORACLE_LINE - (size_t)n, " -> error %d", a->code);
    else if (n < ORACLE_LINE)
        snprintf(line + n, ORACLE_LINE - (size_t)n,
                 " -> %s epoch %" PRIu64 " first %" PRIu64 " takeovers %u",
                 STATUS_NAMES[a->status], a->epoch, a->first,
                 a->record.r.takeovers);
}

void oracle_print(const struct oracle *o, FILE *out)
{
    oracle_print_lines(o, 0, o->n_lines, out);
}

void oracle_print_lines(const struct oracle *o, size_t from, size_t to,
                        FILE *out)
{
    size_t first = o->n_lines > ORACLE_LINES ? o->n_lines - ORACLE_LINES : 0;
    for (size_t i = from > first ? from : first; i < to && i < o->n_lines; i++)
        fprintf(out, "# %s\n", o->lines[i % ORACLE_LINES]);
}

/* The record as a rule sees the record; NULL: the view is NONE. */
static const struct rules_record *seen_record(struct oracle *o,
                                              const struct oracle_slot *slot,
                                              enum rules_view *ret_view)
{
    *ret_view = vow__rules_view(slot_record(slot), o->now_us);
    o->seen = *ret_view == RULES_VIEW_NONE
                  ? (struct rules_record){.state = RULES_NONE}
                  : vow__rules_current(slot_record(slot), o->now_us);
    o->reached[LINE_PROMOTED][*ret_view] +=
        o->seen.state != RULES_NONE && o->seen.state != slot->record.r.state;
    return *ret_view == RULES_VIEW_NONE ? NULL : &o->seen;
}

/* The same for a step that may write, see `promotes`. */
static const struct rules_record *found_record(struct oracle *o,
                                               struct oracle_slot *slot,
                                               enum rules_view *ret_view)
{
    struct oracle_record *record = &slot->record;
    const struct rules_record *seen = seen_record(o, slot, ret_view);
    const struct rules_record now =
        vow__rules_current(slot_record(slot), o->now_us);
    if (!o->opts.promotes || !slot->there || now.state == record->r.state)
        return seen;
    slot->earlier = slot->run;
    slot->run = (struct oracle_run){now.token, now.epoch, now.first};
    memcpy(record->runner, record->refresher, sizeof(record->runner));
    record->value.n = 0;
    record->r = now;
    return seen;
}

/* ---- steps --------------------------------------------------------------- */

void oracle_claim(struct oracle *o, size_t instance,
                  const vow_claim_request *request, struct oracle_answer *ret)
{
    struct oracle_slot *slot = oracle_slot(o, &request->name);
    const struct oracle_record *left =
        oracle_left(o, &request->name, request->waited);
    enum rules_view view;
    const struct rules_record *seen = found_record(o, slot, &view);
    const struct oracle_record copy =
        left == NULL ? (struct oracle_record){.label = ""} : *left;
    o->reached[oracle_claim_line(o, seen, request, left != NULL)][view]++;
    if (request->runner != NULL && request->runner[0] != 0)
        copy_text(o->runners[instance], request->runner);
    const struct decision d =
        vow__rules_claim(slot_record(slot), left == NULL ? NULL : &left->r,
                         request, oracle_now(o, slot));
    const struct oracle_step s = {
        .o = o,
        .slot = slot,
        .instance = instance,
        .label = request->label,
        .runner = request->runner == NULL ? "" : request->runner};
    end_step(&s, &d, &copy, ret);
    note_step(o, slot, ret,
              "%zu claims by %u, mode %u, flags %u, lease %" PRIu64
              ", takeovers %u, floor %" PRIu64 ", waited %" PRIu64
              ", refresh %" PRIu64,
              instance, request->token.bytes[0], request->mode, request->flags,
              request->lease_ms, request->takeovers, request->floor,
              request->waited, request->refresh);
}

void oracle_pulse(struct oracle *o, size_t instance, const vow_hold *hold,
                  uint64_t lease_ms, struct oracle_answer *ret)
{
    struct oracle_slot *slot = oracle_slot(o, &hold->name);
    enum rules_view view;
    const struct rules_record *seen = found_record(o, slot, &view);
    o->reached[oracle_pulse_line(seen, hold)][view]++;
    const struct decision d = vow__rules_pulse(
        slot_record(slot), hold, hold->mode, lease_ms, oracle_now(o, slot));
    const struct oracle_step s = {.o = o, .slot = slot, .instance = instance};
    end_step(&s, &d, NULL, ret);
    note_step(o, slot, ret,
              "%zu pulses by %u, epoch %" PRIu64 ", mode %u, lease %" PRIu64,
              instance, hold->token.bytes[0], hold->epoch, hold->mode,
              lease_ms);
}

void oracle_commit(struct oracle *o, size_t instance,
                   const vow_commit_request *request, struct oracle_answer *ret)
{
    struct oracle_slot *slot = oracle_slot(o, &request->hold.name);
    enum rules_view view;
    const struct rules_record *seen = found_record(o, slot, &view);
    o->reached[oracle_commit_line(seen, request)][view]++;
    const struct decision d =
        vow__rules_commit(slot_record(slot), request, oracle_now(o, slot));
    const struct oracle_step s = {.o = o,
                                  .slot = slot,
                                  .instance = instance,
                                  .label = request->label,
                                  .value = request->value};
    end_step(&s, &d, NULL, ret);
    note_step(o, slot, ret,
              "%zu commits by %u, epoch %" PRIu64
              ", outcome %u, flags %u, ttl %" PRIu64,
              instance, request->hold.token.bytes[0], request->hold.epoch,
              request->outcome, request->flags, request->ttl_ms);
}

void oracle_forget(struct oracle *o, const vow_name *name, uint64_t epoch,
                   struct oracle_answer *ret)
{
    struct oracle_slot *slot = oracle_slot(o, name);
    enum rules_view view;
    const struct rules_record *seen = found_record(o, slot, &view);
    o->reached[oracle_forget_line(o, seen, epoch)][view]++;
    const struct decision d =
        vow__rules_forget(slot_record(slot), epoch, oracle_now(o, slot));
    const struct oracle_step s = {.o = o, .slot = slot};
    end_step(&s, &d, NULL, ret);
    note_step(o, slot, ret, "forget epoch %" PRIu64, epoch);
}

void oracle_cancel(struct oracle *o, const vow_name *name,
                   struct oracle_answer *ret)
{
    struct oracle_slot *slot = oracle_slot(o, name);
    enum rules_view view;
    const struct rules_record *seen = found_record(o, slot, &view);
    o->reached[oracle_cancel_line(o, seen)][view]++;
    const struct decision d =
        vow__rules_cancel(slot_record(slot), oracle_now(o, slot));
    const struct oracle_step s = {.o = o, .slot = slot};
    end_step(&s, &d, NULL, ret);
    note_step(o, slot, ret, "cancel");
}

void oracle_write(struct oracle *o, const vow_hold *hold, uint64_t number,
                  vow_bytes *chunk, struct oracle_answer *ret)
{
    struct oracle_slot *slot = oracle_slot(o, &hold->name);
    enum rules_view view;
    const struct rules_record *seen = found_record(o, slot, &view);
    size_t most = o->opts.chunk_bytes == 0 ? SIZE_MAX : o->opts.chunk_bytes;
    o->reached[oracle_chunk_line(seen, hold, number)][view]++;
    const struct decision d =
        vow__rules_chunk(slot_record(slot), hold, number, vow_bytes_size(chunk),
                         most, oracle_now(o, slot));
    const struct oracle_step s = {
        .o = o, .slot = slot, .instance = slot->owner, .value = chunk};
    end_step(&s, &d, NULL, ret);
    note_step(o, slot, ret, "write by %u, epoch %" PRIu64 ", number %" PRIu64,
              hold->token.bytes[0], hold->epoch, number);
}

void oracle_peek(struct oracle *o, const vow_name *name,
                 struct oracle_answer *ret)
{
    struct oracle_slot *slot = oracle_slot(o, name);
    enum rules_view view;
    const struct rules_record *seen = seen_record(o, slot, &view);
    o->reached[LINE_PEEK][view]++;
    *ret = (struct oracle_answer){
        .status = vow__rules_peek(slot_record(slot), o->now_us)};
    if (seen != NULL) {
        ret->record = slot->record;
        ret->record.r = *seen;
        if (seen->state != slot->record.r.state)
            memcpy(ret->record.runner, slot->record.refresher,
                   sizeof(ret->record.runner));
        ret->epoch = seen->epoch;
        ret->first = seen->first;
    }
    if (seen != NULL && seen->state == RULES_RUNNING)
        ret->waiters = oracle_waiters(slot);
    note_step(o, slot, ret, "peek");
}

/* ---- answers ------------------------------------------------------------- */

/* Times are rounded so that a store is asked again when the time is over. */
vow_record oracle_record_of(const struct oracle *o, const vow_name *name,
                            const struct oracle_answer *answer)
{
    const struct rules_record *r = &answer->record.r;
    bool runs = r->state == RULES_RUNNING;
    uint64_t left_us = r->end_us > o->now_us ? r->end_us - o->now_us : 0;
    uint64_t pulsed_us = runs ? r->end_us - r->lease_us : r->since_us;
    if (runs && left_us > r->lease_us)
        left_us = r->lease_us;
    return (vow_record){
        .name = *name,
        .status = answer->status,
        .mode = r->mode,
        .epoch = answer->epoch,
        .first = answer->first,
        .takeovers = r->takeovers,
        .waiters = answer->waiters,
        .failed = r->state == RULES_FAILED || r->state == RULES_GAVE_UP,
        .age_ms =
            o->now_us > r->since_us ? (o->now_us - r->since_us) / 1000 : 0,
        .pulse_ms = o->now_us > pulsed_us ? (o->now_us - pulsed_us) / 1000 : 0,
        .left_ms =
            r->end_us == RULES_NEVER ? UINT64_MAX : (left_us + 999) / 1000,
        .cost_ms = r->cost_ms,
        .label = answer->record.label,
        .runner = answer->record.runner};
}

bool oracle_event_take(struct oracle *o, size_t instance,
                       struct oracle_event *ret)
{
    if (o->n_events[instance] == 0)
        return false;
    struct oracle_event *events = o->events[instance];
    *ret = events[0];
    memmove(events, events + 1, --o->n_events[instance] * sizeof(events[0]));
    return true;
}
