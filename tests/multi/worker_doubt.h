/* SPDX-License-Identifier: MIT */
/* worker_doubt.h - who settles what is in doubt: the part of worker.c that does
 * nothing else.
 *
 *   doubt NAME FENCE             it was seen, for the first time
 *   resolves NAME FENCE HOW      it is asked for: done, failed or again
 *   resolved NAME FENCE HOW CODE
 *
 * What is in doubt is left so for a second at least, in which others ask for it
 * and must not begin it; how it is settled is left to chance. One that could
 * not be settled is tried again, perhaps in another way. */
#ifndef WORKER_DOUBT_H
#define WORKER_DOUBT_H

enum { LOOK_MS = 250, DOUBT_MS = 1000, DOUBT_MORE_MS = 1500, AT_ONCE = 16 };

struct doubt {
    vow_name name;
    char label[LABEL];
    uint64_t fence;
    uint64_t due_ns;
    uint32_t how;
    bool asked; /* or settled */
};

static const char *const words_how[] = {"", "done", "failed", "again"};
static struct doubt **doubts;
static size_t n_doubts, doubts_room;

static vow_next resolved(vow_value v, void *user)
{
    struct doubt *d = user;
    (void)v;
    note("resolved %s %" PRIu64 " %s ok", d->label, d->fence,
         words_how[d->how]);
    me.pending--;
    return vow_ok(vow_nothing());
}

static vow_next not_resolved(vow_error *e, void *user)
{
    struct doubt *d = user;
    note("resolved %s %" PRIu64 " %s %s", d->label, d->fence, words_how[d->how],
         vow_error_name(vow_error_code(e)));
    d->asked = false; /* its owner may have come back, and be lost again */
    d->due_ns = now_ns() + (uint64_t)DOUBT_MS * NS_PER_MS;
    me.pending--;
    return vow_ok(vow_nothing());
}

static void settle_doubt(struct doubt *d)
{
    char text[96];
    vow_bytes *b = NULL;
    d->how = 1 + (uint32_t)any(3);
    d->asked = true;
    if (d->how == VOW_IT_HAPPENED) {
        int n = snprintf(text, sizeof(text), "%s/%" PRIu64 "/%ld", d->label,
                         d->fence, (long)getpid());
        if (vow_bytes_new(me.loop, text, (size_t)n, &b) < 0)
            abort();
        note("made %s %" PRIu64 " 0 %s", d->label, d->fence, text);
    }
    note("resolves %s %" PRIu64 " %s", d->label, d->fence, words_how[d->how]);
    me.pending++;
    if (vow_done(vow_authority_resolve(me.authority, &d->name, d->fence, d->how,
                                       b, ONCE_TTL_MS),
                 resolved, not_resolved, d) < 0)
        abort();
    vow_bytes_unref(b);
}

static struct doubt *doubt_find(const vow_record *r)
{
    for (size_t i = 0; i < n_doubts; i++)
        if (doubts[i]->fence == r->epoch &&
            vow_name_equal(&doubts[i]->name, &r->name))
            return doubts[i];
    return NULL;
}

static void doubt_new(const vow_record *r)
{
    if (n_doubts == doubts_room) {
        doubts_room = 2 * doubts_room + 64;
        doubts = realloc(doubts, doubts_room * sizeof(struct doubt *));
    }
    struct doubt *d = calloc(1, sizeof(*d));
    if (doubts == NULL || d == NULL)
        abort();
    d->name = r->name;
    d->fence = r->epoch;
    d->due_ns = now_ns() + (DOUBT_MS + any(DOUBT_MORE_MS)) * NS_PER_MS;
    (void)snprintf(d->label, sizeof(d->label), "%.*s", LABEL - 1, r->label);
    doubts[n_doubts++] = d;
    remember(&d->name, d->label);
    note("doubt %s %" PRIu64, d->label, d->fence);
}

static void look_for_doubts(void)
{
    VOW_AUTO(vow_future) list = vow_authority_list(me.authority);
    if (vow_loop_run_until(me.loop, list) < 0)
        return;
    const vow_records *all = vow_as_ptr(vow_get(list));
    for (size_t i = 0; i < all->n; i++) {
        if (all->at[i].status != VOW_STATUS_DOUBT)
            continue;
        struct doubt *d = doubt_find(&all->at[i]);
        if (d == NULL)
            doubt_new(&all->at[i]);
        else if (!d->asked && now_ns() >= d->due_ns && me.pending < AT_ONCE)
            settle_doubt(d);
    }
}

static void resolve_doubts(void)
{
    while (!time_is_over()) {
        tick();
        look_for_doubts();
        VOW_AUTO(vow_future) pause = vow_delay(me.loop, LOOK_MS);
        (void)vow_loop_run_until(me.loop, pause);
    }
}

#endif
