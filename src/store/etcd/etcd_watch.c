/* SPDX-License-Identifier: MIT */
/* etcd_watch.c - the stream of changes of a tree, without a gap.
 *
 *                 canceled, cut off, nothing answered
 *            +-------------------------------------------+
 *            v                                           |
 *     begin: RESTS -> (lost its place? -> ASKS ->) OPENS -> RUNS
 *                                          ^              |
 *                                          +---- ASKS <---+ silence
 *
 * WHY   Who waits sleeps until a change is told. A change that is not told
 *       costs a recheck, so none may fall between two streams.
 * HOW   Etcd tells all from a revision on. The last one that was told whole is
 *       remembered, and each stream begins behind it: one that ends, for
 *       whatever reason, is followed by another from there, and nobody needs to
 *       look. Between two there is a rest that doubles, with chance in it.
 *       The place is lost when it was compacted, when a change cannot be read,
 *       or when etcd is behind it (it was restored from a backup): then the
 *       newest revision is asked for, the stream begins behind that, and all
 *       who wait are told to look (on_doubt).
 *       A stream that says nothing for two rechecks may be dead without our
 *       knowing. If the newest revision is still ours it is well; else there
 *       may be something that it should have told, and it begins again.
 * INVARIANTS
 *   W1  all changes up to `seen` were told; none twice, but those of a revision
 *       that was cut in two
 *   W2  it has a stream, or asks, or its timer is pending; but for one that was
 *       closed, with its store
 * LIMITS  Nothing of this keeps the loop running.
 * THREADS  loop thread only. Its events may close it.
 */
#include "base/clock.h"
#include "store/etcd/etcd_internal.h"
#include "vow/fiber.h"

#include <inttypes.h>
#include <string.h>

enum {
    REST_MIN_MS = 50,
    REST_MAX_MS = 2000,
    STEADY_MS = 1000 /* a stream that lived so long was no failure */
};

struct vow__watch {
    struct vow__etcd *etcd;
    vow_loop *loop;
    struct vow_alloc alloc;
    struct vow__key tree;
    struct vow__watch_events events;
    uint64_t seen;                   /* revision */
    struct vow__etcd_stream *stream; /* NULL: none */
    vow_call timer;                  /* of rest, or of silence */
    uint64_t rest_ms;                /* the next one, at most */
    uint64_t opened_ns;              /* the stream */
    uint64_t told;                   /* the revision that was told of last */
    bool created;                    /* the stream was answered */
    bool heard;                      /* it has said something since we asked */
    bool asks;                       /* for the newest revision */
    bool silent;                     /* that is why */
    bool astray;                     /* the place is lost */
    bool inside;                     /* an event is being told */
    bool closed;
};

static void begin(struct vow__watch *w);
static void write_create(struct vow__watch *w, struct vow__buf *body);
static void write_tree(struct vow__watch *w, struct vow__buf *key);
static void await_word(struct vow__watch *w);
static void on_timer(void *user);
static void stop(struct vow__watch *w);
static void rest(struct vow__watch *w);
static void on_line(const json_t *root, void *user);
static void read_line(struct vow__watch *w, const json_t *said);
static bool on_changes(struct vow__watch *w, const json_t *said);
static bool tell_one(struct vow__watch *w, const json_t *event);
static void on_created(struct vow__watch *w, const json_t *said);
static void on_canceled(struct vow__watch *w, const json_t *said);
static void on_end(int code, void *user);
static void ask(struct vow__watch *w, bool silent);
static vow_next ask_newest(void *arg);
static void judge(struct vow__watch *w, uint64_t newest);
static void watch_free(struct vow__watch *w);

int vow__watch_open(struct vow__etcd *e, const struct vow__key *tree,
                    uint64_t revision, const struct vow__watch_events *events,
                    struct vow__watch **ret_watch)
{
    struct vow_alloc alloc = *vow__etcd_alloc(e);
    struct vow__watch *w = vow__mem_zero(&alloc, sizeof(*w));
    if (w == NULL)
        return VOW_ENOMEM;
    w->etcd = e;
    w->loop = vow__etcd_loop(e);
    w->alloc = alloc;
    w->tree = *tree;
    w->events = *events;
    w->seen = revision;
    w->rest_ms = REST_MIN_MS;
    begin(w);
    *ret_watch = w;
    return 0;
}

void vow__watch_close(struct vow__watch *w)
{
    w->closed = true;
    stop(w);
    if (!w->asks && !w->inside)
        watch_free(w);
}

