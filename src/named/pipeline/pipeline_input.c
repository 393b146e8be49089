/* SPDX-License-Identifier: MIT */
/* pipeline_input.c - what a step reads: the whole result before it, or one
 * chunk after the other.
 *
 * HOW   The chunks are the feed's; an input only counts how far it has read.
 *       When the feed is settled, what was not read of its value is the last
 *       chunk. A run that is lost begins anew, with chunks of its own: who read
 *       the old ones is told, and is not told more.
 * THREADS  loop thread only.
 */
#include "named/pipeline/pipeline_internal.h"

static bool answer(struct vow_input *in, vow_deferred *reader);
static void tell(struct vow_input *in, vow_deferred *reader, vow_error *e);
static void tell_rest(struct vow_input *in, vow_deferred *reader);
static void stop_reading(vow_error *why, void *input);

void vow__pipeline_input_init(struct vow_input *in, vow_loop *loop,
                              struct vow__pipeline_output *feed, bool stream)
{
    *in = (struct vow_input){.loop = loop,
                             .feed = feed,
                             .stream = stream,
                             .run = feed == NULL ? 0 : feed->run};
}

void vow__pipeline_input_fini(struct vow_input *in)
{
    if (in->reader != NULL) {
        (void)vow_reject_code(in->reader, VOW_ECANCELED, "the step has ended");
        in->reader = vow_deferred_unref(in->reader);
    }
    in->told = vow_error_unref(in->told);
}

vow_bytes *vow_input_whole(vow_input *in)
{
    VOW__ASSERT_THREAD(in->loop);
    if (in->stream || in->feed == NULL)
        return NULL;
    return vow_as_bytes(vow_get(in->feed->result));
}

vow_future *vow_input_next_at(const char *site, vow_input *in)
{
    VOW__ASSERT_THREAD(in->loop);
    if (in->reader != NULL)
        return vow_refused_at(site, in->loop, VOW_EBUSY,
                              "the chunk before it has not come yet");
    vow_deferred *reader;
    vow_future *f = vow_promise_at(site, in->loop, &reader);
    if (!vow_deferred_pending(reader)) {
        vow_deferred_unref(reader);
        return f;
    }
    vow_on_cancel_now(reader, stop_reading, in);
    in->reader = reader;
    vow__pipeline_input_check(in);
    return f;
}

/* Whoever waited does not want it any more; the chunk is for the next. */
static void stop_reading(vow_error *why, void *input)
{
    struct vow_input *in = input;
    vow_deferred *reader = in->reader;
    in->reader = NULL;
    (void)vow_reject_drop(reader, vow_error_ref(why));
}

void vow__pipeline_input_check(struct vow_input *in)
{
    vow_deferred *reader = in->reader;
    in->reader = NULL; /* what is settled may ask for the next */
    if (reader != NULL && !answer(in, reader))
        in->reader = reader;
}

/* Settle and drop it, if there is anything to say. */
static bool answer(struct vow_input *in, vow_deferred *reader)
{
    struct vow__pipeline_output *f = in->feed;
    if (in->told != NULL) {
        tell(in, reader, vow_error_ref(in->told));
    } else if (f == NULL) {
        (void)vow_resolve_drop(reader, vow_nothing());
    } else if (f->run != in->run) {
        tell(in, reader,
             vow_error_new(in->loop, VOW_ERETRY,
                           "the step before was lost and begins anew"));
    } else if (in->stream && in->next < f->n_chunks) {
        vow_bytes *chunk = f->chunks[in->next++];
        in->offset += vow_bytes_size(chunk);
        (void)vow_resolve_drop(reader, vow_bytes_value(vow_bytes_ref(chunk)));
    } else if (vow__pipeline_output_error(f) != NULL) {
        tell(in, reader, vow_error_ref(vow__pipeline_output_error(f)));
    } else if (f->result != NULL) {
        tell_rest(in, reader);
    } else {
        return false;
    }
    return true;
}

static void tell(struct vow_input *in, vow_deferred *reader, vow_error *e)
{
    if (in->told == NULL)
        in->told = vow_error_ref(e);
    (void)vow_reject_drop(reader, e);
}

/* What the chunks lack is read from the value. */
static void tell_rest(struct vow_input *in, vow_deferred *reader)
{
    vow_bytes *value = vow_as_bytes(vow_get(in->feed->result));
    size_t size = value == NULL ? 0 : vow_bytes_size(value);
    vow_bytes *rest = NULL;
    int rc = 0;
    if (in->offset == 0 && size > 0)
        rest = vow_bytes_ref(value);
    else if (in->offset < size)
        rc = vow_bytes_new(in->loop, vow_bytes_data(value) + in->offset,
                           size - in->offset, &rest);
    if (rc < 0) {
        tell(in, reader, vow_error_new(in->loop, rc, NULL));
        return;
    }
    in->offset = size;
    (void)vow_resolve_drop(reader, vow_bytes_value(rest));
}

bool vow__pipeline_input_lost(const struct vow_input *in)
{
    return in->told != NULL && in->feed->run != in->run;
}
