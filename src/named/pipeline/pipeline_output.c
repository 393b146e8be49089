/* SPDX-License-Identifier: MIT */
/* pipeline_output.c - the result of one step, for all in this pipeline who want
 * it.
 *
 * HOW   A step that is shared is asked for by its name; a private one is done
 *       here, as soon as somebody listens. If the step behind it reads a
 *       stream, the chunks are kept as they come, so that a second attempt of
 *       that step can read them from the first on. Who does the work gets no
 *       chunks by its own question: then a second question follows.
 *       The result counts, not the chunks: when both are there they are
 *       compared, and who has read something else begins anew.
 * INVARIANTS
 *   F1  a question that is pending keeps the memory: the authority may still
 *       call the work, or write its info
 *   F2  `input` is kept until the result is there, and not longer
 *   F3  the chunks are the first ones of run `run`
 * LIMITS  the chunks stay as long as the feed.
 * THREADS  loop thread only.
 */
#include "base/alloc.h"
#include "named/pipeline/pipeline_internal.h"

#include <string.h>

enum { FIRST_ROOM = 8, NS_PER_MS = 1000000 };

static void ask(struct vow__pipeline_output *f,
                struct vow__pipeline_request *q);
static vow_share_opts options(struct vow__pipeline_output *f,
                              struct vow__pipeline_request *q);
static void demand(struct vow__pipeline_output *f);
static bool is_read_as_stream(const struct vow__pipeline_output *f);
static bool is_shown(const struct vow__pipeline_output *f);
static bool join(const vow_share_info *running, void *question);
static void on_answer(vow_future *answer, void *question);
static void settle(struct vow__pipeline_output *f, vow_future *answer);
static void note(const struct vow__pipeline_output *f);
static bool here(uint32_t role);
static bool wants_anew(const struct vow__pipeline_output *f);
static void make_anew(const struct vow__pipeline_output *f);
static void on_chunk(vow_bytes *chunk, void *question);
static void keep_chunk(struct vow__pipeline_output *f, vow_bytes *chunk);
static void forget_chunks(struct vow__pipeline_output *f);
static bool chunks_begin(const struct vow__pipeline_output *f,
                         vow_bytes *value);
static void changed(struct vow__pipeline_output *f);
static void tell_soon(struct vow__pipeline_output *f);
static void tell(void *feed);

/* ---- coming and leaving ------------------------------------------------- */

struct vow__pipeline_output *
vow__pipeline_output_open(struct vow__pipeline_plan *p, size_t step,
                          uint32_t flags, struct vow__pipeline_output *input)
{
    struct vow__pipeline_output *f = vow__mem_zero(&p->alloc, sizeof(*f));
    if (f == NULL) {
        vow__pipeline_output_leave(input);
        return NULL;
    }
    f->refs = 1;
    f->wants = 1;
    f->plan = p;
    p->refs++;
    f->step = step;
    f->flags = flags;
    f->input = input;
    f->asked_ns = vow_loop_now_ns(p->loop);
    if (!vow__pipeline_plan_private(p, step))
        ask(f, &f->first);
    return f;
}

struct vow__pipeline_output *
vow__pipeline_output_want(struct vow__pipeline_output *f)
{
    f->wants++;
    return f;
}

void vow__pipeline_output_leave(struct vow__pipeline_output *f)
{
    while (f != NULL && --f->wants == 0) {
        struct vow__pipeline_output *input = f->input;
        f->input = NULL;
        if (f->first.answer != NULL)
            (void)vow_cancel(f->first.answer, NULL);
        if (f->second.answer != NULL)
            (void)vow_cancel(f->second.answer, NULL);
        vow__pipeline_output_unref(f);
        f = input;
    }
}

void vow__pipeline_output_unref(struct vow__pipeline_output *f)
{
    struct vow__pipeline_plan *p = f->plan;
    if (--f->refs > 0)
        return;
    VOW__ASSERT(f->ears == NULL);
    forget_chunks(f);
    vow_future_unref(f->result);
    vow__mem_free(&p->alloc, f, sizeof(*f));
    vow__pipeline_plan_unref(p);
}

/* ---- asking ------------------------------------------------------------- */

static void ask(struct vow__pipeline_output *f, struct vow__pipeline_request *q)
{
    struct vow__pipeline_plan *p = f->plan;
    const vow_share_opts o = options(f, q);
    q->feed = f;
    q->seen = 0;
    f->refs++; /* keeps F1 */
    q->answer = vow_share_at(p->site, p->authority, &p->names[f->step],
                             vow__pipeline_step_begin, f, &o);
    vow_watch_start(&q->watch, q->answer, on_answer, q);
}

