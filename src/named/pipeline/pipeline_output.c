/* SPDX-License-Identifier: MIT */
/* pipeline_output.c - the result of one step, for all users in this pipeline.
 *
 * HOW   A shared step is requested by name; a private step runs here as soon as
 *       there is a listener. If the next step reads a stream, the chunks are
 *       kept as they come, so that a second attempt of the next step can read
 *       from the first chunk on. The runner's own request gets no chunks, so a
 *       second request follows. The result counts, not the chunks: when both
 *       are there, they are compared, and a reader of different bytes starts
 *       over.
 * INVARIANTS
 *   F1  a pending request keeps the memory: the authority may still call the
 *       work, or write the info
 *   F2  `input` is kept until the result is there, and not longer
 *   F3  the chunks are the first chunks of run `run`
 * LIMITS  the chunks stay as long as the output.
 * THREADS  loop thread only.
 */
#include "base/alloc.h"
#include "named/pipeline/pipeline_internal.h"

#include <string.h>

enum { OUTPUT_FIRST_ROOM = 8, NS_PER_MS = 1000000 };

static void output_send_request(struct vow__pipeline_output *out,
                                struct vow__pipeline_request *req);
static vow_share_opts output_share_opts(struct vow__pipeline_output *out,
                                        struct vow__pipeline_request *req);
static void output_begin_private(struct vow__pipeline_output *out);
static bool output_is_streamed(const struct vow__pipeline_output *out);
static bool output_is_followed(const struct vow__pipeline_output *out);
static bool on_join_query(const vow_share_info *running, void *request);
static void on_output_answer(vow_future *answer, void *request);
static void output_settle(struct vow__pipeline_output *out, vow_future *answer);
static void output_write_info(const struct vow__pipeline_output *out);
static bool step_ran_here(uint32_t role);
static bool output_wants_refresh(const struct vow__pipeline_output *out);
static void output_refresh(const struct vow__pipeline_output *out);
static void on_output_chunk(vow_bytes *chunk, void *request);
static void keep_chunk(struct vow__pipeline_output *out, vow_bytes *chunk);
static void forget_chunks(struct vow__pipeline_output *out);
static bool chunks_match_value(const struct vow__pipeline_output *out,
                               vow_bytes *value);
static void output_changed(struct vow__pipeline_output *out);
static void listeners_call_soon(struct vow__pipeline_output *out);
static void listeners_call(void *output);

/* ---- opening and leaving ------------------------------------------------ */

struct vow__pipeline_output *
vow__pipeline_output_open(struct vow__pipeline_plan *p, size_t step,
                          uint32_t flags, struct vow__pipeline_output *input)
{
    struct vow__pipeline_output *out = vow__mem_zero(&p->alloc, sizeof(*out));
    if (out == NULL) {
        vow__pipeline_output_leave(input);
        return NULL;
    }
    out->refs = 1;
    out->wants = 1;
    out->plan = p;
    p->refs++;
    out->step = step;
    out->flags = flags;
    out->input = input;
    out->asked_ns = vow_loop_now_ns(p->loop);
    if (!vow__pipeline_plan_private(p, step))
        output_send_request(out, &out->first);
    return out;
}

struct vow__pipeline_output *
vow__pipeline_output_want(struct vow__pipeline_output *out)
{
    out->wants++;
    return out;
}

void vow__pipeline_output_leave(struct vow__pipeline_output *out)
{
    while (out != NULL && --out->wants == 0) {
        struct vow__pipeline_output *input = out->input;
        out->input = NULL;
        if (out->first.answer != NULL)
            (void)vow_cancel(out->first.answer, NULL);
        if (out->second.answer != NULL)
            (void)vow_cancel(out->second.answer, NULL);
        vow__pipeline_output_unref(out);
        out = input;
    }
}

void vow__pipeline_output_unref(struct vow__pipeline_output *out)
{
    struct vow__pipeline_plan *p = out->plan;
    if (--out->refs > 0)
        return;
    VOW__ASSERT(out->listeners == NULL);
    forget_chunks(out);
    vow_future_unref(out->result);
    vow__mem_free(&p->alloc, out, sizeof(*out));
    vow__pipeline_plan_unref(p);
}

/* ---- requesting --------------------------------------------------------- */

static void output_send_request(struct vow__pipeline_output *out,
                                struct vow__pipeline_request *req)
{
    struct vow__pipeline_plan *p = out->plan;
    const vow_share_opts o = output_share_opts(out, req);
    req->output = out;
    req->seen = 0;
    out->refs++; /* keeps F1 */
    req->answer = vow_share_at(p->site, p->authority, &p->names[out->step],
                               vow__pipeline_step_begin, out, &o);
    vow_watch_start(&req->watch, req->answer, on_output_answer, req);
}

