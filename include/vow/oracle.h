/* SPDX-License-Identifier: MIT */
/* vow/oracle.h - a second opinion: was a limit ever broken?
 *
 * It is told of starts and ends and checks, by means of its own and without
 * looking at the limiter: never more than `concurrent` at once, never more than
 * `rate` in any span of `window_ms` (both ends included), and, if asked, starts
 * in the order of their numbers. A gate made with .oracle tells it; code of
 * your own tells it by hand. Tests let it watch everything; in production it
 * samples: one slice of time in `sample` is checked in full.
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
    VOW_BREACH_END = 4 /* more ended than had started */
};

typedef struct vow_breach {
    enum vow_breach_kind kind;
    uint64_t at_ns;   /* the loop's clock */
    uint64_t span_ns; /* rate: from the first start counted to at_ns */
    uint64_t seen;    /* weight at once, weight in the span, the number; end:
                         the weight that ended */
    uint64_t allowed; /* the limit; order: the number before; end: the weight
                         that ran */
} vow_breach;

/* Called inside the call that broke the limit; not to call back into it. */
typedef void (*vow_breach_fn)(const vow_breach *breach, void *user);

typedef struct vow_oracle_opts {
    size_t size;         /* set by VOW_ORACLE */
    uint32_t concurrent; /* 0: not checked */
    uint32_t rate;       /* 0: not checked */
    uint64_t window_ms;  /* 0: 1000 */
    bool ordered;        /* starts come with rising numbers */
    uint32_t sample;     /* one slice of 4 windows (without a rate 4 s) in so
                            many is checked; 0: all */
    uint32_t remember;   /* starts kept for one span at most; 0: 1048576.
                            Beyond it the rate is not judged. */
    vow_breach_fn on_breach; /* NULL: counted */
    void *on_breach_user;
} vow_oracle_opts;
#define VOW_ORACLE(...)                                                        \
    (&(const vow_oracle_opts){.size = sizeof(vow_oracle_opts), __VA_ARGS__})

/* VOW_EINVAL, VOW_ENOMEM. Since 0.1. */
VOW_API VOW_LOOP_THREAD VOW_MUST_USE VOW_NONNULL(1, 3)
int vow_oracle_new(vow_loop *loop, const vow_oracle_opts *opts,
                   vow_oracle **ret_oracle);
VOW_API VOW_LOOP_THREAD vow_oracle *vow_oracle_ref(vow_oracle *o);
VOW_API VOW_LOOP_THREAD vow_oracle *vow_oracle_unref(vow_oracle *o); /* NULL */

/* Something of this weight starts now; `number` counts up in the order it was
 * asked for (not looked at unless .ordered). And it has ended. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_oracle_start(vow_oracle *o, uint32_t weight, uint64_t number);
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_oracle_end(vow_oracle *o, uint32_t weight);

/* The limits have changed: what started before is judged by the old ones only.
 * With fewer places, what runs may stay; nothing may start until it fits. */
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
void vow_oracle_expect(vow_oracle *o, uint32_t concurrent, uint32_t rate,
                       uint64_t window_ms);

typedef struct vow_oracle_stats {
    uint64_t starts;   /* told */
    uint64_t checked;  /* of these, in a slice that was looked at */
    uint64_t unjudged; /* of these, not for the rate: no memory, or too many */
    uint64_t breaches;
    vow_breach first; /* of them */
} vow_oracle_stats;
VOW_API VOW_LOOP_THREAD VOW_NONNULL(1)
vow_oracle_stats vow_oracle_stats_get(const vow_oracle *o);

/* One sentence, as snprintf() writes it: "52 started within 999.998 ms where 50
 * are allowed". */
VOW_API VOW_ANY_THREAD VOW_NONNULL(1)
size_t vow_breach_text(const vow_breach *breach, char *text, size_t size);

static inline void vow_oracle_cleanup(vow_oracle **o)
{
    vow_oracle_unref(*o);
}

VOW_END_DECLS

#endif
