/* SPDX-License-Identifier: MIT */
/* vow/map.h - a function over many items, so many at a time.
 *
 * Items are pulled from a source only when one can start, so the input may be
 * endless. At most `concurrent` run, and at most `window` are begun and not yet
 * delivered: memory does not grow with the number of items, unless the results
 * are kept.
 *
 * Threads: loop thread only.
 */
#ifndef VOW_MAP_H
#define VOW_MAP_H

#include "vow/promise.h"

VOW_BEGIN_DECLS

/* Writes the next item, which is moved, and returns 1; or 0 at the end, or an
 * error code. VOW_EAGAIN: none yet; *ret_wait is a future of this loop, moved,
 * after which to ask again. What is written and does not fit the code is
 * dropped. Called from the loop's queue, never again after 0 or an error. */
typedef int (*vow_pull_fn)(void *state, vow_value *ret_item,
                           vow_future **ret_wait);

/* Where items come from. `drop` (may be NULL) gets the state when the map needs
 * it no more, exactly once, also when the map was refused. By then every item
 * has ended: what the map was lent (the state, an array, `user`, `sink_user`)
 * is free again. That may be after the result, when the map failed at once or
 * was canceled and an item takes its time. */
typedef struct vow_source {
    vow_pull_fn pull;
    void *state;
    vow_drop_fn drop;
} vow_source;

/* The elements of an array, each as vow_ptr() to it; the numbers from `first`
 * up to and without `end`, as vow_int(). The array and the struct the caller
 * lends (its fields are private) outlive the last item; set `drop` of the
 * source to be told. Since 0.1. */
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

/* Starts one item and returns its future, of this loop, moved. The item is
 * borrowed until that future has ended (vow_ended()), which also counts against
 * the concurrency until then. */
typedef vow_future *(*vow_map_fn)(vow_loop *loop, vow_value item, size_t index,
                                  void *user);

/* Gets a settled outcome, borrowed. Returns NULL, or a future of this loop,
 * moved: nothing more is delivered until it is settled, and if it is rejected
 * the map fails with that. When an item fails, with VOW_FAIL_DRAIN it still
 * gets all that was begun, the failure too; with VOW_FAIL_NOW nothing more. */
typedef vow_future *(*vow_sink_fn)(size_t index, vow_future *outcome,
                                   void *user);

enum vow_map_fail {
    VOW_FAIL_NOW = 0,    /* reject at once, cancel what runs */
    VOW_FAIL_DRAIN = 1,  /* begin nothing more, let the running end, reject */
    VOW_FAIL_COLLECT = 2 /* go on; outcomes of both kinds are results */
};

/* A running map, counted. */
typedef struct vow_mapping vow_mapping;

typedef struct vow_map_opts {
    size_t size;         /* set by VOW_MAP */
    uint32_t concurrent; /* 0 is refused: say how many */
    uint32_t window;   /* begun and not delivered; 0: 4 times concurrent. Never
                        below the concurrency. */
    uint32_t fail;     /* enum vow_map_fail */
    bool as_completed; /* to the sink in the order of completion, not of
                             input */
    bool discard;      /* without a sink: keep no results */
    vow_sink_fn sink;  /* results go here as they come; NULL: kept */
    void *sink_user;   /* for the sink */
    vow_mapping **ret_map; /* a handle for vow_map_resize(); NULL: none needed.
                              NULL is written when the map was refused. */
} vow_map_opts;
#define VOW_MAP(...)                                                           \
    (&(const vow_map_opts){.size = sizeof(vow_map_opts), __VA_ARGS__})

/* Map. Without a sink the value is a list of the outcomes in input order
 * (vow_list_get()); with a sink, or with .discard, the number of items. The
 * rejection is that of the first item that failed in time, or of the source, or
 * of the sink; what an earlier cancel made of others never hides it. Progress
 * is the number of items that have ended. Canceling stops pulling and cancels
 * what runs. VOW_EINVAL: no pull, no fn, concurrent 0, a window below the
 * concurrency; NULL, or a future of another loop, where one of this loop is
 * asked for. VOW_ECLOSED: the loop closes. Since 0.1. */
#define vow_map(loop, source, fn, user, opts)                                  \
    vow_map_at(VOW_HERE, (loop), (source), (fn), (user), (opts))
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(2)
vow_future *vow_map_at(const char *site, vow_loop *loop, vow_source source,
                       vow_map_fn fn, void *user, const vow_map_opts *opts);

/* Change how many run at once, from now on; a window smaller than that grows.
 * What runs goes on, and an item that is just being pulled still begins.
 * VOW_EINVAL for 0. After the end it does nothing. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
int vow_map_resize(vow_mapping *m, uint32_t concurrent);

typedef struct vow_map_stats {
    uint32_t concurrent; /* the limit */
    uint32_t running;
    size_t buffered; /* ended, and waiting to be delivered */
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
