/* SPDX-License-Identifier: MIT */
/* vow/oracle.h - an independent check of limits: was a limit ever broken?
 *
 * An oracle is told of starts and ends. Without looking at the limiter, the
 * oracle checks: never more weight than `concurrent` at a time, never more than
 * `rate` in any span of `window_ms` (both ends included), and, if `ordered`,
 * starts in the order of the numbers. A gate made with .oracle tells the oracle
 * by itself; other code calls vow_oracle_start() and vow_oracle_end(). Tests
 * check everything; production code samples: one slice of time in `sample` is
 * checked in full.
 *
 * Owner: counted.
 * Threads: loop thread only.
 */
#ifndef VOW_ORACLE_H
#define VOW_ORACLE_H

#include "vow/loop.h"

VOW_BEGIN_DECLS

typedef struct vow_oracle vow_oracle;

enum vow_breach_kind {
    VOW_BREACH_CONCURRENCY = 1,
    VOW_BREACH_RATE = 2,
    VOW_BREACH_ORDER = 3,
    VOW_BREACH_END = 4 /* more weight ended than ran */
};

typedef struct vow_breach {
    enum vow_breach_kind kind;
    uint64_t at_ns;   /* by the loop's clock */
    uint64_t span_ns; /* RATE: from the first counted start to at_ns */
    uint64_t seen;    /* CONCURRENCY: running weight; RATE: weight in the span;
                         ORDER: the number; END: the ended weight */
    uint64_t allowed; /* the limit; ORDER: the number before; END: the running
                         weight */
} vow_breach;

/* Reports a breach, inside the call that broke the limit. Must not call the
 * limiter or the oracle. */
typedef void (*vow_breach_fn)(const vow_breach *breach, void *user);

typedef struct vow_oracle_opts {
    size_t size;         /* set by VOW_ORACLE */
    uint32_t concurrent; /* 0: not checked */
    uint32_t rate;       /* 0: not checked */
    uint64_t window_ms;  /* 0: 1000 */
    bool ordered;        /* starts must have rising numbers */
    uint32_t sample;     /* check one in `sample` slices of 4 windows (without a
                            rate: 4 s); 0: check all */
    uint32_t remember;   /* starts remembered per window; 0: 1048576. Beyond,
                            the rate is not judged. */
    vow_breach_fn on_breach; /* NULL: breaches are only counted */
    void *on_breach_user;
} vow_oracle_opts;
#define VOW_ORACLE(...)                                                        \
    (&(const vow_oracle_opts){.size = sizeof(vow_oracle_opts), __VA_ARGS__})

/* Makes an oracle. Returns 0, VOW_EINVAL (options of another version) or
 * VOW_ENOMEM. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_oracle_new(vow_loop *loop, const vow_oracle_opts *opts,
                   vow_oracle **ret_oracle);
VOW_API VOW_LOOP_THREAD vow_oracle *vow_oracle_ref(vow_oracle *o);
VOW_API VOW_LOOP_THREAD vow_oracle *vow_oracle_unref(vow_oracle *o); /* NULL */

/* Report the start, and the end, of work of this weight. `number` rises in the
 * order of the requests; ignored unless .ordered. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_oracle_start(vow_oracle *o, uint32_t weight, uint64_t number);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_oracle_end(vow_oracle *o, uint32_t weight);

/* Reports new limits: earlier starts are judged by the old
 * limits only. Work above a lower concurrency limit may go on; nothing may
 * start until there is room. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_oracle_expect(vow_oracle *o, uint32_t concurrent, uint32_t rate,
                       uint64_t window_ms);

typedef struct vow_oracle_stats {
    uint64_t starts;   /* reported */
    uint64_t checked;  /* of these, in a checked slice */
    uint64_t unjudged; /* of these, rate not judged: no memory, or too many */
    uint64_t breaches;
    vow_breach first; /* breach */
} vow_oracle_stats;
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_oracle_stats vow_oracle_stats_get(const vow_oracle *o);

/* Writes the breach as a sentence, and returns the length, as snprintf() does:
 * "52 started within 999.998 ms where 50 are allowed". */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
size_t vow_breach_text(const vow_breach *breach, char *text, size_t size);

static inline void vow_oracle_cleanup(vow_oracle **o)
{
    vow_oracle_unref(*o);
}

VOW_END_DECLS

#endif