static vow_share_opts output_share_opts(struct vow__pipeline_output *out,
                                        struct vow__pipeline_request *req)
{
    const struct vow__pipeline_plan *p = out->plan;
    const vow_pipe_step *step = &p->steps[out->step];
    vow_share_opts o = p->share;
    o.flags = (out->flags & ~(uint32_t)VOW_SHARE_FOLLOW) | VOW_SHARE_NO_REFRESH;
    o.label = step->label;
    o.ttl_ms = step->ttl_ms > 0 ? step->ttl_ms : o.ttl_ms;
    o.deadline_ms = 0; /* the run has the deadline */
    o.early = 0;
    o.join = o.join == NULL ? NULL : on_join_query;
    o.on_chunk = NULL;
    if (output_is_streamed(out) || output_is_followed(out)) {
        o.flags |= VOW_SHARE_FOLLOW;
        o.on_chunk = on_output_chunk;
    }
    o.user = req;
    o.info = &req->info;
    return o;
}

static bool output_is_streamed(const struct vow__pipeline_output *out)
{
    size_t next = out->step + 1;
    return next < out->plan->n && vow__pipeline_plan_streams(out->plan, next);
}

/* Returns whether the caller of the pipeline follows this step, the last. */
static bool output_is_followed(const struct vow__pipeline_output *out)
{
    return (out->flags & VOW_SHARE_FOLLOW) != 0 &&
           out->step + 1 == out->plan->n && out->plan->share.on_chunk != NULL;
}

static bool on_join_query(const vow_share_info *running, void *request)
{
    const struct vow__pipeline_request *req = request;
    const vow_share_opts *share = &req->output->plan->share;
    return share->join(running, share->user);
}

void vow__pipeline_output_follow(struct vow__pipeline_output *out)
{
    if (output_is_streamed(out) && out->second.answer == NULL && out->wants > 0)
        output_send_request(out, &out->second);
}

/* Begins a private step, now that a listener is there. */
static void output_begin_private(struct vow__pipeline_output *out)
{
    struct vow__pipeline_request *req = &out->first;
    if (!vow__pipeline_plan_private(out->plan, out->step) ||
        req->answer != NULL || out->result != NULL)
        return;
    out->asked_ns = vow_loop_now_ns(out->plan->loop);
    req->output = out;
    req->info.role = VOW_ROLE_RAN;
    out->refs++;
    req->answer = vow__pipeline_step_begin(NULL, out);
    vow_watch_start(&req->watch, req->answer, on_output_answer, req);
}

/* ---- the answer --------------------------------------------------------- */

static void on_output_answer(vow_future *answer, void *request)
{
    struct vow__pipeline_request *req = request;
    struct vow__pipeline_output *out = req->output;
    (void)vow_error_of(answer); /* handled here */
    if (req == &out->first && out->wants > 0)
        output_settle(out, answer);
    req->answer = vow_future_unref(req->answer);
    vow__pipeline_output_unref(out);
}

static void output_settle(struct vow__pipeline_output *out, vow_future *answer)
{
    struct vow__pipeline_output *input = out->input;
    out->result = vow_future_ref(answer);
    out->input = NULL; /* keeps F2 */
    if (vow__pipeline_output_error(out) == NULL &&
        !chunks_match_value(out, vow_as_bytes(vow_get(answer)))) {
        forget_chunks(out);
        out->run++;
    }
    if (out->second.answer != NULL)
        (void)vow_cancel(out->second.answer, NULL);
    if (!out->detached)
        output_write_info(out);
    if (out->first.info.role == VOW_ROLE_STALE && output_wants_refresh(out))
        output_refresh(out);
    output_changed(out);
    vow__pipeline_output_leave(input);
    if (out->detached)
        vow__pipeline_output_leave(out);
}

static void output_write_info(const struct vow__pipeline_output *out)
{
    vow_step_info *info = &out->plan->infos[out->step];
    bool second = step_ran_here(out->second.info.role);
    info->role = second ? out->second.info.role : out->first.info.role;
    info->fence = out->first.info.fence;
    info->ms = (vow_loop_now_ns(out->plan->loop) - out->asked_ns) / NS_PER_MS;
    memcpy(info->runner, out->first.info.runner, sizeof(info->runner));
}

static bool step_ran_here(uint32_t role)
{
    return role == VOW_ROLE_RAN || role == VOW_ROLE_TAKEOVER ||
           role == VOW_ROLE_ALONE;
}

static bool output_wants_refresh(const struct vow__pipeline_output *out)
{
    return (out->plan->share.flags & VOW_SHARE_NO_REFRESH) == 0 &&
           (out->flags & VOW_SHARE_REFRESH) == 0; /* already a refresh */
}

/* Refreshes the result in the background, once for all callers that found the
 * old result. The authority would call this output, which is about to go: so
 * the pipeline opens another output. */
