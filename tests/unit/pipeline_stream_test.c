/* SPDX-License-Identifier: MIT */
/* pipeline_stream_test.c - steps that read while the one before still writes.
 */
#include "pipeline_other.h"

#include "vow/fiber.h"

#include <ctype.h>

static struct rig rig;
static struct other other;

enum { MOST_CHUNKS = 64 };

/* A fiber that does a step; several may run when one was lost. */
struct stage {
    struct act *act;
    vow_lease *lease;
    vow_input *in;
    char text[1024];
    size_t n;
};

static int spoken;       /* chunks that speak() writes */
static bool keeps_quiet; /* it writes none */
static uint64_t heard_ms[MOST_CHUNKS];
static int n_heard;
static int told; /* the code a reader was told */
static bool stubborn;
static int enough; /* chunks after which a reader stops; 0: never */

static void open_both(void)
{
    rig_open(&rig);
    CHECK(other_open(&other, &rig));
    spoken = 4;
    act(&rig, 'b')->flags = VOW_STEP_STREAM;
    act(&rig, 'c')->flags = VOW_STEP_STREAM;
}

static void close_both(void)
{
    other_close(&other);
    rig_close(&rig);
}

static vow_future *stage_begin(vow_lease *lease, vow_input *in, void *arg,
                               vow_fiber_fn fn)
{
    static struct stage stages[64];
    static int next;
    CHECK(next < 64);
    struct stage *s = &stages[next++];
    *s = (struct stage){.act = arg, .lease = vow_lease_ref(lease), .in = in};
    char name[2] = {s->act->letter, '\0'};
    tally(&rig, name)->runs++;
    rig.running++;
    return vow_async(rig.loop, fn, s);
}

static vow_next stage_end(struct stage *s, int rc)
{
    vow_bytes *b = NULL;
    rig.running--;
    (void)vow_lease_unref(s->lease);
    if (rc == 0)
        rc = vow_bytes_new(rig.loop, s->text, s->n, &b);
    return rc < 0 ? vow_fail_code(rc, "the stage ended early")
                  : vow_ok(vow_bytes_value(b));
}

static int stage_write(struct stage *s, const char *text, size_t n)
{
    memcpy(s->text + s->n, text, n);
    s->n += n;
    if (s->lease == NULL)
        return 0;
    vow_bytes *b;
    CHECK_INT_EQ(vow_bytes_new(rig.loop, text, n, &b), 0);
    int rc = vow_await_drop(vow_lease_write(s->lease, b));
    vow_bytes_unref(b);
    return rc;
}

/* "a0 a1 a2 ", one every so often. */
static vow_next speak_fiber(void *arg)
{
    struct stage *s = arg;
    int rc = vow_await_drop(vow_input_next(s->in)); /* the end, at once */
    for (int i = 0; i < spoken && rc == 0; i++) {
        char text[] = {s->act->letter, (char)('0' + i), ' '};
        rc = vow_sleep(rig.loop, s->act->ms);
        if (rc == 0 && keeps_quiet) {
            memcpy(s->text + s->n, text, sizeof(text));
            s->n += sizeof(text);
        } else if (rc == 0) {
            rc = stage_write(s, text, sizeof(text));
        }
    }
    if (rc == 0)
        rc = vow_sleep(rig.loop, s->act->ms);
    if (rc == 0 && s->act->code < 0 && s->act->fails-- > 0)
        rc = s->act->code;
    return stage_end(s, rc);
}

static vow_future *speak(vow_lease *lease, vow_input *in, void *arg)
{
    CHECK(vow_input_whole(in) == NULL);
    return stage_begin(lease, in, arg, speak_fiber);
}

/* Upper case, chunk by chunk. */
static vow_next shout_fiber(void *arg)
{
    struct stage *s = arg;
    int rc = 0;
    int got = 0;
    for (;;) {
        VOW_AUTO(vow_future) next = vow_input_next(s->in);
        rc = vow_await(next);
        vow_bytes *b = vow_as_bytes(vow_get(next));
        if (rc < 0 || b == NULL)
            break;
        CHECK(n_heard < MOST_CHUNKS);
        heard_ms[n_heard++] = now_ms(&rig);
        char text[256];
        size_t n = vow_bytes_size(b);
        for (size_t i = 0; i < n; i++)
            text[i] = (char)toupper(vow_bytes_data(b)[i]);
        rc = stage_write(s, text, n);
        if (rc < 0 || ++got == enough)
            break;
    }
    if (rc < 0)
        told = rc;
    if (stubborn && rc < 0) { /* it is told again */
        CHECK_INT_EQ(vow_await_drop(vow_input_next(s->in)), told);
        rc = 0;
    }
    return stage_end(s, rc);
}

