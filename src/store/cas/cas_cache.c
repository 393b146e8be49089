/* SPDX-License-Identifier: MIT */
/* cas_cache.c - the names that this instance owns, waits for, or has used.
 *
 * WHY   A waiter is told by events that come beside the answers: a change may
 *       be told before the answer that the change follows. And an owner need
 *       not ask whether the name is still its own while a watch tells of every
 *       change.
 * HOW   A name is in the cache from the beginning of a step on. Answers and
 *       events go through vow__cas_name_note(): the newest version counts. The
 *       end of a mark does not change the version, but is final within the
 *       version. What waiters and owner must know is told from the loop's
 *       queue, by on_name_tell().
 *       A name without steps, owner and orphans rests in a list, the longest
 *       untouched first. A waiter claims again every recheck interval, so a
 *       name that rests for REST_MS is awaited by nobody.
 * INVARIANTS  C1 to C3 in cas_internal.h
 * THREADS  the thread of the loop.
 */
#include "store/cas/cas_internal.h"

#include <string.h>

enum { REST_MS = 600000 };
#define NS_PER_MS UINT64_C(1000000)
static const uint64_t LOOK_AGAIN_NS = 100 * NS_PER_MS;

static void name_rest(struct cas_name *n);
static void name_free(struct cas_name *n);
static bool name_is_over(const struct cas_name *n);
static void name_tell_soon(struct cas_name *n);
static void on_name_tell(void *user);
static bool name_answer(const struct cas_name *n, vow_record *ret_record);
static void expiry_arm(struct cas *s);
static void on_expire(void *user);

/* ---- names --------------------------------------------------------------- */

static struct cas_name *cached_name(struct vow__table_node *node)
{
    return VOW__OUTER(node, struct cas_name, node);
}

struct cas_name *vow__cas_name_find(const struct cas *s, const vow_name *name)
{
    struct vow__table_node *node = vow__table_find(
        &s->names, (const char *)name->hash, sizeof(name->hash));
    return node == NULL ? NULL : cached_name(node);
}

static bool name_rests(const struct cas_name *n)
{
    return n->steps == 0 && !n->owned && n->orphans == NULL;
}

struct cas_name *vow__cas_name_use(struct cas *s, const vow_name *name)
{
    struct cas_name *n = vow__cas_name_find(s, name);
    if (n != NULL) {
        if (name_rests(n)) {
            vow__list_remove(&s->resting, &n->resting);
            s->n_resting--;
        }
        n->steps++;
        return n;
    }
    n = vow__mem_zero(&s->alloc, sizeof(*n));
    if (n == NULL)
        return NULL;
    n->name = *name;
    n->cas = s;
    n->node.name = (const char *)n->name.hash;
    n->node.length = sizeof(n->name.hash);
    n->steps = 1;
    if (vow__table_add(&s->names, &n->node) < 0) {
        vow__mem_free(&s->alloc, n, sizeof(*n));
        return NULL;
    }
    return n;
}

void vow__cas_name_drop(struct cas_name *n)
{
    VOW__ASSERT(n->steps > 0);
    n->steps--;
    n->touched_ns = vow__cas_now_ns(n->cas);
    if (name_rests(n))
        name_rest(n);
    else
        VOW__DEBUG_ASSERT((vow__cas_name_check(n), true));
}

/* Keeps C1, and forgets the names that rested for long. */
static void name_rest(struct cas_name *n)
{
    struct cas *s = n->cas;
    uint64_t now_ns = n->touched_ns;
    uint64_t rest_ns = REST_MS * NS_PER_MS;
    vow__list_push(&s->resting, &n->resting);
    s->n_resting++;
    VOW__DEBUG_ASSERT((vow__cas_name_check(n), true));
    while (s->resting != NULL && !s->closing) {
        struct cas_name *old = VOW__OUTER(s->resting, struct cas_name, resting);
        bool many = s->n_resting > CAS_RESTING_MAX && !old->awaited;
        if (!many && now_ns - old->touched_ns < rest_ns)
            break;
        vow__list_remove(&s->resting, &old->resting);
        s->n_resting--;
        name_free(old);
    }
}

static void name_free(struct cas_name *n)
{
    struct cas *s = n->cas;
    (void)vow_call_stop(&n->tell);
    vow__cas_found_fini(&n->found);
    vow__table_remove(&s->names, &n->node);
    vow__mem_free(&s->alloc, n, sizeof(*n));
}

