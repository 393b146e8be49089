/* SPDX-License-Identifier: MIT */
/* pipeline_fault_test.c - streams and takeovers with every allocation failing.
 */
#include "pipeline_other.h"

#include "vow/fiber.h"

static struct rig rig;
static struct other other;

/* One writes twice, the other reads what it gets. */
struct pen {
    vow_lease *lease;
    vow_input *in;
    char text[16];
    size_t n;
};

static vow_next scribble(struct pen *p, int rc)
{
    vow_bytes *b = NULL;
    (void)vow_lease_unref(p->lease);
    p->lease = NULL;
    if (rc == 0)
        rc = vow_bytes_new(rig.loop, p->text, p->n, &b);
    return rc < 0 ? vow_fail_code(rc, NULL) : vow_ok(vow_bytes_value(b));
}

static vow_next writer_fiber(void *arg)
{
    struct pen *p = arg;
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        vow_bytes *b = NULL;
        p->text[p->n++] = 'w';
        rc = vow_bytes_new(rig.loop, "w", 1, &b);
        if (rc == 0)
            rc = vow_await_drop(vow_lease_write(p->lease, b));
        vow_bytes_unref(b);
        if (rc == 0)
            rc = vow_sleep(rig.loop, 10);
    }
    return scribble(p, rc);
}

static vow_next reader_fiber(void *arg)
{
    struct pen *p = arg;
    int rc = 0;
    for (;;) {
        VOW_AUTO(vow_future) next = vow_input_next(p->in);
        rc = vow_await(next);
        vow_bytes *b = vow_as_bytes(vow_get(next));
        if (rc < 0 || b == NULL)
            break;
        memcpy(p->text + p->n, vow_bytes_data(b), vow_bytes_size(b));
        p->n += vow_bytes_size(b);
    }
    return scribble(p, rc);
}

static vow_future *with_pen(vow_lease *lease, vow_input *in, void *arg)
{
    static struct pen pens[2];
    struct pen *p = &pens[arg != NULL];
    *p = (struct pen){.lease = vow_lease_ref(lease), .in = in};
    vow_future *f =
        vow_async(rig.loop, arg == NULL ? writer_fiber : reader_fiber, p);
    if (vow_state_of(f) != VOW_PENDING)
        (void)vow_lease_unref(lease);
    return f;
}

static bool open_both(struct world *w)
{
    int rc = rig_try_open(&rig, w);
    CHECK(rc == 0 || fault_explains(w, rc));
    if (rc == 0 && other_open(&other, &rig))
        return true;
    rig_end(&rig);
    return false;
}

static void close_both(void)
{
    other_close(&other);
    rig_end(&rig);
}

static vow_future *begin(void)
{
    const vow_field fields[] = {{"a", 1}, {"b", 1}};
    const vow_pipe_step steps[] = {
        {.fields = &fields[0], .n_fields = 1, .work = with_pen},
        {.fields = &fields[1],
         .n_fields = 1,
         .work = with_pen,
         .arg = &rig,
         .flags = VOW_STEP_STREAM}};
    return vow_pipeline_run(rig.a[0], steps, 2, NULL, NULL);
}

FAULT_SWEEP(pipeline_fault, streams_survive, FAULT_ALLOC)
{
    if (!open_both(w))
        return;
    vow_future *f = begin();
    world_advance_ms(w, 100);
    CHECK(explained(w, f, "ww"));
    close_both();
}

FAULT_SWEEP(pipeline_fault, the_rest_of_a_stream_survives, FAULT_ALLOC)
{
    if (!open_both(w))
        return;
    other_claims(&other, "a");
    vow_future *f = begin();
    world_advance_ms(w, 10);
    other_writes(&other, "w");
    world_advance_ms(w, 10);
    other_commits(&other, "ww");
    world_advance_ms(w, 3000);
    CHECK(explained(w, f, "ww"));
    close_both();
}

FAULT_SWEEP(pipeline_fault, a_takeover_survives, FAULT_ALLOC)
{
    if (!open_both(w))
        return;
    other_claims(&other, "abc");
    vow_future *f = ask_for(&rig, "abcd");
    vow_future *g = ask_for(&rig, "abce");
    world_advance_ms(w, 10000);
    CHECK(explained(w, f, "abcd"));
    CHECK(explained(w, g, "abce"));
    close_both();
}