static void watch_free(struct vow__watch *w)
{
    struct vow_alloc alloc = w->alloc;
    vow__mem_free(&alloc, w, sizeof(*w));
}

/* ---- a stream ------------------------------------------------------------ */

static void begin(struct vow__watch *w)
{
    struct vow__buf body;
    if (vow__etcd_closing(w->etcd))
        return;
    if (w->astray) {
        ask(w, false);
        return;
    }
    write_create(w, &body);
    w->created = false;
    w->opened_ns = vow_loop_now_ns(w->loop);
    w->stream = vow__etcd_stream(w->etcd, "watch", &body,
                                 &(const struct vow__etcd_stream_events){
                                     .on_line = on_line,
                                     .on_end = on_end,
                                     .user = w,
                                 });
    if (w->stream == NULL)
        rest(w);
    else
        await_word(w);
}

static void write_create(struct vow__watch *w, struct vow__buf *body)
{
    struct vow__buf key;
    write_tree(w, &key);
    vow__etcd_buf_init(body, &w->alloc);
    vow__buf_text(body, "{\"create_request\":{\"key\":\"");
    vow__etcd_buf_base64(body, key.bytes, key.n);
    vow__buf_text(body, "\",\"range_end\":\"");
    if (key.code == 0)
        key.bytes[key.n - 1]++; /* the key behind all that begin so */
    vow__etcd_buf_base64(body, key.bytes, key.n);
    vow__buf_print(body,
                   "\",\"start_revision\":\"%" PRIu64
                   "\",\"progress_notify\":true,\"fragment\":true}}",
                   w->seen + 1);
    if (body->code == 0)
        body->code = key.code;
    vow__buf_fini(&key);
}

static void write_tree(struct vow__watch *w, struct vow__buf *key)
{
    vow__etcd_buf_init(key, &w->alloc);
    vow__buf_text(key, vow__etcd_where_of(w->etcd)->prefix);
    vow__buf_text(key, w->tree.text);
}

/* An answer comes within the time of a call, events now and then. */
static void await_word(struct vow__watch *w)
{
    const struct vow__etcd_where *where = vow__etcd_where_of(w->etcd);
    uint64_t ms = w->created ? 2 * where->recheck_ms : where->timeout_ms;
    vow_call_weakly_at(&w->timer, w->loop, vow_loop_due_ns(w->loop, ms),
                       on_timer, w);
}

static void on_timer(void *user)
{
    struct vow__watch *w = user;
    if (w->stream == NULL) {
        begin(w);
        return;
    }
    if (!w->created)
        stop(w);
    ask(w, true);
}

/* There is no stream, and nothing that would make one. */
static void stop(struct vow__watch *w)
{
    struct vow__etcd_stream *s = w->stream;
    w->stream = NULL;
    (void)vow_call_stop(&w->timer);
    if (s != NULL)
        vow__etcd_stream_close(s);
}

static void rest(struct vow__watch *w)
{
    uint64_t lived_ns = vow_loop_now_ns(w->loop) - w->opened_ns;
    if (w->created && lived_ns / VOW__NS_PER_MS >= STEADY_MS)
        w->rest_ms = REST_MIN_MS;
    uint64_t half_ms = w->rest_ms / 2;
    uint64_t ms = half_ms + vow_loop_random(w->loop) % (half_ms + 1);
    w->created = false;
    w->rest_ms *= 2;
    if (w->rest_ms > REST_MAX_MS)
        w->rest_ms = REST_MAX_MS;
    vow_call_weakly_at(&w->timer, w->loop, vow_loop_due_ns(w->loop, ms),
                       on_timer, w);
}

static void on_end(int code, void *user)
{
    struct vow__watch *w = user;
    w->stream = NULL;
    stop(w);
    if (code == VOW_E2BIG) /* it would be as long the next time */
        w->astray = true;
    if (code != VOW_ECLOSED && !w->asks)
        rest(w);
}

/* ---- what it says -------------------------------------------------------- */

static void on_line(const json_t *root, void *user)
{
    struct vow__watch *w = user;
    w->heard = true;
    w->inside = true;
    read_line(w, json_object_get(root, "result"));
    w->inside = false;
    if (w->closed && !w->asks)
        watch_free(w);
}

