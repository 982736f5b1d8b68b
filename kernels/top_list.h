/* The list of a row's largest values so far, largest first, and the one order of them: a NaN before
 * every number, so that a broken row shows; then the larger value; then the lower id. The order is
 * total, so it does not matter in which order values are offered, or by whom. */
#ifndef BATON_KERNELS_TOP_LIST_H
#define BATON_KERNELS_TOP_LIST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/backend.h"

static inline bool top_before(struct top_entry a, struct top_entry b)
{
    if (isnan(a.value) || isnan(b.value))
        return isnan(a.value) && (!isnan(b.value) || a.id < b.id);
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

/* list [count], of which *held are there. */
static inline void top_offer(struct top_entry *list, uint32_t *held, uint32_t count,
                             struct top_entry entry)
{
    if (*held == count && !top_before(entry, list[count - 1]))
        return;
    uint32_t at = *held < count ? (*held)++ : count - 1;
    for (; at > 0 && top_before(entry, list[at - 1]); at--)
        list[at] = list[at - 1];
    list[at] = entry;
}

#endif