void vow__cas_names_fini(struct cas *s)
{
    struct vow__table_node *node = vow__table_next(&s->names, NULL);
    while (node != NULL) {
        struct cas_name *n = cached_name(node);
        node = vow__table_next(&s->names, node);
        VOW__ASSERT(n->steps == 0 && n->orphans == NULL);
        name_free(n);
    }
    vow__table_fini(&s->names);
}

void vow__cas_name_check(const struct cas_name *n)
{
    VOW__ASSERT(!n->owned || n->cas->expiries != NULL); /* C2 */
    VOW__ASSERT(!name_rests(n) || n->cas->n_resting > 0);
    for (int class = 0; class < CAS_CLASSES; class ++)
        VOW__ASSERT(n->lanes[class].queue == NULL ||
                    n->lanes[class].active != NULL);
}

/* ---- what is seen -------------------------------------------------------- */

static bool is_owner_of(const struct rules_record *r, const vow_token *token)
{
    return memcmp(&r->token, token, sizeof(*token)) == 0;
}

/* Returns whether the record asks the owner here to stop. */
static bool found_cancels(const struct cas_name *n, const struct cas_found *f)
{
    const struct rules_record *r = &f->record;
    if (!n->owned)
        return false;
    if (is_owner_of(r, &n->token))
        return r->canceled;
    return r->refresh.epoch != 0 && r->refresh.canceled &&
           memcmp(&r->refresh.token, &n->token, sizeof(n->token)) == 0;
}

/* Tells a mark as of a later time. */
static void mark_age(struct cas_mark *m, uint64_t us)
{
    if (m->lease == 0)
        m->gone_us += us;
    else if (m->left_us != RULES_NEVER)
        m->left_us = m->left_us > us ? m->left_us - us : 0;
}

/* The same version again: marks may have ended. */
static void note_marks(struct cas_name *n, const struct cas_found *f)
{
    struct cas_found *known = &n->found;
    uint64_t now_us = f->now_us > known->now_us ? f->now_us : known->now_us;
    bool owner = known->owner.lease != 0;
    bool refresher = known->refresher.lease != 0;
    if (owner)
        known->owner = f->owner;
    if (refresher)
        known->refresher = f->refresher;
    mark_age(&known->owner, now_us - (owner ? f->now_us : known->now_us));
    mark_age(&known->refresher,
             now_us - (refresher ? f->now_us : known->now_us));
    known->now_us = now_us;
    if (f->valued && !n->found.valued) {
        n->found.value = vow_bytes_ref(f->value);
        n->found.valued = true;
    }
}

void vow__cas_name_note(struct cas_name *n, const struct cas_found *f)
{
    if (f->version == 0) { /* perhaps older than what is known */
        n->hinted = n->hinted || (n->awaited && n->known);
        n->known = n->fresh = false;
    } else if (n->known && f->version == n->found.version) {
        note_marks(n, f);
        n->fresh = true;
    } else if (!n->known || f->version > n->found.version) {
        bool again = n->known && n->found.record.epoch == f->record.epoch;
        n->chunked = n->chunked ||
                     (n->awaited && f->record.chunks > 0 &&
                      (!again || f->record.chunks > n->found.record.chunks));
        n->canceled = n->canceled || (found_cancels(n, f) &&
                                      !(again && found_cancels(n, &n->found)));
        vow__cas_found_fini(&n->found);
        n->found = *f;
        n->found.value = vow_bytes_ref(f->value);
        n->known = n->fresh = true;
    }
    name_tell_soon(n);
}

/* ---- waiters ------------------------------------------------------------- */

void vow__cas_name_await(struct cas_name *n, bool awaited, uint64_t first)
{
    n->awaited = awaited;
    n->first = first;
    name_tell_soon(n); /* an event may have come before the answer */
}

/* Returns whether the awaited run is not at work any more. */
static bool name_is_over(const struct cas_name *n)
{
    const struct rules_record *r = &n->found.record;
    if (!n->known)
        return false;
    if (r->state == RULES_RUNNING)
        return n->found.owner.lease == 0 || r->first != n->first;
    return !(r->refresh.epoch == n->first && !r->refresh.failed &&
             n->found.refresher.lease != 0);
}

static void name_tell_soon(struct cas_name *n)
{
    bool records = n->awaited && (n->hinted || name_is_over(n));
    if (!records && !n->canceled && !(n->awaited && n->chunked))
        return;
    if (!n->cas->closing && !vow_call_pending(&n->tell))
        vow_call_soon(&n->tell, n->cas->loop, on_name_tell, n);
}