static vow_share_opts options(struct vow__pipeline_output *f,
                              struct vow__pipeline_request *q)
{
    const struct vow__pipeline_plan *p = f->plan;
    const vow_pipe_step *step = &p->steps[f->step];
    vow_share_opts o = p->share;
    o.flags = (f->flags & ~(uint32_t)VOW_SHARE_FOLLOW) | VOW_SHARE_NO_REFRESH;
    o.label = step->label;
    o.ttl_ms = step->ttl_ms > 0 ? step->ttl_ms : o.ttl_ms;
    o.deadline_ms = 0; /* is the pipeline's */
    o.early = 0;
    o.join = o.join == NULL ? NULL : join;
    o.on_chunk = NULL;
    if (is_read_as_stream(f) || is_shown(f)) {
        o.flags |= VOW_SHARE_FOLLOW;
        o.on_chunk = on_chunk;
    }
    o.user = q;
    o.info = &q->info;
    return o;
}

static bool is_read_as_stream(const struct vow__pipeline_output *f)
{
    size_t next = f->step + 1;
    return next < f->plan->n && vow__pipeline_plan_streams(f->plan, next);
}

/* The caller follows the last step. */
static bool is_shown(const struct vow__pipeline_output *f)
{
    return (f->flags & VOW_SHARE_FOLLOW) != 0 && f->step + 1 == f->plan->n &&
           f->plan->share.on_chunk != NULL;
}

static bool join(const vow_share_info *running, void *question)
{
    const struct vow__pipeline_request *q = question;
    const vow_share_opts *share = &q->feed->plan->share;
    return share->join(running, share->user);
}

void vow__pipeline_output_follow(struct vow__pipeline_output *f)
{
    if (is_read_as_stream(f) && f->second.answer == NULL && f->wants > 0)
        ask(f, &f->second);
}

/* Somebody listens: a private step begins. */
static void demand(struct vow__pipeline_output *f)
{
    struct vow__pipeline_request *q = &f->first;
    if (!vow__pipeline_plan_private(f->plan, f->step) || q->answer != NULL ||
        f->result != NULL)
        return;
    f->asked_ns = vow_loop_now_ns(f->plan->loop);
    q->feed = f;
    q->info.role = VOW_ROLE_RAN;
    f->refs++;
    q->answer = vow__pipeline_step_begin(NULL, f);
    vow_watch_start(&q->watch, q->answer, on_answer, q);
}

/* ---- the answer --------------------------------------------------------- */

static void on_answer(vow_future *answer, void *question)
{
    struct vow__pipeline_request *q = question;
    struct vow__pipeline_output *f = q->feed;
    (void)vow_error_of(answer); /* it is ours to handle */
    if (q == &f->first && f->wants > 0)
        settle(f, answer);
    q->answer = vow_future_unref(q->answer);
    vow__pipeline_output_unref(f);
}

static void settle(struct vow__pipeline_output *f, vow_future *answer)
{
    struct vow__pipeline_output *input = f->input;
    f->result = vow_future_ref(answer);
    f->input = NULL; /* keeps F2 */
    if (vow__pipeline_output_error(f) == NULL &&
        !chunks_begin(f, vow_as_bytes(vow_get(answer)))) {
        forget_chunks(f);
        f->run++;
    }
    if (f->second.answer != NULL)
        (void)vow_cancel(f->second.answer, NULL);
    if (!f->alone)
        note(f);
    if (f->first.info.role == VOW_ROLE_STALE && wants_anew(f))
        make_anew(f);
    changed(f);
    vow__pipeline_output_leave(input);
    if (f->alone)
        vow__pipeline_output_leave(f);
}

static void note(const struct vow__pipeline_output *f)
{
    vow_step_info *info = &f->plan->infos[f->step];
    bool second = here(f->second.info.role);
    info->role = second ? f->second.info.role : f->first.info.role;
    info->fence = f->first.info.fence;
    info->ms = (vow_loop_now_ns(f->plan->loop) - f->asked_ns) / NS_PER_MS;
    memcpy(info->runner, f->first.info.runner, sizeof(info->runner));
}

static bool here(uint32_t role)
{
    return role == VOW_ROLE_RAN || role == VOW_ROLE_TAKEOVER ||
           role == VOW_ROLE_ALONE;
}

static bool wants_anew(const struct vow__pipeline_output *f)
{
    return (f->plan->share.flags & VOW_SHARE_NO_REFRESH) == 0 &&
           (f->flags & VOW_SHARE_REFRESH) == 0; /* it is that already */
}

/* Out of sight, and once among all who found it old. The authority would call
 * upon this feed, which is about to go: so the pipeline does it by itself. */
