/* SPDX-License-Identifier: MIT */
/* pipeline_other.h - another process, as the store sees it: it claims a name,
 * writes chunks, commits, or says nothing more. */
#ifndef TEST_PIPELINE_OTHER_H
#define TEST_PIPELINE_OTHER_H

#include "pipeline_rig.h"

struct other {
    struct rig *rig;
    vow_store *store;
    vow_hold hold;
    uint64_t chunks; /* written by this claim */
    uint32_t status;
};

static inline void other_heard(int code, const vow_record *r, size_t n,
                               void *user)
{
    struct other *o = user;
    o->status = VOW_STATUS_NONE;
    if (code < 0) {
        CHECK(fault_explains(o->rig->w, code));
        return;
    }
    CHECK_UINT_EQ(n, 1);
    o->status = r->status;
    if (r->status == VOW_STATUS_OWNED)
        o->hold.epoch = r->epoch;
}

/* False in a sweep, without memory. */
static inline bool other_open(struct other *o, struct rig *r)
{
    *o = (struct other){.rig = r, .hold.token = {.bytes = "somebody else's"}};
    int rc = vow_store_memory_new(r->loop, r->memory, &o->store);
    CHECK(rc == 0 || fault_explains(r->w, rc));
    if (rc < 0)
        return false;
    const vow_store_events none = {.user = NULL};
    o->store->ops->listen(o->store, &none);
    return true;
}

static inline void check_owned(const struct other *o)
{
    CHECK(o->status == VOW_STATUS_OWNED || fault_fired(o->rig->w));
}

static inline void other_claims(struct other *o, const char *letters)
{
    o->hold.name = name_of(o->rig, letters);
    const vow_claim_request ask = {.name = o->hold.name,
                                   .token = o->hold.token,
                                   .lease_ms = o->rig->lease_ms,
                                   .takeovers = 3,
                                   .runner = "other:1"};
    o->chunks = 0;
    o->store->ops->claim(o->store, &ask, other_heard, o);
    check_owned(o);
}

static inline vow_bytes *bytes_of(struct rig *r, const char *text)
{
    vow_bytes *b = NULL;
    int rc = vow_bytes_new(r->loop, text, strlen(text), &b);
    CHECK(rc == 0 || fault_explains(r->w, rc));
    return b;
}

static inline void other_writes(struct other *o, const char *text)
{
    VOW_AUTO(vow_bytes) b = bytes_of(o->rig, text);
    if (b == NULL)
        return;
    o->store->ops->write(o->store, &o->hold, o->chunks++, b, other_heard, o);
    check_owned(o);
}

static inline void other_commits(struct other *o, const char *text)
{
    VOW_AUTO(vow_bytes) b = bytes_of(o->rig, text);
    const vow_commit_request ask = {.hold = o->hold,
                                    .outcome = VOW_OUTCOME_DONE,
                                    .value = b,
                                    .ttl_ms = 60000};
    if (b == NULL)
        return;
    o->store->ops->commit(o->store, &ask, other_heard, o);
    check_owned(o);
}

static inline void other_close(struct other *o)
{
    vow_future *f = o->store->ops->close(o->store);
    int rc = vow_loop_run_until(o->rig->loop, f);
    CHECK(rc == 0 || fault_explains(o->rig->w, rc));
    vow_future_unref(f);
}

/* ---- a store that is down ---------------------------------------------- */

static inline void not_claimed(vow_store *s, const vow_claim_request *ask,
                               vow_records_fn done, void *user)
{
    (void)s;
    (void)ask;
    done(VOW_ESTORE, NULL, 0, user);
}

static inline void not_seen(vow_store *s, const vow_name *names, size_t n,
                            vow_records_fn done, void *user)
{
    (void)s;
    (void)names;
    (void)n;
    done(VOW_ESTORE, NULL, 0, user);
}

/* From now on nobody of the first authority's reaches it. */
static inline void cut_off(struct rig *r)
{
    static vow_store_ops ops;
    ops = *r->store[0]->ops;
    ops.claim = not_claimed;
    ops.peek = not_seen;
    r->store[0]->ops = &ops;
}

#endif
