/* SPDX-License-Identifier: MIT */
/* pipeline_internal.h - the inside of a pipeline.
 *
 *   run    one call of vow_pipeline_run(): pipeline.c
 *     walk   the way to a step, forwards from the longest beginning that is
 *            known: pipeline_walk.c
 *       feed   the result of one step: asked for by name, or made here if it
 *              is private; perhaps in chunks: pipeline_output.c
 *         turn   the step is done here: waits for its input, then calls the
 *                user's function: pipeline_step.c
 *           input   what that function reads: pipeline_input.c
 *           walk    to its input, if that is not at hand
 *
 * A feed has its input, the feed before it, when the walk came from there. One
 * that a walk begins with has none: should it be done here after all, because
 * who did it was lost, the turn walks to its input anew. So waits go from a
 * step to those before it only.
 *
 * All stand on the public headers.
 */
#ifndef VOW_NAMED_PIPELINE_INTERNAL_H
#define VOW_NAMED_PIPELINE_INTERNAL_H

#include "base/list.h"
#include "vow/call.h"
#include "vow/pipeline.h"
#include "vow/watch.h"

/* What is to be done. It does not change, but for what became of the steps. */
struct vow__pipeline_plan {
    size_t refs;
    size_t size; /* of this block: the arrays and labels lie behind it */
    struct vow_alloc alloc;
    vow_authority *authority; /* counted */
    vow_loop *loop;
    const char *site;
    vow_share_opts share;
    size_t n;
    vow_pipe_step *steps; /* without their fields, with labels of ours */
    vow_name *names;
    vow_step_info *infos;
};

static inline bool
vow__pipeline_plan_private(const struct vow__pipeline_plan *p, size_t step)
{
    return (p->steps[step].flags & VOW_STEP_PRIVATE) != 0;
}

static inline bool
vow__pipeline_plan_streams(const struct vow__pipeline_plan *p, size_t step)
{
    return (p->steps[step].flags & VOW_STEP_STREAM) != 0;
}

/* Flags for the asks of a turn, which works for others as well: what its asker
 * wants for itself alone does not count there. */
static inline uint32_t
vow__pipeline_plan_inner_flags(const struct vow__pipeline_plan *p)
{
    return p->share.flags & (VOW_SHARE_MANUAL_PULSE | VOW_SHARE_KEEP);
}

void vow__pipeline_plan_unref(struct vow__pipeline_plan *p);

/* ---- pipeline_output.c ---------------------------------------------------- */

/* One who is told that something has changed, from the loop's queue. */
struct vow__pipeline_listener {
    vow_link link;
    struct vow__pipeline_output *to; /* NULL: to none */
    bool due;
    vow_call_fn fn;
    void *user;
};

/* A question to the authority; or, of a private step, the turn itself. */
struct vow__pipeline_request {
    struct vow__pipeline_output
        *feed;          /* counted as memory while it is pending */
    vow_future *answer; /* NULL: it is not pending */
    vow_watch watch;
    vow_share_info info;
    size_t seen; /* chunks */
};

struct vow__pipeline_output {
    size_t refs;  /* of the memory; those who want it have one together */
    size_t wants; /* who want the result; 0: it has been left */
    struct vow__pipeline_plan *plan;
    size_t step;
    uint32_t flags; /* VOW_SHARE_... of its questions */
    bool alone;     /* wanted by itself, until it is settled */
    struct vow__pipeline_output *input; /* wanted; NULL: none, or not at hand */
    struct vow__pipeline_request first;
    struct vow__pipeline_request
        second; /* the runner gets no chunks: this one does */
    uint64_t asked_ns;
    vow_future *result; /* settled; NULL: not yet */
    vow_bytes **chunks;
    size_t n_chunks, room_chunks;
    uint64_t run; /* counts the runs whose chunks these are */
    vow_link *ears;
    vow_call tell;
};

/* Ask for the result of a step; a private one is begun when somebody listens.
 * `input` (may be NULL) is moved, also on failure. NULL: no memory. The caller
 * wants it, until it leaves. */
struct vow__pipeline_output *
vow__pipeline_output_open(struct vow__pipeline_plan *p, size_t step,
                          uint32_t flags, struct vow__pipeline_output *input);
struct vow__pipeline_output *
vow__pipeline_output_want(struct vow__pipeline_output *f);
void vow__pipeline_output_leave(
    struct vow__pipeline_output *f); /* may be NULL */
void vow__pipeline_output_unref(
    struct vow__pipeline_output *f); /* of the memory */
void vow__pipeline_output_follow(
    struct vow__pipeline_output *f); /* the step is done here */
/* Tell fn(user) soon, and whenever something changes, until it is unheard. */
void vow__pipeline_output_listen(struct vow__pipeline_output *f,
                                 struct vow__pipeline_listener *ear,
                                 vow_call_fn fn, void *user);
void vow__pipeline_output_unlisten(struct vow__pipeline_listener *ear);

/* Can a step that reads it begin? */
static inline bool
vow__pipeline_output_ready(const struct vow__pipeline_output *f, bool stream)
{
    return f->result != NULL || (stream && f->n_chunks > 0);
}

/* Why it failed, borrowed; NULL: it has not. */
static inline vow_error *
vow__pipeline_output_error(const struct vow__pipeline_output *f)
{
    return f->result == NULL ? NULL : vow_error_of(f->result);
}

/* ---- pipeline_step.c ---------------------------------------------------- */

/* Do the step of the feed; a vow_shared_fn. Without a lease: a private one. */
vow_future *vow__pipeline_step_begin(vow_lease *lease, void *feed);

/* ---- pipeline_input.c --------------------------------------------------- */

struct vow_input {
    vow_loop *loop;
    struct vow__pipeline_output *feed; /* borrowed from the turn; NULL: none */
    bool stream;
    uint64_t run;         /* of the feed, whose chunks are read */
    size_t next;          /* chunk */
    size_t offset;        /* bytes that were read */
    vow_deferred *reader; /* who waits for a chunk; may be NULL */
    vow_error *told;      /* what the step was told is wrong; counted */
};

void vow__pipeline_input_init(struct vow_input *in, vow_loop *loop,
                              struct vow__pipeline_output *feed, bool stream);
void vow__pipeline_input_fini(struct vow_input *in);
/* Something has changed: for who waits. */
void vow__pipeline_input_check(struct vow_input *in);
/* The run that it read from was lost, and the step knows. */
bool vow__pipeline_input_lost(const struct vow_input *in);

/* ---- pipeline_walk.c ---------------------------------------------------- */

struct vow__pipeline_walk;

/* The feed of the step, moved; or NULL and the error of a step before it. */
typedef void (*vow__pipeline_walk_fn)(struct vow__pipeline_output *reached,
                                      vow_error *error, void *user);

/* Go to a step; fn is called once, from the loop's queue, unless it is stopped
 * before. NULL: no memory. */
struct vow__pipeline_walk *
vow__pipeline_walk_start(struct vow__pipeline_plan *p, size_t to,
                         uint32_t flags, vow__pipeline_walk_fn fn, void *user);
void vow__pipeline_walk_stop(struct vow__pipeline_walk *w); /* may be NULL */

#endif