static vow_future *shout(vow_lease *lease, vow_input *in, void *arg)
{
    CHECK(vow_input_whole(in) == NULL);
    return stage_begin(lease, in, arg, shout_fiber);
}

static vow_future *begin_with(vow_authority *a, const char *letters,
                              vow_share_opts share, vow_step_info *info)
{
    const vow_step_work_fn works[] = {speak, shout, shout, shout};
    vow_pipe_step steps[LONGEST];
    vow_field fields[LONGEST];
    size_t n = steps_of(&rig, letters, works, steps, fields);
    share.size = sizeof(share);
    return vow_pipeline_run(a, steps, n, VOW_PIPELINE(.share = share), info);
}

static vow_future *begin(const char *letters)
{
    return begin_with(rig.a[0], letters, (vow_share_opts){.ttl_ms = 60000},
                      NULL);
}

/* ---- what is read ------------------------------------------------------ */

TEST(pipeline_stream, a_step_begins_when_the_one_before_writes)
{
    open_both();
    vow_step_info info[3];
    vow_future *f =
        begin_with(rig.a[0], "abc", (vow_share_opts){.ttl_ms = 60000}, info);
    world_advance_ms(rig.w, 9);
    CHECK_INT_EQ(runs(&rig, "b"), 0);
    world_advance_ms(rig.w, 6);
    CHECK_INT_EQ(runs(&rig, "b"), 1);
    CHECK_INT_EQ(runs(&rig, "c"), 1);
    CHECK_INT_EQ(vow_loop_run_until(rig.loop, f), 0);
    CHECK_UINT_EQ(now_ms(&rig), 50);
    check_text(f, "A0 A1 A2 A3 ");
    CHECK_INT_EQ(n_heard, 8);
    for (int i = 0; i < 8; i++)
        CHECK_UINT_EQ(heard_ms[i], 10 + 10 * (uint64_t)(i / 2));
    for (int i = 0; i < 3; i++)
        CHECK_UINT_EQ(info[i].role, VOW_ROLE_RAN);
    check_runs_are(&rig, 1);
    close_both();
}

TEST(pipeline_stream, one_result_that_is_there_is_one_chunk)
{
    open_both();
    vow_future *f = begin("a");
    world_advance_ms(rig.w, 100);
    check_text(f, "a0 a1 a2 a3 ");
    f = begin("ab");
    world_advance_ms(rig.w, 0);
    check_text(f, "A0 A1 A2 A3 ");
    CHECK_INT_EQ(n_heard, 1);
    close_both();
}

TEST(pipeline_stream, a_step_that_writes_no_chunks_is_read_as_one)
{
    open_both();
    keeps_quiet = true;
    vow_future *f = begin("ab");
    world_advance_ms(rig.w, 100);
    check_text(f, "A0 A1 A2 A3 ");
    CHECK_INT_EQ(n_heard, 1);
    CHECK_UINT_EQ(heard_ms[0], 50);
    close_both();
}

TEST(pipeline_stream, an_empty_result_is_the_end_at_once)
{
    open_both();
    spoken = 0;
    vow_future *f = begin("abc");
    world_advance_ms(rig.w, 100);
    check_text(f, "");
    CHECK_INT_EQ(n_heard, 0);
    close_both();
}

TEST(pipeline_stream, a_private_step_reads_a_stream_and_is_read_as_one_chunk)
{
    open_both();
    act(&rig, 'b')->flags = VOW_STEP_STREAM | VOW_STEP_PRIVATE;
    vow_future *f = begin("abc");
    vow_future *g = begin("ab");
    world_advance_ms(rig.w, 100);
    check_text(f, "A0 A1 A2 A3 ");
    check_text(g, "A0 A1 A2 A3 ");
    CHECK_INT_EQ(runs(&rig, "a"), 1);
    CHECK_INT_EQ(runs(&rig, "b"), 2);
    CHECK_INT_EQ(n_heard, 9);
    CHECK_UINT_EQ(heard_ms[0], 10);
    CHECK_UINT_EQ(heard_ms[8], 50);
    close_both();
}

