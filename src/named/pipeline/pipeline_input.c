/* SPDX-License-Identifier: MIT */
/* pipeline_input.c - the input of a step: the whole result of the step before,
 * or chunk by chunk.
 *
 * HOW   The chunks belong to the output; an input only counts the chunks it has
 *       read. When the output is settled, the unread rest of the value is the
 *       last chunk. A run that is lost starts over with new chunks: a reader of
 *       the old chunks gets an error, and nothing more.
 * THREADS  loop thread only.
 */
#include "named/pipeline/pipeline_internal.h"

static bool reader_answer(struct vow_input *in, vow_deferred *reader);
static void reader_reject(struct vow_input *in, vow_deferred *reader,
                          vow_error *e);
static void reader_resolve_rest(struct vow_input *in, vow_deferred *reader);
static void on_reader_cancel(vow_error *why, void *input);

void vow__pipeline_input_init(struct vow_input *in, vow_loop *loop,
                              struct vow__pipeline_output *output, bool stream)
{
    *in = (struct vow_input){.loop = loop,
                             .output = output,
                             .stream = stream,
                             .run = output == NULL ? 0 : output->run};
}

void vow__pipeline_input_fini(struct vow_input *in)
{
    if (in->reader != NULL) {
        (void)vow_reject_code(in->reader, VOW_ECANCELED, "the step has ended");
        in->reader = vow_deferred_unref(in->reader);
    }
    in->error = vow_error_unref(in->error);
}

vow_bytes *vow_input_whole(vow_input *in)
{
    VOW__ASSERT_THREAD(in->loop);
    if (in->stream || in->output == NULL)
        return NULL;
    return vow_as_bytes(vow_get(in->output->result));
}

vow_future *vow_input_next_at(const char *site, vow_input *in)
{
    VOW__ASSERT_THREAD(in->loop);
    if (in->reader != NULL)
        return vow_refused_at(site, in->loop, VOW_EBUSY,
                              "the previous chunk has not come yet");
    vow_deferred *reader;
    vow_future *f = vow_promise_at(site, in->loop, &reader);
    if (!vow_deferred_pending(reader)) {
        vow_deferred_unref(reader);
        return f;
    }
    vow_on_cancel_now(reader, on_reader_cancel, in);
    in->reader = reader;
    vow__pipeline_input_check(in);
    return f;
}

/* Drops a canceled reader; the chunk is for the next reader. */
static void on_reader_cancel(vow_error *why, void *input)
{
    struct vow_input *in = input;
    vow_deferred *reader = in->reader;
    in->reader = NULL;
    (void)vow_reject_drop(reader, vow_error_ref(why));
}

void vow__pipeline_input_check(struct vow_input *in)
{
    vow_deferred *reader = in->reader;
    in->reader = NULL; /* the reader may request the next chunk */
    if (reader != NULL && !reader_answer(in, reader))
        in->reader = reader;
}

/* Settles and drops the reader if there is an answer; returns whether. */
static bool reader_answer(struct vow_input *in, vow_deferred *reader)
{
    struct vow__pipeline_output *out = in->output;
    if (in->error != NULL) {
        reader_reject(in, reader, vow_error_ref(in->error));
    } else if (out == NULL) {
        (void)vow_resolve_drop(reader, vow_nothing());
    } else if (out->run != in->run) {
        reader_reject(
            in, reader,
            vow_error_new(in->loop, VOW_ERETRY,
                          "the previous step was lost and begins again"));
    } else if (in->stream && in->next < out->n_chunks) {
        vow_bytes *chunk = out->chunks[in->next++];
        in->offset += vow_bytes_size(chunk);
        (void)vow_resolve_drop(reader, vow_bytes_value(vow_bytes_ref(chunk)));
    } else if (vow__pipeline_output_error(out) != NULL) {
        reader_reject(in, reader,
                      vow_error_ref(vow__pipeline_output_error(out)));
    } else if (out->result != NULL) {
        reader_resolve_rest(in, reader);
    } else {
        return false;
    }
    return true;
}

static void reader_reject(struct vow_input *in, vow_deferred *reader,
                          vow_error *e)
{
    if (in->error == NULL)
        in->error = vow_error_ref(e);
    (void)vow_reject_drop(reader, e);
}

/* Reads from the value the bytes that the chunks lack. */
static void reader_resolve_rest(struct vow_input *in, vow_deferred *reader)
{
    vow_bytes *value = vow_as_bytes(vow_get(in->output->result));
    size_t size = value == NULL ? 0 : vow_bytes_size(value);
    vow_bytes *rest = NULL;
    int rc = 0;
    if (in->offset == 0 && size > 0)
        rest = vow_bytes_ref(value);
    else if (in->offset < size)
        rc = vow_bytes_new(in->loop, vow_bytes_data(value) + in->offset,
                           size - in->offset, &rest);
    if (rc < 0) {
        reader_reject(in, reader, vow_error_new(in->loop, rc, NULL));
        return;
    }
    in->offset = size;
    (void)vow_resolve_drop(reader, vow_bytes_value(rest));
}

bool vow__pipeline_input_lost(const struct vow_input *in)
{
    return in->error != NULL && in->output->run != in->run;
}