static void make_anew(const struct vow__pipeline_output *f)
{
    uint32_t flags = vow__pipeline_plan_inner_flags(f->plan) |
                     VOW_SHARE_REFRESH | VOW_SHARE_NOWAIT;
    struct vow__pipeline_output *anew =
        vow__pipeline_output_open(f->plan, f->step, flags, NULL);
    if (anew != NULL) /* else the next who finds it old will */
        anew->alone = true;
}

/* ---- chunks ------------------------------------------------------------- */

static void on_chunk(vow_bytes *chunk, void *question)
{
    struct vow__pipeline_request *q = question;
    struct vow__pipeline_output *f = q->feed;
    const vow_share_opts *share = &f->plan->share;
    if (f->result != NULL || f->wants == 0)
        return;
    if (is_shown(f))
        share->on_chunk(chunk, share->user);
    if (!is_read_as_stream(f))
        return;
    if (chunk != NULL) {
        if (q->seen++ == f->n_chunks) /* the other question has none more */
            keep_chunk(f, chunk);
        return;
    }
    q->seen = 0;
    if (f->n_chunks > 0) {
        forget_chunks(f);
        f->run++;
        changed(f);
    }
}

/* Without memory it stays at those it has: the result has the others. */
static void keep_chunk(struct vow__pipeline_output *f, vow_bytes *chunk)
{
    const struct vow_alloc *alloc = &f->plan->alloc;
    if (f->n_chunks == f->room_chunks) {
        size_t room = f->room_chunks == 0 ? FIRST_ROOM : 2 * f->room_chunks;
        vow_bytes **more = vow__mem_new(alloc, room * sizeof(*more));
        if (more == NULL)
            return;
        if (f->n_chunks > 0)
            memcpy(more, f->chunks, f->n_chunks * sizeof(*more));
        vow__mem_free(alloc, f->chunks, f->room_chunks * sizeof(*more));
        f->chunks = more;
        f->room_chunks = room;
    }
    f->chunks[f->n_chunks++] = vow_bytes_ref(chunk);
    changed(f);
}

static void forget_chunks(struct vow__pipeline_output *f)
{
    for (size_t i = 0; i < f->n_chunks; i++)
        vow_bytes_unref(f->chunks[i]);
    vow__mem_free(&f->plan->alloc, f->chunks,
                  f->room_chunks * sizeof(*f->chunks));
    f->chunks = NULL;
    f->n_chunks = f->room_chunks = 0;
}

/* Is what came as chunks the beginning of the value? */
static bool chunks_begin(const struct vow__pipeline_output *f, vow_bytes *value)
{
    size_t left = value == NULL ? 0 : vow_bytes_size(value);
    const unsigned char *at = value == NULL ? NULL : vow_bytes_data(value);
    for (size_t i = 0; i < f->n_chunks; i++) {
        size_t size = vow_bytes_size(f->chunks[i]);
        if (size > left)
            return false;
        if (size > 0 && memcmp(at, vow_bytes_data(f->chunks[i]), size) != 0)
            return false;
        at += size;
        left -= size;
    }
    return true;
}

/* ---- who listens -------------------------------------------------------- */

void vow__pipeline_output_listen(struct vow__pipeline_output *f,
                                 struct vow__pipeline_listener *ear,
                                 vow_call_fn fn, void *user)
{
    *ear = (struct vow__pipeline_listener){
        .to = f, .due = true, .fn = fn, .user = user};
    vow__list_push(&f->ears, &ear->link);
    demand(f);
    tell_soon(f);
}

void vow__pipeline_output_unlisten(struct vow__pipeline_listener *ear)
{
    if (ear->to == NULL)
        return;
    vow__list_remove(&ear->to->ears, &ear->link);
    ear->to = NULL;
}

static void changed(struct vow__pipeline_output *f)
{
    for (vow_link *l = f->ears; l != NULL; l = l->next)
        VOW__OUTER(l, struct vow__pipeline_listener, link)->due = true;
    tell_soon(f);
}

static void tell_soon(struct vow__pipeline_output *f)
{
    if (f->ears == NULL || vow_call_pending(&f->tell))
        return;
    f->refs++;
    vow_call_soon(&f->tell, f->plan->loop, tell, f);
}

/* Whoever is told may come, go, and take others along. */
static void tell(void *feed)
{
    struct vow__pipeline_output *f = feed;
    vow_link *l = f->ears;
    while (l != NULL) {
        struct vow__pipeline_listener *ear =
            VOW__OUTER(l, struct vow__pipeline_listener, link);
        l = l->next;
        if (!ear->due)
            continue;
        ear->due = false;
        ear->fn(ear->user);
        l = f->ears;
    }
    vow__pipeline_output_unref(f);
}