TEST(pipeline_stream, chunks_of_another_are_followed_and_the_rest_is_read)
{
    open_both();
    other_claims(&other, "a");
    vow_future *f = begin("ab");
    world_advance_ms(rig.w, 100);
    CHECK_INT_EQ(runs(&rig, "b"), 0);
    other_writes(&other, "one ");
    world_advance_ms(rig.w, 100);
    CHECK_INT_EQ(n_heard, 1);
    other_writes(&other, "two ");
    world_advance_ms(rig.w, 100);
    CHECK_INT_EQ(n_heard, 2);
    other_commits(&other, "one two three");
    world_advance_ms(rig.w, 100);
    check_text(f, "ONE TWO THREE");
    CHECK_INT_EQ(n_heard, 3);
    CHECK_INT_EQ(runs(&rig, "b"), 1);
    close_both();
}

TEST(pipeline_stream, two_authorities_share_a_stream)
{
    open_both();
    vow_future *f = begin("ab");
    vow_future *g =
        begin_with(rig.a[1], "ac", (vow_share_opts){.ttl_ms = 60000}, NULL);
    world_advance_ms(rig.w, 15);
    CHECK_INT_EQ(runs(&rig, "b"), 1);
    CHECK_INT_EQ(runs(&rig, "c"), 1);
    world_advance_ms(rig.w, 100);
    check_text(f, "A0 A1 A2 A3 ");
    check_text(g, "A0 A1 A2 A3 ");
    check_runs_are(&rig, 1);
    close_both();
}

TEST(pipeline_stream, a_reader_that_has_enough_ends_the_writer_it_alone_needs)
{
    open_both();
    enough = 2;
    vow_step_info info[2];
    vow_future *f = begin_with(rig.a[0], "ab", (vow_share_opts){0}, info);
    world_advance_ms(rig.w, 20);
    check_text(f, "A0 A1 ");
    CHECK_UINT_EQ(info[0].role, VOW_ROLE_NONE);
    world_advance_ms(rig.w, 0);
    CHECK_INT_EQ(rig.running, 0);
    close_both();
}

/* ---- loss and failure -------------------------------------------------- */

TEST(pipeline_stream, a_lost_writer_makes_the_reader_begin_anew)
{
    open_both();
    other_claims(&other, "a");
    vow_future *f = begin("ab");
    vow_future *g =
        begin_with(rig.a[1], "abc", (vow_share_opts){.ttl_ms = 60000}, NULL);
    world_advance_ms(rig.w, 10);
    other_writes(&other, "nonsense");
    world_advance_ms(rig.w, 10);
    CHECK(n_heard >= 1);
    world_advance_ms(rig.w, 1500);
    check_text(f, "A0 A1 A2 A3 ");
    check_text(g, "A0 A1 A2 A3 ");
    CHECK_INT_EQ(told, VOW_ERETRY);
    CHECK_INT_EQ(runs(&rig, "a"), 1);
    close_both();
}

TEST(pipeline_stream, a_reader_that_hides_the_loss_begins_anew_all_the_same)
{
    open_both();
    stubborn = true;
    other_claims(&other, "a");
    vow_future *f = begin("ab");
    world_advance_ms(rig.w, 10);
    other_writes(&other, "nonsense");
    world_advance_ms(rig.w, 1500);
    check_text(f, "A0 A1 A2 A3 ");
    CHECK_INT_EQ(runs(&rig, "b"), 2);
    close_both();
}

TEST(pipeline_stream, a_private_reader_begins_anew_too)
{
    open_both();
    act(&rig, 'b')->flags = VOW_STEP_STREAM | VOW_STEP_PRIVATE;
    other_claims(&other, "a");
    vow_future *f = begin("ab");
    world_advance_ms(rig.w, 10);
    other_writes(&other, "nonsense");
    world_advance_ms(rig.w, 1500);
    check_text(f, "A0 A1 A2 A3 ");
    CHECK_INT_EQ(runs(&rig, "b"), 2);
    close_both();
}

