/* SPDX-License-Identifier: MIT */
/* vow/pipeline.h - a sequence of named steps; pipelines with the same first
 * steps share the results of these steps.
 *
 * The name of a step is the hash of the step's description and of all steps
 * before. A pipeline looks, in one round trip, for the last step that has a
 * result or runs somewhere, takes the result of that step, and does the
 * remaining steps. A step waits only for the step before, so pipelines never
 * wait for each other in a cycle.
 *
 * Threads: the thread of the authority's loop.
 */
#ifndef VOW_PIPELINE_H
#define VOW_PIPELINE_H

#include "vow/share.h"

VOW_BEGIN_DECLS

/* The input of a step: the result of the step before. Whole:
 * vow_input_whole() returns the result (NULL: empty, or the first step). As a
 * stream (VOW_STEP_STREAM): vow_input_whole() returns NULL, and
 * vow_input_next() gives chunk after chunk while the step before still runs.
 * The chunks of a step must be the beginning of the result. If not, the result
 * counts, and a step that has read the chunks begins anew. */
typedef struct vow_input vow_input;
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_bytes *vow_input_whole(vow_input *in); /* borrowed */
/* Returns a future of the next chunk, as bytes; nothing at the end. VOW_EBUSY
 * while the chunk before is pending. Rejected if the step before has failed, or
 * was lost (VOW_ERETRY): this attempt should then end too, and the outcome is
 * ignored. */
#define vow_input_next(in) vow_input_next_at(VOW_HERE, (in))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_input_next_at(const char *site, vow_input *in);

/* Does a step, and returns a future of the result: bytes or nothing. `in` lives
 * until the future is settled. The lease is as in vow_share();
 * vow_lease_write() sends chunks to steps that follow. `lease` is NULL for a
 * private step. */
typedef vow_future *(*vow_step_work_fn)(vow_lease *lease, vow_input *in,
                                        void *arg);

enum {
    VOW_STEP_PRIVATE = 1, /* not shared, not kept: cheaper to do again */
    VOW_STEP_STREAM = 2   /* reads while the step before writes */
};

typedef struct vow_pipe_step {
    const vow_field *fields; /* description: everything that changes the
                                result, but for the input */
    size_t n_fields;
    vow_step_work_fn work;
    void *arg;
    uint32_t flags;    /* VOW_STEP_... */
    uint64_t ttl_ms;   /* 0: the pipeline's */
    const char *label; /* for people; NULL: share.label */
} vow_pipe_step;

typedef struct vow_pipeline_opts {
    size_t size;             /* set by VOW_PIPELINE */
    const vow_name_key *key; /* of the names; NULL: none. Copied. */
    const vow_field *source; /* input of all steps, such as a version */
    size_t n_source;
    vow_share_opts share; /* of all steps; .size 0: defaults. deadline_ms is for
                             the whole pipeline, on_chunk for the last step;
                             early and info are not used. */
} vow_pipeline_opts;
#define VOW_PIPELINE(...)                                                      \
    (&(const vow_pipeline_opts){.size = sizeof(vow_pipeline_opts), __VA_ARGS__})

/* The outcome of a step, for tables and tests. */
typedef struct vow_step_info {
    vow_name name;
    uint32_t role; /* enum vow_role; VOW_ROLE_NONE: not needed */
    uint64_t fence;
    uint64_t ms;                 /* from the request to the result */
    char runner[VOW_RUNNER_MAX]; /* "host:pid" */
} vow_step_info;

/* Runs `n` steps (copied, with fields and labels) and returns a future of the
 * last result. `info` (may be NULL) has room for n and must stay until the
 * future is settled. `arg` of a step must stay as long as vow_share() says. The
 * pipeline counts a reference to the authority. Canceling withdraws the
 * requests for all steps. Rejected as vow_share(), and with VOW_EINVAL: no
 * steps, a step without work, an unknown flag. Since 0.1. */
#define vow_pipeline_run(a, steps, n, opts, info)                              \
    vow_pipeline_run_at(VOW_HERE, (a), (steps), (n), (opts), (info))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_pipeline_run_at(const char *site, vow_authority *a,
                                const vow_pipe_step *steps, size_t n,
                                const vow_pipeline_opts *opts,
                                vow_step_info *info);

/* Writes the names of the `n` steps, as vow_pipeline_run() makes them. */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1, 4)
void vow_pipeline_names(const vow_pipe_step *steps, size_t n,
                        const vow_pipeline_opts *opts, vow_name *ret_names);

VOW_END_DECLS

#endif
