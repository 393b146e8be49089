/* SPDX-License-Identifier: MIT */
/* pipeline_rig.h - a world, authorities that meet in one memory, and steps that
 * are letters: the result of a step is what it reads with its letter behind it,
 * so that the result of "abc" is "abc", and tells which beginning it is. */
#ifndef TEST_PIPELINE_RIG_H
#define TEST_PIPELINE_RIG_H

#include "fault.h"
#include "harness.h"
#include "world.h"

#include "vow/combine.h"
#include "vow/pipeline.h"
#include "vow/store_memory.h"

#include <string.h>

enum { LETTERS = 26, LONGEST = 8, TALLIES = 4096, HANDLES = 3 };

/* What the step of a letter does. */
struct act {
    struct rig *rig;
    char letter;
    uint64_t ms;
    uint32_t flags;
    uint64_t ttl_ms;
    int code;  /* it fails so; 0: never */
    int fails; /* so many times */
    int cancels;
};

struct tally {
    char text[LONGEST + 1];
    int runs;
};

struct rig {
    struct world *w;
    vow_loop *loop;
    vow_memory *memory;
    vow_authority *a[HANDLES];
    vow_store *store[HANDLES]; /* theirs */
    struct act acts[LETTERS];
    struct tally tallies[TALLIES];
    size_t n_tallies;
    int running;
    uint64_t lease_ms;
};

static inline uint64_t now_ms(const struct rig *r)
{
    return vow_loop_now_ns(r->loop) / 1000000;
}

static inline struct act *act(struct rig *r, char letter)
{
    return &r->acts[letter - 'a'];
}

static inline struct tally *tally(struct rig *r, const char *text)
{
    for (size_t i = 0; i < r->n_tallies; i++)
        if (strcmp(r->tallies[i].text, text) == 0)
            return &r->tallies[i];
    CHECK(r->n_tallies < TALLIES);
    struct tally *t = &r->tallies[r->n_tallies++];
    memcpy(t->text, text, strnlen(text, LONGEST));
    return t;
}

/* How often the step that makes this text was begun. */
static inline int runs(struct rig *r, const char *text)
{
    return tally(r, text)->runs;
}

/* ---- steps ------------------------------------------------------------- */

struct job {
    struct act *act;
    struct vow_alloc alloc;
    vow_bytes *out;
    bool done;
};

static inline void job_drop(void *ptr)
{
    struct job *j = ptr;
    struct vow_alloc alloc = j->alloc;
    j->act->rig->running--;
    j->act->cancels += !j->done;
    vow_bytes_unref(j->out);
    (void)alloc.fn(alloc.ctx, j, sizeof(*j), 0);
}

static inline vow_next job_done(vow_value v, void *user)
{
    struct job *j = user;
    (void)v;
    j->done = true;
    if (j->act->code < 0 && j->act->fails-- > 0)
        return vow_fail_code(j->act->code, "this step fails");
    return vow_ok(vow_bytes_value(vow_bytes_ref(j->out)));
}

static inline vow_future *append(vow_lease *lease, vow_input *in, void *arg)
{
    struct act *a = arg;
    struct rig *r = a->rig;
    vow_bytes *whole = vow_input_whole(in);
    size_t n = whole == NULL ? 0 : vow_bytes_size(whole);
    char text[LONGEST + 1] = "";
    CHECK(n < LONGEST);
    CHECK((lease == NULL) == ((a->flags & VOW_STEP_PRIVATE) != 0));
    if (n > 0)
        memcpy(text, vow_bytes_data(whole), n);
    text[n] = a->letter;
    tally(r, text)->runs++;
    const struct vow_alloc *alloc = vow_loop_alloc(r->loop);
    struct job *j = alloc->fn(alloc->ctx, NULL, 0, sizeof(*j));
    if (j == NULL)
        return vow_refused(r->loop, VOW_ENOMEM, NULL);
    *j = (struct job){.act = a, .alloc = *alloc};
    r->running++;
    if (vow_bytes_new(r->loop, text, n + 1, &j->out) < 0) {
        job_drop(j);
        return vow_refused(r->loop, VOW_ENOMEM, NULL);
    }
    VOW_AUTO(vow_future) later = vow_delay(r->loop, a->ms);
    const vow_step step = {job_done, NULL, j, job_drop};
    return vow_chain(later, &step, 1);
}

/* The work of a step that reads or writes a stream is the test's own. */
static inline size_t steps_of(struct rig *r, const char *letters,
                              vow_step_work_fn const *works,
                              vow_pipe_step *steps, vow_field *fields)
{
    size_t n = strlen(letters);
    CHECK(n <= LONGEST);
    for (size_t i = 0; i < n; i++) {
        struct act *a = act(r, letters[i]);
        fields[i] = (vow_field){&a->letter, 1};
        steps[i] = (vow_pipe_step){.fields = &fields[i],
                                   .n_fields = 1,
                                   .work = works == NULL ? append : works[i],
                                   .arg = a,
                                   .flags = a->flags,
                                   .ttl_ms = a->ttl_ms};
    }
    return n;
}