TEST(pipeline_stream, the_result_counts_when_the_chunks_were_others)
{
    open_both();
    other_claims(&other, "a");
    vow_future *f = begin("ab");
    world_advance_ms(rig.w, 10);
    other_writes(&other, "not this");
    world_advance_ms(rig.w, 10);
    other_commits(&other, "but that");
    world_advance_ms(rig.w, 10);
    check_text(f, "BUT THAT");
    CHECK_INT_EQ(runs(&rig, "b"), 2);
    close_both();
}

TEST(pipeline_stream, the_result_counts_when_the_chunks_were_more)
{
    open_both();
    other_claims(&other, "a");
    vow_future *f = begin("ab");
    world_advance_ms(rig.w, 10);
    other_writes(&other, "this and more");
    world_advance_ms(rig.w, 10);
    other_commits(&other, "this");
    world_advance_ms(rig.w, 10);
    check_text(f, "THIS");
    CHECK_INT_EQ(runs(&rig, "b"), 2);
    close_both();
}

TEST(pipeline_stream, a_second_attempt_of_the_writer_begins_anew)
{
    open_both();
    act(&rig, 'a')->code = VOW_EIO;
    act(&rig, 'a')->fails = 1;
    vow_future *f =
        begin_with(rig.a[0], "abc", (vow_share_opts){.tries = 2}, NULL);
    world_advance_ms(rig.w, 200);
    check_text(f, "A0 A1 A2 A3 ");
    CHECK_INT_EQ(runs(&rig, "a"), 2);
    CHECK_INT_EQ(runs(&rig, "b"), 2);
    CHECK_INT_EQ(runs(&rig, "c"), 2);
    close_both();
}

TEST(pipeline_stream, a_reader_begins_anew_also_without_the_store)
{
    open_both();
    cut_off(&rig);
    act(&rig, 'a')->code = VOW_EIO;
    act(&rig, 'a')->fails = 1;
    vow_future *f =
        begin_with(rig.a[0], "ab", (vow_share_opts){.tries = 2}, NULL);
    world_advance_ms(rig.w, 200);
    check_text(f, "A0 A1 A2 A3 ");
    CHECK_INT_EQ(runs(&rig, "b"), 2);
    close_both();
}

TEST(pipeline_stream, the_failure_of_the_writer_is_that_of_the_pipeline)
{
    for (int i = 0; i < 2; i++) {
        open_both();
        stubborn = i > 0;
        act(&rig, 'a')->code = VOW_EIO;
        act(&rig, 'a')->fails = 1;
        vow_future *f = begin("abc");
        world_advance_ms(rig.w, 200);
        check_code(f, VOW_EIO);
        CHECK_INT_EQ(told, VOW_EIO);
        close_both();
    }
}

TEST(pipeline_stream, a_lost_reader_is_replaced_and_reads_from_the_first_on)
{
    open_both();
    act(&rig, 'a')->ms = 1000;
    vow_future *g = begin("a");
    world_advance_ms(rig.w, 1500);
    other_claims(&other, "ab");
    vow_step_info info[2];
    vow_future *f = begin_with(rig.a[1], "ab", (vow_share_opts){0}, info);
    world_advance_ms(rig.w, 2000);
    CHECK_INT_EQ(n_heard, 3); /* two or three at once, then as they come */
    CHECK(heard_ms[1] < 3000);
    world_advance_ms(rig.w, 2000);
    check_text(g, "a0 a1 a2 a3 ");
    check_text(f, "A0 A1 A2 A3 ");
    CHECK_UINT_EQ(info[1].role, VOW_ROLE_TAKEOVER);
    check_runs_are(&rig, 1);
    close_both();
}

/* ---- leaving ----------------------------------------------------------- */

TEST(pipeline_stream, a_cancel_leaves_all_steps_that_run)
{
    for (uint64_t at = 0; at < 50; at += 5) {
        open_both();
        vow_future *f = begin_with(rig.a[0], "abc", (vow_share_opts){0}, NULL);
        world_advance_ms(rig.w, at);
        CHECK(vow_cancel(f, NULL));
        check_code(f, VOW_ECANCELED);
        world_advance_ms(rig.w, 0);
        CHECK_INT_EQ(rig.running, 0);
        CHECK_UINT_EQ(vow_authority_stats_get(rig.a[0]).names, 0);
        close_both();
    }
}

/* ---- the input --------------------------------------------------------- */

