/* SPDX-License-Identifier: MIT */
/* assert.h - checks for our own bugs; they stay on in release builds.
 *
 * One fact per assert. Conditions of the world (no memory, a closed pipe) and
 * mistakes of a caller are errors, never asserts. VOW__DEBUG_ASSERT is
 * for checks too dear for a release, such as the calling thread. */
#ifndef VOW_BASE_ASSERT_H
#define VOW_BASE_ASSERT_H

#define VOW__LIKELY(x) __builtin_expect(!!(x), 1)
#define VOW__UNLIKELY(x) __builtin_expect(!!(x), 0)

/* On the way of a million links: inlined whatever the compiler thinks. */
#define VOW__INLINE static inline __attribute__((always_inline))
/* Kept out of the way of the fast path, which then needs no stack frame. */
#define VOW__COLD __attribute__((cold, noinline))

/* A trap needs no output and leaves the core at the right frame. */
#define VOW__ASSERT(fact)                                                      \
    do {                                                                       \
        if (VOW__UNLIKELY(!(fact)))                                            \
            __builtin_trap();                                                  \
    } while (0)

#ifdef NDEBUG
#define VOW__DEBUG_ASSERT(fact) ((void)0)
#else
#define VOW__DEBUG_ASSERT(fact) VOW__ASSERT(fact)
#endif

/* VOW_LOOP_THREAD of vow/common.h: the caller is on the thread of the loop.
 * With _OF, the object may be NULL. Users of both include vow/loop.h. */
#define VOW__ASSERT_THREAD(loop) VOW__DEBUG_ASSERT(vow_loop_on_thread(loop))
#define VOW__ASSERT_THREAD_OF(object, loop)                                    \
    VOW__DEBUG_ASSERT((object) == NULL || vow_loop_on_thread(loop))

#endif