/* Each event may start steps, or close the store. */
static void on_name_tell(void *user)
{
    struct cas_name *n = user;
    struct cas *s = n->cas;
    const vow_store_events *e = &s->events;
    bool over = n->awaited && name_is_over(n);
    bool records = n->awaited && (n->hinted || over);
    bool chunks = n->awaited && n->chunked && !over;
    bool cancels = n->canceled;
    vow_record r = {.name = n->name, .label = "", .runner = ""};
    VOW_AUTO(vow_bytes) value = NULL;
    n->chunked = n->canceled = n->hinted = false;
    if (over && name_answer(n, &r)) {
        value = vow_bytes_ref(n->found.value);
        r.value = value;
    }
    if (over && n->found.record.state != RULES_RUNNING)
        n->awaited = false;
    (void)vow__cas_name_use(s, &n->name);
    if (cancels && e->on_cancel != NULL)
        e->on_cancel(&n->name, e->user);
    if (chunks && e->on_chunks != NULL && !s->closing)
        e->on_chunks(&n->name, e->user);
    if (records && e->on_record != NULL && !s->closing)
        e->on_record(&r, e->user);
    vow__cas_name_drop(n);
}

/* Makes the record of the awaited run, if the value is at hand. */
static bool name_answer(const struct cas_name *n, vow_record *ret_record)
{
    const struct cas_found *f = &n->found;
    const struct rules_record *r = &f->record;
    if ((r->state != RULES_DONE && r->state != RULES_FAILED) || !f->valued ||
        r->first != n->first)
        return false;
    *ret_record = vow__cas_found_answer(f);
    ret_record->status = VOW_STATUS_SETTLED;
    return true;
}

/* ---- events of the service ----------------------------------------------- */

static void on_service_record(const vow_name *name,
                              const struct cas_found *found, void *user)
{
    struct cas *s = user;
    struct cas_name *n = vow__cas_name_find(s, name);
    if (found->now_us > vow__cas_clock_us(s))
        vow__cas_clock_set(s, found->now_us);
    if (n != NULL && !s->closing)
        vow__cas_name_note(n, found);
}

static void on_service_doubt(void *user)
{
    struct cas *s = user;
    struct vow__table_node *node = NULL;
    if (s->closing)
        return;
    while ((node = vow__table_next(&s->names, node)) != NULL)
        cached_name(node)->fresh = false;
    vow__cas_pools_doubt(s);
    if (s->events.on_doubt != NULL)
        s->events.on_doubt(s->events.user);
}

const struct cas_events vow__cas_events = {.on_record = on_service_record,
                                           .on_doubt = on_service_doubt,
                                           .on_look = vow__cas_pool_look};

/* ---- owners -------------------------------------------------------------- */

bool vow__cas_name_owned(const struct cas_name *n, const vow_token *token)
{
    return n->owned && memcmp(&n->token, token, sizeof(*token)) == 0;
}

void vow__cas_name_own(struct cas_name *n, const vow_token *token, uint64_t ms)
{
    struct cas *s = n->cas;
    VOW__ASSERT(n->steps > 0);
    vow__cas_name_disown(n);
    if (ms == 0)
        return;
    n->owned = true;
    n->remark = false;
    n->token = *token;
    n->end_ns = vow_loop_due_ns(s->loop, ms);
    n->expiry.key = n->end_ns;
    n->expiry.seq = s->expiry_seq++;
    vow__heap_insert(&s->expiries, &n->expiry);
    s->n_owned++;
    expiry_arm(s);
}

/* During a step, so that C1 stays. */
void vow__cas_name_disown(struct cas_name *n)
{
    struct cas *s = n->cas;
    VOW__ASSERT(n->steps > 0);
    if (!n->owned)
        return;
    n->owned = false;
    n->remark = false;
    vow__heap_remove(&s->expiries, &n->expiry);
    s->n_owned--;
}

static void expiry_arm(struct cas *s)
{
    if (s->expiries == NULL || s->closing)
        (void)vow_call_stop(&s->expire);
    else
        vow_call_weakly_at(&s->expire, s->loop, s->expiries->key, on_expire, s);
}

/* A renewal under way comes first. */
static void on_expire(void *user)
{
    struct cas *s = user;
    uint64_t now_ns = vow__cas_now_ns(s);
    while (s->expiries != NULL && s->expiries->key <= now_ns) {
        struct cas_name *n = VOW__OUTER(s->expiries, struct cas_name, expiry);
        vow__heap_remove(&s->expiries, &n->expiry);
        n->expiry.key = now_ns + LOOK_AGAIN_NS;
        n->expiry.seq = s->expiry_seq++;
        vow__heap_insert(&s->expiries, &n->expiry);
        if (n->renewals == 0 && now_ns >= n->end_ns)
            vow__cas_name_lapse(n);
    }
    expiry_arm(s);
}