static vow_next look_fiber(void *arg)
{
    struct stage *s = arg;
    vow_future *one = vow_input_next(s->in);
    vow_future *two = vow_input_next(s->in);
    bool stream = (s->act->flags & VOW_STEP_STREAM) != 0;
    CHECK_INT_EQ(vow_await(two), stream ? VOW_EBUSY : 0);
    vow_future_unref(two);
    if (stream)
        CHECK(vow_cancel(one, NULL)); /* the chunk is for the next */
    vow_future_unref(one);
    two = vow_input_next(s->in);
    CHECK_INT_EQ(vow_await(two), 0);
    vow_bytes *b = vow_as_bytes(vow_get(two));
    CHECK_INT_EQ(b != NULL, stream);
    if (stream)
        CHECK_MEM_EQ(vow_bytes_data(b), "a1 ", 3);
    vow_future_unref(two);
    vow_future_unref(vow_input_next(s->in)); /* nobody waits for it */
    s->text[s->n++] = '!';
    return stage_end(s, 0);
}

static vow_next first_then_look(void *arg)
{
    struct stage *s = arg;
    if ((s->act->flags & VOW_STEP_STREAM) != 0)
        CHECK_INT_EQ(vow_await_drop(vow_input_next(s->in)), 0);
    return look_fiber(arg);
}

static vow_future *look(vow_lease *lease, vow_input *in, void *arg)
{
    return stage_begin(lease, in, arg, first_then_look);
}

TEST(pipeline_stream, one_chunk_is_asked_for_at_a_time)
{
    open_both();
    const vow_step_work_fn works[] = {speak, look};
    vow_pipe_step steps[2];
    vow_field fields[2];
    CHECK_UINT_EQ(steps_of(&rig, "ab", works, steps, fields), 2);
    vow_future *f = vow_pipeline_run(rig.a[0], steps, 2, NULL, NULL);
    world_advance_ms(rig.w, 100);
    check_text(f, "!");
    close_both();
}

TEST(pipeline_stream, a_step_that_reads_the_whole_may_read_it_as_a_chunk)
{
    open_both();
    act(&rig, 'b')->flags = 0;
    const vow_step_work_fn works[] = {speak, look};
    vow_pipe_step steps[2];
    vow_field fields[2];
    CHECK_UINT_EQ(steps_of(&rig, "ab", works, steps, fields), 2);
    vow_future *f = vow_pipeline_run(rig.a[0], steps, 2, NULL, NULL);
    world_advance_ms(rig.w, 100);
    check_text(f, "!");
    close_both();
}

/* ---- those who follow the whole ---------------------------------------- */

static char followed[256];

static void follow(vow_bytes *chunk, void *user)
{
    CHECK_PTR_EQ(user, followed);
    if (chunk == NULL)
        followed[0] = '\0';
    else
        (void)strncat(followed, (const char *)vow_bytes_data(chunk),
                      vow_bytes_size(chunk));
}

TEST(pipeline_stream, the_last_step_can_be_followed)
{
    open_both();
    vow_future *f = begin("ab");
    world_advance_ms(rig.w, 25);
    const vow_share_opts share = {
        .flags = VOW_SHARE_FOLLOW, .on_chunk = follow, .user = followed};
    vow_future *g = begin_with(rig.a[1], "ab", share, NULL);
    world_advance_ms(rig.w, 0);
    CHECK_STR_EQ(followed, "A0 A1 ");
    world_advance_ms(rig.w, 100);
    CHECK_STR_EQ(followed, "A0 A1 A2 A3 ");
    check_text(f, "A0 A1 A2 A3 ");
    check_text(g, "A0 A1 A2 A3 ");
    close_both();
}

static bool never(const vow_share_info *running, void *user)
{
    CHECK(running->fence > 0);
    CHECK_PTR_EQ(user, followed);
    return false;
}

TEST(pipeline_stream, who_does_not_want_to_join_asks_when_it_is_over)
{
    open_both();
    vow_future *f = begin("a");
    world_advance_ms(rig.w, 25);
    const vow_share_opts share = {.join = never, .user = followed};
    vow_future *g = begin_with(rig.a[0], "a", share, NULL);
    world_advance_ms(rig.w, 200);
    check_text(f, "a0 a1 a2 a3 ");
    check_text(g, "a0 a1 a2 a3 ");
    close_both();
}
