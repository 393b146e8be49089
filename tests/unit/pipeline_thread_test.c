/* SPDX-License-Identifier: MIT */
/* pipeline_thread_test.c - pipelines of several loops, whose authority has its
 * home in a thread of its own. In real time, without waiting for it. */
#include "harness.h"
#include "world.h"

#include "vow/fiber.h"
#include "vow/pipeline.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { LOOPS = 3, EACH = 20, CHUNKS = 20 };

static atomic_int runs[2];

struct seat {
    struct world w;
    vow_authority *a;
    pthread_t thread;
};

/* ---- the first step writes the alphabet, the second checks it ---------- */

struct stage {
    vow_loop *loop;
    vow_lease *lease;
    vow_input *in;
};

static vow_next stage_end(struct stage *s, int rc, const char *text, size_t n)
{
    const struct vow_alloc alloc = *vow_loop_alloc(s->loop);
    vow_bytes *b = NULL;
    if (rc == 0)
        rc = vow_bytes_new(s->loop, text, n, &b);
    (void)vow_lease_unref(s->lease);
    (void)alloc.fn(alloc.ctx, s, sizeof(*s), 0);
    return rc < 0 ? vow_fail_code(rc, NULL) : vow_ok(vow_bytes_value(b));
}

static vow_next speak_fiber(void *stage)
{
    struct stage *s = stage;
    char text[CHUNKS];
    int rc = 0;
    for (size_t i = 0; i < CHUNKS && rc == 0; i++) {
        vow_bytes *b;
        text[i] = (char)('a' + i);
        CHECK_INT_EQ(vow_bytes_new(s->loop, &text[i], 1, &b), 0);
        rc = vow_await_drop(vow_lease_write(s->lease, b));
        vow_bytes_unref(b);
    }
    return stage_end(s, rc, text, sizeof(text));
}

static vow_next check_fiber(void *stage)
{
    struct stage *s = stage;
    int next = 'a';
    for (;;) {
        VOW_AUTO(vow_future) f = vow_input_next(s->in);
        int rc = vow_await(f);
        vow_bytes *b = vow_as_bytes(vow_get(f));
        if (rc < 0)
            return stage_end(s, rc, NULL, 0);
        if (b == NULL)
            break;
        for (size_t i = 0; i < vow_bytes_size(b); i++)
            CHECK_INT_EQ(vow_bytes_data(b)[i], next++);
    }
    CHECK_INT_EQ(next, 'a' + CHUNKS);
    return stage_end(s, 0, "all of it", 9);
}

static vow_future *begin_stage(vow_lease *lease, vow_input *in, void *seat,
                               vow_fiber_fn fn)
{
    vow_loop *loop = ((struct seat *)seat)->w.loop;
    const struct vow_alloc *alloc = vow_loop_alloc(loop);
    struct stage *s = alloc->fn(alloc->ctx, NULL, 0, sizeof(*s));
    CHECK(s != NULL);
    *s = (struct stage){loop, vow_lease_ref(lease), in};
    return vow_async(loop, fn, s);
}

static vow_future *speak(vow_lease *lease, vow_input *in, void *seat)
{
    atomic_fetch_add(&runs[0], 1);
    return begin_stage(lease, in, seat, speak_fiber);
}

static vow_future *check(vow_lease *lease, vow_input *in, void *seat)
{
    atomic_fetch_add(&runs[1], 1);
    return begin_stage(lease, in, seat, check_fiber);
}

/* ---- loops ------------------------------------------------------------- */

static vow_future *begin(struct seat *s, int number)
{
    const vow_field fields[] = {{&number, sizeof(number)}, {"check", 5}};
    const vow_pipe_step steps[] = {
        {.fields = &fields[0], .n_fields = 1, .work = speak, .arg = s},
        {.fields = &fields[1],
         .n_fields = 1,
         .work = check,
         .arg = s,
         .flags = VOW_STEP_STREAM}};
    return vow_pipeline_run(
        s->a, steps, 2,
        VOW_PIPELINE(.share = {.size = sizeof(vow_share_opts),
                               .ttl_ms = 600000}),
        NULL);
}

static void *use(void *seat)
{
    struct seat *s = seat;
    vow_future *f[EACH];
    vow_loop_adopt(s->w.loop);
    for (int i = 0; i < EACH; i++)
        f[i] = begin(s, i);
    vow_future *gone = begin(s, EACH);
    CHECK(vow_cancel(gone, NULL));
    vow_future_unref(gone);
    for (int i = 0; i < EACH; i++) {
        CHECK_INT_EQ(vow_loop_run_until(s->w.loop, f[i]), 0);
        vow_bytes *b = vow_as_bytes(vow_get(f[i]));
        CHECK_UINT_EQ(vow_bytes_size(b), 9);
        CHECK_MEM_EQ(vow_bytes_data(b), "all of it", 9);
        vow_future_unref(f[i]);
    }
    vow_future *closed = vow_authority_close(s->a);
    CHECK_INT_EQ(vow_loop_run_until(s->w.loop, closed), 0);
    vow_future_unref(closed);
    s->a = vow_authority_unref(s->a);
    world_run(&s->w);
    return NULL;
}

TEST(pipeline_thread, loops_share_steps_and_streams)
{
    static struct seat seats[LOOPS];
    world_open_real(&seats[0].w);
    vow_future *f = vow_authority_open(
        seats[0].w.loop,
        "memory:", VOW_AUTHORITY(.flags = VOW_AUTHORITY_THREAD));
    CHECK_INT_EQ(vow_loop_run_until(seats[0].w.loop, f), 0);
    seats[0].a = vow_authority_ref(vow_as_ptr(vow_get(f)));
    vow_future_unref(f);
    for (int i = 1; i < LOOPS; i++) {
        world_open_real(&seats[i].w);
        CHECK_INT_EQ(
            vow_authority_join(seats[i].w.loop, seats[0].a, &seats[i].a), 0);
    }
    for (int i = 1; i < LOOPS; i++)
        CHECK_INT_EQ(pthread_create(&seats[i].thread, NULL, use, &seats[i]), 0);
    (void)use(&seats[0]);
    for (int i = 1; i < LOOPS; i++)
        CHECK_INT_EQ(pthread_join(seats[i].thread, NULL), 0);
    for (int i = 0; i < LOOPS; i++)
        world_close(&seats[i].w);
    CHECK(atomic_load(&runs[0]) >= EACH); /* who leaves may run one more */
    CHECK(atomic_load(&runs[0]) <= EACH + LOOPS);
    CHECK_INT_EQ(atomic_load(&runs[1]), EACH);
}
