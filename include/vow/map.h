/* SPDX-License-Identifier: MIT */
/* vow/map.h - applies a function to many items, with a concurrency limit.
 *
 * Items are pulled from a source only when an item can start, so the input may
 * be endless. At most `concurrent` items run, and at most `window` items are
 * begun and not yet delivered: memory does not grow with the number of items,
 * unless the results are kept.
 *
 * Threads: loop thread only.
 */
#ifndef VOW_MAP_H
#define VOW_MAP_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* Writes the next item, which is moved, and returns 1; or returns 0 at the end,
 * or an error code. VOW_EAGAIN: no item yet; *ret_wait is a future of this
 * loop, moved, and the map pulls again when the future has ended. An item or a
 * future that does not fit the code is dropped. Called from the loop's queue,
 * never again after 0 or an error. */
typedef int (*vow_pull_fn)(void *state, vow_value *ret_item,
                           vow_future **ret_wait);

/* The source of items. `drop` (may be NULL) is called with the state exactly
 * once, when the map is done with the source, also if the map was refused. By
 * then every item has ended: the state, an array, `user` and `sink_user` are no
 * longer used. `drop` may come after the result, if the map failed at once or
 * was canceled while an item still ran. */
typedef struct vow_source {
    vow_pull_fn pull;
    void *state;
    vow_drop_fn drop;
} vow_source;

/* Return a source of the elements of an array, as vow_ptr() to each element;
 * and of the numbers from `first` up to but not including `end`, as vow_int().
 * The array and the struct (the fields are private) must outlive the last item;
 * set `drop` of the source to learn when. Since 0.1. */
typedef struct vow_span {
    const char *at;
    size_t left;
    size_t width;
} vow_span;
VOW_API VOW_NONNULL(1)
vow_source vow_source_array(vow_span *span, const void *array, size_t n,
                            size_t width);
typedef struct vow_range {
    int64_t next, end;
} vow_range;
VOW_API VOW_NONNULL(1)
vow_source vow_source_range(vow_range *range, int64_t first, int64_t end);

/* Starts an item and returns a future of this loop, moved. Until the future has
 * ended (vow_ended()), the item is borrowed and counts as running. */
typedef vow_future *(*vow_map_fn)(vow_loop *loop, vow_value item, size_t index,
                                  void *user);

/* Takes a settled outcome, borrowed. Returns NULL, or a future of this loop,
 * moved: nothing more is delivered until the future has ended, and a rejection
 * fails the map. After an item has failed, the sink still gets all begun items,
 * the failure too, with VOW_FAIL_DRAIN, and nothing with VOW_FAIL_NOW. */
typedef vow_future *(*vow_sink_fn)(size_t index, vow_future *outcome,
                                   void *user);

enum vow_map_fail {
    VOW_FAIL_NOW = 0,    /* reject at once and cancel running items */
    VOW_FAIL_DRAIN = 1,  /* begin no item, let running items end, reject */
    VOW_FAIL_COLLECT = 2 /* go on; results are values and errors */
};

/* A running map, counted. */
typedef struct vow_mapping vow_mapping;

typedef struct vow_map_opts {
    size_t size;         /* set by VOW_MAP */
    uint32_t concurrent; /* items at a time; 0 is refused */
    uint32_t window;   /* items begun and not delivered, at least concurrent; 0:
                          4 times concurrent */
    uint32_t fail;     /* enum vow_map_fail */
    bool as_completed; /* the sink gets outcomes in order of completion, not of
                          input */
    bool discard;      /* without a sink: keep no results */
    vow_sink_fn sink;  /* gets results as they come; NULL: results are kept */
    void *sink_user;   /* argument of sink */
    vow_mapping **ret_map; /* set to a handle for vow_map_resize(), or to NULL
                              if the map was refused; NULL: not needed */
} vow_map_opts;
#define VOW_MAP(...)                                                           \
    (&(const vow_map_opts){.size = sizeof(vow_map_opts), __VA_ARGS__})

/* Maps the items of a source. Without a sink, the value is a list of the
 * outcomes in input order (vow_list_get()); with a sink or .discard, the number
 * of items. The future is rejected with the first error in time, of an item, of
 * the source or of the sink; a VOW_ECANCELED caused by another error never
 * hides the cause. Progress is the number of ended items. Canceling stops
 * pulling and cancels running items. VOW_EINVAL: no pull, no fn, no opts,
 * concurrent 0, a window below concurrent; or a callback returned NULL or a
 * future of another loop instead of a future of this loop. VOW_ECLOSED: the
 * loop closes. Since 0.1. */
#define vow_map(loop, source, fn, user, opts)                                  \
    vow_map_at(VOW_HERE, (loop), (source), (fn), (user), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_map_at(const char *site, vow_loop *loop, vow_source source,
                       vow_map_fn fn, void *user, const vow_map_opts *opts);

/* Changes the concurrency limit; a smaller window grows to the limit. Running
 * items go on, and an item being pulled still begins. Returns 0, or VOW_EINVAL
 * for 0. Does nothing after the end of the map. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_map_resize(vow_mapping *m, uint32_t concurrent);

typedef struct vow_map_stats {
    uint32_t concurrent; /* the limit */
    uint32_t running;
    size_t buffered; /* ended, and not yet delivered */
    uint64_t pulled;
    uint64_t ended;
    uint64_t failed; /* of the ended */
} vow_map_stats;
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_map_stats vow_map_stats_get(const vow_mapping *m);
VOW_API VOW_LOOP_THREAD vow_mapping *vow_mapping_unref(vow_mapping *m);

static inline void vow_mapping_cleanup(vow_mapping **m)
{
    vow_mapping_unref(*m);
}

VOW_END_DECLS

#endif
