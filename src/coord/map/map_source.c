/* SPDX-License-Identifier: MIT */
/* map_source.c - sources for the two most common inputs: an array, and a range
 * of numbers.
 *
 * HOW   The caller lends a small struct with the rest of the input; each pull
 *       takes an item. The sources need no memory, so they cannot fail.
 * THREADS  loop thread only.
 */
#include "vow/map.h"

static int span_pull(void *state, vow_value *ret_item, vow_future **ret_wait);
static int range_pull(void *state, vow_value *ret_item, vow_future **ret_wait);

vow_source vow_source_array(vow_span *span, const void *array, size_t n,
                            size_t width)
{
    *span = (vow_span){.at = array, .left = n, .width = width};
    return (vow_source){.pull = span_pull, .state = span};
}

vow_source vow_source_range(vow_range *range, int64_t first, int64_t end)
{
    *range = (vow_range){.next = first, .end = end};
    return (vow_source){.pull = range_pull, .state = range};
}

static int span_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    vow_span *span = state;
    (void)ret_wait;
    if (span->left == 0)
        return 0;
    *ret_item = vow_ptr(span->at);
    span->at += span->width;
    span->left--;
    return 1;
}

static int range_pull(void *state, vow_value *ret_item, vow_future **ret_wait)
{
    vow_range *range = state;
    (void)ret_wait;
    if (range->next >= range->end)
        return 0;
    *ret_item = vow_int(range->next++);
    return 1;
}
