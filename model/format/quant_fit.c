/* Fitting groups of 32 values to integers, for weights that are quantised when they are loaded. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "model/format/quant_internal.h"
#include "model/format/quant_types.h"

enum { GROUP = WEIGHT_GROUP, INT4_MAX = 15, GRIDS = 21 };

/* Millions of groups are fitted in a load. Compiled for two widths of vector; nothing is fused or
 * reordered, so both give the same bits. ThreadSanitizer cannot start programs that have such
 * functions, and clang before 16 calls them by another name in every other file. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define FIT_CLONES __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define FIT_CLONES
#endif
#define FIT_INLINE static inline __attribute__((always_inline))

static int8_t nearest(float steps, float low, float high)
{
    const float held = fminf(fmaxf(rintf(steps), low), high);
    return (int8_t)held;
}

static bool all_finite(const float *values)
{
    for (size_t i = 0; i < GROUP; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

void quant_fit_int8(const float *values, int8_t *q, float *scale)
{
    float largest = 0.0f;
    for (size_t i = 0; i < GROUP; i++)
        largest = fmaxf(largest, fabsf(values[i]));
    *scale = half_to_float(float_to_half(largest / 127.0f));
    const float inverse = *scale > 0.0f ? 1.0f / *scale : 0.0f;
    for (size_t i = 0; i < GROUP; i++)
        q[i] = nearest(values[i] * inverse, -127.0f, 127.0f);
    if (!all_finite(values))
        *scale = NAN;
}

/* Scale and offset as they would be kept. */
struct grid {
    float scale, offset;
};

static struct grid grid_keep(float scale, float offset)
{
    return (struct grid){half_to_float(float_to_half(scale)), half_to_float(float_to_half(offset))};
}

/* Sums go by lanes, so that the compiler may take the values of a vector at a time. */
enum { LANES = 8 };

