/* The router of a mixture of experts: softmax over all, then the likeliest few of a row. */
#include <math.h>

#include "kernels/exp_approx.h"
#include "kernels/kernels.h"
#include "kernels/lane_tree.h"
#include "kernels/ref_clones.h"

/* Whether expert a goes before b: a NaN first, then the larger, equal ones by id. */
REF_INLINE bool route_before(const float *logits, uint32_t a, uint32_t b)
{
    const bool odd_a = isnan(logits[a]), odd_b = isnan(logits[b]);
    if (odd_a != odd_b)
        return odd_a;
    if (!odd_a && logits[a] != logits[b])
        return logits[a] > logits[b];
    return a < b;
}

/* The first `used` in that order, by insertion: a row has some tens of experts, of which it takes
 * few. */
REF_INLINE void choose(const struct route_task *task, const float *logits, uint32_t *ids)
{
    uint32_t held = 0;
    for (uint32_t expert = 0; expert < task->experts; expert++) {
        uint32_t at = held;
        while (at > 0 && route_before(logits, expert, ids[at - 1]))
            at--;
        if (at == task->used)
            continue;
        held += held < task->used;
        for (uint32_t i = held - 1; i > at; i--)
            ids[i] = ids[i - 1];
        ids[at] = expert;
    }
}

REF_CLONES void route_f32__ref(const struct route_task *task)
{
    for (size_t row = 0; row < task->rows; row++) {
        const float *logits = task->logits + row * task->experts;
        uint32_t *ids = task->ids + row * task->used;
        float *weights = task->weights + row * task->used;
        choose(task, logits, ids);
        const float largest = logits[ids[0]];
        float lanes[LANE_COUNT] = {0};
        for (uint32_t i = 0; i < task->experts; i++)
            lanes[i % LANE_COUNT] += exp_approx(logits[i] - largest);
        const float all = lane_tree_sum(lanes);
        float chosen = 0;
        for (uint32_t i = 0; i < task->used; i++) {
            weights[i] = exp_approx(logits[ids[i]] - largest);
            chosen += weights[i];
        }
        for (uint32_t i = 0; i < task->used; i++)
            weights[i] = weights[i] / (task->normalise ? chosen : all);
    }
}
