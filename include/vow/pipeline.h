/* SPDX-License-Identifier: MIT */
/* vow/pipeline.h - steps one after the other, whose common beginnings are done
 * once.
 *
 * The name of a step is the hash of its own description and of all before it.
 * A pipeline looks, in one round trip, for the longest beginning that is there
 * or runs somewhere, hooks on, and does the rest. Waits go only from a step to
 * the one before it, so that pipelines never wait for each other in a ring.
 *
 * Threads: that of the authority's loop.
 */
#ifndef VOW_PIPELINE_H
#define VOW_PIPELINE_H

#include "vow/share.h"

VOW_BEGIN_DECLS

/* What a step reads. Whole: `whole` is the result before it (NULL: empty, or
 * the first step). As a stream (VOW_STEP_STREAM): `whole` is NULL, and
 * vow_input_next() gives one chunk after the other, while the step before still
 * runs. The result of a step is all its chunks and what they lack: if it is
 * not, the result counts, and who read the chunks begins anew. */
typedef struct vow_input vow_input;
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_bytes *vow_input_whole(vow_input *in); /* borrowed */
/* The next chunk as bytes; nothing at the end. One at a time: VOW_EBUSY.
 * Rejected when the step before failed or was lost: then this attempt is to end
 * too, and whatever it returns is not taken. */
#define vow_input_next(in) vow_input_next_at(VOW_HERE, (in))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_input_next_at(const char *site, vow_input *in);

/* Does a step. The result is bytes or nothing. `in` lives until the future is
 * settled; the lease is as in vow_share(), and vow_lease_write() feeds those
 * who follow. A private step has none: NULL. */
typedef vow_future *(*vow_step_work_fn)(vow_lease *lease, vow_input *in,
                                        void *arg);

enum {
    VOW_STEP_PRIVATE = 1, /* neither shared nor kept: cheaper to do again */
    VOW_STEP_STREAM = 2   /* reads while the step before writes */
};

typedef struct vow_pipe_step {
    const vow_field *fields; /* its description: what changes its result */
    size_t n_fields;
    vow_step_work_fn work;
    void *arg;
    uint32_t flags;    /* VOW_STEP_... */
    uint64_t ttl_ms;   /* 0: the pipeline's */
    const char *label; /* for people; NULL: none */
} vow_pipe_step;

typedef struct vow_pipeline_opts {
    size_t size;             /* set by VOW_PIPELINE */
    const vow_name_key *key; /* of the names; NULL: none. Copied. */
    const vow_field *source; /* what all steps depend on, such as a version */
    size_t n_source;
    vow_share_opts share; /* of all steps; .size 0: defaults. The deadline is
                             of the whole, on_chunk of the last step; early
                             and info are not used. */
} vow_pipeline_opts;
#define VOW_PIPELINE(...)                                                      \
    (&(const vow_pipeline_opts){.size = sizeof(vow_pipeline_opts), __VA_ARGS__})

/* What became of a step, for tables and tests. */
typedef struct vow_step_info {
    vow_name name;
    uint32_t role; /* enum vow_role; VOW_ROLE_NONE: it was not needed */
    uint64_t fence;
    uint64_t ms;                 /* from asking to its result */
    char runner[VOW_RUNNER_MAX]; /* "host:pid" */
} vow_step_info;

/* Run `n` steps (copied, with their fields; labels too); the future is of the
 * last one's result. `info` (may be NULL) has room for n and stays until the
 * future is settled. The functions' arguments stay as vow_share() says. The
 * authority is kept. Canceling leaves all steps. Rejected as vow_share(), and
 * VOW_EINVAL: no steps, or a step without work. Since 0.1. */
#define vow_pipeline_run(a, steps, n, opts, info)                              \
    vow_pipeline_run_at(VOW_HERE, (a), (steps), (n), (opts), (info))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_pipeline_run_at(const char *site, vow_authority *a,
                                const vow_pipe_step *steps, size_t n,
                                const vow_pipeline_opts *opts,
                                vow_step_info *info);

/* The names of the steps, as vow_pipeline_run() makes them. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1, 4)
void vow_pipeline_names(const vow_pipe_step *steps, size_t n,
                        const vow_pipeline_opts *opts, vow_name *ret_names);

VOW_END_DECLS

#endif