static void output_refresh(const struct vow__pipeline_output *out)
{
    uint32_t flags = vow__pipeline_plan_inner_flags(out->plan) |
                     VOW_SHARE_REFRESH | VOW_SHARE_NOWAIT;
    struct vow__pipeline_output *fresh =
        vow__pipeline_output_open(out->plan, out->step, flags, NULL);
    if (fresh != NULL) /* else the next caller will refresh */
        fresh->detached = true;
}

/* ---- chunks ------------------------------------------------------------- */

static void on_output_chunk(vow_bytes *chunk, void *request)
{
    struct vow__pipeline_request *req = request;
    struct vow__pipeline_output *out = req->output;
    const vow_share_opts *share = &out->plan->share;
    if (out->result != NULL || out->wants == 0)
        return;
    if (output_is_followed(out))
        share->on_chunk(chunk, share->user);
    if (!output_is_streamed(out))
        return;
    if (chunk != NULL) {
        if (req->seen++ == out->n_chunks) /* not kept from the other request */
            keep_chunk(out, chunk);
        return;
    }
    req->seen = 0;
    if (out->n_chunks > 0) {
        forget_chunks(out);
        out->run++;
        output_changed(out);
    }
}

/* Keeps a chunk. Without memory, no more chunks: the result has all bytes. */
static void keep_chunk(struct vow__pipeline_output *out, vow_bytes *chunk)
{
    const struct vow_alloc *alloc = &out->plan->alloc;
    if (out->n_chunks == out->room_chunks) {
        size_t room =
            out->room_chunks == 0 ? OUTPUT_FIRST_ROOM : 2 * out->room_chunks;
        vow_bytes **more = vow__mem_new(alloc, room * sizeof(*more));
        if (more == NULL)
            return;
        if (out->n_chunks > 0)
            memcpy(more, out->chunks, out->n_chunks * sizeof(*more));
        vow__mem_free(alloc, out->chunks, out->room_chunks * sizeof(*more));
        out->chunks = more;
        out->room_chunks = room;
    }
    out->chunks[out->n_chunks++] = vow_bytes_ref(chunk);
    output_changed(out);
}

static void forget_chunks(struct vow__pipeline_output *out)
{
    for (size_t i = 0; i < out->n_chunks; i++)
        vow_bytes_unref(out->chunks[i]);
    vow__mem_free(&out->plan->alloc, out->chunks,
                  out->room_chunks * sizeof(*out->chunks));
    out->chunks = NULL;
    out->n_chunks = out->room_chunks = 0;
}

/* Returns whether the chunks are the beginning of the value. */
static bool chunks_match_value(const struct vow__pipeline_output *out,
                               vow_bytes *value)
{
    size_t left = value == NULL ? 0 : vow_bytes_size(value);
    const unsigned char *at = value == NULL ? NULL : vow_bytes_data(value);
    for (size_t i = 0; i < out->n_chunks; i++) {
        size_t size = vow_bytes_size(out->chunks[i]);
        if (size > left)
            return false;
        if (size > 0 && memcmp(at, vow_bytes_data(out->chunks[i]), size) != 0)
            return false;
        at += size;
        left -= size;
    }
    return true;
}

/* ---- listeners ---------------------------------------------------------- */

void vow__pipeline_output_listen(struct vow__pipeline_output *out,
                                 struct vow__pipeline_listener *listener,
                                 vow_call_fn fn, void *user)
{
    *listener = (struct vow__pipeline_listener){
        .to = out, .due = true, .fn = fn, .user = user};
    vow__list_push(&out->listeners, &listener->link);
    output_begin_private(out);
    listeners_call_soon(out);
}

void vow__pipeline_output_unlisten(struct vow__pipeline_listener *listener)
{
    if (listener->to == NULL)
        return;
    vow__list_remove(&listener->to->listeners, &listener->link);
    listener->to = NULL;
}

static void output_changed(struct vow__pipeline_output *out)
{
    for (vow_link *l = out->listeners; l != NULL; l = l->next)
        VOW__OUTER(l, struct vow__pipeline_listener, link)->due = true;
    listeners_call_soon(out);
}

static void listeners_call_soon(struct vow__pipeline_output *out)
{
    if (out->listeners == NULL || vow_call_pending(&out->notify_call))
        return;
    out->refs++;
    vow_call_soon(&out->notify_call, out->plan->loop, listeners_call, out);
}

/* Calls the due listeners. A listener may add and remove listeners. */
static void listeners_call(void *output)
{
    struct vow__pipeline_output *out = output;
    vow_link *l = out->listeners;
    while (l != NULL) {
        struct vow__pipeline_listener *listener =
            VOW__OUTER(l, struct vow__pipeline_listener, link);
        l = l->next;
        if (!listener->due)
            continue;
        listener->due = false;
        listener->fn(listener->user);
        l = out->listeners;
    }
    vow__pipeline_output_unref(out);
}