FIT_INLINE float lanes_sum(const float lanes[LANES])
{
    float sum = 0;
    for (size_t i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

/* Integers of the values on a grid, and the squares of what is left over. */
FIT_INLINE float grid_round(const float *restrict values, struct grid grid, float *restrict q)
{
    const float inverse = grid.scale != 0.0f ? 1.0f / grid.scale : 0.0f;
    const float integers = 0x1.8p23f; /* adding it leaves no room for a fraction */
    float squares[LANES] = {0};
    for (size_t i = 0; i < GROUP; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            const float steps = (values[i + k] - grid.offset) * inverse;
            const float above = steps > 0.0f ? steps : 0.0f; /* NaN: 0 */
            const float held = above < INT4_MAX ? above : INT4_MAX;
            q[i + k] = (held + integers) - integers;
            const float left = (grid.scale * q[i + k] + grid.offset) - values[i + k];
            squares[k] += left * left;
        }
    }
    return lanes_sum(squares);
}

/* The line through (q, value) with the least squares; false where all q are the same. Values are
 * taken from `low` on, which keeps the sums exact enough. */
FIT_INLINE bool grid_fit(const float *restrict values, float low, const float *restrict q,
                         struct grid *out)
{
    float lane_q[LANES] = {0}, lane_qq[LANES] = {0}, lane_x[LANES] = {0}, lane_qx[LANES] = {0};
    for (size_t i = 0; i < GROUP; i += LANES) {
        for (size_t k = 0; k < LANES; k++) {
            const float x = values[i + k] - low;
            lane_q[k] += q[i + k];
            lane_qq[k] += q[i + k] * q[i + k];
            lane_x[k] += x;
            lane_qx[k] += q[i + k] * x;
        }
    }
    const float sum_q = lanes_sum(lane_q), sum_x = lanes_sum(lane_x);
    const float divisor = GROUP * lanes_sum(lane_qq) - sum_q * sum_q;
    if (!(divisor > 0))
        return false;
    const float scale = (GROUP * lanes_sum(lane_qx) - sum_q * sum_x) / divisor;
    *out = grid_keep(scale, low + (sum_x - scale * sum_q) / GROUP);
    return scale > 0;
}

FIT_CLONES void quant_fit_int4(const float *values, int8_t *q, float *scale, float *offset)
{
    float tried[GROUP], kept[GROUP];
    float low = values[0], high = values[0];
    for (size_t i = 1; i < GROUP; i++) {
        low = values[i] < low ? values[i] : low;
        high = values[i] > high ? values[i] : high;
    }
    /* The first grid reaches from the least to the largest value; the others are wider or tighter,
     * and then moved to where their integers fit best. */
    struct grid best = grid_keep((high - low) / INT4_MAX, low);
    float least = grid_round(values, best, kept);
    for (int i = 0; i < GRIDS && high > low; i++) {
        const float steps = INT4_MAX - 2.0f + 0.15f * (float)i;
        struct grid grid = {(high - low) / steps, low};
        grid_round(values, grid, tried);
        if (!grid_fit(values, low, tried, &grid))
            continue;
        const float squares = grid_round(values, grid, tried);
        if (!(squares < least))
            continue;
        least = squares;
        best = grid;
        memcpy(kept, tried, sizeof kept);
    }
    for (size_t i = 0; i < GROUP; i++)
        q[i] = (int8_t)kept[i];
    *scale = all_finite(values) ? best.scale : NAN;
    *offset = best.offset;
}

/* Scales and minimums of eight groups to 6 bits each, as k4_scale_minimum reads them. */
static void k4_pack(const int scale[8], const int minimum[8], uint8_t packed[12])
{
    for (size_t group = 0; group < 4; group++) {
        packed[group] = (uint8_t)(scale[group] | scale[group + 4] >> 4 << 6);
        packed[group + 4] = (uint8_t)(minimum[group] | minimum[group + 4] >> 4 << 6);
        packed[group + 8] = (uint8_t)((scale[group + 4] & 15) | (minimum[group + 4] & 15) << 4);
    }
}

/* A group on the grid that the block's two scales leave it. */
static void k4_group(const float *values, float scale, float minimum, uint8_t q[GROUP])
{
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (size_t i = 0; i < GROUP; i++)
        q[i] = (uint8_t)nearest((values[i] + minimum) * inverse, 0.0f, INT4_MAX);
}

static void q4_k_block(const float *values, uint8_t *out)
{
    enum { GROUPS = 8, SIX_BITS = 63 };
    float scales[GROUPS], minimums[GROUPS], largest_scale = 0, largest_minimum = 0;
    int scale_q[GROUPS], minimum_q[GROUPS];
    for (size_t group = 0; group < GROUPS; group++) {
        int8_t q[GROUP];
        float offset;
        quant_fit_int4(values + group * GROUP, q, &scales[group], &offset);
        minimums[group] = fmaxf(-offset, 0.0f); /* the type only takes away */
        largest_scale = fmaxf(largest_scale, scales[group]);
        largest_minimum = fmaxf(largest_minimum, minimums[group]);
    }
    store_le16(out, float_to_half(largest_scale / SIX_BITS));
    store_le16(out + 2, float_to_half(largest_minimum / SIX_BITS));
    const float d = half_to_float(load_le16(out)), dmin = half_to_float(load_le16(out + 2));
    for (size_t group = 0; group < GROUPS; group++) {
        uint8_t q[GROUP], *packed = out + 16 + group / 2 * GROUP;
        scale_q[group] = nearest(d > 0 ? scales[group] / d : 0, 0, SIX_BITS);
        minimum_q[group] = nearest(dmin > 0 ? minimums[group] / dmin : 0, 0, SIX_BITS);
        k4_group(values + group * GROUP, d * (float)scale_q[group], dmin * (float)minimum_q[group],
                 q);
        for (size_t i = 0; i < GROUP; i++)
            packed[i] = (uint8_t)(group % 2 ? packed[i] | q[i] << 4 : q[i]);
    }
    k4_pack(scale_q, minimum_q, out + 4);
}

void q4_k_quantize(const float *values, void *blocks_out, size_t blocks)
{
    enum { SUPER = 256, BYTES = 144 };
    uint8_t *out = blocks_out;
    for (size_t b = 0; b < blocks; b++)
        q4_k_block(values + b * SUPER, out + b * BYTES);
}