static inline vow_future *ask_with(struct rig *r, vow_authority *a,
                                   const char *letters, vow_share_opts share,
                                   vow_step_info *info)
{
    vow_pipe_step steps[LONGEST];
    vow_field fields[LONGEST];
    size_t n = steps_of(r, letters, NULL, steps, fields);
    share.size = sizeof(share);
    return vow_pipeline_run(a, steps, n, VOW_PIPELINE(.share = share), info);
}

/* Results stay for a minute. */
static inline vow_future *ask_for(struct rig *r, const char *letters)
{
    return ask_with(r, r->a[0], letters, (vow_share_opts){.ttl_ms = 60000},
                    NULL);
}

static inline vow_name name_of(struct rig *r, const char *letters)
{
    vow_pipe_step steps[LONGEST];
    vow_field fields[LONGEST];
    vow_name names[LONGEST];
    size_t n = steps_of(r, letters, NULL, steps, fields);
    vow_pipeline_names(steps, n, NULL, names);
    return names[n - 1];
}

/* ---- the world --------------------------------------------------------- */

/* 0, or why not; in a sweep. */
static inline int rig_try_authority(struct rig *r, size_t i)
{
    vow_store *store;
    int rc = vow_store_memory_new(r->loop, r->memory, &store);
    if (rc < 0)
        return rc;
    vow_future *f = vow_authority_open(
        r->loop, NULL,
        VOW_AUTHORITY(.flags = VOW_AUTHORITY_HERE, .store = store,
                      .lease_ms = r->lease_ms));
    rc = vow_loop_run_until(r->loop, f);
    r->store[i] = store;
    if (rc == 0)
        r->a[i] = vow_authority_ref(vow_as_ptr(vow_get(f)));
    else
        vow_future_unref(store->ops->close(store));
    vow_future_unref(f);
    return rc;
}

static inline int rig_try_open(struct rig *r, struct world *w)
{
    *r = (struct rig){.w = w, .loop = w->loop, .lease_ms = 1000};
    for (int i = 0; i < LETTERS; i++)
        r->acts[i] =
            (struct act){.rig = r, .letter = (char)('a' + i), .ms = 10};
    int rc = vow_memory_new(vow_loop_alloc(r->loop), &r->memory);
    return rc < 0 ? rc : rig_try_authority(r, 0);
}

/* Two of them, which meet as processes do. */
static inline void rig_open(struct rig *r)
{
    static struct world world;
    world_open(&world);
    CHECK_INT_EQ(rig_try_open(r, &world), 0);
    CHECK_INT_EQ(rig_try_authority(r, 1), 0);
}

static inline void rig_end(struct rig *r)
{
    for (int i = 0; i < HANDLES; i++) {
        if (r->a[i] == NULL)
            continue;
        vow_future *f = vow_authority_close(r->a[i]);
        (void)vow_loop_run_until(r->loop, f);
        vow_future_unref(f);
        r->a[i] = vow_authority_unref(r->a[i]);
    }
    r->memory = vow_memory_unref(r->memory);
    CHECK_INT_EQ(r->running, 0);
}

static inline void rig_close(struct rig *r)
{
    rig_end(r);
    world_run(r->w);
    world_close(r->w);
}

/* ---- checks ------------------------------------------------------------ */

static inline void check_text(vow_future *f, const char *want)
{
    if (vow_state_of(f) == VOW_REJECTED)
        FAIL("%s: %s", want, vow_error_message(vow_error_of(f)));
    CHECK_INT_EQ(vow_state_of(f), VOW_FULFILLED);
    vow_bytes *b = vow_as_bytes(vow_get(f));
    CHECK(b != NULL);
    CHECK_UINT_EQ(vow_bytes_size(b), strlen(want));
    CHECK_MEM_EQ(vow_bytes_data(b), want, strlen(want));
    vow_future_unref(f);
}

static inline void check_code(vow_future *f, int code)
{
    CHECK_INT_EQ(vow_state_of(f), VOW_REJECTED);
    CHECK_INT_EQ(vow_error_code(vow_error_of(f)), code);
    vow_future_unref(f);
}

static inline void check_runs_are(struct rig *r, int want)
{
    for (size_t i = 0; i < r->n_tallies; i++)
        if (r->tallies[i].runs != want)
            FAIL("%s ran %d times", r->tallies[i].text, r->tallies[i].runs);
}

/* In a sweep: the text, or what the fault has made of it. */
static inline bool explained(const struct world *w, vow_future *f,
                             const char *text)
{
    int code = vow_error_code(vow_error_of(f));
    CHECK(vow_state_of(f) != VOW_PENDING);
    bool ok = code == 0 || fault_explains(w, code);
    if (code == 0)
        check_text(f, text);
    else
        vow_future_unref(f);
    return ok;
}

#endif
