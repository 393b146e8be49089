/* SPDX-License-Identifier: MIT */
/* pipeline_internal.h - the inside of a pipeline.
 *
 *   run    one call of vow_pipeline_run(): pipeline.c
 *     walk   the way to a step, forwards from the longest known beginning:
 *            pipeline_walk.c
 *       output   the result of one step: requested by name, or made here if the
 *                step is private; perhaps in chunks: pipeline_output.c
 *         step run   the step runs here: waits for the input, then calls the
 *                    user's function: pipeline_step.c
 *           input   data that the function reads: pipeline_input.c
 *           walk    to the input, if the output has no input
 *
 * An output has an input, the output of the step before, if the walk came from
 * there. The first output of a walk has no input: if the runner of that step is
 * lost and the step runs here after all, the step run walks to the input. So a
 * step only ever waits for steps before it.
 *
 * The pipeline uses the authority only through the public headers.
 */
#ifndef VOW_NAMED_PIPELINE_INTERNAL_H
#define VOW_NAMED_PIPELINE_INTERNAL_H

#include "base/list.h"
#include "vow/call.h"
#include "vow/pipeline.h"
#include "vow/watch.h"

/* The steps and options of a pipeline; constant except for `infos`. */
struct vow__pipeline_plan {
    size_t refs;
    size_t size; /* of this block, with the arrays and labels behind the
                    struct */
    struct vow_alloc alloc;
    vow_authority *authority; /* counted */
    vow_loop *loop;
    const char *site;
    vow_share_opts share;
    size_t n;
    vow_pipe_step *steps; /* without fields; labels are copies */
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

/* Returns the flags for requests of a step run, which works for other pipelines
 * too: flags that concern only the caller do not count. */
static inline uint32_t
vow__pipeline_plan_inner_flags(const struct vow__pipeline_plan *p)
{
    return p->share.flags & (VOW_SHARE_MANUAL_PULSE | VOW_SHARE_KEEP);
}

void vow__pipeline_plan_unref(struct vow__pipeline_plan *p);

/* ---- pipeline_output.c -------------------------------------------------- */

/* A function that is called from the loop's queue after a change. */
struct vow__pipeline_listener {
    vow_link link;
    struct vow__pipeline_output *to; /* NULL: does not listen */
    bool due;
    vow_call_fn fn;
    void *user;
};

/* A request to the authority; for a private step, the step run. */
struct vow__pipeline_request {
    struct vow__pipeline_output *output; /* memory counted while pending */
    vow_future *answer;                  /* NULL: not pending */
    vow_watch watch;
    vow_share_info info;
    size_t seen; /* chunks of the run so far */
};

struct vow__pipeline_output {
    size_t refs;  /* of the memory; all users share one reference */
    size_t wants; /* users of the result; 0: left */
    struct vow__pipeline_plan *plan;
    size_t step;
    uint32_t flags;                     /* VOW_SHARE_... of the requests */
    bool detached;                      /* a refresh: used only by itself, until
                                           settled */
    struct vow__pipeline_output *input; /* used; NULL: none, or not known */
    struct vow__pipeline_request first;
    struct vow__pipeline_request second; /* for chunks: the runner's own request
                                            gets none */
    uint64_t asked_ns;
    vow_future *result; /* settled; NULL: not yet */
    vow_bytes **chunks;
    size_t n_chunks, room_chunks;
    uint64_t run; /* number of the run that wrote the chunks */
    vow_link *listeners;
    vow_call notify_call;
};

/* Requests the result of a step; a private step begins with the first listener.
 * `input` (may be NULL) is moved, also on failure. The caller is a user of the
 * output until vow__pipeline_output_leave(). Returns NULL without memory. */
struct vow__pipeline_output *
vow__pipeline_output_open(struct vow__pipeline_plan *p, size_t step,
                          uint32_t flags, struct vow__pipeline_output *input);
struct vow__pipeline_output *
vow__pipeline_output_want(struct vow__pipeline_output *out);
/* Drops a user of the result; the last cancels the requests. Accepts NULL. */
void vow__pipeline_output_leave(struct vow__pipeline_output *out);
/* Frees the memory with the last reference. */
void vow__pipeline_output_unref(struct vow__pipeline_output *out);
/* Requests the chunks of a step that runs here, if the next step streams. */
void vow__pipeline_output_follow(struct vow__pipeline_output *out);
/* Calls fn(user) soon, and after every change, until unlisten. */
void vow__pipeline_output_listen(struct vow__pipeline_output *out,
                                 struct vow__pipeline_listener *listener,
                                 vow_call_fn fn, void *user);
void vow__pipeline_output_unlisten(struct vow__pipeline_listener *listener);

/* Returns whether a step that reads the output can begin. */
static inline bool
vow__pipeline_output_ready(const struct vow__pipeline_output *out, bool stream)
{
    return out->result != NULL || (stream && out->n_chunks > 0);
}

/* Returns the error of a failed step, borrowed, or NULL. */
static inline vow_error *
vow__pipeline_output_error(const struct vow__pipeline_output *out)
{
    return out->result == NULL ? NULL : vow_error_of(out->result);
}

/* ---- pipeline_step.c ---------------------------------------------------- */

/* Runs the step of the output; a vow_shared_fn. A private step has no lease. */
vow_future *vow__pipeline_step_begin(vow_lease *lease, void *output);

/* ---- pipeline_input.c --------------------------------------------------- */

struct vow_input {
    vow_loop *loop;
    struct vow__pipeline_output *output; /* borrowed; NULL: none */
    bool stream;
    uint64_t run;         /* of the output, when the input was made */
    size_t next;          /* number of the next chunk */
    size_t offset;        /* bytes read */
    vow_deferred *reader; /* waits for a chunk; may be NULL */
    vow_error *error;     /* error that the step got; counted */
};

void vow__pipeline_input_init(struct vow_input *in, vow_loop *loop,
                              struct vow__pipeline_output *output, bool stream);
void vow__pipeline_input_fini(struct vow_input *in);
/* Answers a waiting reader after a change. */
void vow__pipeline_input_check(struct vow_input *in);
/* Returns whether the run was lost during the read, and the step knows. */
bool vow__pipeline_input_lost(const struct vow_input *in);

/* ---- pipeline_walk.c ---------------------------------------------------- */

struct vow__pipeline_walk;

/* Gets the output of the step, moved; or NULL and the error of another step. */
typedef void (*vow__pipeline_walk_fn)(struct vow__pipeline_output *reached,
                                      vow_error *error, void *user);

/* Walks to a step. Calls fn once from the loop's queue, unless stopped before.
 * Returns NULL without memory. */
struct vow__pipeline_walk *
vow__pipeline_walk_start(struct vow__pipeline_plan *p, size_t to,
                         uint32_t flags, vow__pipeline_walk_fn fn, void *user);
void vow__pipeline_walk_stop(struct vow__pipeline_walk *w); /* accepts NULL */

#endif