static void read_line(struct vow__watch *w, const json_t *said)
{
    if (json_is_true(json_object_get(said, "canceled"))) {
        on_canceled(w, said);
    } else if (json_is_true(json_object_get(said, "created"))) {
        on_created(w, said);
    } else if (!on_changes(w, said)) {
        w->astray = true;
        stop(w);
        rest(w);
    }
}

/* A member may be a little late; if etcd as a whole is, it is another past. */
static void on_created(struct vow__watch *w, const json_t *said)
{
    w->created = true;
    await_word(w);
    if (vow__json_revision(said) < w->seen)
        ask(w, false);
}

/* The stream itself stays open. */
static void on_canceled(struct vow__watch *w, const json_t *said)
{
    const char *why = json_string_value(json_object_get(said, "cancel_reason"));
    if (vow__json_uint(said, "compact_revision") != 0)
        w->astray = true;
    else
        vow__etcd_trouble(w->etcd, "etcd refuses to tell of changes%s%.200s",
                          why == NULL ? "" : ": ", why == NULL ? "" : why);
    stop(w);
    rest(w);
}

/* Changes, or only how far it is. A line that is not the last of several may
 * end amidst a revision. False: it cannot be read. */
static bool on_changes(struct vow__watch *w, const json_t *said)
{
    const json_t *events = json_object_get(said, "events");
    bool whole = !json_is_true(json_object_get(said, "fragment"));
    w->told = vow__json_revision(said);
    if (w->told == 0 || (events != NULL && !json_is_array(events)))
        return false;
    for (size_t i = 0; i < json_array_size(events); i++) {
        if (!tell_one(w, json_array_get(events, i)))
            return false;
        if (w->closed)
            return true;
    }
    if (w->told > w->seen)
        w->seen = whole ? w->told : w->told - 1; /* keeps W1 */
    await_word(w);
    return true;
}

static bool tell_one(struct vow__watch *w, const json_t *event)
{
    const char *type = json_string_value(json_object_get(event, "type"));
    const json_t *pair = json_object_get(event, "kv");
    bool deletes = type != NULL && strcmp(type, "DELETE") == 0;
    struct vow__buf memory;
    struct vow__kv kv;
    w->told = vow__json_uint(pair, "mod_revision");
    vow__etcd_buf_init(&memory, &w->alloc);
    bool good = vow__json_pair(w->etcd, pair, &memory, &kv);
    if (good && kv.key != NULL && kv.mod > w->seen)
        (deletes ? w->events.on_delete : w->events.on_put)(&kv, w->events.user);
    vow__buf_fini(&memory);
    return good;
}

/* ---- where it is --------------------------------------------------------- */

static void ask(struct vow__watch *w, bool silent)
{
    if (w->asks || vow__etcd_closing(w->etcd))
        return;
    VOW_AUTO(vow_future) fiber = vow_async(w->loop, ask_newest, w);
    if (vow_state_of(fiber) == VOW_REJECTED) {
        (void)vow_error_of(fiber);
        stop(w);
        rest(w);
        return;
    }
    w->asks = true;
    w->silent = silent;
    w->heard = false;
}

/* What is newest: a read of a key that is not there. */
static vow_next ask_newest(void *arg)
{
    struct vow__watch *w = arg;
    struct vow__buf body, key;
    json_t *root = NULL;
    write_tree(w, &key);
    vow__etcd_buf_init(&body, &w->alloc);
    vow__buf_text(&body, "{\"key\":\"");
    vow__etcd_buf_base64(&body, key.bytes, key.n);
    vow__buf_text(&body, "\",\"count_only\":true}");
    if (body.code == 0)
        body.code = key.code;
    vow__buf_fini(&key);
    int code = vow__etcd_await(w->etcd, "kv/range", &body, true, 0, &root);
    uint64_t newest = code == 0 ? vow__json_revision(root) : 0;
    json_decref(root);
    w->asks = false;
    if (w->closed) {
        watch_free(w);
    } else if (newest != 0) {
        judge(w, newest);
    } else if (code != VOW_ECLOSED) {
        stop(w);
        rest(w);
    }
    return vow_ok(vow_nothing());
}

/* The last that is told may close it. */
static void judge(struct vow__watch *w, uint64_t newest)
{
    bool doubt = w->astray || newest < w->seen;
    bool well = w->stream != NULL && !doubt &&
                (w->heard || !w->silent || newest == w->seen);
    if (well) {
        await_word(w);
        return;
    }
    stop(w);
    if (doubt)
        w->seen = newest;
    w->astray = false;
    begin(w);
    if (doubt)
        w->events.on_doubt(w->events.user);
}
