/* The one order in which 16 partial sums become one: halves are added until one is left, lane i
 * and lane i + 8, then 4, 2, 1. */
#ifndef BATON_KERNELS_LANE_TREE_H
#define BATON_KERNELS_LANE_TREE_H

#include <stdint.h>

enum { LANE_COUNT = 16 };

static inline __attribute__((always_inline)) float lane_tree_sum(const float lanes[LANE_COUNT])
{
    float half[LANE_COUNT / 2];
    for (uint32_t i = 0; i < 8; i++)
        half[i] = lanes[i] + lanes[i + 8];
    for (uint32_t width = 4; width >= 1; width /= 2)
        for (uint32_t i = 0; i < width; i++)
            half[i] += half[i + width];
    return half[0];
}

#endif
