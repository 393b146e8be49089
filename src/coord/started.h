/* SPDX-License-Identifier: MIT */
/* started.h - checks the future returned by a start function.
 *
 * WHY   By mistake a start function may return NULL or a future of another
 *       loop; the caller then continues with a rejected future.
 */
#ifndef VOW_COORD_STARTED_H
#define VOW_COORD_STARTED_H

#include "base/assert.h"
#include "vow/promise.h"

static inline vow_future *vow__coord_started(const char *site, vow_loop *loop,
                                             vow_future *f)
{
    if (VOW__LIKELY(f != NULL && vow_future_loop(f) == loop))
        return f;
    vow_future_unref(f);
    return vow_refused_at(site, loop, VOW_EINVAL,
                          "the start function returned no future of this loop");
}

#endif
