/* Fitting groups of 32 values to integers, for weights that are quantised when they are loaded. */
#include <math.h>
#include <stdbool.h>

#include "base/bytes.h"
#include "model/format/quant_internal.h"
#include "model/format/quant_types.h"

enum { GROUP = WEIGHT_GROUP, INT4_MAX = 15, GRIDS = 21 };

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

static struct grid grid_keep(double scale, double offset)
{
    return (struct grid){half_to_float(float_to_half((float)scale)),
                         half_to_float(float_to_half((float)offset))};
}

/* Integers of the values on a grid, and the squares of what is left over. */
static double grid_round(const float *values, struct grid grid, int8_t *q)
{
    const float inverse = grid.scale != 0.0f ? 1.0f / grid.scale : 0.0f;
    double squares = 0;
    for (size_t i = 0; i < GROUP; i++) {
        q[i] = nearest((values[i] - grid.offset) * inverse, 0.0f, INT4_MAX);
        const double left = (double)(grid.scale * (float)q[i] + grid.offset) - (double)values[i];
        squares += left * left;
    }
    return squares;
}

/* The line through (q, value) with the least squares; false where all q are the same. */
static bool grid_fit(const float *values, const int8_t *q, struct grid *out)
{
    double sum_q = 0, sum_qq = 0, sum_x = 0, sum_qx = 0;
    for (size_t i = 0; i < GROUP; i++) {
        sum_q += q[i];
        sum_qq += (double)q[i] * q[i];
        sum_x += (double)values[i];
        sum_qx += q[i] * (double)values[i];
    }
    const double divisor = GROUP * sum_qq - sum_q * sum_q;
    if (!(divisor > 0))
        return false;
    const double scale = (GROUP * sum_qx - sum_q * sum_x) / divisor;
    *out = grid_keep(scale, (sum_x - scale * sum_q) / GROUP);
    return scale > 0;
}

void quant_fit_int4(const float *values, int8_t *q, float *scale, float *offset)
{
    int8_t tried[GROUP];
    float low = values[0], high = values[0];
    for (size_t i = 1; i < GROUP; i++) {
        low = fminf(low, values[i]);
        high = fmaxf(high, values[i]);
    }
    /* The first grid reaches from the least to the largest value; the others are wider or tighter,
     * and then moved to where their integers fit best. */
    struct grid best = grid_keep((double)(high - low) / INT4_MAX, (double)low);
    double least = grid_round(values, best, q);
    for (int i = 0; i < GRIDS && high > low; i++) {
        const double steps = INT4_MAX - 2.0 + 0.15 * i;
        struct grid grid = {(float)((double)(high - low) / steps), low};
        grid_round(values, grid, tried);
        if (!grid_fit(values, tried, &grid))
            continue;
        const double squares = grid_round(values, grid, tried);
        if (!(squares < least))
            continue;
        least = squares;
        best = grid;
        for (size_t k = 0; k < GROUP; k++)
            q[k] = tried[k];
    }
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
